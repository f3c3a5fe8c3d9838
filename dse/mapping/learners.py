"""A gradient step of several learners: processes that share it, or that take whole steps on weights they share.

Each of L learners that share a step has B / L records, and as much as one of what no part of a batch makes shorter.
They share cores with actors where there are too few, and wait for each other where they meet.

Letters: A actors, B batch, C cores, H gradient steps between averages of the weights, L learners.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from impls.terminal import plural
from impls.training import Workload, identity, load, names
from impls.training.arrangement import SEVERAL, SHARING, SYNCS, Arrangement
from impls.training.weights import networks

from ..estimate import Estimate, Evidence, weakest
from ..platforms import Device
from ..records import Record, Source, benchmark, how_to_measure
from ..solver.deciding import LINK_FACTORS
from ..stats import nonnegative
from ..times import laws
from ..times.curves import FlatThenLinear, flat_then_linear
from ..times.door import Times
from ..times.several import Terms, data_parallel_seconds, single_seconds, spo_seconds
from ..times.whole import UNLIKE, combined
from .processes import LEAST, ExecutionMode, OfOneLearner, RunTimes, one_thread, replay_times, reshaped

WHOLE = set(SYNCS) - set(SHARING)
"""Syncs whose learners each take whole steps."""
COSTS, COSTS_FACTOR = ((1.07, 45e-6, 60e-6), (1.6, 100e-6, 60e-6)), 3.0
"""Of several learners, on cores of their own and on shared ones: the slowdown of their work, seconds until they have
met, and further seconds of a step for each of its ``phases``. Fitted to machine 635af1acbb: the grid of learners alone
(34 cells, at most 15 % off), and the earlier 12 runs of ``results/learners.csv``, next to an actor."""
LOOP_SECONDS = 20e-6  # of a step, which its process takes besides gradient and replay: of CartPole's, on 2 machines
Costs = tuple[float, ...]


@dataclass(frozen=True)
class Term:
    """A term of a gradient step: its law by a number of ``per``, and its evidence, whose number is its letters.

    ``factor``: its assumed error bound, where it was not timed.
    """

    law: FlatThenLinear
    per: str
    rests_on: Evidence
    factor: float | None = None


@dataclass(frozen=True)
class Processes:
    """Learners as processes on C ``cores``, with A ``actors`` that are each busy for ``acting`` seconds of a step.

    ``phases``: how often learners meet in a step that they take together, a network at a time; ``vectors``: networks,
    averaged apart. ``costs``: as ``COSTS``.
    """

    cores: int
    actors: int
    acting: float
    phases: float
    vectors: int
    costs: tuple[Costs, Costs]

    @classmethod
    def of(cls, parts: Times, cores: int, actors: int = 0, acting: float = 0.0) -> "Processes":
        """Learners of a workload, with costs as on any machine."""
        own, shared = ((slower, *(laws.pace(parts.cpu) * each for each in seconds)) for slower, *seconds in COSTS)
        return cls(cores, actors, acting, *_phases(parts.workload), (own, shared))

    def is_crowded(self, learners: int) -> bool:
        """Whether some of L learners and all actors share a core."""
        return learners + self.actors > self.cores

    def step_seconds(self, terms: Terms, learners: int, horizon: int | None, sync: str = "") -> float:
        """Seconds of a step of L learners that average weights every H steps, or gradients at each (None).

        With a ``sync`` that shares no step each takes whole ones, as many in all.
        """
        if learners == 1:
            return single_seconds(terms)
        if terms.shared_link:  # on devices, where none of this runs
            return spo_seconds(terms, learners, horizon) if horizon else data_parallel_seconds(terms, learners)
        slower, wait, more = self.costs[self.is_crowded(learners)]
        work = slower * self.part_seconds(terms, learners, sync) + more * self.phases
        if sync in WHOLE:
            return work
        return work + wait * self.meetings(horizon) + self.averaging_seconds(terms, learners, horizon)

    def part_seconds(self, terms: Terms, learners: int, sync: str = "") -> float:
        """Seconds of a step in which L learners could be done with their parts, by the work and the cores there are."""
        parts, steps = (1, learners) if sync in WHOLE else (learners, 1)
        part = terms.replay_seconds / parts + terms.passes.seconds(terms.batch / parts) + terms.update_seconds
        part = max(part / steps, terms.passes.seconds(terms.batch) * (sync == "lock"))  # which others wait for
        acting, single = self.actors * self.acting, single_seconds(terms)
        if self.is_crowded(learners):
            done = max(self.cores, (single + acting) / max(single, self.acting))  # times of shared cores count sharing
            part = max(part, (learners * part + acting) / done)
        return part

    def averaging_seconds(self, terms: Terms, learners: int, horizon: int | None) -> float:
        """Seconds of a step that averaging takes: one does it at each step (None), or each does a part every H."""
        average = terms.average.seconds(learners) / (learners if horizon else 1)
        return (terms.weights_seconds + average) / (horizon or 1)

    def meetings(self, horizon: int | None) -> float:
        """How often learners wait in a step: until all have come, and until what they have handed in is used."""
        return 2 * self.phases if horizon is None else 2 * self.vectors / horizon


def _phases(workload: Workload) -> tuple[float, int]:
    """(phases of a gradient step, networks): SAC's temperature is one more; TD3 trains its policy now and then."""
    count = len(networks(workload))
    return count + {"sac": 1.0, "td3": 1 / workload.learner.policy_delay - 1}.get(workload.family, 0.0), count


def terms_of(batch: int, sources: Iterable[Term], home: Device) -> Terms:
    law = {one.rests_on.id: one.law for one in sources}
    return Terms(
        batch=batch,
        replay_seconds=law["T_replay"].each_seconds * batch,
        passes=law["T_pass"],
        update_seconds=law["T_rest"].fixed_seconds,
        records=law.get("T_records", FlatThenLinear(0.0, 0.0)),
        weights_seconds=law["T_weights"].fixed_seconds,
        average=law["T_avg"],
        shared_link=home.kind != "cpu",
    )


def sources_of(parts: Times, home: Device, by: str, single: Estimate | None = None) -> Iterator[Term]:
    """Yield the terms of a ``single`` learner's gradient step, by default the sum of its parts.

    Laws are those of B and half of it, which each of two learners has: parts alone, scaled to what is left of the step.
    """
    sizes = (parts.batch // 2, parts.batch) if parts.batch > 1 else (2, 1)
    sized = [reshaped(parts, parts.workload, size) for size in sizes]
    steps = [[one_thread(one, by, home)] for one in sized]
    replays = [replay_times(one) for one in sized]
    passes, replay = (_law(sizes, [sum(time.value for time in each) for each in times]) for times in (steps, replays))
    alone = passes.seconds(parts.batch) + replay.seconds(parts.batch)
    whole = single.value if single else alone
    rest = min(max(0.0, whole - alone), laws.pace(parts.cpu) * LOOP_SECONDS)
    slower = (whole - rest) / alone
    passes, replay = (FlatThenLinear(slower * law.fixed_seconds, slower * law.each_seconds) for law in (passes, replay))
    rest += replay.fixed_seconds
    yield _measured("T_pass", passes, "record", steps, f"{by} on one thread" if home.kind == "cpu" else home.name)
    yield _measured("T_replay", FlatThenLinear(0.0, replay.each_seconds), "record", replays, "sampled and updated")
    told = "what else a learner's process does in a step, as much for a part of a batch"
    yield _measured("T_rest", FlatThenLinear(rest, 0.0), "", [[single or steps[-1][0]]], told)
    if home is not parts.cpu:  # where each gathers its own from memory that all share
        yield _records(parts, home)
    yield _weights(parts, home)
    yield _average(parts)


def _law(sizes: Sequence[int], seconds: Sequence[float]) -> FlatThenLinear:
    """The line through both, no part of it below 0, right at the second in any case."""
    (one, batch), (before, whole) = sizes, seconds
    each = min(max(0.0, (whole - before) / (batch - one)), whole / batch)
    return FlatThenLinear(whole - each * batch, each)


def _measured(name: str, law: FlatThenLinear, per: str, times: Sequence[Sequence[Estimate]], what: str) -> Term:
    """A term by the times of its parts at half a batch and at a whole one, as sure as the least sure of them."""
    every = [time for each in times for time in each]
    worst = max(every, key=lambda time: time.factor)
    factor = worst.factor if worst.interval == "factor" else None
    told, source = f"{what}: {times[-1][0].rests_on.description}", weakest(time.source for time in every)
    return _term(name, law, per, told, source, factor)


def _records(parts: Times, home: Device) -> Term:
    nbytes = parts.batch * parts.transition_bytes
    alone, whole = (parts.platform.transfer_seconds(parts.cpu.name, home.name, size) for size in (0.0, nbytes))
    law = FlatThenLinear(alone, (whole - alone) / parts.batch)
    description = f"{parts.transition_bytes:g} bytes over the route to {home.name}"
    return _term("T_records", law, "record", description, factor=LINK_FACTORS["modeled"])


def _weights_bytes(parts: Times) -> float:
    """Count the bytes of all networks that a learner trains."""
    return 4.0 * sum(size.parameters for size in networks(parts.workload).values())


def _weights(parts: Times, home: Device) -> Term:
    if home is not parts.cpu:
        seconds = parts.platform.transfer_seconds(parts.cpu.name, home.name, _weights_bytes(parts))
        description = f"{_weights_bytes(parts) / 1e6:.2g} MB over the route to {home.name}"
        return _term("T_weights", FlatThenLinear(seconds, 0.0), "", description, factor=LINK_FACTORS["modeled"])
    sent = [parts.table.weights(op) if parts.table else None for op in ("publish", "fetch")]
    known = [[time for time in sent if time] if all(sent) else [laws.fetch(_weights_bytes(parts))]]
    law = FlatThenLinear(sum(time.value for time in known[0]), 0.0)
    return _measured("T_weights", law, "", known, "all networks, in and out of shared memory")


def _average(parts: Times) -> Term:
    averages = parts.table.alone("weights average") if parts.table else {}
    means = {float(row.options["models"]): row.time.value for rows in averages.values() for row in rows}
    if len(means) > 1:
        description = f"averages of {', '.join(f'{count:g}' for count in sorted(means))} models"
        law = flat_then_linear(list(means), list(means.values()))
        return _term("T_avg", law, "learner", description, "measured")
    moved = laws.rows_moved(parts.cpu, 1, _weights_bytes(parts))
    description = "each learner's weights through the processor's memory once"
    return _term("T_avg", FlatThenLinear(0.0, moved.value), "learner", description, factor=moved.factor)


def _term(
    name: str, law: FlatThenLinear, per: str, description: str, source: Source = "modeled", factor: float | None = None
) -> Term:
    return Term(law, per, Evidence(name, source, description), factor)


Ran = dict[tuple[int, int | None], list[float]]


def calibrate(processes: Processes, terms: Terms, parts: Times, by: str) -> tuple[Processes, Term, Ran]:
    """(processes with costs as timed here, their evidence, seconds of the workload's own runs by (L, H or None)).

    Of learners alone, those of any workload tell: one of them was timed on its part of the batch too.
    """
    known = parts.table.learned if parts.table else ()
    timed = [one for one in known if one.options.get("learner", one.contestant) == by]
    alone = {(*_network(one), one.batch): one.seconds for one in timed if one.options["learners"] == 1}
    found, ran = {at: list[tuple[float, ...]]() for at in (False, True)}, Ran()
    own = identity(parts.workload), parts.batch, parts.workload.learner.update_interval
    for one in timed:
        count, horizon = one.options["learners"], one.options.get("period")
        if count == 1 or one.options["sync"] not in ("synchronous", "local"):
            continue
        task = load(one.options["workload"]) if one.options["workload"] in names() else parts.workload
        phases, vectors = _phases(task)
        there = replace(processes, actors=one.options.get("actors", 0), phases=phases, vectors=vectors)
        part = alone.get((*_network(one), one.batch // count))
        average = one.metrics.get("average_seconds", 0.0) / (horizon or 1)
        if (one.options.get("identity"), one.batch, one.options.get("update_interval")) == own:
            part, average = there.part_seconds(terms, count), there.averaging_seconds(terms, count, horizon)
            ran.setdefault((count, horizon), []).append(one.seconds)
        if part:
            found[there.is_crowded(count)].append((part, there.meetings(horizon), phases, one.seconds - average))
    own_costs, shared = (_fit(found[at], processes.costs[at]) for at in (False, True))
    made, is_crowded = replace(processes, costs=(own_costs, shared)), processes.is_crowded(2)
    slower, wait, more = made.costs[is_crowded]
    met = "T_wait", FlatThenLinear(wait, 0.0), ""
    told = f"each time until learners on {'shared cores' if is_crowded else 'cores of their own'} have met; their work "
    told += f"has a slowdown of {slower:.2f}x, a network {1e6 * more:,.0f} us more: "
    if not found[is_crowded]:
        told += f"of another machine; {how_to_measure('run learning')}"
        return made, _term(*met, told, factor=COSTS_FACTOR), ran
    return made, _term(*met, f"{told}by {plural(len(found[is_crowded]), 'run')} of several", "measured"), ran


def _network(one: Record) -> tuple[str, str, str]:
    return one.primitive, one.options["workload"], str(one.options.get("hidden"))


def _fit(timed: Sequence[tuple[float, ...]], usual: Costs) -> Costs:
    """Costs by (seconds of work, waits, phases, seconds) of steps, as far as they differ; the rest is as ``usual``."""
    if not timed:
        return usual
    (slower, _, more), (work, waits, phases, seconds) = usual, np.array(timed).T
    if np.unique(waits).size < 2:
        return slower, max(0.0, float(np.median((seconds - slower * work - more * phases) / waits))), more
    is_free = np.unique(work).size > 1
    parts = np.stack((work, waits, phases)[: 2 + is_free], axis=1) / seconds[:, None]
    known = nonnegative(parts / parts.max(axis=0), 1 - (not is_free) * more * phases / seconds) / parts.max(axis=0)
    return (*map(float, known), more)[:3]


def horizon_of(how: Arrangement) -> int | None:
    """H of an arrangement whose learners average their weights; None of others."""
    return how.period if how.sync == "local" else None


def fastest(one: OfOneLearner, ways: Iterable[Arrangement]) -> "Iterator[SeveralLearners]":
    """Yield the run of each number of several learners, as predicted the fastest of the ``ways`` to combine them."""
    parts, run = one.parts, one.mode
    cores, by = parts.cores, run.learner
    known: dict[int, list[SeveralLearners]] = {}
    several = [how for how in ways if 1 < how.learners <= max(cores - run.actors, how.learners * (run.actors == 1))]
    if not several or run.arrangement != several[0].name:
        return
    learner = one.step(one_thread(parts, by), by)
    single = learner.plus(_replay_seconds(one))
    terms = terms_of(parts.batch, sources_of(parts, parts.cpu, by, single), parts.cpu)
    acting = parts.actors.acting(run.actors, policy=run.policy).value
    processes, met, _ = calibrate(Processes.of(parts, cores, run.actors, acting), terms, parts, by)
    for how in several:
        made = SeveralLearners(one, replace(run, how=how), terms, processes, met, learner)
        known.setdefault(how.learners, []).append(made)
    for each in known.values():
        yield min(each, key=lambda made: made.whole.value)


@dataclass
class SeveralLearners:
    """The times of the parts of a run of several learners, by those of ``one``, the same run of a single one.

    ``terms``: of that one's step, of which ``learner`` is all but the replay; ``met``: what costs rest on.
    """

    one: OfOneLearner
    mode: ExecutionMode
    terms: Terms
    processes: Processes
    met: Term
    learner: Estimate

    ratio = 1.0

    @property
    def own(self) -> Times:
        """The parts, each alone."""
        return self.one.own

    @property
    def counts_others(self) -> bool:
        """Whether the times count what runs concurrently on other cores."""
        return self.one.counts_others or self._timed is not None

    @functools.cached_property
    def _timed(self) -> Estimate | None:
        """Seconds of a gradient step of just this run, where it was timed whole."""
        parts, run = self.one.parts, self.mode
        shape = run.arrangement, run.learner, run.policy, run.actors, parts.environments, parts.batch
        how = combined(**{key: getattr(run.how, key) for key in SEVERAL})
        wanted, table = (*shape, parts.workload.learner.update_interval, how), parts.table
        return next((one.time for one in table.several if one.shape == wanted), None) if table else None

    @functools.cached_property
    def whole(self) -> Estimate:
        """A gradient step with its replay: as it was timed, else predicted."""
        parts, how, met = self.one.parts, self.mode.how, self.met.rests_on
        evidence_id = f"learners({parts.cpu.name}), {self.mode.combined}"
        if self._timed:
            return self._timed.resting_on(id=evidence_id)
        seconds = self.processes.step_seconds(self.terms, how.learners, horizon_of(how), how.sync)
        work = min(seconds, self.processes.part_seconds(self.terms, how.learners, how.sync))
        # Runs that meet tell what meeting costs, and nothing of learners that take whole steps.
        is_told = how.sync not in WHOLE
        costs = self.met.factor or UNLIKE if is_told else COSTS_FACTOR
        factor = (work * self.learner.factor + (seconds - work) * costs) / seconds
        told, source = f"{self.learner.rests_on.description}; {met.description}", met.source if is_told else "modeled"
        command = benchmark(f"profile --arrangements --workload {parts.workload_word}")
        evidence = Evidence(evidence_id, weakest((self.learner.source, source)), told, command, topic="arrangements")
        return Estimate.within(seconds, factor, evidence)

    def acting(self, alone: Estimate, policy: str) -> Estimate:
        """Seconds of a gradient step that an actor takes: no more than the whole of a run that was timed."""
        time, whole = self.one.acting(alone, policy), self._timed
        return time.scaled(min(1.0, whole.value / time.value)) if whole else time

    def step(self, alone: Estimate, learner: str) -> Estimate:
        """The learners' time of a gradient step, on one thread each."""
        return self.whole.scaled(max(LEAST, 1 - _replay_seconds(self) / self.whole.value))

    def stored(self, alone: Estimate) -> Estimate:
        """The time of moving records by its time alone: learners move them at the same time."""
        return self.one.stored(alone).scaled(1 / self.mode.how.learners)

    def replay(self, alone: Estimate) -> Estimate:
        """The time of a part of the replay by its time alone."""
        return self.one.replay(alone).scaled(1 / self.mode.how.learners)


def _replay_seconds(run: RunTimes) -> float:
    """Seconds of a gradient step that the replay takes in a run."""
    *tree, rows = replay_times(run.own)
    return sum(run.replay(time).value for time in tree) + run.stored(rows).value
