"""What times can one give of one's own, and what does a file of them say?

Any part on any device, measured, read in a paper or guessed, is looked up before records and models:

  python -m dse times --example > mine.csv
  python -m dse times --check mine.csv --platform u200 --workload hopper_ddpg
  python -m dse recommend --platform u200 --workload hopper_ddpg --times mine.csv

A file is CSV, a line a device with columns such as learner_us, or a line a time with part and us; or TOML, whose
tables [[time]] have the same keys, and where source, note, factor and batch above them hold for all.

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
                 whole numbers, as far as they matter: batch else that of the question, threads and processes else 1;
                 several batches or thread counts are interpolated; devices: the equal ones that share the batch
  contestant     the tree's implementation
  beside         the part that ran concurrently on cores of its own: that time over the one alone is the slowdown
  source         {SOURCES} (default: measured)
  note           where the time is from; answers repeat it, with file and line
"""

import argparse
import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from impls.terminal import aligned, plural

from ..estimate import SUREST_FIRST, Estimate, off
from ..mapping.question import MappingQuestion, ask
from ..platforms import Device, PlatformError
from ..solver.problem import LOOP
from ..times.own import FACTORS, Own
from ..times.own_file import COUNTS, KEYS, SOURCES, TIMES, Entry
from ..times.parts import Parts
from ..times.trees import trees
from .mapping import add_system
from .text import add_command, wrapped

EXAMPLE = Path(__file__).with_name("times_example.csv")


def add_to(commands: Any) -> None:
    """Add ``times`` to the commands of a parser."""
    factors = [f"{factor:g} if {source}" for source, factor in FACTORS.items()]
    lists: dict[str, Iterable[str]] = {"KEYS": KEYS, "COUNTS": COUNTS, "SOURCES": SOURCES, "FACTORS": factors}
    about = (__doc__ or "").format(TIMES="/".join(TIMES), **{name: ", ".join(words) for name, words in lists.items()})
    summary = "times of one's own: an example of a file, and a check"
    parser = add_command(commands, "times", summary, about, "times --example")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--example", action="store_true", help="print a file: six devices, four parts")
    what.add_argument("--check", type=Path, metavar="FILE", help="say what a file has, and what a question still lacks")
    add_system(parser, is_required=False)


def run(options: argparse.Namespace) -> int:
    """Answer; returns the exit code 0. ``TimesError`` with everything that is wrong with a file, by line."""
    if options.example:
        print(EXAMPLE.read_text(encoding="utf-8"), end="")
        return 0
    if bool(options.platform) != bool(options.workload):
        raise ValueError("a question has --platform and --workload; give both, or neither to check the file alone")
    own = Own.read(options.check)
    lines = list(_understood(own))
    if options.platform:
        question = ask(options.platform, options.workload, results=options.results, machine=options.machine, times=own)
        lines += [*_sources(question), *_unused(question)]
    print(json.dumps({"times": [dataclasses.asdict(one) for one in own.entries]}) if options.json else "\n".join(lines))
    return 0


def _understood(own: Own) -> Iterator[str]:
    devices = {name for one in own.entries for name in (one.device, one.target) if name}
    yield f"{own.file}: {plural(len(own.entries), 'time')} of {plural(len(devices), 'device')}"
    yield from aligned(
        [(str(one), _stated(one), one.source, f"line {one.line}", one.note) for one in own.entries], "  "
    )


def _stated(one: Entry) -> str:
    """A stated time with its ends, or a link's bandwidth."""
    words = [f"{one.bytes_per_s / 1e9:g} GB/s"] if one.bytes_per_s else []
    if one.seconds:
        factor = off(one.seconds, one.low, one.high) if one.high else one.factor or FACTORS[one.source]
        words.append(f"{_short(one.seconds)} (x{factor:.3g})")
    return " and ".join(words)


def _short(seconds: float) -> str:
    """Write a time in the unit in which it has one to three digits before the point."""
    unit, factor = next(
        ((unit, factor) for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)) if seconds * factor >= 1),
        ("ns", 1e9),
    )
    return f"{seconds * factor:.3g} {unit}"


def _sources(question: MappingQuestion) -> Iterator[str]:
    """What a question takes each part's time from, with the command that measures what nobody timed."""
    parts = question.parts()
    yield ""
    yield f"{question.workload.name} (B = {parts.batch:,}) on {question.platform.name}: where each time is from"
    rows, commands = list[tuple[str, ...]](), dict[str, str]()
    for part, where, times in _times(question, parts):
        if isinstance(times, str):
            rows.append((part, where, "lacks", times))
            continue
        rests = times.rests_on
        rows.append((part, where, rests.source, rests.number))
        is_own = question.times and f"{question.times.file}:" in rests.told
        if rests.source in ("modeled", "extrapolated") and not is_own:
            commands.setdefault(rests.command, rests.number)
            rows[-1] = (part, where, rests.source, f"{rests.number}: lacks a time")
    yield from aligned(rows, "  ")
    for command, number in commands.items():
        yield from wrapped(f"to time {number}, {command}")


def _times(question: MappingQuestion, parts: Parts) -> Iterator[tuple[str, str, Estimate | str]]:
    """(part, device, the fastest of its surest times there, or why there is none)."""
    yield "actors", parts.cpu.name, parts.actor_step(1)
    devices = [device for device in question.platform.devices if device.name not in question.exclude]
    for part in LOOP:
        for device in devices:
            try:
                times = list(_options(parts, part, device))
            except PlatformError as error:
                yield part, device.name, str(error)
                continue
            surest = min(times, key=lambda time: (SUREST_FIRST.index(time.source), time.value), default="nothing fits")
            yield part, device.name, surest
    problem = next(iter(question.built().problems.values()))
    for (source, target), hops in problem.ways.items():
        for hop in hops if len(hops) == 1 else ():
            seconds = hop.alpha_seconds + parts.batch_bytes * hop.seconds_per_byte
            yield "link", f"{source} to {target}", Estimate.within(seconds, 1.0, hop.rests_on)


def _options(parts: Parts, part: str, device: Device) -> Iterator[Estimate]:
    if part == "learner":
        yield from (one.step for one in parts.learners(device) if one.devices == 1)
    elif part == "storage":
        yield from [parts.rows_moved(device)] if device.memory or parts.stated("storage", device) else []
    else:
        yield from (tree.draw if part == "sampling" else tree.update for tree in trees(parts, device))


def _unused(question: MappingQuestion) -> Iterator[str]:
    unused = list(question.times.unused(question.platform, question.exclude)) if question.times else []
    yield ""
    yield from [line for one in unused for line in wrapped(one, "")] or ["every time is used"]
