"""Describe machines: the fingerprint of the one that runs, and files that describe any."""

from impls.strict_toml import Problem

from .fingerprint import GitError, command_line, commit, files_at, fingerprint, git, head, is_shallow, now
from .platform import Cache, Device, Leaf, Link, Memory, Platform, Resources, Slice, leaves
from .quantities import Quantity
from .reading import PlatformError, load, names, problems

__all__ = [
    "Cache",
    "Device",
    "GitError",
    "Leaf",
    "Link",
    "Memory",
    "Platform",
    "PlatformError",
    "Problem",
    "Quantity",
    "Resources",
    "Slice",
    "command_line",
    "commit",
    "files_at",
    "fingerprint",
    "git",
    "head",
    "is_shallow",
    "leaves",
    "load",
    "names",
    "now",
    "problems",
]
