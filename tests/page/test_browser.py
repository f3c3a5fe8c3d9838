"""The page that is kept, in Chromium: nothing is cut or scrolls sideways, and axe-core finds nothing serious."""

import html
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

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


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
WIDTHS = (360, 768, 1_400)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="found no Chromium, the system's or Google's, to show the page"
)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
MILLISECONDS = 20_000  # of virtual time, which passes at once where nothing happens


def probed(text, *scripts):
    """The page with scripts at the top of its head."""
    return text.replace("<head>", f"<head>{''.join(f'<script>{script}</script>' for script in scripts)}", 1)


def ask(folder, text, widths, *flags):
    """What a page's script posts at each width, and the lines that the browser wrote to its console."""
    (folder / "page.html").write_text(text, encoding="utf-8")
    frames = "".join(f'<iframe src="page.html" width="{width}" height="900"></iframe>' for width in widths)
    gather = "const said = []; addEventListener('message', (event) => { said.push(event.data); document"
    gather += ".querySelector('pre').textContent = JSON.stringify(said); });"
    harness = folder / "harness.html"
    harness.write_text(f"<!doctype html><script>{gather}</script><pre></pre>{frames}", encoding="utf-8")
    usual = (*FLAGS, f"--user-data-dir={folder / 'profile'}", f"--virtual-time-budget={MILLISECONDS}")
    command = [CHROMIUM, *usual, "--enable-logging=stderr", *flags, "--dump-dom", harness.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    said = json.loads(html.unescape(re.search(r"<pre>(.*?)</pre>", done.stdout, re.DOTALL)[1]))
    assert sorted(one["width"] for one in said) == sorted(widths)
    return {one["width"]: one for one in said}, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """What the probe returned once the page was loaded, with the errors thrown and the width needed, by width."""
    script = f"""const errors = [];
    addEventListener("error", (event) => errors.push(event.message));
    addEventListener("load", () => {{
      const found = (() => {{ {PROBE} }})();
      const needed = document.documentElement.scrollWidth;
      parent.postMessage({{ ...found, errors, needed, width: innerWidth }}, "*");
    }});"""
    return ask(tmp_path_factory.mktemp("page"), probed(GALLERY.read_text(encoding="utf-8"), script), WIDTHS)


@needs_chromium
def test_nothing_is_cut_and_a_figure_is_on_the_first_screen(browser):
    by_width, console = browser
    assert console == []
    for width, found in by_width.items():
        assert (found["errors"], found["outside"]) == ([], [])
        assert found["needed"] <= width and found["first"] < 700  # nothing scrolls sideways
        assert found["sorted"] == sorted(found["before"])  # by a click
    assert by_width[1_400]["height"] <= MOST_PIXELS


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
