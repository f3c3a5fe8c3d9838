"""Kinds of command-line arguments that several commands take."""

from collections.abc import Callable
from typing import Any


def list_of(kind: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Words of a type between commas."""

    def parse(text: str) -> tuple[Any, ...]:
        return tuple(kind(word) for word in text.split(","))

    parse.__name__ = f"list of {getattr(kind, '__name__', 'words')}"  # what argparse calls it in an error
    return parse
