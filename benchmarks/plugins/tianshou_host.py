"""tianshou: its prioritized buffer, ours in its place, and its own on our tree, which ``install()`` puts under it."""

from collections.abc import Iterable
from typing import Any

from impls import training

from ..loops.tianshou_trainer import Tianshou as Trainers
from ..loops.trainer import Trainer
from ..replay.buffers import ALPHA, BETA
from ..replay.tianshou_buffer import Tianshou as Buffers
from .host import OURS, Host, Methods

THEIRS, SWAPPED = "theirs", "ours, tree alone"
METHODS = ("__getitem__", "__setitem__", "reduce", "get_prefix_sum_idx")


class _Buffer(Buffers):
    def _allocate(self, seed: int, **options: Any) -> None:
        super()._allocate(seed)
        how = {"alpha": ALPHA, "beta": BETA}
        if options["kind"] == OURS:
            from impls.plugins.tianshou import PrioritizedReplayBuffer  # noqa: PLC0415

            self._buffer = PrioritizedReplayBuffer(self.capacity, **how)
        elif options["kind"] == SWAPPED:
            self._buffer = _swapped("PrioritizedReplayBuffer")(self.capacity, **how)


class Tianshou(Host):
    """``PrioritizedReplayBuffer`` and, in training, ``PrioritizedVectorReplayBuffer``."""

    package, module, plugin = "tianshou", "tianshou", "tianshou"
    buffers = _Buffer
    kinds = (THEIRS, OURS, SWAPPED)

    def trainer(self, task: str, kind: str, seed: int) -> Trainer:
        made: Trainer = _TRAINERS[kind](training.load(task), 1, seed)
        return made

    def trees(self) -> Iterable[Methods]:
        from tianshou.data import SegmentTree  # noqa: PLC0415  # optional

        return [(SegmentTree, METHODS)]


def _swapped(name: str) -> Any:
    """Return a maker of the host's own buffer, on our tree."""

    def make(*sizes: int, **how: Any) -> Any:
        from tianshou import data  # noqa: PLC0415

        from impls.plugins import tianshou as plugin  # noqa: PLC0415

        plugin.install()
        try:
            return getattr(data, name)(*sizes, **how)
        finally:
            plugin.uninstall()

    return make


class _Ours(Trainers):
    def _buffer_kind(self) -> Any:
        from impls.plugins.tianshou import PrioritizedVectorReplayBuffer  # noqa: PLC0415

        return PrioritizedVectorReplayBuffer


class _Swapped(Trainers):
    def _buffer_kind(self) -> Any:
        return _swapped("PrioritizedVectorReplayBuffer")


_TRAINERS = {THEIRS: Trainers, OURS: _Ours, SWAPPED: _Swapped}
