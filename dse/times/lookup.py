"""What the parts of a training system are asked about: a platform, a workload, its records and a user's own times.

Letters: B batch, N capacity, u environment steps a gradient step, x processes, T threads.
"""

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from impls.levels import level_sizes
from impls.training import Workload
from impls.training.learners import PREFERRED, unsuited
from impls.training.weights import layout_of, networks

from ..estimate import Estimate
from ..fpga import placement
from ..platforms import Device, Platform
from ..records import Source, benchmark
from . import analytic
from .between import over_count
from .own import Own, counted, equal_devices
from .own_file import Entry
from .profile import PerformanceTable, Shape

SCALING = "the Universal Scalability Law, of an uncertainty that grows with the distance from what was timed"


@dataclass
class Lookup:
    """A question about the parts of a workload on a platform, and where their times are looked up.

    ``table``: records of this very machine; ``reference``: those of another one, for what no platform file says.
    ``constraints``: values by key of ``--fix``. ``workload_argument``: the workload's name or file, as commands take
    it. ``own``: a user's times, which are looked up first, for a device or one equal to it.
    """

    platform: Platform
    workload: Workload
    table: PerformanceTable | None
    reference: PerformanceTable | None
    constraints: Mapping[str, Any]
    workload_argument: str = ""
    own: Own | None = None
    _equal: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False)

    @property
    def cpu(self) -> Device:
        """The first processor, which actors run on."""
        return next(device for device in self.platform.devices if device.kind == "cpu")

    @property
    def cores(self) -> int:
        """How many cores that processor has."""
        return self.cores_of(self.cpu)

    def cores_of(self, device: Device) -> int:
        """How many cores a processor has, and other devices of it: 1."""
        return int(device.cores.value) if device.kind == "cpu" and device.cores else 1

    def equal_devices(self, device: Device) -> tuple[str, ...]:
        """The names of a device and of all that are equal to it but for the name: the device first."""
        if device.name not in self._equal:
            self._equal[device.name] = equal_devices(self.platform, device.name)
        return self._equal[device.name]

    def evidence_name(self, device: Device, *parts: str) -> str:
        """The device that evidence of parts on a device is named after: the first of all equal ones that states them.

        Equal devices rest on the same evidence, whose error they share.
        """
        known = {one.device for part in parts for one in self.stated(part, device)}
        names = [one.name for one in self.platform.devices if one.name in self.equal_devices(device)]
        return next((name for name in names if name in known), names[0])

    def table_of(self, device: Device) -> PerformanceTable | None:
        """The records of a device: those of the machine, of its first processor or GPU and of such as are equal."""
        first = next((one.name for one in self.platform.devices if one.kind == device.kind), "")
        return self.table if device.kind in ("cpu", "gpu") and first in self.equal_devices(device) else None

    def transfer_seconds(self, source: str, target: str, nbytes: float) -> float:
        """Seconds of n bytes between two devices, as the user states it or as the platform does; inf without a way."""
        usual = self.platform.way(source, target, nbytes)[0]
        hop = self.own.hop(source, target, self.batch_bytes, "") if self.own else None
        return usual if hop is None else hop.alpha_seconds + nbytes * hop.seconds_per_byte

    @property
    def workload_word(self) -> str:
        """The workload as a word of a command."""
        return shlex.quote(self.workload_argument or self.workload.name)

    @property
    def batch(self) -> int:
        """B, the number of records of a gradient step."""
        return self.workload.learner.batch

    @property
    def transition_bytes(self) -> float:
        """What a learner reads for a record of its batch."""
        return float(layout_of(self.workload).record_bytes * analytic.records_read(self.workload))

    @property
    def batch_bytes(self) -> float:
        """What a learner reads for a batch."""
        return self.batch * self.transition_bytes

    @property
    def written_bytes(self) -> float:
        """Bytes of a new record: the newest frame alone, with its part of a local storage's fillers."""
        layout, local = layout_of(self.workload), self.workload.actors.local_storage
        return layout.record_bytes * (local + layout.fillers) / local

    @property
    def weights_bytes(self) -> float:
        """Bytes of the networks that actors fetch."""
        acting = next(size for name, size in networks(self.workload).items() if name != "critic")
        return 4.0 * acting.parameters

    @property
    def environments(self) -> int:
        """E, the number of environments that an actor steps at once."""
        return self.workload.actors.environments

    @property
    def inserted(self) -> int:
        """Records of an insertion: those of the local storage of each of an actor's environments."""
        return self.workload.actors.local_storage * self.environments

    @property
    def inserts(self) -> float:
        """Insertions a gradient step, each of ``inserted`` records."""
        return self.workload.learner.update_interval / self.inserted

    @property
    def storage_bytes(self) -> float:
        """Bytes of N records."""
        return float(self.workload.replay.capacity * layout_of(self.workload).record_bytes)

    @property
    def height(self) -> int:
        """Levels above the leaves, for the workload's own K."""
        return len(level_sizes(self.workload.replay.capacity, self.workload.replay.fanout)) - 1

    @property
    def suits_preferred(self) -> bool:
        """Whether the preferred learner and policy can run the workload."""
        return not unsuited(PREFERRED, self.workload)

    def rmms(self, device: Device) -> tuple[placement.Rmm, ...]:
        """Sum trees that a slice of an FPGA could hold, of the K that the constraints allow."""
        replay, fanout = self.workload.replay, self.constraints.get("fanout")
        clock = analytic.clock_of(device)
        return placement.rmms(placement.slices_of(device), replay.capacity, self.batch, clock, fanout)

    def call_seconds(self, device: str) -> float:
        """The time of a processor to start an FPGA, and wait: a transfer of nothing. A GPU has its launches."""
        if self.platform.device(device).kind != "fpga":
            return 0.0
        return self.transfer_seconds(self.cpu.name, device, 0.0)

    def allows(self, key: str, value: Any) -> bool:
        """Whether the constraints allow a value; those on threads are meant for a processor's options alone."""
        return self.constraints.get(key) in (None, value)

    # Times

    def stated(self, part: str, device: Device) -> tuple[Entry, ...]:
        """A user's own times of a part alone on a device, or on the first one equal to it that has any.

        Without those of more threads or processes than the device has cores.
        """
        known = self.own.known(part, self.equal_devices(device)) if self.own else ()
        return tuple(one for one in known if counted(one) <= self.cores_of(device))

    def time_stated(
        self, part: str, device: Device, count: int, evidence_id: str, batch: int | None = None
    ) -> Estimate | None:
        """The time of a part that the user states, or that lies between what is stated."""
        entries = [one for one in self.stated(part, device) if one.counts.get("devices", 1) == 1]
        return self.own.time(entries, evidence_id, batch or self.batch, count) if self.own else None

    def nearest_stated(self, part: str, device: Device, count: int) -> tuple[Estimate | None, int]:
        """(the stated time with the nearest number of threads or processes, that number); (None, 0) without any."""
        counts = {counted(one) for one in self.stated(part, device) if one.counts.get("devices", 1) == 1}
        near = min(counts, key=lambda one: abs(math.log(one / count)), default=0)
        return (self.time_stated(part, device, near, part) if near else None), near

    def time_recorded(
        self, what: str, batch: int, threads: int, evidence_id: str, shape: Shape | None = None
    ) -> Estimate | None:
        """The estimate that this machine's records give, if any, with its evidence."""
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

    def most_recorded(self, what: str, batch: int) -> tuple[Estimate | None, int]:
        """(the recorded time with the most threads or processes, how many those are); (None, 0) without any."""
        most = max(self.table.threads(what), default=0) if self.table else 0
        return (self.table.time(what, batch, most) if self.table and most else None), most

    def measured(self, known: Estimate, table: PerformanceTable, what: str) -> Estimate:
        """A measured estimate with the description and the command of its evidence."""
        reused = f"; profiled with other {', '.join(table.differs)}" if table.differs else ""
        kind = ", carried on by a fit" if known.source == "extrapolated" else ""
        return known.resting_on(
            description=f"{what}{kind}: {known.rests_on.description}{reused}", command=self._profile, topic="profile"
        )

    @property
    def _profile(self) -> str:
        """The command that measures this workload's parts."""
        return benchmark(f"profile --workload {self.workload_word}")

    def modeled(
        self, law: Estimate, evidence_id: str, source: Source = "modeled", is_measurable: bool = True
    ) -> Estimate:
        """A law's estimate as evidence for a part, with the command that measures it instead, if one does."""
        command, topic = (self._profile, "profile") if is_measurable else ("", "")
        return law.resting_on(id=evidence_id, source=source, command=command, topic=topic)
