"""A run by the processes of its arrangement, ready to begin or to continue."""

from typing import TYPE_CHECKING, Any

from . import algorithms
from .environments import INSTALL
from .errors import TrainingError
from .loop import SerialLoop
from .parallel.arrangement import COPIES, Arrangement
from .run import Plan, Run
from .workload import Workload

if TYPE_CHECKING:
    from .copies.loop import CopiesLoop
    from .parallel.loop import ParallelLoop


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
    arrangement = arrangement or Arrangement()
    arrangement.check(workload)
    if not arrangement.is_parallel:
        serial: type[SerialLoop] = algorithms.own(workload, "Loop", SerialLoop)
        return Run(serial(workload, contestant=contestant, seed=seed, **options), plan, resume)
    try:
        kind = loop_of(arrangement)
    except ImportError as error:
        raise TrainingError(
            f"several processes cannot train here: {error}; {INSTALL}, or leave out --arrangement"
        ) from None
    if contestant != kind.contestant:
        raise TrainingError(
            f"several processes have the tree {kind.contestant}, not {contestant!r}; leave out --contestant"
        )
    if options.pop("compiled", False):
        raise TrainingError("--compile is for a run of one process; leave it out, or --arrangement")
    return Run(kind(workload, arrangement, seed=seed, **options), plan, resume)


def loop_of(arrangement: Arrangement) -> "type[ParallelLoop] | type[CopiesLoop]":
    """The loop of several processes that an arrangement needs; ImportError without what compiles or shares memory."""
    if arrangement.name == COPIES:
        from .copies.loop import CopiesLoop  # noqa: PLC0415  # compiled code and shared memory

        return CopiesLoop
    from .parallel.loop import ParallelLoop  # noqa: PLC0415

    return ParallelLoop
