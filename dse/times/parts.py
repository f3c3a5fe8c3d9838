"""What each part of a training system takes on each device: measured where records tell it, else modeled.

Letters: B batch, N capacity, K fanout, u environment steps a gradient step, x cores or processes, T threads.
"""

import functools
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from impls.levels import level_sizes
from impls.training import Workload
from impls.training.sizes import layout_of, networks

from ..estimate import SUREST_FIRST, Estimate, weakest
from ..fpga import placement
from ..fpga.points import BOUNDED
from ..platforms import Device, Platform
from ..records import Source, benchmark
from . import analytic
from .analytic import clock_of, doubled
from .profile import PerformanceTable, Shape

COMMANDS = {
    "cpu": "on that machine: {profile}, then ask with --platform this",
    "gpu": "on that machine: python -m impls.training {workload} --device cuda; no profile times a GPU's parts yet",
    "fpga": "build such a design and time it, which nothing here does; to explore designs: python -m dse fpga --help",
}
"""How to measure what was modeled, by the kind of device."""


@dataclass(frozen=True)
class Learner:
    """An option for gradient steps on a device: the time of one, and the host's cores and the budgets it takes.

    ``details``: its threads, learners or pipelines.
    """

    name: str
    step: Estimate
    cores: int
    needs: Mapping[str, float]
    details: Mapping[str, Any]


@dataclass
class Parts:
    """Times of a workload's parts on a platform, each with its evidence.

    ``table``: records of this very machine; ``reference``: those of another one, for what no platform file says.
    ``constraints``: values by key of ``--fix``. ``called``: the workload's name or file, so that commands take it.
    """

    platform: Platform
    workload: Workload
    table: PerformanceTable | None
    reference: PerformanceTable | None
    constraints: Mapping[str, Any]
    called: str = ""
    _learners: dict[str, list[Learner]] = field(default_factory=dict, init=False)

    @property
    def cpu(self) -> Device:
        """The first processor, which actors run on."""
        return next(device for device in self.platform.devices if device.kind == "cpu")

    @property
    def cores(self) -> int:
        """How many cores that processor has."""
        return int(self.cpu.cores.value) if self.cpu.cores else 1

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
        return self.platform.transfer_seconds(self.cpu.name, device, 0.0)

    def allows(self, key: str, value: Any) -> bool:
        """Whether the constraints allow a value; those on threads are meant for a processor's options alone."""
        return self.constraints.get(key) in (None, value)

    # Actors

    def actor_step(self, processes: int) -> Estimate:
        """Seconds between two environment steps of each of x processes."""
        evidence_id = f"f_a({self.cpu.name})"
        if known := self._recorded("actor step", 1, processes, f"{evidence_id} x={processes}"):
            return known
        speedup, more = analytic.scaled(1.0, processes, analytic.ACTOR_CONTENTION)
        elsewhere = "; its factor between machines is an assumption"
        for table, factor in ((self.table, 1.0), (self.reference, analytic.ELSEWHERE_FACTOR)):
            alone = table.time("actor step", 1, 1) if table else None
            if alone and table:
                own = table is self.table
                slower = 1.0 if own else analytic.pace(self.cpu)
                needed = () if own else analytic.unstated(self.cpu, self.cpu)
                description = (
                    f"one process on machine {table.machine_key}, by clocks, and x by a law from Amdahl's to linear"
                    f"{'' if own else elsewhere}"
                )
                step = analytic.law(alone.value * slower / speedup, factor * more * alone.factor, description, needed)
                return self.modeled(step, evidence_id, "extrapolated")
        law = analytic.actor(self.cpu, processes)
        told = f"no profile of {self.workload.name} tells: {law.rests_on.told}"
        return self.modeled(law.resting_on(told=told), evidence_id)

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
        if device.kind == "fpga":
            yield from self._fpga_learners(device)
            return
        evidence_id = f"T_train({device.name})"
        if device.kind == "gpu":
            step = self.modeled(analytic.learner(self.cpu, device, self.workload, self.batch), evidence_id)
            yield Learner("framework", step, 1, {}, {})
            return
        for threads in self._thread_counts("learner step"):
            name = f"{threads} thread{'s' * (threads > 1)} of torch"
            known = self._recorded("learner step", self.batch, threads, f"{evidence_id}, {name}")
            if known is None:
                law = self._more_threads(threads)
                law = law or analytic.learner(self.cpu, device, self.workload, self.batch, threads)
                known = self.modeled(law, evidence_id)
            yield Learner(name, known, threads, {}, {"threads": threads})
        # Parallel learners are timed at one B; another B goes as a gradient step of one thread does.
        for count in self.table.threads("parallel_learners step") if self.table else ():
            name = f"{count} parallel learners"
            number = f"{evidence_id}, {name}"
            known = self._recorded("parallel_learners step", self.batch, count, number, self._one_thread)
            if known and 1 < count <= self.cores:
                yield Learner(name, known, count, {}, {"learners": count})

    def _recorded(
        self, what: str, batch: int, threads: int, evidence_id: str, shape: Shape | None = None
    ) -> Estimate | None:
        """The estimate that this machine's records give, if any, with its evidence."""
        known = self.table.time(what, batch, threads, evidence_id, shape) if self.table else None
        return self.measured(known, self.table, what) if known and self.table else None

    def _one_thread(self, batch: int) -> float:
        """A law in B, up to a factor: how the gradient step of one thread goes."""
        known = self.table.time("learner step", batch) if self.table else None
        return known.value if known else float(batch)

    def _more_threads(self, threads: int) -> Estimate | None:
        """A gradient step by more threads than were measured, from the most that were."""
        most = max(self.table.threads("learner step"), default=0) if self.table else 0
        known = self.table.time("learner step", self.batch, most) if self.table and most else None
        if known is None:
            return None
        before, sure = analytic.scaled(1.0, most, analytic.LEARNER_CONTENTION)
        speedup, less_sure = analytic.scaled(1.0, threads, analytic.LEARNER_CONTENTION)
        description = f"{threads} threads by a law from Amdahl's to linear, from {most} as measured"
        return analytic.law(known.value * before / speedup, known.factor * less_sure / sure, description)

    def _thread_counts(self, what: str) -> list[int]:
        """Numbers of threads that were measured, and powers of two beyond."""
        measured = self.table.threads(what) if self.table else []
        beyond = [count for count in doubled(self.cores) if count > max(measured, default=0)]
        return [*(count for count in measured if count <= self.cores), *beyond]

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
            yield Learner(name, self.modeled(step, f"T_train({device.name})"), 1, needs, details)

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
        local, evidence_id = self.workload.actors.local_storage, f"storage({device.name})"
        if device.kind == "cpu" and self.table:
            kinds = (("gather", self.batch, self.transition_bytes), ("write", local, self.written_bytes))
            gather, write = (
                self.table.time(f"storage {op}", size, shape=functools.partial(_rows_seconds, device, nbytes))
                for op, size, nbytes in kinds
            )
            if gather and write:
                both = gather.plus(write.value * self.inserts).resting_on(number=evidence_id)
                return self.measured(both, self.table, "storage gather")
        written = self.inserts * _rows_seconds(device, self.written_bytes, local)
        law = analytic.rows_moved(device, self.batch, self.batch * self.transition_bytes, written)
        return self.modeled(law, evidence_id)

    @property
    def storage_bytes(self) -> float:
        """Bytes of N records."""
        return float(self.workload.replay.capacity * layout_of(self.workload).record_bytes)

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


def _rows_seconds(device: Device, nbytes: float, count: int) -> float:
    return analytic.rows_moved(device, count, count * nbytes).value
