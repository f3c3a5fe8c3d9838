"""What the fields of a record may be, and the state that replays save: both are judged before they are stored."""

import math
from collections.abc import Callable, KeysView, Mapping
from dataclasses import dataclass
from functools import partial
from operator import index
from typing import Any, NamedTuple, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from ..checks import short
from ..cores import check_free
from .block import CLOSED, DAMAGED, LARGEST, READY, TICKET, WRITTEN, Bank
from .layout import Arrays, Layout

_MOST = float(np.finfo(np.float32).max)  # what a field of float32 holds
_MOST_WRITTEN = 1 << 60  # records that tickets can count
_FEW = 8
_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
NO_NUMBERS = frozenset("cmMOSU")
"""Kinds of dtypes that are no real numbers."""


Check = Callable[[NDArray[Any]], None]


class Rule(NamedTuple):
    """Shape and dtype of a field, and the check that raises ValueError for values ``[n, ...]`` which it refuses.

    Values of the dtype ``unseen`` need no check: to read all observations would cost as much as to store them.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    unseen: np.dtype[Any] | None
    check: Check


Rules = dict[str, Rule]


def rules_of(layout: Layout, fields: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]] | None = None) -> Rules:
    """Return the rule of each of ``fields``, by default those of a record.

    A discrete action is an integer in [0, choices); a reward and the numbers of a continuous action are finite; a
    discount is in [0, 1]. Any other field is of a dtype that converts to its own without loss, rounding left aside.
    """
    action: Check = partial(_check_choice, layout.choices) if layout.choices else partial(_check_finite, "action")
    own: dict[str, Check] = {"action": action, "reward": partial(_check_finite, "reward"), "discount": _check_discount}
    return {
        name: Rule(
            shape, dtype, None if name in own else dtype, own.get(name) or partial(_check_conversion, name, dtype)
        )
        for name, (shape, dtype) in (layout.fields if fields is None else fields).items()
    }


def array_of(name: str, values: Any) -> NDArray[Any]:
    """Return the values of a field as an array. ValueError for what no array is made of."""
    try:
        return np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name}: {error}") from None


def without_drawable(layout: Layout) -> str:
    """Return why stacked frames are not inserted without saying which records may be sampled."""
    return (
        f"records of {layout.frames} stacked frames need drawable=, False for the {layout.frames - 1} frames that lead "
        "up to the first record and for the frame after the last: insert what LocalStorage.take() returns"
    )


def check_names(what: str, given: Any, names: KeysView[str]) -> None:
    """TypeError for what is no mapping, ValueError for one whose keys are not ``names``."""
    try:
        if given.keys() == names:
            return
    except AttributeError:
        raise TypeError(f"{what} must be a mapping of {', '.join(names)}, not {short(given)}") from None
    raise ValueError(f"{what} must have {', '.join(names)}, not {', '.join(map(str, given)) or 'nothing'}")


def fields_of(records: Mapping[str, Any], rules: Rules) -> Arrays:
    """Return the fields ``[n, ...]`` of records. TypeError or ValueError for what is not of the layout."""
    check_names("records", records, rules.keys())
    return judged(records, rules, (array_of("reward", records["reward"]).size,))


def steps_of(transitions: Mapping[str, Any], rules: Rules, leading: tuple[int, ...], which: Any = ...) -> Arrays:
    """Return the fields ``[*leading, ...]`` of transitions, those ``which`` of the environments. Errors as above."""
    check_names("transitions", transitions, rules.keys())
    return judged(transitions, rules, leading, which)


def judged(given: Mapping[str, Any], rules: Rules, leading: tuple[int, ...], which: Any = ...) -> Arrays:
    """Return fields in their dtypes. ValueError for shapes or values that the rules refuse."""
    arrays = {}
    for name, (shape, dtype, unseen, check) in rules.items():
        array = array_of(name, given[name])
        if array.shape != (*leading, *shape):
            raise ValueError(f"{name} must be {[*leading, *shape]}, not {list(array.shape)}")
        array = array[which]
        if array.dtype is not unseen:
            check(array)
        arrays[name] = array.astype(dtype, copy=False)
    return arrays


def flags_of(name: str, values: Any, count: int) -> NDArray[np.bool_]:
    """Return a bool of each environment ``[count]``, or one for all of them. ValueError for anything else."""
    flags = np.asarray(values)
    if flags.dtype != np.bool_ or flags.shape not in ((), (count,)):
        raise ValueError(f"{name} must be {[count]} bool, not {list(flags.shape)} {flags.dtype}")
    return np.broadcast_to(flags, (count,))


def differing(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows of two arrays ``[E, ...]`` differ; two NaN do not."""
    differs = one != other
    if one.dtype.kind in "fc":
        differs &= (one == one) | (other == other)  # noqa: PLR0124  # NaN is not itself
    result: NDArray[np.bool_] = differs.any(axis=tuple(range(1, one.ndim)))
    return result


def check_count(count: int, capacity: int, keep: NDArray[np.bool_], errors: int | None) -> None:
    """ValueError for more records than the capacity, or another number of errors than may be sampled."""
    if count > capacity:
        raise ValueError(f"{count} records at once, the capacity is {capacity}")
    wanted = int(keep.sum()) if keep.size else count
    if errors is not None and errors != wanted:
        raise ValueError(f"errors must be [{wanted}], one for each drawable record, not [{errors}]")


def check_mapping(what: str, value: Any) -> None:
    """TypeError for what is no mapping."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} must be a mapping, not {short(value)}")


def number(what: str, value: Any) -> float:
    """Return the value as float. TypeError if it is no real number."""
    if isinstance(value, str) or not isinstance(value, SupportsFloat):
        raise TypeError(f"{what} must be a number, not {short(value)}")
    return float(value)


def _check_kind(name: str, values: NDArray[Any]) -> None:
    if values.dtype.kind in NO_NUMBERS:
        raise ValueError(f"{name} must be numbers, not {values.dtype}, such as {short(values.ravel()[:1].tolist())}")


def _check_finite(name: str, values: NDArray[Any]) -> None:
    if values.dtype.kind == "f":
        if values.size == 1:  # a few numbers are judged faster outside of NumPy
            if -_MOST <= values.item() <= _MOST:
                return
        elif values.size <= _FEW:
            if math.hypot(*values.ravel().tolist()) <= _MOST:
                return
        elif values.item(values.argmax()) <= _MOST and values.item(values.argmin()) >= -_MOST:
            return  # both are the place of a nan, where there is one
        is_bad = ~(np.abs(values) <= _MOST)
        if is_bad.any():
            raise ValueError(f"{name} must be finite and at most {_MOST:.1e} in size, not {values[is_bad][0]}")
    else:
        _check_kind(name, values)


def _check_choice(choices: int, values: NDArray[Any]) -> None:
    if values.dtype.kind in "iu":
        if values.size == 1:
            if 0 <= values.item() < choices:
                return
        elif not values.size or 0 <= values.item(values.view(_UNSIGNED[values.itemsize]).argmax()) < choices:
            return  # a negative number is the largest without its sign
    _check_kind("action", values)
    is_bad = ~((values >= 0) & (values < choices) & (values == np.trunc(values)))
    if is_bad.any():
        raise ValueError(f"action must be an integer from 0 to {choices - 1}, not {values[is_bad][0]}")


def _check_discount(values: NDArray[Any]) -> None:
    _check_kind("discount", values)
    is_bad = ~((values >= 0) & (values <= 1))
    if is_bad.any():
        raise ValueError(f"discount must be within [0, 1], not {values[is_bad][0]}")


def _check_conversion(name: str, dtype: np.dtype[Any], values: NDArray[Any]) -> None:
    """O(1) but for integers of a wider type than the field's, and for a bool field given numbers: these are read."""
    given = values.dtype.kind
    if not values.size or (given in "biufc" and np.can_cast(values.dtype, dtype)):
        return
    if given in ("biufc" if dtype.kind == "c" else "biuf") and dtype.kind in "fc":
        return  # rounded
    is_bad = np.ones(values.shape, np.bool_)
    if dtype.kind == "b" and given in "iuf":
        is_bad = (values != 0) & (values != 1)
    elif dtype.kind in "iu" and given in "iu":
        is_bad = (values < np.iinfo(dtype).min) | (values > np.iinfo(dtype).max)
    if is_bad.any():
        bad = short(values[is_bad][:1].tolist()[0])
        raise ValueError(
            f"{name} is stored as {dtype}, which {bad} of {values.dtype} would not survive: convert it first"
        )


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


def counted(value: Any) -> int:
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
    written, largest = counted(state["written"]), number("largest", state["largest"])
    if leaves.dtype.kind in NO_NUMBERS:
        raise TypeError(f"leaves must be numbers, not {leaves.dtype}")
    leaves = leaves.astype(np.float64)
    # Fewer than were ever written are those of a ring of that many slots.
    if leaves.ndim != 1 or not min(written, 1) <= leaves.size <= min(written, capacity) or written > _MOST_WRITTEN:
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
    arrays = arrays_of(state["arrays"], layout.allocate(0), leaves.size)
    leaves = np.where(drawable, np.clip(leaves, smallest, most), 0.0)
    return State(arrays, leaves, drawable, written, min(largest, most)).placed(capacity)


def arrays_of(state: Any, like: Arrays, *leading: int) -> Arrays:
    """Return the arrays of a state: ``like`` others, ``[*leading, ...]`` in place of the first axis of those if given.

    ValueError for other names, shapes or dtypes, TypeError for what is no mapping.
    """
    check_mapping("arrays", state)
    if names := set(like) ^ set(state):
        raise ValueError(f"the state is of another layout: it differs in {', '.join(sorted(names))}")
    arrays = {name: np.asarray(array) for name, array in state.items()}
    for name, (array, other) in ((name, (arrays[name], like[name])) for name in like):
        shape = (*leading, *other.shape[1:]) if leading else other.shape
        if array.shape != shape or array.dtype != other.dtype:
            raise ValueError(
                f"the state is of another layout: {name} must be {list(shape)} {other.dtype}, "
                f"not {list(array.shape)} {array.dtype}"
            )
    return arrays


def saved(bank: Bank) -> dict[str, Any]:
    """The state of a bank in which nothing is being written, as copies."""
    written = int(bank.word(WRITTEN)[0])
    filled = min(written, bank.shape.slots)
    check_free(filled * bank.shape.row.itemsize)
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
