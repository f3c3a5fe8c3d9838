"""Write answers about mappings as text for a reader: what to do, the line that does it and why, or all of it."""

import shlex
from collections.abc import Iterator, Sequence
from operator import attrgetter

from impls.terminal import COMMAND, aligned, plural

from ..estimate import Evidence
from ..mapping.alternatives import Other
from ..mapping.answer import MappingAnswer, PartAnswer, Shortage, lacking
from ..mapping.explain import Explanation
from ..mapping.options import ARRANGEMENT
from ..platforms.fingerprint import where
from ..records import benchmark
from .emit import piped_command, training_command, why_not_run
from .mapping_words import (
    UNCHANGED,
    about,
    alternative,
    bound,
    changing,
    expected,
    headline,
    implementations,
    limited,
    platform,
    processes,
    rate,
    share,
    shares,
    shortened,
    source_of,
    taken,
    time_of,
    unit,
    value,
)
from .text import WIDTH, not_its_own, number, records_read, rests_on, rounded, several, warned, whose, wrapped

COLUMN = ("execution mode", "actors", "sampling", "storage", "learner", "updating", "rate", "bottleneck")
PARTS = COLUMN[1:6]
WARNINGS = (
    "actors.environments",
    "batches of",
    "profiled was",
    "no profile of",
    "learner_threads=",
    "threads=",
    "sampling and updating part",
)
"""How notes begin that stay in sight: what was asked is not quite what is answered."""
LINES = 8  # of why, besides how a step is spent and what other implementations give
FRUGAL = "; fewest devices and cores decide"  # why the choice is not what is expected to be the fastest
PLAIN = 0.1  # of a change, from which on no tenth of a percent is told
SHOWN = 5  # of a list
UNPROFILED = ("no profile of", "no records of", "profiled was")
"""How notes begin where the workload's own profile does not answer."""
GOALS = {
    "ratio": "gradient steps/s at the workload's update_interval, actors included",
    "training": "gradient steps/s that the learner could take, whatever actors do, as in [Zhang2023]",
    "per_watt": "gradient steps/J",
    "fewest_devices": "gradient steps/s as for ratio, where a device less is worth up to 10 %",
}


def text(answer: MappingAnswer | Shortage | Explanation, verbose: bool = False, asked: str = "") -> str:
    """Write an answer for a reader; ``asked``: the command that asked, which is advised where it keeps the answer."""
    if isinstance(answer, MappingAnswer):
        return "\n".join(_answer(answer, verbose, asked))
    if isinstance(answer, Shortage):
        return "\n".join([*_shortage(answer), *_warned(answer)])
    return "\n".join(_explanation(answer))


def _answer(answer: MappingAnswer, verbose: bool, asked: str) -> Iterator[str]:
    yield headline(answer)
    yield _to_paste(answer, asked)
    if verbose:
        yield from ("", *whose(answer.machine_note, answer.profile_notes), *whole(answer))
        return
    yield from _warned(answer)
    yield from warned(note for note in answer.notes if note.startswith(WARNINGS))
    yield from ("", *_why(answer))


def _warned(answer: MappingAnswer | Shortage) -> list[str]:
    """Warn of a profile that is incomplete or was disturbed, and where another machine's records answer."""
    return [*warned(answer.profile_notes), *[not_its_own(answer.machine)] * bool(answer.machine_note)]


def _to_paste(answer: MappingAnswer, asked: str) -> str:
    """Write the command that runs the mapping, else the one that keeps it, and why nothing runs it."""
    if command := training_command(answer) or piped_command(answer, asked):
        return command
    runs = "impls.training runs this from a workload file with the values asked for"
    if why := why_not_run(answer):
        runs = f"nothing here runs this mapping: {why}"
    return f"{runs}; to keep it: {asked} --emit toml > mapping.toml" if asked else f"{runs}; --emit toml keeps it"


def _why(answer: MappingAnswer) -> list[str]:
    """Write ``LINES`` lines at most: parts, what bounds them, what ties, what would change it, what to measure.

    More say how a step is spent and what other implementations would give.
    """
    more = [*shares(answer), *processes(answer), *implementations(answer)]
    rows, measured = [*_rows(answer)], [*_measure(answer)]
    bounds = [*bound(answer)]
    if len(rows) + len(bounds) + bool(answer.ties) + len(measured) >= LINES:  # a line is for what would change it
        bounds = [*bound(answer, brief=True)]
    lines = [*rows, *bounds, *more]
    if answer.ties:
        begins = "  statistically tied with:"
        first, *others = (alternative(answer, other) for other in answer.ties)
        decide = FRUGAL * any(other.cost < -answer.epsilon for other in answer.ties)
        first = shortened(first, WIDTH - len(begins) - len("; and 999 more") - len(decide))
        tied = several(begins, [first, *others], answer.others_tied, decide)
        lines.append(tied if len(tied) <= WIDTH else tied.removesuffix(decide))
    sentences = [changing(one, WIDTH - 2) for one in limited(answer)]
    if not sentences:
        other = answer.elsewhere
        sentences = [f"the next best: {alternative(answer, other)}" if other and not answer.ties else UNCHANGED]
    changes = [[f"  {one}"] if len(one) <= WIDTH else wrapped(one) for one in sentences]
    room = LINES + len(more) - len(lines) - len(measured)
    # Invariant: ``room`` lines are free.
    for change in [one for one in changes if len(one) <= room] or changes[: room > 0]:
        if len(change) <= room or change is changes[0]:
            lines += change
            room -= len(change)
    return [*lines, *measured]


def _rows(answer: MappingAnswer) -> Iterator[str]:
    """Lay out the parts, a line each, one for sampling and updating where they are one tree."""
    part = {one.part: one for one in answer.parts}
    sampling, updating = part["sampling"], part["updating"]
    rows = [_row("actors", [part["actors"]])]
    if (sampling.device, sampling.choice) == (updating.device, updating.choice):
        rows.append(_row("tree", [sampling, updating]))
    else:
        rows += [_row(one.part, [one]) for one in (sampling, updating)]
    rows += [_row("records", [part["storage"]]), _row("learner", [part["learner"]])]
    return aligned(rows, "  ", right=3)


def _row(name: str, parts: Sequence[PartAnswer]) -> tuple[str, ...]:
    choice = "" if parts[0].choice == name else parts[0].choice
    return name, parts[0].device, choice, time_of(parts), source_of(parts)


def _measure(answer: MappingAnswer) -> Iterator[str]:
    """Say which time to measure, and how."""
    decide = answer.decide if answer.ties or answer.others_tied else None
    if evidence := decide or answer.measure_next:
        purpose = "to decide" if decide else "to be surer"
        tied = [one.arrangement for one in answer.ties if one.arrangement != answer.arrangement]
        if advice := to_measure(answer, evidence):
            yield from wrapped(f"{purpose}, {advice if answer.machine_note else _first(advice)}")
        elif tied and answer.called and not where(answer.machine):
            words = shlex.join([answer.called, "--fix", f"arrangement={tied[0]}", "--seconds", "60"])
            yield from wrapped(f"{purpose}, run what ties: python -m dse run {words}")


def _first(advice: str) -> str:
    """Shorten advice to its first command, with what stands before it; to its first clause where that has none."""
    clause, command = advice.partition(";")[0], COMMAND.search(advice)
    return advice[: command.end()] if command and command.end() <= len(clause) else clause


def _shortage(answer: Shortage) -> Iterator[str]:
    yield f"{answer.workload} does not fit {answer.platform}:"
    yield from (f"  {line}" for line in lacking(answer))
    if len(answer.repairs) > 1:
        yield "  each line would be enough by itself"


# Two answers side by side


def _explanation(answer: Explanation) -> Iterator[str]:
    asked, best = answer.asked, answer.best
    wanted = ", ".join(f"{key}={one}" for key, one in answer.described.items())
    yield from wrapped(f"{wanted} {answer.sentence}.", "")
    yield from (*_warned(best), "")
    yield from _table(("", "asked", "best"), asked, best, timed=True)
    yield from _shares_beside(asked, best)
    if answer.notes:
        yield ""
    yield from (line for note in answer.notes for line in wrapped(f"note: {note}"))


def _shares_beside(asked: MappingAnswer, best: MappingAnswer) -> Iterator[str]:
    """Lay out how the steps of serial loops are spent, one answer next to the other."""
    spent = [{one.what: share(one) for one in answer.shares} for answer in (asked, best)]
    if any(spent):
        rows = [(what, *(each.get(what, "-") for each in spent)) for what in dict.fromkeys([*spent[0], *spent[1]])]
        yield from ("", *aligned([("of a step", "asked", "best"), *rows], "  "))


def beside(before: MappingAnswer | Shortage, after: MappingAnswer | Shortage, change: str) -> str:
    """Write what a change does to an answer in a sentence, and both answers side by side."""
    lines = [_changed(before, after, change), *_warned(before), ""]
    lines += _table(("", "before", "after"), before, after)
    for one in (before, after):
        if isinstance(one, Shortage):
            lines += ["", *_shortage(one)]
    return "\n".join(lines)


def _changed(before: MappingAnswer | Shortage, after: MappingAnswer | Shortage, change: str) -> str:
    """Write the sentence that a what-if begins with."""
    if isinstance(after, Shortage):
        return f"With {change}, {after.workload} does not fit {after.platform}."
    what = f"With {change}, {after.workload} on {platform(after)}"
    if isinstance(before, Shortage):
        return f"{what} fits, which it does not without: {expected(after)}."
    compared = attrgetter("parts", "depth", "value", "low", "high")
    if compared(before) == compared(after):
        keys = ", ".join(word.partition("=")[0].strip() for word in change.split(","))
        known = any(one.source == "measured" for one in after.sources)
        records = ": measured records decide, and they are of the machine as it is" if known else ""
        return f"{what} still makes {about(after)} {unit(after)}: nothing in this answer rests on {keys}{records}."
    gain = after.value / before.value - 1
    if abs(gain) > after.epsilon:
        percent = f"{gain:+.0%}" if abs(gain) >= PLAIN else f"{gain:+.1%}"
        return f"{what} makes {about(after)} {unit(after)} instead of {about(before)} ({percent})."
    return f"{what} is no faster: a difference within {after.epsilon:.0%} counts as a tie, which other things decide."


def _table(
    head: tuple[str, str, str], left: MappingAnswer | Shortage, right: MappingAnswer | Shortage, timed: bool = False
) -> Iterator[str]:
    return aligned([head, *zip(COLUMN, _column(left, timed), _column(right, timed), strict=True)], "  ")


def _column(answer: MappingAnswer | Shortage, timed: bool) -> list[str]:
    if isinstance(answer, Shortage):
        return ["does not fit" if key == "rate" else "-" for key in COLUMN]
    parts = {part.part: ", ".join([part.device, part.choice, *([time_of([part])] * timed)]) for part in answer.parts}
    pace = value(answer)
    if answer.interval == "95 %":
        pace += f" [{number(answer.low)}, {number(answer.high)}]"
    return [answer.arrangement, *(parts[key] for key in PARTS), pace, answer.bottleneck.partition(",")[0]]


# All of an answer


def whole(answer: MappingAnswer) -> Iterator[str]:
    """Write all lines below the choice."""
    yield from wrapped(
        f"{answer.workload} (B = {answer.batch:,}, {plural(answer.update_interval, 'environment step')} a gradient "
        f"step) on {answer.platform}, for {GOALS[answer.objective]}:",
        "",
    )
    yield ""
    why = why_not_run(answer)
    said = f"; nothing here runs it: {why}" if why else ""
    yield from wrapped(f"{answer.arrangement}: {ARRANGEMENT[answer.arrangement]}{said}")
    rows = [(part.part, part.device, part.choice, time_of([part]), part.source) for part in answer.parts]
    yield from aligned(rows, "  ", right=3)
    yield from _transfers(answer)
    have = f"{answer.cores[0]:g} of {answer.cores[1]:g} cores" if answer.cores[0] <= answer.cores[1] else taken(answer)
    yield f"  {have}; {plural(answer.depth, 'batch')} sampled ahead"
    yield ""
    yield f"  {rate(answer)}"
    yield from bound(answer)
    yield from shares(answer)
    yield from processes(answer)
    yield from implementations(answer)
    of, pace = (" of the best set of devices", "/s") if answer.objective == "per_watt" else ("", "")
    about = "~" * (answer.interval == "factor")
    most, fastest = (rounded(one, answer.low, answer.high) for one in (answer.bound, answer.learner_hz))
    yield from wrapped(
        f"at most {about}{most} if every part had its fastest option{of} to itself "
        f"({answer.distance:.0%} below that); {about}{fastest}{pace} by the fastest learner alone"
    )
    yield from _alternatives(answer)
    yield from _decides(answer)
    yield from _evidence(answer)


def _transfers(answer: MappingAnswer) -> Iterator[str]:
    for one in answer.transfers:
        waits = "" if one.waits else ", concurrently with the loop"
        yield from wrapped(
            f"{one.sent}: {number(1e6 * one.seconds)} us on {one.engine}, {one.nbytes:,.0f} bytes{waits}"
        )


def _alternatives(answer: MappingAnswer) -> Iterator[str]:
    if answer.ties:
        yield "  statistically tied; fewest devices, bytes moved and cores decided:"
        yield from _others(answer.ties, answer.others_tied)
    if answer.elsewhere and answer.elsewhere not in answer.ties[:SHOWN]:
        yield "  best on other devices:"
        yield from _others([answer.elsewhere])


def _others(others: Sequence[Other], more: int = 0) -> Iterator[str]:
    for other in others[:SHOWN]:
        cost = f"costs {other.cost:.1%}" if other.cost >= 0 else f"gains {-other.cost:.1%}"
        yield from wrapped(f"{other.told}: {value(other)}, {cost}", "    ")
    if more := more + max(0, len(others) - SHOWN):
        yield f"    and {more} more, see --json"


def _decides(answer: MappingAnswer) -> Iterator[str]:
    shown = limited(answer)[:SHOWN]
    if shown:
        yield "  what decides:"
    for one in shown:
        yield from wrapped(changing(one), "    ")
    if not shown:
        yield f"  {UNCHANGED}"


def _evidence(answer: MappingAnswer) -> Iterator[str]:
    if answer.searched:
        yield from wrapped(f"searched: {'; '.join(answer.searched)}")
    yield from (line for note in answer.notes for line in wrapped(f"note: {note}"))
    yield from rests_on(answer.sources)
    yield from wrapped(records_read(answer.machine, answer.results))
    if answer.measure_next and (advice := to_measure(answer, answer.measure_next)):
        yield from wrapped(f"to be surer, {advice}")


def to_measure(answer: MappingAnswer, evidence: Evidence) -> str:
    """Say what to measure; "" where the answer's records have all that the command of the evidence would give."""
    if answer.machine_note:
        return answer.machine_note.rpartition("To be sure, ")[2].removesuffix(".")
    is_profiled = (
        answer.machine and not answer.profile_notes and not any(note.startswith(UNPROFILED) for note in answer.notes)
    )
    commands = (benchmark("profile"), *[benchmark("sweep")] * (evidence.source == "measured"))
    is_timed = evidence.source != "modeled" or "--arrangements" not in evidence.command
    is_done = is_profiled and is_timed and evidence.command.startswith(commands)
    return "" if is_done else f"measure {evidence.number}: {evidence.command}"
