"""Does Stable-Baselines3's DQN learn on our prioritized replay? Runs on its uniform replay and on ours, by seed.

Each run is Stable-Baselines3's own ``learn`` of a shipped workload in a process of its own, with evaluations in
between whose time does not count; it is a record as soon as it ends.
"""

import argparse
import functools
import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dse import records
from dse.records import Measurement
from impls import training

from ..run import Stamp, file_of, latest, show
from ..run import run as run_cells
from ..timing import Timing
from ..workers import ask_once
from .host import OURS, hosts
from .sb3_host import UNIFORM

FILE = "plugins-learning.jsonl"
PRIMITIVE = "plugin run"
MODULE = f"{__package__}.learning_worker"
KINDS = (UNIFORM, OURS)
LIMIT_SECONDS = 3_600.0  # of a run


@dataclass(frozen=True)
class Run:
    """A run of a workload by a seed, on a kind of replay, with the names of a record's fields."""

    task: str
    kind: str
    seed: int
    steps: int
    contestant: str = "sb3"
    op: str = "step"

    @property
    def capacity(self) -> int:
        """Rows of the replay."""
        return training.load(self.task).replay.capacity

    @property
    def batch(self) -> int:
        """Rows of a gradient step."""
        return training.load(self.task).learner.batch

    @property
    def fanout(self) -> int:
        """Children of a node of the tree."""
        return 16 if self.kind == OURS else 2

    @property
    def options(self) -> dict[str, Any]:
        """Further fields of the record."""
        return {"task": self.task, "kind": self.kind, "seed": self.seed, "steps": self.steps}


def main(options: argparse.Namespace, pythons: Sequence[Path]) -> int:
    """Train what is not there yet; print a line a kind; return the exit code."""
    runs = [
        [Run(task, kind, seed, options.steps or training.load(task).steps)]
        for task in options.workloads
        for seed in options.seeds
        for kind in KINDS
    ]
    path, stamp = file_of(options.results, FILE), Stamp.of_this_run(PRIMITIVE)
    measure = functools.partial(_measured, stamp=stamp, pythons=pythons)
    tally = run_cells(
        runs, path, stamp, measure, unit="run", told=lambda run: f"{run.task} {run.kind} seed {run.seed}",
        bar=not options.json, is_final=lambda record: record.status in ("ok", "unstable"),
    )  # fmt: skip
    asked = {stamp.cell(run) for group in runs for run in group}
    rows = summary([record for record in records.read_file(path) if record.cell in asked])
    return show(tally, path, options.json, {"rows": rows}, [*map(_line, rows), ""])


def _measured(runs: Sequence[Run], stamp: Stamp, pythons: Sequence[Path]) -> Iterator[Measurement]:
    """Train each of these in a process of its own, by the first interpreter that has the host."""
    for run in runs:
        answer: dict[str, Any] = {"skipped": f"{hosts()['sb3'].module} is not installed; make plugins installs it"}
        for python in pythons:
            told = {"task": run.task, "kind": run.kind, "seed": run.seed, "steps": run.steps}
            answer = ask_once(python, MODULE, LIMIT_SECONDS, "train", **told)
            if "skipped" not in answer:
                break
        yield _record(run, answer, stamp)


def _record(run: Run, answer: dict[str, Any], stamp: Stamp) -> Measurement:
    for status in ("skipped", "failed"):
        if status in answer:
            return stamp.record(run, status, reason=answer[status])  # type: ignore[arg-type]
    points = [(0, 0.0, 0.0), *answer["points"]]
    seconds = tuple((b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(points))
    if not seconds:
        return stamp.record(run, "skipped", reason=f"{run.steps:,} steps are too few to evaluate")
    threshold = training.load(run.task).evaluation.solved
    solved = next((step for step, _, mean in answer["points"] if mean >= threshold), None)
    return stamp.timed(run, Timing(seconds, 1), {**answer, "solved_at": threshold, "solved_steps": solved})


def summary(found: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Return a row a workload and kind: seeds, those solved, medians of the steps until then and of the best mean."""
    kinds: dict[tuple[str, str], list[Measurement]] = {}
    for record in latest(found):
        kinds.setdefault((record.options["task"], record.options["kind"]), []).append(record)
    rows = []
    for (task, kind), of_kind in kinds.items():
        trained = [record for record in of_kind if record.median_seconds]
        solved = [one.machine["solved_steps"] for one in trained if one.machine["solved_steps"] is not None]
        rows.append(
            {
                "workload": task,
                "kind": kind,
                "seeds": len(of_kind),
                "trained": len(trained),
                "solved": len(solved),
                "solved_steps": statistics.median(solved) if solved else None,
                "best_means": [max(mean for *_, mean in one.machine["points"]) for one in trained],
            }
        )
    return rows


def _line(row: dict[str, Any]) -> str:
    steps = f", after {row['solved_steps']:,.0f} steps (median)" if row["solved"] else ""
    best = ", ".join(f"{mean:.0f}" for mean in row["best_means"]) or "none"
    return f"{row['workload']}, {row['kind']}: {row['solved']} of {row['seeds']} solved{steps}; best means {best}"
