"""Runs by several processes: what their folder holds, Ctrl-C, lost processes, kills, and answers that they run."""

import contextlib
import dataclasses
import io
import json
import os
import re
import signal
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("gymnasium", reason="training needs the extra `train`")
from impls.training import TrainingError, checkpoint, clock, learners, load
from impls.training import run as module
from impls.training.__main__ import _parser, main
from impls.training.actor import VALIDATION, evaluate
from impls.training.arrangement import Arrangement
from impls.training.environments import Environment
from impls.training.interrupts import Interrupted
from impls.training.options import KEY, WHY_NOT, set_up_answer
from impls.training.parallel.testing import TestProcess
from impls.training.run import Plan, start
from tests.parallel_runs import kill, lives, small, stop
from tests.system.test_actors import fake


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


def broken_off(run, folder, kind=TrainingError):
    """The error that ends a run, which says as of which step the run is saved; and the state of its loop."""
    with pytest.raises(kind) as caught:
        ended(run)
    state = checkpoint.load(folder / "checkpoint.pt")["loop"]
    assert f"; the run is saved as of step {state['step']:,}: continue with --resume" in str(caught.value)
    return caught.value, state


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
    run = meddled(begun(tmp_path), 120, lambda: os.kill(os.getpid(), signal.SIGINT))
    save, before = run.save, signal.getsignal(signal.SIGINT)
    run.save = lambda: (save(), run._loop.advance())  # as others go on after it
    error, state = broken_off(run, tmp_path, Interrupted)
    assert str(error).startswith("interrupted; ")
    assert signal.getsignal(signal.SIGINT) is before
    assert 120 <= state["step"] < 300
    episodes = len(rows(tmp_path, "episodes.csv"))
    assert episodes == checkpoint.load(tmp_path / "checkpoint.pt")["episodes"]
    with pytest.raises(TrainingError, match=r"another run, which differs in arrangement\.strategy$"):
        begun(tmp_path, resume=True, strategy="global")
    summary = ended(begun(tmp_path, resume=True))
    assert (summary["steps"], summary["updates"]) == (300, 281)
    assert summary["episodes"] == len(rows(tmp_path, "episodes.csv")) >= episodes
    assert [int(row["step"]) // 100 for row in rows(tmp_path)] == [1, 2, 3]


def test_a_stopped_actor_does_not_delay_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr("impls.training.parallel.children._HURRY_SECONDS", 0.5)
    run = begun(tmp_path, of=workload(steps=10**9))

    def end():
        stop(run._loop.pids["actor-0"])
        os.kill(os.getpid(), signal.SIGTERM)

    error, state = broken_off(meddled(run, 50, end), tmp_path, Interrupted)
    assert re.match(r"ended by SIGTERM; actor 0 did not rest for \d s and was killed; ", str(error))
    assert error.exit_code == 143
    assert state["step"] >= 50


def test_a_lost_keeper_is_a_sentence_and_a_lost_actor_begins_anew(tmp_path):
    run = begun(tmp_path, "pipelined", of=workload(steps=10**6), plan={"test_process": True})
    loop, tester = run._loop, run._tester
    meddled(run, 50, lambda: kill(loop, "actor-0"))
    error, state = broken_off(meddled(run, 400, lambda: kill(loop, "keeper-0")), tmp_path)
    assert str(error).startswith("keeper 0 was ended from outside (exit code -9); ")
    assert state["step"] >= 400
    assert state["restarts"] == 1
    assert not lives(tester.pid)


def test_a_faulty_environment_is_a_sentence_and_the_run_is_saved(tmp_path):
    run = begun(tmp_path, of=workload(environment="tests.fake_environments:Raises-v0"))
    error, _ = broken_off(run, tmp_path)
    assert "is on fire" in str(error)


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


# A race, on a clock of the tests, in this process

FREE_AT = 200  # gradient steps


class Numbers(list):
    """The numbers of a race that frees the run after some gradient steps, each of which lasts 1 s."""

    def __setitem__(self, at, value):
        super().__setitem__(at, value)
        if at == clock.LATEST:
            self[clock.PAUSED] -= 10**9
            self[clock.FREE] = int(clock.read_progress(self)[1] >= FREE_AT)


def test_a_raced_run_counts_from_its_release(tmp_path, monkeypatch):
    numbers = Numbers([0] * clock.COUNT)

    def evaluate(*_):
        numbers[clock.PAUSED] -= 10**12
        return [0.0]

    monkeypatch.setattr(clock, "_numbers", numbers)
    monkeypatch.setattr(module, "evaluate", evaluate)
    raced = dataclasses.replace(fake(evaluation={"interval": 50}), steps=400)
    plan = Plan(tmp_path / "run", test_episodes=0, live=False, seconds=10.0)
    summary = ended(start(raced, plan, contestant="numpy"))
    assert FREE_AT + 5 < summary["updates"] < FREE_AT + 60
    assert summary["settled"]["updates"] < 60
    assert clock.read_progress(numbers)[2] / 1e9 == pytest.approx(summary["updates"], rel=0.2)
    assert float(rows(tmp_path / "run")[0]["seconds"]) > 10
    assert summary["seconds"] > 1000


# Options


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        (["--arrangement", "apart", "--learners", "3"], "3 --sync"),
        (["--arrangement", "apart", "--strategy", "banked"], "banked --banks"),
        (["--arrangement", "apart", "--contestant", "numpy"], "numba 'numpy'"),
        (["--arrangement", "apart", "--compile"], "--compile"),
        (["--learner", "dnese"], "'dnese' 'dense'"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(tmp_path, capsys, given, facts):
    assert main(["train", "cartpole_dqn", "--out", str(tmp_path / "run"), *given]) == 2
    said = capsys.readouterr().err
    assert all(fact in said for fact in facts.split())
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


def answer(settings=None, workload="cartpole_dqn", **changes):
    """What ``dse recommend --json`` writes, as far as a run reads it."""
    return {"question": {"workload": workload}, "choice": {KEY: SETTINGS | (settings or {})} | changes}


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
    ("content", "facts"),
    [
        ([], "'workload'"),
        (answer() | {"choice": None}, "fits"),
        (answer(workload="pong_dqn"), "'pong_dqn' 'cartpole_dqn'"),
        (answer(**{KEY: None}), "dse recommend --json --workload cartpole_dqn"),
        (answer(**{WHY_NOT: "a run has one device"}), "a run has one device"),
        (answer({"lerner": "torch"}), "lerner 'learner'"),
        (answer({"learner.bach": 1}), "learner.bach"),
        (answer({"batch": True}), "True batch"),
        (answer({"environments": "8"}), "'8' environments"),
        (answer({"learner": 8}), "8 learner"),
        (answer({"replay.capacity": 0.5}), "0.5 replay.capacity"),
        (answer({"replay.capacity": -1}), "capacity 1"),
        (answer({"batch": 1 << 21}), "--batch 1,048,576"),
        (answer({"arrangement": "apatr"}), "apatr 'apart'"),
        (answer({"arrangement": "serial", "learners": 2}), "--learners"),
    ],
)
def test_a_faulty_answer_is_a_sentence_that_names_its_file(tmp_path, content, facts):
    with pytest.raises(TrainingError) as caught:
        set_up(tmp_path, content)
    said = str(caught.value)
    assert all(fact in said for fact in ("answer.json: ", *facts.split()))
    assert "\n" not in said


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
