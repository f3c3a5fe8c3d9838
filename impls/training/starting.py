"""A run by the processes of its arrangement, ready to begin or to continue."""

from typing import Any

from .errors import TrainingError
from .loop import SerialLoop
from .parallel.arrangement import Arrangement
from .run import Plan, Run
from .workload import Workload


def start(
    workload: Workload,
    plan: Plan,
    *,
    contestant: str = "numba",
    seed: int = 0,
    resume: bool = False,
    arrangement: Arrangement | None = None,
    **options: Any,
) -> Run:
    """A run that is ready to start or resume; ``options`` are the loop's learner, policy, device and compiled.

    TrainingError for what cannot be trained so: several processes have the numba tree, and nothing compiled by torch.
    """
    if arrangement is None or not arrangement.is_parallel:
        return Run(SerialLoop(workload, contestant=contestant, seed=seed, **options), plan, resume)
    try:
        from .parallel.loop import ParallelLoop  # noqa: PLC0415  # compiled code and shared memory
    except ImportError as error:
        raise TrainingError(f"several processes cannot train here: {error}; leave out --arrangement") from None
    if contestant != ParallelLoop.contestant:
        raise TrainingError(
            f"several processes share the tree {ParallelLoop.contestant}, not {contestant!r}; leave out --contestant"
        )
    if options.pop("compiled", False):
        raise TrainingError("--compile is for a run of one process; leave it out, or --arrangement")
    return Run(ParallelLoop(workload, arrangement, seed=seed, **options), plan, resume)
