"""What is timed: a workload in an arrangement of processes, and the names of its records."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from impls.training import Workload
from impls.training.arrangement import Arrangement

from ..profile.cells import Cell

PRIMITIVE = "training arrangement"
RATE, BOUND, RATIO = "rate", "bound", "ratio"
PARTS = {"actor": "actor turn", "learner": "learner step", "keeper": "keeper step"}
"""The operations of a record by kind of process: seconds of its own work a turn, a gradient step or a batch."""


@dataclass(frozen=True)
class Setting:
    """A workload, which has A, E, D, B and u, in the arrangement of that ``name`` and by these implementations."""

    workload: Workload
    name: str
    learner: str
    policy: str
    ratio: str = "kept"

    @classmethod
    def of(cls, workload: Workload, shape: Mapping[str, Any]) -> "Setting":
        """Return the workload in the shape of a candidate: its arrangement, numbers and implementations by name."""
        changes: dict[str, dict[str, Any]] = {
            "learner": {name: shape[name] for name in ("batch", "update_interval")},
            "actors": {"count": shape["actors"], "environments": shape["environments"]},
            "replay": {"presampled": shape["presampled"]},
        }
        parts = {key: dataclasses.replace(getattr(workload, key), **values) for key, values in changes.items()}
        shaped = dataclasses.replace(workload, **parts)
        return cls(shaped, shape["arrangement"], shape["learner"], shape["policy"], shape.get("ratio", "kept"))

    @property
    def arrangement(self) -> Arrangement:
        """The arrangement as it runs. TrainingError for one that there is not."""
        return Arrangement(name=self.name, ratio=self.ratio)

    def cell(self, op: str = RATE) -> Cell:
        """Return the cell of an operation, under the names that records of arrangements have."""
        workload, arrangement = self.workload, self.arrangement
        options = {
            "workload": workload.name,
            "arrangement": self.name,
            "actors": workload.actors.count,
            "environments": workload.actors.environments,
            "presampled": workload.replay.presampled,
            "update_interval": workload.learner.update_interval,
            "batch": workload.learner.batch,
            "learner": self.learner,
            "policy": self.policy,
            **{name: getattr(arrangement, name) for name in ("learners", "strategy", "sync", "transport", "weights")},
            "ratio": self.ratio,
        }
        shape = {"threads": arrangement.threads, "capacity": workload.replay.capacity, "fanout": workload.replay.fanout}
        return Cell("loop", op, options, workload.learner.batch, **shape)
