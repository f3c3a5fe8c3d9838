"""How fast is each candidate of a file of questions about arrangements, which holds the predictions already?

`python -m dse validate --ask --loops` writes such a file; by default it is the newest of this machine with candidates
left. Each runs once, from a full replay on, those of a question in random order after each other. No prediction rests
on these records. Interrupt it as you like: the same command goes on where it stopped. Then
`python -m dse validate --loops` compares.
"""

import argparse
import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dse import platforms
from dse.records import Measurement, RecordError, read_file
from impls.training import Workload

from ..arguments import add_common, add_numbers, parser_of
from ..profile import questions as loops
from ..profile.command import workload_of
from ..questions import with_done
from ..run import Stamp, Tally, report, run
from ..sentinels import Sentinels
from .command import told
from .records import records
from .setting import RATE, Setting

FLAG = "--arrangements"
SIDE, QUESTION, ASK = "arrangements", "loop_question", "python -m dse validate --ask --loops"


def is_file(path: Path) -> bool:
    """Tell whether a file's name is one of questions about arrangements."""
    return path.name.startswith(f"{SIDE}-") and path.suffix == ".json"


def read(path: Path) -> list[list[Setting]]:
    """Read the settings of each question. RecordError for another file, and for the questions of another machine."""
    try:
        plain = json.loads(path.read_text())
        machine, known = plain["machine"], functools.cache(lambda name: workload_of(name)[0])
        groups = [[_setting(known(one["workload"]), one, shape) for shape in one["candidates"]] for one in plain[SIDE]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: no file of questions about arrangements ({error}); write one with: {ASK}") from None
    if machine != (here := platforms.fingerprint()["key"]):
        raise RecordError(f"{path}: asked of machine {machine}, and this is {here}; write one for it with: {ASK}")
    rng = np.random.default_rng(plain["seed"])
    return [[group[place] for place in rng.permutation(len(group))] for group in groups]


def _setting(workload: Workload, question: dict[str, Any], shape: dict[str, Any]) -> Setting:
    return Setting.of(workload, {**question, **shape})


def newest(results: Path) -> Path:
    """Find this machine's newest file that is not measured to the end. RecordError without any."""
    folder, stamp = results / str(platforms.fingerprint()["key"]), Stamp.of_this_run(QUESTION)
    paths = sorted(folder.glob(f"{SIDE}-*.json"), key=lambda path: str(json.loads(path.read_text()).get("utc")))
    for path in reversed(paths):
        if any(left(path, stamp)):
            return path
    raise RecordError(f"{folder}: no file of questions that is not measured to the end; write one with: {ASK}")


def left(path: Path, stamp: Stamp) -> list[list[Setting]]:
    """List the candidates of each question that have no record, whatever the commit."""
    measured = path.with_suffix(".jsonl")
    done = {record.cell for record in read_file(measured)} if measured.exists() else set()
    return [[one for one in group if stamp.cell(one.cell()) not in done] for group in read(path)]


def measure(path: Path, seconds: float, warm_seconds: float, bar: bool) -> Tally:
    """Measure the candidates of a file that have no record yet; the tally counts the others as found done."""
    stamp = Stamp.of_this_run(QUESTION)
    todo = [group for group in left(path, stamp) if group]

    def each(group: list[Setting]) -> Iterator[Measurement]:
        for setting in group:
            yield from (one for one in records(stamp, setting, seconds, warm_seconds) if one.op == RATE)

    how: dict[str, Any] = {"name": lambda one: stamp.cell(one.cell()), "told": told, "unit": "candidate", "bar": bar}
    tally = run(todo, path.with_suffix(".jsonl"), stamp, each, **how, sentinels=Sentinels())
    return with_done(tally, sum(map(len, read(path))) - sum(map(len, todo)))


def main(arguments: list[str] | None = None) -> int:
    """Measure serial loops, or arrangements where those are asked for; return the exit code. RecordError if none are
    asked about."""
    words = sys.argv[1:] if arguments is None else arguments
    if FLAG not in words and not any(is_file(Path(word)) for word in words):
        return loops.main(words)
    options = _parser().parse_args(words)
    path = options.file or newest(options.results)
    tally = measure(path, options.seconds, options.warm, bar=not options.json)
    return report(tally, path.with_suffix(".jsonl"), options.json)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("loop-questions", __doc__, FLAG)
    parser.add_argument("file", nargs="?", type=Path, help="of questions (default: the newest with candidates left)")
    parser.add_argument(FLAG, action="store_true", help="those about arrangements, not about serial loops alone")
    add_numbers(parser, seconds=(3.0, "seconds of timing a run"), warm=(0.5, "seconds before them"))
    return add_common(parser)
