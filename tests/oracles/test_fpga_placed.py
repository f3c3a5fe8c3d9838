"""Records of trees placed on an ECP5 next to the laws, and where there is nextpnr, a small tree placed again."""

import json

import pytest

from impls.fpga import resources
from impls.fpga.design import MICROS, PORTS, Design
from tests.oracles.rtl import placed

RECORDS = json.loads(placed.OUT.read_text())


def check(record):
    """AssertionError unless the law foretells the block RAMs of a record, and cells and clocks are there."""
    design = Design(**record["design"])
    assert record["used"]["DP16KD"] == placed.count_blocks(design)
    cells, law = record["used"]["TRELLIS_COMB"], resources.rmm(design, record["batch"], uram=False)
    assert law.fitted_luts() / 2 < cells < 4 * law.fitted_luts(), "tables of 4 inputs for those of 6"
    assert record["used"]["TRELLIS_FF"] == pytest.approx(law.ff, rel=0.5)
    assert record["fmax_mhz"] == max(record["mhz_by_seed"].values()) > 10


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: "-".join(map(str, record["design"].values())))
def test_the_law_foretells_the_block_rams_of_placed_trees(record):
    check(record)


def test_every_design_was_placed_and_no_other():
    assert [record["design"] for record in RECORDS] == [placed.describe(design) for design in placed.DESIGNS]
    assert {design.micro for design in placed.DESIGNS} == set(MICROS)
    assert {design.ports for design in placed.DESIGNS} == set(PORTS)
    assert all(len(record["mhz_by_seed"]) >= 2 and record["tools"]["nextpnr"] for record in RECORDS)


def test_a_law_that_is_wrong_is_caught(monkeypatch):
    monkeypatch.setattr(resources, "_kept", lambda design, level: design.widths[level] + 9)
    with pytest.raises(AssertionError):
        for record in RECORDS:
            check(record)


def test_no_tool_is_told(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert placed.main() == 1
    assert "extra place" in capsys.readouterr().err


@pytest.mark.skipif(placed.find_tool() is None, reason="nextpnr-ecp5 is not installed; it comes with the extra place")
def test_a_small_tree_is_placed_as_the_law_says():
    pytest.importorskip("amaranth", reason="amaranth is not installed; it comes with the extra rtl")
    check(placed.place(Design(512, 8, 8, "scan"), placed.find_tool()))
