"""States go between replays of every kind, and bad ones are refused before anything is written."""

import numpy as np
import pytest

from tests.replays import LAYOUTS, STRATEGIES, Pair, chunk, equal_batches, equal_states, made, twin_of


def filled(buffer, seed=0, count=30):
    """The buffer after some inserts, an actor's chunks where there are frames."""
    rng, layout = np.random.default_rng(seed), buffer.layout
    for _ in range(3):
        records, drawable = chunk(layout, rng, count // 3)
        buffer.insert(records, rng.standard_normal(count // 3), drawable)
    return buffer


TARGETS = [(name, "two_lock_checked") for name in STRATEGIES]  # each is compiled for its fanout and dtype
OWN = [pytest.param(name, name, marks=pytest.mark.slow) for name in STRATEGIES if name != "two_lock_checked"]


@pytest.mark.parametrize("layout", ["choices", "four frames"])
@pytest.mark.parametrize(("strategy", "target"), TARGETS + OWN)
def test_a_state_goes_from_the_twin_to_the_replay_and_back_whatever_fanout_and_dtype(strategy, target, layout):
    for capacity in (18, 40):
        shape = {"capacity": capacity, "layout": LAYOUTS[layout]}
        twin = filled(twin_of(**shape, dtype="float64", fanout=5))
        with made(strategy, **shape) as compiled, made(target, **shape, fanout=3, dtype="float64") as other:
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
                equal_batches(
                    buffer.sample(9, 0.4, np.random.default_rng(2)), back.sample(9, 0.4, np.random.default_rng(2))
                )
            Pair(compiled, back, np.random.default_rng(3)).walk(15)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 11])
@pytest.mark.parametrize("layout", ["flat", "two frames"])
@pytest.mark.parametrize("capacity", [9, 32])
def test_a_state_goes_into_a_larger_replay_with_its_order_and_priorities(capacity, layout, count):
    shape, rng = {"layout": LAYOUTS[layout]}, np.random.default_rng(count)
    small = twin_of(**shape, capacity=8)
    for _ in range(count):
        records, drawable = chunk(shape["layout"], rng, 2)
        small.insert(records, rng.standard_normal(2), drawable)
    with made("two_lock_checked", capacity, **shape) as compiled:
        for buffer in (twin := twin_of(**shape, capacity=capacity)), compiled:
            buffer.load_state_dict(small.state_dict())
            assert (len(buffer), buffer.written) == (len(small), small.written)
            kept, told = (by_number(each.sample(200, 1.0, np.random.default_rng(0))) for each in (small, buffer))
            assert len(kept) == len(small)
            assert told == kept
            assert buffer.update_priorities([max(kept)], [3.0]).all()
            assert not buffer.update_priorities([-1, small.written - 9, small.written], [3.0] * 3).any()
        assert compiled.check() == 0.0
        Pair(compiled, twin, rng).walk(15)


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


@pytest.mark.parametrize("bad", BAD_STATES)
def test_a_bad_state_is_refused_before_anything_is_written(bad):
    change, message = BAD_STATES[bad]
    twin = filled(twin_of(capacity=40))
    with made("global", 40) as compiled:
        compiled.load_state_dict(twin.state_dict())
        state = change(filled(twin_of(capacity=40), seed=1).state_dict())
        memory, before = compiled._memory.bytes.copy(), twin.state_dict()
        for buffer in (compiled, twin):
            with pytest.raises(ValueError, match=message):
                buffer.load_state_dict(state)
        np.testing.assert_array_equal(compiled._memory.bytes, memory)
        equal_states(twin.state_dict(), before)
        equal_states(compiled.state_dict(), before)
