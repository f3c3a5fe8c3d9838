"""Workload files, learners, actors and the loops of every arrangement: the primitives of a training system."""

from .errors import TrainingError, WorkloadError
from .settings import load, load_timed, names, parse, path_of, timed_names
from .workload import Workload, identity

__all__ = [
    "TrainingError",
    "Workload",
    "WorkloadError",
    "identity",
    "load",
    "load_timed",
    "names",
    "parse",
    "path_of",
    "timed_names",
]
