"""Runs the tests, a worker a core, then those that assert on a clock, alone; tells the slowest and the CPU seconds.

    python -m tests.run           tests/unit, tests/system and the doctests: what `make test` runs
    python -m tests.run --keep    the same; its durations are kept in tests/data/kept/durations.json
    python -m tests.run --all     everything, the long tests too; the durations are kept as well

With ``--branches`` it prints the branches that tests take, and with ``--contexts`` keeps which test enters which line
(``tests.branches``).

What took longer than when it was kept is named at the end. Words that are not its own go to pytest, and then nothing is
compared or kept.
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

from dse.platforms import fingerprint
from impls.files import cache_folder
from tests import branches, durations
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

    What each file takes is kept at ``path``.
    """
    kept = f"--keep-durations={path}"
    also = "" if every else " and not slow"
    clocks = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("test_*.py")) if _has_clock(path)]
    return [
        [*([] if every else DAILY), "-m", f"not timing{also}", *WORKERS, kept],
        [*clocks, "-m", f"timing{also}", kept],
    ]


def _has_clock(path: Path) -> bool:
    return bool(re.search(r"mark\.timing\b", path.read_text(encoding="utf-8")))


def count_busy_seconds() -> float:
    """Return the CPU seconds that all programs of the machine have used; 0 where the system does not tell."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    user, nice, system, _idle, _waiting, *others = map(int, path.read_text(encoding="utf-8").split()[1:9])
    return sum((user, nice, system, *others)) / os.sysconf("SC_CLK_TCK")


def list_compiled() -> set[str]:
    """Return the names of all code that this user has compiled so far for any process."""
    return {path.name for name in ("kernels", "emulator") for path in cache_folder(name).iterdir()}


def show_growth(grown: list[str], remarks: list[str]) -> None:
    """Print what grew, in red on a terminal that shows colors, and what was not compared."""
    begin, end = ("\033[31m", "\033[0m") if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else ("!! ", "")
    for line in [f"{begin}{line}{end}" for line in grown] + remarks:
        print(line)


def main(arguments: list[str] | None = None) -> int:
    """Run the stages, each whatever the one before said; return the first exit code that is not 0."""
    parser = argparse.ArgumentParser("python -m tests.run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="the page, the oracles and the long tests as well")
    parser.add_argument("--keep", action="store_true", help="keep what each file took, as --all does")
    parser.add_argument("--branches", action="store_true", help="print the branches that tests take of each brick")
    parser.add_argument("--contexts", action="store_true", help="the same, and keep which test enters which line")
    options, words = parser.parse_known_args(arguments)
    is_covered = options.branches or options.contexts
    begin, busy, compiled = time.monotonic(), count_busy_seconds(), list_compiled()
    with tempfile.TemporaryDirectory() as folder:  # what was kept orders this run, and stays if it is interrupted
        path = Path(folder) / FILE.name
        calls = [[*PYTEST, *stage, *words] for stage in stages(options.all, path)]
        kept = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}  # else every process compiles all that it imports
        settings = branches.write_settings(Path(folder), by_test=options.contexts)
        asked = {"COVERAGE_PROCESS_START": str(settings)} if is_covered else {}  # but not of clocks, which it slows
        codes = [
            subprocess.run(call, cwd=ROOT, env=how, check=False).returncode
            for call, how in zip(calls, (kept | asked, kept), strict=True)
        ]
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall, cpu = round(time.monotonic() - begin), round(used.ru_utime + used.ru_stime)
        print(f"{wall} s, {cpu} CPU s")
        others = max(0.0, count_busy_seconds() - busy - cpu)
        run = durations.read(path) | {
            "machine": "{cpu}, {cores} cores".format_map(fingerprint()),
            "wall_seconds": wall,
            "cpu_seconds": cpu,
            "others_share": round(others / max(1, wall) / (os.cpu_count() or 1), 3),
            "kernels_compiled": len(list_compiled() - compiled),
        }
        if is_covered:
            branches.combine(Path(folder))
            print("\n".join(branches.describe(branches.count_branches(), branches.read_kept())))
    if not words and not is_covered:
        kind, kept = "all" if options.all else "daily", durations.read()
        show_growth(*durations.compare(kept, kind, run))
        if options.all or options.keep:
            durations.add_run(kept, kind, run)
            durations.write(kept)
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
