"""The page's sections of claims with their verdicts: one for all papers, one for each without a section of its own."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dse.published import claims
from dse.published.claims import VERDICTS, Claim
from dse.published.rmm_claims import PAPER as FPGA_PAPER
from dse.records import Measurement, RecordError

from ..chart import Material, Section
from ..markup import paragraph, paragraphs, table

MEANING = (
    "Confirmed and refuted are judged by the rule beside each claim. Consistent: the numbers agree, but a parameter "
    "that "
    "is not printed was chosen so that they do. Power: how likely the rule refutes a true claim and misses a false one "
    "at the noise of the run, computed."
)


def judged(paper: str, measurements: Sequence[Measurement], results: Path, heading: str = "claim") -> str:
    """Return a table of a paper's claims: verdict, rule, power and evidence of each."""
    rows = map(_row, claims.judged(paper, measurements, results))
    return table(("verdict", heading, "rule", "power", "evidence"), rows)


def _row(claim: Claim) -> tuple[str, ...]:
    return claim.verdict, claim.text, claim.rule, claim.power, claim.evidence


def overview(material: Material) -> str:
    """Return how often each verdict was given to each paper, and all verdicts below."""
    counts, rows, left_out = [], [], []
    for paper in claims.papers():
        try:
            verdicts = claims.judged(paper, material.measurements, material.results)
        except RecordError as error:
            left_out.append(f"Left out, claims of {paper}: {error}.")
            continue
        given = [claim.verdict for claim in verdicts]
        counts.append((paper, *(given.count(verdict) for verdict in VERDICTS)))
        rows += [(claim.verdict, paper, claim.text) for claim in verdicts]
    tables = table(("paper", *VERDICTS), counts) + table(("verdict", "paper", "claim"), rows)
    return paragraph(MEANING) + tables + paragraphs(left_out)


def _html(paper: str, material: Material) -> str:
    return judged(paper, material.measurements, material.results)


PRIMITIVES, FILES = (
    ("sum_tree", "memory", "peer", "replay_threads", "replay_processes", "training transport"),
    ("quoted/*.toml",),
)
SECTIONS = (
    Section(119, "Verdicts on the papers", overview, PRIMITIVES, FILES),
    *(
        Section(120, f"Claims of {paper}", partial(_html, paper), PRIMITIVES, FILES)
        for paper in claims.papers()
        if paper != FPGA_PAPER
    ),
)  # the section on an FPGA judges the claims of FPGA_PAPER
