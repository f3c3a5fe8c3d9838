"""Split a processor's cores between actors and learners ([Zhang2021, V-D, eq. 5 and Fig. 12]), with ties and evidence.

Letters: M cores, x_a and x_l of them for actors and for learners, f_a(x_a) environment steps/s, f_l(x_l)
gradient steps/s, u environment steps a gradient step (update_interval).

Eq. 5 asks for f_a(x_a) = u f_l(x_l) with x_a + x_l <= M. Whole cores seldom make both sides equal, and (1, 1) may do so
at a fraction of what M cores could give. Here the slower side is made as fast as it can be: the most gradient
steps/s, min(f_a(x_a) / u, f_l(x_l)), with x_a + x_l + reserved <= M. Curves need not rise, so every pair is looked at.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from impls.training import Workload
from impls.training.arrangement import Arrangement

from ..answer import Answer, Note, Row, evidence_notes
from ..estimate import Estimate, Evidence, weakest
from ..mapping.learners import COSTS_FACTOR, Processes, calibrate, horizon_of, sources_of, terms_of
from ..mapping.options import implementation_of
from ..mapping.processes import one_thread
from ..mapping.question import WHERE, Asked, MappingQuestion, ask, predict_loop, refuse
from ..mapping.what_if import with_changes
from ..platforms import Platform
from ..records import Source
from ..solver.problem import LOOP, ProblemError
from ..stats import nonnegative
from ..times import laws
from ..times.door import Times
from ..times.whole import REFERENCE
from . import name_system, note_records

ACTING_HZ, STEPS_HZ = "environment steps/s", "gradient steps/s"
MOST_CORES = 512  # so that all pairs are tried in seconds
WITHIN = 0.01  # of the most steps counts as equal: then fewer cores are chosen
EQUAL = 0.05  # by which both sides of eq. 5 may differ to count as one of its solutions
LEAST_POINTS = 2  # below which no law of scaling is fitted
LEAST_HZ, MOST_HZ = 1e-9, 1e15  # bounds of any rate and of its interval
MISFIT = 1.05  # a law that misses the points by so much more than they allow is no longer possible
AMDAHL, RETROGRADE, UNIVERSAL = (0, 1), (0, 2), (0, 1, 2)
"""Parts of x / f(x) that a law has: of one core, of contention, of coherence."""


@dataclass(frozen=True)
class RateCurve:
    """Calls/s by number of cores: f_a or f_l. ProblemError without points, or for a rate outside any sense.

    >>> RateCurve.of("f_a", {2: 90.0, 1: 100.0}).cores
    (1, 2)
    """

    name: str
    rates: Mapping[int, Estimate]

    @classmethod
    def of(cls, name: str, rates: Mapping[int, float]) -> "RateCurve":
        """Make a curve of plain rates."""
        for cores, hz in rates.items():
            _check_rate(name, cores, hz, hz)
        evidence = Evidence(name, "quoted")
        return cls(name, {cores: Estimate(hz, hz, hz, evidence) for cores, hz in rates.items()})

    def __post_init__(self) -> None:
        if not self.rates:
            raise ProblemError(f"{self.name}: a curve without a point; time it on at least one number of cores")
        for cores in self.rates:
            if cores < 1 or cores != cores // 1:
                raise ProblemError(f"{self.name}: a rate on {cores} cores; cores are whole and at least 1")
        object.__setattr__(self, "rates", {int(cores): rate for cores, rate in self.rates.items()})

    @property
    def cores(self) -> tuple[int, ...]:
        """Numbers of cores that have a rate, rising."""
        return tuple(sorted(self.rates))


def _check_rate(curve: str, cores: int, low: float, high: float) -> None:
    """Raise ProblemError, with value and bound, for a rate outside any sense."""
    if not LEAST_HZ <= low <= high <= MOST_HZ:
        rate = f"{low:g}" if low == high or math.isnan(low) else f"[{low:g}, {high:g}]"
        raise ProblemError(f"{curve} {cores}:{rate}: a rate is from {LEAST_HZ:g} to {MOST_HZ:g} steps/s")


Side = tuple[str, str, float, RateCurve, RateCurve]
"""Actors or learners: (their name, unit of their rate, of them a gradient step, the curve given, the one completed)."""


@dataclass(frozen=True)
class Scaling:
    """The universal scalability law [Gunther2007]: f(x) = rate x / (1 + contention (x - 1) + coherence x (x - 1)).

    ``off``: how many times as high or as low as a fitted point the law, or that point's own interval, is at worst.
    """

    rate_hz: float
    contention: float
    coherence: float
    off: float

    def hz(self, cores: int) -> float:
        """Return the rate f(x) on a given number of cores."""
        return self.rate_hz * cores / (1 + self.contention * (cores - 1) + self.coherence * cores * (cores - 1))


def fit_scaling(curve: RateCurve) -> Scaling:
    """Fit the law with the least squared relative errors, no part of it below 0.

    x / f(x) is linear in its three parts. Two points leave coherence open: it is 0 then, which is Amdahl's law, unless
    the rates fall by more than that allows.
    ProblemError for a single point, for a rate outside any sense, or where one core would be infinitely fast.
    """
    if len(curve.rates) < LEAST_POINTS:
        raise ProblemError(f"{curve.name}: one point says nothing of scaling; time it on a second number of cores")
    for cores, rate in curve.rates.items():
        _check_rate(curve.name, cores, rate.low, rate.high)
    law = _fit_law(curve, UNIVERSAL[: len(curve.rates)]) or _fit_law(curve, RETROGRADE)
    if law is None:
        raise ProblemError(f"{curve.name}: rates on {curve.cores} cores say nothing of one core; time it on one")
    return law


def _fit_law(curve: RateCurve, parts: Sequence[int], tilt: float = 1.0) -> Scaling | None:
    """Fit a law that has some of the ``parts``; None where one core would be infinitely fast.

    The rates are fitted as if the first were ``tilt`` times as high and the last as low, in between by ln x.
    """
    x = np.array(curve.cores, np.float64)
    turn = 1 - 2 * np.log(x / x[0]) / np.log(x[-1] / x[0])
    f = np.array([curve.rates[cores].value for cores in curve.cores]) * tilt**turn
    columns = np.stack((np.ones_like(x), x - 1, x * (x - 1)), axis=1)[:, list(parts)] * (f / x)[:, None]
    scale = columns.max(axis=0)
    scale[scale == 0] = 1.0
    found = np.zeros(3)
    found[list(parts)] = nonnegative(columns / scale, np.ones(len(x))) / scale
    alone, contention, coherence = found
    if alone <= 0:
        return None
    law = Scaling(float(1 / alone), float(contention / alone), float(coherence / alone), 1.0)
    misses = (float(law.hz(cores) / hz) for cores, hz in zip(curve.cores, f, strict=True))
    factors = [rate.factor for rate in curve.rates.values()]
    return replace(law, off=max(*factors, *(max(miss, 1 / miss) for miss in misses)))


def _list_possible_laws(curve: RateCurve, law: Scaling) -> list[Scaling]:
    """List laws through the same points: the one fitted, Amdahl's, and one that falls by coherence alone.

    Each also through points as far from their rates as their intervals allow, the first high and the last low: whatever
    is wrong with two points is worse for what they foretell. Laws that miss the points are omitted.
    """
    wide = max(rate.factor for rate in curve.rates.values())
    fits = [_fit_law(curve, parts, tilt) for parts in (AMDAHL, RETROGRADE) for tilt in {1.0, wide}]
    if len(curve.rates) > LEAST_POINTS:
        fits.append(_fit_law(curve, UNIVERSAL, wide))
    return [law, *(fit for fit in fits if fit and fit.off <= MISFIT * law.off)]


def complete(curve: RateCurve, cores: int) -> RateCurve:
    """Complete a curve to a rate for each of 1 to ``cores`` cores; those it lacks are from ``fit_scaling``.

    They are "modeled" between points of the curve, "extrapolated" outside of them. Their interval has what every law
    through the same points foretells, in proportion to cores and not at all better with them included, and is as much
    wider as the law is off at worst where the curve has points. Past the last point laws part, so it widens with x.
    """
    missing = [x for x in range(1, cores + 1) if x not in curve.rates]
    if not missing:
        return curve
    law, rates = fit_scaling(curve), dict(curve.rates)
    laws = _list_possible_laws(curve, law)
    for x in missing:
        may = [possible.hz(x) for possible in laws]
        below = max((known for known in curve.cores if known < x), default=None)
        above = min((known for known in curve.cores if known > x), default=None)
        ends = [end for end in (below, above) if end]
        if len(ends) == 1:  # no gain by more cores, and all that they could give
            may += [curve.rates[ends[0]].value, curve.rates[ends[0]].value * x / ends[0]]
        else:
            may.append(float(np.interp(x, ends, [curve.rates[end].value for end in ends])))
        evidence = Evidence(curve.name, "extrapolated" if len(ends) == 1 else "modeled")
        rates[x] = Estimate(law.hz(x), min(may) / law.off, max(may) * law.off, evidence)
    return RateCurve(curve.name, rates)


def choose_next_point(curve: RateCurve, cores: int) -> int:
    """Choose the number of cores to time next, for the rate on ``cores``: a power of two about midway in ln x.

    >>> choose_next_point(RateCurve.of("f_l", {1: 400.0, 2: 700.0}), 48)
    8
    """
    last = curve.cores[-1]
    midway = 1 << int(math.log2(math.sqrt(last * cores)))
    return max(min(max(midway, last + 1), cores), last + 1)


@dataclass(frozen=True)
class Allocation:
    """Cores for actors and for learners. ``in_turns``: the same cores serve first actors, then learners.

    ``hz``: gradient steps/s in [``low``, ``high``], by the intervals of the two rates. ``ratio``: environment
    steps a gradient step if neither side waits for the other. ``idle``: cores that nothing uses.
    """

    actors: int
    learners: int
    in_turns: bool
    hz: float
    low: float
    high: float
    ratio: float
    bottleneck: Literal["actors", "learners", "neither", "both serially"]
    idle: int
    sources: tuple[Source, Source]

    @property
    def cores(self) -> int:
        """Cores that actors and learners use."""
        return self.actors if self.in_turns else self.actors + self.learners

    def is_next_to(self, other: "Allocation") -> bool:
        """Tell whether the other has a core more or less for a side, or for both."""
        return max(abs(self.actors - other.actors), abs(self.learners - other.learners)) == 1


def _rank(split: Allocation) -> tuple[float, int, int]:
    """Return a key that puts the fastest split first, then that of the fewest cores."""
    return -split.hz, split.cores, split.actors


def take_fewest_cores(splits: Sequence[Allocation], within: float = WITHIN) -> Allocation:
    """Choose the split with the most gradient steps/s; of equal ones the fewest cores, then the fewest for actors.

    Rates that lack no more than the part ``within`` of the highest count as equal.
    """
    least_hz = (1 - within) * max(split.hz for split in splits)
    fast = [split for split in splits if split.hz >= least_hz]
    return min(fast, key=lambda split: (split.cores, split.actors, -split.hz))


def solve_eq_5(splits: Iterable[Allocation], update_interval: float, tolerance: float = EQUAL) -> list[Allocation]:
    """List the splits that solve eq. 5 as printed, fastest first; as published, of all M^2 / 2 pairs.

    Both sides count as equal up to ``tolerance``, a part of the right one; for a small tolerance there is seldom a
    solution. Eq. 5 prefers none of them, and has no reserved cores.
    """
    solutions = (split for split in splits if abs(split.ratio - update_interval) <= tolerance * update_interval)
    return sorted(solutions, key=_rank)


def check_cores(update_interval: float, cores: float, reserved: float) -> tuple[int, int]:
    """Return (cores, reserved) as integers. ProblemError, with value and bound, for numbers outside any sense."""
    if not 0 < update_interval < math.inf:
        raise ProblemError(f"update_interval must be above 0 and finite, not {update_interval}")
    if cores < 1 or reserved < 0 or cores // 1 != cores or reserved // 1 != reserved:  # no NaN, no infinity
        raise ProblemError(f"cores must be at least 1 and reserved at least 0, both whole, not {cores} and {reserved}")
    return int(cores), int(reserved)


def iterate_parted(f_a: RateCurve, f_l: RateCurve, u: float, free: int) -> Iterator[Allocation]:
    """Yield every split with cores for each side, of numbers that the curves have and that the free cores allow."""
    for x_a, acting in f_a.rates.items():
        for x_l, learning in f_l.rates.items():
            if x_a + x_l > free:
                continue
            feed, take = acting.value / u, learning.value
            ends = min(acting.low / u, learning.low), min(acting.high / u, learning.high)
            equal = math.isclose(feed, take)  # a law through points is right to rounding alone
            side: Literal["actors", "learners"] = "actors" if feed < take else "learners"
            bottleneck = "neither" if equal else side
            sources = (acting.source, learning.source)
            ratio = acting.value / learning.value
            yield Allocation(x_a, x_l, False, min(feed, take), *ends, ratio, bottleneck, free - x_a - x_l, sources)


def iterate_turns(f_a: RateCurve, f_l: RateCurve, u: float, free: int) -> Iterator[Allocation]:
    """Yield splits with the same cores for both sides, one after the other, as a serial loop has them."""
    for x in set(f_a.rates) & set(f_l.rates):
        if x <= free:
            acting, learning = f_a.rates[x], f_l.rates[x]
            pairs = ((acting.value, learning.value), (acting.low, learning.low), (acting.high, learning.high))
            hz, low, high = (1 / (u / a + 1 / b) for a, b in pairs)
            sources = (acting.source, learning.source)
            yield Allocation(x, x, True, hz, low, high, u, "both serially", free - x, sources)


def split_cores(f_a: RateCurve, f_l: RateCurve, update_interval: float, cores: int, reserved: int = 0) -> Answer:
    """Find the best split from curves that may lack points, which a scaling law fills in.

    ``f_a``: environment steps/s by cores, ``f_l``: gradient steps/s. One core left to both sides is used
    serially. ``cores`` and ``reserved`` may be floats that are whole. The rows are the curves with a rate for every
    number of cores. ProblemError for numbers outside any sense, or a curve of a single point that needs another.
    """
    return _answer_split((f_a, f_l), update_interval, cores, reserved)


def platform_split(
    platform: str | Path | Platform,
    workload: str | Path | Workload,
    cores: int | None = None,
    update_interval: float | None = None,
    reserved: int = 0,
    **asked: Unpack[Asked],
) -> Answer:
    """Find the best split of a platform's processor for a workload; more ``cores`` than it has: a larger one like it.

    ``cores`` and ``update_interval``: by default the platform's and the workload's. ``reserved``: cores for anything
    else, such as the three threads of [Zhang2023] that coordinate. Keywords and errors as in ``find_mapping``, and
    errors of ``split_cores``.
    """
    question = ask(platform, workload, **asked)
    refuse(question.fix, ("learners", "banks"))
    parts = question.parts()
    there = parts.cores
    cores, reserved = check_cores(1.0, there if cores is None else cores, reserved)
    if there < cores <= MOST_CORES:
        changes = {f"{parts.cpu.name}.cores": cores}
        question = replace(question, platform=with_changes(question.platform, changes))
        parts = question.parts()
    f_a, f_l, sources = platform_curves(parts, max(1, min(cores, MOST_CORES) - reserved))
    u = parts.workload.learner.update_interval if update_interval is None else update_interval
    return _answer_split((f_a, f_l), u, cores, reserved, question, sources, there)


def _answer_split(
    given: tuple[RateCurve, RateCurve],
    u: float,
    cores: int,
    reserved: int,
    question: MappingQuestion | None = None,
    sources: Sequence[Evidence] = (),
    there: int | None = None,
) -> Answer:
    """Choose among all splits: the fewest cores of those within 1 % of the fastest, by what runs of them would do.

    ``given``: (f_a, f_l). ``there``: cores of the processor that the ``question`` is about.
    """
    cores, reserved = check_cores(u, cores, reserved)
    if cores > MOST_CORES:
        raise ProblemError(f"cores are at most {MOST_CORES:,}, not {cores:,}; name those of one machine")
    free = cores - reserved
    if free < 1:
        raise ProblemError(f"{cores} cores with {reserved} reserved leave none to actors and learners; reserve fewer")
    f_a, f_l = (complete(curve, free if len(curve.rates) > 1 else max(1, free - 1)) for curve in given)
    splits = list(iterate_parted(f_a, f_l, u, free))
    turns = max(iterate_turns(f_a, f_l, u, free), key=lambda split: split.hz)
    alone = choice = take_fewest_cores(splits) if splits else turns
    near = sorted((split for split in splits if split.is_next_to(choice)), key=_rank)
    ties = [(split.actors, split.learners) for split in _list_ties(splits, choice)]
    if question:
        choice, turns, near = _compare_runs(question, u, choice, turns, near)
    filled = [
        _describe_filled(before, after) for before, after in zip(given, (f_a, f_l), strict=True) if after is not before
    ]
    sides: tuple[Side, Side] = ("actors", ACTING_HZ, u, given[0], f_a), ("learners", STEPS_HZ, 1.0, given[1], f_l)
    unsure = sorted(_list_unsure(sides, alone, choice), key=lambda pair: -pair[0].factor)
    spare = f_a.rates[choice.actors].value / f_l.rates[choice.learners].value
    limit = f"bound_by_{choice.bottleneck.replace(' ', '_')}"
    notes = [Note(limit, {"spare": spare, "wanted": u}, "first")]
    if unsure:
        rate, row = min(unsure, key=lambda pair: pair[0].low / pair[0].high)
        notes.append(Note("time_on_cores", {**row.label, "low": rate.low, "high": rate.high}, "measure"))
    if any(split.hz > choice.hz for split in near):
        notes.append(Note("fewest_cores", level="first"))
    if solutions := solve_eq_5(splits, u):
        fastest = solutions[0]
        pair = {"actors": fastest.actors, "learners": fastest.learners, "hz": fastest.hz}
        notes.append(Note("eq_5", {"pairs": len(solutions), "equal_share": EQUAL, **pair}))
    beyond = there if there and free > there else None
    if beyond:
        notes.append(Note("cores_beyond", {"cores": beyond}, "warning"))
    notes += [Note("tied_split", {"actors": actors, "learners": learners}) for actors, learners in ties]
    asked: dict[str, Any] = {"platform": "", "workload": "", "batch": None, "machine": ""}
    if question:
        asked = {**name_system(question), "batch": question.workload.learner.batch}
        notes += note_records(question, sources)
    others = [(split, "other_split") for split in near]
    if not choice.in_turns:
        others.append((turns, "turns_are_faster" if turns.hz > choice.hz else "other_turns"))

    def make_row(split: Allocation, says: str) -> Row:
        more = {
            "feed_hz": f_a.rates[split.actors].value / u,
            "take_hz": f_l.rates[split.learners].value,
            "bottleneck": split.bottleneck,
            "idle": split.idle,
            "cores": split.cores,
            "pace": split.hz / choice.hz,
            "is_tied": (split.actors, split.learners) in ties,
        }
        label = {"actors": split.actors, "learners": split.learners, "in_turns": split.in_turns}
        evidence = Evidence("split", weakest(split.sources))
        rate = Estimate(split.hz, split.low, split.high, evidence)
        return Row(label, rate, STEPS_HZ, more, says)

    return Answer(
        {**asked, "cores": cores, "reserved": reserved, "update_interval": u, "cores_there": beyond},
        make_row(choice, "take_turns" if choice.in_turns else "split_cores"),
        tuple(
            Row({"side": side, "cores": count}, rate, unit)
            for side, unit, *_, curve in sides
            for count, rate in sorted(curve.rates.items())
        ),
        tuple(make_row(*pair) for pair in sorted(others, key=lambda pair: -pair[0].hz)),
        tuple(row for _, row in unsure),
        (*notes, *evidence_notes(filled)),
    )


def _compare_runs(
    question: MappingQuestion, u: float, choice: Allocation, turns: Allocation, near: list[Allocation]
) -> tuple[Allocation, Allocation, list[Allocation]]:
    """Return the arguments, of the splits near the choice and it another choice, by rates of runs; or as they are.

    They stay as they are where nothing predicts a run of the choice.
    """
    runs = {split: run for split in (choice, turns, *near) if (run := _run_of(question, u, split))}
    if choice not in runs:
        return choice, turns, near
    known = (runs[split] for split in (choice, *near) if split in runs)
    fastest, *_ = ranked = sorted(known, key=lambda split: (-split.hz, split.cores))
    fast = (split for split in ranked if split.hz >= (1 - WITHIN) * fastest.hz)
    best = min(fast, key=lambda split: (split.cores, -split.hz))
    return best, runs.get(turns, turns), [split for split in ranked if split is not best]


def _list_unsure(sides: Iterable[Side], alone: Allocation, choice: Allocation) -> Iterator[tuple[Estimate, Row]]:
    """Yield the extrapolated rates that may bound the choice, each with the number of cores to time it on next.

    ``alone``: the choice by the rate of each side alone.
    """
    for side, unit, per, before, after in sides:
        on, at = getattr(choice, side), getattr(alone, side)
        if after.rates[at].source == "extrapolated" and after.rates[at].low / per < alone.hz and after is not before:
            label = {"side": side, "cores": choose_next_point(before, at), "on": on}
            yield after.rates[on], Row(label, after.rates[on], unit)


def _list_ties(splits: Sequence[Allocation], choice: Allocation) -> list[Allocation]:
    """List the splits that may be as fast as the choice, of as many learners the one with the fewest actors."""
    least = (1 - WITHIN) * max((split.hz for split in splits), default=0.0)
    fewest: dict[int, Allocation] = {}
    # Invariant: by learners, fewest has the split with the fewest actors of those so far that may be as fast.
    for split in splits:
        are_measured = {*split.sources, *choice.sources} == {"measured"}
        is_as_fast = split.hz >= least or (are_measured and split.high >= choice.low)
        has_no_fewer = split.actors >= choice.actors and split.learners >= choice.learners
        known = fewest.get(split.learners)
        if is_as_fast and not has_no_fewer and (known is None or split.actors < known.actors):
            fewest[split.learners] = split
    return sorted(fewest.values(), key=lambda split: (split.cores, split.actors))


def _describe_filled(before: RateCurve, after: RateCurve) -> Evidence:
    """Describe the rates that a scaling law adds to a curve."""
    law = fit_scaling(before)
    added = [cores for cores in after.cores if cores not in before.rates]
    source: Source = "extrapolated" if any(after.rates[x].source == "extrapolated" for x in added) else "modeled"
    description = (
        f"{len(added)} of {len(after.cores)} numbers of cores, from {added[0]} to {added[-1]}, by the universal "
        f"scalability law through the others (contention {law.contention:.2g}, coherence {law.coherence:.2g})"
    )
    return Evidence(before.name, source, description)


def _run_of(question: MappingQuestion, u: float, split: Allocation) -> Allocation | None:
    """Return the split with the rate that ``recommend`` has of a run by it; None where nothing predicts one."""
    by = question.parts().learners.implementation
    fix: dict[str, Any] = dict.fromkeys(WHERE, question.parts().cpu.name) | {"learner_implementation": by}
    fix |= {"learners": 1, "arrangement": "serial" if split.in_turns else "apart"}
    fix |= {} if split.in_turns else {"actors": split.actors}
    if by == REFERENCE:
        fix["learner_threads"] = split.learners
    elif split.learners > 1 and not split.in_turns:
        fix |= {"learners": split.learners, "sync": question.fix.get("sync", "synchronous")}
    learner = replace(question.workload.learner, update_interval=int(u))
    if (loop := predict_loop(replace(question, workload=replace(question.workload, learner=learner)), fix)) is None:
        return None
    run, (low, high) = loop[1].answer, loop[1].doubt.ends(loop[1].answer)
    side: Literal["actors", "learners"] = "actors" if run.outcome.actor_hz < run.outcome.training_hz else "learners"
    sources = run.configuration.actors.time.source, weakest(run.configuration.of(part).time.source for part in LOOP)
    bottleneck = split.bottleneck if split.in_turns else side
    return replace(split, hz=run.outcome.hz, low=low, high=high, bottleneck=bottleneck, sources=sources)


def platform_curves(parts: Times, cores: int) -> tuple[RateCurve, RateCurve, tuple[Evidence, ...]]:
    """Return (f_a, f_l, evidence) of a platform's processor on up to a given number of cores.

    Where a profile has two numbers of cores, a curve is what it measured, and other numbers are for ``complete``;
    elsewhere it is modeled on each. Learners are those of one implementation: threads of the reference, and of others
    processes, which combine by the ``sync`` that is fixed; without one they take each step together.
    """
    cpu, counts = parts.cpu, range(1, cores + 1)
    acting = {x: parts.actors.fastest_step(x) for x in _list_timed(parts, "actor step", counts) or counts}
    if (by := parts.learners.implementation) != REFERENCE or {"sync", "period"} & parts.constraints.keys():
        learning = steps_together(parts, by, cores)
    elif timed := _list_timed(parts, "learner step", counts):
        options = parts.learners.list(cpu)
        learning = {
            option.cores: option.step
            for option in options
            if implementation_of(option.details) == by and option.cores in timed
        }
    else:
        modeled = {x: laws.learner(cpu, cpu, parts.workload, parts.batch, x) for x in reversed(counts)}
        learning = {x: parts.modeled(law, f"f_l({cpu.name})") for x, law in modeled.items()}
    f_a, f_l = (
        RateCurve(
            name, {x: Estimate(1 / time.value, 1 / time.high, 1 / time.low, time.rests_on) for x, time in times.items()}
        )
        for name, times in (("f_a", acting), ("f_l", learning))
    )
    evidence: dict[str, Evidence] = {}
    for time in (*acting.values(), *learning.values()):  # where a law is of all counts, that of the most stands first
        evidence.setdefault(time.rests_on.id, time.rests_on)
    return f_a, f_l, tuple(evidence.values())


def steps_together(parts: Times, by: str, cores: int) -> dict[int, Estimate]:
    """Gradient steps by x learners of an implementation, a process and a core each, without sampling."""
    fixed = {key: parts.constraints[key] for key in ("sync", "period") if key in parts.constraints}
    how = Arrangement(**{"sync": "local" if "period" in fixed else "synchronous", **fixed})
    first, whole = one_thread(parts, by), terms_of(parts.batch, sources_of(parts, parts.cpu, by), parts.cpu)
    processes, met, _ = calibrate(Processes.of(parts, cores), whole, parts, by)
    terms = replace(whole, replay_seconds=0.0, update_seconds=0.0)
    description = f"{by} learners, processes that combine by {how.sync}: {met.rests_on.description}"
    evidence = Evidence(f"f_l({parts.cpu.name})", "modeled", description)
    seconds = {count: processes.step_seconds(terms, count, horizon_of(how), how.sync) for count in range(2, cores + 1)}
    factor = laws.together(first.factor, COSTS_FACTOR)
    return {1: first} | {count: Estimate.within(step, factor, evidence) for count, step in seconds.items()}


def _list_timed(parts: Times, what: str, counts: range) -> list[int]:
    """List the numbers of cores that were measured; none where they are too few for a law."""
    timed = [x for x in (parts.table.threads(what) if parts.table else []) if x in counts and x <= parts.cores]
    return timed if len(timed) >= min(LEAST_POINTS, len(counts)) else []
