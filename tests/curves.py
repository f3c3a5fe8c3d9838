"""Keeps the initial weights of every shipped workload, and the first 2,000 steps of training it by two learners.

    python -m tests.curves            compare with what was kept; exit code 1 where anything differs; 4 minutes
    python -m tests.curves --print    print the hashes of what there is now, a line each, so that diff can compare two
                                      commits on any machine
    python -m tests.curves --write    keep what there is now, where a change is meant

Initial weights are equal on any processor. The bits of a curve depend on the processor and the libraries that compute
it: where these are others than the kept curves were made with, curves are not compared.
"""

import csv
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from impls.training import learners, load, names
from tests.settings import read_keys

ROOT = Path(__file__).resolve().parent.parent
FILE = Path(__file__).with_name("data") / "kept" / "curves.json"
COMMAND = (sys.executable, "-m", "impls.training", "train", "--test-episodes", "0")
ALONE = {"cartpole_dyna_q": ("--model-workers", "0")}  # without processes whose order is not repeatable
LEARNERS = ("dense", "torch")
LIBRARIES = ("numpy", "torch", "numba", "llvmlite", "gymnasium", "mujoco", "ale-py", "box2d")
TIMES = {"seconds", "sampling_hz", "update_hz"}
MOST = {
    "learner.learning_starts": 1024, "learner.target_interval": 50, "exploration.random_steps": 1024,
    "replay.capacity": 10_000, "evaluation.interval": 500, "evaluation.episodes": 2,
}  # fmt: skip
"""Keys of a workload, and what they are lowered to, so that gradient steps and evaluations happen within the steps."""
STEPS = {"pong_dqn": 1_300}
"""Environment steps of a run where they are not 2,000: each of these 69 gradient steps takes half a second."""


def list_parts():
    """List what hashes are kept of: each workload by each learner that can train it."""
    return [(name, learner) for name in names() for learner in LEARNERS if not learners.unsuited(learner, load(name))]


def hash_weights(workload, learner):
    """Return 16 hexadecimal digits of the weights that a learner of a workload begins with."""
    return hash_bytes(learners.make(load(workload), learner, seed=0).weights().tobytes())


def hash_curve(workload, learner):
    """Return 16 hexadecimal digits of what training writes: evaluations without times, and episodes."""
    with tempfile.TemporaryDirectory() as folder:
        keys = read_keys(workload)
        keys |= {name: min(int(keys[name]), most) for name, most in MOST.items() if name in keys}
        file, out = Path(folder, "mine.toml"), Path(folder, "run")
        file.write_text("".join(f"{name} = {value}\n" for name, value in keys.items()))
        words = [*COMMAND, str(file), "--learner", learner, "--policy", learner, "--out", str(out)]
        words += ["--steps", str(STEPS.get(workload, 2_000)), *ALONE.get(workload, ())]
        subprocess.run(words, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, capture_output=True)
        with (out / "curve.csv").open(newline="") as curve:
            rows = [[value for name, value in row.items() if name not in TIMES] for row in csv.DictReader(curve)]
        return hash_bytes(json.dumps(rows).encode() + (out / "episodes.csv").read_bytes())


def hash_bytes(content):
    """Return 16 hexadecimal digits of bytes."""
    return hashlib.sha256(content).hexdigest()[:16]


def describe_machine():
    """Return what the bits of a curve depend on: the processor, the C library and the libraries that compute."""
    import torch  # noqa: PLC0415  # heavy
    from llvmlite.binding import get_host_cpu_name  # noqa: PLC0415

    processor = f"{platform.machine()} {get_host_cpu_name()} {torch.backends.cpu.get_cpu_capability()}"
    return {"processor": processor, "libc": platform.libc_ver()[1]} | {name: version(name) for name in LIBRARIES}


def hash_all(kinds):
    """Return the hashes of all parts by their kind, "weights" or "curves", and by workload and learner; two at once."""
    parts, found = list_parts(), {}
    for kind in kinds:
        with ThreadPoolExecutor(2) as pool:
            hashes = pool.map({"weights": hash_weights, "curves": hash_curve}[kind], *zip(*parts, strict=True))
        found[kind] = dict(zip(map(" ".join, parts), hashes, strict=True))
    return found


def list_changes(before, after):
    """List the hashes that are others than before, or are on one side alone."""
    for kind, hashes in after.items():
        parts = sorted({part for part, _ in before[kind].items() ^ hashes.items()})
        yield from (f"{kind} of {part}" for part in parts)


def main(words):
    """Compare initial weights, and curves where they were made with the same processor and libraries."""
    here, before = describe_machine(), json.loads(FILE.read_text())
    is_comparable = before["made with"] == here
    now = hash_all(("weights", "curves") if is_comparable or words else ("weights",))
    if words == ["--print"]:
        print(*(f"{kind} {part} {code}" for kind, codes in now.items() for part, code in codes.items()), sep="\n")
        return 0
    if words == ["--write"]:
        FILE.write_text(json.dumps({"made with": here, **now}, indent=1) + "\n")
        return 0
    if not is_comparable:
        print("The kept curves do not apply here; run this command with --print on two commits to compare theirs.")
        print(f"Kept: {before['made with']}", f"Here: {here}", sep="\n")
    changes = list(list_changes(before, now))
    print(f"{sum(map(len, now.values()))} hashes; {len(changes)} differ", *changes, sep="\n")
    return bool(changes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
