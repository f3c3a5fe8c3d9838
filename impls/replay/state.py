"""The state that replays save, the same for every kind of them, and its checks before anything of it is loaded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import short
from .block import CLOSED, DAMAGED, LARGEST, READY, TICKET, WRITTEN, Bank
from .layout import Arrays, Layout
from .values import NO_NUMBERS, check_mapping, number

_MOST = 1 << 60  # records that tickets can count


@dataclass(frozen=True)
class State:
    """Records, priorities (0 where a slot is not drawable) and which slots are, ``[slots ever written]``; counters."""

    arrays: Arrays
    leaves: NDArray[np.float64]
    drawable: NDArray[np.bool_]
    written: int
    largest: float

    def placed(self, capacity: int) -> "State":
        """The same in the ring of a replay of ``capacity``: where it is larger, slots before the oldest are empty."""
        size, filled = self.leaves.size, min(self.written, capacity)
        if size == filled:
            return self
        tickets = np.arange(self.written - size, self.written)
        old, new = tickets % size, tickets % capacity

        def spread(values: NDArray[Any]) -> NDArray[Any]:
            out = np.zeros((filled, *values.shape[1:]), values.dtype)
            out[new] = values[old]
            return out

        arrays = {name: spread(array) for name, array in self.arrays.items()}
        return State(arrays, spread(self.leaves), spread(self.drawable), self.written, self.largest)


def states_of(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the state of each bank. TypeError for what no replay saves."""
    check_mapping("a state", state)
    states = state.get("banks", [state])
    if not isinstance(states, (list, tuple)):
        raise TypeError(f"banks must be a list of states, not {short(states)}")
    return list(states)


def _counted(value: Any) -> int:
    """The number of records ever written. TypeError for what is no integer."""
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"written must be an integer, not {short(value)}") from None


def checked(state: Mapping[str, Any], layout: Layout, capacity: int, smallest: float, most: float) -> State:
    """A saved state that fits a replay, its priorities clipped to [smallest, most], which the replay's tree can sample.

    Raises ValueError or TypeError for what no replay of that layout, and of that capacity or less, saves.
    """
    check_mapping("a state", state)
    if missing := {"arrays", "leaves", "drawable", "written", "largest"} - set(state):
        raise ValueError(f"the state lacks {', '.join(sorted(missing))}")
    leaves, drawable = np.asarray(state["leaves"]), np.asarray(state["drawable"])
    written, largest = _counted(state["written"]), number("largest", state["largest"])
    if leaves.dtype.kind in NO_NUMBERS:
        raise TypeError(f"leaves must be numbers, not {leaves.dtype}")
    leaves = leaves.astype(np.float64)
    # Fewer than were ever written are those of a ring of that many slots.
    if leaves.ndim != 1 or not min(written, 1) <= leaves.size <= min(written, capacity) or written > _MOST:
        raise ValueError(
            f"the state holds {leaves.size} records of {written} ever written, which a buffer of {capacity} does not; "
            "load it into one of its own capacity or more"
        )
    if drawable.shape != leaves.shape or drawable.dtype != np.bool_:
        raise ValueError(f"drawable must be {[leaves.size]} bool, not {list(drawable.shape)} {drawable.dtype}")
    is_priority = np.isfinite(leaves) & (leaves >= 0) & ((leaves > 0) | ~drawable)
    if not is_priority.all() or not 0 < largest < np.inf:
        raise ValueError(
            f"priorities must be finite and above 0, not {(*leaves[~is_priority], largest)[0]}: the state is damaged"
        )
    check_mapping("arrays", state["arrays"])
    arrays = {name: np.asarray(array) for name, array in state["arrays"].items()}
    _check_layout(arrays, layout, leaves.size)
    leaves = np.where(drawable, np.clip(leaves, smallest, most), 0.0)
    return State(arrays, leaves, drawable, written, largest).placed(capacity)


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


def saved(bank: Bank) -> dict[str, Any]:
    """The state of a bank in which nothing is being written, as copies."""
    written = int(bank.word(WRITTEN)[0])
    filled = min(written, bank.shape.slots)
    rows = bank.rows[:filled]
    return {
        "arrays": {name: rows[name].copy() for name in bank.shape.row.names or ()},
        "leaves": bank.leaves[:filled],
        "drawable": (bank.words[:filled] & 3) == READY,
        "written": written,
        "largest": float(bank.word(LARGEST, np.float64)[0]),
    }


def load(bank: Bank, new: State, audit: Callable[..., int]) -> None:
    """Put a state into a bank that the caller has alone; ``audit`` is the kernel that computes the sums."""
    shape = bank.shape
    filled, newest = len(new.leaves), new.written - 1
    bank.word(DAMAGED)[0] = 1  # until the end: whoever comes after a kill or an exception repairs it
    bank.words[:] = 0
    for name, array in new.arrays.items():
        bank.rows[name][:filled] = array
    tickets = newest - (newest - np.arange(filled)) % shape.slots
    bank.words[:filled] = TICKET * (tickets + 1) + np.where(new.drawable, READY, CLOSED)
    bank.words[filled:] = 0
    width = shape.lanes * shape.chunks
    leaves = np.zeros(-(-shape.slots // shape.group) * shape.group, shape.dtype)
    leaves[:filled] = new.leaves
    bank.parts[2].reshape(-1, width)[:, : shape.group] = leaves.reshape(-1, shape.group)
    bank.word(WRITTEN)[0] = new.written
    bank.word(LARGEST, np.float64)[0] = new.largest
    audit(bank.address, True, np.zeros(1))  # sums and the count of records
    bank.word(DAMAGED)[0] = 0
