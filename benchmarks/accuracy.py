"""The checks of ``dse.accuracy.CHECKS``: how a tree errs, the same checks for every library and for ours."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import impls
from dse.accuracy import CHECKS

TARGETS = 100_000
LEAVES = 1_000_000
DRAWS = 2_000_000
PART = 10_000  # leaves sampled by a call
LONGEST_SECONDS = 3.0  # of sampling: slow trees sample less than DRAWS
UPDATES = 512_000
DRIFT_LEAVES, DRIFT_BATCH = 10_000, 1_000

Maker = Callable[..., Any]
Finding = tuple[int, int, float | None, str | None]  # capacity, trials, value, note


def checks(make: Maker, contestant: str, dtype: str, seed: int) -> list[dict[str, Any]]:
    """Return each check of one tree as the fields of an ``Accuracy``; ``value`` is None where it cannot be made."""
    trees = _Trees(make, contestant, dtype, seed)
    results = []
    for check in CHECKS:
        try:
            capacity, trials, value, note = getattr(trees, check)()
        except NotImplementedError as reason:
            capacity, trials, value, note = 0, 0, None, str(reason)
        fields = {"capacity": capacity, "trials": trials, "value": value, "note": note}
        results.append({"contestant": contestant, "dtype": dtype, "check": check, **fields})
    return results


class _Trees:
    """The trees of one library, and a method for each check."""

    def __init__(self, make: Maker, contestant: str, dtype: str, seed: int) -> None:
        self._make, self._contestant, self._dtype = make, contestant, dtype
        self._rng = np.random.default_rng(seed)

    def wrong_leaf(self) -> Finding:
        leaves = self._rng.random(LEAVES)
        tree, ends = self._filled(leaves)
        targets = self._rng.random(TARGETS) * float(ends[-1]) * (1 - 1e-12)
        answers = impls.to_numpy(tree.prefix_sum_index(tree.place(targets.copy())))
        # A target so near to a partial sum that float64 cannot tell is no fault.
        exact = [np.searchsorted(ends, targets * (1 + slack), side="right") for slack in (-1e-13, 1e-13)]
        wrong = (answers < exact[0]) | (answers > exact[1])
        return LEAVES, TARGETS, int(wrong.sum()), None

    def zero_leaf(self) -> Finding:
        leaves = np.where(self._rng.random(LEAVES) < 0.5, 0.0, self._rng.random(LEAVES))
        tree, _ = self._filled(leaves)
        zeros = samples = 0
        for indices in self._draws(tree):
            inside = indices[(indices >= 0) & (indices < LEAVES)]
            zeros += int((leaves[inside] == 0).sum())
            samples += indices.size
        return LEAVES, samples, zeros, None

    def zero_leaf_at_0(self) -> Finding:
        tree, _ = self._filled(np.array([0.0, 1.0, 2.0, 1.0]))
        leaf, note = _answer(tree, 0.0)
        return 4, 1, float(leaf == 0), note

    def out_of_range(self) -> Finding:
        tree, _ = self._filled(self._rng.random(LEAVES))
        outside = samples = raised = 0
        for indices in self._draws(tree):
            outside += int(((indices < 0) | (indices >= LEAVES)).sum())
            samples += indices.size
            raised += indices.size == 0
        return LEAVES, samples, outside, f"{raised} batches raised an error" if raised else None

    def at_total(self) -> Finding:
        tree, _ = self._filled(np.array([1.0, 2.0, 1.0, 0.0]))
        leaf, note = _answer(tree, tree.total())
        return 4, 1, float(leaf is not None), note

    def drift(self) -> Finding:
        tree = self._new(DRIFT_LEAVES)
        for _ in range(UPDATES // DRIFT_BATCH):
            indices = self._rng.permutation(DRIFT_LEAVES)[:DRIFT_BATCH]
            tree.update(tree.place(indices), tree.place(10.0 ** self._rng.uniform(-6, 0, DRIFT_BATCH)))
        least = self._stored(tree, np.full(DRIFT_LEAVES, 1e-6))  # all small: what is left over shows
        everywhere = tree.place(np.arange(DRIFT_LEAVES))
        tree.update(everywhere, tree.place(least))
        total, exact = tree.total(), float(least.sum())
        tree.update(everywhere, tree.place(np.zeros(DRIFT_LEAVES)))
        note = f"read {total:.6g} for {exact:.6g}; after zeroing every leaf {tree.total():.3g}"
        return DRIFT_LEAVES, UPDATES, abs(total - exact) / exact, note

    def duplicates(self) -> Finding:
        tree, _ = self._filled(np.ones(8))
        tree.update(tree.place(np.array([3, 5, 3, 3])), tree.place(np.array([2.0, 4.0, 7.0, 9.0])))
        leaf = float(impls.to_numpy(tree.get(tree.place(np.array([3]))))[0])
        total = tree.total()
        right = leaf == 9.0 and total == 19.0
        return 8, 1, float(not right), None if right else f"leaf {leaf:g} at a total of {total:g}, expected 9 and 19"

    def _new(self, capacity: int) -> Any:
        return self._make(self._contestant, capacity, dtype=self._dtype)

    def _filled(self, leaves: np.ndarray[Any, Any]) -> tuple[Any, Any]:
        """Return a tree of these leaves, and the exact inclusive prefix sums of the leaves as the tree stores them."""
        tree = self._new(leaves.size)
        stored = self._stored(tree, leaves)
        tree.load_state_dict({"leaves": stored.astype(self._dtype), "capacity": leaves.size, "dtype": self._dtype})
        return tree, np.cumsum(stored, dtype=np.longdouble)

    def _stored(self, tree: Any, leaves: np.ndarray[Any, Any]) -> Any:
        """Return the leaves as the tree rounds them, in float64."""
        if hasattr(tree, "rounded"):
            return tree.rounded(leaves)
        return leaves.astype(self._dtype).astype(np.float64)

    def _draws(self, tree: Any) -> Iterator[Any]:
        """Yield batches of sampled leaves ``[B]``; an empty batch where the tree raised."""
        end = time.perf_counter() + LONGEST_SECONDS
        for _ in range(DRAWS // PART):
            if time.perf_counter() > end:
                return
            try:
                yield impls.to_numpy(tree.sample(tree.place(self._rng.random(PART)))[0])
            except (ValueError, AssertionError, IndexError):
                yield np.empty(0, np.int64)


def _answer(tree: Any, mass: float) -> tuple[int | None, str]:
    """Return the leaf that a single prefix value falls on, or None where it is refused, and a note of either."""
    try:
        leaf = int(impls.to_numpy(tree.prefix_sum_index(tree.place(np.array([mass]))))[0])
    except (ValueError, AssertionError, IndexError, RuntimeError) as error:
        if isinstance(error, NotImplementedError):
            raise
        return None, f"refused ({type(error).__name__})"
    return leaf, f"answered leaf {leaf}"
