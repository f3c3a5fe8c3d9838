"""Write all of an answer about a mapping: every part's time, every tie, and what each time rests on."""

from collections.abc import Iterator, Sequence

from impls.terminal import aligned, plural

from ..estimate import Evidence
from ..mapping.alternatives import Other
from ..mapping.answer import MappingAnswer
from ..mapping.options import ARRANGEMENT
from ..records import benchmark
from .emit import why_not_run
from .mapping_words import (
    UNCHANGED,
    bound,
    changing,
    implementations,
    limited,
    processes,
    rate,
    shares,
    taken,
    time_of,
    value,
)
from .text import number, records_read, rests_on, rounded, wrapped

SHOWN = 5  # of a list
UNPROFILED = ("no profile of", "no records of", "profiled was")
"""How notes begin where the workload's own profile does not answer."""
GOALS = {
    "ratio": "gradient steps/s at the workload's update_interval, actors included",
    "training": "gradient steps/s that the learner could take, whatever actors do, as in [Zhang2023]",
    "per_watt": "gradient steps/J",
    "fewest_devices": "gradient steps/s as for ratio, where a device less is worth up to 10 %",
}


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
