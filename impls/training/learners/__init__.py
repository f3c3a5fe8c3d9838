"""Learners by the name of their implementation: ``x`` is the module or package ``x_learner`` of this folder.

Each has ``make(workload, *, seed, device, compiled, share)`` and ``unsuited(workload, device)``, None or the reason
why it cannot learn that there, and imports what it needs only when it makes a learner.
"""

import importlib
import math
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import cast

import numpy as np

from ...checks import near
from ..errors import TrainingError
from ..learner import Learner
from ..weights import shapes
from ..workload import Workload

REFERENCE = "torch"
"""The implementation of any network on any device, which the others are held to."""
PREFERRED = "dense"
"""The default where it is suited."""
SPLIT = "split"
"""The reference by two processes, which is no implementation of its own: ``--split`` alone asks for it."""


def names() -> tuple[str, ...]:
    """Every implementation in this folder, sorted."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return tuple(sorted(module.name.removesuffix("_learner") for module in modules if module.name.endswith("_learner")))


def unsuited(name: str, workload: Workload, device: str = "cpu") -> str | None:
    """None if the implementation can learn the workload on the device, else one sentence that says why not.

    TrainingError for a name that is none.
    """
    return cast("str | None", _module(name).unsuited(workload, device))


def default(workload: Workload, device: str = "cpu") -> str:
    """The name of the implementation that is taken where none is named."""
    return REFERENCE if unsuited(PREFERRED, workload, device) else PREFERRED


def make(
    workload: Workload,
    name: str | None = None,
    *,
    seed: int = 0,
    device: str = "cpu",
    compiled: bool = False,
    share: Learner | None = None,
) -> Learner:
    """A fresh learner by implementation ``name``, by default the fastest one suited; its weights by ``seed``.

    ``device`` "cpu" or "cuda"; ``compiled`` passes torch's networks through torch.compile. With ``share`` it acts by
    the weights of that learner, whose memory it shares, both on the CPU. TrainingError for what it is not suited to.
    """
    if name is None:
        name = REFERENCE if compiled else default(workload, device)
    if reason := unsuited(name, workload, device):
        raise TrainingError(reason)
    if compiled and name == SPLIT:
        raise TrainingError("--compile is for networks of one process; leave it out, or --split")
    if compiled and name != REFERENCE:
        raise TrainingError(f"--compile is for torch's networks; the learner {name} is compiled as it is: leave it out")
    try:
        made = _module(name).make(workload, seed=seed, device=device, compiled=compiled, share=share)
    except MemoryError:
        weights = sum(math.prod(shape) for network in shapes(workload).values() for shape in network)
        raise TrainingError(
            f"networks of {weights:,} weights take more memory than there is; make hidden smaller"
        ) from None
    return cast(Learner, made)


def prepare(workload: Workload, name: str) -> None:
    """Compile what learners and actors of an implementation call, so that processes to come find it in the cache."""
    learner, shape, size = make(workload, name), workload.observation.stacked, workload.action_size
    seen = np.zeros((1, *shape), workload.observation.dtype)
    action = np.zeros(1, np.int64) if workload.has_choices else np.zeros((1, size), np.float32)
    one = {"observation": seen, "action": action, "reward": np.zeros(1, np.float32), "next_observation": seen}
    learner.act(seen, 0.0, np.random.default_rng(0))
    learner.priorities(one | {"terminated": np.zeros(1, np.bool_)})
    learner.move_targets(0.0)


def use_threads(count: int) -> None:
    """Let learners of every implementation, in this process, multiply matrices by a given number of threads."""
    for name in names():
        _module(name).use_threads(count)


def threads() -> int:
    """Threads by which those learners multiply matrices."""
    return cast(int, _module(REFERENCE).threads())


def _module(name: str) -> ModuleType:
    if name == SPLIT:
        return importlib.import_module(f"{__package__.rpartition('.')[0]}.{SPLIT}")
    if name not in names():
        raise TrainingError(f"there is no learner {name!r}; there are {', '.join(names())}{near(name, names())}")
    return importlib.import_module(f"{__name__}.{name}_learner")
