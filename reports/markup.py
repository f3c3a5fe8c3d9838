"""HTML paragraphs, lists and tables, with their text escaped."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NUMBER_SIGNS = str.maketrans("", "", ",.%x*")


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, its CSS classes, and a note in small letters."""

    text: str
    classes: str = ""
    note: str = ""


def named(text: str, ours: bool = False, note: str = "") -> Cell:
    """Make the cell of a name, bold where it is ours."""
    return Cell(text, "name ours" if ours else "name", note)


def safe(value: object) -> str:
    """Escape a value for HTML."""
    return html.escape(str(value))


def paragraph(sentence: str) -> str:
    """Make one paragraph of a sentence."""
    return f"<p>{safe(sentence)}</p>\n"


def paragraphs(sentences: Iterable[str]) -> str:
    """Make a paragraph of each sentence."""
    return "".join(map(paragraph, sentences))


def items(lines: Iterable[str]) -> str:
    """Make a list with an item for each line."""
    return "<ul>" + "".join(f"<li>{safe(line)}</li>\n" for line in lines) + "</ul>\n"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], groups: Sequence[tuple[str, int]] = ()) -> str:
    """Make a table that scrolls sideways where it does not fit; numbers are set right.

    ``groups`` are headings above the head, each with the number of columns below it.
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
