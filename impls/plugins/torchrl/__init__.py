"""Prioritized replay of torchrl on our trees: a sampler for its buffers, and trees in the place of its own.

:class:`FanoutSampler` goes where torchrl's ``PrioritizedSampler`` goes::

    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(N), sampler=FanoutSampler(N, alpha=0.7, beta=0.5),
                                    priority_key="td_error", batch_size=256)

and :func:`install` puts it into ``TensorDictPrioritizedReplayBuffer`` and ``PrioritizedReplayBuffer``, and our trees
into every other prioritized sampler of torchrl's (slices of trajectories). None of it needs torchrl's compiled
extension, which loads on one version of torch only.

Locks are the buffer's: it holds its own round every call of a sampler, prefetching threads included.
"""

from functools import partial
from typing import Any

from ..hosts import require

require("torchrl", "0.14", "0.15")

import torch
from torchrl.data.replay_buffers import samplers
from torchrl.data.replay_buffers.replay_buffers import prioritized, prioritized_tensordict

from .sampler import FanoutSampler
from .trees import MinSegmentTree, SumSegmentTree

__all__ = ["FanoutSampler", "MinSegmentTree", "SumSegmentTree", "install", "uninstall"]

_TREES = tuple(f"{kind}SegmentTree{bits}" for kind in ("Sum", "Min") for bits in ("Fp32", "Fp64"))
_HOST = {
    (module, name): getattr(module, name)
    for module, names in (
        (samplers, _TREES),
        (samplers.prioritized, _TREES),
        (prioritized, ("PrioritizedSampler",)),
        (prioritized_tensordict, ("PrioritizedSampler",)),
    )
    for name in names
}
"""What stands where :func:`install` puts ours; None for each tree where torchrl's extension did not load."""


def install(implementation: str = "numba", fanout: int = 16) -> None:
    """Let samplers and buffers that torchrl makes from here on use our trees, until :func:`uninstall`.

    ``TensorDictPrioritizedReplayBuffer`` and ``PrioritizedReplayBuffer`` get a :class:`FanoutSampler`;
    ``PrioritizedSampler``, ``PrioritizedSliceSampler`` and their subclasses a :class:`SumSegmentTree` and a
    :class:`MinSegmentTree`. Trees on a GPU stay torchrl's. Raises what making a tree raises.
    """
    ours: dict[str, Any] = {
        f"{kind.__name__}{bits}": partial(kind, dtype=dtype, implementation=implementation, fanout=fanout)
        for kind in (SumSegmentTree, MinSegmentTree)
        for bits, dtype in (("Fp32", torch.float32), ("Fp64", torch.float64))
    }
    for tree in ours.values():
        tree(1)
    ours["PrioritizedSampler"] = partial(FanoutSampler, implementation=implementation, fanout=fanout)
    for module, name in _HOST:
        setattr(module, name, ours[name])


def uninstall() -> None:
    """Put torchrl's own trees and samplers back; what was made meanwhile keeps ours."""
    for (module, name), theirs in _HOST.items():
        setattr(module, name, theirs)
