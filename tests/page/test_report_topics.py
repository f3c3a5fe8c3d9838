"""A topic of the report is one new file, and so is a paper's claims: nothing else has to be edited."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reports.claims.tree_claims import PAPER
from tests.committed import ROOT
from tests.page.test_reports import KEY, record, write

OTHER = f"{PAPER} again"  # which sorts next
TOPIC = '''
"""A made-up topic."""

from reports import style
from reports.chart import Chart, Section, measured


def draw(rows, about):
    figure, (axes,) = style.panels("Is this found?", ["made up"])
    style.line(axes, rows, "capacity", "made up", 0)
    return style.finish(figure, rows, about)


CHARTS = (
    Chart("made_up", measured(lambda frame: frame), draw, "It is.", "make made-up"),
    Chart("not_measured", measured(lambda frame: frame[:0]), draw, "It is not.", "make made-up"),
)
SECTIONS = (
    Section(1, "A made-up section", lambda it: it.pictures(CHARTS) + f"<p>{it.missing(CHARTS)[0]}</p>"),
)
'''
CLAIMS = '''
"""Made-up claims."""

from .claims import Claim

PAPER, ORDER = "{paper}", 99


def verdicts(found, quoted):
    return [Claim("{text}", "confirmed", f"{{len(found)}} records", "a rule", "a power")]
'''


@pytest.fixture
def copy(tmp_path):
    """The packages that draw reports, with the topic of claims alone, and a folder of results beside them."""
    for package in ("impls", "dse", "reports"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "build"))
    for topic in (tmp_path / "reports" / "sections").glob("*.py"):
        if topic.stem not in ("__init__", "claims"):
            topic.unlink()
    write(tmp_path / "results", [record(10.0, capacity=n) for n in (1_000, 10_000)])
    return tmp_path


def page_of(copy):
    """What ``python -m reports`` says there, and the page."""
    command = [sys.executable, "-m", "reports", "--machine", KEY, "--out", "out", "--json"]
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=copy, env=surroundings, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), (copy / "out" / "index.html").read_text()


def test_a_section_with_a_figure_is_one_new_file(copy):
    (copy / "reports" / "sections" / "made_up.py").write_text(TOPIC)
    said, page = page_of(copy)
    assert said["figures"] == [str(Path("out") / f"made_up.{ending}") for ending in ("svg", "png")]
    assert all((copy / path).stat().st_size for path in said["figures"])
    assert (
        page.index("<h2>A made-up section") < page.index('<figure id="figure-made_up">') < page.index("<h2>Claims of")
    )
    reason = f"not measured on machine {KEY}; this would measure it: make made-up"
    assert said["left_out"] == {"not_measured": reason}
    assert f"<p>Left out, not_measured: {reason}</p>" in page


def test_claims_are_one_new_file_whether_of_a_known_paper_or_another(copy):
    for name, paper in (("ninth", OTHER), ("more", PAPER)):
        path = copy / "reports" / "claims" / f"{name}_claims.py"
        path.write_text(CLAIMS.format(paper=paper, text=f"Made up by {paper}."))
    _, page = page_of(copy)
    known, other = page.split(f"<h2>Claims of {PAPER}</h2>")[1].split(f"<h2>Claims of {OTHER}</h2>")
    row = "<td>confirmed</td><td>Made up by {}.</td><td>a rule</td><td>a power</td><td>2 records</td>"
    assert known.index("RLlib&#x27;s latency grows linearly") < known.index(row.format(PAPER))
    assert row.format(OTHER) in other
    assert OTHER not in known
    overview = page.split("<h2>Verdicts on the papers</h2>")[1].split("<h2>")[0]
    for paper in (PAPER, OTHER):
        assert f"<td>confirmed</td><td>{paper}</td><td>Made up by {paper}.</td>" in overview
    assert f'<td>{OTHER}</td><td class="number">1</td><td class="number">0</td>' in overview
