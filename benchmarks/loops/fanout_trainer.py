"""This project's serial loop, with the learner and the policy that it takes by default."""

import dataclasses
from typing import ClassVar

from impls.training.loop import SerialLoop

from .trainer import Trainer


class Fanout(Trainer):
    """``SerialLoop`` of ``impls.training``, on the default learner and policy."""

    packages = ("numba", "numpy", "torch", "gymnasium")
    environments = (1, 8)
    is_ours = True
    fanout = 16
    implementation: ClassVar[str | None] = None

    def _prepare(self) -> None:
        workload, name = self.workload, self.implementation
        if self.count > 1:
            workload = dataclasses.replace(
                workload, actors=dataclasses.replace(workload.actors, environments=self.count)
            )
        self._loop = SerialLoop(workload, learner=name, policy=name, seed=self.seed)

    def turn(self) -> None:
        self._loop.advance()
        self.steps = self._loop.step

    @property
    def updates(self) -> int:
        return self._loop.updates

    @property
    def weights(self) -> int:
        return int(self._loop.learner.state_dict()["weights"].size)

    @property
    def remark(self) -> str:
        return f"learner {self._loop.learner.implementation}, policy {self._loop.policy.implementation}"

    def close(self) -> None:
        self._loop.close()
