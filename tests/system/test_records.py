"""Tests of records: strict reading, append-only writing, nothing lost."""

import dataclasses
import datetime
import errno
import json
import os
import subprocess
import sys

import pytest

from benchmarks.run import latest
from dse import records
from dse.platforms.checkout import read_races
from dse.records import RecordError, Writer, read_file, read_folder, select
from dse.times.cells import evidence
from impls.files import list_files
from reports.claims import judge_claims, quoted
from tests.committed import COMMITTED
from tests.made import alter, make_record

MACHINE = {"key": "here", "cpu": "a processor", "cores": 2}


def measurement(**fields):
    known = {
        "source": "measured",
        "status": "ok",
        "primitive": "sum_tree",
        "contestant": "numba",
        "op": "draw",
        "capacity": 1000,
        "batch": 32,
        "samples_seconds": (1e-6, 2e-6, 3e-6),
        "calls_per_sample": 10,
        "median_seconds": 2e-6,
        "low_seconds": 1e-6,
        "high_seconds": 3e-6,
        "machine": MACHINE,
        "utc": "2026-01-01T00:00:00+00:00",
    }
    return make_record(**(known | fields))


def write(path, *found):
    with Writer(path) as writer:
        for record in found:
            writer.append(record)


def test_a_run_stands_in_a_file_once_beside_its_records(tmp_path):
    path = tmp_path / "deep" / "r.jsonl"
    own = measurement(facts={"device": "x"}, metrics={"steps": 5, "points": [[1, 0.5]]})
    bare = measurement(op="get", low_seconds=None, high_seconds=None)
    found = [measurement(), bare, own, measurement(commit="beef", status="skipped", median_seconds=None)]
    write(path, *found)
    write(path, measurement())
    found.append(measurement())
    first, second, *_ = again = read_file(path)
    assert again == found
    assert first.run is second.run
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert ["run" in line for line in lines] == [True, False, False, True, True] and lines[0]["run"]["schema"] == 3
    assert set(lines[0]["run"]) == {"schema", "commit", "dirty", "command", "machine"}
    assert [line.get("facts") for line in lines] == [None, None, own.facts, None, None]
    assert [line.get("metrics") for line in lines] == [None, None, own.metrics, None, None]


def test_a_line_without_a_run_is_refused_where_none_is_before_it(tmp_path):
    path = tmp_path / "r.jsonl"
    write(path, measurement(), measurement(op="get"))
    path.write_text(path.read_text().splitlines()[1] + "\n")
    with pytest.raises(RecordError, match=r"r\.jsonl:1: names no run"):
        read_file(path)


TIMES = "0 0 0|-1 null null|1e400 1e-6 1e400|NaN 1e-6 2e-6|4e-6 1e-6 3e-6|2e-6 3e-6 4e-6|2e-6 0 4e-6|[1] 1e-6 3e-6"


@pytest.mark.parametrize("times", [*TIMES.split("|"), '"2e-6" 1e-6 3e-6'])
def test_a_time_that_cannot_be_is_refused_with_its_line(tmp_path, times):
    path = tmp_path / "r.jsonl"
    write(path, measurement(), measurement(batch=64))
    first, second = path.read_text().splitlines()
    for name, new in zip(("median", "low", "high"), times.split(), strict=True):
        old = getattr(measurement(), f"{name}_seconds")
        second = second.replace(f'"{name}_seconds":{old}', f'"{name}_seconds":{new}')
    path.write_text(f"{first}\n{second}\n")
    with pytest.raises(RecordError, match=r"r\.jsonl:2: (median_seconds|.*NaN)"):
        read_file(path)


def test_a_file_that_is_no_text_is_refused_by_name(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(measurement().to_json().encode() + b"\n\xff\n")
    with pytest.raises(RecordError, match=r"a\.jsonl: byte \d+ is no text"):
        read_file(tmp_path / "a.jsonl")


def test_a_torn_last_line_is_not_read_and_writers_cut_it(tmp_path):
    path = tmp_path / "r.jsonl"
    write(path, measurement())
    whole = path.read_bytes()
    path.write_bytes(whole + measurement(op="update").to_json().encode()[:50])
    with pytest.warns(UserWarning, match="torn"):
        assert read_file(path) == [measurement()]
    with pytest.warns(UserWarning, match="torn"):
        write(path, measurement(op="get"))
    assert [record.op for record in read_file(path)] == ["draw", "get"]
    assert path.read_bytes().startswith(whole)


FIELDS = {"samples_seconds": (2e-6,), "utc": "now", "fanout": 8, "options": {"a": 1}, "facts": {"device": "x"}}
WHOLE = measurement(**FIELDS, metrics={"steps": 5}).to_json()
DEEP, LONG = "[" * 400 + "]" * 400, "9" * 400
SAMPLES, MACHINE_TEXT = '"samples_seconds":[2e-06]', json.dumps(MACHINE, separators=(",", ":"))
REFUSED = [  # what stands in a record, what stands there instead, and the facts that the refusal names
    *(('"batch":32', f'"batch":{value}', "batch 1") for value in (0, -3, LONG)),
    ('"batch":32', f'"batch":{"9" * 5000}', "4300"),
    ('"batch":32', '"batch":true', "batch True"),
    ('"batch":32', '"batch":32, "batch":64', "twice"),
    ('"fanout":8', '"fanout":0', "fanout 1"),
    ('"fanout":8', '"fanout":2.5', "fanout 2.5"),
    ('"fanout":8', '"fanuot":8', "'fanuot' 'fanout'"),
    ('"capacity":1000', '"capacity":null', "capacity None"),
    ('"capacity":1000', '"capacity":"many"', "capacity 'many'"),
    ('"op":"draw",', "", "lacks op"),
    ('"source":"measured"', '"source":"guessed"', "source measured modeled 'guessed'"),
    ('"status":"ok"', '"status":"fine"', "status ok skipped 'fine'"),
    ('"contestant":"numba"', '"contestant":7', "contestant 7"),
    ('"contestant":"numba"', r'"contestant":"\ud800"', "surrogates"),
    ('"options":{"a":1}', '"options":[1]', "options object"),
    ('"options":{"a":1}', f'"options":{{"a":{DEEP}}}', "deeply"),
    ('"options":{"a":1}', f'"options":{"[" * 100_000}', "recursion"),
    *(('"schema":3', f'"schema":{value}', f"schema {told} 3") for value, told in (("true", "True"), ("99", "99"))),
    ('{"run":', '{"schema":1,"run":', "schema 1 3"),
    ('"commit":', '"comit":', "'comit' 'commit'"),
    *(
        (SAMPLES, f'"samples_seconds":{value}', "samples_seconds")
        for value in ("null", '["1"]', "[1e999]", f"[{LONG}]")
    ),
    ('"median_seconds":2e-06', '"median_seconds":null', "time"),
    ('"median_seconds":2e-06', f'"median_seconds":{LONG}', "median_seconds 0"),
    (f'"machine":{MACHINE_TEXT}', '"machine":[1]', "machine object"),
    ('"cores":2', '"cores":"2"', "cores whole"),
    ('"cores":2', '"cores":2,"device":"x"', "'device' machine facts"),
    ('{"device":"x"}', "5", "facts object"),
    ('{"device":"x"}', '{"cores":2}', "cores machine run"),
    ('{"device":"x"}', '{"points":[]}', "points metrics"),
    ('{"steps":5}', "5", "metrics object"),
    ('{"steps":5}', '{"step":5}', "'step' METRICS 'steps'"),
    ('"utc":"now"', '"utc":5', "utc 5"),
    ('"dirty":null', '"dirty":1', "dirty 1"),
    (WHOLE, "[1]", "list"),
    (WHOLE, json.dumps(json.loads(WHOLE) | {"run": "this"}), "run object 'this'"),
]


def test_what_is_not_a_record_is_refused_with_its_line_and_facts(tmp_path):
    for old, new, facts in REFUSED:
        assert old in WHOLE
        (tmp_path / "r.jsonl").write_text(f"{WHOLE}\n{WHOLE.replace(old, new)}\n")
        with pytest.raises(RecordError, match=r"r\.jsonl:2: ") as refusal:
            read_file(tmp_path / "r.jsonl")
        assert all(fact in str(refusal.value) for fact in facts.split()), (old, new[:60], str(refusal.value))


def test_a_nan_is_never_written():
    with pytest.raises(ValueError, match="JSON"):
        measurement(median_seconds=float("nan")).to_json()


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    write(path, measurement())
    before = path.read_bytes()
    with Writer(path) as writer:
        monkeypatch.setattr(os, "write", _Full(os.write))
        with pytest.raises(RecordError, match=r"No space left on device.*make room"):
            writer.append(measurement(op="update"))
        monkeypatch.undo()
        assert path.read_bytes() == before
        writer.append(measurement(op="get"))
    assert [record.op for record in read_file(path)] == ["draw", "get"]


class _Full:
    """A write that takes 100 bytes and then finds no room."""

    def __init__(self, write):
        self._write, self._left = write, 100

    def __call__(self, descriptor, data):
        if not self._left:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(descriptor, data[: self._left])
        self._left -= written
        return written


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RecordError, match=r"cannot be written .*choose another folder"),
        Writer(tmp_path / "file" / "r"),
    ):
        pass


def test_a_second_writer_is_refused_until_the_first_has_ended(tmp_path):
    path = tmp_path / "r.jsonl"
    with Writer(path) as writer:
        writer.append(measurement())
        for second in (Writer(path).__enter__, lambda: records.check_writable(path)):
            with pytest.raises(RecordError, match="another command is writing it"):
                second()
        assert read_file(path) == [measurement()]
        write(tmp_path / "other.jsonl", measurement())
    records.check_writable(path)
    write(path, measurement(op="get"))
    assert [record.op for record in read_file(path)] == ["draw", "get"]


def test_the_lock_of_a_killed_writer_is_gone(tmp_path):
    path = tmp_path / "r.jsonl"
    code = (
        f"import pathlib, sys, time; from dse.records import Writer\nwith Writer(pathlib.Path({str(path)!r})):\n"
        "    print('open', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(RecordError, match="another command"):
            write(path, measurement())
        other.kill()
    write(path, measurement())
    assert read_file(path) == [measurement()]


def test_trying_a_file_leaves_no_trace(tmp_path):
    records.check_writable(tmp_path / "a" / "b" / "r.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_folders_give_the_latest_record_of_each_cell_and_machine(tmp_path):
    old = measurement(median_seconds=2.5e-6, utc="2025-01-01T00:00:00+00:00")
    there = measurement(machine={"key": "there"})
    write(tmp_path / "b" / "new.jsonl", measurement())
    write(tmp_path / "a" / "old.jsonl", old, there)
    assert {r.machine_key for r in read_folder(tmp_path)} == {"here", "there"}
    assert read_folder(tmp_path, "here") == [measurement()]
    with pytest.raises(RecordError, match="no records of machine elsewhere, only of here, there"):
        read_folder(tmp_path, "elsewhere")
    with pytest.raises(RecordError, match="no records here; measure with: python -m benchmarks sweep"):
        read_folder(tmp_path / "nothing")


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_the_record_of_the_last_time_counts_in_whatever_file(tmp_path, names):
    old = measurement(median_seconds=2.5e-6, utc="2025-06-01T00:00:00+00:00")
    new = measurement(median_seconds=1.5e-6, utc="2025-12-01T00:00:00+00:00")
    write(tmp_path / f"{names[0]}.jsonl", old)
    write(tmp_path / f"{names[1]}.jsonl", new)
    assert read_folder(tmp_path) == [new]
    write(tmp_path / f"{names[1]}.jsonl", dataclasses.replace(old, median_seconds=2.9e-6))
    assert read_folder(tmp_path) == [new]  # nor is it the last of its file


@pytest.mark.parametrize("is_first", [True, False])
def test_a_stamp_from_the_future_is_no_reason_to_win(is_first):
    ahead = records.AHEAD
    then, soon = (datetime.datetime.now(datetime.UTC) + by for by in (2 * ahead, ahead / 2))
    wrong = measurement(median_seconds=2.9e-6, utc=then.isoformat(), commit="old")
    found = [wrong, measurement()] if is_first else [measurement(), wrong]
    assert select(found) == latest(found) == [measurement()]
    near = measurement(utc=soon.isoformat())  # of a clock that is a little ahead
    assert select([near, measurement()]) == [near]
    later = dataclasses.replace(wrong, utc=f"9{wrong.utc[1:]}")
    assert select([later, wrong]) == [later]  # of clocks that were wrong the latest
    twins = [measurement(median_seconds=seconds) for seconds in (1.2e-6, 1.8e-6)]
    assert select(twins) == twins[1:]  # of equal times the last


def test_hidden_files_of_other_systems_are_no_records(tmp_path):
    results = tmp_path / ".results"  # a folder that the user names may be hidden
    race = measurement(metrics={"race": {"ending": "decided"}})
    write(results / "here" / "quick.jsonl", race)
    (results / "here" / "._quick.jsonl").write_bytes(b"\0\5\26\7\xb0\xff")
    (results / ".trash").mkdir()
    (results / ".trash" / "old.jsonl").write_text("{")
    assert read_folder(results) == [race]
    saved = (results / "here" / "quick.jsonl").read_text().replace("\n", "\r\n")
    (results / "here" / "quick.jsonl").write_bytes(b"\xef\xbb\xbf" + saved.encode())  # as an editor may save it
    assert read_folder(results) == read_races(results / "here" / "quick.jsonl") == [race]
    (tmp_path / "quoted").mkdir()
    (tmp_path / "quoted" / "._x.toml").write_bytes(b"\xff")
    with pytest.raises(RecordError, match="nothing is quoted here"):
        quoted.read(tmp_path / "quoted")


def test_a_folder_behind_a_link_is_read_once_by_all(tmp_path):
    results, other = tmp_path / "results", tmp_path / "disk" / "here"
    write(other / "quick.jsonl", measurement())
    results.mkdir()
    (results / "here").symlink_to(other)
    assert read_folder(results) == [measurement()]
    assert [*evidence(results)] == [measurement().machine_key]
    (results / "also").symlink_to("here")
    (results / "here" / "around").symlink_to(results)
    (results / "nowhere").symlink_to(tmp_path / "nowhere")
    for pattern in ("**/*.jsonl", "*/*.jsonl"):
        assert list_files(results, pattern) == [results / "here" / "quick.jsonl"]


def test_a_disturbed_record_replaces_no_quiet_one():
    quiet = measurement(status="ok", median_seconds=1.0, low_seconds=1.0, high_seconds=1.0, utc="2026-01-01T00:00:00")
    loud = alter(quiet, median_seconds=9.0, high_seconds=9.0, utc="2026-01-02T00:00:00", command="again")
    twin = dataclasses.replace(loud, median_seconds=7.0, primitive=f"{loud.primitive}_again")
    watched = [
        dataclasses.replace(loud, primitive="sentinel", status="unstable", utc=f"2026-01-02T00:0{minute}:00")
        for minute in range(3)
    ]
    too_long = {"status": "skipped", "reason": "one call takes 3 s, too long", "median_seconds": None}
    for rivals in (
        [dataclasses.replace(loud, status="unstable")],
        [dataclasses.replace(loud, **too_long)],
        [alter(loud, machine={**loud.machine, "load": 5.0})],
        [loud, twin],
        [loud, *watched],
    ):
        counting = [one for one in select([*rivals, quiet]) if one.cell == quiet.cell]
        assert counting == [quiet]
    assert select([quiet, loud]) == [loud]  # of two quiet ones the latest counts
    later = dataclasses.replace(quiet, status="unstable", utc="2026-01-01T00:00:01")
    assert select([later, quiet]) == [later]  # of one run
    steady = [dataclasses.replace(one, capacity=capacity) for one in (quiet, loud) for capacity in (10, 20)]
    unstable = [dataclasses.replace(one, status="unstable") for one in (quiet, loud)]
    assert quiet in select([quiet, unstable[1], *steady])  # an unstable time of a run that is quiet
    other = alter(unstable[1], commit="c0ffee")
    code = [alter(one, commit="c0ffee") for one in steady]
    assert other in select([quiet, other, *code])  # of other code
    assert unstable[0] in select([unstable[0], *steady, loud, twin])  # a quiet run's before any of a noisy one
    under = alter(loud, capacity=7, machine={**loud.machine, "load": 5.0})
    assert select([quiet, under]) == [quiet]  # a shape that no other run has, but of what another has
    assert select([under]) == [under]
    assert select([loud, twin]) == [loud, twin]  # a noisy run counts where there is no other
    assert len(select([loud, *watched])) == 1 + len(watched)
    assert select([quiet, loud, *watched]) == [quiet]  # no sentinels of a run none of whose cells counts


def test_twins_are_what_one_run_of_one_commit_measured_twice():
    first = measurement(commit="c0ffee", command="sweep", median_seconds=2e-6)
    again = dataclasses.replace(first, primitive="sum_tree_again", median_seconds=2.5e-6)
    assert records.twins([first, again]) == [(2e-6, 2.5e-6)]
    for other in ({"command": "questions"}, {"commit": "beef"}, {"batch": 64}, {"options": {"aligned": False}}):
        assert records.twins([first, alter(again, **other)]) == []
    untimed = dataclasses.replace(again, median_seconds=None, status="skipped")
    assert records.twins([first, untimed]) == []
    peer = [dataclasses.replace(one, primitive=one.primitive.replace("sum_tree", "peer")) for one in (first, again)]
    assert (records.twins(peer), records.twins(peer, "peer")) == ([], [(2e-6, 2.5e-6)])


def test_each_record_is_on_disk_before_the_next_is_measured(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    with Writer(tmp_path / "r.jsonl") as writer:
        for op in ("draw", "update"):
            writer.append(measurement(op=op))
            assert synced[-1] == (tmp_path / "r.jsonl").stat().st_size
    assert len(synced) == 2


def test_cells_are_equal_where_the_same_thing_was_measured():
    assert measurement(utc="later", median_seconds=1.0).cell == measurement().cell
    for field, value in (("op", "get"), ("options", {"aligned": False}), ("threads", 2), ("distribution", "rank0.6")):
        assert measurement(**{field: value}).cell != measurement().cell


def test_records_differ_by_machine_and_code_by_hash_or_commit():
    one = measurement()
    elsewhere = alter(one, machine={**one.machine, "key": "elsewhere"})
    assert one.cell == elsewhere.cell
    assert records.identity_of(one) != records.identity_of(elsewhere)
    hashed = alter(one, machine={**one.machine, "evidence": {"code": "c0de"}})
    assert (hashed.run.code, one.run.code) == ("c0de", one.commit)
    assert records.identity_of(hashed) == records.identity_of(one)


def test_a_stable_time_of_other_code_gives_way_at_one_commit_too():
    def of(code, status, utc):
        machine = {"key": "here", "evidence": {"code": code}}
        return measurement(machine=machine, status=status, utc=utc, commit="beef")

    clean, edited = of("c0de", "ok", "2026-01-01"), of("ed17", "unstable", "2026-01-02")
    steady = [
        dataclasses.replace(of(code, "ok", "2026-01-02"), op=op) for code in ("c0de", "ed17") for op in ("get", "step")
    ]
    assert edited in select([clean, edited, *steady])
    again = alter(edited, machine=clean.machine, command="another")
    assert clean in select([clean, again, *steady, *(alter(one, command="another") for one in steady)])


def test_export_to_tables(tmp_path):
    pandas = pytest.importorskip("pandas", reason="tables need pandas")
    own = {"facts": {"affinity": [0, 1]}, "metrics": {"steps": 5, "points": [[1, 0.5]]}}
    found = [measurement(options={"layout": "plain", "aligned": False}), measurement(op="get", **own)]
    for name, read in (("t.csv", pandas.read_csv), ("t.parquet", pandas.read_parquet)):
        records.export(found, tmp_path / name)
        frame = read(tmp_path / name)
        assert frame["op"].tolist() == ["draw", "get"]
        assert frame["options"][0] == "aligned=False,layout=plain"
        assert (frame["facts"][1], frame["steps"][1], "points" in frame) == ("affinity=[0, 1]", 5, False)
    for name, fact in (("t.xls", r"\.csv or \.parquet, not \.xls"), ("nowhere/t.csv", "written")):
        with pytest.raises(RecordError, match=fact):
            records.export(found, tmp_path / name)


def test_committed_records_judge_each_claim_or_say_why_not():
    judged = judge_claims(read_folder(COMMITTED), COMMITTED)
    said = ("measured on ", "computed: ", "not measured; ", "not run; ")
    assert [one.id for one in judged if not one.evidence.startswith(said)] == []
    assert [one.id for one in judged if one.verdict != "not testable here" and one.value is None] == []
    assert all(one.low <= one.value <= one.high for one in judged if one.value is not None)
