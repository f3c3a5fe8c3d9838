"""torch's cumsum and searchsorted on a GPU instead of a tree: many write it first, and some find it faster."""

from typing import Any

import numpy as np

from ..cases import Leniency
from . import base


class Tree(base.Tree):
    """An array of priorities; sampling computes its prefix sums in float64 and searches them."""

    package = "torch"
    rule = "smallest i with p_0 + .. + p_i > mass"
    dtypes = ("float32",)
    limits = ("every sample sums all N leaves", "of equal indices in a batch any may win")
    fanout = 1
    leniency = Leniency(any_duplicate_wins=True)
    device = "cuda"
    needs_install = False

    def _allocate(self) -> None:
        import torch  # noqa: PLC0415  # heavy, and only here

        if not torch.cuda.is_available():
            raise RuntimeError("torch_cumsum needs a CUDA device that torch sees")
        self._torch = torch
        self._leaves = torch.zeros(self.slots, dtype=torch.float32, device="cuda")

    def place(self, array: np.ndarray[Any, Any]) -> Any:
        return self._torch.as_tensor(array, device="cuda")

    def update(self, indices: Any, priorities: Any) -> None:
        self._leaves[indices] = priorities.to(self._torch.float32)

    def get(self, indices: Any) -> Any:
        return self._leaves[indices]

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        ends = self._leaves.cumsum(0, dtype=self._torch.float64)
        indices = self._torch.searchsorted(ends, uniforms * ends[-1], right=True).clamp_(max=self.slots - 1)
        return indices, self._leaves[indices]

    def prefix_sum_index(self, mass: Any) -> Any:
        ends = self._leaves.cumsum(0, dtype=self._torch.float64)
        return self._torch.searchsorted(ends, mass, right=True).clamp_(max=self.slots - 1)

    def total(self) -> float:
        return float(self._leaves.sum(dtype=self._torch.float64))

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()
