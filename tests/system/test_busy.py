"""Load from other processes: commands that measure say so and measure nothing, or mark what they measure."""

import os

import pytest

from benchmarks.__main__ import main
from dse.__main__ import main as dse
from dse.platforms import checkout, fingerprint
from dse.records import LOAD, read_file, read_folder

SMOKE = ("sweep", "--preset", "smoke", "--contestants", "flat", "--capacities", "1000", "--batches", "32", "--no-floor")


@pytest.fixture
def loaded(monkeypatch):
    """Make the machine one of two cores with this average load and so many processes that run at each look."""

    def put(average, *running):
        looks = iter(running)
        monkeypatch.setattr(os, "cpu_count", lambda: 2)
        monkeypatch.setattr(os, "getloadavg", lambda: (average, 0.0, 0.0))
        monkeypatch.setattr(checkout, "_count_running", lambda: next(looks))
        checkout.read_load.cache_clear()

    yield put
    checkout.read_load.cache_clear()


@pytest.mark.parametrize(
    ("average", "running", "load"),
    [
        (0.4, (), 0.0),  # nobody asks what runs
        (2.0, (0,) * 11, 0.0),  # the command before has ended
        (40.0, (40,) * 11, 40.0),
        (3.0, (5,) * 6 + (0,) * 5, 3.0),
        (3.0, (5,) * 5 + (1,) * 6, 0.0),  # a process a core at most, for moments
    ],
)
def test_load_is_what_runs_for_a_minute_and_at_this_moment(loaded, average, running, load):
    loaded(average, *running)
    assert checkout.read_load() == load == checkout.read_load()


def test_a_process_of_ones_own_is_no_load_to_itself(monkeypatch, tmp_path):
    (tmp_path / "loadavg").write_text("9.00 8.00 7.00 5/300 1234\n")
    monkeypatch.setattr(checkout, "PROCESSES", tmp_path / "loadavg")
    monkeypatch.setattr(checkout, "EVERY_SECONDS", 0.0)
    assert checkout._count_running() == 4


def test_a_system_that_tells_no_moment_may_have_a_process_of_ours_on_each_core(loaded, monkeypatch, tmp_path):
    monkeypatch.setattr(checkout, "PROCESSES", tmp_path / "none")
    for average, load in ((2.5, 0.0), (6.0, 4.0)):
        loaded(average)
        assert checkout.read_load() == load
    monkeypatch.delattr(os, "getloadavg")
    checkout.read_load.cache_clear()
    assert checkout.read_load() == 0.0


@pytest.mark.parametrize("command", [SMOKE, ("profile", "--workload", "cartpole_dqn"), ("compare", "HEAD~1", "HEAD")])
def test_nothing_is_measured_under_load(loaded, tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    loaded(40.0, *[40] * 11)
    assert main([*command]) == checkout.BUSY_EXIT_CODE == 75
    assert capsys.readouterr().err.startswith("error: load is 40 on 2 cores: not measuring")
    assert dse(["platform", "probe", "--out", "probed.toml"]) == checkout.BUSY_EXIT_CODE
    assert [*tmp_path.iterdir()] == []


def test_what_does_not_measure_is_done_under_load(loaded, tmp_path):
    loaded(40.0, *[40] * 11)
    file = tmp_path / "records.jsonl"
    file.write_text("")
    assert main(["list", "--results", str(tmp_path)]) == 2  # no records there
    assert main(["compare", str(file), str(file)]) != checkout.BUSY_EXIT_CODE
    with pytest.raises(SystemExit) as ended:
        main(["profile", "--help"])
    assert ended.value.code == 0


def test_what_is_measured_anyway_is_marked_and_measured_again_without_load(loaded, tmp_path, capsys):
    command = [*SMOKE, "--results", str(tmp_path), "--anyway"]
    loaded(40.0, *[40] * 11)
    assert main(command) == 0
    path = tmp_path / fingerprint()["key"] / "smoke-custom.jsonl"
    marked = read_file(path)
    assert {one.machine[LOAD] for one in marked} == {40.0}
    told = capsys.readouterr()
    assert "load is 40 on 2 cores: measuring all the same" in told.err
    assert "disturbed run" in told.out
    assert main(command) == 0  # under load still, all is there
    assert read_file(path) == marked
    loaded(0.0)
    capsys.readouterr()
    assert main(command) == 0
    assert "measuring all the same" not in capsys.readouterr().err
    counting = [one for one in read_folder(tmp_path) if not one.primitive.endswith("_again")]
    assert counting
    assert not any(LOAD in one.machine for one in counting)
