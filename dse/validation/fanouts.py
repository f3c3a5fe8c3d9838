"""Hold the chosen fanout K against measured ones, and the model's times against cells beyond those it was fitted to.

A family is an implementation with its options, leaves and machine. Its sweep over K, N and B is one run, for only
within a run do small differences of K mean anything; a step is one draw and one update. Whoever chooses K has not seen
the N, or the B, or the family that it is judged on. Of a family unseen nothing is known, so K is 16: what other
families' cells say of it helps in most, but not in each.

Letters: N capacity, K fanout, B batch.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from impls.writing import list_files

from .. import stats
from ..platforms.fingerprint import COMPILED_FOR
from ..records import Measurement, RecordError, how_to_measure, read_file, twins
from ..times.fanout_choice import AXES, FanoutModel, FanoutRegret, doubt, fanout_regrets, leave_out, regrets_of
from ..times.tree_cost_model import LEAST_POINTS, Part, fit
from ..times.tree_times import family_and_points

FANOUTS_FILE = "fanouts.jsonl"
SWEEP = "sweep --preset fanouts"
OPS = ("draw", "update")  # of a step
LETTERS = {"capacity": "N", "batch": "B"}
NO_PEER = (
    "No library among the peers lets its user choose K (each is a binary tree or an array), so none can be judged."
)
_Tree = tuple[str, int, str, str, tuple[tuple[str, Any], ...]]
"""Implementation, threads, dtype, distribution and options."""


@dataclass(frozen=True)
class Regrets:
    """What K cost over the best measured K, in the mean and at worst: the model's, always 16, the printed formula's.

    ``left_out``: "N", "B" or "family", what the model had not seen. ``cells``: pairs of (N, B) judged. ``unstable``:
    times of the family whose interval is wide.
    """

    family: str
    left_out: str
    cells: int
    model: tuple[float, float]
    sixteen: tuple[float, float]
    printed: tuple[float, float]
    noise_floor: float
    unstable: int

    @property
    def is_no_worse(self) -> bool:
        """Whether the model's mean and worst regret exceed those of always 16 by no more than the noise floor."""
        return all(ours <= other + self.noise_floor for ours, other in zip(self.model, self.sixteen, strict=True))


@dataclass(frozen=True)
class Reach:
    """Errors of the model's times at the largest or smallest N or B, left out of the fit, by a factor.

    ``told``: the median of the factors that the model gave beforehand; ``within``: cells that keep to theirs.
    """

    family: str
    op: str
    left_out: str
    cells: int
    median: float
    worst: float
    told: float
    within: int


@dataclass(frozen=True)
class Swept:
    """A family's draws and updates, as its run measured them."""

    name: str
    parts: tuple[Part, ...]
    noise_floor: float
    unstable: int


def families(results: Path) -> list[Swept]:
    """Read every family that some machine's run of the preset measured. RecordError where there is none."""
    found = [swept for path in list_files(results, f"*/{FANOUTS_FILE}") for swept in _families(read_file(path))]
    if not found:
        raise RecordError(f"{results}: no sweep over K to judge a choice of K by; {how_to_measure(SWEEP)}")
    return found


def regrets(swept: Sequence[Swept]) -> list[Regrets]:
    """Judge the choice of K in each family with its capacities, its batches and all of its cells left out."""
    rows = []
    for family in swept:
        for axis in AXES:
            rows += _row(family, LETTERS[axis], fanout_regrets(*family.parts, axis=axis))
        rows += _row(family, "family", regrets_of(FanoutModel(), [points for _, points in family.parts]))
    return rows


def reaches(swept: Sequence[Swept]) -> list[Reach]:
    """Judge the model's times where the cells end, with the factor that it tells without having seen them."""
    return [row for family in swept for part in family.parts for row in _reaches(family.name, part)]


def verdict(rows: Sequence[Regrets]) -> str:
    """Say in a sentence where the model is worse than always 16 by more than the noise floor."""
    worse = [f"{row.family} without its {row.left_out}" for row in rows if not row.is_no_worse]
    means = [fmean(getattr(row, of)[0] for row in rows if row.left_out != "family") for of in ("model", "sixteen")]
    return (
        f"Over the rows with N or B left out the mean regret is {means[0]:.1%}, that of always 16 {means[1]:.1%}. "
        f"Worse than always 16 by more than the noise floor, in the mean or at worst: {'; '.join(worse) or 'nowhere'}."
    )


def _families(records: Sequence[Measurement]) -> Iterator[Swept]:
    trees: dict[_Tree, list[Measurement]] = {}
    timed = [one for one in records if one.primitive == "sum_tree" and one.source == "measured" and one.median_seconds]
    for one in timed:
        tree = (one.contestant, one.threads, one.dtype, one.distribution, tuple(sorted(one.options.items())))
        trees.setdefault(tree, []).append(one)
    floor = stats.noise_floor(twins(records))
    for tree, cells in sorted(trees.items(), key=repr):
        name, threads, dtype, distribution, options = tree
        fanouts = [{one.fanout for one in cells if one.op == op} for op in OPS]
        if min(map(len, fanouts)) >= LEAST_POINTS:
            shape = (name, threads, dtype, distribution)
            parts = tuple(family_and_points(timed, op, *shape, **dict(options)) for op in OPS)
            unstable = sum(one.status == "unstable" and one.op in OPS for one in cells)
            yield Swept(_name(cells[-1], tree), parts, floor, unstable)


def _name(record: Measurement, tree: _Tree) -> str:
    name, threads, dtype, _, options = tree
    words = [name, *(f"{key}={value}" for key, value in options), *([dtype] if dtype != "float32" else [])]
    words += [f"{threads} threads"] if threads > 1 else []
    compiled = "".join(f" as {record.machine[fact]}" for fact in list(COMPILED_FOR)[:1] if fact in record.machine)
    return f"{', '.join(words)} on {record.machine_key}{compiled}"


def _row(family: Swept, left_out: str, judged: Sequence[FanoutRegret]) -> list[Regrets]:
    """Return the row of those regrets; none without any."""
    if not judged:
        return []
    columns = ([getattr(one, f"{who}_regret") for one in judged] for who in ("predicted", "sixteen", "printed"))
    ours, sixteen, printed = ((fmean(column), max(column)) for column in columns)
    return [Regrets(family.name, left_out, len(judged), ours, sixteen, printed, family.noise_floor, family.unstable)]


def _reaches(name: str, part: Part) -> Iterator[Reach]:
    for axis, distance, [seen], [left] in leave_out(part):
        known = doubt(*seen)
        if not distance or known is None:
            continue
        model, told = fit(*seen), known.factor(distance)
        predicted = ((model.predict(point.capacity, point.fanout, point.batch), point.seconds) for point in left)
        off = [math.exp(abs(math.log(max(seconds, 1e-12) / measured))) for seconds, measured in predicted]
        where = f"{LETTERS[axis]} = {getattr(left[0], axis):,}, {math.exp(distance):,.0f}x"
        within = sum(factor <= told for factor in off)
        yield Reach(name, part[0].op, where, len(off), median(off), max(off), told, within)
