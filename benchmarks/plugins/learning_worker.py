"""A process that trains Stable-Baselines3's DQN once on request, and answers with the curve.

{"do": "train", "task": "cartpole_dqn", "kind": "ours", ..} -> {"points": [[steps, seconds, mean], ..]}, {"failed": why}
"""

import sys
import time
from statistics import fmean
from typing import Any

from impls import training
from impls.training.workload import Workload

from ..libraries.base import hosts
from ..worker import sentence_of, serve

EVALUATION_SEED = 10_000_019  # of the episodes that evaluate, which no run trains on


class _Session:
    """The one thing that this process does."""

    def train(self, task: str, kind: str, seed: int, steps: int) -> dict[str, Any]:
        """Train by one seed; a point is the mean of an evaluation, and the steps and seconds of training until it."""
        try:
            return {"points": _trained(training.load(task), task, kind, seed, steps)}
        except ImportError as error:
            return {"skipped": str(error).splitlines()[0]}
        except Exception as error:  # whatever a library raises
            return {"failed": sentence_of(error)}


def _trained(workload: Workload, task: str, kind: str, seed: int, steps: int) -> list[tuple[int, float, float]]:
    trainer: Any = hosts()["sb3"].loop(task, kind, seed)
    from stable_baselines3.common.callbacks import BaseCallback  # noqa: PLC0415  # optional, and here by then

    model, explore, points = trainer._model, workload.exploration, list[tuple[int, float, float]]()
    environment = trainer.environment()

    class Evaluating(BaseCallback):  # type: ignore[misc]
        spent, began = 0.0, 0.0

        def _on_training_start(self) -> None:
            self.began = time.perf_counter()

        def _on_step(self) -> bool:
            if self.num_timesteps % workload.evaluation.interval == 0:
                self.spent += time.perf_counter() - self.began
                mean = _mean(model, environment, workload.evaluation.episodes)
                points.append((self.num_timesteps, round(self.spent, 4), mean))
                self.began = time.perf_counter()
            return True

    def exploration(left: float) -> float:
        """The chance of a random action where this share of the run is left."""
        passed = min(1.0, (1 - left) * steps / explore.steps)
        return explore.start + (explore.end - explore.start) * passed

    model.exploration_schedule = exploration
    model.learn(steps, callback=Evaluating(), log_interval=None)
    return points


def _mean(model: Any, environment: Any, episodes: int) -> float:
    """Return the mean return of episodes without exploration, the same ones each time."""
    returns = []
    for episode in range(episodes):
        observation, is_over, total = environment.reset(seed=EVALUATION_SEED + episode)[0], False, 0.0
        while not is_over:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = environment.step(action)
            is_over, total = terminated or truncated, total + float(reward)
        returns.append(total)
    return fmean(returns)


if __name__ == "__main__":
    sys.exit(serve(_Session()))
