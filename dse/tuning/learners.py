"""Judge whether learners side by side are worth it on a platform: as they run here, and by formulas of [Zhang2022].

Learners are processes of the implementation that would run. One alone takes what ``recommend`` says of it; of L each
has B / L records, and as much as the one of what no part of a batch makes shorter. They share cores with actors where
there are too few, and wait for each other where they meet: neither is in the formulas, which have a core for each.

Letters: A actors, B batch, C cores, H gradient steps between averages of the weights, L learners.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from impls.training.clock import scaling_factor

from ..answer import Note
from ..estimate import Estimate
from ..mapping.learners import Processes, Term, calibrate, sources_of, terms_of
from ..mapping.options import implementation_of
from ..mapping.question import MappingQuestion, predict_loop, refuse
from ..platforms import Device
from ..solver.law import Outcome
from ..solver.problem import ProblemError
from ..times.multi_learner import FactorPoint, Terms, choose, factors, single_seconds
from ..times.whole_runs import REFERENCE

MOST, LONGEST = 1024, 100_000  # L and H that may be asked for
WITHIN = 0.01  # of the shortest step counts as equal: then fewer learners and a smaller H are chosen


@dataclass(frozen=True)
class LearnerScaling:
    """The answer: ``choice`` is (L, H) with the shortest step of learners ``by`` an implementation, as they run.

    ``points``: factors by the formulas, of data parallel training, then of SPO with each of ``horizons``, for each of
    ``counts``. ``held``: learners that the platform has room for. ``ran``: seconds of steps in runs, by (L, H or None).
    ``hz``: gradient steps/s of the loop with one learner, as `recommend` has it, in ``ends``; ``acting_hz``: what its
    actors allow.
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
    hz: float
    ends: tuple[float, float]
    acting_hz: float
    machine: str  # whose records were read, if any
    machine_note: Note | None  # says so where another machine stands for "this"
    profile_notes: tuple[Note, ...]  # that the profile is incomplete, or was disturbed

    @property
    def single_seconds(self) -> float:
        """Seconds of a gradient step by one learner."""
        return single_seconds(self.terms)

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
        """The scaling factor of that."""
        single = self.seconds(1, horizon, are_alone)
        return scaling_factor(1 / self.seconds(learners, horizon, are_alone), learners, 1 / single)

    def second(self) -> tuple[int, float, float]:
        """Give, of two learners, (H, seconds averaging every H steps, seconds gathering gradients each step)."""
        _, horizon = choose([2], range(1, self.longest + 1), self.seconds, WITHIN)
        return horizon, self.seconds(2, horizon), self.seconds(2, None)


def learner_scaling(
    question: MappingQuestion, most: int = 8, longest: int = 25, device: str | None = None
) -> LearnerScaling:
    """Find the scaling factors of up to ``most`` learners of a system, averaged every ``longest`` steps at the most.

    ``device``: what each learner runs on, by default a core of the processor. ProblemError for numbers outside any
    sense or a device that cannot train; RecordError as in ``find_mapping``.
    """
    if not 1 <= most <= MOST:
        raise ProblemError(f"the most learners to try are from 1 to {MOST}, not {most}")
    if not 1 <= longest <= LONGEST:
        raise ProblemError(f"the longest period is from 1 to {LONGEST} gradient steps, not {longest}")
    refuse(question.fix)
    place, parts = question.platform, question.parts()
    there = [one.name for one in place.devices]
    if device is not None and device not in there:
        raise ProblemError(f"no device {device!r} for learners; there are {', '.join(there)}")
    home = place.device(device) if device else parts.cpu
    if home is not parts.cpu and not place.way(parts.cpu.name, home.name, 0.0)[1]:
        raise ProblemError(f"no chain of links from {parts.cpu.name} to {home.name}; state them in the platform file")
    by = parts.learners.implementation if home.kind == "cpu" else REFERENCE
    single, processes, one, ends = _one_learner(question, home, by)
    sources = tuple(sources_of(parts, home, by, single))
    terms = terms_of(parts.batch, sources, home)
    processes, wait, ran = calibrate(processes, terms, parts, by if home is parts.cpu else "")
    made: dict[str, Any] = {
        "processes": processes, "terms": terms, "sources": (*sources, wait), "hz": one.hz, "ends": ends,
        "acting_hz": one.actor_hz,
        "held": parts.cores if home.kind == "cpu" else 1, "longest": longest, "device": home.name, "by": by, "ran": ran,
    }  # fmt: skip
    made |= question.provenance
    answer = LearnerScaling(choice=(1, 1), points=(), counts=(), horizons=(), **made)
    choice = choose(range(1, most + 1), range(1, longest + 1), answer.seconds, WITHIN)
    horizons = tuple(sorted({1, choice[1], longest}))
    shown = tuple(sorted({*(1 << power for power in range(most.bit_length())), choice[0], most}))
    return replace(answer, choice=choice, points=factors(terms, shown, horizons), counts=shown, horizons=horizons)


def _one_learner(
    question: MappingQuestion, home: Device, by: str
) -> tuple[Estimate, Processes, Outcome, tuple[float, float]]:
    """(a gradient step of its one learner, processes, rates of the loop, their ends), as ``recommend`` has them.

    Its replay is the processor's. ProblemError where that does not fit.
    """
    parts = question.parts()
    replay = dict.fromkeys(("sampling", "storage", "updating"), parts.cpu.name)
    usual = {"arrangement": "apart" if parts.cores > 1 else "serial", "learner": home.name, "learner_threads": 1}
    usual |= {"learner_implementation": by, "learners": 1}
    loop = predict_loop(question, {**usual, **replay, **question.fix})
    if loop is None:
        raise ProblemError(f"no learner of {question.workload.name} on {home.name} fits {question.platform.name}")
    built, made = loop
    chosen, known = made.answer.configuration, made.answer.configuration.actors.details
    acting = built.parts.actors.acting(count := int(known.get("processes", 1)), policy=implementation_of(known)).value
    step = chosen.learner.time
    single = step.scaled(1 / made.answer.outcome.training_hz / step.value)
    return single, Processes.of(parts, parts.cores, count, acting), made.answer.outcome, made.doubt.ends(made.answer)
