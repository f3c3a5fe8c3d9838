"""What the records of whole replay buffers say: their names, sums of operations, and ratios with 95 % intervals."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse import stats
from dse.records import Record, how_to_measure, twins
from impls.replay.registry import strategies
from reports.claims.lock_claims import one_run

from .. import origins
from ..markup import paragraph
from ..tidy import commit_of, sources_of, timed, untimed

REPLAY = "replay_"  # what the primitives of all parts begin with
COMPILED, REUSED, IN_PYTHON = "replay", "replay_reused", "prioritized_buffer"
OURS = (COMPILED, REUSED, IN_PYTHON)
SUMMED = (("insert", 1), ("sample", 256), ("update", 256))
UNSTABLE = "*"
MARKS = f"{UNSTABLE} rests on an unstable timing, whose interval is wide; intervals are of 95 %."
REMARKS = {"none": "no lock: a bound, not right", "two_lock_lazy": "as printed: may tear a record"}
"""Strategies that are not right, each with the reason."""


@dataclass(frozen=True)
class Value:
    """A number computed of medians, with its 95 % interval; unstable where a timing that it rests on is."""

    middle: float
    low: float
    high: float
    is_unstable: bool = False

    def said(self, write: Callable[[float], str]) -> str:
        """Write it with its interval, each number by ``write``, and the mark of what is unstable."""
        ends = f" [{write(self.low)}, {write(self.high)}]" if self.low == self.low else ""
        return f"{write(self.middle)}{ends}{UNSTABLE * self.is_unstable}"


def factor(value: float) -> str:
    """Write a ratio.

    >>> factor(1.234), factor(56.78)
    ('1.23x', '56.8x')
    """
    return f"{value:,.2f}x" if value < 10 else f"{value:,.1f}x"


def microseconds_of(record: Record | None) -> str:
    """Write the microseconds of a call, marked where unstable; nothing without a record."""
    return "" if record is None else microseconds(record.seconds) + UNSTABLE * (record.status == "unstable")


def microseconds(seconds: float) -> str:
    """Write seconds as microseconds.

    >>> microseconds(3.84e-6), microseconds(1.2345e-3), microseconds(2.5e-8)
    ('3.84', '1,234', '0.025')
    """
    us = 1e6 * seconds
    return (
        f"{us:,.0f}" if abs(us) >= 1_000 else f"{us:.1f}" if abs(us) >= 10 else f"{us:.2f}" if us >= 1 else f"{us:.3f}"
    )


def computed(records: Sequence[Record], of: Callable[..., Any]) -> Value:
    """Compute a number of the records' medians; its interval is that of bootstrapped medians, independent of each
    other. No interval where a record has no samples."""
    drawn: list[NDArray[np.float64]] = [
        stats.bootstrap_medians(record.samples_seconds, seed) if record.samples_seconds else np.full(1, np.nan)
        for seed, record in enumerate(records)
    ]
    low, high = stats.percentile_interval(of(*drawn))
    middle = float(of(*(record.seconds for record in records)))
    return Value(middle, min(low, middle), max(high, middle), any(record.status == "unstable" for record in records))


def total(records: Sequence[Record]) -> Value:
    """Add up the medians of some times."""
    return computed(records, lambda *each: sum(each))


def times(base: Sequence[Record], new: Sequence[Record]) -> Value:
    """Divide the sum of some times by that of others: the speedup of ``new`` over ``base``."""
    return computed([*new, *base], lambda *each: sum(each[len(new) :]) / sum(each[: len(new)]))


def rate(record: Record) -> Value:
    """Return the throughput of a record, in calls/s."""
    return computed([record], lambda seconds: 1 / seconds)


@dataclass(frozen=True)
class Part:
    """The records of one part of the command replay, of one commit and N, by strategies that there are.

    ``left_out`` counts all others.
    """

    name: str
    run: Sequence[Record]
    left_out: int

    @property
    def primitive(self) -> str:
        """The primitive of its records."""
        return REPLAY + self.name

    @property
    def cells(self) -> list[Record]:
        """Its records with a time, without the A/A twins."""
        return [record for record in timed(self.run) if record.primitive == self.primitive]

    @property
    def absent(self) -> list[Record]:
        """Its records without a time."""
        return untimed(self.run, self.primitive)


def part(measurements: Iterable[Record], name: str) -> Part:
    """Select the records of a part."""
    own = [record for record in measurements if record.primitive.removesuffix("_again") == REPLAY + name]
    there = (None, *strategies())
    run = [one for one in one_run(own, REPLAY + name) if one.options.get("strategy") in there]
    return Part(name, run, len(own) - len(run))


def strategy(record: Record) -> str:
    """Return the strategy of the compiled replay, or the name of another buffer."""
    return str(record.options.get("strategy", record.contestant))


def label(record: Record) -> str:
    """Name a record's implementation: a library, or ours by its strategy."""
    return strategy(record) + ", arrays reused" * (record.contestant == REUSED)


def remarked(name: str) -> str:
    """Return a strategy's name with the remark that it is not right, where it is not."""
    return f"{name} ({REMARKS[name]})" if name in REMARKS else name


def default_strategy(measurements: Iterable[Record]) -> str:
    """Return the strategy that the command measures in the parts of only one, else the first of the records."""
    of_one = [REPLAY + "parts", REPLAY + "batches"]
    ours = [record for record in measurements if record.contestant in (COMPILED, REUSED)]
    alone = [record for record in ours if record.primitive in of_one or record.contestant == REUSED]
    return strategy((alone or ours)[0]) if ours else ""


@dataclass(frozen=True)
class Operations:
    """The times of each implementation, and who is compared: ours by default, the plain buffer, the best library."""

    cells: dict[str, dict[tuple[str, int], Record]]
    ours: str
    is_ours: dict[str, bool]

    @property
    def in_order(self) -> list[str]:
        """The implementations, the least sum first, those without one last."""
        return sorted(self.cells, key=lambda name: total(self.sum_of(name)).middle if self.sum_of(name) else np.inf)

    def sum_of(self, name: str) -> list[Record]:
        """Return the operations of an implementation that are added up; none where one of them lacks a time."""
        cells = self.cells.get(name, {})
        return [cells[key] for key in SUMMED] if all(key in cells for key in SUMMED) else []

    def ahead_of(self, name: str | None) -> Value | None:
        """The speedup of ours over an implementation, by default; None where one of both has no sum."""
        theirs, ours = self.sum_of(name or ""), self.sum_of(self.ours)
        return times(theirs, ours) if theirs and ours else None


def operations(cells: Sequence[Record], default: str) -> Operations:
    """Compare the operations of all implementations."""
    groups: dict[str, dict[tuple[str, int], Record]] = {}
    for record in cells:
        groups.setdefault(label(record), {})[record.op, record.batch] = record
    return Operations(groups, default, {label(record): record.contestant in OURS for record in cells})


def sentence(compared: Operations) -> str:
    """Say the factor over the best other library and over the plain buffer; "" where neither was measured."""
    parts, others = [], (name for name in compared.in_order if not compared.is_ours[name] and compared.sum_of(name))
    for who, name in (("the best other library", next(others, None)), ("the plain buffer in Python", IN_PYTHON)):
        ahead = compared.ahead_of(name)
        if name and ahead:
            called = "PrioritizedBuffer" if name == IN_PYTHON else name
            parts.append(f"{ahead.said(factor)} as fast as {who}, {called}")
    if not parts:
        return ""
    calls = ", ".join(f"{op}({batch})" for op, batch in SUMMED)
    us = total(compared.sum_of(compared.ours)).said(microseconds)
    ours = f"the compiled replay ({compared.ours})"
    return f"The sum of {calls} takes {us} us in {ours}: it is {', and '.join(parts)} (measured)."


def origin(of: Part) -> str:
    """Say where, when and at which commit a part was measured, and how large its noise is."""
    record, pairs = of.run[-1], twins(of.run, of.primitive)
    noise = (
        f"noise floor {stats.noise_floor(pairs):.1%} over {len(pairs)} A/A pairs" if pairs else "its noise is unknown"
    )
    left = f" {of.left_out} records of other runs, N or strategies are omitted." if of.left_out else ""
    return (
        f"Source: {sources_of(of.run)} on {record.machine.get('cpu')}, {record.machine.get('cores')} cores, at "
        f"{commit_of(record, 'with uncommitted changes')}, {origins.span(one.utc for one in of.run)}; implementations "
        f"took turns; {noise}.{left}"
    )


def left_out(name: str) -> str:
    return paragraph(f"Left out, {name}: not measured on this machine; {how_to_measure(f'run replay --only {name}')}.")
