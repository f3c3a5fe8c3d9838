"""Nanoseconds per element of every CPU contestant, side by side, with the machine's memory floor.

One run, one thread: contestants take turns in shuffled order, on the same inputs, which rotate through at least 262,144
elements so that no branch predictor learns a batch by heart. The first contestant runs twice (A/A): what its two
columns differ by is noise. Medians over rounds; checks on.

    python -m benchmarks.speed_table --capacity 1000000 --batch 1024
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import impls

from .floor import memory_floor

CONTESTANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "numba (default)": ("numba", {}),
    "numba (default), again": ("numba", {}),
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
ROTATION = 1 << 18  # distinct elements in turn
SAMPLE_SECONDS = 0.02  # least length of one timed sample


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    rows = measure(options.capacity, options.fanout, options.batch, options.dtype, options.rounds, options.seed)
    threads = measure_threads(options.capacity, options.fanout, options.dtype, options.rounds, options.seed)
    floor = {f"{size} MB": memory_floor(size) for size in (0.5, 4, 16, 80)}
    if options.json:
        print(
            json.dumps({"settings": vars(options), "ns_per_element": rows, "two_threads": threads, "floor_ns": floor})
        )
        return 0
    print(
        f"N={options.capacity:,} K={options.fanout} B={options.batch:,} {options.dtype} leaves, one thread, checks on"
    )
    print(f"{'ns per element, measured':28}{'sample':>10}{'update':>10}{'both':>10}")
    for name, row in rows.items():
        print(f"{name:28}{row['sample']:10.1f}{row['update']:10.1f}{row['sample'] + row['update']:10.1f}")
    print(
        f"\nsample, B={threads['batch']:,}: one thread {threads['one']:.1f} ns, two {threads['two']:.1f} ns, ", end=""
    )
    print(f"{threads['one'] / threads['two']:.2f}x ({threads['layer']} threads)")
    print("\nmemory floor, ns per random 64-byte read: " + ", ".join(_floor_text(*item) for item in floor.items()))
    return 0


def measure(capacity: int, fanout: int, batch: int, dtype: str, rounds: int, seed: int) -> dict[str, dict[str, float]]:
    """Median nanoseconds per element of ``sample`` and ``update`` for each contestant."""
    rng = np.random.default_rng(seed)
    trees = {}
    for label, (name, settings) in CONTESTANTS.items():
        if reason := impls.why_not(name):
            print(reason, file=sys.stderr)
            continue
        trees[label] = impls.make(name, capacity, fanout=fanout, dtype=dtype, **settings)
    leaves = rng.random(capacity)
    for tree in trees.values():
        tree.update(np.arange(capacity), leaves)
    batches = max(1, ROTATION // batch)
    indices = list(rng.integers(0, capacity, (batches, batch)))
    priorities = list(rng.random((batches, batch)))
    uniforms = list(rng.random((batches, batch)))
    work: dict[tuple[str, str], Callable[[int], object]] = {}
    for label, tree in trees.items():
        work[label, "sample"] = lambda turn, tree=tree: tree.sample(uniforms[turn % batches])  # type: ignore[misc]
        work[label, "update"] = lambda turn, tree=tree: tree.update(  # type: ignore[misc]
            indices[turn % batches], priorities[turn % batches]
        )
    medians = _interleaved(work, rounds, rng)
    return {label: {op: medians[label, op] / batch * 1e9 for op in ("sample", "update")} for label in trees}


def measure_threads(capacity: int, fanout: int, dtype: str, rounds: int, seed: int) -> dict[str, Any]:
    """Median nanoseconds per element of sampling 65,536 with one thread and with two."""
    import numba  # noqa: PLC0415  # heavy, and optional

    batch = 65_536
    rng = np.random.default_rng(seed)
    leaves, uniforms = rng.random(capacity), list(rng.random((8, batch)))
    work: dict[Any, Callable[[int], object]] = {}
    for label, threads in (("one", 1), ("two", 2)):
        tree = impls.make("numba", capacity, fanout=fanout, dtype=dtype, threads=threads)
        tree.update(np.arange(capacity), leaves)
        work[label] = lambda turn, tree=tree: tree.sample(uniforms[turn % 8])  # type: ignore[misc]
    medians = _interleaved(work, rounds, rng)
    result: dict[str, Any] = {label: seconds / batch * 1e9 for label, seconds in medians.items()}
    return result | {"batch": batch, "layer": numba.threading_layer()}


def _interleaved(work: dict[Any, Callable[[int], object]], rounds: int, rng: np.random.Generator) -> dict[Any, float]:
    """Median seconds per call; each round runs every piece of work once, in a new order."""
    turns = dict.fromkeys(work, 0)
    calls = {}
    for key, call in work.items():
        call(0)  # compile
        start = time.perf_counter()
        call(1)
        calls[key] = max(1, min(ROTATION, int(SAMPLE_SECONDS / (time.perf_counter() - start))))
    samples: dict[Any, list[float]] = {key: [] for key in work}
    keys = list(work)
    for _ in range(rounds):
        for position in rng.permutation(len(keys)):
            key = keys[position]
            call, first = work[key], turns[key]
            start = time.perf_counter()
            for turn in range(first, first + calls[key]):
                call(turn)
            samples[key].append((time.perf_counter() - start) / calls[key])
            turns[key] += calls[key]
    return {key: statistics.median(seconds) for key, seconds in samples.items()}


def _floor_text(size: str, floor: dict[str, float]) -> str:
    return f"{size}: {floor['gather']:.1f} gathered, {floor['chase']:.0f} chased"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed_table", description=__doc__.split("\n")[0])
    parser.add_argument("--capacity", type=int, default=1_000_000, help="leaves N (default: %(default)s)")
    parser.add_argument("--fanout", type=int, default=16, help="children of a node K (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=1024, help="elements per call B (default: %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="of the leaves")
    parser.add_argument("--rounds", type=int, default=11, help="timed samples per contestant (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs and the order (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    return parser


if __name__ == "__main__":
    sys.exit(main())
