"""A mapping problem as plain values: what each part of a training system could run on, and what that would take.

A training system has **parts**, five of them here. Actors step environments and insert records; for each gradient step
a batch of B is sampled (sampling), its records are gathered (storage), the learner trains on it, and its new priorities
are written (updating). Sampling and updating work on the sum **tree**: one tree on a device, or copies on two. A
**configuration** chooses an option for each part, and how many batches are under way at once.

Letters: B batch, D batches sampled ahead. Times are seconds, bytes are traffic; both are those of one gradient step.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, TypeVar

from ..estimate import Estimate, Evidence

Part = str
PARTS: tuple[Part, ...] = ("actors", "sampling", "storage", "learner", "updating")
LOOP = PARTS[1:]
"""What a batch passes through, in order; then the next one may be sampled. The other parts **act**."""
TREE: tuple[Part, ...] = ("sampling", "updating")
"""What works on the sum tree."""
SHORTEST, LONGEST = 1e-30, 1e30
"""Bounds of seconds, and of other numbers, within which no sum or quotient of them leaves the floats."""


Amount = TypeVar("Amount")


class ProblemError(ValueError):
    """A problem or a question makes no sense; the message names the value and the remedy."""


def named(text: str, names: Mapping[str, str]) -> str:
    """A device, an engine or a budget with the device's name, which is all before the first dot, replaced.

    >>> named("gpu.memory_bytes", {"gpu": "gpu1"}), named("bus", {"gpu": "gpu1"})
    ('gpu1.memory_bytes', 'bus')
    """
    device, dot, rest = text.partition(".")
    return names.get(device, device) + dot + rest


@dataclass(frozen=True)
class Option:
    """A way to run a part: a device, the time of a gradient step there, and what it takes of the budgets.

    ``engine`` is what is busy meanwhile: parts on the same engine take turns, others run at the same time. All of a GPU
    is one engine; threads pinned to cores of their own, or a slice of an FPGA, are one each.
    ``needs``: amount by name of the budget, such as ``{"cpu.cores": 2, "gpu.memory_bytes": 4e9}``; ``ahead``: what each
    batch sampled ahead takes more. ``also``: (device, engine) of others that are busy as long, such as those of
    learners that share a batch; what is sent to or from the part is sent to or from ``device``.
    """

    part: Part
    name: str
    device: str
    engine: str
    time: Estimate
    needs: Mapping[str, float] = field(default_factory=dict)
    ahead: Mapping[str, float] = field(default_factory=dict)
    also: tuple[tuple[str, str], ...] = ()

    @property
    def where(self) -> tuple[tuple[str, str], ...]:
        """(device, engine) of all that is busy meanwhile, its own first."""
        return ((self.device, self.engine), *self.also)

    @property
    def seconds(self) -> float:
        """The expected time of one gradient step."""
        return self.time.value

    def on(self, names: Mapping[str, str]) -> "Option":
        """The same on other devices, by the names of its own."""
        if all(name == other for name, other in names.items()):
            return self
        (device, engine), *also = ((named(device, names), named(engine, names)) for device, engine in self.where)
        needs, ahead = (moved(amounts, names) for amounts in (self.needs, self.ahead))
        return replace(self, device=device, engine=engine, also=tuple(sorted(also)), needs=needs, ahead=ahead)


def moved(amounts: Mapping[str, Amount], names: Mapping[str, str]) -> dict[str, Amount]:
    """What is taken of budgets, where it is on other devices."""
    return {named(budget, names): amount for budget, amount in amounts.items()}


Choice = tuple[Option, ...]
"""What is chosen at once: an option of one part, or those of a tree."""


@dataclass(frozen=True)
class Flow:
    """Bytes a gradient step sends from a part to another; nothing where both are on one device.

    ``waits``: a batch cannot go on before they have arrived, so they are in its loop, whoever sends them. Others only
    keep links busy. ``times``: the number of transfers, below 1 where those of several gradient steps go together.
    """

    source: Part
    target: Part
    nbytes: float
    waits: bool
    times: float = 1.0


@dataclass(frozen=True)
class Hop:
    """One link of a route between devices, in one direction: n bytes keep ``engine`` busy for alpha + n / beta.

    Alpha is paid for each of a flow's ``times``.
    """

    engine: str
    alpha_seconds: float
    seconds_per_byte: float
    rests_on: Evidence


@dataclass(frozen=True)
class Problem:
    """What there is to choose from. ProblemError for a part without an option, or a number outside any sense.

    ``options``: of each part. ``trees``: options of several parts that go together, such as (sampling, updating), one
    tree on a device or copies on two; then ``options`` has none of these parts. Without ``trees`` any pair goes.
    ``ways``: the links between two devices, by (from, to). ``depths``: allowed D. ``slowdown``: factor on the time of a
    part (first) while another one (second) runs on an engine of its own on the same device (third); 1 where nothing is
    stated. ``watts`` by device, where known. ``hosts``: devices that are in use in any case. ``engines``: what an
    engine takes of the budgets, by its name, once for all that runs on it: a core for the process that replays.
    ``equal``: classes of devices, which may be exchanged. Names of their engines and budgets begin with theirs and a
    dot. Budgets, watts and links are stated of each; a choice just of the first ones, as many as it takes: it may have
    any others. ``loop``: the parts that a batch passes, in order.
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
        _check_options(self)
        _check_numbers(self)
        _check_equal(self)

    @property
    def axes(self) -> tuple[tuple[Choice, ...], ...]:
        """What there is to choose, one choice of each: options of a part alone, and trees."""
        alone = [tuple((option,) for option in self.options[part]) for part in self.parts if part in self.options]
        return (*alone, self.trees) if self.trees else tuple(alone)

    def every_option(self) -> Iterator[Option]:
        """All options, those of trees as often as they stand in one."""
        return (option for choices in self.axes for choice in choices for option in choice)

    def class_of(self, device: str) -> tuple[str, ...]:
        """The devices that are equal to one."""
        return next((devices for devices in self.equal if device in devices), ())

    def first_image(self, names: Iterable[str]) -> dict[str, str]:
        """What devices that are named in this order are called where each is the first of its class."""
        image: dict[str, str] = {}
        for name in names:
            device = name.partition(".")[0]
            free = [one for one in self.class_of(device) if one not in image.values()]
            if free and device not in image:
                image[device] = free[0]
        return image

    def having(self, part: Part, *options: Option) -> "Problem":
        """The same with these options for a part. Not for a part of a tree."""
        return replace(self, options={**self.options, part: options})


@dataclass(frozen=True)
class Configuration:
    """One option for each part, in the order of the problem's, and D batches sampled ahead (so D + 1 are under way)."""

    options: tuple[Option, ...]
    depth: int = 0

    def having(self, *options: Option) -> "Configuration":
        """The same with these options for their parts."""
        changed = {option.part: option for option in options}
        return replace(self, options=tuple(changed.get(one.part, one) for one in self.options))

    def of(self, part: Part) -> Option:
        """The option of a part; ``configuration.learner`` is that of the learner."""
        option: Option = self.__getattr__(part)
        return option

    def __getattr__(self, part: str) -> Option:
        one: Option
        for one in vars(self).get("options", ()):
            if one.part == part:
                return one
        raise AttributeError(f"a configuration has no part {part!r}")


def _check_options(problem: Problem) -> None:
    """ProblemError unless every part has options, each where it belongs."""
    together = [getattr(option, "part", None) for option in problem.trees[0]] if problem.trees else []
    in_order = [part for part in problem.parts if part in together]
    for tree in problem.trees:
        if not together or [getattr(option, "part", None) for option in tree] != in_order:
            raise ProblemError(f"a tree is an option of sampling and one of updating, in this order, not {tree}")
    for part in problem.parts:
        if part not in together and not problem.options.get(part):
            raise ProblemError(f"nothing can run the part {part!r}: give it an option on some device")
        if part in together and part in problem.options:
            raise ProblemError(f"the part {part!r} has its options in trees; give it no others")
    for part, option in ((part, option) for part, options in problem.options.items() for option in options):
        if part not in problem.parts or option.part != part:
            raise ProblemError(f"{option.name!r} is an option of {option.part!r}, not of {part!r}")
    for option in {id(option): option for option in problem.every_option()}.values():  # once, in however many trees
        what = f"{option.part} {option.name!r}"
        if not isinstance(option.time, Estimate) or not SHORTEST <= option.seconds <= LONGEST:
            time = getattr(option.time, "value", option.time)
            raise ProblemError(f"{what} must take an Estimate from {SHORTEST:g} to {LONGEST:g} s, not {time}")
        if len({engine for _, engine in option.where}) < len(option.where):
            raise ProblemError(f"{what} is on an engine twice: {option.where}")
        _check_needs(problem, what, (*option.needs.items(), *option.ahead.items()))
        others = {budget.partition(".")[0] for budget in (*option.needs, *option.ahead)} - dict(option.where).keys()
        if wrong := [device for device in others if problem.class_of(device)]:
            raise ProblemError(f"{what} takes of {wrong[0]}, one of equal devices, and does not run there")
    for engine, needs in problem.engines.items():
        _check_needs(problem, f"the engine {engine!r}", needs.items())


def _check_needs(problem: Problem, what: str, needs: Iterable[tuple[str, Any]]) -> None:
    for budget, amount in needs:
        if budget not in problem.budgets:
            raise ProblemError(f"{what} needs {budget}, of which no budget is stated")
        _check(f"{what} needs of {budget}", amount)


def _check_numbers(problem: Problem) -> None:
    """ProblemError for flows, links, budgets, watts, depths and slowdowns that make no sense."""
    if not problem.depths or not all(isinstance(depth, Integral) and depth >= 0 for depth in problem.depths):
        raise ProblemError(f"depths must be one or more whole numbers from 0 on, not {problem.depths}")
    if isinstance(problem.hosts, str):
        raise ProblemError(f"hosts are a tuple of devices' names, not {problem.hosts!r}")
    for name, amount in problem.budgets.items():
        _check(f"the budget {name}", amount, math.inf)
    for device, watts in problem.watts.items():
        _check(f"the watts of {device}", watts)
    parts = ", ".join(problem.parts)
    for flow in problem.flows:
        if not {flow.source, flow.target} <= set(problem.parts):
            raise ProblemError(f"a flow from {flow.source!r} to {flow.target!r}; parts are {parts}")
        _check(f"bytes from {flow.source} to {flow.target}", flow.nbytes)
        _check(f"transfers from {flow.source} to {flow.target}", flow.times)
    for hop in (hop for way in problem.ways.values() for hop in way):
        _check(f"alpha of {hop.engine}", hop.alpha_seconds)
        _check(f"seconds per byte of {hop.engine}", hop.seconds_per_byte)
    for (part, other, device), factor in problem.slowdown.items():
        if not {part, other} <= set(problem.parts):
            raise ProblemError(f"a slowdown of {part!r} beside {other!r}; parts are {parts}")
        if not 0 < factor < math.inf:
            raise ProblemError(f"{part} beside {other} on {device} cannot take {factor} times as long")


def _check(what: str, value: Any, most: float = LONGEST) -> None:
    if not (isinstance(value, float) or isinstance(value, Real)) or not 0 <= float(value) <= most:
        raise ProblemError(f"{what} must be a number from 0 to {most:g}, not {value!r}")


def _check_equal(problem: Problem) -> None:
    """ProblemError where exchanging two devices of a class would change what is stated of them."""
    for first, other in ((devices[0], other) for devices in problem.equal for other in devices[1:]):
        for what in ("budgets", "watts", "hosts", "slowdown", "engines", "ways"):
            stated = getattr(problem, what)
            if _mirrored(stated, {first: other, other: first}) != _mirrored(stated, {}):
                raise ProblemError(f"{first} and {other} differ in {what}, so they are not equal; leave one out")


def _mirrored(stated: Any, names: Mapping[str, str]) -> Any:
    """What is stated of devices, by their other ``names``."""
    if isinstance(stated, str):
        return named(stated, names)
    if isinstance(stated, Mapping):
        return {_mirrored(key, names): _mirrored(value, names) for key, value in stated.items()}
    if isinstance(stated, tuple):
        return tuple(_mirrored(one, names) for one in stated)
    return (stated.alpha_seconds, stated.seconds_per_byte) if isinstance(stated, Hop) else stated
