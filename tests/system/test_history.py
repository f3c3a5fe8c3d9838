"""The history of speed: what asv stored at several commits, made up by asv itself, and which commit was slower."""

import itertools
import json
import math
import re
import types

import pytest

pytest.importorskip("pandas", reason="reports need pandas")

from asv.results import Results

from dse.records import RecordError
from reports import page, tidy
from reports.chart import Material
from reports.sections import history
from tests.page.test_reports import KEY, everything
from tests.repositories import ROOT

STEP, DRAW, SIZE = "bench_trees.Fanout.time_step", "bench_trees.Draw.time_draw", "bench_trees.Memory.track_bytes"
TREES, FANOUTS = ("cupy", "numba"), ("4", "16")
COMMITS = [letter * 40 for letter in "badc"]  # asv sorts files by name, the page by date
QUIET, WIDE = 0.01, 0.9
SLOWER_AT, TIMES = 2, 1.5


def benchmark(name, params, unit="seconds"):
    """A benchmark as asv finds it."""
    return {
        "name": name,
        "params": [list(one) for one in params],
        "version": "1",
        "param_names": ["contestant", "fanout"][: len(params)],
        "unit": unit,
        "type": "time",
    }


def samples(seconds, width):
    """Times whose 99 % interval is about ``width`` of them on each side."""
    return [seconds * (1 + width * step / 10) for step in range(-10, 11)]


def write(results, width=QUIET, machine=KEY, commits=COMMITS, environments=("env",)):
    """A folder of asv's: no GPU, K = 16 slower from the third commit on, K = 4 all the same.

    In each environment after the first all takes twice as long as in the one before.
    """
    folder = results / "asv"
    (folder / machine).mkdir(parents=True)
    (folder / machine / "machine.json").write_text(json.dumps({"machine": machine, "version": 1}))
    known = [
        benchmark(STEP, ([f"'{tree}'" for tree in TREES], FANOUTS)),
        benchmark(DRAW, (["'numba'"],)),
        benchmark(SIZE, (["'numba'"],), "bytes"),
    ]
    (folder / "benchmarks.json").write_text(json.dumps({one["name"]: one for one in known} | {"version": 2}))
    for (place, commit), (power, environment) in itertools.product(enumerate(commits), enumerate(environments)):
        slower = TIMES if place >= SLOWER_AT else 1.0
        run = Results({"machine": machine}, {}, commit, 1_000 * place, "3.11", environment, {})
        calls = {
            STEP: [None, None, samples(4e-6 * 2**power, width), samples(slower * 2e-6 * 2**power, width)],
            DRAW: [samples(1e-6, width)] if place == 0 else [None],
            SIZE: [None],
        }
        for one in known:
            timed = calls[one["name"]]
            value = [math.nan if times is None else 0.0 for times in timed]
            if one is known[2]:
                value = [100.0 + place]
            number = [None if times is None else 1 for times in timed]
            told = types.SimpleNamespace(result=value, samples=timed, number=number, stderr="", errcode=0, profile=None)
            run.add_result(one, told)
        run.save(str(folder))
    return results


def material(results):
    found = list(everything())
    return Material(found, tidy.about(found), results)


def test_every_timed_call_of_several_commits_is_there_with_asvs_intervals(tmp_path):
    found = history.rows(material(write(tmp_path)))
    assert sorted(set(found["setting"])) == ["numba, K = 16", "numba, K = 4"]  # no GPU, nothing of one commit
    assert set(found["benchmark"]) == {"Fanout.time_step"}
    part = found[found["setting"] == "numba, K = 16"]
    assert part["commit"].tolist() == [commit[:8] for commit in COMMITS]
    assert part["seconds"].tolist() == pytest.approx([2e-6, 2e-6, 3e-6, 3e-6])
    assert (part["low"] < part["seconds"]).all()
    assert (part["high"] > part["seconds"]).all()
    assert (part["high"] - part["low"] < 2 * QUIET * part["seconds"]).all()


def test_the_commit_that_was_slower_is_named_and_no_other(tmp_path):
    text = page.section_html(history.SECTIONS[0], material(write(tmp_path)))
    slow = COMMITS[SLOWER_AT][:8]
    assert f"Slower than the commit before: {slow}." in text
    told = [one for one in history.changes(history.rows(material(tmp_path))) if one.verdict]
    assert [(one.setting, one.after.commit, one.verdict) for one in told] == [("numba, K = 16", slow, "slower")]
    assert f"{TIMES:.2f}x" in text
    lines = [re.findall(r"<td[^>]*>(.*?)</td>", line) for line in text.split("</tr>")]
    before = COMMITS[SLOWER_AT - 1][:8]
    where = "Fanout.time_step", "numba, K = 16"
    assert [slow, before, "slower", *where, "2", "3", "1.50x"] in lines
    assert [*where, "4", "2", "3", "1.50x", slow, ""] in lines  # first, last, their ratio, slower at, faster at
    assert [where[0], "numba, K = 4", "4", "4", "4", "1.00x, intervals overlap", "", ""] in lines
    drift = "From its first commit to its last, 1 of 2 calls took longer by intervals that lie apart."
    assert drift in text
    assert text.count("<tr>") == 2 + 3  # a change and two series below their heads


def test_a_change_that_the_next_commit_takes_back_is_said_to_be(tmp_path, monkeypatch):
    slower, back = COMMITS[SLOWER_AT][:8], COMMITS[SLOWER_AT + 1][:8]
    rows = history.rows

    def spiked(of):
        found = rows(of)
        usual = found["commit"] == COMMITS[SLOWER_AT - 1][:8]
        for setting in found["setting"].unique():
            first = found[usual & (found["setting"] == setting)].iloc[0]
            last = (found["commit"] == back) & (found["setting"] == setting)
            for column in ("seconds", "low", "high"):
                found.loc[last, column] = first[column]
        return found

    monkeypatch.setattr(history, "rows", spiked)
    text = page.section_html(history.SECTIONS[0], material(write(tmp_path)))
    assert f"slower; came back at {back}" in text.split(slower, 2)[2]
    assert text.count("came back at") == 1
    assert "0 of 2 calls took longer" in text


def test_a_commit_is_not_compared_with_itself_in_another_environment(tmp_path):
    found = history.rows(material(write(tmp_path, environments=("py3.11", "py3.12"))))
    told = [(one.setting, one.before.commit != one.after.commit) for one in history.changes(found) if one.verdict]
    assert told == [("numba, K = 16, py3.11", True), ("numba, K = 16, py3.12", True)]


def test_intervals_that_overlap_are_no_slower_commit(tmp_path):
    text = page.section_html(history.SECTIONS[0], material(write(tmp_path, WIDE)))
    assert "No commit was shown to be slower than the one before" in text


def test_a_small_change_is_none_and_a_fall_is_faster(tmp_path):
    found = history.rows(material(write(tmp_path)))
    every = [one for one in history.changes(found) if one.setting == "numba, K = 16"]
    jump = next(one for one in every if one.verdict)
    assert history.Change(jump.benchmark, jump.setting, jump.after, jump.before).verdict == "faster"
    little = jump.before._replace(seconds=1.09 * jump.before.seconds, low=1.08 * jump.before.seconds)
    assert history.Change(jump.benchmark, jump.setting, jump.before, little).verdict == ""
    untold = jump.after._replace(low=-math.inf, high=math.inf)
    assert history.Change(jump.benchmark, jump.setting, jump.before, untold).verdict == ""


def test_the_threshold_is_that_of_asv():
    thresholds = json.loads((ROOT / "asv.conf.json").read_text())["regressions_thresholds"]
    assert list(thresholds.values()) == [history.THRESHOLD]


def test_the_figure_has_a_line_for_each_setting_and_rings_the_slower_commit(tmp_path):
    shown = material(write(tmp_path))
    figure = history.draw(history.rows(shown), shown.about)
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    assert set(lines) == {"numba, K = 16", "numba, K = 4"}
    assert list(lines["numba, K = 16"].get_ydata()) == pytest.approx([2, 2, 3, 3])
    ringed = [line for line in axes.lines if line.get_fillstyle() == "none"]
    assert [tuple(line.get_xydata()[0]) for line in ringed] == [(SLOWER_AT, pytest.approx(3))]
    assert [label.get_text() for label in axes.get_xticklabels()] == [commit[:8] for commit in COMMITS]
    assert figure.subfigs[0].get_suptitle() == "Which commit was slower?"


def test_a_machine_with_a_history_is_shown_its_own(tmp_path):
    (tmp_path / "asv" / "aaa").mkdir(parents=True)
    (tmp_path / "asv" / "aaa" / history.MACHINE).write_text("{}")
    write(tmp_path)
    assert history.folder_of(tmp_path, KEY).name == KEY
    assert history.folder_of(tmp_path, "another").name == "aaa"


def test_a_file_that_is_not_asvs_is_one_sentence(tmp_path):
    (write(tmp_path) / "asv" / KEY / "broken.json").write_text("{")
    with pytest.raises(RecordError, match=r"broken\.json: is no file of asv's"):
        history.rows(material(tmp_path))


def rewrite(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_what_another_benchmark_took_is_left_out(tmp_path):
    """Of another version, or with a parameter that it had not: as asv has it."""
    first, *rest = sorted((write(tmp_path) / "asv" / KEY).glob("[!m]*.json"))

    def outdate(run):
        stored = run["results"][STEP]
        stored[run["result_columns"].index("version")] = "0"

    rewrite(first, outdate)
    kept = history.rows(material(tmp_path))
    assert len(set(kept["commit"])) == len(rest)
    assert json.loads(first.read_text())["commit_hash"][:8] not in set(kept["commit"])
    rewrite(tmp_path / "asv" / history.BENCHMARKS, lambda known: known[STEP]["param_names"].append("threads"))
    assert history.rows(material(tmp_path)).empty
    assert "no call was timed at two commits" in page.section_html(history.SECTIONS[0], material(tmp_path))


def test_a_file_of_an_asv_that_wrote_otherwise_is_left_out_by_name(tmp_path):
    first, *_ = sorted((write(tmp_path) / "asv" / KEY).glob("[!m]*.json"))
    first.with_name(f"._{first.name}").write_bytes(b"\0\5")
    rewrite(first, lambda run: run.pop("result_columns"))
    text = page.section_html(history.SECTIONS[0], material(tmp_path))
    assert f"Left out: {first.name}" in text
    assert "measure that commit again" in text
    assert len(set(history.rows(material(tmp_path))["commit"])) == len(COMMITS) - 1
