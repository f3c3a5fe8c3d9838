"""Judge whether learners side by side are worth it on a platform: as they run here, and by formulas of [Zhang2022].

Learners are processes of the implementation that would run. One alone takes what ``recommend`` says of it; of L each
has B / L records, and as much as the one of what no part of a batch makes shorter. They share cores with actors where
there are too few, and wait for each other where they meet: neither is in the formulas, which have a core for each.

Letters: A actors, B batch, C cores, H gradient steps between averages of the weights, L learners.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from impls.training.clock import scaling_factor

from ..answer import Answer, Note, Row
from ..estimate import Estimate, Evidence, weakest
from ..mapping.learners import Processes, Term, calibrate, sources_of, terms_of
from ..mapping.options import implementation_of
from ..mapping.question import MappingQuestion, predict_loop, refuse
from ..solver.problem import ProblemError
from ..times.several import Terms, choose, factors, single_seconds
from ..times.whole import REFERENCE
from . import name_system, note_records
from .cores import STEPS_HZ

MOST, LONGEST = 1024, 100_000  # L and H that may be asked for
WITHIN = 0.01  # of the shortest step counts as equal: then fewer learners and a smaller H are chosen
HARDLY, PARTLY = 1.1, 1.5  # speedups by two learners, below which a second one is hardly, or partly, worth it


@dataclass(frozen=True)
class LearnerScaling:
    """A gradient step of learners ``by`` an implementation on a ``device``, as they run.

    ``ran``: seconds of steps in runs, by (L, H or None). ``hz``: gradient steps/s of the loop with one learner, as
    `recommend` has it, in ``ends``; ``acting_hz``: what its actors allow.
    """

    device: str
    by: str
    processes: Processes
    terms: Terms
    sources: tuple[Term, ...]
    ran: Mapping[tuple[int, int | None], Sequence[float]]
    hz: float
    ends: tuple[float, float]
    acting_hz: float

    def seconds(self, learners: int, horizon: int | None, are_alone: bool = False) -> float:
        """Seconds of a gradient step by L learners, as they run, or while actors stand still.

        H None: gradients are gathered at each step. No run takes less than its actors do.
        """
        if are_alone:
            return replace(self.processes, actors=0).step_seconds(self.terms, learners, horizon)
        if learners == 1:
            return 1 / self.hz
        return max(1 / self.acting_hz, self.processes.step_seconds(self.terms, learners, horizon))

    def factor(self, learners: int, horizon: int | None, are_alone: bool = False) -> float:
        """The scaling factor of that step."""
        single = self.seconds(1, horizon, are_alone)
        return scaling_factor(1 / self.seconds(learners, horizon, are_alone), learners, 1 / single)

    def choose(self, learners: Sequence[int], longest: int) -> tuple[int, int]:
        """Choose (L, H) of the shortest step, averaged every ``longest`` steps at the most."""
        return choose(learners, range(1, longest + 1), self.seconds, WITHIN)


def learner_scaling(question: MappingQuestion, device: str | None = None) -> LearnerScaling:
    """Find what a gradient step of several learners takes, each on a ``device``, by default a core of the processor.

    One learner takes what ``recommend`` says of it, with the replay on the processor.
    ProblemError for a device that cannot train; RecordError as in ``find_mapping``.
    """
    refuse(question.fix)
    place, parts = question.platform, question.parts()
    there = [device.name for device in place.devices]
    if device is not None and device not in there:
        raise ProblemError(f"no device {device!r} for learners; there are {', '.join(there)}")
    home = place.device(device) if device else parts.cpu
    if home is not parts.cpu and not place.way(parts.cpu.name, home.name, 0.0)[1]:
        raise ProblemError(f"no chain of links from {parts.cpu.name} to {home.name}; state them in the platform file")
    by = parts.learners.implementation if home.kind == "cpu" else REFERENCE
    fix = dict.fromkeys(("sampling", "storage", "updating"), parts.cpu.name) | {"learner": home.name}
    fix |= {"arrangement": "apart" if parts.cores > 1 else "serial", "learner_implementation": by}
    loop = predict_loop(question, {**fix, "learner_threads": 1, "learners": 1, **question.fix})
    if loop is None:
        raise ProblemError(f"no learner of {question.workload.name} on {home.name} fits {place.name}")
    built, chosen = loop
    answer, outcome = chosen.answer, chosen.answer.outcome
    step, known = answer.configuration.learner.time, answer.configuration.actors.details
    acting = built.parts.actors.acting(count := int(known.get("processes", 1)), policy=implementation_of(known)).value
    sources = tuple(sources_of(parts, home, by, step.scaled(1 / outcome.training_hz / step.value)))
    terms, processes = terms_of(parts.batch, sources, home), Processes.of(parts, parts.cores, count, acting)
    processes, wait, ran = calibrate(processes, terms, parts, by if home is parts.cpu else "")
    rates = outcome.hz, chosen.doubt.ends(answer), outcome.actor_hz
    return LearnerScaling(home.name, by, processes, terms, (*sources, wait), ran, *rates)


def answer_learners(question: MappingQuestion, most: int = 8, longest: int = 25, device: str | None = None) -> Answer:
    """Choose from up to ``most`` learners, averaged every ``longest`` steps at the most; one unless more gain clearly.

    Rows are the factors of some numbers of learners, as they run and by the formulas, the terms that these follow from,
    and runs. ProblemError for numbers outside any sense, and errors of ``learner_scaling``.
    """
    if not 1 <= most <= MOST:
        raise ProblemError(f"the most learners to try are from 1 to {MOST}, not {most}")
    if not 1 <= longest <= LONGEST:
        raise ProblemError(f"the longest period is from 1 to {LONGEST} gradient steps, not {longest}")
    found = learner_scaling(question, device)
    processes, terms = found.processes, found.terms
    chosen, (_, second) = found.choose(range(1, most + 1), longest), found.choose([2], longest)
    counts = sorted({*(1 << power for power in range(most.bit_length())), chosen[0], most})
    rows = list[Row]()
    points = factors(terms, counts, sorted({1, chosen[1], longest}))
    for point in sorted(points, key=lambda point: point.learners):
        if point.learners > 1:
            key = point.learners, point.horizon
            more = {
                "seconds": found.seconds(*key),
                "as_run": found.factor(*key),
                "alone": found.factor(*key, are_alone=True),
                "cores_are_shared": processes.is_crowded(point.learners),
                "exact": point.exact,
                "printed": point.printed,
            }
            rows.append(Row({"learners": point.learners, "horizon": point.horizon}, more=more))
    for term in found.sources:
        law = {**dataclasses.asdict(term.law), "per": term.per, "factor": term.factor}
        rows.append(Row({"term": term.rests_on.id}, more={**law, "source": term.rests_on.source}))
    for (learners, horizon), ran in found.ran.items():
        rows += [Row({"run_of": learners, "averaged_every": horizon}, more={"seconds": seconds}) for seconds in ran]
    averaged, gathered = found.seconds(2, second), found.seconds(2, None)
    faster = 1 / found.hz / averaged
    worth = "not" if faster <= 1 else "hardly" if faster < HARDLY else "partly" if faster < PARTLY else "well"
    gain = {
        "worth": worth,
        "horizon": second,
        "faster": faster,
        "per_learner": faster / 2,
        "seconds": averaged,
        "gathering_seconds": gathered,
        "gathering_faster": 1 / found.hz / gathered,
    }
    where = {"batch": terms.batch, "actors": processes.actors, "cores": processes.cores}
    who = {"by": found.by, "device": found.device}
    limit = "formulas_alone" if terms.shared_link else "learners_run_next_to"
    notes = [Note("second_learner", gain, "first"), Note(limit, {**where, **who}, "first")]
    held = 1 if terms.shared_link else processes.cores
    if held == 1 < max(counts):
        notes.append(Note("one_device_there", {"device": found.device}))
    notes += note_records(question, (term.rests_on for term in found.sources))
    choice, others = _row(found, 1, 1, "one_learner"), list[Row]()
    if 1 / found.seconds(*chosen) >= HARDLY * found.hz:
        choice = _row(found, *chosen, "more_learners")
    elif chosen[0] > 1:
        others = [_row(found, *chosen, "other_learners")]
    return Answer(
        {**name_system(question), **who, "held": held, "longest": longest, **where},
        choice,
        tuple(rows),
        tuple(others),
        notes=tuple(notes),
    )


def _row(found: LearnerScaling, learners: int, horizon: int, says: str) -> Row:
    seconds = found.seconds(learners, horizon)
    low, high = (end / found.hz / seconds for end in found.ends)
    if learners > 1:  # no term is further off than the least sure
        factor = max(term.factor or 1.0 for term in found.sources)
        low, high = min(low, 1 / factor / seconds), max(high, factor / seconds)
    evidence = Evidence("step", weakest(term.rests_on.source for term in found.sources))
    more = {
        "seconds": seconds,
        "acting_hz": found.acting_hz,
        "single_hz": found.hz,
        "single_seconds": single_seconds(found.terms),
        "by": found.by,
        "device": found.device,
    }
    rate = Estimate(1 / seconds, low, high, evidence)
    return Row({"learners": learners, "horizon": horizon}, rate, STEPS_HZ, more, says)
