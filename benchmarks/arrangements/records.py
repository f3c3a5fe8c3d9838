"""The records of a run of an arrangement, and what they say: rates beside the bound that the busiest part sets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dse.records import Measurement
from impls.terminal import aligned, plural
from impls.training import TrainingError

from ..run import Stamp
from ..timing import Timing
from ..worker import NOT_HERE
from .setting import BOUND, PARTS, RATE, Setting
from .timed import Run, timed

HEAD = ("arrangement", "actors", "E", "D", "steps/s", "95 % interval", "bound", "share", "busiest")
_SHAPE = (
    "workload",
    "update_interval",
    "arrangement",
    "actors",
    "environments",
    "presampled",
    "learner",
    "policy",
    "ratio",
)


def records(
    stamp: Stamp, setting: Setting, seconds: float, warm_seconds: float, **fields: Any
) -> Iterator[Measurement]:
    """Run a setting and yield its records; one with the reason where it cannot run."""
    try:
        run = timed(setting, seconds, warm_seconds)
    except (TrainingError, *NOT_HERE, OSError, ImportError) as error:
        yield stamp.record(setting.cell(), "failed", reason=str(error) or "not enough memory", **fields)
        return
    yield from of_run(stamp, setting, run, **fields)


def of_run(stamp: Stamp, setting: Setting, run: Run, **fields: Any) -> Iterator[Measurement]:
    """Yield the records of a run: the rate, the bound, and the own work of each kind of process a turn.

    The rate's ``machine`` also has what the loop reports, and which kind of process works most of the time.
    """
    where = {"steps": run.steps, "gradient_steps": run.updates, "report": run.report, "busiest": run.busiest()}
    count = max(1, run.updates // len(run.step_seconds))
    yield stamp.timed(setting.cell(RATE), Timing(run.step_seconds, count), where, **fields)
    if bounds := run.bounds():
        yield stamp.timed(setting.cell(BOUND), Timing(bounds, count), {"busiest": run.busiest()}, **fields)
    for kind in run.kinds:
        if samples := run.turn_seconds(kind):
            yield stamp.timed(setting.cell(PARTS[kind]), Timing(samples, 1), **fields)


def rates(measured: Iterable[Measurement], primitive: str) -> list[dict[str, Any]]:
    """List the rates, the fastest of each workload and update interval first: gradient steps a second, bound, share."""
    by: dict[tuple[Any, ...], dict[str, Measurement]] = {}
    for record in measured:
        if record.primitive == primitive and record.op in (RATE, BOUND) and record.median_seconds is not None:
            by.setdefault(tuple(record.options[name] for name in _SHAPE), {})[record.op] = record
    rows = [_row(shape, ops) for shape, ops in by.items() if RATE in ops]
    return sorted(rows, key=lambda row: (row["workload"], row["update_interval"], row["ratio"], -row["hz"]))


def _row(shape: Sequence[Any], ops: Mapping[str, Measurement]) -> dict[str, Any]:
    rate, bound = ops[RATE], ops.get(BOUND)
    low, high = rate.low_seconds or rate.seconds, rate.high_seconds or rate.seconds
    return {
        **dict(zip(_SHAPE, shape, strict=True)),
        "hz": 1 / rate.seconds,
        "low": 1 / high,
        "high": 1 / low,
        "bound_hz": 1 / bound.seconds if bound else None,
        "share": bound.seconds / rate.seconds if bound else None,
        "busiest": rate.machine.get("busiest", ""),
        "unstable": rate.status == "unstable",
    }


def lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Write a table for each workload and update interval, and below it which arrangement is the fastest."""
    groups: dict[tuple[str, int, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["workload"], row["update_interval"], row["ratio"]), []).append(row)
    for (workload, interval, ratio), own in groups.items():
        free = ", ratio free" if ratio == "free" else ""
        yield f"{workload}, update interval {interval}{free}: gradient steps a second"
        yield from aligned([HEAD, *map(_cells, own)], "  ")
        yield f"  {verdict(own)}"


def verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say which arrangement is the fastest, and how near the best parallel one comes to its bound."""
    best = rows[0]
    said = f"the fastest is {named(best)}"
    parallel = next((row for row in rows if row["share"] is not None), None)
    if parallel is None:
        return said
    return f"{said}; the best parallel one, {named(parallel)}, reaches {parallel['share']:.0%} of its bound"


def named(row: Mapping[str, Any]) -> str:
    """Name an arrangement by what it consists of."""
    if row["arrangement"] == "serial":
        return f"serial with E = {row['environments']}"
    return f"{row['arrangement']} with {plural(row['actors'], 'actor')}, E = {row['environments']}"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    bound = f"{row['bound_hz']:,.0f}" if row["bound_hz"] else ""
    rate = f"{row['hz']:,.0f}{'*' * row['unstable']}"
    numbers = (
        *map(str, (row["actors"], row["environments"], row["presampled"])),
        rate,
        f"{row['low']:,.0f} to {row['high']:,.0f}",
    )
    return row["arrangement"], *numbers, bound, f"{row['share']:.0%}" if row["share"] else "", row["busiest"]
