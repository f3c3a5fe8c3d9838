"""cpprb's prioritized buffer: binary, C++; its tree cannot be reached alone."""

from typing import Any

import numpy as np

from benchmarks.cases import Leniency

from .peer import Peer


class Cpprb(Peer):
    """``PrioritizedReplayBuffer`` of cpprb with alpha 1, epsilon 0 and rows of one number."""

    package = "cpprb"
    version = "11.0.0"
    rule = "smallest i with p_0 + .. + p_i > mass"
    limits = (
        "takes no prefix values: samples with its own random numbers, inside the clock",
        "a sample also gathers a row and computes weights",
        "the next sample overwrites the indices of the last",
        "priorities cannot be read back",
    )
    leniency = Leniency(own_random_numbers=True, blind=True)

    def _allocate(self) -> None:
        from cpprb import PrioritizedReplayBuffer  # noqa: PLC0415  # optional

        self._tree = PrioritizedReplayBuffer(self.slots, {"row": {}}, alpha=1.0, eps=0.0)
        self._tree.add(row=np.zeros(self.slots), priorities=np.zeros(self.slots))

    def update(self, indices: Any, priorities: Any) -> None:
        self._tree.update_priorities(indices, priorities)

    def get(self, indices: Any) -> Any:
        raise NotImplementedError("cpprb cannot read priorities back")

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        sampled = self._tree.sample(len(uniforms))
        return sampled["indexes"], sampled["weights"]

    def prefix_sum_index(self, mass: Any) -> Any:
        raise NotImplementedError("cpprb takes no prefix values")

    def total(self) -> float:
        raise NotImplementedError("cpprb does not show its root")
