"""The oracle against the definition, one leaf at a time."""

import numpy as np

from impls.sumtree.oracle import Oracle


def test_prefix_sum_index_is_the_definition():
    oracle = Oracle(6)
    oracle.update([0, 1, 3, 4, 4], [0, 2, 1, 9, 3])
    assert oracle.get([4, 0]).tolist() == [3, 0]
    assert oracle.total() == 6
    for mass in np.arange(0, 6, 0.25):
        by_hand = next(i for i in range(6) if sum(oracle.leaves[: i + 1].tolist()) > mass)
        assert oracle.prefix_sum_index(mass).tolist() == [by_hand]


def test_left_side_range_and_minimum_are_the_definitions():
    oracle = Oracle(6)
    assert oracle.min() == np.inf
    oracle.update([0, 1, 3, 4], [0, 2, 1, 3])
    for mass in np.arange(0, 6.25, 0.25):
        by_hand = next(i for i in range(6) if sum(oracle.leaves[: i + 1].tolist()) >= mass)
        assert oracle.prefix_sum_index(mass, side="left").tolist() == [by_hand]
    assert oracle.range_sum([0, 1, 3, 6], [6, 4, 3, 6]).tolist() == [6, 3, 0, 0]
    oracle.update([0, 1, 2], [2.0**60, 1, 1])
    assert oracle.range_sum(1, 3).tolist() == [2]
    assert oracle.min() == 1


def test_misses_finds_each_kind_of_wrong_answer():
    oracle = Oracle(4)
    oracle.update([0, 1, 2, 3], [0, 2, 0, 2])
    right = [(1, 0), (3, 2), (1, 1.5), (1, 2 + 1e-12), (3, 2 - 1e-12)]
    wrong = [(3, 1), (0, 0), (2, 2), (4, 3), (-1, 0), (1, 2 + 1e-6)]
    for pairs, expected in ((right, []), (wrong, list(range(len(wrong))))):
        answers, masses = zip(*pairs, strict=True)
        assert oracle.misses(answers, masses).tolist() == expected


def test_distinct_leaves_are_drawn_from_what_is_left():
    oracle = Oracle(5)
    oracle.update([0, 1, 3, 4], [2, 1, 9, 3])
    uniforms = [0.9, 0.1, 0.99, 0.999]
    drawn = oracle.sample_distinct(uniforms).tolist()
    for uniform, leaf in zip(uniforms, drawn, strict=True):
        assert oracle.prefix_sum_index(uniform * oracle.total()).tolist() == [leaf]
        oracle.update(leaf, 0)
    assert sorted(drawn) == [0, 1, 3, 4]
    assert oracle.sample_distinct([0.5]).tolist() == [5]


def test_leaves_are_rounded_to_the_leaf_dtype():
    oracle = Oracle(1, "float32")
    oracle.update(0, 0.1)
    assert oracle.total() == float(np.float32(0.1))
