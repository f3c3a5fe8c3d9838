"""An environment whose records carry their number in every field, and what a batch or a replay of them must be.

Frame k of an environment is [process, environment, k, k, k, k]; a step from frame k has reward k, leads to frame k + 1,
and ends the episode where k + 1 is a multiple of ten; the episode that follows begins at frame k + 2.
"""

import os

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

SIZE, LENGTH = 6, 10


class Numbered(gymnasium.Env):
    """One such environment."""

    observation_space = spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self):
        self._frame = -1

    def _observed(self):
        self._frame += 1
        return np.array([os.getpid(), 0, *[self._frame] * (SIZE - 2)], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observed(), {}

    def step(self, action):
        reward = float(self._frame)
        return self._observed(), reward, self._frame % LENGTH == 0, False, {}


class Several(gymnasium.vector.VectorEnv):
    """Such environments stepped at once."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  # as gymnasium has it

    def __init__(self, num_envs=1, **options):
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = Numbered.observation_space, Numbered.action_space
        self._frames, self._over = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.bool_)

    def _observed(self):
        seen = np.repeat(self._frames[:, None], SIZE, axis=1).astype(np.float32)
        seen[:, 0], seen[:, 1] = os.getpid(), np.arange(self.num_envs)
        return seen

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._frames[:] = 0
        return self._observed(), {}

    def step(self, actions):
        rewards = np.where(self._over, 0, self._frames).astype(np.float64)
        self._frames += 1
        self._over = ~self._over & (self._frames % LENGTH == 0)
        return self._observed(), rewards, self._over.copy(), np.zeros(self.num_envs, np.bool_), {}


gymnasium.register("Numbered-v0", Numbered, vector_entry_point=Several)


def check(rows):
    """Every record of a batch is whole: each of its fields carries its number."""
    seen, following, number = rows["observation"], rows["next_observation"], rows["reward"]
    assert (seen[:, 2:] == number[:, None]).all()
    assert (following[:, 2:] == number[:, None] + 1).all()
    assert (seen[:, :2] == following[:, :2]).all()
    assert (rows["terminated"] == ((number + 1) % LENGTH == 0)).all()


def check_replay(state, filled):
    """A replay has ``filled`` whole records, no two the same, of each environment those that follow one another."""
    rows = state["arrays"]
    check(rows)
    assert len(rows["reward"]) == filled
    environments, which = np.unique(rows["observation"][:, :2], axis=0, return_inverse=True)
    which = which.reshape(-1)
    for number in range(len(environments)):
        frames = rows["reward"][which == number].astype(np.int64)  # in the order of insertion, but for the ring's start
        frames = np.roll(frames, -int(frames.argmin()))
        steps = np.diff(frames)
        begins = frames[1:] % LENGTH == 1
        assert ((steps == 1) | (begins & (steps == 2))).all()
