"""Threads: no use of one tree from many threads, or by a signal handler, crashes it, tears it or waits for ever.

What may crash runs in a process of its own. ``hammer`` is what most of these run: all leaves of a block are always set
together, to one whole number, so whoever sees two different ones in it, or a sum that is off at all, has seen a tree in
the middle of a call.
"""

import contextlib
import copy
import functools
import itertools
import os
import pickle
import signal
import sys
import threading
import time
import traceback

import numpy as np
import pytest

import impls
from impls.sumtree.contract import READS
from impls.sumtree.registry import options_of
from tests.contestants import NAMES, make
from tests.nursery import Nursery, run_python

DELTA, UNCHECKED, LEAST = {"propagate": "delta"}, {"validate": False}, {"minimum": True}
VARIANTS = {
    "numba": [{}, {"threads": 2, "propagate": "atomic"}, DELTA, {"layout": "plain"}, UNCHECKED, {"threads": 2}, LEAST],
    "numpy": [{}, DELTA, UNCHECKED, LEAST],
    "python": [{}, DELTA, LEAST],
    "cupy": [{}, DELTA],
}
OPERATIONS = ("update", "sample", "get", "total", "check", "state_dict")
PAIRS = [
    *itertools.combinations_with_replacement(OPERATIONS, 2),
    *((other, "update") for other in ("prefix_sum_index", "sample_distinct", "rebuild", "load_state_dict")),
    *((other, "sample_distinct") for other in ("sample", "get", "total", "check", "sample_distinct")),
    *((other, "update") for other in ("min", "prefix_sum", "range_sum", "search_left", "sample_without")),
    *((other, "sample_without") for other in ("sample", "min", "check", "state_dict", "sample_without")),
]
FIRST, LOADED, WRITTEN = 1.0, 4.0, (2.0, 3.0)
VALUES = {FIRST, LOADED, *WRITTEN}
NURSERIES = {}

every_name = pytest.mark.parametrize("name", NAMES)
needs_numba = pytest.mark.skipif("numba" not in NAMES, reason="needs numba")
needs_timer = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timer")


def in_a_process(test):
    """The test, in a process of its own that ends with it."""

    @functools.wraps(test)
    def run(**arguments):
        alone(test.__module__, f"{test.__name__}.__wrapped__(**{arguments!r})", seconds=120)

    return run


def alone(module, call, seconds=600, **environment):
    """Run ``call``, an expression that may use a module's names, in a process of its own."""
    if not environment:
        nursery = NURSERIES.setdefault(module, Nursery(module))
        return nursery.run(call, seconds)
    # A process that a shell started in the background ignores Ctrl-C, and so would this one.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heed}; from {module} import *; {call}"
    return run_python("-W", "ignore", "-c", code, seconds=seconds, **environment).stdout


def block(capacity):
    return np.arange(64) * (capacity // 64)


def uniform(leaves):
    """Whether all of a block were set together."""
    return leaves.min() == leaves.max() and float(leaves[0]) in VALUES


def filled(name, capacity, options):
    tree = make(name, capacity, **options)
    tree.update(np.arange(capacity), np.full(capacity, FIRST))
    return tree


def operation(tree, op, seed):
    """A call of ``op`` that fails if what it sees is not a whole tree."""
    rng, capacity, where = np.random.default_rng(seed), tree.capacity, block(tree.capacity)
    masses, state = np.sort(capacity * rng.random(64)), {**tree.state_dict(), "leaves": np.full(capacity, LOADED)}
    draws = rng.random(tree.least_shared if tree.threads > 1 else 64)  # a batch that threads share
    beside = np.stack([where, where + 1], 1).reshape(-1)
    most = 160 if tree.threads > 1 else 40  # now and then a batch that scratch must grow for, or threads share

    def update():
        batch = np.tile(where, rng.choice([1, 1, 1, most]))
        tree.update(batch, np.full(batch.size, rng.choice(WRITTEN)))

    def drawn(indices, priorities, without=()):
        """Indices of leaves of a whole tree, none of which is left out."""
        assert ((indices >= 0) & (indices < capacity)).all() and not np.isin(indices, without).any()
        assert set(priorities.tolist()) <= VALUES
        return indices

    def sees(fact):
        assert fact, op

    known = impls.to_numpy
    calls = {
        "update": update,
        "rebuild": tree.rebuild,
        "load_state_dict": lambda: tree.load_state_dict(state),
        "sample": lambda: drawn(*map(known, tree.sample(draws))),
        "sample_without": lambda: drawn(*map(known, tree.sample(draws, where[:32])), without=where[:32]),
        "sample_distinct": lambda: sees(len({*drawn(*map(known, tree.sample_distinct(draws[:16]))).tolist()}) == 16),
        "prefix_sum_index": lambda: sees((np.diff(known(tree.prefix_sum_index(masses))) >= 0).all()),
        "search_left": lambda: sees((np.diff(known(tree.prefix_sum_index(masses, side="left"))) >= 0).all()),
        "prefix_sum": lambda: sees(uniform(np.diff(known(tree.prefix_sum(beside)))[::2])),
        "range_sum": lambda: sees(uniform(known(tree.range_sum(where, where + 1)))),
        "min": lambda: sees(tree.min() in VALUES),
        "get": lambda: sees(uniform(tree.get(where))),
        "total": lambda: sees((total := tree.total()) >= capacity and total % 1 == 0),
        "check": lambda: sees(tree.check() == 0.0),
        "state_dict": lambda: sees(uniform(tree.state_dict()["leaves"][where])),
    }
    return calls[op]


def call_or_exit(call):
    """Call; where that fails, print why and end the process with exit code 1."""
    try:
        call()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


@contextlib.contextmanager
def running(calls):
    """Each call over and over on a thread of its own; the process ends with 1 if one of them fails."""
    stop = threading.Event()

    def work(call):
        while not stop.is_set():
            call_or_exit(call)

    workers = [threading.Thread(target=work, args=(call,)) for call in calls]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def assert_whole(tree):
    leaves = tree.get(np.arange(tree.capacity))
    assert tree.check() == 0.0
    assert tree.total() == leaves.sum(dtype=np.float64)
    assert set(leaves.tolist()) <= VALUES
    assert uniform(leaves[block(tree.capacity)])


# Words of the compiled tree


def test_a_writer_waits_for_readers_and_for_writers():
    header = pytest.importorskip("impls.sumtree.kernels.header")
    tree = filled("numba", 640, {})
    where, values, answers = np.arange(1), np.full(1, 9.0), (np.empty(1, np.int64), np.empty(1, np.float32))
    lock, sequence = tree._header[header.LOCK :], tree._header[header.SEQUENCE :]
    for held, changing, written, sampled in (
        (0, 0, header.DONE, header.DONE),
        (1, 0, header.BUSY, header.DONE),
        (1, 1, header.BUSY, header.DONE),
        (header.WRITES, 1, header.BUSY, header.BUSY),
        (header.CLOSED, 1, header.BUSY, header.BUSY),
        (header.WRITES, 0, header.BUSY, header.DONE),  # which has yet to change the tree
        (header.CLOSED, 0, header.BUSY, header.DONE),
    ):
        tree.update(0, FIRST)
        lock[0] = held
        sequence[0] += changing
        assert tree._update_kernel(where, values, tree._scratch) == written
        assert tree._search_kernel(np.zeros(1), True, *answers) == sampled
        assert tree._gather_kernel(where, answers[1]) == sampled
        assert lock[0] == held
        lock[0] = 0
        sequence[0] += changing
        assert tree.get(0) == (9.0 if written == header.DONE else FIRST)


def test_the_sequence_is_odd_while_an_update_is_under_way():
    header = pytest.importorskip("impls.sumtree.kernels.header")
    tree = filled("numba", 640, {})
    sequence = tree._header[header.SEQUENCE :]
    before, seen = int(sequence[0]), set()
    assert before % 2 == 0
    where, values = np.tile(np.arange(640), 1_500), np.full(960_000, FIRST)
    for rounds in range(1, 20):
        worker = threading.Thread(target=tree.update, args=(where, values))
        worker.start()
        while worker.is_alive():
            seen.add(int(sequence[0]))
        assert sequence[0] == before + 2 * rounds
        if before + 2 * rounds - 1 in seen:
            break
    assert any(value % 2 for value in seen)
    with pytest.raises(ValueError, match="nan"):
        tree.update([1, 2], [1.0, np.nan])
    assert sequence[0] == before + 2 * rounds


def test_what_a_search_read_beside_a_change_does_not_count():
    header = pytest.importorskip("impls.sumtree.kernels.header")
    tree = filled("numba", 640, {})
    uniforms, statuses = np.random.default_rng(0).random(1_000_000), []
    answers = np.empty(uniforms.size, np.int64), np.empty(uniforms.size, np.float32)
    tree.sample(uniforms[:1])  # compiled before
    lock, sequence = tree._header[header.LOCK :], tree._header[header.SEQUENCE :]
    lock[0] = header.WRITES  # so that the search cannot have a turn
    worker = threading.Thread(target=lambda: statuses.append(tree._search_kernel(uniforms, True, *answers)))
    worker.start()
    while worker.is_alive():
        sequence[0] += 2
    assert statuses == [header.BUSY]
    assert lock[0] == header.WRITES


@pytest.mark.parametrize("layout", ["prefix", "plain"])
@needs_numba
@in_a_process
def test_a_search_amid_a_change_stays_inside_the_tree(layout):
    """Rows as no update leaves them send a search to the last child of each, and beyond the last node of a level."""
    tree = make("numba", 100_000, fanout=3, layout=layout)
    tree.update(np.arange(100_000), 5.0)
    height = tree.height
    ones, fours = (np.array([word], np.uint32).repeat(2).view(np.float64)[0] for word in (0x3F800000, 0x40800000))
    for array in tree._arrays[1:]:  # whatever half of such a number is read as a leaf is no leaf's 5.0
        array[:] = ones
        array[:: tree._lanes] = fours
    assert tree._arrays[height][0] == fours > 500
    uniforms = np.random.default_rng(0).random(10_000)
    indices, priorities = np.full(10_000, -1), np.empty(10_000, np.float32)
    assert tree._search_kernel(uniforms, True, indices, priorities) == 0
    assert ((indices >= 0) & (indices < 100_000)).all()
    assert set(priorities.tolist()) == {5.0}


def test_an_update_by_deltas_stays_within_its_scratch():
    tree = filled("numba", 4_000, {"propagate": "delta"})
    room = np.zeros(5_000, np.int64)
    tree._scratch = room[: 2 * 1_280]
    tree.update(np.arange(1_280), np.full(1_280, WRITTEN[0]))
    assert not room[2 * 1_280 :].any()
    assert tree.check() == 0.0


# Any two calls


def hammer(name, capacity, seconds, options, pairs):
    sys.setswitchinterval(1e-5)
    tree = filled(name, capacity, options)
    for pair in pairs:
        with running([operation(tree, op, seed) for seed, op in enumerate(pair)]):
            time.sleep(seconds)
        assert_whole(tree)


@every_name
def test_any_two_operations_on_two_threads(name):
    alone(__name__, f"hammer({name!r}, 640, 0.012, {{}}, PAIRS)")  # other variants: the next test


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"), [(name, options) for name in NAMES for options in VARIANTS.get(name, [{}])], ids=str
)
def test_any_two_operations_on_two_threads_for_long(name, options):
    alone(__name__, f"hammer({name!r}, 10_000, 0.4, {options}, PAIRS)")


def hop(name, capacity, seconds, options):
    """The only leaf above 0 moves to another place, time and again: each batch must see it in one place."""
    sys.setswitchinterval(1e-5)
    tree, rng = make(name, capacity, **options), np.random.default_rng(0)
    tree.update(0, 1.0)
    places, uniforms, masses = [0], np.linspace(0, 0.99, 64), np.linspace(0, 0.99, 100)
    everywhere = np.arange(0, capacity, max(1, capacity // 1000))

    def move():
        places.append(int(rng.choice(everywhere[everywhere != places[-1]])))
        tree.update(places[-2:], [0.0, 1.0])

    def sample():
        indices, priorities = tree.sample(uniforms)
        assert {*impls.to_numpy(priorities).tolist()} == {1.0}
        stands(indices)

    def stands(indices):
        assert len({*impls.to_numpy(indices).tolist()}) == 1

    def get():
        assert tree.get(everywhere).sum() == tree.total() == 1.0

    def sample_distinct():
        assert impls.to_numpy(tree.sample_distinct(uniforms[-1:])[1]).tolist() == [1.0]

    with running([move, sample, lambda: stands(tree.prefix_sum_index(masses)), get, sample_distinct]):
        time.sleep(seconds)
    assert (tree.check(), tree.total()) == (0.0, 1.0)
    assert tree.get(places[-1]).tolist() == [1.0]


@every_name
def test_a_leaf_that_moves_is_in_one_place_for_every_call(name):
    alone(__name__, f"hop({name!r}, 640, 0.15, {{}})", seconds=120)


@needs_numba
def test_a_leaf_that_moves_in_a_large_tree_is_in_one_place():
    for options in ({"layout": "plain"}, {"propagate": "delta"}):
        alone(__name__, f"hop('numba', 300_000, 0.15, {options})", seconds=120)


# Which pairs wait


@contextlib.contextmanager
def someone_inside(tree, op):
    """As if another thread were in the middle of a call of ``op``."""
    if hasattr(tree, "_kernel_turns"):
        from impls.sumtree.kernels import header  # noqa: PLC0415  # where there is numba

        counted, changes = op not in tree.optimistic, op not in tree.concurrent
        tree._header[header.LOCK] += counted * (header.WRITES if changes else 1)
        tree._header[header.SEQUENCE] += changes
        yield
        tree._header[header.SEQUENCE] += changes
        tree._header[header.LOCK] -= counted * (header.WRITES if changes else 1)
    else:
        inside = tree._turns._together if op in tree.concurrent else tree._turns._alone
        inside[-1] = True
        yield
        del inside[-1]


ALL = (*READS, "update", "sample_distinct", "sample_without", "rebuild", "load_state_dict")


@every_name
def test_the_trait_says_which_calls_run_side_by_side(name):
    for options in VARIANTS.get(name, [{}])[: 3 if name == "numba" else 2]:
        tree = filled(name, 640, options)
        for inside, op in itertools.product(("sample", "check", "update"), ALL):
            caller = threading.Thread(target=operation(tree, op, 0))
            with someone_inside(tree, inside):
                caller.start()
                may_meet = {inside, op} <= tree.concurrent or inside in tree.optimistic
                caller.join(20 if may_meet else 0.01)
                assert caller.is_alive() != may_meet, (options, inside, op)
            caller.join(20)
            assert not caller.is_alive(), (options, inside, op)
        assert_whole(tree)


# Arrays of the caller


def change_arguments(name, options):
    """Calls whose arrays another thread changes between good and bad values all the time."""
    sys.setswitchinterval(1e-5)
    tree = filled(name, 640, options)
    indices, numbers = np.zeros(3000, np.int64), np.full(3000, 2.0)

    def change():
        for bad, number in ((1 << 40, np.nan), (-1, -5.0), (700, 1e300)):
            indices[:], numbers[:] = bad, number
            indices[:], numbers[:] = 630, 0.5
            indices[:], numbers[:] = 7, 3.0

    updates = lambda: tree.update(indices, np.full(3000, 3.0)), lambda: tree.update(np.full(3000, 9), numbers)
    questions = lambda: tree.get(indices), lambda: tree.sample(numbers), lambda: tree.prefix_sum_index(numbers)
    with running([change]):
        for call in updates + questions:
            until = time.perf_counter() + 0.03
            while time.perf_counter() < until:
                with contextlib.suppress(IndexError, ValueError):
                    call()
    leaves = tree.get(np.arange(640))
    assert tree.check() == 0.0
    assert tree.total() == leaves.sum(dtype=np.float64)
    assert set(leaves.tolist()) <= {0.5, 1.0, 3.0}


@every_name
def test_arrays_that_change_in_the_middle_of_a_call(name):
    for options in [{}, {"propagate": "delta"}] if "propagate" in options_of(name) else [{}]:
        alone(__name__, f"change_arguments({name!r}, {options})")


# Signal handlers


@needs_timer
@in_a_process
def test_a_handler_may_call_the_tree_its_thread_waits_for():
    tree = filled("numpy", 640, {})
    call = operation(tree, "get", 0)
    signal.signal(signal.SIGALRM, lambda *_: call())
    tree._turns._alone[-1] = True
    threading.Timer(0.5, tree._turns._alone.pop, [-1]).start()
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    tree.update(block(640), np.full(64, WRITTEN[1]))
    assert_whole(tree)


@needs_timer
@needs_numba
@in_a_process
def test_signal_handlers_may_use_a_tree_of_kernels():
    """A handler that draws and updates, while the main thread and another one update, too."""
    tree = filled("numba", 64_000, {})
    handled = [operation(tree, op, seed) for seed, op in enumerate(("sample", "update", "total", "check"))]
    count = itertools.count()

    def handle(*_):
        handled[next(count) % 4]()
        signal.setitimer(signal.ITIMER_REAL, 1e-3)

    signal.signal(signal.SIGALRM, handle)
    handle()
    update = operation(tree, "update", 5)
    with running([operation(tree, "update", 6), operation(tree, "sample", 7)]):
        while next(count) < 800:
            update()
    # Stopping the timer is not enough: a handler on its way sets it again, and a late alarm ends a process without one.
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    assert_whole(tree)


# Forks and interruptions


every_host_name = pytest.mark.parametrize("name", [name for name in NAMES if name != "cupy"])
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def child_of(call, seconds=30):
    """Run the call in a forked child, which ends with 0 if all is well."""
    if (child := os.fork()) == 0:
        signal.alarm(seconds)
        call_or_exit(call)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def forks(name, options):
    """Two threads fork beside busy ones: each child has whole trees, as has every copy."""
    tree = filled(name, 640, options)

    def calls():
        return [operation(tree, op, seed) for seed, op in enumerate(("update", "update", "sample", "state_dict"))]

    def use():
        assert_whole(tree)
        for call in calls():  # of generators of random numbers that no other thread had locked
            call()
        child_of(tree.check)
        assert_whole(copy.deepcopy(tree))

    with running(calls()):
        forkers = [threading.Thread(target=lambda: [child_of(use) for _ in range(3)]) for _ in range(2)]
        for forker in forkers:
            forker.start()
        for make_copy in (copy.copy, copy.deepcopy, lambda tree: pickle.loads(pickle.dumps(tree))):
            for twin in (make_copy(tree) for _ in range(3)):
                assert_whole(twin)
                twin.update(3, FIRST)
        for forker in forkers:
            forker.join()
    assert_whole(tree)


@needs_fork
@every_host_name
def test_children_and_copies_of_a_busy_process_are_whole(name):
    for options in VARIANTS.get(name, [{}])[: 3 if name == "numba" else 2]:
        alone(__name__, f"forks({name!r}, {options})")


def fork_while_compiling():
    from impls.sumtree import numba_turns  # noqa: PLC0415  # where there is numba

    tree, other = (impls.make("numba", 640, fanout=2, layout=layout) for layout in ("prefix", "plain"))
    worker = threading.Thread(target=tree.get, args=(np.arange(640),))
    worker.start()
    while worker.is_alive() and numba_turns.compiler.turn.acquire(blocking=False):
        numba_turns.compiler.turn.release()
    child_of(lambda: (other.get(np.arange(640)), tree.get(np.arange(640))), seconds=120)
    worker.join()
    assert not tree.get(np.arange(640)).any()


@needs_fork
@needs_numba
def test_a_child_forked_while_a_kernel_is_compiled_can_compile(tmp_path):
    alone(__name__, "fork_while_compiling()", FANOUT_CACHE_DIR=str(tmp_path))


def fork_in_the_middle(name, options):
    """A fork beside an update that does not end: the child has its leaves, signs and marks, but not its thread."""
    tree = filled(name, 640, options)
    if name == "numba":
        tree._leaves[0] = -WRITTEN[0]
        tree._marks[0][0] = 1
    else:
        tree._torn = True
    leaves = np.full(640, FIRST)
    leaves[0] = tree._get(np.array([0]))[0] if name != "numba" else WRITTEN[0]

    def use():
        assert tree.total() == leaves.sum()
        assert tree.get(np.arange(640)).tolist() == leaves.tolist()
        child_of(tree.check)
        tree.update(block(640), np.full(64, WRITTEN[1]))
        leaves[block(640)] = WRITTEN[1]
        assert tree.check() == 0.0
        assert tree.total() == leaves.sum()

    with someone_inside(tree, "update"):
        child_of(use)


@needs_fork
@every_host_name
def test_a_child_forked_amid_an_update_makes_the_sums_anew(name):
    for options in VARIANTS.get(name, [{}])[: 3 if name == "numba" else 2]:
        alone(__name__, f"fork_in_the_middle({name!r}, {options})")


@needs_fork
@needs_numba
@in_a_process
def test_a_child_forked_amid_distinct_draws_has_every_leaf():
    """A fork beside a call that has set leaves to 0 and will give them back: the child gives them back."""
    from impls.sumtree.kernels import header  # noqa: PLC0415  # where there is numba

    tree = filled("numba", 640, {"fanout": 10})
    lent = np.zeros((2, 2), np.int64)
    lent[:, 0] = 3, 639
    lent.view(np.float64)[:, 1] = FIRST
    tree._header[[header.LENT, header.LENT_AT]] = 2, lent.ctypes.data
    leaves = tree._leaves.reshape(-1, 16)
    leaves[0, 3] = leaves[63, 9] = 0.0
    with someone_inside(tree, "update"):
        child_of(lambda: assert_whole(tree))
        child_of(lambda: tree.sample_distinct(np.linspace(0, 0.9, 640)))


@needs_fork
@pytest.mark.parametrize("name", [name for name in NAMES if name in ("python", "numba")])
@in_a_process
def test_ctrl_c_while_a_fork_waits_leaves_every_tree_free(name):
    idle = [filled(each, 640, {}) for each in NAMES if each != "cupy"]
    busy = filled(name, 640, {})
    with someone_inside(busy, "update"):
        threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
        try:
            if (child := os.fork()) == 0:
                os._exit(int(any(tree.check() != 0.0 for tree in idle)))
            time.sleep(5)
            raise AssertionError("Ctrl-C was lost")
        except KeyboardInterrupt:
            assert os.waitpid(child, 0)[1] == 0
    calls = [threading.Thread(target=operation(tree, "update", 0)) for tree in (*idle, busy)]
    for call in calls:
        call.start()
    for call in calls:
        call.join(20)
        assert not call.is_alive()
    child_of(busy.check)


# Interruptions


@every_name
@in_a_process
def test_ctrl_c_ends_a_wait_and_nothing_else(name):
    tree = filled(name, 640, {})
    for op in ("update", "load_state_dict", "rebuild"):
        call = operation(tree, op, 0)
        with someone_inside(tree, "update"):
            threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()
            with contextlib.suppress(KeyboardInterrupt):
                call()
                raise AssertionError(f"{op} did not wait")
        call()
        assert_whole(tree)
    if name == "numba":
        from impls.sumtree.kernels import header  # noqa: PLC0415  # where there is numba

        assert tree._header[header.LOCK] == 0  # nobody is at the head of the line any more
    other = threading.Thread(target=operation(tree, "update", 1))
    other.start()
    other.join(20)
    assert not other.is_alive()


class _Interrupted:
    """A method that does something else first, or ``after``, the third time it is called."""

    def __init__(self, method, interruption, after=False):
        self._method, self._interruption, self._after, self._calls = method, interruption, after, 0

    def __call__(self, *arguments):
        self._calls += 1
        if self._calls == 3 and self._after:
            self._method(*arguments)
        if self._calls == 3:
            self._interruption()
        return self._method(*arguments)


def _ctrl_c():
    raise KeyboardInterrupt


INTERRUPTED = {"python": "_sum_of_children", "numpy": "_refresh", "cumsum": "_sum_from", "fpga": "_refresh"}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_after_an_interrupted_update_the_sums_are_made_anew(name, monkeypatch):
    for next_call in ("total", "sample", "check", "update", "state_dict"):
        tree = make(name, 640, dtype="float64")
        tree.update(np.arange(640), np.ones(640))
        arguments = {"sample": ([0.5],), "update": ([600], [1.0])}.get(next_call, ())  # of other groups than are torn
        call = getattr(tree, next_call)
        method = _Interrupted(getattr(tree, INTERRUPTED[name]), _ctrl_c)
        monkeypatch.setattr(tree, INTERRUPTED[name], method)
        with pytest.raises(KeyboardInterrupt):
            for leaf in (3, 77, 303):
                tree.update(np.array([leaf, leaf + 200]), np.array([2.0, 3.0]))
        answer = call(*arguments)
        assert (tree._torn, tree._check()) == (False, 0.0), next_call
        assert tree.total() == tree.get(np.arange(640)).sum(), next_call
        assert next_call != "total" or answer == tree.total()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "numba"])  # whose kernels are not interrupted
def test_after_an_interrupted_draw_every_leaf_is_as_it_was(name, monkeypatch):
    for method, kind in [(method, kind) for method in ("_set", "_sample", "_give_back") for kind in ("all", "beside")]:
        tree = filled(name, 640, {})
        tree.update(block(640), np.full(64, WRITTEN[0]))
        expected, uniforms = tree.state_dict()["leaves"], np.linspace(0, 0.9, 10)
        with monkeypatch.context() as patches:
            interrupted = _Interrupted(getattr(tree, method), _ctrl_c, after=method == "_set")
            interrupted._calls = 2 if method == "_give_back" or kind == "beside" else 0
            patches.setattr(tree, method, interrupted)
            with pytest.raises(KeyboardInterrupt):
                tree.sample_distinct(uniforms) if kind == "all" else tree.sample(uniforms, exclude=block(640))
        assert np.array_equal(tree.state_dict()["leaves"], expected), (method, kind)
        assert (tree.total(), tree.check()) == (expected.sum(), 0.0), (method, kind)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no such signal")
@pytest.mark.parametrize("name", ["python", "numpy"])
def test_a_handler_that_would_wait_for_itself_is_refused(name, monkeypatch):
    for op in ("sample", "update"):
        tree = filled(name, 640, {})
        call = operation(tree, op, 0)
        before = signal.signal(signal.SIGUSR1, lambda *_, call=call: call())
        method = _Interrupted(getattr(tree, INTERRUPTED[name]), lambda: signal.raise_signal(signal.SIGUSR1))
        monkeypatch.setattr(tree, INTERRUPTED[name], method)
        try:
            with pytest.raises(RuntimeError, match="inside another call of the same tree"):
                for _ in range(3):
                    tree.update(block(640), np.full(64, 3.0))
            assert tree.check() == 0.0
            assert tree.total() == tree.get(np.arange(640)).sum()
            monkeypatch.undo()
            tree.update(block(640), np.full(64, 3.0))
            signal.raise_signal(signal.SIGUSR1)  # between two calls it is welcome
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert_whole(tree)
