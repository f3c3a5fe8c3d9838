"""Tests of the claims of [Zhang2023] about its RMM: known answers, and verdicts that turn with a printed number."""

import itertools
import math

import numpy as np
import pytest

import impls
from dse.records import RecordError
from impls.fpga import cycles
from impls.fpga.design import Design
from reports.claims import fixed_point, quoted, rmm_claims, rmm_device, rmm_points
from tests.printed import but

SAMPLING, UPDATING, EVEN, FIXED, MEMORY, DSPS, BOUND, PERCENT, ON_CHIP, CLOCK, SPAN, GAIN, LINK = range(13)


@pytest.fixture(scope="module")
def judged(found):
    return rmm_claims.verdicts([], found)


def test_verdicts(judged):
    verdicts = [claim.verdict for claim in judged]
    refuted = {SAMPLING, UPDATING, EVEN, PERCENT, ON_CHIP, SPAN, LINK}
    assert {place for place, verdict in enumerate(verdicts) if verdict == "refuted"} == refuted
    assert {place for place, verdict in enumerate(verdicts) if verdict == "not testable here"} == {FIXED, GAIN}
    chosen = {MEMORY, DSPS, BOUND, CLOCK}
    assert {place for place, verdict in enumerate(verdicts) if verdict == "consistent"} == chosen
    assert len(verdicts) == LINK + 1


@pytest.mark.parametrize(
    ("place", "parts"),
    [
        (SAMPLING, ("64 by the formula and 122 by the law (1.91x)", "20 levels")),
        (UPDATING, ("32 by the formula and 53 by the law",)),
        (MEMORY, ("4.50 MiB with leaves of 17 bits and a root of 37", "128 of them, 4.50 MiB", "8.00 MiB")),
        (DSPS, ("40 a pipeline", "2 x 15 x 32 = 960")),
        (BOUND, ("shell 202110: 33 pipelines by DSP, 36 by LUT, so S = 32", "97% of its DSP, 88% of its LUT")),
        (BOUND, ("shell 201830: 32 pipelines by DSP, 28 by LUT, so S = 16", "113% of its LUT")),
        (PERCENT, ("11 of 12 agree", "DDPG LUT 61.0 %, printed 46")),
        (ON_CHIP, ("9.49 MiB", "33.75 MiB", "43.2 MiB", "35.4 million bytes")),
        (CLOCK, ("200 MHz", "655.7 us", "8,200 stages 15.99 cycles")),
        (SPAN, ("188.6 times", "grows 64 times", "not reproduced")),
        (GAIN, ("7.2 times", "no contradiction")),
        (LINK, ("7.4 GB/s to the device and 12.1 from it", "13.6 us for 64 bytes")),
        (EVEN, ("10.47", "32.00")),
        (
            FIXED,
            (
                "width of a leaf is not printed",
                "at 17 bits it fails with rank^-1.0",
                "917,505 with rank^-1.0, 14 % of the probability",
            ),
        ),
    ],
)
def test_evidence_has_the_known_answers(judged, place, parts):
    for part in parts:
        assert part in judged[place].evidence


def test_the_two_readings_of_the_memory_and_of_a_small_batch_are_exact():
    design = Design(1 << 20, 2, 17, "scan")
    bits = sum(size * width for size, width in zip(design.sizes, design.widths, strict=True))
    assert bits == 18 * 2**21 - 39
    assert rmm_device._tree_mib(17) == pytest.approx(4.5, abs=1e-5)
    assert (1 << 20) * 36 == 4.5 * 8 * 2**20
    assert (cycles.published_sample_cycles(design, 32), cycles.count_cycles(design, "sample", 32)) == (64, 122)


@pytest.mark.parametrize(
    ("place", "verdict", "numbers"),
    [
        (MEMORY, "refuted", {"seed3__table_vi__rmm__sram_mb": 4.4}),
        (DSPS, "refuted", {"seed3__table_vi__rmm__dsp": 960}),
        (BOUND, "refuted", {"seed3__table_vi__rmm__dsp": 2 * 1280}),
        (BOUND, "refuted", {"alveo_u200__shell_202110__slr1__dsp": 1_279}),
        (PERCENT, "adds up", {"seed3__table_vi__ddpg_percent__lut": 61}),
        (PERCENT, "refuted", {"seed3__table_vi__ddpg_percent__lut": 61, "seed3__table_vi__rmm_percent__ff": 13}),
        (ON_CHIP, "adds up", {"seed3__table_iv__sram_mb": 43.2}),
        (CLOCK, "refuted", {"seed3__table_iv__peak_tops": 1.02}),
        (SPAN, "adds up", {"seed3__fig_12__sampling_speed_up": 13.9}),
        (GAIN, "refuted", {"seed3__fig_12__update_speed_up_most": 1e6}),
        (LINK, "adds up", {"seed3__link__gb_per_second": 12}),
    ],
)
def test_another_number_printed_turns_the_verdict(found, place, verdict, numbers):
    claim = rmm_claims.verdicts([], but(found, **numbers))[place]
    assert claim.verdict == verdict, claim.evidence


@pytest.mark.parametrize(
    ("place", "chance"),
    [
        (MEMORY, "of the 90 numbers from 1.0 to 9.9 MB, 40% would have passed"),
        (DSPS, "of whole DSPs a pipeline from 1 to 80, one would have passed"),
        (BOUND, "of the 7 powers of two up to 64, 2 would have passed"),
        (CLOCK, "in 17% of cases"),
    ],
)
def test_where_a_parameter_was_chosen_the_chance_of_any_other_number_stands_beside(judged, place, chance):
    assert chance in judged[place].power
    assert judged[place].rule.startswith("consistent if")


def test_numbers_that_pass_by_a_chosen_width_are_as_many_as_said(found):
    """Two in five numbers of MB pass: the power of the claim, counted by judging each of them."""
    passed = [
        rmm_device.verdicts(but(found, seed3__table_vi__rmm__sram_mb=tenth / 10))[0].verdict == "consistent"
        for tenth in rmm_device.PRINTABLE
    ]
    assert sum(passed) / len(passed) == 0.4


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [(True, True, "adds up"), (False, False, "refuted"), (True, False, "not testable here")],
)
def test_what_hangs_on_a_width_that_is_not_printed_is_not_testable(first, second, verdict):
    assert rmm_claims._of_readings(first, second) == verdict


# Fixed point


@pytest.mark.parametrize("skew", fixed_point.SKEWS)
def test_fraction_bits_are_the_most_that_hold_the_largest_priority(skew):
    leaves = fixed_point.priorities(skew)
    for bits in (6, 17, 18):
        held, fraction_bits = fixed_point.stored(leaves, bits)
        most = (1 << bits) - 1
        assert held.max() * 2.0**fraction_bits <= most < np.rint(leaves.max() * 2.0 ** (fraction_bits + 1))


def test_more_skew_needs_more_bits_and_each_bit_four_times_the_draws():
    assert [fixed_point.least_bits(skew) for skew in fixed_point.SKEWS] == [7, 8, 14, 19]
    for skew in fixed_point.SKEWS:
        needed = [fit.needed for fit in fixed_point.fits() if fit.skew == skew]
        assert all(low < high for low, high in itertools.pairwise(needed))
    steep = fixed_point.fit_of("rank^-0.6", 20).needed / fixed_point.fit_of("rank^-0.6", 18).needed
    assert steep == pytest.approx(16, rel=0.05)


def test_exact_leaves_are_never_told_from_float64():
    assert all(fit.passes and not fit.zeros for fit in fixed_point.fits() if fit.leaf_bits >= 24)


def test_leaves_stored_as_zero_are_never_sampled_and_counted():
    fit = fixed_point.fit_of("rank^-1.0", 14)
    leaves = fixed_point.priorities("rank^-1.0")
    tree = impls.make("fpga", leaves.size, dtype="float64", leaf_bits=14, fraction_bits=fit.fraction_bits)
    gone = tree.rounded(leaves) == 0
    assert fit.zeros == gone.sum() > 0
    assert fit.lost == pytest.approx(leaves[gone].sum() / leaves.sum())
    tree.update(np.arange(leaves.size), leaves)
    sampled, _ = tree.sample(np.random.default_rng(0).random(4_096))
    assert not gone[sampled].any()


# Banks and design points


@pytest.mark.parametrize("batch", rmm_points.BANKED)
def test_what_is_inserted_lies_in_one_sub_tree_or_in_every_bank(batch):
    assert rmm_points.load_of("contiguous", rmm_points.INSERTED, batch).over_even == 32
    assert rmm_points.load_of("interleaved", rmm_points.INSERTED, batch).over_even == 1


def test_a_part_filled_buffer_crowds_sub_trees_and_not_leaves_dealt_in_turn():
    for batch, even in zip(rmm_points.BANKED, (1.8, 1.38, 1.09), strict=True):
        uniform = rmm_points.load_of("contiguous", rmm_points.UNIFORM, batch).over_even
        assert uniform == pytest.approx(even, rel=0.03)
        for filling in (rmm_points.UNIFORM, rmm_points.PART_FULL, rmm_points.NEWEST):
            dealt = rmm_points.load_of("interleaved", filling, batch).over_even
            assert dealt == pytest.approx(even, rel=0.03)
        assert rmm_points.load_of("contiguous", rmm_points.PART_FULL, batch).over_even > 10


def test_design_points_are_faster_than_the_published_one():
    for point in rmm_points.POINTS[1:]:
        for batch in rmm_points.BATCHES:
            ours, theirs = (rmm_points.call(one.design, "sample", batch) for one in (point, rmm_points.PUBLISHED))
            assert ours.cycles < theirs.cycles


def test_the_link_is_there_and_back():
    assert rmm_points.link_seconds(1_024) == pytest.approx(26.6e-6 + 8_192 / 7.45e9 + 8_192 / 12.1e9)


# What is quoted


def test_every_quoted_number_has_a_place_and_is_found(found, tmp_path):
    assert all(": " in found.where(name) and math.isfinite(number) for name, number in found.numbers.items())
    assert found["seed3.table_vi.rmm.lut"] == 181_000
    assert found.where("seed3.build.clock_mhz").startswith("build notes")
    assert found.table("alveo_u200.shell_202110.slr1")["uram"] == 160
    with pytest.raises(RecordError, match=r"did you mean seed3\.table_vi\.rmm\.dsp\?"):
        found["seed3.table_vi.rmm.dps"]
    with pytest.raises(RecordError, match="nothing is quoted here"):
        quoted.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('source = "a"\n[t]\nx = 1', "needs a source and a place"),
        ('place = "a"\n[t]\nx = 1', "needs a source and a place"),
        ('source = "a"\nplace = "b"\nx = "1"', "must be a number"),
        ('source = "a"\nplace = "b"\nx = true', "must be a number"),
        ("x = ", "cannot be read"),
    ],
)
def test_what_cannot_be_quoted_is_one_sentence(tmp_path, text, said):
    (tmp_path / "other.toml").write_text(text)
    with pytest.raises(RecordError, match=said):
        quoted.read(tmp_path)
