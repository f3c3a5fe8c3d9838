"""The steps that a copy of A3C learns from once, in their order, in place of a replay [Mnih2016]."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..replay import Batch, LocalStorage
from ..replay.batches import not_finite
from .weights import layout_of
from .workload import Workload

FIELDS = ("observation", "action", "reward", "next_observation", "terminated")


class Rollouts:
    """The steps that a copy has taken since its last gradient step, with what a loop asks of a replay.

    In A3C [Mnih2016] each copy learns once from each n steps of its own, in their order, and then forgets them.
    """

    def __init__(self, workload: Workload) -> None:
        self._steps = LocalStorage(layout_of(workload), workload.learner.batch)
        self._over = np.zeros(workload.learner.batch, np.bool_)  # after which of them an episode begins

    @property
    def is_full(self) -> bool:
        """Whether there are n of them, from which a gradient step is due."""
        return self._steps.is_full

    def insert(self, records: Mapping[str, NDArray[Any]], errors: Any = None, drawable: Any = None) -> None:
        """Keep a step, ``[1, ...]`` of each part."""
        self._over[len(self._steps)] = records["terminated"][0]
        self._steps.store(*(records[name][0] for name in FIELDS))

    def cut(self) -> None:
        """Know that the episode of the last step, if there is one, does not go on in the next."""
        self._over[max(0, len(self._steps) - 1)] = True

    def sample(self, batch: int, beta: float, rng: Any = None) -> Batch:
        """All steps, in the order in which they were taken, and ``over``, whether each was its episode's last.

        They are forgotten.
        """
        rows, count = self._steps.transitions(), len(self._steps)
        rows["over"] = self._over[:count].copy()
        self._steps.take()
        return Batch(rows, np.ones(count, np.float32), np.arange(count))

    def update_priorities(self, sequence: Any, errors: NDArray[np.float32]) -> None:
        """Nothing, as no step is sampled twice. ValueError for errors that are not finite."""
        if not np.isfinite(errors).all():
            raise not_finite(errors.astype(np.float64))

    def state_dict(self) -> dict[str, Any]:
        """The steps, as copies."""
        return self._steps.state_dict() | {"over": self._over.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of rollouts of the same workload. ValueError for others."""
        self._steps.load_state_dict(state)
        self._over[:] = state.get("over", state["arrays"]["terminated"])
