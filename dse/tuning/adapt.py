"""Replay the adaptation of [Hou2023]: search samplers and a batch over the rates that the solver predicts.

Every pair (samplers, batch) has the fastest mapping that the solver finds for it, actors in processes of their own:
the most gradient steps the learner could take, as published. In that table samplers and batch are each searched by a
rate of its own, and all pairs are compared by records trained per second at the workload's update interval. That rate
rises with B almost everywhere, so the most records take the largest batch there is; our own answer is the knee instead.
An FPGA takes no part.

Letters: B batch, D batches sampled ahead, u environment steps a gradient step, x samplers (processes of actors).
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from impls.training.adapting import MEMORY, PROCESSOR, WHOLE, Adapted, Cap, Pair, adapt, joint

from ..answer import Note
from ..estimate import Estimate
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

PROCESS_BYTES = 0.25e9  # resident, with PyTorch and an environment, on machine d7dae63b89; a part of it may be shared
_Chosen = tuple[Problem, Configuration, Outcome]


@dataclass(frozen=True)
class Look:
    """The solver's prediction for a pair, and the times of actors and learner with their evidence."""

    outcome: Outcome
    actors: Estimate
    learner: Estimate


@dataclass(frozen=True)
class Replayed:
    """Rates of every pair (x, B), 0 where no mapping can run it."""

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
        known = self.looks.get((samplers, batch))
        return float(getattr(known.outcome, which)) if known else 0.0


@dataclass(frozen=True)
class Adaptation:
    """The answer: ``choice``, at the ``knee`` of records trained, with the fewest samplers that keep up.

    Besides it ``pair``, by the independent searches, and ``best``, with the most records of all pairs under the caps.
    ``caps``: the most of each, percent of the processor or bytes. ``tried``: how many pairs are under the caps.
    ``left_out``: devices that cannot be adapted while training runs.
    """

    samplers: tuple[int, ...]
    batches: tuple[int, ...]
    caps: Mapping[str, float]
    rates: Replayed
    found: Adapted
    pair: Pair
    best: Pair
    choice: Pair
    knee: Knee
    tried: int
    left_out: tuple[str, ...]
    measured: bool  # whether the batches are those that gradient steps were measured at
    platform: str
    workload: str
    machine: str  # whose records were read, if any
    machine_note: Note | None  # says so where another machine stands for "this"
    profile_notes: tuple[Note, ...]  # that the profile is incomplete, or was disturbed

    @property
    def loss(self) -> float:
        """The share of records per second that the independent searches lose against the best pair."""
        return 1 - self.rates.records_hz(*self.pair) / self.rates.records_hz(*self.best)

    @property
    def notes(self) -> tuple[Note, ...]:
        """Why the choice's batch is this one, and what it leaves out."""
        return tuple(self.knee.notes(self.choice[1], "second", self.measured))


def adapted(
    question: MappingQuestion,
    memory_bytes: float | None = None,
    cpu_percent: float = WHOLE,
    tell: Callable[[int], None] = lambda batch: None,
) -> Adaptation:
    """Search samplers and batch of a system, each by its own rate, and compare with the best pair.

    ``memory_bytes``: the cap on the host's memory, by default what the platform states. ``tell`` is called with each
    batch before its mappings are searched. ProblemError for caps outside any sense, TrainingError where they are
    below what one sampler takes; RecordError as in ``find_mapping``.
    """
    if not 0 < cpu_percent <= WHOLE:
        raise ProblemError(f"the cap on the processor is a percentage above 0 and up to 100, not {cpu_percent:g}")
    if memory_bytes is not None and not memory_bytes > 0:
        raise ProblemError(f"the cap on memory must be above 0 GB, not {memory_bytes / 1e9:g}")
    refuse(question.fix)
    if is_here(parts := question.parts()):  # what else trains is of no implementation
        by = {"learner_implementation": parts.learners.implementation, "learners": 1}
        question = dataclasses.replace(question, fix={**question.fix, **by})
    caps, measured = list(_caps(question, memory_bytes, cpu_percent)), measured_batches(question)
    batches = tuple(batch for batch in measured or BATCHES if batch <= question.workload.replay.capacity)
    samplers = tuple(range(1, _parts(question, 1, batches[0]).cores + 1))
    rates = _replayed(question, samplers, batches, caps, tell)
    task = question.workload
    searches = adapt(samplers, batches, rates.sampling_hz, rates.frames_hz, caps)
    best = joint(samplers, batches, rates.records_hz, caps)
    if not rates.records_hz(*best):
        raise ProblemError(f"{task.name} does not fit {question.platform.name} with actors in processes of their own")
    tried = sum(all(cap.uses(x, batch) <= cap.most for cap in caps) for x in samplers for batch in batches)
    most = {cap.name: cap.most for cap in caps}
    pair = searches.samplers.best, searches.batch.best
    choice, at = _choice(rates, samplers, batches, task.learner.batch)
    return Adaptation(
        *(samplers, batches, most, rates, searches, pair, best, choice, at, tried),
        left_out=fixed_designs(question.platform),
        measured=bool(measured),
        **question.provenance,
    )


def _choice(rates: Replayed, samplers: Sequence[int], batches: Sequence[int], own: int) -> tuple[Pair, Knee]:
    """The pair at the knee, and the knee; where the rate only rises, the workload's own batch, or the next smaller."""
    fastest = {batch: max(rates.records_hz(x, batch) for x in samplers) for batch in batches}
    at = knee(batches, fastest.__getitem__)
    fitting = list(filter(fastest.get, batches))
    batch = at.batch or max((batch for batch in fitting if batch <= own), default=fitting[0])
    least = fastest[batch] * (1 - EPSILONS["ratio"])
    return (min(x for x in samplers if rates.records_hz(x, batch) >= least), batch), at


def fixed_designs(platform: Platform) -> tuple[str, ...]:
    """Name the FPGAs: a design is built for its batch, in hours, so no look while training runs can change it."""
    return tuple(device.name for device in platform.devices if device.kind == "fpga")


def _parts(question: MappingQuestion, samplers: int, batch: int) -> Times:
    """Give the parts of the workload with that many actors, one process each, and that batch."""
    actors = dataclasses.replace(question.workload.actors, count=samplers)
    learner = dataclasses.replace(question.workload.learner, batch=batch)
    return question.parts(dataclasses.replace(question.workload, actors=actors, learner=learner))


def _caps(question: MappingQuestion, memory_bytes: float | None, cpu_percent: float) -> Iterator[Cap]:
    """Cap cores, one of which the learner takes at least; and memory, as if the host kept everything."""
    parts = _parts(question, 1, question.workload.learner.batch)
    yield Cap(PROCESSOR, cpu_percent, lambda samplers, batch: WHOLE * (samplers + 1) / parts.cores)
    stated = parts.cpu.memory.size_bytes.value if parts.cpu.memory else None
    most = memory_bytes or stated
    replay = question.workload.replay

    def resident(samplers: int, batch: int) -> float:
        under_way = sum(_parts(question, samplers, batch).learners.learner_bytes(parts.cpu, replay.presampled).values())
        return parts.storage_bytes + LEAF_BYTES * replay.capacity + under_way + (samplers + 1) * PROCESS_BYTES

    if most:
        yield Cap(MEMORY, most, resident)


def _replayed(
    question: MappingQuestion,
    samplers: Sequence[int],
    batches: Sequence[int],
    caps: Sequence[Cap],
    tell: Callable[[int], None],
) -> Replayed:
    """Predict the rates of all pairs under the caps."""
    looks: dict[Pair, Look] = {}
    acting: dict[int, Estimate] = {}
    # Invariant: looks has every pair under the caps, of all smaller batches, that some mapping can run.
    for batch in batches:
        allowed = [x for x in samplers if all(cap.uses(x, batch) <= cap.most for cap in caps)]
        if not allowed:
            break
        tell(batch)
        # More records allow no more of them.
        acting = acting or {x: _parts(question, x, batch).actors.fastest_acting(x) for x in allowed}
        built = build(_parts(question, allowed[-1], batch), excluded=frozenset(fixed_designs(question.platform)))
        budget = f"{built.parts.cpu.name}.cores"
        cores = caps[0].most / WHOLE * built.parts.cores
        problems = [
            dataclasses.replace(one, budgets={**one.budgets, budget: cores})
            for place, one in built.problems.items()
            if place.arrangement != "serial"
        ]
        fastest = functools.cache(functools.partial(_fastest, problems, acting))
        for x, (given, learner) in _row(fastest, acting, allowed):
            looks[x, batch] = Look(given, acting[x], learner)
    return Replayed(question.workload.learner.update_interval, looks)


def _row(
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
        yield from _row(fastest, acting, samplers[:middle])
        yield from _row(fastest, acting, samplers[middle:])
    elif last:
        problem, chosen, _ = last
        for x in samplers:
            option = dataclasses.replace(_actors(problem, x)[0], time=acting[x])
            yield x, (outcome(problem, chosen.having(option)), chosen.learner.time)


def _fastest(problems: Sequence[Problem], acting: Mapping[int, Estimate], samplers: int) -> _Chosen | None:
    """Find the mapping on which the learner could take the most steps, of equal ones that with the most steps."""
    solved = list[_Chosen]()
    for problem in problems:
        for one in _actors(problem, samplers)[:1]:
            option = dataclasses.replace(one, time=acting[samplers])
            _, answers = Search({"": problem.having("actors", option)}, "training").list_tied(0.0)
            solved += [(problem, one.configuration, one.outcome) for one in answers[:1]]
    return max(solved, key=lambda one: (one[2].training_hz, one[2].hz)) if solved else None


def _actors(problem: Problem, samplers: int) -> list[Option]:
    """List the options of that many processes of actors, a core each, by any implementation of the policy."""
    return [one for one in problem.options["actors"] if sum(one.needs.values()) == samplers]
