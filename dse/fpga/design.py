"""Choose an RMM and a learner for an FPGA, and answer with their resources, what else there is, and from where."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from impls.fpga import learner
from impls.fpga.design import PORTS
from impls.fpga.learner import FP32, Mac
from impls.fpga.network import Network
from impls.fpga.resources import Budget, DoesNotFit, exceeded

from ..answer import Answer, Note, Row
from ..estimate import Estimate, Evidence
from ..platforms import Quantity
from ..stats import frugal
from . import BOUNDED, Slice, learner_search, pool, rate_shortage, rmm_search, subtract
from .learner_search import LearnerPoint, Problem
from .rmm_search import RmmPoint, Space

SHARINGS = ("kept", "free")
FULL = 0.9  # share of a budget from which a note is due
NOT_STREAMED = "all weights on the chip (to stream them, state memory.bandwidth_gb_per_s of the FPGA, if it has one)"


@dataclass(frozen=True)
class Question:
    """A network to train on batches of the ``space`` of RMMs, on the slices of an FPGA.

    ``sharing``: whether the RMM's slice is "kept" for it, or the learner is "free" to take what is left. ``fill`` and
    ``mac``: as of a ``Learner``. ``memory``: bytes/s of the card's, None where it has none.
    """

    network: Network
    space: Space
    slices: tuple[Slice, ...]
    sharing: str = "kept"
    fill: str = "ideal"
    mac: Mac = FP32
    memory: Quantity | None = None

    def pose(self, budget: Budget) -> Problem:
        """Pose the problem of a learner within a budget."""
        more = self.fill, self.mac, self.space.clock_hz, None, self.memory.value if self.memory else 0.0
        return Problem(self.network, self.space.batch, budget, *more)


@dataclass(frozen=True)
class Choice:
    """An RMM in a slice, and a learner in ``learner_slices``."""

    rmm: RmmPoint
    rmm_slice: str
    learner: LearnerPoint
    learner_slices: tuple[str, ...]

    @property
    def cycles(self) -> float:
        """Cycles of a training step."""
        return max(self.rmm.cycles, self.learner.cycles)

    @property
    def bottleneck(self) -> str:
        """The module that a step waits for: the RMM or the learner."""
        return "RMM" if self.rmm.cycles > self.learner.cycles else "learner"

    @property
    def is_shared(self) -> bool:
        """Whether the learner takes of the RMM's slice too."""
        return self.rmm_slice in self.learner_slices

    @property
    def order(self) -> tuple[float, ...]:
        """The tie rule up to the slice, as a key to sort by: of RMMs that a step does not wait for, the cheapest."""
        costs = zip(self.rmm.cost, self.learner.cost, strict=True)
        return (self.cycles, self.learner.cycles, *map(sum, costs), self.rmm.cycles)


def explore(question: Question) -> list[Choice]:
    """Find the best choice, and after it the best with another number of learner pipelines where there is one.

    DoesNotFit says what there is too little of, where least is missing.
    """
    if question.sharing == "kept" and len(question.slices) == 1:
        raise ValueError(
            "a device of one slice has none to keep for the RMM; let the learner have the rest of it, by --slice free"
        )
    choices, failures = list[Choice](), list[DoesNotFit]()
    (_try_kept if question.sharing == "kept" else _try_free)(question, choices, failures)
    if not choices:
        raise min(failures, key=lambda error: rate_shortage(error.exceeded))
    return _rank(choices)


def _rank(choices: Sequence[Choice]) -> list[Choice]:
    """Rank choices: the best, then the best with other pipelines. Sorting is stable: the first slice wins."""
    ranked = sorted(choices, key=lambda choice: choice.order)
    others = [choice for choice in ranked if choice.learner.design.pipelines != ranked[0].learner.design.pipelines]
    return [*ranked[:1], *others[:1]]


def _try_kept(question: Question, choices: list[Choice], failures: list[DoesNotFit]) -> None:
    """Try each slice for the RMM: nothing else is shared, so the best learners, each with its RMM, are the best."""
    points = rmm_search.priced(question.space)
    # Invariant: choices has the best of every slice before this one that an RMM and a learner fit.
    for own in question.slices:
        others = [part for part in question.slices if part is not own]
        try:
            fitting = _select_fitting(points, [own])
            for point in _find_learners(question, pool(others), others):
                most = max(fitting[0].cycles, point.cycles)
                cheapest = min((rmm for rmm in fitting if rmm.cycles <= most), key=lambda rmm: rmm.cost)
                choices.append(Choice(cheapest, own.name, point, _names(others)))
        except DoesNotFit as error:
            failures.append(error)


def _try_free(question: Question, choices: list[Choice], failures: list[DoesNotFit]) -> None:
    """Try every RMM that no faster one undercuts, until a slower one takes longer than the choices so far."""
    slices, whole = question.slices, pool(question.slices)
    alone = _find_learners(question, whole, slices)
    fitting = _select_fitting(rmm_search.priced(question.space), slices)
    # Invariant: choices has the best learners for every faster RMM of the front that leaves room for one.
    for rmm in (fitting[position] for position in frugal([point.cost for point in fitting])):
        ranked = _rank(choices)
        if len(ranked) == len(alone) and rmm.cycles > max(choice.cycles for choice in ranked):
            break
        own = next(part for part in slices if not exceeded(rmm.needed, part.budget))
        left = subtract(whole, rmm.needed)
        try:
            all_fit = not any(exceeded(point.needed, left) for point in alone)
            learners = alone if all_fit else _find_learners(question, left, slices)
            choices += [Choice(rmm, own.name, point, _names(slices)) for point in learners]
        except DoesNotFit as error:
            failures.append(error)


def _select_fitting(points: Sequence[RmmPoint], slices: Sequence[Slice]) -> list[RmmPoint]:
    """Select the points that fit one of the slices, in their order. DoesNotFit if none does."""
    lacking = [[exceeded(point.needed, part.budget) for part in slices] for point in points]
    fitting = [point for point, lacks in zip(points, lacking, strict=True) if not all(lacks)]
    if not fitting:
        nearest = min(itertools.chain.from_iterable(lacking), key=rate_shortage)
        raise DoesNotFit(nearest, f"even the RMM that comes nearest, in {' or '.join(_names(slices))},")
    return fitting


def _find_learners(question: Question, budget: Budget, slices: Sequence[Slice]) -> list[LearnerPoint]:
    """Find the fastest learners within what slices have. DoesNotFit if not even the smallest fits."""
    try:
        return learner_search.fastest(question.pose(budget))
    except DoesNotFit as error:
        rest = "" if budget == pool(slices) else "what an RMM leaves of "
        weights = "all weights streamed" if question.memory else NOT_STREAMED
        what = f"even a learner of a unit a stage and {weights}, in {rest}{' + '.join(_names(slices))},"
        raise DoesNotFit(error.exceeded, what) from None


def _names(slices: Sequence[Slice]) -> tuple[str, ...]:
    return tuple(part.name for part in slices)


def answer_design(
    question: Question, choices: Sequence[Choice], platform: str, size: Quantity, clock: Quantity
) -> Answer:
    """Answer with an RMM and a learner, the first of ``choices``, next to the learner of the published greedy search.

    Rows are the cycles of both, the shares that they take of their slices, and the front of learners in that place.
    ``size``: a number of the slices, for its origin, as that of the ``clock``.
    """
    best = choices[0]
    space, network = question.space, question.network
    ledger, problem = learner.ledger(best.learner.design, space.batch), _place(question, best)
    rows = [
        Row({"part": "learner", "step": what}, more={"cycles": cycles, "us": 1e6 * cycles / space.clock_hz})
        for what, cycles in ledger.entries
    ]
    rows.append(Row({"part": "RMM", "step": best.rmm_slice}, more={"cycles": best.rmm.cycles}))
    uses = list(_list_uses(best, question.slices))
    rows += [*uses, *map(_front_row, learner_search.pareto(problem))]
    limit = f"bound_by_{best.bottleneck.lower()}"
    if best.bottleneck == "learner" and ledger.bottleneck == learner.READING:
        limit = "bound_by_reading"
    notes = [Note(limit, {"slowest_stage": ledger.bottleneck}, "first")]
    if question.memory and (streamed := best.learner.design.streamed_stages):
        read = {"gb_per_s": question.memory.value / 1e9, "origin": question.memory.origin, "names": streamed}
        notes.append(Note("streams_weights", {"samples": best.learner.design.block, **read}, "first"))
    notes.append(_compare_ports(question, best))
    notes += [Note("no_other_pipelines", level="first")] * (len(choices) == 1)
    notes += [Note("nearly_full", {"share": FULL}, "first")] * (max(max(use.more.values()) for use in uses) > FULL)
    others = [_design_row(question, other, "other_pipelines", best) for other in choices[1:]]
    try:
        others.append(_greedy_row(learner_search.greedy(problem), best))
        others.sort(key=lambda row: -row.more["pace"])
    except DoesNotFit as error:
        notes.append(Note("greedy_does_not_fit", {"reason": str(error)}, "first"))
    asked = {
        "platform": platform,
        "network": network.name,
        "parameters": network.parameters,
        "macs": network.macs,
        "batch": space.batch,
        "capacity": space.capacity,
        "slice": question.sharing,
        "clock_hz": space.clock_hz,
    }
    notes += _list_sources(question.mac, f"platform {platform}", size, clock)
    return Answer(asked, _design_row(question, best, "design", best), tuple(rows), tuple(others), notes=tuple(notes))


def _place(question: Question, choice: Choice) -> Problem:
    """Pose the problem of a learner in the place of the chosen one, next to its RMM."""
    budget = pool([part for part in question.slices if part.name in choice.learner_slices])
    return question.pose(subtract(budget, choice.rmm.needed) if choice.is_shared else budget)


def _compare_ports(question: Question, best: Choice) -> Note:
    """Compare a tree that samples and updates at once with the best choice that does so in turn, if any fits."""
    told = {"ports": best.rmm.design.design.ports, "cycles": best.rmm.cycles}
    if not best.rmm.design.design.overlaps:
        return Note("tree_in_turn", told, "first")
    try:
        other = explore(replace(question, space=replace(question.space, ports=PORTS[:1])))[0]
    except DoesNotFit:
        return Note("tree_at_once_alone", told, "first")
    told |= {"in_turn": other.rmm.cycles, "pace": best.cycles / other.cycles}
    return Note("tree_at_once", told, "first")


def _list_uses(choice: Choice, slices: Sequence[Slice]) -> Iterator[Row]:
    """Yield the shares that the RMM takes of its slice, and that are taken of the learner's slices together."""
    both = [choice.rmm.needed, choice.learner.needed]
    together = ("RMM and learner", both) if choice.is_shared else ("learner", both[1:])
    for names, (part, needed) in (((choice.rmm_slice,), ("RMM", both[:1])), (choice.learner_slices, together)):
        budget = pool([held for held in slices if held.name in names])
        shares = {
            f"{kind}_share": sum(getattr(resources, kind) for resources in needed) / have
            for kind in BOUNDED
            if (have := getattr(budget, kind))
        }
        yield Row({"part": part, "slices": " + ".join(names)}, more=shares)


def _design_row(question: Question, choice: Choice, says: str, best: Choice) -> Row:
    design, rmm, batch = choice.learner.design, choice.rmm.design, question.space.batch
    ledger, shape = learner.ledger(design, batch), rmm.design
    units = {str(stage): units for stage, units in zip(design.stages, design.units, strict=True)}
    hz = question.space.clock_hz / choice.cycles
    label = {
        "pipelines": design.pipelines,
        "mac_units": sum(design.units),
        "memory": shape.micro,
        "fanout": shape.fanout,
    }
    of_learner = {
        "pipelines": design.pipelines, "samples_per_pipeline": -(-batch // design.pipelines), "units": units,
        "slowest_stage": ledger.bottleneck, "slowest_stage_cycles": max(design.stage_cycles),
        "update_units": design.update_units, "buffers_in_uram": design.uram, "cycles": dict(ledger.entries),
        "streamed": design.streamed_stages, "block": design.block, "read_cycles": design.stream_cycles[0],
        "slices": choice.learner_slices, "needs": asdict(choice.learner.needed),
    }  # fmt: skip
    of_rmm = {"queue": rmm.queue, "uram": rmm.uram, "cycles": choice.rmm.cycles, "slice": choice.rmm_slice}
    more = {
        "cycles": choice.cycles, "seconds": 1 / hz, "bottleneck": choice.bottleneck, "learner": of_learner,
        "rmm": {**asdict(shape), **of_rmm, "needs": asdict(choice.rmm.needed)}, "dsp": choice.learner.needed.dsp,
        "pace": best.cycles / choice.cycles,
    }  # fmt: skip
    return Row(label, Estimate(hz, hz, hz, Evidence("cycles", "modeled")), "gradient steps/s", more, says)


def _greedy_row(point: LearnerPoint, best: Choice) -> Row:
    cycles = max(point.cycles, best.rmm.cycles)
    shape = {"update_units": point.design.update_units, "slowest_stage_cycles": max(point.design.stage_cycles)}
    more = {"cycles": cycles, "pace": best.cycles / cycles, "dsp": point.needed.dsp, **shape}
    label = {"found_by": "greedy search of [Zhang2023]", "pipelines": point.design.pipelines}
    return Row(label, more={**more, "needs": asdict(point.needed)}, says="greedy")


def _front_row(point: LearnerPoint) -> Row:
    design, needed = point.design, point.needed
    more = {
        "lut": needed.lut,
        "dsp": needed.dsp,
        "sram_kb": needed.sram_bits // 8000,
        "slowest_stage_cycles": max(design.stage_cycles),
        "update_units": design.update_units,
        "needs": asdict(needed),
    }
    return Row({"front_cycles": point.cycles, "pipelines": design.pipelines}, more=more)


def _list_sources(mac: Mac, platform: str, size: Quantity, clock: Quantity) -> Iterator[Note]:
    """Yield where every number comes from: its meaning, its basis and its source."""
    macs = f"{mac.dsp}; an adder of 2 and a multiplier of 3, HLS's default cores, would be 5"
    logic = f"{mac.lut} and {mac.ff}: the DQN learner of [Zhang2023, Table VI] over its MACs"
    for what, basis, source in (
        ("cycles of the RMM", "modeled", "laws that equal simulated hardware, every leaf as likely as any other"),
        ("resources of the RMM", "modeled", "counted, LUT fitted to synthesis, not placed"),
        ("cycles of the learner", "modeled", "(PI + n - 1) T_max + T_WU of [Zhang2023, VI-A2]; not simulated"),
        ("memory of the learner", "modeled", "buffers counted; not synthesized"),
        ("DSP of a MAC", "assumed", macs),
        ("LUT and FF of a MAC", "quoted", logic),
        ("slices", size.origin, f"{platform}: {size.note}"),
        ("clock", clock.origin, f"{clock.value / 1e6:g} MHz, {clock.note}; no design changes it"),
    ):
        yield Note("basis", {"what": what, "basis": basis, "source": source})
