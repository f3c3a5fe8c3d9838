"""Model-based policy optimization [Janner2019], the rival of [Zhang2022, 3.1.1]: SAC on branched rollouts of a model.

In an environment step M real states are sampled uniformly. From each the policy acts for k steps as the model says, or
until the model says that the episode ends, and every transition is stored. Then SAC takes G gradient steps, each on a
batch of the model's last records that is sampled uniformly.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...replay import Batch, Layout
from ..model_loop import ModelLoop, Ring


class Loop(ModelLoop):
    """The loop whose rollouts begin in real states of equal chance, since alpha is 0, and last for k steps."""

    @property
    def rollouts(self) -> int:
        """Transitions that the model has made."""
        return self.ring.written

    def _allocate(self, rows: int, layout: Layout) -> None:
        self.ring = Ring(self.workload.model.segments * rows, layout)

    def _roll_out(self) -> dict[str, float]:
        settings = self.workload.model
        states = self.buffer.sample(settings.rollouts, 0.0, self._rng).rows["observation"]
        for _ in range(settings.horizon):
            # Invariant: each of the states was reached by a rollout that has not ended.
            rows = self._take_step(states)
            self.ring.insert(rows)
            states = rows["next_observation"][~rows["terminated"]]
            if not len(states):
                break
        return {}

    def _sample_made(self, batch: int) -> Batch:
        rows = self.ring.sample(batch, self._rng)
        return Batch(rows, np.ones(batch, np.float32), np.zeros(batch, np.int64))

    def state_dict(self) -> dict[str, Any]:
        """All that the next iteration depends on."""
        return super().state_dict() | {"ring": self.ring.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a loop of the same identity."""
        super().load_state_dict(state)
        self.ring.load_state_dict(state["ring"])
