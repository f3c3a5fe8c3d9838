"""The compiled replay does what its reference twin does; and what the twin has not."""

import itertools
import threading

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

import impls
from impls.replay.block import DAMAGED, LENT
from tests.replays import FLAT, LAYOUTS, STRATEGIES, Pair, equal_batches, equal_states, made, rows_of, twin_of

TREES = [(16, "float32"), (3, "float64")]
FEW = ("global", "two_lock_checked")  # with a second tree; each is compiled for, so the others are for `make test-all`
WALKED = [
    pytest.param(name, *tree, marks=[] if tree == TREES[0] or name in FEW else pytest.mark.slow)
    for name in STRATEGIES
    for tree in TREES
]


def capacities(fanout):
    return (1, 2, 3, fanout - 1, fanout, fanout + 1, 1000)


@pytest.mark.parametrize(("strategy", "fanout", "dtype"), WALKED)
def test_a_random_walk_gives_what_the_twin_gives(strategy, fanout, dtype):
    layouts = [*LAYOUTS.values()]
    for seed, capacity in enumerate(2 * capacities(fanout), start=STRATEGIES.index(strategy)):
        shape = {"capacity": capacity, "layout": layouts[seed % 5], "fanout": fanout, "dtype": dtype}
        shape["max_priority"] = ("ever", "current")[seed % 2]
        with made(strategy, **shape) as compiled:
            Pair(compiled, twin_of(**shape), default_rng(seed)).walk(30)


# Inserts and samples


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_fresh_outputs_are_nobody_elses_and_given_ones_are_used(strategy):
    with made(strategy, 32) as compiled:
        compiled.insert(rows_of(FLAT, default_rng(0), 20))
        first, second = (compiled.sample(8, 0.4, default_rng(seed)) for seed in range(2))
        kept = {name: part.copy() for name, part in first.rows.items()}
        out = compiled.outputs(8)
        given = compiled.sample(8, 0.4, default_rng(1), out=out)
        equal_batches(given, second)
        parts = [[batch.sequence, batch.weights, *batch.rows.values()] for batch in (first, second, given)]
        for one, other in itertools.combinations(itertools.chain(*parts), 2):
            assert not np.shares_memory(one, other)
        assert given.rows["reward"] is out.rows["reward"]
        again = compiled.sample(8, 0.4, default_rng(3), out=out)
        assert again.rows["reward"] is given.rows["reward"]
        for name, part in first.rows.items():
            assert_array_equal(part, kept[name])


@pytest.mark.parametrize(("fanout", "dtype"), [(3, "float64"), (16, "float32")], ids=["3", "16"])
def test_an_insert_of_thousands_of_rows_renews_all_their_sums(fanout, dtype):
    rng = default_rng(0)
    with made("global", 9000, fanout=fanout, dtype=dtype) as compiled:
        twin = twin_of(capacity=9000, fanout=fanout, dtype=dtype)
        for count in (5000, 7000, 9000):  # the second goes around the end
            records, errors = rows_of(FLAT, rng, count), rng.standard_normal(count)
            for buffer in (compiled, twin):
                buffer.insert(records, errors)
            assert compiled.check() == 0.0
        equal_states(compiled.state_dict(), twin.state_dict())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_large_update_is_that_of_its_parts(strategy):
    rng = default_rng(0)
    records, sequence, errors = rows_of(FLAT, rng, 700), rng.integers(0, 700, 3001), rng.standard_normal(3001)
    with made(strategy, 1000) as compiled:
        twin = twin_of(capacity=1000)
        for buffer in (compiled, twin):
            buffer.insert(records)
            assert buffer.update_priorities(sequence, errors).all()
        assert compiled.check() == 0.0
        equal_states(compiled.state_dict(), twin.state_dict())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_arguments_may_be_lists_tensors_and_arrays_of_other_types(strategy):
    torch = pytest.importorskip("torch")
    with made(strategy, alpha=0.5, epsilon=0.25) as compiled:
        records = {name: values.tolist() for name, values in rows_of(FLAT, default_rng(0), 3).items()}
        compiled.insert(records, [0.0, 2, -15.75], [True, True, True])
        compiled.insert(records, torch.tensor([8.75], requires_grad=True) * 1, np.array([0, 1, 0]))
        assert_allclose(compiled.state_dict()["leaves"], [0.5, 1.5, 4.0, 0.0, 3.0, 0.0])
        present = compiled.update_priorities([1, 4], torch.tensor([[0.0], [3.75]], dtype=torch.bfloat16)[:, 0])
        assert_array_equal(present, [True, True])
        compiled.update_priorities(np.array([0], np.int32), np.array([15.75], np.float32))
        assert_allclose(compiled.state_dict()["leaves"], [4.0, 0.5, 4.0, 0.0, 2.0, 0.0])


# Priorities


@pytest.mark.parametrize("strategy", ["global", "two_lock_checked"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_error_that_is_no_priority_changes_nothing(strategy, bad):
    with made(strategy) as compiled:
        records = rows_of(FLAT, default_rng(0), 2)
        compiled.insert(records, [1.0, 2.0])
        before = compiled._memory.bytes.copy()
        for act in (
            lambda: compiled.insert(records, [1.0, bad]),
            lambda: compiled.update_priorities(np.array([0, 1]), [5.0, bad]),
        ):
            with pytest.raises(ValueError, match=f"a TD error is {bad}; training has diverged"):
                act()
        assert_array_equal(compiled._memory.bytes, before)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("capacity", [5, 1000])
def test_the_current_maximum_falls_with_the_records_that_have_it(strategy, capacity):
    options = {"alpha": 1.0, "epsilon": 1e-9, "max_priority": "current"}
    records = rows_of(FLAT, default_rng(0), 1)
    with made(strategy, capacity, **options) as compiled:
        for error in (7.0, 3.0, 5.0):
            compiled.insert(records, [error])
        compiled.update_priorities(np.array([0]), [1.0])
        compiled.insert(records)
        assert compiled.state_dict()["leaves"][3] == np.float32(5.0)
        compiled.update_priorities(np.array([0, 1, 2, 3]), np.full(4, 0.5))
        compiled.insert(records)
        assert compiled.state_dict()["leaves"][4] == np.float32(0.5)
        many = rows_of(FLAT, default_rng(0), capacity)
        compiled.insert(many)  # over all of them
        assert_array_equal(compiled.state_dict()["leaves"], 1.0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_current_maximum_is_that_of_all_leaves_after_any_walk_and_after_a_repair(strategy):
    rng = default_rng(0)
    records = rows_of(FLAT, rng, 1)
    with made(strategy, 1000, max_priority="current") as compiled:
        compiled.insert(rows_of(FLAT, rng, 1000), rng.standard_normal(1000))
        for turn in range(200):
            slots = np.argsort(compiled.state_dict()["leaves"])[-5:]
            newest = compiled.written - 1
            compiled.update_priorities(newest - (newest - slots) % 1000, rng.random(5) / (turn + 1))
            if turn % 50 == 49:
                compiled.load_state_dict(compiled.state_dict())  # ends with the repair of a damaged bank
            remaining = compiled.state_dict()["leaves"]
            slot = compiled.written % 1000
            remaining[slot] = 0
            compiled.insert(records)
            assert compiled.state_dict()["leaves"][slot] == remaining.max()


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "two_lock_lazy"])
def test_an_update_of_a_record_that_is_not_there_changes_nothing(strategy):
    with made(strategy, capacity=4) as compiled:
        compiled.insert(rows_of(FLAT, default_rng(0), 4), [1.0, 2.0, 3.0, 4.0])
        compiled.insert(rows_of(FLAT, default_rng(0), 2), [5.0], [True, False])
        leaves = compiled.state_dict()["leaves"]
        absent = np.array([0, 1, 5, -1, -4, 6, 1 << 40, 1 << 62, (1 << 62) + 2, -(1 << 63)])
        assert_array_equal(compiled.update_priorities(absent, np.full(10, 9.0)), False)
        assert_array_equal(compiled.state_dict()["leaves"], leaves)


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "two_lock_lazy"])
def test_a_record_that_is_not_there_has_no_priority(strategy):
    with made(strategy, capacity=4, alpha=1.0, epsilon=0.5) as compiled:
        compiled.insert(rows_of(FLAT, default_rng(0), 4), [1.0, 2.0, 3.0, 4.0])
        compiled.insert(rows_of(FLAT, default_rng(0), 2), [5.0], [True, False])
        asked = [3, 0, 1, 5, 4, 2, -1, -4, 6, 1 << 62, -(1 << 63), 3]
        told = [4.5, 0, 0, 0, 5.5, 3.5, 0, 0, 0, 0, 0, 4.5]
        assert compiled.retrieve_priorities(asked).tolist() == told
        assert [compiled.retrieve_priorities([one]).tolist() for one in asked] == [[one] for one in told]
        assert compiled.retrieve_priorities([]).shape == (0,)


@pytest.mark.parametrize("strategy", ["two_lock_lazy", "two_lock_checked", "banked"])
def test_whoever_has_a_bank_alone_has_its_leaves(strategy):
    with made(strategy) as compiled:
        compiled.insert(rows_of(FLAT, default_rng(0), 1))
        reader = threading.Thread(target=compiled.retrieve_priorities, args=([0],), daemon=True)
        compiled.retrieve_priorities([0])  # compiles
        with compiled._alone(compiled._banks[0]):
            reader.start()
            reader.join(0.05)
            assert reader.is_alive()
        reader.join(20)
        assert not reader.is_alive()


# Without replacement


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_distinct_records_are_those_a_tree_gives_and_the_tree_is_as_it_was(strategy):
    rng, uniforms = default_rng(0), default_rng(1)
    with made(strategy, 300) as compiled:
        compiled.insert(rows_of(FLAT, rng, 300), 10.0 ** rng.uniform(-3, 3, 300))
        tree = impls.make("numba", 300, fanout=16)
        tree.update(np.arange(300), compiled.state_dict()["leaves"])
        parts = compiled._banks[0].parts[:-1]  # but the list of leaves lent
        for batch in (0, 1, 50, 299, 300):
            values = uniforms.random(batch)
            before = [part.copy() for part in parts]
            sequence = compiled.sample(batch, 0.4, uniforms=values, distinct=True).sequence
            assert_array_equal(sequence, tree.sample_distinct(values)[0])
            for part, was in zip(parts, before, strict=True):
                assert_array_equal(part, was)
        with pytest.raises(RuntimeError, match="301 distinct records were asked for, and 300 can be sampled"):
            compiled.sample(301, 0.4, rng, distinct=True)
        for part, was in zip(parts, before, strict=True):
            assert_array_equal(part, was)


@pytest.mark.parametrize("strategy", ["global", "two_lock_checked"])
def test_a_record_lent_by_a_caller_who_died_is_given_back(strategy):
    with made(strategy) as compiled:
        compiled.insert(rows_of(FLAT, default_rng(0), 4), [1.0, 2.0, 3.0, 4.0])
        (bank,) = compiled._banks
        leaves = bank.leaves
        width = bank.shape.lanes * bank.shape.chunks
        bank.parts[-1][:4] = [2, np.float64(leaves[2]).view(np.int64), 0, np.float64(leaves[0]).view(np.int64)]
        bank.word(LENT)[0] = 2
        bank.parts[2].reshape(-1, width)[0, [0, 2]] = 0.0
        bank.word(DAMAGED)[0] = 1  # what the next to lock the bank finds out by the mutex
        assert_array_equal(compiled.retrieve_priorities([0, 1, 2, 3]), leaves[:4])
        assert set(compiled.sample(64, 0.4, default_rng(0)).sequence) == {0, 1, 2, 3}
        assert_array_equal(bank.leaves, leaves)
        assert (len(compiled), compiled.lost, compiled.check(), bank.word(LENT)[0]) == (4, 0, 0.0, 0)
