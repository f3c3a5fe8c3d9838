"""What each part of a training system takes on each device: measured where records tell, else modeled; never silently.

Letters: B batch, N capacity, K fanout, u environment steps a gradient step, x cores or processes, T threads.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from impls.fpga.points import BOUNDED
from impls.fpga.resources import DoesNotFit
from impls.sumtree.levels import level_sizes
from impls.training import Workload
from impls.training.sizes import layout_of, networks

from ..models import tree_bytes
from ..platforms import Device, Platform
from ..records import Source
from ..tables import Configuration, Question
from . import modeled
from .modeled import Law
from .primitives import PerformanceTable, Row, factor_of, timed
from .problem import Timed

FANOUTS = (2, 4, 8, 16, 32, 64)  # of trees that are modeled
PARTED_TREES = 3  # of a processor's, where sampling and updating part: the fastest of them
MOST_THREADS = 8  # of a tree

COMMANDS = {
    "cpu": "on that machine: python -m benchmarks profile --workload {workload}, then ask with --platform this",
    "gpu": "on that machine: python -m impls.training {workload} --device cuda; no profile times a GPU's parts yet",
    "fpga": "build the design of python -m dse fpga and time it; nothing here drives a board",
}
"""How to measure what was modeled, by the kind of device."""


@dataclass(frozen=True)
class Evidence:
    """What a number rests on: in words, and how to measure it (again)."""

    number: str
    source: Source
    told: str
    command: str


@dataclass(frozen=True)
class Tree:
    """A sum tree on a device: seconds of a gradient step's draw, and of its update with the insertions."""

    name: str
    draw: Timed
    update: Timed
    threads: int
    needs: Mapping[str, float]
    told: Mapping[str, Any]


@dataclass(frozen=True)
class Learner:
    """A way to take gradient steps."""

    name: str
    step: Timed
    cores: int
    needs: Mapping[str, float]
    told: Mapping[str, Any]


@dataclass
class Parts:
    """Times of a workload's parts on a platform, and the evidence for each number that was used.

    ``table``: records of this very machine; ``reference``: those of another one, for what no platform file tells.
    """

    platform: Platform
    workload: Workload
    table: PerformanceTable | None
    reference: PerformanceTable | None
    fixed: Mapping[str, Any]
    evidence: dict[str, Evidence] = field(default_factory=dict)
    _trees: dict[tuple[str, bool], list[Tree]] = field(default_factory=dict)
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
    def batch(self) -> int:
        """B"""
        return self.workload.learner.batch

    @property
    def transition_bytes(self) -> float:
        """Of what a learner needs of a record; stacked frames are gathered out of several records."""
        layout = layout_of(self.workload)
        return float(layout.record_bytes * (layout.frames + 1 if layout.frames > 1 else 1))

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

    # Actors

    def actor_step(self, processes: int) -> Timed:
        """Seconds between two environment steps of any of x processes."""
        number = f"f_a({self.cpu.name})"
        if self.table and (known := self.table.time("actor step", 1, processes, f"{number} x={processes}")):
            return self._measured(known, self.table, "actor step")
        for table, factor in ((self.table, 1.0), (self.reference, modeled.ELSEWHERE_FACTOR)):
            one = table.time("actor step", 1, 1) if table else None
            if one and table:
                speedup, more = modeled.scaled(1.0, processes, modeled.ACTOR_CONTENTION)
                slower = 1.0 if table is self.table else modeled.pace(self.cpu)
                law = Law(one.seconds * slower / speedup, factor * more * factor_of(one), "")
                told = f"one process on machine {table.machine_key}, by clocks, and x by a law from Amdahl's to linear"
                return self._modeled(dataclasses.replace(law, told=told), number, "extrapolated")
        speedup, more = modeled.scaled(1.0, processes, modeled.ACTOR_CONTENTION)
        step = modeled.ACTOR_SECONDS * modeled.pace(self.cpu)
        told = f"{step * 1e3:.2g} ms with inference, for no profile of {self.workload.name} tells"
        return self._modeled(Law(step / speedup, modeled.ACTOR_FACTOR * more, told), number)

    def fetches(self, shares_weights: bool) -> float:
        """Seconds of weights fetched, an environment step: each actor's own, every sync_interval of its steps."""
        actors = self.workload.actors
        if shares_weights and actors.sync_interval == 1:
            return 0.0  # one process, which acts by the learner's own
        spent = 0.0
        for op in ("publish", "fetch"):
            known = self.table.time(f"weights {op}", 1, via="shared") if self.table else None
            spent += known.seconds if known else modeled.fetch(self.weights_bytes).seconds / 2
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
            step = self._modeled(modeled.learner(self.cpu, device, self.workload, self.batch), number)
            weights = 16.0 * sum(size.parameters for size in networks(self.workload).values())
            yield Learner("framework", step, 1, {f"{device.name}.memory_bytes": weights}, {})
            return
        for threads in self._thread_counts("learner step"):
            name = f"{threads} thread{'s' * (threads > 1)} of torch"
            known = self.table.time("learner step", self.batch, threads, f"{number}, {name}") if self.table else None
            if known and self.table:
                yield Learner(
                    name, self._measured(known, self.table, "learner step"), threads, {}, {"threads": threads}
                )
                continue
            step = self._modeled(modeled.learner(self.cpu, device, self.workload, self.batch, threads), number)
            yield Learner(name, step, threads, {}, {"threads": threads})
        if self.table:
            yield from self._parallel_learners(self.table, number)

    def _parallel_learners(self, table: PerformanceTable, number: str) -> Iterator[Learner]:
        """Timed at one B; at another by how the gradient step of one thread goes."""
        for count in table.threads("parallel_learners step"):
            name = f"{count} parallel learners"
            shape = functools.partial(self._one_thread, table)
            known = table.time("parallel_learners step", self.batch, count, f"{number}, {name}", shape)
            if known and 1 < count <= self.cores:
                step = self._measured(known, table, "parallel_learners step")
                yield Learner(name, step, count, {}, {"learners": count})

    def _one_thread(self, table: PerformanceTable, batch: int) -> float:
        known = table.time("learner step", batch)
        return known.seconds if known else float(batch)

    def _thread_counts(self, what: str) -> list[int]:
        if self.table and (found := self.table.threads(what)):
            return [count for count in found if count <= self.cores]
        return _doubled(self.cores)

    def _fpga_learners(self, device: Device) -> Iterator[Learner]:
        clock = device.clock_hz.value if device.clock_hz else 0.0
        network, factor = modeled.network_of(self.workload)
        try:
            points = modeled.learners(modeled.slices_of(device), network, self.batch, clock)
        except (DoesNotFit, ValueError):
            return
        for point in points:
            design = point.design
            told = (
                f"cycle law of seed 3, VI-A2, at {clock / 1e6:g} MHz (not simulated), times {factor:.2f} for the policy"
            )
            law = Law(point.cycles * factor / clock, modeled.FPGA_LEARNER_FACTOR, told)
            step = self._modeled(law, f"T_train({device.name})")
            name = f"DP={design.pipelines}, {sum(design.units)} MAC units"
            needs = {f"{device.name}.{kind}": float(getattr(point.needed, kind)) for kind in BOUNDED}
            yield Learner(name, step, 1, needs, {"pipelines": design.pipelines, "units": list(design.units)})

    # Trees

    def trees(self, device: Device, cold: bool) -> list[Tree]:
        """Every tree on a device, fastest first. ``cold``: gradient steps in between drive it out of the cache."""
        if (device.name, cold) not in self._trees:
            made = {"cpu": self._cpu_trees, "gpu": self._gpu_trees, "fpga": self._fpga_trees}[device.kind](device, cold)
            kept = [
                tree for tree in made if all(tree.told.get(key, value) == value for key, value in self._tree_wishes)
            ]
            kept.sort(key=lambda tree: (tree.draw.seconds + tree.update.seconds, tree.name))
            self._trees[device.name, cold] = kept
        return self._trees[device.name, cold]

    @property
    def _tree_wishes(self) -> list[tuple[str, Any]]:
        return [(key, self.fixed[key]) for key in ("fanout", "contestant", "threads") if key in self.fixed]

    def _cpu_trees(self, device: Device, cold: bool) -> Iterator[Tree]:
        replay, memory = self.workload.replay, f"{device.name}.memory_bytes"
        if not (self.table and self.table.trees):
            for fanout in self._fanouts():
                for threads in _doubled(min(self.cores, MOST_THREADS)):
                    laws = modeled.tree(self.platform, device, replay.capacity, fanout, self.batch, threads)
                    insert = self._insert_law(device, fanout)
                    number = f"tree({device.name})"
                    draw = self._modeled(laws[0], number)
                    update = self._modeled(dataclasses.replace(laws[1], seconds=laws[1].seconds + insert), number)
                    told = {"contestant": "numba", "fanout": fanout, "threads": threads}
                    needs = {memory: float(tree_bytes("numba", replay.capacity, fanout, "float32", {}))}
                    yield Tree(_tree_name(Configuration("numba", fanout, threads)), draw, update, threads, needs, told)
            return
        question = Question(replay.capacity, self.batch, 1.0, self.cores)
        known = set(self.table.trees.configurations(question))
        known |= {Configuration("numba", replay.fanout, 1)}
        timed = [one for one in sorted(known, key=repr) if one.threads <= self.cores]
        found = [tree for one in timed if (tree := self._measured_tree(one, self.table, cold))]
        inside = [tree for tree in found if tree.update.source == "measured"]
        for tree in inside or found:  # what was measured around the question decides; a fit only where nothing was
            yield dataclasses.replace(tree, needs={memory: 16.0 * replay.capacity})

    def _fanouts(self) -> tuple[int, ...]:
        return tuple(sorted({*FANOUTS, self.workload.replay.fanout, int(self.fixed.get("fanout", 2))}))

    def _insert_law(self, device: Device, fanout: int) -> float:
        actors = self.workload.actors
        law = modeled.tree(self.platform, device, self.workload.replay.capacity, fanout, actors.local_storage)[1]
        return law.seconds * self.inserts

    def _measured_tree(self, configuration: Configuration, table: PerformanceTable, cold: bool) -> Tree | None:
        replay, local = self.workload.replay, self.workload.actors.local_storage
        name = _tree_name(configuration)
        number = f"tree({self.cpu.name}, {name})"
        draw = table.tree(configuration, "draw", replay.capacity, self.batch, number)
        update = table.tree(configuration, "update", replay.capacity, self.batch, number)
        insert = table.tree(configuration, "update", replay.capacity, local, number)
        if not (draw and update):
            return None
        more = insert.seconds * self.inserts if insert else update.seconds * self.inserts
        told = "records of this machine"
        if cold and (over := table.overheads):
            chill = over.cold_seconds * self.batch / 2
            told += f", plus {over.cold_seconds * 1e9:.0f} ns an element for a cold cache ({over.told})"
            spread = chill * (over.cold_factor - 1)
            more += over.insert_seconds * self.inserts
            draw = dataclasses.replace(
                draw,
                seconds=draw.seconds + chill,
                low=draw.low + chill - min(spread, chill / 2),
                high=draw.high + chill + spread,
            )
            more += chill
        update = dataclasses.replace(
            update, seconds=update.seconds + more, low=update.low + more / 2, high=update.high + 1.5 * more
        )
        worst: Source = "extrapolated" if "extrapolated" in (draw.source, update.source) else "measured"
        draw, update = dataclasses.replace(draw, source=worst), dataclasses.replace(update, source=worst)
        self._tell(number, worst, told, "python -m benchmarks sweep --preset quick")
        options = {"contestant": configuration.contestant, "fanout": configuration.fanout}
        return Tree(name, draw, update, configuration.threads, {}, options | {"threads": configuration.threads})

    def _gpu_trees(self, device: Device, cold: bool) -> Iterator[Tree]:
        replay = self.workload.replay
        for fanout in self._fanouts():
            draw, update = modeled.tree(self.platform, device, replay.capacity, fanout, self.batch)
            number = f"tree({device.name})"
            inserting = dataclasses.replace(update, seconds=update.seconds * (1 + self.inserts))
            needs = {f"{device.name}.memory_bytes": float(tree_bytes("cupy", replay.capacity, fanout, "float32", {}))}
            told = {"contestant": "cupy", "fanout": fanout}
            yield Tree(
                f"cupy K={fanout}", self._modeled(draw, number), self._modeled(inserting, number), 1, needs, told
            )

    def _fpga_trees(self, device: Device, cold: bool) -> Iterator[Tree]:
        clock = device.clock_hz.value if device.clock_hz else 0.0
        replay, fanout = self.workload.replay, self.fixed.get("fanout")
        number = f"RMM({device.name})"
        told = f"cycles that equal simulated hardware, at {clock / 1e6:g} MHz; insertions by banks evenly filled"
        for rmm in modeled.rmms(modeled.slices_of(device), replay.capacity, self.batch, clock, fanout):
            spent = rmm.update_cycles + rmm.insert_cycles(self.workload.actors.local_storage) * self.inserts
            draw = self._modeled(Law(rmm.draw_cycles / clock, modeled.FPGA_RMM_FACTOR, told), number)
            update = self._modeled(Law(spent / clock, modeled.FPGA_RMM_FACTOR, told), number)
            needs = {f"{device.name}.{kind}": float(getattr(rmm.point.needed, kind)) for kind in BOUNDED}
            design = rmm.point.design.design
            shape = {"contestant": "fpga", "fanout": design.fanout, "micro": design.micro, "banks": design.banks}
            yield Tree(rmm.name, draw, update, 1, needs, shape)

    @property
    def height(self) -> int:
        """Levels above the leaves, for the workload's own K."""
        return len(level_sizes(self.workload.replay.capacity, self.workload.replay.fanout)) - 1

    # Storage

    def rows_moved(self, device: Device) -> Timed:
        """Seconds of a gradient step: B records gathered, u written."""
        local, number = self.workload.actors.local_storage, f"storage({device.name})"
        if device.kind == "cpu" and self.table:
            shape = functools.partial(self._rows_seconds, device)
            gather, write = (
                self.table.time(f"storage {op}", size, shape=shape)
                for op, size in (("gather", self.batch), ("write", local))
            )
            if gather and write:
                more = write.seconds * self.inserts
                known = Timed(gather.seconds + more, gather.low + more, gather.high + more, gather.source, number)
                return self._measured(known, self.table, "storage gather")
        law = modeled.rows_moved(device, self.batch, self.batch * self.transition_bytes)
        written = self.inserts * self._rows_seconds(device, local)
        law = dataclasses.replace(law, seconds=law.seconds + written)
        return self._modeled(law, number)

    def _rows_seconds(self, device: Device, count: int) -> float:
        return modeled.rows_moved(device, count, count * self.transition_bytes).seconds

    @property
    def storage_bytes(self) -> float:
        """Of N records."""
        return float(self.workload.replay.capacity * layout_of(self.workload).record_bytes)

    # Evidence

    def _measured(self, known: Timed, table: PerformanceTable, what: str) -> Timed:
        rows: list[Row] = [row for row in table.rows if row.what == what]
        where = rows[-1].told if rows else ""
        reused = f"; profiled with other {', '.join(table.differs)}" if table.differs else ""
        kind = "" if known.source == "measured" else ", carried on by a fit"
        command = f"python -m benchmarks profile --workload {self.workload.name}"
        self._tell(known.number, known.source, f"{what}{kind}: {where}{reused}", command)
        return known

    def _modeled(self, law: Law, number: str, source: Source = "modeled") -> Timed:
        told = f"{law.told}; right within a factor of {law.factor:.3g}"
        kind = next((device.kind for device in self.platform.devices if f"({device.name})" in number), "cpu")
        self._tell(number, source, told, COMMANDS[kind].format(workload=self.workload.name))
        return timed(law.seconds, law.factor, source, number)

    def _tell(self, number: str, source: Source, told: str, command: str) -> None:
        self.evidence.setdefault(number, Evidence(number, source, told, command))


def _doubled(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]


def _tree_name(configuration: Configuration) -> str:
    return str(configuration).replace(" (", " ").removesuffix(")")
