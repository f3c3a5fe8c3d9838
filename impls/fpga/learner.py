"""The learner of seed 3 (section IV-B): pipelines of stages, a tensor unit each; cycles a gradient step and resources.

Glossary: L layers, n = 3 L stages, B batch, DP *pipelines*, PI = ceil(B / DP) samples a pipeline, T_i cycles that stage
i takes for a sample, T_max the slowest's, T_WU cycles of reduction and weight update. A *unit* is one fp32
multiply-accumulate (MAC) a cycle.

Every pipeline has a stage for the forward pass (FW) of each layer, the loss, the backward pass (BW) of each but the
first, whose inputs need no gradient, and the gradients of the weights (WA) of each: L + 1 + (L - 1) + L. The
dissertation (seed 4) writes n = 3 (L - 1), for its L counts layers of neurons. All stages take a sample on every T_max
cycles, so that T = (PI + n - 1) T_max + T_WU, with T_WU = sum over layers of DP x parameters / update units: one MAC a
pipeline's gradient, the last of which is subtracted from the weight (plain SGD). Not modeled, as there: the target
network, the actor of DDPG, activation functions, the latency of a unit, and the link to the host.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..checks import integer_at_least, one_of
from .network import Gemm, Network
from .resources import Resources

FILLS = ("ideal", "systolic")
"""How a stage's cycles are counted: MACs over units, which is the least there can be, or fold after fold of a systolic
array, filled and drained each time, which is the most. Hardware whose folds overlap lies in between."""
WORD_BITS = 32
ULTRA_WORDS, BLOCK_WORDS, DISTRIBUTED_WORDS = 8192, 1024, 64
"""Of 32 bits in a primitive: UltraRAM has 4096 rows of two, a block RAM 1024 of 36 bits, distributed RAM is 64 deep."""
ULTRA_PORTS = 2
"""Words a cycle from an UltraRAM, the two of a row; the others give one."""
DISTRIBUTED_LUTS = 40
"""A distributed RAM has 7 bits in 8 LUTs, so 32 bits in five of them (as in ``memories.py``)."""


@dataclass(frozen=True)
class Mac:
    """What a unit takes. Block RAM is counted with the buffers."""

    dsp: int
    lut: int
    ff: int


FP32 = Mac(dsp=5, lut=round(615_000 / (4315 / 5)), ff=round(994_000 / (4315 / 5)))
"""DSP: an adder of 2 and a multiplier of 3 DSP48E2, the cores Vitis HLS takes by default (fadd full_dsp, fmul max_dsp).
LUT and FF: quoted, seed 3's DQN learner (Table VI, 615K and 994K) over its 4315 / 5 units, so with all its control, and
with buffers that are counted once more where they lie in LUT; its DDPG learner has twice as many LUT a unit."""


@dataclass(frozen=True)
class Stage:
    """One tensor unit: ``kind`` is "FW", "LOSS", "BW" or "WA", ``layer`` counts from 1 (0 for the loss)."""

    kind: str
    layer: int
    gemm: Gemm

    def __str__(self) -> str:
        return f"{self.kind} {self.layer}" if self.layer else self.kind


@functools.cache
def stages(network: Network) -> tuple[Stage, ...]:
    """All of them, in the order a sample passes. The loss is taken as a MAC an output."""
    numbered = list(enumerate(network.layers, 1))
    return (
        *(Stage("FW", number, layer.forward) for number, layer in numbered),
        Stage("LOSS", 0, Gemm(1, network.layers[-1].outputs, 1)),
        *(Stage("BW", number, layer.backward) for number, layer in reversed(numbered[1:])),
        *(Stage("WA", number, layer.weight_gradient) for number, layer in reversed(numbered)),
    )


def stage_cycles(gemm: Gemm, units: int, fill: str = "ideal") -> int:
    """T_i: ceil(MACs / units), or what the best systolic array of at most so many units takes."""
    if fill == "ideal":
        return -(-gemm.macs // units)
    sizes, cycles = _arrays(gemm)
    return int(cycles[np.searchsorted(sizes, units, side="right") - 1])


def units_for(gemm: Gemm, cycles: int, fill: str = "ideal") -> int | None:
    """Fewest units that take at most so many cycles; None if none do."""
    if fill == "ideal":
        return -(-gemm.macs // cycles)
    sizes, taken = _arrays(gemm)
    first = int(np.searchsorted(-taken, -cycles))
    return int(sizes[first]) if first < sizes.size else None


@functools.lru_cache(maxsize=256)
def _arrays(gemm: Gemm) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(units rising, cycles falling) of the output-stationary systolic arrays that no smaller one equals.

    R x C units take 2 R + C + depth - 2 cycles a fold of the product (SCALE-Sim, Samajdar et al., ISPASS 2020), and a
    sample takes ceil(rows / R) ceil(columns / C) folds. Only the fewest R and C for their number of folds are of use.
    """
    row_folds, column_folds = (np.unique(-(-side // np.arange(1, side + 1))) for side in gemm[:2])
    r = -(-gemm.rows // row_folds)[:, None]
    c = -(-gemm.columns // column_folds)[None, :]
    cycles = (row_folds[:, None] * column_folds[None, :] * (2 * r + c + gemm.depth - 2)).ravel()
    sizes = (r * c).ravel()
    order = np.lexsort((cycles, sizes))
    sizes, cycles = sizes[order], cycles[order]
    better = np.r_[True, cycles[1:] < np.minimum.accumulate(cycles)[:-1]]
    return sizes[better], cycles[better]


@dataclass(frozen=True)
class Learner:
    """DP ``pipelines`` with ``units`` by stage, and ``update_units`` for all. ValueError for what cannot be built.

    ``uram``: how many of the largest buffers lie in UltraRAM, of those that would fill one; None: all of them.
    """

    network: Network
    pipelines: int
    units: tuple[int, ...]
    update_units: int
    fill: str = "ideal"
    uram: int | None = None
    mac: Mac = FP32
    clock_hz: float = 200e6

    def __post_init__(self) -> None:
        for name, number in (("pipelines", self.pipelines), ("update_units", self.update_units)):
            integer_at_least(name, number, 1)
        one_of("fill", self.fill, FILLS)
        if len(self.units) != len(self.stages) or min(self.units) < 1:
            told = ", ".join(map(str, self.stages))
            raise ValueError(f"units must be {len(self.stages)} numbers of at least 1 ({told}), not {self.units}")
        if not 0 < self.clock_hz < math.inf:
            raise ValueError(f"clock_hz must be above 0 and finite, not {self.clock_hz}")

    @property
    def stages(self) -> tuple[Stage, ...]:
        """n of them."""
        return stages(self.network)

    @property
    def stage_cycles(self) -> tuple[int, ...]:
        """T_i by stage."""
        return tuple(
            stage_cycles(stage.gemm, units, self.fill) for stage, units in zip(self.stages, self.units, strict=True)
        )

    @property
    def macs(self) -> int:
        """Units in all."""
        return self.pipelines * sum(self.units) + self.update_units


@dataclass(frozen=True)
class LearnerLedger:
    """One gradient step: cycles by what is done, and the stage that all others wait for (the first of the slowest)."""

    batch: int
    entries: tuple[tuple[str, int], ...]
    bottleneck: str
    clock_hz: float

    @property
    def cycles(self) -> int:
        """In all."""
        return sum(spent for _, spent in self.entries)

    @property
    def seconds(self) -> float:
        """In all."""
        return self.cycles / self.clock_hz


def ledger(learner: Learner, batch: int) -> LearnerLedger:
    """What a gradient step on ``batch`` samples takes: (PI + n - 1) T_max + T_WU.

    More samples take no longer each, but for one thing: PI is rounded up, and up to DP - 1 pipelines idle in the last
    round.
    """
    samples = -(-integer_at_least("batch", batch, 1) // learner.pipelines)
    spent = learner.stage_cycles
    slowest = max(spent)
    updates = update_cycles(learner.network, 1, learner.update_units)
    reduced = update_cycles(learner.network, learner.pipelines, learner.update_units)
    entries = (
        ("samples of a pipeline", samples * slowest),
        ("fill of the pipeline", (len(spent) - 1) * slowest),
        ("weight update", updates),
        ("reduction over pipelines", reduced - updates),
    )
    return LearnerLedger(batch, entries, str(learner.stages[spent.index(slowest)]), learner.clock_hz)


def update_cycles(network: Network, pipelines: int, units: int) -> int:
    """T_WU: layer after layer, a MAC for each parameter and pipeline."""
    return sum(-(-pipelines * layer.parameters // units) for layer in network.layers)


# What it takes


def resources(learner: Learner) -> Resources:
    """Units and buffers. Counted, not synthesized; FIFO control and addressing are in a unit's LUT and FF."""
    held = buffers(learner)
    ranks = _ranks(tuple(words for words, _, _ in held))
    taken = {"lutram": 0, "bram36": 0, "uram": 0}
    for (words, ports, copies), rank in zip(held, ranks, strict=True):
        kind, number = blocks(words, ports, learner.uram is None or rank < learner.uram)
        taken[kind] += number * copies
    macs, mac = learner.macs, learner.mac
    lut = macs * mac.lut + taken["lutram"] * DISTRIBUTED_LUTS
    bits = WORD_BITS * sum(words * copies for words, _, copies in held)
    return Resources(lut, macs * mac.ff, macs * mac.dsp, taken["bram36"], taken["uram"], bits)


def blocks(words: int, ports: int, uram: bool) -> tuple[str, int]:
    """Primitives of a buffer: the largest kind that it fills, enough for its words and for a word a port and cycle.

    A kind depends on the words alone, so that more ports never take fewer. Shares of the ports are taken to follow on
    one another: where one ends inside a primitive, its second port serves the next.
    """
    ports = min(ports, words)
    if uram and words >= ULTRA_WORDS:
        return "uram", max(-(-words // ULTRA_WORDS), -(-ports // ULTRA_PORTS))
    if words >= BLOCK_WORDS:
        return "bram36", max(-(-words // BLOCK_WORDS), ports)
    return "lutram", max(-(-words // DISTRIBUTED_WORDS), ports)


@functools.lru_cache(maxsize=256)
def _ranks(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Place of each buffer when sorted by size, largest first, the first of equal ones before the others."""
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    return tuple(order.index(place) for place in range(len(sizes)))


def buffers(learner: Learner) -> list[tuple[int, int, int]]:
    """(words, ports, copies) of all there are.

    Each pipeline has the weights of every FW and BW stage and the gradients of every WA stage, with a port for each
    unit that uses another one (a weight is used at all positions of its kernel), or for the update units, as r_WU of
    seed 3 follows the banks. Beside them lie activations and their gradients, and one reduction buffer for all.
    """
    network, copies, updates = learner.network, learner.pipelines, learner.update_units
    staged = zip(learner.stages, learner.units, strict=True)
    layered = [(network.layers[stage.layer - 1], units) for stage, units in staged if stage.layer]
    held = [(layer.parameters, max(-(-units // layer.positions), updates), copies) for layer, units in layered]
    held += [(words, 1, copies) for words in activations(network)]
    return held if copies == 1 else [*held, (network.parameters, updates, 1)]


@functools.cache
def activations(network: Network) -> tuple[int, ...]:
    """Words of each buffer between stages: a sample's inputs of a layer wait for its WA, as do its outputs' gradients.

    A sample moves on by a stage every T_max, so that there lie as many as there are stages from where they are made to
    where they are last used, and the two at work.
    """
    found = []
    order = {str(stage): place for place, stage in enumerate(stages(network))}
    last = len(network.layers)
    for number, layer in enumerate(network.layers, 1):
        used = order[f"WA {number}"]
        made = order["LOSS"] if number == last else order[f"BW {number + 1}"]
        found.append(layer.inputs * (used - order[f"FW {number}"] + 2))  # made in the stage before
        found.append(layer.outputs * (used - made + 1))
    return tuple(found)
