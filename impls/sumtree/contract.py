"""The sum-tree contract: what every implementation does. ``arguments.py`` checks what calls give.

Glossary: K *fanout*, N *capacity* (leaves), B *batch*, p_i *priority* of leaf i; a *prefix value* (the parameter
``mass``) lies in [0, total).

Interval rule. [Zhang2021, Eq. 4] picks the smallest i with p_0 + .. + p_i >= the prefix value, which returns leaf 0 at
prefix value 0 even when p_0 = 0. Here the inequality is strict, so a leaf of priority 0 is never sampled. The two
differ only where the prefix value equals a prefix sum; ``side="left"`` asks for the rule as printed.

Writing an implementation: put one public subclass of :class:`SumTree` into ``impls/sumtree/<name>_tree.py`` and give it
``_allocate``, ``_set``, ``_get``, ``_find``, ``_total``, ``_check``, ``_rebuild`` and ``nbytes``; without a ``_min``,
``_range_sum`` or ``_prefix_sum`` of its own, these read every leaf. An ``option`` of its constructor is kept as
``_option``, from where copies take it. Arguments reach the underscored methods checked and converted, in arrays that no
other thread can reach; batches are never empty there. The public methods let calls from several threads take turns and
call the underscored ones, which call each other.

That file is all: whatever loops over the trees (sweeps, asv, cost models, recommendations, mappings, figures) finds it
by its name and reads the class's **traits** to know how to treat it. Each has a default; state those that differ:

* ``threaded``: takes ``threads`` above 1, hence is swept with several.
* ``least_shared``: elements of a batch from which on threads share it; a smaller one is the calling thread's.
* ``concurrent``: operations that Python threads may run side by side (``READS``, say).
* ``optimistic``: operations that keep no update waiting: they read without a turn. Where an update
  was under way or came between, they read again, the last time in a turn of their own.
* ``uses_fanout``: False for a tree without groups of K: it is swept at one K, and its cost model counts leaves, steps
  of a search, elements and calls in place of cache lines and levels.
* ``shares_groups``: an update that recomputes sums each group that its batch touches once, not once per element.
* ``compiled``: native code throughout a call, so that the analytic law of levels in caches and memory gives its time on
  a machine without records: it is an option of mappings there too, not only where it was timed.
* ``runs_on``: the kind of device its batches lie on, "cpu", "gpu" or "fpga", hence which devices it is an option of.
* ``modeled``: :meth:`SumTree.modeled_seconds` replaces the stopwatch.
* ``fill_seconds``: seconds to fill one leaf, where filling takes so long that large trees are omitted.
* ``variants``: options, besides the defaults, that are swept too.

Bytes come from ``nbytes_of``, by default those of ragged levels. Configurations that run the very same code at some N
and B are one, which ``runs_as`` names: nothing else is swept, ranked or recommended there. Import libraries that may be
missing where the tree is made, not above the class: the class itself must load everywhere, to state its traits and
bytes.
"""

import functools
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..checks import integer_at_least, one_of
from ..levels import group_size, level_bytes, level_sizes
from .arguments import (
    Indices,
    Priorities,
    Reals,
    index_batch,
    mass_batch,
    prefix_values,
    priority_batch,
    range_batch,
    real_batch,
    to_numpy,
    uniform_batch,
)
from .turns import Result, Turns

LEAF_DTYPES = ("float32", "float64")
READS = frozenset(
    {"sample", "prefix_sum_index", "get", "total", "min", "prefix_sum", "range_sum", "check", "state_dict"}
)
"""Operations that leave the tree as it is: ``concurrent`` of a tree whose hooks for them share no memory they write."""
_LOADED_AT_ONCE = 1 << 18  # leaves
_TORN = object()  # returned by a tree whose sums must be recomputed first


class SumTree(ABC):
    """N priorities >= 0 with their prefix sums kept searchable.

    Sums are float64 whatever the leaf dtype. The tree stores final values (no alpha, epsilon or beta) and draws no
    random numbers.

    Threads may call one tree as they like: calls that must not meet wait for each other, and each sees a tree between
    two calls. ``concurrent`` names the operations any two of which run side by side; every other pair takes turns, but
    an update need not wait for an operation that ``optimistic`` names: what that has read counts only if no update
    began or ended meanwhile. A call from within another one of the same thread (a signal handler's) is a RuntimeError
    where it would wait for itself. If an exception such as KeyboardInterrupt cuts an update short, some of its leaves
    may be set; the next call recomputes the sums first. Copies and pickles hold a whole tree, and so do forked
    children, except where a fork did not wait for an update to end: the child treats that update as cut short.

    Parameters: ``capacity`` N >= 1; ``fanout`` K >= 2; ``dtype`` of the leaves, "float32" or "float64"; ``threads``
    that may share one batch (1 unless the class is ``threaded``); ``validate=False`` skips checks and conversions,
    after which the caller passes int64 and float64 arrays ``[B]``, C-contiguous and in range, or gets undefined
    results; ``minimum=True`` asks for a fast :meth:`min`. Raises TypeError and ValueError for settings outside their
    bounds.
    """

    threaded: ClassVar[bool] = False
    least_shared: ClassVar[int] = 1
    concurrent: ClassVar[frozenset[str]] = frozenset()
    optimistic: ClassVar[frozenset[str]] = frozenset()
    uses_fanout: ClassVar[bool] = True
    shares_groups: ClassVar[bool] = True
    compiled: ClassVar[bool] = False
    runs_on: ClassVar[str] = "cpu"
    modeled: ClassVar[bool] = False
    fill_seconds: ClassVar[float] = 0.0
    variants: ClassVar[tuple[Mapping[str, Any], ...]] = ()

    def __init__(
        self,
        capacity: int,
        *,
        fanout: int = 16,
        dtype: DTypeLike = "float32",
        threads: int = 1,
        validate: bool = True,
        minimum: bool = False,
    ) -> None:
        self._capacity = integer_at_least("capacity", capacity, 1)
        self._fanout = integer_at_least("fanout", fanout, 2)
        self._dtype = leaf_dtype(dtype)
        self._threads = integer_at_least("threads", threads, 1)
        if self._threads != 1 and not self.threaded:
            raise ValueError(f"{type(self).__name__} works on one thread: threads must be 1, not {threads}")
        if self._threads > (most := self._most_threads()):
            raise ValueError(f"threads must be at most {most} on this machine, not {threads}")
        self._validate = bool(validate)
        self._minimum = bool(minimum)
        self._sizes = level_sizes(self._capacity, self._fanout)
        # Whichever leaves are full, the sum stays finite; half the room is left to rounding.
        self._max_priority = min(float(np.finfo(self._dtype).max), float(np.finfo(np.float64).max) / 2 / self._capacity)
        self._turns = Turns()
        # Invariant: while no call is inside, it is set just where an update was cut short, so that sums may be wrong.
        self._torn = False
        self._lent: list[tuple[int, float]] = []  # leaves that a call has set to 0 and will set to these priorities
        self._allocate()

    # What an implementation provides

    @abstractmethod
    def _allocate(self) -> None:
        """Make the storage of N leaves of priority 0; called once, when every setting is known."""

    @abstractmethod
    def _set(self, indices: Indices, priorities: Reals) -> None:
        """Store priorities ``[B]`` (float64, to be rounded to the leaf dtype) and renew the sums; the last duplicate
        wins."""

    @abstractmethod
    def _get(self, indices: Indices) -> Priorities:
        """Leaves ``[B]`` as stored."""

    @abstractmethod
    def _find(self, mass: Reals) -> Indices:
        """Leaves ``[B]`` for prefix values ``[B]`` below the total. RuntimeError when every leaf is 0."""

    @abstractmethod
    def _total(self) -> float:
        """The root the descent uses."""

    @abstractmethod
    def _check(self) -> float:
        """Largest abs(node - sum of its children); 0.0 for an exact tree."""

    @abstractmethod
    def _rebuild(self) -> None:
        """Recompute every inner node from the leaves."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes the tree occupies, padding included."""

    # What a caller uses

    def update(self, indices: ArrayLike, priorities: ArrayLike) -> None:
        """Set the leaves ``indices [B]`` to ``priorities`` (``[B]``, or one scalar for all), then every ancestor.

        Of equal indices in one batch the last in input order wins. Raises, before anything is written: IndexError
        (index outside [0, N)), TypeError (indices that are not integers), ValueError (NaN, negative, infinite or
        overflowing priority; shapes that do not match).
        """
        if self._validate:
            indices = index_batch(indices, self._capacity)
            priorities = priority_batch(priorities, indices.size, self._dtype, self._max_priority)
        if np.size(indices):
            self._change(self._set, indices, priorities)  # unchecked by request when validate is False

    def get(self, indices: ArrayLike) -> Priorities:
        """Priorities ``[B]`` of ``indices [B]``, exactly as stored. Raises IndexError, TypeError, ValueError."""
        if self._validate:
            indices = index_batch(indices, self._capacity)
        return self._read_batch("get", self._dtype, self._get, indices)

    def prefix_sum_index(self, mass: ArrayLike, side: str = "right") -> Indices:
        """The smallest i with p_0 + .. + p_i > mass, ``[B]`` int64, for prefix values ``mass [B]`` in [0, total).

        With ``side="left"``: the smallest i with p_0 + .. + p_i >= mass, for mass in [0, total]. That is leaf 0 at mass
        0 whatever its priority, in a tree of zeros too; above 0 it is a leaf with a priority above 0. (The words are
        those of bisect and of numpy.searchsorted.)

        Raises ValueError (mass outside its interval, NaN) and RuntimeError (total is 0 and no leaf answers).
        """
        left = one_of("side", side, ("right", "left")) == "left"
        if self._validate:
            mass = real_batch("mass", mass)
        return self._read_batch("prefix_sum_index", np.int64, self._find_by, mass, left)

    def _find_by(self, mass: Reals, left: bool) -> Indices:
        if self._validate:
            mass = mass_batch(mass, self._total(), closed=left)
        return self._find_left(mass) if left else self._find(mass)

    def _find_left(self, mass: Reals) -> Indices:
        """Leaves ``[B]`` for prefix values ``[B]`` in [0, total] by the rule >=."""
        mass = to_numpy(mass)
        above = mass > 0
        indices = np.zeros(mass.size, np.int64)
        if above.any():
            # A sum is >= the value just where it is > the next float below it.
            indices[above] = to_numpy(self._find(self.place(np.nextafter(mass[above], -np.inf))))
        return self.place(indices)

    def prefix_sum(self, indices: ArrayLike) -> Reals:
        """p_0 + .. + p_(i-1), the sum of the first i leaves, ``[B]`` for ``indices [B]`` in [0, N].

        The N-th is :meth:`total`. Raises IndexError (outside [0, N]), TypeError, ValueError.
        """
        if self._validate:
            indices = index_batch(indices, self._capacity, closed=True)
        return self._read_batch("prefix_sum", np.float64, self._prefix_sum, indices)

    def range_sum(self, left: ArrayLike, right: ArrayLike) -> Reals:
        """p_left + .. + p_(right-1), ``[B]`` for bounds ``left [B]`` and ``right [B]``, 0 <= left <= right <= N.

        Either bound may be one scalar for all. No digits are lost to the leaves outside the range: their sums are not
        part of the calculation. Raises IndexError (outside [0, N]), TypeError, ValueError (left above right; shapes
        that do not match).
        """
        if self._validate:
            left, right = range_batch(left, right, self._capacity)
        return self._read_batch("range_sum", np.float64, self._range_sum, left, right)

    def _prefix_sum(self, indices: Indices) -> Reals:
        return self._range_sum(self.place(np.zeros(np.size(indices), np.int64)), indices)

    def _range_sum(self, left: Indices, right: Indices) -> Reals:
        """Sums ``[B]`` of the leaves from ``left [B]`` to before ``right [B]``; of all of them, the total.

        This one reads every leaf.
        """
        leaves, left, right = self._all_leaves(), to_numpy(left), to_numpy(right)
        pairs = zip(left.tolist(), right.tolist(), strict=True)
        sums = np.array([leaves[start:end].cumsum()[-1] if start < end else 0.0 for start, end in pairs])
        sums[(left == 0) & (right == self._capacity)] = self._total()
        return self.place(sums)

    def min(self) -> float:
        """The smallest priority above 0; infinity where there is none.

        It reads every leaf, unless the tree was made with ``minimum=True`` and keeps it with its sums.
        """
        return self._read("min", self._min)

    def _min(self) -> float:
        leaves = self._all_leaves()
        return float(leaves.min(where=leaves > 0, initial=math.inf))

    def _all_leaves(self) -> Reals:
        """Every leaf ``[N]`` in float64, in host memory."""
        return to_numpy(self._get(self.place(np.arange(self._capacity)))).astype(np.float64)

    def sample(self, uniforms: ArrayLike, exclude: ArrayLike | None = None) -> tuple[Indices, Priorities]:
        """Indices ``[B]`` and their priorities ``[B]`` for uniforms u ``[B]`` in [0, 1): prefix value = u * total().

        ``exclude [E]``: leaves that this draw treats as if they were 0, hence never returns; one may be named more than
        once. The leaves are afterwards as they were, bit for bit, and so are exact sums; those kept by deltas drift.
        With ``exclude`` the call takes its turn as an update does.

        Raises ValueError (uniform outside [0, 1), NaN), RuntimeError (every priority is 0, or every leaf above 0 is
        excluded) and, for ``exclude``, IndexError and TypeError.
        """
        if self._validate:
            uniforms = uniform_batch(uniforms)
            exclude = None if exclude is None else index_batch(exclude, self._capacity)
        if not np.size(uniforms):
            return self._nothing(np.int64), self._nothing(self._dtype)
        if exclude is None or not np.size(exclude):
            return self._read("sample", self._sample, uniforms)  # see update
        if (answer := self._change(self._sample_without, uniforms, exclude)) is None:
            raise RuntimeError("nothing to sample: no leaf but the excluded ones has a priority above 0")
        return answer

    def _sample(self, uniforms: Reals) -> tuple[Indices, Priorities]:
        indices = self._find(prefix_values(uniforms, self._total()))
        return indices, self._get(indices)

    def _sample_without(self, uniforms: Reals, exclude: Indices) -> tuple[Indices, Priorities] | None:
        """A draw of leaves but ``exclude [E]``; None where no other leaf is positive."""
        leaves = np.unique(to_numpy(exclude))
        priorities = to_numpy(self._get(self.place(leaves)))
        # Listed before they are 0, so that _recover can give them back.
        self._lent = list(zip(leaves.tolist(), priorities.tolist(), strict=True))
        self._set(leaves, np.zeros(leaves.size))
        answer = self._sample_if_any(uniforms)
        self._give_back()
        return answer

    def _sample_if_any(self, uniforms: Reals) -> tuple[Indices, Priorities] | None:
        """A draw; None where no leaf is positive."""
        try:
            return self._sample(uniforms)
        except RuntimeError as error:
            if type(error) is not RuntimeError:  # a device's
                raise
            return None

    def sample_distinct(self, uniforms: ArrayLike) -> tuple[Indices, Priorities]:
        """Indices ``[B]``, no two equal, and their priorities ``[B]`` for uniforms ``[B]`` in [0, 1).

        Successive sampling, hence without replacement: element j is the leaf that :meth:`sample` returns for uniform j
        in a tree where the leaves before it are 0, so that it has probability p_i / (sum of the leaves not drawn yet).
        The leaves are afterwards as they were, bit for bit, and so are exact sums; those kept by deltas drift. It takes
        its turn as an update does.

        Raises ValueError (uniform outside [0, 1), NaN) and RuntimeError (fewer than B leaves are above 0).
        """
        if self._validate:
            uniforms = uniform_batch(uniforms)
        batch = np.size(uniforms)
        if not batch:
            return self._nothing(np.int64), self._nothing(self._dtype)
        indices, priorities = self._change(self._sample_distinct, uniforms)  # see update
        if indices.size < batch:
            raise RuntimeError(f"{batch} distinct leaves were asked for, and {indices.size} have a priority above 0")
        return indices, priorities

    def _sample_distinct(self, uniforms: Reals) -> tuple[Indices, Priorities]:
        """Distinct leaves ``[<= B]`` and their priorities, fewer than uniforms ``[B]`` where no more are positive."""
        for j in range(np.size(uniforms)):
            # Invariant: the leaves drawn so far are 0, and listed before they are, so that _recover can give them back.
            if (answer := self._sample_if_any(uniforms[j : j + 1])) is None:
                break
            leaf, priority = map(to_numpy, answer)
            if leaf[0] < 0:  # a device's answer where nothing is left and nobody checks
                break
            self._lent.append((int(leaf[0]), float(priority[0])))
            self._set(leaf, np.zeros(1))
        drawn = np.array(self._lent).reshape(-1, 2)
        self._give_back()
        return self.place(drawn[:, 0].astype(np.int64)), self.place(drawn[:, 1].astype(self._dtype))

    def _give_back(self) -> None:
        """Set the leaves that a call had set to 0 to what they were."""
        if self._lent:
            leaves, priorities = zip(*self._lent, strict=True)
            self._set(np.array(leaves), np.array(priorities))
            self._lent = []

    def total(self) -> float:
        """The root the descent uses."""
        return self._read("total", self._total)

    def check(self) -> float:
        """Largest abs(node - sum of its children); 0.0 for an exact tree."""
        return self._read("check", self._check)

    def rebuild(self) -> None:
        """Recompute every inner node from the leaves."""
        self._change(self._rebuild)

    def state_dict(self) -> dict[str, Any]:
        """Leaves ``[N]`` (a copy), capacity and dtype, in host memory: all that another implementation needs."""
        leaves = self._read("state_dict", lambda: to_numpy(self._get(np.arange(self._capacity))))
        return {"leaves": leaves, "capacity": self._capacity, "dtype": self._dtype.name}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the leaves of any implementation's state, at any fanout; another dtype rounds.

        Raises ValueError, before anything is written, for another capacity or leaves that :meth:`update` would refuse.
        """
        missing = {"leaves", "capacity", "dtype"} - set(state)
        if missing:
            raise ValueError(f"the state lacks {', '.join(sorted(missing))}")
        capacity, dtype = integer_at_least("the state's capacity", state["capacity"], 1), str(state["dtype"])
        if capacity != self._capacity:
            raise ValueError(f"the state holds {capacity} leaves, this tree {self._capacity}")
        if np.shape(state["leaves"]) != (capacity,):
            raise ValueError(f"the state's leaves must be [{capacity}], not {list(np.shape(state['leaves']))}")
        leaf_dtype(dtype)
        leaves = priority_batch(state["leaves"], capacity, self._dtype, self._max_priority)
        self._change(self._load, leaves)

    def _load(self, leaves: Reals) -> None:
        """Take all leaves ``[N]`` and recompute every sum."""
        for first in range(0, self._capacity, _LOADED_AT_ONCE):  # a tree keeps room for its largest batch
            part = leaves[first : first + _LOADED_AT_ONCE]
            self._set(np.arange(first, first + part.size), part)
        self._rebuild()

    # Turns: every public method that touches the tree goes through these two

    def _read(self, op: str, hook: Callable[..., Result], *arguments: Any) -> Result:
        """Run the hook when no call is inside that ``op`` must not meet; returns its result."""
        shared = op in self.concurrent
        while (answer := self._turns.run(shared, self._whole, hook, *arguments)) is _TORN:
            self._change(self._rebuild)
        result: Result = answer
        return result

    def _read_batch(
        self, op: str, dtype: DTypeLike, hook: Callable[..., NDArray[Any]], batch: Any, *more: Any
    ) -> NDArray[Any]:
        """Run the hook on a batch ``[B]``, as :meth:`_read` does; of an empty batch the answer is empty."""
        return self._read(op, hook, batch, *more) if np.size(batch) else self._nothing(dtype)

    def _whole(self, hook: Callable[..., Any], *arguments: Any) -> Any:
        return _TORN if self._torn else hook(*arguments)

    def _change(self, hook: Callable[..., Result], *arguments: Any) -> Result:
        """Run a hook that changes the tree when no other call is inside; returns its result."""
        result: Result = self._turns.run(False, self._changed, hook, *arguments)
        return result

    def _changed(self, hook: Callable[..., Result], *arguments: Any) -> Result:
        if self._torn:
            self._recover()
        self._torn = True
        result = hook(*arguments)
        self._torn = False
        return result

    def _recover(self) -> None:
        """Make the tree whole after a call that was cut short."""
        self._rebuild()
        self._give_back()

    @classmethod
    def nbytes_of(cls, capacity: int, fanout: int, dtype: DTypeLike, options: Mapping[str, Any]) -> int | None:
        """Bytes of a tree of that shape, padding included, without making one; None where the shape does not decide.

        Minima (``minimum=True``) are not counted. By default: leaves and, if the tree ``uses_fanout``, ragged levels of
        float64 sums; None for hardware that is ``modeled``.
        """
        array, levels = np.dtype(dtype).itemsize * capacity, level_sizes(capacity, fanout)
        return None if cls.modeled else level_bytes(levels, fanout, dtype) if cls.uses_fanout else array

    @classmethod
    def _most_threads(cls) -> int:
        """Largest ``threads`` that is accepted."""
        return 1

    @classmethod
    def threads_used(cls, batch: int, threads: int) -> int:
        """Threads that really share a batch, where ``threads`` may."""
        return 1 if cls.threaded and batch < cls.least_shared else threads

    @classmethod
    def runs_as(
        cls, capacity: int, batch: int, fanout: int, threads: int, options: Mapping[str, Any]
    ) -> tuple[int, int, dict[str, Any]]:
        """(K, threads, options) of the plainest configuration that runs the very same code at that N and B.

        A group has no more room than the leaves ask for, and an option at its default is none.
        """
        usual = defaults_of(cls)
        own = {name: value for name, value in options.items() if name not in usual or usual[name] != value}
        wide = group_size(capacity, fanout) if cls.uses_fanout else usual["fanout"]
        return wide, cls.threads_used(batch, threads), own

    def rounded(self, priorities: ArrayLike) -> Reals:
        """Priorities ``[B]`` as leaves hold them, in float64: by default the nearest in the leaf dtype."""
        return np.asarray(priorities).astype(self._dtype).astype(np.float64)

    def place(self, array: NDArray[Any]) -> NDArray[Any]:
        """The batch ``[B]`` in memory from which the tree takes it without a copy: by default the array itself."""
        return array

    def _nothing(self, dtype: DTypeLike) -> NDArray[Any]:
        """The answer to an empty batch, on the tree's device."""
        return self.place(np.empty(0, dtype))

    def modeled_seconds(self, op: str, batch: int) -> float | None:
        """None: take a stopwatch. A performance model returns the seconds one call of ``op`` takes."""
        return None

    def synchronize(self) -> None:
        """Wait until the device has finished; nothing on a CPU."""
        return

    @classmethod
    def unavailable(cls) -> str | None:
        """None if a tree can be made here with default options, else one sentence saying why not (a missing device)."""
        return None

    # Facts

    def __len__(self) -> int:
        return self._capacity

    @property
    def capacity(self) -> int:
        """N, the number of leaves."""
        return self._capacity

    @property
    def fanout(self) -> int:
        """K, the children of a node."""
        return self._fanout

    @property
    def height(self) -> int:
        """Levels below the root: max(1, the least h with K**h >= N)."""
        return len(self._sizes) - 1

    @property
    def num_nodes(self) -> int:
        """Leaves and inner nodes, padding excluded."""
        return sum(self._sizes)

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        """Format of the leaves."""
        return self._dtype

    @property
    def largest_priority(self) -> float:
        """The largest priority that :meth:`update` takes."""
        return self._max_priority

    @property
    def smallest_priority(self) -> float:
        """The smallest priority that is not stored as 0, hence can still be sampled."""
        return float(np.finfo(self._dtype).smallest_subnormal)

    @property
    def device(self) -> str:
        """Name of the device that has the tree and its results."""
        return "cpu"

    @property
    def threads(self) -> int:
        """Threads that may share one batch."""
        return self._threads

    # Copying

    def _option(self, name: str) -> Any:
        """Return the value of an option of the constructor, so that a copy is built like its original."""
        return getattr(self, f"_{name}")

    def __reduce__(self) -> tuple[Callable[..., "SumTree"], tuple[Any, ...]]:
        """Pickles and copies carry the leaves, not the sums: a copy is a freshly built tree."""
        settings = {name: self._option(name) for name in defaults_of(type(self))}
        return _restore, (type(self), self._capacity, settings, self.state_dict())

    def __repr__(self) -> str:
        more = ", minimum=True" if self._minimum else ""
        settings = f"capacity={self._capacity}, fanout={self._fanout}, dtype={self._dtype.name!r}{more}"
        return f"{type(self).__name__}({settings})"


@functools.cache
def defaults_of(kind: type[SumTree]) -> Mapping[str, Any]:
    """The options of a class's constructor with their defaults, those of every tree included."""
    own = dict(inspect.signature(SumTree).parameters) | dict(inspect.signature(kind).parameters)
    del own["capacity"]
    return {name: option.default for name, option in own.items() if option.kind is not option.VAR_KEYWORD}


def _restore(kind: type[SumTree], capacity: int, settings: dict[str, Any], state: dict[str, Any]) -> SumTree:
    threads = min(settings["threads"], kind._most_threads())  # it may come from a larger machine
    tree = kind(capacity, **(settings | {"threads": threads}))
    tree.load_state_dict(state)
    return tree


def leaf_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """float32 or float64 as a NumPy dtype; ValueError for anything else."""
    try:
        result = np.dtype(dtype)
    except TypeError:
        result = None
    if dtype is None or result is None or result.name not in LEAF_DTYPES or not result.isnative:
        raise ValueError(f"dtype must be one of {', '.join(LEAF_DTYPES)}, not {dtype!r}")
    return result
