"""What is chosen of all execution modes, what is statistically tied with it, and what alternatives differ in.

Statistically tied are configurations whose rates differ by less than their times are known to.

All times are drawn at once, log-normal by sides, an estimate's ends taken for its 95 %. Times that rest on the same
evidence are wrong together, so they share a draw, each within its own ends; all others are drawn independently. A
configuration is statistically tied with the best where the 95 % interval of the quotient of their values reaches
1 - epsilon: a learner that both use makes both uncertain, and their quotient not at all.

Of these, those that are expected to give at least half of the best's value are listed, since a ``frontier`` ends there.
Chosen is what takes least (devices, then cores, bytes moved, depth) of those that are expected to give ``GIVEN_UP``
less at most: a device or a core is not worth more, however little is known. With exact times epsilon alone decides.

Letters: d draws.
"""

import functools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np

from ..answer import Row, Values
from ..estimate import Estimate, Evidence, weakest
from ..records import Source
from ..solver.deciding import Spread, deciding, spread_of, timed_of
from ..solver.law import EPSILONS, GIVEN_UP, Factor, Objective, Reals, value_of
from ..solver.problem import TREE, Configuration, Hop, Option, Problem
from ..solver.solve import FRUGAL, TIED, Candidate, Infeasible, Search, Solution
from ..stats import CONFIDENCE, Z, frugal, percentile_interval
from .processes import ExecutionMode

DRAWS = 1000
STEPS_HZ = "gradient steps/s"
UNITS = {
    "ratio": STEPS_HZ, "fewest_devices": STEPS_HZ, "training": "gradient steps/s without actors",
    "per_watt": "gradient steps/J",
}  # fmt: skip
"""What a value is in, by the objective."""


def source_of(candidate: Candidate) -> Source:
    """Return the least sure source of all that a value rests on."""
    return weakest(timed.rests_on.source for timed in timed_of(candidate))


def cores(candidate: Candidate) -> float:
    """Cores that a configuration's engines and options take, whatever device they are of."""
    return float(candidate.key(("cores",))[0])


@dataclass(eq=False)
class JointUncertainty:
    """Values of configurations where all numbers are drawn jointly. ``choose`` is the rule; see above.

    ``exact``: equally good is what lies within epsilon, whatever is known of the times, in the order of ``TIED``.
    """

    objective: Objective
    epsilon: float
    exact: bool = False
    drawn: dict[Candidate, Reals] = field(default_factory=dict)

    def values(self, candidate: Candidate) -> Reals:
        """Values [d] of a candidate; the same draws for the same evidence, whoever asks."""
        if candidate not in self.drawn:
            self.drawn[candidate] = self._values(candidate, _drawn_factors)
        return self.drawn[candidate]

    def ends(self, candidate: Candidate) -> tuple[float, float]:
        """The 95 % interval of a candidate's value, which holds the value itself."""
        low, high = percentile_interval(self.values(candidate))
        return min(low, candidate.value), max(high, candidate.value)

    def row(
        self,
        candidate: Candidate,
        label: Values,
        says: str = "",
        more: Values | None = None,
        also: Iterable[Source] = (),
    ) -> Row:
        """A candidate's value with its 95 % interval, by the least sure source of all that it rests on and ``also``."""
        evidence = Evidence("rate", weakest([source_of(candidate), *also]))
        value = Estimate(candidate.value, *self.ends(candidate), evidence)
        return Row(label, value, UNITS[self.objective], more or {}, says, arrangement_of(candidate) == "pipelined")

    def chance(self, candidate: Candidate, other: Candidate) -> float:
        """The probability that one gives at least as much as another."""
        return float((self.values(candidate) >= self.values(other) * (1 - 1e-12)).mean())

    def no_worse(self, candidate: Candidate, best: Candidate) -> bool:
        """Whether one is statistically tied with the best."""
        if candidate.value >= best.value * (1 - self.epsilon):
            return True
        if self.exact or all(spread_of(timed) == (1.0, 1.0) for timed in (*timed_of(candidate), *timed_of(best))):
            return False
        quotient = self.values(candidate) / self.values(best)
        return bool(np.quantile(quotient, (1 + CONFIDENCE) / 2) >= 1 - self.epsilon)

    def group(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The best, and whatever is statistically tied with it: what may be chosen first, in the order of the rule."""
        best = max(candidates, key=lambda candidate: candidate.value)
        least = best.value * (1 - max(GIVEN_UP, self.epsilon))
        order = TIED if self.exact else FRUGAL
        tied = [candidate for candidate in candidates if self.no_worse(candidate, best)]
        return sorted(tied, key=lambda candidate: (candidate.value < least, *candidate.key(order)))

    def decisive(self, candidate: Candidate, other: Candidate) -> Evidence | None:
        """The evidence whose uncertainty moves the quotient of two values most; None where none moves it."""
        moved: dict[str, tuple[float, Evidence]] = {}
        for timed in (*timed_of(candidate), *timed_of(other)):
            evidence = timed.rests_on
            if evidence.id not in moved and spread_of(timed) != (1.0, 1.0):
                at = functools.partial(_ends_of, evidence.id)
                moves = float(np.ptp(np.log(self._values(candidate, at) / self._values(other, at))))
                moved[evidence.id] = moves, evidence
        most = max(moved.values(), key=lambda pair: pair[0], default=None)
        return most[1] if most and most[0] > self.epsilon / 10 else None

    def _values(self, candidate: Candidate, factor: Callable[[str, Spread], Reals]) -> Reals:
        """Values where every time has a slowdown of ``factor(evidence_id, spread)``."""
        slowdown: Factor = lambda timed: factor(timed.rests_on.id, spread_of(timed))  # noqa: E731
        values: Reals = value_of(candidate.problem, candidate.configuration, self.objective, slowdown)
        return values


@functools.cache
def _grid() -> Reals:
    """``DRAWS`` equally likely values of a normal distribution, 95 % of them within 1."""
    normal = NormalDist()
    return np.array([normal.inv_cdf((place + 0.5) / DRAWS) for place in range(DRAWS)]) / Z


@functools.cache
def normals(evidence_id: str) -> Reals:
    """What is drawn for a piece of evidence, [d]: the same in every answer, and independent of all other evidence."""
    return np.random.default_rng(zlib.crc32(evidence_id.encode())).permutation(_grid())


@functools.lru_cache(maxsize=1000)
def _drawn_factors(evidence_id: str, spread: Spread) -> Reals:
    z = normals(evidence_id)
    factors: Reals = np.exp(np.where(z > 0, z * np.log(spread[1]), -z * np.log(spread[0])))
    return factors


def _ends_of(evidence_id: str, name: str, spread: Spread) -> Reals:
    """Factors [3] of a time: its low end, itself and its high end if it rests on the evidence, else just itself."""
    return np.array([spread[0], 1.0, spread[1]] if name == evidence_id else [1.0, 1.0, 1.0])


def undominated(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those of which no other is as fast with no more devices and cores, and better in one of these; fastest first."""
    costs = {candidate: (len(candidate.outcome.devices), cores(candidate)) for candidate in candidates}
    fastest = sorted(costs, key=lambda candidate: (-candidate.value, *costs[candidate]))
    return [fastest[place] for place in frugal([costs[candidate] for candidate in fastest])]


@dataclass(frozen=True)
class Chosen:
    """The choice and what surrounds it.

    ``best``: what is expected to give most, where that is another one. ``ties``: what is statistically tied with the
    best, of which no other is as fast on as few devices and cores; ``others_tied``: how many more (kind of execution
    mode, devices of the parts) cannot. ``best_other_mapping``: the answer if its devices could not be had.
    ``decide``: what to measure to tell the choice from the best of those that tie, or from ``best_other_mapping``.
    """

    answer: Candidate
    found: Solution
    doubt: JointUncertainty = field(repr=False)
    best: Candidate | None
    ties: tuple[Candidate, ...]
    others_tied: int
    best_other_mapping: Candidate | None
    decide: Evidence | None

    def other(self, candidate: Candidate) -> Row:
        """An alternative that is statistically tied with the choice, which differs in its label from it."""
        more = {
            "pace": candidate.value / self.answer.value,
            "chance": self.doubt.chance(candidate, self.answer),
            "devices": candidate.outcome.devices,
            "cores": cores(candidate),
            "mapping": {option.part: option.device for option in candidate.configuration.options},
            "is_tied": True,
        }
        label = {"differs": difference(self.answer, candidate), "arrangement": arrangement_of(candidate)}
        return self.doubt.row(candidate, label, "tied", more)

    def decides(self, problems: Mapping[Any, Problem]) -> Iterator[Row]:
        """Yield what all that rests on a number makes of the choice at an end of its interval, by the factor there.

        What decides comes first, which says so; then what moves the rate most.
        """
        # Something may be better already: then that it is so by more than epsilon more is news.
        allowed = 1 - (1 - self.found.epsilon) * self.answer.value / max(self.found.best, self.answer.value)
        users = _users_of(problems.values())
        for end in deciding(problems, self.found.objective, self.answer, allowed):
            differs = difference(self.answer, end.winner) if end.winner else {}
            part, device = users[end.evidence_id]
            more = {
                "times": max(end.factor, 1 / end.factor),
                "value": end.value,
                "differs": differs,
                "gain": end.gain,
                "evidence": end.evidence_id,
            }
            says = "decides_if_longer" if end.factor > 1 else "decides_if_shorter"
            label = {"time_of": part, "on": device, "factor": end.factor}
            yield Row(label, more=more, says=says if differs else "")


def _users_of(problems: Iterable[Problem]) -> dict[str, tuple[str, str]]:
    """Return by evidence id the part that takes the time, and its device; of a link "link", and its ends."""
    parts, devices = dict[str, set[str]](), dict[str, str]()
    for timed in (timed for problem in problems for timed in problem.every_timed()):
        part, device = ("link", timed.link) if isinstance(timed, Hop) else (timed.part, timed.device)
        parts.setdefault(timed.rests_on.id, set()).add(part)
        devices.setdefault(timed.rests_on.id, device)
    several = {evidence_id: "tree" if names == set(TREE) else "whole loop" for evidence_id, names in parts.items()}
    alone = {evidence_id: name for evidence_id, (name, *others) in parts.items() if not others}
    return {evidence_id: (part, devices[evidence_id]) for evidence_id, part in (several | alone).items()}


def choose(problems: Mapping[Any, Problem], objective: Objective, epsilon: float | None) -> Chosen | Infeasible:
    """The answer of execution modes: equally good is what is statistically tied, or what is within an ``epsilon``."""
    search = Search(problems, objective)
    found = search.solve(EPSILONS[objective] if epsilon is None else epsilon)
    if isinstance(found, Infeasible):
        return found
    doubt = JointUncertainty(objective, found.epsilon, epsilon is not None)

    def group(search: Search) -> list[Candidate]:
        best, tied = search.list_tied(found.epsilon)
        if tied and epsilon is None:
            tied += search.frontier(best, len(tied[0].outcome.devices))
        return doubt.group(tied) if tied else []

    chosen, *rest = group(search)
    places = {place_of(candidate) for candidate in rest} - {place_of(chosen)}
    shown: dict[object, Candidate] = {}
    for candidate in undominated([chosen, *rest]):
        if candidate is not chosen:
            shown.setdefault(place_of(candidate), candidate)
    best = max((chosen, *rest), key=lambda candidate: candidate.value)
    best_other_mapping = next(iter(group(search.exclude(chosen.mapping))), None)
    other = max(rest, key=lambda candidate: candidate.value, default=best_other_mapping)
    return Chosen(
        chosen,
        found,
        doubt,
        best if best.value > chosen.value else None,
        tuple(shown.values()),
        len(places - shown.keys()),
        best_other_mapping,
        doubt.decisive(chosen, other) if other else None,
    )


def place_of(candidate: Candidate) -> tuple[object, ...]:
    """The arrangement of the execution mode, and the devices of each part: modes of one differ in their times alone."""
    return arrangement_of(candidate), candidate.mapping


def arrangement_of(candidate: Candidate) -> str:
    """The arrangement of the execution mode; a mode that is but a name is its own."""
    return candidate.mode.arrangement if isinstance(candidate.mode, ExecutionMode) else str(candidate.mode)


def difference(chosen: Candidate, other: Candidate) -> dict[str, Any]:
    """Return what an alternative has and the choice has not: by part its (device, option), else a value."""
    mine, yours = chosen.configuration, other.configuration
    found: dict[str, Any] = {}
    if arrangement_of(chosen) != arrangement_of(other):
        found["arrangement"] = arrangement_of(other)
    for part in ("actors", "learner", "storage"):
        if _named(mine.of(part)) != _named(yours.of(part)):
            found[part] = _named(yours.of(part))
    if _tree(mine) != _tree(yours):
        found |= _tree(yours)
    return found | ({"depth": yours.depth} if mine.depth != yours.depth else {})


def _tree(configuration: Configuration) -> dict[str, tuple[str, str]]:
    sampling, updating = configuration.sampling, configuration.updating
    if (sampling.where, sampling.name) == (updating.where, updating.name):
        return {"tree": _named(updating)}
    return {"sampling": _named(sampling), "updating": _named(updating)}


def _named(option: Option) -> tuple[str, str]:
    return " and ".join(device for device, _ in option.where), option.name
