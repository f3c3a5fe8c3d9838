"""The benchmarks that asv follows across commits: a small fixed grid of cases, each method one call or one figure.

asv times a commit's code with this checkout's benchmarks. So the axes are literals and file names, for the installed
package would give an old commit today's labels; and the cases, which need ``impls`` alone, are read by their path.
"""

import functools
import itertools
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import impls

CHECKOUT = Path(__file__).parents[2]
CASES = runpy.run_path(str(CHECKOUT / "benchmarks" / "cases.py"))
Case, load, prepare = CASES["Case"], CASES["load"], CASES["prepare"]
CONTESTANTS = sorted(path.stem.removesuffix("_tree") for path in (CHECKOUT / "impls" / "sumtree").glob("*_tree.py"))
K_ARY = ["cupy", "numba", "numpy"]  # trees with a K, fast enough to be filled at each of them
LONGEST_FILL_SECONDS = 0.1
WARM_UP = 10


class _Timed:
    """Time one op on rotating inputs. NotImplementedError in ``setup`` tells asv to leave the cell out."""

    op = ""
    version = "1"  # else asv takes the source's hash, and a changed comment would end a benchmark's history
    params: tuple[list[Any], ...] = (CONTESTANTS, [10_000, 1_000_000], [256, 4_096])
    param_names: tuple[str, ...] = ("contestant", "capacity", "batch")

    def setup(self, contestant: str, capacity: int, batch: int) -> None:
        """Fill the tree, check its answer, compile and warm up outside of the clock."""
        self.call, self.turns = _warm(contestant, self.op, capacity, batch)


class Draw(_Timed):
    """Time ``sample(uniforms)``: indices and priorities."""

    op = "draw"

    def time_draw(self, contestant: str, capacity: int, batch: int) -> None:
        """Sample B leaves by one call."""
        self.call(next(self.turns))


class Update(_Timed):
    """Time updates of leaves as training samples them."""

    op = "update"

    def time_update(self, contestant: str, capacity: int, batch: int) -> None:
        """Update B leaves by one call."""
        self.call(next(self.turns))


class Step(_Timed):
    """Time the three calls of a training step: sample, get, update."""

    op = "step"
    params = (CONTESTANTS, [100_000], [256])

    def time_step(self, contestant: str, capacity: int, batch: int) -> None:
        """Make one training step's calls."""
        self.call(next(self.turns))


class Fanout(_Timed):
    """Time the three calls of a training step over K."""

    op = "step"
    params = (K_ARY, [4, 16, 64], [100_000], [256])
    param_names = ("contestant", "fanout", "capacity", "batch")

    def setup(self, contestant: str, fanout: int, capacity: int, batch: int) -> None:
        """Fill the tree as the other classes do."""
        self.call, self.turns = _warm(contestant, self.op, capacity, batch, fanout)

    def time_step(self, contestant: str, fanout: int, capacity: int, batch: int) -> None:
        """Make one training step's calls."""
        self.call(next(self.turns))


class Memory:
    """Measure the memory that a tree takes."""

    params = (CONTESTANTS, [1_000_000])
    param_names = ("contestant", "capacity")
    unit, version = "bytes", "1"

    def setup(self, contestant: str, capacity: int) -> None:
        """Leave out implementations that are not available here."""
        _refuse(contestant, capacity)

    def peakmem_build(self, contestant: str, capacity: int) -> None:
        """Build a tree; asv reads the process's peak, interpreter, compiler and leaves included."""
        load(impls.make(contestant, capacity), "uniform")

    def track_bytes(self, contestant: str, capacity: int) -> int:
        """Return the bytes that the tree itself states."""
        return impls.make(contestant, capacity).nbytes


class Modeled:
    """Follow the seconds that a performance model returns; trees that can be timed are omitted."""

    params = (CONTESTANTS, ["draw", "update"], [1_000_000], [256])
    param_names = ("contestant", "op", "capacity", "batch")
    unit, version = "seconds", "1"

    def setup(self, contestant: str, op: str, capacity: int, batch: int) -> None:
        """Ask the implementation for its modeled seconds."""
        _refuse(contestant, capacity)
        self.seconds = impls.make(contestant, capacity).modeled_seconds(op, batch)
        if self.seconds is None:
            raise NotImplementedError(f"{contestant} is timed")

    def track_modeled_seconds(self, contestant: str, op: str, capacity: int, batch: int) -> float | None:
        """Return the modeled seconds of one call of B."""
        return self.seconds


@functools.lru_cache(maxsize=1)  # asv calls setup before every sample; the tree and its turns must outlive it
def _warm(
    contestant: str, op: str, capacity: int, batch: int, fanout: int = 16
) -> tuple[Callable[[int], object], "itertools.count[int]"]:
    """Return a call, and its turns that continue where the warm-up stopped."""
    _refuse(contestant, capacity)
    case = Case(contestant, op, capacity, batch, fanout)
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
    """Raise NotImplementedError with the reason if the implementation is not available here or takes too long."""
    if reason := impls.why_not(contestant):
        raise NotImplementedError(reason)
    traits = getattr(impls, "traits", None)  # older commits have none
    seconds = traits(contestant).fill_seconds if traits else 0.0
    if capacity * seconds > LONGEST_FILL_SECONDS:
        most = int(LONGEST_FILL_SECONDS / seconds)
        raise NotImplementedError(f"{contestant} is too slow with more than {most:,} leaves")
