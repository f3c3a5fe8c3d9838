"""How fast is each arrangement of processes, and how near to the bound that its busiest part sets?

A workload is trained serially (serial), with actors apart, and with a keeper of the replay besides (pipelined), at
update intervals of 1, 8 and 64: from a full replay on, by the default implementations. The bound is the rate at which
the kind of process that works most would never wait; its work is timed in the same run, with the others. With --long
instead: how far do environment steps lead or lag the kept ratio over a million of them? Interrupt it as you like: the
same command resumes where it stopped. Records go to results/<machine>/arrangements.jsonl.
"""

import argparse
import functools
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dse.records import Measurement
from impls.terminal import aligned, plural
from impls.training import TrainingError, Workload, identity, learners

from ..arguments import add_common, add_list, add_numbers, at_least, one_of, parser_of
from ..profile.command import workload_of
from ..run import Stamp, file_of, latest, run, show
from ..sentinels import Sentinels
from ..timing import Timing
from ..worker import NOT_HERE
from .setting import BOUND, PARTS, PRIMITIVE, RATE, RATIO, Setting
from .timed import Mark, Run, begin, placed, started, timed, until

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


def records(
    stamp: Stamp, setting: Setting, seconds: float, warm_seconds: float, **fields: Any
) -> Iterator[Measurement]:
    """Run a setting and yield its records; one with the reason where it cannot run."""
    try:
        run = timed(setting, seconds, warm_seconds)
    except (TrainingError, *NOT_HERE, OSError, ImportError) as error:
        yield stamp.record(setting.cell(), "failed", reason=str(error) or "not enough memory", **fields)
        return
    yield from of_run(stamp, setting, run, **fields)


def of_run(stamp: Stamp, setting: Setting, run: Run, **fields: Any) -> Iterator[Measurement]:
    """Yield the records of a run: the rate, the bound, and the own work of each kind of process a turn.

    The rate's ``machine`` also has what the loop reports, and which kind of process works most of the time.
    """
    where = {"steps": run.steps, "gradient_steps": run.updates, "report": run.report, "busiest": run.busiest()}
    count = max(1, run.updates // len(run.step_seconds))
    yield stamp.timed(setting.cell(RATE), Timing(run.step_seconds, count), where, **fields)
    if bounds := run.bounds():
        yield stamp.timed(setting.cell(BOUND), Timing(bounds, count), {"busiest": run.busiest()}, **fields)
    for kind in run.kinds:
        if samples := run.turn_seconds(kind):
            yield stamp.timed(setting.cell(PARTS[kind]), Timing(samples, 1), **fields)


def rates(measured: Iterable[Measurement], primitive: str) -> list[dict[str, Any]]:
    """List the rates, the fastest of each workload and update interval first: gradient steps/s, bound, share."""
    by: dict[tuple[Any, ...], dict[str, Measurement]] = {}
    for record in measured:
        if record.primitive == primitive and record.op in (RATE, BOUND) and record.median_seconds is not None:
            by.setdefault(tuple(record.options[name] for name in _SHAPE), {})[record.op] = record
    rows = [_row(shape, ops) for shape, ops in by.items() if RATE in ops]
    return sorted(rows, key=lambda row: (row["workload"], row["update_interval"], row["ratio"], -row["hz"]))


def _row(shape: Sequence[Any], ops: Mapping[str, Measurement]) -> dict[str, Any]:
    rate, bound = ops[RATE], ops.get(BOUND)
    low, high = rate.low_seconds or rate.seconds, rate.high_seconds or rate.seconds
    return {
        **dict(zip(_SHAPE, shape, strict=True)),
        "hz": 1 / rate.seconds,
        "low": 1 / high,
        "high": 1 / low,
        "bound_hz": 1 / bound.seconds if bound else None,
        "share": bound.seconds / rate.seconds if bound else None,
        "busiest": rate.machine.get("busiest", ""),
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
    with placed(setting):
        loop = started(setting, 0)
        try:
            begin(loop)
            marks = [until(loop, time.perf_counter())]
            for part in range(1, TENTHS + 1):
                marks.append(_reached(loop, marks[0].steps + steps * part // TENTHS))
            return Run(tuple(marks), dict(loop.report()))
        finally:
            loop.close()


def _reached(loop: Any, step: int) -> Mark:
    while loop.step < step:
        loop.advance()
    return until(loop, time.perf_counter())


def measured_long(stamp: Stamp, steps: int, group: list[Setting]) -> Iterator[Measurement]:
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
        yield stamp.timed(cell, Timing(done.step_seconds, max(1, done.updates // TENTHS)), where)


def summary(record: Measurement) -> dict[str, Any]:
    """Sum up a long run: its steps, the largest lead (``most`` are allowed) and lag, and the error of the ratio."""
    report, ratios = record.machine["report"], record.machine["ratios"]
    return {
        "workload": record.options["workload"],
        "arrangement": record.options["arrangement"],
        "steps": record.machine["steps"],
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
    path = file_of(options.results, LONG_FILE)
    stamp = Stamp.of_this_run(PRIMITIVE, asked={"steps": options.steps, **_identities(workloads)})
    groups = [[one] for workload in workloads for one in long_settings(workload) if one.name in options.only]
    how: dict[str, Any] = {"name": lambda one: stamp.cell(one.cell(RATIO)), "bar": not options.json, "unit": "long run"}
    tally = run(groups, path, stamp, functools.partial(measured_long, stamp, options.steps), **how)
    found = latest(record for record in stamp.known(path) if record.op == RATIO)
    rows = [summary(record) for record in found if record.median_seconds is not None]
    return show(tally, path, options.json, {"long": rows}, map(sentence, rows))


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
) -> Iterator[Measurement]:
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
    one_of(options.only, DEPTHS)
    workloads = [workload_of(name) for name in options.workload]
    if options.long:
        return measure_long(workloads[:1], options)
    path = file_of(options.results, FILE)
    asked = {"seconds": options.seconds, "warm": options.warm, **_identities(workloads)}
    stamp = Stamp.of_this_run(PRIMITIVE, asked=asked)
    every = [settings(workload, options.only, options.intervals) for workload in workloads]
    measure = functools.partial(measured, stamp, [own[0] for own in every], options.seconds, options.warm)
    how: dict[str, Any] = {"name": lambda one: stamp.cell(one.cell()), "told": told, "bar": not options.json}
    how |= {"sentinels": Sentinels(), "unit": "arrangement"}
    tally = run([[one] for own in every for one in own], path, stamp, measure, **how)
    rows = rates(latest(stamp.known(path)), PRIMITIVE)
    return show(tally, path, options.json, {"rates": rows}, lines(rows))


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("arrangements", __doc__, "--workload cartpole_dqn --intervals 1,8")
    add_list(parser, "workload", str, default=WORKLOADS, help=f"names or files (default: {','.join(WORKLOADS)})")
    add_list(parser, "intervals", at_least(1, "u"), default=INTERVALS, help="update intervals u (default: 1,8,64)")
    add_list(parser, "only", str, default=tuple(DEPTHS), help=f"of {', '.join(DEPTHS)} (default: all)")
    seconds = {"seconds": (2.4, "seconds of timing a run"), "warm": (0.5, "seconds before them")}
    add_numbers(parser, **seconds, steps=(1_000_000, "environment steps of a long run"))
    parser.add_argument(
        "--long", action="store_true", help="instead: the kept ratio over long runs of the first workload"
    )
    return add_common(parser)
