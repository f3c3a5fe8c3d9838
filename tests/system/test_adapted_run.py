"""Runs that adapt themselves: what they search, keep, refuse and resume."""

import contextlib
import csv
import json
import math
import shlex
import signal
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("gymnasium", reason="training needs the extra `train`")
from impls.training import TrainingError, adaptation, load
from impls.training.__main__ import _parser, main
from impls.training.arrangement import Arrangement
from impls.training.options import setup_of
from impls.training.parallel.board import Row
from impls.training.parallel.changing import Rates
from impls.training.run import Plan, start
from tests.parallel_runs import small, until
from tests.profiled import write_workload


def rates(actors, batch):
    """Most environment steps by 3 actors, most records by a batch of 256."""
    frames = 1e5 - 1e4 * abs(math.log2(batch) - 8)
    return Rates(actors, batch, 1e3 - abs(actors - 3), frames / batch, frames, 50, 1, 1, 1e6, 1e6, (1.0,))


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    monkeypatch.setattr(adaptation, "count_allowed", lambda: 2)


class Pretended:
    """A loop that measures made-up rates, and notes at which pairs."""

    def __init__(self, workload):
        self.workload, self.looks = workload, []

    def set_actors(self, actors):
        self.actors = actors

    def set_batch(self, batch):
        self.batch = batch

    def measure(self, *_, are_actors_free):
        self.looks.append((self.actors, self.batch, are_actors_free))
        return rates(self.actors, self.batch)


def prepared(folder, *given, workload=None):
    folder.mkdir(exist_ok=True)
    options = _parser().parse_args(["train", "cartpole_dqn", "--adapt", *given])
    return adaptation.adapted(setup_of(workload or load("cartpole_dqn"), options), options, folder)


def adapted(folder, *given):
    workload, search = prepared(folder, *given)
    loop = Pretended(workload)
    return loop, search(loop, lambda: None)


def test_the_pair_found_is_what_the_run_goes_on_by_and_the_command_to_paste_has(tmp_path, capsys):
    loop, found = adapted(tmp_path / "a b", "--seed", "3", "--steps", "9000", "--test-process", "--show", "there")
    assert (loop.actors, loop.batch) == (found["actors"], found["batch"]) == (3, 256)
    workload = loop.workload
    assert (workload.actors.count, workload.learner.batch, workload.steps) == (4, 32, 9000)
    looks = [(look["actors"], look["batch"], look["batch"] == 32) for look in found["looks"]]
    assert looks == loop.looks
    *lines, last = capsys.readouterr().err.splitlines()
    assert sum("tried" in line for line in lines) == len(looks)
    assert "kept 3 actors, B = 256" in last
    pasted = _parser().parse_args(shlex.split(found["command"])[3:])
    assert (pasted.adapt, pasted.out, pasted.seed, pasted.test_process, pasted.show) == (False, None, 3, True, None)
    asked = setup_of(load("cartpole_dqn"), pasted).workload
    assert (asked.actors.count, asked.learner.batch) == (3, 256)


def test_a_resumed_run_keeps_its_pair_or_continues_its_search(tmp_path):
    first, found = adapted(tmp_path, "--steps", "9000")
    path = tmp_path / "adaptation.csv"
    lines = path.read_text().splitlines(keepends=True)
    for there in range(1, len(lines) + 1):
        path.write_text("".join(lines[:there]))
        loop, again = adapted(tmp_path, "--steps", "20000", "--resume")
        assert loop.looks == first.looks[there - 1 :]
        assert (loop.actors, loop.batch, again["looks"]) == (3, 256, found["looks"])
        assert path.read_text() == "".join(lines)
    for text in ("".join(lines)[:-9], "".join(lines).replace("actors", "other")):
        path.write_text(text)
        with pytest.raises(TrainingError, match=r"adaptation.csv: .* --actors and --batch"):
            adapted(tmp_path, "--resume")


def test_a_resumed_run_without_adapt_is_told_to_add_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = "runs/cartpole_dqn/adapt-seed0"
    given = "train cartpole_dqn --contestant numpy --test-episodes 0 --steps".split()
    assert main([*given, "1001", "--out", folder]) == 0
    (tmp_path / folder / "adaptation.csv").touch()
    for out in ([], ["--out", folder]):
        assert main([*given, "1100", "--batch", "32", "--resume", *out]) == 2
        assert "--adapt" in capsys.readouterr().err


def test_no_batch_is_tried_that_the_run_could_not_train_by(tmp_path):
    assert max(batch for _, batch, _ in adapted(tmp_path, "--steps", "1200")[0].looks) <= 1024
    with pytest.raises(TrainingError, match=r"--steps"):
        adapted(tmp_path, "--steps", "500")


def test_a_batch_by_hand_is_learned_from_once_it_can_be_filled():
    options = _parser().parse_args(["train", "cartpole_dqn", "--batch", "2048"])
    learner = setup_of(load("cartpole_dqn"), options).workload.learner
    assert (learner.batch, learner.learning_starts) == (2048, 2048)


DECIDED = ("--arrangement pipelined", "--actors 2", "--batch 8", "--mapping -", "--learners 2", "--transport pipe")
DECIDED += ("--contestant numpy", "--compile")


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        *((f"cartpole_dqn --adapt {option}", (option, "--adapt")) for option in DECIDED),
        *(
            (f"{name} --adapt", (load(name).algorithm,))
            for name in ("cartpole_a3c", "cartpole_dyna_q", "pendulum_memr")
        ),
        ("cartpole_dqn --adapt --split", ("--split", "ddpg, td3, sac")),
        ("cartpole_dqn --adapt --policy none", ("'none'", "dense, torch")),
        ("cartpole_dqn --arrangement apart --policy=", ("''", "dense, torch")),
    ],
)
def test_what_cannot_adapt_writes_nothing(tmp_path, capsys, given, facts):
    assert main(["train", *given.split(), "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert all(fact in said for fact in facts)
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_no_step_of_a_search_is_lost(tmp_path):
    length, steps = 10, 30_000  # of the environment's episodes, and of a run that any machine has time to search in
    workload, search = prepared(tmp_path, "--steps", f"{steps}", workload=small(steps=steps))
    plan = Plan(tmp_path / "run", 10**6, 0, live=False, adaptation=search, test_process=True)
    plan.folder.mkdir()
    run = start(workload, plan, arrangement=Arrangement(name="apart"))
    with contextlib.closing(run):
        summary, loop = run.run(), run._loop
        taken = [int(loop.board.rows[row, Row.TURNS]) for row in loop._every]
        assert sum(taken) == loop.buffer.written == loop.step == summary["steps"] == steps
        assert loop.updates >= loop._pace.updates_at(steps)
    rows = csv.DictReader((plan.folder / "episodes.csv").read_text().splitlines())
    lengths = [int(row["length"]) for row in rows]
    assert lengths == [length] * sum(turns // length for turns in taken)
    found = summary["adaptation"]
    assert (found["actors"], found["batch"]) == (loop.actors, loop.workload.learner.batch)
    assert (summary["arrangement"]["ratio"], summary["updates"]) == ("kept", loop.updates)


def test_a_run_that_is_over_before_its_search_is_done(tmp_path, capsys):
    path, folder = write_workload(tmp_path), tmp_path / "run"
    assert main(["train", str(path), "--adapt", "--out", str(folder), "--steps", "60", "--test-episodes", "0"]) == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["steps"], "adaptation" in summary) == (60, False)
    assert "--steps" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_search_that_is_broken_off_continues_without_measuring_any_pair_again(tmp_path, number):
    path, folder = write_workload(tmp_path), tmp_path / "run"
    words = ["train", str(path), "--adapt", "--out", str(folder), "--checkpoint-every", "20", "--steps", "6000"]
    looks, begun = folder / "adaptation.csv", subprocess.Popen([sys.executable, "-m", "impls.training", *words])
    with begun:
        until(lambda: looks.exists() and looks.read_text().count("\n") > 2 and (folder / "checkpoint.pt").exists())
        begun.send_signal(number)
    before = looks.read_text()
    assert main([*words, "--resume"]) == 0
    summary, found = json.loads((folder / "summary.json").read_text()), looks.read_text()
    assert found.startswith(before)
    *tried, kept = csv.DictReader(found.splitlines())
    pairs = [(row["actors"], row["batch"]) for row in tried]
    assert len(pairs) == len({*pairs})
    assert (summary["steps"], summary["adaptation"]["actors"]) == (6000, int(kept["actors"]))
