"""Dyna-Q: model workers, which learn from a model of the environment, at most c simulated updates for each real one."""

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("numba")

from impls.replay import make as make_replay
from impls.training import TrainingError, load
from impls.training.actor import Inserted
from impls.training.algorithms import dyna_q
from impls.training.algorithms.dyna_q import HANDED, MODEL_STEPS, RAISED, SIMULATED, TAKEN, Experiences, ModelWorker
from impls.training.arrangement import Arrangement
from impls.training.copies.syncs import OWN_UPDATES, Shard, SharedWeights, sync_class
from impls.training.learners import make as make_learner
from impls.training.options import parser, setup_of
from impls.training.parallel.board import Board, Counter, Stopped
from impls.training.weights import layout_of
from tests.matrix import slow
from tests.parallel_runs import advance, lose, small
from tests.system.test_copies import arrange, running


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


def steps_of(*numbers, ended=()):
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
            hand_over(steps_of(first, first + 1, first + 2))
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
        hand_over(steps_of(*range(10)))


def test_each_record_of_a_queue_trains_the_model_once():
    (worker,), numbers, board, _ = workers_of(1, experience="queue")
    hand_over, own = dyna_q.make_sender(dyna(), worker._sync, numbers), numbers["counts"][0]
    board.add(Counter.UPDATES)
    worker.turn()
    assert own[[MODEL_STEPS, SIMULATED]].tolist() == [0, 0]  # the model has learned nothing yet
    size = dyna().model.batch
    hand_over(steps_of(*range(3 * size + 1)))
    for _ in range(5):
        worker.turn()
    assert own[[MODEL_STEPS, SIMULATED]].tolist() == [3, 1]
    told = dyna_q.report(numbers, 1, 1)
    assert (told["handed"], told["taken"]) == (3 * size + 1, 3 * size)


def test_a_record_follows_the_one_before_in_its_episode():
    (worker,), numbers, _, _ = workers_of(1, priorities="swept")
    handed = Experiences(dyna(), worker._sync, numbers)
    for numbers_of, ended in [((4,), ()), ((5, 6), ()), ((7, 8, 9), [8]), ((3,), ()), ((4,), ())]:
        handed.hand_over(steps_of(*numbers_of, ended=ended))
    assert handed.follows(np.arange(8)).tolist() == [False, True, True, True, True, False, False, True]
    assert len(handed._follows) == dyna().replay.capacity
    again = Experiences(dyna(), worker._sync, numbers)  # as after a resume, with new episodes
    again.hand_over(steps_of(5))
    assert not again.follows(np.array([8])).any()


def test_a_sweep_raises_priorities_of_the_records_before():
    (worker,), numbers, board, _ = workers_of(1, priorities="swept")
    hand_over, replay, gamma = dyna_q.make_sender(dyna(), worker._sync, numbers), worker._replay, dyna().learner.gamma
    hand_over(steps_of(*range(3), *range(10, 39)))
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


@pytest.mark.parametrize("sync", ["lock", "hogwild", "server"])
def test_a_workers_step_moves_the_shared_weights(sync):
    (first, _), numbers, board, _ = workers_of(2, sync=sync)
    before = numbers["weights"].copy()
    board.add(Counter.UPDATES)
    first.turn()
    if sync == "server":
        shard = Shard(dyna(), arrange(model_workers=2, replay="shared", sync=sync), numbers, 0)
        assert shard.turn(board, 3)
    assert not np.array_equal(numbers["weights"], before)
    assert numbers["steps"][:, OWN_UPDATES].tolist() == [0, 1, 0]


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
