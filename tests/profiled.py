"""A tiny workload and preset for the tests of profiling, and made-up records of what it would measure.

A second machine, ``world``, times loops that are the sum of their parts.
"""

import dataclasses

from benchmarks.run import Stamp
from benchmarks.timing import Timing
from benchmarks.topics.profile.cells import PRESETS, Preset, groups, options_of
from dse import platforms
from dse.platforms.files import to_toml
from dse.records import Writer
from impls.training import load
from tests.committed import RESULTS
from tests.made import make_record

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
        case "forward":
            return 1e-4 + 2e-6 * cell.batch
        case "inference":
            return (1e-5 if dense else 1e-4) + 2e-6 * cell.batch
        case "env":  # a reset is as slow as it likes: no answer reads it
            return 1.0 if cell.op == "reset" else 2e-5 + 2e-6 * environments
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


ACTOR, WRITE, GATHER = 5e-5, 1e-6, 5e-8  # seconds of an environment step, of writing a record, and of gathering it


def step_of_learner(batch):
    return 5e-4 + 2e-6 * batch


def call_of_tree(batch):
    return 1e-6 + 1e-8 * batch


def step_of_loop(batch, interval, size):
    """A loop that is the sum of its parts."""
    inserted = (call_of_tree(size) + WRITE) / size
    return interval * (ACTOR + inserted) + step_of_learner(batch) + 2 * call_of_tree(batch) + GATHER * batch


def record_of(workload, primitive, contestant, op, seconds, batch=1, utc="2026-11-21T10:00:00+00:00", **options):
    return make_record(
        source="measured",
        status="ok",
        primitive=primitive,
        contestant=contestant,
        op=op,
        capacity=workload.replay.capacity,
        batch=batch,
        fanout=workload.replay.fanout,
        options=options_of(workload) | options,
        median_seconds=seconds,
        low_seconds=0.99 * seconds,
        high_seconds=1.01 * seconds,
        samples_seconds=(seconds,) * 11,
        machine={"key": "made-up"},
        utc=utc,
        command="made up",
    )


def world(workload):
    """Records of the workload as it is."""
    own, size = workload.learner, workload.actors.local_storage
    found = [
        record_of(workload, "training", "actor", "step", ACTOR),
        record_of(workload, "training", "storage", "gather", GATHER * own.batch, own.batch),
        record_of(workload, "training", "storage", "write", WRITE, size),
        *(record_of(workload, "training", "weights", op, 1e-9, via="shared") for op in ("publish", "fetch")),
        record_of(workload, "training", "loop", "step", step_of_loop(own.batch, own.update_interval, size), own.batch),
    ]
    for batch in sorted({own.batch, size, *(2**power for power in range(3, 12))}):
        found.append(record_of(workload, "training", "learner", "step", step_of_learner(batch), batch))
        found += [record_of(workload, "training", "numba", op, call_of_tree(batch), batch) for op in ("draw", "update")]
    return found


def named_platform():
    """A platform that the made-up records are of."""
    return dataclasses.replace(platforms.load(RESULTS / "d7dae63b89" / "platform.toml"), machine_key="made-up")


def folder(results, found):
    """The made-up machine's results: its platform and its records."""
    with Writer(results / "made-up" / "all.jsonl") as writer:
        for one in found:
            writer.append(one)
    (results / "made-up" / "platform.toml").write_text(to_toml(named_platform()))
    return results
