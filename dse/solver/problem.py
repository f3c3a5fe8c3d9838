"""A mapping problem as plain values: what each part of a training system could run on, and what that would take.

A training system has five **parts**. Actors step environments and insert records; for each gradient step a batch of B
is sampled (sampling), its records are gathered (storage), the learner trains on it, and its new priorities are written
(updating). Sampling and updating work on the sum **tree**: one tree on a device, or copies on two. A **configuration**
chooses an option for each part, and how many batches are under way at once.

Letters: B batch, E bytes of a record, u environment steps a gradient step, N capacity, D batches sampled ahead.
Times are seconds, bytes are traffic; both are those of one gradient step.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, Literal

from ..estimate import Estimate, Evidence

Part = Literal["actors", "sampling", "storage", "learner", "updating"]
PARTS: tuple[Part, ...] = ("actors", "sampling", "storage", "learner", "updating")
LOOP: tuple[Part, ...] = ("sampling", "storage", "learner", "updating")
"""What a batch passes through, in order; then the next one may be sampled."""
TREE: tuple[Part, ...] = ("sampling", "updating")
"""What works on the sum tree."""


SHORTEST, LONGEST = 1e-30, 1e30
"""Bounds of seconds, and of other numbers, within which no sum or quotient of them leaves the floats."""


class ProblemError(ValueError):
    """A problem or a question makes no sense; the message names the value and the remedy."""


@dataclass(frozen=True)
class Option:
    """A way to run a part: a device, the time of a gradient step there, and what it takes of the budgets.

    What the ends of the time mean, ``time.interval`` says: 95 % of what was timed, or an assumed factor.

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


Choice = tuple[Option, ...]
"""What is chosen at once: an option of one part, or (sampling, updating) of a tree."""


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

    ``options``: of each part. ``trees``: pairs of options (sampling, updating) that go together, one tree on a device
    or copies on two; then ``options`` has neither of the two parts. Without ``trees`` any pair goes.
    ``ways``: the links between two devices, by (from, to). ``depths``: allowed D. ``slowdown``: factor on the time of a
    part (first) while another one (second) runs on an engine of its own on the same device (third); 1 where nothing is
    stated. ``watts`` by device, where known. ``hosts``: devices that are in use in any case. ``engines``: what an
    engine takes of the budgets, by its name, once for all that runs on it: a core for the process that replays.
    """

    options: Mapping[Part, tuple[Option, ...]]
    budgets: Mapping[str, float]
    flows: tuple[Flow, ...] = ()
    ways: Mapping[tuple[str, str], tuple[Hop, ...]] = field(default_factory=dict)
    depths: tuple[int, ...] = (0,)
    slowdown: Mapping[tuple[Part, Part, str], float] = field(default_factory=dict)
    watts: Mapping[str, float] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    trees: tuple[tuple[Option, Option], ...] = ()
    engines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("options", "budgets", "ways", "slowdown", "watts", "engines"):
            if not isinstance(given := getattr(self, name), Mapping):
                raise ProblemError(f"{name} of a problem are a mapping, not {given!r:.80}")
        _check_options(self)
        _check_numbers(self)

    @property
    def axes(self) -> tuple[tuple[Choice, ...], ...]:
        """What there is to choose, one choice of each: options of a part alone, and trees."""
        alone = [tuple((option,) for option in self.options[part]) for part in PARTS if part in self.options]
        return (*alone, self.trees) if self.trees else tuple(alone)

    def every_option(self) -> Iterator[Option]:
        """All options, those of trees as often as they stand in one."""
        for choices in self.axes:
            for choice in choices:
                yield from choice

    def having(self, part: Part, *options: Option) -> "Problem":
        """The same with these options for a part. Not for a part of a tree."""
        return replace(self, options={**self.options, part: options})


@dataclass(frozen=True)
class Configuration:
    """One option for each part, and D batches sampled ahead (so D + 1 are under way)."""

    actors: Option
    sampling: Option
    storage: Option
    learner: Option
    updating: Option
    depth: int = 0

    @property
    def options(self) -> tuple[Option, ...]:
        """In the order of ``PARTS``."""
        return (self.actors, self.sampling, self.storage, self.learner, self.updating)

    def having(self, *options: Option) -> "Configuration":
        """The same with these options for their parts."""
        changed: dict[str, Any] = {option.part: option for option in options}
        return replace(self, **changed)

    def of(self, part: Part) -> Option:
        """The option of a part."""
        option: Option = getattr(self, part)
        return option


def _check_options(problem: Problem) -> None:
    """ProblemError unless every part has options, each where it belongs."""
    for part in PARTS:
        of_tree = bool(problem.trees) and part in TREE
        if not of_tree and not problem.options.get(part):
            raise ProblemError(f"nothing can run the part {part!r}: give it an option on some device")
        if of_tree and part in problem.options:
            raise ProblemError(f"the part {part!r} has its options in trees; give it no others")
    for pair in problem.trees:
        if [getattr(option, "part", None) for option in pair] != list(TREE):
            raise ProblemError(f"a tree is an option of sampling and one of updating, in this order, not {pair}")
    for part, option in ((part, option) for part, options in problem.options.items() for option in options):
        if part not in PARTS or option.part != part:
            raise ProblemError(f"{option.name!r} is an option of {option.part!r}, not of {part!r}")
    _check_needs(problem)


def _check_needs(problem: Problem) -> None:
    """ProblemError for a time or a need of an option that makes no sense."""
    for option in {id(option): option for option in problem.every_option()}.values():  # once, in however many trees
        if not isinstance(option.time, Estimate) or not SHORTEST <= option.seconds <= LONGEST:
            time = getattr(option.time, "value", option.time)
            raise ProblemError(
                f"{option.part} {option.name!r} must take an Estimate from {SHORTEST:g} to {LONGEST:g} s, not {time}"
            )
        for budget, amount in (*option.needs.items(), *option.ahead.items()):
            _check_need(problem, f"{option.part} {option.name!r}", budget, amount)
        if len({engine for _, engine in option.where}) < len(option.where):
            raise ProblemError(f"{option.part} {option.name!r} is on an engine twice: {option.where}")
    for engine, needs in problem.engines.items():
        for budget, amount in needs.items():
            _check_need(problem, f"the engine {engine!r}", budget, amount)


def _check_need(problem: Problem, what: str, budget: str, amount: Any) -> None:
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
    for flow in problem.flows:
        if flow.source not in PARTS or flow.target not in PARTS:
            raise ProblemError(f"a flow from {flow.source!r} to {flow.target!r}; parts are {', '.join(PARTS)}")
        _check(f"bytes from {flow.source} to {flow.target}", flow.nbytes)
        _check(f"transfers from {flow.source} to {flow.target}", flow.times)
    for hop in (hop for way in problem.ways.values() for hop in way):
        _check(f"alpha of {hop.engine}", hop.alpha_seconds)
        _check(f"seconds per byte of {hop.engine}", hop.seconds_per_byte)
    for (part, other, device), factor in problem.slowdown.items():
        if part not in PARTS or other not in PARTS:
            raise ProblemError(f"a slowdown of {part!r} beside {other!r}; parts are {', '.join(PARTS)}")
        if not 0 < factor < math.inf:
            raise ProblemError(f"{part} beside {other} on {device} cannot take {factor} times as long")


def _check(what: str, value: Any, most: float = LONGEST) -> None:
    if not (isinstance(value, float) or isinstance(value, Real)) or not 0 <= float(value) <= most:
        raise ProblemError(f"{what} must be a number from 0 to {most:g}, not {value!r}")
