"""Which sum tree on a platform that nobody timed: every tree of its devices by their models, and what ties by doubt.

Letters: N capacity, K fanout, B batch, T threads, R updates per sample.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import impls

from ..answer import Note
from ..estimate import Estimate, Evidence
from ..fpga import placement
from ..platforms import Device, Platform, PlatformError
from ..solver.law import GIVEN_UP
from . import analytic
from .fanout_choice import DEFAULT
from .tree_times import Question
from .tree_variants import Configuration
from .trees import FANOUTS, PROFILED

SHAPE_FACTOR = 2.0
"""How far off the ratio of two of a device's trees may be, of another K or other threads: nine in ten pairs of timed
trees were within it (a test counts them on the shipped sweeps)."""
UNIFORM_BYTES, INDEX_BYTES, BATCH_BYTES = 8, 8, 24
LINK_FACTOR = 2.0
MOST_LEAVES, MOST_ELEMENTS = 1 << 26, 1 << 14  # of a tree and of a batch in hardware, which has queues for no more


@dataclass(frozen=True)
class PlatformTree:
    """A tree of a device with the time of a step, ``transfer_seconds`` of it to move batches from and to the host."""

    device: str
    configuration: Configuration
    time: Estimate
    transfer_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """The expected time of a step."""
        return self.time.value


@dataclass(frozen=True)
class ModeledChoice:
    """Which tree to choose on a platform, by models alone.

    ``best``: the smallest expected time. ``ties``: what is statistically tied with it, but the choice, in the order in
    which they would be chosen. ``elsewhere``: the best of each other device.
    """

    platform: str
    question: Question
    choice: PlatformTree
    best: PlatformTree
    ties: tuple[PlatformTree, ...]
    elsewhere: tuple[PlatformTree, ...]
    notes: tuple[Note, ...]


def choose(platform: Platform, question: Question) -> ModeledChoice:
    """The tree for a question on a platform: of those that are statistically tied fewest devices, then fewest threads.

    ``question.threads``: at most so many. PlatformError where no tree fits the platform.
    """
    every = [tree for device in platform.devices for tree in _trees(platform, device, question)]
    if not every:
        raise PlatformError(
            f"{platform.name}: no device has room for N = {question.capacity:,} leaves and batches of "
            f"{question.batch:,}, or a law for them"
        )
    host = next(device.name for device in platform.devices if device.kind == "cpu")
    best = min(every, key=lambda tree: tree.seconds)
    tied = sorted((tree for tree in every if _is_tied(tree, best)), key=lambda tree: _frugal(tree, host))
    choice = next(tree for tree in tied if tree.seconds * (1 - GIVEN_UP) <= best.seconds)
    fastest = {tree.device: tree for tree in sorted(every, key=lambda tree: -tree.seconds)}
    assumed = dict.fromkeys(line for tree in (choice, best) for line in tree.time.rests_on.assumed)
    return ModeledChoice(
        platform.name,
        question,
        choice,
        best,
        tuple(tree for tree in tied if tree is not choice),
        tuple(tree for device, tree in sorted(fastest.items()) if device != choice.device),
        tuple(Note("not_stated", line._asdict()) for line in assumed),
    )


def _is_tied(tree: PlatformTree, best: PlatformTree) -> bool:
    """Whether a tree may be as fast as the best: trees of one device are wrong together, others are not."""
    doubt = math.log(SHAPE_FACTOR)
    if tree.device != best.device:
        doubt = math.hypot(math.log(tree.time.factor), math.log(best.time.factor))
    return math.log(tree.seconds / best.seconds) <= doubt


def _frugal(tree: PlatformTree, host: str) -> tuple[bool, int, bool, float]:
    """Order of trees that are equally good: on the host, by few threads, with the usual K, fast."""
    shape = tree.configuration
    return tree.device != host, shape.threads, shape.fanout != DEFAULT, tree.seconds


def _trees(platform: Platform, device: Device, question: Question) -> Iterator[PlatformTree]:
    """Every tree of a device that fits it, batches moved from the host and back."""
    for tree, draw, update in (_designs if device.kind == "fpga" else _compiled)(device, question):
        there, back, changes = _moved(platform, device, question)
        rate, sent = question.updates_per_sample, there + back + question.updates_per_sample * changes
        step = draw + update.scaled(rate) if rate else draw
        step = step.plus(sent, LINK_FACTOR) if sent else step
        yield PlatformTree(device.name, tree, step, sent)


def _moved(platform: Platform, device: Device, question: Question) -> tuple[float, float, float]:
    """Seconds of sending uniforms, of fetching indices and priorities, and of sending those of an update."""
    host = next(one.name for one in platform.devices if one.kind == "cpu")
    if device.kind == "cpu":
        return 0.0, 0.0, 0.0
    leaves = question.batch * (INDEX_BYTES + np.dtype(question.dtype).itemsize)
    ways = (
        (host, device.name, question.batch * UNIFORM_BYTES),
        (device.name, host, leaves),
        (host, device.name, leaves),
    )
    there, back, changes = (platform.transfer_seconds(*way) for way in ways)
    return there, back, changes


def _compiled(device: Device, question: Question) -> Iterator[tuple[Configuration, Estimate, Estimate]]:
    """Compiled trees of a processor or a GPU, by the law of levels in memory."""
    names = [name for name in impls.names() if _is_modeled(name, device)]
    cores = int(device.cores.value) if device.cores else 1
    for name in names:
        kind = impls.traits(name)
        able = min(cores, question.threads) if kind.threaded and device.kind == "cpu" else 1
        most = kind.threads_used(question.batch, able)
        for fanout in FANOUTS:
            nbytes = impls.traits(name).nbytes_of(question.capacity, fanout, question.dtype, {}) or 0
            if device.memory and nbytes + BATCH_BYTES * question.batch > device.memory.size_bytes.value:
                continue
            for threads in range(1, most + 1):
                draw, update = analytic.tree(device, question.capacity, fanout, question.batch, threads)
                yield Configuration(name, fanout, threads), draw, update


def _is_modeled(name: str, device: Device) -> bool:
    kind = impls.traits(name)
    there = kind.compiled and kind.uses_fanout and kind.runs_on == device.kind
    return there and (device.kind != "cpu" or name == PROFILED)


def _designs(device: Device, question: Question) -> Iterator[tuple[Configuration, Estimate, Estimate]]:
    """Replay management modules that fit a slice of an FPGA, for questions that hardware has queues for."""
    if question.capacity > MOST_LEAVES or question.batch > MOST_ELEMENTS:
        return
    clock = analytic.clock_of(device)
    evidence = Evidence("law", "modeled", f"cycles that equal simulated hardware, at {clock / 1e6:g} MHz")
    for rmm in placement.rmms(placement.slices_of(device), question.capacity, question.batch, clock, None):
        design = rmm.point.design.design
        options = {"banking": design.banking, "banks": design.banks, "leaf_bits": design.leaf_bits}
        shape = Configuration("fpga", design.fanout, 1, (*options.items(), ("micro", design.micro)))
        draw, update = (
            Estimate.within(cycles / clock, analytic.FPGA_RMM_FACTOR, evidence)
            for cycles in (rmm.draw_cycles, rmm.update_cycles)
        )
        yield shape, draw, update
