"""How fast is every sum tree, over N, B, K and threads?

Measure the cells of a preset, or with any axis replaced by an option, into results/<machine>/. Named implementations
are measured as they come and in the variants that their classes state, or with --options. Interrupt it as you like: the
same command resumes where it stopped. On two cores smoke takes under 30 s, brief under 2 minutes, quick under 5, full
under an hour.
"""

import argparse
import ast
import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import impls
from impls.checks import near, short
from impls.sumtree.registry import options_of
from impls.terminal import amount

from ..arguments import DEFAULT, add_axes, listed
from ..cases import DISTRIBUTIONS, OPS, Case
from ..presets import PRESETS, Block, groups, is_own
from ..sweep import Floor, Sweep, start_threads
from ..topic import Topic


class Trees(Sweep):
    """The cells of a preset, or of a grid that options change, after the floor of the memory."""

    example = "--preset quick"
    epilog = f"ops:\n{listed(OPS)}distributions:\n{listed(DISTRIBUTIONS)}\n"
    seed_of = "inputs and order"

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the axes of the grid, the options of implementations, and how much is measured."""
        add_axes(parser)
        settings: dict[str, Any] = {"type": _settings, "action": "append", "metavar": "KEY=VALUE,.."}
        parser.add_argument("--options", **settings, help="options of the implementations; repeatable")
        parser.add_argument("--budget", type=amount, metavar="SECONDS", help="seconds of sampling a cell")
        parser.add_argument("--name", help="name of the results file (default: the preset)")
        parser.add_argument("--preset", choices=PRESETS, default="quick", help=f"which cells ({DEFAULT})")
        parser.add_argument("--no-floor", dest="floor", action="store_false", help="leave the memory floor out")

    def __init__(self, options: argparse.Namespace) -> None:
        preset = PRESETS[options.preset]
        options.budget = options.budget or preset.budget_seconds
        super().__init__(options)
        axes = {field.name: getattr(options, field.name) for field in dataclasses.fields(Block)}
        chosen = {name: value for name, value in axes.items() if value is not None}
        every = (case for block in preset.blocks for case in dataclasses.replace(block, **chosen).cases())
        self._groups = groups(case for case in every if options.options or not options.contestants or is_own(case))
        self._name = options.name or (f"{options.preset}-custom" if chosen else options.preset)
        _check_options(sorted({case.contestant for group in self._groups for case in group}), options.options or ())

    @property
    def file(self) -> str:
        """Name of the file of records: each preset has its own, and what is changed of a preset another."""
        return f"{self._name}.jsonl"

    def parts(self) -> Sequence[Topic]:
        """Return the memory's floor, where it can be compiled and is wanted, then the trees."""
        has_floor = self.options.floor and impls.why_not("numba") is None
        return [Floor(self.options), self] if has_floor else [self]

    def cells(self) -> Sequence[Sequence[Case]]:
        """Return the cells; those of a group answer the same question."""
        return self._groups

    def open(self, stack: ExitStack) -> None:
        """Start the threads of trees."""
        start_threads(self._groups)


def _check_options(names: Sequence[str], asked: Sequence[Mapping[str, Any]]) -> None:
    """ValueError for an option that none of these trees has; it lists those that they have."""
    pairs = [(option, name) for name in names for option in options_of(name)]
    owners = {option: [name for own, name in pairs if own == option] for option, _ in pairs}
    for option in sorted({key for options in asked for key in options} - owners.keys() - {"validate", "minimum"}):
        there = "; ".join(f"{key} of {', '.join(whose)}" for key, whose in sorted(owners.items())) or "none"
        raise ValueError(f"no tree here has the option {option!r}; there are: {there}{near(option, owners)}")


def _settings(text: str) -> dict[str, Any]:
    """Read options of an implementation: words, but numbers and True, False, None as Python has them."""
    pairs = [word.partition("=") for word in text.split(",") if word]
    options = {key: _value(value) for key, _, value in pairs if value}
    if len(options) < len(pairs):
        raise argparse.ArgumentTypeError(f"write KEY=VALUE, each KEY once, not {short(text)}")
    return options


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
