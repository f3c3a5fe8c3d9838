"""Judge whether learners side by side are worth it on a platform: as they run here, and by formulas of [Zhang2022].

Learners are processes of the implementation that would run. One alone takes what ``recommend`` says of it; of L each
has B / L records, and as much as the one of what no part of a batch makes shorter. They share cores with actors where
there are too few, and wait for each other where they meet: neither is in the formulas, which have a core for each.

Letters: A actors, B batch, C cores, H gradient steps between averages of the weights, L learners.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from impls.terminal import plural
from impls.training import Workload, identity, load, names
from impls.training.sizes import networks
from impls.training.throughput import scaling_factor

from ..estimate import Estimate, Evidence, weakest
from ..mapping.alternatives import choose as choose_mapping
from ..mapping.options import implementation_of
from ..mapping.processes import replay_times, reshaped
from ..mapping.question import MappingQuestion
from ..platforms import Device
from ..records import Measurement, Source, how_to_measure
from ..solver.deciding import LINK_FACTORS
from ..solver.problem import ProblemError
from ..solver.solve import Infeasible
from ..stats import nonnegative
from ..times import analytic
from ..times.batch_law import FlatThenLinear, flat_then_linear
from ..times.parts import Parts
from ..times.whole_runs import REFERENCE
from .multi_learner import FactorPoint, Terms, choose, data_parallel_seconds, factors, single_seconds, spo_seconds

MOST, LONGEST = 1024, 100_000  # L and H that may be asked for
WITHIN = 0.01  # of the shortest step counts as equal: then fewer learners and a smaller H are chosen
COSTS, COSTS_FACTOR = ((1.07, 45e-6, 60e-6), (1.6, 100e-6, 60e-6)), 3.0
"""Of several learners, on cores of their own and on shared ones: the slowdown of their work, seconds until they have
met, and further seconds of a step for each of its ``phases``. Fitted to machine 635af1acbb: the grid of learners alone
(34 cells, at most 15 % off), and the earlier 12 runs of ``results/learners.md``, next to an actor."""
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

    def is_crowded(self, learners: int) -> bool:
        """Whether some of L learners and all actors share a core."""
        return learners + self.actors > self.cores

    def step_seconds(self, terms: Terms, learners: int, horizon: int | None) -> float:
        """Seconds of a step of L learners that average weights every H steps, or gradients at each (None)."""
        if learners == 1:
            return single_seconds(terms)
        if terms.shared_link:  # on devices, where none of this runs
            return spo_seconds(terms, learners, horizon) if horizon else data_parallel_seconds(terms, learners)
        slower, wait, more = self.costs[self.is_crowded(learners)]
        work = slower * self.part_seconds(terms, learners) + more * self.phases
        return work + wait * self.meetings(horizon) + self.averaging_seconds(terms, learners, horizon)

    def part_seconds(self, terms: Terms, learners: int) -> float:
        """Seconds in which L learners could be done with their parts of a step, by the work and the cores there are."""
        part = terms.replay_seconds / learners + terms.passes.seconds(terms.batch / learners) + terms.update_seconds
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


@dataclass(frozen=True)
class LearnerScaling:
    """The answer: ``choice`` is (L, H) with the shortest step of learners ``by`` an implementation, as they run.

    ``points``: factors by the formulas, of data parallel training, then of SPO with each of ``horizons``, for each of
    ``counts``. ``held``: learners that the platform has room for. ``ran``: seconds of steps in runs, by (L, H or None).
    """

    platform: str
    workload: str
    device: str
    by: str
    processes: Processes
    terms: Terms
    sources: tuple[Term, ...]
    counts: tuple[int, ...]
    horizons: tuple[int, ...]
    points: tuple[FactorPoint, ...]
    held: int
    longest: int
    choice: tuple[int, int]
    ran: Mapping[tuple[int, int | None], Sequence[float]]
    machine: str  # whose records were read, if any
    machine_note: str  # says so where another machine stands for "this"

    @property
    def single_seconds(self) -> float:
        """Seconds of a gradient step by one learner."""
        return single_seconds(self.terms)

    def seconds(self, learners: int, horizon: int | None, are_alone: bool = False) -> float:
        """Seconds of a gradient step by L learners, as they run, or while actors stand still.

        H None: gradients are gathered at each step.
        """
        processes = replace(self.processes, actors=0) if are_alone else self.processes
        return processes.step_seconds(self.terms, learners, horizon)

    def factor(self, learners: int, horizon: int | None, are_alone: bool = False) -> float:
        """The scaling factor of that."""
        return scaling_factor(1 / self.seconds(learners, horizon, are_alone), learners, 1 / self.single_seconds)

    def second(self) -> tuple[int, float, float]:
        """Give, of two learners, (H, seconds averaging every H steps, seconds gathering gradients each step)."""
        _, horizon = choose([2], range(1, self.longest + 1), self.seconds, WITHIN)
        return horizon, self.seconds(2, horizon), self.seconds(2, None)


def learner_scaling(
    question: MappingQuestion, most: int = 8, longest: int = 25, device: str | None = None
) -> LearnerScaling:
    """Find the scaling factors of up to ``most`` learners of a system, averaged every ``longest`` steps at the most.

    ``device``: what each learner runs on, by default a core of the processor. ProblemError for numbers outside any
    sense or a device that cannot train; RecordError as in ``recommend_mapping``.
    """
    if not 1 <= most <= MOST:
        raise ProblemError(f"the most learners to try are from 1 to {MOST}, not {most}")
    if not 1 <= longest <= LONGEST:
        raise ProblemError(f"the longest period is from 1 to {LONGEST} gradient steps, not {longest}")
    place, parts = question.platform, question.parts()
    there = [one.name for one in place.devices]
    if device is not None and device not in there:
        raise ProblemError(f"no device {device!r} for learners; there are {', '.join(there)}")
    home = place.device(device) if device else parts.cpu
    if home is not parts.cpu and not place.way(parts.cpu.name, home.name, 0.0)[1]:
        raise ProblemError(f"no chain of links from {parts.cpu.name} to {home.name}; state them in the platform file")
    by = parts.implementation if home.kind == "cpu" else REFERENCE
    single, processes = _one_learner(question, home, by)
    sources = tuple(_sources(parts, home, by, single))
    terms = _terms(parts.batch, sources, home)
    processes, wait, ran = calibrate(processes, terms, parts, by if home is parts.cpu else "")
    step, counts = functools.partial(processes.step_seconds, terms), range(1, most + 1)
    choice = choose(counts, range(1, longest + 1), step, WITHIN)
    horizons = tuple(sorted({1, choice[1], longest}))
    shown = tuple(sorted({*(1 << power for power in range(most.bit_length())), choice[0], most}))
    made: dict[str, Any] = {
        "processes": processes, "terms": terms, "sources": (*sources, wait), "points": factors(terms, shown, horizons),
        "counts": shown, "horizons": horizons, "held": parts.cores if home.kind == "cpu" else 1, "longest": longest,
    }  # fmt: skip
    return LearnerScaling(device=home.name, by=by, choice=choice, ran=ran, **made, **question.provenance)


def _one_learner(question: MappingQuestion, home: Device, by: str) -> tuple[Estimate, Processes]:
    """(a gradient step of its one learner, processes), as ``recommend`` has them.

    Its replay is the processor's. ProblemError where that does not fit.
    """
    parts = question.parts()
    replay = dict.fromkeys(("sampling", "storage", "updating"), parts.cpu.name)
    usual = {"arrangement": "apart" if parts.cores > 1 else "serial", "learner": home.name, "learner_threads": 1}
    asked = replace(question, fix={"learner_implementation": by, **usual, **replay, **question.fix})
    built = asked.built()
    made = choose_mapping(built.problems, asked.objective, asked.epsilon)
    if isinstance(made, Infeasible):
        raise ProblemError(f"no learner of {asked.workload.name} on {home.name} fits {asked.platform.name}")
    chosen, known = made.answer.configuration, built.details(made.answer.configuration.actors)
    acting = built.parts.acting(count := int(known.get("processes", 1)), policy=implementation_of(known)).value
    step = chosen.learner.time
    single = step.scaled(1 / made.answer.outcome.training_hz / step.value)
    return single, _processes(parts, parts.cores, count, acting)


def _processes(parts: Parts, cores: int, actors: int = 0, acting: float = 0.0) -> Processes:
    own, shared = ((slower, *(analytic.pace(parts.cpu) * each for each in seconds)) for slower, *seconds in COSTS)
    return Processes(cores, actors, acting, *_phases(parts.workload), (own, shared))


def _phases(workload: Workload) -> tuple[float, int]:
    """(phases of a gradient step, networks): SAC's temperature is one more; TD3 trains its policy now and then."""
    count = len(networks(workload))
    return count + {"sac": 1.0, "td3": 1 / workload.learner.policy_delay - 1}.get(workload.algorithm, 0.0), count


def steps_together(parts: Parts, by: str, cores: int) -> dict[int, Estimate]:
    """Gradient steps that x learners of an implementation take together, a core each, without sampling."""
    first, processes = _one_thread(parts, parts.cpu, by), _processes(parts, cores)
    whole = _terms(parts.batch, _sources(parts, parts.cpu, by), parts.cpu)
    terms = replace(whole, replay_seconds=0.0, update_seconds=0.0)
    evidence = Evidence(f"f_l({parts.cpu.name})", "modeled", f"{by} learners, processes that take each step together")
    seconds = {count: processes.step_seconds(terms, count, None) for count in range(2, cores + 1)}
    factor = analytic.together(first.factor, COSTS_FACTOR)
    return {1: first} | {count: Estimate.within(each, factor, evidence) for count, each in seconds.items()}


def _terms(batch: int, sources: Iterable[Term], home: Device) -> Terms:
    law = {one.rests_on.number: one.law for one in sources}
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


def _sources(parts: Parts, home: Device, by: str, single: Estimate | None = None) -> Iterator[Term]:
    """Yield the terms of a ``single`` learner's gradient step, by default the sum of its parts.

    Laws are those of B and half of it, which each of two learners has: parts alone, scaled to what is left of the step.
    """
    sizes = (parts.batch // 2, parts.batch) if parts.batch > 1 else (2, 1)
    sized = [reshaped(parts, parts.workload, size) for size in sizes]
    steps = [[_one_thread(one, home, by)] for one in sized]
    replays = [replay_times(one) for one in sized]
    passes, replay = (_law(sizes, [sum(time.value for time in each) for each in times]) for times in (steps, replays))
    alone = passes.seconds(parts.batch) + replay.seconds(parts.batch)
    whole = single.value if single else alone
    rest = min(max(0.0, whole - alone), analytic.pace(parts.cpu) * LOOP_SECONDS)
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


def _one_thread(parts: Parts, home: Device, by: str) -> Estimate:
    """A gradient step on one device by an implementation, alone, by one thread of a processor."""
    alone = (one for one in parts.learners(home) if one.details.get("threads", 1) == one.devices == 1)
    return next(one.step for one in alone if implementation_of(one.details) == by)


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
    told, source = f"{what}: {times[-1][0].rests_on.told}", weakest(time.source for time in every)
    return _term(name, law, per, told, source, factor)


def _records(parts: Parts, home: Device) -> Term:
    nbytes = parts.batch * parts.transition_bytes
    alone, whole = (parts.platform.transfer_seconds(parts.cpu.name, home.name, size) for size in (0.0, nbytes))
    law = FlatThenLinear(alone, (whole - alone) / parts.batch)
    description = f"{parts.transition_bytes:g} bytes over the route to {home.name}"
    return _term("T_records", law, "record", description, factor=LINK_FACTORS["modeled"])


def _weights_bytes(parts: Parts) -> float:
    """Count the bytes of all networks that a learner trains."""
    return 4.0 * sum(size.parameters for size in networks(parts.workload).values())


def _weights(parts: Parts, home: Device) -> Term:
    if home is not parts.cpu:
        seconds = parts.platform.transfer_seconds(parts.cpu.name, home.name, _weights_bytes(parts))
        description = f"{_weights_bytes(parts) / 1e6:.2g} MB over the route to {home.name}"
        return _term("T_weights", FlatThenLinear(seconds, 0.0), "", description, factor=LINK_FACTORS["modeled"])
    sent = [parts.table.weights(op) if parts.table else None for op in ("publish", "fetch")]
    known = [[time for time in sent if time] if all(sent) else [analytic.fetch(_weights_bytes(parts))]]
    law = FlatThenLinear(sum(time.value for time in known[0]), 0.0)
    return _measured("T_weights", law, "", known, "all networks, in and out of shared memory")


def _average(parts: Parts) -> Term:
    averages = parts.table.alone("weights average") if parts.table else {}
    means = {float(row.options["models"]): row.time.value for rows in averages.values() for row in rows}
    if len(means) > 1:
        description = f"averages of {', '.join(f'{count:g}' for count in sorted(means))} models"
        law = flat_then_linear(list(means), list(means.values()))
        return _term("T_avg", law, "learner", description, "measured")
    moved = analytic.rows_moved(parts.cpu, 1, _weights_bytes(parts))
    description = "each learner's weights through the processor's memory once"
    return _term("T_avg", FlatThenLinear(0.0, moved.value), "learner", description, factor=moved.factor)


def _term(
    name: str, law: FlatThenLinear, per: str, description: str, source: Source = "modeled", factor: float | None = None
) -> Term:
    return Term(law, per, Evidence(name, source, description), factor)


Ran = dict[tuple[int, int | None], list[float]]


def calibrate(processes: Processes, terms: Terms, parts: Parts, by: str) -> tuple[Processes, Term, Ran]:
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
        average = one.machine.get("average_seconds", 0.0) / (horizon or 1)
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
        return made, _term(*met, f"{told}of another machine; {how_to_measure('learning')}", factor=COSTS_FACTOR), ran
    return made, _term(*met, f"{told}by {plural(len(found[is_crowded]), 'run')} of several", "measured"), ran


def _network(one: Measurement) -> tuple[str, str, str]:
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
