"""``python -m dse recommend --workload``, ``explain`` and ``what-if``: arguments and what they lead to."""

import argparse
import dataclasses
import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from impls.training import WorkloadError
from impls.training import names as workload_names

from ..mapping.answer import MappingAnswer, Shortage
from ..mapping.explain import Explanation
from ..mapping.options import ARRANGEMENT
from ..mapping.question import FIX, FREE, MappingQuestion, answer_question, ask, explain_choice
from ..mapping.what_if import with_changes
from ..platforms import PlatformError, names
from ..records import RecordError, has_benchmarks
from ..solver.objectives import EPSILONS
from .mapping_text import GOALS, beside, text
from .text import WIDTH


def _listed(told: Mapping[str, str]) -> str:
    return "\n".join(f"  {name:15} {words}" for name, words in told.items())


ABOUT = f"""What to run where: actors, sampling, storage, learner and updating of a workload on a machine's devices.

A platform is a name ({", ".join(names())}, or `this`, the machine that asks, with its records) or a .toml file;
a workload too ({", ".join(workload_names())}).
Where `this` has no records, those of the nearest machine answer, and the first line says so; --machine names another.

Objectives:
{_listed(GOALS)}

--fix gives a value that would be chosen, or one of the workload, and may be repeated; its keys:
{textwrap.fill(", ".join(FIX), WIDTH)}
Sampling, storage, learner and updating are each a device's name; actors a number of processes. learner_threads
and threads are of the processor's options alone, others stay as they are; contestant rules out every other tree
(cupy is a GPU's, fpga an FPGA's). Arrangements:
{_listed(ARRANGEMENT)}

K is free unless fixed; how many batches are drawn ahead is the workload's `presampled` unless --free presampled;
--free batch looks for the most records trained a second, over a few powers of two that the answer names."""


def add_question(parser: argparse.ArgumentParser, needs_platform: bool = True) -> None:
    """What every question about a mapping has."""
    parser.add_argument("--platform", required=needs_platform, metavar="NAME", help="a platform's name or file")
    parser.add_argument("--workload", required=needs_platform, metavar="NAME", help="a workload's name or file")
    parser.add_argument("--objective", default="ratio", metavar="GOAL", help="see above (default: %(default)s)")
    parser.add_argument("--fix", action="append", default=[], metavar="KEY=VALUE", help="may be repeated")
    parser.add_argument("--exclude", action="append", default=[], metavar="DEVICE", help="may be repeated")
    parser.add_argument(
        "--free", action="append", default=[], metavar="KEY", help=f"{' or '.join(FREE)}; may be repeated"
    )
    told = ", ".join(f"{epsilon:g} for {name}" for name, epsilon in EPSILONS.items())
    parser.add_argument("--epsilon", type=float, metavar="E", help=f"share of the best that counts as a tie ({told})")
    add_machine(parser)


def add_machine(parser: argparse.ArgumentParser) -> None:
    """--machine, of every question that records answer."""
    shown = "`python -m benchmarks list` shows them" if has_benchmarks() else "folders of results are named so"
    parser.add_argument(
        "--machine",
        metavar="KEY",
        help=f"key of another machine with records; {shown} (default: this machine, or the nearest with records)",
    )


def add_to(commands: Any) -> None:
    """``explain`` and ``what-if``."""
    raw = argparse.RawDescriptionHelpFormatter
    for name, told, more in (
        ("explain", "why another mapping loses, ties or does not fit", "--config"),
        ("what-if", "the answer beside that of a changed machine", "--set"),
    ):
        parser = commands.add_parser(
            name, help=told, description=f"{told[:1].upper()}{told[1:]}.\n\n{ABOUT}", formatter_class=raw
        )
        add_question(parser)
        if more == "--config":
            parser.add_argument(more, required=True, metavar="KEY=VALUE,...", help="keys of --fix, such as learner=gpu")
        else:
            parser.add_argument(
                more,
                dest="changes",
                action="append",
                required=True,
                metavar="DEVICE.KEY=VALUE",
                help="as in platform files: gpu.memory_gb=24, cpu.cores=8, cpu-gpu.beta_gb_per_s=50; may be repeated",
            )
        parser.add_argument(
            "--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s"
        )
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Answer; returns the exit code: 0 answered, 1 nothing fits, 2 cannot be asked (a sentence says why)."""
    try:
        return {"recommend": _recommend, "explain": _explain, "what-if": _what_if}[options.command](options)
    except (PlatformError, WorkloadError, RecordError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _recommend(options: argparse.Namespace) -> int:
    return show(answer_question(_question(options)), options.json)


def _explain(options: argparse.Namespace) -> int:
    described = pairs(options.config.split(","), "--config")
    return show(explain_choice(_question(options), described), options.json)


def _what_if(options: argparse.Namespace) -> int:
    before = _question(options)
    changes = {}
    for key, value in pairs(options.changes, "--set").items():
        try:
            changes[key] = float(value.replace("_", ""))
        except ValueError:
            raise ValueError(f"--set {key}={value}: a number is wanted, in the unit that the key ends in") from None
    after = dataclasses.replace(before, platform=with_changes(before.platform, changes))
    answers = [answer_question(question) for question in (before, after)]
    if options.json:
        print(json.dumps({"before": answers[0].to_dict(), "after": answers[1].to_dict()}))
    else:
        print(beside(answers[0], answers[1], ", ".join(options.changes)))
    return 0 if isinstance(answers[1], MappingAnswer) else 1


def _question(options: argparse.Namespace) -> MappingQuestion:
    return ask(
        options.platform,
        options.workload,
        options.objective,
        fix=pairs(options.fix, "--fix"),
        exclude=options.exclude,
        free=options.free,
        epsilon=options.epsilon,
        results=options.results,
        machine=options.machine,
    )


def show(given: MappingAnswer | Shortage | Explanation, as_json: bool) -> int:
    """Print an answer; returns the exit code: 0, or 1 where nothing fits."""
    if as_json:
        print(json.dumps(given.to_dict()))
    else:
        print(text(given))
    return 1 if isinstance(given, Shortage) else 0


def pairs(words: Sequence[str], flag: str) -> dict[str, str]:
    """KEY=VALUE words. ValueError for what is none, or a key given twice."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (key.strip() and equals and value.strip()):
            raise ValueError(f"{flag} {word!r}: write KEY=VALUE")
        if key.strip() in found:
            raise ValueError(f"{flag}: {key.strip()} is given twice")
        found[key.strip()] = value.strip()
    return found
