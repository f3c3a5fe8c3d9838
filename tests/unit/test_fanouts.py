"""The choice of K under doubt: what it must not see, where it knows nothing, and how it is judged."""

import dataclasses
import math

import numpy as np
import pytest

import dse
from benchmarks.presets import PRESETS, groups
from dse.times import cost_model
from dse.times.cost_model import (
    ErrorModel,
    FanoutModel,
    best_fanout,
    estimate_error,
    fanout_regrets,
    leave_out,
    outside,
)
from tests.strange_trees import DRAW, NOISE, UPDATE, measured, strange_seconds

KS = (2, 4, 8, 16, 32, 64)
SHAPES = [(n, k, b) for n in (1_000, 30_000, 10**6, 10**7) for k in KS for b in (1, 32, 1_000)]


def small_best(capacity, fanout, batch):
    """Seconds where the smaller K is, the better: a law with a plain answer."""
    return 1e-6 + 1e-8 * batch * fanout * math.log(capacity, fanout)


def steps(seconds=strange_seconds, shapes=SHAPES, noise=NOISE, seed=0):
    return [(DRAW, measured(shapes, seconds, noise, seed)), (UPDATE, measured(shapes, seconds, noise, seed + 1))]


def poisoned(parts, axis, value):
    """The parts with the smallest K a thousand times as fast wherever N or B is the value."""
    return [
        (
            family,
            [
                dataclasses.replace(point, seconds=point.seconds / 1000)
                if getattr(point, axis) == value and point.fanout == 2
                else point
                for point in points
            ],
        )
        for family, points in parts
    ]


@pytest.mark.parametrize("axis", cost_model.AXES)
def test_the_cells_of_the_asked_n_or_b_change_no_choice(axis):
    parts = steps()
    clean = fanout_regrets(*parts, axis=axis)
    values = {getattr(row, axis) for row in clean}
    assert len(values) > 2
    for value in values:
        again = fanout_regrets(*poisoned(parts, axis, value), axis=axis)
        chosen = [[row.predicted for row in rows if getattr(row, axis) == value] for rows in (clean, again)]
        assert chosen[0] == chosen[1]
        assert all(row.best == 2 for row in again if getattr(row, axis) == value)  # so it does matter


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise", [0.03, 0.5])
def test_of_a_law_that_the_model_lacks_k_costs_no_more_than_always_16(seed, noise):
    for axis in cost_model.AXES:
        rows = fanout_regrets(*steps(noise=noise, seed=seed), axis=axis)
        truth = {(n, k, b): strange_seconds(n, k, b) for n, k, b in SHAPES}
        costs = [
            [
                truth[row.capacity, k, row.batch] / min(truth[row.capacity, other, row.batch] for other in KS) - 1
                for row, k in zip(rows, chosen, strict=True)
            ]
            for chosen in ([row.predicted for row in rows], [16] * len(rows))
        ]
        assert np.mean(costs[0]) <= np.mean(costs[1]) + 0.02
        assert max(costs[0]) <= max(costs[1]) + max(0.06, noise)


def test_evidence_carries_k_away_from_16_as_far_as_it_reaches():
    certain = best_fanout(steps(small_best), 100_000, 256, KS)
    assert certain.best in (2, 4)
    ratio = certain.ratios[4]
    assert ratio.mean + 1.5 * ratio.sigma < 0
    assert certain.ratios[16] == cost_model.Ratio(0.0, 0.0)
    doubtful = FanoutModel(*steps(small_best, noise=1.5))
    assert doubtful.doubt.inside > FanoutModel(*steps(small_best)).doubt.inside
    nearer, farther = (doubtful.ratios(10**7 * beyond, 256, KS)[4] for beyond in (1, 10_000))
    assert farther.sigma > nearer.sigma > ratio.sigma


def test_a_gain_within_the_models_error_is_left_alone():
    """The models say that K = 32 is a little better; the less they are to be trusted, the less that counts."""
    model = FanoutModel(*steps(lambda n, k, b: 1e-6 * (1 + 0.001 * abs(math.log2(k / 32))), noise=0.0))
    object.__setattr__(model.doubt, "inside", 0.0)
    object.__setattr__(model.doubt, "beyond", 0.0)
    told = {fanout: ratio.mean for fanout, ratio in model.ratios(30_000, 32, KS).items()}
    gain = min(told.values())
    assert -0.01 < gain < 0
    assert model.best(30_000, 32, KS).best == min(told, key=told.__getitem__)
    object.__setattr__(model.doubt, "inside", 0.25)
    assert model.best(30_000, 32, KS).best == 16


@pytest.mark.parametrize("parts", [[], [(DRAW, [])], [(DRAW, measured(SHAPES[:2]))], [(DRAW, measured(SHAPES[:3]))]])
def test_where_nothing_is_known_k_is_16_or_the_nearest_to_it(parts):
    choice = best_fanout(parts, 10**6, 256, KS)
    assert choice.best == 16
    assert all(ratio.mean == 0 and ratio.expected >= 1 for ratio in choice.ratios.values())
    assert best_fanout(parts, 10**6, 256, (2, 64, 12)).best == 12
    with pytest.raises(ValueError, match="empty"):
        best_fanout(parts, 10**6, 256, ())


def test_a_fanout_beyond_those_measured_is_not_believed():
    seen = [shape for shape in SHAPES if shape[1] >= 8]
    model = FanoutModel(*steps(small_best, seen))
    assert model.best(30_000, 1_000, KS).best == 8
    assert model.ratios(30_000, 1_000, KS)[2].mean == 0


def test_ten_times_the_largest_n_is_within_the_factor_that_is_told():
    seen = measured([shape for shape in SHAPES if shape[0] < 10**7])
    told, model = estimate_error(DRAW, seen), cost_model.fit(DRAW, seen)
    within = []
    for shape in SHAPES:
        if shape[0] == 10**7:
            distance = outside(seen, shape[0], shape[2])
            assert distance == pytest.approx(math.log(10))
            off = abs(math.log(model.predict(*shape) / strange_seconds(*shape)))
            within.append(off <= math.log(told.factor(distance)))
    assert np.mean(within) > 0.75  # memory begins beyond the cells, and none of them tells
    assert 1 < told.factor() < told.factor(1.0) < told.factor(2.0) < told.factor(1e9) < math.inf
    factors = [dse.error_factor(DRAW, seen, 10**6 * beyond, 32) for beyond in (1, 10, 100)]
    assert factors[:2] == [told.factor(), pytest.approx(told.factor(math.log(10)))]
    assert factors == sorted(factors)
    assert estimate_error(DRAW, seen[:2]) is dse.error_factor(DRAW, seen[:2], 10**6, 32) is None


def test_doubt_is_what_held_out_cells_show_and_a_few_show_little():
    many = ErrorModel.of(
        [(0.0, 0.1), (0.0, -0.1)] * 5_000 + [(2.0, math.hypot(0.1, 1.0)), (2.0, -math.hypot(0.1, 1.0))] * 5_000, 0.5
    )
    assert many.inside == pytest.approx(0.1, rel=0.02)
    assert many.beyond == pytest.approx(0.5, rel=0.02)
    few = ErrorModel.of([(0.0, 0.0)] * 2, 0.5)
    assert 0.4 < few.inside < 0.5
    assert few.beyond == pytest.approx(0.25)


def test_nothing_left_out_is_seen_and_each_cell_is_left_out_along_both_axes():
    parts = steps()
    left_out = []
    for axis, distance, seen, left in leave_out(*parts):
        for (_, kept), out in zip(seen, left, strict=True):
            assert not {getattr(point, axis) for point in kept} & {getattr(point, axis) for point in out}
            values = sorted({getattr(point, axis) for point in kept})
            is_end = not values[0] < getattr(out[0], axis) < values[-1]
            assert (distance > 0) == is_end
            left_out += out
    assert sorted(left_out, key=repr) == sorted((point for _, points in parts for point in points * 2), key=repr)


# The preset, and who reads it


def test_the_preset_has_every_familys_whole_grid_and_takes_less_than_eight_minutes():
    preset = PRESETS["fanouts"]
    cells = groups(case for block in preset.blocks for case in block.cases())
    timed = sum(case.contestant != "fpga" for group in cells for case in group) + len(cells)  # and the A/A twins
    assert timed * preset.budget_seconds * 1.3 < 8 * 60
    seen = {}
    for case in (case for group in cells for case in group):
        key = (case.contestant, repr(case.options), case.dtype)
        seen.setdefault(key, set()).add((case.op, case.capacity, case.batch, case.fanout))
    plain, delta = "'layout': 'plain'", "'propagate': 'delta'"
    for options in ("{}", f"{{{plain}}}", f"{{{delta}}}", f"{{{plain}, {delta}}}"):
        assert len(seen["numba", options, "float32"]) == 2 * 4 * 3 * 7
    assert len(seen["numba", "{}", "float64"]) == len(seen["numpy", "{}", "float32"]) == 2 * 4 * 3 * 7
    assert len(seen["python", "{}", "float32"]) == 2 * 3 * 3 * 7


def patternless(capacity, fanout, batch):
    """Seconds that do not depend on K, but for 16, which is a tenth faster: under noise, fits see patterns."""
    return 1e-8 * batch * math.log(capacity) * (0.9 if fanout == 16 else 1.0)


def test_a_model_whose_choices_lost_where_it_had_not_seen_is_no_evidence():
    models = [FanoutModel(*steps(patternless, noise=0.15, seed=2 * seed)) for seed in range(12)]
    assert sum(model.doubt is None for model in models) >= 3
    assert {model.best(50_000, 500, KS).best for model in models if model.doubt is None} == {16}
    assert FanoutModel(*steps(small_best)).doubt is not None
