"""Tests of claims about other libraries, on records whose truth is known."""

import dataclasses

import pytest

from reports.claims import peer_claims
from tests.made import alter
from tests.system.test_records import measurement

CAPACITIES = (1 << 10, 1 << 14, 1 << 17, 1 << 20)
FOUR, HUNDRED, LINEAR = range(3)


def timed(implementation, seconds, dtype="float32", **fields):
    """Make records of an implementation's sample and update at B = 128; ``seconds`` of both by N."""
    shape = {"primitive": "peer", "batch": 128, "dtype": dtype, "contestant": implementation} | fields
    return [
        measurement(op=op, capacity=n, median_seconds=share * seconds(n), low_seconds=None, high_seconds=None, **shape)
        for n in CAPACITIES
        for op, share in (("draw", 0.75), ("update", 0.25))
    ]


def a_run(tianshou=4.0, rllib=100.0, exponent=1.0, noise=1.01):
    """A run whose A/A twins differ by the factor ``noise``; RLlib's grow like a power of N."""
    found = _a_run(tianshou, rllib, exponent)
    return found if noise is None else [*found, *twin_of(found, noise)]


def _a_run(tianshou, rllib, exponent):
    return [
        *timed("numba", lambda n: 1e-6),
        *timed("numba", lambda n: 2e-6, "float64"),
        *timed("python", lambda n: 50e-6),
        *timed("tianshou", lambda n: tianshou * 1e-6, "float64", fanout=2),
        *timed("rllib", lambda n: rllib * 1e-6 * (n / 2**15.25) ** exponent, "float64", fanout=2),
    ]


def twin_of(found, factor):
    return [
        dataclasses.replace(one, primitive="peer_again", median_seconds=factor * one.seconds)
        for one in found
        if (one.contestant, one.dtype) == ("numba", "float32")
    ]


@pytest.mark.parametrize(
    ("speed_up", "verdict"),
    [(4.0, "confirmed"), (3.9, "confirmed"), (3.1, "refuted"), (5.1, "refuted"), (40.0, "refuted")],
)
def test_four_times_tianshou(speed_up, verdict):
    claim = peer_claims.verdicts(a_run(tianshou=speed_up))[FOUR]
    assert claim.verdict == verdict
    assert (
        f"{speed_up:.3g}x in the geometric mean ({speed_up:.3g}x at N=1,024, {speed_up:.3g}x at N=16,384"
        in claim.evidence
    )
    assert f"with float64 leaves, as tianshou's: {speed_up / 2:.3g}x" in claim.evidence
    assert "the language is the same" in claim.evidence
    assert "for our tree: confirmed if" in claim.rule
    assert "within 3.2x to 5x" in claim.rule


@pytest.mark.parametrize("speed_up", [3.3, 4.85])
def test_a_ratio_that_the_noise_may_have_brought_there_is_not_judged(speed_up):
    found = a_run(tianshou=speed_up, noise=None)
    for noise, verdict in ((1.01, "confirmed"), (1.3, "not testable here")):
        assert peer_claims.verdicts([*found, *twin_of(found, noise)])[FOUR].verdict == verdict
    swept = [dataclasses.replace(one, primitive=one.primitive.replace("peer", "sum_tree")) for one in twin_of(found, 2)]
    assert peer_claims.verdicts([*found, *twin_of(found, 1.01), *swept])[FOUR].verdict == "confirmed"
    assert peer_claims.verdicts([*found, *swept])[FOUR].verdict == "not testable here"  # how noisy is not known


def test_ratios_that_differ_from_n_to_n_make_the_mean_uncertain():
    spread = dict(zip(CAPACITIES, (86e-6, 112e-6, 167e-6, 205e-6), strict=True))
    found = [one for one in a_run() if one.contestant != "rllib"]
    judged = peer_claims.verdicts([*found, *timed("rllib", spread.get, "float64")])[HUNDRED]
    assert judged.verdict == "not testable here"
    assert "interval 85.1x to 213x" in judged.evidence  # four values: Student, 3 degrees of freedom


def test_an_unstable_time_counts_with_its_own_interval():
    def torn(one):
        if (one.contestant, one.op) != ("tianshou", "draw"):
            return one
        ends = {"low_seconds": one.seconds / 1.6, "high_seconds": one.seconds * 1.6}
        return dataclasses.replace(one, status="unstable", **ends)

    found = a_run(tianshou=4.7)
    assert peer_claims.verdicts(found)[FOUR].verdict == "confirmed"
    claim = peer_claims.verdicts([torn(one) for one in found])[FOUR]
    assert claim.verdict == "not testable here"
    assert "4 of 16 times are unstable" in claim.evidence


@pytest.mark.parametrize(
    ("speed_up", "verdict"), [(101.0, "confirmed"), (99.0, "confirmed"), (79.0, "refuted"), (127.0, "refuted")]
)
def test_a_hundred_times_rllib_beside_the_same_language(speed_up, verdict):
    claim = peer_claims.verdicts(a_run(rllib=speed_up, exponent=0.0))[HUNDRED]
    assert claim.verdict == verdict
    assert f"numba over RLlib: {speed_up:.3g}x in the geometric mean" in claim.evidence
    assert f"our tree in pure Python over RLlib's: {speed_up / 50:.3g}x in the geometric mean" in claim.evidence
    without = [one for one in a_run(rllib=speed_up) if one.contestant != "python"]
    assert "No tree of ours in pure Python" in peer_claims.verdicts(without)[HUNDRED].evidence


@pytest.mark.parametrize(("exponent", "verdict"), [(1.0, "confirmed"), (0.5, "refuted"), (0.1, "refuted")])
@pytest.mark.parametrize("fixed", [0.0, 20e-6, 200e-6])
def test_linear_growth_whatever_a_call_costs_at_any_n(exponent, verdict, fixed):
    def seconds(n):
        return fixed + 4e-3 * (n / 2**20) ** exponent

    found = [one for one in a_run() if one.contestant != "rllib"]
    claim = peer_claims.verdicts([*found, *timed("rllib", seconds, "float64")])[LINEAR]
    assert claim.verdict == verdict
    assert f"p = {exponent:.2f}" in claim.evidence


def test_what_was_not_measured_is_not_testable_and_says_why():
    without = [one for one in a_run() if one.contestant not in ("tianshou", "rllib")]
    absent = measurement(primitive="peer", contestant="rllib", status="skipped", reason="no ray", median_seconds=None)
    claims = peer_claims.verdicts([*without, dataclasses.replace(absent, samples_seconds=())])
    assert {claim.verdict for claim in claims} == {"not testable here"}
    assert all("make peers" in claim.evidence for claim in claims)
    assert ["no ray" in claim.evidence for claim in claims] == [False, True, True]
    assert {claim.verdict for claim in peer_claims.verdicts([])} == {"not testable here"}


def test_only_the_figures_batch_and_capacities_of_one_run_count():
    found = a_run()
    elsewhere = timed("tianshou", lambda n: 1e-3, "float64", batch=256)
    larger = [dataclasses.replace(one, capacity=10_000_000) for one in timed("tianshou", lambda n: 1e-3, "float64")]
    another = [alter(one, commit="another") for one in timed("tianshou", lambda n: 1e-3, "float64")]
    unchecked = timed("numba", lambda n: 1e-9, options={"validate": False})
    assert peer_claims.verdicts([*found, *elsewhere, *larger, *another, *unchecked]) == peer_claims.verdicts(found)
    assert {one.commit for one in peer_claims.one_run([*found, *another])} == {found[0].commit}
