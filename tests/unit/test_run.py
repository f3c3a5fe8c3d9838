"""The loop that measures: it goes on with files as they are shipped, cut off anywhere, and repeats nothing."""

import dataclasses
import json
import sys
from argparse import Namespace
from collections import Counter
from types import SimpleNamespace

import pytest

import impls
from benchmarks import compare, sweep
from benchmarks.__main__ import main
from benchmarks.cases import Case
from benchmarks.libraries.base import tree_names
from benchmarks.run import Stamp, Tally, run, show
from benchmarks.tables import MOST_ROWS, compare_fastest, write_fastest
from benchmarks.timing import Timing
from benchmarks.topic import parser_for
from benchmarks.topics import peers, share
from benchmarks.topics.profile.cells import PRESETS, groups
from benchmarks.workers import Untimed
from dse import records
from dse.platforms import checkout
from dse.records import RecordError, read_file
from impls.training import load
from tests.committed import COMMITTED, RESULTS
from tests.made import alter, make_record
from tests.matrix import slow

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


def shared(stamp):
    made = SimpleNamespace(_workload=load("hopper_ddpg"))
    return [[share.Share.tree(made, name) for name in ("numba", "cumsum", "flat", "numpy", "python")]], stamp.cell


SHIPPED = {
    "d7dae63b89/quick.jsonl": ("sum_tree", swept, 412),
    "8fb834d50a/profile-cartpole_dqn-quick.jsonl": ("training", profiled, 69),
    "d7dae63b89/share-hopper_ddpg.jsonl": ("serial_step", shared, 5),
}


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("kept", [0.0, slow(0.3), 0.99, 1.0])
def test_it_goes_on_with_a_file_of_the_shipped_format_wherever_that_was_cut_off(tmp_path, name, kept):
    primitive, cells, count = SHIPPED[name]
    whole = shipped(name)
    stamp = Stamp(whole[0].commit, False, "made up", primitive, whole[0].machine)
    first = whole[: int(kept * len(whole))]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(one.to_json() + "\n" for one in first) + ('{"run":{"schema":3,"comm' if kept < 1 else ""))
    by_cell = {one.cell: one for one in whole}
    found, named = cells(stamp)

    def measure(todo):
        return [by_cell[named(cell)] for cell in todo]

    def again():
        return run(found, path, stamp, measure, QUIET, name=named)

    if kept < 1:
        with pytest.warns(UserWarning, match="the last line is torn"):
            tally = again()
    else:
        tally = again()
    wanted = {named(cell) for group in found for cell in group}
    done = len({one.cell for one in first if one.median_seconds is not None} & wanted)
    assert (tally.cells, tally.resumed, tally.by_status.total()) == (count, done, count - done)
    after = read_file(path)
    assert after[: len(first)] == first
    assert {
        cell: times for cell, times in Counter(one.cell for one in after).items() if cell in wanted
    } == dict.fromkeys(wanted, 1)
    second = again()
    refused = sum(by_cell[cell].median_seconds is None for cell in wanted)
    assert (second.resumed, second.by_status) == (count - refused, {"skipped": refused} if refused else {})
    assert read_file(path) == after


def test_what_a_sweep_and_the_peers_measure_beside_their_cells_is_found_done_too(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "interleave_calls", lambda *words: pytest.fail("the memory floor was there"))
    path = COMMITTED / "8fb834d50a" / "quick.jsonl"
    copied, machine = with_evidence(path, tmp_path / "quick.jsonl", CODE)
    before = copied.read_bytes()
    floor = sweep.Floor(Namespace(**vars(QUIET), budget=0.1, seed=0))
    floor.stamp = Stamp("beef", False, "made up", "memory", machine)
    run(floor.cells(), copied, floor.stamp, floor.measure, floor.options, name=floor.key)
    assert copied.read_bytes() == before

    path = COMMITTED / "d7dae63b89" / "peers.jsonl"
    copied, machine = with_evidence(path, tmp_path / "peers.jsonl", {**CODE, "libraries": "those of peers"})
    stamp = Stamp("beef", False, "made up", peers.PEER, machine)
    kept = {one.contestant for one in read_file(copied)}  # a library may have been added since
    words = ["--json", "--python", sys.executable, "--contestants", ",".join(kept)]
    topic = peers.Peers(parser_for(peers.Peers).parse_args(words))
    topic.stamp = stamp
    before = copied.read_bytes()
    run(topic.cells(), copied, stamp, lambda cells: pytest.fail("not done"), topic.options, name=topic.key)
    assert copied.read_bytes() == before


def with_evidence(path, copied, evidence):
    """A copy of a file whose times have their evidence; and the machine that a run with the same has."""
    times = [one for one in read_file(path) if one.median_seconds is not None]
    made = [alter(one, machine={**one.machine, "evidence": evidence}) for one in times]
    copied.write_text("".join(one.to_json() + "\n" for one in made))
    return copied, made[0].machine


# Made-up cells: their numbers.


MADE_UP = {"key": "x", "gpus": [], "python": "3.11.7", "packages": {"numpy": "2.4.6"}, "evidence": CODE}


def stamp(**fields):
    return dataclasses.replace(Stamp("c0ffee", False, "made up", "made_up", MADE_UP), **fields)


def record(number, by=None, **fields):
    made = by or stamp()
    named = {"source": "measured", "status": "ok", "contestant": str(number), "op": "op", "capacity": 1, "batch": 1}
    named |= {"primitive": made.primitive, "commit": made.commit, "machine": made.machine, "median_seconds": 1.0}
    return make_record(**(named | fields))


def counted(path, *found, by=None, options=SHOWN, **how):
    """A run over groups of numbers; returns its tally and the numbers that were measured."""
    measured = []

    def measure(todo):
        for number in todo:
            measured.append(number)
            yield record(number, by)
        yield record(todo[0], by, primitive="made_up_again", median_seconds=1.1)

    tally = run(found, path, by or stamp(), measure, options, name=lambda number: record(number).cell, **how)
    return tally, measured


def test_only_what_was_asked_for_counts_and_the_twins_are_pairs(tmp_path):
    tally, measured = counted(tmp_path / "a.jsonl", [1, 2], [3])
    assert (tally.cells, tally.resumed, tally.by_status, measured) == (3, 0, {"ok": 3}, [1, 2, 3])
    assert tally.pairs == [(1.0, 1.1), (1.0, 1.1)]
    tally, measured = counted(tmp_path / "a.jsonl", [1, 2, 4], [3])
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


def test_records_by_whatever_may_change_a_number_are_kept_and_not_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    for other in OTHERS.values():
        tally, measured = counted(path, [1, 2], by=stamp(machine={**MADE_UP, **other}))
        assert (tally.resumed, measured) == (0, [1, 2])
    assert len(read_file(path)) == 3 * len(OTHERS)


def test_the_same_code_counts_at_another_commit_and_edits_count_as_code(tmp_path):
    counted(tmp_path / "a.jsonl", [1, 2])
    tally, measured = counted(tmp_path / "a.jsonl", [1, 2, 3], by=stamp(commit="beef", dirty=True))
    assert (tally.resumed, measured) == (2, [3])


def test_records_that_were_kept_before_there_was_evidence_answer_nothing(tmp_path):
    old = stamp(machine={key: fact for key, fact in MADE_UP.items() if key != "evidence"})
    counted(tmp_path / "a.jsonl", [1], by=old)
    for by in (stamp(), old):
        assert counted(tmp_path / "a.jsonl", [1], by=by)[1] == [1]


def test_versions_of_libraries_in_another_environment_stand_in_the_evidence(tmp_path):
    theirs = {**MADE_UP, "evidence": {**CODE, "libraries": "0123"}}
    counted(tmp_path / "a.jsonl", [1], by=stamp(machine={**theirs, "packages": {"ray": "2.60.0"}}))
    assert counted(tmp_path / "a.jsonl", [1], by=stamp(machine=theirs))[1] == []


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


@pytest.mark.parametrize(("name", "text"), REACHED, ids=[name for name, _ in REACHED])
def test_an_edit_of_what_a_clock_reaches_is_other_code(tmp_path, name, text):
    assert hash_of(tmp_path, **{name: text}) != hash_of(tmp_path / "before")


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


@pytest.mark.parametrize(("name", "text"), UNREACHED, ids=[name for name, _ in UNREACHED])
def test_texts_and_code_that_no_clock_reaches_change_nothing(tmp_path, name, text):
    assert hash_of(tmp_path, **{name: text}) == hash_of(tmp_path / "before")


def test_evidence_has_what_an_environment_installs_and_what_is_set(tmp_path, monkeypatch):
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
    assert (
        checkout.evidence_here("benchmarks.run", [tmp_path / "bin" / "python"], budget=0.5)["libraries"]
        != second["libraries"]
    )
    assert "libraries" not in checkout.evidence_here("benchmarks.run")


@pytest.mark.parametrize("status", ["skipped", "failed"])
def test_what_was_refused_is_tried_again_and_its_refusal_is_kept_once(tmp_path, status):
    path = tmp_path / "a.jsonl"
    refusal = record(1, status=status, median_seconds=None, reason="NUMBA_DISABLE_JIT is set")
    for reasons in (1, 1):
        run([[1]], path, stamp(), lambda todo: [refusal], QUIET, name=lambda number: record(number).cell)
        assert len(read_file(path)) == reasons
    other = dataclasses.replace(refusal, reason="not enough memory")
    run([[1]], path, stamp(), lambda todo: [other], QUIET, name=lambda number: record(number).cell)
    assert [one.reason for one in read_file(path)] == [refusal.reason, other.reason]
    assert counted(path, [1])[1] == [1]
    assert counted(path, [1])[1] == []


def test_what_was_skipped_is_measured_again_and_nothing_is_begun_after_the_end(tmp_path):
    path = tmp_path / "a.jsonl"
    with records.Writer(path) as writer:
        writer.append(record(1))
        writer.append(record(2, status="skipped", median_seconds=None, reason="too long"))
    tally, measured = counted(path, [1, 2], [3], most_seconds=0.0)
    assert (measured, tally.resumed, tally.left) == ([2], 1, 1)
    assert str(tally) == "3 cells: 1 cached, measured now: 1 ok"
    assert tally.unfinished == ["2 of 3 cells measured. NOT complete: run the same command again to finish."]


def test_the_end_leaves_every_group_but_the_first_that_is_measured(tmp_path):
    tally, measured = counted(tmp_path / "a.jsonl", [1, 2], [3], [4, 5], most_seconds=0.0)
    assert (measured, tally.left) == ([1, 2], 3)
    tally, measured = counted(tmp_path / "a.jsonl", [1, 2], [3], [4, 5], most_seconds=0.0)
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
    tally, measured = counted(path, [1, 2], [3])
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
    tally, measured = counted(path, [1, 2])
    assert (tally.resumed, measured) == (1, [2])


def test_a_file_that_holds_something_else_is_left_as_it_is(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("no records\nat all")
    with pytest.raises(RecordError, match="not a JSON object"), pytest.warns(UserWarning, match="torn"):
        counted(path, [1])
    assert path.read_text() == "no records\nat all"


def test_progress_is_of_all_cells_and_says_what_was_measured_last(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("impls.terminal.EVERY_SECONDS", 0.0)
    counted(tmp_path / "a.jsonl", [1])
    assert capsys.readouterr().err == ""
    counted(tmp_path / "a.jsonl", [1, 2], unit="cell", describe=lambda number: f"number {number}", options=QUIET)
    lines = [line.split(" after")[0] + line.partition(" s")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["1 of 2 cells (50%)", "2 of 2 cells (100%); number 2"]


def test_a_report_is_words_or_json(tmp_path, capsys):
    tally = Tally(2, resumed=1, by_status=Counter(ok=1), pairs=[(1.0, 1.3)], reasons=Counter({"not here": 1}))
    assert show(tally, tmp_path, QUIET) == 0
    told = json.loads(capsys.readouterr().out)
    assert told.pop("noise_floor") == pytest.approx(0.262, abs=1e-3)
    assert told == {
        "file": str(tmp_path),
        "cells": 2,
        "found_done": 1,
        "measured_by_status": {"ok": 1},
        "measured_again": 0,
        "left": 0,
        "skipped_by_reason": {"not here": 1},
        "aa_pairs": 1,
        "times": [],
    }
    assert show(tally, tmp_path, SHOWN) == 0
    first, skipped, again, worth, where = capsys.readouterr().out.splitlines()
    assert skipped == "skipped 1 cell: not here"
    assert worth.startswith("disturbed run")
    assert [first, again, where] == [
        "2 cells: 1 cached, measured now: 1 ok",
        "the same cell measured twice differs by up to 26.2% (1 A/A pairs)",
        f"records: {tmp_path}",
    ]


def test_a_tree_without_a_time_has_both_records_and_a_loop_none():
    topic = share.Share(parser_for(share.Share).parse_args(["--workload", "cartpole_dqn", "--contestants", "numba"]))
    topic.stamp, tree = stamp(), topic.tree("numba")
    loop = dataclasses.replace(tree, contestant="loop", op="step")
    refused = [[*topic.refused(cell, Untimed("skipped", "no memory"))] for cell in (tree, loop)]
    assert [[one.op for one in found] for found in refused] == [["tree", "learning"], []]


@pytest.mark.parametrize("name", [*impls.names(), *tree_names()])
def test_every_tree_and_library_can_be_compared(name):
    assert {fields["contestant"] for fields in peers.implementations([name])} == {name}


@pytest.mark.parametrize("words", ["pairs replay,cpprb", "operations,pairs cpprb", "pairs cpprb --strategies global"])
def test_a_buffer_strategy_or_part_that_would_not_be_measured_is_refused(words, capsys):
    only, buffers, *others = words.split()
    named = ["--only", only, "--buffers", buffers, *others]
    assert main(["run", "replay", "--anyway", "--python", sys.executable, *named]) == 2
    assert "leave nothing to measure of" in capsys.readouterr().err


PYTHON = f"--python {sys.executable}"
MEASURING = (
    *(
        "sweep --preset quick",
        "profile --workload cartpole_dqn",
        f"peers {PYTHON}",
        "run share --workload cartpole_dqn",
    ),
    *("run replay", "run transports", "run arrangements", "run learning", "run loops", f"run plugins {PYTHON}"),
    f"run plugins --learning {PYTHON}",
)


@pytest.mark.parametrize("command", MEASURING)
def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_timed(tmp_path, monkeypatch, capsys, command):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(records.Writer, "__enter__", lambda writer: pytest.fail("the command has begun"))
    assert main([*command.split(), "--results", str(tmp_path / "file" / "results")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_second_run_on_a_file_measures_nothing(tmp_path):
    path = tmp_path / "a.jsonl"
    with records.Writer(path), pytest.raises(RecordError, match="another command is writing"):
        counted(path, [1])
    assert read_file(path) == []
    assert counted(path, [1])[1] == [1]


# The table of what was measured.


def timed(contestant, seconds, **fields):
    named = {"contestant": contestant, "op": "draw", "primitive": "sum_tree", "machine": {}, "median_seconds": seconds}
    return record(0, **(named | fields))


def test_a_run_shows_the_fastest_of_each_operation_and_by_how_much():
    found = [timed("slow", 4e-6), timed("fast", 2e-6, fanout=8), timed("fast", 3e-6), timed("slow", 1e-6, op="update")]
    found += [timed("model", 1e-9, source="modeled"), timed("stuck", None, status="failed")]
    rows = [(row["op"], row["contestant"], row["fanout"], row["next"], row["slower"]) for row in compare_fastest(found)]
    assert rows == [("draw", "fast", 8, "slow", 1.0), ("update", "slow", 16, None, None)]
    assert write_fastest([]) == []
    pairs = ([timed("slow", seconds), timed("fast", 2e-6)] for seconds in (3e-6, 5e-6))
    ends = [write_fastest(compare_fastest(pair))[-1].split()[-3:-1] for pair in pairs]
    assert ends == [["50", "%"], ["2.5", "times"]]


def test_of_a_tree_alone_each_option_and_number_of_threads_has_a_row_with_its_fastest():
    ways = [{}, {"threads": 2}, {"options": {"propagate": "delta"}}]
    rows = compare_fastest([timed("tree", 1 / k, fanout=k, **way) for way in ways for k in (8, 16)])
    told = [(row["threads"], row["options"], row["fanout"]) for row in rows]
    assert told == [(1, {}, 16), (2, {}, 16), (1, {"propagate": "delta"}, 16)]


def test_other_dtypes_are_no_rivals_and_an_unstable_time_is_marked():
    found = [timed("fast", 2e-6, status="unstable"), timed("slow", 4e-6, dtype="float64")]
    rows = compare_fastest(found)
    assert [(row["contestant"], row["dtype"], row["next"]) for row in rows] == [
        ("fast", "float32", None),
        ("slow", "float64", None),
    ]
    assert ["2*" in line.split() for line in write_fastest(rows)] == [False, True, False]


def test_parts_of_training_are_rows_by_themselves_with_the_options_in_which_they_differ():
    both = {"workload": "pong", "update_interval": 1}
    parts = [("learner", {}), ("learner", {"policy": "torch"}), ("actor", {})]
    found = [timed(name, 1e-6, primitive="training", options=both | own) for name, own in parts]
    rows = compare_fastest(found)
    assert [(row["contestant"], row["options"], row["next"]) for row in rows] == [(*part, None) for part in parts]


def test_a_long_table_ends_with_how_many_rows_it_leaves_out():
    found = [timed("tree", 1e-6, capacity=capacity) for capacity in range(1, 16)]
    _head, *lines, last = write_fastest(compare_fastest(found))
    assert len(lines) == MOST_ROWS
    assert {line.split()[1] for line in lines} <= {str(capacity) for capacity in range(1, 16)}
    assert "5 rows" in last
