"""What a replay refuses: values no record may have, wrong calls and settings; one sentence, with nothing written."""

import copy
import ctypes
import functools
import pickle
import re
import warnings

import numpy as np
import pytest

import impls
from impls import cores, replay
from impls.replay import Layout, LocalStorage, NStep
from impls.replay.local_storages import LocalStorages
from tests.nursery import run_python

pytest.importorskip("numba")

DISCRETE, CONTINUOUS = (Layout((2,), "float32", **action) for action in ({"choices": 3}, {"action_size": 2}))
BYTES = Layout((2,), "float32", choices=256)
STACKED = Layout((2,), "uint8", frames=3, choices=3)
U8, I32, F32, FLAGS, COMPLEX = (
    Layout((2,), dtype, choices=3) for dtype in ("uint8", "int32", "float32", "bool", "complex64")
)
PRIORITIES = {"alpha": 0.6, "epsilon": 1e-6}
NAN, INF, MOST = float("nan"), float("inf"), np.finfo(np.float32).max


def plain_and_compiled(layout, capacity=512):
    yield replay.make(capacity, layout, **PRIORITIES)
    yield replay.PrioritizedBuffer(impls.make("numpy", capacity), layout, **PRIORITIES)


def kinds(layout):
    yield from plain_and_compiled(layout)
    if layout.frames == 1:
        yield replay.SegmentedReplay(2, 300, layout)


def records(layout, count, **changes):
    return {**layout.allocate(count), **changes}


def insert(buffer, rows):
    more = [np.ones(len(rows["terminated"]))] if isinstance(buffer, replay.SegmentedReplay) else []
    buffer.insert(rows, *more)


# Values


def values_that_no_record_has():
    """(layout, field, value, words)."""
    for bad in (3, -1, 300, 256, 0.5, -0.0001, NAN):
        yield DISCRETE, "action", bad, f"action must be an integer from 0 to 2, not {bad}"
    yield BYTES, "action", -1, "from 0 to 255, not -1"
    for layout, name in ((DISCRETE, "reward"), (CONTINUOUS, "action")):
        for bad in (NAN, INF, -INF, 1e39):
            yield layout, name, bad, f"{name} must be finite and at most 3.4e+38 in size, not {bad}"
    yield DISCRETE, "action", "left", "numbers, not <U4"
    yield DISCRETE, "reward", None, "numbers, not object"


def test_values_that_no_record_may_have():
    for layout in (DISCRETE, CONTINUOUS, BYTES):
        buffers = [*kinds(layout)]
        for of, name, bad, words in values_that_no_record_has():
            for count in (1, 2, 300) if of is layout else ():
                values = np.full((count, *layout.fields[name][0]), bad if isinstance(bad, (str, type(None))) else 0)
                values = values.astype(type(bad)) if isinstance(bad, (int, float)) else values
                values[-1] = bad
                for buffer in buffers:
                    with warnings.catch_warnings():
                        warnings.simplefilter("error")
                        with pytest.raises(ValueError, match=re.escape(words)):
                            insert(buffer, records(layout, count, **{name: values}))
                    assert buffer.written == 0


@pytest.mark.parametrize("bad", [NAN, INF, -0.1, 1.001, 5])
def test_a_discount_is_within_0_and_1(bad):
    layout = NStep(DISCRETE, 2, 0.9).layout
    for buffer in kinds(layout):
        with pytest.raises(ValueError, match=re.escape(f"discount must be within [0, 1], not {bad}")):
            insert(buffer, records(layout, 2, discount=np.array([1.0, bad])))
        assert buffer.written == 0
        insert(buffer, records(layout, 2, discount=[1, 0]))


def test_stacked_frames_are_inserted_with_what_may_be_sampled():
    for buffer in kinds(STACKED):
        with pytest.raises(ValueError, match=r"3 stacked frames need drawable=.* the 2 frames .*\.take\(\)"):
            buffer.insert(records(STACKED, 5))
        buffer.insert(records(STACKED, 0))
        for bad in (0.5, 300, -1):
            with pytest.raises(ValueError, match=f"frame is stored as uint8, which {bad} of"):
                buffer.insert(records(STACKED, 5, frame=np.full((5, 2), bad)), drawable=[0, 0, 1, 1, 0])
        assert buffer.written == 0
        buffer.insert(records(STACKED, 5), drawable=[0, 0, 1, 1, 0])
        assert (len(buffer), buffer.written) == (2, 5)
        for bad, words in (([2, 3, 0, 0, 0], "bool"), ([0.5] * 5, "bool"), ([], r"\[5\]"), ([1], r"\[5\]")):
            with pytest.raises(ValueError, match=f"drawable must be {words}"):
                buffer.insert(records(STACKED, 5), drawable=bad)


# Conversions


def entries(layout):
    """(what takes one transition of the layout, what it has taken) of everything that takes one."""
    for buffer in kinds(layout):
        yield functools.partial(insert, buffer), functools.partial(getattr, buffer, "written")
    alone, several = LocalStorage(layout, 4), LocalStorages(layout, 4, 1)
    names = ("observation", "action", "reward", "next_observation", "terminated")
    yield lambda rows: alone.append(*(np.asarray(rows[name])[0] for name in names)), lambda: len(alone)
    yield lambda rows: several.append(rows, [True]), lambda: int(several._counts[0])
    steps = NStep(layout, 1, 0.9)
    yield steps.append, lambda: int(steps._steps[0])


def transition(layout, **changes):
    return {name: np.zeros((1, *shape), dtype) for name, (shape, dtype) in layout.transition.items()} | changes


LOST = [
    (U8, "observation", [[0.7, 0]], "0.7 of float64"),
    (U8, "next_observation", np.float32([[0.5, 0]]), "0.5 of float32"),
    (U8, "observation", [[0, 300]], "300 of int64"),
    (U8, "observation", np.int8([[0, -1]]), "-1 of int8"),
    (U8, "observation", [[np.nan, 0]], "nan of float64"),
    (U8, "next_observation", [["a", "b"]], "'a' of <U1"),
    (I32, "observation", [[0, 2**31 + 5]], "2147483653 of int64"),
    (I32, "observation", np.uint64([[0, 2**63]]), "9223372036854775808 of uint64"),
    (F32, "observation", [[1 + 2j, 0]], "(1+2j) of complex128"),
    (F32, "observation", [[None, 0]], "None of object"),
    (F32, "observation", np.array([[1, 2]], "m8[s]"), "of timedelta64"),
    (FLAGS, "observation", [[0, 2]], "2 of int64"),
    (F32, "terminated", [np.nan], "nan of float64"),
    (F32, "terminated", ["False"], "'False' of <U5"),
    (F32, "terminated", [2], "2 of int64"),
]
KEPT = [
    (U8, "observation", [[0, 255]]),
    (U8, "observation", [[True, False]]),
    (I32, "next_observation", np.uint16([[0, 65535]])),
    (F32, "observation", [[0.5, 3]]),
    (F32, "observation", np.array([[2, 7]])),
    (F32, "observation", np.array([[0.5, np.nan]], ">f4")),
    (COMPLEX, "observation", [[1 + 2j, 0]]),
    (FLAGS, "observation", [[1, 0]]),
    (F32, "terminated", [1.0]),
    (F32, "terminated", np.uint8([1])),
    *((DISCRETE, "action", [good]) for good in (0, 2, 2.0, np.uint8(2), np.int64(2), True)),
    *((DISCRETE, "reward", [good]) for good in (MOST, -float(MOST), 1, True, np.float16(2))),
    (BYTES, "action", np.uint8([255])),
    (CONTINUOUS, "action", [[-float(MOST)] * 2]),
]


def test_a_conversion_that_loses_the_value_is_refused():
    for layout, name, bad, words in LOST:
        for take, count in entries(layout):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with pytest.raises(ValueError, match=f"{name} is stored as .*{re.escape(words)}"):
                    take(transition(layout, **{name: np.asarray(bad)}))
            assert count() == 0
            take(transition(layout))
            assert count() == 1


def test_a_conversion_that_keeps_the_value_is_made():
    for layout, name, good in KEPT:
        for take, count in entries(layout):
            take(transition(layout, **{name: good}))
            assert count() == 1
        for buffer in kinds(layout):
            insert(buffer, {each: np.repeat(part, 300, 0) for each, part in transition(layout, **{name: good}).items()})
            beta = [0.4] if hasattr(buffer, "update_priorities") else []
            rows = buffer.sample(1, *beta, np.random.default_rng(0)).rows
            np.testing.assert_array_equal(rows[name], np.asarray(good))


# Calls


def short_rows(memory):
    """Rows whose fields do not lie where the replay's do."""
    names = memory.row.names
    return np.zeros(2, np.dtype({"names": names, "formats": [memory.row[name] for name in names]}))


def taken_by_place(memory):
    """Insert what a storage gives, with what may be sampled in the place of errors."""
    storage = LocalStorage(DISCRETE, 2)
    storage.append(np.zeros(2), 0, 0.0, np.zeros(2), False)
    memory.insert(*storage.take())


def with_fields(**changes):
    return lambda memory: memory.insert(records(DISCRETE, 2) | changes)


def with_errors(errors, drawable=None):
    return lambda memory: memory.insert(records(DISCRETE, 2), errors, drawable)


def sampling(batch=2, beta=0.4, *more, **by_name):
    return lambda memory: memory.sample(batch, beta, *more, **by_name)


def loading(**changes):
    return lambda memory: memory.load_state_dict(memory.state_dict() | changes)


CALLS = [  # (a call of a replay of 8 records, the error, what its message names)
    (with_fields(reward=np.zeros(3)), ValueError, ["observation", "[3, 2]", "[2, 2]"]),
    (with_fields(observation=np.zeros((2, 4))), ValueError, ["observation", "[2, 2]", "[2, 4]"]),
    (with_fields(terminated=True), ValueError, ["terminated", "[2]", "[]"]),
    (with_fields(more=np.zeros(2)), ValueError, ["records", "observation"]),
    (lambda m: m.insert({"reward": np.zeros(2)}), ValueError, ["observation", "reward"]),
    (lambda m: m.insert(records(DISCRETE, 9)), ValueError, ["9 records", "8"]),
    (lambda m: m.insert(np.zeros((2, 2), m.row)), ValueError, ["packed rows"]),
    (lambda m: m.insert(np.zeros(2)), ValueError, ["packed rows"]),
    (lambda m: m.insert(short_rows(m)), ValueError, ["packed rows"]),
    (lambda m: m.insert(None), TypeError, ["mapping", "None"]),
    (lambda m: m.insert([1, 2]), TypeError, ["mapping", "[1, 2]"]),
    (taken_by_place, ValueError, ["errors are bool", "drawable="]),
    (with_errors([1.0]), ValueError, ["errors", "[2]"]),
    (with_errors([1.0, NAN]), ValueError, ["TD error", "nan"]),
    (with_errors([1.0, INF]), ValueError, ["TD error", "inf"]),
    (with_errors([1.0, 1.0], [True, False]), ValueError, ["errors", "[1]"]),
    (with_errors(None, [True]), ValueError, ["drawable", "[2]"]),
    (with_errors([None, None]), TypeError, ["errors", "object"]),
    (with_errors([1j, 1j]), TypeError, ["errors", "complex128"]),
    (sampling(-1), ValueError, ["batch", "at least 0"]),
    (sampling(1.5), TypeError, ["batch", "integer"]),
    (sampling("2"), TypeError, ["batch", "'2'"]),
    (sampling(10**9), ValueError, ["1000000000 records", "GB"]),
    *((sampling(2, beta), ValueError, ["beta", "at least 0"]) for beta in (NAN, -0.1, INF)),
    (sampling(2, None), TypeError, ["beta", "None"]),
    (sampling(2, "0.4"), TypeError, ["beta", "'0.4'"]),
    (sampling(2, np.array([0.4, 0.4])), TypeError, ["beta", "array"]),
    (sampling(2, 0.4, 7), TypeError, ["rng", "default_rng(7)"]),
    *(
        (sampling(uniforms=np.array(us)), ValueError, ["[2]", "[0, 1)"])
        for us in ([0.5, 1], [0.5, -0.1], [0.5, NAN], [0.5])
    ),
    (sampling(uniforms=["a", "b"]), TypeError, ["uniforms", "numbers"]),
    (sampling(out={}), TypeError, ["outputs(2)", "dict"]),
    (lambda m: m.sample(2, 0.4, out=m.outputs(3)), ValueError, ["3", "2"]),
    (lambda m: m.update_priorities(np.array([0, 1]), [1.0]), ValueError, ["one each"]),
    (lambda m: m.update_priorities(np.array([[0, 1]]), [1.0, 1.0]), ValueError, ["[B]", "[1, 2]"]),
    (lambda m: m.update_priorities(np.array([0, 1]), [1.0, NAN]), ValueError, ["TD error", "nan"]),
    (lambda m: m.update_priorities([0.0], [1.0]), TypeError, ["sequence", "float64"]),
    (lambda m: m.update_priorities([True], [1.0]), TypeError, ["sequence", "bool"]),
    (lambda m: m.update_priorities([0], None), TypeError, ["errors", "None"]),
    (lambda m: m.retrieve_priorities(np.array([[0, 1]])), ValueError, ["[B]", "[1, 2]"]),
    (lambda m: m.retrieve_priorities([0.0]), TypeError, ["sequence", "float64"]),
    (lambda m: m.load_state_dict(None), TypeError, ["mapping", "None"]),
    (lambda m: m.load_state_dict({"banks": 3}), TypeError, ["banks", "3"]),
    (loading(arrays=None), TypeError, ["arrays", "None"]),
    (loading(written=4.5), TypeError, ["written", "4.5"]),
    (loading(largest=None), TypeError, ["largest", "None"]),
    (loading(leaves=None), TypeError, ["leaves", "object"]),
    (pickle.dumps, TypeError, ["handle()"]),
    (copy.copy, TypeError, ["handle()"]),
    (lambda m: m.handle(), ValueError, ["shared=True"]),
    (lambda m: pickle.dumps(m.outputs(2)), TypeError, ["copied"]),
    (replay.attach, TypeError, ["handle()"]),
    (lambda m: NStep(None, 2, 0.9), TypeError, ["layout", "NoneType"]),
    (lambda m: NStep(DISCRETE, 2, "0.9"), TypeError, ["gamma", "'0.9'"]),
    (lambda m: replay.SegmentedReplay(2, 3, None), TypeError, ["layout", "NoneType"]),
    (lambda m: replay.SegmentedReplay(2, 3, DISCRETE).sample(2, 0), TypeError, ["rng"]),
]


@pytest.mark.parametrize("strategy", ["two_lock_checked", "banked"])
def test_a_wrong_call_is_one_sentence_and_changes_nothing(strategy):
    with replay.make(8, DISCRETE, strategy=strategy, **PRIORITIES) as memory:
        memory.insert(records(DISCRETE, 4), np.arange(4.0))
        before = memory._memory.bytes.copy()
        for number, (call, error, words) in enumerate(CALLS):
            with pytest.raises(error) as refusal:
                call(memory)
            assert [word for word in words if word not in str(refusal.value)] == [], (number, refusal.value)
            assert (memory._memory.bytes == before).all(), (number, refusal.value)


def test_outputs_of_another_layout_are_refused():
    wide = Layout((30,), "float32", choices=3)
    made = [replay.make(8, layout, **PRIORITIES) for layout in (DISCRETE, DISCRETE, wide)]
    for buffer in made:
        buffer.insert(records(buffer.layout, 4))
    first, same, other = made
    for buffer, outputs in ((first, other), (other, first)):
        with pytest.raises(ValueError, match="another layout"):
            buffer.sample(2, 0.4, out=outputs.outputs(2))
    assert len(first.sample(2, 0.4, out=same.outputs(2)).sequence) == 2


# Settings

SETTINGS = [
    ({"capacity": 0}, "capacity.* 1"),
    ({"capacity": 10**14}, "GB .*GB are free"),
    ({"capacity": 2.5}, "capacity.* integer"),
    ({"fanout": 1}, "fanout.* 2"),
    ({"fanout": True}, "fanout.* integer"),
    ({"dtype": "float16"}, "dtype.* one of"),
    ({"alpha": NAN}, "alpha.* 0"),
    ({"alpha": INF}, "alpha.* 0"),
    ({"alpha": None}, "alpha.* None"),
    ({"epsilon": 0.0}, "epsilon above 0"),
    ({"epsilon": "1"}, "epsilon.* '1'"),
    ({"banks": 2}, "one bank"),
    ({"strategy": "banked", "banks": 3}, "capacity.* multiple of banks"),
    ({"strategy": "rwlock", "shared": True}, "shared must be False"),
    ({"strategy": "two_locks"}, "strategy.* one of"),
    ({"max_priority": "always"}, "max_priority.* one of"),
    ({"layout": None}, "Layout, not NoneType"),
    ({"layout": Layout((4,), "object")}, "numeric dtype, not object"),
    ({"layout": Layout((2,), None)}, "dtype of an observation"),
    ({"layout": Layout(4, "float32")}, "observation.* shape"),
    ({"layout": Layout((-1,), "float32")}, "observation.* 1, not -1"),
    ({"layout": Layout((4,), "float32", frames=0)}, "frames.* 1, not 0"),
    ({"layout": Layout((4,), "float32", choices=-1)}, "choices.* 0, not -1"),
    ({"layout": Layout((4,), "float32", action_size=-2)}, "action_size.* 0, not -2"),
]


@pytest.mark.parametrize("shared", [False, True], ids=["private", "shared"])
def test_settings_out_of_bounds(shared):
    for settings, words in SETTINGS:
        arguments = {"capacity": 8, "layout": DISCRETE, "shared": shared} | PRIORITIES | settings
        with pytest.raises((ValueError, TypeError, MemoryError), match=words):
            replay.make(**arguments)


MAKE = """
import impls
from impls import replay
print(impls.why_not("numba"))
try:
    replay.make(8, replay.Layout((4,), "float32"), alpha=0.6, epsilon=1e-6)
except (ImportError, RuntimeError) as error:
    print(type(error).__name__, error)
"""


def test_without_the_compiler_sentences_say_so():
    missing = run_python("-c", "import sys; sys.modules['numba'] = None\n" + MAKE).stdout.splitlines()
    assert missing[1].startswith("ImportError") and "'numba'" in missing[0] and "extra 'numba'" in missing[1]
    switched_off = run_python("-c", MAKE, NUMBA_DISABLE_JIT="1").stdout.splitlines()
    assert switched_off[1].startswith("RuntimeError") and all("NUMBA_DISABLE_JIT" in line for line in switched_off)


def test_a_c_library_without_robust_mutexes_is_named(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with pytest.raises(RuntimeError, match=r"glibc 2\.30"):
        replay.make(8, DISCRETE, **PRIORITIES)


def test_more_memory_than_there_is_is_refused(monkeypatch):
    monkeypatch.setattr(cores, "free_bytes", lambda: 1e6)
    images = Layout((100, 100), "uint8", choices=3)
    for make in (
        lambda: replay.PrioritizedBuffer(impls.make("numpy", 64), images, **PRIORITIES),
        lambda: replay.make(64, images, **PRIORITIES),
        lambda: replay.SegmentedReplay(1, 64, images),
        lambda: LocalStorage(images, 64),
        lambda: LocalStorages(images, 8, 8),
    ):
        with pytest.raises(MemoryError, match=r"0\.0 GB are free"):
            make()
    for buffer in plain_and_compiled(DISCRETE):
        buffer.insert(records(DISCRETE, 500))
        monkeypatch.setattr(cores, "free_bytes", lambda: 1e3)
        with pytest.raises(MemoryError):
            buffer.state_dict()
        monkeypatch.setattr(cores, "free_bytes", lambda: 1e6)


# The plain replay keeps the compiled one's promises

ASKED = [
    lambda m: m.update_priorities([0, 1], np.full((2, 1), 3.0)).tolist(),
    lambda m: m.sample(0, 0.4, np.random.default_rng(0), distinct=True).rows["reward"].shape,
    lambda m: m.sample(3, 0.4, np.random.RandomState(0)).sequence.tolist(),
    lambda m: m.sample(3, 0.4, 7),
    lambda m: m.insert(records(DISCRETE, 1), np.array([True])),
    lambda m: m.insert(records(DISCRETE, 2), [[2.0], [3.0]]),
    lambda m: m.retrieve_priorities([[0]]),
    lambda m: m.update_priorities([0], [None]),
    lambda m: m.update_priorities([0, 1], [1e308, -1e308]).tolist(),
]


def test_the_plain_replay_answers_as_the_compiled_one():
    for number, ask in enumerate(ASKED):
        answers, leaves = [], []
        for buffer in plain_and_compiled(DISCRETE):
            buffer.insert(records(DISCRETE, 3))
            try:
                answer = ask(buffer)
            except (TypeError, ValueError) as error:
                answer = type(error), str(error)
            answers.append((answer, buffer.written))
            leaves.append(np.float32(buffer.state_dict()["leaves"]))
        assert answers[0] == answers[1], number
        np.testing.assert_allclose(*leaves, rtol=1e-6)


def test_copies_by_pickle_are_independent():
    plain = replay.PrioritizedBuffer(impls.make("numpy", 8), DISCRETE, **PRIORITIES)
    for made in (plain, replay.SegmentedReplay(1, 4, DISCRETE)):
        again = pickle.loads(pickle.dumps(made))
        insert(again, records(DISCRETE, 2))
        assert (type(again), made.written, again.written) == (type(made), 0, 2)
