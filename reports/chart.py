"""The figures and sections that a topic of the report declares, and the material that both are made from."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from dse.records import Record, RecordError, in_order
from dse.times.cells import evidence
from impls.files import list_files
from reports.claims import quoted
from reports.claims.quoted import Quoted

from . import origins
from .markup import slug
from .tidy import About, about, tidy


@dataclass(frozen=True)
class Material:
    """One machine's records, the folder of all results, and the outcome of each figure.

    ``drawn``: HTML by the figure's name; ``left_out``: why a figure or a section was not made; ``failed``: those of
    them that failed otherwise than for want of records. ``note`` says so where the records are of another machine than
    the one that draws. ``answers`` has what several sections show, by what was asked.
    """

    measurements: Sequence[Record]
    about: About
    results: Path
    drawn: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    note: str = ""
    answers: dict[Any, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of this machine's results."""
        return self.results / self.about.key

    def of(self, primitive: str) -> "Material":
        """Return the material of this machine if it has a time of a primitive, else of the machine with most of them.

        It is this one, too, where no machine has any, or ``primitive`` is "".
        """

        def count(found: Sequence[Record]) -> int:
            return sum(one.primitive == primitive and one.median_seconds is not None for one in found)

        if not primitive or count(self.measurements):
            return self
        try:
            found = max((known.records for known in evidence(self.results).values()), key=count)
        except RecordError:
            return self
        asked = ("material", found[0].machine_key)
        if count(found) and asked not in self.answers:
            shared = {name: getattr(self, name) for name in ("drawn", "left_out", "answers")}
            note = f"Measured on machine {found[0].machine_key}, for machine {self.about.key} has no such records."
            self.answers[asked] = Material(found, about(found), self.results, note=note, **shared)
        return self.answers[asked] if count(found) else self

    def leave_out(self, name: str, error: Exception) -> None:
        """Keep why a figure or a section is not made, which costs the page no more than that."""
        is_fault = not isinstance(error, RecordError)
        self.left_out[name] = f"{type(error).__name__}: {error}" if is_fault else str(error)
        self.failed.extend([name] * is_fault)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The records as one tidy table."""
        return tidy(self.measurements)

    @cached_property
    def races(self) -> list[Record]:
        """The races of trees on this machine, the latest last."""
        return in_order(one for one in self.measurements if one.primitive == "race")

    @cached_property
    def placed(self) -> list[tuple[str, Record]]:
        """Each record of this machine with the name of its file."""
        return origins.placed(self.measurements, self.results)

    @cached_property
    def printed(self) -> Quoted:
        """The figures that others printed. RecordError where none are quoted."""
        return quoted.read(self.results / "quoted")

    def pictures(self, charts: Iterable["Chart"]) -> str:
        """Return what stands for those figures that were drawn: the page puts each where it comes first."""
        return "".join(placeholder(chart.name) for chart in charts if chart.name in self.drawn)

    def missing(self, charts: Iterable["Chart"]) -> list[str]:
        """Return a sentence for each figure that was not drawn."""
        why = self.left_out
        return [f"Left out, {chart.name}: {why[chart.name]}" for chart in charts if chart.name in why]


def placeholder(name: str) -> str:
    """Return what stands for a figure in the HTML of a section."""
    return f"<!-- figure: {name} -->\n"


@dataclass(frozen=True)
class Chart:
    """A figure: how to select its rows, to draw and to read it, and the command that would measure it.

    ``rows`` selects from the material, in little time, what ``draw`` takes: an empty frame where it was not measured,
    RecordError where an input is missing. Without a ``command`` the figure rests on laws. ``borrowed``: a primitive
    whose records may be another machine's (``Material.of``).
    """

    name: str
    rows: Callable[[Material], Any]
    draw: Callable[[Any, About], Figure]
    reading: str
    command: str = ""
    borrowed: str = ""


def measured(rows: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Material], pd.DataFrame]:
    """Turn a selection among the tidy records into a chart's ``rows``."""
    return lambda material: rows(material.frame)


@dataclass(frozen=True)
class Section:
    """A section of the page: its order (low first), its heading, its HTML, and what it rests on.

    ``html`` raises RecordError where there is nothing to show; the page then prints its sentence. ``primitives`` are
    the beginnings, of whole words, of those whose records it rests on, "" of all of them; ``files`` are patterns of
    other files below the folder of results, in which KEY stands for the machine. A section without either says nothing
    of it. ``figures`` names those of other topics that it shows; ``is_folded`` hides it until a reader opens it;
    ``is_modeled``: it rests on models more than on this machine's records, and takes long.
    ``borrowed``: a primitive whose records may be another machine's (``Material.of``).
    """

    order: int
    heading: str
    html: Callable[[Material], str]
    primitives: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    is_folded: bool = False
    is_modeled: bool = False
    borrowed: str = ""

    @property
    def anchor(self) -> str:
        """The name that links to the section use."""
        return slug(self.heading)

    def rests_on(self, material: Material) -> list[str]:
        """Return a phrase for each file of results that the section rests on: its records, machine, commits, days."""
        kept = [one for one in material.placed if self._is_of(one[1].primitive)]
        patterns = (pattern.replace("KEY", material.about.key) for pattern in self.files)
        others = sorted(path for pattern in patterns for path in list_files(material.results, pattern))
        names = (str(path.relative_to(material.results)) for path in others)
        return [*origins.rests_on(kept), *names]

    def _is_of(self, primitive: str) -> bool:
        """Whether it rests on records of a primitive: "training" stands for no "training run"."""
        return any(primitive.startswith(one) and primitive[len(one) :][:1] != " " for one in self.primitives)
