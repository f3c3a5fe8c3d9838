"""Tests of the exploration: brute force, argmax and tie, and the properties an optimum must have."""

import itertools
import random

import pytest

from dse.fpga import Slice, design, pool, rmm_search, subtract
from dse.fpga.learner_search import Problem, fastest
from dse.fpga.rmm_search import Space
from impls.fpga import cycles, resources
from impls.fpga.coefficients import LUTS
from impls.fpga.design import PORTS, Design
from impls.fpga.model import batches, ledger
from impls.fpga.network import parse
from impls.fpga.resources import Budget, DoesNotFit, exceeded, fits
from tests.matrix import slow
from tests.oracles.fpga_brute_force import brute_force, drawn, small_primitives
from tests.oracles.rtl.fit import POINTS, fit, part_of, records
from tests.oracles.rtl.fit import RECORDS as FILE


@pytest.mark.parametrize("problems", [60, slow(2_000)])
def test_the_fastest_learner_is_that_of_brute_force(monkeypatch, problems):
    small_primitives(monkeypatch)
    rng, solved = random.Random(6), 0
    for _ in range(problems):
        problem = drawn(rng)
        expected = brute_force(problem)
        if expected is None:
            with pytest.raises(DoesNotFit):
                fastest(problem)
            continue
        solved += 1
        assert fastest(problem)[0] == expected, problem
    assert solved > problems / 2


# Properties of an optimum


# The replay management module


DESIGNS = (
    Design(1),
    Design(5, 2, banks=4),
    Design(1000, 4, 18, "scan", 8, "contiguous"),
    Design(1000, 16, 18, "wide", 32, "interleaved"),
)


def test_mean_cycles_are_those_of_the_ledger():
    for batch, shape in itertools.product((1, 7, 256), DESIGNS):
        told = ledger(shape, "step", batch).cycles
        assert rmm_search.mean_cycles(shape, batch) == pytest.approx(told, rel=1e-9), (shape, batch)
    for ports, micro, banks in (("dual", "wide", 8), ("copied", "scan", 4)):  # sides at once take what the longer does
        shape = Design(1000, 2, 18, micro, banks, ports=ports)
        drawn = list(batches(shape, "sample", 200, None))
        pairs = zip(drawn, [drawn[-1], *drawn[:-1]], strict=True)
        spent = [
            max(cycles.count_queued_cycles(shape, "sample", now), cycles.count_queued_cycles(shape, "update", before))
            for now, before in pairs
        ]
        assert rmm_search.mean_cycles(shape, 200) == pytest.approx(sum(spent) / len(spent), rel=1e-9)


def test_a_batch_larger_than_the_queues_comes_in_parts():
    design = Design(1000, banks=4)
    whole, part = rmm_search.Rmm(design, 64, True), rmm_search.Rmm(design, 16, True)
    assert whole.cycles(64) == rmm_search.mean_cycles(design, 64)
    assert part.cycles(40) == 2 * rmm_search.mean_cycles(design, 16) + rmm_search.mean_cycles(design, 8)
    assert part.needed.lut < whole.needed.lut


def test_every_design_is_priced_and_the_best_comes_first():
    space = Space(500, 64, fanouts=(2, 8), banks=(1, 4, 1000), leaf_bits=(12, 18), queues=(16, 256))
    points = rmm_search.priced(space)
    shapes = {(point.design.design.banks, point.design.queue) for point in points}
    assert shapes == {(1, 64), (4, 16), (4, 64)}
    assert len(points) == 2 * 2 * 2 * 2 * (1 + 2 * 2)  # fanout, micro, bits, UltraRAM; one bank or banking and queue
    assert [point.cycles for point in points] == sorted(point.cycles for point in points)
    best = points[0].design.design
    assert (best.banking, best.leaf_bits, best.micro) == ("interleaved", 18, "wide")


# Both together


SLICES = (
    Slice("a", Budget(lut=60_000, ff=90_000, dsp=300, bram36=60, uram=20)),
    Slice("b", Budget(lut=40_000, ff=60_000, dsp=200, bram36=40, uram=10)),
    Slice("c", Budget(lut=60_000, ff=90_000, dsp=300, bram36=60, uram=20)),
)


def choose(text, space, sharing, count=3):
    return design.explore(design.Question(parse(text), space, SLICES[:count], sharing))


def nested(network, space, slices, sharing):
    """Try every RMM in every slice that it fits, each with the best learner for what is left."""
    whole = pool(slices)
    for point in rmm_search.priced(space):
        for held in slices:
            if exceeded(point.needed, held.budget):
                continue
            others = [part for part in slices if part is not held]
            left = pool(others) if sharing == "kept" else subtract(whole, point.needed)
            try:
                found = fastest(Problem(network, space.batch, left))
            except DoesNotFit:
                continue
            names = tuple(part.name for part in slices if sharing == "free" or part is not held)
            yield from (design.Choice(point, held.name, learner, names) for learner in found)


@pytest.mark.parametrize("sharing", design.SHARINGS)
@pytest.mark.parametrize(("text", "batch", "count"), [("cartpole", 16, 3), ("mlp:4-40-2", 9, 2)])
def test_the_joint_choice_is_that_of_nested_loops(text, batch, count, sharing):
    space = Space(300, batch, fanouts=(2, 4), banks=(1, 8), queues=(), ports=PORTS)
    every = sorted(nested(parse(text), space, SLICES[:count], sharing), key=lambda choice: choice.order)
    best, other = choose(text, space, sharing, count)
    assert best == every[0]
    pipelines = best.learner.design.pipelines
    assert other.order == next(one.order for one in every if one.learner.design.pipelines != pipelines)


@pytest.mark.parametrize("sharing", design.SHARINGS)
def test_what_does_not_fit_is_named(sharing):
    for text, capacity, facts in (
        ("pong", 300, r"memory.bandwidth_gb_per_s.*uram"),
        ("cartpole", 1 << 20, r"RMM .* a"),
    ):
        with pytest.raises(DoesNotFit, match=facts):
            choose(text, Space(capacity, 8), sharing)
    with pytest.raises(DoesNotFit) as error:
        fastest(Problem(parse("cartpole"), 8, Budget(dsp=40)))
    assert error.value.exceeded == {"dsp": (40, 50)}


RECORDS = records()
HELD_OUT = [record for record in RECORDS if record["held_out"]]
BLOCKS = ("bram18", "bram36", "uram")
LUT_TOLERANCE = 0.15
FF_TOLERANCE = 0.005  # bits that nothing reads, which the tool finds in some adders and not in others


def check(record):
    """AssertionError unless the laws foretell memories and DSP blocks exactly, flip-flops and look-up tables nearly."""
    part, counted, where = part_of(record), record["counts"], (record["part"], record["design"])
    assert {block: part.primitives.get(block, 0) for block in BLOCKS} == {block: counted[block] for block in BLOCKS}
    assert (part.memory_luts, counted["dsp"]) == (counted["lutram"], 0), where
    assert part.ff == pytest.approx(counted["ff"], rel=FF_TOLERANCE), where
    luts = part.fitted_luts(LUTS) + part.memory_luts
    assert luts == pytest.approx(counted["lut"], rel=LUT_TOLERANCE), where


def test_laws_foretell_what_took_no_part_in_fitting():
    """And what did."""
    for record in RECORDS:
        check(record)


def test_points_of_every_part_were_synthesized_and_held_out():
    assert len(RECORDS) >= 40
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


def test_a_whole_tree_is_its_banks_and_what_is_between():
    """[Zhang2023, Table VI]: 4.5 MB for K = 2 and 2^20 leaves, which 17-bit leaves give, without a DSP block."""
    assert resources.resources(Design(1 << 20, 2, 17)).sram_bits / 8 / 2**20 == pytest.approx(4.5, abs=1e-5)
    assert resources.resources(Design(1 << 20, 2, 17, "scan", 32)).dsp == 0  # the published one: 40 a pipeline
    one, two = Design(4096, 4, 18, "scan"), Design(8192, 4, 18, "scan", 2)
    alone, both, between = resources.bank(one), resources.rmm(two), resources.dispatcher(two)
    assert both.ff == 2 * alone.ff + between.ff
    assert all(both.primitives[name] >= 2 * number for name, number in alone.primitives.items())
    assert resources.resources(two).sram_bits == 2 * resources.resources(one).sram_bits
    assert resources.bank(two) == alone
    assert resources.rmm(Design(256, 2, 18, "scan")).primitives["bram18"] == 1
    assert resources.resources(Design(256, 2, 18, "scan")).bram36 == 0.5  # half a block counts as half
    for capacity, micro in itertools.product((1, 2, 17), ("scan", "wide")):
        needed = resources.resources(Design(capacity, 2, 8, micro))
        assert (needed.lut > 0, needed.ff > 0, needed.uram, needed.bram36) == (True, True, 0, 0)


def test_one_too_few_of_a_budget_is_too_few():
    design = Design(65536, 16, 18)
    needed = resources.resources(design)
    exact = Budget(needed.lut, needed.ff, needed.dsp, needed.bram36, needed.uram)
    assert fits(design, exact) == needed == fits(design, Budget())
    for name in ("lut", "ff", "uram"):
        need = getattr(needed, name)
        with pytest.raises(DoesNotFit, match=f"{name}: have {need - 1:,}, need {need:,}") as refused:
            fits(design, Budget(**{name: need - 1}))
        assert refused.value.exceeded == {name: (need - 1, need)}
    with pytest.raises(DoesNotFit) as refused:
        fits(design, Budget(lut=10, ff=20, dsp=0, uram=0))
    assert list(refused.value.exceeded) == ["lut", "ff", "uram"]
    assert fits(design, Budget(uram=0), uram=False).bram36 > needed.bram36  # without UltraRAM block RAM is taken


@pytest.fixture
def synthesis():
    """Return the module that writes the records."""
    pytest.importorskip("amaranth", reason="amaranth is not installed; it comes with the extra rtl")
    pytest.importorskip("pyosys", reason="pyosys is not installed; it comes with the extra rtl")
    from tests.oracles.rtl import synthesis  # noqa: PLC0415  # only where there is amaranth

    return synthesis


def test_what_stands_in_the_file_is_kept(synthesis, tmp_path, capsys):
    out = tmp_path / "synthesis.json"
    out.write_bytes(FILE.read_bytes())
    assert synthesis.main(["--out", str(out)]) == 0
    assert capsys.readouterr().out.count("kept") == len(POINTS)
    assert out.read_bytes() == FILE.read_bytes()
    with pytest.raises(ValueError, match="LUT7"):
        synthesis.counts({"LUT6": 1, "LUT7": 1})
    with pytest.raises(RuntimeError, match="no cells"):
        synthesis.synthesize(POINTS[0], limit_seconds=0.01)


@pytest.mark.slow
def test_a_point_synthesized_again_is_as_recorded(synthesis):
    point = next(point for point in POINTS if point.part == "bank" and point.design.capacity == 256)
    again = synthesis.synthesize(point, limit_seconds=600)
    before = next(record for record in RECORDS if synthesis.key_of(record) == synthesis.key_of(again))
    assert again["counts"] == before["counts"]
