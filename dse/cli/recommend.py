"""``python -m dse recommend``: which mapping where a workload is named, else which tree."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from impls.terminal import count

from ..mapping.question import FIX
from ..recommend import recommend
from ..records import RecordError
from . import mapping
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
"""Flags of ``recommend`` that only one of its two questions has, with their defaults."""


def add_to(commands: Any) -> None:
    """``recommend``."""
    raw = argparse.RawDescriptionHelpFormatter
    ask = commands.add_parser(
        "recommend",
        help="which mapping for a platform and a workload, or which tree for N and B",
        description=f"{mapping.ABOUT}\n\n"
        "Without a workload, --capacity and --batch ask which tree, which K and how many threads:\n"
        "a step is one draw of B leaves and R updates of B leaves, answered from the records in results/.",
        formatter_class=raw,
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
    ask.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")
    ask.add_argument("--json", action="store_true", help="print JSON instead of text")


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
