"""Does training by several processes learn as the serial loop does, and how fast?

Every run trains a workload as it is shipped, by a seed, with one gradient step in update_interval environment steps:

serial       one process does everything
apart        actors in processes of their own, one learner that samples for itself
pipelined    besides, a process that samples D batches ahead: D = 1
synchronous  apart, with two learners that add up their sub-gradients
lock         apart, with two learners that take turns on one vector of weights
hogwild      apart, with two learners that change it at once
depths       pipelined with more batches ahead, --depths: how much faster, and does it still learn?

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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dse.records import Measurement
from impls import training
from impls.terminal import aligned, plural

from ..arguments import DEFAULT, add_common, add_list, at_least, one_of, parser_of
from ..run import Stamp, file_of, latest, show
from ..run import run as run_cells
from ..timing import Timing
from ..workers import ask_once
from .cells import DEPTHS, NAMES, PRIMITIVE, Trained, runs

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
    cells = list(dict.fromkeys(runs(options.workload, options.only, options.depths, options.seeds, **limits)))
    path, stamp = file_of(options.results, FILE), Stamp.of_this_run(PRIMITIVE)
    measure = functools.partial(_measured, stamp=stamp)
    tally = run_cells(
        [[cell] for cell in cells], path, stamp, measure, unit="run", told=lambda cell: cell.label,
        bar=not options.json,
    )  # fmt: skip
    asked = {stamp.cell(cell) for cell in cells}
    rows = summary(latest(record for record in stamp.known(path) if record.cell in asked))
    return show(tally, path, options.json, {"rows": rows}, [*_lines(rows), ""])


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


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("learning", __doc__, "--only serial,apart --seeds 10,11")
    parser.add_argument("--workload", default="cartpole_dqn", metavar="NAME|FILE", help="default: %(default)s")
    add_list(parser, "only", str, default=NAMES, help=f"of {', '.join(NAMES)} (default: all)")
    add_list(parser, "depths", at_least(0, "D"), default=DEPTHS, help="D of the runs named depths (default: 10,50,200)")
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
