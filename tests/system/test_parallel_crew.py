"""Children of a run: those that do not start, do not end, or end again and again."""

import dataclasses
import os
import signal
import time

import pytest

from impls.training import TrainingError
from impls.training.parallel import children as crews
from impls.training.parallel.board import Board, BoardHandle, Counter, Row
from impls.training.parallel.children import Children, share_of_cores
from impls.training.parallel.transports import RecordTransport
from tests.parallel_runs import PATIENCE_SECONDS, lives, stop, until


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


def sleeps(start):
    """Never arrive."""
    time.sleep(PATIENCE_SECONDS)


def dies(start):
    """End before anything is done."""
    os._exit(3)


def arrives(start):
    """Wait for the end, and go on for long after it."""
    board = Board.attach(start.board, 1)
    board.arrive(start.row)
    try:
        board.wait(Counter.STEPS, 10**9, start.row)
    finally:
        time.sleep(PATIENCE_SECONDS)


def works(start):
    """Arrive, and never look whether a pause goes on."""
    Board.attach(start.board, 1).arrive(start.row)
    time.sleep(PATIENCE_SECONDS)


def threads_of(start):
    """Say by how many threads this process computes."""
    board = Board.attach(start.board, 1)
    board.set(Counter.STEPS, int(os.environ["OMP_NUM_THREADS"]))
    board.arrive(start.row)
    board.wait(Counter.UPDATES, 10**9, start.row)


@pytest.fixture
def board():
    return Board(2, 1, 3)


@pytest.fixture
def crew(board, monkeypatch):
    monkeypatch.setattr(crews, "_LOOK_SECONDS", 0.0)
    made = Children(board)
    yield made
    monkeypatch.setattr(crews, "_END_SECONDS", 0.1)
    pids = made.pids.values()
    made.end()
    assert not [pid for pid in pids if lives(pid)]


def begun(crew, board, kind, program, **options):
    """Begin a child, and wait until it is there."""
    crew.begin(kind, program, Plain(board.handle(), **options))
    watched(crew, lambda: board.rows[1, Row.LIVE])


def watched(crew, condition):
    until(lambda: crew.watch() or condition())


def test_a_child_that_does_not_start_is_named(crew, board, monkeypatch):
    monkeypatch.setattr(crews, "_START_SECONDS", 0.5)
    crew.begin("actor", sleeps, Plain(board.handle()))
    with crew.paused():  # which it does not hold up
        pass
    with pytest.raises(TrainingError, match=r"^actor 0 has not started in 0 s$"):
        watched(crew, lambda: False)


def test_an_actor_that_always_ends_is_not_begun_for_ever(crew, board, monkeypatch):
    monkeypatch.setattr(crews, "RESTARTS", 2)
    crew.begin("actor", dies, Plain(board.handle()))
    with pytest.raises(TrainingError, match=r"^actor 0 ended 3 times before it took a turn \(exit code 3\)"):
        watched(crew, lambda: False)
    assert crew.restarts == 2


def test_a_child_that_does_not_end_is_killed_and_one_that_ended_holds_nothing_up(crew, board):
    begun(crew, board, "learner", arrives)
    with crew.paused():
        assert board.rows[1, Row.RESTING] == board.value(Counter.PAUSE) == 1
    os.kill(crew.pids["learner-0"], 9)
    with pytest.raises(TrainingError, match=r"^learner 0 was ended from outside \(exit code -9\)"):
        watched(crew, lambda: False)
    with crew.paused():
        pass
    with pytest.raises(TrainingError, match=r"^learner 0 was ended"):
        crew.watch()


def test_a_child_computes_by_its_threads_alone(crew, board, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    begun(crew, board, "learner", threads_of, threads=2)
    assert board.value(Counter.STEPS) == 2
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


@pytest.mark.parametrize("case", ["stopped", "works", "killed meanwhile", "long pause", "no pause"])
def test_who_does_not_rest_in_time_is_killed_and_named(crew, board, monkeypatch, case):
    is_stopped = case in ("stopped", "killed meanwhile", "no pause")
    begun(crew, board, "actor", arrives if is_stopped else works)
    (pid,) = crew.pids.values()
    if is_stopped:
        stop(pid)

    def kill_meanwhile(seconds):  # just before all is at rest
        crew._kill_stopped()
        crew._children[0].process.join()

    if case == "killed meanwhile":
        monkeypatch.setattr(crews.time, "sleep", kill_meanwhile)
    else:
        monkeypatch.setattr(crews, "_START_SECONDS" if case == "long pause" else "_HURRY_SECONDS", 0.1)
    if case != "long pause":
        crew.shorten_shutdown()
    if case != "no pause":  # in which a process may wait for the child without end
        with crew.paused():
            monkeypatch.undo()
            assert not lives(pid)
        assert crew.failure.startswith("actor 0 ")
    seconds = "4" if case == "killed meanwhile" else r"\d+"
    with pytest.raises(TrainingError, match=rf"^actor 0 did not rest for {seconds} s and was killed$"):
        watched(crew, lambda: False)
    assert crew.restarts == 0


def test_no_signal_of_a_group_ends_a_child(crew, board):
    begun(crew, board, "actor", arrives)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(crew.pids["actor-0"], number)
    time.sleep(0.2)
    assert lives(crew.pids["actor-0"])


@pytest.mark.parametrize(
    ("needs", "cores", "shares"),
    [
        ([1, 1], (0, 1), [(1,), (0,)]),
        ([1, 1, 1], (0, 1), [(0, 1)] * 3),
        ([1, 1], (3, 5, 7, 9), [(5, 7, 9), (3,)]),
        ([2, 2, 1], (0, 1, 2, 3, 4, 5), [(3, 4, 5), (0, 1), (2,)]),
        ([2, 2, 1], (0, 1, 2, 3), [(0, 1, 2, 3)] * 3),
        ([1], (4,), [(4,)]),
    ],
)
def test_each_process_has_the_cores_it_needs_where_there_are_enough(needs, cores, shares):
    assert share_of_cores(len(needs), cores, needs) == shares
    if set(needs) == {1}:
        assert share_of_cores(len(needs), cores) == shares


def test_claims_of_the_dead_are_given_back_once(board):
    board.add(Counter.STEPS, 5)
    assert board.claim(Counter.CLAIMED_STEPS, 7, 10) == 0
    board.reclaim_steps_of_dead_processes()
    assert board.value(Counter.CLAIMED_STEPS) == 5
    assert board.claim(Counter.CLAIMED_STEPS, 5, 10) == 5
    assert board.claim(Counter.CLAIMED_STEPS, 1, 10) == -1
