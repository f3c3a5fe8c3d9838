"""Rates of training over nodes, predicted and run: `python -m tests.oracles.nodes_questions --seed 7`.

Environments sleep, so that the simulated nodes of this machine act as machines of their own. Questions are drawn by the
seed: M nodes, G batches a call, B records a batch, and how long a step sleeps. It probes the cluster and profiles each
environment, then asks and runs each question, and finds where rates over nodes and of one machine cross. It takes half
an hour of a machine that does nothing else.
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np

from dse.__main__ import main as dse
from dse.platforms import fingerprint
from impls.cluster.connection import import_ray
from impls.training.settings import path_of
from tests.fake_environments import SLEEPS_US

ROOT = Path(__file__).resolve().parents[2]
NODES, BATCHES_A_CALL, BATCHES = (1, 2, 3), (1, 2, 4, 8, 16, 32), (64, 128, 256, 512, 1024)
LEAST = 3  # place of the shortest sleep asked about: with shorter ones, all nodes together keep two cores busy
STORE = 80 << 20
PARTS = "env step,inference act,actor step,learner step,numba step,storage gather,weights publish,weights fetch"


def draw_questions(seed, count):
    """[(M, G, B, microseconds that a step sleeps)], of which no two are equal."""
    rng, drawn = np.random.default_rng(seed), {}
    while len(drawn) < count:
        question = tuple(int(rng.choice(values)) for values in (NODES, BATCHES_A_CALL, BATCHES, SLEEPS_US[LEAST:]))
        drawn[question] = None
    return list(drawn)


def write_workload(folder, sleep):
    """The file of CartPole whose step sleeps a number of microseconds, by double DQN."""
    text, path = path_of("cartpole_dqn").read_text(), folder / f"slow_{sleep}us.toml"
    for key, value in (("name", path.stem), ("environment", f"tests.fake_environments:Slow{sleep}us-v0")):
        text = re.sub(rf"(?m)^{key} = .*", f'{key} = "{value}"', text)
    path.write_text(re.sub(r"(?m)^learning_starts = .*", "learning_starts = 200", text))
    return path


def run(*words):
    """The standard output of a command of this checkout."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr[-2000:]}")
    return done.stdout


def ask(workload, results, **fix):
    """The answer as plain values."""
    words = [f"{key}={value}" for key, value in fix.items()]
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()):
        asked = [word for each in words for word in ("--fix", each)]
        dse(
            [
                "recommend",
                "--platform",
                "this",
                "--workload",
                str(workload),
                "--results",
                str(results),
                "--json",
                *asked,
            ]
        )
    return json.loads(printed.getvalue())


def train(workload, folder, *words, seconds=12):
    """The measured gradient steps/s of a run, once it has settled."""
    run("impls.training", "train", workload, "--out", folder, "--seconds", seconds, "--test-episodes", 0, *words)
    return json.loads((folder / "summary.json").read_text())["settled"]["update_hz"]


def compare(question, folder, runs, address):
    """A question with its predicted and its measured rate."""
    nodes, calls, batch, sleep = question
    fix = {"arrangement": "nodes", "actor_nodes": nodes, "batches_a_call": calls, "batch": batch, "actors": 1}
    workload = folder / f"slow_{sleep}us.toml"
    choice = ask(workload, folder / "results", **fix)["choice"]
    words = ("--arrangement", "nodes", "--cluster", address, "--actor-nodes", nodes, "--batches-a-call", calls)
    name = "run-" + "-".join(map(str, question))
    measured = train(
        workload,
        runs / name,
        *words,
        "--batch",
        batch,
        "--actors",
        1,
        "--learner",
        choice["learner"].partition(",")[0],
    )
    return {"question": question, "side": choice["side"], "predicted": choice["value"], "measured": measured}


def find_crossing(folder, runs, address):
    """(the break-even that is told, sleeps between which measured rates of one machine and of three nodes cross)."""
    told, rates = None, []
    for sleep in SLEEPS_US:
        workload = folder / f"slow_{sleep}us.toml"
        answer = ask(workload, folder / "results")
        told = told or next(note["break_even_seconds"] for note in answer["notes"] if "break_even_seconds" in note)
        alone = train(workload, runs / f"alone-{sleep}", "--arrangement", "apart", "--actors", 1)
        words = ("--arrangement", "nodes", "--cluster", address, "--actors", 1, "--batches-a-call", 32)
        env = next(note["env_seconds"] for note in answer["notes"] if "env_seconds" in note)
        rates.append((env, alone, train(workload, runs / f"over-{sleep}", *words)))
    return told, rates


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--out", type=Path, required=True, help="a folder, which keeps profiles for another seed")
    parser.add_argument("--crossing", action="store_true", help="also find where rates cross")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    os.environ["RAY_worker_niceness"] = "0"  # processes of nodes give way to none, as on machines of their own
    import_ray()
    cluster = importlib.import_module("ray.cluster_utils").Cluster
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE}
    made = cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in NODES:
            made.add_node(num_cpus=2, object_store_memory=STORE)
        made.wait_for_nodes()
        results = given.out / "results"
        platform = results / fingerprint()["key"] / "platform.toml"
        if not platform.exists():
            run("dse", "platform", "probe", "--anyway", "--cluster", made.address, "--results", results)
        for sleep in SLEEPS_US:
            workload = write_workload(given.out, sleep)
            if not (platform.parent / f"profile-{workload.stem}-brief.jsonl").exists():
                profile = ("benchmarks", "profile", "--workload", workload, "--preset", "brief", "--anyway")
                run(*profile, "--results", results, "--only", PARTS)
        rows, runs = [], given.out / f"seed-{given.seed}"
        for question in draw_questions(given.seed, given.count):
            rows.append(compare(question, given.out, runs, made.address))
            print(json.dumps(rows[-1]), flush=True)
        errors = [max(row["predicted"] / row["measured"], row["measured"] / row["predicted"]) - 1 for row in rows]
        if rows:
            print(f"median error {statistics.median(errors):.0%}, worst {max(errors):.0%} of {len(rows)}")
        if given.crossing:
            told, rates = find_crossing(given.out, runs, made.address)
            print(json.dumps({"break_even_seconds": told, "env_seconds, one machine, nodes": rates}))
    finally:
        made.shutdown()


if __name__ == "__main__":
    main()
