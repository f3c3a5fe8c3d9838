"""How fast is each arrangement of processes, and how near to the bound that its busiest part sets?

A workload is trained serially (serial), with actors apart, with a keeper of the replay besides (pipelined), and with
two units in its place, the tree and the records [Zhang2023, Fig. 7] (two_units), at update intervals of 1, 8 and 64:
from a full replay on, by the default implementations. The bound is the rate at which the kind of process that works
most would never wait; its work is timed in the same run, with the others. With --long instead: how far do environment
steps lead or lag the kept ratio over a million of them? Interrupt it as you like: the same command resumes where it
stopped. Records go to results/<machine>/arrangements.jsonl.
"""

import contextlib
import dataclasses
import itertools
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from dse.records import Record
from impls.terminal import aligned, plural
from impls.training import TrainingError, Workload, identity, learners
from impls.training.arrangement import Arrangement
from impls.training.loop import SerialLoop

from ..arguments import add_list, add_names, add_numbers, at_least
from ..clock import ALL_CPUS, pin
from ..run import Stamp
from ..timing import Timing
from ..topic import Topic
from ..worker import NOT_HERE, threads
from .profile.cells import Cell, options_of_run, shape_run
from .profile.command import try_environments, workload_of
from .profile.concurrent_parts import PARTS, PRIMITIVE
from .profile.parts import World

RATE, BOUND, RATIO = "rate", "bound", "ratio"
WORKLOADS = ("cartpole_dqn", "hopper_ddpg")
INTERVALS, ACTORS, ENVIRONMENTS = (1, 8, 64), (1, 2), (1, 8)
TWO_UNITS = "two_units"
DEPTHS = {"serial": 0, "apart": 0, "pipelined": 1, TWO_UNITS: 1}
"""D by arrangement; a keeper of the replay always samples ahead."""
LONG_DEPTHS, LONG_ENVIRONMENTS = {"apart": 0, "pipelined": 4}, 8
"""D of each arrangement that has a ratio to keep; a serial loop has it by its order of steps."""
STRETCHES, TENTHS = 12, 10
OFF = 0.01
"""The error bound of the ratio of a part of the run, a share."""
START_SECONDS = 120.0  # within which every process takes its first turn, and each gradient step comes
STORAGE_BYTES = 1 << 30
ENDLESS = 10**9  # environment steps of a run that is never at its end


def make_cell(
    workload: Workload, name: str, op: str = RATE, *, ratio: str = "kept", learner: str = "", **shape: int
) -> Cell:
    """Return the cell of a workload's run in the arrangement of a name, by its default implementation unless another
    is given; ``shape`` has other numbers than the workload, such as ``actors``. TrainingError for a name of none."""
    kept = {"name": "pipelined", "units": "two"} if name == TWO_UNITS else {"name": name}
    arrangement = Arrangement(ratio=ratio, **kept)
    options = options_of_run(workload, arrangement, learner or learners.default(workload), **shape)
    sizes = arrangement.threads, workload.replay.capacity, workload.replay.fanout
    return Cell("loop", op, options, workload.learner.batch, *sizes)


def list_cells(workload: Workload, names: Sequence[str], intervals: Sequence[int]) -> list[Cell]:
    """List what is timed of a workload: every arrangement at every update interval, and apart at a free ratio."""
    kept = [
        make_cell(workload, name, update_interval=interval, actors=actors, environments=count, presampled=DEPTHS[name])
        for interval, name, actors, count in itertools.product(intervals, names, ACTORS, ENVIRONMENTS)
        if name != "serial" or actors == 1
    ]
    free = {"update_interval": 1, "actors": 1, "presampled": 0}
    counts = ENVIRONMENTS if "apart" in names else ()
    return kept + [make_cell(workload, "apart", ratio="free", environments=count, **free) for count in counts]


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
        of_kind = itertools.pairwise(mark.work[kind] for mark in self.marks)
        each = [(last[1] - first[1], last[2] - first[2]) for first, last in of_kind]
        return tuple(seconds / turns for turns, seconds in each if turns and seconds > 0)

    def bounds(self) -> tuple[float, ...]:
        """Seconds of a gradient step if the busiest kind of process never waited, of each stretch; () without kinds.

        A kind's processes share its work: each has its own work of the stretch, over the gradient steps of the stretch.
        """
        pairs = list(itertools.pairwise(self.marks)) if self.kinds else []
        works = [max(self._work(kind, *pair) for kind in self.kinds) for pair in pairs]
        each = (work / (last.updates - first.updates) for work, (first, last) in zip(works, pairs, strict=True))
        return tuple(seconds for seconds in each if seconds > 0)

    def busiest(self) -> str:
        """Name the kind of process that works most of the time; "" without kinds."""
        return max(self.kinds, key=lambda kind: self._work(kind, self.marks[0], self.marks[-1]), default="")

    @staticmethod
    def _work(kind: str, first: Mark, last: Mark) -> float:
        """Return the seconds of own work of each process of a kind between two marks."""
        return (last.work[kind][2] - first.work[kind][2]) / first.work[kind][0]


def time_run(workload: Workload, cell: Cell, read: Callable[[Any], Iterable[Mark]]) -> Run:
    """Run a cell's arrangement until its marks are read. TrainingError where it cannot run or stands."""
    with place(cell), contextlib.closing(start_loop(workload, cell.options)) as loop:
        begin(loop)
        return Run(tuple(read(loop)), dict(loop.report()) if hasattr(loop, "report") else {})


def read_stretches(loop: Any, seconds: float, warm_seconds: float) -> Iterator[Mark]:
    """Yield marks at the ends of stretches of N seconds together, after the loop is warm."""
    end = time.perf_counter() + warm_seconds
    for _ in range(STRETCHES + 1):
        yield (mark := until(loop, end))
        end = mark.seconds + seconds / STRETCHES


def read_tenths(loop: Any, steps: int) -> Iterator[Mark]:
    """Yield a mark at the begin, and one after each tenth of a number of environment steps."""
    yield (first := until(loop, time.perf_counter()))
    for part in range(1, TENTHS + 1):
        while loop.step < first.steps + steps * part // TENTHS:
            loop.advance()
        yield until(loop, time.perf_counter())


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
    from impls.training.parallel.board import Row, processes_of  # noqa: PLC0415  # numba

    rows = loop.board.rows.copy()
    kinds = processes_of(loop.workload, loop.arrangement)
    groups = {f"{kind} {row}": [row] for kind, of in kinds.items() for row in of} if each else kinds
    return {
        name: (len(of), int(rows[list(of), Row.TURNS].sum()), 1e-9 * float(rows[list(of), Row.BUSY].sum()))
        for name, of in groups.items()
    }


def start_loop(workload: Workload, options: Mapping[str, Any]) -> Any:
    """Make the loop of a record's options, its replay full, where exploration has come to its end."""
    shaped, arrangement = shape_run(workload, options)
    workload = dataclasses.replace(shaped, steps=ENDLESS)
    step = max(workload.learner.learning_starts, workload.exploration.random_steps, workload.exploration.steps)
    by: dict[str, Any] = {"learner": options["learner"], "policy": options["policy"], "seed": 0}
    if arrangement.name == "serial":
        serial = SerialLoop(workload, **by)
        serial.buffer.load_state_dict(World(workload, 0, STORAGE_BYTES).full_state())
        serial.step = step
        return serial
    from impls.training.parallel.loop import ParallelLoop  # noqa: PLC0415  # numba
    from impls.training.parallel.pace import Pace  # noqa: PLC0415

    loop = ParallelLoop(workload, arrangement, **by)
    try:
        done = {"step": step, "updates": Pace.of(workload, arrangement).updates_at(step)}
        records = World(workload, 0, STORAGE_BYTES).full_state()
        loop.load_state_dict({**loop.state_dict(), "buffer": records, **done})
    except BaseException:
        loop.close()
        raise
    return loop


@contextlib.contextmanager
def place(cell: Cell) -> Iterator[None]:
    """Let a serial loop have one core, an arrangement all, and learners their threads; afterwards all as before."""
    import torch  # noqa: PLC0415  # heavy

    before = torch.get_num_threads()
    learners.use_threads(cell.threads)
    pin(1 if cell.options["arrangement"] == "serial" else len(ALL_CPUS), threads())
    try:
        yield
    finally:
        pin(len(ALL_CPUS), threads())
        learners.use_threads(before)


def list_records(stamp: Stamp, cell: Cell, run: Run) -> Iterator[Record]:
    """Yield the records of a run: the rate, the bound, and the own work of each kind of process a turn.

    The rate's ``metrics`` have what the loop reports, and which kind of process works most of the time.
    """
    busiest, count = {"busiest": run.busiest()}, max(1, run.updates // len(run.step_seconds))
    found = {"steps": run.steps, "gradient_steps": run.updates, "report": run.report, **busiest}
    yield stamp.timed(cell, Timing(run.step_seconds, count), metrics=found)
    if bounds := run.bounds():
        yield stamp.timed(cell, Timing(bounds, count), metrics=busiest, op=BOUND)
    for kind in run.kinds:
        if samples := run.turn_seconds(kind):
            yield stamp.timed(cell, Timing(samples, 1), op=PARTS[kind])


def list_long_records(stamp: Stamp, cell: Cell, run: Run) -> Iterator[Record]:
    """Yield the record of a long run: seconds of a gradient step, with lead, lag and ratios as metrics."""
    interval, pairs = cell.options["update_interval"], itertools.pairwise(run.marks)
    ratios = [(last.steps - first.steps) / (last.updates - first.updates) / interval for first, last in pairs]
    found = {"steps": run.steps, "gradient_steps": run.updates, "ratios": ratios, "report": run.report}
    yield stamp.timed(cell, Timing(run.step_seconds, max(1, run.updates // TENTHS)), metrics=found)


HEAD = ("arrangement", "actors", "E", "D", "steps/s", "95 % interval", "bound", "share", "busiest")
_SHAPE = "workload update_interval arrangement actors environments presampled learner policy ratio units".split()


def compare_rates(found: Iterable[Record]) -> list[dict[str, Any]]:
    """List the rates, the fastest of each workload and update interval first: gradient steps/s, bound, share."""
    by: dict[tuple[Any, ...], dict[str, Record]] = {}
    for record in found:
        if record.primitive == PRIMITIVE and record.op in (RATE, BOUND) and record.median_seconds is not None:
            by.setdefault(tuple(record.options.get(name) for name in _SHAPE), {})[record.op] = record
    rows = [_row(shape, ops[RATE], ops.get(BOUND)) for shape, ops in by.items() if RATE in ops]
    return sorted(rows, key=lambda row: (row["workload"], row["update_interval"], row["ratio"], -row["hz"]))


def _row(shape: Sequence[Any], rate: Record, bound: Record | None) -> dict[str, Any]:
    low, high = rate.low_seconds or rate.seconds, rate.high_seconds or rate.seconds
    options = dict(zip(_SHAPE, shape, strict=True))
    return {
        **options, "arrangement": TWO_UNITS if options["units"] else options["arrangement"],
        "hz": 1 / rate.seconds, "low": 1 / high, "high": 1 / low,
        "bound_hz": 1 / bound.seconds if bound else None, "share": bound.seconds / rate.seconds if bound else None,
        "busiest": rate.metrics.get("busiest", ""), "unstable": rate.status == "unstable",
    }  # fmt: skip


def write_rates(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Write a table for each workload and update interval, and below it which arrangement is the fastest."""
    groups = itertools.groupby(rows, lambda row: (row["workload"], row["update_interval"], row["ratio"]))
    for (workload, interval, ratio), group in groups:
        own = list(group)
        free = ", ratio free" if ratio == "free" else ""
        yield f"{workload}, update interval {interval}{free}: gradient steps/s"
        yield from aligned([HEAD, *map(_list_words, own)], "  ")
        said = f"  the fastest is {_name(own[0])}"
        for row in [row for row in own if row["share"] is not None][:1]:
            said += f"; the best parallel one, {_name(row)}, reaches {row['share']:.0%} of its bound"
        yield said


def _name(row: Mapping[str, Any]) -> str:
    """Name an arrangement by what it consists of."""
    if row["arrangement"] == "serial":
        return f"serial with E = {row['environments']}"
    return f"{row['arrangement']} with {plural(row['actors'], 'actor')}, E = {row['environments']}"


def _list_words(row: Mapping[str, Any]) -> list[str]:
    shape = [str(row[name]) for name in ("arrangement", "actors", "environments", "presampled")]
    rates = [f"{row['hz']:,.0f}{'*' * row['unstable']}", f"{row['low']:,.0f} to {row['high']:,.0f}"]
    bound = ["", ""] if row["bound_hz"] is None else [f"{row['bound_hz']:,.0f}", f"{row['share']:.0%}"]
    return [*shape, *rates, *bound, row["busiest"]]


def sum_up(record: Record) -> dict[str, Any]:
    """Sum up a long run: its steps, the largest lead (``most`` are allowed) and lag, and the error of the ratio."""
    report, options = record.metrics["report"], record.options
    return {
        "workload": options["workload"], "arrangement": options["arrangement"], "steps": record.metrics["steps"],
        "lead": report["lead"], "lag": report["lag"], "restarts": report["restarts"], "hz": 1 / record.seconds,
        "most": options["update_interval"] + options["actors"] * options["environments"],
        "ratio_off": max(abs(ratio - 1) for ratio in record.metrics["ratios"]),
    }  # fmt: skip


def write_summary(row: Mapping[str, Any]) -> str:
    """Write a summary in a sentence."""
    judged = f"{row['ratio_off']:.2%} ({'within' if row['ratio_off'] <= OFF else 'beyond'} {OFF:.0%})"
    return (
        f"{row['workload']} {row['arrangement']}: {row['steps']:,} environment steps, {row['hz']:,.0f} gradient steps "
        f"per second; at most {row['lead']:,} steps ahead of the ratio ({row['most']:,} allowed) and {row['lag']:,} "
        f"behind it; the ratio of a tenth of the run is off by at most {judged}"
    )


class Arrangements(Topic):
    """Every arrangement of workloads at every update interval, each a run of its own."""

    primitive, unit = PRIMITIVE, "arrangement"
    example = "--workload cartpole_dqn --intervals 1,8"
    _list_records = staticmethod(list_records)

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        """Add the workloads, their arrangements, and how long each runs."""
        add_list(parser, "workload", str, default=WORKLOADS, help=f"names or files (default: {','.join(WORKLOADS)})")
        add_list(parser, "intervals", at_least(1, "u"), default=INTERVALS, help="update intervals u (default: 1,8,64)")
        add_names(parser, "only", "arrangement", DEPTHS)
        seconds = {"seconds": (2.4, "seconds of timing a run"), "warm": (0.5, "seconds before them")}
        add_numbers(parser, **seconds, steps=(1_000_000, "environment steps of a long run"))
        kept = "only the kept ratio, over long runs of the first workload"
        parser.add_argument("--long", action="store_true", help=kept)

    def __init__(self, options: Namespace) -> None:
        super().__init__(options)
        self._workloads = [workload_of(name) for name in options.workload]
        self._cells = [list_cells(workload, options.only, options.intervals) for workload in self._workloads]
        self.asked = {"seconds": options.seconds, "warm": options.warm, **self._identities()}

    def _identities(self) -> dict[str, str]:
        return {f"workload {workload.name}": identity(workload) for workload in self._workloads}

    @property
    def file(self) -> str:
        """Name of the file of records: long runs have their own."""
        return f"arrangements{'-long' * self.options.long}.jsonl"

    def parts(self) -> Sequence[Topic]:
        """Return what is asked for: long runs, or short ones."""
        return [_LongRuns(self.options) if self.options.long else self]

    def cells(self) -> list[list[Cell]]:
        """Return the runs of each workload, each a group of its own."""
        return [[cell] for cells in self._cells for cell in cells]

    def open(self, stack: ExitStack) -> None:
        """Make the environments once, so that what they lack is said before anything is recorded."""
        try_environments(self._workloads)

    def measure(self, cells: Sequence[Cell]) -> Iterator[Record]:
        """Yield the records of a run, and the rate of a second run of the first cell of each workload."""
        # A run has more records than the one by which it is found, and its twin is a run too: it has no clocks.
        (cell,) = cells
        yield from self._measure_once(cell, self.stamp)
        if cell in [own[0] for own in self._cells]:
            again = dataclasses.replace(self.stamp, primitive=f"{PRIMITIVE}_again")
            yield from (record for record in self._measure_once(cell, again) if record.op == RATE)

    def _measure_once(self, cell: Cell, stamp: Stamp) -> Iterable[Record]:
        workload = next(own for own in self._workloads if own.name == cell.options["workload"])
        try:
            return self._list_records(stamp, cell, time_run(workload, cell, self._take_marks))
        except (TrainingError, *NOT_HERE, OSError, ImportError) as error:
            return [stamp.record(cell, "failed", reason=str(error) or "not enough memory")]

    def _take_marks(self, loop: Any) -> Iterator[Mark]:
        return read_stretches(loop, self.options.seconds, self.options.warm)

    def summarize(self, found: Sequence[Record]) -> tuple[dict[str, Any], Sequence[str]]:
        """Return the rates and tables of them, or the summary of each long run and a sentence."""
        if not self.options.long:
            rows = compare_rates(found)
            return {"rates": rows}, [*write_rates(rows)]
        rows = [sum_up(record) for record in found if record.op == RATIO and record.median_seconds is not None]
        return {"long": rows}, [*map(write_summary, rows)]


class _LongRuns(Arrangements):
    """Long runs of the first workload, in the arrangements that have a ratio to keep."""

    unit, has_sentinels = "long run", False
    _list_records = staticmethod(list_long_records)

    def __init__(self, options: Namespace) -> None:
        super().__init__(options)
        self._workloads, self._cells = self._workloads[:1], []
        self.asked = {"steps": options.steps, **self._identities()}

    def cells(self) -> list[list[Cell]]:
        """Return the long runs, each a group of its own."""
        (workload,), shape = self._workloads, {"actors": 1, "environments": LONG_ENVIRONMENTS}
        depths = {name: depth for name, depth in LONG_DEPTHS.items() if name in self.options.only}
        return [[make_cell(workload, name, RATIO, **shape, presampled=depth)] for name, depth in depths.items()]

    def _take_marks(self, loop: Any) -> Iterator[Mark]:
        return read_tenths(loop, self.options.steps)
