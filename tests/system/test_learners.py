"""Learners: torch's gradients against differences in float64, the dense ones against torch's; targets and weights."""

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

from impls.training import TrainingError, load
from impls.training.actor import Actor
from impls.training.learners import default, make, names, prepare
from impls.training.learners import dense_learner as package
from impls.training.learners.dense_learner import learner as calling
from impls.training.loop import SerialLoop
from impls.training.weights import average, initial, shapes, spans
from tests.learning import ALGORITHMS, batch_of, change, dense, slope, tiny, weights_of

torch = pytest.importorskip("torch", reason="learners need the extra `train`")
pytest.importorskip("numba")
from impls.training.learners import torch_learner as algorithms  # noqa: E402

torch.set_num_threads(1)  # these networks are too small to share
WEIGHTS = np.array([1.0, 0.5, 0.25, 0.75], np.float32)
CARTPOLE, HOPPER = load("cartpole_dqn"), load("hopper_sac")
SEED = 11


# Gradients of torch's learner


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
    noise, next_noise = (rows[name].numpy().astype(float) if name in rows else 0 for name in ("noise", "next_noise"))
    is_sac, temperature = algorithm == "sac", 0.0
    if is_sac:
        temperature = np.exp(-0.5)
        with torch.no_grad():
            learner.networks["temperature"].log.fill_(-0.5)

    def values(weights, seen, actions):
        """The values ``[n, B]`` of one critic or two."""
        critics, inputs = [""] if algorithm == "ddpg" else ["first.", "second."], np.concatenate((seen, actions), 1)
        return np.stack([dense(weights, critic, inputs)[:, 0] for critic in critics])

    def act(policy, seen, noise):
        """(actions ``[B, A]``, log density ``[B]`` or 0)."""
        return gaussian(policy, seen, noise) if is_sac else (np.tanh(dense(policy, "", seen)), 0.0)

    acting = policy if is_sac else weights_of(learner.targets["policy"])
    actions, density = act(acting, real["next_observation"], next_noise)
    if algorithm == "td3":
        assert np.abs(noise).max() == pytest.approx(0.3)
        actions = np.clip(actions + noise, -1, 1)
    following = values(weights_of(learner.targets["critic"]), real["next_observation"], actions).min(0)
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


# The dense learner against torch's


def shape_of(algorithm, batch=7, hidden=(19, 5), inputs=3, size=2, **changes):
    """A workload of an algorithm with such networks."""
    base = {"dqn": CARTPOLE, "a3c": load("cartpole_a3c")}.get(algorithm, HOPPER)
    plain = {"loss": "squared", "gradient_clip": 0.0, "learning_rate": 1e-3, "target_interval": 1, "tau": 0.01}
    plain |= {"batch": batch, "hidden": hidden, "shape": (inputs,), "choices" if base.has_choices else "size": size}
    return change(base, algorithm=algorithm, **plain | changes)


def draw_batches(workload, count=1, seed=0):
    """Random transitions of a workload's batch size, with importance weights."""
    rng, rows = default_rng(seed), workload.learner.batch
    shape, is_bytes = (rows, *workload.observation.stacked), workload.observation.dtype == "uint8"
    for _ in range(count):
        seen = [rng.integers(256, size=shape) if is_bytes else rng.standard_normal(shape) for _ in range(2)]
        seen = [part.astype(workload.observation.dtype) for part in seen]
        action = rng.uniform(-1, 1, (rows, workload.action_size)).astype(np.float32)
        if workload.has_choices:
            action = rng.integers(workload.action.choices, size=rows)
        if workload.algorithm == "a3c":  # most rows begin where the one before has led
            seen[0][1:] = np.where(rng.random((rows - 1, 1)) < 0.7, seen[1][:-1], seen[0][1:])
        reward = (3 * rng.standard_normal(rows)).astype(np.float32)  # on both sides of Huber's bends
        parts = ("observation", "next_observation", "action", "reward", "terminated")
        drawn = dict(zip(parts, (*seen, action, reward, rng.random(rows) < 0.3), strict=True))
        yield drawn, rng.random(rows).astype(np.float32)


def exact_gradients(workload, before, after, transitions, weights):
    """(gradient [P], priorities [B]) in float64 by torch; a phase sees the weights that the one before it left."""
    twin = make(workload, "torch", seed=SEED)
    twin.load_state_dict(before)
    rows = twin.rows(transitions, weights)
    for module in (module for network in (twin.networks, twin.targets) for module in network.double().modules()):
        if getattr(module, "_scale", 1.0) != 1.0:  # of bytes, which it would divide in float32
            module._scale = 1.0
            rows |= {name: part / 255.0 for name, part in rows.items() if part.dtype == torch.uint8}
    rows = {name: part.double() if part.is_floating_point() else part for name, part in rows.items()}
    gradient, errors, parts = np.zeros(len(after)), None, spans(workload)
    for phase in twin.phases():
        gradients, _, new_errors = twin.gradients(phase, rows)
        gradient[parts[phase.network]] = torch.cat([each.ravel() for each in gradients]).numpy()
        errors = new_errors if errors is None else errors
        left = torch.from_numpy(after[parts[phase.network]]).double()
        torch.nn.utils.vector_to_parameters(left, twin.networks[phase.network].parameters())
    return gradient, errors.abs().numpy()


CASES = {
    "dqn": {"double": False},
    "dqn, double": {"size": 5, "loss": "huber"},
    "dqn, dueling": {"dueling": True, "size": 3, "loss": "huber", "gradient_clip": 0.01},
    "dqn, dueling, one layer": {"dueling": True, "hidden": (33,), "double": False},
    "dqn, bytes": {"dtype": "uint8", "batch": 37, "inputs": 50},
    "dqn, one row": {"batch": 1, "hidden": (8, 8, 8)},
    "dqn, wide": {"batch": 65, "hidden": (128, 130), "inputs": 4},
    "ddpg": {"batch": 33},
    "ddpg, huber": {"batch": 1, "hidden": (17,), "size": 1, "loss": "huber"},
    "td3": {"policy_delay": 1, "batch": 40, "size": 3},
    "td3, delayed": {"policy_delay": 2, "loss": "huber"},
    "sac": {"batch": 35, "size": 3, "inputs": 11},
    "sac, fixed": {"temperature": 0.3, "hidden": (40,), "loss": "huber"},
    "sac, one row": {"batch": 1, "size": 1, "gradient_clip": 1.0},
    "sac, more actions than units": {"size": 9, "hidden": (2,), "inputs": 1},
    "a3c": {"batch": 37, "size": 3, "gae_lambda": 0.9, "entropy": 0.1},
    "a3c, huber": {"batch": 65, "gamma": 0.9, "gae_lambda": 1.0, "loss": "huber", "dtype": "uint8"},
    "a3c, one row": {"batch": 1, "size": 9, "hidden": (2,), "inputs": 1, "gradient_clip": 0.1},
}


@pytest.mark.parametrize("case", CASES)
def test_dense_gradients_are_exact_derivatives_in_float64(case):
    shape = shape_of(case.partition(",")[0], **CASES[case])
    learner, other = (make(shape, "dense", seed=seed) for seed in (SEED, SEED + 1))
    learner.target_parameters[:] = other.target_parameters  # or else both would choose alike
    for transitions, weights in draw_batches(shape, 3):
        before = learner.state_dict()
        stepped = learner.step(transitions, weights)
        gradient, errors = exact_gradients(shape, before, learner.weights(), transitions, weights)
        assert_allclose(stepped.priorities, errors, rtol=1e-5, atol=1e-5)
        for name in stepped.losses:  # sums of up to 130 terms, each rounded to float32
            span = spans(shape)[name]
            largest = np.abs(gradient[span]).max()
            assert_allclose(learner._state.gradient[span], gradient[span], rtol=1e-4, atol=5e-6 * largest)


RUNS = {
    "dqn": {"dueling": True, "loss": "huber", "gradient_clip": 1.0, "hidden": (32, 32)},
    "dqn, copied targets": {"target_interval": 7, "tau": 1.0},
    "ddpg": {"policy_learning_rate": 1e-4, "gradient_clip": 0.5},
    "td3": {"target_interval": 2},
    "sac": {"gradient_clip": 2.0},
    "a3c": {"gradient_clip": 0.5, "policy_learning_rate": 3e-4},
}


@pytest.mark.parametrize("run", RUNS)
def test_a_hundred_steps_are_those_of_torch(run):
    """Adam divides by the size of the gradient, so rounding alone can move a weight whose gradient is near 0 by as
    much as the learning rate: TD errors, which hardly depend on such a weight, agree to 1e-3 after 100 steps, and no
    weight differs by as much as two steps of 1e-3."""
    shape = shape_of(run.partition(",")[0], batch=16, **RUNS[run])
    ours, theirs = (make(shape, name, seed=SEED) for name in ("dense", "torch"))
    for count, batch in enumerate(draw_batches(shape, 100), 1):
        stepped, expected = ours.step(*batch), theirs.step(*batch)
        assert_allclose(stepped.priorities, expected.priorities, rtol=1e-3, atol=1e-3)
        assert stepped.losses == pytest.approx(expected.losses, rel=1e-3, abs=1e-3)
        assert ours.steps == theirs.steps == count
    assert_allclose(ours.weights(), theirs.weights(), atol=2e-3)
    assert_allclose(ours._targets(), theirs._targets(), atol=2e-3)
    assert ours.state_dict()["updates"] == theirs.state_dict()["updates"]


@pytest.mark.parametrize("algorithm", (*ALGORITHMS, "a3c"))
def test_actions_and_priorities_are_those_of_torch(algorithm):
    for dtype in ("float32", "uint8"):
        shape = shape_of(algorithm, batch=9, dtype=dtype, dueling=algorithm == "dqn")
        both = [make(shape, name, seed=SEED) for name in ("dense", "torch")]
        ((transitions, _),) = draw_batches(shape)
        assert_allclose(*(each.priorities(transitions) for each in both), rtol=1e-5, atol=1e-5)
        for count, explore, seed in ((9, 0.0, None), (1, 0.0, None), (4, 0.5, 3)):
            seen = transitions["observation"][:count]
            ours, theirs = (each.act(seen, explore, None if seed is None else default_rng(seed)) for each in both)
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            assert_allclose(ours, theirs, atol=0 if shape.has_choices else 2e-6)


def test_critics_of_equal_value_share_the_slope_of_sac():
    shape = shape_of("sac")
    parts, means = spans(shape), []
    for name in ("dense", "torch"):
        learner = make(shape, name, seed=1)
        weights = learner.weights()
        first, second = np.split(weights[parts["critic"]], 2)
        second[:] = first
        learner.load_weights(weights)
        ((transitions, _),) = draw_batches(shape)
        learner.step(transitions, np.zeros(len(transitions["reward"]), np.float32))  # which leaves the critics as is
        means.append(learner.state_dict()["mean"][parts["policy"]])
    assert_allclose(*means, rtol=1e-4, atol=1e-7)


# What each learner does


def test_parts_of_a_batch_that_do_not_fit_are_refused():
    for algorithm in ("dqn", "sac", "a3c"):
        shape = shape_of(algorithm)
        learner, ((transitions, weights),) = make(shape, "dense"), draw_batches(shape)
        wrong = [(transitions | {name: part[:-1]}, weights) for name, part in transitions.items()]
        wrong += [(transitions | {name: np.stack((part, part))}, weights) for name, part in transitions.items()]
        for rows, own in (*wrong, (transitions, weights[1:])):
            with pytest.raises(ValueError, match="reshape"):
                learner.step(rows, own)
        with pytest.raises(ValueError, match="reshape"):
            learner.act(transitions["observation"][0], 0, None)
        assert learner.steps == sum(learner.state_dict()["updates"].values()) == 0
        if shape.has_choices:
            with pytest.raises(IndexError, match="choices"):
                learner.step(transitions | {"action": np.full(7, 2)}, weights)


@pytest.mark.parametrize("name", names())
def test_a_learner_clips_rewards_and_refuses_other_weights(name):
    shape = shape_of("dqn", clip_rewards=True)
    learner, ((transitions, _),) = make(shape, name), draw_batches(shape)
    rewards = np.array([3, -0.2, 0, 0.5, -7, 1, -1], np.float32)
    given, signs = (transitions | {"reward": values} for values in (rewards, np.sign(rewards)))
    assert_array_equal(learner.priorities(given), learner.priorities(signs))
    before = learner.weights()
    for count in (1, 5):
        with pytest.raises(ValueError, match=rf"{len(before)}.* {count}"):
            learner.load_weights(np.zeros(count, np.float32))
        assert_array_equal(learner.weights(), before)


def test_the_default_is_dense_where_it_can_learn(monkeypatch):
    assert (default(CARTPOLE), make(CARTPOLE).implementation) == ("dense", "dense")
    assert default(CARTPOLE, "cuda") == default(load("pong_dqn")) == "torch"
    for workload, device in ((load("pong_dqn"), "cpu"), (CARTPOLE, "cuda")):
        with pytest.raises(TrainingError, match=r"dense .*--learner torch"):
            make(workload, "dense", device=device)
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    with pytest.raises(TrainingError, match=r"numba.*extra"):
        make(CARTPOLE, "dense")


def test_of_equal_action_values_the_first_is_taken():
    shape = shape_of("dqn", size=5)
    for learner in (make(shape, name) for name in names()):
        learner.load_weights(np.zeros_like(learner.weights()))
        assert (learner.act(np.ones((3, 3), np.float32), 0.0, None) == 0).all()


@pytest.mark.parametrize("name", ["cartpole_dqn", "cartpole_ddpg", "hopper_td3", "hopper_sac"])
def test_what_a_step_calls_is_compiled_before(name, monkeypatch):
    """Many processes that start at once would each compile the same; here as in ``Actor`` and in a gradient step."""
    workload, asked = load(name), set()

    def run(compile_it, signature):
        asked.add((compile_it.__self__.__name__, signature))
        return compile_it(signature)

    monkeypatch.setattr(calling.compiler, "run", run)
    prepare(workload, "dense")
    prepared, begun = set(asked), Actor(workload, 0, 0)
    asked.clear()
    policy, rng = make(workload, "dense"), default_rng(0)
    turns = [begun.step(policy, 1.0, False) for _ in range(workload.actors.local_storage * 3)]
    begun.close()
    buffer = SerialLoop(workload, contestant="numpy").buffer
    for turn in turns:
        if turn.inserted:
            records, _, drawable = turn.inserted
            buffer.insert(records, None, drawable)
    batch = buffer.sample(4, 0.4, rng)
    policy.priorities(batch.rows)
    policy.step(batch.rows, batch.weights)
    rows = policy.rows(batch.rows, batch.weights)
    for phase in policy.phases():
        policy.apply(phase, policy.gradient(phase, rows).gradient.copy())
    policy.move_targets(0.5)
    assert asked <= prepared
    assert prepared


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_td_errors_are_of_before_the_step_and_get_smaller(algorithm):
    workload = tiny(algorithm, hidden=(32,), learning_rate=1e-2, gamma=0.0)
    learner, batch = algorithms.make(workload), batch_of(workload)
    before = learner.priorities(batch)
    found = learner.step(batch, np.ones(4, np.float32))
    assert_allclose(found.priorities, before, rtol=1e-5)
    for _ in range(200):
        found = learner.step(batch, np.ones(4, np.float32))
    assert found.priorities.max() < before.max() / 5


@pytest.mark.parametrize(("interval", "tau"), [(1, 0.25), (3, 1.0)])
def test_targets_move_when_it_is_their_turn(interval, tau):
    workload = tiny("ddpg", target_interval=interval, tau=tau)
    learner, batch = algorithms.make(workload), batch_of(workload)
    for step in range(1, 8):
        before = {name: weights_of(learner.targets[name]) for name in learner.targets}
        learner.step(batch, WEIGHTS)
        share = tau if step % interval == 0 else 0.0
        for name, old in before.items():
            new, trained = weights_of(learner.targets[name]), weights_of(learner.networks[name])
            for part, value in old.items():
                assert_allclose(new[part], value + share * (trained[part] - value), rtol=1e-5, atol=1e-7)


def test_td3_trains_its_policy_every_other_step():
    learner = algorithms.make(tiny("td3", policy_delay=2))
    trained = [set(learner.step(batch_of(learner.workload), WEIGHTS).losses) for _ in range(4)]
    assert trained == [{"critic"}, {"critic", "policy"}] * 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_fetched_weights_act_and_judge_what_follows(algorithm):
    workload = tiny(algorithm)
    learner, other = (algorithms.make(workload, seed=seed) for seed in (1, 2))
    batch = batch_of(workload)
    for _ in range(20):
        learner.step(batch, WEIGHTS)
    other.load_weights(learner.weights())
    assert_array_equal(*(each.act(batch["observation"], 0.0, None) for each in (learner, other)))
    for name, target in other.targets.items():
        assert_equal(weights_of(target), weights_of(learner.networks[name]))
    learner.move_targets(1.0)
    other.rng.bit_generator.state = learner.rng.bit_generator.state
    assert_array_equal(other.priorities(batch), learner.priorities(batch))


@pytest.mark.parametrize("algorithm", ["ddpg", "sac"])
def test_a_policy_learns_at_a_rate_of_its_own(algorithm):
    """Adam's first step moves a weight by its rate, whatever the gradient, where that is not 0."""
    for rate, own in ((1e-4, 1e-4), (0.0, 1e-2)):
        learner = algorithms.make(tiny(algorithm, learning_rate=1e-2, policy_learning_rate=rate))
        before = {name: weights_of(network) for name, network in learner.networks.items()}
        learner.step(batch_of(learner.workload), WEIGHTS)
        for name, old in before.items():
            new = weights_of(learner.networks[name])
            moved = max(np.abs(new[part] - old[part]).max() for part in old)
            assert moved == pytest.approx(own if name == "policy" else 1e-2, rel=1e-2), name


def test_exploration():
    rng, seen = np.random.default_rng(0), np.zeros((2000, 2), np.float32)
    chooser = algorithms.make(tiny("dqn"))
    greedy = chooser.act(seen, 0.0, rng)
    assert len(set(greedy)) == 1
    assert np.mean(chooser.act(seen, 0.3, rng) != greedy) == pytest.approx(0.3 * 2 / 3, abs=0.03)
    for algorithm in ("ddpg", "td3"):
        policy = algorithms.make(tiny(algorithm))
        noise = policy.act(seen, 0.1, rng) - policy.act(seen, 0.0, rng)
        assert noise.std() == pytest.approx(0.1, rel=0.05)
        assert np.abs(policy.act(seen, 9.0, rng)).max() == 1.0
    drawn = algorithms.make(tiny("sac")).act(seen, 0.0, rng)
    assert drawn.std() > 0.01
    assert np.abs(drawn).max() <= 1.0


def test_a_seed_decides_a_learner_and_leaves_torch_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert_array_equal(*(algorithms.make(tiny(), seed=1).weights() for _ in range(2)))
    assert_array_equal(torch.rand(3), expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_a_compiled_learner_learns_the_same():
    both = [algorithms.make(tiny(), compiled=compiled) for compiled in (False, True)]
    for _ in range(3):
        assert_allclose(*(each.step(batch_of(tiny()), WEIGHTS).priorities for each in both), rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_learner_on_a_gpu_learns_the_same(algorithm):
    both = host, device = [algorithms.make(tiny(algorithm), device=device) for device in ("cpu", "cuda")]
    device.load_state_dict(host.state_dict())
    for _ in range(3):
        found = (each.step(batch_of(host.workload), WEIGHTS).priorities for each in both)
        assert_allclose(*found, rtol=1e-3, atol=1e-5)


# Weights


@pytest.mark.parametrize("log", [-150.0, -90.0])
def test_a_tiny_temperature_leaves_its_logarithm_finite(log):
    """It is too small for float32."""
    learner = algorithms.make(tiny("sac"), seed=1)
    weights = learner.weights()
    weights[-1] = log
    learner.load_weights(weights)
    stepped = learner.step(batch_of(learner.workload), WEIGHTS)
    assert np.isfinite(stepped.losses["temperature"])
    assert 0 < abs(learner.weights()[-1] - log) < 0.01


@pytest.mark.parametrize("name", ["pong_dqn", "hopper_sac"])
def test_weights_begin_uniform_within_a_layers_bound(name):
    """One over the root of its inputs."""
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
    assert initial(tiny("sac", temperature=0.3), 1)[-1] == pytest.approx(np.log(0.3))
    assert initial(tiny("sac"), 1)[-1] == 0  # where it is tuned


def test_the_noise_of_sac_is_standard_normal_and_independent():
    noise = algorithms.make(tiny("sac"), seed=1)._noise(1_000)
    assert (noise.shape, noise.dtype) == ((2, 1_000, 2), np.float32)
    assert_allclose(np.cov(noise.transpose(0, 2, 1).reshape(4, -1)), np.eye(4), atol=0.15)


def test_weights_of_models_are_averaged():
    models = [initial(tiny(), seed) for seed in range(3)]
    plain, shared = average(models), average(models, [1, 0, 3])
    assert_allclose(plain, sum(model.astype(float) for model in models) / 3, rtol=1e-5, atol=1e-7)
    assert_allclose(shared, (models[0] + 3 * models[2]) / 4, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match="same weights"):
        average([models[0], models[1][:-1]])
    with pytest.raises(ValueError, match=r"2 .* 3"):
        average(models, [1, 2])
