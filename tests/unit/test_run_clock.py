"""The clock of a run, which stands still while a race keeps the run stopped; rates as they are published, metrics."""

import importlib
import re
from pathlib import Path

import pytest

from impls.training import clock


@pytest.fixture
def raced(monkeypatch, tmp_path):
    """The clock of a run that races, and its numbers."""
    path = tmp_path / "turns"
    path.write_bytes(bytes(8 * clock.COUNT))
    monkeypatch.setenv(clock.TURNS, str(path))
    yield importlib.reload(clock), clock.numbers_of(path)
    monkeypatch.delenv(clock.TURNS)
    importlib.reload(clock)


def test_time_stopped_does_not_count(raced):
    own, numbers = raced
    before = own.seconds()
    numbers[own.PAUSED] = 100_000_000_000
    assert -100 <= own.seconds() - before < -99
    assert own.seconds() == pytest.approx(own.nanoseconds() / 1e9, abs=1e-3)


def test_a_run_races_until_it_is_free(raced):
    own, numbers = raced
    assert own.is_raced()
    numbers[own.FREE] = 1
    assert not own.is_raced()


def test_a_race_reads_what_a_run_tells(raced):
    own, numbers = raced
    for count in (1, 7):
        own.publish_progress(count, 3, 0.5)
        assert own.read_progress(numbers) == (count, 3, 500_000_000)


def test_what_is_told_by_halves_is_not_read(raced):
    own, numbers = raced
    own.publish_progress(7, 3, 0.5)
    numbers[own.ENTRIES + 3 * (1 - numbers[own.LATEST]) + 1] = 4
    assert own.read_progress(numbers) == (7, 3, 500_000_000)


def test_a_run_of_no_race_keeps_time_and_tells_nobody(monkeypatch, tmp_path):
    monkeypatch.setenv(clock.TURNS, str(tmp_path / "gone"))
    own = importlib.reload(clock)
    own.publish_progress(7, 3, 0.5)
    assert not own.is_raced()
    assert own.seconds() > 0


def test_runs_read_no_other_clock():
    """A limit by another clock would run out while a race keeps the run stopped."""
    folder = Path(clock.__file__).parent
    reading = [
        path.name for path in folder.rglob("*.py") if re.search(r"time\.(monotonic|perf_counter)", path.read_text())
    ]
    assert sorted(reading) == ["clock.py", "run.py"]  # which shows progress by it


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
