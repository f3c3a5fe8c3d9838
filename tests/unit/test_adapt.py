"""Tests of the search for samplers and a batch: brute force, over replayed tables."""

import math

import numpy as np
import pytest

from impls.training import TrainingError
from impls.training.adapting import Cap, adapt, joint, search

SMALLEST = 18  # points from which on a third of the looks is always enough


def replayed(table):
    """Make a rate function of a table, and the list of the values it is asked for."""
    asked = []

    def rate(value):
        asked.append(value)
        return table[value]

    return rate, asked


def best_of(table):
    return min(table, key=lambda value: (-table[value], value))


def unimodal(rng, count, top=1):
    """Sample rates that rise strictly, are level on top over so many points, and fall strictly; the peak anywhere."""
    values = np.unique(rng.integers(1, 10_000, 3 * count))[:count].tolist()
    peak = int(rng.integers(0, count - top + 1))
    rates = np.sort(rng.uniform(0.1, 100, count - top))
    order = rng.permutation(count - top)
    up, down = np.sort(rates[order[:peak]]), -np.sort(-rates[order[peak:]])
    return dict(zip(values, [*up, *[101.0] * top, *down], strict=True))


def test_a_third_of_the_looks_finds_every_peak_from_18_points_on():
    most = {}
    for count in range(1, 150):
        for peak in range(count):
            found = search(range(count), lambda value, peak=peak: 1000.0 - abs(value - peak))
            assert found.best == peak
            most[count] = max(most.get(count, 0), len(found.seen))
    assert [count for count in most if 3 * most[count] > count] == list(range(1, SMALLEST))
    assert (most[20], most[33], most[54], most[88]) == (6, 7, 8, 9)


@pytest.mark.parametrize("top", [1, 2, 7])
def test_random_unimodal_tables_with_plateaus_at_the_top(top):
    rng = np.random.default_rng(top)
    for _ in range(1500):
        table = unimodal(rng, int(rng.integers(SMALLEST, 90)), top)
        rate, asked = replayed(table)
        found = search(list(table), rate)
        assert (found.best, found.hz) == (best_of(table), 101.0)
        assert len(asked) == len(set(asked)) == len(found.seen) <= len(table) / 3
        assert found.not_unimodal == "" == found.stopped_by


def test_a_rate_that_saturates_is_stopped_at_the_first_of_the_equal_points():
    found = search(range(1, 41), lambda value: float(min(value, 9)))
    assert (found.best, found.hz) == (9, 9.0)
    assert 3 * len(found.seen) <= 40


def test_another_shape_is_said_and_everything_is_looked_at():
    table = {value: 100.0 - abs(value - 30) for value in range(1, 41)}
    table[26] = 50.0  # one of the points looked at, after 21
    table[3] = 300.0  # none of them
    rate, asked = replayed(table)
    found = search(list(table), rate)
    assert found.not_unimodal == "from 21 to 26 the rate does not rise (91, 50), the highest is at 30"
    assert (found.best, len(asked)) == (3, 40)


def test_every_answer_is_brute_forces_or_of_points_with_one_peak():
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(2000):
        table = dict(enumerate(rng.permutation(24).astype(float).tolist()))
        found = search(list(table), table.__getitem__)
        if found.not_unimodal:
            assert found.best == best_of(table)
            assert len(found.seen) == 24
        else:
            rates = [rate for _, rate in sorted(found.seen.items())]
            peak = rates.index(max(rates))
            assert rates == sorted(rates[:peak]) + sorted(rates[peak:], reverse=True)
            assert all(table.get(found.best + step, -1.0) < found.hz for step in (-1, 1))  # a peak, if not the highest
            missed += found.best != best_of(table)
    assert missed == 233  # of tables without any order, as the module says


def test_a_low_plateau_hides_a_peak():
    """Shapes between the points seen stay unseen, as the module says."""
    table = dict.fromkeys(range(1, 21), 1.0) | {20: 9.0}
    found = search(list(table), table.__getitem__)
    assert (found.hz, found.not_unimodal) == (1.0, "")


def test_noise_within_its_bounds_does_not_make_another_shape():
    rng = np.random.default_rng(4)
    table = {value: (100.0 - abs(value - 25)) * (1 + rng.uniform(-0.01, 0.01)) for value in range(1, 61)}
    patient = search(list(table), table.__getitem__, within=0.03)
    assert patient.not_unimodal == ""
    assert patient.hz > 0.95 * max(table.values())


def test_nothing_over_a_cap_is_ever_looked_at():
    rng = np.random.default_rng(5)
    for _ in range(300):
        table = unimodal(rng, 40)
        most = sorted(table)[int(rng.integers(0, 40))]
        rate, asked = replayed(table)
        found = search(list(table), rate, [("memory", lambda value, most=most: value > most)])
        allowed = {value: hz for value, hz in table.items() if value <= most}
        assert max(asked) <= most
        assert found.best == best_of(allowed)
        assert found.allowed == tuple(allowed)
        assert found.stopped_by == ("memory" if len(allowed) < 40 else "")
    with pytest.raises(TrainingError, match="even 1 is over the cap on cores"):
        search([1, 2], float, [("cores", lambda value: value > 0)])


def test_a_point_exactly_at_a_cap_is_under_it():
    cap = Cap("cores", 4, lambda samplers, batch: samplers)
    found = adapt(range(1, 9), (16,), lambda samplers, batch: samplers, lambda samplers, batch: batch, (cap,))
    assert (found.samplers.best, found.samplers.stopped_by) == (4, "cores")
    assert joint(range(1, 9), (16,), lambda samplers, batch: samplers, (cap,)) == (4, 16)


SAMPLERS, BATCHES = range(1, 33), tuple(2**k for k in range(4, 16))
CAPS = (
    Cap("cores", 24, lambda samplers, batch: samplers),
    Cap("memory", 8000, lambda samplers, batch: 100 * samplers + batch / 2),
)


def sampling_hz(samplers, batch):
    return 400 * samplers / (1 + 0.002 * samplers**2)


def frames_hz(samplers, batch):
    """Samplers take what the learner would use of 24 cores."""
    return batch / (2e-3 + 1e-6 * batch) * (1 - 0.03 * samplers)


def both(samplers, batch):
    """Records trained on a second, of which each is to be new once in 256 times."""
    return min(256 * sampling_hz(samplers, batch), frames_hz(samplers, batch))


def test_searching_apart_keeps_to_the_caps_and_is_right_for_rates_that_are_apart():
    looked = []

    def frames(samplers, batch):
        looked.append((samplers, batch))
        return batch / (2e-3 + 1e-6 * batch + 2e-11 * batch**2)

    def steps(samplers, batch):
        looked.append((samplers, batch))
        return sampling_hz(samplers, batch)

    found = adapt(SAMPLERS, BATCHES, steps, frames, CAPS)
    assert all(cap.uses(*pair) <= cap.most for pair in looked for cap in CAPS)
    assert (found.samplers.best, found.samplers.stopped_by) == (22, "cores")
    assert found.batch.best == joint([22], BATCHES, frames, CAPS)[1]
    assert found.batch.stopped_by == "memory"


def test_searching_apart_misses_the_joint_optimum_where_one_costs_the_other():
    found = adapt(SAMPLERS, BATCHES, sampling_hz, frames_hz, CAPS)
    apart = (found.samplers.best, found.batch.best)
    together = joint(SAMPLERS, BATCHES, both, CAPS)
    assert together[0] < apart[0]
    assert both(*together) > 1.5 * both(*apart)


def test_senseless_searches_are_refused_with_a_sentence():
    with pytest.raises(TrainingError, match=r"must rise, not \[2, 2\]"):
        search([2, 2], float)
    with pytest.raises(TrainingError, match=r"must rise, not \[\]"):
        search([], float)
    with pytest.raises(TrainingError, match="the rate of 1 must be finite"):
        search([1], lambda value: math.nan)
    with pytest.raises(TrainingError, match="no pair is under the caps on cores, memory"):
        joint([30], [16], both, CAPS)
