"""Branched rollouts of a model, and the ensemble of Gaussian networks that may be this model."""

import dataclasses
import math

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("gymnasium", reason="training needs the extra `train`")
import torch

from impls.training import load
from impls.training.algorithms import mbpo, memr  # with numba
from impls.training.ensemble import HIGH, LOW, Ensemble
from impls.training.workload import identity
from impls.training.world_model import Prediction
from tests.learning import assert_goes_on, change
from tests.system.test_world_model import rows_of

PENDULUM, MEMR, CARTPOLE = load("pendulum_mbpo"), load("pendulum_memr"), load("cartpole_dyna_q")
M, K, B, E, STARTS = 8, 3, 6, 3, 20


def change_model(base, **model):
    return dataclasses.replace(base, model=dataclasses.replace(base.model, **model))


def small(base=PENDULUM, **model):
    """A workload of few steps."""
    base = change(base, batch=B, learning_starts=STARTS, capacity=64)
    tiny = {"members": E, "hidden": (8, 4), "batch": 16, "rollouts": M, "segments": K, "updates": 2, "horizon": 3}
    return change_model(base, **tiny | model)


def make_loop(steps=0, base=PENDULUM, algorithm=mbpo, **model):
    """A loop after some steps."""
    loop = algorithm.Loop(small(base, **model), contestant="numpy")
    for _ in range(steps):
        loop.advance()
    return loop


def loss_by_torch(model, weights, inputs, targets, ended):
    """The mean negative log likelihood of one member's rows, by torch's distributions."""
    values, at = inputs, 0
    for layer, (count, units) in enumerate(zip(model._sizes, model._sizes[1:], strict=False)):
        matrix = weights[at : at + count * units].reshape(units, count)
        at += (count + 1) * units
        values = values @ matrix.T + weights[at - units : at]
        values = values if layer == len(model._sizes) - 2 else values.relu()
    last = targets.shape[1]
    deviation = torch.exp(float(LOW) + float(HIGH - LOW) * (values[:, last : 2 * last].tanh() + 1) / 2)
    changes = torch.distributions.Normal(values[:, :last], deviation).log_prob(targets).sum(1)
    ends = torch.distributions.Bernoulli(logits=values[:, -1]).log_prob(ended)
    return -(changes + ends).mean()


@pytest.mark.parametrize("base", [CARTPOLE, PENDULUM], ids=["choices", "numbers"])
def test_likelihood_and_gradient_of_each_member_are_those_of_torch(base):
    model, count = Ensemble(change_model(base, members=E, hidden=(9, 5), kind="ensemble"), seed=3), 21
    rows, before = rows_of(base, E * count), model.vectors.weights.copy()
    model.train(rows)
    units, inputs = np.sqrt(model.vectors.scales[1:]), model._inputs(rows["observation"], rows["action"])
    targets = model._changes(rows) / units
    losses = []
    for member, part in enumerate(np.split(before, E)):
        own = slice(member * count, (member + 1) * count)
        weights = torch.tensor(part, dtype=torch.float64, requires_grad=True)
        given = (inputs[own], targets[own], rows["terminated"][own])
        loss = loss_by_torch(model, weights, *(torch.tensor(part, dtype=torch.float64) for part in given))
        loss.backward()
        losses.append(loss.item())
        gradient = np.split(model._state.gradient, E)[member]
        assert gradient == pytest.approx(weights.grad.numpy(), rel=1e-3, abs=2e-5)
    assert model.loss == pytest.approx(np.mean(losses), rel=1e-5)


def test_likelihood_of_networks_whose_outputs_are_0_is_what_a_hand_computes():
    """A deviation is exp(-3), halfway between its bounds, an end as likely as not, each change 1 in its unit."""
    model = Ensemble(change_model(PENDULUM, members=2, hidden=(4,)))
    model.vectors.weights[:] = 0
    seen, action = np.zeros((2, 3), np.float32), np.zeros((2, 1), np.float32)
    rows = {"observation": seen, "action": action, "next_observation": seen + 1, "reward": np.ones(2)}
    assert model.train(rows | {"terminated": np.zeros(2, np.bool_)}) == pytest.approx(1)  # as bad as no change
    expected = 4 * (math.exp(6) / 2 - 3 + math.log(2 * math.pi) / 2) + math.log(2)
    assert model.loss == pytest.approx(expected, rel=1e-6)
    assert (model.calibration(rows), model.calibration(rows | {"next_observation": seen})) == ((0, 0), (0.75, 0.75))


def draw_known_gaussian(count, seed, scale=1.0):
    """Records whose changes are Gaussian: their mean is linear in the action, their deviation 0.2, or 0.6 in a half."""
    rng = np.random.default_rng(seed)
    seen = rng.uniform(-1, 1, (count, 3)).astype(np.float32)
    action = rng.uniform(-1, 1, (count, 1)).astype(np.float32)
    deviation = np.where(seen[:, :1] > 0, 0.6, 0.2)
    moved = scale * (action * [1, -1, 2, 0.5] + deviation * rng.standard_normal((count, 4)))
    names = ("observation", "action", "next_observation", "reward", "terminated")
    values = seen, action, seen + moved[:, :3].astype(np.float32), moved[:, 3], np.zeros(count, np.bool_)
    return dict(zip(names, values, strict=True))


@pytest.mark.parametrize("scale", [1, 1e-3])
def test_an_ensemble_of_a_known_gaussian_is_calibrated_and_samples_it(scale):
    model = Ensemble(change_model(PENDULUM, members=2, hidden=(32, 32), learning_rate=2e-3))
    for seed in range(1500):
        model.train(draw_known_gaussian(256, seed, scale))
    new = draw_known_gaussian(4_000, 9_999, scale)
    assert model.calibration(new) == pytest.approx((0.683, 0.954), abs=0.02)
    still = {name: np.repeat(new[name][:2], 5_000, 0) for name in ("observation", "action")}
    still["observation"][:, 0] = np.repeat([-0.5, 0.5], 5_000)
    _, rewards, _ = model.predict(still["observation"], still["action"], np.random.default_rng(0))
    for half, deviation in ((slice(5_000), 0.2), (slice(5_000, None), 0.6)):
        assert rewards[half].mean() / scale == pytest.approx(0.5 * still["action"][half][0, 0], abs=0.15)
        assert rewards[half].std() / scale == pytest.approx(deviation, rel=0.25)
    with pytest.raises(ValueError, match="rng"):
        model.predict(still["observation"], still["action"])


def test_each_member_learns_from_rows_of_its_own():
    loop, seen = make_loop(STARTS - 1), []
    loop.model.train = lambda rows: seen.append(np.split(rows["observation"], E)) or 0.0
    loop.advance()
    assert {part.shape for parts in seen for part in parts} == {(16, 3)}
    assert {len({part.tobytes() for part in parts}) for parts in seen} == {E}


class Counting:
    """A model by which the first number of a state grows by 1 and the episode ends at 3; the reward is the second."""

    def __init__(self):
        self.asked = []

    def predict(self, observations, actions, rng):
        self.asked.append(len(observations))
        following = observations + np.array([1, 0, 0], np.float32)
        return Prediction(following, observations[:, 1], following[:, 0] >= 3)


def test_rollouts_of_3_steps_end_where_the_model_says_and_every_transition_is_stored():
    loop, model = make_loop(), Counting()
    loop.model = model
    starts = np.array([[0, 5, 0], [1, 6, 0], [2, 7, 0], [2, 8, 0]], np.float32)
    filler = {"action": np.zeros((4, 1), np.float32), "reward": np.zeros(4), "terminated": np.zeros(4, np.bool_)}
    loop.buffer.insert(filler | {"observation": starts, "next_observation": starts})
    loop._roll_out()
    counts = np.bincount(loop.ring.arrays["reward"].astype(int)[: loop.ring.written], minlength=9)
    taken = counts[5:] / [3, 2, 1, 1]  # a start at 0 lasts for three steps, at 1 for two, at 2 for one
    assert (taken == M / 4).all()  # stratified, by equal chances
    assert model.asked == [M, M / 2, M / 4]
    assert loop.rollouts == loop.report()["rollouts"] == M + M / 2 + M / 4
    rows = {name: array[: loop.ring.written] for name, array in loop.ring.arrays.items()}
    assert np.array_equal(rows["next_observation"][:, 0], rows["observation"][:, 0] + 1)
    assert np.array_equal(rows["terminated"], rows["next_observation"][:, 0] == 3)
    assert len(np.unique(rows["action"])) > M  # of the policy, sampled anew in each step


@pytest.mark.parametrize("name", ["mbpo", "memr"])
def test_a_resumed_loop_with_an_ensemble_continues_bit_for_bit(name):
    base, algorithm, horizon = {"mbpo": (PENDULUM, mbpo, 3), "memr": (MEMR, memr, 1)}[name]
    model = {"kind": "ensemble", "interval": 4, "horizon": horizon}
    first, second = (make_loop(steps, base, algorithm, **model) for steps in (100, 0))  # more steps than the capacity
    assert_goes_on(first, second, lambda loop: (loop.advance(), loop.losses), 30)
    report = second.report()
    assert 1 <= report["rollouts"] / (131 - STARTS) / M <= horizon
    assert second._judged[0] == 130 - STARTS
    older = {key: value for key, value in first.state_dict().items() if key != "judged"}
    second.load_state_dict(older)  # as checkpoints of before calibration was counted


def test_identity_of_a_model_does_not_change_by_keys_that_have_their_defaults():
    assert (identity(MEMR), identity(CARTPOLE)) == (
        "d09fa346",
        "d03a2b4c",
    )  # as of records made before there were these
    assert (
        len({identity(change_model(PENDULUM, horizon=k, kind=kind)) for k in (1, 2) for kind in ("mlp", "ensemble")})
        == 4
    )
