"""Write answers about trees as text for a reader: what to use, the line that makes it, and how sure that is."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import impls
from impls.terminal import listed, plural

from ..estimate import Estimate
from ..race_trees import configuration_of
from ..times.fanout_choice import DEFAULT
from ..times.platform_trees import LINK_FACTOR, ModeledChoice
from ..times.tree_times import Question
from ..times.tree_variants import Configuration, TreeTime
from ..tree import Recommendation
from .emit import Tables, make_line
from .text import in_words, not_its_own, rounded, several, warned, wrapped

MOST_CELLS_SHOWN = 8
MICRO, NANO = 1e6, 1e9


def text(answer: Recommendation | ModeledChoice, verbose: bool = False) -> str:
    """Write the answer for a reader."""
    if isinstance(answer, ModeledChoice):
        return "\n".join(_modeled(answer, verbose))
    return "\n".join(_raced(answer, answer.race, verbose) if answer.race else _answer(answer, verbose))


def taken(answer: Recommendation) -> TreeTime:
    """Return what to take: the default configuration where it is tied with the choice, else the choice.

    What a race chose is that already.
    """
    if answer.race:
        return answer.choice
    default = Configuration(answer.choice.configuration.contestant, DEFAULT, 1)
    return next((tie for tie in answer.ties if tie.configuration == default), answer.choice)


def advice(answer: Recommendation) -> str:
    """Write what to take in one sentence."""
    tree = taken(answer)
    chosen = tree.configuration
    if answer.ties and chosen == Configuration(chosen.contestant, DEFAULT, 1):
        return f"Statistically tied, take the default: {named(chosen)}: {step_text(tree.time)}."
    return headline(chosen, tree.time, answer.question)


def headline(tree: Configuration, time: Estimate, question: Question, where: str = "") -> str:
    """Write the choice in one sentence, with its time as far as that is known."""
    return f"Use {named(tree)}{where}: {step_text(time)}, {_each(time, question)} per element."


def named(tree: Configuration) -> str:
    """Write a tree in words.

    >>> named(Configuration("numba", 16, 2, (("propagate", "delta"),)))
    'numba, K = 16, propagate = delta, 2 threads'
    """
    kind = impls.traits(tree.contestant)
    words = [f"K = {tree.fanout}"] if kind.uses_fanout else []
    words += [f"{key} = {value}" for key, value in tree.options]
    return ", ".join([tree.contestant, *words, *([plural(tree.threads, "thread")] if kind.threaded else [])])


def made(tree: Configuration, question: Question) -> str:
    """Write the call that makes the tree."""
    shape = tree.contestant, question.capacity, tree.fanout, tree.threads, question.dtype
    return make_line(*shape, dict(tree.options))


def tables(tree: Configuration, question: Question) -> Tables:
    """Write the tree as the table of a file."""
    shape = {"implementation": tree.contestant, "capacity": question.capacity, "fanout": tree.fanout}
    more = {"threads": tree.threads, "dtype": question.dtype, "options": dict(tree.options)}
    return {"tree": shape | more}


def _answer(answer: Recommendation, verbose: bool) -> Iterator[str]:
    question, choice, tree = answer.question, answer.choice, taken(answer)
    yield advice(answer)
    yield made(tree.configuration, question)
    if answer.machine_note and not verbose:
        yield not_its_own(answer.machine)
    yield from warned(answer.warnings)
    if answer.machine_note and verbose:
        yield from ("", *wrapped(answer.machine_note, ""))
    yield ""
    source = choice.time.source
    where = "on" if source == "measured" else "from records of"
    yield from wrapped(f"{_asked(question)}; {source} {where} machine {answer.machine}")
    tied = [one for one in (choice, *answer.ties) if one is not tree]
    ties = [_besides(tie.configuration, choice.configuration) for tie in tied]
    if ties and verbose:
        yield from wrapped(f"statistically tied with: {'; '.join(ties)}")
    elif ties:
        yield several("  statistically tied with:", ties)
    if tree is not choice:
        yield from wrapped(f"fastest by the nearest records: {_runner_up(choice, choice)}")
    if answer.runner_up and tree is choice:
        reason = ", by records further from the question or less sure"
        is_faster = answer.runner_up.seconds < choice.seconds
        yield from wrapped(f"runner-up: {_runner_up(answer.runner_up, choice)}{reason * is_faster}")
    if verbose:
        yield from _evidence(answer)


def _runner_up(other: TreeTime, choice: TreeTime) -> str:
    return f"{_besides(other.configuration, choice.configuration)}: {step_text(other.time)}"


def _ends(time: Estimate) -> tuple[float, float, float]:
    return time.value, time.low, time.high


def _besides(other: Configuration, choice: Configuration) -> str:
    """Write a tree without what the choice is called by, where both are of one implementation."""
    return named(other).removeprefix(f"{choice.contestant}, ")


def _asked(question: Question) -> str:
    inserts = f", {plural(question.inserts, 'insert')}" if question.inserts else ""
    return (
        f"N = {question.capacity:,} {question.dtype} leaves, batches of {question.batch:,}, "
        f"{plural(question.updates_per_sample, 'update')} per sample{inserts}, "
        f"up to {plural(question.threads, 'thread')}"
    )


def step_text(time: Estimate) -> str:
    """Write the time of a step, and how far it is known."""
    value, low, high = (MICRO * one for one in _ends(time))
    return f"{_took(time)} per step ({in_words(value, low, high, time.interval, time.source)})"


def _took(time: Estimate) -> str:
    return f"about {rounded(*(MICRO * one for one in _ends(time)))} us"


def _each(time: Estimate, question: Question) -> str:
    return f"{rounded(*(NANO * one / question.batch for one in _ends(time)))} ns"


def _evidence(answer: Recommendation) -> Iterator[str]:
    """Write all notes, and the cells the choice rests on."""
    drift = answer.drift
    known = f"told by {plural(drift.runs, 'run')} of this machine" if drift.runs else "as is usual"
    yield from (line for note in answer.notes if note not in answer.warnings for line in wrapped(f"note: {note}"))
    yield from wrapped(
        f"rests on {plural(len(answer.rests_on), 'cell')} of {named(answer.choice.configuration)}, measured on machine "
        f"{answer.machine}"
        f"{f' (records in {answer.results})' if answer.results else ''}, where the same cell measured twice differs by "
        f"up to {answer.noise_floor:.0%} within a run, and between runs all times together by {drift.common:.0%} and "
        f"each one by {drift.own:.0%} more ({known}); the interval counts both:"
    )
    shown = answer.rests_on[:MOST_CELLS_SHOWN]
    for cell in shown:
        yield (
            f"    {cell['op']:7} N={cell['capacity']:>10,} B={cell['batch']:>6,} {cell['median_seconds'] * MICRO:12.2f}"
            f" us {cell['source']} at {(cell['commit'] or 'no commit')[:8]}, {cell['utc']}"
            f"{', unstable' * (cell.get('status') == 'unstable')}"
        )
    if len(answer.rests_on) > len(shown):
        yield f"    and {len(answer.rests_on) - len(shown)} more, see --json"


# Of a race


def _raced(answer: Recommendation, race: Mapping[str, Any], verbose: bool) -> Iterator[str]:
    question, time, chosen = answer.question, answer.choice.time, answer.choice.configuration
    middle, low, high = (rounded(MICRO * one) for one in _ends(time))
    ends = f"{middle} us per step, 95 % CI [{low}, {high}]"
    tied = [_besides(configuration_of(row), chosen) for row in race["rows"] if row["status"] in ("equal", "undecided")]
    others = f" and {plural(len(tied) - 1, 'other')}" if tied[1:] else ""
    ties = f"; tied with {tied[0]}{others}" if tied else ""
    yield f"Use {named(chosen)}: {ends}; {_each(time, question)} per element{ties}."
    yield made(chosen, question)
    yield from warned(answer.warnings)
    yield ""
    caches = "cold" if race["asked"]["cold"] else "hot"
    yield from wrapped(f"{_asked(question)}; {caches} caches; raced on this machine, {answer.machine}, {race['utc']}")

    def listed_as(status: str) -> list[str]:
        rows = [row for row in race["rows"] if row["status"] == status]
        return [f"{_besides(configuration_of(row), chosen)}: {_slower(row['ratio'])}" for row in rows]

    undecided, slower = listed_as("undecided"), listed_as("slower")
    if equal := listed_as("equal"):
        yield several(f"  equally fast, within {race['zone']:.0%}:", [one.partition(":")[0] for one in equal])
    if undecided:
        why = "interrupted" if race["ending"] == "interrupted" else "too disturbed to decide"
        yield several(f"  {why} after {race['seconds']:.1f} s; --seconds gives more:", undecided)
    for one in slower if verbose else slower[:1]:
        yield from wrapped(f"{'slower' if one is not slower[0] else 'next best'}: {one}")
    if row := race.get("faster"):
        tree, by = _besides(configuration_of(row), chosen), _slower(race["gain"])
        yield from wrapped(f"faster, but its sums drift: {tree}; the choice is {by}; --allow-drift takes it")
    raced = f"raced {plural(race['candidates'] - race['excluded'], 'candidate')} in {race['seconds']:.1f} s"
    less = f"; records of machine {race['prior']} exclude {race['excluded']} others" if race["excluded"] else ""
    kept = f"kept in {answer.results}; --again races anew" if answer.results else "not kept"
    yield from wrapped(f"{raced}{less}; {kept}")


def _slower(ratio: Sequence[float | None]) -> str:
    """Write by how much a tree is slower.

    >>> _slower([1.0314, 1.02, 1.04]), _slower([2.5, None, None]), _slower([0.99, 0.9, 1.1])
    ('3.1 % slower, 95 % CI [2.0, 4.0]', '2.5x slower', '1.0 % faster, 95 % CI [-10.0, 10.0]')
    """
    middle, *ends = (100 * (one or math.nan) - 100 for one in ratio)
    said = f"{abs(middle):.1f} %" if middle < 100 else f"{1 + middle / 100:.1f}x"
    known = "" if any(map(math.isnan, ends)) else f", 95 % CI [{ends[0]:.1f}, {ends[1]:.1f}]"
    return f"{said} {'faster' if middle < 0 else 'slower'}{known}"


# Of a machine that nobody has here


def _modeled(answer: ModeledChoice, verbose: bool) -> Iterator[str]:
    question, choice = answer.question, answer.choice
    yield headline(choice.configuration, choice.time, question, f" on the {choice.device} of {answer.platform}")
    yield made(choice.configuration, question)
    yield ""
    yield from wrapped(f"{_asked(question)}; modeled from the numbers of {answer.platform}, nothing was timed there")
    same = choice.device
    ties = [
        _besides(tie.configuration, choice.configuration) + (f" on the {tie.device}" if tie.device != same else "")
        for tie in answer.ties
    ]
    if ties:
        yield several("  statistically tied with:", ties)
    if answer.best is not choice:
        best = answer.best
        yield from wrapped(
            f"the smallest expected time has {named(best.configuration)} on the {best.device}, {_took(best.time)}; of "
            f"what so rough a model cannot tell apart, fewest devices, then fewest threads, then K = {DEFAULT} decide"
        )
    alike: dict[str, list[str]] = {}
    for other in answer.elsewhere:
        moved = MICRO * other.transfer_seconds
        sent = f", about {rounded(moved, moved, LINK_FACTOR * moved)} us of it to move batches" if moved else ""
        alike.setdefault(f"{named(other.configuration)}, {_took(other.time)}{sent}", []).append(other.device)
    for told, devices in alike.items():
        where = f"the {devices[0]}" if len(devices) == 1 else f"each of {listed(devices)}"
        yield from wrapped(f"best on {where}: {told}")
    yield from (line for note in answer.notes for line in wrapped(f"note: {note}"))
    if verbose:
        yield from wrapped(f"rests on: {choice.time.rests_on.told}")
