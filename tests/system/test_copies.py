"""Copies: serial loops whose weights meet, by a lock, without one or at a server; A3C; Dyna-Q's model workers."""

import contextlib
import dataclasses
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

pytest.importorskip("numba")
torch = pytest.importorskip("torch", reason="learners need the extra `train`")

from impls.replay import make as make_replay  # noqa: E402
from impls.training import TrainingError, load  # noqa: E402
from impls.training.actor import Inserted  # noqa: E402
from impls.training.algorithms import dyna_q  # noqa: E402
from impls.training.algorithms.dyna_q import (  # noqa: E402
    HANDED,
    MODEL_STEPS,
    RAISED,
    SIMULATED,
    TAKEN,
    Experiences,
    ModelWorker,
)
from impls.training.arrangement import COPIES, Arrangement  # noqa: E402
from impls.training.copies.loop import Cached, CopiesLoop, Copy  # noqa: E402
from impls.training.copies.syncs import OWN_UPDATES, ROOM, Shard, SharedWeights, clipped, sync_class  # noqa: E402
from impls.training.learners import make as make_learner  # noqa: E402
from impls.training.loop import SerialLoop  # noqa: E402
from impls.training.options import parser, setup_of  # noqa: E402
from impls.training.parallel.board import Board, Counter, Stopped  # noqa: E402
from impls.training.rollouts import Rollouts  # noqa: E402
from impls.training.weights import layout_of  # noqa: E402
from tests import parallel_runs  # noqa: E402
from tests.learning import batch_of, tiny  # noqa: E402
from tests.matrix import slow  # noqa: E402
from tests.parallel_runs import advance, lose, small  # noqa: E402

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


# Dyna-Q: model workers take at most c simulated updates for each real one


def dyna(**changes):
    return dataclasses.replace(small(hidden=(8,), **changes), algorithm="dyna_q")


def workers_of(count, **options):
    """Model workers in this process, on the same memory; the replay has 32 records."""
    workload, arrangement = dyna(), arrange(model_workers=count, replay="shared", **options)
    numbers = SharedWeights(make_learner(workload, seed=0), arrangement, seed=4)
    board = Board(arrangement.members + 1, 1, 1)
    replay, rng = make_replay(64, layout_of(workload), alpha=0.6, epsilon=0.001), np.random.default_rng(0)
    fields = layout_of(workload).fields.items()
    records = {name: (rng.random((32, *shape)) * 2).astype(dtype) for name, (shape, dtype) in fields}
    replay.insert(records)
    kind, made = sync_class(arrangement.sync), []
    for at in range(count):
        sync = kind(make_learner(workload, seed=0), arrangement, board, 1 + at, numbers)
        made.append(ModelWorker(workload, sync, numbers, replay, at, at))
    return made, numbers, board, records


def walked(*numbers, ended=()):
    """Records of steps from state number to state number + 1; those in ``ended`` terminated there."""
    led = np.float32([[number + 1, 0] for number in numbers])
    seen, ends = led - np.float32([1, 0]), np.isin(numbers, ended)
    records = {"observation": seen, "next_observation": led, "reward": led[:, 0], "terminated": ends}
    return Inserted(records | {"action": np.zeros(len(led), np.uint8)}, None, np.ones(len(led), np.bool_))


def test_threads_that_claim_take_what_the_cap_allows():
    workers, numbers, board, _ = workers_of(3, cap=2)
    real, over, won, is_over = 2000, [], [0, 0, 0], threading.Event()

    def claim(at):
        while True:
            is_last = is_over.is_set()
            if workers[at].claim(board.value(Counter.UPDATES)):
                won[at] += 1
                claimed = int(numbers["claimed"][0])
                over.extend([claimed] if claimed > 2 * board.value(Counter.UPDATES) else [])
            elif is_last:
                return

    with ThreadPoolExecutor(3) as pool:
        pool.map(claim, range(3))
        for _ in range(real):
            board.add(Counter.UPDATES)
        is_over.set()
    assert not over
    assert sum(won) == int(numbers["claimed"][0]) == 2 * real


def test_a_worker_trains_and_waits_where_no_update_is_free():
    (worker,), numbers, board, _ = workers_of(1, cap=2)
    before, own = numbers["model_weights"].copy(), numbers["counts"][0]
    for _ in range(3):
        worker.turn()  # no real update yet
    assert (own[MODEL_STEPS], own[SIMULATED]) == (3, 0)
    assert not np.array_equal(numbers["model_weights"], before)
    board.add(Counter.UPDATES)
    for _ in range(5):
        worker.turn()
    assert (own[MODEL_STEPS], own[SIMULATED]) == (6, 2)  # trained once for the update that it waits for
    board.add(Counter.UPDATES)
    worker.turn()
    assert (own[MODEL_STEPS], own[SIMULATED]) == (6, 3)
    assert board.value(Counter.UPDATES) == 2  # none of them is a real one
    told = dyna_q.report(numbers, 2, 2)
    assert (told["simulated"], told["cap"], told["model_steps"]) == (3, 2, 6)
    assert told["model_error"] == pytest.approx(numbers["errors"][0, :6].mean(), abs=1e-4)


def test_a_simulated_update_is_of_what_the_model_predicts(monkeypatch):
    (worker,), _, board, records = workers_of(1)
    batches = []
    monkeypatch.setattr(worker._sync, "step", batches.append)
    board.add(Counter.UPDATES, 50)
    for _ in range(50):
        worker.turn()
    rows, seen = batches[-1].rows, {tuple(state) for state in records["observation"].tolist()}
    assert {tuple(state) for state in rows["observation"].tolist()} <= seen
    following, rewards, ended = worker._model.predict(rows["observation"], rows["action"])
    np.testing.assert_array_equal(rows["next_observation"], following)
    np.testing.assert_array_equal(rows["reward"], rewards)
    np.testing.assert_array_equal(rows["terminated"], ended)
    assert set(batches[-1].weights.tolist()) == {1.0}
    actions = np.concatenate([each.rows["action"] for each in batches])
    assert 0.3 < actions.mean() < 0.7


def test_a_queue_hands_each_record_to_one_worker_in_order():
    workers, numbers, board, _ = workers_of(3, experience="queue", queue_size=10)
    hand_over, taken = dyna_q.make_sender(dyna(), workers[0]._sync, numbers), [[], [], []]

    def send():
        for first in range(0, 999, 3):
            hand_over(walked(first, first + 1, first + 2))
            assert numbers["records"][HANDED, 0] - numbers["records"][TAKEN, 0] <= 10

    def take(at):
        while sum(map(len, taken)) < 996:
            rows = workers[at]._queue.take(4)
            taken[at] += [] if rows is None else [rows["reward"].astype(int).tolist()] * 4

    with ThreadPoolExecutor(4) as pool:
        [done.result() for done in [pool.submit(send), *(pool.submit(take, at) for at in range(3))]]
    batches = [batch for own in taken for batch in own[::4]]
    assert sorted(batches) == [[at, at + 1, at + 2, at + 3] for at in range(1, 997, 4)]
    assert all(own == sorted(own) for own in taken)
    assert workers[0]._queue.take(4) is None  # three wait
    board.stop()
    with pytest.raises(Stopped):
        hand_over(walked(*range(10)))


def test_each_record_of_a_queue_trains_the_model_once():
    (worker,), numbers, board, _ = workers_of(1, experience="queue")
    hand_over, own = dyna_q.make_sender(dyna(), worker._sync, numbers), numbers["counts"][0]
    board.add(Counter.UPDATES)
    worker.turn()
    assert own[[MODEL_STEPS, SIMULATED]].tolist() == [0, 0]  # the model has learned nothing yet
    size = dyna().model.batch
    hand_over(walked(*range(3 * size + 1)))
    for _ in range(5):
        worker.turn()
    assert own[[MODEL_STEPS, SIMULATED]].tolist() == [3, 1]
    told = dyna_q.report(numbers, 1, 1)
    assert (told["handed"], told["taken"]) == (3 * size + 1, 3 * size)


def test_a_record_follows_the_one_before_in_its_episode():
    (worker,), numbers, _, _ = workers_of(1, priorities="swept")
    handed = Experiences(dyna(), worker._sync, numbers)
    for numbers_of, ended in [((4,), ()), ((5, 6), ()), ((7, 8, 9), [8]), ((3,), ()), ((4,), ())]:
        handed.hand_over(walked(*numbers_of, ended=ended))
    assert handed.follows(np.arange(8)).tolist() == [False, True, True, True, True, False, False, True]
    assert len(handed._follows) == dyna().replay.capacity
    again = Experiences(dyna(), worker._sync, numbers)  # as after a resume, with new episodes
    again.hand_over(walked(5))
    assert not again.follows(np.array([8])).any()


def test_a_sweep_raises_priorities_of_the_records_before():
    (worker,), numbers, board, _ = workers_of(1, priorities="swept")
    hand_over, replay, gamma = dyna_q.make_sender(dyna(), worker._sync, numbers), worker._replay, dyna().learner.gamma
    hand_over(walked(*range(3), *range(10, 39)))
    before = np.full(32, 0.5)
    replay.update_priorities(np.arange(32), before)
    sequence, errors = np.array([2, 9, 9, 3, 20, 19]), np.float32([2, 0.3, 4, 8, 0.1, 0.01])
    worker._sweep(worker._swept, sequence, errors)
    expected = before.copy()
    expected[[2, 9, 3, 20, 19]] = 2, 4, 8, 0.1, 0.01
    expected[[1, 8]] = 2 * gamma, 4 * gamma  # record 3 begins an episode, and 0.5 is more than 0.01 * gamma
    expected[19] = 0.1 * gamma  # also as a record before
    alpha, epsilon = dyna().replay.alpha, dyna().replay.epsilon
    found = replay.retrieve_priorities(np.arange(32))
    np.testing.assert_allclose(found, (np.float32(expected) + epsilon) ** alpha, rtol=1e-5)
    assert numbers["counts"][0, RAISED] == 3
    assert replay.check() == pytest.approx(0, abs=1e-6)
    board.add(Counter.UPDATES)
    worker._sync.learner.parameters[:] = np.nan
    with pytest.raises(TrainingError, match="diverged"):
        worker.turn()


def test_a_model_that_diverges_is_told():
    (worker,), numbers, _, _ = workers_of(1)
    numbers["model_weights"][:] = np.nan
    with pytest.raises(TrainingError, match="learning_rate"):
        worker.turn()


def check_cap(loop):
    """A check that no moment has more simulated updates than the cap allows."""

    def check():
        claimed = int(loop.shared["claimed"][0])  # before the real updates, for both grow meanwhile
        assert claimed <= loop.arrangement.cap * loop.updates

    return check


QUEUE = {"experience": "queue", "queue_size": 100, "priorities": "swept"}


@pytest.mark.parametrize("options", [slow({}, id="replay"), pytest.param(QUEUE, id="queue, swept")])
def test_the_cap_holds_and_a_killed_run_keeps_all_counts(options):
    workload = dyna(steps=100_000, local_storage=3, environments=2)
    options = {"model_workers": 2, "replay": "shared", "cap": 2} | options
    with running(workload, **options) as loop:
        counts = loop.shared["counts"]
        advance(loop, lambda: counts[:, SIMULATED].min() >= 20 and counts[:, MODEL_STEPS].sum() >= 3, check_cap(loop))
        assert loop.report()["updates"] == loop.report()["copies"]["real"] == loop.shared["steps"][0, OWN_UPDATES]
        lose(loop, "model-1")
        saved = loop.state_dict()
        written = loop.buffers[0].written
    claimed, done = int(saved["numbers"]["claimed"][0]), int(saved["numbers"]["counts"][:, SIMULATED].sum())
    assert claimed - 2 <= done <= claimed <= 2 * saved["updates"]
    taken = 0
    if "experience" in options:
        handed, taken = saved["numbers"]["records"][:, 0]
        assert handed == written
        assert taken <= handed <= taken + 100
        assert taken % workload.model.batch == 0
    with running(workload, saved=saved, **options) as loop:
        assert loop.report()["copies"]["simulated"] >= done
        goal = loop.updates + 50
        advance(loop, lambda: loop.updates >= goal, check_cap(loop))
        assert int(loop.shared["claimed"][0]) >= claimed
        if taken:
            advance(loop, lambda: loop.shared["records"][TAKEN, 0] > taken)
            assert loop.shared["counts"][:, RAISED].sum() > 0


def setting(name, *arguments):
    return setup_of(load(name), parser(None).parse_args(["train", name, *arguments]))


def test_dyna_q_takes_copies_with_one_worker_by_itself():
    made = setting("cartpole_dyna_q").arrangement
    assert (made.name, made.processes, made.model_workers, made.cap, made.replay) == ("copies", 1, 1, 1, "shared")
    alone = setting("cartpole_dyna_q", "--model-workers", "0").arrangement
    assert alone == Arrangement(name="copies")
    assert {"model_workers", "cap"}.isdisjoint(alone.to_dict())  # as in checkpoints of other copies
    several = setting("cartpole_dyna_q", "--model-workers", "3", "--cap", "4", "--replay", "cached:5").arrangement
    assert (several.model_workers, several.cap, several.cached, several.members) == (3, 4, 5, 4)
    assert Arrangement.of(several.to_dict()) == several
