"""The sum trees that a device could have, each with what a gradient step takes: a draw, an update, insertions.

Letters: B batch, N capacity, K fanout, u environment steps a gradient step.

Which sum tree on a platform that nobody timed: every tree of its devices by their models, and what ties by doubt.

Letters: N capacity, K fanout, B batch, T threads, R updates per sample.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import impls
from impls.fpga.resources import exceeded

from ..answer import Note
from ..estimate import Estimate, Evidence, weakest
from ..fpga import BOUNDED, placement
from ..platforms import Device, Platform, PlatformError
from ..records import benchmark
from ..solver.law import GIVEN_UP
from . import laws
from .cells import PerformanceTable
from .cost_model import DEFAULT
from .door import Times
from .laws import clock_of
from .stated import counted
from .tree_times import Configuration, Question

FANOUTS = (2, 4, 8, 16, 32, 64)  # K of modeled trees
MOST_THREADS = 8  # of a modeled tree
PROFILED = "numba"  # the tree that profiles time
LEAF_BYTES = 20.0  # a leaf with its share of inner levels, at K = 2 in two copies
CONSTRAINTS = ("fanout", "contestant", "threads")


@dataclass(frozen=True)
class Tree:
    """A sum tree on a device: seconds of a gradient step's draw, and of its update with the insertions.

    ``needs``: what it takes of the budgets. ``details``: its implementation, K, threads and the like.
    """

    name: str
    draw: Estimate
    update: Estimate
    threads: int
    needs: Mapping[str, float]
    details: Mapping[str, Any]


def trees(parts: Times, device: Device) -> list[Tree]:
    """Every tree on a device that the constraints allow, fastest first: as stated, else recorded, else modeled."""
    keys = CONSTRAINTS if device.kind == "cpu" else [key for key in CONSTRAINTS if key != "threads"]
    own = list(_own(parts, device))
    stated = *parts.stated("sampling", device), *parts.stated("updating", device)
    there = own if any(not entry.contestant for entry in stated) else _beside(parts, device, own)
    allowed = [tree for tree in there if all(parts.allows(key, tree.details.get(key)) for key in keys)]
    return sorted(allowed, key=lambda tree: (tree.draw.value + tree.update.value, tree.name))


def _beside(parts: Times, device: Device, own: list[Tree]) -> list[Tree]:
    """Stated trees and those recorded; without both, those modeled. What is stated takes the place of a record."""
    known = {tree.name for tree in own}
    there = [*own, *(tree for tree in _measured(parts, device) if tree.name not in known)]
    return there or list((_fpga if device.kind == "fpga" else _modeled)(parts, device))


def _own(parts: Times, device: Device) -> Iterator[Tree]:
    """Trees as the user states them: those with a name, else one; what is stated of no tree holds for each.

    Sampling or updating that is not stated is that of the fastest other tree there. Insertions are counted in.
    """
    stated = {part: parts.stated(part, device) for part in ("sampling", "updating")}
    every = [entry for entries in stated.values() for entry in entries]
    shapes = {entry.tree for entry in every if any(entry.tree)}
    others = functools.cache(lambda: _beside(parts, device, []))
    for contestant, fanout in sorted(shapes) or ([("", 0)] if every else []):
        counts = sorted({counted(entry) for entry in every})
        for threads in range(counts[0], min(counts[-1], laws.cores_of(device)) + 1):
            times = [_own_time(parts, device, part, (contestant, fanout), threads) for part in stated]
            if not any(times):
                continue
            missing = next((part for part, time in zip(stated, times, strict=True) if not time), None)
            if missing and not others():
                raise PlatformError(
                    f"{device.name}: {missing} of its tree is not stated, and no law has it; state it too, in the file "
                    "of --times"
                )
            name, details = _own_name(parts, device, contestant, fanout, threads)
            stand_in = min(others(), key=lambda tree: tree.draw.value + tree.update.value) if not all(times) else None
            draw, update = (time or getattr(stand_in, op) for time, op in zip(times, ("draw", "update"), strict=True))
            nbytes = LEAF_BYTES * parts.workload.replay.capacity
            needs = {f"{device.name}.memory_bytes": nbytes} if device.kind != "fpga" else {}
            yield Tree(name, draw, update, threads, needs, details)


def _own_time(parts: Times, device: Device, part: str, shape: tuple[str, int], threads: int) -> Estimate | None:
    """A stated time of a tree, or what is stated of no tree by name."""
    entries = parts.stated(part, device)
    for wanted in dict.fromkeys((shape, (shape[0], 0), ("", shape[1]), ("", 0))):
        known = [entry for entry in entries if entry.tree == wanted]
        of = "".join(f", {word}" for word in (wanted[0], f"K={wanted[1]}" if wanted[1] else "") if word)
        evidence_id = f"{part}({parts.evidence_name(device, part)}{of}{f', {threads} threads' if threads > 1 else ''})"
        if known and parts.own and (time := parts.own.time(known, evidence_id, parts.batch, threads)):
            return time
    return None


def _own_name(parts: Times, device: Device, contestant: str, fanout: int, threads: int) -> tuple[str, dict[str, Any]]:
    """(name, details) of a stated tree; what it does not state is what the constraints ask for, or the workload's K."""
    usual = {"cpu": PROFILED, "gpu": "cupy", "fpga": "fpga"}.get(device.kind, "tree")
    details = {
        "contestant": contestant or parts.constraints.get("contestant", usual),
        "fanout": fanout or int(parts.constraints.get("fanout", parts.workload.replay.fanout)),
    }
    words = [contestant or "tree", *([f"K={fanout}"] if fanout else [])]
    if device.kind == "cpu":
        details["threads"] = threads
        words += [f"{threads} threads"] if threads > 1 else []
    return f"{' '.join(words)}{'' if contestant and fanout else ' as stated'}", details


def _measured(parts: Times, device: Device) -> Iterator[Tree]:
    """Trees in this machine's records: what was measured around the question; a fit only where nothing was."""
    table, replay, cores = parts.table_of(device), parts.workload.replay, laws.cores_of(device)
    if table is None:
        return
    known = {Configuration(PROFILED, replay.fanout, 1)}
    if table.trees:
        known |= set(table.trees.configurations(Question(replay.capacity, parts.batch, 1.0, cores)))
    able = [
        shape
        for shape in sorted(known, key=repr)
        if impls.traits(shape.contestant).runs_on == device.kind and shape.threads <= cores
    ]
    every = [tree for shape in able if (tree := _recorded(parts, device, table, shape))]
    yield from [tree for tree in every if tree.update.source != "extrapolated"] or every


def _recorded(parts: Times, device: Device, table: PerformanceTable, configuration: Configuration) -> Tree | None:
    """A configuration as recorded; None where its draw or its update was not."""
    replay, local, name = parts.workload.replay, parts.inserted, f"{configuration.contestant} {configuration.settings}"
    evidence_id = f"tree({parts.evidence_name(device)}, {name})"
    draw = table.tree(configuration, "draw", replay.capacity, parts.batch, evidence_id)
    update = table.tree(configuration, "update", replay.capacity, parts.batch, evidence_id)
    if not (draw and update):
        return None
    inserted = table.tree(configuration, "update", replay.capacity, local, evidence_id)
    insert, source = (inserted or update).value, weakest((draw.source, update.source))
    description = f"records of machine {table.machine_key}"
    if inserted is None:
        source = weakest((source, "modeled"))
        description += f"; no insertion of {local:,} was timed, an update at B = {parts.batch:,} stands for it"
    cell = f"--contestants {configuration.contestant} --capacities {replay.capacity} --batches {parts.batch}"
    cell += f" --fanouts {configuration.fanout} --threads {configuration.threads}"
    options = ",".join(f"{key}={value}" for key, value in configuration.options)
    cell += f" --options {options}" * bool(options)
    evidence = Evidence(evidence_id, source, description, benchmark(f"sweep {cell}"), topic="sweep")
    draw, update = (
        Estimate(time.value, time.low, time.high, evidence) for time in (draw, update.plus(insert * parts.inserts, 2.0))
    )
    details = _describe(device, configuration)[1]
    details |= {"options": dict(configuration.options)} if configuration.options else {}
    nbytes = max(LEAF_BYTES * replay.capacity, _tree_bytes(parts, configuration))
    return Tree(name, draw, update, configuration.threads, {f"{device.name}.memory_bytes": nbytes}, details)


def _modeled(parts: Times, device: Device) -> Iterator[Tree]:
    """Yield compiled trees of a CPU, by threads, or of a GPU, by the law of levels in memory."""
    replay, evidence_id = parts.workload.replay, f"tree({parts.evidence_name(device)})"
    fanouts = sorted({*FANOUTS, replay.fanout, int(parts.constraints.get("fanout", FANOUTS[0]))})
    for shape in _list_compiled(device, impls.names(), fanouts, parts.batch, MOST_THREADS):
        both = laws.tree(
            device, replay.capacity, shape.fanout, parts.batch, shape.threads, parts.inserts, parts.inserted
        )
        draw, update = (parts.modeled(law, evidence_id) for law in both)
        needs = {f"{device.name}.memory_bytes": _tree_bytes(parts, shape)}
        name, details = _describe(device, shape)
        yield Tree(name, draw, update, shape.threads, needs, details)


def _describe(device: Device, shape: Configuration) -> tuple[str, dict[str, Any]]:
    """Return (name, details) of a configuration on a device; a GPU has no threads to name."""
    details: dict[str, Any] = {"contestant": shape.contestant, "fanout": shape.fanout}
    if device.kind != "cpu":
        return f"{shape.contestant} K={shape.fanout}", details
    return f"{shape.contestant} {shape.settings}", {**details, "threads": shape.threads}


def _list_compiled(
    device: Device, names: Iterable[str], fanouts: Iterable[int], batch: int, most_threads: int
) -> Iterator[Configuration]:
    """Yield every implementation, K and number of threads that could run there and whose levels tell its time."""
    for name, fanout in itertools.product(names, fanouts):
        kind = impls.traits(name)
        if kind.compiled and kind.uses_fanout and kind.runs_on == device.kind:
            able = min(laws.cores_of(device), most_threads) if kind.threaded and device.kind == "cpu" else 1
            for threads in range(1, kind.threads_used(batch, able) + 1):
                yield Configuration(name, fanout, threads)


def _fpga(parts: Times, device: Device) -> Iterator[Tree]:
    """Every design in every slice that has room for it."""
    clock, evidence_id = clock_of(device), f"RMM({parts.evidence_name(device)})"
    slices, local = placement.slices_of(device), parts.inserted
    description = (
        f"cycles that equal simulated hardware, at {clock / 1e6:g} MHz; insertions by banks evenly filled; its factor, "
        "for clock and placement, is an assumption"
    )
    for rmm in parts.rmms(device):
        spent = rmm.update_cycles + rmm.insert_cycles(local) * parts.inserts
        both = (laws.law(cycles / clock, laws.FPGA_RMM_FACTOR, description) for cycles in (rmm.draw_cycles, spent))
        draw, update = (parts.modeled(law, evidence_id, is_measurable=False) for law in both)
        design = rmm.point.design.design
        details = {"contestant": "fpga", "fanout": design.fanout, "micro": design.micro, "banks": design.banks}
        for part in (part for part in slices if not exceeded(rmm.point.needed, part.budget)):
            amounts = zip(BOUNDED, placement.amounts(rmm.point.needed), strict=True)
            needs = {f"{device.name}.{part.name}.{kind}": amount for kind, amount in amounts}
            name = f"{rmm.name} in {part.name}" if len(slices) > 1 else rmm.name
            yield Tree(name, draw, update, 1, needs, {**details, "slice": part.name})


def _tree_bytes(parts: Times, shape: Configuration) -> float:
    """Return what a tree takes of memory; ``LEAF_BYTES`` a leaf where its shape does not tell."""
    capacity = parts.workload.replay.capacity
    nbytes = impls.traits(shape.contestant).nbytes_of(capacity, shape.fanout, "float32", {})
    return LEAF_BYTES * capacity if nbytes is None else float(nbytes)


# Trees of a platform that nobody timed, for a question about a tree alone

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
    for tree, draw, update in (_designs if device.kind == "fpga" else _list_modeled)(device, question):
        there, back, changes = _moved(platform, device, question)
        rate, sent = question.updates_per_sample, there + back + question.updates_per_sample * changes
        step = draw + update.scaled(rate) if rate else draw
        step = step.plus(sent, LINK_FACTOR) if sent else step
        yield PlatformTree(device.name, tree, step, sent)


def _moved(platform: Platform, device: Device, question: Question) -> tuple[float, float, float]:
    """Seconds of sending uniforms, of fetching indices and priorities, and of sending those of an update."""
    host = next(other.name for other in platform.devices if other.kind == "cpu")
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


def _list_modeled(device: Device, question: Question) -> Iterator[tuple[Configuration, Estimate, Estimate]]:
    """Yield compiled trees of a processor or a GPU that its memory holds, by the law of levels in memory."""
    names = [PROFILED] if device.kind == "cpu" else impls.names()
    for shape in _list_compiled(device, names, FANOUTS, question.batch, question.threads):
        capacity, kind = question.capacity, impls.traits(shape.contestant)
        nbytes = (kind.nbytes_of(capacity, shape.fanout, question.dtype, {}) or 0) + BATCH_BYTES * question.batch
        if not device.memory or nbytes <= device.memory.size_bytes.value:
            yield shape, *laws.tree(device, capacity, shape.fanout, question.batch, shape.threads)


def _designs(device: Device, question: Question) -> Iterator[tuple[Configuration, Estimate, Estimate]]:
    """Replay management modules that fit a slice of an FPGA, for questions that hardware has queues for."""
    if question.capacity > MOST_LEAVES or question.batch > MOST_ELEMENTS:
        return
    clock = laws.clock_of(device)
    evidence = Evidence("law", "modeled", f"cycles that equal simulated hardware, at {clock / 1e6:g} MHz")
    for rmm in placement.rmms(placement.slices_of(device), question.capacity, question.batch, clock, None):
        design = rmm.point.design.design
        options = {"banking": design.banking, "banks": design.banks, "leaf_bits": design.leaf_bits}
        shape = Configuration("fpga", design.fanout, 1, (*options.items(), ("micro", design.micro)))
        draw, update = (
            Estimate.within(cycles / clock, laws.FPGA_RMM_FACTOR, evidence)
            for cycles in (rmm.draw_cycles, rmm.update_cycles)
        )
        yield shape, draw, update
