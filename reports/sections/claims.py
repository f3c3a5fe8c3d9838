"""The page's sections of claims with their verdicts: one for all papers, one for each without a section of its own."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dse.published import claims
from dse.published.claims import VERDICTS, Claim
from dse.published.rmm_claims import PAPER as FPGA_PAPER
from dse.records import Measurement, RecordError

from ..chart import Material, Section
from ..markup import Cell, paragraph, paragraphs, slug, table

MEANING = (
    "Confirmed and refuted are judged by the rule beside each claim. Consistent: the numbers agree, but a parameter "
    "that "
    "is not printed was chosen so that they do. Power: how likely the rule refutes a true claim and misses a false one "
    "at the noise of the run, computed."
)


def judged(paper: str, measurements: Sequence[Measurement], results: Path, heading: str = "claim") -> str:
    """Return a table of a paper's claims: verdict, rule, power and evidence of each."""
    rows = [
        _row(claim, anchor(paper, place)) for place, claim in enumerate(claims.judged(paper, measurements, results), 1)
    ]
    return table(("verdict", heading, "rule", "power", "evidence", ""), rows)


def anchor(paper: str, place: int) -> str:
    """Make the name that links to a paper's verdict use; places count from 1."""
    return f"verdict-{slug(paper)}-{place}"


def _row(claim: Claim, name: str) -> tuple[str | Cell, ...]:
    return claim.verdict, claim.text, claim.rule, claim.power, claim.evidence, Cell("link", link=name, anchor=name)


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
        leads = (Cell("why", link=anchor(paper, place)) for place in range(1, len(verdicts) + 1))
        rows += [(claim.verdict, paper, claim.text, lead) for claim, lead in zip(verdicts, leads, strict=True)]
    tables = table(("paper", *VERDICTS), counts) + table(("verdict", "paper", "claim", ""), rows)
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
