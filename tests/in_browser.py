"""Show a page in Chromium at three widths, and read what a script of the test's found on it."""

import html
import json
import re
import subprocess

import pytest

from tests.page.test_page_browser import CHROMIUM, WIDTHS

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
MILLISECONDS = 20_000  # of virtual time, which passes at once where nothing happens


def shown(folder, page, probe):
    """What ``probe`` returned once the page was loaded, by width, and what the browser wrote to its console.

    ``probe``: the body of a function. Beside what it returns come the width, the width needed, and the errors thrown.
    """
    if CHROMIUM is None:
        pytest.skip("found no Chromium, the system's or Google's, to show the page")
    script = f"""const errors = [];
    addEventListener("error", (event) => errors.push(event.message));
    addEventListener("load", () => {{
      const found = (() => {{ {probe} }})();
      const needed = document.documentElement.scrollWidth;
      parent.postMessage({{ ...found, errors, needed, width: innerWidth }}, "*");
    }});"""
    text = page.replace("<head>", f"<head><script>{script}</script>", 1)
    (folder / "page.html").write_text(text, encoding="utf-8")
    frames = "".join(f'<iframe src="page.html" width="{width}" height="900"></iframe>' for width in WIDTHS)
    gather = "const said = []; addEventListener('message', (event) => { said.push(event.data); document"
    gather += ".querySelector('pre').textContent = JSON.stringify(said); });"
    harness = folder / "harness.html"
    harness.write_text(f"<!doctype html><script>{gather}</script><pre></pre>{frames}", encoding="utf-8")
    flags = (*FLAGS, f"--user-data-dir={folder / 'profile'}", f"--virtual-time-budget={MILLISECONDS}")
    asked = [CHROMIUM, *flags, "--enable-logging=stderr", "--dump-dom", harness.as_uri()]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True)
    said = json.loads(html.unescape(re.search(r"<pre>(.*?)</pre>", done.stdout, re.DOTALL)[1]))
    assert sorted(one["width"] for one in said) == sorted(WIDTHS)
    return {one["width"]: one for one in said}, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def assert_sound(browser):
    """Nothing scrolls sideways at any width, no script fails, nothing is written to the console."""
    by_width, console = browser
    assert {width: one["needed"] for width, one in by_width.items() if one["needed"] > width} == {}
    assert [one["errors"] for one in by_width.values()] == [[]] * len(by_width)
    assert console == []
