"""The best configuration, exactly: put every part in some place, then look at all options of these places at once.

One rule orders everything. A configuration is **as good as the best** where its value is at least (1 - epsilon) times
the best value of all: against the best, not against a neighbor, since "within epsilon of each other" is no order.
Among those the answer has the smallest ``tie_key``.

1. A **group** is where a choice runs: choices of an axis on the same devices and engines. Just the ``undominated`` ones
   count: put b in place of a, which takes no less of anything: the same engines and links are shared, so nothing is
   busier and every budget holds; where b comes before a in the order of ``option_keys`` no answer uses a.
2. A **placement** takes a group of each axis: who shares an engine, links in use, devices and bytes are known then. Of
   equal devices that do the same so far just the first is tried, so no placement is the mirror image of another.
3. The **bound** of a placement is its value if every part took its fewest seconds there. Placements are looked at from
   the largest bound on, until the bound is below what is as good as the best so far.
4. Within a placement all configurations are arrays, an axis of the array for D and for each axis of the problem. They
   add up in the order of ``law.charges``, so values are those of ``law.outcome`` to the last bit.

Letters: a an axis of the problem, D batches sampled ahead, g a group of an axis; values [D, choices of each axis].
"""

import functools
import itertools
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..stats import frugal
from .law import (
    EPSILONS,
    OBJECTIVES,
    Objective,
    Outcome,
    Reals,
    charges,
    cores_of,
    devices_of,
    divisor,
    engines_of,
    law,
    outcome,
    sent,
    slowdown,
    steps_per_second,
    total,
    value_of,
    where_of,
)
from .problem import Choice, Configuration, Option, Part, Problem, ProblemError, moved, named

AT_ONCE = 1 << 18  # configurations of a placement; of one with more each half is a placement
TIED, FRUGAL = (0, 1, 2, 3, 4, 5), (0, 3, 1, 2, 4, 5)
"""Orders of a ``tie_key``: as it is, and what takes least: devices, cores, bytes, depth."""
SHARES = (1.0, 0.99, 0.95, 0.9, 0.8, 0.65, 0.5)
"""Shares of the best value that a ``frontier`` asks for."""


@dataclass(frozen=True, eq=False)
class Answer:
    """A configuration of an execution mode, which is a problem: what it gives, and its value. Equal only to itself."""

    mode: str
    problem: Problem = field(repr=False)
    configuration: Configuration
    outcome: Outcome
    value: float

    @property
    def mapping(self) -> tuple[tuple[str, ...], ...]:
        """The devices of each part."""
        return mapping_of(where_of(self.configuration).values())


@dataclass(frozen=True)
class Solution:
    """The answer and what surrounds it.

    ``best``: largest value of all; the answer's is at least (1 - epsilon) times it. ``ties``: for every other execution
    mode and mapping of parts to devices that is as good, its best configuration, in the order of the rule;
    ``elsewhere``: the answer if its mapping could not be had, None where nothing is left. ``bound``: value of every
    part on its fastest option at once, without sharing, transfers or budgets. ``configurations``: all combinations.
    Mirror images, on other ones of equal devices, are not in it.
    """

    objective: Objective
    epsilon: float
    answer: Answer
    best: float
    ties: tuple[Answer, ...]
    elsewhere: Answer | None
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


def mapping_of(places: Iterable[Sequence[tuple[str, str]]]) -> tuple[tuple[str, ...], ...]:
    """The devices of each part, the one that is sent to first."""
    return tuple((each[0][0], *sorted(device for device, _ in each[1:])) for each in places)


def option_keys(problem: Problem, options: Iterable[Option]) -> list[tuple[Any, ...]]:
    """Keys by which the options of one part are ordered: seconds, where they run, what they need, names."""
    budgets, keys = sorted(problem.budgets), list[tuple[Any, ...]]()
    for one in options:
        needs = tuple(taken.get(budget, 0.0) for taken in (one.needs, one.ahead) for budget in budgets)
        time, evidence = one.time, one.time.rests_on
        last = time.low, time.high, evidence.number, evidence.source
        keys.append((time.value, one.where, needs, one.name, *last))
    return keys


def tie_key(problem: Problem, chosen: Configuration, order: Sequence[int] = TIED) -> tuple[Any, ...]:
    """Devices, bytes moved, depth, cores, seconds of all parts, keys of options: the smallest one is the answer."""
    where = where_of(chosen)
    taken = [*engines_of(problem, where), *(one.needs for one in chosen.options)]
    key = (
        len(devices_of(problem, where)),
        total(flow.nbytes for flow, _ in sent(problem, where)),
        chosen.depth,
        total(map(cores_of, taken)),
        total(one.seconds for one in chosen.options),
        tuple(option_keys(problem, chosen.options)),
    )
    return tuple(key[place] for place in order)


# Groups and placements


class Column:
    """The options of a part in a group, as arrays [choices], and the ``numbers`` of their evidence."""

    def __init__(self, options: Sequence[Option]) -> None:
        self.first = options[0]
        self.seconds = np.array([one.seconds for one in options])
        self.cores = np.array([cores_of(one.needs) for one in options])
        self.numbers = [one.time.rests_on.number for one in options]
        self.needs = _amounts([one.needs for one in options])
        self.ahead = _amounts([one.ahead for one in options])


def _amounts(taken: Sequence[Mapping[str, float]]) -> dict[str, Reals]:
    budgets = dict.fromkeys(budget for one in taken for budget in one)
    return {budget: np.array([one.get(budget, 0.0) for one in taken]) for budget in budgets}


class Group:
    """Choices of an axis that run in the same places, and a column for each part of them."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        self.choices = choices
        self.columns = [Column(options) for options in zip(*choices, strict=True)]

    @property
    def options(self) -> list[Option]:
        """The options of one of the choices: all run where they do."""
        return [column.first for column in self.columns]


def undominated(problem: Problem, choices: Iterable[Choice]) -> list[Choice]:
    """The choices of a group that no answer can do without, in order: of equal ones the first stays."""
    keyed = sorted(((option_keys(problem, choice), choice) for choice in choices), key=lambda pair: pair[0])
    costs = [[cost for key in keys for cost in (key[0], *key[2])] for keys, _ in keyed]
    return [keyed[place][1] for place in frugal(costs)]


def groups_of(problem: Problem, choices: Sequence[Choice], by_evidence: bool = False) -> list[Group]:
    """The undominated choices by group. ``by_evidence``: of each evidence that their times rest on."""
    groups: dict[Any, dict[Any, list[Choice]]] = {}
    for choice in choices:
        evidence = tuple(one.time.rests_on.number for one in choice) if by_evidence else ()
        group = groups.setdefault(tuple(one.where for one in choice), {})
        group.setdefault(evidence, []).append(choice)
    kept = [[one for each in group.values() for one in undominated(problem, each)] for group in groups.values()]
    return [Group(choices) for choices in kept]


Put = tuple[Group, Mapping[str, str]]
"""A group, and which of equal devices its own ones are."""
Roles = Mapping[str, tuple[Any, ...]]
"""What each of equal devices does."""


def every_put(problem: Problem, axes: Sequence[Sequence[Group]]) -> Iterator[tuple[Put, ...]]:
    """Every way to put a group of each axis somewhere, mirror images aside."""

    def extend(roles: Roles, done: tuple[Put, ...]) -> Iterator[tuple[Put, ...]]:
        # Invariant: no other way to put these axes is a mirror image of ``done``, in which devices have these roles.
        if len(done) == len(axes):
            yield _in_order(problem, done)
            return
        for g, group in enumerate(axes[len(done)]):
            here = {device: (len(done), g, role) for device, role in _roles(problem, group.options).items()}
            for names in _ways(problem, here, roles):
                after = dict(roles)
                for own, role in here.items():
                    after[names[own]] = (*roles.get(names[own], ()), role)
                yield from extend(after, (*done, (group, names)))

    return extend({}, ())


def _roles(problem: Problem, options: Iterable[Option]) -> dict[str, tuple[int, ...]]:
    """By part, 0 for the one of equal devices that is sent to, 1 for those that share its batch, 2 for others."""
    on = {option.part: [device for device, _ in option.where] for option in options}
    places = [on.get(part, [""]) for part in problem.parts]
    roles = {}
    for device in (device for devices in problem.equal for device in devices):
        role = tuple(2 - (device in each) - (device == each[0]) for each in places)
        if min(role) < 2:
            roles[device] = role
    return roles


def _ways(problem: Problem, here: Roles, roles: Roles) -> Iterable[dict[str, str]]:
    """Which of equal devices those of a group may be, of those that do the same so far just the first."""
    ways: dict[Any, dict[str, str]] = {(): {}}
    for device in here:
        # Invariant: ways are those of the devices before this one, by what makes them mirror images.
        more: dict[Any, dict[str, str]] = {}
        for names in ways.values():
            for one in problem.class_of(device):
                if one not in names.values():
                    way = {**names, device: one}
                    does = sorted((here[own], roles.get(other, ())) for own, other in way.items())
                    more.setdefault(tuple(does), way)
        ways = more
    return ways.values()


def _in_order(problem: Problem, done: tuple[Put, ...]) -> tuple[Put, ...]:
    """The mirror image whose parts, in their order, are on the first of equal devices."""
    if not problem.equal:
        return done
    placed = [one.on(names) for group, names in done for one in group.options]
    roles, idle = _roles(problem, placed), (2,) * len(problem.parts)
    image: dict[str, str] = {}
    for devices in problem.equal:
        first = sorted(devices, key=lambda one: roles.get(one, idle))
        image.update(zip(first, devices, strict=True))
    return tuple((group, {own: image[one] for own, one in names.items()}) for group, names in done)


def _same(_: str) -> float:
    return 1.0


class Placement:
    """A group for each axis: where every part runs, and all configurations there as arrays."""

    def __init__(self, mode: str, problem: Problem, objective: Objective, puts: tuple[Put, ...]) -> None:
        self.mode, self.problem, self.objective, self.puts = mode, problem, objective, puts
        columns = {
            column.first.part: (a, column, names) for a, (group, names) in enumerate(puts) for column in group.columns
        }
        self.columns = {part: columns[part] for part in problem.parts}
        self.where = {part: column.first.on(names).where for part, (_, column, names) in self.columns.items()}
        self.mapping = mapping_of(self.where.values())
        self.devices = devices_of(problem, self.where)
        self.engines = engines_of(problem, self.where)
        self.lacks = no_routes(problem, self.where)
        self.divisor = divisor(problem, self.devices, objective)
        self.depths = np.unique(problem.depths).reshape([-1] + [1] * len(puts))
        self.shape = (len(self.depths), *(len(group.choices) for group, _ in puts))
        self.least = {part: column.seconds.min() for part, (_, column, _) in self.columns.items()}
        self.numbers = {number for _, column, _ in self.columns.values() for number in column.numbers}
        self.bound = 0.0
        if not self.lacks:
            self.numbers |= {hop.rests_on.number for _, hop in sent(problem, self.where)}
            self.bound = float(self.rate(self.least, self.depths.max()))

    def rate(self, seconds: Mapping[Part, Any], depth: Any, factor: Callable[[str], Any] = _same) -> Any:
        """Values where parts take so many seconds, and links ``factor`` of their evidence times as long."""
        charged = charges(self.problem, self.where, seconds, lambda hop: factor(hop.rests_on.number))
        busy, loop = law(charged, self.objective)
        return steps_per_second(busy.values(), loop, depth, self.divisor)

    def ideal(self) -> float:
        """The value of every part on its fastest option at once, without sharing, transfers or budgets."""
        spent = {}
        for part, least in self.least.items():
            spent[part] = least * min(slowdown(self.problem, self.where, part), 1.0)
        loop = sum(spent[part] for part in self.problem.loop) / (self.depths.max() + 1)
        parts = self.problem.loop if self.objective == "training" else self.problem.parts
        return float(1 / max(loop, *(spent[part] for part in parts)) / self.divisor)

    def along(self, part: Part, column: Any) -> Reals:
        """A column of a part, along its axis of the arrays."""
        shape = [1] * len(self.shape)
        shape[self.columns[part][0] + 1] = -1
        return np.reshape(column, shape)

    def values(self, factor: Callable[[str], float] = _same) -> Reals:
        """Return every configuration's value, 0 where it does not fit; ``factor`` scales times by their evidence."""
        seconds = {}
        for part, (_, column, _) in self.columns.items():
            factors = 1.0 if factor is _same else np.array([factor(number) for number in column.numbers])
            seconds[part] = self.along(part, column.seconds * factors)
        return np.where(self.fits, self.rate(seconds, self.depths, factor), 0.0)

    @functools.cached_property
    def fits(self) -> NDArray[np.bool_]:
        """Which configurations the budgets suffice for; those that all of them keep are not added up."""
        fits = np.ones(self.shape, dtype=np.bool_)
        for budget, fixed, needs in self.taken():
            have = self.problem.budgets[budget]
            if (fixed + sum(need.max() for need in needs)) * (1 + 1e-9) > have:
                fits &= total(needs, fixed) <= have
        return fits

    def taken(self) -> Iterator[tuple[str, float, list[Reals]]]:
        """(budget, what engines take of it, what parts do and their batches ahead) of each that something takes."""
        needs = defaultdict[str, list[Reals]](list)
        for part, (_, column, names) in self.columns.items():
            for budget, amounts in moved(column.needs, names).items():
                needs[budget].append(self.along(part, amounts))
            for budget, amounts in moved(column.ahead, names).items():
                needs[budget].append(self.depths * self.along(part, amounts))
        for budget in dict.fromkeys([*needs, *(name for each in self.engines for name in each)]):
            yield budget, total(each.get(budget, 0.0) for each in self.engines), needs[budget]

    @functools.cached_property
    def best(self) -> float:
        """The largest value of all that fits, 0 if nothing does."""
        return float(self.values().max())

    def first(self, values: Reals, least: float, order: Sequence[int] = TIED) -> Configuration | None:
        """The first, in an order of ``tie_key``, of what is worth at least so much; None where nothing is."""
        at = np.argwhere(values >= least)
        if not len(at):
            return None
        cores, seconds = total(map(cores_of, self.engines)), np.zeros(len(at))
        for a, column, _ in self.columns.values():
            cores = cores + column.cores[at[:, a + 1]]
            seconds = seconds + column.seconds[at[:, a + 1]]
        key = {2: self.depths.flat[at[:, 0]], 3: cores, 4: seconds}  # by their places in a ``tie_key``
        keys = np.stack([key[place] for place in order if place in key])
        smallest = keys[:, np.lexsort(keys[::-1])[0]]
        equal = at[(keys == smallest[:, None]).all(axis=0)]
        return min(map(self.configuration, equal), key=lambda one: option_keys(self.problem, one.options))

    def configuration(self, at: Sequence[int]) -> Configuration:
        """What stands at a place of the arrays."""
        chosen = {}
        for (group, names), place in zip(self.puts, at[1:], strict=True):
            chosen.update({one.part: one.on(names) for one in group.choices[place]})
        options = tuple(chosen[part] for part in self.problem.parts)
        return Configuration(options, int(self.depths.flat[at[0]]))


def no_routes(problem: Problem, where: Mapping[Part, Sequence[tuple[str, str]]]) -> list[tuple[str, str]]:
    """(from, to) of every two devices that would have to talk and have no link."""
    lacks = set()
    for flow in (flow for flow in problem.flows if flow.nbytes):
        source, target = where[flow.source][0][0], where[flow.target][0][0]
        if source != target and (source, target) not in problem.ways:
            lacks.add((source, target))
    return sorted(lacks)


def _pieces(puts: tuple[Put, ...], most: int) -> Iterator[tuple[Put, ...]]:
    """The same, by at most so many configurations: halves of the axis with most choices."""
    sizes = [len(group.choices) for group, _ in puts]
    if math.prod(sizes) <= most or max(sizes) == 1:
        yield puts
        return
    a = sizes.index(max(sizes))
    (group, names), middle = puts[a], sizes[a] // 2
    for half in (group.choices[:middle], group.choices[middle:]):
        yield from _pieces((*puts[:a], (Group(half), names), *puts[a + 1 :]), most)


# The search


class Search:
    """All placements of execution modes, the largest bound first.

    ``by_evidence``: with all that may be the best where times that rest on one evidence are others. ProblemError for
    ``per_watt`` where the watts of a device are not stated.
    """

    def __init__(self, problems: Mapping[Any, Problem], objective: Objective, by_evidence: bool = False) -> None:
        self.problems, self.objective, self.modes = problems, objective, list(problems)
        made = [
            Placement(mode, problem, objective, piece)
            for mode, problem in problems.items()
            for puts in every_put(problem, [groups_of(problem, choices, by_evidence) for choices in problem.axes])
            for piece in _pieces(puts, AT_ONCE // len(problem.depths))
        ]
        self.placements = sorted(made, key=lambda one: -one.bound)

    def answer(self, mode: str, chosen: Configuration) -> Answer:
        """A configuration with what it gives."""
        gives = outcome(self.problems[mode], chosen)
        value = value_of(self.problems[mode], gives, self.objective)
        return Answer(mode, self.problems[mode], chosen, gives, value)

    def rank(self, one: Answer, order: Sequence[int] = TIED) -> tuple[Any, ...]:
        """An order of ``tie_key``, and of equal ones the first mode, before the keys of options."""
        *numbers, options = tie_key(one.problem, one.configuration, order)
        return *numbers, self.modes.index(one.mode), options

    def as_good(self, epsilon: float, without: Answer | None = None) -> tuple[float, list[Answer]]:
        """(the best value, of each mode and mapping the first that is as good, in the order of the rule)."""
        best, tried = 0.0, list[Placement]()
        for one in self.placements:
            # Invariant: ``best`` is the largest value of the placements before, whose bounds are at least this one's.
            if one.lacks or one.bound < best * (1 - epsilon):
                break
            if without is None or one.mapping != without.mapping:
                tried.append(one)
                best = max(best, one.best)
        least = best * (1 - epsilon)
        good = [(one.mode, one.first(one.values(), least)) for one in tried if one.best >= least > 0]
        return best, self.firsts((self.answer(mode, chosen) for mode, chosen in good if chosen), TIED)

    def frontier(self, best: float, most_devices: int, without: Answer | None = None) -> list[Answer]:
        """For each mode, mapping and share of a value, what takes least of what is worth that share.

        Mappings to more devices are left out: with many equal ones those are most of all.
        """
        found: dict[float, list[Answer]] = {share: [] for share in SHARES}
        for one in self.placements:
            if one.lacks or one.bound < best * SHARES[-1]:
                break
            is_asked = without is None or one.mapping != without.mapping
            for share in SHARES if is_asked and len(one.devices) <= most_devices else ():
                if one.best >= best * share and (chosen := one.first(one.values(), best * share, FRUGAL)):
                    found[share].append(self.answer(one.mode, chosen))
        every = [one for each in found.values() for one in self.firsts(each, FRUGAL)]
        return sorted(every, key=lambda one: -one.value)

    def fastest(self, by: Callable[[Placement], Any]) -> Iterator[Answer]:
        """Yield the first fastest answer of each kind of placement; kinds in which nothing fits yield none."""
        kinds = defaultdict[Any, list[Placement]](list)
        for one in (one for one in self.placements if not one.lacks):
            kinds[by(one)].append(one)
        for each in kinds.values():
            if best := max(one.best for one in each):
                firsts = [(one.mode, one.first(one.values(), best)) for one in each if one.best == best]
                yield min((self.answer(mode, chosen) for mode, chosen in firsts if chosen), key=self.rank)

    def firsts(self, answers: Iterable[Answer], order: Sequence[int]) -> list[Answer]:
        """The first answer of each mode and mapping in an order of ``tie_key``; in this order."""
        kept: dict[Any, Answer] = {}
        for one in sorted(answers, key=lambda one: self.rank(one, order)):
            kept.setdefault((one.mode, one.mapping), one)
        return list(kept.values())

    def solution(self, epsilon: float) -> Solution | Infeasible:
        """Return the answer by the tie rule and what surrounds it, or what lacks where nothing fits."""
        count = 0
        for problem in self.problems.values():
            count += math.prod(map(len, problem.axes)) * len(problem.depths)
        best, answers = self.as_good(epsilon)
        if not answers:
            return Infeasible(tuple(self.repairs()), count)
        first, *ties = answers
        elsewhere = next(iter(self.as_good(epsilon, first)[1]), None)
        bound = max(one.ideal() for one in self.placements)
        return Solution(self.objective, epsilon, first, best, tuple(ties), elsewhere, bound, count)

    def repairs(self) -> list[Repair]:
        """The budgets and links that lack in what lacks the fewest of them, each set with the least that it takes."""
        fewest = math.inf
        kept: dict[tuple[Any, ...], tuple[list[float], Repair]] = {}
        for one in self.placements:
            have, ways = one.problem.budgets, one.lacks
            needs = {}
            for budget, fixed, taken in one.taken():
                needs[budget] = np.broadcast_to(total(taken, fixed), one.shape)[0]
            short = {budget: need > have[budget] for budget, need in sorted(needs.items())}
            lacking = np.full(one.shape[1:], len(ways))
            for each in short.values():
                lacking += each
            if lacking.min() < fewest:
                fewest, kept = lacking.min(), {}
            scarce = [budget for budget, each in short.items() if each.any()]
            for budgets in itertools.combinations(scarce, max(0, int(fewest) - len(ways))):
                at = np.logical_and.reduce([lacking == fewest, *(short[budget] for budget in budgets)])
                if at.any():
                    image = one.problem.first_image((*budgets, *itertools.chain(*ways)))
                    least, repair = _least({name: (have[name], needs[name][at]) for name in budgets}, ways, image)
                    key = (*repair.budgets, *repair.ways)
                    kept[key] = min(kept.get(key, (least, repair)), (least, repair), key=operator.itemgetter(0))
        repairs = [repair for _, repair in kept.values()]
        return sorted(repairs, key=lambda one: (len(one.budgets) + len(one.ways), str(one)))


def _least(
    short: Mapping[str, tuple[float, Reals]], ways: Iterable[tuple[str, str]], image: Mapping[str, str]
) -> tuple[list[float], Repair]:
    """What takes least of the budgets that are short: its largest need / have and its needs, and the repair."""
    needs = np.array([need for _, need in short.values()])
    have = np.array([have for have, _ in short.values()])
    least, place = [0.0], 0
    if short:
        with np.errstate(divide="ignore"):
            excess = (needs / have[:, None]).max(axis=0)
        place = int(np.lexsort([*needs[::-1], excess])[0])
        least = [float(excess[place]), *needs[:, place].tolist()]
    budgets = {named(name, image): (have, float(need[place])) for name, (have, need) in short.items()}
    return least, Repair(budgets, tuple((named(source, image), named(target, image)) for source, target in ways))


def solve(
    problems: Problem | Mapping[Any, Problem], objective: Objective = "ratio", epsilon: float | None = None
) -> Solution | Infeasible:
    """The answer of one problem, or of several, each an execution mode by its name: of equal ones that of the first.

    ``epsilon``: in [0, 1), the objective's own where not given. ProblemError for an unknown objective, another epsilon,
    no problem, or ``per_watt`` where the watts of a device are not stated.
    """
    modes = modes_of(problems)
    if objective not in OBJECTIVES:
        raise ProblemError(f"the objective is one of {', '.join(OBJECTIVES)}, not {objective!r}")
    epsilon = EPSILONS[objective] if epsilon is None else epsilon
    if not 0 <= epsilon < 1:
        raise ProblemError(f"epsilon is a share of the best value, from 0 up to 1, not {epsilon}")
    return Search(modes, objective).solution(epsilon)


def modes_of(problems: Any) -> dict[str, Problem]:
    """Problems by the names of their execution modes. ProblemError unless there is one, and no other things."""
    if not isinstance(problems, Problem | Mapping) or not problems:
        raise ProblemError(f"what is solved is a Problem, or several by the names of their modes, not {problems!r:.80}")
    modes = {"": problems} if isinstance(problems, Problem) else dict(problems)
    for mode, problem in modes.items():
        if not (isinstance(mode, str) and isinstance(problem, Problem)):
            raise ProblemError(f"a mode is a name and its Problem, not {mode!r:.80} and {problem!r:.80}")
    return modes
