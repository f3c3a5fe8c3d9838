"""Tests of the search for samplers and a batch: brute force, over replayed tables."""

import math

import numpy as np
import pytest

from impls.training import TrainingError
from impls.training.adapting import Cap, adapt, joint, search

SMALLEST = 18  # points from which on a third of the looks is always enough


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
def test_random_tables_with_one_peak_under_any_cap(top):
    rng = np.random.default_rng(top)
    for number in range(1500):
        table = unimodal(rng, int(rng.integers(SMALLEST, 90)), top)
        most = sorted(table)[int(rng.integers(len(table)))] if number % 5 == 0 else max(table)
        allowed, asked = {value: hz for value, hz in table.items() if value <= most}, []
        found = search(
            list(table),
            lambda value, table=table, asked=asked: asked.append(value) or table[value],
            [("memory", lambda value, most=most: value > most)],
        )
        assert (found.best, found.hz) == (best_of(allowed), max(allowed.values()))
        assert (found.allowed, found.not_unimodal) == (tuple(allowed), "")
        assert found.stopped_by == ("memory" if len(allowed) < len(table) else "")
        assert len(asked) == len(set(asked)) == len(found.seen) <= len(table) / 3
        assert max(asked) <= most


STRANGE = {value: 100.0 - abs(value - 30) for value in range(1, 41)}
STRANGE |= {26: 50.0, 3: 300.0}  # 26 is looked at, after 21; 3 is not


@pytest.mark.parametrize(
    ("table", "best", "looks", "facts"),
    [
        pytest.param({value: min(value, 9.0) for value in range(1, 41)}, 9, 13, "", id="saturates"),
        pytest.param(STRANGE, 3, 40, "21 26 (91, 50), 30", id="another shape"),
        # Shapes between the points seen stay unseen, as the module says.
        pytest.param(dict.fromkeys(range(1, 20), 1.0) | {20: 9.0}, 1, 6, "", id="a low plateau hides a peak"),
    ],
)
def test_what_is_seen_of_other_shapes_is_said(table, best, looks, facts):
    found = search(list(table), table.__getitem__)
    assert (found.best, found.hz) == (best, table[best])
    assert len(found.seen) <= looks
    assert bool(found.not_unimodal) == bool(facts)
    assert set(facts.split()) <= set(found.not_unimodal.split())


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


def test_noise_within_its_bounds_does_not_make_another_shape():
    rng = np.random.default_rng(4)
    table = {value: (100.0 - abs(value - 25)) * (1 + rng.uniform(-0.01, 0.01)) for value in range(1, 61)}
    patient = search(list(table), table.__getitem__, within=0.03)
    assert patient.not_unimodal == ""
    assert patient.hz > 0.95 * max(table.values())


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
    def frames(samplers, batch):
        return batch / (2e-3 + 1e-6 * batch + 2e-11 * batch**2)

    def check_caps(rate):
        def asked(*pair):
            assert all(cap.uses(*pair) <= cap.most for cap in CAPS)
            return rate(*pair)

        return asked

    found = adapt(SAMPLERS, BATCHES, check_caps(sampling_hz), check_caps(frames), CAPS)
    assert (found.samplers.best, found.samplers.stopped_by) == (22, "cores")
    assert found.batch.best == joint([22], BATCHES, frames, CAPS)[1]
    assert found.batch.stopped_by == "memory"


def test_searching_apart_misses_the_joint_optimum_where_one_costs_the_other():
    found = adapt(SAMPLERS, BATCHES, sampling_hz, frames_hz, CAPS)
    apart = (found.samplers.best, found.batch.best)
    together = joint(SAMPLERS, BATCHES, both, CAPS)
    assert together[0] < apart[0]
    assert both(*together) > 1.5 * both(*apart)


@pytest.mark.parametrize(
    ("ask", "facts"),
    [
        (lambda: search([2, 2], float), "[2, 2]"),
        (lambda: search([], float), "[]"),
        (lambda: search([1], lambda value: math.nan), "1 nan"),
        (lambda: search([1, 2], float, [("cores", lambda value: value > 0)]), "1 cores"),
        (lambda: joint([30], [16], both, CAPS), "cores memory"),
    ],
    ids=["level", "empty", "no rate", "over a cap", "no pair"],
)
def test_senseless_searches_are_refused_with_a_sentence(ask, facts):
    with pytest.raises(TrainingError) as caught:
        ask()
    assert all(fact in str(caught.value) for fact in facts.split())
