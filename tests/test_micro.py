"""Small benchmarks beside the tests: one call each in an ordinary run, timed by ``make bench``."""

import itertools

import pytest

from benchmarks.cases import Case, prepare

CELLS = [("numba", 1), ("numba", 256), ("numpy", 256)]
ROUND_SECONDS = 1e-3  # a single call of B = 1 is too short for the clock


def timed(benchmark, contestant, op, batch):
    call, turns = prepare(Case(contestant, op, 100_000, batch)).call, itertools.count(1)
    benchmark(lambda: call(next(turns)))


@pytest.mark.benchmark(group="draw", min_time=ROUND_SECONDS)
@pytest.mark.parametrize(("contestant", "batch"), CELLS)
def test_draw(benchmark, contestant, batch):
    timed(benchmark, contestant, "draw", batch)


@pytest.mark.benchmark(group="update", min_time=ROUND_SECONDS)
@pytest.mark.parametrize(("contestant", "batch"), CELLS)
def test_update(benchmark, contestant, batch):
    timed(benchmark, contestant, "update", batch)
