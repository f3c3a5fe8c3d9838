"""The children of a run: started by spawn, each on its cores, watched, ended in time; a killed actor begins anew."""

import atexit
import contextlib
import itertools
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ...replay import Replay, ReplayHandle, attach
from .. import clock, learners
from ..arrangement import Arrangement
from ..errors import ProcessLost, TrainingError
from ..interrupts import SIGNALS, WatchedParent, enter
from ..weights import layout_of
from ..workload import Workload
from .board import Board, BoardHandle, Counter, Row, Stopped
from .transports import RecordTransport

SPAWN = multiprocessing.get_context("spawn")
RESTARTS = 5
"""Deaths of an actor before it takes a turn, one after the other, that a run bears."""
_LIFE = 1_000_003  # between the epochs of two lives of an actor
_START_SECONDS, _END_SECONDS = 180.0, 10.0
_LOOK_SECONDS, _LATE_SECONDS = 0.2, 2.0
_HURRY_SECONDS = 4.0
_RECEIVERS = ("keeper", "tree", "storage", "shard")  # which rest last
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Start:
    """All that a child is started with; picklable. ``row`` is its row on the board, ``number`` that among its kind.

    ``epoch`` tells this life of the process from earlier ones, so that it sees other random numbers. ``threads`` are
    those that it may compute by.
    """

    workload: Workload
    arrangement: Arrangement
    seed: int
    epoch: int
    number: int
    row: int
    board: BoardHandle
    replay: ReplayHandle | None
    looks: int
    cores: tuple[int, ...]
    learner: str
    policy: str
    device: str
    transport: RecordTransport
    extra: Any = None  # what a kind of process needs besides
    threads: int = 1

    def attached(self) -> tuple[Board, Replay | None]:
        """The board and the replay, in this process, which is started by then: a pause waits for it."""
        board = Board.attach(self.board, self.looks)
        replay = None if self.replay is None else attach(self.replay, layout_of(self.workload))
        board.arrive(self.row)
        return board, replay


@dataclass
class Child:
    """A process of the pool: what it runs, since when, and where its faults arrive."""

    kind: str
    program: Callable[[Start], None]
    start: Start
    process: BaseProcess
    faults: Connection
    begun: float
    deaths_in_a_row: int = 0  # lives, this and those before it, that ended before a turn
    turns_before: int = 0  # turns of the lives before this one


class Children:
    """The children of a parent's board."""

    def __init__(self, board: Board) -> None:
        self._board, self._children, self._looked = board, list[Child](), 0.0
        self.restarts = 0
        self._pauses, self._has_lost_claims, self._failure, self._failed = 0, False, "", 0.0
        self._kind: type[TrainingError] = ProcessLost
        self._hurried, self._killed = math.inf, set[int]()  # since when the run is to end, and whom that has killed
        self.is_drained: Callable[[], bool] = lambda: True  # of the transport, in its receiver
        board.watch = self.look

    def begin(self, kind: str, program: Callable[[Start], None], start: Start) -> None:
        """Start a child; ``kind`` names it to people."""
        atexit.register(self.end)  # before multiprocessing's own end, which waits for children that ignore SIGTERM
        self._children.append(self._start_child(kind, program, start))

    def _start_child(self, kind: str, program: Callable[[Start], None], start: Start) -> Child:
        mine, other = SPAWN.Pipe(duplex=False)
        with _few_threads(start.threads):
            process = begin_child(f"{kind}-{start.number}", run, program, start, other)
        other.close()
        return Child(kind, program, start, process, mine, clock.seconds())

    def watch(self) -> None:
        """Look after the children, at most every 0.2 s; steps that a killed actor had claimed are given back.

        ProcessLost for a fault of an actor, or a child that ended; TrainingError where a learner or keeper diverged.
        """
        self.look()
        if self._has_lost_claims:
            with self.paused():
                pass

    def look(self) -> None:
        """Look after the children, at most every 0.2 s; a killed actor begins anew. Raises as ``watch``."""
        if (now := clock.seconds()) - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        self._look_after()
        if self._failure:
            raise self._kind(self._failure)

    def _look_after(self) -> None:
        """Let killed actors begin anew, and note the first failure of any child."""
        for place, child in enumerate(self._children):
            if child.process.is_alive():
                is_late = clock.seconds() - child.begun > _START_SECONDS and not self._row(child)[Row.LIVE]
                why = f"has not started in {_START_SECONDS:.0f} s" if is_late else ""
            elif fault := _fault(child):
                sentence, is_lost = fault
                self._fail(child, sentence, ProcessLost if is_lost or child.kind == "actor" else TrainingError)
                continue
            elif child.process.pid in self._killed:
                why = _restless(_HURRY_SECONDS)
            elif child.kind == "actor" and not self._failure and math.isinf(self._hurried):
                why = self._reason_not_to_restart(child)
                self._children[place] = child if why else self._restart(child)
            else:
                why = f"was ended from outside (exit code {child.process.exitcode})"
                if child.start.transport.is_polled and child.kind in _RECEIVERS:
                    why += ", and records that actors had sent it and it had not stored are lost"
            if why:
                self._fail(child, f"{child.kind} {child.start.number} {why}")

    def _fail(self, child: Child, sentence: str, kind: type[TrainingError] = ProcessLost) -> None:
        """Note a failure of a child; nobody waits for it to rest."""
        self._row(child)[Row.LIVE] = 0
        self._note(sentence, kind)

    def _note(self, sentence: str, kind: type[TrainingError] = ProcessLost) -> None:
        """Note a failure, if it is the first."""
        if not self._failure:
            self._failure, self._kind, self._failed = sentence, kind, clock.seconds()

    def _reason_not_to_restart(self, child: Child) -> str:
        """Why an actor is not begun anew, nothing where it is."""
        if why := child.start.transport.after_kill:
            return f"was ended from outside: {why}"
        early = child.deaths_in_a_row + 1 if self._row(child)[Row.TURNS] == child.turns_before else 1
        if early <= RESTARTS:
            return ""
        return f"ended {early} times before it took a turn (exit code {child.process.exitcode}); see what ends it"

    def _restart(self, child: Child) -> Child:
        row = self._row(child)
        turns = int(row[Row.TURNS])
        self.restarts += 1
        self._has_lost_claims = True
        row[Row.LIVE] = row[Row.RESTING] = 0
        child.faults.close()
        begun = self._start_child(child.kind, child.program, replace(child.start, epoch=child.start.epoch + _LIFE))
        deaths = child.deaths_in_a_row + 1 if turns == child.turns_before else 1
        return replace(begun, deaths_in_a_row=deaths, turns_before=turns)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """All children that did not fail rest while the context lasts.

        One that does not in 3 minutes, or in 4 s once the run is to end soon, is killed, and is a failure.
        """
        self._pauses += 1
        try:
            if self._pauses == 1:
                self._board.add(Counter.PAUSE)
                self._rest()
            if self._has_lost_claims:
                self._board.reclaim_steps_of_dead_processes()
                self._has_lost_claims = False
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._board.add(Counter.PAUSE)

    def _row(self, child: Child) -> Any:
        return self._board.rows[child.start.row]

    def _is_at_rest(self) -> bool:
        """Whether all children rest, and nothing that they handed off before is still under way.

        After a failure it is under way for 2 s at most, for what an ended process had begun may never arrive.
        """
        rests = all(map(self._rests, self._children))  # first, for a child may hand off until it rests
        is_late = bool(self._failure) and clock.seconds() - self._failed > _LATE_SECONDS
        return (self.is_drained() or is_late) and rests

    def _rests(self, child: Child) -> bool:
        """Whether a child rests, or has ended, or is not started and will rest once it is."""
        return self._board.rests(child.start.row) or not child.process.is_alive()

    def _rest(self) -> None:
        """Wait until all is at rest; who does not rest in time is killed."""
        began, later = clock.seconds(), 0.0
        while not self._is_at_rest():
            self._look_after()
            now, is_soon = clock.seconds(), math.isfinite(self._hurried)
            limit = max(began, self._hurried) + _HURRY_SECONDS if is_soon else began + _START_SECONDS
            if now > max(limit, later):
                self._kill_restless(now - began)
                later = now + _LATE_SECONDS
            time.sleep(1e-3)
        self._look_after()  # for who was killed a moment ago counts as at rest, and is a failure

    def _kill_restless(self, seconds: float) -> None:
        """Kill the children that do not rest: the stopped ones first, those who receive last, as they rest last."""
        restless = [child for child in self._children if not self._rests(child)]
        stopped = [child for child in restless if _is_stopped(child)]
        for child in stopped or [one for one in restless if one.kind not in _RECEIVERS] or restless:
            child.process.kill()
            child.process.join()
            self._fail(child, f"{child.kind} {child.start.number} {_restless(seconds)}")
        if not restless:
            self._note(f"records that actors handed off did not arrive in {seconds:.0f} s")

    def shorten_shutdown(self) -> None:
        """Let the run end soon: who does not rest in 4 s in a pause, or is stopped then, is killed.

        A signal's handler may call it.
        """
        self._hurried = clock.seconds()
        timer = threading.Timer(_HURRY_SECONDS, self._kill_stopped)
        timer.daemon = True
        timer.start()

    def _kill_stopped(self) -> None:
        """Kill the children that are stopped: this process may be waiting for a lock that one of them holds."""
        for child in [one for one in self._children if _is_stopped(one)]:
            self._killed.add(child.process.pid or 0)
            os.kill(child.process.pid or 0, signal.SIGKILL)

    @property
    def failure(self) -> str:
        """The sentence of the first failure, "" while there is none."""
        return self._failure

    def end(self) -> None:
        """Stop all children; those that do not end within 10 s are killed."""
        atexit.unregister(self.end)
        self._board.watch = None
        self._board.stop()
        end = clock.seconds() + _END_SECONDS
        for child in self._children:
            child.process.join(max(0.0, end - clock.seconds()))
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
    """Processes that are started meanwhile compute by a given number of threads, whichever library."""
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
    """Processes that are started meanwhile see none of ``SIGNALS``, not even while they import.

    They are the parent's to answer, though a terminal, or who ends a group of processes, sends them to all.
    """
    resource_tracker.ensure_running()  # not meanwhile, because it lets Ctrl-C and SIGTERM through in the end
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin_child(name: str, program: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a process that runs a program, and ends with this one from its first moment on."""
    given = WatchedParent(), program, *arguments
    process = SPAWN.Process(target=enter, args=given, daemon=True, name=name)
    with uninterrupted():
        process.start()
    return process


class ConnectedChild:
    """A child process and this process's end of a pipe to it; it is killed when this process ends, or by ``close``.

    ``program`` is called with the ``arguments``, then its own end of the pipe.
    """

    def __init__(self, name: str, program: Callable[..., None], *arguments: Any) -> None:
        self.pipe, other = SPAWN.Pipe()
        self._process = begin_child(name, program, *arguments, other)
        other.close()
        atexit.register(self.close)  # before multiprocessing's own end, which waits for children that ignore SIGTERM

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid or 0

    def close(self) -> None:
        """End the process; what it was computing is lost."""
        atexit.unregister(self.close)
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _restless(seconds: float) -> str:
    return f"did not rest for {seconds:.0f} s and was killed"


def _is_stopped(child: Child) -> bool:
    """Whether a child is stopped, as by SIGSTOP or a debugger; False where the system does not say."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{child.process.pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    return False


def _fault(child: Child) -> tuple[str, bool] | None:
    """The sentence that a child sent before it ended, and whether an environment failed; None if it sent none."""
    with contextlib.suppress(EOFError, OSError):
        if child.faults.poll():
            fault: tuple[str, bool] = child.faults.recv()
            return fault
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


def run(program: Callable[[Start], None], start: Start, faults: connection.Connection) -> None:
    """Run a child's program until the run is over; what goes wrong is sent to the parent as one sentence."""
    for one in SIGNALS:  # which are the parent's to answer
        signal.signal(one, signal.SIG_IGN)
    if start.cores and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):  # cores that were taken away meanwhile
            os.sched_setaffinity(0, start.cores)
    learners.use_threads(start.threads)
    try:
        program(start)
    except Stopped:
        return
    except (TrainingError, MemoryError) as error:
        _send(faults, str(error), isinstance(error, ProcessLost))
    except Exception as error:  # whatever a library raises: the parent says so
        _send(faults, f"{type(error).__name__}: {error} ({_place_of(error)})")
    else:
        return
    sys.exit(1)


def _place_of(error: Exception) -> str:
    """The place in the code that raised an error."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}"


def _send(faults: connection.Connection, sentence: str, is_lost: bool = False) -> None:
    with contextlib.suppress(OSError):
        faults.send((sentence, is_lost))
