"""torchrl's segment tree: binary, C++, float32 or float64, recomputed."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .peer import Peer

COMPILED = "compiled"  # the folder next to its sources


class Torchrl(Peer):
    """``SumSegmentTree`` of torchrl by NumPy arrays, which it takes faster than tensors."""

    package = "torchrl"
    version = "0.14.1"
    needs = ("torch==2.13.0", "ninja", "setuptools")
    rule = "smallest i with p_0 + .. + p_i >= mass"
    dtypes = ("float32", "float64")
    limits = ("indices are not checked", "accepts NaN and negative priorities", "memory doubles at a power of two")

    def _allocate(self) -> None:
        kind = "SumSegmentTreeFp32" if self.dtype == np.float32 else "SumSegmentTreeFp64"
        self._tree = getattr(extension(), kind)(self.slots)

    def place(self, array: np.ndarray[Any, Any]) -> Any:
        return array.astype(self.dtype) if array.dtype.kind == "f" else array

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        tree = self._tree
        indices = tree.scan_lower_bound(uniforms * self.dtype.type(tree.query(0, self.slots)))
        return indices, tree[indices]

    def prefix_sum_index(self, mass: Any) -> Any:
        return self._tree.scan_lower_bound(mass)

    def total(self) -> float:
        return float(self._tree.query(0, self.slots))

    @classmethod
    def after_install(cls) -> None:
        """Compile the sources that torchrl ships against the installed torch, where its own binary does not load."""
        try:
            extension()
        except ModuleNotFoundError:
            raise
        except ImportError:
            from torch.utils import cpp_extension  # noqa: PLC0415  # heavy, and only here

            built = folder() / COMPILED
            built.mkdir(exist_ok=True)
            sources = [str(folder() / "csrc" / name) for name in ("pybind.cpp", "utils.cpp")]
            cpp_extension.load("_torchrl", sources, build_directory=str(built), extra_cflags=["-O3"])


def folder() -> Path:
    """Return torchrl's folder without importing it. ModuleNotFoundError if it is not installed."""
    package = importlib.util.find_spec("torchrl")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'torchrl'", name="torchrl")
    return Path(package.submodule_search_locations[0])


def extension() -> ModuleType:
    """Load torchrl's extension as it was compiled here, or else as it was installed. ImportError if neither loads."""
    import torch  # noqa: F401, PLC0415  # its libraries must be loaded first

    problem = "there is none"
    for file in [*(folder() / COMPILED).glob("_torchrl*.so"), *folder().glob("_torchrl*.so")]:
        spec = importlib.util.spec_from_file_location("_torchrl", file)
        if spec is None or spec.loader is None:
            continue
        try:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
        except ImportError as error:
            problem = str(error).rpartition("/")[2]
    raise ImportError(f"its extension does not fit the installed torch ({problem})")
