"""What each part of a training system takes on each device: measured where records tell it, else modeled.

Letters: B batch, N capacity, K fanout, u environment steps a gradient step, x cores or processes, T threads.
"""

import dataclasses
import functools
import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from impls.levels import level_sizes
from impls.training import Workload
from impls.training.sizes import layout_of, networks

from ..estimate import SUREST_FIRST, Estimate, Evidence, weakest
from ..fpga import placement
from ..fpga.points import BOUNDED
from ..platforms import Device, Platform
from ..records import Source, benchmark
from . import analytic
from .analytic import clock_of
from .own import TYPED, Own, counted, twins
from .own_file import Entry
from .profile import PerformanceTable, Shape, over_count

COMMANDS = {
    "cpu": f"on that machine: {{profile}}, then ask with --platform this; or {TYPED}",
    "gpu": f"on that machine: python -m impls.training {{workload}} --device cuda; then {TYPED}",
    "fpga": f"build such a design and time it, which nothing here does; then {TYPED}",
}
"""How to measure what was modeled, by the kind of device."""
NOT_RUN = "nothing here has run it"
SCALING = "the Universal Scalability Law, in more doubt the further from what was timed"


@dataclass(frozen=True)
class Learner:
    """An option for gradient steps on a device: the time of one, and the host's cores and the budgets it takes.

    ``details``: its threads, learners or pipelines. ``devices``: how many equal ones share a batch, each B / n of it.
    """

    name: str
    step: Estimate
    cores: int
    needs: Mapping[str, float]
    details: Mapping[str, Any]
    devices: int = 1


@dataclass
class Parts:
    """Times of a workload's parts on a platform, each with its evidence.

    ``table``: records of this very machine; ``reference``: those of another one, for what no platform file says.
    ``constraints``: values by key of ``--fix``. ``called``: the workload's name or file, so that commands take it.
    ``own``: a user's times, which are looked up first, for a device or one equal to it.
    """

    platform: Platform
    workload: Workload
    table: PerformanceTable | None
    reference: PerformanceTable | None
    constraints: Mapping[str, Any]
    called: str = ""
    own: Own | None = None
    _learners: dict[str, list[Learner]] = field(default_factory=dict, init=False)

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

    def alike(self, device: Device) -> tuple[str, ...]:
        """The names of a device and of all that are equal to it but for the name: the device first."""
        return twins(self.platform, device.name)

    def evidence_name(self, device: Device, *parts: str) -> str:
        """The device that evidence of parts on a device is named after: the first of all equal ones that states them.

        Equal devices rest on the same evidence, whose error they share.
        """
        known = {one.device for part in parts for one in self.stated(part, device)}
        names = [one.name for one in self.platform.devices if one.name in self.alike(device)]
        return next((name for name in names if name in known), names[0])

    def table_of(self, device: Device) -> PerformanceTable | None:
        """The records of a processor: those of the machine, of its first processor and of such as are equal to it."""
        return self.table if self.cpu.name in self.alike(device) else None

    def stated(self, part: str, device: Device) -> tuple[Entry, ...]:
        """A user's own times of a part alone on a device, or on the first one equal to it that has any."""
        return self.own.known(part, self.alike(device)) if self.own else ()

    def transfer_seconds(self, source: str, target: str, nbytes: float) -> float:
        """Seconds of n bytes between two devices, as the user states it or as the platform does; inf without a way."""
        usual = self.platform.way(source, target, nbytes)[0]
        hop = self.own.hop(source, target, self.batch_bytes, "") if self.own else None
        return usual if hop is None else hop.alpha_seconds + nbytes * hop.seconds_per_byte

    @property
    def workload_word(self) -> str:
        """The workload as a word of a command."""
        return shlex.quote(self.called or self.workload.name)

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
    def inserts(self) -> float:
        """Insertions a gradient step, each of ``actors.local_storage`` records."""
        return self.workload.learner.update_interval / self.workload.actors.local_storage

    def call_seconds(self, device: str) -> float:
        """What it takes a processor to start an FPGA, and wait: a transfer of nothing. A GPU has its launches."""
        if self.platform.device(device).kind != "fpga":
            return 0.0
        return self.transfer_seconds(self.cpu.name, device, 0.0)

    def allows(self, key: str, value: Any) -> bool:
        """Whether the constraints allow a value; those on threads are meant for a processor's options alone."""
        return self.constraints.get(key) in (None, value)

    # Actors

    def actor_step(self, processes: int) -> Estimate:
        """Seconds from one environment step to the next, of x processes together."""
        evidence_id = f"f_a({self.cpu.name})"
        number = f"{evidence_id} x={processes}"
        if known := self._stated("actors", self.cpu, processes, number) or self._recorded(
            "actor step", 1, processes, number
        ):
            return known
        for base, count in (self._most_stated("actors", self.cpu, processes), self._most_recorded("actor step", 1)):
            if base and count:
                return self.modeled(self._by_processes(base, count, processes), evidence_id, "extrapolated")
        alone = self.reference.time("actor step", 1, 1) if self.reference else None
        if alone and self.reference:
            slower, needed = analytic.pace(self.cpu), analytic.unstated(self.cpu, self.cpu)
            description = (
                f"machine {self.reference.machine_key}, by clocks; its factor between machines is an assumption"
            )
            there = Evidence(evidence_id, "extrapolated", description, assumed=needed)
            here = Estimate.within(alone.value * slower, alone.factor * analytic.ELSEWHERE_FACTOR, there)
            return self.modeled(self._by_processes(here, 1, processes), evidence_id, "extrapolated")
        law = analytic.actor(self.cpu, processes)
        told = f"no profile of {self.workload.name} tells: {law.rests_on.told}"
        return self.modeled(law.resting_on(told=told), evidence_id)

    def _by_processes(self, known: Estimate, before: int, processes: int) -> Estimate:
        """The time with x processes from that with another number of them, by the law of scaling."""
        (slow, sure), (fast, less_sure) = (
            analytic.scaled(1.0, count, analytic.ACTOR_CONTENTION) for count in (before, processes)
        )
        if before == processes:
            return known
        factor = known.factor * analytic.PROCESSES_FACTOR * max(less_sure / sure, sure / less_sure)
        description = f"{before} process{'es' * (before > 1)} on {known.rests_on.told}; {processes} by {SCALING}"
        return analytic.law(known.value * slow / fast, factor, description, known.rests_on.assumed)

    def acting(self, processes: int, shares_weights: bool = False) -> Estimate:
        """Seconds that each of x processes has for a gradient step: u environment steps, and weights fetched."""
        step, fetched = self.actor_step(processes), self.fetches(shares_weights)
        if fetched:
            seconds, factor = fetched.value, max(fetched.factor, 2.0)
            source = weakest((step.source, fetched.source))
            if source != step.source:
                told = f"{step.rests_on.told}; fetching weights was not timed: {fetched.rests_on.told}"
                step = step.resting_on(source=source, told=told)
            step = step.plus(seconds, factor)
        return step.scaled(self.workload.learner.update_interval)

    def fetches(self, shares_weights: bool) -> Estimate | None:
        """Seconds of fetching weights, an environment step: each actor does it every sync_interval of its steps.

        As weak as the weaker of publishing and fetching. None where one process acts by the learner's own weights.
        """
        actors = self.workload.actors
        if shares_weights and actors.sync_interval == 1:
            return None
        law = analytic.fetch(self.weights_bytes).scaled(1 / 2)  # half of what both take, for one that was not timed
        known = [
            (self.table.time(f"weights {op}", 1, via="shared") if self.table else None) or law
            for op in ("publish", "fetch")
        ]
        weaker = max(known, key=lambda one: SUREST_FIRST.index(one.source))
        both, often = known[0] + known[1], actors.sync_interval * actors.count
        return Estimate(both.value / often, both.low / often, both.high / often, weaker.rests_on)

    # Learners

    def learners(self, device: Device) -> list[Learner]:
        """Every option for gradient steps on a device; none where nothing fits it."""
        if device.name not in self._learners:
            self._learners[device.name] = list(self._steps(device))
        return self._learners[device.name]

    def _steps(self, device: Device) -> Iterator[Learner]:
        own = self.stated("learner", device)
        if any(one.counts.get("devices", 1) == 1 for one in own):
            yield from self._own_learners(device)
        elif device.kind == "fpga":
            yield from self._fpga_learners(device)
        elif device.kind == "gpu":
            step = analytic.learner(self.cpu, device, self.workload, self.batch)
            yield Learner("framework", self.modeled(step, self._trains(device)), 1, {}, {})
        else:
            yield from self._cpu_learners(device)
        for count in range(2, len(self.alike(device)) + 1) if device.kind != "cpu" else ():
            yield from self._sharing(device, count)

    def _trains(self, device: Device) -> str:
        """The evidence id of gradient steps on a device."""
        return f"T_train({self.evidence_name(device, 'learner')})"

    def _own_learners(self, device: Device) -> Iterator[Learner]:
        """Gradient steps as the user states them, on a processor by each number of threads."""
        number = self._trains(device)
        for threads in range(1, self.cores_of(device) + 1) if device.kind == "cpu" else (1,):
            name = _threads(threads) if device.kind == "cpu" else "as stated"
            details = {"threads": threads} if device.kind == "cpu" else {}
            step = self._stated("learner", device, threads, f"{number}, {name}" if details else number)
            yield Learner(name, step or self._by_threads(device, threads), threads, {}, details)

    def _cpu_learners(self, device: Device) -> Iterator[Learner]:
        """Every number of threads of torch, and parallel learners as far as they were timed."""
        number, table = self._trains(device), self.table_of(device)
        for threads in range(1, self.cores_of(device) + 1):
            name = _threads(threads)
            known = table and self._recorded("learner step", self.batch, threads, f"{number}, {name}")
            yield Learner(name, known or self._by_threads(device, threads), threads, {}, {"threads": threads})
        # Parallel learners are timed at one B; another B goes as a gradient step of one thread does.
        for count in table.threads("parallel_learners step") if table else ():
            name = f"{count} parallel learners"
            known = self._recorded("parallel_learners step", self.batch, count, f"{number}, {name}", self._one_thread)
            if known and 1 < count <= self.cores_of(device):
                yield Learner(name, known, count, {}, {"learners": count})

    def _by_threads(self, device: Device, threads: int) -> Estimate:
        """A gradient step by threads that nobody timed: by a law alone, or from the most threads that were timed."""
        number, table = self._trains(device), self.table_of(device)
        law = analytic.learner(self.cpu, device, self.workload, self.batch, threads)
        known, before = self._most_stated("learner", device, threads)
        if known is None and table:
            known, before = self._most_recorded("learner step", self.batch)
        if known is None or not before:
            return self.modeled(law, number)
        base = analytic.learner(self.cpu, device, self.workload, self.batch, before)
        factor = known.factor * analytic.THREADS_FACTOR * max(law.factor / base.factor, base.factor / law.factor)
        description = f"{threads} threads by {SCALING}, from {before} as {known.source}: {known.rests_on.told}"
        return self.modeled(analytic.law(known.value * law.value / base.value, factor, description), number)

    def _sharing(self, device: Device, count: int) -> Iterator[Learner]:
        """Gradient steps that n equal devices share, each B / n of the batch; none where no link joins them."""
        number, details = self._trains(device), {"devices": count}
        entries = [one for one in self.stated("learner", device) if one.counts.get("devices", 1) == count]
        own = self.own and self.own.time(entries, f"{number}, {count} devices", self.batch)
        if own:
            yield Learner(f"{count} devices, as stated", own, count, {}, details, count)
            return
        share = math.ceil(self.batch / count)
        exchange = self._exchange_seconds(device, count)
        if math.isinf(exchange) or count > self.batch:
            return
        if any(one.counts.get("devices", 1) == 1 for one in self.stated("learner", device)):
            alone = next(iter(self._own_learners(device))).step
            step = self._stated("learner", device, 1, number, share) or alone
        elif device.kind == "gpu":
            step = analytic.learner(self.cpu, device, self.workload, share)
        else:
            return
        factor = max(step.factor, analytic.GPU_FACTOR)
        description = (
            f"{count} equal devices, each a batch of {share:,} ({step.rests_on.told}), and gradients exchanged in "
            f"{exchange * 1e6:.3g} us; {NOT_RUN}"
        )
        law = analytic.law(step.value + exchange, factor, description, step.rests_on.assumed)
        yield Learner(f"{count} devices", self.modeled(law, number), count, {}, details, count)

    def _exchange_seconds(self, device: Device, count: int) -> float:
        """Seconds in which n equal devices add up their gradients: around a ring where links join them, else by the host.

        2 (n - 1) pieces of 1 / n pass each link of the ring [Patarasuk2009]; through the host all go there and back.
        """
        nbytes = analytic.FLOAT_BYTES * sum(size.parameters for size in networks(self.workload).values())
        first, *others = self.alike(device)[:count]
        pairs = list(zip((first, *others), (*others, first), strict=True))
        if all(self._are_joined(*pair) for pair in pairs):
            return 2 * (count - 1) * max(self.transfer_seconds(*pair, nbytes / count) for pair in pairs)
        host = self.cpu.name
        there = max(self.transfer_seconds(name, host, nbytes) for name in (first, *others))
        return there + max(self.transfer_seconds(host, name, nbytes) for name in (first, *others))

    def _are_joined(self, one: str, other: str) -> bool:
        """Whether a link leads from a device to another without a device between."""
        stated = self.own and self.own.hop(one, other, self.batch_bytes, "")
        return bool(stated) or any({link.source, link.target} == {one, other} for link in self.platform.links)

    def _stated(self, part: str, device: Device, count: int, number: str, batch: int | None = None) -> Estimate | None:
        """The time of a part that the user states, or that lies between what is stated."""
        entries = [one for one in self.stated(part, device) if one.counts.get("devices", 1) == 1]
        return self.own.time(entries, number, batch or self.batch, count) if self.own else None

    def _most_stated(self, part: str, device: Device, count: int) -> tuple[Estimate | None, int]:
        """(the stated time with the nearest number of threads or processes, that number); (None, 0) without any."""
        counts = {counted(one) for one in self.stated(part, device) if one.counts.get("devices", 1) == 1}
        near = min(counts, key=lambda one: abs(math.log(one / count)), default=0)
        return (self._stated(part, device, near, part) if near else None), near

    def _most_recorded(self, what: str, batch: int) -> tuple[Estimate | None, int]:
        """(the recorded time with the most threads or processes, how many those are); (None, 0) without any."""
        most = max(self.table.threads(what), default=0) if self.table else 0
        return (self.table.time(what, batch, most) if self.table and most else None), most

    def _recorded(
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

    def _one_thread(self, batch: int) -> float:
        """A law in B, up to a factor: how the gradient step of one thread goes."""
        known = self.table.time("learner step", batch) if self.table else None
        return known.value if known else float(batch)

    def rmms(self, device: Device) -> tuple[placement.Rmm, ...]:
        """Sum trees that a slice of an FPGA could hold, of the K that the constraints allow."""
        replay, fanout = self.workload.replay, self.constraints.get("fanout")
        return placement.rmms(placement.slices_of(device), replay.capacity, self.batch, clock_of(device), fanout)

    def _fpga_learners(self, device: Device) -> Iterator[Learner]:
        slices, names = placement.slices_of(device), set[str]()
        network, factor = analytic.network_of(self.workload)
        try:
            designs = placement.learners(slices, network, self.batch, clock_of(device), self.rmms(device))
        except ValueError:
            return
        for placed in designs:
            design, step = placed.point.design, analytic.fpga_learner(device, placed, factor, self.workload)
            name = f"DP={design.pipelines}, {sum(design.units)} MAC units"
            name += f", placement {len(names)}" if name in names else ""
            names.add(name)
            needs = {
                f"{device.name}.{part.name}.{kind}": amount
                for part, taken in zip(slices, placed.taken, strict=True)
                for kind, amount in zip(BOUNDED, taken, strict=True)
            }
            details = {"pipelines": design.pipelines, "units": list(design.units)}
            yield Learner(name, self.modeled(step, self._trains(device)), 1, needs, details)

    def learner_bytes(self, device: Device, depth: int) -> dict[str, float]:
        """What a learner takes of memory, by budget: D + 1 batches, and what a gradient step keeps there.

        A device without a memory of its own has them in the processor's.
        """
        home = device if device.memory else self.cpu
        kept = analytic.training_bytes(device, self.workload, self.batch)
        return {f"{home.name}.memory_bytes": (depth + 1) * self.batch * self.transition_bytes + kept}

    @property
    def height(self) -> int:
        """Levels above the leaves, for the workload's own K."""
        return len(level_sizes(self.workload.replay.capacity, self.workload.replay.fanout)) - 1

    # Storage

    def rows_moved(self, device: Device) -> Estimate:
        """Seconds of a gradient step: B records gathered, u written."""
        local = self.workload.actors.local_storage
        evidence_id = f"storage({self.evidence_name(device, 'storage')})"
        if known := self._stated("storage", device, 1, evidence_id):
            return known
        table = self.table_of(device)
        if device.kind == "cpu" and table:
            kinds = (("gather", self.batch, self.transition_bytes), ("write", local, self.written_bytes))
            gather, write = (
                table.time(f"storage {op}", size, shape=functools.partial(_rows_seconds, device, nbytes))
                for op, size, nbytes in kinds
            )
            if gather and write:
                both = gather.plus(write.value * self.inserts).resting_on(number=evidence_id)
                return self.measured(both, table, "storage gather")
        written = self.inserts * _rows_seconds(device, self.written_bytes, local)
        law = analytic.rows_moved(device, self.batch, self.batch * self.transition_bytes, written)
        return self.modeled(law, evidence_id)

    @property
    def storage_bytes(self) -> float:
        """Bytes of N records."""
        return float(self.workload.replay.capacity * layout_of(self.workload).record_bytes)

    # Beside each other

    def slowdowns(self) -> dict[tuple[str, str, str], float]:
        """How many times as long a part takes beside another on a device, by (part, other, device): stated or recorded."""
        pairs = (("actors", "learner", "actor step", "learner"), ("learner", "actors", "learner step", "actor"))
        known = {
            (part, other, self.cpu.name): factor
            for part, other, what, beside in pairs
            if self.table and (factor := self.table.slowdown(what, beside)) is not None
        }
        return {**known, **(self.own.slowdowns(self._alone) if self.own else {})}

    def _alone(self, one: Entry) -> Estimate | None:
        """The time of a part that is stated beside another, with nothing beside it; None for a tree not stated alone."""
        devices = [device for device in self.platform.devices if device.name == one.device]
        if not devices:
            return None
        device, count = devices[0], counted(one)
        batch = one.counts.get("batch", self.own.batch if self.own else self.batch)
        if known := self._stated(one.part, device, count, one.part, batch):
            return known
        if one.part == "actors":
            return self.actor_step(count)
        if one.part == "storage":
            return self.rows_moved(device)
        if one.part == "learner":
            steps = (each.step for each in self.learners(device) if each.details.get("threads", 1) == count)
            return next(steps, None)
        return None

    # Evidence

    def measured(self, known: Estimate, table: PerformanceTable, what: str) -> Estimate:
        """A measured estimate with the description and the command of its evidence."""
        reused = f"; profiled with other {', '.join(table.differs)}" if table.differs else ""
        kind = ", carried on by a fit" if known.source == "extrapolated" else ""
        return known.resting_on(told=f"{what}{kind}: {known.rests_on.told}{reused}", command=self._profile)

    @property
    def _profile(self) -> str:
        """The command that measures this workload's parts."""
        return benchmark(f"profile --workload {self.workload_word}")

    def modeled(self, law: Estimate, evidence_id: str, source: Source = "modeled") -> Estimate:
        """A law's estimate as evidence for a part, with the command that measures it instead."""
        kind = next((device.kind for device in self.platform.devices if f"({device.name})" in evidence_id), "cpu")
        command = COMMANDS[kind].format(workload=self.workload_word, profile=self._profile)
        return law.resting_on(number=evidence_id, source=source, command=command)


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)} of torch"


def _rows_seconds(device: Device, nbytes: float, count: int) -> float:
    return analytic.rows_moved(device, count, count * nbytes).value
