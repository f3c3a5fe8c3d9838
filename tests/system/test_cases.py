"""Cases: the same inputs for all, checked before they are timed."""

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare

import impls
from benchmarks import cases
from benchmarks.cases import DISTRIBUTIONS, OPS, Case, WrongAnswerError, prepare
from benchmarks.presets import PRESETS, Block, groups
from benchmarks.timing import LEAST_SAMPLES, interleave_calls
from tests.contestants import NAMES


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", NAMES)
def test_every_op_of_every_contestant_can_be_timed(name, op, request):
    if name == "cupy":
        request.getfixturevalue("with_cupy")()
    prepared = prepare(Case(name, op, capacity=300, batch=20))
    for turn in range(30):
        prepared.call(turn)
    assert prepared.tree.check() == 0.0


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("duplicates", [0.0, 0.5, 1.0])
def test_every_distribution(distribution, duplicates):
    case = Case("numpy", "update", 2_000, 500, distribution=distribution, duplicates=duplicates)
    leaves = cases._leaves(2_000, "float32", distribution, 0)
    assert (leaves >= 0).all()
    assert leaves.sum() > 0
    prepared = prepare(case)
    for turn in range(200):
        prepared.call(turn)
    assert prepared.tree.total() > 0
    inputs = cases._inputs(2_000, 500, "float32", distribution, duplicates, 0)
    assert np.unique(inputs.indices[0]).size <= 1 + round(500 * (1 - 0.8 * duplicates))
    assert case.workload == distribution + (f"+dup{duplicates:g}" if duplicates else "")
    if distribution == "mostly_zero":
        assert (leaves == 0).mean() == pytest.approx(0.9)


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
    "finds the leaf before": (
        ["sample"],
        {"prefix_sum_index": lambda tree, mass: before(tree.prefix_sum_index(mass))},
    ),
    "samples the leaf before, with its own priority": (
        ["draw", "step"],
        {"sample": lambda tree, u: (before(tree.sample(u)[0]), tree.get(before(tree.sample(u)[0])))},
    ),
    "samples right leaves with wrong priorities": (
        ["draw"],
        {"sample": lambda tree, u: (tree.sample(u)[0], np.float32(1.001) * tree.sample(u)[1])},
    ),
    "reads priorities wrong": (
        ["get"],
        {"get": lambda tree, indices: tree.get(indices) + np.float32(1e-3)},
    ),
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


@pytest.mark.parametrize(("lie", "op"), [(lie, op) for lie, (ops, _) in LIES.items() for op in ops])
def test_a_wrong_answer_is_never_timed(lie, op):
    _, by = LIES[lie]
    case = Case("numpy", op, 500, 64)
    with pytest.raises(WrongAnswerError, match="oracle"):
        prepare(case, make=lambda *shape, **how: Between(impls.make(*shape, **how), by))


@pytest.mark.parametrize("op", ["update", "step"])
def test_a_wrong_leaf_is_told_by_the_leaf_and_not_only_by_the_total(op):
    def swapped(tree, indices, priorities):
        """Exchange two leaves of a batch: the total is right."""
        tree.update(indices, priorities)
        one, other = np.unique(indices)[:2]
        tree.update([one, other], tree.get([other, one]))

    case = Case("numpy", op, 500, 64, distribution="rank1.0")
    with pytest.raises(WrongAnswerError, match=r"\d of 64 answers are not the oracle's"):
        prepare(case, make=lambda *shape, **how: Between(impls.make(*shape, **how), {"update": swapped}))


def test_a_tree_that_tells_the_truth_is_timed_through_the_same_door():
    for op in OPS:
        prepare(Case("numpy", op, 500, 64), make=lambda *shape, **how: Between(impls.make(*shape, **how), {}))


def turns_of(op):
    """What a tree is asked in eight turns, of which every fourth has the same inputs."""
    said = []
    case = Case("numpy", op, 300, cases.ROTATION // 4)
    prepared = prepare(case, make=lambda *shape, **how: Between(impls.make(*shape, **how), {}, said))
    said.clear()
    for turn in range(8):
        prepared.call(turn)
    return said


@pytest.mark.parametrize(
    ("op", "method"),
    [("sample", "prefix_sum_index"), ("draw", "sample"), ("update", "update"), ("get", "get"), ("insert", "update")],
)
def test_every_turn_has_inputs_of_its_own_until_all_have_been(op, method):
    said = turns_of(op)
    assert [name for name, _ in said] == [method] * 8
    rows = [id(arguments[0]) for _, arguments in said]
    assert (len(set(rows)), rows[:4]) == (4, rows[4:])


def test_a_step_samples_reads_and_updates_with_inputs_of_its_turn():
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


def test_uniforms_prefix_values_slots_and_priorities_are_what_they_are_called():
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
    with pytest.raises(ValueError, match="op must be one of sample"):
        Case("numpy", "steal", 10, 1)
    with pytest.raises(ValueError, match="distribution must be one of uniform"):
        Case("numpy", "draw", 10, 1, distribution="normal")
    with pytest.raises(ValueError, match=r"duplicates must be in \[0, 1\], not 1\.5"):
        Case("numpy", "draw", 10, 1, duplicates=1.5)
    with pytest.raises(ValueError, match="emulate=True is for tests: it is never timed"):
        Case("cupy", "draw", 10, 1, options={"emulate": True})


def test_inputs_rotate_and_are_the_same_for_all():
    first = cases._inputs(1_000, 64, "float32", "uniform", 0.0, 0)
    assert len(first.uniforms) == cases.ROTATION // 64
    assert cases._inputs(1_000, 64, "float32", "uniform", 0.0, 0) is first
    assert len(cases._inputs(1_000, 1, "float32", "uniform", 0.0, 0).uniforms) == cases.MOST_BATCHES
    assert not np.array_equal(first.uniforms[0], first.uniforms[1])


def test_rivals_are_timed_in_turns():
    order = []
    calls = [lambda turn, name=name: (order.append(name), sum(range(3_000))) for name in "abc"]
    timings = interleave_calls(calls, budget_seconds=0.0, least_sample_seconds=1e-3)
    for timing in timings:
        assert len(timing.samples) == LEAST_SAMPLES
        assert timing.interval.low <= timing.interval.median <= timing.interval.high
    switches = sum(a != b for a, b in itertools.pairwise(order))
    assert switches >= 2 * LEAST_SAMPLES


def test_quick_covers_what_is_asked_most():
    cells = [case for block in PRESETS["quick"].blocks for case in block.cases()]
    default = [case for case in cells if case.contestant == "numba" and case.threads == 1 and not case.options]
    assert {case.dtype for case in default} == {"float32", "float64"}
    for op in ("draw", "update"):
        for dtype in ("float32", "float64"):
            here = [case for case in default if (case.op, case.dtype) == (op, dtype)]
            assert {1, 256, 16_384} <= {case.batch for case in here}  # one insertion a step is the commonest call
            assert max(case.capacity for case in here) == 10_000_000
        for contestant in (
            "numba",
            "numpy",
            "cumsum",
            "flat",
            "python",
        ):  # two values of N and of B each: models want it
            axes = [(one.capacity, one.batch) for one in cells if (one.contestant, one.op) == (contestant, op)]
            assert all(len(set(values)) > 1 for values in zip(*axes, strict=True))
            assert 1 in {batch for _, batch in axes}


def test_quick_measures_the_tree_of_the_paper_and_stays_small():
    cells = [
        case for group in groups(case for block in PRESETS["quick"].blocks for case in block.cases()) for case in group
    ]
    assert len(cells) <= 650
    paper = [case for case in cells if case.options == {"layout": "plain", "propagate": "delta"} and case.batch == 256]
    ours = [case for case in cells if case.contestant == "numba" and not case.options and case.batch == 256]
    for op in ("draw", "update"):
        for capacity in (10_000, 1_000_000):
            for measured in (paper, ours):
                here = {case.fanout for case in measured if (case.op, case.capacity) == (op, capacity)}
                assert {2, 4, 8, 16, 32, 64, 128} <= here


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_hold_each_cell_once_and_in_groups_of_one_question(preset):
    cells = groups(case for block in PRESETS[preset].blocks for case in block.cases())
    for group in cells:
        assert len({(c.capacity, c.batch, c.op, c.dtype, c.workload) for c in group}) == 1
    everything = [repr(case) for group in cells for case in group]
    assert len(everything) == len(set(everything))
    assert {case.contestant for group in cells for case in group} == set(impls.names())


def test_a_tree_without_a_fanout_has_one_cell_for_all():
    assert len(list(Block(("flat",), fanouts=(4, 16)).cases())) == 2 * 18
    assert all(case.fanout == 16 for case in Block(("flat",), fanouts=(4, 64)).cases())
