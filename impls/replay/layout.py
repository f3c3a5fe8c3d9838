"""The layout of a record, in bytes.

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

from ..checks import integer_at_least
from ..cores import check_free

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
        number = np.uint8 if self.choices <= _SMALL else np.int32
        action = ((), number) if self.choices else ((self.action_size,), np.float32)
        seen = {"observation": (self.observation, self.dtype), "next_observation": (self.observation, self.dtype)}
        if self.frames > 1:
            seen = {"frame": (self.observation, self.dtype)}
        every: dict[str, Any] = seen | {"action": action, "reward": ((), np.float32), "terminated": ((), np.bool_)}
        return {name: (shape, np.dtype(dtype)) for name, (shape, dtype) in every.items()}

    @property
    def transition(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of each part of a transition, with whole stacks of frames."""
        fields, stacks = self.fields, {}
        if self.frames > 1:
            shape, dtype = fields.pop("frame")
            stacks = dict.fromkeys(("observation", "next_observation"), ((self.frames, *shape), dtype))
        return stacks | fields

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
        """Zeros ``[records, *shape]`` for each field; the system provides memory as they are written.

        MemoryError for more than the machine has free, before the first is.
        """
        check_free(records * self.record_bytes)
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


def check_layout(layout: Layout) -> None:
    """TypeError or ValueError for a layout whose records are no plain bytes: their copies would be pointers."""
    if not isinstance(layout, Layout):
        raise TypeError(f"layout must be a Layout, not {type(layout).__name__}")
    for name, least in {"frames": 1, "choices": 0, "action_size": 0}.items():
        integer_at_least(name, getattr(layout, name), least)
    if not isinstance(layout.observation, tuple):
        raise TypeError(f"observation must be a shape such as (4,), not {layout.observation!r}")
    for size in layout.observation:
        integer_at_least("each size of an observation", size, 1)
    if layout.dtype is None:  # which NumPy takes for float64
        raise TypeError("dtype of an observation must be a name such as 'float32', not None")
    for name, (_, dtype) in layout.fields.items():
        if dtype.kind not in "biufc":
            raise ValueError(f"{name} must be of a numeric dtype, not {dtype}")
