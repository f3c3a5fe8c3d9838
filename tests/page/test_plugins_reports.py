"""The section, figures and verdict about plug-ins, from records made up so that every answer is known."""

import dataclasses
import re

import pytest

from dse.records import Writer
from reports.claims import plugin_claims, quoted

pytest.importorskip("pandas", reason="reports need pandas")
pytest.importorskip("seaborn", reason="reports need seaborn")

from reports import readme_tables, tidy
from reports.sections import plugins
from tests.committed import RESULTS
from tests.page_parts import made_up, page_material

MACHINE = {"key": "made-up", "cpu": "Abacus 9000", "cores": 2, "packages": {"numpy": "2"}}
TIMES = {  # microseconds of a step, and of the tree's calls in it
    ("rllib", "buffer", "theirs"): (20_000, 8_400),
    ("rllib", "buffer", "ours"): (10_000, 500),
    ("rllib", "cartpole_dqn", "theirs"): (9_000, 1_800),
    ("rllib", "cartpole_dqn", "ours"): (7_200, 100),
    ("tianshou", "buffer", "theirs"): (300, 100),
    ("tianshou", "buffer", "ours"): (200, 30),
    ("tianshou", "buffer", "ours, tree alone"): (250, 60),
    ("sb3", "buffer", "uniform"): (150, None),
    ("sb3", "buffer", "ours"): (300, 40),
    ("sb3", "buffer", "python tree"): (9_000, 8_700),
}


def record(host, task, kind, op, us, **fields):
    usual = {
        "primitive": "plugin",
        "contestant": host,
        "op": op,
        "capacity": 1_000_000,
        "batch": 256,
        "options": {"task": task, "kind": kind},
        "machine": MACHINE,
        "command": "python -m benchmarks run plugins",
        "utc": "2026-02-02T00:00:00+00:00",
    }
    return made_up(1e-6 * us, **usual | fields)


def run(**fields):
    for (host, task, kind), (step, tree) in TIMES.items():
        yield record(host, task, kind, "step", step, **fields)
        if tree:
            yield record(host, task, kind, "tree", tree, **fields)
        if kind in ("theirs", "uniform"):
            yield record(host, task, kind, "step", 1.01 * step, primitive="plugin_again", **fields)


def absent(host="torchrl", kind="theirs"):
    untimed = {"samples_seconds": (), "median_seconds": None, "low_seconds": None, "high_seconds": None}
    return record(host, "buffer", kind, "step", 1, status="skipped", reason="its <extension> does not fit", **untimed)


def learned(kind, seed, means):
    points = [[2_500 * (at + 1), 10.0 * (at + 1), mean] for at, mean in enumerate(means)]
    solved = next((step for step, _, mean in points if mean >= 475), None)
    found = {"points": points, "solved_at": 475.0, "solved_steps": solved}
    return record(
        "sb3", "cartpole_dqn", kind, "step", 4_000, primitive="plugin run", metrics=found,
        options={"task": "cartpole_dqn", "kind": kind, "seed": seed, "steps": 50_000},
    )  # fmt: skip


RUNS = [learned("uniform", 0, [100, 480]), learned("uniform", 1, [50, 200]), learned("ours", 0, [490, 500])]


def test_the_readme_has_the_machine_with_most_libraries_though_another_timed_one_later(tmp_path):
    other = {"machine": {**MACHINE, "key": "later"}, "utc": "2026-03-02T00:00:00+00:00"}
    for name, found in (("made-up", run()), ("later", (one for one in run(**other) if one.contestant == "rllib"))):
        with Writer(tmp_path / name / "plugins.jsonl") as writer:
            for one in found:
                writer.append(one)
    assert "| tianshou |" in readme_tables.plugins(tmp_path).replace("**", "")
    assert readme_tables.plugins(tmp_path / "later").count("RLlib") >= 2


def section(found, results):
    return plugins.section(page_material(found, results)).replace("&#x27;", "'")


def table(html):
    lines = re.findall(r"<tr>(.*?)</tr>", html.partition("</table>")[0])[1:]
    cells = [re.findall(r"<td.*?>(.*?)</td>", line) for line in lines]
    return {tuple(line[:3]): line[3:] for line in cells}


def test_the_answer_names_each_librarys_gain_over_its_own_replay(tmp_path):
    html = section([*run(), absent()], tmp_path)
    first = html.partition("</p>")[0]
    for said in ("RLlib, buffer step: 2.00x [", "RLlib, CartPole DQN: 1.25x [", "tianshou, buffer step: 1.50x ["):
        assert said in first
    assert re.search(r"SB3, buffer step: 0\.50x \[.*?\] over its uniform replay", first)
    assert "Not timed, torchrl, buffer step, theirs: its &lt;extension&gt; does not fit" in html


def test_a_row_has_both_times_the_shares_and_what_a_free_tree_would_gain(tmp_path):
    rows = table(section([*run()], tmp_path))
    us, own, ratio, _, share, own_share, most = rows["RLlib", "buffer step", "ours"]
    assert (us, own, ratio, share, own_share, most) == ("10,000", "20,000", "2.00x", "5%", "42%", "1.72x")
    us, own, ratio, _, share, own_share, most = rows["SB3", "buffer step", "python tree"]
    assert (us, own, ratio, share, own_share, most) == ("9,000", "150.0", "0.02x", "97%", "", "")
    assert ("tianshou", "buffer step", "ours, tree alone") in rows
    assert not any(kind in ("theirs", "uniform") for *_, kind in rows)


def test_what_cannot_be_told_apart_is_not_called_a_gain_and_what_is_unstable_is_marked(tmp_path):
    found = [record("tianshou", "buffer", "theirs", "step", 100), record("tianshou", "buffer", "ours", "step", 100)]
    html = section([found[0], dataclasses.replace(found[1], status="unstable")], tmp_path)
    assert "over its own, no difference shown" in html
    assert table(html)["tianshou", "buffer step", "ours"][2] == "1.00x*"


def test_only_the_latest_commit_counts(tmp_path):
    old = run(commit="fedcba9876543210", utc="2026-01-01T00:00:00+00:00")
    found = [
        *old,
        record("tianshou", "buffer", "theirs", "step", 300),
        record("tianshou", "buffer", "ours", "step", 100),
    ]
    assert list(table(section(found, tmp_path))) == [("tianshou", "buffer step", "ours")]


def test_runs_that_learn_have_a_row_a_kind_and_their_curves(tmp_path):
    assert "480, 200" in section(RUNS, tmp_path)
    curves = plugins.curves(RUNS)
    assert len(curves) == 6
    figure = plugins.learning(curves, tidy.about(RUNS))
    assert "cartpole_dqn ours: 1 of 1; cartpole_dqn uniform: 1 of 2" in figure.subfigs[0]._suptitle.get_text()


def test_the_figure_answers_in_its_title_and_hollows_what_is_unstable():
    found = [
        *run(),
        record("rllib", "buffer", "ours", "step", 10_000, status="unstable", utc="2026-02-03T00:00:00+00:00"),
    ]
    rows = plugins.gains(found)
    figure = plugins.draw(rows, tidy.about(found))
    figure.canvas.draw()
    assert "1.25 to 1.50 times faster" in figure.subfigs[0]._suptitle.get_text()
    hollow = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white" and len(line.get_xdata())]
    assert [list(line.get_ydata()) for line in hollow] == [[pytest.approx(2.0)]]
    assert "Hollow: unstable" in figure.subfigs[1].texts[0].get_text().replace("\n", " ")


def test_a_seed_that_is_not_solved_is_beyond_its_last_evaluation(tmp_path):
    many = [learned("ours", seed, [480] if seed < 2 else [90, 100]) for seed in range(5)]
    html = section([learned("uniform", 0, [100, 480]), learned("uniform", 1, [50, 200, 90]), *many], tmp_path)
    rows = [re.findall(r"<td.*?>(.*?)</td>", line)[2:4] for line in html.split("<tr>")]
    assert ["1 of 2", "5,000; &gt; 7,500"] in rows
    assert ["2 of 5", "&gt; 5,000 [2,500, &gt; 5,000]"] in rows


PRINTED = quoted.read(RESULTS / "quoted")


def test_the_range_of_the_paper_is_judged_by_rllibs_training_step():
    (claim,) = plugin_claims.verdicts([*run()], PRINTED)
    assert claim.verdict == "confirmed"
    assert "1.19 to 1.75" in claim.text
    assert re.match(r"rllib cartpole_dqn: 1\.25 \[.*?\], at most 1\.25 by a tree that takes no time", claim.evidence)
    for theirs, verdict in ((119, "not testable here"), (100, "refuted")):  # both ends count
        slow = [record("rllib", "cartpole_dqn", kind, "step", us) for kind, us in (("theirs", theirs), ("ours", 100))]
        assert plugin_claims.verdicts(slow, PRINTED)[0].verdict == verdict
    both = [*run(), *(record("rllib", "hopper_sac", kind, "step", 100) for kind in ("theirs", "ours"))]
    assert plugin_claims.verdicts(both, PRINTED)[0].verdict == "refuted"  # one of two lies below


def test_without_rllibs_training_step_nothing_is_judged():
    others = [one for one in run() if (one.contestant, one.options["task"]) != ("rllib", "cartpole_dqn")]
    (claim,) = plugin_claims.verdicts(others, PRINTED)
    assert claim.verdict == "not testable here"
    assert "python -m benchmarks run plugins" in claim.evidence
    assert plugin_claims.verdicts([*run()], quoted.NOTHING) == []
