"""Runs of every workload by every arrangement, Ctrl-C, lost processes, devices, and answers that runs are set up by.

The device that is not there computes on the CPU, in memory of its own, so that what is not fetched is not seen.
"""

import contextlib
import dataclasses
import io
import json
import os
import signal
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("gymnasium", reason="training needs the extra `train`")
import torch

from dse.answers import emit
from dse.answers.mapping_answer import input_of_run
from dse.mapping.question import answer_question, ask
from impls.training import TrainingError, checkpoint, clock, learners, load, names
from impls.training import run as module
from impls.training.__main__ import _parser, main
from impls.training.actor import VALIDATION, evaluate
from impls.training.algorithm import ALGORITHMS
from impls.training.arrangement import Arrangement
from impls.training.environments import Environment
from impls.training.errors import ProcessLost
from impls.training.interrupts import Interrupted
from impls.training.learners.torch_learner import base
from impls.training.options import KEY, WHY_NOT, parser, set_up_answer
from impls.training.parallel.loop import ParallelLoop
from impls.training.parallel.testing import TestProcess
from impls.training.run import Plan, start
from tests.learning import batch_of, refused, tiny
from tests.matrix import matrix, slow
from tests.parallel_runs import advance, lives, read_rows, small
from tests.settings import read_keys
from tests.solver_cases import replace_details
from tests.system.test_actors import fake


def workload(**changes):
    made = small(**changes)
    return dataclasses.replace(made, evaluation=dataclasses.replace(made.evaluation, interval=100, episodes=2))


def begin(folder, name="apart", resume=False, plan=None, of=None, **options):
    plan = {"checkpoint_every": 10**6, "test_episodes": 1, "live": False} | (plan or {})
    return start(of or workload(), Plan(folder, **plan), resume=resume, arrangement=Arrangement(name=name, **options))


def finish(run):
    with contextlib.closing(run):
        return run.run()


def break_off(run, folder, kind=TrainingError):
    """The error that ends a run, which says as of which step the run is saved; and the state of its loop."""
    with pytest.raises(kind) as caught:
        finish(run)
    state = checkpoint.load(folder / "checkpoint.pt")["loop"]
    assert f"; the run is saved as of step {state['step']:,}: continue with --resume" in str(caught.value)
    return caught.value, state


# Every workload by every arrangement, and its folder


MOST = {
    "learner.batch": 64, "learner.update_interval": 64, "learner.learning_starts": 64, "learner.target_interval": 10,
    "replay.capacity": 256, "replay.presampled": 2, "exploration.random_steps": 64, "evaluation.interval": 50,
    "evaluation.episodes": 1, "actors.count": 1, "actors.local_storage": 32, "actors.sync_interval": 8,
    "model.batch": 16, "model.rollouts": 16, "model.segments": 4, "model.updates": 2, "steps": 150,
}  # fmt: skip
"""Keys of a workload, and what they are lowered to."""
KEEPERS = {"apart": [], "pipelined": ["keeper-0"], "two units": ["storage-0", "tree-0"], "learners": ["learner-1"]}
"""Processes beside a learner and an actor."""
APART = ["--arrangement", "apart"]
FLAGS = {
    "serial": [], "split": ["--split"], "apart": APART, "pipelined": ["--arrangement", "pipelined"],
    "two units": ["--arrangement", "pipelined", "--units", "two"], "learners": [*APART, "--learners", "2"],
    "copies": ["--arrangement", "copies", "--processes", "2"],
}  # fmt: skip
TAKEN = dict.fromkeys(("ddpg", "td3", "sac"), FLAGS) | {"dqn": FLAGS.keys() - {"split"}}
TAKEN |= {"a3c": {"serial", "split", "copies"}, "dyna_q": {"serial"}}
TAKEN |= dict.fromkeys(("memr", "mbpo"), ("serial", "split"))
"""The arrangements by which an algorithm trains."""
DAILY = {
    "cartpole_dqn": "two units", "cartpole_a3c": "copies", "cartpole_ddpg": "apart", "pendulum_sac": "pipelined",
    "pendulum_td3": "split", "hopper_td3": "learners",
}  # fmt: skip
CELLS = matrix(names(), FLAGS, brief=lambda name, by: DAILY.get(name, "serial") == by)


@pytest.mark.parametrize(("name", "by"), CELLS + matrix(ALGORITHMS, ["serial"], brief=lambda *_: True))
def test_a_workload_trains_by_an_arrangement_or_is_refused(tmp_path, name, by):
    """Shipped ones, made small, and what ``init`` writes of an algorithm."""
    keys, out = read_keys(name) | {"network.hidden": "[8]"}, tmp_path / "run"
    keys |= {key: min(int(keys[key]), most) for key, most in MOST.items() if key in keys}
    (tmp_path / "mine.toml").write_text("".join(f"{key} = {value}\n" for key, value in keys.items()))
    known = load(tmp_path / "mine.toml")
    is_taken, interval = by in TAKEN[known.algorithm], known.learner.update_interval
    code = main(["train", str(tmp_path / "mine.toml"), *FLAGS[by], "--test-episodes", "0", "--out", str(out)])
    assert (code, out.exists()) == ((0, True) if is_taken else (2, False))
    if not is_taken:
        return
    summary, points = json.loads((out / "summary.json").read_text()), read_rows(out)
    assert 150 <= summary["steps"] < 152
    intervals = [int(row["step"]) // 50 for row in points]
    if by == "copies":  # others may pass an interval, or take the last step, before the first looks
        assert 0 < len(intervals) == len({*intervals} & {1, 2, 3})
    else:
        assert intervals == [1, 2, 3]
    assert np.isfinite(summary["validation_best"])
    assert summary["validation_best_step"] in {int(row["step"]) for row in points}
    assert len(read_rows(out, "episodes.csv")) == summary["episodes"]
    assert {"best.pt", "checkpoint.pt"} <= {path.name for path in out.iterdir()}
    assert summary["updates"] > 0
    if by in KEEPERS or (by == "serial" and known.algorithm in ("dqn", "ddpg", "td3", "sac", "a3c")):
        assert summary["updates"] == summary["steps"] // interval - 63 // interval
    if by in KEEPERS:
        processes = summary["processes"]
        assert sorted(processes["cores"]) == sorted(["learner-0", "actor-0", *KEEPERS[by]])
        assert all(set(cores) <= os.sched_getaffinity(0) for cores in processes["cores"].values())
        assert processes["lead"] <= interval + 1
        assert processes["restarts"] == 0
        assert abs(summary["ratio"] - interval) * summary["updates"] <= interval  # of the last gradient step


def test_ctrl_c_saves_the_run_and_it_goes_on_from_there(tmp_path):
    run = begin(tmp_path)
    advance, save, before = run._loop.advance, run.save, signal.getsignal(signal.SIGINT)

    def interrupt():
        if run._loop.step >= 120:
            run._loop.advance = advance
            os.kill(os.getpid(), signal.SIGINT)
        return advance()

    run._loop.advance = interrupt
    run.save = lambda: (save(), run._loop.advance())  # as others go on after it
    error, state = break_off(run, tmp_path, Interrupted)
    assert str(error).startswith("interrupted; ")
    assert signal.getsignal(signal.SIGINT) is before
    assert 120 <= state["step"] < 300
    episodes = len(read_rows(tmp_path, "episodes.csv"))
    assert episodes == checkpoint.load(tmp_path / "checkpoint.pt")["episodes"]
    with pytest.raises(TrainingError, match=r"another run, which differs in arrangement\.strategy$"):
        begin(tmp_path, resume=True, strategy="global")
    summary = finish(begin(tmp_path, resume=True))
    assert (summary["steps"], summary["updates"]) == (300, 281)
    assert summary["episodes"] == len(read_rows(tmp_path, "episodes.csv")) >= episodes
    assert [int(row["step"]) // 100 for row in read_rows(tmp_path)] == [1, 2, 3]


def test_a_run_whose_environment_fails_in_a_child_is_saved(tmp_path):
    run = begin(tmp_path, of=workload(environment="tests.fake_environments:Raises-v0"))
    error, _ = break_off(run, tmp_path)
    assert "is on fire" in str(error)


def test_a_test_process_evaluates_while_training_goes_on(tmp_path, capfd):
    run = begin(tmp_path / "run", of=workload(steps=1000), plan={"test_process": True})
    summary, points = finish(run), read_rows(tmp_path / "run")
    steps = [int(row["step"]) for row in points]
    assert steps == sorted(set(steps))
    # The step of which the next gradient step is due, and two more that an actor may be ahead of that.
    assert all(0 <= int(row["step"]) - 19 - int(row["updates"]) <= 1 + 2 for row in points)
    assert summary["validation_best_step"] in steps
    assert checkpoint.load(tmp_path / "run" / "best.pt")["step"] == summary["validation_best_step"]
    assert "test process" not in capfd.readouterr().err


def test_a_checkpoint_owes_the_evaluations_that_it_lacks(tmp_path):
    run = begin(tmp_path / "run", of=workload(steps=1000), plan={"test_process": True})
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


def test_a_dead_test_process_is_a_warning(tmp_path, capfd):
    run = begin(tmp_path / "run", plan={"test_process": True})
    os.kill(run._tester.pid, signal.SIGKILL)
    run._tester._child._process.join()
    finish(run)
    assert capfd.readouterr().err.count("warning: the test process has ended; evaluations pause training") == 1
    assert [int(row["step"]) // 100 for row in read_rows(tmp_path / "run")][-1] == 3


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
    summary = finish(start(raced, plan, contestant="numpy"))
    assert FREE_AT + 5 < summary["updates"] < FREE_AT + 60
    assert summary["settled"]["updates"] < 60
    assert clock.read_progress(numbers)[2] / 1e9 == pytest.approx(summary["updates"], rel=0.2)
    assert float(read_rows(tmp_path / "run")[0]["seconds"]) > 10
    assert summary["seconds"] > 1000


# Answers


SETTINGS = {"arrangement": "pipelined", "actors": 2, "learner": "torch", "policy": "dense", "threads": 2}
SETTINGS |= {"fanout": 8, "batch": 32, "presampled": 3, "environments": 8, "learner.update_interval": 4}


def answer(settings=None, workload="cartpole_dqn", **changes):
    """Return what ``dse recommend --json`` writes, as far as a run reads it."""
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

    for changes, starts in (({"batch": 2048}, 2048), ({"environments": 600}, 1200)):  # once there can be a batch
        assert set_up(tmp_path, answer(changes)).workload.learner.learning_starts == starts


FAULTY = [
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
]


def test_a_faulty_answer_is_a_sentence_that_names_its_file(tmp_path):
    for content, facts in FAULTY:
        with refused(f"answer.json: {facts}"):
            set_up(tmp_path, content)
    for given in (["--fanout", "4"], ["--split"], ["--threads", "1"]):  # which the answer decides
        with refused(f"{given[0]} --mapping"):
            set_up(tmp_path, answer(), *given)


def test_an_answer_comes_from_a_file_or_the_standard_input(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(answer({"batch": 64}))))
    options = _parser().parse_args(["train", "cartpole_dqn"])
    assert set_up_answer("-", load("cartpole_dqn"), options).workload.learner.batch == 64
    (tmp_path / "half.json").write_text('{"workload": ')
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    for file in ("half.json", "none.json", "bytes.json"):
        assert main(["train", "cartpole_dqn", "--mapping", str(tmp_path / file)]) == 2
        assert f"{file}: " in capsys.readouterr().err


# Devices, and actor and critic in two processes


HERE = {"learner": "gpu"} | dict.fromkeys(("sampling", "updating", "storage"), "cpu")
WEIGHTS = np.array([1.0, 0.5, 0.25, 0.75], np.float32)


@pytest.fixture
def device(monkeypatch):
    """Stand in for a CUDA device where there is none."""
    if torch.cuda.is_available():
        return
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(base, "device_of", lambda name: torch.device("cpu"))


def short(folder):
    """Options of a run of few steps in a folder."""
    return ["--steps", "1100", "--test-episodes", "1", "--out", str(folder / "run")]


def test_actors_fetch_what_a_learner_on_a_device_has_learned(device):
    loop = ParallelLoop(small(steps=1 << 40), Arrangement(name="apart"), device="cuda")
    with contextlib.closing(loop):
        advance(loop, lambda: loop.updates >= 5)
        with loop.paused():
            acting, first = np.empty_like(loop.learner.parameters), learners.make(loop.workload).weights()
            loop.board.acting_weights(acting, 0)
            np.testing.assert_array_equal(acting, loop.learner.weights())
            assert not np.array_equal(acting, first)
            saved = loop.state_dict()
    again = ParallelLoop(small(steps=1 << 40), Arrangement(name="apart"), device="cpu")
    again.load_state_dict(saved)
    np.testing.assert_array_equal(again.learner.weights(), acting)
    again.close()


def test_several_learners_share_no_device(device):
    with pytest.raises(TrainingError, match=r"cpu.*--learners 1"):
        ParallelLoop(small(), Arrangement(name="apart", learners=2, sync="lock"), device="cuda")


@pytest.mark.parametrize("arrangement", ["serial", "pipelined"])
def test_an_answer_with_its_learner_on_a_gpu_runs(device, arrangement, tmp_path):
    asked = ask("h200", "cartpole_dqn", fix={"arrangement": arrangement, **HERE})
    answer = answer_question(asked)
    command = emit.training_command(answer)
    assert command
    given = parser("").parse_args(command.split()[3:])
    assert given.device == "cuda"
    assert (given.arrangement or "serial") == arrangement
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(input_of_run(asked, answer)))
    assert main(["train", "cartpole_dqn", "--mapping", str(path), *short(tmp_path)]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["device"] == "cuda"
    assert summary["updates"] > 0


def test_a_tree_on_a_gpu_runs_serially(with_cupy, tmp_path):
    with_cupy()
    assert main(["train", "cartpole_dqn", "--contestant", "cupy", *short(tmp_path)]) == 0


CUPY, ARRANGED = {"contestant": "cupy", "fanout": 8}, ("serial", "apart")


CHANGED = [
    ("serial", {"sampling": (CUPY, "gpu"), "updating": (CUPY, "gpu")}, ""),
    ("serial", {"sampling": (CUPY, "gpu")}, "run_has_tree_at gpu cpu"),
    ("serial", {"sampling": ({}, "fpga")}, "run_has_tree_at cpu fpga"),
    ("serial", {"storage": ({}, "gpu")}, "run_has_records_at cpu gpu"),
    ("serial", {"sampling": ({"threads": 2}, "cpu")}, "run_has_plain_tree"),
    ("serial", {"sampling": ({"options": {"propagate": "delta"}}, "cpu")}, "run_has_plain_tree"),
    ("serial", {"learner": ({"learners": 2}, "cpu")}, "one_process_one_learner"),
    ("serial", {"learner": ({"pipelines": 2}, "fpga")}, "run_has_no_fpga fpga"),
    ("apart", {"sampling": ({"contestant": "numpy"}, "cpu")}, "run_shares_tree numba numpy"),
    ("apart", {"learner": ({"learners": 2}, "gpu")}, "learners_share_weights_at cpu gpu"),
    ("apart", {"learner": ({"devices": 2}, "gpu")}, "run_has_one_device"),
]


def test_an_answer_has_the_settings_of_a_run_or_why_not():
    questions = {name: ask("h200", "cartpole_dqn", fix={"arrangement": name, "learner": "cpu"}) for name in ARRANGED}
    answers = {name: answer_question(question) for name, question in questions.items()}
    for arrangement, changes, why in CHANGED:
        changed = answers[arrangement]
        for part, change in changes.items():
            changed = replace_details(changed, part, *change)
        note, settings = emit.why_not_run(changed), emit.list_run_settings(questions[arrangement], changed)
        assert " ".join([note.kind, *note.values.values()] if note else []) == why
        assert (KEY in settings, WHY_NOT in settings) == (not why, bool(why)), why


@pytest.mark.parametrize("algorithm", ["ddpg", slow("td3"), "sac", slow("a3c")])
def test_actor_and_critic_in_two_processes_learn_the_same(algorithm):
    workload = tiny(algorithm, gradient_clip=0.5)
    one, two = (learners.make(workload, name, seed=3) for name in ("torch", "split"))
    assert two.pids == ()  # what is never trained has no child
    with contextlib.closing(two):
        for turn in range(6):
            if turn == 3:
                two.load_state_dict(one.state_dict())
            stepped = [each.step(batch_of(workload, seed=turn), WEIGHTS) for each in (one, two)]
            (pid,) = two.pids
            np.testing.assert_allclose(stepped[0].priorities, stepped[1].priorities, rtol=1e-5, atol=1e-6)
            assert stepped[0].losses == pytest.approx(stepped[1].losses, rel=1e-5, abs=1e-6)
        ours, theirs = one.state_dict(), two.state_dict()
        for key in ("weights", "targets", "mean", "square"):
            np.testing.assert_allclose(ours[key], theirs[key], rtol=1e-4, atol=1e-6)
        assert ours["updates"] == theirs["updates"]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ProcessLost, match=r"^the process of the policy was ended$"):  # a run says how to continue
            two.step(batch_of(workload), WEIGHTS)
    assert not lives(pid)
