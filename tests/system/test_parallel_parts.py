"""What processes of a run share: counters, the board, the pace of both sides, and slots of batches sampled ahead."""

import contextlib
import gc
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from impls.replay import Layout
from impls.training.actor import Episode
from impls.training.arrangement import Arrangement
from impls.training.parallel import children as programs
from impls.training.parallel import counter, prefetcher
from impls.training.parallel.acting import Fetched, claimed
from impls.training.parallel.batches import SentBatches, Slots, slots_of
from impls.training.parallel.board import EPISODES, LINE, Board, Counter, Row, Stopped
from impls.training.parallel.pace import Pace
from impls.training.parallel.transports import Shared
from tests.parallel_runs import PATIENCE_SECONDS, make_loop, small, until

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


def test_claims_never_go_beyond_the_limit_and_none_is_lost(board, beside):
    claims, done = [[], []], []

    def claim(mine):
        while (before := board.claim(Counter.CLAIMED_STEPS, 3, 20_000)) >= 0:
            mine.append(before)
        done.append(mine)

    beside(*(lambda mine=mine: claim(mine) for mine in claims))
    until(lambda: len(done) == 2)
    assert sorted(claims[0] + claims[1]) == list(range(0, 19_998, 3))


def test_who_waits_is_woken_and_who_died_asleep_is_forgotten(board, beside):
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


def test_a_process_whose_looks_are_of_no_use_sleeps_at_once(board, monkeypatch):
    board.looks, looked = 3, []
    monkeypatch.setattr(counter, "seen", lambda *_: looked.append(1) or len(looked) > 8)
    monkeypatch.setattr(counter, "reached", lambda *_: False)
    for _ in range(31):
        assert not board.look(Counter.UPDATES, 1, 1)
    assert len(looked) == 8
    assert board.look(Counter.UPDATES, 1, 1)  # it tries again from time to time
    assert board.look(Counter.UPDATES, 1, 1)


# Weights


def test_weights_are_never_torn_and_their_version_says_their_age(beside):
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


def test_versions_of_weights_say_the_gradient_steps_of_a_run_that_goes_on(board):
    board.each, weights = 10, np.zeros(3, np.float32)
    for updates, kept in ((0, 0), (57, 7)):
        board.begin_at(weights, 100, updates, kept)
        assert board.published(board.fetch(weights, -1)) == updates - kept
        board.publish(weights)
        assert board.published(board.fetch(weights, -1)) == updates - kept + 10


def test_weights_whose_publisher_died_are_not_waited_for(board):
    board.publish(np.ones(5, np.float32))
    counter.add(board.address(Counter.VERSION), 1)
    assert board.fetch(np.empty(5, np.float32), 0) == -1
    board.publish(np.full(5, 2, np.float32))
    target = np.empty(5, np.float32)
    assert board.fetch(target, 0) > 0
    assert (target == 2).all()


# Episodes


def test_episodes_come_in_the_order_of_their_steps_and_wait_for_room(board, beside):
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


@pytest.mark.parametrize(("interval", "starts"), [(1, 20), (8, 20), (8, 24), (64, 1000)])
def test_gradient_steps_are_due_when_the_serial_loop_takes_them(interval, starts):
    pace = Pace.of(small(update_interval=interval, learning_starts=starts), Arrangement(name="apart"))
    steps = range(1, starts + 5 * interval)
    due = [step for step in steps if step // interval > max(step - 1, starts - 1) // interval]
    assert [pace.due(number) for number in range(1, len(due) + 1)] == due
    assert [pace.updates_at(step) for step in steps] == [sum(at <= step for at in due) for step in steps]
    assert pace.limit(3) == pace.due(4) + interval + 1
    assert pace.lead(pace.limit(3), 3) == pace.slack


def test_actors_claim_up_to_the_bound_and_beyond_it_only_while_nothing_is_stored(board):
    pace = Pace.of(small(count=2, environments=3), Arrangement(name="apart"))
    while (before := board.claim(Counter.CLAIMED_STEPS, 3, pace.limit(0))) >= 0:
        last = before + 3
    assert pace.limit(0) - 3 < last <= pace.limit(0) == 20 + 1 + 6
    board.set(Counter.EMPTY, 1)
    board.set(Counter.LAST_STEP, 40)
    assert claimed(board, pace, 3, 1) == last
    assert board.rows[1, Row.LEAD] == last + 3 - 20


# Slots


def test_each_batch_is_taken_by_one_learner_and_its_errors_come_back(board, beside):
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


def test_the_sequence_word_is_odd_while_weights_are_written():
    sequence, numbers = np.array([2, 0]), np.zeros(1, np.float32)
    counter.publish(counter.address_of(sequence), numbers, sequence[:1].view(np.float32)[:1])  # it copies the word
    assert numbers.view(np.int32)[0] == 3
    assert sequence[0] == 4


def test_errors_that_come_out_of_order_go_to_the_records_of_their_own_batch():
    slots, seen = Slots(LAYOUT, 2, 3), []
    own = prefetcher.Prefetcher.__new__(prefetcher.Prefetcher)
    own.slots, own._oldest, own._sampled, own._done = slots, 0, 3, set()
    own._replay = SimpleNamespace(
        update_priorities=lambda sequence, errors: seen.append((sequence.tolist(), errors.tolist()))
    )
    for ticket in range(3):
        slots.outputs[ticket].sequence[:] = 10 * ticket
        slots.release_batch(ticket, 0)
        assert slots.claim() == ticket
    for ticket in (1, 0):
        slots.return_errors(ticket, np.full(2, ticket, np.float32))
        assert own._update()
    assert seen == [([10, 10], [1, 1]), ([0, 0], [0, 0])]
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
