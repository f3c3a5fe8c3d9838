"""Ask what to choose.

recommend   which part of a training workload on which device of a machine; or which tree for N leaves and batches of B
explain     why another mapping loses, ties or does not fit
what-if     the answer beside that of a changed machine
adapt       how many samplers and which batch, searched as training could find them
learners    whether a second learner is worth it, and how often to average weights
platform    machines as files: show, check, compare, and probe the one that runs
fpga        which replay management module and learner, for an FPGA, a network and batches of B
validate    how far off answers about trees were, when their configurations were measured
"""

import argparse
import json
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from impls.terminal import answering, count, plural

from . import fpga_command, platform_command, solver_command, tuning_command, validate_command
from .mapping import FIX
from .mapping_text import WIDTH
from .recommend import Recommendation, recommend
from .records import RecordError
from .tables import Estimate

MOST_CELLS_SHOWN = 8
TREE = {
    "capacity": None,
    "batch": None,
    "updates-per-sample": 1.0,
    "threads": None,
    "dtype": "float32",
    "distribution": "uniform",
}
MAPPING: dict[str, Any] = {"objective": "ratio", "fix": [], "exclude": [], "free": [], "epsilon": None}
"""Flags of ``recommend`` that only one of its two questions has, with their defaults."""


def main(arguments: list[str] | None = None) -> int:
    """Answer; returns the exit code: 0 answered, 2 cannot be answered (one sentence says why)."""
    options = _parser().parse_args(arguments)
    return _COMMANDS[options.command](options)


def _recommend(options: argparse.Namespace) -> int:
    """About a mapping where a workload is named, else about a tree."""
    if options.workload or options.platform:
        if options.workload and options.platform:
            return _misplaced(options, TREE, "a question about a tree") or solver_command.run(options)
        missing = "--platform" if options.workload else "--workload"
        print(f"error: a mapping needs --platform and --workload, {missing} is missing", file=sys.stderr)
        return 2
    if options.capacity is None or options.batch is None:
        print("error: ask with --platform and --workload, or about a tree with --capacity and --batch", file=sys.stderr)
        return 2
    if code := _misplaced(options, MAPPING, "a question about a mapping, with --platform and --workload"):
        return code
    try:
        given = recommend(
            options.capacity,
            options.batch,
            options.updates_per_sample,
            options.threads,
            options.dtype,
            options.distribution,
            options.results,
            options.machine,
        )
    except (RecordError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(given.to_dict()) if options.json else text(given))
    return 0


def _misplaced(options: argparse.Namespace, flags: Mapping[str, Any], question: str) -> int:
    """2, and a sentence, where a flag of the other question is given; nothing is passed over in silence."""
    for flag, default in flags.items():
        given = getattr(options, flag.replace("-", "_"))
        if given != default:
            hint = f"; write --fix {flag}={given}" if flag in FIX else ""
            print(f"error: --{flag} is of {question}{hint}", file=sys.stderr)
            return 2
    return 0


def text(given: Recommendation) -> str:
    """The answer for a reader."""
    question, choice = given.question, given.choice
    whose = [*textwrap.wrap(given.machine_note, WIDTH, break_on_hyphens=False), ""]
    lines = [
        *(whose if given.machine_note else []),
        f"For N = {question.capacity:,} {question.dtype} leaves, batches of {question.batch:,}, "
        f"{plural(question.updates_per_sample, 'update')} a draw, up to {plural(question.threads, 'thread')}:",
        "",
        f"  {choice.configuration}",
        f"  {_time(choice, question.batch)}",
    ]
    if given.ties:
        lines.append(f"  ties with {'; '.join(str(tie.configuration) for tie in given.ties)}")
    lines.append(
        f"  regret at most {given.regret_95:.0%} at 95 % confidence; best with probability {given.probability_best:.0%}"
    )
    if given.runner_up:
        lines.append(f"  runner-up: {given.runner_up.configuration}, {_time(given.runner_up, question.batch)}")
    if given.modeled:
        micro, model = 1e6, given.modeled
        lines.append(
            f"  modeled, not timed: {model.configuration} would take {model.seconds * micro:,.2f} us a step, and "
            f"{model.transfer_seconds * micro:,.2f} us for a host to move its batches; it fits {model.place}"
        )
    lines += [f"  note: {note}" for note in given.notes]
    lines += [
        f"  rests on {len(given.rests_on)} cells of that configuration, measured on machine {given.machine}"
        f"{f' (records in {given.results})' if given.results else ''}, where the same cell measured twice differs by "
        f"up to {given.noise_floor:.0%}:",
    ]
    shown = given.rests_on[:MOST_CELLS_SHOWN]
    lines += [
        f"    {cell['op']:7} N={cell['capacity']:>10,} B={cell['batch']:>6,} {cell['median_seconds'] * 1e6:12.2f} us "
        f"{cell['source']} at {(cell['commit'] or 'no commit')[:8]}, {cell['utc']}"
        for cell in shown
    ]
    if len(given.rests_on) > len(shown):
        lines.append(f"    and {len(given.rests_on) - len(shown)} more, see --json")
    return "\n".join(lines)


def _time(estimate: Estimate, batch: int) -> str:
    micro = 1e6
    return (
        f"{estimate.seconds * micro:,.2f} us a step [{estimate.low_seconds * micro:,.2f}, "
        f"{estimate.high_seconds * micro:,.2f}], {estimate.seconds / batch * 1e9:,.1f} ns an element, {estimate.basis}"
    )


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m dse", description=__doc__, formatter_class=raw)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    ask = commands.add_parser(
        "recommend",
        help="which mapping for a platform and a workload, or which tree for N and B",
        description=f"{solver_command.ABOUT}\n\n"
        "Without a workload, --capacity and --batch ask which tree, which K and how many threads:\n"
        "a step is one draw of B leaves and R updates of B leaves, answered from the records in results/.",
        formatter_class=raw,
    )
    solver_command.add_question(ask, needs_platform=False)
    ask.add_argument("--capacity", type=count, metavar="N", help="leaves of a tree")
    ask.add_argument("--batch", type=count, metavar="B", help="elements of a call of a tree")
    ask.add_argument(
        "--updates-per-sample", type=float, default=TREE["updates-per-sample"], metavar="R", help="default: %(default)s"
    )
    ask.add_argument("--threads", type=count, metavar="T", help="at most so many (default: the machine's cores)")
    ask.add_argument("--dtype", default=TREE["dtype"], help="of the leaves (default: %(default)s)")
    ask.add_argument("--distribution", default=TREE["distribution"], help="of the priorities (default: %(default)s)")
    ask.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")
    ask.add_argument("--json", action="store_true", help="print JSON instead of text")
    solver_command.add_to(commands)
    tuning_command.add_to(commands)
    platform_command.add_to(commands)
    fpga_command.add_to(commands)
    validate_command.add_to(commands)
    return parser


_COMMANDS = {
    "recommend": _recommend,
    "explain": solver_command.run,
    "what-if": solver_command.run,
    "adapt": tuning_command.run,
    "learners": tuning_command.run,
    "platform": platform_command.run,
    "fpga": fpga_command.run,
    "validate": validate_command.run,
}


if __name__ == "__main__":
    sys.exit(answering(main))
