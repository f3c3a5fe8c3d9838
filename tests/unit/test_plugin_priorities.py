"""The rule of priorities that all plug-ins share, without any host."""

import numpy as np
import pytest

import impls
from impls.plugins.hosts import Replacement
from impls.plugins.priorities import GONE, NumberedPriorities, Priorities


def make_priorities(alpha=0.5, epsilon=0.0, **options):
    return NumberedPriorities(impls.make("numpy", 8, dtype="float64"), alpha, epsilon, **options)


def stored(priorities):
    return priorities.tree.get(np.arange(8)).tolist()


def test_priorities_follow_the_formula_and_new_rows_get_the_largest():
    priorities = make_priorities(epsilon=0.25)
    priorities.update(np.array([0, 1, 0]), np.array([15.75, 0.0, 3.75]))
    priorities.update(np.array([2, 3]), 0.75)
    priorities.write(np.array([5, 4]))
    assert stored(priorities) == [2.0, 0.5, 1.0, 1.0, 4.0, 4.0, 0.0, 0.0]
    assert (priorities.largest, priorities.smallest, priorities.written) == (16.0, 0.25, 2)
    priorities.forget(np.array([5]))
    assert stored(priorities)[5] == 0.0
    assert priorities.numbers.tolist() == [*[GONE] * 4, 1, *[GONE] * 3]


def test_errors_of_rows_that_are_gone_are_left_out():
    priorities = make_priorities()
    priorities.update(np.array([-1, 2]), np.array([np.nan, 4.0]), np.array([False, True]))
    priorities.update(np.array([9]), np.array([9.0]), np.array([False]))
    assert stored(priorities) == [0.0, 0.0, 2.0, *[0.0] * 5] and priorities.largest == 4.0


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_wrong_errors_are_refused_and_nothing_is_written(alpha):
    priorities, rows = make_priorities(alpha), np.array([0, 1])
    for errors, kind, words in (
        ([1.0, np.nan], ValueError, r"nan is outside \[0, inf\): give absolute"),
        ([np.inf, 1.0], ValueError, r"inf is outside \[0, inf\)"),
        ([-1.0, 1.0], ValueError, r"-1.0 is outside \[0, inf\)"),
        ([1.0], ValueError, r"must be \[2\] like their rows, not \[1\]"),
        ([1j, 1.0], TypeError, "must be real numbers, not complex128"),
        ([True, False], TypeError, "must be real numbers, not bool"),
    ):
        with pytest.raises(kind, match=words):
            priorities.update(rows, np.array(errors))
    with pytest.raises(IndexError):
        priorities.update(np.array([0, 8]), np.array([9.0, 9.0]))
    assert stored(priorities) == [0.0] * 8 and priorities.largest == priorities.smallest == 1.0


def test_a_priority_that_the_tree_cannot_hold_is_refused_or_clipped():
    tree = impls.make("numpy", 8)
    with pytest.raises(ValueError, match="outside"):
        Priorities(tree, 2.0).update(np.array([0]), np.array([1e30]))
    Priorities(tree, 2.0, is_clipped=True).update(np.array([0, 1]), np.array([1e30, 1e-30]))
    assert tree.get([0, 1]).tolist() == [np.float32(tree.largest_priority), np.float32(tree.smallest_priority)]


def test_weights_follow_the_formula():
    priorities = make_priorities()
    priorities.tree.update(np.arange(4), [1.0, 4.0, 2.0, 0.5])
    found = np.array([4.0, 2.0])
    shares = 4 * found / 7.5
    assert priorities.weights(found, 0.7) == pytest.approx(shares**-0.7 / (4 * 0.5 / 7.5) ** -0.7)
    assert priorities.weights(found, 0.7, 2.0) == pytest.approx([2.0**-0.7, 1.0])


@pytest.mark.parametrize("name", ["alpha", "epsilon"])
@pytest.mark.parametrize(("value", "kind"), [(-0.1, ValueError), (np.inf, ValueError), ("high", TypeError)])
def test_wrong_settings_are_refused(name, value, kind):
    with pytest.raises(kind, match=f"{name} must be"):
        make_priorities(**{name: value})


def test_names_of_a_host_are_replaced_and_given_back():
    replacement, theirs = Replacement(("json", "dumps"), ("json.decoder", "JSONDecoder")), __import__("json").dumps
    replacement.put({"dumps": len, "JSONDecoder": None})
    assert __import__("json").dumps is len
    replacement.undo()
    assert __import__("json").dumps is theirs
