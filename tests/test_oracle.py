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


def test_misses_finds_each_kind_of_wrong_answer():
    oracle = Oracle(4)
    oracle.update([0, 1, 2, 3], [0, 2, 0, 2])
    right = [(1, 0), (3, 2), (1, 1.5), (1, 2 + 1e-12), (3, 2 - 1e-12)]
    wrong = [(3, 1), (0, 0), (2, 2), (4, 3), (-1, 0), (1, 2 + 1e-6)]
    for pairs, expected in ((right, []), (wrong, list(range(len(wrong))))):
        answers, masses = zip(*pairs, strict=True)
        assert oracle.misses(answers, masses).tolist() == expected


def test_leaves_are_rounded_to_the_leaf_dtype():
    oracle = Oracle(1, "float32")
    oracle.update(0, 0.1)
    assert oracle.total() == float(np.float32(0.1))
