"""Whole replay buffers, ours and other libraries', alone and shared by threads or processes: full, their priorities
different, and the check that each must pass before it is timed.

``cells`` lists what is timed, ``jobs`` are what actors and learners do on a buffer, ``worker`` runs several at once in
a process that takes samples on request, ``command`` takes them in alternation.
"""

from typing import Any

import numpy as np

from ...libraries import rows
from ...libraries.base import Buffer, make, roles

FILL_ROUNDS, FILL_BATCH = 2_000, 256
CHECKED_ROWS, CHECK_ROUNDS, CHECK_BATCH = 512, 60, 256
MOSTLY = 0.9  # of a batch, where half of the records have nearly all of the priority


def kind_of(name: str) -> type[Buffer]:
    """Return the class of a buffer, or the base of all for another part of a training step, which runs as ours do."""
    return roles(Buffer).get(name, Buffer)


def filled(name: str, capacity: int, seed: int = 0, **options: Any) -> Buffer:
    """Make a full buffer whose priorities differ."""
    buffer = make(Buffer, name, capacity, seed, **options)
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
    return fault_of(make(Buffer, name, CHECKED_ROWS, seed, **options))


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
