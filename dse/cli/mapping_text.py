"""Write answers about mappings as text for a reader."""

from collections.abc import Iterator, Sequence
from operator import attrgetter

from impls.terminal import plural

from ..estimate import off, written
from ..mapping.alternatives import Other
from ..mapping.answer import MappingAnswer, PartAnswer, Shortage, lacking
from ..mapping.explain import Explanation
from ..mapping.options import ARRANGEMENT, RUNS_HERE
from .text import aligned, number, records_read, rests_on, whose, wrapped

SHOWN = 5  # of a list
COLUMN = ("execution mode", "actors", "sampling", "storage", "learner", "updating", "rate", "bound by")
GOALS = {
    "ratio": "gradient steps a second at the workload's update_interval, actors included",
    "training": "gradient steps a second that the learner could take, whatever actors do, as in [Zhang2023]",
    "per_watt": "gradient steps a joule",
    "fewest_devices": "gradient steps a second as for ratio, where a device less is worth up to 10 %",
}


def text(answer: MappingAnswer | Shortage | Explanation) -> str:
    """Write an answer for a reader."""
    lines = whose((answer.best if isinstance(answer, Explanation) else answer).machine_note)
    if isinstance(answer, Shortage):
        lines += _shortage(answer)
    else:
        lines += _explanation(answer) if isinstance(answer, Explanation) else _answer(answer)
    return "\n".join(lines)


def _answer(answer: MappingAnswer) -> Iterator[str]:
    yield from wrapped(
        f"{answer.workload} (B = {answer.batch:,}, {plural(answer.update_interval, 'environment step')} a gradient "
        f"step) on {answer.platform}, for {GOALS[answer.objective]}:",
        "",
    )
    yield ""
    composed = "" if answer.arrangement in RUNS_HERE else " (put together from its parts' times: nothing here runs it)"
    yield from wrapped(f"{answer.arrangement}: {ARRANGEMENT[answer.arrangement]}{composed}")
    yield from _parts(answer.parts)
    have = f"{answer.cores[0]:g} of {answer.cores[1]:g} cores"
    yield f"  {have}; {answer.depth} batches sampled ahead"
    yield ""
    yield f"  {rate(answer)}"
    yield from wrapped(f"bound by {answer.bottleneck}")
    of, pace = (" of the best set of devices", " a second") if answer.objective == "per_watt" else ("", "")
    about = "~" * (answer.interval == "factor")
    yield from wrapped(
        f"at most {about}{number(answer.bound)} if every part had its fastest option{of} to itself "
        f"({answer.distance:.0%} below that); {about}{number(answer.learner_hz)}{pace} by the fastest learner alone"
    )
    yield from _alternatives(answer)
    yield from _survival(answer)
    yield from _evidence(answer)


def _parts(parts: Sequence[PartAnswer]) -> Iterator[str]:
    rows = []
    for part in parts:
        seconds, low, high = (f"{1e6 * one:,.2f}" for one in (part.seconds, part.low, part.high))
        time = f"{seconds} us [{low}, {high}]"
        if part.interval == "factor":
            time = written(f"{number(1e6 * part.seconds)} us", part.factor, part.interval)
        rows.append((part.part, part.device, part.choice, time, part.source))
    return aligned(rows, "  ", right=3)


def rate(answer: MappingAnswer) -> str:
    """Write the predicted rate with its 95 % interval; with a factor where no stopwatch backs all of it."""
    if answer.objective == "per_watt":
        unit = "gradient steps a joule"
    else:
        unit = "gradient steps a second" + (", actors aside" if answer.objective == "training" else "")
    more = "" if answer.objective == "ratio" else f" ({number(answer.hz)} a second with actors)"
    most = "at most " * answer.upper_bound
    if answer.interval == "factor":
        factor = off(answer.value, answer.low, answer.high)
        return f"{most}~{number(answer.value)} {unit}, within a factor of {factor:.3g}, not tested here{more}"
    return f"{most}{number(answer.value)} {unit} [{number(answer.low)}, {number(answer.high)}] at 95 %{more}"


def _value(one: MappingAnswer | Other) -> str:
    """Write a value among others: with its factor, where it has one, and "at most" where it is an upper bound."""
    factor = off(one.value, one.low, one.high)
    return "at most " * one.upper_bound + written(number(one.value), factor, one.interval)


def _alternatives(answer: MappingAnswer) -> Iterator[str]:
    if answer.ties:
        yield f"  ties, within {answer.epsilon:.0%} of the best; fewest devices, bytes moved and cores decided:"
        yield from _others(answer.ties)
    if answer.runner_up and answer.runner_up not in answer.ties[:SHOWN]:
        yield "  runner-up:"
        yield from _others([answer.runner_up])
    if answer.elsewhere and answer.elsewhere not in (answer.runner_up, *answer.ties[:SHOWN]):
        yield "  best on other devices:"
        yield from _others([answer.elsewhere])


def _others(others: Sequence[Other]) -> Iterator[str]:
    for other in others[:SHOWN]:
        cost = f"costs {other.cost:.1%}" if other.cost >= 0 else f"gains {-other.cost:.1%}"
        yield from wrapped(f"{other.told}: {_value(other)}, {cost}", "    ")
    if len(others) > SHOWN:
        yield f"    and {len(others) - SHOWN} more, see --json"


def _survival(answer: MappingAnswer) -> Iterator[str]:
    limited = [one for one in answer.survival if one.up or one.down]
    used = {part.number for part in answer.parts}
    shown = sorted(limited, key=lambda one: (one.number not in used, not one.decides))[:SHOWN]
    if shown:
        yield "  the choice survives:"
    for one in shown:
        down = f"-{1 - one.down:.0%}" if one.down else "any fall"
        up = f"+{one.up - 1:.0%}" if one.up else "any rise"
        sure = "; its interval reaches that" if one.decides else ""
        yield from wrapped(f"{down}, {up} on {one.number}{sure}; then {one.winner}", "    ")
    if not limited:
        yield "  the choice survives any single number that is wrong by up to 30 times"


def _evidence(answer: MappingAnswer) -> Iterator[str]:
    if answer.searched:
        yield from wrapped(f"searched: {'; '.join(answer.searched)}")
    yield from (line for note in answer.notes for line in wrapped(f"note: {note}"))
    yield from rests_on(answer.sources)
    yield from wrapped(records_read(answer.machine, answer.results))
    if answer.measure_next:
        yield from wrapped(f"to be surer, measure {answer.measure_next.number}: {answer.measure_next.command}")


def _shortage(answer: Shortage) -> Iterator[str]:
    yield f"{answer.workload} does not fit {answer.platform}:"
    yield from (f"  {line}" for line in lacking(answer))
    if len(answer.repairs) > 1:
        yield "  each line would be enough by itself"


def _explanation(answer: Explanation) -> Iterator[str]:
    wanted = ", ".join(f"{key}={value}" for key, value in answer.described.items())
    yield from wrapped(f"{wanted} {answer.sentence}", "")
    for what, one in (("asked", answer.asked), ("best", answer.best)):
        yield ""
        yield f"  {what}: {one.arrangement}, {rate(one)}"
        yield from _parts(one.parts)
        yield from wrapped(f"bound by {one.bottleneck}")
    if answer.notes:
        yield ""
    yield from (line for note in answer.notes for line in wrapped(f"note: {note}"))


def beside(before: MappingAnswer | Shortage, after: MappingAnswer | Shortage, change: str) -> str:
    """Write two answers beside each other."""
    rows = [("", "before", "after"), *zip(COLUMN, _column(before), _column(after), strict=True)]
    lines = [*whose(before.machine_note), f"what if {change}:", "", *aligned(rows, "  ")]
    if isinstance(before, MappingAnswer) and isinstance(after, MappingAnswer):
        lines += ["", *wrapped(_gain(before, after, change))]
    for one in (before, after):
        if isinstance(one, Shortage):
            lines += ["", *_shortage(one)]
    return "\n".join(lines)


def _gain(before: MappingAnswer, after: MappingAnswer, change: str) -> str:
    compared = attrgetter("parts", "depth", "value", "low", "high")
    if compared(before) == compared(after):
        keys = ", ".join(word.partition("=")[0].strip() for word in change.split(","))
        known = any(one.source == "measured" for one in after.sources)
        records = ": measured records decide, and they are of the machine as it is" if known else ""
        return f"nothing in this answer rests on {keys}{records}"
    gain = after.value / before.value - 1
    if abs(gain) > after.epsilon:
        return f"{gain:+.1%}"
    return f"no faster: a difference within {after.epsilon:.0%} counts as a tie, which other things decide"


def _column(answer: MappingAnswer | Shortage) -> list[str]:
    if isinstance(answer, Shortage):
        return ["does not fit" if key == "rate" else "-" for key in COLUMN]
    parts = {part.part: f"{part.device}, {part.choice}" for part in answer.parts}
    pace = _value(answer)
    if answer.interval == "95 %":
        pace += f" [{number(answer.low)}, {number(answer.high)}]"
    return [answer.arrangement, *(parts[key] for key in COLUMN[1:6]), pace, answer.bottleneck]
