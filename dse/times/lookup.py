"""What the parts of a training system are asked about, and where their times are looked up.

Letters: B batch, N capacity, E environments an actor steps at once, u environment steps a gradient step, T threads.
"""

import functools
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from impls.levels import level_sizes
from impls.training import Workload
from impls.training.learners import PREFERRED, unsuited
from impls.training.weights import layout_of, networks

from ..estimate import Estimate
from ..fpga import placement
from ..platforms import Device, Platform
from ..records import Source, benchmark
from ..solver.problem import PARTS
from . import laws
from .cells import PerformanceTable, Shape
from .curves import over_count
from .stated import Entry, StatedTimes, counted, group_equal_devices


@dataclass
class Lookup:
    """A question about a workload's parts on a platform, and the times that are stated or recorded.

    ``table``: records of this very machine; ``reference``: those of another one, for what no platform file says.
    ``constraints``: values by key of ``--fix``. ``workload_argument``: the workload's name or file, as commands take
    it. ``own``: a user's times, which are looked up first, for a device or one equal to it.

    From these follow ``cpu``, the first processor, which actors run on, and its ``cores``; B as ``batch``, E as
    ``environments``, the records of an insertion as ``inserted``, insertions a gradient step as ``inserts``, levels
    above the leaves as ``height``; bytes: ``transition_bytes`` that a learner reads for a record of its batch,
    ``batch_bytes`` for a batch, ``written_bytes`` of a new record with its part of a local storage's fillers,
    ``weights_bytes`` of the networks that actors fetch, ``storage_bytes`` of N records. ``suits_preferred``: whether
    the preferred learner and policy run the workload. ``workload_word``: the workload as a word of a command.
    ``equal_devices``: by name the names of a device and of those equal to it in all else, the device first.
    """

    platform: Platform
    workload: Workload
    table: PerformanceTable | None
    reference: PerformanceTable | None
    constraints: Mapping[str, Any]
    workload_argument: str = ""
    own: StatedTimes | None = None

    def __post_init__(self) -> None:
        workload, layout, local = self.workload, layout_of(self.workload), self.workload.actors.local_storage
        self.cpu = next(device for device in self.platform.devices if device.kind == "cpu")
        self.cores, self.batch = laws.cores_of(self.cpu), workload.learner.batch
        self.environments, self.inserted = workload.actors.environments, local * workload.actors.environments
        self.inserts = workload.learner.update_interval / self.inserted
        self.height = len(level_sizes(workload.replay.capacity, workload.replay.fanout)) - 1
        self.transition_bytes = float(layout.record_bytes * laws.records_read(workload))
        self.batch_bytes = self.batch * self.transition_bytes
        self.written_bytes = layout.record_bytes * (local + layout.fillers) / local
        acting = next(size for name, size in networks(workload).items() if name != "critic")
        self.weights_bytes = float(laws.FLOAT_BYTES * acting.parameters)
        self.storage_bytes = float(workload.replay.capacity * layout.record_bytes)
        self.suits_preferred = not unsuited(PREFERRED, workload)
        self.workload_word = shlex.quote(self.workload_argument or workload.name)
        self._profile = benchmark(f"profile --workload {self.workload_word}")
        self.equal_devices = group_equal_devices(self.platform)

    # Devices

    def evidence_name(self, device: Device, *parts: str) -> str:
        """Return the name for evidence of parts on a device: the first of all equal devices that states them.

        Equal devices rest on the same evidence, whose error they share.
        """
        known = {entry.device for part in parts for entry in self.stated(part, device)}
        names = [other.name for other in self.platform.devices if other.name in self.equal_devices[device.name]]
        return next((name for name in names if name in known), names[0])

    def table_of(self, device: Device) -> PerformanceTable | None:
        """Return the records of a device: those of the machine, of its first processor or GPU and of equal ones."""
        first = next((other.name for other in self.platform.devices if other.kind == device.kind), "")
        return self.table if device.kind in ("cpu", "gpu") and first in self.equal_devices[device.name] else None

    def transfer_seconds(self, source: str, target: str, nbytes: float) -> float:
        """Return seconds of n bytes between two devices, as stated or as the platform has it; inf without a way."""
        usual = self.platform.way(source, target, nbytes)[0]
        hop = self.own.hop(source, target, self.batch_bytes, "") if self.own else None
        return usual if hop is None else hop.alpha_seconds + nbytes * hop.seconds_per_byte

    def call_seconds(self, device: str) -> float:
        """Return the time of a processor to start an FPGA, and wait: a transfer of nothing. A GPU has its launches."""
        is_fpga = self.platform.device(device).kind == "fpga"
        return self.transfer_seconds(self.cpu.name, device, 0.0) if is_fpga else 0.0

    def rmms(self, device: Device) -> tuple[placement.Rmm, ...]:
        """List the sum trees that a slice of an FPGA could hold, of the K that the constraints allow."""
        capacity, fanout = self.workload.replay.capacity, self.constraints.get("fanout")
        slices = placement.slices_of(device)
        return placement.rmms(slices, capacity, self.batch, laws.clock_of(device), fanout)

    def allows(self, key: str, value: Any) -> bool:
        """Tell whether the constraints allow a value; those on threads are meant for a processor's options alone."""
        return self.constraints.get(key) in (None, value)

    # Times

    def stated(self, part: str, device: Device, devices: int = 0) -> tuple[Entry, ...]:
        """List a user's own times of a part alone on a device, or on the first one equal to it that has any.

        ``devices``: of so many that share a batch alone, 0 for any number. Without those of more threads or processes
        than the device has cores.
        """
        known = self.own.known(part, self.equal_devices[device.name]) if self.own else ()
        known = tuple(entry for entry in known if devices in (0, entry.counts.get("devices", 1)))
        return tuple(entry for entry in known if counted(entry) <= laws.cores_of(device))

    @functools.cached_property
    def has_stated_loop(self) -> bool:
        """Whether the user states a time of a part on the processor, so that no whole run there tells of the parts."""
        return any(self.stated(part, self.cpu) for part in PARTS)

    def time_stated(
        self, part: str, device: Device, count: int, evidence_id: str, batch: int | None = None
    ) -> Estimate | None:
        """Return the time of a part that the user states, or that lies between what is stated."""
        entries = self.stated(part, device, 1)
        return self.own.time(entries, evidence_id, batch or self.batch, count) if self.own else None

    def nearest_stated(self, part: str, device: Device, count: int) -> tuple[Estimate | None, int]:
        """Return (the stated time with the nearest number of threads or processes, that number), else (None, 0)."""
        counts = {counted(entry) for entry in self.stated(part, device, 1)}
        near = min(counts, key=lambda known: abs(math.log(known / count)), default=0)
        return (self.time_stated(part, device, near, part) if near else None), near

    def time_recorded(
        self, what: str, batch: int, threads: int, evidence_id: str, shape: Shape | None = None
    ) -> Estimate | None:
        """Return the estimate that this machine's records give, if any, with its evidence."""
        if self.table is None:
            return None
        counts = self.table.threads(what)
        by_count = {
            count: known
            for count in (counts if threads not in counts else (threads,))
            if (known := self.table.time(what, batch, count, evidence_id, shape))
        }
        known = over_count(by_count, threads, evidence_id)
        return self.measured(known, self.table, what) if known else None

    def measured(self, known: Estimate, table: PerformanceTable, what: str) -> Estimate:
        """Describe a measured estimate, with the command that measures it again."""
        reused = f"; profiled with other {', '.join(table.differs)}" if table.differs else ""
        kind = ", carried on by a fit" if known.source == "extrapolated" else ""
        description = f"{what}{kind}: {known.rests_on.description}{reused}"
        return known.resting_on(description=description, command=self._profile, topic="profile")

    def modeled(
        self, law: Estimate, evidence_id: str, source: Source = "modeled", is_measurable: bool = True
    ) -> Estimate:
        """Make a law's estimate the evidence for a part, with the command that measures it instead, if one does."""
        command, topic = (self._profile, "profile") if is_measurable else ("", "")
        return law.resting_on(id=evidence_id, source=source, command=command, topic=topic)
