"""A process that keeps a training loop alive and lets it run for a block of time on request.

{"do": "prepare", "name": "pfrl", ...} -> {"affinity": [0], ...}, {"skipped": why}, {"failed": why}
{"do": "block", "seconds": 1.0}        -> {"clean": 0.004, "median": 0.005, "cpu": 0.005, ...}, {"failed": why}
{"do": "close"}                        -> {}
"""

import sys
import time
from typing import Any

import numpy as np

from impls.training.errors import TrainingError
from impls.training.weights import networks

from ...clock import pin
from ...libraries.base import Loop
from ...worker import installed, sentence_of, serve, threads
from . import make, workload

CLEAN = 10  # percentile of step times that stands for steps that nothing disturbed


class _Session:
    """The training loop of this process, once it is prepared."""

    _trainer: Loop

    def prepare(self, name: str, environments: int, seed: int, warm_up: int, batch: int = 0) -> dict[str, Any]:
        """Make a loop and let it take a given number of environment steps."""
        try:
            self._trainer = trainer = make(name, environments, seed, workload(batch))
        except (TrainingError, RuntimeError, MemoryError) as error:
            return {"skipped": (str(error).splitlines() or ["not enough memory"])[0]}
        except Exception as error:  # whatever a library raises
            return {"failed": sentence_of(error)}
        affinity = pin(1, threads())
        try:
            while trainer.steps < warm_up:
                trainer.turn()
        except Exception as error:
            return {"failed": sentence_of(error)}
        (wanted,) = (size.parameters for size in networks(workload()).values())
        if trainer.weights != wanted:
            return {"failed": f"its network has {trainer.weights:,} weights, not {wanted:,}"}
        return {"affinity": affinity, "remark": trainer.remark, "packages": installed(trainer.distributions())}

    def block(self, seconds: float) -> dict[str, Any]:
        """Let the loop run; return seconds of an environment step: clean, median, and of CPU time."""
        trainer = self._trainer
        steps, updates, cpu = trainer.steps, trainer.updates, time.process_time()
        began = time.perf_counter()
        try:
            ended = [began, *trainer.run(began + seconds)]
        except Exception as error:  # whatever a library raises
            return {"failed": sentence_of(error)}
        cpu, steps = time.process_time() - cpu, trainer.steps - steps
        a_turn = steps / (len(ended) - 1)
        clean, median = np.percentile(np.diff(ended), [CLEAN, 50]) / a_turn
        times = {"clean": float(clean), "median": float(median), "cpu": cpu / steps}
        return {**times, "seconds": ended[-1] - began, "steps": steps, "updates": trainer.updates - updates}

    def close(self) -> dict[str, Any]:
        """End what the library has started."""
        if hasattr(self, "_trainer"):
            self._trainer.close()
        return {}


if __name__ == "__main__":
    sys.exit(serve(_Session()))
