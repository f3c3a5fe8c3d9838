"""What the copies of a run have in common, in shared memory, by name.

Counters, each in its own line; of each copy its steps, and the vectors that it computes with, so that the parent can
save them whatever becomes of a process; the shared weights; and what the sync needs besides. The parent makes it;
children attach by its handle.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...replay.block import Handle, Memory, allocate
from ...replay.sync import make_mutex
from .. import algorithms
from ..learner import Learner, Vectors
from ..parallel import counter
from ..parallel.arrangement import Arrangement
from ..parallel.board import LINE
from . import sync_class

BEGUN, MUTEX, MET, TAKEN, _COUNTERS = range(5)
"""Processes that have begun; a mutex; how often weights have met, or gradients were sent; how many of these taken."""
_SAVED = MET, TAKEN
OWN_STEPS, OWN_UPDATES, OWN_SINCE, OWN_DUE = range(4)
"""Of each copy: environment steps and gradient steps that it has taken; gradient steps since its weights last met, and
those that are due by its environment steps, but not taken."""


class Numbers:
    """The memory of the copies of an arrangement; without ``memory`` it is made, and has the learner's own numbers.

    By name: ``steps [P, 8]``, each copy's own counts; ``weights [W]``, which copies share; each of ``Vectors``, with a
    row for each copy and model worker; what the sync has besides, and the algorithm, as a ``seed`` begins it.
    """

    def __init__(self, learner: Learner, arrangement: Arrangement, memory: Memory | None = None, seed: int = 0) -> None:
        own, copies, kind = learner.vectors(), arrangement.members, sync_class(arrangement.sync)
        first: dict[str, NDArray[Any]] = {"steps": np.zeros((copies, LINE // 8), np.int64), "weights": own.parameters}
        first |= {name: np.tile(each, (copies, 1)) for name, each in own._asdict().items()}
        first |= kind.arrays(arrangement, own)
        if arrangement.model_workers:
            first |= algorithms.own(learner.workload, "arrays")(learner.workload, arrangement, seed)
        starts = _COUNTERS * LINE + np.cumsum([0, *(-(-each.nbytes // LINE) * LINE for each in first.values())])
        self._memory = allocate(int(starts[-1]), True) if memory is None else memory
        self._arrays = {
            name: self._memory.view(int(start), each.shape, each.dtype)
            for (name, each), start in zip(first.items(), starts, strict=False)
        }
        if memory is None:
            make_mutex(self.at(MUTEX))
            for name, each in first.items():
                self[name][:] = each

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def vectors(self, copy: int) -> Vectors:
        """The numbers that a copy computes with."""
        return Vectors(*(self[name][copy] for name in Vectors._fields))

    def at(self, line: int) -> int:
        """The address of a counter or the mutex, one of the constants of this module."""
        return self._memory.address + line * LINE

    def handle(self) -> Handle:
        """A small picklable reference for children."""
        return self._memory.handle()

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """All that is kept while the copies rest, as copies."""
        met = np.array([counter.value_of(self.at(each)) for each in _SAVED], np.int64)
        return {"met": met} | {name: each.copy() for name, each in self._arrays.items()}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take the state of as many copies, before any of them has begun."""
        for line, value in zip(_SAVED, state["met"], strict=True):
            counter.add(self.at(line), int(value) - counter.value_of(self.at(line)))
        for name, each in self._arrays.items():
            each[:] = state.get(name, each)  # an older state lacks a part
