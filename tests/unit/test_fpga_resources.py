"""Laws of resources against what synthesis counted, those points above all that took no part in fitting."""

from dataclasses import replace

import pytest

from impls.fpga import resources
from impls.fpga.coefficients import LUTS
from impls.fpga.design import Design
from impls.fpga.resources import Budget, DoesNotFit, fits
from tests.oracles.rtl.fit import fit, part_of, records
from tests.oracles.rtl.points import POINTS, Point

RECORDS = records()
HELD_OUT = [record for record in RECORDS if record["held_out"]]
KEYS = ("part", "batch", "uram", "held_out")
BLOCKS = ("bram18", "bram36", "uram")
LUT_TOLERANCE = 0.15
FF_TOLERANCE = 0.005  # bits that nothing reads, which the tool finds in some adders and not in others


def name_of(record):
    design = record["design"]
    return "-".join(str(design[key]) for key in ("micro", "fanout", "capacity", "leaf_bits", "banks")) + record["part"]


def check(record, coefficients=LUTS):
    """AssertionError unless the laws foretell memories and DSP blocks exactly, flip-flops and look-up tables nearly."""
    part, counted = part_of(record), record["counts"]
    assert {block: part.primitives.get(block, 0) for block in BLOCKS} == {block: counted[block] for block in BLOCKS}
    assert part.memory_luts == counted["lutram"], "look-up tables that serve as memory"
    assert counted["dsp"] == 0
    assert part.ff == pytest.approx(counted["ff"], rel=FF_TOLERANCE), "flip-flops"
    luts = part.fitted_luts(coefficients) + part.memory_luts
    assert luts == pytest.approx(counted["lut"], rel=LUT_TOLERANCE), "look-up tables"


@pytest.mark.parametrize("record", HELD_OUT, ids=name_of)
def test_laws_foretell_what_took_no_part_in_fitting(record):
    check(record)


def check_all(records, coefficients=LUTS):
    for record in records:
        check(record, coefficients)


def test_laws_tell_what_they_were_fitted_to():
    check_all(RECORDS)


def test_every_point_was_synthesized_and_no_other():
    described = {Point(**{key: record[key] for key in KEYS}, design=Design(**record["design"])) for record in RECORDS}
    assert described == set(POINTS)
    assert len(RECORDS) == len(POINTS) >= 40
    assert len(HELD_OUT) >= 10
    assert {record["design"]["micro"] for record in HELD_OUT} == {"scan", "wide"}
    assert {record["part"] for record in HELD_OUT} >= {"bank", "rmm", "dispatcher"}


def test_coefficients_are_those_of_the_records():
    assert fit(RECORDS) == pytest.approx(LUTS)
    assert min(LUTS.values()) >= 0


def test_fitting_leaves_out_what_is_held_out():
    spoiled = [
        record | {"counts": record["counts"] | {"lut": 1}} if record["held_out"] else record for record in RECORDS
    ]
    assert fit(spoiled) == fit(RECORDS)


def dearer(position):
    """Kinds of primitives, one of them at four times the cost."""
    kinds = list(resources.KINDS)
    *primitives, port = kinds[position]
    kinds[position] = *[[replace(single, each=4 * single.each) for single in way] for way in primitives], port
    return tuple(kinds)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("_kept", lambda design, level: design.widths[level] + 1),
        ("_bits", int.bit_length),
        *(("KINDS", dearer(position)) for position in range(3)),
    ],
    ids=["width", "bits", "DISTRIBUTED", "BLOCK", "ULTRA"],
)
def test_a_law_that_is_wrong_is_caught(monkeypatch, name, wrong):
    monkeypatch.setattr(resources, name, wrong)
    with pytest.raises(AssertionError):
        check_all(HELD_OUT)


@pytest.mark.parametrize("term", ["siblings subtracted", "sibling passed", "lane merged"])
def test_a_coefficient_that_is_wrong_is_caught(term):
    with pytest.raises(AssertionError):
        check_all(HELD_OUT, LUTS | {term: 1.6 * LUTS[term]})


class TestOfTheWhole:
    def test_the_published_trees_bits(self):
        """[Zhang2023, Table VI]: 4.5 MB for K = 2 and 2^20 leaves, which 17-bit leaves give."""
        assert resources.resources(Design(1 << 20, 2, 17)).sram_bits / 8 / 2**20 == pytest.approx(4.5, abs=1e-5)
        assert resources.resources(Design(1 << 20, 2, 17, "scan", 32)).dsp == 0  # the published one: 40 a pipeline

    def test_banks_add_up(self):
        one, two = Design(4096, 4, 18, "scan"), Design(8192, 4, 18, "scan", 2)
        alone, both, between = resources.bank(one), resources.rmm(two), resources.dispatcher(two)
        assert both.ff == 2 * alone.ff + between.ff
        assert all(both.primitives[name] >= 2 * number for name, number in alone.primitives.items())
        assert resources.resources(two).sram_bits == 2 * resources.resources(one).sram_bits
        assert resources.bank(two) == alone

    def test_half_a_block_ram_counts_as_half(self):
        design = Design(256, 2, 18, "scan")
        assert resources.rmm(design).primitives["bram18"] == 1
        assert resources.resources(design).bram36 == 0.5

    @pytest.mark.parametrize("capacity", [1, 2, 17])
    @pytest.mark.parametrize("micro", ["scan", "wide"])
    def test_of_the_smallest(self, capacity, micro):
        needed = resources.resources(Design(capacity, 2, 8, micro))
        assert (needed.lut > 0, needed.ff > 0, needed.uram, needed.bram36) == (True, True, 0, 0)


class TestBudgets:
    design = Design(65536, 16, 18)

    def test_what_is_enough_is_enough(self):
        needed = resources.resources(self.design)
        exact = Budget(needed.lut, needed.ff, needed.dsp, needed.bram36, needed.uram)
        assert fits(self.design, exact) == needed == fits(self.design, Budget())

    @pytest.mark.parametrize("name", ["lut", "ff", "uram"])
    def test_one_too_few_is_too_few(self, name):
        need = getattr(resources.resources(self.design), name)
        with pytest.raises(DoesNotFit, match=f"{name}: have {need - 1:,}, need {need:,}") as refused:
            fits(self.design, Budget(**{name: need - 1}))
        assert refused.value.exceeded == {name: (need - 1, need)}

    def test_all_that_is_short_is_told(self):
        with pytest.raises(DoesNotFit) as refused:
            fits(self.design, Budget(lut=10, ff=20, dsp=0, uram=0))
        assert list(refused.value.exceeded) == ["lut", "ff", "uram"]
        assert isinstance(refused.value, ValueError)

    def test_without_ultra_ram_block_ram_is_taken(self):
        needed = fits(self.design, Budget(uram=0), uram=False)
        assert needed.bram36 > resources.resources(self.design).bram36


class TestSynthesis:
    """What writes the records."""

    @pytest.fixture
    def synthesis(self):
        pytest.importorskip("amaranth", reason="amaranth is not installed; it comes with the extra rtl")
        pytest.importorskip("pyosys", reason="pyosys is not installed; it comes with the extra rtl")
        from tests.oracles.rtl import synthesis  # noqa: PLC0415  # only where there is amaranth

        return synthesis

    def test_cells_of_unknown_cost_are_refused(self, synthesis):
        with pytest.raises(ValueError, match="LUT7"):
            synthesis.counts({"LUT6": 1, "LUT7": 1})

    def test_a_point_that_maps_nothing_is_no_record(self, synthesis):
        with pytest.raises(RuntimeError, match="no cells"):
            synthesis.synthesize(POINTS[0], limit_seconds=0.01)

    def test_what_stands_in_the_file_is_kept(self, synthesis, tmp_path, capsys):
        out = tmp_path / "synthesis.json"
        out.write_bytes(synthesis.OUT.read_bytes())
        assert synthesis.main(["--out", str(out)]) == 0
        assert capsys.readouterr().out.count("kept") == len(POINTS)
        assert out.read_bytes() == synthesis.OUT.read_bytes()

    @pytest.mark.slow
    def test_a_point_synthesized_again_is_as_recorded(self, synthesis):
        point = next(point for point in POINTS if point.part == "bank" and point.design.capacity == 256)
        again = synthesis.synthesize(point, limit_seconds=600)
        before = next(record for record in RECORDS if synthesis.key_of(record) == synthesis.key_of(again))
        assert again["counts"] == before["counts"]
