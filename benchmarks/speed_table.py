"""How fast are the CPU trees, in ns per element, beside the machine's memory floor? One table, from records.

The cells are the sweep's own (``cases.py``), checked and timed as it does (``sweep.py``): samples in turns, updates in
turns, a batch split among threads, random reads of memory. Records go to results/<machine>/speed.jsonl, and the same
command goes on where it stopped; the table is made of the records of this commit. The first cell of each group runs
twice (A/A): the difference between the two is noise. Medians with 95 % intervals; checks on.
"""

import argparse
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import impls
from dse import records
from dse.records import Measurement

from .arguments import add_common, add_numbers, parser_of
from .cases import Case
from .presets import DELTA, OTHERS, PLAIN
from .run import Stamp, file_of, report, run
from .sentinels import Sentinels
from .sweep import FLOOR_KINDS, SweepMethod, memory_reads, sweep
from .timing import interleave_calls

PRIMITIVE = "speed"  # of its own: answers rest on sweeps alone
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "numba": ("numba", {}),
    "numba delta": ("numba", DELTA),
    "numba plain": ("numba", PLAIN),
    "numba plain delta": ("numba", PLAIN | DELTA),
    "numba misaligned": ("numba", {"aligned": False}),
    **{name: (name, {}) for name in OTHERS},
    "numpy delta": ("numpy", DELTA),
}
OPS = {"sample": "draw", "update": "update"}  # column: op
SAMPLE_SECONDS = 0.05  # long enough for each tree to find the cache as its own calls leave it
PARALLEL_BATCH = 1 << 16
THREADS = (1, 2)
FLOOR_MEGABYTES = (0.5, 4, 16, 80)
FLOOR_READS = 1 << 16
FLOOR: dict[str, Any] = {"op": "read"}
Cells = dict[tuple[Any, ...], Case]
Kept = dict[tuple[Any, ...], Measurement]


def main(arguments: list[str] | None = None) -> int:
    """Measure what has no record yet, print the table of the records, and return the exit code 0."""
    options = _parser().parse_args(arguments)
    path, stamp = file_of(options.results, f"{options.name}.jsonl"), Stamp.of_this_run(PRIMITIVE)
    columns, threads, floor = _columns(options), _threads(options), _floor()
    groups = [list(cells.values()) for cells in (*columns.values(), threads) if cells]
    method = SweepMethod(PRIMITIVE, clock=lambda ready: ready.clock(SAMPLE_SECONDS))
    how: dict[str, Any] = {"with_floor": False, "method": method, "sentinels": Sentinels()}
    tally = sweep(groups, path, options.budget, options.seed, bar=not options.json, **how)
    measure = functools.partial(_measure_floor, stamp=stamp, options=options)
    run([list(floor.values())], path, stamp, measure, name=functools.partial(stamp.cell, **FLOOR))
    latest = _latest(
        path, stamp, {key: cell for cells in columns.values() for key, cell in cells.items()} | threads, floor
    )
    kept = {key: record for key, record in latest.items() if record.median_seconds is not None}
    if options.json:
        rows = [{"what": list(key), "seconds": one.seconds, **_spread(one)} for key, one in kept.items()]
        told = {"file": str(path), "settings": vars(options), "source": "measured", "medians": rows}
        print(json.dumps(told | tally.as_json(), default=str))
        return 0
    _print_table(options, kept)
    print()
    for what, record in latest.items():
        if what not in kept:
            print(f"{record.status}, {' '.join(map(str, what))}: {record.reason}")
    return report(tally, path, False)


def _columns(options: argparse.Namespace) -> dict[str, Cells]:
    """Return the cells of each column, by (label, column)."""
    return {
        column: {
            (label, column): Case(name, op, batch=options.batch, options=settings, **_shape(options))
            for label, (name, settings) in ROWS.items()
        }
        for column, op in OPS.items()
    }


def _threads(options: argparse.Namespace) -> Cells:
    """Return the cells of a batch that threads share, by ("threads", count)."""
    case = functools.partial(Case, "numba", "draw", batch=PARALLEL_BATCH, **_shape(options))
    return {("threads", threads): case(threads=threads) for threads in THREADS} if "numba" in ROWS else {}


def _shape(options: argparse.Namespace) -> dict[str, Any]:
    return {"capacity": options.capacity, "fanout": options.fanout, "dtype": options.dtype}


def _floor() -> Cells:
    """Return the random reads of 64-byte lines, by ("floor", megabytes, kind of read)."""
    if impls.why_not("numba"):
        return {}
    return {
        ("floor", size, kind): Case(kind, "get", int(size * 2**20) // 64, FLOOR_READS, fanout=1, dtype="")
        for size in FLOOR_MEGABYTES
        for kind in FLOOR_KINDS
    }


def _measure_floor(todo: list[Case], stamp: Stamp, options: argparse.Namespace) -> Iterator[Measurement]:
    reads = {lines: memory_reads(lines / 2**14, FLOOR_READS, options.seed) for lines in {one.capacity for one in todo}}
    calls = [reads[case.capacity][case.contestant] for case in todo]
    timings = interleave_calls(calls, options.budget * len(calls), options.seed, SAMPLE_SECONDS)
    yield from (stamp.timed(case, timing, **FLOOR) for case, timing in zip(todo, timings, strict=True))


def _latest(path: Path, stamp: Stamp, trees: Cells, floor: Cells) -> Kept:
    """Return the latest record of each cell at this commit by its key, row by row, the A/A twin below the first."""
    recorded = sorted(filter(stamp.covers, records.read_file(path)), key=lambda record: record.utc)
    latest = {record.cell: record for record in recorded}
    first, again = next(iter(ROWS)), {"primitive": f"{PRIMITIVE}_again"}
    wanted = {(first, column): stamp.cell(trees[first, column]) for column in OPS}
    wanted |= {(f"{first}, again", column): stamp.cell(trees[first, column], **again) for column in OPS}
    wanted |= {(label, column): stamp.cell(trees[label, column]) for label in ROWS for column in OPS}
    wanted |= {key: stamp.cell(case) for key, case in trees.items()}
    wanted |= {key: stamp.cell(case, **FLOOR) for key, case in floor.items()}
    return {key: latest[cell] for key, cell in wanted.items() if cell in latest}


def _spread(record: Measurement) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("low_seconds", "high_seconds", "status", "utc")}


def _print_table(options: argparse.Namespace, kept: Kept) -> None:
    shape = f"N={options.capacity:,} K={options.fanout} B={options.batch:,} {options.dtype} leaves"
    print(f"{shape}, one thread, checks on; medians with 95 % intervals, * unstable")
    print(f"{'ns per element, measured':26}" + "".join(f" {column:>30}" for column in (*OPS, "both")))
    for label in dict.fromkeys(key[0] for key in kept if len(key) == 2 and key[1] in OPS):
        ops = [kept[label, column] for column in OPS if (label, column) in kept]
        cells = [_ns(kept[label, column]) if (label, column) in kept else "" for column in OPS]
        print(f"{label:26}" + "".join(f" {cell:>30}" for cell in (*cells, _ns(*ops) if len(ops) == len(OPS) else "")))
    if all(("threads", threads) in kept for threads in THREADS):
        single, several = (kept["threads", threads] for threads in THREADS)
        print(f"\nnumba, sample at B={PARALLEL_BATCH:,}: one thread {_ns(single)} ns, two {_ns(several)} ns, ", end="")
        print(f"{single.seconds / several.seconds:.2f}x")
    if any(key[0] == "floor" for key in kept):
        print(f"\n{'ns per random 64-byte read':26}" + "".join(f" {kind:>30}" for kind in ("gathered", "chased")))
    for size in FLOOR_MEGABYTES:
        cells = [_ns(kept["floor", size, kind]) for kind in FLOOR_KINDS if ("floor", size, kind) in kept]
        if cells:
            print(f"{f'from {size:g} MB':26}" + "".join(f" {cell:>30}" for cell in cells))


def _ns(*ops: Measurement) -> str:
    """Write nanoseconds per element of one operation, or of several after each other, with the ends of the interval."""
    middle, low, high = (
        sum(1e9 * (getattr(record, name) or record.seconds) / record.batch for record in ops)
        for name in ("median_seconds", "low_seconds", "high_seconds")
    )
    mark = "*" * any(record.status == "unstable" for record in ops)
    return f"{middle:,.1f} [{low:,.1f}, {high:,.1f}]{mark}"


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("speed", __doc__, "--capacity 1000000 --batch 1024")
    add_numbers(
        parser,
        capacity=(1_000_000, "leaves N"),
        fanout=(16, "children of a node K"),
        batch=(1024, "elements of a call B"),
        budget=(1.0, "seconds of sampling a cell"),
    )
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="format of the leaves")
    parser.add_argument("--name", default=PRIMITIVE, help="name of the results file (default: %(default)s)")
    return add_common(parser, seed_of="inputs and order", json="print one JSON object instead of the table")
