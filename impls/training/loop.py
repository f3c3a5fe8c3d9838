"""The serial training loop [Zhang2021, Alg. 1], one iteration at a time."""

import contextlib
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import make
from ..replay import Batch, LocalStorage, PrioritizedBuffer, Replay
from ..replay import make as make_replay
from ..replay.batches import not_finite
from . import learners
from .actor import TRAINING, Episode, Inserted, actor_of, beta_at, explore_at, seed_of
from .errors import ProcessLost, TrainingError
from .learner import Learner, Stepped
from .parallel.arrangement import Arrangement
from .sizes import layout_of
from .throughput import cpu_seconds, seconds_of
from .workload import Workload

FIELDS = ("observation", "action", "reward", "next_observation", "terminated")


class Rollouts:
    """The steps that a copy has taken since its last gradient step, with what a loop asks of a replay.

    In A3C [Mnih2016] each copy learns once from each n steps of its own, in their order, and then forgets them.
    """

    def __init__(self, workload: Workload) -> None:
        self._steps = LocalStorage(layout_of(workload), workload.learner.batch)
        self._over = np.zeros(workload.learner.batch, np.bool_)  # after which of them an episode begins

    @property
    def is_full(self) -> bool:
        """Whether there are n of them, from which a gradient step is due."""
        return self._steps.is_full

    def insert(self, records: Mapping[str, NDArray[Any]], errors: Any = None, drawable: Any = None) -> None:
        """Keep a step, ``[1, ...]`` of each part."""
        self._over[len(self._steps)] = records["terminated"][0]
        self._steps.store(*(records[name][0] for name in FIELDS))

    def cut(self) -> None:
        """Know that the episode of the last step, if there is one, does not go on in the next."""
        self._over[max(0, len(self._steps) - 1)] = True

    def sample(self, batch: int, beta: float, rng: Any = None) -> Batch:
        """All steps, in the order in which they were taken, and ``over``, whether each was its episode's last.

        They are forgotten.
        """
        rows, count = self._steps.transitions(), len(self._steps)
        rows["over"] = self._over[:count].copy()
        self._steps.take()
        return Batch(rows, np.ones(count, np.float32), np.arange(count))

    def update_priorities(self, sequence: Any, errors: NDArray[np.float32]) -> None:
        """Nothing, as no step is sampled twice. ValueError for errors that are not finite."""
        if not np.isfinite(errors).all():
            raise not_finite(errors.astype(np.float64))

    def state_dict(self) -> dict[str, Any]:
        """The steps, as copies."""
        return self._steps.state_dict() | {"over": self._over.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of rollouts of the same workload. ValueError for others."""
        self._steps.load_state_dict(state)
        self._over[:] = state.get("over", state["arrays"]["terminated"])


COMPILED = "numba"
"""The tree whose kernels the compiled replay calls."""
_ANEW = 8  # sets the random numbers of actors that begin anew apart from the other uses of a seed


def buffer_of(workload: Workload, contestant: str) -> PrioritizedBuffer | Replay | Rollouts:
    """An empty buffer on a tree: the compiled replay for ``COMPILED``'s, where it can be had, else the plain one.

    A3C's has no tree. Raises what making the tree, or the replay, does.
    """
    if workload.algorithm == "a3c":
        return Rollouts(workload)
    replay, layout = workload.replay, layout_of(workload)
    if contestant == COMPILED:
        with contextlib.suppress(RuntimeError):  # no robust mutexes, or compilation switched off
            return make_replay(
                replay.capacity, layout, alpha=replay.alpha, epsilon=replay.epsilon, fanout=replay.fanout
            )
    tree = make(contestant, replay.capacity, fanout=replay.fanout)
    return PrioritizedBuffer(tree, layout, alpha=replay.alpha, epsilon=replay.epsilon)


class SerialLoop:
    """A workload's actors, learner and buffer, all in the thread that calls.

    ``contestant`` names the tree's implementation; ``learner`` and ``policy`` those of the learner and of the learner
    that actors act by, by default the fastest suited to the workload; a learner or a ``buffer`` may be there already.
    ``device`` is the learner's; ``seed`` decides everything on one thread of a CPU. Raises TrainingError where tree,
    learner, environments or memory cannot be had.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        contestant: str = "numba",
        learner: str | Learner | None = None,
        policy: str | None = None,
        seed: int = 0,
        device: str = "cpu",
        compiled: bool = False,
        buffer: Replay | None = None,
    ) -> None:
        replay = workload.replay
        self.workload, self.contestant, self.seed = workload, contestant, seed
        self.device, self.compiled = device, compiled
        try:
            self.buffer = buffer_of(workload, contestant) if buffer is None else buffer
        except (ImportError, RuntimeError) as error:
            raise TrainingError(str(error)) from None
        except MemoryError:
            needed = replay.capacity * layout_of(workload).record_bytes / 1e9
            raise TrainingError(f"{replay.capacity:,} records take {needed:,.1f} GB, which are not to be had") from None
        if not isinstance(learner, Learner):
            learner = learners.make(workload, learner, seed=seed, device=device, compiled=compiled)
        self.learner = learner
        self._fetches = False
        self.policy = self._acting(policy)
        self._rng = np.random.default_rng([seed, TRAINING])
        self._act_by(seed)
        self._is_broken = False  # an actor's environment has failed, in the middle of a turn
        # Invariant: from the first gradient step on, D batches lie ready between iterations, the oldest first.
        self._sampled: deque[Batch] = deque()
        self.step = 0
        self.turns = 0
        self.updates = 0
        self.losses: dict[str, float] = {}

    def advance(self) -> tuple[Episode, ...]:
        """Run one iteration: a turn of the next actor, and the gradient steps that are due then.

        Returns the episodes that ended with it. TrainingError when training has diverged; ProcessLost where an
        environment fails, with all else as it was before.
        """
        before, turn = self.step, self.turns % len(self._actors)
        if self._fetches and turn == 0 and self._is_sync_due():
            self.policy.load_weights(self.learner.weights())
        at_random = before < self.workload.exploration.random_steps
        explore = explore_at(self.workload, before)
        try:
            steps, inserted, episodes = self._actors[turn].step(self.policy, explore, at_random)
        except TrainingError as error:
            self._is_broken = True
            raise ProcessLost(str(error)) from error
        try:
            if inserted:
                self._insert(inserted)
            if episodes and isinstance(self.buffer, Rollouts):
                self.buffer.cut()
            self.step, self.turns = before + steps, self.turns + 1
            for _ in range(self._updates_due(before)):
                self._update()
        except ValueError as error:
            raise TrainingError(f"after {self.step:,} steps and {self.updates:,} gradient steps: {error}") from None
        return episodes

    def _updates_due(self, before: int) -> int:
        """Gradient steps due since step ``before``: one after every update_interval-th step from learning_starts on."""
        if isinstance(self.buffer, Rollouts):  # by its own steps, which other copies' are not
            return int(self.buffer.is_full)
        interval, starts = self.workload.learner.update_interval, self.workload.learner.learning_starts
        return max(0, self.step // interval - max(before, starts - 1) // interval)

    is_parallel = False
    arrangement = Arrangement()

    @property
    def policy_name(self) -> str:
        """The implementation that actors act by."""
        return self.policy.implementation

    def done(self, end: int) -> bool:
        """Whether all steps up to ``end`` are taken, and the gradient steps due by then."""
        return self.step >= end

    def until(self, end: int) -> None:
        """Steps are taken one call of ``advance`` at a time, so that nothing goes beyond ``end``."""

    def ended(self) -> tuple[Episode, ...]:
        """Episodes that ended since ``advance`` last returned: none."""
        return ()

    lost = ""  # there is no other process
    model: Any = None  # of the environment

    def hurry(self) -> None:
        """Nothing: there is no other process that the end could wait for."""

    def paused(self) -> AbstractContextManager[None]:
        """Nothing runs between two calls of ``advance``."""
        return nullcontext()

    def cpu_seconds(self) -> float:
        """Processor time that this process has taken so far, in seconds."""
        return cpu_seconds() + sum(map(seconds_of, self.learner.pids))

    def report(self) -> dict[str, Any]:
        """What the other processes have done: nothing."""
        return {}

    def end(self) -> None:
        """There is no other process to end."""

    def beta(self) -> float:
        """The exponent of the importance weights at this step."""
        return beta_at(self.workload, self.step)

    def close(self) -> None:
        """Close the actors' environments, and end what computes for the learner."""
        self.learner.close()
        self._stop_acting()

    def _stop_acting(self) -> None:
        for actor in self._actors:
            actor.close()

    def _act_by(self, seed: int) -> None:
        """Begin with actors whose random numbers a seed decides."""
        self._acting_seed, count = seed, self.workload.actors.count
        self._actors = [actor_of(self.workload, number, seed) for number in range(count)]

    def _acting(self, name: str | None) -> Learner:
        """The learner that actors act by: where they fetch weights at each step, one that shares their memory."""
        own = self.learner.implementation
        if name is None:
            name = own if self.compiled else learners.default(self.workload, self.device)
        is_latest = self.workload.actors.sync_interval == 1
        if is_latest and name == own:
            return self.learner
        self._fetches = not is_latest or self.device != "cpu"
        if not self._fetches:
            return learners.make(self.workload, name, seed=self.seed, share=self.learner)
        alike: dict[str, Any] = {"device": self.device, "compiled": self.compiled} if name == own else {}
        return learners.make(self.workload, name, seed=self.seed, **alike)

    def _is_sync_due(self) -> bool:
        return (self.turns // len(self._actors)) % self.workload.actors.sync_interval == 0

    def _insert(self, inserted: Inserted) -> None:
        self.buffer.insert(*inserted)

    def _update(self) -> None:
        """Take a gradient step on the oldest presampled batch, with priorities as they were when it was sampled."""
        while len(self._sampled) <= self.workload.replay.presampled:
            self._sampled.append(self.buffer.sample(self.workload.learner.batch, self.beta(), self._rng))
        batch = self._sampled.popleft()
        stepped = self._stepped(batch)
        self.buffer.update_priorities(batch.sequence, stepped.priorities)
        stepped.check()
        self.updates, self.losses = self.updates + 1, stepped.losses

    def _stepped(self, batch: Batch) -> Stepped:
        return self.learner.step(batch.rows, batch.weights)

    def identity(self) -> dict[str, Any]:
        """The settings that a run must share with a state in order to resume from it."""
        return {"workload": asdict(self.workload), "contestant": self.contestant, "seed": self.seed}

    def state_dict(self) -> dict[str, Any]:
        """All that the next iteration depends on: every generator, network, optimizer, record and priority.

        Once an environment has failed it has no state of the actors: they begin new episodes from it, by other random
        numbers.
        """
        return {
            "learner": self.learner.state_dict(),
            "policy": self.policy.state_dict() if self._fetches else None,
            "buffer": self.buffer.state_dict(),
            "rng": self._rng.bit_generator.state,
            "actors": None if self._is_broken else [actor.state_dict() for actor in self._actors],
            "acting": self._acting_seed,
            "drawn": [(batch.rows, batch.weights, batch.sequence) for batch in self._sampled],
            "step": self.step,
            "turns": self.turns,
            "updates": self.updates,
            "losses": self.losses,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a loop of the same identity."""
        self.learner.load_state_dict(state["learner"])
        if self._fetches:
            self.policy.load_state_dict(state["policy"] or state["learner"])
        self.buffer.load_state_dict(state["buffer"])
        self._rng.bit_generator.state = state["rng"]
        self._sampled = deque(Batch(*parts) for parts in state["drawn"])
        self.step, self.turns, self.updates = int(state["step"]), int(state["turns"]), int(state["updates"])
        states, seed = state["actors"], state.get("acting", self.seed)
        seed = seed_of(self.seed, _ANEW, self.step) if states is None else seed
        if seed != self._acting_seed:
            self._stop_acting()
            self._act_by(seed)
        if states is None and isinstance(self.buffer, Rollouts):
            self.buffer.cut()
        for actor, saved in zip(self._actors, states or (), strict=states is not None):
            actor.load_state_dict(saved)
        self.losses = dict(state["losses"])
