"""Copies: serial loops whose weights meet by a lock, without one or at a server; A3C, whose copies are on-policy."""

import contextlib
import functools
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

pytest.importorskip("numba")
torch = pytest.importorskip("torch", reason="learners need the extra `train`")

from impls.replay import make as make_replay  # noqa: E402
from impls.training import TrainingError, load  # noqa: E402
from impls.training.arrangement import COPIES, Arrangement  # noqa: E402
from impls.training.copies.loop import Cached, CopiesLoop, Copy  # noqa: E402
from impls.training.copies.syncs import ROOM, Shard, SharedWeights, clipped, sync_class  # noqa: E402
from impls.training.learners import make as make_learner  # noqa: E402
from impls.training.loop import SerialLoop  # noqa: E402
from impls.training.parallel.board import Board  # noqa: E402
from impls.training.rollouts import Rollouts  # noqa: E402
from impls.training.weights import layout_of, spans  # noqa: E402
from tests import parallel_runs  # noqa: E402
from tests.learning import batch_of, tiny  # noqa: E402
from tests.parallel_runs import small  # noqa: E402

torch.set_num_threads(1)
each_learner = pytest.mark.parametrize("name", ["dense", "torch"])


def arrange(**options):
    return Arrangement(name=COPIES, **options)


running = functools.partial(parallel_runs.running, name=COPIES)


def two(workload, **options):
    """Two syncs on the same memory, in this process, with their learners, and the memory."""
    arrangement = arrange(processes=2, **options)
    own = [make_learner(workload, seed=0) for _ in range(2)]
    numbers = SharedWeights(own[0], arrangement)
    board = Board(4, 2, 1)
    made = [sync_class(arrangement.sync)(each, arrangement, board, at, numbers) for at, each in enumerate(own)]
    return made, numbers, board


def batch_for(workload, seed):
    """A batch for a sync."""
    return SimpleNamespace(rows=batch_of(workload, seed=seed), weights=np.ones(4, np.float32))


@pytest.mark.parametrize("sync", ["lock", "hogwild"])
def test_what_copies_moved_by_is_added_every_k_steps(sync):
    workload = tiny()
    (first, second), numbers, _ = two(workload, sync=sync, every=2)
    begun = numbers["weights"].astype(float)
    first.step(batch_for(workload, 1))
    assert_array_equal(numbers["weights"], begun)  # one of two
    second.step(batch_for(workload, 2))
    second.step(batch_for(workload, 3))
    moved_alone = numbers["weights"].astype(float) - begun
    before = first.learner.parameters.astype(float)
    first.step(batch_for(workload, 4))
    alone = make_learner(workload, seed=0)
    for seed in (1, 4):
        alone.step(batch_for(workload, seed).rows, np.ones(4, np.float32))
    expected = begun + moved_alone + (alone.parameters - begun)
    assert_allclose(numbers["weights"], expected, atol=1e-6)
    assert np.abs(moved_alone).max() > 1e-5
    assert not np.allclose(before, expected, atol=1e-6)
    assert_array_equal(first.learner.parameters, numbers["weights"])
    assert first.report(numbers) == {"met": 2, "additions": 2 * len(begun), "lost_additions": 0}
    numbers["additions"][:3] -= 1  # as if another had written what it had read before
    assert first.report(numbers)["lost_additions"] == 3


def test_weights_meet_every_k_steps_over_a_resume_too():
    workload, met = tiny(), []
    (first, _), numbers, _ = two(workload, every=3)
    for at in range(1, 10):
        first.exchange = lambda at=at: met.append(at)
        first.step(batch_for(workload, at))
        saved = numbers.state_dict()
        (first, _), numbers, _ = two(workload, every=3)  # as a process that begins
        numbers.load_state_dict(saved)
    assert met == [3, 6, 9]


def test_a_step_due_when_a_copy_rests_is_taken_after_a_resume():
    workload, taken = small(update_interval=50), []
    loop = CopiesLoop(workload, arrange())
    loop._copy._stepped = lambda batch: taken.append(loop.step) or 1 / 0  # in the middle of a turn
    with pytest.raises(ZeroDivisionError):
        while loop.step < 50:
            loop.advance()
    again = CopiesLoop(workload, arrange())
    again.load_state_dict(loop.state_dict())
    again.advance()
    assert (taken, again.step, again.updates) == ([50], 51, 1)
    for each in (loop, again):
        each.close()


def test_weights_that_nobody_has_overtaken_are_not_rounded():
    (first, second), numbers, _ = two(tiny(), sync="lock")
    numbers["weights"][:] = numbers["begun"][:] = 1.0
    first.learner.parameters[:] = 1e-9  # 1 + (1e-9 - 1) is 0 in float32
    first.meet()
    assert set(numbers["weights"].tolist()) == {float(np.float32(1e-9))}
    second.learner.parameters[:] = 1.5
    second.meet()
    assert set(numbers["weights"].tolist()) == {0.5}


def adam(weights, slopes, rate):
    """Float64 steps of Adam along each of these slopes."""
    weights, mean, square = weights.astype(float), 0.0, 0.0
    for count, slope in enumerate(np.asarray(slopes, float), 1):
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        weights = weights - rate * (mean / (1 - 0.9**count)) / (np.sqrt(square / (1 - 0.999**count)) + 1e-8)
    return weights


@pytest.mark.parametrize(("optimizer", "shards"), [("adam", 1), ("adam", 3), ("sgd", 2)])
def test_shards_step_along_the_mean_of_n_gradients_in_order(optimizer, shards):
    workload = tiny(optimizer=optimizer, learning_rate=0.1)
    (first, second), numbers, board = two(workload, sync="server", shards=shards, average=2, every=3)
    begun, sent = numbers["weights"].copy(), []
    for sync, seed in ((first, 1), (second, 2), (first, 3), (second, 4)):
        sync.step(batch_for(workload, seed))
        sent.append(numbers["gradients"][sync.number, (numbers["sent"][sync.number] - 1) % ROOM].copy())
    assert_array_equal(numbers["weights"], begun)  # no shard has run
    every = [Shard(workload, first.arrangement, numbers, number) for number in range(shards)]
    for shard in every:
        while shard.turn(board, 2):
            pass
    means = [(sent[0] + sent[1]) / 2, (sent[2] + sent[3]) / 2]  # of each copy the oldest, in turns
    expected = adam(begun, means, 0.1) if optimizer == "adam" else begun - 0.1 * (means[0].astype(float) + means[1])
    assert_allclose(numbers["weights"], expected, atol=2e-6)
    assert first.report(numbers) == {"sent": 4, "applied": 4, "under_way": 0, "backlog": 4}
    first.step(batch_for(workload, 5))  # its third: it pulls
    assert_array_equal(first.learner.parameters, numbers["weights"])
    assert not np.array_equal(second.learner.parameters, numbers["weights"])
    for shard in every:
        shard.turn(board, 2)
        assert first.report(numbers)["under_way"] in (0, 1)
        shard.step()
    assert first.report(numbers)["applied"] == 5


def test_a_copy_waits_while_its_gradients_are_under_way(monkeypatch):
    workload = tiny()
    (first, _), numbers, board = two(workload, sync="server")
    shard, looks = Shard(workload, first.arrangement, numbers, 0), []

    def look():
        looks.append(int(numbers["sent"][0] - numbers["taken"][0, 0]))
        shard.turn(board, 2)

    board.watch = look
    for seed in range(ROOM + 1):
        first.step(batch_for(workload, seed))
    assert looks == [ROOM]


def test_gradients_are_sent_clipped():
    for most, expected in ((0.0, [3, 4]), (6.0, [3, 4]), (1.0, [0.6, 0.8])):
        assert_allclose(clipped(np.array([3.0, 4.0], np.float32), most), expected, rtol=1e-5)


def test_a_cache_hands_n_records_over_at_once():
    workload = small(local_storage=1)
    replay = make_replay(64, layout_of(workload), alpha=0.6, epsilon=0.01)
    cache, fields = Cached(replay, 3), layout_of(workload).fields
    for number in range(4):
        records = {name: np.full((1, *shape), number, dtype) for name, (shape, dtype) in fields.items()}
        cache.insert(records | {"action": records["action"] % 2})
    assert replay.written == 3
    cache.flush()
    cache.flush()
    assert replay.written == 4
    assert sorted(set(cache.sample(64, 0.4, np.random.default_rng(0)).rows["reward"].tolist())) == [0, 1, 2, 3]


def test_what_is_cached_is_handed_over_before_a_copy_rests():
    with contextlib.closing(CopiesLoop(small(), arrange(replay="cached:5"))) as loop:
        for _ in range(8):
            loop.advance()
        (replay,) = loop.buffers
        assert (loop.step, replay.written) == (8, 5)
        loop.board.before_rest()
        assert replay.written == 8


# A3C


def rollouts(n, **changes):
    """A small workload that learns from each n steps."""
    sizes = dict.fromkeys(("batch", "update_interval", "learning_starts"), n)
    return small(**sizes | {"capacity": 0, "algorithm": "a3c"} | changes)


def steps_of(*rows, choices=3, cut=()):
    """Steps of (observation, next observation, reward, terminated), with actions in turn; ``cut`` were truncated."""
    seen, led, reward, terminated = zip(*rows, strict=True)
    return {
        "observation": np.array(seen, np.float32).reshape(len(rows), -1),
        "next_observation": np.array(led, np.float32).reshape(len(rows), -1),
        "action": np.arange(len(rows), dtype=np.uint8) % choices,
        "reward": np.array(reward, np.float32),
        "terminated": np.array(terminated),
        "over": np.array(terminated) | np.isin(np.arange(len(rows)), cut),
    }


@each_learner
def test_advantages_are_cut_where_an_episode_ends(name):
    """By hand: V(s) = s, gamma and lambda a half; the second step terminated, the third was truncated."""
    learner = make_learner(tiny("a3c", hidden=(1,), shape=(1,), gamma=0.5, gae_lambda=0.5), name)
    learner.load_weights(np.array([1, 0, 1, 0, *[0] * 8], np.float32))  # the policy's are all 0, so its chances equal
    begun = (1, 5, 1, False)  # where the next episode begins, too
    rows = steps_of((2, 4, 1, False), (4, 1, 3, True), begun, (5, 6, 2, False), (6, 8, 0, False), cut=[2])
    errors = np.array([1 + 0.5 * 4 - 2, 3 - 4, 1 + 0.5 * 5 - 1, 2 + 0.5 * 6 - 5, 0.5 * 8 - 6])
    advantages = errors + np.array([0.25 * errors[1], 0, 0, 0.25 * errors[4], 0])
    assert_allclose(learner.priorities(rows), np.abs(advantages))
    given = learner.rows(rows, np.ones(5, np.float32))
    derived = {phase.network: learner.gradient(phase, given) for phase in learner.phases()}
    assert derived["critic"].loss == pytest.approx((advantages**2).mean() / 2)
    assert derived["critic"].gradient[3] == pytest.approx(-advantages.mean())  # by the last bias
    entropy = learner.workload.learner.entropy * np.log(3)
    assert derived["policy"].loss == pytest.approx(advantages.mean() * np.log(3) - entropy)
    by_bias = [-(advantages * ((rows["action"] == each) - 1 / 3)).mean() for each in range(3)]
    assert_allclose(learner.gradient(learner.phases()[0], given).gradient[-3:], by_bias, rtol=1e-5)
    del rows["over"]  # nothing says that an episode goes on
    assert learner.priorities(rows)[0] == 1 + 0.5 * 4 - 2


@each_learner
def test_actions_are_drawn_by_the_chances_of_the_policy(name):
    learner = make_learner(tiny("a3c", hidden=(1,), shape=(1,)), name)
    learner.load_weights(np.array([0] * 9 + [np.log(6), np.log(3), 0], np.float32))
    seen = np.zeros((20_000, 1), np.float32)
    drawn = learner.act(seen, 1.0, np.random.default_rng(0))
    assert_allclose(np.bincount(drawn) / len(seen), [0.6, 0.3, 0.1], atol=0.01)
    assert set(learner.act(seen, 1.0, None)) == {0}


def test_rollouts_are_in_order_and_then_forgotten():
    buffer = Rollouts(rollouts(3))
    rows = steps_of(*(((at, 0), (at + 1, 0), at, at == 1) for at in range(3)), cut=[0])
    for at in range(3):
        assert not buffer.is_full
        buffer.insert({name: part[at : at + 1] for name, part in rows.items()})
        if at == 0:
            buffer.cut()
            again = Rollouts(rollouts(3))
            again.load_state_dict(buffer.state_dict())
            buffer = again
    batch = buffer.sample(3, 0.4)
    assert_equal(batch.rows, rows)
    assert batch.weights.tolist() == [1, 1, 1]
    assert not buffer.is_full
    assert len(buffer.sample(3, 0.4).weights) == 0
    with pytest.raises(ValueError, match="is nan; training has diverged"):
        buffer.update_priorities(batch.sequence, np.array([0, np.nan, 1], np.float32))


def test_a_loop_marks_the_step_at_which_an_episode_was_cut():
    loop = SerialLoop(rollouts(64), seed=3)
    while not loop.advance():
        pass
    environment, ended = loop._actors[0]._episodes.environment, loop.step
    step = environment.step
    environment.step = lambda action: (*step(action)[:3], loop.step == ended + 2)
    for _ in range(5):
        loop.advance()
    rows = loop.buffer.sample(64, 0.4).rows
    assert np.flatnonzero(rows["over"]).tolist() == [ended - 1, ended + 2]
    loop.close()


def test_each_copy_learns_from_n_steps_of_its_own():
    workload = rollouts(5)
    loop = CopiesLoop(workload, arrange(processes=2))
    other = Copy(
        workload, loop.arrangement, 1, loop.board, loop.shared, make_learner(workload, seed=0), None, None, seed=9
    )
    for _ in range(2):  # so that the steps of both together are no multiple of n when one copy's are
        other.turn()
    for turns, updates in ((4, 0), (1, 1), (4, 1), (1, 2)):
        for _ in range(turns):
            loop._copy.turn()
        assert (loop.updates, len(loop.buffers)) == (updates, 0)
    for _ in range(3):
        other.turn()
    assert (loop.step, loop.updates, other.updates) == (15, 3, 1)
    other.close()
    loop.close()


def test_a_policy_that_diverges_alone_is_a_sentence():
    with contextlib.closing(SerialLoop(load("cartpole_a3c"))) as loop:
        loop.learner.parameters[spans(loop.workload)["policy"]] = np.nan
        with pytest.raises(TrainingError, match=r"after 128 steps .* diverged, try a smaller learning_rate"):
            while loop.step < 200:
                loop.advance()
