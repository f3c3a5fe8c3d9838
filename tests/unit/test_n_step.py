"""n-step records, beside those computed by hand from whole episodes."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from impls import replay
from impls.replay import Layout
from impls.replay.n_step import NStep, NStepLayout

LAYOUT = Layout((2,), "float32", choices=5)


def play(rng, environments, steps, next_step):
    """Turns of environments whose steps meet, with the records by brute force: told ends, untold ones, late resets.

    Each turn is (transition ``[E, ...]``, truncated, stepped). An observation is a number that no other has. With
    ``next_step``, environments are reset in the turn after an end, as gymnasium's vectors are by default.
    """
    segments, over = [[[]] for _ in range(environments)], np.zeros(environments, bool)
    at, count, turns = np.arange(environments), environments, []
    has_met, goes_on = False, np.zeros(environments, bool)
    for _ in range(steps):
        ends = rng.choice(["no", "no", "no", "terminated", "truncated", "untold"], environments)
        stepped = ~over if next_step else np.ones(environments, bool)
        has_met |= goes_on.any()
        if not has_met:  # steps that have yet to meet tell nothing
            ends[ends == "untold"] = "no"
        led = count + np.arange(environments)
        count += 2 * environments
        step = {
            "observation": np.stack((at, -at), 1).astype(float),
            "next_observation": np.stack((led, -led), 1).astype(float),
            "action": rng.integers(0, 5, environments),
            "reward": np.where(stepped, rng.integers(1, 9, environments), 0.0),
            "terminated": stepped & (ends == "terminated"),
        }
        turns.append((step, stepped & (ends == "truncated"), stepped))
        for environment in np.flatnonzero(stepped):
            segments[environment][-1].append({name: values[environment] for name, values in step.items()})
            if ends[environment] != "no":
                segments[environment].append([])
        over = stepped & np.isin(ends, ("terminated", "truncated"))
        # A told end is followed by another observation at once, or by the turn that leads to it; an untold one is not.
        is_new = (over & (not next_step)) | (stepped & (ends == "untold"))
        goes_on = stepped & (ends == "no")
        at = np.where(is_new, led + environments, led)
    return turns, segments


def records_of(segment, n, gamma):
    for first in range(len(segment)):
        some = segment[first : first + n]
        parts = segment[first] | {name: some[-1][name] for name in ("next_observation", "terminated")}
        reward = sum(gamma**age * float(step["reward"]) for age, step in enumerate(some))
        yield parts | {"reward": reward, "discount": gamma ** len(some)}


def play_and_compare(seed):
    rng = default_rng(seed)
    n, environments = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    gamma, next_step, tells = rng.choice([0.0, 0.5, 1.0]), rng.random() < 0.5, rng.random() < 0.5
    turns, segments = play(rng, environments, int(rng.integers(3, 40)), next_step)
    turned, records = NStep(LAYOUT, n, gamma, environments=environments), []
    for step, truncated, stepped in turns:
        if tells:  # what an environment has that took no step is not looked at
            step["reward"] = np.where(stepped, step["reward"], np.nan)
        with warnings.catch_warnings():
            warnings.simplefilter("error" if tells or not next_step else "ignore")
            records.append(turned.append(step, truncated, stepped if tells else None))
        if rng.random() < 0.2:
            state, turned = turned.state_dict(), NStep(LAYOUT, n, gamma, environments=environments)
            turned.load_state_dict(state)
        if rng.random() < 0.1:
            turned = pickle.loads(pickle.dumps(turned))
    records.append(turned.cut())
    assert not turned.cut()["reward"].size
    found = {name: np.concatenate([part[name] for part in records]) for name in turned.layout.fields}
    expected = [record for each in segments for segment in each for record in records_of(segment, n, gamma)]
    order = np.argsort(found["observation"][:, 0], kind="stable")
    expected.sort(key=lambda record: record["observation"][0])
    for name, (shape, dtype) in turned.layout.fields.items():
        assert (found[name].dtype, found[name].shape[1:]) == (dtype, shape)
        assert_allclose(found[name][order], np.array([record[name] for record in expected]), rtol=1e-6)
    with replay.make(1000, turned.layout, alpha=0.6, epsilon=1e-3, strategy="global") as compiled:
        for part in records:
            compiled.insert(part)
        batch = compiled.sample(32, 0.4, rng)
        for name, values in batch.rows.items():
            assert_array_equal(values, found[name][batch.sequence])


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 300), marks=pytest.mark.slow)])
def test_no_record_reaches_into_another_episode(seeds):
    for seed in seeds:
        play_and_compare(seed)


def test_an_episode_that_was_cut_off_is_still_valued():
    for terminated, truncated in ((True, False), (False, True)):
        turned = NStep(Layout((1,), "float32", choices=2), 3, 0.5)
        for step, reward in enumerate((1.0, 2.0)):
            transition = {"observation": [[step]], "next_observation": [[step + 1]], "action": [1], "reward": [reward]}
            last = step == 1
            records = turned.append(transition | {"terminated": [terminated and last]}, [truncated and last])
        assert_array_equal(records["reward"], [2.0, 2.0])
        assert_array_equal(records["discount"], [0.25, 0.5])  # gamma^k, k the rewards in each
        assert_array_equal(records["terminated"], [terminated] * 2)
        assert_array_equal(records["next_observation"], [[2.0], [2.0]])
        again = transition | {"terminated": [False]}
        assert not turned.append(again)["reward"].size  # nothing of the episode before reaches into the next


def single(observation, following, reward=1.0, terminated=False):
    seen = {"observation": [[observation] * 2], "next_observation": [[following] * 2]}
    return seen | {"action": [0], "reward": [reward], "terminated": [terminated]}


def test_a_step_that_resets_is_left_out_unless_it_is_called_one():
    for stepped, count in ((None, 0), ([True], 1)):
        turned = NStep(LAYOUT, 1, 0.9)
        turned.append(single(0, 1, terminated=True))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert turned.append(single(1, 7, reward=0.0), stepped=stepped)["reward"].size == count
        assert len(caught) == 1 - count
        assert turned.append(single(7, 8))["observation"][:, 0].tolist() == [7]
    for second, reward in (((1, 1), 0.0), ((1, 7), 1.0), ((5, 7), 0.0)):  # after an end, but no reset
        turned = NStep(LAYOUT, 1, 0.9)
        turned.append(single(0, 1, terminated=True))
        assert turned.append(single(*second, reward=reward))["next_observation"][:, 0].tolist() == [second[1]]


def test_steps_that_never_meet_are_joined_and_nan_meets_nan():
    apart, met = NStep(LAYOUT, 2, 0.5), NStep(LAYOUT, 2, 0.5)
    assert [len(apart.append(single(10 * at, 10 * at + 3))["reward"]) for at in range(3)] == [0, 1, 1]
    assert [len(met.append(single(np.nan, np.nan))["reward"]) for _ in range(3)] == [0, 1, 1]
    assert met.append(single(4, 5))["discount"].tolist() == [0.5]  # of another episode: what was open has one reward


def test_what_cannot_be_is_refused_with_nothing_changed():
    for layout, n, gamma, words in (
        (Layout((84, 84), "uint8", frames=4, choices=6), 3, 0.99, "4 stacked frames .* frames=1"),
        (LAYOUT, 0, 0.99, "n must be at least 1, not 0"),
        (LAYOUT, 3, 1.5, r"gamma must be within \[0, 1\], not 1.5"),
    ):
        with pytest.raises(ValueError, match=words):
            NStep(layout, n, gamma)
    turned = NStep(LAYOUT, 3, 0.9)
    assert isinstance(turned.layout, NStepLayout) and turned.layout != LAYOUT
    assert turned.layout.record_bytes == LAYOUT.record_bytes + 4
    with pytest.raises(ValueError, match=r"reward must be \[1\], not \[2\]"):
        turned.append(single(0, 1) | {"reward": [1.0, 2.0]})
    for truncated in ("yes", [True, False], 1):
        with pytest.raises(ValueError, match=r"truncated must be \[1\] bool, not"):
            turned.append(single(0, 1), truncated)
    turned.append(single(0, 1))
    before, options = turned.state_dict(), {"layout": LAYOUT, "n": 3, "gamma": 0.9}
    changes = {"n": 2}, {"gamma": 0.5}, {"environments": 2}, {"layout": Layout((3,), "float32")}
    others = [NStep(**options | change).state_dict() for change in changes]
    for bad in (*others, before | {"open": before["open"] + 9}, {}):
        with pytest.raises(ValueError, match="the state is of another"):
            turned.load_state_dict(bad)
    assert all((part == before[name]).all() for name, part in turned.state_dict().items())
