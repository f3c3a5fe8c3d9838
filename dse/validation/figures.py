"""How good were answers? Coverage of intervals, and regret, by what was measured.

Every share comes as (how many, of how many).
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..drift import between
from ..records import SENTINEL, Measurement, RecordError
from ..times.profile import evidence
from .predictor import Side, present
from .runs import Candidate, LoopCheck, Run, TreeCheck, counted, read_all

Share = tuple[int, int]


@dataclass(frozen=True)
class Voided:
    """A side of a run that does not count, and why."""

    run: Run
    side: Side
    reason: str
    figures: Mapping[str, Any]


@dataclass(frozen=True)
class Headline:
    """The figures of the runs that count, pooled, and of each that does not.

    ``trees`` and ``loops`` are {} where nothing counts; ``waiting``: (run, side, questions not measured yet).
    """

    machine: str
    predictors: Mapping[Side, str]
    runs: Mapping[Side, tuple[Run, ...]]
    trees: Mapping[str, Any]
    loops: Mapping[str, Any]
    voided: tuple[Voided, ...]
    waiting: tuple[tuple[Run, Side, int], ...]
    refused: tuple[tuple[Run, str], ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is no file with an answer."""
        return not (any(self.runs.values()) or self.voided or self.waiting)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "machine": self.machine,
            "predictors": dict(self.predictors),
            "files": {side: [str(run.path) for run in runs] for side, runs in self.runs.items()},
            "trees": self.trees or None,
            "loops": self.loops or None,
            "voided": [
                {"file": str(one.run.path), "side": one.side, "reason": one.reason, **one.figures}
                for one in self.voided
            ],
            "not_measured": [
                {"file": str(run.path), "side": side, "questions": count} for run, side, count in self.waiting
            ],
            "without_answer": [{"file": str(run.path), "reason": reason} for run, reason in self.refused],
        }


def headline(runs: Sequence[Run], machine: str, results: Path | None = None) -> Headline:
    """Pool the runs that count, and take each other one by itself; ``results``: the folder whose sentinels tell of
    drift."""
    pooled: dict[Side, list[Run]] = {"trees": [], "loops": []}
    voided, waiting, refused = [], [], []
    for side, run in itertools.product(pooled, runs):
        if not run.questions(side):
            continue
        reason, checks = run.void(side), run.trees if side == "trees" else run.loops
        left = run.unmeasured(side)
        if left:
            waiting.append((run, side, left))
        if reason:
            figures = tree_figures(run.trees) if side == "trees" else loop_figures(run.loops)
            voided.append(Voided(run, side, reason, figures))
        elif checks:
            pooled[side].append(run)
        if not reason:
            refused += [(run, why) for why in run.refused(side)]
    loops = [check for run in pooled["loops"] for check in run.loops]
    return Headline(
        machine=machine,
        predictors={side: present(side) for side in pooled},
        runs={side: tuple(kept) for side, kept in pooled.items()},
        trees=tree_figures([check for run in pooled["trees"] for check in run.trees]),
        loops=loop_figures(loops) | ({"drift": drift(pooled["loops"], results)} if counted(loops) else {}),
        voided=tuple(voided),
        waiting=tuple(waiting),
        refused=tuple(refused),
    )


def of_machine(results: Path, machine: str) -> Headline:
    """The headline of all files of a machine."""
    return headline(read_all(results / machine), machine, results)


def tree_figures(checks: Sequence[TreeCheck]) -> dict[str, Any]:
    """Compute coverage and regret; {} without questions. Where the choice alone was asked about, coverage alone."""
    if not checks:
        return {}
    timed = [one for check in checks for one in check.candidates if one.measured is not None]
    figures: dict[str, Any] = {
        "questions": len(checks),
        "candidates": len(timed),
        "without_time": sum(len(check.candidates) for check in checks) - len(timed),
        "inside": _inside(timed),
        "inside_of_choices": _inside(check.candidates[0] for check in checks),
        "inside_by_basis": _by(timed, lambda one: one.basis),
        "inside_by_implementation": _by(timed, lambda one: one.configuration.contestant),
    }
    if any(check.is_alone for check in checks):
        return figures
    regrets = [check.regret for check in checks]
    return figures | {
        "median_regret": median(regrets),
        "worst_regret": max(regrets),
        "best_is_choice": (sum(check.best == 0 for check in checks), len(checks)),
        "best_is_choice_or_tie": (sum(check.best in (0, *check.ties) for check in checks), len(checks)),
    }


def loop_figures(checks: Sequence[LoopCheck]) -> dict[str, Any]:
    """Compute error and coverage of the questions that are no controls; {} without any."""
    asked = counted(checks)
    if not asked:
        return {}
    errors = [abs(check.error) for check in asked]
    controls = [1 + check.error for check in checks if check.question.is_control]
    return {
        "questions": len(asked),
        "median_error": median(errors),
        "worst_error": max(errors),
        "inside": (sum(check.is_inside for check in asked), len(asked)),
        "unstable": sum(check.is_unstable for check in asked),
        "controls": len(controls),
        "control_ratios": controls,
    }


def drift(runs: Sequence[Run], results: Path | None) -> str:
    """Say by how much the machine changed between the records that answered and the measuring, in a sentence."""
    sentinels = _sentinels(results) if results else []
    factors = [
        between([one for one in sentinels if one.machine_key == run.head.get("machine")], run.utc, run.utc)
        for run in runs
    ]
    told = [factor for factor in factors if factor is not None]
    if not told:
        return UNKNOWN_DRIFT
    ends = f"{min(told):.2f} to {max(told):.2f}" if len(told) > 1 else f"{told[0]:.2f}"
    return f"the sentinels took {ends}x the time of the runs that the answers rest on"


def _sentinels(results: Path) -> list[Measurement]:
    """The sentinels of all machines; none without records."""
    try:
        return [one for known in evidence(results).values() for one in known.records if one.primitive == SENTINEL]
    except RecordError:
        return []


UNKNOWN_DRIFT = "the drift between was not measured"


def _inside(candidates: Iterable[Candidate]) -> Share:
    timed = [one.is_inside for one in candidates]
    return sum(timed), len(timed)


def _by(candidates: Sequence[Candidate], key: Callable[[Candidate], str]) -> dict[str, Share]:
    keys = sorted({key(one) for one in candidates})
    return {name: _inside(one for one in candidates if key(one) == name) for name in keys}
