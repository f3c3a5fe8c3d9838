"""Five questions of a new user, asked of the kept page in a real browser: each has its answer within three clicks."""

import re
from pathlib import Path

import pytest

from tests.in_browser import ask, needs_chromium, probed

GALLERY = Path(__file__).resolve().parents[2] / "reports" / "gallery" / "index.html"
MOST = 3  # clicks
pytestmark = needs_chromium
PROBE = """
addEventListener("load", () => setTimeout(() => {
  const found = {};
  let clicks = 0;
  const click = (element) => { clicks += 1; element.click(); };
  const section = (anchor) => {
    clicks = 0;
    click(document.querySelector(`nav.side a[href="#${anchor}"]`));
    return document.getElementById(location.hash.slice(1));
  };
  const line = (place, words) => Array.from(place.querySelectorAll("tr"), (row) => row.innerText).find(
    (text) => words.every((word) => text.includes(word)));
  const answered = (task, text) => { found[task] = { text: text || "", clicks }; };

  answered("which K", section("ask-for-another-tree").querySelector(".choice").innerText);
  answered("torchrl", line(section("other-libraries"), ["torchrl"]));
  answered("K = 16", line(section("papers-against-us"), ["K = 16 yields the best total"]));
  const mappings = section("mappings-and-what-would-change-them");
  click(Array.from(mappings.querySelectorAll("label"), (one) => one).find(
    (one) => one.innerText.includes("with the GPU")));
  answered("a GPU", line(mappings, ["this machine", "pong_dqn"]));
  answered("slower commit", section("history").innerText);
  parent.postMessage({ width: innerWidth, found }, "*");
}, 300));
"""
ANSWERS = {
    "which K": r"(Use|take the default:) \w+, K = \d+.* us per step",
    "torchrl": r"torchrl( \w+)?\s+[\d.]+x\*?(\s+[\d.,*]+){9}",  # slowdown, then each op at several batches
    "K = 16": r"\t(confirmed|refuted|consistent|undecided)\t",
    "a GPU": r"gpu.*\d+(\.\d+)?x",
    "slower commit": r"No commit was shown to be slower than the one before|Slower than the commit before: \w+",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    text = probed(GALLERY.read_text(encoding="utf-8"), PROBE)
    said, _ = ask(tmp_path_factory.mktemp("tasks"), text, (1_400,))
    return said[1_400]["found"]


@pytest.mark.parametrize("task", ANSWERS)
def test_a_question_has_its_answer_within_three_clicks(found, task):
    assert found[task]["clicks"] <= MOST
    assert re.search(ANSWERS[task], found[task]["text"], re.DOTALL), found[task]["text"]
