"""Share what commands have in common: help, lines, numbers, and whose records an answer rests on."""

import argparse
import inspect
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from impls.terminal import COMMAND

from ..estimate import Estimate, Evidence, Interval, off, written

WIDTH = 116
WIDE = 0.2  # of an interval, beyond which no third digit is known


def add_command(commands: Any, name: str, summary: str, about: str | None, example: str) -> argparse.ArgumentParser:
    """Add a command whose help begins with its question, a docstring, and ends with an ``example`` to paste."""
    raw = argparse.RawDescriptionHelpFormatter
    about, epilog = inspect.cleandoc(about or ""), f"example:\n  python -m dse {example}"
    parser = commands.add_parser(name, help=summary, description=about, epilog=epilog, formatter_class=raw)
    return cast(argparse.ArgumentParser, parser)


def wrapped(sentence: str, indent: str = "  ") -> list[str]:
    """Break a sentence into lines; a command that is to be copied stays in one, however long it is."""
    tied = COMMAND.sub(lambda command: command[0].replace(" ", "\0"), sentence)
    wrapper = textwrap.TextWrapper(WIDTH, indent, f"{indent}  ", break_on_hyphens=False, break_long_words=False)
    return [line.replace("\0", " ") for line in wrapper.wrap(tied)]


def number(value: float) -> str:
    """Write a number with three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def rounded(value: float, low: float | None = None, high: float | None = None) -> str:
    """Round to three digits, or to fewer where the interval is wide: as many as are known, and two at least.

    >>> rounded(683.1, 97.1, 3634.0), rounded(132.2, 127.0, 135.0), rounded(110866)
    ('680', '132', '111,000')
    """
    return f"{told(value, low, high):,.10g}"


def told(value: float, low: float | None = None, high: float | None = None) -> float:
    """The number that ``rounded`` writes: what is compared is what is shown."""
    digits = 3 if low is None or high is None or high <= (1 + WIDE) * low else 2
    return float(f"{value:.{digits}g}")


def roughly(value: float) -> str:
    """Round to the two digits that may be known of what a law says.

    >>> roughly(54.3), roughly(3120.0)
    ('54', '3,100')
    """
    return rounded(value, 0.0, value)


def interval(value: float, low: float, high: float, kind: Interval = "95 %") -> str:
    """Write a number with its interval, or its factor, if it has one that shows.

    >>> interval(100.0, 90.0, 110.0), interval(100.0, 50.0, 200.0, "factor"), interval(100.0, 100.0, 100.0, "factor")
    ('100 [90, 110]', '~100 (x2)', '100')
    """
    middle, *ends = (rounded(one, low, high) for one in (value, low, high))
    if ends == [middle, middle]:
        return middle
    return written(middle, off(value, low, high), kind) if kind == "factor" else f"{middle} [{', '.join(ends)}]"


def in_words(value: float, low: float, high: float, kind: Interval, source: str) -> str:
    """Say the uncertainty of a number: its 95 % interval, or its source and its error bound.

    >>> in_words(7.71, 4.40, 13.52, "95 %", "measured"), in_words(7.71, 2.57, 23.13, "factor", "modeled")
    ('95 % between 4.4 and 14', 'modeled, error bound: a factor of 3')
    """
    if kind == "factor":
        return f"{source}, {error_bound(off(value, low, high))}"
    return f"95 % between {rounded(low, low, high)} and {rounded(high, low, high)}"


def error_bound(factor: float) -> str:
    """Write the error bound of what was modeled."""
    return f"error bound: a factor of {roughly(factor)}"


def several(begins: str, words: Sequence[str], more: int = 0, ends: str = "") -> str:
    """List as many words as a line has room for, one at least, and count the others, and ``more`` of them.

    >>> several("  tied:", ["a" * 60, "b" * 60, "c"])[-13:]
    'a; and 2 more'
    """
    line = begins
    for index, word in enumerate(words):
        # Invariant: the line has the first ``index`` words, and room for the count of the others.
        last = not more and index == len(words) - 1
        longer = f"{line}{';' * (index > 0)} {word}"
        if index and len(longer) + (0 if last else len("; and 999 more")) + len(ends) > WIDTH:
            return f"{line}; and {len(words) - index + more} more{ends}"
        line = longer
    return f"{line}{f'; and {more} more' if more else ''}{ends}"


def with_ends(unit: str, estimate: Estimate) -> dict[str, Any]:
    """An estimate for JSON: its value under the name of its unit, its ends, and what those mean."""
    return {unit: estimate.value, "low": estimate.low, "high": estimate.high, "interval": estimate.interval}


def not_its_own(machine: str, what: str = "") -> str:
    """Warn that another machine's records answer, or ``what`` they say."""
    whose = f"{what}from records of machine {machine}, the nearest there is"
    return f"warning: {whose}; recommend --verbose says how it differs"


def records_read(machine: str, results: str) -> str:
    """Say which machine's records an answer rests on, and in which folder they lie."""
    return f"records: those of machine {machine} in {results}" if machine else f"records: none fits in {results}"


def whose(machine_note: str, profile_notes: Iterable[str] = ()) -> list[str]:
    """Begin a text with whose records answer, where they are not this machine's own, and what their profile lacks."""
    lines = [*warned(profile_notes), *(wrapped(machine_note, "") if machine_note else [])]
    return [*lines, ""] if lines else []


def warned(notes: Iterable[str]) -> list[str]:
    """Write each note as a warning."""
    return [line for note in notes for line in wrapped(f"warning: {note}", "")]


def show(options: argparse.Namespace, answer: Any, as_dict: Mapping[str, Any], lines: Iterable[str]) -> None:
    """Print an answer about a system, its workload's records, and first of all whose they are if another machine's.

    ``options`` has ``json`` and ``results``; ``answer`` has ``machine``, ``machine_note`` and ``workload``, which is ""
    where no records could be read.
    """
    if options.json:
        more = {key: getattr(answer, key) for key in ("machine", "machine_note", "profile_notes")}
        print(json.dumps({**as_dict, **more, "results": str(options.results)}))
        return
    read = [f"  {records_read(answer.machine, str(options.results))}"] if answer.workload else []
    print("\n".join([*whose(answer.machine_note, answer.profile_notes), *lines, *read]))


def rests_on(sources: Iterable[Evidence]) -> Iterator[str]:
    """List the evidence of an answer, a line each."""
    yield "  rests on:"
    for one in sources:
        assumed = f"; {'; '.join(one.assumed)}" if one.assumed else ""
        yield from wrapped(f"{one.number}: {one.source}, {one.told}{assumed}", "    ")
