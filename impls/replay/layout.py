"""The layout of a record, in bytes, and the local storage in which an actor collects records before it inserts them.

A record is a transition (observation, action, reward, next observation, terminated). Where observations are stacks of
frames it holds the newest frame alone, and the stack is read back from the records before it. Records inserted at once
then begin with the frames before the first record and end with the frame after the last; such *fillers* are never
sampled, so that no record's stack reaches into what another actor inserted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
_SMALL = 256  # actions that fit a byte


@dataclass(frozen=True)
class Layout:
    """Shapes and formats of a record.

    ``observation`` is the shape of one observation, or of one frame where ``frames`` > 1 of them are stacked;
    ``choices`` > 0 makes an action one of them, else it is ``action_size`` numbers.
    """

    observation: tuple[int, ...]
    dtype: str
    frames: int = 1
    choices: int = 0
    action_size: int = 0

    @property
    def fields(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of each part of a record."""
        action = (
            ((), np.uint8 if self.choices <= _SMALL else np.int32)
            if self.choices
            else ((self.action_size,), np.float32)
        )
        seen = {"observation": (self.observation, self.dtype), "next_observation": (self.observation, self.dtype)}
        if self.frames > 1:
            seen = {"frame": (self.observation, self.dtype)}
        every: dict[str, Any] = seen | {"action": action, "reward": ((), np.float32), "terminated": ((), np.bool_)}
        return {name: (shape, np.dtype(dtype)) for name, (shape, dtype) in every.items()}

    @property
    def record_bytes(self) -> int:
        """Bytes of one record, fillers not counted.

        >>> Layout((4,), "float32", choices=2).record_bytes, Layout((84, 84), "uint8", frames=4, choices=6).record_bytes
        (38, 7062)
        """
        return sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in self.fields.values())

    @property
    def fillers(self) -> int:
        """Number of fillers inserted with any number of records at once."""
        return self.frames if self.frames > 1 else 0

    def allocate(self, records: int) -> Arrays:
        """Zeros ``[records, *shape]`` for each field; the system provides memory as they are written."""
        return {name: np.zeros((records, *shape), dtype) for name, (shape, dtype) in self.fields.items()}

    def gather(self, arrays: Mapping[str, NDArray[Any]], slots: NDArray[np.int64]) -> Arrays:
        """The transitions at ``slots [B]`` of a ring: observation, action, reward, next_observation, terminated."""
        if self.frames == 1:
            return {name: array[slots] for name, array in arrays.items()}
        frames = arrays["frame"]
        # Invariant: a drawable slot has its frame in itself, older ones in the slots before, the next in that after.
        window = (slots[:, None] + np.arange(1 - self.frames, 2)) % len(frames)
        seen = frames[window]
        rest = {name: array[slots] for name, array in arrays.items() if name != "frame"}
        return {"observation": seen[:, :-1], "next_observation": seen[:, 1:]} | rest


class LocalStorage:
    """Up to ``size`` consecutive transitions of one episode, as they will be inserted."""

    def __init__(self, layout: Layout, size: int) -> None:
        self._layout, self._size, self._count = layout, size, 0
        # Invariant: transition i < count is row lead + i; before the rows are the frames that lead up to the first.
        self._lead = layout.frames - 1
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
        """Add the transition that follows the last one; the storage must not be full."""
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
        """Take the state of a local storage of the same layout and size."""
        self._count = int(state["count"])
        for name, array in self._arrays.items():
            array[:] = state["arrays"][name]
