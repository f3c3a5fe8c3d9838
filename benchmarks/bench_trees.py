"""What asv follows across commits: a small fixed grid of cases, each method one call or one number.

The code that is timed is a commit's, this file is the checkout's. So the axes are literals and file names, and what is
left out is read from the files' text: the installed package would give an old commit the labels of today, and none of
its traits.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import impls

from .cases import Case, load, prepare
from .presets import TREES

CONTESTANTS = sorted(TREES)
LONGEST_FILL_SECONDS = 0.1
WARM_UP = 10


class _Timed:
    """Calls of one op on rotating inputs. NotImplementedError in ``setup`` is asv's word for a cell left out."""

    op = ""
    params: tuple[list[Any], ...] = (CONTESTANTS, [10_000, 1_000_000], [256, 4_096])
    param_names = ("contestant", "capacity", "batch")

    def setup(self, contestant: str, capacity: int, batch: int) -> None:
        """Fill the tree, check its answer, compile and warm up outside of the clock."""
        self.call, self.turns = _warm(contestant, self.op, capacity, batch)


class Draw(_Timed):
    """Indices and priorities."""

    op = "draw"

    def time_draw(self, contestant: str, capacity: int, batch: int) -> None:
        """B draws."""
        self.call(next(self.turns))


class Update(_Timed):
    """Priorities of leaves as training draws them."""

    op = "update"

    def time_update(self, contestant: str, capacity: int, batch: int) -> None:
        """B updates."""
        self.call(next(self.turns))


class Step(_Timed):
    """Draw, get, update."""

    op = "step"
    params = (CONTESTANTS, [100_000], [256])

    def time_step(self, contestant: str, capacity: int, batch: int) -> None:
        """One step of training."""
        self.call(next(self.turns))


class Memory:
    """What a tree takes."""

    params = (CONTESTANTS, [1_000_000])
    param_names = ("contestant", "capacity")
    unit = "bytes"

    def setup(self, contestant: str, capacity: int) -> None:
        """Leave out who is not here."""
        _refuse(contestant, capacity)

    def peakmem_build(self, contestant: str, capacity: int) -> None:
        """The process's peak: interpreter, compiler and leaves included."""
        load(impls.make(contestant, capacity), "uniform")

    def track_bytes(self, contestant: str, capacity: int) -> int:
        """The tree's own account."""
        return impls.make(contestant, capacity).nbytes


class Modeled:
    """Seconds that a performance model returns; trees that can be timed are left out."""

    params = (CONTESTANTS, ["draw", "update"], [1_000_000], [256])
    param_names = ("contestant", "op", "capacity", "batch")
    unit = "seconds"

    def setup(self, contestant: str, op: str, capacity: int, batch: int) -> None:
        """Ask the model."""
        _refuse(contestant, capacity)
        self.seconds = impls.make(contestant, capacity).modeled_seconds(op, batch)
        if self.seconds is None:
            raise NotImplementedError(f"{contestant} is timed")

    def track_modeled_seconds(self, contestant: str, op: str, capacity: int, batch: int) -> float | None:
        """One call of B."""
        return self.seconds


@functools.lru_cache(maxsize=1)  # asv calls setup before every sample; the tree and its turn are to last
def _warm(
    contestant: str, op: str, capacity: int, batch: int
) -> tuple[Callable[[int], object], "itertools.count[int]"]:
    """A call, and its turns that go on where the warm-up stopped."""
    _refuse(contestant, capacity)
    case = Case(contestant, op, capacity, batch)
    try:
        prepared = prepare(case)
    except (RuntimeError, ValueError) as reason:
        raise NotImplementedError(str(reason)) from reason
    if prepared.tree.modeled_seconds(op, batch) is not None:
        raise NotImplementedError(f"{contestant} is modeled, not timed")
    turns = itertools.count()
    for turn in itertools.islice(turns, WARM_UP):
        prepared.call(turn)
    return prepared.call, turns


def _refuse(contestant: str, capacity: int) -> None:
    """NotImplementedError with the reason, if there is one why the contestant cannot be had here or takes too long."""
    if reason := impls.why_not(contestant):
        raise NotImplementedError(reason)
    if capacity * (seconds := TREES[contestant].fill_seconds) > LONGEST_FILL_SECONDS:
        most = int(LONGEST_FILL_SECONDS / seconds)
        raise NotImplementedError(f"{contestant} is too slow with more than {most:,} leaves")
