"""n-step records, beside those computed by hand from whole episodes."""

import numpy as np
import pytest

from impls import replay
from impls.replay import Layout
from impls.replay.n_step import NStep, NStepLayout

LAYOUT = Layout((2,), "float32", choices=5)


def episodes(rng, steps, environments):
    """Steps ``[T, E]`` of environments whose episodes terminate or are cut off at random; observations are numbered."""
    number = np.arange(steps)[:, None] * 100.0 + np.arange(environments)
    ended = rng.random((steps, environments)) < 0.25
    terminated = ended & (rng.random(ended.shape) < 0.5)
    transitions = {
        "observation": np.stack((number, -number), 2).astype(np.float32),
        "next_observation": np.stack((number + 0.5, -number), 2).astype(np.float32),
        "action": rng.integers(0, 5, ended.shape).astype(np.uint8),
        "reward": rng.standard_normal(ended.shape).astype(np.float32),
        "terminated": terminated,
    }
    return transitions, ended & ~terminated


def expected_records(transitions, truncated, n, gamma):
    """{step at which it is whole: records by brute force}, an environment's oldest first."""
    steps, environments = truncated.shape
    ended = truncated | transitions["terminated"]
    whole = {step: [] for step in range(steps)}
    for environment in range(environments):
        for first in range(steps):
            stop = next((t for t in range(first, min(first + n, steps)) if ended[t, environment]), first + n - 1)
            if stop >= steps:
                continue
            rewards = transitions["reward"][first : stop + 1, environment].astype(float)
            record = {name: transitions[name][first, environment] for name in ("observation", "action")}
            record |= {name: transitions[name][stop, environment] for name in ("next_observation", "terminated")}
            record["reward"] = sum(gamma**i * reward for i, reward in enumerate(rewards))
            whole[stop].append(record | {"discount": gamma ** len(rewards)})
    return whole


@pytest.mark.parametrize("environments", [1, 3])
@pytest.mark.parametrize(("n", "gamma"), [(1, 0.99), (2, 0.9), (3, 1.0), (5, 0.5), (4, 0.0)])
def test_records_are_those_computed_by_hand(n, gamma, environments):
    transitions, truncated = episodes(np.random.default_rng(n), 200, environments)
    turned = NStep(LAYOUT, n, gamma, environments=environments)
    for step, expected in expected_records(transitions, truncated, n, gamma).items():
        records = turned.append({name: values[step] for name, values in transitions.items()}, truncated[step])
        assert records.keys() == turned.layout.fields.keys()
        assert {len(values) for values in records.values()} == {len(expected)}
        for name, (shape, dtype) in turned.layout.fields.items():
            assert (records[name].dtype, records[name].shape[1:]) == (dtype, shape)
            theirs = [record[name] for record in expected]
            np.testing.assert_allclose(records[name], np.reshape(theirs, records[name].shape), rtol=1e-5, atol=1e-6)


def test_an_episode_that_was_cut_off_is_still_valued_and_one_that_terminated_is_not():
    for terminated, truncated in ((True, False), (False, True)):
        turned = NStep(Layout((1,), "float32", choices=2), 3, 0.5)
        for step, reward in enumerate((1.0, 2.0)):
            transition = {"observation": [[step]], "next_observation": [[step + 1]], "action": [1], "reward": [reward]}
            last = step == 1
            records = turned.append(transition | {"terminated": [terminated and last]}, [truncated and last])
        np.testing.assert_array_equal(records["reward"], [2.0, 2.0])
        np.testing.assert_array_equal(records["discount"], [0.25, 0.5])  # gamma^k, k the rewards in each
        np.testing.assert_array_equal(records["terminated"], [terminated] * 2)
        np.testing.assert_array_equal(records["next_observation"], [[2.0], [2.0]])
        again = transition | {"terminated": [False]}
        assert not turned.append(again)["reward"].size  # nothing of the episode before reaches into the next


def test_records_go_into_a_replay_as_they_come():
    transitions, truncated = episodes(np.random.default_rng(0), 50, 4)
    turned = NStep(LAYOUT, 3, 0.9, environments=4)
    with replay.make(64, turned.layout, alpha=0.6, epsilon=1e-3, strategy="global") as compiled:
        truth = []
        for step in range(50):
            records = turned.append({name: values[step] for name, values in transitions.items()}, truncated[step])
            compiled.insert(records)
            truth += [{name: values[at] for name, values in records.items()} for at in range(len(records["reward"]))]
        batch = compiled.sample(32, 0.4, np.random.default_rng(0))
        for at, sequence in enumerate(batch.sequence):
            for name, values in batch.rows.items():
                np.testing.assert_array_equal(values[at], truth[sequence][name])
        assert compiled.written == len(truth)


def test_what_cannot_be_is_refused_with_nothing_changed():
    with pytest.raises(ValueError, match=r"4 stacked frames .* frames=1"):
        NStep(Layout((84, 84), "uint8", frames=4, choices=6), 3, 0.99)
    with pytest.raises(ValueError, match="n must be at least 1, not 0"):
        NStep(LAYOUT, 0, 0.99)
    with pytest.raises(ValueError, match=r"gamma must be within \[0, 1\], not 1.5"):
        NStep(LAYOUT, 3, 1.5)
    turned = NStep(LAYOUT, 1, 0.9)
    transitions, _ = episodes(np.random.default_rng(0), 2, 1)
    first, second = ({name: values[step] for name, values in transitions.items()} for step in range(2))
    with pytest.raises(ValueError, match=r"reward must be \[1\], not \[2\]"):
        turned.append(first | {"reward": [1.0, 2.0]})
    np.testing.assert_array_equal(turned.append(second)["observation"], second["observation"])


def test_a_layout_of_n_steps_is_another_than_that_of_one():
    turned = NStep(LAYOUT, 3, 0.9)
    assert isinstance(turned.layout, NStepLayout)
    assert turned.layout != LAYOUT
    assert turned.layout.record_bytes == LAYOUT.record_bytes + 4
