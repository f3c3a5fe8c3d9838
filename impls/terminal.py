"""Shared parts of every command: counts as arguments, numbers with nouns, progress, and a reader that has gone."""

import argparse
import contextlib
import ctypes
import errno
import io
import math
import os
import re
import select
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from importlib.util import find_spec
from typing import Any, NoReturn, Self

from . import exits
from .checks import near, short

MOST = 10**18
"""Largest count, so that no sentence about one is longer than a line."""
EVERY_SECONDS = 30.0
"""Seconds from one line of progress to the next, where there is no terminal for a bar."""
COMMAND = re.compile(r"(?:python -m [\w.]+|(?<=: )make)(?: (?:'[^']*'|[^\s'`;()|]*[^\s'`;()|.,:]))*")
"""A command in a sentence: make after a colon, python -m anywhere; as far as a comma, semicolon, pipe or bracket."""
_COUNT = re.compile(r"([+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d[\d_]*)(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{1,3})?)([kKmMgG]?)")
STDOUT, STDERR = 1, 2
INTERRUPTED = 130
FULL = (errno.ENOSPC, errno.EDQUOT)
_THOUSANDS = {"": 0, "k": 3, "m": 6, "g": 9}
_EXAMPLES = "write it like 1000000, 1_000_000, 1e6, 1M or 10k"


def count(text: str) -> int:
    """A whole number as people write one: ``1000000``, ``1_000_000``, ``1e6``, ``2.5M``; k, M and G are powers of 1000.

    ArgumentTypeError, which argparse shows as it is, for anything else.

    >>> [count(word) for word in ("1e8", "5M", "10k", "1_000_000", "300,000", "2.5k")]
    [100000000, 5000000, 10000, 1000000, 300000, 2500]
    """
    match = _COUNT.fullmatch(text.strip())
    if not match:
        raise argparse.ArgumentTypeError(f"{short(text)} is not a whole number; {_EXAMPLES}")
    value = Decimal(re.sub("[_,]", "", match[1])).scaleb(_THOUSANDS[match[2].lower()])
    if abs(value) > MOST:
        raise argparse.ArgumentTypeError(f"{short(text)} is too large; a count is at most {MOST:.0e}")
    if value != value.to_integral_value():
        raise argparse.ArgumentTypeError(f"{short(text)} is not a whole number; {_EXAMPLES}")
    return int(value)


def amount(text: str) -> float:
    """A number of seconds and the like: at least 0, and finite. ArgumentTypeError for anything else."""
    if not 0 <= (value := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{short(text)} is not a number from 0 on")
    return value


class Parser(argparse.ArgumentParser):
    """A parser whose commands refuse what they do not know themselves, by their own usage, with the nearest word."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            named = unknown[0].partition("=")[0]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near(named, self._option_string_actions)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        if choice := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message):
            message += near(choice[1], re.findall(r"[\w-]+", choice[2]))
        super().error(message)


def plural(number: float, noun: str) -> str:
    """A number with its noun.

    >>> plural(1, "step"), plural(2, "process"), plural(0.5, "batch"), plural(1000, "cell")
    ('1 step', '2 processes', '0.5 batches', '1,000 cells')
    """
    digits = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    ending = "es" if noun.endswith(("s", "ch")) else "s"
    return f"{digits} {noun}{ending * (number != 1)}"


def listed(words: Sequence[str]) -> str:
    """Join words by commas, the last one by "and".

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join([", ".join(words[:-1]), *words[-1:]]) if len(words) > 1 else "".join(words)


def aligned(rows: Sequence[Sequence[str]], indent: str = "", right: int | None = None) -> Iterator[str]:
    """Lay out columns as wide as their widest cell, one of them flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if column == right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"{indent}{'  '.join(cells)}".rstrip()


def in_one_line(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Show a warning as a sentence, without the code that gave it: for ``warnings.showwarning``."""
    print(f"warning: {message}", file=sys.stderr)


@contextlib.contextmanager
def print_to_stderr() -> Iterator[None]:
    """Let code of others, C code included, print to the standard error: programs read the standard output."""
    kept = os.dup(STDOUT) if sys.stdout else os.open(os.devnull, os.O_WRONLY)
    os.dup2(STDERR, STDOUT)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        ctypes.CDLL(None).fflush(None)  # else C code prints as the process ends
        os.dup2(kept, STDOUT)
        os.close(kept)


def answering(main: Callable[[], int]) -> int:
    """Run a command; returns its exit code.

    It is 0 where the output has no reader any more, as after ``| head -1``, 2 where the output cannot be written, 130
    after Ctrl-C, 143 after a SIGTERM and 129 after a SIGHUP that was heeded, and what ``exits.report`` says of any
    other exception. A letter that the output's encoding lacks, as an umlaut in ASCII, is escaped.
    """
    warnings.showwarning = in_one_line
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            exits.ready()
            return main()
        except KeyboardInterrupt as error:  # SIGTERM raises one too, with a sentence and a code of its own
            print(f"\n{str(error) or 'interrupted'}", file=sys.stderr)
            return getattr(error, "exit_code", INTERRUPTED)
        finally:  # also where argparse leaves by SystemExit, with its help still in the buffer
            if sys.stdout:
                sys.stdout.flush()
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else 0
        gone = [stream for stream in (STDOUT, STDERR) if number in (errno.EPIPE, errno.EIO) and _is_gone(stream)]
        for stream in gone:  # so that the interpreter finds nothing to complain of when it flushes them at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        if gone:
            return 0
        if number not in FULL:  # also where another pipe broke, which is no reader of ours
            return exits.report(error)
        with contextlib.suppress(OSError):
            why = getattr(error, "strerror", "")
            print(f"error: the output cannot be written ({why}); make room, or choose another file", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
        return 2


def _is_gone(stream: int) -> bool:
    """Whether a pipe has no reader any more, or a terminal was closed; poll reports errors whatever it is asked for."""
    poll = select.poll()
    poll.register(stream, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


class Progress:
    """Progress of a long command, on stderr: a bar in a terminal, elsewhere a line every ``EVERY_SECONDS``.

    Without a ``bar``, and where there is no tqdm or no width to draw one, it is lines in a terminal too; without
    ``shown`` it is nothing at all. ``total`` None: it is not known how much there is to do.
    """

    def __init__(
        self,
        total: int | None,
        unit: str,
        *,
        initial: int = 0,
        bar: bool = True,
        shown: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.done, self._total, self._unit, self._clock = initial, total, unit, clock
        self._is_silent = not shown or sys.stderr is None
        self._description: Callable[[], str] | None = None  # the latest one
        self._began = self._printed = clock()
        self._bar: Any = None
        with contextlib.suppress(OSError, AttributeError):  # no terminal; one without a size has 0 columns
            bar = bar and os.get_terminal_size(sys.stderr.fileno()).columns > 0
        if bar and not self._is_silent and sys.stderr.isatty() and find_spec("tqdm"):
            from tqdm import tqdm  # noqa: PLC0415  # only in a terminal

            self._bar = tqdm(total=total, initial=initial, unit=unit, dynamic_ncols=True, smoothing=0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def say(self, sentence: str) -> None:
        """Say what begins, where no bar shows it."""
        if self._bar is None and not self._is_silent:
            print(sentence, file=sys.stderr, flush=True)

    def update(self, number: int = 1, told: Callable[[], str] | None = None) -> None:
        """Count ``number`` more as done. ``told`` returns what else to show; it may be called later."""
        self.done += number
        self._description = told or self._description
        if self._bar is not None:
            if told:
                self._bar.set_postfix_str(told(), refresh=False)
            self._bar.update(number)
        elif not self._is_silent and (now := self._clock()) - self._printed >= EVERY_SECONDS:
            self._printed = now
            more = f"; {self._description()}" if self._description else ""
            far = plural(self.done, self._unit)
            if self._total:
                far = f"{self.done:,} of {plural(self._total, self._unit)} ({self.done / self._total:.0%})"
            line = f"{far} after {now - self._began:,.0f} s{more}"
            print(line, file=sys.stderr, flush=True)
