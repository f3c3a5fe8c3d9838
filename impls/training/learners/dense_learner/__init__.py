"""Dense networks on the CPU: a whole gradient step, or an act, is one compiled call on flat vectors, without torch."""

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...environments import INSTALL
from ...workload import Workload

if TYPE_CHECKING:
    from .learner import DenseLearner


KERNELS = {"dqn": "dqn", "ddpg": "deterministic", "td3": "deterministic", "sac": "sac", "a3c": "a3c"}
"""The module that has the kernels of a family of algorithms."""


def unsuited(workload: Workload, device: str) -> str | None:
    """None, or why this learner cannot learn there."""
    if workload.network.kind != "mlp":
        return f"the learner dense has no {workload.network.kind}s; choose --learner torch"
    if workload.family not in KERNELS:
        return f"the learner dense has no kernels of {workload.algorithm}; choose --learner torch"
    if device != "cpu":
        return f"the learner dense computes on the cpu, not on {device}; choose --learner torch, or leave out --device"
    if find_spec("numba") is None:
        return f"the learner dense needs the package numba, which is not installed; {INSTALL}"
    return None


def make(workload: Workload, *, seed: int, device: str, compiled: bool, share: Any) -> "DenseLearner":
    """A fresh learner; it is always compiled, and always on the CPU."""
    from .learner import DenseLearner  # noqa: PLC0415  # with numba

    kernels = importlib.import_module(f"{__name__}.{KERNELS[workload.family]}")
    return DenseLearner(workload, kernels, seed=seed, share=share)


def use_threads(count: int) -> None:
    """Do nothing: a step takes one thread, which at these sizes more would not help."""
