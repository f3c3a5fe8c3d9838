"""What is near the best, and what wins at other times, against nested loops."""

import numpy as np
import pytest

from dse.solver import optimum
from dse.solver.objectives import OBJECTIVES, frugal_key
from dse.solver.search import SHARES, Found, frontier, overtaken, scaled, solve
from dse.solver.space import build
from tests.solver_cases import all_answers, mapping, numbered, random_problem, twinned, with_trees


@pytest.fixture(autouse=True)
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opens some spaces group by group, which otherwise are small enough to be opened at once."""
    if request.getfixturevalue("seed") // 4 % 2:
        monkeypatch.setattr(optimum, "ROWS", 40)


def drawn(seed: int):
    """A random problem, some with trees, some with equal devices, whose times rest on three numbers; its objective."""
    random = np.random.default_rng(seed)
    problem = numbered(random_problem(random), random)
    problem = twinned(problem, random) if seed % 3 == 0 else problem
    return with_trees(problem, random) if seed % 2 else problem, OBJECTIVES[seed % len(OBJECTIVES)]


@pytest.mark.parametrize("seed", range(40))
def test_the_frontier_has_the_most_frugal_of_each_mapping_at_each_share(seed: int) -> None:
    problem, objective = drawn(seed)
    answers = all_answers(problem, objective)
    best = max((answer.value for answer in answers), default=1.0)
    (equal,) = build(problem, objective).classes or ((),)
    by_mapping: dict = {}
    for answer in answers:
        by_mapping.setdefault(mapping(answer, equal), []).append(answer)
    expected = []
    for same in by_mapping.values():
        for share in SHARES:
            good = [one for one in same if one.value >= best * share]
            least = min(good, key=lambda one: frugal_key(problem, one.configuration, one.outcome), default=None)
            expected += [least] if least and least not in expected else []
    members = frontier(problem, objective, best)
    assert len(members) == len(expected) and all(one in expected for one in members)
    few = frontier(problem, objective, best, most_devices=2)
    assert few == tuple(one for one in members if len(one.outcome.devices) <= 2)
    assert [one.value for one in members] == sorted((one.value for one in members), reverse=True)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("factor", [0.3, 1.5, 30.0])
def test_overtaken_is_solving_the_scaled_problem(seed: int, factor: float) -> None:
    problem, objective = drawn(seed)
    for number in ("one", "two", "of gpu0"):
        other = scaled(problem, number, factor)
        found = solve(other, objective, 0.0, alternatives=False)
        if not isinstance(found, Found):
            assert overtaken(problem, objective, 0.0, number, factor) is None
            continue
        winner = overtaken(problem, objective, found.best * (1 - 1e-9), number, factor)
        assert winner is not None
        assert (winner.value, winner.outcome) == (found.best, found.outcome)
        assert overtaken(problem, objective, found.best, number, factor) is None
        own = {id(option) for option in problem.every_option()}
        assert own.issuperset(map(id, winner.configuration.options))
