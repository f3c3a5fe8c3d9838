"""How fast and how exact are other libraries' sum trees, compared with ours on the same cases?

One process a library, one thread each, all on one CPU, taking turns sample by sample. A library that is not installed,
or a cell that it cannot do, is a record with the reason. ``make peers`` installs the libraries into an environment of
their own and runs this; records go to results/<machine>/peers.jsonl, the checks next to them. Interrupt it as you like:
the same command resumes where it stopped.
"""

import dataclasses
import json
import math
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import impls
from dse import accuracy, platforms
from dse.accuracy import ACCURACY_FILE, Accuracy
from dse.records import Record

from ..arguments import add_list, add_numbers, add_python, among, at_least
from ..cases import Case
from ..clock import Clock
from ..libraries.base import Tree, roles, tree_names
from ..run import Stamp
from ..timing import Timing
from ..topic import Topic
from ..workers import Pool, Untimed, WorkerClock, has_libraries

PEER, AGAIN, SHARED = "peer", "peer_again", "peer_shared"
OURS: tuple[dict[str, Any], ...] = (
    {"contestant": "numba"},
    {"contestant": "numba", "dtype": "float64"},
    {"contestant": "numba", "options": {"validate": False}},
    {"contestant": "numpy"},
    {"contestant": "cumsum"},
    {"contestant": "python"},
)
CAPACITY, BATCHES = 1_000_000, (1, 32, 256, 1_024, 16_384)
CAPACITIES, BATCH = (1 << 10, 1 << 14, 1 << 17, 1 << 20), 128  # those of [Zhang2021, Fig. 8]
SHARED_BATCH, CALLERS = 1_024, (1, 2)
SAMPLE_SECONDS = 0.05  # long enough for threads to start, and for a tree to find the cache as its own calls leave it
LONGEST_CALL_SECONDS = 2.0


def implementations(chosen: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return each implementation's fields of a case: those of ours that are usual, then every library in each format;
    or the chosen, of which each of ours may be one.
    """
    theirs = [
        {"contestant": name, "dtype": dtype, "fanout": kind.fanout}
        for name, kind in _libraries().items()
        for dtype in kind.dtypes
    ]
    usual = {fields["contestant"] for fields in OURS}
    others = [{"contestant": name} for name in chosen or () if name in impls.names() and name not in usual]
    return [fields for fields in [*OURS, *others, *theirs] if not chosen or fields["contestant"] in chosen]


def _libraries() -> dict[str, type[Tree]]:
    return {name: roles(Tree)[name] for name in tree_names()}


@dataclasses.dataclass(frozen=True)
class Cell(Case):
    """A case of an implementation, under the names of a record; ``threads`` of Python's share a tree of ``SHARED``."""

    primitive: str = PEER

    @property
    def member(self) -> tuple[str, ...]:
        """Return what has a process of its own: an implementation as it is set, and the A/A twin of the first."""
        return self.contestant, self.dtype, str(self.options), str(self.primitive == AGAIN)


class Peers(Topic):
    """Draws and updates of every tree, in processes of their own."""

    primitive, module = PEER, "benchmarks.worker"
    example = "--contestants numba,tianshou,torchrl"
    seed_of = "inputs and order"

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        """Add the implementations, the sizes, the checks and the list of libraries."""
        known = among("implementation", *impls.names(), *_libraries())
        chosen = "libraries, or trees of ours (default: all libraries and usual trees)"
        add_list(parser, "contestants", known, help=chosen)
        add_list(parser, "batches", at_least(1, "B"), default=BATCHES, help="elements of a call B, at --capacity")
        add_list(parser, "capacities", at_least(1, "N"), default=CAPACITIES, help=f"leaves N, at B = {BATCH}")
        seconds = (0.6, "seconds of sampling a cell")
        add_numbers(parser, capacity=(CAPACITY, "leaves N over the batches"), budget=seconds)
        add_python(parser)
        parser.add_argument("--no-accuracy", dest="accuracy", action="store_false", help="leave the checks out")
        parser.add_argument("--list", action="store_true", help="only list the libraries, their rules and limits")

    def __init__(self, options: Namespace) -> None:
        super().__init__(options)
        has_libraries(options, is_needed=not options.list)
        self.asked, self.libraries = {"budget": options.budget, "seed": options.seed}, [options.python]
        self.budget = options.budget

    def print_only(self) -> bool:
        """Print what each adapter states of its library, where that is asked for."""
        rows = [
            {"name": name, "package": kind.package, "rule": kind.rule, "sums": "/".join(kind.dtypes)}
            | {"limits": kind.limits}
            for name, kind in _libraries().items()
        ]
        if self.options.list and self.options.json:
            print(json.dumps(rows))
        elif self.options.list:
            for row in rows:
                print(f"{row['name']:10} {row['sums']:16} {row['rule']}")
                print("".join(f"{'':27} {limit}\n" for limit in row["limits"]), end="")
        return bool(self.options.list)

    def cells(self) -> list[list[Cell]]:
        """Return a group for each shape and operation: all implementations, and the twin of the first. In the last
        group several threads share each tree."""
        options, members = self.options, implementations(self.options.contestants)
        shapes = [(options.capacity, batch) for batch in options.batches]
        shapes += [(capacity, BATCH) for capacity in options.capacities]
        once = [*members, members[0] | {"primitive": AGAIN}]
        groups = [
            [Cell(op=op, capacity=capacity, batch=batch, **fields) for fields in once]
            for capacity, batch in shapes
            for op in ("draw", "update")
        ]
        shape: dict[str, Any] = {"capacity": options.capacity, "batch": SHARED_BATCH, "primitive": SHARED}
        shared = [Cell(op="draw", threads=count, **shape, **fields) for fields in members for count in CALLERS]
        return [*groups, shared]

    def stamp_of(self, cell: Cell) -> Stamp:
        """Return the stamp of a cell's primitive."""
        return dataclasses.replace(super().stamp_of(cell), primitive=cell.primitive)

    def clock(self, cell: Cell, stack: ExitStack) -> Clock | Untimed:
        """Return the clock of a cell in the process of its implementation."""
        pool, case = self._open(cell), dataclasses.asdict(cell) | {"threads": 1}
        is_shared = case.pop("primitive") == SHARED
        how = {"callers": cell.threads, "cpus": max(CALLERS)} if is_shared else {}
        how |= {"seed": self.options.seed, "least_seconds": SAMPLE_SECONDS}
        clock = pool.prepare(cell.member, case=case, **how)
        if isinstance(clock, WorkerClock) and (seconds := clock.sample()) > LONGEST_CALL_SECONDS:
            return Untimed("skipped", f"one call takes {seconds:.2g} s")
        return clock

    def _open(self, cell: Cell) -> Pool:
        """Return the pool, in which the process of a cell's implementation is open."""
        assert self.pool is not None
        kind = _libraries().get(cell.contestant)
        asked = {"packages": ["numpy", "numba", *([kind.package] if kind else [])]}
        self.packages[cell.contestant] = self.pool.open(cell.member, self.options.python, "versions", **asked)
        return self.pool

    def twin(self, cell: Cell, stack: ExitStack) -> None:
        """Return no clock: the twins are cells."""

    def explain(self, cell: Cell, clock: Clock | None, timing: Timing) -> str | None:
        """Return the limits that a library's adapter states."""
        kind = _libraries().get(cell.contestant)
        return "; ".join(kind.limits) or None if kind else None

    def finish(self) -> None:
        """Check how exact every tree is; write that next to the records."""
        if self.options.accuracy:
            accuracy.write(self._checks(), self.path.with_name(ACCURACY_FILE))

    def _checks(self) -> Iterator[Accuracy]:
        """Yield the checks of each tree that is available; a tree with options is the same tree again."""
        for fields in implementations(self.options.contestants):
            cell = Cell(op="draw", capacity=1, batch=1, **fields)
            if cell.options:
                continue
            asked = {"contestant": cell.contestant, "dtype": cell.dtype, "seed": self.options.seed}
            answer = self._open(cell).ask(cell.member, "accuracy", **asked)
            stamp = self.stamp_of(cell)
            common = {name: getattr(stamp, name) for name in ("machine", "commit", "dirty", "command")}
            yield from (Accuracy(**check, **common, utc=platforms.now()) for check in answer.get("checks", ()))

    def summarize(self, found: Sequence[Record]) -> tuple[dict[str, Any], list[str]]:
        """Return the nanoseconds per element of draw + update with N leaves by implementation and batch, and the
        reasons of those without a time; a line for each."""
        rows: dict[str, dict[int, float]] = {}
        absent: dict[str, str] = {}
        for record in (record for record in found if record.primitive == PEER):
            unchecked = ["unchecked"] if "validate" in record.options else []
            label = " ".join([record.contestant, record.dtype, *unchecked])
            if record.median_seconds is None:
                absent[label] = record.reason or record.status
            elif record.capacity == self.options.capacity:
                row = rows.setdefault(label, {})
                row[record.batch] = row.get(record.batch, 0.0) + 1e9 * record.seconds / record.batch
        batches = self.options.batches
        lines = [f"{'ns per element, draw + update':32}" + "".join(f"{f'B={batch:,}':>12}" for batch in batches)]
        for label, row in sorted(rows.items(), key=lambda item: item[1].get(1_024, math.inf)):
            lines.append(f"{label:32}" + "".join(f"{row.get(batch, math.nan):12,.1f}" for batch in batches))
        lines += [f"not timed, {label}: {reason}" for label, reason in sorted(absent.items())]
        lines += [f"checks: {self.path.with_name(ACCURACY_FILE)}", "the whole table: python -m reports"]
        return {"ns_per_element": rows, "absent": absent}, lines
