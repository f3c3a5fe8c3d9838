"""What only the compiled tree has: threads, sums added at once, a cache on disk, vector code for other processors."""

import ctypes
import itertools
import os
import pickle
import platform
import threading
import time

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_array_equal

import impls
from tests.nursery import run_python

numba = pytest.importorskip("numba", reason="the numba tree needs numba")
from impls.sumtree import numba_turns  # noqa: E402
from impls.sumtree.kernels import header, searching  # noqa: E402  # with numba

LAYOUTS = ("prefix", "plain")


def ones(capacity, **options):
    """A tree that two threads share, every leaf 1."""
    tree = impls.make("numba", capacity, threads=2, **options)
    tree.update(np.arange(capacity), 1.0)
    return tree


# Threads that share a batch


def test_threads_give_equal_bits():
    for layout, propagate in zip(LAYOUTS, ("recompute", "delta"), strict=True):
        rng, options = default_rng(0), {"layout": layout, "propagate": propagate}
        trees = [impls.make("numba", 20_000, threads=threads, **options) for threads in (1, 2, 3)]
        for batch in (1, 700, 8_192, 20_001):
            indices, values = rng.integers(0, 20_000, batch), rng.random(batch)
            indices[batch // 2 :] = indices[0]  # duplicates
            uniforms = rng.random(batch)
            results = set()
            for tree in trees:
                tree.update(indices, values)
                arrays = tree._leaves, *tree._arrays, *tree.sample(uniforms)
                results.add(b"".join(array.tobytes() for array in arrays))
            assert len(results) == 1, (options, batch)


def test_more_threads_than_machines_have_are_refused(monkeypatch):
    most = 4 * os.cpu_count()
    assert impls.make("numba", 10, threads=most).threads == most
    for threads in (most + 1, 10**6):
        with pytest.raises(ValueError, match=rf"threads must be at most {most} .* not {threads}"):
            impls.make("numba", 10, threads=threads)
    tree = impls.make("numba", 10, threads=3)
    tree.update(3, 2.0)
    pickled = pickle.dumps(tree)
    monkeypatch.setattr(type(tree), "_most_threads", classmethod(lambda kind: 2))
    twin = pickle.loads(pickled)  # of a larger machine
    assert (twin.threads, twin.total()) == (2, 2.0)


def test_a_bad_value_in_any_thread_is_refused():
    tree = ones(100)
    for position in (0, 12_600, 19_999):
        uniforms = np.full(20_000, 0.5)
        uniforms[position] = 1.0
        with pytest.raises(ValueError, match=f"uniform 1.0 at position {position} "):
            tree.sample(uniforms)


class Silent:
    """A helper that claims chunks and never ends one, as if it had lost its core; or that never comes."""

    def __init__(self, chunks):
        self._chunks, self._thread = chunks, None

    def ask(self, owner, kernel, address, *arguments):
        ticket = ctypes.c_int64.from_address(address)

        def claim():
            end = time.monotonic() + 60
            while ticket.value < 0 and time.monotonic() < end:
                pass
            ticket.value += self._chunks

        if self._chunks:
            self._thread = threading.Thread(target=claim)
            self._thread.start()

    def end(self, helpers):
        if self._thread:
            self._thread.join()
        helpers._room[searching.ENDED] = 1


@pytest.mark.parametrize("chunks", [0, 1, 40])
def test_chunks_of_a_helper_that_is_late_are_taken_back(chunks):
    rng = default_rng(0)
    tree, twin = (impls.make("numba", 1_000_000, threads=threads) for threads in (2, 1))
    for each in (tree, twin):
        each.update(np.arange(1_000_000), default_rng(0).random(1_000_000))
    helpers = numba_turns.Helpers()
    for batch in (8_192, 500_001):
        values, silent = rng.random(batch), Silent(chunks)
        helpers._all = [silent]
        answer = np.empty(batch, np.int64), np.empty(batch, np.float32)
        kernels = tree._shared_search_kernel, tree._help_kernel
        assert helpers.search(1, tree, *kernels, values, True, *answer) == header.DONE
        assert helpers.search(1, tree, *kernels, values, True, *answer) == header.BUSY  # the helper is late
        assert not helpers._turn.locked()
        silent.end(helpers)
        expected = twin.sample(values)
        assert_array_equal(answer[0], expected[0])
        assert_array_equal(answer[1], expected[1])


def test_helpers_take_part_and_all_of_a_batch_is_searched_once():
    tree = ones(1_000_000)
    values = default_rng(0).random(1_000_000)
    expected = np.floor(values * 1_000_000).astype(np.int64)
    helpers, answer = numba_turns.Helpers(), (np.empty(1_000_000, np.int64), np.empty(1_000_000, np.float32))
    kernels, took_part = (tree._shared_search_kernel, tree._help_kernel), False
    for _ in range(50):
        while helpers._room[searching.ENDED] < helpers._asked:
            time.sleep(1e-3)
        for found in helpers._found.values():
            found[0][:] = -1
        assert helpers.search(1, tree, *kernels, values, True, *answer) == header.DONE
        assert_array_equal(answer[0], expected)
        took_part |= bool((helpers._found[np.dtype(np.float32)][0] >= 0).any())
    assert took_part


def test_a_shared_search_beside_a_change_does_not_count():
    tree, index = ones(1_000), np.empty(1, np.int64)
    room, priorities = np.zeros(searching.room_of(1), np.int64), np.empty(1, np.float32)
    sequence = tree._header[header.SEQUENCE :][:1]  # where the leaf is written, as if an update had ended
    taken = np.full(1, 0.5), True, sequence, priorities, index, priorities
    assert tree._shared_search_kernel(int(room.ctypes.data), *taken) == header.BUSY
    assert sequence[0] == 500


def test_a_call_that_is_interrupted_leaves_helpers_to_the_next(monkeypatch):
    tree = ones(1_000)
    values = np.full(20_000, 0.5)
    tree.sample(values)
    before = numba_turns.helpers

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(numba_turns.Helper, "ask", lambda self, *job: interrupt() if job else None)
        numba_turns.helpers._asked = 0
        before.search(1, tree, tree._shared_search_kernel, tree._help_kernel, values, True, *tree.sample(values[:1]))
    assert numba_turns.helpers is not before
    answer = np.empty(20_000, np.int64), np.empty(20_000, np.float32)
    kernels = tree._shared_search_kernel, tree._help_kernel
    assert numba_turns.helpers.search(1, tree, *kernels, values, True, *answer) == header.DONE
    assert (answer[0] == 500).all()


def test_where_no_thread_can_be_started_the_caller_searches(monkeypatch):
    tree = ones(1_000)

    def refuse(*_):
        raise RuntimeError("can't start new thread")

    for batch in (1, 20_000):  # compiled, which takes a thread
        tree.sample(np.full(batch, 0.5))
    monkeypatch.setattr(numba_turns, "helpers", numba_turns.Helpers())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(3):
        assert (tree.sample(np.full(20_000, 0.5))[0] == 500).all()


def test_sharing_stops_where_it_is_slower_and_is_tried_again():
    sharing, shared = numba_turns.Sharing(), []
    for seconds in (1.95, 1.0):  # of an element of a shared batch; alone it takes 2
        for _ in range(3_000):
            shared.append(sharing.is_worth_it())
            sharing.add(shared[-1], seconds if shared[-1] else 2.0)
    assert np.mean(shared[1_000:3_000]) == pytest.approx(0.02, abs=0.005)
    assert np.mean(shared[5_000:]) == pytest.approx(0.98, abs=0.005)


# Updates that several threads share: leaves in order, sums by additions at once for every thread

KINDS = [{"minimum": True}, {"fanout": 7, "layout": "plain", "dtype": "float64"}, {"fanout": 64, "dtype": "float64"}]


def shared(capacity, threads=2, **options):
    """A tree whose large updates are shared whenever a helper comes."""
    tree = impls.make("numba", capacity, propagate="atomic", threads=threads, **options)
    tree._update_sharing.is_worth_it = lambda: True
    return tree


def bits(tree):
    return [array.tobytes() for array in (*tree._arrays, *tree._minima)]


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("capacity", [1, 70_000])
def test_sums_of_atomic_updates_are_those_of_recompute(options, capacity):
    rng, leaves = default_rng(0), np.zeros(capacity)
    twin, trees = impls.make("numba", capacity, **options), [shared(capacity, count, **options) for count in (1, 2, 4)]
    for batch in (1, 8_191, 8_192, 8_193, 70_000, 8_192):
        indices, values = rng.integers(0, capacity, batch), rng.integers(0, 1_000, batch).astype(float)
        indices[batch // 2 :: 3] = indices[0]
        leaves[indices] = values  # the last of equal indices wins
        for tree in (twin, *trees):
            tree.update(indices, values)
            assert_array_equal(tree.get(np.arange(capacity)), leaves)
            assert bits(tree) == bits(twin)
    for tree in (twin, *trees):
        tree.update(indices, 10.0 ** -default_rng(1).uniform(0, 6, indices.size))
        assert_array_equal(tree._leaves, twin._leaves)
        assert tree.check() < 1e-12 * leaves.sum()
        assert tree.check() > 0 or tree is twin or capacity < 70_000 or tree.dtype == "float32"
        tree.rebuild()
        assert bits(tree) == bits(twin)
    for tree in trees:
        tree.update(np.arange(capacity), 0.0)
        with pytest.raises(RuntimeError, match="nothing to sample"):
            tree.sample(0.5)


def test_threads_that_add_to_the_same_sums_lose_nothing():
    """Each of a million changes meets those of other threads, at the root at the latest."""
    tree, rng, helpers = shared(1 << 20, layout="plain"), default_rng(0), numba_turns.Helpers()
    kernels, room = (tree._atomic_kernel, tree._help_update_kernel), np.empty(3 << 20, np.int64)
    for _ in range(8):
        values = rng.integers(0, 1_000, 1 << 20).astype(float)
        assert helpers.update(3, tree, *kernels, np.arange(1 << 20), values, room) == header.DONE
        assert (tree.total(), tree.check()) == (values.sum(), 0.0)
        while helpers._room[searching.ENDED] < 3:
            time.sleep(1e-3)


# Sums


def test_node_sums_are_the_leaves_own_added_by_numpy():
    """check() sums with the kernels that wrote the sums; this does not. Small batches take the update's other path."""
    shapes = (5_000, 20_000), (5_000, 40), (300_000, 60), (300_000, 1)
    for layout, (capacity, batch) in itertools.product(LAYOUTS, shapes):
        rng = default_rng(0)
        tree = impls.make("numba", capacity, fanout=10, layout=layout)
        for _ in range(8):
            indices = rng.integers(0, capacity, batch)
            indices[::7] = indices[0]  # a leaf, hence a group, again and again
            tree.update(indices, rng.integers(0, 9, batch).astype(float))
        width, height = tree._lanes * tree._chunks, tree.height
        below = tree._leaves.reshape(-1, width)
        for level in range(1, height + 1):
            sums = below.astype(float).sum(axis=1)
            rows = tree._arrays[level].reshape(-1, width)
            assert np.array_equal(rows[:, :10].reshape(-1)[: sums.size], sums)
            if layout == "prefix" and level < height:
                prefixes = tree._arrays[height + level].reshape(-1, width)
                assert np.array_equal(prefixes[:, 0], rows.sum(axis=1))
                assert np.array_equal(prefixes[:, 1:], rows.cumsum(axis=1)[:, :-1])
            below = rows


def test_a_groups_sum_counts_leaves_set_long_after_others():
    tree, rng = impls.make("numba", 100_000, fanout=64, dtype="float64"), default_rng(0)
    for leaves in (np.arange(100_000), np.arange(6_400, 6_464)):  # all groups, and one
        tree.update(leaves, rng.random(leaves.size))
        assert tree.total() == pytest.approx(tree.get(np.arange(100_000)).sum())
        assert tree.check() == 0.0  # by kernels that add in the order of the search


def test_check_audits_every_stored_sum_and_rebuild_mends_it():
    for layout in LAYOUTS:
        tree = impls.make("numba", 1_000, layout=layout)
        tree.update(np.arange(1_000), np.arange(1_000.0) % 7 + 1)
        sound = [array.copy() for array in tree._arrays]
        for array, kept in zip(tree._arrays[1:], sound[1:], strict=True):
            for lane in (0, np.flatnonzero(array)[-1]):
                array[lane] += 0.5
                assert tree.check() == pytest.approx(0.5)
                tree.rebuild()
                assert np.array_equal(array, kept)
                assert tree.check() == 0.0


def test_rows_lie_on_cache_lines_or_deliberately_not():
    for fanout, dtype, aligned in itertools.product((2, 3, 16, 20, 100), ("float32", "float64"), (None, True, False)):
        tree = impls.make("numba", 5_000, fanout=fanout, dtype=dtype, aligned=aligned)
        shift = 0 if aligned is not False else 1
        for array in tree._arrays:
            assert array.ctypes.data % 64 == shift * array.itemsize
        row_bytes = tree._lanes * tree._chunks * tree.dtype.itemsize
        assert 64 % row_bytes == 0 or row_bytes % 64 == 0
    assert impls.make("numba", 2**20).nbytes < 1.6 * 4 * 2**20


# Processes

USE = """
import impls, numpy as np
from impls.sumtree.kernels import auditing, header, lending, searching, updating
tree = impls.make("numba", 9000, threads=2)
tree.update(np.arange(3000), np.arange(3000.0))
tree.sample(np.full(1, 0.5)); tree.sample(np.full(9000, 0.5)); tree.sample_distinct(np.full(2, 0.5))
tree.prefix_sum_index(5.0); tree.get(7); tree.check(); tree.rebuild(); tree.total()
impls.make("numba", 9000, propagate="delta").update(5, 1.0)
modules = auditing, header, lending, searching, updating
kernels = {kernel for module in modules for kernel in vars(module).values() if hasattr(kernel, "stats")}
print(sum(sum(k.stats.cache_hits.values()) for k in kernels), sum(sum(k.stats.cache_misses.values()) for k in kernels))
"""


def test_a_second_process_compiles_nothing():
    run_python("-c", USE)
    hits, misses = map(int, run_python("-c", USE).stdout.split())
    assert (hits > 7, misses) == (True, 0)


WALK = """
import impls
from tests.contestants import walk
for fanout, layout in TREES:
    walk(impls.make("numba", 700, fanout=fanout, layout=layout), seed=1, steps=40, integers=True, exact=True)
print("walked")
"""
HASWELL, SSE2 = ("haswell", "+avx2,+fma,+bmi,+bmi2,+popcnt"), ("x86-64", "+sse2")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="targets are x86-64")
@pytest.mark.parametrize(
    ("processor", "trees"),
    [
        (SSE2, [(7, "prefix")]),
        pytest.param(SSE2, [(64, "prefix"), (16, "plain")], marks=pytest.mark.slow),
        pytest.param(HASWELL, [(7, "prefix"), (64, "prefix"), (16, "plain")], marks=pytest.mark.slow),
    ],
    ids=["sse2", "sse2 wide", "haswell"],
)
def test_processors_without_avx512(processor, trees):
    environment = dict(zip(("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"), processor, strict=True))
    assert run_python("-c", WALK.replace("TREES", repr(trees)), **environment).stdout.strip() == "walked"
