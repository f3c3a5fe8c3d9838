"""A mapping problem as plain values: options of each part of a training system, their times and their needs.

A training system has **parts**, five of them here. Actors step environments and insert records; for each gradient step
a batch of B is sampled (sampling), its records are gathered (storage), the learner trains on it, and its new priorities
are written (updating). Sampling and updating work on the sum **tree**: one tree on a device, or copies on two. A
**configuration** chooses an option for each part, and the number of batches under way at once. Further terms:

* A **device** is a processor, a GPU or an FPGA. An **engine** is what does one thing at a time: all of a GPU, threads
  pinned to cores of their own, a slice of an FPGA, or a link in one direction. A device has one engine or several.
* A **budget** is an amount that options share, such as "gpu.memory_bytes". Its name begins with its device and a dot.
* An **axis** is what is chosen at once: an option of one part, or a tree, which is an option of sampling and one of
  updating. A **choice** is what an axis may be.

Letters: B batch, D batches sampled ahead. Times are seconds, bytes are traffic; both are those of one gradient step.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, TypeVar

from ..estimate import Estimate, Evidence

Part = str
PARTS: tuple[Part, ...] = ("actors", "sampling", "storage", "learner", "updating")
LOOP = PARTS[1:]
"""The parts that a batch passes, in order; then the next batch may be sampled. The other parts **act**."""
TREE: tuple[Part, ...] = ("sampling", "updating")
"""The parts that work on the sum tree."""
SHORTEST, LONGEST = 1e-30, 1e30
"""Bounds of seconds, and of other numbers, within which no sum or quotient of them leaves the floats."""


Amount = TypeVar("Amount")


class ProblemError(ValueError):
    """A problem or a question makes no sense; the message names the value and the remedy."""


def named(text: str, names: Mapping[str, str]) -> str:
    """Replace the device in the name of a device, an engine or a budget: all before the first dot.

    >>> named("gpu.memory_bytes", {"gpu": "gpu1"}), named("bus", {"gpu": "gpu1"})
    ('gpu1.memory_bytes', 'bus')
    """
    device, dot, rest = text.partition(".")
    return names.get(device, device) + dot + rest


def moved(amounts: Mapping[str, Amount], names: Mapping[str, str]) -> dict[str, Amount]:
    """Amounts by budget, on the devices that ``names`` puts in place of their own."""
    return {named(budget, names): amount for budget, amount in amounts.items()}


@dataclass(frozen=True)
class Option:
    """A way to run a part: a device, the time of a gradient step there, and the needs of budgets.

    ``engine`` is busy for that time: parts on the same engine take turns, others run concurrently. ``needs``: amounts
    by budget, such as ``{"cpu.cores": 2, "gpu.memory_bytes": 4e9}``; ``ahead``: further amounts for each batch sampled
    ahead. ``also``: (device, engine) of others that are busy for the same time, such as those of learners that share a
    batch; transfers to and from the part begin and end at ``device``. ``details``: what else is to be said of it, such
    as its implementation; nothing is decided by that.
    """

    part: Part
    name: str
    device: str
    engine: str
    time: Estimate
    needs: Mapping[str, float] = field(default_factory=dict)
    ahead: Mapping[str, float] = field(default_factory=dict)
    also: tuple[tuple[str, str], ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> tuple[tuple[str, str], ...]:
        """(device, engine) of all that is busy, its own first."""
        return ((self.device, self.engine), *self.also)

    @property
    def seconds(self) -> float:
        """The expected time of one gradient step."""
        return self.time.value

    @property
    def rests_on(self) -> Evidence:
        """The evidence of the time."""
        return self.time.rests_on

    def on(self, names: Mapping[str, str]) -> "Option":
        """The same option on the devices that ``names`` puts in place of its own."""
        if all(name == other for name, other in names.items()):
            return self
        (device, engine), *also = ((named(device, names), named(engine, names)) for device, engine in self.where)
        needs, ahead = moved(self.needs, names), moved(self.ahead, names)
        return replace(self, device=device, engine=engine, also=tuple(sorted(also)), needs=needs, ahead=ahead)


Choice = tuple[Option, ...]
"""A choice of an axis: an option of one part, or those of a tree."""


@dataclass(frozen=True)
class Flow:
    """Bytes per gradient step from a part to another; nothing is sent where both are on one device.

    ``waits``: a batch waits for the transfer, so it is in the loop, whoever sends it. Other transfers only keep links
    busy. ``times``: the number of transfers, below 1 where one transfer serves several gradient steps.
    """

    source: Part
    target: Part
    nbytes: float
    waits: bool
    times: float = 1.0


@dataclass(frozen=True)
class Hop:
    """One link of a route between devices, in one direction: n bytes keep ``engine`` busy for alpha + n / beta.

    ``link``: its name, or that of an equal one on whose evidence it rests.
    """

    engine: str
    alpha_seconds: float
    seconds_per_byte: float
    rests_on: Evidence
    link: str = ""

    def seconds(self, flow: Flow, factor: Any = 1.0) -> Any:
        """Seconds that a flow keeps the link busy, whose times are multiplied by a factor.

        >>> Hop("bus", 1.0, 0.25, Evidence("a guess", "modeled")).seconds(Flow("storage", "learner", 8.0, True, 3.0))
        5.0
        """
        return flow.times * (self.alpha_seconds * factor) + flow.nbytes * (self.seconds_per_byte * factor)


Timed = Option | Hop
"""Takes a time, which rests on evidence."""


@dataclass(frozen=True)
class Problem:
    """What there is to choose from. ProblemError for a part without an option, or a number outside any sense.

    ``options``: of each part. ``trees``: options of several parts that go together, such as (sampling, updating); then
    ``options`` has none of these parts. Without ``trees`` any pair goes. ``ways``: the links between two devices, by
    (from, to). ``depths``: allowed D. ``slowdown``: factor on the time of a part (first) while another one (second)
    runs on an engine of its own on the same device (third); 1 where nothing is stated. ``watts`` by device, where
    known. ``hosts``: devices that are in use in any case. ``engines``: amounts of the budgets that an engine takes, by
    its name, once for all that runs on it: a core for the process that replays. ``equal``: classes of devices that may
    be exchanged. Budgets, watts and links are stated for each of them, a choice only for the first ones of a class, as
    many as it takes: it may have any others, and the first that parts use is named first. ``loop``: the parts that a
    batch passes, in order.
    """

    options: Mapping[Part, tuple[Option, ...]]
    budgets: Mapping[str, float]
    flows: tuple[Flow, ...] = ()
    ways: Mapping[tuple[str, str], tuple[Hop, ...]] = field(default_factory=dict)
    depths: tuple[int, ...] = (0,)
    slowdown: Mapping[tuple[Part, Part, str], float] = field(default_factory=dict)
    watts: Mapping[str, float] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    trees: tuple[Choice, ...] = ()
    engines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    equal: tuple[tuple[str, ...], ...] = ()
    parts: tuple[Part, ...] = PARTS
    loop: tuple[Part, ...] = LOOP

    def __post_init__(self) -> None:
        for name in ("options", "budgets", "ways", "slowdown", "watts", "engines"):
            if not isinstance(given := getattr(self, name), Mapping):
                raise ProblemError(f"{name} of a problem are a mapping, not {given!r:.80}")
        for faults in (_misplaced, _senseless, _out_of_bounds, _unequal):
            for fault in faults(self):
                raise ProblemError(fault)

    @property
    def axes(self) -> tuple[tuple[Choice, ...], ...]:
        """The choices of each axis: options of a part alone, and trees."""
        alone = [tuple((option,) for option in self.options[part]) for part in self.parts if part in self.options]
        return (*alone, self.trees) if self.trees else tuple(alone)

    def every_option(self) -> Iterator[Option]:
        """Yield each option once, in however many trees it stands."""
        yield from {id(option): option for choices in self.axes for choice in choices for option in choice}.values()

    def every_timed(self) -> Iterator[Timed]:
        """Yield all that takes time: each option, then each hop of each way."""
        yield from self.every_option()
        yield from (hop for way in self.ways.values() for hop in way)

    def class_of(self, device: str) -> tuple[str, ...]:
        """The devices that a device may be exchanged with, itself among them."""
        return next((devices for devices in self.equal if device in devices), (device,))

    def having(self, part: Part, *options: Option) -> "Problem":
        """The same problem with these options for a part. Not for a part of a tree."""
        return replace(self, options={**self.options, part: options})


@dataclass(frozen=True)
class Configuration:
    """One option for each part, in the order of the problem's, and D batches sampled ahead (so D + 1 are under way)."""

    options: tuple[Option, ...]
    depth: int = 0

    @property
    def where(self) -> dict[Part, tuple[tuple[str, str], ...]]:
        """(device, engine) of all that is busy with each part."""
        return {option.part: option.where for option in self.options}

    def having(self, *options: Option) -> "Configuration":
        """The same configuration with these options for their parts."""
        changed = {option.part: option for option in options}
        return replace(self, options=tuple(changed.get(option.part, option) for option in self.options))

    def __getattr__(self, part: Part) -> Option:
        """The option of a part: ``configuration.learner``, or ``configuration.of("learner")``."""
        option: Option
        for option in vars(self).get("options", ()):
            if option.part == part:
                return option
        raise AttributeError(f"a configuration has no part {part!r}")

    of = __getattr__


# What makes no sense


def _misplaced(problem: Problem) -> Iterator[str]:
    """Say which parts have no options, and which options do not stand where they belong."""
    together = [getattr(option, "part", None) for option in problem.trees[0]] if problem.trees else []
    in_order = [part for part in problem.parts if part in together]
    for tree in problem.trees:
        if not together or [getattr(option, "part", None) for option in tree] != in_order:
            yield f"a tree is an option of sampling and one of updating, in this order, not {tree}"
    for part in problem.parts:
        if part not in together and not problem.options.get(part):
            yield f"nothing can run the part {part!r}: give it an option on some device"
        if part in together and part in problem.options:
            yield f"the part {part!r} has its options in trees; give it no others"
    for part, options in problem.options.items():
        for option in options:
            if part not in problem.parts or option.part != part:
                yield f"{option.name!r} is an option of {option.part!r}, not of {part!r}"


def _senseless(problem: Problem) -> Iterator[str]:
    """Say which options, depths, hosts, flows and slowdowns make no sense."""
    for option in problem.every_option():
        what = f"{option.part} {option.name!r}"
        if not isinstance(option.time, Estimate) or not SHORTEST <= option.seconds <= LONGEST:
            time = getattr(option.time, "value", option.time)
            yield f"{what} must take an Estimate from {SHORTEST:g} to {LONGEST:g} s, not {time}"
        if len({engine for _, engine in option.where}) < len(option.where):
            yield f"{what} is on an engine twice: {option.where}"
        needed = {budget.partition(".")[0] for budget in (*option.needs, *option.ahead)}
        for device in sorted(needed - dict(option.where).keys()):
            if len(problem.class_of(device)) > 1:
                yield f"{what} takes of {device}, one of equal devices, and does not run there"
        if option.also and problem.equal:
            yield from _uneven(problem, what, option)
    if not problem.depths or not all(isinstance(depth, Integral) and depth >= 0 for depth in problem.depths):
        yield f"depths must be one or more whole numbers from 0 on, not {problem.depths}"
    if isinstance(problem.hosts, str):
        yield f"hosts are a tuple of devices' names, not {problem.hosts!r}"
    pairs = [(f"a flow from {flow.source!r} to {flow.target!r}", {flow.source, flow.target}) for flow in problem.flows]
    pairs += [(f"a slowdown of {part!r} with {other!r}", {part, other}) for part, other, _ in problem.slowdown]
    for what, parts in pairs:
        if not parts <= set(problem.parts):
            yield f"{what}; parts are {', '.join(problem.parts)}"
    for (part, other, device), factor in problem.slowdown.items():
        if not 0 < factor < math.inf:
            yield f"{part} concurrently with {other} on {device} cannot have a slowdown of {factor}"


def _out_of_bounds(problem: Problem) -> Iterator[str]:
    """Say which numbers are none, negative or too large."""
    stated: list[tuple[str, Any]] = [(f"the watts of {device}", watts) for device, watts in problem.watts.items()]
    for flow in problem.flows:
        stated.append((f"bytes from {flow.source} to {flow.target}", flow.nbytes))
        stated.append((f"transfers from {flow.source} to {flow.target}", flow.times))
    for hop in (hop for way in problem.ways.values() for hop in way):
        stated.append((f"alpha of {hop.engine}", hop.alpha_seconds))
        stated.append((f"seconds per byte of {hop.engine}", hop.seconds_per_byte))
    takers = [(f"the engine {engine!r}", needs) for engine, needs in problem.engines.items()]
    for option in problem.every_option():
        takers += [(f"{option.part} {option.name!r}", needs) for needs in (option.needs, option.ahead)]
    for what, budget, amount in ((what, *need) for what, needs in takers for need in needs.items()):
        if budget not in problem.budgets:
            yield f"{what} needs {budget}, of which no budget is stated"
        stated.append((f"{what} needs of {budget}", amount))
    budgets = [(f"the budget {name}", amount) for name, amount in problem.budgets.items()]
    for most, amounts in ((math.inf, budgets), (LONGEST, stated)):
        for what, value in amounts:
            if not isinstance(value, float | Real) or not 0 <= float(value) <= most:
                yield f"{what} must be a number from 0 to {most:g}, not {value!r}"


def _uneven(problem: Problem, what: str, option: Option) -> Iterator[str]:
    """Say which of equal devices an option takes more of than of others, beyond the one that is sent to."""
    further = dict(option.also).keys() - {option.device}
    for devices in problem.equal:
        for one, other in itertools.pairwise(device for device in devices if device in further):
            if option.on({one: other, other: one}) != replace(option, also=tuple(sorted(option.also))):
                yield f"{what} does not take as much of {one} as of {other}, its equal; state the most"


def _unequal(problem: Problem) -> Iterator[str]:
    """Say which devices of a class differ in what is stated of them."""
    busy = {engine for option in problem.every_option() for _, engine in option.where} if problem.equal else set()
    for first, other in ((devices[0], other) for devices in problem.equal for other in devices[1:]):
        names = {first: other, other: first}
        for what in ("budgets", "watts", "hosts", "slowdown", "engines", "ways"):
            stated = getattr(problem, what)
            if _exchanged(stated, names) != _exchanged(stated, {}):
                yield f"{first} and {other} differ in {what}, so they are not equal; leave one out"
        twins = {
            (hop.engine, twin.engine)
            for (source, target), way in problem.ways.items()
            for hop, twin in zip(way, problem.ways[names.get(source, source), names.get(target, target)], strict=True)
        }
        if len(dict(twins)) < len(twins) or any(twin != named(one, names) for one, twin in twins if one in busy):
            yield f"{first} and {other} differ in what shares their ways; leave one out of those equal"


def _exchanged(stated: Any, names: Mapping[str, str]) -> Any:
    """What is stated of devices, with ``names`` in place of theirs."""
    if isinstance(stated, str):
        return named(stated, names)
    if isinstance(stated, Mapping):
        return {_exchanged(key, names): _exchanged(value, names) for key, value in stated.items()}
    if isinstance(stated, tuple):
        return tuple(_exchanged(each, names) for each in stated)
    return (stated.alpha_seconds, stated.seconds_per_byte) if isinstance(stated, Hop) else stated
