"""What is timed: a step of a host's buffer, and of its training, on its own replay and on ours."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from impls import training

from .host import OURS, hosts

PRIMITIVE = "plugin"
BUFFER = "buffer"
TWIN = "again"  # a second one of the first kind, for the noise floor
STEP, TREE = "step", "tree"  # seconds of a step, and of the tree's calls in it
TASKS = {
    BUFFER: "a row of Hopper added, B = 256 sampled, their priorities updated; the buffer is full",
    "cartpole_dqn": "a whole training step of DQN on CartPole, B = 64",
    "hopper_sac": "a whole training step of SAC on Hopper, B = 256",
}


@dataclass(frozen=True)
class Cell:
    """A host's step of a task by one kind of replay, under the names of a record."""

    contestant: str  # the host
    task: str
    kind: str
    op: str
    capacity: int
    batch: int

    @property
    def fanout(self) -> int:
        """Children of a node of the tree."""
        return 16 if self.kind.startswith(OURS) else 2

    @property
    def options(self) -> dict[str, Any]:
        """Further fields of its records."""
        return {"task": self.task, "kind": self.kind}


def groups(names: Sequence[str], tasks: Sequence[str], capacity: int, batch: int) -> Iterator[list[Cell]]:
    """Yield the cells that take turns in one process: a host's kinds at one task, steps and trees.

    ``capacity`` and ``batch`` are of the buffer alone; training has those of its workload.
    """
    for name in names:
        host = hosts()[name]
        for task in host.tasks:
            if task in tasks:
                workload = None if task == BUFFER else training.load(task)
                rows = workload.replay.capacity if workload else capacity
                drawn = workload.learner.batch if workload else batch
                yield [
                    Cell(name, task, kind, op, rows, drawn)
                    for kind in host.kinds
                    for op in (STEP, TREE)
                    if op == STEP or kind not in host.uniform
                ]
