"""Write answers about trees as text for a reader."""

import textwrap

from impls.terminal import plural

from ..drift import Drift
from ..recommend import Recommendation
from ..times.tree_variants import TreeTime
from .text import WIDTH

MOST_CELLS_SHOWN, MOST_TIES_SHOWN = 8, 4


def text(answer: Recommendation) -> str:
    """Write the answer for a reader."""
    question, choice, drift = answer.question, answer.choice, answer.drift
    whose = [*textwrap.wrap(answer.machine_note, WIDTH, break_on_hyphens=False), ""]
    lines = [
        *(whose if answer.machine_note else []),
        f"For N = {question.capacity:,} {question.dtype} leaves, batches of {question.batch:,}, "
        f"{plural(question.updates_per_sample, 'update')} a sample, up to {plural(question.threads, 'thread')}:",
        "",
        f"  {choice.configuration}",
        f"  {_time(choice, question.batch)}",
    ]
    if answer.ties:
        first, more = answer.ties[:MOST_TIES_SHOWN], len(answer.ties) - MOST_TIES_SHOWN
        others = f"; and {more} more, see --json" if more > 0 else ""
        lines.append(f"  ties with {'; '.join(str(tie.configuration) for tie in first)}{others}")
    lines.append(
        f"  regret at most {answer.regret_95:.0%} at 95 % confidence; best with probability "
        f"{answer.probability_best:.0%}"
    )
    if answer.runner_up:
        lines.append(f"  runner-up: {answer.runner_up.configuration}, {_time(answer.runner_up, question.batch)}")
    if answer.modeled:
        micro, model = 1e6, answer.modeled
        lines.append(
            f"  modeled, not timed: {model.configuration} would take ~{model.seconds * micro:,.2f} us a step, and "
            f"{model.transfer_seconds * micro:,.2f} us for a host to move its batches; it fits {model.place}"
        )
    lines += [f"  note: {note}" for note in answer.notes]
    lines += [
        f"  rests on {len(answer.rests_on)} cells of that configuration, measured on machine {answer.machine}"
        f"{f' (records in {answer.results})' if answer.results else ''}, where the same cell measured twice differs by "
        f"up to {answer.noise_floor:.0%} within a run, and between runs all times together by {drift.common:.0%} and "
        f"each one by {drift.own:.0%} more ({_known(drift)}); the interval counts both:"
    ]
    shown = answer.rests_on[:MOST_CELLS_SHOWN]
    lines += [
        f"    {cell['op']:7} N={cell['capacity']:>10,} B={cell['batch']:>6,} {cell['median_seconds'] * 1e6:12.2f} us "
        f"{cell['source']} at {(cell['commit'] or 'no commit')[:8]}, {cell['utc']}"
        f"{', unstable' * (cell.get('status') == 'unstable')}"
        for cell in shown
    ]
    if len(answer.rests_on) > len(shown):
        lines.append(f"    and {len(answer.rests_on) - len(shown)} more, see --json")
    return "\n".join(lines)


def _known(drift: Drift) -> str:
    return f"told by {plural(drift.runs, 'run')} of this machine" if drift.runs else "as is usual"


def _time(time: TreeTime, batch: int) -> str:
    micro, seconds = 1e6, time.time
    each = f"{seconds.value / batch * 1e9:,.1f} ns an element, {seconds.source}"
    if seconds.interval == "factor":
        return f"~{seconds.value * micro:,.2f} us a step, within a factor of {seconds.factor:.3g}, {each}"
    return f"{seconds.value * micro:,.2f} us a step [{seconds.low * micro:,.2f}, {seconds.high * micro:,.2f}], {each}"
