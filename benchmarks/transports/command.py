"""What do transports of experience and weights cost, one hand-over at a time and inside a running training system?

The system is [Hou2023, Table 3]'s on a small scale: one actor and one learner as processes of their own, whose ratio is
free, for each transport, 1 or 64 rows a hand-over (a local storage), and batches of 128 and 1,024. Interrupt it as you
like: the same command goes on where it stopped. Records go to results/<machine>/transports-<preset>.jsonl. On two idle
cores quick takes about 4 minutes, full under 20.
"""

import argparse
import functools
import operator
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dse.records import Measurement, read_file
from impls.training import TrainingError, Workload, load

from ..arguments import DEFAULT, add_common, add_list, listed, one_of, parser_of
from ..clock import ALL_CPUS, pin
from ..run import Stamp, Tally, file_of, latest, run, show
from ..timing import Timing, interleave
from . import cells, systems
from .cells import COLUMNS, MICRO, PARTS, PRESETS, SYSTEM, Cell, Preset


def main(arguments: list[str] | None = None) -> int:
    """Measure; return the exit code: 0 done, 1 where cells failed. RecordError where that cannot be done."""
    options = _parser().parse_args(arguments)
    one_of(options.only, PARTS)
    path = file_of(options.results, f"transports-{options.preset}.jsonl")
    preset = PRESETS[options.preset]
    tally = functools.reduce(operator.add, [_measured(part, preset, path, options) for part in options.only])
    rows = table(latest(read_file(path)))
    return show(tally, path, options.json, {"table": rows}, [*lines(rows), ""])


def table(found: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Return the rows of the running systems in the columns of [Hou2023, Table 3]."""
    by_row: dict[tuple[Any, ...], dict[str, Measurement]] = {}
    for record in found:
        if record.primitive == SYSTEM and record.median_seconds is not None:
            key = record.options["workload"], record.batch, record.options["rows"], record.contestant
            by_row.setdefault(key, {})[record.op] = record
    names = ("workload", "batch", "rows", "transport")
    return [dict(zip(names, key, strict=True)) | row_of(one) for key, one in by_row.items() if set(one) == set(COLUMNS)]


def row_of(columns: dict[str, Measurement]) -> dict[str, float]:
    """Return a row: percent of all cores, rates in Hz, seconds, percent of the learner's time."""
    seconds = {op: record.seconds for op, record in columns.items()}
    cores = columns["cpu"].machine.get("cores", 1)
    return {
        "cpu_percent": 100 * seconds["cpu"] / cores,
        "sampling_hz": 1 / seconds["environment step"],
        "update_frame_hz": columns["gradient step"].batch / seconds["gradient step"],
        "update_hz": 1 / seconds["gradient step"],
        "cycle_seconds": seconds["cycle"],
        "loss_percent": 100 * seconds["transfer"] / seconds["gradient step"],
    }


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table as text."""
    head = f"{'transport':12}{'B':>6}{'rows':>6}{'CPU %':>8}{'sampling Hz':>13}{'frame Hz':>11}{'update Hz':>11}"
    text = [f"{head}{'cycle ms':>11}{'loss %':>9}"] if rows else []
    for row in rows:
        shape = f"{row['transport']:12}{row['batch']:6,}{row['rows']:6}{row['cpu_percent']:8.0f}"
        rates = f"{row['sampling_hz']:13,.0f}{row['update_frame_hz']:11,.0f}{row['update_hz']:11,.1f}"
        text.append(f"{shape}{rates}{1e3 * row['cycle_seconds']:11,.3f}{row['loss_percent']:9.2f}")
    return text


def _measured(part: str, preset: Preset, path: Path, options: argparse.Namespace) -> Tally:
    how: dict[str, Any] = {"unit": f"{part} cell", "told": told, "bar": not options.json}
    if part == "hand-over":
        stamp = Stamp.of_this_run(MICRO)
        measure = functools.partial(_hand_overs, stamp, preset.budget_seconds, options.seed)
        return run(list(cells.hand_overs()), path, stamp, measure, **how)
    workload, stamp = load(options.workload), Stamp.of_this_run(SYSTEM)
    groups = list(cells.systems(workload.name, systems.CAPACITY, workload.replay.fanout))
    return run(groups, path, stamp, functools.partial(_system, workload, stamp, preset), **how)


def told(cell: Cell) -> str:
    """Describe a cell for the progress."""
    return " ".join([cell.contestant, cell.op, f"batch={cell.batch}", *(f"{k}={v}" for k, v in cell.options.items())])


def _hand_overs(stamp: Stamp, budget: float, seed: int, group: Sequence[Cell]) -> Iterator[Measurement]:
    """Yield the records of hand-overs timed in turns, in this process on one core."""
    from .micro import clock_of  # noqa: PLC0415  # with the compiler

    with ExitStack() as stack:
        stack.callback(pin, len(ALL_CPUS))
        pin(1)
        timings = interleave([clock_of(cell, stack) for cell in group], budget, seed)
    for cell, timing in zip(group, timings, strict=True):
        yield stamp.timed(cell, timing, {"affinity": list(ALL_CPUS[:1])})


def _system(workload: Workload, stamp: Stamp, preset: Preset, group: Sequence[Cell]) -> Iterator[Measurement]:
    """Yield a record for each column of one running system."""
    first = group[0]
    try:
        samples = systems.measured(workload, first.contestant, first.options["rows"], first.batch, preset)
    except TrainingError as error:
        for cell in group:
            yield stamp.record(cell, "failed", reason=str(error))
        return
    shared = "both processes share one core" if len(ALL_CPUS) < cells.PROCESSES else None
    for cell in group:
        yield stamp.timed(cell, Timing(tuple(samples[cell.op]), 1), {"affinity": list(ALL_CPUS)}, reason=shared)


def _parser() -> argparse.ArgumentParser:
    epilog = f"parts:\n{listed(PARTS)}\ncolumns of a system, each a record:\n{listed(COLUMNS)}\n"
    parser = parser_of("transports", __doc__, "--preset quick", epilog)
    add_list(parser, "only", str, default=tuple(PARTS), help="parts, listed below (default: all)")
    parser.add_argument("--preset", choices=PRESETS, default="full", help=f"how long each runs ({DEFAULT})")
    workload = f"of the system, such as cartpole_dqn; see: python -m impls.training list ({DEFAULT})"
    parser.add_argument("--workload", default="hopper_td3", metavar="NAME|FILE", help=workload)
    return add_common(parser, seed_of="the order of hand-overs")
