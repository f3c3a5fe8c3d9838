"""One generator of random operations that drives any implementation in lock-step with the oracle."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from impls import SumTree, to_numpy
from impls.sumtree.oracle import Oracle

Operation = tuple[str, tuple[Any, ...]]
MOST = 300  # elements of a batch
FEW = 12  # distinct leaves of a batch, because most implementations take them one by one
MORE = ("left", "without", "range", "minimum")


def operations(seed: int, capacity: int, steps: int, *, integers: bool) -> Iterator[Operation]:
    """Random updates, FIFO insertions, zeroings, draws and retrievals.

    ``integers`` keeps priorities and prefix values exactly representable, so that all give the same bits.
    """
    rng = np.random.default_rng(seed)
    cursor = 0
    for _ in range(steps):
        batch = int(rng.integers(0, min(MOST, 3 * capacity) + 1))
        kind = rng.choice(["update", "insert", "repeat", "zero", "sample", "mass", "distinct", "get", "rebuild", *MORE])
        values = (
            rng.integers(0, 50, batch).astype(float) if integers else rng.random(batch) * 10.0 ** rng.integers(-6, 7)
        )
        anywhere = rng.integers(0, capacity, batch)
        match str(kind):
            case "update":
                yield "update", (anywhere, values)
            case "insert":  # the next slots, round and round, all at one priority
                yield "update", ((cursor + np.arange(batch)) % capacity, float(rng.integers(1, 9)))
                cursor = (cursor + batch) % capacity
            case "repeat":  # one leaf over and over
                yield "update", (np.full(batch, rng.integers(0, capacity)), values)
            case "zero":
                yield "update", (anywhere, 0.0)
            case "sample":
                yield "sample", (rng.random(batch),)
            case "mass":
                yield "mass", (rng.random(batch),)
            case "distinct":
                yield "distinct", (rng.random(min(batch, FEW)),)
            case "get":
                yield "get", (anywhere,)
            case "rebuild":
                yield "rebuild", ()
            case other:
                yield from _questions(str(other), rng, capacity, anywhere)


def _questions(kind: str, rng: np.random.Generator, capacity: int, anywhere: Any) -> Iterator[Operation]:
    match kind:
        case "left":
            yield "left", (rng.random(anywhere.size),)
        case "without":
            yield "without", (rng.random(anywhere.size), anywhere[: rng.integers(0, anywhere.size + 1)])
        case "range":
            bounds = np.sort(rng.integers(0, capacity + 1, (2, min(anywhere.size, FEW))), axis=0)
            yield "range", (bounds[0], bounds[1])
        case "minimum":
            yield "minimum", ()


def walk(tree: SumTree, seed: int, steps: int, *, integers: bool, exact: bool) -> None:
    """Apply the operations to the tree and to an oracle; after each, every answer and ``check()`` must agree."""
    oracle = Oracle(tree.capacity, tree.dtype.name, tree.rounded)
    scale = 0.0  # the largest total so far: what drift is measured by
    for number, (kind, arguments) in enumerate(operations(seed, tree.capacity, steps, integers=integers)):
        where = f"step {number} ({kind}) of seed {seed} on {tree!r}"
        if kind == "update":
            tree.update(*arguments)
            oracle.update(*arguments)
        elif kind == "rebuild":
            tree.rebuild()
        elif kind == "get":
            assert np.array_equal(to_numpy(tree.get(*arguments)), oracle.get(*arguments)), where
        elif kind == "distinct":
            _compare_distinct(tree, oracle, arguments[0], integers, exact, where)
        elif kind == "left":
            _compare_left(tree, oracle, arguments[0], integers, where)
        elif kind == "without":
            _compare_without(tree, oracle, *arguments, exact or integers, where)
        elif kind == "range":
            drift = 0.0 if exact or integers else 1e-12 * scale
            _compare_ranges(tree, oracle, *arguments, drift, where)
        elif kind == "minimum":
            assert tree.min() == oracle.min(), where
        else:
            _compare_draws(tree, oracle, kind, arguments[0], integers, where)
        scale = max(scale, oracle.total())
        drift = 0.0 if exact or integers else 1e-12 * scale
        assert tree.check() <= drift, where
        assert abs(tree.total() - oracle.total()) <= (0.0 if integers else 1e-12 * scale), where


def _compare_draws(
    tree: SumTree, oracle: Oracle, kind: str, uniforms: np.ndarray[Any, Any], integers: bool, where: str
) -> None:
    if oracle.total() == 0.0:
        if uniforms.size:
            try:
                tree.sample(uniforms)
            except RuntimeError:
                return
            raise AssertionError(f"an empty tree was sampled: {where}")
        return
    if kind == "sample":
        indices, priorities = map(to_numpy, tree.sample(uniforms))
        mass = uniforms * tree.total()
        assert np.array_equal(priorities, oracle.get(indices)), where
    else:
        mass = np.floor(uniforms * tree.total()) if integers else uniforms * tree.total() * (1 - 1e-15)
        indices = to_numpy(tree.prefix_sum_index(mass))
    assert indices.dtype == np.int64
    assert indices.shape == uniforms.shape
    if integers and kind == "mass":
        assert np.array_equal(indices, oracle.prefix_sum_index(mass)), where
    assert oracle.misses(indices, mass).size == 0, where


def _compare_distinct(
    tree: SumTree, oracle: Oracle, uniforms: np.ndarray[Any, Any], integers: bool, exact: bool, where: str
) -> None:
    positive = np.count_nonzero(oracle.leaves)
    if uniforms.size > positive:
        try:
            tree.sample_distinct(uniforms)
        except RuntimeError as error:
            assert f"and {positive} have a priority above 0" in str(error), where
        else:
            raise AssertionError(f"more leaves were drawn than there are: {where}")
        uniforms = uniforms[:positive]
    indices, priorities = map(to_numpy, tree.sample_distinct(uniforms))
    assert np.array_equal(priorities, oracle.get(indices)), where
    assert (priorities > 0).all(), where
    assert len(set(indices.tolist())) == uniforms.size, where
    left = copy.deepcopy(oracle)
    for index, uniform in zip(indices, uniforms, strict=True):
        # Invariant: left has the leaves that were not drawn yet.
        assert not exact or left.misses(index, uniform * left.total()).size == 0, where
        left.leaves[index] = 0.0
    assert not integers or np.array_equal(indices, oracle.sample_distinct(uniforms)), where
    assert np.array_equal(to_numpy(tree.get(np.arange(tree.capacity))), oracle.leaves), where


def _compare_left(tree: SumTree, oracle: Oracle, uniforms: np.ndarray[Any, Any], integers: bool, where: str) -> None:
    if oracle.total() == 0.0:
        assert to_numpy(tree.prefix_sum_index(0.0 * uniforms, side="left")).tolist() == [0] * uniforms.size, where
        return
    mass = np.ceil(uniforms * tree.total()) if integers else uniforms * tree.total()
    mass[:2] = [0.0, tree.total()][: mass.size]
    indices = to_numpy(tree.prefix_sum_index(mass, side="left"))
    assert indices.dtype == np.int64, where
    assert not integers or np.array_equal(indices, oracle.prefix_sum_index(mass, side="left")), where
    assert (indices[mass == 0] == 0).all(), where
    above = mass > 0
    assert oracle.misses(indices[above], np.nextafter(mass[above], 0)).size == 0, where


def _compare_without(
    tree: SumTree,
    oracle: Oracle,
    uniforms: np.ndarray[Any, Any],
    exclude: np.ndarray[Any, Any],
    exact: bool,
    where: str,
) -> None:
    left = copy.deepcopy(oracle)
    left.leaves[exclude] = 0.0
    total = tree.total()
    if left.total() == 0.0 and uniforms.size:
        try:
            tree.sample(uniforms, exclude)
        except RuntimeError as error:
            assert "nothing to sample" in str(error), where
        else:
            raise AssertionError(f"an excluded leaf was drawn: {where}")
    else:
        indices, priorities = map(to_numpy, tree.sample(uniforms, exclude))
        assert np.array_equal(priorities, left.get(indices)), where
        assert not np.isin(indices, exclude).any(), where
        assert not exact or left.misses(indices, uniforms * left.total()).size == 0, where
    assert np.array_equal(to_numpy(tree.get(np.arange(tree.capacity))), oracle.leaves), where
    assert not exact or tree.total() == total, where


def _compare_ranges(
    tree: SumTree, oracle: Oracle, left: np.ndarray[Any, Any], right: np.ndarray[Any, Any], drift: float, where: str
) -> None:
    starts = np.zeros_like(left)
    for sums, expected in (
        (tree.range_sum(left, right), oracle.range_sum(left, right)),
        (tree.prefix_sum(right), oracle.range_sum(starts, right)),
    ):
        assert to_numpy(sums).dtype == np.float64, where
        assert np.allclose(to_numpy(sums), expected, rtol=1e-12, atol=drift), where


class Placing:
    """Hands every batch over on the device."""

    def __init__(self, tree):
        self._tree = tree

    def __getattr__(self, name):
        return getattr(self._tree, name)

    def __repr__(self):
        return repr(self._tree)

    def update(self, indices, priorities):
        priorities = priorities if isinstance(priorities, float) else self._tree.place(priorities)
        self._tree.update(self._tree.place(indices), priorities)

    def get(self, indices):
        return self._tree.get(self._tree.place(indices))

    def sample(self, uniforms, exclude=None):
        return self._tree.sample(self._tree.place(uniforms), None if exclude is None else self._tree.place(exclude))

    def prefix_sum_index(self, mass, side="right"):
        return self._tree.prefix_sum_index(self._tree.place(mass), side)

    def range_sum(self, left, right):
        return self._tree.range_sum(self._tree.place(left), self._tree.place(right))

    def prefix_sum(self, indices):
        return self._tree.prefix_sum(self._tree.place(indices))
