"""The table of mappings: what the library answers, row by row, and a switch in a browser that puts other answers in."""

import json
import shutil
from types import SimpleNamespace

import pytest

pytest.importorskip("pandas", reason="reports need pandas")

from dse.answers.printer import rounded
from dse.estimate import weakest
from dse.mapping.answer import Shortage
from dse.mapping.question import find_mapping
from dse.platforms import load
from reports import page, tidy
from reports.chart import Material
from reports.sections import what_ifs
from tests.committed import RESULTS
from tests.in_browser import assert_sound, shown
from tests.page.test_reports import everything

HEADING = what_ifs.SECTIONS[0].heading
MACHINE = "d7dae63b89"
PROFILED = ("platform.toml", "quick.jsonl", "profile-cartpole_dqn-quick.jsonl")
PROBE = """
const form = document.getElementById("what-ifs");
const body = form.closest("section").querySelector("table").tBodies[0];
const read = () => Array.from(body.rows, (row) => Array.from(row.cells, (cell) => [
  cell.childNodes[0] ? cell.childNodes[0].textContent : "",
  cell.querySelector("small") ? cell.querySelector("small").textContent : "",
]));
const marks = () => Array.from(body.rows, (row) => Array.from(row.cells, (cell) => cell.classList.contains("differs")));
const said = [read()], marked = [];
const fields = Array.from(form.querySelectorAll("input"));
for (const field of fields) {
  field.click();
  said.push(read());
  marked.push(marks());
}
return {
  said, marked, words: form.querySelector("output").textContent, shown: form.checkVisibility(),
  labelled: fields.every((one) => one.labels.length === 1),
};
"""


@pytest.fixture(scope="module")
def modeled(tmp_path_factory):
    """The rows of one platform that no record is of, by workload."""
    made = what_ifs.rows({"h200": load("h200")}, what_ifs.Known(tmp_path_factory.mktemp("none")))
    return dict(zip(what_ifs.WORKLOADS, made, strict=True))


def assert_same(cells, answer):
    """A row shows the library's answer: execution mode, devices, what each does, and the rate."""
    mode, actors, tree, storage, learner, (rate, note), _ = cells[2:]
    if isinstance(answer, Shortage):
        assert rate == "nothing fits"
        return
    parts = {part.label["part"]: (part.label["device"], part.more["implementation"]) for part in answer.parts}
    assert mode[0] == answer.arrangement
    assert (actors, tree, learner) == (parts["actors"], parts["updating"], parts["learner"])
    assert storage[0] == parts["storage"][0]
    assert rate == rounded(answer.value, answer.low, answer.high)
    assert note.startswith("at most, ") == answer.choice.is_bound
    ends = " to ".join(rounded(end, answer.low, answer.high) for end in (answer.low, answer.high))
    assert note.endswith(f"{ends}, {weakest(part.estimate.source for part in answer.parts)}")


@pytest.mark.parametrize("workload", what_ifs.WORKLOADS)
def test_a_row_is_what_recommend_answers_by_epsilon(modeled, workload, tmp_path):
    usual = {"epsilon": what_ifs.EPSILON, "results": tmp_path}
    rows = dict(zip(what_ifs.CHANGES, modeled[workload], strict=True))
    assert_same(rows[what_ifs.BASE], find_mapping("h200", workload, **usual))
    assert_same(rows["without its GPU"], find_mapping("h200", workload, exclude=["gpu"], **usual))
    has_gpu = "gpu" in {cell[0] for cell in rows[what_ifs.BASE][2:-1]}
    assert (rows["without its GPU"][2:-1] != rows[what_ifs.BASE][2:-1]) == has_gpu


def test_a_machine_with_records_is_answered_from_them(tmp_path):
    for name in PROFILED:
        (tmp_path / MACHINE).mkdir(exist_ok=True)
        shutil.copy(RESULTS / MACHINE / name, tmp_path / MACHINE / name)
    path, workload = tmp_path / MACHINE / "platform.toml", what_ifs.WORKLOADS[0]
    known = what_ifs.Known(tmp_path)
    for platform in (path, "h200"):
        found = what_ifs.answer(known, what_ifs.Changed(load(platform)), workload)
        asked = find_mapping(platform, workload, epsilon=what_ifs.EPSILON, results=tmp_path)
        assert_same((None, None, *found.cells, None), asked)
        assert asked.machine == MACHINE


def test_changes_change_what_they_say_or_say_why_not():
    platform = load("h200")
    changed = {words: change(platform) for words, change in what_ifs.CHANGES.items()}
    cores = {
        words: one.platform.device("cpu").cores.value for words, one in changed.items() if not isinstance(one, str)
    }
    assert cores["2 times the cores"] == 2 * cores[what_ifs.BASE]
    links = changed["links 10 times slower"].platform.links
    assert [link.beta_bytes_per_s.value * 10 for link in links] == pytest.approx(
        [link.beta_bytes_per_s.value for link in platform.links]
    )
    assert [link.back_beta_bytes_per_s.value * 10 for link in links] == pytest.approx(
        [link.back_beta_bytes_per_s.value for link in platform.links]
    )
    assert changed["without its GPU"].excluded == {"gpu"}
    assert changed["without its FPGA"] == "it has no FPGA"
    assert changed[f"with the GPU of {what_ifs.GIVER}"] == "it has a GPU"
    given = what_ifs.CHANGES[f"with the GPU of {what_ifs.GIVER}"](load("edge"))
    assert given.platform.transfer_seconds("cpu", "gpu", 1e6) == platform.transfer_seconds("cpu", "gpu", 1e6)


def test_a_change_is_held_against_the_platform_as_it_is_and_what_is_added_need_not_be_used(monkeypatch):
    rates = dict(zip(what_ifs.CHANGES, (100.0, 200.0, 50.0, 50.0, 0.0, 80.0), strict=True))
    found = {words: what_ifs.Answer(((words, ""),) * 6, hz) for words, hz in rates.items()}
    monkeypatch.setattr(what_ifs, "answer", lambda known, change, workload: found[change.words])
    changes = [SimpleNamespace(words=words) for words in rates]
    rows = what_ifs._cells(None, changes, "made up", found[what_ifs.BASE])
    as_it_is, more, gpu, *_ = rates
    shown = {words: (row[0][0], row[-1][0]) for words, row in zip(rates, rows, strict=True)}
    assert shown == {
        as_it_is: (as_it_is, ""),
        more: (more, "2.00x"),
        gpu: (as_it_is, "1.00x"),
        "without its GPU": ("without its GPU", "0.50x"),
        "without its FPGA": ("without its FPGA", ""),
        "links 10 times slower": ("links 10 times slower", "0.80x"),
    }


@pytest.fixture(scope="module")
def browser(modeled, tmp_path_factory):
    """What the table showed, as it was and by switch, at each width."""
    found, folder = list(everything()), tmp_path_factory.mktemp("what-ifs")
    material = Material(found, tidy.about(found), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(what_ifs, "rows", lambda platforms, known: list(modeled.values()))
        return shown(folder, page.page(material, HEADING), PROBE)


def test_a_switch_puts_the_answers_of_its_change_into_the_table(browser, modeled):
    assert_sound(browser)
    for one in browser[0].values():
        before, *switched = one["said"]
        assert before == switched[0]
        assert len(switched) == len(what_ifs.CHANGES)
        for place, there in enumerate(switched):
            assert there == json.loads(json.dumps([row[place] for row in modeled.values()]))
            differs = [
                [cell != base for cell, base in zip(row[place], row[0], strict=True)] for row in modeled.values()
            ]
            assert one["marked"][place] == [[*row[:-1], False] for row in differs]
        assert one["labelled"]
        assert one["shown"]
