"""How far off a configuration's rate may be, and what that means: 95 % of what was timed, or a factor."""

from collections.abc import Mapping

from ..estimate import Interval, interval_of
from ..solver.objectives import Objective
from ..solver.problem import Configuration, Problem
from ..solver.sensitivity import Spread, Terms, widest
from ..solver.throughput import charges, transfers
from .options import Place


def meaning(problem: Problem, configuration: Configuration) -> Interval:
    """What the ends of a configuration's rate mean: by all that it rests on, parts and links."""
    hops = (hop for _, hop, _ in transfers(problem, configuration))
    times = (option.time for option in configuration.options)
    return interval_of([*(time.source for time in times), *(hop.rests_on.source for hop in hops)])


def ends(
    problems: Mapping[Place, Problem],
    objective: Objective,
    sure: Mapping[str, Spread],
    place: Place,
    configuration: Configuration,
) -> tuple[float, float, Interval]:
    """(low, high, what they mean) of an alternative's value; of a number it rests on, its own options' ends count.

    ``sure``: how far off every number of the problems may be.
    """
    problem, own = problems[place], widest(configuration.options)
    numbers = {charge.number: sure[charge.number] for charge in charges(problem, configuration)} | own
    return *Terms([(problem, configuration)], objective, numbers).interval(0), meaning(problem, configuration)
