"""Forks and interruptions: children have whole trees, and a call cut short leaves sums that the next makes anew."""

import contextlib
import copy
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
from tests.contestants import NAMES, make
from tests.system.test_threads import (
    FIRST,
    VARIANTS,
    WRITTEN,
    alone,
    assert_whole,
    block,
    every_name,
    filled,
    in_a_process,
    needs_numba,
    operation,
    running,
    someone_inside,
)

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


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
@every_name
def test_children_and_copies_of_a_busy_process_are_whole(name):
    for options in VARIANTS.get(name, [{}])[: 3 if name == "numba" else 2]:
        alone(__name__, f"forks({name!r}, {options})")


@needs_fork
@needs_numba
@in_a_process
def test_shared_batches_are_right_beside_updates_and_forks():
    """Threads share batches while the only leaf above 0 moves, helpers are late, and it forks."""
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

    with running([sample, sample, sample, move]):
        end = time.monotonic() + 1.2
        while time.monotonic() < end:
            child_of(lambda: [sample() for _ in range(20)])
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
@every_name
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
