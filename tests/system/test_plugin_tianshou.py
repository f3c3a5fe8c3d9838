"""Our tree and buffers in tianshou: beside the host's own ones, and where these err, right."""

import copy
import pickle

import numpy as np
import pytest

from tests.plugin_conformance import Conformance, Drawn, seed
from tests.plugin_hosts import broken, plugin

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
ENVIRONMENTS = 3
KINDS = {
    "plain": ("PrioritizedReplayBuffer", {}),
    "raw weights": ("PrioritizedReplayBuffer", {"weight_norm": False}),
    "stacked": ("PrioritizedReplayBuffer", {"stack_num": 4, "sample_avail": True}),
    "last of stacked": (
        "PrioritizedReplayBuffer",
        {"stack_num": 2, "save_only_last_obs": True, "ignore_obs_next": True},
    ),
    "without next": ("PrioritizedReplayBuffer", {"ignore_obs_next": True}),
    "vector": ("PrioritizedVectorReplayBuffer", {"buffer_num": ENVIRONMENTS}),
    "stacked vector": ("PrioritizedVectorReplayBuffer", {"buffer_num": ENVIRONMENTS, "stack_num": 3}),
}


def buffer(library, kind="plain", size=50, alpha=0.6, beta=0.4):
    name, options = KINDS[kind]
    return getattr(library, name)(size, alpha=alpha, beta=beta, **options)


def row(number, nested=False):
    """A transition; ``nested`` ones have observations and infos in several parts, some no numbers."""
    seen = np.array([number, number / 2, -number], np.float32)
    several = Batch(picture=seen[None].repeat(2, 0), mask=np.array([number % 2 == 0]))
    ends = {"terminated": number % 7 == 6, "truncated": number % 11 == 10}
    info = {"number": number, "word": f"word {number}", "deep": {"er": number / 3}} if nested else {}
    obs, obs_next = (several, copy.deepcopy(several)) if nested else (seen, seen + 1)
    return Batch(obs=obs, act=number % 3, rew=float(number), obs_next=obs_next, info=Batch(info), **ends)


def add(memory, number, nested=False):
    if not hasattr(memory, "buffer_num"):
        one = row(number, nested)
        if memory._save_only_last_obs:
            one.obs = np.stack([one.obs - 1, one.obs])
        return memory.add(one)
    return memory.add(Batch.stack([row(ENVIRONMENTS * number + each, nested) for each in range(ENVIRONMENTS)]))


def filled(memory, rows=40):
    """The buffer with rows, and priorities far apart."""
    for number in range(rows):
        add(memory, number)
    errors = np.random.default_rng(0).exponential(size=len(memory))
    memory.update_weight(np.arange(len(memory)), errors)
    return memory


def leaves(memory):
    return np.array([memory.weight[slot] for slot in range(memory.maxsize)])


def same(one, other):
    """Whether two batches hold the same parts with the same values and dtypes."""
    if isinstance(one, Batch):
        keys = set(one.get_keys())
        return keys == set(other.get_keys()) and all(same(one[key], other[key]) for key in keys)
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and np.array_equal(one, other)


# The tree


def sums_are_right(tree, leaf_values, rng):
    """Check every answer of a tree whose leaves are whole numbers, so that no rounding excuses another leaf."""
    size, total = len(tree), int(leaf_values.sum())
    assert tree.reduce() == total
    bounds = rng.integers(-size, size + 1, (40, 2))
    for start, end in bounds.tolist():
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
        tree[slots], theirs[slots], values[slots] = new, new, new
        one = int(rng.integers(size))
        tree[one] = theirs[one] = values[one] = 2.0
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
    assert len(tree) == 10


@pytest.mark.parametrize("again", [copy.deepcopy, lambda tree: pickle.loads(pickle.dumps(tree))])
def test_a_copied_tree_is_whole_and_its_own(again):
    tree = ours.SegmentTree(10, "numpy", 4)
    tree[np.arange(10)] = np.arange(10.0)
    twin = again(tree)
    tree[0] = 5.0
    assert type(twin) is ours.SegmentTree and type(twin.tree) is type(tree.tree) and twin.tree.fanout == 4
    assert twin.reduce() == 45.0 and twin.get_prefix_sum_idx(0.5) == 1


def test_what_the_tree_refuses_it_names_and_leaves_nothing_written():
    tree = ours.SegmentTree(10)
    tree[np.arange(3)] = np.array([0.5, 0.0, 0.5])
    for mass in (1.0, -0.1, np.nan, np.array([0.1, 2.0])):
        with pytest.raises(AssertionError, match=r"must be in \[0, 1.0\)"):
            tree.get_prefix_sum_idx(mass)
    with pytest.raises(AssertionError, match="index 10 at position 1"):
        tree[np.array([0, 10])] = 3.0
    with pytest.raises(ValueError, match="priority nan"):
        tree[np.array([0, 1])] = np.array([3.0, np.nan])
    with pytest.raises(IndexError, match="index 10"):
        tree[10]
    with pytest.raises(TypeError, match="integers"):
        tree[0.5]
    assert tree.reduce() == 1.0


# The buffers


def draws_are_the_hosts(mine, theirs, nested=False):
    """Add, draw and update side by side, with the same random numbers, until the oldest rows are long overwritten."""
    for number in range(120):
        drawn, written = [], []
        for memory in (mine, theirs):
            seed(number)
            written.append(add(memory, number, nested)[0])
            batch, rows = memory.sample(16)
            memory.update_weight(rows, np.random.default_rng(number).standard_normal(16).astype(np.float32))
            drawn.append((batch, np.asarray(rows)))
        assert np.array_equal(*written) and np.array_equal(drawn[0][1], drawn[1][1])
        assert same(drawn[0][0], drawn[1][0])
    assert np.array_equal(leaves(mine), leaves(theirs))
    assert len(mine) == len(theirs) and mine._max_prio == theirs._max_prio and mine._min_prio == theirs._min_prio


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_random_numbers_draw_the_hosts_rows_with_its_weights(kind, nested):
    if nested and "save_only_last_obs" in KINDS[kind][1]:
        nested = False
    draws_are_the_hosts(buffer(ours, kind), buffer(host, kind), nested)


@pytest.mark.parametrize("kind", ["plain", "stacked", "vector"])
def test_rows_are_read_as_from_the_host(kind):
    mine, theirs = filled(buffer(ours, kind)), filled(buffer(host, kind))
    last = len(mine) - 1
    for index in (slice(None), slice(2, 9), last, np.array([3, last]), np.array([[0, 1], [2, 3]])):
        assert same(mine[index], theirs[index])
    for count in (0, -1, None):
        assert np.array_equal(np.sort(mine.sample_indices(count)), np.sort(theirs.sample_indices(count)))
    assert same(mine.sample(0)[0], theirs.sample(0)[0])


def test_a_tree_that_is_off_by_one_leaf_fails_each_of_these_checks():
    with broken():
        tree, plain, vector = ours.SegmentTree(17, "numba"), buffer(ours), buffer(ours, "vector")
        ours.install()
        try:
            installed = buffer(host)
        finally:
            ours.uninstall()
    values = np.arange(17.0)
    tree[np.arange(17)] = values
    with pytest.raises(AssertionError):
        sums_are_right(tree, values, np.random.default_rng(0))
    for mine, kind in ((plain, "plain"), (vector, "vector"), (installed, "plain")):
        with pytest.raises((AssertionError, RuntimeWarning)):  # a weight may be that of a row without a priority
            draws_are_the_hosts(mine, buffer(host, kind))


# State


def pickled(memory, folder):
    return pickle.loads(pickle.dumps(memory))


def deep(memory, folder):
    return copy.deepcopy(memory)


def on_disk(memory, folder):
    memory.save_hdf5(str(folder / "memory.hdf5"))
    return type(memory).load_hdf5(str(folder / "memory.hdf5"))


@pytest.mark.parametrize("kind", ["plain", "vector"])
def test_a_buffer_that_the_hosts_class_saved_is_taken_over(kind, tmp_path):
    theirs = filled(buffer(host, kind))
    theirs.save_hdf5(str(tmp_path / "theirs.hdf5"))
    mine = type(buffer(ours, kind)).load_hdf5(str(tmp_path / "theirs.hdf5"))
    draws_are_the_hosts(mine, theirs)


class TestBuffer(Conformance):
    """The adapter: a row's reward tells it from all others."""

    kinds = ("plain", "stacked", "vector")
    heading = "tianshou"
    epsilon, is_weighed_by_batch = np.finfo(np.float32).eps.item(), True
    mistakes = (
        (lambda _: ours.PrioritizedReplayBuffer(0, 0.6, 0.4), ValueError, "size must be at least 1, not 0"),
        (
            lambda _: ours.PrioritizedReplayBuffer(9, 0.0, 0.4),
            ValueError,
            "alpha must be above 0, not 0.0; .*ReplayBuffer",
        ),
        (
            lambda _: ours.PrioritizedReplayBuffer(9, 0.6, -1.0),
            ValueError,
            "beta must be finite and at least 0, not -1.0",
        ),
        (
            lambda _: ours.PrioritizedReplayBuffer(9, 0.6, 0.4, implementation="numbar"),
            RuntimeError,
            "Did you mean 'numba'",
        ),
        (
            lambda _: ours.PrioritizedVectorReplayBuffer(9, 0, alpha=0.6, beta=0.4),
            ValueError,
            "buffer_num must be at least",
        ),
        (
            lambda _: ours.PrioritizedVectorReplayBuffer(9.5, 2, alpha=0.6, beta=0.4),
            TypeError,
            "size must be an integer",
        ),
        (lambda _: buffer(ours).set_beta(-0.5), ValueError, "beta must be finite and at least 0, not -0.5"),
        (lambda _: buffer(ours, "vector").set_beta(-0.5), ValueError, "beta must be finite and at least 0, not -0.5"),
        (lambda _: ours.install("numbar"), RuntimeError, "Did you mean 'numba'"),
        (
            lambda memory: memory.update_weight(np.array([0, 50]), np.array([1.0, 2.0])),
            IndexError,
            "index 50 at position 1",
        ),
        (lambda memory: memory.update_weight(np.array([0.5]), np.array([1.0])), TypeError, "indices must be integers"),
        (
            lambda memory: memory.update_weight(np.array([0, 1]), np.ones((2, 1))),
            ValueError,
            r"be \[2\] .* not \[2, 1\]",
        ),
    )

    def make(self, kind="plain", **options):
        return buffer(ours, kind, size=self.room, **options)

    def add(self, memory, count):
        lanes = getattr(memory, "buffer_num", 1)
        first = int(memory.rew.max()) // lanes + 1 if len(memory) else 0
        for number in range(first, first - (-count // lanes)):
            add(memory, number)

    def rows(self, memory):
        parts = getattr(memory, "buffers", [memory])
        at = np.concatenate([place * part.maxsize + np.arange(len(part)) for place, part in enumerate(parts)])
        return dict(zip(memory.rew[at].tolist(), at.tolist(), strict=True))

    def draw(self, memory, batch):
        sampled, rows = memory.sample(batch)
        return Drawn(sampled.rew.tolist(), sampled.weight, rows)

    def update(self, memory, drawn, errors):
        memory.update_weight(drawn.batch, errors)

    def copies(self, memory, folder):
        return [*super().copies(memory, folder), on_disk(memory, folder)]

    def mean_return(self, names):
        assert isinstance(names["replay"], ours.PrioritizedVectorReplayBuffer)
        return names["result"].best_reward


# Where the host errs


@pytest.mark.parametrize("kind", ["plain", "vector"])
def test_a_part_of_what_was_drawn_is_late_too_and_rows_that_nobody_drew_are_set(kind):
    memory = filled(buffer(ours, kind))
    rows = memory.sample_indices(64)
    overwritten = np.concatenate([add(memory, 100 + number)[0] for number in range(15)])
    part = rows[np.isin(rows, overwritten)][:1]
    before = leaves(memory)
    memory.update_weight(part, np.array([9.0]))
    assert np.array_equal(leaves(memory), before)
    memory.update_weight(np.asarray(part), np.array([9.0]))  # as by the host
    assert leaves(memory)[part] == pytest.approx(9.0**0.6)


@pytest.mark.parametrize("kind", ["plain", "vector"])
def test_rows_are_gone_once_the_buffer_is_emptied(kind):
    memory = filled(buffer(ours, kind))
    rows = memory.sample_indices(8)
    memory.reset()
    memory.update_weight(rows, np.ones(8))
    written = add(memory, 0)[0]
    assert set(memory.sample_indices(100)) <= set(written)
    assert len(memory) == len(written)
    theirs = filled(buffer(host, kind))
    theirs.reset()
    add(theirs, 0)
    assert not set(theirs.sample_indices(100)) <= set(written), "the host has mended this: tell it no more"


def test_beta_and_weight_norm_of_a_vector_buffer_work():
    mine, theirs = (
        filled(library.PrioritizedVectorReplayBuffer(50, 3, alpha=0.6, beta=0.4, weight_norm=False))
        for library in (ours, host)
    )
    rows = np.arange(20)
    assert mine[rows].weight.max() != 1.0
    assert theirs[rows].weight.max() == 1.0, "the host has mended this: tell it no more"
    before = mine[rows].weight, theirs[rows].weight
    mine.set_beta(1.0)
    theirs.set_beta(1.0)
    assert np.allclose(mine[rows].weight, before[0] ** (1.0 / 0.4))
    assert np.array_equal(theirs[rows].weight, before[1]), "the host has mended this: tell it no more"


# The host's own classes on our tree


@pytest.fixture
def installed():
    ours.install("numpy", 4)
    yield
    ours.uninstall()


@pytest.mark.parametrize("kind", ["plain", "vector"])
def test_the_hosts_own_buffers_draw_the_same_once_our_tree_is_installed(kind):
    theirs = buffer(host, kind)
    ours.install("numpy", 4)
    try:
        assert issubclass(host.SegmentTree, ours.SegmentTree)
        mine = buffer(host, kind)
    finally:
        ours.uninstall()
    assert type(mine) is type(theirs) and mine.weight.tree.fanout == 4
    draws_are_the_hosts(mine, theirs)
    assert host.SegmentTree is THEIR_TREE and isinstance(buffer(host).weight, THEIR_TREE)


@pytest.mark.parametrize("kind", ["plain", "vector"])
def test_our_buffers_work_under_the_hosts_names(monkeypatch, kind):
    theirs = buffer(host, kind)
    for name in ("PrioritizedReplayBuffer", "PrioritizedVectorReplayBuffer"):
        monkeypatch.setattr(host, name, getattr(ours, name))
    mine = buffer(host, kind)
    assert isinstance(mine, ours.PrioritizedReplayBuffer)
    draws_are_the_hosts(mine, theirs)


@pytest.mark.parametrize("again", [pickled, deep, on_disk])
def test_the_hosts_buffer_on_our_tree_is_saved_and_loaded(installed, again, tmp_path):
    memory = filled(buffer(host))
    twin = again(memory, tmp_path)
    ours.uninstall()
    assert np.array_equal(leaves(memory), leaves(twin)) and twin.weight.reduce() == memory.weight.reduce()
    assert isinstance(twin.weight, ours.SegmentTree)


# Neighbors in time


def wander(number):
    """Episodes that end, or are cut, at random, beside brute force: returns over n steps, and stacks of frames."""
    seed(number)
    rng = np.random.default_rng(number)
    count = int(rng.integers(1, 4))
    steps = int(rng.integers(1, 6))
    frames = int(rng.integers(1, 4))
    memory = ours.PrioritizedVectorReplayBuffer(int(rng.integers(12, 60)), count, 0.6, 0.4, stack_num=frames)
    given, kept, ids = [[] for _ in range(count)], -(-memory.maxsize // count), 0
    for _ in range(40):
        lanes = rng.permutation(count)[: int(rng.integers(1, count + 1))]
        rows = []
        for lane in lanes:
            ids += 1
            ends = rng.random(2) < 0.15
            begins = not given[lane] or given[lane][-1][2].any()
            given[lane].append((float(ids), rng.standard_normal(), ends, begins))
            rows.append(_row(*given[lane][-1][:3]))
        memory.add(Batch.stack(rows), buffer_ids=lanes)
        if rng.random() < 0.1:
            memory = pickle.loads(pickle.dumps(memory))
        if rng.random() < 0.05:
            memory.reset()
            given = [[] for _ in range(count)]
            continue
        if rng.random() < 0.5:
            continue
        batch, indices = memory.sample(16)
        seen = np.asarray(batch.obs).reshape(16, -1)
        algorithm = DQN.compute_nstep_return(batch, memory, indices, lambda *_: torch.zeros(16), 0.9, steps)
        for i, index in enumerate(indices):
            lane = index // kept
            history = given[lane][-kept:]
            at = [one[0] for one in history].index(memory.obs[index])
            expected, last = 0.0, at
            for last in range(at, min(at + steps, len(history))):
                expected += 0.9 ** (last - at) * history[last][1]
                if history[last][2].any():
                    break
            assert algorithm.returns[i].item() == pytest.approx(expected, abs=1e-5)
            stack = [history[at][0]]
            for before in range(at, at - frames + 1, -1):
                stack.insert(0, stack[0] if before <= 0 or history[max(before, 0)][3] else history[before - 1][0])
                if before <= 0 or history[before][3]:
                    stack = [stack[0]] * (frames - len(stack)) + stack
                    break
            assert seen[i].tolist() == stack[-frames:]
        memory.update_weight(indices, rng.random(16))


def _row(number, reward, ends):
    ended = {"terminated": bool(ends[0]), "truncated": bool(ends[1])}
    return Batch(obs=number, act=0, rew=reward, obs_next=number + 0.5, info={}, **ended)


@pytest.mark.parametrize("walks", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_returns_and_stacks_are_those_of_brute_force(walks):
    for number in range(walks):
        wander(number)


# Training


def learner(steps):
    torch.manual_seed(0)
    net = Net(state_shape=(4,), action_shape=2, hidden_sizes=[64, 64])
    space = gym.spaces.Discrete(2)
    policy = DiscreteQLearningPolicy(model=net, action_space=space, eps_training=0.1)
    optim = AdamOptimizerFactory(lr=1e-3)
    return DQN(policy=policy, optim=optim, gamma=0.99, n_step_return_horizon=steps, target_update_freq=100)


def carts(count, first):
    environments = DummyVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(count)])
    environments.seed(first)
    return environments


@pytest.mark.parametrize("steps", [1, 3])
def test_training_on_vector_environments_takes_the_hosts_steps(steps):
    """Rows from a collector, returns over n steps, and TD errors that come back as priorities."""
    losses = []
    for library in (ours, host):
        seed(0)
        memory = buffer(library, "vector", size=90)
        algorithm = learner(steps)
        collector = Collector(algorithm, carts(ENVIRONMENTS, 0), memory, exploration_noise=True)
        collector.reset()
        for _ in range(12):
            collector.collect(n_step=12)
            with policy_within_training_step(algorithm.policy):
                losses.append(algorithm.update(memory, sample_size=16).loss)
    assert losses[:12] == losses[12:] and len(set(losses)) == 12
