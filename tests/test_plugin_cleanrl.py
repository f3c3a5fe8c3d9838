"""The lines to paste into single-file programs: taken from their page, they draw and weigh as the page says."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.plugin_hosts import broken

PAGE = Path(__file__).resolve().parent.parent / "impls" / "plugins" / "cleanrl.md"


def pasted(capacity, **options):
    """What the page's code makes in a file that has imported NumPy, as those have."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = {"np": np}
    exec(code, file)  # what a reader does by hand
    return file["Priorities"](capacity, **options)


def seed(number):
    np.random.seed(number)  # noqa: NPY002  # the generator that these files draw from


def trained(priorities, steps=300, batch=32):
    """A toy loop: a row a step over the oldest one, a batch, and TD errors that a row keeps for life."""
    errors, size = np.zeros(priorities.tree.capacity), priorities.tree.capacity
    rng = np.random.default_rng(0)
    for step in range(steps):
        errors[step % size] = rng.exponential()
        priorities.add(step % size)
        rows, weights = priorities.sample(batch)
        assert rows.max() <= step and weights.dtype == np.float32 and weights.max() == 1.0
        priorities.update(rows, -errors[rows])
    priorities.update(np.arange(size), errors)
    return errors


def frequencies_are_right(priorities, errors):
    """Chi-square of single draws, hence over one interval each; and each interval has its share of a batch."""
    chances = (errors + 1e-6) ** 0.6
    chances /= chances.sum()
    counts = np.bincount([priorities.sample(1)[0][0] for _ in range(20_000)], minlength=chances.size)
    freedom = chances.size - 1
    assert abs(((counts - 20_000 * chances) ** 2 / (20_000 * chances)).sum() - freedom) < 5 * np.sqrt(2 * freedom)
    counts = np.bincount(priorities.sample(10_000)[0], minlength=chances.size)
    assert np.abs(counts - 10_000 * chances).max() <= 2


@pytest.mark.parametrize("capacity", [64, 100])
def test_the_pasted_lines_draw_in_proportion_and_weigh_by_the_formula(capacity):
    seed(0)
    priorities = pasted(capacity)
    errors = trained(priorities)
    frequencies_are_right(priorities, errors)
    chances = (errors + 1e-6) ** 0.6
    chances /= chances.sum()
    rows, weights = priorities.sample(64)
    expected = (capacity * chances[rows]) ** -0.4
    assert np.allclose(weights, expected / expected.max(), rtol=1e-6)


def test_a_tree_that_is_off_by_one_leaf_fails_the_check():
    seed(0)
    with broken():
        priorities = pasted(100)
    errors = np.random.default_rng(0).exponential(size=100)
    priorities.add(np.arange(100))
    priorities.update(np.arange(100), errors)
    with pytest.raises(AssertionError):
        frequencies_are_right(priorities, errors)


def test_new_rows_begin_with_the_largest_priority_and_wrong_errors_are_refused():
    torch = pytest.importorskip("torch")
    priorities = pasted(8, alpha=0.5, beta=1.0)
    with pytest.raises(RuntimeError, match="nothing to sample"):
        priorities.sample(4)
    priorities.add(np.arange(3))
    priorities.update(np.array([0, 1]), torch.tensor([4.0, 0.25], requires_grad=True))
    priorities.add(3)
    assert priorities.tree.get([0, 1, 2, 3]) == pytest.approx([2.0, 0.5, 1.0, 2.0], rel=1e-5)
    with pytest.raises(ValueError, match="nan at position 1"):
        priorities.update(np.array([0, 1]), np.array([1.0, np.nan]))
    assert priorities.tree.get([0, 1]) == pytest.approx([2.0, 0.5], rel=1e-5) and priorities.size == 4


def test_the_page_keeps_its_promise_of_about_twenty_lines():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 20
