"""What is known of a solution, as values, as plain values for JSON, and as text."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..estimate import Evidence, Interval, off, written
from .doubt import Candidate
from .objectives import Objective, bottleneck
from .problem import PARTS, TREE, Configuration, Option, Problem
from .queues import Simulated
from .search import Answer
from .sensitivity import Robustness
from .throughput import Outcome

SHOWN = 3  # lines of a kind in a text


@dataclass(frozen=True)
class Alternative:
    """Another configuration: ``described`` by what sets it apart from the choice, with its value and the ends of it.

    ``chance``: the probability that it gives at least as much as the choice. ``cost``: the share of the choice's value
    that it loses, negative where it is expected to gain.
    """

    described: str
    mode: str
    configuration: Configuration
    outcome: Outcome
    value: float
    low: float
    high: float
    interval: Interval
    chance: float
    cost: float
    cores: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        names = ("described", "mode", "value", "low", "high", "interval", "chance", "cost", "cores")
        plain = {name: getattr(self, name) for name in names}
        return plain | {"devices": list(self.outcome.devices)} | plain_choice(self.configuration)


@dataclass(frozen=True)
class Solution:
    """What to choose of one or more problems, each an execution mode, and how sure that is.

    ``value`` by the objective, in [low, high], whose meaning ``interval`` says. ``best``: what is expected to give
    most, where that is another one. ``ties``: what cannot be told apart from the best, of which no other is as fast on
    as few devices and cores; ``others_tied``: how many more (execution mode, devices of the parts) cannot. The
    ``runner_up`` is the answer if just this configuration could not be had; ``elsewhere`` if its devices could not.
    ``bound``, ``learner_hz``, ``configurations``: as in ``Found``. ``survival``: by evidence, from which factor on
    something else is better. ``evidence``: all that the choice rests on. ``decide``: what to measure to tell the choice
    from the best of ``ties``. ``simulated``: runs of the choice; ``value`` is a bound, which batches that meet on their
    way stay below. ``problem``: that of the mode.
    """

    objective: Objective
    epsilon: float
    mode: str
    choice: Configuration
    outcome: Outcome
    value: float
    low: float
    high: float
    interval: Interval
    best: Alternative | None
    ties: tuple[Alternative, ...]
    others_tied: int
    runner_up: Alternative | None
    elsewhere: Alternative | None
    bound: float
    learner_hz: float
    survival: tuple[Robustness, ...]
    evidence: tuple[Evidence, ...]
    decide: Evidence | None
    simulated: tuple[Simulated, ...]
    configurations: int
    problem: Problem

    @property
    def candidate(self) -> Candidate:
        """The choice with its problem, to be compared with others."""
        return Candidate(self.mode, self.problem, Answer(self.choice, self.outcome, self.value))

    @property
    def bottleneck(self) -> str:
        """The engine that bounds the value, or ``LOOP_BOUND``."""
        return bottleneck(self.objective, self.outcome)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        names = ("objective", "epsilon", "mode", "value", "low", "high", "interval", "others_tied", "bound")
        plain = {name: getattr(self, name) for name in (*names, "learner_hz", "configurations", "bottleneck")}
        plain |= plain_choice(self.choice) | {"hz": self.outcome.hz, "devices": list(self.outcome.devices)}
        plain |= {"busy": dict(self.outcome.busy), "watts": self.outcome.watts}
        others = {name: getattr(self, name) for name in ("best", "runner_up", "elsewhere")}
        plain |= {name: other and other.to_dict() for name, other in others.items()}
        plain["ties"] = [other.to_dict() for other in self.ties]
        for name in ("survival", "evidence", "simulated"):
            plain[name] = [dict(vars(one)) for one in getattr(self, name)]
        return plain | {"decide": self.decide and dict(vars(self.decide))}

    def __str__(self) -> str:
        return "\n".join(_text(self))


def plain_choice(configuration: Configuration) -> dict[str, Any]:
    """A configuration as plain values: its parts, and the depth."""
    parts = [
        {"part": one.part, "device": one.device, "engine": one.engine, "choice": one.name, "seconds": one.seconds}
        | {"low": one.time.low, "high": one.time.high, "number": one.time.rests_on.number, "source": one.time.source}
        for one in configuration.options
    ]
    return {"parts": parts, "depth": configuration.depth}


def kind(mode: str) -> str:
    """The kind of an execution mode, before the comma of its name: modes of a kind differ in their times alone.

    >>> kind("apart, 2 actors"), kind("serial")
    ('apart', 'serial')
    """
    return mode.partition(",")[0]


def difference(chosen: tuple[str, Configuration], other: tuple[str, Configuration]) -> str:
    """What an alternative has and the choice has not, in words; each is given with its execution mode."""
    (here, mine), (there, yours) = chosen, other
    words = [kind(there)] if kind(here) != kind(there) else []
    for part in ("actors", "learner", "storage"):
        one, two = mine.of(part), yours.of(part)
        if (_devices(one), one.name) != (_devices(two), two.name):
            words.append(f"{part} on {_devices(two)}" + (f" ({two.name})" if two.name != one.name else ""))
    if _tree(mine) != _tree(yours):
        words.append(_tree(yours))
    if mine.depth != yours.depth:
        words.append(f"{yours.depth} batches sampled ahead")
    return ", ".join(words) or "another of these names"


def _devices(option: Option) -> str:
    return " and ".join(device for device, _ in option.where)


def _tree(one: Configuration) -> str:
    sampling, updating = one.sampling, one.updating
    if (sampling.where, sampling.name) == (updating.where, updating.name):
        return f"tree on {_named(updating)}"
    if sampling.device == updating.device and sampling.name == updating.name:
        return f"tree on {_named(updating)}, sampling and updating apart"
    return f"sampling on {_named(sampling)}, updating on {_named(updating)}"


def _named(option: Option) -> str:
    return f"{_devices(option)} ({option.name})"


def _text(solution: Solution) -> Iterator[str]:
    """A full answer in some fifteen lines."""
    chosen = solution.choice
    alone = [f"{part} on {_named(chosen.of(part))}" for part in PARTS if part not in TREE]
    ahead = f"{chosen.depth} batches sampled ahead"
    yield (f"{kind(solution.mode)}: " if solution.mode else "") + ", ".join([*alone, _tree(chosen), ahead])
    yield f"at most {_rate(solution)}, bound by {solution.bottleneck}"
    for run in solution.simulated:
        times = "exponential times" if run.cv else "exact times"
        yield f"simulated with {times}: {run.hz:.3g} a second [{run.low:.3g}, {run.high:.3g}]"
    if solution.best:
        yield f"expected to give most: {_other(solution.best)}"
    for other in solution.ties[:SHOWN]:
        yield f"cannot be told apart: {_other(other)}"
    if more := solution.others_tied + len(solution.ties[SHOWN:]):
        others = "more" if solution.ties else f"other{'s' * (more > 1)}, none faster or on less,"
        yield f"{more} {others} cannot be told apart"
    if evidence := solution.decide:
        purpose = "to decide" if solution.ties or solution.others_tied else "to be surer of this than of the next"
        yield f"{purpose}, measure {evidence.number}" + (f": {evidence.command}" if evidence.command else "")
    if solution.runner_up and not solution.ties:
        yield f"next: {_other(solution.runner_up)}"
    statements = [sentence for one in solution.survival for sentence in one.statements]
    more_of = "gives more steps a joule" if solution.objective == "per_watt" else "is faster"
    yield from (sentence.replace("is faster", more_of) for sentence in statements[:SHOWN])
    if not any(one.up or one.down for one in solution.survival):
        yield "no single time that is wrong by up to 30 times changes the choice"


def _rate(solution: Solution) -> str:
    """The value with its factor, or its interval where it has one."""
    unit = "joule" if solution.objective == "per_watt" else "second"
    factor = off(solution.value, solution.low, solution.high)
    rate = written(f"{solution.value:.3g} gradient steps a {unit}", factor, solution.interval)
    return rate + (f" [{solution.low:.3g}, {solution.high:.3g}]" if solution.interval == "95 %" else "")


def _other(other: Alternative) -> str:
    return f"{other.described}, {other.value:.3g} ({other.chance:.0%} likely to be as good)"
