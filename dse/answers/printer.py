"""Print an answer: the choice first, what to paste, what limits it and the next best; all tables with --verbose."""

import argparse
import itertools
import json
import math
import string
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import impls
from impls.terminal import COMMAND, aligned, listed, plural

from ..answer import Answer, Level, Row
from .words import ARRANGED, COUNTED, FACTS, HEADS, NO_DIFFERENCE, SENTENCES

WIDTH = 116
WIDE = 0.2  # of an interval, beyond which no third digit is known
LINES = 8  # of a first screen
UNSURE = 10.0  # high over low, beyond which what to measure comes before the number
ROOM = 60  # characters of what an alternative differs in
EQUAL = 0.0005  # of two rates whose difference does not show


def show(answer: Answer, options: argparse.Namespace) -> int:
    """Print an answer as text, or as JSON if ``options`` say so; returns the exit code: 0, or 1 where nothing fits."""
    print(json.dumps(answer.to_dict()) if options.json else "\n".join(write(answer, options.verbose)))
    return 0 if answer.choice else 1


def show_start(answer: Answer, as_json: bool) -> None:
    """Print what will run: its warnings, the choice, its table and notes; as JSON the warnings, to standard error."""
    lines = _wrap_notes(answer, "warning")
    if not as_json and answer.choice:
        tables = write_table(answer.rows) if answer.rows else ()
        lines += [say(answer.choice.says, answer.choice.values), *tables, *_wrap_notes(answer, "first", "  ")]
    if lines:
        print("\n".join(lines), file=sys.stderr if as_json else sys.stdout, flush=True)


def show_end(answer: Answer, as_json: bool) -> None:
    """Print the notes on what has run, or all of it as JSON."""
    print(json.dumps(answer.to_dict()) if as_json else "\n".join(_wrap_notes(answer, "first")))


def _wrap_notes(answer: Answer, level: Level, indent: str = "") -> list[str]:
    begin = "warning: " * (level == "warning")
    return [line for sentence in _say_notes(answer, level) for line in wrap(begin + sentence, indent)]


def write(answer: Answer, is_verbose: bool = False) -> Iterator[str]:
    """Write the lines of an answer."""
    yield from write_first_screen(answer, math.inf if is_verbose else LINES)
    if not is_verbose:
        yield from [f"  {SENTENCES['more']}"] if answer.choice else []
        return
    for name in ("rows", "others", "decides"):
        for _, table in itertools.groupby(getattr(answer, name), lambda row: (tuple(row.label), row.unit)):
            yield ""
            yield from write_table(tuple(table))
    yield ""
    for note in answer.notes:
        if note.level == "detail":
            yield from wrap(say(note.kind, note.values))


def write_first_screen(answer: Answer, most: float = LINES) -> Iterator[str]:
    """Write what a reader must know in so many lines: the choice, what limits it, the next best, what decides.

    What to measure comes first if the number is unsure. Warnings are never dropped; of other notes what has no room is.
    """
    estimate = answer.choice.estimate if answer.choice else None
    measure = _say_notes(answer, "measure")
    is_unsure = estimate is not None and estimate.high > UNSURE * estimate.low
    begin = wrap(measure[0], "") if is_unsure and measure else []
    said = _say_notes(answer, "first")
    begin.append(say(answer.choice.says, answer.choice.values) if answer.choice else said.pop(0))
    begin += [f"  {line}" for line in answer.paste]
    warnings = _wrap_notes(answer, "warning", "  ")
    first = [wrap(sentence) for sentence in said]
    rows = [wrap(say(row.says, row.values)) for row in (*answer.others[:1], *answer.decides[:1]) if row.says]
    sentences = [*first[:1], *rows, *first[1:], *map(wrap, measure[is_unsure:])]
    room = most - 1 - len(begin) - len(warnings) if answer.choice else math.inf
    yield from begin
    for lines in sentences:
        # Invariant: ``room`` lines are free, of those that the last line and the warnings leave.
        if len(lines) <= room:
            yield from lines
            room -= len(lines)
    yield from warnings


def _say_notes(answer: Answer, level: Level) -> list[str]:
    return [say(note.kind, note.values) for note in answer.notes if note.level == level]


def wrap(sentence: str, indent: str = "  ") -> list[str]:
    """Break a sentence into lines; a command that is to be copied stays in one, however long it is."""
    tied = COMMAND.sub(lambda command: command[0].replace(" ", "\0"), sentence)
    wrapper = textwrap.TextWrapper(WIDTH, indent, f"{indent}  ", break_on_hyphens=False, break_long_words=False)
    return [line.replace("\0", " ") for line in wrapper.wrap(tied)]


def say(kind: str, values: Mapping[str, Any]) -> str:
    """Write the sentence of a kind with these values."""
    return str(_Sentence().vformat(SENTENCES[kind], (), values))


class _Sentence(string.Formatter):
    """A formatter of templates, whose fields may end in a noun or a key of ``_FORMATS``.

    >>> _Sentence().format("{n:batch}, {t:us}, {s:share}, {words:list}", n=2, t=0.0015, s=0.024, words=["a", "b"])
    '2 batches, 1,500 us, 2.4 %, a and b'
    """

    def format_field(self, value: Any, spec: str) -> str:
        if spec in _FORMATS:
            return _FORMATS[spec](value)
        return plural(value, spec) if spec else write_value(value)


def write_range(number: Mapping[str, Any]) -> str:
    """Write a row's number as a range, with its source.

    >>> write_range({"value": 740.0, "low": 240.0, "high": 2300.0, "unit": "steps/s", "source": "modeled"})
    'about 740 steps/s (240 to 2,300, modeled)'
    """
    scale, unit = (1e6, "us") if number["unit"] == "s" else (1.0, number["unit"])
    ends = number["low"], number["high"]
    middle, low, high = (rounded(scale * end, *ends) for end in (number["value"], *ends))
    said = number["source"] if low == high else f"{low} to {high}, {number['source']}"
    most, about = "at most " * number.get("upper_bound", False), "about " * (low != high)
    return f"{most}{about}{middle} {unit} ({said})"


def write_table(rows: Sequence[Row]) -> Iterator[str]:
    """Write rows with equal labels as a table: labels, the number with its ends and its source, other plain values."""
    unit, lines = rows[0].unit, list[dict[str, str]]()
    for row in rows:
        cells = {head(key): write_cell(key, value) for key, value in row.label.items()}
        if row.estimate:
            scale, value = 1e6 if unit == "s" else 1.0, row.estimate
            ends = (scale * end for end in (value.value, value.low, value.high))
            cells["us" if unit == "s" else unit] = write_ends(*ends)
            cells["source"] = value.source
        lines.append(cells | {head(key): write_cell(key, cell) for key, cell in row.more.items() if is_plain(cell)})
    heads = list(dict.fromkeys(key for cells in lines for key in cells))
    kept = [key for key in heads if any(cells.get(key) for cells in lines)]
    yield from aligned([kept, *([cells.get(key, "") for key in kept] for cells in lines)], "  ")


def head(key: str) -> str:
    """Return the head of a column.

    >>> head("feed_hz"), head("update_units")
    ('actors: steps supplied/s', 'update units')
    """
    return HEADS.get(key, key.replace("_", " "))


def is_plain(value: Any) -> bool:
    """Return whether a value has room in a cell of a table."""
    return "unit" in value if isinstance(value, Mapping) else not isinstance(value, list | tuple) or len(value) <= 3


def write_cell(key: str, value: Any) -> str:
    """Write a value as a cell of the column that has this key."""
    if key == "commit":
        return str(value or "none")[:8]
    if key == "differs":
        return write_difference(value)
    if key.endswith("seconds") and isinstance(value, float):
        return rounded(1e6 * value)
    if key.endswith(("share", "loss", "gain", "chance", "slower", "utilization")) and isinstance(value, float):
        return percent(value)
    return write_value(value)


def write_value(value: Any) -> str:
    """Write a value: yes or nothing for a bool, three digits of a float.

    >>> [write_value(value) for value in (True, None, 12345, 1234.5, 0.25, ("a", "b"))]
    ['yes', '', '12,345', '1,230', '0.25', 'a, b']
    """
    if value is None or isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(write_value, value))
    if isinstance(value, Mapping) and "unit" in value:
        return f"{write_ends(value['value'], value['low'], value['high'])} {value['source']}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={inner}" for key, inner in value.items())
    if isinstance(value, float):
        return rounded(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


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


def write_ends(value: float, low: float, high: float) -> str:
    """Write a number with its ends.

    >>> write_ends(740.0, 240.0, 2300.0)
    '740 [240, 2,300]'
    """
    middle, least, most = (rounded(end, low, high) for end in (value, low, high))
    return middle if least == most else f"{middle} [{least}, {most}]"


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
    """Write a share as a percentage.

    >>> percent(0.0241), percent(0.416), percent(-0.00001), percent(12.3)
    ('2.4 %', '42 %', '0 %', '1,200 %')
    """
    return f"{float(f'{100 * share:.2g}'):,.10g} %" if abs(share) >= EQUAL else "0 %"


def write_worth(ratio: float) -> str:
    """Write how good a value is next to the choice's: of a rate, or of steps per joule.

    >>> write_worth(0.84), write_worth(1.25), write_worth(1.0)
    ('16 % worse', '25 % better', 'as good')
    """
    return "as good" if abs(ratio - 1) < EQUAL else f"{percent(abs(ratio - 1))} {'better' if ratio > 1 else 'worse'}"


def write_where(found: Mapping[str, Sequence[str]]) -> str:
    """Write what each device does.

    >>> write_where({"gpu": ["learner"], "cpu": ["tree", "records", "4 actors"]})
    'learner on gpu; tree, records and 4 actors on cpu'
    """
    return "; ".join(f"{listed(parts)} on {device}" for device, parts in found.items())


def write_difference(found: Mapping[str, Any]) -> str:
    """Write what an alternative has and the choice has not; where that takes much room, without some implementations.

    >>> write_difference({"arrangement": "apart", "learner": ("gpu", "torch"), "depth": 2})
    'apart, learner on gpu (torch), 2 batches ahead'
    """
    brief, full = list[str](), list[str]()
    for key, value in found.items():
        if isinstance(value, (list, tuple)):
            full.append(f"{key} on {value[0]}" + (f" ({value[1]})" if value[1] not in (key, "records") else ""))
            brief.append(full[-1] if key in ("actors", "learner") else f"{key} on {value[0]}")
        else:
            words = plural(value, "batch") + " ahead" if key == "depth" else str(value)
            brief.append(words)
            full.append(words)
    is_long = sum(map(len, full)) > ROOM
    return ", ".join(brief if is_long else full)


def write_bytes(count: float) -> str:
    """Write bytes in the unit that suits them.

    >>> write_bytes(4.295e9), write_bytes(2e6)
    ('4.29 GB', '2 MB')
    """
    return f"{count / 1e9:,.3g} GB" if count >= 1e9 else f"{count / 1e6:,.3g} MB"


def write_tree(tree: Mapping[str, Any]) -> str:
    """Write what a tree is made with.

    >>> write_tree({"implementation": "numba", "fanout": 16, "threads": 2, "options": {"propagate": "delta"}})
    'numba, K = 16, propagate = delta, 2 threads'
    """
    kind = impls.traits(tree["implementation"])
    words = [f"K = {tree['fanout']}"] if kind.uses_fanout else []
    words += [f"{key} = {value}" for key, value in tree["options"].items()]
    return ", ".join([tree["implementation"], *words, *([plural(tree["threads"], "thread")] if kind.threaded else [])])


def write_unlike(found: Mapping[str, tuple[Any, Any]]) -> str:
    """Write in which facts two machines differ; numbers but cores are bytes.

    >>> write_unlike({"cores": (2, 8), "L3": (32 << 20, None), "vector_sets": (["avx"], [])})
    'cores (2 here, 8 there), L3 (32 MiB here, none known there) and vector instructions (only here: avx)'
    """
    said = []
    for fact, (here, there) in found.items():
        if isinstance(here, list):
            sides = [f"only {side}: {', '.join(names)}" for side, names in (("here", here), ("there", there)) if names]
            said.append(f"{FACTS[fact]} ({'; '.join(sides)})")
        else:
            mine, theirs = (str(value) if fact in COUNTED else _write_fact(value) for value in (here, there))
            said.append(f"{FACTS.get(fact, fact)} ({mine} here, {theirs} there)")
    return listed(said) or NO_DIFFERENCE


def _write_fact(value: Any) -> str:
    if isinstance(value, int):
        return f"{value / 2**20:g} MiB" if value >= 1 << 20 else f"{value / 2**10:g} KiB"
    return "none known" if value is None else str(value)


def write_moves(moved: Mapping[str, Mapping[str, Any]]) -> str:
    """Write what moving a batch takes, by direction."""
    return listed([
        f"{move['seconds'] * 1e6:.2f} us {way} (B={move['batch']:,}, {move['source']})" for way, move in moved.items()
    ])  # fmt: skip


_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "s": "{:.1f} s".format,
    "ns": lambda seconds: f"{rounded(1e9 * seconds)} ns",
    "tree": write_tree,
    "us": write_time,
    "share": percent,
    "pace": write_pace,
    "worth": write_worth,
    "list": lambda words: listed([*map(str, words)]),
    "where": write_where,
    "arranged": ARRANGED.__getitem__,
    "range": write_range,
    "about": lambda value: rounded(value, 0.0, value),
    "differs": write_difference,
    "bytes": write_bytes,
    "unlike": write_unlike,
    "moves": write_moves,
    "facts": lambda facts: listed([FACTS.get(fact, fact) for fact in facts]),
    "then": ", then ".join,
    "settings": lambda values: ", ".join(f"{key}={value}" for key, value in values.items()),
    "shares": lambda shares: ", ".join(f"{percent(share)} at {name}" for name, share in shares.items()),
}
"""How fields of sentences are written, by what stands after their colon."""
