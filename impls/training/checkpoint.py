"""Checkpoints: a state in one file, which is written as a whole or not at all.

The file is one of numpy.savez: first the state as JSON, in which a number stands for each array, then the arrays.
"""

import functools
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .errors import TrainingError

FORMAT = 5
BEGIN_AGAIN = "restore it from a copy, or begin again in another folder with --out"
"""The remedy for a checkpoint that cannot be resumed from."""


def save(state: Any, path: Path) -> None:
    """Write the state next to ``path``, then rename it there. TrainingError (a full disk) leaves the old file.

    The caller has the folder to itself; the remains of a save that was killed are overwritten by the next.
    """
    beside, arrays = path.with_name(f".{path.name}.part"), list[NDArray[Any]]()
    text = json.dumps({"format": FORMAT, "state": _each(state, functools.partial(_put_away, arrays))})
    try:
        with beside.open("wb") as file:
            np.savez(file, np.frombuffer(text.encode(), np.uint8), *arrays)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        why = error.strerror or _first_line(error)
        raise TrainingError(f"{path}: cannot be written ({why}); what was saved before is kept") from error


def load(path: Path) -> Any:
    """The state in a file. TrainingError if there is none, MemoryError if it is too large. No code is executed.

    Each part of the file has a checksum, which is compared before the part is read, so that no damaged number or shape
    is ever loaded. A part that is compressed is refused, for it might be of any size and ``save`` compresses none.
    """
    try:
        with path.open("rb") as file:
            _check_parts(file)
            file.seek(0)
            with np.load(file, allow_pickle=False) as parts:
                text, *arrays = (parts[f"arr_{number}"] for number in range(len(parts.files)))
        saved = _each(json.loads(text.tobytes()), functools.partial(_take_back, arrays))
    except OSError as error:
        raise TrainingError(f"{path}: cannot be read ({error.strerror or error}); {BEGIN_AGAIN}") from None
    except MemoryError:
        raise
    except Exception as error:  # whatever zipfile, zlib, NumPy and json make of bytes that are no checkpoint
        why = _first_line(error)
        raise TrainingError(f"{path}: is no checkpoint, or was damaged ({why}); {BEGIN_AGAIN}") from None
    if not isinstance(saved, dict) or "format" not in saved:
        raise TrainingError(f"{path}: is no checkpoint; {BEGIN_AGAIN}")
    if saved["format"] != FORMAT:
        raise TrainingError(
            f"{path}: is a checkpoint of format {saved['format']}, this program reads format {FORMAT}; {BEGIN_AGAIN}"
        )
    return saved["state"]


def _check_parts(file: BinaryIO) -> None:
    """Compare the checksum of every part; NumPy does so only where the part's own header makes it read all bytes."""
    with zipfile.ZipFile(file) as parts:
        if any(part.compress_type != zipfile.ZIP_STORED for part in parts.infolist()):
            raise ValueError("its parts are compressed")
        if damaged := parts.testzip():
            raise ValueError(f"the checksum of {damaged} is another")


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


_MARK = "numpy array"  # the only key of a dict that stands for an array, whose number it has


def _put_away(arrays: list[NDArray[Any]], value: Any) -> Any:
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {_MARK: len(arrays) - 1}
    return value.item() if isinstance(value, np.generic) else value


def _take_back(arrays: list[NDArray[Any]], value: Any) -> Any:
    return arrays[value[_MARK]] if isinstance(value, dict) and set(value) == {_MARK} else value


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with ``change`` applied to everything in it, through nested dicts, lists and tuples."""
    changed = change(value)
    if changed is not value:
        return changed
    if isinstance(value, dict):
        return {key: _each(part, change) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_each(part, change) for part in value]
    return value
