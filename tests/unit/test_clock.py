"""Clocks in a simulated time: those of benchmarks, what is inside a sample, its inputs; and that of a training run."""

import importlib
import re
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import clock
from benchmarks.cases import Case, Prepared
from benchmarks.clock import CallClock, SharedClock, StretchClock, clock_of
from benchmarks.timing import LEAST_SAMPLES, Timing, interleave
from impls.training import clock as training

LATE = 0.005  # seconds after the last call at which the device has finished
ENQUEUED = 1e-4  # seconds for which a call keeps the host


class Device:
    """A device in simulated time: a call returns at once, its work is done later, and only waiting shows it."""

    def __init__(self, monkeypatch, late=LATE):
        self.now, self.turns, self._late = 0.0, [], late
        self._idle = 0.0  # when the device has finished
        monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def call(self, turn):
        self.turns.append(turn)
        self.now += ENQUEUED
        self._idle = max(self._idle, self.now + self._late)

    def finish(self):
        self.now = max(self.now, self._idle)


def test_a_sample_lasts_until_the_device_has_finished(monkeypatch):
    device = Device(monkeypatch)
    prepared = Prepared(Case("numpy", "draw", 10, 1), SimpleNamespace(synchronize=device.finish), device.call)
    for timed in (CallClock(device.call, 0.010, device.finish), clock_of(prepared, 0.010)):
        device.turns.clear()
        for _ in range(3):
            assert timed.sample() * timed.calls_per_sample == pytest.approx(timed.calls_per_sample * ENQUEUED + LATE)
        assert device.turns == list(range(3 * timed.calls_per_sample))  # the inputs rotate
    assert timed.calls_per_sample > 1


def test_calibration_counts_what_the_device_does_at_the_end(monkeypatch):
    device = Device(monkeypatch, late=0.020)
    assert CallClock(device.call, 0.010, device.finish).calls_per_sample == 1
    alone = Device(monkeypatch, late=0.0)
    assert CallClock(alone.call, 0.010, alone.finish).calls_per_sample == pytest.approx(100, rel=0.15)


def test_calibration_does_not_count_what_the_first_call_does(monkeypatch):
    device = Device(monkeypatch, late=0.0)

    def compile_first(turn):
        device.call(turn)
        if len(device.turns) == 1:
            device._idle = device.now + 9.0

    assert CallClock(compile_first, 0.010, device.finish).calls_per_sample > 50


def test_a_stretch_rotates_the_inputs_too(monkeypatch):
    device = Device(monkeypatch)
    timed = StretchClock(device.call, 0.100, period=3)
    device.turns.clear()
    first = timed._turn
    seconds = [timed.sample() for _ in range(3)]
    assert device.turns == list(range(first, timed._turn))
    assert len(device.turns) >= 3 * 0.100 / ENQUEUED
    assert seconds == pytest.approx([ENQUEUED] * 3)


def test_a_call_takes_the_least_of_its_tries(monkeypatch):
    device = Device(monkeypatch)

    def disturb_later(turn):
        device.call(turn)
        device.now += 0.0 if len(device.turns) < 4 else 0.010

    assert StretchClock(disturb_later, 1e-5).call_seconds == pytest.approx(ENQUEUED)


def test_threads_that_share_a_tree_make_each_turn_once():
    turns = []
    timed = SharedClock(turns.append, 2, 1e-5)
    turns.clear()
    for _ in range(3):
        timed.sample()
    assert sorted(turns) == list(range(3 * timed.calls_per_sample))


def test_threads_are_timed_until_the_last_has_finished():
    timed = SharedClock(lambda turn: time.sleep(0.02 if turn == 1 else 0.0), 2, 1e-9)
    assert timed.calls_per_sample == 2
    assert timed.sample() >= 0.01  # turns 0 and 1, beside each other: wall time over both calls


class Rival:
    """A clock that notes when it is asked."""

    calls_per_sample = 1

    def __init__(self, name, order, seconds=(1.0,)):
        self._name, self._order, self._seconds, self._samples = name, order, seconds, 0

    def sample(self):
        self._order.append(self._name)
        self._samples += 1
        return self._seconds[self._samples % len(self._seconds)]


def test_each_round_has_every_rival_once_in_its_own_order():
    order = []
    interleave([Rival(name, order) for name in "abc"], 0.0)
    rounds = [tuple(order[at : at + 3]) for at in range(0, len(order), 3)]
    assert len(rounds) == LEAST_SAMPLES
    assert {tuple(sorted(names)) for names in rounds} == {("a", "b", "c")}
    assert len(set(rounds)) >= 3
    assert len({names[0] for names in rounds}) == 3  # none is always the first


def test_rounds_go_on_until_every_interval_is_narrow():
    """Or the budget is spent."""
    noisy = tuple(np.random.default_rng(0).uniform(1.0, 2.0, 97))
    timings = interleave([Rival("steady", []), Rival("noisy", [], noisy)], 0.2)
    assert len(timings[0].samples) == len(timings[1].samples) > LEAST_SAMPLES
    assert len(interleave([Rival("steady", [])], 3600.0)[0].samples) == LEAST_SAMPLES
    assert interleave([], 1.0) == []


def test_a_timing_is_unstable_from_a_quarter_of_its_median_on():
    for slower, is_unstable in ((1.2, False), (1.4, True)):
        assert Timing((1.0,) * 5 + (slower,) * 5, 1).is_unstable == is_unstable


# A training run, whose clock stands still while a race keeps the run stopped


@pytest.fixture
def raced(monkeypatch, tmp_path):
    """The clock of a run that races, and its numbers."""
    path = tmp_path / "turns"
    path.write_bytes(bytes(8 * training.COUNT))
    monkeypatch.setenv(training.TURNS, str(path))
    yield importlib.reload(training), training.numbers_of(path)
    monkeypatch.delenv(training.TURNS)
    importlib.reload(training)


def test_a_run_races_until_it_is_free_and_no_stop_counts(raced):
    own, numbers = raced
    before = own.seconds()
    numbers[own.PAUSED] = 100_000_000_000
    assert -100 <= own.seconds() - before < -99
    assert own.seconds() == pytest.approx(own.nanoseconds() / 1e9, abs=1e-3)
    assert own.is_raced()
    numbers[own.FREE] = 1
    assert not own.is_raced()


def test_a_race_reads_whole_what_a_run_publishes(raced):
    own, numbers = raced
    for count in (1, 7):
        own.publish_progress(count, 3, 0.5)
        assert own.read_progress(numbers) == (count, 3, 500_000_000)
    numbers[own.ENTRIES + 3 * (1 - numbers[own.LATEST]) + 1] = 4  # half of the next
    assert own.read_progress(numbers) == (7, 3, 500_000_000)


def test_a_run_of_no_race_keeps_time_and_publishes_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv(training.TURNS, str(tmp_path / "gone"))
    own = importlib.reload(training)
    own.publish_progress(7, 3, 0.5)
    assert not own.is_raced()
    assert own.seconds() > 0


def test_runs_read_no_other_clock():
    """A limit by another clock would run out while a race keeps the run stopped."""
    files = Path(training.__file__).parent.rglob("*.py")
    reading = [path.name for path in files if re.search(r"time\.(monotonic|perf_counter)", path.read_text())]
    assert sorted(reading) == ["clock.py", "run.py"]  # which shows progress by it


def test_throughput_is_in_the_published_columns(monkeypatch):
    # [Hou2023, Table 2]: two rows of its ACME break the rule, unless their columns are swapped.
    assert training.Throughput(1.0, 0.593, 8192, 100.0).update_frame_hz == pytest.approx(4.9e3, rel=0.02)
    assert training.Throughput(1.0, 39.8, 256, 100.0).update_frame_hz == pytest.approx(1.0e4, rel=0.02)
    times = iter([0.0, 1.0, 4.0, 6.0])  # made, paused from 1 to 4, read at 6
    monkeypatch.setattr(training, "seconds", lambda: next(times))
    watch = training.Stopwatch()
    with watch.paused():
        pass
    found = watch.read(30, 6, 64)
    assert (found.sampling_hz, found.gpu_percent) == (10.0, None)
    assert found.row()["update_frame_hz"] == found.update_hz * 64


def test_the_five_metrics():
    assert training.policy_quality([1.0] * 10) == 10.0
    steps, updates, returns = [10, 20, 30, 40], [1, 2, 3, 4], [5.0, 100.0, 20.0, 100.0]
    assert training.sample_efficiency(steps, returns, 90) == 20
    assert training.learning_efficiency(updates, returns, 90) == 2
    assert training.sample_efficiency(steps, returns, 101) is None
    assert training.computation_efficiency(300, 60.0) == 5.0
    assert training.scaling_factor(18.0, 4, 5.0) == pytest.approx(0.9)
