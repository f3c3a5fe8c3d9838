"""What goes into a replay and comes out: packed rows, the arrays of a batch, and numbers from whatever has them."""

import threading
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import integer_at_least
from ..levels import line_starts
from ..sumtree.contract import to_numpy
from .layout import Layout

_SMALL = 64  # rows up to which a thread's own array is used again to pack them


class Outputs:
    """Arrays for batches of B records, into which samples may be written again and again."""

    def __init__(self, plan: "Plan", batch: int) -> None:
        memory = np.empty((), plan.dtype(batch))
        self.batch, self.plan = batch, plan
        self.sequence: NDArray[np.int64] = memory["sequence"]
        self.weights: NDArray[np.float32] = memory["weights"]
        self.rows = {name: memory[name] for name in plan.names}
        self.address = int(self.sequence.__array_interface__["data"][0])  # of a plain array: quicker to ask

    def __reduce__(self) -> Any:
        raise TypeError("outputs are written to at their address and cannot be copied: make others by outputs(batch)")


class Plan:
    """Where tickets, weights and fields of a batch lie: in the order that kernels know, each from a whole line on."""

    def __init__(self, layout: Layout) -> None:
        fields = layout.fields
        stacks = {}
        if layout.frames > 1:
            shape, dtype = fields.pop("frame")
            stacks = dict.fromkeys(("observation", "next_observation"), ((layout.frames, *shape), dtype))
        self.fields = stacks | fields
        self.names = tuple(self.fields)
        self._known: dict[int, np.dtype[Any]] = {}

    def dtype(self, batch: int) -> np.dtype[Any]:
        """A batch as one record."""
        if batch not in self._known:
            names = ["sequence", "weights", *self.names]
            shapes = [(), (), *(shape for shape, _ in self.fields.values())]
            formats: list[np.dtype[Any]] = [
                np.dtype(np.int64),
                np.dtype(np.float32),
                *(dtype for _, dtype in self.fields.values()),
            ]
            sizes = [batch * int(np.prod(shape)) * dtype.itemsize for shape, dtype in zip(shapes, formats, strict=True)]
            starts, end = line_starts([(size, np.uint8) for size in sizes])
            kinds = [(dtype, (batch, *shape)) for shape, dtype in zip(shapes, formats, strict=True)]
            self._known[batch] = np.dtype({"names": names, "formats": kinds, "offsets": starts, "itemsize": end})
        return self._known[batch]

    def outputs(self, batch: int, out: Outputs | None) -> Outputs:
        """``out`` if it suits, else new ones. ValueError for another batch or layout."""
        if out is None:
            return Outputs(self, integer_at_least("batch", batch, 0))
        if not isinstance(out, Outputs):
            raise TypeError(f"out must be made by outputs({batch}), not {type(out).__name__}")
        if out.batch != batch:
            raise ValueError(f"out is for batches of {out.batch}, not {batch}")
        if out.plan is not self and out.plan.fields != self.fields:
            raise ValueError("out is for records of another layout: take that of this replay's outputs()")
        return out


class Packer(threading.local):
    """Packs records into rows; each thread has rows of its own, in which small inserts are gathered."""

    def __init__(self, row: np.dtype[Any]) -> None:
        self._row, self._names = row, dict.fromkeys(row.names or ()).keys()
        self._rows = np.zeros(_SMALL, row)
        self._fields = _fields(self._rows)
        self._address = int(self._rows.ctypes.data)

    def packed(self, records: Any) -> tuple[Any, int, int]:
        """(what keeps the rows alive, their address, how many they are), until this thread packs again.

        ValueError for fields or shapes that are not the layout's.
        """
        if isinstance(records, np.ndarray):
            is_row = records.dtype is self._row or records.dtype == self._row
            if not is_row or records.ndim != 1:
                raise ValueError(f"packed rows must be [n] of the dtype `row`, not {records.dtype} {records.shape}")
            rows = np.ascontiguousarray(records)
            return rows, int(rows.ctypes.data), rows.size
        if records.keys() != self._names:
            raise ValueError(f"records must have {', '.join(self._names)}, not {', '.join(map(str, records))}")
        count = np.asarray(records["reward"]).size  # np.size would find the method of a tensor
        fields, rows, address = self._fields, self._rows, self._address
        if count > _SMALL:
            rows = np.zeros(count, self._row)
            fields, address = _fields(rows), int(rows.ctypes.data)
        for name, values, shape in fields:
            value = np.asarray(records[name])
            if value.shape != (count, *shape):
                raise ValueError(f"{name} must be {[count, *shape]}, not {list(value.shape)}")
            values[:count] = value
        return rows, address, count


def _fields(rows: NDArray[Any]) -> list[tuple[str, NDArray[Any], tuple[int, ...]]]:
    """(name, values ``[n, ...]``, shape of one) of each field of packed rows."""
    return [(name, rows[name], rows[name].shape[1:]) for name in rows.dtype.names or ()]


def reals(errors: ArrayLike) -> NDArray[np.float64]:
    """Errors ``[B]`` as float64, from whatever device they are on."""
    if type(errors) is not np.ndarray:
        errors = to_numpy(errors)
    values = np.ascontiguousarray(errors, np.float64)
    return values if values.ndim == 1 else values.reshape(-1)


def check_beta(beta: float) -> None:
    """ValueError for a beta that makes no weights."""
    if not 0 <= beta < np.inf:
        raise ValueError(f"beta must be finite and at least 0, not {beta}")


def uniforms_of(batch: int, rng: np.random.Generator | None, uniforms: NDArray[Any] | None) -> NDArray[np.float64]:
    """Uniforms ``[B]`` as given, or drawn. ValueError for any outside [0, 1)."""
    if uniforms is None:
        return (np.random.default_rng() if rng is None else rng).random(batch)
    values = np.ascontiguousarray(uniforms, np.float64)
    if values.shape != (batch,) or not ((values >= 0) & (values < 1)).all():
        raise ValueError(f"uniforms must be [{batch}] within [0, 1)")
    return values


def not_finite(errors: NDArray[np.float64]) -> ValueError:
    """An error that names the TD error which is no number."""
    bad = errors[~np.isfinite(errors)]
    return ValueError(f"a TD error is {bad[0] if bad.size else 'too large'}; training has diverged")
