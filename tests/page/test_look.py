"""Charts to look into, as HTML: their rows, choices and sentences, from a few records made up."""

import json
import re

import pytest

pytest.importorskip("pandas", reason="reports need pandas")

from reports import look, page, tidy
from reports.chart import Material
from reports.sections import closer
from tests import profiled
from tests.page.test_reports import KEY, everything, record
from tests.system import test_replay_reports

TREES, PEERS, REPLAYS, TRAINING = closer.LOOKS


def material(results, found=None):
    found = list(everything()) if found is None else found
    return Material(found, tidy.about(found), results)


def given(text):
    """The rows and the rest that a chart holds."""
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)[1])


def test_every_draw_and_update_of_trees_is_there_with_all_that_it_tells(tmp_path):
    made = material(tmp_path)
    held = given(look.html(TREES, made))
    rows = [one for one in tidy.timed(made.measurements) if one.primitive == "sum_tree" and one.op in tidy.OPS]
    assert len(held["times"]["value"]) == len(rows) > 50
    for name, values in (("op", {"draw", "update"}), ("status", {"ok", "unstable"}), ("machine", {KEY})):
        assert set(held["columns"][name]["values"]) == values
    for place, one in enumerate(rows):
        ns = 1e9 * one.seconds / one.batch
        assert held["times"]["value"][place] == pytest.approx(ns, rel=1e-3)
        assert held["times"]["low"][place] <= held["times"]["value"][place] <= held["times"]["high"][place]
        told = {name: column["values"][column["at"][place]] for name, column in held["columns"].items()}
        assert (told["contestant"], told["fanout"], told["capacity"], told["batch"], told["source"]) == (
            one.contestant,
            one.fanout,
            one.capacity,
            one.batch,
            one.source,
        )


def test_a_chart_begins_with_what_is_usual_and_with_what_is_there_where_that_is_not(tmp_path):
    chosen = re.findall(
        r'<select name="(\w+)".*?selected>(.*?)</option>', look.html(TREES, material(tmp_path)), re.DOTALL
    )
    assert dict(chosen) | {"op": "draw", "contestant": "numba", "capacity": "all", "batch": "256"} == dict(chosen)
    found = [record(10.0, batch=batch, fanout=k) for batch in (32, 64, 64) for k in (4, 8)]
    chosen = re.findall(
        r'<select name="(\w+)".*?selected>(.*?)</option>', look.html(TREES, material(tmp_path, found)), re.DOTALL
    )
    assert dict(chosen)["batch"] == "64"
    assert "capacity" not in dict(chosen)  # there is one, so there is nothing to choose


def test_libraries_come_with_both_operations_added_and_ours_are_called_so(tmp_path):
    held = given(look.html(PEERS, material(tmp_path)))
    labels = held["columns"]["label"]["values"]
    assert "numba float32 (ours)" in labels
    assert "torchrl float32" in labels
    rows = [
        (*(held["columns"][name]["values"][held["columns"][name]["at"][at]] for name in PEERS.columns), value)
        for at, value in enumerate(held["times"]["value"])
    ]
    parts = {op: ns for op, label, batch, n, ns in rows if (label, batch, n) == ("torchrl float32", 128, 1 << 17)}
    assert parts["draw + update"] == pytest.approx(parts["draw"] + parts["update"], rel=1e-3)


def told(held, name):
    """What a column says of each row."""
    column = held["columns"][name]
    return [column["values"][at] for at in column["at"]]


def test_parts_of_training_are_microseconds_a_call(tmp_path):
    found = profiled.made_up(("cartpole_dqn",), learners=("torch", "dense"))
    held = given(look.html(TRAINING, material(tmp_path, found)))
    cells = zip(*(told(held, name) for name in ("part", "by", "batch", "threads")), strict=True)
    shown = dict(zip(cells, held["times"]["value"], strict=True))
    assert shown["learner step", "torch", 64, 1] == pytest.approx(1e6 * (1e-3 + 1e-5 * 64), rel=1e-3)
    assert shown["learner step", "dense", 64, 1] == pytest.approx(1e6 * (1e-4 + 3e-6 * 64), rel=1e-3)


def test_runs_that_share_a_replay_are_microseconds_a_step_and_say_what_is_not_right_or_lacks_cores(tmp_path):
    found = [*test_replay_reports.runs(), *test_replay_reports.runs("processes")]
    held = given(look.html(REPLAYS, material(tmp_path, found)))
    labels = set(told(held, "label"))
    assert {"none (not right)", "two_lock_lazy (not right)", "global", test_replay_reports.DEFAULT} <= labels
    us = dict(zip(told(held, "label"), held["times"]["value"], strict=True))
    assert us["global"] == pytest.approx(test_replay_reports.STEPS["global"], rel=1e-3)
    cores = set(zip(told(held, "threads"), told(held, "oversubscribed"), strict=True))
    assert cores == {(2, "a core each"), (4, "a core each"), (6, "more of them than cores")}


def test_what_was_not_measured_is_left_out_with_the_command_for_it_after_what_was(tmp_path):
    text = closer.section(material(tmp_path))
    assert "Left out, look_replay: not measured on machine made-up" in text
    assert "python -m benchmarks run replay --only threads,processes" in text
    assert text.index("figure-look_peers") < text.index("Left out, ")


def test_no_text_of_a_record_ends_the_script_that_holds_it(tmp_path):
    found = [record(10.0, fanout=k, command="</script><b>x") for k in (4, 8)]
    text = look.html(TREES, material(tmp_path, found))
    assert text.count("</script>") == 1
    assert given(text)["columns"]["command"]["values"] == ["</script><b>x"]


def test_a_page_has_the_library_once_and_only_where_it_is_needed(tmp_path):
    (tmp_path / look.BUNDLE.format(look.version("vl-convert-python"))).write_text("library();")
    text = page.page(material(tmp_path), "Look closer")
    assert look.with_library(text, tmp_path).count("<script>library();</script>") == 1
    without = page.page(material(tmp_path), "Skipped")
    assert look.with_library(without, tmp_path) == without


def test_the_library_is_made_once_and_ends_no_script(tmp_path):
    made = look._library(tmp_path)
    (path,) = tmp_path.iterdir()
    assert "vegaEmbed" in made
    assert "</script" not in made.lower()
    assert 500_000 < len(made) < 1_500_000
    path.write_text("kept")
    assert look._library(tmp_path) == "kept"
