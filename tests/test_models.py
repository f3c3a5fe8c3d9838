"""The cost model: exact arithmetic, fits that find the costs they were made from, and the printed form's flaw."""

import dataclasses

import numpy as np
import pytest

from dse.times import tree_cost_model
from dse.times.tree_cost_model import Family, Point
from tests.contestants import make

CACHES = {"L1": 48 << 10, "L2": 1 << 20, "L3": 32 << 20}
DRAW = Family("numba", "draw", "float32", CACHES)
UPDATE = Family("numba", "update", "float32", CACHES, shares=True)
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
    told = tree_cost_model.tree_bytes(name, 5_000, fanout, dtype, options)
    if name == "cupy":  # whose levels lie in one array, each on a line's start
        assert told <= tree._memory.size <= told + 128 * (len(tree._sizes) + 1)
        return
    marks = sum(marks.nbytes for marks in getattr(tree, "_marks", []))
    prefix_sums_start = 8 if name == "cumsum" else 0
    assert told == tree.nbytes - marks - prefix_sums_start


def test_lists_have_no_bytes_to_tell():
    with pytest.raises(ValueError, match="'python'"):
        tree_cost_model.tree_bytes("python", 10, 2, "float32", {})


@pytest.mark.parametrize("family", [DRAW, UPDATE])
def test_a_fit_finds_the_costs_that_made_the_times(family):
    costs = np.array([1.0, 1.0, 3.0, 35.0, 2.0, 6.0, 30.0, 80.0, 0.1, 2.0, 3.0, 900.0]) * 1e-9
    points = [
        Point(n, k, b, float(costs @ tree_cost_model.features(Point(n, k, b, 1.0), family))) for n, k, b in SHAPES
    ]
    model = tree_cost_model.fit(family, points)
    for point in points:
        assert model.predict(point.capacity, point.fanout, point.batch) == pytest.approx(point.seconds, rel=1e-6)
    assert max(one.error for one in tree_cost_model.cross_validate(family, points)) < 0.01
    single, double = (
        tree_cost_model.fanout_regrets((family, points)),
        tree_cost_model.fanout_regrets((family, points), (family, points)),
    )
    assert [r.best for r in single] == [r.best for r in double]
    assert len(single) == 4 * 3
    for regret in single + double:
        assert regret.predicted_regret < 0.01
        assert regret.sixteen_regret >= 0
        assert regret.printed_regret >= 0


def test_a_fit_wants_some_points_and_never_gives_a_negative_cost():
    with pytest.raises(ValueError, match="at least 3"):
        tree_cost_model.fit(DRAW, [Point(10, 2, 1, 1.0)] * 2)
    rng = np.random.default_rng(0)
    noisy = [Point(n, k, b, float(rng.random() + 0.1)) for n, k, b in SHAPES]
    assert (tree_cost_model.fit(DRAW, noisy).seconds >= 0).all()


def test_held_out_cells_are_predicted_without_their_own_fanout_and_capacity():
    points = [Point(n, k, b, 1e-6 * b) for n, k, b in SHAPES]
    held_out = tree_cost_model.cross_validate(DRAW, points)
    assert sorted((o.point.capacity, o.point.fanout, o.point.batch) for o in held_out) == sorted(SHAPES)


def test_whole_lines_are_charged_and_upper_levels_are_hot():
    counts = tree_cost_model.features(Point(10**6, 16, 1, 1.0), DRAW)
    at_16 = dict(zip(tree_cost_model.FEATURES, counts.tolist(), strict=True))
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
    at_4 = tree_cost_model.features(Point(10**6, 4, 1, 1.0), DRAW)
    assert at_4[0] == 10  # a line a level, never a part of one
    assert tree_cost_model.features(Point(10**6, 16, 64, 1.0), DRAW)[4] == 5  # a block of 64 waits once a level
    assert tree_cost_model.features(Point(10**6, 16, 65, 1.0), DRAW)[4] == 10


def test_what_no_cell_says_of_memory_the_floor_says():
    costs = np.array([1.0, 1.0, 3.0, 30.0, 2.0, 6.0, 30.0, 80.0, 0.1, 2.0, 3.0, 900.0]) * 1e-9

    def made(n, k, b):
        return Point(n, k, b, float(costs @ tree_cost_model.features(Point(n, k, b, 1.0), DRAW)))

    small = [made(n, k, b) for n, k, b in SHAPES if n <= 10**6]  # none leaves the caches
    floor = {"line": 30e-9, "wait": 80e-9}
    large = made(10**8, 16, 512)
    told = tree_cost_model.fit(dataclasses.replace(DRAW, floor=floor), small).predict(10**8, 16, 512)
    untold = tree_cost_model.fit(DRAW, small).predict(10**8, 16, 512)
    assert untold < 0.5 * large.seconds < 0.95 * large.seconds < told < 1.05 * large.seconds
    wrong = {"line": 300e-9, "wait": 1e-9}
    every = [made(*shape) for shape in [*SHAPES, (10**8, 8, 512), (10**8, 16, 1)]]
    assert tree_cost_model.fit(dataclasses.replace(DRAW, floor=wrong), every).predict(10**8, 16, 512) == pytest.approx(
        large.seconds, rel=0.15
    )  # cells that reach memory outweigh a floor that contradicts them


def test_updates_of_a_batch_share_their_upper_groups():
    assert tree_cost_model.distinct(1, 1000) == 1.0
    assert tree_cost_model.distinct(10**6, 1) == pytest.approx(1.0)
    assert tree_cost_model.distinct(100, 10**6) == pytest.approx(100.0)
    rng = np.random.default_rng(0)
    drawn = np.mean([np.unique(rng.integers(0, 500, 300)).size for _ in range(300)])
    assert tree_cost_model.distinct(500, 300) == pytest.approx(drawn, rel=0.01)


@pytest.mark.parametrize("capacity", [10**3, 10**5, 10**7])
def test_the_printed_form_has_its_minimum_near_three_whatever_the_machine(capacity):
    assert tree_cost_model.printed_best_fanout(capacity) == 3
    for miss, hit in ((1.0, 1.0), (100.0, 1.0), (1.0, 0.0)):
        costs = {k: tree_cost_model.printed_cost(capacity, k, miss, hit) for k in range(2, 65)}
        assert min(costs, key=costs.__getitem__) == 3
