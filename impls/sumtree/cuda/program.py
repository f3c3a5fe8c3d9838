"""The kernels' text, the constants it is compiled with, and the tree and the call as they are passed to them."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

MOST_LEVELS = 64
TREE = np.dtype(
    [
        *((name, np.uint64) for name in ("leaves", "sums", "claims", "pending", "status", "report")),
        *((name, np.uint64) for name in ("batch_indices", "batch_values")),
        *((name, np.int64) for name in ("checked", "capacity", "width", "height")),
        ("highest", np.float64),
        ("start", np.int64, MOST_LEVELS),
    ]
)
"""``struct Tree`` of the kernels: addresses, then numbers."""
CALL = np.dtype(
    [
        *((name, np.uint64) for name in ("indices", "reals", "found", "priorities", "worst")),
        *((name, np.int64) for name in ("index_type", "real_type", "batch", "uniform", "blocks", "level", "repair")),
        ("scalar", np.float64),
    ]
)
"""``struct Call`` of the kernels: addresses, then numbers."""

STATUS_WORDS, REPORT_WORDS = 3, 6
TOLD = 0  # the word of the status that says that there is a report
WHY, POSITION, INDEX, VALUE, BOUND, TOTAL = range(REPORT_WORDS)  # words of the report
BAD_INDEX, BAD_PRIORITY, BAD_UNIFORM, BAD_MASS, EMPTY = 1, 2, 3, 4, 5  # its first word
WIDE, NARROW, SCALAR = 0, 1, 2  # types of numbers: 8 bytes, 4 bytes, the same for all
FUSED_THREADS = 512  # of update_fused's only block
BLOCK_THREADS = 128  # of every other kernel's blocks
KNOWN_WIDTHS = (2, 4, 8, 16, 32, 64, 128, 256)  # of groups, that are constants of the compiled kernels


class Launch(Protocol):
    """Runs a kernel by blocks of threads."""

    def __call__(self, blocks: int, threads: int, stream: int, parameters: int) -> None:
        """Launch on a stream; ``parameters`` is the address of as many addresses as the kernel has parameters.

        Their values are read before this returns.
        """


class Device(Protocol):
    """A device that runs kernels, and its memory."""

    name: str
    arrays: Any  # the array module: numpy or cupy

    def load(self, constants: "Constants") -> dict[str, Launch]:
        """The kernels by name, compiled."""

    def address(self, array: Any) -> int:
        """Address of the array's first byte."""

    def enter(self) -> None:
        """Make this thread one that may launch. ValueError where another device is current for it."""

    def current_stream(self) -> int:
        """The stream on which the array module works at the moment, kept alive as long as it is the last followed."""

    def follow(self, stream: int) -> None:
        """Make what is enqueued next, on this stream, begin after what was enqueued before, on whatever stream."""

    def synchronize(self) -> None:
        """Wait until all kernels have finished."""

    def shared_words(self, count: int) -> NDArray[np.int64]:
        """Words of 0 that the host and the device both read and write, at one address."""


@dataclass(frozen=True)
class Constants:
    """Constants that the text is compiled with; ``kernels.cu`` explains each. ``fanout`` 0: known at run time only."""

    leaf: str
    fanout: int
    lanes: int
    delta: bool
    packed: bool

    @classmethod
    def of(cls, dtype: DTypeLike, width: int, lanes: int, delta: bool, aligned: bool) -> "Constants":
        """Constants for groups of ``width`` leaves of a dtype."""
        leaf = {4: "float", 8: "double"}[np.dtype(dtype).itemsize]
        packed = aligned and width * np.dtype(dtype).itemsize % 16 == 0
        return cls(leaf, width if width in KNOWN_WIDTHS else 0, lanes, delta, packed)

    def flags(self) -> tuple[str, ...]:
        """The compiler's flags that define them."""
        values = {
            "LEAF": self.leaf,
            "FANOUT": self.fanout,
            "LANES": self.lanes,
            "DELTA": int(self.delta),
            "PACKED": int(self.packed),
        }
        return ("-std=c++17", *(f"-D{name}={value}" for name, value in values.items()))


def kernel_text() -> str:
    """The text of all kernels."""
    return (Path(__file__).parent / "kernels.cu").read_text()


def kernel_names(text: str) -> list[str]:
    """Names of the kernels in a text."""
    return re.findall(r"__global__ void\s+(?:__launch_bounds__\(\d+\)\s+)?(\w+)\(", text)
