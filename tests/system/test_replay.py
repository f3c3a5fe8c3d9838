"""The compiled replay does what its reference twin does, whatever locks it; and what the twin has not."""

import itertools
import threading

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_array_equal

import impls
from impls.replay.block import DAMAGED, LENT
from tests.matrix import slow
from tests.replays import FLAT, LAYOUTS, STRATEGIES, Pair, chunk, equal_batches, equal_states, made, rows_of, twin_of

TREES = [(16, "float32"), (3, "float64")]
FEW = ("global", "two_lock_checked")  # with a second tree; each is compiled for, so the others are for `make test-all`
WALKED = [
    (name, *tree) if tree == TREES[0] or name in FEW else slow(name, *tree) for name in STRATEGIES for tree in TREES
]
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
PROMPT = [name for name in STRATEGIES if name != "two_lock_lazy"]  # of which late updates are refused


@pytest.mark.parametrize(("strategy", "fanout", "dtype"), WALKED)
def test_a_random_walk_gives_what_the_twin_gives(strategy, fanout, dtype):
    layouts = [*LAYOUTS.values()]
    capacities = (1, 2, 3, fanout - 1, fanout, fanout + 1, 1000)
    for seed, capacity in enumerate(2 * capacities, start=STRATEGIES.index(strategy)):
        shape = {"capacity": capacity, "layout": layouts[seed % 5], "fanout": fanout, "dtype": dtype}
        shape["max_priority"] = ("ever", "current")[seed % 2]
        with made(strategy, **shape) as compiled:
            Pair(compiled, twin_of(**shape), default_rng(seed)).walk(20)


# Inserts, samples, updates


@every_strategy
def test_fresh_outputs_are_nobody_elses(strategy):
    with made(strategy, 32) as compiled:
        compiled.insert(rows_of(FLAT, default_rng(0), 20))
        out, first = compiled.outputs(8), compiled.sample(8, 0.4, default_rng(0))
        kept = {name: part.copy() for name, part in first.rows.items()}
        second, given = (compiled.sample(8, 0.4, default_rng(1), out=each) for each in (None, out))
        equal_batches(given, second)
        assert all((part == first.rows[name]).all() for name, part in kept.items())
        parts = [[batch.sequence, batch.weights, *batch.rows.values()] for batch in (first, second, given)]
        for part, other in itertools.combinations(itertools.chain(*parts), 2):
            assert not np.shares_memory(part, other)
        assert given.rows["reward"] is out.rows["reward"]


def test_large_inserts_and_updates_renew_all_their_sums():
    for fanout, dtype in TREES:
        rng = default_rng(0)
        with made("global", 9000, fanout=fanout, dtype=dtype) as compiled:
            twin = twin_of(capacity=9000, fanout=fanout, dtype=dtype)
            for count in (5000, 7000, 9000):  # the second goes around the end
                records, errors = rows_of(FLAT, rng, count), rng.standard_normal(count)
                for buffer in (compiled, twin):
                    buffer.insert(records, errors)
                assert compiled.check() == 0.0
            equal_states(compiled.state_dict(), twin.state_dict())


@every_strategy
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


@pytest.mark.parametrize("capacity", [5, 1000])
@every_strategy
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


@pytest.mark.parametrize("strategy", PROMPT)
def test_a_record_that_is_not_there_has_no_priority(strategy):
    with made(strategy, capacity=4, alpha=1.0, epsilon=0.5) as compiled:
        compiled.insert(rows_of(FLAT, default_rng(0), 4), [1.0, 2.0, 3.0, 4.0])
        compiled.insert(rows_of(FLAT, default_rng(0), 2), [5.0], [True, False])
        leaves = compiled.state_dict()["leaves"]
        absent = np.array([0, 1, 5, -1, -4, 6, 1 << 40, 1 << 62, (1 << 62) + 2, -(1 << 63)])
        assert_array_equal(compiled.update_priorities(absent, np.full(10, 9.0)), False)
        assert_array_equal(compiled.state_dict()["leaves"], leaves)
        asked = [3, 0, 1, 5, 4, 2, -1, -4, 6, 1 << 62, -(1 << 63), 3]
        priorities = [4.5, 0, 0, 0, 5.5, 3.5, 0, 0, 0, 0, 0, 4.5]
        assert compiled.retrieve_priorities(asked).tolist() == priorities
        assert [compiled.retrieve_priorities([each])[0] for each in asked] == priorities
        assert compiled.retrieve_priorities([]).shape == (0,)


@pytest.mark.parametrize("strategy", PROMPT)
def test_errors_of_records_that_are_gone_raise_no_priority(strategy):
    for buffer in (made(strategy, 4, alpha=1.0, epsilon=1e-6), twin_of(capacity=4, alpha=1.0, epsilon=1e-6)):
        rows = buffer.layout.allocate(4)
        for _ in range(2):
            buffer.insert(rows)
        present = buffer.update_priorities([0, 1, 6, 99], [1000.0, 1000.0, 3.0, 1000.0])
        assert present.tolist() == [False, False, True, False]
        buffer.insert({name: part[:1] for name, part in rows.items()})
        state = buffer.state_dict()
        assert (state["leaves"][0], state["largest"]) == pytest.approx((3.0, 3.0))


def pair(dtype="float32", **options):
    fanout = 16 if dtype == "float32" else 3  # compiled for other tests too
    shape = {"capacity": 4, "fanout": fanout, "dtype": dtype, "alpha": 1.0, "layout": LAYOUTS["flat"]} | options
    return made("two_lock_checked", **shape), twin_of(**shape)


def test_weights_hold_at_the_ends_of_the_range():
    errors = np.array([0.0, 1e-200, 1e-30, 1e30])
    for buffer in pair("float64", epsilon=1e-300):
        buffer.insert(buffer.layout.allocate(4), errors)
        for beta in (1.0, 0.1, 0.0):
            batch = buffer.sample(4, beta, default_rng(0), distinct=True)
            least = (1e-300 + errors[batch.sequence]).min()
            expected = (least / (1e-300 + errors[batch.sequence])) ** beta
            np.testing.assert_allclose(batch.weights, expected.astype(np.float32), rtol=1e-5)
            assert np.isfinite(batch.weights).all() and batch.weights.max() == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_priority_is_so_small_that_it_is_taken_for_0(dtype):
    least, most = float(np.finfo(dtype).tiny), float(np.finfo(dtype).max)
    for buffer in pair(dtype, epsilon=5e-324):
        buffer.insert(buffer.layout.allocate(2), [0.0, 0.0])
        assert buffer.state_dict()["leaves"].tolist() == [least, least]
        buffer.load_state_dict(buffer.state_dict() | {"leaves": np.array([least / 4, 1e300]), "largest": 1e300})
        buffer.insert(buffer.layout.allocate(1))
        leaves = buffer.state_dict()["leaves"]
        assert leaves[0] == least
        assert (leaves[1:] == min(1e300, most)).all()
        assert buffer.sample(8, 0.4, default_rng(0)).weights.tolist() == [1.0] * 8


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


# Draws


@every_strategy
def test_distinct_records_are_those_a_tree_gives(strategy):
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


@pytest.mark.parametrize("strategy", sorted({*STRATEGIES} - {"banked"}))
def test_draws_come_with_their_priority_and_the_total(strategy):
    for layout in LAYOUTS.values():
        with made(strategy, 64, layout, dtype="float64") as replay:
            rng = default_rng(0)
            records, drawable = chunk(layout, rng, 40)
            replay.insert(records, drawable=drawable)
            tickets = replay.sample(40, 0.4, rng).sequence
            replay.update_priorities(tickets, rng.gamma(1.0, 1.0, 40))
            uniforms = rng.random(33)
            drawn, sampled = replay.draw(uniforms), replay.sample(33, 0.4, uniforms=uniforms)
            assert np.array_equal(drawn["sequence"], sampled.sequence)
            assert all(np.array_equal(drawn[name], rows) for name, rows in sampled.rows.items())
            assert np.array_equal(drawn["priority"], replay.retrieve_priorities(sampled.sequence))
            assert (drawn["total"] == replay.total).all()
            assert replay.total == pytest.approx(replay.retrieve_priorities(np.arange(64)).sum())
            replay.raise_largest(5.0)
            replay.raise_largest(4.0)
            assert replay.largest == max(5.0, drawn["priority"].max())


def test_draws_refuse_banks_bad_uniforms_and_empty_replays():
    with made("banked", 8) as replay, pytest.raises(ValueError, match="banks"):
        replay.draw(np.zeros(1))
    with made(capacity=8) as replay:
        assert replay.total == 0.0 and replay.draw(np.zeros(0))["total"].size == 0
        with pytest.raises(RuntimeError, match="nothing to sample"):
            replay.draw(np.zeros(1))
        for bad in ([1.0], [-0.1], [np.nan]):
            with pytest.raises(ValueError, match="uniforms"):
                replay.draw(bad)
        for bad in (-1.0, np.inf, np.nan):
            with pytest.raises(ValueError, match="priority"):
                replay.raise_largest(bad)


# States go between replays of every kind, and bad ones are refused before anything is written


def filled(buffer, seed=0, count=30):
    """The buffer after some inserts, an actor's chunks where there are frames."""
    rng, layout = default_rng(seed), buffer.layout
    for _ in range(3):
        records, drawable = chunk(layout, rng, count // 3)
        buffer.insert(records, rng.standard_normal(count // 3), drawable)
    return buffer


@pytest.mark.parametrize("layout", ["choices", "four frames"])
@every_strategy
def test_a_state_goes_between_twins_and_replays(strategy, layout):
    for capacity in (18, 40):
        shape = {"capacity": capacity, "layout": LAYOUTS[layout]}
        twin = filled(twin_of(**shape, dtype="float64", fanout=5))
        with made(strategy, **shape) as compiled, made(**shape, fanout=3, dtype="float64") as other:
            filled(compiled, seed=1)  # something else, which goes
            compiled.load_state_dict(twin.state_dict())
            equal_states(compiled.state_dict(), twin.state_dict())
            other.load_state_dict(compiled.state_dict())
            back = twin_of(**shape)
            back.load_state_dict(other.state_dict())
            equal_states(back.state_dict(), twin.state_dict())
            assert compiled.check() == other.check() == 0.0
            for buffer in (compiled, other, back):
                assert (len(buffer), buffer.written) == (len(twin), twin.written)
                equal_batches(buffer.sample(9, 0.4, default_rng(2)), back.sample(9, 0.4, default_rng(2)))
            Pair(compiled, back, default_rng(3)).walk(10)


@pytest.mark.parametrize("layout", ["flat", "two frames"])
def test_a_state_keeps_order_and_priorities_in_a_larger_replay(layout):
    for capacity, count in itertools.product((9, 32), (1, 3, 4, 5, 11)):
        shape, rng = {"layout": LAYOUTS[layout]}, default_rng(count)
        small = twin_of(**shape, capacity=8)
        for _ in range(count):
            records, drawable = chunk(shape["layout"], rng, 2)
            small.insert(records, rng.standard_normal(2), drawable)
        with made("two_lock_checked", capacity, **shape) as compiled:
            for buffer in (twin := twin_of(**shape, capacity=capacity)), compiled:
                buffer.load_state_dict(small.state_dict())
                assert (len(buffer), buffer.written) == (len(small), small.written)
                kept, found = (by_number(each.sample(200, 1.0, default_rng(0))) for each in (small, buffer))
                assert len(kept) == len(small)
                assert found == kept
                assert buffer.update_priorities([max(kept)], [3.0]).all()
                assert not buffer.update_priorities([-1, small.written - 9, small.written], [3.0] * 3).any()
            assert compiled.check() == 0.0
            Pair(compiled, twin, rng).walk(8)


def by_number(batch):
    """Each record's fields, and its weight, by its number."""
    rows = [{name: values[j].tolist() for name, values in batch.rows.items()} for j in range(len(batch.weights))]
    return {
        number: (row, pytest.approx(weight, rel=1e-6))
        for number, row, weight in zip(batch.sequence.tolist(), rows, batch.weights.tolist(), strict=True)
    }


BAD_STATES = {
    "another capacity": (lambda s: made(capacity=64).state_dict() | {"written": 64}, "which a buffer of 40 does not"),
    "fewer than one": (lambda s: s | {"leaves": s["leaves"][:0]}, "holds 0 records of 30 ever written"),
    "more than it holds": (lambda s: s | {"written": 12}, "holds 30 records of 12 ever written"),
    "below nothing": (lambda s: s | {"written": -1}, "of -1 ever written"),
    "beyond any ticket": (lambda s: s | {"written": 1 << 62}, "which a buffer of 40 does not"),
    "another layout": (lambda s: s | {"arrays": s["arrays"] | {"frame": 0}}, "another layout: it differs in frame"),
    "a field less": (lambda s: s | {"arrays": {"reward": s["arrays"]["reward"]}}, "differs in action, next_obs"),
    "another shape": (
        lambda s: with_field(s, "observation", lambda v: v[:, :2]),
        r"must be \[30, 3\] float32, not \[30, 2\]",
    ),
    "another dtype": (lambda s: with_field(s, "reward", lambda v: v.astype("f8")), r"reward must be \[30\] float32"),
    "fewer rows": (lambda s: with_field(s, "reward", lambda v: v[:-1]), r"not \[29\] float32"),
    "a NaN": (lambda s: s | {"leaves": np.r_[s["leaves"][:-1], np.nan]}, "above 0, not nan"),
    "an infinity": (lambda s: s | {"leaves": np.r_[s["leaves"][:-1], np.inf]}, "above 0, not inf"),
    "below 0": (lambda s: s | {"leaves": -s["leaves"]}, "above 0, not -"),
    "drawable at 0": (lambda s: s | {"leaves": 0 * s["leaves"]}, "above 0, not 0.0"),
    "the largest": (lambda s: s | {"largest": np.nan}, "above 0, not nan"),
    "drawable of another shape": (lambda s: s | {"drawable": s["drawable"][:-1]}, r"drawable must be \[30\] bool"),
    "drawable of another type": (lambda s: s | {"drawable": s["drawable"] * 2.0}, r"drawable must be \[30\] bool"),
    "something missing": (lambda s: {"written": 30}, "lacks arrays, drawable, largest, leaves"),
}


def with_field(state, name, change):
    return state | {"arrays": state["arrays"] | {name: change(state["arrays"][name])}}


def test_a_bad_state_is_refused_before_anything_is_written():
    twin = filled(twin_of(capacity=40))
    with made("global", 40) as compiled:
        compiled.load_state_dict(twin.state_dict())
        memory, before = compiled._memory.bytes.copy(), twin.state_dict()
        for bad, (change, message) in BAD_STATES.items():
            state = change(filled(twin_of(capacity=40), seed=1).state_dict())
            for buffer in (compiled, twin):
                with pytest.raises(ValueError, match=message):
                    buffer.load_state_dict(state)
            assert (compiled._memory.bytes == memory).all(), bad
            equal_states(twin.state_dict(), before)
