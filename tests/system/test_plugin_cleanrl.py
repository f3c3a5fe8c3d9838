"""The lines to paste into single-file programs: taken from their page, they draw and weigh as the page says."""

import ast
import copy
import re
from pathlib import Path

import numpy as np
import pytest

from tests import single_file_replay
from tests.plugin_conformance import Conformance, Drawn

PAGE = Path(__file__).resolve().parents[2] / "impls" / "plugins" / "cleanrl.md"


def pasted(capacity, **options):
    """What the page's code makes in a file that has imported NumPy, as those have."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = {"np": np}
    exec(code, file)  # what a reader does by hand
    return file["Priorities"](capacity, **options)


class TestPriorities(Conformance):
    """The adapter: rows are kept by the file, and errors that come late go to the new row, as there."""

    epsilon, is_weighed_by_batch, knows_late = 1e-6, True, False
    mistakes = ((lambda _: pasted(8).sample(4), RuntimeError, "nothing to sample"),)
    test_an_emptied_buffer_forgets_everything = None
    test_all_that_is_seen_is_the_hosts_own = None
    test_the_comparison_notices_a_tree_that_is_off_by_one_leaf = None
    test_returns_and_priorities_are_those_of_brute_force = None
    test_the_example_trains_cartpole_to_475 = None

    def make(self, kind="plain", **options):
        priorities = pasted(self.room, alpha=self.alpha, beta=self.beta)
        priorities.rows = []  # of the file's replay
        return priorities

    def give(self, priorities, chunks):
        for steps in chunks.values():
            first, room = len(priorities.rows), priorities.tree.capacity
            priorities.rows += [step.number for step in steps]
            priorities.add(np.arange(first, len(priorities.rows)) % room)

    def rows(self, priorities):
        return {row: row % self.room for row in priorities.rows[-self.room :]}

    def draw(self, priorities, batch):
        leaves, weights = priorities.sample(batch)
        assert weights.dtype == np.float32
        names = {leaf: row for row, leaf in self.rows(priorities).items()}
        return Drawn([names[leaf] for leaf in leaves.tolist()], weights, leaves)

    def update(self, priorities, drawn, errors):
        priorities.update(drawn.batch, errors)

    def tree(self, priorities):
        return priorities.tree

    def kept(self, priorities, folder):
        twin = copy.deepcopy(priorities)
        return [lambda: twin]

    def state(self, priorities):
        return self.leaves(priorities).tolist(), priorities.largest, priorities.size


def test_errors_are_absolute_and_may_be_a_tensor():
    torch = pytest.importorskip("torch")
    priorities = pasted(8, alpha=0.5, beta=1.0)
    priorities.add(np.arange(3))
    priorities.update(np.array([0, 1]), torch.tensor([-4.0, 0.25], requires_grad=True))
    priorities.add(3)
    assert priorities.tree.get([0, 1, 2, 3]) == pytest.approx([2.0, 0.5, 1.0, 2.0], rel=1e-5)
    assert priorities.size == 4


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
        np.random.seed(0)  # noqa: NPY002  # the generator that these files draw from
        found.append(train(300))
    (before, expected), (after, batches) = found
    for one, other in zip(batches, expected, strict=True):
        assert list(one.indices) == list(other.indices)
        assert np.array_equal(one.observations, other.observations) and np.array_equal(one.rewards, other.rewards)
        assert np.allclose(one.weights, other.weights, rtol=1e-5)
    assert np.allclose(after.priorities.tree.get(np.arange(64)), before.sum_tree.nodes[63:], rtol=1e-12)
    assert after.priorities.largest == before.max_priority
    assert after.priorities.beta == before.beta > 0.99
