"""Nanoseconds per element of every CPU contestant, side by side, with the machine's memory floor.

One run, one thread: contestants take turns in shuffled order, on the same inputs, which rotate so that no branch
predictor learns a batch by heart. The default runs twice (A/A): what its two rows differ by is noise. The floor is read
in the same rounds. Medians; checks on.

    python -m benchmarks.speed_table --capacity 1000000 --batch 1024
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import impls

from .floor import memory_reads

CONTESTANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "numba": ("numba", {}),
    "numba, again": ("numba", {}),
    "numba delta": ("numba", {"propagate": "delta"}),
    "numba plain": ("numba", {"layout": "plain"}),
    "numba plain delta": ("numba", {"layout": "plain", "propagate": "delta"}),
    "numba misaligned": ("numba", {"aligned": False}),
    "numpy": ("numpy", {}),
    "numpy delta": ("numpy", {"propagate": "delta"}),
    "cumsum": ("cumsum", {}),
    "flat": ("flat", {}),
    "python": ("python", {}),
}
ROTATION, MOST_BATCHES = 1 << 18, 1 << 12  # distinct elements, in at most so many arrays: more would miss the cache
SAMPLE_SECONDS = 0.05  # least length of one timed sample
PARALLEL_BATCH = 1 << 16
FLOOR_MEGABYTES = (0.5, 4, 16, 80)
FLOOR_READS = 1 << 16

Work = dict[Any, Callable[[int], object]]  # what to time, by name; called with the number of its turn


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    options = _parser().parse_args(arguments)
    rng = np.random.default_rng(options.seed)
    leaves = rng.random(options.capacity)
    settings = {"fanout": options.fanout, "dtype": options.dtype}
    work = _operations(leaves, options.batch, settings, rng)
    work |= _threads(leaves, settings, rng)
    for size in FLOOR_MEGABYTES:
        work |= {("floor", size, kind): read for kind, read in memory_reads(size, FLOOR_READS).items()}
    seconds = interleaved(work, options.rounds, rng)
    if options.json:
        rows = [{"what": list(key), "seconds": value} for key, value in seconds.items()]
        print(json.dumps({"settings": vars(options), "source": "measured", "medians": rows}))
    else:
        _print_table(options, seconds)
    return 0


def _operations(leaves: np.ndarray[Any, Any], batch: int, settings: dict[str, Any], rng: np.random.Generator) -> Work:
    """``(label, "sample")`` and ``(label, "update")`` of every contestant that can be made here."""
    batches = min(MOST_BATCHES, max(1, ROTATION // batch))
    indices = list(rng.integers(0, leaves.size, (batches, batch)))
    priorities = list(rng.random((batches, batch)))
    uniforms = list(rng.random((batches, batch)))
    work: Work = {}
    for label, (name, options) in CONTESTANTS.items():
        if reason := impls.why_not(name):
            print(reason, file=sys.stderr)
            continue
        tree = _filled(name, leaves, **settings, **options)
        work[label, "sample"] = partial(lambda tree, turn: tree.sample(uniforms[turn % batches]), tree)
        work[label, "update"] = partial(
            lambda tree, turn: tree.update(indices[turn % batches], priorities[turn % batches]), tree
        )
    return work


def _threads(leaves: np.ndarray[Any, Any], settings: dict[str, Any], rng: np.random.Generator) -> Work:
    uniforms = list(rng.random((8, PARALLEL_BATCH)))
    trees = {threads: _filled("numba", leaves, threads=threads, **settings) for threads in (1, 2)}
    return {
        ("threads", threads): partial(lambda tree, turn: tree.sample(uniforms[turn % 8]), tree)
        for threads, tree in trees.items()
    }


def _filled(name: str, leaves: np.ndarray[Any, Any], **settings: Any) -> impls.SumTree:
    tree = impls.make(name, leaves.size, **settings)
    tree.update(np.arange(leaves.size), leaves)
    return tree


def interleaved(work: Work, rounds: int, rng: np.random.Generator) -> dict[Any, float]:
    """Median seconds per call; each round runs every piece of work once, in a new order."""
    calls = {}
    for key, call in work.items():
        call(0)  # compiles
        start = time.perf_counter()
        call(1)
        calls[key] = max(1, min(ROTATION, int(SAMPLE_SECONDS / (time.perf_counter() - start))))
    samples: dict[Any, list[float]] = {key: [] for key in work}
    turns = dict.fromkeys(work, 0)
    keys = list(work)
    for _ in range(rounds):
        for position in rng.permutation(len(keys)):
            key = keys[position]
            call = work[key]
            start = time.perf_counter()
            for turn in range(turns[key], turns[key] + calls[key]):
                call(turn)
            samples[key].append((time.perf_counter() - start) / calls[key])
            turns[key] += calls[key]
    return {key: statistics.median(seconds) for key, seconds in samples.items()}


def _print_table(options: argparse.Namespace, seconds: dict[Any, float]) -> None:
    each = 1e9 / options.batch
    print(
        f"N={options.capacity:,} K={options.fanout} B={options.batch:,} {options.dtype} leaves, one thread, checks on"
    )
    print(f"{'ns per element, measured':26}{'sample':>12}{'update':>12}{'both':>12}")
    for label in CONTESTANTS:
        if (label, "sample") in seconds:
            sample, update = seconds[label, "sample"] * each, seconds[label, "update"] * each
            print(f"{label:26}{sample:12.1f}{update:12.1f}{sample + update:12.1f}")
    one, two = (seconds["threads", threads] / PARALLEL_BATCH * 1e9 for threads in (1, 2))
    print(f"\nnumba, sample at B={PARALLEL_BATCH:,}: one thread {one:.1f} ns, two {two:.1f} ns, {one / two:.2f}x")
    print("\nns per random 64-byte read    gathered      chased")
    for size in FLOOR_MEGABYTES:
        gather, chase = (seconds["floor", size, kind] / FLOOR_READS * 1e9 for kind in ("gather", "chase"))
        print(f"{f'from {size:g} MB':26}{gather:12.1f}{chase:12.1f}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed_table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--capacity", type=_positive, default=1_000_000, help="leaves N (default: %(default)s)")
    parser.add_argument("--fanout", type=_positive, default=16, help="children of a node K (default: %(default)s)")
    parser.add_argument("--batch", type=_positive, default=1024, help="elements per call B (default: %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="of the leaves")
    parser.add_argument("--rounds", type=_positive, default=15, help="samples per contestant (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs and the order (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
