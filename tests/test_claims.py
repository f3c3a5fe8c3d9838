"""Tests of claims about other libraries, on records whose truth is known."""

import dataclasses

import pytest

from dse.published import peer_claims
from tests.test_records import measurement

CAPACITIES = (1 << 10, 1 << 14, 1 << 17, 1 << 20)
FOUR, HUNDRED, LINEAR = range(3)


def timed(implementation, seconds, dtype="float32", **fields):
    """Make records of an implementation's sample and update at B = 128; ``seconds`` of both by N."""
    shape = {"primitive": "peer", "batch": 128, "dtype": dtype, "contestant": implementation} | fields
    return [
        measurement(op=op, capacity=n, median_seconds=share * seconds(n), **shape)
        for n in CAPACITIES
        for op, share in (("draw", 0.75), ("update", 0.25))
    ]


def a_run(tianshou=4.0, rllib=100.0, exponent=1.0):
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


@pytest.mark.parametrize(("speed_up", "verdict"), [(4.0, "confirmed"), (3.9, "refuted"), (40.0, "confirmed")])
def test_four_times_tianshou(speed_up, verdict):
    claim = peer_claims.verdicts(a_run(tianshou=speed_up))[FOUR]
    assert claim.verdict == verdict
    assert (
        f"{speed_up:.3g}x in the geometric mean ({speed_up:.3g}x at N=1,024, {speed_up:.3g}x at N=16,384"
        in claim.evidence
    )
    assert f"with float64 leaves, as tianshou's: {speed_up / 2:.3g}x" in claim.evidence
    assert "the language is the same" in claim.evidence


def test_a_ratio_within_the_noise_counts():
    found = a_run(tianshou=3.9)
    assert peer_claims.verdicts([*found, *twin_of(found, 1.05)])[FOUR].verdict == "confirmed"
    swept = [dataclasses.replace(one, primitive=one.primitive.replace("peer", "sum_tree")) for one in twin_of(found, 2)]
    assert peer_claims.verdicts([*found, *swept])[FOUR].verdict == "refuted"


@pytest.mark.parametrize(("speed_up", "verdict"), [(101.0, "confirmed"), (99.0, "refuted")])
def test_a_hundred_times_rllib_beside_the_same_language(speed_up, verdict):
    claim = peer_claims.verdicts(a_run(rllib=speed_up))[HUNDRED]
    assert claim.verdict == verdict
    assert f"numba over RLlib: {speed_up:.3g}x in the geometric mean" in claim.evidence
    assert f"our tree in pure Python over RLlib's: {speed_up / 50:.3g}x in the geometric mean" in claim.evidence
    without = [one for one in a_run(rllib=speed_up) if one.contestant != "python"]
    assert "No tree of ours in pure Python" in peer_claims.verdicts(without)[HUNDRED].evidence


@pytest.mark.parametrize(("exponent", "verdict"), [(1.0, "confirmed"), (0.91, "confirmed"), (0.1, "refuted")])
def test_linear_growth(exponent, verdict):
    claim = peer_claims.verdicts(a_run(exponent=exponent))[LINEAR]
    assert claim.verdict == verdict
    assert f"fitted exponent of N {exponent:.2f}" in claim.evidence


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
    another = [dataclasses.replace(one, commit="another") for one in timed("tianshou", lambda n: 1e-3, "float64")]
    unchecked = timed("numba", lambda n: 1e-9, options={"validate": False})
    assert peer_claims.verdicts([*found, *elsewhere, *larger, *another, *unchecked]) == peer_claims.verdicts(found)
    assert {one.commit for one in peer_claims.one_run([*found, *another])} == {found[0].commit}
