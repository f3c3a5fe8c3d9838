"""Our tree and buffers in tianshou: beside the host's own ones, and where these err, right."""

import copy
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.plugin_conformance import Conformance, Drawn, episode
from tests.plugin_hosts import plugin

ours = plugin("tianshou")

import gymnasium as gym  # noqa: E402
import tianshou.data as host  # noqa: E402
import torch  # noqa: E402
from tianshou.algorithm import DQN  # noqa: E402
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy  # noqa: E402
from tianshou.algorithm.optim import AdamOptimizerFactory  # noqa: E402
from tianshou.data import Batch, Collector  # noqa: E402
from tianshou.env import DummyVectorEnv  # noqa: E402
from tianshou.utils.net.common import Net  # noqa: E402
from tianshou.utils.torch_utils import policy_within_training_step  # noqa: E402

THEIR_TREE = host.SegmentTree
Ours, OurVector = ours.PrioritizedReplayBuffer, ours.PrioritizedVectorReplayBuffer
ENVIRONMENTS = 3
LAST = {"stack_num": 2, "save_only_last_obs": True, "ignore_obs_next": True}
KINDS = {
    "plain": ("PrioritizedReplayBuffer", {}),
    "raw weights": ("PrioritizedReplayBuffer", {"weight_norm": False}),
    "stacked": ("PrioritizedReplayBuffer", {"stack_num": 4, "sample_avail": True}),
    "last of stacked": ("PrioritizedReplayBuffer", LAST),
    "without next": ("PrioritizedReplayBuffer", {"ignore_obs_next": True}),
    "vector": ("PrioritizedVectorReplayBuffer", {"buffer_num": ENVIRONMENTS}),
    "stacked vector": ("PrioritizedVectorReplayBuffer", {"buffer_num": ENVIRONMENTS, "stack_num": 3}),
}


def buffer(library, kind="plain", size=50, beta=0.4):
    name, options = KINDS[kind]
    return getattr(library, name)(size, alpha=0.6, beta=beta, **options)


def seen(number):
    return np.array([number, number / 2, -number], np.float32)


def row(step, nested=False):
    """A transition; ``nested`` ones have observations and infos in several parts, some no numbers."""
    number, obs, obs_next, info = step.number, seen(step.number), seen(step.following), {}
    if nested:
        obs = Batch(picture=obs[None].repeat(2, 0), mask=np.array([number % 2 == 0]))
        obs_next, info = copy.deepcopy(obs), {"word": f"word {number}", "deep": {"er": number / 3}}
    ends = {"terminated": step.terminated, "truncated": step.truncated}
    return Batch(obs=obs, act=number, rew=step.reward, obs_next=obs_next, info=Batch(info), **ends)


def add(memory, steps, nested=False):
    """Add a step of each lane; return where."""
    rows = [row(step, nested) for step in steps.values()]
    if hasattr(memory, "buffer_num"):
        return memory.add(Batch.stack(rows), buffer_ids=np.array([*steps]))[0]
    if memory._save_only_last_obs:
        rows[0].obs = np.stack([rows[0].obs - 1, rows[0].obs])
    return memory.add(rows[0])[0]


def numbered(memory, number):
    """A step of each lane, some of which end an episode."""
    lanes = getattr(memory, "buffer_num", 1)
    numbers = {lane: number * lanes + lane for lane in range(lanes)}
    steps = {lane: episode(each, 1, is_over=each % 7 == 6)[0] for lane, each in numbers.items()}
    return {lane: step._replace(truncated=step.number % 11 == 10) for lane, step in steps.items()}


def filled(memory, rows=40):
    """The buffer with rows, and priorities far apart."""
    for number in range(rows):
        add(memory, numbered(memory, number))
    memory.update_weight(np.arange(len(memory)), np.random.default_rng(0).exponential(size=len(memory)))
    return memory


def leaves(memory):
    return memory.weight[np.arange(memory.maxsize)]


def plain(batch):
    """A batch as dicts of arrays."""
    if not isinstance(batch, Batch):
        return np.asarray(batch)
    return {key: plain(batch[key]) for key in batch.get_keys()}


class TestBuffer(Conformance):
    """The adapter: a row's action tells it from all others; where an environment is reset, ``truncated`` says so."""

    kinds = ("plain", "stacked", "vector")
    host = "tianshou"
    epsilon, is_weighed_by_batch, is_cut = np.finfo(np.float32).eps.item(), True, False
    twins = (
        *KINDS,
        *(f"nested: {kind}" for kind in KINDS if kind != "last of stacked"),
        *(f"{how}: {kind}" for how in ("installed", "by name", "loaded") for kind in ("plain", "vector")),
    )
    turns = range(120)
    mistakes = (
        (lambda _: Ours(9, 0.0, 0.4), ValueError, "alpha must be above 0, not 0.0; .*ReplayBuffer"),
        (lambda _: Ours(9, 0.6, -1.0), ValueError, "beta must be finite and at least 0, not -1.0"),
        (lambda _: OurVector(9, 0, alpha=0.6, beta=0.4), ValueError, "buffer_num must be at least"),
        (lambda _: buffer(ours, "vector").set_beta(-0.5), ValueError, "beta must be finite and at least 0, not -0.5"),
        (lambda _: ours.install("numbar"), RuntimeError, "Did you mean 'numba'"),
        (lambda memory: memory.update_weight(np.array([0, 50]), np.ones(2)), IndexError, "index 50 at position 1"),
        (lambda memory: memory.update_weight(np.array([0.5]), np.ones(1)), TypeError, "indices must be integers"),
        (lambda memory: memory.update_weight(np.arange(2), np.ones((2, 1))), ValueError, r"be \[2\] .* not \[2, 1\]"),
    )
    precision = 1e-5, 1e-5

    def make(self, kind="plain", **options):
        return buffer(ours, kind, size=self.room, beta=self.beta, **options)

    def lanes(self, memory):
        return getattr(memory, "buffer_num", 1)

    def give(self, memory, chunks):
        for steps in zip(*chunks.values(), strict=True):
            add(memory, dict(zip(chunks, steps, strict=True)))

    def rows(self, memory):
        parts = getattr(memory, "buffers", [memory])
        at = np.concatenate([place * part.maxsize + np.arange(len(part)) for place, part in enumerate(parts)])
        return dict(zip(memory.act[at].tolist(), at.tolist(), strict=True)) if at.size else {}

    def draw(self, memory, batch):
        sampled, rows = memory.sample(batch)
        self.sampled = sampled
        return Drawn(sampled.act.tolist(), sampled.weight, rows)

    def update(self, memory, drawn, errors):
        memory.update_weight(drawn.batch, errors)

    def empty(self, memory):
        memory.reset()

    def kept(self, memory, folder):
        memory.save_hdf5(str(folder / "memory.hdf5"))
        return [*super().kept(memory, folder), lambda: type(memory).load_hdf5(str(folder / "memory.hdf5"))]

    def pair(self, twin):
        how, _, kind = twin.rpartition(": ")
        theirs, self.is_nested = buffer(host, kind), how == "nested"
        if how == "loaded":
            with tempfile.TemporaryDirectory() as folder:
                filled(theirs).save_hdf5(str(Path(folder) / "theirs.hdf5"))
                return type(buffer(ours, kind)).load_hdf5(str(Path(folder) / "theirs.hdf5")), theirs
        if how == "installed":
            ours.install("numpy", 4)
            mine = buffer(host, kind)
            ours.uninstall()
            assert type(mine) is type(theirs) and mine.weight.tree.fanout == 4
            return mine, theirs
        with pytest.MonkeyPatch.context() as patch:
            for name in ("PrioritizedReplayBuffer", "PrioritizedVectorReplayBuffer"):
                patch.setattr(host, name, getattr(ours, name))
            return buffer(host if how == "by name" else ours, kind), theirs

    def turn(self, memory, number):
        written = add(memory, numbered(memory, number), self.is_nested)
        batch, rows = memory.sample(16)
        errors = np.random.default_rng(number).standard_normal(16)
        memory.update_weight(rows, errors if number <= 60 else errors.astype(np.float32))
        facts = [written, np.asarray(rows), plain(batch), leaves(memory)]
        if number == 60:
            last = len(memory) - 1
            places = [slice(None), slice(2, 9), last, np.array([3, last])]
            if memory.stack_num == 1 or self.lanes(memory) == 1:  # else the host refuses such an index, too
                places.append(np.array([[0, 1], [2, 3]]))
            facts += [plain(memory[each]) for each in places] + [plain(memory.sample(0)[0])]
            facts += [np.sort(memory.sample_indices(count)) for count in (0, -1, None)]
        return [*facts, len(memory), float(memory._max_prio), float(memory._min_prio)]

    def world(self, rng):
        self.steps, self.frames = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        size, lanes, options = int(rng.integers(12, 60)), int(rng.integers(4)), {"stack_num": self.frames}
        self.lane_size = -(-size // max(lanes, 1))
        return OurVector(size, lanes, 0.6, 0.4, **options) if lanes else Ours(size, 0.6, 0.4, **options)

    def look(self, memory, rng):
        drawn = self.draw(memory, 16)
        algorithm = DQN.compute_nstep_return(
            self.sampled, memory, drawn.batch, lambda *_: torch.zeros(16), self.gamma, self.steps
        )
        stacks = np.asarray(self.sampled.obs).reshape(16, -1, 3)[:, :, 0].tolist()
        totals = algorithm.returns.reshape(-1).tolist()
        return drawn, [
            {"n": self.steps, "total": total} | dict(enumerate(stack))
            for total, stack in zip(totals, stacks, strict=True)
        ]

    def expected(self, story, number, n):
        history, at = story.places[number]
        first = max(at - history[at].time, len(history) - self.lane_size, 0)
        stack = [history[max(at - back, first)].number for back in reversed(range(self.frames))]
        return super().expected(story, number, n) | dict(enumerate(stack))

    def mean_return(self, names):
        assert isinstance(names["replay"], OurVector)
        return names["result"].best_reward


# The tree


def sums_are_right(tree, leaf_values, rng):
    """Check every answer of a tree whose leaves are whole numbers, so that no rounding excuses another leaf."""
    size, total = len(tree), int(leaf_values.sum())
    assert tree.reduce() == total
    for start, end in rng.integers(-size, size + 1, (40, 2)).tolist():
        assert tree.reduce(start, end) == leaf_values[start:end].sum()
    assert np.array_equal(tree[np.arange(size)], leaf_values)
    masses = np.arange(0, total, 0.5)  # every sum of the first leaves, where > and >= differ, and between them
    expected = np.searchsorted(leaf_values.cumsum(), masses, side="left")
    assert np.array_equal(tree.get_prefix_sum_idx(masses), expected)


@pytest.mark.parametrize("implementation", ["numba", "numpy", "python", "flat", "cumsum"])
@pytest.mark.parametrize("size", [1, 2, 7, 16, 17, 100])
def test_the_tree_answers_as_the_hosts_does(implementation, size):
    rng = np.random.default_rng(size)
    tree, theirs, values = ours.SegmentTree(size, implementation, 4), THEIR_TREE(size), np.zeros(size)
    for _ in range(10):
        slots = rng.integers(0, size, 5)
        new = rng.integers(0, 6, 5).astype(np.float64)
        new[0] += 1  # so that there is a total
        one = int(rng.integers(size))
        for each in (tree, theirs, values):
            each[slots] = new
            each[one] = 2.0
        sums_are_right(tree, values, rng)
        assert tree.reduce(0, size // 2) == theirs.reduce(0, size // 2)
        masses = rng.random(50) * tree.reduce()
        assert np.array_equal(tree.get_prefix_sum_idx(masses), theirs.get_prefix_sum_idx(masses.copy()))


def test_a_number_gives_a_number_and_an_array_one_of_its_shape():
    tree = ours.SegmentTree(10)
    tree[3] = 2.0
    tree[np.int64(4)] = np.float32(1.0)
    tree[[5, 6]] = 0.5
    for answer, expected in ((tree[3], 2.0), (tree[np.int64(4)], 1.0), (tree[-4], 0.5), (tree.reduce(4), 2.0)):
        assert type(answer) is float and answer == expected
    assert type(tree.get_prefix_sum_idx(2.5)) is int and tree.get_prefix_sum_idx(np.array(2.5)) == 4
    grid = np.array([[0.5, 2.0], [2.1, 3.6]])
    assert tree.get_prefix_sum_idx(grid).tolist() == [[3, 3], [4, 6]] and grid[1, 1] == 3.6
    assert tree[np.array([[3, -1]])].tolist() == [[2.0, 0.0]] and tree[np.array([], int)].shape == (0,)


MASSES = (1.0, -0.1, np.nan, np.array([0.1, 2.0]))
TREE_REFUSES = [
    *((lambda tree, mass=mass: tree.get_prefix_sum_idx(mass), AssertionError, r"in \[0, 1.0\)") for mass in MASSES),
    (lambda tree: tree.__setitem__(np.array([0, 10]), 3.0), AssertionError, "index 10 at position 1"),
    (lambda tree: tree.__setitem__([0, 1], [3.0, np.nan]), ValueError, "priority nan"),
    (lambda tree: tree[10], IndexError, "index 10"),
    (lambda tree: tree[0.5], TypeError, "integers"),
]


def test_what_the_tree_refuses_leaves_nothing_written():
    tree = ours.SegmentTree(10)
    tree[np.arange(3)] = np.array([0.5, 0.0, 0.5])
    for ask, error, words in TREE_REFUSES:
        with pytest.raises(error, match=words):
            ask(tree)
        assert tree.reduce() == 1.0


# Where the host errs


@pytest.mark.parametrize("kind", ["plain", "vector"])
def test_a_part_of_what_was_drawn_is_late_too(kind):
    memory = filled(buffer(ours, kind))
    rows = memory.sample_indices(64)
    overwritten = np.concatenate([add(memory, numbered(memory, 100 + number)) for number in range(15)])
    part = rows[np.isin(rows, overwritten)][:1]
    before = leaves(memory)
    memory.update_weight(part, np.array([9.0]))
    assert np.array_equal(leaves(memory), before)
    memory.update_weight(np.asarray(part), np.array([9.0]))  # as by the host
    assert leaves(memory)[part] == pytest.approx(9.0**0.6)


def test_beta_and_weight_norm_of_a_vector_buffer_work():
    mine, theirs = (
        filled(library.PrioritizedVectorReplayBuffer(50, 3, alpha=0.6, beta=0.4, weight_norm=False))
        for library in (ours, host)
    )
    rows = np.arange(20)
    before = mine[rows].weight, theirs[rows].weight
    assert before[0].max() != 1.0
    assert before[1].max() == 1.0, "the host has mended this: tell it no more"
    for memory in (mine, theirs):
        memory.set_beta(1.0)
    assert np.allclose(mine[rows].weight, before[0] ** (1.0 / 0.4))
    assert np.array_equal(theirs[rows].weight, before[1]), "the host has mended this: tell it no more"


# The host's own classes on our tree


@pytest.mark.parametrize("way", range(3))
def test_the_hosts_buffer_on_our_tree_is_saved_and_loaded(way, tmp_path):
    ours.install("numpy", 4)
    try:
        memory = filled(buffer(host))
        before, twin = leaves(memory), TestBuffer().kept(memory, tmp_path)[way]()
        memory.weight[np.arange(50)] = 5.0
    finally:
        ours.uninstall()
    assert host.SegmentTree is THEIR_TREE and isinstance(buffer(host).weight, THEIR_TREE)
    assert isinstance(twin.weight, ours.SegmentTree)
    assert (type(twin.weight.tree), twin.weight.tree.fanout) == (type(memory.weight.tree), 4)
    assert np.array_equal(leaves(twin), before)
    assert twin.weight.reduce() == pytest.approx(before.sum())


# Training


def learner(steps):
    torch.manual_seed(0)
    net = Net(state_shape=(4,), action_shape=2, hidden_sizes=[64, 64])
    policy = DiscreteQLearningPolicy(model=net, action_space=gym.spaces.Discrete(2), eps_training=0.1)
    adam = AdamOptimizerFactory(lr=1e-3)
    return DQN(policy=policy, optim=adam, gamma=0.99, n_step_return_horizon=steps, target_update_freq=100)


@pytest.mark.parametrize("steps", [1, 3])
def test_training_on_vector_environments_takes_the_hosts_steps(steps):
    """Rows from a collector, returns over n steps, and TD errors that come back as priorities."""
    losses = []
    for library in (ours, host):
        TestBuffer().seed(None, 0)
        memory, algorithm = buffer(library, "vector", size=90), learner(steps)
        environments = DummyVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(ENVIRONMENTS)])
        environments.seed(0)
        collector = Collector(algorithm, environments, memory, exploration_noise=True)
        collector.reset()
        for _ in range(12):
            collector.collect(n_step=12)
            with policy_within_training_step(algorithm.policy):
                losses.append(algorithm.update(memory, sample_size=16).loss)
    assert losses[:12] == losses[12:] and len(set(losses)) == 12
