"""Tests of ``python -m dse platform``: what it prints, what it writes, and its exit codes."""

import json

import pytest

from dse import platforms
from dse.__main__ import main
from dse.platforms import probe
from impls.cores import count_allowed
from tests.system.test_probe import FOUND, SAMPLES
from tests.unit.test_platforms import GOOD


def ask(capsys, *words):
    """Run a platform command; returns (exit code, stdout, stderr)."""
    return main(["platform", *map(str, words)]), *capsys.readouterr()


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    return path


def test_list_names_what_is_shipped_and_this_machine(capsys, tmp_path):
    code, told, _ = ask(capsys, "list", "--results", tmp_path)
    assert code == 0
    assert {line.split()[0] for line in told.splitlines()[1:]} == {*platforms.names(), "this"}
    assert "not probed yet: python -m dse platform probe" in told


def test_show_draws_value_unit_origin_and_note(capsys, mine):
    code, told, _ = ask(capsys, "show", mine)
    assert code == 0
    assert "  bandwidth   51.2  GB/s  assumed    two channels\n" in told
    assert ["ff", "2000", "datasheet", '"'] in [line.split() for line in told.splitlines()]
    assert max(map(len, told.splitlines())) <= 120
    for name in platforms.names():
        assert ask(capsys, "show", name)[0] == 0


def test_show_json_has_every_key_in_si_units(capsys, mine):
    code, told, _ = ask(capsys, "show", mine, "--json")
    found = {row["key"]: row for row in json.loads(told)}
    row = found["device.cpu.memory.bandwidth"]
    assert code == 0
    stated = [row[name] for name in ("si_unit", "value", "origin", "note", "spread")]
    assert stated == ["B/s", 51.2e9, "assumed", "two channels", None]
    assert found["device.card.kind"]["value"] == "fpga"


def test_check_exits_0_for_what_is_fine_and_2_with_every_fault(capsys, mine):
    assert ask(capsys, "check", mine) == (0, f"{mine}: fine, 15 numbers of cpu, card\n", "")
    mine.write_text(GOOD.replace("cores = 8", "coers = 8").replace("size_kib = 32", "size_kib = -1"))
    code, told, _ = ask(capsys, "check", mine)
    assert code == 2
    assert told.splitlines() == [
        f"{mine}:5: device 'cpu' lacks cores, which every cpu has",
        f"{mine}:8: unknown key 'coers'; did you mean 'cores'?",
        f"{mine}:11: size_kib must be above 0, not -1",
    ]
    code, told, _ = ask(capsys, "check", mine, "--json")
    assert (code, [row["line"] for row in json.loads(told)]) == (2, [5, 8, 11])


def test_probe_writes_a_file_that_passes_check_and_becomes_this(capsys, tmp_path, monkeypatch):
    made = probe.describe(platforms.fingerprint(), FOUND, count_allowed(), SAMPLES)
    monkeypatch.setattr(probe, "probe", lambda tell: made)
    code, told, _ = ask(capsys, "probe", "--results", tmp_path)
    path = tmp_path / platforms.fingerprint()["key"] / "platform.toml"
    assert code == 0
    assert told.endswith(f"written to {path}\n")
    assert ask(capsys, "check", path)[0] == 0
    assert platforms.load("this", tmp_path) == made
    assert "+-" in ask(capsys, "show", "this", "--results", tmp_path)[1]
    assert "as probed" in ask(capsys, "list", "--results", tmp_path)[1]
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(probe, "probe", lambda tell: pytest.fail("nothing is measured that cannot be kept"))
    for out in (tmp_path / "file" / "x.toml", tmp_path):
        code, _, complaint = ask(capsys, "probe", "--out", out)
        assert code == 2
        assert "cannot be written" in complaint
