"""Which cells a sweep measures: blocks of axes, each a full product."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .cases import Case

Options = dict[str, Any]
NO_FANOUT = ("flat", "cumsum")  # contestants that ignore it: one cell stands for all


@dataclass(frozen=True)
class Block:
    """The product of its axes."""

    contestants: tuple[str, ...]
    ops: tuple[str, ...] = ("draw", "update")
    capacities: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    batches: tuple[int, ...] = (32, 256, 2_048)
    fanouts: tuple[int, ...] = (16,)
    threads: tuple[int, ...] = (1,)
    dtypes: tuple[str, ...] = ("float32",)
    options: tuple[Options, ...] = ({},)
    distributions: tuple[str, ...] = ("uniform",)
    duplicates: tuple[float, ...] = (0.0,)

    def cases(self) -> Iterator[Case]:
        """Every cell of the product."""
        for (
            op,
            capacity,
            batch,
            dtype,
            distribution,
            duplicates,
            contestant,
            fanout,
            threads,
            options,
        ) in itertools.product(
            self.ops,
            self.capacities,
            self.batches,
            self.dtypes,
            self.distributions,
            self.duplicates,
            self.contestants,
            self.fanouts,
            self.threads,
            self.options,
        ):
            yield Case(
                contestant=contestant,
                op=op,
                capacity=capacity,
                batch=batch,
                fanout=16 if contestant in NO_FANOUT else fanout,
                threads=threads,
                dtype=dtype,
                options=options,
                distribution=distribution,
                duplicates=duplicates,
            )


@dataclass(frozen=True)
class Preset:
    """Blocks, and the seconds one cell may be sampled for."""

    blocks: tuple[Block, ...]
    budget_seconds: float


PLAIN = {"layout": "plain"}
DELTA = {"propagate": "delta"}
ON_DEVICE = ("cupy",)  # contestants whose batches are elsewhere than the host's memory
UNCHECKED = {"validate": False}  # a device need not be waited for
MODELED = ("fpga",)  # contestants that tell their times
NARROW = {"leaf_bits": 18}  # what hardware would have; by default the twin's leaves are as wide as they can be
SEED3 = {"micro": "scan", "banking": "contiguous", "leaf_bits": 17}
LAYOUTS = ({"aligned": False}, {"padding": "full"})

PRESETS = {
    "smoke": Preset(
        (
            Block(("numba",), capacities=(1_000, 100_000), batches=(256,), fanouts=(4, 16)),
            Block(
                ("numpy", "cumsum", "flat", "python", *ON_DEVICE, *MODELED), capacities=(1_000, 100_000), batches=(256,)
            ),
        ),
        budget_seconds=0.15,
    ),
    "quick": Preset(
        (
            # The default covers the whole range of N and B; its variants are measured at some of its cells and compared
            # with it between them (dse/times/tree_times.py).
            Block(
                ("numba",),
                capacities=(1_000, 10_000, 100_000, 1_000_000),
                batches=(1, 32, 256, 2_048, 16_384),
                fanouts=(8, 16, 32),
            ),
            Block(("numba",), capacities=(10_000_000,), batches=(1, 32, 256, 16_384), fanouts=(8, 16, 32)),
            Block(("numba",), capacities=(1_000, 10_000, 100_000, 1_000_000), batches=(256,), fanouts=(4, 64)),
            Block(("numba",), capacities=(10_000, 1_000_000), batches=(1, 16_384), fanouts=(4, 64)),
            Block(("numba",), capacities=(10_000, 1_000_000), batches=(256,), fanouts=(2, 128)),
            Block(
                ("numba",),
                capacities=(10_000, 1_000_000, 10_000_000),
                batches=(1, 256, 16_384),
                fanouts=(8, 16),
                options=(PLAIN,),
            ),
            Block(("numba",), capacities=(10_000, 1_000_000, 10_000_000), batches=(2_048, 16_384), threads=(2,)),
            Block(("numba",), capacities=(1_000_000,), batches=(2_048,), fanouts=(8, 32), threads=(2,)),
            Block(("numba",), batches=(256,), options=({"aligned": False},)),
            Block(("numba",), batches=(256,), fanouts=(4, 8, 16, 32, 64), options=(DELTA,)),
            Block(("numba",), capacities=(10_000, 1_000_000), batches=(1, 16_384), options=(DELTA,)),
            Block(
                ("numba",),
                capacities=(10_000, 1_000_000, 10_000_000),
                batches=(1, 256, 16_384),
                dtypes=("float64",),
            ),
            Block(("numba",), capacities=(1_000_000,), batches=(256,), fanouts=(8, 32), dtypes=("float64",)),
            Block(("numpy",), batches=(256,), options=LAYOUTS),
            Block(("numpy", "cumsum", "flat"), capacities=(1_000, 10_000, 100_000, 1_000_000), batches=(1, 256)),
            Block(("python",), capacities=(1_000, 10_000, 100_000), batches=(1, 256)),
            Block(ON_DEVICE, batches=(32, 256, 2_048, 16_384), options=({}, UNCHECKED)),
            Block(ON_DEVICE, ("upload", "download"), (1_000_000,), (32, 256, 2_048, 16_384)),
            Block(
                MODELED,
                capacities=(1_000, 10_000, 100_000, 1_000_000),
                batches=(32, 256, 2_048, 16_384),
                fanouts=(2, 16),
                options=({}, NARROW, SEED3),
            ),
            Block(MODELED, batches=(256,), fanouts=(4, 8, 32, 64), options=({}, NARROW, SEED3)),
            Block(MODELED, ("upload", "download"), (1_000_000,), (32, 256, 2_048, 16_384)),
        ),
        budget_seconds=0.25,
    ),
    "full": Preset(
        (
            Block(
                ("numba",),
                capacities=(1_000, 10_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000),
                batches=(1, 8, 32, 256, 2_048, 16_384, 65_536),
                fanouts=(2, 4, 8, 16, 32, 64, 128, 256),
            ),
            Block(
                ("numba",),
                capacities=(10_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000),
                batches=(32, 256, 2_048, 16_384, 65_536),
                fanouts=(4, 8, 16, 32, 64),
                options=(PLAIN,),
            ),
            Block(("numba",), batches=(2_048, 16_384, 65_536), fanouts=(8, 16, 32), threads=(2, 4)),
            Block(
                ("numba",),
                capacities=(1_000, 10_000, 100_000, 1_000_000, 10_000_000),
                batches=(256, 2_048),
                fanouts=(4, 16, 64),
                options=({"aligned": False}, {"propagate": "delta"}, {"layout": "plain", "propagate": "delta"}),
            ),
            Block(
                ("numpy",),
                capacities=(1_000, 10_000, 100_000, 1_000_000, 10_000_000),
                batches=(256,),
                fanouts=(4, 16, 64),
                options=LAYOUTS,
            ),
            Block(
                ("numpy", "cumsum", "flat"),
                capacities=(1_000, 10_000, 100_000, 1_000_000, 10_000_000),
                batches=(32, 256, 2_048),
                fanouts=(4, 16, 64),
            ),
            Block(("python",), capacities=(1_000, 10_000, 100_000, 1_000_000), batches=(32, 256), fanouts=(4, 16, 64)),
            Block(
                ON_DEVICE,
                capacities=(10_000, 100_000, 1_000_000, 10_000_000),
                batches=(32, 256, 2_048, 16_384, 65_536),
                fanouts=(4, 8, 16, 32, 64),
                options=({}, UNCHECKED),
            ),
            Block(ON_DEVICE, ("upload", "download"), (1_000_000,), (32, 256, 2_048, 16_384, 65_536)),
            Block(
                MODELED,
                capacities=(1_000, 10_000, 100_000, 1_000_000, 10_000_000),
                batches=(32, 256, 2_048, 16_384, 65_536),
                fanouts=(2, 4, 8, 16, 32, 64),
                options=({}, NARROW, SEED3),
            ),
            Block(MODELED, ("upload", "download"), (1_000_000,), (32, 256, 2_048, 16_384, 65_536)),
            Block(MODELED, ("sample", "get", "insert", "step", "total"), batches=(256,), options=({}, NARROW, SEED3)),
            Block(
                MODELED,
                capacities=(1_000_000,),
                batches=(256, 2_048),
                options=({}, NARROW, SEED3),
                distributions=("mostly_zero", "newest_max"),
            ),
            Block(
                ("numba", "numpy", "cumsum", "flat", "python"),
                ops=("sample", "get", "insert", "step", "total"),
                batches=(256,),
            ),
            Block(("numba",), dtypes=("float64",), fanouts=(8, 16, 32)),
            Block(
                ("numba",),
                capacities=(1_000_000,),
                batches=(256, 2_048),
                distributions=("rank0.2", "rank0.6", "rank1.0", "mostly_zero", "newest_max"),
            ),
            Block(("numba", "numpy"), ops=("update",), batches=(256, 2_048), duplicates=(0.5, 1.0)),
        ),
        budget_seconds=0.2,
    ),
}


def candidates(preset: Preset) -> list[Case]:
    """One case of every configuration (contestant, K, threads, options) the preset measures draws and updates of."""
    cases = (case for block in preset.blocks if block.dtypes == ("float32",) for case in block.cases())
    found = {
        (case.contestant, case.fanout, case.threads, repr(case.options)): case
        for case in cases
        if case.op in ("draw", "update") and case.workload == "uniform"
    }
    return [found[key] for key in sorted(found)]


def groups(cases: Iterable[Case]) -> list[list[Case]]:
    """Cases that answer the same question, hence measured in turns; each once, small trees first."""
    found: dict[tuple[Any, ...], dict[str, Case]] = {}
    for case in cases:
        question = (case.capacity, case.dtype, case.workload, case.batch, case.op)
        found.setdefault(question, {})[repr(case)] = case
    return [list(found[question].values()) for question in sorted(found)]
