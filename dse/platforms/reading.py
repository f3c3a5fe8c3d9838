"""Platform files: TOML, read strictly, with everything that is wrong told at once.

    name = "mine"

    [[device]]
    name = "cpu"
    kind = "cpu"                       # cpu, gpu or fpga
    origin = "datasheet"               # of every number below that does not say otherwise
    note = "the maker's data sheet"    # and the source
    cores = 8
    [device.memory]
    size_gib = 32
    bandwidth_gb_per_s = { value = 51.2, origin = "assumed", note = "two channels of DDR4-3200" }

Keys of numbers end in a unit; the fields of ``Platform``, ``Device``, ``Cache``, ``Memory``, ``Slice`` and ``Link`` say
which keys there are. ``origin`` and ``note`` hold for the table they stand in and the tables below it; a number that
states an origin of its own states its note too.
"""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from . import lines, schema
from .fingerprint import fingerprint
from .platform import Platform
from .quantities import near, short

MOST_BYTES = 1 << 20
MOST_TOLD = 100
HERE = "this"  # the name of the machine that asks
RESULTS = Path("results")
FILE = "platform.toml"  # in a machine's folder of the results
_SHIPPED = Path(__file__).parent


class PlatformError(Exception):
    """A platform cannot be used; the message has a sentence for each reason, a line each."""


class Problem(NamedTuple):
    """One thing that is wrong with a file. Lines count from 1; 0 is the file as a whole."""

    where: str
    line: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.where}:{self.line}: {self.sentence}" if self.line else f"{self.where}: {self.sentence}"


def names() -> list[str]:
    """The shipped platforms."""
    return sorted(path.stem for path in _SHIPPED.glob("*.toml"))


def load(name: str | Path, results: Path = RESULTS) -> Platform:
    """The shipped platform of that name, ``this`` machine as it was probed, or that of a file.

    PlatformError with everything that is wrong, if anything is.
    """
    where = path_of(name, results)
    platform, found = read(where)
    if platform is None:
        raise PlatformError("\n".join(map(str, found)))
    key = fingerprint()["key"]
    if str(name) == HERE and platform.machine_key != key:
        raise PlatformError(
            f"{where}: was probed on machine {platform.machine_key}, this one is {key}; probe it with: "
            "python -m dse platform probe"
        )
    return platform


def path_of(name: str | Path, results: Path = RESULTS) -> Path:
    """The file of a platform by its name, or the path itself. PlatformError for a name that nothing has."""
    if str(name) == HERE:
        path = here(results)
        if not path.is_file():
            raise PlatformError(
                f"this machine has not been probed, {path} is not there; do it with: python -m dse platform probe"
            )
        return path
    if str(name) in names():
        return _SHIPPED / f"{name}.toml"
    path = Path(name)
    if path.suffix == ".toml" or len(path.parts) != 1 or _exists(path):
        return path
    known = [*names(), HERE]
    raise PlatformError(
        f"no platform {short(str(name))}; there are {', '.join(known)}, or name a .toml file{near(str(name), known)}"
    )


def here(results: Path = RESULTS) -> Path:
    """Where the file of this machine lies, once it is probed."""
    return results / str(fingerprint()["key"]) / FILE


def problems(text: str, where: str) -> list[Problem]:
    """All that is wrong with a text as a platform file, by line; ``where`` is the file's name in what is told."""
    return parse(text, where)[1]


def parse(text: str, where: str) -> tuple[Platform | None, list[Problem]]:
    """(platform, nothing), or (None, all that is wrong with the text)."""
    try:
        data = _toml(text)
    except _Unreadable as error:
        return None, [Problem(where, error.line, str(error))]
    platform, faults = schema.build(data)
    if platform is not None:
        return platform, []
    at = lines.locate(text)
    told = sorted({(lines.line_of(path, at), sentence) for path, sentence in faults})
    found = [Problem(where, line, sentence) for line, sentence in told[:MOST_TOLD]]
    if len(told) > MOST_TOLD:
        found.append(Problem(where, 0, f"and {len(told) - MOST_TOLD} more"))
    return None, found


def read(path: Path) -> tuple[Platform | None, list[Problem]]:
    """What ``parse`` tells of a file."""
    try:
        return parse(_text(path), str(path))
    except _Unreadable as error:
        return None, [Problem(str(path), error.line, str(error))]


class _Unreadable(Exception):
    """A text of which nothing can be told but this; ``line`` 0 if no line is to blame."""

    def __init__(self, sentence: str, line: int = 0) -> None:
        super().__init__(sentence)
        self.line = line


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a NUL, which nothing has
        return False


def _text(path: Path) -> str:
    """The file's text. _Unreadable for a folder, a file that is not there, too large, or not of text."""
    try:
        if path.is_dir():
            raise _Unreadable("is a folder; name a file, such as platform.toml in it")
        if path.exists() and not path.is_file():
            raise _Unreadable("is not a regular file")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        size = path.stat().st_size
    except OSError as error:
        raise _Unreadable(f"cannot be read ({error.strerror})") from None
    except ValueError:
        raise _Unreadable("cannot be read (no file has such a name)") from None
    if len(content) > MOST_BYTES:
        raise _Unreadable(f"has {size:,} bytes, a platform file at most {MOST_BYTES:,}; is it the right file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _Unreadable(f"byte {error.start:,} is not UTF-8; save the file as UTF-8", line) from None


def _toml(text: str) -> dict[str, object]:
    """The text's tables. _Unreadable for what is not TOML, or what no reader of TOML can take."""
    if (nul := text.find("\0")) >= 0:
        raise _Unreadable("holds a NUL byte; it is not a text, or was damaged", text.count("\n", 0, nul) + 1)
    if line := lines.too_deep(text):
        raise _Unreadable("a key of more than 16 parts; no key of a platform file has so many", line)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = str(error), text.count("\n") + 1
        if found := re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message):
            message, line = message[: found.start()], int(found[1] or line)
        raise _Unreadable(f"not TOML: {message[:1].lower()}{message[1:200]}", line) from None
    except RecursionError:
        raise _Unreadable("values are nested too deeply; no value of a platform file is nested in itself") from None
    except ValueError as error:  # of int(), for thousands of digits
        raise _Unreadable(f"holds a number that cannot be read ({str(error)[:80]})") from None
