"""Keep how exact a tree is, not only how fast: differences of its answers and its root from the exact ones."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .records import RecordError

ACCURACY_FILE = "peers-accuracy.json"
CHECKS = {
    "wrong_leaf": "targets of a freshly filled tree that land on another leaf than the exact one",
    "zero_leaf": "samples that return a leaf of priority 0, where half of the leaves have none",
    "zero_leaf_at_0": "whether prefix value 0 returns leaf 0 although its priority is 0",
    "out_of_range": "samples that return an index outside of [0, N), where N is no power of two",
    "at_total": "whether a prefix value equal to the total, which no leaf owns, is answered instead of refused",
    "drift": "relative error of the root after updates over six decades of priorities",
    "duplicates": "whether another than the last of equal indices in one batch wins",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accuracy:
    """A check of a tree: ``value`` failures among ``trials``, or for "drift" the root's relative error.

    ``value`` is None where the check could not be made, and ``note`` says why; otherwise ``note`` is what was seen.
    """

    contestant: str
    dtype: str
    check: str
    capacity: int
    trials: int
    value: float | None
    note: str | None = None
    source: str = "measured"
    machine: dict[str, Any] = dataclasses.field(default_factory=dict)
    commit: str | None = None
    dirty: bool | None = None
    utc: str = ""
    command: str = ""


def write(checks: Iterable[Accuracy], path: Path) -> None:
    """Write all checks of a machine into one JSON file. RecordError if it cannot be written."""
    text = "[\n" + ",\n".join(json.dumps(dataclasses.asdict(check), allow_nan=False) for check in checks) + "\n]\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path}: cannot be written ({error.strerror}); choose another folder") from None


def read(path: Path) -> list[Accuracy]:
    """Read the checks of a file. RecordError if it is not one of this version."""
    try:
        return [Accuracy(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))]
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from None
    except (TypeError, ValueError) as error:
        raise RecordError(f"{path}: not a file of this version ({error}); make it again: make peers") from None
