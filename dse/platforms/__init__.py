"""Describe machines: the fingerprint of the one that runs, and files that describe any."""

from .checkout import GitError, command_line, commit, files_at, git, is_shallow, now
from .files import PlatformError, load, names
from .fingerprint import fingerprint
from .platform import Device, Link, Memory, Platform, leaves
from .quantities import Quantity

__all__ = [
    "Device",
    "GitError",
    "Link",
    "Memory",
    "Platform",
    "PlatformError",
    "Quantity",
    "command_line",
    "commit",
    "files_at",
    "fingerprint",
    "git",
    "is_shallow",
    "leaves",
    "load",
    "names",
    "now",
]
