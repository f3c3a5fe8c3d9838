"""Were recommendations right? Measure the candidates of a file of questions, which holds their answers already.

`python -m dse validate --ask` writes such a file; by default it is the newest of this machine that is not measured to
the end. What is measured goes into the file's table, and no answer rests on it. A candidate that cannot be made or
filled here keeps the reason. Interrupt it as you like: the same command resumes where it stopped, and what was measured
is never measured again. Then `python -m dse validate` compares.
"""

import argparse
import dataclasses
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dse import platforms
from dse.questions import Asked, Row, fill, is_measured
from dse.records import SENTINEL, Measurement, RecordError, in_order
from impls.writing import list_files

from .arguments import add_common, add_numbers, parser_of
from .cases import Case
from .presets import groups
from .run import Stamp, Tally, report, run
from .sentinels import Sentinels
from .sweep import SweepMethod, measured, start_threads

PRIMITIVE, ASK = "question", "python -m dse validate --ask"
BUDGET_SECONDS = 0.12
LONGEST_FILL_SECONDS = 2.0  # of a tree: what takes longer is no rival at that N, and there are dozens of each question
LEAF_BYTES = 24  # of a tree and its inputs, at most
MEMORY_SHARE = 4  # trees that are timed in alternation take at most a fourth of the memory


OPS = ("draw", "update")  # of a step
Cell = TypeVar("Cell")


def read(path: Path, ask: str = ASK) -> Asked:
    """Read a file of questions. RecordError for anything else, and for the questions of another machine."""
    try:
        asked = Asked.read(path)
        machine = asked.head["machine"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: no file of questions ({error}); write one with: {ask}") from None
    if machine != (here := platforms.fingerprint()["key"]):
        raise RecordError(f"{path}: asked of machine {machine}, and this is {here}; write one for it with: {ask}")
    return asked


def chosen(path: Path | None, results: Path, side: str, ask: str = ASK) -> Asked:
    """Read the file that was named, or this machine's newest one with candidates left. RecordError without any."""
    if path is not None:
        return read(path, ask)
    folder = results / str(platforms.fingerprint()["key"])
    name = side if side == "arrangements" else "questions"
    known = [read(one, ask) for one in list_files(folder, f"{name}-*.json")]
    for asked in reversed(in_order(known, lambda one: str(one.head.get("utc")))):
        if left(asked, side):
            return asked
    raise RecordError(f"{folder}: no file of questions that is not measured to the end; write one with: {ask}")


def asked_about(asked: Asked, side: str) -> list[Row]:
    """List the candidates of a side to measure: those of questions that have an answer."""
    return [row for rows in asked.answered(side) for row in rows]


def left(asked: Asked, side: str) -> list[Row]:
    """List the candidates of a side that were not measured."""
    return [row for row in asked_about(asked, side) if not is_measured(row)]


def cases(row: Row) -> list[Case]:
    """Return a draw and an update of a candidate of a question about a tree."""
    names = ("capacity", "batch", "dtype", "distribution", "contestant", "fanout", "threads")
    return [Case(op=op, options=dict(row["options"]), **{name: row[name] for name in names}) for op in OPS]


def keeping(
    asked: Asked,
    rows: Sequence[tuple[Row, Sequence[str]]],
    measure: Callable[[list[Cell]], Iterable[Measurement]],
    of_seconds: Callable[..., float],
) -> Callable[[list[Cell]], Iterator[Measurement]]:
    """Return ``measure`` such that what a group took is in the table before the next group is measured.

    ``rows``: each row with the ``cell`` of its records. ``of_seconds``: what a table has of a row and these seconds.
    """

    def each(group: list[Cell]) -> Iterator[Measurement]:
        found: dict[str, Measurement] = {}
        try:
            for record in measure(group):
                found[record.cell] = record
                yield record
        finally:
            for row, cells in rows:
                if all(cell in found for cell in cells):
                    fill(row, [found[cell] for cell in cells], of_seconds)
            asked.save()

    return each


def _step(row: Row, draw: float, update: float) -> float:
    return draw + float(row["updates_per_sample"]) * update


def is_sentinel(record: Measurement) -> bool:
    """Tell whether a record is kept with the table."""
    return record.primitive == SENTINEL


def fitting(cells: Sequence[Case], most_bytes: float) -> Iterator[list[Case]]:
    """Split a group of cells of one N, which are timed in alternation, into as few as fit the memory."""
    size = max(2, int(most_bytes / (LEAF_BYTES * cells[0].capacity)))
    pieces = -(-len(cells) // size)
    yield from (list(cells[first::pieces]) for first in range(pieces))


def measure(asked: Asked, budget_seconds: float, bar: bool) -> Tally:
    """Measure the candidates of a file that were not measured yet; the tally counts the others as found done."""
    stamp, method = Stamp.of_this_run(PRIMITIVE), SweepMethod(PRIMITIVE, longest_fill_seconds=LONGEST_FILL_SECONDS)
    todo = [(row, cases(row)) for row in left(asked, "trees")]
    most = float(platforms.fingerprint()["memory_bytes"] or 1 << 32) / MEMORY_SHARE
    grouped = groups(case for _, pair in todo for case in pair)
    questions = list(map(operator.add, grouped[::2], grouped[1::2]))
    start_threads(questions)

    def each(question: list[Case]) -> Iterator[Measurement]:
        for piece in itertools.chain.from_iterable(fitting(group, most) for group in groups(question)):
            yield from measured(piece, stamp, budget_seconds, 0, method)

    kept = keeping(asked, [(row, list(map(stamp.cell, pair))) for row, pair in todo], each, _step)
    how: dict[str, Any] = {"unit": "cell", "bar": bar, "sentinels": Sentinels(), "keeps": is_sentinel}
    tally = run(questions, asked.records, stamp, kept, **how)
    return with_done(tally, len(OPS) * (len(asked_about(asked, "trees")) - len(todo)))


def with_done(tally: Tally, done: int) -> Tally:
    """Count cells that were measured before."""
    return dataclasses.replace(tally, cells=tally.cells + done, resumed=tally.resumed + done)


def main(arguments: list[str] | None = None) -> int:
    """Measure; return the exit code 0. RecordError for a file that holds no questions, and where there is none."""
    options = _parser().parse_args(arguments)
    asked = chosen(options.file, options.results, "trees")
    tally = measure(asked, options.budget, bar=not options.json)
    return report(tally, asked.table, options.json)


def add_file(parser: argparse.ArgumentParser) -> None:
    """Add the file of questions."""
    text = "of questions, as `python -m dse validate --ask` wrote it (default: the newest one with questions left)"
    parser.add_argument("file", nargs="?", type=Path, help=text)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("questions", __doc__, "")
    add_file(parser)
    add_numbers(parser, budget=(BUDGET_SECONDS, "seconds of sampling a cell"))
    return add_common(parser)
