"""The page and its figures, from records made up so that every number is known."""

import dataclasses
import json
import math
import re

import pytest

pytest.importorskip("seaborn", reason="reports need seaborn")

import matplotlib.figure
import pandas as pd
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer

from dse.records import RecordError
from reports import draw, page
from reports.__main__ import main
from reports.answer import compare_libraries, divide_step, make_answer
from reports.figure import Figure, Section, Table
from reports.frame import PooledError, make_frame
from reports.sections.libraries import list_slowdowns
from reports.sections.trees import list_races
from tests.made import alter
from tests.page_records import BEST_FANOUT, KEY, LIBRARIES, PARTS, data_of, peers, record, step, sweep, write

FIGURES = page.list_figures()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A page of everything made up, by the command."""
    folder = write([*sweep(), *step(), *peers(machine="elsewhere")], tmp_path_factory.mktemp("results"))
    out = tmp_path_factory.mktemp("page")
    assert main(["--results", str(folder), "--machine", KEY, "--out", str(out)]) == 0
    return (out / "index.html").read_text(encoding="utf-8")


def test_a_figure_has_the_number_of_each_record():
    records = list(sweep())
    rows = data_of(*records).select(FIGURES["fanout"])
    drawn = {(row.op, row.capacity, row.fanout): (row.ns, row.ns_low, row.ns_high) for row in rows.itertuples()}
    made = {
        (found.op, found.capacity, found.fanout): 1e9 * found.seconds / 256 for found in records if found.batch == 256
    }
    assert drawn == {key: pytest.approx((ns, 0.98 * ns, 1.02 * ns)) for key, ns in made.items()}
    row = make_frame([record(10, batch=100)]).iloc[0]
    assert list(row[["us", "us_low", "us_high"]]) == pytest.approx([1, 0.98, 1.02])
    rates = row[["per_second", "per_second_low", "per_second_high"]]
    assert list(rates) == pytest.approx([1e6, 1e6 / 1.02, 1e6 / 0.98])


def test_two_cells_at_one_point_are_refused():
    twins = [record(10, fanout=k, contestant=name) for k in (4, 8) for name in ("numba", "numpy")]
    figure = Figure("of_both", "", "fanout", where="primitive == 'sum_tree'")
    with pytest.raises(PooledError, match="of_both: 2 cells at one point, which differ in contestant"):
        data_of(*twins).select(figure)
    assert len(data_of(*twins).select(dataclasses.replace(figure, hue="contestant"))) == 4


def test_a_figure_holds_the_usual_or_the_nearest_measured():
    assert set(data_of(*sweep()).select(FIGURES["fanout"])["batch"]) == {256}
    assert set(data_of(*sweep(batches=(32, 512))).select(FIGURES["fanout"])["batch"]) == {512}  # by ratio
    alone = [record(9, batch=256, fanout=8), *sweep(batches=(1_024,))]
    assert set(data_of(*alone).select(FIGURES["fanout"])["batch"]) == {1_024}  # one K is no line


def test_a_figure_shows_the_pages_machine_or_the_one_with_most():
    figure = FIGURES["fanout"]
    both = [*sweep(), *sweep(machine="other", batches=(64, 256, 2_048))]
    assert set(data_of(*both).select(figure)["machine"]) == {KEY}
    point = record(5, machine="third", fanout=4)
    assert set(data_of(*both, point, machine="third").select(figure)["machine"]) == {"other"}  # a point is no line
    twins = [record(ns, primitive=name, machine=machine) for machine, again in ((KEY, 11), ("other", 99))
             for ns, name in ((10, "sum_tree"), (again, "sum_tree_again"))]  # fmt: skip
    assert data_of(*twins).noise == (pytest.approx(math.log(1.1)), 1)


def test_a_record_without_an_option_is_of_its_defaults_cell():
    options = {"workload": "cartpole_dqn"}
    where = {"primitive": "training", "contestant": "learner", "op": "step", "batch": 64}
    old = record(10, **where, options=options)
    new = record(20, **where, options=options | {"learner": "torch"}, utc="2026-02-02T03:04:05+00:00")
    frame = make_frame([new, old])
    assert frame[["o_learner", "ns"]].to_numpy().tolist() == [["torch", pytest.approx(20)]]


def test_names_tell_variants_apart_and_a_name_has_one_color():
    numbers = [record(1, dtype="float64"), record(2), record(3, contestant="numpy", dtype="float64")]
    numbers += [record(4, options={"validate": False}), record(5, threads=2)]
    assert list(make_frame(numbers)["name"]) == [
        "numba, float64", "numba", "numpy", "numba, unchecked", "numba, 2 threads",
    ]  # fmt: skip
    assert draw.color_of("numba, unchecked") == draw.color_of("numba") != draw.color_of("of_a_stranger")
    libraries, capacity = data_of(*peers()), data_of(*sweep(), *sweep(contestant="numpy"))
    colors = {}
    for data, figure in ((libraries, FIGURES["peers_batch"]), (capacity, FIGURES["capacity"])):
        for name, color, _ in draw.list_keys(data.select(figure), figure):
            assert colors.setdefault(name, color) == color
    assert len({colors[name] for name in ("numba", "numpy", "torchrl", "tianshou")}) == 4


def axes_of(rows, figure, every=None):
    axes = matplotlib.figure.Figure().subplots()
    draw.draw_axes(axes, rows, figure, rows if every is None else every)
    return axes


def test_a_line_has_its_numbers_intervals_and_hollow_points():
    points = [record(10, fanout=4), record(20, fanout=8, status="unstable")]
    points += [record(40, fanout=16, high_seconds=256 * 80e-9)]
    figure = Figure("line", "", "fanout", where="primitive == 'sum_tree'")
    axes = axes_of(data_of(*points).select(figure), figure)
    assert axes.lines[0].get_xydata().tolist() == [
        [4, pytest.approx(10)],
        [8, pytest.approx(20)],
        [16, pytest.approx(40)],
    ]
    ends = [segment[:, 1].tolist() for segment in axes.collections[0].get_segments()]
    assert ends == [pytest.approx([0.98 * ns, high]) for ns, high in ((10, 10.2), (20, 20.4), (40, 80))]
    solid, hollow = axes.lines[-2:]
    assert [list(line.get_xdata()) for line in (solid, hollow)] == [[4, 16], [8]]
    assert hollow.get_color() == solid.get_markerfacecolor()
    assert to_hex(hollow.get_markerfacecolor()) == "#ffffff" != to_hex(hollow.get_color())


@pytest.mark.parametrize("is_log", [False, True])
def test_panels_of_a_quantity_have_limits_that_hold_all(is_log):
    points = [record(10, fanout=4), record(20, fanout=8), record(40, fanout=16, high_seconds=256 * 80e-9)]
    figure = Figure("line", "", "fanout", where="primitive == 'sum_tree'", log=(True, is_log))
    rows = data_of(*points).select(figure)
    panel = rows[rows["fanout"] < 16]
    assert axes_of(panel, figure, rows).get_ylim()[1] > 80
    assert axes_of(panel, dataclasses.replace(figure, own_axes=True), rows).get_ylim()[1] < 30
    counts = rows.assign(ns=[0, 1, 100])
    assert draw.fit_axes(counts[counts["ns"] > 0], figure).log[1] and not draw.fit_axes(counts, figure).log[1]


@pytest.mark.parametrize("is_log", [False, True])
def test_bars_and_dots_are_at_their_numbers_the_shortest_on_top(is_log):
    found = [alter(found, status="unstable" if (found.contestant, found.op) == ("rllib", "update") else "ok")
             for found in peers() if (found.contestant, found.op) != ("torchrl", "update")]  # fmt: skip
    rows = compare_libraries(data_of(*found))
    axes = axes_of(rows, dataclasses.replace(FIGURES["libraries"], log=(False, is_log)))
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["rllib", "tianshou", "numba"]  # of torchrl nobody timed an update
    dots = [(line.get_xdata()[0], line.get_ydata()[0], line.get_markerfacecolor() == line.get_color())
            for line in axes.lines if line.get_marker() == "o"]  # fmt: skip
    bars = [(bar.get_width(), bar.get_y() + bar.get_height() / 2, not bar.get_hatch()) for bar in axes.patches]
    times = {name: 2 * (LIBRARIES[name] + 1_000 / 1_024) for name in labels}
    drawn = {labels[round(y)]: (x, is_solid) for x, y, is_solid in (dots if is_log else bars)}
    assert drawn == {name: (pytest.approx(time), name != "rllib") for name, time in times.items()}
    lines = [found.lines[2][0] for found in axes.containers if isinstance(found, ErrorbarContainer)]
    ends = {labels[round(y)]: (low, high) for line in lines for (low, y), (high, _) in line.get_segments()}
    assert ends == {name: pytest.approx((0.98 * time, 1.02 * time)) for name, time in times.items()}


def test_the_parts_of_a_step_and_the_rest_add_up_to_the_whole():
    twice = [alter(found, options=found.options | {"update_interval": 2}) for found in step()]
    dense = [alter(found, options=found.options | {"learner": "dense"}, median_seconds=found.seconds / 2)
             for found in twice if found.contestant in ("inference", "learner", "loop")]  # fmt: skip
    data = data_of(*twice, *dense)
    parts = divide_step(data).pivot(index="loop", columns="what", values="us")
    names = ["environment", "policy", "records", "tree", "learner", "rest"]  # two steps of an actor each
    wanted = {"torch": [18, 60, 7, 4, 700, 111], "dense": [18, 30, 7, 4, 350, 41]}
    for learner, us in wanted.items():
        assert list(parts.loc[f"cartpole_dqn, {learner}", names]) == pytest.approx(us)
    assert sum(wanted["torch"]) == PARTS["loop", "step"]
    assert "0.44 % to 0.89 %" in make_answer(data).means  # 4 of 900, and of 450
    rows = data.select(FIGURES["step"])
    axes = axes_of(rows, FIGURES["step"])
    loops = [label.get_text().partition(", ")[2] for label in axes.get_yticklabels()]
    totals = {loops[round(text.xy[1])]: text.get_text() for text in axes.texts if text.xy[0] > 100}
    assert totals == {learner: f"{sum(us)} us" for learner, us in wanted.items()}
    colors = {name: color for name, color, _ in draw.list_keys(rows, FIGURES["step"])}
    for bars in axes.containers:
        at = names.index(bars.get_label())
        widths = {loop: bar.get_width() for loop, bar in zip(loops, bars, strict=True)}
        assert widths == {learner: pytest.approx(100 * us[at] / sum(us)) for learner, us in wanted.items()}
        assert to_hex(bars[0].get_facecolor()) == colors[names[at]]
    assert divide_step(data_of(*list(step())[:-2])).empty  # without the learner or the whole


def test_a_curve_is_the_median_of_its_seeds():
    rows = pd.DataFrame([{"x": x, "y": x * seed} for x in (1, 2, 3) for seed in (1, 2, 30)])
    axes = axes_of(rows, Figure("curve", "", "x", "y", kind="curve", log=(False, False)))
    assert axes.lines[0].get_xydata().tolist() == [[1, 2], [2, 4], [3, 6]]


def test_a_table_that_spreads_times_lists_the_unstable_ones():
    first, *others = peers()
    table = list_slowdowns(data_of(alter(first, status="unstable"), *others)).set_index("name")
    assert table["unstable"].to_dict() == dict.fromkeys(LIBRARIES, "") | {first.contestant: str(first.batch)}
    assert "unstable" not in list_slowdowns(data_of(first, *others))


def test_the_first_screen_says_the_fastest_tree_of_the_records():
    answer = make_answer(data_of(*sweep()))
    assert f"K = {BEST_FANOUT}" in answer.says and "measured" in answer.means.lower()
    assert "benchmarks sweep" in make_answer(data_of(*peers())).means
    races = [record(ns, primitive="race", utc=f"2026-01-0{at}T03:04:05+00:00", metrics={"race": {"rows": [
        {"contestant": name, "fanout": k, "threads": 1, "options": []} for name, k in (("numba", k), ("flat", 1))]}})
        for at, ns, k in ((3, 12, 4), (2, 99, 32))]  # fmt: skip
    answer = make_answer(data_of(*sweep(), *races))
    assert "numba, K = 4" in answer.says and "12 ns" in answer.says and "2 candidates " in answer.means


def test_of_a_race_the_winner_and_the_next_are_listed():
    def race(utc, seconds, ratio):
        tree = {"contestant": "numba", "threads": 1, "options": {}}
        first = tree | {"fanout": 16, "seconds": seconds, "status": "fastest"}
        second = tree | {"fanout": 8, "seconds": [3e-6] * 3, "status": "slower", "ratio": [ratio, 1.1, 1.3]}
        found = {"rows": [first, second], "asked": {"capacity": 100}, "ending": "decided", "limit": 5.0}
        return record(1, primitive="race", op="step", utc=utc, metrics={"race": found})

    races = [race("2026-01-01", [4e-6] * 3, 1.5), race("2026-01-02", [1e-6, 0.9e-6, 2e-6], 1.2)]
    (row,) = list_races(data_of(*races)).to_dict("records")
    assert (row["time"], row["time_low"], row["time_high"]) == pytest.approx((1, 0.9, 2))
    assert row["slower by (%)"] == pytest.approx(20) and "K = 8" in row["next"] and "K = 16" in row["winner"]


def test_the_page_is_whole_and_needs_nothing_else(built):
    text = re.sub("<svg.*?</svg>", "", built, flags=re.DOTALL)
    ids, links = re.findall(' id="([^"]+)"', text), re.findall('href="#([^"]+)"', text)
    assert len(set(ids)) == len(ids) and {*links} <= {*ids}
    assert re.findall('(?:src|href)="([^#"][^"]*)"', text) == ["data:,"]
    assert "default-src 'none'" in built
    for tag in {*re.findall(r"<(\w+)", text)} - {"meta", "link", "br"}:
        assert len(re.findall(rf"<{tag}\b", text)) == text.count(f"</{tag}>"), tag
    assert {section.anchor for section in page.list_sections()} <= {*ids}
    figures = dict(re.findall('<figure id="([^"]+)">(.*?)</figure>', built, re.DOTALL))
    assert len(FIGURES) <= 20 and figures.keys() >= FIGURES.keys()
    assert all("<svg" in figures[name] or 'class="missing"' in figures[name] for name in FIGURES)
    assert "make gpu" in figures["gpu_batch"]
    assert "Measured on machine elsewhere, 2026-01-02, at 01234567." in figures["peers_batch"]


def test_the_source_of_a_figure_is_named():
    later = record(2, batch=64, commit="fedcba9876543210", utc="2026-02-03T03:04:05+00:00")
    rows = make_frame([record(1), later])
    said = draw.describe_held(rows, Figure("of_all", "", "fanout")), draw.describe_source(rows)
    assert said == ("N = 10k.", f"Measured on machine {KEY}, 2026-01-02 to 2026-02-03, at 01234567 and fedcba98.")


def test_a_table_has_intervals_percent_and_its_own_source(monkeypatch):
    row = {"tree": "numba", "us": 2.0, "us_low": 1.0, "us_high": 4.0, "share": 0.25, "o_leaves": 1_234}
    heads, rows = page.write_table(pd.DataFrame([row]))
    assert dict(zip(heads, rows[0], strict=True)) == {
        "tree": "numba", "us": "2 [1, 4]", "share": "25 %", "leaves": "1,234"
    }  # fmt: skip
    monkeypatch.setattr(page, "MOST_ROWS", 10)
    data, long = data_of(*sweep()), Table("long", "", lambda data: data.query("primitive == 'sum_tree'")[["us"]])
    other = Table("other", "", lambda data: pd.DataFrame([row]))
    long, other = (page.show_table(table, data) for table in (long, other))
    assert (len(long.rows), long.count) == (10, 32)
    assert KEY in long.source and other.source == ""


def test_what_fails_costs_the_page_that_part_alone():
    def fail(data):
        raise ZeroDivisionError("by chance <b>")

    def lack(data):
        raise RecordError("not there")

    figures = dataclasses.replace(FIGURES["fanout"], make=fail), FIGURES["capacity"]
    section = Section("Made up", "", figures, (Table("fails", "", fail), Table("lacks", "", lack)), says=fail)
    shown = page.show_section(section, data_of(*sweep(), *sweep(contestant="numpy")))
    assert [view.is_fault for view in (*shown.figures, *shown.tables)] == [True, False, True, False]
    assert shown.figures[1].panels and "not there" in shown.tables[1].missing and len(shown.faults) == 3


def test_a_fault_is_exit_code_1_and_said(tmp_path, monkeypatch, capsys):
    folder = write(sweep(), tmp_path / "results")
    monkeypatch.setattr("reports.page.draw_panels", lambda rows, figure: 1 / 0)
    assert main(["--results", str(folder), "--machine", KEY, "--out", str(tmp_path), "--json"]) == 1
    assert "ZeroDivisionError" in json.loads(capsys.readouterr().out)["faults"][FIGURES["fanout"].title]


def test_a_figure_for_a_paper_is_of_the_grid_that_was_asked_for(tmp_path, capsys):
    folder = write(sweep(batches=(64, 1_024)), tmp_path / "results")
    for ending, begins in ((".svg", b"<?xm"), (".png", b"\x89PNG"), (".pdf", b"%PDF")):
        path = tmp_path / f"fanout{ending}"
        asked = ["figure", "fanout", "--results", str(folder), "--machine", KEY, "--out", str(path), "--json"]
        assert main([*asked, "--batches", "64,1024", "--capacities", "1e6"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert {(row["capacity"], row["batch"]) for row in rows} == {(1_000_000, 64), (1_000_000, 1_024)}
        assert path.read_bytes()[:4] == begins


REFUSED = {
    "figure fanuot": "fanuot fanout",
    "figure fanout --out a.jpg": "a.jpg .svg",
    "figure fanout --batches 7": "batch 7 256 benchmarks sweep",
    "figure fanout --batches 256,333": "batch 333 2,048",
    "figure history --batches 256": "history",
    "figure peers_batch": f"{KEY} elsewhere",
    "data --only nothing": "nothing fanout",
    "--machine abc": f"abc {KEY}",
}


def test_what_cannot_be_done_is_said_with_its_remedy(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = write([*sweep(), *peers(machine="elsewhere")], tmp_path / "results")
    for words, facts in REFUSED.items():
        machine = [] if "abc" in words else ["--machine", KEY]
        assert main([*words.split(), "--results", str(folder), *machine]) == 2, words
        said = capsys.readouterr().err
        assert all(fact in said for fact in facts.split()) and "Traceback" not in said, (words, said)
    assert [*tmp_path.iterdir()] == [folder]


def test_data_has_every_figure_and_table_whole(tmp_path, capsys):
    folder = write([*sweep(), *peers()], tmp_path / "results")
    out = tmp_path / "data"
    assert main(["data", "--results", str(folder), "--machine", KEY, "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {"fanout", "libraries", "slowdowns"} <= {path.stem for path in out.iterdir()}
    rows = pd.read_csv(out / "fanout.csv")
    assert len(rows) == next(found["rows"] for found in said if found["file"].endswith("fanout.csv")) == 16
    assert {"ns", "ns_low", "ns_high", "machine", "commit", "source"} <= {*rows.columns}
