"""The sweep: what it writes, how it goes on after SIGKILL, and what it says when it cannot."""

import itertools
import json
import os
import random
import re
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
from benchmarks.nodes import make_topic
from benchmarks.timing import Timing
from dse.platforms import fingerprint
from dse.records import read_file
from tests.committed import ROOT
from tests.system.test_advice import parsers

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


def test_every_cell_is_a_record_and_a_second_run_measures_nothing(tmp_path, capsys, monkeypatch):
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


def test_the_sentinels_are_asked_at_the_start_and_after_every_group(tmp_path, monkeypatch, capsys):
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
    assert (
        len(looks)
        == sum(one.primitive == "sentinel" for one in found)
        == json.loads(capsys.readouterr().out)["aa_pairs"]
    )


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_sweep_killed_at_random_moments_loses_and_repeats_nothing(tmp_path, times):
    chance = random.Random(1)
    command = [sys.executable, "-c", ALONE, *arguments(tmp_path)]
    path = file_of(tmp_path)
    kept = []
    for _ in range(times):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        size = path.stat().st_size if path.exists() else 0
        while process.poll() is None and (not path.exists() or path.stat().st_size <= size):
            time.sleep(0.002)
        time.sleep(chance.random() * 0.5)
        process.send_signal(signal.SIGKILL)
        process.wait()
        lines = path.read_bytes().rpartition(b"\n")[0].splitlines()
        assert lines[: len(kept)] == kept
        kept = lines
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    found = read_file(path)
    assert path.read_bytes().splitlines()[: len(kept)] == kept
    counted = Counter(record.cell for record in found if record.primitive == "sum_tree")
    assert len(counted) == 24
    assert set(counted.values()) == {1}


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_keeps_what_is_done(tmp_path):
    # A shell's background job, as these tests may be, ignores Ctrl-C; whoever types it has no background job.
    listen = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code = listen + "runpy.run_module('benchmarks', run_name='__main__')"
    command = [sys.executable, "-c", code, *arguments(tmp_path, "--budget", "0.2", "--anyway")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    path = file_of(tmp_path)
    while process.poll() is None and not (path.exists() and path.stat().st_size):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "every finished cell is kept" in said
    assert "Traceback" not in said
    assert read_file(path)


@pytest.mark.parametrize(
    ("words", "cells", "swept"),  # of 64 cells an option and dtype, of 32 where two threads would do what one does
    [
        (["numba"], 64, {("numba", "{}")}),
        (["numpy"], 256, {("numpy", "{}"), ("numpy", "{'aligned': False}"), ("numpy", "{'padding': 'full'}")}),
        (["numba", "--options", "validate=False"], 64, {("numba", "{'validate': False}")}),
    ],
)
def test_a_named_tree_is_swept_with_its_own_variants_alone(words, cells, swept):
    axes = "--capacities 2e5 --batches 1,128 --fanouts 4,8,16,32 --threads 1,2 --ops draw,update,insert,step".split()
    asked = [case for group in make_topic("sweep", ["--contestants", *words, *axes]).cells() for case in group]
    assert {(case.contestant, repr(case.options)) for case in asked} == swept
    assert len(asked) == cells


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


@pytest.mark.parametrize("fault", [TypeError, AttributeError, IndexError, KeyError, ZeroDivisionError, AssertionError])
def test_a_fault_of_the_code_fails_the_cell_and_the_run_and_loses_no_other(fault, tmp_path, capsys, monkeypatch):
    prepare = sweep.prepare

    def faulty(case, *words):
        if (case.contestant, case.op) == ("cumsum", "draw"):
            raise fault("a mistake of ours")
        return prepare(case, *words)

    monkeypatch.setattr(sweep, "prepare", faulty)
    few = ["--capacities", "50", "--batches", "4", "--json"]
    for _ in range(2):  # found done, it fails the run all the same
        assert cli.main([*arguments(tmp_path), *few]) == 1
        said = capsys.readouterr()
        assert json.loads(said.out)["cells"] == 4
        assert said.err.splitlines()[-1].startswith(f"error: 1 cell failed, such as cumsum draw, {fault.__name__}: ")
    statuses = Counter((r.contestant, r.op, r.status) for r in read_file(file_of(tmp_path)) if r.median_seconds is None)
    assert statuses == {("cumsum", "draw", "failed"): 1}
    assert sum(r.primitive == "sum_tree" for r in read_file(file_of(tmp_path))) == 4


@pytest.mark.parametrize("refusal", [ValueError, RuntimeError, NotImplementedError, MemoryError])
def test_a_configuration_that_an_implementation_refuses_is_skipped_and_fails_nothing(refusal, tmp_path, monkeypatch):
    prepare = sweep.prepare

    def refusing(case, *words):
        if case.op == "draw":
            raise refusal("not here")
        return prepare(case, *words)

    monkeypatch.setattr(sweep, "prepare", refusing)
    assert cli.main([*arguments(tmp_path), "--capacities", "50"]) == 0
    found = read_file(file_of(tmp_path))
    assert {(one.status, one.reason) for one in found if one.op == "draw"} == {("skipped", "not here")}
    monkeypatch.undo()


def test_a_run_without_a_time_is_no_success_and_says_why(tmp_path, capsys, monkeypatch):
    def refusing(case, *words):
        raise RuntimeError("'numpy' needs the module 'numpy', which is not installed")

    monkeypatch.setattr(sweep, "prepare", refusing)
    for more in ([], ["--json"]):
        assert cli.main([*arguments(tmp_path), "--capacities", "50", *more]) == 2
        assert "'numpy', which is not installed" in capsys.readouterr().err.splitlines()[-1]
    assert len(read_file(file_of(tmp_path))) == 8  # each refusal once


def test_a_cell_too_long_for_a_budget_is_measured_with_a_longer_one_and_then_kept(tmp_path, capsys, monkeypatch):
    asked = [*arguments(tmp_path), "--contestants", "numpy", "--capacities", "50", "--batches", "4", "--json"]
    monkeypatch.setattr(sweep, "_call_seconds", lambda ready, longest: 0.01)
    told = []
    for budget in ("0.001", "0.1", "0.1"):
        code = cli.main([*asked, "--budget", budget])
        outcome = json.loads(capsys.readouterr().out)
        told.append((code, outcome["found_done"], outcome["measured_by_status"].get("skipped", 0)))
    assert told == [(2, 0, 2), (0, 0, 0), (0, 2, 0)]


def test_a_wrong_answer_fails_the_run(tmp_path, capsys, monkeypatch):
    def lying(case, *words):
        raise WrongAnswerError("4 of 4 answers are not the oracle's")

    monkeypatch.setattr(sweep, "prepare", lying)
    assert cli.main([*arguments(tmp_path), "--capacities", "50"]) == 1
    assert "8 cells failed, such as numpy draw, 4 of 4 answers are not the oracle's; see " in capsys.readouterr().err


def test_the_twin_of_a_cell_is_another_tree_timed_last_and_recorded_as_its_twin():
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


def test_whether_a_call_is_too_long_is_told_by_when_the_device_has_finished():
    late = SimpleNamespace(call=lambda turn: None, tree=SimpleNamespace(synchronize=lambda: time.sleep(0.005)))
    assert sweep._call_seconds(late, 1e-3) >= 0.005


def test_what_is_there_can_be_listed_and_exported(tmp_path, capsys):
    pytest.importorskip("pandas", reason="tables need pandas")
    cli.main(arguments(tmp_path, "--json"))
    capsys.readouterr()
    assert cli.main(["list", "--results", str(tmp_path), "--export", str(tmp_path / "all.csv")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["machine", "cpu", "primitive", "contestant", "op", "status", "cells"]
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 1 + len(read_file(file_of(tmp_path)))
    assert cli.main(["list", "--results", str(tmp_path), "--json"]) == 0
    assert sum(row["cells"] for row in json.loads(capsys.readouterr().out)) == 36


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sweep", "--preset", "quikc"], "quikc"),
        (["sweep", "--capacities", "many"], "many"),
        (["sweep", "--ops", "steal"], "no op 'steal'; there are sample"),
        (["sweep", "--fanotus", "3"], "--fanotus"),
        (["list", "--results", "nowhere"], "no records here; measure with"),
        (["forget"], "forget"),
    ],
)
def test_mistakes_are_one_sentence_and_not_exit_0(words, said, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    try:
        code = cli.main(words)
    except SystemExit as stop:  # argparse
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2
    assert said in error
    assert "Traceback" not in error


@pytest.mark.parametrize("options", ["nosuch=1", "padding=full,nosuch=1", "fanout=4"])
def test_an_option_that_no_tree_of_the_sweep_has_is_refused_before_anything_is_measured(options, tmp_path, capsys):
    assert cli.main([*arguments(tmp_path), "--options", "propagate=delta", "--options", options]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert options.rpartition(",")[2].partition("=")[0] in error
    assert "propagate of numpy" in error  # of the chosen trees, those that have it
    assert list(tmp_path.iterdir()) == []


def test_an_option_that_some_trees_have_is_measured_there_and_a_line_says_why_not_elsewhere(tmp_path, capsys):
    asked = ["--options", "padding=full", "--options", "validate=False", "--capacities", "50", "--batches", "4"]
    assert cli.main([*arguments(tmp_path), *asked]) == 0
    (told,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("skipped "))
    count = sum(one.status == "skipped" for one in read_file(file_of(tmp_path)))
    assert told.startswith(f"skipped {count} cells: 'cumsum' has no option 'padding'")


def test_a_results_folder_that_is_a_file_is_one_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(arguments(tmp_path / "file")) == 2
    assert capsys.readouterr().err.count("cannot be written") == 1


UNBOUNDED = {
    "sweep --fanouts 1": "K is at least 2, not 1",
    "sweep --capacities 10,0": "N is at least 1, not 0",
    "sweep --batches 0": "B is at least 1",
    "sweep --threads -1": "threads is at least 1, not -1",
    "sweep --dtypes float16": "no dtype 'float16'; there are float32, float64",
    "sweep --budget nan": "from 0 on",
    "run replay --batch 0": "batch is at least 1, not 0",
    "peers --batches 0": "B is at least 1, not 0",
    "run learning --depths -1": "D is at least 0, not -1",
    "run learning --seeds 10,011": "write 10011",
    "sweep --seed -1": "seed is at least 0, not -1",
    "sweep --capacities 1,000,000": "write 1000000",
    "sweep --batches 32,1,024": "write 1024",
    "run arrangements --long --steps 0": "steps is at least 1, not 0",
    "run loops --rounds 0": "rounds is at least 1, not 0",
    "compare HEAD HEAD --threshold nan": "from 0 on",
    "compare HEAD HEAD --detect -1": "from 0 on",
    "compare HEAD HEAD --fanouts 1": "K is at least 2, not 1",
    "sweep --budget inf": "from 0 on",
    "sweep --batches 64,64": "64 is given twice",
    "sweep --capacities 1e4,10000": "10000 is given twice",
    "sweep --contestants numpy,": "a value of 'numpy,' is empty",
    "sweep --options layout": "each KEY once, not 'layout'",
    "sweep --options layout=plain,layout=prefix": "each KEY once",
    "peers --contestants NUMBA": "did you mean 'numba'?",
}


def test_a_list_of_any_command_refuses_what_is_unknown_and_empty(capsys):
    every = [(parser, action) for _, parser in parsers() for action in parser._actions]
    lists = [(parser, one.option_strings[0]) for parser, one in every if "list of" in getattr(one.type, "__name__", "")]
    assert {"--contestants", "--only", "--strategies", "--buffers", "--hosts", "--batches"} <= {one for _, one in lists}
    known = [one for one in lists if one[1] not in ("--workload", "--workloads", "--python")]  # which may be files
    for (parser, option), value in itertools.product(known, ("nonesuch", "")):
        with pytest.raises(SystemExit):
            parser.parse_args([option, value])
        assert re.search(f"argument {option}: .*{value!r}", capsys.readouterr().err), parser.prog


@pytest.mark.parametrize("command", UNBOUNDED)
def test_an_axis_out_of_bounds_is_refused_at_once(capsys, command):
    with pytest.raises(SystemExit):
        cli.main(command.split())
    assert UNBOUNDED[command] in capsys.readouterr().err
