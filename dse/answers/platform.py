"""Ask which machines there are: those that are shipped, the one that runs, and one's own.

list        the platforms there are
show        one of them, number by number, each with its unit, its origin and a note
check       whether a file is right; names everything that is wrong, with line numbers
init        write a platform file to fill in, or a copy of one that is there
probe       find out what this machine is, and keep it as "this" (half a minute, no privileges)
estimate    how long each part of a workload takes on each device, and where that time is from

A platform is named (u200), or is a file (mine.toml). To describe a machine of your own, begin with `init`, or with a
copy of the nearest one (`init --like u200`), until `check` is content. In a file, keys end in their unit:

  time        _seconds _ms _us _ns           bytes      _bytes _kib _mib _gib _gb
  bandwidth   _bytes_per_s _mb_per_s         frequency  _hz _mhz _ghz
              _gb_per_s _tb_per_s            power      _watts
  operations  _ops_per_s _gops _tops         counts     no ending
"""

import argparse
import dataclasses
import itertools
import json
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from impls.files import refusing, try_to_write
from impls.terminal import aligned, plural

from ..answer import Answer, Note, Row
from ..estimate import SUREST_FIRST, Estimate
from ..mapping.question import MappingQuestion, ask
from ..platforms import Device, Leaf, Platform, PlatformError, Quantity, busy, leaves, load, names
from ..platforms.quantities import ORIGINS, readable, split
from ..platforms.reading import HERE, RESULTS, here, path_of, problems, read, text_of
from ..platforms.writing import copied, template
from ..solver.problem import LOOP, PARTS
from ..times.door import Times
from ..times.stated import COUNTS, FACTORS, KEYS, SOURCES, TIMES, StatedTimes
from ..times.trees import trees
from .options import add_command
from .printer import write

WORKLOAD = "hopper_ddpg"  # that estimates are for unless another one is named


def add_estimate(parser: argparse.ArgumentParser) -> None:
    """Add what a table of primitives is asked with, besides the platform."""
    add = parser.add_argument
    add("--workload", default=WORKLOAD, metavar="NAME", help="a name or a file (default: %(default)s)")
    add(
        "--times", type=Path, metavar="FILE", help="times of your own, looked up first; see: python -m dse times --help"
    )
    add("--json", action="store_true", help="print JSON instead of text")


def run_estimate(options: argparse.Namespace) -> int:
    """Print the table of primitives: of each part on each device the fastest of its surest times, or what it lacks."""
    own = StatedTimes.read(options.times) if options.times else None
    answer = primitives_answer(ask(options.name, options.workload, results=options.results, times=own))
    print(json.dumps(answer.to_dict()) if options.json else "\n".join(write(answer, is_verbose=True)))
    return 0


def primitives_answer(question: MappingQuestion) -> Answer:
    """Return the table of primitives [Zhang2023, VI-A3]: a row for each part on each device, its source and its range.

    A note of the level "first" has the command that measures what nobody timed. Where a part has no time on
    a device, its row says what is missing.
    """
    parts, rows, commands = question.parts(), list[Row](), dict[str, dict[str, str]]()
    for part, device, time in _primitives(question, parts):
        if isinstance(time, str):
            rows.append(Row({"part": part, "device": device}, None, "s", {"lacks": time}))
            continue
        rows.append(Row({"part": part, "device": device}, time, "s"))
        if time.source in ("modeled", "extrapolated"):
            number = time.rests_on.id
            place = f"{part} on {device}" if part in PARTS else number
            commands.setdefault(time.rests_on.command, {})[f"the {place}"] = number
    named = {"workload": question.workload.name, "batch": parts.batch, "platform": question.platform.name}
    notes = list[Note]()
    for command, places in commands.items():
        values = {"evidence": ", ".join(dict.fromkeys(places.values())), "of": list(places), "how": command}
        kind = "state_time" if not command else "measure_to_be_sure" if question.tables[0] else "measure_there"
        notes.append(Note(kind, values, "first"))
    return Answer(named, Row(named, says="primitives"), tuple(rows), notes=tuple(notes))


def _primitives(question: MappingQuestion, parts: Times) -> Iterator[tuple[str, str, Estimate | str]]:
    """(part, device, the fastest of its surest times there, or what is lacking)."""
    yield "actors", parts.cpu.name, parts.actors.step(1)
    for part, device in itertools.product(LOOP, question.platform.devices):
        try:
            times = list(_times(parts, part, device))
        except PlatformError as error:
            yield part, device.name, str(error)
            continue
        surest = min(times, key=lambda time: (SUREST_FIRST.index(time.source), time.value), default="nothing fits")
        yield part, device.name, surest
    try:
        ways = next(iter(question.built().problems.values())).ways
    except PlatformError:  # whose sentence a row above has
        return
    for (source, target), hops in ways.items():
        for hop in hops if len(hops) == 1 else ():
            seconds = hop.alpha_seconds + parts.batch_bytes * hop.seconds_per_byte
            yield f"send a batch to {target}", source, Estimate.within(seconds, 1.0, hop.rests_on)


def _times(parts: Times, part: str, device: Device) -> Iterator[Estimate]:
    if part == "learner":
        yield from (learner.step for learner in parts.learners.list(device) if learner.devices == 1)
    elif part == "storage":
        yield from [parts.rows_moved(device)] if device.memory or parts.stated("storage", device) else []
    else:
        yield from (tree.draw if part == "sampling" else tree.update for tree in trees(parts, device))


WIDTH = 120
ANOTHER = "name another file with --out"


def run(options: argparse.Namespace) -> int:
    """Print what was asked; returns the exit code: 0 done, 2 for a file with faults. PlatformError, WorkloadError."""
    return int(options.run(options))


def add_to(commands: Any) -> None:
    """Add ``times`` and ``platform`` to the commands of a parser."""
    _add_times(commands)
    top = add_command(commands, "platform", "which machines there are", __doc__, "platform show u200")
    actions = top.add_subparsers(required=True, metavar="ACTION", dest="action")

    def add(
        name: str, run: Any, asked: str, more: str, example: str = "", argument: str = ""
    ) -> argparse.ArgumentParser:
        question = f"{asked.capitalize()}? {more}"
        parser = add_command(actions, name, asked, question, f"platform {name}{example}")
        if argument:
            parser.add_argument(argument.lower(), metavar=argument, help="a platform's name, or a .toml file")
        parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="default: %(default)s")
        parser.set_defaults(run=run)
        return parser

    add("list", _list, "which platforms are there", "`this` is the machine that asks, once it is probed.")
    asked, more = "what is known of a platform", "Each number with its unit; +- is the half-width of a measured one."
    show = add("show", _show, asked, more, " u200", "NAME")
    more = "If not, the exit code is 2, and every fault is named with its line."
    check = add("check", _check, "is a file right", more, " u200", "FILE")
    show.add_argument("--toml", action="store_true", help="print its file, comments included")
    for parser in (show, check):
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    more = "A template with every key, its unit and its meaning, or a copy of another."
    init = add("init", _init, "how does a platform file begin", more, " --like u200")
    init.add_argument("--like", metavar="NAME", help="copy this platform's file: its name, or a .toml file")
    init.add_argument("file", nargs="?", type=Path, metavar="FILE", help="write it there (default: print it)")
    init.add_argument("--out", type=Path, metavar="FILE", help="the same")
    asked = "how long does each part of a workload take on each device, and where is that time from"
    add_estimate(add("estimate", run_estimate, asked, "", " u200 --workload hopper_ddpg", "NAME"))
    probe = add("probe", _probe, "what is this machine", "It takes half a minute, best while nothing else runs.")
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
        print(json.dumps([_leaf_values(leaf) for leaf in leaves(platform)], ensure_ascii=False))
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


def _leaf_values(leaf: Leaf) -> dict[str, Any]:
    words: dict[str, Any] = {"key": leaf.path, "documentation": leaf.documentation}
    if isinstance(leaf.value, str):
        return words | {"value": leaf.value}
    (base,) = [unit.sign for unit in split(leaf.field)[1] if unit.factor == 1]
    return words | {"si_unit": base, **dataclasses.asdict(leaf.value)}


def _check(options: argparse.Namespace) -> int:
    """Print every fault, or that there is none; returns 2, or 0."""
    path = path_of(options.file, options.results)
    platform, faults = read(path)
    if options.json:
        print(json.dumps([{**problem._asdict(), "kind": "error"} for problem in faults]))
    elif platform:
        quantities = sum(isinstance(leaf.value, Quantity) for leaf in leaves(platform))
        print(f"{path}: fine, {quantities} numbers of {', '.join(device.name for device in platform.devices)}")
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


# Times of your own

EXAMPLE = Path(__file__).with_name("times_example.csv")


def _add_times(commands: Any) -> None:
    """Add ``times`` to the commands of a parser."""
    factors = [f"{factor:g} if {source}" for source, factor in FACTORS.items()]
    lists: dict[str, Iterable[str]] = {"KEYS": KEYS, "COUNTS": COUNTS, "SOURCES": SOURCES, "FACTORS": factors}
    about = (_print_example.__doc__ or "").format(
        TIMES="/".join(TIMES), **{name: ", ".join(words) for name, words in lists.items()}
    )
    parser = add_command(commands, "times", "times of one's own: an example of a file", about, "times --example")
    parser.add_argument("--example", action="store_true", required=True, help="print a file: six devices, four parts")
    parser.set_defaults(run=_print_example)


def _print_example(_: argparse.Namespace) -> int:
    """Which times of your own can a question use, and what does a file of them look like?

    Any part on any device, measured, read in a paper or guessed, is looked up before records and models:

      python -m dse times --example > mine.csv
      python -m dse platform estimate u200 --workload hopper_ddpg --times mine.csv
      python -m dse recommend --platform u200 --workload hopper_ddpg --times mine.csv

    A file is CSV, a line a time; or TOML, whose tables [[time]] have the columns as keys, and where source, note,
    factor and batch above them hold for all.

      part           {KEYS}
      device         as the platform names it; a device equal to it has the same time unless one is stated. A link has
                     from and to instead, and states gb_per_s, the time of N bytes (else of a batch), or both
      {TIMES}
                     of a gradient step's batch: learner the step, updating with the insertions, storage gathering and
                     writing; of actors the time from one environment step to the next, of all processes together, with
                     inference and the fetching of weights
      low, high      ends of the time in its own unit; or factor, its error bound; where none is stated:
                     {FACTORS}
      {COUNTS}
                     whole numbers, as far as they matter: batch else that of the question, threads and processes else
                     1; several batches or thread counts are interpolated; devices: equal ones that share the batch
      contestant     the tree's implementation
      beside         the part that ran concurrently on cores of its own: that time over the one alone is the slowdown
      source         {SOURCES} (default: measured)
      note           where the time is from; answers repeat it, with file and line
    """
    print(EXAMPLE.read_text(encoding="utf-8"), end="")
    return 0
