"""Nanoseconds per element of every CPU contestant, side by side, with the machine's memory floor; nothing is written.

The cells are the sweep's own (``cases.py``), checked and timed as it does (``timing.py``), all in turns in one run.
The default runs twice (A/A): what its two rows differ by is noise. The floor is read in the same rounds. Medians;
checks on.

    python -m benchmarks speed --capacity 1000000 --batch 1024
"""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import impls
from impls.terminal import count

from .cases import Case, prepare
from .presets import DELTA, OTHERS, PLAIN
from .sweep import memory_reads
from .timing import interleave_calls

CONTESTANTS: dict[str, tuple[str, dict[str, Any]]] = {
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
    """Measure, print, and return the exit code."""
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
    """What to time: (label, column), ("threads", how many), ("floor", megabytes, kind of read)."""
    shape = {"capacity": options.capacity, "fanout": options.fanout, "dtype": options.dtype}
    calls: dict[tuple[Any, ...], Callable[[int], object]] = {}
    for label, (name, settings) in CONTESTANTS.items():
        if reason := impls.why_not(name):
            print(reason, file=sys.stderr)
            continue
        for column, op in OPS.items():
            calls[label, column] = prepare(Case(name, op, batch=options.batch, options=settings, **shape)).call
    if impls.why_not("numba") is None:
        for threads in (1, 2):
            calls["threads", threads] = prepare(
                Case("numba", "draw", batch=PARALLEL_BATCH, threads=threads, **shape)
            ).call
        for size in FLOOR_MEGABYTES:
            calls |= {("floor", size, kind): read for kind, read in memory_reads(size, FLOOR_READS).items()}
    return calls


def _print_table(options: argparse.Namespace, seconds: dict[tuple[Any, ...], float]) -> None:
    each = 1e9 / options.batch
    print(
        f"N={options.capacity:,} K={options.fanout} B={options.batch:,} {options.dtype} leaves, one thread, checks on"
    )
    print(f"{'ns per element, measured':26}{'sample':>12}{'update':>12}{'both':>12}")
    for label in CONTESTANTS:
        if (label, "sample") in seconds:
            sample, update = seconds[label, "sample"] * each, seconds[label, "update"] * each
            print(f"{label:26}{sample:12.1f}{update:12.1f}{sample + update:12.1f}")
    if ("threads", 2) not in seconds:
        return
    one, two = (seconds["threads", threads] / PARALLEL_BATCH * 1e9 for threads in (1, 2))
    print(f"\nnumba, sample at B={PARALLEL_BATCH:,}: one thread {one:.1f} ns, two {two:.1f} ns, {one / two:.2f}x")
    print("\nns per random 64-byte read    gathered      chased")
    for size in FLOOR_MEGABYTES:
        gather, chase = (seconds["floor", size, kind] / FLOOR_READS * 1e9 for kind in ("gather", "chase"))
        print(f"{f'from {size:g} MB':26}{gather:12.1f}{chase:12.1f}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--capacity", type=count, default=1_000_000, help="leaves N (default: %(default)s)")
    parser.add_argument("--fanout", type=count, default=16, help="children of a node K (default: %(default)s)")
    parser.add_argument("--batch", type=count, default=1024, help="elements per call B (default: %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="of the leaves")
    parser.add_argument(
        "--budget", type=float, default=1.0, help="seconds of sampling for a cell (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    return parser
