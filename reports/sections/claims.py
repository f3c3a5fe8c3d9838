"""The page's sections of claims with their verdicts, one for each paper without a section of its own."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dse.published import claims
from dse.published.rmm_claims import PAPER as FPGA_PAPER
from dse.records import Measurement

from ..chart import Material, Section
from ..markup import table


def judged(paper: str, measurements: Sequence[Measurement], results: Path, heading: str = "claim") -> str:
    """Return a table of a paper's claims with verdict and evidence."""
    rows = [(claim.text, claim.verdict, claim.evidence) for claim in claims.judged(paper, measurements, results)]
    return table((heading, "verdict", "evidence"), rows)


def _html(paper: str, material: Material) -> str:
    return judged(paper, material.measurements, material.results)


SECTIONS = tuple(
    Section(120, f"Claims of {paper}", partial(_html, paper)) for paper in claims.papers() if paper != FPGA_PAPER
)  # the section on an FPGA judges the claims of FPGA_PAPER
