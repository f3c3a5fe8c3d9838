"""How the gradient steps of several learners combine.

    synchronous    each learner derives the gradient of B/L records, the first takes the step along their mean
    lock           each takes whole steps on B records and the same weights, one learner at a time
    hogwild        the same without a lock, so that steps overlap
    local          each takes steps on weights of its own and B/L records, and all average theirs every H steps

Each ``x`` of them is the class ``X`` of the module ``x_sync`` in this folder.
"""

import importlib
from typing import cast

from ...learner import Learner
from ..arrangement import Arrangement
from ..board import Board
from .common import Common
from .sync import Alone, Sync

__all__ = ["Alone", "Common", "Sync", "make"]


def make(arrangement: Arrangement, learner: Learner, board: Board, number: int, common: Common | None) -> Sync:
    """The part of learner ``number`` of an arrangement's; ``common`` is None where it has one learner."""
    if common is None:
        return Alone(learner, board, number)
    module = importlib.import_module(f"{__name__}.{arrangement.sync}_sync")
    return cast(Sync, getattr(module, arrangement.sync.capitalize())(learner, board, number, common))
