"""Learning's part of a serial training step on any tree, with the seconds that are spent in the tree's own calls.

It inserts the records collected since the last gradient step, samples, gathers, weighs, takes a gradient step and
updates the priorities. No environment is needed here, so it also runs in other libraries' environments; an actor's step
is timed apart.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

import impls
from impls.replay import PrioritizedBuffer, Replay
from impls.training.loop import SerialLoop

from .cells import REFERENCE
from .parts import World


class TimedTree:
    """A tree of ours or of another library under the contract's names; ``seconds`` were spent in its calls.

    Batches are converted for the library outside of the clock, as in the cells of ``cases``.
    """

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self.seconds = 0.0
        self.capacity = tree.capacity
        self.dtype = tree.dtype
        self.smallest_priority = getattr(tree, "smallest_priority", 1e-30)
        self.largest_priority = getattr(tree, "largest_priority", 1e30)
        self._place = getattr(tree, "place", np.asarray)

    def update(self, indices: Any, priorities: Any) -> None:
        """Set the priorities ``[B]`` of leaves ``[B]``."""
        indices, priorities = self._place(indices), self._place(np.asarray(priorities, np.float64))
        begin = time.perf_counter()
        self._tree.update(indices, priorities)
        self.seconds += time.perf_counter() - begin

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        """Sample leaves ``[B]`` and their priorities ``[B]`` by uniforms ``[B]``."""
        uniforms = self._place(uniforms)
        begin = time.perf_counter()
        leaves, priorities = self._tree.sample(uniforms)
        self.seconds += time.perf_counter() - begin
        return np.clip(impls.to_numpy(leaves), 0, self.capacity - 1), np.maximum(impls.to_numpy(priorities), 1e-30)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Fill the tree, outside of the clock."""
        self._tree.load_state_dict(state)


class Learning:
    """A full buffer and a learner; ``call`` is a gradient step with the insertions that come between two steps."""

    def __init__(self, world: World, tree: Any) -> None:
        workload, replay = world.workload, world.workload.replay
        self.tree = TimedTree(tree)
        self._buffer = PrioritizedBuffer(self.tree, world.layout, alpha=replay.alpha, epsilon=replay.epsilon)
        fill(self._buffer, world)
        self._learner = world.learner()
        self._rng = world.rng
        self._batch = workload.learner.batch
        self._beta = replay.beta
        self._interval = workload.learner.update_interval
        self._size = workload.actors.local_storage
        self._due = 0
        self._records = world.records(self._size)
        is_given = replay.initial_priority == "td_error"
        self._errors = world.rng.random(self._size).astype(np.float32) if is_given else None

    def call(self, turn: int) -> None:
        """Insert the due records, then take one gradient step."""
        self._due += self._interval
        # Invariant: ``_due`` is the number of records collected and not yet inserted.
        while self._due >= self._size:
            self._buffer.insert(self._records, self._errors)
            self._due -= self._size
        batch = self._buffer.sample(self._batch, self._beta, self._rng)
        result = self._learner.step(batch.rows, batch.weights)
        self._buffer.update_priorities(batch.sequence, result.priorities)


class Loop:
    """The serial loop as it trains, from a full buffer on; ``call`` takes the environment steps of one gradient step.

    The sum of a step's parts is compared with it. ``learner``, ``policy``: their implementations.
    """

    def __init__(self, world: World, contestant: str, learner: str = REFERENCE, policy: str = REFERENCE) -> None:
        workload = world.workload
        self._calls = 0
        self._loop = SerialLoop(workload, contestant=contestant, learner=learner, policy=policy)
        fill(self._loop.buffer, world)
        self._loop.step = max(workload.learner.learning_starts, workload.exploration.random_steps)

    def call(self, turn: int) -> None:
        """Advance up to the next gradient step; of several that a turn brings, the next calls have the rest."""
        self._calls += 1
        while self._loop.updates < self._calls:
            self._loop.advance()


def fill(buffer: PrioritizedBuffer | Replay, world: World) -> None:
    """Fill a buffer with random records. MemoryError if they are more than storage may take."""
    buffer.load_state_dict(full(world))


def full(world: World) -> dict[str, Any]:
    """Make the state of a full buffer of random records. MemoryError if they are more than storage may take."""
    capacity = world.workload.replay.capacity
    size = capacity * world.layout.record_bytes
    if size > world.storage_bytes:
        raise MemoryError(f"the buffer takes {size >> 20:,} MiB, here are {world.storage_bytes >> 20:,}")
    filled = {"arrays": world.records(capacity), "leaves": world.rng.random(capacity) + 1e-3, "largest": 1.0}
    return {**filled, "drawable": np.ones(capacity, np.bool_), "written": capacity}
