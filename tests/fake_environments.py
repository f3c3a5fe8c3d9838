"""Environments that misbehave on purpose, made by gymnasium as ``tests.fake_environments:NAME``."""

import gymnasium
import numpy as np
from gymnasium import spaces

OBSERVATIONS = {
    "nan": np.array([np.nan, 0.0], np.float32),
    "shape": np.zeros(3, np.float32),
    "ragged": [[1], [1, 2]],
    "text": np.array(["up", "down"]),
    "object": np.array([1, None]),
    "complex": np.array([1j, 1]),
    "huge": np.array([1e39, 0.0]),
}
REWARDS = {"nan reward": float("nan"), "text reward": "plenty", "huge reward": 1e39}
FLAGS = {"flags": np.array([True, False]), "no flag": None}


class Fake(gymnasium.Env):
    """Counts its steps into its observation; ends after ``length`` steps, by itself or ``truncated``."""

    def __init__(self, fault="", length=10, truncated=False, at=5, frames=False, actions=None):
        shape = (84, 84) if frames else (2,)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8 if frames else np.float32)
        self.action_space = actions or spaces.Discrete(2)
        self._fault, self._length, self._truncated, self._at, self._frames = fault, length, truncated, at, frames
        self._shown = np.zeros(2, np.float32)

    def _observed(self):
        if self._fault == "same array":
            self._shown[:] = self._start, self._step
            return self._shown
        if self._frames:
            return np.full((84, 84), (self._start + self._step) % 256, np.uint8)
        return np.array([self._start, self._step], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self._fault == "reset raises":
            raise OSError("no such robot")
        if self._fault == "reset text":
            return np.array(["up", "down"]), {}
        self._step, self._start = 0, int(self.np_random.integers(100))
        return self._observed(), {}

    def step(self, action):
        self._step += 1
        observation, reward, flag = self._observed(), float(self._step), False
        if self._step == self._at:
            if self._fault == "raises":
                raise RuntimeError("the motor is on fire\nbadly")
            if self._fault == "restless":
                observation = observation + np.random.default_rng().random(2, np.float32)
            observation = OBSERVATIONS.get(self._fault, observation)
            reward, flag = REWARDS.get(self._fault, reward), FLAGS.get(self._fault, flag)
        over = self._step >= self._length
        terminated = over and not self._truncated if flag is False else flag
        return observation, reward, terminated, over and self._truncated, {}

    def close(self):
        if self._fault == "close raises":
            raise RuntimeError("the door is stuck")


for fault in (
    "fine", "reset raises", "raises", "nan", "shape", "nan reward", "text reward", "restless", "same array", "ragged",
    "text", "object", "complex", "huge", "huge reward", "flags", "no flag", "reset text", "close raises",
):  # fmt: skip
    name = "".join(word.title() for word in fault.split())
    gymnasium.register(f"{name}-v0", Fake, kwargs={"fault": fault})
gymnasium.register("Cut-v0", Fake, kwargs={"truncated": True})
gymnasium.register("Frames-v0", Fake, kwargs={"frames": True})
gymnasium.register("Endless-v0", Fake, kwargs={"length": float("inf")})
for name, space in (
    ("FromOne", spaces.Discrete(2, start=1)),
    ("Bits", spaces.MultiBinary(2)),
    ("Bounded", spaces.Box(-1, 1, (2,), np.float32)),
    ("Unbounded", spaces.Box(-np.inf, np.inf, (2,), np.float32)),
):
    gymnasium.register(f"{name}-v0", Fake, kwargs={"actions": space})
