"""The plug-in for torchrl: what its sampler draws, weighs, keeps and refuses, and trees in the place of torchrl's."""

import copy
import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import context

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

from impls.plugins.torchrl import _array_of  # noqa: E402

ROWS, BATCH = 64, 500


@pytest.fixture
def installed():
    plugin.install()
    yield
    plugin.uninstall()


@pytest.fixture(params=["ours", "installed"])
def make_sampler(request):
    """Makes our sampler, or the host's on the trees that install() puts in its place."""
    if request.param == "ours":
        yield plugin.FanoutSampler
    else:
        plugin.install()
        yield samplers.PrioritizedSampler
        plugin.uninstall()


def filled(sampler, priorities, *, rows=ROWS, **options):
    """A buffer with a row for each priority, which holds its own number."""
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(rows), sampler=sampler, priority_key="td_error", batch_size=BATCH, **options
    )
    count = len(priorities)
    buffer.extend(TensorDict({"row": torch.arange(count), "td_error": torch.as_tensor(priorities)}, [count]))
    return buffer


def some_priorities(count=ROWS, seed=0):
    return np.random.default_rng(seed).gamma(0.8, size=count).astype(np.float32)


def check_draws(buffer, probabilities, draws=60):
    """Chi-square of the rows that are drawn: within five standard deviations of what chance gives."""
    drawn = torch.cat([buffer.sample()["row"] for _ in range(draws)]).numpy()
    assert abs(plugin_hosts.chi_square(np.bincount(drawn, minlength=len(probabilities)), probabilities)) < 5


def check_rows(buffer):
    sample = buffer.sample()
    assert torch.equal(sample["row"], sample["index"])


def check_weights(buffer, stored, beta):
    sample = buffer.sample()
    expected = (stored[sample["index"].numpy()] / stored[stored > 0].min()) ** -beta
    assert sample["priority_weight"].numpy() == pytest.approx(expected, rel=1e-4)


WRONG_OPTIONS = [
    ({"alpha": -1.0}, ValueError, "alpha must be at least 0 and finite, not -1.0"),
    ({"beta": float("nan")}, ValueError, "beta must be finite and at least 0, not nan"),
    ({"eps": -1.0}, ValueError, "epsilon must be at least 0 and finite, not -1.0"),
    ({"max_capacity": 0}, ValueError, "max_capacity must be at least 1, not 0"),
    ({"max_capacity": 5.5}, TypeError, "max_capacity must be an integer, not 5.5"),
    ({"dtype": torch.float16}, ValueError, "dtype must be one of float32, float64, not 'float16'"),
    ({"device": "cuda:0"}, ValueError, "keeps its tree in host memory: device must be 'cpu', not 'cuda:0'"),
    ({"implementation": "nunba"}, RuntimeError, "Did you mean 'numba'?"),
]


def wrong(options):
    """A call that makes a sampler by options, some of which are wrong."""
    return lambda buffer: plugin.FanoutSampler(**{"max_capacity": 4, "alpha": 0.5, "beta": 0.5} | options)


class TestBuffer(Conformance):
    """The adapter: our sampler, and the host's on our trees; torchrl's buffers do not know which updates are late."""

    kinds = ("ours", "installed")
    heading = "torchrl"
    epsilon = 1e-8
    mistakes = tuple((wrong(options), error, words) for options, error, words in WRONG_OPTIONS)
    test_an_update_that_comes_late_reaches_no_other_row = None

    def make(self, kind="ours", **options):
        plugin.install()
        make = plugin.FanoutSampler if kind == "ours" else samplers.PrioritizedSampler
        sampler = make(self.room, alpha=self.alpha, beta=self.beta, **options)
        plugin.uninstall()
        return TensorDictReplayBuffer(storage=LazyTensorStorage(self.room), sampler=sampler)

    def add(self, buffer, count):
        first = int(buffer[:]["row"].max()) + 1 if len(buffer) else 0
        buffer.extend(TensorDict({"row": torch.arange(first, first + count)}, [count]))

    def rows(self, buffer):
        return {row: leaf for leaf, row in enumerate(buffer[:]["row"].tolist())}

    def draw(self, buffer, batch):
        sampled = buffer.sample(batch)
        return Drawn(sampled["row"].tolist(), sampled["priority_weight"].numpy(), sampled["index"])

    def update(self, buffer, drawn, errors):
        buffer.update_priority(drawn.batch, errors)

    def tree(self, buffer):
        return buffer.sampler._sum_tree._tree

    def state(self, buffer):
        return self.leaves(buffer).tolist(), self.rows(buffer), float(buffer.sampler.default_priority)

    def copies(self, buffer, folder):
        kept, copies = buffer.sampler, []
        kept.dumps(folder / "state")
        read, loaded = (plugin.FanoutSampler(self.room, alpha=0.1, beta=0.1) for _ in range(2))
        read.loads(folder / "state")
        loaded.load_state_dict(kept.state_dict())
        for sampler in (pickle.loads(pickle.dumps(kept)), copy.deepcopy(kept), read, loaded):
            copies.append(self.make())
            copies[-1].load_state_dict(copy.deepcopy(buffer.state_dict()))
            copies[-1]._sampler = sampler
        return copies

    def mean_return(self, names):
        assert isinstance(names["replay"].sampler, plugin.FanoutSampler)
        return names["mean"]


def test_a_buffer_with_a_generator_draws_from_that():
    priorities = some_priorities()
    buffer = filled(
        plugin.FanoutSampler(ROWS, alpha=0.7, beta=0.5), priorities, generator=torch.Generator().manual_seed(5)
    )
    check_draws(buffer, priorities**0.7)


def test_a_state_shares_nothing_with_its_sampler(make_sampler):
    buffer = filled(make_sampler(ROWS, alpha=0.7, beta=0.5), some_priorities())
    state = buffer.sampler.state_dict()
    before = state["_sum_tree"][0]
    other = make_sampler(ROWS, alpha=0.1, beta=0.1)
    other.load_state_dict(state)
    for sampler in (buffer.sampler, other):
        sampler.update_priority(0, 1000.0)
    assert state["_sum_tree"][0] == before


def test_equal_seeds_draw_the_rows_that_the_host_draws():
    drawn = []
    plugin.install()
    for kind in (plugin.FanoutSampler, samplers.PrioritizedSampler):
        np.random.seed(7)  # noqa: NPY002
        buffer = filled(kind(ROWS, alpha=0.7, beta=0.5), some_priorities())
        drawn.append(buffer.sample()["row"])
    plugin.uninstall()
    assert torch.equal(*drawn)


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0, torch.tensor(0.4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_follow_the_formula_with_the_minimum_over_the_buffer(make_sampler, beta, dtype):
    priorities = some_priorities().astype(str(dtype).removeprefix("torch."))
    buffer = filled(make_sampler(ROWS, alpha=0.7, beta=beta, dtype=dtype), priorities)
    check_weights(buffer, (priorities + 1e-8) ** 0.7, float(beta))
    least = int(priorities.argmin())
    buffer.update_priority(torch.tensor([least]), torch.tensor([3.0], dtype=dtype))  # so that the minimum is another's
    priorities[least] = 3.0
    check_weights(buffer, (priorities + 1e-8) ** 0.7, float(beta))


def test_new_rows_get_the_largest_priority_so_far(make_sampler):
    sampler = make_sampler(8, alpha=0.5, beta=0.5)
    sampler.mark_update(torch.tensor([0, 1]))
    sampler.update_priority(torch.tensor([2, 3]), torch.tensor([9.0, 4.0]))
    sampler.update_priority(2, 0.25)
    sampler.mark_update(4)
    assert sampler._sum_tree[np.arange(6)] == pytest.approx([1, 1, 0.5, 2, 3, 0], rel=1e-6)


@pytest.mark.filterwarnings("ignore:Changing alpha away from 0")
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("alphas", [(0.5, 0.5), (1.0, 0.5), (0.5, 1.0), (0.0, 0.0), (0.0, 0.5), (0.5, 0.0)])
@pytest.mark.parametrize("marked", [False, True])
def test_the_largest_priority_is_the_hosts_after_each_add_and_update(installed, within, alphas, marked):
    # Priorities are squares, so that leaves are whole numbers and no rounding decides which row has the largest.
    options = {"alpha": alphas[0], "beta": 0.5, "max_priority_within_buffer": within}
    ours, theirs = (
        ReplayBuffer(storage=LazyTensorStorage(11), sampler=kind(11, **options))
        for kind in (plugin.FanoutSampler, samplers.PrioritizedSampler)
    )
    rng = np.random.default_rng(4)
    for step in range(200):
        added, rows = int(rng.integers(1, 4)), rng.integers(-1, max(len(ours), 1), rng.integers(1, 5))
        values = rng.integers(1, 90 if step % 20 == 1 else 40, rows.size).astype(np.float32) ** 2
        for buffer in (ours, theirs):
            if step == 100:
                buffer.sampler.alpha = alphas[1]
            if step % 2 == 0:
                index = buffer.extend(torch.arange(added))
                if marked:  # as buffers of tensordicts do
                    buffer.sampler.mark_update(index)
            else:
                buffer.update_priority(torch.from_numpy(rows), torch.from_numpy(values))
        assert float(ours.sampler.default_priority) == pytest.approx(float(theirs.sampler.default_priority), rel=1e-6)
        if step:
            assert ours.sampler._max_priority[1] == theirs.sampler._max_priority[1]
        leaves = [np.asarray(buffer.sampler._sum_tree[np.arange(11)]) for buffer in (ours, theirs)]
        assert leaves[0] == pytest.approx(leaves[1], rel=1e-6)


def test_new_rows_get_the_largest_priority_left_after_the_largest_was_overwritten():
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(11),
        sampler=plugin.FanoutSampler(11, alpha=1.0, beta=1.0, max_priority_within_buffer=True),
    )
    for row in range(12):
        buffer.update_priority(buffer.add(torch.tensor(row)), 21.0 - row)
    assert buffer.sampler.default_priority == pytest.approx(20.0)


def test_another_alpha_renews_the_leaves(make_sampler):
    sampler = make_sampler(10, alpha=0.5, beta=0.5)
    values = some_priorities(6)
    sampler.update_priority(torch.arange(6), torch.from_numpy(values))
    sampler.alpha = 0.9
    assert sampler._sum_tree[np.arange(10)] == pytest.approx([*(values**0.9), 0, 0, 0, 0], rel=1e-4, abs=1e-6)
    assert sampler._min_tree.query(0, 6) == pytest.approx((values**0.9).min(), rel=1e-4)


def test_rows_that_the_storage_does_not_hold_are_neither_drawn_nor_the_minimum():
    priorities = some_priorities(30)
    buffer = filled(plugin.FanoutSampler(ROWS, alpha=1.0, beta=1.0), priorities)
    buffer.sampler.update_priority(torch.arange(30, ROWS), torch.full((ROWS - 30,), 1e-3))
    check_draws(buffer, priorities)
    check_weights(buffer, priorities, 1.0)


def test_elements_with_index_minus_one_are_left_out(make_sampler):
    sampler = make_sampler(4, alpha=1.0, beta=1.0, eps=0.0)
    sampler.update_priority(torch.tensor([-1, 2, -1]), torch.tensor([8.0, 3.0, 9.0]))
    sampler.update_priority(torch.tensor([-1]), torch.tensor([7.0]))
    assert sampler._sum_tree[np.arange(4)].tolist() == [0, 0, 3, 0]
    assert sampler.default_priority == 3.0


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # torchrl's own, of NumPy
def test_an_index_of_several_dimensions_reaches_the_rows_of_such_a_storage(make_sampler):
    np.random.seed(1)  # noqa: NPY002
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(12, ndim=2),
        sampler=make_sampler(12, alpha=1.0, beta=1.0),
        priority_key="td_error",
        batch_size=BATCH,
    )
    priorities = some_priorities(12).reshape(3, 4)
    rows = torch.arange(12).reshape(3, 4)
    buffer.extend(TensorDict({"row": rows, "td_error": torch.from_numpy(priorities)}, [3, 4]))
    check_draws(buffer, priorities.ravel())
    buffer.update_priority(torch.tensor([[2, 1], [3, 0]]), torch.tensor([50.0, 60.0]))
    assert buffer.sampler._sum_tree[np.array([7, 9])] == pytest.approx([50, 60])


# State


@pytest.mark.parametrize("beta", [0.5, torch.tensor(0.5)])
def test_a_folder_is_written_as_the_host_does_and_read_back(tmp_path, make_sampler, beta):
    values = some_priorities(5)
    sampler = make_sampler(7, alpha=0.7, beta=beta)
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


def test_an_empty_sampler_can_be_written_and_read(tmp_path):
    plugin.FanoutSampler(7, alpha=0.7, beta=0.5).dumps(tmp_path)
    other = plugin.FanoutSampler(7, alpha=0.1, beta=0.1)
    other.loads(tmp_path)
    assert (other.alpha, other.default_priority, other._tree.total()) == (0.7, 1.0, 0.0)


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


def test_a_sampler_does_not_go_to_a_spawned_process(make_sampler):
    sampler = make_sampler(4, alpha=0.7, beta=0.5)
    context.set_spawning_popen(object())
    try:
        with pytest.raises(RuntimeError, match="cannot be shared between processes"):
            pickle.dumps(sampler)
    finally:
        context.set_spawning_popen(None)


def test_an_emptied_buffer_forgets_its_priorities(make_sampler):
    buffer = filled(make_sampler(ROWS, alpha=0.7, beta=0.5), some_priorities())
    buffer.empty()
    assert (buffer.sampler._sum_tree.query(0, ROWS), float(buffer.sampler.default_priority)) == (0.0, 1.0)
    with pytest.raises(RuntimeError, match="empty storage"):
        buffer.sample()


# Refusals: one sentence, and nothing is written


@pytest.mark.parametrize(
    ("index", "priority", "error", "sentence"),
    [
        ([3, 8], [1.0, 1.0], IndexError, r"index 8 at position 1 is outside \[0, 8\): give the sampler a max_capacity"),
        ([-2], [1.0], IndexError, r"index -2 at position 0 is outside \[0, 8\)"),
        ([0.0], [1.0], TypeError, "index must hold integers, not float32"),
        ([True], [1.0], TypeError, "index must hold integers, not bool"),
        ([3], [1j], TypeError, "TD errors must be real numbers, not complex64"),
        ([3, 4], [1.0, float("nan")], ValueError, r"TD error nan is outside \[0, inf\): give absolute TD errors"),
        ([3, 4], [-1.0, 2.0], ValueError, r"TD error -1.0 is outside \[0, inf\): give absolute TD errors"),
        ([3], [float("inf")], ValueError, r"TD error inf is outside \[0, inf\)"),
        ([3], np.array([1e30]), ValueError, r"is outside \[0, 3.4"),
        ([3, 4], [1.0, 2.0, 3.0], RuntimeError, r"as many as the index has rows, 2, not of shape \[3\]"),
        ([[0, 3]], [1.0], RuntimeError, r"an index of shape \[1, 2\] needs the storage that it is for: pass storage="),
    ],
)
def test_what_cannot_be_a_priority_of_a_row_is_refused(index, priority, error, sentence):
    sampler = plugin.FanoutSampler(6, alpha=2.0, beta=0.5)
    sampler.update_priority(torch.arange(6), torch.full((6,), 0.5))
    before = sampler._tree.state_dict()["leaves"].tolist(), sampler._max_priority
    with pytest.raises(error, match=sentence) as caught:
        sampler.update_priority(torch.tensor(index), torch.tensor(priority))
    assert "\n" not in str(caught.value)
    assert (sampler._tree.state_dict()["leaves"].tolist(), sampler._max_priority) == before


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        ([[0, 4]], r"index \[0, 4\] is outside the storage, whose shape is \[3, 4\]"),
        ([[0, 1, 2]], r"shape \[1, 3\] does not fit a storage of shape \[3, 4\]"),
    ],
)
def test_coordinates_outside_the_storage_are_refused(index, sentence):
    storage = LazyTensorStorage(12, ndim=2)
    storage.set(range(3), TensorDict({"row": torch.zeros(3, 4)}, [3, 4]))
    sampler = plugin.FanoutSampler(12, alpha=1.0, beta=1.0)
    with pytest.raises((IndexError, RuntimeError), match=sentence):
        sampler.update_priority(torch.tensor(index), 1.0, storage=storage)


def test_a_buffer_larger_than_its_sampler_is_an_error_where_torchrl_writes_past_its_memory(make_sampler):
    buffer = TensorDictReplayBuffer(
        storage=ListStorage(1000), sampler=make_sampler(5, alpha=1.0, beta=1.0), batch_size=2
    )
    data = TensorDict({"row": torch.arange(20)}, [20])
    with pytest.raises(IndexError, match=r"index 8 at position \d is outside \[0, 8\)"):
        buffer.extend(data)


# The host's own buffers, with ours inside


def test_install_puts_ours_into_the_hosts_buffers_and_uninstall_takes_it_out():
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


@pytest.mark.parametrize("sync", [True, False])
def test_the_hosts_prioritized_buffer_learns_priorities_from_td_errors(installed, sync):
    np.random.seed(2)  # noqa: NPY002
    buffer = TensorDictPrioritizedReplayBuffer(
        alpha=1.0, beta=1.0, storage=LazyTensorStorage(ROWS), batch_size=BATCH, sync=sync
    )
    buffer.extend(TensorDict({"row": torch.arange(ROWS)}, [ROWS]))
    check_draws(buffer, np.ones(ROWS))
    stored = np.ones(ROWS)
    for _ in range(5):
        sample = buffer.sample()
        sample["td_error"] = sample["row"].double() / 8 + 0.5
        buffer.update_tensordict_priority(sample)
        stored[sample["row"].numpy()] = sample["td_error"].numpy()
    check_draws(buffer, stored)
    check_weights(buffer, stored, 1.0)
    check_rows(buffer)


def test_slices_begin_in_proportion_to_their_priorities_and_never_run_over_an_end(installed):
    np.random.seed(4)  # noqa: NPY002
    length, piece = 16, 4
    sampler = samplers.PrioritizedSliceSampler(
        ROWS, alpha=1.0, beta=1.0, slice_len=piece, traj_key="episode", truncated_key=None, strict_length=True
    )
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(ROWS), sampler=sampler, priority_key="td_error", batch_size=400
    )
    rows, priorities = torch.arange(ROWS), some_priorities()
    episode = rows // length
    buffer.extend(TensorDict({"row": rows, "episode": episode, "td_error": torch.from_numpy(priorities)}, [ROWS]))
    leaves = sampler._sum_tree[np.arange(ROWS)].copy()
    drawn = torch.cat([buffer.sample()["row"].reshape(-1, piece) for _ in range(150)])
    assert torch.equal(drawn - drawn[:, :1], torch.arange(piece).expand(len(drawn), piece))
    assert torch.equal(episode[drawn[:, 0]], episode[drawn[:, -1]])
    starts = drawn[:, 0].numpy()
    expected = np.where(np.arange(ROWS) % length <= length - piece, leaves, 0)
    assert abs(plugin_hosts.chi_square(np.bincount(starts, minlength=ROWS), expected)) < 5
    assert sampler._sum_tree[np.arange(ROWS)].tolist() == leaves.tolist()


def wander(seed):
    """Episodes of any length in chunks into a ring, updates, states: slices beside what was given."""
    rng = np.random.default_rng(seed)
    np.random.seed(seed)  # noqa: NPY002
    rows = int(rng.integers(20, 60))
    piece = int(rng.integers(2, 6))
    is_strict = bool(rng.integers(2))
    options = {"slice_len": piece, "traj_key": "episode", "truncated_key": None, "strict_length": is_strict}
    sampler = samplers.PrioritizedSliceSampler(rows, alpha=0.6, beta=1.0, **options)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(rows), sampler=sampler, batch_size=8 * piece)
    episode, step, given = 0, 0, {}
    for _ in range(25):
        facts = []
        for _ in range(int(rng.integers(piece, 15))):
            facts.append((episode, step))
            is_over = step >= piece and rng.random() < 0.2
            episode, step = (episode + 1, 0) if is_over else (episode, step + 1)
        chunk = TensorDict({"episode": torch.tensor(facts)[:, 0], "step": torch.tensor(facts)[:, 1]}, [len(facts)])
        given |= dict(zip(buffer.extend(chunk).tolist(), facts, strict=True))
        if not is_strict or max(np.unique([one for one, _ in given.values()], return_counts=True)[1]) > 2 * piece:
            before = sampler._sum_tree[np.arange(rows)].tolist()
            sample, info = buffer.sample(return_info=True)
            assert sampler._sum_tree[np.arange(rows)].tolist() == before
            index = np.asarray(info["index"]).reshape(-1)
            drawn = list(zip(sample["episode"].tolist(), sample["step"].tolist(), strict=True))
            assert drawn == [given[row] for row in index.tolist()]
            if is_strict:
                for first in range(0, len(drawn), piece):
                    one, at = drawn[first]
                    assert drawn[first : first + piece] == [(one, at + more) for more in range(piece)]
            buffer.update_priority(torch.as_tensor(index), torch.from_numpy(10 ** rng.uniform(-6, 0, index.size)))
        if rng.random() < 0.1:
            sampler.load_state_dict(pickle.loads(pickle.dumps(sampler.state_dict())))
    assert sampler._sum_tree._tree.check() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("walks", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_slices_stay_within_an_episode_whatever_is_added_updated_and_loaded(installed, walks):
    for seed in range(walks):
        wander(seed)


def test_neither_extension_nor_its_warning_is_needed(monkeypatch):
    for name in ("SumSegmentTreeFp32", "SumSegmentTreeFp64", "MinSegmentTreeFp32", "MinSegmentTreeFp64"):
        monkeypatch.setattr(samplers.prioritized, name, None)
    monkeypatch.setattr(samplers.prioritized.logger, "warning", pytest.fail)
    check_rows(filled(plugin.FanoutSampler(ROWS, alpha=0.7, beta=0.5), some_priorities()))
    plugin.install()
    samplers.PrioritizedSampler(ROWS, alpha=0.7, beta=0.5)
    plugin.uninstall()


def test_threads_that_prefetch_add_and_update_leave_a_whole_tree(make_sampler):
    buffer = filled(make_sampler(ROWS, alpha=0.7, beta=0.5), some_priorities(), prefetch=2)

    def update(step):
        sample = buffer.sample()
        assert torch.equal(sample["row"], sample["index"])
        sample["td_error"] = torch.rand(BATCH, generator=torch.Generator().manual_seed(step))
        buffer.update_tensordict_priority(sample)

    def add(step):
        rows = (torch.arange(6) + 6 * step) % ROWS
        buffer.extend(TensorDict({"row": rows, "td_error": torch.full((6,), 1.0 + step)}, [6]))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda work: [work(step) for step in range(60)], (update, update, add)))
    tree = buffer.sampler._sum_tree._tree
    assert tree.check() == 0.0
    assert tree.total() == pytest.approx(float(tree.get(np.arange(ROWS)).sum(dtype=float)))


# Trees in the place of torchrl's


KINDS = {
    "int": lambda values: int(values[0]),
    "array": np.asarray,
    "tensor": lambda values: torch.as_tensor(np.asarray(values)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_adapters_answer_as_plain_arrays_do(dtype, kind):
    rng, ask = np.random.default_rng(9), KINDS[kind]
    size = 37
    sums, least = plugin.SumSegmentTree(size, dtype), plugin.MinSegmentTree(size, dtype)
    naive = np.zeros(size)
    for _ in range(60):
        rows = rng.permutation(size)[: rng.integers(1, 9)]
        values = rng.integers(1, 20, rows.size).astype(float)
        if kind == "int":
            rows, values = rows[:1], values[:1]
        naive[rows] = values
        for tree in (sums, least):
            tree[ask(rows)] = float(values[0]) if kind == "int" else ask(values)
        lows = np.sort(rng.integers(0, size, (2, 4)), axis=0)
        left, right = lows[0], lows[1] + 1
        pairs = list(zip(left, right, strict=True))[: 1 if kind == "int" else None]
        want_sums = [naive[low:high].sum() for low, high in pairs]
        want_least = [
            min([value for value in naive[low:high] if value], default=least.identity_element) for low, high in pairs
        ]
        below = np.minimum(rng.integers(0, 30, 5), naive.sum())
        want_rows = np.searchsorted(naive.cumsum(), below, side="left")
        for answer, wanted in (
            (sums.query(ask(left), ask(right)), want_sums),
            (least.query(ask(left), ask(right)), want_least),
            (sums.at(ask(rows)), naive[rows]),
            (least[ask(rows)], naive[rows]),
            (sums.scan_lower_bound(ask(below)), want_rows),
        ):
            given = np.ravel(answer).tolist()
            assert given == np.ravel(wanted).tolist()[: len(given)]
            assert type(answer) in {"int": (int, float), "array": (np.ndarray,), "tensor": (torch.Tensor,)}[kind]
    assert (sums.query(0, size), least.query(-3, 10**6)) == (naive.sum(), naive[naive > 0].min())
    assert sums.scan_lower_bound(naive.sum() + 1) == len(sums) == sums.size == size
    assert (sums.query(5, 5), sums.identity_element, least.query(5, 5)) == (0.0, 0.0, least.identity_element)


def test_answers_have_the_shape_of_the_question():
    tree = plugin.SumSegmentTree(8)
    tree[np.arange(8).reshape(2, 4)] = np.arange(8.0).reshape(2, 4)
    assert tree[torch.tensor([[1, 2, 3]])].tolist() == [[1, 2, 3]]
    assert tree[np.array(3)].shape == ()
    assert tree.scan_lower_bound(torch.tensor([[0.5], [28.0]])).tolist() == [[1], [7]]
    tree[[0, 1]] = torch.tensor(4.0)
    assert tree[[0, 1, 2]].tolist() == [4, 4, 2]


@pytest.mark.parametrize("index", [-1, 8, np.array([0, 100]), torch.tensor([8])])
def test_adapters_refuse_leaves_that_they_do_not_have(index):
    for kind in (plugin.SumSegmentTree, plugin.MinSegmentTree):
        tree = kind(5)
        with pytest.raises(IndexError, match=r"is outside \[0, 8\)"):
            tree[index] = 1.0
        with pytest.raises(IndexError, match=r"is outside \[0, 8\)"):
            tree[index]


def test_a_leaf_that_is_forgotten_no_longer_is_the_minimum():
    tree = plugin.MinSegmentTree(5)
    tree[np.arange(5)] = np.array([3.0, 1.0, 4.0, 1.5, 5.0])
    tree[1] = tree.identity_element
    assert (tree.query(0, 5), tree[1]) == (1.5, tree.identity_element)


def test_sums_do_not_lose_what_float32_sums_do():
    tree = plugin.SumSegmentTree(1 << 12)
    tree[np.arange(1 << 12)] = 1e-4
    tree[0] = 1e6
    assert tree.query(0, 1 << 12) == pytest.approx(1e6 + 4095 * float(np.float32(1e-4)), rel=1e-12)


def test_tensors_of_the_cpu_are_read_where_they_are():
    values = torch.rand(5)
    assert np.shares_memory(_array_of(values), values.numpy())
    assert _array_of(values.requires_grad_()).tolist() == values.tolist()
    assert _array_of(torch.ones(2, dtype=torch.bfloat16)).tolist() == [1, 1]
