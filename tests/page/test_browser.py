"""The page that is kept, in a real browser: nothing is cut or scrolls sideways, and axe-core finds nothing serious."""

import importlib.util
from pathlib import Path

import pytest

from tests.in_browser import ask, assert_sound, needs_chromium, probed, shown

GALLERY = Path(__file__).resolve().parents[2] / "reports" / "gallery" / "index.html"
MOST_BYTES, MOST_PIXELS = 2_000_000, 25_000
PROBE = """
const outside = [];
for (const svg of document.querySelectorAll("figure svg")) {
  const frame = svg.getBoundingClientRect();
  if (frame.left < 0 || frame.right > innerWidth + 1) outside.push(svg.closest("figure").id);
  for (const text of svg.querySelectorAll("text")) {
    const box = text.getBoundingClientRect();
    const isOut = box.right > frame.right + 3 || box.left < frame.left - 3 || box.bottom > frame.bottom + 3;
    if (box.width && isOut) outside.push(svg.closest("figure").id + ": " + text.textContent);
  }
}
const first = document.querySelector("figure svg").getBoundingClientRect().top;
const [head] = document.querySelectorAll("th");
head.closest("details").open = true;
const column = () => [...head.closest("table").tBodies[0].rows].map((row) => row.cells[0].textContent);
const before = column();
head.click();
const sorted = column();
return { outside, first, height: document.documentElement.scrollHeight, before, sorted };
"""
CHECK = """
addEventListener("load", async () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  const found = await axe.run(document);
  const worst = found.violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  const serious = worst.map(({ id, nodes }) => [id, nodes.length, nodes[0].html.slice(0, 300)]);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  parent.postMessage({ width: innerWidth, serious, passes: found.passes.length, dark }, "*");
});
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    return shown(tmp_path_factory.mktemp("page"), GALLERY.read_text(encoding="utf-8"), PROBE)


@needs_chromium
def test_nothing_is_cut_and_the_first_figure_is_on_the_first_screen(browser):
    assert_sound(browser)
    by_width, _ = browser
    assert {width: found["outside"] for width, found in by_width.items() if found["outside"]} == {}
    assert all(found["first"] < 700 for found in by_width.values())
    assert by_width[1_400]["height"] <= MOST_PIXELS


@needs_chromium
def test_a_click_sorts_a_table(browser):
    for found in browser[0].values():
        assert found["sorted"] == sorted(found["before"])


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(scheme, tmp_path):
    spec = importlib.util.find_spec("axe_playwright_python")
    axe = (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
    text = probed(GALLERY.read_text(encoding="utf-8"), axe, CHECK)
    said, console = ask(tmp_path, text, (768,), f"--blink-settings=preferredColorScheme={int(scheme == 'light')}")
    assert said[768]["dark"] is (scheme == "dark") and said[768]["passes"] > 15
    assert said[768]["serious"] == [] and console == []


def test_the_page_is_no_larger_than_a_visitor_waits_for():
    assert GALLERY.stat().st_size <= MOST_BYTES
