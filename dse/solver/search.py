"""The best configuration of all, exactly, and what comes next.

One descent (``optimum.py``) finds the best value, a second one the smallest tie key among all that is as good. Both add
in the order of ``outcome`` and compare without tolerance, so what they find is what nested loops over ``outcome`` find.
"""

from dataclasses import dataclass, replace

import numpy as np

from ..stats import front_of
from .equal_devices import Words, equal_devices
from .images import Integers
from .infeasible import Infeasible, infeasible
from .objectives import EPSILONS, OBJECTIVES, Objective, threshold, tie_key, undominated, value
from .optimum import FRUGAL, best_values, least_keys
from .problem import LOOP, Configuration, Hop, Option, Problem, ProblemError
from .settings import relinked
from .space import Space, build, by_part, configuration, group_of, groups_of, roots, space_of, with_groups
from .throughput import Outcome, fits, outcome


def scalable(problem: Problem, objective: Objective, number: str) -> Space:
    """A space that has the best at any factor on the times of evidence ``number``, see ``rescaled``.

    Made once for a problem and kept with it. A choice is dropped only for one whose times rest on the same evidence.
    """
    kept = vars(problem).setdefault("_scalable", {})
    if objective not in kept:
        axes = [groups_of(problem, choices, by_evidence=True) for choices in problem.axes]
        kept[objective] = axes, {(): equal_devices(problem, axes)}, {}
    axes, classes_of, spaces = kept[objective]
    words = Words([device for devices in classes_of[()] for device in devices])
    key = number if classes_of[()] and words.of(number) else ()
    if key not in classes_of:
        classes_of[key] = equal_devices(problem, axes, number)
    classes = classes_of[key]
    if classes not in spaces:
        spaces[classes] = space_of(problem, objective, axes, classes)
    space: Space = spaces[classes]
    return space


def rescaled(space: Space, number: str, factor: float) -> Space:
    """The same where times that rest on evidence ``number`` take ``factor`` times as long."""
    nodes, at = [], space.at
    for one in space.nodes:
        columns = list(one.columns)
        for c, column in enumerate(columns):
            rests = np.array([choice[c].time.rests_on.number == number for choice in one.choices])
            if rests.any():
                seconds = np.where(rests, column.seconds[: rests.size] * factor, column.seconds[: rests.size])
                columns[c] = column._replace(seconds=with_groups(seconds, one.start))
        nodes.append(replace(one, columns=tuple(columns)))
    if any(hop.rests_on.number == number for way in space.problem.ways.values() for hop in way):
        at = relinked(at, space.problem, space.objective, space.axes, {number: factor})
    return replace(space, nodes=tuple(nodes), at=at)


def reranked(space: Space) -> Space:
    """The same with options in the order of ``option_keys`` at the times that they are rescaled to."""
    nodes = []
    for one in space.nodes:
        columns = []
        for column in one.columns:
            pairs = np.stack([column.seconds, column.tail])[:, : len(one.choices)]
            rank = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1).astype(np.float64)
            columns.append(column._replace(rank=with_groups(rank, one.start)))
        nodes.append(replace(one, columns=tuple(columns)))
    return replace(space, nodes=tuple(nodes))


SHARES = (0.99, 0.95, 0.9, 0.8, 0.65, 0.5)
"""Shares of the best value that a ``frontier`` asks for."""


@dataclass(frozen=True)
class Answer:
    """A configuration, what it gives, and its value by the objective (a second, or a joule for ``per_watt``)."""

    configuration: Configuration
    outcome: Outcome
    value: float


@dataclass(frozen=True)
class Found:
    """The answer and what surrounds it.

    ``best``: largest value of all; the answer's is at least (1 - epsilon) times it. ``ties``: for every other mapping
    of parts to devices that is as good, its best configuration, in the order of the tie rule. ``runner_up``: the answer
    if just this configuration could not be had; ``elsewhere``: if its mapping of parts to devices could not. None where
    nothing is left. ``bound``: value of every part on its fastest option at once, without sharing, transfers or
    budgets; ``learner_hz``: steps a second of the fastest learner alone (the "theoretical optimal" line of [Zhang2023,
    Fig. 13]). ``configurations``: all combinations of options and depths; ``reduced``: those without dominated options
    and mirror images. Mirror images of these answers, which use equal devices (``equal_devices.py``), are not in it.
    """

    objective: Objective
    epsilon: float
    answer: Answer
    best: float
    ties: tuple[Answer, ...]
    runner_up: Answer | None
    elsewhere: Answer | None
    bound: float
    learner_hz: float
    configurations: int
    reduced: int

    @property
    def choice(self) -> Configuration:
        """The configuration that is recommended."""
        return self.answer.configuration

    @property
    def answers(self) -> list[Answer]:
        """The answer and all that surround it."""
        return [one for one in (self.answer, *self.ties, self.runner_up, self.elsewhere) if one]

    @property
    def outcome(self) -> Outcome:
        """What the choice gives, and what bounds it."""
        return self.answer.outcome

    @property
    def value(self) -> float:
        """The choice's value by the objective."""
        return self.answer.value

    def cost(self, other: Answer) -> float:
        """The share of the value that is lost with another answer; negative where it is traded for what comes first."""
        return 1 - other.value / self.value


def solve(
    problem: Problem, objective: Objective = "training", epsilon: float | None = None, alternatives: bool = True
) -> Found | Infeasible:
    """The answer by the rule of ``objectives``. ``epsilon``: in [0, 1), the objective's own where not given.

    Without ``alternatives`` (``runner_up``, ``elsewhere``) it takes a third of the time: for those who solve often.
    ProblemError for an unknown objective, another epsilon, or ``per_watt`` where the watts of a device are not stated.
    """
    if objective not in OBJECTIVES:
        raise ProblemError(f"the objective is one of {', '.join(OBJECTIVES)}, not {objective!r}")
    epsilon = EPSILONS[objective] if epsilon is None else epsilon
    if not 0 <= epsilon < 1:
        raise ProblemError(f"epsilon is a share of the best value, from 0 up to 1, not {epsilon}")
    space = build(problem, objective)
    start = _legal(space)
    best = float(best_values(space, start, _one(space))[0])
    if not best:
        return infeasible(space)
    tied = least_keys(space, start, space.at.mapping, np.full(space.at.mapping.max() + 1, threshold(best, epsilon)))
    first = tied[0]
    answers = [_answer(space, configuration(space, key.row, key.depth)) for key in tied]
    away = start[:, space.at.mapping[start[-1]] != space.at.mapping[first.row[-1]]]
    near = _neighbors(problem, answers[0].configuration) if alternatives else ()
    return Found(
        objective,
        epsilon,
        answers[0],
        best,
        tuple(answers[1:]),
        _next(space, start, epsilon, near, first.row) if alternatives else None,
        _next(space, away, epsilon) if alternatives else None,
        _bound(space),
        1 / min(option.seconds for option in problem.options["learner"]),
        space.raw,
        space.reduced,
    )


def front(problem: Problem) -> tuple[Answer, ...]:
    """Configurations none of which is beaten in ``hz``, watts and number of devices at once; most ``hz`` first.

    One for each such point, by the tie rule. Watts count where they are known of all candidates. Empty if infeasible.
    """
    space = build(problem, "ratio")
    start = _legal(space)
    best = best_values(space, start, space.at.used)
    keys = least_keys(space, start, space.at.used, np.where(best > 0, best, np.inf))
    answers = [_answer(space, configuration(space, key.row, key.depth)) for key in keys]
    known = all(answer.outcome.watts is not None for answer in answers)
    points = [
        (answer.value, -(answer.outcome.watts or 0.0) if known else 0.0, -float(len(answer.outcome.devices)))
        for answer in answers
    ]
    return tuple(sorted((answers[place] for place in front_of(points)), key=lambda answer: -answer.value))


def frontier(
    problem: Problem, objective: Objective, best: float, most_devices: int | None = None
) -> tuple[Answer, ...]:
    """For each mapping of parts to devices and each of ``SHARES``, what takes least of what is worth that share.

    "Least" is by ``frugal_key``; each configuration comes once, most value first. ``best``: the value that shares are
    of. Empty where nothing is worth the smallest share. ``most_devices``: mappings to more are left out, as with many
    equal ones those are most of all; none of them takes less than a best one with so many.
    """
    space = build(problem, objective)
    start = _legal(space)
    if most_devices is not None:
        start = start[:, space.at.devices[start[-1]] <= most_devices]
    kept: dict[tuple[int, ...], Answer] = {}
    for share in SHARES:
        least = np.full(space.at.mapping.max() + 1, best * share)
        for key in least_keys(space, start, space.at.mapping, least, order=FRUGAL):
            place = (*key.row.tolist(), key.depth)
            kept[place] = kept.get(place) or _answer(space, configuration(space, key.row, key.depth))
    return tuple(sorted(kept.values(), key=lambda answer: -answer.value))


def scaled(problem: Problem, number: str, factor: float) -> Problem:
    """The problem where times of options and links that rest on evidence ``number`` take ``factor`` times as long."""

    def longer(option: Option) -> Option:
        return replace(option, time=option.time.scaled(factor)) if option.time.rests_on.number == number else option

    def slower(hop: Hop) -> Hop:
        if hop.rests_on.number != number:
            return hop
        return replace(hop, alpha_seconds=hop.alpha_seconds * factor, seconds_per_byte=hop.seconds_per_byte * factor)

    return replace(
        problem,
        options={part: tuple(map(longer, options)) for part, options in problem.options.items()},
        trees=tuple((longer(sampling), longer(updating)) for sampling, updating in problem.trees),
        ways={pair: tuple(map(slower, way)) for pair, way in problem.ways.items()},
    )


def overtaken(problem: Problem, objective: Objective, least: float, number: str, factor: float) -> Answer | None:
    """The best where times resting on evidence ``number`` take ``factor`` times as long, if it is above ``least``.

    Its options are those of ``problem``, its outcome and value those of the scaled times. None where nothing is above.
    """
    space = rescaled(scalable(problem, objective, number), number, factor)
    start = _legal(space)
    best = float(best_values(space, start, _one(space), floor=least)[0])
    if best <= least:
        return None
    key = least_keys(reranked(space), start, _one(space), np.array([best]))[0]
    chosen = configuration(space, key.row, key.depth)
    alone = replace(problem, options={option.part: (option,) for option in chosen.options}, trees=())
    other = scaled(alone, number, factor)
    answer = _answer(space, chosen.having(*(option for (option,) in other.options.values())), other)
    return replace(answer, configuration=chosen)


def _legal(space: Space) -> Integers:
    """Rows of all settings whose routes are there."""
    return roots(space, np.flatnonzero(~space.at.missing.any(axis=1)))


def _one(space: Space) -> Integers:
    return np.zeros(space.at.groups.shape[1], dtype=np.int64)


def _answer(space: Space, chosen: Configuration, problem: Problem | None = None) -> Answer:
    result = outcome(problem or space.problem, chosen)
    return Answer(chosen, result, value(space.objective, result))


def _next(
    space: Space, start: Integers, epsilon: float, near: tuple[Configuration, ...] = (), without: Integers | None = None
) -> Answer | None:
    """The answer among all rows but one, and some more configurations."""
    others = [_answer(space, one) for one in near]
    best = max([float(best_values(space, start, _one(space), without)[0]), *(other.value for other in others)])
    least = threshold(best, epsilon)
    for key in least_keys(space, start, _one(space), np.array([least]), without) if best else ():
        others.append(_answer(space, configuration(space, key.row, key.depth)))
    good = (other for other in others if other.value >= least)
    return min(good, key=lambda other: tie_key(space.problem, other.configuration, other.outcome), default=None)


def _neighbors(problem: Problem, choice: Configuration) -> tuple[Configuration, ...]:
    """What could come next though it is not in the reduced space.

    The choice at another depth; and the choice with one dominated option or tree, since only the choice itself can be
    better than such a configuration whatever is put in that one's place.
    """
    near = [replace(choice, depth=depth) for depth in set(problem.depths) - {choice.depth}]
    for choices in problem.axes:
        own = tuple(choice.of(option.part) for option in choices[0])
        group = [other for other in choices if other != own and group_of(other) == group_of(own)]
        near += [choice.having(*other) for other in undominated(problem, group)]
    return tuple(one for one in near if fits(problem, one))


def _bound(space: Space) -> float:
    """See ``Found``. A slowdown below 1 helps even here. Watts are those of the devices that are used together."""
    fastest = {}
    groups = roots(space, np.arange(space.at.groups.shape[1]))
    for p, part, column, node in by_part(space, groups):
        fastest[part] = column.seconds[node] * np.minimum(space.at.slow[p], 1.0)
    loop = sum(fastest[part] for part in LOOP) / (space.depths[-1] + 1)
    slowest = np.maximum.reduce([loop, *(fastest[part] for part in space.counted)])
    return float((1 / slowest / space.at.divisor).max())
