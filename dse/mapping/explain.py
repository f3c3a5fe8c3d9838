"""Why another configuration loses: the best that fits its description, beside the best of all."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ..estimate import written
from .answer import MappingAnswer, PartAnswer, Shortage


@dataclass(frozen=True)
class Explanation:
    """``asked``: the best that is as described. ``loss``: the share of the answer's value that it lacks.

    ``notes``: which parts are on other devices than in the best without being described so, and what the description
    says nothing about. The loss is below 0 where the tie rule put the answer before something that is faster by less
    than epsilon.
    """

    described: dict[str, Any]
    asked: MappingAnswer
    best: MappingAnswer
    loss: float
    sentence: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def explain(described: dict[str, Any], asked: MappingAnswer | Shortage, best: MappingAnswer) -> Explanation | Shortage:
    """Why the best configuration of a description loses to the best of all, or that it ties."""
    if isinstance(asked, Shortage):
        return asked
    loss = 1 - asked.value / best.value
    slowest = max(asked.parts, key=lambda part: part.seconds)
    if loss <= best.epsilon:
        side = "below" if loss >= 0 else "above"
        sentence = f"ties: {abs(loss):.1%} {side} the answer, and what is within {best.epsilon:.0%} of the best ties"
    else:
        same = [part for part in best.parts if part.part == slowest.part]
        sentence = (
            f"loses {loss:.0%}: it is bound by {asked.bottleneck}; its {slowest.part} takes "
            f"{_time(slowest)} a gradient step on {slowest.device} ({slowest.choice}), "
            f"{_time(same[0])} on {same[0].device} ({same[0].choice}) in the best"
        )
        if asked.low <= best.value and best.low <= asked.value:
            sentence += "; their intervals overlap, so it may be no worse"
    return Explanation(described, asked, best, loss, sentence, tuple(_notes(described, asked, best)))


def _time(part: PartAnswer) -> str:
    return written(f"{part.seconds * 1e6:,.1f} us", part.factor, part.interval)


def _notes(described: dict[str, Any], asked: MappingAnswer, best: MappingAnswer) -> Iterator[str]:
    moved = [
        f"{one.part} from {other.device} to {one.device}"
        for one, other in zip(asked.parts, best.parts, strict=True)
        if one.device != other.device and one.part not in described
    ]
    if moved:
        yield f"this moves {', '.join(moved)} as well"
    yield from (note for note in asked.notes if note not in best.notes)
