"""The lines to paste into single-file programs: taken from their page, they draw and weigh as the page says."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from tests import single_file_replay
from tests.plugin_hosts import broken, chi_square

PAGE = Path(__file__).resolve().parents[2] / "impls" / "plugins" / "cleanrl.md"


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
    assert abs(chi_square(counts, chances)) < 5
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


def edited(source):
    """A single-file program after what the page says was done to it, by its words alone."""
    page, lines = PAGE.read_text(), source.splitlines()
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    changes = {}  # by the number of a line, what stands there afterwards
    for name in ("SumSegmentTree", "MinSegmentTree"):
        changes |= dict.fromkeys(range(classes[name].lineno, classes[name].end_lineno + 1), "")
    (changes[classes["SumSegmentTree"].lineno],) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    methods = {node.name: node for node in classes["PrioritizedReplayBuffer"].body if isinstance(node, ast.FunctionDef)}
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| `(.*)` \|$", page, re.MULTILINE)
    assert {method for method, _, _ in rows} == set(methods)
    for method, beginnings, written in rows:
        words = tuple(re.findall(r"`(.+?)`", beginnings))
        body = methods[method].body
        removed = [node for node in body if lines[node.lineno - 1].strip().startswith(words)]
        for word in words:  # none of them names a line that is not there
            assert any(lines[node.lineno - 1].strip().startswith(word) for node in removed), (method, word)
        for node in removed:
            changes |= dict.fromkeys(range(node.lineno, node.end_lineno + 1), "")
        changes[removed[0].lineno] = " " * removed[0].col_offset + written
    text = "\n".join(changes.get(number, line) for number, line in enumerate(lines, 1))
    pairs = re.findall(r"write `(rb\.\w+\.\w+)` for `(rb\.\w+)`", page)
    assert len(pairs) == 1
    return text.replace(pairs[0][1], pairs[0][0])


def test_a_single_file_program_edited_by_the_page_learns_from_the_rows_it_learned_from():
    text = edited(Path(single_file_replay.__file__).read_text())
    assert not re.search(r"max_priority|_tree\b|SegmentTree", text)
    file = {}
    exec(compile(text, "edited", "exec"), file)
    found = []
    for train in (single_file_replay.train, file["train"]):
        seed(0)
        found.append(train(300))
    (before, expected), (after, batches) = found
    for one, other in zip(batches, expected, strict=True):
        assert list(one.indices) == list(other.indices)
        assert np.array_equal(one.observations, other.observations) and np.array_equal(one.rewards, other.rewards)
        assert np.allclose(one.weights, other.weights, rtol=1e-5)
    assert np.allclose(after.priorities.tree.get(np.arange(64)), before.sum_tree.nodes[63:], rtol=1e-12)
    assert after.priorities.largest == before.max_priority
    assert after.priorities.beta == before.beta > 0.99
