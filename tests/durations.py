"""How long each file of tests took when it was kept last: the longest begin first, so that no worker ends with one."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests/data/kept/durations.json"


def read() -> dict[str, float]:
    """Read the seconds of each file of tests, by its path."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}


def sort_longest_first(items: list[Any]) -> None:
    """Sort tests by what their file took; files that nothing is known of come first."""
    seconds = read()
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], float("inf")))


class Durations:
    """A plugin that keeps what each file of tests took, as workers ran them concurrently."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test."""
        self.seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        """Write the seconds of the files that ran, beside those of the others."""
        kept = read() | {name: round(taken, 2) for name, taken in self.seconds.items()}
        there = {name: kept[name] for name in sorted(kept, key=lambda name: -kept[name]) if (ROOT / name).is_file()}
        FILE.write_text(json.dumps(there, indent=1) + "\n", encoding="utf-8")
