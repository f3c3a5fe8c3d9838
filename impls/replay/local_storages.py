"""Local storages, in which actors collect records before they insert them: of one environment, or of several at once.

Where observations are stacks of frames only the newest frame of each is kept, so that a storage holds steps of one
episode: an environment's next stack must be the one that its last transition led to.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import integer_at_least
from .layout import Arrays, Layout
from .values import arrays_of, differing, flags_of, rules_of, steps_of


class LocalStorage:
    """Up to ``size`` consecutive transitions of an episode, as they will be inserted."""

    def __init__(self, layout: Layout, size: int) -> None:
        self._layout, self._size, self._count = layout, integer_at_least("size", size, 1), 0
        # Invariant: transition i < count is row lead + i; before the rows are the frames that lead up to the first.
        self._lead, self._rules = layout.frames - 1, rules_of(layout, layout.transition)
        self._arrays = layout.allocate(size + layout.fillers)

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether it must be taken before another transition is appended."""
        return self._count == self._size

    def append(
        self, observation: NDArray[Any], action: Any, reward: float, following: NDArray[Any], terminated: bool
    ) -> None:
        """Add the transition that follows the last one. ValueError, with nothing changed, if it cannot be stored.

        That is when the storage is full, a shape or value is not the layout's, or a stack of frames is not the one that
        the last transition led to.
        """
        _check_room(self._count, self._size)
        given: dict[str, Any] = {"observation": observation, "next_observation": following}
        given |= {"action": action, "reward": reward, "terminated": terminated}
        step, at = steps_of(given, self._rules, ()), self._count + self._lead
        seen, led = step["observation"], step["next_observation"]
        if self._lead:
            stack = self._arrays["frame"][at - self._lead : at + 1]
            # Alike bytes are alike frames, sooner compared; others may be, such as 0.0 and -0.0.
            if (self._count and stack.tobytes() != seen.tobytes()) or led[:-1].tobytes() != seen[1:].tobytes():
                _check_stacks(stack[None], seen[None], led[None], np.array([self._count > 0]), np.array([0]))
        self.store(seen, step["action"], step["reward"], led, step["terminated"])

    def store(self, observation: Any, action: Any, reward: Any, following: Any, terminated: Any) -> None:
        """:meth:`append` what was judged before: of the layout's shapes and dtypes, and of the running episode."""
        at, arrays = self._count + self._lead, self._arrays
        if self._lead:
            if self._count == 0:
                arrays["frame"][: at + 1] = observation
            arrays["frame"][at + 1] = following[-1]
        else:
            arrays["observation"][at], arrays["next_observation"][at] = observation, following
        arrays["action"][at], arrays["reward"][at], arrays["terminated"][at] = action, reward, terminated
        self._count += 1

    def transitions(self) -> Arrays:
        """The transitions collected so far, ``[count, ...]`` of each part."""
        return self._layout.gather(self._arrays, np.arange(self._count) + self._lead)

    def take(self) -> tuple[Arrays, NDArray[np.bool_]]:
        """(records with their fillers, which of them may be sampled), valid until the next append. Empties it."""
        count, self._count = self._count, 0
        length = count + self._layout.fillers
        drawable = np.zeros(length, np.bool_)
        drawable[self._lead : self._lead + count] = True
        return {name: array[:length] for name, array in self._arrays.items()}, drawable

    def state_dict(self) -> dict[str, Any]:
        """The whole storage, as copies."""
        return {"count": self._count, "arrays": {name: array.copy() for name, array in self._arrays.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a local storage of the same layout and size. ValueError for others, nothing changed."""
        arrays = arrays_of(state["arrays"], self._arrays)
        self._count = _count_within(state["count"], self._size)
        for name, array in arrays.items():
            self._arrays[name][:] = array


class LocalStorages:
    """Up to ``size`` consecutive transitions of an episode of each of E environments, as they will be inserted."""

    def __init__(self, layout: Layout, size: int, environments: int) -> None:
        self._layout, self._size, self._length = layout, size, size + layout.fillers
        # Invariant: transition i < count[e] of environment e is row e * length + lead + i; before an environment's
        # transitions are the frames that lead up to the first.
        self._lead, self._rules = layout.frames - 1, rules_of(layout, layout.transition)
        self._counts = np.zeros(environments, np.int64)
        self._first = np.arange(environments) * self._length + self._lead
        self._arrays = layout.allocate(environments * self._length)

    @property
    def full(self) -> NDArray[np.bool_]:
        """Which environments' storage must be taken before another transition of theirs is appended, ``[E]``."""
        return np.equal(self._counts, self._size)

    def append(self, transitions: Mapping[str, NDArray[Any]], stepped: NDArray[np.bool_]) -> None:
        """Add a transition ``[E, ...]`` of each environment where ``stepped [E]``; the others' rows are ignored.

        ValueError, with nothing changed, where :meth:`LocalStorage.append` raises it.
        """
        count, arrays = self._counts.size, self._arrays
        who = np.flatnonzero(flags_of("stepped", stepped, count))
        step = steps_of(transitions, self._rules, (count,), who)
        _check_room(self._counts[who].max(initial=0), self._size)
        rows = self._first[who] + self._counts[who]
        if self._lead:
            seen, following = step.pop("observation"), step.pop("next_observation")
            begun = self._counts[who] == 0
            stacks = rows[:, None] + np.arange(-self._lead, 1)
            _check_stacks(arrays["frame"][stacks], seen, following, ~begun, who)
            arrays["frame"][stacks[begun]] = seen[begun]
            arrays["frame"][rows + 1] = following[:, -1]
        for name, values in step.items():
            arrays[name][rows] = values
        self._counts[who] += 1

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
        """Take the state of local storages of the same layout, size and environments. ValueError for others."""
        arrays = arrays_of(state["arrays"], self._arrays)
        self._counts[:] = [_count_within(count, self._size) for count in state["counts"]]
        for name, array in arrays.items():
            self._arrays[name][:] = array


def _count_within(count: Any, size: int) -> int:
    if not 0 <= count <= size:
        raise ValueError(f"the state holds {count} transitions, and a storage at most {size}")
    return int(count)


def _check_room(count: int, size: int) -> None:
    if count == size:
        raise ValueError(f"the local storage holds {size} transitions and is full: take() them first")


def _check_stacks(kept: Any, seen: Any, following: Any, goes_on: NDArray[np.bool_], who: NDArray[np.int64]) -> None:
    """ValueError where stacks ``[w, frames, ...]`` of environments ``who`` are not those ``kept`` of an episode."""
    is_cut, jumps = goes_on & differing(kept, seen), differing(following[:, :-1], seen[:, 1:])
    for what, is_bad in (("observation", is_cut), ("next observation", jumps)):
        if is_bad.any():
            raise ValueError(
                f"the {what} of environment {who[is_bad.argmax()]} is of another episode: its frames are not those of "
                "the stack before it; take() what an episode has left before the next begins"
            )
