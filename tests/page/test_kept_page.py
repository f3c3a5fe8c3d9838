"""The page that is kept, in a real browser with all of it unfolded: axe-core finds nothing serious in it."""

import importlib.util
import json
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="reports need pandas")

from tests.page.test_five_tasks import GALLERY
from tests.page.test_look_browser import PROBE, probed
from tests.page.test_page_browser import CHROMIUM, WIDTHS, ask

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="found no Chromium, the system's or Google's, to show the page"
)
MOST_BYTES = 6_000_000
SCHEMES = {WIDTHS[0]: "dark", WIDTHS[1]: "light", WIDTHS[2]: "dark"}
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


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_it_serves_every_reader(width, tmp_path):
    spec = importlib.util.find_spec("axe_playwright_python")
    axe = (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
    text = probed(GALLERY.read_text(encoding="utf-8"), axe, PROBE, CHECKS)
    scheme = SCHEMES[width]
    said, console = ask(tmp_path, text, (width,), f"--blink-settings=preferredColorScheme={int(scheme == 'light')}")
    one = said[width]
    assert one["dark"] is (scheme == "dark")
    assert one["needed"] <= width
    assert one["passes"] > 20
    assert one["serious"] == [], json.dumps(one["serious"], indent=1)
    assert (one["errors"], one["lost"], one["fetched"], console) == ([], [], [], [])


def test_it_is_no_larger_than_a_visitor_will_wait_for():
    assert GALLERY.stat().st_size <= MOST_BYTES
