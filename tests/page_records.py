"""Records made up so that every number of the page is known: a sweep, other libraries, parts of a step, a cell."""

import itertools
import json
import math
from pathlib import Path

from dse.records import Record, Writer
from reports.frame import Data
from reports.sections import processes
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


def time_cell(
    primitive, contestant, op, us, *, batch=1, code="a", status="ok", spread=0.0, threads=1, metrics=None, **options
):
    """Make a record of ``us`` microseconds a call, whose samples lie ``spread`` (a share) around it."""
    samples = tuple(1e-6 * us * (1 + spread * at / 10) for at in range(-10, 11))
    return make_timed(
        1e-6 * us, commit=code, dirty=False, command=f"run {code}", machine={"key": KEY, "cores": 2}, status=status,
        primitive=primitive, contestant=contestant, op=op, capacity=1_000_000, batch=batch, threads=threads,
        options=options, metrics=metrics or {}, samples_seconds=samples, calls_per_sample=1,
        low_seconds=samples[0], high_seconds=samples[-1], utc=f"2026-11-2{len(code)}T10:00:00+00:00",
    )  # fmt: skip


def data_of(*records, machine=KEY, results="there is none"):
    """Make the data of a page about a machine."""
    return Data(Path(results), machine, [*records])


def time_host(host, task, kind, us, tree_us=None, **more):
    options = {"task": task, "kind": kind, **more}
    made = [time_cell("plugin", host, "step", us, batch=64, spread=0.1, **options)]
    return made + ([time_cell("plugin", host, "tree", tree_us, batch=64, **options)] if tree_us else [])


HOSTED = [
    *time_host("rllib", "buffer", "theirs", 900, 300), *time_host("rllib", "buffer", "ours", 300, 30),
    *time_host("sb3", "buffer", "uniform", 100), *time_host("sb3", "buffer", "ours", 200, 20),
    *time_host("rllib", "cartpole_dqn", "theirs", 1_000, 100), *time_host("rllib", "cartpole_dqn", "ours", 800, 8),
]  # fmt: skip


def time_run(strategy, us, threads=2, work_seconds=0.0, op="run", primitive="replay_processes", **more):
    options = {"strategy": strategy, "work_seconds": work_seconds}
    return time_cell(primitive, "replay", op, us, batch=100, threads=threads, **options, **more)


def time_call(contestant, op, us, batch, **options):
    return time_cell("replay_operations", contestant, op, us, batch=batch, spread=0.1, **options)


def time_part(contestant, op, us, batch=1, **options):
    options = {"workload": "cartpole_dqn", "update_interval": 2, **options}
    return time_cell("serial_step", contestant, op, us, batch=batch, spread=0.2, **options)


USUAL = {"learners": 1, "sync": "synchronous", "transport": "shared", "weights": "shared", "ratio": "kept"}


def time_rate(arrangement, hz, op="rate", actors=1, interval=1, metrics=None, **more):
    options = {"workload": "cartpole_dqn", "update_interval": interval, "arrangement": arrangement, "actors": actors}
    options |= {"environments": 1, "presampled": 0, "learner": "dense", **USUAL, **more}
    return time_cell("training arrangement", arrangement, op, 1e6 / hz, batch=64, metrics=metrics, **options)


RATES = [
    time_rate("serial", 1_000),
    time_rate("apart", 1_500, metrics={"busiest": "learner"}),
    time_rate("apart", 2_000, op="bound"),
    time_rate("apart", 1_200, actors=2),
    time_rate("serial", 100, interval=8),
    time_rate("pipelined", 300, interval=8),
    *(time_rate("apart", 9_999, **other) for other in ({"ratio": "free"}, {"identity": "0a0f8f13"}, {"learners": 2})),
]


SECONDS = {"environment step": 1e-4, "gradient step": 1e-3, "cycle": 0.5, "transfer": 1e-4, "cpu": 1.5}


def time_system(name, **seconds):
    options = {"workload": "hopper_td3", "rows": 1}
    return [time_cell("training transport", name, op, 1e6 * value, batch=128, **options)
            for op, value in {**SECONDS, **seconds}.items()]  # fmt: skip


RETURNS = (100.0, 300.0, 200.0)


def write_curve(folder, alpha, seed, solved, learner="torch"):
    run = folder / KEY / "training" / "cartpole_dqn" / f"{learner}-{alpha}-{seed}"
    run.mkdir(parents=True)
    summary = {"workload": "cartpole_dqn", "alpha": alpha, "seed": seed, "utc": "2026-02-02", "solved_at": 250.0,
               "test_mean": 300.0, "sample_efficiency": solved, "learner": learner}  # fmt: skip
    (run / "summary.json").write_text(json.dumps(summary))
    points = [f"{1000 * at},{value + seed}" for at, value in enumerate(RETURNS, 1)]
    (run / "curve.csv").write_text("\n".join(["step,mean_score", *points]))


def make_run(arrangement, ahead, seed, seconds, **options):
    metrics = {"points": [(2500, 1500, 1.0, 480.0)], "interval": 2500, "solved_at": 475.0, "test_mean": 490.0 + seed}
    kind = arrangement if arrangement == "apart" else f"{arrangement}, {options}, D = {ahead}"
    known = {"workload": "cartpole_dqn", "kind": kind, "arrangement": arrangement, "learners": 1}
    known |= {"presampled": ahead, "seed": seed, "transport": "shared", **options}
    metrics |= {"report": {"cores": {}}, "episodes": [40 + seed]}
    return time_cell("training run", arrangement, "gradient step", 1e6 * seconds, batch=64, metrics=metrics, **known)


def make_models():
    """Yield runs of an algorithm with a model, by what changes, and of one without, of which one was not solved."""
    changes = {"memr": ({}, {"updates": 20}, {"model_kind": "ensemble"}, {"alpha": 1}), "sac": ({},)}
    for name, changed in ((name, changed) for name, each in changes.items() for changed in each):
        for seed in (1, 2):
            found = make_run("serial", 0, seed, 1e-3, workload=f"pendulum_{name}", kind=f"serial {changed}", **changed)
            points = [(500 * n, 500 * changed.get("updates", 5) * n, 1.0, -300 / n) for n in range(1, 2 + seed)]
            found.metrics.update(points=points, interval=500, rollouts=[640 * n for n in range(1, 2 + seed)])
            yield found


def everything():
    """Yield records of every primitive that a section shows, but for those that the tests' results have."""
    yield from (*sweep(), *peers(), *step(), *HOSTED, *RATES, *make_models())
    yield record(80, primitive="memory", contestant="chase", op="read", capacity=1_000, batch=1)
    yield from (record(55_000 / b, primitive="gpu", contestant="cupy", batch=b) for b in (256, 1_024, 4_096))
    yield from (record(ns, primitive="peer_shared", threads=threads) for threads, ns in ((1, 90), (4, 30)))
    replays = {"two_lock_checked": 1, "global": 2, "none": 0.5}
    for (name, factor), members in itertools.product(replays.items(), (2, 4)):
        for op, primitive in (("run", "replay_processes"), ("run", "replay_threads"), ("retrieve", "replay_processes")):
            times = {"us": 10 * factor * members, "threads": members, "op": op, "primitive": primitive, "spread": 0.05}
            yield time_run(name, **times, metrics={"superseded": 0.02})
    for library, options in (("replay", {"strategy": "two_lock_checked"}), ("cpprb", {}), ("torchrl", {})):
        for number, (op, batch) in enumerate((("insert", 1), ("sample", 256), ("update", 256), ("insert", 64)), 1):
            yield time_call(library, op, number * len(library), batch, **options)
    for until, us in {"call": 4.0, "tree": 10.0, "gather": 15.0, "whole": 16.0}.items():
        yield time_cell("replay_parts", "replay", "sample", us, batch=256, strategy="global", until=until)
    yield from (*time_system("queue 500", interval=2.0), *time_system("shared"))
    yield time_cell("transport", "pipe", "send", 640, batch=64)
    runs = {("apart", 0): {}, ("pipelined", 10): {}, ("apart", 1): {"library": "sb3", "kind": "sb3"}}
    yield from (make_run(*run, seed, 1e-3 * seed, **more) for run, more in runs.items() for seed in (1, 2))
    for count, sync in ((1, "lock"), (2, "lock"), (2, "server")):
        yield make_run("copies", 0, 1, 1e-3, processes=count, sync=sync, every=1)
    for seed, solved in enumerate((4_000, None)):
        ends = {"solved_steps": solved, "points": [[9_000, 1, 480.0 - seed]]}
        yield time_cell("plugin run", "sb3", "step", 10, task="cartpole_dqn", kind="ours", seed=seed, metrics=ends)
    for number, run in ((1, "2026-01"), (2, "2026-02"), (1, "2026-02")):
        metrics = dict.fromkeys(processes.RATES, float(number)) | {"over": ""}
        yield time_cell("training adaptation", "apart", "grid", 1, metrics=metrics, look=number, run=run, actors=1)


def write_curves(folder: Path) -> Path:
    """Write curves of training with a uniform and a prioritized replay; return the folder."""
    for seed in range(3):
        write_curve(folder, 0.0, seed, 3000)
        write_curve(folder, 0.6, seed, (None, 1000, 5000)[seed])
    return folder
