"""Our trees inside other libraries (``impls.plugins``), timed against those libraries' own replay.

Here is what is timed: a step of a host's buffer, and of its training, on its own replay and on ours. ``worker`` is the
process of a host's environment, in which both take turns; ``command`` asks it, and says what the records say.
"""

from collections.abc import Iterator, Sequence

from impls import training

from ...libraries.base import OURS, hosts
from ..profile.cells import Cell

BUFFER = "buffer"
TWIN = "again"  # a second one of the first kind, for the noise floor
STEP, TREE = "step", "tree"  # seconds of a step, and of the tree's calls in it
TASKS = {
    BUFFER: "a row of Hopper added, B = 256 sampled, their priorities updated; the buffer is full",
    "cartpole_dqn": "a whole training step of DQN on CartPole, B = 64",
    "pendulum_sac": "a whole training step of SAC on the pendulum, B = 128",
    "hopper_sac": "a whole training step of SAC on Hopper, B = 256",
}


def fanout_of(kind: str) -> int:
    """Return the children of a node of a kind's tree."""
    return 16 if kind.startswith(OURS) else 2


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
                    Cell(name, op, {"task": task, "kind": kind}, drawn, capacity=rows, fanout=fanout_of(kind))
                    for kind in host.kinds
                    for op in (STEP, TREE)
                    if op == STEP or kind not in host.uniform
                ]
