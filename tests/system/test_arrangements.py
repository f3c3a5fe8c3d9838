"""Measuring: arrangements as they run, what --dry-run lists, and what becomes of it on several nodes."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import __main__ as cli
from benchmarks.__main__ import main
from benchmarks.nodes import Driver, Greeting, LostError, Part
from benchmarks.topic import parser_for
from benchmarks.topics import arrangements as arranged
from benchmarks.topics.arrangements import PRIMITIVE, Mark, Run
from benchmarks.topics.profile.cells import shape_run
from dse.records import CELL, SENTINEL, read_file
from impls.training import TrainingError, load
from tests import cells
from tests.budget import ROOT, commands
from tests.made import make_timed
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


MEASURING = {
    name.removeprefix("benchmarks "): options
    for name, options in commands().items()
    if name.startswith("benchmarks ") and name.split()[1:] not in (["list"], ["import"], ["run"])
}
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


def test_each_measuring_command_has_the_flag_and_kept_cells():
    assert {name for name, options in MEASURING.items() if "--dry-run" not in options} == set()
    kept = json.loads(cells.FILE.read_text())
    assert all(any(line.startswith(name) for line in kept) for name in MEASURING)


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


@pytest.mark.slow  # a run before each landing compares them as well
def test_the_cells_are_those_that_were_kept():
    done = subprocess.run([sys.executable, "-m", "tests.cells"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_change_of_any_cell_is_listed():
    for changed in ("aa", "aba", "baa", "aaaa"):
        before, after = ({"sweep": cells.sum_up([{"op": name} for name in names])} for names in ("aaa", changed))
        assert "python -m benchmarks sweep --dry-run" in "".join(cells.list_changes(before, after))
        assert not list(cells.list_changes(before, before))


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


def test_three_nodes_measure_each_cell_once(tmp_path):
    nodes = [Fake(name) for name in "abc"]
    works, said = measure(tmp_path, *nodes)
    assert cells_of(tmp_path) == ONCE
    assert all(node.measured for node in nodes)
    tally = works["aaaa"].tally
    assert (tally.cells, tally.resumed, tally.by_status["ok"], tally.left) == (24, 0, 24, 0)
    assert len([line for line in said if "of 24 cells" in line]) == 8


def test_the_group_of_a_lost_node_goes_to_another(tmp_path):
    works, said = measure(tmp_path, Fake("a", lost_at=1), Fake("b", seconds=0.05), Fake("c", lost_at=0))
    assert cells_of(tmp_path) == ONCE
    assert works["aaaa"].tally.left == 0
    assert sorted(line for line in said if "lost" in line) == [
        "node a is lost: it was killed",
        "node c is lost: it was killed",
    ]


def test_what_is_left_is_measured_by_the_next_command(tmp_path):
    works, _ = measure(tmp_path, Fake("a", lost_at=2), Fake("b", lost_at=1))
    assert works["aaaa"].tally.left == 24 - 3 * 3
    works, _ = measure(tmp_path, Fake("c"))
    assert (works["aaaa"].tally.resumed, works["aaaa"].tally.left) == (9, 0)
    assert cells_of(tmp_path) == ONCE
    works, _ = measure(tmp_path, Fake("d"))
    assert works["aaaa"].tally.resumed == 24
    assert cells_of(tmp_path) == ONCE


def test_a_group_under_way_is_waited_for(tmp_path):
    slow = Fake("slow", seconds=1.0, lost_at=0)
    works, _ = measure(tmp_path, slow, Fake("fast", seconds=0.001))
    assert works["aaaa"].tally.left == 0
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


@pytest.mark.parametrize(
    ("how", "why"), [({"code": "older"}, "its code is another"), ({"load": "load is 9 on 2 cores"}, "load is 9")]
)
def test_a_node_that_cannot_be_trusted_is_left_out(tmp_path, how, why):
    other = Fake("other", **how)
    _, said = measure(tmp_path, Fake("a"), other)
    assert other.measured == 0
    assert any(line.startswith("node other is left out") and why in line for line in said)
    assert cells_of(tmp_path) == ONCE


def test_a_slow_node_stops_and_its_times_do_not_count(tmp_path):
    _, said = measure(tmp_path, Fake("fast", level=1e-5, seconds=0.2), Fake("slow", level=1.5e-5, seconds=0.3))
    assert cells_of(tmp_path) == ONCE
    assert any(line.startswith("node slow stops") for line in said)
    kept = [one for one in read_file(tmp_path / "aaaa" / "quick.jsonl") if one.primitive == "sum_tree"]
    assert {one.facts["node"] for one in kept} == {"fast"}


@pytest.mark.parametrize(("answer", "facts"), [(None, "no such tree"), ([json.dumps({"run": {}})], "node a:1")])
def test_a_fault_of_the_measuring_ends_the_command(tmp_path, answer, facts):
    class Faulty(Fake):
        def measure(self, place, keys, seconds):
            if answer is None:
                raise ValueError("no such tree")
            return answer

    with pytest.raises(Exception, match=facts):
        measure(tmp_path, Faulty("a"), Fake("b", seconds=0.3))


def test_two_commands_do_not_write_one_file(tmp_path):
    first = threading.Thread(target=measure, args=(tmp_path, Fake("a", seconds=0.3)))
    first.start()
    time.sleep(0.4)
    with pytest.raises(Exception, match="another command is writing it"):
        measure(tmp_path, Fake("b"))
    first.join()
    assert cells_of(tmp_path) == ONCE
