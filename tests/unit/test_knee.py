"""Tests of the knee: brute force over laws of a gradient step, and batches that do not fit."""

import numpy as np
import pytest

from dse.mapping.knee import SHARE, knee

BATCHES = [1 << power for power in range(5, 17)]


def asked(rates):
    """A rate function of a table, and the list of what it is asked for."""
    seen = []

    def rate(batch):
        seen.append(batch)
        return rates[batch]

    return rate, seen


def law(fixed, each, most=BATCHES[-1]):
    """Records a second where a gradient step takes fixed + each * B seconds; none above ``most``."""
    return {batch: batch / (fixed + each * batch) if batch <= most else 0.0 for batch in BATCHES}


def test_of_a_fixed_and_a_growing_time_it_is_the_smallest_near_the_rate_of_the_largest():
    rng = np.random.default_rng(1)
    for _ in range(500):
        rates = law(10 ** rng.uniform(-6, -1), 10 ** rng.uniform(-8, -4), most=int(rng.choice(BATCHES)))
        rate, seen = asked(rates)
        found = knee(BATCHES, rate)
        largest = max(batch for batch in BATCHES if rates[batch])
        expected = min(batch for batch in BATCHES if rates[batch] >= SHARE * max(rates.values()))
        assert found.largest == largest
        assert found.batch == (expected if expected < largest or largest == BATCHES[0] else None)
        assert len(seen) == len(set(seen)) <= 10


@pytest.mark.parametrize("count", range(1, 13))
def test_a_rate_that_rises_to_the_end_has_none(count):
    found = knee(BATCHES[:count], float)
    assert (found.batch, found.largest) == (BATCHES[0] if count == 1 else None, BATCHES[count - 1])


def test_where_nothing_fits_there_is_none():
    found = knee(BATCHES, lambda batch: 0.0)
    assert (found.batch, found.largest, found.most) == (None, None, 0.0)


@pytest.mark.parametrize("share", [SHARE, np.nextafter(SHARE, 0)])
def test_the_share_itself_is_enough(share):
    found = knee([1, 2], {1: share, 2: 1.0}.__getitem__)
    assert found.batch == (1 if share >= SHARE else None)


def test_any_table_gets_a_batch_that_pays_among_those_tried():
    rng = np.random.default_rng(2)
    for _ in range(500):
        rates = dict(zip(BATCHES, rng.uniform(0, 1, len(BATCHES)), strict=True))
        found = knee(BATCHES, rates.__getitem__)
        least = SHARE * max(found.rates.values())
        near = [batch for batch, rate in sorted(found.rates.items()) if rate >= least]
        assert found.batch == (near[0] if near[0] < found.largest else None)
