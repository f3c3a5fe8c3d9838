"""The options of every part in one place, which is a set of processes (``build.py`` says which places there are).

Where draw and update are on one device there is one tree, and its option of updating has the whole time. Where they
part, the updating device keeps the tree and sends the sums it changed, an index and a sum for each level of each
element, to the sampling device, which takes as long to store them as to draw: this is our model, nobody has built it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..estimate import Estimate
from ..platforms import Device
from ..solver.problem import PARTS, Option, Part
from ..times.parts import Learner, Parts
from ..times.trees import Tree
from .constraints import rules_of

NOTHING = 1e-12  # seconds of a part whose time another option has
PARTED_TREES = 3  # of a device, where drawing and updating part: the fastest
Trees = Callable[[Device, bool], list[Tree]]
OptionKey = tuple[Part, str, str, str]
ARRANGEMENT = {
    "serial": "one process does everything in turns, as impls.training does",
    "apart": "actors on cores of their own; one process draws, gathers, learns and updates in turns",
    "pipelined": "actors, replay and learner on cores or devices of their own, all at the same time",
}
RUNS_HERE = ("serial",)  # what impls.training can run; the others are put together from their parts' times


class Place(str):
    """A set of processes, as text: an arrangement, and with "pipelined" how many cores replay.

    >>> Place("pipelined 4").arrangement, Place("pipelined 4").replaying, Place("apart").in_turns
    ('pipelined', 4, True)
    """

    __slots__ = ()

    @property
    def arrangement(self) -> str:
        """One of ``ARRANGEMENT``."""
        return self.partition(" ")[0]

    @property
    def replaying(self) -> int:
        """Cores that only replay."""
        return int(self.partition(" ")[2] or 0)

    @property
    def in_turns(self) -> bool:
        """Whether one process has the whole loop."""
        return self.arrangement != "pipelined"


def key_of(option: Option) -> OptionKey:
    """What tells an option from the others."""
    return option.part, option.device, option.engine, option.name


@dataclass
class OptionBuilder:
    """Collects the options of one place; ``devices`` are those that may be used, ``trees`` what each can have.

    ``depths``: those that are to choose from. Every learner has room for the batches of the deepest.
    """

    parts: Parts
    place: Place
    devices: Sequence[Device]
    trees: Trees
    depths: tuple[int, ...]
    options: dict[Part, list[Option]] = field(default_factory=lambda: {part: [] for part in PARTS})
    shown: dict[OptionKey, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def cpu(self) -> str:
        """The processor's name."""
        return self.parts.cpu.name

    @property
    def process(self) -> str:
        """The engine that does everything in turns; nothing where parts run at the same time."""
        return {"serial": f"{self.cpu}.main", "apart": f"{self.cpu}.loop"}.get(self.place, "")

    @property
    def reachable(self) -> list[Device]:
        """A serial loop drives a GPU's learner, but its replay is the processor's."""
        return [device for device in self.devices if self.place != "serial" or device.name == self.cpu]

    def build(self) -> "OptionBuilder":
        """Itself, with all options."""
        self._actors()
        self._learners()
        self._replay()
        return self

    def add(
        self,
        part: Part,
        name: str,
        device: str,
        engine: str,
        time: Estimate,
        needs: Mapping[str, float],
        told: Mapping[str, Any],
    ) -> None:
        """An option, if it is not ruled out by what is asked for."""
        if part == "actors" or self.parts.fixed.get(part) in (None, device):
            if self.place.in_turns and (call := self.parts.call_seconds(device)):
                time = time.plus(call, 2.0)
            option = Option(part, name, device, engine, time, needs)
            self.options[part].append(option)
            self.shown[key_of(option)] = told

    def engine(self, device: Device, what: str) -> str:
        """What is busy while a part of the loop runs there."""
        if self.place.in_turns:
            return self.process
        if device.kind == "gpu":
            return device.name
        return f"{device.name}.{what}"

    def _actors(self) -> None:
        """One option for each number of processes."""
        parts, serial = self.parts, self.place == "serial"
        count = parts.workload.actors.count
        most = 1 if serial else max(1, min(count, parts.cores - 1 - self.place.replaying))
        for processes in range(1, most + 1):
            if parts.fixed.get("actors") in (None, processes):
                time = parts.acting(processes, serial)
                needs = {f"{self.cpu}.cores": float(0 if serial else processes + self.place.replaying)}
                name, engine = f"{processes} process{'es' * (processes > 1)}", "main" if serial else "actors"
                self.add("actors", name, self.cpu, f"{self.cpu}.{engine}", time, needs, {"processes": processes})

    def _learners(self) -> None:
        """Of every device; a serial loop drives no FPGA."""
        for device in self.devices:
            if device.kind == "fpga" and self.place == "serial":
                continue
            for learner in self.parts.learners(device):
                if device.kind != "cpu" or self.parts.grants("learner_threads", learner.told.get("threads")):
                    self._learner(device, learner)

    def _learner(self, device: Device, learner: Learner) -> None:
        over = self.parts.table.overheads if self.parts.table else None
        step = over.step(learner.step) if over and self.place.in_turns and device.kind == "cpu" else learner.step
        held = self.parts.learner_bytes(device, max(self.depths))
        needs = {**held, **learner.needs, f"{self.cpu}.cores": float(learner.cores)}
        self.add("learner", learner.name, device.name, self.engine(device, "learner"), step, needs, learner.told)

    def _replay(self) -> None:
        """Sampling, updating and storage."""
        own = self.place.in_turns or self.place.replaying > 0  # cores for what the processor does
        devices = [device for device in self.reachable if own or device.kind != "cpu"]
        found = {device.name: self.trees(device, self.place.in_turns) for device in devices}
        most = max(
            self.place.replaying, 1
        )  # in turns one, for the cores of that process are those its learner asks for
        fitting = {name: [tree for tree in held if tree.threads <= most] for name, held in found.items()}
        homes = [device for device in devices if fitting[device.name]]
        for device in homes:
            self._one_tree(device, fitting[device.name], homes)
            if len(homes) > 1 and not self.place.in_turns:
                self._two_trees(device, _fastest(fitting[device.name]), homes)
        for device in devices:
            if device.memory:
                needs = {f"{device.name}.memory_bytes": self.parts.storage_bytes}
                time, engine = self.parts.rows_moved(device), self.engine(device, "memory")
                engine = self.engine(device, "replay") if device.kind == "cpu" else engine
                self.add("storage", "records", device.name, engine, time, needs, {})

    def _driver(self, device: Device) -> dict[str, float]:
        """A core that hands batches to a device, where nothing else does it in turns."""
        return {} if self.place.in_turns or device.kind == "cpu" else {f"{self.cpu}.cores": 1.0}

    def _one_tree(self, device: Device, trees: Sequence[Tree], homes: Sequence[Device]) -> None:
        engine, first = self.engine(device, "replay"), trees[0].draw
        rules = rules_of(device, homes)
        nothing = replace(first, value=NOTHING, low=NOTHING, high=NOTHING)
        self.add("sampling", "with updating", device.name, engine, nothing, rules("joins"), {})
        for tree in trees:
            needs = {**tree.needs, **self._driver(device), **rules("keeps")}
            told = {**tree.told, "draw_seconds": tree.draw.value, "update_seconds": tree.update.value}
            self.add("updating", tree.name, device.name, engine, tree.draw + tree.update, needs, told)

    def _two_trees(self, device: Device, trees: Sequence[Tree], homes: Sequence[Device]) -> None:
        engine, rules = self.engine(device, "replay"), rules_of(device, homes)
        for tree in trees:
            needs = {**tree.needs, **self._driver(device)}
            twice = tree.draw + tree.draw
            mine, yours = {**needs, **rules("draws alone")}, {**needs, **rules("updates alone")}
            self.add("sampling", f"copy in {tree.name}", device.name, engine, twice, mine, tree.told)
            self.add("updating", f"sums of {tree.name}", device.name, engine, tree.update, yours, tree.told)


def _fastest(trees: Sequence[Tree]) -> list[Tree]:
    """Those as fast as the first few, whatever slices they are in."""
    times = dict.fromkeys((tree.draw.value, tree.update.value) for tree in trees)
    fastest = list(times)[:PARTED_TREES]
    return [tree for tree in trees if (tree.draw.value, tree.update.value) in fastest]
