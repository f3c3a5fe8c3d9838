"""What tests of the page share: records made up, tables read out of HTML, and figures whose parts must not meet."""

import re
from typing import Any

from dse.records import Record
from tests.made import make_record


def made_up(seconds: float, **fields: Any) -> Record:
    """Make a record of a time, which is the median of eleven samples within half a percent; fields override."""
    samples = tuple(seconds * (1 + 0.001 * step) for step in range(-5, 6))
    usual = {
        "source": "measured",
        "status": "ok",
        "samples_seconds": samples,
        "median_seconds": samples[5],
        "low_seconds": samples[2],
        "high_seconds": samples[8],
        "commit": "0123456789abcdef",
        "utc": "2026-01-02T03:04:05+00:00",
    }
    return make_record(**(usual | fields))


def page_material(found: list[Record], results: Any) -> Any:
    """Return what sections and figures are made from: these records, with results in this folder."""
    from reports import tidy  # noqa: PLC0415  # which needs pandas
    from reports.chart import Material  # noqa: PLC0415

    return Material(found, tidy.about(found), results)


def first_cells(html: str, after: str = "") -> dict[str, list[str]]:
    """Read the first table after some text: the texts of each row by that of its first cell."""
    lines = re.findall(r"<tr>(.*?)</tr>", html[html.index(after) :].partition("</table>")[0])[1:]
    return {cells[0]: cells[1:] for cells in (re.findall(r"<td[^>]*>(.*?)</td>", line) for line in lines)}


def assert_plain(axes: Any) -> None:
    """Assert that no number beside a panel is written with a power of ten."""
    labels = [label.get_text() for axis in (axes.xaxis, axes.yaxis) for label in axis.get_ticklabels()]
    assert not any(re.search(r"[$^]|e\+", label) for label in labels), labels


def uncovered(figure: Any) -> str:
    """Assert that no panel, legend or caption of a figure covers another or is cut off; return the caption."""
    figure.draw_without_rendering()
    top, bottom = figure.subfigs
    (legend,), (caption,) = top.legends, bottom.texts
    whole, below, place = figure.bbox, legend.get_window_extent(), caption.get_window_extent()
    assert whole.x0 <= below.x0 <= below.x1 <= whole.x1
    assert all(axes.get_window_extent().y0 >= below.y1 for axes in figure.axes)
    assert whole.y0 <= place.y0 <= place.y1 <= below.y0 + 1
    assert whole.x0 <= place.x0 <= place.x1 <= whole.x1
    return str(caption.get_text()).replace("\n", " ")
