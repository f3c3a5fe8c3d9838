"""A replay in segments [Zhang2022, section 3.2.3, Alg. 2], for records whose importance weights hold among themselves.

Model-based training samples M states in proportion to priorities that change from one time to the next, and stores the
M records that the model makes of them with their importance weights (Eq. 3.8). Such weights belong to the distribution
that the states were sampled from, so that a batch must not mix records of two. Each group of M records therefore has a
segment of its own, and a batch comes from one segment, chosen uniformly, whose rows are then sampled uniformly.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import integer_at_least, short
from .batches import reals
from .buffer import Batch
from .layout import Layout, check_layout
from .state import arrays_of, counted
from .values import check_mapping, fields_of, rules_of


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
        check_mapping("records", records)
        if names := self._arrays.keys() ^ records.keys():
            raise ValueError(f"the records are of another layout: they differ in {', '.join(sorted(names))}")
        count, values = np.asarray(records["reward"]).size, reals(weights, "weights")
        if count > self.room:
            raise ValueError(f"{count} records do not fit into the {self.room} rows left of a segment of {self.rows}")
        if values.shape != (count,) or not ((values > 0) & (values < np.inf)).all():
            raise ValueError(f"weights must be [{count}], positive and finite")
        start = self._written % self._weights.size
        fields = fields_of(records, self._rules)
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
