"""Records that show whether they came back whole: every field follows from the record's number, its reward."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.replay import Layout

LAYOUT = Layout((11,), "float32", action_size=3)  # Hopper's
MOST = 1 << 22  # numbers that float32 holds exactly, with room for what is added to them
Rows = dict[str, NDArray[Any]]


def made(numbers: NDArray[np.int64]) -> Rows:
    """Return the records of these numbers ``[n]``, ``[n, ...]`` of each field.

    >>> rows = made(np.arange(5))
    >>> [(name, array.shape) for name, array in rows.items()][:2], wrong(rows)
    ([('observation', (5, 11)), ('next_observation', (5, 11))], 0)
    """
    column = numbers[:, None] % MOST
    observation = ((column * 31 + 7 * np.arange(11)) % 4_093).astype(np.float32)
    action = ((column * 13 + np.arange(3)) % 509).astype(np.float32)
    rest = {"action": action, "reward": (numbers % MOST).astype(np.float32), "terminated": numbers % 2 == 1}
    return {"observation": observation, "next_observation": observation + 1, **rest}


def wrong(rows: Rows) -> int:
    """Return how many of the records are not those of their numbers."""
    expected = made(rows["reward"].astype(np.int64))
    bad = np.zeros(len(rows["reward"]), np.bool_)
    for name, array in expected.items():
        differs = rows[name].reshape(array.shape) != array
        bad |= differs.reshape(len(array), -1).any(axis=1)
    return int(bad.sum())
