"""A test process: it evaluates weights while training continues, as [Hou2023] has it.

The parent writes weights to memory that both share and sends their environment step; the process answers with scores.
It never has two evaluations under way, so that nobody writes weights while the other reads them. ``drawing`` has what
a process that draws does in place of evaluating.
"""

import contextlib
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray

from ...replay.block import Handle, allocate
from .. import clock, learners
from ..actor import VALIDATION, Tested, evaluate
from ..environments import Environment
from ..errors import ProcessLost, TrainingError
from ..interrupts import SIGNALS
from ..learner import Learner
from ..workload import Workload
from .children import ConnectedChild

Evaluate = Callable[[Workload, Learner, int, int], list[float]]
"""Returns the scores of a policy in a workload, by the seed of the run and the environment step of the weights."""

_LAST_SECONDS = 600.0  # that the end of a run waits for the evaluation under way
_LOOK_SECONDS = 0.2


def begin_evaluations(workload: Workload) -> Evaluate:
    """Make an environment; return what plays the workload's episodes of an evaluation in it."""
    environment = Environment(workload)

    def test(workload: Workload, policy: Learner, seed: int, step: int) -> list[float]:
        return evaluate(workload, policy, environment, workload.evaluation.episodes, seed, VALIDATION, step)

    return test


class TestProcess:
    """Evaluates the weights ``[P]`` that it is given, one evaluation after the other.

    ``learner`` names the implementation that acts; ``seed`` and an evaluation's step decide its episodes. ``begin`` is
    called in the process, with the workload, and returns what evaluates.
    """

    __test__ = False  # to pytest

    def __init__(
        self,
        workload: Workload,
        learner: str,
        seed: int,
        weights: int,
        begin: Callable[[Workload], Evaluate] = begin_evaluations,
    ) -> None:
        memory = allocate(4 * weights, True)
        self._weights: NDArray[np.float32] = memory.view(0, (weights,), np.float32)
        self._updates: int | None = None  # gradient steps behind the weights under evaluation
        self._step, self.is_there = 0, True
        self._child = ConnectedChild("test", _test, begin, workload, learner, seed, memory.handle(), weights)

    @property
    def is_busy(self) -> bool:
        """Whether an evaluation is under way."""
        return self._updates is not None

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._child.pid

    def ask(self, step: int, updates: int, weights: NDArray[np.float32]) -> None:
        """Begin to evaluate weights ``[P]`` of an environment step; only while it is not busy."""
        assert not self.is_busy
        self._weights[:] = weights
        self._step, self._updates = step, updates
        try:
            self._child.pipe.send(step)
        except OSError:
            self.is_there = False

    def result(self) -> Tested | None:
        """The evaluation that was asked for, None while it runs. TrainingError where the environment is at fault.

        Once the process has ended, ``is_there`` is False, and there is no result any more.
        """
        with contextlib.suppress(EOFError, OSError):
            if self._updates is None or not self._child.pipe.poll():
                return None
            scores = self._child.pipe.recv()
            if isinstance(scores, str):
                raise ProcessLost(scores)
            tested = Tested(self._step, self._updates, self._weights.copy(), scores)
            self._updates = None
            return tested
        self.is_there, self._updates = False, None
        return None

    def last_result(self, seconds: float = _LAST_SECONDS) -> Tested | None:
        """Wait for the evaluation under way, so long at most; None if there is none, or the process ended."""
        end = clock.seconds() + seconds
        while not (tested := self.result()) and self.is_busy and clock.seconds() < end:
            with contextlib.suppress(OSError):
                self._child.pipe.poll(_LOOK_SECONDS)
        return tested

    def close(self) -> None:
        """End the process; what it was evaluating is lost."""
        self._child.close()


def _test(
    begin: Callable[[Workload], Evaluate],
    workload: Workload,
    learner: str,
    seed: int,
    handle: Handle,
    weights: int,
    other: Connection,
) -> None:
    """Evaluate whatever is asked for until the parent has closed its end, or has ended."""
    for one in SIGNALS:  # which are the parent's to answer
        signal.signal(one, signal.SIG_IGN)
    numbers = handle.attach().view(0, (weights,), np.float32)
    with contextlib.suppress(EOFError, OSError):
        try:
            policy, work = learners.make(workload, learner, seed=seed), begin(workload)
            while True:
                step = other.recv()
                policy.load_weights(numbers)
                other.send(work(workload, policy, seed, step))
        except TrainingError as error:
            other.send(str(error))
