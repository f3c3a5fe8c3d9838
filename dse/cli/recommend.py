"""``python -m dse recommend``: which mapping where a workload is named, else which tree."""

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from impls.terminal import count

from ..mapping.question import FIX
from ..recommend import recommend
from ..records import RecordError
from . import mapping
from .text import add_command
from .tree_text import text

TREE = {
    "capacity": None,
    "batch": None,
    "updates-per-sample": 1.0,
    "threads": None,
    "dtype": "float32",
    "distribution": "uniform",
}
MAPPING: dict[str, Any] = {"objective": "ratio", "fix": [], "exclude": [], "free": [], "epsilon": None}
"""Defaults of the flags that only one of the two questions of ``recommend`` has."""


def add_to(commands: Any) -> None:
    """Add ``recommend`` to the commands of a parser."""
    ask = add_command(
        commands,
        "recommend",
        "which mapping for a platform and a workload, or which tree for N and B",
        f"Which mapping of a workload is the best on a platform; or which tree for N leaves and batches of B?\n\n"
        f"{mapping.ABOUT}\n\n"
        "Without a workload, --capacity and --batch ask which implementation of a tree, which K and how many threads:\n"
        "a step samples B leaves once and updates B leaves R times, answered from the records in results/.",
        "recommend --platform u200 --workload hopper_ddpg",
    )
    mapping.add_question(ask, needs_platform=False)
    ask.add_argument("--capacity", type=count, metavar="N", help="leaves of a tree")
    ask.add_argument("--batch", type=count, metavar="B", help="elements of a call of a tree")
    ask.add_argument(
        "--updates-per-sample", type=float, default=TREE["updates-per-sample"], metavar="R", help="default: %(default)s"
    )
    ask.add_argument("--threads", type=count, metavar="T", help="at most so many (default: the machine's cores)")
    ask.add_argument("--dtype", default=TREE["dtype"], help="of the leaves (default: %(default)s)")
    ask.add_argument("--distribution", default=TREE["distribution"], help="of the priorities (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Answer; returns the exit code: 0 answered, 1 nothing fits, 2 cannot be answered (one sentence says why)."""
    if options.workload or options.platform:
        if options.workload and options.platform:
            return _misplaced(options, TREE, "a question about a tree") or mapping.run(options)
        missing = "--platform" if options.workload else "--workload"
        print(f"error: a mapping needs --platform and --workload, {missing} is missing", file=sys.stderr)
        return 2
    if options.capacity is None or options.batch is None:
        print("error: ask with --platform and --workload, or about a tree with --capacity and --batch", file=sys.stderr)
        return 2
    if code := _misplaced(options, MAPPING, "a question about a mapping, with --platform and --workload"):
        return code
    try:
        answer = recommend(
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
    print(json.dumps(answer.to_dict()) if options.json else text(answer))
    return 0


def _misplaced(options: argparse.Namespace, flags: Mapping[str, Any], question: str) -> int:
    """Return 2, with a sentence, where a flag of the other question is given; nothing is passed over in silence."""
    for flag, default in flags.items():
        value = getattr(options, flag.replace("-", "_"))
        if value != default:
            hint = f"; write --fix {flag}={value}" if flag in FIX else ""
            print(f"error: --{flag} is of {question}{hint}", file=sys.stderr)
            return 2
    return 0
