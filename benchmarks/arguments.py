"""What the command lines of several commands have in common."""

import argparse
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from impls.terminal import count

DEFAULT = "default: %(default)s"
AXES: dict[str, tuple[Callable[[str], Any], str]] = {
    "contestants": (str, "names, see impls.names()"),
    "ops": (str, "what is timed, below"),
    "capacities": (count, "leaves N"),
    "batches": (count, "elements of a call B"),
    "fanouts": (count, "children of a node K"),
    "threads": (count, "threads that share a batch"),
    "dtypes": (str, "float32, float64"),
    "distributions": (str, "of the priorities, below"),
    "duplicates": (float, "part of a batch that repeats one leaf"),
}


def list_of(kind: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Words of a type between commas."""

    def parse(text: str) -> tuple[Any, ...]:
        return tuple(kind(word) for word in text.split(","))

    parse.__name__ = f"list of {getattr(kind, '__name__', 'words')}"  # what argparse calls it in an error
    return parse


def one_of(chosen: Iterable[str], known: Collection[str]) -> None:
    """ValueError for a name that nobody knows."""
    for name in chosen:
        if name not in known:
            raise ValueError(f"{name!r} is none of {', '.join(known)}")


def parser_of(command: str, doc: str | None, **more: Any) -> argparse.ArgumentParser:
    """The parser of a command, which its module's docstring describes."""
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog=f"python -m benchmarks {command}", description=doc, formatter_class=raw, **more)


def add_axes(parser: argparse.ArgumentParser, *names: str, **helps: str) -> None:
    """Lists of values, one option for each of these axes of cells; ``helps``: other words than the usual."""
    for name in names or AXES:
        kind, text = AXES[name]
        parser.add_argument(f"--{name}", type=list_of(kind), metavar="A,B,..", help=helps.get(name, text))


def add_common(
    parser: argparse.ArgumentParser,
    *,
    results: bool = True,
    seed_of: str = "",
    seed: int = 0,
    json: str = "print JSON instead of text",
) -> argparse.ArgumentParser:
    """The parser with where records go, the seed if it is of something, and JSON."""
    if results:
        parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help=DEFAULT)
    if seed_of:
        parser.add_argument("--seed", type=int, default=seed, help=f"of {seed_of} ({DEFAULT})")
    parser.add_argument("--json", action="store_true", help=json)
    return parser
