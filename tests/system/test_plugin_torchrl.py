"""The plug-in for torchrl: what its sampler draws, weighs, keeps and refuses, and trees in the place of torchrl's."""

import copy
import itertools
import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests import plugin_hosts
from tests.plugin_conformance import Conformance, Drawn

plugin = plugin_hosts.plugin("torchrl")

import torch  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from torchrl.data import (  # noqa: E402
    LazyTensorStorage,
    ListStorage,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    TensorDictPrioritizedReplayBuffer,
    TensorDictReplayBuffer,
)
from torchrl.data.replay_buffers import samplers  # noqa: E402
from torchrl.data.replay_buffers.replay_buffers import prioritized_tensordict  # noqa: E402

ROWS, BATCH = 64, 500
TWINS = {
    f"alpha {first} then {then}{', within' * within}{', marked' * marked}": (first, then, within, marked)
    for (first, then), within, marked in itertools.product(
        [(0.5, 0.5), (1.0, 0.5), (0.5, 1.0), (0.0, 0.0), (0.0, 0.5), (0.5, 0.0)], [False, True], [False, True]
    )
}


@pytest.fixture
def installed():
    plugin.install()
    yield
    plugin.uninstall()


@pytest.fixture(params=["ours", "installed"])
def make_sampler(request, installed):
    """Makes our sampler, or the host's on the trees that install() puts in its place."""
    return plugin.FanoutSampler if request.param == "ours" else samplers.PrioritizedSampler


def filled(sampler, priorities, prefetch=None):
    """A buffer with a row for each priority, which holds its own number and that of its episode of 16 steps."""
    options = {"priority_key": "td_error", "batch_size": BATCH, "prefetch": prefetch}
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(ROWS), sampler=sampler, **options)
    rows = torch.arange(len(priorities))
    data = {"row": rows, "episode": rows // 16, "td_error": torch.as_tensor(priorities)}
    buffer.extend(TensorDict(data, [len(rows)]))
    return buffer


def some_priorities(count=ROWS):
    return np.random.default_rng(0).gamma(0.8, size=count).astype(np.float32)


def check_draws(buffer, probabilities, draws=60):
    """Chi-square of the rows that are drawn: within five standard deviations of what chance gives."""
    drawn = torch.cat([buffer.sample()["row"] for _ in range(draws)]).numpy()
    assert abs(plugin_hosts.chi_square(np.bincount(drawn, minlength=len(probabilities)), probabilities)) < 5


def check_weights(buffer, stored):
    sample = buffer.sample()
    assert torch.equal(sample["row"], sample["index"])
    assert sample["priority_weight"].numpy() == pytest.approx(
        stored[stored > 0].min() / stored[sample["row"].numpy()], rel=1e-4
    )


def making(**options):
    """A call that makes a sampler by options, some of which are wrong."""
    return lambda buffer: plugin.FanoutSampler(**{"max_capacity": 4, "alpha": 0.5, "beta": 0.5} | options)


def updating(index, priority=1.0, **options):
    """A call that updates rows, some of which are wrong."""
    return lambda buffer: buffer.sampler.update_priority(torch.tensor(index), torch.tensor(priority), **options)


def around(sampler):
    return TensorDictReplayBuffer(storage=ListStorage(1000), sampler=sampler, batch_size=2)


def overfilling(kind):
    """A call that fills a buffer that is larger than its sampler, where torchrl writes past its memory."""
    data = TensorDict({"row": torch.arange(20)}, [20])
    return lambda buffer: around(kind(5, alpha=1.0, beta=1.0)).extend(data)


GRID = LazyTensorStorage(12, ndim=2)
GRID.set(range(3), TensorDict({"row": torch.zeros(3, 4)}, [3, 4]))


@pytest.mark.filterwarnings("ignore:Changing alpha away from 0")
class TestBuffer(Conformance):
    """The adapter: our sampler, and the host's on our trees; torchrl's buffers do not know which updates are late."""

    kinds = ("ours", "installed", "float64")  # the last also with a generator, and a tensor for beta
    host = "torchrl"
    epsilon, knows_late = 1e-8, False
    twins, turns, tolerance = tuple(TWINS), range(200), (1e-6, 0.0)
    longest, end = 14, 0.1
    mistakes = (
        (making(beta=float("nan")), ValueError, "beta must be finite and at least 0, not nan"),
        (making(dtype=torch.float16), ValueError, "dtype must be one of float32, float64, not 'float16'"),
        (making(device="cuda:0"), ValueError, "in host memory: device must be 'cpu', not 'cuda:0'"),
        (updating([3, 64], [9.0, 9.0]), IndexError, r"64 at position 1 is outside \[0, 64\): give .* max_capacity"),
        (updating([0.0]), TypeError, "index must hold integers, not float32"),
        (updating([3, 4], [-1.0, 2.0]), ValueError, r"TD error -1.0 is outside \[0, inf\): give absolute TD errors"),
        (updating([3, 4], [1.0, 2.0, 3.0]), RuntimeError, r"as the index has rows, 2, not of shape \[3\]"),
        (updating([[0, 3]]), RuntimeError, r"an index of shape \[1, 2\] needs the storage .* pass storage="),
        (updating([[0, 4]], storage=GRID), IndexError, r"index \[0, 4\] is outside .* shape is \[3, 4\]"),
        (updating([[0, 1, 2]], storage=GRID), RuntimeError, r"shape \[1, 3\] does not fit .* of shape \[3, 4\]"),
        (overfilling(plugin.FanoutSampler), IndexError, r"index 8 at position \d is outside \[0, 8\)"),
        (overfilling(samplers.PrioritizedSampler), IndexError, r"index 8 at position \d is outside \[0, 8\)"),
        (lambda _: around(plugin.FanoutSampler(9, alpha=1.0, beta=1.0)).sample(2), RuntimeError, "empty storage"),
    )

    @pytest.fixture(autouse=True)
    def _installed(self, installed):
        """Trees of the host's samplers are ours."""

    def make(self, kind="ours", **options):
        sampler, beta = samplers.PrioritizedSampler if kind == "installed" else plugin.FanoutSampler, self.beta
        if kind == "float64":
            options, beta = {"dtype": torch.float64} | options, torch.tensor(self.beta)
        buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(self.room), sampler=sampler(self.room, alpha=self.alpha, beta=beta, **options)
        )
        if kind == "float64":
            buffer.set_rng(torch.Generator())
        return buffer

    def seed(self, buffer, number):
        super().seed(buffer, number)
        if buffer._rng is not None:
            buffer._rng.manual_seed(number)

    def give(self, buffer, chunks):
        for steps in chunks.values():
            facts = [[getattr(step, name) for step in steps] for name in ("number", "episode", "time")]
            parts = dict(zip(("row", "episode", "time"), map(torch.tensor, facts), strict=True))
            buffer.extend(TensorDict(parts, [len(steps)]))

    def rows(self, buffer):
        return {row: leaf for leaf, row in enumerate(buffer[:]["row"].tolist())} if len(buffer) else {}

    def draw(self, buffer, batch):
        sampled = buffer.sample(batch)
        return Drawn(sampled["row"].tolist(), sampled["priority_weight"].numpy(), sampled["index"])

    def update(self, buffer, drawn, errors):
        buffer.update_priority(drawn.batch, errors)

    def empty(self, buffer):
        buffer.empty()

    def tree(self, buffer):
        return buffer.sampler._sum_tree._tree

    def state(self, buffer):
        return self.leaves(buffer).tolist(), self.rows(buffer), float(buffer.sampler.default_priority)

    def kept(self, buffer, folder):
        sampler, state = buffer.sampler, buffer.sampler.state_dict()
        if isinstance(sampler, samplers.PrioritizedSliceSampler):
            data = pickle.dumps(state)
            return [lambda: sampler.load_state_dict(pickle.loads(data)) or buffer]
        sampler.dumps(folder / "state")
        data, twin, rest = pickle.dumps(sampler), copy.deepcopy(sampler), copy.deepcopy(buffer.state_dict())

        def read(take):
            made = self.make("float64" if sampler.dtype == torch.float64 else "ours")
            made.load_state_dict(copy.deepcopy(rest))
            other = plugin.FanoutSampler(self.room, alpha=0.1, beta=0.1, dtype=sampler.dtype)
            made._sampler = take(other) or other
            made.set_rng(made._rng)
            return made

        ways = (
            lambda _: pickle.loads(data),
            lambda _: twin,
            *[lambda other: other.load_state_dict(state)] * 2,  # a state is no sampler's own
            lambda other: other.loads(folder / "state"),
        )
        return [lambda way=way: read(way) for way in ways]

    def pair(self, twin):
        first, self.then, within, self.is_marked = TWINS[twin]
        options = {"alpha": first, "beta": 0.5, "max_priority_within_buffer": within}
        kinds = plugin.FanoutSampler, samplers.PrioritizedSampler
        return tuple(ReplayBuffer(storage=LazyTensorStorage(11), sampler=kind(11, **options)) for kind in kinds)

    def turn(self, buffer, number):
        """Add or update. Priorities are squares: leaves are whole, and no rounding decides which is the largest."""
        sampler, rng = buffer.sampler, np.random.default_rng(number)
        added, rows = int(rng.integers(1, 4)), rng.integers(-1, max(len(buffer), 1), rng.integers(1, 5))
        values = rng.integers(1, 90 if number % 20 == 1 else 40, rows.size).astype(np.float32) ** 2
        if number == 100 and self.then != sampler.alpha:
            sampler.alpha = self.then
        if number % 2:
            buffer.update_priority(torch.from_numpy(rows), torch.from_numpy(values))
        else:
            index = buffer.extend(torch.arange(added))
            if self.is_marked:  # as buffers of tensordicts do
                sampler.mark_update(index)
        leaves, largest = np.asarray(sampler._sum_tree[np.arange(11)]), sampler._max_priority[1]
        seen = [float(sampler.default_priority), -1 if largest is None or not number else int(largest), leaves]
        if leaves.any():
            index, info = sampler.sample(buffer._storage, 8)
            seen += [index.numpy(), info["priority_weight"].numpy()]
        return seen

    def world(self, rng):
        rows, self.piece, self.is_strict = int(rng.integers(20, 60)), int(rng.integers(2, 6)), bool(rng.integers(2))
        options = {"slice_len": self.piece, "traj_key": "episode", "truncated_key": None}
        options["strict_length"] = self.is_strict
        sampler = samplers.PrioritizedSliceSampler(rows, alpha=0.6, beta=1.0, **options)
        return TensorDictReplayBuffer(storage=LazyTensorStorage(rows), sampler=sampler, batch_size=8 * self.piece)

    def look(self, buffer, rng):
        """Draw slices, which stay within an episode."""
        rows, leaves = self.rows(buffer), self.leaves(buffer).tolist()
        if max(np.unique(buffer[:]["episode"].numpy(), return_counts=True)[1]) <= 2 * self.piece:
            return Drawn([], np.zeros(0), torch.zeros(0, dtype=int)), []
        sample, info = buffer.sample(return_info=True)
        assert self.leaves(buffer).tolist() == leaves
        index = torch.as_tensor(np.asarray(info["index"]).reshape(-1))
        drawn = Drawn(sample["row"].tolist(), np.ones(len(index)), index)
        assert index.tolist() == [rows[row] for row in drawn.rows]
        facts = [{"n": 1, "episode": each["episode"].item(), "time": each["time"].item()} for each in sample]
        if self.is_strict:
            slices = sample["time"].numpy().reshape(-1, self.piece), sample["episode"].numpy().reshape(-1, self.piece)
            assert (np.diff(slices[0]) == 1).all() and (np.diff(slices[1]) == 0).all()
        return drawn, facts

    def check(self, buffer, priorities):
        """What new rows get in torchrl is compared with its own."""

    def mean_return(self, names):
        assert isinstance(names["replay"].sampler, plugin.FanoutSampler)
        return names["mean"]


def test_rows_beyond_the_storage_are_not_drawn_nor_the_minimum():
    priorities = some_priorities(30)
    buffer = filled(plugin.FanoutSampler(ROWS, alpha=1.0, beta=1.0), priorities)
    buffer.sampler.update_priority(torch.arange(30, ROWS), torch.full((ROWS - 30,), 1e-3))
    check_draws(buffer, priorities)
    check_weights(buffer, priorities)


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # torchrl's own, of NumPy
def test_an_index_of_several_dimensions_reaches_its_rows(make_sampler):
    np.random.seed(1)  # noqa: NPY002
    storage, sampler = LazyTensorStorage(12, ndim=2), make_sampler(12, alpha=1.0, beta=1.0)
    buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler, priority_key="td_error", batch_size=BATCH)
    priorities = some_priorities(12).reshape(3, 4)
    rows = torch.arange(12).reshape(3, 4)
    buffer.extend(TensorDict({"row": rows, "td_error": torch.from_numpy(priorities)}, [3, 4]))
    check_draws(buffer, priorities.ravel())
    buffer.update_priority(torch.tensor([[2, 1], [3, 0]]), torch.tensor([50.0, 60.0]))
    assert buffer.sampler._sum_tree[np.array([7, 9])] == pytest.approx([50, 60])


# State


def test_a_folder_is_written_as_the_host_does_and_read_back(tmp_path, make_sampler):
    values = some_priorities(5)
    sampler = make_sampler(7, alpha=0.7, beta=0.5)
    sampler.update_priority(torch.arange(5), torch.from_numpy(values))
    sampler.dumps(tmp_path / "state")
    leaves = np.fromfile(tmp_path / "state" / "sumtree.memmap")
    assert leaves == pytest.approx([*(values**0.7), 0, 0], rel=1e-5, abs=1e-5)
    largest = float(np.finfo(np.float32).max)
    assert np.fromfile(tmp_path / "state" / "mintree.memmap").tolist() == [*leaves[:5], largest, largest]
    metadata = json.loads((tmp_path / "state" / "sampler_metadata.json").read_text())
    assert metadata["_max_priority"] == [pytest.approx(values.max()), values.argmax()]
    for kind in (plugin.FanoutSampler, make_sampler):
        other = kind(7, alpha=0.1, beta=0.1)
        other.loads(tmp_path / "state")
        assert other._sum_tree[np.arange(7)].tolist() == leaves.tolist()
        assert (other.alpha, float(other.beta), other.default_priority) == (0.7, 0.5, pytest.approx(values.max()))


def test_a_state_for_more_rows_than_there_are_is_refused(tmp_path):
    large, small = (plugin.FanoutSampler(rows, alpha=1.0, beta=1.0) for rows in (100, 10))
    large.update_priority(99, 1.0)
    with pytest.raises(IndexError, match=r"row 99, which is outside \[0, 16\): give the sampler the max_capacity"):
        small.load_state_dict(large.state_dict())
    large.dumps(tmp_path)
    with pytest.raises(RuntimeError, match="100 rows, and this sampler has 10: give it that max_capacity"):
        small.loads(tmp_path)
    os.truncate(tmp_path / "sumtree.memmap", 99 * 8)
    with pytest.raises(RuntimeError, match="cut short, to 99 priorities"):
        plugin.FanoutSampler(100, alpha=1.0, beta=1.0).loads(tmp_path)
    assert small._tree.total() == 0.0


# The host's own buffers, with ours inside


def test_install_puts_ours_into_the_host_and_uninstall_takes_it():
    before = prioritized_tensordict.PrioritizedSampler, samplers.prioritized.SumSegmentTreeFp32
    plugin.install(implementation="numpy", fanout=4)
    plugin.install(implementation="numpy", fanout=4)
    sampler = TensorDictPrioritizedReplayBuffer(alpha=0.7, beta=0.9, storage=LazyTensorStorage(9)).sampler
    plain = PrioritizedReplayBuffer(alpha=0.7, beta=0.9, storage=LazyTensorStorage(9)).sampler
    theirs = samplers.PrioritizedSampler(9, alpha=0.7, beta=0.9)
    plugin.uninstall()
    assert type(sampler) is type(plain) is plugin.FanoutSampler
    for tree in (sampler._tree, plain._tree, theirs._sum_tree._tree, theirs._min_tree._tree):
        assert (type(tree).__name__, tree.fanout, tree.capacity) == ("NumpyTree", 4, 16)
    assert (prioritized_tensordict.PrioritizedSampler, samplers.prioritized.SumSegmentTreeFp32) == before


def test_threads_that_prefetch_add_and_update_leave_a_whole_tree(make_sampler):
    buffer = filled(make_sampler(ROWS, alpha=0.7, beta=0.5), some_priorities(), prefetch=2)

    def update(step):
        sample = buffer.sample()
        assert torch.equal(sample["row"], sample["index"])
        sample["td_error"] = torch.rand(BATCH, generator=torch.Generator().manual_seed(step))
        buffer.update_tensordict_priority(sample)

    def add(step):
        rows = (torch.arange(6) + 6 * step) % ROWS
        data = {"row": rows, "episode": rows // 16, "td_error": torch.full((6,), 1.0 + step)}
        buffer.extend(TensorDict(data, [6]))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda work: [work(step) for step in range(60)], (update, update, add)))
    tree = buffer.sampler._sum_tree._tree
    assert tree.check() == 0.0
    assert tree.total() == pytest.approx(float(tree.get(np.arange(ROWS)).sum(dtype=float)))


# Trees in the place of torchrl's


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ask", [np.asarray, torch.as_tensor], ids=["array", "tensor"])
def test_adapters_answer_as_plain_arrays_do(dtype, ask):
    rng, size = np.random.default_rng(9), 37
    sums, least = plugin.SumSegmentTree(size, dtype), plugin.MinSegmentTree(size, dtype)
    nothing, naive = least.identity_element, np.zeros(size)
    for _ in range(60):
        rows = rng.permutation(size)[: rng.integers(1, 9)]
        naive[rows] = rng.integers(1, 20, rows.size)
        for tree in (sums, least):
            tree[ask(rows)] = ask(naive[rows])
        left, right = np.sort(rng.integers(0, size, (2, 4)), axis=0)
        parts = [naive[low : high + 1] for low, high in zip(left, right, strict=True)]
        below = np.minimum(rng.integers(0, 30, 5), naive.sum())
        for answer, wanted in (
            (sums.query(ask(left), ask(right + 1)), [part.sum() for part in parts]),
            (least.query(ask(left), ask(right + 1)), [part.min(where=part > 0, initial=nothing) for part in parts]),
            (sums.at(ask(rows)), naive[rows]),
            (least[ask(rows)], naive[rows]),
            (sums.scan_lower_bound(ask(below)), np.searchsorted(naive.cumsum(), below, side="left")),
        ):
            assert answer.tolist() == list(wanted)
            assert type(answer) is type(ask(rows))
    assert (sums.query(0, size), least.query(-3, 10**6)) == (naive.sum(), naive[naive > 0].min())
    assert sums.scan_lower_bound(naive.sum() + 1) == len(sums) == sums.size == size
    assert (sums.query(5, 5), sums.identity_element, least.query(5, 5)) == (0.0, 0.0, nothing)


def test_answers_have_the_shape_of_the_question():
    tree = plugin.SumSegmentTree(8)
    tree[np.arange(8).reshape(2, 4)] = np.arange(8.0).reshape(2, 4)
    assert tree[torch.tensor([[1, 2, 3]])].tolist() == [[1, 2, 3]]
    assert tree[np.array(3)].shape == ()
    assert [type(answer) for answer in (tree[3], tree.query(0, 8), tree.scan_lower_bound(0.5))] == [float, float, int]
    assert tree.scan_lower_bound(torch.tensor([[0.5], [28.0]])).tolist() == [[1], [7]]
    tree[[0, 1]] = torch.tensor(4.0)
    assert tree[[0, 1, 2]].tolist() == [4, 4, 2]
    least = plugin.MinSegmentTree(5)
    least[np.arange(5)] = np.array([3.0, 1.0, 4.0, 1.5, 5.0])
    least[1] = least.identity_element  # forgotten
    assert (least.query(0, 5), least[1]) == (1.5, least.identity_element)


def test_adapters_refuse_leaves_that_they_do_not_have():
    indices = (-1, 8, np.array([0, 100]), torch.tensor([8]))
    for tree, index in itertools.product((plugin.SumSegmentTree(5), plugin.MinSegmentTree(5)), indices):
        for ask in (lambda: tree.__setitem__(index, 1.0), lambda: tree[index]):  # noqa: B023  # called at once
            with pytest.raises(IndexError, match=r"is outside \[0, 8\)"):
                ask()
