"""Stress of training by several processes: each kind killed at random moments 20 times, and 1e7 inserts."""

import os

import numpy as np
import pytest

from impls.training import TrainingError
from impls.training.parallel.board import Row
from tests.parallel_runs import advance, kill, running, small
from tests.system import test_parallel_loop as short
from tests.system.test_parallel_loop import check_ratio, ended

KILLS = int(os.environ.get("KILLS", "20"))

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "strategy"), [("apart", "two_lock_checked"), ("pipelined", "global")])
def test_actors_killed_at_random_moments(name, strategy):
    rng, workload = np.random.default_rng(0), small(steps=10**9, count=2)
    with running(workload, name, strategy=strategy) as loop:
        rows, turns, early = loop.board.rows[1:3, Row.TURNS], [0, 0], [0, 0]
        for number in range(KILLS):
            moment = loop.step + int(rng.integers(1, 300))
            advance(loop, lambda moment=moment: loop.step >= moment)
            actor = int(rng.integers(2))
            if early[actor] >= 3:  # a run bears so many lives without a turn only
                advance(loop, lambda actor=actor: rows[actor] > turns[actor])
            kill(loop, f"actor-{actor}")
            early[actor] = early[actor] + 1 if rows[actor] == turns[actor] else 1
            turns[actor] = int(rows[actor])
            advance(loop, lambda number=number: loop.restarts > number)
        report = ended(loop, loop.step + 200)
        check_ratio(loop, workload, report)
        assert report["restarts"] == KILLS
        assert 0 <= loop.buffer.written + loop.buffer.lost - report["steps"] <= 2 * KILLS


@pytest.mark.parametrize("strategy", ["two_lock_checked", "global"])
def test_keepers_killed_at_random_moments(strategy):
    rng, state = np.random.default_rng(0), None
    workload = small(steps=10**9, presampled=2)
    for _ in range(KILLS):
        with running(workload, "pipelined", strategy=strategy, saved=state) as loop:
            moment = loop.updates + int(rng.integers(1, 300))
            advance(loop, lambda moment=moment: loop.updates >= moment)
            kill(loop, "keeper-0")
            with pytest.raises(TrainingError, match=r"^keeper 0 was ended from outside"):
                advance(loop, lambda: False)
            state = loop.state_dict()
            assert state["updates"] >= moment


@pytest.mark.parametrize(("name", "strategy"), [("apart", "two_lock_checked"), ("pipelined", "global")])
def test_ten_million_records(name, strategy):
    short.test_no_record_is_torn_or_lost(name, strategy, inserts=10_000_000)
