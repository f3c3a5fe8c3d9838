"""Why another configuration loses: the best that fits its description, engine by engine against the best of all."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..answer import Note
from ..solver.law import LOOP_BOUND, Charge, charges, sum_charges
from ..solver.problem import PARTS, Part
from .alternatives import JointUncertainty
from .answer import MappingAnswer, Shortage

WATTS = "watts"
"""The cause where it is no engine: devices that may take more power, for an answer in steps/J."""


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
    (mine, other), (here, there) = (asked.chosen, best.chosen), map(busy_of, (asked, best))
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
        why += _why(cause, asked, best, engines)
        why += [Note("may_be_no_worse", {"chance": chance}, "first")] if doubt.no_worse(mine, other) else []
    notes = (*why, *_moved(described, asked, best), *(note for note in asked.notes if note not in best.notes))
    return Explanation(described, asked, best, loss, verdict, notes, cause, engines, chance)


def busy_of(answer: MappingAnswer) -> dict[str, float]:
    """Seconds a gradient step that bound the value: of each engine, and of a batch on its way for each under way."""
    busy, _ = sum_charges(_charges(answer), answer.objective)
    return busy | {LOOP_BOUND: answer.chosen.outcome.loop_seconds / (answer.chosen.configuration.depth + 1)}


def _charges(answer: MappingAnswer) -> list[Charge]:
    chosen = answer.chosen.configuration
    seconds = {option.part: option.seconds for option in chosen.options}
    return list(charges(answer.chosen.problem, chosen.where, seconds))


def _why(
    cause: str, asked: MappingAnswer, best: MappingAnswer, engines: Mapping[str, tuple[float, float]]
) -> Iterator[Note]:
    """Yield what bounds the asked one, for how long in both, and what of that makes most of the difference."""
    if cause == WATTS:
        watts = {"watts": asked.chosen.outcome.watts, "best_watts": best.chosen.outcome.watts}
        yield Note("takes_more_watts", watts, "first")
        return
    mine, other = engines[cause]
    kind = "steps_in_flight" if cause == LOOP_BOUND else "busy_longer" if other else "busy_alone"
    yield Note(kind, {"engine": cause, "seconds": mine, "best_seconds": other})
    here, there = (_on(cause, answer) for answer in (asked, best))
    if not there:  # on whatever engines the best has them
        there = {charge.what: charge.seconds for charge in _charges(best)}
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


def _on(cause: str, answer: MappingAnswer) -> dict[tuple[Part, ...], float]:
    """Seconds of each part and transfer that keeps an engine busy, or that a batch has to wait for."""
    spent: dict[tuple[Part, ...], float] = {}
    for charge in _charges(answer):
        is_counted = answer.objective != "training" or not charge.acting
        if charge.waits if cause == LOOP_BOUND else charge.engine == cause and is_counted:
            spent[charge.what] = spent.get(charge.what, 0.0) + charge.seconds
    return spent


def _moved(described: dict[str, Any], asked: MappingAnswer, best: MappingAnswer) -> Iterator[Note]:
    moves: dict[tuple[str, str], list[str]] = {}
    for part in PARTS:
        pair = best.choice.label[part], asked.choice.label[part]
        if pair[0] != pair[1] and part not in described:
            moves.setdefault(pair, []).append(part)
    for (source, target), parts in moves.items():
        yield Note("moves_too", {"parts": parts, "from": source, "to": target}, "first")
