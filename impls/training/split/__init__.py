"""torch's learners of actor-critic algorithms, the policy in a process of its own, as on a device of its own."""

from typing import TYPE_CHECKING, Any

from ..algorithm import ALGORITHMS
from ..learners import torch_learner
from ..workload import Workload

if TYPE_CHECKING:
    from .learner import SplitLearner

use_threads = torch_learner.use_threads  # of each of the two processes


def unsuited(workload: Workload, device: str) -> str | None:
    """None, or why no learner can be split there."""
    if not workload.traits.has_policy:
        named = ", ".join(name for name, row in ALGORITHMS.items() if row.has_policy)
        return f"--split parts policy and critic of {named}; {workload.algorithm} has one network: leave it out"
    if device != "cpu":
        return f"--split has policy and critic in two processes of the cpu, not on {device}; leave out one of them"
    return torch_learner.unsuited(workload, device)


def make(workload: Workload, *, share: Any = None, compiled: bool = False, **options: Any) -> "SplitLearner":
    """A fresh learner of the workload's algorithm, which is never compiled and shares with no other."""
    assert share is None
    assert not compiled
    kind = torch_learner.kind_of(workload)  # first, for it lets torch compute by the threads that are wanted
    from .learner import SplitLearner  # noqa: PLC0415  # with torch

    made: SplitLearner = type(f"Split{kind.__name__}", (SplitLearner, kind), {})(workload, **options)
    return made
