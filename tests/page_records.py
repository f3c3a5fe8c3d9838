"""Records made up so that every number of the page is known: a sweep, other libraries, a GPU, parts of a step."""

import itertools
import math
from pathlib import Path

from dse.records import Record, Writer
from tests.made import make_timed

KEY = "made-up"
MACHINE = {"key": KEY, "cpu": "Abacus 9000", "cores": 4, "caches": {"L1": 48 << 10}, "python": "3.11"}
BEST_FANOUT = 8
LIBRARIES = {"numba": 20.0, "tianshou": 80.0, "torchrl": 65.0, "rllib": 4_000.0}  # ns of a draw and of an update
PARTS = {("env", "step"): 9, ("inference", "act"): 30, ("storage", "write"): 3, ("storage", "gather"): 4}
PARTS |= {("numba", "draw"): 2, ("numba", "update"): 2, ("learner", "step"): 700, ("loop", "step"): 900}
"""Microseconds of the parts of a training step, and of the whole."""


def record(nanoseconds, machine=KEY, **fields) -> Record:
    """Make a record of a tree's time per element, whose interval is 2 % to either side; of a machine, or its key."""
    usual = {"contestant": "numba", "op": "draw", "capacity": 10_000, "batch": 256, "primitive": "sum_tree"}
    usual |= {"machine": machine if isinstance(machine, dict) else {**MACHINE, "key": machine}}
    usual |= {"command": "python -m benchmarks sweep"} | fields
    return make_timed(1e-9 * usual["batch"] * nanoseconds, **usual)


def sweep(batches=(256, 2_048), **fields):
    """Yield a sweep whose fastest fanout is ``BEST_FANOUT``; each op, N and B."""
    for op, n, b, k in itertools.product(("draw", "update"), (10_000, 1_000_000), batches, (4, 8, 16, 32)):
        time = math.log10(n) * (5 + abs(math.log2(k / BEST_FANOUT))) / math.log2(b)
        yield record(time, op=op, capacity=n, batch=b, fanout=k, **fields)


def peers(**fields):
    """Yield a draw and an update of each library at N = 1,000,000."""
    for (name, time), op, b in itertools.product(LIBRARIES.items(), ("draw", "update"), (128, 1_024)):
        where = {"primitive": "peer", "contestant": name, "op": op, "batch": b, "capacity": 1_000_000}
        yield record(time + 1_000 / b, **where, **fields)


def step(workload="cartpole_dqn", **fields):
    """Yield the parts of a training step, and the whole, as a profile times them."""
    for (name, op), microseconds in PARTS.items():
        batch = 1 if (name, op) in {("env", "step"), ("inference", "act"), ("storage", "write")} else 64
        options = {"workload": workload, "update_interval": 1} | ({"learner": "torch"} if name in ("loop",) else {})
        where = {"primitive": "training", "contestant": name, "op": op, "batch": batch, "capacity": 0}
        yield record(1e3 * microseconds / batch, options=options, **where, **fields)


def write(records, folder: Path) -> Path:
    """Write records to files of results, a folder a machine; return the folder of results."""
    for key, found in itertools.groupby(records, key=lambda one: one.machine_key):
        with Writer(folder / key / "made.jsonl") as writer:
            for one in found:
                writer.append(one)
    return folder
