"""The page around the sections: anchors, contents, colors, the answer at its top, and what is kept between builds."""

import dataclasses
import functools
import itertools
import json
import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="reports need pandas")

from reports import __main__ as command
from reports import building, kept, markup, page, style, tidy
from reports.chart import Chart, Material, Section
from reports.sections import answer, races, tree
from tests.page.test_reports import NOTHING, PEERS, QUOTED, everything, record, run, write

DRAWN = ("fanout", "capacity", "peers_batch")
LAWS = ("Which mapping", "Published mappings (modeled)", "Ask for another tree")
LAWS += ("Mappings, and what would change them",)
PAIRS = (("ink", "paper"), ("ink", "raised"), ("soft", "paper"), ("soft", "raised"), ("link", "paper"))
PAIRS += (("link", "raised"), ("ink", "best"), ("ink", "mark"), ("link", "mark"), ("fault", "paper"))
LEAST_CONTRAST = 4.5  # of text in normal letters, WCAG 2.1 AA


def material(results, found=None):
    found = list(everything()) if found is None else found
    made = Material(found, tidy.about(found), results)
    made.drawn.update({name: f'<figure id="figure-{name}"></figure>' for name in DRAWN})
    return made


def light(section, about):
    """A section as HTML, but those of laws, which take long and which tests of their own write."""
    if section.heading in LAWS:
        section = dataclasses.replace(section, html=lambda it: markup.table(("made", "up"), [("a", "b")]))
    return page.section_html(section, about)


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    """The page of made-up records with three figures, and papers to judge."""
    results = tmp_path_factory.mktemp("page")
    shutil.copytree(QUOTED, results / "quoted")
    return page.page(material(results), written=light)


def anchors(text):
    return re.findall(r'<[^>]* id="([^"]*)"', text)


def test_every_link_leads_to_an_anchor_and_no_anchor_is_there_twice(html):
    there = anchors(html)
    assert len(there) == len(set(there))
    led = re.findall(r'href="#([^"]*)"', html)
    assert set(led) <= set(there)
    assert len(led) > len(page.sections())


def test_without_models_nothing_of_them_is_made_and_every_link_leads_somewhere(tmp_path):
    shutil.copytree(QUOTED, tmp_path / "quoted")
    text = page.page(material(tmp_path), written=light, modeled=False)
    left = {one.heading for one in page.sections() if one.is_modeled}
    assert "Which mapping" in left
    assert not any(f"<h2>{heading}</h2>" in text for heading in left)
    assert page.WITHOUT_MODELS in text
    there = set(anchors(text))
    assert set(re.findall(r'href="#([^"]*)"', text)) <= there
    names = {one.name for one in page.charts()} - {one.name for one in page.charts(modeled=False)}
    assert {"solver_front", "fpga_latency", "mapping_throughput"} <= names
    assert not any(one.command for one in page.charts() if one.name in names)


def test_every_section_table_figure_and_verdict_can_be_linked_to(html):
    linked = set(re.findall(r'href="#([^"]*)"', html))
    assert {one.anchor for one in page.sections()} <= linked
    assert {f"figure-{name}" for name in ("peers_batch",)} <= linked  # where it is shown again
    assert html.count("<table>") == len([name for name in linked if name.startswith("table-")])
    assert html.count("<pre ") == len([name for name in linked if name.startswith("console-")])
    verdicts = html.split("<h2>Verdicts on the papers")[1].partition("</section>")[0].count("#verdict-")
    assert verdicts == len([name for name in anchors(html) if name.startswith("verdict-")]) > 10


def test_a_drawn_figure_has_an_anchor_a_link_and_its_question_for_those_who_do_not_see_it():
    made = Chart("made_up", lambda it: it.frame, lambda rows, about: None, "It rises <steeply>.")
    text = page.figure_html(made, 'Is "it" so?', '<?xml version="1.0"?>\n<svg a="#b"><metadata>x</metadata>100%</svg>')
    assert 'id="figure-made_up"' in text
    assert 'href="#figure-made_up"' in text
    assert 'alt="Is &quot;it&quot; so?"' in text
    assert "It rises &lt;steeply&gt;." in text
    assert "src=\"data:image/svg+xml,<svg a='%23b'>100%25</svg>\"" in text


def test_a_figure_stands_where_it_comes_first_and_is_linked_to_afterwards(html):
    for name in ("fanout", "peers_batch", "capacity"):
        assert html.count(f'<figure id="figure-{name}">') == 1
    first, others = html.split("<h2>The answer</h2>")[1].split("</section>", 1)
    assert '<figure id="figure-fanout">' in first
    assert 'Figure <a href="#figure-fanout">fanout</a> stands above.' in others


def test_the_contents_list_every_section_twice_and_say_what_is_left_out(html):
    lists = re.findall(r"<nav.*?</nav>", html, re.DOTALL)
    for contents in lists:
        assert re.findall(r'<a href="#([^"]*)">', contents) == [one.anchor for one in page.sections()]
        parts = re.findall(r"<li>([^<]+)<ol>(.*?)</ol>", contents, re.DOTALL)
        assert [name for name, _ in parts] == list(page.PARTS.values())
        left_out = re.findall(r'<li class="left-out"[^>]*><a href="#([^"]*)"', contents)
        assert "replay" in left_out
        assert "other-libraries" not in left_out
    assert len(lists) == 2


def contrast(one, other):
    """The ratio of the luminances of two colors, as WCAG 2.1 defines it."""

    def luminance(color):
        parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_stands_out_from_its_ground_in_light_and_dark():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    light, dark = re.findall(r":root \{(.*?)\}", (page.LAYOUT / "page.css").read_text(), re.DOTALL)
    for scheme in (light, dark):
        colors = dict(re.findall(r"--(\w+): (#\w{6})", scheme))
        for text, ground in PAIRS:
            assert contrast(colors[text], colors[ground]) >= LEAST_CONTRAST, (text, ground, colors)


def per_element(name, dtype, batch):
    draw, update, call = PEERS[name, dtype, ()]
    return draw + update + 2 * call / batch


def test_the_headline_is_computed_from_the_records(tmp_path):
    text = answer.section(material(tmp_path))
    ours, library = per_element("numba", "float32", 1_024), per_element("torchrl", "float32", 1_024)
    assert (
        "is numba float32 (K = 16): a sample and an update in one thread, in batches of 1,024 of N = 1,000,000" in text
    )
    assert f"leaves, take {ours:.1f} ns an element; torchrl float32, the fastest of 3 other libraries" in text
    assert f"takes {library / ours:.1f}x the time" in text
    assert f"{per_element('rllib', 'float64', 1_024) / ours:,.0f}x" in text


SWEPT = "Fastest here: numba, K = 8, 2 threads, 16.0 ns an element for draw and update, N = 100,000, B = 64;"
RACE = {"asked": {"capacity": 500, "batch": 32, "updates_per_sample": 1, "inserts": 0, "cold": False}, "rows": [
    {"contestant": "numpy", "fanout": 4, "threads": 1, "options": []}] * 3}  # fmt: skip


def opening(results, found):
    return answer.section(material(results, found)).partition("</p>")[0].removeprefix('<p class="lead">')


@pytest.mark.parametrize("more", [(), ("peer",)])
def test_the_page_opens_with_the_fastest_of_the_machines_own_sweep_or_last_race(tmp_path, more):
    found = [one for one in everything() if one.primitive.startswith(more)] if more else []
    for op, k, threads in itertools.product(("draw", "update"), (8, 16), (1, 2)):
        how = {"op": op, "fanout": k, "threads": threads, "capacity": 100_000, "batch": 64}
        found.append(record(k if threads == 2 else 20, command="mine", **how))
    assert opening(tmp_path, found).startswith(SWEPT)
    assert ("make peers" in opening(tmp_path, found)) == (not more)
    raced = record(10, contestant="numpy", batch=32, primitive="race", metrics={"race": RACE})
    assert opening(tmp_path, [*found, raced]).startswith(
        "Fastest here: numpy, K = 4, 10.0 ns an element; raced against 2"
    )


def test_the_table_of_races_shows_the_time_of_a_step_in_a_program(tmp_path):
    rows = [{**RACE["rows"][0], "status": "fastest", "seconds": [9e-6] * 3}]
    raced = record(10, contestant="numpy", batch=32, primitive="race")
    for step, shown in (({}, "9 [9, 9] us"), ({"step": {"seconds": [3e-6, 2e-6, 4e-6]}}, "3 [2, 4] us")):
        race = {**RACE, "rows": rows, "seconds": 1.0, "ending": "decided", **step}
        kept = dataclasses.replace(raced, metrics={"race": race})
        assert shown in races.section(material(tmp_path, [kept]))


@pytest.mark.parametrize(
    "fields",
    [
        {"op": "step"},
        {"op": "draw", "options": {"layout": "plain"}},
        {"dtype": "float64"},
        {"primitive": "peer"},
        {"distribution": "rank0.6", "batch": 1},
    ],
)
def test_whatever_tree_was_timed_the_page_opens_with_one(tmp_path, fields):
    assert opening(tmp_path, [record(12.0, **fields)]).startswith("Fastest here: numba, K = 16, 1 thread, 12.0 ns")


def test_the_first_question_is_of_all_threads_of_the_machine(tmp_path, monkeypatch):
    asked, answered = [], tree.answered
    monkeypatch.setattr(tree, "answered", lambda it, question: asked.append(question) or answered(it, question))
    answer.section(material(tmp_path))
    assert [one.threads for one in asked] == [4]  # cores of tests.page.test_reports.MACHINE


@pytest.mark.parametrize(
    ("times", "told"),
    [
        (1.01, "takes as long, within the noise"),
        (2.0, "takes 2.0x the time"),
        (0.1, "takes 10% of that time"),
    ],
)
def test_the_headline_is_of_the_usual_batch_and_calls_what_the_noise_explains_no_difference(tmp_path, times, told):
    fast = {"primitive": "peer", "capacity": 1_000_000, "command": "make peers"}
    found = []
    for batch, op in itertools.product((1, 512, 16_384), ("draw", "update")):
        how = fast | {"batch": batch, "op": op}
        found += [record(100, contestant="numba", **how), record(100 * times, contestant="torchrl", **how)]
        found.append(record(105, contestant="numba", **(how | {"primitive": "peer_again"})))
    text = answer.section(material(tmp_path, found))
    assert "in batches of 512 of N" in text  # the nearest to 1,024
    assert f"torchrl, the fastest of 1 other library, {told}" in text


@pytest.fixture
def results(tmp_path):
    found = [record(10.0, capacity=n, fanout=k) for n in (1_000, 10_000) for k in (4, 16)]
    return write(tmp_path / "results", [*found, record(10.0, batch=64)])


def drawn_by(capsys):
    return re.findall(r"figure \d+ of \d+: (\w+)", capsys.readouterr().err)


ONLY = ("--only", "Figures")


def test_only_what_changed_is_drawn_again(results, tmp_path, capsys):
    out, page_of = tmp_path / "out", tmp_path / "out" / "figures.html"
    assert run(results, out, *ONLY) == 0
    assert {"fanout", "capacity"} <= set(drawn_by(capsys))
    assert run(results, out, *ONLY) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "nothing has changed since it was built" in said.out
    (out / "fanout.svg").write_text("scribbled over")
    assert run(results, out, *ONLY) == 0
    assert drawn_by(capsys) == ["fanout"]
    assert "scribbled" not in page_of.read_text()
    write(results, [record(1, contestant="python", status="skipped", reason="takes too long", **NOTHING)])
    assert run(results, out, *ONLY) == 0
    said = capsys.readouterr().err.splitlines()
    assert said == ["loading what draws", "section 1 of 1: Figures"]
    write(results, [record(12.0, capacity=100_000)])
    assert run(results, out, *ONLY) == 0
    assert "capacity" in drawn_by(capsys)
    assert run(results, tmp_path / "other", *ONLY) == 0
    assert page_of.read_text() == (tmp_path / "other" / "figures.html").read_text()


def test_two_processes_draw_what_one_does(results, tmp_path):
    assert run(results, tmp_path / "one", *ONLY) == 0
    assert run(results, tmp_path / "two", *ONLY, "--jobs", "2") == 0
    files = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("one", "two")]
    assert files[0] == files[1]
    for name in set(files[0]) - {kept.FILE}:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_a_job_that_fails_says_so_to_who_asks_for_what_it_made():
    for processes in (1, 2):
        calls = dict(building.done([lambda: 1, lambda: 1 // 0], processes))
        assert calls[0]() == 1
        with pytest.raises(ZeroDivisionError):
            calls[1]()


def test_a_second_pool_runs_jobs_of_its_own():
    for word in ("figures", "sections"):
        made = [call() for _, call in building.done([functools.partial(str, word)] * 2, 2)]
        assert made == [word, word]


@pytest.mark.usefixtures("without_laws")
def test_only_some_sections_make_a_page_of_their_own(results, tmp_path, capsys):
    assert run(results, tmp_path / "out", "--only", "Skipped", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert Path(said["page"]).name == "skipped.html"
    text = Path(said["page"]).read_text()
    assert re.findall(r"<h2>(.*?)</h2>", text) == ["Skipped and failed cells"]
    assert set(re.findall(r'href="#([^"]*)"', text)) <= set(anchors(text))
    assert run(results, tmp_path / "out", "--only", "nonsense") == 2
    refused = capsys.readouterr().err
    assert "--only nonsense: no section is headed so; there are: The answer; Races" in refused


def test_open_shows_the_page(results, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(command.webbrowser, "open", shown.append)
    assert run(results, tmp_path / "out", "--only", "Skipped", "--open") == 0
    assert shown == [(tmp_path / "out" / "skipped.html").as_uri()]


def test_equal_values_have_one_key_and_what_cannot_be_told_by_its_content_has_none():
    one, other = ("".join(letters) for letters in (["aa", "a"], ["a", "aa"]))
    assert kept.key_of([one, one], 1.5) == kept.key_of([one, other], 1.5) != kept.key_of([one, one], 1.6)
    assert kept.key_of(lambda: 1) == ""


def test_a_folder_has_the_key_of_what_its_files_hold(results):
    first = kept.key_of("figure", results)
    assert kept.key_of("figure", results) == first
    write(results, [record(11.0)])
    assert kept.key_of("figure", results) != first


def test_a_figure_depends_on_the_files_that_draw_it_and_on_no_other_section():
    needed = {path.name for path in kept._needed(Path(tree.__file__))}
    assert {"tree.py", "tree_figures.py", "style.py", "tidy.py", "markup.py"} <= needed
    assert not needed & {"page.py", "replay.py", "mapping.py", "building.py"}


def test_a_figure_is_another_where_what_its_file_needs_at_second_hand_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "ROOT", tmp_path)
    monkeypatch.setattr(kept, "code", lambda *packages: "code")
    (tmp_path / "reports").mkdir()
    for name, text in (("one", "from . import two"), ("two", "from .three import x"), ("three", "x = 1")):
        (tmp_path / "reports" / f"{name}.py").write_text(text)

    def draw(rows, about):
        pass

    draw.__module__ = "reports.one"
    made = Chart("made_up", lambda it: it.frame, draw, "")
    first = kept.of_drawing(made)
    assert kept.of_drawing(made) == first
    (tmp_path / "reports" / "three.py").write_text("x = 2")
    assert kept.of_drawing(made) != first


def test_every_kind_of_source_counts_as_code():
    folders = [kept.ROOT / name for name in ("impls", "dse", "reports")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    made = ("build", "gallery", "__pycache__")
    there = {path.suffix for path in files if not any(name in path.parts for name in made)}
    assert there - {".typed", ".pyi", ""} <= set(kept.SOURCES)


def test_a_section_is_kept_for_the_machine_that_it_was_written_of(results, tmp_path):
    cache, shown = kept.Kept(tmp_path), [Section(1, "Whose", lambda it: it.about.key)]
    for key in ("one", "other", "one"):
        made = material(results, [record(10.0, machine={"key": key, "cores": 4})])
        assert f"\n{key}</section>" in building._sections(shown, made, cache, building.How())["Whose"]


@pytest.mark.parametrize("more", [("--machine", "other"), ("--only", "Figures"), ("--no-models",)])
def test_another_question_is_another_build(results, more):
    usual = ("--results", str(results))
    first, again, other = (
        command._stamp(command._parser().parse_args(words)) for words in (usual, usual, usual + more)
    )
    assert first == again != other


def test_a_damaged_file_of_what_is_kept_counts_as_none(tmp_path):
    for text in ("", "{}", "[]", '{"figures": 1}'):
        (tmp_path / kept.FILE).write_text(text)
        assert kept.Kept.read(tmp_path).title("fanout", "key") is None


def test_a_section_that_needs_scipy_is_left_out_where_it_is_not_installed(tmp_path):
    def html(material, missing="scipy"):
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    found = list(everything())
    material = Material(found, tidy.about(found), tmp_path)
    text = page.section_html(Section(1, "Any", html), material)
    assert "<p>Left out: No module named " in text
    assert "scipy" in text
    with pytest.raises(ModuleNotFoundError):  # a fault of ours
        page.section_html(Section(1, "Any", lambda material: html(material, "dse.nothing")), material)


def test_no_two_series_of_a_figure_look_alike():
    assert len({tuple(style.marks(position).values()) for position in range(64)}) == 64
