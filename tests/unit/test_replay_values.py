"""Values that no record may have are refused before anything is written, alike by every kind of replay."""

import re
import warnings

import numpy as np
import pytest

import impls
from impls import replay

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


def test_a_replay_says_what_it_is():
    with replay.make(8, DISCRETE, strategy="banked", banks=2, shared=True, **PRIORITIES) as made:
        made.insert(records(DISCRETE, 3))
        layout = "Layout(observation=(2,), dtype='float32', frames=1, choices=3, action_size=0)"
        assert repr(made) == f"<banked replay: 3 of 8 records in 2 banks, {layout}, shared with processes>"
    assert repr(made) == "<banked replay of 8 records: this replay is closed>"
    with replay.make(8, DISCRETE, **PRIORITIES) as made:
        assert repr(made) == f"<two_lock_checked replay: 0 of 8 records, {layout}, private to its process>"
