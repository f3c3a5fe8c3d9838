"""How long each file of tests took when it was kept last: the longest begin first, so that no worker ends with one."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_name("durations.json")


def read(path: Path = FILE) -> dict[str, Any]:
    """Read what is kept: ``tests``, how many there are, and ``seconds`` of each file, by its path from the top."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {"tests": 0, "seconds": {}} | kept


def write(kept: dict[str, Any], path: Path = FILE) -> None:
    """Write what is kept, the longest file first."""
    kept = kept | {"seconds": dict(sorted(kept["seconds"].items(), key=lambda one: -one[1]))}
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def sort_longest_first(items: list[Any]) -> None:
    """Sort tests by what their file took; files that nothing is known of come first."""
    seconds = read()["seconds"]
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], float("inf")))


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
        kept = read(self.path)
        seconds = self.seconds + Counter(kept["seconds"])
        rounded = {name: round(taken, 2) for name, taken in seconds.items()}
        write(kept | {"tests": kept["tests"] + len(self.tests), "seconds": rounded}, self.path)
