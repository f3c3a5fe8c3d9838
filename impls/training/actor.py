"""Actors: each steps one environment by a policy and inserts records from its local storage."""

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


def seed_of(*words: int) -> int:
    """A seed in [0, 2**31) that these numbers decide; other numbers give an unrelated one."""
    return int(np.random.SeedSequence(words).generate_state(1)[0] >> 1)


class Actor:
    """Actor ``number`` of a workload.

    Every episode begins with a reset by a seed of its own, so that seed and the actions decide the episode. A state in
    the middle of one is therefore restored, in any environment, by taking its actions once more.
    """

    def __init__(self, workload: Workload, number: int, seed: int) -> None:
        self._workload, self._number, self._seed = workload, number, seed
        self._environment = Environment(workload)
        self._rng = np.random.default_rng([seed, ACTING, number])
        # Invariant: between two steps it is not full, and all that it has is of the running episode.
        self._local = LocalStorage(layout_of(workload), workload.actors.local_storage)
        self._episode, self._score, self._actions = 0, 0.0, list[Any]()
        self._observation = self._reset()

    def step(self, policy: Learner, explore: float, at_random: bool) -> tuple[Inserted | None, Episode | None]:
        """Take one step of the environment; returns (records to insert or None, the episode that ended or None).

        Local storage is handed over when it is full or its episode is over. TrainingError for a faulty environment.
        """
        action = self._random_action() if at_random else policy.act(self._observation[None], explore, self._rng)[0]
        following, reward, terminated, truncated = self._environment.step(action)
        self._local.append(self._observation, action, reward, following, terminated)
        self._actions.append(action)
        self._score += reward
        self._observation = following
        over = terminated or truncated
        inserted = self._hand_over(policy) if over or self._local.is_full else None
        if not over:
            return inserted, None
        ended = Episode(self._score, len(self._actions))
        self._episode, self._score, self._actions = self._episode + 1, 0.0, []
        self._observation = self._reset()
        return inserted, ended

    def close(self) -> None:
        """Close the actor's environment."""
        self._environment.close()

    def _reset(self) -> NDArray[Any]:
        return self._environment.reset(seed_of(self._seed, ACTING, self._number, self._episode))

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
            "episode": self._episode,
            "score": self._score,
            "actions": np.asarray(self._actions),
            "observation": self._observation.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of the same actor. TrainingError if the environment does not lead to where it had led."""
        self._rng.bit_generator.state = state["rng"]
        self._local.load_state_dict(state["local"])
        self._episode, self._score = int(state["episode"]), float(state["score"])
        self._actions = list(state["actions"])
        self._observation = self._reset()
        for action in self._actions:
            # Invariant: the environment is where the actions so far have led it.
            self._observation = self._environment.step(action)[0]
        if not np.array_equal(self._observation, state["observation"]):
            raise TrainingError(
                f"{self._workload.environment}: the same seed and actions led elsewhere, so no run of it can be resumed"
            )


def explore_at(workload: Workload, step: int) -> float:
    """Exploration at an environment step, by the workload's linear schedule."""
    plan = workload.exploration
    return plan.start + (plan.end - plan.start) * min(1.0, step / plan.steps)


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
