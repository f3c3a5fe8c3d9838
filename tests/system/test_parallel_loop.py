"""Training by several processes: the ratio, its end, pauses, processes that die, and records that are whole."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from impls.training.errors import TrainingError
from tests import numbered
from tests.committed import ROOT
from tests.matrix import slow
from tests.nursery import UNCOVERED
from tests.parallel_runs import PATIENCE_SECONDS, advance, kill, lives, running, small, until

NUMBERED = {"environment": "tests.numbered:Numbered-v0", "shape": (numbered.SIZE,), "choices": 3}


def ended(loop, end):
    """Take every gradient step of a run up to environment step ``end``; returns the report."""
    loop.until(end)
    advance(loop, lambda: loop.done(end))
    return loop.report()


def check_ratio(loop, workload, report):
    """All gradient steps due are taken and no more, and the ratio was kept throughout."""
    interval, starts = workload.learner.update_interval, workload.learner.learning_starts
    base = (starts - 1) // interval * interval
    assert report["updates"] == (report["steps"] - base) // interval == loop.updates
    assert 0 < report["lead"] <= interval + workload.actors.count * workload.actors.environments
    assert report["lag"] == 0


@pytest.mark.parametrize(
    ("name", "strategy", "changes"),
    [
        ("apart", "two_lock_checked", {}),
        ("pipelined", "two_lock_checked", {"presampled": 3, "count": 2, "environments": 2, "sync_interval": 3}),
        slow("apart", "global", {"count": 3, "update_interval": 8, "presampled": 2}),
        slow("pipelined", "global", {"environments": 4, "update_interval": 5, "local_storage": 4, "sync_interval": 2}),
    ],
)
def test_a_run_ends_with_every_gradient_step_that_is_due(name, strategy, changes):
    workload = small(**changes)
    with running(workload, name, strategy=strategy) as loop:
        report = ended(loop, 300)
        assert 300 <= report["steps"] < 300 + workload.actors.environments
        check_ratio(loop, workload, report)
        assert set(report["cores"]) == {*loop.pids, "learner-0"}
        assert report["stale_batches"]["most"] <= workload.replay.presampled + (name == "pipelined")
        later = ended(loop, 400)
        assert 400 <= later["steps"] < 400 + workload.actors.environments
        check_ratio(loop, workload, later)
        assert loop.cpu_seconds() > 0


@pytest.mark.slow
def test_frame_stacks_and_priorities_of_actors_own():
    workload = small(
        "tests.fake_environments:UnevenFrames-v0", shape=(84, 84), dtype="uint8", frames=4, kind="mlp", steps=90,
        local_storage=8, initial_priority="td_error", presampled=2, capacity=256, update_interval=4,
    )  # fmt: skip
    with running(workload, "pipelined") as loop:
        check_ratio(loop, workload, ended(loop, 90))
        assert len(loop.buffer) > 0


def test_a_free_ratio_takes_gradient_steps_as_fast_as_it_can():
    workload = small(steps=10**9, update_interval=64)
    with running(workload, ratio="free") as loop:
        advance(loop, lambda: loop.updates >= 30 and loop.step >= 100)
        assert loop.report()["lag"] > 0 or loop.report()["lead"] > 0


def test_who_samples_waits_for_the_first_record():
    # A killed actor takes its local storage with it, so that learning may be due before anything is stored.
    workload = dataclasses.replace(
        small(environments=1, local_storage=50), environment="tests.fake_environments:Endless-v0"
    )
    with running(workload) as loop:
        report = ended(loop, 120)
        assert report["updates"] == report["steps"] - 19
        assert report["lead"] > 2  # as far as the first record is away


@pytest.mark.parametrize("name", ["apart", "pipelined"])
def test_infinite_losses_end_a_run_though_td_errors_are_finite(name):
    with (
        running(small("tests.fake_environments:VastReward-v0"), name) as loop,
        pytest.raises(TrainingError, match=r"losses are \{.*inf.*\}; training has diverged"),
    ):
        ended(loop, 300)


def test_processes_rest_while_a_pause_lasts():
    with running(small(steps=10**6, count=2), "pipelined") as loop:
        advance(loop, lambda: loop.updates > 5)
        with loop.paused(), loop.paused():
            before = loop.step, loop.updates, loop.buffer.written
            time.sleep(0.1)
            assert (loop.step, loop.updates, loop.buffer.written) == before
            assert before[0] == before[2]
        steps = loop.step
        advance(loop, lambda: loop.step > steps + 50)


def test_a_state_goes_on_with_other_random_numbers():
    workload = small(NUMBERED["environment"], shape=(numbered.SIZE,), choices=3, random_steps=10**6, steps=10**6)
    with running(workload) as loop:
        ended(loop, 60)
        state = loop.state_dict()
    actions = state["buffer"]["arrays"]["action"]
    with running(workload, saved=state) as other:
        assert (other.step, other.updates) == (state["step"], state["updates"])
        ended(other, 120)
        again = other.buffer.state_dict()["arrays"]["action"]
        np.testing.assert_array_equal(again[:60], actions)
        assert (again[60:120] != actions).any()
        assert other.updates == other.step - 19


@pytest.mark.parametrize(("name", "strategy"), [slow("apart", "global"), ("pipelined", "two_lock_checked")])
def test_killed_actors_begin_anew_and_no_step_is_lost(name, strategy):
    workload = small(steps=10**6, count=2)
    with running(workload, name, strategy=strategy) as loop:
        for number in range(2):
            advance(loop, lambda least=loop.step + 40: loop.step >= least)
            kill(loop, f"actor-{number % 2}")
            advance(loop, lambda number=number: loop.restarts == number + 1)
        report = ended(loop, loop.step + 200)
        check_ratio(loop, workload, report)
        assert report["restarts"] == 2


PARENT = """
import signal, sys
from tests.parallel_runs import advance, running, small
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job has not
    with running(small(steps=10**9), sys.argv[1], ratio=sys.argv[2]) as loop:
        advance(loop, lambda: loop.updates > 5)
        print(*loop.pids.values(), flush=True)
        while True:
            loop.advance()
"""


@pytest.mark.parametrize(
    ("name", "ratio", "number"), [("pipelined", "free", signal.SIGKILL), ("apart", "kept", signal.SIGINT)]
)
def test_children_end_with_their_parent(tmp_path, name, ratio, number):
    program = tmp_path / "parent.py"
    program.write_text(PARENT)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    variables = os.environ | UNCOVERED | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(program), name, ratio]
    with subprocess.Popen(command, cwd=ROOT, env=variables, start_new_session=True, **pipes) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == (2 if name == "pipelined" else 1)
        os.killpg(parent.pid, number) if number == signal.SIGINT else parent.send_signal(number)
        try:
            _, said = parent.communicate(timeout=PATIENCE_SECONDS)
        finally:
            parent.kill()
    until(lambda: not any(map(lives, pids)))
    assert said.count("Traceback") == (number == signal.SIGINT)  # the parent's own


@pytest.mark.parametrize(("name", "strategy"), [slow("apart", "global"), ("pipelined", "two_lock_checked")])
def test_no_record_is_torn_or_lost(name, strategy, inserts=20_000):
    environments, interval = (16, 64) if inserts < 10**6 else (256, 1024)
    shape = {"count": 2, "environments": environments, "update_interval": interval, "batch": 32, "capacity": 4096}
    workload = small(**NUMBERED, **shape, steps=inserts)
    with running(workload, name, strategy=strategy) as loop:
        learn = loop.learner.step

        def step(rows, weights):
            numbered.check(rows)
            return learn(rows, weights)

        loop.learner.step = step
        report = ended(loop, inserts)
        check_ratio(loop, workload, report)
        assert loop.buffer.written == report["steps"]
        assert loop.buffer.lost == 0
        numbered.check_replay(loop.buffer.state_dict(), 4096)


def test_this_process_has_its_cores_again():
    before = os.sched_getaffinity(0)
    with running(small(), cores=(min(before),)) as loop:
        assert loop.report()["cores"] == {"learner-0": [min(before)], "actor-0": [min(before)]}
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
