"""Whole training loops, ours and other libraries': one workload, one core, one gradient step an environment step.

The registry is the folder: loop ``x`` is the one public :class:`~benchmarks.loops.trainer.Trainer` of
``x_trainer.py``.
"""

import dataclasses
from functools import cache

from impls import training
from impls.training.workload import Workload

from ..libraries import adapters, loading
from .trainer import Trainer

WORKLOAD = "cartpole_dqn"


@cache
def _kinds() -> dict[str, type[Trainer]]:
    return dict(adapters(__name__, "_trainer", Trainer))


def names() -> tuple[str, ...]:
    """Return every loop with an adapter, installed or not: ours first."""
    return tuple(sorted(_kinds(), key=lambda name: (not kind_of(name).is_ours, name)))


def kind_of(name: str) -> type[Trainer]:
    """Return the adapter class of a loop."""
    return _kinds()[name]


@cache
def workload() -> Workload:
    """Return what all loops train.

    Exploration has its last value from the start on, so that none saves forward passes by more random actions.
    """
    shipped = training.load(WORKLOAD)
    steady = dataclasses.replace(shipped.exploration, start=shipped.exploration.end)
    return dataclasses.replace(shipped, exploration=steady)


def identity() -> str:
    """Return the hash of all that the loops' times may depend on."""
    return training.identity(workload())


def make(name: str, environments: int = 1, seed: int = 0) -> Trainer:
    """Make a loop. RuntimeError with one sentence where its library is not here or cannot be loaded."""
    kind = kind_of(name)
    with loading(name, "" if kind.is_ours else "; try: make peers"):
        return kind(workload(), environments, seed)
