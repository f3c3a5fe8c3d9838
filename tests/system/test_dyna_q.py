"""Dyna-Q: model workers, which learn from a model of the environment, at most c simulated updates for each real one."""

import contextlib
import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("numba")

from impls.replay import make as make_replay
from impls.training import TrainingError, load
from impls.training.algorithms import dyna_q
from impls.training.algorithms.dyna_q import MODEL_STEPS, SIMULATED, ModelWorker
from impls.training.arrangement import Arrangement
from impls.training.copies.loop import CopiesLoop
from impls.training.copies.syncs import OWN_UPDATES, Shard, SharedWeights, sync_class
from impls.training.learners import make as make_learner
from impls.training.options import parser, setup_of
from impls.training.parallel.board import Board, Counter
from impls.training.weights import layout_of
from tests.parallel_runs import advance, kill, small
from tests.system.test_copies import of, running


def dyna(**changes):
    return dataclasses.replace(small(hidden=(8,), **changes), algorithm="dyna_q")


def workers_of(count, **options):
    """Model workers in this process, on the same memory; the replay has 32 records."""
    workload, arrangement = dyna(), of(model_workers=count, replay="shared", **options)
    numbers = SharedWeights(make_learner(workload, seed=0), arrangement, seed=4)
    board = Board(arrangement.members + 1, 1, 1)
    replay, rng = make_replay(64, layout_of(workload), alpha=0.6, epsilon=0.01), np.random.default_rng(0)
    records = {
        name: (rng.random((32, *shape)) * 2).astype(dtype)
        for name, (shape, dtype) in layout_of(workload).fields.items()
    }
    replay.insert(records)
    kind, made = sync_class(arrangement.sync), []
    for at in range(count):
        sync = kind(make_learner(workload, seed=0), arrangement, board, 1 + at, numbers)
        made.append(ModelWorker(workload, sync, numbers, replay, at, at))
    return made, numbers, board, records


def test_threads_that_claim_at_once_take_as_many_updates_as_the_cap_allows_and_no_more():
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


def test_a_worker_trains_the_model_and_waits_where_no_simulated_update_is_free():
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


def test_a_simulated_update_is_of_states_that_were_seen_and_of_what_the_model_predicts(monkeypatch):
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


@pytest.mark.parametrize("sync", ["lock", "hogwild", "server"])
def test_a_workers_step_moves_the_shared_weights(sync):
    (first, _), numbers, board, _ = workers_of(2, sync=sync)
    before = numbers["weights"].copy()
    board.add(Counter.UPDATES)
    first.turn()
    if sync == "server":
        shard = Shard(dyna(), of(model_workers=2, replay="shared", sync=sync), numbers, 0)
        assert shard.turn(board, 3)
    assert not np.array_equal(numbers["weights"], before)
    assert numbers["steps"][:, OWN_UPDATES].tolist() == [0, 1, 0]


def test_a_model_that_diverges_is_told():
    (worker,), numbers, _, _ = workers_of(1)
    numbers["model_weights"][:] = np.nan
    with pytest.raises(TrainingError, match="learning_rate"):
        worker.turn()


def check_cap(loop):
    claimed = int(loop.shared["claimed"][0])  # before the real updates, for both grow meanwhile
    assert claimed <= loop.arrangement.cap * loop.updates


def test_the_cap_holds_at_every_moment_and_after_a_kill_and_a_resumed_run_keeps_all_counts():
    workload, options = dyna(steps=100_000), {"model_workers": 2, "replay": "shared", "cap": 2}
    with running(workload, **options) as loop:
        counts = loop.shared["counts"]
        advance(loop, lambda: counts[:, SIMULATED].min() >= 30, lambda: check_cap(loop))
        assert loop.report()["updates"] == loop.report()["copies"]["real"] == loop.shared["steps"][0, OWN_UPDATES]
        kill(loop, "model-0")
        with pytest.raises(TrainingError, match=r"^model 0 was ended from outside"):
            advance(loop, lambda: False, lambda: check_cap(loop))
        saved = loop.state_dict()
    claimed, done = int(saved["numbers"]["claimed"][0]), int(saved["numbers"]["counts"][:, SIMULATED].sum())
    assert claimed - 2 <= done <= claimed <= 2 * saved["updates"]
    with running(workload, saved=saved, **options) as loop:
        assert loop.report()["copies"]["simulated"] >= done
        advance(loop, lambda: loop.updates >= saved["updates"] + 20, lambda: check_cap(loop))
        assert int(loop.shared["claimed"][0]) >= claimed
    with contextlib.closing(CopiesLoop(workload, of(**options))) as loop:
        loop.load_state_dict(saved)
        for name, each in loop.shared.state_dict().items():
            np.testing.assert_array_equal(each, saved["numbers"][name])


def setting(name, *arguments):
    return setup_of(load(name), parser(None).parse_args(["train", name, *arguments]))


def test_it_takes_copies_with_one_worker_by_itself():
    made = setting("cartpole_dyna_q").arrangement
    assert (made.name, made.processes, made.model_workers, made.cap, made.replay) == ("copies", 1, 1, 1, "shared")
    alone = setting("cartpole_dyna_q", "--model-workers", "0").arrangement
    assert alone == Arrangement(name="copies")
    assert {"model_workers", "cap"}.isdisjoint(alone.to_dict())  # as in checkpoints of other copies
    several = setting("cartpole_dyna_q", "--model-workers", "3", "--cap", "4", "--replay", "cached:5").arrangement
    assert (several.model_workers, several.cap, several.cached, several.members) == (3, 4, 5, 4)
    assert Arrangement.of(several.to_dict()) == several


def test_a_program_is_refused_a_model_worker_of_dqn():
    with pytest.raises(TrainingError, match="dqn"):
        of(model_workers=1, replay="shared").check(small())
