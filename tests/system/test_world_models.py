"""Models of the environment: gradients against differences and torch, what they learn, rollouts of MEMR and MBPO."""

import dataclasses
import itertools

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="training needs the extra `train`")
pytest.importorskip("numba")
torch = pytest.importorskip("torch", reason="training needs the extra `train`")

from impls.training import TrainingError, load  # noqa: E402
from impls.training import ensemble as ensembles  # noqa: E402
from impls.training.algorithms import mbpo, memr  # noqa: E402
from impls.training.algorithms.memr import LOW, Density  # noqa: E402
from impls.training.ensemble import Ensemble  # noqa: E402
from impls.training.learners.dense_learner.sac import HIGH  # noqa: E402
from impls.training.workload import Model, identity  # noqa: E402
from impls.training.world_model import Prediction, WorldModel  # noqa: E402
from tests.learning import assert_goes_on, change, dense, slope  # noqa: E402

CARTPOLE, PENDULUM = load("cartpole_dqn"), load("pendulum_td3")
DYNA, MEMR, MBPO = load("cartpole_dyna_q"), load("pendulum_memr"), load("pendulum_mbpo")
M, K, B, E, STARTS = 8, 3, 6, 3, 20  # rollouts, segments, batch, members, and steps before the first update
each_kind = pytest.mark.parametrize("base", [CARTPOLE, PENDULUM], ids=["choices", "numbers"])


def workload(base, hidden=(9, 5), rate=1e-3, **more):
    return change(base, model=Model(hidden=hidden, learning_rate=rate, **more))


def change_model(base, **model):
    return dataclasses.replace(base, model=dataclasses.replace(base.model, **model))


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
def test_a_models_gradient_is_that_of_differences(base, kind):
    model, rows = WorldModel(workload(base, kind=kind), seed=3), rows_of(base, 37)
    before = model.vectors.weights.astype(np.float64)
    model.train(rows)
    changes = np.column_stack((rows["next_observation"] - rows["observation"], rows["reward"]))
    targets = changes / np.sqrt((changes**2).mean(0))
    inputs = model._inputs(rows["observation"], rows["action"])
    expected = slope(lambda weights: loss_of(weights, model, inputs, targets, rows["terminated"]), before)
    expected[: 9 * inputs.shape[1]] *= is_seen(base, 9) if kind == "parted" else 1
    assert model._state.gradient == pytest.approx(expected, rel=1e-3, abs=2e-5)


SIZES = [("mlp", 1e-9, 0, 0.15), ("mlp", 1e4, 0, 0.15), ("mlp", 1, 1_000, 0.15)]


@pytest.mark.parametrize(("kind", "scale", "offset", "most"), [("mlp", 1, 0, 0.05), ("parted", 1, 0, 0.05), *SIZES])
def test_a_linear_system_of_any_size_is_learned(kind, scale, offset, most):
    base = workload(CARTPOLE if kind == "mlp" else PENDULUM, (64, 64), 2e-3, kind=kind)
    model, errors = WorldModel(base), []
    for seed in range(1500 if most < 0.1 else 1000):
        rows = rows_of(base, 64, seed)
        for name in ("observation", "next_observation"):
            rows[name] = np.float32(rows[name] * scale + offset)
        errors.append(model.train(rows))
    assert np.mean(errors[-50:]) < most
    assert model.complaint() == ""
    if (scale, offset) != (1, 0):
        return
    assert errors[0] > 0.8
    new = rows_of(base, 500, 9_999)
    following, reward, ended = model.predict(new["observation"], new["action"])
    change = new["next_observation"] - new["observation"]
    wrong = following - new["next_observation"]
    assert (np.sqrt((wrong**2).mean(0)) < 0.1 * np.sqrt((change**2).mean(0))).all()  # each number of the state
    assert np.abs(reward - new["reward"]).mean() < 0.1
    assert (ended == new["terminated"]).mean() > 0.95


@each_kind
def test_parted_input_layers_stay_apart(base):
    model = WorldModel(workload(base, kind="parted"), seed=3)
    states, inputs = base.observation.stacked[0], base.observation.stacked[0] + base.action_size
    assert model._sizes.tolist() == [inputs, 9, 9, 5, states + 2]
    for seed in range(3):
        model.train(rows_of(base, 37, seed))
        np.testing.assert_array_equal(model.vectors.weights[: 9 * inputs] != 0, is_seen(base, 9))


def test_defaults_of_a_model_leave_the_identity_as_it_was():
    assert (identity(MEMR), identity(DYNA)) == ("d09fa346", "d03a2b4c")  # of records made before there were these keys
    changes = [{"kind": "parted"}, {"horizon": 2}, {"kind": "ensemble"}, {"kind": "ensemble", "horizon": 2}]
    changed = {identity(change_model(DYNA, **keys)) for keys in changes}
    assert len(changed - {identity(DYNA)}) == len(changes)


def test_error_of_a_model_that_predicts_no_change_is_one():
    model, rows = WorldModel(workload(CARTPOLE)), rows_of(CARTPOLE, 20)
    model.vectors.weights[:] = 0
    assert model.train(rows) == pytest.approx(1)
    still = rows | {"next_observation": rows["observation"]}
    assert WorldModel(workload(CARTPOLE)).train(still) == 0


def test_an_unusable_model_is_told_of_after_a_while():
    model, rows = WorldModel(workload(CARTPOLE, rate=1e-30)), rows_of(CARTPOLE, 20)
    for _ in range(999):
        model.train(rows)
    assert not model.complaint()
    model.train(rows)
    assert model.complaint()


# Rollouts of MEMR


def small(base=MEMR, **model):
    """A pendulum of few steps; ``model`` changes its model."""
    base = change(base, batch=B, learning_starts=STARTS, capacity=64)
    tiny = {"members": E, "hidden": (8, 4), "batch": 16, "rollouts": M, "segments": K, "updates": 2}
    return change_model(base, **tiny | model)


def make_loop(steps=0, base=MEMR, algorithm=memr, **model):
    """A loop after some steps."""
    loop = algorithm.Loop(small(base, **model), contestant="numpy")
    for _ in range(steps):
        loop.advance()
    return loop


def of_two_numbers(count=40, rate=1e-3):
    """A density of actions of two numbers, and states and actions for it."""
    density = Density(change(small(learning_rate=rate), size=2), 4)
    rng = np.random.default_rng(1)
    states = rng.standard_normal((count, 3), np.float32)
    actions = rng.uniform(-1, 1, (count, 2))
    return density, states, actions.astype(np.float32)


def moments(weights, sizes, states):
    """(means, deviations) in float64."""
    mean, raw = np.split(dense_of_vector(weights, sizes, states), 2, 1)
    return mean, np.exp(LOW + (HIGH - LOW) * (np.tanh(raw) + 1) / 2)


def density_loss(weights, sizes, states, actions):
    mean, deviation = moments(weights, sizes, states)
    z = (actions - mean) / deviation
    return (z * z / 2 + np.log(deviation) + np.log(2 * np.pi) / 2).sum(1).mean()


def test_priorities_are_those_of_equation_3_7():
    density, states, actions = of_two_numbers()
    found = density.priorities(states, actions)
    mean, deviation = moments(density.state.weights.astype(np.float64), density._sizes, states)
    pdf = np.exp(-(((actions - mean) / deviation) ** 2) / 2) / (np.sqrt(2 * np.pi) * deviation)
    assert found == pytest.approx(-np.log(np.sqrt(2 * np.pi) * pdf * deviation).sum(1), rel=1e-4, abs=1e-5)
    for values, most in ((found, np.inf), (density.priorities(states, mean), 1e-6)):
        assert ((values >= 0) & (values < most)).all()
    far = density.priorities(states, mean + 60 * deviation)  # where exp(-z^2 / 2) is 0
    assert far == pytest.approx(np.full(len(far), 3600), rel=1e-3)


def test_slopes_of_the_density_are_those_of_differences():
    density, states, actions = of_two_numbers()
    before, sizes = density.state.weights.astype(np.float64), density._sizes
    fitted = density.fit(states, actions, 1)
    assert fitted == pytest.approx(density_loss(before, sizes, states, actions), rel=1e-5)
    expected = slope(lambda weights: density_loss(weights, sizes, states, actions), before)
    assert density.state.gradient == pytest.approx(expected, rel=1e-3, abs=2e-5)


def test_a_record_has_the_priority_of_its_own_action():
    loop = make_loop(5)
    state, replay = loop.buffer.state_dict(), loop.workload.replay
    rows = state["arrays"]
    expected = loop.density.priorities(rows["observation"], rows["action"]) + replay.epsilon  # not yet fitted
    assert state["leaves"] == pytest.approx(expected.astype(np.float64) ** replay.alpha, rel=1e-6)


def test_a_step_rolls_out_samples_and_renews_their_priorities():
    loop, seen = make_loop(STARTS + 2), []
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
    seen = drawn.rows["observation"]
    rows = {"observation": seen, "action": actions, "next_observation": following, "reward": reward}
    for name, values in rows.items():
        assert np.array_equal(stored["arrays"][name][first : first + M], values)
    assert epochs == loop.workload.model.epochs == 5
    assert set(changed := np.flatnonzero(after != leaves)) == set(drawn.sequence)
    expected = (loop.density.priorities(states, actions).astype(np.float64) + replay.epsilon) ** replay.alpha
    last = dict(zip(drawn.sequence, expected, strict=True))  # of a state sampled twice
    assert after[changed] == pytest.approx([last[each] for each in changed], rel=1e-6)


def test_each_gradient_step_is_on_a_batch_of_one_segment():
    loop, batches = make_loop(STARTS - 1), []
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
    loop, seen = make_loop(100), []  # more than the capacity of 64
    loop.model.train = lambda rows: seen.append(rows["observation"]) or 0.0
    loop._modeled -= 200
    loop._train_model()
    real = loop.buffer.state_dict()["arrays"]["observation"]
    counts = (np.concatenate(seen)[:, None] == real).all(2).sum(0)
    assert counts.sum() == 200 * 16
    assert ((counts - 50) ** 2 / 50).sum() < 103.4  # chi-square of 63 degrees of freedom, level 0.001


def test_a_model_is_trained_once_an_interval_for_all_its_steps():
    loop = make_loop(STARTS - 1, interval=7)
    counts = [(loop.advance(), loop.model.vectors.scales[0])[1] for _ in range(20)]
    assert counts == [STARTS] * 7 + [STARTS + 7] * 7 + [STARTS + 14] * 6


@pytest.mark.parametrize("part", ["model", "density", "learner"])
def test_a_part_that_diverges_is_a_sentence(part):
    loop = make_loop(STARTS - 1)
    vectors = {"model": loop.model.vectors.weights, "density": loop.density.state.weights}
    vectors.get(part, loop.learner.target_parameters)[:] = np.nan
    with pytest.raises(TrainingError, match=r"after (19|20) steps and .* diverged"):
        loop.advance()


def test_segments_larger_than_memory_are_a_sentence():
    with pytest.raises(TrainingError, match=r"1,048,576 .* 1,048,576 .*segments"):
        make_loop(segments=1 << 20, rollouts=1 << 20)


# Ensembles and branched rollouts, as of MBPO


def loss_by_torch(model, weights, inputs, targets, ended):
    """The mean negative log likelihood of one member's rows, by torch's distributions."""
    values, at = inputs, 0
    for layer, (count, units) in enumerate(zip(model._sizes, model._sizes[1:], strict=False)):
        matrix = weights[at : at + count * units].reshape(units, count)
        at += (count + 1) * units
        values = values @ matrix.T + weights[at - units : at]
        values = values if layer == len(model._sizes) - 2 else values.relu()
    last = targets.shape[1]
    deviation = torch.exp(
        float(ensembles.LOW) + float(ensembles.HIGH - ensembles.LOW) * (values[:, last : 2 * last].tanh() + 1) / 2
    )
    changes = torch.distributions.Normal(values[:, :last], deviation).log_prob(targets).sum(1)
    ends = torch.distributions.Bernoulli(logits=values[:, -1]).log_prob(ended)
    return -(changes + ends).mean()


@pytest.mark.parametrize("base", [DYNA, MBPO], ids=["choices", "numbers"])
def test_each_members_likelihood_and_gradient_are_torchs(base):
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
def test_an_ensemble_learns_and_samples_a_known_gaussian(scale):
    model = Ensemble(change_model(MBPO, members=2, hidden=(32, 32), learning_rate=2e-3))
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
    loop, seen = make_loop(STARTS - 1, MBPO, mbpo), []
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


def test_rollouts_of_3_steps_end_where_the_model_says():
    loop, model = make_loop(0, MBPO, mbpo, horizon=3), Counting()
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


GOING_ON = {
    "memr": (MEMR, memr, {}),
    "memr, ensemble": (MEMR, memr, {"kind": "ensemble"}),
    "mbpo": (MBPO, mbpo, {"kind": "ensemble", "horizon": 3}),
}


@pytest.mark.parametrize("name", GOING_ON)
def test_a_resumed_loop_with_a_model_goes_on_alike(name):
    base, algorithm, model = GOING_ON[name]
    made = (make_loop(steps, base, algorithm, interval=4, **model) for steps in (100, 0))  # more than the capacity
    first, second = made
    assert_goes_on(first, second, lambda loop: (loop.advance(), loop.losses), 30)
    if "kind" in model:
        assert 1 <= second.report()["rollouts"] / (131 - STARTS) / M <= model.get("horizon", 1)
        assert second._judged[0] == 130 - STARTS
        older = {key: value for key, value in first.state_dict().items() if key != "judged"}
        second.load_state_dict(older)  # as checkpoints of before calibration was counted
