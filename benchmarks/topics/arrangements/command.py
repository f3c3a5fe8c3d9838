"""How fast is each arrangement of processes, and how near to the bound that its busiest part sets?

A workload is trained serially (serial), with actors apart, and with a keeper of the replay besides (pipelined), at
update intervals of 1, 8 and 64: from a full replay on, by the default implementations. The bound is the rate at which
the kind of process that works most would never wait; its work is timed in the same run, with the others. With --long
instead: how far do environment steps lead or lag the kept ratio over a million of them? Interrupt it as you like: the
same command resumes where it stopped. Records go to results/<machine>/arrangements.jsonl.
"""

import argparse
import contextlib
import dataclasses
import functools
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.records import Record
from impls.terminal import aligned, plural
from impls.training import TrainingError, Workload, identity, learners
from impls.training.loop import SerialLoop

from ...arguments import add_common, add_list, add_names, add_numbers, at_least, parser_of
from ...clock import ALL_CPUS, pin
from ...run import Stamp, file_of, latest, run, show
from ...sentinels import Sentinels
from ...timing import Timing
from ...worker import NOT_HERE, threads
from ..profile.command import try_environments, workload_of
from ..profile.parts import World
from ..profile.serial import full
from ..share import STORAGE_BYTES
from .setting import BOUND, PARTS, PRIMITIVE, RATE, RATIO, Setting

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
    from impls.training.parallel.board import Row, processes_of  # noqa: PLC0415  # numba

    rows: NDArray[np.int64] = loop.board.rows.copy()
    kinds = processes_of(loop.workload, loop.arrangement)
    groups = {f"{kind} {row}": [row] for kind, of in kinds.items() for row in of} if each else kinds
    return {
        name: (len(of), int(rows[list(of), Row.TURNS].sum()), 1e-9 * float(rows[list(of), Row.BUSY].sum()))
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


HEAD = ("arrangement", "actors", "E", "D", "steps/s", "95 % interval", "bound", "share", "busiest")
_SHAPE = (
    "workload",
    "update_interval",
    "arrangement",
    "actors",
    "environments",
    "presampled",
    "learner",
    "policy",
    "ratio",
)


def records(stamp: Stamp, setting: Setting, seconds: float, warm_seconds: float, **fields: Any) -> Iterator[Record]:
    """Run a setting and yield its records; one with the reason where it cannot run."""
    try:
        run = timed(setting, seconds, warm_seconds)
    except (TrainingError, *NOT_HERE, OSError, ImportError) as error:
        yield stamp.record(setting.cell(), "failed", reason=str(error) or "not enough memory", **fields)
        return
    yield from of_run(stamp, setting, run, **fields)


def of_run(stamp: Stamp, setting: Setting, run: Run, **fields: Any) -> Iterator[Record]:
    """Yield the records of a run: the rate, the bound, and the own work of each kind of process a turn.

    The rate's ``metrics`` are what the loop reports, and which kind of process works most of the time.
    """
    where = {"steps": run.steps, "gradient_steps": run.updates, "report": run.report, "busiest": run.busiest()}
    count = max(1, run.updates // len(run.step_seconds))
    yield stamp.timed(setting.cell(RATE), Timing(run.step_seconds, count), {}, where, **fields)
    if bounds := run.bounds():
        yield stamp.timed(setting.cell(BOUND), Timing(bounds, count), {}, {"busiest": run.busiest()}, **fields)
    for kind in run.kinds:
        if samples := run.turn_seconds(kind):
            yield stamp.timed(setting.cell(PARTS[kind]), Timing(samples, 1), **fields)


def rates(measured: Iterable[Record], primitive: str) -> list[dict[str, Any]]:
    """List the rates, the fastest of each workload and update interval first: gradient steps/s, bound, share."""
    by: dict[tuple[Any, ...], dict[str, Record]] = {}
    for record in measured:
        if record.primitive == primitive and record.op in (RATE, BOUND) and record.median_seconds is not None:
            by.setdefault(tuple(record.options[name] for name in _SHAPE), {})[record.op] = record
    rows = [_row(shape, ops) for shape, ops in by.items() if RATE in ops]
    return sorted(rows, key=lambda row: (row["workload"], row["update_interval"], row["ratio"], -row["hz"]))


def _row(shape: Sequence[Any], ops: Mapping[str, Record]) -> dict[str, Any]:
    rate, bound = ops[RATE], ops.get(BOUND)
    low, high = rate.low_seconds or rate.seconds, rate.high_seconds or rate.seconds
    return {
        **dict(zip(_SHAPE, shape, strict=True)),
        "hz": 1 / rate.seconds,
        "low": 1 / high,
        "high": 1 / low,
        "bound_hz": 1 / bound.seconds if bound else None,
        "share": bound.seconds / rate.seconds if bound else None,
        "busiest": rate.metrics.get("busiest", ""),
        "unstable": rate.status == "unstable",
    }


def lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Write a table for each workload and update interval, and below it which arrangement is the fastest."""
    groups: dict[tuple[str, int, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["workload"], row["update_interval"], row["ratio"]), []).append(row)
    for (workload, interval, ratio), own in groups.items():
        free = ", ratio free" if ratio == "free" else ""
        yield f"{workload}, update interval {interval}{free}: gradient steps/s"
        yield from aligned([HEAD, *map(_cells, own)], "  ")
        yield f"  {verdict(own)}"


def verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say which arrangement is the fastest, and how near the best parallel one comes to its bound."""
    best = rows[0]
    said = f"the fastest is {named(best)}"
    parallel = next((row for row in rows if row["share"] is not None), None)
    if parallel is None:
        return said
    return f"{said}; the best parallel one, {named(parallel)}, reaches {parallel['share']:.0%} of its bound"


def named(row: Mapping[str, Any]) -> str:
    """Name an arrangement by what it consists of."""
    if row["arrangement"] == "serial":
        return f"serial with E = {row['environments']}"
    return f"{row['arrangement']} with {plural(row['actors'], 'actor')}, E = {row['environments']}"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    bound = f"{row['bound_hz']:,.0f}" if row["bound_hz"] else ""
    rate = f"{row['hz']:,.0f}{'*' * row['unstable']}"
    numbers = (
        *map(str, (row["actors"], row["environments"], row["presampled"])),
        rate,
        f"{row['low']:,.0f} to {row['high']:,.0f}",
    )
    return row["arrangement"], *numbers, bound, f"{row['share']:.0%}" if row["share"] else "", row["busiest"]


LONG_FILE = "arrangements-long.jsonl"
NAMES = {"apart": 0, "pipelined": 4}
"""D of each arrangement that has a ratio to keep; a serial loop has it by its order of steps."""
LONG_ENVIRONMENTS = 8
TENTHS = 10
OFF = 0.01
"""The error bound of the ratio of a part of the run, a share."""


def long_settings(workload: Workload) -> list[Setting]:
    """List the long runs of a workload."""
    by = dict.fromkeys(("learner", "policy"), learners.default(workload))
    own = {"batch": workload.learner.batch, "update_interval": workload.learner.update_interval, "actors": 1}
    shared = {**own, **by, "environments": LONG_ENVIRONMENTS}
    return [Setting.of(workload, {**shared, "arrangement": name, "presampled": depth}) for name, depth in NAMES.items()]


def run_long(setting: Setting, steps: int) -> Run:
    """Run a setting for a given number of environment steps; a mark after each tenth of them."""
    with placed(setting), contextlib.closing(started(setting, 0)) as loop:
        begin(loop)
        marks = [until(loop, time.perf_counter())]
        for part in range(1, TENTHS + 1):
            marks.append(_reached(loop, marks[0].steps + steps * part // TENTHS))
        return Run(tuple(marks), dict(loop.report()))


def _reached(loop: Any, step: int) -> Mark:
    while loop.step < step:
        loop.advance()
    return until(loop, time.perf_counter())


def measured_long(stamp: Stamp, steps: int, group: list[Setting]) -> Iterator[Record]:
    """Yield the record of each long run: seconds of a gradient step, with lead, lag and ratios with its machine."""
    for setting in group:
        cell = setting.cell(RATIO)
        try:
            done = run_long(setting, steps)
        except (TrainingError, *NOT_HERE, OSError) as error:
            yield stamp.record(cell, "failed", reason=str(error) or "not enough memory")
            continue
        interval = setting.workload.learner.update_interval
        pairs = zip(done.marks, done.marks[1:], strict=False)
        ratios = [(last.steps - first.steps) / (last.updates - first.updates) / interval for first, last in pairs]
        where = {"steps": done.steps, "gradient_steps": done.updates, "ratios": ratios, "report": done.report}
        yield stamp.timed(cell, Timing(done.step_seconds, max(1, done.updates // TENTHS)), {}, where)


def summary(record: Record) -> dict[str, Any]:
    """Sum up a long run: its steps, the largest lead (``most`` are allowed) and lag, and the error of the ratio."""
    report, ratios = record.metrics["report"], record.metrics["ratios"]
    return {
        "workload": record.options["workload"],
        "arrangement": record.options["arrangement"],
        "steps": record.metrics["steps"],
        "lead": report["lead"],
        "lag": report["lag"],
        "most": record.options["update_interval"] + record.options["actors"] * record.options["environments"],
        "ratio_off": max(abs(ratio - 1) for ratio in ratios),
        "hz": 1 / record.seconds,
        "restarts": report["restarts"],
    }


def sentence(one: dict[str, Any]) -> str:
    """Write a summary in a sentence."""
    judged = f"{one['ratio_off']:.2%} ({'within' if one['ratio_off'] <= OFF else 'beyond'} {OFF:.0%})"
    return (
        f"{one['workload']} {one['arrangement']}: {one['steps']:,} environment steps, {one['hz']:,.0f} gradient steps "
        f"per second; at most {one['lead']:,} steps ahead of the ratio ({one['most']:,} allowed) and {one['lag']:,} "
        f"behind it; the ratio of a tenth of the run is off by at most {judged}"
    )


def _identities(workloads: Sequence[Workload]) -> dict[str, str]:
    return {f"workload {one.name}": identity(one) for one in workloads}


def measure_long(workloads: Sequence[Workload], options: argparse.Namespace) -> int:
    """Measure the long runs; return the exit code: 0 done, 1 where one failed."""
    path = file_of(options, LONG_FILE)
    stamp = Stamp.of_this_run(__name__, PRIMITIVE, asked={"steps": options.steps, **_identities(workloads)})
    groups = [[one] for workload in workloads for one in long_settings(workload) if one.name in options.only]
    measure = functools.partial(measured_long, stamp, options.steps)
    how: dict[str, Any] = {"name": lambda setting: stamp.cell(setting.cell(RATIO)), "unit": "long run"}
    tally = run(groups, path, stamp, measure, options, **how)
    found = latest(record for record in stamp.known(path) if record.op == RATIO)
    rows = [summary(record) for record in found if record.median_seconds is not None]
    return show(tally, path, options, {"long": rows}, [*map(sentence, rows)])


FILE, AGAIN = "arrangements.jsonl", f"{PRIMITIVE}_again"
WORKLOADS = ("cartpole_dqn", "hopper_ddpg")
INTERVALS, ACTORS, ENVIRONMENTS = (1, 8, 64), (1, 2), (1, 8)
DEPTHS = {"serial": 0, "apart": 0, "pipelined": 1}
"""D by arrangement; a keeper of the replay always samples ahead."""


def settings(workload: Workload, names: Sequence[str], intervals: Sequence[int]) -> list[Setting]:
    """List what is timed of a workload: every arrangement at every update interval, and apart at a free ratio."""
    by = dict.fromkeys(("learner", "policy"), learners.default(workload))
    shapes: list[dict[str, Any]] = [
        {"arrangement": name, "update_interval": interval, "actors": actors, "environments": count}
        for interval in intervals
        for name in names
        for actors, count in itertools.product((1,) if name == "serial" else ACTORS, ENVIRONMENTS)
    ]
    free = {"arrangement": "apart", "update_interval": 1, "actors": 1, "ratio": "free"}
    shapes += [{**free, "environments": count} for count in ENVIRONMENTS if "apart" in names]
    shared = {"batch": workload.learner.batch, **by}
    return [Setting.of(workload, {**one, **shared, "presampled": DEPTHS[one["arrangement"]]}) for one in shapes]


def measured(
    stamp: Stamp, twins: Sequence[Setting], seconds: float, warm: float, group: list[Setting]
) -> Iterator[Record]:
    """Yield the records of a group; of the settings among ``twins`` also those of a second run."""
    for setting in group:
        yield from records(stamp, setting, seconds, warm)
        if setting in twins:
            again = records(stamp, setting, seconds, warm, primitive=AGAIN)
            yield from (record for record in again if record.op == RATE)


def told(setting: Setting) -> str:
    """Describe a setting for the progress."""
    workload = setting.workload
    shape = f"A={workload.actors.count} E={workload.actors.environments} u={workload.learner.update_interval}"
    return f"{workload.name} {setting.name} {shape}{' free' * (setting.ratio == 'free')}"


def main(arguments: list[str] | None = None) -> int:
    """Measure; return the exit code: 0 done, 1 where settings failed. RecordError where that cannot be done."""
    options = _parser().parse_args(arguments)
    workloads = [workload_of(name) for name in options.workload]
    if options.long:
        return measure_long(workloads[:1], options)
    path = file_of(options, FILE)
    try_environments(() if options.dry_run else workloads)
    asked = {"seconds": options.seconds, "warm": options.warm, **_identities(workloads)}
    stamp = Stamp.of_this_run(__name__, PRIMITIVE, asked=asked)
    every = [settings(workload, options.only, options.intervals) for workload in workloads]
    measure = functools.partial(measured, stamp, [own[0] for own in every], options.seconds, options.warm)
    how: dict[str, Any] = {"describe": told, "sentinels": Sentinels(), "unit": "arrangement"}
    how["name"] = lambda setting: stamp.cell(setting.cell())
    tally = run([[one] for own in every for one in own], path, stamp, measure, options, **how)
    rows = rates(latest(stamp.known(path)), PRIMITIVE)
    return show(tally, path, options, {"rates": rows}, [*lines(rows)])


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("arrangements", __doc__, "--workload cartpole_dqn --intervals 1,8")
    add_list(parser, "workload", str, default=WORKLOADS, help=f"names or files (default: {','.join(WORKLOADS)})")
    add_list(parser, "intervals", at_least(1, "u"), default=INTERVALS, help="update intervals u (default: 1,8,64)")
    add_names(parser, "only", "arrangement", DEPTHS)
    seconds = {"seconds": (2.4, "seconds of timing a run"), "warm": (0.5, "seconds before them")}
    add_numbers(parser, **seconds, steps=(1_000_000, "environment steps of a long run"))
    parser.add_argument("--long", action="store_true", help="only the kept ratio, over long runs of the first workload")
    return add_common(parser)
