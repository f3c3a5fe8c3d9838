"""The loop that measures goes on and repeats nothing; model rollouts; clocks of benchmarks and of a training run."""

import dataclasses
import importlib
import json
import re
import sys
import time
from argparse import Namespace
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import clock
from benchmarks.__main__ import main
from benchmarks.cases import Case, Prepared
from benchmarks.clock import CallClock, SharedClock, StretchClock, clock_of
from benchmarks.libraries import rows as own_rows
from benchmarks.run import Stamp, Tally, run, show
from benchmarks.tables import MOST_ROWS, compare_fastest, write_fastest
from benchmarks.timing import LEAST_SAMPLES, Timing, interleave
from benchmarks.topic import parser_for
from benchmarks.topics import share
from benchmarks.topics.replay import command, worker
from benchmarks.topics.replay.cells import COMPILED, IN_PYTHON, STEP_PARTS, TRAINED, Plan
from benchmarks.workers import Untimed
from dse import records
from dse.platforms import checkout
from dse.records import RecordError, read_file
from impls.replay import SegmentedReplay
from impls.training import clock as training
from impls.training import load
from impls.training.weights import layout_of
from tests.made import make_record
from tests.oracles.naive_replay import Naive

CODE = {"code": "c0de"}
QUIET, SHOWN = (Namespace(json=is_quiet, dry_run=False) for is_quiet in (True, False))


# Made-up cells: their numbers.


MADE_UP = {"key": "x", "gpus": [], "python": "3.11.7", "packages": {"numpy": "2.4.6"}, "evidence": CODE}


def stamp(**fields):
    return dataclasses.replace(Stamp("c0ffee", False, "made up", "made_up", MADE_UP), **fields)


def record(number, by=None, **fields):
    made = by or stamp()
    named = {"source": "measured", "status": "ok", "contestant": str(number), "op": "op", "capacity": 1, "batch": 1}
    named |= {"primitive": made.primitive, "commit": made.commit, "machine": made.machine, "median_seconds": 1.0}
    return make_record(**(named | fields))


def run_numbers(path, *found, by=None, options=SHOWN, **how):
    """A run over groups of numbers; returns its tally and the numbers that were measured."""
    measured = []

    def measure(todo):
        for number in todo:
            measured.append(number)
            yield record(number, by)
        yield record(todo[0], by, primitive="made_up_again", median_seconds=1.1)

    tally = run(found, path, by or stamp(), measure, options, name=lambda number: record(number).cell, **how)
    return tally, measured


def test_only_what_was_asked_for_counts_and_twins_are_pairs(tmp_path):
    tally, measured = run_numbers(tmp_path / "a.jsonl", [1, 2], [3])
    assert (tally.cells, tally.resumed, tally.by_status, measured) == (3, 0, {"ok": 3}, [1, 2, 3])
    assert tally.pairs == [(1.0, 1.1), (1.0, 1.1)]
    tally, measured = run_numbers(tmp_path / "a.jsonl", [1, 2, 4], [3])
    assert (tally.resumed, tally.by_status, measured) == (3, {"ok": 1}, [4])


OTHERS = {
    "nothing": {},
    "GPUs": {"gpus": ["one"]},
    "Python": {"python": "3.8.1"},
    "NumPy": {"packages": {"numpy": "1.20.0"}},
    "machine": {"key": "y"},
    "code": {"evidence": {"code": "beef"}},
    "CPUs": {"evidence": {**CODE, "cpus": 1}},
    "budget": {"evidence": {**CODE, "asked": {"budget": 2.0}}},
    "setting": {"evidence": {**CODE, "settings": {"NUMBA_OPT": "0"}}},
    "libraries": {"evidence": {**CODE, "libraries": "0123"}},
    "workload": {"workload": {"steps": 2}},
}


def test_records_by_whatever_changes_a_number_are_not_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    for other in OTHERS.values():
        tally, measured = run_numbers(path, [1, 2], by=stamp(machine={**MADE_UP, **other}))
        assert (tally.resumed, measured) == (0, [1, 2])
    assert len(read_file(path)) == 3 * len(OTHERS)
    assert run_numbers(path, [1, 2, 3], by=stamp(commit="beef", dirty=True))[1] == [3]  # of the same code


def test_records_without_evidence_answer_nothing(tmp_path):
    old = stamp(machine={key: fact for key, fact in MADE_UP.items() if key != "evidence"})
    run_numbers(tmp_path / "a.jsonl", [1], by=old)
    for by in (stamp(), old):
        assert run_numbers(tmp_path / "a.jsonl", [1], by=by)[1] == [1]
    theirs = {**MADE_UP, "evidence": {**CODE, "libraries": "0123"}}  # in which versions of another environment stand
    run_numbers(tmp_path / "b.jsonl", [1], by=stamp(machine={**theirs, "packages": {"ray": "2.60.0"}}))
    assert run_numbers(tmp_path / "b.jsonl", [1], by=stamp(machine=theirs))[1] == []


CHECKOUT = {
    "benchmarks/timing.py": "from impls import trees\nfrom .topics.replay.clock import tick\n"
    "from dse.platforms import memory",
    "benchmarks/topics/replay/clock.py": 'WORKER = "benchmarks.topics.peers.worker"',
    "benchmarks/topics/peers/worker.py": "def work(): import impls.training.loop",
    "benchmarks/reporting.py": "one = 1",
    "impls/__init__.py": "one = 1",
    "impls/trees/__init__.py": '"""Trees."""',
    "impls/trees/tree.py": 'def find(leaf):\n    """Find it."""\n    return leaf',
    "impls/trees/kernel.cu": "one",
    "impls/training/loop.py": "one = 1",
    "impls/queues/queue.py": "one = 1",
    "dse/platforms/memory.py": "one = 1",
    "dse/tree.py": "import benchmarks.reporting",
    "tests/test_tree.py": "one = 1",
}


def hash_of(folder, **changes):
    """The hash of the code that the clock of a checkout reaches, with some files' texts replaced."""
    for name, text in {**CHECKOUT, **changes}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    checkout.hash_code.cache_clear()
    return checkout.hash_code("benchmarks.timing", folder)


REACHED = [
    ("benchmarks/timing.py", CHECKOUT["benchmarks/timing.py"] + "\ntwo = 2"),
    ("benchmarks/topics/replay/clock.py", 'WORKER, two = "benchmarks.topics.peers.worker", 2'),
    ("benchmarks/topics/replay/new.py", "one = 1"),
    ("benchmarks/topics/peers/worker.py", "def work(): import impls.training.loop as training"),
    ("impls/__init__.py", "one = 2"),
    ("impls/trees/tree.py", 'def find(leaf):\n    """Find it."""\n    return 2 * leaf'),
    ("impls/trees/below/new.py", "one = 1"),
    ("impls/trees/kernel.cu", "two"),
    ("impls/training/loop.py", "one = 1.0"),
    ("dse/platforms/memory.py", "one = 2"),
]


UNREACHED = [
    ("impls/trees/tree.py", '# Why.\n\ndef find(leaf):\n    """Return the leaf."""\n\n    return (\n        leaf)'),
    ("impls/trees/__init__.py", ""),
    ("impls/trees/README.md", "Trees."),
    ("impls/trees/._tree.py", "one = 1"),
    ("impls/queues/queue.py", "one = 2"),
    ("benchmarks/reporting.py", "one = 2"),
    ("dse/tree.py", "one = 2"),
    ("tests/test_tree.py", "one = 2"),
]


def test_only_an_edit_of_code_that_a_clock_reaches_is_other_code(tmp_path):
    before = hash_of(tmp_path / "before")
    for number, (name, text) in enumerate(REACHED + UNREACHED):
        is_reached = number < len(REACHED)
        assert (hash_of(tmp_path / str(number), **{name: text}) != before) == is_reached, (name, text)
    half, more = (hash_of(tmp_path, **{"impls/trees/tree.py": f"def find(leaf:{end}"}) for end in ("", " "))
    assert half != more  # of a file that is being written the text counts


def test_evidence_has_what_is_installed_and_what_is_set(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_OPT", "1")
    monkeypatch.setenv("NUMBA_CACHE_DIR", "somewhere")
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    (packages / "ray-2.1.dist-info").mkdir(parents=True)
    first = checkout.evidence_here("benchmarks.run", [tmp_path / "bin" / "python"], budget=0.5)
    assert (first["asked"], first["settings"]["NUMBA_OPT"]) == ({"budget": 0.5}, "1")
    assert "NUMBA_CACHE_DIR" not in first["settings"]
    (packages / "ray-2.1.dist-info").rename(packages / "ray-2.2.dist-info")
    second = checkout.evidence_here("benchmarks.run", [tmp_path / "bin" / "python"], budget=0.5)
    assert second == {**first, "libraries": second["libraries"]} != first
    monkeypatch.setattr(checkout, "fingerprint", lambda: {"python": "3.8.1", "packages": {}})  # ours run beside them
    third = checkout.evidence_here("benchmarks.run", [tmp_path / "bin" / "python"], budget=0.5)
    assert third["libraries"] != second["libraries"]
    assert "libraries" not in checkout.evidence_here("benchmarks.run")


@pytest.mark.parametrize("status", ["skipped", "failed"])
def test_what_was_refused_is_tried_again_and_kept_once(tmp_path, status):
    path = tmp_path / "a.jsonl"
    refusal = record(1, status=status, median_seconds=None, reason="NUMBA_DISABLE_JIT is set")
    for reasons in (1, 1):
        run([[1]], path, stamp(), lambda todo: [refusal], QUIET, name=lambda number: record(number).cell)
        assert len(read_file(path)) == reasons
    other = dataclasses.replace(refusal, reason="not enough memory")
    run([[1]], path, stamp(), lambda todo: [other], QUIET, name=lambda number: record(number).cell)
    assert [one.reason for one in read_file(path)] == [refusal.reason, other.reason]
    assert run_numbers(path, [1])[1] == [1]
    assert run_numbers(path, [1])[1] == []


def test_the_end_leaves_every_group_but_the_first_measured(tmp_path):
    tally, measured = run_numbers(tmp_path / "a.jsonl", [1, 2], [3], [4, 5], most_seconds=0.0)
    assert (measured, tally.left) == ([1, 2], 3)
    assert len(tally.unfinished) == 1
    tally, measured = run_numbers(tmp_path / "a.jsonl", [1, 2], [3], [4, 5], most_seconds=0.0)
    assert (measured, tally.resumed, tally.left) == ([3], 2, 2)


def test_a_timing_whose_interval_is_wide_is_recorded_as_unstable():
    case = Case("numpy", "draw", 10, 1)
    steady, shaky = Timing((1.0,) * 11, 5), Timing((1.0,) * 6 + (2.0,) * 5, 5)
    assert [stamp().timed(case, one).status for one in (steady, shaky)] == ["ok", "unstable"]
    found = stamp().timed(case, shaky, {"affinity": [0]}, {"steps": 7})
    assert (found.low_seconds, found.median_seconds, found.high_seconds) == (1.0, 1.0, 2.0)
    assert (found.samples_seconds, found.calls_per_sample) == (shaky.samples, 5)
    assert (found.machine, found.facts, found.metrics) == (MADE_UP, {"affinity": [0]}, {"steps": 7})


def test_what_failed_fails_until_a_later_record_says_otherwise(tmp_path):
    path = tmp_path / "a.jsonl"
    with records.Writer(path) as writer:
        for number in (1, 2, 7):
            writer.append(record(number, status="failed", median_seconds=None, reason="a mistake"))
        writer.append(record(2))
    tally, measured = run_numbers(path, [1, 2], [3])
    assert (tally.failures, measured) == ([], [1, 3])

    def failing(todo):
        return [record(number, status="failed", median_seconds=None, reason="a mistake") for number in todo]

    tally = run([[2, 7]], path, stamp(), failing, QUIET, name=lambda number: record(number).cell)
    assert tally.failures == ["7 op, a mistake"]  # not 1, which was not asked for


def test_whatever_ends_it_each_finished_cell_is_on_disk(tmp_path):
    def interrupted(todo):
        yield record(todo[0])
        raise KeyboardInterrupt

    path = tmp_path / "a.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run([[1, 2]], path, stamp(), interrupted, QUIET, name=lambda number: record(number).cell)
    assert [one.contestant for one in read_file(path)] == ["1"]
    with path.open("a") as file:
        file.write('{"run":{"schema":3,"comm')  # as a kill leaves a line
    with pytest.warns(UserWarning, match="the last line is torn"):
        tally, measured = run_numbers(path, [1, 2])
    assert (tally.resumed, measured) == (1, [2])
    assert [one.contestant for one in read_file(path)][:2] == ["1", "2"]


def test_a_file_that_holds_something_else_is_left_as_it_is(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("no records\nat all")
    with pytest.raises(RecordError, match="not a JSON object"), pytest.warns(UserWarning, match="torn"):
        run_numbers(path, [1])
    assert path.read_text() == "no records\nat all"


def test_a_report_is_words_or_json(tmp_path, capsys):
    tally = Tally(2, resumed=1, by_status=Counter(ok=1), pairs=[(1.0, 1.3)], reasons=Counter({"not here": 1}))
    assert show(tally, tmp_path, QUIET) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.pop("noise_floor") == pytest.approx(0.262, abs=1e-3)
    counts = {"cells": 2, "found_done": 1, "measured_by_status": {"ok": 1}, "measured_again": 0, "left": 0}
    counts |= {"skipped_by_reason": {"not here": 1}, "aa_pairs": 1}
    assert found == {"file": str(tmp_path), **counts, "times": []}
    assert show(tally, tmp_path, SHOWN) == 0
    said = capsys.readouterr().out
    facts = ("2 cells: 1 cached, measured now: 1 ok", "26.2% (1 A/A", "not here", str(tmp_path))
    assert all(fact in said for fact in facts)


def test_a_tree_without_a_time_has_both_records_and_a_loop_none():
    topic = share.Share(parser_for(share.Share).parse_args(["--workload", "cartpole_dqn", "--contestants", "numba"]))
    topic.stamp, tree = stamp(), topic.tree("numba")
    loop = dataclasses.replace(tree, contestant="loop", op="step")
    refused = [[*topic.refused(cell, Untimed("skipped", "no memory"))] for cell in (tree, loop)]
    assert [[one.op for one in found] for found in refused] == [["tree", "learning"], []]


def test_a_buffer_or_part_that_is_not_measured_is_refused(capsys):
    for words in ("pairs replay,cpprb", "operations,pairs cpprb", "pairs cpprb --strategies global"):
        only, buffers, *others = words.split()
        named = ["--only", only, "--buffers", buffers, *others]
        assert main(["run", "replay", "--anyway", "--python", sys.executable, *named]) == 2
        assert "nothing" in capsys.readouterr().err


PYTHON = f"--python {sys.executable}"
MEASURING = (
    *("sweep --preset quick", "profile --workload cartpole_dqn", f"peers {PYTHON}"),
    *("run share --workload cartpole_dqn", "run replay", "run transports", "run arrangements", "run learning"),
    *("run loops", f"run plugins {PYTHON}", f"run plugins --learning {PYTHON}"),
)


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(records.Writer, "__enter__", lambda writer: pytest.fail("the command has begun"))
    for asked in MEASURING:
        assert main([*asked.split(), "--results", str(tmp_path / "file" / "results")]) == 2, asked
        assert "cannot be written" in capsys.readouterr().err


def test_a_second_run_on_a_file_measures_nothing(tmp_path):
    path = tmp_path / "a.jsonl"
    with records.Writer(path), pytest.raises(RecordError, match="another command is writing"):
        run_numbers(path, [1])
    assert read_file(path) == []
    assert run_numbers(path, [1])[1] == [1]


# The table of what was measured.


def timed(contestant, seconds, **fields):
    named = {"contestant": contestant, "op": "draw", "primitive": "sum_tree", "machine": {}, "median_seconds": seconds}
    return record(0, **(named | fields))


def test_a_run_shows_the_fastest_of_each_operation():
    found = [timed("slow", 4e-6), timed("fast", 2e-6, fanout=8), timed("fast", 3e-6), timed("slow", 1e-6, op="update")]
    found += [timed("model", 1e-9, source="modeled"), timed("stuck", None, status="failed")]
    rows = [(row["op"], row["contestant"], row["fanout"], row["next"], row["slower"]) for row in compare_fastest(found)]
    assert rows == [("draw", "fast", 8, "slow", 1.0), ("update", "slow", 16, None, None)]
    assert write_fastest([]) == []
    pairs = ([timed("slow", seconds), timed("fast", 2e-6)] for seconds in (3e-6, 5e-6))
    ends = [write_fastest(compare_fastest(pair))[-1].split()[-3:-1] for pair in pairs]
    assert ends == [["50", "%"], ["2.5", "times"]]
    many = [timed("tree", 1e-6, capacity=capacity) for capacity in range(1, 16)]
    _head, *lines, last = write_fastest(compare_fastest(many))
    assert (len(lines), "5 rows" in last) == (MOST_ROWS, True)


def test_only_cells_that_differ_in_nothing_else_are_rivals():
    """Not other threads or options of a tree alone, other dtypes, or parts of training."""
    ways = [{}, {"threads": 2}, {"options": {"propagate": "delta"}}]
    rows = compare_fastest([timed("tree", 1 / k, fanout=k, **way) for way in ways for k in (8, 16)])
    found = [(row["threads"], row["options"], row["fanout"]) for row in rows]
    assert found == [(1, {}, 16), (2, {}, 16), (1, {"propagate": "delta"}, 16)]
    rows = compare_fastest([timed("fast", 2e-6, status="unstable"), timed("slow", 4e-6, dtype="float64")])
    found = [(row["contestant"], row["dtype"], row["next"]) for row in rows]
    assert found == [("fast", "float32", None), ("slow", "float64", None)]
    assert ["2*" in line.split() for line in write_fastest(rows)] == [False, True, False]  # it is unstable
    both = {"workload": "pong", "update_interval": 1}
    parts = [("learner", {}), ("learner", {"policy": "torch"}), ("actor", {})]
    rows = compare_fastest([timed(name, 1e-6, primitive="training", options=both | own) for name, own in parts])
    assert [(row["contestant"], row["options"], row["next"]) for row in rows] == [(*part, None) for part in parts]


# Model rollouts in the command replay


PLAN = Plan(("global",), "global", (IN_PYTHON, "cpprb"), 1_000, 64, 10, 2)


def test_a_segment_is_stored_before_the_priorities_change(monkeypatch):
    done, buffer = [], Naive(64)
    buffer.fill()
    sample, update, insert = buffer.sample, buffer.update, SegmentedReplay.insert

    def stored(model, records, weights):
        done.append(("segment", len(records["reward"]), model.segments, model.room, records["reward"], weights))
        insert(model, records, weights)

    monkeypatch.setattr(SegmentedReplay, "insert", stored)
    monkeypatch.setattr(worker, "MODEL_RECORDS", 40)
    one = [own_rows.made(np.array([turn])) for turn in range(worker.ROTATING)]
    call = worker.rollouts(buffer, 16, one, [np.linspace(0, 1, 16)] * worker.ROTATING)
    assert [entry[:4] for entry in done] == [("segment", 16, 2, 16)] * 2  # all segments are full before the clock
    done.clear()
    monkeypatch.setattr(buffer, "sample", lambda batch: done.append(("sample", batch, buffer.written)) or sample(batch))
    monkeypatch.setattr(buffer, "update", lambda *given: done.append(("update",)) or update(*given))
    monkeypatch.setattr(buffer, "weights", lambda sampled: np.arange(1.0, 17.0))
    for turn in range(2):
        call(turn)
    assert [entry[0] for entry in done] == ["sample", "segment", "update"] * 2
    assert [entry[1:] for entry in done[::3]] == [(16, 65), (16, 66)]
    assert (done[1][-1] == np.arange(1.0, 17.0)).all()
    assert np.concatenate([rewards for *_, rewards, _ in done[1::3]]).tolist() == list(range(32))


def rollout_record(contestant, op, us, batch=64, **options):
    named = {"primitive": "replay_memr", "contestant": contestant, "op": op, "capacity": 1_000, "batch": batch}
    times = {"options": options, "median_seconds": us / 1e6, "samples_seconds": (us / 1e6,) * 3}
    return make_record(source="measured", status="ok", **named, **times)


def test_the_share_is_of_steps_that_have_all_parts():
    cells = [cell for group in PLAN.groups("memr") for cell in group if "workload" in cell.options]
    assert {cell.member for cell in cells} == {(TRAINED, "")}  # with the same records, in one process
    assert layout_of(load(TRAINED)).fields == own_rows.LAYOUT.fields
    rest = {"workload": TRAINED, "rollouts": 64}
    found = [rollout_record(COMPILED, "rollouts", 25, strategy="global"), rollout_record("cpprb", "rollouts", 100)]
    found += [rollout_record(*part, us, **rest) for part, us in zip(STEP_PARTS, (15, 30, 30), strict=True)]
    found += [rollout_record(COMPILED, "rollouts", 50, 256, strategy="global")]
    found += [rollout_record("env", "step", 15, **rest | {"rollouts": 256})]
    content = command.summarize(found, "global")["memr"]
    assert content["percent"]["global"] == pytest.approx({"64": 25.0})
    assert content["percent"]["cpprb"] == pytest.approx({"64": 400 / 7})
    assert content["us"]["global"] == pytest.approx({"64": 25.0, "256": 50.0})
    text = "\n".join(command.lines({"memr": content}))
    assert "57.1" in text
    assert content["source"] in text


def test_a_step_whose_environment_is_not_here_is_skipped(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.setattr(worker, "pin_to", lambda *_: [0])
    cell = {"part": "memr", "contestant": "env", "op": "step", "batch": 1, "options": {"workload": TRAINED}}
    assert "gymnasium" in worker._Session().prepare(cell, seed=0, sample_seconds=0.001, rows=1)["skipped"]


# Clocks in a simulated time


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
