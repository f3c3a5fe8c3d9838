"""Papers held against us: their titles and addresses, each claim with its verdict, our figures of the same question."""

import functools
import html
import importlib
import re
import shlex
import shutil
from dataclasses import replace

import pytest

from tests.committed import ROOT

pytest.importorskip("pandas", reason="reports need pandas")

from dse.times.cells import MachineRecords
from impls import training
from impls.training.options import setup_of
from reports import page, tidy
from reports.chart import Chart, Material
from reports.claims import claims
from reports.claims.claims import Claim
from reports.markup import Cell
from reports.sections import claims as claims_section
from reports.sections import papers
from reports.sections.papers import PAPERS, Asked, Paper
from tests.page.test_reports import QUOTED, everything
from tests.system.test_advice import PARSERS, benchmark, parsed

MADE_UP = Paper("[Nobody1999]", "N. Nobody", "On <Nothing>", "nowhere", "https://example.org/nothing?a=1&b=2")
CLAIMS = (Claim("It is fast (II, Fig. 3).", "refuted", "it is slow", "a rule", "a power"),)
CLAIMS += (Claim("It is small, by a lot (Table 1), always.", "confirmed", "it is", "another", "exact"),)
ROW = re.compile(r"^\| ([KS]\w+(?:-\w+)?) \| ([^|]+) \| ([^|]+) \|([^|]*)\|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "reports" / "claims" / "PAPERS.md").read_text(encoding="utf-8"))
KINDS = {"K": 7, "S0-M": 18, "S0-E": 9, "S1-M": 9, "S1-E": 4, "S2-M": 8, "S2-E": 6, "S3-M": 27, "S3-E": 8}
KINDS |= {"S4-M": 11, "S4-E": 7}
FUTURE = {"S1-F", "S4-F"}
FIGURES = {"S0": 12, "S1": 4, "S2": 8, "S3": 14}  # of the documents that number them throughout
COMMAND = re.compile(r"`((?:python -m|make|asv) [^`]+)`")
NAMED = re.compile('"([^"]+)"')
OURS = (Asked("bytes", "Is it fast?", frozenset({"3", "4"})), Asked("floor", "Why?", frozenset({"3"})))


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    results = tmp_path_factory.mktemp("papers")
    shutil.copytree(QUOTED, results / "quoted")
    found = list(everything())
    made = Material(found, tidy.about(found), results)
    for chart in page.charts():
        made.drawn[chart.name] = page.figure_html(chart, f"Is {chart.name} so?", "<svg></svg>")
    with pytest.MonkeyPatch.context() as patch:  # models make some verdicts, which takes seconds
        judge = functools.cache(functools.partial(_judged, found, results, claims.judged))
        patch.setattr(claims, "judged", lambda paper, *others: judge(paper))
        yield made


def _judged(found, results, judged, paper):
    return judged(paper, found, results)


@pytest.fixture(scope="module")
def section(material):
    return page.section_html(papers.SECTIONS[0], material)


def test_a_claim_has_its_place_our_figures_its_verdict_rule_and_power():
    first, second, *rest = papers.rows(MADE_UP, CLAIMS, OURS)
    figures = (("figure-bytes", "bytes"), ("figure-floor", "floor"))
    verdict = Cell("refuted", link="verdict-nobody1999-1")
    assert first == ("II, Fig. 3", CLAIMS[0].text, Cell("", links=figures), verdict, "a rule", "a power")
    verdict = Cell("confirmed", link="verdict-nobody1999-2")
    assert second == ("Table 1", CLAIMS[1].text, Cell("", links=()), verdict, "another", "exact")
    assert rest == [("Fig. 4", "Is it fast?", Cell("", links=figures[:1]), papers.NO_CLAIM, "", "")]


def test_a_claim_stands_where_its_last_words_say():
    assert papers.place_of("It is fast (by a lot), always (II, Fig. 3).") == "II, Fig. 3"


def test_our_figure_of_a_question_is_one_that_says_so_and_was_drawn(material):
    charts = [
        Chart("one", lambda it: it, lambda rows, about: None, "[Nobody1999, Figs. 3 and 4.1] ask the same."),
        Chart("two", lambda it: it, lambda rows, about: None, "[Somebody1999, Fig. 3] asks the same."),
        Chart("three", lambda it: it, lambda rows, about: None, "[Nobody1999, Fig. 9] asks the same."),
    ]
    material = Material((), material.about, material.results)
    material.drawn.update({one.name: page.figure_html(one, 'Is "it" so?', "<svg></svg>") for one in charts[:2]})
    assert papers.asked(MADE_UP, charts, material) == [Asked("one", 'Is "it" so?', frozenset({"3", "4.1"}))]


def test_every_claim_of_every_paper_is_there_as_it_is_judged(section, material):
    for name in claims.papers():
        judged = claims.judged(name, material.measurements, material.results)
        assert judged
        part = section.split(f'<h3 id="paper-{name.strip("[]").lower()}">')[1].split("<h3")[0]
        lines = [re.findall("<td[^>]*>(.*?)</td>", line) for line in part.split("<tbody>")[1].split("</tr>")]
        texts = [[html.unescape(re.sub("<[^>]*>", "", cell)) for cell in line] for line in lines]
        for claim, cells in zip(judged, texts, strict=False):
            assert [cells[1], *cells[3:]] == [claim.text, claim.verdict, claim.rule, claim.power]


def test_papers_are_called_as_in_the_list_of_references():
    listed = " ".join((ROOT / "REFERENCES.md").read_text(encoding="utf-8").split())
    for paper in PAPERS:
        entry = listed.split(f"**{paper.name}**")[1].split(" * **")[0]
        assert f'"{paper.title}"' in entry
    assert set(claims.papers()) <= {paper.name for paper in PAPERS}


def test_a_title_leads_to_its_address_and_nothing_else_leads_out(section, material):
    address = html.escape(MADE_UP.address)
    assert f'<a href="{address}" rel="noreferrer">On &lt;Nothing&gt;</a>' in MADE_UP.html
    whole = section + page.section_html(papers.SECTIONS[1], material)
    led = {html.unescape(one) for one in re.findall('href="([^#"][^"]*)"', whole)}
    assert led == {paper.address for paper in PAPERS if paper.address}


def test_what_this_machine_cannot_judge_another_does_by_name_and_nothing_else_is_replaced(material, monkeypatch):
    lacks = Claim("It is fast.", claims_section.UNTESTED, "nothing was measured", "a rule", "none: nothing was run")
    unsure = replace(lacks, text="It is small.", power="5 % at the noise of the run")
    judged = replace(lacks, verdict="refuted", evidence="it is slow", power="exact")
    own, theirs = [lacks, unsure], [judged, replace(judged, text="It is small.")]
    monkeypatch.setattr(claims, "judged", lambda paper, found, results: theirs if found == "other" else own)
    known = {
        key: MachineRecords(key, records) for key, records in ((material.about.key, "own"), ("elsewhere", "other"))
    }
    monkeypatch.setattr(claims_section, "evidence", lambda results: known)
    made = replace(material, answers={})
    expected = [replace(judged, evidence="on machine elsewhere: it is slow"), unsure]
    assert claims_section.verdicts("[Nobody1999]", made) == expected


def test_a_row_of_the_five_documents_is_there_once():
    names = [name for name, *_ in ROWS]
    asked = {f"{kind}{number}" for kind, most in KINDS.items() for number in range(1, most + 1)} | FUTURE
    assert len(set(names)) == len(names)
    assert {name for name in names if "-X" not in name} == asked


def test_every_figure_of_the_documents_has_a_row():
    for document, most in FIGURES.items():
        said = " ".join(content for name, content, *_ in ROWS if name.startswith(document))
        said = re.sub(r"(\d+) to (\d+)", lambda ends: ", ".join(map(str, range(int(ends[1]), int(ends[2]) + 1))), said)
        assert papers.numbers(said) >= set(map(str, range(1, most + 1))), document


def test_no_row_is_silent():
    said = [bool(COMMAND.search(how) or NAMED.search(judged) or "Out of reach: " in how) for _, _, how, judged in ROWS]
    assert [row[0] for row, is_said in zip(ROWS, said, strict=True) if not is_said] == []


@pytest.mark.parametrize("command", sorted({each for _, _, how, _ in ROWS for each in COMMAND.findall(how)}))
def test_a_command_of_a_row_can_be_given(command):
    first, *words = shlex.split(command)
    package, words = words[words[0] == "-m"], words[2:]
    if first in ("make", "asv"):
        assert first == "asv" or re.search(f"^{package}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif package == "benchmarks":
        given = benchmark(command, words)
        assert all(training.load(name) for name in _workloads(given))
    elif package in PARSERS:
        given = parsed(command, importlib.import_module(PARSERS[package])._parser(), words)
        assert page.sections(getattr(given, "only", ""))
        for workload in map(training.load, _workloads(given)):
            assert package != "impls.training" or setup_of(workload, given)
    else:
        path = words[-1] if package == "pytest" else f"{package.replace('.', '/')}.py"
        assert (ROOT / path).is_file()


def _workloads(given):
    """The shipped workloads that a command names."""
    named = getattr(given, "workload", None) or ()
    return {named} - {"list"} if isinstance(named, str) else set(named)


def test_rows_name_every_verdict_and_no_other(material):
    texts = [claim.text for name in claims.papers() for claim in claims.judged(name, (), material.results)]
    named = {words for _, _, _, judged in ROWS for words in NAMED.findall(judged)}
    assert [words for words in named if sum(words in text for text in texts) != 1] == []
    assert [text for text in texts if not any(words in text for words in named)] == []
