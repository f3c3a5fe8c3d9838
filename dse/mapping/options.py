"""The options of every part in one execution mode, which is a set of processes (``build.py`` lists the modes).

A sum tree is one choice: one tree, which samples and updates on its device, or copies on two devices. Of copies, the
updating device keeps the tree and sends the sums it changed, an index and a sum for each level of each element, to the
sampling device, which takes as long to store them as to sample: this is our model, nobody has built it.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..platforms import Device
from ..solver.problem import PARTS, TREE, Option, Part
from ..times.parts import Learner, Parts
from ..times.trees import Tree

COPIES = 3  # of a device's trees that are copied to another: the fastest
REPLAYING = (0, 1, 2, 4, 8)  # cores
Trees = Callable[[Device, bool], list[Tree]]
OptionKey = tuple[Part, str, str, str]
ARRANGEMENT = {
    "serial": "one process does everything in turns, as impls.training does",
    "apart": "actors on cores of their own; one process samples, gathers, learns and updates in turns",
    "pipelined": "actors, replay and learner on cores or devices of their own, all at the same time",
}
RUNS_HERE = ("serial",)  # what impls.training can run; the others are put together from their parts' times


class Place(str):
    """An execution mode as text: an arrangement of processes, and with "pipelined" how many cores replay.

    >>> Place("pipelined 4").arrangement, Place("pipelined 4").replaying, Place("apart").in_turns
    ('pipelined', 4, True)
    """

    __slots__ = ()

    @property
    def arrangement(self) -> str:
        """The arrangement of processes, one of ``ARRANGEMENT``."""
        return self.partition(" ")[0]

    @property
    def replaying(self) -> int:
        """The number of cores that only replay."""
        return int(self.partition(" ")[2] or 0)

    @property
    def in_turns(self) -> bool:
        """Whether one process has the whole loop."""
        return self.arrangement != "pipelined"


def key_of(option: Option) -> OptionKey:
    """Identifies an option among those of all execution modes."""
    return option.part, option.device, option.engine, option.name


@dataclass
class OptionBuilder:
    """Collects the options of one execution mode; ``devices`` may be used, ``trees_on`` are the sum trees of each.

    ``depths``: those that are to choose from. Every learner has room for the batches of the deepest.
    """

    parts: Parts
    place: Place
    devices: Sequence[Device]
    trees_on: Trees
    depths: tuple[int, ...]
    options: dict[Part, list[Option]] = field(default_factory=lambda: {part: [] for part in PARTS if part not in TREE})
    trees: list[tuple[Option, Option]] = field(default_factory=list)
    shown: dict[OptionKey, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def cpu(self) -> str:
        """The name of the processor that actors run on."""
        return self.parts.cpu.name

    @property
    def process(self) -> str:
        """The engine that does everything in turns; "" where parts run at the same time."""
        return {"serial": f"{self.cpu}.main", "apart": f"{self.cpu}.loop"}.get(self.place, "")

    def build(self) -> "OptionBuilder":
        """Returns the builder itself, with all options."""
        self._actors()
        self._learners()
        self._replay()
        return self

    def add(self, option: Option, details: Mapping[str, Any]) -> None:
        """Adds an option of a part alone, if what is fixed allows it."""
        if self._allows(option.part, option.device):
            self.options[option.part].append(self._with_call(option, details))

    def _allows(self, part: Part, device: str) -> bool:
        return part == "actors" or self.parts.constraints.get(part) in (None, device)

    def _with_call(self, option: Option, details: Mapping[str, Any]) -> Option:
        """Keeps an option's details, and adds what calling its device takes where one process does everything."""
        self.shown[key_of(option)] = details
        call = self.parts.call_seconds(option.device) if self.place.in_turns else 0.0
        return replace(option, time=option.time.plus(call, 2.0)) if call else option

    def of(self, part: Part) -> list[Option]:
        """The options of a part, those of trees too."""
        return [pair[TREE.index(part)] for pair in self.trees] if part in TREE else self.options[part]

    def lacking(self) -> list[Part]:
        """Parts without an option; without any tree, the part of it whose device is fixed, or both."""
        tree = [part for part in TREE if part in self.parts.constraints] or list(TREE)
        return [part for part in PARTS if not self.of(part) and (part not in TREE or part in tree)]

    def engine(self, device: Device, what: str) -> str:
        """The engine that is busy while a part of the loop runs on a device."""
        if self.place.in_turns:
            return self.process
        if device.kind == "gpu":
            return device.name
        return f"{device.name}.{what}"

    def _actors(self) -> None:
        """Adds one option for each number of processes."""
        parts, serial = self.parts, self.place == "serial"
        count = parts.workload.actors.count
        most = 1 if serial else max(1, min(count, parts.cores - 1 - self.place.replaying))
        for processes in range(1, most + 1):
            if parts.constraints.get("actors") in (None, processes):
                time = parts.acting(processes, serial)
                needs = {f"{self.cpu}.cores": float(0 if serial else processes + self.place.replaying)}
                name, engine = f"{processes} process{'es' * (processes > 1)}", "main" if serial else "actors"
                option = Option("actors", name, self.cpu, f"{self.cpu}.{engine}", time, needs)
                self.add(option, {"processes": processes})

    def _learners(self) -> None:
        """Adds the learners of every device; a serial loop drives no FPGA."""
        for device in self.devices:
            if device.kind == "fpga" and self.place == "serial":
                continue
            for learner in self.parts.learners(device):
                if device.kind != "cpu" or self.parts.allows("learner_threads", learner.details.get("threads")):
                    self._learner(device, learner)

    def _learner(self, device: Device, learner: Learner) -> None:
        over = self.parts.table.overheads if self.parts.table else None
        step = over.step(learner.step) if over and self.place.in_turns and device.kind == "cpu" else learner.step
        kept = self.parts.learner_bytes(device, max(self.depths))
        needs = {**kept, **learner.needs, f"{self.cpu}.cores": float(learner.cores)}
        option = Option("learner", learner.name, device.name, self.engine(device, "learner"), step, needs)
        self.add(option, learner.details)

    def _replay(self) -> None:
        """Adds sum trees and storage. A serial loop drives a GPU's learner, but its replay is the processor's."""
        own = self.place.in_turns or self.place.replaying > 0  # cores for what the processor does
        reachable = [device for device in self.devices if self.place != "serial" or device.name == self.cpu]
        devices = [device for device in reachable if own or device.kind != "cpu"]
        most = max(self.place.replaying, 1)  # in turns one: the cores of that process are those its learner asks for
        fitting = {
            device.name: [tree for tree in self.trees_on(device, self.place.in_turns) if tree.threads <= most]
            for device in devices
        }
        for device in devices:
            for tree in fitting[device.name]:
                self._one_tree(device, tree)
        if not self.place.in_turns:
            for here, there in itertools.permutations(devices, 2):
                for tree, other in itertools.product(*(_fastest(fitting[device.name]) for device in (here, there))):
                    self._copies(here, tree, there, other)
        for device in devices:
            if device.memory:
                needs = {f"{device.name}.memory_bytes": self.parts.storage_bytes}
                engine = self.engine(device, "replay" if device.kind == "cpu" else "memory")
                time = self.parts.rows_moved(device)
                self.add(Option("storage", "records", device.name, engine, time, needs), {})

    def _driver(self, device: Device) -> dict[str, float]:
        """The need of a core that hands batches to a device, where no process does everything in turns."""
        return {} if self.place.in_turns or device.kind == "cpu" else {f"{self.cpu}.cores": 1.0}

    def _one_tree(self, device: Device, tree: Tree) -> None:
        if all(self._allows(part, device.name) for part in TREE):
            where = tree.name, device.name, self.engine(device, "replay")
            needs = {**tree.needs, **self._driver(device)}  # once: it is one tree
            sampling = self._with_call(Option("sampling", *where, tree.draw, needs), tree.details)
            self.trees.append((sampling, self._with_call(Option("updating", *where, tree.update), tree.details)))

    def _copies(self, here: Device, tree: Tree, there: Device, other: Tree) -> None:
        """Sampling from a copy here, updating there. The copy takes as long to store sums as to sample."""
        if self._allows("sampling", here.name) and self._allows("updating", there.name):
            copy = f"copy in {tree.name}", here.name, self.engine(here, "replay"), tree.draw + tree.draw
            sums = f"sums of {other.name}", there.name, self.engine(there, "replay"), other.update
            sampling = Option("sampling", *copy, {**tree.needs, **self._driver(here)})
            updating = Option("updating", *sums, {**other.needs, **self._driver(there)})
            self.trees.append((self._with_call(sampling, tree.details), self._with_call(updating, other.details)))


def _fastest(trees: Sequence[Tree]) -> list[Tree]:
    """The trees as fast as the first few, whatever slices they are in."""
    times = dict.fromkeys((tree.draw.value, tree.update.value) for tree in trees)
    fastest = list(times)[:COPIES]
    return [tree for tree in trees if (tree.draw.value, tree.update.value) in fastest]
