"""The table of speeds: made of records of a primitive of its own, the latest of each cell, resumed."""

import dataclasses
import json
import re

import pytest

import dse
from benchmarks import __main__ as cli
from benchmarks import speed_table
from dse.platforms import fingerprint
from dse.records import RecordError, Writer, read_file


def file_of(results):
    return results / fingerprint()["key"] / "speed.jsonl"


def test_a_speed_is_the_latest_record_of_its_cell_resumed_and_apart_from_the_sweeps(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(speed_table, "ROWS", {"numpy": ("numpy", {})})
    monkeypatch.setattr(speed_table, "FLOOR_MEGABYTES", ())
    words = ["speed", "--capacity", "500", "--batch", "16", "--budget", "0.05", "--results", str(tmp_path), "--json"]
    assert cli.main(words) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["cells"], first["found_done"], first["aa_pairs"]) == (2, 0, 2)
    path = file_of(tmp_path)
    assert {(one.primitive, one.op) for one in read_file(path)} == {
        (primitive, op) for primitive in ("speed", "speed_again") for op in ("draw", "update")
    }
    with pytest.raises(RecordError, match="no sweep"):
        dse.recommend(500, 16, results=tmp_path)
    draw = next(one for one in read_file(path) if (one.primitive, one.op) == ("speed", "draw"))
    slower = {"median_seconds": 16e-5, "low_seconds": 8e-5, "high_seconds": 32e-5, "status": "unstable"}
    for utc, seconds in (("2999-01-01", slower), ("1999-01-01", dict.fromkeys(list(slower)[:3], 16e-7))):
        with Writer(path) as writer:
            writer.append(dataclasses.replace(draw, utc=utc, **seconds))
    assert cli.main(words[:-1]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^numpy +10,000\.0 \[5,000\.0, 20,000\.0\]\* ", printed, re.MULTILINE)
    assert "2 cells: 2 were there, measured now: none" in printed
