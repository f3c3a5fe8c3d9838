"""What a replay says to misuse: one clear sentence, with nothing written, and never a crash."""

import contextlib
import copy
import multiprocessing
import os
import pickle
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import impls.replay
from impls.replay import ClosedError, Layout, attach, make, strategies
from impls.replay.registry import strategy_class
from tests.nursery import run_python
from tests.replay_stress import Plan, inspect

LAYOUT = Layout((3,), "float32", choices=4)
WIDER = Layout((30,), "float32", choices=4)
PRIORITIES = {"alpha": 0.6, "epsilon": 1e-3}
VALID = [name for name in strategies() if strategy_class(name).valid]
PATIENCE_SECONDS = 60.0


def records(count, layout=LAYOUT):
    number = np.arange(count)
    return {
        name: np.ones((count, *shape), dtype)
        * (number % layout.choices if name == "action" else number).reshape(-1, *[1] * len(shape)).astype(dtype)
        for name, (shape, dtype) in layout.fields.items()
    }


@pytest.fixture(params=["two_lock_checked"])
def replay(request):
    """A replay of 8 records with 5 in it, which must be as it was after a test."""
    with make(8, LAYOUT, strategy=request.param, **PRIORITIES) as made:
        made.insert(records(5), np.arange(5.0))
        before = made.state_dict()
        yield made
        after = made.state_dict()
        for key, value in before.items():
            np.testing.assert_equal(after[key], value, key)


def test_names_of_strategies_can_be_asked_after_one_was_used():
    make(4, LAYOUT, **PRIORITIES).close()
    assert "two_lock_checked" in impls.replay.strategies()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"capacity": 0}, "capacity must be at least 1"),
        ({"capacity": 10**14}, "GB are needed and .* GB are free: lower the capacity"),
        ({"capacity": 10**30}, "GB are needed and .* GB are free: lower the capacity"),
        ({"capacity": 2.5}, "capacity must be an integer"),
        ({"fanout": 1}, "fanout must be at least 2"),
        ({"fanout": True}, "fanout must be an integer"),
        ({"dtype": "float16"}, "dtype must be one of"),
        ({"alpha": float("nan")}, "alpha must be at least 0"),
        ({"alpha": float("inf")}, "alpha must be at least 0"),
        ({"epsilon": float("nan")}, "epsilon above 0"),
        ({"epsilon": 0.0}, "epsilon above 0"),
        ({"banks": 2}, "has one bank"),
        ({"strategy": "banked", "banks": 3}, "capacity must be a multiple of banks"),
        ({"strategy": "rwlock", "shared": True}, "shared must be False"),
        ({"strategy": "two_locks"}, "strategy must be one of"),
        ({"max_priority": "always"}, "max_priority must be one of"),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_settings_out_of_bounds(settings, sentence, shared):
    arguments = {"capacity": 8, "layout": LAYOUT, "shared": shared} | PRIORITIES | settings
    with pytest.raises((ValueError, TypeError, MemoryError), match=sentence):
        make(**arguments)


@pytest.mark.parametrize(
    ("change", "errors", "drawable", "sentence"),
    [
        ({"reward": np.zeros(3)}, None, None, r"observation must be \[3, 3\], not \[2, 3\]"),
        ({"reward": np.float32(0)}, None, None, r"must be \[1"),
        ({"observation": np.zeros((2, 4))}, None, None, r"observation must be \[2, 3\], not \[2, 4\]"),
        ({"terminated": True}, None, None, r"terminated must be \[2\], not \[\]"),
        ({"observation": np.full((2, 3), "x")}, None, None, "observation is stored as float32"),
        ({"more": np.zeros(2)}, None, None, "records must have observation"),
        ({}, [1.0], None, r"errors must be \[2\]"),
        ({}, [1.0, float("nan")], None, "a TD error is nan"),
        ({}, [1.0, float("inf")], None, "a TD error is inf"),
        ({}, [1.0, 1.0], [True, False], r"errors must be \[1\]"),
        ({}, None, [True], r"drawable must be \[2\]"),
    ],
)
def test_wrong_inserts(replay, change, errors, drawable, sentence):
    with pytest.raises(ValueError, match=sentence):
        replay.insert(records(2) | change, errors, drawable)


def test_more_wrong_inserts(replay):
    with pytest.raises(ValueError, match="records must have"):
        replay.insert({"reward": np.zeros(2)})
    with pytest.raises(ValueError, match="9 records at once, the capacity is 8"):
        replay.insert(records(9))
    with pytest.raises(ValueError, match="packed rows"):
        replay.insert(np.zeros((2, 2), replay.row))
    short = np.dtype({"names": replay.row.names, "formats": [replay.row[name] for name in replay.row.names]})
    for other in (np.float64, short):
        with pytest.raises(ValueError, match="packed rows"):
            replay.insert(np.zeros(2, other))
    replay.insert(records(0))
    replay.insert(np.zeros(0, replay.row))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"batch": -1}, "batch must be at least 0"),
        ({"batch": 1.5}, "batch must be an integer"),
        ({"beta": float("nan")}, "beta must be finite and at least 0"),
        ({"beta": -0.1}, "beta must be finite and at least 0"),
        ({"beta": float("inf")}, "beta must be finite and at least 0"),
        ({"uniforms": np.array([0.5, 1.0])}, r"uniforms must be \[2\] within \[0, 1\)"),
        ({"uniforms": np.array([0.5, -0.1])}, r"uniforms must be \[2\] within \[0, 1\)"),
        ({"uniforms": np.array([0.5, np.nan])}, r"uniforms must be \[2\] within \[0, 1\)"),
        ({"uniforms": np.array([0.5])}, r"uniforms must be \[2\] within \[0, 1\)"),
    ],
)
@pytest.mark.parametrize("replay", ["two_lock_checked", "banked"], indirect=True)
def test_wrong_samples(replay, arguments, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        replay.sample(**{"batch": 2, "beta": 0.4} | arguments)


@pytest.mark.parametrize("replay", ["two_lock_checked", "banked"], indirect=True)
def test_outputs_of_another_size_or_replay(replay):
    with pytest.raises(ValueError, match="out is for batches of 3, not 2"):
        replay.sample(2, 0.4, out=replay.outputs(3))
    with make(8, LAYOUT, **PRIORITIES) as same, make(8, WIDER, **PRIORITIES) as other:
        with pytest.raises(ValueError, match="out is for records of another layout"):
            replay.sample(2, 0.4, out=other.outputs(2))
        other.insert(records(4, WIDER))
        with pytest.raises(ValueError, match="out is for records of another layout"):
            other.sample(2, 0.4, out=replay.outputs(2))
        assert len(replay.sample(2, 0.4, out=same.outputs(2)).sequence) == 2


def test_sampling_more_than_is_stored_and_nothing(replay):
    assert set(replay.sample(100, 0.4).sequence) <= set(range(5))
    assert replay.sample(0, 0.4).sequence.shape == (0,)
    with make(8, LAYOUT, **PRIORITIES) as empty, pytest.raises(RuntimeError, match="there is nothing to sample"):
        empty.sample(1, 0.4)


def test_wrong_updates(replay):
    with pytest.raises(ValueError, match="one each"):
        replay.update_priorities(np.array([0, 1]), [1.0])
    for ask in (lambda them: replay.update_priorities(them, [1.0, 1.0]), replay.retrieve_priorities):
        with pytest.raises(ValueError, match=r"must be \[B\].* not \[1, 2\]"):
            ask(np.array([[0, 1]]))
    with pytest.raises(ValueError, match="a TD error is nan"):
        replay.update_priorities(np.array([0, 1]), [1.0, float("nan")])
    strange = np.array([-1, -5, 5, 2**62, 2**62 + 1, 2**63 - 1, -(2**63)])
    assert not replay.update_priorities(strange, np.ones(7)).any()


@pytest.mark.parametrize("strategy", VALID)
def test_a_replay_of_one_record(strategy):
    with make(1, LAYOUT, strategy=strategy, **PRIORITIES) as replay:
        for number in range(3):
            replay.insert(records(1))
            assert (replay.sample(2, 0.4).sequence == number).all()
        assert (replay.check(), len(replay), replay.written) == (0, 1, 3)


@pytest.mark.slow  # each is compiled for
@pytest.mark.parametrize("fanout", [2, 10**9])
def test_strange_fanouts_and_an_insert_of_everything(fanout):
    with make(100, LAYOUT, fanout=fanout, **PRIORITIES) as replay:
        replay.insert(records(100), np.arange(100.0))
        replay.insert(records(100), np.arange(100.0))
        assert replay.sample(50, 0.4).sequence.min() >= 100
        assert replay.check() == 0


# Closed, forked, sent


def test_every_call_of_a_closed_replay():
    replay = make(8, LAYOUT, shared=True, **PRIORITIES)
    replay.insert(records(5))
    out, state = replay.outputs(2), replay.state_dict()
    replay.close()
    replay.close()
    calls = [
        lambda: replay.insert(records(1)),
        lambda: replay.sample(2, 0.4),
        lambda: replay.sample(2, 0.4, out=out),
        lambda: replay.update_priorities(np.arange(2), np.ones(2)),
        lambda: len(replay),
        lambda: replay.written,
        lambda: replay.lost,
        replay.check,
        replay.recover,
        replay.handle,
        replay.state_dict,
        lambda: replay.load_state_dict(state),
    ]
    for call in calls:
        with pytest.raises(ClosedError, match="this replay is closed"):
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
        lambda: replay.handle() if replay._memory.shared else len(replay),
    ]
    threads = [threading.Thread(target=use, args=(call,), daemon=True) for call in calls[:4]]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    replay.close()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert [type(error) for error in errors] == [ClosedError] * len(threads), errors


def test_a_forked_child_gets_a_sentence_and_its_parent_goes_on():
    script = (
        "import os, numpy as np\n"
        "from tests.system.test_replay_misuse import LAYOUT, PRIORITIES, records\n"
        "from impls.replay import ClosedError, attach, make\n"
        "replay = make(8, LAYOUT, shared=True, **PRIORITIES)\n"
        "replay.insert(records(5)); handle = replay.handle()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    try:\n"
        "        replay.insert(records(1))\n"
        "    except ClosedError as error:\n"
        "        assert 'spawn' in str(error)\n"
        "        attach(handle).insert(records(1))\n"
        "        os._exit(3)\n"
        "    os._exit(4)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3\n"
        "assert (replay.written, replay.check()) == (6, 0)\n"
    )
    run_python("-W", "ignore", "-c", script, seconds=60)


def test_handles_of_private_replays_and_pickled_replays():
    with make(8, LAYOUT, **PRIORITIES) as replay:
        with pytest.raises(ValueError, match="make the replay with shared=True"):
            replay.handle()
        for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=r"send its handle\(\)"):
                duplicate(replay)


def test_a_handle_of_another_layout_or_a_closed_replay():
    with make(8, LAYOUT, shared=True, **PRIORITIES) as replay, make(8, WIDER, shared=True, **PRIORITIES) as other:
        with pytest.raises(ValueError, match="the replay is of Layout"):
            attach(replay.handle(), WIDER)
        mixed = impls.replay.ReplayHandle("two_lock_checked", replay.settings, other.handle().memory)
        with pytest.raises(ValueError, match="another layout"):
            attach(mixed)
        sent = pickle.loads(pickle.dumps(replay.handle()))
        with attach(sent) as again:
            again.insert(records(3))
        assert replay.written == 3
    with pytest.raises(ClosedError, match="closed the replay"):
        attach(sent)


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
        context = multiprocessing.get_context("forkserver")  # whose children have it by another number
        mine, theirs = context.Pipe()
        child = context.Process(target=_hand_on, args=(replay.handle(), theirs))
        child.start()
        try:
            assert mine.poll(PATIENCE_SECONDS)
            assert mine.recv() == replay.written == 2
        finally:
            child.join(PATIENCE_SECONDS)
            child.kill()


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
def test_an_interruption_while_a_call_waits_leaves_no_lock_behind(strategy):
    with make(8, LAYOUT, strategy=strategy, **PRIORITIES) as replay:
        replay.insert(records(5))
        bank = replay._banks[0]
        inside = threading.Event()

        def stay():
            with replay._alone(bank):
                inside.set()
                time.sleep(0.3)

        thread = threading.Thread(target=stay)
        thread.start()
        inside.wait()
        with pytest.raises(Interrupted), interrupted_after(0.1):
            replay.check()
        thread.join()
        lengths = []
        other = threading.Thread(target=lambda: lengths.append(len(replay.sample(2, 0.4).sequence)), daemon=True)
        other.start()
        other.join(5)
        assert lengths == [2], "the lock is still taken"
        replay.insert(records(2))
        assert replay.check() == 0


def test_a_state_whose_loading_is_cut_short_leaves_an_empty_replay(monkeypatch):
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


# Nothing stays behind


def test_replays_leave_no_descriptors_maps_or_named_segments_behind():
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
