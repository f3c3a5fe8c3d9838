"""Judge what [Hou2023] says transfers cost the process that learns, by systems of one actor and one learner."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..records import Measurement, how_to_measure
from .claims import Claim, not_run
from .quoted import Quoted

PAPER, ORDER = "[Hou2023]", 2
SYSTEM = "training transport"
TRANSFER, STEP = "transfer", "gradient step"
FREE, ENOUGH = 0.01, 0.5
"""Share of the learner's time that counts as none; part of the printed share that a queue must cost."""


@dataclass(frozen=True)
class Share:
    """The share of the learner's time that transfers take in one system, and its 95 % bounds."""

    name: str
    middle: float
    low: float
    high: float
    blocks: int


def verdicts(records: Sequence[Measurement], quoted: Quoted) -> list[Claim]:
    """Judge the cost of shared memory and of a queue. RecordError if not quoted."""
    queue = quoted.table("hou2023.queue")
    text = (
        f"Shared memory costs the updating process no time, where a queue takes about {queue['wasted_percent']:g} % "
        "(3.3.2)."
    )
    shared, queues = (_shares(records, start) for start in ("shared", "queue"))
    if not shared or not queues:
        return [not_run(text, "no system was timed by both", f"a minute of two cores ({how_to_measure('transports')})")]
    free, by_share = max(shared, key=lambda one: one.middle), sorted(queues, key=lambda one: one.middle)
    typical = by_share[(len(by_share) - 1) // 2]
    limit = ENOUGH * queue["wasted_percent"] / 100
    widest = max((one.high - one.low) / one.middle for one in (typical, free))
    return [
        Claim(
            text,
            "confirmed" if free.high < FREE and typical.low >= limit else "refuted",
            f"of the learner's time transfers take at most {free.middle:.2%} by shared memory ({free.name}), and by a "
            f"queue {typical.middle:.1%} in the median of {len(queues)} systems ({typical.name}), from "
            f"{by_share[0].middle:.1%} to {by_share[-1].middle:.1%} ({by_share[-1].name}); that shared memory "
            f"transfers at {queue['shared_memory_hz']:g} Hz there is of its machine and is not judged",
            f"confirmed if transfers by shared memory take less than {FREE:.0%} of the learner's time in every system, "
            f"and by a queue at least {limit:.0%}, half of what is printed, in the median system; refuted otherwise",
            f"medians over at least {min(typical.blocks, free.blocks)} blocks, whose 95 % intervals are at most "
            f"{widest:.0%} wide: a share at the limit passes in 2.5 % of cases, one as far beyond it in 97.5 %",
        )
    ]


def _shares(records: Sequence[Measurement], start: str) -> list[Share]:
    """Select the shares of the systems whose transport's name begins so."""
    systems: dict[str, dict[str, Measurement]] = {}
    for record in records:
        if record.primitive == SYSTEM and record.median_seconds is not None and record.contestant.startswith(start):
            shape = f"{record.contestant}, B = {record.batch:,}, {record.options['rows']} rows a hand-over"
            systems.setdefault(f"{record.options['workload']}, {shape}", {})[record.op] = record
    whole = {name: found for name, found in systems.items() if {TRANSFER, STEP} <= set(found)}
    return [_share(name, found[TRANSFER], found[STEP]) for name, found in whole.items()]


def _share(name: str, transfer: Measurement, step: Measurement) -> Share:
    low, high = ((one.low_seconds or one.seconds, one.high_seconds or one.seconds) for one in (transfer, step))
    middle = transfer.seconds / step.seconds
    return Share(name, middle, low[0] / high[1], low[1] / high[0], len(step.samples_seconds))
