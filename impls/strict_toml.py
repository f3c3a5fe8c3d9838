"""The one reader of TOML files: strict, and it reports everything that is wrong at once, each fault with its line.

A kind of file is a dataclass whose fields are its keys (``key``), a ``Reader`` that knows its numbers, and ``Files``.
"""

import dataclasses
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from .checks import near, short
from .files import list_files

KeyPath = tuple[str | int, ...]
"""Path of a key: the names of the tables around it, the numbers of those in arrays of tables, and its own name."""

_TOKEN = re.compile(
    r"""(?P<string>'''.*?'{3,5}|\"\"\"(?:\\.|[^\\])*?\"{3,5}|'[^'\n]*'|"(?:\\.|[^"\\\n])*")"""
    r"""|(?P<comment>\#[^\n]*)|(?P<newline>\n)|(?P<word>[\w-]+)|(?P<sign>[\[\]{}=.,])|(?P<other>.)""",
    re.DOTALL,
)
_MOST_DOTS = 16
# Keys of more parts than files need, of which tomllib takes the cube; and numbers that Python reads but cannot write
_DOTTED = re.compile(rf"(?<![\w\"'-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){{{_MOST_DOTS}}}")

MOST_BYTES = 1 << 20
MOST_TOLD = 100  # problems that are listed
MOST_TABLES = 100  # of one kind in one table

_ENDLESS = re.compile(r"\b0[box][0-9a-fA-F_]{1000}")
_NUL = re.compile("\0")
_KINDS = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "an array", dict: "a table"}

T = TypeVar("T")
Field = dataclasses.Field[Any]

Faults = list[tuple[KeyPath, str]]
"""The key, and a sentence that says what is wrong with it."""


class Problem(NamedTuple):
    """One thing that is wrong with a file. Lines count from 1; 0 is the file as a whole."""

    where: str
    line: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.where}:{self.line}: {self.sentence}" if self.line else f"{self.where}: {self.sentence}"


class UnreadableError(Exception):
    """A text that cannot be read at all; ``line`` 0 if no line is to blame."""

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
            read = file.read(MOST_BYTES + 1)
        size = path.stat().st_size
    except OSError as error:
        raise UnreadableError(f"cannot be read ({error.strerror})") from None
    except ValueError:
        raise UnreadableError("cannot be read (no file has such a name)") from None
    if len(read) > MOST_BYTES:
        raise UnreadableError(f"has {size:,} bytes, a {kind} file at most {MOST_BYTES:,}; is it the right file?")
    try:
        return read.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = read.count(b"\n", 0, error.start) + 1
        raise UnreadableError(f"byte {error.start:,} is not UTF-8; save the file as UTF-8", line) from None


def tables(text: str, kind: str) -> dict[str, Any]:
    """The text's tables. UnreadableError for text that is not TOML, or that no reader of TOML can take."""
    refused = (
        (_NUL, "holds a NUL byte; it is not a text, or was damaged"),
        (_DOTTED, f"a key of more than {_MOST_DOTS} parts; no key of a {kind} file has so many"),
        (_ENDLESS, "holds a number that cannot be read (of thousands of digits)"),
    )
    for pattern, sentence in refused:
        if found := pattern.search(text):
            raise UnreadableError(sentence, text.count("\n", 0, found.start()) + 1)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = str(error), text.count("\n") + 1
        if at := re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message):
            message, line = message[: at.start()], int(at[1] or line)
        raise UnreadableError(f"not TOML: {message[:1].lower()}{message[1:200]}", line) from None
    except RecursionError:
        raise UnreadableError(f"values are nested too deeply; no value of a {kind} file is nested in itself") from None
    except ValueError as error:  # of int(), for thousands of digits
        raise UnreadableError(f"holds a number that cannot be read ({str(error)[:80]})") from None


class Files(Generic[T]):
    """Files of a ``kind``, such as "platform": those that ship in a ``folder``, by their names, and anyone's own.

    ``build`` turns tables into what they describe, or None with all faults. ``error`` is the exception to raise.
    """

    def __init__(
        self,
        kind: str,
        folder: Path,
        build: Callable[[Mapping[str, Any]], tuple[T | None, Faults]],
        error: type[Exception],
    ) -> None:
        self.kind, self.folder, self.build, self.error = kind, folder, build, error

    def names(self) -> list[str]:
        """Names of the files that ship, sorted."""
        return [path.stem for path in list_files(self.folder, "*.toml")]

    def path_of(self, name: str | Path, *others: str) -> Path:
        """The file of a name, or the path itself. ``error`` for an unknown name; ``others`` are names too."""
        path, known = Path(name), self.names()
        if str(name) in known:
            return self.folder / f"{name}.toml"
        if path.suffix == ".toml" or len(path.parts) != 1:
            return path
        known += others
        is_file = os.path.exists(f"{name}.toml")  # noqa: PTH110  # Path.exists raises for a name that is too long
        meant = f"; did you mean '{name}.toml'?" if is_file else near(str(name), known)
        there = f"there are {', '.join(known)}, or name a .toml file{meant}"
        raise self.error(f"no {self.kind} {short(str(name))}; {there}")

    def load(self, path: Path) -> T:
        """The object that a file describes. Raises ``error`` with a line for each problem."""
        loaded, problems = self.read(path)
        if loaded is None:
            raise self.error("\n".join(map(str, problems)))
        return loaded

    def text_of(self, path: Path) -> str:
        """The text of a file as it is, with its comments. Raises ``error`` where it cannot be read."""
        try:
            return content(path, self.kind)
        except UnreadableError as error:
            raise self.error(f"{path}: {error}") from None

    def read(self, path: Path) -> tuple[T | None, list[Problem]]:
        """(what the file describes, nothing), or (None, all that is wrong with it)."""
        try:
            return self.parse(content(path, self.kind), str(path))
        except UnreadableError as error:
            return None, [Problem(str(path), error.line, str(error))]

    def parse(self, text: str, where: str) -> tuple[T | None, list[Problem]]:
        """The same for a text; ``where`` is the name of the file in problems."""
        try:
            built, faults = self.build(tables(text, self.kind))
        except UnreadableError as error:
            return None, [Problem(where, error.line, str(error))]
        return built, _by_line(faults, text, where) if faults else []


def _by_line(faults: Faults, text: str, where: str) -> list[Problem]:
    """The faults as problems in the order of their lines, a hundred at most."""
    lines = locate(text)
    pairs = sorted({(line_of(path, lines), sentence) for path, sentence in faults})
    problems = [Problem(where, line, sentence) for line, sentence in pairs[:MOST_TOLD]]
    return problems + ([Problem(where, 0, f"and {len(pairs) - MOST_TOLD} more")] if len(pairs) > MOST_TOLD else [])


def key(shape: str, default: Any = dataclasses.MISSING, **rules: Any) -> Any:
    """A dataclass field that a key of a file sets: its shape, and rules for the reader."""
    return dataclasses.field(default=default, metadata={"shape": shape, **rules})


class Reader:
    """Reads tables into dataclasses and collects what is wrong with them. Subclasses add shapes of numbers.

    Shapes of a field: "text", of ``choices`` or of a ``pattern`` that ``called`` describes; "table", of the class
    ``of``, or of the field's own type where it has no rules; "tables", any number of those.
    """

    def __init__(self) -> None:
        self.faults: Faults = []

    def fault(self, path: KeyPath, sentence: str) -> None:
        """Keep what is wrong with the key at a path."""
        self.faults.append((path, sentence))

    def keys(self, of: type) -> Mapping[str, Field]:
        """The fields of a class by the keys that state them."""
        return {field.name: field for field in dataclasses.fields(of)}

    def table(self, of: type, data: Mapping[str, Any], path: KeyPath) -> Any:
        """The table as an ``of``, or None with faults."""
        before, values, fields = len(self.faults), dict[str, Any](), self.keys(of)
        for word, value in data.items():
            # Invariant: every key so far has its value here or a fault, so without a fault all values are right.
            if word in fields:
                values[fields[word].name] = self.value(fields[word], value, (*path, word))
            else:
                self.fault((*path, word), self.unknown(word, of))
        self.complete(of, values, path)
        return None if len(self.faults) > before else of(**values)

    def value(self, field: Field, value: Any, path: KeyPath) -> Any:
        """The value of a key; anything, with a fault, where it is wrong."""
        rules = field.metadata
        match rules.get("shape", "table"), value:
            case "text", _:
                return self.text(value, path, rules)
            case "table", dict():
                return self.table(rules.get("of", field.type), value, path)
            case "tables", list() if all(isinstance(part, dict) for part in value):
                if len(value) > MOST_TABLES:
                    self.fault(path, f"{len(value)} tables {path[-1]}; at most {MOST_TABLES} are read")
                return tuple(self.table(rules["of"], part, (*path, n)) for n, part in enumerate(value[:MOST_TABLES]))
        self.fault(path, f"{path[-1]} must be {self.expected(field, path)}, not {self.kind_of(value)}")
        return None

    def text(self, value: Any, path: KeyPath, rules: Mapping[str, Any]) -> str | None:
        """The text with single spaces between its words, or None with a fault."""
        plain, choices = " ".join(value.split()) if isinstance(value, str) else "", rules.get("choices")
        if not isinstance(value, str):
            wrong = f"text in quotes, not {self.kind_of(value)}"
        elif choices and value not in choices:
            wrong = f"one of {', '.join(choices)}, not {short(value)}{near(value, choices)}"
        elif "pattern" in rules and not rules["pattern"].fullmatch(value):
            wrong = f"{rules['called']}, not {short(value)}"
        elif not plain or not plain.isprintable():
            wrong = f"printable text, not {short(value)}"
        else:
            return plain
        self.fault(path, f"{path[-1]} must be {wrong}")
        return None

    def unknown(self, word: str, of: type) -> str:
        """The fault of a key that a table does not have."""
        return f"unknown key {short(word)}{near(word, self.keys(of))}"

    def complete(self, of: type, given: Mapping[str, Any], path: KeyPath) -> None:
        """Find faults of a table once its keys are read: here, the keys it lacks."""
        if lacking := self.lacking(of, given, path):
            self.fault(path, f"{header(path) if path else f'this {of.__name__.lower()}'} lacks {lacking}")

    def lacking(self, of: type, given: Mapping[str, Any], path: KeyPath, needed: Iterable[str] = ()) -> str:
        """Keys that the table leaves out of fields without a default, and of those that are ``needed`` here."""
        return ", ".join(
            self.described(field, path)
            for field in dataclasses.fields(of)
            if field.name not in given
            and (field.name in needed or field.default is field.default_factory is dataclasses.MISSING)
        )

    def described(self, field: Field, path: KeyPath) -> str:
        """The key of a field that the table at a path lacks, or the table's header."""
        name, shape = field.metadata.get("key", field.name), field.metadata.get("shape", "table")
        return header((*path, name), shape) if shape in ("table", "tables") else name

    def expected(self, field: Field, path: KeyPath) -> str:
        """The expected value of a key, in words."""
        shape: str = field.metadata.get("shape", "table")
        return header(path, shape) if shape in ("table", "tables") else shape

    def kind_of(self, value: object) -> str:
        """The kind of a TOML value, in words."""
        return _KINDS.get(type(value), "a date or time")


def header(path: KeyPath, shape: str = "table") -> str:
    """The header of a table in a file."""
    names = ".".join(step for step in path if isinstance(step, str))
    return f"[[{names}]]" if shape == "tables" else f"[{names}]"


# The line that each key of a text stands on, which tomllib does not report


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
