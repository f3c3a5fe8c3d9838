"""The error that a race states, counted in many races on a clock of the tests."""

import pytest

from impls.race import race
from tests.unit.test_race import races_on, statuses

clock = pytest.fixture(races_on)


def test_twins_are_rarely_separated(clock):
    apart = 0
    for _ in range(400):
        result = race({"one": clock.call(1e-3), "twin": clock.call(1e-3)}, seconds=0.5, zone=0, error=0.05)
        apart += "slower" in statuses(result).values()
    assert apart <= 28


def test_the_fastest_is_lost_in_few_races_of_many_under_load(clock):
    clock.load = lambda now: 1.0 + 9.0 * (now % 0.07 > 0.035)
    lost = 0
    for _ in range(60):
        times = {str(one): 1e-3 * (1 + 0.03 * one) for one in range(6)}
        result = race({name: clock.call(seconds) for name, seconds in times.items()}, seconds=9)
        lost += statuses(result)["0"] == "slower"
        assert result.ending == "decided"
    assert lost <= 3
