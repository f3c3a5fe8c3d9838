"""Why another configuration loses, engine by engine against the best of all; and where a larger batch no longer pays.

The rate of records rises with B, as what every gradient step costs is shared by more of them, up to what each record
costs: its saturated rate. The **knee** is the smallest B that trains nearly as many records per second as any. What a
record trained is worth is no part of it, and falls with B; so a rule that takes the most records takes the largest
batch there is.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..answer import Note
from ..solver.law import LOOP_BOUND, charges
from ..solver.problem import PARTS, Part
from .alternatives import JointUncertainty
from .answer import MappingAnswer, Shortage

WATTS = "watts"
"""The cause where it is no engine: devices that may take more power, for an answer in steps/J."""
SHARE = 0.9
"""Of the saturated rate: a larger batch trains at most a ninth more, which is less than most rates here are sure to."""
STRIDE = 3  # powers of two between the batches of the coarse search
Work = dict[tuple[Part, ...], float]
"""Seconds a gradient step of parts, and of what is sent between two."""


@dataclass(frozen=True)
class Explanation:
    """``asked``: the best that is as described, at epsilon 0. ``loss``: the share of the answer's value that it lacks.

    ``verdict``: "loses", "ties_within_epsilon" or "ties_unsure". ``cause``: the engine that bounds the asked one,
    ``LOOP_BOUND`` or ``WATTS``; "" where it loses nothing. ``engines``: seconds that each is busy a gradient step,
    (asked, best); of ``LOOP_BOUND`` those that a batch is under way, divided by how many are.
    ``chance``: the probability that the asked one is at least as good, numbers they share being wrong together.
    ``notes``: what bounds the asked one, which parts are on other devices than in the best without being described so,
    and what the description says nothing about. The loss is below 0 where the answer is one of several statistically
    tied with the best, or that lie within epsilon of it.
    """

    described: dict[str, Any]
    asked: MappingAnswer
    best: MappingAnswer
    loss: float
    verdict: str
    notes: tuple[Note, ...]
    cause: str
    engines: Mapping[str, tuple[float, float]]
    chance: float


def explain(described: dict[str, Any], asked: MappingAnswer | Shortage, best: MappingAnswer) -> Explanation | Shortage:
    """Explain why the best configuration of a description loses to the best of all, or that it ties."""
    if isinstance(asked, Shortage):
        return asked
    mine, other, works = asked.chosen, best.chosen, (list_work(asked), list_work(best))
    here, there = ({engine: sum(work.values()) for engine, work in each.items()} for each in works)
    here[LOOP_BOUND] /= mine.configuration.depth + 1
    there[LOOP_BOUND] /= other.configuration.depth + 1
    loss, epsilon = 1 - asked.value / best.value, best.made.found.epsilon
    doubt = JointUncertainty(best.objective, epsilon)
    engines = {engine: (here.get(engine, 0.0), there.get(engine, 0.0)) for engine in {**here, **there}}
    chance, cause, why = doubt.chance(mine, other), "", list[Note]()
    if loss <= epsilon:
        verdict = "ties_within_epsilon" if best.value >= (1 - epsilon) * asked.value else "ties_unsure"
    else:
        verdict, cause = "loses", asked.bottleneck.values["engine"]
        if best.objective == "per_watt" and asked.hz >= best.hz:
            cause = WATTS
        why += _why(cause, asked, best, works, engines.get(cause, ()))
        why += [Note("may_be_no_worse", {"chance": chance}, "first")] if doubt.no_worse(mine, other) else []
    notes = (*why, *_moved(described, asked, best), *(note for note in asked.notes if note not in best.notes))
    return Explanation(described, asked, best, loss, verdict, notes, cause, engines, chance)


def list_work(answer: MappingAnswer) -> dict[str, Work]:
    """Seconds a gradient step of each part and transfer, by the engine that they keep busy; those in the loop last."""
    chosen, work = answer.chosen.configuration, defaultdict[str, Work](lambda: defaultdict(float))
    loop: Work = defaultdict(float)
    seconds = {option.part: option.seconds for option in chosen.options}
    for charge in charges(answer.chosen.problem, chosen.where, seconds):
        if answer.objective != "training" or not charge.acting:
            work[charge.engine][charge.what] += charge.seconds
        if charge.waits:
            loop[charge.what] += charge.seconds
    return work | {LOOP_BOUND: loop}


def _why(
    cause: str,
    asked: MappingAnswer,
    best: MappingAnswer,
    works: tuple[dict[str, Work], dict[str, Work]],
    busy: Sequence[float],
) -> Iterator[Note]:
    """Yield what bounds the asked one, how long it is ``busy`` in both, and what makes most of the difference."""
    if cause == WATTS:
        watts = {"watts": asked.chosen.outcome.watts, "best_watts": best.chosen.outcome.watts}
        yield Note("takes_more_watts", watts, "first")
        return
    mine, other = busy
    kind = "steps_in_flight" if cause == LOOP_BOUND else "busy_longer" if other else "busy_alone"
    yield Note(kind, {"engine": cause, "seconds": mine, "best_seconds": other})
    here, there = (work.get(cause, {}) for work in works)
    if not there:  # on whatever engines the best has them
        there = {what: seconds for work in works[1].values() for what, seconds in work.items()}
    most = max(here, key=lambda what: here[what] - there.get(what, 0.0))
    if len(most) > 1:
        yield Note("sending_takes", {"sent": " to ".join(most), "seconds": here[most]}, "first")
        return
    values: dict[str, Any] = {"part": most[0]}
    for which, answer in (("", asked), ("best_", best)):
        (row,) = (row for row in answer.parts if row.label["part"] == most[0])
        values |= {f"{which}time": row.number, f"{which}device": row.label["device"]}
        values[f"{which}choice"] = row.more["implementation"]
    yield Note("part_takes", values, "first")


def _moved(described: dict[str, Any], asked: MappingAnswer, best: MappingAnswer) -> Iterator[Note]:
    moves: dict[tuple[str, str], list[str]] = {}
    for part in PARTS:
        pair = best.choice.label[part], asked.choice.label[part]
        if pair[0] != pair[1] and part not in described:
            moves.setdefault(pair, []).append(part)
    for (source, target), parts in moves.items():
        yield Note("moves_too", {"parts": parts, "from": source, "to": target}, "first")


@dataclass(frozen=True)
class Knee:
    """The ``batch`` at the knee; None where the rate still rises at the ``largest`` that fits, or nothing fits.

    ``rates``: records per second by batch, of all that were tried, 0 where it does not fit.
    """

    batch: int | None
    largest: int | None
    rates: dict[int, float]

    @property
    def most(self) -> float:
        """The highest rate of those tried."""
        return max(self.rates.values(), default=0.0)

    def notes(self, batch: int, unit: str, measured: bool) -> Iterator[Note]:
        """Yield why B is this batch, and what that leaves out. ``measured``: whether the largest measured ends it."""
        shares = {f"{tried:,}": rate / self.most if self.most else 0.0 for tried, rate in sorted(self.rates.items())}
        values = {"batch": batch, "unit": unit, "least_share": SHARE, "largest": self.largest, "shares": shares}
        kind = "batch_at_knee"
        if self.batch is None:
            kind = "batch_still_rising_measured" if measured else "batch_still_rising"
        yield Note(kind, {**values, "is_largest": batch == self.largest})
        yield Note("worth_of_records", {})


def knee(batches: Sequence[int], rate: Callable[[int], float]) -> Knee:
    """The smallest batch with at least ``SHARE`` of the highest rate, coarse to fine; batches rise.

    ``rate``: records per second, 0 where the batch does not fit. It is taken to rise with B, and what fits to be a
    smaller batch's too; so few are asked for.
    """
    rates: dict[int, float] = {}

    def pays(place: int) -> bool:
        batch = batches[place]
        if batch not in rates:
            rates[batch] = rate(batch)
        return rates[batch] > 0 and rates[batch] >= SHARE * max(rates.values())

    last = _largest(len(batches), lambda place: pays(place) or rates[batches[place]] > 0)
    if last < 0:
        return Knee(None, None, rates)
    above, below = last, last - STRIDE
    while below >= 0 and pays(below):
        above, below = below, below - STRIDE
    below = max(below, -1)
    # Invariant: above pays; below does not, or lies before all.
    while above - below > 1:
        middle = (above + below) // 2
        above, below = (middle, below) if pays(middle) else (above, middle)
    smallest = min(batch for batch, known in rates.items() if known >= SHARE * max(rates.values()))
    return Knee(smallest if smallest < batches[last] or last == 0 else None, batches[last], rates)


def _largest(count: int, fits: Callable[[int], bool]) -> int:
    """The last place that fits, -1 where none does."""
    if count and fits(count - 1):
        return count - 1
    first, end = -1, count - 1
    # Invariant: first fits, or lies before all; end does not.
    while end - first > 1:
        middle = (first + end) // 2
        first, end = (middle, end) if fits(middle) else (first, middle)
    return first
