"""Measures which branches of the bricks the tests take, and which test enters which line, while ``tests.run`` runs.

    python -m tests.run --branches           the tests under coverage, half as long again; prints a line a brick
    python -m tests.run --contexts           the same, and which test enters which line; twice as long
    python -m tests.branches [--write]       the lines of the last such run, of whatever tests; ``--write`` keeps them

Functions that numba compiles are left out: no tracer sees inside. A run leaves what it measured in ``.coverage``, where
``python -m tests.mutation --find`` reads which tests enter a line.
"""

import argparse
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "tests/data/kept/branches.json"
DATA = ROOT / ".coverage"
BRICKS = {
    "trees": ("impls/sumtree/", "impls/levels.py"),
    "replay": ("impls/replay/",),
    "nodes": ("impls/training/nodes/",),  # whose tests start a Ray cluster, which .ci/run does and `make test` does not
    "training": ("impls/training/",),
    "races": ("impls/race.py", "dse/race_"),
    "solver": ("dse/solver/",),
    "laws": ("impls/fpga/", "dse/fpga/", "dse/times/"),
}
COMPILED = "inner|kernel|instruction|inside|step|kept_njit|intrinsic|inlined|inlined_late|njit|unbox"
SETTINGS = """
[run]
branch = true
parallel = true
data_file = {folder}/.coverage
source =
    {root}/impls
    {root}/dse
    {root}/benchmarks
    {root}/reports
patch = subprocess, _exit
sigterm = true
concurrency = thread, multiprocessing
disable_warnings = no-data-collected, module-not-imported, module-not-measured, already-imported, dynamic-conflict
[report]
exclude_also =
    ^ *@({compiled})\\b
    ^def _(read|sample|update)\\((thing|tree|replay): int
    if TYPE_CHECKING:
    @abstractmethod
"""
"""Of coverage."""
BY_TEST = "[run]\ncontext = ${PYTEST_CURRENT_TEST-}"  # that of a process that a test starts
CONTEXTS = "contexts.ini"
LESS = 0.002  # of the branches, by which a share must fall to be named: runs by several processes differ by a few


def write_settings(folder: Path, by_test: bool = False) -> Path:
    """Write the settings of coverage for processes that put what they measured into a folder; return their path."""
    path = folder / (CONTEXTS if by_test else "branches.ini")
    text = SETTINGS.format(folder=folder, root=ROOT, compiled=COMPILED)
    path.write_text(text.replace("[run]", BY_TEST) if by_test else text, encoding="utf-8")
    return path


def is_by_test() -> bool:
    """Say whether this process is to tell which test enters which line."""
    return os.environ.get("COVERAGE_PROCESS_START", "").endswith(CONTEXTS)


class Contexts:
    """A plugin that names each test to the coverage of its process."""

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Name the test while it runs."""
        from coverage import Coverage  # noqa: PLC0415  # where a run asks for it

        switch = getattr(Coverage.current(), "switch_context", str)
        switch(item.nodeid)
        yield
        switch("")


def combine(folder: Path) -> None:
    """Join what processes measured into a folder in ``.coverage``; what was killed while it wrote is left out."""
    from coverage import Coverage  # noqa: PLC0415

    coverage = Coverage(data_file=str(DATA), config_file=str(write_settings(folder)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        coverage.combine([str(folder)])
    coverage.save()


def count_branches() -> dict[str, list[int]]:
    """Count the branches of each brick that the tests of the last measured run took, and how many there are."""
    from coverage import Coverage  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        coverage = Coverage(data_file=str(DATA), config_file=str(write_settings(Path(folder))))
        coverage.load()
        coverage.json_report(outfile=f"{folder}/report.json")
        files = json.loads(Path(folder, "report.json").read_text(encoding="utf-8"))["files"]
    summaries = {str(Path(name).resolve().relative_to(ROOT)): found["summary"] for name, found in files.items()}
    counts = {brick: [0, 0] for brick in BRICKS}
    for name, found in summaries.items():
        if brick := next((brick for brick, places in BRICKS.items() if name.startswith(places)), ""):
            counts[brick][0] += found["covered_branches"]
            counts[brick][1] += found["num_branches"]
    return counts


def describe(counts: Mapping[str, list[int]], kept: Mapping[str, list[int]]) -> list[str]:
    """Return a line a brick: the share of its branches that is taken now and was when it was kept; a fall is marked."""
    lines = []
    for brick, (taken, total) in counts.items():
        before = kept[brick][0] / kept[brick][1] if brick in kept else 0.0
        fall = " FEWER" if taken / total < before - LESS else ""
        lines.append(f"branches of {brick:9}{taken:6,} of {total:6,}, {taken / total:.1%} ({before:.1%} kept){fall}")
    return lines


def read_kept() -> dict[str, Any]:
    """Read the counts that were kept."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {}


def main(arguments: list[str] | None = None) -> int:
    """Print a line a brick, or keep the counts."""
    parser = argparse.ArgumentParser("python -m tests.branches", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="keep the counts of the last measured run")
    options = parser.parse_args(arguments)
    if not DATA.is_file():
        print("error: nothing is measured; first: python -m tests.run --branches", file=sys.stderr)
        return 2
    counts = count_branches()
    print("\n".join(describe(counts, read_kept())))
    if options.write:
        rows = ",\n".join(f' "{brick}": {numbers}' for brick, numbers in counts.items())
        KEPT.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
