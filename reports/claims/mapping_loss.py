"""Measure how much the published mapping algorithm and its readings lose against the joint optimum, on random tables.

In each table the times of learner and RMM (T_L, T_R) on three devices are log-uniform over two decades and independent.
The model is that of ``greedy_mapping``: the longer time, or their sum where both are on the GPU.
"""

from dataclasses import dataclass

import numpy as np

from .greedy_mapping import FPGA, GPU, VARIANTS, Reals, heeded

DEVICES = ("CPU", GPU, FPGA)
TABLES = 200_000
DECADES = 2.0
SEED = 20230701


@dataclass(frozen=True)
class Loss:
    """The loss of a variant: how many of ``tables`` are not optimal, and step time over the optimum's on those.

    ``mean``: over the tables that are not optimal; ``worst``: the largest of all.
    """

    variant: str
    tables: int
    suboptimal: int
    mean: float
    worst: float

    @property
    def share(self) -> float:
        """The share of tables on which the mapping is not optimal."""
        return self.suboptimal / self.tables


def random_tables(tables: int = TABLES, seed: int = SEED) -> tuple[Reals, Reals]:
    """Sample T_L and T_R [tables, devices]."""
    sampled = 10 ** np.random.default_rng(seed).uniform(0.0, DECADES, (2, tables, len(DEVICES)))
    return sampled[0], sampled[1]


def ratios(learner: Reals, rmm: Reals) -> dict[str, Reals]:
    """Compute each variant's step time over the joint optimum's [tables], from T_L and T_R [tables, devices]."""
    both = np.maximum(learner[:, :, None], rmm[:, None, :])
    gpu = DEVICES.index(GPU)
    both[:, gpu, gpu] = learner[:, gpu] + rmm[:, gpu]
    best = both.min(axis=(1, 2))
    row = np.arange(len(learner))
    first = learner.argmin(axis=1)
    greedy = [heeded(learner, rmm, DEVICES, tested).argmin(axis=1) for tested in ((), (FPGA,), ("CPU", FPGA))]
    chosen = [*greedy, both[row, first].argmin(axis=1)]
    return {name: both[row, first, rmm_device] / best for name, rmm_device in zip(VARIANTS, chosen, strict=True)}


def losses(tables: int = TABLES, seed: int = SEED) -> tuple[Loss, ...]:
    """Compute the loss of each variant of ``greedy_mapping.VARIANTS``, in its order."""
    results = []
    for name, ratio in ratios(*random_tables(tables, seed)).items():
        worse = ratio[ratio > 1]
        results.append(Loss(name, tables, worse.size, float(worse.mean()) if worse.size else 1.0, float(ratio.max())))
    return tuple(results)
