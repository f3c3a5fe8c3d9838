"""What actors and learners do on a buffer: iterations for a stretch of time, or until a quota is done.

An iteration is an actor's (an insertion, then its work), of an actor with a local cache, a learner's (a sample, the new
priorities, then its work), of a learner that retrieves priorities before and after its work, and then sets new ones, or
one of actor and learner after the other.
"""

import contextlib
import hashlib
import math
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from impls.replay import LocalStorage
from impls.training.interrupts import WatchedParent, enter

from ...clock import pin_to
from ...libraries import rows
from ...libraries.base import Buffer
from . import kind_of
from .cells import RETRIEVE

MEMBERS = 16  # at most
STOP = MEMBERS  # the word of the counts that tells all to stop
ROTATING = 16  # inputs that take turns
POLL_SECONDS = 50e-6  # between two looks of a member that waits for others
LIMIT_SECONDS = 60.0  # after which a member that has not answered counts as hanging


class CrewError(Exception):
    """A member failed, died or hangs; the message says which and how."""


@dataclass(frozen=True)
class Quota:
    """As many insertions and as many gradient steps as ``total``, by all actors and by all learners together.

    Members 0 to ``actors`` - 1 are actors, the others learners. Learners start after ``starts`` insertions; an actor
    waits while more than ``starts`` insertions are ahead of the learners.
    """

    actors: int
    learners: int
    total: int
    starts: int


@dataclass(frozen=True)
class Job:
    """What a member does on a buffer, from ``begin`` on: until ``end`` (both by ``perf_counter``), or a quota.

    ``amount`` of work after each operation: seconds of sleeping, or rounds of arithmetic.
    """

    buffer: str
    role: str
    index: int
    rows: int
    batch: int
    cpus: tuple[int, ...]
    work: str = "none"
    amount: float = 0.0
    begin: float = 0.0
    end: float = math.inf
    quota: Quota | None = None


@dataclass(frozen=True)
class Outcome:
    """The iterations that a member did and when; ``error`` is what stopped it."""

    iterations: int
    began: float
    ended: float
    error: str | None = None
    superseded: int = 0  # samples whose priority others changed between both retrievals

    @property
    def seconds(self) -> float:
        """Seconds of an iteration."""
        return (self.ended - self.began) / self.iterations


def compute(rounds: int) -> None:
    """Do a given number of rounds of arithmetic, which touch no memory to speak of and hold no lock of Python's."""
    hashlib.pbkdf2_hmac("sha256", b"work", b"", rounds)


@cache
def rounds_of(seconds: float) -> int:
    """Return how many rounds of ``compute`` take so long, by the fastest of several tries; at least 1."""
    tried = 2_000
    least = math.inf
    for _ in range(10):
        begin = time.perf_counter()
        compute(tried)
        least = min(least, time.perf_counter() - begin)
    return max(1, round(tried * seconds / least))


class Member:
    """The buffers of a thread or process, and the jobs it has done before, ready to be done again."""

    def __init__(self, counts: Any, buffers: dict[str, Buffer] | None = None) -> None:
        self._counts, self._buffers = counts, {} if buffers is None else buffers
        self._iterations: dict[tuple[Any, ...], Callable[[int], int | None]] = {}

    def attach(self, key: str, name: str, handle: Any, capacity: int, seed: int) -> str | None:
        """Attach to a buffer of another process; return what it raised, which that process says."""
        kind: Any = kind_of(name)
        try:
            self._buffers[key] = kind.attached(handle, capacity, seed)
        except Exception as error:  # whatever a buffer raises is the result of its cell
            return f"{type(error).__name__}: {error}"
        return None

    def run(self, job: Job) -> Outcome:
        """Do a job; an exception stops the others too, and is the outcome's error."""
        pin_to(job.cpus)
        key = (job.buffer, job.role, job.rows, job.batch, job.work, job.amount)
        try:
            if key not in self._iterations:
                self._iterations[key] = _iteration(self._buffers[job.buffer], job)
            return (_by_quota if job.quota else _for_a_stretch)(job, self._iterations[key], self._counts)
        except Exception as error:  # whatever a buffer raises is the result of its cell
            self._counts[STOP] = 1
            now = time.perf_counter()
            return Outcome(0, now, now, f"{job.role} {job.index}: {type(error).__name__}: {error}")


def _iteration(buffer: Buffer, job: Job) -> Callable[[int], int | None]:
    """Return what one iteration of a job does, by its number; it returns how many of its samples were superseded."""
    rng = np.random.default_rng(job.index)
    works: dict[str, Callable[[], object]] = {
        "none": lambda: None,
        "computing": partial(compute, int(job.amount)),
        "sleeping": partial(time.sleep, job.amount),
    }
    work, batch = works[job.work], job.batch
    made = [rows.made(rng.integers(0, rows.MOST, job.rows)) for _ in range(ROTATING)]
    placed = [buffer.place(one) for one in made]
    storage = LocalStorage(rows.LAYOUT, job.rows)
    errors = [buffer.place_errors(rng.random(batch).astype(np.float32)) for _ in range(ROTATING)]

    def act(turn: int) -> None:
        buffer.insert(placed[turn % ROTATING])
        work()

    def learn(turn: int) -> None:
        buffer.update(buffer.sample(batch), errors[turn % ROTATING])
        work()

    def learn_by_priorities(turn: int) -> int:
        sampled = buffer.sample(batch)
        used = buffer.retrieve(sampled)  # [Zhang2021, Alg. 1], for the weights
        work()
        superseded = np.count_nonzero(buffer.retrieve(sampled) != used)
        buffer.update(sampled, errors[turn % ROTATING])
        return superseded

    def both(turn: int) -> None:
        act(turn)
        learn(turn)

    def flush(turn: int) -> None:
        for step in steps[turn % ROTATING]:
            storage.store(*step)  # as actors do
        buffer.insert(buffer.place(storage.take()[0]))

    names = ("observation", "action", "reward", "next_observation", "terminated")  # as a local cache takes them
    steps = [list(zip(*(one[name] for name in names), strict=True)) for one in made]
    roles = {"actor": act, "learner": learn, RETRIEVE: learn_by_priorities, "both": both, "cache": flush}
    return roles[job.role]


def _wait_until(moment: float) -> float:
    while (left := moment - time.perf_counter()) > 0:
        time.sleep(left)
    return time.perf_counter()


def _for_a_stretch(job: Job, iteration: Callable[[int], int | None], counts: Any) -> Outcome:
    began = now = _wait_until(job.begin)
    done = 0
    # Invariant: ``done`` iterations ended at ``now``.
    while not done or (now < job.end and not counts[STOP]):
        iteration(done)
        done += 1
        now = time.perf_counter()
    return Outcome(done, began, now)


def _by_quota(job: Job, iteration: Callable[[int], int | None], counts: Any) -> Outcome:
    quota = job.quota
    assert quota is not None
    actors, members = quota.actors, quota.actors + quota.learners
    is_actor, late = job.role == "actor", job.begin + LIMIT_SECONDS
    first, last = (0, actors) if is_actor else (actors, members)
    began = _wait_until(job.begin)
    done = superseded = 0
    # Invariant: counts[0 : members] are the iterations that each member has done; no word has two writers.
    while sum(counts[first:last]) < quota.total:
        inserted, learned = sum(counts[:actors]), sum(counts[actors:members])
        must_wait = inserted > learned + quota.starts if is_actor else inserted < min(quota.starts, quota.total)
        if counts[STOP] or time.perf_counter() > late:
            raise CrewError("stopped, for another failed" if counts[STOP] else f"not done after {LIMIT_SECONDS:g} s")
        if must_wait:
            time.sleep(POLL_SECONDS)
            continue
        superseded += iteration(done) or 0
        done += 1
        counts[job.index] = done
    return Outcome(done, began, time.perf_counter(), superseded=superseded)


class Crew:
    """What threads and processes have in common: the counts, and one run after the other."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self.counts = self._context.RawArray("q", MEMBERS + 1)

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


class Threads(Crew):
    """Threads of this process, all on the same buffers."""

    def __init__(self, buffers: dict[str, Buffer]) -> None:
        super().__init__()
        self._members = [Member(self.counts, buffers) for _ in range(MEMBERS)]
        self._pool = ThreadPoolExecutor(MEMBERS)

    def _run(self, jobs: Sequence[Job]) -> list[Outcome]:
        begun = [self._pool.submit(member.run, job) for member, job in zip(self._members, jobs, strict=False)]
        try:
            return [outcome.result(LIMIT_SECONDS + 5) for outcome in begun]
        except TimeoutError:
            raise CrewError(f"a thread has not come back after {LIMIT_SECONDS:g} s") from None


class Processes(Crew):
    """Spawned processes, started when they are needed, which attach to buffers of this one by their handles.

    They end with their parent, and are never waited for without a limit.
    """

    def __init__(self, buffers: dict[str, Buffer]) -> None:
        super().__init__()
        self._buffers = buffers
        self._processes: list[tuple[Any, Any]] = []  # each with the end of its pipe
        self._attached: set[tuple[int, str]] = set()

    def _run(self, jobs: Sequence[Job]) -> list[Outcome]:
        if any(self._buffers[job.buffer].inherited and (0, job.buffer) not in self._attached for job in jobs):
            self.close()
        while len(self._processes) < len(jobs):
            self._start(len(self._processes))
        for index, job in enumerate(jobs):
            if (index, job.buffer) not in self._attached:
                self._send(index, "attach", *self._attachment(job.buffer, index))
                if error := self._receive(index):
                    raise CrewError(error)
                self._attached.add((index, job.buffer))
        for index, job in enumerate(jobs):
            self._send(index, "run", job)
        return [self._receive(index) for index in range(len(jobs))]

    def _start(self, index: int) -> None:
        here, there = self._context.Pipe()
        inherited = [self._attachment(key, index) for key, buffer in self._buffers.items() if buffer.inherited]
        self._attached |= {(index, attachment[0]) for attachment in inherited}
        watched = (WatchedParent(), _serve, there, self.counts, inherited)
        process = self._context.Process(target=enter, args=watched, daemon=True)
        process.start()
        there.close()
        self._processes.append((process, here))

    def _attachment(self, key: str, index: int) -> tuple[Any, ...]:
        """Return what a member attaches to a buffer by."""
        buffer: Any = self._buffers[key]
        return key, buffer.name, buffer.handle(), buffer.capacity, index

    def _send(self, index: int, *request: Any) -> None:
        with contextlib.suppress(OSError):  # it has ended: there will be no answer, which says so
            self._processes[index][1].send(request)

    def _receive(self, index: int) -> Any:
        process, end = self._processes[index]
        try:
            if end.poll(LIMIT_SECONDS + 5):
                return end.recv()
            how = f"has not answered after {LIMIT_SECONDS:g} s"
        except (EOFError, ConnectionResetError):
            process.join(5)
            how = f"ended with exit code {process.exitcode}"
        self.close()
        raise CrewError(f"process {index} {how}")

    def close(self) -> None:
        """Kill the processes; the next run starts others."""
        for process, end in self._processes:
            process.kill()
            process.join(5)
            end.close()
        self._processes, self._attached = [], set()


def _serve(end: Any, counts: Any, inherited: Sequence[tuple[Any, ...]]) -> None:
    """Attach and run on request, until the parent's end is closed."""
    member = Member(counts)
    for attachment in inherited:
        member.attach(*attachment)
    with contextlib.suppress(EOFError, ConnectionResetError):
        for what, *arguments in iter(end.recv, None):
            end.send(getattr(member, what)(*arguments))
