"""Why another configuration loses: the best that fits its description, engine by engine against the best of all."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..estimate import written
from ..solver.law import LOOP_BOUND, Objective, charges, sum_charges
from ..solver.problem import LOOP
from ..solver.solve import Answer
from .answer import MappingAnswer, PartAnswer, Shortage
from .doubt import Doubt

WATTS = "watts"
"""The cause where it is no engine: devices that may take more power, for an answer in steps/J."""


@dataclass(frozen=True)
class Explanation:
    """``asked``: the best that is as described, at epsilon 0. ``loss``: the share of the answer's value that it lacks.

    ``cause``: the engine that bounds the asked one, ``LOOP_BOUND`` or ``WATTS``; "" where it loses nothing.
    ``engines``: seconds that each is busy a gradient step, (asked, best); of ``LOOP_BOUND`` those that a batch is under
    way, divided by how many are.
    ``chance``: the probability that the asked one is at least as good, numbers they share being wrong together.
    ``notes``: which parts are on other devices than in the best without being described so, and what the description
    says nothing about. The loss is below 0 where the answer is one of several statistically tied with the best,
    or that lie within epsilon of it.
    """

    described: dict[str, Any]
    asked: MappingAnswer
    best: MappingAnswer
    loss: float
    sentence: str
    notes: tuple[str, ...]
    cause: str = ""
    engines: Mapping[str, tuple[float, float]] | None = None
    chance: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        sides = {"asked": self.asked.to_dict(), "best": self.best.to_dict()}
        return asdict(replace(self, **{side: replace(getattr(self, side), chosen=None) for side in sides})) | sides


def explain(described: dict[str, Any], asked: MappingAnswer | Shortage, best: MappingAnswer) -> Explanation | Shortage:
    """Why the best configuration of a description loses to the best of all, or that it ties."""
    if isinstance(asked, Shortage):
        return asked
    mine, other = asked.chosen, best.chosen
    assert mine and other  # as every answer to a question has
    loss, doubt = 1 - asked.value / best.value, Doubt(best.objective, best.epsilon)
    chance = doubt.chance(mine, other)
    here, there = (busy_of(one, best.objective) for one in (mine, other))
    engines = {engine: (here.get(engine, 0.0), there.get(engine, 0.0)) for engine in {**here, **there}}
    cause = ""
    if loss <= best.epsilon:
        sentence = _tie(loss, best, asked)
    else:
        bound_by = mine.outcome.training_bottleneck if best.objective == "training" else mine.outcome.bottleneck
        cause = WATTS if best.objective == "per_watt" and asked.hz >= best.hz else bound_by
        sentence = f"loses {loss:.0%}: {_why(cause, asked, best, engines)}"
        if doubt.no_worse(mine, other):
            sentence += f"; it may be no worse, and is as good with a probability of {chance:.0%}"
    notes = tuple(_notes(described, asked, best))
    return Explanation(described, asked, best, loss, sentence, notes, cause, engines, chance)


def busy_of(one: Answer, objective: Objective) -> dict[str, float]:
    """Seconds a gradient step that bound the value: of each engine, and of a batch on its way for each under way."""
    chosen = one.configuration
    seconds = {option.part: option.seconds for option in chosen.options}
    busy, _ = sum_charges(charges(one.problem, chosen.where, seconds), objective)
    return busy | {LOOP_BOUND: one.outcome.loop_seconds / (chosen.depth + 1)}


def _tie(loss: float, best: MappingAnswer, asked: MappingAnswer) -> str:
    side = "below" if loss >= 0 else "above"
    if best.value >= (1 - best.epsilon) * asked.value:
        return f"ties: {abs(loss):.1%} {side} the answer, and what is within {best.epsilon:.0%} of the best ties"
    return (
        f"ties: expected {-loss:.1%} above the answer, and statistically tied with it; of such ones the answer takes "
        "the fewest devices, cores and bytes moved"
    )


def _why(cause: str, asked: MappingAnswer, best: MappingAnswer, engines: Mapping[str, tuple[float, float]]) -> str:
    """What bounds the asked one, for how long in both, and what of that makes most of the difference."""
    if cause == WATTS:
        return f"the devices it uses may take {asked.watts:,.0f} W in all, those of the best {best.watts:,.0f} W"
    mine, other = engines[cause]
    said = f"its bottleneck is {asked.bottleneck}"
    if cause == LOOP_BOUND:
        said += f", which makes a step in {_us(mine)}, {_us(other)} in the best"
    else:
        beside = f"{_us(other)} in the best" if other else "and the best does without it"
        said += f"; {cause} is busy for {_us(mine)} a gradient step, {beside}"
    here, there = (_on(cause, answer) for answer in (asked, best))
    if not there:  # on whatever engines the best has them
        there = {what: seconds for _, seconds, what in best.charges}
    most = max(here, key=lambda what: here[what] - there.get(what, 0.0))
    parts = {part.part: part for part in asked.parts}
    if most not in parts:
        return f"{said}; sending {most} takes {_us(here[most])} of it"
    part, (same,) = parts[most], (part for part in best.parts if part.part == most)
    said += f"; its {most} takes {_time(part)} on {part.device} ({part.choice}), "
    return f"{said}{_time(same)} on {same.device} ({same.choice}) in the best"


def _on(cause: str, answer: MappingAnswer) -> dict[str, float]:
    """Seconds of each part and transfer that keeps an engine busy, or that a batch has to wait for."""
    spent: dict[str, float] = {}
    if cause == LOOP_BOUND:
        charged = [
            *(("", part.charged, str(part.part)) for part in answer.parts if part.part in LOOP),
            *(("", one.seconds, one.sent) for one in answer.transfers if one.waits),
        ]
    else:
        acting = answer.objective != "training"
        charged = [one for one in answer.charges if one[0] == cause and (acting or "actors" not in one[2])]
    for _, seconds, what in charged:
        spent[what] = spent.get(what, 0.0) + seconds
    return spent


WELL_KNOWN = 1.1  # a factor up to which a time is known to three digits


def _us(seconds: float, digits: int = 3) -> str:
    return f"{float(f'{seconds * 1e6:.{digits}g}'):,.10g} us"


def _time(part: PartAnswer) -> str:
    """Write the time of a part with its factor, and no third digit where that may be wrong."""
    return written(_us(part.seconds, 2 if part.factor > WELL_KNOWN else 3), float(f"{part.factor:.2g}"), part.interval)


def _notes(described: dict[str, Any], asked: MappingAnswer, best: MappingAnswer) -> Iterator[str]:
    moved = [
        f"{one.part} from {other.device} to {one.device}"
        for one, other in zip(asked.parts, best.parts, strict=True)
        if one.device != other.device and one.part not in described
    ]
    if moved:
        yield f"this moves {', '.join(moved)} as well"
    yield from (note for note in asked.notes if note not in best.notes)
