"""Local storages of environments that step at once, in one set of arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layout import Arrays, Layout


class LocalStorages:
    """Up to ``size`` consecutive transitions of an episode of each of E environments, as they will be inserted."""

    def __init__(self, layout: Layout, size: int, environments: int) -> None:
        self._layout, self._size, self._length = layout, size, size + layout.fillers
        # Invariant: transition i < count[e] of environment e is row e * length + lead + i; before an environment's
        # transitions are the frames that lead up to the first.
        self._lead = layout.frames - 1
        self._counts = np.zeros(environments, np.int64)
        self._first = np.arange(environments) * self._length + self._lead
        self._arrays = layout.allocate(environments * self._length)

    @property
    def full(self) -> NDArray[np.bool_]:
        """Which environments' storage must be taken before another transition of theirs is appended, ``[E]``."""
        return np.equal(self._counts, self._size)

    def append(self, transitions: Mapping[str, NDArray[Any]], stepped: NDArray[np.bool_]) -> None:
        """Add a transition ``[E, ...]`` of each environment where ``stepped [E]``; their storages must not be full."""
        who, arrays = np.flatnonzero(stepped), self._arrays
        rows = self._first[who] + self._counts[who]
        seen, following = transitions["observation"], transitions["next_observation"]
        if self._lead:
            begun = self._counts[who] == 0
            stacks = rows[begun][:, None] + np.arange(-self._lead, 1)
            arrays["frame"][stacks] = seen[who[begun]]
            arrays["frame"][rows + 1] = following[who, -1]
        else:
            arrays["observation"][rows], arrays["next_observation"][rows] = seen[who], following[who]
        for name in ("action", "reward", "terminated"):
            arrays[name][rows] = transitions[name][who]
        self._counts += stepped

    def take(self, which: NDArray[np.bool_]) -> tuple[Arrays, NDArray[np.bool_]]:
        """(records of these environments, one's after the other's, with their fillers; which may be sampled), copies.

        Empties the storages ``which [E]`` that are taken; none of them may be empty.
        """
        at, ends = np.arange(self._length), np.where(which, self._counts, -self._length)[:, None]
        kept = at < ends + self._layout.fillers
        drawable = (at >= self._lead) & (at < ends + self._lead)
        rows = np.flatnonzero(kept)
        self._counts[which] = 0
        return {name: array[rows] for name, array in self._arrays.items()}, drawable[kept]

    def state_dict(self) -> dict[str, Any]:
        """All storages, as copies."""
        return {"counts": self._counts.copy(), "arrays": {name: array.copy() for name, array in self._arrays.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of local storages of the same layout, size and environments."""
        self._counts[:] = state["counts"]
        for name, array in self._arrays.items():
            array[:] = state["arrays"][name]
