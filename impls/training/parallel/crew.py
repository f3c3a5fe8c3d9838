"""The children of a run: started by spawn, each on its cores, watched, ended in time; a killed actor begins anew."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from ..errors import ProcessLost, TrainingError
from . import board as words
from .board import Board
from .programs import Start, run

SPAWN = multiprocessing.get_context("spawn")
RESTARTS = 5
"""Deaths of an actor before it takes a turn, one after the other, that a run bears."""
_LIFE = 1_000_003  # between the epochs of two lives of an actor
_START_SECONDS, _END_SECONDS = 180.0, 10.0
_LOOK_SECONDS, _LATE_SECONDS = 0.2, 2.0
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass
class Child:
    """A process of the crew: what it runs, since when, and where its faults arrive."""

    kind: str
    program: Callable[[Start], None]
    start: Start
    process: BaseProcess
    faults: Connection
    begun: float
    early: int = 0  # lives, this one and those before it, that ended before a turn
    turns: int = 0  # that those before it had taken


class Crew:
    """The children of a parent's board."""

    def __init__(self, board: Board) -> None:
        self._board, self._children, self._looked = board, list[Child](), 0.0
        self.restarts = 0
        self._pauses, self._is_uneven, self._failure, self._failed = 0, False, "", 0.0
        self._kind: type[TrainingError] = ProcessLost
        self.is_settled: Callable[[], bool] = lambda: True  # in the process that receives: as ``Handing.is_settled``
        board.watch = self.look

    def begin(self, kind: str, program: Callable[[Start], None], start: Start) -> None:
        """Start a child; ``kind`` names it to people."""
        self._children.append(self._begun(kind, program, start))

    def _begun(self, kind: str, program: Callable[[Start], None], start: Start) -> Child:
        mine, other = SPAWN.Pipe(duplex=False)
        process = SPAWN.Process(target=run, args=(program, start, other), daemon=True, name=f"{kind}-{start.number}")
        with _few_threads(start.threads), uninterrupted():
            process.start()
        other.close()
        return Child(kind, program, start, process, mine, time.monotonic())

    def watch(self) -> None:
        """Look after the children, at most every 0.2 s; steps that a killed actor had claimed are given back.

        ProcessLost for a fault of an actor, or a child that ended; TrainingError where a learner or keeper diverged.
        """
        self.look()
        if self._is_uneven:
            with self.paused():
                pass

    def look(self) -> None:
        """Look after the children, at most every 0.2 s; a killed actor begins anew. Raises as ``watch``."""
        if (now := time.monotonic()) - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        self._care()
        if self._failure:
            raise self._kind(self._failure)

    def _care(self) -> None:
        """Let killed actors begin anew, and note the first failure of any child."""
        for place, child in enumerate(self._children):
            if child.process.is_alive():
                is_late = time.monotonic() - child.begun > _START_SECONDS and not self._row(child)[words.LIVE]
                why = f"has not started in {_START_SECONDS:.0f} s" if is_late else ""
            elif sentence := _fault(child):
                self._fail(child, sentence, ProcessLost if child.kind == "actor" else TrainingError)
                continue
            elif child.kind == "actor" and not self._failure:
                why = self._why_not_anew(child)
                self._children[place] = child if why else self._anew(child)
            else:
                why = f"was ended from outside (exit code {child.process.exitcode})"
            if why:
                self._fail(child, f"{child.kind} {child.start.number} {why}")

    def _fail(self, child: Child, sentence: str, kind: type[TrainingError] = ProcessLost) -> None:
        """Note a failure, if it is the first; nobody waits for the child to rest."""
        self._row(child)[words.LIVE] = 0
        if not self._failure:
            self._failure, self._kind, self._failed = sentence, kind, time.monotonic()

    def _why_not_anew(self, child: Child) -> str:
        """Why an actor is not begun anew, nothing where it is."""
        if why := child.start.handing.after_kill:
            return f"was ended from outside: {why}"
        early = child.early + 1 if self._row(child)[words.TURNS] == child.turns else 1
        if early <= RESTARTS:
            return ""
        return f"ended {early} times before it took a turn (exit code {child.process.exitcode}); see what ends it"

    def _anew(self, child: Child) -> Child:
        row = self._row(child)
        turns = int(row[words.TURNS])
        self.restarts += 1
        self._is_uneven = True
        row[words.LIVE] = row[words.RESTING] = 0
        child.faults.close()
        begun = self._begun(child.kind, child.program, replace(child.start, epoch=child.start.epoch + _LIFE))
        return replace(begun, early=child.early + 1 if turns == child.turns else 1, turns=turns)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """All children that did not fail rest while the context lasts. ProcessLost if one does not in 3 minutes."""
        self._pauses += 1
        try:
            if self._pauses == 1:
                self._board.add(words.PAUSE)
                self._until(self._at_rest, "does not rest")
            if self._is_uneven:
                self._board.level()
                self._is_uneven = False
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._board.add(words.PAUSE)

    def dismiss(self, kind: str, first: int) -> None:
        """End the children of a kind from number ``first`` on, while they rest."""
        with self.paused():
            for child in [one for one in self._children if one.kind == kind and one.start.number >= first]:
                child.process.kill()
                child.process.join()
                child.faults.close()
                self._children.remove(child)
                self._row(child)[[words.LIVE, words.RESTING]] = 0

    def _row(self, child: Child) -> Any:
        return self._board.rows[child.start.row]

    def _at_rest(self) -> bool:
        """Whether all children rest, and nothing that they handed over before is still under way.

        After a failure it is under way for 2 s at most, for what an ended process had begun may never arrive.
        """
        rests = all(map(self._rests, self._children))  # first, for a child may hand over until it rests
        is_late = bool(self._failure) and time.monotonic() - self._failed > _LATE_SECONDS
        return (self.is_settled() or is_late) and rests

    def _rests(self, child: Child) -> bool:
        """Whether a child rests, or has ended, or is not started and will rest once it is."""
        return self._board.rests(child.start.row) or not child.process.is_alive()

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _START_SECONDS
        while not is_so():
            self._care()
            if time.monotonic() > end:
                raise ProcessLost(f"a process of this run {what} for {_START_SECONDS:.0f} s")
            time.sleep(1e-3)

    def end(self) -> None:
        """Stop all children; those that do not end within 10 s are killed."""
        self._board.watch = None
        self._board.stop()
        end = time.monotonic() + _END_SECONDS
        for child in self._children:
            child.process.join(max(0.0, end - time.monotonic()))
            if child.process.is_alive():
                child.process.kill()
                child.process.join()
            child.faults.close()
        self._children = []

    @property
    def pids(self) -> dict[str, int]:
        """The process number of each child, by its name."""
        return {child.process.name: child.process.pid or 0 for child in self._children}


@contextlib.contextmanager
def _few_threads(count: int) -> Iterator[None]:
    """Processes that are started meanwhile compute by so many threads, whichever library."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, str(count)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Processes that are started meanwhile never see a Ctrl-C, not even while they import; it is the parent's."""
    resource_tracker.ensure_running()  # not meanwhile, because it lets Ctrl-C through in the end
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _fault(child: Child) -> str | None:
    """The sentence that a child sent before it ended, None if it sent none."""
    with contextlib.suppress(EOFError, OSError):
        if child.faults.poll():
            sentence: str = child.faults.recv()
            return sentence
    return None


def share_of_cores(processes: int, cores: tuple[int, ...], needs: Sequence[int] = ()) -> list[tuple[int, ...]]:
    """The cores of each process: as many as it ``needs``, by default one, where there are enough; else all to all.

    What remains is the first's.
    """
    needs = needs or [1] * processes
    if len(cores) < sum(needs):
        return [cores] * processes
    stops = list(itertools.accumulate(needs[1:], initial=0))
    return [cores[stops[-1] :], *(cores[start:stop] for start, stop in itertools.pairwise(stops))]


def cores_here() -> tuple[int, ...]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))
