"""Charts to look into, in a real browser: they hover, filter and switch, and axe-core finds nothing serious."""

import importlib.util
import itertools
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="reports need pandas")

from reports import look, page, tidy
from reports.chart import Material
from tests.in_browser import WIDTHS, ask, needs_chromium, probed
from tests.page.test_page import light
from tests.page.test_reports import everything

pytestmark = needs_chromium
PROBE = """
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => errors.push(event.violatedDirective));
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
async function drawn(figure) {
  for (let tries = 0; tries < 100; tries += 1) {
    if (figure.querySelector(".drawing > div > svg")) break;
    await pause(50);
  }
  await pause(100);
}
const points = (figure) => Array.from(figure.querySelectorAll(".mark-symbol.role-mark path"));
const ticks = (figure) => Array.from(figure.querySelectorAll(".role-axis-label text"), (one) => one.textContent);
async function choose(figure, name, text) {
  const select = figure.querySelector("form").elements[name];
  select.value = Array.from(select.options).find((one) => one.textContent === text).value;
  select.dispatchEvent(new Event("change", { bubbles: true }));
  await pause(300);
}
function told(figure) {
  return { points: points(figure).length, said: figure.querySelector(".said").textContent, ticks: ticks(figure),
    hollow: points(figure).filter((one) => Number(one.getAttribute("fill-opacity") ?? 1) === 0).length,
    series: Array.from(figure.querySelectorAll(".role-legend-label text"), (one) => one.textContent),
    lines: figure.querySelectorAll(".mark-line path").length,
    places: Array.from(new Set(points(figure).map((one) => Math.round(one.transform.baseVal[0].matrix.e)))),
    colors: Object.fromEntries(points(figure).map((one) => [one.__data__.datum.series, one.getAttribute("stroke")])),
    dotted: Array.from(figure.querySelectorAll(".mark-line path")).filter(
      (one) => one.getAttribute("stroke-dasharray") === "2,4").length };
}
function hover(point) {
  point.scrollIntoView({ block: "center" });
  const box = point.getBoundingClientRect();
  const at = { bubbles: true, clientX: box.x + box.width / 2, clientY: box.y + box.height / 2 };
  for (const kind of ["pointerover", "pointermove", "mouseover", "mousemove"])
    point.dispatchEvent(new (kind.startsWith("p") ? PointerEvent : MouseEvent)(kind, at));
  const shown = document.querySelector("#vg-tooltip-element.visible");
  return shown ? shown.textContent : "";
}
"""
ACTIONS = """
addEventListener("load", async () => {
  const trees = document.querySelector("#figure-look_trees");
  const said = { width: innerWidth };
  for (const each of document.querySelectorAll("figure.look")) await drawn(each);
  said.first = told(trees);
  said.hover = hover(points(trees)[0]);
  const box = document.querySelector("#vg-tooltip-element").getBoundingClientRect();
  said.inside = box.left >= 0 && box.right <= innerWidth ? "" : JSON.stringify(box);
  await choose(trees, "capacity", "10,000");
  said.one = told(trees);
  await choose(trees, "capacity", "1,000,000");
  said.other = told(trees);
  await choose(trees, "capacity", "all");
  await choose(trees, "lines", "implementation");
  said.implementations = told(trees);
  await choose(trees, "capacity", "all");
  said.several = told(trees);
  await choose(trees, "capacity", "1,000,000");
  await choose(trees, "y", "linear");
  said.linear = told(trees);
  await choose(trees, "x", "linear");
  said.even = told(trees);
  await choose(trees, "x", "log");
  await choose(trees, "along", "batch B");
  said.batches = told(trees);
  await choose(trees, "threads", "2");
  await choose(trees, "contestant", "numpy");
  said.gaveWay = told(trees);
  trees.querySelector("details").open = true;
  await pause(100);
  await choose(trees, "contestant", "numpy");  // once more: the table is another, not a second
  said.table = Array.from(trees.querySelectorAll("details tr"), (row) => row.textContent);
  said.peers = told(document.querySelector("#figure-look_peers"));
  said.errors = errors;
  parent.postMessage(said, "*");
});
"""
CHECKS = """
addEventListener("load", async () => {
  for (const each of document.querySelectorAll("figure.look")) await drawn(each);
  for (const each of document.querySelectorAll("details")) each.open = true;
  await pause(500);
  const found = await axe.run(document, { resultTypes: ["violations"] });
  const led = Array.from(document.querySelectorAll('a[href^="#"]'), (one) => one.hash.slice(1));
  parent.postMessage({
    width: innerWidth, errors, needed: document.documentElement.scrollWidth, passes: found.passes.length,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    serious: found.violations.filter((one) => one.impact === "serious" || one.impact === "critical").map(
      (one) => [one.id, one.nodes.length, one.nodes[0].html]),
    lost: led.filter((name) => !document.getElementById(decodeURIComponent(name))),
    fetched: performance.getEntriesByType("resource").map((one) => one.name).filter((name) => !/^data:/.test(name)),
  }, "*");
});
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A whole page of made-up records."""
    found = list(everything())
    folder = tmp_path_factory.mktemp("look")
    return look.with_library(page.page(Material(found, tidy.about(found), folder), written=light), folder)


@pytest.fixture(scope="module")
def shown(text, tmp_path_factory):
    """What the charts show at each width as their forms are used, and the browser's console."""
    return ask(tmp_path_factory.mktemp("shown"), probed(text, PROBE, ACTIONS), WIDTHS)


def test_a_point_tells_its_number_its_interval_and_its_source(shown):
    for one in shown[0].values():
        for words in ("ns an element", "95 % interval", "sourcemeasured", "commit0123456789", "day2026-01-02", "ok"):
            assert words in one["hover"]
        assert one["inside"] == ""
        number, low, high = map(
            float, re.search(r"([\d.]+), 95 % interval ([\d.]+) to ([\d.]+)", one["hover"]).groups()
        )
        assert low < number < high


@pytest.mark.parametrize("width", WIDTHS)
def test_choices_change_what_is_drawn(shown, width):
    one = shown[0][width]
    assert (one["first"]["points"], one["first"]["series"]) == (8, ["10,000", "1,000,000"])  # of two N, four K each
    assert (one["one"]["points"], one["one"]["series"]) == (4, ["10,000"])
    assert one["first"]["said"].startswith("Shows 8 of ")
    assert one["batches"]["points"] == 6  # of three implementations two B, at the usual K


def test_what_is_unstable_is_hollow_and_what_is_not_measured_is_dotted_and_says_so(shown):
    one = shown[0][WIDTHS[-1]]["implementations"]
    assert one["series"] == ["fpga (modeled)", "numba", "numpy"]
    assert one["hollow"] == 1
    assert one["dotted"] == 1
    assert "1 of them are unstable" in one["said"]


def test_axes_are_logarithmic_or_linear(shown):
    one = shown[0][WIDTHS[-1]]
    assert "0" in one["linear"]["ticks"]
    assert "0" not in one["implementations"]["ticks"]
    gaps = {
        name: [right - left for left, right in itertools.pairwise(sorted(one[name]["places"]))]
        for name in ("implementations", "linear", "even")
    }
    assert (
        gaps["linear"] == gaps["implementations"] == pytest.approx([gaps["linear"][0]] * 3, abs=1.5)
    )  # of K = 4 to 32
    assert gaps["even"] == pytest.approx([gaps["even"][0] * factor for factor in (1, 2, 4)], abs=5)


def test_a_line_joins_what_differs_in_x_alone(shown):
    one = shown[0][WIDTHS[-1]]
    lines = {name: one[name]["lines"] for name in ("first", "one", "implementations", "several")}
    assert lines == {"first": 2, "one": 1, "implementations": 3, "several": 6}  # of three implementations at two N


def test_a_series_keeps_its_color_whatever_else_is_shown(shown):
    one = shown[0][WIDTHS[-1]]
    assert one["one"]["colors"] | one["other"]["colors"] == one["first"]["colors"]
    assert len(set(one["first"]["colors"].values())) == 2
    assert one["gaveWay"]["colors"]["numpy"] == one["implementations"]["colors"]["numpy"]


def test_a_choice_that_no_record_fits_makes_another_give_way_and_says_so(shown):
    one = shown[0][WIDTHS[-1]]["gaveWay"]
    assert one["points"] > 0
    assert one["series"] == ["numpy"]
    assert "No such record has that threads, so it shows all of them." in one["said"]


def test_the_records_shown_are_a_table_for_who_cannot_hover(shown):
    one = shown[0][WIDTHS[-1]]
    assert len(one["table"]) == 1 + one["gaveWay"]["points"]
    assert "95 % interval" in one["table"][1]
    assert "measured" in one["table"][1]


def test_no_choice_fails(shown):
    for one in shown[0].values():
        assert one["errors"] == []
        assert one["peers"]["points"] > 0
    assert shown[1] == []


def assert_serves(folder, text, width, scheme):
    """Axe-core finds nothing serious in a page, unfolded, in a scheme of colors, no link is lost, nothing fetched."""
    spec = importlib.util.find_spec("axe_playwright_python")
    axe = (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
    flag = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
    said, console = ask(folder, probed(text, axe, PROBE, CHECKS), (width,), flag)
    one = said[width]
    assert one["dark"] is (scheme == "dark")
    assert one["needed"] <= width
    assert one["passes"] > 20
    assert one["serious"] == [], json.dumps(one["serious"], indent=1)
    assert (one["errors"], one["lost"], one["fetched"], console) == ([], [], [], [])


@pytest.mark.parametrize(("scheme", "width"), [("light", WIDTHS[0]), ("dark", WIDTHS[-1])])
def test_axe_finds_nothing_serious(text, scheme, width, tmp_path):
    assert_serves(tmp_path, text, width, scheme)
