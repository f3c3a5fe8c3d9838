"""Learners: gradients against differences in float64, known answers, weights once, priorities, targets."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

from impls.training import load
from impls.training.weights import average, initial, shapes
from tests.learning import ALGORITHMS, batch_of, dense, slope, tiny, weights_of

torch = pytest.importorskip("torch", reason="learners need the extra `train`")
from impls.training.learners import torch_learner as algorithms  # noqa: E402

torch.set_num_threads(1)  # these networks are too small to share
WEIGHTS = np.array([1.0, 0.5, 0.25, 0.75], np.float32)


def gradients_of(learner, rows, network):
    phase = next(phase for phase in learner.phases() if phase.network == network)
    found, loss, errors = learner.gradients(phase, rows)
    names = [name for name, _ in learner.networks[network].named_parameters()]
    return dict(zip(names, (each.numpy() for each in found), strict=True)), float(loss), errors


def huber(errors):
    return np.where(np.abs(errors) <= 1, errors**2 / 2, np.abs(errors) - 0.5)


def half_square(errors):
    return errors**2 / 2


def check(loss, weights, learner, rows, network):
    """The learner's loss and gradient beside the loss written out in float64 and its differences."""
    found, value, errors = gradients_of(learner, rows, network)
    assert value == pytest.approx(loss(weights), rel=1e-5, abs=1e-6)
    for name, part in weights.items():
        expected = slope(lambda moved, name=name: loss(weights | {name: moved}), part)
        assert_allclose(found[name], expected, rtol=2e-4, atol=2e-6, err_msg=name)
    return errors


def doubles(batch):
    return {name: part.astype(np.float64) for name, part in batch.items() if name != "action"}


@pytest.mark.parametrize("kind", ["huber", "squared"])
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("double", [False, True])
def test_gradient_of_dqn(double, dueling, kind):
    workload = tiny("dqn", double=double, dueling=dueling, loss=kind, gamma=0.9)
    learner, batch = algorithms.make(workload, seed=2), batch_of(workload)
    learner.targets = algorithms.make(workload, seed=3).networks
    target, weights = (weights_of(networks["action_values"]) for networks in (learner.targets, learner.networks))
    real = doubles(batch)

    def values(weights, seen):
        outputs = dense(weights, "", seen)
        return outputs[:, :1] + outputs[:, 1:] - outputs[:, 1:].mean(1, keepdims=True) if dueling else outputs

    following = values(target, real["next_observation"])
    chosen = values(weights, real["next_observation"]) if double else following
    assert not double or ((chosen.argmax(1) != following.argmax(1)) & (real["terminated"] == 0)).any()
    best = following[np.arange(4), chosen.argmax(1)]
    goal = real["reward"] + 0.9 * best * (1 - real["terminated"])

    def errors(weights):
        return values(weights, real["observation"])[np.arange(4), batch["action"]] - goal

    def loss(weights):
        return (WEIGHTS * (huber if kind == "huber" else half_square)(errors(weights))).mean()

    found = check(loss, weights, learner, learner.rows(batch, WEIGHTS), "action_values")
    assert_allclose(found, errors(weights), rtol=1e-5, atol=1e-6)


def critic(weights, observations, actions, prefix=""):
    """``[B]``."""
    return dense(weights, prefix, np.concatenate((observations, actions), 1))[:, 0]


def gaussian(weights, observations, noise):
    """(actions ``[B, A]``, log density ``[B]``) of a squashed Gaussian, by the textbook's formula."""
    mean, log_deviation = np.split(dense(weights, "", observations), 2, 1)
    log_deviation = -5 + 7 * (np.tanh(log_deviation) + 1) / 2
    actions = np.tanh(mean + np.exp(log_deviation) * noise)
    density = -(noise**2) / 2 - log_deviation - np.log(2 * np.pi) / 2 - np.log(1 - actions**2)
    return actions, density.sum(1)


SMOOTHED = {"policy_delay": 1, "target_noise": 0.4, "noise_clip": 0.3}


@pytest.mark.parametrize(("algorithm", "changes"), [("ddpg", {}), ("td3", SMOOTHED), ("sac", {})], ids=ALGORITHMS[1:])
def test_gradients_of_critics(algorithm, changes):
    workload = tiny(algorithm, gamma=0.9, **changes)
    learner, batch = algorithms.make(workload, seed=1), batch_of(workload)
    learner.targets = algorithms.make(workload, seed=2).networks
    weights, policy = (weights_of(learner.networks[name]) for name in ("critic", "policy"))
    rows, real, given = learner.rows(batch, WEIGHTS), doubles(batch), batch["action"].astype(np.float64)
    noise, next_noise = (
        rows[name].numpy().astype(np.float64) if name in rows else 0 for name in ("noise", "next_noise")
    )
    is_sac, temperature = algorithm == "sac", 0.0
    if is_sac:
        temperature = np.exp(-0.5)
        with torch.no_grad():
            learner.networks["temperature"].log.fill_(-0.5)

    def values(weights, seen, actions):
        """The values ``[n, B]`` of one critic or two."""
        names = [""] if algorithm == "ddpg" else ["first.", "second."]
        return np.stack([critic(weights, seen, actions, name) for name in names])

    def act(policy, seen, noise):
        """(actions ``[B, A]``, log density ``[B]`` or 0)."""
        return gaussian(policy, seen, noise) if is_sac else (np.tanh(dense(policy, "", seen)), 0.0)

    acting = policy if is_sac else weights_of(learner.targets["policy"])
    actions, density = act(acting, real["next_observation"], next_noise)
    if algorithm == "td3":
        assert np.abs(noise).max() == pytest.approx(0.3)
        actions = np.clip(actions + noise, -1, 1)
    following = values(
        weights_of(learner.targets["critic"]),
        real["next_observation"],
        actions,
    ).min(0)
    goal = real["reward"] + 0.9 * (following - temperature * density) * (1 - real["terminated"])

    def errors(weights):
        return values(weights, real["observation"], given) - goal

    def critic_loss(weights):
        return (WEIGHTS * half_square(errors(weights))).mean(1).sum()

    def policy_loss(policy):  # importance weights do not act here
        actions, density = act(policy, real["observation"], noise)
        judged = values(weights, real["observation"], actions)
        return (temperature * density - (judged.min(0) if is_sac else judged[0])).mean()

    def temperature_loss(log):
        return -(log["log"] * (gaussian(policy, real["observation"], noise)[1] - 2)).mean()

    found = check(critic_loss, weights, learner, rows, "critic")
    assert_allclose(found.abs().numpy(), np.abs(errors(weights)).max(0), rtol=1e-5)
    check(policy_loss, policy, learner, rows, "policy")
    if is_sac:
        check(temperature_loss, {"log": np.array(-0.5)}, learner, rows, "temperature")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_priorities_are_the_td_errors_before_the_step_and_learning_makes_them_smaller(algorithm):
    workload = tiny(algorithm, hidden=(32,), learning_rate=1e-2, gamma=0.0)
    learner, batch = algorithms.make(workload), batch_of(workload)
    before = learner.priorities(batch)
    found = learner.step(batch, np.ones(4, np.float32))
    assert_allclose(found.priorities, before, rtol=1e-5)
    assert found.priorities.shape == (4,)
    assert all(np.isfinite(loss) for loss in found.losses.values())
    for _ in range(400):
        found = learner.step(batch, np.ones(4, np.float32))
    assert found.priorities.max() < before.max() / 5


@pytest.mark.parametrize(
    (
        "algorithm",
        "interval",
        "tau",
    ),
    [("ddpg", 1, 0.25), ("ddpg", 3, 1.0), ("sac", 1, 0.25), ("sac", 3, 1.0)],
)
def test_targets_move_when_it_is_their_turn(algorithm, interval, tau):
    workload = tiny(algorithm, target_interval=interval, tau=tau)
    learner, batch = algorithms.make(workload), batch_of(workload)
    for step in range(1, 8):
        before = {name: weights_of(learner.targets[name]) for name in learner.targets}
        learner.step(batch, WEIGHTS)
        for name, old in before.items():
            new, trained = weights_of(learner.targets[name]), weights_of(learner.networks[name])
            share = tau if step % interval == 0 else 0.0
            for part, value in old.items():
                assert_allclose(
                    new[part],
                    value + share * (trained[part] - value),
                    rtol=1e-5,
                    atol=1e-7,
                )


TARGETS = {
    "dqn": {"action_values"},
    "ddpg": {"critic", "policy"},
    "td3": {"critic", "policy"},
    "sac": {"critic"},
}


@pytest.mark.parametrize("algorithm", TARGETS)
def test_only_what_td_errors_read_has_a_target(algorithm):
    learner = algorithms.make(tiny(algorithm))
    assert set(learner.targets) == TARGETS[algorithm]
    assert not any(each.requires_grad for each in learner.targets.parameters())


def test_td3_trains_its_policy_every_other_step():
    learner = algorithms.make(tiny("td3", policy_delay=2))
    batch = batch_of(learner.workload)
    trained = [set(learner.step(batch, WEIGHTS).losses) for _ in range(4)]
    assert trained == [{"critic"}, {"critic", "policy"}] * 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_fetched_weights_act_and_judge_what_follows(algorithm):
    workload = tiny(algorithm)
    one, other = (algorithms.make(workload, seed=seed) for seed in (1, 2))
    batch = batch_of(workload)
    for _ in range(20):
        one.step(batch, WEIGHTS)
    other.load_weights(one.weights())
    assert_array_equal(
        one.act(
            batch["observation"],
            0.0,
            None,
        ),
        other.act(batch["observation"], 0.0, None),
    )
    for name, target in other.targets.items():
        assert_equal(weights_of(target), weights_of(one.networks[name]))
    one.move_targets(1.0)
    other.rng.bit_generator.state = one.rng.bit_generator.state
    assert_array_equal(other.priorities(batch), one.priorities(batch))


@pytest.mark.parametrize("algorithm", ["ddpg", "td3", "sac"])
def test_a_policy_learns_at_a_rate_of_its_own(algorithm):
    """Adam's first step moves a weight by its rate, whatever the gradient, where that is not 0."""
    for rate, own in ((1e-4, 1e-4), (0.0, 1e-2)):
        workload = tiny(algorithm, learning_rate=1e-2, policy_learning_rate=rate, policy_delay=1)
        learner = algorithms.make(workload)
        before = {name: weights_of(network) for name, network in learner.networks.items()}
        learner.step(batch_of(workload), WEIGHTS)
        for name, old in before.items():
            new = weights_of(learner.networks[name])
            moved = max(np.abs(new[part] - old[part]).max() for part in old)
            assert moved == pytest.approx(own if name == "policy" else 1e-2, rel=1e-2), name


def test_exploration():
    rng, seen = np.random.default_rng(0), np.zeros((2000, 2), np.float32)
    chooser = algorithms.make(tiny("dqn"))
    greedy = chooser.act(seen, 0.0, rng)
    assert len(set(greedy)) == 1
    strayed = chooser.act(seen, 0.3, rng)
    assert np.mean(strayed != greedy) == pytest.approx(0.3 * 2 / 3, abs=0.03)
    for algorithm in ("ddpg", "td3"):
        policy = algorithms.make(tiny(algorithm))
        noise = policy.act(seen, 0.1, rng) - policy.act(seen, 0.0, rng)
        assert noise.std() == pytest.approx(0.1, rel=0.05)
        assert np.abs(policy.act(seen, 9.0, rng)).max() == 1.0
    drawn = algorithms.make(tiny("sac")).act(seen, 0.0, rng)
    assert drawn.std() > 0.01
    assert np.abs(drawn).max() <= 1.0


def test_a_seed_decides_a_learner_and_leaves_torch_as_it_was():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, other = algorithms.make(tiny(), seed=1), algorithms.make(tiny(), seed=1)
    assert_array_equal(torch.rand(3), expected)
    assert_array_equal(one.weights(), other.weights())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_a_compiled_learner_learns_the_same():
    plain, compiled = (algorithms.make(tiny(), compiled=compiled) for compiled in (False, True))
    batch = batch_of(tiny())
    for _ in range(3):
        one, other = plain.step(batch, WEIGHTS), compiled.step(batch, WEIGHTS)
        assert_allclose(one.priorities, other.priorities, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_learner_on_a_gpu_learns_the_same(algorithm):
    host, device = (algorithms.make(tiny(algorithm), device=device) for device in ("cpu", "cuda"))
    device.load_state_dict(host.state_dict())
    for _ in range(3):
        one, other = host.step(batch_of(host.workload), WEIGHTS), device.step(batch_of(host.workload), WEIGHTS)
        assert_allclose(one.priorities, other.priorities, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("log", [-150.0, -90.0])
def test_a_temperature_too_small_for_float32_leaves_its_logarithm_finite(log):
    learner = algorithms.make(tiny("sac"), seed=1)
    weights = learner.weights()
    weights[-1] = log
    learner.load_weights(weights)
    stepped = learner.step(batch_of(learner.workload), WEIGHTS)
    assert np.isfinite(stepped.losses["temperature"])
    assert 0 < abs(learner.weights()[-1] - log) < 0.01


@pytest.mark.parametrize("name", ["pong_dqn", "hopper_sac"])
def test_weights_begin_uniform_within_one_over_the_root_of_a_layers_inputs(name):
    workload = load(name)
    weights, at, bound = initial(workload, 1), 0, 0.0
    for shape in (shape for network in shapes(workload).values() for shape in network if shape):
        bound = 1 / np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else bound  # a bias has its weight's
        part, at = weights[at : at + np.prod(shape)], at + np.prod(shape)
        assert np.abs(part).max() <= np.float32(bound)
        if len(part) > 30:
            assert np.abs(part).max() > 0.8 * bound
            assert part.std() == pytest.approx(bound / np.sqrt(3), rel=0.3)
    assert np.isfinite(weights).all()


def test_a_temperature_begins_at_the_workloads_or_at_1_where_it_is_tuned():
    assert initial(tiny("sac", temperature=0.3), 1)[-1] == pytest.approx(np.log(0.3))
    assert initial(tiny("sac"), 1)[-1] == 0


def test_the_noise_of_sacs_two_actions_is_standard_normal_and_independent():
    noise = algorithms.make(tiny("sac"), seed=1)._noise(1_000)
    assert (noise.shape, noise.dtype) == ((2, 1_000, 2), np.float32)
    assert_allclose(np.cov(noise.transpose(0, 2, 1).reshape(4, -1)), np.eye(4), atol=0.15)


def test_weights_of_models_are_averaged():
    models = [initial(tiny(), seed) for seed in range(3)]
    plain, shared = average(models), average(models, [1, 0, 3])
    assert_allclose(plain, sum(model.astype(float) for model in models) / 3, rtol=1e-5, atol=1e-7)
    assert_allclose(shared, (models[0] + 3 * models[2]) / 4, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match="must have the same weights"):
        average([models[0], models[1][:-1]])
    with pytest.raises(ValueError, match="2 shares for 3 models"):
        average(models, [1, 2])
