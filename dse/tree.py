"""Which tree, which K, how many threads for this N and B: an answer from records, with what it rests on.

A training step is one sample of B leaves and R updates of B leaves. Every configuration measured gets a time for the
asked (N, B) from ``times.tree_times``, with its uncertainty; ties, regret and the probability of being best follow.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from impls.checks import one_of
from impls.sumtree.contract import LEAF_DTYPES
from impls.terminal import plural

from . import stats
from .answer import Note
from .drift import USUAL, Drift
from .records import RecordError, benchmark, how_to_measure
from .times import cost_model
from .times.tree_times import LEAST_CELLS, Configuration, Question, Table, TreeTime

SWEEP = "sweep --preset quick"  # what would answer a question that the records cannot
CLOSE_ENOUGH = 0.02  # a tie within so much goes to fewer threads
EQUALLY_FAR = 0.1  # |ln| of factors by which two configurations' cells may differ in distance from the question
MOST_UPDATES = 1_000_000  # a sample
MOST_BATCH = 1 << 20  # of a workload
FITS_ANYWHERE = 1 << 22  # leaves and elements of a batch: whatever the tree, no machine lacks the memory
BATCH_BYTES = 24  # of an element beside its priority: a uniform or index, a float64 priority, a place in a work list


@dataclass(frozen=True)
class Recommendation:
    """Which tree to choose, by records or, as ``race`` tells, by a race on this machine.

    ``machine_note``: where ``machine`` is not the one asked about, but the nearest with records, a note that says so.
    ``results``: the folder that was read, as the caller named it. A note that changes what the answer is worth is a
    warning.
    """

    question: Question
    choice: TreeTime
    ties: tuple[TreeTime, ...]
    runner_up: TreeTime | None
    machine: str
    notes: tuple[Note, ...]
    noise_floor: float = 0.0
    drift: Drift = USUAL
    rests_on: tuple[dict[str, Any], ...] = ()
    machine_note: Note | None = None
    results: str = ""
    race: Mapping[str, Any] | None = None


def unusual(question: Question) -> list[Note]:
    """Warn where a batch is larger than any use of it."""
    batch = {"batch": question.batch, "capacity": question.capacity, "most": MOST_BATCH}
    if question.batch > MOST_BATCH:
        return [Note("batch_beyond_training", batch, "warning")]
    return [Note("batch_of_most_leaves", batch, "warning")] * (question.batch > question.capacity)


def check(question: Question) -> None:
    """Raise a ValueError, with the value and the bound, for a question out of bounds."""
    for what in ("capacity", "batch", "threads"):
        if (value := getattr(question, what)) < 1:
            raise ValueError(f"{what} must be at least 1, not {value}")
    if not 0 <= question.updates_per_sample <= MOST_UPDATES:
        raise ValueError(f"updates per sample must be from 0 to {MOST_UPDATES:,}, not {question.updates_per_sample:g}")
    if question.inserts < 0:
        raise ValueError(f"inserts must be at least 0, not {question.inserts}")
    one_of("dtype", question.dtype, LEAF_DTYPES)


def answer(table: Table, question: Question) -> Recommendation:
    """Recommendation from a table of records.

    RecordError if it holds no draws and updates of those leaves, if its cells tell nothing of that N and B, or if no
    tree fits the machine's memory.
    """
    notes = unusual(question)
    if question.threads > (most := table.most_threads()):
        notes.append(Note("threads_never_measured", {"threads": question.threads, "most": most}, "warning"))
    times = _times(table, question)
    best, tied = _choose(table, times)
    choice = times[best]
    others = sorted((time for time in times if time is not choice), key=lambda time: time.seconds)
    if choice.time.source == "extrapolated":
        outside = float(f"{math.exp(choice.distance):.2g}")
        notes.append(Note("outside_of_measured", {"outside": outside}, "warning"))
    if not dict(choice.configuration.options).get("validate", True):
        notes.append(Note("input_is_unchecked", level="warning"))
    if carried := table.transfers(choice.configuration, question.batch):
        notes.append(carried)
    notes += [Note("tree_is_untimed", {"name": name, "reason": reason}) for name, reason in table.untimed.items()]
    return Recommendation(
        question=question,
        choice=choice,
        ties=tuple(sorted((times[i] for i in tied), key=lambda time: time.seconds)),
        runner_up=others[0] if others else None,
        noise_floor=table.noise_floor,
        drift=table.drift,
        machine=table.machine_key,
        rests_on=tuple(table.rests_on(choice.configuration, question)),
        notes=tuple(notes),
    )


def keep_fitting(
    able: Sequence[Configuration], question: Question, memory_bytes: float | None, what: str, beside: float = 0.0
) -> list[Configuration]:
    """Keep the trees that fit a machine's memory with the bytes ``beside`` them. RecordError if none does."""
    most = math.inf if memory_bytes is None else memory_bytes
    needs = {configuration: beside + bytes_of(configuration, question) for configuration in able}
    if min(needs.values()) > most:
        raise RecordError(
            f"N = {question.capacity:,} {question.dtype} leaves and batches of {question.batch:,} need at least "
            f"{min(needs.values()) / 1e9:,.1f} GB, and the machine has {most / 1e9:,.1f} GB {what}; ask for fewer"
        )
    return [configuration for configuration in able if needs[configuration] <= most]


def _times(table: Table, question: Question) -> list[TreeTime]:
    """Times of every configuration within the asked threads that fits the memory. RecordError if there are none."""
    measured = table.distributions(question.dtype)
    if measured and question.distribution not in measured:
        raise RecordError(
            f"nothing was measured with {question.distribution!r} priorities, only with {', '.join(sorted(measured))}; "
            f"those that can be measured are listed by: {benchmark('sweep --help')}"
        )
    known = table.configurations(question)
    able = [configuration for configuration in known if configuration.threads <= question.threads]
    if not able:
        fewer = f" on {plural(question.threads, 'thread')} or fewer" if known else ""
        raise RecordError(
            f"the records hold no draws and updates of {question.dtype} leaves{fewer}; {how_to_measure(SWEEP)}"
        )
    is_small = question.capacity + question.batch <= FITS_ANYWHERE
    fitting = keep_fitting(able, question, None if is_small else table.memory_bytes, "of memory")
    times = [time for configuration in fitting if (time := table.step(configuration, question))]
    if not times:
        raise RecordError(
            f"the records hold no cell at N = {question.capacity:,} and B = {question.batch:,}, and too few others to "
            f"tell its time by: an implementation needs at least {LEAST_CELLS} of an operation, with two values of N "
            f"and of B among them; {how_to_measure(SWEEP)}"
        )
    return times


def ranked(table: Table, question: Question) -> list[TreeTime]:
    """Every candidate, the choice first, the others by their times. RecordError as for ``answer``."""
    times = _times(table, question)
    best, _ = _choose(table, times)
    return sorted(times, key=lambda time: (time is not times[best], time.seconds))


def _choose(table: Table, times: Sequence[TreeTime]) -> tuple[int, list[int]]:
    """Choose the time whose bound, one standard deviation up, is least, of those with the cells nearest the question.

    A guess from afar must not beat what is known, but it may tie with it. Within 2 % fewer threads win: a free core is
    worth more than what nobody can measure. How far the question lies from all cells sets no time apart from others.
    """
    logs, sigmas = [math.log(time.seconds) for time in times], [time.own_sigma for time in times]
    least = min(time.distance for time in times)
    bounds = {
        i: logs[i] + sigmas[i]
        for i, time in enumerate(times)
        if time.distance <= least + (EQUALLY_FAR if least else 0.0)
    }
    close = [i for i, bound in bounds.items() if bound - min(bounds.values()) <= CLOSE_ENOUGH]
    best = min(close, key=lambda i: (times[i].configuration.threads, bounds[i]))
    return best, stats.ties(logs, sigmas, max(table.drift.own, table.noise_floor), best)


def bytes_of(chosen: Configuration, question: Question) -> float:
    """Bytes that a tree and one batch take at least; a tree that is no array counts as its leaves."""
    leaf, options = np.dtype(question.dtype).itemsize, dict(chosen.options)
    try:
        tree = cost_model.tree_bytes(chosen.contestant, question.capacity, chosen.fanout, question.dtype, options)
    except ValueError:
        tree = leaf * question.capacity
    return tree + (BATCH_BYTES + leaf) * question.batch
