"""The serial training loop [Zhang2021, Alg. 1], one iteration at a time."""

import contextlib
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

import numpy as np

from .. import make
from ..replay import Batch, PrioritizedBuffer, Replay
from ..replay import make as make_replay
from . import learners
from .actor import TRAINING, Episode, Inserted, actor_of, beta_at, explore_at, seed_of
from .arrangement import Arrangement
from .clock import cpu_seconds, seconds_of
from .errors import ProcessLost, TrainingError
from .learner import Learner, Stepped
from .rollouts import Rollouts
from .weights import layout_of
from .workload import Workload

COMPILED = "numba"
"""The tree whose kernels the compiled replay calls."""
_ANEW = 8  # sets the random numbers of actors that begin anew apart from the other uses of a seed


def buffer_of(workload: Workload, contestant: str) -> PrioritizedBuffer | Replay | Rollouts:
    """An empty buffer on a tree: the compiled replay for ``COMPILED``'s, where it can be had, else the plain one.

    A3C's has no tree. Raises what making the tree, or the replay, does.
    """
    if not workload.traits.has_replay:
        return Rollouts(workload)
    replay, layout = workload.replay, layout_of(workload)
    if contestant == COMPILED:
        with contextlib.suppress(RuntimeError):  # no robust mutexes, or compilation switched off
            return make_replay(
                replay.capacity, layout, alpha=replay.alpha, epsilon=replay.epsilon, fanout=replay.fanout
            )
    tree = make(contestant, replay.capacity, fanout=replay.fanout)
    return PrioritizedBuffer(tree, layout, alpha=replay.alpha, epsilon=replay.epsilon)


class Loop:
    """The calls that a run makes on a loop; the defaults are those of a loop without other processes.

    ``contestant`` is the implementation of the tree, ``policy_name`` of the learner that actors act by; ``losses`` are
    those of the last gradient step.
    """

    workload: Workload
    learner: Learner
    contestant: str
    device: str
    seed: int
    policy_name: str
    losses: dict[str, float]
    arrangement = Arrangement()
    compiled = False
    model: Any = None  # of the environment
    nodes_of_actors = 1  # machines that the workload's actors are on
    turns = 0  # of the first actor, where its moments suit checkpoints better than others
    is_measured = False  # at this moment, so that nothing should pause it

    @property
    def step(self) -> int:
        """Number of environment steps taken."""
        raise NotImplementedError

    @property
    def updates(self) -> int:
        """Number of gradient steps taken."""
        raise NotImplementedError

    @property
    def failure(self) -> str:
        """Why the first failed child ended; "" while none has."""
        return ""

    def advance(self) -> tuple[Episode, ...]:
        """Train a little further; returns the episodes that ended meanwhile.

        TrainingError when training has diverged; ProcessLost where a process or an environment fails.
        """
        raise NotImplementedError

    def done(self, end: int) -> bool:
        """Whether all steps up to ``end`` are taken, and the gradient steps due by then."""
        raise NotImplementedError

    def until(self, end: int) -> None:
        """Let no step begin from environment step ``end`` on. Default: each call of ``advance`` takes one."""

    def ended(self) -> tuple[Episode, ...]:
        """Episodes that ended since ``advance`` last returned. Default: none."""
        return ()

    @property
    def status(self) -> str:
        """What live progress says of other machines. Default: nothing."""
        return ""

    def take_events(self) -> list[str]:
        """Sentences that people should see, since the last call. Default: none."""
        return []

    def shorten_shutdown(self) -> None:
        """Kill children that do not rest in 4 s. Default: no children."""

    def paused(self) -> AbstractContextManager[None]:
        """All other processes rest while the context lasts. Default: no other process."""
        return nullcontext()

    def cpu_seconds(self) -> float:
        """CPU time of all processes so far, in seconds; take differences."""
        return cpu_seconds() + sum(map(seconds_of, self.learner.pids))

    def report(self) -> dict[str, Any]:
        """Counts of the other processes, and of the model. Default: neither."""
        return {}

    def end(self) -> None:
        """End the other processes. Default: no other process."""

    def close(self) -> None:
        """Let go of everything."""
        raise NotImplementedError

    def identity(self) -> dict[str, Any]:
        """The settings that a run must share with a state in order to resume from it."""
        return {"workload": asdict(self.workload), "contestant": self.contestant, "seed": self.seed}

    def state_dict(self) -> dict[str, Any]:
        """All that the rest of the run depends on."""
        raise NotImplementedError

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a loop of the same identity, before it begins."""
        raise NotImplementedError


class SerialLoop(Loop):
    """A workload's actors, learner and buffer, all in the thread that calls.

    ``contestant`` names the tree's implementation; ``learner`` and ``policy`` those of the learner and of the learner
    that actors act by, by default the fastest suited to the workload; a learner or a ``buffer`` may be there already.
    ``device`` is the learner's; ``seed`` decides everything on one thread of a CPU. Raises TrainingError where tree,
    learner, environments or memory cannot be had.
    """

    step = updates = 0

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
        self.policy_name = self.policy.implementation
        self._rng = np.random.default_rng([seed, TRAINING])
        self._act_by(seed)
        self._is_broken = False  # an actor's environment has failed, in the middle of a turn
        # Invariant: from the first gradient step on, D batches lie ready between iterations, the oldest first.
        self._sampled: deque[Batch] = deque()
        self.losses = {}

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

    def done(self, end: int) -> bool:
        """Whether all steps up to ``end`` are taken, and the gradient steps due by then."""
        return self.step >= end

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
        options: dict[str, Any] = {"device": self.device, "compiled": self.compiled} if name == own else {}
        return learners.make(self.workload, name, seed=self.seed, **options)

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
