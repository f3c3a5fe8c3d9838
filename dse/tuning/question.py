"""A question about a workload on a platform: both read, and what is known of them."""

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from impls.training import Workload
from impls.training import load as load_workload

from ..mapping.build import Built, build
from ..mapping.question import checked, key_of, located, tables, with_values
from ..platforms import Platform
from ..platforms.reading import RESULTS
from ..times.parts import Parts
from ..times.profile import PerformanceTable


@dataclass(frozen=True)
class Question:
    """What is asked of; ``machine_note`` says so where another machine than this one stands for "this"."""

    platform: Platform
    workload: Workload
    fix: Mapping[str, Any] = field(default_factory=dict)
    exclude: Collection[str] = ()
    results: Path = RESULTS
    called: str = ""
    machine_note: str = ""

    @functools.cached_property
    def tables(self) -> tuple[PerformanceTable | None, PerformanceTable | None]:
        """(records of this very machine, a profile made elsewhere)."""
        return tables(self.platform, self.workload, self.results)

    @property
    def machine(self) -> str:
        """Key of the machine whose records are read; "" where none are."""
        return key_of(*self.tables)

    def parts(self) -> Parts:
        """What each part takes."""
        return Parts(self.platform, self.workload, *self.tables, self.fix, self.called)

    def built(self) -> Built:
        """The problem of each place."""
        return build(self.parts(), excluded=frozenset(self.exclude))


def ask(
    platform: str | Path | Platform,
    workload: str | Path | Workload,
    *,
    fix: Mapping[str, Any] | None = None,
    exclude: Collection[str] = (),
    results: Path = RESULTS,
    machine: str | None = None,
) -> Question:
    """The question, platform and workload read where they are names or files; errors as in ``recommend_mapping``."""
    called = workload.name if isinstance(workload, Workload) else str(workload)
    task = workload if isinstance(workload, Workload) else load_workload(workload)
    place, note = located(platform, workload, results, machine)
    values = checked(place, fix or {}, exclude, (), "ratio", None)
    return Question(place, with_values(task, values), values, exclude, results, called, note)
