"""The kernels' text, the constants it is compiled with, and the tree and the call as they are passed to them."""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

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


Launch = Callable[[int, int, int, int], None]
"""Runs a kernel by (blocks, threads, stream, parameters).

``parameters`` is the address of as many addresses as the kernel has parameters; their values are read before the call
returns.
"""


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
        values = {name: int(value) if isinstance(value, bool) else value for name, value in asdict(self).items()}
        return ("-std=c++17", *(f"-D{name.upper()}={value}" for name, value in values.items()))


def kernel_text() -> str:
    """The text of all kernels."""
    return (Path(__file__).parent / "kernels.cu").read_text()


def kernel_names(text: str) -> list[str]:
    """Names of the kernels in a text."""
    return re.findall(r"__global__ void\s+(?:__launch_bounds__\(\d+\)\s+)?(\w+)\(", text)
