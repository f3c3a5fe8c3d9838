"""Judge whether learners side by side are worth it on a platform, by the scaling factors of [Zhang2022] over L and H.

Each term is measured where this machine's profile has it, and modeled otherwise; a learner has a core, or a device, of
its own. Only the choice is limited by how many of those there are.

Letters: B batch, L learners, H gradient steps between averages of the weights.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from impls.training.sizes import networks

from ..estimate import Estimate, Evidence, weakest
from ..mapping.question import MappingQuestion
from ..platforms import Device
from ..records import Source
from ..solver.deciding import LINK_FACTORS
from ..solver.problem import ProblemError
from ..times import analytic
from ..times.batch_law import FlatThenLinear, flat_then_linear
from ..times.parts import Parts
from ..times.profile import PerformanceTable
from .multi_learner import FactorPoint, Terms, choose, data_parallel_seconds, factors, single_seconds, spo_seconds

MOST, LONGEST = 1024, 100_000  # L and H that may be asked for
WITHIN = 0.01  # of the shortest step counts as equal: then fewer learners and a smaller H are chosen
LEAST_POINTS = 2  # of a law with a fixed and a growing part


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
class LearnerScaling:
    """The answer: ``choice`` is (L, H) of at most ``held`` learners, which is how many the platform has room for.

    ``points``: data parallel training, then SPO with each of ``horizons``, for each of ``counts``. ``ran``: the
    measured steps of data parallel learners, by their number.
    """

    platform: str
    workload: str
    device: str
    terms: Terms
    sources: tuple[Term, ...]
    counts: tuple[int, ...]
    horizons: tuple[int, ...]
    points: tuple[FactorPoint, ...]
    held: int
    longest: int
    choice: tuple[int, int]
    ran: Mapping[int, Estimate]
    machine: str  # whose records were read, if any
    machine_note: str  # says so where another machine stands for "this"

    @property
    def single_seconds(self) -> float:
        """Seconds of a gradient step by one learner."""
        return single_seconds(self.terms)

    @property
    def best_seconds(self) -> float:
        """Seconds of a gradient step as chosen."""
        return spo_seconds(self.terms, *self.choice)

    def second(self) -> tuple[int, float, float]:
        """Give, of two learners, (H, seconds averaging every H steps, seconds gathering gradients each step)."""
        _, horizon = choose([2], range(1, self.longest + 1), self.terms, WITHIN)
        return horizon, spo_seconds(self.terms, 2, horizon), data_parallel_seconds(self.terms, 2)

    def contradicted(self) -> tuple[Estimate, float] | None:
        """Return the measured step of two data parallel learners and 5.1's, where they disagree.

        They do where only one of them is faster than a single learner; None elsewhere, or where none was timed.
        """
        ran = self.ran.get(2)
        modeled_seconds = data_parallel_seconds(self.terms, 2)
        if ran and (ran.value < self.single_seconds) != (modeled_seconds < self.single_seconds):
            return ran, modeled_seconds
        return None


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
    names = [one.name for one in place.devices]
    if device is not None and device not in names:
        raise ProblemError(f"no device {device!r} for learners; there are {', '.join(names)}")
    home = place.device(device) if device else parts.cpu
    if home is not parts.cpu and not place.way(parts.cpu.name, home.name, 0.0)[1]:
        raise ProblemError(f"no chain of links from {parts.cpu.name} to {home.name}; state them in the platform file")
    sources = tuple(_sources(parts, home, most))
    terms = _terms(parts.batch, sources)
    held = parts.cores if home.kind == "cpu" else 1
    fitting = range(1, (min(most, held) if home.kind == "cpu" else most) + 1)
    choice = choose(fitting, range(1, longest + 1), terms, WITHIN)
    horizons = tuple(sorted({1, choice[1], longest}))
    counts = tuple(sorted({*(1 << power for power in range(most.bit_length())), choice[0], most}))
    ran = side_by_side(parts.table, terms) if parts.table and home is parts.cpu else {}
    points = factors(terms, counts, horizons)
    return LearnerScaling(
        *(place.name, question.workload.name, home.name, terms, sources, counts, horizons),
        *(points, held, longest, choice, ran),
        machine=question.machine,
        machine_note=question.machine_note,
    )


def _terms(batch: int, sources: Iterable[Term]) -> Terms:
    law = {one.rests_on.number: one.law for one in sources}
    return Terms(
        batch=batch,
        replay_seconds=law["T_replay"].fixed_seconds,
        passes=law["T_pass"],
        update_seconds=0.0,
        records=law["T_records"],
        weights_seconds=law["T_weights"].fixed_seconds,
        average=law["T_avg"],
        shared_link=True,
    )


def measured_terms(table: PerformanceTable, batch: int) -> Terms | None:
    """Build the terms of a gradient step of B records on one thread from a profile; None where it lacks one.

    Passes and the update of weights were timed together, so the fixed part of the passes has both. Weights are
    published and fetched in shared memory. Records are sent as fast as they are gathered.
    """
    known = _measured(table, batch)
    return _terms(batch, known.values()) if len(known) == len(MODELS) else None


def _measured(table: PerformanceTable, batch: int) -> dict[str, Term]:
    """Collect the terms that a profile has, by name."""
    replay = [table.time(f"numba {op}", batch) for op in ("draw", "update")]
    sent = [table.weights(op) for op in ("publish", "fetch")]
    steps = {size: rows[0].time.value for (_, size), rows in table.alone("learner step", 1).items()}
    gathers = [(rows[0].time.value, size) for (_, size), rows in table.alone("storage gather").items()][:1]
    averages = [row for rows in table.alone("weights average").values() for row in rows]
    means = {float(row.options["models"]): row.time.value for row in averages}
    terms = [
        *_fixed("T_replay", replay, "sampling and updating with the numba tree"),
        *_fixed("T_weights", sent, "weights of all networks, published and fetched in shared memory"),
    ]
    if len(steps) >= LEAST_POINTS:
        law = flat_then_linear(list(steps), list(steps.values()))
        off = max(max(law.seconds(size) / time, time / law.seconds(size)) for size, time in steps.items()) - 1
        description = (
            f"steps on one thread, weights updated, at {len(steps)} batches from {min(steps):,} to {max(steps):,}; the "
            f"law is {off:.0%} off at worst"
        )
        terms.append(_term("T_pass", law, "record", description, "measured"))
    for seconds, size in gathers:
        law = FlatThenLinear(0.0, seconds / size)
        terms.append(_term("T_records", law, "record", "records go as fast as they are gathered", "measured"))
    if len(means) >= LEAST_POINTS:
        description = f"averages of {', '.join(f'{count:g}' for count in sorted(means))} models"
        law = flat_then_linear(list(means), list(means.values()))
        terms.append(_term("T_avg", law, "learner", description, "measured"))
    return {term.rests_on.number: term for term in terms}


def _fixed(name: str, times: Sequence[Estimate | None], description: str) -> Iterator[Term]:
    """Yield the sum of times as a term, if all of them were measured."""
    spent = [time for time in times if time]
    if len(spent) == len(times):
        law = FlatThenLinear(sum(time.value for time in spent), 0.0)
        yield _term(name, law, "", description, weakest(time.source for time in spent))


def _sources(parts: Parts, home: Device, most: int) -> Iterator[Term]:
    """Yield all terms; ``most`` learners share B. Only those of learners on the processor are in a profile."""
    known = _measured(parts.table, parts.batch) if parts.table else {}
    for name, model in MODELS.items():
        anywhere = home is parts.cpu or name in ("T_replay", "T_avg")
        yield known[name] if anywhere and name in known else model(parts, home, most)


def _replay(parts: Parts, home: Device, most: int) -> Term:
    replay = parts.workload.replay
    laws = analytic.tree(parts.cpu, replay.capacity, replay.fanout, parts.batch)
    seconds = sum(law.value for law in laws)
    description = f"sampling and updating: {laws[0].rests_on.told}"
    return _term("T_replay", FlatThenLinear(seconds, 0.0), "B", description, factor=laws[0].factor)


def _passes(parts: Parts, home: Device, most: int) -> Term:
    """Draw a line through the learner's times at B and at the smallest part of it."""
    small = max(1, parts.batch // most)
    sizes = (small, parts.batch) if small < parts.batch else (parts.batch, 2 * parts.batch)
    times = []
    for size in sizes:
        learner = dataclasses.replace(parts.workload.learner, batch=size)
        sized = dataclasses.replace(parts, workload=dataclasses.replace(parts.workload, learner=learner))
        steps = [one.step for one in sized.learners(home) if one.details.get("threads", 1) == 1 and one.cores == 1]
        if not steps:
            raise ProblemError(
                f"nothing trains {parts.workload.name} on {home.name}, at B = {size}; name another device"
            )
        times.append(steps[0])
    law = flat_then_linear(sizes, [time.value for time in times])
    longest = times[-1]
    factor = longest.factor if longest.interval == "factor" else None
    return _term("T_pass", law, "record", longest.rests_on.told, longest.source, factor)


def _records(parts: Parts, home: Device, most: int) -> Term:
    if home is not parts.cpu:
        nbytes = parts.batch * parts.transition_bytes
        alone, whole = (parts.platform.transfer_seconds(parts.cpu.name, home.name, size) for size in (0.0, nbytes))
        law = FlatThenLinear(alone, (whole - alone) / parts.batch)
        description = f"{parts.transition_bytes:g} bytes over the route to {home.name}"
        return _term("T_records", law, "record", description, factor=LINK_FACTORS["modeled"])
    moved = analytic.rows_moved(parts.cpu, parts.batch, parts.batch * parts.transition_bytes)
    law = FlatThenLinear(0.0, moved.value / parts.batch)
    description = f"as fast as they are gathered: {moved.rests_on.told}"
    return _term("T_records", law, "record", description, factor=moved.factor)


def _weights_bytes(parts: Parts) -> float:
    """Count the bytes of all networks that a learner trains."""
    return 4.0 * sum(size.parameters for size in networks(parts.workload).values())


def _weights(parts: Parts, home: Device, most: int) -> Term:
    if home is not parts.cpu:
        seconds = parts.platform.transfer_seconds(parts.cpu.name, home.name, _weights_bytes(parts))
        description = f"{_weights_bytes(parts) / 1e6:.2g} MB over the route to {home.name}"
        return _term("T_weights", FlatThenLinear(seconds, 0.0), "", description, factor=LINK_FACTORS["modeled"])
    law = analytic.fetch(_weights_bytes(parts))
    return _term("T_weights", FlatThenLinear(law.value, 0.0), "", law.rests_on.told, factor=law.factor)


def _average(parts: Parts, home: Device, most: int) -> Term:
    moved = analytic.rows_moved(parts.cpu, 1, _weights_bytes(parts))
    description = "each learner's weights through the processor's memory once"
    return _term("T_avg", FlatThenLinear(0.0, moved.value), "learner", description, factor=moved.factor)


def _term(
    name: str, law: FlatThenLinear, per: str, description: str, source: Source = "modeled", factor: float | None = None
) -> Term:
    return Term(law, per, Evidence(name, source, description), factor)


MODELS = {"T_replay": _replay, "T_pass": _passes, "T_records": _records, "T_weights": _weights, "T_avg": _average}
"""Models of the terms that a profile lacks: from the parts, the learners' device, and the most learners."""


def side_by_side(table: PerformanceTable, terms: Terms) -> dict[int, Estimate]:
    """Return measured steps of data parallel learners of the terms' batch, by their number, the replay's time added."""
    return {
        count: rows[0].time.plus(terms.replay_seconds)
        for (count, batch), rows in sorted(table.alone("parallel_learners step").items())
        if batch == terms.batch and count > 1
    }
