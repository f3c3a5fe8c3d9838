"""Cases: the same inputs for all, checked before they are timed."""

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare

import impls
from benchmarks import cases
from benchmarks.cases import DISTRIBUTIONS, OPS, Case, WrongAnswerError, prepare
from benchmarks.timing import LEAST_SAMPLES, interleave_calls
from tests.contestants import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_op_of_every_contestant_can_be_timed(name, request):
    if name == "cupy":
        request.getfixturevalue("with_cupy")()
    for op in OPS:
        prepared = prepare(Case(name, op, capacity=300, batch=20))
        for turn in range(30):
            prepared.call(turn)
        assert prepared.tree.check() == 0.0, op


def test_every_distribution_has_leaves_and_as_many_duplicates():
    for distribution, duplicates in itertools.product(DISTRIBUTIONS, (0.0, 0.5, 1.0)):
        leaves = cases._leaves(2_000, "float32", distribution, 0)
        assert (leaves >= 0).all() and leaves.sum() > 0
        assert distribution != "mostly_zero" or (leaves == 0).mean() == pytest.approx(0.9)
        inputs = cases._inputs(2_000, 500, "float32", distribution, duplicates, 0)
        assert np.unique(inputs.indices[0]).size <= 1 + round(500 * (1 - 0.8 * duplicates))
        case = Case("numpy", "update", 2_000, 500, distribution=distribution, duplicates=duplicates)
        assert case.workload == distribution + (f"+dup{duplicates:g}" if duplicates else "")


class Between:
    """A tree between a case and another tree; ``by`` has what some methods do to that tree's answer."""

    def __init__(self, tree, by, said=None):
        self._tree, self._by, self._said = tree, by, said if said is not None else []

    def __getattr__(self, name):
        method = getattr(self._tree, name)
        if not callable(method):
            return method

        def call(*arguments):
            self._said.append((name, arguments))
            return self._by[name](self._tree, *arguments) if name in self._by else method(*arguments)

        return call


def before(indices):
    return np.maximum(indices - 1, 0)


def unsummed(tree, indices, priorities):
    """Store leaves, and leave the sums above them as they are."""
    tree._leaves[indices] = priorities


# Lies, each in one method alone, and the ops whose answers they spoil.
LIES = {
    "finds the leaf before": (["sample"], {"prefix_sum_index": lambda tree, mass: before(tree.prefix_sum_index(mass))}),
    "samples the leaf before, with its own priority": (
        ["draw", "step"],
        {"sample": lambda tree, u: (before(tree.sample(u)[0]), tree.get(before(tree.sample(u)[0])))},
    ),
    "samples right leaves with wrong priorities": (
        ["draw"],
        {"sample": lambda tree, u: (tree.sample(u)[0], np.float32(1.001) * tree.sample(u)[1])},
    ),
    "reads priorities wrong": (["get"], {"get": lambda tree, indices: tree.get(indices) + np.float32(1e-3)}),
    "forgets the last update": (
        ["update", "insert", "step"],
        {"update": lambda tree, indices, priorities: tree.update(indices[:-1], priorities[:-1])},
    ),
    "updates leaves to wrong priorities": (
        ["update", "insert", "step"],
        {"update": lambda tree, indices, priorities: tree.update(indices, 0.5 * priorities)},
    ),
    "writes leaves and not their sums": (["update", "insert", "step"], {"update": unsummed}),
    "has a total of its own": (["total"], {"total": lambda tree: 1.01 * tree.total()}),
    "sends something else": (["upload"], {"place": lambda tree, batch: 0.5 * tree.place(batch)}),
}


def prepare_between(op, by, said=None, **case):
    """Prepare a case of a tree whose answers are changed, and which notes what it is asked."""
    case = Case("numpy", op, **{"capacity": 500, "batch": 64, **case})
    return prepare(case, make=lambda *shape, **how: Between(impls.make(*shape, **how), by, said))


def test_a_wrong_answer_is_never_timed():
    for op in OPS:
        prepare_between(op, {})
    for lie, (ops, by) in LIES.items():
        for op in ops:
            with pytest.raises(WrongAnswerError, match="oracle"):
                pytest.fail(f"{lie}: {prepare_between(op, by)}")


@pytest.mark.parametrize("op", ["update", "step"])
def test_a_wrong_leaf_is_told_though_the_total_is_right(op):
    def swapped(tree, indices, priorities):
        """Exchange two leaves of a batch: the total is right."""
        tree.update(indices, priorities)
        one, other = np.unique(indices)[:2]
        tree.update([one, other], tree.get([other, one]))

    with pytest.raises(WrongAnswerError, match=r"\d of 64 answers are not the oracle's"):
        prepare_between(op, {"update": swapped}, distribution="rank1.0")


def turns_of(op):
    """What a tree is asked in eight turns, of which every fourth has the same inputs."""
    said = []
    prepared = prepare_between(op, {}, said, capacity=300, batch=cases.ROTATION // 4)
    said.clear()
    for turn in range(8):
        prepared.call(turn)
    return said


METHODS = {"sample": "prefix_sum_index", "draw": "sample", "update": "update", "get": "get", "insert": "update"}


def test_every_turn_has_inputs_of_its_own_until_all_have_been():
    for op, method in METHODS.items():
        said = turns_of(op)
        assert [name for name, _ in said] == [method] * 8
        rows = [id(arguments[0]) for _, arguments in said]
        assert (len(set(rows)), rows[:4]) == (4, rows[4:]), op


def test_a_step_samples_reads_and_updates_by_its_turns_inputs():
    said = turns_of("step")
    assert [name for name, _ in said] == ["sample", "get", "update"] * 8
    for rows in ([id(words[0]) for _, words in said[::3]], [id(words[1]) for _, words in said[2::3]]):
        assert (len(set(rows)), rows[:4]) == (4, rows[4:])
    for (_, read), (_, written) in zip(said[1::3], said[2::3], strict=True):
        assert read[0] is written[0]  # what was sampled


def test_updates_are_of_leaves_as_training_samples_them():
    """A leaf is updated as often as its priority says: by chi-square, which uniform indices fail."""
    inputs = cases._inputs(50, 1_024, "float32", "rank1.0", 0.0, 3)
    leaves = cases._leaves(50, "float32", "rank1.0", 3).astype(np.float64)
    counts = np.bincount(np.concatenate(inputs.indices), minlength=50)
    expected = leaves / leaves.sum() * counts.sum()
    assert chisquare(counts, expected).pvalue > 1e-4
    assert chisquare(counts).pvalue < 1e-9


def test_uniforms_masses_slots_and_priorities_are_as_called():
    inputs = cases._inputs(1_000, 256, "float32", "mostly_zero", 0.0, 0)
    leaves = cases._leaves(1_000, "float32", "mostly_zero", 0)
    total = leaves.sum(dtype=np.float64)
    uniforms, masses = np.concatenate(inputs.uniforms), np.concatenate(inputs.masses)
    np.testing.assert_allclose(masses, uniforms * total, rtol=1e-9)
    assert (masses < total).all()
    slots, priorities, indices = (
        np.concatenate(rows[:8]) for rows in (inputs.slots, inputs.priorities, inputs.indices)
    )
    assert slots.tolist() == [slot % 1_000 for slot in range(8 * 256)]
    assert priorities.min() > 0
    assert leaves[indices].min() > 0


def test_bad_cases_are_refused():
    for how, fact in (
        ({"op": "steal"}, "op"),
        ({"distribution": "normal"}, "distribution"),
        ({"duplicates": 1.5}, "duplicates"),
        ({"options": {"emulate": True}}, "emulate"),
    ):
        with pytest.raises(ValueError, match=fact):
            Case(**{"contestant": "cupy", "op": "draw", "capacity": 10, "batch": 1, **how})


def test_rivals_are_timed_in_turns():
    order = []
    calls = [lambda turn, name=name: (order.append(name), sum(range(3_000))) for name in "abc"]
    timings = interleave_calls(calls, budget_seconds=0.0, least_sample_seconds=1e-3)
    for timing in timings:
        assert len(timing.samples) == LEAST_SAMPLES
        assert timing.interval.low <= timing.interval.median <= timing.interval.high
    switches = sum(a != b for a, b in itertools.pairwise(order))
    assert switches >= 2 * LEAST_SAMPLES
