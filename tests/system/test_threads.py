"""Threads: no use of one tree from many threads, or by a signal handler, crashes it, tears it or waits for ever.

What may crash runs in a process of its own. ``hammer`` is what most of these run: all leaves of a block are always set
together, to one whole number, so whoever sees two different ones in it, or a sum that is off at all, has seen a tree in
the middle of a call.
"""

import contextlib
import functools
import itertools
import os
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

VARIANTS = {
    "numba": [
        {},
        {"threads": 2, "propagate": "atomic"},
        {"propagate": "delta"},
        {"layout": "plain"},
        {"layout": "plain", "propagate": "delta"},
        {"validate": False},
        {"threads": 2},
        {"minimum": True},
    ],
    "numpy": [{}, {"propagate": "delta"}, {"validate": False}, {"minimum": True}],
    "python": [{}, {"propagate": "delta"}, {"minimum": True}],
    "cupy": [{}, {"propagate": "delta"}],
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


@contextlib.contextmanager
def running(calls):
    """Each call over and over on a thread of its own; the process ends with 1 if one of them fails."""
    stop = threading.Event()

    def work(call):
        while not stop.is_set():
            try:
                call()
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)

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
    for options in ({}, {"layout": "plain"}, {"propagate": "delta"}, {"fanout": 64, "dtype": "float64"}):
        alone(__name__, f"hop('numba', 1_000_000, 0.15, {options})", seconds=120)


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
    for options in [{}, {"propagate": "delta"}] if "propagate" in options_of(name) else [{}]:
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


def test_trees_that_draw_side_by_side_gain_by_it():
    kinds = {name: type(make(name, 1)) for name in NAMES}
    assert {name for name in NAMES if "sample" in kinds[name].concurrent} == set(NAMES) - {"python", "cupy"}
    assert all(kind.optimistic <= kind.concurrent <= READS for kind in kinds.values())
    assert {name for name, kind in kinds.items() if kind.optimistic} == set(NAMES) & {"numba"}


@needs_numba
def test_the_kernels_that_few_calls_take_wait_as_well():
    draws, (where, values) = np.full(4096, 0.5), (np.tile(block(640), 160), np.full(10_240, WRITTEN[0]))  # shared ones
    for options, call in (
        ({"propagate": "delta"}, lambda tree: tree.total()),
        ({"threads": 2}, lambda tree: tree.sample(draws)),
        ({"threads": 2, "propagate": "atomic"}, lambda tree: tree.update(where, values)),
    ):
        tree = filled("numba", 640, options)
        call(tree)
        caller = threading.Thread(target=call, args=(tree,))
        with someone_inside(tree, "update"):
            caller.start()
            caller.join(0.05)
            assert caller.is_alive(), options
        caller.join(20)
        assert not caller.is_alive(), options


def test_a_call_takes_one_turn_for_all_it_does(monkeypatch):
    tree = filled("numpy", 640, {})
    turns, run = [], tree._turns.run
    monkeypatch.setattr(tree._turns, "run", lambda *arguments: (turns.append(1), run(*arguments))[1])
    for op in (*READS, "sample_distinct", "sample_without", "search_left"):
        call = operation(tree, op, 0)
        turns.clear()
        call()
        assert len(turns) == 1, op


@pytest.mark.timing
@pytest.mark.parametrize("name", ["numba", "numpy", "python"])
@pytest.mark.parametrize(("many", "few"), [("sample", "update"), ("update", "sample"), ("update", "update")])
@in_a_process
def test_nobody_starves(name, many, few):
    """Two threads do ``many`` without a pause until a third has done ``few`` a hundred times."""
    tree = filled(name, 64_000, {})
    rare = operation(tree, few, 2)
    with running([operation(tree, many, seed) for seed in range(2)]):
        for _ in range(100):
            rare()


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

    calls = {
        "update": lambda: tree.update(indices, np.full(3000, 3.0)),
        "priorities": lambda: tree.update(np.full(3000, 9), numbers),
        "get": lambda: tree.get(indices),
        "sample": lambda: tree.sample(numbers),
        "prefix_sum_index": lambda: tree.prefix_sum_index(numbers),
    }
    with running([change]):
        for call in calls.values():
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


def compile_under_signals():
    """A handler calls what is compiled meanwhile, and what is not compiled either."""
    tree, handled = impls.make("numba", 640), []

    def handle(*_):
        handled.append((float(tree.get(7)[0]), tree.total()))
        signal.setitimer(signal.ITIMER_REAL, 1e-3)

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 1e-3)
    tree.get(np.arange(640))
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    assert handled
    assert set(handled) == {(0.0, 0.0)}


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


@needs_timer
@needs_numba
def test_handlers_may_use_a_tree_whose_kernels_are_compiled(tmp_path):
    alone(__name__, "compile_under_signals()", seconds=120, FANOUT_CACHE_DIR=str(tmp_path))
