"""What the records of one run of training loops say: rates, ratios to ours, and what has no time."""

import math
from collections.abc import Sequence
from typing import Any

from dse import stats
from dse.records import Measurement, twins

from . import kind_of
from .crew import OPS, PRIMITIVE

OURS, BEFORE = "fanout", "fanout_torch"
SAID = {"clean": "by clean steps", "cpu": "by CPU time"}


def of(found: Sequence[Measurement]) -> dict[str, Any]:
    """Return the summary of a run's records, as JSON takes it: rows, the fastest first, and ratios to each of ours.

    Rates and ratios are [median, low, high] with their 95 % intervals over blocks.
    """
    own = [record for record in found if record.primitive == PRIMITIVE]
    by_loop: dict[str, dict[str, Measurement]] = {}
    for record in own:
        by_loop.setdefault(label(record), {})[record.op] = record
    timed = {name: ops for name, ops in by_loop.items() if all(ops[op].samples_seconds for op in OPS)}
    ordered = sorted(timed, key=lambda name: timed[name]["clean"].seconds)
    absent = [(name, ops["clean"]) for name, ops in by_loop.items() if name not in timed]
    return {
        "workload": own[0].options["workload"] if own else None,
        "noise_floor": stats.noise_floor(twins(found, PRIMITIVE)),
        "rows": [_row(name, timed[name]) for name in ordered],
        "times": {
            name: {
                other: {op: stats.speedup(timed[other][op], timed[name][op]) for op in OPS}
                for other in ordered
                if other != name
            }
            for name in sorted(ordered)
            if timed[name]["clean"].contestant == OURS
        },
        "absent": [{"loop": name, "status": one.status, "reason": one.reason} for name, one in absent],
    }


def label(record: Measurement) -> str:
    """Name a record's loop: its library, its environments, and that it samples uniformly where it does."""
    count = record.options["environments"]
    parts = [f"{count} environments"] * (count > 1) + ["uniform"] * (record.options["replay"] == "uniform")
    return record.contestant + (f" ({', '.join(parts)})" if parts else "")


def _row(name: str, ops: dict[str, Measurement]) -> dict[str, Any]:
    record = ops["clean"]
    steps, updates = (record.machine[count] for count in ("steps", "gradient_steps"))
    return {
        "loop": name,
        "is_ours": kind_of(record.contestant).is_ours,
        "replay": record.options["replay"],
        "environments": record.options["environments"],
        "steps_per_second": {op: _rate(ops[op]) for op in OPS},
        "unstable": [op for op in OPS if ops[op].status == "unstable"],
        "steps": steps,
        "gradient_steps_per_step": updates / steps,
        "packages": record.machine["packages"],
        "note": record.reason,
    }


def _rate(record: Measurement) -> list[float]:
    low, high = record.low_seconds or record.seconds, record.high_seconds or record.seconds
    return [1 / record.seconds, 1 / high, 1 / low]


def lines(found: dict[str, Any]) -> list[str]:
    """Return the summary as text, the answer first."""
    rates = {row["loop"]: row["steps_per_second"] for row in found["rows"]}
    text = []
    for name, times in found["times"].items():
        for op, how in SAID.items():
            beside = [_factor(times[other][op], other, found["noise_floor"]) for other in rates if other != name]
            rate = f"{name}, {rates[name][op][0]:,.0f} steps/s {how}"
            text.append(f"{rate}: {'; '.join(beside)}" if beside else rate)
        text.append(_lost(name, times, found["rows"]))
    text += ["", *_table(found["rows"]), ""]
    text += [f"{row['loop']}: {row['note']}" for row in found["rows"] if row["note"]]
    text += [f"not timed, {row['loop']}: {row['reason']}" for row in found["absent"]]
    floor = f"a loop timed twice differs by up to {found['noise_floor']:.1%}" if found["rows"] else "nothing was timed"
    return [*text, f"{floor}; * unstable, its interval is wide"]


def _lost(name: str, times: dict[str, dict[str, Sequence[float]]], rows: Sequence[dict[str, Any]]) -> str:
    """Say which libraries' loops are faster, by any clock."""
    theirs = [row["loop"] for row in rows if not row["is_ours"]]
    ahead = [f"{other} {how}" for other in theirs for op, how in SAID.items() if times[other][op][0] < 1]
    return f"{name} is slower than {', '.join(ahead)}" if ahead else f"no library's loop is faster than {name}"


def _factor(times: Sequence[float], other: str, floor: float) -> str:
    name, bracket, qualified = other.partition(" (")
    tie = ", a tie within the noise" if abs(math.log(times[0])) <= floor else ""
    return f"{times[0]:.2f} times {name}'s{bracket}{qualified}{tie}"


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    head = (
        f"{'steps/s':26}{'clean':>9}{'[95 % interval]':>20}{'median':>9}{'CPU':>9}{'steps':>10}{'ratio':>8}  versions"
    )
    text = [head]
    for row in rows:
        rate = row["steps_per_second"]
        marks = {op: "*" if op in row["unstable"] else " " for op in OPS}
        clean, low, high = rate["clean"]
        packages = ", ".join(f"{name} {version}" for name, version in row["packages"].items())
        text.append(
            f"{row['loop']:26}{clean:8,.0f}{marks['clean']}{f'[{low:,.0f}, {high:,.0f}]':>20}"
            f"{rate['median'][0]:8,.0f}{marks['median']}{rate['cpu'][0]:8,.0f}{marks['cpu']}{row['steps']:10,}"
            f"{row['gradient_steps_per_step']:8.3f}  {packages}"
        )
    return text
