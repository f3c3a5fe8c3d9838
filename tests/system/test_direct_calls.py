"""Calls that reach kernels without Python, of trees and replays: they answer, raise and draw as methods in Python."""

import copy
import functools
import gc
import pickle
import sys
import threading
import types
import weakref
from itertools import pairwise, product

import numpy as np
import pytest
from numpy.random import default_rng

import impls
from impls.replay import Batch, Replay

numba = pytest.importorskip("numba", reason="kernels need numba")
from impls.replay import direct_calls as replay_calls  # noqa: E402
from impls.sumtree import direct_calls  # noqa: E402
from impls.sumtree.lanes import store_i64  # noqa: E402
from tests.replays import FLAT, made, rows_of  # noqa: E402

KIND, CAPACITY = impls.traits("numba"), 1_000
RECORDS, BETA, MOST = 1_100, 0.4, direct_calls.MOST
FORMS = [{}, {"dtype": "float64"}, {"layout": "plain", "threads": 2}, {"propagate": "delta"}, {"minimum": True}]
FORMS += [{"validate": False}]
sleep_microseconds = numba.types.ExternalFunction("usleep", numba.int32(numba.uint32))


def filled(**options):
    """A tree whose calls of ``sample`` and ``update`` reach kernels."""
    tree = impls.make("numba", CAPACITY, **options)
    tree.update(np.arange(CAPACITY), np.random.default_rng(0).integers(0, 9, CAPACITY).astype(float))
    tree.sample(np.array([0.5]))
    return tree


def in_python(owner, method):
    """The method of a tree or a replay that calls were left to if they were all unusual."""
    kept = replay_calls._kept[-1] if isinstance(owner, Replay) else direct_calls._kept
    return types.MethodType(kept[method][0], owner)


def parts(result):
    if isinstance(result, Batch):
        return [result.sequence, result.weights, *result.rows.values()]
    return [result] if isinstance(result, np.ndarray) else result or []


def outcome(call, *arguments, **by_name):
    """What a call returns, by dtypes and bytes, or raises."""
    try:
        result = call(*arguments, **by_name)
    except Exception as error:
        return type(error), str(error)
    return [(each.dtype, each.shape, each.tobytes()) for each in parts(result)]


def spelled(array):
    """The numbers of an array of whole numbers as users may spell them, where float16 holds each."""
    integers = [array.astype(letter) for letter in "bBhHiIlLqQ"]
    found = [array, unaligned(array), np.repeat(array, 2)[::2], array[::-1].copy()[::-1], *integers]
    found += [array.tolist(), tuple(array)]
    if array.dtype.kind == "f":
        found += [array.astype("e"), array.astype("f"), [int(each) for each in array], list(array.astype("f"))]
    if array.size == 1:
        found += [array[0], array[0].item(), *(each[0] for each in found[4:14]), array.reshape(())]
    return found


def tensors(array):
    """The same numbers as torch's tensors, once the first was seen; none without torch."""
    torch = sys.modules.get("torch") or pytest.importorskip("torch", reason="tensors need torch")
    whole = torch.tensor(array)
    impls.to_numpy(whole)
    found = [whole, torch.tensor(np.repeat(array, 2))[::2], whole.to(torch.int16), whole.to(torch.int32)]
    if array.dtype.kind == "f":
        found += [whole.half(), whole.float(), whole.bfloat16(), whole.clone().requires_grad_(), whole.to(torch.uint8)]
    return [*found, whole[0]] if array.size == 1 else found


def unaligned(array):
    found = np.zeros(array.nbytes + 8, np.uint8)[1 : 1 + array.nbytes].view(array.dtype)
    found[:] = array
    return found


class Special(np.ndarray):
    pass


def layouts(array):
    """The array, and its values in layouts and types that only Python knows."""
    frozen = array.copy()
    frozen.flags.writeable = False
    found = [array, frozen, unaligned(array), np.repeat(array, 2)[::2], array[::-1], array.view(Special)]
    found += [array.astype(array.dtype.newbyteorder()), np.ma.MaskedArray(array), memoryview(array)]
    found += [array.astype(np.dtype(array.dtype.str, metadata={"of": "somebody"})), array[:-1], array[:0]]
    found += [array.reshape(1, -1), array.reshape(-1, 1), array[:1].reshape(()) if array.size else array]
    found += [array.tolist(), tuple(array.tolist()), array[0] if array.size else array]
    found += [array.astype(each) for each in ("f2", "f4", "i1", "i4", "q", "u8", "?", "c16", "g", "U9", "O")]
    return [*found, *(list(array.astype(each)) for each in ("f2", "f4", "i1", "u8"))]


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_what_converts_exactly_reaches_the_kernel(options, monkeypatch):
    for batch in (1, 63, 64, MOST):
        tree, twin, rng = filled(**options), filled(**options), np.random.default_rng(batch)
        where, uniforms = rng.integers(0, 100, batch), rng.integers(0, 256, batch) / 256
        for each in (tree, twin):
            each.sample(uniforms, where[:1])
        with monkeypatch.context() as patches:
            for hook in ("_search", "_sample_without", "_write"):
                patches.setattr(KIND, hook, lambda *_: pytest.fail("Python was asked"))
            compare(tree, twin, rng, where, uniforms)
        assert (tree.total(), tree.min()) == (twin.total(), twin.min())
        assert "delta" in options.values() or tree.check() == 0.0


def compare(tree, twin, rng, where, uniforms):
    """Update and sample a tree by all spellings of some numbers, and its twin by arrays."""
    for indices in (*spelled(where), *tensors(where)):
        values = rng.integers(0, 100, where.size).astype(float)
        twin.update(where, values)
        tree.update(indices, priorities=values)
        assert tree.state_dict()["leaves"].tobytes() == twin.state_dict()["leaves"].tobytes()
    for priorities in (*spelled(values), *tensors(values)):
        tree.update(where, np.zeros(where.size))
        tree.update(priorities=priorities, indices=where)
        assert tree.state_dict()["leaves"].tobytes() == twin.state_dict()["leaves"].tobytes()
    spellings = uniforms, uniforms.astype("f"), uniforms.tolist(), uniforms[::-1].copy()[::-1], *tensors(uniforms)[:2]
    for exclude in (None, np.array([3, 5]), where[:1]):
        expected = twin.sample(uniforms, exclude)
        for given in spellings:
            for found, other in zip(tree.sample(given, exclude=exclude), expected, strict=True):
                assert (found.dtype, found.flags.owndata, found.flags.carray) == (other.dtype, True, True)
                assert found.tobytes() == other.tobytes()


def test_numbers_that_float64_does_not_hold_are_rounded_once():
    tree, number = filled(), 2**60 + 2**36 + 1  # above the middle of two float32, which float64 does not tell
    for priorities in (number, [number], np.array([number]), np.uint64(number), np.array([number], "u8")):
        tree.update([7], 0.0)
        tree.update([7], priorities)
        assert tree.get(7) == 2.0**60 + 2.0**37
    with pytest.raises(TypeError, match="indices must be integers, not float64"):
        tree.update([np.uint64(1), np.int8(2)], [1.0, 1.0])  # of which NumPy makes floats
    for index in (0.0, [0.0], (5e-324,), np.float64(0.0), np.zeros(1)):
        with pytest.raises(TypeError, match="indices must be integers, not float64"):
            tree.update(index, 1.0)


def test_a_tensor_that_is_no_plain_one_is_read_by_python():
    torch = pytest.importorskip("torch", reason="tensors need torch")
    tree, z = filled(), torch.tensor([1 + 2j])
    impls.to_numpy(z.real)
    one, negated = torch.ones(1), z.conj().imag
    kinds = [one.bool(), one.to(torch.float8_e5m2), one.to("meta"), one.to_sparse(), one.view(1, 1), z]
    for odd in (negated, negated.view(-1), torch._neg_view(one), *kinds):
        found, expected = (outcome(each, [7], odd) for each in (tree.update, in_python(filled(), "update")))
        assert found == expected, odd


def test_one_priority_is_of_all_leaves_and_a_list_is_not():
    torch, tree = pytest.importorskip("torch", reason="tensors need torch"), filled()
    impls.to_numpy(torch.ones(1))
    for number in (2.0, 2, np.float32(2), np.float16(2), np.array(2.0), torch.tensor(2.0)):
        tree.update([3, 4, 5], 0.0)
        tree.update(np.array([3, 4, 5]), number)
        assert tree.get([3, 4, 5]).tolist() == [2.0] * 3
        for each in ([number], (number,), np.array([float(number)])):
            with pytest.raises(ValueError, match=r"priorities must be one scalar or \[3\] like the indices, not \[1\]"):
                tree.update(np.array([3, 4, 5]), each)
    for number in (np.float16(2.0**-24), np.float16(0.1), torch.tensor(0.1).bfloat16(), torch.tensor(1e-40).bfloat16()):
        tree.update([3], number)
        assert tree.get(3) == float(number) > 0


OTHERS = None, 3, "x", {}, 10**400, float("nan"), np.arange(2_400)
SIZES = [(0, None, None), (1, None, None), (1, -1, 1.0), (2, CAPACITY, np.nan), (5, None, -0.0), (5, 2**62, -1e-9)]
SIZES += [(63, None, None), (64, -(2**63), np.inf), (70, None, 1e39), (MOST, None, 5e-324), (MOST + 1, None, None)]


def unusual_calls():
    """(method, arguments, arguments by name) of calls as users may write them, seldom right ones."""
    rng = default_rng(0)
    for size, bad_index, bad_number in SIZES:
        where, numbers = rng.integers(0, CAPACITY, size), rng.random(size)
        where[size // 2 : size // 2 + 1] = where[:1] if bad_index is None else bad_index
        numbers[size // 2 : size // 2 + 1] = numbers[:1] if bad_number is None else bad_number
        with np.errstate(all="ignore"):  # of casts
            indices, reals = [*layouts(where), *OTHERS], [*layouts(numbers), *OTHERS]
        for real in reals:
            yield from (("sample", (real,), {}), ("sample", (), {"uniforms": real}))
            yield from (("update", (where, real), {}), ("update", (where,), {"priorities": real}))
        for index in indices:
            yield from (("update", (index, numbers), {}), ("update", (), {"priorities": numbers, "indices": index}))
        for more in ((), (None,), ([3],), (np.arange(3),), ("x",), (1, 2)):
            yield from (("sample", (numbers, *more), {}), ("update", (where, *more), {}))
        yield from (("sample", (), {}), ("update", (), {}), ("update", (where, numbers, None), {}))
        for name, given in (("uniforms", numbers), ("exclude", None), ("other", 1)):
            yield from (("sample", (numbers,), {name: given}), ("sample", (numbers, None), {name: given}))
        for name, given in (("indices", where), ("priorities", numbers), ("other", 1)):
            yield from (("update", (where,), {name: given}), ("update", (where, numbers), {name: given}))


@pytest.mark.parametrize("options", FORMS[:-1], ids=str)
def test_whatever_is_given_answers_and_messages_are_pythons(options):
    tree, twin, raised = filled(**options), filled(**options), []
    for method, arguments, by_name in unusual_calls():
        given = [each for each in [*arguments, *by_name.values()] if isinstance(each, np.ndarray)]
        before = [sys.getrefcount(each) for each in given]
        found = outcome(getattr(tree, method), *arguments, **by_name)
        assert [sys.getrefcount(each) for each in given] == before
        assert found == outcome(in_python(twin, method), *arguments, **by_name), (method, arguments, by_name)
        raised.append(isinstance(found, tuple))
    assert 200 < sum(raised) < len(raised) - 200
    assert tree.state_dict()["leaves"].tobytes() == twin.state_dict()["leaves"].tobytes()
    assert (tree.check(), tree.total()) == (twin.check(), twin.total())


def test_an_empty_tree_refuses_as_python_does():
    for options in FORMS:
        tree = impls.make("numba", CAPACITY, **options)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"nothing to sample: the total is 0\.0"):
                tree.sample(np.array([0.5]))


def sleep(result, error):
    """A kernel that takes long and does nothing."""
    sleep_microseconds(200_000)
    store_i64(result, 0)
    return 0


def test_other_threads_run_beside_long_calls_alone(request):
    request.addfinalizer(functools.partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(60)  # so that this thread gives way nowhere else
    tree, looks, done = filled(), [0], threading.Event()
    kernel = numba.cfunc(numba.int32(numba.int64, numba.int64))(sleep)
    tree._direct[[direct_calls._SAMPLE, direct_calls._UPDATE]] = kernel.address

    def look():
        while not done.wait(0.001):
            looks[0] += 1

    worker = threading.Thread(target=look, daemon=True)
    worker.start()
    for size in (63, 64):
        for call in (tree.sample, lambda u: tree.update(np.zeros(u.size, np.int64), u)):
            uniforms = np.full(size, 0.5)
            before = looks[0]
            call(uniforms)
            assert (looks[0] - before > 1) == (size == 64)
    done.set()
    worker.join()


def test_a_copy_has_calls_and_leaves_of_its_own():
    for duplicate in (copy.copy, copy.deepcopy, lambda tree: pickle.loads(pickle.dumps(tree))):
        tree = filled()
        twin = duplicate(tree)
        twin.update(np.array([3]), np.array([1e6]))
        twin.update(np.array([3]), np.array([2e6]))
        assert (twin.get(3), tree.get(3)) == (2e6, filled().get(3))
        assert set(twin.sample(np.array([0.5]))[0]) == set(twin.sample(np.array([0.5]))[0]) == {3}
        assert pickle.loads(pickle.dumps(tree.update))(0, 1.0) is None


def test_methods_of_a_subclass_or_a_patch_are_those_that_run(monkeypatch):
    filled()

    class Mine(KIND):
        def _write(self, indices, priorities):
            return super()._write(indices, 2 * priorities)

        def sample(self, uniforms, exclude=None):
            return super().sample(np.full(3, 0.5), exclude)

    tree = Mine(10)
    for _ in range(2):
        tree.update(np.array([4]), np.array([1.5]))
        assert tree.sample(np.array([0.1]))[1].tolist() == [3.0] * 3
    other = filled()
    monkeypatch.setattr(other, "sample", lambda uniforms: "patched")
    assert other.sample(np.array([0.5])) == "patched"
    blank = KIND.__new__(KIND)
    with pytest.raises(AttributeError, match="_validate"):
        blank.sample(np.array([0.5]))
    with pytest.raises(TypeError, match="NumbaTree"):
        KIND.sample(impls.make("numpy", 10), np.array([0.5]))


def test_what_is_refused_leaks_nothing():
    tree, empty, blocks = filled(), impls.make("numba", CAPACITY), []
    with pytest.raises(RuntimeError, match="nothing to sample"):
        empty.sample(np.array([0.5]))
    where, values = np.array([1, 2]), np.array([0.5, np.nan])
    calls = (lambda: tree.sample(values), lambda: empty.sample(values[:1]), lambda: tree.update(where, values))
    for _ in range(3):
        for call in calls * 50:
            assert isinstance(outcome(call), tuple)
        gc.collect()
        blocks.append(sys.getallocatedblocks())
    assert blocks[2] - blocks[1] < 50


def test_a_tree_is_freed_with_its_last_reference():
    tree = filled()
    call, gone = tree.sample, weakref.ref(tree)
    del tree
    assert call(np.array([0.5]))[0].size == 1  # which holds it
    del call
    assert gone() is None


# Replays


def filled_replay():
    """A replay whose usual calls reach its kernels."""
    replay, rng = made("two_lock_checked", RECORDS), default_rng(0)
    replay.insert(rows_of(FLAT, rng, RECORDS), rng.standard_normal(RECORDS))
    for batch in (1, 32, 40, MOST):
        replay.sample(batch, BETA, rng)
    return replay


@pytest.fixture(scope="module")
def replay():
    with filled_replay() as replay:
        yield replay


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
        with filled_replay() as twin, monkeypatch.context() as patches:
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


def test_whatever_a_replay_is_given_messages_are_pythons(replay):
    for bad in (3.0, np.nan, -np.inf, 1e308):
        sequence, errors = np.array([3, RECORDS, -1, 7]), np.array([0.5, 2.0, 1.0, bad])
        with filled_replay() as twin, np.errstate(all="ignore"):
            pairs = [(each, errors) for each in (*layouts(sequence), *OTHERS)]
            pairs += [(sequence, each) for each in (*layouts(errors), *OTHERS)]
            twin.load_state_dict(replay.state_dict())
            for pair in [*pairs, (sequence, errors.astype("f4")), (sequence,), ()]:
                arrays = [each for each in pair if isinstance(each, np.ndarray)]
                held = [sys.getrefcount(each) for each in arrays]
                found = outcome(replay.update_priorities, *pair)
                assert [sys.getrefcount(each) for each in arrays] == held
                assert found == outcome(in_python(twin, "update_priorities"), *pair)
            assert replay.state_dict()["leaves"].tobytes() == twin.state_dict()["leaves"].tobytes()


def test_neither_answers_nor_refusals_leak(replay):
    sequence, errors, rng = np.array([1, 2]), np.array([0.5, np.nan]), default_rng(0)
    with made("two_lock_checked", RECORDS) as empty:
        calls = (
            *(lambda: replay.sample(32, BETA, rng), lambda: replay.sample(32, "x", rng)),
            *(lambda: empty.sample(32, BETA, rng), lambda: replay.update_priorities(sequence, errors)),
            lambda: replay.update_priorities(sequence, errors[:1]),
        )
        blocks = []
        for _ in range(4):
            for call in calls * 100:
                outcome(call)
            blocks.append(sys.getallocatedblocks())
    assert max(after - before for before, after in pairwise(blocks[1:])) < 50
