"""The options of every part in one execution mode, which is a set of processes (``build.py`` lists the modes).

A sum tree is one choice: one tree, which samples and updates on its device, or copies on two devices. Of copies, the
updating device keeps the tree and sends the sums it changed, an index and a sum for each level of each element, to the
sampling device, which takes as long to store them as to sample: this is our model, nobody has built it.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from impls.terminal import plural

from ..estimate import Estimate
from ..platforms import Device, Link
from ..solver.problem import PARTS, TREE, Option, Part, moved
from ..times import layers
from ..times.door import Times
from ..times.laws import budgets, training_bytes
from ..times.learners import Learner
from ..times.trees import Tree, trees
from ..times.whole import REFERENCE
from .processes import ExecutionMode, RunTimes, can_run, is_here

TRANSFERS = (0.0, 1e9)  # bytes; routes that take as long for both are equal
Choice = TypeVar("Choice", Learner, Tree)


@dataclass(eq=False)
class EqualDevices:
    """The devices that may be used, their models, and what the parts take on each."""

    parts: Times
    devices: Sequence[Device]

    @functools.cached_property
    def _trees(self) -> Callable[[Device], list[Tree]]:
        return functools.cache(functools.partial(trees, self.parts))

    @functools.cached_property
    def _first(self) -> dict[str, Device]:
        """The first device of each one's model, by name."""
        firsts: dict[Any, Device] = {}
        return {device.name: firsts.setdefault(self._model(device), device) for device in self.devices}

    def first(self, device: Device) -> Device:
        """The first device of a device's model, which may be itself."""
        return self._first[device.name]

    @functools.cached_property
    def classes(self) -> list[list[Device]]:
        """Devices of a model that may be exchanged: no part is fixed to one of them, and all are linked alike."""
        fixed, alike = set(map(str, self.parts.constraints.values())), dict[Any, list[Device]]()
        for device in self.devices:
            own = device.name if device.name in fixed else ""
            alike.setdefault((self.first(device).name, own), []).append(device)
        return [
            each for found in alike.values() for each in ([found] if self._linked(found) else map(list, zip(found)))
        ]

    def _linked(self, devices: Sequence[Device]) -> bool:
        """Whether transfers take as long whichever of these devices they are from or to."""
        names = [device.name for device in devices]
        pairs = [list(itertools.permutations(names, 2))]
        for other in {device.name for device in self.devices} - {*names}:
            pairs += [[(name, other) for name in names], [(other, name) for name in names]]
        seconds = self.parts.transfer_seconds
        return all(len({seconds(*pair, size) for pair in each}) <= 1 for each in pairs for size in TRANSFERS)

    def sets(self, device: Device, count: int) -> Iterator[tuple[Device, ...]]:
        """Which devices of a model may be used together: of each class the first ones."""
        classes = [each for each in self.classes if self.first(each[0]) is self.first(device)]
        others = [[other for other in each if other is not device] for each in classes]
        for taken in itertools.product(*(range(len(each) + 1) for each in others)):
            if sum(taken) == count - 1:
                yield tuple(other for each, number in zip(others, taken, strict=True) for other in each[:number])

    def learners(self, device: Device) -> list[Learner]:
        """Every option for gradient steps on a device, or on several of its model beginning with it."""
        return [self._on(device, learner) for learner in self.parts.learners.list(self.first(device))]

    def trees(self, device: Device) -> list[Tree]:
        """Every sum tree on a device, fastest first."""
        return [self._on(device, tree) for tree in self._trees(self.first(device))]

    @functools.cached_property
    def links(self) -> dict[str, str]:
        """By a link's name, that of the first one as it is, between devices of the same models."""
        firsts: dict[Link, str] = {}
        return {link.name: firsts.setdefault(self._ends(link), link.name) for link in self.parts.platform.links}

    def _ends(self, link: Link) -> Link:
        source, target = (self._first[end].name if end in self._first else end for end in (link.source, link.target))
        return replace(link, source=source, target=target)

    def _on(self, device: Device, timed: Choice) -> Choice:
        """A learner or a tree on the first device of a model as that on another."""
        return replace(timed, needs=moved(timed.needs, {self.first(device).name: device.name}))

    def _model(self, device: Device) -> Any:
        """What tells devices apart but their names: budgets, watts, routes to the processor, and times of parts."""
        cpu = self.parts.cpu.name
        pairs = ((cpu, device.name), (device.name, cpu)) if device.name != cpu else ()
        routes = tuple(self.parts.transfer_seconds(*pair, nbytes) for pair in pairs for nbytes in TRANSFERS)
        times = [(one.name, one.step) for one in self.parts.learners.list(device) if one.devices == 1]
        times += [(tree.name, time) for tree in self._trees(device) for time in (tree.draw, tree.update)]
        times += [("storage", self.parts.rows_moved(device))] if device.memory else []
        known = tuple((name, time.value, time.low, time.high, time.source) for name, time in times)
        has = tuple(moved(dict(budgets(device)), {device.name: ""}).items())
        watts = device.power_watts.value if device.power_watts else None
        return device.kind, device.name == cpu, has, watts, routes, known


COPIES = 3  # of a device's trees that are copied to another: the fastest of those with as many threads
ARRANGEMENT = {
    "serial": "one process does everything serially, as impls.training does",
    "apart": "actors on cores of their own; one process samples, gathers, learns and updates serially",
    "pipelined": "actors, replay and learner on cores or devices of their own, all at the same time",
}


@dataclass
class OptionBuilder:
    """Collects the options of one execution mode on the devices that may be used.

    ``run_times``: times in the run that they make; None where each part's own time counts. ``splits_layers``: whether
    the layers of a network may lie on several devices.
    """

    parts: Times
    mode: ExecutionMode
    equal: EqualDevices
    run_times: RunTimes | None = None
    splits_layers: bool = False
    options: dict[Part, list[Option]] = field(default_factory=lambda: {part: [] for part in PARTS if part not in TREE})
    trees: list[tuple[Option, Option]] = field(default_factory=list)

    @property
    def cpu(self) -> str:
        """The name of the processor that actors run on."""
        return self.parts.cpu.name

    @property
    def devices(self) -> list[Device]:
        """The devices to choose from: one process of the first processor runs on no other processor."""
        return [
            one for one in self.equal.devices if not self.mode.in_turns or one.kind != "cpu" or one.name == self.cpu
        ]

    @property
    def classes(self) -> list[list[Device]]:
        """The same by what may be exchanged."""
        return [each for each in self.equal.classes if each[0] in self.devices]

    @property
    def engines(self) -> dict[str, dict[str, float]]:
        """The cores that a processor's replay process takes once, whatever it does; its tree's threads take more."""
        cpus = [] if self.mode.in_turns else [device for device in self.devices if device.kind == "cpu"]
        return {self.engine(device, "replay"): {f"{device.name}.cores": 1.0} for device in cpus}

    @property
    def process(self) -> str:
        """The engine that does everything serially; "" where parts run at the same time."""
        return {"serial": f"{self.cpu}.main", "apart": f"{self.cpu}.loop"}.get(self.mode.arrangement, "")

    @property
    def must_run(self) -> bool:
        """Whether there are programs for what is offered: one process, or several of a machine with its own records."""
        return self.mode.arrangement == "serial" or is_here(self.parts)

    def build(self) -> "OptionBuilder":
        """Returns the builder itself, with all options."""
        self._actors()
        self._learners()
        is_one = self.mode.how.learners == 1 and "learner" not in self.parts.constraints
        if self.splits_layers and is_one and not self.mode.in_turns:
            self._split_learners()
        self._replay()
        return self

    def add(self, option: Option) -> None:
        """Adds an option of a part alone, if what is fixed allows it."""
        if self._allows(option.part, option.device):
            self.options[option.part].append(self._with_call(option))

    def _allows(self, part: Part, device: str) -> bool:
        return part == "actors" or self.parts.constraints.get(part) in (None, device)

    def _add_tree(self, sampling: Option, updating: Option) -> None:
        """Adds a tree, or a copy and the tree that it is of, if what is fixed allows both."""
        if self._allows("sampling", sampling.device) and self._allows("updating", updating.device):
            self.trees.append((self._with_call(sampling), self._with_call(updating)))

    def _with_call(self, option: Option) -> Option:
        """Adds what calling an option's device takes where one process does everything."""
        call = self.parts.call_seconds(option.device) if self.mode.in_turns else 0.0
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
        if self.mode.in_turns:
            return self.process
        return device.name if device.kind == "gpu" and what != "replay" else f"{device.name}.{what}"

    def _shared(self, device: Device) -> tuple[tuple[str, str], ...]:
        """The engine that a GPU's tree keeps busy besides its own, which is its process: all of the GPU."""
        return ((device.name, device.name),) if device.kind == "gpu" and not self.mode.in_turns else ()

    def _actors(self) -> None:
        """Adds one option for each implementation of the policy and number of processes."""
        parts, serial = self.parts, self.mode.arrangement == "serial"
        fixed = parts.constraints.get("actors", 1) if parts.table else 1  # a run may have more than the workload states
        count, policies = max(parts.workload.actors.count, fixed), parts.actors.policies
        most = 1 if serial else max(1, min(count, parts.cores - 1))
        tried = [*itertools.product(policies, range(1, most + 1))]
        if self.mode.actors:
            tried = [(self.mode.policy, self.mode.actors)]
        for policy, processes in tried:
            if parts.allows("actors", processes) and parts.allows("policy_implementation", policy):
                time = parts.actors.acting(processes, serial, policy)
                time = self.run_times.acting(time, policy) if self.run_times else time
                needs = {f"{self.cpu}.cores": float(0 if serial else processes)}
                name, engine = plural(processes, "process"), "main" if serial else "actors"
                name += f", policy {policy}" * (len(policies) > 1)
                details = {"processes": processes} | ({"implementation": policy} if len(policies) > 1 else {})
                self.add(Option("actors", name, self.cpu, f"{self.cpu}.{engine}", time, needs, details=details))

    def _learners(self) -> None:
        """Adds the learners of every device; a serial loop drives no FPGA."""
        for device in (each[0] for each in self.classes):
            if device.kind == "fpga" and self.mode.arrangement == "serial":
                continue
            for learner in self.equal.learners(device):
                if self._is_allowed(device, learner):
                    self._learner(device, learner)

    def _is_allowed(self, device: Device, learner: Learner) -> bool:
        """Tell whether what is fixed, and the run that the times are of, allow a learner on a device."""
        threads, by = learner.details.get("threads"), implementation_of(learner.details)
        is_able = device.kind != "cpu" or (
            self.parts.allows("learner_threads", threads) and learner.cores <= cores(device)
        )
        if self.mode.actors:
            is_able = is_able and by == self.mode.learner and learner.cores <= self.mode.cores(cores(device))
        return is_able and self.parts.allows("learner_implementation", by)

    def _step(self, device: Device, learner: Learner) -> Estimate:
        """The gradient step of a learner on a device, as the run takes it."""
        if self.run_times and device.kind == "cpu":
            return self.run_times.step(learner.step, implementation_of(learner.details))
        return learner.step

    def _learner(self, device: Device, learner: Learner) -> None:
        """Adds a learner on a device, or on each set of devices of its model; one serial process drives no set."""
        count, learners, step = learner.devices, self.mode.how.learners, self._step(device, learner)
        for others in self.equal.sets(device, count) if count == 1 or not self.mode.in_turns else ():
            together = (device, *others) * learners
            host = device.name if device.kind == "cpu" else self.cpu
            needs, ahead = self._memory(together), self._memory(together, ahead=True)
            for other in together:
                for name, amount in learner.needs.items():
                    mine = name.replace(f"{device.name}.", f"{other.name}.", 1)
                    needs[mine] = needs.get(mine, 0.0) + amount
            needs[f"{host}.cores"] = float(max(learner.cores, count) * learners)
            also = tuple((other.name, self.engine(other, "learner")) for other in others)
            where = device.name, self.engine(device, "learner")
            name = f"{learner.name}, {self.mode.combined}" if learners > 1 else learner.name
            details = {**learner.details, **self.mode.details}
            self.add(Option("learner", name, *where, step, needs, ahead, also, details))

    def _split_learners(self) -> None:
        """Adds learners of torch whose layers lie on several devices, but FPGAs, where a pipeline has all layers.

        All devices of a split count as busy for a whole gradient step, though they take turns in it.
        """
        torch_learners: dict[str, list[tuple[Device, Learner]]] = {}
        for device, *_ in self.classes:
            for learner in self.equal.learners(device) if device.kind != "fpga" else ():
                is_torch = implementation_of(learner.details) == REFERENCE
                if is_torch and learner.devices == 1 and self._is_allowed(device, learner):
                    torch_learners.setdefault(device.name, []).append((device, learner))
        for count in range(2, len(torch_learners) + 1):
            for names in itertools.combinations(torch_learners, count):
                for chosen in itertools.product(*(torch_learners[name] for name in names)):
                    self._add_splits(chosen)

    def _add_splits(self, chosen: Sequence[tuple[Device, Learner]]) -> None:
        """Adds the fastest splits of a network's layers over all of these devices, each with its learner there."""
        parts, batch = self.parts, self.parts.batch
        kept = {device.name: (device, learner) for device, learner in chosen}
        times = {
            name: layers.split_step(parts, device, learner, self._step(device, learner))
            for name, (device, learner) in kept.items()
        }
        for split in layers.list_splits(parts, times):
            devices, needs = [kept[name][0] for name in split.used], dict[str, float]()
            for device in devices:
                home = f"{(device if device.memory else parts.cpu).name}.memory_bytes"
                needs[home] = needs.get(home, 0.0) + layers.count_bytes(parts.workload, batch, split, device.name)
            first = f"{(devices[0] if devices[0].memory else parts.cpu).name}.memory_bytes"
            needs[first] += parts.batch_bytes
            needs[f"{self.cpu}.cores"] = 1.0  # the process that hands batches to a GPU
            needs |= {
                f"{device.name}.cores": float(learner.cores) for device, learner in chosen if device.kind == "cpu"
            }
            own, *also = ((device.name, self.engine(device, "learner")) for device in devices)
            on = " and ".join(sorted(kept))
            step = layers.estimate_split(parts, split, times, f"T_train({on}, by layer)")
            threads = next((learner.details["threads"] for _, learner in kept.values() if learner.details), 1)
            details = {"threads": threads, "layers": list(split.devices)}
            name = f"layers {'/'.join(split.devices)}, {plural(threads, 'thread')}"
            self.add(Option("learner", name, *own, step, needs, {first: parts.batch_bytes}, tuple(also), details))

    def _memory(self, together: Sequence[Device], ahead: bool = False) -> dict[str, float]:
        """What learners that share a batch take of memory, by budget, or what each batch ahead takes more.

        A device without a memory of its own has it in the processor's.
        """
        share, taken = -(-self.parts.batch // len(together)), dict[str, float]()
        for device in together:
            name = f"{(device if device.memory else self.parts.cpu).name}.memory_bytes"
            kept = 0.0 if ahead else training_bytes(self.equal.first(device), self.parts.workload, share)
            taken[name] = taken.get(name, 0.0) + share * self.parts.transition_bytes + kept
        return taken

    def _replay(self) -> None:
        """Adds sum trees and storage. A serial loop drives a GPU's learner, but its replay is the processor's."""
        classes = [each for each in self.classes if self.mode.arrangement != "serial" or each[0].name == self.cpu]
        devices = [each[0] for each in classes]
        fitting = {device.name: list(self._fitting(device)) for each in classes for device in each[:2]}
        for device in devices:
            for tree in fitting[device.name]:
                where = tree.name, device.name, self.engine(device, "replay")
                needs = {**tree.needs, **self._cores(device, tree)}  # once: it is one tree
                also = self._shared(device)
                sampling = Option("sampling", *where, tree.draw, needs, also=also, details=tree.details)
                self._add_tree(sampling, Option("updating", *where, tree.update, also=also, details=tree.details))
        if not self.mode.in_turns:
            copied = {name: _fastest(trees) for name, trees in fitting.items()}
            for here, each in itertools.product(devices, classes):
                for there in [device for device in each if device is not here][:1]:
                    for tree, other in itertools.product(copied[here.name], copied[there.name]):
                        self._copies(here, tree, there, other)
        for device in (device for device in devices if device.memory):
            needs = {f"{device.name}.memory_bytes": self.parts.storage_bytes}
            engine = self.engine(device, "replay" if device.kind == "cpu" else "memory")
            time = self.equal.parts.rows_moved(self.equal.first(device))
            if self.run_times and device.kind == "cpu":
                time = self.run_times.stored(time)
            self.add(Option("storage", "records", device.name, engine, time, needs))

    def _fitting(self, device: Device) -> Iterator[Tree]:
        """Trees whose threads have cores. In ``serial`` they have one: the cores are its learner's to ask for."""
        most = 1 if self.mode.in_turns else cores(device)
        for tree in self.equal.trees(device):
            if self.must_run and not can_run(tree, self.mode.arrangement):
                continue
            if tree.threads <= most:
                here = self.run_times if device.kind == "cpu" else None
                yield replace(tree, draw=here.replay(tree.draw), update=here.replay(tree.update)) if here else tree

    def _cores(self, device: Device, tree: Tree) -> dict[str, float]:
        """The cores that a tree takes, where no process does everything serially: of a processor's threads all but one.

        A GPU or FPGA takes one of the first processor's, which hands batches to it.
        """
        if self.mode.in_turns:
            return {}
        if device.kind != "cpu":
            return {f"{self.cpu}.cores": 1.0}
        return {f"{device.name}.cores": tree.threads - 1.0} if tree.threads > 1 else {}

    def _copies(self, here: Device, tree: Tree, there: Device, other: Tree) -> None:
        """Sampling from a copy here, updating there. The copy takes as long to store sums as to sample."""
        copy = f"copy in {tree.name}", here.name, self.engine(here, "replay"), tree.draw + tree.draw
        sums = f"sums of {other.name}", there.name, self.engine(there, "replay"), other.update
        needs = [{**each.needs, **self._cores(device, each)} for device, each in ((here, tree), (there, other))]
        sampling = Option("sampling", *copy, needs[0], also=self._shared(here), details=tree.details)
        self._add_tree(sampling, Option("updating", *sums, needs[1], also=self._shared(there), details=other.details))


def implementation_of(details: Mapping[str, Any]) -> str:
    """The implementation of an option of the learner, or of actors, by its details."""
    return str(details.get("implementation", REFERENCE))


def cores(device: Device) -> int:
    """How many cores a processor has, 1 where it is not stated."""
    return int(device.cores.value) if device.cores else 1


def _fastest(trees: Sequence[Tree]) -> list[Tree]:
    """The trees as fast as the first few of those with at most 1, 2, 4, ... threads, whatever slices they are in."""
    kept: dict[int, Tree] = {}
    for power in range(max((tree.threads - 1 for tree in trees), default=0).bit_length() + 1):
        few = [tree for tree in trees if tree.threads <= 1 << power]
        fastest = list(dict.fromkeys((tree.draw.value, tree.update.value) for tree in few))[:COPIES]
        kept.update({id(tree): tree for tree in few if (tree.draw.value, tree.update.value) in fastest})
    return list(kept.values())
