"""Does training by several processes learn as the serial loop does, and how fast?

Every run trains a workload as it is shipped, by a seed, with one gradient step in update_interval environment steps:

serial       one process does everything
apart        actors in processes of their own, one learner that samples for itself
pipelined    besides, a process that samples D batches ahead: D = 1
synchronous  apart, with two learners that add up their sub-gradients
lock         apart, with two learners that take turns on one vector of weights
hogwild      apart, with two learners that change it at once
nodes        actors and parts of the replay on two nodes of a Ray cluster, which RAY_ADDRESS names, or that runs here
nodes_local  besides, a second learner on a node, and weights that are averaged every 10 steps
nodes_central  besides, a second learner on a node, to which the first sends half of each batch
depths       pipelined with more batches ahead, --depths: how much faster, and does it still learn?
local        apart, with learners whose weights are averaged every H steps, each with a bank of its own: --periods
copies       serial loops with an environment and a network each, whose weights meet: --processes, --every, --syncs
a3c          cartpole_a3c by copies that meet after each gradient step: --processes, --syncs
dyna_q       cartpole_dyna_q with W = 0, 1 and 2 model workers, and at most c = 1 or 4 simulated updates a real one
memr         pendulum_memr next to pendulum_sac, with other alphas (0: uniform) and with a single segment
batches      pendulum_td3 by batches of 64 to 1,000: what does a large one learn for a gradient step?
samplers     cartpole_dqn by 1, 2 and 4 actors apart
transports   cartpole_dqn, records of the actor carried by a queue, and by one that fills before it is moved
libraries    pendulum_sac by other libraries' SAC, which make peers installs, as in [Hou2023, Table 1]; ours is
             --workload pendulum_sac --only serial
scaling      no runs: gradient steps of one and of two such learners alone, over networks, batches and H

A run is solved at the first evaluation whose mean reaches the workload's threshold. Its clock begins with the first
gradient step, so that starting processes is no part of it, and stands still during evaluations. A run ends once solved,
but not before --least environment steps; --most or the workload's own steps end any. Each has a process of its own, and
is a record as soon as it ends, in results/<machine>/learning.jsonl: the same command resumes where it stopped, and all
runs are kept.

The table has the five metrics of [Zhang2022, 1.5]: policy quality, the mean return of the best weights on fresh
episodes; sample and learning efficiency, environment steps and gradient steps until solved; computation efficiency,
gradient steps/s; scaling factor, the speedup over one learner apart by the same seed, divided by the learners. Each is
a median over seeds with its 95 % bootstrap interval in brackets. A seed that was not solved counts as beyond its last
evaluation, hence "> 50,000" (null in --json). Fewer than five seeds have no interval: the table has each one's number.
Copies have a second table, of the four figures of [StoneSachdev]: episodes of all copies, seconds an episode and
minutes until solved, and the speed-up over one copy by the same seed.
"""

import argparse
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dse import learning_runs
from dse.records import Record
from impls.terminal import aligned, plural
from impls.training.arrangement import COPIES, COPY_SYNCS

from ...arguments import add_common, add_list, add_names, add_numbers, add_python, among, at_least, parser_of
from ...run import Stamp, Tally, file_of, latest, show
from ...run import run as run_cells
from ...timing import Timing
from ...workers import ask_once, has_libraries
from ..profile.command import try_environments
from . import scaling
from .cells import (
    ABLATIONS,
    ALGORITHMS,
    DEPTHS,
    EVERY,
    LIBRARIES,
    LOCAL,
    NAMES,
    OVER_NODES,
    PERIODS,
    PRIMITIVE,
    PROCESSES,
    SCALING,
    USUAL,
    Trained,
    runs,
)

FILE = "learning.jsonl"
MODULE = f"{__package__}.worker"
SEEDS = (10, 11, 12, 13, 14)
LEAST, TESTS = 30_000, 100
LIMIT_SECONDS = 600.0  # of a run
ENDS = ("median", "low", "high")


def main(arguments: list[str] | None = None) -> int:
    """Train; return the exit code: 0 done, 1 where runs failed. RecordError where that cannot be done."""
    options = _parser().parse_args(arguments)
    limits = {"least": options.least, "most": options.most or 0, "test_episodes": options.test_episodes}
    copies = options.processes, options.every, options.syncs
    axes = options.depths, options.periods, options.seeds, *copies
    trained = list(dict.fromkeys(runs(options.workload, options.only, *axes, **limits)))
    _check(trained, options.most)
    path = file_of(options, FILE)
    try_environments(
        () if options.dry_run else {cell.task: cell.settings for cell in trained if not cell.library}.values()
    )
    pythons = [options.python] if LIBRARIES in options.only else []
    has_libraries(options, is_needed=bool(pythons))
    measured = functools.partial(_measured, python=options.python)
    tally, found = _kept([[cell] for cell in trained], path, PRIMITIVE, measured, "run", options, pythons)
    grid = list(scaling.groups(options.workload)) if SCALING in options.only else []
    more, steps = _kept(grid, path, learning_runs.STEP_PRIMITIVE, _timed, "cell", options)
    rows, factors = summary(found), learning_runs.step_rows(steps)
    tables = [*_lines(rows)] if trained else []
    if reached := learning_runs.figures_of(learning_runs.latest(found)):
        head = ("copies, until solved", "solved", *learning_runs.FIGURES)
        tables += ["", *aligned([head, *learning_runs.write_figures(reached)])]
    tables += aligned([learning_runs.STEP_HEAD, *learning_runs.write_step_rows(factors)]) if grid else []
    return show(tally + more, path, options, {"rows": [*map(_as_json, rows)], "scaling": factors}, [*tables, ""])


def _check(trained: Sequence[Trained], most: int | None) -> None:
    """Raise ValueError, or TrainingError, for runs that would end before they are evaluated, or cannot begin."""
    for cell in trained:
        learner, interval = cell.settings.learner, cell.settings.evaluation.interval
        cell.arrangement.check(cell.settings)
        learns = -(-learner.learning_starts // learner.update_interval) * learner.update_interval
        first = (learns // interval + 1) * interval
        if most is not None and most < first:
            raise ValueError(f"--most must be at least {first}, where {cell.task} is first evaluated, not {most}")


Cell = TypeVar("Cell", Trained, scaling.Stepped)


def _kept(
    groups: Sequence[Sequence[Cell]],
    path: Path,
    primitive: str,
    measure: Callable[..., Iterator[Record]],
    unit: str,
    options: argparse.Namespace,
    libraries: Sequence[Path] = (),
) -> tuple[Tally, list[Record]]:
    """Measure the cells that have no record yet, by groups; return the outcome, and the records of all.

    ``libraries``: interpreters that have other libraries, where these are timed.
    """
    stamp = Stamp.of_this_run(__name__, primitive, libraries)
    measured = functools.partial(measure, stamp=stamp)
    tally = run_cells(groups, path, stamp, measured, options, unit=unit, describe=lambda cell: cell.label)
    return tally, latest(record for record in stamp.known(path) if record.cell in {*tally.keys})


def _timed(cells: Sequence[scaling.Stepped], stamp: Stamp) -> Iterator[Record]:
    """Time gradient steps of these cells in alternation, in a process of their own, and yield their records."""
    requests = [cell.request for cell in cells]
    answer = ask_once(Path(sys.executable), MODULE, LIMIT_SECONDS, "step", run=requests)
    if "failed" in answer:
        yield from (stamp.record(cell, "failed", reason=answer["failed"]) for cell in cells)
        return
    for cell, found in zip(cells, answer["answers"], strict=True):
        average = {"average_seconds": found["average_seconds"]}
        yield stamp.timed(cell, Timing(tuple(found["samples"]), found["steps"]), metrics=average)


def _measured(cells: Sequence[Trained], stamp: Stamp, python: Path) -> Iterator[Record]:
    """Train each of these runs in a process of its own, and yield its record; ``python`` has the other libraries."""
    for cell in cells:
        own = python if cell.library else Path(sys.executable)
        answer = ask_once(own, MODULE, LIMIT_SECONDS, "train", run=cell.request)
        if "failed" in answer:
            yield stamp.record(cell, "failed", reason=answer["failed"])
        elif samples := _seconds(answer["points"]):
            ended = {**answer, "solved_at": cell.settings.evaluation.solved}
            reason, packages = ended.pop("limits", None), ended.pop("packages", stamp.machine.get("packages"))
            own = dataclasses.replace(stamp, machine=stamp.machine | {"packages": packages})
            yield own.timed(cell, Timing(samples, 1), {}, ended, reason=reason)
        else:
            yield stamp.record(cell, "skipped", reason=f"{plural(answer['steps'], 'step')} are too few to evaluate")


def _seconds(points: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return seconds of a gradient step between evaluations; the first stretch, without learning, where it is alone."""
    stretches = list(zip([(0, 0, 0.0, 0.0), *points], points, strict=False))
    stretches = [(a, b) for a, b in stretches if b[1] > a[1] and b[2] > a[2]]
    return tuple((b[2] - a[2]) / (b[1] - a[1]) for a, b in stretches[1:] or stretches)


def summary(found: Sequence[Record]) -> list[dict[str, Any]]:
    """Return a row for each kind of run: its seeds, and what those with a time reached."""
    reached = learning_runs.metrics_of(learning_runs.latest(found))
    rows = []
    for key, of_kind in learning_runs.by_kind(found).items():
        seeds, metrics = {record.options["seed"] for record in of_kind}, reached.get(key, {})
        timed = metrics.get("computation_efficiency", {}).keys()
        row = {"workload": key[0], "run": key[1], "seeds": sorted(seeds), "failed": sorted(seeds - timed)}
        rows.append({**row, "solved": len(timed) - len(learning_runs.list_unsolved(metrics)), "metrics": metrics})
    return rows


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    """Write the metrics of a row by seed, and their medians with intervals; null is beyond what the run got to."""

    def named(keys: Iterable[Any], values: Iterable[learning_runs.Value]) -> dict[Any, float | None]:
        return {key: None if one.is_beyond else one.number for key, one in zip(keys, values, strict=False)}

    metrics = {
        name: {"by_seed": named(by_seed, by_seed.values()), **named(ENDS, learning_runs.over_seeds(by_seed.values()))}
        for name, by_seed in row["metrics"].items()
    }
    return {**row, "metrics": metrics}


def _lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Write the rows as a table; runs of several workloads have theirs before them."""
    are_many = len({row["workload"] for row in rows}) > 1
    rows = [{**row, "run": f"{row['workload']}: {row['run']}" if are_many else row["run"]} for row in rows]
    for row in rows:
        if row["failed"]:
            yield f"{row['run']}: without a time by seed {', '.join(map(str, row['failed']))}, which no column has"
    heads = ("run", "solved", *(name.replace("_", " ") for name in learning_runs.METRICS))
    units = ("", "", *(unit for unit, _ in learning_runs.METRICS.values()))
    yield from aligned([heads, units, *((row["run"], *learning_runs.write_metrics(row["metrics"])) for row in rows)])


def _pair(text: str) -> tuple[int, int]:
    """Return (L, H) of a text such as 2x10."""
    learners, _, period = text.partition("x")
    return at_least(2, "L")(learners), at_least(1, "H")(period)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("learning", __doc__, "--only serial,apart --seeds 10,11")
    parser.add_argument("--workload", default="cartpole_dqn", metavar="NAME|FILE", help="default: %(default)s")
    unusual = (*OVER_NODES, LOCAL, COPIES, *ALGORITHMS, *ABLATIONS, LIBRARIES, SCALING)
    usual, left_out = tuple(name for name in NAMES if name not in unusual), f"default: all but {', '.join(unusual)}"
    add_list(parser, "only", among("run", *NAMES), default=usual, help=f"of {', '.join(NAMES)} ({left_out})")
    add_list(parser, "depths", at_least(0, "D"), default=DEPTHS, help="D of the runs named depths (default: 10,50,200)")
    pairs = ",".join(f"{count}x{period}" for count, period in PERIODS)
    add_list(parser, "periods", _pair, default=PERIODS, help=f"LxH of the runs named local (default: {pairs})")
    add_list(parser, "processes", at_least(1, "P"), default=PROCESSES, help="P of the copies (default: 1,2,4)")
    every = f"k, gradient steps between meetings of 2 copies (default: 1,4,16,64); of other numbers {USUAL}"
    add_list(parser, "every", at_least(1, "k"), default=EVERY, help=every)
    add_names(parser, "syncs", "sync", COPY_SYNCS, "by which copies' weights meet")
    add_list(parser, "seeds", at_least(0, "seed"), default=SEEDS, help="default: 10,11,12,13,14")
    tests = {"test-episodes": (TESTS, "fresh episodes that the best weights are tested on")}
    add_numbers(parser, least=(LEAST, "environment steps of a solved run"), **tests)
    most = "of any run (default and, but for copies, the most: the workload's own)"
    parser.add_argument("--most", type=at_least(1, "most"), help=most)
    add_python(parser)
    return add_common(parser)
