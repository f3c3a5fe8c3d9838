"""Runs by several processes: what their folder holds, Ctrl-C, lost processes, kills, and answers that they run."""

import contextlib
import dataclasses
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.committed import ROOT

pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("gymnasium", reason="training needs the extra `train`")
from impls.training import TrainingError, checkpoint, learners, load
from impls.training.__main__ import _parser, main
from impls.training.actor import VALIDATION, evaluate
from impls.training.arrangement import Arrangement
from impls.training.environments import Environment
from impls.training.interrupts import Interrupted
from impls.training.options import KEY, WHY_NOT, set_up_answer, setup_of
from impls.training.parallel.testing import TestProcess
from impls.training.run import Plan, start
from tests.parallel_runs import kill, lives, small, stop, until

FILE = """
name = "fine"
environment = "tests.fake_environments:Fine-v0"
algorithm = "dqn"
steps = {steps}
[observation]
shape = [2]
[action]
choices = 2
[network]
hidden = [4]
[learner]
batch = 4
update_interval = 1
learning_starts = 20
[replay]
capacity = 512
[evaluation]
interval = 100
episodes = 2
"""


def workload(**changes):
    made = small(**changes)
    return dataclasses.replace(made, evaluation=dataclasses.replace(made.evaluation, interval=100, episodes=2))


def begun(folder, name="apart", resume=False, plan=None, of=None, **options):
    plan = {"checkpoint_every": 10**6, "test_episodes": 1, "live": False} | (plan or {})
    return start(of or workload(), Plan(folder, **plan), resume=resume, arrangement=Arrangement(name=name, **options))


def ended(run):
    with contextlib.closing(run):
        return run.run()


def rows(folder, name="curve.csv"):
    columns, *lines = (folder / name).read_text().splitlines()
    return [dict(zip(columns.split(","), line.split(","), strict=True)) for line in lines]


def meddled(run, step, what):
    """The run, to which ``what`` is done once, as soon as it has come to a step."""
    advance, is_done = run._loop.advance, []

    def meddle():
        if run._loop.step >= step and not is_done:
            is_done.append(what())
        return advance()

    run._loop.advance = meddle
    return run


# A run and its folder


@pytest.mark.parametrize("name", [pytest.param("apart", marks=pytest.mark.slow), "pipelined"])
def test_a_run_writes_what_the_serial_loops_does_and_says_who_did_it(tmp_path, name):
    summary = ended(begun(tmp_path / "run", name, of=workload(presampled=2)))
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert (summary["steps"], summary["updates"]) == (300, 281)
    assert summary["arrangement"] == Arrangement(name=name).to_dict()
    processes = summary["processes"]
    kinds = ["learner-0", "actor-0", *(["keeper-0"] if name == "pipelined" else [])]
    assert sorted(processes["cores"]) == sorted(kinds)
    assert all(set(cores) <= os.sched_getaffinity(0) for cores in processes["cores"].values())
    assert processes["lead"] <= 2
    assert summary["ratio"] == pytest.approx(1, abs=0.01)
    assert processes["restarts"] == 0
    assert summary["throughput"]["cpu_percent"] > 0
    assert summary["settled"]["updates"] <= 181
    points = rows(tmp_path / "run")
    assert [int(row["step"]) // 100 for row in points] == [1, 2, 3]
    assert len(rows(tmp_path / "run", "episodes.csv")) == summary["episodes"] > 20
    assert summary["validation_best_step"] in {int(row["step"]) for row in points}
    assert {"best.pt", "checkpoint.pt"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_ctrl_c_saves_the_run_and_it_goes_on_from_there(tmp_path):
    folder = tmp_path / "run"
    run = meddled(begun(folder), 120, lambda: os.kill(os.getpid(), signal.SIGINT))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match=r"^interrupted; .*; the run is saved as of step \d+: continue with "):
        ended(run)
    assert signal.getsignal(signal.SIGINT) is before
    saved = checkpoint.load(folder / "checkpoint.pt")
    assert 120 <= saved["loop"]["step"] < 300
    assert saved["episodes"] == len(rows(folder, "episodes.csv"))
    with pytest.raises(TrainingError, match=r"another run, which differs in arrangement\.strategy$"):
        begun(folder, resume=True, strategy="global")
    summary = ended(begun(folder, resume=True))
    assert (summary["steps"], summary["updates"]) == (300, 281)
    assert summary["episodes"] == len(rows(folder, "episodes.csv")) >= saved["episodes"]
    assert [int(row["step"]) // 100 for row in rows(folder)] == [1, 2, 3]


def test_a_stopped_actor_does_not_delay_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr("impls.training.parallel.children._HURRY_SECONDS", 0.5)
    run = begun(tmp_path / "run", of=workload(steps=10**9))

    def end():
        stop(run._loop.pids["actor-0"])
        os.kill(os.getpid(), signal.SIGTERM)

    meddled(run, 50, end)
    with pytest.raises(Interrupted) as ended_by:
        ended(run)
    words = r"ended by SIGTERM; actor 0 did not rest for \d s and was killed; .* saved as of step (\d+): continue "
    assert re.fullmatch(words + "with --resume", str(ended_by.value))
    assert ended_by.value.exit_code == 143
    assert checkpoint.load(tmp_path / "run" / "checkpoint.pt")["loop"]["step"] >= 50


def test_a_lost_keeper_is_a_sentence_and_a_lost_actor_begins_anew(tmp_path):
    run = begun(tmp_path / "run", "pipelined", of=workload(steps=10**6), plan={"test_process": True})
    loop, tester = run._loop, run._tester
    meddled(run, 50, lambda: kill(loop, "actor-0"))
    meddled(run, 400, lambda: kill(loop, "keeper-0"))
    words = r"^keeper 0 was ended from outside \(exit code -9\); the run is saved as of step ([\d,]+): continue with"
    with pytest.raises(TrainingError, match=words):
        ended(run)
    state = checkpoint.load(tmp_path / "run" / "checkpoint.pt")["loop"]
    assert state["step"] >= 400
    assert state["restarts"] == 1
    assert not lives(tester.pid)


def test_a_faulty_environment_is_a_sentence_and_the_run_is_saved(tmp_path):
    run = begun(tmp_path / "run", of=workload(environment="tests.fake_environments:Raises-v0"))
    with pytest.raises(TrainingError, match=r"is on fire.*; the run is saved as of step \d+: continue with --resume"):
        ended(run)
    assert (tmp_path / "run" / "checkpoint.pt").exists()


def test_a_test_process_evaluates_the_weights_of_a_step_while_training_goes_on(tmp_path, capfd):
    run = begun(tmp_path / "run", of=workload(steps=1000), plan={"test_process": True})
    summary, points = ended(run), rows(tmp_path / "run")
    steps = [int(row["step"]) for row in points]
    assert steps == sorted(set(steps))
    # The step of which the next gradient step is due, and two more that an actor may be ahead of that.
    assert all(0 <= int(row["step"]) - 19 - int(row["updates"]) <= 1 + 2 for row in points)
    assert summary["validation_best_step"] in steps
    assert checkpoint.load(tmp_path / "run" / "best.pt")["step"] == summary["validation_best_step"]
    assert "test process" not in capfd.readouterr().err


def test_a_checkpoint_owes_the_evaluations_that_it_lacks(tmp_path):
    run = begun(tmp_path / "run", of=workload(steps=1000), plan={"test_process": True})
    path = tmp_path / "run" / "checkpoint.pt"
    run.run(until=50)
    run._tester.ask(run._loop.step, run._loop.updates, run._loop.learner.weights())  # and then it is under way
    run.save()
    assert checkpoint.load(path)["owed"]
    run._tester.last_result()
    run.save()
    assert not checkpoint.load(path)["owed"]
    run._loop.until(110)
    while run._loop.step < 110:  # steps that other processes take while the checkpoint waits for them
        run._loop.advance()
    run.save()
    assert checkpoint.load(path)["owed"]
    run.close()


def test_a_run_says_as_of_which_step_it_is_saved(tmp_path, monkeypatch):
    run = begun(tmp_path / "run")
    monkeypatch.setattr(run, "save", lambda save=run.save: (save(), run._loop.advance()))  # as others go on after it
    monkeypatch.setattr(run, "_turn", lambda progress: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted) as error:
        ended(run)
    assert f"as of step {checkpoint.load(tmp_path / 'run' / 'checkpoint.pt')['loop']['step']}:" in str(error.value)


def test_a_test_process_scores_as_an_evaluation_here_would():
    made = workload(environment="CartPole-v1", shape=(4,), choices=2)
    policy, environment = learners.make(made, seed=5), Environment(made)
    tester = TestProcess(made, policy.implementation, 7, len(policy.parameters))
    with contextlib.closing(environment), contextlib.closing(tester):
        for step in (300, 400):
            tester.ask(step, step - 19, policy.weights())
            assert tester.is_busy
            tested = tester.last_result()
            assert not tester.is_busy
            assert tested[:2] == (step, step - 19)
            assert tested.scores == evaluate(made, policy, environment, 2, 7, VALIDATION, step)
            np.testing.assert_array_equal(tested.weights, policy.parameters)
            policy.parameters[:] *= -1
    assert not lives(tester.pid)
    assert tester.result() is None


def test_a_dead_test_process_is_a_warning_and_evaluations_go_on(tmp_path, capfd):
    run = begun(tmp_path / "run", plan={"test_process": True})
    os.kill(run._tester.pid, signal.SIGKILL)
    run._tester._child._process.join()
    ended(run)
    assert capfd.readouterr().err.count("warning: the test process has ended; evaluations pause training") == 1
    assert [int(row["step"]) // 100 for row in rows(tmp_path / "run")][-1] == 3


def test_seconds_are_a_time_box_whether_or_not_the_run_has_settled_by_then(tmp_path):
    plan = {"seconds": 1, "test_episodes": 0}
    summary = ended(begun(tmp_path / "run", of=workload(steps=10**9), plan=plan))
    assert summary["seconds"] >= 1
    if settled := summary["settled"]:
        assert settled["seconds"] < summary["seconds"]
        assert settled["updates"] <= summary["updates"] - 100
    assert summary["steps"] < 10**9
    assert (tmp_path / "run" / "checkpoint.pt").exists()


def test_a_killed_run_leaves_no_process_and_is_resumed(tmp_path):
    path, folder = tmp_path / "fine.toml", tmp_path / "run"
    path.write_text(FILE.format(steps=50_000))
    given = ["train", str(path), "--arrangement", "apart", "--checkpoint-every", "100", "--out", str(folder)]
    command = [sys.executable, "-m", "impls.training", *given]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        until((folder / "checkpoint.pt").exists)
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        child.kill()
    assert children
    until(lambda: not any(map(lives, children)))
    step = checkpoint.load(folder / "checkpoint.pt")["loop"]["step"]
    assert 100 <= step < 50_000
    parsed = _parser().parse_args(given)
    setting = setup_of(load(path), parsed)
    plan = Plan(folder, live=False, seconds=1, test_episodes=0)
    summary = ended(start(setting.workload, plan, resume=True, arrangement=setting.arrangement))
    assert summary["steps"] > step


# Options

LOCAL = ["--arrangement", "apart", "--sync", "local", "--learners", "2"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--arrangement", "apart", "--learners", "3"], "cannot be cut into 3 equal parts"),
        ([*LOCAL, "--learners", "3"], "cannot be cut into 3 equal parts"),
        ([*LOCAL, "--arrangement", "pipelined"], "not 2 in pipelined"),
        ([*LOCAL, "--learners", "32", "--banks", "32"], "a capacity of 50,000 cannot be cut into 32 equal banks"),
        ([*LOCAL, "--banks", "3"], "one each, not 3 of 2 in apart"),
        ([*LOCAL, "--banks", "2", "--strategy", "two_lock_lazy"], "has one bank, not 2"),
        (["--arrangement", "apart", "--strategy", "banked"], "comes with --banks"),
        (["--arrangement", "apart", "--contestant", "numpy"], "several processes have the tree numba, not 'numpy'"),
        (["--arrangement", "apart", "--compile"], "--compile is for a run of one process"),
        (["--learner", "dnese"], "did you mean 'dense'?"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(tmp_path, capsys, given, words):
    assert main(["train", "cartpole_dqn", "--out", str(tmp_path / "run"), *given]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


# Answers


SETTINGS = {
    "arrangement": "pipelined",
    "actors": 2,
    "learner": "torch",
    "policy": "dense",
    "fanout": 8,
    "threads": 2,
    "batch": 32,
    "presampled": 3,
    "environments": 8,
    "learner.update_interval": 4,
}


def answer(settings=None, **changes):
    """What ``dse recommend --json`` writes, as far as a run reads it."""
    return {"workload": "cartpole_dqn", KEY: SETTINGS | (settings or {})} | changes


def set_up(folder, content, *given):
    path = folder / "answer.json"
    path.write_text(json.dumps(content))
    options = _parser().parse_args(["train", "cartpole_dqn", *given])
    return set_up_answer(str(path), load("cartpole_dqn"), options)


def test_an_answer_is_the_setup_of_a_run(tmp_path):
    asked = answer({"learners": 2, "strategy": "global", "replay.capacity": 5000})
    made = set_up(tmp_path, asked, "--sync", "hogwild", "--steps", "7000")
    known = made.workload
    assert (known.learner.batch, known.learner.update_interval, known.steps) == (32, 4, 7000)
    assert (known.replay.presampled, known.replay.fanout, known.replay.capacity) == (3, 8, 5000)
    assert (known.actors.count, known.actors.environments) == (2, 8)
    run_by = {"name": "pipelined", "learners": 2, "threads": 2, "sync": "hogwild", "strategy": "global"}
    assert made.arrangement == Arrangement(**run_by)
    assert (made.contestant, made.learner, made.policy, made.device) == ("numba", "torch", "dense", "cpu")
    assert known.learner.learning_starts == load("cartpole_dqn").learner.learning_starts == 1000


@pytest.mark.parametrize(("changes", "starts"), [({"batch": 2048}, 2048), ({"environments": 600}, 1200)])
def test_a_run_of_an_answer_learns_once_there_can_be_a_batch(tmp_path, changes, starts):
    assert set_up(tmp_path, answer(changes)).workload.learner.learning_starts == starts


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "it has no 'workload'"),
        ({"repairs": []}, "nothing fits the machine"),
        (answer(workload="pong_dqn"), "is about the workload 'pong_dqn', not 'cartpole_dqn'"),
        (answer() | {KEY: None}, "ask again: python -m dse recommend --json --workload cartpole_dqn"),
        (answer() | {WHY_NOT: "a run has one device"}, "a run has one device"),
        (answer({"lerner": "torch"}), "did you mean 'learner'?"),
        (answer({"learner.bach": 1}), "learner.bach"),
        (answer({"batch": True}), "has True as batch, which must be a whole number"),
        (answer({"environments": "8"}), "has '8' as environments"),
        (answer({"learner": 8}), "has 8 as learner, which must be text"),
        (answer({"replay.capacity": 0.5}), "has 0.5 as replay.capacity"),
        (answer({"replay.capacity": -1}), "capacity must be at least 1"),
        (answer({"batch": 1 << 21}), "--batch must be at most 1,048,576"),
        (answer({"arrangement": "apatr"}), "did you mean 'apart'?"),
        (answer({"arrangement": "serial", "learners": 2}), "--learners changes nothing"),
    ],
)
def test_a_faulty_answer_is_a_sentence_that_names_its_file(tmp_path, content, words):
    with pytest.raises(TrainingError) as caught:
        set_up(tmp_path, content)
    assert words in str(caught.value)
    assert "answer.json: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_answer_comes_from_a_file_or_the_standard_input(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(answer({"batch": 64}))))
    options = _parser().parse_args(["train", "cartpole_dqn"])
    assert set_up_answer("-", load("cartpole_dqn"), options).workload.learner.batch == 64
    (tmp_path / "half.json").write_text('{"workload": ')
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    for file, words in (
        ("half.json", "is no JSON"),
        ("none.json", "cannot be read (No such file or directory)"),
        ("bytes.json", "is no text"),
    ):
        assert main(["train", "cartpole_dqn", "--mapping", str(tmp_path / file)]) == 2
        assert f"{file}: {words}" in capsys.readouterr().err


@pytest.mark.parametrize("given", [["--fanout", "4"], ["--split"], ["--threads", "1"]])
def test_what_an_answer_decides_cannot_be_given_too(tmp_path, given):
    with pytest.raises(TrainingError, match=f"{given[0]} is decided by the answer of --mapping; leave one"):
        set_up(tmp_path, answer(), *given)
