"""Children of a run: those that do not start, rest or end; what they hand over arrives whole, and every wait ends."""

import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import signal
import tempfile
import threading
import time

import numpy as np
import pytest

pytest.importorskip("numba", reason="a parallel run is compiled by numba")
from impls.training import TrainingError
from impls.training.actor import Inserted
from impls.training.arrangement import TRANSPORTS, WEIGHTS, Arrangement
from impls.training.parallel import children, transports
from impls.training.parallel.board import Board, BoardHandle, Counter, Row, Stopped
from impls.training.parallel.children import Children, share_of_cores
from impls.training.parallel.transports import RECORD_TRANSPORTS, FileWeights, RecordTransport
from tests.parallel_runs import (
    PATIENCE_SECONDS,
    lives,
    small,
    stop,
    until,
)


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
def board():
    return Board(2, 1, 3)


@pytest.fixture
def crew(board, monkeypatch):
    monkeypatch.setattr(children, "_LOOK_SECONDS", 0.0)
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


def test_a_child_that_does_not_start_is_named(crew, board, monkeypatch):
    monkeypatch.setattr(children, "_START_SECONDS", 0.5)
    crew.begin("actor", sleep, Plain(board.handle()))
    with crew.paused():  # which it does not hold up
        pass
    with pytest.raises(TrainingError, match=r"^actor 0 .*started"):
        watch(crew)


def test_an_actor_that_always_ends_is_not_begun_for_ever(crew, board, monkeypatch):
    monkeypatch.setattr(children, "RESTARTS", 1)
    crew.begin("actor", die, Plain(board.handle()))
    with pytest.raises(TrainingError, match=r"^actor 0 ended 2 times .*\(exit code 3\)"):
        watch(crew)
    assert crew.restarts == 1


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


def make(kind, size, **changes):
    """A transport of a run, whose queue takes so many records."""
    arrangement = Arrangement(name="apart", transport=kind, queue_size=size)
    return contextlib.closing(transports.make_record_transport(small(**changes), arrangement))


@contextlib.contextmanager
def transport(kind, size=50):
    board = Board(2, 1, 1)
    board._parent = os.getppid()  # senders are threads of this process, which a board takes for its parent's child
    with make(kind, size) as made:
        yield made, board, Inserts()


def receive(made, replay):
    """Receive what is there; returns the inserts so far."""
    made.receive(replay)
    return len(replay.inserts)


def begin_thread(function):
    """A thread that has begun a function."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(("rows", "size"), [(3, 50), (100_000, 1)], ids=["small", "larger than a pipe, in a pause"])
@pytest.mark.parametrize("kind", TRANSPORTS)
def test_what_is_handed_over_arrives_whole_and_in_order(kind, rows, size):
    with transport(kind, size) as (made, board, replay):
        send, inserted = made.make_sender(replay, board, 1, 0), make_records(0, rows)

        def send_all():
            for number in range(8):  # in the same arrays
                inserted.records["reward"][:] = number
                send(inserted)

        board.add(Counter.PAUSE, size == 1)
        sender = begin_thread(send_all)
        until(lambda: made.is_drained(replay) and not sender.is_alive() and made.is_drained(replay))
        assert replay.firsts == list(range(8))
        assert made.receive(replay) == 0


@pytest.mark.parametrize("kind", POLLED)
def test_a_sender_waits_for_room_or_the_end(kind):
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

        sender = begin_thread(send_all)
        until(lambda: waits)
        assert waits[0] >= 2
        until(lambda: receive(made, replay) and len(sent) > waits[0] + 5)
        assert replay.firsts == list(range(len(replay.inserts)))
        board.stop()
        sender.join(PATIENCE_SECONDS)
        assert ended
        assert board.rows[1, Row.WAITED] > 0


def test_a_queue_that_fills_is_moved_whole_and_then_has_room():
    with transport("fill", size=5) as (made, board, replay):
        send, sent = made.make_sender(None, board, 1, 0), []
        for number in range(4):
            send(make_records(number))
        assert made.receive(replay) == 0
        assert not replay.inserts
        sender = begin_thread(lambda: [sent.append(send(make_records(number))) for number in range(4, 8)])
        until(lambda: sent)
        inserts, sizes = replay.insert, []
        replay.insert = lambda *inserted: (inserts(*inserted), sizes.append(made._queue.qsize()))
        assert made.receive(replay) == 15
        assert sizes == [5] * 5  # nobody had room meanwhile
        sender.join(PATIENCE_SECONDS)
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


NAMES = itertools.cycle(("pipelined", "two units", "apart"))


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
