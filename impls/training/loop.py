"""The serial training loop [Zhang2021, Alg. 1], one iteration at a time."""

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from .. import make
from ..replay import Batch, PrioritizedBuffer
from . import learners
from .actor import TRAINING, Episode, explore_at
from .errors import TrainingError
from .learner import Learner
from .sizes import layout_of
from .vectors import actor_of
from .workload import Workload


class SerialLoop:
    """A workload's actors, learner and buffer, all in the thread that calls.

    ``contestant`` names the tree's implementation; ``learner`` and ``policy`` those of the learner and of the learner
    that actors act by, by default the fastest suited to the workload. ``device`` is the learner's; ``seed`` decides
    everything on one thread of a CPU. Raises TrainingError where tree, learner, environments or memory cannot be
    had.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        contestant: str = "numba",
        learner: str | None = None,
        policy: str | None = None,
        seed: int = 0,
        device: str = "cpu",
        compiled: bool = False,
    ) -> None:
        replay = workload.replay
        self.workload, self.contestant, self.seed = workload, contestant, seed
        self.device, self.compiled = device, compiled
        layout = layout_of(workload)
        try:
            tree = make(contestant, replay.capacity, fanout=replay.fanout)
            self.buffer = PrioritizedBuffer(tree, layout, alpha=replay.alpha, epsilon=replay.epsilon)
        except RuntimeError as error:
            raise TrainingError(str(error)) from None
        except MemoryError:
            needed = replay.capacity * layout.record_bytes / 1e9
            raise TrainingError(f"{replay.capacity:,} records take {needed:,.1f} GB, which are not to be had") from None
        self.learner = learners.make(workload, learner, seed=seed, device=device, compiled=compiled)
        self._fetches = False
        self.policy = self._acting(policy)
        self._rng = np.random.default_rng([seed, TRAINING])
        self._actors = [actor_of(workload, number, seed) for number in range(workload.actors.count)]
        # Invariant: from the first gradient step on, D batches lie ready between iterations, the oldest first.
        self._sampled: deque[Batch] = deque()
        self.step = 0
        self.turns = 0
        self.updates = 0
        self.losses: dict[str, float] = {}

    def advance(self) -> tuple[Episode, ...]:
        """Run one iteration: a turn of the next actor, and the gradient steps that are due then.

        Returns the episodes that ended with it. TrainingError when training has diverged.
        """
        before, turn = self.step, self.turns % len(self._actors)
        if self._fetches and turn == 0 and self._is_sync_due():
            self.policy.load_weights(self.learner.weights())
        at_random = before < self.workload.exploration.random_steps
        steps, inserted, episodes = self._actors[turn].step(self.policy, explore_at(self.workload, before), at_random)
        try:
            if inserted:
                self.buffer.insert(*inserted)
            self.step, self.turns = before + steps, self.turns + 1
            for _ in range(self._updates_due(before)):
                self._update()
        except ValueError as error:
            raise TrainingError(f"after {self.step:,} steps and {self.updates:,} gradient steps: {error}") from None
        return episodes

    def _updates_due(self, before: int) -> int:
        """Gradient steps due since step ``before``: one after every update_interval-th step from learning_starts on."""
        interval, starts = self.workload.learner.update_interval, self.workload.learner.learning_starts
        return max(0, self.step // interval - max(before, starts - 1) // interval)

    def beta(self) -> float:
        """The exponent of the importance weights at this step."""
        replay = self.workload.replay
        done = min(1.0, self.step / self.workload.steps)
        return replay.beta + ((replay.beta_end or replay.beta) - replay.beta) * done

    def close(self) -> None:
        """Close the actors' environments."""
        for actor in self._actors:
            actor.close()

    def _acting(self, name: str | None) -> Learner:
        """The learner that actors act by: where they fetch weights at each step, one that shares their memory."""
        own = self.learner.implementation
        if name is None:
            name = own if self.compiled else learners.default(self.workload, self.device)
        is_latest = self.workload.actors.sync_interval == 1
        if is_latest and name == own:
            return self.learner
        self._fetches = not is_latest or self.device != "cpu"
        if not self._fetches:
            return learners.make(self.workload, name, seed=self.seed, share=self.learner)
        alike: dict[str, Any] = {"device": self.device, "compiled": self.compiled} if name == own else {}
        return learners.make(self.workload, name, seed=self.seed, **alike)

    def _is_sync_due(self) -> bool:
        return (self.turns // len(self._actors)) % self.workload.actors.sync_interval == 0

    def _update(self) -> None:
        """Take a gradient step on the oldest presampled batch, with priorities as they were when it was sampled."""
        while len(self._sampled) <= self.workload.replay.presampled:
            self._sampled.append(self.buffer.sample(self.workload.learner.batch, self.beta(), self._rng))
        batch = self._sampled.popleft()
        stepped = self.learner.step(batch.rows, batch.weights)
        self.buffer.update_priorities(batch.sequence, stepped.priorities)
        self.updates, self.losses = self.updates + 1, stepped.losses

    def identity(self) -> dict[str, Any]:
        """The settings that a run must share with a state in order to resume from it."""
        return {"workload": asdict(self.workload), "contestant": self.contestant, "seed": self.seed}

    def state_dict(self) -> dict[str, Any]:
        """All that the next iteration depends on: every generator, network, optimizer, record and priority."""
        return {
            "learner": self.learner.state_dict(),
            "policy": self.policy.state_dict() if self._fetches else None,
            "buffer": self.buffer.state_dict(),
            "rng": self._rng.bit_generator.state,
            "actors": [actor.state_dict() for actor in self._actors],
            "drawn": [(batch.rows, batch.weights, batch.sequence) for batch in self._sampled],
            "step": self.step,
            "turns": self.turns,
            "updates": self.updates,
            "losses": self.losses,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a loop of the same identity."""
        self.learner.load_state_dict(state["learner"])
        if self._fetches:
            self.policy.load_state_dict(state["policy"] or state["learner"])
        self.buffer.load_state_dict(state["buffer"])
        self._rng.bit_generator.state = state["rng"]
        for actor, saved in zip(self._actors, state["actors"], strict=True):
            actor.load_state_dict(saved)
        self._sampled = deque(Batch(*parts) for parts in state["drawn"])
        self.step, self.turns, self.updates = int(state["step"]), int(state["turns"]), int(state["updates"])
        self.losses = dict(state["losses"])
