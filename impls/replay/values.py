"""What a record's action and reward may be, judged before the record is stored."""

import math
from collections.abc import Callable, KeysView, Mapping
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from ..checks import short
from .layout import Arrays, Layout

_MOST = float(np.finfo(np.float32).max)  # what a field of float32 holds
_FEW = 8
_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
NO_NUMBERS = frozenset("cmMOSU")
"""Kinds of dtypes that are no real numbers."""

Check = Callable[[NDArray[Any]], None]


def checks_of(layout: Layout) -> dict[str, Check]:
    """Return the check of each field that has one: it raises ValueError for values ``[n, ...]`` that it refuses.

    A discrete action is an integer in [0, choices); a reward and the numbers of a continuous action are finite.
    Observations are not looked at: to read them all would cost as much as to store them.
    """
    action = _choice(layout.choices) if layout.choices else _finite("action")
    return {"action": action, "reward": _finite("reward")}


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


def fields_of(records: Mapping[str, Any], layout: Layout, checks: Mapping[str, Check]) -> Arrays:
    """Return the fields ``[n, ...]`` of records. TypeError or ValueError for what is not of the layout."""
    check_names("records", records, layout.fields.keys())
    arrays = {name: array_of(name, records[name]) for name in layout.fields}
    for name, (shape, _) in layout.fields.items():
        if arrays[name].shape != (arrays["reward"].size, *shape):
            raise ValueError(f"{name} must be {[arrays['reward'].size, *shape]}, not {list(arrays[name].shape)}")
        if name in checks:
            checks[name](arrays[name])
    return arrays


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


def _finite(name: str) -> Check:
    def check(values: NDArray[Any]) -> None:
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

    return check


def _choice(choices: int) -> Check:
    allowed = range(choices)

    def check(values: NDArray[Any]) -> None:
        if values.dtype.kind in "iu":
            if values.size == 1:
                if values.item() in allowed:
                    return
            elif not values.size or values.item(values.view(_UNSIGNED[values.itemsize]).argmax()) in allowed:
                return  # a negative number is the largest without its sign
        _check_kind("action", values)
        is_bad = ~((values >= 0) & (values < choices) & (values == np.trunc(values)))
        if is_bad.any():
            raise ValueError(f"action must be an integer from 0 to {choices - 1}, not {values[is_bad][0]}")

    return check
