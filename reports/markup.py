"""HTML paragraphs, lists and tables, with their text escaped."""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PROSE = 60  # characters of a cell that would make a tall row of a narrow column
NUMBER_SIGNS = str.maketrans("", "", ",.%x*")


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, its CSS classes, a note in small letters, and where its text leads.

    ``anchor``: the name that links to this cell use. ``links``: (anchor, text) of each place that it leads to.
    """

    text: str
    classes: str = ""
    note: str = ""
    link: str = ""
    anchor: str = ""
    links: tuple[tuple[str, str], ...] = ()


def named(text: str, ours: bool = False, note: str = "") -> Cell:
    """Make the cell of a name, bold where it is ours."""
    return Cell(text, "name ours" if ours else "name", note)


def safe(value: object) -> str:
    """Escape a value for HTML."""
    return html.escape(str(value))


def slug(text: str) -> str:
    """Make the name of an anchor out of a heading.

    >>> slug("Claims of [Hou2023]"), slug("On an FPGA (modeled)")
    ('claims-of-hou2023', 'on-an-fpga-modeled')
    """
    return re.sub(r"[^a-z0-9]+", "-", html.unescape(re.sub(r"<[^>]*>", "", text)).lower()).strip("-")


def here(anchor: str, what: str) -> str:
    """Make the visible link to an anchor; ``what`` it leads to is read out where nobody sees."""
    return f'<a class="here" href="#{anchor}" aria-label="link to {safe(what)}">#</a>'


def link(anchor: str, text: str) -> str:
    """Make a link to another place of the page."""
    return f'<a href="#{anchor}">{safe(text)}</a>'


def outside(address: str, text: str) -> str:
    """Make a link to an address outside of the page, which is fetched only where a reader follows it."""
    return f'<a href="{safe(address)}" rel="noreferrer">{safe(text)}</a>'


def console(text: str) -> str:
    """Make a block of what to type or what was printed, which scrolls within itself."""
    return f"<pre>{safe(text)}</pre>\n"


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
    kinds = (("th" if name else "td", name, columns) for name, columns in groups)
    above = "".join(f'<{kind} colspan="{columns}">{safe(name)}</{kind}>' for kind, name, columns in kinds)
    names = "".join(f"<th>{safe(name)}</th>" if name else "<td></td>" for name in head)
    top = "".join(f"<tr>{line}</tr>\n" for line in (above, names) if line)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    return f'<div class="wide"><table><thead>{top}</thead><tbody>{body}</tbody></table></div>\n'


def _cell(value: object) -> str:
    cell = value if isinstance(value, Cell) else Cell(str(value))
    kind = "prose" if len(cell.text) > PROSE else "number" if cell.text.translate(NUMBER_SIGNS).isdigit() else ""
    classes = " ".join(f"{kind} {cell.classes}".split())
    marked = f' class="{classes}"' if classes else ""
    anchor = f' id="{cell.anchor}"' if cell.anchor else ""
    text = link(cell.link, cell.text) if cell.link else safe(cell.text)
    text += ", ".join(link(*lead) for lead in cell.links)
    note = f"<br><small>{safe(cell.note)}</small>" if cell.note else ""
    return f"<td{anchor}{marked}>{text}{note}</td>"
