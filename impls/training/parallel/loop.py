"""The loop of a run by several processes: a node whose parent is the first learner."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .. import learners
from ..actor import TRAINING, Episode
from ..arrangement import Arrangement
from ..clock import seconds_of
from ..errors import TrainingError
from ..loop import Loop
from ..workload import Workload
from . import syncs
from .batches import Batches, OwnBatches, SentBatches
from .board import Counter, Row
from .learning import Extra, Learning, learn
from .node import ActorNode, measure_lag
from .pace import Pace
from .syncs import SharedGradients
from .transports import RecordTransport


class ParallelLoop(ActorNode, Loop):
    """A workload's actors, learners and replay in processes of their own; this one is the first learner.

    ``seed`` decides the first weights and the random numbers of each process, but not the order of their turns.
    """

    def __init__(
        self,
        workload: Workload,
        arrangement: Arrangement,
        *,
        learner: str | None = None,
        policy: str | None = None,
        seed: int = 0,
        device: str = "cpu",
        transport: RecordTransport | None = None,
        epoch: int = 0,
    ) -> None:
        arrangement.check(workload)
        self.learner = learners.make(workload, learner, seed=seed, device=device)
        policy = learners.default(workload) if policy is None else policy
        self._common = SharedGradients(self.learner, arrangement) if arrangement.learners > 1 else None
        super().__init__(
            workload, arrangement, len(self.learner.parameters), learner=self.learner.implementation, policy=policy,
            transport=transport, seed=seed, device=device, epoch=epoch,
        )  # fmt: skip
        self.board.begin_at(self.learner.parameters, 0, 0)
        self._pace = Pace.of(workload, arrangement)
        self._rng = np.random.default_rng([seed, TRAINING])
        self._learning = self._make_learning()
        self.losses = {}

    def _make_learning(self) -> Learning:
        batches: Batches
        if self._slots is None:
            batches = OwnBatches(self.buffer, self.workload, self._rng, self._transport, self.board, self.arrangement)
        else:
            batches = SentBatches(self._slots, self.board, 0)
        self._sync = syncs.make(self.arrangement, self.learner, self.board, 0, self._common)
        return Learning(self.workload, batches, self.board, self._pace, self._sync)

    def begin(self) -> None:
        """Start the other processes; ``advance`` does so too."""
        if self._is_begun:
            return
        self._pin()
        others = [self.learner.implementation] * (self.arrangement.learners > 1 and self.device == "cpu")
        for name in {self.policy_name, *others}:  # else every child would compile the same, all at once
            learners.prepare(self.workload, name)
        self._begin_prefetcher()
        for number in self._rows["learner"][1:]:
            assert self._common is not None  # there is more than one learner
            start = replace(self._start(number, number), threads=self.arrangement.threads)
            extra = Extra(start.extra, self._common.memory_handle())
            self._children.begin("learner", learn, replace(start, extra=extra))
        self.begin_actors()

    def cpu_seconds(self) -> float:
        """CPU time of all processes since each was started; take differences."""
        return super().cpu_seconds() + sum(map(seconds_of, self.learner.pids))

    def report(self) -> dict[str, Any]:
        """Counts and shares of the run since it was begun.

        ``steps``, ``updates``; ``lead`` and ``lag``, the most environment steps ahead of the ratio and behind it;
        ``stale_weights`` and ``stale_batches``, gradient steps by which actors' weights and learners' batches were
        behind, and ``stale_gradients``, those of other learners that ended during a step, {mean, most}; by process
        ``waited`` (share of the seconds), ``turns`` (of actors turns, of learners gradient steps, of keepers batches)
        and ``cores``; ``busy_seconds`` of a turn by kind of process, and ``restarts``. Of two units also
        ``drawn_again``, records that were overwritten before they were copied, for which others were drawn.
        """
        actors, learners = (list(self._rows[kind]) for kind in ("actor", "learner"))
        return super().report() | {
            **({"drawn_again": int(self._slots.ever_lost.sum())} if self._slots and self._slots.has_units else {}),
            "lead": int(np.max(self.board.rows[actors, Row.LEAD], initial=0)),
            "lag": int(np.max(self.board.rows[learners, Row.LEAD], initial=0)),
            "stale_weights": measure_lag(self.board, actors),
            "stale_batches": measure_lag(self.board, learners),
            "stale_gradients": self._common.overlapping_steps(self.board) if self._common else {"mean": 0.0, "most": 0},
        }

    def done(self, end: int) -> bool:
        """Whether environment step ``end`` is reached, no actor is about to take one, and no gradient step is due."""
        steps = self.step
        is_all = steps >= end and self.board.value(Counter.CLAIMED_STEPS) == steps
        return is_all and (self._pace.is_free or self.updates >= self._pace.updates_at(steps))

    def advance(self) -> tuple[Episode, ...]:
        """Take a gradient step, or wait for one for 20 ms; returns the episodes that ended meanwhile.

        TrainingError when training has diverged, or a process failed.
        """
        self.begin()
        try:
            self._learning.advance()
            self.losses = self._learning.losses
        except ValueError as error:
            raise TrainingError(f"after {self.step:,} steps and {self.updates:,} gradient steps: {error}") from None
        self._children.watch()
        return self.ended()

    def close(self) -> None:
        """End the other processes, and let go of the replay."""
        self.end()
        self.learner.close()
        super().close()

    def state_dict(self) -> dict[str, Any]:
        """Learner, records, counters and generator; taken while the others rest. Actors begin new episodes from it."""
        with self.paused():
            self._sync.settle()
            own = self._common.state_dict() if self._common else {}
            return ({"learners": own, "kept": self._common.kept.copy()} if self._common and own else {}) | {
                "learner": self.learner.state_dict(),
                "buffer": self.buffer.state_dict(),
                "rng": self._rng.bit_generator.state,
                "step": self.step,
                "updates": self.updates,
                "epoch": self._epoch,
                "restarts": self.restarts,
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a loop of the same identity, before any process is begun."""
        self.learner.load_state_dict(state["learner"])
        if self._common:
            self._common.load_state_dict(state.get("learners", {}))
            self._common.kept[:] = state.get("kept", 0)
        self.buffer.load_state_dict(state["buffer"])
        self._rng.bit_generator.state = state["rng"]
        kept = int(self._common.kept[0]) if self._common else 0
        self.board.begin_at(self.learner.weights(), int(state["step"]), int(state["updates"]), kept)
        self._epoch = int(state["epoch"]) + 1
        self._learning = self._make_learning()  # by the schedule, the period and the weights of the state
