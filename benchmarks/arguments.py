"""Options and help that several commands share."""

import argparse
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from impls import names
from impls.checks import near, short
from impls.terminal import amount, count

from .cases import DISTRIBUTIONS, OPS

DEFAULT = "default: %(default)s"
LEAST = {"capacity": 1, "batch": 1, "fanout": 2, "threads": 1, "iterations": 1, "rounds": 1, "steps": 1}
"""The least of options that are whole numbers, where that is not 0."""
GROUPED = re.compile(r"(?<![\w.])\d{1,3}(,\d{3})*,0\d\d(,\d{3})*(?![\w.])")
"""Digits in groups of three, as a number is printed, of which one begins with a 0: no value of a list does."""
ENVIRONMENT = Path(".venv-peers/bin/python")


def among(what: str, *known: str) -> Callable[[str], str]:
    """Return a parser of names that are known, and of no others, before anything is made."""

    def parse(name: str) -> str:
        if name not in known:
            raise argparse.ArgumentTypeError(
                f"no {what} {short(name)}; there are {', '.join(known)}{near(name, known)}"
            )
        return name

    parse.__name__ = what  # what argparse calls it in an error
    return parse


def at_least(least: int, what: str) -> Callable[[str], int]:
    """Return a parser of counts that are no less."""

    def parse(text: str) -> int:
        if (number := count(text)) < least:
            raise argparse.ArgumentTypeError(f"{what} is at least {least}, not {number}")
        return number

    return parse


AXES: dict[str, tuple[Callable[[str], Any], str]] = {
    "contestants": (among("implementation", *names()), "names of implementations, see impls.names()"),
    "ops": (among("op", *OPS), "operations to time, listed below"),
    "capacities": (at_least(1, "N"), "numbers of leaves N"),
    "batches": (at_least(1, "B"), "elements of a call B"),
    "fanouts": (at_least(2, "K"), "children of a node K"),
    "threads": (at_least(1, "threads"), "threads that share a batch"),
    "dtypes": (among("dtype", "float32", "float64"), "formats of the leaves: float32, float64"),
    "distributions": (among("distribution", *DISTRIBUTIONS), "distributions of the priorities, listed below"),
    "duplicates": (float, "fractions of a batch that repeat one leaf"),
}


def list_of(kind: Callable[[str], Any], repeats: bool = False) -> Callable[[str], tuple[Any, ...]]:
    """Return a parser of comma-separated values, each read by ``kind``.

    It refuses a number printed as "1,024", an empty value and, unless it ``repeats``, a value given twice.
    """

    def parse(text: str) -> tuple[Any, ...]:
        if grouped := GROUPED.search(text):
            whole = grouped[0].replace(",", "")
            raise argparse.ArgumentTypeError(f"commas part values, so that {grouped[0]} is no number: write {whole}")
        if "" in (words := text.split(",")):
            raise argparse.ArgumentTypeError(f"a value of {short(text)} is empty; write A,B,..")
        values = tuple(map(kind, words))
        if twice := [] if repeats else [value for place, value in enumerate(values) if value in values[:place]]:
            raise argparse.ArgumentTypeError(f"{twice[0]} is given twice; leave one out")
        return values

    parse.__name__ = f"list of {getattr(kind, '__name__', 'words')}"  # what argparse calls it in an error
    return parse


def about(command: str, doc: str | None, example: str, epilog: str = "") -> dict[str, Any]:
    """Return what a parser says of its command: its name, the docstring, and last an ``example`` line to paste."""
    prog = f"python -m benchmarks {command}"
    texts = {"description": inspect.cleandoc(doc or ""), "epilog": f"{epilog}example: {prog} {example}"}
    return {"prog": prog, "formatter_class": argparse.RawDescriptionHelpFormatter, **texts}


def parser_of(command: str, doc: str | None, example: str, epilog: str = "") -> argparse.ArgumentParser:
    """Return the parser of a command that its module's docstring describes."""
    return argparse.ArgumentParser(**about(command, doc, example, epilog))


def listed(texts: Mapping[str, str]) -> str:
    """Return a line for each name and its text, for the end of a command's help."""
    width = max(map(len, texts)) + 2
    return "".join(f"  {name:{width}}{text}\n" for name, text in texts.items())


def add_axes(parser: argparse.ArgumentParser, *names: str, **helps: str) -> None:
    """Add an option for each of these axes of cells, which takes a list; ``helps`` replaces the usual help texts."""
    for name in names or AXES:
        kind, text = AXES[name]
        add_list(parser, name, kind, help=helps.get(name, text))


def add_list(parser: argparse.ArgumentParser, name: str, kind: Callable[[str], Any], **more: Any) -> None:
    """Add an option that takes comma-separated values."""
    parser.add_argument(f"--{name}", type=list_of(kind), metavar="A,B,..", **more)


def add_names(parser: argparse.ArgumentParser, name: str, what: str, known: Iterable[str], text: str = "") -> None:
    """Add an option that takes names of these, by default all; ``text`` says of which, where it does not list them."""
    names = tuple(known)
    shown = text or f"of {', '.join(names)}"
    add_list(parser, name, among(what, *names), default=names, help=f"{shown} (default: all)")


def add_numbers(parser: argparse.ArgumentParser, **options: tuple[float, str]) -> None:
    """Add options that take a number, by name: the default, whose type is the option's, and the help text."""
    for name, (default, text) in options.items():
        kind = at_least(LEAST.get(name, 0), name) if isinstance(default, int) else amount
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{text} ({DEFAULT})")


def add_workload(parser: argparse.ArgumentParser) -> None:
    """Add the training workload that a command measures."""
    parser.add_argument("--workload", required=True, metavar="NAME|FILE", help="see: python -m impls.training list")


def add_python(parser: argparse.ArgumentParser) -> None:
    """Add the interpreter that has the libraries."""
    text = f"an interpreter that has the libraries, and torch where something learns ({DEFAULT})"
    parser.add_argument("--python", type=Path, default=ENVIRONMENT, help=text)


def add_common(
    parser: argparse.ArgumentParser,
    *,
    results: bool = True,
    seed_of: str = "",
    seed: int = 0,
    json: str = "print JSON instead of text",
    measures: bool = True,
) -> argparse.ArgumentParser:
    """Return the parser with the folder of results, the seed (where there is something to draw by it), JSON, measuring
    under load, and what would be measured."""
    if results:
        text = f"where the records are ({DEFAULT})"
        parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help=text)
    if seed_of:
        parser.add_argument("--seed", type=at_least(0, "seed"), default=seed, help=f"seed of {seed_of} ({DEFAULT})")
    parser.add_argument("--json", action="store_true", help=json)
    if measures:
        parser.add_argument("--anyway", action="store_true", help="measure under load too; the records are marked")
        listing = "print the cells and measure none: those of this machine, as if every library were installed"
        parser.add_argument("--dry-run", action="store_true", help=listing)
    return parser
