"""Transports of a parallel run: hand-overs arrive whole, every wait has an end, and a killed sender hangs nobody."""

import contextlib
import itertools
import multiprocessing
import os
import tempfile
import threading
import time

import numpy as np
import pytest

pytest.importorskip("numba", reason="a parallel run is compiled by numba")
from impls.training.actor import Inserted
from impls.training.arrangement import TRANSPORTS, WEIGHTS, Arrangement
from impls.training.parallel import transports
from impls.training.parallel.board import Board, Counter, Row, Stopped
from impls.training.parallel.transports import RECORD_TRANSPORTS, FileWeights
from tests.matrix import slow
from tests.parallel_runs import PATIENCE_SECONDS, advance, check_counts, kill, lose, running, small, until

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


def handed(number, rows=3):
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


def arrived(made, replay):
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
        send, inserted = made.make_sender(replay, board, 1, 0), handed(0, rows)

        def work():
            for number in range(8):  # in the same arrays
                inserted.records["reward"][:] = number
                send(inserted)

        board.add(Counter.PAUSE, size == 1)
        sender = begin_thread(work)
        until(lambda: made.is_drained(replay) and not sender.is_alive() and made.is_drained(replay))
        assert replay.firsts == list(range(8))
        assert made.receive(replay) == 0


@pytest.mark.parametrize("kind", POLLED)
def test_a_sender_waits_for_room_or_the_end(kind):
    with transport(kind, size=2) as (made, board, replay):
        send, sent, ended, waits, go_on = made.make_sender(None, board, 1, 0), [], [], [], board.raise_if_stopped

        def looked():
            waits.append(len(sent))
            go_on()

        board.raise_if_stopped = looked  # a sender that waits looks whether the run goes on

        def work():
            try:
                for number in range(10_000):
                    send(handed(number, 300))
                    sent.append(number)
            except Stopped:
                ended.append(True)

        sender = begin_thread(work)
        until(lambda: waits)
        assert waits[0] >= 2
        until(lambda: arrived(made, replay) and len(sent) > waits[0] + 5)
        assert replay.firsts == list(range(len(replay.inserts)))
        board.stop()
        sender.join(PATIENCE_SECONDS)
        assert ended
        assert board.rows[1, Row.WAITED] > 0


def test_a_queue_that_fills_is_moved_whole_and_only_then_has_room():
    with transport("fill", size=5) as (made, board, replay):
        send, sent = made.make_sender(None, board, 1, 0), []
        for number in range(4):
            send(handed(number))
        assert made.receive(replay) == 0
        assert not replay.inserts
        sender = begin_thread(lambda: [sent.append(send(handed(number))) for number in range(4, 8)])
        until(lambda: sent)
        inserts = replay.insert
        replay.insert = lambda *inserted: (inserts(*inserted), sizes.append(made._queue.qsize()))
        sizes = []
        assert made.receive(replay) == 15
        assert sizes == [5] * 5  # nobody had room meanwhile
        sender.join(PATIENCE_SECONDS)
        assert made.receive(replay) == 0  # of the next filling three are there
        until(lambda: made.is_drained(replay))
        assert replay.firsts == list(range(8))
        assert made._queue.qsize() == 0


def puts(made, handle, number, rows):
    """Hand over without end; a process to be killed."""
    send, count = made.make_sender(None, Board.attach(handle, 1), 1, number), 0
    while True:
        send(handed(count, rows))
        count += 1


@pytest.mark.parametrize("kind", POLLED)
def test_a_sender_killed_while_it_hands_over_hangs_nobody(kind):
    board = Board(2, 1, 1)
    with transport(kind, size=5) as (made, _, replay):
        for _ in range(1 if made.after_kill else 2):
            sender = SPAWN.Process(target=puts, args=(made, board.handle(), 0, 40_000), daemon=True)
            sender.start()
            before = len(replay.inserts)
            until(lambda before=before: arrived(made, replay) > before + 5)
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


@pytest.mark.parametrize(
    ("name", "kind", "weights"),
    [
        slow(*row)
        for row in zip(itertools.cycle(("pipelined", "two units", "apart")), TRANSPORTS, itertools.cycle(WEIGHTS))
    ],
)
def test_a_run_hands_over_by_every_transport(name, kind, weights):
    workload = small(count=2, update_interval=4, steps=100_000)
    with running(workload, name, transport=kind, weights=weights, queue_size=6) as loop:
        for goal in (10, 20, 30):
            advance(loop, lambda goal=goal: loop.updates >= goal)
            check_counts(loop)
        assert loop.report()["stale_weights"]["most"] < 200
        if RECORD_TRANSPORTS[kind].after_kill:
            assert "transport shared or pipe" in lose(loop, "actor-0")
        else:
            kill(loop, "actor-0")
            advance(loop, lambda: loop.restarts == 1)
        with loop.paused():
            updates = loop.state_dict()["updates"]
            assert updates >= 30
        if loop.restarts:
            advance(loop, lambda: loop.updates >= updates + 20)
            with loop.paused():
                assert loop.buffer.written >= loop.step  # what it handed over before it died was not counted


@pytest.mark.parametrize(("rows", "size"), [(1, 500), (64, 7), (1_000, 1)])
def test_a_queue_takes_as_many_hand_overs_as_its_records_make(rows, size):
    with make("queue", 500, local_storage=rows) as made:
        assert made._queue._maxsize == size


def test_a_folder_of_weights_that_a_killed_run_left_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held = FileWeights.make()
    left, fresh = tmp_path / "fanout-weights-left", tmp_path / "fanout-weights-fresh"
    for folder in (left, fresh, held._path.parent):
        folder.mkdir(exist_ok=True)
        (folder / "weights.npy").write_bytes(b"")
    stranger = tmp_path / "fanout-weights-of-a-paper"
    stranger.mkdir()
    (stranger / "thesis.txt").write_text("all of it")
    for folder in (left, held._path.parent, stranger):
        os.utime(folder, (0, 0))  # as if it was made long ago
    other = FileWeights.make()
    assert {path.name for path in tmp_path.iterdir()} == {
        fresh.name, held._path.parent.name, other._path.parent.name, stranger.name
    }  # fmt: skip
    assert (stranger / "thesis.txt").read_text() == "all of it"
    held.close()
    other.close()
    assert {path.name for path in tmp_path.iterdir()} == {fresh.name, stranger.name}
