"""The clocks in a simulated time: what is inside a sample, and which inputs its calls see."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import clock
from benchmarks.cases import Case, Prepared
from benchmarks.clock import CallClock, SharedClock, StretchClock, clock_of
from benchmarks.timing import LEAST_SAMPLES, Timing, interleave

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
    timed = CallClock(device.call, 0.010, device.finish)
    for _ in range(3):
        assert timed.sample() * timed.calls_per_sample == pytest.approx(timed.calls_per_sample * ENQUEUED + LATE)


def test_calibration_counts_what_the_device_does_after_the_last_call(monkeypatch):
    device = Device(monkeypatch, late=0.020)
    assert CallClock(device.call, 0.010, device.finish).calls_per_sample == 1
    alone = Device(monkeypatch, late=0.0)
    assert CallClock(alone.call, 0.010, alone.finish).calls_per_sample == pytest.approx(100, rel=0.15)


def test_calibration_does_not_count_what_the_first_call_left_behind(monkeypatch):
    device = Device(monkeypatch, late=0.0)

    def compiles_first(turn):
        device.call(turn)
        if len(device.turns) == 1:
            device._idle = device.now + 9.0

    assert CallClock(compiles_first, 0.010, device.finish).calls_per_sample > 50


def test_a_prepared_case_waits_for_its_own_trees_device(monkeypatch):
    device = Device(monkeypatch)
    prepared = Prepared(Case("numpy", "draw", 10, 1), SimpleNamespace(synchronize=device.finish), device.call)
    timed = clock_of(prepared, 0.010)
    assert timed.sample() * timed.calls_per_sample == pytest.approx(timed.calls_per_sample * ENQUEUED + LATE)


def test_the_inputs_rotate_through_all_samples_each_turn_once(monkeypatch):
    device = Device(monkeypatch)
    timed = CallClock(device.call, 0.010, device.finish)
    device.turns.clear()
    for _ in range(3):
        timed.sample()
    assert device.turns == list(range(3 * timed.calls_per_sample))
    assert timed.calls_per_sample > 1


def test_a_stretch_rotates_the_inputs_too(monkeypatch):
    device = Device(monkeypatch)
    timed = StretchClock(device.call, 0.100, period=3)
    device.turns.clear()
    first = timed._turn
    seconds = [timed.sample() for _ in range(3)]
    assert device.turns == list(range(first, timed._turn))
    assert len(device.turns) >= 3 * 0.100 / ENQUEUED
    assert seconds == pytest.approx([ENQUEUED] * 3)


def test_a_call_takes_the_least_of_its_tries_wherever_that_stands(monkeypatch):
    device = Device(monkeypatch)

    def disturbed_later(turn):
        device.call(turn)
        device.now += 0.0 if len(device.turns) < 4 else 0.010

    assert StretchClock(disturbed_later, 1e-5).call_seconds == pytest.approx(ENQUEUED)


def test_threads_that_share_a_tree_make_each_turn_once():
    turns = []
    timed = SharedClock(turns.append, 2, 1e-5)
    turns.clear()
    for _ in range(3):
        timed.sample()
    assert sorted(turns) == list(range(3 * timed.calls_per_sample))


def test_threads_that_share_a_tree_are_timed_until_the_last_has_finished():
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


def rounds_of(order, count):
    return [tuple(order[at : at + count]) for at in range(0, len(order), count)]


def test_each_round_has_every_rival_once_in_an_order_of_its_own():
    order = []
    interleave([Rival(name, order) for name in "abc"], 0.0)
    rounds = rounds_of(order, 3)
    assert len(rounds) == LEAST_SAMPLES
    assert {tuple(sorted(one)) for one in rounds} == {("a", "b", "c")}
    assert len(set(rounds)) >= 3
    assert len({one[0] for one in rounds}) == 3  # none is always the first


def test_rounds_go_on_until_every_interval_is_narrow_or_the_budget_is_spent(monkeypatch):
    noisy = tuple(np.random.default_rng(0).uniform(1.0, 2.0, 97))
    order = []
    timings = interleave([Rival("steady", order), Rival("noisy", order, noisy)], 0.2)
    assert len(timings[0].samples) == len(timings[1].samples) > LEAST_SAMPLES
    assert len(interleave([Rival("steady", [])], 3600.0)[0].samples) == LEAST_SAMPLES
    assert interleave([], 1.0) == []


def test_a_timing_is_unstable_from_a_quarter_of_its_median_on():
    assert Timing((1.0,) * 5 + (1.2,) * 5, 1).interval.relative_width < 0.25
    assert not Timing((1.0,) * 5 + (1.2,) * 5, 1).is_unstable
    assert Timing((1.0,) * 5 + (1.4,) * 5, 1).is_unstable
