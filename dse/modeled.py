"""What trees that nobody timed would take, by performance models of their own; told beside a choice, never chosen."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import impls

from .tables import TRANSFERS, Configuration, Question


@dataclass(frozen=True)
class Modeled:
    """Seconds per step that a performance model tells of its configuration, leaves of equal weight, and those to bring
    a batch of uniforms to it and one of indices back. Nothing was measured, so nothing tells how far off they are."""

    configuration: Configuration
    seconds: float
    transfer_seconds: float


def fastest(configurations: Iterable[Configuration], question: Question) -> Modeled | None:
    """What the fastest of them would take; None where no model tells."""
    found = (_step(configuration, question) for configuration in configurations)
    return min((one for one in found if one), key=lambda one: (one.seconds, one.configuration), default=None)


def _step(configuration: Configuration, question: Question) -> Modeled | None:
    """Asked of the model itself, which needs no cells around; None for a question it does not take."""
    try:
        tree = impls.make(
            configuration.contestant,
            question.capacity,
            fanout=configuration.fanout,
            dtype=question.dtype,
            threads=configuration.threads,
            **dict(configuration.options),
        )
    except ValueError:
        return None
    draw, update, *moves = (tree.modeled_seconds(op, question.batch) for op in ("draw", "update", *TRANSFERS))
    if draw is None or update is None:
        return None
    return Modeled(configuration, draw + question.updates_per_sample * update, math.fsum(move or 0.0 for move in moves))
