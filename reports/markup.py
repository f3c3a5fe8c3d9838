"""HTML: paragraphs and tables, everything in them escaped."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NUMBER_SIGNS = str.maketrans("", "", ",.%x")


@dataclass(frozen=True)
class Cell:
    """A cell of a table with its CSS classes, and a note in small letters."""

    text: str
    classes: str = ""
    note: str = ""


def named(text: str, ours: bool = False, note: str = "") -> Cell:
    """The cell of a name, bold where it is ours."""
    return Cell(text, "name ours" if ours else "name", note)


def safe(value: object) -> str:
    """Text as HTML shows it."""
    return html.escape(str(value))


def paragraph(sentence: str) -> str:
    """One paragraph."""
    return f"<p>{safe(sentence)}</p>\n"


def paragraphs(sentences: Iterable[str]) -> str:
    """One paragraph each."""
    return "".join(map(paragraph, sentences))


def items(lines: Iterable[str]) -> str:
    """A list."""
    return "<ul>" + "".join(f"<li>{safe(line)}</li>\n" for line in lines) + "</ul>\n"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], groups: Sequence[tuple[str, int]] = ()) -> str:
    """A table that scrolls sideways where it does not fit; whatever starts with a digit is set right.

    ``groups`` are headings above the head's, each over so many columns.
    """
    lines = ["".join(f'<th colspan="{columns}">{safe(name)}</th>' for name, columns in groups)] if groups else []
    lines.append("".join(f"<th>{safe(name)}</th>" for name in head))
    lines += ["".join(map(_cell, row)) for row in rows]
    return '<div class="wide"><table>' + "".join(f"<tr>{line}</tr>\n" for line in lines) + "</table></div>\n"


def _cell(value: object) -> str:
    cell = value if isinstance(value, Cell) else Cell(str(value))
    kind = "number" if cell.text.translate(NUMBER_SIGNS).isdigit() else ""
    classes = " ".join(f"{kind} {cell.classes}".split())
    marked = f' class="{classes}"' if classes else ""
    note = f"<br><small>{safe(cell.note)}</small>" if cell.note else ""
    return f"<td{marked}>{safe(cell.text)}{note}</td>"
