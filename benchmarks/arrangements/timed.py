"""One run of an arrangement: from a full replay on, warmed, then timed in stretches that end with a gradient step."""

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.training import TrainingError, learners
from impls.training.loop import SerialLoop

from ..clock import ALL_CPUS, pin
from ..profile.parts import World
from ..profile.serial import full
from ..profile.share import STORAGE_BYTES
from ..worker import threads
from .setting import Setting

STRETCHES = 12
START_SECONDS = 120.0  # within which every process takes its first turn, and each gradient step comes
ENDLESS = 10**9  # environment steps of a run that is never at its end

Work = Mapping[str, tuple[int, int, float]]
"""Of each kind of process: how many there are, their turns, and their seconds of own work, all from the start."""


@dataclass(frozen=True)
class Mark:
    """What a loop had done at a moment."""

    seconds: float
    steps: int
    updates: int
    work: Work


@dataclass(frozen=True)
class Run:
    """Marks at the ends of stretches, and what the loop reports of the whole run."""

    marks: tuple[Mark, ...]
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def updates(self) -> int:
        """Gradient steps from the first mark to the last."""
        return self.marks[-1].updates - self.marks[0].updates

    @property
    def steps(self) -> int:
        """Environment steps from the first mark to the last."""
        return self.marks[-1].steps - self.marks[0].steps

    @property
    def step_seconds(self) -> tuple[float, ...]:
        """Seconds of a gradient step, of each stretch."""
        pairs = itertools.pairwise(self.marks)
        return tuple((last.seconds - first.seconds) / (last.updates - first.updates) for first, last in pairs)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of processes that there are, if they tell of their own work."""
        return tuple(kind for kind, (count, _, _) in self.marks[0].work.items() if count)

    def turn_seconds(self, kind: str) -> tuple[float, ...]:
        """Seconds of own work a turn of a kind of process, of each stretch in which it had a turn."""
        each = (self._done(kind, *pair) for pair in itertools.pairwise(self.marks))
        return tuple(seconds / turns for turns, seconds in each if turns and seconds > 0)

    def bounds(self) -> tuple[float, ...]:
        """Seconds of a gradient step if the busiest kind of process never waited, of each stretch; () without kinds.

        A kind's processes share its work: each has its own work of the stretch, over the gradient steps of the stretch.
        """
        pairs = itertools.pairwise(self.marks) if self.kinds else ()
        each = (
            max(self._done(kind, *pair)[1] / pair[0].work[kind][0] for kind in self.kinds)
            / (pair[1].updates - pair[0].updates)
            for pair in pairs
        )
        return tuple(seconds for seconds in each if seconds > 0)

    def busiest(self) -> str:
        """Name the kind of process that works most of the time; "" without kinds."""
        ends = self.marks[0], self.marks[-1]
        return max(self.kinds, key=lambda kind: self._done(kind, *ends)[1] / ends[0].work[kind][0], default="")

    @staticmethod
    def _done(kind: str, first: Mark, last: Mark) -> tuple[int, float]:
        """Return the turns and the seconds of own work of a kind between two marks."""
        (_, before, worked), (_, after, works) = first.work[kind], last.work[kind]
        return after - before, works - worked


def timed(setting: Setting, seconds: float, warm_seconds: float, seed: int = 0) -> Run:
    """Run a setting, and time it for N seconds after it is warm. TrainingError where it cannot run or stands."""
    with placed(setting), contextlib.closing(started(setting, seed)) as loop:
        begin(loop)
        marks = [until(loop, time.perf_counter() + warm_seconds)]
        while len(marks) <= STRETCHES:
            marks.append(until(loop, marks[-1].seconds + seconds / STRETCHES))
        return Run(tuple(marks), dict(loop.report()) if hasattr(loop, "report") else {})


def begin(loop: Any) -> None:
    """Advance until every process has had a turn. TrainingError if one has none for two minutes."""
    end = time.perf_counter() + START_SECONDS
    while not all(turns for _, turns, _ in work_of(loop, each=True).values()):
        loop.advance()
        if time.perf_counter() > end:
            raise TrainingError(f"a process of this arrangement took no turn for {START_SECONDS:.0f} s")


def until(loop: Any, end: float) -> Mark:
    """Advance until a gradient step ends at or after a moment of ``perf_counter``. TrainingError if none comes."""
    while True:
        before = loop.updates
        loop.advance()
        now = time.perf_counter()
        if now >= end and loop.updates > before:
            return Mark(now, loop.step, loop.updates, work_of(loop))
        if now > end + START_SECONDS:
            raise TrainingError(f"this arrangement took no gradient step for {START_SECONDS:.0f} s")


def work_of(loop: Any, each: bool = False) -> Work:
    """Read what each kind of process has done, or ``each`` process by a name; {} of a loop in one process."""
    if not hasattr(loop, "board"):
        return {}
    from impls.training.parallel import board as words  # noqa: PLC0415  # numba

    rows: NDArray[np.int64] = loop.board.rows.copy()
    kinds = words.processes_of(loop.workload, loop.arrangement)
    groups = {f"{kind} {row}": [row] for kind, of in kinds.items() for row in of} if each else kinds
    return {
        name: (len(of), int(rows[list(of), words.TURNS].sum()), 1e-9 * float(rows[list(of), words.BUSY].sum()))
        for name, of in groups.items()
    }


def started(setting: Setting, seed: int) -> Any:
    """Make the loop of a setting, its replay full, where exploration has come to its end."""
    workload = dataclasses.replace(setting.workload, steps=ENDLESS)
    own, exploration = workload.learner, workload.exploration
    step = max(own.learning_starts, exploration.random_steps, exploration.steps)
    by: dict[str, Any] = {"learner": setting.learner, "policy": setting.policy, "seed": seed}
    if setting.name == "serial":
        serial = SerialLoop(workload, **by)
        serial.buffer.load_state_dict(full(World(workload, seed, STORAGE_BYTES)))
        serial.step = step
        return serial
    from impls.training.parallel.loop import ParallelLoop  # noqa: PLC0415  # numba
    from impls.training.parallel.pace import Pace  # noqa: PLC0415

    loop = ParallelLoop(workload, setting.arrangement, **by)
    try:
        records = full(World(workload, seed, STORAGE_BYTES))
        updates = Pace.of(workload, setting.arrangement).updates_at(step)
        loop.load_state_dict({**loop.state_dict(), "buffer": records, "step": step, "updates": updates})
    except BaseException:
        loop.close()
        raise
    return loop


@contextlib.contextmanager
def placed(setting: Setting) -> Iterator[None]:
    """Let a serial loop have one core, an arrangement all, and learners their threads; afterwards all as before."""
    import torch  # noqa: PLC0415  # heavy

    before, serial = torch.get_num_threads(), setting.name == "serial"
    learners.use_threads(setting.arrangement.threads)
    pin(1 if serial else len(ALL_CPUS), threads())
    try:
        yield
    finally:
        pin(len(ALL_CPUS), threads())
        learners.use_threads(before)
