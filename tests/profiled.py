"""A tiny workload and preset for the tests of profiling, and made-up records of what it would measure."""

import dataclasses

from benchmarks.profile.cells import PRESETS, Preset, groups
from benchmarks.run import Stamp
from benchmarks.timing import Timing
from impls.training import load

WORKLOAD = """
name = "tiny"
environment = "{environment}"
algorithm = "dqn"
steps = 100
[observation]
shape = [4]
[action]
choices = 2
[network]
hidden = [4]
[learner]
batch = 8
update_interval = 2
learning_starts = 50
tau = 0.01
[replay]
capacity = 500
fanout = 16
[evaluation]
interval = 50
"""
TINY = Preset((4, 16), (4,), (2, 3), 0.002, 60.0, 600.0, 1 << 20)
NOISE = (0.99, 1.0, 1.01)
MACHINE = {"key": "made-up", "cpu": "a made-up CPU", "cores": 4, "caches": {"L2": 1 << 20}, "packages": {}, "gpus": []}


def write_workload(folder, environment="CartPole-v1"):
    """The file of the tiny workload."""
    path = folder / "tiny.toml"
    path.write_text(WORKLOAD.format(environment=environment))
    return path


def stamp(primitive="training"):
    """That of a made-up run."""
    return Stamp("c0ffee00c0ffee", False, "python -m benchmarks profile", primitive, MACHINE)


def seconds(cell):
    """Made-up seconds of a cell: flat, then linear, with knees at 100 (gradient step) and 50 (forward pass)."""
    slower = {"shared": 2.2, "own": 1.1}.get(cell.options.get("cores"), 1.0)
    environments, dense = cell.options.get("environments", 1), cell.options.get("learner") == "dense"
    match cell.contestant:
        case "learner" if dense:
            return (1e-4 + 3e-6 * cell.batch) * cell.threads**0.2
        case "learner":
            return slower * (1e-3 + 1e-5 * cell.batch) / (0.5 + cell.threads / 2)
        case "parallel_learners":
            return (1e-3 + 1e-5 * cell.batch) / cell.threads**0.8
        case "forward":
            return 1e-4 + 2e-6 * cell.batch
        case "inference":
            return (1e-5 if dense else 1e-4) + 2e-6 * cell.batch
        case "env":
            return 2e-5 + 2e-6 * environments
        case "actor":
            return slower * ((8e-5 if dense else 1.8e-4) + 2e-5 * environments) / cell.threads**0.9
        case "loop" | "apart":  # a tenth more than the sum of their parts, roughly
            learner = 1e-4 + 3e-6 * cell.batch if dense else 1e-3 + 1e-5 * cell.batch
            acting = (8e-5 if dense else 1.8e-4) / environments + 2e-5
            return 1.1 * (learner + acting + 4e-5 + 3e-7 * cell.batch)
        case "weights":
            return 1e-4 * cell.options.get("models", 3)
    return slower * (1e-5 + 1e-7 * cell.batch)


def made_up(names=("cartpole_dqn", "pong_dqn"), preset="full", cores=4, learners=("torch",)):
    """Records of every cell of workloads, and a twin of each."""
    found = []
    for name in names:
        for cell in (cell for group in groups(load(name), PRESETS[preset], cores, learners) for cell in group):
            timing = Timing(tuple(seconds(cell) * one for one in NOISE), 10)
            one = stamp().timed(cell, timing, utc="2030-01-01T00:00:00+00:00")
            found += [one, dataclasses.replace(one, primitive="training_again")]
    return found
