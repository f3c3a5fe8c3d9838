"""Is one commit slower than another: verdicts, exit codes, records as input; commits simulated, and real ones."""

import dataclasses
import itertools
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import compare
from benchmarks.cases import Case
from benchmarks.compare import BROKEN, INCONCLUSIVE, OK, REGRESSION, BrokenCommitError, Cell, Comparison, Installed
from benchmarks.workers import Untimed, Worker, WorkerClock, WorkerError
from dse import platforms
from dse.records import Writer
from tests.made import make_timed
from tests.repositories import commit, copy_checkout, git

USUAL = {"primitive": "sum_tree", "contestant": "numba", "op": "draw", "capacity": 10_000, "batch": 256}
USUAL |= {"command": "sweep", "machine": {"key": "made-up"}}
NOISE = 0.04  # standard deviation of a process's times, as a fraction
SPIKES = 0.1  # of the samples take half as long again


class Simulated:
    """A worker whose times are random: ``slow`` of them are those of the cells it names, times two."""

    def __init__(self, rng, slow=(), untimed=()):
        self._rng, self._slow, self._untimed = rng, slow, untimed

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def prepare(self, case, seed):
        if case.contestant in self._untimed:
            return Untimed("failed", WRONG)
        seconds = 1e-5 * (2 if case.op in self._slow else 1) * np.exp(self._rng.normal(0, NOISE))
        return Clock(self._rng, seconds)

    def ask(self, what):
        assert what == "forget"


class Clock(WorkerClock):
    def __init__(self, rng, seconds):
        self.rng, self.seconds = rng, seconds

    def sample(self):
        return self.seconds * np.exp(self.rng.normal(0, NOISE)) * (1.5 if self.rng.random() < SPIKES else 1)


def simulate(monkeypatch, seed=0, **new):
    """Two commits of which NEW is as ``new`` says."""
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(compare, "resolve", str)
    monkeypatch.setattr(compare, "install", lambda name: Installed(name, name * 8, Path(name)))
    monkeypatch.setattr(compare, "_worker", lambda side: Simulated(rng, **(new if side.name == "new" else {})))


def run(capsys, *arguments):
    code = command.main(["compare", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_identical_commits_pass_in_19_of_20_runs(monkeypatch, capsys):
    codes = []
    for seed in range(20):
        simulate(monkeypatch, seed)
        codes.append(run(capsys, "old", "new", "--budget", "5")[0])
    assert codes.count(OK) >= 19


def test_a_slower_commit_is_flagged_in_the_right_cells(monkeypatch, capsys):
    simulate(monkeypatch, slow=("draw",))
    code, found = run(capsys, "old", "new", "--budget", "5")
    assert code == found["exit_code"] == REGRESSION
    for cell in found["cells"]:
        assert cell["verdict"] == ("regression" if cell["case"]["op"] == "draw" else "no regression")
        assert cell["low"] <= cell["log_ratio"] <= cell["high"]
        assert len(cell["base_seconds"]) == len(cell["new_seconds"]) == len(cell["base_again_seconds"])
    assert platforms.fingerprint()["key"] in found["machine"]
    code, found = run(capsys, "new", "old", "--ops", "draw", "--budget", "5")
    assert (code, found["outcome"], {cell["verdict"] for cell in found["cells"]}) == (OK, "ok", {"faster"})


def fail(error):
    """A call that raises an error, whatever it is asked."""

    def call(*_):
        raise error

    return call


WRONG = "3 of 32 answers are not the oracle's"


def test_a_commit_that_does_not_install_dies_or_errs_is_broken(monkeypatch, capsys):
    for patched, new, fact in (
        ({"install": fail(BrokenCommitError("old does not install"))}, {}, "old does not install"),
        ({}, {"untimed": ("numba",)}, WRONG),
        ({"_worker": fail(WorkerError("the process ended by SIGSEGV"))}, {}, "SIGSEGV"),
    ):
        simulate(monkeypatch, **new)
        for name, call in patched.items():
            monkeypatch.setattr(compare, name, call)
        code, found = run(capsys, "old", "new", "--budget", "1")
        assert (code, found["outcome"], fact in found["broken"]) == (BROKEN, "broken", True)


@pytest.mark.parametrize("is_dirty", [False, True])
def test_what_neither_can_do_and_edits_are_told_and_no_fault(monkeypatch, capsys, is_dirty):
    simulate(monkeypatch)
    monkeypatch.setattr(compare, "commit", lambda folder: ("beef", is_dirty))
    monkeypatch.setattr(compare, "_worker", lambda side: Simulated(np.random.default_rng(0), untimed=("python",)))
    assert command.main(["compare", "old", "new", "--budget", "5"]) == OK
    shown = capsys.readouterr()
    assert WRONG in shown.out and "no regression of" in shown.out and platforms.fingerprint()["key"] in shown.out
    assert ("not committed" in shown.err) == is_dirty


def test_too_small_a_budget_is_inconclusive(monkeypatch, capsys):
    simulate(monkeypatch)
    code, found = run(capsys, "old", "new", "--budget", "0")
    assert (code, found["outcome"], found["rounds"]) == (INCONCLUSIVE, "inconclusive", 1)
    assert {cell["verdict"] for cell in found["cells"]} == {"inconclusive"}


def test_who_is_timed_first_changes_by_sample_and_so_do_cells(monkeypatch):
    order = []

    class Noted(WorkerClock):
        def sample(self):
            order.append(opened.index(self.worker))
            return 1.0

    class Process(Simulated):
        def prepare(self, case, seed):
            order.append(case.op)
            return Noted(self, {})

    opened = []
    monkeypatch.setattr(compare, "_worker", lambda side: opened.append(Process(np.random.default_rng(0))) or opened[-1])
    sides = [Installed(name, name * 8, Path(name)) for name in ("old", "new")]
    ops = ("draw", "update", "get", "insert", "sample")
    of_cells, of_sides = set(), []
    for seed in range(4):
        timed = [Cell(Case("numpy", op, 100, 8)) for op in ops]
        opened.clear()
        order.clear()
        compare._round(sides, timed, seed)
        of_cells.add(tuple(dict.fromkeys(word for word in order if isinstance(word, str))))
        numbers = [word for word in order if isinstance(word, int)]
        of_sides += [tuple(numbers[at : at + 3]) for at in range(0, len(numbers), 3)]
        assert all(len(cell.base) == len(cell.new) == len(cell.again) == 1 for cell in timed)
    assert len(of_cells) >= 3
    assert len(of_sides) == 4 * 5 * compare.SAMPLES
    assert set(of_sides) == {*itertools.permutations(range(3))}  # BASE, NEW and BASE again take turns


def in_rounds(change, again, spread=0.001, rounds=12, seed=0):
    """A cell whose NEW and whose BASE again take so many times what BASE takes, but for noise."""
    noise = np.exp(np.random.default_rng(seed).normal(0, spread, (3, rounds)))
    return Cell(Case("numpy", "draw", 100, 8), list(noise[0]), list(change * noise[1]), list(again * noise[2]))


def judged(*timed):
    comparison = Comparison("old", "new", list(timed), 0.05, 0.20, rounds=len(timed[0].base))
    compare._undecided(comparison)
    return comparison


def test_the_change_is_the_ratio_of_the_two_times_shown():
    """Rounds that a neighbor disturbed, one in three, on either side: their medians have another ratio."""
    rng = np.random.default_rng(0)
    cells = [in_rounds(1.0, again=1.0, spread=0.05, rounds=9, seed=seed) for seed in range(20)]
    for cell in cells:
        for values in (cell.base, cell.new):
            values[:] = [1e-5 * value * (9 if rng.random() < 1 / 3 else 1) for value in values]
    shown = compare.as_markdown(judged(*cells)).splitlines()[2:22]
    for base, new, change in ([column.strip() for column in line.split("|")[2:5]] for line in shown):
        earlier, later = (float(time.removesuffix(" us")) for time in (base, new))
        rounding = 0.005 * (1 + later / earlier) / earlier + 0.0005
        assert float(change.rstrip("%")) / 100 == pytest.approx(later / earlier - 1, abs=rounding)


def test_what_base_differs_from_itself_by_is_no_slow_down():
    for change, again, verdict in (
        (1.1, 1.0, "regression"),
        (1.04, 1.0, "no regression"),
        (1.1, 1.15, "no regression"),
    ):
        found = judged(in_rounds(change, again=again))
        assert found.cells[0].difference.verdict == verdict, (change, again)
        assert found.code == (REGRESSION if verdict == "regression" else OK)
    assert found.floor == pytest.approx(np.log(1.15), rel=0.05)


def test_a_cell_whose_rounds_agree_is_as_uncertain_as_the_others():
    noisy = [in_rounds(1.0, again=1.0, spread=0.3, rounds=3, seed=seed) for seed in range(9)]
    lucky = in_rounds(1.2, again=1.0, spread=1e-4, rounds=3)
    assert judged(lucky).cells[0].difference.verdict == "regression"
    assert judged(lucky, *noisy).cells[0].difference.verdict == "inconclusive"


def test_the_noise_floor_of_two_files_is_the_larger(tmp_path, capsys):
    quiet = write(tmp_path / "quiet.jsonl", cells(1.0))
    noisy = [*cells(1.1), record(12.0, primitive="sum_tree_again")]
    noisy = [one for one in noisy if one.primitive == "sum_tree" or one.seconds > 1.1 * record(10).seconds]
    loud = write(tmp_path / "loud.jsonl", noisy)
    for sides in ((quiet, loud), (loud, quiet)):
        code, found = run(capsys, *sides)
        assert found["noise_floor"] == pytest.approx(np.log(1.2))
        assert (code, {cell["verdict"] for cell in found["cells"]}) == (OK, {"no regression"})
    assert run(capsys, quiet, write(tmp_path / "slower.jsonl", cells(1.1)))[0] == REGRESSION


def record(nanoseconds, **fields):
    return make_timed(2.56e-7 * nanoseconds, **{**USUAL, **fields})


def write(path, found):
    with Writer(path) as writer:
        for one in found:
            writer.append(one)
    return str(path)


def cells(factor=1.0, **fields):
    yield record(10, **fields)
    yield record(10.1, primitive="sum_tree_again", **fields)
    yield record(20 * factor, op="update", **fields)


def test_files_of_records_are_compared(tmp_path, capsys):
    base = write(tmp_path / "base.jsonl", cells())
    assert run(capsys, base, write(tmp_path / "same.jsonl", cells(1.01)))[0] == OK
    code, found = run(capsys, base, write(tmp_path / "slow.jsonl", cells(2.0)))
    assert code == REGRESSION
    assert [cell["verdict"] for cell in found["cells"]] == ["no regression", "regression"]
    wide = [dataclasses.replace(one, low_seconds=one.seconds / 2, high_seconds=2 * one.seconds) for one in cells()]
    assert run(capsys, base, write(tmp_path / "wide.jsonl", wide))[0] == INCONCLUSIVE


def test_files_that_cannot_be_compared_are_refused(tmp_path, capsys):
    base = write(tmp_path / "base.jsonl", cells())
    elsewhere = write(tmp_path / "elsewhere.jsonl", cells(machine={"key": "other"}))
    assert command.main(["compare", base, elsewhere]) == BROKEN
    assert "different machines (made-up and other)" in capsys.readouterr().err
    others = write(tmp_path / "others.jsonl", cells(capacity=7))
    assert command.main(["compare", base, others]) == BROKEN
    assert "no measured cell in common" in capsys.readouterr().err


def test_each_machine_of_two_files_is_compared_with_itself(tmp_path, capsys):
    slow, quick = {"key": "slow"}, {"key": "quick"}
    base = write(tmp_path / "base.jsonl", [*cells(machine=quick), record(40, machine=slow)])
    same = write(tmp_path / "same.jsonl", [record(40, machine=slow), *cells(machine=quick)])
    code, found = run(capsys, base, same)
    assert (code, [cell["verdict"] for cell in found["cells"]]) == (OK, ["no regression"] * 3)
    assert {cell["machine"] for cell in found["cells"]} == {"slow", "quick"}
    code, found = run(capsys, base, write(tmp_path / "new.jsonl", [record(80, machine=slow), *cells(machine=quick)]))
    assert code == REGRESSION
    assert [cell["machine"] for cell in found["cells"] if cell["verdict"] == "regression"] == ["slow"]


@pytest.mark.parametrize("lost", ["missing", "failed", "failed after a time"])
@pytest.mark.parametrize("side", ["base", "new"])
def test_a_cell_of_one_file_alone_is_named_and_is_no_success(tmp_path, capsys, side, lost):
    whole = [*cells(), record(5, op="draw", capacity=7)]
    failed = dataclasses.replace(
        whole[-1], status="failed", reason="3 wrong", median_seconds=None, low_seconds=None, high_seconds=None
    )
    less = {"missing": whole[:-1], "failed": [*whole[:-1], failed], "failed after a time": [*whole, failed]}[lost]
    sides = {side: less}
    base, new = (write(tmp_path / f"{name}.jsonl", sides.get(name, whole)) for name in ("base", "new"))
    code, found = run(capsys, base, new)
    assert code == BROKEN
    assert [cell["case"]["capacity"] for cell in found["cells"] if cell["reason"]] == [7]
    assert found["cells"][-1]["reason"].startswith(f"{side}.jsonl")
    assert ("3 wrong" in found["broken"]) == (lost != "missing")


SLOWER = "for _ in range(30): in_parts(self._descend, mass, self._width)"
FIND = "def _find(self, mass: Reals) -> Indices:"


COMMITS = [  # a change of a file, and the exit code by the seconds that may be spent
    ("impls/sumtree/numpy_tree.py", lambda text: text.replace(FIND, f"{FIND}\n        {SLOWER}"), {60: REGRESSION}),
    ("README.md", lambda text: text + "\nAs before.\n", {60: OK, 0: INCONCLUSIVE}),
    ("impls/__init__.py", lambda text: text + "\nraise RuntimeError('does not start')\n", {0: BROKEN}),
]


def test_real_commits_run_by_real_processes_get_their_exit_codes(tmp_path, capsys, monkeypatch):
    """Commits are unpacked, not installed, and differ by more than noise."""
    base, suite = copy_checkout(tmp_path), compare.suite(tmp_path)

    def unpack(name):
        sha = compare.resolve(name, tmp_path)
        folder = tmp_path / ".compare" / sha
        if not folder.exists():
            folder.mkdir(parents=True)
            compare._unpack(tmp_path, sha, folder)
            shutil.rmtree(folder / "benchmarks")  # it is the suite that times, not the commit's own
        return Installed(str(folder), sha, Path(sys.executable))

    resolve = compare.resolve
    monkeypatch.setattr(compare, "resolve", lambda name, *_: resolve(name, tmp_path))
    monkeypatch.setattr(compare, "install", unpack)
    monkeypatch.setattr(compare, "_worker", lambda side: Worker(side.python, [Path(side.name), suite]))
    cell = ["--contestants", "numpy", "--ops", "draw", "--capacities", "1000", "--batches", "64"]
    for file, change, codes in COMMITS:
        git(tmp_path, "checkout", "-q", base)
        (tmp_path / file).write_text(change((tmp_path / file).read_text()))
        new = commit(tmp_path)
        for budget, code in codes.items():
            easy = ["--threshold", "1", "--detect", "4", "--budget", str(budget)]
            assert run(capsys, base, new, *cell, *easy)[0] == code, (file, budget)
