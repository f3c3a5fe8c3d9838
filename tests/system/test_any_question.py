"""Whatever is asked ends soon, in little memory, with an answer or one sentence."""

import random
import resource
import subprocess
import sys

import pytest

from dse import __main__ as cli
from tests.committed import DATA, ROOT
from tests.matrix import slow

SHIPPED = "d7dae63b89"  # the machine whose records every checkout has
TREES, MAPPINGS, COUNTS = 200, 100, 60
SECONDS, MEGABYTES = 10, 1_000
PLATFORMS = ("u200", "h200", "edge", "this", "nothing")
WORKLOADS = ("cartpole_dqn", "hopper_ddpg", "pong_dqn", "cartpole_ddpg", "nothing")
FIXES = (
    "batch={n} update_interval={n} capacity={n} presampled={n} actors={n} learner_threads={n} fanout={n} threads={n} "
    "learner=gpu learner=fpga sampling=cpu storage=gpu contestant=numba contestant=nimba arrangement=pipelined {n}"
).split()
CHANGES = ("cpu.cores={n}", "gpu.memory_gb={n}", "cpu.memory_gb={n}", "cpu-gpu.beta_gb_per_s={n}", "gpu.x={n}")


def size(rng, most):
    """A whole number, log-uniform from 1 to 10**most."""
    return round(10 ** rng.uniform(0, most))


def tree_question(rng):
    words = ["recommend", "--no-race", "--capacity", str(size(rng, 12)), "--batch", str(size(rng, 9))]
    words += ["--updates-per-sample", f"{rng.choice([0, rng.uniform(0, 100), 1]):g}"]
    words += rng.choice([[], ["--threads", str(size(rng, 2.4))]])
    words += rng.choice([[], ["--dtype", rng.choice(["float32", "float64", "float16", "int8"])]])
    words += rng.choice([[], ["--distribution", rng.choice(["uniform", "rank0.6", "mostly_zero", "foo"])]])
    return [*words, *rng.choice([[], ["--machine", SHIPPED], ["--machine", "0123456789"]])]


def mapping_question(rng):
    command = rng.choice(["recommend", "recommend", "recommend", "explain", "what-if"])
    words = [command, "--platform", rng.choice(PLATFORMS), "--workload", rng.choice(WORKLOADS)]
    words += ["--objective", rng.choice(["ratio", "training", "per_watt", "fewest_devices", "speed"])]
    for _ in range(rng.randrange(3)):
        words += ["--fix", rng.choice(FIXES).format(n=size(rng, 7))]
    words += rng.choice(
        [[], [], ["--free", rng.choice(["batch", "presampled"])], ["--exclude", rng.choice(["gpu", "cpu"])]]
    )
    if command == "explain":
        words += ["--config", rng.choice(FIXES).format(n=size(rng, 4))]
    if command == "what-if":
        words += ["--set", rng.choice(CHANGES).format(n=size(rng, 4))]
    return words


def count_question(rng):
    """How many cores to each side, or batches ahead: of a workload on a platform, or of numbers of one's own."""
    command = rng.choice(["cores", "depth"])
    if rng.random() < 0.5:
        words = ["--workload", rng.choice(WORKLOADS), *rng.choice([[], ["--platform", rng.choice(PLATFORMS)]])]
        words += rng.choice([[], ["--machine", SHIPPED], ["--results", "nowhere"]])
        words += rng.choice([[], ["--fix", rng.choice(FIXES).format(n=size(rng, 4))]]) if command == "depth" else []
    elif command == "cores":
        curves = [",".join(f"{size(rng, 1)}:{size(rng, 5)}" for _ in range(rng.randint(1, 3))) for _ in range(2)]
        words = ["--actors", curves[0], *rng.choice([[], ["--learners", curves[1]]])]
    else:
        names = rng.sample(["sampling", "training", "updating", "transfer"], rng.randint(1, 4))
        words = [word for name in names for word in (f"--{name}-us", f"{10 ** rng.uniform(-4, 13):g}")]
    if command == "cores":
        words += ["--cores", str(size(rng, 3)), *rng.choice([[], ["--update-interval", str(size(rng, 3))]])]
        return [command, *words, *rng.choice([[], ["--reserved", str(size(rng, 1))]])]
    return [command, *words, *rng.choice([[], ["--spread", f"{rng.uniform(-1, 4):g}"]])]


def every(seed):
    rng = random.Random(seed)
    made = ((tree_question, TREES), (mapping_question, MAPPINGS), (count_question, COUNTS))
    return [make(rng) for make, number in made for _ in range(number)]


@pytest.mark.parametrize("part", [0, slow(1), slow(2)])
def test_every_question_is_answered_or_refused_in_a_sentence(part, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    asked = every(seed=20_261_122)[part::30]  # a tenth of them in all
    for words in asked:
        try:
            code = cli.main(words)
        except SystemExit as left:  # argparse's own refusals
            code = left.code
        shown = capsys.readouterr()
        assert code in (0, 1, 2), words
        assert bool(shown.out.strip()) == (code != 2), words
        if code == 2:
            assert shown.err.splitlines()[-1].partition("error: ")[2], words
            assert "Traceback" not in shown.err


@pytest.mark.slow
@pytest.mark.timing
def test_every_question_ends_soon_and_in_little_memory():
    for words in every(seed=7)[::5]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        done = subprocess.run(
            [sys.executable, "-m", "dse", *words],
            cwd=DATA,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # of the largest child so far, in kB
        assert done.returncode in (0, 1, 2), (words, done.stderr)
        assert "Traceback" not in done.stderr, words
        assert most <= max(before, MEGABYTES * 1024), (words, most)
