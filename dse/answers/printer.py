"""Print an answer: the choice first, what to paste, what limits it and the next best; all tables with --verbose."""

import argparse
import itertools
import json
import string
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from impls.terminal import COMMAND, aligned, listed, plural

from .answer import Answer, Row, Values
from .words import HEADS, SENTENCES

WIDTH = 116
WIDE = 0.2  # of an interval, beyond which no third digit is known
UNSURE = 10.0  # high over low, beyond which what to measure comes before the number
LEVELS = ("first", "warning")
EQUAL = 0.0005  # of two rates whose difference does not show


def show(answer: Answer, options: argparse.Namespace) -> int:
    """Print an answer as text, or as JSON if ``options`` say so; returns the exit code 0."""
    print(json.dumps(answer.to_dict()) if options.json else "\n".join(write(answer, options.verbose)))
    return 0


def write(answer: Answer, is_verbose: bool = False) -> Iterator[str]:
    """Write the lines of an answer."""
    yield from write_first_screen(answer)
    if not is_verbose:
        yield f"  {SENTENCES['more']}"
        return
    for name in ("rows", "others", "decides"):
        for _, table in itertools.groupby(getattr(answer, name), lambda row: (tuple(row.label), row.unit)):
            yield ""
            yield from write_table(tuple(table))
    yield ""
    for note in answer.notes:
        if note.level == "detail":
            yield from wrap(say(note.kind, note.values))


def write_first_screen(answer: Answer) -> Iterator[str]:
    """Write what a reader must know: what to measure first if the number is unsure, the choice, what decides."""
    notes = {level: [note for note in answer.notes if note.level == level] for level in LEVELS}
    told: list[tuple[str, Values]] = [(row.says, row.values) for row in answer.decides[:1] if row.says]
    estimate = answer.choice.estimate
    is_unsure = estimate is not None and estimate.high > UNSURE * estimate.low
    if is_unsure:
        yield from itertools.chain.from_iterable(wrap(say(*each), "") for each in told)
    yield from wrap(say(answer.choice.says, answer.choice.values), "")
    yield from (f"  {line}" for line in answer.paste)
    after: list[tuple[str, Values]] = [(note.kind, note.values) for note in notes["first"]] + (
        [] if is_unsure else told
    )
    after[1:1] = [(row.says, row.values) for row in answer.others[:1] if row.says]
    yield from itertools.chain.from_iterable(wrap(say(*each)) for each in after)
    for note in notes["warning"]:
        yield from wrap(f"warning: {say(note.kind, note.values)}")


def wrap(sentence: str, indent: str = "  ") -> list[str]:
    """Break a sentence into lines; a command that is to be copied stays in one, however long it is."""
    tied = COMMAND.sub(lambda command: command[0].replace(" ", "\0"), sentence)
    wrapper = textwrap.TextWrapper(WIDTH, indent, f"{indent}  ", break_on_hyphens=False, break_long_words=False)
    return [line.replace("\0", " ") for line in wrapper.wrap(tied)]


def say(kind: str, values: Mapping[str, Any]) -> str:
    """Write the sentence of a kind with these values."""
    return str(_Sentence().vformat(SENTENCES[kind], (), values))


class _Sentence(string.Formatter):
    """A formatter of templates, whose fields may end in a noun, ``us``, ``share``, ``pace`` or ``list``.

    >>> _Sentence().format("{n:batch}, {t:us}, {s:share}, {words:list}", n=2, t=0.0015, s=0.024, words=["a", "b"])
    '2 batches, 1,500 us, 2.4 %, a and b'
    """

    def format_field(self, value: Any, spec: str) -> str:
        if isinstance(value, Row):
            return write_estimate(value)
        if spec == "list":
            return listed([*map(str, value)])
        if spec in _FORMATS:
            return _FORMATS[spec](value)
        return plural(value, spec) if spec else write_value(value)


def write_estimate(row: Row) -> str:
    """Write a row's number as a range, with its source.

    >>> from dse.estimate import Estimate, Evidence
    >>> write_estimate(Row({}, Estimate(740.0, 240.0, 2300.0, Evidence("law", "modeled")), "steps/s", is_bound=True))
    'at most 740 steps/s (240 to 2,300, modeled)'
    """
    if row.estimate is None:
        return "no number"
    number, source = row.estimate, row.estimate.source
    scale, unit = (1e6, "us") if row.unit == "s" else (1.0, row.unit)
    middle, low, high = (
        rounded(scale * end, number.low, number.high) for end in (number.value, number.low, number.high)
    )
    ends = f"{source}" if low == high else f"{low} to {high}, {source}"
    most = "at most " if row.is_bound else "" if low == high else "about "
    return f"{most}{middle} {unit} ({ends})"


def write_table(rows: Sequence[Row]) -> Iterator[str]:
    """Write rows with equal labels as a table: labels, the number with its ends and its source, other plain values."""
    unit, lines = rows[0].unit, list[dict[str, str]]()
    for row in rows:
        cells = {head(key): write_cell(key, value) for key, value in row.label.items()}
        if row.estimate:
            scale, value = 1e6 if unit == "s" else 1.0, row.estimate
            ends = [rounded(scale * end, value.low, value.high) for end in (value.value, value.low, value.high)]
            cells["us" if unit == "s" else unit] = (
                ends[0] if ends[1] == ends[2] else f"{ends[0]} [{ends[1]}, {ends[2]}]"
            )
            cells["source"] = value.source
        lines.append(cells | {head(key): write_cell(key, each) for key, each in row.more.items() if is_plain(each)})
    heads = list(dict.fromkeys(key for cells in lines for key in cells))
    kept = [key for key in heads if any(cells.get(key) for cells in lines)]
    yield from aligned([kept, *([cells.get(key, "") for key in kept] for cells in lines)], "  ")


def head(key: str) -> str:
    """Return the head of a column.

    >>> head("feed_hz"), head("round_seconds"), head("is_tied")
    ('feed/s', 'round us', 'tied')
    """
    known = key.removeprefix("is_").replace("_seconds", " us").replace("_hz", "/s").replace("_", " ")
    return HEADS.get(key, known)


def is_plain(value: Any) -> bool:
    """Return whether a value has room in a cell of a table."""
    return not isinstance(value, Mapping) and not (isinstance(value, (list, tuple)) and len(value) > 3)


def write_cell(key: str, value: Any) -> str:
    """Write a value as a cell of the column that has this key."""
    if key.endswith("seconds") and isinstance(value, float):
        return write_time(value).removesuffix(" us")
    if key.endswith(("share", "loss", "slower", "utilization")) and isinstance(value, float):
        return percent(value)
    return write_value(value)


def write_value(value: Any) -> str:
    """Write a value: yes or nothing for a bool, three digits of a float.

    >>> [write_value(value) for value in (True, None, 12345, 1234.5, 0.25, ("a", "b"))]
    ['yes', '', '12,345', '1,230', '0.25', 'a, b']
    """
    if value is None or value is False:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(write_value, value))
    return (
        "yes"
        if value is True
        else rounded(value)
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


def rounded(value: float, low: float | None = None, high: float | None = None) -> str:
    """Round to three digits, or to fewer where the interval is wide: as many as are known, and two at least.

    >>> rounded(683.1, 97.1, 3634.0), rounded(132.2, 127.0, 135.0), rounded(110866)
    ('680', '132', '111,000')
    """
    return f"{round_as_shown(value, low, high):,.10g}"


def round_as_shown(value: float, low: float | None = None, high: float | None = None) -> float:
    """Return the number that ``rounded`` writes."""
    digits = 3 if low is None or high is None or high <= (1 + WIDE) * low else 2
    return float(f"{value:.{digits}g}")


def write_time(seconds: float) -> str:
    """Write a time in microseconds."""
    return f"{rounded(seconds * 1e6)} us"


def write_pace(ratio: float) -> str:
    """Write how fast something is next to the choice.

    >>> write_pace(0.84), write_pace(1.25), write_pace(1.0)
    ('16 % slower', '25 % faster', 'as fast')
    """
    return "as fast" if abs(ratio - 1) < EQUAL else f"{percent(abs(ratio - 1))} {'faster' if ratio > 1 else 'slower'}"


def percent(share: float) -> str:
    """Write a share.

    >>> percent(0.0241), percent(0.416), percent(-0.00001), percent(0.998)
    ('2.4 %', '42 %', '0 %', '100 %')
    """
    return f"{float(f'{100 * share:.2g}'):,.10g} %" if abs(share) >= 0.0005 else "0 %"


_FORMATS: Mapping[str, Callable[[float], str]] = {"us": write_time, "share": percent, "pace": write_pace}
