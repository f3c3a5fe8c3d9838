"""Small benchmarks beside the tests: one call each in an ordinary run, timed by ``make bench``."""

import itertools

import pytest

from benchmarks.cases import Case, prepare

CELLS = [("numba", 1), ("numba", 256), ("numpy", 256)]
ROUND_SECONDS = 1e-3  # a single call of B = 1 is too short for the clock


@pytest.mark.benchmark(min_time=ROUND_SECONDS)
@pytest.mark.parametrize(("contestant", "batch"), CELLS)
@pytest.mark.parametrize("op", ["draw", "update"])
def test_call(benchmark, op, contestant, batch):
    call, turns = prepare(Case(contestant, op, 100_000, batch)).call, itertools.count(1)
    benchmark.group = op
    benchmark(lambda: call(next(turns)))
