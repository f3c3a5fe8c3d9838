"""Whole training loops, ours and other libraries': DQN or SAC, one core, one gradient step an environment step."""

import dataclasses
from functools import cache

from impls import training
from impls.training.workload import Workload

from ...libraries import base
from ...libraries.base import Loop, roles

WORKLOAD = "cartpole_dqn"


def names() -> tuple[str, ...]:
    """Return every loop that has DQN, installed or not: ours first."""
    kinds = {name: kind for name, kind in roles(Loop).items() if kind.has_dqn}
    return tuple(sorted(kinds, key=lambda name: (not kinds[name].is_ours, name)))


def with_sac() -> tuple[str, ...]:
    """Return the other libraries whose SAC is trained too, installed or not."""
    return tuple(name for name, kind in roles(Loop).items() if kind.sac_limits is not None)


@cache
def workload(batch: int = 0) -> Workload:
    """Return what all loops train, by batches of ``batch`` records; 0: of as many as it has.

    Exploration has its last value from the start on, so that none saves forward passes by more random actions.
    """
    shipped = training.load(WORKLOAD)
    steady = dataclasses.replace(shipped.exploration, start=shipped.exploration.end)
    learner = dataclasses.replace(shipped.learner, batch=batch or shipped.learner.batch)
    return dataclasses.replace(shipped, exploration=steady, learner=learner)


def make(name: str, environments: int = 1, seed: int = 0, task: Workload | None = None) -> Loop:
    """Make a loop of the workload, or of another, by SAC where ``with_sac`` has its name.

    RuntimeError with one sentence where its library is not here or cannot be loaded.
    """
    return base.make(Loop, name, task or workload(), environments, seed)
