"""The cost model: exact arithmetic, fits to times of a law that it lacks, and the printed form's flaw."""

import dataclasses

import numpy as np
import pytest

from dse.times import cost_model
from dse.times.cost_model import Point
from tests.contestants import make
from tests.strange_trees import DRAW, UPDATE, measured, strange_seconds

SHAPES = [(n, k, b) for n in (1_000, 30_000, 10**6, 10**7) for k in (2, 4, 8, 16, 32, 64) for b in (1, 32, 1_000)]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("flat", {}),
        ("cumsum", {}),
        ("numpy", {}),
        ("numpy", {"padding": "full"}),
        ("numba", {}),
        ("numba", {"layout": "plain"}),
        ("cupy", {}),
    ],
)
@pytest.mark.parametrize("fanout", [2, 7, 16, 20, 64])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tree_bytes_are_those_of_the_tree(name, options, fanout, dtype):
    tree = make(name, 5_000, fanout=fanout, dtype=dtype, **options)
    told = cost_model.tree_bytes(name, 5_000, fanout, dtype, options)
    if name == "cupy":  # whose levels lie in one array, each on a line's start
        assert told <= tree._memory.size <= told + 128 * (len(tree._sizes) + 1)
        return
    marks = sum(marks.nbytes for marks in getattr(tree, "_marks", []))
    prefix_sums_start = 8 if name == "cumsum" else 0
    assert told == tree.nbytes - marks - prefix_sums_start


def test_lists_have_no_bytes_to_tell():
    with pytest.raises(ValueError, match="'python'"):
        cost_model.tree_bytes("python", 10, 2, "float32", {})


@pytest.mark.parametrize("family", [DRAW, UPDATE])
def test_times_of_another_law_are_met_but_for_what_the_model_lacks(family):
    points = measured(SHAPES)
    model = cost_model.fit(family, points)
    off = [abs(np.log(model.predict(*dataclasses.astuple(point)[:3]) / point.seconds)) for point in points]
    assert 0.02 < np.median(off) < 0.1  # nor can it be exact
    held_out = [one.error for one in cost_model.cross_validate(family, points)]
    assert np.median(held_out) < 0.15
    single, double = (
        cost_model.fanout_regrets((family, points)),
        cost_model.fanout_regrets((family, points), (family, points)),
    )
    assert [r.best for r in single] == [r.best for r in double]
    assert len(single) == 4 * 3
    for regret in single + double:
        assert regret.predicted_regret < 0.15
        assert regret.sixteen_regret >= 0
        assert regret.printed_regret >= 0


def test_a_fit_wants_some_points_and_never_gives_a_negative_cost():
    with pytest.raises(ValueError, match="at least 3"):
        cost_model.fit(DRAW, [Point(10, 2, 1, 1.0)] * 2)
    rng = np.random.default_rng(0)
    noisy = [Point(n, k, b, float(rng.random() + 0.1)) for n, k, b in SHAPES]
    assert (cost_model.fit(DRAW, noisy).seconds >= 0).all()


def test_a_poisoned_fold_changes_no_prediction_of_it():
    points = measured(SHAPES)
    pairs = sorted({(point.capacity, point.fanout) for point in points})
    clean = {one.point: one.predicted_seconds for one in cost_model.cross_validate(DRAW, points, folds=4)}
    for fold in range(4):
        inside = set(pairs[fold::4])
        poisoned = [
            dataclasses.replace(point, seconds=point.seconds * (10 if (point.capacity, point.fanout) in inside else 1))
            for point in points
        ]
        again = {one.point: one for one in cost_model.cross_validate(DRAW, poisoned, folds=4)}
        for point, poison in zip(points, poisoned, strict=True):
            if point != poison:
                assert again[poison].predicted_seconds == clean[point]
    changed = [again[poison].predicted_seconds != clean[point] for point, poison in zip(points, poisoned, strict=True)]
    assert any(changed)  # of the other folds, which do see it


def test_whole_lines_are_charged_and_upper_levels_are_hot():
    counts = cost_model.features(Point(10**6, 16, 1, 1.0), DRAW)
    at_16 = dict(zip(cost_model.FEATURES, counts.tolist(), strict=True))
    assert at_16 == {  # leaves in L3, 62,500 sums in L2, three levels in L1
        "line": 9.0,
        "line from beyond L1": 3.0,
        "line from beyond L2": 1.0,
        "line from memory": 0.0,
        "wait": 5.0,
        "wait for what lies beyond L1": 2.0,
        "wait for what lies beyond L2": 1.0,
        "wait for memory": 0.0,
        "other node": 15 + 4 * 14,
        "level": 5.0,
        "element": 1.0,
        "call": 1.0,
    }
    at_4 = cost_model.features(Point(10**6, 4, 1, 1.0), DRAW)
    assert at_4[0] == 10  # a line a level, never a part of one
    assert cost_model.features(Point(10**6, 16, 64, 1.0), DRAW)[4] == 5  # a block of 64 waits once a level
    assert cost_model.features(Point(10**6, 16, 65, 1.0), DRAW)[4] == 10


def test_what_no_cell_says_of_memory_the_floor_says():
    small = measured([shape for shape in SHAPES if shape[0] <= 10**6])  # none leaves the caches
    floor = {"line": 11e-9, "wait": 70e-9}  # what the law has of it
    large = 10**8, 16, 512
    seconds = strange_seconds(*large)
    told = cost_model.fit(dataclasses.replace(DRAW, floor=floor), small).predict(*large)
    untold = cost_model.fit(DRAW, small).predict(*large)
    assert untold < 0.6 * seconds < 0.7 * seconds < told < 1.4 * seconds
    wrong = {"line": 300e-9, "wait": 1e-9}
    every = measured([*SHAPES, (10**8, 8, 512), (10**8, 16, 1)])
    assert cost_model.fit(dataclasses.replace(DRAW, floor=wrong), every).predict(*large) == pytest.approx(
        seconds, rel=0.3
    )  # cells that reach memory outweigh a floor that contradicts them


@pytest.mark.parametrize("caches", [{}, {"L1": 0, "L2": 0, "L3": 0}, {"L2": 1 << 20}, {"L3": 0, "L1": 32 << 10}])
def test_a_machine_of_unknown_caches_is_taken_for_an_ordinary_one(caches):
    unknown = dataclasses.replace(DRAW, caches=caches)
    ordinary = dataclasses.replace(DRAW, caches=cost_model.DEFAULT_CACHES)
    points = measured(SHAPES)
    models = [cost_model.fit(family, points) for family in (unknown, ordinary)]
    for shape in [*SHAPES, (10**8, 32, 77)]:
        assert models[0].predict(*shape) == models[1].predict(*shape) > 0


def test_a_cache_is_no_smaller_than_the_one_before():
    large_l2 = dataclasses.replace(DRAW, caches={"L1": 128 << 10, "L2": 64 << 20})  # as where there is no L3
    assert large_l2.cache_bytes == (128 << 10, 64 << 20, 64 << 20)
    counts = cost_model.features(Point(10**7, 16, 1, 1.0), large_l2)
    assert counts[2] == counts[3] == 0  # 43 MB of levels: in L2, so nothing is beyond it


def test_updates_of_a_batch_share_their_upper_groups():
    assert cost_model.distinct(1, 1000) == 1.0
    assert cost_model.distinct(10**6, 1) == pytest.approx(1.0)
    assert cost_model.distinct(100, 10**6) == pytest.approx(100.0)
    rng = np.random.default_rng(0)
    drawn = np.mean([np.unique(rng.integers(0, 500, 300)).size for _ in range(300)])
    assert cost_model.distinct(500, 300) == pytest.approx(drawn, rel=0.01)


@pytest.mark.parametrize("capacity", [10**3, 10**5, 10**7])
def test_the_printed_form_has_its_minimum_near_three_whatever_the_machine(capacity):
    assert cost_model.printed_best_fanout(capacity) == 3
    for miss, hit in ((1.0, 1.0), (100.0, 1.0), (1.0, 0.0)):
        costs = {k: cost_model.printed_cost(capacity, k, miss, hit) for k in range(2, 65)}
        assert min(costs, key=costs.__getitem__) == 3
