"""The page's sections of claims with their verdicts: one for all papers, one for each without a section of its own."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from dse.records import RecordError
from dse.times.cells import MachineRecords, evidence
from reports.claims import claims
from reports.claims.claims import UNTESTED, VERDICTS, Claim
from reports.claims.rmm_claims import PAPER as FPGA_PAPER

from ..chart import Material, Section
from ..markup import Cell, paragraph, paragraphs, slug, table

MEANING = (
    "Confirmed and refuted are judged by the rule next to each claim. Adds up: nothing was run, and arithmetic on "
    "printed numbers, a count or a law of ours agrees. Consistent: the numbers agree, but a parameter "
    "that is not printed was chosen so that they do. Power: how likely it refutes a true claim and misses a false "
    "one at the noise of the run, computed. Where this machine has no records to judge by, another's do, named."
)


def verdicts(paper: str, material: Material) -> list[Claim]:
    """Return the verdicts on a paper's claims; where this machine has no records to judge by, those of another, named.

    RecordError where nothing can be judged.
    """
    asked = ("verdicts", material.about.key, paper)
    if asked not in material.answers:
        own = claims.judged(paper, material.measurements, material.results)
        for known in _others(material) if any(map(_lacks, own)) else ():
            theirs = claims.judged(paper, known.records, material.results)
            own = [
                replace(two, evidence=f"on machine {known.machine_key}: {two.evidence}")
                if _lacks(one) and one.text == two.text and not _lacks(two)
                else one
                for one, two in zip(own, theirs, strict=True)
            ]
        material.answers[asked] = own
    return material.answers[asked]


def _lacks(claim: Claim) -> bool:
    """Tell whether there was nothing to judge a claim by."""
    return claim.verdict == UNTESTED and claim.power.startswith("none")


def _others(material: Material) -> list[MachineRecords]:
    """Return what is known of other machines, those with the most records first."""
    try:
        known = evidence(material.results)
    except RecordError:
        return []
    others = [one for key, one in known.items() if key != material.about.key]
    return sorted(others, key=lambda one: -len(one.records))


def judged(paper: str, known: Iterable[Claim], heading: str = "claim") -> str:
    """Return a table of a paper's claims: verdict, rule, power and evidence of each."""
    rows = [_row(claim, anchor(paper, place)) for place, claim in enumerate(known, 1)]
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
            known = verdicts(paper, material)
        except RecordError as error:
            left_out.append(f"Left out, claims of {paper}: {error}.")
            continue
        given = [claim.verdict for claim in known]
        counts.append((paper, *(given.count(verdict) for verdict in VERDICTS)))
        leads = (Cell("why", link=anchor(paper, place)) for place in range(1, len(known) + 1))
        rows += [(claim.verdict, paper, claim.text, lead) for claim, lead in zip(known, leads, strict=True)]
    tables = table(("paper", *VERDICTS), counts) + table(("verdict", "paper", "claim", ""), rows)
    return paragraph(MEANING) + tables + paragraphs(left_out)


def _html(paper: str, material: Material) -> str:
    return judged(paper, verdicts(paper, material))


PRIMITIVES, FILES = (
    (
        *("sum_tree", "memory", "peer", "replay_threads", "replay_processes", "replay_batches", "training"),
        *("training transport", "training run", "plugin"),
    ),
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
