"""Calls that reach a kernel without Python: they answer, raise and keep references as the methods in Python do."""

import copy
import functools
import gc
import pickle
import random
import sys
import textwrap
import threading
import types
import warnings
import weakref

import numpy as np
import pytest

import impls

numba = pytest.importorskip("numba", reason="the numba tree needs numba")
from impls.sumtree import direct_calls  # noqa: E402
from impls.sumtree.lanes import store_i64  # noqa: E402
from tests.nursery import run_python  # noqa: E402
from tests.spellings import spelled, tensors  # noqa: E402

KIND, CAPACITY = impls.traits("numba"), 1_000
FORMS = [
    {},
    {"dtype": "float64"},
    {"layout": "plain", "threads": 2},
    {"propagate": "delta"},
    {"minimum": True},
    {"validate": False},
]
sleep_microseconds = numba.types.ExternalFunction("usleep", numba.int32(numba.uint32))


def filled(**options):
    """A tree whose calls of ``sample`` and ``update`` reach kernels."""
    tree = impls.make("numba", CAPACITY, **options)
    tree.update(np.arange(CAPACITY), np.random.default_rng(0).integers(0, 9, CAPACITY).astype(float))
    tree.sample(np.array([0.5]))
    return tree


def test_a_method_kept_before_any_call_reaches_the_kernel(monkeypatch):
    tree = impls.make("numba", CAPACITY)
    sample, update = tree.sample, tree.update
    update(np.arange(CAPACITY), np.ones(CAPACITY))
    update(np.arange(2), np.ones(2))
    sample(np.array([0.5]))
    for hook in ("_search", "_write"):
        monkeypatch.setattr(KIND, hook, lambda *_: pytest.fail("Python was asked"))
    update(np.array([3]), np.array([1.0]))
    assert sample(np.array([0.5]))[0].tolist() == [CAPACITY // 2]


def in_python(tree, method):
    """The method that calls were left to if they were all unusual."""
    return types.MethodType(direct_calls._kept[method][0], tree)


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_what_converts_exactly_reaches_the_kernel(options, monkeypatch):
    for batch in (1, 63, 64, direct_calls.MOST):
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
        found, expected = (outcome(each, ([7], odd), {}) for each in (tree.update, in_python(filled(), "update")))
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


LIVES = {
    "a patch before the first tree": """
        from impls.sumtree.numba_tree import NumbaTree
        calls, plain = [], NumbaTree.update
        NumbaTree.update = functools.wraps(plain)(lambda tree, *given: calls.append(given) or plain(tree, *given))
        tree = NumbaTree(100)
        for _ in range(3):
            use(tree)
        assert len(calls) == 6""",
    "modules that are loaded again": """
        from impls.sumtree import direct_calls, numba_tree
        trees = [numba_tree.NumbaTree(100)]
        for module in (numba_tree, direct_calls, numba_tree, numba_tree):
            use(trees[-1])
            importlib.reload(module)
            trees.append(numba_tree.NumbaTree(100))
            gc.collect()
            junk = [bytes(32) for _ in range(100_000)] + [np.full(4, 7) for _ in range(10_000)]
            for tree in trees:
                use(tree)
        assert len({type(tree) for tree in trees}) == 4""",
    "a subclass with a slot of the same name": """
        from impls.sumtree.numba_tree import NumbaTree
        use(type("Mine", (NumbaTree,), {"__slots__": ("_direct",)})(100))""",
}


@pytest.mark.parametrize("life", LIVES)
def test_classes_that_were_changed_or_loaded_again_answer(life):
    begin = """
        import functools, gc, importlib, numpy as np
        def use(tree):
            tree.update(np.arange(4), np.ones(4))
            tree.update([4], [0.0])
            assert [*tree.sample([0.6])[0], *tree.sample(uniforms=np.array([0.3]))[0]] == [2, 1]
        """
    run_python("-X", "faulthandler", "-c", textwrap.dedent(begin) + textwrap.dedent(LIVES[life]))


class Special(np.ndarray):
    pass


def shaped(array, rng):
    """The array, or its values in another layout."""
    array = np.asarray(array)
    wide = np.zeros(array.nbytes + 8, np.uint8)
    unaligned = wide[1 : 1 + array.nbytes].view(array.dtype)
    unaligned[:] = array
    frozen = array.copy()
    frozen.flags.writeable = False
    return rng.choice(
        [
            *[array] * 4,
            frozen,
            unaligned,
            np.repeat(array, 2)[::2],
            array[::-1],
            array.astype(array.dtype.newbyteorder()),
            array.view(Special),
            np.ma.MaskedArray(array),
            array.astype(np.dtype(array.dtype.str, metadata={"of": "somebody"})),
            array.reshape(1, -1),
            array.reshape(-1, 1),
            array[:1].reshape(()) if array.size else array,
            array.tolist(),
            tuple(array.tolist()),
            array.astype(object),
            *[array.astype(rng.choice(["f2", "f4", "i1", "i4", "q", "u8", "?", "c16", "g", "U9"]))] * 3,
            list(array.astype(rng.choice(["f2", "f4", "i1", "u8"]))),
            array[0] if array.size else array,
            array[0].item() if array.size else 0.5,
            memoryview(array),
        ]
    )


def argument(rng, size, kind):
    """An argument of a call as users may give it, seldom a right one."""
    if kind == "where":
        array = np.array([rng.randrange(CAPACITY) for _ in range(size)], np.int64)
        bad = rng.choice([-1, CAPACITY, 2**62, -(2**63)])
    else:
        array = np.array([rng.random() for _ in range(size)])
        bad = rng.choice([1.0, -1e-9, np.nan, np.inf, 1e39, -0.0, 5e-324])
    if size and rng.random() < 0.2:
        array[rng.randrange(size)] = bad
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of casts
        return rng.choice([*[shaped(array, rng)] * 12, None, "x", {}, 10**400, np.empty(0), float("nan")])


def call(rng, method):
    """(arguments, arguments by name) of a call."""
    size, kinds = (
        rng.choice([0, 1, 1, 2, 5, 63, 64, 70, 1_024, 1_025]),
        {"sample": ["uniforms"], "update": ["where", "values"]},
    )
    taken = [argument(rng, size, kind) for kind in kinds[method]]
    names = {"sample": ["uniforms", "exclude"], "update": ["indices", "priorities"]}[method]
    if rng.random() < 0.1:
        taken.append(rng.choice([None, [3], np.arange(3), "x"]))
    if rng.random() < 0.1:
        taken = taken[: rng.randrange(len(taken) + 1)]
    by_name = {name: taken.pop() for name in reversed(names[: len(taken)]) if rng.random() < 0.1 and taken}
    return taken, by_name


def outcome(method, arguments, by_name):
    """What a call returns, by dtypes and bytes, or raises."""
    try:
        result = method(*arguments, **by_name)
    except Exception as error:
        return type(error), str(error)
    return result and [(array.dtype, array.shape, array.tobytes()) for array in result]


@pytest.mark.parametrize("options", FORMS[:-1], ids=str)
def test_whatever_is_given_answers_and_messages_are_pythons(options):
    rng, tree, twin = random.Random(str(options)), filled(**options), filled(**options)
    done, raised = 0, 0
    for _ in range(400):
        method = rng.choice(["sample", "update"])
        arguments, by_name = call(rng, method)
        given = [each for each in [*arguments, *by_name.values()] if isinstance(each, np.ndarray)]
        before = [sys.getrefcount(each) for each in given]
        found = outcome(getattr(tree, method), arguments, by_name)
        assert [sys.getrefcount(each) for each in given] == before
        assert found == outcome(in_python(twin, method), arguments, by_name), (method, arguments, by_name)
        raised += isinstance(found, tuple)
        done += not isinstance(found, tuple)
    assert min(done, raised) > 50
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


def test_where_memory_runs_out_nothing_leaks():
    hooks = pytest.importorskip("_testcapi", reason="this Python has no module that makes memory run out")
    tree, uniforms = filled(), np.array([0.5, 0.2])
    expected, sizes = tree.sample(uniforms)[0].tolist(), []
    for _ in range(3):
        for allowed in range(8):
            answer = None
            hooks.set_nomemory(allowed + 1)
            try:
                answer = tree.sample(uniforms)
            except MemoryError:
                pass
            finally:
                hooks.remove_mem_hooks()
            assert answer is None or answer[0].tolist() == expected
        sizes.append(sys.getallocatedblocks())
    assert answer is not None
    assert sizes[2] - sizes[1] < 8
    assert sys.getrefcount(uniforms) == 2


def test_a_tree_is_freed_with_its_last_reference():
    tree = filled()
    call, gone = tree.sample, weakref.ref(tree)
    del tree
    assert call(np.array([0.5]))[0].size == 1  # which holds it
    del call
    assert gone() is None


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


def test_python_answers_where_objects_are_laid_out_otherwise(monkeypatch):
    monkeypatch.setattr(direct_calls, "_SLOT", direct_calls._SLOT + 8)
    tree = filled()
    assert not tree._direct[[direct_calls._SAMPLE, direct_calls._UPDATE]].any()
    assert tree.sample(np.array([0.5]))[0].tolist() == filled().sample([0.5])[0].tolist()


def test_what_is_refused_leaks_nothing():
    tree, empty, blocks = filled(), impls.make("numba", CAPACITY), []
    with pytest.raises(RuntimeError, match="nothing to sample"):
        empty.sample(np.array([0.5]))
    where, values = np.array([1, 2]), np.array([0.5, np.nan])
    calls = (lambda: tree.sample(values), lambda: empty.sample(values[:1]), lambda: tree.update(where, values))
    for _ in range(3):
        for call in calls * 50:
            assert isinstance(outcome(call, (), {}), tuple)
        gc.collect()
        blocks.append(sys.getallocatedblocks())
    assert blocks[2] - blocks[1] < 50
