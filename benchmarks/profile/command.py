"""Time the primitives of a training system: environment, inference, gradient steps, tree, storage, weights.

Each alone, over batches and cores, and the ones that share cores in a loop beside each other on the same core. Every
process is kept on the cores its record names. Interrupt it as you like: the same command goes on where it stopped. The
records go to results/<machine>/profile-<workload>-<preset>.jsonl; `python -m reports` draws their curves.
"""

import argparse
import importlib.util
import json
import sys
from contextlib import ExitStack
from pathlib import Path

from dse import platforms, stats
from dse.records import RecordError
from impls.terminal import Progress
from impls.training import TrainingError, load, path_of

from ..clock import ALL_CPUS
from ..sweep import Tally
from ..workers import WorkerError
from .cells import PARTS, PRESETS, groups
from .measure import Run, Team

PACKAGES = ("torch", "gymnasium")


def main(arguments: list[str] | None = None) -> int:
    """Measure a workload; returns the exit code. RecordError with one sentence where that cannot be done."""
    options = _parser().parse_args(arguments)
    try:
        workload, where = load(options.workload), path_of(options.workload).resolve()
    except TrainingError as error:
        raise RecordError(str(error)) from None
    need_packages()
    preset = PRESETS[options.preset]
    cells = groups(workload, preset, len(ALL_CPUS) or 1)
    folder = options.results / str(platforms.fingerprint()["key"])
    path = folder / f"profile-{workload.name}-{options.preset}.jsonl"
    count = sum(map(len, cells))
    with ExitStack() as stack, Progress(count, "cell", bar=not options.json) as progress:
        try:
            team = Team(stack, where, preset, Path(sys.executable))
            tally = Run.of(team, options.seed, progress.update).profile(cells, path)
        except WorkerError as error:
            raise RecordError(f"{error}; what is measured is kept: run it again to go on") from None
    return report(tally, count, path, options.json)


def need_packages() -> None:
    """RecordError for a package that no workload can do without."""
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise RecordError(f"this needs the package {package}; install the extra with: pip install '.[train]'")


def report(tally: Tally, count: int, path: Path, as_json: bool) -> int:
    """What a run did, in words or as JSON."""
    floor = stats.noise_floor(tally.pairs)
    if as_json:
        told = {"file": str(path), "cells": count, "found_done": tally.resumed, "measured_by_status": tally.by_status}
        print(json.dumps({**told, "left": tally.left, "noise_floor": floor, "aa_pairs": len(tally.pairs)}))
        return 0
    statuses = ", ".join(f"{number} {status}" for status, number in sorted(tally.by_status.items())) or "none"
    print(f"{count} cells: {tally.resumed} were there, measured now: {statuses}")
    if tally.left:
        print(f"{tally.left} cells are left for lack of time; the same command goes on with them")
    if tally.pairs:
        print(f"the same cell measured twice differs by up to {floor:.1%} ({len(tally.pairs)} A/A pairs)")
    print(f"records: {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks profile",
        description=__doc__,
        epilog="what is timed:\n" + "".join(f"  {name:23}{text}\n" for name, text in PARTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workload", required=True, metavar="NAME|FILE", help="see: python -m impls.training list")
    parser.add_argument("--preset", choices=PRESETS, default="quick", help="default: %(default)s")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the order of samples (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser
