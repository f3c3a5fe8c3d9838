"""Compiles the replays that most tests use, a process a core: two workers of pytest would each compile what both need.

python -m tests.compile_replays
"""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

from impls.replay import make, strategies

from .replay_stress import PLAIN

# (strategy, fanout, dtype, trial); the longest first
USUAL = [(name, 16, "float32", False) for name in ("banked", "owner", *sorted({*strategies()} - {"banked", "owner"}))]
# Of none no test plays schedules, of rwlock only the long ones do.
TRIALS = [(name, 4, "float32", True) for name, *_ in USUAL if name not in ("none", "rwlock")]
# What strategies share is most of the time, and differs for trials: two processes begin with one each.
FIRST = [("global", 16, "float32", False), ("global", 4, "float32", True)]
SECOND = [(name, 3, "float64", False) for name in ("global", "two_lock_checked")]


def compile_one(name: str, fanout: int, dtype: str, trial: bool) -> None:
    """Make such a replay, which compiles it or finds it compiled."""
    make(64, PLAIN, alpha=0.6, epsilon=1e-3, strategy=name, fanout=fanout, dtype=dtype, trial=trial).close()


if __name__ == "__main__":
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_one, *zip(*dict.fromkeys((*FIRST, *TRIALS, *USUAL, *SECOND)), strict=True)))
