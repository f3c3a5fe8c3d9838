"""The section about whole training loops, from records made up so that every answer is known."""

import re

import pytest

from reports.sections import loops
from tests.page_parts import first_cells, made_up, page_material

MACHINE = {"key": "made-up", "cpu": "Abacus 9000", "cores": 2, "packages": {"numpy": "2"}}
CLEAN = {  # microseconds of a clean step
    ("fanout", 1, "prioritized"): 400,
    ("fanout", 8, "prioritized"): 250,
    ("fanout_torch", 1, "prioritized"): 1_200,
    ("tianshou", 1, "prioritized"): 2_000,
    ("tianshou", 8, "prioritized"): 1_600,
    ("sbx", 1, "uniform"): 402,
}
OPTIONS = {"workload": "cartpole_dqn", "environments": 1, "replay": "prioritized"}
RUN, EARLIER = "2026-02-02T00:00:00+00:00", "2026-01-01T00:00:00+00:00"


def record(name, count, replay, op, us, **fields):
    usual = {
        "primitive": "loop_peer",
        "contestant": name,
        "op": op,
        "capacity": 50_000,
        "batch": 64,
        "options": {"workload": "cartpole_dqn", "environments": count, "replay": replay},
        "machine": MACHINE,
        "metrics": {"steps": 15_000, "gradient_steps": 15_015},
        "command": "python -m benchmarks run loops",
        "utc": RUN,
    }
    return made_up(1e-6 * us, **usual | fields)


def run(**fields):
    for (name, count, replay), us in CLEAN.items():
        for op, more in (("clean", 1), ("median", 1.25), ("cpu", 1.5)):
            yield record(name, count, replay, op, more * us, **fields)
            if (name, count) == ("fanout", 1):
                yield record(name, count, replay, op, 1.01 * more * us, primitive="loop_peer_again", **fields)


def absent():
    untimed = {"samples_seconds": (), "median_seconds": None, "low_seconds": None, "high_seconds": None}
    for op in ("clean", "median", "cpu"):
        yield record("pfrl", 1, "prioritized", op, 1, status="skipped", reason="pfrl needs <torch>", **untimed)


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    found = [*run(), *absent(), *(one for one in run(utc=EARLIER) if one.contestant == "tianshou")]
    return section(found, tmp_path_factory.mktemp("results"))


def section(found, results):
    return loops.section(page_material(found, results)).replace("&#x27;", "'")


def test_the_answer_comes_first_and_a_tie_is_called_one(html):
    _, first, *_ = re.findall("<li>(.*?)</li>", html)
    assert html.startswith("<ul><li>fanout, 8 environments trains cartpole_dqn at 4,000 [")
    assert first.startswith("fanout trains cartpole_dqn at 2,500 [")
    fastest = "the fastest loop of another library that samples"
    assert re.search(rf"4\.00x \[[^;]*\] as fast as tianshou, 8 environments, {fastest} by priorities;", first)
    assert re.search(rf"1\.00x \[[^;]*\] as fast as sbx, {fastest} uniformly, a tie within the noise\.", first)


def test_without_other_libraries_or_loops_of_ours_nothing_is_compared(tmp_path):
    ours = section([one for one in run() if one.contestant == "fanout"], tmp_path)
    assert "clean steps/s (measured).</li>" in ours
    theirs = section([one for one in run() if one.contestant == "sbx"], tmp_path)
    assert theirs.startswith("<p>Environment steps/s")


def test_every_loop_has_a_row_the_fastest_first_with_its_rates_and_ratios(html):
    body = first_cells(html)
    names = ["fanout, 8 environments", "fanout", "sbx", "fanout_torch", "tianshou, 8 environments", "tianshou"]
    assert list(body) == names
    replay, clean, median, cpu, times, by_cpu, steps, ratio = body["tianshou"]
    assert (replay, steps, ratio) == ("prioritized", "15,000", "1.001")
    assert [cell.partition(" ")[0] for cell in (clean, median, cpu)] == ["500", "400", "333"]
    assert [cell.partition(" ")[0] for cell in (times, by_cpu)] == ["0.20x", "0.20x"]
    assert body["fanout"][4:6] == ["1", "1"]
    assert re.findall(r'<td class="name ours">(.*?)</td>', html) == [*names[:2], "fanout_torch"]
    assert len(re.findall("number best", html)) == 1


def test_loops_of_another_batch_are_compared_with_each_other(tmp_path):
    large = [
        record(name, 1, "prioritized", op, us, batch=512, options=OPTIONS | {"batch": 512}, utc=EARLIER)
        for name, us in (("fanout", 800), ("tianshou", 1_600))
        for op in ("clean", "median", "cpu")
    ]
    old = [record(one.contestant, 1, "prioritized", one.op, 9, options=one.options, utc="2025") for one in large]
    html = section([*run(), *large, *old], tmp_path)
    body = first_cells(html)
    assert [body[f"{name}, B = 512"][4].partition(" ")[0] for name in ("fanout", "tianshou")] == ["1", "0.50x"]
    assert body["tianshou"][4].startswith("0.20x")
    assert re.search(r"<li>fanout, B = 512 trains .*?: 2\.00x \[[^;]*\] as fast as tianshou, B = 512", html)


def test_only_the_latest_run_counts_and_what_has_no_time_is_said(html):
    assert "6 records of other runs are omitted." in html
    assert "a loop timed twice differs by up to 1.0%" in html
    assert "Not timed, pfrl: pfrl needs &lt;torch&gt;." in html
    assert "<li>sbx: numpy 2.</li>" in html
