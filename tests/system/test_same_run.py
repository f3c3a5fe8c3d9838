"""Runs that are the same bit for bit: whole or in parts, after whatever ended them, by one seed, serial or copied."""

import contextlib
import dataclasses
import itertools
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("gymnasium", reason="training needs the extra `train`")
pytest.importorskip("numba")
from impls.training import TrainingError, checkpoint, learners, load
from impls.training.__main__ import main
from impls.training.arrangement import COPIES, Arrangement
from impls.training.copies.loop import CopiesLoop
from impls.training.interrupts import Interrupted
from impls.training.loop import SerialLoop
from impls.training.workload import Evaluation, Model
from tests import curves
from tests.committed import ROOT
from tests.learning import ALGORITHMS, assert_goes_on, batch_of, change, tiny
from tests.matrix import slow
from tests.nursery import UNCOVERED, run_python
from tests.parallel_runs import begin_run, read_rows, run_to, same_run, small, until
from tests.profiled import write_workload
from tests.system.test_actors import fake


@pytest.fixture
def path(tmp_path):
    """The file of a workload of few steps."""
    return write_workload(tmp_path)


@pytest.fixture
def workload(path):
    settings = {"steps": 600, "learning_starts": 100, "batch": 16, "capacity": 300, "local_storage": 3, "hidden": (16,)}
    evaluation = Evaluation(interval=150, episodes=2, solved=20.0)
    return change(load(path), initial_priority="td_error", evaluation=evaluation, **settings)


@pytest.fixture
def folders(tmp_path):
    return tmp_path / "whole", tmp_path / "parts"


def command(path, out, *more):
    given = ["train", str(path), "--contestant", "numpy", "--checkpoint-every", "100", "--test-episodes", "2"]
    return [*given, "--steps", "600", "--out", str(out), *more]


VECTOR = {"environments": 7, "count": 2, "sync_interval": 4, "steps": 450}
PENDULUM = {"environment": "Pendulum-v1", "shape": (3,), "choices": 0, "size": 1, "steps": 450}
RESUMED = {
    "dqn": {},
    "two actors": {"presampled": 3, "count": 2, "sync_interval": 4},
    "sac": {"algorithm": "sac"},
    "td3": {"algorithm": "td3", "count": 3, "sync_interval": 2},
    "vector of environments": VECTOR,
    "separate environments": VECTOR | {"environment": "tests.fake_environments:OpaqueCarts-v0"},
    "memr": {"algorithm": "memr", **PENDULUM},
    "mbpo": {"algorithm": "mbpo", "alpha": 0.0, "model": Model(kind="ensemble", horizon=2), **PENDULUM},
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_ends_as_a_whole_one(workload, folders, name):
    workload = change(workload, **RESUMED[name])
    whole = run_to(workload, folders[0])
    assert run_to(workload, folders[1], until=290) is None
    if workload.steps > 511:
        assert run_to(workload, folders[1], until=511, resume=True) is None
    run_to(workload, folders[1], resume=True)
    same_run(*folders)
    assert whole == json.loads((folders[0] / "summary.json").read_text())
    points = read_rows(folders[0])
    # Weights are evaluated once an interval, in the turn that comes to its end.
    assert [int(point["step"]) // 150 for point in points] == [*range(1, workload.steps // 150 + 1)]
    assert all(int(point["step"]) % 150 < workload.actors.environments for point in points)
    assert (whole["test_episodes"], whole["validation_best"]) == (3, max(float(row["mean_score"]) for row in points))
    assert whole["updates"] == whole["steps"] // 2 - 99 // 2
    assert len(read_rows(folders[0], "episodes.csv")) == whole["episodes"]
    rates = whole["throughput"]
    assert (rates["update_frame_hz"], rates["gpu_percent"]) == (rates["update_hz"] * 16, None)


def test_a_done_run_goes_on_to_more_steps(workload, folders, capsys):
    shorter = change(workload, steps=400)
    run_to(workload, folders[0])
    assert run_to(shorter, folders[1])["steps"] == 400
    with pytest.raises(TrainingError, match=r"--steps than 400"):
        run_to(shorter, folders[1], resume=True)
    assert run_to(workload, folders[1], until=500, resume=True) is None
    said = capsys.readouterr().err
    assert ("600" in said, "beta" in said) == (True, False)
    assert not (folders[1] / "summary.json").exists()  # it is not done any more
    assert run_to(workload, folders[1], resume=True)["steps"] == 600
    same_run(*folders)


def test_beta_does_not_fall_back_at_more_steps(workload, tmp_path, capsys):
    for steps in (150, 200, 250):
        longer = change(workload, steps=steps, beta_end=1.0)
        with contextlib.closing(begin_run(longer, tmp_path / "run", resume=steps > 150)) as run:
            assert run._loop.beta() == (1.0 if steps > 150 else 0.4)
            assert run.run()["steps"] == steps
    assert capsys.readouterr().err.count("beta") == 2


@pytest.mark.parametrize("kills", [1, slow(9)])
def test_a_killed_run_is_resumed(path, folders, kills):
    """The run is killed after its first checkpoint, at no chosen moment, or again and again, whatever it does."""
    whole, parts = folders
    more = []
    for patience in np.random.default_rng(0).uniform(0, range(kills)):
        words = [sys.executable, "-m", "impls.training", *command(path, parts, *more)]
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            until((parts / "checkpoint.pt").exists)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(patience)
            child.kill()
        more = ["--resume"]
        if is_done := (parts / "summary.json").exists():
            assert kills > 1
            break
    assert main(command(path, whole)) == 0
    assert is_done or main(command(path, parts, "--resume")) == 0
    same_run(whole, parts)


ASKED = {"training": (signal.SIGTERM, 317, 317), "an evaluation": (signal.SIGINT, 4, 300)}
"""The signal by which a run is asked to end; at which step, or episode of evaluations; the step that is saved."""


@pytest.mark.parametrize("where", ASKED)
def test_a_run_asked_to_end_is_saved_and_resumed(workload, folders, where):
    number, moment, step = ASKED[where]
    workload, count = change(workload, steps=450), itertools.count(1)
    run_to(workload, folders[0])
    with contextlib.closing(begin_run(workload, folders[1], 10**6, 3, seed=3)) as run:
        target, name = (run._loop, "advance") if where == "training" else (run._evaluated, "reset")
        plain = getattr(target, name)

        def ask(*given):
            if next(count) == moment:
                os.kill(os.getpid(), number)
            return plain(*given)

        setattr(target, name, ask)
        with pytest.raises(Interrupted, match=rf" at [\d,.]+/s .* step {step}: .*--resume"):
            run.run()
    run_to(workload, folders[1], resume=True)
    same_run(*folders)


@pytest.mark.parametrize(("limit", "file"), [(2_000, "checkpoint.pt|best.pt"), slow(-7, "episodes.csv")])
def test_a_run_on_a_full_disk_is_resumed(path, folders, limit, file):
    """After the first checkpoint files may grow to a limit, or to 7 bytes above the episodes'."""
    pytest.importorskip("resource")
    whole, parts = folders
    code = f"""
import resource, sys
from impls.training import checkpoint
from impls.training.__main__ import main
save = checkpoint.save
def saved(state, path):
    save(state, path)
    if path.name == "checkpoint.pt":
        limit = {limit} if {limit} > 0 else path.with_name("episodes.csv").stat().st_size - {limit}
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1))
checkpoint.save = saved
sys.exit(main({command(path, parts)!r}))
"""
    said = run_python("-c", code, exit_code=2, **UNCOVERED).stderr.splitlines()[-1]
    assert re.match(rf"error: \S*({file}): ", said)
    assert all((parts / name).read_text().endswith("\n") for name in ("curve.csv", "episodes.csv"))
    assert not list(parts.glob(".*.part"))
    assert 0 < checkpoint.load(parts / "checkpoint.pt")["loop"]["step"] < 600
    assert main(command(path, whole)) == 0
    assert main(command(path, parts, "--resume")) == 0
    same_run(whole, parts)


# A learner and a loop


@pytest.mark.parametrize("algorithm", (*ALGORITHMS, "a3c"))
@pytest.mark.parametrize("name", learners.names())
def test_a_resumed_learner_goes_on_alike(algorithm, name):
    first, second = (learners.make(tiny(algorithm), name, seed=seed) for seed in (1, 2))
    batches = [batch_of(first.workload, seed=seed) for seed in range(7)]
    weights = np.linspace(0.1, 1, 4).astype(np.float32)
    for batch in batches[:3]:
        first.step(batch, weights)
    assert_goes_on(first, second, lambda learner: learner.step(batches[learner.steps], weights), 4)


LOOPS = {"torch, dense": "numpy", "dense, torch": "numpy", "dense, dense": "numba"}
"""Implementations of a learner and of the policy by which actors act, and a tree."""


@pytest.mark.parametrize("algorithm", ["sac", "a3c"])
@pytest.mark.parametrize("pair", LOOPS)
def test_a_resumed_loop_goes_on_alike(algorithm, pair):
    workload = change(fake(replay={"initial_priority": "td_error"}), algorithm=algorithm)
    if algorithm == "a3c":
        workload = change(workload, batch=3, update_interval=3, learning_starts=3)
    made = dict(zip(("learner", "policy"), pair.split(", "), strict=True)) | {"contestant": LOOPS[pair], "seed": 1}
    first, second = (SerialLoop(workload, **made) for _ in range(2))
    for _ in range(40):
        first.advance()
    assert_goes_on(first, second, lambda loop: (loop.advance(), loop.losses), 30)


ON_POLICY = dict.fromkeys(("batch", "update_interval", "learning_starts"), 3) | {"capacity": 0}
AS_COPIES = {
    "dqn": {},
    "dqn, in turns": {"local_storage": 8, "presampled": 2, "environments": 2},
    "dyna_q": {"algorithm": "dyna_q"},  # without model workers
    "a3c": {"algorithm": "a3c"} | ON_POLICY,
}


@pytest.mark.parametrize("name", AS_COPIES)
def test_one_copy_is_the_serial_loop(name):
    copied = small(steps=400, **AS_COPIES[name])
    plain = dataclasses.replace(copied, algorithm="dqn") if copied.algorithm == "dyna_q" else copied
    serial, copies = SerialLoop(plain, seed=3), CopiesLoop(copied, Arrangement(name=COPIES), seed=3)
    with contextlib.closing(serial), contextlib.closing(copies):
        ended = 0
        for _ in range(200):
            episodes = serial.advance()
            assert copies.advance() == episodes
            assert (copies.step, copies.updates) == (serial.step, serial.updates)
            ended += len(episodes)
        assert min(serial.updates, ended) > 10
        assert_array_equal(copies.learner.parameters, serial.learner.parameters)
        assert_array_equal(copies.learner.vectors().square, serial.learner.vectors().square)


# What was kept (tests/curves.py)


def test_learners_begin_with_the_kept_weights():
    kept = json.loads(curves.FILE.read_text())
    assert len(kept["weights"]) == len(kept["curves"]) > 20
    assert not list(curves.list_changes(kept, curves.hash_all(["weights"])))


def test_the_same_seed_gives_the_kept_curve():
    kept, part = json.loads(curves.FILE.read_text()), ("pendulum_sac", "dense")
    is_comparable = kept["made with"] == curves.describe_machine()
    expected = kept["curves"][" ".join(part)] if is_comparable else curves.hash_curve(*part)
    assert curves.hash_curve(*part) == expected


def test_changed_and_missing_hashes_are_listed():
    before, after = {"weights": {"a": "1", "b": "2", "c": "3"}}, {"weights": {"a": "1", "b": "3", "d": "4"}}
    assert list(curves.list_changes(before, after)) == ["weights of b", "weights of c", "weights of d"]
