"""The plug-in for stable-baselines3, beside brute force and beside SB3's own buffers and training."""

import pickle
import re
import sys
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests import plugin_hosts
from tests.plugin_conformance import Conformance, Drawn, episode

sb3 = plugin_hosts.plugin("sb3")

import torch  # noqa: E402
from gymnasium import spaces  # noqa: E402
from stable_baselines3 import DDPG, DQN, SAC, TD3, HerReplayBuffer  # noqa: E402
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.vec_env import VecNormalize  # noqa: E402

SPACE, ACTIONS = spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(5)
DICTS = spaces.Dict({"seen": SPACE, "place": spaces.Discrete(7)})
HOSTS = {"PrioritizedDQN": DQN, "PrioritizedSAC": SAC, "PrioritizedTD3": TD3, "PrioritizedDDPG": DDPG}
NAMES = (*HOSTS, "PrioritizedQRDQN")
SMALL = {"learning_starts": 32, "batch_size": 24, "buffer_size": 500, "train_freq": 4, "seed": 1}


def made(rows, environments=1, kind="box", **options):
    """An empty buffer of ``rows`` steps of each environment."""
    options = {"epsilon": 1e-3, "device": "cpu"} | options
    if options.get("optimize_memory_usage"):
        options["handle_timeout_termination"] = False
    make, space = (sb3.PrioritizedReplayBuffer, SPACE) if kind == "box" else (sb3.PrioritizedDictReplayBuffer, DICTS)
    buffer = make(rows * environments + environments // 2, space, ACTIONS, n_envs=environments, **options)
    buffer.is_warning = False  # draws are looked at here, and nothing is learned from most of them
    return buffer


def row(steps, kind="box"):
    """A step of each environment as SB3 adds it."""
    seen, after = (
        np.array([[number, -number] for number in numbers], np.float32)
        for numbers in ([step.number for step in steps], [step.following for step in steps])
    )
    if kind == "dict":
        seen, after = ({"seen": each, "place": each[:, 0].astype(np.int64) % 7} for each in (seen, after))
    actions, rewards = (np.array([getattr(step, name) for step in steps]) for name in ("number", "reward"))
    done = np.array([step.terminated or step.truncated for step in steps])
    return seen, after, actions, rewards, done, [{"TimeLimit.truncated": step.truncated} for step in steps]


def add(buffer, steps):
    buffer.add(*row(steps, "dict" if isinstance(buffer.observations, dict) else "box"))


WRONG_OPTIONS = [
    ({"epsilon": 0.0}, ValueError, "epsilon must be above 0"),
    ({"beta": -1.0}, ValueError, "beta must be finite and at least 0"),
    ({"normalize_by": "max"}, ValueError, "normalize_by must be one of 'batch', 'buffer', not 'max'"),
    ({"gamma": 1.1}, ValueError, "gamma must be within [0, 1]"),
    ({"n_steps": 0}, ValueError, "n_steps must be at least 1"),
    ({"buffer_size": 7, "n_envs": 4, "optimize_memory_usage": True}, ValueError, "buffer_size must be at least 8"),
    ({"observation_space": DICTS}, TypeError, "PrioritizedDictReplayBuffer"),
]
WRONG_ROWS = [  # the part of a step, what is wrong there, what is said, the kind of buffer
    (0, np.ones(2), "obs must be [4, 2]", "box"),
    (1, {"seen": np.ones((4, 2)), "place": np.ones((3, 1))}, "next_obs['place'] must be [4, 1]", "dict"),
    (0, {}, "obs must be a dict of", "dict"),
    (2, np.array(["a", "b", "c", "d"]), "action must be numbers", "box"),
    (4, np.array([True]), "done must be numbers", "box"),
    (5, [{}], "infos must be a dict for each of 4 environments, not 1", "box"),
]


def wrong(options):
    """A call that makes a buffer by options, some of which are wrong."""
    usual = {"buffer_size": 8, "observation_space": SPACE, "action_space": ACTIONS, "device": "cpu"}
    return lambda buffer: sb3.PrioritizedReplayBuffer(**usual | options)


def wrong_row(place, value, kind):
    """A call that adds a step, a part of which is wrong."""

    def act(buffer):
        given = list(row(episode(0, 4), kind))
        given[place] = value
        (buffer if kind == "box" else made(8, 4, kind)).add(*given)

    return act


class TestBuffer(Conformance):
    """The adapter: several environments, rows stored once, observations that are dicts; an action is a row's name."""

    kinds = ("several", "plain", "once", "several once", "several dict", "several once by buffer")
    host = "sb3"
    epsilon, is_weighed_by_batch, is_in_step = 1e-3, True, True
    twins = ("one step", "three steps")
    mistakes = (
        *((wrong(options), error, re.escape(words)) for options, error, words in WRONG_OPTIONS),
        *((wrong_row(at, value, kind), ValueError, re.escape(words)) for at, value, words, kind in WRONG_ROWS),
        (lambda _: sb3.PrioritizedDictReplayBuffer(8, SPACE, ACTIONS), TypeError, "for dict observations, not Box"),
        (lambda _: made(8, kind="dict", optimize_memory_usage=True), ValueError, "usage must be False"),
        (lambda _: made(8).sample(4), RuntimeError, "nothing to sample"),
        (lambda buffer: buffer.sample(0), ValueError, "batch_size must be at least"),
        (lambda buffer: buffer.update_priorities([2.0], [1.0]), TypeError, "sequence must be integers"),
    )

    def make(self, kind="plain", **options):
        environments, self.is_weighed_by_batch = 4 if "several" in kind else 1, "by buffer" not in kind
        options |= {"normalize_by": "batch" if self.is_weighed_by_batch else "buffer", "beta": self.beta}
        options |= {"optimize_memory_usage": "once" in kind}
        return made(self.room // environments, environments, "dict" if "dict" in kind else "box", **options)

    def lanes(self, buffer):
        return buffer.n_envs

    def give(self, buffer, chunks):
        for steps in zip(*(chunks[lane] for lane in sorted(chunks)), strict=True):
            add(buffer, steps)

    def rows(self, buffer):
        lost = buffer.pos if buffer.optimize_memory_usage else -1
        leaves = np.arange(buffer.buffer_size * buffer.n_envs).reshape(-1, buffer.n_envs)
        drawable = [row for row in range(buffer.size()) if row != lost]
        return dict(zip(buffer.actions[drawable].ravel().tolist(), leaves[drawable].ravel().tolist(), strict=True))

    def draw(self, buffer, batch):
        buffer.is_warning = False  # where it is a copy
        sampled = buffer.sample(batch)
        return Drawn(sampled.actions[:, 0].tolist(), sampled.weights[:, 0].numpy(), sampled)

    def update(self, buffer, drawn, errors):
        there = buffer.update_priorities(drawn.batch.sequence, errors)
        assert_array_equal(there, np.isin(drawn.batch.sequence, buffer.priorities.numbers))

    def empty(self, buffer):
        buffer.reset()

    def pair(self, twin):
        self.env = VecNormalize(make_vec_env("MountainCar-v0", 1), clip_reward=0.5)
        self.env.obs_rms.mean, self.env.obs_rms.var, self.env.ret_rms.var = np.ones(2), np.full(2, 2.0), 7.0
        kinds, options = (sb3.PrioritizedReplayBuffer, ReplayBuffer), {}
        if twin == "three steps":
            kinds, options, self.tolerance = (kinds[0], NStepReplayBuffer), {"n_steps": 3, "gamma": 0.9}, (1e-6, 1e-6)
        return tuple(kind(20, SPACE, ACTIONS, "cpu", **options) for kind in kinds)

    def turn(self, buffer, number):
        (step,) = episode(number, 1, is_over=number % 5 == 4)
        add(buffer, [step._replace(truncated=number % 7 == 6)])
        found = [buffer._get_samples(np.arange(buffer.size()), env) for env in (None, self.env)]
        return [[part.numpy() for part in parts if part is not None] for parts in found]

    def world(self, rng):
        kind, self.gamma = str(rng.choice(["box", "dict"])), float(rng.choice([0.0, 0.5, 0.9, 1.0]))
        is_single, is_handled = (kind == "box" and rng.random() < 0.5), bool(rng.random() < 0.5)
        options = {"n_steps": int(rng.choice([1, 2, 3, 5, 40])), "gamma": self.gamma}
        options |= {"optimize_memory_usage": is_single, "handle_timeout_termination": is_handled}
        return made(int(rng.integers(4, 20)), int(rng.integers(1, 5)), kind, **options)

    def look(self, buffer, rng):
        drawn = self.draw(buffer, 16)
        batch, self.is_handled = drawn.batch, buffer.handle_timeout_termination
        self.is_single, seen = buffer.optimize_memory_usage, []
        parts = [batch.observations, batch.next_observations]
        if isinstance(buffer.observations, dict):
            assert_array_equal(parts[0]["place"][:, 0], batch.actions[:, 0] % 7)
            parts = [part["seen"] for part in parts]
        for i, ended in enumerate(batch.dones[:, 0].tolist()):
            found = {"n": buffer.n_steps, "total": batch.rewards[i, 0].item(), "ended": ended}
            found["number"] = parts[0][i, 0].item()
            if batch.discounts is not None:
                found["discount"] = batch.discounts[i, 0].item()
            if not (self.is_single and ended):  # where SB3 has what the next episode began with
                found["following"] = parts[1][i, 0].item()
            seen.append(found)
        return drawn, seen

    def expected(self, story, number, n):
        found, (_, steps, last) = super().expected(story, number, n), story.ahead(number, n, self.gamma)
        ended = last.terminated or (last.truncated and not self.is_handled) or (last.is_cut and self.is_single)
        return found | {"ended": float(ended), "discount": self.gamma**steps}

    def mean_return(self, names):
        assert isinstance(names["model"].replay_buffer, sb3.PrioritizedReplayBuffer)
        return names["stop"].best_mean_reward


def with_priorities(buffer, seed=5):
    """Give everything that can be drawn another priority, some of them none to speak of; return all leaves."""
    everything = np.arange(buffer.priorities.written)
    errors = np.random.default_rng(seed).random(everything.size) ** 4
    buffer.update_priorities(everything, errors)
    return buffer.tree.get(np.arange(buffer.tree.capacity)).astype(float)


# Algorithms


def host_of(name):
    """The host's class, of which the plug-in's is the prioritized one."""
    if name in HOSTS:
        return HOSTS[name]
    contrib = pytest.importorskip("sb3_contrib", reason="the plug-in 'sb3' needs sb3_contrib: make plugins installs it")
    return contrib.QRDQN


def model(name, environments=1, **options):
    """A small model of the plug-in's, or of a host's class."""
    if name == "PrioritizedQRDQN":
        host_of(name)
    kind = name if isinstance(name, type) else getattr(sb3, name)
    environment = "CartPole-v1" if "DQN" in kind.__name__ else "Pendulum-v1"
    options = SMALL | {"policy_kwargs": {"net_arch": [16]}} | options  # SB3 adds to policy_kwargs, which are not shared
    return kind("MlpPolicy", make_vec_env(environment, environments, seed=3), device="cpu", **options)


def parameters(learner):
    """Every parameter of the networks and of their optimizers, by name."""
    return {name: value.clone() for name, value in learner.policy.state_dict().items()}


def train_on(learner):
    """Takes one gradient step; returns the batch that it was taken on."""
    np.random.seed(7)  # noqa: NPY002
    learner.train(gradient_steps=1)
    return learner.replay_buffer.last


def to_train_on(learner):
    """The batch that :func:`train_on` will take next."""
    np.random.seed(7)  # noqa: NPY002
    learner.replay_buffer.anneal(learner._current_progress_remaining)
    return learner.replay_buffer.sample(learner.batch_size)


@pytest.mark.filterwarnings("ignore:two batches were sampled")  # by the host, with this buffer
@pytest.mark.parametrize(
    ("name", "environments", "n_steps"), [("PrioritizedDQN", 1, 1), *((name, 4, 3) for name in NAMES)]
)
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


def test_a_gradient_step_of_dqn_follows_the_weighted_mean():
    plain = {"net_arch": [16], "optimizer_class": torch.optim.SGD}
    learner = model("PrioritizedDQN", learning_rate=1.0, max_grad_norm=np.inf, policy_kwargs=plain, learning_starts=99)
    learner.learn(60)
    with_priorities(learner.replay_buffer)
    torch.nn.init.normal_(learner.q_net_target.q_net[0].weight)
    network, before, batch = learner.q_net, parameters(learner), to_train_on(learner)
    assert 0 < batch.weights.min() < 0.9
    (error,) = errors_of(learner, batch)
    huber = torch.where(error < 1, error**2 / 2, error - 0.5)
    network.zero_grad()
    (huber * batch.weights / learner.batch_size).sum().backward()
    gradients = {key: value.grad.clone() for key, value in network.named_parameters()}
    assert_array_equal(train_on(learner).sequence, batch.sequence)
    for key, gradient in gradients.items():
        moved = before[f"q_net.{key}"] - dict(network.named_parameters())[key]
        torch.testing.assert_close(moved, gradient, rtol=1e-4, atol=1e-5)


def errors_of(learner, batch):
    """The |TD errors| ``[B, 1]`` of each critic."""
    rewards, left, after = batch.rewards, learner.gamma * (1 - batch.dones), batch.next_observations
    if not hasattr(learner, "critic"):
        own, target = getattr(learner, "q_net", None), getattr(learner, "q_net_target", None)
        if own is None:  # the TD error of QR-DQN is that of the means over its quantiles
            networks = learner.quantile_net, learner.quantile_net_target
            own, target = (lambda seen, net=net: net(seen).mean(1) for net in networks)
        with torch.no_grad():
            wanted = rewards + left * target(after).max(1, keepdim=True).values
        return [(own(batch.observations).gather(1, batch.actions) - wanted).abs()]
    with torch.no_grad():
        ahead = torch.cat(learner.critic_target(after, learner.actor_target(after)), 1).min(1, keepdim=True).values
        return [(value - rewards - left * ahead).abs() for value in learner.critic(batch.observations, batch.actions)]


@pytest.mark.parametrize(
    ("name", "critics"),
    [("PrioritizedDQN", 1), ("PrioritizedQRDQN", 1), ("PrioritizedTD3", 2), ("PrioritizedDDPG", 1)],
)
def test_the_priority_is_the_mean_td_error_of_the_critics(name, critics):
    learner = model(name, learning_starts=99)
    learner.learn(60)
    learner.target_policy_noise = 0.0  # of TD3, of which SB3 makes DDPG, with its noise
    leaves, batch = with_priorities(learner.replay_buffer), to_train_on(learner)
    errors = errors_of(learner, batch)
    assert len(errors) == critics
    train_on(learner)
    leaves[batch.sequence] = (torch.stack(errors).mean(0).detach().numpy()[:, 0].astype(float) + 1e-6) ** 0.6
    assert_allclose(learner.replay_buffer.tree.get(np.arange(60)), leaves[:60], rtol=1e-4)


class Weightless(sb3.PrioritizedReplayBuffer):
    """Gives every transition the weight 0."""

    def sample(self, batch_size, env=None):
        """A batch with its weights at 0."""
        batch = super().sample(batch_size, env)
        batch.weights.zero_()
        return batch


@pytest.mark.parametrize("name", NAMES)
def test_what_has_weight_0_moves_no_critic_and_gets_its_priority(name):
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
    learner = model(name, environments, n_steps=2, replay_buffer_kwargs={"alpha": 0.5, "beta": 0.5, "fanout": 8})
    learner.learn(200)
    buffer = learner.replay_buffer
    assert (buffer.n_steps, buffer.gamma, buffer.tree.fanout) == (2, learner.gamma, 8)
    assert buffer.beta == pytest.approx(1 - 0.5 * max(learner._current_progress_remaining, 0))
    learner.save(tmp_path / "model")
    learner.save_replay_buffer(tmp_path / "replay")
    again = type(learner).load(tmp_path / "model", env=learner.get_env())
    assert (again.n_steps, again.replay_buffer.size()) == (2, 0)
    again.load_replay_buffer(tmp_path / "replay")
    every = np.arange(400)
    assert_array_equal(again.replay_buffer.tree.get(every), buffer.tree.get(every))
    seen = learner.get_env().reset()
    assert_array_equal(learner.predict(seen, deterministic=True)[0], again.predict(seen, deterministic=True)[0])
    again.learn(100, reset_num_timesteps=False)
    assert again.num_timesteps >= learner.num_timesteps + 100
    assert again.replay_buffer.size() == again.num_timesteps // environments


@pytest.mark.parametrize(
    ("kind", "fact"),
    [(ReplayBuffer, "PrioritizedReplayBuffer"), (HerReplayBuffer, "HerReplayBuffer"), ("prioritized", "'prioritized'")],
)
def test_buffers_without_priorities_are_refused(kind, fact, tmp_path):
    with pytest.raises(TypeError, match=fact):
        model("PrioritizedSAC", replay_buffer_class=kind)
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

    with pytest.raises(RuntimeError, match="took 1 gradient steps and weighted 0 of their batches"):
        model(OtherDQN).learn(100)


def test_qr_dqn_without_sb3_contrib_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    with pytest.raises(ImportError, match=r"sb3-contrib from 2\.9 on .* install one by: pip install"):
        _ = sb3.PrioritizedQRDQN
    with pytest.raises(AttributeError, match="no attribute 'PrioritizedPPO'"):
        _ = sb3.PrioritizedPPO


def told(training):
    """How many warnings of unheeded priorities a call gives."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        training()
    return sum("PrioritizedDQN" in str(each.message) and each.category is UserWarning for each in given)


@pytest.mark.parametrize(("environments", "gradient_steps"), [(1, 1), (1, 3), (4, -1)])
def test_an_algorithm_that_leaves_priorities_unused_is_told_once(environments, gradient_steps, tmp_path):
    options = {"replay_buffer_class": sb3.PrioritizedReplayBuffer, "gradient_steps": gradient_steps}
    learner = model(DQN, environments, **options)
    assert told(lambda: learner.learn(200)) == 1
    assert told(lambda: learner.learn(100)) == 0
    ours = model("PrioritizedDQN").learn(100)
    ours.save(tmp_path / "model")
    ours.save_replay_buffer(tmp_path / "buffer")
    learner = DQN.load(tmp_path / "model", make_vec_env("CartPole-v1"))  # with a buffer of priorities, and SB3's class
    learner.load_replay_buffer(tmp_path / "buffer")
    assert len(np.unique(learner.replay_buffer.tree.get(np.arange(100)))) > 50
    assert told(lambda: learner.learn(200)) == 1


def test_two_samples_without_an_update_are_warned_of_once():
    buffer = made(20)
    buffer.is_warning = True
    add(buffer, episode(0, 1))
    for _ in range(3):
        batch = buffer.sample(4)
        buffer.update_priorities(batch.sequence, np.ones(4))
    buffer.sample(4)
    again = pickle.loads(pickle.dumps(buffer))
    assert told(lambda: [buffer.sample(4) for _ in range(2)]) == 1
    assert told(lambda: again.sample(4)) == 0
    assert told(lambda: [again.sample(4) for _ in range(2)]) == 1
