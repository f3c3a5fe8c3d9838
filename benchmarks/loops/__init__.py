"""Whole training loops, ours beside other libraries': one workload, one core, one gradient step an environment step.

The registry is the folder: loop ``x`` is the one public :class:`~benchmarks.loops.trainer.Trainer` of
``x_trainer.py``.
"""

import dataclasses
import importlib
import pkgutil
from functools import cache
from pathlib import Path

from impls import training
from impls.training.workload import Workload

from .trainer import Trainer

WORKLOAD = "cartpole_dqn"


@cache
def _kinds() -> dict[str, type[Trainer]]:
    kinds = {}
    for found in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if found.name.endswith("_trainer"):
            module = importlib.import_module(f"{__name__}.{found.name}")
            (kinds[found.name.removesuffix("_trainer")],) = (
                member
                for member in vars(module).values()
                if isinstance(member, type) and issubclass(member, Trainer) and member.__module__ == module.__name__
            )
    return kinds


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
    try:
        return kind(workload(), environments, seed)
    except ModuleNotFoundError as error:
        remedy = "" if kind.is_ours else "; try: make peers"
        raise RuntimeError(f"{name} needs the module {error.name!r}, which is not installed{remedy}") from error
    except (ImportError, OSError) as error:
        raise RuntimeError(f"{name} cannot be loaded: {str(error).splitlines()[0]}") from error
