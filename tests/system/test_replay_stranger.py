"""What somebody who is new to the replay tries first, and what it answers."""

import copy
import ctypes
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from impls import replay
from impls.replay.block import is_alive, process
from tests.nursery import run_python

pytest.importorskip("numba")
LAYOUT = replay.Layout((4,), "float32", choices=2)
PRIORITIES = {"alpha": 0.6, "epsilon": 1e-6}


@pytest.fixture
def memory():
    with replay.make(8, LAYOUT, **PRIORITIES) as made:
        yield made


def run(code, **environment):
    """What a Python of its own prints."""
    return run_python("-c", code, seconds=100, **environment).stdout.strip()


MAKE = """
from impls import replay
try:
    replay.make(8, replay.Layout((4,), "float32"), alpha=0.6, epsilon=1e-6)
except (ImportError, RuntimeError) as error:
    print(type(error).__name__, error)
"""


def test_without_the_compiler_a_sentence_names_the_extra():
    blocked = "import sys; sys.modules['numba'] = None\n"
    answer = run(blocked + MAKE)
    assert answer.startswith("ImportError this replay is compiled by numba") and "install the extra 'numba'" in answer


def test_with_the_compiler_switched_off():
    answer = run(MAKE, NUMBA_DISABLE_JIT="1")
    assert answer == "RuntimeError a replay's kernels are compiled, and NUMBA_DISABLE_JIT is set"


@pytest.mark.parametrize(
    ("layout", "sentence"),
    [
        (None, "layout must be a Layout, not NoneType"),
        ((4,), "layout must be a Layout, not tuple"),
        (replay.Layout((4,), "object"), "observation must be of a numeric dtype, not object"),
        (replay.Layout((4,), "U3"), "observation must be of a numeric dtype, not <U3"),
        (replay.Layout(4, "float32"), "observation must be a shape such as"),
        (replay.Layout((-1,), "float32"), "each size of an observation must be at least 1, not -1"),
        (replay.Layout((4,), "float32", frames=0), "frames must be at least 1, not 0"),
        (replay.Layout((4,), "float32", choices=-1), "choices must be at least 0, not -1"),
        (replay.Layout((4,), "float32", action_size=-2), "action_size must be at least 0, not -2"),
    ],
)
def test_layouts_that_no_record_can_have(layout, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        replay.make(8, layout, **PRIORITIES)


def test_drawable_given_in_the_place_of_errors(memory):
    storage = replay.LocalStorage(LAYOUT, 2)
    storage.append(np.zeros(4), 0, 0.0, np.zeros(4), False)
    with pytest.raises(ValueError, match=r"errors are bool: .* drawable="):
        memory.insert(*storage.take())
    assert memory.written == 0


def test_outputs_are_made_by_the_replay_and_stay_in_their_process(memory):
    memory.insert(LAYOUT.allocate(3))
    out = memory.outputs(2)
    with pytest.raises(TypeError, match=r"out must be made by outputs\(2\), not dict"):
        memory.sample(2, 0.4, out={})
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be copied"):
            duplicate(out)


def test_a_c_library_without_what_the_mutexes_need(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with pytest.raises(RuntimeError, match=r"need glibc 2\.30 or later"):
        replay.make(8, LAYOUT, **PRIORITIES)


@pytest.fixture
def refused(monkeypatch):
    """Switches on that files whose path begins so cannot be read."""

    def refuse(start, error):
        read = Path.read_text

        def guarded(path, *arguments, **options):
            if str(path).startswith(start):
                raise error
            return read(path, *arguments, **options)

        monkeypatch.setattr(Path, "read_text", guarded)

    return refuse


def test_a_process_that_nobody_can_look_at_is_not_taken_for_dead(refused):
    me = process()
    refused("/proc/", OSError(24, "Too many open files"))
    assert is_alive(*me)
    with pytest.raises(OSError, match="Too many open files"):
        process()


def test_memory_that_nobody_tells_the_size_of(refused):
    refused("/proc/meminfo", PermissionError(13, "Permission denied"))
    with replay.make(8, LAYOUT, **PRIORITIES) as made:
        made.insert(LAYOUT.allocate(3))
        assert len(made) == 3


def test_without_proc(refused):
    refused("/proc/", FileNotFoundError(2, "No such file or directory"))
    with pytest.raises(OSError, match="a replay needs /proc"):
        replay.make(8, LAYOUT, **PRIORITIES)


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(6, "No such device or address")])
def test_a_handle_whose_process_may_not_be_opened(monkeypatch, error):
    def refuse(*_):
        raise error

    with replay.make(8, LAYOUT, shared=True, **PRIORITIES) as made:
        handle = pickle.loads(pickle.dumps(made.handle()))
        monkeypatch.setattr(os, "open", refuse)
        with pytest.raises(replay.ClosedError, match=f"process {os.getpid()}, .* ask a process that is still attached"):
            replay.attach(handle)


def test_a_handle_that_outlives_its_replay_reaches_no_other():
    with replay.make(8, LAYOUT, shared=True, **PRIORITIES) as made:
        handle = pickle.dumps(made.handle())
        number = made.handle().memory._number
    others = []
    try:
        while not others or others[-1].handle().memory._number != number:  # the same process, shape and descriptor
            assert len(others) < 100
            others.append(replay.make(8, LAYOUT, shared=True, **PRIORITIES))
        with pytest.raises(replay.ClosedError, match="has closed the replay that it stands for"):
            replay.attach(pickle.loads(handle))
        with replay.attach(pickle.loads(pickle.dumps(others[-1].handle()))) as again:
            again.insert(LAYOUT.allocate(3))
        assert others[-1].written == 3
    finally:
        for other in others:
            other.close()


def test_no_process_may_cut_the_memory_that_others_have_mapped():
    with replay.make(8, LAYOUT, shared=True, **PRIORITIES) as made:
        number, size = made.handle().memory._number, made.handle().memory.attach().nbytes
        for length in (0, size - 1, size + 1):
            with pytest.raises(PermissionError):
                os.ftruncate(number, length)
