"""Replay the adaptation of [Hou2023]: search samplers and a batch over the rates that the solver predicts.

Every pair (samplers, batch) has the fastest mapping that the solver finds for it, actors in processes of their own:
the most gradient steps the learner could take, as published. In that table samplers and batch are each searched by a
rate of its own, and all pairs are compared by records trained per second at the workload's update interval. That rate
rises with B almost everywhere, so the most records take the largest batch there is; our own answer is the knee instead.
An FPGA takes no part.

Letters: B batch, D batches sampled ahead, u environment steps a gradient step, x samplers (processes of actors).
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from impls.training.adapting import MEMORY, PROCESSOR, WHOLE, Cap, Pair, adapt, joint

from ..answer import Answer, Note, Row
from ..estimate import Estimate, Evidence, weakest
from ..mapping.build import build
from ..mapping.processes import is_here
from ..mapping.question import BATCHES, MappingQuestion, measured_batches, refuse
from ..mapping.why_not import Knee, knee
from ..platforms import Platform
from ..solver.law import EPSILONS, Outcome, outcome
from ..solver.problem import Configuration, Option, Problem, ProblemError
from ..solver.solve import Search
from ..times.door import Times
from ..times.trees import LEAF_BYTES
from . import name_system, note_records
from .cores import ACTING_HZ

RECORDS_HZ = "records/s"
PROCESS_BYTES = 0.25e9  # resident, with PyTorch and an environment, on machine d7dae63b89; a part of it may be shared
PRINTED = {"desktop": (16, 8_192), "server": (16, 16_384), "laptop": (4, 2_048)}
"""The pairs that [Hou2023, sections 4.2.3 and 4.2.4, Fig. 8] prints of its machines, which train PyBullet's walker."""
_Chosen = tuple[Problem, Configuration, Outcome]


@dataclass(frozen=True)
class Look:
    """The solver's prediction for a pair, and the times of actors and learner with their evidence."""

    outcome: Outcome
    actors: Estimate
    learner: Estimate


@dataclass(frozen=True)
class Replayed:
    """Predicted rates of every pair (x, B) under the caps, 0 where no mapping can run it.

    ``samplers`` and ``batches``: values to try, rising. ``looks``: the pairs that some mapping can run.
    """

    samplers: tuple[int, ...]
    batches: tuple[int, ...]
    caps: tuple[Cap, ...]
    update_interval: int
    looks: Mapping[Pair, Look]

    def sampling_hz(self, samplers: int, batch: int) -> float:
        """Environment steps/s that the samplers could take."""
        return self.update_interval * self._hz("actor_hz", samplers, batch)

    def frames_hz(self, samplers: int, batch: int) -> float:
        """Records per second that the learner could train on, whatever actors do."""
        return batch * self._hz("training_hz", samplers, batch)

    def records_hz(self, samplers: int, batch: int) -> float:
        """Records trained per second at the workload's update interval."""
        return batch * self._hz("hz", samplers, batch)

    def _hz(self, which: str, samplers: int, batch: int) -> float:
        look = self.looks.get((samplers, batch))
        return float(getattr(look.outcome, which)) if look else 0.0


def answer_samplers(question: MappingQuestion, rates: Replayed) -> Answer:
    """Choose the pair at the knee of records trained, with the fewest samplers that keep up.

    Besides it are the pair of the independent searches, and that with the most records of all pairs. ProblemError where
    no pair fits, TrainingError where caps are below what one sampler takes.
    """
    searches = adapt(rates.samplers, rates.batches, rates.sampling_hz, rates.frames_hz, rates.caps)
    pair = searches.samplers.best, searches.batch.best
    best = joint(rates.samplers, rates.batches, rates.records_hz, rates.caps)
    if not rates.records_hz(*best):
        task, platform = question.workload.name, question.platform.name
        raise ProblemError(f"{task} does not fit {platform} with actors in processes of their own")
    chosen, at = _choose(rates, question.workload.learner.batch)
    caps = {cap.name: cap.most for cap in rates.caps}
    rows, notes = list[Row](), list(at.notes(chosen[1], "second", bool(measured_batches(question))))
    acting = {x: look.actors for (x, batch), look in rates.looks.items() if batch == rates.batches[0]}
    learning = {batch: look.learner for (x, batch), look in rates.looks.items() if x == pair[0]}
    for name, search, values, times, unit in (
        ("samplers", searches.samplers, rates.samplers, acting, ACTING_HZ),
        ("batch", searches.batch, rates.batches, learning, RECORDS_HZ),
    ):
        for value, hz in search.seen.items():
            more = {"rate_hz": hz, "rate_unit": unit}
            rows.append(Row({"search": name, "tried": value}, times.get(value), "s", more))
        looks = {"search": name, "best": search.best, "looks": len(search.seen), "values": len(search.allowed)}
        notes.append(Note("search_found", looks))
        if search.stopped_by:
            over = "over_memory" if search.stopped_by == MEMORY else "over_processor"
            cap = {"value": values[len(search.allowed)], "cap": caps[search.stopped_by]}
            notes.append(Note(over, {"search": name, "stopped_by": search.stopped_by, **cap}))
        if search.not_unimodal:
            notes.append(Note("not_one_peak", {"search": name, "seen": search.not_unimodal}))
        if search.best == search.allowed[-1] and len(search.allowed) > 1:
            notes.append(Note("still_rising", {"search": name, "best": search.best}))
    tried = sum(_is_allowed(rates.caps, x, batch) for x in rates.samplers for batch in rates.batches)
    loss = 1 - rates.records_hz(*pair) / rates.records_hz(*best)
    ends = dict(zip(("samplers", "batch"), pair, strict=True))
    notes.append(Note("searching_apart", {"loss": loss, "pairs": tried, **ends}, "first"))
    notes += [Note("design_is_fixed", {"device": device}) for device in fixed_designs(question.platform)]
    shares = {str(batch): rate / at.most for batch, rate in at.rates.items()}
    notes += [Note("waits_are_not_counted"), Note("shares_of_the_most", {"shares": shares})]
    look = rates.looks[chosen]
    notes += note_records(question, [look.actors.rests_on, look.learner.rests_on])
    says = "fastest_pair" if best != chosen else ""
    others = [_pair_row(rates, best, says, "all pairs"), _pair_row(rates, pair, "", "published search")]
    for machine, (samplers, batch) in PRINTED.items():
        label = {"samplers": samplers, "batch": batch, "found_by": f"[Hou2023], its {machine}"}
        others.append(Row(label, unit=RECORDS_HZ, more={"source": "quoted"}))
    return Answer(
        {**name_system(question), "caps": caps, "update_interval": rates.update_interval},
        _pair_row(rates, chosen, "take_samplers", "answer"),
        tuple(rows),
        tuple(others),
        notes=tuple(notes),
    )


def _pair_row(rates: Replayed, pair: Pair, says: str, by: str) -> Row:
    """Return a pair as a row, and by what it was found.

    Its rate at either end is that of the slower side, by the ends of both sides' times.
    """
    rate, look = rates.records_hz(*pair), rates.looks[pair]
    sides = (look.actors, look.outcome.actor_hz), (look.learner, look.outcome.training_hz)
    low = min(rate, *(pair[1] * hz * time.value / time.high for time, hz in sides))
    high = max(rate, min(pair[1] * hz * time.value / time.low for time, hz in sides))
    evidence = Evidence("pair", weakest(time.source for time, _ in sides))
    number = Estimate(rate, low, high, evidence)
    return Row({"samplers": pair[0], "batch": pair[1], "found_by": by}, number, RECORDS_HZ, says=says, is_bound=True)


def _choose(rates: Replayed, own: int) -> tuple[Pair, Knee]:
    """Choose the pair at the knee; where the rate only rises, the workload's own batch, or the next smaller."""
    fastest = {batch: max(rates.records_hz(x, batch) for x in rates.samplers) for batch in rates.batches}
    at = knee(rates.batches, fastest.__getitem__)
    fitting = list(filter(fastest.get, rates.batches))
    batch = at.batch or max((batch for batch in fitting if batch <= own), default=fitting[0])
    least = fastest[batch] * (1 - EPSILONS["ratio"])
    return (min(x for x in rates.samplers if rates.records_hz(x, batch) >= least), batch), at


def fixed_designs(platform: Platform) -> tuple[str, ...]:
    """Name the FPGAs: a design is built for its batch, in hours, so no look while training runs can change it."""
    return tuple(device.name for device in platform.devices if device.kind == "fpga")


def _parts(question: MappingQuestion, samplers: int, batch: int) -> Times:
    """Return the times of the workload with that many actors, one process each, and that batch."""
    actors = replace(question.workload.actors, count=samplers)
    learner = replace(question.workload.learner, batch=batch)
    return question.parts(replace(question.workload, actors=actors, learner=learner))


def _list_caps(question: MappingQuestion, memory_bytes: float | None, cpu_percent: float) -> Iterator[Cap]:
    """Cap cores, one of which the learner takes at least; and memory, as if the host kept everything."""
    parts, replay = _parts(question, 1, question.workload.learner.batch), question.workload.replay
    yield Cap(PROCESSOR, cpu_percent, lambda samplers, batch: WHOLE * (samplers + 1) / parts.cores)

    def resident(samplers: int, batch: int) -> float:
        under_way = sum(_parts(question, samplers, batch).learners.learner_bytes(parts.cpu, replay.presampled).values())
        return parts.storage_bytes + LEAF_BYTES * replay.capacity + under_way + (samplers + 1) * PROCESS_BYTES

    stated = parts.cpu.memory.size_bytes.value if parts.cpu.memory else None
    if most := memory_bytes or stated:
        yield Cap(MEMORY, most, resident)


def _is_allowed(caps: Sequence[Cap], samplers: int, batch: int) -> bool:
    return all(cap.uses(samplers, batch) <= cap.most for cap in caps)


def replay(
    question: MappingQuestion,
    memory_bytes: float | None = None,
    cpu_percent: float = WHOLE,
    announce: Callable[[int], None] = lambda batch: None,
) -> Replayed:
    """Predict the rates of all pairs of samplers and a batch under the caps.

    ``memory_bytes``: the cap on the host's memory, by default what the platform states. ``announce`` is called with
    each batch before its mappings are searched. ProblemError for caps outside any sense; RecordError as in
    ``find_mapping``.
    """
    if not 0 < cpu_percent <= WHOLE:
        raise ProblemError(f"the cap on the processor is a percentage above 0 and up to 100, not {cpu_percent:g}")
    if memory_bytes is not None and not memory_bytes > 0:
        raise ProblemError(f"the cap on memory must be above 0 GB, not {memory_bytes / 1e9:g}")
    refuse(question.fix)
    if is_here(parts := question.parts()):  # what else trains is of no implementation
        by = {"learner_implementation": parts.learners.implementation, "learners": 1}
        question = replace(question, fix={**question.fix, **by})
    caps = tuple(_list_caps(question, memory_bytes, cpu_percent))
    known = measured_batches(question) or BATCHES
    batches = tuple(batch for batch in known if batch <= question.workload.replay.capacity)
    samplers = tuple(range(1, _parts(question, 1, batches[0]).cores + 1))
    looks: dict[Pair, Look] = {}
    acting: dict[int, Estimate] = {}
    # Invariant: looks has every pair under the caps, of all smaller batches, that some mapping can run.
    for batch in batches:
        allowed = [x for x in samplers if _is_allowed(caps, x, batch)]
        if not allowed:
            break
        announce(batch)
        # More records allow no more of them.
        acting = acting or {x: _parts(question, x, batch).actors.fastest_acting(x) for x in allowed}
        built = build(_parts(question, allowed[-1], batch), excluded=frozenset(fixed_designs(question.platform)))
        budget = {f"{built.parts.cpu.name}.cores": caps[0].most / WHOLE * built.parts.cores}
        problems = [
            replace(problem, budgets={**problem.budgets, **budget})
            for mode, problem in built.problems.items()
            if mode.arrangement != "serial"
        ]
        fastest = functools.cache(functools.partial(_find_fastest, problems, acting))
        for x, (found, learner) in _look_along(fastest, acting, allowed):
            looks[x, batch] = Look(found, acting[x], learner)
    return Replayed(samplers, batches, caps, question.workload.learner.update_interval, looks)


def _look_along(
    fastest: Callable[[int], _Chosen | None], acting: Mapping[int, Estimate], samplers: Sequence[int]
) -> Iterator[tuple[int, tuple[Outcome, Estimate]]]:
    """Yield (x, outcome and the learner's time) of rising numbers of samplers at one B.

    Samplers leave fewer cores to the rest, so the learner's rate only falls with them: where it is the same at both
    ends, the mapping of the last, which fits them all, is the fastest in between too.
    """
    first, last = fastest(samplers[0]), fastest(samplers[-1])
    same = first and last and first[2].training_hz == last[2].training_hz
    middle = len(samplers) // 2
    if not same and middle:
        yield from _look_along(fastest, acting, samplers[:middle])
        yield from _look_along(fastest, acting, samplers[middle:])
    elif last:
        problem, chosen, _ = last
        for x in samplers:
            option = _list_actors(problem, x, acting)[0]
            yield x, (outcome(problem, chosen.having(option)), chosen.learner.time)


def _find_fastest(problems: Sequence[Problem], acting: Mapping[int, Estimate], samplers: int) -> _Chosen | None:
    """Find the mapping on which the learner could take the most steps, of equal ones that with the most steps."""
    solved = list[_Chosen]()
    for problem in problems:
        for option in _list_actors(problem, samplers, acting)[:1]:
            _, answers = Search({"": problem.having("actors", option)}, "training").list_tied(0.0)
            solved += [(problem, answer.configuration, answer.outcome) for answer in answers[:1]]
    return max(solved, key=lambda chosen: (chosen[2].training_hz, chosen[2].hz), default=None)


def _list_actors(problem: Problem, samplers: int, acting: Mapping[int, Estimate]) -> list[Option]:
    """List the options of that many processes of actors, a core each, by any implementation of the policy."""
    options = (option for option in problem.options["actors"] if sum(option.needs.values()) == samplers)
    return [replace(option, time=acting[samplers]) for option in options]
