"""Read numbers that others printed, each by its name and with its place; ``results/quoted`` holds them.

A file is a TOML document, a name is its stem and the tables down to the number: ``seed3.table_vi.rmm.dsp``. The strings
``source``, ``place`` and ``note`` hold for everything in and below their table; every number must have the first two.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dse.records import RecordError
from impls.checks import closest
from impls.files import list_files

NOTES = ("source", "place", "note")


@dataclass(frozen=True)
class Quoted:
    """Printed ``numbers`` by name, and ``places``: the source and the place of every number and table by name."""

    numbers: Mapping[str, float]
    places: Mapping[str, str]

    def __getitem__(self, name: str) -> float:
        try:
            return self.numbers[name]
        except KeyError:
            near = closest(name, self.numbers)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise RecordError(f"no number named {name} is quoted{hint}") from None

    def list_names(self, table: str) -> list[str]:
        """List the names of the numbers in and below a table."""
        return [name for name in self.numbers if name.startswith(f"{table}.")]

    def table(self, name: str) -> dict[str, float]:
        """Select the numbers that stand directly in a table, by the last part of their names."""
        names = [key for key in self.list_names(name) if key.rpartition(".")[0] == name]
        return {key.rpartition(".")[2]: self.numbers[key] for key in names}

    def where(self, name: str) -> str:
        """Name the source and the place of a number or table."""
        return self.places[name]


def read(folder: Path) -> Quoted:
    """Read all that a folder quotes. RecordError for a file that is not TOML, or a number without source or place."""
    paths = list_files(folder, "*.toml")
    if not paths:
        raise RecordError(f"{folder}: nothing is quoted here; the numbers that others printed come with the sources")
    numbers, places = dict[str, float](), dict[str, str]()
    for path in paths:
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise RecordError(f"{path}: cannot be read ({error})") from None
        for name, value, notes in _walk(path.stem, tables, {}):
            places[name] = ": ".join(notes.get(kind, "") for kind in NOTES[:2])
            if isinstance(value, dict):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise RecordError(f"{path}: {name} must be a number, not {value!r}")
            if not all(notes.get(kind) for kind in NOTES[:2]):
                raise RecordError(f"{folder}: {name} needs a source and a place, in its table or one above")
            numbers[name] = value
    return Quoted(numbers, places)


def _walk(name: str, table: Mapping[str, Any], notes: Mapping[str, str]) -> Iterator[tuple[str, Any, dict[str, str]]]:
    """Yield every table and every value below, with their names and the notes that hold for them."""
    notes = {**notes, **{kind: str(table[kind]) for kind in NOTES if kind in table}}
    yield name, table, notes
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _walk(f"{name}.{key}", value, notes)
        elif key not in NOTES:
            yield f"{name}.{key}", value, notes
