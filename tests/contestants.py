"""The implementations under test: every name in the registry with its defaults, and options worth a run of their own.

A walk of random operations drives any of them in lock-step with the oracle. The GPU tree is tested by its kernels' text
run on the host, whether or not there is a device.
"""

import copy
import functools
import inspect
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import impls
from impls import SumTree, to_numpy
from impls.sumtree.cuda import emulation
from impls.sumtree.oracle import Oracle
from tests.skips import is_expected

CAPACITIES = (1, 2, 3, 1000)  # beside K-1 .. K*K+1, which depend on K

ALWAYS: dict[str, dict[str, Any]] = {"cupy": {"emulate": True, "raise_errors": "now"}}
_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "python": [{"propagate": "delta"}],
    "numpy": [{"propagate": "delta"}, {"padding": "full"}, {"aligned": False}],
    "numba": [  # every value of an option, not every combination: each is compiled for
        {"propagate": "delta"},
        {"layout": "plain"},
        {"threads": 2, "layout": "plain", "propagate": "delta", "aligned": False},
    ],
    "cupy": [
        {"propagate": "delta"},
        {"lanes": 1, "fused": False},
        {"lanes": 32, "fused": False, "propagate": "delta"},
        {"lanes": 16, "fused": True, "aligned": False},
    ],
    "fpga": [
        {"leaf_bits": 40, "fraction_bits": 20, "micro": "scan", "banks": 1, "banking": "contiguous"},
        {"rounding": "up"},
    ],
}


def make(name: str, capacity: int, **settings: Any) -> SumTree:
    """An implementation with its defaults, where it is tested."""
    return impls.make(name, capacity, **(ALWAYS.get(name, {}) | settings))


def _why_not(name: str) -> str | None:
    return emulation.why_not() if "emulate" in ALWAYS.get(name, {}) else impls.why_not(name)


def _case(name: str, options: dict[str, Any]) -> Any:
    reason = _why_not(name)
    label = "-".join([name, *(f"{key}={value}" for key, value in options.items())])
    marks = [pytest.mark.skip(reason=reason)] if reason else []
    return pytest.param(name, ALWAYS.get(name, {}) | options, id=label, marks=marks)


def variants_of(name: str) -> list[dict[str, Any]]:
    """The options with which an implementation is tested, its defaults first."""
    return [ALWAYS.get(name, {}) | options for options in [{}, *_OPTIONS.get(name, [])]]


NAMES = [name for name in impls.names() if _why_not(name) is None]
VARIANTS = [_case(name, options) for name in impls.names() for options in [{}, *_OPTIONS.get(name, [])]]
DEFAULTS = [_case(name, {}) for name in impls.names()]
every_implementation = pytest.mark.parametrize(("name", "options"), DEFAULTS)


def every_variant(test: Callable[..., None]) -> Callable[..., None]:
    """A test of ``name`` and ``options``, a case a name: it goes over all options.

    An expected skip leaves out its own options alone; where all are skipped, or for another reason, the case is.
    """

    @functools.wraps(test)
    def run(name: str, **more: Any) -> None:
        skips, variants = [], list(variants_of(name))
        for options in variants:
            try:
                test(name=name, options=options, **more)
            except pytest.skip.Exception as skip:
                skips.append(skip)
                if len(skips) == len(variants) or not is_expected(str(skip)):
                    raise
            except BaseException as error:
                error.add_note(f"with the options {options}")
                raise

    parameters = inspect.signature(test).parameters.values()
    own = [parameter for parameter in parameters if parameter.name != "options"]
    run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]  # which pytest reads
    cases = [pytest.param(case.values[0], id=case.id, marks=case.marks) for case in DEFAULTS]
    return pytest.mark.parametrize("name", cases)(run)


def capacities(fanout: int) -> list[int]:
    """Where levels fill up and begin: around K and K*K."""
    around = [fanout - 1, fanout, fanout + 1, fanout**2 - 1, fanout**2, fanout**2 + 1]
    return sorted({*CAPACITIES, *around})


def requires(tree: SumTree, *priorities: float) -> None:
    """Skip a test whose priorities the tree's leaf format does not hold."""
    for priority in priorities:
        if priority > tree.largest_priority or tree.rounded(priority) != tree.dtype.type(priority):
            pytest.skip(f"a leaf of {tree!r} does not hold {priority:g}")


def contents(tree: SumTree) -> bytes:
    """Every bit the tree holds: the arrays and lists among its attributes, but for what an update scribbles on."""
    return b"".join(_bits(value) for name, value in sorted(vars(tree).items()) if name != "_scratch")


def _bits(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, (list, tuple)):
        return b"".join(map(_bits, value))
    if isinstance(value, (int, float)):
        return struct.pack("d", value)
    return b""


# Random operations beside the oracle

MOST, FEW = 300, 12  # elements of a batch; distinct leaves of one, because most implementations take them one by one
KINDS = ("update", "insert", "repeat", "zero", "sample", "mass", "distinct", "get", "rebuild")
KINDS += ("search_left", "sample_without", "range", "minimum")
BATCHES = ("update", "get", "sample", "sample_distinct", "prefix_sum_index", "prefix_sum", "range_sum")


def walk(tree: Any, seed: int, steps: int, *, integers: bool, exact: bool) -> None:
    """Apply operations to the tree and to an oracle; after each, every answer and ``check()`` must agree.

    ``integers`` keeps priorities and prefix values exactly representable, so that all give the same bits.
    """
    here = Walk(tree, seed, integers, exact)
    for number in range(steps):
        kind = here.draw()
        try:
            getattr(here, kind)()
            here.compare_sums()
        except BaseException as error:
            error.add_note(f"step {number} ({kind}) of seed {seed} on {tree!r}")
            raise


class Walk:
    """Random updates, FIFO insertions, zeroings, draws and questions: a method of each kind."""

    def __init__(self, tree: Any, seed: int, integers: bool, exact: bool) -> None:
        self.tree, self.oracle = tree, Oracle(tree.capacity, tree.dtype.name, tree.rounded)
        self.rng, self.integers, self.exact = np.random.default_rng(seed), integers, exact
        self.cursor = 0
        self.scale = 0.0  # the largest total so far: what drift is measured by

    def draw(self) -> str:
        """Draw the kind of an operation, and what it needs."""
        rng, capacity = self.rng, self.tree.capacity
        self.batch = int(rng.integers(0, min(MOST, 3 * capacity) + 1))
        kind = str(rng.choice(KINDS))
        whole = rng.integers(0, 50, self.batch).astype(float) if self.integers else None
        self.values = rng.random(self.batch) * 10.0 ** rng.integers(-6, 7) if whole is None else whole
        self.where = rng.integers(0, capacity, self.batch)
        return kind

    def compare_sums(self) -> None:
        """The audit and the total, whatever the operation was."""
        self.scale = max(self.scale, self.oracle.total())
        assert self.tree.check() <= self.drift
        assert abs(self.tree.total() - self.oracle.total()) <= (0.0 if self.integers else 1e-12 * self.scale)

    @property
    def drift(self) -> float:
        """Sums may be off by so much."""
        return 0.0 if self.exact or self.integers else 1e-12 * self.scale

    def set(self, where: Any, values: Any) -> None:
        self.tree.update(where, values)
        self.oracle.update(where, values)

    def update(self) -> None:
        self.set(self.where, self.values)

    def insert(self) -> None:
        """Set the next slots, round and round, all to one priority."""
        slots = (self.cursor + np.arange(self.batch)) % self.tree.capacity
        self.set(slots, float(self.rng.integers(1, 9)))
        self.cursor = (self.cursor + self.batch) % self.tree.capacity

    def repeat(self) -> None:
        """Set one leaf over and over."""
        self.set(np.full(self.batch, self.rng.integers(0, self.tree.capacity)), self.values)

    def zero(self) -> None:
        self.set(self.where, 0.0)

    def rebuild(self) -> None:
        self.tree.rebuild()

    def get(self, where: Any = None) -> None:
        where = self.where if where is None else where
        assert np.array_equal(to_numpy(self.tree.get(where)), self.oracle.get(where))

    def minimum(self) -> None:
        assert self.tree.min() == self.oracle.min()

    def sample(self) -> None:
        uniforms = self.rng.random(self.batch)
        if self.is_empty(uniforms):
            return
        indices, priorities = map(to_numpy, self.tree.sample(uniforms))
        assert np.array_equal(priorities, self.oracle.get(indices))
        self.compare_places(indices, uniforms * self.tree.total())

    def mass(self) -> None:
        uniforms = self.rng.random(self.batch)
        if self.is_empty(uniforms):
            return
        total = self.tree.total()
        mass = np.floor(uniforms * total) if self.integers else uniforms * total * (1 - 1e-15)
        indices = to_numpy(self.tree.prefix_sum_index(mass))
        self.compare_places(indices, mass)
        assert not self.integers or np.array_equal(indices, self.oracle.prefix_sum_index(mass))

    def is_empty(self, uniforms: Any) -> bool:
        """Whether there is nothing to sample, which a draw must say."""
        if self.oracle.total() == 0.0 and uniforms.size:
            with pytest.raises(RuntimeError):
                self.tree.sample(uniforms)
        return self.oracle.total() == 0.0

    def compare_places(self, indices: Any, mass: Any) -> None:
        assert (indices.dtype, indices.shape) == (np.int64, mass.shape)
        assert self.oracle.misses(indices, mass).size == 0

    def distinct(self) -> None:
        uniforms, positive = self.rng.random(min(self.batch, FEW)), np.count_nonzero(self.oracle.leaves)
        if uniforms.size > positive:
            with pytest.raises(RuntimeError, match=f"and {positive} have a priority above 0"):
                self.tree.sample_distinct(uniforms)
            uniforms = uniforms[:positive]
        indices, priorities = map(to_numpy, self.tree.sample_distinct(uniforms))
        assert np.array_equal(priorities, self.oracle.get(indices)) and (priorities > 0).all()
        assert len(set(indices.tolist())) == uniforms.size
        left = copy.deepcopy(self.oracle)
        for index, uniform in zip(indices, uniforms, strict=True):
            # Invariant: left has the leaves that were not drawn yet.
            assert not self.exact or left.misses(index, uniform * left.total()).size == 0
            left.leaves[index] = 0.0
        assert not self.integers or np.array_equal(indices, self.oracle.sample_distinct(uniforms))
        self.get(np.arange(self.tree.capacity))

    def search_left(self) -> None:
        """Search by the rule >=."""
        uniforms = self.rng.random(self.batch)
        if self.oracle.total() == 0.0:
            assert to_numpy(self.tree.prefix_sum_index(0.0 * uniforms, side="left")).tolist() == [0] * uniforms.size
            return
        mass = np.ceil(uniforms * self.tree.total()) if self.integers else uniforms * self.tree.total()
        mass[:2] = [0.0, self.tree.total()][: mass.size]
        indices, above = to_numpy(self.tree.prefix_sum_index(mass, side="left")), mass > 0
        assert not self.integers or np.array_equal(indices, self.oracle.prefix_sum_index(mass, side="left"))
        assert (indices[~above] == 0).all()
        self.compare_places(indices[above], np.nextafter(mass[above], 0))

    def sample_without(self) -> None:
        """Sample beside excluded leaves."""
        uniforms, exclude = self.rng.random(self.batch), self.where[: self.rng.integers(0, self.batch + 1)]
        left, total, is_exact = copy.deepcopy(self.oracle), self.tree.total(), self.exact or self.integers
        left.leaves[exclude] = 0.0
        if left.total() == 0.0 and uniforms.size:
            with pytest.raises(RuntimeError, match="nothing to sample"):
                self.tree.sample(uniforms, exclude)
        else:
            indices, priorities = map(to_numpy, self.tree.sample(uniforms, exclude))
            assert np.array_equal(priorities, left.get(indices)) and not np.isin(indices, exclude).any()
            assert not is_exact or left.misses(indices, uniforms * left.total()).size == 0
        self.get(np.arange(self.tree.capacity))
        assert not is_exact or self.tree.total() == total

    def range(self) -> None:
        bounds = self.rng.integers(0, self.tree.capacity + 1, (2, min(self.batch, FEW)))
        left, right = np.sort(bounds, axis=0)
        for sums, start in ((self.tree.range_sum(left, right), left), (self.tree.prefix_sum(right), 0 * left)):
            assert to_numpy(sums).dtype == np.float64
            assert np.allclose(to_numpy(sums), self.oracle.range_sum(start, right), rtol=1e-12, atol=self.drift)


class Handing:
    """A tree that gets each argument of a call as ``hand`` makes it of the argument and of the first one."""

    def __init__(self, tree: SumTree, hand: Callable[[Any, Any], Any]) -> None:
        self._tree, self._hand = tree, hand

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tree, name)
        if name not in BATCHES:
            return found
        return lambda first, *more, **named: found(*(self._hand(part, first) for part in (first, *more)), **named)

    def __repr__(self) -> str:
        return repr(self._tree)


def placing(tree: Any) -> Handing:
    """The tree, which is handed every batch on the device."""
    return Handing(tree, lambda part, first: tree.place(part) if isinstance(part, np.ndarray) else part)
