"""Answers about mappings as text for a reader."""

from collections.abc import Iterator, Sequence

from impls.terminal import plural

from ..mapping.alternatives import Other
from ..mapping.answer import MappingAnswer, PartAnswer, Shortage, lacking
from ..mapping.explain import Explanation
from ..mapping.options import ARRANGEMENT, RUNS_HERE
from .text import number, records_read, wrapped

SHOWN = 5  # of a list
COLUMN = ("arrangement", "actors", "sampling", "storage", "learner", "updating", "rate", "bound by")
GOALS = {
    "ratio": "gradient steps a second at the workload's update_interval, actors included",
    "training": "gradient steps a second that the learner could take, whatever actors do, as published",
    "per_watt": "gradient steps a joule",
    "fewest_devices": "gradient steps a second as for ratio, where a device less is worth up to 10 %",
}


def text(given: MappingAnswer | Shortage | Explanation) -> str:
    """For a reader."""
    lines = [*whose(given.best if isinstance(given, Explanation) else given)]
    if isinstance(given, Shortage):
        return "\n".join([*lines, *_shortage(given)])
    return "\n".join([*lines, *(_explanation(given) if isinstance(given, Explanation) else _answer(given))])


def whose(given: MappingAnswer | Shortage) -> Iterator[str]:
    """The lines that say whose records answer, where they are not this machine's own."""
    if given.machine_note:
        yield from wrapped(given.machine_note, "")
        yield ""


def _answer(given: MappingAnswer) -> Iterator[str]:
    yield from wrapped(
        f"{given.workload} (B = {given.batch:,}, {plural(given.update_interval, 'environment step')} a gradient step) "
        f"on {given.platform}, for {GOALS[given.objective]}:",
        "",
    )
    yield ""
    composed = "" if given.arrangement in RUNS_HERE else " (put together from its parts' times: nothing here runs it)"
    yield from wrapped(f"{given.arrangement}: {ARRANGEMENT[given.arrangement]}{composed}")
    yield from _parts(given.parts)
    have = f"{given.cores[0]:g} of {given.cores[1]:g} cores"
    yield f"  {have}; {given.depth} batches drawn ahead"
    yield ""
    yield f"  {rate(given)}"
    yield from wrapped(f"bound by {given.bottleneck}")
    of, pace = (" of the best set of devices", " a second") if given.objective == "per_watt" else ("", "")
    yield from wrapped(
        f"at most {number(given.bound)} if every part had its fastest option{of} to itself "
        f"({given.distance:.0%} below that); {number(given.learner_hz)}{pace} by the fastest learner alone"
    )
    yield from _alternatives(given)
    yield from _survival(given)
    yield from _evidence(given)


def _parts(parts: Sequence[PartAnswer]) -> Iterator[str]:
    rows = []
    for part in parts:
        seconds, low, high = (f"{1e6 * one:,.2f}" for one in (part.seconds, part.low, part.high))
        rows.append((part.part, part.device, part.choice, f"{seconds} us [{low}, {high}]", part.source))
    return _table(rows, right=3)


def _table(rows: Sequence[Sequence[str]], right: int | None = None) -> Iterator[str]:
    """Lines with columns as wide as their widest cell, one of them flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if place == right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"  {'  '.join(cells)}".rstrip()


def rate(given: MappingAnswer) -> str:
    """Predicted, with its interval."""
    if given.objective == "per_watt":
        unit = "gradient steps a joule"
    else:
        unit = "gradient steps a second" + (", actors aside" if given.objective == "training" else "")
    more = "" if given.objective == "ratio" else f" ({number(given.hz)} a second with actors)"
    return f"{number(given.value)} {unit} [{number(given.low)}, {number(given.high)}] at 95 %{more}"


def _alternatives(given: MappingAnswer) -> Iterator[str]:
    if given.ties:
        yield f"  ties, within {given.epsilon:.0%} of the best; fewest devices, bytes moved and cores decided:"
        yield from _others(given.ties)
    if given.runner_up and given.runner_up not in given.ties[:SHOWN]:
        yield "  runner-up:"
        yield from _others([given.runner_up])
    if given.elsewhere and given.elsewhere not in (given.runner_up, *given.ties[:SHOWN]):
        yield "  best on other devices:"
        yield from _others([given.elsewhere])


def _others(others: Sequence[Other]) -> Iterator[str]:
    for other in others[:SHOWN]:
        cost = f"costs {other.cost:.1%}" if other.cost >= 0 else f"gains {-other.cost:.1%}"
        yield from wrapped(f"{other.told}: {number(other.value)}, {cost}", "    ")
    if len(others) > SHOWN:
        yield f"    and {len(others) - SHOWN} more, see --json"


def _survival(given: MappingAnswer) -> Iterator[str]:
    told = [one for one in given.survival if one.up or one.down]
    used = {part.number for part in given.parts}
    shown = sorted(told, key=lambda one: (one.number not in used, not one.decides))[:SHOWN]
    if shown:
        yield "  the choice survives:"
    for one in shown:
        down = f"-{1 - one.down:.0%}" if one.down else "any fall"
        up = f"+{one.up - 1:.0%}" if one.up else "any rise"
        sure = "; its interval reaches that" if one.decides else ""
        yield from wrapped(f"{down}, {up} on {one.number}{sure}; then {one.winner}", "    ")
    if not told:
        yield "  the choice survives any single number that is wrong by up to 30 times"


def _evidence(given: MappingAnswer) -> Iterator[str]:
    yield from (line for note in given.notes for line in wrapped(f"note: {note}"))
    yield "  rests on:"
    for one in given.sources:
        yield from wrapped(f"{one.number}: {one.source}, {one.told}", "    ")
    yield from wrapped(records_read(given.machine, given.results))
    if given.measure_next:
        yield from wrapped(f"to be surer, measure {given.measure_next.number}: {given.measure_next.command}")


def _shortage(given: Shortage) -> Iterator[str]:
    yield f"{given.workload} does not fit {given.platform}:"
    yield from (f"  {line}" for line in lacking(given))
    if len(given.repairs) > 1:
        yield "  each line would be enough by itself"


def _explanation(given: Explanation) -> Iterator[str]:
    wanted = ", ".join(f"{key}={value}" for key, value in given.described.items())
    yield from wrapped(f"{wanted} {given.sentence}", "")
    for what, one in (("asked", given.asked), ("best", given.best)):
        yield ""
        yield f"  {what}: {one.arrangement}, {rate(one)}"
        yield from _parts(one.parts)
        yield from wrapped(f"bound by {one.bottleneck}")
    if given.notes:
        yield ""
    yield from (line for note in given.notes for line in wrapped(f"note: {note}"))


def beside(before: MappingAnswer | Shortage, after: MappingAnswer | Shortage, change: str) -> str:
    """Two answers, line by line where they differ."""
    rows = [("", "before", "after"), *zip(COLUMN, _column(before), _column(after), strict=True)]
    lines = [*whose(before), f"what if {change}:", "", *_table(rows)]
    if isinstance(before, MappingAnswer) and isinstance(after, MappingAnswer):
        lines += ["", *wrapped(_gain(before, after, change))]
    for one in (before, after):
        if isinstance(one, Shortage):
            lines += ["", *_shortage(one)]
    return "\n".join(lines)


def _gain(before: MappingAnswer, after: MappingAnswer, change: str) -> str:
    if (before.parts, before.depth, before.value, before.low, before.high) == (
        *(after.parts, after.depth, after.value),
        *(after.low, after.high),
    ):
        keys = ", ".join(word.partition("=")[0].strip() for word in change.split(","))
        known = any(one.source == "measured" for one in after.sources)
        records = ": measured records decide, and they are of the machine as it is" if known else ""
        return f"nothing in this answer rests on {keys}{records}"
    gain = after.value / before.value - 1
    if abs(gain) > after.epsilon:
        return f"{gain:+.1%}"
    return f"no faster: a difference within {after.epsilon:.0%} counts as a tie, which other things decide"


def _column(given: MappingAnswer | Shortage) -> list[str]:
    if isinstance(given, Shortage):
        return ["does not fit" if key == "rate" else "-" for key in COLUMN]
    parts = {part.part: f"{part.device}, {part.choice}" for part in given.parts}
    pace = f"{number(given.value)} [{number(given.low)}, {number(given.high)}]"
    return [given.arrangement, *(parts[key] for key in COLUMN[1:6]), pace, given.bottleneck]
