"""Runs the tests, a worker a core, then those that assert on a clock, alone; tells the slowest and the CPU seconds.

    python -m tests.run          tests/unit, tests/system and the doctests: what `make test` runs
    python -m tests.run --all    everything, the long tests too; the durations are kept in tests/durations.json

Words that are not its own go to pytest.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests import durations
from tests.durations import FILE

ROOT = Path(__file__).resolve().parent.parent
PYTEST = (sys.executable, "-m", "pytest", "--strict-skips", "--durations=25", "--durations-min=1")
WORKERS = ("--numprocesses=auto", "--dist=loadfile", "--no-loadscope-reorder")
DAILY = (
    *("tests/unit", "tests/system", "tests/test_micro.py"),
    *("impls", "dse", "reports", "README.md", "benchmarks/README.md", "results/README.md"),
)


def stages(every: bool, path: Path) -> list[list[str]]:
    """List the words of pytest's calls: whether a test asserts on a clock decides which it is in.

    What each file takes is kept at ``path`` where all are run.
    """
    kept = [f"--keep-durations={path}"] if every else []
    also = "" if every else " and not slow"
    clocks = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("test_*.py")) if _has_clock(path)]
    return [
        [*([] if every else DAILY), "-m", f"not timing{also}", *WORKERS, *kept],
        [*clocks, "-m", f"timing{also}", *kept],
    ]


def _has_clock(path: Path) -> bool:
    return bool(re.search(r"mark\.timing\b", path.read_text(encoding="utf-8")))


def main(arguments: list[str] | None = None) -> int:
    """Run the stages, each whatever the one before said; return the first exit code that is not 0."""
    parser = argparse.ArgumentParser("python -m tests.run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="the page, the oracles and the long tests as well")
    options, words = parser.parse_known_args(arguments)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:  # what was kept orders this run, and stays if it is interrupted
        path = Path(folder) / FILE.name
        calls = [[*PYTEST, *stage, *words] for stage in stages(options.all, path)]
        kept = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}  # else every process compiles all that it imports
        codes = [subprocess.run(call, cwd=ROOT, env=kept, check=False).returncode for call in calls]
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall, cpu = round(time.monotonic() - begin), round(used.ru_utime + used.ru_stime)
        print(f"{wall} s, {cpu} CPU s")
        if options.all:
            durations.write({"wall_seconds": wall, "cpu_seconds": cpu} | durations.read(path))
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
