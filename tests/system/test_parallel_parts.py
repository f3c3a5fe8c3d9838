"""What processes of a run share: counters, the board, the pace of both sides, slots of batches, units of a replay."""

import contextlib
import dataclasses
import gc
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.stats import chisquare

from impls.replay import Layout
from impls.replay.steps import PATIENCE
from impls.training.actor import Episode
from impls.training.arrangement import DATA_QUEUE, Arrangement
from impls.training.parallel import children as programs
from impls.training.parallel import counter, prefetcher
from impls.training.parallel.acting import Fetched, claimed
from impls.training.parallel.batches import FILLED, SentBatches, Slots, slots_of
from impls.training.parallel.board import EPISODES, LINE, Board, Counter, Row, Stopped
from impls.training.parallel.node import replay_of
from impls.training.parallel.pace import Pace
from impls.training.parallel.transports import Shared
from impls.training.parallel.units import StorageUnit, TreeUnit
from tests.parallel_runs import PATIENCE_SECONDS, make_loop, small, until
from tests.replays import LAYOUTS, chunk, made

LAYOUT = Layout((3,), "float32", choices=2)


@pytest.fixture
def board():
    """The board as a child of this process's parent would have it: the process may rest and be stopped."""
    made = Board(3, 2, 5)
    made._parent = os.getppid()
    return made


@pytest.fixture
def beside():
    """Runs functions in threads, and sees that all of them end."""
    threads = []

    def run(*functions):
        threads.extend(threading.Thread(target=function, daemon=True) for function in functions)
        for thread in threads[-len(functions) :]:
            thread.start()

    yield run
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


# Counters


def test_claims_stay_within_the_limit_and_none_is_lost(board, beside):
    claims, done = [[], []], []

    def claim(mine):
        while (before := board.claim(Counter.CLAIMED_STEPS, 3, 20_000)) >= 0:
            mine.append(before)
        done.append(mine)

    beside(*(lambda mine=mine: claim(mine) for mine in claims))
    until(lambda: len(done) == 2)
    assert sorted(claims[0] + claims[1]) == list(range(0, 19_998, 3))


def test_who_waits_is_woken_and_the_dead_are_forgotten(board, beside):
    address, reached = board._counters[Counter.UPDATES], []
    beside(lambda: reached.append(board.wait(Counter.UPDATES, 2, 1)))
    sleepers = board._memory.view(Counter.UPDATES * LINE + 8, (1,), np.int64)
    until(lambda: sleepers[0] == 1)
    board.add(Counter.UPDATES)
    assert not reached
    board.add(Counter.UPDATES)
    until(lambda: reached)
    assert sleepers[0] == 0
    assert board.rows[1, Row.WAITED] > 0
    sleepers[0] = 2
    board.reclaim_steps_of_dead_processes()
    assert sleepers[0] == 0
    assert counter.value_of(address) == 2


# Weights


def test_weights_are_never_torn_and_say_their_age(beside):
    size, last = 1 << 14, 507
    board = Board(1, 1, size)
    board.begin_at(np.full(size, 7, np.float32), 70, 7)
    target, seen = np.empty(size, np.float32), []

    def publish():
        for number in range(8, last + 1):
            board.publish(np.full(size, number, np.float32))

    beside(publish)
    version = 0
    while not seen or seen[-1] < last:
        version = board.fetch(target, version)
        if version > 0:
            assert (target == target[0]).all()
            assert board.published(version) == target[0]
            seen.append(int(target[0]))
    assert seen == sorted(seen)
    assert board.fetch(target, version) == version


def test_weights_published_during_a_fetch_are_fetched_again():
    words = np.array([2, 0])  # the copy goes over the sequence word, as a publication meanwhile would
    source = np.array([4]).view(np.float32)
    assert counter.fetch(counter.address_of(words), source, words[:1].view(np.float32), 0) == 4
    sequence, numbers = np.array([2, 0]), np.zeros(1, np.float32)
    counter.publish(counter.address_of(sequence), numbers, sequence[:1].view(np.float32)[:1])  # it copies the word,
    assert numbers.view(np.int32)[0] == 3  # which is odd meanwhile
    assert sequence[0] == 4


def test_weights_whose_publisher_died_are_not_waited_for(board):
    board.publish(np.ones(5, np.float32))
    counter.add(board.address(Counter.VERSION), 1)
    assert board.fetch(np.empty(5, np.float32), 0) == -1
    board.publish(np.full(5, 2, np.float32))
    target = np.empty(5, np.float32)
    assert board.fetch(target, 0) > 0
    assert (target == 2).all()


# Episodes


def test_episodes_come_in_order_and_wait_for_room(board, beside):
    board.report(1, Episode(5.0, 3), 9, 2)
    board.report(0, Episode(4.0, 2), 8, 1)
    assert board.episodes() == [(8, Episode(4.0, 2)), (9, Episode(5.0, 3))]
    assert board.episodes() == []
    count = 2 * EPISODES + 5
    beside(lambda: [board.report(0, Episode(float(step), 1), step, 1) for step in range(count)])
    steps = []
    until(lambda: steps.extend(step for step, _ in board.episodes()) or len(steps) == count)
    assert steps == list(range(count))


# Pauses


@pytest.mark.parametrize("where", ["turns", "claims", "episodes", "batches", "rest"])
def test_a_process_rests_from_every_wait_and_stops(board, beside, where):
    pace, slots, states = Pace(1, 0, 2, False, 1), Slots(LAYOUT, 4, 2), []
    waits = {
        "claims": lambda: claimed(board, pace, 2, 1),
        "episodes": lambda: board.report(0, Episode(1.0, 1), 1, 1),
        "batches": lambda: SentBatches(slots, board, 1).take(1.0, 0),
    }

    def live():
        with pytest.raises(Stopped):
            while True:
                board.check(1)
                waits.get(where, list)()
        states.append("stopped")

    board.arrive(1)
    beside(live)
    for _ in range(2):
        time.sleep(0.05)
        board.add(Counter.PAUSE)
        until(lambda: board.rests(1))
        board.add(Counter.PAUSE)
        until(lambda: not board.rows[1, Row.RESTING])
    if where == "rest":
        board.add(Counter.PAUSE)
        until(lambda: board.rests(1))
    board.stop()
    until(lambda: states)


# Pace


@given(st.integers(1, 64), st.integers(4, 200), st.integers(0, 50))
def test_gradient_steps_are_due_as_in_the_serial_loop(interval, starts, updates):
    pace = Pace.of(small(update_interval=interval, learning_starts=starts), Arrangement(name="apart"))
    steps = range(1, starts + 5 * interval)
    due = [step for step in steps if step // interval > max(step - 1, starts - 1) // interval]
    assert [pace.due(number) for number in range(1, len(due) + 1)] == due
    assert [pace.updates_at(step) for step in steps] == [sum(at <= step for at in due) for step in steps]
    assert pace.updates_at(pace.due(updates + 1)) == updates + 1
    assert pace.limit(updates) == pace.due(updates + 1) + interval + 1
    assert pace.lead(pace.limit(updates), updates) == pace.slack


def test_actors_claim_beyond_the_bound_while_all_is_empty(board):
    pace = Pace.of(small(count=2, environments=3), Arrangement(name="apart"))
    while (before := board.claim(Counter.CLAIMED_STEPS, 3, pace.limit(0))) >= 0:
        last = before + 3
    assert pace.limit(0) - 3 < last <= pace.limit(0) == 20 + 1 + 6
    board.set(Counter.EMPTY, 1)
    board.set(Counter.LAST_STEP, 40)
    assert claimed(board, pace, 3, 1) == last
    assert board.rows[1, Row.LEAD] == last + 3 - 20


# Slots


def test_each_batch_is_taken_once_and_its_errors_come_back(board, beside):
    slots, taken, count, returned = Slots(LAYOUT, 4, 5), [[], []], 300, set()

    def learn(mine, row):
        batches = SentBatches(slots, board, row)
        while len(returned) < count:
            there = batches.take(1.0, 0)
            if there is not None:
                batch, sampled = there
                mine.append((int(batch.sequence[0]), sampled))
                assert (batch.rows["reward"] == batch.sequence).all()
                batches.learned(batch, batch.sequence.astype(np.float32))

    beside(lambda: learn(taken[0], 1), lambda: learn(taken[1], 2))
    filled, end = 0, time.monotonic() + PATIENCE_SECONDS
    while len(returned) < count:
        for ticket in range(filled):
            if ticket not in returned and (errors := slots.read_errors(ticket)) is not None:
                assert (errors == ticket).all()
                returned.add(ticket)
                slots.free(ticket)
        if slots.is_free(filled):
            out = slots.outputs[filled % 5]
            out.sequence[:], out.rows["reward"][:] = filled, filled
            slots.release_batch(filled, 10 * filled)
            filled += 1
        assert time.monotonic() < end
    every = [number for number, _ in taken[0] + taken[1]]
    assert len(set(every)) == len(every)
    assert returned <= set(every)
    assert all(sampled == 10 * number for number, sampled in taken[0] + taken[1])


def test_no_memory_is_left(beside):
    def maps():
        links = (Path(link) for link in Path("/proc/self/fd").iterdir())
        return sum("fanout-replay" in str(link.readlink()) for link in links if link.is_symlink())

    gc.collect()
    before = maps()
    for name in ("apart", "pipelined"):
        loop = make_loop(small(), name)
        assert maps() > before
        loop.close()
        del loop
        assert maps() == before


# Pauses of who receives, and weights of who acts


PIPELINED = Arrangement(name="pipelined")


def keeper_of(board, monkeypatch, slots, turn=None, is_drained=lambda: True):
    """The start of a keeper with a made-up prefetcher, which asks ``is_drained`` whether records are under way."""

    class Asked(Shared):
        def is_drained(self, replay):
            return is_drained()

    monkeypatch.setattr(programs.Board, "attach", lambda *_: board)
    monkeypatch.setattr(programs, "attach", lambda *_: object())
    monkeypatch.setattr(prefetcher, "Prefetcher", lambda *_: SimpleNamespace(slots=slots, turn=turn))
    return programs.Start(
        small(), PIPELINED, 0, 0, 0, 2, board.handle(), object(), 1, (), "dense", "dense", "cpu", Asked()
    )


def test_who_receives_sees_a_pause_that_begins_late(board, monkeypatch):
    rested, slots = [], SimpleNamespace(claimed=0)
    start = keeper_of(board, monkeypatch, slots, turn=lambda: not board.stop())
    monkeypatch.setattr(prefetcher, "drain", lambda *_: board.add(Counter.PAUSE) < 0)
    monkeypatch.setattr(board, "check", rested.append)
    with pytest.raises(Stopped):
        prefetcher.run_prefetcher(start)
    assert not rested


def test_a_keeper_rests_once_all_has_arrived(board, beside, monkeypatch):
    looks, arrived = [], []

    def keep():
        with contextlib.suppress(Stopped):
            prefetcher.run_prefetcher(start)

    start = keeper_of(board, monkeypatch, SimpleNamespace(claimed=0), is_drained=lambda: looks.append(1) or arrived)
    board.add(Counter.PAUSE)
    beside(keep)
    try:
        until(lambda: len(looks) >= 3 or board.rows[2, Row.RESTING])
        assert not board.rows[2, Row.RESTING]
        arrived.append(True)
        until(lambda: board.rows[2, Row.RESTING])
    finally:
        board.stop()


def fetched(board, fetch, interval=1, initial_priority="max"):
    """The fetching of an actor, and its policy, which keeps the weights that it has ``loaded``."""
    actors, replay = SimpleNamespace(sync_interval=interval), SimpleNamespace(initial_priority=initial_priority)
    policy = SimpleNamespace(parameters=np.zeros(5, np.float32), loaded=[])
    policy.load_weights = lambda weights: policy.loaded.append(float(weights[0]))
    own = Fetched(SimpleNamespace(workload=SimpleNamespace(actors=actors, replay=replay)), board, policy)
    own._fetch = fetch
    return own, policy


def test_weights_that_are_torn_are_fetched_again_before_a_turn(board):
    answers = [(-1, 3), (-1, 5), (4, 7)]

    def fetch(target, known):
        version, target[:] = answers.pop(0)
        return version

    own, policy = fetched(board, fetch)
    own.turn(board.lines[1])
    assert own._version == 4
    assert (policy.parameters == 7).all()


@pytest.mark.parametrize("initial_priority", ["max", "td_error"])
def test_actors_fetch_at_times_and_tell_staleness(board, initial_priority):
    board.begin_at(np.zeros(5, np.float32), 0, 0)
    own, policy = fetched(board, board.fetch, 3, initial_priority)
    seen = []
    for turn in range(7):
        own.turn(board.lines[1])
        seen.append(int(policy.parameters[0]))
        board.publish(np.full(5, turn + 1, np.float32))
        board.add(Counter.UPDATES)
    assert seen == [0, 0, 0, 3, 3, 3, 6]
    assert board.rows[1, [Row.LAG_SUM, Row.LAG_MAX]].tolist() == [2 * (0 + 1 + 2), 2]
    for _ in range(6):  # nothing is published any more
        own.turn(board.lines[1])
    assert policy.loaded == ([0, 3, 6, 7] if initial_priority == "td_error" else [])


def test_errors_out_of_order_go_to_records_of_their_batch():
    slots, seen = Slots(LAYOUT, 2, 3), []
    own = prefetcher.Prefetcher.__new__(prefetcher.Prefetcher)
    own.slots, own._oldest, own._sampled, own._done = slots, 0, 3, set()
    own._replay = SimpleNamespace(update_priorities=lambda *given: seen.append([each.tolist() for each in given]))
    for ticket in range(3):
        slots.outputs[ticket].sequence[:] = 10 * ticket
        slots.release_batch(ticket, 0)
        assert slots.claim() == ticket
    for ticket in (1, 0):
        slots.return_errors(ticket, np.full(2, ticket, np.float32))
        assert own._update()
    assert seen == [[[10, 10], [1, 1]], [[0, 0], [0, 0]]]
    assert own._oldest == 2
    assert not own._done
    assert [slots.is_free(ticket) for ticket in (3, 4, 5)] == [True, True, False]


def test_a_keeper_samples_as_far_ahead_as_wanted(board, monkeypatch):
    workload = small(presampled=3, steps=100, beta=0.4, beta_end=1.0)
    slots, betas = slots_of(workload, PIPELINED), []
    monkeypatch.setattr(prefetcher, "sample", lambda replay, out, beta, rng, board: betas.append(beta) or out)
    start = SimpleNamespace(workload=workload, arrangement=PIPELINED, row=1, extra=slots.handle(), seed=0, epoch=0)
    start.transport = Shared()
    own = prefetcher.Prefetcher(start, board, None)
    assert not own._sample()  # no gradient step is due yet
    board.set(Counter.STEPS, 50)
    board.set(Counter.UPDATES, 7)
    while own._sample():
        assert len(betas) < 10
    assert betas == pytest.approx([0.7] * 3)
    slots.claim()
    assert [own._sample(), own._sample()] == [True, False]


# The two units of a replay: what they draw, what is overwritten on the way, and their queues


TWO = Arrangement(name="pipelined", units="two")


class Pair:
    """Both units in this process, and a learner; each record's reward is its number."""

    def __init__(self, capacity=512, **changes):
        workload, board = small(learning_starts=1, capacity=capacity, **changes), Board(4, 1, 5)
        board.set(Counter.STEPS, 10**6)
        self.replay, self.slots = replay_of(workload, TWO), slots_of(workload, TWO)
        names = (None, None, 1, (), "dense", "dense", "cpu", Shared(), self.slots.handle())
        start = programs.Start(workload, TWO, 0, 0, 0, 2, *names)
        self.tree = TreeUnit(start, board, self.replay)
        self.storage = StorageUnit(dataclasses.replace(start, row=3), board, self.replay)
        self.learner = SentBatches(self.slots, board, 0)
        self.insert(capacity)

    def insert(self, count):
        rows = np.zeros(count, self.replay.row)
        rows["reward"] = np.arange(self.replay.written, self.replay.written + count)
        self.replay.insert(rows)

    def take(self):
        """The next batch, of records that are there, each the one that was drawn; at most one attempt fails."""
        for unit in (self.tree, self.storage) * 2:
            unit.turn()
        batch, _ = self.learner.take(1.0, 0)
        assert_array_equal(batch.rows["reward"], batch.sequence)
        assert batch.sequence.min() >= self.replay.written - self.replay.capacity
        return batch


@pytest.mark.parametrize(("name", "strategy"), [("flat", "two_lock_checked"), ("four frames", "global")])
def test_two_units_draw_what_one_draws(name, strategy):
    replay, rng = made(strategy, 64, LAYOUTS[name]), np.random.default_rng(0)
    for _ in range(12):
        replay.insert(**dict(zip(("records", "drawable"), chunk(LAYOUTS[name], rng, 9), strict=True)))
    wanted = replay.sample(33, 0.7, np.random.default_rng(1))
    drawn, out = np.empty(5 * 33, np.int64), replay.outputs(33)
    assert replay.draw_places(drawn, np.random.default_rng(1).random(33), 0.7, out, 33, 0) is out.sequence
    assert replay.gather_places(drawn, out, 33) == 0
    for mine, theirs in ((out.sequence, wanted.sequence), (out.weights, wanted.weights)):
        assert_array_equal(mine, theirs)
    assert all((out.rows[field] == wanted.rows[field]).all() for field in wanted.rows)


def test_records_are_drawn_alike_whatever_is_overwritten():
    pair, seen = Pair(64, batch=8, alpha=0.0), np.zeros(64)
    for number in range(1500):
        pair.tree.turn()
        pair.insert(5 * (number % 3 == 0))  # between a draw and its copies, at other slots each time
        batch = pair.take()
        seen += np.bincount(batch.sequence % 64, minlength=64)
        pair.learner.learned(batch, np.ones(8, np.float32))
    assert pair.slots.ever_lost.sum() > 50
    assert chisquare(seen).pvalue > 1e-3


def test_what_is_lost_again_and_again_is_sampled_at_once():
    pair = Pair(16, batch=4)
    for attempt in range(PATIENCE + 1):
        pair.tree.turn()
        pair.insert(16 if attempt else 8)  # the first time half of the batch is lost, and then the same half
        pair.storage.turn()
        assert pair.slots.ever_lost.sum() == 2 * (attempt + 1)
    pair.tree.turn()
    assert pair.slots.state(0) == FILLED
    for _ in range(3 * pair.slots.count):
        pair.learner.learned(pair.take(), np.ones(4, np.float32))


def test_no_more_batches_lie_ready_than_the_queue_takes():
    pair = Pair(presampled=300)
    for _ in range(400):
        pair.tree.turn()
        pair.storage.turn()
    states = [pair.slots.state(ticket) for ticket in range(301)]
    assert states == [2] * DATA_QUEUE + [1] * (300 - DATA_QUEUE) + [0]
    pair.learner.learned(pair.take(), np.full(4, 3.0, np.float32))
    pair.storage.turn()
    pair.tree.turn()
    assert [pair.slots.state(ticket) for ticket in (DATA_QUEUE, 300)] == [2, 1]


def test_arrays_of_another_batch_are_refused():
    replay = Pair().replay
    out = replay.outputs(4)
    for words, count in ((19, 4), (20, 5), (20, -1)):
        with pytest.raises(ValueError, match="5 x 4 words"):
            replay.gather_places(np.zeros(words, np.int64), out, count)
