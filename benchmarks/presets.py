"""The cells that a sweep measures: blocks of axes, each a full product.

The grid is finest for one tree; every other tree of the checkout enters it by the traits of its class.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import impls

from .cases import Case

Options = dict[str, Any]
TREES = {name: impls.traits(name) for name in impls.names()}
NO_FANOUT = tuple(name for name, traits in TREES.items() if not traits.uses_fanout)  # one cell stands for all K
MODELED = tuple(name for name, traits in TREES.items() if traits.modeled)
"""Implementations that state modeled times."""
ON_DEVICE = tuple(name for name, traits in TREES.items() if traits.runs_on != "cpu" and not traits.modeled)
"""Implementations whose batches lie outside the host's memory."""
CLOSEST = ("numba",)  # the grid is finest here
THREADED = tuple(name for name, traits in TREES.items() if traits.threaded)
OTHERS = tuple(name for name in TREES if name not in (*CLOSEST, *MODELED, *ON_DEVICE))
SLOW = tuple(name for name in OTHERS if TREES[name].fill_seconds)
FAST = tuple(name for name in OTHERS if name not in SLOW)
"""Trees on the host without CLOSEST: those that are as fast to fill as to make."""


@dataclass(frozen=True)
class Block:
    """A grid of cells: the full product of its axes."""

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
        """Yield every cell of the product: the axes stand in the order of a case's fields."""
        for case in itertools.starmap(Case, itertools.product(*(getattr(self, axis.name) for axis in fields(self)))):
            yield replace(case, fanout=16) if case.contestant in NO_FANOUT else case


def varied(contestants: Iterable[str], *axes: Any, **more: Any) -> Iterator[Block]:
    """Yield a block for each implementation, with its defaults and the variants that its traits state."""
    return (Block((name,), *axes, **more, options=({}, *TREES[name].variants)) for name in contestants)


def is_own(case: Case) -> bool:
    """Say whether the case is of an implementation as it comes, or of a variant that its own traits state."""
    return not case.options or case.options in getattr(TREES.get(case.contestant), "variants", ())


@dataclass(frozen=True)
class Preset:
    """Blocks of cells, and the seconds of sampling that each cell may take."""

    blocks: tuple[Block, ...]
    budget_seconds: float


PLAIN = {"layout": "plain"}
DELTA = {"propagate": "delta"}
UNCHECKED = {"validate": False}
ENDS, DECADES = (10_000, 1_000_000), (1_000, 10_000, 100_000, 1_000_000)  # capacities N
BATCHES = (32, 256, 2_048, 16_384)
FANOUTS = (2, 4, 8, 16, 32, 64, 128)
KS = {"fanouts": FANOUTS, "batches": (1, 256, 2_048)}  # with DECADES: what a choice of K is judged on

PRESETS = {
    "smoke": Preset(
        (
            Block(CLOSEST, capacities=(1_000, 100_000), batches=(256,), fanouts=(4, 16)),
            Block((*OTHERS, *ON_DEVICE, *MODELED), capacities=(1_000, 100_000), batches=(256,)),
        ),
        budget_seconds=0.15,
    ),
    # What `make demo` asks about, and the least that the cost model is fitted to (dse/times/cost_model.py).
    "brief": Preset(
        (
            Block(CLOSEST, capacities=ENDS, batches=(1, 256, 16_384), fanouts=(8, 16, 32)),
            Block(CLOSEST, capacities=(100_000,), batches=(32, 256, 2_048)),
            Block(CLOSEST, capacities=ENDS, batches=(256,), fanouts=(4, 64)),
            Block(CLOSEST, capacities=ENDS, batches=(256, 16_384), options=(PLAIN, DELTA)),
            Block(THREADED, capacities=ENDS, batches=(2_048, 16_384), threads=(2,)),
            Block(FAST, batches=(256,)),
            Block(SLOW, capacities=(10_000,), batches=(256,)),
            Block(ON_DEVICE, capacities=ENDS, batches=(256, 16_384)),
            Block(MODELED, capacities=ENDS, batches=(256, 16_384)),
        ),
        budget_seconds=0.2,
    ),
    "quick": Preset(
        (
            # The default covers the whole range of N and B; its variants are measured at some of its cells and compared
            # with it between them (dse/times/tree_times.py).
            Block(CLOSEST, capacities=DECADES, batches=(1, 32, 256, 2_048, 16_384), fanouts=(8, 16, 32)),
            Block(CLOSEST, capacities=(10_000_000,), batches=(1, 32, 256, 16_384), fanouts=(8, 16, 32)),
            Block(CLOSEST, capacities=DECADES, batches=(256,), fanouts=(4, 64)),
            Block(CLOSEST, capacities=ENDS, batches=(1, 16_384), fanouts=(4, 64)),
            Block(CLOSEST, capacities=ENDS, batches=(256,), fanouts=(2, 128)),
            Block(CLOSEST, capacities=(*ENDS, 10_000_000), batches=(1, 256, 16_384), fanouts=(8, 16), options=(PLAIN,)),
            Block(THREADED, capacities=(*ENDS, 10_000_000), batches=(2_048, 16_384), threads=(2,)),
            Block(THREADED, capacities=(1_000_000,), batches=(2_048,), fanouts=(8, 32), threads=(2,)),
            Block(THREADED, capacities=ENDS, batches=(256,), threads=(2,)),
            Block(CLOSEST, batches=(256,), options=({"aligned": False},)),
            Block(CLOSEST, batches=(256,), fanouts=(4, 8, 16, 32, 64), options=(DELTA,)),
            Block(CLOSEST, capacities=ENDS, batches=(1, 16_384), options=(DELTA,)),
            # Where a tree does not fit the caches, an update by deltas reads a fraction of what recomputing reads.
            Block(
                CLOSEST, capacities=(10_000_000,), batches=(1, 256), fanouts=(16, 64), options=(DELTA, PLAIN | DELTA)
            ),
            # The tree of [Zhang2021], whose claims about K are judged by these (results/quoted/claims/zhang2021.toml).
            Block(CLOSEST, batches=(256,), fanouts=FANOUTS, options=(PLAIN | DELTA,)),
            Block(CLOSEST, capacities=(*ENDS, 10_000_000), batches=(1, 256, 16_384), dtypes=("float64",)),
            Block(CLOSEST, capacities=(1_000_000,), batches=(256,), fanouts=(8, 32), dtypes=("float64",)),
            *varied(FAST, batches=(256,)),
            Block(FAST, capacities=DECADES, batches=(1, 256)),
            *varied(SLOW, capacities=(1_000, 10_000, 100_000), batches=(1, 256)),
            *varied(ON_DEVICE, batches=BATCHES),
            Block(ON_DEVICE, ("upload", "download"), (1_000_000,), BATCHES),
            # Modeled cells cost no time, but hide the measured ones where there are more of them.
            Block(MODELED, capacities=DECADES, batches=BATCHES, fanouts=(2, 16)),
            *varied(MODELED, capacities=ENDS, batches=(256, 16_384), fanouts=(2, 16)),
            Block(MODELED, batches=(256,), fanouts=(4, 8, 32, 64)),
            *varied(MODELED, capacities=(1_000_000,), batches=(256,), fanouts=(4, 8, 32, 64)),
        ),
        budget_seconds=0.25,
    ),
    # What the choice of K is validated against: each family's whole grid over N, K and B.
    "fanouts": Preset(
        (
            Block(CLOSEST, capacities=DECADES, options=({}, PLAIN, DELTA, PLAIN | DELTA), **KS),
            Block(CLOSEST, capacities=DECADES, dtypes=("float64",), **KS),
            Block(tuple(name for name in FAST if name not in NO_FANOUT), capacities=DECADES, **KS),
            Block(SLOW, capacities=DECADES[:-1], **KS),
            *varied((*OTHERS, *ON_DEVICE, *MODELED), capacities=(10_000,), batches=(256,)),
        ),
        budget_seconds=0.25,
    ),
    "full": Preset(
        (
            Block(
                CLOSEST,
                capacities=(1_000, 10_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000),
                batches=(1, 8, 32, 256, 2_048, 16_384, 65_536),
                fanouts=(2, 4, 8, 16, 32, 64, 128, 256),
            ),
            Block(
                CLOSEST,
                capacities=(10_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000),
                batches=(*BATCHES, 65_536),
                fanouts=(4, 8, 16, 32, 64),
                options=(PLAIN,),
            ),
            Block(THREADED, batches=(2_048, 16_384, 65_536), fanouts=(8, 16, 32), threads=(2, 4)),
            Block(
                CLOSEST,
                capacities=(*DECADES, 10_000_000),
                batches=(256, 2_048),
                fanouts=(4, 16, 64),
                options=({"aligned": False}, DELTA, PLAIN | DELTA),
            ),
            *varied(FAST, capacities=(*DECADES, 10_000_000), batches=(256,), fanouts=(4, 16, 64)),
            Block(FAST, capacities=(*DECADES, 10_000_000), batches=(32, 256, 2_048), fanouts=(4, 16, 64)),
            *varied(SLOW, capacities=DECADES, batches=(32, 256), fanouts=(4, 16, 64)),
            *varied(
                ON_DEVICE,
                capacities=(10_000, 100_000, 1_000_000, 10_000_000),
                batches=(*BATCHES, 65_536),
                fanouts=(4, 8, 16, 32, 64),
            ),
            Block(ON_DEVICE, ("upload", "download"), (1_000_000,), (*BATCHES, 65_536)),
            *varied(
                MODELED, capacities=(*DECADES, 10_000_000), batches=(*BATCHES, 65_536), fanouts=(2, 4, 8, 16, 32, 64)
            ),
            *varied(MODELED, ("sample", "get", "insert", "step", "total"), batches=(256,)),
            *varied(
                MODELED, capacities=(1_000_000,), batches=(256, 2_048), distributions=("mostly_zero", "newest_max")
            ),
            Block((*CLOSEST, *OTHERS), ops=("sample", "get", "insert", "step", "total"), batches=(256,)),
            Block(CLOSEST, dtypes=("float64",), fanouts=(8, 16, 32)),
            Block(
                CLOSEST,
                capacities=(1_000_000,),
                batches=(256, 2_048),
                distributions=("rank0.2", "rank0.6", "rank1.0", "mostly_zero", "newest_max"),
            ),
            Block(
                tuple(name for name in (*CLOSEST, *FAST) if name not in NO_FANOUT),
                ops=("update",),
                batches=(256, 2_048),
                duplicates=(0.5, 1.0),
            ),
        ),
        budget_seconds=0.2,
    ),
}


def _plain(case: Case) -> Case:
    """Return the case that runs the very same code, in as few words as can be; that of another library as it is."""
    if case.contestant not in TREES:
        return case
    shape = case.capacity, case.batch, case.fanout, case.threads, case.options
    fanout, threads, options = TREES[case.contestant].runs_as(*shape)
    return replace(case, fanout=fanout, threads=threads, options=options)


def groups(cases: Iterable[Case]) -> list[list[Case]]:
    """Group the cases that answer the same question, to be measured in alternation; each once, small trees first.

    Cases that run the very same code are one.
    """
    by_question: dict[tuple[Any, ...], dict[str, Case]] = {}
    for case in map(_plain, cases):
        question = (case.capacity, case.dtype, case.workload, case.batch, case.op)
        by_question.setdefault(question, {})[repr(case)] = case
    return [list(by_question[question].values()) for question in sorted(by_question)]
