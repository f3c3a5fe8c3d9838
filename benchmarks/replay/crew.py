"""Actors and learners that work on one buffer at once: threads of this process, or processes of their own.

Processes are spawned once, attach to buffers by their handles, end with their parent, and are never waited for without
a limit.
"""

import itertools
import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .buffers import Buffer
from .jobs import LIMIT_SECONDS, MEMBERS, CrewError, Job, Member, Outcome


class Crew:
    """What threads and processes have in common: the counts, and one run after the other."""

    def __init__(self, counts: Any) -> None:
        self.counts = counts

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Do all jobs at once, job i by member i. CrewError where one failed, died or hangs."""
        self.counts[:] = [0] * len(self.counts)
        outcomes = self._run(jobs)
        errors = [outcome.error for outcome in outcomes if outcome.error]
        if errors:
            raise CrewError(next((error for error in errors if "another failed" not in error), errors[0]))
        return outcomes

    def _run(self, jobs: Sequence[Job]) -> list[Outcome]:
        raise NotImplementedError

    def close(self) -> None:
        """End the members, if they are processes."""


class Threads(Crew):
    """Threads of this process, all on the same buffers."""

    def __init__(self, buffers: dict[str, Buffer]) -> None:
        super().__init__(multiprocessing.get_context("spawn").RawArray("q", MEMBERS + 1))
        self._members = [Member(self.counts) for _ in range(MEMBERS)]
        for member in self._members:
            member.buffers = buffers
        self._pool = ThreadPoolExecutor(MEMBERS)

    def _run(self, jobs: Sequence[Job]) -> list[Outcome]:
        began = [self._pool.submit(member.run, job) for member, job in zip(self._members, jobs, strict=False)]
        try:
            return [one.result(LIMIT_SECONDS + 5) for one in began]
        except TimeoutError:
            raise CrewError(f"a thread has not come back after {LIMIT_SECONDS:g} s") from None


class Processes(Crew):
    """Spawned processes, started when they are needed, which attach to buffers of this one."""

    def __init__(self, buffers: dict[str, Buffer]) -> None:
        self._context = multiprocessing.get_context("spawn")
        super().__init__(self._context.RawArray("q", MEMBERS + 1))
        self._buffers = buffers
        self._ends: list[Any] = []
        self._processes: list[Any] = []
        self._attached: set[tuple[int, str]] = set()

    def _run(self, jobs: Sequence[Job]) -> list[Outcome]:
        if any(self._buffers[job.buffer].inherited and (0, job.buffer) not in self._attached for job in jobs):
            self.close()
        self._start(len(jobs))
        for index, job in enumerate(jobs):
            self._attach(index, job.buffer)
        for end, job in zip(self._ends, jobs, strict=False):
            end.send(("run", job))
        return [self._receive(index) for index in range(len(jobs))]

    def _start(self, count: int) -> None:
        # Invariant: as many pipes as processes, in the same order.
        while len(self._ends) < count:
            here, there = self._context.Pipe()
            index = len(self._ends)
            inherited = [self._attachment(key, index) for key, buffer in self._buffers.items() if buffer.inherited]
            self._attached |= {(index, attachment[0]) for attachment in inherited}
            process = self._context.Process(target=_serve, args=(there, self.counts, inherited), daemon=True)
            process.start()
            there.close()
            self._ends.append(here)
            self._processes.append(process)

    def _attach(self, index: int, key: str) -> None:
        if (index, key) in self._attached:
            return
        self._ends[index].send(("attach", *self._attachment(key, index)))
        if error := self._receive(index):
            raise CrewError(error)
        self._attached.add((index, key))

    def _attachment(self, key: str, index: int) -> tuple[Any, ...]:
        """Return what a member attaches to a buffer by."""
        buffer: Any = self._buffers[key]
        return key, buffer.name, buffer.handle(), buffer.capacity, index

    def _receive(self, index: int) -> Any:
        try:
            if self._ends[index].poll(LIMIT_SECONDS + 5):
                return self._ends[index].recv()
            how = f"has not answered after {LIMIT_SECONDS:g} s"
        except (EOFError, ConnectionResetError):
            self._processes[index].join(5)
            how = f"ended with exit code {self._processes[index].exitcode}"
        self.close()
        raise CrewError(f"process {index} {how}")

    def close(self) -> None:
        """Kill the processes; the next run starts others."""
        for process, end in zip(self._processes, self._ends, strict=True):
            process.kill()
            process.join(5)
            end.close()
        self._ends, self._processes, self._attached = [], [], set()


def _serve(end: Any, counts: Any, inherited: Sequence[tuple[Any, ...]]) -> None:
    """Attach and run on request, until the parent's end is closed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    member = Member(counts)
    for attachment in inherited:
        member.attach(*attachment)
    for _ in itertools.count():
        try:
            what, *arguments = end.recv()
        except (EOFError, ConnectionResetError):
            return
        if what == "run":
            end.send(member.run(*arguments))
            continue
        try:
            member.attach(*arguments)
            end.send(None)
        except Exception as error:  # the parent says it
            end.send(f"{type(error).__name__}: {error}")


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
