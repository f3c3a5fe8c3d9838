"""Environments that misbehave on purpose, made by gymnasium as ``tests.fake_environments:NAME``."""

import time

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.vector import AutoresetMode

OBSERVATIONS = {
    "nan": np.array([np.nan, 0.0], np.float32),
    "shape": np.zeros(3, np.float32),
    "ragged": [[1], [1, 2]],
    "text": np.array(["up", "down"]),
    "object": np.array([1, None]),
    "complex": np.array([1j, 1]),
    "huge": np.array([1e39, 0.0]),
}
REWARDS = {"nan reward": float("nan"), "text reward": "plenty", "huge reward": 1e39, "vast reward": 3e38}
FLAGS = {"flags": np.array([True, False]), "no flag": None}


class Fake(gymnasium.Env):
    """Counts its steps into its observation; ends after ``length`` steps, by itself or ``truncated``.

    ``length`` 0 makes it one of 3 to 8 for each episode, of which those of even length are cut off.
    """

    def __init__(self, fault="", length=10, truncated=False, at=5, frames=False, actions=None):
        shape = (84, 84) if frames else (2,)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8 if frames else np.float32)
        self.action_space = actions or spaces.Discrete(2)
        self._fault, self._length, self._truncated, self._at, self._frames = fault, length, truncated, at, frames
        self._shown, self._is_uneven = np.zeros(2, np.float32), not length

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
        if self._is_uneven:
            self._length = int(self.np_random.integers(3, 9))
            self._truncated = self._length % 2 == 0
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


class SlowCart(CartPoleEnv):
    """A CartPole whose step also sleeps, as a simulator that runs on a core of its own."""

    def __init__(self, seconds):
        super().__init__()
        self._seconds = seconds

    def step(self, action):
        time.sleep(self._seconds)
        return super().step(action)


SLEEPS_US = (0, 500, 1_000, 2_000, 4_000, 8_000, 16_000)


class Carts(CartPoleVectorEnv):
    """gymnasium's vector of CartPoles with a fault, from its second step on."""

    def __init__(self, num_envs=1, fault="", **options):
        super().__init__(num_envs, **options)
        self._fault, self._count = fault, 0
        if fault == "opaque":
            self._steps_of_each = [0] * num_envs

    def reset(self, **options):
        if self._fault == "reset raises":
            raise OSError("no such carts")
        return super().reset(**options)

    def step(self, action):
        observations, rewards, terminated, truncated, more = super().step(action)
        self._count += 1
        if self._count > 1 and self._fault == "raises":
            raise RuntimeError("the carts\nhave collided")
        if self._count > 1 and self._fault == "nan":
            observations[-1, -1] = np.nan
        if self._count > 1 and self._fault == "nan reward":
            rewards[-1] = np.nan
        if self._fault == "restless":
            observations += np.random.default_rng().random(4, np.float32) / 100
        changed = {"shape": observations[:, :3], "text": observations.astype(str)}
        flags = {"flags": terminated.astype(int), "flag": terminated[0]}
        rewards = {"reward": 1.0, "rewards": rewards.astype(str)}.get(self._fault, rewards)
        return changed.get(self._fault, observations), rewards, flags.get(self._fault, terminated), truncated, more


class SameStepCarts(Carts):
    """Carts that say that they begin an episode in the step that ends the last one."""

    metadata = Carts.metadata | {"autoreset_mode": AutoresetMode.SAME_STEP}


for fault in (
    "fine", "reset raises", "raises", "nan", "nan reward", "shape", "text", "flags", "flag", "reward", "rewards",
    "mode", "opaque", "restless",
):  # fmt: skip
    name = "".join(word.title() for word in fault.split())
    made, several = lambda fault: CartPoleEnv(), SameStepCarts if fault == "mode" else Carts
    options = {"vector_entry_point": several, "kwargs": {"fault": fault}, "max_episode_steps": 12}
    gymnasium.register(f"{name}Carts-v0", made, **options)
for fault in (
    "fine", "reset raises", "raises", "nan", "shape", "nan reward", "text reward", "restless", "same array", "ragged",
    "text", "object", "complex", "huge", "huge reward", "vast reward", "flags", "no flag", "reset text",
):  # fmt: skip
    name = "".join(word.title() for word in fault.split())
    gymnasium.register(f"{name}-v0", Fake, kwargs={"fault": fault})
for sleep in SLEEPS_US:
    gymnasium.register(f"Slow{sleep}us-v0", SlowCart, kwargs={"seconds": sleep / 1e6}, max_episode_steps=500)
gymnasium.register("Cut-v0", Fake, kwargs={"truncated": True})
gymnasium.register("Uneven-v0", Fake, kwargs={"length": 0})
gymnasium.register("UnevenFrames-v0", Fake, kwargs={"length": 0, "frames": True})
gymnasium.register("Frames-v0", Fake, kwargs={"frames": True})
gymnasium.register("Endless-v0", Fake, kwargs={"length": float("inf")})
for name, space in (
    ("FromOne", spaces.Discrete(2, start=1)),
    ("Bits", spaces.MultiBinary(2)),
    ("Bounded", spaces.Box(-1, 1, (2,), np.float32)),
    ("Unbounded", spaces.Box(-np.inf, np.inf, (2,), np.float32)),
):
    gymnasium.register(f"{name}-v0", Fake, kwargs={"actions": space})
