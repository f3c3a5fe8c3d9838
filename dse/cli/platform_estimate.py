"""``python -m dse platform estimate``: what a workload would take on each device, from a platform's numbers alone."""

import argparse
import dataclasses
import json
import shlex
import textwrap

from impls.terminal import count
from impls.training import load as load_workload

from ..estimate import written
from ..platforms import load
from ..times import estimates
from ..times.estimates import Asked, Row
from .text import roughly, rounded, wrapped

WIDTH = 120
WORKLOAD = "hopper_ddpg"  # that estimates are for unless another one is named
UNTESTED = (
    "No row was compared with a stopwatch. Not checked here: whether records, tree and batches fit a device's memory, "
    "and that an FPGA serves its calls in turns, each over its link; a row has a device to itself."
)
SIZES = ("capacity", "fanout", "batch", "record_bytes")  # that may be asked for instead of the workload's


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add what an estimate is asked with, besides the platform."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--workload", default=WORKLOAD, metavar="NAME", help="a name or a file (default: %(default)s)")
    which.add_argument("--network", metavar="TEXT", help="a network alone: its name, or mlp:15-256-256-1 and the like")
    for name in SIZES:
        flag, alone = f"--{name.replace('_', '-')}", getattr(Asked, name)
        parser.add_argument(flag, type=count, help=f"default: the workload's; {alone:,} beside a network alone")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Print estimates by device, with their scope: a table, or JSON."""
    sizes = {name: value for name in SIZES if (value := getattr(options, name)) is not None}
    of = Asked(network=options.network) if options.network else Asked.of(load_workload(options.workload))
    asked = dataclasses.replace(of, **sizes)
    rows, scope = estimates.rows(load(options.name, options.results), asked), _scope(options, asked)
    if options.json:
        numbers = {**vars(asked), "workload": asked.workload and asked.workload.name}
        print(json.dumps({"asked": numbers, "scope": scope, "estimates": [dataclasses.asdict(row) for row in rows]}))
    else:
        print("\n".join([*wrapped(_first(rows, asked, options.name), ""), "", *_table(rows), "", *wrapped(scope, "")]))
    return 0


def _first(rows: list[Row], asked: Asked, platform: str) -> str:
    """Say in one sentence where a gradient step is fastest, by the whole step where a workload is asked about."""
    what = estimates.MODELED if asked.workload else asked.step
    named = f"of {asked.workload.name if asked.workload else asked.network} (B = {asked.batch:,}) on {platform}"
    steps = [(row.value, row) for row in rows if row.what == what and row.value is not None]
    if not steps:
        return f"No device of {platform} can be modeled for a gradient step {named}; the notes below say why."
    seconds, row = min(steps, key=lambda step: step[0])
    within = f", right within {roughly(row.factor)}x" if row.factor else ""
    return f"A gradient step {named} is fastest on {row.device}: about {roughly(1e6 * seconds)} us{within}, modeled."


def _scope(options: argparse.Namespace, asked: Asked) -> str:
    """What the rows speak of, and how they compare with what ``recommend`` answers."""
    bare = "Bare hardware: no framework, no Python"
    if not asked.workload:
        return (
            f"{bare}; gradient steps are those of the network {asked.network} alone. `recommend` models whole gradient "
            "steps in a framework, which may put devices in another order; ask with --workload to be shown both. "
            f"{UNTESTED}"
        )
    fixed = "".join(f" --fix {name}={value}" for name in ("batch", "capacity") if (value := getattr(options, name)))
    names = f"--platform {shlex.quote(options.name)} --workload {shlex.quote(options.workload)}"
    return (
        f"{bare}, as in all rows but what `recommend` models: the whole step, in a framework on a CPU or a GPU, by the "
        f"fastest option of each device, as `python -m dse recommend {names}{fixed}` takes it where no records "
        f"tell it. The two may put devices in another order. {UNTESTED}"
    )


def _table(rows: list[Row]) -> list[str]:
    """The lines of a table of estimates; what a row rests on is broken to fit."""
    cells = [["device", "what", "modeled", ""]]
    for row in rows:
        factor, unit = {"s": (1e6, "us"), "J": (1e3, "mJ")}[row.unit]
        shown = "-" if row.value is None else rounded(factor * row.value)
        if row.value is not None and row.factor:
            shown = written(shown, row.factor, "factor")
        cells.append([row.device, row.what, shown, unit])
    evidence = ["rests on", *(row.note or ", ".join(row.origins) for row in rows)]
    widths = [max(map(len, column)) + 2 for column in zip(*cells, strict=True)]
    lines = []
    for columns, words in zip(cells, evidence, strict=True):
        begin = "".join(cell.ljust(width) for cell, width in zip(columns, widths, strict=True))
        lines += textwrap.wrap(words, WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin))
    return lines
