"""Calls of a replay that reach its kernels without Python: they answer, raise and draw as the methods in Python do."""

import functools
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product

import numpy as np
import pytest
from numpy.random import default_rng

from impls.replay import ClosedError
from tests.replays import FLAT, made, rows_of

direct_calls = pytest.importorskip("impls.replay.direct_calls", reason="the replay needs numba")
from impls.sumtree.direct_calls import MOST  # noqa: E402
from tests.spellings import spelled, tensors  # noqa: E402

CAPACITY, BETA = 1_100, 0.4


def filled():
    """A replay whose usual calls reach its kernels."""
    replay, rng = made("two_lock_checked", CAPACITY), default_rng(0)
    replay.insert(rows_of(FLAT, rng, CAPACITY), rng.standard_normal(CAPACITY))
    for batch in (1, 32, 40, MOST):
        replay.sample(batch, BETA, rng)
    return replay


@pytest.fixture(scope="module")
def replay():
    with filled() as replay:
        yield replay


def in_python(replay, method):
    """The method that calls are left to if they are unusual."""
    return types.MethodType(direct_calls._kept[-1][method][0], replay)


def parts(batch):
    return [batch.sequence, batch.weights, *batch.rows.values()]


def outcome(call, *arguments, **by_name):
    """What a call returns, by dtypes and bytes, or raises."""
    try:
        result = call(*arguments, **by_name)
    except Exception as error:
        return type(error), str(error)
    arrays = [result] if isinstance(result, np.ndarray) else parts(result)
    return [(each.dtype, each.shape, each.tobytes()) for each in arrays]


def without_python(replay, patches):
    """Let calls fail that are left to Python."""
    for kernel in ("_sample", "_update"):
        patches.setattr(replay, kernel, lambda *_: pytest.fail("Python was asked"))


def test_usual_calls_draw_the_uniforms_of_the_generator(replay, monkeypatch):
    for batch, kind in product((1, 32, MOST), ("PCG64", "MT19937", "Philox", "SFC64")):
        mine, same = (np.random.Generator(getattr(np.random, kind)(batch)) for _ in range(2))
        expected = in_python(replay, "sample")(batch, BETA, same)
        errors = default_rng(batch).standard_normal(batch).astype(np.float32)
        with monkeypatch.context() as patches:
            without_python(replay, patches)
            found = replay.sample(batch, BETA, mine)
            present = replay.update_priorities(found.sequence, errors)
            leaves = replay.state_dict()["leaves"]
            replay.update_priorities(found.sequence, errors.astype(np.float64))
        assert (type(found), found.rows.keys()) == (type(expected), expected.rows.keys())
        for part, other in zip(parts(found), parts(expected), strict=True):
            assert (part.dtype, part.flags.carray, part.tobytes()) == (other.dtype, other.flags.carray, other.tobytes())
        assert str(mine.bit_generator.state) == str(same.bit_generator.state)
        assert present.dtype == np.bool_
        assert present.tolist() == in_python(replay, "update_priorities")(found.sequence, errors).tolist()
        assert leaves.tobytes() == replay.state_dict()["leaves"].tobytes()


def test_what_converts_exactly_reaches_a_replays_kernel(replay, monkeypatch):
    for batch in (1, 40, MOST):
        with filled() as twin, monkeypatch.context() as patches:
            twin.load_state_dict(replay.state_dict())
            sequence, errors = np.arange(batch) % 100, default_rng(batch).integers(0, 100, batch).astype(float)
            present = in_python(twin, "update_priorities")(sequence, errors)
            expected = outcome(in_python(twin, "sample"), batch, 1.0, default_rng(0))
            without_python(replay, patches)
            pairs = [(sequence, each) for each in (*spelled(errors), *tensors(errors))]
            pairs += [(each, errors) for each in (*spelled(sequence), *tensors(sequence))]
            for tickets, sizes in pairs:
                replay.update_priorities(sequence, np.ones(batch))
                found = replay.update_priorities(errors=sizes, sequence=tickets)
                assert (found.dtype, found.tolist()) == (present.dtype, present.tolist())
                assert replay.state_dict()["leaves"].tobytes() == twin.state_dict()["leaves"].tobytes()
            for beta, size in ((1, batch), (np.float32(1), np.int32(batch)), (1.0, np.uint64(batch))):
                assert outcome(replay.sample, beta=beta, rng=default_rng(0), batch=size) == expected


class Doubled(np.random.Generator):
    """A generator that draws other numbers."""

    def random(self, *arguments, **by_name):
        return super().random(*arguments, **by_name) / 2


class OddBits(np.random.PCG64):
    """A bit generator without its lock once a generator has it."""

    def __getattribute__(self, name):
        if name == "lock" and vars(self).get("is_odd"):
            raise AttributeError(name)
        return super().__getattribute__(name)


def odd():
    bits = OddBits(3)
    generator = np.random.Generator(bits)
    bits.is_odd = True
    return generator


def test_odd_generators_draw_as_in_python(replay):
    for make in (lambda: Doubled(np.random.PCG64(3)), lambda: np.random.RandomState(3), odd):
        mine, same = make(), make()
        expected = outcome(in_python(replay, "sample"), 32, BETA, uniforms=None, rng=same)
        assert outcome(replay.sample, 32, BETA, mine) == expected
        assert mine.random() == same.random()


def test_a_generator_that_others_draw_from_is_waited_for(replay):
    rng, same, sampled = default_rng(3), default_rng(3), []
    sampler = threading.Thread(target=lambda: sampled.append(replay.sample(32, BETA, rng)))
    with rng.bit_generator.lock:
        sampler.start()
        sampler.join(0.02)
        assert not sampled
        rng.bit_generator.advance(7)
    sampler.join()
    same.bit_generator.advance(7)
    np.testing.assert_array_equal(sampled[0].sequence, replay.sample(32, BETA, same).sequence)


def test_threads_that_share_a_generator_draw_a_number_once(replay, request):
    request.addfinalizer(functools.partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-5)
    rng, same, drawn = default_rng(5), default_rng(5), []

    def draw():
        for turn in range(40):
            if turn % 4:
                replay.sample(32, BETA, rng)
            else:
                drawn.append(rng.random(32))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: draw(), range(4)))
    numbers = same.random(4 * 40 * 32)
    assert rng.random() == same.random()
    assert np.isin(np.concatenate(drawn), numbers).all()


def test_whatever_is_asked_samples_and_messages_are_pythons(replay):
    batches = 0, 2, True, np.int64(32), np.True_, 32.0, -1, 10**30, "x", None, MOST + 1
    betas = 0, 1, np.float64(0.4), -1e-9, np.nan, np.inf, -np.inf, "x", None, -0.0
    for batch, beta in [*((batch, BETA) for batch in batches), *((32, beta) for beta in betas)]:
        mine, same = default_rng(1), default_rng(1)
        expected = outcome(in_python(replay, "sample"), batch, beta, same)
        assert outcome(replay.sample, batch, beta, mine) == expected, (batch, beta)
        assert mine.random() == same.random(), (batch, beta)
    for rng in (None, 3, "x", np.random, np.random.PCG64(0), object()):
        found, expected = outcome(replay.sample, 32, BETA, rng), outcome(in_python(replay, "sample"), 32, BETA, rng)
        assert (type(found), len(found)) == (type(expected), len(expected)), rng
        assert isinstance(found, list) or found == expected, rng


def shapes(array):
    """The array, and its values in other layouts and types."""
    unaligned = np.zeros(array.nbytes + 8, np.uint8)[1 : 1 + array.nbytes].view(array.dtype)
    unaligned[:] = array
    return [
        *(array, unaligned, np.repeat(array, 2)[::2], array.reshape(2, -1), array.tolist(), array[:-1], array[:0]),
        *(array.astype(dtype) for dtype in ("i4", "u8", "f2", "f4", "?", "O", array.dtype.newbyteorder())),
        *(None, 3, "x", array.view(type("Special", (np.ndarray,), {})), np.concatenate([array] * 600)),
    ]


def test_whatever_is_given_updates_and_messages_are_pythons(replay):
    for bad in (3.0, np.nan, -np.inf, 1e308):
        sequence, errors = np.array([3, CAPACITY, -1, 7]), np.array([0.5, 2.0, 1.0, bad])
        with filled() as twin, np.errstate(all="ignore"):
            pairs = [(each, errors) for each in shapes(sequence)] + [(sequence, each) for each in shapes(errors)]
            twin.load_state_dict(replay.state_dict())
            for pair in [*pairs, (sequence, errors.astype("f4")), (sequence,), ()]:
                arrays = [each for each in pair if isinstance(each, np.ndarray)]
                held = [sys.getrefcount(each) for each in arrays]
                found = outcome(replay.update_priorities, *pair)
                assert [sys.getrefcount(each) for each in arrays] == held
                assert found == outcome(in_python(twin, "update_priorities"), *pair)
            assert replay.state_dict()["leaves"].tobytes() == twin.state_dict()["leaves"].tobytes()


def test_an_empty_replay_refuses_and_has_drawn_as_in_python():
    with made("two_lock_checked", CAPACITY) as empty:
        rngs = [default_rng(0) for _ in range(3)]
        for rng in rngs[:2]:
            with pytest.raises(RuntimeError, match="nothing to sample: no record"):
                empty.sample(4, BETA, rng)
        rngs[2].random(4)
        assert len({rng.random() for rng in rngs}) == 1


def test_a_closed_replay_refuses_and_its_batches_stay():
    replay, rng = filled(), default_rng(0)
    batch = replay.sample(32, BETA, rng)
    before = outcome(lambda: batch)
    replay.close()
    for call in (lambda: replay.sample(32, BETA, rng), lambda: replay.update_priorities(batch.sequence, batch.weights)):
        with pytest.raises(ClosedError, match="this replay is closed"):
            call()
    assert outcome(lambda: batch) == before


def test_neither_answers_nor_refusals_leak(replay):
    sequence, errors, rng = np.array([1, 2]), np.array([0.5, np.nan]), default_rng(0)
    with made("two_lock_checked", CAPACITY) as empty:
        calls = (
            *(lambda: replay.sample(32, BETA, rng), lambda: replay.sample(32, "x", rng)),
            *(lambda: empty.sample(32, BETA, rng), lambda: replay.update_priorities(sequence, errors)),
            *(
                lambda: replay.update_priorities(sequence, errors[:1]),
                lambda: replay.update_priorities(sequence, sequence),
            ),
        )
        blocks = []
        for _ in range(4):
            for call in calls * 100:
                outcome(call)
            blocks.append(sys.getallocatedblocks())
    assert max(after - before for before, after in pairwise(blocks[1:])) < 50
