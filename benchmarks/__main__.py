"""Time the contestants on this machine.

sweep      measure many cells into results/<machine>/, resumable
questions  measure every candidate of questions drawn by a seed, to test recommendations with
answers    measure what answers recommended, to tell how far off they were
list       show what results there are
speed      one table of speeds, nothing written
compare    two commits, or two files of records: is the newer one slower?
peers      other libraries' trees beside ours
gpu        the GPU tree on a CUDA device, checked and timed beside its rivals
profile    the primitives of a training system, for a workload
share      a serial training step, and the part of it that is spent in the tree
loop-questions  the serial loop at batches and update intervals drawn by a seed, to test predictions with
"""

import argparse
import ast
import dataclasses
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import impls
from dse import records
from dse.records import RecordError
from impls.terminal import answering, count

from . import answers, compare, gpu, speed_table
from .answers import QUESTION_SEED, questions
from .arguments import add_axes, add_common
from .cases import DISTRIBUTIONS, OPS
from .clock import ALL_CPUS
from .peers import command as peers_command
from .presets import PRESETS, Block, candidates, groups
from .profile import command as profile_command
from .profile import questions as loop_questions
from .profile import share
from .run import file_of, report
from .sweep import sweep
from .workers import WorkerError

INTERRUPTED = 130
HELP = dict(line.split(maxsplit=1) for line in (__doc__ or "").splitlines()[2:])
"""One line of each command."""
ELSEWHERE = {
    "answers": answers.main,
    "speed": speed_table.main,
    "compare": compare.main,
    "peers": peers_command.main,
    "gpu": gpu.main,
    "profile": profile_command.main,
    "share": share.main,
    "loop-questions": loop_questions.main,
}  # commands with a parser of their own
FIRST, ALL = "python -m benchmarks sweep --preset quick", "python -m benchmarks --help"
NOISY = "that is a noisy run: measure again at a quieter time with --name, the latest record of a cell counts"


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand; returns the exit code: 0 done, 2 cannot be done (one sentence says why), 130 interrupted."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        print(f"error: name a command, such as {FIRST}; {ALL} tells what each is for", file=sys.stderr)
        return 2
    try:
        if words and words[0] in ELSEWHERE:
            return ELSEWHERE[words[0]](words[1:])
        options = _parser().parse_args(words)
        return int(options.run(options))
    except (RecordError, ValueError, WorkerError) as error:
        kept = "; what is measured is kept: run it again to go on" if isinstance(error, WorkerError) else ""
        print(f"error: {error}{kept}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted; every finished cell is kept, the same command goes on from there", file=sys.stderr)
        return INTERRUPTED


def _run_sweep(options: argparse.Namespace) -> int:
    preset = PRESETS[options.preset]
    axes = {field.name: getattr(options, field.name) for field in dataclasses.fields(Block)}
    chosen = {name: value for name, value in axes.items() if value is not None}
    cells = groups(case for block in preset.blocks for case in dataclasses.replace(block, **chosen).cases())
    name = options.name or (f"{options.preset}-custom" if chosen else options.preset)
    path = file_of(options.results, f"{name}.jsonl")
    budget = options.budget or preset.budget_seconds
    tally = sweep(cells, path, budget, options.seed, with_floor=options.floor, bar=not options.json)
    return report(tally, path, options.json, NOISY)


def _run_questions(options: argparse.Namespace) -> int:
    asked, preset = questions(options.count, len(ALL_CPUS) or 1, options.seed), PRESETS[options.preset]
    cases = [
        dataclasses.replace(case, op=op, capacity=question.capacity, batch=question.batch)
        for question in asked
        for op in ("draw", "update")
        for case in candidates(preset)
        if case.threads <= question.threads
    ]
    path = file_of(options.results, "questions.jsonl")
    how = {"with_floor": options.floor, "bar": not options.json}
    tally = sweep(groups(cases), path, preset.budget_seconds, options.seed, **how)
    path.with_suffix(".json").write_text(json.dumps([dataclasses.asdict(question) for question in asked], indent=1))
    return report(tally, path, options.json)


def _run_list(options: argparse.Namespace) -> int:
    found = records.read_folder(options.results, options.machine)
    if options.export:
        records.export(found, options.export)
    counts = Counter(
        (r.machine_key, r.machine.get("cpu", "?"), r.primitive, r.contestant, r.op, r.status) for r in found
    )
    rows = [
        dict(zip(("machine", "cpu", "primitive", "contestant", "op", "status"), key, strict=True)) | {"cells": number}
        for key, number in sorted(counts.items())
    ]
    if options.json:
        print(json.dumps(rows))
        return 0
    widths = {key: max(len(key), *(len(str(row[key])) for row in rows)) for key in rows[0]}
    for row in [dict(zip(widths, widths, strict=True)), *rows]:
        print("  ".join(str(value).ljust(widths[key]) for key, value in row.items()).rstrip())
    return 0


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=(__doc__ or "").splitlines()[0],
        epilog="every command has a --help of its own",
        formatter_class=raw,
    )
    parser.add_argument("--version", action="version", version=f"fanout {impls.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in ELSEWHERE:
        commands.add_parser(name, help=HELP[name], add_help=False)

    measure = commands.add_parser(
        "sweep",
        help=HELP["sweep"],
        description="Measure the cells of a preset, or with any axis replaced by a flag. Interrupt it as you like: the "
        "same command goes on where it stopped. On two cores smoke takes under 30 s, quick under 4 minutes, full under "
        "an hour.",
        epilog="ops:\n"
        + "".join(f"  {name:9}{text}\n" for name, text in OPS.items())
        + "distributions:\n"
        + "".join(f"  {name:13}{text}\n" for name, text in DISTRIBUTIONS.items()),
        formatter_class=raw,
    )
    measure.add_argument("--preset", choices=PRESETS, default="quick", help="default: %(default)s")
    add_axes(measure)
    measure.add_argument("--options", type=_settings, action="append", metavar="KEY=VALUE,..", help="repeatable")
    measure.add_argument("--budget", type=float, metavar="SECONDS", help="of sampling for one cell")
    measure.add_argument("--name", help="of the results file (default: the preset)")
    measure.set_defaults(run=_run_sweep)

    ask = commands.add_parser(
        "questions",
        help=HELP["questions"],
        description="Draw questions (N, B, threads, updates per draw) by a seed, measure every configuration of a "
        "preset at each, and keep them apart from the sweeps: answers never rest on them, they are tested with them.",
    )
    ask.add_argument("--count", type=count, default=24, help="of questions (default: %(default)s)")
    ask.add_argument("--preset", choices=PRESETS, default="quick", help="whose configurations (default: %(default)s)")
    ask.set_defaults(run=_run_questions)

    show = commands.add_parser("list", help=HELP["list"])
    show.add_argument("--machine", help="only that machine's")
    show.add_argument("--export", type=Path, metavar="FILE", help="also write the records to a .csv or .parquet file")
    show.set_defaults(run=_run_list)
    for command in (measure, ask):
        command.add_argument("--no-floor", dest="floor", action="store_false", help="leave the memory floor out")
    add_common(measure, seed_of="inputs and order")
    add_common(ask, seed_of="the questions", seed=QUESTION_SEED)
    add_common(show)
    return parser


def _settings(text: str) -> dict[str, Any]:
    """Options of a contestant: words, but numbers and True, False, None as Python has them."""
    pairs = (word.partition("=") for word in text.split(",") if word)
    return {key: _value(value) for key, _, value in pairs}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


if __name__ == "__main__":
    sys.exit(answering(main))
