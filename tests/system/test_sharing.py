"""Records of another person's machine: exported there, imported here, refused where anything is wrong."""

import json
import zipfile

import pytest

from benchmarks.__main__ import main
from benchmarks.sharing import MANIFEST, import_machines, name_archive
from dse.platforms.fingerprint import key_of
from dse.records import RecordError, Writer, read_folder
from tests.made import alter, make_record

FACTS = {"cpu": "Far CPU", "cores": 4, "caches": {"L1": 32768}}
KEY = key_of(FACTS)
PLATFORM = f"""
name = "this"
title = "far"
machine_key = "{KEY}"
origin = "assumed"
note = "made up"
[[device]]
name = "cpu"
kind = "cpu"
cores = 4
[device.memory]
size_gib = 32
"""


def timed(op, **fields):
    shape = {"contestant": "numba", "op": op, "capacity": 1_000_000, "batch": 256, "primitive": "sum_tree"}
    seconds = {"median_seconds": 1e-5, "low_seconds": 9e-6, "high_seconds": 1.1e-5, "samples_seconds": (1e-5,) * 11}
    how = {"source": "measured", "status": "ok", "calls_per_sample": 3, "utc": "2026-11-01T00:00:00+00:00"}
    return make_record(**{**shape, **seconds, **how, "machine": {"key": KEY, **FACTS}, **fields})


def write(folder, *records, name="quick.jsonl"):
    with Writer(folder / KEY / name) as writer:
        for record in records:
            writer.append(record)


@pytest.fixture
def theirs(tmp_path):
    """The folder of results of another machine."""
    write(tmp_path / "theirs", *(timed(op) for op in ("draw", "update", "set")))
    (tmp_path / "theirs" / KEY / "platform.toml").write_text(PLATFORM)
    return tmp_path / "theirs"


@pytest.fixture
def archive(theirs, tmp_path):
    """An archive of those results."""
    path = tmp_path / "far.zip"
    assert main(["list", "--results", str(theirs), "--export", str(path)]) == 0
    return path


def rewrite(archive, changes, path):
    """Write an archive with files of other content, or without those whose content is None."""
    with zipfile.ZipFile(archive) as old:
        files = {name: old.read(name) for name in old.namelist()} | changes
    with zipfile.ZipFile(path, "w") as new:
        for name, content in files.items():
            if content is not None:
                new.writestr(name, content)
    return path


def test_exported_records_come_back_the_same(theirs, archive, tmp_path, capsys):
    here = tmp_path / "here"
    assert main(["import", str(archive), "--results", str(here), "--json"]) == 0
    (machine,) = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (machine["key"], machine["records"], machine["is_wrong"], machine["is_probed"]) == (KEY, 3, 0, True)
    assert read_folder(here) == read_folder(theirs)
    assert (here / KEY / "platform.toml").read_text() == PLATFORM
    assert import_machines(archive, here)[0].records == 3  # again: the same files are no conflict
    assert name_archive(here, KEY) == "far.zip"
    assert name_archive(theirs, KEY) == ""


def test_imported_records_answer_a_question(archive, tmp_path, capsys):
    here = tmp_path / "here"
    import_machines(archive, here)
    from dse.__main__ import main as ask  # noqa: PLC0415  # the other program

    words = ["recommend", "--machine", KEY, "--capacity", "1000000", "--batch", "256", "--results", str(here)]
    assert ask([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["question"]["machine"] == KEY
    assert answer["choice"]["value"] == pytest.approx(2e-5)  # a draw and an update
    main(["list", "--results", str(here), "--json"])
    assert {row["imported from"] for row in json.loads(capsys.readouterr().out)} == {"far.zip"}


def test_a_wrong_answer_stays_known(theirs, archive, tmp_path):
    none = {"median_seconds": None, "low_seconds": None, "high_seconds": None, "samples_seconds": ()}
    wrong = timed("sample", status="failed", reason="leaf 3 instead of leaf 4", calls_per_sample=None, **none)
    write(theirs, wrong, name="more.jsonl")
    main(["list", "--results", str(theirs), "--export", str(archive)])
    (machine,) = import_machines(archive, tmp_path / "here")
    assert (machine.records, machine.is_wrong) == (4, 1)


LINE = timed("draw").to_json().encode() + b"\n"


BAD_ARCHIVES = [
    ({MANIFEST: None}, "no fanout.json"),
    ({MANIFEST: b"{}"}, "states no format"),
    ({MANIFEST: b'{"format": 2}'}, "format 2"),
    ({f"{KEY}/quick.jsonl": None, f"{KEY}/platform.toml": None}, "no records"),
    ({f"{KEY}/quick.jsonl": None}, f"no records of machine {KEY}"),
    ({f"{KEY}/../../evil.jsonl": LINE}, "no file of records"),
    ({"/etc/evil.jsonl": LINE}, "no file of records"),
    ({f"{KEY}/run.py": b"print()"}, "no file of records"),
    ({f"{KEY}/quick.jsonl": LINE[:-1]}, "torn"),
    ({f"{KEY}/quick.jsonl": LINE[:70] + b"\n"}, "quick.jsonl:1"),
    ({f"{KEY}/quick.jsonl": b"\xff\xfe\n"}, "byte 0"),
    ({f"{KEY}/quick.jsonl": LINE.replace(b'"cores":4', b'"cores":8')}, "facts"),
    ({"0123456789/quick.jsonl": LINE}, f"a record is of machine {KEY}"),
    ({f"{KEY}/quick.jsonl": LINE.replace(b'"schema":3', b'"schema":9')}, "schema 9"),
    ({f"{KEY}/quick.jsonl": LINE.replace(b"2026", b"2626")}, "future"),
    ({f"{KEY}/quick.jsonl": LINE.replace(b'"median_seconds":1e-05', b'"median_seconds":-1.0')}, "median_seconds"),
    ({f"{KEY}/platform.toml": b"name = 3"}, "platform.toml"),
    ({f"{KEY}/platform.toml": PLATFORM.replace(KEY, "0123456789").encode()}, "machine 0123456789"),
]


def test_a_bad_archive_is_refused_before_anything_is_written(archive, tmp_path, capsys):
    here = tmp_path / "here"
    for changes, words in BAD_ARCHIVES:
        bad = rewrite(archive, changes, tmp_path / "bad.zip")
        assert main(["import", str(bad), "--results", str(here)]) == 2, words
        error = capsys.readouterr().err
        assert error.startswith("error: ") and words in error and error.count("\n") == 1, (words, error)
        assert not here.exists(), words


def test_what_is_here_with_other_content_is_kept(archive, tmp_path):
    here = tmp_path / "here"
    write(here, alter(timed("draw"), utc="2026-11-02T00:00:00+00:00"))
    before = (here / KEY / "quick.jsonl").read_bytes()
    with pytest.raises(RecordError, match="is here with other content"):
        import_machines(archive, here)
    assert (here / KEY / "quick.jsonl").read_bytes() == before
    assert [path.name for path in (here / KEY).iterdir()] == ["quick.jsonl"]


def test_a_damaged_archive_is_never_taken_for_good(archive, tmp_path):
    whole, here = archive.read_bytes(), tmp_path / "here"
    flipped = bytearray(whole)
    flipped[whole.index(b"quick.jsonl") + 60] ^= 1  # of a file's content, whose checksum tells
    for content in (b"", b"no archive", b"PK\x03\x04", LINE, whole[:-1], whole[: len(whole) // 2], bytes(flipped)):
        (tmp_path / "damaged.zip").write_bytes(content)
        with pytest.raises(RecordError):
            import_machines(tmp_path / "damaged.zip", here)
        assert not here.exists()
