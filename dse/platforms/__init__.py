"""Describe machines: the fingerprint of the one that runs, and files that describe any."""

from impls.strict_toml import Problem

from .fingerprint import code_commit, command_line, commit, fingerprint, now
from .platform import Cache, Device, Leaf, Link, Memory, Platform, Resources, Slice, leaves
from .quantities import Quantity
from .reading import PlatformError, load, names, problems

__all__ = [
    "Cache",
    "Device",
    "Leaf",
    "Link",
    "Memory",
    "Platform",
    "PlatformError",
    "Problem",
    "Quantity",
    "Resources",
    "Slice",
    "code_commit",
    "command_line",
    "commit",
    "fingerprint",
    "leaves",
    "load",
    "names",
    "now",
    "problems",
]
