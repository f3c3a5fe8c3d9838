"""Whole training loops, ours and other libraries': DQN or SAC, one core, one gradient step an environment step.

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


def with_sac() -> tuple[str, ...]:
    """Return the other libraries whose SAC has an adapter too, installed or not."""
    return tuple(name for name in names() if kind_of(name).sac_limits is not None)


@cache
def workload(batch: int = 0) -> Workload:
    """Return what all loops train, by batches of ``batch`` records; 0: of as many as it has.

    Exploration has its last value from the start on, so that none saves forward passes by more random actions.
    """
    shipped = training.load(WORKLOAD)
    steady = dataclasses.replace(shipped.exploration, start=shipped.exploration.end)
    learner = dataclasses.replace(shipped.learner, batch=batch or shipped.learner.batch)
    return dataclasses.replace(shipped, exploration=steady, learner=learner)


def make(name: str, environments: int = 1, seed: int = 0, task: Workload | None = None) -> Trainer:
    """Make a loop of the workload, or of another, by SAC where ``with_sac`` has its name.

    RuntimeError with one sentence where its library is not here or cannot be loaded.
    """
    kind = kind_of(name)
    with loading(name, "" if kind.is_ours else "; try: make peers"):
        return kind(task or workload(), environments, seed)
