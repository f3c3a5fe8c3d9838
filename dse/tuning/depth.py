"""Find how many batches to sample ahead, by a bound in closed form and by simulation.

Two counts are easily confused. ``depth`` D, here and in ``Configuration``, is the number of batches sampled AHEAD of
the one that is trained on; ``under_way`` = D + 1 is the number of all that go round, which the formula counts:

    steps/s <= min(1 / max(T_L, T_s + T_u), under_way / (T_s + T_L + T_u + 2 T_x))

The first bound is reached with ceil((T_s + T_L + T_u + 2 T_x) / max(T_L, T_s + T_u)) under way, one less ahead. With
all three on one device there is one bound, 1 / (T_s + T_L + T_u).

The bound is exact for D = 0 and optimistic for a small D, even with exact times: sampling and updating of different
batches meet on their engine. Of 240 random loops with exact times, simulated here, it is up to 46 % too high at D = 1
(half of them: exact), 27 % at D = 2, 3 % at D = 5; random times cost more (of cv = 1, the example below wants 8 under
way for 97 %).

Letters: T_s sampling and gathering, T_L learner, T_u updating, T_x a transfer (there, and back); seconds of one batch.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from impls.training import Workload
from impls.training.arrangement import REQUESTS

from ..answer import Answer, Note, Row, Values
from ..estimate import Estimate, Evidence, weakest
from ..mapping.answer import Shortage, lacking
from ..mapping.question import Asked, answer_question, ask
from ..platforms import Platform
from ..records import Source
from ..solver.law import outcome, slowdowns, steps_per_second, transfers
from ..solver.problem import LOOP, PARTS, Configuration, Problem, ProblemError
from ..solver.queues import UNITS, Network, Visit, network, simulate, watch_queues
from . import name_system, note_records
from .cores import STEPS_HZ

SPREAD, LEAST_SPREAD, MOST_SPREAD = 1.0, 1e-6, 3.0  # cv of times that vary: as exponential ones do, unless asked
LOSS = 0.03  # of the most steps/s, within which a simulated rate is enough: noise hides less
TRIED = (*range(9), 12, 16, 24, 32)  # D that are simulated, until one is surely enough
STEPS = 4000
NO_SYSTEM: Values = dict.fromkeys(("platform", "workload", "machine", "arrangement"), "") | {
    "batch": None, "presampled": None, "mapping": None
}  # fmt: skip
"""The question where times are a user's own."""
_ROUNDING = 1e-9


def published_visits(
    sampling: float, learner: float, updating: float, transfer: float = 0.0, *, together: bool = False
) -> dict[str, Visit]:
    """List what a batch passes in the loop of the formula, by part: an engine, and seconds of one batch.

    Sampling and updating are on one engine, the learner on another or, together, on the same. The links there and back
    are engines of their own. Parts that take 0 s are omitted, and so are transfers between parts together.
    """
    move = 0.0 if together else transfer
    visits = {"sampling": Visit("replay", sampling), "there": Visit("there", move)}
    visits |= {"training": Visit("replay" if together else "learner", learner)}
    visits |= {"back": Visit("back", move), "updating": Visit("replay", updating)}
    return {part: visit for part, visit in visits.items() if visit.seconds}


def published_loop(*seconds: float, together: bool = False) -> Network:
    """Build the loop of ``published_visits``, whose arguments these are."""
    return Network(tuple(published_visits(*seconds, together=together).values()))


def bound_hz(network: Network, depth: int) -> float:
    """Bound the steps/s: by the busiest engine, or by D + 1 batches that never wait."""
    return float(steps_per_second(network.busy.values(), network.round_seconds, depth))


def depth_enough(network: Network) -> int:
    """Find the smallest D at which the bound is that of the busiest engine.

    >>> depth_enough(published_loop(1, 2, 0.5, 0.3))  # 4.1 s a round, 2 s of them the learner's: 3 under way
    2
    """
    return _ahead(network.round_seconds / max(network.busy.values()))


def _ahead(rounds: float) -> int:
    """Return D for as many batches under way as a round has times of the busiest engine."""
    return max(0, math.ceil(rounds - _ROUNDING) - 1)


class NothingFits(ProblemError):
    """No mapping of a workload fits a platform; ``shortage`` says what there is too little of."""

    def __init__(self, shortage: Shortage) -> None:
        lacks = "; or ".join(lacking(shortage)) or "nothing can run it"
        super().__init__(f"{shortage.workload} does not fit {shortage.platform} as asked: {lacks}")
        self.shortage = shortage


@dataclass(frozen=True)
class DepthPoint:
    """The bound at D batches sampled ahead, and the steps/s simulated with times of each cv, in order."""

    depth: int
    bound_hz: float
    simulated: tuple[Estimate, ...]


def depth_curve(
    network: Network, depths: Sequence[int], cvs: Sequence[float] = (0.0, 1.0), steps: int = 2000
) -> tuple[DepthPoint, ...]:
    """Compute the bound and the simulations at each depth."""
    return tuple(
        DepthPoint(depth, bound_hz(network, depth), tuple(simulate(network, depth, cv, steps) for cv in cvs))
        for depth in depths
    )


def own_depth(visits: Mapping[str, Visit], spread: float = SPREAD) -> Answer:
    """Answer for times of your own, as ``published_visits`` lists them."""
    times = [_time_row(part, visit.engine, visit.seconds) for part, visit in visits.items()]
    return answer_depth(Network(tuple(visits.values())), spread, times=times)


def answer_depth(
    loop: Network,
    spread: float = SPREAD,
    ends: tuple[Network, Network] | None = None,
    times: Iterable[Row] = (),
    rate: Estimate | None = None,
    is_bound: bool = True,
    question: Values = NO_SYSTEM,
    notes: Iterable[Note] = (),
) -> Answer:
    """Answer for a loop: D* of the closed form, its ends by those of the times, and the D enough by simulation.

    ``spread``: cv of the times that vary; for 0 only exact ones are simulated. ``ends``: the same loop with its
    shortest and with its longest times. ``rate``: gradient steps/s with actors at D*, by default that of the busiest
    engine, which no D exceeds. Rows are the ``times`` of the parts, then the simulated rates at each D.

    ProblemError unless the spread is 0 or in [1e-6, 3].
    """
    if not (spread == 0 or LEAST_SPREAD <= spread <= MOST_SPREAD):
        bounds = f"0 or from {LEAST_SPREAD:g} to {MOST_SPREAD:g}"
        raise ProblemError(f"the spread of times (cv) is {bounds}, not {spread:g}")
    cvs = (0.0, spread) if spread else (0.0,)
    engine, busy = max(loop.busy.items(), key=lambda engine: engine[1])
    depth, most_hz = depth_enough(loop), 1 / busy
    in_turns = len(loop.busy) == 1  # where every D makes as many steps, and only noise would tell them apart
    points: list[DepthPoint] = []
    # Invariant: points has every D tried so far, rising, and none above the closed form's is surely enough.
    for tried in sorted({*TRIED, depth}):
        points += depth_curve(loop, (tried,), cvs, STEPS)
        is_enough = all(simulated.low >= most_hz * (1 - LOSS) for simulated in points[-1].simulated)
        if tried > depth and (in_turns or is_enough):
            break
    rows = [*times]
    for point in points:
        for cv, hz in zip(cvs, point.simulated, strict=True):
            more = {"bound_hz": point.bound_hz, "loss": 1 - hz.value / most_hz}
            rows.append(Row({"depth": point.depth, "cv": cv}, hz, STEPS_HZ, more))
    ahead = (depth, question["presampled"] or 0, loop.data_queue, 2 * loop.data_queue) if loop.data_queue else ()
    watched = {min(depth, REQUESTS) for depth in ahead}
    queues = [row for depth in sorted(watched) for row in _list_queues(loop, depth, spread)]
    rows += queues
    seconds = {"engine": engine, "seconds": busy, "round_seconds": loop.round_seconds}
    said = [Note("takes_turns" if in_turns else "busiest_engine", seconds, "first")]
    if queues:
        full = {row.label["depth"] for row in queues if row.more["full"]}
        said.append(Note("queues_have_room", {"room": sorted(watched - full)}, "first"))
    if not in_turns:
        said.append(Note("loss_of_none_ahead", {"loss": 1 - bound_hz(loop, 0) / most_hz, "depth": 0}, "first"))
    if question["presampled"] not in (None, depth):
        said.append(Note("workload_samples_ahead", {"presampled": question["presampled"]}, "first"))
    for at, cv in enumerate(cvs):
        firsts = [0] * 3 if in_turns else [_first(points, at, end, most_hz) for end in ("value", "high", "low")]
        enough = {"cv": cv, **dict(zip(("depth", "least", "most"), firsts, strict=True))}
        kind = "never_enough" if firsts[0] is None else "enough" if cv else "enough_if_exact"
        enough |= {"within_share": LOSS, "steps": STEPS}
        said.append(Note(kind, enough, "detail" if cv or in_turns else "first"))
    shortest, longest = _find_range(*(ends or (loop, loop)))
    between = {"least": min(shortest, depth), "most": max(longest, depth)}
    said.append(Note("depth_is_sure" if between["least"] == between["most"] else "depth_is_between", between))
    if rate:
        said.append(Note("actors_are_apart"))
    said += [Note("stale_priorities"), *notes]
    choice = Row(
        {"depth": depth},
        rate or Estimate(most_hz, most_hz, most_hz, Evidence("closed form", "modeled")),
        STEPS_HZ,
        {**between, "most_hz": most_hz, "round_seconds": loop.round_seconds},
        "sample_ahead" if depth else "sample_none_ahead",
        is_bound,
    )
    return Answer(question, choice, tuple(rows), notes=tuple(said))


def _list_queues(loop: Network, depth: int, spread: float) -> Iterator[Row]:
    """Yield each queue's mean length, the unit that its batches wait for, and how many waited because it was full."""
    for part, (mean, full) in watch_queues(loop, depth, spread, STEPS).items():
        label = {"depth": depth, "queue_before": part, "waits_for": f"{UNITS[part]} unit"}
        yield Row(label, more={"mean_length": mean, "room": loop.queues[part], "full": full, "source": "modeled"})


def _first(points: Sequence[DepthPoint], at: int, end: str, most_hz: float) -> int | None:
    """Find the smallest D whose rate, simulated with the cv at that position, is within ``LOSS`` of the most."""
    enough = most_hz * (1 - LOSS)
    return next((point.depth for point in points if getattr(point.simulated[at], end) >= enough), None)


def _find_range(low: Network, high: Network) -> tuple[int, int]:
    """Find the smallest and the largest D* of all loops whose engines are busy for times between those of two.

    A round over its busiest engine is shortest where that engine takes longest and all others are as short as can be,
    and longest where no engine is busier than the busiest must be.
    """
    short, long = low.busy, high.busy
    most = max(short.values())
    rounds = [
        (long[engine] + sum(short.values()) - short[engine])
        / max(long[engine], *(short[other] for other in short if other != engine), 0.0)
        for engine in short
    ]
    longest = sum(min(seconds, most) for seconds in long.values()) / most
    return _ahead(min(rounds)), _ahead(longest)


def platform_depth(
    platform: str | Path | Platform,
    workload: str | Path | Workload,
    spread: float = SPREAD,
    data_queue: int = 0,
    **asked: Unpack[Asked],
) -> Answer:
    """Answer for the mapping that ``find_mapping`` gives, whose keywords and errors these are.

    ``data_queue``: batches that the learner's queue takes, where the loop is of units with queues; 0: it is not.
    NothingFits, a ProblemError, where no mapping fits.
    """
    question = ask(platform, workload, **asked)
    found = answer_question(question)
    if isinstance(found, Shortage):
        raise NothingFits(found)
    problem, chosen = found.chosen.problem, found.chosen.configuration
    loop, *ends = (
        network(problem, timed, actors=False)
        for timed in (chosen, _take_ends(chosen, "low"), _take_ends(chosen, "high"))
    )
    loop, *ends = (replace(timed, data_queue=data_queue) for timed in (loop, *ends))
    depth = depth_enough(loop)
    hz = min(outcome(problem, replace(chosen, depth=depth)).hz, bound_hz(loop, depth))
    source = weakest(part.number["source"] for part in found.parts)
    rate = Estimate(hz, hz * found.low / found.value, hz * found.high / found.value, Evidence("loop", source))
    ids = {chosen.of(part).time.rests_on.id for part in LOOP}
    facts = {
        **name_system(question),
        "batch": found.question["batch"],
        "arrangement": found.arrangement,
        "presampled": question.workload.replay.presampled,
        "mapping": {part: chosen.of(part).device for part in PARTS},
    }
    notes = note_records(question, (evidence for evidence in found.sources if evidence.id in ids))
    times = _list_times(problem, chosen)
    return answer_depth(loop, spread, (ends[0], ends[1]), times, rate, found.choice.is_bound, facts, notes)


def _take_ends(chosen: Configuration, end: str) -> Configuration:
    """Replace each time by one end of its interval."""
    for option in chosen.options:
        chosen = chosen.having(replace(option, time=replace(option.time, value=getattr(option.time, end))))
    return chosen


def _list_times(problem: Problem, chosen: Configuration) -> Iterator[Row]:
    """Yield the time of each part, and of each link's transfer, in a gradient step."""
    slower = slowdowns(problem, chosen.where)
    for part in PARTS:
        option, time = chosen.of(part), chosen.of(part).time.scaled(slower[part])
        label = {"part": part, "device": option.device, "engine": option.engine}
        yield Row(label, replace(time, rests_on=Evidence(part, time.source)), "s")
    for flow, hop in transfers(problem, chosen.where):
        yield _time_row(f"{flow.source} to {flow.target}", hop.engine, hop.seconds(flow), hop.rests_on.source)


def _time_row(part: str, engine: str, seconds: float, source: Source = "quoted") -> Row:
    label = {"part": part, "device": None, "engine": engine}
    return Row(label, Estimate(seconds, seconds, seconds, Evidence(part, source)), "s")
