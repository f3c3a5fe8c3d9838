"""Run the published mapping algorithm, its readings, and the optimum of the same simple model.

[Zhang2023, Alg. 3] maps two primitives (Learner; RMM, the replay management) from one table of throughputs, and then
the data storage. Its model: a step takes the longer of the two times, and on a GPU, which both then share, their sum.
Lines 6 and 7 are to take the GPU from the RMM where that helps. They come after line 5 has chosen, in a listing whose
indentation is lost to us, so they have two readings: after the loop over primitives, where nothing looks at the table
again (``printed``), or inside it, between the learner's turn and the RMM's (``recomputed``).

Letters: E words of a record, T seconds of a step, one over its throughput. The model has no links and no budgets.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dse.solver.problem import ProblemError

Reals = NDArray[np.float64]
LEARNER, RMM, ACTORS = "Learner", "RMM", "Actors"
GPU, FPGA = "GPU", "FPGA"


@dataclass(frozen=True)
class DeviceTable:
    """Seconds of a step by (primitive, device); every primitive on every device.

    ``together``: seconds of a primitive (first) while another one (second) runs on a device (third), where that was
    measured: then they run at once, and take so long. Elsewhere primitives take turns on the ``shared`` devices, and do
    not disturb each other on the others. ProblemError for a time that is missing or not above 0.
    """

    seconds: Mapping[tuple[str, str], float]
    together: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    shared: frozenset[str] = frozenset({GPU})

    def __post_init__(self) -> None:
        for primitive, device in itertools.product(self.primitives, self.devices):
            taken = self.seconds.get((primitive, device))
            if taken is None or not taken > 0:
                raise ProblemError(f"{primitive} on {device} must take a time above 0, not {taken}")

    @property
    def primitives(self) -> tuple[str, ...]:
        """Primitives in the order of the table."""
        return tuple(dict.fromkeys(primitive for primitive, _ in self.seconds))

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices in the order of the table."""
        return tuple(dict.fromkeys(device for _, device in self.seconds))


@dataclass(frozen=True)
class Mapped:
    """Device by primitive; seconds of a step by the model; how many candidates were weighed to find it."""

    device: dict[str, str]
    seconds: float
    evaluations: int


def step_seconds(table: DeviceTable, device: Mapping[str, str]) -> float:
    """Compute the step of a mapping of every primitive: the longest time of a device."""
    longest = 0.0
    # Invariant: longest is the longest time of the devices before this one.
    for here in table.devices:
        members = [primitive for primitive in table.primitives if device[primitive] == here]
        alone = [table.seconds[member, here] for member in members]
        if measured_together(table, members, here):
            taken = max(table.together[*pair, here] for pair in itertools.permutations(members, 2))
        else:
            taken = sum(alone) if here in table.shared else max(alone, default=0.0)
        longest = max(longest, taken)
    return longest


def printed(table: DeviceTable) -> Mapped:
    """Map by lines 4 to 8 with the removal after the loop: it comes too late to change anything.

    Line 5 has no rule for ties; here the first device of the table wins.
    """
    mapped = _removing(table, ())
    return replace(mapped, evaluations=mapped.evaluations + (mapped.device[LEARNER] == GPU))


def heeded(learner: Reals, rmm: Reals, devices: Sequence[str], tested: Sequence[str]) -> Reals:
    """Return T_R after the removal, from T_L and T_R, each [tables, devices]: inf where the RMM may not use a device.

    That is the GPU, where it is the learner's and the RMM is at least as fast as that learner on a tested device.
    """
    left = rmm.copy()
    if GPU in devices:
        gpu, others = devices.index(GPU), [devices.index(device) for device in tested]
        removed = (learner.argmin(axis=1) == gpu) & (rmm[:, others] <= learner[:, [gpu]]).any(axis=1)
        left[removed, gpu] = np.inf
    return left


def recomputed(table: DeviceTable) -> Mapped:
    """Map with the removal inside the loop, so that the RMM's argmax sees it; the test looks at the FPGA only."""
    return _removing(table, tuple(device for device in table.devices if device == FPGA))


def dissertation(table: DeviceTable) -> Mapped:
    """Map as [Zhang2022, 4.4.2]: the test looks at every device but the GPU."""
    return _removing(table, tuple(device for device in table.devices if device != GPU))


def learner_first(table: DeviceTable) -> Mapped:
    """Map the learner where it is fastest, then the RMM where the step is shortest: greedy without the flawed test."""
    learner = min(table.devices, key=lambda device: table.seconds[LEARNER, device])
    best = min(table.devices, key=lambda device: step_seconds(table, {LEARNER: learner, RMM: device}))
    return _mapped(table, {LEARNER: learner, RMM: best}, 2 * len(table.devices))


def joint(table: DeviceTable) -> Mapped:
    """Find the mapping of all primitives with the shortest step; of equal ones fewest devices decide, then order."""
    mappings = [
        dict(zip(table.primitives, devices, strict=True))
        for devices in itertools.product(table.devices, repeat=len(table.primitives))
    ]
    best = min(mappings, key=lambda device: (step_seconds(table, device), len(set(device.values()))))
    return _mapped(table, best, len(mappings))


VARIANTS: dict[str, Callable[[DeviceTable], Mapped]] = {
    "as printed": printed,
    "removal heeded, test of the FPGA": recomputed,
    "removal heeded, test of CPU and FPGA": dissertation,
    "learner first, then the best RMM": learner_first,
}


def traffic_words(batch: int, actors: int, record: int) -> dict[str, int]:
    """Count, by line 11, the words a gradient step that a primitive exchanges with the data storage."""
    return {RMM: batch, LEARNER: batch * record, ACTORS: actors * record}


def printed_storage(device: Mapping[str, str], words: Mapping[str, int]) -> tuple[str, int]:
    """Choose by lines 9 to 16: (device of the data storage, the traffic it is believed to cause).

    With each primitive in turn, the words of all others are charged, even of those on the same device.
    """
    chosen, least = "", float("inf")
    # Invariant: chosen is the device with the least charge so far, the first of equals.
    for beside in (LEARNER, ACTORS, RMM):
        total = sum(words[other] for other in (LEARNER, ACTORS, RMM) if other != beside)
        if total < least:
            chosen, least = device[beside], total
    return chosen, int(least)


def measured_together(table: DeviceTable, members: Sequence[str], device: str) -> bool:
    """Tell whether several primitives were measured concurrently on a device, every pair of them."""
    return len(members) > 1 and all((*pair, device) in table.together for pair in itertools.permutations(members, 2))


def _removing(table: DeviceTable, tested: Sequence[str]) -> Mapped:
    """Map without the learner's GPU for an RMM at least as fast as that learner on a tested device."""
    devices = table.devices
    learner, rmm = (np.array([[table.seconds[one, device] for device in devices]]) for one in (LEARNER, RMM))
    left = heeded(learner, rmm, devices, tested)
    device = {LEARNER: devices[learner.argmin()], RMM: devices[left.argmin()]}
    looked = len(tested) * (device[LEARNER] == GPU) - int((left != rmm).sum())
    return _mapped(table, device, 2 * len(devices) + looked)


def _mapped(table: DeviceTable, device: dict[str, str], evaluations: int) -> Mapped:
    return Mapped(device, step_seconds(table, device), evaluations)
