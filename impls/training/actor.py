"""Actors: each steps its environment, or several at once, by a policy and hands off records from local storages."""

import contextlib
import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..replay import LocalStorage
from ..replay.layout import Arrays
from ..replay.local_storages import LocalStorages
from .clock import policy_quality
from .environments import LARGEST, Environment, described
from .errors import TrainingError
from .learner import Learner
from .weights import layout_of
from .workload import Workload

ACTING, TRAINING, VALIDATION, TEST = range(4)
"""Uses of a seed; no two of them share random numbers."""

LONGEST = 1_000_000
"""Steps after which an evaluation gives up on an episode."""


class Episode(NamedTuple):
    """An episode that has ended: the sum of its rewards as the environment gave them, and its steps."""

    score: float
    length: int


class Inserted(NamedTuple):
    """Arguments of ``PrioritizedBuffer.insert``, from a local storage that is full or whose episode is over."""

    records: Arrays
    errors: NDArray[np.float32] | None
    can_sample: NDArray[np.bool_]


class ActorStep(NamedTuple):
    """Results of one turn of an actor: environment steps taken, records to insert or None, and episodes that ended."""

    steps: int
    inserted: Inserted | None
    episodes: tuple[Episode, ...]


class Tested(NamedTuple):
    """An evaluation of the weights ``[P]`` of an environment step, when N gradient steps had been taken."""

    step: int
    updates: int
    weights: NDArray[np.float32]
    scores: list[float]


def seed_of(*words: int) -> int:
    """A seed in [0, 2**31) that these numbers decide; other numbers give an unrelated one."""
    return int(np.random.SeedSequence(words).generate_state(1)[0] >> 1)


def not_reproducible(name: str, cause: str = "the same seed and actions") -> TrainingError:
    """The error of an environment that does not repeat itself."""
    return TrainingError(f"{name}: {cause} led elsewhere, so no run of it can be resumed")


class Episodes:
    """Episodes of one environment, each begun by a reset with a seed of its own.

    Seed and actions decide an episode, so that a state in the middle of one is restored, in any environment, by taking
    its actions once more.
    """

    def __init__(self, workload: Workload, environment: Environment, number: int, seed: int) -> None:
        self._workload, self.environment, self._number, self._seed = workload, environment, number, seed
        # Invariant: the actions of the episode so far have led from its first observation to ``observation``.
        self._begun, self._actions = 0, list[Any]()
        self.observation = self._reset()

    @property
    def length(self) -> int:
        """Steps of the episode so far."""
        return len(self._actions)

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool]:
        """Take a step: (observation, reward, terminated, truncated)."""
        result = self.environment.step(action)
        self._actions.append(action)
        self.observation = result[0]
        return result

    def begin(self) -> NDArray[Any]:
        """Begin the next episode; returns its first observation."""
        self._begun, self._actions = self._begun + 1, []
        self.observation = self._reset()
        return self.observation

    def _reset(self) -> NDArray[Any]:
        return self.environment.reset(seed_of(self._seed, ACTING, self._number, self._begun))

    def state_dict(self) -> dict[str, Any]:
        """The episode's number and actions, which stand for the environment, and where they have led."""
        return {"episode": self._begun, "actions": np.asarray(self._actions), "observation": self.observation.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of the same environment. TrainingError if its actions do not lead to where they had led."""
        self._begun, self._actions = int(state["episode"]), []
        self.observation = self._reset()
        for action in state["actions"]:
            self.step(action)
        if not np.array_equal(self.observation, state["observation"]):
            raise not_reproducible(self._workload.environment)


class Actor:
    """Actor ``number`` of a workload whose actors step one environment each."""

    def __init__(self, workload: Workload, number: int, seed: int) -> None:
        self._workload, self._environment = workload, Environment(workload)
        self._episodes = Episodes(workload, self._environment, number, seed)
        self._rng = np.random.default_rng([seed, ACTING, number])
        # Invariant: between two steps it is not full, and all that it has is of the running episode.
        self._local = LocalStorage(layout_of(workload), workload.actors.local_storage)
        self._score = 0.0

    def step(self, policy: Learner, explore: float, at_random: bool) -> ActorStep:
        """Take one step of the environment.

        Local storage is handed off when it is full or its episode is over. TrainingError for a faulty environment.
        """
        seen = self._episodes.observation
        action = self._random_action() if at_random else policy.act(seen[None], explore, self._rng)[0]
        following, reward, terminated, truncated = self._episodes.step(action)
        self._local.store(seen, action, reward, following, terminated)
        self._score += reward
        over = terminated or truncated
        inserted = self._hand_over(policy) if over or self._local.is_full else None
        if not over:
            return ActorStep(1, inserted, ())
        ended = Episode(self._score, self._episodes.length)
        self._score = 0.0
        self._episodes.begin()
        return ActorStep(1, inserted, (ended,))

    def close(self) -> None:
        """Close the actor's environment."""
        self._environment.close()

    def _random_action(self) -> Any:
        if self._workload.has_choices:
            return self._rng.integers(self._workload.action.choices)
        return self._rng.uniform(-1, 1, self._workload.action_size).astype(np.float32)

    def _hand_over(self, policy: Learner) -> Inserted:
        errors = None
        if self._workload.replay.initial_priority == "td_error":
            errors = policy.priorities(self._local.transitions())
        records, drawable = self._local.take()
        return Inserted(records, errors, drawable)

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on, with the episode's number and actions in place of the environment."""
        return {
            "rng": self._rng.bit_generator.state,
            "local": self._local.state_dict(),
            "score": self._score,
            **self._episodes.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of the same actor. TrainingError if the environment does not lead to where it had led."""
        self._rng.bit_generator.state = state["rng"]
        self._local.load_state_dict(state["local"])
        self._score = float(state["score"])
        self._episodes.load_state_dict(state)


def explore_at(workload: Workload, step: int) -> float:
    """Exploration at an environment step, by the workload's linear schedule."""
    plan = workload.exploration
    return plan.start + (plan.end - plan.start) * min(1.0, step / plan.steps)


def beta_at(workload: Workload, step: int) -> float:
    """The exponent of the importance weights at an environment step, by the workload's linear schedule."""
    replay, done = workload.replay, min(1.0, step / workload.steps)
    return replay.beta + ((replay.beta_end or replay.beta) - replay.beta) * done


def evaluate(workload: Workload, policy: Learner, environment: Environment, episodes: int, *seed: int) -> list[float]:
    """Scores ``[episodes]`` of the policy without exploration; ``seed`` and an episode's number decide the episode.

    TrainingError for an episode that has not ended after ``LONGEST`` steps.
    """
    scores = []
    for episode in range(episodes):
        observation, rewards, over = environment.reset(seed_of(*seed, episode)), list[float](), False
        while not over:
            if len(rewards) == LONGEST:
                raise TrainingError(
                    f"{workload.environment}: an evaluation's episode has not ended after {LONGEST:,} steps; "
                    "register the environment with max_episode_steps"
                )
            action = policy.act(observation[None], 0.0, None)[0]
            observation, reward, terminated, truncated = environment.step(action)
            rewards.append(reward)
            over = terminated or truncated
        scores.append(policy_quality(rewards))
    return scores


class VectorStep(NamedTuple):
    """One turn of E environments: what followed and how, and which of them took a step; the others began an episode.

    ``observations [E, *shape]``; ``rewards [E]`` float64; ``terminated``, ``truncated`` and ``stepped`` ``[E]`` bool.
    """

    observations: NDArray[Any]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    stepped: NDArray[np.bool_]


class Separate:
    """E environments of gymnasium's, stepped one after the other; number ``first`` + e is the e-th."""

    def __init__(self, workload: Workload, made: list[Environment], first: int, seed: int) -> None:
        self._each = [Episodes(workload, one, first + at, seed) for at, one in enumerate(made)]
        self._over = np.zeros(len(made), np.bool_)
        self.observations = np.stack([one.observation for one in self._each])

    def step(self, actions: NDArray[Any]) -> VectorStep:
        """Take a step of each, by ``[E, ..]`` actions of the learner."""
        stepped, over = ~self._over, np.zeros((2, len(self._each)), np.bool_)
        rewards, observations = np.zeros(len(self._each)), np.empty_like(self.observations)
        for at, (one, action) in enumerate(zip(self._each, actions, strict=True)):
            if stepped[at]:
                observations[at], rewards[at], over[0, at], over[1, at] = one.step(action)
            else:
                observations[at] = one.begin()
        self._over, self.observations = over[0] | over[1], observations
        return VectorStep(observations, rewards, over[0], over[1], stepped)

    def close(self) -> None:
        """Close all E environments."""
        for one in self._each:
            one.environment.close()

    def state_dict(self) -> dict[str, Any]:
        """State of each, and which of them begin an episode in the next turn."""
        return {"each": [one.state_dict() for one in self._each], "over": self._over.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of the same environments. TrainingError if one does not lead to where it had led."""
        for one, saved in zip(self._each, state["each"], strict=True):
            one.load_state_dict(saved)
        self._over[:] = state["over"]
        self.observations = np.stack([one.observation for one in self._each])


class Native:
    """A vector environment of gymnasium's own, whose E environments share one random generator.

    ``of`` is one such environment alone, for its checks. ``is_restorable`` says whether numbers, arrays and the
    generator are all that the vector has, so that they restore a state of it.
    """

    def __init__(self, workload: Workload, of: Environment, made: Any, number: int, seed: int) -> None:
        self._workload, self._name, self._of, self._made = workload, workload.environment, of, made
        self._over = np.zeros(workload.actors.environments, np.bool_)
        try:
            observations, _ = made.reset(seed=seed_of(seed, ACTING, number, 0))
        except Exception as error:  # whatever an environment raises
            raise TrainingError(f"{self._name}: reset raised {described(error)}") from error
        self.observations = of.checked(observations, self._over.size)

    @property
    def is_restorable(self) -> bool:
        """Whether a state can be saved and restored, and an episode begins in the turn after the last one's end."""
        from gymnasium import Space  # noqa: PLC0415  # loaded by now
        from gymnasium.envs.registration import EnvSpec  # noqa: PLC0415
        from gymnasium.vector import AutoresetMode  # noqa: PLC0415

        others = [name for name in vars(self._made) if name not in self._parts() and name != "_np_random"]
        return (
            self._made.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP
            and isinstance(vars(self._made).get("_np_random"), np.random.Generator)
            and all(isinstance(vars(self._made)[name], Space | EnvSpec) for name in others)
        )

    def step(self, actions: NDArray[Any]) -> VectorStep:
        """Take a step of each, by ``[E, ..]`` actions of the learner. TrainingError for a faulty environment."""
        stepped = ~self._over
        observations, rewards, terminated, truncated, _ = self._stepped(self._made, actions)
        gains = self._array("rewards", rewards, "fiub").astype(np.float64)
        if not (np.abs(gains) <= LARGEST).all():  # written so, it refuses NaN too
            bad = gains[~(np.abs(gains) <= LARGEST)][0]
            raise TrainingError(
                f"{self._name}: its reward is {bad}, which nothing can be learnt from; it must be finite in float32"
            )
        ends = [self._array(*pair, "b") for pair in (("terminated", terminated), ("truncated", truncated))]
        self.observations = self._of.checked(observations, self._over.size)
        self._over = ends[0] | ends[1]
        return VectorStep(self.observations, gains, ends[0], ends[1], stepped)

    def _stepped(self, made: Any, actions: NDArray[Any]) -> Any:
        own_actions = self._of.own_actions(actions)
        try:
            return made.step(own_actions)
        except Exception as error:  # whatever an environment raises
            raise TrainingError(f"{self._name}: step raised {described(error)}") from error

    def _array(self, name: str, values: Any, kinds: str) -> NDArray[Any]:
        """A copy of one number of each environment, ``[E]``."""
        array = np.array(values)
        if array.shape != self._over.shape or array.dtype.kind not in kinds:
            what = "true or false" if kinds == "b" else "a number"
            raise TrainingError(
                f"{self._name}: its {name} are {array.dtype} {list(array.shape)}, not {what} of each of "
                f"{self._over.size} environments"
            )
        return array

    def close(self) -> None:
        """Close the vector; an exception it raises is ignored."""
        with contextlib.suppress(Exception):  # whatever an environment raises
            self._made.close()

    def state_dict(self) -> dict[str, Any]:
        """Every number and array of the vector, its generator, and what follows a step from here, as a check."""
        return {
            "parts": {name: copy.copy(part) for name, part in self._parts().items()},
            "rng": self._made.np_random.bit_generator.state,
            "over": self._over.copy(),
            "observations": self.observations.copy(),
            "next": self._next(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of the same vector. TrainingError if it does not continue as it would have."""
        for name, part in state["parts"].items():
            setattr(self._made, name, copy.copy(part))
        self._made.np_random.bit_generator.state = state["rng"]
        self._over[:] = state["over"]
        self.observations = state["observations"].copy()
        if not np.array_equal(self._next(), state["next"]):
            raise not_reproducible(self._name, "the same state")

    def _parts(self) -> dict[str, Any]:
        """The numbers and arrays that the vector has, by name."""
        kinds = (bool, int, float, str, type(None))
        return {
            name: part
            for name, part in vars(self._made).items()
            if type(part) in kinds or (isinstance(part, np.ndarray) and part.dtype.kind in "fiub")
        }

    def _next(self) -> NDArray[Any]:
        """Observations ``[E, *shape]`` after a step from here by actions of zeros; nothing changes."""
        numbers = () if self._workload.has_choices else (self._workload.action_size,)
        zeros = np.zeros((self._over.size, *numbers))
        return np.array(self._stepped(copy.deepcopy(self._made), zeros)[0])


def environments_of(workload: Workload, number: int, seed: int) -> Separate | Native:
    """The E environments of actor ``number``: gymnasium's own vector where it has one, else E separate ones."""
    count, one = workload.actors.environments, Environment(workload)
    if (made := one.vector(count)) is not None:
        native = Native(workload, one, made, number, seed)
        if native.is_restorable:
            return native
        native.close()
    return Separate(workload, [one, *(Environment(workload) for _ in range(count - 1))], number * count, seed)


class VectorActor:
    """Actor ``number`` of a workload whose actors step E > 1 environments at once."""

    def __init__(self, workload: Workload, number: int, seed: int) -> None:
        self._workload = workload
        self._environments = environments_of(workload, number, seed)
        self._rng = np.random.default_rng([seed, ACTING, number])
        count, storage = workload.actors.environments, workload.actors.local_storage
        # Invariant: between two turns no storage is full, and all that one has is of its environment's running episode.
        self._local = LocalStorages(layout_of(workload), storage, count)
        self._scores, self._lengths = np.zeros(count), np.zeros(count, np.int64)

    def step(self, policy: Learner, explore: float, at_random: bool) -> ActorStep:
        """Take a step of each environment whose episode continues, by one call of the policy; the others begin anew.

        The local storages that are full, or whose episode is over, are handed off together, in the environments'
        order. TrainingError for a faulty environment.
        """
        seen = self._environments.observations
        actions = self._random_actions() if at_random else policy.act(seen, explore, self._rng)
        turned = self._environments.step(actions)
        parts = {"observation": seen, "action": actions, "reward": turned.rewards, "terminated": turned.terminated}
        self._local.append(parts | {"next_observation": turned.observations}, turned.stepped)
        self._scores += turned.rewards
        self._lengths += turned.stepped
        over = turned.terminated | turned.truncated
        ready = over | self._local.full
        inserted = self._hand_over(policy, ready) if ready.any() else None
        ended = [Episode(float(self._scores[at]), int(self._lengths[at])) for at in np.flatnonzero(over)]
        self._scores[over], self._lengths[over] = 0.0, 0
        return ActorStep(int(turned.stepped.sum()), inserted, tuple(ended))

    def close(self) -> None:
        """Close the actor's environments."""
        self._environments.close()

    def _random_actions(self) -> NDArray[Any]:
        count, action = self._workload.actors.environments, self._workload.action
        if self._workload.has_choices:
            return self._rng.integers(action.choices, size=count)
        return self._rng.uniform(-1, 1, (count, self._workload.action_size)).astype(np.float32)

    def _hand_over(self, policy: Learner, ready: NDArray[np.bool_]) -> Inserted:
        records, drawable = self._local.take(ready)
        errors = None
        if self._workload.replay.initial_priority == "td_error":
            errors = policy.priorities(layout_of(self._workload).gather(records, np.flatnonzero(drawable)))
        return Inserted(records, errors, drawable)

    def state_dict(self) -> dict[str, Any]:
        """All that the next turn depends on."""
        return {
            "rng": self._rng.bit_generator.state,
            "local": self._local.state_dict(),
            "environments": self._environments.state_dict(),
            "scores": self._scores.copy(),
            "lengths": self._lengths.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of the same actor. TrainingError if the environments do not lead to where they had led."""
        self._rng.bit_generator.state = state["rng"]
        self._local.load_state_dict(state["local"])
        self._environments.load_state_dict(state["environments"])
        self._scores[:], self._lengths[:] = state["scores"], state["lengths"]


def actor_of(workload: Workload, number: int, seed: int) -> Actor | VectorActor:
    """Actor ``number`` of a workload, for as many environments as its actors have."""
    if workload.actors.environments == 1:
        return Actor(workload, number, seed)
    return VectorActor(workload, number, seed)
