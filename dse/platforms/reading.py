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

from pathlib import Path

from impls.strict_toml import Problem, UnreadableError, by_line, content, near, short, tables

from . import schema
from .fingerprint import fingerprint
from .platform import Platform

KIND = "platform"
HERE = "this"  # the name of the machine that asks
RESULTS = Path("results")
FILE = "platform.toml"  # in a machine's folder of the results
_SHIPPED = Path(__file__).parent


class PlatformError(Exception):
    """A platform cannot be used; the message has a sentence for each reason, a line each."""


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
        data = tables(text, KIND)
    except UnreadableError as error:
        return None, [Problem(where, error.line, str(error))]
    platform, faults = schema.build(data)
    if platform is not None:
        return platform, []
    return None, by_line(faults, text, where)


def read(path: Path) -> tuple[Platform | None, list[Problem]]:
    """What ``parse`` tells of a file."""
    try:
        return parse(content(path, KIND), str(path))
    except UnreadableError as error:
        return None, [Problem(str(path), error.line, str(error))]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a NUL, which nothing has
        return False
