"""What processes of a run share (counters, weights, slots of batches, units of a replay); how they begin and end."""

import contextlib
import dataclasses
import gc
import itertools
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

pytest.importorskip("numba", reason="a parallel run is compiled by numba")
from impls.replay import Layout
from impls.replay.steps import PATIENCE
from impls.training import TrainingError
from impls.training.actor import Episode, Inserted
from impls.training.arrangement import TRANSPORTS, WEIGHTS, Arrangement
from impls.training.parallel import children, counter, prefetcher, transports
from impls.training.parallel.acting import Fetched, claimed
from impls.training.parallel.batches import FILLED, SentBatches, Slots, slots_of
from impls.training.parallel.board import EPISODES, LINE, Board, BoardHandle, Counter, Row, Stopped
from impls.training.parallel.children import Children, share_of_cores
from impls.training.parallel.node import replay_of
from impls.training.parallel.pace import Pace
from impls.training.parallel.transports import RECORD_TRANSPORTS, FileWeights, RecordTransport, Shared
from impls.training.parallel.units import StorageUnit, TreeUnit
from tests.parallel_runs import PATIENCE_SECONDS, lives, make_loop, small, stop, until
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
        return threads[-1]

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

    monkeypatch.setattr(children.Board, "attach", lambda *_: board)
    monkeypatch.setattr(children, "attach", lambda *_: object())
    monkeypatch.setattr(prefetcher, "Prefetcher", lambda *_: SimpleNamespace(slots=slots, turn=turn))
    return children.Start(
        small(), PIPELINED, 0, 0, 0, 2, board.handle(), object(), 1, (), "dense", "dense", "cpu", Asked()
    )


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


@pytest.mark.parametrize("initial_priority", ["max", "td_error"])
def test_actors_fetch_at_times_and_tell_staleness(board, initial_priority):
    """They fetch what is torn again at once; ``loaded`` are the weights that a policy was told of."""
    board.begin_at(np.zeros(5, np.float32), 0, 0)
    workload, seen = small(sync_interval=3, initial_priority=initial_priority), []
    policy = SimpleNamespace(parameters=np.zeros(5, np.float32), loaded=[])
    policy.load_weights = lambda weights: policy.loaded.append(float(weights[0]))
    own, torn = Fetched(SimpleNamespace(workload=workload), board, policy), itertools.cycle([True, True, False])
    own._fetch = lambda target, known: -1 if next(torn) else board.fetch(target, known)
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
        start = children.Start(workload, TWO, 0, 0, 0, 2, *names)
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
    for words, count in ((164, 33), (165, 34), (165, -1)):
        with pytest.raises(ValueError, match="5 x 33 words"):
            replay.gather_places(np.zeros(words, np.int64), out, count)


def test_records_are_drawn_alike_whatever_is_overwritten():
    pair, seen = Pair(64, batch=8, alpha=0.0), np.zeros(64)
    for number in range(1500):
        pair.tree.turn()
        pair.insert(5 * (number % 3 == 0))  # between a draw and its copies, at other slots each time
        batch = pair.take()
        seen += np.bincount(batch.sequence % 64, minlength=64)
        pair.learner.learned(batch, np.ones(8, np.float32))
    assert pair.slots.ever_lost.sum() > 50
    expected = seen.sum() / 64
    assert ((seen - expected) ** 2 / expected).sum() < 103.4  # chi-square of 63 degrees of freedom, level 0.001


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


# Children that do not start, rest or end


@dataclasses.dataclass(frozen=True)
class Plain:
    """What a program of these tests is started with."""

    board: BoardHandle
    threads: int = 1
    number: int = 0
    row: int = 1
    epoch: int = 0
    cores: tuple[int, ...] = ()
    transport: type = RecordTransport


def sleep(start):
    """Never arrive."""
    time.sleep(PATIENCE_SECONDS)


def die(start):
    """End before anything is done."""
    os._exit(3)


def arrive(start):
    """Say by how many threads it computes, wait for the end, and go on for long after it."""
    board = Board.attach(start.board, 1)
    board.set(Counter.STEPS, int(os.environ["OMP_NUM_THREADS"]))
    board.arrive(start.row)
    try:
        board.wait(Counter.UPDATES, 10**9, start.row)
    finally:
        time.sleep(PATIENCE_SECONDS)


def work(start):
    """Arrive, and never look whether a pause goes on."""
    Board.attach(start.board, 1).arrive(start.row)
    time.sleep(PATIENCE_SECONDS)


@pytest.fixture
def crew(board, monkeypatch):
    monkeypatch.setattr(children, "_LOOK_SECONDS", 0.0)
    board._parent = Board(1, 1, 1)._parent  # as a parent has it
    made = Children(board)
    yield made
    monkeypatch.setattr(children, "_END_SECONDS", 0.1)
    pids = made.pids.values()
    made.end()
    assert not [pid for pid in pids if lives(pid)]


def begin(crew, board, kind, program, **options):
    """Begin a child, and wait until it is there."""
    crew.begin(kind, program, Plain(board.handle(), **options))
    watch(crew, lambda: board.rows[1, Row.LIVE])


def watch(crew, condition=lambda: False):
    until(lambda: crew.watch() or condition())


@pytest.mark.parametrize(("program", "said"), [(sleep, "started"), (die, r"ended 2 times .*\(exit code 3\)")])
def test_a_child_that_does_not_start_or_always_ends_is_named(crew, board, monkeypatch, program, said):
    monkeypatch.setattr(children, "_START_SECONDS", 0.5 if program is sleep else PATIENCE_SECONDS)
    monkeypatch.setattr(children, "RESTARTS", 1)
    crew.begin("actor", program, Plain(board.handle()))
    with crew.paused():  # which it does not hold up
        pass
    with pytest.raises(TrainingError, match=rf"^actor 0 .*{said}"):
        watch(crew)
    assert crew.restarts == (program is die)


def test_a_child_rests_computes_by_its_threads_and_is_killed(crew, board, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    begin(crew, board, "learner", arrive, threads=2)
    assert board.value(Counter.STEPS) == 2
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ
    with crew.paused():
        assert board.rows[1, Row.RESTING] == board.value(Counter.PAUSE) == 1
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # as those of a group
        os.kill(crew.pids["learner-0"], number)
    time.sleep(0.2)
    assert lives(crew.pids["learner-0"])
    os.kill(crew.pids["learner-0"], 9)
    with pytest.raises(TrainingError, match=r"^learner 0 .*\(exit code -9\)"):
        watch(crew)
    with crew.paused():  # one that has ended holds nothing up
        pass
    with pytest.raises(TrainingError, match=r"^learner 0"):
        crew.watch()


@pytest.mark.parametrize("case", ["stopped", "works", "killed meanwhile", "long pause", "no pause"])
def test_who_does_not_rest_in_time_is_killed_and_named(crew, board, monkeypatch, case):
    is_stopped = case in ("stopped", "killed meanwhile", "no pause")
    begin(crew, board, "actor", arrive if is_stopped else work)
    (pid,) = crew.pids.values()
    if is_stopped:
        stop(pid)

    def kill_meanwhile(seconds):  # just before all is at rest
        crew._kill_stopped()
        crew._children[0].process.join()

    if case == "killed meanwhile":
        monkeypatch.setattr(children.time, "sleep", kill_meanwhile)
    else:
        monkeypatch.setattr(children, "_START_SECONDS" if case == "long pause" else "_HURRY_SECONDS", 0.1)
    if case != "long pause":
        crew.shorten_shutdown()
    if case != "no pause":  # in which a process may wait for the child without end
        with crew.paused():
            monkeypatch.undo()
            assert not lives(pid)
        assert crew.failure.startswith("actor 0 ")
    seconds = "4" if case == "killed meanwhile" else r"\d+"
    with pytest.raises(TrainingError, match=rf"^actor 0 .* {seconds} s and was killed$"):
        watch(crew)
    assert crew.restarts == 0


SHARES = [
    ([1, 1], (0, 1), [(1,), (0,)]),
    ([1, 1, 1], (0, 1), [(0, 1)] * 3),
    ([1, 1], (3, 5, 7, 9), [(5, 7, 9), (3,)]),
    ([2, 2, 1], (0, 1, 2, 3, 4, 5), [(3, 4, 5), (0, 1), (2,)]),
    ([2, 2, 1], (0, 1, 2, 3), [(0, 1, 2, 3)] * 3),
    ([1], (4,), [(4,)]),
]


def test_each_process_has_the_cores_it_needs_if_there_are():
    for needs, cores, shares in SHARES:
        assert share_of_cores(len(needs), cores, needs) == shares
        assert set(needs) != {1} or share_of_cores(len(needs), cores) == shares


def test_claims_of_the_dead_are_given_back_once(board):
    board.add(Counter.STEPS, 5)
    assert board.claim(Counter.CLAIMED_STEPS, 7, 10) == 0
    board.reclaim_steps_of_dead_processes()
    assert board.value(Counter.CLAIMED_STEPS) == 5
    assert board.claim(Counter.CLAIMED_STEPS, 5, 10) == 5
    assert board.claim(Counter.CLAIMED_STEPS, 1, 10) == -1


# Transports


SPAWN = multiprocessing.get_context("spawn")
POLLED = [name for name in TRANSPORTS if RECORD_TRANSPORTS[name].is_polled]


class Inserts:
    """A replay that keeps what was inserted."""

    def __init__(self):
        self.inserts = []

    def insert(self, records, errors, drawable):
        self.inserts.append(records["reward"].copy())
        assert records["reward"].shape == drawable.shape

    @property
    def firsts(self):
        """The first number of each insert, all of whose numbers are the same."""
        assert all((rewards == rewards[0]).all() for rewards in self.inserts)
        return [int(rewards[0]) for rewards in self.inserts]


def make_records(number, rows=3):
    return Inserted({"reward": np.full(rows, number, np.float32)}, None, np.ones(rows, np.bool_))


@contextlib.contextmanager
def transport(kind, size=50):
    board = Board(2, 1, 1)
    board._parent = os.getppid()  # senders are threads of this process, which a board takes for its parent's child
    arrangement = Arrangement(name="apart", transport=kind, queue_size=size)
    with contextlib.closing(transports.make_record_transport(small(), arrangement)) as made:
        yield made, board, Inserts()


def receive(made, replay):
    """Receive what is there; returns the inserts so far."""
    made.receive(replay)
    return len(replay.inserts)


@pytest.mark.parametrize(("rows", "size"), [(3, 50), (100_000, 1)], ids=["small", "larger than a pipe, in a pause"])
@pytest.mark.parametrize("kind", TRANSPORTS)
def test_what_is_handed_over_arrives_whole_and_in_order(beside, kind, rows, size):
    with transport(kind, size) as (made, board, replay):
        send, inserted = made.make_sender(replay, board, 1, 0), make_records(0, rows)

        def send_all():
            for number in range(8):  # in the same arrays
                inserted.records["reward"][:] = number
                send(inserted)

        board.add(Counter.PAUSE, size == 1)
        sender = beside(send_all)
        until(lambda: made.is_drained(replay) and not sender.is_alive() and made.is_drained(replay))
        assert replay.firsts == list(range(8))
        assert made.receive(replay) == 0


@pytest.mark.parametrize("kind", POLLED)
def test_a_sender_waits_for_room_or_the_end(beside, kind):
    with transport(kind, size=2) as (made, board, replay):
        send, sent, ended, waits, go_on = made.make_sender(None, board, 1, 0), [], [], [], board.raise_if_stopped

        def look():
            waits.append(len(sent))
            go_on()

        board.raise_if_stopped = look  # a sender that waits looks whether the run goes on

        def send_all():
            try:
                for number in range(10_000):
                    send(make_records(number, 300))
                    sent.append(number)
            except Stopped:
                ended.append(True)

        beside(send_all)
        until(lambda: waits)
        assert waits[0] >= 2
        until(lambda: receive(made, replay) and len(sent) > waits[0] + 5)
        assert replay.firsts == list(range(len(replay.inserts)))
        board.stop()
        until(lambda: ended)
        assert board.rows[1, Row.WAITED] > 0


def test_a_queue_that_fills_is_moved_whole_and_then_has_room(beside):
    with transport("fill", size=5) as (made, board, replay):
        send, sent = made.make_sender(None, board, 1, 0), []
        for number in range(4):
            send(make_records(number))
        assert made.receive(replay) == 0
        assert not replay.inserts
        beside(lambda: [sent.append(send(make_records(number))) for number in range(4, 8)])
        until(lambda: sent)
        inserts, sizes = replay.insert, []
        replay.insert = lambda *inserted: (inserts(*inserted), sizes.append(made._queue.qsize()))
        assert made.receive(replay) == 15
        assert sizes == [5] * 5  # nobody had room meanwhile
        until(lambda: len(sent) == 4)
        assert made.receive(replay) == 0  # of the next filling three are there
        until(lambda: made.is_drained(replay))
        assert replay.firsts == list(range(8))
        assert made._queue.qsize() == 0


def send_for_ever(made, handle, number, rows):
    """Hand over without end; a process to be killed."""
    send = made.make_sender(None, Board.attach(handle, 1), 1, number)
    for count in itertools.count():
        send(make_records(count, rows))


@pytest.mark.parametrize("kind", POLLED)
def test_a_sender_killed_while_it_hands_over_hangs_nobody(kind):
    board = Board(2, 1, 1)
    with transport(kind, size=5) as (made, _, replay):
        for _ in range(1 if made.after_kill else 2):
            sender = SPAWN.Process(target=send_for_ever, args=(made, board.handle(), 0, 40_000), daemon=True)
            sender.start()
            before = len(replay.inserts)
            until(lambda before=before: receive(made, replay) > before + 5)
            time.sleep(0.05)  # so that the pipe is full, and a hand-over of 160 kB is in the middle
            sender.kill()
            sender.join(PATIENCE_SECONDS)
            while made.receive(replay):
                pass
        assert replay.firsts  # each whole, or not there
        assert made.receive(replay) == 0


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_arrive_as_they_were_published_and_once(name):
    pytest.importorskip("torch", reason="training needs the extra `train`")
    board, count = Board(1, 1, 100), 100
    board.transport = transports.make_weight_transport(Arrangement(weights=name), count)
    fetch, target, version = board.acting_weights, np.zeros(count, np.float32), 0
    for number in range(1, 4):
        board.publish(np.full(count, number, np.float32))
        known, version = version, fetch(target, version)
        assert (version, board.published(version)) == (known + 2, number - 1)
        assert (target == number).all()
        target[:] = -1
        assert fetch(target, version) == version
        assert (target == -1).all()  # nothing is copied that is known
    if board.transport is not None:
        board.transport.close()


def test_a_folder_of_weights_that_a_kill_left_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held = FileWeights.make()
    left, fresh, stranger = (tmp_path / f"fanout-weights-{name}" for name in ("left", "fresh", "of-a-paper"))
    for folder in (left, fresh, stranger, held._path.parent):
        folder.mkdir(exist_ok=True)
        (folder / ("thesis.txt" if folder is stranger else "weights.npy")).write_bytes(b"")
    for folder in (left, held._path.parent, stranger):
        os.utime(folder, (0, 0))  # as if it was made long ago
    other = FileWeights.make()
    assert {*tmp_path.iterdir()} == {fresh, held._path.parent, other._path.parent, stranger}
    assert (stranger / "thesis.txt").exists()
    held.close()
    other.close()
    assert {*tmp_path.iterdir()} == {fresh, stranger}
