"""What goes into a replay and comes out: packed rows, the arrays of a batch, and numbers from whatever has them."""

import threading
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import integer_at_least, short
from ..levels import line_starts
from ..sumtree.arguments import to_numpy
from .layout import Layout
from .values import NO_NUMBERS, array_of, check_names, rules_of, without_drawable

_MOST_BYTES = (1 << 31) - 1
_MOST_KNOWN = 1024  # sizes of batches whose layout is kept
_SMALL = 64  # rows up to which a thread's own array is used again to pack them


class Outputs:
    """Arrays for batches of B records, into which samples may be written again and again.

    ``memory``: an array ``[]`` of the plan's dtype that begins on a cache line, instead of memory of their own.
    """

    def __init__(self, plan: "Plan", batch: int, memory: NDArray[Any] | None = None) -> None:
        memory = np.empty((), plan.dtype(batch)) if memory is None else memory
        self.batch, self.plan = batch, plan
        self.sequence: NDArray[np.int64] = memory["sequence"]
        self.weights: NDArray[np.float32] = memory["weights"]
        self.rows = {name: memory[name] for name in plan.names}
        self.address = int(self.sequence.__array_interface__["data"][0])  # of a plain array: quicker to ask

    def __reduce__(self) -> Any:
        raise TypeError("outputs are written to at their address and cannot be copied: make others by outputs(batch)")


class Plan:
    """Where tickets, weights and fields of a batch lie: in the order that kernels know, each from a whole line on.

    ``by_total``: before them the total that each record was drawn out of, and its priority, which :meth:`Replay.draw`
    returns in place of weights.
    """

    def __init__(self, layout: Layout, *, by_total: bool = False) -> None:
        self.fields = layout.transition
        self.names = tuple(self.fields)
        kinds: dict[str, Any] = {"total": np.float64, "priority": np.float64} if by_total else {}
        kinds |= {"sequence": np.int64, "weights": np.float32}
        self._parts = {name: ((), np.dtype(kind)) for name, kind in kinds.items()} | self.fields
        self.known: dict[int, np.dtype[Any]] = {}

    def dtype(self, batch: int) -> np.dtype[Any]:
        """A batch as one record."""
        if batch not in self.known:
            if len(self.known) > _MOST_KNOWN:
                self.known.clear()
            names, parts = [*self._parts], self._parts.values()
            sizes = [batch * int(np.prod(shape)) * dtype.itemsize for shape, dtype in parts]
            starts, end = line_starts([(size, np.uint8) for size in sizes])
            if end > _MOST_BYTES:  # of one NumPy record
                raise ValueError(
                    f"a batch of {batch} records is {end / 1e9:,.1f} GB; at most 2.1 GB are sampled at once"
                )
            kinds = [(dtype, (batch, *shape)) for shape, dtype in parts]
            self.known[batch] = np.dtype({"names": names, "formats": kinds, "offsets": starts, "itemsize": end})
        return self.known[batch]

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

    def __init__(self, row: np.dtype[Any], layout: Layout) -> None:
        self._row, self._names = row, dict.fromkeys(row.names or ()).keys()
        self._rows, self._rules = np.zeros(_SMALL, row), rules_of(layout)
        self._fields = self._fields_of(self._rows)
        self._address = int(self._rows.ctypes.data)

    def packed(self, records: Any) -> tuple[Any, int, int]:
        """(what keeps the rows alive, their address, how many they are), until this thread packs again.

        TypeError or ValueError for fields, shapes or values that are not the layout's.
        """
        if isinstance(records, np.ndarray):
            is_row = records.dtype is self._row or records.dtype == self._row
            if not is_row or records.ndim != 1:
                raise ValueError(f"packed rows must be [n] of the dtype `row`, not {records.dtype} {records.shape}")
            rows = np.ascontiguousarray(records)
            return rows, int(rows.ctypes.data), rows.size
        check_names("records", records, self._names)
        count = np.asarray(records["reward"]).size  # np.size would find the method of a tensor
        fields, rows, address = self._fields, self._rows, self._address
        if count > _SMALL:
            rows = np.zeros(count, self._row)
            fields, address = self._fields_of(rows), int(rows.ctypes.data)
        for name, values, shape, unseen, check in fields:
            value = array_of(name, records[name])
            if value.shape != (count, *shape):
                raise ValueError(f"{name} must be {[count, *shape]}, not {list(value.shape)}")
            if value.dtype is not unseen:
                check(value)
            values[:count] = value
        return rows, address, count

    def _fields_of(self, rows: NDArray[Any]) -> list[tuple[Any, ...]]:
        """(name, values ``[n, ...]``, shape, dtype unseen and check of its rule) of each field of packed rows."""
        rules = self._rules.items()
        return [(name, rows[name], shape, unseen, check) for name, (shape, _, unseen, check) in rules]


def reals(errors: ArrayLike, what: str = "errors") -> NDArray[np.float64]:
    """Errors ``[B]`` as float64, from whatever device they are on."""
    array: NDArray[Any] = errors if type(errors) is np.ndarray else to_numpy(errors)
    if array.dtype.kind in NO_NUMBERS:
        raise TypeError(f"{what} must be numbers, not {array.dtype}, such as {short(errors)}")
    if array.dtype == np.bool_:
        raise ValueError(f"{what} are bool: which records may be sampled is given as drawable=...")
    values = np.ascontiguousarray(array, np.float64)
    return values if values.ndim == 1 else values.reshape(-1)


def mask_of(drawable: ArrayLike | None, count: int, layout: Layout) -> NDArray[np.bool_] | None:
    """Return which of ``count`` records may be sampled, as a copy; None stands for all.

    ValueError for what is neither bool nor 0 or 1, and for stacks that would reach into what another insert stores.
    """
    lead = layout.frames - 1
    if drawable is None:
        if count and lead:
            raise ValueError(without_drawable(layout))
        return None
    mask = np.array(drawable, ndmin=1)
    if mask.shape != (count,):
        raise ValueError(f"drawable must be [{count}], not {list(mask.shape)}")
    if mask.dtype != np.bool_ and not ((mask == 0) | (mask == 1)).all():
        raise ValueError(f"drawable must be bool, one for each record, not {short(drawable)}")
    if lead and (mask[:lead].any() or mask[-1:].any()):
        raise ValueError(without_drawable(layout))
    return mask.astype(np.bool_, copy=False)


def tickets_of(sequence: ArrayLike) -> NDArray[np.int64]:
    """Sequence numbers ``[B]`` as int64. TypeError for other types: a float would be cut to another record's;
    ValueError for other shapes."""
    array = np.asarray(sequence)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"sequence must be integers, as sample() returns them, not {array.dtype}")
    if array.ndim > 1:
        raise ValueError(f"sequence must be [B], as sample() returns it, not {list(array.shape)}")
    return np.ascontiguousarray(array, np.int64)


def check_pairs(sequence: NDArray[np.int64], errors: NDArray[Any]) -> None:
    """ValueError unless there is one error for each sequence number."""
    if sequence.shape != errors.shape:
        raise ValueError(f"sequence is {list(sequence.shape)} and errors are {list(errors.shape)}: one each")


def check_beta(beta: float) -> None:
    """TypeError or ValueError for a beta that makes no weights."""
    try:
        is_good = bool(0 <= beta < np.inf)
    except (TypeError, ValueError):
        raise TypeError(f"beta must be a number, not {short(beta)}") from None
    if not is_good:
        raise ValueError(f"beta must be finite and at least 0, not {beta}")


def uniforms_of(batch: int, rng: np.random.Generator | None, uniforms: NDArray[Any] | None) -> NDArray[np.float64]:
    """Uniforms ``[B]`` as given, or drawn. ValueError for any outside [0, 1), TypeError for what cannot draw them."""
    if uniforms is None:
        try:
            return (np.random.default_rng() if rng is None else rng).random(batch)
        except (AttributeError, TypeError):
            raise TypeError(
                f"rng must be a generator such as np.random.default_rng({rng if isinstance(rng, int) else ''}), "
                f"not {short(rng)}"
            ) from None
    values = reals(uniforms, "uniforms")
    if values.shape != (batch,) or not ((values >= 0) & (values < 1)).all():
        raise ValueError(f"uniforms must be [{batch}] within [0, 1)")
    return values


def not_finite(errors: NDArray[np.float64]) -> ValueError:
    """An error that names the TD error which is no number."""
    bad = errors[~np.isfinite(errors)]
    return ValueError(f"a TD error is {bad[0] if bad.size else 'too large'}; training has diverged")
