"""The parent of copies, which is copy 0: it starts the others and the shards, and offers what any loop does."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ...replay import Replay
from .. import algorithms, clock, learners
from ..actor import Episode
from ..errors import TrainingError
from ..parallel import board as words
from ..parallel.arrangement import Arrangement
from ..parallel.loop import replay_of
from ..parallel.programs import Start
from ..parallel.report import common
from ..parallel.together import Together
from ..parallel.transports.shared_transport import Shared
from ..workload import Workload
from . import sync_class
from .copy import Copy, Extra, follow
from .numbers import Numbers


class CopiesLoop(Together):
    """P serial loops in processes of their own, whose weights meet; what it evaluates and saves as best is copy 0's.

    ``seed`` decides the first weights and each copy's random numbers, but not the order of their turns. With one copy
    under ``lock`` every step is the serial loop's. Records are each copy's own, a P-th of the capacity, or all share
    them; A3C's are each copy's, and no state has them. Gradient steps are due as in the serial loop, each in the copy
    that took the environment step.
    """

    device = "cpu"

    def __init__(
        self,
        workload: Workload,
        arrangement: Arrangement,
        *,
        learner: str | None = None,
        policy: str | None = None,
        seed: int = 0,
        device: str = "cpu",
        epoch: int = 0,
    ) -> None:
        arrangement.check(workload)
        if device != "cpu":
            raise TrainingError(f"copies learn on the cpu, not on {device}; leave out --device, or choose apart")
        self.seed, self.learner = seed, learners.make(workload, learner, seed=seed)
        copies, helpers = arrangement.processes, sync_class(arrangement.sync).helpers(arrangement)
        members = arrangement.members
        rows = {
            "copy": range(copies),
            "model": range(copies, members),
            "shard": range(members, members + helpers),
        }
        super().__init__(workload, arrangement, rows, copies, 1, epoch)
        self.numbers = Numbers(self.learner, arrangement, seed=seed)
        count = copies if arrangement.replay == "local" else 1
        parts = range(0 if workload.algorithm == "a3c" else count)
        self.buffers = [replay_of(workload, arrangement, count) for _ in parts]
        self._copy = Copy(
            workload, arrangement, 0, self.board, self.numbers, self.learner, self._buffer(0), policy, seed
        )
        self.policy_name = self._copy.policy_name

    def begin(self) -> None:
        """Start the other processes; ``advance`` does so too."""
        if self._is_begun:
            return
        self._pin()
        if self._rows["model"]:
            algorithms.own(self.workload, "prepare")(self.workload)
        if self.arrangement.members > 1:
            for name in {self.policy_name, self.learner.implementation}:
                learners.prepare(self.workload, name)
        program, model = sync_class(self.arrangement.sync).program, algorithms.own(self.workload, "follow")
        for kind, own in (("copy", follow), ("model", model), ("shard", program)):
            for number, row in enumerate(self._rows[kind]):
                if row and own is not None:
                    self._crew.begin(kind, own, self._start(number, row))

    def _buffer(self, number: int) -> Replay | None:
        """The replay of a copy, or of all; None where each has rollouts, which no other process sees."""
        return self.buffers[min(number, len(self.buffers) - 1)] if self.buffers else None

    def _start(self, number: int, row: int) -> Start:
        replay = self._buffer(number)
        buffer = None if replay is None else replay.handle()
        start = Start(
            self.workload, self.arrangement, self.seed, self._epoch, number, row, self.board.handle(),
            buffer, self.board.looks, self._cores[row], self.learner.implementation, self.policy_name,
            self.device, Shared(), Extra(self.numbers.handle()),
        )  # fmt: skip
        return replace(start, threads=self.arrangement.threads)

    @property
    def turns(self) -> int:
        """Turns that the actors of copy 0 have taken."""
        return self._copy.turns

    @property
    def losses(self) -> dict[str, float]:
        """The losses of copy 0's last gradient step."""
        return self._copy.losses

    def report(self) -> dict[str, Any]:
        """What the run has done since it was begun: as of ``ParallelLoop`` what all have, and how weights met."""
        seconds = clock.seconds() - self._began if self._is_begun else 0.0
        made = common(self.board, self._rows, seconds, self.restarts, self._cores)
        met = sync_class(self.arrangement.sync).report(self.numbers)
        if self._rows["model"]:
            met |= algorithms.own(self.workload, "report")(self.numbers, self.updates, self.arrangement.cap)
        return made | {"copies": met}

    def done(self, end: int) -> bool:
        """Whether environment step ``end`` is reached, and no copy is about to take one."""
        steps = self.step
        return steps >= end and self.board.value(words.CLAIMED_STEPS) == steps

    def advance(self) -> tuple[Episode, ...]:
        """Take a turn of copy 0, or wait for 20 ms; returns the episodes of all that ended meanwhile.

        TrainingError when training has diverged, or a process failed; ProcessLost where an environment fails.
        """
        self.begin()
        episodes = self._copy.turn() or ()
        self._crew.watch()
        return episodes + self.ended()

    def close(self) -> None:
        """End the other processes, and let go of environments and replays."""
        self.end()
        self._copy.close()
        for buffer in self.buffers:
            buffer.close()

    def identity(self) -> dict[str, Any]:
        """The settings that a run must share with a state in order to resume from it."""
        made = {"workload": asdict(self.workload), "contestant": self.contestant, "seed": self.seed}
        return made | {"arrangement": self.arrangement.to_dict()}

    def state_dict(self) -> dict[str, Any]:
        """Numbers and records of all copies, counters, generators of copy 0; taken while the others rest.

        All begin new episodes from it.
        """
        with self.paused():
            self._copy.flush()
            return {
                "numbers": self.numbers.state_dict(),
                "learner": self.learner.state_dict(),
                "buffers": [buffer.state_dict() for buffer in self.buffers],
                "rng": self._copy.rng_state(),
                "step": self.step,
                "updates": self.updates,
                "epoch": self._epoch,
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a loop of the same identity, before any process is begun."""
        self.learner.load_state_dict(state["learner"])
        self.numbers.load_state_dict(state["numbers"])
        for buffer, saved in zip(self.buffers, state["buffers"], strict=True):
            buffer.load_state_dict(saved)
        self.board.begin_at(np.zeros(1, np.float32), int(state["step"]), int(state["updates"]))
        self._epoch = int(state["epoch"]) + 1
        self._copy.begin_anew(state["rng"], self._epoch)
