"""What only the compiled tree has: threads, a cache on disk, and vector code for other processors."""

import copy
import ctypes
import os
import pickle
import platform
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_array_equal

import impls
from tests.committed import ROOT
from tests.nursery import run_python

numba = pytest.importorskip("numba", reason="the numba tree needs numba")
from impls.sumtree import numba_turns  # noqa: E402
from impls.sumtree.kernels import header, searching  # noqa: E402  # with numba


def run(code, folder=ROOT, **environment):
    return run_python("-c", code, folder=folder, **environment).stdout


@pytest.mark.parametrize("layout", ["prefix", "plain"])
@pytest.mark.parametrize("propagate", ["recompute", "delta"])
def test_threads_give_equal_bits(layout, propagate):
    rng = default_rng(0)
    one, two, three = (
        impls.make("numba", 20_000, threads=threads, layout=layout, propagate=propagate) for threads in (1, 2, 3)
    )
    for batch in (1, 700, 8_192, 20_001):
        indices, values = rng.integers(0, 20_000, batch), rng.random(batch)
        indices[batch // 2 :] = indices[0]  # duplicates
        uniforms = rng.random(batch)
        results = []
        for tree in (one, two, three):
            tree.update(indices, values)
            results.append([tree._leaves.tobytes(), *map(bytes, tree._arrays), *map(bytes, tree.sample(uniforms))])
        assert results[0] == results[1] == results[2]


def test_a_batch_is_shared_by_as_many_threads_as_its_class_says(monkeypatch):
    kind, asked = impls.traits("numba"), []
    tree = impls.make("numba", 100, threads=3)
    tree.update(0, 1.0)
    search = numba_turns.helpers.search
    monkeypatch.setattr(
        numba_turns.helpers, "search", lambda count, *more: asked.append(count + 1) or search(count, *more)
    )
    monkeypatch.setattr(kind, "most_shared", 9_000)
    for batch in (kind.least_shared - 1, kind.least_shared, 9_001):
        asked.clear()
        monkeypatch.setattr(tree, "_sharing", numba_turns.Sharing())  # which shares the first
        assert set(tree.sample(np.full(batch, 0.5))[0]) == {0}
        assert (asked or [1]) == [kind.threads_used(batch, 3)]
    assert [kind.threads_used(batch, 3) for batch in (8_191, 8_192, 9_001)] == [1, 3, 1]
    assert kind.threads_used(kind.least_shared, 10**6) * searching.CHUNK == kind.least_shared


def test_more_threads_than_any_machine_of_this_size_has_are_refused():
    most = 4 * os.cpu_count()
    assert impls.make("numba", 10, threads=most).threads == most
    for threads in (most + 1, 10**6):
        with pytest.raises(ValueError, match=rf"threads must be at most {most} .* not {threads}"):
            impls.make("numba", 10, threads=threads)


def test_a_pickle_of_a_larger_machine_gets_the_threads_there_are(monkeypatch):
    tree = impls.make("numba", 10, threads=3)
    tree.update(3, 2.0)
    pickled = pickle.dumps(tree)
    monkeypatch.setattr(type(tree), "_most_threads", classmethod(lambda kind: 2))
    twin = pickle.loads(pickled)
    assert (twin.threads, twin.total()) == (2, 2.0)


def test_a_bad_value_in_any_thread_is_refused():
    tree = impls.make("numba", 100, threads=2)
    tree.update(np.arange(100), 1.0)
    uniforms = np.full(20_000, 0.5)
    for position in (0, 12_600, 19_999):
        bad = uniforms.copy()
        bad[position] = 1.0
        with pytest.raises(ValueError, match=f"uniform 1.0 at position {position} "):
            tree.sample(bad)


def test_python_threads_may_sample_one_tree_together():
    tree = impls.make("numba", 10_000, threads=2)
    tree.update(np.arange(10_000), default_rng(0).random(10_000))
    uniforms = default_rng(1).random(16_000)
    expected = tree.sample(uniforms)[0]
    with ThreadPoolExecutor(4) as pool:
        for sampled in pool.map(lambda _: [tree.sample(uniforms)[0] for _ in range(50)], range(4)):
            assert_array_equal(sampled, np.broadcast_to(expected, (50, 16_000)))


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
    for one in (tree, twin):
        one.update(np.arange(1_000_000), default_rng(0).random(1_000_000))
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
    tree = impls.make("numba", 1_000_000, threads=2)
    tree.update(np.arange(1_000_000), 1.0)
    values = default_rng(0).random(2_000_000)
    expected = np.floor(values * 1_000_000).astype(np.int64)
    helpers, answer = numba_turns.Helpers(), (np.empty(2_000_000, np.int64), np.empty(2_000_000, np.float32))
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


def test_a_shared_search_of_a_tree_that_changed_meanwhile_does_not_count():
    tree, one = impls.make("numba", 1_000, threads=2), np.empty(1, np.int64)
    tree.update(np.arange(1_000), 1.0)
    room, priorities = np.zeros(searching.room_of(1), np.int64), np.empty(1, np.float32)
    sequence = tree._header[header.SEQUENCE :][:1]  # where the leaf is written, as if an update had ended
    taken = np.full(1, 0.5), True, sequence, priorities, one, priorities
    assert tree._shared_search_kernel(int(room.ctypes.data), *taken) == header.BUSY
    assert sequence[0] == 500


def test_a_call_that_is_interrupted_leaves_helpers_to_the_next(monkeypatch):
    tree = impls.make("numba", 1_000, threads=2)
    tree.update(np.arange(1_000), 1.0)
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


def test_where_no_thread_can_be_started_the_caller_searches_alone(monkeypatch):
    tree = impls.make("numba", 1_000, threads=2)
    tree.update(np.arange(1_000), 1.0)

    def refuse(*_):
        raise RuntimeError("can't start new thread")

    for batch in (1, 20_000):  # compiled, which takes a thread
        tree.sample(np.full(batch, 0.5))
    monkeypatch.setattr(numba_turns, "helpers", numba_turns.Helpers())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(3):
        assert (tree.sample(np.full(20_000, 0.5))[0] == 500).all()


def test_sharing_stops_where_it_is_slower_and_is_tried_again_now_and_then():
    sharing, shared = numba_turns.Sharing(), []
    for seconds in (1.95, 1.0):  # of an element of a shared batch; alone it takes 2
        for _ in range(3_000):
            shared.append(sharing.is_worth_it())
            sharing.add(shared[-1], seconds if shared[-1] else 2.0)
    assert np.mean(shared[1_000:3_000]) == pytest.approx(0.02, abs=0.005)
    assert np.mean(shared[5_000:]) == pytest.approx(0.98, abs=0.005)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_forked_beside_a_shared_search_shares_its_own():
    code = """
import os, signal, threading, warnings
import impls, numpy as np
warnings.simplefilter("ignore")  # Python 3.12 warns of forking beside threads, which is the point here
tree = impls.make("numba", 1000, threads=2)
tree.update(np.arange(1000), 1.0)
uniforms = np.full(400_000, 0.5)
tree.sample(uniforms)
busy = threading.Thread(target=lambda: [tree.sample(uniforms) for _ in range(200)])
busy.start()
codes = set()
for _ in range(5):
    if (child := os.fork()) == 0:
        signal.alarm(20)
        is_right = all((tree.sample(uniforms)[0] == 500).all() for _ in range(20))
        os._exit(7 if is_right else 9)
    codes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
busy.join()
print(codes)
"""
    assert run(code).strip() == "{7}"


@pytest.mark.parametrize("layout", ["prefix", "plain"])
@pytest.mark.parametrize(("capacity", "batch"), [(5_000, 20_000), (5_000, 40), (300_000, 60), (300_000, 1)])
def test_node_sums_are_the_leaves_own_added_by_numpy(layout, capacity, batch):
    """check() sums with the kernels that wrote the sums; this does not. Small batches take the update's other path."""
    rng = default_rng(0)
    tree = impls.make("numba", capacity, fanout=10, layout=layout)
    for _ in range(20):
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


@pytest.mark.parametrize("layout", ["prefix", "plain"])
def test_check_audits_every_stored_sum_and_rebuild_mends_it(layout):
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
    run(USE)
    hits, misses = map(int, run(USE).split())
    assert (hits > 7, misses) == (True, 0)


def test_without_the_compiler_there_is_a_reason():
    code = "import impls; print(impls.why_not('numba'))"
    sentence = "Implementation 'numba' is compiled, and NUMBA_DISABLE_JIT is set."
    assert run(code, NUMBA_DISABLE_JIT="1").strip() == sentence


WALK = """
import impls
from tests.walk import walk
for fanout, layout in TREES:
    walk(impls.make("numba", 700, fanout=fanout, layout=layout), seed=1, steps=40, integers=True, exact=True)
print("walked")
"""
EVERY_WIDTH = ((7, "prefix"), (64, "prefix"), (16, "plain"))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="targets are x86-64")
@pytest.mark.parametrize(
    ("cpu", "features", "trees"),
    [
        ("haswell", "+avx2,+fma,+bmi,+bmi2,+popcnt", [(7, "prefix")]),
        ("x86-64", "+sse2", [(7, "prefix")]),
        pytest.param("haswell", "+avx2,+fma,+bmi,+bmi2,+popcnt", EVERY_WIDTH, marks=pytest.mark.slow),
        pytest.param("x86-64", "+sse2", EVERY_WIDTH, marks=pytest.mark.slow),
    ],
)
def test_processors_without_avx512(cpu, features, trees):
    environment = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}
    assert run(WALK.replace("TREES", repr(trees)), **environment).strip() == "walked"


@pytest.mark.parametrize("fanout", [2, 3, 16, 20, 100])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("aligned", [None, True, False])
def test_rows_lie_on_cache_lines_or_deliberately_not(fanout, dtype, aligned):
    tree = impls.make("numba", 5_000, fanout=fanout, dtype=dtype, aligned=aligned)
    shift = 0 if aligned is not False else 1
    for array in tree._arrays:
        assert array.ctypes.data % 64 == shift * array.itemsize
    row_bytes = tree._lanes * tree._chunks * tree.dtype.itemsize
    assert 64 % row_bytes == 0 or row_bytes % 64 == 0


def test_memory_is_close_to_what_the_leaves_need():
    tree = impls.make("numba", 2**20)
    assert tree.nbytes < 1.6 * 4 * 2**20


def test_a_copy_has_memory_of_its_own():
    tree = impls.make("numba", 100, layout="plain", aligned=False)
    tree.update(np.arange(100), 1.0)
    twin = copy.copy(tree)
    tree.update(np.arange(100), 2.0)
    assert (tree.total(), twin.total()) == (200.0, 100.0)
