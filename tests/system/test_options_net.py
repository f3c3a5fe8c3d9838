"""The options that the solver is fed are those that were written down (``tests/options_net.py``)."""

import pytest

from tests.matrix import slow
from tests.options_net import PLATFORMS, changes, net, written


@pytest.mark.parametrize("platform", [PLATFORMS[0], *map(slow, PLATFORMS[1:])])
def test_the_solver_is_fed_what_was_written(platform):
    known = written([platform])
    assert len(known) > 100
    assert not list(changes(known, net([platform])))


def test_whatever_changes_is_listed():
    before = {"a": [1.0, 2.0], "b": [1.0], "c": [1.0]}
    after = {"a": [1.0, 2.0 * (1 + 1e-11)], "b": [1.0 + 1e-13], "d": [1.0]}
    kinds = [line.partition(":")[0] for line in changes(before, after)]
    assert kinds == ["changed", "gone", "added"]
