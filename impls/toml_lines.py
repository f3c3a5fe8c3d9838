"""The line of a TOML text that each of its keys stands on, which tomllib does not report."""

import re
from collections.abc import Iterator, Mapping

KeyPath = tuple[str | int, ...]
"""Path of a key: the names of the tables around it, the numbers of those in arrays of tables, and its own name."""

_TOKEN = re.compile(
    r"""(?P<string>'''.*?'{3,5}|\"\"\"(?:\\.|[^\\])*?\"{3,5}|'[^'\n]*'|"(?:\\.|[^"\\\n])*")"""
    r"""|(?P<comment>\#[^\n]*)|(?P<newline>\n)|(?P<word>[\w-]+)|(?P<sign>[\[\]{}=.,])|(?P<other>.)""",
    re.DOTALL,
)
_MOST_DOTS = 16
_DOTTED = re.compile(rf"(?<![\w\"'-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){{{_MOST_DOTS}}}")


def too_deep(text: str) -> int | None:
    """The line of a key with more parts than any file needs, or None; tomllib takes the cube of their number."""
    match = _DOTTED.search(text)
    return text.count("\n", 0, match.start()) + 1 if match else None


def locate(text: str) -> dict[KeyPath, int]:
    """Line, from 1, of every table and key of a text that is TOML. Tables of an array go by their number.

    Keys within braces have no line of their own: they count as on the line of the key before the brace.
    """
    lines: dict[KeyPath, int] = {(): 1}
    counts: dict[KeyPath, int] = {}
    here: KeyPath = ()
    for line, tokens in _statements(text):
        # Invariant: here is the table that keys fall into; counts has the latest table of every array of tables.
        if tokens[0] == "[":
            here = _absolute(_names(tokens), counts)
            if tokens[1:2] == ["["]:
                counts[here] = counts.get(here, -1) + 1
                lines.setdefault(here, line)
                here = (*here, counts[here])
            lines.setdefault(here, line)
        else:
            names = _names(tokens)
            for end in range(1, len(names) + 1):
                lines.setdefault((*here, *names[:end]), line)
    return lines


def line_of(path: KeyPath, lines: Mapping[KeyPath, int]) -> int:
    """The line of a key, or of the nearest table around it that the text has."""
    while path not in lines:  # which () always is
        path = path[:-1]
    return lines[path]


def _statements(text: str) -> Iterator[tuple[int, list[str]]]:
    """(line, tokens before its value) of every header and every key. Values may take several lines."""
    line, begin, depth, in_value, tokens = 1, 1, 0, False, list[str]()
    for match in _TOKEN.finditer(text + "\n"):
        # Invariant: the token begins on ``line``; depth counts the brackets of a value that are open, 0 outside of one.
        token, kind = match[0], match.lastgroup
        if kind == "newline" and depth == 0:
            if tokens:
                yield begin, tokens
            begin, in_value, tokens = line + 1, False, []
        elif in_value:
            depth += (token in "[{") - (token in "]}") if kind == "sign" else 0
        elif token == "=":
            in_value = True
        elif kind in ("string", "word", "sign"):
            tokens.append(token)
        line += token.count("\n")


def _names(tokens: list[str]) -> tuple[str, ...]:
    return tuple(token.strip("\"'") for token in tokens if token not in "[].")


def _absolute(names: tuple[str, ...], counts: Mapping[KeyPath, int]) -> KeyPath:
    """A header's names with the number of the latest table after each array of tables on the way."""
    path: KeyPath = ()
    for name in names[:-1]:
        path = (*path, name)
        if path in counts:
            path = (*path, counts[path])
    return (*path, names[-1])
