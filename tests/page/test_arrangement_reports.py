"""The page's section about arrangements, from records made up so that every answer is known."""

import dataclasses
import re

import pytest

from benchmarks.topics.arrangements import PRIMITIVE, RATIO, Mark, Run, list_long_records, list_records, make_cell
from impls.training import load
from tests.page_parts import first_cells, page_material
from tests.profiled import folder, stamp, world

pytest.importorskip("pandas", reason="reports need pandas")
pytest.importorskip("seaborn", reason="reports need seaborn")

from reports.sections import arrangements
from reports.sections.arrangements import points
from tests.made import alter

ACTOR, LEARNER, SWITCH = 1e-4, 2e-4, 1e-5
"""Seconds of an environment step, of a gradient step, and what every gradient step waits for."""


PIPELINED = "pipelined, A = 1, E = 1<br><small>oversubscribed: 3 processes</small>"


def run(name, interval, environments, free=False):
    """A made-up run: serial takes the sum of its parts, apart the longer of both and a little more."""
    acting, count = interval * ACTOR, 12
    longest = max(acting, LEARNER)
    seconds = acting + LEARNER if name == "serial" else longest + SWITCH
    turns = interval / environments
    work = {"learner": (1, 1, LEARNER), "actor": (1, turns, acting), "keeper": (int(name == "pipelined"), 1, 1e-5)}

    def at(n):
        done = {kind: (of, round(n * each * 100), n * own * 100) for kind, (of, each, own) in work.items()}
        return Mark(n * 100 * seconds, n * 100 * interval, n * 100, {} if name == "serial" else done)

    return Run(tuple(map(at, range(count + 1))), {"lead": 9, "lag": 0, "restarts": 0})


def cell(name, interval, environments, **how):
    shape = {"actors": 1, "environments": environments, "presampled": int(name == "pipelined")}
    return make_cell(load("cartpole_dqn"), name, learner="torch", update_interval=interval, **shape, **how)


def made_up():
    found = []
    for interval in (1, 8, 64):
        for name in ("serial", "apart", "pipelined"):
            one = cell(name, interval, 1)
            found += list_records(stamp(PRIMITIVE), one, run(name, interval, 1))
    found += list_records(stamp(PRIMITIVE), cell("apart", 1, 1, ratio="free"), run("apart", 1, 1))
    tenths = [Mark(20.0 * part, 100_000 * part, 100_000 * part, {}) for part in range(10)]
    last = Mark(200.0, 1_000_000, 900_000 + 99_800, {})
    found += list_long_records(
        stamp(PRIMITIVE), cell("apart", 1, 8, op=RATIO), Run((*tenths, last), {"lead": 8, "lag": 2})
    )
    here = {"key": "made-up", "cores": 2}
    return [alter(one, machine=one.machine | here, utc="2030-01-01T00:00:00+00:00") for one in found]


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    results = tmp_path_factory.mktemp("results")
    found = [*world(load("cartpole_dqn")), *made_up()]
    folder(results, found)
    return arrangements.section(page_material(found, results)).replace("&#x27;", "'")


def test_the_table_has_rate_bound_share_and_prediction(html):
    one = first_cells(html, "<p>cartpole_dqn, u = 1:</p>")
    assert set(one) == {"serial, E = 1", "apart, A = 1, E = 1", PIPELINED}
    apart = one["apart, A = 1, E = 1"]
    assert apart[0] == "0"
    assert apart[1].startswith("4,762 [")
    assert apart[2].startswith("5,000 [")
    assert apart[3:6] == ["95%", "5,000", "learner"]
    assert one["serial, E = 1"][2:4] == ["", ""]
    assert re.match(r"[\d,]+ \[[\d,]+, [\d,]+\]", one["serial, E = 1"][6])
    assert first_cells(html, "<p>cartpole_dqn, u = 64:</p>")["apart, A = 1, E = 1"][4:6] == ["156", "actor"]


def test_the_long_run_is_told(html):
    assert "1,000,000 environment steps, at most 8 ahead (9 allowed) and 2 behind" in html
    assert "off by at most 0.20%." in html


def test_the_figure_has_bounds_predictions_and_a_line_an_arrangement(tmp_path):
    found = [*world(load("cartpole_dqn")), *made_up()]
    material = page_material(found, folder(tmp_path, found))
    frame = arrangements.rates(material)
    apart = frame[frame["arrangement"] == "apart"].set_index("update_interval")
    assert apart["ns"][1] == pytest.approx(1 / 2.1e-4)
    assert apart["bound"][64] == pytest.approx(1 / 6.4e-3)
    assert frame[frame["arrangement"] == "serial"]["bound"].isna().all()
    assert frame[frame["arrangement"] == "serial"]["hz"].notna().all()
    figure = arrangements.draw(frame, material.about)
    labels = {text.get_text() for legend in figure.subfigs[0].legends for text in legend.get_texts()}
    assert {"serial", "apart", "pipelined", "apart, bound", "pipelined, bound", "serial, predicted"} <= labels


def test_runs_that_predictions_rest_on_are_not_compared():
    found = made_up()
    assert points(found)
    assert not points([dataclasses.replace(one, options=one.options | {"identity": "0a0f8f13"}) for one in found])
