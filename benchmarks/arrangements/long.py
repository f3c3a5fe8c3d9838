"""Long runs: the most that environment steps lead or lag the kept ratio, and the ratio over each tenth of the run."""

import argparse
import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

from dse.records import Measurement, read_file
from impls.training import TrainingError, Workload, learners

from ..run import Stamp, file_of, latest, run, show
from ..timing import Timing
from ..worker import NOT_HERE
from .setting import PRIMITIVE, RATIO, Setting
from .timed import Mark, Run, begin, placed, started, until

FILE = "arrangements-long.jsonl"
NAMES = {"apart": 0, "pipelined": 4}
"""D of each arrangement that has a ratio to keep; a serial loop has it by its order of steps."""
ENVIRONMENTS = 8
PARTS = 10
OFF = 0.01
"""The share by which the ratio of a part of the run may be off."""


def settings(workload: Workload) -> list[Setting]:
    """List the long runs of a workload."""
    by = dict.fromkeys(("learner", "policy"), learners.default(workload))
    own = {"batch": workload.learner.batch, "update_interval": workload.learner.update_interval, "actors": 1}
    shared = {**own, **by, "environments": ENVIRONMENTS}
    return [Setting.of(workload, {**shared, "arrangement": name, "presampled": depth}) for name, depth in NAMES.items()]


def timed(setting: Setting, steps: int) -> Run:
    """Run a setting for so many environment steps; a mark after each tenth of them."""
    with placed(setting):
        loop = started(setting, 0)
        try:
            begin(loop)
            marks = [until(loop, time.perf_counter())]
            for part in range(1, PARTS + 1):
                marks.append(_reached(loop, marks[0].steps + steps * part // PARTS))
            return Run(tuple(marks), dict(loop.report()))
        finally:
            loop.close()


def _reached(loop: Any, step: int) -> Mark:
    while loop.step < step:
        loop.advance()
    return until(loop, time.perf_counter())


def measured(stamp: Stamp, steps: int, group: list[Setting]) -> Iterator[Measurement]:
    """Yield the record of each long run: seconds of a gradient step, with lead, lag and ratios beside its machine."""
    for setting in group:
        cell = setting.cell(RATIO)
        try:
            done = timed(setting, steps)
        except (TrainingError, *NOT_HERE, OSError) as error:
            yield stamp.record(cell, "failed", reason=str(error) or "not enough memory")
            continue
        interval = setting.workload.learner.update_interval
        pairs = zip(done.marks, done.marks[1:], strict=False)
        ratios = [(last.steps - first.steps) / (last.updates - first.updates) / interval for first, last in pairs]
        where = {"steps": done.steps, "gradient_steps": done.updates, "ratios": ratios, "report": done.report}
        yield stamp.timed(cell, Timing(done.step_seconds, max(1, done.updates // PARTS)), where)


def summary(record: Measurement) -> dict[str, Any]:
    """Sum up a long run: its steps, the largest lead (``most`` are allowed) and lag, and how far off the ratio was."""
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
        f"a second; at most {one['lead']:,} steps ahead of the ratio ({one['most']:,} allowed) and {one['lag']:,} "
        f"behind it; the ratio of a tenth of the run is off by at most {judged}"
    )


def main(workloads: Sequence[Workload], options: argparse.Namespace) -> int:
    """Measure the long runs; return the exit code: 0 done, 1 where one failed."""
    path, stamp = file_of(options.results, FILE), Stamp.of_this_run(PRIMITIVE)
    groups = [[one] for workload in workloads for one in settings(workload) if one.name in options.only]
    how: dict[str, Any] = {"name": lambda one: stamp.cell(one.cell(RATIO)), "bar": not options.json, "unit": "long run"}
    how["is_final"] = lambda record: record.status != "failed"
    tally = run(groups, path, stamp, functools.partial(measured, stamp, options.steps), **how)
    found = latest(record for record in read_file(path) if stamp.covers(record) and record.op == RATIO)
    rows = [summary(record) for record in found if record.median_seconds is not None]
    return show(tally, path, options.json, {"long": rows}, map(sentence, rows))
