"""What commands have in common: the options of questions about mappings, how they are read, and their help."""

import argparse
import dataclasses
import inspect
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from impls.terminal import print_to_stderr
from impls.training import names as workload_names
from impls.training import timed_names
from impls.training.arrangement import SYNCS
from impls.training.environments import check_spaces, warn_of_code

from ..mapping.options import ARRANGEMENT
from ..mapping.question import FIX, FREE, MappingQuestion, ask
from ..platforms import names
from ..platforms.files import HERE, RESULTS
from ..records import has_benchmarks
from ..solver.law import EPSILONS
from .printer import WIDTH

PRINTED = ("json", "verbose", "emit")
_OF_TREES = {"updates_per_sample": 1.0, "dtype": "float32", "distribution": "uniform", "inserts": 0}
DEFAULTS = {"objective": "ratio", "fix": [], "exclude": [], "free": [], "results": RESULTS, **_OF_TREES}
"""Options that say how to print an answer, and what the others are where they are not given."""
GOALS = {
    "ratio": "gradient steps/s at the workload's update_interval, actors included",
    "training": "gradient steps/s that the learner could take, whatever actors do, as in [Zhang2023]",
    "per_watt": "gradient steps/J",
    "fewest_devices": "gradient steps/s as for ratio, where a device less is worth up to 10 %",
}


def _listed(descriptions: Mapping[str, str]) -> str:
    return "\n".join(f"  {name:15} {words}" for name, words in descriptions.items())


ABOUT = """A mapping places the parts of a workload on devices: actors, sampling, storage, learner and updating.

A platform is a name ({platforms}, or `this`, the machine that asks, with its records) or a .toml file;
a workload too:
{workloads}.
Where `this` has no records, those of the nearest machine answer, and a warning says so; --machine names another.

Objectives:
{objectives}

--fix gives a value that would be chosen, or one of the workload, and may be repeated; its keys:
{keys}
Sampling, storage, learner and updating are each a device's name; actors a number of processes. learner_threads
and threads are of the processor's options alone, others stay as they are; contestant is the tree's implementation,
and rules out every other (cupy is a GPU's, fpga an FPGA's). learner_implementation and policy_implementation are
torch, or dense where that suits the workload; environments are those an actor steps at once. Several learners
run apart, each a process: they combine by sync ({syncs}), average weights every
period steps if that is local, and sample from as many banks if those are fixed. Execution modes, by the key
arrangement:
{modes}

K is free unless fixed; how many batches are sampled ahead is the workload's `presampled` unless --free presampled;
--free batch takes the smallest of some powers of two that trains nearly as many records per second as the most;
--free environments the fewest of those timed that give nearly the most, which changes learning slightly;
--free layers lets each layer of a value network (of dqn) have a device of its own.
""".format(
    platforms=", ".join(names()),
    workloads=textwrap.fill(", ".join(timed_names()), WIDTH),
    objectives=_listed(GOALS),
    keys=textwrap.fill(", ".join(FIX), WIDTH),
    syncs=", ".join(SYNCS),
    modes=_listed(ARRANGEMENT),
)


def add_command(commands: Any, name: str, summary: str, about: str | None, example: str) -> argparse.ArgumentParser:
    """Add a command whose help begins with its question, a docstring, and ends with an ``example`` to paste."""
    raw = argparse.RawDescriptionHelpFormatter
    about, epilog = inspect.cleandoc(about or ""), f"example:\n  python -m dse {example}"
    parser = commands.add_parser(name, help=summary, description=about, epilog=epilog, formatter_class=raw)
    return cast(argparse.ArgumentParser, parser)


def add_question(parser: argparse.ArgumentParser, needs_platform: bool = True) -> None:
    """Add the options of every question about a mapping."""
    add_system(parser, needs_platform)
    add_choices(parser)
    add_verbose(parser)


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what to choose by, and what is given or free."""
    add = parser.add_argument
    add("--objective", default="ratio", metavar="GOAL", help="see above (default: %(default)s)")
    add_fix(parser)
    add("--exclude", action="append", default=[], metavar="DEVICE", help="may be repeated")
    add("--free", action="append", default=[], metavar="KEY", help=f"{', '.join(FREE)}; may be repeated")
    shares = ", ".join(f"{epsilon:g} for {name}" for name, epsilon in EPSILONS.items())
    own = "times of your own, TOML or CSV, looked up first; `python -m dse times --example` prints a file"
    add("--times", type=Path, metavar="FILE", help=own)
    add("--epsilon", type=float, metavar="E", help=f"share of the best that counts as a tie ({shares})")


def add_system(parser: argparse.ArgumentParser, is_required: bool, default: str = "") -> None:
    """Add the options of every question about a training system: whose it is, and which records answer."""
    add = parser.add_argument
    or_default = f" (default: {default})" if default else ""
    add("--platform", required=is_required, metavar="NAME", help=f"a platform's name or file, or `{HERE}`{or_default}")
    add("--workload", required=is_required, metavar="NAME", help="a workload's name or file")
    add_records(parser)


def add_fix(parser: argparse.ArgumentParser) -> None:
    """Add the option of values that are given."""
    parser.add_argument("--fix", action="append", default=[], metavar="KEY=VALUE", help="may be repeated")


def add_records(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which records answer, and that the answer is to be JSON."""
    add = parser.add_argument
    shown = "`python -m benchmarks list` shows them" if has_benchmarks() else "folders of results are named so"
    another = f"key of another machine with records; {shown} (default: this machine, or the nearest with records)"
    add("--machine", metavar="KEY", help=another)
    add("--results", type=Path, default=RESULTS, metavar="FOLDER", help="default: %(default)s")
    add("--json", action="store_true", help="print JSON instead of text")


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """Add the option that prints all of an answer."""
    parser.add_argument("--verbose", action="store_true", help="print all tables and notes too")


def words_of(options: argparse.Namespace) -> str:
    """Write the command of ``recommend`` that has these options, without what says how to print the answer."""
    words = ["python", "-m", "dse", "recommend"]
    for name, value in vars(options).items():
        is_given = value is not None and value is not False and value != DEFAULTS.get(name)
        if is_given and name not in (*PRINTED, "command"):
            flag = f"--{name.replace('_', '-')}"
            values = value if isinstance(value, list) else [value]
            words += [flag] if value is True else [word for each_value in values for word in (flag, str(each_value))]
    return shlex.join(words)


def question_of(options: argparse.Namespace) -> MappingQuestion:
    """Ask what the options of ``add_question`` ask."""
    asked = {name: getattr(options, name) for name in ("objective", "exclude", "free", "epsilon")}
    return dataclasses.replace(system_of(options), **asked)


def system_of(options: argparse.Namespace) -> MappingQuestion:
    """Ask about the system that the options of ``add_system`` and ``add_fix`` name.

    WorkloadError where its environment is another.
    """
    fix, asked = pairs(options.fix, "--fix"), {name: getattr(options, name) for name in ("results", "machine")}
    question = ask(options.platform, options.workload, fix=fix, times=getattr(options, "times", None), **asked)
    if options.workload not in workload_names():  # those fit
        warn_of_code(question.workload)
        with print_to_stderr():
            check_spaces(question.workload)
    return question


def pairs(words: Sequence[str], flag: str) -> dict[str, str]:
    """Parse KEY=VALUE words. ValueError for anything else, or a key given twice."""
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (key.strip() and equals and value.strip()):
            raise ValueError(f"{flag} {word!r}: write KEY=VALUE")
        if key.strip() in values:
            raise ValueError(f"{flag}: {key.strip()} is given twice")
        values[key.strip()] = value.strip()
    return values
