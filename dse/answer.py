"""The answer to every question of ``dse``: values alone, which ``answers.words`` turns into sentences."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .estimate import Estimate, Evidence

Values = Mapping[str, Any]
"""What a sentence or a line of a table has, by name; times are seconds, rates are per second."""
Level = Literal["measure", "first", "warning", "detail"]
"""Where a note stands: what to measure, with the choice, as a warning, or behind --verbose."""


@dataclass(frozen=True)
class Note:
    """A sentence of ``words.SENTENCES``, named by its kind, with the values that stand in it."""

    kind: str
    values: Values = field(default_factory=dict)
    level: Level = "detail"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"kind": self.kind, "level": self.level, **self.values}


@dataclass(frozen=True)
class Row:
    """An option, a part, an alternative or a value: whatever has a line of a table.

    ``label`` tells it from other rows of its table; ``estimate``, in ``unit``, is its number, an upper bound if
    ``is_bound``; ``says``: the kind of the sentence that tells it.
    """

    label: Values
    estimate: Estimate | None = None
    unit: str = ""
    more: Values = field(default_factory=dict)
    says: str = ""
    is_bound: bool = False

    @property
    def values(self) -> dict[str, Any]:
        """Everything that a sentence may name."""
        return {**self.label, **self.more, "estimate": self.number}

    @property
    def number(self) -> dict[str, Any]:
        """The estimate as plain values: its ends, what they mean, its source and its unit; empty without any."""
        if self.estimate is None:
            return {}
        ends = {name: getattr(self.estimate, name) for name in ("value", "low", "high", "interval", "source")}
        evidence = {"evidence": self.estimate.rests_on.id, "unit": self.unit}
        return {**ends, **evidence, "upper_bound": self.is_bound}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON: the label, the number with its ends, and the rest."""
        return {**self.label, **self.number, **self.more}


@dataclass(frozen=True)
class Answer:
    """The answer to a question; without a ``choice`` nothing fits, and notes say what there is too little of.

    ``rows``: parts of the choice, in the order of work, and tables; ``others``: the next best, the best of them first;
    ``decides``: what would change the choice; ``paste``: lines that make or run it.
    """

    question: Values
    choice: Row | None
    rows: tuple[Row, ...] = ()
    others: tuple[Row, ...] = ()
    decides: tuple[Row, ...] = ()
    notes: tuple[Note, ...] = ()
    paste: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; the same seven keys for every question."""
        tables = {name: [row.to_dict() for row in getattr(self, name)] for name in ("rows", "others", "decides")}
        notes, question, choice = (
            [note.to_dict() for note in self.notes],
            dict(self.question),
            self.choice and self.choice.to_dict(),
        )
        return {"question": question, "choice": choice, **tables, "notes": notes, "paste": list(self.paste)}


def evidence_notes(sources: Iterable[Evidence]) -> Iterator[Note]:
    """Yield a note on each thing that values rest on."""
    for evidence in sources:
        values = {"source": evidence.source, "told": evidence.description, "command": evidence.command}
        yield Note("evidence", {"evidence": evidence.id, **values})
        for assumption in evidence.assumed:
            yield Note("assumed", {"evidence": evidence.id, **assumption._asdict()})


def notes_of_records(machine_note: Note | None, profile_notes: Iterable[Note]) -> tuple[Note, ...]:
    """Return the notes on the records that answer: another machine's, or a profile that is incomplete."""
    whose = (Note("other_machine", machine_note.values, "warning"), machine_note) if machine_note else ()
    return (*whose, *profile_notes)
