"""What times can one give of one's own, and what does a file of them say?

Any part on any device, measured, read in a paper or guessed, is looked up before records and models:

  python -m dse times --example > mine.csv
  python -m dse platform estimate u200 --workload hopper_ddpg --times mine.csv
  python -m dse recommend --platform u200 --workload hopper_ddpg --times mine.csv

A file is CSV, a line a time; or TOML, whose tables [[time]] have the columns as keys, and where source, note, factor
and batch above them hold for all.

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
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..times.own import FACTORS
from ..times.own_file import COUNTS, KEYS, SOURCES, TIMES
from .options import add_command

EXAMPLE = Path(__file__).with_name("times_example.csv")


def add_to(commands: Any) -> None:
    """Add ``times`` to the commands of a parser."""
    factors = [f"{factor:g} if {source}" for source, factor in FACTORS.items()]
    lists: dict[str, Iterable[str]] = {"KEYS": KEYS, "COUNTS": COUNTS, "SOURCES": SOURCES, "FACTORS": factors}
    about = (__doc__ or "").format(TIMES="/".join(TIMES), **{name: ", ".join(words) for name, words in lists.items()})
    summary = "times of one's own: an example of a file"
    parser = add_command(commands, "times", summary, about, "times --example")
    parser.add_argument("--example", action="store_true", required=True, help="print a file: six devices, four parts")


def run(options: argparse.Namespace) -> int:
    """Print the example; returns the exit code 0."""
    print(EXAMPLE.read_text(encoding="utf-8"), end="")
    return 0
