"""RLlib's buffer on our trees: beside RLlib's own, its draws and weights, its states, its errors, and DQN with it."""

import contextlib
import importlib
import math
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose

from tests import plugin_hosts
from tests.nursery import run_python
from tests.plugin_conformance import Conformance, Drawn

plugin = plugin_hosts.plugin("rllib")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

import ray  # noqa: E402
from ray.rllib.algorithms.sac import SACConfig  # noqa: E402
from ray.rllib.env.single_agent_episode import SingleAgentEpisode  # noqa: E402
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer  # noqa: E402
from ray.rllib.utils import replay_buffers  # noqa: E402
from ray.rllib.utils.from_config import from_config  # noqa: E402
from ray.rllib.utils.replay_buffers import ReplayBuffer  # noqa: E402
from ray.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer  # noqa: E402
from ray.rllib.utils.replay_buffers.utils import update_priorities_in_episode_replay_buffer  # noqa: E402

Buffer = plugin.FanoutPrioritizedEpisodeReplayBuffer


def episode(rng, steps, *, after=None, done=True, cut=False):
    """An episode of random data, or the next chunk ``after`` another; an action tells its step from all others."""
    observations = list(rng.random((steps + 1, 3), np.float32))
    if after is not None:
        observations[0] = after.observations.data[-1]
    return SingleAgentEpisode(
        after.id_ if after else None,
        observations=observations,
        actions=list(rng.integers(0, 1 << 40, steps)),
        rewards=rng.random(steps).tolist(),
        infos=[{"step": j} if j % 2 else {} for j in range(steps + 1)],
        extra_model_outputs={"action_logp": rng.random(steps).tolist()},
        terminated=done and not cut,
        truncated=cut,
        t_started=after.t if after else 0,
        len_lookback_buffer=0,
    )


def fragments(rng, environments, rounds):
    """What runners of several environments hand over in each round: chunks of running episodes, in any order."""
    running = [None] * environments
    for _ in range(rounds):
        chunks = []
        for j in rng.permutation(environments):
            done = rng.random() < 0.3
            chunks.append(episode(rng, int(rng.integers(1, 30)), after=running[j], done=done))
            running[j] = None if done else chunks[-1]
        yield chunks


def facts(value):
    """An episode or column as plain data, without an episode's random id."""
    if isinstance(value, SingleAgentEpisode):
        return {name: facts(getattr(value, name)) for name in SingleAgentEpisode.__slots__ if name != "id_"}
    if isinstance(value, InfiniteLookbackBuffer):
        return facts(vars(value))
    return {key: facts(part) for key, part in value.items()} if isinstance(value, dict) else value


def assert_same(ours, theirs):
    """Equal types, keys, lengths and values, real numbers up to rounding."""
    assert type(ours) is type(theirs) or {type(ours), type(theirs)} <= {float, np.float64, int, np.int64}
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key, part in ours.items():
            assert_same(part, theirs[key])
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    elif isinstance(ours, np.ndarray):
        assert ours.dtype == theirs.dtype
        assert_allclose(ours, theirs, rtol=1e-12)
    elif isinstance(ours, (float, np.floating)):
        assert ours == pytest.approx(theirs, rel=1e-12, nan_ok=True)
    else:
        assert ours == theirs


def both(capacity, seed=5, **options):
    """Our buffer and RLlib's, with the same random numbers ahead."""
    ours, theirs = Buffer(capacity, **options), PrioritizedEpisodeReplayBuffer(capacity, **options)
    ours.rng, theirs.rng = default_rng(seed), default_rng(seed)
    return ours, theirs


@contextlib.contextmanager
def without_tails(theirs, n_step):
    """RLlib's buffer while the rows that fewer than n steps follow have no priority: what ours makes of such rows."""
    first, kept = theirs.get_num_episodes_evicted(), []
    for place, step, leaf in theirs._indices:
        if step + (n_step or 1) > len(theirs.episodes[place - first]):
            kept.append((leaf, theirs._sum_segment[leaf], theirs._min_segment[leaf]))
            theirs._sum_segment[leaf], theirs._min_segment[leaf] = 0.0, math.inf
    yield
    for leaf, priority, least in kept:
        theirs._sum_segment[leaf], theirs._min_segment[leaf] = priority, least


def walk_together(ours, theirs, rounds, batch=32):
    """Do the same to both and compare all that can be seen. Priorities are eighths, so that their sums are exact."""
    rng = default_rng(0)
    for count, chunks in enumerate(fragments(rng, 3, rounds)):
        for buffer in (ours, theirs):
            buffer.add(chunks)
        assert ours._indices == theirs._indices
        assert ours._rows.free() == list(theirs._free_nodes)
        for name in ("_num_timesteps", "_num_timesteps_added", "_num_episodes_evicted", "episode_id_to_index"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert len(ours) == len(theirs)
        options = {
            "n_step": (None, 3, 6)[count % 3],
            "beta": 0.4,
            "gamma": 0.9,
            "to_numpy": count % 2 == 0,
            "include_infos": count % 4 < 2,
            "include_extra_model_outputs": count % 5 == 0,
        }
        with without_tails(theirs, options["n_step"]):
            samples = [buffer.sample(batch, **options) for buffer in (ours, theirs)]
        for one, other in zip(*samples, strict=True):
            assert_same(facts(one), facts(other))
        errors = rng.integers(1, 100, batch) / 8
        for buffer in (ours, theirs):
            update_priorities_in_episode_replay_buffer(
                replay_buffer=buffer, td_errors={"default_policy": {"td_error": errors}}
            )
    assert ours.tree.check() == 0.0
    logged = [
        {name: float(stats.peek()) for name, stats in buffer.get_metrics().items() if hasattr(stats, "peek")}
        for buffer in (ours, theirs)
    ]
    assert logged[0]
    assert_same(*logged)


def _rows(buffer):
    """The episode, step and leaf of each row."""
    first = buffer.get_num_episodes_evicted()
    return [(buffer.episodes[place - first], step, leaf) for place, step, leaf in buffer._indices]


def _after(buffer, t=10, seen=0, done=False):
    """A chunk for the one stored episode, at another step or from another observation."""
    chunk = episode(default_rng(1), 3, after=buffer.episodes[0], done=done)
    chunk.observations.data[0] = chunk.observations.data[0] + seen
    chunk.t_started, chunk.t = t, t + 3
    return chunk


def _steps(steps):
    return episode(default_rng(0), steps)


class TestBuffer(Conformance):
    """The adapter: rows are the steps of whole episodes, which are evicted together."""

    heading = "RLlib"
    mistakes = (
        (lambda b: Buffer(0), ValueError, "capacity must be at least 1, not 0"),
        (lambda b: Buffer(10.5), TypeError, "capacity must be an integer, not 10.5"),
        (lambda b: Buffer(10, alpha=-1), ValueError, "alpha must be at least 0 and finite, not -1"),
        (lambda b: Buffer(10, implementation="nunba"), RuntimeError, "Did you mean 'numba'"),
        (lambda b: b.add(["obs"]), TypeError, "stores RLlib's SingleAgentEpisode, not str"),
        (lambda b: b.add(_steps(3), weight=-1.0), ValueError, "weight must be at least 0 and finite, not -1.0"),
        (lambda b: b.add([_steps(15), _steps(15)]), ValueError, "2 episodes of 30 steps exceed the capacity of 20"),
        (lambda b: b.add(_steps(70)), ValueError, "an episode of 70 steps exceeds the tree's 64: raise the capacity"),
        (
            lambda b: b.add(_after(b, t=3)),
            ValueError,
            "stored up to step 10, and a chunk from step 3 on does not follow",
        ),
        (lambda b: b.add(_after(b, seen=1)), ValueError, "stored up to step 10, and a chunk from step 10 on does not"),
        (lambda b: b.add([_after(b, done=True), _after(b)]), ValueError, "up to step 13 and is over, and a chunk from"),
        (lambda b: b.sample(2, n_step=(3, 3)), ValueError, "the end of n_step must be at least 4, not 3"),
        (lambda b: b.sample(2, batch_size_B=2), ValueError, "give num_items .2. or batch_size_B .2., not both"),
        (lambda b: b.sample(2, beta=-0.1), ValueError, "beta must be finite and at least 0, not -0.1"),
        (lambda b: b.sample(2, n_step=-1), ValueError, "n_step must be at least 1, not -1"),
        (lambda b: b.sample(2, n_step=11), ValueError, "n_step is 11, and the longest of the stored .* has 10 steps"),
        (lambda b: Buffer(9).sample(2), RuntimeError, "nothing to sample"),
        (lambda b: b.update_priorities([1.0]), ValueError, "3 rows of the last sample wait .*, and 1 came"),
        (lambda b: b.update_priorities([1.0, math.nan, 1.0]), ValueError, "nan"),
        (lambda b: b.set_state(Buffer(33).get_state()), ValueError, "the state has 128 leaves and this buffer 64"),
    )

    def make(self, kind="plain", **options):
        buffer = Buffer(**{"capacity": self.room, "alpha": self.alpha} | options)
        buffer.rng = default_rng(1)
        return buffer

    def add(self, buffer, count):
        rng = default_rng(np.random.randint(1 << 30))  # noqa: NPY002  # as the test has seeded it
        for steps in [5] * (count // 5) + [count % 5] * (count % 5 > 0):
            buffer.add(episode(rng, steps))

    def rows(self, buffer):
        return {stored.get_actions(step): leaf for stored, step, leaf in _rows(buffer)}

    def draw(self, buffer, batch):
        sampled = buffer.sample(batch, beta=self.beta)
        weights = np.array([drawn.get_extra_model_outputs("weights", 0) for drawn in sampled])
        return Drawn([drawn.get_actions(0) for drawn in sampled], weights, sampled)

    def update(self, buffer, drawn, errors):
        buffer.update_priorities(errors)

    def copies(self, buffer, folder):
        other = self.make(fanout=4)
        other.add(_steps(30))  # which goes
        other.set_state(pickle.loads(pickle.dumps(buffer.get_state())))
        return [*super().copies(buffer, folder), other]

    def state(self, buffer):
        return *super().state(buffer), list(buffer._last_sampled_indices)

    def prepared(self):
        buffer = self.make(capacity=20)
        buffer.add(episode(default_rng(0), 10, done=False))
        buffer.sample(3)
        return buffer

    def mean_return(self, names):
        assert isinstance(names["algorithm"].local_replay_buffer, Buffer)
        return names["mean"]

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore")
    def test_the_program_of_the_readme_trains_cartpole_to_475(self, in_ray):
        super().test_the_program_of_the_readme_trains_cartpole_to_475()


def test_beside_rllibs_own_it_draws_weighs_stores_and_evicts_the_same():
    ours, theirs = both(300)
    walk_together(ours, theirs, 60)
    assert ours.get_num_episodes_evicted() > 20


@pytest.mark.parametrize("implementation", ["numpy", "python"])
def test_every_implementation_and_fanout_does_as_rllibs_own(implementation):
    ours = Buffer(100, implementation=implementation, fanout=3)
    ours.rng = default_rng(5)
    walk_together(ours, both(100)[1], 12)


def test_an_n_from_a_range_is_rllibs_where_no_row_is_too_near_to_an_end():
    ours, theirs = both(300)
    stored = episode(default_rng(0), 200)
    for buffer in (ours, theirs):
        buffer.add(stored, weight=1.0)
        buffer.add(episode(default_rng(1), 3), weight=0.0)
    drawn, wanted = (buffer.sample(20, n_step=(1, 4)) for buffer in (ours, theirs))
    assert ours._last_sampled_indices == theirs._last_sampled_indices
    assert [each.get_extra_model_outputs("n_step", 0) for each in drawn] == [
        each.get_extra_model_outputs("n_step", 0) for each in wanted
    ]


def test_the_comparison_notices_a_tree_that_is_off_by_one_leaf():
    with plugin_hosts.broken():
        ours, theirs = both(300)
    with pytest.raises((AssertionError, IndexError, RuntimeWarning)):
        walk_together(ours, theirs, 3)


class Model:
    """What RLlib's buffer of episodes is to hold: every step of every episode as it was given, and its priority."""

    def __init__(self, capacity, alpha):
        self.capacity, self.alpha, self.largest = capacity, alpha, 1.0
        self.episodes, self.priorities = {}, {}  # by id; by (id, step)

    def add(self, chunk, weight):
        held = self.episodes.get(chunk.id_, ([chunk.observations.data[0]], [], [], None))
        size = sum(len(actions) for _, actions, _, _ in self.episodes.values()) + len(chunk)
        for name in list(self.episodes):
            if size <= self.capacity or len(self.episodes.keys() | {chunk.id_}) == 1:
                break
            size -= len(self.episodes.pop(name)[1]) + len(chunk) * (name == chunk.id_)
            self.priorities = {row: one for row, one in self.priorities.items() if row[0] != name}
            if name == chunk.id_:
                return
        seen, actions, rewards, _ = held
        for step in range(len(actions), len(actions) + len(chunk)):
            self.priorities[chunk.id_, step] = (self.largest if weight is None else weight) ** self.alpha
        ends = chunk.is_terminated, chunk.is_truncated
        seen, actions = [*seen, *chunk.observations.data[1:]], [*actions, *chunk.actions.data]
        self.episodes[chunk.id_] = seen, actions, [*rewards, *chunk.rewards.data], ends

    def rows(self, n_step):
        """(id, step): priority of the rows that n steps follow."""
        return {at: p for at, p in self.priorities.items() if at[1] + n_step <= len(self.episodes[at[0]][1])}

    def check(self, drawn, n_step, gamma, beta):
        """Compare a row that was drawn with what was given; its id and step."""
        action, n = drawn.get_actions(0), drawn.get_extra_model_outputs("n_step", 0)
        least, most = n_step if isinstance(n_step, tuple) else (n_step, n_step + 1)
        rows = self.rows(least)
        (at,) = [(name, step) for name, step in rows if self.episodes[name][1][step] == action]
        step, (seen, actions, rewards, ends) = at[1], self.episodes[at[0]]
        assert least <= n < most and step + n <= len(actions)
        assert np.array_equal(drawn.get_observations(0), seen[step])
        assert np.array_equal(drawn.get_observations(1), seen[step + n])
        expected = sum(gamma**j * rewards[step + j] for j in range(n))
        assert drawn.get_rewards(0) == pytest.approx(expected, rel=1e-9)
        is_last = step + n == len(actions)
        assert (drawn.is_terminated, drawn.is_truncated) == (is_last and ends[0], is_last and ends[1])
        weight = (rows[at] / min(p for p in rows.values() if p > 0)) ** -beta
        assert drawn.get_extra_model_outputs("weights", 0) == pytest.approx(weight, rel=1e-9)
        return at


def wander(seed):
    """Do at random what users do, beside a model; how many of the rows drawn had an n above 1."""
    rng = default_rng(seed)
    capacity = int(rng.integers(20, 60))
    alpha = float(rng.choice([0.6, 1.0]))
    gamma, beta = 0.9, 0.5
    buffer = Buffer(capacity, alpha=alpha)
    buffer.rng = default_rng(seed)
    model = Model(capacity, alpha)
    running, waiting, reached = [None] * 3, None, 0
    for _ in range(60):
        what = rng.random()
        if what < 0.5:
            lane, ends = int(rng.integers(3)), rng.random()
            chunk = episode(rng, int(rng.integers(1, 9)), after=running[lane], done=ends < 0.3, cut=0.3 < ends < 0.4)
            weight = float(rng.choice([0.0, 0.3])) if rng.random() < 0.1 else None
            # Left alone from here on: an episode that ended, and now and then one that somebody reset from outside.
            running[lane] = None if chunk.is_done or rng.random() < 0.1 else chunk
            buffer.add(chunk, weight)
            model.add(chunk, weight)
            running = [each if each and each.id_ in buffer.episode_id_to_index else None for each in running]
        elif what < 0.8:
            n_step = [1, 2, 3, 5, (1, 4), (2, 6)][int(rng.integers(6))]
            least = n_step if isinstance(n_step, int) else n_step[0]
            if not any(model.rows(least).values()):
                with pytest.raises((RuntimeError, ValueError)):
                    buffer.sample(4, n_step=n_step, gamma=gamma, beta=beta)
                continue
            drawn = buffer.sample(8, n_step=n_step, gamma=gamma, beta=beta)
            waiting = [model.check(each, n_step, gamma, beta) for each in drawn]
            reached += sum(each.get_extra_model_outputs("n_step", 0) > 1 for each in drawn)
        elif what < 0.95 and waiting:
            errors = rng.uniform(1e-6, 2.0, 8)
            buffer.update_priorities(errors)
            there = [at in model.priorities for at in waiting]
            model.priorities |= {
                at: error**alpha for at, error, is_there in zip(waiting, errors, there, strict=True) if is_there
            }
            model.largest = max([model.largest, *errors[there]])
            waiting = None
        elif what > 0.95:
            capacity = model.capacity = capacity + int(rng.integers(0, 40)) * (capacity < 150)
            other = Buffer(capacity, alpha=alpha, fanout=int(rng.choice([4, 16])))
            other.set_state(pickle.loads(pickle.dumps(buffer.get_state())))
            buffer = pickle.loads(pickle.dumps(other))
        first, leaves = buffer.get_num_episodes_evicted(), buffer._sum_segment
        rows = {(buffer.episodes[place - first].id_, step): leaf for place, step, leaf in buffer._indices}
        assert rows.keys() == model.priorities.keys()
        assert_allclose([leaves[rows[at]] for at in rows], [model.priorities[at] for at in rows], rtol=1e-12)
        assert leaves.sum() == pytest.approx(sum(model.priorities.values()))
        assert buffer.tree.total() == pytest.approx(sum(model.rows(buffer._shortest).values()))
    assert buffer.tree.check() == 0.0
    return reached


@pytest.mark.parametrize("walks", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_returns_weights_and_priorities_are_those_of_what_was_given(walks):
    """Chunks that grow, are cut, left alone, evicted; n that changes; states, pickles; updates, late ones too."""
    assert sum(wander(seed) for seed in range(walks)) > 10 * walks


@pytest.mark.parametrize("n_step", [3, (1, 6), (2, 4)])
def test_rows_are_drawn_by_their_priorities_and_each_n_that_fits_alike(n_step):
    rng = default_rng(3)
    buffer = Buffer(100)
    buffer.rng = default_rng(3)
    for steps in (2, 7, 12):
        buffer.add(episode(rng, steps))
    buffer.sample(3000)
    buffer.update_priorities(rng.uniform(0.5, 2.0, 3000))
    least, end = n_step if isinstance(n_step, tuple) else (n_step, n_step + 1)
    shares = {}
    for stored, step, leaf in _rows(buffer):
        fits = range(least, min(end, len(stored) - step + 1))
        shares |= {(stored.get_actions(step), n): buffer._sum_segment[leaf] / len(fits) for n in fits}
    counts = dict.fromkeys(shares, 0)
    for drawn in buffer.sample(5_000, n_step=n_step):
        counts[drawn.get_actions(0), drawn.get_extra_model_outputs("n_step", 0)] += 1
    assert abs(plugin_hosts.chi_square(list(counts.values()), list(shares.values()))) < 4


@pytest.mark.parametrize("alpha", [0.6, 1.0])
@pytest.mark.parametrize("n_step", [3, (1, 6)])
def test_a_sample_draws_as_often_whatever_was_learned_before(alpha, n_step):
    """Rows too near to their end are never updated: they must not be drawn in vain ever more often."""
    rng = default_rng(0)
    buffer = Buffer(400, alpha=alpha)
    buffer.rng = default_rng(0)
    for _ in range(40):
        buffer.add(episode(rng, 10))
    asked = []
    tree_sample = buffer.tree.sample
    buffer.tree.sample = lambda uniforms: asked.append(len(uniforms)) or tree_sample(uniforms)
    for _ in range(300):
        buffer.sample(32, n_step=n_step)
        buffer.update_priorities(np.full(32, 1e-6))
    assert asked == [32] * 300


@pytest.mark.parametrize("weights", [(0.0, None), (None, 0.0)])
def test_where_only_rows_that_cannot_be_returned_have_a_priority_it_says_so(weights):
    buffer = Buffer(100)
    for steps, weight in zip((10, 2), weights, strict=True):
        buffer.add(_steps(steps), weight)
    if weights[0] is None:
        assert len(buffer.sample(4, n_step=3)) == 4
        return
    leaves = buffer.tree.state_dict()["leaves"].tolist()
    with pytest.raises(RuntimeError, match=r"nothing to sample: no row that n_step = 3 steps .* above 0"):
        buffer.sample(4, n_step=3)
    assert buffer.tree.state_dict()["leaves"].tolist() == leaves
    assert len(buffer.sample(4)) == 4


def test_sums_are_float64_although_errors_come_as_float32():
    # RLlib's sums become float32 with such errors, and a prefix value then has 24 bits for all rows together.
    buffer = Buffer(1 << 12)
    buffer.rng = default_rng(0)
    buffer.add(episode(default_rng(0), 1 << 12))
    buffer.sample(1 << 12)
    buffer.update_priorities(np.full(1 << 12, 0.1, np.float32))
    assert isinstance(buffer._max_priority, float)
    assert buffer.tree.dtype == np.float64
    leaves = buffer.tree.get(np.arange(1 << 12))
    assert buffer.tree.total() == pytest.approx(math.fsum(leaves), rel=1e-15)


def test_an_eviction_leaves_no_priority_behind_and_lets_its_episode_go():
    rng = default_rng(4)
    buffer = Buffer(20)
    for steps in (12, 8, 9):
        buffer.add(episode(rng, steps))
    assert (len(buffer), buffer.get_num_episodes(), buffer.get_num_episodes_evicted()) == (17, 2, 1)
    assert buffer.tree.total() == 17.0
    assert np.count_nonzero(buffer.tree.get(np.arange(len(buffer.tree)))) == 17


def test_a_chunk_of_an_episode_that_is_evicted_by_its_coming_is_dropped_as_by_rllib():
    ours, theirs = both(20)
    rng = default_rng(4)
    running, other = episode(rng, 10, done=False), episode(rng, 9)
    more = episode(rng, 6, after=running)
    for buffer in (ours, theirs):
        for chunk in (running, other, [more, episode(default_rng(9), 3)]):
            buffer.add(chunk)
    assert ours._indices == theirs._indices
    assert ours._num_timesteps_added == theirs._num_timesteps_added == 22


def test_an_only_episode_may_exceed_the_capacity():
    ours, theirs = both(16)
    rng = default_rng(4)
    running = episode(rng, 15, done=False)
    for chunk in (running, episode(rng, 10, after=running)):
        for buffer in (ours, theirs):
            buffer.add(chunk)
    assert len(ours) == len(theirs) == 25
    assert ours._indices == theirs._indices


def test_what_is_stored_and_what_a_state_holds_is_no_one_elses():
    rng = default_rng(6)
    buffer = Buffer(100)
    given = episode(rng, 10, done=False)
    first = given.observations.data[0].copy()
    buffer.add(given)
    state = buffer.get_state()
    given.observations.data[0][:] = -1
    given.infos.data[1]["step"] = "changed"
    buffer.add(episode(rng, 5, after=given))
    assert np.array_equal(buffer.episodes[0].get_observations(0), first)
    assert buffer.episodes[0].get_infos(1) == {"step": 1}
    assert len(state["episodes"][0]["rewards"]["data"]) == 10


def test_what_rllibs_class_keeps_can_be_read_here_and_not_written():
    ours, theirs = both(300)
    walk_together(ours, theirs, 20)
    leaves = range(len(ours.tree))
    assert [ours._sum_segment[leaf] for leaf in leaves] == [theirs._sum_segment[leaf] for leaf in leaves]
    assert [ours._min_segment[leaf] for leaf in leaves] == [theirs._min_segment[leaf] for leaf in leaves]
    assert (ours._sum_segment.sum(), ours._min_segment.min()) == (theirs._sum_segment.sum(), theirs._min_segment.min())
    assert ours._tree_idx_to_sample_idx == theirs._tree_idx_to_sample_idx
    assert list(ours._free_nodes) == list(theirs._free_nodes)
    assert ours._max_idx == max(theirs._tree_idx_to_sample_idx)
    for name in ("_sum_segment", "_min_segment", "_free_nodes"):
        with pytest.raises((ValueError, TypeError)):
            getattr(ours, name)[0] = 1


def test_states_go_to_rllibs_own_buffer_and_come_from_it():
    ours, theirs = both(300)
    walk_together(ours, theirs, 20)
    ours_again, theirs_again = both(300, seed=7)
    ours_again.set_state(theirs.get_state())
    theirs_again.set_state({key: value for key, value in ours.get_state().items() if key != "rng"})
    ours_again.rng = default_rng(7)
    assert theirs_again._sum_segment.sum() == theirs._sum_segment.sum()
    assert theirs_again._min_segment.value == theirs._min_segment.value
    walk_together(ours_again, theirs_again, 20)


def test_another_version_of_ray_is_told_in_one_sentence(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "2.9.3")
    monkeypatch.delitem(sys.modules, "impls.plugins.rllib")
    with pytest.raises(
        ImportError, match=r"works with ray\[rllib\] from 2.60 on and below 2.61, not .* 2.9.3; install"
    ):
        importlib.import_module("impls.plugins.rllib")


@pytest.fixture
def in_ray():
    """Ray on one core, all of whose processes end with the test."""
    ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")
    yield
    ray.shutdown()
    tasks = Path("/proc/self/task")
    if tasks.exists():
        assert not [child for task in tasks.iterdir() for child in (task / "children").read_text().split()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("environments", [1, 3])
def test_dqn_learns_with_it_from_the_configuration_alone(in_ray, environments):
    names = {}
    exec(plugin_hosts.program("RLlib").partition("\nalgorithm")[0], names)
    config = (
        names["config"]
        .env_runners(num_envs_per_env_runner=environments)
        .training(num_steps_sampled_before_learning_starts=100)
        .reporting(min_sample_timesteps_per_iteration=150, min_time_s_per_iteration=0)
    )
    algorithm = config.build_algo()
    try:
        result = algorithm.train()
        buffer = algorithm.local_replay_buffer
        assert type(buffer) is Buffer
        assert len(buffer) == result["env_runners"]["num_env_steps_sampled_lifetime"] >= 150
        updated = np.unique(buffer.tree.get(np.arange(len(buffer))))
        assert updated.size > 50  # rows that were learned from have errors of their own
        assert result["learners"]["default_policy"]["qf_loss"] > 0
    finally:
        algorithm.stop()


@pytest.fixture
def installed():
    plugin.install()
    yield
    plugin.uninstall()


@pytest.mark.filterwarnings("ignore")
def test_sac_learns_with_it_under_rllibs_name(in_ray, installed):
    replay = {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 1000, "alpha": 0.6, "beta": 0.4, "fanout": 4}
    config = SACConfig().environment("Pendulum-v1").debugging(seed=0)
    config.training(replay_buffer_config=replay, num_steps_sampled_before_learning_starts=100)
    config.reporting(min_sample_timesteps_per_iteration=100, min_time_s_per_iteration=0)
    algorithm = config.build_algo()
    try:
        results = [algorithm.train() for _ in range(3)]
        buffer = algorithm.local_replay_buffer
        assert type(buffer) is Buffer and buffer.tree.fanout == 4
        updated = np.unique(buffer.tree.get(np.arange(len(buffer))))
        assert updated.size > 50  # rows that were learned from have errors of their own
        assert results[-1]["learners"]["default_policy"]["qf_loss"] > 0
    finally:
        algorithm.stop()


def test_uninstall_gives_rllib_its_own_buffer_back(installed):
    config = {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 10}
    assert type(from_config(ReplayBuffer, config)) is replay_buffers.PrioritizedEpisodeReplayBuffer is Buffer
    plugin.uninstall()
    assert type(from_config(ReplayBuffer, config)) is PrioritizedEpisodeReplayBuffer
    assert replay_buffers.PrioritizedEpisodeReplayBuffer is PrioritizedEpisodeReplayBuffer


HOSTS_TESTS = """
import numpy
from ray.rllib.utils.replay_buffers import prioritized_episode_buffer as host
from tests.system.test_plugin_rllib import episode

def test_the_buffer_is_ours():
    assert host.PrioritizedEpisodeReplayBuffer.__name__.startswith("Fanout")

def test_draws():
    buffer = host.PrioritizedEpisodeReplayBuffer(10)
    buffer.add(episode(numpy.random.default_rng(0), 5))
    buffer._last_sampled_indices = [0, 1, 2, 3, 4]
    buffer.update_priorities(numpy.array([1e-9, 1e-9, 1.0, 1e-9, 1e-9]))
    buffer.sample(4)
    assert buffer._last_sampled_indices == [2] * 4
"""


@pytest.mark.parametrize("options", [(), ("--broken",)])
def test_rllibs_own_tests_can_run_on_ours(tmp_path, options):
    """Tests of ours stand in for RLlib's: they take its class by name, and look at draws."""
    (tmp_path / "test_host.py").write_text(HOSTS_TESTS)
    run_python("-m", "tests.host_suites", "--host", "rllib", "--tests", str(tmp_path), *options)
