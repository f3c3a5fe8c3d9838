"""What a search tried of what could be made without end: the cuts of an answer that is exact over the options made."""

from collections.abc import Collection, Iterator, Sequence

from ..fpga import rmm_search
from ..platforms import Device
from ..times.parts import Parts
from ..times.trees import MOST_THREADS, fanouts, is_timed
from .options import COPIES, RUNS_HERE, Place


def searched(
    parts: Parts, devices: Sequence[Device], places: Sequence[Place], free: Collection[str], depths: Sequence[int]
) -> Iterator[str]:
    """What was tried, a phrase each, of what the question leaves open on these devices and in these modes."""
    overlapping = [place for place in places if not place.in_turns]
    yield from _trees(parts, devices)
    if overlapping:
        yield f"replay cores {_listed(place.replaying for place in overlapping)}"
        if len(devices) > 1:
            yield f"where sampling and updating part, the {COPIES} fastest trees of each device"
    if "learner" not in parts.constraints or parts.constraints["learner"] == parts.cpu.name:
        if "learner_threads" not in parts.constraints:
            yield "threads of torch: those timed, and powers of two beyond"
    for device in devices:
        if device.kind == "fpga" and parts.constraints.get("learner") in (None, device.name):
            if any(place not in RUNS_HERE for place in places):
                yield f"learners on {device.name}: the fastest alone, and one beside each tree it leaves no room for"
    if "presampled" in free:
        yield f"batches sampled ahead: {_listed(depths)}"


def _trees(parts: Parts, devices: Sequence[Device]) -> Iterator[str]:
    """The trees that were tried, by device: those timed, or K, threads and banks of those modeled."""
    for device in devices:
        if {parts.constraints.get(part, device.name) for part in ("sampling", "updating")}.isdisjoint({device.name}):
            continue
        free = "fanout" not in parts.constraints
        if device.kind == "fpga":
            of = f"K of {_listed(rmm_search.FANOUTS)}, " if free else ""
            bits = f"{_listed(rmm_search.LEAF_BITS)}-bit leaves"
            yield f"trees on {device.name}: {of}banks of {_listed(rmm_search.BANKS)}, {bits}"
        elif is_timed(parts, device):
            yield f"trees on {device.name}: those in this machine's records"
        else:
            tried = [f"K of {_listed(fanouts(parts))}"] if free else []
            if device.kind == "cpu" and "threads" not in parts.constraints:
                tried.append(f"threads in powers of two up to {MOST_THREADS}")
            if tried:
                yield f"trees on {device.name}: {', '.join(tried)}"


def _listed(values: Collection[int] | Iterator[int]) -> str:
    return ", ".join(f"{value:,}" for value in values)
