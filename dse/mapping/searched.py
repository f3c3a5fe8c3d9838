"""What a search tried of what could be made without end: the cuts of an answer that is exact over the options made."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from ..fpga import rmm_search
from ..platforms import Device
from ..times.trees import fanouts, is_timed
from .equal_devices import EqualDevices
from .options import COPIES, Place


def searched(
    equal: EqualDevices, places: Sequence[Place], free: Collection[str], depths: Sequence[int]
) -> Iterator[str]:
    """What was tried, a phrase each, of what the question leaves open on these devices and in these modes."""
    parts, devices = equal.parts, equal.devices
    overlapping = [place for place in places if not place.in_turns]
    yield from _trees(equal)
    if len(parts.policies) > 1 and not {"learner_implementation", "policy_implementation"} <= set(parts.constraints):
        yield f"learner and policy by those in this machine's records: {', '.join(parts.policies)}"
    if overlapping and len(devices) > 1:
        limits = " with at most 1, 2, 4, ... threads" if any(device.kind == "cpu" for device in devices) else ""
        yield f"where sampling and updating part, the {COPIES} fastest trees of each device{limits}"
    wanted = parts.constraints.get("learner")
    for device in devices:
        names = {one.name for one in equal.of(device)}
        if (wanted is None or wanted in names) and equal.first(device) is device:
            yield from _learners(equal, device, places)
    if "presampled" in free:
        yield f"batches sampled ahead: {_listed(depths)}"


def _learners(equal: EqualDevices, device: Device, places: Sequence[Place]) -> Iterator[str]:
    """The learners that were tried on a device, and on several of its model."""
    known = equal.learners(device)
    threads = {one.details["threads"] for one in known if "threads" in one.details}
    if device.kind == "cpu" and threads and "learner_threads" not in equal.parts.constraints:
        yield f"threads of torch{_on(equal, device)}: {_ranges(threads)}"
    if device.kind == "fpga" and any(place.arrangement != "serial" for place in places):
        yield f"learners on {_names(equal, device)}: the fastest alone, and one beside each tree it leaves no room for"
    several = {count for one in known if 1 < (count := one.devices) <= len(equal.of(device))}
    if several and any(not place.in_turns for place in places):
        yield f"data-parallel learners on every {_ranges(several)} of {_names(equal, device)}"


def _names(equal: EqualDevices, device: Device) -> str:
    """The devices of a device's model in words."""
    return ", ".join(one.name for one in equal.of(device))


def _on(equal: EqualDevices, device: Device) -> str:
    """The device in words, where there are several of its kind."""
    return f" on {_names(equal, device)}" if sum(one.kind == device.kind for one in equal.devices) > 1 else ""


def _trees(equal: EqualDevices) -> Iterator[str]:
    """The trees that were tried, by device: those timed, or K, threads and banks of those modeled."""
    parts = equal.parts
    for device in equal.devices:
        names = {one.name for one in equal.of(device)}
        wanted = {parts.constraints.get(part, device.name) for part in ("sampling", "updating")}
        if equal.first(device) is not device or wanted.isdisjoint(names):
            continue
        free = "fanout" not in parts.constraints
        if device.kind == "fpga":
            of = f"K of {_listed(rmm_search.FANOUTS)}, " if free else ""
            bits = f"{_listed(rmm_search.LEAF_BITS)}-bit leaves"
            yield f"trees on {_names(equal, device)}: {of}banks of {_listed(rmm_search.BANKS)}, {bits}"
        elif is_timed(parts, device):
            yield f"trees on {_names(equal, device)}: those in this machine's records"
        else:
            tried = [f"K of {_listed(fanouts(parts))}"] if free else []
            if device.kind == "cpu" and "threads" not in parts.constraints:
                tried.append(f"threads {_ranges({tree.threads for tree in equal.trees(device)})}")
            if tried:
                yield f"trees on {_names(equal, device)}: {', '.join(tried)}"


def _ranges(values: Iterable[int]) -> str:
    """Whole numbers in words, those in a row as "1 to 8"."""
    runs: list[list[int]] = []
    # Invariant: runs has all smaller values, each run without a gap.
    for value in sorted(values):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ", ".join(f"{run[0]:,} to {run[-1]:,}" if len(run) > 2 else _listed(run) for run in runs)


def _listed(values: Collection[int] | Iterator[int]) -> str:
    return ", ".join(f"{value:,}" for value in values)
