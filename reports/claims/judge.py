"""Judge claims: one function gives each its verdict from the values that the named function of its row returns."""

import importlib
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from dse.platforms.files import RESULTS
from dse.records import Record, RecordError, how_to_measure

from . import quoted as quotes
from .quoted import Quoted
from .rows import ONE_SIDED, SHAPES, Bound, Row, read_rows

Verdict = Literal["confirmed", "refuted", "adds up", "consistent", "not testable here"]
VERDICTS: tuple[Verdict, ...] = ("confirmed", "refuted", "adds up", "consistent", "not testable here")
UNTESTED: Verdict = "not testable here"
NEARLY_LINEAR = 0.8
"""Growth counts as linear if every exponent that fits lies above this, as slower if every one lies below."""
HALF = 0.5
"""The least share of the time at the largest size that must grow."""
ROUNDED = 1000
"""From which on evidence has no decimals."""
SHOWN = 6
"""Parts that evidence lists besides the deciding part; of more, the least and the most."""


class PooledError(RecordError):
    """Several cells answer to one point, of a figure or of a claim that names one method."""


@dataclass(frozen=True)
class Part:
    """A value of ours with its interval, of one method or at one point.

    ``printed``: the number that this part is compared with, where each part has its own. ``share``: of the time at the
    largest size, how much grows, where the value is an exponent. ``is_guard``: the part can only refute.
    """

    name: str
    value: float
    low: float
    high: float
    printed: float | None = None
    share: float = 1.0
    is_guard: bool = False

    def tell(self) -> str:
        """Write the part's name, its value and its interval, if it has any width."""
        interval = f" [{_write(self.low)}, {_write(self.high)}]" * (self.low != self.high)
        return f"{self.name} {_write(self.value)}{interval}"

    @classmethod
    def exact(cls, name: str, value: float, printed: float | None = None) -> "Part":
        """Make a part that was computed without error."""
        return cls(name, value, value, value, printed)


@dataclass(frozen=True)
class Finding:
    """The values of ours for a claim: parts, other ``facts`` by name, and the records that were ``used``, if any.

    ``lacks_parts``: something that the claim is about has no value, so that not every part can hold.
    """

    parts: Sequence[Part]
    facts: Mapping[str, float | str] = field(default_factory=dict)
    used: Sequence[Record] = ()
    lacks_parts: bool = False

    @classmethod
    def exact(
        cls, values: Mapping[str, float], printed: float | None = None, facts: Mapping[str, float | str] | None = None
    ) -> "Finding":
        """Make a finding of values by name that were computed without error."""
        return cls([Part.exact(name, value, printed) for name, value in values.items()], facts or {})

    @property
    def utc(self) -> str:
        """When the newest record was made."""
        return max((record.utc for record in self.used), default="")


@dataclass(frozen=True)
class Data:
    """The input of a measured claim: records of one machine by primitive, and the numbers that others printed."""

    records: Mapping[str, Sequence[Record]]
    quoted: Quoted


@dataclass(frozen=True)
class Judgment:
    """A claim with its verdict, our value with its interval, and what they rest on.

    The value is that of the part nearest to the bound; None where there is none. ``printed`` is the number that the
    document states, if any.
    """

    id: str
    paper: str
    place: str
    text: str
    verdict: Verdict
    value: float | None
    low: float | None
    high: float | None
    unit: str
    printed: str | float | None
    evidence: str
    rule: str


def judge_claims(records: Sequence[Record], results: Path) -> list[Judgment]:
    """Judge the claims of all documents, by document and in the order of their rows.

    Each claim is judged by one machine: of those whose records give the most parts, the one with the newest records.
    A claim is not testable where several records answer to one point of it; the evidence names what they differ in.
    RecordError for a row that is wrong, or that needs a number that is not quoted.
    """
    printed = quotes.read(results / "quoted")
    machines: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        machines[record.machine_key][record.primitive].append(record)
    data = [Data(own, printed) for own in machines.values()]
    judgments = []
    for row in read_rows(results / "quoted"):
        try:
            judgments.append(judge(row, find(row, data, printed), printed))
        except PooledError as error:
            judgments.append(replace(judge(row, None, printed), evidence=str(error)))
    return judgments


def list_papers(results: Path = RESULTS) -> list[str]:
    """List the documents whose claims are judged."""
    return list(dict.fromkeys(row.paper for row in read_rows(results / "quoted")))


def find(row: Row, machines: Sequence[Data], printed: Quoted) -> Finding | None:
    """Compute a row's values on every machine; return those with the most parts, of equals with the newest records.

    None where no machine has the records. A row that names no command to ``measure`` is computed from printed numbers.
    """
    if not row.compute:
        return None
    compute = get_function(row.compute)
    sources: Sequence[Any] = (machines or [Data({}, printed)]) if row.measure else [printed]
    computed = [compute(source, **row.given) for source in sources]
    findings = [finding for finding in computed if finding is not None]
    return max(findings, key=lambda finding: (len(finding.parts), finding.utc), default=None)


def get_function(name: str) -> Callable[..., Finding | None]:
    """Return the function that a row names. RecordError where there is none."""
    module, _, function = name.partition(".")
    try:
        compute: Callable[..., Finding | None] = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    except (ImportError, AttributeError) as error:
        raise RecordError(f"reports/claims has no function {name} ({error})") from None
    return compute


def judge(row: Row, found: Finding | None, printed: Quoted) -> Judgment:
    """Give a claim its verdict by its row's rule."""
    parts = found.parts if found else ()
    bounds = [row.find_bounds(printed, part.printed) for part in parts] if row.rule != "not_run" else []
    shown = parts[_find_nearest(row, parts, bounds)] if bounds else None
    verdict = _give_verdict(row, found, bounds) if bounds else UNTESTED
    value, low, high = (shown.value, shown.low, shown.high) if shown else (None, None, None)
    unit, own = row.unit if bounds else "", shown.printed if shown else None
    number = _tell_number(row.find_printed(printed) if own is None else own)
    evidence, rule = _tell_evidence(row, found, shown), _tell_rule(row, printed, shown)
    claim = row.id, row.paper, row.place, row.text
    return Judgment(*claim, verdict, value, low, high, unit, number, evidence, rule)


def _give_verdict(row: Row, found: Finding | None, bounds: Sequence[tuple[float, float]]) -> Verdict:
    assert found is not None
    placed = [_place(row, part, *ends) for part, ends in zip(found.parts, bounds, strict=True)]
    holds = [inside for part, (inside, _) in zip(found.parts, placed, strict=True) if not part.is_guard]
    fails = [outside for _, outside in placed]
    joined = {
        "every": (bool(holds) and all(holds), any(fails)),
        "any": (any(holds), all(fails)),
        "readings": (all(holds), all(fails)),
    }
    is_held, is_refuted = joined[row.joined]
    if found.lacks_parts:
        is_held, is_refuted = is_held and row.joined == "any", is_refuted and row.joined == "every"
    if is_refuted:
        return "refuted"
    if not is_held or row.refutes_only:
        return UNTESTED
    return "consistent" if row.chosen else "confirmed" if found.used else "adds up"


def _place(row: Row, part: Part, least: float, most: float) -> tuple[bool, bool]:
    """Tell whether a part's whole interval is as the claim says, and whether all of it is otherwise."""
    if row.rule in SHAPES:
        linear = part.low > NEARLY_LINEAR and part.share >= HALF
        slower = part.high < NEARLY_LINEAR or part.share < HALF
        return (linear, slower) if row.rule == "linear" else (slower, linear)
    inside = least <= part.low and part.high <= most
    if row.rule in ("above", "below"):
        inside = part.low > least if row.rule == "above" else part.high < most
    return inside, part.high < least or part.low > most


def _find_nearest(row: Row, parts: Sequence[Part], bounds: Sequence[tuple[float, float]]) -> int:
    """Find the part that decides: the worst one where every part must hold, the best one where any does."""

    def spare(place: int) -> float:
        part, (least, most) = parts[place], bounds[place]
        return min(part.value - least, most - part.value) / (abs(part.printed or 1.0) or 1.0)

    real = [place for place, part in enumerate(parts) if not part.is_guard] or list(range(len(parts)))
    return (max if row.joined == "any" else min)(real, key=spare)


def _tell_rule(row: Row, printed: Quoted, shown: Part | None) -> str:
    """Say what confirms a claim; its opposite refutes it, and an interval with the bound inside leaves it open."""
    if row.rule in ("not_run", *SHAPES):
        linear = f"exponent of growth above {NEARLY_LINEAR:g}, and half or more of the time grows"
        slower = f"exponent of growth below {NEARLY_LINEAR:g}, or less than half of the time grows"
        return {"linear": linear, "sublinear": slower}.get(row.rule, "not run")
    own, slack = shown.printed if shown else None, row.digits or row.tolerance
    known = (row.bound, own, row.find_printed(printed), 1.0)
    number = _tell_number(next(number for number in known if number is not None))
    if row.rule in ONE_SIDED and not slack:
        number = next(filter(math.isfinite, row.find_bounds(printed, own)))
    verb = "equal to" if slack and row.rule == "within" else row.rule.replace("_", " ")
    said = f"{verb} {number if isinstance(number, str) else f'{number:,g}'}"
    said += f", tolerance {f'{row.digits:g}' if row.digits else f'{row.tolerance:.3g} of it'}" if slack else ""
    said += {"every": "", "any": ", any part", "readings": ", all readings alike"}[row.joined]
    return said + "; can only refute" * row.refutes_only


def _tell_number(number: Bound | None) -> str | float | None:
    return f"{number['least']:g} to {number['most']:g}" if isinstance(number, Mapping) else number


def _tell_evidence(row: Row, found: Finding | None, shown: Part | None) -> str:
    remedies = [f"it takes {row.takes}"] * bool(row.takes) + [how_to_measure(row.measure)] * bool(row.measure)
    remedy = "; ".join(remedies)
    if found is None:
        said = [f"{'not measured' if row.measure else 'not run'}; {remedy}"]
    else:
        machines = sorted({record.machine_key for record in found.used})
        head = f"measured on {', '.join(machines)}" if machines else "computed"
        said = [f"{head}: {'; '.join([*_tell_parts(found.parts, shown), *_tell_facts(found.facts)])}"]
        said += [remedy] * (row.rule == "not_run")
    return "; ".join([*said, row.note] if row.note else said)


def _tell_parts(parts: Sequence[Part], shown: Part | None) -> list[str]:
    """List parts by their values, the deciding part first; of many also the least and the most."""
    others = sorted((part for part in parts if part is not shown), key=lambda part: part.value)
    half, left = SHOWN // 2, len(others) - SHOWN
    listed = [*others[:half], *others[-half:]] if left > 0 else others
    told = [part.tell() for part in ([shown] if shown else []) + listed]
    return [*told, f"{left} more in between"] if left > 0 else told


def _tell_facts(facts: Mapping[str, float | str]) -> list[str]:
    return [f"{name} {value if isinstance(value, str) else _write(value)}" for name, value in facts.items()]


def _write(value: float) -> str:
    if not math.isfinite(value):
        return "never"
    return f"{value:,.0f}" if abs(value) >= ROUNDED else f"{value:.4g}"
