"""How much the published mapping algorithm and its readings lose: against the joint optimum, over random tables.

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
    """Of a variant: how many of ``tables`` are not optimal; step time over the optimum's, mean over those and worst."""

    variant: str
    tables: int
    suboptimal: int
    mean: float
    worst: float

    @property
    def share(self) -> float:
        """Of tables on which the mapping is not optimal."""
        return self.suboptimal / self.tables


def random_tables(tables: int = TABLES, seed: int = SEED) -> tuple[Reals, Reals]:
    """T_L and T_R [tables, devices]."""
    drawn = 10 ** np.random.default_rng(seed).uniform(0.0, DECADES, (2, tables, len(DEVICES)))
    return drawn[0], drawn[1]


def ratios(learner: Reals, rmm: Reals) -> dict[str, Reals]:
    """Step time of each variant over the joint optimum's [tables], from T_L and T_R [tables, devices]."""
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
    """Of each variant of ``greedy.VARIANTS``, in its order."""
    found = []
    for name, ratio in ratios(*random_tables(tables, seed)).items():
        worse = ratio[ratio > 1]
        found.append(Loss(name, tables, worse.size, float(worse.mean()) if worse.size else 1.0, float(ratio.max())))
    return tuple(found)
