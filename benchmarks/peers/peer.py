"""What an adapter gives another library: the contract's names, the library's own rules, and its fastest batch calls."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from benchmarks.cases import Leniency

FAULTS = 1e-3  # of a batch may be out of range or of priority 0 with float32 sums: accuracy.py counts them


class Peer(ABC):
    """Another library's sum tree under the contract's names, each member the library's fastest way to do it.

    Adapters check and convert nothing: batches arrive as ``place`` returns them, made outside of the clock. An adapter
    is ``benchmarks/peers/<name>_peer.py`` with one public subclass; its library is imported when it is made.
    """

    package: ClassVar[str]  # the distribution, installed without what else it depends on
    version: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()  # distributions the tree itself needs
    rule: ClassVar[str]  # the library's own interval rule
    dtypes: ClassVar[tuple[str, ...]] = ("float64",)  # of its sums and leaves
    limits: ClassVar[tuple[str, ...]] = ()  # what it cannot do, and what else is in its time
    power_of_two: ClassVar[bool] = False  # whether a capacity must be one; the next is taken
    own_random_numbers: ClassVar[bool] = False  # whether it draws them itself, inside the clock
    first_duplicate_wins: ClassVar[bool] = False
    any_duplicate_wins: ClassVar[bool] = False
    blind: ClassVar[bool] = False  # whether neither priorities nor the root can be read back
    device: ClassVar[str] = "cpu"  # or "cuda": timed by `make gpu`, on a machine that has one
    fanout = 2

    def __init__(self, capacity: int, dtype: str) -> None:
        self.capacity, self.dtype = capacity, np.dtype(dtype)
        self.slots = 1 << (capacity - 1).bit_length() if self.power_of_two else capacity
        rounding, faults = (1e-3, FAULTS) if dtype == "float32" else (1e-9, 0.0)  # float32 drifts from the fill on
        self.leniency = Leniency(
            rounding,
            faults,
            self.own_random_numbers,
            self.first_duplicate_wins,
            self.any_duplicate_wins,
            self.blind,
        )
        self._allocate()

    @abstractmethod
    def _allocate(self) -> None:
        """Import the library and make its tree of ``slots`` leaves."""

    @abstractmethod
    def update(self, indices: Any, priorities: Any) -> None:
        """Set leaves ``[B]`` and their ancestors."""

    @abstractmethod
    def get(self, indices: Any) -> Any:
        """Priorities ``[B]``."""

    @abstractmethod
    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        """Leaves ``[B]`` and their priorities, for uniforms in [0, 1) if the library takes them."""

    @abstractmethod
    def prefix_sum_index(self, mass: Any) -> Any:
        """Leaves ``[B]`` for masses; NotImplementedError where the library takes none."""

    @abstractmethod
    def total(self) -> float:
        """The root."""

    def place(self, array: np.ndarray[Any, Any]) -> Any:
        """A batch as the library takes it without conversion."""
        return array

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Fill every leaf by one update."""
        self.update(self.place(np.arange(self.capacity)), self.place(state["leaves"].astype(np.float64)))

    @classmethod
    def after_install(cls) -> None:
        """What is left to do once the library is installed; raises ImportError where it fails."""
        return

    def synchronize(self) -> None:
        """Wait until the device has finished; nothing on a CPU."""
        return

    def modeled_seconds(self, op: str, batch: int) -> None:
        """None: libraries are timed."""
        return
