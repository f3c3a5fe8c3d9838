"""Show a page in Chromium at several widths, and read what scripts of the test's found on it."""

import html
import json
import re
import shutil
import subprocess

import pytest

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
    return ask(folder, probed(page, script), WIDTHS)


def assert_sound(browser):
    """Nothing scrolls sideways at any width, no script fails, nothing is written to the console."""
    by_width, console = browser
    assert {width: one["needed"] for width, one in by_width.items() if one["needed"] > width} == {}
    assert [one["errors"] for one in by_width.values()] == [[]] * len(by_width)
    assert console == []
