"""Whether a checkpoint is of the run that is to go on from it, and whether it does so as it would have."""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .checkpoint import BEGIN_AGAIN
from .errors import TrainingError
from .loop import SerialLoop
from .sizes import layout_of
from .workload import Workload

if TYPE_CHECKING:
    from .parallel.loop import ParallelLoop


def setting_of(loop: "SerialLoop | ParallelLoop") -> dict[str, Any]:
    """Threads and all that computes; a resumed run repeats bit for bit only where they stay the same."""
    import torch  # noqa: PLC0415  # loaded long since

    made = {"device": loop.device, "compile": loop.compiled, "learner": loop.learner.implementation}
    return {"threads": torch.get_num_threads(), **made, "policy": loop.policy_name}


def check(path: Path, state: Any, loop: "SerialLoop | ParallelLoop", form: Mapping[str, Any]) -> None:
    """Compare a loop, and the ``form`` of its run's state, with a checkpoint: a warning if the setting differs.

    TrainingError if the checkpoint is of another run, of another number of threads, or not of that form.
    """
    if not isinstance(state, dict) or state.keys() != form.keys() or not isinstance(state["identity"], dict):
        raise _refused(path, "it lacks what a run saves")
    with refusing(path):  # whatever stands in place of a setting
        other = _differences(state["identity"], loop.identity())
    if other:
        raise TrainingError(f"{path}: is of another run, which differs in {', '.join(other)}")
    if place := _misfit(state, form, "") or (state["loop"]["step"] > _last_step(loop) and "loop.step"):
        raise _refused(path, f"{place} has not the form that a run saves")
    setting, here = state["setting"], setting_of(loop)
    if setting["threads"] != here["threads"]:
        raise TrainingError(
            f"{path}: is of a run on {setting['threads']} threads, this one has {here['threads']}; go on "
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


def _last_step(loop: "SerialLoop | ParallelLoop") -> int:
    """The environment step that no run goes beyond: its last turn may take one of each environment."""
    return loop.workload.steps + loop.workload.actors.count * loop.workload.actors.environments


_LARGEST = 1 << 63  # counts are below
_ABSENT = {"policy", "actors"}  # parts that a run may be without
_OWN_FORM = {"actions", "losses", "parts"}  # parts whose form the run so far has decided
_ANY_VALUE = {"arrays", "drawn", "observation", "observations", "next"}  # of environments, who may observe anything


def _misfit(saved: Any, form: Any, at: str) -> str:
    """The place where a saved state is not of the form of a run's own, "" where there is none.

    Alike are keys, types, dtypes and shapes; floats are finite, integers no less than 0. Elements of a list are like
    the form's first, those of a tuple each like its own; an array whose form is empty may have any number of rows.
    """
    key = at.rpartition(".")[2]
    if key in _OWN_FORM or (key in _ABSENT and (saved is None or (form is None and isinstance(saved, dict)))):
        return ""
    parts: Iterable[tuple[Any, Any, str]] = ()
    if isinstance(form, dict):
        is_alike = isinstance(saved, dict) and saved.keys() == form.keys()
        parts = ((saved[name], form[name], f"{at}.{name}".lstrip(".")) for name in form)
    elif isinstance(form, list | tuple):
        is_alike = isinstance(saved, list) and (isinstance(form, list) or len(saved) == len(form))
        if is_alike:
            parts = ((part, own, at) for part, own in zip(saved, cycle(form), strict=False))
    elif isinstance(form, np.ndarray):
        is_free = form.shape[:1] == (0,)
        is_alike = isinstance(saved, np.ndarray) and saved.dtype == form.dtype
        is_alike = is_alike and saved.shape[is_free:] == form.shape[is_free:]
        is_alike = is_alike and (bool(_ANY_VALUE & {*at.split(".")}) or bool(np.isfinite(saved).all()))
    elif isinstance(form, float):
        is_alike = type(saved) in (int, float) and (math.isfinite(saved) or saved == form)
    else:
        is_alike = type(saved) is type(form) and (
            not isinstance(saved, int) or 0 <= saved < _LARGEST or (saved >= 0 and ".rng." in at)
        )
    return next(filter(None, (_misfit(*part) for part in parts)), "") if is_alike else at or "state"


def too_large(path: Path, workload: Workload, verb: str, and_then: str) -> TrainingError:
    """The error of a checkpoint that memory cannot take while it is ``verb``: read or written."""
    replay = workload.replay
    size = replay.capacity * layout_of(workload).record_bytes / 1e9
    return TrainingError(
        f"{path}: cannot be {verb}, as it takes up to {size:,.1f} GB of memory beside the buffer's own "
        f"{size:,.1f}; free some, or begin with less [replay] capacity than {replay.capacity:,}; {and_then}"
    )


def _differences(saved: Mapping[str, Any], here: Mapping[str, Any], at: str = "") -> list[str]:
    """The keys in which two identities differ."""
    differing = []
    for key, value in here.items():
        before = saved.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            differing += _differences(before, value, f"{at}{key}.")
        elif before != (list(value) if isinstance(value, tuple) else value):
            differing.append(f"{at}{key}")
    return differing
