"""A further learner as a process: it takes its part in the run's gradient steps on memory that all learners share."""

from typing import NamedTuple

import numpy as np

from ...replay.memory import Handle
from .. import learners
from ..actor import seed_of
from ..errors import TrainingError
from . import board as words
from . import syncs
from .learning import Batches, Learning, OwnBatches
from .pace import Pace
from .programs import Start
from .slots import SentBatches, Slots, SlotsHandle
from .transports.shared_transport import Shared

_LEARNERS = 7  # sets these random numbers apart from the other uses of a seed


class Extra(NamedTuple):
    """What a learner is started with besides: the keeper's slots, if there is one, and what learners share."""

    slots: SlotsHandle | None
    common: Handle


def learn(start: Start) -> None:
    """Take gradient steps until the run is over, which raises Stopped. TrainingError when training has diverged."""
    workload, arrangement, extra = start.workload, start.arrangement, start.extra
    learner = learners.make(workload, start.learner, seed=start.seed, device=start.device)
    learners.use_threads(arrangement.threads)
    common = syncs.Common.attach(extra.common, learner, arrangement)
    seed = seed_of(start.seed, _LEARNERS, start.epoch, start.number)
    learner.rng, rng = (np.random.default_rng([seed, use]) for use in range(2))
    board, replay = start.attached()
    batches: Batches
    if extra.slots is None:
        assert replay is not None  # the parent shares it
        batches = OwnBatches(replay, workload, rng, Shared(), board, arrangement.rows(workload))
    else:
        batches = SentBatches(Slots.attach(extra.slots), board, start.row)
    sync = syncs.make(arrangement, learner, board, start.number, common)
    learning = Learning(workload, batches, board, Pace.of(workload, arrangement), sync)
    while True:
        board.check(start.row)
        try:
            learning.advance()
        except ValueError as error:
            steps, updates = board.value(words.STEPS), board.value(words.UPDATES)
            raise TrainingError(f"after {steps:,} steps and {updates:,} gradient steps: {error}") from None
