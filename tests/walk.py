"""One generator of random operations that drives any implementation in lock-step with the oracle."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from impls import SumTree, to_numpy
from impls.sumtree.oracle import Oracle

Operation = tuple[str, tuple[Any, ...]]
MOST = 300  # elements of a batch


def operations(seed: int, capacity: int, steps: int, *, integers: bool) -> Iterator[Operation]:
    """Random updates, FIFO insertions, zeroings, draws and retrievals.

    ``integers`` keeps priorities and prefix values exactly representable, so that all give the same bits.
    """
    rng = np.random.default_rng(seed)
    cursor = 0
    for _ in range(steps):
        batch = int(rng.integers(0, min(MOST, 3 * capacity) + 1))
        kind = rng.choice(["update", "insert", "repeat", "zero", "sample", "mass", "get", "rebuild"])
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
            case "get":
                yield "get", (anywhere,)
            case "rebuild":
                yield "rebuild", ()


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

    def sample(self, uniforms):
        return self._tree.sample(self._tree.place(uniforms))

    def prefix_sum_index(self, mass):
        return self._tree.prefix_sum_index(self._tree.place(mass))
