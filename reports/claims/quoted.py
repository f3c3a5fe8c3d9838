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
    """Printed ``numbers`` by name, and ``notes`` (source, place, note) by the name of the table they hold for."""

    numbers: Mapping[str, float]
    notes: Mapping[str, Mapping[str, str]]

    def __getitem__(self, name: str) -> float:
        try:
            return self.numbers[name]
        except KeyError:
            near = closest(name, self.numbers)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise RecordError(f"no number named {name} is quoted{hint}") from None

    def table(self, name: str) -> dict[str, float]:
        """Select the numbers that stand directly in a table, by the last part of their names."""
        return {
            key.removeprefix(f"{name}."): value for key, value in self.numbers.items() if key.rpartition(".")[0] == name
        }

    def where(self, name: str) -> str:
        """Name the source and the place of a number or table."""
        return f"{self._note(name, 'source')}: {self._note(name, 'place')}"

    def _note(self, name: str, kind: str) -> str:
        while name:
            if kind in self.notes.get(name, {}):
                return self.notes[name][kind]
            name = name.rpartition(".")[0]
        return ""


NOTHING = Quoted({}, {})


def read(folder: Path) -> Quoted:
    """Read all that a folder quotes. RecordError for a file that is not TOML, or a number without source or place."""
    paths = list_files(folder, "*.toml")
    if not paths:
        raise RecordError(f"{folder}: nothing is quoted here; the numbers that others printed come with the sources")
    numbers: dict[str, float] = {}
    notes: dict[str, Mapping[str, str]] = {}
    for path in paths:
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise RecordError(f"{path}: cannot be read ({error})") from None
        for name, value in _walk(path.stem, tables):
            if isinstance(value, dict):
                notes[name] = {kind: str(value[kind]) for kind in NOTES if kind in value}
            elif isinstance(value, int | float) and not isinstance(value, bool):
                numbers[name] = value
            else:
                raise RecordError(f"{path}: {name} must be a number, not {value!r}")
    quoted = Quoted(numbers, notes)
    for name in numbers:
        if not all(quoted._note(name, kind) for kind in ("source", "place")):
            raise RecordError(f"{folder}: {name} needs a source and a place, in its table or one above")
    return quoted


def _walk(name: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every table and every value below, with their names."""
    yield name, table
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _walk(f"{name}.{key}", value)
        elif key not in NOTES:
            yield f"{name}.{key}", value
