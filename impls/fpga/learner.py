"""The learner of [Zhang2023, section IV-B]: pipelines of stages, a tensor unit each; cycles and resources.

Glossary: L layers, n stages that a sample passes one after the other, B batch, DP *pipelines*, PI = ceil(B / DP)
samples a pipeline, T_i cycles that stage i takes for a sample, T_max the slowest's, T_WU cycles of reduction and weight
update. A *unit* is one fp32 multiply-accumulate (MAC) a cycle.

``passes.py`` has the stages. For one network they are the forward pass (FW) of each layer, the loss, the backward pass
(BW) of each but the first, whose inputs need no gradient, and the gradients of the weights (WA) of each: n = 3 L =
L + 1 + (L - 1) + L. [Zhang2022] writes n = 3 (L - 1), because its L counts layers of neurons. An algorithm has the
stages of every network that its gradient step passes; passes that wait for none of the others are side by side, so that
n is the longest chain. All stages pass a sample on every T_max cycles, so that T = (PI + n - 1) T_max + T_WU, with
T_WU = sum over trained layers of DP x parameters / update units: one MAC per pipeline's gradient, the last of which is
subtracted from the weight (plain SGD). Stages of TD3's policy have their units, and wait in every step without it.

Weights that do not fit on the chip are *streamed*: they lie in the card's memory, and each of these stages reads its
layer once for each *block* of b samples, which it holds on the chip. Pipelines run in step, and a read is for all of
them. Streamed stages share the memory's bandwidth; so a block takes the longer of b T_max and all these reads, and T
has ceil(PI / b) blocks in place of PI samples. The update reads and writes these weights once more.

Not modeled: the copying of weights into targets, activation functions, the latency of a unit, the reads of records
together with the weights, and the link to the host.
"""

import functools
import math
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..checks import integer_at_least, one_of
from .network import Gemm, Network
from .passes import Stage, list_passes, stages
from .resources import Resources

FILLS = ("ideal", "systolic")
"""Ways to count a stage's cycles: MACs over units, which is a lower bound, or fold after fold of a systolic array,
filled and drained each time, which is an upper bound. Hardware whose folds overlap lies in between."""
WORD_BITS = 32
ULTRA_WORDS, BLOCK_WORDS, DISTRIBUTED_WORDS = 8192, 1024, 64
"""Words of 32 bits in a primitive: UltraRAM has 4096 rows of two, a block RAM 1024 of 36 bits, distributed RAM 64."""
ULTRA_PORTS = 2
"""Words a cycle from an UltraRAM, the two of a row; other primitives give one."""
BURST_WORDS = 1024
"""Words of a burst from the card's memory, 4 KiB. Streamed weights have a buffer of two: the burst that arrives, and
the burst in use."""
READING = "the reading of weights"
Memory = tuple[int, int, int]
"""``uram``, ``streamed`` and ``block`` of a learner."""
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
    ``streamed``: how many of the largest layers' weights, of FW and BW stages, are streamed; ``block``: for how many
    samples at once, by a memory of ``bytes_per_s``. ValueError for a learner that cannot be built.
    """

    network: Network
    pipelines: int
    units: tuple[int, ...]
    update_units: int
    fill: str = "ideal"
    uram: int | None = None
    mac: Mac = FP32
    clock_hz: float = 200e6
    streamed: int = 0
    block: int = 1
    bytes_per_s: float = 0.0

    def __post_init__(self) -> None:
        for name, least in {"pipelines": 1, "update_units": 1, "block": 1, "streamed": 0}.items():
            integer_at_least(name, getattr(self, name), least)
        one_of("fill", self.fill, FILLS)
        if len(self.units) != len(self.stages) or min(self.units) < 1:
            names = ", ".join(map(str, self.stages))
            raise ValueError(f"units must be {len(self.stages)} numbers of at least 1 ({names}), not {self.units}")
        if not 0 < self.clock_hz < math.inf:
            raise ValueError(f"clock_hz must be above 0 and finite, not {self.clock_hz}")
        if self.streamed and not self.bytes_per_s > 0:
            raise ValueError(f"to stream weights takes a memory of bytes_per_s above 0, not {self.bytes_per_s}")

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
    def streamed_stages(self) -> tuple[str, ...]:
        """Stages whose weights are streamed."""
        return tuple(str(self.stages[number]) for number in streamable(self.network)[: self.streamed])

    @property
    def stream_cycles(self) -> tuple[int, int]:
        """Cycles of the card's memory for streamed weights: (of reading them once, of an update)."""
        return stream_cycles(self.network, self.streamed, self.clock_hz, self.bytes_per_s)


@functools.cache
def streamable(network: Network) -> tuple[int, ...]:
    """Stages that keep weights, by number: the largest layers first, of equal ones the first."""
    kept = [number for number, stage in enumerate(stages(network)) if stage.kind in ("FW", "BW")]
    return tuple(sorted(kept, key=lambda number: -stages(network)[number].words))


@functools.lru_cache(maxsize=4096)
def stream_cycles(network: Network, streamed: int, clock_hz: float, bytes_per_s: float) -> tuple[int, int]:
    """Cycles of the card's memory for streamed weights: (of reading them once, of an update, which also writes)."""
    held = [stages(network)[number] for number in streamable(network)[:streamed]]
    layers = {(stage.network, stage.layer): stage.words for stage in reversed(held)}  # the largest of a layer is last
    a_word = WORD_BITS / 8 * clock_hz / bytes_per_s if streamed else 0.0
    return math.ceil(sum(stage.words for stage in held) * a_word), math.ceil(2 * sum(layers.values()) * a_word)


@dataclass(frozen=True)
class LearnerLedger:
    """One gradient step: cycles by activity, and the stage that all others wait for (the first of the slowest).

    ``bottleneck`` is ``READING`` where stages wait for streamed weights.
    """

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
    """Cycles of a gradient step on ``batch`` samples: (PI + n - 1) T_max + T_WU, or blocks of PI.

    A larger batch takes no longer per sample, except that PI is rounded up: up to DP - 1 pipelines idle in the last
    round.
    """
    samples = -(-integer_at_least("batch", batch, 1) // learner.pipelines)
    spent, (read, moved) = learner.stage_cycles, learner.stream_cycles
    slowest = max(spent)
    pace = max(learner.block * slowest, read)
    updates = max(moved, update_cycles(learner.network, 1, learner.update_units))
    reduced = max(moved, update_cycles(learner.network, learner.pipelines, learner.update_units))
    entries = (
        ("samples of a pipeline", -(-samples // learner.block) * pace),
        ("fill of the pipeline", (longest(learner.network) - 1) * pace),
        ("weight update", updates),
        ("reduction over pipelines", reduced - updates),
    )
    bottleneck = READING if read > learner.block * slowest else str(learner.stages[spent.index(slowest)])
    return LearnerLedger(batch, entries, bottleneck, learner.clock_hz)


@functools.cache
def longest(network: Network) -> int:
    """n: how many stages a sample passes one after the other."""
    return max(stage.depth for stage in stages(network))


def update_cycles(network: Network, pipelines: int, units: int) -> int:
    """T_WU: layer after layer, a MAC for each parameter and pipeline; weights on the chip."""
    return sum(-(-pipelines * layer.parameters // units) for layer in network.layers)


# Resources


def resources(learner: Learner) -> Resources:
    """Resources of units and buffers: counted, not synthesized; FIFO control and addressing are in a unit's LUT and
    FF."""
    memory = sys.maxsize if learner.uram is None else learner.uram, learner.streamed, learner.block
    return resources_of(learner.network, learner.pipelines, learner.units, learner.update_units, memory, learner.mac)


@functools.lru_cache(maxsize=1 << 15)  # a search over batches and shares of a device asks for most of them ten times
def resources_of(
    network: Network, pipelines: int, units: tuple[int, ...], update_units: int, memory: Memory, mac: Mac
) -> Resources:
    """``resources`` of a learner's fields, for a search that asks for many of which few are built."""
    uram, streamed, block = memory
    needed = buffers(network, pipelines, units, update_units, streamed, block)
    ranks = _ranks(tuple([words for words, _, _ in needed]))
    taken, words_held = {"lutram": 0, "bram36": 0, "uram": 0}, 0
    for (words, ports, copies), rank in zip(needed, ranks, strict=True):
        kind, number = blocks(words, ports, rank < uram)
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


@functools.lru_cache(maxsize=4096)
def _ranks(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Rank of each buffer by size, largest first, the first of equal ones before the others."""
    order = sorted(range(len(sizes)), key=lambda buffer: -sizes[buffer])
    return tuple(order.index(buffer) for buffer in range(len(sizes)))


def buffers(
    network: Network, pipelines: int, units: tuple[int, ...], updates: int, streamed: int = 0, block: int = 1
) -> list[tuple[int, int, int]]:
    """(words, ports, copies) of every buffer of a learner.

    Each pipeline has the weights of every FW and BW stage and the gradients of every WA stage, with a port for each
    unit that uses another one (a weight is used at all positions of its kernel), or for the update units, as r_WU of
    [Zhang2023] follows the banks. Next to them lie activations and their gradients, and one reduction buffer for all.
    """
    most = dict.fromkeys(streamable(network)[:streamed], 2 * BURST_WORDS)
    sizes = [
        (min(words, most.get(stage, words)), max(-(-units[stage] // positions), updates), pipelines)
        for stage, words, positions in _layered(network)
    ]
    sizes += [(block * words, 1, pipelines) for words in activations(network)]
    return sizes if pipelines == 1 else [*sizes, (network.parameters, updates, 1)]


@functools.cache
def _layered(network: Network) -> tuple[tuple[int, int, int], ...]:
    """(stage, words of weights or gradients, positions of a kernel) of every stage of a layer."""
    numbered = enumerate(stages(network))
    return tuple((number, stage.words, stage.positions) for number, stage in numbered if stage.layer)


@functools.cache
def activations(network: Network) -> tuple[int, ...]:
    """Words of each buffer between stages: a sample's inputs of a layer wait for its BW and WA, as do its outputs'
    gradients.

    A sample moves on by a stage every T_max, so that a buffer has room for one sample per stage between those that
    write and last read it, and for the two at work. What a pass begins with is read from the card when it is due.
    """
    words = list[int]()
    depths = {(stage.name, stage.kind, stage.layer): stage.depth for stage in stages(network)}
    for name, layers in {row.name: row.layers for row in list_passes(network)}.items():
        for number, layer in enumerate(layers, 1):
            first = depths[name, "FW", number]
            used = [depths[key] for kind in ("BW", "WA") if (key := (name, kind, number)) in depths]
            words.append(layer.inputs * (max(first, *used, 0) - first + 2))  # made in the stage before
            if used:  # by gradients of the outputs, made by BW of the next layer or before the pass goes backward
                words.append(layer.outputs * (max(used) - depths.get((name, "BW", number + 1), min(used) - 1) + 1))
    return tuple(words)
