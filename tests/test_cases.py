"""Cases: the same inputs for all, checked before they are timed."""

import itertools

import numpy as np
import pytest

import impls
from benchmarks import cases
from benchmarks.answers import questions
from benchmarks.cases import DISTRIBUTIONS, OPS, Case, WrongAnswerError, prepare
from benchmarks.presets import PRESETS, Block, candidates, groups
from benchmarks.timing import LEAST_SAMPLES, interleave_calls
from tests.contestants import NAMES


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", NAMES)
def test_every_op_of_every_contestant_can_be_timed(name, op, request):
    if name == "cupy":
        request.getfixturevalue("with_cupy")()
    prepared = prepare(Case(name, op, capacity=300, batch=20, fanout=4))
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


class _Liar(type(impls.make("numpy", 1))):
    def _find(self, mass):
        return np.maximum(super()._find(mass) - 1, 0)

    def _get(self, indices):
        return super()._get(indices) + np.float32(1e-3)

    def _set(self, indices, priorities):
        super()._set(indices[:-1], priorities[:-1])


@pytest.mark.parametrize("op", ["sample", "draw", "get", "update", "insert", "step"])
def test_a_wrong_answer_is_never_timed(op, monkeypatch):
    def lying(name, capacity, **settings):
        tree = _Liar(capacity, **settings)
        tree._load = lambda leaves: (tree._leaves.__setitem__(slice(None), leaves), tree._rebuild())
        return tree

    monkeypatch.setattr(impls, "make", lying)
    with pytest.raises(WrongAnswerError, match="oracle"):
        prepare(Case("numpy", op, 500, 64))


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


def test_the_candidates_of_questions_are_what_the_sweep_measures():
    names = [(c.contestant, c.fanout, c.threads, tuple(c.options.items())) for c in candidates(PRESETS["quick"])]
    assert len(names) == len(set(names))
    assert ("numba", 16, 1, ()) in names
    assert ("numba", 16, 2, ()) in names
    assert len(list(Block(("flat",), fanouts=(4, 16)).cases())) == 2 * 18
    assert all(case.fanout == 16 for case in Block(("flat",), fanouts=(4, 64)).cases())


def test_questions_repeat_themselves_and_stay_in_their_ranges():
    asked = questions(24, threads=2)
    assert asked == questions(24, threads=2)
    assert asked[:5] != questions(5, threads=2, seed=1)
    for question in asked:
        assert 10**4 <= question.capacity <= 10**6
        assert 32 <= question.batch <= 2**14
        assert question.threads in (1, 2)
