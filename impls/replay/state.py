"""The state that replays save, the same for every kind of them, and its checks before anything of it is loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layout import Arrays, Layout

_MOST = 1 << 60  # records that tickets can count


@dataclass(frozen=True)
class State:
    """Records, priorities (0 where a slot is not drawable) and which slots are, ``[slots ever written]``; counters."""

    arrays: Arrays
    leaves: NDArray[np.float64]
    drawable: NDArray[np.bool_]
    written: int
    largest: float


def checked(state: Mapping[str, Any], layout: Layout, capacity: int, smallest: float, most: float) -> State:
    """A saved state that fits a replay, its priorities clipped to [smallest, most], which the replay's tree can sample.

    Raises ValueError for what no replay of that layout and capacity saves.
    """
    if missing := {"arrays", "leaves", "drawable", "written", "largest"} - set(state):
        raise ValueError(f"the state lacks {', '.join(sorted(missing))}")
    leaves, drawable = np.asarray(state["leaves"], np.float64), np.asarray(state["drawable"])
    written, largest = int(state["written"]), float(state["largest"])
    if leaves.shape != (min(written, capacity),) or written > _MOST:
        raise ValueError(
            f"the state holds {leaves.size} records of {written} ever written, which a buffer of {capacity} does not"
        )
    if drawable.shape != leaves.shape or drawable.dtype != np.bool_:
        raise ValueError(f"drawable must be {[leaves.size]} bool, not {list(drawable.shape)} {drawable.dtype}")
    is_priority = np.isfinite(leaves) & (leaves >= 0) & ((leaves > 0) | ~drawable)
    if not is_priority.all() or not 0 < largest < np.inf:
        raise ValueError(
            f"priorities must be finite and above 0, not {(*leaves[~is_priority], largest)[0]}: the state is damaged"
        )
    arrays = {name: np.asarray(array) for name, array in state["arrays"].items()}
    _check_layout(arrays, layout, leaves.size)
    return State(arrays, np.where(drawable, np.clip(leaves, smallest, most), 0.0), drawable, written, largest)


def _check_layout(arrays: Arrays, layout: Layout, filled: int) -> None:
    if names := set(layout.fields) ^ set(arrays):
        raise ValueError(f"the state is of another layout: it differs in {', '.join(sorted(names))}")
    for name, (shape, dtype) in layout.fields.items():
        array = arrays[name]
        if array.shape != (filled, *shape) or array.dtype != dtype:
            raise ValueError(
                f"the state is of another layout: {name} must be {[filled, *shape]} {dtype}, "
                f"not {list(array.shape)} {array.dtype}"
            )
