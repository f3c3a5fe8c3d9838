"""What every file in TOML here is read with: text and tables or one sentence why not, and faults by their line."""

import difflib
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from . import toml_lines

MOST_BYTES = 1 << 20
MOST_TOLD = 100

Faults = list[tuple[toml_lines.Path, str]]
"""The key, and a sentence that says what is wrong with it."""


class Problem(NamedTuple):
    """One thing that is wrong with a file. Lines count from 1; 0 is the file as a whole."""

    where: str
    line: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.where}:{self.line}: {self.sentence}" if self.line else f"{self.where}: {self.sentence}"


class UnreadableError(Exception):
    """A text of which nothing can be told but this; ``line`` 0 if no line is to blame."""

    def __init__(self, sentence: str, line: int = 0) -> None:
        super().__init__(sentence)
        self.line = line


def content(path: Path, kind: str) -> str:
    """The text of a ``kind`` file, such as "platform".

    UnreadableError for a folder, a file that is not there, too large, or not of text.
    """
    try:
        if path.is_dir():
            raise UnreadableError(f"is a folder; name a file, such as {kind}.toml in it")
        if path.exists() and not path.is_file():
            raise UnreadableError("is not a regular file")
        with path.open("rb") as file:
            found = file.read(MOST_BYTES + 1)
        size = path.stat().st_size
    except OSError as error:
        raise UnreadableError(f"cannot be read ({error.strerror})") from None
    except ValueError:
        raise UnreadableError("cannot be read (no file has such a name)") from None
    if len(found) > MOST_BYTES:
        raise UnreadableError(f"has {size:,} bytes, a {kind} file at most {MOST_BYTES:,}; is it the right file?")
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = found.count(b"\n", 0, error.start) + 1
        raise UnreadableError(f"byte {error.start:,} is not UTF-8; save the file as UTF-8", line) from None


def tables(text: str, kind: str) -> dict[str, Any]:
    """The text's tables. UnreadableError for what is not TOML, or what no reader of TOML can take."""
    if (nul := text.find("\0")) >= 0:
        raise UnreadableError("holds a NUL byte; it is not a text, or was damaged", text.count("\n", 0, nul) + 1)
    if line := toml_lines.too_deep(text):
        raise UnreadableError(f"a key of more than 16 parts; no key of a {kind} file has so many", line)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = str(error), text.count("\n") + 1
        if found := re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message):
            message, line = message[: found.start()], int(found[1] or line)
        raise UnreadableError(f"not TOML: {message[:1].lower()}{message[1:200]}", line) from None
    except RecursionError:
        raise UnreadableError(f"values are nested too deeply; no value of a {kind} file is nested in itself") from None
    except ValueError as error:  # of int(), for thousands of digits
        raise UnreadableError(f"holds a number that cannot be read ({str(error)[:80]})") from None


def by_line(faults: Faults, text: str, where: str) -> list[Problem]:
    """The faults as problems in the order of their lines, a hundred at most."""
    at = toml_lines.locate(text)
    told = sorted({(toml_lines.line_of(path, at), sentence) for path, sentence in faults})
    found = [Problem(where, line, sentence) for line, sentence in told[:MOST_TOLD]]
    if len(told) > MOST_TOLD:
        found.append(Problem(where, 0, f"and {len(told) - MOST_TOLD} more"))
    return found


def near(word: str, known: Iterable[str]) -> str:
    """ "; did you mean ...?" where a known word is near, else nothing."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def short(word: object) -> str:
    """What a file says, quoted, and cut where it is long."""
    return repr(word if len(str(word)) <= 40 else f"{str(word)[:40]}...")


def kind_of(value: object) -> str:
    """What a value of TOML is, in words."""
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "an array", dict: "a table"}
    return kinds.get(type(value), "a date or time")
