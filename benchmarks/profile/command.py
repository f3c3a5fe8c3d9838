"""Time the primitives of a training system: environment, inference, gradient steps, tree, storage, weights.

Each alone, over batches and cores, and the ones that share cores in a loop beside each other on the same core. Every
process is kept on the cores its record names. Interrupt it as you like: the same command goes on where it stopped. The
records go to results/<machine>/profile-<workload>-<preset>.jsonl; `python -m reports` draws their curves.
"""

import argparse
import importlib.util
from contextlib import ExitStack
from pathlib import Path

from dse.records import RecordError
from impls.training import TrainingError, Workload, load, path_of

from ..arguments import DEFAULT, add_common, parser_of
from ..clock import ALL_CPUS
from ..run import file_of, report
from .cells import PARTS, PRESETS, groups
from .measure import Team, profile

PACKAGES = ("torch", "gymnasium")


def main(arguments: list[str] | None = None) -> int:
    """Measure a workload; returns the exit code. RecordError with one sentence where that cannot be done."""
    options = _parser().parse_args(arguments)
    workload, where = opened(options.workload)
    preset = PRESETS[options.preset]
    path = file_of(options.results, f"profile-{workload.name}-{options.preset}.jsonl")
    with ExitStack() as stack:
        cells = groups(workload, preset, len(ALL_CPUS) or 1)
        tally = profile(Team(stack, where, preset), cells, path, options.seed, bar=not options.json)
    return report(tally, path, options.json)


def opened(name: str) -> tuple[Workload, Path]:
    """A workload and its file. RecordError if there is none, and for a package that none can do without."""
    try:
        workload, where = load(name), path_of(name).resolve()
    except TrainingError as error:
        raise RecordError(str(error)) from None
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise RecordError(f"this needs the package {package}; install the extra with: pip install '.[train]'")
    return workload, where


def _parser() -> argparse.ArgumentParser:
    told = "what is timed:\n" + "".join(f"  {name:23}{text}\n" for name, text in PARTS.items())
    parser = parser_of("profile", __doc__, epilog=told)
    parser.add_argument("--workload", required=True, metavar="NAME|FILE", help="see: python -m impls.training list")
    parser.add_argument("--preset", choices=PRESETS, default="quick", help=DEFAULT)
    return add_common(parser, seed_of="the order of samples")
