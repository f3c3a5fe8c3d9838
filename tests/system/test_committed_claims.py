"""The committed records, held against every claim: no query of a claim matches several methods at one point."""

from dse.records import read_folder
from reports.claims import judge_claims
from tests.committed import COMMITTED


def test_every_claim_is_judged_by_one_machine_or_says_what_it_takes():
    judged = judge_claims(read_folder(COMMITTED), COMMITTED)
    said = ("measured on ", "computed: ", "not measured; ", "not run; ")
    assert [one.id for one in judged if not one.evidence.startswith(said)] == []
    assert [one.id for one in judged if one.verdict != "not testable here" and one.value is None] == []
    assert all(one.low <= one.value <= one.high for one in judged if one.value is not None)
