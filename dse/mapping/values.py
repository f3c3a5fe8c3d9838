"""Values of a question that stand in its workload: what they are called, and the workload that has them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from impls.training import Workload
from impls.training.reading import faults_of
from impls.training.workload import MOST

from ..solver.problem import ProblemError

NUMBERS = {
    "batch": ("learner", "batch"),
    "update_interval": ("learner", "update_interval"),
    "capacity": ("replay", "capacity"),
    "presampled": ("replay", "presampled"),
    "actor_count": ("actors", "count"),
    "local_storage": ("actors", "local_storage"),
    "sync_interval": ("actors", "sync_interval"),
}
"""Keys of --fix that stand in the workload: (table, key)."""


def with_values(workload: Workload, fix: Mapping[str, Any]) -> Workload:
    """The workload with what is fixed in it. ProblemError for one that no file could state."""
    for key, (table, name) in NUMBERS.items():
        if key in fix:
            part = replace(getattr(workload, table), **{name: fix[key]})
            workload = replace(workload, **{table: part})
    late = replace(workload.learner, learning_starts=MOST)  # no rate depends on when learning starts
    if fix.keys() & NUMBERS.keys() and (faults := faults_of(replace(workload, learner=late))):
        raise ProblemError(f"{workload.name} as asked for: {'; '.join(faults)}")
    return workload
