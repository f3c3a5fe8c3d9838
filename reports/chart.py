"""What a topic of the report declares, figures and sections, and the material that both are made from."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from dse.published import quoted
from dse.published.quoted import Quoted
from dse.records import Measurement

from .tidy import About, tidy


@dataclass(frozen=True)
class Material:
    """One machine's records and the folder of all results; while figures are drawn, what became of each.

    ``drawn``: HTML by the figure's name; ``left_out``: why a figure was not drawn. ``note`` says that the records are
    another machine's than the one that draws, where they are.
    """

    measurements: Sequence[Measurement]
    about: About
    results: Path
    drawn: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def folder(self) -> Path:
        """Where everything of this machine is kept."""
        return self.results / self.about.key

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The records as one tidy table."""
        return tidy(self.measurements)

    @cached_property
    def printed(self) -> Quoted:
        """The numbers that others printed. RecordError where none are quoted."""
        return quoted.read(self.results / "quoted")

    def pictures(self, charts: Iterable["Chart"]) -> str:
        """Those of the figures that were drawn, as HTML."""
        return "".join(self.drawn.get(chart.name, "") for chart in charts)

    def missing(self, charts: Iterable["Chart"]) -> list[str]:
        """Those that were not, a sentence each."""
        why = self.left_out
        return [f"Left out, {chart.name}: {why[chart.name]}" for chart in charts if chart.name in why]


@dataclass(frozen=True)
class Chart:
    """A figure: what it shows, how to draw and to read it, and the command that would measure it.

    ``rows``: from the material what ``draw`` is given, in little time: an empty frame where it was not measured,
    RecordError where an input is missing. Without a ``command`` the figure rests on laws.
    """

    name: str
    rows: Callable[[Material], Any]
    draw: Callable[[Any, About], Figure]
    reading: str
    command: str = ""


def measured(rows: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Material], pd.DataFrame]:
    """A chart's ``rows`` from a selection among the tidy records."""
    return lambda material: rows(material.frame)


@dataclass(frozen=True)
class Section:
    """A section of the page: its place among all (low numbers first), its heading, and its HTML.

    ``html`` raises RecordError, whose sentence then stands instead, where there is nothing to show.
    """

    order: int
    heading: str
    html: Callable[[Material], str]
