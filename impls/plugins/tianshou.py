"""Plug-in for tianshou: its segment tree and its prioritized buffers, on any of our trees.

:class:`PrioritizedReplayBuffer` and :class:`PrioritizedVectorReplayBuffer` take the place of the host's classes of
those names, and ask our tree without the detour over the host's tree interface. :func:`install` puts our tree under the
host's own classes instead, for code that makes these itself. Random numbers are the host's, from ``numpy.random``, so
that the same seed draws the same rows.

Where the host errs, our buffers differ from it: an update that comes after its row was overwritten is omitted, rows
cannot be drawn once ``reset`` has emptied the buffer, a vector buffer that was copied, pickled or loaded still knows
where its episodes end, and ``set_beta`` and ``weight_norm`` of one work.
Returns over several steps and stacks of frames are put together by tianshou from rows that follow each other: where you
reset an environment before its episode has ended, tell it by ``truncated`` of its last row.
"""

from .hosts import Replacement, require

require("tianshou", "2.0", "2.1")

from collections.abc import Callable
from typing import Any

import numpy as np
import tianshou.data as host
from numpy.typing import ArrayLike, NDArray

from .. import SumTree, make, to_numpy
from ..checks import integer_at_least
from ..replay.batches import check_beta
from .priorities import NumberedPriorities, kept

_LEAST_ERROR = np.finfo(np.float32).eps.item()  # what the host adds to every |TD error|


class SegmentTree:
    """Sums over N = ``size`` priorities, with the interface of ``tianshou.data.SegmentTree``.

    ``implementation`` and ``fanout`` are those of :func:`impls.make`, and ``options`` its others; leaves are float64.
    A number for an argument gives a number, an array ``[..]`` one of its shape. Any size is taken as it is.
    """

    def __init__(self, size: int, implementation: str = "numba", fanout: int = 16, **options: Any) -> None:
        self.tree: SumTree = make(implementation, size, fanout=fanout, dtype="float64", **options)

    def __len__(self) -> int:
        return self.tree.capacity

    def __getitem__(self, index: ArrayLike) -> Any:
        """Priorities at ``index``; below 0 it counts from the end, as an index of rows does. IndexError, TypeError."""
        slots = to_numpy(index)
        flat = slots.reshape(-1)
        try:
            found = self.tree.get(flat)
        except IndexError:
            found = self.tree.get(np.where(flat < 0, flat + len(self), flat))
        return _shaped(found, slots)

    def __setitem__(self, index: ArrayLike, value: ArrayLike) -> None:
        """Set priorities; of equal indices the last one wins. Raises, before anything is written, AssertionError for an
        index outside [0, N), as the host does, ValueError for NaN, negative or infinite ones, TypeError."""
        try:
            self.tree.update(index, value)
        except IndexError as error:
            raise AssertionError(str(error)) from None

    def reduce(self, start: int = 0, end: int | None = None) -> float:
        """The sum of priorities [start:end], bounds taken as those of a slice."""
        if start == 0 and end is None:
            return self.tree.total()
        left, right, _ = slice(start, end).indices(len(self))
        return float(to_numpy(self.tree.range_sum(left, right))[0]) if left < right else 0.0

    def get_prefix_sum_idx(self, value: ArrayLike) -> Any:
        """The smallest i with p_0 + .. + p_i >= value, for values in [0, sum of all).

        Beyond these AssertionError, as from the host, whose rule this is too: at 0 it is leaf 0 whatever its priority.
        """
        mass = to_numpy(value)
        total = self.tree.total()
        if not ((mass >= 0.0) & (mass < total)).all():
            raise AssertionError(f"a prefix sum must be in [0, {total!r}), the sum of all priorities, not {value!r}")
        return _shaped(self.tree.prefix_sum_index(mass.reshape(-1), side="left"), mass)

    def __reduce__(self) -> tuple[Callable[[SumTree], "SegmentTree"], tuple[SumTree]]:
        return _around, (self.tree,)

    def __repr__(self) -> str:
        return f"SegmentTree({self.tree!r})"


def _around(tree: SumTree) -> SegmentTree:
    """A segment tree that wraps this tree."""
    made = SegmentTree.__new__(SegmentTree)
    made.tree = tree
    return made


def _shaped(answer: Any, asked: NDArray[Any]) -> Any:
    """An answer ``[B]`` in the shape of what was asked: a Python number for a number."""
    values = to_numpy(answer)
    return values.reshape(asked.shape) if asked.ndim else values[0].item()


class DrawnRows(np.ndarray):
    """Rows ``[B]`` that a buffer drew; ``written`` is how many rows it had been given by then, None if unknown.

    What is made of such an array (a part, a copy) has the same ``written``.
    """

    written: int | None

    def __array_finalize__(self, source: Any) -> None:
        self.written = getattr(source, "written", None)


class PrioritizedReplayBuffer(host.PrioritizedReplayBuffer):
    """``tianshou.data.PrioritizedReplayBuffer`` on our tree.

    ``implementation`` and ``fanout`` are those of :func:`impls.make`; ``size``, ``alpha``, ``beta``, ``weight_norm``
    and ``options`` are the host's (``stack_num``, ``ignore_obs_next``, ..). Buffers that the host's class has saved can
    be loaded by this one. Raises ValueError for alpha <= 0, beta < 0 or size < 1.

    ``update_weight`` leaves alone what was overwritten, or emptied by ``reset``, after its rows were drawn by
    ``sample`` or ``sample_indices``: the array of rows they return knows when that was. A row from elsewhere is set.
    """

    priorities: NumberedPriorities
    _beta: float
    _alpha, _max_prio, _min_prio = kept("alpha"), kept("largest"), kept("smallest")

    def __init__(
        self,
        size: int,
        alpha: float,
        beta: float,
        weight_norm: bool = True,
        implementation: str = "numba",
        fanout: int = 16,
        **options: Any,
    ) -> None:
        _check(size, alpha, beta)
        self.priorities = _made(size, alpha, implementation, fanout)
        super().__init__(size, alpha, beta, weight_norm, **options)

    @property
    def weight(self) -> SegmentTree:
        """The priorities of rows, in the host's terms."""
        return _around(self.priorities.tree)

    @weight.setter
    def weight(self, theirs: Any) -> None:
        """The host's constructor makes a tree of its own, in whose place ours is already."""

    @weight.deleter
    def weight(self) -> None:
        """The host's manager of several buffers deletes their trees; ours stays, as it is not used any more."""

    def init_weight(self, index: int | NDArray[np.int64]) -> None:
        """Give rows just written the largest priority so far."""
        self.priorities.write(np.asarray(index).reshape(-1))

    def sample_indices(self, batch_size: int | None) -> NDArray[np.int64]:
        """Rows ``[B]`` in proportion to their priorities; all rows for 0, none below 0, as the host."""
        if batch_size is None or batch_size <= 0 or len(self) == 0:
            return super().sample_indices(batch_size)
        rows, _ = self.priorities.tree.sample(np.random.rand(batch_size))  # noqa: NPY002  # the host's generator
        drawn = to_numpy(rows).view(DrawnRows)
        drawn.written = self.priorities.written
        return drawn

    def update_weight(self, index: NDArray[np.int64], new_weight: ArrayLike) -> None:
        """Set the priorities of rows ``[B]`` to (|TD error| + epsilon)^alpha, ``new_weight [B]`` being the TD errors.

        Raises, before anything is written, ValueError (TD errors that are no finite numbers; shapes that do not match),
        IndexError and TypeError.
        """
        rows, errors = np.asarray(index), np.abs(to_numpy(new_weight))
        written = getattr(index, "written", None)
        is_late = written is not None and written != self.priorities.written
        present = self.priorities.numbers[rows] < written if is_late else None
        self.priorities.update(rows, errors, present)

    def __getitem__(self, index: Any) -> Any:
        """A batch of rows and their importance weights; numbers stored as they are returned are gathered directly."""
        stored = self._meta.__dict__
        numbers = all(type(each) is not np.ndarray or each.dtype.kind in "biuf" for each in stored.values())
        rows = np.asarray(None if isinstance(index, slice) else index)
        if not (numbers and rows.ndim == 1 and rows.dtype.kind == "i" and self.stack_num == 1 and self._save_obs_next):
            return super().__getitem__(index)
        batch = host.Batch()
        found = batch.__dict__  # where the host's batch keeps its parts; setting an attribute looks at them anew
        for key, values in stored.items():
            if type(values) is np.ndarray:
                found[key] = values.take(rows, 0)
            else:
                found[key] = values[rows] if len(values) else host.Batch()
        for key in ("obs_next", "info", "policy"):
            found.setdefault(key, host.Batch())
        weight = self.get_weight(rows)
        found["weight"] = weight / weight.max() if self._weight_norm else weight
        return batch

    def set_beta(self, beta: float) -> None:
        """Set the exponent of the importance weights. ValueError below 0."""
        check_beta(beta)
        super().set_beta(beta)

    def reset(self, keep_statistics: bool = False) -> None:
        """Empty the buffer: no row can be drawn until it is written again."""
        super().reset(keep_statistics)
        self.priorities.forget(np.arange(self.maxsize))
        self.priorities.written += 1  # so that rows drawn before are late

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "priorities" not in state:  # of a buffer that the host's class had saved
            theirs = {name: state.pop(name) for name in ("weight", "_alpha", "_max_prio", "_min_prio")}
            # HDF5 gives NumPy's numbers, and a float32 to the power of one is a float64: another priority.
            ours = state["priorities"] = _made(state["maxsize"], float(theirs["_alpha"]), "numba", 16)
            ours.largest, ours.smallest = theirs["_max_prio"], theirs["_min_prio"]
            rows = np.arange(ours.tree.capacity)
            ours.write(rows)
            ours.tree.update(rows, theirs["weight"][rows])
        super().__setstate__(state)
        self._beta = float(self._beta)
        if isinstance(self, host.ReplayBufferManager) and self._meta.get_keys():
            self._set_batch_for_children()  # whose rows are copies by now, as those of views are


class PrioritizedVectorReplayBuffer(PrioritizedReplayBuffer, host.PrioritizedVectorReplayBuffer):
    """``tianshou.data.PrioritizedVectorReplayBuffer`` on one tree of ours: a part for each of ``buffer_num``
    environments, ceil(``total_size`` / ``buffer_num``) rows each. Other arguments as :class:`PrioritizedReplayBuffer`.
    """

    def __init__(
        self,
        total_size: int,
        buffer_num: int,
        alpha: float,
        beta: float,
        weight_norm: bool = True,
        implementation: str = "numba",
        fanout: int = 16,
        **options: Any,
    ) -> None:
        _check(total_size, alpha, beta)
        integer_at_least("buffer_num", buffer_num, 1)
        self.priorities = _made(-(-total_size // buffer_num) * buffer_num, alpha, implementation, fanout)
        parts = super(PrioritizedReplayBuffer, self).__init__  # the host's; its name there may be that of ours by now
        parts(total_size, buffer_num, alpha=alpha, beta=beta, weight_norm=weight_norm, **options)
        self._weight_norm = weight_norm  # which the host keeps in the parts alone

    def set_beta(self, beta: float) -> None:
        """Set the exponent of the importance weights of all rows. ValueError below 0."""
        super().set_beta(beta)
        self._beta = beta  # the host's method sets the parts', and weights are made from this one


def _check(size: int, alpha: float, beta: float) -> None:
    integer_at_least("size", size, 1)
    if not alpha > 0.0:
        raise ValueError(f"alpha must be above 0, not {alpha}; for a uniform replay take tianshou's ReplayBuffer")
    check_beta(beta)


def _made(size: int, alpha: float, implementation: str, fanout: int) -> NumberedPriorities:
    return NumberedPriorities(make(implementation, size, fanout=fanout, dtype="float64"), alpha, _LEAST_ERROR)


_MODULES = ("tianshou.data", "tianshou.data.utils.segtree", "tianshou.data.buffer.prio")  # that have its tree
_replacement = Replacement(*((module, "SegmentTree") for module in _MODULES))


def install(implementation: str = "numba", fanout: int = 16) -> None:
    """Let tianshou's own prioritized buffers make our trees from here on; buffers made before keep theirs.

    Everything else stays the host's. Raises, with nothing changed, what :func:`impls.make` raises.
    """

    class Installed(SegmentTree):
        def __init__(self, size: int) -> None:
            super().__init__(size, implementation, fanout)

    Installed(1)
    _replacement.put({"SegmentTree": Installed})


def uninstall() -> None:
    """Give tianshou its own tree back; buffers made meanwhile keep ours."""
    _replacement.undo()
