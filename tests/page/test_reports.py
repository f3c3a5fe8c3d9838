"""Figures and the page, from a few records made up so that every answer is known."""

import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dse.records import Writer, to_rows
from reports import __main__ as command
from reports import page, style, tidy
from reports.claims import mappings
from reports.sections import (
    adaptation,
    arrangements,
    fpga,
    history,
    learning_runs,
    mapping,
    plugins,
    published,
    replay_figures,
    training,
    transports,
    tree,
    tree_figures,
)
from tests.committed import RESULTS
from tests.grids import without_grids
from tests.page_parts import assert_plain, made_up, page_material, uncovered

KEY = "made-up"
CACHES = {"L1": 48 << 10, "L2": 1 << 20, "L3": 32 << 20}
MACHINE = {"key": KEY, "cpu": "Abacus 9000", "cores": 4, "caches": CACHES, "kernel": "None 1.0", "python": "3.11"}
BEST_FANOUT = 8
FACTORS = (0.5, 1.0, 2.0)  # for which Table V is solved again here; tests/unit/test_table5.py asks for every one
MISALIGNED = 1.5
AGAIN = 1.04
NAMES = [chart.name for chart in tree.CHARTS]
MODELED = [chart.name for chart in fpga.CHARTS]  # of laws, so they need no records
SOLVED = [chart.name for chart in mapping.CHARTS if chart.name != "solver_scaling"]  # which needs a profile
SOLVED += [chart.name for chart in published.CHARTS]
REPLAY = [chart.name for chart in replay_figures.CHARTS]  # tests/system/test_replay_reports.py draws them
QUOTED = RESULTS / "quoted"
TRAINING = [chart.name for chart in training.CHARTS]  # tests/page/test_training_reports.py draws them
OTHERS = (adaptation, arrangements, history, learning_runs, plugins, transports)  # whose own tests draw their figures
GPU_TREES = {  # nanoseconds of an element, and of a call
    ("cupy", "float32", ()): (0.5, 30_000.0),
    ("cupy", "float32", (("validate", False),)): (0.5, 8_000.0),
    ("cupy", "float32", (("launch", "graph"), ("validate", False))): (0.5, 3_000.0),
    ("torchrl_cuda", "float32", ()): (1.5, 24_000.0),
    ("torchrl_cuda", "float64", ()): (2.0, 24_000.0),
}
PEERS = {  # nanoseconds of an element's draw and update, and of a call
    ("numba", "float32", ()): (10.0, 6.0, 1_000.0),
    ("numba", "float32", (("validate", False),)): (10.0, 6.0, 600.0),
    ("numba", "float64", ()): (12.0, 8.0, 1_000.0),
    ("python", "float32", ()): (4_000.0, 4_000.0, 0.0),
    ("tianshou", "float64", ()): (40.0, 40.0, 5_000.0),
    ("torchrl", "float32", ()): (60.0, 5.0, 700.0),
    ("torchrl", "float64", ()): (70.0, 7.0, 700.0),
    ("rllib", "float64", ()): (2_000.0, 2_000.0, 0.0),
}
NOTHING = {"median_seconds": None, "low_seconds": None, "high_seconds": None, "samples_seconds": ()}
PACKAGES = {"rllib": "ray"}
PEER_AGAIN = 1.02


def record(nanoseconds, **fields):
    """A timed record at so many nanoseconds an element, its samples within a percent."""
    usual = {
        "contestant": "numba",
        "op": "draw",
        "capacity": 10_000,
        "batch": 256,
        "primitive": "sum_tree",
        "calls_per_sample": 10,
        "machine": MACHINE,
        "dirty": False,
        "command": "python -m benchmarks sweep --preset quick",
    } | fields
    return made_up(1e-9 * usual["batch"] * nanoseconds, **usual)


def everything():
    """Records enough for every figure and section."""
    for op, n, b in itertools.product(("draw", "update"), (10_000, 1_000_000), (256, 2_048)):
        where = {"op": op, "capacity": n, "batch": b}
        for k in (4, 8, 16, 32):
            yield record(math.log10(n) * (5 + abs(math.log2(k / BEST_FANOUT))), fanout=k, **where)
        yield record(AGAIN * math.log10(n) * 6, fanout=4, primitive="sum_tree_again", **where)
        yield record(math.log10(n) * 6 * MISALIGNED, options={"aligned": False}, **where)
        yield record(math.log10(n) * 7, options={"layout": "plain"}, **where)
        yield record(math.log10(n) * 4, threads=2, **where)
        yield record(500, contestant="numpy", status="unstable", **where)
        yield record(450, contestant="numpy", options={"padding": "full"}, **where)
        yield record(70, contestant="fpga", source="modeled", samples_seconds=(), **where)
    for kind, lines in itertools.product(("gather", "chase"), (512, 65_536)):
        yield record(3, primitive="memory", contestant=kind, op="read", capacity=lines, batch=1 << 15, dtype="")
    yield record(1, contestant="python", status="skipped", reason="takes <b>too</b> long", **NOTHING)
    yield from peers()
    yield from on_gpu()


def on_gpu():
    """Records of trees on a GPU, and of ours by the lanes that share a sample."""
    where = {"facts": {"device": "cuda:0"}, "machine": MACHINE | {"gpus": ["Abacus G1, 1.0, 16 MiB"]}}
    usual = {**where, "command": "python -m benchmarks run gpu", "capacity": 1_000_000}
    for op, b in itertools.product(("sample", "draw", "update"), (256, 65_536)):
        for (name, dtype, options), (cost, call) in GPU_TREES.items():
            kind = {"contestant": name, "dtype": dtype, "options": dict(options), "op": op, "batch": b}
            yield record(cost + call / b, primitive="gpu", fanout=16 if name == "cupy" else 2, **kind, **usual)
        yield record(1, primitive="gpu_again", contestant="cupy", op=op, batch=b, **usual)
    absent = {"contestant": "torch_cumsum", "status": "skipped", "reason": "torch_cumsum needs <torch>"}
    yield record(1, primitive="gpu", **(usual | absent), **NOTHING)
    for op, b, lanes in itertools.product(("draw", "update"), (256, 65_536), (1, 4, 32)):
        options = {"lanes": lanes, "validate": False}
        yield record(900 + lanes, contestant="cupy", op=op, batch=b, options=options, **usual)


def peers():
    """Records of other libraries and ours in turns, at N = 1,000,000 over B and at B = 128 over N."""
    shapes = [(1_000_000, 1), (1_000_000, 1_024), *((n, 128) for n in (1 << 10, 1 << 17, 1 << 20))]
    for (name, dtype, options), (draw, update, call) in PEERS.items():
        ours = name in ("numba", "python")
        packages = {"numpy": "2.4", "numba": "0.68", **({} if ours else {PACKAGES.get(name, name): f"0.{len(name)}"})}
        kind = {"contestant": name, "dtype": dtype, "options": dict(options), "fanout": 16 if ours else 2}
        usual = kind | {"machine": MACHINE | {"packages": packages}, "command": "python -m benchmarks peers"}
        for (n, b), (op, cost) in itertools.product(shapes, (("draw", draw), ("update", update))):
            time = cost + call / b
            yield record(time, primitive="peer", op=op, capacity=n, batch=b, **usual)
            if (name, dtype, options) == ("numba", "float32", ()):
                yield record(PEER_AGAIN * time, primitive="peer_again", op=op, capacity=n, batch=b, **usual)
        for threads in (1, 2):
            time = draw / (threads if ours else 1)
            yield record(time, primitive="peer_shared", capacity=1_000_000, batch=1_024, threads=threads, **usual)
    absent = {
        "contestant": "pfrl",
        "dtype": "float64",
        "fanout": 2,
        "status": "skipped",
        "reason": "pfrl is not <here>",
    }
    yield record(1, primitive="peer", batch=1, **(usual | absent), **NOTHING)


def write(folder, found):
    """A results folder with one file of records."""
    with Writer(folder / KEY / "quick.jsonl") as writer:
        for one in found:
            writer.append(one)
    return folder


def run(results, out, *more):
    return command.main(["--results", str(results), "--machine", KEY, "--out", str(out), "--jobs", "1", *more])


def whole(folder):
    """The folder of a whole report."""
    shutil.copytree(QUOTED, folder / "results" / "quoted")
    assert run(write(folder / "results", everything()), folder / "out") == 0
    return folder / "out"


def no_picture(figure, ending):
    return b"a picture"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of a whole report whose figures are drawn but not rendered, which takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "picture", no_picture)
        patch.setattr(mappings, "FACTORS", FACTORS)
        without_grids(patch)
        return whole(tmp_path_factory.mktemp("report"))


@pytest.fixture
def unrendered(monkeypatch):
    """Spares rendering and grids of answers where a test is about all else."""
    monkeypatch.setattr(style, "picture", no_picture)
    monkeypatch.setattr(mappings, "FACTORS", FACTORS)
    without_grids(monkeypatch)


@pytest.fixture(scope="module")
def html(built):
    return (built / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def drawn():
    """Every figure by its name, laid out."""
    found = list(everything())
    material = page_material(found, QUOTED.parent)
    figures = {chart.name: chart.draw(chart.rows(material), material.about) for chart in tree.CHARTS}
    for figure in figures.values():
        figure.canvas.draw()
    return figures


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_says_its_units_and_source_and_nothing_covers_it(drawn, name):
    figure = drawn[name]
    assert figure.subfigs[0].get_suptitle().startswith("Time")
    assert re.search(r"\((ns|ratio)\)$", figure.axes[0].get_ylabel())
    assert figure.axes[-1].get_xlabel()
    for axes in figure.axes:
        assert axes.get_yscale() == "log"
        assert axes.get_xscale() == ("linear" if name == "layout" else "log")
        assert_plain(axes)
    told = uncovered(figure)
    for part in ("measured", "Abacus 9000, 4 cores", "01234567", "2026-01-02", "95 % intervals"):
        assert part in told


def test_a_line_joins_points_of_one_run_and_its_ring_is_among_them():
    own = [record(ns, fanout=k) for k, ns in ((4, 30), (8, 20), (16, 25))]
    others = [record(1, fanout=k, command="make demo", utc="2027-01-02T03:04:05+00:00") for k in (2, 32)]
    rows = tree_figures.by_fanout(tidy.tidy([*own, *others]))
    figure = tree_figures.fanout(rows, tidy.about(own))
    (axes,) = figure.axes
    lines = [line for line in axes.lines if line.get_fillstyle() != "none" and len(line.get_xdata())]
    joined = [list(line.get_xdata()) for line in lines if line.get_linestyle() == "-"]
    alone = [list(line.get_xdata()) for line in lines if line.get_alpha() == 0.5]
    assert (joined, alone) == ([[4, 8, 16]], [[2, 32]])
    (ring,) = [line for line in axes.lines if line.get_fillstyle() == "none"]
    assert ring.get_xdata()[0] == 8
    assert "other runs" in figure.subfigs[1].texts[0].get_text().replace("\n", " ")


def swept(*names, **fields):
    """Records of trees at two N, two B and three K, none of them usual."""
    for name, n, b, k, op in itertools.product(names, (10**4, 10**5), (64, 2_048), (4, 8, 32), ("draw", "update")):
        yield record(10, contestant=name, capacity=n, batch=b, fanout=k, op=op, **fields)


@pytest.mark.parametrize("fields", [{}, {"dtype": "float64"}, {"distribution": "rank0.6"}, {"threads": 2}])
def test_a_figure_shows_the_nearest_that_was_measured_and_says_so(fields):
    found = [
        *swept("numba", "numpy", **fields),
        *swept("fpga", source="modeled"),
        record(5, contestant="flat", batch=64),
    ]
    material = page_material(found, QUOTED.parent)
    told = {}
    for chart in tree.CHARTS[:3]:
        figure = chart.draw(chart.rows(material), material.about)
        titles, caption = [axes.get_title() for axes in figure.axes], figure.subfigs[1].texts[0].get_text()
        told[chart.name] = titles, " ".join(caption.split())
    panels = ["draw, numba", "update, numba", "draw, numpy", "update, numpy"]
    assert told["fanout"][0] == [f"{panel}, B = 64" for panel in panels]
    assert told["capacity"][0] == ["draw, K = 8, B = 64", "update, K = 8, B = 64"]
    assert told["batch"][0] == ["draw, N = 100,000, K = 8", "update, N = 100,000, K = 8"]
    for name, said in (("fanout", "B = 64: the nearest to 256"), ("batch", "N = 100,000: the nearest to 1,000,000")):
        assert f"{said} that was measured." in told[name][1]
    for key, value in fields.items():
        assert f"{key} = {value}: the nearest to " in told["capacity"][1]


def test_a_tree_without_a_fanout_is_drawn_beside_those_of_any():
    found = [*swept("numba"), *(record(5, contestant="flat", capacity=n, batch=64) for n in (10**4, 10**5))]
    rows = tree_figures.by_capacity(tidy.tidy(found))
    assert set(zip(rows["contestant"], rows["fanout"], strict=True)) == {("numba", 8), ("flat", 8)}


def test_lines_of_the_figure_of_bytes_keep_ragged_and_full_levels_apart():
    sizes = itertools.product((10**4, 10**5), (4, 16), ({}, {"padding": "full"}))
    found = [record(10, contestant="numpy", capacity=n, fanout=k, options=how) for n, k, how in sizes]
    figure = tree_figures.tree_bytes(tree_figures.by_bytes(tidy.tidy(found)), tidy.about(found))
    joined = [line for line in figure.axes[0].lines if line.get_color() == "0.6"]
    assert [len(line.get_xdata()) for line in joined] == [2] * 4  # N times levels


def test_what_is_unstable_is_hollow_and_what_is_modeled_says_so(drawn):
    figure = drawn["capacity"]
    hollow = [line for axes in figure.axes for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert {round(float(ns)) for line in hollow for ns in line.get_ydata()} == {500}
    caption = figure.subfigs[1].texts[0].get_text().replace("\n", " ")
    assert "Hollow: unstable" in caption
    assert "Dotted: modeled, the device alone. Source: measured" in caption
    styles = {line.get_label(): line.get_linestyle() for axes in figure.axes for line in axes.lines}
    assert styles["fpga (modeled)"] == ":"
    assert "fpga" not in styles


def test_a_layout_is_divided_by_the_default_of_the_same_run_only():
    default, variant = record(10.0), record(10.0 * MISALIGNED, options={"aligned": False})
    ratios = tree_figures.layout_ratios(tidy.tidy([default, variant]))
    assert ratios["ratio"].tolist() == pytest.approx([MISALIGNED])
    assert ratios["low"].item() < MISALIGNED < ratios["high"].item()
    other = record(10.0 * MISALIGNED, options={"aligned": False}, commit="another")
    assert tree_figures.layout_ratios(tidy.tidy([default, other])).empty


def test_times_are_nanoseconds_an_element_and_bytes_the_trees():
    frame = tidy.tidy([record(12.5, batch=2_048), record(3, primitive="memory", contestant="chase", capacity=512)])
    assert frame["ns"].tolist() == pytest.approx([12.5, 3])
    assert frame["low_ns"].lt(frame["ns"]).all()
    assert frame["bytes"].tolist()[1] == 512 * 64
    assert np.isnan(tidy.tidy([record(1, contestant="python")])["bytes"].item())


SCRIPT = re.compile("<script>.*?</script>", re.DOTALL)


def test_the_page_needs_nothing_else(html):
    html = SCRIPT.sub("", html)  # of what others' script does the browser's tests say that it fetches nothing
    around = re.sub(r'(src|href)="data:[^"]*"|<a href="https:[^"]*" rel="noreferrer">', "", html)
    assert not re.search(r"""(?:src|href)\s*=\s*(?!["']#)|@import|fetch\(|XMLHttpRequest|url\(|import\(""", around)
    assert html.count("data:image/svg+xml,") == len(NAMES + MODELED + SOLVED)
    assert 'name="viewport"' in html


@pytest.mark.usefixtures("unrendered")
def test_what_was_not_measured_is_left_out_with_the_command_for_it(tmp_path, capsys):
    results = write(tmp_path / "results", [record(10.0, capacity=n) for n in (1_000, 10_000)])
    shutil.copytree(QUOTED, results / "quoted")
    assert run(results, tmp_path / "out", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["page"] == str(tmp_path / "out" / "index.html")
    assert said["figures"] == [
        str(tmp_path / "out" / f"{n}.{e}") for n in ("capacity", "bytes", *MODELED, *SOLVED) for e in ("svg", "png")
    ]
    others = [chart.name for section in OTHERS for chart in section.CHARTS]
    left_out = {*NAMES, *REPLAY, *TRAINING, *others, "solver_scaling"} - {"capacity", "bytes"}
    assert set(said["left_out"]) == left_out
    text = (tmp_path / "out" / "index.html").read_text()
    command_for = {chart.name: chart.command for chart in page.charts()}
    for name, reason in said["left_out"].items():
        assert command_for[name].format(key=KEY) in reason
        assert f"Left out, {name}: {reason}" in text
    assert "No cell was measured twice" in text


def one_sentence(capsys):
    said = capsys.readouterr()
    assert not said.out
    assert said.err.count("\n") == 1
    return said.err


def test_an_empty_folder_is_one_sentence(tmp_path, capsys):
    assert run(tmp_path, tmp_path / "out") == 2
    assert "no records here; measure with: python -m benchmarks sweep" in one_sentence(capsys)
    assert not (tmp_path / "out").exists()


def test_a_package_that_is_not_installed_is_one_sentence(tmp_path):
    write(tmp_path / "results", [record(10.0)])
    without = "import sys; sys.modules['pandas'] = None; from reports.__main__ import main; sys.exit(main())"
    asked = ["--results", "results", "--machine", KEY, "--out", "out"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    words = [sys.executable, "-c", without, *asked]
    said = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    remedy = "install all that it needs with: pip install '.[suite]'"
    last = said.stderr.splitlines()[-1]
    assert (said.returncode, last) == (2, f"error: the page needs the package pandas; {remedy}")


def test_a_row_of_the_tidy_table_is_that_of_an_export():
    found = [record(10.0, options={"propagate": "delta", "layout": "plain"}), record(20.0, capacity=20)]
    table = tidy.tidy(found)
    assert table["options"].tolist() == ["layout=plain,propagate=delta", ""]
    for row, exported in zip(table.to_dict("records"), to_rows(found), strict=True):
        assert {name: row[name] for name in exported} == exported


def test_another_machine_is_one_sentence(tmp_path, capsys):
    results = write(tmp_path / "results", [record(10.0)])
    assert command.main(["--results", str(results), "--machine", "other", "--out", str(tmp_path / "out")]) == 2
    assert f"no records of machine other, only of {KEY}; ask with --machine {KEY}" in one_sentence(capsys)


@pytest.mark.usefixtures("without_laws", "unrendered")
def test_a_machine_without_records_draws_those_of_the_nearest_and_says_so(tmp_path, capsys, monkeypatch):
    here = MACHINE | {"key": "fresh", "cores": 8, "vendor": "Abacus"}
    monkeypatch.setattr("dse.machines.fingerprint", lambda: here)
    results = write(tmp_path / "results", [record(10.0, capacity=n) for n in (1_000, 10_000)])
    asked = ["--results", str(results), "--out", str(tmp_path / "out")]
    assert command.main(asked) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"Answered from records of machine {KEY} (Abacus 9000, 4 cores), the nearest there is")
    assert "fresh (Abacus 9000, 8 cores), has no records of its own. That machine differs in cores (8 here, 4" in first
    html = (tmp_path / "out" / "index.html").read_text()
    assert html.index("<h1>") < html.index("<p>Answered from records of machine") < html.index("<h2>")
    assert command.main([*asked, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["machine"], said["machine_note"], said["results"]) == (KEY, first, str(results))


def test_a_file_where_the_folder_should_be_is_one_sentence(tmp_path, capsys):
    results = write(tmp_path / "results", [record(10.0)])
    (tmp_path / "out").write_text("in the way")
    assert run(results, tmp_path / "out") == 2
    assert "cannot be written" in one_sentence(capsys)
    assert (tmp_path / "out").read_text() == "in the way"


def test_ticks_of_a_narrow_axis_are_labeled_by_their_values():
    figure, (axes,) = style.panels("How near?", ["made up"])
    axes.plot([1, 2], [125.2, 126.4], label="ours")
    style.captioned(figure, "")
    ticks = {label.get_position()[1]: label.get_text() for label in axes.yaxis.get_ticklabels()}
    assert len(ticks) > 2
    assert [*map(float, ticks.values())] == pytest.approx([*ticks])
