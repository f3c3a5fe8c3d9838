"""Checkpoints: a state in one file, which is written as a whole or not at all."""

import contextlib
import errno
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from .errors import TrainingError

FORMAT = 4
_LITTLE = 1 << 16  # bytes: a disk with less is full
BEGIN_AGAIN = "restore it from a copy, or begin again in another folder with --out"
"""The remedy for a checkpoint that cannot be resumed from."""


def save(state: Any, path: Path) -> None:
    """Write the state beside ``path``, then rename it there. TrainingError (a full disk) leaves the old file.

    The caller has the folder to itself; the remains of a save that was killed are overwritten by the next.
    """
    beside = path.with_name(f".{path.name}.part")
    try:
        with beside.open("wb") as file:
            torch.save({"format": FORMAT, "state": _each(state, _to_tensor)}, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except (OSError, RuntimeError) as error:  # torch raises either where a write fails
        why = error.strerror if isinstance(error, OSError) and error.strerror else _first_line(error)
        with contextlib.suppress(OSError):  # a folder that is gone
            if isinstance(error, RuntimeError) and shutil.disk_usage(path.parent).free < _LITTLE:
                why = os.strerror(errno.ENOSPC)  # of which torch tells only where it stood
        beside.unlink(missing_ok=True)
        raise TrainingError(f"{path}: cannot be written ({why}); what was saved before is kept") from error


def load(path: Path) -> Any:
    """The state in a file. TrainingError if there is none, MemoryError if it is too large. No code is executed.

    The checksums of the file's parts are verified first, which torch does not: no damaged number is ever loaded.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"the checksum of its part {damaged} differs")
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise TrainingError(f"{path}: cannot be read ({error.strerror or error})") from None
    except MemoryError:
        raise
    except Exception as error:  # whatever zipfile, zlib and torch make of bytes that are no checkpoint
        if "DefaultCPUAllocator" in str(error):
            raise MemoryError(str(error)) from None
        why = "it holds other things than numbers" if isinstance(error, pickle.UnpicklingError) else _first_line(error)
        raise TrainingError(f"{path}: is no checkpoint, or was damaged ({why}); {BEGIN_AGAIN}") from None
    if not isinstance(saved, dict) or "format" not in saved:
        raise TrainingError(f"{path}: is no checkpoint; {BEGIN_AGAIN}")
    if saved["format"] != FORMAT:
        raise TrainingError(
            f"{path}: is a checkpoint of format {saved['format']}, this program reads format {FORMAT}; {BEGIN_AGAIN}"
        )
    return _each(saved["state"], _to_array)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


_MARK = "numpy array"  # the only key of a dict that stands for an array, to distinguish it from weights


def _to_tensor(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {_MARK: torch.from_numpy(np.ascontiguousarray(value))}
    return value.item() if isinstance(value, np.generic) else value


def _to_array(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {_MARK}:
        return cast(torch.Tensor, value[_MARK]).numpy()
    return value


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
