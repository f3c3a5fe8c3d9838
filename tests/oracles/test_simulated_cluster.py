"""The simulated cluster where its rate can be written down, and beyond what can be run here."""

import runpy

import pytest

from tests.committed import ROOT
from tests.oracles.simulated_cluster import Costs, simulate

ALONE = Costs(call=1e-3, serve=2e-3, record=0.0, delay=0.0)


@pytest.mark.parametrize("shards", [1, 3, 10])
def test_requests_in_turn_take_the_sum_of_their_parts(shards):
    found = simulate(shards, 64, ALONE, ahead=0)
    assert found.requests == pytest.approx(1 / (shards * ALONE.call + ALONE.serve), rel=0.01)
    assert found.calls == shards


def test_the_slower_side_bounds_requests_that_overlap():
    assert simulate(1, 64, ALONE, ahead=3).requests == pytest.approx(1 / ALONE.serve, rel=0.01)
    assert simulate(4, 64, ALONE, ahead=3).requests == pytest.approx(1 / (4 * ALONE.call), rel=0.01)
    assert simulate(4, 64, ALONE, ahead=3, cores=1).requests == pytest.approx(1 / (4 * 3e-3), rel=0.01)


def test_a_thousand_shards_are_as_fast_as_sixteen():
    few, many, all_of_them = (simulate(shards, 512, most=most) for shards, most in ((16, 16), (1000, 16), (1000, 1000)))
    assert many.calls == 16 and many.requests == pytest.approx(few.requests, rel=0.1)
    assert all_of_them.requests < many.requests / 20
    assert few.age < many.age < all_of_them.age * 2


def test_every_printed_line_says_simulated(capsys):
    runpy.run_path(str(ROOT / "tests/oracles/simulated_cluster.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and all(line.endswith("(simulated)") for line in lines)
