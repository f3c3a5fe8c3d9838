"""Machines: the fingerprint of the one that runs."""

from .fingerprint import command_line, commit, fingerprint, now

__all__ = ["command_line", "commit", "fingerprint", "now"]
