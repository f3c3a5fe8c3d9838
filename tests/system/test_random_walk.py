"""Every implementation in lock-step with the oracle, check() after every step."""

import numpy as np
import pytest

import impls
from tests.contestants import VARIANTS
from tests.matrix import matrix
from tests.walk import walk

SHAPES = [(1, 2), (2, 16), (17, 16), (100, 3), (257, 16), (1000, 7), (5000, 64)]
BRIEF = {(1, 2): False, (100, 3): True, (257, 16): False, (5000, 64): True}


@pytest.mark.parametrize(("shape", "integers"), matrix(SHAPES, [True, False], brief=lambda *one: one in BRIEF.items()))
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_walk(name, options, shape, integers):
    tree = impls.make(name, shape[0], fanout=shape[1], **options)
    walk(tree, seed=shape[0] * shape[1], steps=60, integers=integers, exact=options.get("propagate") != "delta")


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_walk_on_float64_leaves(name, options):
    tree = impls.make(name, 300, fanout=4, dtype="float64", **options)
    walk(tree, seed=8, steps=80, integers=False, exact=options.get("propagate") != "delta")


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_walk_without_validation(name, options):
    tree = impls.make(name, 300, fanout=16, validate=False, **options)
    walk(_Unconverted(tree), seed=9, steps=80, integers=False, exact=options.get("propagate") != "delta")


class _Unconverted:
    """Hands over what validate=False asks for: arrays of the right types."""

    def __init__(self, tree):
        self._tree = tree

    def __getattr__(self, name):
        return getattr(self._tree, name)

    def __repr__(self):
        return repr(self._tree)

    def update(self, indices, priorities):
        if isinstance(priorities, float):
            priorities = np.full(indices.size, priorities)
        self._tree.update(indices, priorities)
