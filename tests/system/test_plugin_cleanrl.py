"""The lines to paste into single-file programs: taken from their page, they draw and weigh as the page says."""

import copy
import re
from pathlib import Path

import numpy as np
import pytest

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

    def update(self, buffer, drawn, errors):
        buffer.update(drawn.batch, errors)

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
