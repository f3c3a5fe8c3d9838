"""Import every module, and run the READMEs' commands in their smallest form, by the Python that runs this.

``make oldest`` runs it by the oldest Python it finds, in an environment of the packages of ``make demo`` alone: what
needs others says so in a sentence. This file needs nothing but Python.
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = ("impls", "dse", "benchmarks", "reports")
NEWEST = (3, 11, 4)  # from which on tarfile has filters: what this is to be older than
MACHINE = "8fb834d50a"  # whose records commands answer from
LACKING = 2  # exit code: a package, a device or an environment is lacking, which a sentence says
LOOP = "impls.training cartpole_dqn --steps 1100 --test-episodes 1"
TREE = "--contestants numpy --ops update --capacities 1000 --batches 8 --fanouts 8 --anyway"
COMMANDS: dict[str, tuple[int, ...]] = {
    "impls": (0,),
    "impls.training list": (0,),
    "impls.training init mine": (0,),
    f"{LOOP} --learner torch --policy torch --contestant numpy": (0,),
    f"{LOOP} --arrangement apart --actors 1 --out runs/apart": (0,),
    "impls.training hopper_ddpg --steps 10100": (LACKING,),
    f"benchmarks sweep {TREE} --threads 1 --no-floor --budget 0.05": (0,),
    "benchmarks list": (0,),
    "benchmarks list --export all.csv": (0,),
    "benchmarks list --export all.parquet": (LACKING,),
    f"benchmarks compare HEAD HEAD {TREE} --budget 1": (0, 1, 3),  # whatever the verdict is
    "benchmarks profile --workload hopper_ddpg --preset brief --anyway": (LACKING,),
    "benchmarks share --workload cartpole_dqn --contestants numpy --budget 0.2 --anyway": (0,),
    "benchmarks replay --only operations --buffers prioritized_buffer --budget 0.01 --no-sentinels --anyway": (0,),
    "benchmarks arrangements --workload cartpole_dqn --only serial --intervals 64 --seconds 0.2 --anyway": (0,),
    "benchmarks transports --preset quick --anyway": (LACKING,),
    "benchmarks learning --only serial --seeds 1 --most 2500 --test-episodes 1 --anyway": (0,),
    "benchmarks peers --list": (0,),
    "benchmarks peers --training --contestants fanout_torch --rounds 2 --block 0.1 --anyway": (0,),
    "benchmarks plugins --anyway": (LACKING,),
    "benchmarks gpu --anyway": (LACKING,),
    f"dse recommend --machine {MACHINE} --capacity 1e6 --batch 256 --no-race": (0,),
    "dse recommend --platform h200 --workload pong_dqn --emit toml": (0,),
    "dse run cartpole_dqn --platform this --decide 0 --seconds 1": (0,),
    "dse explain --platform u200 --workload hopper_ddpg --config learner=gpu": (0,),
    "dse what-if --platform edge --workload pong_dqn --set cpu.memory_gb=16": (0,),
    "dse adapt --platform u200 --workload hopper_ddpg": (0,),
    "dse cores --actors 1:900,2:1700,4:3000 --learners 1:400,2:700 --cores 8": (0,),
    "dse depth --sampling-us 1000 --training-us 2000 --updating-us 500 --transfer-us 300": (0,),
    "dse learners --platform u200 --workload hopper_ddpg": (0,),
    "dse times --example": (0,),
    "dse platform list": (0,),
    "dse fpga --network hopper --batch 256": (0,),
    "dse validate": (0,),
    f"reports --machine {MACHINE} --only Figures --no-models --out page": (0,),
    "reports.readmes --check": (0, 1),  # 1: they differ from what is committed
}
BRIEF = (
    "impls",
    "impls.training list",
    "benchmarks list",
    "benchmarks compare --help",
    "dse platform list",
    "reports --help",
)
"""Commands that are run without docstrings and assertions, too."""


def import_all() -> Iterator[str]:
    """Import every module; yield a sentence for each that lacks more than another project's package."""
    for path in sorted(path for name in OURS for path in (ROOT / name).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not error.name or error.name.partition(".")[0] in OURS:
                yield f"{module}: {error}"
        except Exception as error:
            yield f"{module}: {type(error).__name__}: {error}"


def list_untried() -> set[str]:
    """Return the commands that a README names, and that are not among those that are run here."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *ROOT.glob("*/README.md"))]
    named = re.findall(r"^(?:\$ )?python -m ((?:dse|benchmarks) \w[\w-]*|[\w.]+)", "\n".join(texts), re.MULTILINE)
    return {name for name in named if not any(f"{words} ".startswith(f"{name} ") for words in COMMANDS)}


def run(words: str, codes: tuple[int, ...], folder: Path, level: str) -> str:
    """Run a command in a folder; return what is wrong with how it ends, if anything."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONOPTIMIZE": level}
    command, began = [sys.executable, "-m", *words.split()], time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    print(f"{time.monotonic() - began:4.0f} s: {'PYTHONOPTIMIZE=2 ' * bool(level)}python -m {words}", flush=True)
    if done.returncode in codes and "Traceback" not in done.stderr:
        return ""
    return f"python -m {words}: exit code {done.returncode}, not {codes}: {done.stderr[-2000:]}"


def main() -> int:
    """Import and run all; return 0, or 1 after what failed."""
    if "--import" in sys.argv:
        print(*import_all(), sep="\n", end="")
        return 0
    newer = "" if sys.version_info < NEWEST else f", which is not older than {'.'.join(map(str, NEWEST))}"
    print(f"by Python {sys.version.split()[0]}{newer}", flush=True)
    wrong = [f"no command here for: python -m {name}" for name in sorted(list_untried())]
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(ROOT / "results" / MACHINE, Path(name) / "results" / MACHINE)
        for level in ("", "2"):
            how = {"env": {**os.environ, "PYTHONOPTIMIZE": level}, "capture_output": True, "text": True, "cwd": ROOT}
            done = subprocess.run([sys.executable, "-m", "tests.oldest", "--import"], check=False, **how)
            wrong += [*done.stdout.splitlines(), *(done.stderr.splitlines() if done.returncode else [])]
        wrong += [run(words, codes, Path(name), "") for words, codes in COMMANDS.items()]
        wrong += [run(words, (0,), Path(name), "2") for words in BRIEF]
    print("\n".join(filter(None, wrong)) or "all modules are imported, all commands end as they should")
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(main())
