"""Races of programs that count as training runs do: who trains on, who is gone, and what no kill leaves behind."""

import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from dse import race_runs, race_trees
from dse.race_runs import Program, decided, rows_of
from impls.race import Result, Standing
from impls.training import checkpoint, clock
from tests.committed import ROOT

RUN = """
import mmap, os, sys, time
with open(os.environ["FANOUT_TURNS"], "r+b") as file:
    numbers = memoryview(mmap.mmap(file.fileno(), 72)).cast("q")
seconds, settled, last, code = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
print("given", sys.stdin.read(), flush=True)
done, spent = settled, 0


def tell():
    other = 1 - numbers[2]
    numbers[4 + 3 * other], numbers[5 + 3 * other] = done, spent
    numbers[2] = other


tell()
while not last or done < last:
    time.sleep(1e-3)
    done, spent = done + 1, spent + int(seconds * 1e9)
    tell()
    if numbers[1]:
        print("free", flush=True)
        break
if code:
    sys.exit("error: it broke")
"""


def program(folder, name, seconds, settled=100, last=0, code=0, by=(), **more):
    """A program whose gradient steps take so many seconds, by what it says; another may start it."""
    words = [*by, sys.executable, "-S", "-c", RUN, *map(str, (seconds, settled, last, code))]
    return Program(name, words, name, folder / name, **more)


PARENT = ("sh", "-c", '"$@" & wait', "sh")


def is_there(group):
    """Whether a process of a group has not ended."""
    for process in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, own = process.read_text().rpartition(")")[2].split()[:3]
            if int(own) == group and state not in "ZX":
                return True
    return False


def gone(processes, seconds=2.0):
    """Whether so many seconds are enough for all to end."""
    end = time.monotonic() + seconds
    while any(map(is_there, processes)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(is_there, processes))


@contextlib.contextmanager
def raced(programs, seconds, *progress):
    """A race whose winner ends after the context."""
    with decided(programs, seconds, *progress) as decision:
        try:
            yield decision
        finally:
            decision.winner.process.kill()
            decision.winner.process.wait()


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
    monkeypatch.setattr(race_runs, "TURN_SECONDS", (0.01, 0.02))


def test_the_fastest_trains_on_and_the_others_are_gone(tmp_path):
    programs = [program(tmp_path, name, took) for name, took in (("slow", 1.3e-3), ("fast", 1e-3), ("hopeless", 9e-3))]
    with raced(programs, 20) as decision:
        others = [one.process.pid for one in programs if one is not decision.winner]
        assert (decision.winner.name, decision.winner.stopped) == ("fast", None)
        assert decision.winner.process.wait(2) == 0
        assert gone(others, 0.0)
    assert (decision.winner.folder / "output").read_text().split() == ["given", "fast", "free"]
    assert not (tmp_path / "slow").exists()
    rows = {row["name"]: row for row in rows_of(decision.result)}
    assert rows["fast"]["hz"] == pytest.approx([1000] * 3, rel=1e-3)
    assert rows["slow"]["hz"][0] == pytest.approx(1 / 1.3e-3, rel=1e-3)
    assert (rows["hopeless"]["hz"], rows["hopeless"]["status"]) == (None, "slower")


def test_who_ends_or_does_not_learn_in_time_has_lost(tmp_path):
    broken = program(tmp_path, "broken", 5e-4, last=130, code=1)
    never = program(tmp_path, "never", 1e-3, settled=-99_999, predicted=9.0)
    with raced([broken, never, program(tmp_path, "slow", 2e-3), program(tmp_path, "fast", 1e-3)], 2) as decision:
        assert (decision.winner.name, decision.result.ending) == ("fast", "decided")
    assert never.process.returncode == -signal.SIGKILL
    rows = {row["name"]: row for row in rows_of(decision.result)}
    assert {name: rows[name]["status"] for name in ("broken", "never")} == {"broken": "failed", "never": "failed"}
    assert "it broke" in rows["broken"]["reason"]
    assert rows["never"]["reason"] == "RuntimeError: had not begun to learn in time"


@pytest.mark.parametrize("last", [101, 150])  # before the first round, and after some
def test_a_run_that_takes_all_its_steps_has_won(tmp_path, last):
    programs = [program(tmp_path, "long", 5e-4), program(tmp_path, "short", 1e-3, last=last)]
    with raced(programs, 20) as decision:
        assert (decision.winner.name, decision.reason) == ("short", "one had taken all its steps")
        assert decision.winner.process.wait(0) == 0
        assert (decision.winner.folder / "output").read_text().split() == ["given", "short"]
        assert decision.result is None or decision.result.ending == "interrupted"
    assert gone([one.process.pid for one in programs])


def test_where_too_few_learn_the_best_predicted_trains_on(tmp_path):
    programs = [program(tmp_path, str(rate), 1e-3, settled=-10_000, predicted=rate) for rate in (2.0, 3.0)]
    with raced(programs, 0.5) as decision:
        assert (decision.winner.name, decision.result) == ("3.0", None)
        assert "begun to learn" in decision.reason
        assert decision.winner.process.wait(2) == 0


def test_what_memory_does_not_hold_races_in_a_later_wave(tmp_path, monkeypatch):
    monkeypatch.setattr(race_runs, "free_bytes", lambda: 10.0)
    times = {"a": 1.3e-3, "b": 1.2e-3, "best": 1e-3, "c": 1.4e-3}
    programs, held = [program(tmp_path, name, took, nbytes=5.0) for name, took in times.items()], list[int]()

    def progress(spent, left):
        held.append(sum(is_there(one.process.pid) for one in programs if one.process))

    with raced(programs, 20, progress) as decision:
        assert decision.winner.name == "best"
    assert max(held) == 2


def test_as_many_programs_as_cores_begin_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(race_runs, "count_allowed", lambda: 1)
    ends = program(tmp_path, "ends", 1e-3, settled=0, last=1, code=1)
    programs = [ends, program(tmp_path, "never", 1e-3, settled=-10_000), program(tmp_path, "last", 1e-3, predicted=9.0)]
    with raced(programs, 1.0) as decision:
        assert decision.winner.name == "never"
    assert programs[2].process is None


def test_rates_are_those_of_95_percent_of_the_turns():
    standing = Standing("one", "undecided", (0.1, 0.1, 0.1), (1.0, 0.9, math.inf))
    (row,) = rows_of(Result((standing,), "out of time", 1.0, {"one": {hz: 1 / hz for hz in range(1, 102)}}))
    assert row["hz"] == [51.0, 3.5, 98.5]
    assert row["ratio"] == [1.0, 0.9, None]


def test_a_program_without_a_gradient_step_in_its_turn_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(race_runs, "SILENT_SECONDS", 0.1)
    idle = program(tmp_path, "idle", 1e-3)
    idle.start()
    os.kill(idle.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(RuntimeError, match="no gradient step"):
            idle.turn(0.01)
    finally:
        idle.end()


def test_a_stop_begins_once_a_program_stands_still(tmp_path, monkeypatch):
    monkeypatch.setattr(race_runs, "LOOKS", 10_000)
    one = program(tmp_path, "one", 1e-3)
    one.start()
    paused, send = [], one.signal

    def late(number):
        paused.append(one.numbers[clock.PAUSED])
        threading.Timer(0.02, send, (number,)).start()

    one.signal, begin = late, time.perf_counter_ns()
    try:
        one.stop()
        assert one.stopped - begin >= 0.02e9
        one.go_on()
        assert paused[1] == one.numbers[clock.PAUSED] > paused[0]
    finally:
        one.signal = send
        one.end()


def test_ctrl_c_keeps_the_leader(tmp_path):
    programs = [program(tmp_path, name, 1e-3) for name in ("one", "other")]

    def interrupt(spent, left):
        if spent:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
    try:
        with raced(programs, 30, interrupt) as decision:
            assert decision.result.ending == "interrupted"
            assert decision.winner.process.wait(2) == 0
            assert gone([one.process.pid for one in programs], 0.0)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_leaves_no_process(tmp_path):
    """Fail in the context, or where the winner's folder is settled, or by programs that all end."""
    fast, slow = (
        [program(tmp_path / at, name, took) for name, took in (("fast", 1e-3), ("slow", 2e-3))] for at in "ab"
    )
    with pytest.raises(ZeroDivisionError), decided(fast, 20, settle=lambda winner: 1 / 0):
        pass
    with pytest.raises(ZeroDivisionError), decided(slow, 20):
        1 / 0  # noqa: B018
    ended = [program(tmp_path / "c", name, 1e-3, last=101, code=1) for name in ("one", "other")]
    with pytest.raises(ValueError, match="it broke"), raced(ended, 5):
        pass
    assert gone([one.process.pid for one in (*fast, *slow, *ended)])


RACER = """
import signal
import sys
from pathlib import Path
from dse import race_runs
from dse.race_runs import decided
from tests.system.test_race_runs import PARENT, program
signal.signal(signal.SIGHUP, signal.SIG_DFL)
race_runs.TURN_SECONDS = (0.01, 0.02)
programs = [program(Path(sys.argv[1]), name, 1e-3, by=PARENT) for name in ("one", "other", "third")]
race_runs.ZONE = 0.0
with decided(programs, 60, lambda spent, left: print(*[one.process.pid for one in programs], flush=True)):
    pass
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_whatever_ends_the_racer_leaves_no_process(tmp_path, number, code):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    racer = [sys.executable, "-c", textwrap.dedent(RACER), str(tmp_path)]
    made = subprocess.Popen(racer, stdout=subprocess.PIPE, text=True, env=environment)
    processes = [int(word) for word in made.stdout.readline().split()]
    assert len(processes) == 3
    assert all(map(is_there, processes))
    made.send_signal(number)
    assert made.wait(5) == code
    made.stdout.close()
    assert gone(processes)


def trained(folder, stops, *words):
    """The folder of a training run that was stopped so many times at random moments, and its summary."""
    out, moments = folder / "own" / "run", random.Random(1)
    command = [sys.executable, "-m", "impls.training", "train", "cartpole_dqn", "--out", str(out)]
    one = Program("run", [*command, "--test-episodes", "2", *words], "", out.parent)
    one.start()
    one.numbers[clock.FREE] = 1
    while not one.learns and one.process.poll() is None:
        time.sleep(0.01)
    for _ in range(stops):
        time.sleep(moments.uniform(0, 0.01))
        one.stop()
        time.sleep(moments.uniform(0, 0.005))
        one.go_on()
    assert one.process.wait(120) == 0, (out.parent / "output").read_text()
    return out, json.loads((out / "summary.json").read_text())


def test_a_stopped_serial_run_is_the_same_bit_for_bit(tmp_path):
    (stopped, rates), (unstopped, others) = (
        trained(tmp_path / str(stops), stops, "--steps", "1500") for stops in (30, 0)
    )
    files = [(folder / "episodes.csv").read_bytes() for folder in (stopped, unstopped)]
    weights = [checkpoint.load(folder / "checkpoint.pt")["loop"]["learner"] for folder in (stopped, unstopped)]
    assert files[0] == files[1]
    assert repr(weights[0]) == repr(weights[1])
    assert (rates["updates"], rates["test_mean"]) == (others["updates"], others["test_mean"])


BEST = """
import sys, threading, time, dse
def ask():
    print(dse.best(int(sys.argv[1]), 64, seconds=0.2, {}).capacity)
for one in [threading.Thread(target=ask) for _ in range(int(sys.argv[2]))]:
    one.start()
"""
STAYS = "progress=lambda *_: (print('racing', flush=True), time.sleep(600))"


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Begin a process that asks for the best tree of so many leaves, in an empty cache; nothing is compiled."""
    monkeypatch.setenv("FANOUT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    begun = []

    def start(capacity, more="", threads=1):
        words = [sys.executable, "-c", BEST.format(more), str(capacity), str(threads)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        begun.append(subprocess.Popen(words, cwd=ROOT, **pipes))
        return begun[-1]

    yield start
    for one in begun:
        one.kill()
        one.communicate()


def races(folder):
    return sum(len(path.read_text().splitlines()) for path in folder.rglob(race_trees.FILE))


def test_processes_and_threads_that_ask_at_once_each_get_a_tree(begin, tmp_path):
    asked = [begin(900), begin(900, threads=2), begin(800)]
    assert [one.communicate(timeout=120)[0] for one in asked] == ["900\n", "900\n" * 2, "800\n"]
    assert races(tmp_path) == 2  # one of each question


def test_a_killed_race_keeps_no_other_waiting(begin, tmp_path):
    first = begin(900, STAYS)
    assert first.stdout.readline() == "racing\n"
    second = begin(900)
    assert "waiting" in second.stderr.readline()
    first.send_signal(signal.SIGKILL)
    assert second.communicate(timeout=120)[0] == "900\n"
    assert races(tmp_path) == 1
