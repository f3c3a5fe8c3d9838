"""The search against the one it takes the place of, on the same random problems: equal to the last bit."""

import numpy as np

from dse.solver.infeasible import Infeasible
from dse.solver.objectives import OBJECTIVES
from dse.solver.search import solve
from tests.former_search.search import solve as former_solve
from tests.solver_cases import EPSILONS, large_problem, random_problem


def told(found):
    """What an answer says, as plain values."""
    if type(found).__name__ == Infeasible.__name__:
        return [str(repair) for repair in found.repairs], found.configurations

    def of(answer):
        return answer and (answer.configuration, answer.value, vars(answer.outcome))

    around = [of(found.runner_up), of(found.elsewhere), *map(of, found.ties)]
    return of(found.answer), found.best, around, found.bound, found.learner_hz, found.configurations, found.reduced


def test_answers_ties_runners_up_and_reasons_are_those_of_the_former_search():
    for seed in range(1600):
        random = np.random.default_rng(seed)
        problem, epsilon = random_problem(random), float(random.choice(EPSILONS))
        asked = problem, OBJECTIVES[seed % len(OBJECTIVES)], epsilon
        assert told(solve(*asked)) == told(former_solve(*asked)), seed


def test_of_fourteen_million_configurations_too():
    for scattered in (False, True):
        problem = large_problem(np.random.default_rng(7), designs=16, scattered=scattered)
        assert told(solve(problem, "ratio")) == told(former_solve(problem, "ratio"))
