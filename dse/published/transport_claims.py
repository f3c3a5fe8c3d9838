"""Judge what [Hou2023] says transfers cost the process that learns, by systems of actors and one learner."""

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..records import Measurement, how_to_measure
from .claims import EXACT, Claim, adds_up_if, not_run
from .quoted import Quoted

PAPER, ORDER = "[Hou2023]", 2
SYSTEM = "training transport"
TRANSFER, STEP, SAMPLING, CYCLE = "transfer", "gradient step", "environment step", "interval"
FREE, ENOUGH = 0.01, 0.5
"""Share of the learner's time that counts as none; part of the printed share that a queue must cost."""
CONSTANT, SIZES = 0.1, 3
"""How far numbers may lie apart that count as the same; sizes of a queue from which on its laws are judged."""


@dataclass(frozen=True)
class Share:
    """The share of the learner's time that transfers take in one system, and its 95 % bounds."""

    name: str
    middle: float
    low: float
    high: float
    blocks: int


@dataclass(frozen=True)
class Row:
    """A system by a queue of ``size`` records: seconds between transfers, rates in Hz, the share of time lost."""

    size: int
    cycle: float
    sampled: float
    updates: float
    loss: float
    spread: float = 0.0


def verdicts(records: Sequence[Measurement], quoted: Quoted) -> list[Claim]:
    """Judge the cost of shared memory and of a queue, and the laws of Table 3. RecordError if not quoted."""
    systems, printed = _systems(records), _printed(quoted)
    filled = _filled(systems)
    return [_cost(systems, quoted), *_laws(printed, filled), _order(printed, filled)]


def _cost(systems: Mapping[str, Mapping[str, Measurement]], quoted: Quoted) -> Claim:
    queue = quoted.table("hou2023.queue")
    text = (
        f"Shared memory costs the updating process no time, where a queue takes about {queue['wasted_percent']:g} % "
        "(3.3.2)."
    )
    shared, queues = (
        [_share(name, found) for name, found in systems.items() if found[STEP].contestant.startswith(kind)]
        for kind in ("shared", "queue")
    )
    if not shared or not queues:
        return not_run(text, "no system was timed by both", f"a minute of two cores ({how_to_measure('transports')})")
    free, by_share = max(shared, key=lambda one: one.middle), sorted(queues, key=lambda one: one.middle)
    typical = by_share[(len(by_share) - 1) // 2]
    limit = ENOUGH * queue["wasted_percent"] / 100
    widest = max((one.high - one.low) / one.middle for one in (typical, free))
    return Claim(
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


def _systems(records: Sequence[Measurement]) -> dict[str, dict[str, Measurement]]:
    """Collect the columns of each system of one actor on all cores, by what it is of."""
    systems: dict[str, dict[str, Measurement]] = {}
    for record in records:
        is_plain = record.primitive == SYSTEM and record.options.keys() <= {"workload", "rows"}
        if is_plain and record.median_seconds is not None:
            shape = f"{record.contestant}, B = {record.batch:,}, {record.options['rows']} rows a hand-over"
            systems.setdefault(f"{record.options['workload']}, {shape}", {})[record.op] = record
    return {name: found for name, found in systems.items() if {TRANSFER, STEP} <= set(found)}


def _share(name: str, found: Mapping[str, Measurement]) -> Share:
    transfer, step = found[TRANSFER], found[STEP]
    low, high = ((one.low_seconds or one.seconds, one.high_seconds or one.seconds) for one in (transfer, step))
    middle = transfer.seconds / step.seconds
    return Share(name, middle, low[0] / high[1], low[1] / high[0], len(step.samples_seconds))


def _printed(quoted: Quoted) -> list[Row]:
    """Select Table 3's rows of queues, by their size."""
    prefix = "hou2023.table_3.rows.QS"
    sizes = {int(name.removeprefix(prefix).split(".")[0]) for name in quoted.numbers if name.startswith(prefix)}
    rows = {size: quoted.table(f"{prefix}{size}") for size in sorted(sizes)}
    return [Row(size, row["cycle"], row["sampled"], row["updates"], row["loss"] / 100) for size, row in rows.items()]


def _filled(systems: Mapping[str, Mapping[str, Measurement]]) -> dict[str, list[Row]]:
    """Select the systems whose queue is filled first, by workload and batch, where there are enough sizes."""
    filled: dict[str, list[Row]] = {}
    for name, found in systems.items():
        kind, _, size = found[STEP].contestant.partition(" ")
        if kind == "fill" and {CYCLE, SAMPLING} <= set(found):
            share, step = _share(name, found), found[STEP]
            rates = 1 / found[SAMPLING].seconds, 1 / step.seconds, share.middle
            row = Row(int(size), found[CYCLE].seconds, *rates, (share.high - share.low) / 2)
            setting = f"{step.options['workload']}, B = {step.batch:,}"
            filled.setdefault(setting, []).append(row)
    ordered = {setting: sorted(rows, key=lambda row: row.size) for setting, rows in filled.items()}
    return {setting: rows for setting, rows in ordered.items() if len(rows) >= SIZES}


def _laws(printed: Sequence[Row], filled: Mapping[str, Sequence[Row]]) -> list[Claim]:
    """Judge what must be the same at every size, if a transfer moves whole queues in the time that is lost."""
    first, last = printed[0].size, printed[-1].size
    cycle = (
        f"A transfer moves whole queues: cycle x sampling rate / size of the queue is the same from {first:,} to "
        f"{last:,} records (Table 3)."
    )
    time = "The loss is the updater's time: update rate / (1 - loss) is the same at every size of the queue (Table 3)."
    return [
        _constant(cycle, printed, filled, lambda row: row.cycle * row.sampled / row.size),
        _constant(time, printed, filled, lambda row: row.updates / (1 - row.loss)),
    ]


def _constant(
    text: str, printed: Sequence[Row], filled: Mapping[str, Sequence[Row]], law: Callable[[Row], float]
) -> Claim:
    """Judge a number that is to be the same at every size, on printed rows and where queues were filled here."""
    told, apart = [], []
    for name, rows in {"printed": printed, **filled}.items():
        values = [law(row) for row in rows]
        apart.append(max(values) / min(values) - 1)
        sizes = "" if rows is printed else f" at {', '.join(f'{row.size:,}' for row in rows)}"
        told.append(f"{name}{sizes}: {', '.join(f'{value:,.4g}' for value in values)}, {apart[-1]:.1%} apart")
    holds = max(apart) <= CONSTANT
    word = "confirmed" if filled else "adds up"
    return Claim(
        text,
        ("confirmed" if holds else "refuted") if filled else adds_up_if(holds),
        ("" if filled else "arithmetic on its own Table 3: ") + "; ".join(told),
        f"{word} if the largest is at most {CONSTANT:.0%} above the least in every series, refuted otherwise",
        f"medians over blocks of whole transfers, {len(filled)} series; one that follows the size fails by its "
        "several-fold range"
        if filled
        else EXACT,
    )


def _order(printed: Sequence[Row], filled: Mapping[str, Sequence[Row]]) -> Claim:
    """Judge whether larger queues cost less, and tell what a transfer costs besides its records."""
    text = (
        "A larger queue costs the updater less of its time, so that it updates faster (4.2.3, Table 3: loss "
        f"{' > '.join(f'{row.loss:.0%}' for row in printed)}, {' < '.join(f'{row.updates:g}' for row in printed)} Hz)."
    )
    if not filled:
        would = f"minutes of two cores ({how_to_measure('transports')})"
        return not_run(text, f"no queue was filled and then moved, at {SIZES} sizes", would)
    told = [
        f"{name}: loss {', '.join(f'{row.loss:.1%}' for row in rows)}, updates "
        f"{', '.join(f'{row.updates:,.4g}' for row in rows)} Hz; a transfer loses {_line(rows)}"
        for name, rows in {"printed": printed, **filled}.items()
    ]
    ordered = [
        smaller.loss - larger.loss > smaller.spread + larger.spread and smaller.updates < larger.updates
        for rows in filled.values()
        for smaller, larger in itertools.pairwise(rows)
    ]
    return Claim(
        text,
        "confirmed" if all(ordered) else "refuted",
        f"{'; '.join(told)}: the part that no record takes is all that a larger queue saves",
        "confirmed if with every larger size the loss falls by more than its 95 % intervals and updates rise, refuted "
        "otherwise",
        f"{sum(ordered)} of {len(ordered)} steps from a size to the next agree; where all cost the same, one agrees in "
        "2.5 % of cases at most",
    )


def _line(rows: Sequence[Row]) -> str:
    """Say the seconds that a transfer loses as a part of its own and one of each record, by least squares."""
    slope, start = statistics.linear_regression([row.size for row in rows], [row.cycle * row.loss for row in rows])
    return f"{start:,.3g} s and {1e6 * slope:,.3g} us a record of its size"
