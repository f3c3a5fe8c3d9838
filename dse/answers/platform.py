"""Describe machines: those that ship, the one that runs, and one's own.

A platform is named (u200), or is a file (mine.toml). To describe a machine of your own, begin with `init`, or with a
copy of the nearest one (`init --like u200`), until `check` is content. In a file, keys end in their unit:

  time        _seconds _ms _us _ns           bytes      _bytes _kib _mib _gib _gb
  bandwidth   _bytes_per_s _mb_per_s         frequency  _hz _mhz _ghz
              _gb_per_s _tb_per_s            power      _watts
  operations  _ops_per_s _gops _tops         counts     no ending
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from impls.files import refusing
from impls.terminal import aligned, plural
from impls.training import TrainingError

from ..answer import Answer, Note, Row
from ..estimate import SUREST_FIRST, Estimate, weakest
from ..mapping.question import MappingQuestion, ask
from ..platforms import Device, Platform, PlatformError, Quantity, checkout, leaves, load, names
from ..platforms.files import HERE, RESULTS, copied, find_own_file, parse, path_of, read, template, text_of
from ..platforms.platform import Leaf
from ..platforms.quantities import ORIGINS, readable, split
from ..solver.problem import LOOP, PARTS
from ..times.door import Times
from ..times.stated import COUNTS, FACTORS, KEYS, SOURCES, TIMES, StatedTimes
from ..times.trees import trees
from .options import add_command
from .printer import write

WORKLOAD = "hopper_ddpg"  # that estimates are for unless another one is named
ANOTHER = "name another file with --out"


def run(options: argparse.Namespace) -> int:
    """Print what was asked; returns the exit code: 0 done, 2 for a file with faults. PlatformError, WorkloadError."""
    return int(options.run(options))


def add_to(commands: Any) -> None:
    """Add ``times`` and ``platform`` to the commands of a parser."""
    _add_times(commands)
    top = add_command(commands, "platform", "which machines there are", __doc__, "platform show u200")
    actions = top.add_subparsers(required=True, metavar="ACTION", dest="action")

    def add(action: Callable[[argparse.Namespace], int], example: str = "", argument: str = "") -> Any:
        """Add an action; its help is the docstring of its function."""
        name, first = action.__name__.strip("_"), (action.__doc__ or "").partition("\n")[0]
        summary = first[:1].lower() + first[1:-1]
        parser = add_command(actions, name, summary, action.__doc__, f"platform {name}{example}")
        if argument:
            parser.add_argument(argument.lower(), metavar=argument, help="a platform's name, or a .toml file")
        parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="default: %(default)s")
        parser.set_defaults(run=action)
        return parser.add_argument

    json_help = "print JSON instead of text"
    add(_list)
    option = add(_show, " u200", "NAME")
    option("--toml", action="store_true", help="print its file, comments included")
    option("--json", action="store_true", help=json_help)
    add(_check, " u200", "FILE")("--json", action="store_true", help=json_help)
    option = add(_init, " --like u200")
    option("--like", metavar="NAME", help="copy this platform's file: its name, or a .toml file")
    option("file", nargs="?", type=Path, metavar="FILE", help="write it there (default: print it)")
    option("--out", type=Path, metavar="FILE", help="the same")
    option = add(_estimate, " u200 --workload hopper_ddpg", "NAME")
    option("--workload", default=WORKLOAD, metavar="NAME", help="a name or a file (default: %(default)s)")
    own = "times of your own, looked up first; see: python -m dse times --help"
    option("--times", type=Path, metavar="FILE", help=own)
    option("--json", action="store_true", help=json_help)
    option = add(_probe)
    option("--anyway", action="store_true", help="measure although other processes keep the machine busy")
    option("--out", type=Path, metavar="FILE", help="default: results/<machine>/platform.toml")
    cluster = "add the nodes of a Ray cluster (auto, local or HOST:PORT) to the file that is there, and what calls take"
    option("--cluster", metavar="WHERE", help=cluster)


def _list(options: argparse.Namespace) -> int:
    """List the platforms that ship, and `this` machine once it is probed."""
    found = {name: load(name) for name in names()}
    intro = "to ask about by name, and this machine; any other is a .toml file (`init`):"
    print(f"{plural(len(found), 'platform')} {intro}")
    found |= {HERE: load(HERE, options.results)} if find_own_file(options.results).is_file() else {}
    kinds = {name: ", ".join(device.kind for device in platform.devices) for name, platform in found.items()}
    rows = [[name, kinds[name], platform.title or ""] for name, platform in found.items()]
    if HERE not in found:
        rows.append([HERE, "", "this machine; not probed yet: python -m dse platform probe"])
    print("\n".join(aligned(rows)))
    return 0


def _show(options: argparse.Namespace) -> int:
    """Show each number of a platform with its unit, its origin and a note.

    +- is the half-width of the interval of a measured one.
    """
    if options.toml and options.json:
        raise PlatformError("--toml and --json exclude each other; leave one of them out")
    if options.toml:
        print(text_of(path_of(options.name, options.results)), end="")
    elif options.json:
        values = [_values_of(leaf) for leaf in leaves(load(options.name, options.results))]
        print(json.dumps(values, ensure_ascii=False))
    else:
        print("\n".join(write_platform(load(options.name, options.results))))
    return 0


def write_platform(platform: Platform) -> Iterator[str]:
    """Write a table for each device, memory, slice and link; a note as the one above it is a ditto mark."""
    tables: dict[str, tuple[list[str], list[list[str]]]] = {}
    above, origins = ("", ""), list[str]()
    for leaf in leaves(platform):
        table, _, key = leaf.path.rpartition(".")
        words, rows = tables.setdefault(table, ([], []))
        if isinstance(leaf.value, str):
            words.append(leaf.value)
            continue
        digits, unit = readable(leaf.field, leaf.value.value)
        spread = f" +-{leaf.value.spread:.0%}" if leaf.value.spread is not None else ""
        note, origin = leaf.value.note, leaf.value.origin
        rows.append([key, digits, unit.sign + spread, origin, '"' if (table, note) == above else note])
        above = table, note
        origins.append(origin)
    counts = ", ".join(f"{origins.count(origin)} {origin}" for origin in ORIGINS if origin in origins)
    yield f"{'; '.join(tables.pop('')[0])}: {plural(len(origins), 'number')}, {counts}"
    lines = aligned([row for _, rows in tables.values() for row in rows], "  ", right=1)
    for table, (words, rows) in tables.items():
        yield from ("", ": ".join(filter(None, [table, ", ".join(word for word in words if word not in table)])))
        yield from itertools.islice(lines, len(rows))


def _values_of(leaf: Leaf) -> dict[str, Any]:
    words: dict[str, Any] = {"key": leaf.path, "documentation": leaf.documentation}
    if isinstance(leaf.value, str):
        return words | {"value": leaf.value}
    (base,) = [unit.sign for unit in split(leaf.field)[1] if unit.factor == 1]
    return words | {"si_unit": base, **dataclasses.asdict(leaf.value)}


def _check(options: argparse.Namespace) -> int:
    """Check a platform file, and name everything that is wrong with its line.

    The exit code is 2 if anything is.
    """
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
    """Begin a platform file: a template of every key with its unit and its meaning, or a copy of another."""
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
    left = parse(text, str(path))[1]
    print(f"written to {path}, {plural(len(left), 'key') if left else 'nothing'} left to fill in")
    print(f"once it describes your machine: python -m dse platform check {shlex.quote(str(path))}")
    return 0


def _probe(options: argparse.Namespace) -> int:
    """Probe this machine, whose file is then `this`; with --cluster, the nodes of a Ray cluster as well.

    It takes half a minute, without privileges, and is best done while nothing else runs.
    """
    # With their kernels and Ray, of which no other command needs any.
    from impls.cluster import ClusterError  # noqa: PLC0415

    from ..platforms.cluster_probe import probe_cluster  # noqa: PLC0415
    from ..platforms.probe import write_file, write_probe  # noqa: PLC0415

    if checkout.is_too_loaded(options.anyway):
        return checkout.BUSY_EXIT_CODE
    path = options.out or find_own_file(options.results)
    with refusing(path, PlatformError, ANOTHER):
        platform = load(path) if options.cluster and path.is_file() else write_probe(path)
        if options.cluster:
            try:
                platform = probe_cluster(platform, options.cluster, options.results)
            except (ClusterError, TrainingError) as error:
                raise PlatformError(str(error)) from None
            write_file(path, platform)
    print("\n".join([*write_platform(platform), "", f"written to {path}"]))
    return 0


# What each part takes on each device


def _estimate(options: argparse.Namespace) -> int:
    """Estimate how long each part of a workload takes on each device, and say where each time is from."""
    own = StatedTimes.read(options.times) if options.times else None
    answer = primitives_answer(ask(options.name, options.workload, results=options.results, times=own))
    print(json.dumps(answer.to_dict()) if options.json else "\n".join(write(answer, is_verbose=True)))
    return 0


def primitives_answer(question: MappingQuestion) -> Answer:
    """Return the table of primitives [Zhang2023, VI-A3], a row a device, and the time of each part on each device.

    A note of the level "first" has the command that measures what nobody timed. Where a part has no time on
    a device, its row says what is missing.
    """
    parts = question.parts()
    rows, commands = tuple(_primitives(question, parts)), dict[str, dict[str, str]]()
    for row in rows:
        if row.estimate and row.estimate.source in ("modeled", "extrapolated"):
            evidence, part = row.estimate.rests_on, row.label["part"]
            place = f"{part} on {row.label['device']}" if part in PARTS else evidence.id
            commands.setdefault(evidence.command, {})[f"the {place}"] = evidence.id
    named = {"workload": question.workload.name, "batch": parts.batch, "platform": question.platform.name}
    notes = list[Note]()
    for command, places in commands.items():
        values = {"evidence": ", ".join(dict.fromkeys(places.values())), "of": list(places), "how": command}
        kind = "state_time" if not command else "measure_to_be_sure" if question.tables[0] else "measure_there"
        notes.append(Note(kind, values, "first"))
    return Answer(named, Row(named, says="primitives"), (*_rate_devices(question, parts), *rows), notes=tuple(notes))


def _rate_devices(question: MappingQuestion, parts: Times) -> Iterator[Row]:
    """Yield for each device the records/s of its tree, B over sampling and updating, and of its learner, B over a step.

    Updating includes the insertion of new records. Each is of the fastest of the surest times; errors of sampling and
    updating go together, and the surer of them is no surer than the other.
    """
    for device in question.platform.devices:
        rates = dict[str, Any]()
        for name in ("rmm", "learner"):
            with contextlib.suppress(PlatformError):
                steps = (
                    (tree.draw + tree.update).resting_on(source=weakest((tree.draw.source, tree.update.source)))
                    for tree in trees(parts, device)
                )
                times = sorted(steps if name == "rmm" else _times(parts, name, device), key=_sort_surest)
                for time in times[:1]:
                    value, low, high = (parts.batch / seconds for seconds in (time.value, time.high, time.low))
                    rates[f"{name}_rate"] = Row({}, Estimate(value, low, high, time.rests_on), "records/s").number
        yield Row({"device": device.name}, more=rates)


def _sort_surest(time: Estimate) -> tuple[int, float]:
    return SUREST_FIRST.index(time.source), time.value


def _primitives(question: MappingQuestion, parts: Times) -> Iterator[Row]:
    """Yield the fastest of the surest times of each part on each device, or what is missing there."""
    yield Row({"part": "actors", "device": parts.cpu.name}, parts.actors.step(1), "s")
    for part, device in itertools.product(LOOP, question.platform.devices):
        label = {"part": part, "device": device.name}
        try:
            times = sorted(_times(parts, part, device), key=_sort_surest)
            yield Row(label, times[0], "s") if times else Row(label, None, "s", {"lacks": "nothing fits"})
        except PlatformError as error:
            yield Row(label, None, "s", {"lacks": str(error)})
    try:
        ways = next(iter(question.built().problems.values())).ways
    except PlatformError:  # whose sentence a row above has
        return
    for (source, target), hops in ways.items():
        for hop in hops if len(hops) == 1 else ():
            seconds = hop.alpha_seconds + parts.batch_bytes * hop.seconds_per_byte
            sent = Estimate.within(seconds, 1.0, hop.rests_on)
            yield Row({"part": f"send a batch to {target}", "device": source}, sent, "s")


def _times(parts: Times, part: str, device: Device) -> Iterator[Estimate]:
    if part == "learner":
        yield from (learner.step for learner in parts.learners.list(device) if learner.devices == 1)
    elif part == "storage":
        yield from [parts.rows_moved(device)] if device.memory or parts.stated("storage", device) else []
    else:
        yield from (tree.draw if part == "sampling" else tree.update for tree in trees(parts, device))


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
