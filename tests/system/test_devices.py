"""Learners away from the CPU: on a device that is not there, and actor and critic in two processes.

The device that is not there computes on the CPU, in memory of its own, so that what is not fetched is not seen.
"""

import contextlib
import itertools
import json
import os
import signal

import numpy as np
import pytest

from benchmarks.topics.profile import cells
from benchmarks.topics.profile.cells import PRESETS, groups
from benchmarks.topics.profile.parts import World, make
from dse.answers import emit
from dse.answers.mapping_answer import input_of_run
from dse.mapping.question import answer_question, ask
from impls.training import TrainingError, learners
from impls.training.__main__ import main
from impls.training.arrangement import Arrangement
from impls.training.errors import ProcessLost
from impls.training.options import KEY, WHY_NOT, parser
from impls.training.parallel.loop import ParallelLoop
from tests.learning import batch_of, tiny
from tests.parallel_runs import advance, lives, small
from tests.solver_cases import replace_details

torch = pytest.importorskip("torch", reason="learners need the extra `train`")
from impls.training.learners.torch_learner import base  # noqa: E402

HERE = {"learner": "gpu"} | dict.fromkeys(("sampling", "updating", "storage"), "cpu")
SPLIT = ("ddpg", "td3", "sac", "a3c")
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


def test_weights_on_a_device_are_fetched_and_equal_those_of_the_cpu(device):
    host, away = (learners.make(tiny("sac"), "torch", device=name) for name in ("cpu", "cuda"))
    before = away.parameters.copy()
    for turn in range(3):
        for one in (host, away):
            one.step(batch_of(one.workload, seed=turn), WEIGHTS)
    np.testing.assert_array_equal(away.parameters, before)  # its own memory has moved on without it
    np.testing.assert_allclose(away.latest(), host.weights(), rtol=1e-3, atol=1e-5)
    assert host.latest() is host.parameters


@pytest.mark.parametrize("name", ["apart", "pipelined"])
def test_actors_fetch_what_a_learner_on_a_device_has_learned(device, name):
    loop = ParallelLoop(small(steps=1 << 40), Arrangement(name=name), device="cuda")
    with contextlib.closing(loop):
        advance(loop, lambda: loop.updates >= 5)
        with loop.paused():
            acting, first = np.empty_like(loop.learner.parameters), learners.make(loop.workload).weights()
            loop.board.acting_weights(acting, 0)
            np.testing.assert_array_equal(acting, loop.learner.weights())
            assert not np.array_equal(acting, first)
            saved = loop.state_dict()
    again = ParallelLoop(small(steps=1 << 40), Arrangement(name=name), device="cpu")
    again.load_state_dict(saved)
    np.testing.assert_array_equal(again.learner.weights(), acting)
    again.close()


def test_a_profile_times_gradient_steps_on_a_device_where_there_is_one(device, monkeypatch):
    def batches():
        every = itertools.chain.from_iterable(groups(tiny("sac"), PRESETS["brief"], 2))
        return {cell.batch for cell in every if cell.contestant == "cuda"}

    assert not batches()
    monkeypatch.setattr(cells, "fingerprint", lambda: {"gpus": ["A GPU"]})
    assert batches() == {*PRESETS["brief"].batches, tiny("sac").learner.batch}
    step = make(World(tiny("sac"), 0, 1 << 20), {"contestant": "cuda", "batch": 4, "options": {}})
    assert np.shape(step(0)[0]) == (4,)


def test_several_learners_share_no_device(device):
    with pytest.raises(TrainingError, match=r"cpu.*--learners 1"):
        ParallelLoop(small(), Arrangement(name="apart", learners=2, sync="lock"), device="cuda")


@pytest.mark.parametrize("arrangement", ["serial", "apart", "pipelined"])
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


CUPY = {"contestant": "cupy", "fanout": 8}


@pytest.mark.parametrize(
    ("arrangement", "changes", "why"),
    [
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
    ],
)
def test_an_answer_has_the_settings_of_a_run_or_why_not(arrangement, changes, why):
    asked = ask("h200", "cartpole_dqn", fix={"arrangement": arrangement, "learner": "cpu"})
    answer = answer_question(asked)
    changed = answer
    for part, change in changes.items():
        changed = replace_details(changed, part, *change)
    note, told = emit.why_not_run(changed), emit.list_run_settings(asked, changed)
    assert " ".join([note.kind, *note.values.values()] if note else []) == why
    assert (KEY in told, WHY_NOT in told) == (not why, bool(why))


@pytest.mark.parametrize("algorithm", SPLIT)
def test_actor_and_critic_in_two_processes_learn_the_same(algorithm):
    workload = tiny(algorithm, gradient_clip=0.5)
    one, two = (learners.make(workload, name, seed=3) for name in ("torch", "split"))
    assert two.pids == ()  # what is never trained has no child
    with contextlib.closing(two):
        for turn in range(8):
            if turn == 4:
                two.load_state_dict(one.state_dict())
            stepped = [each.step(batch_of(workload, seed=turn), WEIGHTS) for each in (one, two)]
            (pid,) = two.pids
            np.testing.assert_allclose(stepped[0].priorities, stepped[1].priorities, rtol=1e-5, atol=1e-6)
            assert stepped[0].losses == pytest.approx(stepped[1].losses, rel=1e-5, abs=1e-6)
        ours, theirs = one.state_dict(), two.state_dict()
        for key in ("weights", "targets", "mean", "square"):
            np.testing.assert_allclose(ours[key], theirs[key], rtol=1e-4, atol=1e-6)
        assert ours["updates"] == theirs["updates"]
    assert not lives(pid)


def test_a_child_that_was_killed_is_told():
    learner = learners.make(tiny("ddpg"), "split")
    learner.step(batch_of(learner.workload), WEIGHTS)
    os.kill(learner.pids[0], signal.SIGKILL)
    with pytest.raises(ProcessLost, match=r"^the process of the policy was ended$"):  # a run says how to continue
        learner.step(batch_of(learner.workload), WEIGHTS)
    learner.close()


def test_a_run_by_two_processes(tmp_path):
    assert main(["train", "pendulum_td3", "--split", "--arrangement", "apart", *short(tmp_path)]) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["updates"] > 0
