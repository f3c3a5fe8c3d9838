"""The GPU tree from outside: what it says without a device, and its road through CuPy, which a stand-in paves."""

import numpy as np
import pytest

import impls
from impls.sumtree.cuda import emulation
from impls.sumtree.cuda.program import Constants
from impls.sumtree.oracle import Oracle
from tests import fake_cupy
from tests.contestants import contents
from tests.nursery import run_python
from tests.walk import Placing, walk

pytestmark = pytest.mark.skipif(emulation.why_not() is not None, reason=str(emulation.why_not()))


def on_device(*arrays):
    return [fake_cupy.asarray(array) for array in arrays]


# Without a device


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ("cudaErrorInsufficientDriver: CUDA driver version is insufficient", "a CUDA device.*insufficient"),
        (0, "a CUDA device.*none is visible"),
    ],
)
def test_without_a_device_one_sentence_says_so(with_cupy, devices, words):
    with_cupy(devices)
    reason = impls.why_not("cupy")
    assert reason.count(".") == 1
    assert reason.endswith(".")
    with pytest.raises(RuntimeError, match=words) as refusal:
        impls.make("cupy", 10)
    assert str(refusal.value) == reason


def test_without_cupy_one_sentence_names_it():
    code = (
        "import sys; sys.modules['cupy'] = None; import impls; print(impls.why_not('cupy'))\n"
        "try: impls.make('cupy', 10)\n"
        "except RuntimeError as error: print(error)"
    )
    done = run_python("-c", code)
    first, second = done.stdout.splitlines()
    assert first == second
    assert "needs the module 'cupy', which is not installed" in first


def test_without_a_compiler_emulation_says_what_it_needs(monkeypatch):
    monkeypatch.setenv("CXX", "compiler-that-is-nowhere")
    with pytest.raises(RuntimeError, match=r"found no g\+\+; install one"):
        emulation.load_text("// a text never seen before", Constants("float", 0, 1, False, False))


def test_compiled_kernels_are_kept_where_the_user_alone_can_write(tmp_path):
    code = "import impls; impls.make('cupy', 10, emulate=True).update(0, 1.0)"
    kept = []
    for mode in (0o600, 0o660, 0o600):
        run_python("-c", code, FANOUT_CACHE_DIR=str(tmp_path))
        kept.append({path.name: path.stat().st_mtime_ns for path in (tmp_path / "emulator").iterdir()})
        for path in (tmp_path / "emulator").iterdir():
            path.chmod(mode)
    assert len(kept[0]) == 2  # the emulator and the kernels
    assert kept[0] == kept[1]
    assert not set(kept[1].items()) & set(kept[2].items())  # what others could write to is made anew


# Settings


def test_lanes_hold_four_children_each_unless_told_otherwise():
    lanes = {k: impls.make("cupy", 10_000, fanout=k, emulate=True)._lanes for k in (2, 3, 4, 8, 16, 20, 64, 128, 256)}
    assert lanes == {2: 1, 3: 1, 4: 1, 8: 2, 16: 4, 20: 4, 64: 16, 128: 32, 256: 32}
    assert impls.make("cupy", 100, lanes=32, emulate=True)._lanes == 32


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lanes": 3}, "lanes must be one of 1, 2, 4, 8, 16, 32, not 3"),
        ({"lanes": 0}, "lanes must be at least 1, not 0"),
        ({"fused": "yes"}, "fused must be one of None, True, False, not 'yes'"),
        ({"propagate": "atomics"}, "propagate must be one of 'recompute', 'delta', not 'atomics'"),
        ({"aligned": True, "fanout": 7}, "28 bytes neither divide 64 nor fill lines"),
        ({"threads": 2}, "threads must be 1, not 2"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        impls.make("cupy", 10, emulate=True, **options)


@pytest.mark.parametrize("fanout", [4, 16, 32])
def test_groups_lie_on_lines_of_128_bytes(fanout):
    tree = impls.make("cupy", 10_000, fanout=fanout, emulate=True)
    sums = int(tree._tree["sums"][0])
    levels = [sums + 8 * int(start) for start in tree._tree["start"][0, 1 : tree.height + 1]]
    assert {address % 128 for address in (int(tree._tree["leaves"][0]), *levels)} == {0}
    twin = impls.make("cupy", 10_000, fanout=fanout, emulate=True, aligned=False)
    assert int(twin._tree["leaves"][0]) % 128 == 4
    assert not twin._constants.packed


# The road through CuPy


@pytest.mark.parametrize("options", [{}, {"propagate": "delta"}, {"lanes": 1, "fused": False}])
@pytest.mark.parametrize("placed", [True, False], ids=["device", "host"])
def test_walk_by_device_arrays_and_by_numpy(with_cupy, options, placed):
    with_cupy()
    tree = impls.make("cupy", 300, fanout=8, **options)
    assert tree.device == "cuda:0"
    walk(Placing(tree) if placed else tree, seed=4, steps=80, integers=False, exact="propagate" not in options)


def test_results_stay_on_the_device(with_cupy):
    with_cupy()
    tree = impls.make("cupy", 100)
    tree.update(np.arange(100), 1.0)
    for batch in (np.array([0.25, 0.5]), [0.25, 0.5], np.empty(0), *on_device(np.array([0.25]), np.empty(0))):
        indices, priorities = tree.sample(batch)
        results = indices, priorities, tree.get(indices), tree.prefix_sum_index(batch)
        assert all(isinstance(result, fake_cupy.DeviceArray) for result in results)
        assert [str(result.dtype) for result in results] == ["int64", "float32", "float32", "int64"]
    assert isinstance(tree.total(), float)
    assert isinstance(tree.state_dict()["leaves"], np.ndarray)
    host = impls.make("numpy", 100)
    host.load_state_dict(tree.state_dict())
    assert host.total() == tree.total() == 100.0


@pytest.mark.parametrize(
    ("error", "method", "batches", "words"),
    [
        (IndexError, "get", [np.array([1, 10])], "index 10 at position 1 is outside"),
        (IndexError, "update", [np.array([1, -1]), np.ones(2)], "index -1 at position 1"),
        (ValueError, "update", [np.array([1, 2]), np.array([1.0, np.nan])], "nan at position 1"),
        (ValueError, "update", [np.array([1, 2]), np.array([1.0])], r"\[2\].*\[1\]"),
        (TypeError, "update", [np.array([1.0]), np.ones(1)], "integers, not float64"),
        (ValueError, "sample", [np.array([0.5, 1.0])], "1.0 at position 1 is outside"),
        (ValueError, "sample", [np.zeros((2, 2))], "shape"),
        (ValueError, "prefix_sum_index", [np.array([45.0])], r"45.0 at position 0 is outside \[0, 45.0\)"),
    ],
)
@pytest.mark.parametrize("fused", [True, False])
def test_what_a_kernel_refuses_is_named_by_the_host(with_cupy, error, method, batches, words, fused):
    with_cupy()
    tree = impls.make("cupy", 10, fused=fused)
    tree.update(np.arange(10), np.arange(10.0))
    before = tree.state_dict()["leaves"].tobytes(), tree.total()
    with pytest.raises(error, match=words):
        getattr(tree, method)(*on_device(*batches))
    assert (tree.state_dict()["leaves"].tobytes(), tree.total()) == before
    tree.update(*on_device(np.array([0]), np.array([5.0])))
    assert (tree.total(), tree.check()) == (50.0, 0.0)


def test_narrower_types_and_strides_are_converted_on_the_device(with_cupy):
    with_cupy()
    tree = impls.make("cupy", 10)
    indices, priorities = np.arange(10, dtype=np.int16)[::2], np.arange(10, dtype=np.float32)[1::2]
    tree.update(*on_device(indices, priorities))
    assert impls.to_numpy(tree.get(*on_device(np.arange(10, dtype=np.uint8)))).tolist() == [
        1,
        0,
        3,
        0,
        5,
        0,
        7,
        0,
        9,
        0,
    ]


def test_an_unchecked_draw_from_an_empty_tree_is_told_of_at_the_next_wait(with_cupy):
    with_cupy()
    tree = impls.make("cupy", 10, validate=False)
    (uniforms,) = on_device(np.array([0.5]))
    assert impls.to_numpy(tree.sample(uniforms)[0]).tolist() == [-1]
    with pytest.raises(RuntimeError, match="nothing to sample"):
        tree.synchronize()
    tree.update(*on_device(np.array([3]), np.array([1.0])))
    assert impls.to_numpy(tree.sample(uniforms)[0]).tolist() == [3]
    assert tree.synchronize() is None


@pytest.mark.parametrize("validate", [True, False])
def test_distinct_leaves_are_drawn_on_the_device(with_cupy, validate):
    with_cupy()
    tree = impls.make("cupy", 10, validate=validate)
    tree.update(*on_device(np.array([1, 2, 5]), np.array([1.0, 2.0, 3.0])))
    indices, priorities = map(impls.to_numpy, tree.sample_distinct(*on_device(np.full(3, 0.5))))
    assert (indices.tolist(), priorities.tolist()) == ([5, 2, 1], [3.0, 2.0, 1.0])
    with pytest.raises(RuntimeError, match="4 distinct leaves were asked for, and 3 have a priority above 0"):
        tree.sample_distinct(*on_device(np.full(4, 0.5)))
    assert tree.synchronize() is None
    assert (tree.total(), tree.check()) == (6.0, 0.0)


def test_checked_calls_wait_and_unchecked_ones_do_not(with_cupy, monkeypatch):
    with_cupy()
    waits = []
    monkeypatch.setattr(fake_cupy.DeviceArray, "get", lambda self: waits.append(1) or self.held.copy())
    for validate in (True, False):
        tree = impls.make("cupy", 10, validate=validate)
        batch = on_device(np.array([1]), np.array([0.5]))
        waits.clear()
        tree.update(*batch)
        tree.sample(batch[1])
        tree.get(batch[0])
        assert len(waits) == (3 if validate else 0)


def test_calls_on_different_streams_follow_each_other(with_cupy):
    with_cupy()
    tree = impls.make("cupy", 10, validate=False)
    batch = on_device(np.array([1]), np.array([0.5]))
    first, second = (fake_cupy.Stream(non_blocking=True) for _ in range(2))
    with first:
        tree.update(*batch)
        tree.sample(batch[1])
    assert first.awaited == []
    with second:
        tree.sample(batch[1])
        tree.sample(batch[1])
    assert (first.awaited, second.awaited) == ([], [first])
    with first:
        tree.total()
    assert first.awaited == [second]


# Under way


@pytest.mark.parametrize("fused", [True, False])
def test_an_update_leaves_its_claims_and_counters_at_zero(fused):
    rng = np.random.default_rng(1)
    tree = impls.make("cupy", 5_000, fanout=4, fused=fused, emulate=True)
    for batch in (1, 31, 512, 3_000):
        tree.update(rng.integers(0, 5_000, batch), rng.random(batch))
        assert not tree._claims.any()
        assert not tree._pending.any()


@pytest.mark.parametrize("lanes", [1, 4, 32])
def test_the_same_bits_however_an_update_is_launched(lanes):
    rng = np.random.default_rng(2)
    indices, priorities = rng.integers(0, 3_000, 2_000), rng.random(2_000)
    states = set()
    for fused in (True, False):
        tree = impls.make("cupy", 3_000, lanes=lanes, fused=fused, emulate=True)
        tree.update(indices, priorities)
        start = int(tree._tree["leaves"][0]) - tree._memory.ctypes.data
        states.add(tree._memory[start:][: tree._memory.size - 128].tobytes())
        assert tree.check() == 0.0
    assert len(states) == 1
    oracle = Oracle(3_000)
    oracle.update(indices, priorities)
    assert tree.total() == pytest.approx(oracle.total(), rel=1e-14)


def test_emulated_contents_are_seen_by_the_contract_tests():
    tree = impls.make("cupy", 10, emulate=True)
    before = contents(tree)
    tree.update(3, 1.0)
    assert contents(tree) != before


@pytest.mark.parametrize("scalar", [2, 2.0, np.float32(2), np.float64(2)])
@pytest.mark.parametrize("validate", [True, False])
def test_one_scalar_for_all(with_cupy, scalar, validate):
    with_cupy()
    tree = impls.make("cupy", 10, validate=validate)
    tree.update(*on_device(np.array([1, 4])), scalar)
    assert (tree.total(), tree.check()) == (4.0, 0.0)


def test_an_empty_batch_on_the_device_still_has_its_scalar_judged(with_cupy):
    with_cupy()
    with pytest.raises(ValueError, match="nan"):
        impls.make("cupy", 10).update(*on_device(np.empty(0, np.int64)), float("nan"))


def test_unchecked_numpy_input_is_converted_as_device_input_is(with_cupy):
    with_cupy()
    tree = impls.make("cupy", 10, validate=False)
    tree.update(np.array([1, 4], np.int32), np.array([1.0, 2.0], np.float32))
    assert impls.to_numpy(tree.get(np.array([4, 1], np.uint8))).tolist() == [2.0, 1.0]


def test_rebuilding_makes_good_an_update_that_was_interrupted():
    tree = impls.make("cupy", 100, fanout=4, fused=False, emulate=True)
    tree._kernels["claim_leaves"](1, 128, tree._tree, np.array([3, 50]), np.int64(2))
    assert tree._pending.any()
    tree.rebuild()
    tree.update(np.array([3, 50]), np.array([1.0, 2.0]))
    assert (tree.total(), tree.check()) == (3.0, 0.0)
