"""The best configuration of all, exactly, and what comes next.

One descent (``descent.py``) finds the best value, a second one the smallest tie key among all that is as good. Both add
in the order of ``outcome`` and compare without tolerance, so what they find is what nested loops over ``outcome`` find.
"""

from dataclasses import dataclass, replace

import numpy as np

from .descent import comes_before, descend, single
from .infeasible import Infeasible, infeasible
from .objectives import EPSILONS, OBJECTIVES, Objective, threshold, tie_key, value
from .pareto import front_of, undominated
from .problem import LOOP, PARTS, Configuration, Problem, ProblemError
from .space import Booleans, Integers, Reals, Space, build, configuration, loads, needs, roots
from .throughput import Outcome, fits, outcome


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
    budgets; ``learner_hz``: steps a second of the fastest learner alone (the "theoretical optimal" line of seed 3,
    Fig. 13). ``configurations``: all combinations of options and depths; ``reduced``: those without dominated options.
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
        """What to do."""
        return self.answer.configuration

    @property
    def outcome(self) -> Outcome:
        """What it gives."""
        return self.answer.outcome

    @property
    def value(self) -> float:
        """By the objective."""
        return self.answer.value

    def cost(self, other: Answer) -> float:
        """The share of the value that is lost with another answer; negative where it is traded for what comes first."""
        return 1 - other.value / self.value


def solve(
    problem: Problem, objective: Objective = "training", epsilon: float | None = None, alternatives: bool = True
) -> Found | Infeasible:
    """The answer by the rule of ``objectives``. ``epsilon``: in [0, 1), the objective's own where not given.

    Without ``alternatives`` no runner-up is sought, in half the time: for sensitivity, which only asks for the choice.
    ProblemError for an unknown objective, another epsilon, or ``per_watt`` where the watts of a device are not stated.
    """
    if objective not in OBJECTIVES:
        raise ProblemError(f"the objective is one of {', '.join(OBJECTIVES)}, not {objective!r}")
    epsilon = EPSILONS[objective] if epsilon is None else epsilon
    if not 0 <= epsilon < 1:
        raise ProblemError(f"epsilon is a share of the best value, from 0 up to 1, not {epsilon}")
    space = build(problem, with_actors=objective != "training")
    if objective == "per_watt":
        _need_watts(problem)
    settings = np.flatnonzero(~space.missing)
    start = roots(space, settings)
    best = float(best_values(space, start, objective == "per_watt", _one(space))[0])
    if not best:
        return infeasible(space)
    least = np.full(space.mapping.max() + 1, threshold(best, epsilon))
    keys = least_keys(space, start, objective == "per_watt", space.mapping, least)
    tied = sorted(keys.values(), key=lambda found: found[0])
    answers = [_answer(problem, objective, configuration(space, row, depth)) for _, row, depth in tied]
    runner_up = elsewhere = None
    if alternatives:
        _, row, _ = tied[0]
        away = start[:, space.mapping[start[-1]] != space.mapping[row[-1]]]
        elsewhere = _next(space, away, objective, epsilon, None, ())
        runner_up = _next(space, start, objective, epsilon, row, _neighbors(problem, answers[0].configuration))
    return Found(
        objective,
        epsilon,
        answers[0],
        best,
        tuple(answers[1:]),
        runner_up,
        elsewhere,
        _bound(space, objective == "per_watt"),
        1 / min(option.seconds for option in problem.options["learner"]),
        space.raw,
        space.reduced,
    )


def front(problem: Problem) -> tuple[Answer, ...]:
    """Configurations none of which is beaten in ``hz``, watts and number of devices at once; most ``hz`` first.

    One for each such point, by the tie rule. Watts count only where all of a problem are stated. Empty if infeasible.
    """
    space = build(problem)
    start = roots(space, np.flatnonzero(~space.missing))
    labels = space.used
    best = best_values(space, start, False, labels)
    keys = least_keys(space, start, False, labels, np.where(best > 0, best, np.inf))
    found = sorted(keys.values(), key=lambda item: item[0])
    answers = [_answer(problem, "ratio", configuration(space, row, depth)) for _, row, depth in found]
    known = not np.isnan(space.watts).any()
    points = [
        (answer.value, -(answer.outcome.watts or 0.0) if known else 0.0, -float(len(answer.outcome.devices)))
        for answer in answers
    ]
    return tuple(sorted((answers[place] for place in front_of(points)), key=lambda answer: -answer.value))


def values(space: Space, rows: Integers, per_watt: bool, depths: tuple[int, ...]) -> Reals:
    """Value (bound, where a part is a group) of rows at each depth, budgets aside: [R, depths]."""
    busiest, loop = loads(space, rows)
    under_way = loop[:, None] / (np.array(depths) + 1)
    value: Reals = 1 / np.maximum(under_way, busiest[:, None])
    return value / space.watts[rows[-1], None] if per_watt else value


def best_values(
    space: Space, start: Integers, per_watt: bool, labels: Integers, without: Integers | None = None
) -> Reals:
    """Largest value under each label (of a setting, from 0 on), 0 where nothing fits. ``without``: a row left out."""
    best = np.zeros(labels.max() + 1)

    def judge(rows: Integers) -> Integers:
        value = values(space, rows, per_watt, space.depths[-1:])[:, 0]
        keep = np.flatnonzero(value > best[labels[rows[-1]]])
        keep = keep[_possible(space, rows[:, keep], without)]
        keep = keep[np.argsort(-value[keep], kind="stable")]
        rows = rows[:, keep]
        if single(space, rows):
            np.maximum.at(best, labels[rows[-1]], value[keep])
        return rows

    descend(space, start, judge)
    return best


Keyed = dict[int, tuple[tuple[float, ...], Integers, int]]
"""By label: (key, row, depth)."""


def least_keys(
    space: Space, start: Integers, per_watt: bool, labels: Integers, least: Reals, without: Integers | None = None
) -> Keyed:
    """The smallest tie key under each label among the configurations whose value is at least ``least`` [labels]."""
    found = np.full((labels.max() + 1, 5 + len(PARTS)), np.inf)
    where: Keyed = {}

    def judge(rows: Integers) -> Integers:
        enough = values(space, rows, per_watt, space.depths) >= least[labels[rows[-1]], None]
        keep = np.flatnonzero(enough[:, -1])  # a deeper one is never slower
        depth = np.array(space.depths)[enough[keep].argmax(axis=1)]
        keys = _keys(space, rows[:, keep], depth)
        below = comes_before(keys, found[labels[rows[-1, keep]]])
        below[below] = _possible(space, rows[:, keep[below]], without)
        rows, keys, depth = rows[:, keep[below]], keys[below], depth[below]
        order = np.lexsort(keys.T[::-1])
        rows, keys, depth = rows[:, order], keys[order], depth[order]
        if single(space, rows):
            for label, first in zip(*np.unique(labels[rows[-1]], return_index=True), strict=True):
                found[label] = keys[first]
                where[int(label)] = (tuple(map(float, keys[first])), rows[:, first], int(depth[first]))
        return rows

    descend(space, start, judge)
    return where


def _one(space: Space) -> Integers:
    return np.zeros(space.settings.shape[1], dtype=np.int64)


def _keys(space: Space, rows: Integers, depth: Integers) -> Reals:
    """``tie_key`` of rows, with ranks for the options' own keys: [R, 5 + P]. No more than of what a row stands for."""
    cores, seconds = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    for nodes, node in zip(space.nodes, rows[:-1], strict=True):
        cores += nodes.cores[node]
        seconds += nodes.seconds[node]
    ranks = [nodes.rank[node] for nodes, node in zip(space.nodes, rows[:-1], strict=True)]
    return np.column_stack([space.devices[rows[-1]], space.nbytes[rows[-1]], depth, cores, seconds, *ranks])


def _possible(space: Space, rows: Integers, without: Integers | None) -> Booleans:
    """Whether rows may fit into the budgets (and are not the one left out): [R]."""
    fit = needs(space, rows) <= space.have
    other = np.ones(1) if without is None else (rows != without[:, None]).any(axis=0)
    possible: Booleans = np.logical_and(fit.all(axis=1), other)
    return possible


def _answer(problem: Problem, objective: Objective, chosen: Configuration) -> Answer:
    given = outcome(problem, chosen)
    return Answer(chosen, given, value(objective, given))


def _next(
    space: Space,
    start: Integers,
    objective: Objective,
    epsilon: float,
    without: Integers | None,
    neighbors: tuple[Configuration, ...],
) -> Answer | None:
    """The answer among the rows but one, and some more configurations."""
    per_watt = objective == "per_watt"
    others = [_answer(space.problem, objective, neighbor) for neighbor in neighbors]
    best = max([float(best_values(space, start, per_watt, _one(space), without)[0]), *(one.value for one in others)])
    if not best:
        return None
    least = threshold(best, epsilon)
    for _, row, depth in least_keys(space, start, per_watt, _one(space), np.array([least]), without).values():
        others.append(_answer(space.problem, objective, configuration(space, row, depth)))
    good = (other for other in others if other.value >= least)
    return min(good, key=lambda other: tie_key(space.problem, other.configuration, other.outcome))


def _neighbors(problem: Problem, choice: Configuration) -> tuple[Configuration, ...]:
    """What could come next though it is not in the reduced space.

    The choice at another depth; and the choice with one dominated option, since only the choice itself can be better
    than such a configuration whatever option is put in that one's place.
    """
    found = [replace(choice, depth=depth) for depth in set(problem.depths) - {choice.depth}]
    for part in PARTS:
        chosen = choice.of(part)
        group = [
            option
            for option in problem.options[part]
            if (option.device, option.engine) == (chosen.device, chosen.engine) and option != chosen
        ]
        found += [choice.having(option) for option in undominated(problem, group)]
    return tuple(one for one in found if fits(problem, one))


def _bound(space: Space, per_watt: bool) -> float:
    """See ``Found``. A slowdown below 1 helps even here."""
    fastest = {
        part: min(
            float(space.nodes[p].seconds[len(space.nodes[p].options) + group]) * float(factor)
            for group, factor in zip(space.settings[p], np.minimum(space.slow[p], 1.0), strict=True)
        )
        for p, part in enumerate(PARTS)
    }
    loop = sum(fastest[part] for part in LOOP) / (space.depths[-1] + 1)
    hz = 1 / max(loop, *(taken for part, taken in fastest.items() if space.with_actors or part != "actors"))
    return hz / float(space.watts.min()) if per_watt else hz


def _need_watts(problem: Problem) -> None:
    devices = {option.device for options in problem.options.values() for option in options} | set(problem.hosts)
    unknown = sorted(device for device in devices if not problem.watts.get(device, 0.0) > 0)
    if unknown:
        raise ProblemError(f"steps per joule need watts above 0 of every device; state those of {', '.join(unknown)}")
