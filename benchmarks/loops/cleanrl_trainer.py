"""cleanrl's DQN in JAX: a script of no current package, run as it is from a copy that the user names.

It runs in a thread of its own, which waits in its environment's step between two blocks.
"""

import functools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .trainer import Trainer

FILE = "FANOUT_CLEANRL"  # the environment variable that names the copy, set by --cleanrl
LAYERS = ("nn.Dense(120)", "nn.Dense(84)")  # what the script has in place of the workload's layers
ENOUGH = 10**12  # steps


class Cleanrl(Trainer):
    """``dqn_jax.py``, which samples uniformly; the sizes of its layers alone are replaced."""

    packages = ("jax", "flax", "optax", "stable-baselines3", "torch", "numpy", "gymnasium")
    needs = ("flax", "gymnasium", "jax", "optax", "tensorboard")
    replay = "uniform"
    limits = (
        "not double: one pass of the network less",
        "squared errors, and no clipping of gradients",
        "copies its target network every 1 / tau steps",
        "counts a reset as a step, as its loop does",
    )

    def _prepare(self) -> None:
        if not os.environ.get(FILE):
            raise RuntimeError("cleanrl's dqn_jax.py is in no current package; name a copy with --cleanrl FILE")
        path = Path(os.environ[FILE]).resolve()
        text = path.read_text(encoding="utf-8")
        for layer, units in zip(LAYERS, self.workload.network.hidden, strict=True):
            text = text.replace(layer, f"nn.Dense({units})")
        self._names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
        self._ended: list[float] = []
        self._until, self._error = 0.0, ""
        self._may_go, self._is_idle = threading.Event(), threading.Event()
        self._replace_environments()
        os.chdir(tempfile.mkdtemp())  # where the script writes its logs
        sys.argv = [str(path), *self._settings()]
        code = compile(text, str(path), "exec")
        threading.Thread(target=self._work, args=(code,), daemon=True).start()
        self._wait()

    def _settings(self) -> list[str]:
        learner, explore = self.workload.learner, self.workload.exploration.end
        settings = {
            "env-id": self.workload.environment,
            "seed": self.seed,
            "total-timesteps": ENOUGH,
            "learning-rate": learner.learning_rate,
            "buffer-size": self.workload.replay.capacity,
            "gamma": learner.gamma,
            "tau": 1.0,
            "target-network-frequency": round(1 / learner.tau),
            "batch-size": learner.batch,
            "start-e": explore,
            "end-e": explore,
            "learning-starts": learner.learning_starts,
            "train-frequency": learner.update_interval,
        }
        return [word for name, value in settings.items() for word in (f"--{name}", str(value))]

    def _replace_environments(self) -> None:
        """Let ``gymnasium.make`` make environments that wait when the block is over.

        Its vector environment resets in a step of the loop. A time limit counts as an end: the script reads what
        gymnasium no longer tells of one.
        """
        import gymnasium  # noqa: PLC0415  # optional

        made, stepped = functools.partial(gymnasium.make, disable_env_checker=True), self._stepped

        class Waiting(gymnasium.Wrapper):  # type: ignore[misc,type-arg]
            has_stepped = False

            def reset(self, **how: Any) -> Any:
                if self.has_stepped:
                    stepped()
                return super().reset(**how)

            def step(self, action: Any) -> Any:
                self.has_stepped = True
                stepped()
                observation, reward, terminated, truncated, info = self.env.step(action)
                return observation, reward, terminated or truncated, False, info

        gymnasium.make = lambda name: Waiting(made(name))  # type: ignore[assignment]

    def _work(self, code: Any) -> None:
        try:
            exec(code, self._names)  # the script of the user's choice
            self._error = "the script has ended"
        except BaseException as error:  # of the script, told to the thread that waits
            self._error = f"{type(error).__name__}: {error}"
        self._is_idle.set()

    def _stepped(self) -> None:
        """Note that a step ended; wait where the block is over."""
        now = time.perf_counter()
        self._ended.append(now)
        if now >= self._until:
            self._may_go.clear()
            self._is_idle.set()
            self._may_go.wait()

    def _wait(self) -> None:
        self._is_idle.wait()
        if self._error:
            raise RuntimeError(self._error)

    def turn(self) -> None:
        """Take one step of the environment, and the gradient step after it."""
        self.run(0.0)

    def run(self, until: float) -> list[float]:
        """Let the script run; return when its steps ended."""
        self._until, self._ended = until, []
        self._is_idle.clear()
        self._may_go.set()
        self._wait()
        self.steps += len(self._ended)
        return self._ended

    @property
    def updates(self) -> int:
        return int(self._names["q_state"].step)

    @property
    def weights(self) -> int:
        return _size(self._names["q_state"].params)


def _size(tree: Any) -> int:
    return sum(map(_size, tree.values())) if isinstance(tree, Mapping) else int(tree.size)
