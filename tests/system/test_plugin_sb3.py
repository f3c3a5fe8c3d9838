"""The plug-in for stable-baselines3, beside brute force and beside SB3's own buffers and training."""

import pickle
import re
import sys
import warnings

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from tests import plugin_hosts
from tests.nursery import run_python
from tests.plugin_conformance import Conformance, Drawn

sb3 = plugin_hosts.plugin("sb3")

import gymnasium  # noqa: E402
import torch  # noqa: E402
from gymnasium import spaces  # noqa: E402
from stable_baselines3 import DDPG, DQN, SAC, TD3, HerReplayBuffer  # noqa: E402
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.vec_env import VecNormalize  # noqa: E402

SPACE, ACTIONS = spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(5)
OBSERVATIONS = {"box": SPACE, "dict": spaces.Dict({"seen": SPACE, "place": spaces.Discrete(7)})}
HOSTS = {"PrioritizedDQN": DQN, "PrioritizedSAC": SAC, "PrioritizedTD3": TD3, "PrioritizedDDPG": DDPG}
NAMES = (*HOSTS, "PrioritizedQRDQN")
SMALL = {"learning_starts": 32, "batch_size": 24, "buffer_size": 500, "train_freq": 4, "seed": 1}


def made(rows, environments=1, *, kind="box", **options):
    """An empty buffer of ``rows`` steps of each environment."""
    options = {"epsilon": 1e-3, "device": "cpu"} | options
    if options.get("optimize_memory_usage"):
        options["handle_timeout_termination"] = False
    kind, space = sb3.PrioritizedReplayBuffer if kind == "box" else sb3.PrioritizedDictReplayBuffer, OBSERVATIONS[kind]
    buffer = kind(rows * environments + environments // 2, space, ACTIONS, n_envs=environments, **options)
    buffer.is_warning = False  # draws are looked at here, and nothing is learned from most of them
    return buffer


def step(number, environments, rng):
    """A step of each environment as SB3 adds it; what is seen tells which it is. A fifth end an episode, or cut it."""
    who = np.arange(environments)
    seen = np.stack((np.full(environments, number), who), 1).astype(np.float32)
    done, cut = rng.random(environments) < 0.2, rng.random(environments) < 0.5
    infos = [{"TimeLimit.truncated": True} if ended and late else {} for ended, late in zip(done, cut, strict=True)]
    return (
        seen,
        seen + np.array([1, 0], np.float32),
        rng.integers(0, 5, environments),
        rng.standard_normal(environments),
        done,
        infos,
    )


def fill(buffer, steps, seed=0):
    """Adds steps; returns them all, each as it was added."""
    rng, added, first = default_rng(seed), [], buffer.priorities.written // buffer.n_envs
    for number in range(first, first + steps):
        taken = step(number, buffer.n_envs, rng)
        added.append(taken)
        if isinstance(buffer, sb3.PrioritizedDictReplayBuffer):
            places = [{"seen": seen, "place": seen[:, 0].astype(np.int64) % 7} for seen in taken[:2]]
            buffer.add(*places, *taken[2:])
        else:
            buffer.add(*taken)
    return added


def with_priorities(buffer, seed=5):
    """Gives everything that can be drawn another priority, some of them none to speak of; returns all leaves."""
    everything = np.arange(buffer.priorities.written)
    errors = default_rng(seed).random(everything.size) ** 4
    buffer.update_priorities(everything, errors)
    return buffer.tree.get(np.arange(buffer.tree.capacity)).astype(float)


WRONG_OPTIONS = [
    ({"alpha": -0.1}, ValueError, "alpha must be at least 0"),
    ({"alpha": "high"}, TypeError, "alpha must be a number"),
    ({"epsilon": 0.0}, ValueError, "epsilon must be above 0"),
    ({"beta": -1.0}, ValueError, "beta must be finite and at least 0"),
    ({"final_beta": np.inf}, ValueError, "beta must be finite and at least 0"),
    ({"beta": "low"}, TypeError, "beta must be a number"),
    ({"normalize_by": "max"}, ValueError, "normalize_by must be one of 'batch', 'buffer', not 'max'"),
    ({"gamma": 1.1}, ValueError, "gamma must be within [0, 1]"),
    ({"n_steps": 0}, ValueError, "n_steps must be at least 1"),
    ({"n_steps": 2.5}, TypeError, "n_steps must be an integer"),
    ({"n_envs": 0}, ValueError, "n_envs must be at least 1"),
    ({"buffer_size": 0}, ValueError, "buffer_size must be at least 1"),
    ({"buffer_size": 3, "n_envs": 4}, ValueError, "buffer_size must be at least 4"),
    ({"buffer_size": 10.5}, TypeError, "buffer_size must be an integer"),
    ({"buffer_size": 7, "n_envs": 4, "optimize_memory_usage": True}, ValueError, "buffer_size must be at least 8"),
    ({"implementation": "number"}, RuntimeError, "Did you mean 'numba'?"),
    ({"fanout": 1}, ValueError, "fanout must be at least 2"),
    ({"observation_space": OBSERVATIONS["dict"]}, TypeError, "PrioritizedDictReplayBuffer"),
]


def wrong(options):
    """A call that makes a buffer by options, some of which are wrong."""
    usual = {"buffer_size": 8, "observation_space": SPACE, "action_space": ACTIONS, "device": "cpu"}
    return lambda buffer: sb3.PrioritizedReplayBuffer(**usual | options)


class TestBuffer(Conformance):
    """The adapter: several environments, rows stored once, observations that are dicts."""

    kinds = ("plain", "several", "once", "several once", "several dict")
    heading = "Stable-Baselines3"
    epsilon, is_weighed_by_batch = 1e-3, True
    mistakes = (
        *((wrong(options), error, re.escape(words)) for options, error, words in WRONG_OPTIONS),
        (
            lambda buffer: sb3.PrioritizedDictReplayBuffer(8, SPACE, ACTIONS),
            TypeError,
            "for dict observations, not Box",
        ),
        (lambda buffer: made(8, kind="dict", optimize_memory_usage=True), ValueError, "usage must be False"),
        *(
            (lambda buffer, size=size: buffer.sample(size), (ValueError, TypeError), "batch_size must be")
            for size in (0, 2.5, True)
        ),
        (lambda buffer: buffer.update_priorities([2.0], [1.0]), TypeError, "sequence must be integers"),
    )

    def make(self, kind="plain", **options):
        environments = 4 if "several" in kind else 1
        options |= {"kind": "dict" if "dict" in kind else "box", "optimize_memory_usage": "once" in kind}
        return made(self.room // environments, environments, **options)

    def add(self, buffer, count):
        fill(buffer, -(-count // buffer.n_envs))

    def rows(self, buffer):
        seen = buffer.observations["seen"] if isinstance(buffer.observations, dict) else buffer.observations
        lost = buffer.pos if buffer.optimize_memory_usage else -1
        leaves = np.arange(seen.shape[0] * buffer.n_envs).reshape(-1, buffer.n_envs)
        drawable = [row for row in range(buffer.size()) if row != lost]
        names = seen[drawable].reshape(-1, 2).tolist()
        return dict(zip(map(tuple, names), leaves[drawable].reshape(-1).tolist(), strict=True))

    def draw(self, buffer, batch):
        sampled = buffer.sample(batch)
        seen = sampled.observations["seen"] if isinstance(sampled.observations, dict) else sampled.observations
        return Drawn([*map(tuple, seen.tolist())], sampled.weights[:, 0].numpy(), sampled)

    def update(self, buffer, drawn, errors):
        buffer.update_priorities(drawn.batch.sequence, errors)

    def mean_return(self, names):
        assert isinstance(names["model"].replay_buffer, sb3.PrioritizedReplayBuffer)
        return names["stop"].best_mean_reward


@pytest.mark.parametrize("kind", ["box", "dict"])
@pytest.mark.parametrize("environments", [1, 4])
@pytest.mark.parametrize("handled", [False, True])
def test_what_is_drawn_is_what_was_added(kind, environments, handled):
    buffer = made(20, environments, kind=kind, handle_timeout_termination=handled)
    added = fill(buffer, 47)
    batch = buffer.sample(300)
    observations, following = batch.observations, batch.next_observations
    if kind == "dict":
        assert_array_equal(observations["place"][:, 0], batch.sequence // environments % 7)
        observations, following = observations["seen"], following["seen"]
    assert set(batch.sequence // environments) == set(range(27, 47))
    assert batch.discounts is None
    for i, (number, who) in enumerate(zip(*divmod(batch.sequence, environments), strict=True)):
        seen, after, action, reward, done, infos = (part[who] for part in added[number])
        assert_array_equal(observations[i], seen)
        assert_array_equal(following[i], after)
        assert (batch.actions[i, 0], batch.rewards[i, 0]) == (action, np.float32(reward))
        assert batch.dones[i, 0] == (done and not (handled and infos))


def test_rows_are_those_of_sb3s_own_buffer_and_normalized_as_there():
    environment = VecNormalize(make_vec_env("CartPole-v1", 1), clip_reward=0.5)
    environment.obs_rms.mean, environment.obs_rms.var, environment.ret_rms.var = np.ones(4), np.full(4, 2.0), 7.0
    arguments = (20, environment.observation_space, environment.action_space, "cpu")
    ours, theirs = sb3.PrioritizedReplayBuffer(*arguments), ReplayBuffer(*arguments)
    several = sb3.PrioritizedReplayBuffer(*arguments, n_steps=3, gamma=0.9)
    their_several = NStepReplayBuffer(*arguments, n_steps=3, gamma=0.9)
    rng = default_rng(0)
    for number in range(33):
        seen, after, action, *rest = step(number, 1, rng)
        for buffer in (ours, theirs, several, their_several):
            buffer.add(np.tile(seen, 2), np.tile(after, 2), action % 2, *rest)
    rows = np.arange(20)
    for env in (None, environment):
        for mine, wanted in ((ours, theirs), (several, their_several)):
            for ours_part, theirs_part in zip(
                mine._get_samples(rows, env), wanted._get_samples(rows, env), strict=True
            ):
                if theirs_part is None:
                    assert ours_part is None
                    continue
                assert ours_part.dtype == theirs_part.dtype
                torch.testing.assert_close(ours_part, theirs_part, rtol=1e-6, atol=0 if mine is ours else 1e-6)


def returns(buffer, added, number, who):
    """(return, discount, number of the last step, whether it ended) of up to n steps from one on, step by step."""
    total, discount = 0.0, 1.0
    for last in range(number, min(number + buffer.n_steps, len(added))):
        *_, reward, done, infos = (part[who] for part in added[last])
        total += discount * reward
        discount *= buffer.gamma
        if done:
            break
    return total, discount, last, done and not (buffer.handle_timeout_termination and infos)


@pytest.mark.parametrize("kind", ["box", "dict"])
@pytest.mark.parametrize("environments", [1, 4])
@pytest.mark.parametrize(("n", "gamma"), [(2, 0.9), (3, 1.0), (5, 0.5), (40, 0.99), (4, 0.0)])
@pytest.mark.parametrize("steps", [13, 20, 47])
def test_returns_over_n_steps_are_those_of_brute_force(kind, environments, n, gamma, steps):
    for optimized in (False, True) if kind == "box" else (False,):
        buffer = made(20, environments, kind=kind, n_steps=n, gamma=gamma, optimize_memory_usage=optimized)
        added = fill(buffer, steps, seed=n)
        batch = buffer.sample(200)
        following = batch.next_observations if kind == "box" else batch.next_observations["seen"]
        for i, (number, who) in enumerate(zip(*divmod(batch.sequence, environments), strict=True)):
            total, discount, last, ended = returns(buffer, added, number, who)
            assert batch.rewards[i, 0] == pytest.approx(total, rel=1e-5, abs=1e-6)
            assert batch.discounts[i, 0] == pytest.approx(discount, rel=1e-5)
            assert batch.dones[i, 0] == ended
            assert_array_equal(following[i], added[last][1][who])


def wander(seed):
    """Rows, resets from outside, updates and pickles at random, and each batch beside brute force."""
    rng = default_rng(seed)
    kind = str(rng.choice(["box", "dict"]))
    environments = int(rng.integers(1, 4))
    n = int(rng.integers(1, 6))
    optimized = kind == "box" and rng.random() < 0.5
    buffer = made(
        int(rng.integers(4, 20)), environments, kind=kind, n_steps=n, gamma=0.9, optimize_memory_usage=optimized
    )
    added = []
    for number in range(50):
        taken = step(number, environments, rng)
        if number and rng.random() < 0.1:  # who was reset sees something else, and what went on before was cut
            who = rng.random(environments) < 0.6
            jump = 1000.0 * who[:, None].astype(np.float32)
            taken = (taken[0] + jump, taken[1] + jump, *taken[2:])
        for who in range(environments):
            if number and not added[-1][4][who] and (added[-1][1][who] != taken[0][who]).any():
                added[-1][4][who], added[-1][5][who] = True, {} if optimized else {"cut": True}
        added.append(taken)
        places = [{"seen": seen, "place": seen[:, 0].astype(np.int64) % 7} for seen in taken[:2]]
        buffer.add(*(places if kind == "dict" else taken[:2]), *(part.copy() for part in taken[2:5]), list(taken[5]))
        if rng.random() < 0.1:
            buffer = pickle.loads(pickle.dumps(buffer))
        if number < 2 or rng.random() < 0.7:
            continue
        batch = buffer.sample(16)
        following = batch.next_observations if kind == "box" else batch.next_observations["seen"]
        for i, (first, who) in enumerate(zip(*divmod(batch.sequence, environments), strict=True)):
            total, discount, last, ended = returns(buffer, added, first, who)
            ended = ended and "cut" not in added[last][5][who]
            assert batch.rewards[i, 0] == pytest.approx(total, rel=1e-5, abs=1e-6)
            assert n == 1 or batch.discounts[i, 0] == pytest.approx(discount, rel=1e-5)
            assert batch.dones[i, 0] == ended
            if not (optimized and ended):  # where SB3 has what the next episode began with
                assert_array_equal(following[i], added[last][1][who])
        buffer.update_priorities(batch.sequence, rng.random(16))


@pytest.mark.parametrize("walks", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_no_return_reaches_from_one_episode_into_the_next_whoever_reset_it(walks):
    for seed in range(walks):
        wander(seed)


@pytest.mark.parametrize("reset", [True, False])
def test_learning_again_joins_no_episodes(reset):
    learner = model("PrioritizedDQN", n_steps=3)
    for _ in range(3):
        learner.learn(64, reset_num_timesteps=reset)
    buffer, rows = learner.replay_buffer, np.arange(learner.replay_buffer.pos)
    jumps = (buffer.next_observations[rows[:-1], 0] != buffer.observations[rows[1:], 0]).any(axis=1)
    ends = (buffer.dones + buffer.timeouts)[rows[:-1], 0] > 0
    assert ends[jumps].all()
    cuts = [row for row in (63, 127) if not buffer.dones[row, 0]]
    assert np.flatnonzero(buffer.timeouts[rows, 0]).tolist() == (cuts if reset else [])
    assert cuts


@pytest.mark.parametrize("optimized", [False, True])
def test_weights_are_divided_by_the_largest_of_the_buffer_on_request(optimized):
    buffer = made(16, 2, normalize_by="buffer", optimize_memory_usage=optimized)
    fill(buffer, 25)
    leaves = with_priorities(buffer)
    batch = buffer.sample(8)
    expected = (leaves[batch.sequence % leaves.size] / leaves[leaves > 0].min()) ** -0.4
    assert expected.max() < 1
    assert_allclose(batch.weights[:, 0], expected, rtol=1e-5)


def test_beta_moves_with_the_progress():
    buffer = made(4, beta=0.5, final_beta=0.9)
    for left, beta in ((1.0, 0.5), (0.5, 0.7), (0.0, 0.9), (-0.1, 0.9)):
        buffer.anneal(left)
        assert buffer.beta == pytest.approx(beta)


def test_a_reset_forgets_everything():
    buffer = made(8, 2)
    fill(buffer, 5)
    old = buffer.sample(32).sequence
    buffer.update_priorities(old, np.full(32, 9.0))
    buffer.reset()
    assert buffer.tree.total() == 0.0
    with pytest.raises(RuntimeError, match="nothing to sample"):
        buffer.sample(4)
    added = fill(buffer, 3)
    assert not buffer.update_priorities(old, np.ones(32)).any()
    assert set(buffer.tree.get(np.arange(16))) == {0.0, 1.0}
    batch = buffer.sample(32)
    assert_array_equal(np.unique(batch.observations[:, 0]), [row[0][0, 0] for row in added])
    assert buffer.update_priorities(batch.sequence, np.ones(32)).all()
    assert len(added) == buffer.size()


@pytest.mark.parametrize("kind", ["box", "dict"])
def test_wrong_rows_are_refused_with_nothing_written(kind):
    buffer = made(4, 2, kind=kind)
    fill(buffer, 6)
    before = pickle.dumps(buffer)
    good = list(step(6, 2, default_rng(0)))
    if kind == "dict":
        good[:2] = [{"seen": seen, "place": np.array([1, 2])} for seen in good[:2]]
        wrong = [(1, good[1] | {"place": np.ones((3, 1))}, "next_obs['place'] must be [2, 1]"), (0, {}, "obs must be")]
    else:
        wrong = [(0, np.ones(2), "obs must be [2, 2]"), (1, np.ones((3, 2)), "next_obs must be [2, 2]")]
    wrong += [
        (2, np.array([1]), "action must be numbers"),
        (2, np.array(["a", "b"]), "action must be numbers"),
        (3, np.ones(3), "reward must be numbers"),
        (4, np.array([True]), "done must be numbers"),
        (5, [{}], "infos must be a dict for each of 2 environments, not 1"),
    ]
    for place, value, message in wrong:
        given = [*good[:place], value, *good[place + 1 :]]
        with pytest.raises(ValueError, match=re.escape(message)):
            buffer.add(*given)
        assert pickle.dumps(buffer) == before
    buffer.add(*good)


# Algorithms


def host_of(name):
    """The host's class, of which the plug-in's is the prioritized one."""
    if name in HOSTS:
        return HOSTS[name]
    return pytest.importorskip(
        "sb3_contrib", reason="the plug-in 'sb3' needs sb3_contrib: make plugins installs it"
    ).QRDQN


def model(name, environments=1, **options):
    """A small model of the plug-in's, or of a host's class."""
    kind = name if isinstance(name, type) else getattr(sb3, name)
    environment = "CartPole-v1" if "DQN" in kind.__name__ else "Pendulum-v1"
    options = SMALL | {"policy_kwargs": {"net_arch": [16]}} | options  # SB3 adds to policy_kwargs, which are not shared
    return kind("MlpPolicy", make_vec_env(environment, environments, seed=3), device="cpu", **options)


def parameters(learner):
    """Every parameter of the networks and of their optimizers, by name."""
    return {name: value.clone() for name, value in learner.policy.state_dict().items()}


def train_on(learner, seed=7):
    """Takes one gradient step; returns the batch that it was taken on."""
    np.random.seed(seed)  # noqa: NPY002
    learner.train(gradient_steps=1)
    return learner.replay_buffer.last


@pytest.mark.filterwarnings("ignore:two batches were sampled")  # by the host, with this buffer
@pytest.mark.parametrize(("environments", "n_steps"), [(1, 1), (4, 3)])
@pytest.mark.parametrize("name", NAMES)
def test_without_priorities_training_is_the_hosts_bit_for_bit(name, environments, n_steps):
    host, uniform = host_of(name), {"alpha": 0.0}
    # Each is made just before it learns, for its seed is that of generators which both draw from.
    ours = model(name, environments, n_steps=n_steps, replay_buffer_kwargs=uniform).learn(120)
    uniform = uniform | {"n_steps": n_steps, "gamma": ours.gamma}
    kind = sb3.PrioritizedReplayBuffer
    theirs = model(host, environments, replay_buffer_class=kind, replay_buffer_kwargs=uniform).learn(120)
    assert (ours.replay_buffer.last.weights == 1).all()
    expected = parameters(theirs)
    for key, value in parameters(ours).items():
        assert torch.equal(value, expected[key]), key
    assert ours.num_timesteps == theirs.num_timesteps
    assert ours._n_updates == theirs._n_updates > 0


def test_a_gradient_step_of_dqn_follows_the_weighted_mean_and_writes_the_td_errors_back():
    plain = {"net_arch": [16], "optimizer_class": torch.optim.SGD}
    learner = model("PrioritizedDQN", learning_rate=1.0, max_grad_norm=np.inf, policy_kwargs=plain, learning_starts=99)
    learner.learn(60)
    leaves = with_priorities(learner.replay_buffer)
    torch.nn.init.normal_(learner.q_net_target.q_net[0].weight)
    network, before = learner.q_net, parameters(learner)
    np.random.seed(7)  # noqa: NPY002
    learner.replay_buffer.anneal(learner._current_progress_remaining)
    batch = learner.replay_buffer.sample(learner.batch_size)
    assert 0 < batch.weights.min() < 0.9
    ahead = learner.q_net_target(batch.next_observations).max(1, keepdim=True).values
    target = (batch.rewards + learner.gamma * (1 - batch.dones) * ahead).detach()
    error = network(batch.observations).gather(1, batch.actions) - target
    huber = torch.where(error.abs() < 1, error**2 / 2, error.abs() - 0.5)
    network.zero_grad()
    (huber * batch.weights / learner.batch_size).sum().backward()
    gradients = {key: value.grad.clone() for key, value in network.named_parameters()}
    assert_array_equal(train_on(learner).sequence, batch.sequence)
    for key, gradient in gradients.items():
        moved = before[f"q_net.{key}"] - dict(network.named_parameters())[key]
        torch.testing.assert_close(moved, gradient, rtol=1e-4, atol=1e-5)
    leaves[batch.sequence] = (np.abs(error.detach().numpy()[:, 0]).astype(float) + 1e-6) ** 0.6
    assert_allclose(learner.replay_buffer.tree.get(np.arange(60)), leaves[:60], rtol=1e-5)


@pytest.mark.parametrize("name", ["PrioritizedTD3", "PrioritizedDDPG"])
def test_the_priority_is_the_mean_td_error_of_the_critics(name):
    learner = model(name, learning_starts=99, **({"target_policy_noise": 0.0} if name == "PrioritizedTD3" else {}))
    learner.learn(60)
    np.random.seed(7)  # noqa: NPY002
    batch = learner.replay_buffer.sample(learner.batch_size)
    with torch.no_grad():
        acted = learner.actor_target(batch.next_observations)
        if name == "PrioritizedDDPG":  # which SB3 makes of TD3, with its noise
            assert learner.target_policy_noise > 0
            learner.target_policy_noise = 0.0
        ahead = torch.cat(learner.critic_target(batch.next_observations, acted), 1).min(1, keepdim=True).values
        target = batch.rewards + learner.gamma * (1 - batch.dones) * ahead
        errors = [(value - target).abs() for value in learner.critic(batch.observations, batch.actions)]
    assert len(errors) == {"PrioritizedTD3": 2, "PrioritizedDDPG": 1}[name]
    train_on(learner)
    expected = (torch.stack(errors).mean(0).numpy()[:, 0].astype(float) + 1e-6) ** 0.6
    assert_allclose(learner.replay_buffer.tree.get(batch.sequence), expected, rtol=1e-4)


def test_the_priority_of_qr_dqn_is_the_td_error_of_the_means():
    host_of("PrioritizedQRDQN")
    learner = model("PrioritizedQRDQN", learning_starts=99)
    learner.learn(60)
    np.random.seed(7)  # noqa: NPY002
    batch = learner.replay_buffer.sample(learner.batch_size)
    with torch.no_grad():
        ahead = learner.quantile_net_target(batch.next_observations).mean(1).max(1, keepdim=True).values
        target = batch.rewards + learner.gamma * (1 - batch.dones) * ahead
        error = learner.quantile_net(batch.observations).mean(1).gather(1, batch.actions) - target
    train_on(learner)
    expected = (np.abs(error.numpy()[:, 0]).astype(float) + 1e-6) ** 0.6
    assert_allclose(learner.replay_buffer.tree.get(batch.sequence), expected, rtol=1e-4)


class Weightless(sb3.PrioritizedReplayBuffer):
    """Gives every transition the weight 0."""

    def sample(self, batch_size, env=None):
        """A batch with its weights at 0."""
        batch = super().sample(batch_size, env)
        batch.weights.zero_()
        return batch


@pytest.mark.parametrize("name", NAMES)
def test_what_has_weight_0_moves_no_critic_and_gets_its_priority(name):
    host_of(name)
    learner = model(name, replay_buffer_class=Weightless, learning_starts=99)
    learner.learn(60)
    before = parameters(learner)
    sampled = train_on(learner).sequence
    after = parameters(learner)
    still = "q" if "DQN" in name else "critic."
    assert any(key.startswith(still) for key in after)
    for key, value in after.items():
        assert torch.equal(value, before[key]) or not key.startswith(still), key
    changed = learner.replay_buffer.tree.get(np.arange(60)) != 1
    assert set(np.flatnonzero(changed)) == set(sampled)


@pytest.mark.parametrize(("name", "environments"), [*((name, 4) for name in NAMES), ("PrioritizedDQN", 1)])
def test_a_model_learns_is_saved_loaded_and_goes_on(name, environments, tmp_path):
    host_of(name)
    learner = model(name, environments, n_steps=2, replay_buffer_kwargs={"alpha": 0.5, "beta": 0.5, "fanout": 8})
    learner.learn(200)
    buffer = learner.replay_buffer
    assert (buffer.n_steps, buffer.gamma, buffer.tree.fanout) == (2, learner.gamma, 8)
    assert buffer.beta == pytest.approx(1 - 0.5 * max(learner._current_progress_remaining, 0))
    learner.save(tmp_path / "model")
    learner.save_replay_buffer(tmp_path / "replay")
    again = type(learner).load(tmp_path / "model", env=learner.get_env())
    assert again.n_steps == 2
    assert again.replay_buffer.size() == 0
    again.load_replay_buffer(tmp_path / "replay")
    every = np.arange(buffer.tree.capacity)
    assert_array_equal(again.replay_buffer.tree.get(every[:400]), buffer.tree.get(every[:400]))
    seen = learner.get_env().reset()
    for network, values in learner.get_parameters().items():
        assert again.get_parameters()[network].keys() == values.keys()
    assert_array_equal(learner.predict(seen, deterministic=True)[0], again.predict(seen, deterministic=True)[0])
    again.learn(100, reset_num_timesteps=False)
    assert again.num_timesteps >= learner.num_timesteps + 100
    assert again.replay_buffer.size() == again.num_timesteps // environments


def test_a_model_that_sb3_saved_goes_on_with_priorities(tmp_path):
    model(DQN).save(tmp_path / "model")
    with pytest.raises(TypeError, match="ReplayBuffer keeps no priorities"):
        sb3.PrioritizedDQN.load(tmp_path / "model")
    learner = sb3.PrioritizedDQN.load(tmp_path / "model", make_vec_env("CartPole-v1"), replay_buffer_class=None)
    assert isinstance(learner.learn(100).replay_buffer, sb3.PrioritizedReplayBuffer)


class Places(gymnasium.ObservationWrapper):
    """CartPole whose observation is a dict."""

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.observation_space = spaces.Dict({"cart": self.env.observation_space, "side": spaces.Discrete(2)})

    def observation(self, observation):
        """The observation with the side that the cart is on."""
        return {"cart": observation, "side": np.int64(observation[0] > 0)}


@pytest.mark.parametrize("environments", [1, 2])
def test_dict_observations_are_learned_from(environments):
    learner = sb3.PrioritizedDQN("MultiInputPolicy", make_vec_env(Places, environments), n_steps=3, **SMALL)
    assert isinstance(learner.learn(200).replay_buffer, sb3.PrioritizedDictReplayBuffer)
    assert len(set(learner.replay_buffer.tree.get(np.arange(200)))) > 100


def test_normalized_environments_and_rows_stored_once_are_learned_from():
    learner = sb3.PrioritizedDQN(
        "MlpPolicy",
        VecNormalize(make_vec_env("CartPole-v1", 2)),
        optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
        **SMALL | {"buffer_size": 100},
    )
    learner.learn(300)
    leaves = learner.replay_buffer.tree.get(np.arange(100)).reshape(50, 2)
    assert_array_equal(np.flatnonzero((leaves == 0).any(1)), [learner.replay_buffer.pos])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (ReplayBuffer, "ReplayBuffer keeps no priorities: replay_buffer_class must be PrioritizedReplayBuffer"),
        (HerReplayBuffer, "HerReplayBuffer relabels goals .* use it with SB3's own class"),
        ("prioritized", "'prioritized' keeps no priorities"),
    ],
)
def test_buffers_without_priorities_are_refused_in_a_sentence(kind, message):
    with pytest.raises(TypeError, match=message):
        model("PrioritizedSAC", replay_buffer_class=kind)


def test_loading_a_buffer_without_priorities_keeps_the_one_there(tmp_path):
    model(DQN).save_replay_buffer(tmp_path / "uniform")
    learner = model("PrioritizedDQN")
    before = learner.replay_buffer
    with pytest.raises(TypeError, match="ReplayBuffer keeps no priorities"):
        learner.load_replay_buffer(tmp_path / "uniform")
    assert learner.replay_buffer is before


def test_a_host_that_computes_its_loss_otherwise_is_refused():
    class Other(DQN):
        def train(self, gradient_steps, batch_size=100):
            """Sample, and learn nothing."""
            self.replay_buffer.sample(batch_size)

    class OtherDQN(sb3.PrioritizedAlgorithm, Other):
        """Prioritized, as its name says."""

    learner = model(OtherDQN)
    with pytest.raises(RuntimeError, match="took 1 gradient steps and weighted 0 of their batches"):
        learner.learn(100)


def test_a_td_error_that_is_no_number_ends_training_in_a_sentence():
    learner = model("PrioritizedDQN")
    learner.learn(50)
    learner.replay_buffer.rewards[:] = np.nan
    with pytest.raises(ValueError, match="training has diverged"):
        learner.train(1)


def test_qr_dqn_without_sb3_contrib_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    with pytest.raises(
        ImportError, match=r"sb3-contrib from 2\.9 on .* none is installed; install one by: pip install"
    ):
        _ = sb3.PrioritizedQRDQN
    with pytest.raises(AttributeError, match="no attribute 'PrioritizedPPO'"):
        _ = sb3.PrioritizedPPO
    code = "import sys; sys.modules['sb3_contrib'] = None; from impls.plugins.sb3 import *; PrioritizedDQN"
    run_python("-c", code)


def told(training):
    """How many warnings of unheeded priorities a call gives."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        training()
    return sum("PrioritizedDQN" in str(each.message) and each.category is UserWarning for each in given)


@pytest.mark.parametrize(("environments", "gradient_steps"), [(1, 1), (1, 3), (4, -1)])
def test_an_algorithm_that_leaves_priorities_unused_is_told_of_once(environments, gradient_steps):
    options = {"replay_buffer_class": sb3.PrioritizedReplayBuffer, "gradient_steps": gradient_steps}
    learner = model(DQN, environments, **options)
    assert told(lambda: learner.learn(200)) == 1
    assert told(lambda: learner.learn(100)) == 0


@pytest.mark.parametrize("with_buffer", [False, True])
def test_a_prioritized_model_that_sb3s_class_loads_is_told_of(with_buffer, tmp_path):
    ours = model("PrioritizedDQN").learn(100)
    ours.save(tmp_path / "model")
    ours.save_replay_buffer(tmp_path / "buffer")
    learner = DQN.load(tmp_path / "model", make_vec_env("CartPole-v1"))
    if with_buffer:
        learner.load_replay_buffer(tmp_path / "buffer")
        assert len(np.unique(learner.replay_buffer.tree.get(np.arange(100)))) > 50
    assert told(lambda: learner.learn(200)) == 1


@pytest.mark.parametrize(("environments", "gradient_steps"), [(1, 1), (1, 3), (4, -1)])
@pytest.mark.parametrize("name", NAMES)
def test_algorithms_that_heed_priorities_are_not_warned_of(name, environments, gradient_steps, tmp_path):
    host_of(name)
    learner = model(name, environments, gradient_steps=gradient_steps)

    def look(names, _):
        buffer = names["self"].replay_buffer
        return all(buffer.sample(4) is not None for _ in range(3) if buffer.size())

    assert told(lambda: learner.learn(100, callback=look)) == 0
    learner.save_replay_buffer(tmp_path / "buffer")
    learner.load_replay_buffer(tmp_path / "buffer")
    assert told(lambda: learner.learn(60)) == 0


def test_two_samples_without_an_update_between_are_warned_of_once():
    buffer = made(20)
    buffer.is_warning = True
    fill(buffer, 10)
    for _ in range(3):
        batch = buffer.sample(4)
        buffer.update_priorities(batch.sequence, np.ones(4))
    buffer.sample(4)
    with pytest.warns(UserWarning, match="two batches were sampled and no priority was updated in between"):
        buffer.sample(4)
    buffer.sample(4)
    assert told(lambda: [pickle.loads(pickle.dumps(buffer)).sample(4) for _ in range(2)]) == 0
    again = pickle.loads(pickle.dumps(buffer))
    assert told(lambda: [again.sample(4) for _ in range(3)]) == 1
