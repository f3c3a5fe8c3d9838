"""Small runs, in a folder or by several processes, for the tests of training; and whether two are the same run."""

import contextlib
import dataclasses
import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from impls.training import TrainingError, checkpoint
from impls.training.arrangement import COPIES, Arrangement
from impls.training.copies.loop import CopiesLoop
from impls.training.parallel.loop import ParallelLoop
from impls.training.run import Plan, start
from tests.learning import tiny

ACTORS = ("count", "environments", "local_storage", "sync_interval")
PATIENCE_SECONDS = 100.0  # until a test gives up on what does not go on


def until(condition):
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(1e-3)


def small(environment="tests.fake_environments:Fine-v0", **changes):
    """A workload of few steps, small networks and a fake environment."""
    known = {"environment": environment, "steps": 300, "learning_starts": 20, "batch": 4, "capacity": 512}
    every = {"choices": 2} | known | changes
    actors = {key: every.pop(key) for key in tuple(every) if key in ACTORS}
    made = tiny(**every)
    return dataclasses.replace(made, actors=dataclasses.replace(made.actors, **actors))


def begin_run(workload, folder, every=20, episodes=0, **options):
    """A serial run that has begun in a folder."""
    options = {"contestant": "numpy"} | options
    return start(workload, Plan(folder, every, episodes, live=False), **options)


def run_to(workload, folder, until=None, every=100, episodes=3, seed=3, **options):
    """Run in a folder to a step, or to the end; returns the summary where it has ended."""
    with contextlib.closing(begin_run(workload, folder, every, episodes, seed=seed, **options)) as run:
        return run.run(until)


def read_rows(folder, name="curve.csv"):
    """The rows of a file of a run, by the names of its columns."""
    columns, *lines = (folder / name).read_text().splitlines()
    return [dict(zip(columns.split(","), line.split(","), strict=True)) for line in lines]


def same_run(whole, parts):
    """See that two folders hold the same run, bit for bit: curve, episodes, summary, weights and state."""
    found = []
    for folder in (whole, parts):
        curve = [[*row.values()][:7] for row in read_rows(folder)]  # what no clock decides
        summary = json.loads((folder / "summary.json").read_text())
        for key in ("seconds", "throughput", "settled", "utc", "command", "versions"):
            del summary[key]
        states = [checkpoint.load(folder / name) for name in ("checkpoint.pt", "best.pt")]
        found.append((curve, (folder / "episodes.csv").read_text(), summary, states[0]["loop"], states[1]))
    np.testing.assert_equal(*found)


def make_loop(workload, name="apart", **options):
    """The loop of an arrangement of several processes; "two units" are those of a replay, pipelined."""
    if name == "two units":
        name, options = "pipelined", options | {"units": "two"}
    return (CopiesLoop if name == COPIES else ParallelLoop)(workload, Arrangement(name=name, **options))


@contextlib.contextmanager
def running(workload, name="apart", saved=None, **options):
    """A loop of the workload, from a ``saved`` state on, which is closed in the end with no process left."""
    loop, pids = make_loop(workload, name, **options), []
    try:
        if saved is not None:
            loop.load_state_dict(saved)
            check_loaded(loop, saved)
        loop.begin()
        pids += loop.pids.values()
        yield loop
    finally:
        pids += loop.pids.values()
        loop.close()
        assert not [pid for pid in pids if lives(pid)]


def check_loaded(loop, saved):
    """A loop that has just loaded a state has the same state, and hands its weights out."""
    state = loop.state_dict()
    for key in state.keys() & saved.keys() - {"epoch", "restarts"}:
        np.testing.assert_equal(state[key], saved[key], key)
    assert state["epoch"] == saved["epoch"] + 1
    if "buffer" in state:
        handed_out = np.empty_like(loop.learner.parameters)
        loop.board.fetch(handed_out, 0)
        np.testing.assert_array_equal(handed_out, loop.learner.weights())


def check_counts(loop, lost=0):
    """Each step and record is counted once, but for at most so many lost ones; returns the state."""
    with loop.paused():
        state = loop.state_dict()
        buffers = loop.buffers if loop.arrangement.name == COPIES else [loop.buffer]
        assert abs(sum(buffer.written for buffer in buffers) - state["step"]) <= lost
        assert (loop.step, loop.updates) == (state["step"], state["updates"])
        if "numbers" in state:
            steps, updates = state["numbers"]["steps"].sum(0)[:2]
            assert max(abs(steps - loop.step), abs(updates - loop.updates)) <= lost
        else:
            assert state["learner"]["steps"] == loop.updates
        np.testing.assert_array_equal(loop.learner.parameters, state["learner"]["weights"])
    return state


def advance(loop, is_there, each=lambda: None):
    """Advance a loop until a condition holds; returns the episodes that ended."""
    end, done, episodes, last = 0.0, None, [], time.monotonic() + 10 * PATIENCE_SECONDS
    while not is_there():
        if done != (loop.step, loop.updates, loop.restarts):
            end, done = min(last, time.monotonic() + PATIENCE_SECONDS), (loop.step, loop.updates, loop.restarts)
        episodes += loop.advance()
        each()
        assert time.monotonic() < end, f"after {loop.step} steps and {loop.updates} gradient steps"
    return episodes


def lives(pid):
    """Whether a process goes on: neither ended nor waiting to be noticed by its parent."""
    return _state(pid) not in "ZX"


def stop(pid):
    """Stop a process by SIGSTOP and wait until it is stopped: on a busy machine it may run on for a moment."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: _state(pid) in "Tt")


def _state(pid):
    """The letter by which the system says what a process does, "X" where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def kill(loop, name):
    """Kill a process of a loop by its name."""
    os.kill(loop.pids[name], 9)


def lose(loop, name):
    """Kill a process of a loop, which then ends by a sentence that names the process; returns the sentence."""
    kill(loop, name)
    with pytest.raises(TrainingError, match=rf"^{name.replace('-', ' ')} was ended from outside") as told:
        advance(loop, lambda: False)
    return str(told.value)
