"""Does training by several processes learn as the serial loop does, and how fast?

Every run trains a workload as it is shipped, by a seed, with one gradient step in update_interval environment steps:

serial       one process does everything
apart        actors in processes of their own, one learner that samples for itself
pipelined    besides, a process that samples D batches ahead: D = 1
synchronous  apart, with two learners that add up their sub-gradients
lock         apart, with two learners that take turns on one vector of weights
hogwild      apart, with two learners that change it at once
depths       pipelined with more batches ahead, --depths: how much faster, and does it still learn?
local        apart, with learners whose weights are averaged every H steps, each with a bank of its own: --periods
scaling      no runs: gradient steps of one and of two such learners alone, over networks, batches and H

A run is solved at the first evaluation whose mean reaches the workload's threshold. Its clock begins with the first
gradient step, so that starting processes is no part of it, and stands still during evaluations. A run ends once solved,
but not before --least environment steps; --most or the workload's own steps end any. Each has a process of its own, and
is a record as soon as it ends, in results/<machine>/learning.jsonl: the same command resumes where it stopped, and all
runs are kept.
"""

import argparse
import functools
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dse.published import learners_steps
from dse.records import Measurement
from impls import training
from impls.terminal import aligned, plural

from ..arguments import DEFAULT, add_common, add_list, at_least, one_of, parser_of
from ..run import Stamp, Tally, file_of, latest, show
from ..run import run as run_cells
from ..timing import Timing
from ..workers import ask_once
from . import scaling
from .cells import DEPTHS, LOCAL, NAMES, PERIODS, PRIMITIVE, SCALING, Trained, runs

FILE = "learning.jsonl"
MODULE = f"{__package__}.worker"
SEEDS = (10, 11, 12, 13, 14)
LEAST, TESTS = 30_000, 100
LIMIT_SECONDS = 600.0  # of a run
HEAD = ("run", "solved", "steps until then", "seconds until then", "steps/s", "times serial", "tests")


def main(arguments: list[str] | None = None) -> int:
    """Train; return the exit code: 0 done, 1 where runs failed. RecordError where that cannot be done."""
    options = _parser().parse_args(arguments)
    one_of(options.only, NAMES)
    most = options.most or training.load(options.workload).steps
    limits = {"least": options.least, "most": most, "test_episodes": options.test_episodes}
    axes = options.depths, options.periods, options.seeds
    trained = list(dict.fromkeys(runs(options.workload, options.only, *axes, **limits)))
    path, bar = file_of(options.results, FILE), not options.json
    tally, found = _kept(trained, path, PRIMITIVE, _measured, "run", bar)
    grid = list(scaling.cells(options.workload)) if SCALING in options.only else []
    more, steps = _kept(grid, path, learners_steps.PRIMITIVE, _timed, "cell", bar)
    rows, factors = summary(found), learners_steps.rows(steps)
    tables = [*_lines(rows)] if trained else []
    tables += aligned([scaling.HEAD, *scaling.table(factors)]) if grid else []
    return show(tally + more, path, options.json, {"rows": rows, "scaling": factors}, [*tables, ""])


Cell = TypeVar("Cell", Trained, scaling.Stepped)


def _kept(
    cells: Sequence[Cell],
    path: Path,
    primitive: str,
    measure: Callable[[Sequence[Cell], Stamp], Iterator[Measurement]],
    unit: str,
    bar: bool,
) -> tuple[Tally, list[Measurement]]:
    """Measure the cells that have no record yet; return the outcome, and the records of all."""
    stamp = Stamp.of_this_run(primitive)
    if not cells:
        return Tally(0), []
    measured = functools.partial(measure, stamp=stamp)
    groups = [[cell] for cell in cells]
    tally = run_cells(groups, path, stamp, measured, unit=unit, told=lambda cell: cell.label, bar=bar)
    asked = {stamp.cell(cell) for cell in cells}
    return tally, list(latest(record for record in stamp.known(path) if record.cell in asked))


def _timed(cells: Sequence[scaling.Stepped], stamp: Stamp) -> Iterator[Measurement]:
    """Time gradient steps of each of these cells in a process of its own, and yield its record."""
    for cell in cells:
        answer = ask_once(Path(sys.executable), MODULE, LIMIT_SECONDS, "step", run=cell.request)
        if "failed" in answer:
            yield stamp.record(cell, "failed", reason=answer["failed"])
        else:
            average = {"average_seconds": answer["average_seconds"]}
            yield stamp.timed(cell, Timing(tuple(answer["samples"]), answer["steps"]), average)


def _measured(cells: Sequence[Trained], stamp: Stamp) -> Iterator[Measurement]:
    """Train each of these runs in a process of its own, and yield its record."""
    for cell in cells:
        answer = ask_once(Path(sys.executable), MODULE, LIMIT_SECONDS, "train", run=cell.request)
        if "failed" in answer:
            yield stamp.record(cell, "failed", reason=answer["failed"])
        elif samples := _seconds(answer["points"]):
            yield stamp.timed(cell, Timing(samples, 1), {**answer, **_solved(cell, answer["points"])})
        else:
            yield stamp.record(cell, "skipped", reason=f"{plural(answer['steps'], 'step')} are too few to evaluate")


def _seconds(points: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return seconds of a gradient step between evaluations; the first stretch, without learning, where it is alone."""
    stretches = list(zip([(0, 0, 0.0, 0.0), *points], points, strict=False))
    stretches = [(a, b) for a, b in stretches if b[1] > a[1] and b[2] > a[2]]
    return tuple((b[2] - a[2]) / (b[1] - a[1]) for a, b in stretches[1:] or stretches)


def _solved(cell: Trained, points: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return environment steps, gradient steps and seconds to the first evaluation that solves, None without any."""
    threshold = cell.settings.evaluation.solved
    first = next((point for point in points if point[3] >= threshold), (None, None, None, None))
    return dict(zip(("solved_steps", "solved_updates", "solved_seconds"), first[:3], strict=True)) | {
        "solved_at": threshold
    }


def summary(found: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Return a row for each kind of run: seeds, those solved, and medians over the serial loop's of the same seed."""
    kinds: dict[str, dict[int, Measurement]] = {}
    for record in found:
        kinds.setdefault(record.options["kind"], {})[record.options["seed"]] = record
    serial = {seed: record for seed, record in kinds.get("serial", {}).items() if record.median_seconds}
    return [_row(name, by_seed, serial) for name, by_seed in kinds.items()]


def _row(name: str, by_seed: dict[int, Measurement], serial: dict[int, Measurement]) -> dict[str, Any]:
    timed = {seed: record for seed, record in by_seed.items() if record.median_seconds}
    solved = [record.machine for record in timed.values() if record.machine["solved_steps"] is not None]
    ratios = [serial[seed].seconds / record.seconds for seed, record in timed.items() if seed in serial]
    per_step = [record.seconds / record.options["update_interval"] for record in timed.values()]
    return {
        "run": name,
        "seeds": sorted(by_seed),
        "failed": sorted(set(by_seed) - set(timed)),
        "solved": len(solved),
        "solved_steps": _median(one["solved_steps"] for one in solved),
        "solved_seconds": _median(one["solved_seconds"] for one in solved),
        "steps_per_second": _median(1 / seconds for seconds in per_step),
        "times_serial": _median(ratios),
        "times_serial_range": [min(ratios), max(ratios)] if ratios else None,
        "test_means": [timed[seed].machine["test_mean"] for seed in sorted(timed)],
    }


def _median(values: Any) -> float | None:
    known = list(values)
    return statistics.median(known) if known else None


def _lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Write the rows as a table."""
    for row in rows:
        if row["failed"]:
            yield f"{row['run']}: without a time by seed {', '.join(map(str, row['failed']))}, which no column has"
        if row["run"] != "serial" and (short := len(row["seeds"]) - row["solved"]):
            yield f"{row['run']}: {short} of {len(row['seeds'])} seeds did not get there"
    yield from aligned([HEAD, *map(_cells, rows)])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    def said(value: float | None, form: str = ",.0f") -> str:
        return "" if value is None else format(value, form)

    tests = ", ".join(said(mean) for mean in row["test_means"])
    return (
        row["run"], f"{row['solved']} of {len(row['seeds'])}", said(row["solved_steps"]),
        said(row["solved_seconds"], ",.1f"), said(row["steps_per_second"]), said(row["times_serial"], ".2f"), tests,
    )  # fmt: skip


def _pair(text: str) -> tuple[int, int]:
    """Return (L, H) of a text such as 2x10."""
    learners, _, period = text.partition("x")
    return at_least(2, "L")(learners), at_least(1, "H")(period)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("learning", __doc__, "--only serial,apart --seeds 10,11")
    parser.add_argument("--workload", default="cartpole_dqn", metavar="NAME|FILE", help="default: %(default)s")
    usual = tuple(name for name in NAMES if name not in (LOCAL, SCALING))
    add_list(parser, "only", str, default=usual, help=f"of {', '.join(NAMES)} (default: all but {LOCAL}, {SCALING})")
    add_list(parser, "depths", at_least(0, "D"), default=DEPTHS, help="D of the runs named depths (default: 10,50,200)")
    pairs = ",".join(f"{count}x{period}" for count, period in PERIODS)
    add_list(parser, "periods", _pair, default=PERIODS, help=f"LxH of the runs named local (default: {pairs})")
    add_list(parser, "seeds", int, default=SEEDS, help="default: 10,11,12,13,14")
    for name, default, text in (
        ("least", LEAST, "environment steps of a solved run"),
        ("test-episodes", TESTS, "fresh episodes that the best weights are tested on"),
    ):
        parser.add_argument(
            f"--{name}", type=at_least(0, name), default=default, metavar="COUNT", help=f"{text} ({DEFAULT})"
        )
    parser.add_argument(
        "--most", type=at_least(1, "most"), metavar="COUNT", help="of any run (default: the workload's own steps)"
    )
    return add_common(parser)
