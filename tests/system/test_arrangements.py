"""Measuring: arrangements as they run, what --dry-run lists, several nodes; sweeps, which go on after SIGKILL."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import __main__ as cli
from benchmarks import sweep, topic
from benchmarks.__main__ import main
from benchmarks.cases import Case, WrongAnswerError
from benchmarks.clock import clock_of
from benchmarks.nodes import Driver, Greeting, LostError, Part
from benchmarks.timing import Timing
from benchmarks.topic import parser_for
from benchmarks.topics import arrangements as arranged
from benchmarks.topics.arrangements import PRIMITIVE, Mark, Run
from benchmarks.topics.profile.cells import shape_run
from dse.platforms import fingerprint
from dse.records import CELL, SENTINEL, read_file
from impls.training import TrainingError, load
from tests.committed import ROOT
from tests.made import make_timed
from tests.parallel_runs import until
from tests.profiled import stamp, write_workload
from tests.system.test_profile import NEEDED


def cell(name="apart", actors=2):
    shape = {"update_interval": 8, "actors": actors, "environments": 8, "presampled": 1}
    return arranged.make_cell(load("cartpole_dqn"), name, learner="torch", **shape)


def marks(count=4, step=0.5, actor=0.9, learner=0.2):
    """Marks half a second apart: 100 gradient steps each, two actors that work 0.9 of it each, one learner 0.2."""
    each = [(at, step * at) for at in range(count)]
    works = [{"actor": (2, 100 * at, 2 * actor * s), "learner": (1, 100 * at, learner * s)} for at, s in each]
    return tuple(Mark(s, 800 * at, 100 * at, work) for (at, s), work in zip(each, works, strict=True))


def run(**changes):
    return Run(marks(**changes), {"lead": 7, "lag": 1, "restarts": 0})


def test_a_run_tells_rates_work_and_its_bound():
    one = run()
    assert one.step_seconds == pytest.approx([0.005] * 3)
    assert (one.updates, one.steps, one.kinds) == (300, 2400, ("actor", "learner"))
    assert one.turn_seconds("actor") == pytest.approx([0.009] * 3)  # of 50 turns each, both at once
    assert one.turn_seconds("learner") == pytest.approx([0.001] * 3)
    assert one.bounds() == pytest.approx([0.0045] * 3)  # each actor works 0.45 s of the 0.5 s of 100 gradient steps
    assert one.busiest() == "actor"
    assert run(learner=0.95).busiest() == "learner"


def test_records_have_rate_bound_and_each_kinds_own_work():
    found = list(arranged.list_records(stamp(PRIMITIVE), cell(), run()))
    assert [(one.primitive, one.op) for one in found] == [
        (PRIMITIVE, op) for op in ("rate", "bound", "actor turn", "learner step")
    ]
    rate = found[0]
    assert rate.median_seconds == pytest.approx(0.005)
    assert (rate.metrics["gradient_steps"], rate.metrics["steps"], rate.metrics["report"]["lead"]) == (300, 2400, 7)
    (row,) = arranged.compare_rates(found)
    assert (row["hz"], row["bound_hz"], row["share"]) == pytest.approx((200, 1 / 0.0045, 0.9))
    assert (row["busiest"], row["unstable"]) == ("actor", False)
    assert "cartpole_dqn" in "\n".join(arranged.write_rates([row]))


class Loop:
    """A loop whose gradient steps come every second advance; ``silent`` processes never take a turn."""

    def __init__(self, silent=()):
        self.updates = self.step = self.advances = 0
        self.workload, self.arrangement = shape_run(load("cartpole_dqn"), cell().options)
        self.board, self._silent = SimpleNamespace(rows=np.zeros((3, 8), np.int64)), silent

    def advance(self):
        self.advances += 1
        assert self.advances < 1_000
        self.step += 1
        self.updates = self.advances // 2
        if self.advances > 6:
            rows = [row for row in range(3) if row not in self._silent]
            self.board.rows[rows, 1] += 1


def test_a_stretch_is_of_whole_gradient_steps_of_all(monkeypatch):
    loop = Loop()
    arranged.begin(loop)
    assert loop.advances == 7
    mark = arranged.until(loop, 0.0)
    assert (mark.updates, mark.steps) == (4, 8)
    assert mark.work["actor"][:2] == (2, 4)
    assert arranged.until(loop, time.perf_counter()).steps == 10  # not at 9, where none had ended
    monkeypatch.setattr(arranged, "START_SECONDS", -1.0)
    with pytest.raises(TrainingError, match="took no turn"):
        arranged.begin(Loop(silent=(2,)))


def measure_made_up(monkeypatch, tmp_path, capsys, *words, faulty=()):
    """The command's JSON, with made-up runs; the settings that ran, in order."""
    ran = []

    def make_samples(workload, cell, read):
        ran.append(cell.options["arrangement"])
        if ran[-1] in faulty:
            raise TrainingError("actor 0 was ended from outside")
        return run() if ran[-1] != "serial" else Run(tuple(Mark(at, at, at, {}) for at in range(3)))

    monkeypatch.setattr(arranged, "time_run", make_samples)
    monkeypatch.setattr(arranged.Arrangements, "has_sentinels", False)
    code = cli.main(["run", "arrangements", *words, "--results", str(tmp_path), "--json"])
    return code, json.loads(capsys.readouterr().out), ran


def test_the_command_goes_on_and_tries_again_what_failed(tmp_path, monkeypatch, capsys):
    words = ("--workload", "cartpole_dqn", "--intervals", "8")
    code, first, ran = measure_made_up(monkeypatch, tmp_path, capsys, *words, faulty=("pipelined",))
    assert (code, first["cells"], len(ran)) == (1, 16, 16 + 1)  # and the twin of the first
    assert first["measured_by_status"] == {"ok": 8, "failed": 8}
    assert first["aa_pairs"] == 1
    assert {row["arrangement"] for row in first["rates"]} == {"serial", "apart"}
    code, second, ran = measure_made_up(monkeypatch, tmp_path, capsys, *words)
    assert (code, second["found_done"], {*ran}) == (0, 8, {"pipelined"})
    code, third, ran = measure_made_up(monkeypatch, tmp_path, capsys, *words)
    assert (third["found_done"], ran) == (16, [])
    assert {row["arrangement"] for row in third["rates"]} == {*arranged.DEPTHS}


# The kept ratio


def test_a_long_run_tells_lead_lag_and_the_ratio_of_its_parts(tmp_path, monkeypatch, capsys):
    def make_samples(workload, cell, read):
        off = 1.004 if cell.options["arrangement"] == "apart" else 1.02
        parts = tuple(Mark(at, round(off * 1_000 * at), 1_000 * at, {}) for at in range(11))
        return Run(parts, {"lead": 9, "lag": 3, "restarts": 0})

    monkeypatch.setattr(arranged, "time_run", make_samples)
    words = "run arrangements --long --workload cartpole_dqn --steps 10000 --results".split()
    assert cli.main([*words, str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "0.40%" in text and "2.00%" in text
    assert cli.main([*words, str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    told = [(row["arrangement"], row["most"], row["steps"]) for row in found["long"]]
    assert (found["found_done"], told) == (2, [("apart", 9, 10_040), ("pipelined", 9, 10_200)])


# For real


@NEEDED
def test_arrangements_run_for_real_and_give_cores_back(tmp_path):
    before = os.sched_getaffinity(0)
    words = ["--workload", str(write_workload(tmp_path)), "--seconds", "0.3", "--warm", "0.01", "--results", "made"]
    topic = arranged.Arrangements(parser_for(arranged.Arrangements).parse_args(words))
    for name in ("serial", "apart"):
        found = list(topic.measure([arranged.make_cell(topic._workloads[0], name)]))
        assert {record.status for record in found} <= {"ok", "unstable"}
        ops = [record.op for record in found]
        assert ops == (["rate"] if name == "serial" else ["rate", "bound", "learner step", "actor turn"])
        rate = found[0]
        assert len(rate.samples_seconds) == arranged.STRETCHES
        assert abs(rate.metrics["steps"] - 2 * rate.metrics["gradient_steps"]) <= 2 + 1 + 1
        assert os.sched_getaffinity(0) == before


WORKLOADS = {
    "compare": "BASE NEW",
    "profile": "--workload cartpole_dqn",
    "run share": "--workload cartpole_dqn",
    "run adapt": "--workload cartpole_dqn",
}
SMALL = (
    "sweep --preset smoke --contestants numpy --capacities 64,100 --batches 4 --fanouts 4,8 --budget 0.01 --no-floor",
    "run replay --only operations --buffers prioritized_buffer --capacity 500 --sample 0.001 --budget 0 --no-sentinels",
)


def test_cells_are_listed_once_and_nothing_is_done(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.workers.Worker.__init__", lambda *_, **__: pytest.fail("a process was started"))
    monkeypatch.chdir(tmp_path)  # where no other library's environment is
    for line in ("compare", "sweep", "run plugins --learning", "profile --arrangements"):
        words = [*line.split(), *WORKLOADS.get(line.removesuffix(" --arrangements"), "").split(), "--dry-run"]
        assert main(words) == 0, line
        printed, said = capsys.readouterr()
        assert len(lines := printed.splitlines()) == len(set(printed.splitlines())) > 1, line
        assert said.startswith(f"{len(lines):,} cells, 0 of them cached"), line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", SMALL)
def test_records_have_the_keys_that_were_listed(line, tmp_path, capsys):
    words = [*line.split(), "--results", str(tmp_path), "--json"]
    assert main([*words, "--dry-run"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert main(words) == 0
    (path,) = tmp_path.glob("*/*.jsonl")
    made = {record.cell for record in read_file(path) if not record.primitive.endswith(("_again", SENTINEL))}
    assert made == {json.dumps([cell[name] for name in CELL], sort_keys=True) for cell in listed}
    capsys.readouterr()
    assert main([*words, "--dry-run"]) == 0
    assert f"{len(made)} of them cached" in capsys.readouterr().err


STAMP = ("c0ffee", False, "made up")
EVIDENCE = {"code": "same"}


def record_of(key, op, seconds=1e-5, primitive="sum_tree", node=""):
    cell = {"contestant": "numba", "op": op, "capacity": 1000, "batch": 32, "primitive": primitive}
    machine, how = {"key": key, "evidence": EVIDENCE}, {"calls_per_sample": 1, "command": "made up", "commit": "c0ffee"}
    utc = f"2026-11-01T00:00:00.{time.monotonic_ns()}"
    return make_timed(seconds, **cell, **how, utc=utc, machine=machine, facts={"node": node})


GROUPS = [[record_of("", f"{group}-{cell}").cell for cell in range(3)] for group in range(8)]
NAMES = {record_of("", f"{group}-{cell}").cell: f"{group}-{cell}" for group in range(8) for cell in range(3)}


class Fake:
    """A node that takes ``seconds`` a group and is lost in group ``lost_at``; its sentinel takes ``level`` seconds."""

    def __init__(self, name, key="aaaa", seconds=0.02, lost_at=None, level=None, code="ours", load=""):
        self.name, self._key, self._seconds, self._lost_at, self._level = name, key, seconds, lost_at, level
        self._code, self._load, self.measured = code, load, 0

    def greet(self):
        part = Part({"key": self._key, "evidence": EVIDENCE}, "sum_tree", True, GROUPS)
        return Greeting(self._code, self._load, "quick.jsonl", [part])

    def measure(self, place, keys, seconds):
        time.sleep(self._seconds)
        if self.measured == self._lost_at:
            raise LostError("it was killed")
        self.measured += 1
        found = [record_of(self._key, NAMES[key], node=self.name) for key in keys]
        if self._level:
            found.append(record_of(self._key, "draw", self._level, "sentinel", node=self.name))
        return [record.to_json() for record in found]


def measure(tmp_path, *nodes, find=None, resumes=True):
    said = []
    driver = Driver(tmp_path, "ours", STAMP, resumes, said.append)
    driver.run(find or (lambda: nodes))
    return driver.works, said


def cells_of(tmp_path, key="aaaa"):
    return Counter(NAMES[one.cell] for one in read_file(tmp_path / key / "quick.jsonl") if one.cell in NAMES)


ONCE = dict.fromkeys(NAMES.values(), 1)
SLOW = {"fast": {"level": 1e-5, "seconds": 0.2}, "slow": {"level": 1.5e-5, "seconds": 0.3}}
TROUBLES = {
    "no trouble": ({"a": {}, "b": {}, "c": {}}, "a b c", []),
    "two are lost": ({"a": {"lost_at": 1}, "b": {"seconds": 0.05}, "c": {"lost_at": 0}}, "a b", ["a is", "c is"]),
    "a group is under way": ({"a": {"seconds": 1.0, "lost_at": 0}, "b": {"seconds": 0.001}}, "b", ["a is lost"]),
    "other code": ({"a": {}, "b": {"code": "older"}}, "a", ["b is left out: its code is another"]),
    "a busy node": ({"a": {}, "b": {"load": "load is 9 on 2 cores"}}, "a", ["b is left out: load is 9"]),
    "a slow node": (SLOW, "fast", ["slow stops"]),
}
"""Nodes by name, those whose times are kept, and what is said of others."""


@pytest.mark.parametrize("trouble", TROUBLES)
def test_nodes_measure_each_cell_once_whatever_happens(tmp_path, trouble):
    nodes, kept, facts = TROUBLES[trouble]
    made = [Fake(name, **how) for name, how in nodes.items()]
    works, said = measure(tmp_path, *made)
    assert cells_of(tmp_path) == ONCE
    assert (works["aaaa"].tally.cells, works["aaaa"].tally.left) == (24, 0)
    found = [one for one in read_file(tmp_path / "aaaa" / "quick.jsonl") if one.primitive == "sum_tree"]
    assert {one.facts["node"] for one in found} == {*kept.split()}
    told = sorted(line for line in said if line.startswith("node ") and "of 24 cells" not in line)
    assert [fact in line for fact, line in zip(facts, told, strict=True)] == [True] * len(facts), told
    if not facts:
        tally = works["aaaa"].tally
        assert (tally.resumed, tally.by_status["ok"]) == (0, 24)
        assert len([line for line in said if "of 24 cells" in line]) == 8
    assert not any(one.measured for one in made if one._code == "older" or one._load)


def test_what_is_left_is_measured_by_the_next_command(tmp_path):
    works, _ = measure(tmp_path, Fake("a", lost_at=2), Fake("b", lost_at=1))
    assert works["aaaa"].tally.left == 24 - 3 * 3
    works, _ = measure(tmp_path, Fake("c"))
    assert (works["aaaa"].tally.resumed, works["aaaa"].tally.left) == (9, 0)
    assert cells_of(tmp_path) == ONCE
    works, _ = measure(tmp_path, Fake("d"))
    assert works["aaaa"].tally.resumed == 24
    assert cells_of(tmp_path) == ONCE


def test_a_node_that_joins_takes_part(tmp_path):
    late, begun = Fake("late"), time.monotonic()

    def find():
        return [Fake("first", seconds=0.9)] if time.monotonic() - begun < 1 else [Fake("first"), late]

    measure(tmp_path, find=find)
    assert late.measured
    assert cells_of(tmp_path) == ONCE


def test_machines_of_other_kinds_have_files_of_their_own(tmp_path):
    works, _ = measure(tmp_path, Fake("a"), Fake("b", key="bbbb"), Fake("c", key="bbbb"))
    assert works.keys() == {"aaaa", "bbbb"}
    assert cells_of(tmp_path, "aaaa") == cells_of(tmp_path, "bbbb") == ONCE
    assert {one.machine_key for one in read_file(tmp_path / "bbbb" / "quick.jsonl")} == {"bbbb"}


@pytest.mark.parametrize(("answer", "facts"), [(None, "no such tree"), ([json.dumps({"run": {}})], "node a:1")])
def test_a_fault_of_the_measuring_ends_the_command(tmp_path, answer, facts):
    class Faulty(Fake):
        def measure(self, place, keys, seconds):
            if answer is None:
                raise ValueError("no such tree")
            return answer

    with pytest.raises(Exception, match=facts):
        measure(tmp_path, Faulty("a"), Fake("b", seconds=0.3))


# Sweeps


AXES = "--capacities 50,60,70 --batches 4,8 --fanouts 4 --ops draw,update --budget 0.001 --no-floor".split()


# A sweep as a process, without sentinels: what they find disturbed is measured twice.
ALONE = (
    "import sys; from benchmarks import __main__ as cli, topic; from dse.platforms import checkout; "
    "from benchmarks.clock import clock_of; clock_of.__defaults__ = (5e-4,); "
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
