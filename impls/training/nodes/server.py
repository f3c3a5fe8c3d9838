"""A weight server: a process of a Ray cluster, by which learners and actors exchange weights [Zhang2022, Fig. 5.8].

Learners push weights and pull the mean [Algorithms 7 and 8], actors pull those that act [Algorithm 6]. The first
learner computes means, and has all that the server keeps: where that is lost, weights go by the first learner's calls.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cluster.calls import LostError
from ...cluster.connection import import_ray
from ...cluster.sharded import RayCalls
from .states import Nodes

Weights = NDArray[np.float32]
PATIENCE = 5.0
"""Seconds that the server is waited for before training continues without it."""
_START_SECONDS = 60.0


class WeightServer:
    """The server's process: the newest weights of each name, with a version that only grows.

    "acting" are those that act, by gradient steps. "mean" are the mean of learners, whose names are numbers, by how
    many means there were before.
    """

    def __init__(self) -> None:
        self._newest, self._changed = dict[str | int, tuple[int, Weights]](), asyncio.Condition()

    async def push(self, name: str | int, version: int, weights: Weights) -> None:
        """Take weights ``[P]`` in the place of older ones."""
        async with self._changed:
            self._newest[name] = version, weights
            self._changed.notify_all()

    async def pull(self, name: str | int, version: int) -> Weights:
        """Wait for weights ``[P]`` of a version, or of a later one."""
        async with self._changed:
            await self._changed.wait_for(lambda: name in self._newest and self._newest[name][0] >= version)
            return self._newest[name][1]


class Server:
    """The first learner's part: the server's ``process``, None where there is none; a loss is an event of ``nodes``."""

    def __init__(self, nodes: Nodes, is_wanted: bool) -> None:
        self.process: Any = None
        self._nodes, self._versions = nodes, dict[str, int]()
        if is_wanted:
            self._calls = RayCalls([])
            self.process = import_ray().remote(num_cpus=0)(WeightServer).remote()
            self._pushed = self.process.push.remote("", 0, np.empty(0, np.float32))
            self._calls.get(self._pushed, _START_SECONDS)

    def push(self, name: str, version: int, make: Callable[[], Weights]) -> Any:
        """Push the weights that ``make`` returns, unless their version is there; returns the process, if any.

        A server that has not taken the weights before is lost.
        """
        if self.process is not None and version != self._versions.get(name):
            try:
                self._calls.get(self._pushed, PATIENCE)
                self._pushed, self._versions[name] = self.process.push.remote(name, version, make()), version
            except (LostError, TimeoutError):
                self.end()
                self._nodes.events.append("the weight server is lost; weights go by calls of the first learner")
                for node in self._nodes.each:
                    node.weights = -1
        return self.process

    def end(self) -> None:
        """End the server's process."""
        if self.process is not None:
            import_ray().kill(self.process)
            self.process = None
