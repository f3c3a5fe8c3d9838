"""``python -m dse recommend``: which mapping where a workload is named, else which tree."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from impls.checks import one_of
from impls.terminal import Progress, count

from .. import platforms
from ..mapping.values import FIX
from ..platforms import Platform
from ..platforms.reading import HERE, RESULTS
from ..race_trees import recommend
from ..times.platform_trees import ModeledChoice, choose
from ..times.tree_times import Question
from ..tree import Recommendation, check, unusual
from . import mapping
from .emit import to_toml
from .text import add_command
from .tree_text import made, tables, taken, text

ABOUT = f"""Which mapping of a workload is the best on a platform; or which tree for N leaves and batches of B?

{mapping.ABOUT}

Without a workload, --capacity and --batch ask which implementation of a tree, which K and how many threads:
a step samples B leaves once, updates B leaves R times and sets single leaves I times. On this machine the candidates
race for a few seconds, the first time after a minute or more of compiling; what its records, or the nearest machine's,
predict to be much slower is omitted. The time that is told is that of half a second of the winner's steps, with
arguments that no cache holds; its interval holds from run to run. The user's cache, or --results FOLDER, keeps a race,
which answers the same question until the code, a version or the machine changes. --no-race and --machine answer from
the records in results/, and --platform from models of that machine's numbers, which need not be there."""
NUMBERS = {"capacity": None, "batch": None, "updates_per_sample": 1.0, "threads": None}
ASKED = {**NUMBERS, "dtype": "float32", "distribution": "uniform", "unchecked": False, "inserts": 0}
RACE = {"seconds": None, "cold": False, "again": False, "allow_drift": False}
TREE = {**ASKED, **RACE, "no_race": False}
MAPPING: dict[str, Any] = {"objective": "ratio", "fix": [], "exclude": [], "free": [], "times": None, "epsilon": None}
"""Defaults of the options that only one of the two questions of ``recommend`` has."""


def add_to(commands: Any) -> None:
    """Add ``recommend`` to the commands of a parser."""
    summary = "which mapping for a platform and a workload, or which tree for N and B"
    ask = add_command(commands, "recommend", summary, ABOUT, "recommend --platform u200 --workload hopper_ddpg")
    mapping.add_question(ask, needs_platform=False)
    mapping.add_printing(ask)
    add = ask.add_argument
    add("--capacity", type=count, metavar="N", help="leaves of a tree")
    add("--batch", type=count, metavar="B", help="elements of a call of a tree")
    add(
        "--updates-per-sample", type=float, default=TREE["updates_per_sample"], metavar="R", help="default: %(default)s"
    )
    add("--threads", type=count, metavar="T", help="at most T threads (default: the machine's cores, if allowed)")
    add("--dtype", default=TREE["dtype"], help="of the leaves (default: %(default)s)")
    add("--distribution", default=TREE["distribution"], help="of the priorities (default: %(default)s)")
    add("--unchecked", action="store_true", help="admit trees that do not check their input (validate=False)")
    add("--inserts", type=count, default=0, metavar="I", help="updates of one leaf per sample (default: %(default)s)")
    add(
        "--cold",
        action="store_true",
        help="race with cold caches: a gradient step's memory is written before each step",
    )
    add("--seconds", type=float, metavar="S", help="at most S seconds of racing (default: 5, with --cold 15)")
    add("--again", action="store_true", help="race anew, though a race is kept that answers")
    add("--allow-drift", action="store_true", help="admit propagate=delta, whose sums drift, as the choice")
    add("--no-race", action="store_true", help="answer from records alone")


def run(options: argparse.Namespace) -> int:
    """Answer; returns the exit code: 0 answered, 1 nothing fits. Raises as the two questions, and where both mix."""
    about_tree = options.capacity is not None or options.batch is not None
    if options.workload and options.platform:
        _check(options, TREE, "a question about a tree")
        return mapping.run(options)
    if options.workload:
        raise ValueError("a mapping needs --platform and --workload, --platform is missing")
    if options.platform and not about_tree:
        raise ValueError(
            "a mapping needs --platform and --workload, --workload is missing; a tree on a platform needs --capacity "
            "and --batch"
        )
    if options.capacity is None or options.batch is None:
        missing = "--batch" if options.batch is None else "--capacity"
        raise ValueError(
            f"a tree needs --capacity and --batch, {missing} is missing; or ask with --platform and --workload"
        )
    _check(options, MAPPING, "a question about a mapping, with --platform and --workload")
    return _about_a_tree(options)


def _about_a_tree(options: argparse.Namespace) -> int:
    asked = {name: getattr(options, name) for name in ASKED}
    answer: Recommendation | ModeledChoice
    is_race = not (options.no_race or options.machine) and options.platform in (None, HERE)
    if not is_race:
        _check(options, RACE, "a race, which is on this machine, without --no-race")
    if is_race:
        raced = {name: getattr(options, name) for name in RACE}
        with Progress(None, "stage") as shown:
            words = "{1} candidates, raced for {0:.1f} s".format
            progress = lambda *far: shown.update(1, partial(words, *far))  # noqa: E731
            given = None if options.results is RESULTS else options.results  # RESULTS: where none was given
            answer = recommend(**asked, **raced, results=given, race=True, progress=progress)
    elif options.platform in (None, HERE):
        answer = recommend(**asked, results=options.results, machine=options.machine)
    elif options.machine:
        raise ValueError(f"--machine {options.machine} goes with --platform {HERE}, not with {options.platform}")
    elif asked.pop("unchecked"):
        raise ValueError(f"--unchecked is of measured trees: leave out --platform {options.platform}")
    elif asked.pop("inserts"):
        raise ValueError(f"--inserts is of measured trees: leave out --platform {options.platform}")
    else:
        answer = recommend_modeled(options.platform, **asked)
    tree = (taken(answer) if isinstance(answer, Recommendation) else answer.choice).configuration
    question = answer.question
    if options.emit:
        print(to_toml(tables(tree, question), mapping.words_of(options)))
    elif options.json:
        print(json.dumps(answer.to_dict() | tables(tree, question) | {"make": made(tree, question)}))
    else:
        print(text(answer, options.verbose))
    return 0


def recommend_modeled(
    platform: str | Path | Platform,
    capacity: int,
    batch: int,
    updates_per_sample: float = 1.0,
    threads: int | None = None,
    dtype: str = "float32",
    distribution: str = "uniform",
) -> ModeledChoice:
    """The tree to choose on a platform that need not be there, by models of its numbers alone.

    ``threads`` bounds the threads (default: the cores of its first processor). PlatformError where there is no such
    platform, or no tree fits it; ValueError for a question out of bounds, or priorities that no model knows.
    """
    machine = platform if isinstance(platform, Platform) else platforms.load(platform)
    processor = next((device for device in machine.devices if device.kind == "cpu"), None)
    if processor is None:
        raise platforms.PlatformError(f"platform {machine.name!r} has no processor to hand batches over; add a cpu")
    cores = int(processor.cores.value) if processor.cores else 1
    question = Question(capacity, batch, updates_per_sample, cores if threads is None else threads, dtype, distribution)
    check(question)
    one_of("distribution", distribution, ("uniform",))
    answered = choose(machine, question)
    more = [f"{threads} threads are allowed, and {machine.name} has {cores} cores"] * (question.threads > cores)
    return replace(answered, notes=(*unusual(question), *more, *answered.notes))


def _check(options: argparse.Namespace, defaults: Mapping[str, Any], question: str) -> None:
    """ValueError where an option of the other question is given; nothing is passed over in silence."""
    for name, default in defaults.items():
        value = getattr(options, name)
        if value != default:
            hint = f"; write --fix {name}={value}" if name in FIX else ""
            raise ValueError(f"--{name.replace('_', '-')} is of {question}{hint}")
