"""A replay that is closed, forked, sent, interrupted or saved beside callers, whatever these are doing."""

import contextlib
import dataclasses
import multiprocessing
import os
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")

from impls.replay import ClosedError, Layout, ReplayHandle, attach, make, steps, strategies
from impls.replay.block import ACTOR, ARRIVED, GRANTED, MODE, is_alive, process
from impls.replay.registry import strategy_class
from tests.nursery import run_python
from tests.parallel_runs import PATIENCE_SECONDS, until
from tests.replay_stress import Plan, inspect, server

LAYOUT = Layout((4,), "float64", choices=2)  # an observation lies in the first half of its row, the next in the second
WIDER = Layout((30,), "float32", choices=4)
PRIORITIES = {"alpha": 0.6, "epsilon": 1e-3}
VALID = [name for name in strategies() if strategy_class(name).valid]
CAPACITY, NUMBER = 32, 5
USUAL = PRIORITIES | {"strategy": "two_lock_checked", "fanout": 16}  # which other tests compile for as well
SETTINGS = USUAL | {"fanout": 4}


def records(count, value=1.0):
    seen = np.full((count, 4), float(value))
    return LAYOUT.allocate(count) | {"observation": seen, "next_observation": seen}


def in_thread(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


# Closed, forked, sent


def test_every_call_of_a_closed_replay():
    replay = make(8, LAYOUT, shared=True, **PRIORITIES)
    replay.insert(records(5))
    out, state, rng = replay.outputs(2), replay.state_dict(), np.random.default_rng(0)
    usual = lambda: replay.sample(2, 0.4, rng), lambda: replay.update_priorities(np.arange(2), np.ones(2))
    for call in usual * 2:  # which reach kernels without Python
        call()
    replay.close()
    replay.close()
    for call in (
        *usual,
        lambda: replay.insert(records(1)),
        lambda: replay.sample(2, 0.4, out=out),
        lambda: len(replay),
        lambda: replay.written,
        lambda: replay.lost,
        replay.check,
        replay.recover,
        replay.handle,
        replay.state_dict,
        lambda: replay.load_state_dict(state),
    ):
        with pytest.raises(ClosedError):
            call()


@pytest.mark.parametrize("strategy", VALID)
def test_a_replay_closed_under_calls(strategy):
    errors = []
    replay = make(256, LAYOUT, strategy=strategy, **PRIORITIES)
    replay.insert(records(20))

    def use(call):
        try:
            while True:
                call()
        except Exception as error:  # the test looks at it
            errors.append(error)

    calls = [
        lambda: replay.insert(records(20)),
        lambda: replay.sample(64, 0.4),
        lambda: replay.update_priorities(np.arange(64), np.ones(64)),
        replay.check,
    ]
    threads = [in_thread(lambda call=call: use(call)) for call in calls]
    time.sleep(0.1)
    replay.close()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert [type(error) for error in errors] == [ClosedError] * len(threads), errors


FORK = """
import os, numpy as np
from tests.system.test_replay_ends import LAYOUT, PRIORITIES, records
from impls.replay import ClosedError, attach, make
replay = make(8, LAYOUT, shared=True, **PRIORITIES)
replay.insert(records(5))
handle = replay.handle()
if not (child := os.fork()):
    try:
        replay.insert(records(1))
    except ClosedError as error:
        assert "spawn" in str(error)
        attach(handle).insert(records(1))
        os._exit(3)
    os._exit(4)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
assert (replay.written, replay.check()) == (6, 0)
"""


def test_a_forked_child_gets_a_sentence_and_its_parent_goes_on():
    run_python("-W", "ignore", "-c", FORK, seconds=60)


def test_a_handle_of_another_layout_or_a_closed_replay():
    with make(8, LAYOUT, shared=True, **PRIORITIES) as replay, make(8, WIDER, shared=True, **PRIORITIES) as other:
        with pytest.raises(ValueError, match="Layout"):
            attach(replay.handle(), WIDER)
        mixed = ReplayHandle("two_lock_checked", replay.settings, other.handle().memory)
        with pytest.raises(ValueError, match="another layout"):
            attach(mixed)
        sent = pickle.loads(pickle.dumps(replay.handle()))
        with attach(sent) as again:
            again.insert(records(3))
        assert replay.written == 3
        number, size = replay.handle().memory._number, replay.handle().memory.attach().nbytes
        for length in (0, size - 1, size + 1):  # memory that others have mapped is never cut
            with pytest.raises(PermissionError):
                os.ftruncate(number, length)
    with pytest.raises(ClosedError):
        attach(sent)


def test_a_handle_that_outlives_its_replay_reaches_no_other():
    with make(8, LAYOUT, shared=True, **PRIORITIES) as made:
        handle = pickle.dumps(made.handle())
        number = made.handle().memory._number
    others = []
    try:
        while not others or others[-1].handle().memory._number != number:  # the same process, shape and descriptor
            assert len(others) < 100
            others.append(make(8, LAYOUT, shared=True, **PRIORITIES))
        with pytest.raises(ClosedError):
            attach(pickle.loads(handle))
        with attach(pickle.loads(pickle.dumps(others[-1].handle()))) as again:
            again.insert(records(3))
        assert others[-1].written == 3
    finally:
        for other in others:
            other.close()


def _hand_on(handle, pipe):
    """Attach to a handle in a grandchild, which gets it from a child that has other descriptors than the creator."""
    others = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
    grandchild = multiprocessing.get_context("spawn").Process(target=_insert, args=(handle, pipe))
    grandchild.start()
    grandchild.join(PATIENCE_SECONDS)
    for number in others:
        os.close(number)


def _insert(handle, pipe):
    with attach(handle) as replay:
        replay.insert(records(2))
        pipe.send(replay.written)


def test_a_child_hands_the_handle_on_to_its_own_child():
    with contextlib.ExitStack() as stack:
        for _ in range(50):  # so that the memory's number here is that of no file in the child
            stack.enter_context(Path(os.devnull).open())
        replay = stack.enter_context(make(8, LAYOUT, shared=True, **PRIORITIES))
        context = server()  # whose children have it by another number
        mine, theirs = context.Pipe()
        child = context.Process(target=_hand_on, args=(replay.handle(), theirs))
        child.start()
        try:
            assert mine.poll(PATIENCE_SECONDS)
            assert mine.recv() == replay.written == 2
        finally:
            child.join(PATIENCE_SECONDS)
            child.kill()


def test_replays_leave_no_descriptors_or_maps_behind():
    def counted():
        with open("/proc/self/maps") as maps:  # noqa: PTH123
            return len(os.listdir("/proc/self/fd")), sum("fanout-replay" in line for line in maps)  # noqa: PTH208

    segments = set(os.listdir("/dev/shm"))  # noqa: PTH208
    before = counted()
    for _ in range(5):
        with make(8, LAYOUT, shared=True, **PRIORITIES) as replay, attach(replay.handle()) as other:
            other.insert(records(3))
            assert counted() > before
        with pytest.raises(MemoryError):
            make(10**14, LAYOUT, shared=True, **PRIORITIES)
        del replay, other
    assert counted() == before
    assert not {name for name in set(os.listdir("/dev/shm")) - segments if "fanout" in name}  # noqa: PTH208


def test_what_is_unknown_where_proc_cannot_be_read(monkeypatch):
    me, read, errors = process(), Path.read_text, {}

    def guarded(path, *arguments, **options):
        for start, error in errors.items():
            if str(path).startswith(start):
                raise error
        return read(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", guarded)
    errors["/proc/meminfo"] = PermissionError(13, "Permission denied")
    with make(8, LAYOUT, **PRIORITIES) as replay:
        replay.insert(records(3))
        assert len(replay) == 3
    errors["/proc/"] = OSError(24, "Too many open files")
    assert is_alive(*me)  # whom nobody can look at is not taken for dead
    with pytest.raises(OSError, match="Too many open files"):
        process()
    errors["/proc/"] = FileNotFoundError(2, "No such file or directory")
    with pytest.raises(OSError, match="/proc"):
        make(8, LAYOUT, **PRIORITIES)


# Interruptions


class Interrupted(Exception):
    pass


@contextlib.contextmanager
def interrupted_after(seconds):
    """Raise Interrupted in the main thread after so many seconds, as Ctrl-C raises KeyboardInterrupt."""

    def interrupt(*_):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("strategy", VALID)
def test_an_interruption_of_a_wait_leaves_no_lock_behind(strategy):
    with make(8, LAYOUT, strategy=strategy, **PRIORITIES) as replay:
        replay.insert(records(5))
        bank = replay._banks[0]
        inside = threading.Event()

        def stay():
            with replay._alone(bank):
                inside.set()
                time.sleep(0.3)

        thread = in_thread(stay)
        inside.wait()
        with pytest.raises(Interrupted), interrupted_after(0.1):
            replay.check()
        thread.join()
        lengths = []
        in_thread(lambda: lengths.append(len(replay.sample(2, 0.4).sequence))).join(5)
        assert lengths == [2], "the lock is still taken"
        replay.insert(records(2))
        assert replay.check() == 0


def test_a_state_that_is_loaded_in_part_leaves_an_empty_replay(monkeypatch):
    with make(8, LAYOUT, **PRIORITIES) as replay:
        replay.insert(records(5))
        state = replay.state_dict()
        replay.insert(records(6))

        def interrupt(*_):
            raise Interrupted

        with monkeypatch.context() as patched, pytest.raises(Interrupted):
            patched.setattr(replay, "_audit", interrupt)
            replay.load_state_dict(state | {"leaves": state["leaves"] * 7})
        replay.insert(records(1))
        assert replay.check() == 0
        inspect(replay, Plan("two_lock_checked", layout=Layout((1,), "uint8", frames=2)))


# States beside callers


class Stopped:
    """A caller in a thread, with a map of its own of the block, that stops at a point of one call."""

    def __init__(self, replay, call, point):
        self.result, self.words = None, replay._memory.view(0, (GRANTED + 64,), np.int64)
        own = type(replay)(replay.settings, replay._memory)
        own._banks[0].view[ACTOR] = NUMBER
        self.words[MODE] = steps.SCRIPTED
        self._thread = threading.Thread(target=self._run, args=(own, call), daemon=True)
        self._thread.start()
        until(lambda: self.words[ARRIVED + NUMBER])
        while self.words[ARRIVED + NUMBER] != point:
            self.words[ARRIVED + NUMBER], self.words[GRANTED + NUMBER] = 0, 1
            until(lambda: self.words[ARRIVED + NUMBER])

    def _run(self, own, call):
        self.result = call(own)

    def go_on(self):
        """Let it end; returns what its call returned."""
        self.words[MODE] = steps.FREE
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        return self.result


def test_a_batch_is_of_one_state_though_the_words_come_again():
    with make(CAPACITY, LAYOUT, trial=True, **SETTINGS) as replay, make(CAPACITY, LAYOUT, **USUAL) as other:
        replay.insert(records(CAPACITY, 1))
        other.insert(records(CAPACITY, 2))
        words = replay._banks[0].words.copy()
        sampler = Stopped(replay, lambda own: own.sample(8, 0.4, np.random.default_rng(0)), steps.READ_SECOND)
        replay.load_state_dict(other.state_dict())
        assert (replay._banks[0].words == words).all()
        batch = sampler.go_on()
        for name in ("observation", "next_observation"):
            assert (batch.rows[name] == 2).all()


@pytest.mark.parametrize("strategy", ["two_lock_checked", "two_lock_lazy", "banked", "none"])
def test_a_sample_waits_while_every_slot_is_written(strategy):
    for options in ({}, {"distinct": True}, {"uniforms": np.full(8, 0.5)}):
        how = {"rng": np.random.default_rng(0)} | options
        settings = SETTINGS | {"strategy": strategy}
        with ThreadPoolExecutor() as pool, make(CAPACITY, LAYOUT, trial=True, **settings) as replay:
            usual = type(replay)(dataclasses.replace(replay.settings, trial=False), replay._memory)
            for fillers in (False, True):
                replay.insert(records(CAPACITY, 0))
                new = {"records": records(CAPACITY, 2), "drawable": np.full(CAPACITY, not fillers)}
                writer = Stopped(replay, lambda own, new=new: own.insert(**new), steps.SECOND_HALF)
                batch = pool.submit(lambda usual=usual, how=how: usual.sample(8, 0.4, **how))
                with pytest.raises(TimeoutError):
                    batch.result(0.05)
                writer.go_on()
                if fillers:
                    with pytest.raises(RuntimeError, match=r"nothing to sample|0 can be sampled"):
                        batch.result(PATIENCE_SECONDS)
                else:
                    rows = batch.result(PATIENCE_SECONDS).rows
                    assert (rows["observation"] == rows["next_observation"]).all() and (rows["observation"] == 2).all()


def test_a_state_is_saved_however_many_write():
    with make(1 << 18, LAYOUT, trial=True, **SETTINGS) as replay:
        replay.insert(records(4, 1))
        writer = Stopped(replay, lambda own: own.insert(records(3, 2)), steps.SECOND_HALF)
        states, inserted, ending = [], [0], threading.Event()

        def write():
            while not ending.is_set():
                replay.insert(records(1, 3))
                inserted[0] += 1

        busy = [in_thread(write)]
        saver = in_thread(lambda: states.append(replay.state_dict()))
        before = -1
        while before < inserted[0] < 1 << 13:
            before = inserted[0]
            time.sleep(0.2)
        assert inserted[0] < 1 << 13, "inserts began however long a state had waited"
        assert not states
        writer.go_on()
        saver.join(PATIENCE_SECONDS)
        (state,) = states
        assert state["drawable"].all()
        until(lambda: inserted[0] > before + 10)
        ending.set()
        busy[0].join(PATIENCE_SECONDS)
        assert (replay._banks[0].ranges()[:, 1] == 0).all()
        assert (replay.check(), replay.lost) == (0, 0)
