"""The GPU tree from outside: what it says without a device, and its road through CuPy, which a stand-in paves."""

import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import impls
from impls.sumtree.cuda import emulation
from impls.sumtree.cuda.program import Constants
from impls.sumtree.oracle import Oracle
from tests import fake_cupy
from tests.contestants import placing, walk
from tests.nursery import run_python

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


# Settings


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
        walk(placing(tree) if placed else tree, seed=4, steps=60, integers=False, exact="propagate" not in options)


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


OPTIONS = [{"fused": True}, {"fused": False, "propagate": "delta"}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_refused_batch_changes_nothing_and_others_do(idle, options):
    bad_numbers = [("index", -1), ("index", 5_000), ("priority", np.nan), ("priority", -1.0), ("priority", np.inf)]
    for size, (what, bad) in itertools.product((1, 513, 3_000), bad_numbers):
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


# Other libraries' arrays


def test_tensors_whose_memory_is_negated_are_read_right():
    tree = impls.make("cupy", 10, emulate=True)
    tree.update(torch.tensor([2]), torch.imag(torch.tensor([1 - 5j]).conj()))
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
