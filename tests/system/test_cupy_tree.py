"""The GPU tree from outside: what it says without a device, and its road through CuPy, which a stand-in paves."""

import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import impls
from impls.sumtree.cuda import emulation
from impls.sumtree.cuda.arrays import Libraries
from impls.sumtree.cuda.program import Constants
from impls.sumtree.oracle import Oracle
from tests import fake_cupy
from tests.nursery import run_python
from tests.walk import Placing, walk

pytestmark = pytest.mark.skipif(emulation.why_not() is not None, reason=str(emulation.why_not()))


def on_device(*arrays):
    return [fake_cupy.asarray(array) for array in arrays]


# Without a device


def test_without_a_device_one_sentence_says_so(with_cupy):
    for devices, word in (("cudaErrorInsufficientDriver: CUDA driver version", "InsufficientDriver"), (0, "none")):
        with_cupy(devices)
        reason = impls.why_not("cupy")
        assert reason.endswith(".") and reason.count(".") == 1
        assert "CUDA" in reason and word in reason
        with pytest.raises(RuntimeError) as refusal:
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
    assert "needs the module 'cupy'" in first
    assert first.endswith("pip install cupy-cuda13x")


def test_without_a_compiler_emulation_says_what_it_needs(monkeypatch):
    monkeypatch.setenv("CXX", "compiler-that-is-nowhere")
    with pytest.raises(RuntimeError, match=r"found no g\+\+; install one"):
        emulation.load_text("// a text never seen before", Constants("float", 0, 1, False, False))


def test_kernels_are_kept_where_the_user_alone_can_write(tmp_path):
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


def test_lanes_and_lines_of_groups():
    lanes = {k: impls.make("cupy", 10_000, fanout=k, emulate=True)._lanes for k in (2, 3, 4, 8, 16, 20, 64, 128, 256)}
    assert lanes == {2: 1, 3: 1, 4: 1, 8: 2, 16: 4, 20: 4, 64: 16, 128: 32, 256: 32}
    assert impls.make("cupy", 100, lanes=32, emulate=True)._lanes == 32
    for fanout in (4, 16, 32):
        tree = impls.make("cupy", 10_000, fanout=fanout, emulate=True)
        sums = int(tree._tree["sums"][0])
        levels = [sums + 8 * int(start) for start in tree._tree["start"][0, 1 : tree.height + 1]]
        assert {address % 128 for address in (int(tree._tree["leaves"][0]), *levels)} == {0}
        twin = impls.make("cupy", 10_000, fanout=fanout, emulate=True, aligned=False)
        assert int(twin._tree["leaves"][0]) % 128 == 4
        assert not twin._constants.packed


def test_bad_options_are_refused():
    for options, words in (
        ({"lanes": 3}, "lanes.* 32, not 3"),
        ({"lanes": 0}, "lanes.* 1, not 0"),
        ({"fused": "yes"}, "fused.*True, False, not 'yes'"),
        ({"propagate": "atomics"}, "propagate.*'recompute', 'delta', not 'atomics'"),
        ({"aligned": True, "fanout": 7}, "28 bytes"),
    ):
        with pytest.raises(ValueError, match=words):
            impls.make("cupy", 10, emulate=True, **options)


# The road through CuPy


@pytest.mark.parametrize("placed", [True, False], ids=["device", "host"])
def test_walk_by_device_arrays_and_by_numpy(with_cupy, placed):
    with_cupy()
    for options in ({}, {"propagate": "delta"}, {"lanes": 1, "fused": False}):
        tree = impls.make("cupy", 300, fanout=8, **options)
        assert tree.device == "cuda:0"
        walk(Placing(tree) if placed else tree, seed=4, steps=60, integers=False, exact="propagate" not in options)


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


REFUSED = [
    (IndexError, "get", [[1, 10]], "index 10 at position 1 is outside"),
    (IndexError, "update", [[1, -1], [1.0, 1.0]], "index -1 at position 1"),
    (ValueError, "update", [[1, 2], [1.0, np.nan]], "nan at position 1"),
    (ValueError, "update", [[1, 2], [1.0]], r"\[2\].*\[1\]"),
    (TypeError, "update", [[1.0], [1.0]], "integers, not float64"),
    (ValueError, "sample", [[0.5, 1.0]], "1.0 at position 1 is outside"),
    (ValueError, "sample", [np.zeros((2, 2))], "shape"),
    (ValueError, "prefix_sum_index", [[45.0]], r"45.0 at position 0 is outside \[0, 45.0\)"),
]


@pytest.mark.parametrize(("fused", "when"), [(True, "later"), (False, "later"), (True, "now")])
def test_what_a_kernel_refuses_is_named_and_changes_nothing(with_cupy, fused, when):
    with_cupy()
    for error, method, batches, words in REFUSED:
        tree = impls.make("cupy", 10, fused=fused, raise_errors=when)
        tree.update(np.arange(10), np.arange(10.0))
        before = tree.state_dict()["leaves"].tobytes(), tree.total()
        with pytest.raises(error, match=words):
            getattr(tree, method)(*on_device(*map(np.array, batches)))
            if when == "later":
                tree.total()
        assert tree.synchronize() is None  # it is raised once
        assert (tree.state_dict()["leaves"].tobytes(), tree.total()) == before
        tree.update(*on_device(np.array([0]), np.array([5.0])))
        assert (tree.total(), tree.check()) == (50.0, 0.0)


def test_narrower_types_and_strides_are_converted_on_the_device(with_cupy, monkeypatch):
    with_cupy()
    for real_type in ("float16", "float32"):
        tree = impls.make("cupy", 10)
        indices, priorities = np.arange(10, dtype=np.int16)[::2], np.arange(10, dtype=real_type)[1::2]
        with monkeypatch.context() as patches:
            patches.setattr(Libraries, "copy_to_host", lambda *anything: pytest.fail("by the host"))
            tree.update(*on_device(indices, priorities))
        stored = impls.to_numpy(tree.get(*on_device(np.arange(10, dtype=np.uint8))))
        assert stored.tolist() == [1, 0, 3, 0, 5, 0, 7, 0, 9, 0]


def test_an_unchecked_draw_from_an_empty_tree_is_told_later(with_cupy):
    with_cupy()
    tree = impls.make("cupy", 10, validate=False)
    (uniforms,) = on_device(np.array([0.5]))
    for batch in (uniforms, np.array([0.5])):
        assert impls.to_numpy(tree.sample(batch)[0]).tolist() == [-1]
        with pytest.raises(RuntimeError, match="nothing to sample"):
            tree.synchronize()
    tree.update(*on_device(np.array([3]), np.array([1.0])))
    assert impls.to_numpy(tree.sample(uniforms)[0]).tolist() == [3]
    assert tree.synchronize() is None


def test_distinct_leaves_are_drawn_on_the_device(with_cupy):
    with_cupy()
    for validate in (True, False):
        tree = impls.make("cupy", 10, validate=validate)
        tree.update(*on_device(np.array([1, 2, 5]), np.array([1.0, 2.0, 3.0])))
        indices, priorities = map(impls.to_numpy, tree.sample_distinct(*on_device(np.full(3, 0.5))))
        assert (indices.tolist(), priorities.tolist()) == ([5, 2, 1], [3.0, 2.0, 1.0])
        with pytest.raises(RuntimeError, match=r"4 distinct leaves .* 3 have"):
            tree.sample_distinct(*on_device(np.full(4, 0.5)))
        assert tree.synchronize() is None
        assert (tree.total(), tree.check()) == (6.0, 0.0)


def test_no_call_waits_unless_it_is_to_raise_at_once(with_cupy, monkeypatch):
    with_cupy()
    waited = []
    monkeypatch.setattr(fake_cupy.DeviceArray, "get", lambda self: waited.append(1) or self.held.copy())
    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "deviceSynchronize", lambda: waited.append(1))
    for options, waits in (({}, 0), ({"validate": False}, 0), ({"raise_errors": "now"}, 3)):
        tree = impls.make("cupy", 10, **options)
        batch = on_device(np.array([1]), np.array([0.5]))
        waited.clear()
        tree.update(*batch)
        tree.sample(batch[1])
        tree.get(batch[0])
        assert len(waited) == waits, options


@pytest.fixture
def idle(with_cupy, monkeypatch):
    """Streams that do nothing before somebody waits for them, CuPy's and torch's; returns two of each."""
    with_cupy()
    streams = [fake_cupy.Stream(non_blocking=True) for _ in range(2)]
    monkeypatch.setattr(fake_cupy.Stream, "idle", True)
    yield streams
    for stream in (fake_cupy.LISTED[0], *streams):
        stream.waiting.clear()
    fake_cupy.KEPT.clear()


class CudaTensor(torch.Tensor):
    """A tensor on the device that is not there."""

    def get_device(self):
        return 0


def tensors(*arrays):
    made = [torch.from_numpy(np.array(array)).as_subclass(CudaTensor) for array in arrays]
    fake_cupy.KEPT.extend(made)
    return made


@pytest.fixture
def torchs(monkeypatch):
    """Makes torch work on streams of the device that is not there; returns what sets the current one."""
    current, empty = [0], torch.empty
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda number: current[number], raising=False)
    monkeypatch.setattr(
        torch, "empty", lambda size, device, **how: empty(size, **how).as_subclass(CudaTensor) if device else None
    )
    return lambda stream: current.__setitem__(0, stream.ptr)


@pytest.mark.parametrize("library", ["cupy", "torch", "both"])
def test_work_on_two_streams_is_done_in_the_order_of_the_calls(idle, torchs, library):
    (first, second), make_first = idle, on_device if library == "cupy" else tensors
    make_second = tensors if library == "torch" else on_device
    tree = impls.make("cupy", 300, fanout=4, fused=library != "torch")
    torchs(first)
    with first:
        tree.update(*make_first(np.arange(300), np.ones(300)))
        tree.update(*make_first(np.array([7, 7]), np.array([5.0, 1000.0])))
    assert len(first.waiting) > 2  # none of which has begun
    torchs(second)
    with second:
        indices, priorities = tree.sample(*make_second(np.array([0.5])))
    second.synchronize()
    held = [getattr(array, "held", array).tolist() for array in (indices, priorities)]
    assert held == [[7], [1000.0]]
    with second:
        tree.update(*make_second(np.arange(300), np.zeros(300)))
    torchs(first)
    with first:
        found = tree.get(*make_first(np.array([7])))
    first.synchronize()
    assert getattr(found, "held", found).tolist() == [0.0]


OPTIONS = [{}, {"fused": True}, {"fused": False}, {"fused": False, "propagate": "delta"}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_refused_batch_changes_nothing_and_others_do(idle, options):
    bad_numbers = [("index", -1), ("index", 5_000), ("priority", np.nan), ("priority", -1.0), ("priority", np.inf)]
    for size, (what, bad) in itertools.product((1, 31, 512, 513, 3_000), bad_numbers):
        rng = np.random.default_rng(size)
        tree, oracle = impls.make("cupy", 5_000, fanout=8, **options), Oracle(5_000)
        for is_bad in (False, True, False):
            indices, priorities = rng.integers(0, 5_000, size), rng.integers(1, 9, size).astype(float)
            at = rng.integers(size)
            if is_bad:
                (indices if what == "index" else priorities)[at] = bad
                expected = f"{what} {bad} at position {at} is outside"
            else:
                oracle.update(indices, priorities)
            tree.update(*on_device(indices, priorities))  # none has run before the next is enqueued
        with pytest.raises(IndexError if what == "index" else ValueError, match=expected):
            tree.synchronize()
        assert tree.total() == oracle.total() and tree.check() == 0.0
        assert np.array_equal(tree.state_dict()["leaves"], oracle.get(np.arange(5_000)))


def test_refused_elements_of_a_sample_are_minus_one(idle):
    tree = impls.make("cupy", 10)
    tree.update(*on_device(np.arange(10), np.ones(10)))
    indices, priorities = tree.sample(*on_device(np.array([0.05, 1.5, np.nan, 0.95])))
    gathered = tree.get(*on_device(np.array([3, 77])))
    with pytest.raises(ValueError, match=r"uniform (1.5|nan) at position (1|2) is outside \[0, 1\)"):
        tree.synchronize()
    assert (indices.held.tolist(), priorities.held.tolist()) == ([0, -1, -1, 9], [1, 0, 0, 1])
    assert gathered.held.tolist() == [1, 0]
    assert tree.synchronize() is None


def test_an_empty_tree_says_so_later_and_works_on():
    tree = impls.make("cupy", 10, emulate=True)
    assert tree.sample(np.array([0.5]))[0].tolist() == [-1]
    with pytest.raises(RuntimeError, match="nothing to sample"):
        tree.update(np.array([3]), np.array([1.0]))
    tree.update(np.array([3]), np.array([1.0]))
    assert tree.sample(np.array([0.5]))[0].tolist() == [3]
    assert tree.prefix_sum_index(np.array([1.0])).tolist() == [-1]
    with pytest.raises(ValueError, match=r"mass 1.0 at position 0 is outside \[0, 1.0\)"):
        tree.total()


# Other libraries' arrays


@pytest.mark.parametrize("strided", [False, True], ids=["", "strided"])
def test_torchs_tensors_come_in_and_go_out(monkeypatch, strided):
    kinds = zip(("int64", "int32", "int16", "uint8"), ("float64", "float32", "float16", "bfloat16"), strict=True)
    for index_type, real_type in kinds:
        tree = impls.make("cupy", 100, emulate=True)
        indices, priorities = torch.arange(0, 90, 10), torch.arange(1.0, 10.0)
        uniforms = torch.tensor([0.0, 0.5, 0.875])
        if strided:
            batches = indices, priorities, uniforms
            indices, priorities, uniforms = (torch.stack([each, each]).T.contiguous()[:, 0] for each in batches)
        indices, priorities = indices.to(getattr(torch, index_type)), priorities.to(getattr(torch, real_type))
        with monkeypatch.context() as patches:
            patches.setattr(Libraries, "copy_to_host", lambda *anything: pytest.fail("by the host"))
            tree.update(indices, priorities.requires_grad_())
            found, of_found = tree.sample(uniforms.to(getattr(torch, real_type)))
            assert (found.tolist(), of_found.tolist()) == ([0, 60, 80], [1.0, 7.0, 9.0])
            assert (found.dtype, of_found.dtype) == (torch.int64, torch.float32)
            assert torch.equal(tree.get(indices), priorities.detach().float())
            assert torch.equal(tree.prefix_sum_index(torch.tensor([44.0])), torch.tensor([80]))
    assert set(map(type, tree.sample(torch.empty(0)))) == {torch.Tensor}
    assert isinstance(tree.get(torch.tensor(10)), torch.Tensor)  # a scalar, by the host


def test_torchs_tensors_are_used_where_they_lie(idle, torchs):
    tree = impls.make("cupy", 10)
    indices, priorities = tensors(np.array([2, 3], np.int32), np.array([1.0, 1.0], np.float32))
    torchs(idle[0])
    tree.update(indices, priorities)
    priorities[1] = 3.0  # before the device has read it
    indices, found = tree.sample(*tensors(np.array([0.5])))
    assert isinstance(indices, CudaTensor) and isinstance(found, CudaTensor)
    idle[0].synchronize()
    assert tree.total() == 4.0


def test_tensors_in_host_memory_come_back_from_the_device(with_cupy, torchs):
    with_cupy()
    tree = impls.make("cupy", 10)
    tree.update(torch.tensor([2, 3]), torch.tensor([1.0, 3.0]))
    indices, priorities = tree.sample(torch.tensor([0.5]))
    assert (indices.tolist(), priorities.tolist()) == ([3], [3.0])
    with pytest.raises(ValueError, match=r"uniform 1\.0 at position 0"):
        tree.sample(torch.tensor([1.0]))


def test_tensors_of_a_torch_without_cuda_go_by_the_host(with_cupy):
    with_cupy()
    tree = impls.make("cupy", 10)
    tree.update(torch.tensor([2, 3]), torch.tensor([1.0, 3.0]))
    assert impls.to_numpy(tree.sample(torch.tensor([0.5]))[0]).tolist() == [3]


def test_tensors_whose_memory_is_negated_are_read_right():
    tree = impls.make("cupy", 10, emulate=True)
    negated = torch.imag(torch.tensor([1 - 5j]).conj())
    assert negated.is_neg()
    tree.update(torch.tensor([2]), negated)
    assert tree.total() == 5.0
    with pytest.raises((NotImplementedError, TypeError)):
        tree.sample(torch.empty(3, device="meta"))


def test_an_error_of_before_is_none_of_a_draw_beside_others(idle):
    tree, empty = impls.make("cupy", 10), impls.make("cupy", 10)
    tree.update(*on_device(np.arange(10), np.ones(10)))
    tree.synchronize()
    for draw in (lambda: tree.sample([0.5], exclude=[1]), lambda: tree.sample_distinct([0.5])):
        tree.sample(*on_device(np.array([1.5])))
        with pytest.raises(ValueError, match=r"uniform 1\.5"):
            draw()
        assert draw()[0].held.size == 1
        assert tree.total() == 10.0
    empty.sample(*on_device(np.array([0.5])))
    with pytest.raises(RuntimeError, match="nothing to sample: the total"):
        empty.sample_distinct([0.5])
    assert empty.synchronize() is None


def test_what_is_on_another_device_is_refused(with_cupy, monkeypatch):
    with_cupy()
    tree = impls.make("cupy", 10)
    (batch,) = on_device(np.array([0.5]))
    with monkeypatch.context() as patches:
        patches.setattr(sys.modules["cupy"].cuda.runtime, "getDevice", lambda: 1)
        with pytest.raises(ValueError, match=r"cuda:1 .* cuda:0.*torch\.cuda\.device\(0\)"):
            tree.total()
    monkeypatch.setattr(fake_cupy.DeviceArray, "data", SimpleNamespace(ptr=batch.data.ptr, device_id=1))
    with pytest.raises(ValueError, match="array is on cuda:1 and the tree on cuda:0"):
        tree.sample(batch)


def test_a_launch_that_fails_is_mended_by_the_next_call(monkeypatch):
    tree = impls.make("cupy", 5_000, fanout=4, fused=False, emulate=True)
    make = tree._native.make
    monkeypatch.setattr(tree._native, "make", lambda *anything: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(MemoryError):
        tree.update(np.arange(2_000), np.ones(2_000))
    monkeypatch.setattr(tree._native, "make", make)
    claim = tree._kernels.pop("claim_leaves")
    with pytest.raises(KeyError):
        tree.update(np.array([1, 2]), np.array([1.0, np.nan]))  # inspected, and not claimed
    tree._kernels["claim_leaves"] = claim
    with pytest.raises(ValueError, match="nan at position 1"):
        tree.total()
    rebuilt = []
    rebuild = tree._rebuild
    monkeypatch.setattr(tree, "_rebuild", lambda: (rebuilt.append(1), rebuild()))
    for _ in range(3):
        tree.get(np.arange(5))
    assert len(rebuilt) == 1
    tree.update(np.arange(2_000), np.ones(2_000))
    assert (tree.total(), tree.check()) == (2_000.0, 0.0)


def test_arrays_of_other_libraries_are_seen_without_a_copy(with_cupy, monkeypatch):
    with_cupy()
    tree = impls.make("cupy", 10)

    class Foreign:
        def __init__(self, held):
            self.held = held
            self.__cuda_array_interface__ = held.__array_interface__

    see = sys.modules["cupy"].asarray
    monkeypatch.setattr(sys.modules["cupy"], "asarray", lambda array: see(getattr(array, "held", array)))
    tree.update(Foreign(np.array([2, 3])), Foreign(np.array([1.0, 3.0])))
    tree.update(*on_device(np.array([4])), Foreign(np.array([1])))  # by the host, for its numbers are integers
    assert tree.total() == 5.0
    assert isinstance(tree.get(Foreign(np.array([3]))), fake_cupy.DeviceArray)


# Under way


def test_an_update_leaves_its_claims_and_counters_at_zero():
    for fused in (True, False):
        rng = np.random.default_rng(1)
        tree = impls.make("cupy", 5_000, fanout=4, fused=fused, emulate=True)
        for batch in (1, 31, 512, 3_000):
            tree.update(rng.integers(0, 5_000, batch), rng.random(batch))
            assert not tree._claims.any()
            assert not tree._pending.any()


def test_one_scalar_is_of_all_and_numpys_input_is_converted(with_cupy):
    with_cupy()
    for scalar, validate in itertools.product((2, 2.0, np.float32(2), np.float64(2)), (True, False)):
        tree = impls.make("cupy", 10, validate=validate)
        tree.update(*on_device(np.array([1, 4])), scalar)
        assert (tree.total(), tree.check()) == (4.0, 0.0)
    with pytest.raises(ValueError, match="nan"):
        impls.make("cupy", 10).update(*on_device(np.empty(0, np.int64)), float("nan"))
    tree.update(np.array([1, 4], np.int32), np.array([1.0, 2.0], np.float32))  # unchecked
    assert impls.to_numpy(tree.get(np.array([4, 1], np.uint8))).tolist() == [2.0, 1.0]
