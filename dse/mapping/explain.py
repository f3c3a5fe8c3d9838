"""Why another configuration loses: the best that fits its description, engine by engine against the best of all."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..answer import Note
from ..solver.law import LOOP_BOUND, Objective, charges, sum_charges
from ..solver.problem import LOOP
from ..solver.solve import Candidate
from .answer import MappingAnswer, Shortage
from .doubt import Doubt

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
    mine, other = asked.chosen, best.chosen
    assert mine and other  # as every answer to a question has
    loss, doubt = 1 - asked.value / best.value, Doubt(best.objective, best.epsilon)
    here, there = (busy_of(candidate, best.objective) for candidate in (mine, other))
    engines = {engine: (here.get(engine, 0.0), there.get(engine, 0.0)) for engine in {**here, **there}}
    chance, cause, why = doubt.chance(mine, other), "", list[Note]()
    if loss <= best.epsilon:
        verdict = "ties_within_epsilon" if best.value >= (1 - best.epsilon) * asked.value else "ties_unsure"
    else:
        bound_by = mine.outcome.training_bottleneck if best.objective == "training" else mine.outcome.bottleneck
        cause = WATTS if best.objective == "per_watt" and asked.hz >= best.hz else bound_by
        verdict, why = "loses", list(_why(cause, asked, best, engines))
        why += [Note("may_be_no_worse", {"chance": chance}, "first")] if doubt.no_worse(mine, other) else []
    notes = (*why, *_moved(described, asked, best), *(note for note in asked.notes if note not in best.notes))
    return Explanation(described, asked, best, loss, verdict, notes, cause, engines, chance)


def busy_of(one: Candidate, objective: Objective) -> dict[str, float]:
    """Seconds a gradient step that bound the value: of each engine, and of a batch on its way for each under way."""
    chosen = one.configuration
    seconds = {option.part: option.seconds for option in chosen.options}
    busy, _ = sum_charges(charges(one.problem, chosen.where, seconds), objective)
    return busy | {LOOP_BOUND: one.outcome.loop_seconds / (chosen.depth + 1)}


def _why(
    cause: str, asked: MappingAnswer, best: MappingAnswer, engines: Mapping[str, tuple[float, float]]
) -> Iterator[Note]:
    """Yield what bounds the asked one, for how long in both, and what of that makes most of the difference."""
    if cause == WATTS:
        yield Note("takes_more_watts", {"watts": asked.watts, "best_watts": best.watts}, "first")
        return
    mine, other = engines[cause]
    kind = "steps_in_flight" if cause == LOOP_BOUND else "busy_longer" if other else "busy_alone"
    yield Note(kind, {"engine": cause, "seconds": mine, "best_seconds": other})
    here, there = (_on(cause, answer) for answer in (asked, best))
    if not there:  # on whatever engines the best has them
        there = {what: seconds for _, seconds, what in best.charges}
    most = max(here, key=lambda what: here[what] - there.get(what, 0.0))
    parts, best_parts = ({part.part: part for part in answer.parts} for answer in (asked, best))
    if most not in parts:
        yield Note("sending_takes", {"sent": most, "seconds": here[most]}, "first")
        return
    part, same = parts[most], best_parts[most]
    values = {"part": most, "time": part.time, "device": part.device, "choice": part.choice}
    values |= {"best_time": same.time, "best_device": same.device, "best_choice": same.choice}
    yield Note("part_takes", values, "first")


def _on(cause: str, answer: MappingAnswer) -> dict[str, float]:
    """Seconds of each part and transfer that keeps an engine busy, or that a batch has to wait for."""
    spent: dict[str, float] = {}
    if cause == LOOP_BOUND:
        charged = [
            *(("", part.charged, str(part.part)) for part in answer.parts if part.part in LOOP),
            *(("", sent.seconds, f"{sent.source} to {sent.target}") for sent in answer.transfers if sent.waits),
        ]
    else:
        acting = answer.objective != "training"
        charged = [one for one in answer.charges if one[0] == cause and (acting or "actors" not in one[2])]
    for _, seconds, what in charged:
        spent[what] = spent.get(what, 0.0) + seconds
    return spent


def _moved(described: dict[str, Any], asked: MappingAnswer, best: MappingAnswer) -> Iterator[Note]:
    moves: dict[tuple[str, str], list[str]] = {}
    for part, other in zip(asked.parts, best.parts, strict=True):
        if part.device != other.device and part.part not in described:
            moves.setdefault((other.device, part.device), []).append(part.part)
    for (source, target), parts in moves.items():
        yield Note("moves_too", {"parts": parts, "from": source, "to": target}, "first")
