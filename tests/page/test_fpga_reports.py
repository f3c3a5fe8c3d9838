"""The page's section about an FPGA and its figures, which need no record."""

import html as html_text
import re

import pytest

from reports.claims import claims, quoted, rmm_points
from reports.claims.rmm_claims import PAPER as FPGA_PAPER
from reports.sections import fpga as fpga_section
from tests.committed import RESULTS
from tests.page_parts import assert_plain, uncovered

CHARTS = {chart.name: chart for chart in fpga_section.CHARTS}


@pytest.fixture(scope="module")
def html():
    return fpga_section.section(RESULTS, claims.judged(FPGA_PAPER, (), RESULTS))


@pytest.fixture(scope="module")
def drawn():
    printed = quoted.read(RESULTS / "quoted")
    return {name: chart.draw(printed, None) for name, chart in CHARTS.items()}


def test_every_number_says_where_it_comes_from(html):
    for sentence in re.findall(r"<(?:li|p)>(.*?)</", html):
        if re.search(r"\d", sentence) and html_text.unescape(sentence) not in fpga_section.UNCHECKED:
            assert re.search("[Mm]odeled|[Qq]uoted", sentence), sentence
    for evidence in re.findall(r"<tr><td>.*?</td><td>[a-z ]+</td><td>(.*?)</td></tr>", html):
        assert re.search("modeled|quoted|computed|reproduced|reconstructed|measured|records|on record", evidence)


def test_a_design_that_is_too_large_for_its_slice_is_marked(html, monkeypatch):
    small = rmm_points.Point("far too many banks", rmm_points.DOUBLE.design, "slr1")
    monkeypatch.setattr(fpga_section, "POINTS", (rmm_points.PUBLISHED, small))
    text = fpga_section.section(RESULTS, claims.judged(FPGA_PAPER, (), RESULTS))
    assert "Modeled, far too many banks: does not fit SLR1 (LUT " in text
    assert re.search(r'class="number fault"', text)


@pytest.mark.parametrize("name", CHARTS)
def test_a_figure_says_its_units_in_plain_numbers_and_that_it_is_no_measurement(drawn, name):
    figure = drawn[name]
    figure.draw_without_rendering()
    assert re.search(r"\? \((modeled|computed from seeded samples)\)$", figure.subfigs[0].get_suptitle())
    assert re.search(r"\((us|ms|ratio|number)\)$", figure.axes[0].get_ylabel())
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert_plain(axes)
        curves = [line for line in axes.lines if len(set(line.get_xdata())) > 2]
        assert curves
        assert not any(line.get_linestyle() == "-" for line in curves)
    assert re.search("Source: (modeled|computed)", uncovered(figure))
