"""RLlib's buffer on our trees: beside RLlib's own, its draws and weights, its states, its errors, and DQN with it."""

import contextlib
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from tests import plugin_hosts
from tests.plugin_conformance import Conformance, Drawn, Story, episode

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


def chunk(steps):
    """Consecutive steps of an episode as RLlib hands them over; an action tells its step from all others."""
    numbers = [step.number for step in steps]
    seen = [*numbers, steps[-1].following]
    return SingleAgentEpisode(
        str(steps[0].episode),
        observations=[np.array([number, number / 2, -number], np.float32) for number in seen],
        actions=numbers,
        rewards=[step.reward for step in steps],
        infos=[{"step": number} if number % 2 else {} for number in seen],
        extra_model_outputs={"action_logp": [number / 3 for number in numbers]},
        terminated=steps[-1].terminated,
        truncated=steps[-1].truncated,
        t_started=steps[0].time,
        len_lookback_buffer=0,
    )


def whole(steps, first=500, **options):
    """An episode of so many steps."""
    return chunk(episode(first, steps, **options))


def more(seen=10, time=10, is_over=False):
    """A chunk for the episode of :meth:`TestBuffer.prepared`, at some step and from some observation."""
    return chunk([step._replace(episode=0) for step in episode(seen, 3, time=time, is_over=is_over)])


def facts(value):
    """An episode or column as plain data, without an episode's random id."""
    if isinstance(value, SingleAgentEpisode):
        return {name: facts(getattr(value, name)) for name in SingleAgentEpisode.__slots__ if name != "id_"}
    if isinstance(value, InfiniteLookbackBuffer):
        return facts(vars(value))
    return {key: facts(part) for key, part in value.items()} if isinstance(value, dict) else value


@contextlib.contextmanager
def without_tails(buffer, n_step):
    """RLlib's buffer while the rows that fewer than n steps follow have no priority: what ours makes of such rows."""
    first, kept = buffer.get_num_episodes_evicted(), []
    for place, step, leaf in buffer._indices if type(buffer) is not Buffer else ():
        if step + (n_step or 1) > len(buffer.episodes[place - first]):
            kept.append((leaf, buffer._sum_segment[leaf], buffer._min_segment[leaf]))
            buffer._sum_segment[leaf], buffer._min_segment[leaf] = 0.0, math.inf
    yield
    for leaf, priority, least in kept:
        buffer._sum_segment[leaf], buffer._min_segment[leaf] = priority, least


def both(capacity, seed=5, **options):
    """Our buffer and RLlib's, with the same random numbers ahead."""
    ours, theirs = (
        Buffer(capacity, **options),
        PrioritizedEpisodeReplayBuffer(capacity, alpha=options.get("alpha", 1.0)),
    )
    ours.rng, theirs.rng = default_rng(seed), default_rng(seed)
    return ours, theirs


def rows_of(buffer):
    """The episode, step and leaf of each row."""
    first = buffer.get_num_episodes_evicted()
    return [(buffer.episodes[place - first], step, leaf) for place, step, leaf in buffer._indices]


class TestBuffer(Conformance):
    """The adapter: rows are the steps of whole episodes, which are evicted together."""

    host = "rllib"
    twins = ("numba", "numpy", "python")
    longest, end, precision, tolerance = 9, 0.05, (1e-12, 1e-12), (1e-12, 0.0)
    test_an_emptied_buffer_forgets_everything = None  # RLlib empties none
    mistakes = (
        (lambda b: Buffer(0), ValueError, "capacity must be at least 1, not 0"),
        (lambda b: b.add(["obs"]), TypeError, "stores RLlib's SingleAgentEpisode, not str"),
        (lambda b: b.add(whole(3), weight=-1.0), ValueError, "weight must be at least 0 and finite, not -1.0"),
        (lambda b: b.add([whole(15), whole(15, 600)]), ValueError, "2 episodes of 30 steps exceed the capacity of 20"),
        (lambda b: b.add(whole(70)), ValueError, "an episode of 70 steps exceeds the tree's 64"),
        (lambda b: b.add(more(time=3)), ValueError, "up to step 10, and a chunk from step 3 on does not follow"),
        (lambda b: b.add(more(seen=11)), ValueError, "up to step 10, and a chunk from step 10 on does not follow"),
        (lambda b: b.add([more(is_over=True), more(13, 13)]), ValueError, "up to step 13 and is over, and a chunk"),
        (lambda b: b.sample(2, n_step=(3, 3)), ValueError, "the end of n_step must be at least 4, not 3"),
        (lambda b: b.sample(2, batch_size_B=2), ValueError, "give num_items .2. or batch_size_B .2., not both"),
        (lambda b: b.sample(2, n_step=11), ValueError, "n_step is 11, and the longest of the stored .* has 10 steps"),
        (lambda b: Buffer(9).sample(2), RuntimeError, "nothing to sample"),
        (lambda b: b.update_priorities([1.0]), ValueError, "3 rows of the last sample wait .*, and 1 came"),
        (lambda b: b.set_state(Buffer(33).get_state()), ValueError, "the state has 128 leaves and this buffer 64"),
    )

    def make(self, kind="plain", **options):
        buffer = Buffer(**{"capacity": self.room, "alpha": self.alpha} | options)
        buffer.rng = default_rng(1)
        return buffer

    def give(self, buffer, chunks):
        for steps in chunks.values():
            buffer.add(chunk(steps))

    def rows(self, buffer):
        return {stored.get_actions(step): leaf for stored, step, leaf in rows_of(buffer)}

    def leaves(self, buffer):
        return buffer._sum_segment

    def draw(self, buffer, batch, **options):
        sampled = buffer.sample(batch, beta=self.beta, **options)
        weights = np.array([drawn.get_extra_model_outputs("weights", 0) for drawn in sampled])
        return Drawn([drawn.get_actions(0) for drawn in sampled], weights, sampled)

    def update(self, buffer, drawn, errors):
        buffer.update_priorities(errors)

    def kept(self, buffer, folder):
        state = buffer.get_state()

        def read():
            other = self.make(capacity=4 * buffer.capacity, fanout=4)  # of more leaves
            other.add(whole(30))  # which goes
            other.set_state(pickle.loads(pickle.dumps(state)))
            other.capacity = buffer.capacity
            return other

        return [*super().kept(buffer, folder), read]

    def state(self, buffer):
        return *super().state(buffer), list(buffer._last_sampled_indices)

    def prepared(self):
        buffer = self.make(capacity=20)
        buffer.add(whole(10, 0, is_over=False))
        buffer.sample(3)
        return buffer

    def pair(self, twin):
        story = Story(0, 3, end=self.end, is_cut=False)
        self.rounds = [[*map(chunk, story.chunks(29, is_in_step=True).values())] for _ in self.turns]
        return both(300, implementation=twin, fanout=16 if twin == "numba" else 3)

    def turn(self, buffer, number):
        """Do what a learner does. Priorities are eighths, so that their sums are exact."""
        buffer.add(self.rounds[number])
        options = {"n_step": (None, 3, 6)[number % 3], "beta": 0.4, "gamma": 0.9, "to_numpy": number % 2 == 0}
        options |= {"include_infos": number % 4 < 2, "include_extra_model_outputs": number % 5 == 0}
        with without_tails(buffer, options["n_step"]):
            sampled = buffer.sample(32, **options)
        names = ("_num_timesteps", "_num_timesteps_added", "_num_episodes_evicted", "episode_id_to_index")
        seen = [np.array(buffer._indices), np.array(buffer._free_nodes), len(buffer), buffer.get_num_episodes()]
        seen += [getattr(buffer, name) for name in names] + [*map(facts, sampled)]
        errors = default_rng(number).integers(1, 100, 32) / 8
        update_priorities_in_episode_replay_buffer(
            replay_buffer=buffer, td_errors={"default_policy": {"td_error": errors}}
        )
        logged = {key: float(each.peek()) for key, each in buffer.get_metrics().items() if hasattr(each, "peek")}
        assert logged
        return [*seen, logged]

    def world(self, rng):
        self.alpha = float(rng.choice([0.6, 1.0]))
        return self.make(capacity=int(rng.integers(20, 60)))

    def lanes(self, buffer):
        return 1 if buffer.capacity == self.room else 3

    def look(self, buffer, rng):
        longest = max(map(len, buffer.episodes))
        ranges = [each for each in ((1, 2), (2, 3), (3, 4), (5, 6), (1, 4), (2, 6)) if each[0] <= longest]
        least, end = ranges[int(rng.integers(len(ranges)))]
        drawn = self.draw(buffer, 8, n_step=least if end == least + 1 else (least, end), gamma=self.gamma)
        priorities, leaves = self.leaves(buffer), self.rows(buffer)
        smallest = min(priorities[leaf] for stored, step, leaf in rows_of(buffer) if step + least <= len(stored))
        shares = np.array([priorities[leaves[row]] for row in drawn.rows]) / smallest
        assert drawn.weights == pytest.approx(shares**-self.beta, rel=1e-9)
        seen = []
        for each in drawn.batch:
            n = each.get_extra_model_outputs("n_step", 0)
            assert least <= n < end
            found = {"n": n, "steps": n, "total": each.get_rewards(0), "terminated": each.is_terminated}
            found |= {"number": each.get_observations(0)[0], "following": each.get_observations(1)[0]}
            seen.append(found | {"truncated": each.is_truncated})
        return drawn, seen

    def check(self, buffer, priorities):
        super().check(buffer, priorities)
        ready = [stored.get_actions(j) for stored, j, _ in rows_of(buffer) if j + buffer._shortest <= len(stored)]
        assert buffer.tree.total() == pytest.approx(sum(priorities[row] for row in ready))

    def mean_return(self, names):
        assert isinstance(names["algorithm"].local_replay_buffer, Buffer)
        return names["mean"]

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore")
    def test_the_example_trains_cartpole_to_475(self, in_ray):
        super().test_the_example_trains_cartpole_to_475()


@pytest.mark.parametrize("n_step", [3, (1, 6), (2, 4)])
def test_rows_are_drawn_by_priority_and_each_n_that_fits_alike(n_step):
    buffer = TestBuffer().make(capacity=100)
    for first, steps in ((0, 2), (10, 7), (20, 12)):
        buffer.add(whole(steps, first))
    buffer.sample(3000)
    buffer.update_priorities(default_rng(3).uniform(0.5, 2.0, 3000))
    least, end = n_step if isinstance(n_step, tuple) else (n_step, n_step + 1)
    shares = {}
    for stored, step, leaf in rows_of(buffer):
        fits = range(least, min(end, len(stored) - step + 1))
        shares |= {(stored.get_actions(step), n): buffer._sum_segment[leaf] / len(fits) for n in fits}
    counts = dict.fromkeys(shares, 0)
    for drawn in buffer.sample(5_000, n_step=n_step):
        counts[drawn.get_actions(0), drawn.get_extra_model_outputs("n_step", 0)] += 1
    assert abs(plugin_hosts.chi_square(list(counts.values()), list(shares.values()))) < 4


def test_sums_are_float64_although_errors_come_as_float32():
    # RLlib's sums become float32 with such errors, and a prefix value then has 24 bits for all rows together.
    buffer = Buffer(1 << 12)
    buffer.add(whole(1 << 12))
    buffer.sample(1 << 12)
    buffer.update_priorities(np.full(1 << 12, 0.1, np.float32))
    assert buffer.tree.dtype == np.float64
    assert buffer.tree.total() == pytest.approx(math.fsum(buffer.tree.get(np.arange(1 << 12))), rel=1e-15)


def test_evictions_in_extreme_cases_are_rllibs():
    coming = [[whole(10, 0, is_over=False)], [whole(9)], [more(), whole(3, 600)]]  # whose own episode is evicted by it
    only = [[whole(10, 0, is_over=False)], [whole(10, 10, time=10)]]  # and exceeds the capacity
    for capacity, given, kept in ((20, coming, 12), (16, only, 20)):
        ours, theirs = both(capacity)
        for chunks in given:
            for buffer in (ours, theirs):
                buffer.add(chunks)
        assert len(ours) == len(theirs) == kept
        assert ours._indices == theirs._indices
        assert ours._num_timesteps_added == theirs._num_timesteps_added


def test_what_is_stored_is_no_one_elses():
    buffer, given = Buffer(100), whole(10)
    first = given.observations.data[0].copy()
    buffer.add(given)
    given.observations.data[0][:] = -1
    given.infos.data[1]["step"] = "changed"
    assert np.array_equal(buffer.episodes[0].get_observations(0), first)
    assert buffer.episodes[0].get_infos(1) == {"step": 501}


def test_states_go_to_rllibs_own_buffer_and_come_from_it():
    suite = TestBuffer()
    ours, theirs = suite.pair("numba")
    suite.turns = range(20)
    suite.side_by_side(ours, theirs)
    ours_again, theirs_again = both(300, seed=7)
    ours_again.set_state(theirs.get_state())
    theirs_again.set_state({key: value for key, value in ours.get_state().items() if key != "rng"})
    ours_again.rng = default_rng(7)
    assert theirs_again._sum_segment.sum() == theirs._sum_segment.sum()
    assert theirs_again._min_segment.value == theirs._min_segment.value
    suite.turns = range(20, 40)
    suite.side_by_side(ours_again, theirs_again)


@pytest.fixture
def in_ray():
    """Ray on one core, all of whose processes end with the test."""
    ray.init("local", num_cpus=1, include_dashboard=False, logging_level="ERROR")
    yield
    ray.shutdown()
    tasks = Path("/proc/self/task")
    if tasks.exists():
        assert not [child for task in tasks.iterdir() for child in (task / "children").read_text().split()]


@pytest.fixture
def installed():
    plugin.install()
    yield
    plugin.uninstall()


def dqn(environments):
    """DQN as the example has it, by the class's own name."""
    names = {}
    exec(plugin_hosts.program("rllib").partition("\nalgorithm")[0], names)
    return names["config"].env_runners(num_envs_per_env_runner=environments)


def sac():
    """SAC, which takes no name but RLlib's."""
    replay = {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 1000, "alpha": 0.6, "beta": 0.4, "fanout": 4}
    return SACConfig().environment("Pendulum-v1").debugging(seed=0).training(replay_buffer_config=replay)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("configured", "fanout"),
    [(lambda: dqn(1), 16), (lambda: dqn(3), 16), (sac, 4)],
    ids=["DQN", "DQN of three environments", "SAC"],
)
def test_rllib_learns_with_it_from_the_configuration_alone(in_ray, installed, configured, fanout):
    config = configured().training(num_steps_sampled_before_learning_starts=100)
    config.reporting(min_sample_timesteps_per_iteration=150, min_time_s_per_iteration=0)
    algorithm = config.build_algo()
    try:
        results = [algorithm.train() for _ in range(3)]
        buffer = algorithm.local_replay_buffer
        assert type(buffer) is Buffer and buffer.tree.fanout == fanout
        assert len(buffer) == results[-1]["env_runners"]["num_env_steps_sampled_lifetime"] >= 450
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
