"""The sweep: what it writes, how it goes on after SIGKILL, and what it says when it cannot."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as cli
from benchmarks import sweep, topic
from benchmarks.cases import Case, WrongAnswerError
from benchmarks.clock import clock_of
from benchmarks.timing import Timing
from dse.platforms import fingerprint
from dse.records import read_file
from tests.committed import ROOT
from tests.parallel_runs import until

AXES = "--capacities 50,60,70 --batches 4,8 --fanouts 4 --ops draw,update --budget 0.001 --no-floor".split()


# A sweep as a process, without sentinels: what they find disturbed is measured twice.
ALONE = (
    "import sys; from benchmarks import __main__ as cli, topic; from dse.platforms import checkout; "
    "topic.Sentinels = checkout.read_load = lambda: None; sys.exit(cli.main(sys.argv[1:]))"
)


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Samples of half a millisecond, and no sentinels, for runs within this process."""
    monkeypatch.setattr(clock_of, "__defaults__", (5e-4,))
    monkeypatch.setattr(topic, "Sentinels", lambda: None)


def arguments(results, *more):
    return ["sweep", "--preset", "smoke", "--contestants", "numpy,cumsum", *AXES, "--results", str(results), *more]


def file_of(results, name="smoke-custom"):
    return results / fingerprint()["key"] / f"{name}.jsonl"


def test_every_cell_is_a_record_and_a_second_run_times_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmarks/__main__.py", "sweep"])
    assert cli.main(arguments(tmp_path, "--json")) == 0
    first = json.loads(capsys.readouterr().out)
    found = read_file(file_of(tmp_path))
    cells = [record for record in found if record.primitive == "sum_tree"]
    assert first["cells"] == len(cells) == 2 * 3 * 2 * 2
    assert first["aa_pairs"] == len(found) - len(cells) == 3 * 2 * 2
    for record in found:
        assert record.source == "measured"
        assert record.status in ("ok", "unstable")
        assert len(record.samples_seconds) >= 11
        assert record.low_seconds <= record.median_seconds <= record.high_seconds
        assert record.machine["key"] == fingerprint()["key"]
        assert record.facts["affinity"]
        assert record.run.command.startswith("python -m") or "pytest" in record.run.command
        assert record.utc
    assert cli.main(arguments(tmp_path, "--json")) == 0
    second = json.loads(capsys.readouterr().out)
    assert (second["found_done"], second["measured_by_status"]) == (24, {})
    assert read_file(file_of(tmp_path)) == found


def test_sentinels_are_asked_at_the_start_and_after_every_group(tmp_path, monkeypatch, capsys):
    looks = []

    class Watching:
        def visit(self, timed):
            yield timed(Case("numba", "draw", 8, 4), Timing((1.0,), 1), primitive="sentinel")

        def look(self):
            looks.append(1)

        def disturbed(self):
            return []

    monkeypatch.setattr(topic, "Sentinels", Watching)
    assert cli.main([*arguments(tmp_path), "--json"]) == 0
    found = read_file(file_of(tmp_path))
    assert found[0].primitive == "sentinel"
    pairs = json.loads(capsys.readouterr().out)["aa_pairs"]
    assert len(looks) == sum(record.primitive == "sentinel" for record in found) == pairs


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_sweep_killed_at_any_moment_loses_and_repeats_nothing(tmp_path):
    command = [sys.executable, "-c", ALONE, *arguments(tmp_path)]
    path = file_of(tmp_path)
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: process.poll() is not None or (path.exists() and path.stat().st_size))
    time.sleep(random.Random(1).random() * 0.5)
    process.kill()
    process.wait()
    kept = path.read_bytes().rpartition(b"\n")[0].splitlines()
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert path.read_bytes().splitlines()[: len(kept)] == kept
    counted = Counter(record.cell for record in read_file(path) if record.primitive == "sum_tree")
    assert (len(counted), set(counted.values())) == (24, {1})


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_keeps_what_is_done(tmp_path):
    # A shell's background job, as these tests may be, ignores Ctrl-C; whoever types it has no background job.
    listen = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code = listen + "runpy.run_module('benchmarks', run_name='__main__')"
    command = [sys.executable, "-c", code, *arguments(tmp_path, "--budget", "0.2", "--anyway")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    path = file_of(tmp_path)
    until(lambda: process.poll() is not None or (path.exists() and path.stat().st_size))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "every finished cell is kept" in said
    assert "Traceback" not in said
    assert read_file(path)


def test_cells_that_cannot_run_are_records_with_reasons(tmp_path, capsys):
    more = ["--contestants", "flat,numpy,python", "--threads", "1,2", "--capacities", "50", "--options", "padding=full"]
    assert cli.main([*arguments(tmp_path), *more, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured_by_status"]["skipped"] > 0
    reasons = {(r.contestant, r.threads): r.reason for r in read_file(file_of(tmp_path)) if r.status == "skipped"}
    assert "no option 'padding'" in reasons["flat", 1]
    assert "threads must be 1, not 2" in reasons["numpy", 2]
    assert ("numpy", 1) not in reasons
    lists = ["--contestants", "python", "--capacities", "100000000", "--ops", "draw"]
    assert cli.main([*arguments(tmp_path), *lists, "--name", "lists", "--json"]) == 2
    assert all("filling it takes about 120 s" in record.reason for record in read_file(file_of(tmp_path, "lists")))


FAULTS = (TypeError, AttributeError, IndexError, KeyError, ZeroDivisionError, AssertionError, WrongAnswerError)
REFUSALS = (ValueError, RuntimeError, NotImplementedError, MemoryError)


def raise_by_batch(monkeypatch, errors):
    """Let cells of the batch 1 + n raise the n-th of these errors, and be timed beyond."""
    prepare = sweep.prepare

    def raising(case, *words):
        if case.batch <= len(errors):
            raise errors[case.batch - 1](f"that of {case.batch}")
        return prepare(case, *words)

    monkeypatch.setattr(sweep, "prepare", raising)


def test_a_fault_fails_its_cell_and_the_run_and_a_refusal_skips(tmp_path, capsys, monkeypatch):
    errors = (*FAULTS, *REFUSALS)
    raise_by_batch(monkeypatch, errors)
    few = "--contestants numpy --capacities 50 --ops draw --json --batches 12,1,2,3,4,5,6,7,8,9,10,11".split()
    for _ in range(2):  # found done, a fault fails the run all the same
        assert cli.main([*arguments(tmp_path), *few]) == 1
        said = capsys.readouterr()
        assert json.loads(said.out)["cells"] == 12
        assert said.err.splitlines()[-1].startswith(f"error: {len(FAULTS)} cells failed, such as numpy draw, ")
    found = {record.batch: record for record in read_file(file_of(tmp_path)) if record.primitive == "sum_tree"}
    assert {batch: record.status for batch, record in found.items() if batch < 12} == {
        batch: "failed" if error in FAULTS else "skipped" for batch, error in enumerate(errors, 1)
    }
    assert found[12].seconds > 0 and all(f"that of {batch}" in found[batch].reason for batch in range(1, 12))


@pytest.mark.parametrize(
    ("error", "batches", "code"), [(WrongAnswerError, "1", 1), (ValueError, "1", 2), (ValueError, "1,2", 0)]
)
def test_a_run_without_a_time_is_no_success_and_says_why(error, batches, code, tmp_path, capsys, monkeypatch):
    raise_by_batch(monkeypatch, [error])
    few = ["--contestants", "numpy", "--capacities", "50", "--batches", batches]
    for more in ([], ["--json"]):
        assert cli.main([*arguments(tmp_path), *few, *more]) == code
        assert ("that of 1" in capsys.readouterr().err) == (code > 0)
    untimed = [record for record in read_file(file_of(tmp_path)) if record.median_seconds is None]
    assert len(untimed) == 2  # of a draw and an update, each once


def test_a_cell_too_long_for_a_budget_is_measured_with_another(tmp_path, capsys, monkeypatch):
    asked = [*arguments(tmp_path), "--contestants", "numpy", "--capacities", "50", "--batches", "4", "--json"]
    monkeypatch.setattr(sweep, "_call_seconds", lambda ready, longest: 0.01)
    told = []
    for budget in ("0.001", "0.1", "0.1"):
        code = cli.main([*asked, "--budget", budget])
        outcome = json.loads(capsys.readouterr().out)
        told.append((code, outcome["found_done"], outcome["measured_by_status"].get("skipped", 0)))
    assert told == [(2, 0, 2), (0, 0, 0), (0, 2, 0)]


def test_the_twin_of_a_cell_is_another_tree_and_is_timed_last():
    cases = [Case(name, "draw", 50, 4) for name in ("numpy", "cumsum", "flat")]
    seen = []

    class Steady(sweep.Sweep):
        primitive = "made_up"

        def time(self, prepared):
            seen.append(prepared)
            seconds = float(len(seen))  # of each its own
            return SimpleNamespace(calls_per_sample=1, sample=lambda: seconds)

    found = list(Steady(SimpleNamespace(budget=60.0, seed=0)).measure(cases))
    assert [(one.contestant, one.primitive, one.seconds) for one in found] == [
        ("numpy", "made_up", 1.0),
        ("cumsum", "made_up", 2.0),
        ("flat", "made_up", 3.0),
        ("numpy", "made_up_again", 4.0),
    ]
    trees = {id(prepared.tree) for prepared in seen}
    assert len(trees) == len({id(prepared.call) for prepared in seen}) == 4
    assert seen[3].case == seen[0].case


def test_a_call_is_as_long_as_the_device_works():
    late = SimpleNamespace(call=lambda turn: None, tree=SimpleNamespace(synchronize=lambda: time.sleep(0.005)))
    assert sweep._call_seconds(late, 1e-3) >= 0.005
