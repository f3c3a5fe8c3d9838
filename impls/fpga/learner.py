"""The learner of [Zhang2023, section IV-B]: pipelines of stages, a tensor unit each; cycles and resources.

Glossary: L layers, n = 3 L stages, B batch, DP *pipelines*, PI = ceil(B / DP) samples a pipeline, T_i cycles that stage
i takes for a sample, T_max the slowest's, T_WU cycles of reduction and weight update. A *unit* is one fp32
multiply-accumulate (MAC) a cycle.

Every pipeline has a stage for the forward pass (FW) of each layer, the loss, the backward pass (BW) of each but the
first, whose inputs need no gradient, and the gradients of the weights (WA) of each: L + 1 + (L - 1) + L. [Zhang2022]
writes n = 3 (L - 1), because its L counts layers of neurons. All stages pass a sample on every T_max cycles, so that
T = (PI + n - 1) T_max + T_WU, with T_WU = sum over layers of DP x parameters / update units: one MAC per pipeline's
gradient, the last of which is subtracted from the weight (plain SGD). Not modeled, as there: the target network, the
actor of DDPG, activation functions, the latency of a unit, and the link to the host.
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
"""Ways to count a stage's cycles: MACs over units, which is a lower bound, or fold after fold of a systolic array,
filled and drained each time, which is an upper bound. Hardware whose folds overlap lies in between."""
WORD_BITS = 32
ULTRA_WORDS, BLOCK_WORDS, DISTRIBUTED_WORDS = 8192, 1024, 64
"""Words of 32 bits in a primitive: UltraRAM has 4096 rows of two, a block RAM 1024 of 36 bits, distributed RAM 64."""
ULTRA_PORTS = 2
"""Words a cycle from an UltraRAM, the two of a row; other primitives give one."""
DISTRIBUTED_LUTS = 40
"""A distributed RAM has 7 bits in 8 LUTs, so 32 bits in five of them (as in ``resources.py``)."""


@dataclass(frozen=True)
class Mac:
    """Resources of a unit. Block RAM is counted with the buffers."""

    dsp: int
    lut: int
    ff: int


FP32 = Mac(dsp=5, lut=round(615_000 / (4315 / 5)), ff=round(994_000 / (4315 / 5)))
"""DSP: an adder of 2 and a multiplier of 3 DSP48E2, the cores Vitis HLS takes by default (fadd full_dsp, fmul max_dsp).
LUT and FF: quoted, the DQN learner of [Zhang2023, Table VI] (615K and 994K) over its 4315 / 5 units, so with all its
control, and with buffers that are counted once more where they lie in LUT; its DDPG learner has twice as many LUT per
unit."""


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
    """The n stages, in the order a sample passes them. The loss counts as one MAC per output."""
    layers = list(enumerate(network.layers, 1))
    return (
        *(Stage("FW", index, layer.forward) for index, layer in layers),
        Stage("LOSS", 0, Gemm(1, network.layers[-1].outputs, 1)),
        *(Stage("BW", index, layer.backward) for index, layer in reversed(layers[1:])),
        *(Stage("WA", index, layer.weight_gradient) for index, layer in reversed(layers)),
    )


def stage_cycles(gemm: Gemm, units: int, fill: str = "ideal") -> int:
    """T_i: ceil(MACs / units), or the cycles of the best systolic array of at most a given number of units."""
    if fill == "ideal":
        return -(-gemm.macs // units)
    sizes, cycles = _arrays(gemm)
    return int(cycles[np.searchsorted(sizes, units, side="right") - 1])


def units_for(gemm: Gemm, cycles: int, fill: str = "ideal") -> int | None:
    """Fewest units that take at most a given number of cycles; None if none do."""
    if fill == "ideal":
        return -(-gemm.macs // cycles)
    sizes, taken = _arrays(gemm)
    first = int(np.searchsorted(-taken, -cycles))
    return int(sizes[first]) if first < sizes.size else None


@functools.lru_cache(maxsize=256)
def _arrays(gemm: Gemm) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(units rising, cycles falling) of the output-stationary systolic arrays that no smaller one equals.

    R x C units take 2 R + C + depth - 2 cycles a fold of the product [Samajdar2020], and a sample takes ceil(rows / R)
    ceil(columns / C) folds. Only the fewest R and C for their number of folds are of use.
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
    """A learner of DP ``pipelines`` with ``units`` by stage, and ``update_units`` for all.

    ``uram``: how many of the largest buffers lie in UltraRAM, of those that would fill one; None: all of them.
    ValueError for a learner that cannot be built.
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
        for name in ("pipelines", "update_units"):
            integer_at_least(name, getattr(self, name), 1)
        one_of("fill", self.fill, FILLS)
        if len(self.units) != len(self.stages) or min(self.units) < 1:
            names = ", ".join(map(str, self.stages))
            raise ValueError(f"units must be {len(self.stages)} numbers of at least 1 ({names}), not {self.units}")
        if not 0 < self.clock_hz < math.inf:
            raise ValueError(f"clock_hz must be above 0 and finite, not {self.clock_hz}")

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The n stages of a pipeline, in the order a sample passes them."""
        return stages(self.network)

    @property
    def stage_cycles(self) -> tuple[int, ...]:
        """T_i of each stage, ``[n]``."""
        return tuple(
            stage_cycles(stage.gemm, units, self.fill) for stage, units in zip(self.stages, self.units, strict=True)
        )

    @property
    def macs(self) -> int:
        """Number of units of all pipelines and of the update."""
        return self.pipelines * sum(self.units) + self.update_units


@dataclass(frozen=True)
class LearnerLedger:
    """One gradient step: cycles by activity, and the stage that all others wait for (the first of the slowest)."""

    batch: int
    entries: tuple[tuple[str, int], ...]
    bottleneck: str
    clock_hz: float

    @property
    def cycles(self) -> int:
        """Cycles of the gradient step."""
        return sum(spent for _, spent in self.entries)

    @property
    def seconds(self) -> float:
        """Seconds of the gradient step."""
        return self.cycles / self.clock_hz


def ledger(learner: Learner, batch: int) -> LearnerLedger:
    """Cycles of a gradient step on ``batch`` samples: (PI + n - 1) T_max + T_WU.

    A larger batch takes no longer per sample, except that PI is rounded up: up to DP - 1 pipelines idle in the last
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


# Resources


def resources(learner: Learner) -> Resources:
    """Resources of units and buffers: counted, not synthesized; FIFO control and addressing are in a unit's LUT and
    FF."""
    return resources_of(
        learner.network, learner.pipelines, learner.units, learner.update_units, learner.uram, learner.mac
    )


def resources_of(
    network: Network, pipelines: int, units: tuple[int, ...], update_units: int, uram: int | None, mac: Mac
) -> Resources:
    """``resources`` of a learner's fields, for a search that asks for many of which few are built."""
    needed = _buffers(network, pipelines, units, update_units)
    ranks = _ranks(tuple([words for words, _, _ in needed]))
    taken, words_held = {"lutram": 0, "bram36": 0, "uram": 0}, 0
    for (words, ports, copies), rank in zip(needed, ranks, strict=True):
        kind, number = blocks(words, ports, uram is None or rank < uram)
        taken[kind] += number * copies
        words_held += words * copies
    macs = pipelines * sum(units) + update_units
    lut = macs * mac.lut + taken["lutram"] * DISTRIBUTED_LUTS
    return Resources(lut, macs * mac.ff, macs * mac.dsp, taken["bram36"], taken["uram"], WORD_BITS * words_held)


def blocks(words: int, ports: int, uram: bool) -> tuple[str, int]:
    """(kind, number) of a buffer's primitives: the largest kind that it fills, enough for its words and ports.

    A kind depends on the words alone, so that more ports never take fewer. Each port has a word a cycle from its share
    of the words; shares lie end to end, and where one ends inside a primitive, the second port serves the next.
    """
    ports = min(ports, words)
    if uram and words >= ULTRA_WORDS:
        return "uram", max(-(-words // ULTRA_WORDS), -(-ports // ULTRA_PORTS))
    if words >= BLOCK_WORDS:
        return "bram36", max(-(-words // BLOCK_WORDS), ports)
    return "lutram", max(-(-words // DISTRIBUTED_WORDS), ports)


@functools.lru_cache(maxsize=256)
def _ranks(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Rank of each buffer by size, largest first, the first of equal ones before the others."""
    order = sorted(range(len(sizes)), key=lambda buffer: -sizes[buffer])
    return tuple(order.index(buffer) for buffer in range(len(sizes)))


def buffers(learner: Learner) -> list[tuple[int, int, int]]:
    """(words, ports, copies) of every buffer.

    Each pipeline has the weights of every FW and BW stage and the gradients of every WA stage, with a port for each
    unit that uses another one (a weight is used at all positions of its kernel), or for the update units, as r_WU of
    [Zhang2023] follows the banks. Next to them lie activations and their gradients, and one reduction buffer for all.
    """
    return _buffers(learner.network, learner.pipelines, learner.units, learner.update_units)


def _buffers(network: Network, copies: int, units: tuple[int, ...], updates: int) -> list[tuple[int, int, int]]:
    sizes = [
        (words, max(-(-units[stage] // positions), updates), copies) for stage, words, positions in _layered(network)
    ]
    sizes += [(words, 1, copies) for words in activations(network)]
    return sizes if copies == 1 else [*sizes, (network.parameters, updates, 1)]


@functools.cache
def _layered(network: Network) -> tuple[tuple[int, int, int], ...]:
    """(stage, parameters, positions of a kernel) of every stage of a layer."""
    layers = [(index, network.layers[stage.layer - 1]) for index, stage in enumerate(stages(network)) if stage.layer]
    return tuple((index, layer.parameters, layer.positions) for index, layer in layers)


@functools.cache
def activations(network: Network) -> tuple[int, ...]:
    """Words of each buffer between stages: a sample's inputs of a layer wait for its WA, as do its outputs' gradients.

    A sample moves on by a stage every T_max, so that a buffer has room for one sample per stage between those that
    write and last read it, and for the two at work.
    """
    words = []
    order = {str(stage): index for index, stage in enumerate(stages(network))}
    last = len(network.layers)
    for index, layer in enumerate(network.layers, 1):
        used = order[f"WA {index}"]
        made = order["LOSS"] if index == last else order[f"BW {index + 1}"]
        words.append(layer.inputs * (used - order[f"FW {index}"] + 2))  # made in the stage before
        words.append(layer.outputs * (used - made + 1))
    return tuple(words)
