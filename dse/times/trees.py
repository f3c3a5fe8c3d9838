"""The sum trees that a device could have, each with what a gradient step asks of it: a draw, an update, insertions.

Letters: B batch, N capacity, K fanout, u environment steps a gradient step.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import impls
from impls.fpga.resources import exceeded

from ..estimate import Estimate, Evidence
from ..fpga import placement
from ..fpga.points import BOUNDED
from ..platforms import Device
from ..records import Source, benchmark
from . import analytic
from .analytic import Law, clock_of, doubled
from .overheads import Overheads
from .parts import Parts
from .profile import PerformanceTable
from .tree_times import Question
from .tree_variants import Configuration

FANOUTS = (2, 4, 8, 16, 32, 64)  # of trees that are modeled
MOST_THREADS = 8  # of a modeled one
PROFILED = "numba"  # the tree that profiles time
LEAF_BYTES = 20.0  # with inner levels, at K = 2 in two copies
WISHES = ("fanout", "contestant", "threads")
SWEEP = "sweep --preset quick"
SURE: tuple[Source, ...] = ("measured", "interpolated", "extrapolated")  # of records, the surest first


@dataclass(frozen=True)
class Tree:
    """A sum tree on a device: seconds of a gradient step's draw, and of its update with the insertions."""

    name: str
    draw: Estimate
    update: Estimate
    threads: int
    needs: Mapping[str, float]
    told: Mapping[str, Any]


def trees(parts: Parts, device: Device, cold: bool) -> list[Tree]:
    """Every tree on a device, fastest first. ``cold``: gradient steps in between drive it out of the cache."""
    wishes = WISHES if device.kind == "cpu" else [key for key in WISHES if key != "threads"]
    if device.kind == "cpu":
        found = list(_measured(parts, cold)) or list(_modeled(parts, device))
    else:
        found = list((_gpu if device.kind == "gpu" else _fpga)(parts, device))
    kept = [tree for tree in found if all(parts.grants(key, tree.told.get(key)) for key in wishes)]
    return sorted(kept, key=lambda tree: (tree.draw.value + tree.update.value, tree.name))


def _measured(parts: Parts, cold: bool) -> Iterator[Tree]:
    """Of this machine's records. What was measured around the question decides; a fit only where nothing was."""
    table, replay = parts.table, parts.workload.replay
    if table is None:
        return
    known = {Configuration(PROFILED, replay.fanout, 1)}
    if table.trees:
        known |= set(table.trees.configurations(Question(replay.capacity, parts.batch, 1.0, parts.cores)))
    here = [one for one in sorted(known, key=repr) if impls.traits(one.contestant).runs_on == parts.cpu.kind]
    able = [one for one in here if one.threads <= parts.cores]
    found = [tree for one in able if (tree := _of(parts, table, one, cold))]
    yield from [tree for tree in found if tree.update.source != "extrapolated"] or found


def _of(parts: Parts, table: PerformanceTable, configuration: Configuration, cold: bool) -> Tree | None:
    replay, local, name = parts.workload.replay, parts.workload.actors.local_storage, _name(configuration)
    number = f"tree({parts.cpu.name}, {name})"
    draw = table.tree(configuration, "draw", replay.capacity, parts.batch, number)
    update = table.tree(configuration, "update", replay.capacity, parts.batch, number)
    if not (draw and update):
        return None
    insert = (table.tree(configuration, "update", replay.capacity, local, number) or update).value
    told = f"records of machine {table.machine_key}"
    if cold and (over := table.overheads):
        told += f", plus {over.cold_seconds * 1e9:.0f} ns an element for a cold cache ({over.told})"
        draw, update = _chilled(draw, over, parts.batch), _chilled(update, over, parts.batch)
        insert += over.insert_seconds
    evidence = Evidence(number, max(draw.source, update.source, key=SURE.index), told, benchmark(SWEEP))
    draw, update = (
        dataclasses.replace(time, rests_on=evidence) for time in (draw, update.plus(insert * parts.inserts, 2.0))
    )
    shape = {"contestant": configuration.contestant, "fanout": configuration.fanout, "threads": configuration.threads}
    held = _bytes(configuration.contestant, parts, configuration.fanout)
    needs = {f"{parts.cpu.name}.memory_bytes": max(LEAF_BYTES * replay.capacity, held)}
    return Tree(name, draw, update, configuration.threads, needs, shape)


def _chilled(time: Estimate, over: Overheads, batch: int) -> Estimate:
    """A draw or an update of a tree out of the cache: half of what both take more."""
    return time.plus(over.cold_seconds * batch / 2, over.cold_factor)


def _modeled(parts: Parts, device: Device) -> Iterator[Tree]:
    replay, number = parts.workload.replay, f"tree({device.name})"
    for contestant, fanout in _compiled(parts, device):
        insert = analytic.tree(parts.platform, device, replay.capacity, fanout, parts.workload.actors.local_storage)[1]
        most = MOST_THREADS if impls.traits(contestant).threaded else 1
        for threads in doubled(min(parts.cores, most)):
            laws = analytic.tree(parts.platform, device, replay.capacity, fanout, parts.batch, threads)
            spent = laws[1].seconds + insert.seconds * parts.inserts
            update = parts.modeled(dataclasses.replace(laws[1], seconds=spent), number)
            shape = {"contestant": contestant, "fanout": fanout, "threads": threads}
            needs = {f"{device.name}.memory_bytes": _bytes(contestant, parts, fanout)}
            name = _name(Configuration(contestant, fanout, threads))
            yield Tree(name, parts.modeled(laws[0], number), update, threads, needs, shape)


def _gpu(parts: Parts, device: Device) -> Iterator[Tree]:
    number = f"tree({device.name})"
    for contestant, fanout in _compiled(parts, device):
        draw, update = analytic.tree(parts.platform, device, parts.workload.replay.capacity, fanout, parts.batch)
        update = dataclasses.replace(update, seconds=update.seconds * (1 + parts.inserts))
        needs = {f"{device.name}.memory_bytes": _bytes(contestant, parts, fanout)}
        shape = {"contestant": contestant, "fanout": fanout}
        times = parts.modeled(draw, number), parts.modeled(update, number)
        yield Tree(f"{contestant} K={fanout}", *times, 1, needs, shape)


def _fpga(parts: Parts, device: Device) -> Iterator[Tree]:
    """Every design in every slice that holds it."""
    clock, number = clock_of(device), f"RMM({device.name})"
    slices, local = placement.slices_of(device), parts.workload.actors.local_storage
    told = f"cycles that equal simulated hardware, at {clock / 1e6:g} MHz; insertions by banks evenly filled"
    for rmm in parts.rmms(device):
        spent = rmm.update_cycles + rmm.insert_cycles(local) * parts.inserts
        draw = parts.modeled(Law(rmm.draw_cycles / clock, analytic.FPGA_RMM_FACTOR, told), number)
        update = parts.modeled(Law(spent / clock, analytic.FPGA_RMM_FACTOR, told), number)
        design = rmm.point.design.design
        shape = {"contestant": "fpga", "fanout": design.fanout, "micro": design.micro, "banks": design.banks}
        for place in (one for one in slices if not exceeded(rmm.point.needed, one.budget)):
            amounts = zip(BOUNDED, placement.amounts(rmm.point.needed), strict=True)
            needs = {f"{device.name}.{place.name}.{kind}": amount for kind, amount in amounts}
            name = f"{rmm.name} in {place.name}" if len(slices) > 1 else rmm.name
            yield Tree(name, draw, update, 1, needs, {**shape, "slice": place.name})


def _compiled(parts: Parts, device: Device) -> Iterator[tuple[str, int]]:
    """(contestant, K) of every tree that could run there and whose time its levels in memory tell."""
    fanouts = sorted({*FANOUTS, parts.workload.replay.fanout, int(parts.fixed.get("fanout", FANOUTS[0]))})
    for name in impls.names():
        kind = impls.traits(name)
        if kind.compiled and kind.uses_fanout and kind.runs_on == device.kind:
            yield from ((name, fanout) for fanout in fanouts)


def _bytes(contestant: str, parts: Parts, fanout: int) -> float:
    """Of the tree; ``LEAF_BYTES`` a leaf where its shape does not tell."""
    known = impls.traits(contestant).nbytes_of(parts.workload.replay.capacity, fanout, "float32", {})
    return LEAF_BYTES * parts.workload.replay.capacity if known is None else float(known)


def _name(configuration: Configuration) -> str:
    return str(configuration).replace(" (", " ").removesuffix(")")
