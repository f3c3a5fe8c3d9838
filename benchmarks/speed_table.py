"""How fast are the CPU trees, in ns per element, beside the machine's memory floor? One table; nothing is written.

The cells are the sweep's own (``cases.py``), checked and timed as it does (``timing.py``), all in turns in one run.
The default runs twice (A/A): the difference between its two rows is noise. The floor is read in the same rounds.
Medians; checks on.
"""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import impls

from .arguments import add_common, add_numbers, parser_of
from .cases import Case, prepare
from .presets import DELTA, OTHERS, PLAIN
from .sweep import memory_reads
from .timing import interleave_calls

ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "numba": ("numba", {}),
    "numba, again": ("numba", {}),
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
FLOOR_MEGABYTES = (0.5, 4, 16, 80)
FLOOR_READS = 1 << 16


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, and return the exit code 0."""
    options = _parser().parse_args(arguments)
    calls = _calls(options)
    timings = interleave_calls(list(calls.values()), options.budget * len(calls), options.seed, SAMPLE_SECONDS)
    seconds = {key: timing.interval.median for key, timing in zip(calls, timings, strict=True)}
    if options.json:
        rows = [{"what": list(key), "seconds": value} for key, value in seconds.items()]
        print(json.dumps({"settings": vars(options), "source": "measured", "medians": rows}))
    else:
        _print_table(options, seconds)
    return 0


def _calls(options: argparse.Namespace) -> dict[tuple[Any, ...], Callable[[int], object]]:
    """Return the calls to time, by (label, column), ("threads", count) or ("floor", megabytes, kind of read)."""
    shape = {"capacity": options.capacity, "fanout": options.fanout, "dtype": options.dtype}
    calls: dict[tuple[Any, ...], Callable[[int], object]] = {}
    for label, (name, settings) in ROWS.items():
        if reason := impls.why_not(name):
            print(reason, file=sys.stderr)
            continue
        for column, op in OPS.items():
            calls[label, column] = prepare(Case(name, op, batch=options.batch, options=settings, **shape)).call
    if impls.why_not("numba") is None:
        for threads in (1, 2):
            case = Case("numba", "draw", batch=PARALLEL_BATCH, threads=threads, **shape)
            calls["threads", threads] = prepare(case).call
        for size in FLOOR_MEGABYTES:
            calls |= {("floor", size, kind): read for kind, read in memory_reads(size, FLOOR_READS).items()}
    return calls


def _print_table(options: argparse.Namespace, seconds: dict[tuple[Any, ...], float]) -> None:
    each = 1e9 / options.batch
    shape = f"N={options.capacity:,} K={options.fanout} B={options.batch:,} {options.dtype} leaves"
    print(f"{shape}, one thread, checks on")
    print(f"{'ns per element, measured':26}{'sample':>12}{'update':>12}{'both':>12}")
    for label in ROWS:
        if (label, "sample") in seconds:
            sample, update = seconds[label, "sample"] * each, seconds[label, "update"] * each
            print(f"{label:26}{sample:12.1f}{update:12.1f}{sample + update:12.1f}")
    if ("threads", 2) not in seconds:
        return
    single, two = (seconds["threads", threads] / PARALLEL_BATCH * 1e9 for threads in (1, 2))
    print(f"\nnumba, sample at B={PARALLEL_BATCH:,}: one thread {single:.1f} ns, two {two:.1f} ns, {single / two:.2f}x")
    print("\nns per random 64-byte read    gathered      chased")
    for size in FLOOR_MEGABYTES:
        gather, chase = (seconds["floor", size, kind] / FLOOR_READS * 1e9 for kind in ("gather", "chase"))
        print(f"{f'from {size:g} MB':26}{gather:12.1f}{chase:12.1f}")


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
    return add_common(parser, results=False, seed_of="the order", json="print one JSON object instead of the table")
