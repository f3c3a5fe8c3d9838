"""Times of trees that follow a law which the cost model lacks, for tests of what it makes of them.

Latencies rise smoothly around each cache and have a knee where pages run out, ten misses are under way at a time, the
comparisons within a group cost as K^0.9, and every time is noisy.
"""

import math

import numpy as np

from dse.times.cost_model import Family, Point
from impls.levels import level_sizes

CACHES = {"L1": 48 << 10, "L2": 1 << 20, "L3": 32 << 20}
DRAW = Family("numba", "draw", "float32", CACHES)
UPDATE = Family("numba", "update", "float32", CACHES, shares=True)
RISES = ((4, 48 << 10), (12, 1 << 20), (15, 6 << 20), (70, 32 << 20))  # nanoseconds, and the bytes around which
NOISE = 0.03


def strange_seconds(capacity, fanout, batch):
    """Seconds of a call."""
    sizes = level_sizes(capacity, fanout)
    latency, nbytes = 0.0, 0
    for size in reversed(sizes[:-1]):
        nbytes += 8 * size
        latency += 2 + 0.15 * fanout**0.9 + sum(rise / (1 + (knee / nbytes) ** 4) for rise, knee in RISES)
    return 1e-9 * (900 + 4 * batch + batch * latency / min(batch, 10) ** 0.8)


def measured(shapes, seconds=strange_seconds, noise=NOISE, seed=0):
    """Points of the shapes (N, K, B), each with its noise."""
    rng = np.random.default_rng(seed)
    return [Point(*shape, seconds(*shape) * math.exp(noise * rng.standard_normal())) for shape in shapes]
