"""How fast and how exact are other libraries' sum trees, compared with ours on the same cases?

One process a library, one thread each, all on one CPU, taking turns sample by sample. A library that is not installed,
or a cell that it cannot do, is a record with the reason. ``make peers`` installs the libraries into an environment of
their own and runs this; records go to results/<machine>/peers.jsonl, the checks next to them. Interrupt it as you like:
the same command resumes where it stopped.
"""

import argparse
import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import impls
from dse import accuracy, platforms
from dse.accuracy import ACCURACY_FILE, Accuracy
from dse.records import Record, RecordError, Status

from ..arguments import add_common, add_list, add_numbers, add_python, among, at_least, parser_of
from ..cases import Case
from ..libraries.base import Tree, roles, tree_names
from ..run import Stamp, Tally, file_of, latest, run, show
from ..sentinels import Sentinels
from ..timing import Timing, interleave
from ..workers import Untimed, Worker, WorkerClock, WorkerError, has_libraries

PEER, AGAIN, SHARED = "peer", "peer_again", "peer_shared"
FILE = "peers.jsonl"
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


def main(arguments: list[str] | None = None) -> int:
    """Measure, or list the libraries; return the exit code: 0 done, 1 where cells failed.

    RecordError where that cannot be done.
    """
    options = _parser().parse_args(arguments)
    if options.list:
        return _list(options.json)
    has_libraries(options, is_needed=True)
    path, asked = file_of(options, FILE), {"budget": options.budget, "seed": options.seed}
    stamp = Stamp.of_this_run(__name__, PEER, [options.python], asked)
    try:
        with ExitStack() as stack:
            opened = functools.partial(_opened, stack, options, stamp)
            members = [opened(fields) for fields in implementations(options.contestants)]
            tally = _run(members, opened(members[0].fields), path, options)
            if options.accuracy and not options.dry_run:
                checks = [check for member in members for check in member.checks(options.seed)]
                accuracy.write(checks, path.with_name(ACCURACY_FILE))
    except WorkerError as error:
        raise RecordError(
            f"{error}; what is measured is kept: run it again to continue, or choose with --contestants"
        ) from None
    found = _summary(latest(stamp.known(path)), options.capacity)
    return show(tally, path, options, found, _lines(found, path, options))


@dataclasses.dataclass(frozen=True)
class _Member:
    """An implementation, its process, and how its records are stamped."""

    fields: dict[str, Any]
    worker: Any  # None where cells are only listed
    stamp: Stamp
    callers: int = 0

    def case(self, op: str, capacity: int, batch: int) -> Case:
        """Return one of its cells."""
        return Case(op=op, capacity=capacity, batch=batch, **self.fields)

    def measuring(self, primitive: str, callers: int = 0) -> Self:
        """Return the member measuring a primitive, its tree called by ``callers`` threads (0: the process's own)."""
        return dataclasses.replace(self, stamp=dataclasses.replace(self.stamp, primitive=primitive), callers=callers)

    def clock(self, case: Case, seed: int) -> WorkerClock | Untimed:
        """Return a cell ready to be timed, or why it is not."""
        cpus = max(CALLERS) if self.callers else 1
        how = {"least_seconds": SAMPLE_SECONDS, "callers": self.callers, "cpus": cpus}
        clock: WorkerClock | Untimed = self.worker.prepare(case=case, seed=seed, **how)
        if isinstance(clock, WorkerClock) and (seconds := clock.sample()) > LONGEST_CALL_SECONDS:
            return Untimed("skipped", f"one call takes {seconds:.2g} s")
        return clock

    def record(self, case: Case, status: Status, **fields: Any) -> Record:
        """Make a record of a cell; ``threads`` are those that share the tree."""
        return self.stamp.record(case, status, **fields, **self._callers())

    def timed(self, case: Case, timing: Timing, affinity: list[int]) -> Record:
        """Make a record of a timed cell, with the limits that its adapter states."""
        kind = _libraries().get(self.fields["contestant"])
        limits = "; ".join(kind.limits) if kind else ""
        return self.stamp.timed(case, timing, {"affinity": affinity}, reason=limits or None, **self._callers())

    def _callers(self) -> dict[str, int]:
        return {"threads": self.callers} if self.callers else {}

    def checks(self, seed: int) -> Iterator[Accuracy]:
        """Yield its checks, none where it is not available; a tree with options is the same tree again."""
        if self.fields.get("options"):
            return
        name, dtype = self.fields["contestant"], self.fields.get("dtype", "float32")
        answer = self.worker.ask("accuracy", contestant=name, dtype=dtype, seed=seed)
        common = {name: getattr(self.stamp, name) for name in ("machine", "commit", "dirty", "command")}
        for fields in answer.get("checks", ()):
            yield Accuracy(**fields, **common, utc=platforms.now())


def _opened(stack: ExitStack, options: argparse.Namespace, stamp: Stamp, fields: dict[str, Any]) -> _Member:
    """Start a process for an implementation, unless cells are only listed."""
    if options.dry_run:
        return _Member(fields, None, stamp)
    worker, kind = stack.enter_context(Worker(options.python)), _libraries().get(fields["contestant"])
    packages = ["numpy", "numba", *([kind.package] if kind else [])]
    machine = {**stamp.machine, "packages": worker.ask("versions", packages=packages)}
    return _Member(fields, worker, dataclasses.replace(stamp, machine=machine))


def _run(members: Sequence[_Member], twin: _Member, path: Path, options: argparse.Namespace) -> Tally:
    """Measure every cell that is not in the file yet: a group has one shape, and all implementations with the twin of
    the first; in the last group several threads share each tree instead."""
    shapes = [(options.capacity, batch) for batch in options.batches]
    shapes += [(capacity, BATCH) for capacity in options.capacities]
    once = [*(member.measuring(PEER) for member in members), twin.measuring(AGAIN)]
    shared = [member.measuring(SHARED, callers) for member in members for callers in CALLERS]
    groups = [[(member, member.case(op, *shape)) for member in once] for shape in shapes for op in ("draw", "update")]
    groups.append([(member, member.case("draw", options.capacity, SHARED_BATCH)) for member in shared])
    how: dict[str, Any] = {"unit": "cell", "sentinels": Sentinels()}
    how["name"] = lambda pair: pair[0].record(pair[1], "skipped").cell
    return run(groups, path, members[0].stamp, functools.partial(_measure, options), options, **how)


def _measure(options: argparse.Namespace, pairs: Sequence[tuple[_Member, Case]]) -> Iterator[Record]:
    """Yield the records of one shape, all implementations in alternation."""
    ready: list[tuple[_Member, Case, WorkerClock]] = []
    for member, case in pairs:
        clock = member.clock(case, options.seed)
        if isinstance(clock, Untimed):
            yield member.record(case, clock.status, reason=clock.reason)
        else:
            ready.append((member, case, clock))
    clocks = [clock for _, _, clock in ready]
    timings = interleave(clocks, options.budget * len(clocks), options.seed)
    for member, _ in pairs:
        member.worker.ask("forget")
    for (member, case, clock), timing in zip(ready, timings, strict=True):
        yield member.timed(case, timing, clock.prepared["affinity"])


def _summary(found: Sequence[Record], capacity: int) -> dict[str, Any]:
    """Return the nanoseconds per element of draw + update with N leaves by implementation and batch, and the reasons of
    those without a time."""
    rows: dict[str, dict[int, float]] = {}
    absent: dict[str, str] = {}
    for record in (one for one in found if one.primitive == PEER):
        label = " ".join(
            [record.contestant, record.dtype, *("unchecked" for key in record.options if key == "validate")]
        )
        if record.median_seconds is None:
            absent[label] = record.reason or record.status
        elif record.capacity == capacity:
            ns = 1e9 * record.seconds / record.batch
            rows.setdefault(label, {})[record.batch] = rows.get(label, {}).get(record.batch, 0.0) + ns
    return {"ns_per_element": rows, "absent": absent}


def _lines(found: dict[str, Any], path: Path, options: argparse.Namespace) -> Iterator[str]:
    """Write a line for each implementation."""
    yield f"{'ns per element, draw + update':32}" + "".join(f"{f'B={batch:,}':>12}" for batch in options.batches)
    for label, by_batch in sorted(found["ns_per_element"].items(), key=lambda row: row[1].get(1_024, float("inf"))):
        yield f"{label:32}" + "".join(f"{by_batch.get(batch, float('nan')):12,.1f}" for batch in options.batches)
    yield from (f"not timed, {label}: {reason}" for label, reason in sorted(found["absent"].items()))
    yield f"checks: {path.with_name(ACCURACY_FILE)}\nthe whole table: python -m reports"


def _list(as_json: bool) -> int:
    """Print what each adapter states of its library."""
    rows = [
        {"name": name, "package": kind.package, "rule": kind.rule, "sums": "/".join(kind.dtypes), "limits": kind.limits}
        for name, kind in _libraries().items()
    ]
    if as_json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        print(f"{row['name']:10} {row['sums']:16} {row['rule']}")
        for limit in row["limits"]:
            print(f"{'':27} {limit}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("peers", __doc__, "--contestants numba,tianshou,torchrl")
    known = among("implementation", *impls.names(), *_libraries())
    add_list(parser, "contestants", known, help="libraries, or trees of ours (default: all libraries and usual trees)")
    add_list(parser, "batches", at_least(1, "B"), default=BATCHES, help="elements of a call B, at --capacity")
    add_list(parser, "capacities", at_least(1, "N"), default=CAPACITIES, help=f"leaves N, at B = {BATCH}")
    seconds = (0.6, "seconds of sampling a cell")
    add_numbers(parser, capacity=(CAPACITY, "leaves N over the batches"), budget=seconds)
    add_python(parser)
    parser.add_argument("--no-accuracy", dest="accuracy", action="store_false", help="leave the checks out")
    parser.add_argument("--training", action="store_true", help="time whole training loops; it has its own --help")
    parser.add_argument("--list", action="store_true", help="only list the libraries, their rules and limits")
    return add_common(parser, seed_of="inputs and order")
