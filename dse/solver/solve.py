"""The best configuration, exactly: decide where every part runs, then look at all options of these places at once.

Several problems may be solved together, each an **execution mode** of the same training system, such as all parts in
one process. The **value** of a configuration is its rate in gradient steps/s, or per joule (``law.py``). Configurations
whose value is at least (1 - epsilon) times the best value of all are **tied**: times the best one, not the next one,
since "within epsilon of each other" is no order. The answer is the tied configuration with the smallest
``Candidate.key``.

1. A **group** has the choices of an axis that run on the same devices and engines. Only ``undominated`` choices stay: a
   choice that takes no more time and no more of any budget can replace a dominated one of its group in every
   configuration, since both use the same engines and links.
2. A **placement** takes a group of each axis. That settles which parts share an engine, and which links and devices
   are used. ``every_placement`` makes one of those that differ only by an exchange of equal devices.
3. The **bound** of a placement is its value if every part took its fewest seconds there. Placements are searched from
   the largest bound on, until no later one can be tied with the best.
4. The values of a placement are one array, with an axis for D and for each axis of the problem. A large placement is
   halved, some choices of an axis in each half; halves that cannot fit, or whose bound is too low, are skipped. Sums
   are taken in the order of ``law.charges``, so values equal those of ``law.outcome`` to the last bit.

Letters: a axis of an array (0 is that of D), D batches sampled ahead.
"""

import copy
import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..stats import front_of, frugal
from . import law
from .law import Factor, Objective, Outcome, Reals, Where, unscaled
from .problem import Choice, Configuration, Option, Part, Problem, ProblemError, named

AT_ONCE = 1 << 15
"""Configurations of a placement; larger ones are halved."""
TIED = ("devices", "bytes", "depth", "cores", "seconds")
FRUGAL = ("devices", "cores", "bytes", "depth", "seconds")
"""Costs in an ``Candidate.key``, the most important first: those of the answer, and of a ``frontier``."""
SHARES = (1.0, 0.99, 0.95, 0.9, 0.8, 0.65, 0.5)
"""Shares of the best value that a ``frontier`` asks for."""
Pick = Callable[[NDArray[Any]], Any]
"""Picks something of an array, such as its least number."""


# Answers


@dataclass(frozen=True, eq=False)
class Candidate:
    """A configuration of an execution mode, with what it gives and its value. Equal only to itself.

    ``place``: the place of the mode among all modes.
    """

    mode: Any
    problem: Problem = field(repr=False)
    configuration: Configuration
    outcome: Outcome
    value: float
    place: int = field(repr=False)

    @property
    def mapping(self) -> tuple[tuple[str, ...], ...]:
        """The devices of each part."""
        return mapping_of(self.configuration.where)

    def trade(self, has_watts: bool) -> tuple[float, ...]:
        """(value, -bytes over links, -watts if these are known): larger is better in each."""
        watts = [-self.outcome.watts] if has_watts and self.outcome.watts is not None else []
        return self.value, -self.outcome.bytes_moved, *watts

    def key(self, order: Sequence[str]) -> tuple[Any, ...]:
        """Its costs in an order, then the place of its mode and the keys of its options. The smallest key wins."""
        costs = law.costs_of(self.problem, self.configuration)
        options = [option_key(self.problem, option) for option in self.configuration.options]
        return *(costs[name] for name in order), self.place, options


@dataclass(frozen=True)
class Solution:
    """The answer and its alternatives.

    ``best``: the largest value of all. ``ties``: of each other execution mode and mapping of parts to devices the tied
    configuration with the smallest key, in order. ``best_other_mapping``: the answer if its mapping could not be
    had, None where there is no other. ``bound``: the value of every part on its fastest option at once, without
    sharing, transfers or budgets. ``configurations``: the number of all; mirror images, on other ones of equal devices,
    are not in it.
    """

    objective: Objective
    epsilon: float
    answer: Candidate
    best: float
    ties: tuple[Candidate, ...]
    best_other_mapping: Candidate | None
    bound: float
    configurations: int

    @property
    def choice(self) -> Configuration:
        """The configuration that is recommended."""
        return self.answer.configuration

    @property
    def value(self) -> float:
        """Its value by the objective."""
        return self.answer.value


@dataclass(frozen=True)
class Repair:
    """Budgets, name to (have, need), and ``ways`` to add, (from, to), that together would be enough."""

    budgets: dict[str, tuple[float, float]]
    ways: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        short = [f"{name} has {have:g} of {need:g}" for name, (have, need) in self.budgets.items()]
        return " and ".join(short + [f"no link from {source} to {target}" for source, target in self.ways])


@dataclass(frozen=True)
class Infeasible:
    """Nothing fits; each of ``repairs`` would change that. They are as small as any: one budget or link if one does."""

    repairs: tuple[Repair, ...]
    configurations: int

    def __str__(self) -> str:
        return "nothing fits: " + "; or ".join(map(str, self.repairs))


def mapping_of(where: Where) -> tuple[tuple[str, ...], ...]:
    """The devices of each part, first the one that its transfers go to.

    >>> mapping_of({"actors": (("cpu", "cpu.actors"),), "learner": (("gpu1", "gpu1"), ("gpu0", "gpu0"))})
    (('cpu',), ('gpu1', 'gpu0'))
    """
    return tuple((first, *sorted(device for device, _ in others)) for (first, _), *others in where.values())


def option_key(problem: Problem, option: Option) -> tuple[Any, ...]:
    """The order of options of a part: seconds, devices and engines, needs, name, interval and evidence."""
    budgets, time = sorted(problem.budgets), option.time
    needs = tuple(taken.get(budget, 0.0) for taken in (option.needs, option.ahead) for budget in budgets)
    evidence = time.rests_on.id, time.rests_on.source
    return time.value, option.where, needs, option.name, time.low, time.high, *evidence


# Groups

Names = tuple[tuple[str, str], ...]
"""(device, the one of its class that stands in its place)."""


class Column:
    """The options of a part in a group, as one option whose numbers are arrays of this ``shape``."""

    def __init__(self, options: Sequence[Option], shape: Sequence[int]) -> None:
        def arrays(needs: Sequence[Mapping[str, float]]) -> dict[str, Reals]:
            budgets = dict.fromkeys(itertools.chain(*needs))
            return {budget: np.reshape([each.get(budget, 0.0) for each in needs], shape) for budget in budgets}

        self.options, self.part, self.where = options, options[0].part, options[0].where
        self.seconds = np.reshape([option.seconds for option in options], shape)
        self.needs = arrays([option.needs for option in options])
        self.ahead = arrays([option.ahead for option in options])

    def scaled(self, factor: Factor) -> Reals:
        """The seconds with a factor."""
        if factor is unscaled:
            return self.seconds
        return self.seconds * np.reshape([factor(option) for option in self.options], self.seconds.shape)

    def picked(self, pick: Pick) -> "Column":
        """The same with what is picked of each array."""
        column = copy.copy(self)
        column.seconds = pick(self.seconds)
        column.needs = {budget: pick(each) for budget, each in self.needs.items()}
        column.ahead = {budget: pick(each) for budget, each in self.ahead.items()}
        return column


class Group:
    """Choices of an axis that run on the same devices and engines, with a column for each of their parts."""

    def __init__(self, choices: Sequence[Choice], shape: Sequence[int]) -> None:
        self.choices, self.shape = choices, shape
        self.columns = [Column(options, shape) for options in zip(*choices, strict=True)]
        self.sites = {column.part: [device for device, _ in column.where] for column in self.columns}

    def on(self, names: Names) -> "Group":
        """The same choices on the devices that ``names`` put in place of their own."""
        if all(own == other for own, other in names):
            return self
        return Group([tuple(option.on(dict(names)) for option in choice) for choice in self.choices], self.shape)


def groups_of(problem: Problem, by_evidence: bool = False) -> list[list[Group]]:
    """The undominated choices of each axis by group; ``by_evidence``: those of each evidence that times rest on."""
    axes, numbered = [], len(problem.axes) + 1
    for axis, choices in enumerate(problem.axes, 1):
        alike, kept = defaultdict[Any, list[Choice]](list), defaultdict[Any, list[Choice]](list)
        for choice in choices:
            numbers = tuple(option.rests_on.id for option in choice if by_evidence)
            alike[tuple(option.where for option in choice), numbers].append(choice)
        for (where, _), each in alike.items():
            kept[where] += undominated(problem, each)
        shape = [-1 if a == axis else 1 for a in range(numbered)]
        axes.append([Group(each, shape) for each in kept.values()])
    return axes


def undominated(problem: Problem, choices: Iterable[Choice]) -> list[Choice]:
    """The choices of a group that no other one can replace, in the order of their keys; of equal ones the first."""
    keyed = [([option_key(problem, option) for option in choice], choice) for choice in choices]
    keyed.sort(key=lambda pair: pair[0])
    costs = [[cost for seconds, _, needs, *_ in keys for cost in (seconds, *needs)] for keys, _ in keyed]
    return [keyed[position][1] for position in frugal(costs)]


# Placements


class Placement:
    """A group for each axis: where every part runs, and the configurations there.

    ``factor``: on all times. ``bound``: the value if every part took its fewest seconds; 0 where links are missing.
    """

    def __init__(
        self, mode: Any, problem: Problem, objective: Objective, groups: Sequence[Group], factor: Factor = unscaled
    ) -> None:
        self.mode, self.problem, self.objective, self.groups, self.factor = mode, problem, objective, groups, factor
        columns = {column.part: column for group in groups for column in group.columns}
        self.columns = [columns[part] for part in problem.parts]
        self.depths = np.reshape(np.unique(problem.depths), [-1] + [1] * len(groups))
        self.shape = (len(self.depths), *(len(group.choices) for group in groups))
        self.where = {column.part: column.where for column in self.columns}
        self.devices, self.mapping = law.devices_of(problem, self.where), mapping_of(self.where)
        self.watts = law.watts_of(problem, self.devices, objective)
        self.missing_ways = law.missing_ways(problem, self.where)
        fewest = {column.part: column.scaled(factor).min() for column in self.columns}
        self.bound = 0.0 if self.missing_ways else float(self.rate(fewest, self.depths.max()))

    def rate(self, seconds: Mapping[Part, Any], depth: Any) -> Any:
        """The value where parts take these seconds."""
        return law.rate(self.problem, self.where, seconds, depth, self.objective, self.factor)

    def scaled(self, factor: Factor) -> "Placement":
        """The same placement with a factor on all times."""
        return Placement(self.mode, self.problem, self.objective, self.groups, factor)

    def as_one(self, pick: Pick = lambda array: array) -> Configuration:
        """All configurations as one whose numbers are arrays, or what is picked of these, such as the least."""
        options: list[Any] = [column.picked(pick) for column in self.columns]
        return Configuration(tuple(options), pick(self.depths))

    def values(self) -> Reals:
        """The value of each configuration, 0 where it does not fit."""
        values = self.rate({column.part: column.scaled(self.factor) for column in self.columns}, self.depths)
        most, each = law.sum_needs(self.problem, self.as_one(np.ndarray.max)), self.as_one()
        for budget, have in self.problem.budgets.items():
            if most[budget] > have:
                values = np.where(law.sum_needs(self.problem, each, [budget])[budget] <= have, values, 0.0)
        return np.broadcast_to(values, self.shape)

    @functools.cached_property
    def may_fit(self) -> bool:
        """Whether the least needs fit."""
        least = law.sum_needs(self.problem, self.as_one(np.ndarray.min))
        return all(least[budget] <= have for budget, have in self.problem.budgets.items())

    def parts(self, is_worth: Callable[["Placement"], bool]) -> Iterator["Placement"]:
        """Yield the placement in parts of at most ``AT_ONCE`` configurations, without those that are not worth it."""
        waiting = [self]
        while waiting:
            # Invariant: all that is worth it and was not yielded is in a part that waits; the largest bound is last.
            part = waiting.pop()
            if math.prod(part.shape) <= AT_ONCE or max(part.shape[1:]) == 1:
                yield part
            else:
                waiting += sorted(filter(is_worth, part.halves), key=lambda half: half.bound)

    @functools.cached_property
    def halves(self) -> list["Placement"]:
        """The placement with either half of the choices of its longest axis."""
        longest = max(self.groups, key=lambda group: len(group.choices))
        middle, halves = len(longest.choices) // 2, []
        for choices in (longest.choices[:middle], longest.choices[middle:]):
            groups = [Group(choices, group.shape) if group is longest else group for group in self.groups]
            halves.append(Placement(self.mode, self.problem, self.objective, groups, self.factor))
        return halves

    def parts_worth(self, is_worth: Callable[[float], bool]) -> Iterator[tuple["Placement", Reals]]:
        """Yield (part, its values) of all parts with a value that is worth it."""
        if not is_worth(self.bound):
            return
        for part in self.parts(lambda half: is_worth(half.bound) and half.may_fit):
            values = part.values()
            if is_worth(values.max()):
                yield part, values

    @functools.cached_property
    def best(self) -> float:
        """The largest value of all that fits, 0 if nothing does."""

        def is_better(value: float) -> bool:
            return value > best

        best = 0.0
        for _, values in self.parts_worth(is_better):
            best = float(values.max())
        return best

    def first(self, least: float, order: Sequence[str] = TIED) -> Configuration:
        """The configuration with the smallest key of those that are worth at least ``least``, of which there is one."""
        found = []
        for part, values in self.parts_worth(lambda value: value >= least):
            costs, kept, smallest = law.costs_of(self.problem, part.as_one()), values >= least, []
            for cost in (np.broadcast_to(costs[name], part.shape) for name in order):
                smallest.append(cost[kept].min())
                kept = kept & (cost == smallest[-1])
            for at in np.argwhere(kept).tolist():
                chosen = part.configuration(at)
                found.append((smallest, [option_key(self.problem, option) for option in chosen.options], chosen))
        return min(found, key=lambda one: one[:2])[-1]

    def configuration(self, at: Sequence[int]) -> Configuration:
        """The configuration at a place of the array."""
        options = {}
        for group, place in zip(self.groups, at[1:], strict=True):
            options.update({option.part: option for option in group.choices[place]})
        return Configuration(tuple(options[part] for part in self.problem.parts), int(self.depths.flat[at[0]]))

    def ideal(self) -> float:
        """The value of every part on its fastest option at once, without sharing, transfers or budgets."""
        slower, loop = law.slowdowns(self.problem, self.where), self.problem.loop
        spent = {column.part: column.seconds.min() * min(slower[column.part], 1.0) for column in self.columns}
        counted = loop if self.objective == "training" else self.problem.parts
        under_way = sum(spent[part] for part in loop) / (self.depths.max() + 1)
        return float(1 / max(under_way, *(spent[part] for part in counted)) / self.watts)


# The search


class Search:
    """The placements of all execution modes, the largest bound first.

    ``by_evidence``: with all choices that may be in the best configuration where times that rest on one number change.
    ProblemError for ``per_watt`` where the watts of a device are not stated.
    """

    def __init__(self, problems: Mapping[Any, Problem], objective: Objective, by_evidence: bool = False) -> None:
        self.problems, self.objective = problems, objective
        placements = [
            Placement(mode, problem, objective, groups)
            for mode, problem in problems.items()
            for groups in every_placement(problem, groups_of(problem, by_evidence))
        ]
        self.placements = sorted(placements, key=lambda placement: -placement.bound)

    def among(self, is_wanted: Callable[[Placement], bool]) -> "Search":
        """The same search among some of the placements."""
        search = copy.copy(self)
        search.placements = list(filter(is_wanted, self.placements))
        return search

    def exclude(self, mapping: tuple[tuple[str, ...], ...]) -> "Search":
        """The same search without a mapping, in whatever mode."""
        return self.among(lambda placement: placement.mapping != mapping)

    def answer(self, mode: Any, chosen: Configuration) -> Candidate:
        """A configuration with what it gives."""
        problem, place = self.problems[mode], list(self.problems).index(mode)
        value = float(law.value_of(problem, chosen, self.objective))
        return Candidate(mode, problem, chosen, law.outcome(problem, chosen), value, place)

    def list_tied(self, epsilon: float) -> tuple[float, list[Candidate]]:
        """(the best value, ``list_firsts`` of the configurations that are tied with it)."""
        best = 0.0
        for placement in self.placements:
            # Invariant: best is the largest value of the placements before, whose bounds are at least this one's.
            if placement.bound < best * (1 - epsilon):
                break
            best = max(best, placement.best)
        return best, self.list_firsts(best * (1 - epsilon), TIED)

    def list_firsts(self, least: float, order: Sequence[str]) -> list[Candidate]:
        """The smallest key of each mode and mapping among values of at least ``least`` > 0; smallest keys first."""
        worth = itertools.takewhile(lambda placement: placement.bound >= least > 0, self.placements)
        answers = [self.answer(one.mode, one.first(least, order)) for one in worth if one.best >= least]
        firsts: dict[Any, Candidate] = {}
        for answer in sorted(answers, key=lambda answer: answer.key(order)):
            firsts.setdefault((answer.mode, answer.mapping), answer)
        return list(firsts.values())

    def frontier(self, best: float, most_devices: int) -> list[Candidate]:
        """For each of ``SHARES`` of the best value, mode and mapping, what takes least; fastest first.

        Mappings to more devices are omitted: with many equal ones those are most of all.
        """
        few = self.among(lambda placement: len(placement.devices) <= most_devices)
        every = [answer for share in SHARES for answer in few.list_firsts(best * share, FRUGAL)]
        return sorted(every, key=lambda answer: -answer.value)

    def front(self) -> tuple[list[Candidate], list[str]]:
        """(the best trades of value, watts and bytes over links, largest value first; devices of unknown watts).

        No other configuration has as large a value, as few watts and as few bytes, and is better in one of these; of
        equal ones the smallest key is there. With devices of unknown watts the front is of value and bytes alone.
        """
        groups = defaultdict[Any, list[Placement]](list)
        for placement in self.placements:
            if placement.bound > 0:
                watts = tuple(map(placement.problem.watts.get, placement.devices))
                groups[watts, law.sum_bytes(placement.problem, placement.where)].append(placement)
        # Configurations of a group have the same watts and bytes, so that none but its best can be on the front.
        best = [answer for group in groups.values() for answer in self.among(group.__contains__).list_tied(0.0)[1][:1]]
        best.sort(key=lambda answer: (-answer.value, *answer.key(TIED)))
        unknown = {name for answer in best for name in answer.outcome.devices if name not in answer.problem.watts}
        return [best[place] for place in front_of([answer.trade(not unknown) for answer in best])], sorted(unknown)

    def solve(self, epsilon: float) -> Solution | Infeasible:
        """The answer and its alternatives, or what lacks where nothing fits."""
        problems = self.problems.values()
        count = sum(math.prod(map(len, problem.axes)) * len(problem.depths) for problem in problems)
        best, answers = self.list_tied(epsilon)
        if not answers:
            return Infeasible(tuple(list_repairs(self.placements)), count)
        first, *ties = answers
        _, others = self.exclude(first.mapping).list_tied(epsilon)
        bound = max(placement.ideal() for placement in self.placements)
        return Solution(self.objective, epsilon, first, best, tuple(ties), next(iter(others), None), bound, count)


def solve(
    problems: Problem | Mapping[Any, Problem], objective: Objective = "ratio", epsilon: float | None = None
) -> Solution | Infeasible:
    """The answer of one problem, or of several, each an execution mode by its name.

    ``epsilon``: in [0, 1), the objective's own where not given. ProblemError for an unknown objective, another epsilon,
    no problem, or ``per_watt`` where the watts of a device are not stated.
    """
    if not isinstance(problems, Problem | Mapping) or not problems:
        raise ProblemError(f"what is solved is a Problem, or several by the names of their modes, not {problems!r:.80}")
    modes = {"": problems} if isinstance(problems, Problem) else dict(problems)
    for mode, problem in modes.items():
        if not ((isinstance(mode, str) or is_dataclass(mode)) and isinstance(problem, Problem)):
            raise ProblemError(f"a mode is a name and its Problem, not {mode!r:.80} and {problem!r:.80}")
    if objective not in law.OBJECTIVES:
        raise ProblemError(f"the objective is one of {', '.join(law.OBJECTIVES)}, not {objective!r}")
    epsilon = law.EPSILONS[objective] if epsilon is None else epsilon
    if not 0 <= epsilon < 1:
        raise ProblemError(f"epsilon is a share of the best value, from 0 up to 1, not {epsilon}")
    return Search(modes, objective).solve(epsilon)


# Equal devices


def every_placement(problem: Problem, axes: Sequence[Sequence[Group]]) -> Iterator[list[Group]]:
    """Yield every way to take a group of each axis and to put it on some of equal devices.

    Placements that differ by an exchange of equal devices are **mirror images**, of which one is made: that whose parts
    use the devices of a class in order.
    """
    placements, on = list[list[Group]]([[]]), functools.cache(Group.on)
    for groups in axes:
        # Invariant: placements has those of the axes before, of which no two are mirror images.
        placements = [
            [*before, on(group, names)]
            for before, group in itertools.product(placements, groups)
            for names in list_names(problem, group, before)
        ]
    for placement in placements:
        names = number_by_first_use(problem, placement)
        yield [on(group, names) for group in placement]


def list_names(problem: Problem, group: Group, before: Sequence[Group]) -> list[Names]:
    """The devices that a group may be put on, after the groups ``before``, without those that make mirror images."""
    sites, found = [site for other in before for site in other.sites.values()], list[Names]([()])
    for own in dict.fromkeys(itertools.chain(*group.sites.values())):
        first: dict[Any, Names] = {}
        for names, other in itertools.product(found, problem.class_of(own)):
            if other not in dict(names).values():
                more = *names, (own, other)
                alike = [
                    (problem.class_of(mine), roles_of(mine, group.sites.values()), roles_of(put, sites))
                    for mine, put in more
                ]
                first.setdefault(str(sorted(alike)), more)
        found = list(first.values())
    return found


def number_by_first_use(problem: Problem, placement: Sequence[Group]) -> Names:
    """Each of equal devices with the one in its place where parts, in order, use the first ones of each class."""
    sites = {part: site for group in placement for part, site in group.sites.items()}
    in_order = [sites[part] for part in problem.parts]
    order = {device: roles_of(device, in_order) for device in itertools.chain(*problem.equal)}
    return tuple(pair for each in problem.equal for pair in zip(sorted(each, key=order.__getitem__), each, strict=True))


def roles_of(device: str, sites: Iterable[Sequence[str]]) -> list[int]:
    """List by part 0 if its transfers begin and end at a device, 1 if it just keeps the device busy, else 2."""
    return [min(site.index(device), 1) if device in site else 2 for site in sites]


# What lacks


def list_repairs(placements: Iterable[Placement]) -> list[Repair]:
    """The smallest sets of budgets and links that some configuration lacks, each with the least that would do."""
    fewest, kept = math.inf, dict[Any, tuple[list[float], Repair]]()
    for part in (part for placement in placements for part in placement.parts(lambda _: True)):
        # Invariant: kept has the repairs of all configurations before that lack just ``fewest``.
        budgets = sorted(part.problem.budgets)
        have = np.array([part.problem.budgets[budget] for budget in budgets])
        needs = law.sum_needs(part.problem, replace(part.as_one(), depth=part.depths.min()))
        shape = (1, *part.shape[1:])
        need = np.reshape([np.broadcast_to(needs[name], shape) for name in budgets], (len(budgets), math.prod(shape)))
        short = need > have[:, None]
        lacking = short.sum(axis=0) + len(part.missing_ways)
        if lacking.min() < fewest:
            fewest, kept = lacking.min(), {}
        for is_short in np.unique(short[:, lacking == fewest], axis=1).T:
            alike = need[is_short][:, (short == is_short[:, None]).all(axis=0)]
            with np.errstate(divide="ignore"):
                ratios = (alike.T / have[is_short]).max(axis=1, initial=0.0)
            least = min([ratio, *each] for ratio, each in zip(ratios.tolist(), alike.T.tolist(), strict=True))
            repair = repair_of(part, list(itertools.compress(budgets, is_short)), least[1:])
            key = (*repair.budgets, *repair.ways)
            if key not in kept or least < kept[key][0]:
                kept[key] = least, repair
    repairs = [repair for _, repair in kept.values()]
    return sorted(repairs, key=lambda repair: (len(repair.budgets) + len(repair.ways), str(repair)))


def repair_of(placement: Placement, budgets: Sequence[str], needs: Sequence[float]) -> Repair:
    """The repair of these budgets and the missing links, with equal devices named in the order of their classes."""
    names, image = (*budgets, *itertools.chain(*placement.missing_ways)), dict[str, str]()
    for device in dict.fromkeys(name.partition(".")[0] for name in names):
        image[device] = next(one for one in placement.problem.class_of(device) if one not in image.values())
    have = [placement.problem.budgets[budget] for budget in budgets]
    return Repair(
        dict(zip((named(budget, image) for budget in budgets), zip(have, needs, strict=True), strict=True)),
        tuple((named(source, image), named(target, image)) for source, target in placement.missing_ways),
    )
