"""Environments that misbehave on purpose, made by gymnasium as ``tests.fake_environments:NAME``."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Fake(gymnasium.Env):
    """Counts its steps into its observation; ends after ``length`` steps, by itself or ``truncated``."""

    def __init__(self, fault="", length=10, truncated=False, at=5, frames=False):
        shape = (84, 84) if frames else (2,)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8 if frames else np.float32)
        self.action_space = spaces.Discrete(2)
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
        self._step, self._start = 0, int(self.np_random.integers(100))
        return self._observed(), {}

    def step(self, action):
        self._step += 1
        observation, reward = self._observed(), float(self._step)
        if self._step == self._at:
            match self._fault:
                case "raises":
                    raise RuntimeError("the motor is on fire\nbadly")
                case "nan":
                    observation = np.array([np.nan, 0.0], np.float32)
                case "shape":
                    observation = np.zeros(3, np.float32)
                case "nan reward":
                    reward = float("nan")
                case "text reward":
                    reward = "plenty"
                case "restless":
                    observation = observation + np.random.default_rng().random(2, np.float32)
        over = self._step >= self._length
        return observation, reward, over and not self._truncated, over and self._truncated, {}


for fault in ("fine", "reset raises", "raises", "nan", "shape", "nan reward", "text reward", "restless", "same array"):
    name = "".join(word.title() for word in fault.split())
    gymnasium.register(f"{name}-v0", Fake, kwargs={"fault": fault})
gymnasium.register("Cut-v0", Fake, kwargs={"truncated": True})
gymnasium.register("Frames-v0", Fake, kwargs={"frames": True})
