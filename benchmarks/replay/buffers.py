"""The interface under which whole buffers are timed, and the check that each must pass before.

The registry is the folder: every subclass of :class:`Buffer` with a ``name``, in the files ``*_buffer.py``.
"""

from abc import ABC, abstractmethod
from functools import cache
from typing import Any, ClassVar

import numpy as np

from ..libraries import adapters, loading
from . import rows

ALPHA, BETA, EPSILON = 0.6, 0.4, 1e-6
FILL_ROWS, FILL_ROUNDS, FILL_BATCH = 10_000, 2_000, 256
CHECKED_ROWS, CHECK_ROUNDS, CHECK_BATCH = 512, 60, 256
MOSTLY = 0.9  # of a batch, where half of the records have nearly all of the priority


class Buffer(ABC):
    """A prioritized buffer of ``rows.LAYOUT`` under common names, each operation by the library's fastest call.

    Alpha, beta and epsilon are this module's where the library takes them. Records and errors arrive as ``place`` and
    ``place_errors`` return them, made outside of the clock. A library is imported when its buffer is made.
    """

    name: ClassVar[str]
    package: ClassVar[str] = "numba"  # the distribution whose version a record names
    needs: ClassVar[tuple[str, ...]] = ()  # distributions it needs besides those of the library's tree
    limits: ClassVar[tuple[str, ...]] = ()  # what it cannot do, and what its time includes besides
    fanout: ClassVar[int] = 2
    dtype: ClassVar[str] = "float64"  # of its priorities
    retrieves: ClassVar[bool] = False  # whether its priorities can be asked for
    clustered: ClassVar[bool] = False  # whether it lies on the nodes of a Ray cluster
    inherited: ClassVar[bool] = False  # whether only a process that is started with a shared one can attach to it

    def __init__(self, capacity: int, seed: int = 0, **options: Any) -> None:
        self.capacity = capacity
        self._allocate(seed, **options)

    @abstractmethod
    def _allocate(self, seed: int, **options: Any) -> None:
        """Import the library and make its empty buffer of ``capacity`` records."""

    @abstractmethod
    def insert(self, placed: Any) -> None:
        """Insert records that ``place`` has converted."""

    @abstractmethod
    def sample(self, batch: int) -> Any:
        """Sample B = ``batch`` records with their importance weights."""

    @abstractmethod
    def update(self, sampled: Any, errors: Any) -> None:
        """Set the priorities of sampled records from |TD errors| ``[B]``."""

    def retrieve(self, sampled: Any) -> Any:
        """Return the priorities ``[B]`` that sampled records have by now, 0 of those overwritten since."""
        raise NotImplementedError(self.name)

    @abstractmethod
    def records(self, sampled: Any) -> rows.Rows:
        """Return the sampled records ``[B, ...]`` of each field, under our names."""

    @abstractmethod
    def weights(self, sampled: Any) -> Any:
        """Return the importance weights ``[B]`` of a sample, as NumPy has them."""

    def keep(self, sampled: Any) -> Any:
        """Return what ``update`` takes of a sample, valid after other samples."""
        return sampled

    def place(self, records: rows.Rows) -> Any:
        """Convert records into what ``insert`` takes."""
        return records

    def place_errors(self, errors: Any) -> Any:
        """Convert |TD errors| into what ``update`` takes."""
        return errors

    def wait(self) -> None:
        """Wait until work that calls have only begun is done; nothing for most."""
        return

    def fill(self) -> None:
        """Insert as many records as there is room for."""
        step = min(FILL_ROWS, part_of(self.capacity))
        for first in range(0, self.capacity, step):
            self.insert(self.place(rows.made(np.arange(first, min(first + step, self.capacity)))))


def part_of(capacity: int) -> int:
    """Return how many records any buffer of this capacity takes at once, even in one of several banks."""
    return max(1, capacity // 4)


@cache
def _kinds() -> dict[str, type[Buffer]]:
    return {kind.name: kind for _, kind in adapters(__package__, "_buffer", Buffer)}


def names() -> tuple[str, ...]:
    """Return the name of every buffer, installed or not."""
    return tuple(sorted(_kinds()))


def kind_of(name: str) -> type[Buffer]:
    """Return the class of a buffer, or the base of all for another part of a training step, which runs as ours do."""
    return _kinds().get(name, Buffer)


def make(name: str, capacity: int, seed: int = 0, **options: Any) -> Buffer:
    """Make an empty buffer. RuntimeError with one sentence where its library is not here or cannot be loaded."""
    with loading(name):
        return kind_of(name)(capacity, seed, **options)


def filled(name: str, capacity: int, seed: int = 0, **options: Any) -> Buffer:
    """Make a full buffer whose priorities differ."""
    buffer = make(name, capacity, seed, **options)
    buffer.fill()
    spread(buffer, seed)
    return buffer


def spread(buffer: Buffer, seed: int = 0, rounds: int = FILL_ROUNDS) -> None:
    """Give sampled records new priorities, round by round."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        sampled = buffer.sample(FILL_BATCH)
        buffer.update(sampled, buffer.place_errors(rng.random(FILL_BATCH).astype(np.float32)))
    buffer.wait()


def fault(name: str, seed: int = 0, **options: Any) -> str | None:
    """Return what is wrong with a small buffer of a kind, None if nothing is found; see ``fault_of``."""
    return fault_of(make(name, CHECKED_ROWS, seed, **options))


def fault_of(buffer: Buffer) -> str | None:
    """Return what is wrong with an empty buffer of 512 records: its records, its weights, its priorities.

    Every other record is given nearly all of the priority.
    """
    buffer.fill()
    # Invariant: records sampled so far have a priority near 0 where their number is odd, and 1 where it is even.
    for _ in range(CHECK_ROUNDS):
        sampled = buffer.sample(CHECK_BATCH)
        found = buffer.records(sampled)
        if torn := rows.wrong(found):
            return f"{torn} of {CHECK_BATCH} sampled records are not as they were inserted"
        errors = np.where(found["reward"].reshape(-1) % 2 == 1, 0, 1).astype(np.float32)
        buffer.update(sampled, buffer.place_errors(errors))
    sampled = buffer.sample(CHECK_BATCH)
    even = float((buffer.records(sampled)["reward"] % 2 == 0).mean())
    if even < MOSTLY:
        return f"{even:.0%} of a batch have the priority that nearly all should have"
    weights = np.asarray(buffer.weights(sampled), np.float64)
    if weights.size != CHECK_BATCH or not (weights > 0).all() or not np.isfinite(weights).all():
        return "importance weights are not positive numbers"
    return None
