"""The page's section about whole training loops, ours and other libraries'."""

import math
from collections.abc import Mapping, Sequence

from dse import stats
from dse.records import Record, how_to_measure, in_order, twins

from .. import origins
from ..chart import Material, Section
from ..markup import Cell, items, named, paragraph, table
from ..tidy import commit_of, versions_of
from .replay_cells import factor, rate, times

LOOP = "loop_peer"
OURS = "fanout"  # the loop that others are compared with, and what the names of ours begin with
CLOCKS = {"clean": "clean steps/s", "median": "median steps/s", "cpu": "steps/s of CPU time"}
COMPARED = {"clean": "by clean steps", "cpu": "by CPU time"}
HEAD = ("loop", "replay", *CLOCKS.values(), *(f"times {OURS} {how}" for how in COMPARED.values()), "steps", "ratio")
READING = (
    "Environment steps/s, each with a gradient step (the ratio is counted, and a loop is omitted where it is "
    "not 1 within 0.01), with 95 % intervals over interleaved blocks of time, each loop in a process of "
    "its own on one core. A clean step is the 10th percentile of a block: a step that nothing disturbed. Steps/s of "
    "CPU time divide by the time that the process computed. The same environment, network, batch, size of the buffer "
    "and learning rate for all; what else differs stands below the table; bold is ours, green the fastest. * rests on "
    "an unstable timing, whose interval is wide."
)
Ops = Mapping[str, Record]


def section(material: Material) -> str:
    """Return everything known about whole training loops, as HTML."""
    every = [record for record in material.measurements if record.primitive.startswith(LOOP)]
    if not every:
        return paragraph(f"Left out: no training loop was timed; {how_to_measure('run loops')}.")
    latest = {"batch" in record.options: record.utc for record in in_order(every)}  # a moment a run, one by batches
    run = [record for record in every if record.utc == latest["batch" in record.options]]
    loops: dict[str, dict[str, Record]] = {}
    for record in run:
        if record.primitive == LOOP:
            loops.setdefault(label(record), {})[record.op] = record
    timed = {name: ops for name, ops in loops.items() if all(op in ops and ops[op].samples_seconds for op in CLOCKS)}
    ordered = sorted(timed, key=lambda name: timed[name]["clean"].seconds)
    floor = stats.noise_floor(twins(run, LOOP))
    notes = [
        f"{name}: {'; '.join(filter(None, [versions_of(timed[name]['clean']), timed[name]['clean'].reason]))}."
        for name in ordered
    ]
    absent = [
        f"Not timed, {name}: {next(iter(ops.values())).reason}." for name, ops in loops.items() if name not in timed
    ]
    answers = [_answer(name, timed, floor) for name in ordered if _is_ours(timed[name])]
    return (
        (items(answers) if answers else "")
        + paragraph(f"{READING} {_origin(run, floor, len(every) - len(run))}")
        + table(HEAD, [_row(name, timed, ordered[0]) for name in ordered])
        + items([*notes, *absent])
    )


def label(record: Record) -> str:
    """Name a record's loop, with its environments where there are several, and its batch where one was asked for."""
    count = record.options.get("environments", 1)
    return record.contestant + (f", {count} environments" if count > 1 else "") + _batch(record)


def _batch(record: Record) -> str:
    return f", B = {record.batch:,}" * ("batch" in record.options)


def _answer(name: str, timed: Mapping[str, Ops], floor: float) -> str:
    """Say the speedup of this loop over the fastest of other libraries, by clean steps."""
    ours = timed[name]["clean"]
    every = {other: ops["clean"] for other, ops in timed.items() if not _is_ours(ops)}
    theirs = {other: record for other, record in every.items() if _batch(record) == _batch(ours)}
    parts = []
    for replay, samples in (("prioritized", "samples by priorities"), ("uniform", "samples uniformly")):
        rivals = {other: record for other, record in theirs.items() if record.options.get("replay") == replay}
        if rivals:
            fastest = min(rivals, key=lambda other: rivals[other].seconds)
            ahead = times([rivals[fastest]], [ours])
            tie = ", a tie within the noise" * (abs(math.log(ahead.middle)) <= floor)
            parts.append(
                f"{ahead.said(factor)} as fast as {fastest}, the fastest loop of another library that {samples}{tie}"
            )
    own = f"{name} trains {ours.options.get('workload')} at {rate(ours).said(_count)} clean steps/s (measured)"
    return f"{own}: {'; '.join(parts)}." if parts else f"{own}."


def _is_ours(ops: Ops) -> bool:
    return ops["clean"].contestant.startswith(OURS)


def _row(name: str, timed: Mapping[str, Ops], best: str) -> list[Cell]:
    ops = timed[name]
    record = ops["clean"]
    rates = {op: rate(ops[op]).said(_count) for op in CLOCKS}
    base = timed.get(OURS + _batch(record))
    ahead = dict.fromkeys(COMPARED, "1" if ops is base else "")
    if base and ops is not base:
        ahead = {op: times([base[op]], [ops[op]]).said(factor) for op in COMPARED}
    ratio = record.metrics["gradient_steps"] / record.metrics["steps"]
    return [
        named(name, _is_ours(ops)),
        Cell(str(record.options.get("replay"))),
        *(Cell(said, f"number {'best' if name == best and op == 'clean' else ''}") for op, said in rates.items()),
        *(Cell(said, "number") for said in ahead.values()),
        Cell(f"{record.metrics['steps']:,}"),
        Cell(f"{ratio:.3f}"),
    ]


_count = "{:,.0f}".format


def _origin(run: Sequence[Record], floor: float, left_out: int) -> str:
    commits = ", ".join(sorted({commit_of(record, "with uncommitted changes") for record in run}))
    left = f" {left_out} records of other runs are omitted." if left_out else ""
    return (
        f"Source: measured on {run[-1].machine.get('cpu')}, at {commits}, "
        f"{origins.span(one.utc for one in run)}; a loop timed twice differs by up to {floor:.1%}.{left}"
    )


SECTIONS = (Section(57, "Training loops", section, (LOOP,)),)
