"""The prioritized replay buffer on any sum tree [Schaul2016].

A leaf holds (|TD error| + epsilon)^alpha. Slots are reused first in, first out. No locks: one thread at a time.

A replay in segments [Zhang2022, section 3.2.3, Alg. 2] is for records whose importance weights hold among themselves.
Model-based training samples M states in proportion to priorities that change from one time to the next, and stores the
M records that the model makes of them with their importance weights (Eq. 3.8). Such weights belong to the distribution
that the states were sampled from, so that a batch must not mix records of two. Each group of M records therefore has a
segment of its own, and a batch comes from one segment, chosen uniformly, whose rows are then sampled uniformly.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import integer_at_least, one_of, short
from ..cores import check_free
from ..sumtree.arguments import stratified, to_numpy
from ..sumtree.contract import SumTree
from .batches import check_beta, check_pairs, mask_of, not_finite, reals, tickets_of, uniforms_of
from .layout import Arrays, Layout, check_layout
from .values import arrays_of, check_count, check_mapping, checked, counted, fields_of, number, rules_of

Sequence = NDArray[np.int64]
Reals = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Batch:
    """B sampled transitions.

    ``rows``: observation, action, reward, next_observation and terminated, each ``[B, ...]``; ``weights [B]`` float32
    importance weights, the largest of the batch 1; ``sequence [B]`` the number of records inserted before each.
    """

    rows: Arrays
    weights: NDArray[np.float32]
    sequence: Sequence


class PrioritizedBuffer:
    """Records in preallocated arrays, priorities in ``tree``, whose capacity is the buffer's.

    ``alpha`` >= 0 (0 samples uniformly), ``epsilon`` > 0, else ValueError. Uniforms are stratified, one in each of B
    equal intervals. ``max_priority`` is what records without an error get: the largest priority "ever" given, at first
    1.0; or the "current" one, which reads all N: the largest of the records that remain, 1.0 where none does.
    """

    def __init__(
        self, tree: SumTree, layout: Layout, *, alpha: float, epsilon: float, max_priority: str = "ever"
    ) -> None:
        if not (0 <= number("alpha", alpha) < np.inf and 0 < number("epsilon", epsilon) < np.inf):
            raise ValueError(f"alpha must be at least 0 and epsilon above 0, not {alpha} and {epsilon}")
        check_layout(layout)
        self.tree, self.layout = tree, layout
        self._alpha, self._epsilon = alpha, epsilon
        # No subnormal priority: threads that take these for 0 would never sample it.
        self._least = max(tree.smallest_priority, float(np.finfo(tree.dtype).tiny))
        self._is_current = one_of("max_priority", max_priority, ("ever", "current")) == "current"
        self._arrays, self._rules = layout.allocate(tree.capacity), rules_of(layout)
        # Invariants: the s-th record inserted (from 0) lies in slot s % N until the (s + N)-th takes its place; a leaf
        # is above 0 just where its slot is drawable, and ``_count`` slots are.
        self._drawable = np.zeros(tree.capacity, np.bool_)
        self._count = 0
        self._written = 0
        self._largest = 1.0

    def __len__(self) -> int:
        """Number of records that may be sampled."""
        return self._count

    @property
    def written(self) -> int:
        """Number of records ever inserted, fillers included."""
        return self._written

    def insert(
        self, records: Mapping[str, NDArray[Any]], errors: ArrayLike | None = None, drawable: ArrayLike | None = None
    ) -> None:
        """Store records, ``[n, ...]`` of each field, over the oldest ones.

        Their priorities come from ``errors``, the |TD error| of each that is drawable, or are the largest.
        ``drawable [n]`` is False for fillers (see ``layout``), and required for stacked frames. Raises ValueError,
        before anything is written, for errors that are no priorities, fields, shapes or values that are not the
        layout's, or more records than the capacity.
        """
        fields = fields_of(records, self._rules)
        count = fields["reward"].size
        mask = mask_of(drawable, count, self.layout)
        keep = np.ones(count, np.bool_) if mask is None else mask
        new = None if errors is None else self._leaves(errors)
        check_count(count, self.tree.capacity, keep, None if new is None else new.size)
        leaves = np.zeros(count)
        slots = (self._written + np.arange(count)) % self.tree.capacity
        stale = self._cut_stacks(count)
        leaves[keep] = self._largest_without(slots, stale) if new is None else new
        self.tree.update(np.concatenate((slots, stale)), np.concatenate((leaves, np.zeros(stale.size))))
        for name, array in self._arrays.items():
            array[slots] = fields[name]
        self._count -= int(self._drawable[slots].sum()) + int(self._drawable[stale].sum())
        self._drawable[slots], self._drawable[stale] = keep, False
        self._count += int(keep.sum())
        self._written += count
        self._largest = max(self._largest, float(leaves.max(initial=0.0)))

    @np.errstate(under="ignore")
    def sample(
        self, batch: int, beta: float, rng: np.random.Generator | None = None, *, distinct: bool = False
    ) -> Batch:
        """B = ``batch`` records sampled in proportion to their priorities. RuntimeError when there are none.

        ``distinct`` samples without replacement, each next one in proportion to its priority among those left, from
        uniforms that are not stratified; weights are as ever. RuntimeError when there are fewer than B records.
        """
        check_beta(beta)
        uniforms = uniforms_of(integer_at_least("batch", batch, 0), rng, None)
        sampled = self.tree.sample_distinct(uniforms) if distinct else self.tree.sample(stratified(uniforms))
        slots, priorities = to_numpy(sampled[0]), to_numpy(sampled[1]).astype(np.float64)
        # Divided by the largest, a gradient step does not grow with a rare record. N and the total cancel: left out,
        # for at the ends of float64's range a priority over the total is 0.
        weights = ((priorities.min(initial=np.inf) / priorities) ** beta).astype(np.float32)
        return Batch(self.layout.gather(self._arrays, slots), weights, self._sequence(slots))

    def update_priorities(self, sequence: Sequence, errors: ArrayLike) -> NDArray[np.bool_]:
        """Set the priorities of sampled records ``sequence [B]`` from their new |TD errors| ``[B]``.

        Returns ``[B]`` which of them were still there; those overwritten since stay as they are. ValueError for errors
        that are no priorities, with nothing written.
        """
        sequence, leaves = tickets_of(sequence), self._leaves(errors)
        check_pairs(sequence, leaves)
        slots, present = self._find(sequence)
        self.tree.update(slots[present], leaves[present])
        self._largest = max(self._largest, float(leaves[present].max(initial=0.0)))
        return present

    def retrieve_priorities(self, sequence: Sequence) -> NDArray[np.float64]:
        """Priorities ``[B]`` that sampled records ``sequence [B]`` have at this moment, 0 of those overwritten since.

        TypeError for numbers that are no integers, ValueError for another shape.
        """
        slots, present = self._find(tickets_of(sequence))
        return np.where(present, to_numpy(self.tree.get(slots)), 0.0).astype(np.float64, copy=False)

    def _find(self, sequence: Sequence) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Slots ``[B]`` of records, and whether they are still there."""
        slots = sequence % self.tree.capacity
        return slots, (self._sequence(slots) == sequence) & self._drawable[slots]

    @np.errstate(over="ignore", under="ignore")
    def _leaves(self, errors: ArrayLike) -> Reals:
        """(|TD error| + epsilon)^alpha ``[B]`` float64, clipped to the priorities that the tree can sample."""
        sizes = np.abs(reals(errors)) + self._epsilon
        if not np.isfinite(sizes).all():
            raise not_finite(sizes)
        leaves: Reals = np.clip(sizes**self._alpha, self._least, self.tree.largest_priority)
        return leaves

    def _largest_without(self, slots: NDArray[np.int64], stale: NDArray[np.int64]) -> float:
        """What records at ``slots`` without an error get, once those there and at ``stale`` are gone."""
        if not self._is_current:
            return self._largest
        leaves = to_numpy(self.tree.get(np.arange(self.tree.capacity)))
        leaves[slots] = leaves[stale] = 0.0
        return float(leaves.max()) or 1.0

    def _sequence(self, slots: NDArray[np.int64]) -> Sequence:
        """The number of records inserted before those at ``slots [B]``, each the latest written to its slot."""
        newest = self._written - 1
        return newest - (newest - slots) % self.tree.capacity

    def _cut_stacks(self, count: int) -> NDArray[np.int64]:
        """Slots of the oldest records that will remain, whose stacks reach into the ``count`` about to be written."""
        end = self._written + count
        cut = min(self.layout.frames - 1, self.tree.capacity - count) if count and end >= self.tree.capacity else 0
        return (end + np.arange(cut)) % self.tree.capacity

    def state_dict(self) -> dict[str, Any]:
        """Records, leaves and counters, as copies; slots that were never written are omitted."""
        filled = min(self._written, self.tree.capacity)
        check_free(filled * self.layout.record_bytes)
        return {
            "arrays": {name: array[:filled].copy() for name, array in self._arrays.items()},
            "leaves": to_numpy(self.tree.get(np.arange(filled))),
            "drawable": self._drawable[:filled].copy(),
            "written": self._written,
            "largest": self._largest,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of any replay of this layout, no larger one. ValueError, with nothing changed, for others."""
        tree = self.tree
        new = checked(state, self.layout, tree.capacity, self._least, tree.largest_priority)
        filled = len(new.leaves)
        leaves = np.zeros(tree.capacity, tree.dtype)
        leaves[:filled] = new.leaves
        tree.load_state_dict({"leaves": leaves, "capacity": tree.capacity, "dtype": tree.dtype.name})
        for name, array in self._arrays.items():
            array[:filled] = new.arrays[name]
        self._drawable[:filled], self._drawable[filled:] = new.drawable, False
        self._count, self._written = int(new.drawable.sum()), new.written
        self._largest = new.largest


def importance_weights(priorities: ArrayLike, total: float, count: int, beta: float) -> Reals:
    """w(i) = (1 / (N P(i)))^beta with P(i) = p_i / total, ``[B]`` float64; N is ``count`` [Zhang2021, section II-C].

    >>> importance_weights([1.0, 3.0], 4.0, 2, 1.0)
    array([2.        , 0.66666667])
    """
    weights: Reals = (total / (count * np.asarray(priorities, np.float64))) ** beta
    return weights


class SegmentedReplay:
    """K = ``segments`` segments of M = ``rows`` records, the oldest segment replaced as a whole.

    A segment may be sampled as soon as it is full. One thread at a time. ValueError for a layout of stacked frames:
    records that a model makes of single states share none.
    """

    def __init__(self, segments: int, rows: int, layout: Layout) -> None:
        self.segments = integer_at_least("segments", segments, 1)
        self.rows = integer_at_least("rows", rows, 1)
        check_layout(layout)
        if layout.frames > 1:
            raise ValueError(f"records of a segment are single states: frames must be 1, not {layout.frames}")
        self.layout, self._rules = layout, rules_of(layout)
        self._arrays = layout.allocate(segments * rows)
        # Invariant: the s-th record inserted (from 0) lies in slot s % (K M), hence in segment s // M % K, from where
        # record s + K M displaces it; weights of a full segment are at most 1, those of the one being filled as given.
        self._weights = np.zeros(segments * rows, np.float64)
        self._written = 0

    def __len__(self) -> int:
        """Number of records that may be sampled: those of full segments."""
        return self.rows * self._full().size

    @property
    def written(self) -> int:
        """Number of records ever inserted."""
        return self._written

    @property
    def room(self) -> int:
        """Number of records that the segment being filled still takes: M when the next one has not been begun."""
        return self.rows - self._written % self.rows

    @np.errstate(under="ignore")
    def insert(self, records: Mapping[str, NDArray[Any]], weights: ArrayLike) -> None:
        """Store ``[n, ...]`` of each field with importance weights ``[n]``, in the segment that is being filled.

        The first record of a group empties the oldest segment. Raises ValueError, before anything is written, for a
        group that would cross into the next segment, weights that are not positive and finite, or fields, shapes or
        values that are not the layout's.
        """
        fields, values = fields_of(records, self._rules), reals(weights, "weights")
        count = fields["reward"].size
        if count > self.room:
            raise ValueError(f"{count} records do not fit into the {self.room} rows left of a segment of {self.rows}")
        if values.shape != (count,) or not ((values > 0) & (values < np.inf)).all():
            raise ValueError(f"weights must be [{count}], positive and finite")
        start = self._written % self._weights.size
        for name, array in self._arrays.items():
            array[start : start + count] = fields[name]
        self._weights[start : start + count] = values
        self._written += count
        if count and self._written % self.rows == 0:
            segment = self._weights[start + count - self.rows : start + count]
            segment /= segment.max()

    def sample(self, batch: int, rng: np.random.Generator) -> Batch:
        """B = ``batch`` records sampled uniformly, with replacement, from one full segment that is sampled uniformly.

        ``weights [B]`` are those they were inserted with over the largest of their segment; ``sequence [B]`` the number
        of records inserted before each. RuntimeError while no segment is full.
        """
        integer_at_least("batch", batch, 0)
        if not isinstance(rng, np.random.Generator):
            raise TypeError(f"rng must be a generator such as np.random.default_rng(), not {short(rng)}")
        full = self._full()
        if not full.size:
            raise RuntimeError(f"there is nothing to sample: no segment of {self.rows} records is full")
        slots = rng.choice(full) * self.rows + rng.integers(self.rows, size=batch)
        newest = self._written - 1
        sequence = newest - (newest - slots) % self._weights.size
        return Batch(self.layout.gather(self._arrays, slots), self._weights[slots].astype(np.float32), sequence)

    def _full(self) -> NDArray[np.int64]:
        """Indices of the full segments."""
        begun, filling = divmod(self._written, self.rows)
        full = np.arange(min(begun, self.segments))
        return full[full != begun % self.segments] if filling else full

    def state_dict(self) -> dict[str, Any]:
        """Records, weights and the counter, as copies; slots that were never written are omitted."""
        filled = min(self._written, self._weights.size)
        return {
            "arrays": {name: array[:filled].copy() for name, array in self._arrays.items()},
            "weights": self._weights[:filled].copy(),
            "written": self._written,
            "rows": self.rows,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a replay of the same segments and layout. ValueError for another, with nothing written."""
        check_mapping("a state", state)
        if missing := {"arrays", "weights", "written", "rows"} - state.keys():
            raise ValueError(f"the state lacks {', '.join(sorted(missing))}")
        weights, written = reals(state["weights"], "weights"), counted(state["written"])
        filled = weights.size
        if counted(state["rows"]) != self.rows or filled != min(written, self._weights.size):
            raise ValueError(
                f"the state holds {filled} records in segments of {state['rows']}, "
                f"which {self.segments} segments of {self.rows} do not"
            )
        for name, array in arrays_of(state["arrays"], self._arrays, filled).items():
            self._arrays[name][:filled] = array
        self._weights[:filled] = weights
        self._written = written
