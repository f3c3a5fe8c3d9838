"""Questions a recommendation is tested with. The seed was committed before the sweep they are answered from."""

from dataclasses import dataclass

import numpy as np

QUESTION_SEED = 20_261_121
UPDATES_PER_SAMPLE = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Question:
    """Which tree, which K, how many of ``threads`` threads, for N leaves, batches of B and so many updates a draw?"""

    capacity: int
    batch: int
    threads: int
    updates_per_sample: float


def questions(count: int, threads: int, seed: int = QUESTION_SEED) -> list[Question]:
    """``count`` questions: N log-uniform in [1e4, 1e6], B in [32, 16384], threads in 1..``threads``."""
    rng = np.random.default_rng(seed)
    return [
        Question(
            capacity=round(10 ** rng.uniform(4, 6)),
            batch=round(2 ** rng.uniform(5, 14)),
            threads=int(rng.integers(1, threads + 1)),
            updates_per_sample=float(rng.choice(UPDATES_PER_SAMPLE)),
        )
        for _ in range(count)
    ]
