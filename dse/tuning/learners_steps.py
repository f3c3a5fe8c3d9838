"""Select gradient steps of several learners alone, and compare their scaling factors with those of Eqs. 5.5 and 5.6.

A learner of L takes B/L records from a bank of its own, and all average their weights every H steps; what one learner
takes for B and for B/L records is on record too. Letters: B batch, L learners, H steps between averages.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..records import Measurement, in_order
from ..stats import median_interval

PRIMITIVE = "learners step"


def rows(found: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Return a row for each cell of several learners: its scaling factor, and those of Eqs. 5.5 and 5.6.

    A factor is the median over rounds, in each of which all were timed, with the 95 % interval of that median.
    """
    timed = [one for one in in_order(found) if one.primitive == PRIMITIVE and one.median_seconds]
    known = {_key(record): record for record in timed}
    made = []
    for (hidden, batch, count, period), record in known.items():
        one, part = (known.get((hidden, size, 1, 0)) for size in (batch, batch // count))
        if count == 1 or one is None or part is None:
            continue
        # Eq. 5.5, where a step has its replay on B/L records too, and weights in shared memory need no transfer.
        meeting = record.machine["average_seconds"] / period
        own, alone, smaller = (record.samples_seconds, one.samples_seconds, part.samples_seconds)
        factor = median_interval([one / two / count for one, two in zip(alone, own, strict=False)])
        exact = statistics.median([one / (less + meeting) / count for one, less in zip(alone, smaller, strict=False)])
        made.append({
            "network": network_name(hidden), "batch": batch, "learners": count, "period": period,
            "one_seconds": one.seconds, "seconds": record.seconds, "factor": factor.median,
            "factor_range": [factor.low, factor.high], "exact": exact,
            "printed": 1 / (1 + count * meeting / one.seconds), "cores": record.machine["cores"],
        })  # fmt: skip
    return made


def _key(record: Measurement) -> tuple[tuple[int, ...], int, int, int]:
    options = record.options
    return tuple(options["hidden"]), record.batch, options["learners"], options.get("period", 0)


def network_name(hidden: Sequence[int]) -> str:
    """Return a network's name, as tables have it: its layers and their units."""
    return f"{len(hidden)} x {hidden[0]:,}"


HEAD = ("network", "B", "H", "us by one", "us by two", "scaling factor", "Eq. 5.5", "Eq. 5.6 as printed")


def write_rows(made: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Write rows for a table under ``HEAD``."""
    for row in made:
        low, high = row["factor_range"]
        yield (
            row["network"], f"{row['batch']:,}", str(row["period"]), f"{1e6 * row['one_seconds']:,.0f}",
            f"{1e6 * row['seconds']:,.0f}", f"{row['factor']:.2f} [{low:.2f}, {high:.2f}]", f"{row['exact']:.2f}",
            f"{row['printed']:.2f}",
        )  # fmt: skip
