"""Describe machines: the fingerprint of the one that runs, and files that describe any."""

from .checkout import command_line, commit, now
from .files import PlatformError, load, names
from .fingerprint import fingerprint
from .platform import Device, Link, Memory, Platform, leaves
from .quantities import Quantity

__all__ = [
    "Device",
    "Link",
    "Memory",
    "Platform",
    "PlatformError",
    "Quantity",
    "command_line",
    "commit",
    "fingerprint",
    "leaves",
    "load",
    "names",
    "now",
]
