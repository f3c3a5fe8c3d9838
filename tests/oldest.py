"""Import every module, and run the commands of the READMEs, by the Python and the packages that run this.

``make oldest`` runs it by the oldest Python it finds, in an environment of the packages of ``make demo`` alone: what
needs others says so in a sentence. Commands that take seconds are run as printed, the others in their smallest form.
With ``--few`` it runs a handful of commands that need NumPy alone. This file needs nothing but Python.
"""

import csv
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
LACKING = 2  # exit code: a package, a device or an environment is lacking, which a sentence says
TREE = "--contestants numpy --ops update --capacities 1000 --batches 8 --fanouts 8 --anyway"
SMALL: dict[str, tuple[int, ...]] = {
    f"benchmarks sweep {TREE} --threads 1 --no-floor --budget 0.05": (0,),
    f"benchmarks compare HEAD HEAD {TREE} --budget 1": (0, 1, 3),  # whatever the verdict is
    "benchmarks list --export all.csv": (0,),
    "benchmarks profile --workload hopper_ddpg --preset brief --anyway": (LACKING,),
    "benchmarks run share --workload cartpole_dqn --contestants numpy --budget 0.2 --anyway": (0,),
    "benchmarks run replay --only operations --buffers prioritized_buffer --budget 0.01 --no-sentinels --anyway": (0,),
    "benchmarks run arrangements --workload cartpole_dqn --only serial --intervals 64 --seconds 0.2 --anyway": (0,),
    "benchmarks run transports --preset quick --anyway": (LACKING,),
    "benchmarks run learning --only serial --seeds 1 --most 2500 --test-episodes 1 --anyway": (0,),
    "benchmarks run loops --contestants fanout_torch --rounds 2 --block 0.1 --anyway": (0,),
    "benchmarks run plugins --anyway": (LACKING,),
    "benchmarks run gpu --anyway": (LACKING,),
    "dse run cartpole_dqn --platform this --machine 8fb834d50a --decide 0 --seconds 1": (0,),
    "reports --machine 8fb834d50a --out page": (0,),
    "reports figure fanout --machine 8fb834d50a --out fanout.pdf": (0,),
    "reports.readmes --check": (LACKING,),  # a rank test that a README shows needs SciPy
}
BRIEF = ("impls", "impls.training list", "benchmarks list", "benchmarks compare --help", "dse --help", "reports --help")
"""Commands that are run without docstrings and assertions, too."""


FEW = (
    *BRIEF,
    f"benchmarks sweep {TREE} --threads 1 --no-floor --budget 0.05",
    "dse recommend --no-race --capacity 1e6 --batch 64",
)


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


def list_printed() -> list[str]:
    """List the commands in the READMEs' `sh` blocks, but for those that take longer."""
    with (ROOT / "tests/data/slow_commands.csv").open(encoding="utf-8", newline="") as file:
        slow = {row["command"] for row in csv.DictReader(file)}
    paths = [path for level in ("", "*/", "impls/*/") for path in sorted(ROOT.glob(f"{level}README.md"))]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    blocks = re.findall(r"^```sh\n(.*?)^```$", "\n".join(texts), re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line.removeprefix("python -m ") for line in lines if line.startswith("python -m") and line not in slow]


def run(words: str, codes: tuple[int, ...], folder: Path, level: str = "") -> str:
    """Run a command in a folder; return what is wrong with how it ends, if anything."""
    how = {"cwd": folder, "env": {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONOPTIMIZE": level}}
    shell, began = ["bash", "-c", f"{sys.executable} -P -m {words}"], time.monotonic()
    done = subprocess.run(shell, capture_output=True, text=True, check=False, **how)
    print(f"{time.monotonic() - began:4.0f} s: {'PYTHONOPTIMIZE=2 ' * bool(level)}python -m {words}", flush=True)
    is_right = done.returncode in codes and "Traceback" not in done.stderr
    return "" if is_right else f"python -m {words}: exit code {done.returncode}, not {codes}: {done.stderr[-2000:]}"


def main() -> int:
    """Import and run all; return 0, or 1 after what failed."""
    if "--import" in sys.argv:
        sys.exit("\n".join(import_all()) or 0)
    newer = "" if sys.version_info < NEWEST else f", which is not older than {'.'.join(map(str, NEWEST))}"
    print(f"by Python {sys.version.split()[0]}{newer}", flush=True)
    lacking = ("parquet", "--show")  # which need pyarrow, and pygame
    printed = {words: (LACKING if any(word in words for word in lacking) else 0,) for words in list_printed()}
    commands = dict.fromkeys(FEW, (0,)) if "--few" in sys.argv else printed | SMALL
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "results", folder / "results")
        (folder / "dse").symlink_to(ROOT / "dse")  # for the paths that commands name
        wrong = [run("tests.oldest --import", (0,), folder, level) for level in ("", "2")]
        wrong += [run(words, codes, folder) for words, codes in commands.items()]
        wrong += [run(words, (0,), folder, "2") for words in BRIEF]
    print("\n".join(filter(None, wrong)) or "all modules are imported, all commands end as they should")
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(main())
