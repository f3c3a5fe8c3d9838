"""Were recommendations right? Measure the candidates of a file of questions, which holds their answers already.

`python -m dse validate --ask` writes such a file; by default it is the newest of this machine that is not measured to
the end. Records are kept apart from the sweeps, and no answer rests on them. A candidate that cannot be made or filled
here is a record with the reason. Interrupt it as you like: the same command goes on where it stopped, and what has a
record is never measured again. Then `python -m dse validate` compares.
"""

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dse import platforms
from dse.records import RecordError, read_file

from .arguments import add_common, add_numbers, parser_of
from .cases import Case
from .presets import groups
from .run import Stamp, Tally, report
from .sentinels import Sentinels
from .sweep import SweepMethod, sweep

PRIMITIVE, ASK = "question", "python -m dse validate --ask"
BUDGET_SECONDS = 0.12
LONGEST_FILL_SECONDS = 2.0  # of a tree: what takes longer is no rival at that N, and there are dozens of each question
LEAF_BYTES = 24  # of a tree and its inputs, at most
MEMORY_SHARE = 4  # trees that are timed in turns take at most one in so many bytes of the memory


@dataclass(frozen=True)
class Asked:
    """A file of questions: those about trees and about loops that were answered, as plain values."""

    path: Path
    plain: dict[str, Any]

    @property
    def records(self) -> Path:
        """The file that holds what was measured of them."""
        return self.path.with_suffix(".jsonl")

    def answered(self, side: str) -> list[dict[str, Any]]:
        """List the questions of a side, "trees" or "loops", that have an answer."""
        return [one for one in self.plain[side] if "reason" not in one]

    def done(self) -> set[str]:
        """Return the cells that have a record, whatever the outcome."""
        return {record.cell for record in read_file(self.records)} if self.records.exists() else set()


def read(path: Path) -> Asked:
    """Read a file of questions. RecordError for anything else, and for the questions of another machine."""
    try:
        asked = Asked(path, json.loads(path.read_text()))
        machine = asked.plain["machine"]
        cases(asked)
        asked.answered("loops")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: no file of questions ({error}); write one with: {ASK}") from None
    if machine != (here := platforms.fingerprint()["key"]):
        raise RecordError(f"{path}: asked of machine {machine}, and this is {here}; write one for it with: {ASK}")
    return asked


def chosen(path: Path | None, results: Path, is_left: Callable[[Asked], bool]) -> Asked:
    """Read the file that was named, or this machine's newest one with questions left. RecordError without any."""
    if path is not None:
        return read(path)
    folder = results / str(platforms.fingerprint()["key"])
    known = [read(one) for one in folder.glob("questions-*.json") if "answered_afterwards_by" not in one.read_text()]
    for asked in sorted(known, key=lambda one: str(one.plain.get("utc")), reverse=True):
        if is_left(asked):
            return asked
    raise RecordError(f"{folder}: no file of questions that is not measured to the end; write one with: {ASK}")


def cases(asked: Asked) -> list[Case]:
    """Return a draw and an update of every candidate of every question about a tree."""
    return [
        Case(
            op=op,
            options=dict(candidate["configuration"]["options"]),
            **{name: one["question"][name] for name in ("capacity", "batch", "dtype", "distribution")},
            **{name: candidate["configuration"][name] for name in ("contestant", "fanout", "threads")},
        )
        for one in asked.answered("trees")
        for candidate in one["candidates"]
        for op in ("draw", "update")
    ]


def fitting(cells: Sequence[Case], most_bytes: float) -> Iterator[list[Case]]:
    """Split a group of cells of one N, which are timed in turns, into as few as fit the memory."""
    size = max(2, int(most_bytes / (LEAF_BYTES * cells[0].capacity)))
    pieces = -(-len(cells) // size)
    yield from (list(cells[first::pieces]) for first in range(pieces))


def measure(asked: Asked, budget_seconds: float, bar: bool) -> Tally:
    """Measure the cells of a file that have no record yet; the tally counts the others as found done."""
    stamp, done, every = Stamp.of_this_run(PRIMITIVE), asked.done(), groups(cases(asked))
    todo = [[case for case in group if stamp.cell(case) not in done] for group in every]
    most = float(platforms.fingerprint()["memory_bytes"] or 1 << 32) / MEMORY_SHARE
    pieces = [piece for group in todo if group for piece in fitting(group, most)]
    how: dict[str, Any] = {
        "with_floor": False,
        "method": SweepMethod(PRIMITIVE, longest_fill_seconds=LONGEST_FILL_SECONDS),
        "sentinels": Sentinels(),
    }
    tally = sweep(pieces, asked.records, budget_seconds, bar=bar, **how)
    return with_done(tally, sum(map(len, every)) - sum(map(len, todo)))


def with_done(tally: Tally, done: int) -> Tally:
    """Count cells that were measured before."""
    return dataclasses.replace(tally, cells=tally.cells + done, resumed=tally.resumed + done)


def _is_left(asked: Asked) -> bool:
    stamp, done = Stamp.of_this_run(PRIMITIVE), asked.done()
    return any(stamp.cell(case) not in done for case in cases(asked))


def main(arguments: list[str] | None = None) -> int:
    """Measure; return the exit code 0. RecordError for a file that holds no questions, and where there is none."""
    options = _parser().parse_args(arguments)
    asked = chosen(options.file, options.results, _is_left)
    tally = measure(asked, options.budget, bar=not options.json)
    return report(tally, asked.records, options.json)


def add_file(parser: argparse.ArgumentParser) -> None:
    """Add the file of questions."""
    text = "of questions, as `python -m dse validate --ask` wrote it (default: the newest one with questions left)"
    parser.add_argument("file", nargs="?", type=Path, help=text)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("questions", __doc__, "")
    add_file(parser)
    add_numbers(parser, budget=(BUDGET_SECONDS, "seconds of sampling a cell"))
    return add_common(parser)
