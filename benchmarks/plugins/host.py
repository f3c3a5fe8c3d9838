"""The interface under which a library's replay is timed with and without our plug-in; the registry is the folder.

Host ``x`` is the one public subclass of :class:`Host` in ``x_host.py``.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, ClassVar

import impls

from ..libraries import adapters
from ..loops.trainer import Trainer
from ..replay.buffers import Buffer

OURS, PYTHON = "ours", "python tree"
PUBLIC = ("update", "get", "sample", "sample_distinct", "prefix_sum_index", "prefix_sum", "range_sum", "total", "min")
Methods = tuple[type, Sequence[str]]  # a class, and the methods in which its time is spent


class Host(ABC):
    """A library with a replay of its own, which a plug-in of ours can take the place of.

    Its *kinds* are what is compared; the first is the library's own. Libraries are imported where they are used.
    """

    package: ClassVar[str]  # the distribution
    module: ClassVar[str]  # which tells, if it is there, that the library is installed
    buffers: ClassVar[type[Buffer]]  # takes the kind
    plugin: ClassVar[str]  # the module of ``impls.plugins``
    kinds: ClassVar[tuple[str, ...]]
    tasks: ClassVar[tuple[str, ...]] = ("buffer", "cartpole_dqn")
    uniform: ClassVar[tuple[str, ...]] = ()  # kinds that know no priorities
    limits: ClassVar[tuple[str, ...]] = ()  # what its times leave out

    def buffer(self, kind: str, capacity: int, seed: int) -> Buffer:
        """Make the empty buffer of a kind. ImportError or RuntimeError where it cannot be made."""
        return self.buffers(capacity, seed, kind=kind)

    @abstractmethod
    def trainer(self, task: str, kind: str, seed: int) -> Trainer:
        """Make the training loop of a task on the replay of a kind."""

    @abstractmethod
    def trees(self) -> Iterable[Methods]:
        """Return the classes of the library's own trees."""

    def methods(self, kind: str) -> list[Methods]:
        """Return the classes of the trees under a kind, and their methods; none where it samples uniformly."""
        if kind in self.uniform:
            return []
        if kind == self.kinds[0]:
            return list(self.trees())
        kinds: Any = impls.traits("python" if kind == PYTHON else "numba")
        return [(kinds, [name for name in PUBLIC if hasattr(kinds, name)])]


@cache
def hosts() -> dict[str, Host]:
    """Return every host by its name, installed or not."""
    return {name: kind() for name, kind in adapters(__package__, "_host", Host)}
