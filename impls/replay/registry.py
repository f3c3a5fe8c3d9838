"""Making a replay by the name of its strategy, and attaching to one by its handle."""

import importlib
import math
import pkgutil
from pathlib import Path

from ..checks import integer_at_least, one_of, short
from ..sumtree.compiling import import_numba
from .blocks import ReplayHandle, Settings
from .layout import Layout, check_layout
from .replay import Replay
from .values import number

_LOCKING = f"{__name__.rpartition('.')[0]}.locking"


def strategies() -> tuple[str, ...]:
    """Names of the locking strategies, sorted."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent / "locking")])
    return tuple(sorted(name.name.removesuffix("_strategy") for name in modules if name.name.endswith("_strategy")))


def strategy_class(name: str) -> type[Replay]:
    """A strategy's class. ValueError for a name that is none; ImportError without numba; RuntimeError where kernels or
    their mutexes cannot be had."""
    one_of("strategy", name, strategies())
    try:
        import_numba()
        module = importlib.import_module(f"{_LOCKING}.{name}_strategy")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("numba", "llvmlite"):
            raise
        raise ImportError(
            f"this replay is compiled by numba, and the module {error.name!r} is not installed: install the extra "
            "'numba', or use PrioritizedBuffer on a tree that needs NumPy alone"
        ) from error
    from .sync import unavailable  # noqa: PLC0415  # with the compiler

    if reason := unavailable():
        raise RuntimeError(reason)
    (kind,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Replay) and value.__module__ == module.__name__
    )
    return kind


def make(
    capacity: int,
    layout: Layout,
    *,
    alpha: float,
    epsilon: float,
    strategy: str = "two_lock_checked",
    shared: bool = False,
    fanout: int = 16,
    dtype: str = "float32",
    banks: int = 1,
    max_priority: str = "ever",
    trial: bool = False,
) -> Replay:
    """A replay of ``capacity`` records, all slots empty; ``shared`` with other processes or this one's own.

    ``alpha`` >= 0 and ``epsilon`` > 0 make priorities (|TD error| + epsilon)^alpha; ``max_priority`` is what records
    without an error get: the largest "ever" given or the largest that is "current", which with several banks is that of
    the bank they go to. A ``trial`` has kernels that tests can stop. The first call with a strategy and fanout compiles
    for up to a minute, which it says on a terminal; the result is in the user's cache folder (see
    :mod:`impls.files`) for all processes to come, and where none can be used every process compiles.

    Raises ValueError for settings outside their bounds, MemoryError for more than the machine has free, ImportError
    without numba, RuntimeError where it is switched off or the system has no robust mutexes.
    """
    check_layout(layout)
    kind = strategy_class(strategy)
    alpha, epsilon = number("alpha", alpha), number("epsilon", epsilon)
    if not (0 <= alpha < math.inf and 0 < epsilon < math.inf):
        raise ValueError(f"alpha must be at least 0 and epsilon above 0, not {alpha} and {epsilon}")
    integer_at_least("banks", banks, 1)
    if banks > 1 and not kind.banked:
        raise ValueError(f"strategy {strategy!r} has one bank, not {banks}; use strategy='banked'")
    if integer_at_least("capacity", capacity, 1) % banks:
        raise ValueError(f"capacity must be a multiple of banks, not {capacity} in {banks} banks")
    if shared and not kind.processes:
        raise ValueError(f"strategy {strategy!r} is for threads of one process; shared must be False")
    one_of("dtype", dtype, ("float32", "float64"))
    one_of("max_priority", max_priority, ("ever", "current"))
    settings = Settings(
        layout, capacity, alpha, epsilon, integer_at_least("fanout", fanout, 2), dtype, banks, max_priority, trial
    )
    return kind(settings, shared=shared)


def attach(handle: ReplayHandle, layout: Layout | None = None) -> Replay:
    """The replay of a handle, in this process.

    ``layout`` is the one that the caller expects. ValueError if the replay's is another, or if no process that the
    handle knows has the replay any more; TypeError for what is no handle.
    """
    if not isinstance(handle, ReplayHandle):
        raise TypeError(f"attach takes what handle() of a replay returns, not {short(handle)}")
    if layout is not None and layout != handle.settings.layout:
        raise ValueError(f"the replay is of {handle.settings.layout}, not of {layout}")
    return strategy_class(handle.strategy)(handle.settings, handle.memory.attach())
