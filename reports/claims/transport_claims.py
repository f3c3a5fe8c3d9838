"""Judge what [Hou2023] says transfers cost the process that learns, by systems of one actor and one learner."""

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dse.records import Record, how_to_measure

from .claims import EXACT, Claim, adds_up_if, not_run
from .quoted import Quoted

PAPER, ORDER = "[Hou2023]", 2
SYSTEM = "training transport"
OPS = ("environment step", "gradient step", "transfer")
FREE, ENOUGH = 0.01, 0.5
"""Share of the learner's time that counts as none; part of the printed share that a queue must cost."""
CONSTANT, ENOUGH_SIZES = 0.1, 3
"""How far numbers may lie apart that count as the same; from how many sizes on a law over them is judged."""


@dataclass(frozen=True)
class Row:
    """A system: records that its queue takes, seconds between transfers, rates in Hz, the share of time lost."""

    name: str
    size: int
    cycle: float
    sampled: float
    updates: float
    loss: float
    low: float = 0.0  # 95 % bounds of the loss
    high: float = 0.0
    blocks: int = 0


Series = Mapping[str, Sequence[Row]]
"""Rows over sizes, by the name of their system."""


def verdicts(records: Sequence[Record], quoted: Quoted) -> list[Claim]:
    """Judge the cost of shared memory and of a queue, and the laws of Table 3. RecordError if not quoted."""
    kinds = _systems(records)
    series = {"printed": _printed(quoted), **_filled(kinds.get("fill", ()))}
    cycle = "A transfer moves whole queues: its cycle x the sampling rate / the size is the same at each (Table 3)."
    time = "The loss is the updater's time: update rate / (1 - loss) is the same at each size of the queue (Table 3)."
    return [
        _cost(kinds.get("shared", ()), kinds.get("queue", ()), quoted),
        _constant(cycle, series, lambda row: row.cycle * row.sampled / row.size),
        _constant(time, series, lambda row: row.updates / (1 - row.loss)),
        _order(series),
    ]


def _cost(shared: Sequence[Row], queues: Sequence[Row], quoted: Quoted) -> Claim:
    queue = quoted.table("hou2023.queue")
    text = (
        f"Shared memory costs the updating process no time, where a queue takes about {queue['wasted_percent']:g} % "
        "(3.3.2)."
    )
    if not shared or not queues:
        would = f"a minute of two cores ({how_to_measure('run transports')})"
        return not_run(text, "no system was timed by both", would)
    free, by_share = max(shared, key=lambda one: one.loss), sorted(queues, key=lambda one: one.loss)
    typical = by_share[(len(by_share) - 1) // 2]
    limit = ENOUGH * queue["wasted_percent"] / 100
    widest = max((one.high - one.low) / one.loss for one in (typical, free))
    return Claim(
        text,
        "confirmed" if free.high < FREE and typical.low >= limit else "refuted",
        f"of the learner's time transfers take at most {free.loss:.2%} by shared memory ({free.name}), and by a "
        f"queue {typical.loss:.1%} in the median of {len(queues)} systems ({typical.name}), from "
        f"{by_share[0].loss:.1%} to {by_share[-1].loss:.1%} ({by_share[-1].name}); that shared memory "
        f"transfers at {queue['shared_memory_hz']:g} Hz there is of its machine and is not judged",
        f"confirmed if transfers by shared memory take less than {FREE:.0%} of the learner's time in every system, "
        f"and by a queue at least {limit:.0%}, half of what is printed, in the median system; refuted otherwise",
        f"medians over at least {min(typical.blocks, free.blocks)} blocks, whose 95 % intervals are at most "
        f"{widest:.0%} wide: a share at the limit passes in 2.5 % of cases, one as far beyond it in 97.5 %",
    )


def _systems(records: Sequence[Record]) -> dict[str, list[Row]]:
    """Select the systems of one actor on all cores by the kind of their transport."""
    systems: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        is_plain = record.primitive == SYSTEM and record.options.keys() <= {"workload", "rows"}
        if is_plain and record.median_seconds is not None:
            shape = f"B = {record.batch:,}, {record.options['rows']} rows a hand-over"
            key = record.contestant, f"{record.options['workload']}, {record.contestant}, {shape}"
            systems.setdefault(key, {})[record.op] = record
    kinds: dict[str, list[Row]] = {}
    for (contestant, name), found in systems.items():
        if set(OPS) <= set(found):
            kind, _, size = contestant.partition(" ")
            kinds.setdefault(kind, []).append(_row(name, int(size or 0), found))
    return kinds


def _row(name: str, size: int, found: Mapping[str, Record]) -> Row:
    act, step, transfer = (found[op] for op in OPS)
    low, high = ((one.low_seconds or one.seconds, one.high_seconds or one.seconds) for one in (transfer, step))
    rates = 1 / act.seconds, 1 / step.seconds, transfer.seconds / step.seconds
    cycle = found["interval"].seconds if "interval" in found else 0.0
    return Row(name, size, cycle, *rates, low[0] / high[1], low[1] / high[0], len(step.samples_seconds))


def _printed(quoted: Quoted) -> list[Row]:
    """Select Table 3's rows of queues, by their size."""
    sizes = sorted(map(int, quoted.table("hou2023.table_3.cycle_seconds")))
    rows = {size: quoted.table(f"hou2023.table_3.rows.QS{size}") for size in sizes}
    return [
        Row("printed", size, row["cycle"], row["sampled"], row["updates"], row["loss"] / 100)
        for size, row in rows.items()
    ]


def _filled(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Group systems whose queue is filled first by all but its size, where there are enough sizes."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.size):
        groups.setdefault(row.name.replace(f"fill {row.size}", "fill"), []).append(row)
    return {name: group for name, group in groups.items() if len(group) >= ENOUGH_SIZES}


def _constant(text: str, series: Series, law: Callable[[Row], float]) -> Claim:
    """Judge a number that is to be the same at every size, on printed rows and where queues were filled here."""
    values = {name: [law(row) for row in rows] for name, rows in series.items()}
    apart = {name: max(of_sizes) / min(of_sizes) - 1 for name, of_sizes in values.items()}
    said = [
        f"{name}, {_sizes(rows)} records: {', '.join(f'{one:,.4g}' for one in values[name])}, {apart[name]:.1%} apart"
        for name, rows in series.items()
    ]
    holds, is_run = max(apart.values()) <= CONSTANT, len(series) > 1
    word = "confirmed" if is_run else "adds up"
    return Claim(
        text,
        ("confirmed" if holds else "refuted") if is_run else adds_up_if(holds),
        f"arithmetic on its own Table 3{', and as measured' if is_run else ''}: {'; '.join(said)}",
        f"{word} if in each series the largest is at most {CONSTANT:.0%} above the least, refuted otherwise",
        "medians over blocks of whole transfers; a number that follows the size is several-fold apart, and fails"
        if is_run
        else EXACT,
    )


def _order(series: Series) -> Claim:
    """Judge whether larger queues cost less, and say what a transfer costs besides its records."""
    text = (
        "The larger a queue, the less of the updater's time transfers take and the faster it updates (4.2.3, Table 3)."
    )
    if len(series) == 1:
        would = f"minutes of two cores ({how_to_measure('run transports')})"
        return not_run(text, "nothing was filled and then moved whole, at several sizes", would)
    said, agree = [], []
    for name, rows in series.items():
        cost, start = statistics.linear_regression([row.size for row in rows], [row.cycle * row.loss for row in rows])
        losses, rates = (f"{row.loss:.1%}" for row in rows), (f"{row.updates:,.4g}" for row in rows)
        said.append(
            f"{name}, {_sizes(rows)} records: loss {', '.join(losses)}, updates {', '.join(rates)} Hz, a transfer "
            f"loses {start:,.3g} s and {1e6 * cost:,.3g} us a record of the size"
        )
        agree += [a.low > b.high and a.updates < b.updates for a, b in itertools.pairwise(rows) if a.blocks]
    return Claim(
        text,
        "confirmed" if all(agree) else "refuted",
        f"{'; '.join(said)}: what a transfer loses besides its records is all that a larger queue can save",
        "confirmed if with each larger size measured the loss falls by more than 95 % intervals and updates rise, "
        "refuted otherwise",
        f"{sum(agree)} of {len(agree)} steps from a size to the next agree; where all cost the same, one would in at "
        "most 2.5 % of cases",
    )


def _sizes(rows: Sequence[Row]) -> str:
    return ", ".join(f"{row.size:,}" for row in rows)
