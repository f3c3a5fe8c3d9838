"""Checkpoints: a state in one file, which is written as a whole or not at all, and is checked before it is taken.

The file is one of numpy.savez: first the state as JSON, in which a number stands for each array, then the arrays.
"""

import dataclasses
import functools
import json
import math
import os
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from . import learners
from .arrangement import Arrangement
from .errors import TrainingError
from .folder import PAIRS
from .loop import Loop
from .settings import list_fields
from .weights import layout_of
from .workload import Workload

FORMAT = 5
BEGIN_AGAIN = "restore it from a copy, or begin again in another folder with --out"
"""The remedy for a checkpoint that cannot be resumed from."""


def save(state: Any, path: Path) -> None:
    """Write the state next to ``path``, then rename it there. TrainingError (a full disk) leaves the old file.

    The caller has the folder to itself; the remains of a save that was killed are overwritten by the next.
    """
    beside, arrays = path.with_name(f".{path.name}.part"), list[NDArray[Any]]()
    text = json.dumps({"format": FORMAT, "state": _changed(state, functools.partial(_put_away, arrays))})
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
        saved = _changed(json.loads(text.tobytes()), functools.partial(_take_back, arrays))
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


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with ``change`` applied to everything in it, through nested dicts, lists and tuples."""
    changed = change(value)
    if changed is not value:
        return changed
    if isinstance(value, dict):
        return {key: _changed(part, change) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_changed(part, change) for part in value]
    return value


STEPS = "workload.steps"  # in which a run may differ from its checkpoint


def threads_and_devices(loop: Loop) -> dict[str, Any]:
    """Threads and all that computes; a resumed run repeats bit for bit only where they stay the same."""
    made = {"device": loop.device, "compile": loop.compiled, "learner": loop.learner.implementation}
    return {"threads": learners.threads(), **made, "policy": loop.policy_name}


def check_state(path: Path, state: Any, loop: Loop, form: Mapping[str, Any]) -> None:
    """Compare a loop, and the ``form`` of its run's state, with a checkpoint: a warning if the setting differs.

    TrainingError if the checkpoint is of another run, of another number of threads, or not of that form.
    """
    if not isinstance(state, dict) or state.keys() != form.keys() or not isinstance(state["identity"], dict):
        raise _refused(path, "it lacks what a run saves")
    with refusing(path):  # whatever stands in place of a setting
        other = _differences(state["identity"], loop.identity(), _list_defaults())
    if other not in ([], [STEPS]):
        is_searched = loop.identity()["workload"]["learner"]["batch"] is None
        is_lacking = path.with_name(PAIRS).exists() and not is_searched
        remedy = f"; if it was begun with --adapt, as {PAIRS} says, add it" if is_lacking else ""
        raise TrainingError(f"{path}: is of another run, which differs in {', '.join(other)}{remedy}")
    if place := _first_mismatch(state, form, ""):
        raise _refused(path, f"{place} has not the form that a run saves")
    actors = loop.workload.actors  # of each of whose environments the last turn may take a step more
    most = loop.workload.steps + loop.nodes_of_actors * actors.count * actors.environments
    if (taken := state["loop"]["step"]) > most:
        raise TrainingError(f"{path}: has taken {taken:,} steps already; give as many --steps, or more")
    if other:
        end = f"{loop.workload.steps:,} steps"
        kept = "; beta and exploration keep the schedules it was begun with" if loop.workload.replay.beta_end else ""
        print(f"note: the run continues to {end}, another end than it was begun with{kept}", file=sys.stderr)
    setting, here = state["setting"], threads_and_devices(loop)
    if setting["threads"] != here["threads"]:
        raise TrainingError(
            f"{path}: is of a run on {setting['threads']} threads, this one has {here['threads']}; continue "
            f"with --threads {setting['threads']}"
        )
    if other := _differences(setting, here):
        changes = ", ".join(f"{name} {setting[name]} to {here[name]}" for name in other)
        print(f"warning: the run changes from {changes}; it may leave its curve", file=sys.stderr)


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn whatever a loop raises while it takes the state of a checkpoint into a TrainingError."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise _refused(path, str(error).splitlines()[0] if str(error) else type(error).__name__) from error


def _refused(path: Path, why: str) -> TrainingError:
    return TrainingError(f"{path}: is no checkpoint of this run, or was damaged: {why}; {BEGIN_AGAIN}")


_LARGEST = 1 << 63  # counts are below
_ABSENT = {"policy", "actors"}  # parts that a run may be without
_LATER = {"over", "kept", "inputs", "model_inputs", "judged"}  # parts that older checkpoints are without
_OWN_FORM = {"actions", "losses", "parts"}  # parts whose form the run so far has decided
_ANY_VALUE = {"arrays", "drawn", "observation", "observations", "next"}  # of environments, who may observe anything


def _first_mismatch(saved: Any, expected: Any, path: str) -> str:
    """The place where a saved state is not of the form of a run's own, "" where there is none.

    Alike are keys, types, dtypes and shapes; floats are finite, integers no less than 0. Elements of a list are like
    the expected list's first, those of a tuple each like its own; an array that is expected to be empty may have any
    number of rows.
    """
    key = path.rpartition(".")[2]
    if key in _OWN_FORM or (key in _ABSENT and (saved is None or (expected is None and isinstance(saved, dict)))):
        return ""
    parts: Iterable[tuple[Any, Any, str]] = ()
    if isinstance(expected, dict):
        later = expected.keys() if path.startswith("identity") else _LATER  # an identity's values were compared before
        is_alike = isinstance(saved, dict) and expected.keys() - later <= saved.keys() <= expected.keys()
        parts = ((saved[name], expected[name], f"{path}.{name}".lstrip(".")) for name in expected if name in saved)
    elif isinstance(expected, list | tuple):
        is_alike = isinstance(saved, list) and (isinstance(expected, list) or len(saved) == len(expected))
        if is_alike:
            parts = ((part, own, path) for part, own in zip(saved, cycle(expected), strict=False))
    elif isinstance(expected, np.ndarray):
        is_free = expected.shape[:1] == (0,)
        is_alike = isinstance(saved, np.ndarray) and saved.dtype == expected.dtype
        is_alike = is_alike and saved.shape[is_free:] == expected.shape[is_free:]
        is_alike = is_alike and (bool(_ANY_VALUE & {*path.split(".")}) or bool(np.isfinite(saved).all()))
    elif isinstance(expected, float):
        is_alike = type(saved) in (int, float) and (math.isfinite(saved) or saved == expected)
    else:
        is_alike = type(saved) is type(expected) and (
            not isinstance(saved, int) or 0 <= saved < _LARGEST or (saved >= 0 and ".rng." in path)
        )
    return next(filter(None, (_first_mismatch(*part) for part in parts)), "") if is_alike else path or "state"


def too_large(path: Path, workload: Workload, verb: str, and_then: str) -> TrainingError:
    """The error of a checkpoint that memory cannot take while it is ``verb``: read or written."""
    replay = workload.replay
    size = replay.capacity * layout_of(workload).record_bytes / 1e9
    return TrainingError(
        f"{path}: cannot be {verb}, as it takes up to {size:,.1f} GB of memory besides the buffer's own "
        f"{size:,.1f}; free some, or begin with less [replay] capacity than {replay.capacity:,}; {and_then}"
    )


def _list_defaults() -> dict[str, Any]:
    """List the defaults of an identity's keys, which a checkpoint had that was saved before there was the key."""
    tables = {table: {field.name: field.default for field in own} for table, own in list_fields() if table}
    return {"workload": tables, "arrangement": {field.name: field.default for field in dataclasses.fields(Arrangement)}}


def _differences(
    saved: Mapping[str, Any], here: Mapping[str, Any], usual: Mapping[str, Any] = MappingProxyType({}), at: str = ""
) -> list[str]:
    """The keys in which two identities differ; a key that was not saved had its ``usual`` value."""
    differing = []
    for key in (*here, *(key for key in saved if key not in here)):
        value, before = here.get(key), saved.get(key, usual.get(key))
        if isinstance(value, dict) and isinstance(before, dict):
            differing += _differences(before, value, usual.get(key, {}), f"{at}{key}.")
        elif before != (list(value) if isinstance(value, tuple) else value):
            differing.append(f"{at}{key}")
    return differing
