"""How long each file of tests took when it was kept last: the longest begin first, so that no worker ends with one.

What a run took is compared with what was kept. A file is judged beside the other files of its run, because a slower
machine takes longer for all of them; the CPU seconds of all are judged only on the machine of the kept run. Nothing is
judged of a run that compiled kernels, or that shared the machine with other programs.
"""

import json
import re
import statistics
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_name("data") / "kept" / "durations.json"
KINDS = ("daily", "all")  # of runs, and the columns of a file's seconds
NUMBERS = ("machine", "tests", "wall_seconds", "cpu_seconds", "others_share")
SHORTEST_SECONDS = 3.0  # a file that took less is not named
LEAST_SECONDS, FEWEST_FILES = 1.0, 8  # files that took less, or fewer files, do not show how fast the machine is
FILE_GROWTH, WHOLE_GROWTH = 1.5, 1.1
BUSY_SHARE = 0.1  # of the processors; where other programs took that much more than in the kept run, nothing is judged

Run = Mapping[str, Any]
"""What is known of a run: ``NUMBERS``, ``seconds`` of each file and ``kernels_compiled``."""


def read(path: Path = FILE) -> dict[str, Any]:
    """Read what is kept: of each kind of run the numbers, and ``seconds`` of each file by its path, a column a kind."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"seconds": {}}


def add_run(kept: dict[str, Any], kind: str, run: Run) -> None:
    """Put a run's numbers in place of those of the last run of its kind."""
    files = kept["seconds"]
    for name in {*files, *run["seconds"]}:
        files.setdefault(name, [None, None])[KINDS.index(kind)] = run["seconds"].get(name)
    kept[kind] = {key: run.get(key) for key in NUMBERS}


def write(kept: dict[str, Any], path: Path = FILE) -> None:
    """Write what is kept, a line a file, the longest first."""
    files = {name: pair for name, pair in kept["seconds"].items() if any(pair)}
    ordered = sorted(files, key=lambda name: -longest_of(files[name]))
    text = json.dumps(kept | {"seconds": {name: files[name] for name in ordered}}, indent=1)
    path.write_text(re.sub(r"\[\s+(\S+)\s+(\S+)\s+\]", r"[\1 \2]", text) + "\n", encoding="utf-8")


def longest_of(pair: list[float | None]) -> float:
    """Return the seconds that a file took in the longer kind of run."""
    return max(seconds or 0.0 for seconds in pair)


def sort_longest_first(items: list[Any]) -> None:
    """Sort tests by what their file took; files that nothing is known of come first."""
    seconds = {name: longest_of(pair) for name, pair in read()["seconds"].items()}
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], float("inf")))


def find_slower_files(before: Mapping[str, float | None], now: Mapping[str, float]) -> list[str]:
    """Return the files that grew by half more than three quarters of all files did, a line each.

    The median file is too low a bar: on fewer cores, files that run several processes slow down more than others.
    """
    known = {name: seconds for name, seconds in before.items() if seconds and name in now}
    ratios = [now[name] / seconds for name, seconds in known.items() if seconds >= LEAST_SECONDS]
    if len(ratios) < FEWEST_FILES:
        return []
    usual = statistics.quantiles(ratios, n=4)[2]
    return [
        f"{name}: {now[name]:.3g} s instead of {seconds:.3g} s; most files took up to {usual:.2g} times as long"
        for name, seconds in known.items()
        if now[name] > max(SHORTEST_SECONDS, FILE_GROWTH * usual * max(seconds, LEAST_SECONDS))
    ]


def compare(kept: Run, kind: str, run: Run) -> tuple[list[str], list[str]]:
    """Compare a run with the kept one of its kind; return what grew, and what was not compared and why."""
    whole = {"machine": "", "others_share": 0.0, **kept.get(kind, {})}
    if compiled := run["kernels_compiled"]:
        return [], [f"{compiled} kernels were compiled, so this run is not compared with the kept one: run it again"]
    if (busy := run["others_share"]) > whole["others_share"] + BUSY_SHARE:
        return [], [f"other programs took {busy:.0%} of the processors, so this run is not compared with the kept one"]
    grown = find_slower_files({name: pair[KINDS.index(kind)] for name, pair in kept["seconds"].items()}, run["seconds"])
    if whole["machine"] != run["machine"]:
        return grown, [f"no {kind} run was kept of this machine, so CPU seconds are not compared"]
    if run["cpu_seconds"] > WHOLE_GROWTH * whole["cpu_seconds"]:
        grown.append(f"all files: {run['cpu_seconds']:,} CPU s instead of {whole['cpu_seconds']:,}")
    return grown, []


class Durations:
    """A plugin that adds to a file what each file of tests took, as workers ran them concurrently."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: Counter[str] = Counter()
        self.tests: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test."""
        self.seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]
        self.tests.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        run = read(self.path)
        seconds = self.seconds + Counter(run["seconds"])
        rounded = {name: round(taken, 2) for name, taken in seconds.items()}
        text = json.dumps({"tests": run.get("tests", 0) + len(self.tests), "seconds": rounded})
        self.path.write_text(text, encoding="utf-8")
