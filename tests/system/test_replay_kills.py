"""Processes share a replay, race and are killed: answers are right, and no more is lost than was under way."""

import time

import numpy as np
import pytest

from impls.replay import ClosedError, attach, make, steps, strategies
from impls.replay.block import ACTOR, ARRIVED, GRANTED, MODE
from impls.replay.registry import strategy_class
from tests.matrix import matrix, slow
from tests.replay_stress import (
    PLAIN,
    STACKED,
    STEPPED,
    Plan,
    Processes,
    inspect,
    learn,
    numbers_in,
    packed,
    run,
    server,
)
from tests.replays import within

SHARED = [name for name in strategies() if strategy_class(name).valid and strategy_class(name).processes]
SETTINGS = {"alpha": 0.6, "epsilon": 1e-3, "shared": True, "fanout": 4}
VICTIM, ROWS, CAPACITY = 5, 6, 32
GO_ON_WITHIN_SECONDS, PATIENCE_SECONDS = 1.0, 30.0
TREE = (steps.LEAF_LOCK, steps.SET_LEAVES, steps.LEAF_UNLOCK, steps.SUM_UP)
# (operation, point, which arrival there)
INSERTING = [("insert", point, 1) for point in range(steps.RESERVE, steps.COMMITTED + 1)]
INSERTING += [("insert", point, arrival) for point in TREE for arrival in (1, 2)]
UPDATING = [("update", point, 1) for point in (steps.UPDATE, *TREE, steps.UPDATED)]
RETRIEVING = [("retrieve", steps.READ_LEAF, 1)]
SAMPLING = [("sample", point, 1) for point in range(steps.SEARCH, steps.RECHECK + 1)]
STOPS = INSERTING + UPDATING + SAMPLING + RETRIEVING


def label(value):
    """The strategy, or the operation, its point and which arrival there."""
    return value if isinstance(value, str) else "-".join(map(str, value))


def _victim(handle, operation, pipe):
    with attach(handle) as replay:
        for bank in replay._banks:
            bank.view[ACTOR] = VICTIM
        pipe.send("ready")
        pipe.recv()
        if operation == "insert":
            replay.insert(
                packed(replay.row, (1 << 40) + np.arange(ROWS)), drawable=within(replay.layout, np.ones(ROWS, np.bool_))
            )
        elif operation == "sample":
            replay.sample(8, 0.4, uniforms=np.arange(8) / 8)
        elif operation == "retrieve":
            replay.retrieve_priorities(np.arange(20, 28))
        else:
            replay.update_priorities(np.arange(20, 28), np.ones(8))
        pipe.send("ended")


class Victim:
    """A process that stops at each point of one operation, and is killed at a given one."""

    def __init__(self, replay, operation):
        self._pipe, theirs = server().Pipe()
        self._process = server().Process(target=_victim, args=(replay.handle(), operation, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._words = replay._memory.view(0, (GRANTED + 64,), np.int64)

    def kill_at(self, point, arrival=1):
        """Kill it as it arrives there; whether it ever did."""
        assert self._pipe.poll(PATIENCE_SECONDS)
        self._pipe.recv()
        self._words[ARRIVED + VICTIM] = 0
        self._words[MODE] = steps.SCRIPTED
        self._pipe.send("go")
        end = time.monotonic() + PATIENCE_SECONDS
        while not self._pipe.poll():
            assert time.monotonic() < end, "the victim is stuck"
            if here := int(self._words[ARRIVED + VICTIM]):
                arrival -= here == point
                if not arrival:
                    break
                self._words[ARRIVED + VICTIM] = 0
                self._words[GRANTED + VICTIM] = 1
            time.sleep(1e-5)
        self._process.kill()
        self._process.join(PATIENCE_SECONDS)
        self._words[[MODE, ARRIVED + VICTIM, GRANTED + VICTIM]] = 0
        return not arrival


def filled(strategy, layout=PLAIN, inserted=45, **settings):
    """A replay that has gone round once and a bit, filled by inserts of five rows."""
    replay = make(CAPACITY, layout, strategy=strategy, trial=True, **SETTINGS, **settings)
    for first in range(0, inserted, 5):
        replay.insert(packed(replay.row, first + np.arange(5)), np.ones(5))
    return replay


def go_on(replay, layout=PLAIN):
    """Use a replay whose other user has died; it must be whole at once."""
    began = time.monotonic()
    assert replay.check() == 0
    replay.insert(packed(replay.row, (2 << 40) + np.arange(3)), drawable=within(layout, np.ones(3, np.bool_)))
    batch = replay.sample(16, 0.4, np.random.default_rng(0))
    if layout.frames == 1:
        numbers_in(batch, layout)
    replay.update_priorities(batch.sequence, np.ones(16))
    assert time.monotonic() - began < GO_ON_WITHIN_SECONDS
    assert (replay.retrieve_priorities(batch.sequence) > 0).all()
    inspect(replay, Plan(replay_name(replay), layout=layout, capacity=CAPACITY))


def replay_name(replay):
    return replay.handle().strategy


KILLED = matrix(STEPPED, STOPS, brief=lambda strategy, stop: strategy != "global" or stop in INSERTING)


@pytest.mark.parametrize(("strategy", "stop"), KILLED, ids=label)
def test_a_kill_at_any_point_loses_what_was_under_way_alone(strategy, stop):
    operation, point, arrival = stop
    with filled(strategy) as replay:
        killed = Victim(replay, operation).kill_at(point, arrival)
        go_on(replay)
        reserved = replay.written - 48
        assert reserved in ({0, ROWS} if operation == "insert" else {0})
        lost = replay.recover()
        assert lost <= reserved
        assert not (bank := replay._banks[0]).ranges()[:, 1].any()
        assert len(replay) == CAPACITY - lost, (bank.words & 3, lost)
        if not killed:
            assert lost == 0
        elif point in {steps.FIRST_HALF, steps.SECOND_HALF, steps.COMMIT}:
            assert lost == ROWS
        replay.insert(packed(replay.row, (3 << 40) + np.arange(CAPACITY)))  # past what the dead had under way
        assert (len(replay), replay.lost) == (CAPACITY, lost)
        go_on(replay)


@pytest.mark.parametrize("point", [steps.ODD, steps.ZERO, steps.FIRST_HALF])
@pytest.mark.parametrize("strategy", STEPPED)
def test_no_stack_reaches_from_a_dead_insert_into_the_next(strategy, point):
    with make(CAPACITY, STACKED, strategy=strategy, trial=True, **SETTINGS) as replay:
        # The next frame of the record in slot ROWS - 1 is in slot ROWS, whose frame is overwritten by the one who
        # comes after a victim that died with tickets for slots 0 to ROWS - 1.
        frames = np.arange(CAPACITY)
        replay.insert(packed(replay.row, frames), drawable=(frames > 2) & (frames < CAPACITY - 1))
        assert Victim(replay, "insert").kill_at(point)
        replay.insert(packed(replay.row, (2 << 40) + np.arange(4)), drawable=np.zeros(4, np.bool_))
        numbers_in(replay.sample(256, 0.4, np.random.default_rng(0)), STACKED)
        go_on(replay, STACKED)


@pytest.mark.parametrize("arrival", range(3))
def test_a_dead_insert_does_not_block_those_that_need_its_slots(arrival):
    with filled("two_lock_checked") as replay:
        assert Victim(replay, "insert").kill_at(steps.FIRST_HALF)
        began = time.monotonic()
        replay.insert(packed(replay.row, (2 << 40) + np.arange(CAPACITY - arrival)))
        assert time.monotonic() - began < GO_ON_WITHIN_SECONDS
        assert replay.lost == ROWS
        assert replay.check() == 0


def kill_many(strategy, kills, seconds):
    """Kill a random one of five callers again and again, while another takes its place."""
    plan = Plan(strategy, kind="processes", capacity=128, most=8, batch=32, callers=5, rows=1e15, seconds=1e9).usual
    rng = np.random.default_rng(5)
    acknowledged = lost_at_most = 0
    with make(plan.capacity, PLAIN, strategy=strategy, banks=plan.banks, **SETTINGS | {"fanout": 16}) as replay:
        team = Processes(replay, plan)
        try:
            team.start()
            for _ in range(kills):
                time.sleep(rng.exponential(seconds))
                number = int(rng.integers(plan.callers))
                team.callers[number][0].kill()
                _expect_progress(team, number)
                team.callers[number][0].join(PATIENCE_SECONDS)
                if number % 3 != 1:
                    acknowledged += team.words[1 + number]
                    lost_at_most += plan.most
                inspect(replay, plan)
                team.replace(replay, plan, number)
            team.words[0] = 1
            reports = team.collect()
        finally:
            team.kill()
        assert not any(report.fault for report in reports), [report.fault for report in reports]
        acknowledged += sum(report.inserted for report in reports)
        inspect(replay, plan)
        assert acknowledged <= replay.written <= acknowledged + lost_at_most
        assert replay.recover() <= lost_at_most
        assert replay.check() == 0
        learn(replay, plan, 1, lambda rows: rows < 1000)


def _expect_progress(team, dead):
    """Every caller but the dead one must do something within a second."""
    before = list(team.words)
    end = time.monotonic() + GO_ON_WITHIN_SECONDS
    waiting = set(range(1, len(before))) - {1 + dead}
    while waiting:
        assert not team.words[0], "a caller has found a fault"
        assert time.monotonic() < end, f"callers {waiting} do not go on"
        waiting = {number for number in waiting if team.words[number] == before[number]}
        time.sleep(1e-3)


@pytest.mark.parametrize(("kills", "seconds"), [(12, 0.02), slow(300, 0.05)])
@pytest.mark.parametrize("strategy", matrix(SHARED, brief=lambda name: name != "global"))
def test_kills_at_random_moments(strategy, kills, seconds):
    kill_many(strategy, kills, seconds)


# Memory


def _creator(pipe):
    replay = make(CAPACITY, PLAIN, **SETTINGS | {"fanout": 16})
    replay.insert(packed(replay.row, np.arange(CAPACITY)))
    pipe.send(replay.handle())
    pipe.recv()


def _user(handle, pipe):
    with attach(handle) as replay:
        replay.insert(packed(replay.row, np.arange(3)))
        pipe.send(replay.written)


def test_a_replay_outlives_its_creator():
    mine, theirs = server().Pipe()
    creator = server().Process(target=_creator, args=(theirs,), daemon=True)
    creator.start()
    assert mine.poll(PATIENCE_SECONDS)
    handle = mine.recv()
    with attach(handle) as replay:
        creator.kill()
        creator.join(PATIENCE_SECONDS)
        assert numbers_in(replay.sample(8, 0.4), PLAIN).max() < CAPACITY
        with pytest.raises(ClosedError, match="has ended or closed the replay"):
            attach(handle)
        user = server().Process(target=_user, args=(replay.handle(), theirs), daemon=True)
        user.start()
        assert mine.poll(PATIENCE_SECONDS)
        assert mine.recv() == replay.written == CAPACITY + 3
        user.join(PATIENCE_SECONDS)
        assert replay.check() == 0


# Races: every strategy under stress, without kills


VALID = [name for name in strategies() if strategy_class(name).valid]
CASES = [(name, "threads") for name in VALID]
CASES += [(name, "processes") for name in VALID if strategy_class(name).processes and name != "global"]
LARGE = {"capacity": 1 << 14, "batch": 256, "most": 64, "fanout": 16}
TINY = {"capacity": 16, "callers": 5, "batch": 16, "most": 6, "trial": True, "rows": 1e12, "look_seconds": 0.01}


@pytest.mark.parametrize("rows", [4e5, slow(2e7)])
@pytest.mark.parametrize(("strategy", "kind"), CASES)
def test_hundreds_of_thousands_of_rows_show_no_fault(strategy, kind, rows):
    report = run(Plan(strategy, kind=kind, rows=rows, seconds=1800.0, **LARGE).usual)
    assert report.rows >= rows
    assert min(report.inserted, report.sampled, report.updated) > 1000


@pytest.mark.parametrize("strategy", matrix(VALID, brief=lambda name: name not in ("rwlock", "global")))
@pytest.mark.parametrize("layout", [PLAIN, STACKED], ids=["plain", "stacked"])
def test_a_tiny_replay_that_sleeps_at_its_points_shows_no_fault(strategy, layout):
    report = run(Plan(strategy, layout=layout, seconds=0.7, **TINY).usual)
    assert min(report.inserted, report.sampled, report.updated) > 0
