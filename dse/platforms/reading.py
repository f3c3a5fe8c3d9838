"""Read platform files: TOML, read strictly, with everything that is wrong named at once.

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

import dataclasses
from pathlib import Path

from impls.cores import count_allowed, count_cores
from impls.strict_toml import Files, Problem

from . import schema
from .fingerprint import fingerprint
from .platform import Platform

HERE = "this"  # the name of the machine that asks
RESULTS = Path("results")
FILE = "platform.toml"  # in a machine's folder of the results


class PlatformError(Exception):
    """A platform cannot be used; the message has a sentence for each reason, a line each."""


_FILES = Files("platform", Path(__file__).parent, schema.build, PlatformError)
names, read, parse, text_of = _FILES.names, _FILES.read, _FILES.parse, _FILES.text_of


def load(name: str | Path, results: Path = RESULTS) -> Platform:
    """Load the shipped platform of that name, ``this`` machine as it was probed, or that of a file.

    Of ``this`` machine's processor no more than this process may use.

    PlatformError with everything that is wrong, if anything is.
    """
    where = path_of(name, results)
    platform, key = _FILES.load(where), fingerprint()["key"]
    if str(name) == HERE and platform.machine_key != key:
        raise PlatformError(
            f"{where}: was probed on machine {platform.machine_key}, this one is {key}; probe it with: "
            "python -m dse platform probe"
        )
    return keep_to_allowed(platform) if str(name) == HERE else platform


def keep_to_allowed(platform: Platform) -> Platform:
    """Leave this machine's processor the cores and threads that this process may use."""
    most, devices = {"cores": count_cores(), "threads": count_allowed()}, []
    for device in platform.devices:
        there = {name: stated for name in most if device.kind == "cpu" and (stated := getattr(device, name))}
        fewer = {
            name: dataclasses.replace(stated, value=most[name], note=f"of {stated.value:g}: those this process may use")
            for name, stated in there.items()
            if stated.value > most[name]
        }
        devices.append(dataclasses.replace(device, **fewer))
    return dataclasses.replace(platform, devices=tuple(devices))


def without_gpus(platform: Platform) -> Platform:
    """Return a platform without its GPUs and their links, for a machine that has none."""
    devices = tuple(device for device in platform.devices if device.kind != "gpu")
    kept = {device.name for device in devices}
    links = tuple(link for link in platform.links if {link.source, link.target} <= kept)
    return dataclasses.replace(platform, devices=devices, links=links)


def path_of(name: str | Path, results: Path = RESULTS) -> Path:
    """Return the file of a platform by its name, or the path itself. PlatformError for a name that nothing has."""
    if str(name) == HERE:
        path = here(results)
        if not path.is_file():
            raise PlatformError(
                f"this machine has not been probed, {path} is not there; do it with: python -m dse platform probe"
            )
        return path
    return Path(name) if str(name) not in names() and _exists(Path(name)) else _FILES.path_of(name, HERE)


def here(results: Path = RESULTS) -> Path:
    """Return the path of this machine's file, once it is probed."""
    return results / str(fingerprint()["key"]) / FILE


def problems(text: str, where: str) -> list[Problem]:
    """List all that is wrong with a text as a platform file, by line; ``where`` names the file in the sentences."""
    return parse(text, where)[1]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a NUL, which nothing has
        return False
