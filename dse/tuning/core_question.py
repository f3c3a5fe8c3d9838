"""Split a processor's cores between actors and learners by eq. 5 of [Zhang2021], with ties and evidence.

Letters: M cores, x_a and x_l of them for actors and for learners, f_a(x_a) environment steps/s, f_l(x_l)
gradient steps/s, u environment steps a gradient step (update_interval).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from impls.training import Workload
from impls.training.arrangement import Arrangement

from ..answer import Note
from ..estimate import Estimate, Evidence, weakest
from ..mapping.learners import COSTS_FACTOR, Processes, calibrate, horizon_of, sources_of, terms_of
from ..mapping.options import implementation_of
from ..mapping.processes import one_thread
from ..mapping.question import WHERE, MappingQuestion, ask, predict_loop, refuse
from ..mapping.what_if import with_changes
from ..platforms import Platform
from ..platforms.files import RESULTS
from ..records import Source
from ..solver.problem import LOOP, ProblemError
from ..times import laws
from ..times.door import Times
from ..times.whole import REFERENCE
from . import core_split
from .core_split import Allocation, RateCurve, check

MOST_CORES = 512  # so that all pairs are tried in seconds
WITHIN = 0.01  # of the most steps counts as equal: then fewer cores are chosen
EQUAL = 0.05  # by which both sides of eq. 5 may differ to count as one of its solutions


@dataclass(frozen=True)
class CoreSplit:
    """The split of M cores to choose, and others next to it. The curves have a rate for every number of cores.

    ``around``: splits with a core more or less on a side, fastest first. ``ties``: others that may be as fast without
    more cores on both sides: within 1 %, or by the intervals of measured rates. ``turns``: the best of both sides on
    the same cores, one after the other. ``printed``: how many pairs solve eq. 5 within 5 %, and the fastest of them.
    ``to_decide``: curves that were carried on past their last point and may bound the choice, each with the number of
    cores to time it on next.
    """

    update_interval: float
    cores: int
    reserved: int
    choice: Allocation
    around: tuple[Allocation, ...]
    ties: tuple[Allocation, ...]
    turns: Allocation
    printed: tuple[int, Allocation | None]
    f_a: RateCurve
    f_l: RateCurve
    sources: tuple[Evidence, ...]
    to_decide: tuple[tuple[str, int], ...] = ()
    platform: str = ""
    workload: str = ""
    batch: int | None = None
    cores_there: int | None = None  # on that processor, where more are asked about
    machine: str = ""  # whose records were read, if any
    machine_note: Note | None = None  # says so where another machine stands for "this"
    profile_notes: tuple[Note, ...] = ()  # that the profile is incomplete, or was disturbed


def split_cores(f_a: RateCurve, f_l: RateCurve, update_interval: float, cores: int, reserved: int = 0) -> CoreSplit:
    """Find the best split from curves that may lack points, which a scaling law fills in.

    ``f_a``: environment steps/s by cores, ``f_l``: gradient steps/s. One core left to both sides is used
    serially. ``cores`` and ``reserved`` may be floats that are whole. ProblemError for numbers outside any sense, or a
    curve of a single point that needs another.
    """
    cores, reserved = check(update_interval, cores, reserved)
    if cores > MOST_CORES:
        raise ProblemError(f"cores are at most {MOST_CORES:,}, not {cores:,}; name those of one machine")
    free = cores - reserved
    if free < 1:
        raise ProblemError(f"{cores} cores with {reserved} reserved leave none to actors and learners; reserve fewer")
    curves, u = (f_a, f_l), update_interval
    f_a, f_l = (core_split.completed(one, free if len(one.rates) > 1 else max(1, free - 1)) for one in curves)
    choice = core_split.allocate(f_a, f_l, u, cores, reserved, turns=free == 1, within=WITHIN)
    splits = core_split.parted(f_a, f_l, u, free)
    others = [one for one in splits if (one.actors, one.learners) != (choice.actors, choice.learners)]
    near = [one for one in others if max(abs(one.actors - choice.actors), abs(one.learners - choice.learners)) == 1]
    ties = _as_fast(others, choice)
    solutions = core_split.printed_allocations(f_a, f_l, u, free, EQUAL)
    return CoreSplit(
        *(u, cores, reserved, choice),
        tuple(sorted(near, key=lambda one: (-one.hz, one.cores, one.actors))),
        tuple(sorted(ties, key=lambda one: (one.cores, one.actors))),
        max(core_split.in_turns(f_a, f_l, u, free), key=lambda one: one.hz),
        (len(solutions), solutions[0] if solutions else None),
        *(f_a, f_l),
        tuple(
            _filled_in(before, after) for before, after in zip(curves, (f_a, f_l), strict=True) if before is not after
        ),
        tuple(_to_decide(curves, (f_a, f_l), u, choice)),
    )


def _to_decide(
    before: Sequence[RateCurve], after: Sequence[RateCurve], u: float, choice: Allocation
) -> Iterator[tuple[str, int]]:
    """Yield (curve, cores to time it on) of each extrapolated rate that may be the one that bounds the choice."""
    for given, full, cores, per in zip(before, after, (choice.actors, choice.learners), (u, 1), strict=True):
        rate = full.rates[cores]
        if rate.source == "extrapolated" and rate.low / per < choice.hz and given is not full:
            yield given.name, core_split.next_point(given, cores)


def _as_fast(others: Sequence[Allocation], choice: Allocation) -> Iterator[Allocation]:
    """Yield those that may be as fast as the choice, of as many learners the one with the fewest actors."""
    best = max(one.hz for one in (*others, choice))
    fewest: dict[int, Allocation] = {}
    # Invariant: by learners, fewest has the split with the fewest actors of those so far that may be as fast.
    for one in others:
        known = all(source == "measured" for split in (one, choice) for source in split.sources)
        as_fast = one.hz >= (1 - WITHIN) * best or (known and one.high >= choice.low)
        idle = one.actors >= choice.actors and one.learners >= choice.learners  # the same, and cores besides
        if as_fast and not idle and (one.learners not in fewest or one.actors < fewest[one.learners].actors):
            fewest[one.learners] = one
    yield from fewest.values()


def _filled_in(before: RateCurve, after: RateCurve) -> Evidence:
    """Give the evidence of the rates that a scaling law adds to a curve."""
    law = core_split.scaling(before)
    added = [cores for cores in after.cores if cores not in before.rates]
    source: Source = "extrapolated" if any(after.rates[x].source == "extrapolated" for x in added) else "modeled"
    description = (
        f"{len(added)} of {len(after.cores)} numbers of cores, from {added[0]} to {added[-1]}, by the universal "
        f"scalability law through the others (contention {law.contention:.2g}, coherence {law.coherence:.2g})"
    )
    return Evidence(before.name, source, description, "")


def platform_curves(parts: Times, cores: int) -> tuple[RateCurve, RateCurve, tuple[Evidence, ...]]:
    """Give (f_a, f_l, evidence) of a platform's processor on up to a given number of cores.

    Where a profile has two numbers of cores, a curve is what it measured, and other numbers are for ``completed``;
    elsewhere it is modeled on each. Learners are those of one implementation: threads of the reference, and of others
    processes, which combine by the ``sync`` that is fixed; without one they take each step together.
    """
    cpu, counts = parts.cpu, range(1, cores + 1)
    acting = {x: parts.actors.fastest_step(x) for x in _profiled(parts, "actor step", counts) or counts}
    learning: dict[int, Estimate] = {}
    if (by := parts.learners.implementation) != REFERENCE or {"sync", "period"} & parts.constraints.keys():
        learning = steps_together(parts, by, cores)
    elif known := _profiled(parts, "learner step", counts):
        threads = [
            one for one in parts.learners.list(cpu) if implementation_of(one.details) == by and one.cores in known
        ]
        learning = {one.cores: one.step for one in threads}
    else:
        modeled = {x: laws.learner(cpu, cpu, parts.workload, parts.batch, x) for x in reversed(counts)}
        learning = {x: parts.modeled(law, f"f_l({cpu.name})") for x, law in modeled.items()}
    f_a, f_l = (RateCurve(name, _rates(times)) for name, times in (("f_a", acting), ("f_l", learning)))
    evidence: dict[str, Evidence] = {}
    for time in (*acting.values(), *learning.values()):  # where a law is of all counts, that of the most stands first
        evidence.setdefault(time.rests_on.id, time.rests_on)
    return f_a, f_l, tuple(evidence.values())


def steps_together(parts: Times, by: str, cores: int) -> dict[int, Estimate]:
    """Gradient steps by x learners of an implementation, a process and a core each, without sampling."""
    fixed = {key: parts.constraints[key] for key in ("sync", "period") if key in parts.constraints}
    how = Arrangement(**{"sync": "local" if "period" in fixed else "synchronous", **fixed})
    first, whole = one_thread(parts, by), terms_of(parts.batch, sources_of(parts, parts.cpu, by), parts.cpu)
    processes, met, _ = calibrate(Processes.of(parts, cores), whole, parts, by)
    terms = replace(whole, replay_seconds=0.0, update_seconds=0.0)
    told = f"{by} learners, processes that combine by {how.sync}: {met.rests_on.description}"
    evidence = Evidence(f"f_l({parts.cpu.name})", "modeled", told)
    seconds = {count: processes.step_seconds(terms, count, horizon_of(how), how.sync) for count in range(2, cores + 1)}
    factor = laws.together(first.factor, COSTS_FACTOR)
    return {1: first} | {count: Estimate.within(each, factor, evidence) for count, each in seconds.items()}


def _profiled(parts: Times, what: str, counts: range) -> list[int]:
    """List the numbers of cores that were measured; none where they are too few for a law."""
    known = [x for x in (parts.table.threads(what) if parts.table else []) if x in counts and x <= parts.cores]
    return known if len(known) >= min(core_split.LEAST_POINTS, len(counts)) else []


def _rates(times: Mapping[int, Estimate]) -> dict[int, Estimate]:
    return {x: Estimate(1 / time.value, 1 / time.high, 1 / time.low, time.rests_on) for x, time in times.items()}


def _as_run(split: CoreSplit, asked: MappingQuestion, by: str, u: float) -> CoreSplit:
    """Give the splits that are shown the rates that `recommend` has of runs by them, if it has that of the choice.

    The fastest of them is the choice then, of those within 1 % the one on the fewest cores.
    """
    runs = {one: run for one in (split.choice, split.turns, *split.around) if (run := _run_of(asked, by, u, one))}
    if split.choice not in runs:
        return split
    every = [runs[one] for one in (split.choice, *split.around) if one in runs]
    least = (1 - WITHIN) * max(one.hz for one in every)
    choice = min((one for one in every if one.hz >= least), key=lambda one: (one.cores, -one.hz))
    around = sorted((one for one in every if one is not choice), key=lambda one: (-one.hz, one.cores))
    return replace(split, choice=choice, around=tuple(around), turns=runs.get(split.turns, split.turns))


def _run_of(asked: MappingQuestion, by: str, u: float, split: Allocation) -> Allocation | None:
    """A split with the rate of a run by it; None where nothing predicts one."""
    fix: dict[str, Any] = dict.fromkeys(WHERE, asked.parts().cpu.name) | {"learner_implementation": by, "learners": 1}
    fix |= {"arrangement": "serial"} if split.in_turns else {"arrangement": "apart", "actors": split.actors}
    fix |= {"learner_threads": split.learners} if by == REFERENCE else {}
    if by != REFERENCE and split.learners > 1 and not split.in_turns:
        fix |= {"learners": split.learners, "sync": asked.fix.get("sync", "synchronous")}
    workload = replace(asked.workload, learner=replace(asked.workload.learner, update_interval=int(u)))
    if (loop := predict_loop(replace(asked, workload=workload), fix)) is None:
        return None
    one, (low, high) = loop[1].answer, loop[1].doubt.ends(loop[1].answer)
    side: Literal["actors", "learners"] = "actors" if one.outcome.actor_hz < one.outcome.training_hz else "learners"
    sources = one.configuration.actors.time.source, weakest(one.configuration.of(part).time.source for part in LOOP)
    bottleneck = split.bottleneck if split.in_turns else side
    return replace(split, hz=one.outcome.hz, low=low, high=high, bottleneck=bottleneck, sources=sources)


def platform_split(
    platform: str | Path | Platform,
    workload: str | Path | Workload,
    cores: int | None = None,
    update_interval: float | None = None,
    reserved: int = 0,
    *,
    fix: Mapping[str, Any] | None = None,
    results: str | Path = RESULTS,
    machine: str | None = None,
) -> CoreSplit:
    """Find the best split of a platform's processor for a workload; more ``cores`` than it has: a larger one like it.

    ``cores`` and ``update_interval``: by default the platform's and the workload's. ``fix``, ``machine`` and errors as
    in ``find_mapping``, and those of ``split_cores``.
    """
    asked = ask(platform, workload, fix=fix, results=results, machine=machine)
    refuse(asked.fix, ("learners", "banks"))
    own = asked.parts().cores
    wanted = own if cores is None else cores
    wanted, reserved = check(1.0, wanted, reserved)
    if own < wanted <= MOST_CORES:
        asked = replace(asked, platform=with_changes(asked.platform, {f"{asked.parts().cpu.name}.cores": wanted}))
    parts = asked.parts()
    u = asked.workload.learner.update_interval if update_interval is None else update_interval
    f_a, f_l, sources = platform_curves(parts, max(1, min(wanted, MOST_CORES) - reserved))
    split = _as_run(split_cores(f_a, f_l, u, wanted, reserved), asked, parts.learners.implementation, u)
    return replace(
        split,
        sources=(*sources, *split.sources),
        batch=parts.batch,
        cores_there=own if wanted - reserved > own else None,
        **asked.provenance,
    )
