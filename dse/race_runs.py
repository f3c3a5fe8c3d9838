"""Training runs race on this machine: each in a process group of its own, which trains while all others are stopped.

Runs are started and trained until they learn, as many at once as there are cores; then they take turns, in which they
count their gradient steps and the seconds of training. Losers end; the winner continues, with nothing lost. A guard, a
shell that reads a pipe of ours, kills the groups of all that race as soon as this process has ended.
"""

import contextlib
import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from impls.cores import count_allowed, free_bytes
from impls.race import Candidate, Result, race
from impls.training import clock
from impls.training.interrupts import exiting
from impls.training.run import SETTLED

FILE = "runs.jsonl"
SECONDS = 60.0  # to decide in
ZONE = 0.02  # the share by which one may be slower and still count as equally fast
START = 0.5  # the share of the seconds after which two that learn race without those that do not yet
TURN_SECONDS, TURNS = (0.1, 1.0), 24  # of a turn; of each run, for which the seconds are to be enough
SILENT_SECONDS = 30.0  # of a turn without a gradient step, after which a run has failed
LOOK_SECONDS, LOOKS = 0.01, 100
STOPPED = os.WSTOPPED | os.WNOHANG
GUARD = 'while read -r groups; do last=$groups; done; for group in $last; do kill -s KILL -- "-$group"; done'


class Done(KeyboardInterrupt):
    """A run has taken all its steps, which ends a race as Ctrl-C does: with what is known so far."""


@dataclass
class Program:
    """A training run: its command, what it reads, its folder, its predicted rate and the bytes that it will hold.

    ``numbers``: those of its clock. ``stopped``: since when, in nanoseconds, None while it trains.
    """

    name: str
    command: Sequence[str]
    given: str
    folder: Path
    predicted: float = 0.0
    nbytes: float = 0.0
    process: subprocess.Popen[str] | None = None
    numbers: "memoryview[int]" = field(default_factory=lambda: memoryview(bytes(8 * clock.COUNT)).cast("q"))
    stopped: int | None = None

    def start(self) -> None:
        """Start it, with the standard output and errors in a file."""
        self.folder.mkdir(parents=True)
        turns = self.folder / "turns"
        turns.write_bytes(bytes(8 * clock.COUNT))
        self.numbers = clock.numbers_of(turns)
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        environment = {**os.environ, clock.TURNS: str(turns)}
        with (self.folder / "output").open("w") as out:
            made = subprocess.Popen(self.command, stdout=out, env=environment, process_group=0, **streams)
        self.process = made
        assert made.stdin is not None  # it is a pipe
        with contextlib.suppress(BrokenPipeError):  # it has ended, and said why
            made.stdin.write(self.given)
            made.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes, if there are any."""
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def stop(self) -> None:
        """Let it stand still."""
        if self.stopped is None:
            self.signal(signal.SIGSTOP)
            for _ in range(LOOKS):  # or its clock would go back by what it ran on
                if (
                    not self.process
                    or self.process.poll() is not None
                    or os.waitid(os.P_PID, self.process.pid, STOPPED)
                ):
                    break
                time.sleep(LOOK_SECONDS / LOOKS)
            self.stopped = time.perf_counter_ns()

    def go_on(self) -> None:
        """Let it train, as if no time had passed."""
        if self.stopped is not None:
            self.numbers[clock.PAUSED] += time.perf_counter_ns() - self.stopped
            self.stopped = None
            self.signal(signal.SIGCONT)

    def check(self) -> None:
        """RuntimeError where it has ended, with the last line that it wrote; Done where it has taken all its steps."""
        if self.process and (code := self.process.poll()) is not None:
            if not code:
                raise Done
            said = (self.folder / "output").read_text(errors="replace").split("\n")
            lines = [line.removeprefix("error: ") for line in said if line.strip()] or ["it wrote nothing"]
            raise RuntimeError(f"ended with exit code {code}: {lines[-1]}")

    @property
    def learns(self) -> bool:
        """Whether it has settled."""
        return clock.read_progress(self.numbers)[1] >= SETTLED

    def turn(self, seconds: float) -> float:
        """Train for so long, and until a gradient step is taken; return the seconds of a gradient step.

        RuntimeError where none is.
        """
        _, updates, trained = clock.read_progress(self.numbers)
        begin = time.perf_counter()
        self.go_on()
        try:
            while (spent := time.perf_counter() - begin) < seconds or clock.read_progress(self.numbers)[1] == updates:
                self.check()
                if spent > seconds + SILENT_SECONDS:
                    raise RuntimeError(f"no gradient step in {spent:.0f} s")
                time.sleep(min(LOOK_SECONDS, max(seconds - spent, 1e-4)))
        finally:
            self.stop()
        _, after, now = clock.read_progress(self.numbers)
        return (now - trained) / 1e9 / (after - updates)

    def end(self) -> None:
        """Kill all its processes, and delete its folder."""
        self.signal(signal.SIGKILL)
        if self.process:
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Group:
    """Programs of which none outlives this process, but one that is free. Close it, whatever happens."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs = list(programs)
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        self._guard = subprocess.Popen(["sh", "-c", GUARD], start_new_session=True, **streams)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs:
            program.end()
        self.tell()
        self._guard.communicate()

    def tell(self) -> None:
        """Tell the guard whom to kill."""
        assert self._guard.stdin is not None  # it is a pipe
        with contextlib.suppress(BrokenPipeError):  # it was killed
            pids = [str(program.process.pid) for program in self.programs if program.process]
            self._guard.stdin.write(f"{' '.join(pids)}\n")
            self._guard.stdin.flush()

    def warm(self, programs: Sequence[Program], until: float, soon: float = math.inf) -> None:
        """Start programs and let them train until they learn, or it is ``until``, or ``soon`` and two do.

        Those that learn stand still.
        """
        waiting, training = list(programs), list[Program]()
        while (waiting or training) and (now := time.perf_counter()) < until:
            if now > soon and sum(program.learns for program in self.programs) > 1:
                break
            while waiting and len(training) < count_allowed():
                training.append(waiting.pop(0))
                training[-1].start()
                self.tell()
            time.sleep(LOOK_SECONDS)
            for program in [*training]:
                if program.learns or (program.process and program.process.poll() is not None):
                    training.remove(program)
                    program.stop()
        for program in training:
            program.stop()

    def end(self, program: Program) -> None:
        """End a program, which has lost."""
        self.programs.remove(program)
        program.end()
        self.tell()

    def free(self, program: Program) -> None:
        """Let a program train on, and end all others."""
        for other in [each for each in self.programs if each is not program]:
            self.end(other)
        self.programs.remove(program)
        self.tell()
        program.numbers[clock.FREE] = 1
        program.go_on()


@dataclass(frozen=True)
class Decided:
    """The ``winner``, which trains on, and the race; a ``reason`` where there was none, or a run was done before."""

    winner: Program
    result: Result | None
    reason: str = ""


@contextlib.contextmanager
def decided(
    programs: Sequence[Program],
    seconds: float,
    progress: Callable[[float, int], None] = lambda spent, left: None,
    settle: Callable[[Program], object] = lambda winner: None,
) -> Iterator[Decided]:
    """Race programs, those to prefer first, for some seconds with their start, and yield which of them trains on.

    Where fewer than two learn in that time, the best predicted that has not ended is taken. Where two learn in half of
    it, those that do not have lost. A run that has taken all its steps before has won. ``settle`` is called with the
    winner while it still stands still. ValueError where all have failed. Whatever leaves the context ends the others,
    an error the winner too; no process is left stopped.
    """
    begin = time.perf_counter()
    with exiting(), Group(programs) as group:
        room, fitting = free_bytes(), list[Program]()
        for program in programs:
            if sum(other.nbytes for other in fitting) + program.nbytes <= room:
                fitting.append(program)
        group.warm(fitting, begin + seconds, begin + START * seconds)
        late = [program for program in fitting if not program.learns]
        result, reason = None, ""
        if sum(program.learns for program in programs) < 2:
            reason = f"fewer than two candidates had begun to learn after {time.perf_counter() - begin:.0f} s"
            reason += "; the best of the predicted ones trains"
        else:
            with contextlib.suppress(Done):  # before any round
                result = _raced(group, late, max(begin + seconds - time.perf_counter(), TURN_SECONDS[0]), progress)
        standings = result.standings if result else ()
        place = {program.name: at for at, program in enumerate(standings) if program.status != "failed"}
        able = [program for program in group.programs if program.process and not program.process.poll()]
        done = [program.name for program in able if program.process and program.process.poll() == 0]
        if done:
            reason = "one had taken all its steps"
        able.sort(key=lambda winner: (winner.name not in done, place.get(winner.name, len(place)), -winner.predicted))
        if not able:
            raise ValueError("; ".join(dict.fromkeys(f"{program.name}: {_why(program)}" for program in programs)))
        settle(able[0])
        group.free(able[0])
        decision = Decided(able[0], result, reason)
    try:
        yield decision
    except BaseException:
        decision.winner.end()
        raise


def _raced(group: Group, late: Sequence[Program], seconds: float, progress: Callable[[float, int], None]) -> Result:
    end = time.perf_counter() + seconds

    def candidate(program: Program) -> Candidate:
        def make() -> Callable[[float], float]:
            if program not in late and not program.process:
                group.warm([program], end)
            program.check()
            if not program.learns:
                raise RuntimeError("had not begun to learn in time")
            return program.turn

        return Candidate(program.name, make, program.nbytes, lambda: group.end(program))

    least, most = TURN_SECONDS
    turn = min(most, max(least, seconds / (TURNS * len(group.programs))))
    candidates = [candidate(program) for program in group.programs]
    return race(candidates, [(turn,)], seconds, ZONE, block_seconds=0, memory_bytes=free_bytes(), progress=progress)


def _why(program: Program) -> str:
    try:
        program.check()
    except (RuntimeError, OSError) as error:
        return str(error)
    return "had not begun to learn"


def rows_of(result: Result) -> list[dict[str, Any]]:
    """The standings as plain values; ``hz``: gradient steps/s of the median turn, and those of 95 % of its turns."""
    rows = []
    for standing in result.standings:
        turns = sorted(1 / seconds for seconds in result.blocks[standing.name].values())
        hz = [float(f"{rate:.4g}") for rate in np.quantile(turns, (0.5, 0.025, 0.975))] if turns else None
        ratio = [bound if math.isfinite(bound) else None for bound in standing.ratio]
        row = {"name": standing.name, "status": standing.status, "reason": standing.reason, "hz": hz, "ratio": ratio}
        rows.append(row)
        rows[-1]["samples"] = [float(f"{rate:.4g}") for rate in turns]
    return rows
