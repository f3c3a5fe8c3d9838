"""Arrangements as they run: stretches and bounds of made-up loops, records, the kept ratio; one real run."""

import json
import os
import time
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import __main__ as cli
from benchmarks.topic import parser_for
from benchmarks.topics import arrangements as arranged
from benchmarks.topics.arrangements import PRIMITIVE, Mark, Run
from benchmarks.topics.profile import concurrent_parts
from benchmarks.topics.profile.cells import shape_run
from dse.records import read_file
from impls.training import TrainingError, load
from tests.committed import RESULTS
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


def test_a_run_tells_rates_work_and_the_bound_of_its_busiest_kind():
    one = run()
    assert one.step_seconds == pytest.approx([0.005] * 3)
    assert (one.updates, one.steps, one.kinds) == (300, 2400, ("actor", "learner"))
    assert one.turn_seconds("actor") == pytest.approx([0.009] * 3)  # of 50 turns each, both at once
    assert one.turn_seconds("learner") == pytest.approx([0.001] * 3)
    assert one.bounds() == pytest.approx([0.0045] * 3)  # each actor works 0.45 s of the 0.5 s of 100 gradient steps
    assert one.busiest() == "actor"
    assert run(learner=0.95).busiest() == "learner"


def test_a_serial_loop_has_a_rate_and_no_bound():
    one = Run(tuple(Mark(at, at, at, {}) for at in range(3)))
    assert (one.bounds(), one.busiest(), one.kinds) == ((), "", ())
    assert [record.op for record in arranged.list_records(stamp(PRIMITIVE), cell("serial"), one)] == ["rate"]


def test_a_cell_has_the_options_by_which_its_workload_is_shaped():
    made = cell()
    workload, arrangement = shape_run(load("cartpole_dqn"), made.options)
    assert (workload.actors.count, workload.actors.environments, workload.replay.presampled) == (2, 8, 1)
    assert (workload.learner.batch, workload.learner.update_interval) == (64, 8)
    assert (arrangement.name, arrangement.learners, arrangement.ratio) == ("apart", 1, "kept")
    assert (made.options["learner"], made.options["policy"]) == ("torch", "torch")
    assert (made.op, made.batch, made.capacity) == ("rate", 64, 50_000)
    with pytest.raises(TrainingError, match="apart"):
        cell("apartt")


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


def test_the_table_says_which_is_fastest_and_how_near_the_best_parallel_one_is():
    serial = Run(tuple(Mark(0.4 * at, 800 * at, 100 * at, {}) for at in range(4)))
    found = [
        *arranged.list_records(stamp(PRIMITIVE), cell(), run()),
        *arranged.list_records(stamp(PRIMITIVE), cell("serial", 1), serial),
        *arranged.list_records(stamp(PRIMITIVE), cell(actors=1), run(step=0.6)),
    ]
    text = "\n".join(arranged.write_rates(arranged.compare_rates(found)))
    assert "cartpole_dqn, update interval 8: gradient steps/s" in text
    assert "the fastest is serial with E = 8; the best parallel one, apart with 2 actors, E = 8, reaches 90% of" in text


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


def test_a_stretch_ends_with_a_gradient_step_and_begins_when_all_have_had_a_turn(monkeypatch):
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


def test_a_window_goes_on_until_it_has_two_gradient_steps(monkeypatch):
    loop, looks = Loop(), iter(range(1_000))
    clock = SimpleNamespace(perf_counter=lambda: loop.advances + 1e-9 * next(looks))
    monkeypatch.setattr(concurrent_parts, "time", clock)
    samples = concurrent_parts._Reading(loop, 0.5).samples(is_free=False)
    assert samples.keys() == {"rate", "learner step", "actor turn"}
    assert samples["rate"] == pytest.approx([2.0] * concurrent_parts.WINDOWS)


def test_no_gradient_step_within_the_limit_is_an_error(monkeypatch):
    loop = Loop()
    monkeypatch.setattr(loop, "advance", lambda: None)
    monkeypatch.setattr(arranged, "START_SECONDS", 0.01)
    with pytest.raises(TrainingError, match="took no gradient step"):
        arranged.until(loop, 0.0)


def measure(monkeypatch, tmp_path, capsys, *words, faulty=()):
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


def test_the_command_goes_on_where_it_stopped_and_tries_again_what_failed(tmp_path, monkeypatch, capsys):
    words = ("--workload", "cartpole_dqn", "--intervals", "8")
    code, first, ran = measure(monkeypatch, tmp_path, capsys, *words, faulty=("pipelined",))
    assert (code, first["cells"], len(ran)) == (1, 16, 16 + 1)  # and the twin of the first
    assert first["measured_by_status"] == {"ok": 8, "failed": 8}
    assert first["aa_pairs"] == 1
    assert {row["arrangement"] for row in first["rates"]} == {"serial", "apart"}
    code, second, ran = measure(monkeypatch, tmp_path, capsys, *words)
    assert (code, second["found_done"], {*ran}) == (0, 8, {"pipelined"})
    code, third, ran = measure(monkeypatch, tmp_path, capsys, *words)
    assert (third["found_done"], ran) == (16, [])
    assert {row["arrangement"] for row in third["rates"]} == {*arranged.DEPTHS}


# The kept ratio


def test_a_long_run_tells_lead_lag_and_the_ratio_of_its_parts(tmp_path, monkeypatch, capsys):
    def make_samples(workload, cell, read):
        off = 1.004 if cell.options["arrangement"] == "apart" else 1.02
        parts = tuple(Mark(at, round(off * 1_000 * at), 1_000 * at, {}) for at in range(11))
        return Run(parts, {"lead": 9, "lag": 3, "restarts": 0})

    monkeypatch.setattr(arranged, "time_run", make_samples)
    words = [
        "run",
        "arrangements",
        "--long",
        "--workload",
        "cartpole_dqn",
        "--steps",
        "10000",
        "--results",
        str(tmp_path),
    ]
    assert cli.main(words) == 0
    text = capsys.readouterr().out
    assert "at most 9 steps ahead of the ratio (9 allowed) and 3 behind it" in text
    assert "off by at most 0.40% (within 1%)" in text
    assert "off by at most 2.00% (beyond 1%)" in text
    assert cli.main([*words, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["found_done"] == 2
    assert [(row["arrangement"], row["most"], row["steps"]) for row in again["long"]] == [
        ("apart", 9, 10_040),
        ("pipelined", 9, 10_200),
    ]


# For real


@NEEDED
def test_serial_and_apart_run_for_real_and_the_cores_are_given_back(tmp_path):
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


def test_a_long_run_has_a_mark_after_each_tenth_of_its_steps():
    assert [mark.steps for mark in arranged.read_tenths(Loop(), 100)] == [2, *range(14, 105, 10)]


def test_shipped_records_of_arrangements_are_read():
    """Whatever is measured is read by the same names."""
    for path in RESULTS.glob("*/arrangements.jsonl"):
        assert arranged.compare_rates(read_file(path))
