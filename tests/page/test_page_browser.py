"""The page in a real browser: at three widths nothing is cut off, nothing fails, nothing is fetched, tables sort."""

import pytest

pytest.importorskip("pandas", reason="reports need pandas")

from reports import page, tidy
from reports.chart import Chart, Material
from tests.in_browser import WIDTHS, ask, needs_chromium, probed
from tests.page.test_page import light
from tests.page.test_reports import everything

pytestmark = needs_chromium
PICTURE = (
    '<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 600"><path d="M0 0h9"/></svg>'
)
PROBE = """
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
addEventListener("load", () => {
  const texts = (table, column) => Array.from(table.tBodies[0].rows, (row) => row.cells[column].firstChild?.data || "");
  const tables = Array.from(document.querySelectorAll("#other-libraries table"));
  const table = tables.find((one) => one.tBodies[0].rows.length > 3);
  const buttons = table.tHead.rows[table.tHead.rows.length - 1].querySelectorAll("button");
  table.tBodies[0].rows[1].cells[2].textContent = "1,234,567.5";
  table.tBodies[0].rows[2].cells[2].innerHTML = "4<br><small>99,999,999 pairs</small>";  // is 4
  const before = texts(table, 2);
  buttons[2].click();
  const rising = texts(table, 2);
  buttons[2].click();
  location.hash = "#skipped-and-failed-cells";
  setTimeout(() => parent.postMessage({
    width: innerWidth, needed: document.documentElement.scrollWidth, errors, before, rising,
    falling: texts(table, 2),
    resources: performance.getEntriesByType("resource").map((one) => one.name).filter((name) => !/^data:/.test(name)),
    nameless: Array.from(document.querySelectorAll("a, button, [tabindex], img")).filter(
      (one) => !(one.textContent.trim() || one.alt || one.getAttribute("aria-label"))).length,
    opened: document.querySelector("#skipped-and-failed-cells details.folded").open,
    pictures: Array.from(document.images, (one) => one.naturalWidth),
    menus: Array.from(document.querySelectorAll("nav"), (one) => getComputedStyle(one).display !== "none"),
  }, "*"), 300);
});
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What the page says of itself at each width, and what the browser wrote to its console."""
    folder = tmp_path_factory.mktemp("browser")
    found = list(everything())
    material = Material(found, tidy.about(found), folder)
    for name in ("fanout", "peers_batch"):
        chart = Chart(name, lambda it: it.frame, lambda rows, about: None, "A line.")
        material.drawn[name] = page.figure_html(chart, "Which?", PICTURE)
    return ask(folder, probed(page.page(material, written=light), PROBE), WIDTHS)


def test_nothing_is_cut_off_fails_is_fetched_or_cannot_be_reached(shown):
    for width, one in shown[0].items():
        assert one["needed"] <= width
        assert (one["errors"], one["resources"], one["nameless"]) == ([], [], 0)
        assert len(one["pictures"]) == 2
        assert all(one["pictures"])
        assert one["opened"]  # by a link into it
    assert shown[1] == []


def test_a_click_on_a_head_sorts_its_column_and_another_click_the_other_way(shown):
    one = shown[0][WIDTHS[-1]]
    numbers = {name: [float(text.replace(",", "")) for text in one[name] if text] for name in ("rising", "falling")}
    assert sorted(one["before"]) == sorted(one["rising"]) == sorted(one["falling"])
    assert len(set(numbers["rising"])) > 3
    assert numbers["rising"] == sorted(numbers["rising"])
    assert numbers["falling"] == sorted(numbers["rising"], reverse=True)
    assert one["before"] != one["rising"]
    assert max(numbers["rising"]) == 1_234_567.5
    assert not any(text for name in numbers for text in one[name][len(numbers[name]) :])  # what is empty stays last


def test_the_contents_stand_beside_a_wide_page_and_above_a_narrow_one(shown):
    assert [shown[0][width]["menus"] for width in WIDTHS] == [[True, False], [True, False], [False, True]]


SCROLLED = """
let observed;
window.IntersectionObserver = class { constructor(call) { observed = call; } observe() {} };  // fires when it likes
addEventListener("load", () => parent.postMessage({
  width: innerWidth,
  current: ["skipped-and-failed-cells", "the-answer"].map((name) => {
    observed([{ isIntersecting: true, target: document.getElementById(name) }]);
    return Array.from(document.querySelectorAll("nav.side [aria-current]"), (one) =>
      [one.hash, one.getBoundingClientRect().top >= 0, one.getBoundingClientRect().bottom <= innerHeight]);
  }),
}, "*"));
"""


def test_the_contents_show_where_the_reader_is(tmp_path):
    found = list(everything())
    material = Material(found, tidy.about(found), tmp_path)
    said, errors = ask(tmp_path, probed(page.page(material, written=light), SCROLLED), WIDTHS[-1:])
    assert said[WIDTHS[-1]]["current"] == [[["#skipped-and-failed-cells", True, True]], [["#the-answer", True, True]]]
    assert errors == []
