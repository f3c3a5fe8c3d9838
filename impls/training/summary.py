"""The results of a run, which it writes once it is done: its summary.json."""

import json
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from . import learners
from .actor import TEST, evaluate
from .environments import Environment
from .errors import TrainingError
from .throughput import Stopwatch, learning_efficiency, sample_efficiency

if TYPE_CHECKING:
    from .copies.loop import CopiesLoop
    from .loop import SerialLoop
    from .parallel.loop import ParallelLoop

    AnyLoop = SerialLoop | ParallelLoop | CopiesLoop


def rates(
    loop: "AnyLoop", watch: Stopwatch, began: tuple[int, int], settled: tuple[float, int, int] | None
) -> dict[str, Any]:
    """Rates of a run, and of it since it has settled, so without its start; both leave evaluations out.

    ``began``: steps and gradient steps when the watch was started; ``settled``: seconds, steps and gradient steps when
    the run had settled, None where it has not; without a gradient step since then there is no rate to tell.
    """
    step, updates = began
    batch = loop.workload.learner.batch
    whole = watch.read(loop.step - step, loop.updates - updates, batch).row() if loop.step > step else None
    if settled is None or settled[2] == loop.updates:
        return {"throughput": whole, "settled": None}
    before, step, updates = settled
    seconds, steps, updates = watch.seconds() - before, loop.step - step, loop.updates - updates
    since = {"seconds": seconds, "steps": steps, "updates": updates}
    since |= {"sampling_hz": steps / max(seconds, 1e-9), "update_hz": updates / max(seconds, 1e-9)}
    return {"throughput": whole, "settled": since}


def tested(loop: "AnyLoop", best: Any, environment: Environment, episodes: int) -> list[float]:
    """Scores of the best weights on episodes that no evaluation has seen."""
    learner = loop.learner
    latest = learner.state_dict()
    learner.load_weights(best)
    scores = evaluate(loop.workload, learner, environment, episodes, loop.seed, TEST)
    learner.load_state_dict(latest)
    return scores


def summary(
    loop: "AnyLoop",
    done: Mapping[str, Any],
    points: Sequence[Sequence[float]],
    best: Mapping[str, Any],
    scores: Sequence[float],
) -> dict[str, Any]:
    """The summary of a loop that has ended.

    ``done``: what else the run tells of itself, among it its rates; ``points``: step, gradient steps and mean score of
    each evaluation, of which ``best`` has the highest mean, and its weights these ``scores`` in the end.
    """
    workload, solved = loop.workload, loop.workload.evaluation.solved
    steps, updates = [int(point[0]) for point in points], [int(point[1]) for point in points]
    means, has_replay = [point[2] for point in points], workload.algorithm != "a3c"
    return {
        "workload": workload.name, "environment": workload.environment, "algorithm": workload.algorithm,
        "contestant": loop.contestant if has_replay else None, "device": loop.device,
        "learner": loop.learner.implementation, "policy": loop.policy_name,
        "fanout": workload.replay.fanout if has_replay else None,
        "alpha": workload.replay.alpha if has_replay else None,
        "seed": loop.seed, "steps": loop.step, "updates": loop.updates, **_made_by(),
        **done, "arrangement": loop.arrangement.to_dict(), "ratio": _ratio(loop),
        "validation_best": best["mean"] + 0.0 if means else None, "validation_best_step": best["step"],
        "test_episodes": len(scores), "test_mean": fmean(scores) + 0.0 if scores else None,
        "test_deviation": pstdev(scores) if scores else None, "solved_at": solved,
        "sample_efficiency": sample_efficiency(steps, means, solved),
        "learning_efficiency": learning_efficiency(updates, means, solved),
    }  # fmt: skip


def write(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write a summary to the folder of its run, and return it. TrainingError if it cannot be written."""
    path = folder / "summary.json"
    try:
        path.with_suffix(".part").write_text(json.dumps(content, indent=1) + "\n")
        path.with_suffix(".part").replace(path)
    except OSError as error:
        raise TrainingError(f"{path}: cannot be written ({error.strerror}); all else of the run is kept") from None
    return content


def _ratio(loop: "AnyLoop") -> float | None:
    """Environment steps taken for each gradient step, from the one before the first on; None before any."""
    learner = loop.workload.learner
    first = (learner.learning_starts - 1) // learner.update_interval * learner.update_interval
    return (loop.step - first) / loop.updates if loop.updates else None


def _made_by() -> dict[str, Any]:
    """Time, command, threads and library versions of a summary."""
    packages = ("numpy", "torch", "gymnasium", "numba")
    versions = {name: sys.modules[name].__version__ for name in packages if sys.modules.get(name)}
    return {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "impls.training", *sys.argv[1:]]),
        "threads": learners.threads(),
        "versions": {"python": platform.python_version()} | versions,
    }
