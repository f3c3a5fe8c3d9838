"""Time other libraries' sum trees and ours on the same cases, and check how exact they are.

One process a library, one thread each, all on one CPU, taking turns sample by sample. A library that is not installed,
or a cell that one cannot do, is a record with the reason. ``make peers`` installs the libraries into an environment of
their own and runs this; the records go to results/<machine>/peers.jsonl, the checks beside them. Interrupt it as you
like: the same command goes on where it stopped.
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
from benchmarks.arguments import list_of
from benchmarks.cases import Case
from benchmarks.stamp import Stamp
from benchmarks.timing import Timing, interleave
from benchmarks.workers import Untimed, Worker, WorkerClock, WorkerError
from dse import accuracy, platforms, records
from dse.accuracy import ACCURACY_FILE, Accuracy
from dse.records import Measurement, RecordError, Status
from impls.terminal import Progress, count

from . import adapter, names

PEER, AGAIN, SHARED = "peer", "peer_again", "peer_shared"
ENVIRONMENT = Path(".venv-peers/bin/python")
ROOT = Path(__file__).parents[2]
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
CAPACITIES, BATCH = (1 << 10, 1 << 14, 1 << 17, 1 << 20), 128  # those of seed 0's Figure 8
SHARED_BATCH, CALLERS = 1_024, (1, 2)
SAMPLE_SECONDS = 0.05  # long enough for threads to start, and for a tree to find the cache as its own calls leave it
LONGEST_CALL_SECONDS = 2.0


def contestants(chosen: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """What a case says of each contestant: ours, then every library in each of its formats; or of those chosen.

    ValueError for a name that is neither.
    """
    known = (*names(), *impls.names())
    for name in chosen or ():
        if name not in known:
            raise ValueError(f"{name!r} is none of {', '.join(known)}")
    theirs = [
        {"contestant": name, "dtype": dtype, "fanout": adapter(name).fanout}
        for name in names()
        for dtype in adapter(name).dtypes
    ]
    return [fields for fields in [*OURS, *theirs] if not chosen or fields["contestant"] in chosen]


def main(arguments: list[str] | None = None) -> int:
    """Measure, or list the libraries; returns the exit code."""
    options = _parser().parse_args(arguments)
    if options.list:
        return _list(options.json)
    if not options.python.exists():
        raise RecordError(f"{options.python}: no such interpreter; install the libraries first: make peers")
    folder = options.results / str(platforms.fingerprint()["key"])
    try:
        with ExitStack() as stack:
            team = _Team(stack, options)
            _measure(team, folder / FILE, options)
            if options.accuracy:
                found = [check for member in team.members for check in member.checks(options.seed)]
                accuracy.write(found, folder / ACCURACY_FILE)
    except WorkerError as error:
        raise RecordError(
            f"{error}; what is measured is kept: run it again to go on, or choose with --contestants"
        ) from None
    return _report(folder, options)


@dataclasses.dataclass(frozen=True)
class _Member:
    """A contestant, its process, and how its records are stamped."""

    fields: dict[str, Any]
    worker: Worker
    stamp: Stamp
    callers: int = 0

    def case(self, op: str, capacity: int, batch: int) -> Case:
        """One of its cells."""
        return Case(op=op, capacity=capacity, batch=batch, **self.fields)

    def measuring(self, primitive: str, callers: int = 0) -> Self:
        """Itself, when it measures a primitive; its tree called by so many threads, 0 for the process's own."""
        return dataclasses.replace(self, stamp=dataclasses.replace(self.stamp, primitive=primitive), callers=callers)

    def clock(self, case: Case, seed: int, cpus: int) -> WorkerClock | Untimed:
        """A cell ready to be timed, or why it is not."""
        clock = self.worker.prepare(case, seed, SAMPLE_SECONDS, self.callers, cpus)
        if isinstance(clock, WorkerClock) and (seconds := clock.sample()) > LONGEST_CALL_SECONDS:
            return Untimed("skipped", f"one call takes {seconds:.2g} s")
        return clock

    def record(self, case: Case, status: Status, **fields: Any) -> Measurement:
        """A record of a cell; ``threads`` are those that share the tree."""
        return self.stamp.record(case, status, **fields, **self._callers())

    def timed(self, case: Case, timing: Timing, affinity: list[int]) -> Measurement:
        """A record of a cell's time, with what its adapter says of the library."""
        name = self.fields["contestant"]
        limits = adapter(name).limits if name in names() else ()
        more = {"reason": "; ".join(limits) or None, "machine": {**self.stamp.machine, "affinity": affinity}}
        return self.stamp.timed(case, timing, **more, **self._callers())

    def _callers(self) -> dict[str, int]:
        return {"threads": self.callers} if self.callers else {}

    def checks(self, seed: int) -> Iterator[Accuracy]:
        """Its checks, none where it is not here; an unchecked tree is the same tree."""
        if self.fields.get("options"):
            return
        name, dtype = self.fields["contestant"], self.fields.get("dtype", "float32")
        answer = self.worker.ask("accuracy", contestant=name, dtype=dtype, seed=seed)
        stamp = self.stamp
        for fields in answer.get("checks", ()):
            yield Accuracy(
                **fields,
                machine=stamp.machine,
                commit=stamp.commit,
                dirty=stamp.dirty,
                utc=platforms.now(),
                command=stamp.command,
            )


class _Team:
    """Every contestant in a process of its own, and the twin of the first."""

    def __init__(self, stack: ExitStack, options: argparse.Namespace) -> None:
        chosen = contestants(options.contestants)
        workers = [stack.enter_context(Worker(options.python, [ROOT])) for _ in chosen]
        self.members = [_member(*pair) for pair in zip(chosen, workers, strict=True)]
        twin = stack.enter_context(Worker(options.python, [ROOT]))
        self.twin = dataclasses.replace(self.members[0], worker=twin)


def _member(fields: dict[str, Any], worker: Worker) -> _Member:
    name = fields["contestant"]
    package = adapter(name).package if name in names() else None
    versions = worker.ask("versions", packages=["numpy", "numba", *([package] if package else [])])
    machine = {**platforms.fingerprint(), "packages": versions}
    return _Member(fields, worker, dataclasses.replace(Stamp.of_this_run(PEER), machine=machine))


def _measure(team: _Team, path: Path, options: argparse.Namespace) -> None:
    """Every cell that is not in the file yet."""
    commit = team.members[0].stamp.commit
    done = {one.cell for one in records.read_file(path) if one.commit == commit} if path.exists() else set()
    shapes: list[tuple[str, int, int, tuple[int, ...]]] = []
    shapes += [(op, options.capacity, batch, ()) for batch in options.batches for op in ("draw", "update")]
    shapes += [(op, capacity, BATCH, ()) for capacity in options.capacities for op in ("draw", "update")]
    shapes += [("draw", options.capacity, SHARED_BATCH, CALLERS)]
    with records.Writer(path) as writer, Progress(len(shapes), "group", bar=not options.json) as progress:
        for op, capacity, batch, shared in shapes:
            for record in _group(team, done, options, op, capacity, batch, shared):
                writer.append(record)
            progress.update(1, functools.partial("{} N={:,} B={:,}".format, op, capacity, batch))


def _group(
    team: _Team,
    done: set[str],
    options: argparse.Namespace,
    op: str,
    capacity: int,
    batch: int,
    shared: tuple[int, ...],
) -> list[Measurement]:
    """The records of one shape, all contestants in turns; each tree ``shared`` by so many threads, if by any."""
    if shared:
        members = [member.measuring(SHARED, callers) for member in team.members for callers in shared]
    else:
        members = [*(member.measuring(PEER) for member in team.members), team.twin.measuring(AGAIN)]
    found: list[Measurement] = []
    ready: list[tuple[_Member, WorkerClock]] = []
    for member in members:
        case = member.case(op, capacity, batch)
        if member.record(case, "skipped").cell in done:
            continue
        clock = member.clock(case, options.seed, cpus=max(shared, default=1))
        if isinstance(clock, Untimed):
            found.append(member.record(case, clock.status, reason=clock.reason))
        else:
            ready.append((member, clock))
    if ready:
        timings = interleave([clock for _, clock in ready], options.budget * len(ready), options.seed)
        for (member, clock), timing in zip(ready, timings, strict=True):
            found.append(member.timed(member.case(op, capacity, batch), timing, clock.affinity))
    for member in members:
        member.worker.forget()
    return found


def _report(folder: Path, options: argparse.Namespace) -> int:
    """What was measured, a line a contestant: nanoseconds per element of draw + update at the chosen capacity."""
    found = [one for one in records.read_file(folder / FILE) if one.primitive == PEER]
    latest = {one.cell: one for one in found}
    rows: dict[str, dict[int, float]] = {}
    absent: dict[str, str] = {}
    for one in latest.values():
        label = " ".join([one.contestant, one.dtype, *("unchecked" for key in one.options if key == "validate")])
        if one.median_seconds is None:
            absent[label] = one.reason or one.status
        elif one.capacity == options.capacity:
            ns = 1e9 * one.seconds / one.batch
            rows.setdefault(label, {})[one.batch] = rows.get(label, {}).get(one.batch, 0.0) + ns
    if options.json:
        print(json.dumps({"file": str(folder / FILE), "ns_per_element": rows, "absent": absent}))
        return 0
    print(f"{'ns per element, draw + update':32}" + "".join(f"{f'B={batch:,}':>12}" for batch in options.batches))
    for label, by_batch in sorted(rows.items(), key=lambda row: row[1].get(1_024, float("inf"))):
        print(f"{label:32}" + "".join(f"{by_batch.get(batch, float('nan')):12,.1f}" for batch in options.batches))
    for label, reason in sorted(absent.items()):
        print(f"not timed, {label}: {reason}")
    print(f"records: {folder / FILE}\nchecks: {folder / ACCURACY_FILE}\nthe whole table: python -m reports")
    return 0


def _list(as_json: bool) -> int:
    """What each adapter states of its library."""
    rows = [
        {
            "name": name,
            "package": kind.package,
            "rule": kind.rule,
            "sums": "/".join(kind.dtypes),
            "limits": list(kind.limits),
        }
        for name in names()
        for kind in [adapter(name)]
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
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--contestants", type=list_of(str), metavar="A,B,..", help="libraries, or trees of ours")
    parser.add_argument(
        "--capacity", type=count, default=CAPACITY, help="leaves N over the batches (default: %(default)s)"
    )
    parser.add_argument(
        "--batches", type=list_of(count), default=BATCHES, metavar="A,B,..", help="over which N is held"
    )
    parser.add_argument("--capacities", type=list_of(count), default=CAPACITIES, metavar="A,B,..", help="at B = 128")
    parser.add_argument("--budget", type=float, default=0.6, help="seconds of sampling a cell (default: %(default)s)")
    parser.add_argument(
        "--python", type=Path, default=ENVIRONMENT, help="that has the libraries (default: %(default)s)"
    )
    parser.add_argument("--no-accuracy", dest="accuracy", action="store_false", help="leave the checks out")
    parser.add_argument("--list", action="store_true", help="only list the libraries, their rules and limits")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of inputs and order (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser
