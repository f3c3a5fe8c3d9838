"""A platform, a workload and tables as problems: every option of every part, what they share and what they send.

A **place** is a set of processes to put parts in, and each place is a problem of its own:

serial        one process does everything in turns, transfers and all, as ``python -m impls.training`` does
apart         actors on cores of their own; one process draws, gathers, sends, learns and updates in turns
pipelined r   actors, replay on r cores, and the learner, each on cores (or devices) of their own, all at the same time

Where draw and update are on one device there is one tree, and its option of updating has the whole time. Where they
part, the updating device keeps the tree and sends the sums it changed, an index and a sum for each level of each
element, to the sampling device, which takes as long to store them as to draw: this is our model, nobody has built it.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..platforms import Device
from .modeled import budgets
from .parts import Evidence, Learner, Parts
from .primitives import factor_of
from .problem import PARTS, Configuration, Option, Part, Problem, ProblemError, Timed
from .rules import RULE, rules_of
from .traffic import flows, ways
from .trees import Tree, trees

ARRANGEMENTS = ("serial", "apart", "pipelined")
DEPTHS = (0, 1, 2, 3, 4, 8, 16, 50)
BATCHES_SHARE = 0.1  # of the smallest memory, that batches drawn ahead may take where their number is free
LISTED = 6  # options of a device in a sentence
NOTHING = 1e-12  # seconds of a part whose time another option has
REPLAYING = (0, 1, 2, 4, 8)  # cores
PARTED_TREES = 3  # of a device, where drawing and updating part: the fastest
Trees = Callable[[Device, bool], list[Tree]]
OptionKey = tuple[Part, str, str, str]


@dataclass(frozen=True)
class Built:
    """A problem by place, and what is behind its options: ``shown`` by part, device, engine and name."""

    problems: Mapping[str, Problem]
    parts: Parts
    shown: Mapping[OptionKey, Mapping[str, Any]]

    @property
    def evidence(self) -> Mapping[str, Evidence]:
        """By number."""
        return self.parts.evidence

    def rests_on(self, number: str, chosen: Configuration) -> Evidence:
        """A number's evidence, as it is of the chosen options: their words, and how far off they may be."""
        known, times = self.evidence[number], [one.time for one in chosen.options if one.time.number == number]
        longest = max(times, key=lambda time: time.seconds, default=None)
        if longest is None or not longest.told:
            return known
        within = max(factor_of(time) for time in times)
        return replace(known, source=longest.source, told=f"{longest.told}; right within a factor of {within:.3g}")

    def notes(self, chosen: Configuration) -> Iterator[str]:
        """What the numbers behind a configuration leave out, and wishes that say nothing about it."""
        cpu, fixed = self.parts.cpu.name, self.parts.fixed
        beside = {option.engine for option in chosen.options if option.device == cpu}
        if len(beside) > 1 and all(factor == 1 for factor in _slowdown(self.parts).values()):
            yield f"how parts that share {cpu} slow each other down is not in these numbers: no profile here tells"
        for key, part in (("learner_threads", chosen.learner), ("threads", chosen.updating)):
            if key in fixed and part.device != cpu:
                yield f"{key}={fixed[key]} is of the processor's options, and {part.part} is on {part.device}"

    def details(self, option: Option) -> Mapping[str, Any]:
        """K, contestant, threads and the like."""
        return self.shown.get(key_of(option), {})


def key_of(option: Option) -> OptionKey:
    """What tells an option from the others."""
    return option.part, option.device, option.engine, option.name


@dataclass
class _Maker:
    """Collects the options of one place; ``devices`` are those that may be used, ``trees`` what each can have.

    ``depths``: those that are to choose from. Every learner has room for the batches of the deepest.
    """

    parts: Parts
    place: str
    devices: Sequence[Device]
    trees: Trees
    depths: tuple[int, ...]
    options: dict[Part, list[Option]] = field(default_factory=lambda: {part: [] for part in PARTS})
    shown: dict[OptionKey, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def cpu(self) -> str:
        return self.parts.cpu.name

    @property
    def in_turns(self) -> bool:
        return self.place in ("serial", "apart")

    @property
    def process(self) -> str:
        """The engine that does everything in turns; nothing where parts run at the same time."""
        return {"serial": f"{self.cpu}.main", "apart": f"{self.cpu}.loop"}.get(self.place, "")

    @property
    def replaying(self) -> int:
        """Cores."""
        return 0 if self.in_turns else int(self.place.split()[1])

    @property
    def reachable(self) -> list[Device]:
        """A serial loop drives a GPU's learner, but its replay is the processor's."""
        return [device for device in self.devices if self.place != "serial" or device.name == self.cpu]

    def add(
        self,
        part: Part,
        name: str,
        device: str,
        engine: str,
        time: Timed,
        needs: Mapping[str, float],
        told: Mapping[str, Any],
    ) -> None:
        """An option, if it is not ruled out by what is asked for."""
        if part == "actors" or self.parts.fixed.get(part) in (None, device):
            if self.in_turns and (call := self.parts.call_seconds(device)):
                time = replace(time, seconds=time.seconds + call, low=time.low + call / 2, high=time.high + 2 * call)
            option = Option(part, name, device, engine, time, needs)
            self.options[part].append(option)
            self.shown[key_of(option)] = told

    def engine(self, device: Device, what: str) -> str:
        """What is busy while a part of the loop runs there."""
        if self.in_turns:
            return self.process
        if device.kind == "gpu":
            return device.name
        return f"{device.name}.{what}"

    def actors(self) -> None:
        parts, serial = self.parts, self.place == "serial"
        u, count = parts.workload.learner.update_interval, parts.workload.actors.count
        most = 1 if serial else max(1, min(count, parts.cores - 1 - self.replaying))
        for processes in range(1, most + 1):
            if parts.fixed.get("actors") in (None, processes):
                step, fetch = parts.actor_step(processes), parts.fetches(serial)
                time = replace(
                    step,
                    seconds=u * (step.seconds + fetch),
                    low=u * (step.low + fetch / 2),
                    high=u * (step.high + 2 * fetch),
                )
                needs = {f"{self.cpu}.cores": float(0 if serial else processes + self.replaying)}
                name, engine = f"{processes} process{'es' * (processes > 1)}", "main" if serial else "actors"
                self.add("actors", name, self.cpu, f"{self.cpu}.{engine}", time, needs, {"processes": processes})

    def learners(self) -> None:
        for device in self.devices:
            if device.kind == "fpga" and self.place == "serial":
                continue
            for learner in self.parts.learners(device):
                if device.kind != "cpu" or self.parts.grants("learner_threads", learner.told.get("threads")):
                    self._learner(device, learner)

    def _learner(self, device: Device, learner: Learner) -> None:
        over = self.parts.table.overheads if self.parts.table else None
        step = over.step(learner.step) if over and self.in_turns and device.kind == "cpu" else learner.step
        held = self.parts.learner_bytes(device, max(self.depths))
        needs = {**held, **learner.needs, f"{self.cpu}.cores": float(learner.cores)}
        self.add("learner", learner.name, device.name, self.engine(device, "learner"), step, needs, learner.told)

    def replay(self) -> None:
        """Sampling, updating and storage."""
        own = self.in_turns or self.replaying > 0  # cores for what the processor does
        devices = [device for device in self.reachable if own or device.kind != "cpu"]
        found = {device.name: self.trees(device, self.in_turns) for device in devices}
        most = max(self.replaying, 1)  # in turns one, for the cores of that process are those its learner asks for
        fitting = {name: [tree for tree in held if tree.threads <= most] for name, held in found.items()}
        homes = [device for device in devices if fitting[device.name]]
        for device in homes:
            self._one_tree(device, fitting[device.name], homes)
            if len(homes) > 1 and not self.in_turns:
                self._two_trees(device, _fastest(fitting[device.name]), homes)
        for device in devices:
            if device.memory:
                needs = {f"{device.name}.memory_bytes": self.parts.storage_bytes}
                time, engine = self.parts.rows_moved(device), self.engine(device, "memory")
                engine = self.engine(device, "replay") if device.kind == "cpu" else engine
                self.add("storage", "records", device.name, engine, time, needs, {})

    def _driver(self, device: Device) -> dict[str, float]:
        """A core that hands batches to a device, where nothing else does it in turns."""
        return {} if self.in_turns or device.kind == "cpu" else {f"{self.cpu}.cores": 1.0}

    def _one_tree(self, device: Device, trees: Sequence[Tree], homes: Sequence[Device]) -> None:
        engine, first = self.engine(device, "replay"), trees[0].draw
        rules = rules_of(device, homes)
        nothing = replace(first, seconds=NOTHING, low=NOTHING, high=NOTHING)
        self.add("sampling", "with updating", device.name, engine, nothing, rules("joins"), {})
        for tree in trees:
            needs = {**tree.needs, **self._driver(device), **rules("keeps")}
            told = {**tree.told, "draw_seconds": tree.draw.seconds, "update_seconds": tree.update.seconds}
            self.add("updating", tree.name, device.name, engine, _sum(tree.draw, tree.update), needs, told)

    def _two_trees(self, device: Device, trees: Sequence[Tree], homes: Sequence[Device]) -> None:
        engine, rules = self.engine(device, "replay"), rules_of(device, homes)
        for tree in trees:
            needs = {**tree.needs, **self._driver(device)}
            twice = _sum(tree.draw, tree.draw)
            mine, yours = {**needs, **rules("draws alone")}, {**needs, **rules("updates alone")}
            self.add("sampling", f"copy in {tree.name}", device.name, engine, twice, mine, tree.told)
            self.add("updating", f"sums of {tree.name}", device.name, engine, tree.update, yours, tree.told)


def _fastest(trees: Sequence[Tree]) -> list[Tree]:
    """Those as fast as the first few, whatever slices they are in."""
    times = dict.fromkeys((tree.draw.seconds, tree.update.seconds) for tree in trees)
    fastest = list(times)[:PARTED_TREES]
    return [tree for tree in trees if (tree.draw.seconds, tree.update.seconds) in fastest]


def _sum(one: Timed, other: Timed) -> Timed:
    return replace(one, seconds=one.seconds + other.seconds, low=one.low + other.low, high=one.high + other.high)


def build(parts: Parts, free: frozenset[str] = frozenset(), excluded: frozenset[str] = frozenset()) -> Built:
    """All places in which every part has an option. ProblemError where there is none, with what was asked for."""
    devices = [device for device in parts.platform.devices if device.name not in excluded]
    found: dict[str, Problem] = {}
    shown: dict[OptionKey, Mapping[str, Any]] = {}
    lacking: set[str] = set()
    known = functools.cache(functools.partial(trees, parts))
    depths = _depths(parts, devices) if "presampled" in free else (parts.workload.replay.presampled,)
    for place in _places(parts):
        maker = _Maker(parts, place, devices, known, depths)
        maker.actors()
        maker.learners()
        maker.replay()
        empty = [part for part in PARTS if not maker.options[part]]
        lacking.update(empty)
        if not empty:
            found[place] = _problem(maker)
            shown.update(maker.shown)
    if not found:
        asked = ", ".join(f"{key}={value}" for key, value in parts.fixed.items()) or "the devices there are"
        part = next(part for part in PARTS if part in lacking)
        told = f"nothing can run the part {part!r} on platform {parts.platform.name!r} with {asked}"
        offer = _offer(parts, devices, depths, part)
        raise ProblemError(told + (f"; without wishes about it there would be {offer}" if offer else ""))
    return Built(found, parts, shown)


def _offer(parts: Parts, devices: Sequence[Device], depths: tuple[int, ...], part: Part) -> str:
    """What could run a part if only the arrangement were fixed: its options by device."""
    free = replace(parts, fixed={key: value for key, value in parts.fixed.items() if key == "arrangement"})
    names: dict[str, dict[str, None]] = {}
    for place in _places(free):
        maker = _Maker(free, place, devices, functools.partial(trees, free), depths)
        for make in (maker.actors, maker.learners, maker.replay):
            make()
        for option in maker.options[part]:
            names.setdefault(option.device, {})[option.name] = None
    return "; ".join(f"on {device} {_listed(list(held))}" for device, held in names.items())


def _listed(names: Sequence[str]) -> str:
    shown = list(names) if len(names) <= LISTED else [*names[: LISTED - 2], "...", names[-1]]
    return ", ".join(shown)


def _depths(parts: Parts, devices: Sequence[Device]) -> tuple[int, ...]:
    """Those whose batches take little of any memory, and none ahead."""
    least = min(device.memory.size_bytes.value for device in devices if device.memory)
    most = BATCHES_SHARE * least / (parts.batch * parts.transition_bytes) - 1
    return tuple(depth for depth in DEPTHS if depth <= max(most, 0))


def _places(parts: Parts) -> list[str]:
    wanted = parts.fixed.get("arrangement")
    counts = [
        count for count in REPLAYING if count <= max(1, parts.cores - 2)
    ]  # too few cores for 1 is for budgets to say
    every = ["serial", "apart", *(f"pipelined {count}" for count in counts)]
    return [place for place in every if wanted in (None, place.split()[0])]


def _problem(maker: _Maker) -> Problem:
    parts = maker.parts
    options = [option for held in maker.options.values() for option in held]
    own = {budget: amount for device in maker.devices for budget, amount in budgets(device)}
    rules = {budget: 1.0 for option in options for budget in option.needs if budget.startswith(RULE)}
    watts = {device.name: device.power_watts.value for device in maker.devices if device.power_watts}
    return Problem(
        {part: tuple(held) for part, held in maker.options.items()},
        {**own, **rules},
        tuple(flows(parts)),
        ways(parts, maker.devices, maker.process),
        maker.depths,
        _slowdown(parts),
        watts,
        (maker.cpu,),
    )


def _slowdown(parts: Parts) -> dict[tuple[Part, Part, str], float]:
    if not parts.table:
        return {}
    cpu = parts.cpu.name
    return {
        ("actors", "learner", cpu): parts.table.slowdown("actor step", "learner"),
        ("learner", "actors", cpu): parts.table.slowdown("learner step", "actor"),
    }
