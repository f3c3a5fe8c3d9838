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
from impls.training.answer import Answer, read
from impls.training.arrangement import NAMES, Arrangement
from impls.training.environments import Environment
from impls.training.interrupts import Interrupted
from impls.training.options import RANGES, setting_of
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
    given = [str(path), "--arrangement", "apart", "--checkpoint-every", "100", "--out", str(folder)]
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
    setting = setting_of(load(path), parsed)
    plan = Plan(folder, live=False, seconds=1, test_episodes=0)
    summary = ended(start(setting.workload, plan, resume=True, arrangement=setting.arrangement))
    assert summary["steps"] > step


# Options

LOCAL = ["--arrangement", "apart", "--sync", "local", "--learners", "2"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--arrangement", "apatr"], "serial, apart, pipelined, copies, not 'apatr'; did you mean 'apart'?"),
        (["--arrangement", "apart", "--sync", "hogwlid"], "did you mean 'hogwild'?"),
        (["--arrangement", "apart", "--strategy", "gobal"], "did you mean 'global'?"),
        (["--arrangement", "apart", "--transport", "queu"], "transport must be one of shared"),
        (["--arrangement", "apart", "--weights", "flie"], "did you mean 'file'?"),
        (["--arrangement", "apart", "--ratio", "fre"], "did you mean 'free'?"),
        (["--arrangement", "apart", "--learners", "3"], "cannot be cut into 3 equal parts"),
        ([*LOCAL, "--learners", "3"], "cannot be cut into 3 equal parts"),
        ([*LOCAL, "--period", "0"], "--period must be at least 1, not 0"),
        ([*LOCAL, "--learners", "0"], "--learners must be at least 1, not 0"),
        ([*LOCAL, "--arrangement", "pipelined"], "not 2 in pipelined"),
        ([*LOCAL, "--learners", "32", "--banks", "32"], "a capacity of 50,000 cannot be cut into 32 equal banks"),
        ([*LOCAL, "--banks", "3"], "one each, not 3 of 2 in apart"),
        ([*LOCAL, "--banks", "2", "--strategy", "two_lock_lazy"], "has one bank, not 2"),
        (["--arrangement", "apart", "--sync", "lcal", "--period", "7"], "did you mean 'local'?"),
        (["--arrangement", "apart", "--strategy", "banked"], "comes with --banks"),
        (["--arrangement", "apart", "--contestant", "numpy"], "several processes have the tree numba, not 'numpy'"),
        (["--arrangement", "apart", "--compile"], "--compile is for a run of one process"),
        (["--actors", "0"], "--actors must be at least 1, not 0"),
        (["--presampled", "65537"], "--presampled must be at most 65,536, not 65537"),
        (["--learners", "1025"], "--learners must be at most 1,024, not 1025"),
        (["--seconds", "0"], "--seconds must be at least 1, not 0"),
        (["--learner", "dnese"], "did you mean 'dense'?"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(tmp_path, capsys, given, words):
    assert main(["cartpole_dqn", "--out", str(tmp_path / "run"), *given]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


IDLE = [
    ("serial", 1, ["--learners", "2"], "--arrangement apart or pipelined"),
    ("serial", 1, ["--transport", "queue"], "--arrangement apart or pipelined"),
    ("serial", 1, ["--sync", "local", "--period", "5"], "--arrangement apart, pipelined or copies"),
    ("apart", 1, ["--sync", "hogwild"], "--learners of at least 2"),
    ("apart", 1, ["--period", "5"], "--sync local"),
    ("pipelined", 2, ["--sync", "lock", "--period", "5"], "--sync local"),
    ("apart", 2, ["--sync", "local", "--weights-of-banks", "exact"], "--banks of at least 2"),
]


@pytest.mark.parametrize(("name", "learners", "given", "needed"), IDLE)
def test_an_option_that_would_change_nothing_is_refused_with_what_it_needs(name, learners, given, needed):
    asked = [*given, "--arrangement", name, *(["--learners", str(learners)] * (learners > 1))]
    idle = re.escape(given[0] if name == "serial" or len(given) == 2 else given[2])
    with pytest.raises(TrainingError, match=f"^{idle} .* without {needed}; leave it out"):
        setting_of(load("cartpole_dqn"), _parser().parse_args(["cartpole_dqn", *asked]))
    if given[0] != "--learners":  # which an answer decides
        content = with_part("learner", {"learners": learners}) | {"arrangement": name}
        with pytest.raises(TrainingError, match=f"^{idle} .* without {needed}; leave it out"):
            setting(content, *given)


def test_every_range_is_of_an_option_and_help_names_the_arrangements(capsys):
    options = vars(_parser().parse_args(["cartpole_dqn"]))
    assert set(RANGES) <= set(options)
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in (*NAMES, "--mapping", "--test-process", "hogwild", "queue"))


# Answers


def answer(**changes):
    """What ``dse recommend --json`` writes, as far as a run reads it."""
    tree = {"contestant": "numba", "fanout": 8, "threads": 1}
    details = {
        "actors": {"processes": 2, "implementation": "dense"},
        "sampling": tree,
        "storage": {},
        "learner": {"threads": 2, "implementation": "torch"},
        "updating": tree,
    }
    parts = [{"part": name, "device": "cpu", "details": one} for name, one in details.items()]
    known = {"workload": "cartpole_dqn", "arrangement": "pipelined", "parts": parts}
    return known | {"batch": 32, "update_interval": 4, "depth": 3, "environments": 8} | changes


def with_part(name, details=None, **changes):
    made = answer()
    part = next(one for one in made["parts"] if one["part"] == name)
    part.update(changes)
    part["details"] = part["details"] | (details or {})
    return made


def setting(content, *given):
    return Answer(content, "answer.json").setting(load("cartpole_dqn"), _parser().parse_args(["cartpole_dqn", *given]))


def test_an_answer_is_the_setting_of_a_run():
    asked = with_part("learner", {"learners": 2}) | {"values": {"capacity": 5000}, "strategy": "global"}
    made = setting(asked, "--sync", "hogwild", "--steps", "7000")
    known = made.workload
    assert (known.learner.batch, known.learner.update_interval, known.steps) == (32, 4, 7000)
    assert (known.replay.presampled, known.replay.fanout, known.replay.capacity) == (3, 8, 5000)
    assert (known.actors.count, known.actors.environments) == (2, 8)
    run_by = {"name": "pipelined", "learners": 2, "threads": 2, "sync": "hogwild", "strategy": "global"}
    assert made.arrangement == Arrangement(**run_by)
    assert (made.contestant, made.learner, made.policy, made.device) == ("numba", "torch", "dense", "cpu")
    serial = with_part("actors") | {"arrangement": "serial"}
    assert setting(serial).workload.actors.count == load("cartpole_dqn").actors.count
    assert known.learner.learning_starts == load("cartpole_dqn").learner.learning_starts == 1000


@pytest.mark.parametrize(("changes", "starts"), [({"batch": 2048}, 2048), ({"environments": 600}, 1200)])
def test_a_run_of_an_answer_learns_once_there_can_be_a_batch(changes, starts):
    assert setting(answer(**changes)).workload.learner.learning_starts == starts


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "it has no 'workload'"),
        ({"repairs": []}, "says that nothing fits the machine"),
        (answer(workload="pong_dqn"), "is about the workload 'pong_dqn', not 'cartpole_dqn'"),
        (answer(arrangement="apatr"), "has the arrangement 'apatr', there are serial, apart, pipelined; did you mean"),
        (answer(parts=[]), "has no part 'actors'"),
        (answer(parts=7), "has no part 'actors'"),
        (answer(depth=-1), "has -1 as depth, which must be a whole number of at least 0"),
        (answer(batch=True), "has True as batch"),
        (answer(environments="8"), "has '8' as environments"),
        (answer(values=[1]), "has values that are no table"),
        (answer(values={"capacity": 0}), "has 0 as capacity"),
        (answer(batch=1 << 21), "batch"),
        (answer(strategy="gobal"), "did you mean 'global'?"),
        (with_part("learner", device=3), "says of learner neither device nor details"),
        (
            with_part("sampling", device="fpga"),
            "has sampling on 'fpga', not on 'cpu'",
        ),
        (with_part("learner", {"learners": 2}, device="gpu"), "share their weights on a processor alone"),
        (with_part("learner", {"pipelines": 2}, device="fpga"), "has the learner on the FPGA 'fpga'"),
        (with_part("learner", device="fpga") | {"arrangement": "serial"}, "has the learner on the FPGA 'fpga'"),
        (with_part("sampling", {"contestant": "numpy"}), "has the tree numpy: processes share the tree numba alone"),
        (with_part("sampling", {"contestant": "nunba"}), "did you mean 'numba'?"),
        (with_part("sampling", {"options": {"propagate": "delta"}}), "several threads or with options"),
        (with_part("sampling", {"fanout": 1}), "has 1 as the tree's fanout"),
        (with_part("learner", {"implementation": "dnese"}), "did you mean 'dense'?"),
        (with_part("learner", {"learners": 2}) | {"arrangement": "serial"}, "has 2 learners in one process"),
        (with_part("actors", {"processes": None}), "has None as processes of actors"),
    ],
)
def test_a_faulty_answer_is_a_sentence(content, words):
    with pytest.raises(TrainingError) as caught:
        setting(content)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_answer_comes_from_a_file_or_the_standard_input(tmp_path, monkeypatch, capsys):
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(answer()))
    assert read(str(path))._content == answer()
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(answer(batch=64))))
    assert read("-")._content["batch"] == 64
    path.write_text('{"workload": ')
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    for file, words in (
        (str(path), "answer.json: is no JSON"),
        (str(tmp_path / "none.json"), "none.json: cannot be read (No such file or directory)"),
        (str(tmp_path / "bytes.json"), "bytes.json: is no text"),
    ):
        assert main(["cartpole_dqn", "--mapping", file]) == 2
        assert words in capsys.readouterr().err
    path.write_text(json.dumps(answer()))
    for given in (["--fanout", "4"], ["--split"]):
        assert main(["cartpole_dqn", "--mapping", str(path), *given]) == 2
        assert f"{given[0]} is decided by the answer of --mapping; leave one of them out" in capsys.readouterr().err
