"""The section, figures and claims about whole replay buffers, from records made up so that every answer is known."""

import dataclasses
import re
import shutil

import pytest

from dse.records import Writer
from reports import readme_tables
from reports.claims import lock_claims, quoted
from reports.sections import replay, replay_cells, replay_figures
from tests.committed import RESULTS
from tests.made import alter
from tests.page.test_peer_reports import rows
from tests.page_parts import made_up, page_material

KEY, CORES, RUN, N = "made-up", 4, "0123456789abcdef", 1_000_000
MACHINE = {"key": KEY, "cpu": "Abacus 9000", "cores": CORES, "caches": {}, "packages": {"numpy": "2", "cpprb": "11"}}
QUOTED = RESULTS / "quoted"
DEFAULT = "two_lock_checked"
OPERATIONS = {  # microseconds of insert(1), sample(256), update(256)
    DEFAULT: (4, 20, 8),
    "global": (4, 30, 8),
    "none": (3, 18, 7),
    "prioritized_buffer": (16, 50, 30),
    "cpprb": (16, 300, 4),
    "tianshou": (30, 310, 300),
}
PARTS = {
    "sample": {"call": 5, "tree": 9, "gather": 15, "whole": 20},
    "update": {"call": 2, "priorities": 3, "whole": 8},
    "insert": {"call": 3, "whole": 4},
}
PAIRS = {  # microseconds of one process, of two, of two apart
    DEFAULT: (100, 60, 48),
    "global": (100, 90, 45),
    "none": (100, 50, 48),
    "cpprb_mp": (400, 300, 200),
}
STEPS = {"two_lock_lazy": 20, DEFAULT: 25, "global": 60, "none": 10, "rwlock": 45}  # us a gradient step
AGAIN = 1.01


def record(part, name, us, again=False, **fields):
    """A time of so many microseconds a call, its samples within half a percent."""
    is_compiled = name in STEPS
    usual = {
        "primitive": f"replay_{part}{'_again' * again}",
        "contestant": "replay" if is_compiled else name,
        "op": "run",
        "capacity": N,
        "batch": 256,
        "calls_per_sample": 10,
        "machine": MACHINE,
        "commit": RUN,
        "dirty": False,
        "command": "python -m benchmarks run replay",
    }
    options = ({"strategy": name} if is_compiled else {}) | fields.pop("options", {})
    return made_up(1e-6 * us, **usual | fields, options=options)


def operations():
    for name, times in OPERATIONS.items():
        for (op, batch), us in zip(replay_cells.SUMMED, times, strict=True):
            yield record("operations", name, us, op=op, batch=batch)
            if name == DEFAULT:
                yield record("operations", name, AGAIN * us, again=True, op=op, batch=batch)
    for op, steps in PARTS.items():
        for until, us in steps.items():
            yield record("parts", DEFAULT, us, op=op, options={"until": until})
    for op, batch in ((op, batch) for op in ("sample", "update") for batch in (1, 1_024)):
        yield record("batches", DEFAULT, 5 + batch / 50, op=op, batch=batch)
        yield record("batches", "prioritized_buffer", 20 + batch / 40, op=op, batch=batch)


def rollouts():
    for count in (64, 256):
        rest = {"workload": "hopper_sac", "rollouts": count}
        for name, us in ((DEFAULT, 30), ("cpprb", 370)):
            yield record("memr", name, us * count / 64, op="rollouts", batch=count)
        for part, us in (("env", 70), ("forward", 100), ("learner", 800)):
            if (part, count) != ("env", 256):
                yield record("memr", part, us, op="step", options=rest)


def pairs():
    for contestant, count in ((DEFAULT, 300), ("cpprb_mp", 7)):
        yield record("pairs", contestant, 50, op="balance insert", batch=count, options={"work": "none"})
    for work in ("none", "computing"):
        options = {"work": work, "work_seconds": 0.0 if work == "none" else 200e-6}
        for name, times in PAIRS.items():
            for op, us in zip(("one", "two", "apart"), times, strict=True):
                more = 0 if work == "none" else 400
                yield record("pairs", name, us + more, op=op, threads=1 + (op != "one"), options=options)


def runs(part="threads", steps=None, again=AGAIN):
    for members in (2, 4, 6):
        options = {"work_seconds": 0.0, "actors": members - 1, "learners": 1}
        over = f"oversubscribed: {members} on {CORES} cores" if members > CORES else None
        how = {"batch": 100, "threads": members, "options": options, "reason": over}
        for name, us in (steps or STEPS).items():
            if part == "threads" or name != "rwlock":
                yield record(part, name, us, **how)
        yield record(part, DEFAULT, again * (steps or STEPS)[DEFAULT], again=True, **how)


def flushes():
    for count in (1, 16):
        for beside, op in ((beside, op) for beside in ("nothing", "learner") for op in ("insert", "cache")):
            yield record("flush", DEFAULT, 3 + count / 10, op=op, batch=count, options={"beside": beside})
        yield record("flush", DEFAULT, 30, op="learn", options={"beside": "cache", "rows": count})
    reason = {"status": "skipped", "reason": "rwlock is for <threads>"}
    absent = {"samples_seconds": (), "median_seconds": None, "low_seconds": None, "high_seconds": None}
    yield record("flush", "rwlock", 1, op="insert", batch=1, options={"beside": "nothing"}, **reason, **absent)


def everything():
    return [*operations(), *rollouts(), *pairs(), *runs(), *runs("processes"), *flushes()]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    shutil.copytree(QUOTED, folder / "quoted")
    return folder


@pytest.fixture(scope="module")
def html(results):
    return section(everything(), results)


def section(found, results):
    return replay.section(page_material(found, results)).replace("&#x27;", "'")


def table(html, heading):
    """The texts of each row by its first cell, of the first table that has this heading."""
    return {re.sub("<.*", "", line[0][1]): [text for _, text in line] for line in rows(html, heading)}


def test_the_first_sentence_names_the_factors_that_follow_from_the_records(html):
    first = html.partition("</p>")[0]
    assert "takes 32.0 [" in first
    assert re.search(r"it is 10\.0x \[9\.\d+x, 10\.\dx\] as fast as the best other library, cpprb,", first)
    assert re.search(r"3\.00x \[2\.9\dx, 3\.0\dx\] as fast as the plain buffer in Python, PrioritizedBuffer", first)


def test_the_table_is_sorted_with_ours_bold_the_fastest_marked_and_losses_told(html):
    shown = rows(html, "insert(1)")
    assert [line[0][1] for line in shown] == [
        "none (no lock: a bound, not right)",
        DEFAULT,
        "global",
        "prioritized_buffer",
        "cpprb",
        "tianshou",
    ]
    by_name = {line[0][1]: line for line in shown}
    assert by_name["cpprb"][1][1] == "cpprb 11"
    assert by_name["tianshou"][-1][1].startswith("20.0x [")
    assert "best" in by_name["cpprb"][4][0]
    assert all("ours" in by_name[name][2][0] for name in (DEFAULT, "prioritized_buffer"))
    assert "ours" not in by_name["cpprb"][2][0]
    assert f"Another library is faster than {DEFAULT} in update(256), 8.00 us: cpprb 4.00." in html
    assert f"Another buffer of ours is faster than {DEFAULT} in insert(1), 4.00 us: none 3.00" in html
    assert "noise floor 1.0% over 3 A/A pairs" in html


def test_what_the_noise_explains_is_a_tie(results):
    close = [
        record("operations", "cpprb", 7.95, op="update") if (one.contestant, one.op) == ("cpprb", "update") else one
        for one in everything()
    ]
    assert "update(256), 8.00 us: cpprb 7.95 (a tie within the noise)" in section(close, results)


def test_each_step_of_an_operation_adds_what_it_is_longer(html):
    shares = {(op, step): (us.partition(" ")[0], share) for op, step, us, share in cells(html, "share")}
    assert shares["sample(256)", "tree"] == ("4.00", "20%")
    assert shares["sample(256)", "gather"] == ("6.00", "30%")
    assert shares["sample(256)", "weights"] == ("5.00", "25%")
    assert shares["update(256)", "tree"] == ("5.00", "62%")


def cells(html, heading):
    return [[text for _, text in line] for line in rows(html, heading)]


def test_rollouts_have_their_share_of_a_step_all_of_whose_parts_were_timed(html):
    shown = table(html, "M = 64")
    assert list(shown) == [DEFAULT, "cpprb"]
    assert re.search(r"^30\.0<.*>3\.0% \[[23]\.\d%, 3\.\d%\]<", shown[DEFAULT][1])
    assert re.search(r"^370.0<.*>27\.6% \[", shown["cpprb"][1])
    assert (shown[DEFAULT][2], shown["cpprb"][2]) == ("120.0", "1,480"), "no environment was timed with them"


def test_two_processes_stand_beside_one_and_beside_their_bound(html):
    assert re.search(
        rf"with no other work: the best right strategy is {DEFAULT} with 16,667 \[.*?\] pairs of operations per second "
        r"\(measured\): 1\.67x \[.*?\] the rate of one process, 1\.50x \[.*?\] the rate of global, 0\.83x \[.*?\] the "
        r"rate of none, 80% \[.*?\] of the bound that cores set",
        html,
    )
    assert "200 us of computing after each operation" in html
    shown = table(html, "rows an insertion")
    assert [name.partition(" ")[0] for name in shown] == ["none", DEFAULT, "global", "cpprb_mp"]
    assert shown[DEFAULT][1] == "300"
    assert shown["cpprb_mp"][1] == "7"
    assert shown["global"][7].startswith("50% [")
    assert shown["global"][-2:] != ["", ""] == shown["cpprb_mp"][-2:]


def test_strategies_whose_intervals_overlap_tie(results):
    found = [one for one in everything() if (one.op, replay_cells.label(one)) != ("two", "global")]
    options = {"work": "none", "work_seconds": 0.0}
    found.append(record("pairs", "global", 60.1, op="two", threads=2, options=options))
    assert f"the best right strategy is {DEFAULT} (a tie with global) with 16,667 [" in section(found, results)


def test_more_members_than_cores_are_labelled_in_tables_and_in_the_figure(html, results):
    for mode in ("threads", "processes"):
        assert f"<th>4 {mode}</th><th>6 {mode}, oversubscribed</th>" in html
    assert ">6 threads, oversubscribed</td>" in html
    (chart,) = (chart for chart in replay_figures.CHARTS if chart.name == "replay_locks")
    retrieved = record("threads", "global", 99, op="retrieve", threads=4, options={"work_seconds": 0.0})
    asked = page_material([*everything(), retrieved], results)
    rows = chart.rows(asked)
    assert set(rows["op"]) == {"run"}
    figure = chart.draw(rows, asked.about)
    drawn = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title().partition(",")[0] for axes in drawn] == ["threads", "processes"]
    for axes in drawn:
        assert [text.get_text() for text in axes.texts] == [f"oversubscribed: more than the {CORES} cores"]
        dashed = {line.get_label() for line in axes.lines if line.get_linestyle() == "--"}
        assert dashed == {"none", "two_lock_lazy"}


def test_each_factor_has_its_interval_and_where_that_lies(html):
    shown = {(line[0], line[1]): line for line in cells(html, "2x to 4.4x")}
    over, where, behind, beside = shown["two_lock_lazy", "2 threads"][3:]
    assert re.fullmatch(r"3\.00x \[2\.9\dx, 3\.0\dx\]", over)
    assert where == "within it"
    assert re.fullmatch(r"2\.00x \[1\.9\dx, 2\.0\dx\]", behind)
    assert beside == "within it"
    assert "(Fig. 10). Confirmed: 3.00x, interval " in html


@pytest.mark.parametrize(
    ("lazy", "verdict"), [(20, "confirmed"), (58, "refuted"), (10, "refuted"), (30, "not testable here")]
)
def test_the_claim_about_one_global_lock_is_judged_by_threads_with_a_core_each(lazy, verdict):
    printed = quoted.read(QUOTED)
    over, *_ = lock_claims.verdicts(list(runs(steps=STEPS | {"two_lock_lazy": lazy})), printed)
    assert over.verdict == verdict
    # Whatever happens where threads are more than cores, the verdict stays.
    kept = [one for one in runs(steps=STEPS | {"two_lock_lazy": lazy}) if one.threads <= CORES]
    others = [one for one in runs(steps=STEPS | {"two_lock_lazy": 59}) if one.threads > CORES]
    assert lock_claims.verdicts([*kept, *others], printed)[0].verdict == verdict


def test_without_twins_or_strategies_or_printed_numbers_nothing_is_judged():
    printed = quoted.read(QUOTED)
    alone = [one for one in runs() if not one.primitive.endswith("_again")]
    without = [one for one in runs() if one.options["strategy"] != "none"]
    assert {claim.verdict for claim in lock_claims.verdicts(alone, printed)} == {"not testable here"}
    judged = [claim.verdict for claim in lock_claims.verdicts(without, printed)]
    assert judged == ["confirmed", "not testable here", "not testable here"]
    assert "benchmarks run replay" in lock_claims.verdicts([], printed)[0].evidence
    assert lock_claims.verdicts(alone) == []


def test_superseded_samples_are_told_and_runs_that_retrieve_priorities_are_not_judged():
    printed = quoted.read(QUOTED)
    told = [
        record("threads", name, 900, op="retrieve", threads=2, options=how, metrics={"superseded": share})
        for name in STEPS
        for how, share in (({"work_seconds": 0.0, "learners": count}, 0.02 * (count > 1)) for count in (1, 2))
    ]
    *before, without = lock_claims.verdicts([*runs()], printed)
    *judged, late = lock_claims.verdicts([*runs(), *told], printed)
    assert judged == before
    assert "benchmarks run replay" in without.evidence
    assert "2.00% to 2.00% of samples" in late.evidence


def test_absent_cells_are_listed_with_the_reason(html):
    (absent,) = cells(html, "reason")
    assert absent == ["flush", "rwlock", "skipped", "rwlock is for &lt;threads&gt;", "1"]


def lacking():
    found = everything()
    yield from ([one for one in found if one.primitive.removesuffix("_again") != name] for name in primitives(found))
    yield from ([one for one in found if replay_cells.strategy(one) != name] for name in (*OPERATIONS, *PAIRS))
    yield from ([one for one in found if one.op != op] for op in {one.op for one in found})
    yield from (found[first::3] for first in range(3))
    yield from ([one] for one in found if one.contestant in ("cpprb", "cpprb_mp"))


def primitives(found):
    return sorted({one.primitive.removesuffix("_again") for one in found})


def test_missing_cells_leave_out_what_rests_on_them_and_no_more(results):
    for found in lacking():
        asked = page_material(found, results)
        html = replay.section(asked)
        assert "nan" not in html.replace("nanoseconds", "")
        for chart in replay_figures.CHARTS:
            chart.rows(asked)
    found = [one for one in everything() if not one.primitive.startswith("replay_pairs")]
    assert (
        "Left out, pairs: not measured on this machine; measure with: python -m benchmarks run replay --only pairs"
        in (section(found, results))
    )


def test_only_the_latest_commit_and_one_n_are_compared(results):
    later = {"commit": "another", "utc": "2026-01-03T00:00:00+00:00"}
    older = [dataclasses.replace(one, median_seconds=None) for one in operations()]
    newer = [alter(one, **later) for one in operations()]
    small = [alter(one, **later, capacity=1_000) for one in operations()]
    gone = [dataclasses.replace(one, options=one.options | {"strategy": "gone"}) for one in newer]
    html = section([*older, *newer, *small, *gone], results)
    assert "gone" not in html
    assert "10.0x [" in html
    assert f"N = {N:,}" in html
    of = replay_cells.part([*older, *newer, *small, *gone], "operations")
    assert of.left_out == 3 * len(of.run)


def test_the_readme_has_the_factors_or_says_how_to_measure_them(tmp_path):
    with Writer(tmp_path / KEY / "quick.jsonl") as writer:
        writer.append(dataclasses.replace(next(runs()), primitive="sum_tree"))
    assert "Not on record yet" in readme_tables.replay(tmp_path)
    with Writer(tmp_path / KEY / "replay.jsonl") as writer:
        for one in operations():
            writer.append(one)
    text = readme_tables.replay(tmp_path)
    assert re.search(r"it is 10\.0x \[.*\] as fast as the best other library, cpprb, and 3\.00x", text)
    assert re.search(r"\| cpprb \| 16\.0 \|  \| 300\.0 \| 4\.00 \| 320\.0 \[.*\] \| 10\.0x", text)
    assert f"| **{DEFAULT}** | 4.00 |" in text
