"""Model rollouts: priorities by the density of actions, segments and their weights, and a run that resumes."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("gymnasium", reason="training needs the extra `train`")
from impls.training import TrainingError, load
from impls.training.algorithms.memr import LOW, Density, Loop  # with numba
from impls.training.learners.dense_learner.sac import HIGH
from tests.learning import assert_goes_on, change, slope
from tests.system.test_world_model import dense_of_vector

BASE = load("pendulum_memr")
M, K, B, STARTS = 8, 3, 6, 20


def small(**tables):
    """A pendulum of few steps; ``tables`` change its tables."""
    model = {
        "hidden": (8, 4),
        "batch": 16,
        "rollouts": M,
        "segments": K,
        "updates": 2,
        "interval": 1,
    }
    base = change(BASE, hidden=(8,), batch=B, learning_starts=STARTS, capacity=64)
    tables["model"] = model | tables.get("model", {})
    parts = {name: dataclasses.replace(getattr(base, name), **keys) for name, keys in tables.items()}
    return dataclasses.replace(base, **parts)


def made(steps=0, **changes):
    """A loop after some steps."""
    loop = Loop(small(**changes), contestant="numpy")
    for _ in range(steps):
        loop.advance()
    return loop


def of_two_numbers(count=40, rate=1e-3):
    """A density of actions of two numbers, and states and actions for it."""
    density = Density(small(model={"learning_rate": rate}, action={"size": 2}), 4)
    rng = np.random.default_rng(1)
    states = rng.standard_normal((count, 3), np.float32)
    actions = rng.uniform(-1, 1, (count, 2))
    return density, states, actions.astype(np.float32)


def moments(weights, sizes, states):
    """(means, deviations) in float64."""
    mean, raw = np.split(dense_of_vector(weights, sizes, states), 2, 1)
    return mean, np.exp(LOW + (HIGH - LOW) * (np.tanh(raw) + 1) / 2)


def loss_of(weights, sizes, states, actions):
    mean, deviation = moments(weights, sizes, states)
    z = (actions - mean) / deviation
    return (z * z / 2 + np.log(deviation) + np.log(2 * np.pi) / 2).sum(1).mean()


def test_priorities_are_those_of_equation_3_7_and_hold_where_the_density_underflows():
    density, states, actions = of_two_numbers()
    found = density.priorities(states, actions)
    mean, deviation = moments(density.state.weights.astype(np.float64), density._sizes, states)
    pdf = np.exp(-(((actions - mean) / deviation) ** 2) / 2) / (np.sqrt(2 * np.pi) * deviation)
    assert found == pytest.approx(
        -np.log(np.sqrt(2 * np.pi) * pdf * deviation).sum(1),
        rel=1e-4,
        abs=1e-5,
    )
    for values, most in ((found, np.inf), (density.priorities(states, mean), 1e-6)):
        assert ((values >= 0) & (values < most)).all()
    far = density.priorities(states, mean + 60 * deviation)  # where exp(-z^2 / 2) is 0
    assert far == pytest.approx(np.full(len(far), 3600), rel=1e-3)


def test_slopes_of_the_density_are_differences_of_its_loss_in_float64():
    density, states, actions = of_two_numbers()
    before, sizes = density.state.weights.astype(np.float64), density._sizes
    fitted = density.fit(states, actions, 1)
    assert fitted == pytest.approx(loss_of(before, sizes, states, actions), rel=1e-5)
    expected = slope(lambda weights: loss_of(weights, sizes, states, actions), before)
    assert density.state.gradient == pytest.approx(expected, rel=1e-3, abs=2e-5)


def test_a_density_finds_mean_and_deviation():
    density, states, noise = of_two_numbers(2_000, 1e-2)
    actions = [0.5, -0.2] + [0.1, 0.4] * np.random.default_rng(2).standard_normal(noise.shape)
    assert density.fit(states, actions, 600) > density.fit(states, actions, 1) + 1
    mean, deviation = moments(density.state.weights.astype(np.float64), density._sizes, states)
    assert mean.mean(0) == pytest.approx([0.5, -0.2], abs=0.05)
    assert deviation.mean(0) == pytest.approx([0.1, 0.4], rel=0.1)


def test_a_record_is_inserted_with_the_priority_of_its_own_action():
    loop = made(5)
    state, replay = loop.buffer.state_dict(), loop.workload.replay
    rows = state["arrays"]
    expected = loop.density.priorities(rows["observation"], rows["action"]) + replay.epsilon  # not yet fitted
    assert state["leaves"] == pytest.approx(expected.astype(np.float64) ** replay.alpha, rel=1e-6)


def test_a_step_rolls_out_sampled_states_and_renews_their_priorities_alone():
    loop, seen = made(STARTS + 2), []
    sample, fit = loop.buffer.sample, loop.density.fit
    loop.buffer.sample = lambda *given: seen.append(sample(*given)) or seen[-1]
    loop.density.fit = lambda *given: seen.append(given) or fit(*given)
    leaves = loop.buffer.state_dict()["leaves"]
    loop.step += 1
    loop._update()
    drawn, (states, actions, epochs) = seen
    replay, after = loop.workload.replay, loop.buffer.state_dict()["leaves"]
    weights = (len(leaves) * leaves[drawn.sequence] / leaves.sum()) ** -loop.beta()  # Eq. 3.8
    first, stored = (loop.segments.written - M) % (K * M), loop.segments.state_dict()
    assert stored["weights"][first : first + M] == pytest.approx(weights / weights.max(), rel=1e-5)
    following, reward, _ = loop.model.predict(states, actions)
    rows = {
        "observation": drawn.rows["observation"],
        "action": actions,
        "next_observation": following,
    }
    for name, values in (rows | {"reward": reward}).items():
        assert np.array_equal(stored["arrays"][name][first : first + M], values)
    assert epochs == loop.workload.model.epochs == 5
    assert set(changed := np.flatnonzero(after != leaves)) == set(drawn.sequence)
    expected = (loop.density.priorities(states, actions).astype(np.float64) + replay.epsilon) ** replay.alpha
    last = dict(zip(drawn.sequence, expected, strict=True))  # of a state sampled twice
    assert after[changed] == pytest.approx([last[each] for each in changed], rel=1e-6)


def test_each_gradient_step_is_on_a_batch_of_one_segment():
    loop, batches = made(STARTS - 1), []
    step = loop.learner.step
    loop.learner.step = lambda rows, weights: batches.append(rows["next_observation"]) or step(rows, weights)
    for each in range(1, 31):
        loop.advance()
        assert loop.updates == loop.learner.steps == 2 * each
        arrays = loop.segments.state_dict()["arrays"]
        owners = {row.tobytes(): at // M for at, row in enumerate(arrays["next_observation"])}
        for batch in batches[-2:]:
            assert (len(batch), len({owners[row.tobytes()] for row in batch})) == (B, 1)
    assert list(loop.losses) == ["critic", "policy", "temperature", "model", "density"]


def test_the_model_is_trained_on_uniform_real_records():
    loop, seen = made(100), []  # more than the capacity of 64
    loop.model.train = lambda rows: seen.append(rows["observation"]) or 0.0
    loop._modeled -= 200
    loop._train_model()
    real = loop.buffer.state_dict()["arrays"]["observation"]
    counts = (np.concatenate(seen)[:, None] == real).all(2).sum(0)
    assert counts.sum() == 200 * 16
    assert ((counts - 50) ** 2 / 50).sum() < 103.4  # chi-square of 63 degrees of freedom, level 0.001


def test_the_model_is_trained_every_interval_th_step_as_often_as_there_were_steps():
    loop = made(STARTS - 1, model={"interval": 7})
    counts = [(loop.advance(), loop.model.vectors.scales[0])[1] for _ in range(20)]
    assert counts == [STARTS] * 7 + [STARTS + 7] * 7 + [STARTS + 14] * 6


def test_a_resumed_loop_continues_bit_for_bit():
    first, second = (made(steps, model={"interval": 4}) for steps in (100, 0))  # more steps than the capacity
    assert_goes_on(first, second, lambda loop: (loop.advance(), loop.losses), 30)


@pytest.mark.parametrize("part", ["model", "density", "learner"])
def test_what_diverges_is_a_sentence(part):
    loop = made(STARTS - 1)
    vectors = {"model": loop.model.vectors.weights, "density": loop.density.state.weights}
    vectors.get(part, loop.learner.target_parameters)[:] = np.nan
    with pytest.raises(TrainingError, match=r"after (19|20) steps and .* diverged"):
        loop.advance()


def test_segments_larger_than_memory_are_a_sentence():
    with pytest.raises(TrainingError, match=r"1,048,576 segments of 1,048,576 records.* GB.*fewer segments"):
        made(model={"segments": 1 << 20, "rollouts": 1 << 20})
