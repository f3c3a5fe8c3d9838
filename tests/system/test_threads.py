"""Threads, forks and interruptions: no use of one tree from many places crashes it, tears it or waits for ever.

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
import subprocess
import sys
import threading
import time
import traceback

import numpy as np
import pytest

import impls
from impls.sumtree.contract import READS
from impls.sumtree.registry import options_of
from impls.sumtree.turns import Turns
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

every_name = pytest.mark.parametrize("name", NAMES)
needs_numba = pytest.mark.skipif("numba" not in NAMES, reason="needs numba")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


CALLS = Nursery("tests.system.test_threads")


def in_a_process(test):
    """The test, in a process of its own that ends with it."""

    @functools.wraps(test)
    def run(**arguments):
        alone(f"{test.__name__}.__wrapped__(**{arguments!r})", seconds=120)

    return run


def alone(call, seconds=600, **environment):
    """Run ``call``, an expression that may use this module's names, in a process of its own."""
    if not environment:
        return CALLS.run(call, seconds)
    # A process that a shell started in the background ignores Ctrl-C, and so would this one.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heed}; from tests.system.test_threads import *; {call}"
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
    masses, state = capacity * rng.random(64), {**tree.state_dict(), "leaves": np.full(capacity, LOADED)}
    draws = rng.random(tree.least_shared if tree.threads > 1 else 64)  # a batch that threads share

    def update():
        most = 160 if tree.threads > 1 else 40  # now and then a batch that scratch must grow for, or threads share
        batch = np.tile(where, rng.choice([1, 1, 1, most]))
        tree.update(batch, np.full(batch.size, rng.choice(WRITTEN)))

    def sample():
        indices, priorities = tree.sample(draws)
        assert ((indices >= 0) & (indices < capacity)).all()
        assert set(priorities.tolist()) <= VALUES

    def sample_distinct():
        indices, priorities = map(impls.to_numpy, tree.sample_distinct(draws[:16]))
        assert len(set(indices.tolist())) == 16
        assert set(priorities.tolist()) <= VALUES

    def sample_without():
        indices, priorities = map(impls.to_numpy, tree.sample(draws, where[:32]))
        assert not np.isin(indices, where[:32]).any()
        assert set(priorities.tolist()) <= VALUES

    def prefix_sum_index():
        assert (np.diff(tree.prefix_sum_index(np.sort(masses))) >= 0).all()

    def search_left():
        assert (np.diff(tree.prefix_sum_index(np.sort(masses), side="left")) >= 0).all()

    def prefix_sum():
        assert uniform(np.diff(impls.to_numpy(tree.prefix_sum(np.stack([where, where + 1], 1).reshape(-1))))[::2])

    def range_sum():
        assert uniform(impls.to_numpy(tree.range_sum(where, where + 1)))

    def min():
        assert tree.min() in VALUES

    def get():
        assert uniform(tree.get(where))

    def total():
        assert tree.total() >= capacity
        assert tree.total() % 1 == 0

    def check():
        assert tree.check() == 0.0

    def state_dict():
        assert uniform(tree.state_dict()["leaves"][where])

    more = {"rebuild": tree.rebuild, "load_state_dict": lambda: tree.load_state_dict(state)}
    draw = (sample, sample_distinct, sample_without, prefix_sum_index, search_left)
    calls = (update, *draw, get, total, min, prefix_sum, range_sum, check, state_dict)
    return ({call.__name__: call for call in calls} | more)[op]


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


def hammer(name, capacity, seconds, variants, pairs):
    sys.setswitchinterval(1e-5)
    for options in variants:
        tree = filled(name, capacity, options)
        for pair in pairs:
            with running([operation(tree, op, seed) for seed, op in enumerate(pair)]):
                time.sleep(seconds)
            assert_whole(tree)


def test_a_writer_is_kept_out_by_one_that_reads_and_by_one_that_writes():
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


def test_the_sequence_is_odd_while_an_update_changes_the_tree_and_two_more_after_it():
    header = pytest.importorskip("impls.sumtree.kernels.header")
    tree = filled("numba", 640, {})
    sequence = tree._header[header.SEQUENCE :]
    before, seen = int(sequence[0]), set()
    assert before % 2 == 0
    where, values = np.tile(np.arange(640), 4_000), np.full(2_560_000, FIRST)
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


def search_for_long(tree, draws=2_000_000):
    """The thread of a search that takes a good part of a second, and the list that its kernel's status goes to."""
    uniforms, statuses = np.random.default_rng(0).random(draws), []
    answers = np.empty(draws, np.int64), np.empty(draws, np.float32)
    tree.sample(uniforms[:1])  # compiled before
    worker = threading.Thread(target=lambda: statuses.append(tree._search_kernel(uniforms, True, *answers)))
    worker.start()
    return worker, statuses


def test_what_a_search_read_beside_a_change_does_not_count():
    header = pytest.importorskip("impls.sumtree.kernels.header")
    tree = filled("numba", 640, {})
    lock, sequence = tree._header[header.LOCK :], tree._header[header.SEQUENCE :]
    lock[0] = header.WRITES  # so that the search cannot have a turn
    worker, statuses = search_for_long(tree)
    while worker.is_alive():
        sequence[0] += 2
    assert statuses == [header.BUSY]
    assert lock[0] == header.WRITES


@pytest.mark.timing
def test_an_update_waits_for_no_search_and_a_search_that_it_disturbs_is_right():
    header = pytest.importorskip("impls.sumtree.kernels.header")
    tree = filled("numba", 640, {})
    for _ in range(20):
        worker, statuses = search_for_long(tree)
        tree.update(block(640), np.full(64, WRITTEN[0]))
        beside = worker.is_alive()
        worker.join()
        assert statuses == [header.DONE]
        if beside:
            return
    raise AssertionError("every update waited for the search")


@pytest.mark.parametrize("options", [{}, {"layout": "plain"}], ids=str)
@needs_numba
@in_a_process
def test_a_search_of_rows_in_the_middle_of_a_change_stays_inside_the_tree(options):
    """Rows as no update leaves them send a search to the last child of each, and beyond the last node of a level."""
    tree = make("numba", 100_000, fanout=3, **options)
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


@pytest.mark.parametrize(("inside", "lets_in"), [(True, {True}), (False, set())])
def test_turns_let_in_only_calls_that_may_meet(inside, lets_in):
    turns, entered, leave = Turns(), threading.Event(), threading.Event()

    def stay():
        entered.set()
        leave.wait()

    worker = threading.Thread(target=turns.run, args=(inside, stay))
    worker.start()
    entered.wait()
    me = threading.get_ident()
    try:
        for shared in (True, False):
            assert turns._enter(me, shared) == (shared in lets_in)
            turns._together.pop(me, None)
    finally:
        leave.set()
        worker.join()
    assert turns.run(False, lambda: "alone") == "alone"


@every_name
def test_any_two_operations_on_two_threads(name):
    alone(f"hammer({name!r}, 640, 0.02, {VARIANTS.get(name, [{}])[:1]}, PAIRS)")  # of other variants: the next test


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"), [(name, options) for name in NAMES for options in VARIANTS.get(name, [{}])], ids=str
)
def test_any_two_operations_on_two_threads_for_long(name, options):
    alone(f"hammer({name!r}, 10_000, 0.4, [{options}], PAIRS)")


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
        indices, priorities = map(impls.to_numpy, tree.sample(uniforms))
        assert len(set(indices.tolist())) == 1
        assert set(priorities.tolist()) == {1.0}

    def prefix_sum_index():
        assert len(set(impls.to_numpy(tree.prefix_sum_index(masses)).tolist())) == 1

    def get():
        assert tree.get(everywhere).sum() == 1.0
        assert tree.total() == 1.0

    def sample_distinct():
        assert impls.to_numpy(tree.sample_distinct(uniforms[-1:])[1]).tolist() == [1.0]

    with running([move, sample, prefix_sum_index, get, sample_distinct]):
        time.sleep(seconds)
    assert (tree.check(), tree.total()) == (0.0, 1.0)
    assert tree.get(places[-1]).tolist() == [1.0]


@every_name
def test_a_leaf_that_moves_is_in_one_place_for_every_call(name):
    alone(f"hop({name!r}, 640, 0.2, {{}})", seconds=120)


@pytest.mark.parametrize(
    "options", [{}, {"layout": "plain"}, {"propagate": "delta"}, {"fanout": 64, "dtype": "float64"}], ids=str
)
def test_a_leaf_that_moves_in_a_large_compiled_tree_is_in_one_place_for_every_call(options):
    pytest.importorskip("numba")
    alone(f"hop('numba', 1_000_000, 0.3, {options})", seconds=120)


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
@pytest.mark.parametrize("options", [{}, {"propagate": "delta"}], ids=str)
def test_the_trait_says_which_calls_run_side_by_side(name, options):
    if options and "propagate" not in options_of(name):
        pytest.skip("it has one way to update")
    tree = filled(name, 640, options)
    for inside, op in itertools.product(("sample", "check", "update"), ALL):
        call = operation(tree, op, 0)
        with someone_inside(tree, inside):
            caller = threading.Thread(target=call)
            caller.start()
            if {inside, op} <= tree.concurrent or inside in tree.optimistic:
                caller.join(20)
                assert not caller.is_alive(), (inside, op)
            else:
                caller.join(0.01)
                assert caller.is_alive(), (inside, op)
        caller.join(20)
        assert not caller.is_alive(), (inside, op)
    assert_whole(tree)


def test_trees_that_draw_side_by_side_are_the_ones_that_gain_by_it():
    assert {name for name in NAMES if "sample" in type(make(name, 1)).concurrent} == set(NAMES) - {"python", "cupy"}


def test_what_keeps_no_update_waiting_runs_beside_what_reads():
    kinds = {name: type(make(name, 1)) for name in NAMES}
    assert all(kind.optimistic <= kind.concurrent <= READS for kind in kinds.values())
    assert {name for name, kind in kinds.items() if kind.optimistic} == set(NAMES) & {"numba"}


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
        alone(f"change_arguments({name!r}, {options})")


# Copies, processes


@every_name
@in_a_process
def test_copies_and_pickles_of_a_busy_tree_are_whole(name):
    tree = filled(name, 640, {})
    with running([operation(tree, op, seed) for seed, op in enumerate(("update", "sample"))]):
        for make_copy in (copy.copy, copy.deepcopy, lambda tree: pickle.loads(pickle.dumps(tree))):
            for _ in range(5):
                twin = make_copy(tree)
                assert_whole(twin)
                twin.update(3, FIRST)


def child_of(call, seconds=30):
    """Run the call in a forked child, which ends with 0 if all is well."""
    if (child := os.fork()) == 0:
        signal.alarm(seconds)
        try:
            call()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def forks(name, options):
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
        for _ in range(10):
            child_of(use)
    assert_whole(tree)


@needs_fork
@every_name
def test_a_child_forked_from_a_busy_process_has_whole_trees(name):
    for options in VARIANTS.get(name, [{}])[:3]:
        alone(f"forks({name!r}, {options})")


@needs_fork
@needs_numba
@in_a_process
def test_shared_batches_are_right_beside_updates_late_helpers_busy_cores_and_forks():
    """Threads share batches while the only leaf above 0 moves, every core is busy, helpers are late, and it forks."""
    from impls.sumtree import numba_turns  # noqa: PLC0415  # where there is numba

    numba_turns.Sharing.is_worth_it = lambda self: True
    sys.setswitchinterval(1e-5)
    tree, rng = filled("numba", 640, {"threads": 2}), np.random.default_rng(0)
    place, uniforms = [0], np.linspace(0, 0.99, 20_000)
    tree.update(np.arange(640), np.eye(640)[0])
    help_search, search, helped, statuses = tree._help_kernel, tree._shared_search_kernel, [], set()
    tree._help_kernel = lambda *job: helped.append(time.sleep(rng.choice([0, 0, 0, 1e-3, 2e-2]))) or help_search(*job)
    tree._shared_search_kernel = lambda *batch: statuses.add(status := search(*batch)) or status

    def move():
        place.append((place[-1] * 7 + 5) % 640)
        tree.update(place[-2:], [0.0, 1.0])
        time.sleep(1e-3)  # which some batches fit in

    def sample():
        indices, priorities = tree.sample(uniforms)
        assert (indices == indices[0]).all()
        assert (priorities == 1.0).all()

    spin = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    busy = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(os.cpu_count() or 1)]
    try:
        with running([sample, sample, sample, move]):
            end = time.monotonic() + 2.0
            while time.monotonic() < end:
                child_of(lambda: [sample() for _ in range(20)])
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert helped
    assert 0 in statuses  # some batches were shared and counted


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
def test_a_child_forked_while_a_kernel_is_compiled_can_compile(tmp_path):
    pytest.importorskip("numba")
    alone("fork_while_compiling()", FANOUT_CACHE_DIR=str(tmp_path))


@needs_fork
@in_a_process
def test_two_threads_may_fork_at_once():
    trees = [filled(name, 640, {}) for name in ("python", "numpy", "numba") if name in NAMES]
    with running([operation(tree, "update", 0) for tree in trees]):
        forkers = [threading.Thread(target=lambda: [child_of(trees[0].check) for _ in range(10)]) for _ in range(2)]
        for forker in forkers:
            forker.start()
        for forker in forkers:
            forker.join()


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
@every_name
def test_a_child_forked_in_the_middle_of_a_long_update_makes_the_sums_anew(name):
    for options in VARIANTS.get(name, [{}])[: 3 if name == "numba" else 2]:
        alone(f"fork_in_the_middle({name!r}, {options})")


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
@in_a_process
def test_a_handlers_call_and_a_fork_do_not_wait_for_each_other():
    """A handler calls one tree inside a call of another, while a fork wants both."""
    first, second = filled("python", 640, {}), filled("python", 6_400, {})
    handled = []

    def handler(number, frame):
        if not handled:
            handled.append(True)
            first.total()
            handled.clear()

    signal.signal(signal.SIGALRM, handler)
    forker = threading.Thread(target=lambda: [child_of(first.check) for _ in range(20)])
    forker.start()
    while forker.is_alive():
        signal.setitimer(signal.ITIMER_REAL, 0.003)
        second.update(np.arange(6_400), np.full(6_400, FIRST))
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert_whole(first)


@needs_fork
@pytest.mark.parametrize("name", [name for name in NAMES if name in ("python", "numba")])
@in_a_process
def test_ctrl_c_while_a_fork_waits_is_delivered_and_leaves_every_tree_free(name):
    idle = [filled(one, 640, {}) for one in NAMES if one != "cupy"]
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
@pytest.mark.parametrize("next_call", ["total", "sample", "check", "update", "state_dict"])
def test_after_an_interrupted_update_the_sums_are_made_anew(name, next_call, monkeypatch):
    tree = make(name, 640, dtype="float64")
    tree.update(np.arange(640), np.ones(640))
    calls = {  # made before the tree is torn, and touching other groups than the update that tears it
        "total": tree.total,
        "sample": lambda: tree.sample(np.array([0.5])),
        "check": tree.check,
        "update": lambda: tree.update(np.array([600]), np.array([1.0])),
        "state_dict": tree.state_dict,
    }
    method = _Interrupted(getattr(tree, INTERRUPTED[name]), _ctrl_c)
    monkeypatch.setattr(tree, INTERRUPTED[name], method)
    with pytest.raises(KeyboardInterrupt):
        for leaf in (3, 77, 303):
            tree.update(np.array([leaf, leaf + 200]), np.array([2.0, 3.0]))
    answer = calls[next_call]()
    assert not tree._torn
    assert tree._check() == 0.0
    assert tree.total() == tree.get(np.arange(640)).sum()
    if next_call == "total":
        assert answer == tree.total()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "numba"])
@pytest.mark.parametrize("method", ["_set", "_sample", "_give_back"])
@pytest.mark.parametrize("kind", ["distinct", "beside"])
def test_after_an_interrupted_draw_every_leaf_is_as_it_was(name, method, kind, monkeypatch):
    tree = filled(name, 640, {})
    tree.update(block(640), np.full(64, WRITTEN[0]))
    expected, uniforms = tree.state_dict()["leaves"], np.linspace(0, 0.9, 10)
    with monkeypatch.context() as patches:
        interrupted = _Interrupted(getattr(tree, method), _ctrl_c, after=method == "_set")
        interrupted._calls = 2 if method == "_give_back" or kind == "beside" else 0
        patches.setattr(tree, method, interrupted)
        with pytest.raises(KeyboardInterrupt):
            tree.sample_distinct(uniforms) if kind == "distinct" else tree.sample(uniforms, exclude=block(640))
    assert np.array_equal(tree.state_dict()["leaves"], expected)
    assert tree.total() == expected.sum()
    assert tree.check() == 0.0


ONE_TURN = ("sample", "get", "check", "state_dict", "prefix_sum_index", "sample_distinct", "total", "sample_without")


@pytest.mark.parametrize("op", [*ONE_TURN, "min", "prefix_sum", "range_sum", "search_left"])
def test_a_call_takes_one_turn_for_all_it_does(op, monkeypatch):
    tree = filled("numpy", 640, {})
    call, turns, run = operation(tree, op, 0), [], tree._turns.run
    monkeypatch.setattr(tree._turns, "run", lambda *arguments: (turns.append(1), run(*arguments))[1])
    call()
    assert len(turns) == (2 if op == "total" else 1)  # which the test calls twice


@pytest.mark.parametrize(
    ("options", "op"),
    [({"propagate": "delta"}, "total"), ({"threads": 2}, "sample"), ({"threads": 2, "propagate": "atomic"}, "update")],
)
def test_the_kernels_that_few_calls_take_wait_as_well(options, op):
    tree = filled("numba", 640, options)
    call = {
        "total": tree.total,
        "sample": lambda: tree.sample(np.full(4096, 0.5)),  # a batch that threads share
        "update": lambda: tree.update(np.tile(block(640), 160), np.full(10_240, WRITTEN[0])),  # one that they share
    }[op]
    call()
    with someone_inside(tree, "update"):
        caller = threading.Thread(target=call)
        caller.start()
        caller.join(0.05)
        assert caller.is_alive()
    caller.join(20)
    assert not caller.is_alive()


def test_an_update_by_deltas_stays_within_its_scratch():
    tree = filled("numba", 4_000, {"propagate": "delta"})
    room = np.zeros(5_000, np.int64)
    tree._scratch = room[: 2 * 1_280]
    tree.update(np.arange(1_280), np.full(1_280, WRITTEN[0]))
    assert not room[2 * 1_280 :].any()
    assert tree.check() == 0.0


@needs_fork
@in_a_process
def test_a_call_may_fork_in_its_middle():
    """A signal handler, or whatever runs inside a call, forks: the call goes on, here and in the child."""
    for op, method in (("sample", "_descend"), ("update", "_refresh")):
        tree = filled("numpy", 640, {})
        call, inside = operation(tree, op, 0), []
        hook = getattr(tree, method)

        def forks_first(*arguments, tree=tree, inside=inside, hook=hook):
            child_of(lambda: None)
            inside.append(len(tree._turns._together | tree._turns._alone))
            return hook(*arguments)

        setattr(tree, method, forks_first)
        call()
        assert set(inside) == {1}, (op, inside)


class _Looked(dict):
    """Calls in a list of turns, the next of which is interrupted as it begins to look at the other list."""

    def __init__(self, interrupt):
        self.interrupt = [interrupt, interrupt]

    def __setitem__(self, thread, is_inside):
        super().__setitem__(thread, is_inside)
        if not is_inside and self.interrupt:
            self.interrupt.pop()()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("handled", [True, False])
@pytest.mark.parametrize("is_free", [True, False])
def test_a_call_within_one_that_looks_has_its_turn_and_the_other_looks_again(shared, handled, is_free):
    turns, done = Turns(), []
    call = functools.partial(turns.run, handled, done.append, "handled")
    turns._alone, turns._together = _Looked(call), _Looked(call)
    unlisted = turns._together if shared else turns._alone
    (turns._alone if shared else turns._together).interrupt.clear()
    if not is_free:
        turns._alone[-1] = True
        threading.Timer(0.05, turns._alone.pop, [-1]).start()
    turns.run(shared, done.append, "called")
    assert done == ["handled", "handled", "called"]
    assert not turns._alone and not turns._together and not unlisted.interrupt


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timer")
@in_a_process
def test_a_handler_may_call_the_tree_whose_turn_its_thread_waits_for():
    tree = filled("numpy", 640, {})
    call = operation(tree, "get", 0)
    signal.signal(signal.SIGALRM, lambda *_: call())
    tree._turns._alone[-1] = True
    threading.Timer(0.5, tree._turns._alone.pop, [-1]).start()
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    tree.update(block(640), np.full(64, WRITTEN[1]))
    assert_whole(tree)


def test_a_child_forgets_the_threads_it_does_not_have():
    tree = filled("python", 64, {})
    assert tree._turns.try_to_hold(1.0)
    tree._turns._together[-1] = True
    tree._turns._alone[-2] = True
    tree._turns.let_go()
    tree._turns.be_alone()
    assert not tree._turns._together | tree._turns._alone
    assert_whole(tree)


def test_a_child_forgets_the_kernels_it_does_not_run():
    pytest.importorskip("numba")
    from impls.sumtree.kernels import header  # noqa: PLC0415  # where there is numba

    tree = filled("numba", 640, {})
    turns, words = tree._kernel_turns, tree._header
    assert turns.try_to_hold(1.0)
    assert not turns.orphaned
    words[header.LOCK] += 1  # a reader that was counting itself
    turns.let_go()
    turns.be_alone()
    assert words[header.LOCK] == 0
    assert not turns.orphaned
    words[header.LOCK] = 3
    assert not turns.try_to_hold(0.0)
    assert words[header.LOCK] == 3  # nobody is kept out by a fork that went ahead without it
    words[header.LOCK] = 0
    assert_whole(tree)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no such signal")
@pytest.mark.parametrize("name", ["python", "numpy"])
@pytest.mark.parametrize("op", ["sample", "update"])
def test_a_signal_handler_inside_a_call_is_refused_where_it_would_wait_for_itself(name, op, monkeypatch):
    tree = filled(name, 640, {})
    call = operation(tree, op, 0)
    before = signal.signal(signal.SIGUSR1, lambda *_: call())
    method = _Interrupted(getattr(tree, INTERRUPTED[name]), lambda: signal.raise_signal(signal.SIGUSR1))
    monkeypatch.setattr(tree, INTERRUPTED[name], method)
    try:
        with pytest.raises(RuntimeError, match=r"inside another call of the same tree.* set a flag"):
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


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timer")
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
        while next(count) < 2000:
            update()
    # Stopping the timer is not enough: a handler on its way sets it again, and a late alarm ends a process without one.
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    assert_whole(tree)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timer")
def test_signal_handlers_may_use_a_tree_whose_kernels_are_being_compiled(tmp_path):
    pytest.importorskip("numba")
    alone("compile_under_signals()", seconds=120, FANOUT_CACHE_DIR=str(tmp_path))
