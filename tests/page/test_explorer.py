"""The explorer of trees: in a real browser it shows, at points of its grid, what ``dse.recommend`` answers."""

import dataclasses
import html
import itertools
import json
import random
import re

import pytest

pytest.importorskip("pandas", reason="reports need pandas")

from dse.answers.printer import say, write_range, write_tree
from dse.answers.tree_answer import tree_answer
from dse.race_trees import find_tree
from dse.records import RecordError, read_folder
from reports import page, tidy
from reports.chart import Material
from reports.sections import explorer
from tests.committed import RESULTS
from tests.in_browser import WIDTHS, assert_sound, shown
from tests.page.test_reports import KEY, everything, write

HEADING = explorer.SECTIONS[0].heading
POINTS = 50
OFF = 1.1  # a number this many times that of a grid point is still nearest to it
PROBE = """
const form = document.getElementById("explorer");
const text = (kind) => form.querySelector("." + kind).textContent;
const kinds = ["nearest", "far", "choice", "sure", "warned", "made", "asked"];
const read = () => Object.fromEntries(kinds.map((kind) => [kind, text(kind)]));
const ask = (values) => {
  for (const [name, value] of Object.entries(values)) form.elements[name].value = value;
  form.dispatchEvent(new Event("input", { bubbles: true }));
  return read();
};
const first = read();
const said = ASKED.map(ask);
const slider = form.querySelector("[data-axis=capacity]");
slider.value = 0;
slider.dispatchEvent(new Event("input", { bubbles: true }));
const slid = [form.elements.capacity.value, slider.getAttribute("aria-valuetext"), text("nearest")];
const refused = ask({ batch: "" });
const fields = Array.from(form.querySelectorAll("input, select"));
const labelled = fields.every((one) => one.labels.length === 1 || one.getAttribute("aria-label"));
const reached = fields.map((one) => { one.focus(); return document.activeElement === one && one.tabIndex >= 0; });
return { first, said, slid, refused, labelled, reached, shown: form.checkVisibility() };
"""


def records():
    """Records of trees that were timed, without those that a model alone knows, which take long to ask."""
    return [one for one in everything() if one.source == "measured"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return write(tmp_path_factory.mktemp("explorer") / "results", records())


@pytest.fixture(scope="module")
def found(results):
    """The material of made-up records, the axes of the grid, and the answer at each point."""
    measurements = read_folder(results, KEY)
    material = Material(measurements, tidy.about(measurements), results)
    return material, *explorer.grid(material)


@pytest.fixture(scope="module")
def written(found):
    return page.page(found[0], HEADING)


def recommended(results, question):
    """What the library answers to a question: the first line, the line to paste, how sure; or why there is none."""
    shape = (question.capacity, question.batch, question.updates_per_sample, question.threads, question.dtype)
    try:
        answer = find_tree(*shape, results=results, machine=KEY)
    except RecordError as error:
        return f"No answer: {error}.", "", None
    told = tree_answer(answer)
    return say(told.choice.says, told.choice.values), *told.paste, answer


def some(points, count):
    """As many of the points, the first and the last among them, in an order of no meaning."""
    return [points[0], points[-1], *random.Random(1).sample(points[1:-1], count - 2)]


@pytest.fixture(scope="module")
def browser(found, written, tmp_path_factory):
    """What the page showed at each width, asked for points of the grid, and what was written to the console."""
    names = [axis.name for axis in found[1]]
    asked = [{name: getattr(one.question, name) for name in names} for one in some(found[2], POINTS)]
    asked.append(asked[-1] | {"capacity": round(OFF * asked[-1]["capacity"])})
    asked.append(asked[-1] | {"capacity": 40_000, "batch": 50, "updates_per_sample": 1.4})
    asked.append(asked[-1] | {"capacity": 300_000_000, "batch": 1, "updates_per_sample": 1e20})
    return shown(tmp_path_factory.mktemp("explored"), written, PROBE.replace("ASKED", json.dumps(asked)))


def test_the_explorer_shows_what_recommend_says(browser, found, results):
    asked = some(found[2], POINTS)
    answered, told = 0, set()
    for point, there in zip(asked, browser[0][WIDTHS[0]]["said"], strict=False):
        line, made, answer = recommended(results, point.question)
        assert (there["choice"], there["made"]) == (line, made)
        if answer is not None:
            answered += 1
            assert there["sure"].endswith(f"{answer.choice.time.source}.")
            told.add(answer.choice.time.source)
            warnings = [say(note.kind, note.values) for note in answer.notes if note.level == "warning"]
            assert all(warning in there["warned"] for warning in warnings)
    assert answered > POINTS / 2
    assert len(told) > 1
    assert len({there["choice"] for there in browser[0][WIDTHS[0]]["said"]}) > POINTS / 2


def test_what_lies_between_points_is_answered_by_the_nearest_which_is_named(browser, found):
    *_, exact, beside, between, _ = browser[0][WIDTHS[0]]["said"]
    assert beside["choice"] == exact["choice"]
    assert beside["nearest"] == exact["nearest"]
    point = some(found[2], POINTS)[-1].question
    assert f"N, leaves: {point.capacity:,}; B, leaves in a batch: {point.batch:,};" in beside["nearest"]
    assert f"--machine {KEY} --capacity {round(OFF * point.capacity)} --batch {point.batch} " in beside["asked"]
    assert "N, leaves: 100,000; B, leaves in a batch: 64; updates per sample: 1;" in between["nearest"]  # by ratio


def test_a_number_far_from_the_grid_is_said_to_be_and_stands_in_the_line_to_paste(browser):
    *_, exact, _, between, far = browser[0][WIDTHS[0]]["said"]
    assert exact["far"] == ""
    assert between["far"].endswith("for them: N, leaves: 100,000 for 40,000.")
    many = "N, leaves: 10,000,000 for 300,000,000; B, leaves in a batch: 32 for 1"
    assert far["far"].endswith(f"{many}; updates per sample: 2 for 100,000,000,000,000,000,000.")
    assert "; updates per sample: 2;" in far["nearest"]
    assert 'impls.make("numba", 40_000, ' in between["made"]


def test_a_slider_sets_the_number_beside_it_and_says_its_value(browser):
    number, told, nearest = browser[0][WIDTHS[0]]["slid"]
    assert (number, told) == ("1000", "1,000")
    assert "N, leaves: 1,000;" in nearest


def test_no_number_is_no_answer(browser):
    assert browser[0][WIDTHS[0]]["refused"] == {
        "nearest": "Give a whole number from 1 to 1,000,000,000,000 for: B, leaves in a batch.",
        **dict.fromkeys(("far", "choice", "sure", "warned", "made", "asked"), ""),
    }


def test_it_fits_every_width_and_can_be_reached_by_keyboard(browser):
    assert_sound(browser)
    for one in browser[0].values():
        assert one["labelled"]
        assert all(one["reached"])
        assert one["shown"]
        assert one["first"]["made"].startswith("impls.make(")


def test_without_scripts_a_table_shows_a_part_of_the_grid(written, found):
    plain = re.sub(r"<script.*?</script>", "", written, flags=re.DOTALL)
    assert '<form id="explorer" class="explorer" hidden>' in plain
    one = next(one for one in found[2] if (one.question.capacity, one.question.batch) == (1_000_000, 256))
    choice = next(
        tree_answer(point.answer).choice
        for point in found[2]
        if (point.question.capacity, point.question.batch) == (1_000_000, 256)
        and (point.question.updates_per_sample, point.question.threads, point.question.dtype)
        == (1, one.question.threads, one.question.dtype)
    )
    name, time = write_tree(choice.label), write_range(choice.number)
    assert f"<td>{html.escape(name)}<br><small>{html.escape(time)}</small></td>" in plain


def test_a_tree_that_the_machine_has_no_memory_for_is_no_answer(found, monkeypatch, tmp_path):
    for name, values in (("CAPACITIES", (1_000, 10**12)), ("BATCHES", (64,)), ("UPDATES", (1,))):
        monkeypatch.setattr(explorer, name, values)
    (tmp_path / KEY).symlink_to(RESULTS / "d7dae63b89")  # a machine that was probed
    _, points = explorer.grid(dataclasses.replace(found[0], results=tmp_path))
    assert {one.question.capacity: "GB of memory" in one.reason for one in points} == {1_000: False, 10**12: True}


def test_the_grid_has_every_combination_once(found):
    _, there, points = found
    questions = [tuple(getattr(one.question, axis.name) for axis in there) for one in points]
    assert questions == list(itertools.product(*(axis.values for axis in there)))
