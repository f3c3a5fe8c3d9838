"""Keep a number with its origin, and the units that keys of a platform file may end in."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NamedTuple

from ..records import Source

Origin = Literal["measured", "datasheet", "paper", "assumed"]
ORIGINS = ("measured", "datasheet", "paper", "assumed")
SOURCE_OF = dict[str, Source](measured="measured", datasheet="quoted", paper="quoted", assumed="modeled")
"""What the origins of platform files are among the sources of all other numbers: a maker or a paper is quoted, and what
somebody assumed is a model of the device."""
DIGITS = 6  # shown of a number
LONG = 1e9  # from here on, an exponent is easier to read


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A number in SI units, or a count; its origin; and a note that names the source.

    ``spread``, of a measured number, is the relative half-width of the interval that it is stated to lie in: value
    times 1 - spread to 1 + spread.
    """

    value: float
    origin: Origin
    note: str
    spread: float | None = None


class Unit(NamedTuple):
    """A unit: the ending of its keys, its sign for a reader, and how many SI units it is."""

    ending: str
    sign: str
    factor: Decimal


def _units(**units: tuple[str, str | int]) -> tuple[Unit, ...]:
    return tuple(Unit(f"_{ending}", sign, Decimal(factor)) for ending, (sign, factor) in units.items())


UNITS: Mapping[str, tuple[Unit, ...]] = {
    "_seconds": _units(seconds=("s", 1), ms=("ms", "1e-3"), us=("us", "1e-6"), ns=("ns", "1e-9")),
    "_bytes": _units(
        bytes=("B", 1), kib=("KiB", 1 << 10), mib=("MiB", 1 << 20), gib=("GiB", 1 << 30), gb=("GB", "1e9")
    ),
    "_bytes_per_s": _units(
        bytes_per_s=("B/s", 1), mb_per_s=("MB/s", "1e6"), gb_per_s=("GB/s", "1e9"), tb_per_s=("TB/s", "1e12")
    ),
    "_hz": _units(hz=("Hz", 1), mhz=("MHz", "1e6"), ghz=("GHz", "1e9")),
    "_watts": _units(watts=("W", 1)),
    "_ops_per_s": _units(ops_per_s=("op/s", 1), gops=("Gop/s", "1e9"), tops=("Top/s", "1e12")),
    "_per_hour": _units(per_hour=("per hour", 1)),
}
"""By the ending of the dataclasses' field names, which say SI units: the endings a key of a file may have instead."""

COUNT, RATIO = (Unit("", "", Decimal(1)) for _ in range(2))  # a count is whole


def split(field: str) -> tuple[str, tuple[Unit, ...]]:
    """Split a field of the dataclasses into (name without its unit, units a file may give it in)."""
    for ending in sorted(UNITS, key=len, reverse=True):
        if field.endswith(ending):
            return field.removesuffix(ending), UNITS[ending]
    return field, (COUNT,)


def to_si(value: float, unit: Unit) -> float:
    """Convert ``value`` to SI units, rounded once; a count stays as it is."""
    return value if unit is COUNT else float(Decimal(repr(value)) * unit.factor)


def readable(field: str, value: float) -> tuple[str, Unit]:
    """Write an SI value as (digits, unit), as by hand: from 1 to 999 where that can be, in few digits.

    >>> readable("size_bytes", 49152)[0], readable("size_bytes", 141e9)[1].sign, readable("latency_seconds", 13.6e-6)[0]
    ('48', 'GB', '13.6')
    """

    def cost(unit: Unit) -> tuple[bool, bool, int, Decimal]:
        amount = from_si(value, unit)
        return to_si(amount, unit) != value, not 1 <= abs(amount) < 1000, len(digits(amount)), -unit.factor

    unit = min(split(field)[1], key=cost)
    return digits(from_si(value, unit)), unit


def from_si(value: float, unit: Unit) -> float:
    """Convert an SI value to a unit; ``to_si`` converts it back."""
    return value if unit is COUNT else float(Decimal(repr(value)) / unit.factor)


def digits(value: float) -> str:
    """Write a number without an exponent where that is short, and without digits nobody can mean.

    >>> digits(197000.0), digits(3906249.5), digits(0.123456789), digits(1e-9)
    ('197000', '3906250', '0.123457', '1e-09')
    """
    if value == int(value) and abs(value) < LONG:
        return str(int(value))
    magnitude = math.floor(math.log10(abs(value)))
    if not 1e-4 <= abs(value) < LONG:
        return f"{value:.{DIGITS}g}"
    shown = f"{value:.{max(0, DIGITS - 1 - magnitude)}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown
