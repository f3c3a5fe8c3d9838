"""The interface under which whole training loops are timed: ours and those of other libraries."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from impls.training.workload import Workload


class Trainer(ABC):
    """A library's DQN or SAC on a workload. A turn is a step of each environment, then the gradient steps that are due.

    An adapter is ``benchmarks/loops/<name>_trainer.py`` with one public subclass; its library is imported
    when it is made. Settings are the workload's, by the library's own calls.
    """

    packages: ClassVar[tuple[str, ...]]  # distributions whose versions a record names, the library's own first
    needs: ClassVar[tuple[str, ...]] = ()  # distributions it needs besides torch
    alone: ClassVar[tuple[str, ...]] = ()  # distributions that are installed without what they say they need
    replay: ClassVar[str] = "prioritized"  # or "uniform"
    environments: ClassVar[tuple[int, ...]] = (1,)  # numbers of environments that it is timed with
    limits: ClassVar[tuple[str, ...]] = ()  # what differs from the workload, and what its time leaves out
    sac_limits: ClassVar[tuple[str, ...] | None] = None  # the same of its SAC; None: only its DQN is run
    is_ours: ClassVar[bool] = False
    fanout: ClassVar[int] = 2  # children of a node of its sum tree

    def __init__(self, workload: Workload, environments: int, seed: int) -> None:
        self.workload, self.count, self.seed = workload, environments, seed
        self.steps = 0
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Import the library and make environments, networks and buffer."""

    @abstractmethod
    def turn(self) -> None:
        """Step every environment once, count that in ``steps``, and take the gradient steps that are due."""

    def run(self, until: float) -> list[float]:
        """Take turns until a moment, one at least; return when each ended. Moments are ``perf_counter``'s."""
        ended: list[float] = []
        # Invariant: ``ended`` has the moment at which each turn of the block ended.
        while not ended or ended[-1] < until:
            self.turn()
            ended.append(time.perf_counter())
        return ended

    @property
    @abstractmethod
    def updates(self) -> int:
        """Gradient steps taken so far, as the library or its optimizer counts them."""

    @property
    @abstractmethod
    def weights(self) -> int:
        """Trained weights of the network of action values."""

    @property
    def remark(self) -> str:
        """What to know of its time, limits aside; "" for most."""
        return ""

    def close(self) -> None:
        """End what the library has started next to this process; nothing for most."""
        return

    def environment(self) -> Any:
        """Make an environment, without the wrapper that checks each step."""
        import gymnasium  # noqa: PLC0415  # optional

        return gymnasium.make(self.workload.environment, disable_env_checker=True)


class TorchTrainer(Trainer):
    """A library on torch, on one thread; gradient steps are those of the optimizer that takes the first."""

    def __init__(self, workload: Workload, environments: int, seed: int) -> None:
        import torch  # noqa: PLC0415  # optional
        from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: PLC0415

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self._updates, self._first = 0, None
        register_optimizer_step_post_hook(self._count)
        super().__init__(workload, environments, seed)

    def _count(self, optimizer: Any, *_: object) -> None:
        self._first = self._first or optimizer
        self._updates += optimizer is self._first

    @property
    def updates(self) -> int:
        """Steps of the first optimizer: SAC has one for each of its networks."""
        return self._updates

    @property
    def policy(self) -> Any:
        """SAC's policy, torch's module, which is trained in place."""
        raise NotImplementedError

    def act(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Choose actions ``[A, n]`` in [-1, 1] by SAC's policy without exploration, for observations ``[A, ..]``."""
        import torch  # noqa: PLC0415  # loaded by now

        with torch.no_grad():
            return np.asarray(torch.tanh(self._means(torch.as_tensor(observations))))

    def _means(self, observations: Any) -> Any:
        """Means ``[A, n]`` of the policy's Gaussians, which tanh takes to actions."""
        raise NotImplementedError


def size_of(parameters: Iterable[Any]) -> int:
    """Count the weights among torch's parameters that are trained."""
    return sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
