"""Runs the tests, a worker a core, then those that assert on a clock, alone; tells the slowest and the CPU seconds.

    python -m tests.run           tests/unit, tests/system and the doctests: what `make test` runs
    python -m tests.run --keep    the same; what each file took is kept in tests/data/kept/durations.json
    python -m tests.run --all     everything, the long tests too; what each file took is kept as well

With ``--branches`` it prints the branches that tests take, and with ``--contexts`` keeps which test enters which line
(``tests.branches``).

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

from tests import branches

ROOT = Path(__file__).resolve().parent.parent
PYTEST = (sys.executable, "-m", "pytest", "--strict-skips", "--durations=25", "--durations-min=1")
NO_TESTS = 5  # pytest's exit code where it ran none
WORKERS = ("--numprocesses=auto", "--dist=loadfile", "--no-loadscope-reorder")
DAILY = (
    *("tests/unit", "tests/system"),
    *("impls", "dse", "reports", "README.md", "benchmarks/README.md", "results/README.md"),
)


def stages(every: bool, is_kept: bool) -> list[list[str]]:
    """List the words of pytest's calls: whether a test asserts on a clock decides which it is in."""
    also = "" if every else " and not slow"
    clocks = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("test_*.py")) if _has_clock(path)]
    return [
        [*([] if every else DAILY), "-m", f"not timing{also}", *WORKERS, *["--keep-durations"] * is_kept],
        [*clocks, "-m", f"timing{also}"],
    ]


def _has_clock(path: Path) -> bool:
    return bool(re.search(r"mark\.timing\b", path.read_text(encoding="utf-8")))


def main(arguments: list[str] | None = None) -> int:
    """Run the stages, each whatever the one before said; return the first exit code that is not 0."""
    parser = argparse.ArgumentParser("python -m tests.run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="the page, the oracles and the long tests as well")
    parser.add_argument("--keep", action="store_true", help="keep what each file took, as --all does")
    parser.add_argument("--branches", action="store_true", help="print the branches that tests take of each brick")
    parser.add_argument("--contexts", action="store_true", help="the same, and keep which test enters which line")
    options, words = parser.parse_known_args(arguments)
    is_covered = options.branches or options.contexts
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        calls = [[*PYTEST, *stage, *words] for stage in stages(options.all, options.all or options.keep)]
        kept = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}  # else every process compiles all that it imports
        settings = branches.write_settings(Path(folder), by_test=options.contexts)
        asked = {"COVERAGE_PROCESS_START": str(settings)} if is_covered else {}  # but not of clocks, which it slows
        codes = [
            subprocess.run(call, cwd=ROOT, env=how, check=False).returncode
            for call, how in zip(calls, (kept | asked, kept), strict=True)
        ]
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"{time.monotonic() - begin:.0f} s, {used.ru_utime + used.ru_stime:.0f} CPU s")
        if is_covered:
            branches.combine(Path(folder))
            print("\n".join(branches.describe(branches.count_branches(), branches.read_kept())))
    return codes[0] or (codes[1] if codes[1] != NO_TESTS else 0)  # perhaps no test asserts on a clock


if __name__ == "__main__":
    sys.exit(main())
