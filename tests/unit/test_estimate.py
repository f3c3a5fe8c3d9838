"""An estimate holds its value, and what is done to it does not make it surer than it is."""

import math

import pytest

from dse.estimate import LEAST_FACTOR, Estimate, Evidence

GUESS, CLOCK = Evidence("guess", "modeled", "a guess"), Evidence("clock", "measured")


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [(1.0, 2.0, 3.0), (4.0, 2.0, 3.0), (0.0, 0.0, 1.0), (-1.0, -2.0, 1.0), (math.nan, 1.0, 2.0), (1.0, 1.0, math.inf)],
)
def test_a_value_outside_of_its_interval_is_refused_by_name(value, low, high):
    with pytest.raises(ValueError, match=r"guess: an estimate must be above 0, finite and within its interval"):
        Estimate(value, low, high, GUESS)


def test_within_a_factor_reaches_as_far_down_as_up_and_is_never_surer_than_a_clock():
    half = Estimate.within(4.0, 2.0, GUESS)
    assert (half.value, half.low, half.high, half.factor, half.source) == (4.0, 2.0, 8.0, 2.0, "modeled")
    assert Estimate.within(4.0, 1.0, CLOCK).factor == pytest.approx(LEAST_FACTOR)


def test_the_factor_is_that_of_the_wider_side():
    assert Estimate(4.0, 1.0, 5.0, GUESS).factor == 4.0
    assert Estimate(4.0, 3.0, 12.0, GUESS).factor == 3.0


def test_sums_and_products_carry_their_ends():
    one, other = Estimate(4.0, 3.0, 6.0, GUESS), Estimate(1.0, 0.5, 2.0, CLOCK)
    assert one + other == Estimate(5.0, 3.5, 8.0, GUESS)
    assert one.plus(10.0, 2.0) == Estimate(14.0, 8.0, 26.0, GUESS)
    assert one.plus(10.0) == Estimate(14.0, 13.0, 16.0, GUESS)
    assert one.scaled(3.0) == Estimate(12.0, 9.0, 18.0, GUESS)


def test_the_evidence_is_replaced_in_part():
    told = Estimate(1.0, 1.0, 1.0, GUESS).resting_on(id="other", command="measure")
    assert told.rests_on == Evidence("other", "modeled", "a guess", "measure")


@pytest.mark.parametrize("value", ["1", None, 1j])
def test_what_is_no_number_is_no_estimate(value):
    with pytest.raises(ValueError, match="guess: an estimate must be above 0"):
        Estimate(value, value, value, GUESS)


def test_evidence_has_a_source_and_a_factor_is_above_0():
    with pytest.raises(ValueError, match=r"x: a source is one of measured, interpolated, .*, not 'guessed'"):
        Evidence("x", "guessed")
    with pytest.raises(ValueError, match="an estimate rests on an Evidence, not 'x'"):
        Estimate(1.0, 1.0, 1.0, "x")
    with pytest.raises(ValueError, match="guess: a factor must be above 0, not 0"):
        Estimate.within(1.0, 0, GUESS)
