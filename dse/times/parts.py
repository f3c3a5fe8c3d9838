"""What each part of a training system takes on each device: measured where records tell, else modeled; never silently.

Letters: B batch, N capacity, K fanout, u environment steps a gradient step, x cores or processes, T threads.
"""

import dataclasses
import functools
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from impls.fpga.resources import DoesNotFit
from impls.levels import level_sizes
from impls.training import Workload
from impls.training.sizes import layout_of, networks

from ..estimate import Estimate, Evidence
from ..fpga import placement
from ..fpga.points import BOUNDED
from ..platforms import Device, Platform
from ..records import Source, benchmark
from . import analytic
from .analytic import Law, clock_of, doubled
from .profile import PerformanceTable, Row

COMMANDS = {
    "cpu": "on that machine: {profile}, then ask with --platform this",
    "gpu": "on that machine: python -m impls.training {workload} --device cuda; no profile times a GPU's parts yet",
    "fpga": "build such a design and time it, which nothing here does; to explore designs: python -m dse fpga --help",
}
"""How to measure what was modeled, by the kind of device."""


@dataclass(frozen=True)
class Learner:
    """A way to take gradient steps."""

    name: str
    step: Estimate
    cores: int
    needs: Mapping[str, float]
    told: Mapping[str, Any]


@dataclass
class Parts:
    """Times of a workload's parts on a platform, each with its evidence.

    ``table``: records of this very machine; ``reference``: those of another one, for what no platform file tells.
    ``called``: how the one who asks names the workload, which may be a file, so that commands take it.
    """

    platform: Platform
    workload: Workload
    table: PerformanceTable | None
    reference: PerformanceTable | None
    fixed: Mapping[str, Any]
    called: str = ""
    _learners: dict[str, list[Learner]] = field(default_factory=dict)

    @property
    def cpu(self) -> Device:
        """The first processor, which actors run on."""
        return next(device for device in self.platform.devices if device.kind == "cpu")

    @property
    def cores(self) -> int:
        """Of it."""
        return int(self.cpu.cores.value) if self.cpu.cores else 1

    @property
    def workload_word(self) -> str:
        """The workload as a word of a command."""
        return shlex.quote(self.called or self.workload.name)

    @property
    def batch(self) -> int:
        """B"""
        return self.workload.learner.batch

    @property
    def transition_bytes(self) -> float:
        """Of what a learner needs of a record; stacked frames are gathered out of several records."""
        layout = layout_of(self.workload)
        return float(layout.record_bytes * (layout.frames + 1 if layout.frames > 1 else 1))

    @property
    def written_bytes(self) -> float:
        """Of a new record, which holds the newest frame alone, with its part of a local storage's fillers."""
        layout, local = layout_of(self.workload), self.workload.actors.local_storage
        return layout.record_bytes * (local + layout.fillers) / local

    @property
    def weights_bytes(self) -> float:
        """Of the networks that actors fetch."""
        acting = next(size for name, size in networks(self.workload).items() if name != "critic")
        return 4.0 * acting.parameters

    @property
    def inserts(self) -> float:
        """Insertions a gradient step, each of ``actors.local_storage`` records."""
        return self.workload.learner.update_interval / self.workload.actors.local_storage

    def call_seconds(self, device: str) -> float:
        """Of a processor that tells an FPGA to begin, and waits: a transfer of nothing. A GPU has its launches."""
        if self.platform.device(device).kind != "fpga":
            return 0.0
        return self.platform.transfer_seconds(self.cpu.name, device, 0.0)

    def grants(self, key: str, value: Any) -> bool:
        """Whether a value is the one that is fixed, if any is. Threads are fixed for a processor's options alone."""
        return self.fixed.get(key) in (None, value)

    # Actors

    def actor_step(self, processes: int) -> Estimate:
        """Seconds between two environment steps of any of x processes."""
        number = f"f_a({self.cpu.name})"
        if self.table and (known := self.table.time("actor step", 1, processes, f"{number} x={processes}")):
            return self.measured(known, self.table, "actor step")
        for table, factor in ((self.table, 1.0), (self.reference, analytic.ELSEWHERE_FACTOR)):
            one = table.time("actor step", 1, 1) if table else None
            if one and table:
                speedup, more = analytic.scaled(1.0, processes, analytic.ACTOR_CONTENTION)
                slower = 1.0 if table is self.table else analytic.pace(self.cpu)
                law = Law(one.value * slower / speedup, factor * more * one.factor, "")
                told = f"one process on machine {table.machine_key}, by clocks, and x by a law from Amdahl's to linear"
                return self.modeled(dataclasses.replace(law, told=told), number, "extrapolated")
        speedup, more = analytic.scaled(1.0, processes, analytic.ACTOR_CONTENTION)
        step = analytic.ACTOR_SECONDS * analytic.pace(self.cpu)
        told = f"{step * 1e3:.2g} ms with inference, for no profile of {self.workload.name} tells"
        return self.modeled(Law(step / speedup, analytic.ACTOR_FACTOR * more, told), number)

    def acting(self, processes: int, shares_weights: bool = False) -> Estimate:
        """Seconds that any of x processes spends on a gradient step, with the weights it fetches."""
        step = self.actor_step(processes).plus(self.fetches(shares_weights), 2.0)
        return step.scaled(self.workload.learner.update_interval)

    def fetches(self, shares_weights: bool) -> float:
        """Seconds of weights fetched, an environment step: each actor's own, every sync_interval of its steps."""
        actors = self.workload.actors
        if shares_weights and actors.sync_interval == 1:
            return 0.0  # one process, which acts by the learner's own
        spent = 0.0
        for op in ("publish", "fetch"):
            known = self.table.time(f"weights {op}", 1, via="shared") if self.table else None
            spent += known.value if known else analytic.fetch(self.weights_bytes).seconds / 2
        return spent / (actors.sync_interval * actors.count)

    # Learners

    def learners(self, device: Device) -> list[Learner]:
        """Every way to take gradient steps on a device; none where none fits it."""
        if device.name not in self._learners:
            self._learners[device.name] = list(self._steps(device))
        return self._learners[device.name]

    def _steps(self, device: Device) -> Iterator[Learner]:
        if device.kind == "fpga":
            yield from self._fpga_learners(device)
            return
        number = f"T_train({device.name})"
        if device.kind == "gpu":
            step = self.modeled(analytic.learner(self.cpu, device, self.workload, self.batch), number)
            yield Learner("framework", step, 1, {}, {})
            return
        for threads in self._thread_counts("learner step"):
            name = f"{threads} thread{'s' * (threads > 1)} of torch"
            known = self.table.time("learner step", self.batch, threads, f"{number}, {name}") if self.table else None
            if known and self.table:
                yield Learner(name, self.measured(known, self.table, "learner step"), threads, {}, {"threads": threads})
                continue
            law = self._beyond(threads) or analytic.learner(self.cpu, device, self.workload, self.batch, threads)
            yield Learner(name, self.modeled(law, number), threads, {}, {"threads": threads})
        if self.table:
            yield from self._parallel_learners(self.table, number)

    def _parallel_learners(self, table: PerformanceTable, number: str) -> Iterator[Learner]:
        """Timed at one B; at another by how the gradient step of one thread goes."""
        for count in table.threads("parallel_learners step"):
            name = f"{count} parallel learners"
            shape = functools.partial(self._one_thread, table)
            known = table.time("parallel_learners step", self.batch, count, f"{number}, {name}", shape)
            if known and 1 < count <= self.cores:
                step = self.measured(known, table, "parallel_learners step")
                yield Learner(name, step, count, {}, {"learners": count})

    def _one_thread(self, table: PerformanceTable, batch: int) -> float:
        known = table.time("learner step", batch)
        return known.value if known else float(batch)

    def _beyond(self, threads: int) -> Law | None:
        """Of more threads than were measured, from the most that were."""
        most = max(self.table.threads("learner step"), default=0) if self.table else 0
        known = self.table.time("learner step", self.batch, most) if self.table and most else None
        if known is None:
            return None
        before, sure = analytic.scaled(1.0, most, analytic.LEARNER_CONTENTION)
        speedup, less_sure = analytic.scaled(1.0, threads, analytic.LEARNER_CONTENTION)
        told = f"{threads} threads by a law from Amdahl's to linear, from {most} as measured"
        return Law(known.value * before / speedup, known.factor * less_sure / sure, told)

    def _thread_counts(self, what: str) -> list[int]:
        """Those that were measured, and powers of two beyond."""
        found = self.table.threads(what) if self.table else []
        more = [count for count in doubled(self.cores) if count > max(found, default=0)]
        return [*(count for count in found if count <= self.cores), *more]

    def rmms(self, device: Device) -> tuple[placement.Rmm, ...]:
        """Sum trees that a slice of an FPGA could hold, with K as fixed."""
        replay, fanout = self.workload.replay, self.fixed.get("fanout")
        return placement.rmms(placement.slices_of(device), replay.capacity, self.batch, clock_of(device), fanout)

    def _fpga_learners(self, device: Device) -> Iterator[Learner]:
        clock, slices = clock_of(device), placement.slices_of(device)
        network, factor = analytic.network_of(self.workload)
        try:
            found = placement.learners(slices, network, self.batch, clock, self.rmms(device))
        except (DoesNotFit, ValueError):
            return
        names: set[str] = set()
        for placed in found:
            design = placed.point.design
            told = (
                f"cycle law of seed 3, VI-A2, at {clock / 1e6:g} MHz (not simulated), times {factor:.2f} for the policy"
            )
            law = Law(placed.point.cycles * factor / clock, analytic.FPGA_LEARNER_FACTOR, told)
            step = self.modeled(law, f"T_train({device.name})")
            name = f"DP={design.pipelines}, {sum(design.units)} MAC units"
            name += f", placement {len(names)}" if name in names else ""
            names.add(name)
            needs = {
                f"{device.name}.{one.name}.{kind}": amount
                for one, taken in zip(slices, placed.taken, strict=True)
                for kind, amount in zip(BOUNDED, taken, strict=True)
            }
            yield Learner(name, step, 1, needs, {"pipelines": design.pipelines, "units": list(design.units)})

    def learner_bytes(self, device: Device, depth: int) -> dict[str, float]:
        """What a learner takes of memory, by budget: D + 1 batches, and what a gradient step holds.

        A device without a memory of its own has them in the processor's.
        """
        home = device if device.memory else self.cpu
        held = analytic.training_bytes(device, self.workload, self.batch)
        return {f"{home.name}.memory_bytes": (depth + 1) * self.batch * self.transition_bytes + held}

    @property
    def height(self) -> int:
        """Levels above the leaves, for the workload's own K."""
        return len(level_sizes(self.workload.replay.capacity, self.workload.replay.fanout)) - 1

    # Storage

    def rows_moved(self, device: Device) -> Estimate:
        """Seconds of a gradient step: B records gathered, u written."""
        local, number = self.workload.actors.local_storage, f"storage({device.name})"
        if device.kind == "cpu" and self.table:
            kinds = (("gather", self.batch, self.transition_bytes), ("write", local, self.written_bytes))
            gather, write = (
                self.table.time(f"storage {op}", size, shape=functools.partial(self._rows_seconds, device, nbytes))
                for op, size, nbytes in kinds
            )
            if gather and write:
                both = gather.plus(write.value * self.inserts).resting_on(number=number)
                return self.measured(both, self.table, "storage gather")
        law = analytic.rows_moved(device, self.batch, self.batch * self.transition_bytes)
        written = self.inserts * self._rows_seconds(device, self.written_bytes, local)
        law = dataclasses.replace(law, seconds=law.seconds + written)
        return self.modeled(law, number)

    def _rows_seconds(self, device: Device, nbytes: float, count: int) -> float:
        return analytic.rows_moved(device, count, count * nbytes).seconds

    @property
    def storage_bytes(self) -> float:
        """Of N records."""
        return float(self.workload.replay.capacity * layout_of(self.workload).record_bytes)

    # Evidence

    def measured(self, known: Estimate, table: PerformanceTable, what: str) -> Estimate:
        """The time with its evidence in words."""
        rows: list[Row] = [row for row in table.rows if row.what == what]
        where = rows[-1].told if rows else ""
        reused = f"; profiled with other {', '.join(table.differs)}" if table.differs else ""
        kind = ", carried on by a fit" if known.source == "extrapolated" else ""
        return known.resting_on(told=f"{what}{kind}: {where}{reused}", command=self._profile)

    @property
    def _profile(self) -> str:
        """The command that measures this workload's parts."""
        return benchmark(f"profile --workload {self.workload_word}")

    def modeled(self, law: Law, number: str, source: Source = "modeled") -> Estimate:
        """A law's time with its evidence in words."""
        kind = next((device.kind for device in self.platform.devices if f"({device.name})" in number), "cpu")
        command = COMMANDS[kind].format(workload=self.workload_word, profile=self._profile)
        return Estimate.within(law.seconds, law.factor, Evidence(number, source, law.told, command))
