"""Tests of warnings of ``platform check``: numbers that are possible alone and do not go together."""

import json
import re

import pytest

from dse import platforms
from dse.__main__ import main
from dse.mapping.what_if import with_changes
from dse.platforms import load
from dse.platforms.reading import path_of
from dse.platforms.writing import to_toml


def check(capsys, path, *words):
    code = main(["platform", "check", str(path), *words])
    return code, capsys.readouterr().out


def warned(capsys, tmp_path, name, *changes):
    """Check a shipped platform after changes to its text; returns the warnings as LINE: SENTENCE."""
    text = path_of(name).read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = tmp_path / "mine.toml"
    path.write_text(text)
    code, told = check(capsys, path)
    assert code == 0
    first, *rest = told.splitlines()
    assert first.startswith(f"{path}: fine")
    assert ("warning" in first) == bool(rest)
    assert all(line.startswith(f"warning: {path}:") for line in rest)
    return [line.removeprefix(f"warning: {path}:") for line in rest], text


@pytest.mark.parametrize("name", platforms.names())
def test_what_ships_goes_together(capsys, name):
    code, told = check(capsys, path_of(name))
    assert (code, told.count("\n"), "warning" in told) == (0, 1, False)
    assert check(capsys, path_of(name), "--json") == (0, "[]\n")


def test_64_cores_beside_what_16_have(capsys, tmp_path):
    """Each number that was left as it was for 16 cores is named with its value, a bound and what to state."""
    found, text = warned(capsys, tmp_path, "h200", ("\ncores = 16", "\ncores = 64"))
    for line in found:
        at = int(line.partition(":")[0])
        assert re.match(r"(threads|peak_fp32_tops|power_watts|bandwidth_gb_per_s) = ", text.splitlines()[at - 1]), line
    for words in (
        "16 threads are not a multiple of its 64 cores",
        "peak_fp32 of 1.54 Top/s is 8.02 operations a core and cycle, at least 16 are usual",
        "state that of all 64 cores, at least 3.07 Top/s, or fewer cores",
        "bandwidth of 150 GB/s is 2.34 GB/s a core, at least 3 are usual",
        "peak_fp32 is stated for 16 cores by its note, the device has 64",
    ):
        assert words in "\n".join(found)


def test_a_number_is_compared_even_where_its_note_counts_nothing(capsys, tmp_path):
    changes = (
        ("\ncores = 16\nthreads = 16", "\ncores = 64\nthreads = 64"),
        ('"16 cores x 3 GHz x 32 (two 8-wide fused units)"', '"fused units"'),
        ('"16 cores\' share of a socket"', '"a share"'),
        ('"16 cores\' share of a socket; four channels of DDR5-4800 have 153.6"', '"four channels"'),
    )
    found, _ = warned(capsys, tmp_path, "h200", *changes)
    assert [re.match(r"\d+: (\w+)", line)[1] for line in found] == ["peak_fp32", "L3", "bandwidth"]
    assert "L3 is shared by 16 of 64 hardware threads, so there are 4 a socket" in found[1]
    own = ("size_mib = 32\nshared_by = 16", 'size_mib = 32\nshared_by = { value = 16, note = "one a chiplet" }')
    assert len(warned(capsys, tmp_path, "h200", *changes, own)[0]) == 2


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("h200", "\nclock_ghz = 3", "\nclock_ghz = 0.3", "operations a core and cycle, at most 64"),
        ("h200", "value = 150", "value = 1500", "GB/s a core, at most 60 are usual"),
        ("h200", "peak_fp32_tops = 67", "peak_fp32_tops = 6.7", "operations a multiprocessor and cycle, at least 60"),
        ("h200", "multiprocessors = 132", "multiprocessors = 13", "for 132 multiprocessors by its note, the"),
        ("h200", "bandwidth_tb_per_s = 4.8", "bandwidth_gb_per_s = 48", "GB/s a multiprocessor, at least 3"),
        ("h200", "shared_by = 132", "shared_by = 100", "L2 is shared by 100, which does not divide the 132 multiproc"),
        ("h200", "size_mib = 32\nshared_by = 16", "size_mib = 32\nshared_by = 12", "not divide the 16 hardware"),
        ("h200", "size_mib = 32\n", "size_kib = 32\n", "L3 has 32 KiB, L2 has 1 MiB; state caches from the nearest"),
        ("h200", "\nbeta_gb_per_s = 54", "\nbeta_gb_per_s = 540", "beta of 540 GB/s is above the raw rate"),
        ("u200", "\nthreads = 56", "\nthreads = 42", "42 threads are not a multiple of its 28 cores"),
        ("u200", "\nsockets = 2", "\nsockets = 3", "28 cores are not shared out evenly by 3 sockets"),
        ("u200", "power_watts = { value = 210", "power_watts = { value = 2100", "W a core, at most 40"),
        ("u200", "\nclock_mhz = { value = 200,", "\nclock_ghz = { value = 2,", "a clock of 2 GHz; designs run at 50"),
        ("edge", "bandwidth_gb", "copy_gb_per_s = 25\nbandwidth_gb", "copy of 25 GB/s is above the memory's bandwidth"),
    ],
)  # fmt: skip
def test_numbers_that_do_not_go_together(capsys, tmp_path, name, old, new, words):
    found, text = warned(capsys, tmp_path, name, (old, new))
    assert words in "\n".join(found)
    assert all("; " in line for line in found)  # what is wrong, and the remedy
    assert all(1 < int(line.partition(":")[0]) <= text.count("\n") for line in found)


def test_json_tells_warnings_from_errors(capsys, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(path_of("h200").read_text().replace("\ncores = 16", "\ncores = 64"))
    code, told = check(capsys, path, "--json")
    rows = json.loads(told)
    assert (code, {row["kind"] for row in rows}) == (0, {"warning"})
    assert all(row["line"] and row["sentence"] and row["where"] == str(path) for row in rows)
    path.write_text(path_of("h200").read_text().replace("\ncores = 16", "\ncores = -1"))
    code, told = check(capsys, path, "--json")
    assert (code, {row["kind"] for row in json.loads(told)}) == (2, {"error"})


def test_what_if_grows_what_is_stated_of_all_cores(capsys, tmp_path):
    """A change of cores by ``what-if`` leaves nothing behind that it could scale: memory and its sharing stay."""
    path = tmp_path / "grown.toml"
    path.write_text(to_toml(with_changes(load("h200"), {"cpu.cores": 32})))
    sentences = [row["sentence"] for row in json.loads(check(capsys, path, "--json")[1])]
    assert not [each for each in sentences if "operations" in each or "threads are not" in each]
