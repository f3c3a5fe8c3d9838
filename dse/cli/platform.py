"""Ask which machines there are: those that are shipped, the one that runs, and one's own.

list        the platforms there are
show        one of them, number by number, each with its unit, its origin and a note
check       whether a file is right; names everything that is wrong, with line numbers
diff        what differs between two
init        write a platform file to fill in, or a copy of one that is there
probe       find out what this machine is, and keep it as "this" (half a minute, no privileges)
estimate    what a workload would take on each device, from a platform's numbers alone

A platform is named (u200), or is a file (mine.toml). To describe a machine of your own, begin with `init`, or with a
copy of the nearest one (`init --like u200`), until `check` is content. In a file, keys end in their unit:

  time        _seconds _ms _us _ns           bytes      _bytes _kib _mib _gib _gb
  bandwidth   _bytes_per_s _mb_per_s         frequency  _hz _mhz _ghz
              _gb_per_s _tb_per_s            power      _watts
  operations  _ops_per_s _gops _tops         counts     no ending
"""

import argparse
import dataclasses
import json
import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

from impls.files import refusing, try_to_write
from impls.terminal import aligned, count, plural
from impls.training import load_timed as load_workload

from ..estimate import written
from ..platforms import Leaf, Platform, PlatformError, Quantity, busy, leaves, load, names
from ..platforms.quantities import ORIGINS, readable, split
from ..platforms.reading import HERE, RESULTS, here, path_of, problems, read, text_of, warnings
from ..platforms.template import copied, template
from ..times import estimates
from ..times.estimates import Asked, Row
from .text import add_command, error_bound, roughly, rounded, wrapped

WORKLOAD = "hopper_ddpg"  # that estimates are for unless another one is named
UNTESTED = (
    "No row was compared with a stopwatch. Not checked here: whether records, tree and batches fit a device's memory, "
    "and that an FPGA serves its calls serially, each over its link; a row has a device to itself."
)
SIZES = ("capacity", "fanout", "batch", "record_bytes")  # that may be asked for instead of the workload's


def add_estimate(parser: argparse.ArgumentParser) -> None:
    """Add what an estimate is asked with, besides the platform."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--workload", default=WORKLOAD, metavar="NAME", help="a name or a file (default: %(default)s)")
    which.add_argument("--network", metavar="TEXT", help="a network alone: its name, or mlp:15-256-256-1 and the like")
    for name in SIZES:
        flag, alone = f"--{name.replace('_', '-')}", getattr(Asked, name)
        parser.add_argument(flag, type=count, help=f"default: the workload's; {alone:,} for a network alone")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run_estimate(options: argparse.Namespace) -> int:
    """Print estimates by device, with their scope: a table, or JSON."""
    sizes = {name: value for name in SIZES if (value := getattr(options, name)) is not None}
    of = Asked(network=options.network) if options.network else Asked.of(load_workload(options.workload))
    asked = dataclasses.replace(of, **sizes)
    rows, scope = estimates.rows(load(options.name, options.results), asked), _scope(options, asked)
    if options.json:
        numbers = {**vars(asked), "workload": asked.workload and asked.workload.name}
        print(json.dumps({"asked": numbers, "scope": scope, "estimates": [dataclasses.asdict(row) for row in rows]}))
    else:
        first = wrapped(_first(rows, asked, options.name), "")
        print(*first, "", *_estimate_table(rows), "", *wrapped(scope, ""), sep="\n")
    return 0


def _first(rows: list[Row], asked: Asked, platform: str) -> str:
    """Say in one sentence where a gradient step is fastest, by the whole step where a workload is asked about."""
    what = estimates.MODELED if asked.workload else asked.step
    named = f"of {asked.workload.name if asked.workload else asked.network} (B = {asked.batch:,}) on {platform}"
    steps = [(row.value, row) for row in rows if row.what == what and row.value is not None]
    if not steps:
        return f"No device of {platform} can be modeled for a gradient step {named}; the notes below say why."
    seconds, row = min(steps, key=lambda step: step[0])
    within = f", {error_bound(row.factor)}" if row.factor else ""
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


def _estimate_table(rows: list[Row]) -> list[str]:
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


WIDTH = 120
ANOTHER = "name another file with --out"


def run(options: argparse.Namespace) -> int:
    """Do one of the actions; returns the exit code: 0 done, 2 for a file with faults. PlatformError, WorkloadError."""
    return int(options.run(options))


def add_to(commands: Any) -> None:
    """Add ``platform`` to the commands of a parser."""
    top = add_command(commands, "platform", "which machines there are", __doc__, "platform show u200")
    actions = top.add_subparsers(required=True, metavar="ACTION", dest="action")

    def action(name: str, run: Any, question: str, example: str, *arguments: str) -> argparse.ArgumentParser:
        summary = f"{question[:1].lower()}{question[1:].partition('?')[0]}"
        parser = add_command(actions, name, summary, question, f"platform {name}{example}")
        for argument in arguments:
            parser.add_argument(argument.lower(), metavar=argument, help="a platform's name, or a .toml file")
        parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="default: %(default)s")
        parser.set_defaults(run=run)
        return parser

    action("list", _list, "Which platforms are there? `this` is the machine that asks, once it is probed.", "")
    shown = "What is known of a platform, number by number? +- is the half-width of a measured one."
    show = action("show", _show, shown, " u200", "NAME")
    checked = (
        "Is a file right? If not, the exit code is 2, and every fault is named with its line. Numbers that do not go\n"
        "together, such as 64 cores with the bandwidth of 16, are warnings: the exit code stays 0."
    )
    check = action("check", _check, checked, " u200", "FILE")
    compared = "What differs between two platforms? Origins and notes are not compared."
    diff = action("diff", _diff, compared, " u200 edge", "A", "B")
    show.add_argument("--toml", action="store_true", help="print its file, comments included")
    for parser in (show, check, diff):
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    begun = "How does a platform file begin? A template with every key, its unit and its meaning, or a copy of another."
    init = action("init", _init, begun, " --like u200")
    init.add_argument("--like", metavar="NAME", help="copy this platform's file: its name, or a .toml file")
    init.add_argument("file", nargs="?", type=Path, metavar="FILE", help="write it there (default: print it)")
    init.add_argument("--out", type=Path, metavar="FILE", help="the same")
    asked = "What would a workload take on each device? A rough model, no measurement."
    estimate = action("estimate", run_estimate, asked, " u200 --workload hopper_ddpg", "NAME")
    add_estimate(estimate)
    probe = action("probe", _probe, "What is this machine? It takes half a minute, best while nothing else runs.", "")
    probe.add_argument("--anyway", action="store_true", help="measure although other processes keep the machine busy")
    probe.add_argument("--out", type=Path, metavar="FILE", help="default: results/<machine>/platform.toml")


def _list(options: argparse.Namespace) -> int:
    rows = [_row(name, load(name)) for name in names()]
    print(
        f"{plural(len(rows), 'platform')} to ask about by name, and this machine; any other is a .toml file (`init`):"
    )
    if here(options.results).is_file():
        rows.append(_row(HERE, load(HERE, options.results)))
    else:
        rows.append([HERE, "", "this machine; not probed yet: python -m dse platform probe"])
    print("\n".join(aligned(rows)))
    return 0


def _row(name: str, platform: Platform) -> list[str]:
    return [name, ", ".join(device.kind for device in platform.devices), platform.title or ""]


def _show(options: argparse.Namespace) -> int:
    if options.toml and options.json:
        raise PlatformError("--toml and --json exclude each other; leave one of them out")
    if options.toml:
        print(text_of(path_of(options.name, options.results)), end="")
        return 0
    platform = load(options.name, options.results)
    if options.json:
        print(json.dumps([_as_json(leaf) for leaf in leaves(platform)], ensure_ascii=False))
    else:
        print(text(platform))
    return 0


def text(platform: Platform) -> str:
    """Lay out a table for each device, memory, slice and link; a note as the one above it is a ditto mark."""
    tables: dict[str, tuple[list[str], list[list[str]]]] = {}
    for leaf in leaves(platform):
        table, _, key = leaf.path.rpartition(".")
        words, rows = tables.setdefault(table, ([], []))
        if isinstance(leaf.value, str):
            words.append(leaf.value)
        else:
            rows.append([key, *_value(leaf), leaf.value.origin, leaf.value.note])
    origins = [leaf.value.origin for leaf in leaves(platform) if isinstance(leaf.value, Quantity)]
    counts = [f"{origins.count(origin)} {origin}" for origin in ORIGINS if origin in origins]
    lines = [f"{'; '.join(tables.pop('')[0])}: {plural(len(origins), 'number')}, {', '.join(counts)}"]
    widths = [max(len(row[column]) for _, rows in tables.values() for row in rows) for column in range(4)]
    for table, (words, rows) in tables.items():
        lines += ["", ": ".join(filter(None, [table, ", ".join(word for word in words if word not in table)]))]
        above = ""
        for key, digits, unit, origin, note in rows:
            cells = [key.ljust(widths[0]), digits.rjust(widths[1]), unit.ljust(widths[2]), origin.ljust(widths[3])]
            begin = f"  {'  '.join(cells)}  "
            shown = textwrap.wrap('"' if note == above else note, max(40, WIDTH - len(begin)))
            lines += [begin + shown[0], *(" " * len(begin) + more for more in shown[1:])]
            above = note
    return "\n".join(lines)


def _value(leaf: Leaf) -> tuple[str, str]:
    """Write a leaf as (digits, unit and spread)."""
    if isinstance(leaf.value, str):
        return leaf.value, ""
    digits, unit = readable(leaf.field, leaf.value.value)
    spread = f" +-{leaf.value.spread:.0%}" if leaf.value.spread is not None else ""
    return digits, unit.sign + spread


def _as_json(leaf: Leaf) -> dict[str, Any]:
    words: dict[str, Any] = {"key": leaf.path, "documentation": leaf.documentation}
    if isinstance(leaf.value, str):
        return words | {"value": leaf.value}
    (base,) = [unit.sign for unit in split(leaf.field)[1] if unit.factor == 1]
    return words | {"si_unit": base, **dataclasses.asdict(leaf.value)}


def _check(options: argparse.Namespace) -> int:
    """Print every fault, or that there is none, and what is possible but does not go together; returns 2, or 0."""
    path = path_of(options.file, options.results)
    platform, faults = read(path)
    cautions = warnings(platform, path) if platform else []
    if options.json:
        kinds = (("error", faults), ("warning", cautions))
        print(json.dumps([{**problem._asdict(), "kind": kind} for kind, problems in kinds for problem in problems]))
    elif platform:
        quantities = sum(isinstance(leaf.value, Quantity) for leaf in leaves(platform))
        but = f", but {plural(len(cautions), 'warning')}" if cautions else ""
        print(f"{path}: fine{but}, {quantities} numbers of {', '.join(device.name for device in platform.devices)}")
        print(*(f"warning: {one}\n" for one in cautions), sep="", end="")
    else:
        print(*faults, sep="\n")
    return 0 if platform else 2


def _init(options: argparse.Namespace) -> int:
    """Print a platform file to begin with, or write it where nothing is yet."""
    path: Path | None = options.out or options.file
    name = path.stem if path and re.fullmatch(r"\w[\w-]*", path.stem, re.ASCII) else "mine"
    text = copied(options.like, name, options.results) if options.like else template(name)
    if path is None:
        print(text, end="")
        return 0
    if path.exists():
        raise PlatformError(f"{path}: is there already; {ANOTHER}")
    with refusing(path, PlatformError, ANOTHER), path.open("x", encoding="utf-8") as file:
        file.write(text)
    left = problems(text, str(path))
    print(f"written to {path}, {plural(len(left), 'key') if left else 'nothing'} left to fill in")
    print(f"once it describes your machine: python -m dse platform check {shlex.quote(str(path))}")
    return 0


def _diff(options: argparse.Namespace) -> int:
    first, second = (
        {leaf.path: leaf for leaf in leaves(load(name, options.results))} for name in (options.a, options.b)
    )
    rows = []
    for path in dict.fromkeys([*first, *second]):
        pair = first.get(path), second.get(path)
        if why := _difference(*pair):
            rows.append((path, *pair, why))
    if options.json:
        keys = [{"key": path, "a": a and _as_json(a), "b": b and _as_json(b), "why": why} for path, a, b, why in rows]
        print(json.dumps(keys, ensure_ascii=False))
    elif rows:
        print(f"{plural(len(rows), 'key')} of {options.a} and {options.b} {'differs' if len(rows) == 1 else 'differ'}:")
        shown = [
            [path, *(" ".join(_value(leaf)).strip() if leaf else "" for leaf in pair), why] for path, *pair, why in rows
        ]
        print("\n".join(aligned([["key", options.a, options.b, ""], *shown])))
    else:
        print("no key differs")
    return 0


def _difference(first: Leaf | None, second: Leaf | None) -> str:
    """Say how two leaves of the same key differ; nothing where their values are the same."""
    if first is None or second is None:
        return "only in B" if first is None else "only in A"
    before, after = first.value, second.value
    if isinstance(before, str) or isinstance(after, str):
        return "" if before == after else "differs"
    if before.value == after.value:
        return ""
    if before.agrees(after):
        return "within the spread"
    return f"x {after.value / before.value:.3g}" if before.value else "differs"


def _probe(options: argparse.Namespace) -> int:
    from ..platforms.probe import write_probe  # noqa: PLC0415  # with its kernels, of which no other command needs any

    if busy.refuses(options.anyway):
        return busy.EXIT_CODE
    path = options.out or here(options.results)
    with refusing(path, PlatformError, ANOTHER):
        try_to_write(path.parent)  # before half a minute of probing
        platform = write_probe(path)
    print(text(platform))
    print(f"\nwritten to {path}")
    return 0
