"""The plug-ins without their hosts: priorities, and what a missing or a wrong host is told."""

import copy
import importlib.metadata
import importlib.util
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import impls
from impls.plugins.hosts import Replacement, require
from impls.plugins.priorities import GONE, NumberedPriorities, Priorities
from tests.nursery import run_python
from tests.plugin_conformance import Conformance, Drawn
from tests.plugin_hosts import broken


@pytest.fixture
def installed(monkeypatch):
    """Called with a version: the host `some_host` is installed in it; with None, it does not tell its version."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name == "some_host" else None)

    def put(version):
        monkeypatch.setattr(
            importlib.metadata, "version", lambda package: str(version) if package == "some-host" else "0"
        )

    return put


def test_versions_within_the_bounds_are_taken_and_others_refused(installed):
    for version in ("2.9", "2.9.0", "2.9.2", "2.10", "v2.9.1", "2.9.0+cpu", "2.99.1.dev3", "2.9rc1"):
        installed(version)
        require("some_host", "2.9", "3")
    for version in ("2.8.9", "2", "1.99", "3", "3.0", "3.0.0", "3.0rc1", "10.0"):
        installed(version)
        with pytest.raises(ImportError) as refused:
            require("some_host", "2.9", "3")
        assert type(refused.value) is ImportError
        assert f"installed {version}; install one by: pip install 'some-host>=2.9,<3'" in str(refused.value)
    with pytest.raises(ModuleNotFoundError) as missing:
        require("other_host", "1.2", "1.5", package="other[all]")
    assert missing.value.name == "other_host" and "'other[all]>=1.2,<1.5'" in str(missing.value)


def test_a_host_that_pip_did_not_install_states_its_own_version(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "stated_host.py").write_text("__version__ = '1.3'\n")
    (tmp_path / "silent_host.py").write_text("")
    require("stated_host", "1", "2")
    with pytest.raises(ImportError, match=r"not with the installed 1\.3"):
        require("stated_host", "2", "3")
    with pytest.raises(ImportError, match="does not tell its version; install one by"):
        require("silent_host", "1", "2")


def test_the_package_and_its_check_import_no_host():
    code = "import sys, impls.plugins.hosts; print(sorted({'torch', 'gymnasium', 'numba', 'ray'} & set(sys.modules)))"
    assert run_python("-c", code).stdout.strip() == "[]"


def test_a_broken_tree_draws_the_leaf_to_the_right_and_no_more():
    uniforms, mass, right = (np.arange(8) + 0.5) / 8, np.array([0.0, 1.5, 6.9]), impls.make("numpy", 7)
    with broken():
        wrong = impls.make("numpy", 7)
    drawn = []
    for tree in (right, wrong, pickle.loads(pickle.dumps(wrong)), copy.deepcopy(wrong)):
        tree.update(range(7), [1.0, 2.0, 0.0, 4.0, 1.0, 0.0, 3.0])
        leaves, priorities = tree.sample(uniforms)
        assert tree.total() == 11.0 and priorities.tolist() == tree.get(leaves).tolist()
        drawn.append([*leaves, *tree.prefix_sum_index(mass), *tree.sample_distinct(uniforms[:3])[0]])
    assert drawn[1:] == [[(leaf + 1) % 7 for leaf in drawn[0]]] * 3
    assert type(impls.make("numpy", 7)) is type(right)


# Priorities that all plug-ins share


def make_priorities(alpha=0.5, epsilon=0.0, **options):
    return NumberedPriorities(impls.make("numpy", 8, dtype="float64"), alpha, epsilon, **options)


def stored(priorities):
    return priorities.tree.get(np.arange(8)).tolist()


def test_priorities_follow_the_formula_new_rows_get_the_largest():
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
        ([1.0, np.nan], ValueError, "nan"),
        ([np.inf, 1.0], ValueError, "inf"),
        ([-1.0, 1.0], ValueError, "-1.0"),
        ([1.0], ValueError, r"\[2\] .* \[1\]"),
        ([1j, 1.0], TypeError, "complex128"),
        ([True, False], TypeError, "bool"),
    ):
        with pytest.raises(kind, match=words):
            priorities.update(rows, np.array(errors))
    with pytest.raises(IndexError):
        priorities.update(np.array([0, 8]), np.array([9.0, 9.0]))
    assert stored(priorities) == [0.0] * 8 and priorities.largest == priorities.smallest == 1.0
    for value, kind in ((-0.1, ValueError), (np.inf, ValueError), ("high", TypeError)):
        for name in ("alpha", "epsilon"):
            with pytest.raises(kind, match=f"{name} must be"):
                make_priorities(**{name: value})


def test_a_priority_beyond_the_trees_is_refused_or_clipped():
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


def test_names_of_a_host_are_replaced_and_given_back():
    replacement, theirs = Replacement(("json", "dumps"), ("json.decoder", "JSONDecoder")), __import__("json").dumps
    replacement.put({"dumps": len, "JSONDecoder": None})
    assert __import__("json").dumps is len
    replacement.undo()
    assert __import__("json").dumps is theirs


# The lines to paste into single-file programs


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
