"""The loop that measures: it goes on with shipped files, cut off anywhere, and repeats nothing; and model rollouts."""

import dataclasses
import json
import sys
from argparse import Namespace
from collections import Counter

import numpy as np
import pytest

import impls
from benchmarks import compare
from benchmarks.__main__ import main
from benchmarks.cases import Case
from benchmarks.libraries import rows as own_rows
from benchmarks.libraries.base import tree_names
from benchmarks.run import Stamp, Tally, run, show
from benchmarks.tables import MOST_ROWS, compare_fastest, write_fastest
from benchmarks.timing import Timing
from benchmarks.topic import parser_for
from benchmarks.topics import peers, share
from benchmarks.topics.profile.cells import PRESETS, groups
from benchmarks.topics.replay import command, worker
from benchmarks.topics.replay.cells import COMPILED, IN_PYTHON, STEP_PARTS, TRAINED, Plan
from benchmarks.workers import Untimed
from dse import records
from dse.platforms import checkout
from dse.records import RecordError, read_file
from impls.replay import SegmentedReplay
from impls.training import load
from impls.training.weights import layout_of
from tests.committed import RESULTS
from tests.made import alter, make_record
from tests.oracles.naive_replay import Naive

CODE = {"code": "c0de"}
QUIET, SHOWN = (Namespace(json=is_quiet, dry_run=False) for is_quiet in (True, False))


def shipped(name):
    """The records of a file that one commit measured: a profile's newest, whose cells are today's, else the first.

    Each cell is there once, although a disturbed machine had some measured again, and each record has its evidence,
    which those that are shipped were made without.
    """
    found = read_file(RESULTS / name)
    commit = found[-1 if "profile" in name else 0].commit
    once = list({one.cell: one for one in reversed(found) if one.commit == commit}.values())[::-1]
    return [alter(one, machine={**one.machine, "evidence": CODE}) for one in once]


def swept(stamp):
    found = shipped("d7dae63b89/quick.jsonl")
    return [[compare._case(one) for one in found if one.primitive == "sum_tree"]], stamp.cell


def profiled(stamp):
    there = {
        record.cell for record in shipped("8fb834d50a/profile-cartpole_dqn-quick.jsonl")
    }  # of before resets were timed
    profile = groups(load("cartpole_dqn"), PRESETS["quick"], 2)
    return [[cell for cell in group if stamp.cell(cell) in there] for group in profile], stamp.cell


SHIPPED = {
    "d7dae63b89/quick.jsonl": ("sum_tree", swept, 412),
    "8fb834d50a/profile-cartpole_dqn-quick.jsonl": ("training", profiled, 69),
}


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("kept", [0.0, 0.99])
def test_it_goes_on_with_a_shipped_file_that_was_cut_off(tmp_path, name, kept):
    primitive, cells, count = SHIPPED[name]
    whole = shipped(name)
    stamp = Stamp(whole[0].commit, False, "made up", primitive, whole[0].machine)
    first = whole[: int(kept * len(whole))]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(one.to_json() + "\n" for one in first) + '{"run":{"schema":3,"comm')
    by_cell = {one.cell: one for one in whole}
    found, named = cells(stamp)

    def again():
        return run(found, path, stamp, lambda todo: [by_cell[named(cell)] for cell in todo], QUIET, name=named)

    with pytest.warns(UserWarning, match="the last line is torn"):
        tally = again()
    wanted = {named(cell) for group in found for cell in group}
    done = len({one.cell for one in first if one.median_seconds is not None} & wanted)
    assert (tally.cells, tally.resumed, tally.by_status.total()) == (count, done, count - done)
    after = read_file(path)
    assert after[: len(first)] == first
    times = Counter(one.cell for one in after if one.cell in wanted)
    assert times == dict.fromkeys(wanted, 1)
    second = again()
    refused = sum(by_cell[cell].median_seconds is None for cell in wanted)
    assert (second.resumed, second.by_status) == (count - refused, {"skipped": refused} if refused else {})
    assert read_file(path) == after


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


def test_the_same_code_counts_at_another_commit(tmp_path):
    """Edits count as code."""
    run_numbers(tmp_path / "a.jsonl", [1, 2])
    tally, measured = run_numbers(tmp_path / "a.jsonl", [1, 2, 3], by=stamp(commit="beef", dirty=True))
    assert (tally.resumed, measured) == (2, [3])


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


def test_an_edit_of_what_a_clock_reaches_is_other_code(tmp_path):
    before = hash_of(tmp_path / "before")
    for number, (name, text) in enumerate(REACHED):
        assert hash_of(tmp_path / str(number), **{name: text}) != before, name


def test_a_file_that_is_being_written_counts_by_its_text(tmp_path):
    half, more = (hash_of(tmp_path, **{"impls/trees/tree.py": f"def find(leaf:{end}"}) for end in ("", " "))
    assert half != more


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


def test_texts_and_code_that_no_clock_reaches_change_nothing(tmp_path):
    before = hash_of(tmp_path / "before")
    for number, (name, text) in enumerate(UNREACHED):
        assert hash_of(tmp_path / str(number), **{name: text}) == before, name


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
    tally, measured = run_numbers(path, [1, 2])
    assert (tally.resumed, measured) == (1, [2])


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


def test_every_tree_and_library_can_be_compared():
    for name in (*impls.names(), *tree_names()):
        assert {fields["contestant"] for fields in peers.implementations([name])} == {name}


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
