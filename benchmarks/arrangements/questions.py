"""How fast is each candidate of a file of questions about arrangements, which holds the predictions already?

`python -m dse validate --ask --loops` writes such a file; by default it is the newest of this machine with candidates
left. Each runs once, from a full replay on, those of a question in random order after each other. No prediction rests
on these records. Interrupt it as you like: the same command resumes where it stopped. Then
`python -m dse validate --loops` compares.
"""

import argparse
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dse.questions import Asked, Row, is_measured
from dse.records import Measurement

from ..arguments import add_common, add_numbers, parser_of
from ..profile import questions as loops
from ..profile.command import workload_of
from ..questions import chosen, is_sentinel, keeping, with_done
from ..run import Stamp, Tally, report, run
from ..sentinels import Sentinels
from .command import records, told
from .setting import RATE, Setting

FLAG = "--arrangements"
SIDE, QUESTION, ASK = "arrangements", "loop_question", "python -m dse validate --ask --loops"


def is_file(path: Path) -> bool:
    """Tell whether a file's name is one of questions about arrangements."""
    return path.name.startswith(f"{SIDE}-") and path.suffix == ".json"


def measure(asked: Asked, seconds: float, warm_seconds: float, bar: bool) -> Tally:
    """Measure the candidates of a file that were not measured yet; the tally counts the others as found done."""
    stamp, known = Stamp.of_this_run(QUESTION), functools.cache(lambda name: workload_of(name)[0])
    rng, groups, rows = np.random.default_rng(asked.head["seed"]), list[list[Setting]](), list[tuple[Row, list[str]]]()
    for question in asked.questions(SIDE):
        todo = [question[place] for place in rng.permutation(len(question)) if not is_measured(question[place])]
        groups.append([Setting.of(known(row["workload"]), row) for row in todo])
        rows += [(row, [stamp.cell(one.cell())]) for row, one in zip(todo, groups[-1], strict=True)]

    def each(group: list[Setting]) -> Iterator[Measurement]:
        for setting in group:
            yield from (one for one in records(stamp, setting, seconds, warm_seconds) if one.op == RATE)

    how: dict[str, Any] = {"name": lambda one: stamp.cell(one.cell()), "told": told, "unit": "candidate", "bar": bar}
    kept = keeping(asked, rows, each, lambda row, seconds: 1 / seconds)
    tally = run(groups, asked.records, stamp, kept, **how, sentinels=Sentinels(), keeps=is_sentinel)
    return with_done(tally, len(asked.rows) - len(rows))


def main(arguments: list[str] | None = None) -> int:
    """Measure serial loops, or arrangements where those are asked for; return the exit code. RecordError if none are
    asked about."""
    words = sys.argv[1:] if arguments is None else arguments
    if FLAG not in words and not any(is_file(Path(word)) for word in words):
        return loops.main(words)
    options = _parser().parse_args(words)
    asked = chosen(options.file, options.results, SIDE, ASK)
    tally = measure(asked, options.seconds, options.warm, bar=not options.json)
    return report(tally, asked.table, options.json)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("loop-questions", __doc__, FLAG)
    parser.add_argument("file", nargs="?", type=Path, help="of questions (default: the newest with candidates left)")
    parser.add_argument(FLAG, action="store_true", help="those about arrangements, not about serial loops alone")
    add_numbers(parser, seconds=(3.0, "seconds of timing a run"), warm=(0.5, "seconds before them"))
    return add_common(parser)
