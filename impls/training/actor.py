"""Actors: each steps its environment by a policy and hands over records from its local storage."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..replay import LocalStorage
from ..replay.layout import Arrays
from .environments import Environment
from .errors import TrainingError
from .learner import Learner
from .sizes import layout_of
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
    drawable: NDArray[np.bool_]


class Turn(NamedTuple):
    """Results of one turn of an actor: environment steps taken, records to insert or None, and episodes that ended."""

    steps: int
    inserted: Inserted | None
    episodes: tuple[Episode, ...]


class Tested(NamedTuple):
    """An evaluation of the weights ``[P]`` of an environment step, when so many gradient steps had been taken."""

    step: int
    updates: int
    weights: NDArray[np.float32]
    scores: list[float]


def seed_of(*words: int) -> int:
    """A seed in [0, 2**31) that these numbers decide; other numbers give an unrelated one."""
    return int(np.random.SeedSequence(words).generate_state(1)[0] >> 1)


def led_elsewhere(name: str, cause: str = "the same seed and actions") -> TrainingError:
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
            raise led_elsewhere(self._workload.environment)


class Actor:
    """Actor ``number`` of a workload whose actors step one environment each."""

    def __init__(self, workload: Workload, number: int, seed: int) -> None:
        self._workload, self._environment = workload, Environment(workload)
        self._episodes = Episodes(workload, self._environment, number, seed)
        self._rng = np.random.default_rng([seed, ACTING, number])
        # Invariant: between two steps it is not full, and all that it has is of the running episode.
        self._local = LocalStorage(layout_of(workload), workload.actors.local_storage)
        self._score = 0.0

    def step(self, policy: Learner, explore: float, at_random: bool) -> Turn:
        """Take one step of the environment.

        Local storage is handed over when it is full or its episode is over. TrainingError for a faulty environment.
        """
        seen = self._episodes.observation
        action = self._random_action() if at_random else policy.act(seen[None], explore, self._rng)[0]
        following, reward, terminated, truncated = self._episodes.step(action)
        self._local.append(seen, action, reward, following, terminated)
        self._score += reward
        over = terminated or truncated
        inserted = self._hand_over(policy) if over or self._local.is_full else None
        if not over:
            return Turn(1, inserted, ())
        ended = Episode(self._score, self._episodes.length)
        self._score = 0.0
        self._episodes.begin()
        return Turn(1, inserted, (ended,))

    def close(self) -> None:
        """Close the actor's environment."""
        self._environment.close()

    def _random_action(self) -> Any:
        if self._workload.algorithm == "dqn":
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
        observation, score, over, length = environment.reset(seed_of(*seed, episode)), 0.0, False, 0
        while not over:
            if length == LONGEST:
                raise TrainingError(
                    f"{workload.environment}: an evaluation's episode has not ended after {LONGEST:,} steps; "
                    "register the environment with max_episode_steps"
                )
            length += 1
            action = policy.act(observation[None], 0.0, None)[0]
            observation, reward, terminated, truncated = environment.step(action)
            score += reward
            over = terminated or truncated
        scores.append(score)
    return scores
