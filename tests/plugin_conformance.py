"""What the buffer of every plug-in does, whatever its host: tests that a host's file takes over by an adapter.

The adapter is a subclass of :class:`Conformance` in the host's file, which says how that buffer is made, given steps of
episodes, drawn from and copied, and how the host's own does the same. What only one host has is tested beside it.
"""

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from impls.sumtree.contract import SumTree
from tests.plugin_hosts import chi_square, program

WRONG_ERRORS: list[tuple[list[Any], Any]] = [
    ([1.0, np.nan], ValueError),
    ([np.inf, 1.0], ValueError),
    ([1.0, 2.0, 3.0], (ValueError, RuntimeError)),
    (["1", "2"], TypeError),
]


class Step(NamedTuple):
    """A step of an episode: the numbers that are seen at the step and after it, and what came of it."""

    number: int  # which no other step has
    following: int
    reward: float
    terminated: bool
    truncated: bool
    episode: int  # the number of its first step
    time: int  # steps before this one in its episode
    is_cut: bool = False  # somebody left the episode, or reset its environment, without a word

    @property
    def is_last(self) -> bool:
        """Whether no other step of the episode follows."""
        return self.terminated or self.truncated or self.is_cut


class Drawn(NamedTuple):
    """B rows that a buffer returned: what tells each from all others ``[B]``, weights ``[B]``, and the batch itself."""

    rows: list[Any]
    weights: np.ndarray
    batch: Any


Chunks = dict[int, list[Step]]  # by lane, as the environments that run side by side are called here


def episode(first: int, count: int, *, lanes: int = 1, time: int = 0, is_over: bool = True) -> list[Step]:
    """Consecutive steps of an episode, the first of them with the number ``first`` and after ``time`` others."""
    numbers = range(first, first + count * lanes, lanes)
    ends = [is_over and number == numbers[-1] for number in numbers]
    return [
        Step(number, number + lanes, number / 7, end, False, first - time * lanes, time + j)
        for j, (number, end) in enumerate(zip(numbers, ends, strict=True))
    ]


class Story:
    """Episodes at random in every lane, of which each step is the last with the probability ``end``."""

    def __init__(self, seed: int, lanes: int, *, end: float = 0.25, is_cut: bool = True) -> None:
        self.rng, self.end, self.is_cut, self.count = np.random.default_rng(seed), end, is_cut, 0
        self.lanes: list[list[Step]] = [[] for _ in range(lanes)]
        self.places: dict[int, tuple[list[Step], int]] = {}  # by number: all steps of its lane, and its place there

    def forget(self) -> None:
        """Begin anew in every lane, with numbers that were not used yet."""
        self.lanes = [[] for _ in self.lanes]

    def chunks(self, longest: int = 1, *, is_in_step: bool = False) -> Chunks:
        """Go on by up to ``longest`` steps of an episode in some of the lanes, or in all."""
        lanes = self.rng.permutation(len(self.lanes))
        some = lanes if is_in_step else lanes[: int(self.rng.integers(1, lanes.size + 1))]
        return {int(lane): self.chunk(int(lane), int(self.rng.integers(1, longest + 1))) for lane in some}

    def chunk(self, lane: int, length: int) -> list[Step]:
        """Go on by as many steps in one lane, or until the episode ends."""
        steps, history = [], self.lanes[lane]
        if self.is_cut and history and not history[-1].is_last and self.rng.random() < 0.1:
            history[-1] = history[-1]._replace(is_cut=True)
        while len(steps) < length and not (steps and steps[-1].is_last):
            before = history[-1] if history and not history[-1].is_last else None
            number = before.following if before else self._next()
            chance, reward = self.rng.random() / self.end, self.rng.standard_normal()
            since = (before.episode, before.time + 1) if before else (number, 0)
            steps.append(Step(number, self._next(), reward, chance < 0.6, 0.6 <= chance < 1, *since))
            self.places[number] = history, len(history)
            history.append(steps[-1])
        return steps

    def ahead(self, number: int, n: int, gamma: float) -> tuple[float, int, Step]:
        """Return the discounted rewards of up to n steps from one on, how many there were, and the last of them."""
        history, at = self.places[number]
        total = 0.0
        for count, step in enumerate(history[at : at + n], 1):
            total += gamma ** (count - 1) * step.reward
            if step.is_last:
                break
        return total, count, step

    def _next(self) -> int:
        self.count += 1
        return self.count


def assert_same(one: Any, other: Any, tolerance: tuple[float, float]) -> None:
    """Equal keys, lengths, dtypes and values, real numbers within a relative and an absolute tolerance."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = [*one.values()], [other[key] for key in one]
    if isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair, tolerance)
    else:
        assert np.asarray(one).dtype == np.asarray(other).dtype
        if np.asarray(one).dtype.kind == "f":
            np.testing.assert_allclose(one, other, *tolerance)
        else:
            assert np.array_equal(one, other)


class Conformance:
    """The tests; an adapter states the attributes and the methods down to :meth:`prepared`."""

    kinds: ClassVar[tuple[str, ...]] = ("plain",)
    host: ClassVar[str]  # whose program is in impls/plugins/examples/
    epsilon: ClassVar[float] = 0.0
    knows_late: ClassVar[bool] = True  # which errors are of rows that were overwritten since
    twins: ClassVar[tuple[str, ...]] = ()  # of our buffer and the host's
    longest: ClassVar[int] = 1  # chunk
    end: ClassVar[float] = 0.25  # probability of the end of an episode, a step
    is_in_step: ClassVar[bool] = False  # every lane goes on in every turn
    is_cut: ClassVar[bool] = True  # episodes may end without a word
    precision: ClassVar[tuple[float, float]] = (1e-5, 1e-6)  # relative and absolute, of what a walk compares
    mistakes: ClassVar[
        tuple[tuple[Any, Any, str], ...]
    ] = ()  # a call with a buffer of ten rows, its error, words of it
    alpha, beta, gamma, room = 0.6, 0.4, 0.9, 48
    is_weighed_by_batch = False  # by the largest weight of the batch, not of the buffer
    tolerance = 0.0, 0.0  # relative and absolute, of real numbers that twins show
    turns = range(60)  # of twins

    def make(self, kind: str = "plain", **options: Any) -> Any:
        """Return an empty buffer of ``room`` rows."""

    def lanes(self, buffer: Any) -> int:
        """Return how many environments fill the buffer side by side."""
        return 1

    def give(self, buffer: Any, chunks: Chunks) -> None:
        """Add steps; ``number`` of each is found again in its row."""

    def rows(self, buffer: Any) -> dict[Any, int]:
        """Return the leaf of each row that can be drawn, by what tells the row from all others."""

    def draw(self, buffer: Any, batch: int) -> Drawn:
        """Draw a batch."""

    def update(self, buffer: Any, drawn: Drawn, errors: Any) -> None:
        """Give the rows that were drawn their new TD errors ``[B]``."""

    def empty(self, buffer: Any) -> None:
        """Remove every row, in the host's way."""

    def tree(self, buffer: Any) -> SumTree:
        """Return the tree beneath a buffer."""
        return buffer.priorities.tree

    def kept(self, buffer: Any, folder: Any) -> list[Callable[[], Any]]:
        """Keep a buffer in every way that the host knows, in ``folder`` or not; each call returns a copy."""
        data, twin = pickle.dumps(buffer), copy.deepcopy(buffer)
        return [lambda: pickle.loads(data), lambda: twin]

    def pair(self, twin: str) -> tuple[Any, Any]:
        """Return our buffer and the host's own."""

    def turn(self, buffer: Any, number: int) -> Any:
        """Add, draw and update as the host's users do; return all that can be seen, as plain data."""

    def world(self, rng: Any) -> Any:
        """Return a buffer of a random kind, whose returns a walk compares with brute force."""

    def look(self, buffer: Any, rng: Any) -> tuple[Drawn, list[dict[str, Any]]]:
        """Draw a batch; with it what is to be seen of each row: ``n`` and some of what :meth:`expected` returns."""

    def expected(self, story: Story, number: int, n: int) -> dict[str, Any]:
        """Return what is to be seen of a row, step by step."""
        total, steps, last = story.ahead(number, n, self.gamma)
        found = {"number": number, "total": total, "steps": steps, "following": last.following}
        found |= {"terminated": last.terminated, "truncated": last.truncated}
        return found | {"episode": last.episode, "time": last.time}

    def mean_return(self, names: dict[str, Any]) -> float:
        """Return the mean return that the example has reached, from its names."""

    def prepared(self) -> Any:
        """Return a buffer with ten rows, on which mistakes are made."""
        buffer = self.make(self.kinds[0])
        self.add(buffer, 10)
        return buffer

    # Shared by the tests

    def seed(self, buffer: Any, number: int) -> None:
        """Seed the generator that most hosts draw from."""
        np.random.seed(number)  # noqa: NPY002

    def add(self, buffer: Any, count: int) -> None:
        """Add rows, ``count`` or a few more, in episodes of up to five steps."""
        lanes, first = self.lanes(buffer), max(self.rows(buffer), default=-1) + 1
        each = -(-count // lanes)
        for time in range(0, each, 5):
            starts = range(first + time * lanes, first + (time + 1) * lanes)
            steps = [episode(start, min(5, each - time), lanes=lanes) for start in starts]
            self.give(buffer, dict(enumerate(steps)))

    def leaves(self, buffer: Any) -> np.ndarray:
        """Return all priorities ``[N]``."""
        tree = self.tree(buffer)
        return tree.get(np.arange(tree.capacity)).astype(np.float64)

    def learned(self, kind: str = "plain", **options: Any) -> Any:
        """Return a buffer whose oldest rows were overwritten, with priorities far apart."""
        buffer, rng = self.make(kind, **options), np.random.default_rng(2)
        self.seed(buffer, 1)
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

    def check_weights(self, buffer: Any) -> None:
        """The weights of a batch are those of the formula."""
        leaves, rows = self.leaves(buffer), self.rows(buffer)
        drawn = self.draw(buffer, 64)
        shares = leaves[[rows[row] for row in drawn.rows]] / leaves.sum()
        least = shares.min() if self.is_weighed_by_batch else leaves[leaves > 0].min() / leaves.sum()
        weights = (len(rows) * shares) ** -self.beta / (len(rows) * least) ** -self.beta
        assert np.allclose(drawn.weights, weights, rtol=1e-5)

    def state(self, buffer: Any) -> tuple[Any, ...]:
        """Return what a refused call leaves as it was."""
        return self.leaves(buffer).tolist(), self.rows(buffer), buffer.priorities.largest, buffer.priorities.smallest

    def side_by_side(self, ours: Any, theirs: Any) -> None:
        """Let both do the same, with the same random numbers, and compare all that can be seen."""
        for number in self.turns:
            found = []
            for buffer in (ours, theirs):
                self.seed(buffer, number)
                found.append(self.turn(buffer, number))
            assert_same(*found, self.tolerance)

    def walk(self, number: int, folder: Any) -> None:
        """Add, draw, update and copy at random; compare each row drawn, and every priority, with what was given."""
        rng = np.random.default_rng(number)
        buffer = self.world(rng)
        self.seed(buffer, number)
        story = Story(number, self.lanes(buffer), end=self.end, is_cut=self.is_cut)
        priorities: dict[int, float] = {}
        largest, waiting = 1.0, None
        for _ in range(50):
            if self.knows_late and rng.random() < 0.05:
                self.empty(buffer)
                story.forget()
                largest = float(buffer.priorities.largest)
            chunks = story.chunks(self.longest, is_in_step=self.is_in_step)
            self.give(buffer, chunks)
            priorities |= {step.number: largest**self.alpha for steps in chunks.values() for step in steps}
            if rng.random() < 0.1:
                ways = self.kept(buffer, folder)
                buffer = ways[int(rng.integers(len(ways)))]()
            if rng.random() < 0.6:
                waiting, seen = self.look(buffer, rng)
                for row, found in zip(waiting.rows, seen, strict=True):
                    expected = self.expected(story, row, found.pop("n"))
                    assert found == pytest.approx({name: expected[name] for name in found}, *self.precision)
            if waiting and (rng.random() < 0.5 or not self.knows_late):
                errors, there = rng.uniform(1e-6, 2.0, len(waiting.rows)), self.rows(buffer)
                self.update(buffer, waiting, errors)
                for row, error in zip(waiting.rows, errors + self.epsilon, strict=True):
                    if row in there:
                        priorities[row], largest = error**self.alpha, max(largest, error)
                waiting = None
            self.check(buffer, priorities)
        assert self.tree(buffer).check() == pytest.approx(0.0, abs=1e-12)

    def check(self, buffer: Any, priorities: dict[int, float]) -> None:
        """Each row has the priority that it was given last."""
        leaves, rows = self.leaves(buffer), self.rows(buffer)
        assert leaves[list(rows.values())] == pytest.approx([priorities[row] for row in rows], *self.precision)

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Run a test of ``kind`` for each kind, one of ``twin`` for each twin."""
        for name, values in (("kind", self.kinds), ("twin", self.twins)):
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, values)

    def test_rows_are_drawn_in_proportion_to_their_priorities(self, kind):
        self.check_draws(self.learned(kind))

    @pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
    def test_weights_are_those_of_the_formula(self, kind, beta):
        self.beta = beta
        buffer = self.learned(kind)
        self.check_weights(buffer)
        self.update(buffer, self.draw(buffer, 300), np.full(300, 9.0))  # so that another priority is the smallest
        self.check_weights(buffer)

    def test_an_emptied_buffer_forgets_everything(self, kind):
        buffer = self.make(kind)
        self.add(buffer, 10)
        drawn = self.draw(buffer, 100)
        self.update(buffer, drawn, np.full(100, 9.0))
        self.empty(buffer)
        if self.knows_late:
            self.update(buffer, drawn, np.full(100, 9.0))
        assert self.tree(buffer).total() == 0.0
        self.add(buffer, 3)
        rows, leaves = self.rows(buffer), self.leaves(buffer)
        assert np.flatnonzero(leaves).tolist() == sorted(rows.values())
        assert set(self.draw(buffer, 100).rows) == set(rows)
        if self.knows_late:
            self.update(buffer, drawn, np.full(100, 9.0))
        assert self.leaves(buffer).tolist() == leaves.tolist()

    def test_a_buffer_goes_on_from_each_copy_as_if_never_stopped(self, kind, tmp_path):
        buffer = self.learned(kind)
        found, copies = [], self.kept(buffer, tmp_path)
        for make in (lambda: buffer, *copies):  # the copies are read when the buffer has gone on already
            each = make()
            self.seed(each, 3)
            self.add(each, 5)
            drawn = self.draw(each, 32)
            self.update(each, drawn, np.linspace(0.0, 5.0, 32))
            again = self.draw(each, 32)
            assert self.tree(each).check() == pytest.approx(0.0, abs=1e-9)
            rows = self.rows(each)
            numbers = drawn.weights, again.weights, self.leaves(each)[list(rows.values())]
            found.append(((drawn.rows, again.rows, rows), np.concatenate(numbers)))
        assert copies
        for rows, numbers in found:
            assert rows == found[0][0]
            assert np.allclose(numbers, found[0][1], rtol=1e-5)

    def test_all_that_is_seen_is_the_hosts_own(self, twin):
        self.side_by_side(*self.pair(twin))

    @pytest.mark.parametrize("walks", [12, pytest.param(200, marks=pytest.mark.slow)])
    def test_returns_and_priorities_are_those_of_brute_force(self, walks, tmp_path):
        for number in range(walks):
            self.walk(number, tmp_path)

    def refuse(self, buffer: Any, act: Any, kind_of_error: Any, words: str = "") -> None:
        """A call is refused in one sentence that has these words, and changes nothing."""
        before = self.state(buffer)
        with pytest.raises(kind_of_error, match=words or None) as refused:
            act(buffer)
        assert "\n" not in str(refused.value), words
        assert self.state(buffer) == before, words

    def test_mistakes_are_refused_in_a_sentence_and_change_nothing(self):
        for errors, kind_of_error in WRONG_ERRORS:
            buffer = self.learned(self.kinds[0])
            drawn = self.draw(buffer, 2)
            self.refuse(buffer, functools.partial(self.update, drawn=drawn, errors=np.array(errors)), kind_of_error)
        for mistake in self.mistakes:
            self.refuse(self.prepared(), *mistake)

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore")  # those of the hosts
    def test_the_example_trains_cartpole_to_475(self):
        names: dict[str, Any] = {}
        exec(program(self.host), names)
        assert self.mean_return(names) >= 475
