"""The sum trees that a device could have, each with what a gradient step takes: a draw, an update, insertions.

Letters: B batch, N capacity, K fanout, u environment steps a gradient step.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import impls
from impls.fpga.resources import exceeded

from ..estimate import Estimate, Evidence, weakest
from ..fpga import BOUNDED, placement
from ..platforms import Device
from ..records import benchmark
from . import analytic
from .analytic import clock_of
from .door import Times
from .own import counted
from .own_file import Entry
from .profile import PerformanceTable
from .tree_times import Question
from .tree_variants import Configuration

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
    there = own if any(not one.contestant for one in _stated(parts, device)) else _beside(parts, device, own)
    allowed = [tree for tree in there if all(parts.allows(key, tree.details.get(key)) for key in keys)]
    return sorted(allowed, key=lambda tree: (tree.draw.value + tree.update.value, tree.name))


def _stated(parts: Times, device: Device) -> tuple[Entry, ...]:
    """A user's own times of trees on a device."""
    return (*parts.stated("sampling", device), *parts.stated("updating", device))


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
    every = [one for entries in stated.values() for one in entries]
    shapes = {
        (one.contestant, one.counts.get("fanout", 0)) for one in every if one.contestant or "fanout" in one.counts
    }
    others = functools.cache(lambda: _beside(parts, device, []))
    for contestant, fanout in sorted(shapes) or ([("", 0)] if every else []):
        counts = sorted({counted(one) for one in every})
        for threads in range(counts[0], min(counts[-1], parts.cores_of(device)) + 1):
            times = [_own_time(parts, device, part, (contestant, fanout), threads) for part in stated]
            if not any(times):
                continue
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
        known = [one for one in entries if (one.contestant, one.counts.get("fanout", 0)) == wanted]
        of = "".join(f", {word}" for word in (wanted[0], f"K={wanted[1]}" if wanted[1] else "") if word)
        evidence_id = f"{part}({parts.evidence_name(device, part)}{of}{f', {threads} threads' if threads > 1 else ''})"
        if known and parts.own and (time := parts.own.time(known, evidence_id, parts.batch, threads)):
            return time
    return None


def _own_name(parts: Times, device: Device, contestant: str, fanout: int, threads: int) -> tuple[str, dict[str, Any]]:
    """(name, details) of a stated tree; what it does not state is what the constraints ask for, or the workload's K."""
    usual = {"cpu": PROFILED, "gpu": "cupy", "fpga": "fpga"}[device.kind]
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
    table, replay, cores = parts.table_of(device), parts.workload.replay, parts.cores_of(device)
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
    details: dict[str, Any] = {"contestant": configuration.contestant, "fanout": configuration.fanout}
    details |= {"threads": configuration.threads} if device.kind == "cpu" else {}
    details |= {"options": dict(configuration.options)} if configuration.options else {}
    nbytes = max(LEAF_BYTES * replay.capacity, _bytes(configuration.contestant, parts, configuration.fanout))
    return Tree(name, draw, update, configuration.threads, {f"{device.name}.memory_bytes": nbytes}, details)


def _modeled(parts: Times, device: Device) -> Iterator[Tree]:
    """Compiled trees of a CPU, by threads, or of a GPU, by the law of levels in memory."""
    replay, evidence_id = parts.workload.replay, f"tree({parts.evidence_name(device)})"
    insertions = parts.inserts, parts.inserted
    for contestant, fanout in _compiled(parts, device):
        kind = impls.traits(contestant)
        able = min(parts.cores_of(device), MOST_THREADS) if kind.threaded and device.kind == "cpu" else 1
        needs = {f"{device.name}.memory_bytes": _bytes(contestant, parts, fanout)}
        for threads in range(1, kind.threads_used(parts.batch, able) + 1):
            laws = analytic.tree(device, replay.capacity, fanout, parts.batch, threads, *insertions)
            draw, update = (parts.modeled(law, evidence_id) for law in laws)
            name, details = f"{contestant} K={fanout}", {"contestant": contestant, "fanout": fanout}
            if device.kind == "cpu":
                settings = Configuration(contestant, fanout, threads).settings
                name, details = f"{contestant} {settings}", {**details, "threads": threads}
            yield Tree(name, draw, update, threads, needs, details)


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
        laws = (
            analytic.law(cycles / clock, analytic.FPGA_RMM_FACTOR, description) for cycles in (rmm.draw_cycles, spent)
        )
        draw, update = (parts.modeled(law, evidence_id, is_measurable=False) for law in laws)
        design = rmm.point.design.design
        details = {"contestant": "fpga", "fanout": design.fanout, "micro": design.micro, "banks": design.banks}
        for part in (part for part in slices if not exceeded(rmm.point.needed, part.budget)):
            amounts = zip(BOUNDED, placement.amounts(rmm.point.needed), strict=True)
            needs = {f"{device.name}.{part.name}.{kind}": amount for kind, amount in amounts}
            name = f"{rmm.name} in {part.name}" if len(slices) > 1 else rmm.name
            yield Tree(name, draw, update, 1, needs, {**details, "slice": part.name})


def is_timed(parts: Times, device: Device) -> bool:
    """Whether this machine's records time a device's trees, so that none is modeled."""
    return any(_measured(parts, device))


def fanouts(parts: Times) -> tuple[int, ...]:
    """K of modeled trees: those of all questions, the workload's own and one that is fixed."""
    return tuple(sorted({*FANOUTS, parts.workload.replay.fanout, int(parts.constraints.get("fanout", FANOUTS[0]))}))


def _compiled(parts: Times, device: Device) -> Iterator[tuple[str, int]]:
    """(implementation, K) of every tree that could run there and whose time its levels in memory tell."""
    for name in impls.names():
        kind = impls.traits(name)
        if kind.compiled and kind.uses_fanout and kind.runs_on == device.kind:
            yield from ((name, fanout) for fanout in fanouts(parts))


def _bytes(contestant: str, parts: Times, fanout: int) -> float:
    """What a tree takes of memory; ``LEAF_BYTES`` a leaf where its shape does not tell."""
    nbytes = impls.traits(contestant).nbytes_of(parts.workload.replay.capacity, fanout, "float32", {})
    return LEAF_BYTES * parts.workload.replay.capacity if nbytes is None else float(nbytes)
