"""The model of the environment: its gradient against differences in float64, and what it learns."""

import itertools

import numpy as np
import pytest

from impls.training import load
from impls.training.workload import Model, identity
from impls.training.world_model import ModelVectors, WorldModel
from tests.learning import change, dense, slope

pytest.importorskip("numba")

CARTPOLE, PENDULUM = load("cartpole_dqn"), load("pendulum_td3")
each_kind = pytest.mark.parametrize("base", [CARTPOLE, PENDULUM], ids=["choices", "numbers"])


def workload(base, hidden=(9, 5), rate=1e-3, **more):
    return change(base, model=Model(hidden=hidden, learning_rate=rate, **more))


def rows_of(workload, count, seed=0):
    """Records of a made-up system: the next state is linear in state and action, and it ends where its sum is large."""
    rng, states = np.random.default_rng(seed), workload.observation.stacked[0]
    seen = rng.standard_normal((count, states)).astype(np.float32)
    if workload.has_choices:
        action = rng.integers(workload.action_size, size=count)
        pushed = np.eye(workload.action_size)[action]
    else:
        action = pushed = rng.uniform(-1, 1, (count, workload.action_size)).astype(np.float32)
    fixed = np.random.default_rng(7)
    change = seen @ fixed.normal(0, 0.1, (states, states)) + pushed @ fixed.normal(0, 0.3, (pushed.shape[1], states))
    change *= 10.0 ** -np.arange(states)  # numbers of very different sizes
    following = (seen + change).astype(np.float32)
    ended = following.sum(1) > 2
    reward = (1 - following[:, 0]).astype(np.float32)
    names = ("observation", "action", "reward", "next_observation", "terminated")
    return dict(zip(names, (seen, action, reward, following, ended), strict=True))


def dense_of_vector(weights, sizes, inputs):
    """The same layers of some sizes, whose weights are one vector, each matrix before its bias; in float64."""
    layers, at = {}, 0
    for number, (count, units) in enumerate(itertools.pairwise(sizes)):
        matrix, bias = np.split(weights[at : at + (count + 1) * units], [count * units])
        layers |= {f"dense.{number}.weight": matrix.reshape(units, count), f"dense.{number}.bias": bias}
        at += (count + 1) * units
    return dense(layers, "", inputs.astype(np.float64))


def loss_of(weights, model, inputs, targets, ended):
    """The model's loss in float64."""
    values = dense_of_vector(weights, model._sizes, inputs)
    logits = values[:, -1]
    loss = ((values[:, :-1] - targets) ** 2).sum(1) / 2 + np.logaddexp(0, logits) - ended * logits
    return loss.mean()


def is_seen(base, units):
    """Tell whether each weight of the first layer is of the state's units and the state, or of the action's both."""
    states = base.observation.stacked[0]
    return [(unit < -(-units // 2)) == (i < states) for unit in range(units) for i in range(states + base.action_size)]


@pytest.mark.parametrize("kind", ["mlp", "parted"])
@each_kind
def test_gradient_is_that_of_the_loss_by_differences_in_float64(base, kind):
    model, rows = WorldModel(workload(base, kind=kind), seed=3), rows_of(base, 37)
    before = model.vectors.weights.astype(np.float64)
    model.train(rows)
    changes = np.column_stack((rows["next_observation"] - rows["observation"], rows["reward"]))
    targets = changes / np.sqrt((changes**2).mean(0))
    inputs = model._inputs(rows["observation"], rows["action"])
    expected = slope(lambda weights: loss_of(weights, model, inputs, targets, rows["terminated"]), before)
    expected[: 9 * inputs.shape[1]] *= is_seen(base, 9) if kind == "parted" else 1
    assert model._state.gradient == pytest.approx(expected, rel=1e-3, abs=2e-5)


@pytest.mark.parametrize("kind", ["mlp", "parted"])
@each_kind
def test_a_linear_system_is_learned_to_a_twentieth_of_its_change(base, kind):
    base = workload(base, (64, 64), 2e-3, kind=kind)
    model = WorldModel(base)
    errors = [model.train(rows_of(base, 64, seed)) for seed in range(1500)]
    assert errors[0] > 0.8
    assert np.mean(errors[-50:]) < 0.05
    new = rows_of(base, 500, 9_999)
    following, reward, ended = model.predict(new["observation"], new["action"])
    change = new["next_observation"] - new["observation"]
    wrong = following - new["next_observation"]
    assert (np.sqrt((wrong**2).mean(0)) < 0.1 * np.sqrt((change**2).mean(0))).all()  # each number of the state
    assert np.abs(reward - new["reward"]).mean() < 0.1
    assert (ended == new["terminated"]).mean() > 0.95


@each_kind
def test_input_layers_stay_apart_and_the_hidden_layers_follow_them(base):
    model = WorldModel(workload(base, kind="parted"), seed=3)
    states, inputs = base.observation.stacked[0], base.observation.stacked[0] + base.action_size
    assert model._sizes.tolist() == [inputs, 9, 9, 5, states + 2]
    for seed in range(3):
        model.train(rows_of(base, 37, seed))
        np.testing.assert_array_equal(model.vectors.weights[: 9 * inputs] != 0, is_seen(base, 9))


def test_the_kind_of_the_model_changes_no_identity_by_its_default():
    usual = load("cartpole_dyna_q")
    assert identity(usual) == "d03a2b4c"
    assert identity(change(usual, model=Model(kind="parted"))) != identity(usual)


def test_error_of_a_model_that_predicts_no_change_is_one():
    model, rows = WorldModel(workload(CARTPOLE)), rows_of(CARTPOLE, 20)
    model.vectors.weights[:] = 0
    assert model.train(rows) == pytest.approx(1)
    still = rows | {"next_observation": rows["observation"]}
    assert WorldModel(workload(CARTPOLE)).train(still) == 0


@pytest.mark.parametrize(("scale", "offset"), [(1e-9, 0), (1e4, 0), (1, 1_000)])
def test_states_of_any_size_are_learned(scale, offset):
    base = workload(CARTPOLE, (64, 64), 2e-3)
    model, errors = WorldModel(base), []
    for seed in range(1000):
        rows = rows_of(base, 64, seed)
        for name in ("observation", "next_observation"):
            rows[name] = np.float32(rows[name] * scale + offset)
        errors.append(model.train(rows))
    assert np.mean(errors[-50:]) < 0.15
    assert model.complaint() == ""


def test_a_model_that_is_no_use_is_told_of_after_a_while():
    model, rows = WorldModel(workload(CARTPOLE, rate=1e-30)), rows_of(CARTPOLE, 20)
    for _ in range(999):
        model.train(rows)
    assert not model.complaint()
    model.train(rows)
    assert model.complaint()


def test_models_on_the_same_memory_are_one_and_a_state_is_all_of_it():
    first = WorldModel(workload(CARTPOLE), seed=5)
    second = WorldModel(workload(CARTPOLE), seed=6, vectors=ModelVectors(*first.vectors))
    third = WorldModel(workload(CARTPOLE), seed=6)
    first.train(rows_of(CARTPOLE, 64))
    state, new = first.state_dict(), rows_of(CARTPOLE, 8, 1)
    inputs = state.pop("inputs")  # which a state of before there were any has not
    third.load_state_dict(state)
    assert np.array_equal(third.scaled(new["observation"]), new["observation"])
    third.load_state_dict(state | {"inputs": inputs})
    expected = first.predict(new["observation"], new["action"])
    for other in (second, third):
        np.testing.assert_equal(other.predict(new["observation"], new["action"]), expected)
    assert second.train(new) == third.train(new)
