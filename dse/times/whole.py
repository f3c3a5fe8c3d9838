"""Runs that were timed whole: a gradient step of a training loop with all that goes with it, as it trains.

Of some runs of several processes the parts were timed too, concurrently (``TimedRun``). While an actor works, the
learner takes c_l times as long, and an actor c_a times beside the learner. Let a learner work for l seconds of a
gradient step, and each actor for a. Where the learner is the slower side, all the work of an actor lies beside its own,
c_a a seconds in which it gets 1 / c_l of its work done; so a step takes

    l + a c_a (1 - 1 / c_l)    and where actors are the slower side    a + l c_l (1 - 1 / c_a).

More processes than cores share what work the cores did, in seconds of a process alone, when all were busy. To the
longest of these comes the hand-over: what a step of a run with a kept ratio took beyond it.

Letters: A actors, E environments an actor steps at once, B batch, u environment steps a gradient step. Times are
seconds of a gradient step.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from impls.training.arrangement import SEVERAL

from .. import stats
from ..drift import Drift
from ..estimate import Estimate, Evidence
from ..records import Record, in_order

REFERENCE = "torch"
"""The implementation of learners and policies in records that name none."""
BESIDE = "training arrangement"
"""The primitive of runs of several processes; of these the op "rate" is a gradient step of the whole."""
UNLIKE = 1.25  # for each of A, E, learner and policy in which a run is not the one that was timed: an assumption
DEVIATION = 1.15  # of a step, as a factor, in a run like one that was timed: an assumption until questions tell
MOST_SLOWER = 2.0  # the slowdown of two that share all there is to share
TimeOf = Callable[[str, int], Estimate | None]
"""The time of a part (an implementation and an op) at a batch size; None where it was not timed."""


Combined = tuple[object, ...]
"""How several learners combined: L, sync, H of "local" alone, and banks; () of one."""


def combined(learners: int = 1, sync: str = "synchronous", period: int = 0, banks: int = 1) -> Combined:
    """How learners combined.

    >>> combined(), combined(2, "lock", 10)
    ((), (2, 'lock', 0, 1))
    """
    return (learners, sync, period if sync == "local" else 0, banks) if learners > 1 else ()


def what_of(part: str, implementation: str = REFERENCE, environments: int = 1) -> str:
    """The name of a part's rows, which says what is not the reference, and how many environments are stepped at once.

    >>> what_of("learner step"), what_of("actor step", "dense", 8)
    ('learner step', 'actor step, dense, 8 environments')
    """
    words = [implementation] * (implementation != REFERENCE)
    words += [f"{environments:,} environments"] * (environments != 1)
    return ", ".join([part, *words])


def describe_origin(record: Record) -> str:
    """Name the command, the commit and the time of a record."""
    return f"{record.run.command}, at {(record.commit or 'no commit')[:8]}, {record.utc}"


@dataclass(frozen=True)
class Whole:
    """A run that was timed whole: how it is arranged, its shape, and ``time``, a gradient step all in."""

    arrangement: str
    learner: str
    policy: str
    actors: int
    environments: int
    batch: int
    interval: int
    time: Estimate
    how: Combined = ()

    @property
    def shape(self) -> tuple[object, ...]:
        """All but the time."""
        own = self.arrangement, self.learner, self.policy, self.actors, self.environments, self.batch, self.interval
        return (*own, self.how)


@dataclass(frozen=True)
class Beyond:
    """How many times the sum of its parts a serial loop takes, within ``factor``: told by loops of other workloads."""

    ratio: float
    factor: float


def whole_runs(records: Sequence[Record], changes: Drift) -> dict[str, tuple[Whole, ...]]:
    """By the identity of a workload its runs that were timed whole; of several of one shape the latest."""
    learning = {record.options.get("identity"): record.batch for record in records if record.op == "learning"}
    found: dict[str, dict[tuple[object, ...], Whole]] = {}
    for record in in_order(filter(is_whole, records)):
        identity, by = str(record.options.get("identity")), str(record.options.get("learner", REFERENCE))
        # The record of a loop that was timed among trees has no batch: it is that of their learning.
        batch = learning.get(identity, 0) if record.primitive == "serial_step" else record.batch
        arrangement, policy = str(record.options.get("arrangement", "serial")), str(record.options.get("policy", by))
        actors, environments, interval = (
            int(record.options.get(key, 1)) for key in ("actors", "environments", "update_interval")
        )
        how = combined(**{key: record.options[key] for key in SEVERAL if key in record.options})
        shape = arrangement, by, policy, actors, environments, batch, interval
        sigma = stats.log_sigma(record.low_seconds or record.seconds, record.high_seconds or record.seconds, 0.0)
        evidence = Evidence(f"{arrangement} loop, learner {by}, policy {policy}", "measured", describe_origin(record))
        time = Estimate.within(record.seconds, math.exp(changes.half_width(sigma)), evidence)
        if batch:
            found.setdefault(identity, {})[*shape, how] = Whole(*shape, time, how)
    return {identity: tuple(runs.values()) for identity, runs in found.items()}


def is_whole(record: Record) -> bool:
    """Whether a record is of a whole run, with the ratio of its workload kept."""
    serial = record.primitive in ("training", "serial_step") and (record.contestant, record.op) == ("loop", "step")
    several = (record.primitive, record.op, record.options.get("ratio")) == (BESIDE, "rate", "kept")
    return bool(record.median_seconds) and (serial or several)


def beyond(loops: Mapping[str, Sequence[Whole]], alone: Callable[[str], TimeOf], by: str, own: float) -> Beyond | None:
    """What serial loops ``by`` an implementation take beyond their parts, the mean over workloads; None without any.

    ``alone``: times of a workload's parts, by its identity; ``own``: the error bound of a loop's own time, a factor.
    """
    ratios = [
        run.time.value / parts
        for identity, runs in loops.items()
        for run in runs
        if (run.arrangement, run.learner, run.policy) == ("serial", by, by)
        and (parts := _sum_of_parts(alone(identity), run))
    ]
    if not ratios:
        return None
    middle = stats.geometric_mean(ratios)
    return Beyond(middle, own * max(max(ratio / middle, middle / ratio) for ratio in ratios))


def _sum_of_parts(time: TimeOf, loop: Whole) -> float | None:
    """Seconds of a serial loop's parts as timed alone; None where one was not."""
    acting = time(what_of("actor step", loop.policy, loop.environments), 1)
    ops = what_of("learner step", loop.learner), "storage gather", "numba draw", "numba update"
    parts = [time(op, loop.batch) for op in ops]
    if acting is None or not all(parts):
        return None
    return loop.interval / loop.environments * acting.value + sum(part.value for part in parts if part)


# Parts that were timed concurrently

_SHAPE = ("arrangement", "learner", "policy", "actors", "environments", "batch")
_NEEDED = ("rate", "learner alone", "actor alone", "actor period")


@dataclass(frozen=True)
class TimedRun:
    """A run of A actors and one learner that was timed, its parts concurrently and alone; seconds.

    ``learner``, ``turn``: of a gradient step, and of an actor's turn of E environments, alone; ``beside``: the same
    two while all are busy. ``keeper``: the replay manager's own work a batch, 0 in ``apart``. ``kept``: the period of a
    gradient step with a kept ratio at u = ``interval``, 0 where that was not timed.
    """

    arrangement: str
    implementation: str
    policy: str
    actors: int
    environments: int
    batch: int
    learner: float
    turn: float
    beside: tuple[float, float]
    keeper: float
    kept: float
    interval: int
    told: str

    @property
    def slowdowns(self) -> tuple[float, float]:
        """(c_l, c_a): the slowdowns of learner and actors that run concurrently, from 1 to 2."""
        pairs = zip(self.beside, (self.learner, self.turn), strict=True)
        learner, actor = (min(MOST_SLOWER, max(1.0, both / alone)) for both, alone in pairs)
        return learner, actor

    @property
    def cores(self) -> float:
        """Seconds of work, alone, that were done per second while all were busy."""
        steps, turns = 1 / self.beside[0], self.actors / self.beside[1]
        return (self.learner + self.keeper) * steps + self.turn * turns

    def sides(self, learner: float, turns: float, keeper: float, crowd: int) -> tuple[float, float, float]:
        """Seconds of a gradient step that learner, an actor and the replay manager are busy, concurrently.

        ``learner``, ``turns``, ``keeper``: the same alone. ``crowd``: A where there are more processes than cores, else
        0.
        """
        c_l, c_a = self.slowdowns
        if not crowd:
            return learner + turns * c_a * (1 - 1 / c_l), turns + learner * c_l * (1 - 1 / c_a), keeper
        work = (learner + keeper + crowd * turns) / self.cores
        longer = max(1.0, work / max(learner, turns, keeper))
        return learner * longer, turns * longer, keeper * longer

    def handoff_seconds(self, crowd: int) -> float:
        """Seconds that a gradient step with a kept ratio took beyond its longest side; 0 where it took less."""
        turns = self.turn * self.interval / (self.actors * self.environments)
        return max(0.0, self.kept - max(self.sides(self.learner, turns, self.keeper, crowd)))


def timed(records: Iterable[Record], profiled: str) -> tuple[TimedRun, ...]:
    """Return the runs of a workload, by its identity, whose parts were timed; the latest record of a part counts."""
    cells: dict[tuple[Any, ...], dict[tuple[str, str], Record]] = {}
    for record in records:
        options = record.options
        if record.primitive == BESIDE and record.median_seconds and options.get("identity") == profiled:
            if options.get("learners", 1) == 1:
                known = cells.setdefault(tuple(options.get(key) for key in _SHAPE), {})
                key = (str(options.get("ratio")), record.op)
                if key not in known or known[key].utc <= record.utc:
                    known[key] = record
    found = []
    for shape, known in cells.items():
        if all(("free", op) in known for op in _NEEDED):
            rate, learner, turn, period = (known["free", op] for op in _NEEDED)
            kept = known.get(("kept", "rate"))
            keepers = [record.seconds for (_, op), record in known.items() if op == "keeper step"]
            arrangement, implementation, policy, actors, environments, batch = shape
            run = TimedRun(
                *(arrangement, implementation, policy, actors, environments, batch),
                learner=learner.seconds,
                turn=turn.seconds,
                beside=(rate.seconds, period.seconds),
                keeper=min(keepers, default=0.0),
                kept=kept.seconds if kept else 0.0,
                interval=int(kept.options["update_interval"]) if kept else 1,
                told=describe_origin(rate),
            )
            found.append(run)
    return tuple(found)


def nearest(
    runs: Sequence[TimedRun], arrangement: str, learner: str, policy: str, actors: int, environments: int, cores: int
) -> tuple[TimedRun, float] | None:
    """(the run that is most like another one, the error bound of a prediction from it); None without any.

    A run with enough cores stands for no run without, as long as one of the other kind was timed.
    """
    own = [run for run in runs if run.arrangement == arrangement]
    if not own:
        return None
    wanted = crowded(arrangement, actors, cores)

    def unlike(run: TimedRun) -> tuple[bool, int, float, float]:
        by = (run.implementation != learner) * 2 + (run.policy != policy)
        at_once = abs(math.log(run.environments / environments))
        return (crowded(arrangement, run.actors, cores) != wanted), by, at_once, abs(math.log(run.actors / actors))

    best = min(own, key=unlike)
    pairs = ((best.implementation, learner), (best.policy, policy), (best.environments, environments))
    differ = sum(mine != theirs for mine, theirs in (*pairs, (best.actors, actors)))
    return best, math.exp(math.hypot(math.log(DEVIATION), *[math.log(UNLIKE)] * differ))


def crowded(arrangement: str, actors: int, cores: int) -> bool:
    """Whether a run of one learner has more processes than there are cores.

    >>> crowded("apart", 1, 2), crowded("pipelined", 1, 2)
    (False, True)
    """
    return 1 + actors + (arrangement == "pipelined") > cores
