"""The folder of a run: CSV files that grow by whole lines, and a lock, so that it belongs to one run at a time."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..files import lock, refusing, try_to_write
from .errors import TrainingError

PAIRS = "adaptation.csv"
"""The file of a run that --adapt began: the pairs of actors and batch that were tried, and the one that was kept."""


class Log:
    """A CSV file that grows by whole lines, and can be cut back to ``length`` bytes when it is opened again.

    TrainingError where it cannot be written, or is shorter than that.
    """

    def __init__(self, path: Path, columns: tuple[str, ...], length: int | None = None) -> None:
        self._path, self._columns = path, columns
        # Invariant: the file ends with a whole line, and its position is its end.
        with refusing(path, TrainingError, "put it right, or name another folder with --out"):
            if length is None:
                self._file = path.open("wb", buffering=0)
                self._append(",".join(columns))
            else:
                self._file = path.open("r+b", buffering=0)
                self._cut(length)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a line. TrainingError when it cannot be written."""
        self._append(",".join(_cell(row[name]) for name in self._columns))

    def saved(self) -> int:
        """Flush all lines to the disk; returns their bytes."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritten(error.strerror) from None
        return self._file.tell()

    def close(self) -> None:
        """Close the file; no line can be added afterwards."""
        self._file.close()

    def _append(self, line: str) -> None:
        encoded, before = f"{line}\n".encode(), self._file.tell()
        try:
            if self._file.write(encoded) < len(encoded):
                self._file.truncate(before)
                raise self._unwritten("a part of a line")
        except OSError as error:
            raise self._unwritten(error.strerror) from None

    def _cut(self, length: int) -> None:
        size = self._file.seek(0, os.SEEK_END)
        if size < length:
            self._file.close()
            raise TrainingError(
                f"{self._path}: holds {size:,} bytes, its checkpoint says at least {length:,}; put the file back, or "
                "begin again in another folder with --out"
            )
        self._file.truncate(length)
        self._file.seek(length)

    def _unwritten(self, why: str | None) -> TrainingError:
        self._file.close()
        return TrainingError(f"{self._path}: cannot be written ({why}); what was saved before is kept")


def check(folder: Path, resume: bool = False, steps: int = 0) -> None:
    """TrainingError unless a run can begin in a folder, or continue in it where it is to ``resume``; it stays as it is.

    A run that is done continues where it is to have more ``steps``.
    """
    try:
        _check_state(folder, resume, steps)
        try_to_write(folder)
    except OSError as error:
        raise _unwritable(folder, error) from None


def _check_state(folder: Path, resume: bool, steps: int) -> None:
    if (folder / ".lock").exists():
        with alone(folder):
            pass
    is_there, done, taken = (folder / "checkpoint.pt").exists(), folder / "summary.json", 0
    with suppress(OSError, KeyError, TypeError, ValueError):  # of a run that is not done, or whose summary was changed
        taken = int(json.loads(done.read_text())["steps"])
    if done.exists() and not (resume and is_there and steps > taken):
        more = f"continue with it by --resume and more --steps than {taken:,}, or " if is_there and taken else ""
        raise TrainingError(f"{folder} holds a run that is done, see its summary.json; {more}name another with --out")
    if resume and not is_there:
        alike = f"*-{folder.name.rpartition('-')[2]}/checkpoint.pt"  # of the same seed
        names = ", ".join(sorted(found.parent.name for found in folder.parent.glob(alike)))
        beside = f"beside it {names} has one: give its options again, such as --adapt; " if names else ""
        raise TrainingError(f"{folder} holds no checkpoint; {beside}{_remedy_without_checkpoint(folder)}")
    if is_there and not resume:
        raise TrainingError(f"{folder} holds a run; continue with it by --resume, or name another folder with --out")


def _remedy_without_checkpoint(folder: Path) -> str:
    """The remedy where there is no checkpoint, and the files that it would write over."""
    there = [name for name in ("curve.csv", "episodes.csv", "best.pt") if (folder / name).exists()]
    if there:
        return (
            f"without --resume a run begins there and writes over its {', '.join(there)}; move them away to keep them"
        )
    return "leave out --resume to begin, by which nothing is lost: it holds nothing of a run"


def _unwritable(folder: Path, error: OSError) -> TrainingError:
    return TrainingError(f"{folder}: cannot be made or written ({error.strerror}); name another with --out")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock a folder while the context lasts. TrainingError if another run has it; a killed run's lock is gone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("wb")
    except OSError as error:
        raise _unwritable(folder, error) from None
    with file:
        try:
            lock(file)
        except BlockingIOError:
            raise TrainingError(f"{folder} is held by a run under way; wait, or name another with --out") from None
        except OSError as error:
            raise TrainingError(f"{folder}: cannot be locked ({error.strerror}); name another with --out") from None
        yield


def _cell(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)
