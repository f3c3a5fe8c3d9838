"""Throughput in published columns, and the five metrics of [Zhang2022]."""

import pytest

from impls.training import clock


def test_throughput_is_in_the_published_columns():
    # [Hou2023, Table 2]: two rows of its ACME break the rule, unless their columns are swapped.
    assert clock.Throughput(1.0, 0.593, 8192, 100.0).update_frame_hz == pytest.approx(4.9e3, rel=0.02)
    assert clock.Throughput(1.0, 39.8, 256, 100.0).update_frame_hz == pytest.approx(1.0e4, rel=0.02)
    found = clock.Stopwatch().read(10, 5, 64)
    assert found.row()["update_frame_hz"] == found.update_hz * 64
    assert found.gpu_percent is None


def test_the_five_metrics():
    assert clock.policy_quality([1.0] * 10) == 10.0
    steps, updates, returns = [10, 20, 30, 40], [1, 2, 3, 4], [5.0, 100.0, 20.0, 100.0]
    assert clock.sample_efficiency(steps, returns, 90) == 20
    assert clock.learning_efficiency(updates, returns, 90) == 2
    assert clock.sample_efficiency(steps, returns, 101) is None
    assert clock.computation_efficiency(300, 60.0) == 5.0
    assert clock.scaling_factor(18.0, 4, 5.0) == pytest.approx(0.9)


def test_what_is_paused_does_not_count(monkeypatch):
    times = iter([0.0, 1.0, 4.0, 6.0])  # made, paused from 1 to 4, read at 6
    monkeypatch.setattr(clock, "seconds", lambda: next(times))
    watch = clock.Stopwatch()
    with watch.paused():
        pass
    assert watch.read(30, 6, 64).sampling_hz == 10.0
