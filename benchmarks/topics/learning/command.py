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
dyna_q_printed  dyna_q's W = 1 and c = 4 by the parted model, by a queue of experience, by prioritized sweeping
memr         pendulum_memr next to pendulum_sac, with other alphas (0: uniform) and numbers of segments
rollouts     pendulum_sac, pendulum_memr and pendulum_mbpo by G = 1, 5, 10 and 20 gradient steps an environment step,
             and pendulum_memr by an ensemble
batches      pendulum_td3 by batches of 64 to 1,000: what does a large one learn for a gradient step?
samplers     cartpole_dqn by 1, 2 and 4 actors apart, and one by batches of 256 and 1,000 [Hou2023, Fig. 7]
machines     cartpole_dqn apart on one core and on two, by several actors and batches [Hou2023, Fig. 8a]
spreeze      pendulum_sac by two actors apart and a batch of 1,024, neither of which waits, for up to 300,000 steps:
             what [Hou2023, Table 1] compares with libraries
transports   cartpole_dqn, records of the actor carried by a queue, and by one that fills before it is moved
libraries    pendulum_sac by other libraries' SAC, which make peers installs, as in [Hou2023, Table 1]; ours is
             --workload pendulum_sac --only serial,spreeze
scaling      no runs: gradient steps of one and of two such learners alone, over networks, batches and H

A run is solved at the first evaluation whose mean reaches the workload's threshold. Its clock begins with the first
gradient step, so that starting processes is no part of it, and stands still during evaluations. A run ends once solved,
but not before --least environment steps; --most or the workload's own steps end any. Runs whose steps claims count
(depths, local, memr, rollouts, batches, transports) are evaluated every 250 steps, others as the workload says. Each
has a process of its own, and is a record as soon as it ends, in results/<machine>/learning.jsonl: the same command
resumes where it stopped, and all runs are kept.

The table has the five metrics of [Zhang2022, 1.5]: policy quality, the mean return of the best weights on fresh
episodes; sample and learning efficiency, environment steps and gradient steps until solved; computation efficiency,
gradient steps/s; scaling factor, the speedup over one learner apart by the same seed, divided by the learners. Each is
a median over seeds with its 95 % bootstrap interval in brackets. A seed that was not solved counts as beyond its last
evaluation, hence "> 50,000" (null in --json). Fewer than five seeds have no interval: the table has each one's number.
Copies have a second table, of the four figures of [StoneSachdev]: episodes of all copies, seconds that an episode takes
and minutes until solved, and the speed-up over one copy by the same seed.
"""

import dataclasses
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dse import learning_runs
from dse.records import Record
from impls.terminal import aligned, plural
from impls.training.arrangement import COPY_SYNCS

from ...arguments import DEFAULT, add_list, add_names, add_numbers, add_python, among, at_least
from ...timing import Timing
from ...topic import Topic
from ...workers import ask_once, has_libraries
from ..profile.command import try_environments
from . import LIBRARIES, NAMES, SCALING, UNUSUAL, USUAL, Stepped, Trained, list_runs, list_steps

MODULE = f"{__package__}.worker"
SEEDS = (10, 11, 12, 13, 14)
DEPTHS = (10, 50, 200)  # those of [Zhang2023, Fig. 10] besides the least: 0 apart, 1 where a keeper samples ahead
PROCESSES, EVERY = (1, 2, 4), (1, 4, 16, 64)  # copies; gradient steps k between meetings, of two copies
PERIODS = ((2, 1), (2, 5), (2, 10), (2, 25), (4, 10))  # (L, H) of learners whose weights are averaged
LEAST, TESTS = 30_000, 100
LIMIT_SECONDS = 600.0  # of a run
ENDS = ("median", "low", "high")


class Learning(Topic):
    """Training runs, each by a seed and a group of its own, and gradient steps of learners alone."""

    primitive, unit, has_sentinels = learning_runs.PRIMITIVE, "run", False
    example = "--only serial,apart --seeds 10,11"

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        """Add the kinds of runs, what some of them vary, and how long each is."""
        parser.add_argument("--workload", default="cartpole_dqn", metavar="NAME|FILE", help=DEFAULT)
        usual, names = tuple(name for name in NAMES if name not in UNUSUAL), ", ".join(NAMES)
        kinds = f"of {names} (default: all but {', '.join(UNUSUAL)})"
        add_list(parser, "only", among("run", *NAMES), default=usual, help=kinds)
        depths = "D of the runs named depths (default: 10,50,200)"
        add_list(parser, "depths", at_least(0, "D"), default=DEPTHS, help=depths)
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

    def __init__(self, options: Namespace) -> None:
        super().__init__(options)
        self._runs = list(list_runs(options))
        for run in self._runs:
            _check(run, options.most)
        self.libraries = [options.python] if LIBRARIES in options.only else []
        self.asked = {"test_episodes": options.test_episodes}
        has_libraries(options, is_needed=bool(self.libraries))
        self._parts = [self, *([_Steps(options)] if SCALING in options.only else [])]

    def parts(self) -> Sequence[Topic]:
        """Return the runs, and the gradient steps where they are asked for."""
        return self._parts

    def cells(self) -> list[list[Trained]]:
        """Return the runs, each a group."""
        return [[run] for run in self._runs]

    def open(self, stack: ExitStack) -> None:
        """Make each environment once, so that what one lacks is said before anything is recorded."""
        try_environments({run.task: run.settings for run in self._runs if not run.library}.values())

    def measure(self, cells: Sequence[Trained]) -> Iterator[Record]:
        """Train each in a process of its own, by the interpreter that has its library, and yield its record."""
        for run in cells:
            python = self.options.python if run.library else Path(sys.executable)
            request = dataclasses.asdict(run) | {"arrangement": run.arrangement.to_dict()}
            answer = ask_once(python, MODULE, LIMIT_SECONDS, "train", run=request)
            if "failed" in answer:
                yield self.stamp.record(run, "failed", reason=answer["failed"])
            elif samples := _seconds(answer["points"]):
                limits, packages = answer.pop("limits", None), answer.pop("packages", None)
                stamp = self.stamp.for_packages(packages) if packages else self.stamp
                solved = {"solved_at": run.settings.evaluation.solved}
                yield stamp.timed(run, Timing(samples, 1), {}, answer | solved, reason=limits)
            else:
                reason = f"{plural(answer['steps'], 'step')} are too few to evaluate"
                yield self.stamp.record(run, "skipped", reason=reason)

    def summarize(self, found: Sequence[Record]) -> tuple[dict[str, Any], Sequence[str]]:
        """Return the five metrics of the runs that are asked for, the figures of copies, and the scaling factors."""
        asked = {part.key(cell) for part in self._parts for group in part.cells() for cell in group}
        own = [record for record in found if record.cell in asked]
        runs = [record for record in own if record.primitive == self.primitive]
        rows, factors = _summarize(runs), learning_runs.step_rows(own)
        tables = [*_lines(rows)] if self._runs else []
        if reached := learning_runs.figures_of(learning_runs.latest(runs)):
            head = ("copies, until solved", "solved", *learning_runs.FIGURES)
            tables += ["", *aligned([head, *learning_runs.write_figures(reached)])]
        if SCALING in self.options.only:
            tables += aligned([learning_runs.STEP_HEAD, *learning_runs.write_step_rows(factors)])
        return {"rows": [*map(_to_json, rows)], "scaling": factors}, [*tables, ""]


class _Steps(Topic):
    """Gradient steps of learners alone, the cells of a group in alternation in a process of their own."""

    primitive, has_sentinels = learning_runs.STEP_PRIMITIVE, False

    def cells(self) -> list[list[Stepped]]:
        """Return the networks, batches and periods."""
        return list(list_steps(self.options.workload))

    def measure(self, cells: Sequence[Stepped]) -> Iterator[Record]:
        """Time these cells, and yield their records."""
        requests = [dataclasses.asdict(cell) for cell in cells]
        answer = ask_once(Path(sys.executable), MODULE, LIMIT_SECONDS, "step", run=requests)
        for cell, found in zip(cells, answer.get("answers", [None] * len(cells)), strict=True):
            if found is None:
                yield self.stamp.record(cell, "failed", reason=answer["failed"])
                continue
            average = {"average_seconds": found["average_seconds"]}
            yield self.stamp.timed(cell, Timing(tuple(found["samples"]), found["steps"]), {}, average)


def _check(run: Trained, most: int | None) -> None:
    """Raise ValueError, or TrainingError, for a run that would end before it is evaluated, or cannot begin."""
    learner, interval = run.settings.learner, run.settings.evaluation.interval
    run.arrangement.check(run.settings)
    learns = -(-learner.learning_starts // learner.update_interval) * learner.update_interval
    first = (learns // interval + 1) * interval
    if most is not None and most < first:
        raise ValueError(f"--most must be at least {first}, where {run.task} is first evaluated, not {most}")


def _pair(text: str) -> tuple[int, int]:
    """Return (L, H) of a text such as 2x10."""
    learners, _, period = text.partition("x")
    return at_least(2, "L")(learners), at_least(1, "H")(period)


def _seconds(points: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return seconds of a gradient step between evaluations; the first stretch, without learning, where it is alone."""
    stretches = list(zip([(0, 0, 0.0, 0.0), *points], points, strict=False))
    stretches = [(a, b) for a, b in stretches if b[1] > a[1] and b[2] > a[2]]
    return tuple((b[2] - a[2]) / (b[1] - a[1]) for a, b in stretches[1:] or stretches)


def _summarize(found: Sequence[Record]) -> list[dict[str, Any]]:
    """Return a row for each kind of run: its seeds, and what those with a time reached."""
    reached = learning_runs.metrics_of(learning_runs.latest(found))
    rows = []
    for key, of_kind in learning_runs.group_by_kind(found).items():
        seeds, metrics = {record.options["seed"] for record in of_kind}, reached.get(key, {})
        timed = metrics.get("computation_efficiency", {}).keys()
        row = {"workload": key[0], "run": key[1], "seeds": sorted(seeds), "failed": sorted(seeds - timed)}
        rows.append({**row, "solved": len(timed) - len(learning_runs.list_unsolved(metrics)), "metrics": metrics})
    return rows


def _to_json(row: dict[str, Any]) -> dict[str, Any]:
    """Write the metrics of a row by seed, and their medians with intervals; null is beyond what the run got to."""

    def named(keys: Iterable[Any], values: Iterable[learning_runs.Value]) -> dict[Any, float | None]:
        return {key: None if value.is_beyond else value.number for key, value in zip(keys, values, strict=False)}

    metrics = {
        name: {
            "by_seed": named(by_seed, by_seed.values()),
            **named(ENDS, learning_runs.summarize_seeds(by_seed.values())),
        }
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
