"""The contestants of a run of other libraries: what each is called, which version it is, what it took."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dse.published.peer_claims import is_ours
from dse.records import Measurement, to_rows

from .peer_rows import SUM, label
from .table import OPS


@dataclass(frozen=True)
class Contestant:
    """A library in one dtype, or a tree of ours, with its records by (op, batch)."""

    name: str
    dtype: str
    options: str
    label: str
    version: str
    cells: dict[tuple[str, int], Measurement]

    @property
    def ours(self) -> bool:
        """Whether it is a tree of ours."""
        return is_ours(self.name)

    def ns(self, part: str, batch: int) -> float | None:
        """Nanoseconds per element of an op or of both; None where one was not timed."""
        found = [self.cells.get((op, batch)) for op in (OPS if part == SUM else (part,))]
        times = [1e9 * one.seconds / batch for one in found if one]
        return sum(times) if len(times) == len(found) else None


def contestants(cells: Iterable[Measurement], run: Sequence[Measurement]) -> list[Contestant]:
    """The contestants of some cells, named and versioned as in their whole run."""
    dtypes = {one.contestant: {other.dtype for other in run if other.contestant == one.contestant} for one in run}
    found: dict[tuple[str, str, str], Contestant] = {}
    for one, row in ((one, next(to_rows([one]))) for one in cells):
        key = (one.contestant, one.dtype, row["options"])
        if key not in found:
            found[key] = Contestant(*key, label(*key, len(dtypes[one.contestant])), _version(one, run), {})
        found[key].cells[one.op, one.batch] = one
    return list(found.values())


def _version(one: Measurement, run: Sequence[Measurement]) -> str:
    """Of the package of its name, else of the packages it alone needed."""
    packages = _packages(one)
    if one.contestant in packages:
        return packages[one.contestant]
    common = set.intersection(*(set(_packages(other)) for other in run))
    return ", ".join(f"{name} {version}" for name, version in packages.items() if name not in common)


def _packages(one: Measurement) -> dict[str, str]:
    return {"python": str(one.machine.get("python", "")), **(one.machine.get("packages") or {})}
