"""What the buffer of every plug-in does, whatever its host: tests that a host's file takes over by an adapter.

The adapter is a subclass of :class:`Conformance` in the host's file, which says how that buffer is made, filled, drawn
from and copied. What only one host has is tested beside it.
"""

import copy
import pickle
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from impls.sumtree.contract import SumTree
from tests.plugin_hosts import broken, chi_square, program

WRONG_ERRORS: list[tuple[list[Any], Any]] = [
    ([1.0, np.nan], ValueError),
    ([np.inf, 1.0], ValueError),
    ([1.0, 2.0, 3.0], (ValueError, RuntimeError)),
    (["1", "2"], TypeError),
]


class Drawn(NamedTuple):
    """B rows that a buffer returned: what tells each from all others ``[B]``, weights ``[B]``, and the batch itself."""

    rows: list[Any]
    weights: np.ndarray
    batch: Any


def seed(number: int) -> None:
    """Seed the generator that most hosts draw from."""
    np.random.seed(number)  # noqa: NPY002


class Conformance:
    """The tests; an adapter states the attributes and the methods down to :meth:`copies`."""

    kinds: ClassVar[tuple[str, ...]] = ("plain",)
    heading: ClassVar[str]  # of the host's program in the README
    epsilon: ClassVar[float] = 0.0
    is_weighed_by_batch: ClassVar[bool] = False  # by the largest weight of the batch, not of the buffer
    mistakes: ClassVar[
        tuple[tuple[Any, Any, str], ...]
    ] = ()  # a call with a buffer of ten rows, its error, words of it
    alpha, beta, room = 0.6, 0.4, 48

    def make(self, kind: str = "plain", **options: Any) -> Any:
        """Return an empty buffer of ``room`` rows."""
        raise NotImplementedError

    def add(self, buffer: Any, count: int) -> None:
        """Add rows, ``count`` or a few more."""
        raise NotImplementedError

    def rows(self, buffer: Any) -> dict[Any, int]:
        """Return the leaf of each row that can be drawn, by what tells the row from all others."""
        raise NotImplementedError

    def draw(self, buffer: Any, batch: int) -> Drawn:
        """Draw a batch."""
        raise NotImplementedError

    def update(self, buffer: Any, drawn: Drawn, errors: Any) -> None:
        """Give the rows that were drawn their new TD errors ``[B]``."""
        raise NotImplementedError

    def tree(self, buffer: Any) -> SumTree:
        """Return the tree beneath a buffer."""
        return buffer.priorities.tree

    def copies(self, buffer: Any, folder: Any) -> list[Any]:
        """Return copies of a buffer, in every way that the host knows; ``folder`` is empty."""
        return [pickle.loads(pickle.dumps(buffer)), copy.deepcopy(buffer)]

    def mean_return(self, names: dict[str, Any]) -> float:
        """Return the mean return that the README's program has reached, from its names."""
        raise NotImplementedError

    def prepared(self) -> Any:
        """Return a buffer with ten rows, on which mistakes are made."""
        buffer = self.make()
        self.add(buffer, 10)
        return buffer

    # Shared by the tests

    def leaves(self, buffer: Any) -> np.ndarray:
        """Return all priorities ``[N]``."""
        tree = self.tree(buffer)
        return tree.get(np.arange(tree.capacity)).astype(np.float64)

    def learned(self, kind: str = "plain", **options: Any) -> Any:
        """Return a buffer whose oldest rows were overwritten, with priorities far apart."""
        seed(1)
        buffer, rng = self.make(kind, **options), np.random.default_rng(2)
        self.add(buffer, self.room + 11)
        self.update(buffer, self.draw(buffer, 500), rng.exponential(size=500) ** 2)
        self.add(buffer, 3)
        return buffer

    def check_draws(self, buffer: Any) -> None:
        """Chi-square of the rows drawn; stratified draws are nearer to their shares than chance."""
        rows, leaves = self.rows(buffer), self.leaves(buffer)
        drawn = [row for _ in range(20) for row in self.draw(buffer, 500).rows]
        counts = np.bincount([rows[row] for row in drawn], minlength=leaves.size)
        assert chi_square(counts, leaves) < 5

    def state(self, buffer: Any) -> tuple[Any, ...]:
        """Return what a refused call leaves as it was."""
        return self.leaves(buffer).tolist(), self.rows(buffer), buffer.priorities.largest, buffer.priorities.smallest

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Run a test of ``kind`` for each kind, and a test of ``mistake`` for each mistake."""
        if "kind" in metafunc.fixturenames:
            metafunc.parametrize("kind", self.kinds)
        if "mistake" in metafunc.fixturenames:
            metafunc.parametrize("mistake", self.mistakes, ids=[words for _, _, words in self.mistakes])

    def test_rows_are_drawn_in_proportion_to_their_priorities(self, kind):
        self.check_draws(self.learned(kind))

    def test_a_tree_that_is_off_by_one_leaf_fails_the_check(self, kind):
        with broken(), pytest.raises((AssertionError, IndexError, KeyError, RuntimeWarning)):
            self.check_draws(self.learned(kind))

    def test_weights_are_those_of_the_formula(self, kind):
        buffer = self.learned(kind)
        leaves, rows = self.leaves(buffer), self.rows(buffer)
        drawn = self.draw(buffer, 64)
        shares = leaves[[rows[row] for row in drawn.rows]] / leaves.sum()
        least = shares.min() if self.is_weighed_by_batch else leaves[leaves > 0].min() / leaves.sum()
        weights = (len(rows) * shares) ** -self.beta / (len(rows) * least) ** -self.beta
        assert np.allclose(drawn.weights, weights, rtol=1e-5)

    def test_a_priority_is_the_error_to_the_power_of_alpha_and_new_rows_get_the_largest(self, kind):
        buffer = self.make(kind)
        self.add(buffer, 8)
        assert np.allclose(self.leaves(buffer)[list(self.rows(buffer).values())], 1.0, rtol=1e-5)
        drawn, before = self.draw(buffer, 4), self.rows(buffer)
        errors = dict(zip([before[row] for row in drawn.rows], [4.0, 0.25, 2.0, 0.5], strict=True))
        self.update(buffer, drawn, np.array([4.0, 0.25, 2.0, 0.5], np.float32))
        self.add(buffer, 1)
        leaves = self.leaves(buffer)
        for leaf, error in errors.items():  # of a row that was drawn twice the last error counts
            assert leaves[leaf] == pytest.approx((error + self.epsilon) ** self.alpha, rel=1e-5)
        new = [leaf for row, leaf in self.rows(buffer).items() if row not in before]
        assert new
        assert leaves[new] == pytest.approx((4.0 + self.epsilon) ** self.alpha, rel=1e-5)

    def test_an_update_that_comes_late_reaches_no_other_row(self, kind):
        buffer = self.learned(kind)
        drawn = self.draw(buffer, 100)
        self.add(buffer, 15)
        rows, expected = self.rows(buffer), self.leaves(buffer)
        kept = [rows[row] for row in drawn.rows if row in rows]
        assert 0 < len(kept) < 100
        expected[kept] = (9.0 + self.epsilon) ** self.alpha
        self.update(buffer, drawn, np.full(100, 9.0))
        assert np.allclose(self.leaves(buffer), expected, rtol=1e-5)

    def test_a_buffer_goes_on_from_each_copy_as_if_it_had_never_stopped(self, kind, tmp_path):
        buffer = self.learned(kind)
        found = []
        for each in (buffer, *self.copies(buffer, tmp_path)):
            seed(3)
            self.add(each, 5)
            drawn = self.draw(each, 32)
            self.update(each, drawn, np.linspace(0.0, 5.0, 32))
            again = self.draw(each, 32)
            assert self.tree(each).check() == pytest.approx(0.0, abs=1e-9)
            weights = np.concatenate([drawn.weights, again.weights])
            found.append(((drawn.rows, again.rows, self.rows(each)), (weights, self.leaves(each))))
        assert len(found) > 1
        for rows, numbers in found:
            assert rows == found[0][0]
            assert all(np.allclose(*pair, rtol=1e-5) for pair in zip(numbers, found[0][1], strict=True))

    @pytest.mark.parametrize(("errors", "kind_of_error"), WRONG_ERRORS)
    def test_wrong_errors_are_refused_and_nothing_is_written(self, errors, kind_of_error):
        buffer = self.learned(self.kinds[0])
        drawn = self.draw(buffer, 2)
        before = self.state(buffer)
        with pytest.raises(kind_of_error) as refused:
            self.update(buffer, drawn, np.array(errors))
        assert "\n" not in str(refused.value)
        assert self.state(buffer) == before

    def test_a_mistake_is_refused_in_one_sentence_and_changes_nothing(self, mistake):
        act, kind_of_error, words = mistake
        buffer = self.prepared()
        before = self.state(buffer)
        with pytest.raises(kind_of_error, match=words) as refused:
            act(buffer)
        assert "\n" not in str(refused.value)
        assert self.state(buffer) == before

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore")  # those of the hosts
    def test_the_program_of_the_readme_trains_cartpole_to_475(self):
        names: dict[str, Any] = {}
        exec(program(self.heading), names)
        assert self.mean_return(names) >= 475
