"""Questions that nobody chooses, answers that nobody edits, and figures computed by hand."""

import dataclasses
import fnmatch
import itertools
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pandas
import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import questions as measuring
from benchmarks import sweep
from benchmarks.cases import Case
from dse import __main__ as cli
from dse import machines, platforms, questions
from dse.questions import Asked, numbered
from dse.records import RecordError, read_file
from dse.times.tree_times import Question, Table
from dse.times.tree_variants import Configuration
from dse.tree import answer, ranked
from dse.validation import asking, figures, predictor, runs
from dse.validation.runs import Candidate, TreeCheck
from reports.sections import validation
from tests.asked import COMMIT, asked, few, measure, run
from tests.committed import RESULTS
from tests.system.test_between_runs import visit
from tests.system.test_house import ROOT, imported
from tests.unit.test_recommend import records, write

HERE = str(platforms.fingerprint()["key"])
EARLY = "2000-01-01T00:00:00+00:00"


@pytest.fixture
def frozen(monkeypatch):
    """A checkout whose code is committed."""
    monkeypatch.setattr(asking, "frozen_commit", lambda: COMMIT)


def git(folder, *words):
    who = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder, **texts):
    for name, text in texts.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".py").write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "a commit")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    return tmp_path


# The seed


def test_the_seed_is_of_the_last_commit_that_changed_code(repository):
    code = commit(repository, dse__stats="x = 1")
    assert asking.frozen_commit(repository) == code
    records_only = commit(repository, results__here__r="data")
    assert records_only != code
    assert asking.frozen_commit(repository) == code
    (repository / "results/here/r.py").write_text("more data")  # results may differ
    assert asking.frozen_commit(repository) == code
    (repository / "dse/stats.py").write_text("x = 2")
    with pytest.raises(RecordError, match=r"commit them first, or practice with a seed of your own: .*--ask --seed 1"):
        asking.frozen_commit(repository)
    later = commit(repository)
    assert asking.frozen_commit(repository) == later != code


def test_outside_of_a_checkout_nothing_is_asked(tmp_path):
    with pytest.raises(RecordError, match="no checkout"):
        asking.frozen_commit(tmp_path)


def test_a_seed_is_its_commits_and_its_numbers():
    seeds = [asking.seed_of(commit, number) for commit in (COMMIT, "f" * 40) for number in (1, 2)]
    assert len(set(seeds)) == 4
    assert seeds[0] == asking.seed_of(COMMIT) == asking.Seed(COMMIT).value
    assert asking.Seed(COMMIT, 2).stem == "c0ffee00-2"
    assert asking.Seed(COMMIT, by_hand=7).value == 7


# Asking


def test_questions_are_half_on_the_grid_and_half_wide():
    sampled = asking.tree_questions(600, 7, 2)
    assert sampled == asking.tree_questions(600, 7, 2) != asking.tree_questions(600, 8, 2)
    grid, wide = ([one for kind, one in sampled if kind == which] for which in ("grid", "wide"))
    assert len(grid) == len(wide) == 300
    assert all(10_000 <= one.capacity <= 1_000_000 and 32 <= one.batch <= 16_384 for one in grid)
    assert all(1_000 <= one.capacity <= 50_000_000 and 1 <= one.batch <= 10_000 for one in wide)
    assert [one.batch for one in wide[:3]] == [1, 3, 31]
    assert min(one.capacity for one in wide) < 1_500
    assert max(one.capacity for one in wide) > 30_000_000
    assert sum(one.capacity < 223_607 for one in wide) == pytest.approx(150, abs=40)  # half of them, log-uniformly
    assert sum(one.capacity < 100_000 for one in grid) == pytest.approx(150, abs=40)
    assert {one.threads for _, one in sampled} == {1, 2}
    assert {one.updates_per_sample for _, one in sampled} == set(asking.RATES)


def test_loops_are_asked_of_every_workload_and_number_of_threads_each_with_its_control():
    sampled = asking.loop_questions(12, 7)
    assert sampled == asking.loop_questions(12, 7) != asking.loop_questions(12, 8)
    kinds = list(itertools.product(asking.WORKLOADS, (1, 2)))
    for control, count in ((True, 1), (False, 2)):
        there = sorted((one.workload, one.threads) for one in sampled if one.is_control == control)
        assert there == sorted(kinds * count)
    many = [one for one in asking.loop_questions(400, 7) if not one.is_control]
    assert {one.update_interval for one in many} == set(range(1, 17))
    assert min(one.batch for one in many) < 36
    assert 900 < max(one.batch for one in many) <= 1_024


def test_a_file_holds_every_candidate_as_it_was_answered(tmp_path):
    path, table = asked(tmp_path), Table(records())
    made = Asked.read(path)
    plain = made.head
    assert (plain["commit"], plain["seed"], plain["seed_from"]) == (COMMIT, asking.seed_of(COMMIT), "commit")
    assert plain["predictors"] == {side: predictor.present(side) for side in ("trees", "loops")}
    assert plain["records_commits"] == sorted({one.commit for one in records() if one.commit})
    groups, sampled = made.questions("trees"), asking.tree_questions(8, asking.seed_of(COMMIT), 2)
    for rows, (kind, question) in zip(groups, sampled, strict=True):
        shape = (kind, question.capacity, question.batch, question.updates_per_sample, question.threads)
        names = ("kind", "capacity", "batch", "updates_per_sample", "cores")
        assert {tuple(row[name] for name in names) for row in rows} == {shape}
        every = ranked(table, question)
        slowest = asking.RIVAL * every[0].seconds
        tied = [tie.configuration for tie in answer(table, question).ties]
        expected = [time for time in every if time.seconds <= slowest or time.configuration in tied]
        assert [row["told"] for row in rows] == [time.seconds for time in expected]
        choice = answer(table, question)
        assert rows[0]["fanout"] == choice.choice.configuration.fanout
        assert len(every) == sum(c.threads <= question.threads for c in table.configurations(question))
        ties = sorted(row["fanout"] for row in rows if row.get("is_tie"))
        assert ties == sorted(tie.configuration.fanout for tie in choice.ties)


def test_a_second_run_has_another_seed_and_touches_nothing(tmp_path, capsys, frozen):
    write(tmp_path, few())
    words = ["validate", "--ask", "--count", "2", "--loop-count", "1"]
    words += ["--results", str(tmp_path), "--machine", "here"]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    first = tmp_path / "here" / "questions-c0ffee00.json"
    assert f"measure with: python -m benchmarks questions {first}" in shown
    assert f"measure with: python -m benchmarks loop-questions {first}" in shown
    assert "no answer: the machine was not probed" in shown
    before = Asked.read(first)
    assert cli.main(words) == 0
    second = Asked.read(tmp_path / "here" / "questions-c0ffee00-2.json")
    assert Asked.read(first) == before
    assert (second.head["number"], second.head["seed"]) == (2, asking.seed_of(COMMIT, 2))
    assert second.rows != before.rows
    with pytest.raises(RecordError, match="never edited"):
        dataclasses.replace(second, path=first).create()
    assert Asked.read(first) == before


def test_practice_says_so_and_never_counts(tmp_path, capsys):
    write(tmp_path, few())
    words = ["validate", "--ask", "--count", "2", "--loop-count", "1", "--seed", "7", "--json"]
    assert cli.main([*words, "--results", str(tmp_path), "--machine", "here"]) == 0
    path = Path(json.loads(capsys.readouterr().out)["file"])
    plain = json.loads(path.read_text())
    assert (plain["seed"], plain["seed_from"]) == (7, "hand")
    assert path.stem.endswith("-seed7")
    measure(path)
    assert run(path).void("trees") == "seed chosen by hand"
    found = figures.of_machine(tmp_path, "here")
    assert found.trees == {}
    assert found.voided[0].figures["questions"] == 2


# What counts


@pytest.mark.parametrize(
    ("changes", "utc", "reason"),
    [
        ({}, "2040-01-01T00:00:00+00:00", ""),
        ({}, EARLY, "measured before the answers were written"),
        ({"seed": 3}, "2040-01-01T00:00:00+00:00", "the seed is not its commit's"),
        ({"commit": "d" * 40}, "2040-01-01T00:00:00+00:00", "the seed is not its commit's"),
        ({"predictors": {"trees": "another", "loops": "another"}}, "2040-01-01T00:00:00+00:00", "predictor changed"),
        ({"answered_afterwards_by": "abcdef012345"}, "2040-01-01T00:00:00+00:00", "by the code of abcdef01"),
    ],
)
def test_a_file_counts_or_is_voided_with_a_reason_and_its_figures(tmp_path, capsys, changes, utc, reason):
    path = asked(tmp_path, **changes)
    measure(path, utc=utc)
    found = figures.of_machine(tmp_path, "here")
    assert reason in run(path).void("trees")
    assert bool(reason) == bool(found.voided)
    assert bool(found.trees) == (not reason)
    assert (found.voided[0].figures if reason else found.trees)["inside"] == (found_all := _candidates(path), found_all)
    assert cli.main(["validate", "--results", str(tmp_path), "--machine", "here"]) == 0
    shown = capsys.readouterr().out
    assert reason in shown.replace("\n    ", " ")
    assert ("voided:" in shown) == bool(reason)


def _candidates(path):
    return len(Asked.read(path).rows)


def test_the_headline_pools_the_files_of_the_present_predictor_alone(tmp_path):
    first, second = asked(tmp_path, 4), asked(tmp_path, 6, number=2)
    third = asked(tmp_path, 10, number=3, predictors={"trees": "another", "loops": predictor.present("loops")})
    for path, factor in ((first, 1.0), (second, 1.0), (third, 100.0)):
        measure(path, lambda at, which, factor=factor: factor)
    found = figures.of_machine(tmp_path, "here")
    assert found.trees["questions"] == 10
    assert found.trees["inside"] == (_candidates(first) + _candidates(second),) * 2
    assert [(one.run.path, one.side, one.figures["inside"][0]) for one in found.voided] == [(third, "trees", 0)]
    assert [run.path for run in found.runs["trees"]] == [first, second]
    alone = figures.headline([run(first)], "here")
    assert alone.trees["questions"] == 4


def test_the_commit_that_changed_the_predictor_is_named(repository, monkeypatch):
    monkeypatch.setattr(predictor, "ROOT", repository)
    predictor.changed_at.cache_clear()
    first = commit(repository, dse__stats="x = 1", impls__levels="y = 1")
    known = {side: predictor.predictor_id(side) for side in ("trees", "loops")}
    commit(repository, dse__stats='"""Words."""\nx = 1  # a comment', dse__cli__text="z = 1")
    assert predictor.changed_at("trees", first, known["trees"]) == ""
    changed = commit(repository, dse__tree="z = 1")
    predictor.changed_at.cache_clear()
    assert predictor.changed_at("trees", first, known["trees"]) == changed[:8]
    assert predictor.changed_at("loops", first, known["loops"]) == ""
    (repository / "dse" / "tree.py").unlink()
    commit(repository, dse__cli__text="z = 2")
    predictor.changed_at.cache_clear()
    assert predictor.changed_at("trees", first, known["trees"]) == ""  # it was taken back
    again = commit(repository, dse__tree="z = 2")
    predictor.changed_at.cache_clear()
    assert predictor.changed_at("trees", first, known["trees"]) == again[:8]
    predictor.changed_at.cache_clear()


def test_an_id_is_blind_to_words_and_sees_code():
    def named(text, side="trees", path="dse/stats.py"):
        return predictor.predictor_id(side, {path: text})

    code = 'def f(x):\n    """Doubles."""\n    return 2 * x\n'
    assert named(code) == named("# words\ndef f(x):\n    return 2*x")
    assert named(code) != named(code.replace("2 * x", "3 * x"))
    assert named(code) != named(code.replace("return 2", "return '2'"))
    assert named(code, path="dse/stats.py") != named(code, path="dse/drift.py")
    files = {"dse/stats.py": code, "dse/drift.py": "x = 1"}
    assert predictor.predictor_id("trees", files) == predictor.predictor_id("trees", dict(reversed(files.items())))
    assert named(code, path="dse/cli/text.py") == named("", path="dse/cli/depth.py")  # nobody's code
    assert named(code, "trees", "dse/mapping/answer.py") == named("", "trees", "dse/mapping/answer.py")
    assert named(code, "loops", "dse/mapping/answer.py") != named("", "loops", "dse/mapping/answer.py")


@pytest.mark.parametrize("side", predictor.FILES)
def test_no_code_of_answers_escapes_its_id(side):
    seen, todo = set(), [ROOT / predictor.ROOTS[side]]
    while todo:
        path = todo.pop()
        if path not in seen and path.is_relative_to(ROOT / "dse"):
            seen.add(path)
            todo += [file for name in imported(path) if (file := _file_of(name))]
    code = {path.relative_to(ROOT).as_posix() for path in seen}
    assert len(code) > 10
    assert [
        one for one in sorted(code) if not any(fnmatch.fnmatch(one, named) for named in predictor.FILES[side])
    ] == []


def _file_of(name):
    """The file of a module, or of the module that a name is out of; None for a package."""
    modules = (ROOT / one.replace(".", "/") for one in (name, name.rpartition(".")[0]))
    return next((file for one in modules if (file := one.with_suffix(".py")).is_file()), None)


# Figures


def check(rows, ties=()):
    """A question whose candidates are (predicted, low, high, measured)."""
    candidates = [
        Candidate(Configuration("numba" if at else "flat", at + 2, 1), predicted, low, high, "measured", measured)
        for at, (predicted, low, high, measured) in enumerate(rows)
    ]
    return TreeCheck(Question(1_000, 10), tuple(candidates), tuple(ties), len(rows) == 1)


CHECKS = [
    check([(1.0, 0.9, 1.1, 1.1), (1.2, 1.1, 1.3, 1.0), (2.0, 1.9, 2.1, 2.5)], ties=[1]),
    check([(1.0, 0.9, 1.1, 1.0), (1.2, 1.1, 1.3, 1.31), (2.0, 1.9, 2.1, None)], ties=[1]),
    check([(1.0, 0.9, 1.1, 1.5), (1.2, 1.1, 1.3, 1.2), (2.0, 1.9, 2.1, 1.0)]),
]


def test_coverage_regret_and_ties_are_those_computed_by_hand():
    found = figures.tree_figures(CHECKS)
    assert (found["questions"], found["candidates"], found["without_time"]) == (3, 8, 1)
    assert found["inside"] == (3, 8)  # 1.1 and 1.0 of the choices, and 1.2: ends belong to an interval
    assert found["inside_of_choices"] == (2, 3)
    assert found["inside_by_implementation"] == {"flat": (2, 3), "numba": (1, 5)}
    assert found["inside_by_basis"] == {"measured": (3, 8)}
    assert (found["median_regret"], found["worst_regret"]) == (pytest.approx(0.1), pytest.approx(0.5))
    assert (found["best_is_choice"], found["best_is_choice_or_tie"]) == ((1, 3), (2, 3))
    assert figures.tree_figures([]) == {}


def test_what_was_measured_is_compared_by_candidate(tmp_path):
    path = asked(tmp_path, 3)
    measure(path, lambda at, which: (1.0, 3.0, 0.25)[at] * (1 + which))
    found, groups = run(path).trees, Asked.read(path).questions("trees")
    for at, (one, rows) in enumerate(zip(found, groups, strict=True)):
        for which, (candidate, row) in enumerate(zip(one.candidates, rows, strict=True)):
            assert candidate.measured == pytest.approx(row["told"] * (1.0, 3.0, 0.25)[at] * (1 + which))
            assert (candidate.configuration.fanout, candidate.seconds) == (row["fanout"], row["told"])


def test_a_table_is_read_as_it_was_written_by_ourselves_and_by_pandas(tmp_path):
    path = asked(tmp_path, 3)
    measure(path, lambda at, which: None if at == which == 0 else 1 / 3)
    made = Asked.read(path)
    made.save()
    assert Asked.read(path) == made
    frame = pandas.read_csv(made.table)
    for name in ("told", "low", "high", "capacity", "fanout"):
        assert frame[name].tolist() == pytest.approx([row[name] for row in made.rows], rel=1e-15)
    assert frame["measured"].isna().tolist() == [True, *[False] * (len(frame) - 1)]


def test_a_row_is_filled_by_the_records_of_its_candidate():
    one, other = (dataclasses.replace(next(records()), utc=utc, commit="a" * 40) for utc in ("2040", "2030"))
    row = {"updates_per_sample": 0.5}
    questions.fill(row, [one, dataclasses.replace(other, status="unstable")], measuring._step)
    step = one.seconds + 0.5 * other.seconds
    assert row == {"updates_per_sample": 0.5, "measured": step, "status": "unstable", "utc": "2030", "commit": "a" * 8}
    nothing = dataclasses.replace(other, status="failed", median_seconds=None, reason="it stood")
    questions.fill(row, [one, nothing], measuring._step)
    assert (row["status"], row["failure"], "measured" in row) == ("failed", "it stood", False)
    questions.fill(row, [one, other], measuring._step)
    assert (row["status"], row["measured"], "failure" in row) == ("ok", step, False)


def test_questions_that_wait_and_candidates_without_a_time_are_counted_and_never_dropped_in_silence(tmp_path, capsys):
    path = asked(tmp_path, 4)
    measure(path, lambda at, which: None if (at, which) in [(0, 1), (1, 0)] else 1.0)
    made = Asked.read(path)
    made.rows[-1].pop("status")
    made.save()
    found = figures.of_machine(tmp_path, "here")
    assert found.trees["questions"] == 2
    assert found.trees["without_time"] == 1
    assert [(run.path, side, left) for run, side, left in found.waiting] == [(path, "trees", 2)]
    assert cli.main(["validate", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "2 questions about trees not measured" in shown
    assert "1 candidate without a time" in shown
    assert cli.main(["validate", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["not_measured"] == [{"file": str(path), "side": "trees", "questions": 2}]


def test_text_and_page_have_figures_and_the_voided(tmp_path, capsys):
    measure(asked(tmp_path, 4))
    measure(asked(tmp_path, 2, number=2, seed_from="hand"), lambda at, which: 1 + which)
    assert cli.main(["validate", "--results", str(tmp_path), "--machine", "here"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("trees: 4 questions, ")
    assert "questions-c0ffee00-2.json, trees: seed chosen by hand" in shown.partition("\nvoided:\n")[2]
    page = validation.answers(tmp_path, "here")
    found = figures.of_machine(tmp_path, "here").trees
    assert f"4 questions to predictor {predictor.present('trees')}, {found['candidates']} candidates" in page
    assert f"{found['inside'][0]} of {found['inside'][1]} (100 %) candidates lie in" in page
    for part in ("seed chosen by hand", "questions-c0ffee00-2.json"):
        assert f">{part}</td>" in page


def test_drift_is_told_or_said_to_be_unknown(tmp_path):
    assert figures.drift([], None) == figures.UNKNOWN_DRIFT
    (tmp_path / "here").mkdir()
    visits = [*visit((1, 1, 1), 0), *visit((1.3, 1.3, 1.3), 120, "questions")]
    lines = [dataclasses.replace(one, machine={"key": "here"}).to_json() for one in visits]
    (tmp_path / "here" / "quick.jsonl").write_text("\n".join(lines) + "\n")
    run = SimpleNamespace(utc="2026-01-01T01:00:00+00:00", head={"machine": "here"})
    assert "1.30x the time" in figures.drift([run], tmp_path)
    elsewhere = SimpleNamespace(utc=run.utc, head={"machine": "there"})
    assert figures.drift([elsewhere], tmp_path) == figures.UNKNOWN_DRIFT


@pytest.mark.parametrize(
    ("head", "table"),
    [("", "side"), ("[1]", "side"), ("{}", None), ("{}", "side\ntrees\n"), ("{}", "side,question\ntrees,{\n")],
)
def test_a_file_that_holds_no_answers_is_refused(tmp_path, capsys, head, table):
    path = tmp_path / "questions-a.json"
    path.write_text(head)
    if table:
        path.with_suffix(".csv").write_text(table)
    with pytest.raises(RecordError, match="no file of answers"):
        runs.read(path)
    assert benchmarks.main(["questions", str(path)]) == 2
    assert "write one with: python -m dse validate --ask" in capsys.readouterr().err


def test_what_is_shipped_has_the_figures_that_were_published_of_it():
    """Of the 24 committed questions, the 44 answers of two seeds, and six loops: intervals that hold, error, regret."""
    found = figures.of_machine(RESULTS, "d7dae63b89")
    trees, loops = (
        next(one for one in found.voided if one.run.path.stem == stem)
        for stem in ("questions-b07aa8ec", "questions-fde1cd63")
    )
    assert trees.figures["inside"] == (346, 555)
    assert trees.figures["inside_by_implementation"]["numba"] == (211, 411)
    assert (trees.figures["inside_of_choices"], trees.figures["best_is_choice"]) == ((17, 24), (10, 24))
    assert trees.figures["best_is_choice_or_tie"] == (17, 24)
    assert trees.figures["median_regret"] == pytest.approx(0.022, abs=5e-4)
    assert trees.figures["worst_regret"] == pytest.approx(0.115, abs=5e-4)
    assert loops.figures["median_error"] == pytest.approx(0.266, abs=5e-4)
    assert all("afterwards by the code of" in one.reason for one in (trees, loops))
    files = [RESULTS / "8fb834d50a" / f"{stem}.json" for stem in ("questions-seed1", "questions-seed1555233615")]
    voided = figures.headline([runs.read(path) for path in files], "8fb834d50a", RESULTS).voided
    later = {one.run.path.stem: one for one in voided}
    assert later["questions-seed1555233615"].figures["inside_of_choices"] == (39, 44)
    assert {one.reason for one in later.values()} == {"seed chosen by hand"}


# Evidence


def test_no_record_of_a_question_is_ever_evidence(tmp_path):
    path = asked(tmp_path)
    before = [answer(Table(machines.read(tmp_path, "here", machines.SWEEP)[0]), q) for _, q in _sampled()]
    measure(path, lambda at, which: 1e-3)
    for machine in ("here", None):
        kept, _ = machines.read(tmp_path, machine, machines.SWEEP)
        assert {one.primitive for one in kept} == {"sum_tree"}
        assert [answer(Table(kept), q).choice for _, q in _sampled()] == [one.choice for one in before]


def _sampled():
    return asking.tree_questions(4, 3, 2)


# Measuring


def measurable(folder, count=2):
    """A file of small questions of this machine."""
    found = few({"key": HERE})
    write(folder, [])
    table, seed = Table(found), asking.Seed(COMMIT)
    path = folder / HERE / f"questions-{seed.stem}.json"
    asked = [("grid", Question(2_000, 3)), ("wide", Question(5_000, 40, 0.5)), ("grid", Question(1_200, 8))]
    rows = numbered("trees", [asking.answer_tree(table, *one) for one in asked[:count]])
    dataclasses.replace(asking.ask(found, path, seed, (0, 0)), rows=rows).create()
    return path


def words(path, *more):
    return ["questions", *([str(path)] if path else []), "--budget", "0.01", "--json", *more]


def test_every_candidate_is_measured_and_a_killed_run_goes_on(tmp_path, capsys):
    path = measurable(tmp_path)
    assert benchmarks.main(words(None, "--results", str(tmp_path))) == 0  # the newest file of this machine
    told = json.loads(capsys.readouterr().out)
    assert told["cells"] == 2 * 2 * 2  # questions, candidates, draw and update
    assert sum(told["measured_by_status"].values()) == 8
    assert read_file(path.with_suffix(".jsonl")) == []  # where sentinels would be
    assert len(run(path).trees) == 2
    assert run(path).void("trees") == ""
    assert run(path).unmeasured("trees") == 0

    made = Asked.read(path)
    assert all(row["status"] in ("ok", "unstable") and row["measured"] > 0 for row in made.rows)
    for row in made.questions("trees")[1]:
        del row["status"]  # killed before it was written
    made.save()
    assert run(path).unmeasured("trees") == 1
    assert benchmarks.main(words(None, "--results", str(tmp_path))) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["cells"], told["found_done"]) == (8, 4)
    assert sum(told["measured_by_status"].values()) == 4
    assert Asked.read(path).questions("trees")[0] == made.questions("trees")[0]
    assert run(path).unmeasured("trees") == 0

    assert benchmarks.main(words(None, "--results", str(tmp_path))) == 2
    assert "no file of questions that is not measured to the end; write one with" in capsys.readouterr().err
    assert benchmarks.main(words(path)) == 0
    assert json.loads(capsys.readouterr().out)["found_done"] == 8


def test_what_any_commit_measured_is_never_measured_again(tmp_path, capsys, monkeypatch):
    path = measurable(tmp_path, 1)
    assert benchmarks.main(words(path)) == 0
    monkeypatch.setattr(platforms, "commit", lambda folder: ("d" * 40, False))
    assert benchmarks.main(words(path)) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["found_done"] == 4


def test_what_was_measured_before_a_run_ended_is_kept(tmp_path, monkeypatch):
    path, begun = measurable(tmp_path), []

    def ends(*given):
        begun.append(given)
        if len(begun) > 2:
            raise KeyboardInterrupt
        return sweep.measured(*given)

    monkeypatch.setattr(measuring, "measured", ends)
    with pytest.raises(KeyboardInterrupt):
        measuring.measure(measuring.read(path), 0.01, bar=False)
    done = [[questions.is_measured(row) for row in rows] for rows in Asked.read(path).questions("trees")]
    assert sorted(map(set, done), key=str) == [{False}, {True}]  # a draw and an update of each candidate of one


def test_a_candidate_that_cannot_be_made_keeps_the_reason(tmp_path, capsys):
    path = measurable(tmp_path, 1)
    made = Asked.read(path)
    made.rows[1]["options"] = {"layout": "none_such"}
    made.save()
    assert benchmarks.main(words(path)) == 0
    assert json.loads(capsys.readouterr().out)["measured_by_status"]["skipped"] == 2
    (skipped,) = (row for row in Asked.read(path).rows if row["status"] == "skipped")
    assert "none_such" in skipped["failure"]
    assert figures.tree_figures(run(path).trees)["without_time"] == 1


def test_questions_of_another_machine_are_not_measured_here(tmp_path, capsys):
    path = asked(tmp_path, 1)
    assert benchmarks.main(words(path)) == 2
    assert f"asked of machine here, and this is {HERE}" in capsys.readouterr().err
    assert not path.with_suffix(".jsonl").exists()


def test_a_group_that_would_not_fit_the_memory_is_split():
    cells = [Case("numba", "draw", 50_000_000, 1, fanout=fanout) for fanout in range(2, 25)]
    pieces = list(measuring.fitting(cells, 6e9))
    assert sorted(len(piece) for piece in pieces) == [4, 4, 5, 5, 5]
    assert sorted(cell.fanout for piece in pieces for cell in piece) == list(range(2, 25))
    assert list(measuring.fitting(cells[:1], 1.0)) == [cells[:1]]
    small = [Case("numba", "draw", 1_000, 1, fanout=fanout) for fanout in range(2, 25)]
    assert list(measuring.fitting(small, 6e9)) == [small]
