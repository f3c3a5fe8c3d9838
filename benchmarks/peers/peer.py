"""The adapter of another library: the contract's names, the library's own rules, and its fastest batch calls."""

import dataclasses
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from benchmarks.cases import Leniency

FAULTS = 1e-3  # fraction of a batch that may be out of range or of priority 0 with float32 sums: accuracy.py counts it


class Peer(ABC):
    """Another library's sum tree under the contract's names, each member by the library's fastest call.

    Adapters check and convert nothing: batches arrive as ``place`` returns them, made outside of the clock. An adapter
    is ``benchmarks/peers/<name>_peer.py`` with one public subclass; its library is imported when it is made.
    """

    package: ClassVar[str]  # the distribution, installed without its other dependencies
    version: ClassVar[str]
    source: ClassVar[tuple[str, str, str]]  # package, file and class of a tree that needs no more than its capacity
    needs: ClassVar[tuple[str, ...]] = ()  # distributions the tree itself needs
    rule: ClassVar[str]  # the library's own interval rule
    dtypes: ClassVar[tuple[str, ...]] = ("float64",)  # of its sums and leaves
    limits: ClassVar[tuple[str, ...]] = ()  # what it cannot do, and what its time includes besides
    power_of_two: ClassVar[bool] = False  # whether a capacity must be one; the next is taken
    leniency = Leniency()  # what the gate forgives; an instance adds the rounding of its dtype
    device: ClassVar[str] = "cpu"  # or "cuda": timed by `make gpu`, on a machine that has one
    fanout = 2

    def __init__(self, capacity: int, dtype: str) -> None:
        self.capacity, self.dtype = capacity, np.dtype(dtype)
        self.slots = 1 << (capacity - 1).bit_length() if self.power_of_two else capacity
        rounding, faults = (1e-3, FAULTS) if dtype == "float32" else (1e-9, 0.0)  # float32 drifts from the fill on
        self.leniency = dataclasses.replace(self.leniency, tolerance=rounding, faults=faults)
        self._allocate()

    def _allocate(self) -> None:
        """Import the library and make its tree of ``slots`` leaves."""
        package, path, kind = self.source
        self._tree = getattr(file_of(package, path), kind)(self.slots)

    def update(self, indices: Any, priorities: Any) -> None:
        """Set the priorities ``[B]`` of leaves ``[B]`` and their ancestors."""
        self._tree[indices] = priorities

    def get(self, indices: Any) -> Any:
        """Return the priorities ``[B]`` of leaves ``[B]``."""
        return self._tree[indices]

    @abstractmethod
    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        """Sample leaves ``[B]`` and their priorities, by uniforms in [0, 1) if the library takes them."""

    @abstractmethod
    def prefix_sum_index(self, mass: Any) -> Any:
        """Return the leaves ``[B]`` that prefix values fall on; NotImplementedError where the library takes none."""

    @abstractmethod
    def total(self) -> float:
        """Return the sum of all priorities, as the root has it."""

    def place(self, array: np.ndarray[Any, Any]) -> Any:
        """Convert a batch into what the library takes without conversion."""
        return array

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Fill every leaf by one update."""
        self.update(self.place(np.arange(self.capacity)), self.place(state["leaves"].astype(np.float64)))

    @classmethod
    def after_install(cls) -> None:
        """Do what is left once the library is installed; ImportError where it fails."""
        return

    def synchronize(self) -> None:
        """Wait until the device has finished; nothing on a CPU."""
        return

    def modeled_seconds(self, op: str, batch: int) -> None:
        """Return None, for libraries are timed and not modeled."""
        return


def file_of(package: str, path: str) -> ModuleType:
    """Import one module of an installed package by its file, without importing the package around it.

    The tree is a small part of some frameworks, and the rest has many dependencies that nothing here uses.
    """
    installed = importlib.util.find_spec(package)
    if installed is None or not installed.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    file = Path(installed.submodule_search_locations[0]) / path
    spec = importlib.util.spec_from_file_location(f"{package}.{file.stem} alone", file)
    if spec is None or spec.loader is None or not file.exists():
        raise ImportError(f"{package} has no {path} any more")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
