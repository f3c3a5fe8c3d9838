"""Runs that adapt themselves: what they search, keep, refuse and resume."""

import csv
import json
import math
import os
import shlex
import signal

import pytest

pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("gymnasium", reason="training needs the extra `train`")
from contextlib import contextmanager

from impls.training import TrainingError, adaptation, load
from impls.training.__main__ import _parser, main
from impls.training.options import setup_of
from impls.training.parallel import changing
from impls.training.parallel.changing import Rates
from tests.profiled import write_workload


def rates(actors, batch):
    """Most environment steps by 3 actors, most records by a batch of 256."""
    frames = 1e5 - 1e4 * abs(math.log2(batch) - 8)
    return Rates(actors, batch, 1e3 - abs(actors - 3), frames / batch, frames, 50, 1, 1, 1e6, 1e6, (1.0,))


@pytest.fixture
def pretended(monkeypatch):
    """Two cores, on which made-up rates are measured."""
    asked = []

    @contextmanager
    def measuring(workload, arrangement, actors, *seconds, **options):
        asked.append((workload.actors.count, arrangement.name, actors, options))
        yield rates

    monkeypatch.setattr(changing, "measuring", measuring)
    monkeypatch.setattr(adaptation, "count_allowed", lambda: 2)
    return asked


def adapted(folder, *given):
    folder.mkdir(exist_ok=True)
    options = _parser().parse_args(["train", "cartpole_dqn", "--adapt", *given])
    setting = setup_of(load("cartpole_dqn"), options)
    return adaptation.adapted(setting, options, folder, {"policy": "dense"})


def test_the_pair_found_is_what_the_run_and_the_command_to_paste_train_by(tmp_path, pretended, capsys):
    workload, found = adapted(tmp_path / "a b", "--seed", "3", "--steps", "9000", "--test-process")
    assert (workload.actors.count, workload.learner.batch, workload.steps) == (3, 256, 9000)
    assert workload.learner.update_interval == load("cartpole_dqn").learner.update_interval
    assert pretended == [(4, "apart", 1, {"policy": "dense", "seed": 3})]
    *tried, kept = csv.DictReader((tmp_path / "a b" / "adaptation.csv").read_text().splitlines())
    assert (kept["search"], kept["actors"], kept["batch"]) == ("kept", "3", "256")
    looks = [(row["actors"], row["batch"]) for row in tried]
    assert looks == [(str(look["actors"]), str(look["batch"])) for look in found["looks"]]
    assert {row["search"] for row in tried} == {"samplers", "batch"}
    *lines, last = capsys.readouterr().err.splitlines()
    assert sum("tried" in line for line in lines) == len(tried)
    assert "kept 3 actors, B = 256" in last
    pasted = _parser().parse_args(shlex.split(found["command"])[3:])
    assert (pasted.adapt, pasted.out, pasted.seed, pasted.test_process) == (False, None, 3, True)
    assert setup_of(load("cartpole_dqn"), pasted).workload == workload


def test_a_resumed_run_takes_the_pair_that_it_was_begun_with(tmp_path, pretended):
    found = adapted(tmp_path, "--steps", "9000")[1]
    workload, again = adapted(tmp_path, "--steps", "20000", "--resume")
    assert len(pretended) == 1
    assert (workload.actors.count, workload.learner.batch, again["looks"]) == (3, 256, found["looks"])
    path = tmp_path / "adaptation.csv"
    for text in ("", "".join(path.read_text().splitlines(keepends=True)[:-1])):
        path.write_text(text)
        with pytest.raises(TrainingError, match=r"adaptation.csv: .* --actors and --batch .* --out"):
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


def test_no_batch_is_tried_that_the_run_could_not_train_by(tmp_path, pretended):
    tried = [look["batch"] for look in adapted(tmp_path, "--steps", "1200")[1]["looks"]]
    assert max(tried) <= 1024
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


def test_a_run_searches_is_interrupted_and_begins_again_on_a_loop_that_trains(tmp_path, monkeypatch, capsys):
    path, folder = write_workload(tmp_path), tmp_path / "run"
    for name, value in {"LOOK_SECONDS": 0.03, "SETTLE_SECONDS": 0.0, "BATCHES": (2, 8)}.items():
        monkeypatch.setattr(adaptation, name, value)
    monkeypatch.setattr(adaptation, "count_allowed", lambda: 1)
    asked = ["train", str(path), "--adapt", "--out", str(folder), "--test-episodes", "1", "--steps", "300"]
    with monkeypatch.context() as patched:
        patched.setattr(changing.ChangingLoop, "begin", lambda _: os.kill(os.getpid(), signal.SIGTERM))
        assert main(asked) == 128 + signal.SIGTERM
    assert "no checkpoint was due yet, begin again" in capsys.readouterr().err
    assert main(asked) == 0
    summary = json.loads((folder / "summary.json").read_text())
    found = summary["adaptation"]
    assert (found["actors"], found["batch"]) in {(x, batch) for x in (1, 2) for batch in (2, 8)}
    assert (summary["steps"], len(found["looks"])) == (300, 3)
    assert summary["arrangement"]["ratio"] == "kept"
    assert found["command"] in capsys.readouterr().out
