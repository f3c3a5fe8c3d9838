"""Select gradient steps of several learners alone, and set their scaling factors beside those of Eqs. 5.5 and 5.6.

A learner of L takes B/L records from a bank of its own, and all average their weights every H steps; what one learner
takes for B and for B/L records is on record too. Letters: B batch, L learners, H steps between averages.
"""

from collections.abc import Sequence
from typing import Any

from impls.training.throughput import scaling_factor

from ..records import Measurement, in_order
from ..times.batch_law import FlatThenLinear
from .multi_learner import Terms, printed_spo_factor, spo_factor

PRIMITIVE = "learners step"
_NOTHING = FlatThenLinear(0.0, 0.0)


def rows(found: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Return a row for each cell of several learners: its scaling factor, and those of Eqs. 5.5 and 5.6."""
    timed = [one for one in in_order(found) if one.primitive == PRIMITIVE and one.median_seconds]
    known = {_key(record): record for record in timed}
    made = []
    for (hidden, batch, count, period), record in known.items():
        one, part = (known.get((hidden, size, 1, 0)) for size in (batch, batch // count))
        if count == 1 or one is None or part is None:
            continue
        each = (one.seconds - part.seconds) / (batch - batch // count)
        passes = FlatThenLinear(one.seconds - each * batch, each)  # with the replay's time, which each has a part of
        average = FlatThenLinear(record.machine["average_seconds"], 0.0)
        terms = Terms(batch, 0.0, passes, 0.0, _NOTHING, 0.0, average, shared_link=False)
        made.append({
            "network": network_name(hidden), "batch": batch, "learners": count, "period": period,
            "one_seconds": one.seconds, "seconds": record.seconds,
            "factor": scaling_factor(1 / record.seconds, count, 1 / one.seconds),
            "factor_range": [_ends(one)[0] / _ends(record)[1] / count, _ends(one)[1] / _ends(record)[0] / count],
            "exact": spo_factor(terms, count, period), "printed": printed_spo_factor(terms, count, period),
            "processes": count, "cores": record.machine["cores"],
        })  # fmt: skip
    return made


def _ends(record: Measurement) -> tuple[float, float]:
    return record.low_seconds or record.seconds, record.high_seconds or record.seconds


def _key(record: Measurement) -> tuple[tuple[int, ...], int, int, int]:
    options = record.options
    return tuple(options["hidden"]), record.batch, options["learners"], options.get("period", 0)


def network_name(hidden: Sequence[int]) -> str:
    """Return a network's name, as tables have it: its layers and their units."""
    return f"{len(hidden)} x {hidden[0]:,}"
