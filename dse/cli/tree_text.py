"""Answers about trees as text for a reader."""

import textwrap

from impls.terminal import plural

from ..recommend import Recommendation
from ..times.tree_variants import TreeTime
from .text import WIDTH

MOST_CELLS_SHOWN = 8


def text(given: Recommendation) -> str:
    """A recommendation in lines for a reader, without a newline at the end."""
    question, choice = given.question, given.choice
    note = [*textwrap.wrap(given.machine_note, WIDTH, break_on_hyphens=False), ""]
    lines = [
        *(note if given.machine_note else []),
        f"For N = {question.capacity:,} {question.dtype} leaves, batches of {question.batch:,}, "
        f"{plural(question.updates_per_sample, 'update')} a draw, up to {plural(question.threads, 'thread')}:",
        "",
        f"  {choice.configuration}",
        f"  {_time(choice, question.batch)}",
    ]
    if given.ties:
        lines.append(f"  ties with {'; '.join(str(tie.configuration) for tie in given.ties)}")
    lines.append(
        f"  regret at most {given.regret_95:.0%} at 95 % confidence; best with probability {given.probability_best:.0%}"
    )
    if given.runner_up:
        lines.append(f"  runner-up: {given.runner_up.configuration}, {_time(given.runner_up, question.batch)}")
    if given.modeled:
        micro, model = 1e6, given.modeled
        lines.append(
            f"  modeled, not timed: {model.configuration} would take {model.seconds * micro:,.2f} us a step, and "
            f"{model.transfer_seconds * micro:,.2f} us for a host to move its batches; it fits {model.place}"
        )
    lines += [f"  note: {note}" for note in given.notes]
    lines += [
        f"  rests on {len(given.rests_on)} cells of that configuration, measured on machine {given.machine}"
        f"{f' (records in {given.results})' if given.results else ''}, where the same cell measured twice differs by "
        f"up to {given.noise_floor:.0%}:",
    ]
    shown = given.rests_on[:MOST_CELLS_SHOWN]
    lines += [
        f"    {cell['op']:7} N={cell['capacity']:>10,} B={cell['batch']:>6,} {cell['median_seconds'] * 1e6:12.2f} us "
        f"{cell['source']} at {(cell['commit'] or 'no commit')[:8]}, {cell['utc']}"
        for cell in shown
    ]
    if len(given.rests_on) > len(shown):
        lines.append(f"    and {len(given.rests_on) - len(shown)} more, see --json")
    return "\n".join(lines)


def _time(time: TreeTime, batch: int) -> str:
    micro, seconds = 1e6, time.seconds
    return (
        f"{seconds.value * micro:,.2f} us a step [{seconds.low * micro:,.2f}, {seconds.high * micro:,.2f}], "
        f"{seconds.value / batch * 1e9:,.1f} ns an element, {seconds.source}"
    )
