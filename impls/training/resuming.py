"""Whether a checkpoint is of the run that is to go on from it, and whether it does so as it would have."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def check(path: Path, state: Mapping[str, Any], loop: "SerialLoop | ParallelLoop") -> None:
    """Compare a loop with the checkpoint of a path: a warning if the setting differs.

    TrainingError if the checkpoint is of another run, or of another number of threads.
    """
    if other := _differences(state["identity"], loop.identity()):
        raise TrainingError(f"{path}: is of another run, which differs in {', '.join(other)}")
    setting, here = state["setting"], setting_of(loop)
    if setting["threads"] != here["threads"]:
        raise TrainingError(
            f"{path}: is of a run on {setting['threads']} threads, this one has {here['threads']}; go on "
            f"with --threads {setting['threads']}"
        )
    if other := _differences(setting, here):
        changes = ", ".join(f"{name} {setting[name]} to {here[name]}" for name in other)
        print(f"warning: the run changes from {changes}; it may leave its curve", file=sys.stderr)


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
