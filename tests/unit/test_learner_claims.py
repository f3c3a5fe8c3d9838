"""Tests of the claims of [Zhang2023] about its learner: known answers, and verdicts that turn with a printed number."""

import pytest

from impls.fpga.learner import FP32, ledger, resources
from impls.fpga.network import parse
from reports.claims import learner_claims, learner_points
from tests.printed import but

(
    CARTPOLE, HOPPER, PONG, STAGES, PARALLEL, UNITS, FACTOR, DQN, DDPG, LUTS,
    STEPS, HOPPER_STEPS, CARTPOLE_CURVE, HOPPER_CURVE, PONG_CURVE, BASELINES, PER_WATT,
) = range(17)  # fmt: skip


@pytest.fixture(scope="module")
def judged(found):
    return learner_claims.verdicts([], found)


def test_verdicts(judged):
    verdicts = [claim.verdict for claim in judged]
    assert {place for place, verdict in enumerate(verdicts) if verdict == "adds up"} == {STAGES, PER_WATT}
    assert verdicts[STEPS] == verdicts[BASELINES] == "consistent"  # the design is made from the rate itself
    untold = {UNITS, DDPG, CARTPOLE_CURVE, HOPPER_CURVE, PONG_CURVE}
    assert {place for place, verdict in enumerate(verdicts) if verdict == "not testable here"} == untold
    assert len(verdicts) == PER_WATT + 1


@pytest.mark.parametrize(
    ("place", "parts"),
    [
        (CARTPOLE, ("|S| + |A| + 1 = 6 inputs has 137 weights and biases", "MACs are 120 forward")),
        (HOPPER, ("= 15 inputs has 70,145 weights", "MACs are 69,632 forward")),
        (PONG, ("[14] has 2.97M", "Nature 9.35M", "18.71M with 6 actions, 18.748M", "18.754M so with all 18")),
        (STAGES, ("3 FW + 1 LOSS + 2 BW + 3 WA = 9",)),
        (PARALLEL, ("DP x PI = B", "DP = 11 takes 6,029 cycles, DP = 2 at best 8,203")),
        (UNITS, ("these are 863 units and 0 DSP, and 511 units and 2",)),
        (FACTOR, ("801 units a pipeline, 4,005 DSP, and DP = 2 is 8,010, where two SLRs have 4,560",)),
        (DQN, ("alone are 19.2 MB", "10.2 MB with one pipeline and 23.0 with 2")),
        (DDPG, ("with DP = 2 are 2.0 MB",)),
        (LUTS, ("721K are 61% of the device", "would be 544K", "1,410 a MAC, or 1,063", "against 713")),
        (STEPS, ("DP = 2 and 16 cycles a stage", "3, 4, 1, 1, 1, 4, 1, 4, 3 units, make 1,524 at 200 MHz (-0.1%)")),
        (HOPPER_STEPS, ("at least 36.1 steps/s", "make 30.4 if none is ever idle")),
        (HOPPER_CURVE, ("lost by B = 2,048", "no contradiction")),
        (BASELINES, ("takes 2.27 us at B = 32", "G-G-G takes 2.26 ms and, 240.5 times slower, 2.70")),
        (PER_WATT, ("7.012 / 1.841 = 3.81", "1.598 / 0.87 = 1.84", "0.246 / 0.23 = 1.07", "435 and 210")),
        (PONG_CURVE, ("7.19 ms at B = 256", "leaves no room at B = 8", "which leaves room for such a crossing")),
    ],
)
def test_evidence_has_the_known_answers(judged, place, parts):
    for part in parts:
        assert part in judged[place].evidence


@pytest.mark.parametrize(
    ("place", "numbers", "verdict"),
    [
        (CARTPOLE, {"seed3_learner__table_iii__cartpole__macs": 120}, "adds up"),
        (HOPPER, {"seed3_learner__table_iii__hopper__macs": 69_600}, "adds up"),
        (PONG, {"seed3_learner__table_iii__pong__macs": 2_970_000}, "adds up"),
        (FACTOR, {"seed3__table_vi__ddpg__dsp": 8_100}, "adds up"),
        (DQN, {"seed3__table_vi__dqn__sram_mb": 23.0}, "adds up"),
        (DDPG, {"seed3__table_vi__ddpg__sram_mb": 2.0}, "adds up"),
        (DDPG, {"seed3__table_vi__ddpg__sram_mb": 1.5}, "refuted"),
        (LUTS, {"seed3__table_vi__ddpg_percent__lut": 61}, "adds up"),
        (HOPPER_STEPS, {"seed3_learner__table_v__hopper_fpga_slower": 12.7}, "adds up"),
        (STEPS, {"seed3__table_vii__cartpole__gps_per_watt": 5.9}, "refuted"),  # no whole units take 19 cycles
        (CARTPOLE_CURVE, {"seed3_learner__table_v__cartpole_gpu_slower": 0.01}, "refuted"),
        (HOPPER_CURVE, {"seed3_learner__table_vii__hopper__gps_per_watt": 100.0}, "refuted"),
        (PONG_CURVE, {"seed3_learner__table_vii__pong__gps_per_watt": 0.5}, "refuted"),
        (
            BASELINES,
            {"seed3_mapping__table_v__cartpole_ddpg__256__G-G-G": 100.0},
            "refuted",
        ),  # a larger batch is faster
        (PER_WATT, {"seed3_learner__table_vii_rllib__cartpole": 2.0}, "refuted"),
    ],
)
def test_a_verdict_turns_with_what_is_printed(found, place, numbers, verdict):
    assert learner_claims.verdicts([], but(found, **numbers))[place].verdict == verdict


def test_the_published_cartpole_design_makes_its_throughput(found):
    design = learner_points.published(found)
    assert (design.pipelines, max(design.stage_cycles), design.clock_hz) == (2, 16, 200e6)
    rate = 1 / ledger(design, 16384).seconds
    assert rate == pytest.approx(1525.1, rel=0.1)
    own = learner_points.best(design.network, 16384, learner_points.published_slices(found))
    assert 1 / learner_points.seconds(own, 16384) > 20 * rate
    assert learner_points.published_cycles(found) == pytest.approx(131_138, abs=1)


def test_default_costs_of_a_unit_are_the_quoted_ones(found):
    row = found.table("seed3.table_vi.dqn")
    units = row["dsp"] / FP32.dsp
    assert (FP32.lut, FP32.ff) == (round(row["lut"] / units), round(row["ff"] / units))


def test_a_curve_over_the_batch_rises(found):
    budget = learner_points.published_slices(found)
    curve = learner_points.curve(parse("hopper"), learner_points.powers(32, 256), budget)
    assert list(curve) == [32, 64, 128, 256]
    assert list(curve.values()) == sorted(curve.values())
    assert resources(learner_points.best(parse("hopper"), 256, budget).design).dsp <= 4560
