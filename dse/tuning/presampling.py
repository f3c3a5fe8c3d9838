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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from impls.training import Workload

from ..answer import Note
from ..estimate import Estimate, Evidence, Interval, interval_of, off, weakest
from ..mapping.answer import Shortage, lacking
from ..mapping.question import answer_question, ask
from ..platforms import Platform
from ..platforms.files import RESULTS
from ..records import Source
from ..solver.law import outcome, slowdowns, steps_per_second, transfers
from ..solver.problem import LOOP, PARTS, Configuration, Problem, ProblemError
from ..solver.queues import Network, Visit, network, simulate

SPREAD, LEAST_SPREAD, MOST_SPREAD = 1.0, 1e-6, 3.0  # cv of times that vary: as exponential ones do, unless asked
LOSS = 0.03  # of the most steps/s, within which a simulated rate is enough: noise hides less
TRIED = (*range(9), 12, 16, 24, 32)  # D that are simulated, until one is surely enough
STEPS = 4000
_ROUNDING = 1e-9


def published_loop(
    sampling: float, learner: float, updating: float, transfer: float = 0.0, together: bool = False
) -> Network:
    """Build the loop of the formula: sampling and updating on one engine, the learner on another or, together, on it.

    Times are seconds of one batch. The links there and back are engines of their own; a ``transfer`` of 0, and any
    between parts together, is omitted, and so is an ``updating`` of 0.
    """
    there, back = ((Visit(route, transfer),) if transfer and not together else () for route in ("there", "back"))
    trains = Visit("replay" if together else "learner", learner)
    updates = (Visit("replay", updating),) if updating else ()
    return Network((Visit("replay", sampling), *there, trains, *back, *updates))


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


@dataclass(frozen=True)
class Enough:
    """The smallest D that is within ``LOSS`` of the most, simulated with times of one cv; None if none tried is.

    ``least`` and ``most``: the same by the upper and by the lower ends of the simulation's own noise at 95 %.
    """

    cv: float
    depth: int | None
    least: int | None
    most: int | None


@dataclass(frozen=True)
class Busy:
    """Seconds of a part, or of a link's transfer, in a gradient step, in [low, high] where that is known."""

    name: str
    engine: str
    seconds: float
    low: float | None
    high: float | None
    source: Source

    @property
    def interval(self) -> Interval | None:
        """What the ends mean; None where there are none."""
        return None if self.low is None else interval_of([self.source])

    @property
    def factor(self) -> float:
        """Error bound of the seconds, as a factor; 1 where nothing is known."""
        return off(self.seconds, self.low, self.high) if self.low and self.high else 1.0


@dataclass(frozen=True)
class DepthAnswer:
    """The answer: ``depth`` is D* of the closed form, from ``least`` to ``most`` by the intervals of the times.

    ``simulated``: the D that is enough by the simulation, for each cv; ``points``: rates at each D. ``presampled``: how
    many batches the workload samples ahead, None for a user's own times. ``hz``: gradient steps/s at that depth in
    ``ends``, actors included, as `recommend` has them; 0 for a user's own times.
    """

    depth: int
    least: int
    most: int
    simulated: tuple[Enough, ...]
    points: tuple[DepthPoint, ...]
    round_seconds: float
    busy: Mapping[str, float]
    times: tuple[Busy, ...] = ()
    sources: tuple[Evidence, ...] = ()
    platform: str = ""
    workload: str = ""
    batch: int | None = None
    arrangement: str = ""
    mapping: Mapping[str, str] | None = None
    presampled: int | None = None
    hz: float = 0.0
    ends: tuple[float, float] = (0.0, 0.0)
    source: Source = "modeled"  # of that rate
    upper_bound: bool = True
    machine: str = ""  # whose records were read, if any
    machine_note: Note | None = None  # says so where another machine stands for "this"
    profile_notes: tuple[Note, ...] = ()  # that the profile is incomplete, or was disturbed

    @property
    def most_hz(self) -> float:
        """Steps per second of the busiest engine, actors left out, which no D exceeds."""
        return 1 / max(self.busy.values())


def depth_of(loop: Network, spread: float = SPREAD, ends: tuple[Network, Network] | None = None) -> DepthAnswer:
    """Answer for a loop. ``ends``: the same loop with its shortest and with its longest times.

    ``spread``: cv of the times that vary; for 0 only exact ones are simulated. ProblemError unless it is 0 or in
    [1e-6, 3].
    """
    if not (spread == 0 or LEAST_SPREAD <= spread <= MOST_SPREAD):
        bounds = f"0 or from {LEAST_SPREAD:g} to {MOST_SPREAD:g}"
        raise ProblemError(f"the spread of times (cv) is {bounds}, not {spread:g}")
    cvs = (0.0, spread) if spread else (0.0,)
    needed, enough = depth_enough(loop), 1 / max(loop.busy.values()) * (1 - LOSS)
    in_turns = len(loop.busy) == 1  # where every D makes as many steps, and only noise would tell them apart
    points: list[DepthPoint] = []
    # Invariant: points has every D tried so far, rising, and none above the closed form's is surely enough.
    for depth in sorted({*TRIED, needed}):
        points += depth_curve(loop, (depth,), cvs, STEPS)
        if depth > needed and (in_turns or all(one.low >= enough for one in points[-1].simulated)):
            break
    ends_of = ("value", "high", "low")
    simulated = tuple(
        Enough(cv, *((0, 0, 0) if in_turns else (_first(points, at, end, enough) for end in ends_of)))
        for at, cv in enumerate(cvs)
    )
    least, most = _between(*(ends or (loop, loop)))
    return DepthAnswer(
        needed, min(least, needed), max(most, needed), simulated, tuple(points), loop.round_seconds, loop.busy
    )


def _first(points: Sequence[DepthPoint], at: int, end: str, enough: float) -> int | None:
    return next((one.depth for one in points if getattr(one.simulated[at], end) >= enough), None)


def _between(low: Network, high: Network) -> tuple[int, int]:
    """Find the smallest and the largest D* of all loops whose engines are busy for times between those of two.

    A round over its busiest engine is shortest where that engine takes longest and all others are as short as can be,
    and longest where no engine is busier than the busiest must be.
    """
    short, long = low.busy, high.busy
    most = max(short.values())
    rounds = [
        (long[one] + sum(short.values()) - short[one])
        / max(long[one], *(short[two] for two in short if two != one), 0.0)
        for one in short
    ]
    longest = sum(min(one, most) for one in long.values()) / most
    return _ahead(min(rounds)), _ahead(longest)


def platform_depth(
    platform: str | Path | Platform,
    workload: str | Path | Workload,
    spread: float = SPREAD,
    *,
    fix: Mapping[str, Any] | None = None,
    exclude: Collection[str] = (),
    results: str | Path = RESULTS,
    machine: str | None = None,
) -> DepthAnswer:
    """Answer for the mapping that ``find_mapping`` gives, whose keywords and errors these are.

    NothingFits, a ProblemError, where no mapping fits.
    """
    asked = ask(platform, workload, fix=fix, exclude=exclude, results=results, machine=machine)
    found = answer_question(asked)
    if isinstance(found, Shortage):
        raise NothingFits(found)
    problem, chosen = found.chosen.problem, found.chosen.configuration
    loop, *ends = (network(problem, one, actors=False) for one in (chosen, _at(chosen, "low"), _at(chosen, "high")))
    ids = {chosen.of(part).time.rests_on.id for part in LOOP}
    answer = depth_of(loop, spread, (ends[0], ends[1]))
    return replace(
        answer,
        hz=(hz := outcome(problem, replace(chosen, depth=answer.depth)).hz),
        ends=(hz * found.low / found.value, hz * found.high / found.value),
        source=weakest(part.number["source"] for part in found.parts),
        upper_bound=found.choice.is_bound,
        times=tuple(_times(problem, chosen)),
        sources=tuple(one for one in found.sources if one.id in ids),
        batch=found.question["batch"],
        arrangement=found.arrangement,
        mapping={part: chosen.of(part).device for part in PARTS},
        presampled=asked.workload.replay.presampled,
        **asked.provenance,
    )


def _at(chosen: Configuration, end: str) -> Configuration:
    """Replace each time by one end of its interval."""
    for option in chosen.options:
        chosen = chosen.having(replace(option, time=replace(option.time, value=getattr(option.time, end))))
    return chosen


def _times(problem: Problem, chosen: Configuration) -> Iterator[Busy]:
    slower = slowdowns(problem, chosen.where)
    for option in (chosen.of(part) for part in PARTS):
        time = option.time.scaled(slower[option.part])
        yield Busy(option.part, option.engine, time.value, time.low, time.high, time.source)
    for flow, hop in transfers(problem, chosen.where):
        name = f"{flow.source} to {flow.target}"
        yield Busy(name, hop.engine, hop.seconds(flow), None, None, hop.rests_on.source)
