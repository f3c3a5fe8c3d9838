"""Values that no record may have are refused before anything is written, alike by every kind of replay."""

import functools
import pickle
import re
import warnings

import numpy as np
import pytest

import impls
from impls import cores, replay
from impls.replay import LocalStorage, NStep
from impls.replay.local_storages import LocalStorages

pytest.importorskip("numba")

DISCRETE, CONTINUOUS = (replay.Layout((2,), "float32", **action) for action in ({"choices": 3}, {"action_size": 2}))
BYTES = replay.Layout((2,), "float32", choices=256)
STACKED = replay.Layout((2,), "uint8", frames=3, choices=3)
PRIORITIES = {"alpha": 0.6, "epsilon": 1e-6}
NOT_AN_ACTION = "action must be an integer from 0 to 2, not {}"
NOT_FINITE = "{} must be finite and at most 3.4e+38 in size, not {}"


def kinds(layout):
    yield replay.make(512, layout, **PRIORITIES)
    yield replay.PrioritizedBuffer(impls.make("numpy", 512), layout, **PRIORITIES)
    if layout.frames == 1:
        yield replay.SegmentedReplay(2, 300, layout)


def records(layout, count, **changes):
    return {**layout.allocate(count), **changes}


def insert(buffer, rows):
    more = [np.ones(len(rows["terminated"]))] if isinstance(buffer, replay.SegmentedReplay) else []
    buffer.insert(rows, *more)


@pytest.mark.parametrize(
    ("layout", "name", "bad", "sentence"),
    [
        *((DISCRETE, "action", bad, NOT_AN_ACTION.format(bad)) for bad in (3, -1, 300, 256, 0.5, -0.0001, np.nan)),
        (BYTES, "action", -1, "action must be an integer from 0 to 255, not -1"),
        *((DISCRETE, "reward", bad, NOT_FINITE.format("reward", bad)) for bad in (np.nan, np.inf, -np.inf, 1e39)),
        *((CONTINUOUS, "action", bad, NOT_FINITE.format("action", bad)) for bad in (np.nan, np.inf, -np.inf)),
        (DISCRETE, "action", "left", "action must be numbers, not <U4, such as ['left']"),
        (DISCRETE, "reward", None, "reward must be numbers, not object, such as [None]"),
    ],
)
@pytest.mark.parametrize("count", [1, 2, 300])
def test_values_that_no_record_may_have(layout, name, bad, sentence, count):
    values = np.full((count, *layout.fields[name][0]), 0 if not isinstance(bad, str) else "left").astype(
        np.dtype(type(bad))
    )
    if not isinstance(bad, (int, float)):
        values = np.full(count, bad)
    values[-1] = bad
    for buffer in kinds(layout):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(ValueError, match=re.escape(sentence)):
                insert(buffer, records(layout, count, **{name: values}))
        assert buffer.written == 0


@pytest.mark.parametrize("count", [1, 2, 300])
def test_values_at_their_bounds_are_stored(count):
    most = np.finfo(np.float32).max
    for layout, name, good in [
        *((DISCRETE, "action", good) for good in (0, 2, 2.0, np.uint8(2), np.int64(2), True)),
        (BYTES, "action", np.uint8(255)),
        *((DISCRETE, "reward", good) for good in (most, -float(most), 1, True, np.float16(2))),
        (CONTINUOUS, "action", -float(most)),
    ]:
        values = np.full((count, *layout.fields[name][0]), good)
        for buffer in kinds(layout):
            insert(buffer, records(layout, count, **{name: values}))
            assert buffer.written == count
            if not isinstance(buffer, replay.SegmentedReplay):
                assert (buffer.sample(2, 0.4, np.random.default_rng(0)).rows[name] == good).all()


def test_stacked_frames_are_inserted_with_what_may_be_sampled():
    for buffer in kinds(STACKED):
        with pytest.raises(ValueError, match=r"3 stacked frames need drawable=.* the 2 frames that lead .*\.take\(\)"):
            buffer.insert(records(STACKED, 5))
        assert buffer.written == 0
        buffer.insert(records(STACKED, 0))
        buffer.insert(records(STACKED, 5), drawable=[0, 0, 1, 1, 0])
        assert (len(buffer), buffer.written) == (2, 5)
        for bad in ([2, 3, 0, 0, 0], [0.5] * 5, ["a"] * 5):
            with pytest.raises(ValueError, match="drawable must be bool, one for each record, not"):
                buffer.insert(records(STACKED, 5), drawable=bad)
        for bad in ([], [1], True):
            with pytest.raises(ValueError, match=r"drawable must be \[5\], not"):
                buffer.insert(records(STACKED, 5), drawable=bad)


def test_an_actors_steps_are_judged_too():
    steps = replay.NStep(DISCRETE, 2, 0.9)
    for change, sentence in [
        ({"action": np.array([300])}, NOT_AN_ACTION.format(300)),
        ({"reward": [np.nan]}, NOT_FINITE.format("reward", "nan")),
        ({"observation": [[1, 2], [3]]}, "observation: "),
        ({"more": [1]}, "transitions must have observation, next_observation, action, reward, terminated, not "),
    ]:
        with pytest.raises(ValueError, match=re.escape(sentence)):
            steps.append(records(DISCRETE, 1, **change))
    for truncated in ("yes", [True, False], 1):
        with pytest.raises(ValueError, match=r"truncated must be \[1\] bool, not"):
            steps.append(records(DISCRETE, 1), truncated)
    assert len(steps.append(records(DISCRETE, 1))["reward"]) == 0


@pytest.fixture(scope="module")
def memory():
    with replay.make(8, DISCRETE, **PRIORITIES) as made:
        made.insert(records(DISCRETE, 4))
        yield made


MISUSES = [
    (lambda m: m.insert(None), "records must be a mapping of observation, .*, not None"),
    (lambda m: m.insert([1, 2]), r"records must be a mapping of .*, not \[1, 2\]"),
    (lambda m: m.insert(records(DISCRETE, 1), ["a"]), "errors must be numbers, not <U1"),
    (lambda m: m.insert(records(DISCRETE, 1), [None]), "errors must be numbers, not object"),
    (lambda m: m.insert(records(DISCRETE, 1), [1j]), "errors must be numbers, not complex128"),
    (lambda m: m.sample("2", 0.4), "batch must be an integer, not '2'"),
    (lambda m: m.sample(2, None), "beta must be a number, not None"),
    (lambda m: m.sample(2, "0.4"), "beta must be a number, not '0.4'"),
    (lambda m: m.sample(2, np.array([0.4, 0.4])), "beta must be a number, not array"),
    (lambda m: m.sample(2, 0.4, 7), r"rng must be a generator such as np\.random\.default_rng\(7\), not 7"),
    (lambda m: m.sample(2, 0.4, "seed"), "rng must be a generator .* not 'seed'"),
    (lambda m: m.sample(2, 0.4, uniforms=["a", "b"]), "uniforms must be numbers, not"),
    (lambda m: m.update_priorities([0.0], [1.0]), "sequence must be integers, .* not float64"),
    (lambda m: m.update_priorities(["0"], [1.0]), "sequence must be integers, .* not <U1"),
    (lambda m: m.update_priorities([True], [1.0]), "sequence must be integers, .* not bool"),
    (lambda m: m.retrieve_priorities([0.0]), "sequence must be integers, .* not float64"),
    (lambda m: m.update_priorities([0], None), "errors must be numbers, not object, such as None"),
    (lambda m: m.load_state_dict(None), "a state must be a mapping, not None"),
    (lambda m: m.load_state_dict({"banks": 3}), "banks must be a list of states, not 3"),
    (lambda m: m.load_state_dict(m.state_dict() | {"arrays": None}), "arrays must be a mapping, not None"),
    (lambda m: m.load_state_dict(m.state_dict() | {"written": 4.5}), "written must be an integer, not 4.5"),
    (lambda m: m.load_state_dict(m.state_dict() | {"largest": None}), "largest must be a number, not None"),
    (lambda m: m.load_state_dict(m.state_dict() | {"leaves": None}), "leaves must be numbers, not object"),
    (replay.attach, r"attach takes what handle\(\) of a replay returns, not"),
    (lambda m: replay.make(8, DISCRETE, alpha=None, epsilon=1e-6), "alpha must be a number, not None"),
    (lambda m: replay.make(8, DISCRETE, alpha=0.6, epsilon="1"), "epsilon must be a number, not '1'"),
    (lambda m: replay.make(8, replay.Layout((2,), None), **PRIORITIES), "dtype of an observation must be a name"),
    (lambda m: replay.NStep(None, 2, 0.9), "layout must be a Layout, not NoneType"),
    (lambda m: replay.NStep(DISCRETE, 2, "0.9"), "gamma must be a number, not '0.9'"),
    (lambda m: replay.SegmentedReplay(2, 3, None), "layout must be a Layout, not NoneType"),
    (lambda m: replay.SegmentedReplay(2, 3, DISCRETE).sample(2, 0), "rng must be a generator"),
]


@pytest.mark.parametrize("number", range(len(MISUSES)))
def test_a_wrong_type_is_one_sentence(memory, number):
    misuse, sentence = MISUSES[number]
    with pytest.raises(TypeError, match=sentence):
        misuse(memory)
    assert (memory.written, len(memory)) == (4, 4)


def test_a_batch_larger_than_numpy_can_hold(memory):
    for batch in (10**9, 10**30):
        with pytest.raises(ValueError, match=r"a batch of 10*0 records is .* GB; at most 2\.1 GB are sampled at once"):
            memory.sample(batch, 0.4)


# Conversions

U8, I32, F32, FLAGS, COMPLEX = (
    replay.Layout((2,), dtype, choices=3) for dtype in ("uint8", "int32", "float32", "bool", "complex64")
)


def entries(layout):
    """(what takes one transition of the layout, what it has taken) of everything that takes one."""
    for buffer in kinds(layout):
        yield functools.partial(insert, buffer), functools.partial(getattr, buffer, "written")
    one, several = LocalStorage(layout, 4), LocalStorages(layout, 4, 1)
    names = ("observation", "action", "reward", "next_observation", "terminated")
    yield lambda rows: one.append(*(np.asarray(rows[name])[0] for name in names)), lambda: len(one)
    yield lambda rows: several.append(rows, [True]), lambda: int(several._counts[0])
    steps = replay.NStep(layout, 1, 0.9)
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
    (F32, "observation", [[1 + 2j, 0]], r"(1+2j) of complex128"),
    (F32, "observation", [[None, 0]], "None of object"),
    (F32, "observation", np.array([[1, 2]], "m8[s]"), "of timedelta64"),
    (FLAGS, "observation", [[0, 2]], "2 of int64"),
    (F32, "terminated", [np.nan], "nan of float64"),
    (F32, "terminated", ["False"], "'False' of <U5"),
    (F32, "terminated", [2], "2 of int64"),
]


@pytest.mark.parametrize(("layout", "name", "bad", "sentence"), LOST)
def test_a_conversion_that_loses_the_value_is_refused_by_whatever_takes_it(layout, name, bad, sentence):
    for take, count in entries(layout):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(ValueError, match=f"{name} is stored as .*{re.escape(sentence)}"):
                take(transition(layout, **{name: np.asarray(bad)}))
        assert count() == 0
        take(transition(layout))
        assert count() == 1


@pytest.mark.parametrize(
    ("layout", "name", "good"),
    [
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
    ],
)
def test_a_conversion_that_keeps_the_value_is_made(layout, name, good):
    for take, count in entries(layout):
        take(transition(layout, **{name: good}))
        assert count() == 1
    for buffer in kinds(layout):
        insert(buffer, {each: np.repeat(part, 300, 0) for each, part in transition(layout, **{name: good}).items()})
        rows = buffer.sample(1, *([0.4] if hasattr(buffer, "update_priorities") else []), np.random.default_rng(0)).rows
        np.testing.assert_array_equal(rows[name], np.asarray(good))


def test_frames_are_converted_as_other_observations_are():
    for buffer in kinds(STACKED):
        for bad in (0.5, 300, -1):
            frames = np.full((5, 2), bad)
            with pytest.raises(ValueError, match=f"frame is stored as uint8, which {bad} of"):
                buffer.insert(records(STACKED, 5, frame=frames), drawable=[0, 0, 1, 1, 0])
        assert buffer.written == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.1, 1.001, 5])
def test_a_discount_is_within_0_and_1(bad):
    layout = replay.NStep(DISCRETE, 2, 0.9).layout
    for buffer in kinds(layout):
        with pytest.raises(ValueError, match=re.escape(f"discount must be within [0, 1], not {bad}")):
            insert(buffer, records(layout, 2, discount=np.array([1.0, bad])))
        assert buffer.written == 0
        insert(buffer, records(layout, 2, discount=[1, 0]))


# The plain replay keeps the compiled one's promises


@pytest.mark.parametrize(
    "ask",
    [
        lambda m: m.update_priorities([0, 1], np.full((2, 1), 3.0)).tolist(),
        lambda m: m.sample(0, 0.4, np.random.default_rng(0)).weights.size,
        lambda m: m.sample(0, 0.4, np.random.default_rng(0), distinct=True).rows["reward"].shape,
        lambda m: m.sample(3, 0.4, np.random.RandomState(0)).sequence.tolist(),
        lambda m: m.sample(2, 0.4, np.random.RandomState(0), distinct=True).sequence.tolist(),
        lambda m: m.sample(3, 0.4).weights.size,
        lambda m: m.sample(3, 0.4, 7),
        lambda m: m.insert(records(DISCRETE, 1), np.array([True])),
        lambda m: m.insert(records(DISCRETE, 1), [1j]),
        lambda m: m.retrieve_priorities([[0]]),
        lambda m: m.retrieve_priorities([2, 3, -1]).tolist(),
        lambda m: m.update_priorities([0], [None]),
        lambda m: m.update_priorities([0], [np.nan]),
        lambda m: m.update_priorities([0, 1], [1e308, -1e308]).tolist(),
        lambda m: m.insert(records(DISCRETE, 2), [[2.0], [3.0]]),
        lambda m: type(m)(m.tree, None, **PRIORITIES) if hasattr(m, "tree") else replay.make(3, None, **PRIORITIES),
    ],
)
def test_the_plain_replay_answers_as_the_compiled_one(ask):
    answers = []
    for buffer in (made for made in kinds(DISCRETE) if hasattr(made, "update_priorities")):
        buffer.insert(records(DISCRETE, 3))
        try:
            answer = ask(buffer)
        except (TypeError, ValueError) as error:
            answer = type(error), str(error)
        answers.append((answer, buffer.written, np.float32(buffer.state_dict()["leaves"]).tolist()))
    assert answers[0][:2] == answers[1][:2]
    assert answers[0][2] == pytest.approx(answers[1][2], rel=1e-6)


def test_an_empty_replay_gives_empty_batches():
    for buffer in kinds(DISCRETE):
        if hasattr(buffer, "update_priorities"):
            assert buffer.sample(0, 0.4).sequence.shape == (0,)


def test_more_memory_than_there_is_is_refused_before_any_is_filled(monkeypatch):
    monkeypatch.setattr(cores, "free_bytes", lambda: 1e6)
    images = replay.Layout((100, 100), "uint8", choices=3)
    for make in (
        lambda: replay.PrioritizedBuffer(impls.make("numpy", 64), images, **PRIORITIES),
        lambda: replay.make(64, images, **PRIORITIES),
        lambda: replay.SegmentedReplay(1, 64, images),
        lambda: LocalStorage(images, 64),
        lambda: LocalStorages(images, 8, 8),
    ):
        with pytest.raises(MemoryError, match=r"0\.0 GB are free"):
            make()
    for buffer in list(kinds(DISCRETE))[:2]:
        buffer.insert(records(DISCRETE, 500))
        monkeypatch.setattr(cores, "free_bytes", lambda: 1e3)
        with pytest.raises(MemoryError):
            buffer.state_dict()
        monkeypatch.setattr(cores, "free_bytes", lambda: 1e6)


def test_copies_by_pickle_are_independent():
    plain, steps = (
        replay.PrioritizedBuffer(impls.make("numpy", 8), DISCRETE, **PRIORITIES),
        replay.NStep(DISCRETE, 2, 1),
    )
    segments, local = replay.SegmentedReplay(1, 4, DISCRETE), LocalStorages(DISCRETE, 4, 1)
    for made, take in ((plain, insert), (segments, insert), (steps, NStep.append), (local, None)):
        again = pickle.loads(pickle.dumps(made))
        for each in (made, again):
            local.append(transition(DISCRETE), [True]) if take is None else take(each, transition(DISCRETE))
        assert type(again) is type(made)
    again = pickle.loads(pickle.dumps(plain))
    again.insert(records(DISCRETE, 2))
    assert (plain.written, again.written) == (1, 3)
    with pytest.raises(ValueError, match="action must be an integer"):
        again.insert(records(DISCRETE, 1, action=[9]))
