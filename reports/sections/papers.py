"""The page's section that holds each paper against us: what it asks or claims, our figures of it, and the verdict."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dse.records import RecordError
from reports.claims import claims
from reports.claims.claims import Claim

from ..chart import Chart, Material, Section
from ..markup import Cell, here, outside, paragraph, safe, slug, table
from ..page import charts
from .claims import FILES, PRIMITIVES, anchor, verdicts


@dataclass(frozen=True)
class Paper:
    """A paper; ``address``: of a page where it can be read, "" where none is known to stay."""

    name: str
    authors: str
    title: str
    where: str
    address: str = ""

    @property
    def html(self) -> str:
        """The paper as an entry of a list, its title a link to its address."""
        title = outside(self.address, self.title) if self.address else safe(self.title)
        return f"{safe(self.name)} {safe(self.authors)}, {title}, {safe(self.where)}"


PAPERS = (
    Paper(
        "[Hou2023]",
        "J. Hou, G. Chen, R. Zhang, Z. Li, S. Gu, C. Jiang",
        "Spreeze: High-Throughput Parallel Reinforcement Learning Framework",
        "2023",
        "https://arxiv.org/abs/2312.06126",
    ),
    Paper(
        "[Mnih2013]",
        "V. Mnih et al.",
        "Playing Atari with Deep Reinforcement Learning",
        "2013",
        "https://arxiv.org/abs/1312.5602",
    ),
    Paper(
        "[StoneSachdev]",
        "C. Stone, K. Sachdev",
        "Analysis of Concurrent Reinforcement Learning Algorithms",
        "course report, Virginia Tech, no year stated",
    ),
    Paper(
        "[Zhang2021]",
        "C. Zhang, S. R. Kuppannagari, V. K. Prasanna",
        "Parallel Actors and Learners: A Framework for Generating Scalable RL Implementations",
        "HiPC 2021",
        "https://arxiv.org/abs/2110.01101",
    ),
    Paper(
        "[Zhang2022]",
        "C. Zhang",
        "Acceleration of Deep Reinforcement Learning: Efficient Algorithms and Hardware Mapping",
        "dissertation, USC 2022",
    ),
    Paper(
        "[Zhang2023]",
        "C. Zhang, Y. Meng, V. Prasanna",
        "A Framework for Mapping DRL Algorithms With Prioritized Replay Buffer Onto Heterogeneous Platforms",
        "TPDS 2023",
        "https://doi.org/10.1109/TPDS.2023.3264823",
    ),
)


def _items() -> Iterator[str]:
    yield from (f"<li>{paper.html}</li>\n" for paper in PAPERS)


HEAD = ("where", "what it claims or asks", "our figures", "verdict", "rule", "power")
CITED = re.compile(r"\[(?P<paper>\w+), (?P<places>Figs?\. [^\]]*)\]")  # in how to read a figure of ours
FIGURES = re.compile(r"Figs?\. (\d[\w.]*(?:(?:, | and |, and )\d[\w.]*)*)")
PLACE = re.compile(r" \((?P<place>[^()]*)\)(?=[.,])")  # where a claim stands, at the end of its words
TITLE = re.compile(r'alt="([^"]*)"')
NO_CLAIM = "no claim in numbers: compare the figures"
ABOUT = (
    "Each claim of a paper with the verdict on it, by what rule and how sure that rule is; the evidence stands where "
    "the verdict leads. Where a paper's figure makes no claim that a rule could judge, our figure of the same question "
    "stands next to it."
)


@dataclass(frozen=True)
class Asked:
    """A figure of ours, its question, and the figures of a paper, by number, that ask the same."""

    name: str
    question: str
    numbers: frozenset[str]


def numbers(words: str) -> frozenset[str]:
    """Find the numbers of the figures that words name.

    >>> sorted(numbers("[Zhang2022, Figs. 5.3 and 5.5] ask the same.")), sorted(numbers("VI-D, Fig. 8: insertion"))
    (['5.3', '5.5'], ['8'])
    """
    named = (number.rstrip(".") for found in FIGURES.findall(words) for number in re.split(r", and |, | and ", found))
    return frozenset(named)


def place_of(claim: str) -> str:
    """Find where a claim stands in its paper; "" where its words do not say.

    >>> place_of("Times grow linearly with the batch (5.1.2, Fig. 5.2)."), place_of("K = 16 is the best.")
    ('5.1.2, Fig. 5.2', '')
    """
    found = list(PLACE.finditer(claim))
    return found[-1]["place"] if found else ""


def asked(paper: Paper, shown: Sequence[Chart], material: Material) -> list[Asked]:
    """Return our figures that were drawn and say that a paper's figure asks the same."""
    found = []
    for chart in shown:
        title = TITLE.search(material.drawn.get(chart.name, ""))
        places = [one["places"] for one in CITED.finditer(chart.reading) if f"[{one['paper']}]" == paper.name]
        if title and places:
            found.append(Asked(chart.name, html.unescape(title[1]), frozenset().union(*map(numbers, places))))
    return found


def rows(paper: Paper, judged: Sequence[Claim], ours: Sequence[Asked]) -> Iterator[tuple[str | Cell, ...]]:
    """Yield a row for each claim, and for each figure of ours whose question no claim answers."""
    claimed: set[str] = set()
    for number, claim in enumerate(judged, 1):
        where = place_of(claim.text)
        there = numbers(claim.text)
        claimed |= there
        figures = _leads([one for one in ours if one.numbers & there])
        verdict = Cell(claim.verdict, link=anchor(paper.name, number))
        section = f"section {where}" if where[:1].isdigit() else where
        yield section, claim.text, figures, verdict, claim.rule, claim.power
    for one in ours:
        if left := sorted(one.numbers - claimed):
            yield f"Fig{'s' * (len(left) > 1)}. {' and '.join(left)}", one.question, _leads([one]), NO_CLAIM, "", ""


def _leads(ours: Sequence[Asked]) -> Cell:
    return Cell("", links=tuple((f"figure-{one.name}", one.name) for one in ours))


def _html(material: Material) -> str:
    shown = charts()
    return paragraph(ABOUT) + "".join(
        _paper(paper, shown, material) for paper in PAPERS if paper.name in claims.papers()
    )


def _paper(paper: Paper, shown: Sequence[Chart], material: Material) -> str:
    name = f"paper-{slug(paper.name)}"
    heading = f'{here(name, paper.title)}<h3 id="{name}">{paper.html}</h3>\n'
    try:
        judged = verdicts(paper.name, material)
    except RecordError as error:
        return heading + paragraph(f"Left out: {error}.")
    return heading + table(HEAD, rows(paper, judged, asked(paper, shown, material)))


SECTIONS = (
    Section(118, "Papers against us", _html, PRIMITIVES, FILES),
    Section(150, "References", lambda _: f"<ul>{''.join(_items())}</ul>\n"),
)
