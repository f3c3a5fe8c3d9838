"""Runs that were timed whole: a gradient step of a training loop with all that goes with it, as it trains.

Letters: A actors, E environments an actor steps at once, B batch, u environment steps a gradient step. Times are
seconds of a gradient step.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from impls.training.arrangement import SEVERAL

from .. import stats
from ..drift import Drift
from ..estimate import Estimate, Evidence
from ..records import Measurement, in_order

REFERENCE = "torch"
"""The implementation of learners and policies in records that name none."""
BESIDE = "training arrangement"
"""The primitive of runs of several processes; of these the op "rate" is a gradient step of the whole."""
UNLIKE = (
    1.25  # for each of A, E, the learner and the policy in which a run is not the one that was timed: an assumption
)
Times = Callable[[str, int], Estimate | None]
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


def whole_runs(records: Sequence[Measurement], changes: Drift) -> dict[str, tuple[Whole, ...]]:
    """By the identity of a workload its runs that were timed whole; of several of one shape the latest."""
    learning = {one.options.get("identity"): one.batch for one in records if one.op == "learning"}
    found: dict[str, dict[tuple[object, ...], Whole]] = {}
    for one in in_order(filter(is_whole, records)):
        identity, by = str(one.options.get("identity")), str(one.options.get("learner", REFERENCE))
        # The record of a loop that was timed among trees has no batch: it is that of their learning.
        batch = learning.get(identity, 0) if one.primitive == "serial_step" else one.batch
        arrangement, policy = str(one.options.get("arrangement", "serial")), str(one.options.get("policy", by))
        actors, environments, interval = (
            int(one.options.get(key, 1)) for key in ("actors", "environments", "update_interval")
        )
        how = combined(**{key: one.options[key] for key in SEVERAL if key in one.options})
        shape = arrangement, by, policy, actors, environments, batch, interval
        sigma = stats.log_sigma(one.low_seconds or one.seconds, one.high_seconds or one.seconds, 0.0)
        told = f"{one.command}, at {(one.commit or 'no commit')[:8]}, {one.utc}"
        evidence = Evidence(f"{arrangement} loop, learner {by}, policy {policy}", "measured", told)
        time = Estimate.within(one.seconds, math.exp(changes.half_width(sigma)), evidence)
        if batch:
            found.setdefault(identity, {})[*shape, how] = Whole(*shape, time, how)
    return {identity: tuple(runs.values()) for identity, runs in found.items()}


def is_whole(one: Measurement) -> bool:
    """Whether a record is of a whole run, with the ratio of its workload kept."""
    serial = one.primitive in ("training", "serial_step") and (one.contestant, one.op) == ("loop", "step")
    several = (one.primitive, one.op, one.options.get("ratio")) == (BESIDE, "rate", "kept")
    return bool(one.median_seconds) and (serial or several)


def beyond(loops: Mapping[str, Sequence[Whole]], alone: Callable[[str], Times], by: str, own: float) -> Beyond | None:
    """What serial loops ``by`` an implementation take beyond their parts, the mean over workloads; None without any.

    ``alone``: times of a workload's parts, by its identity; ``own``: the error bound of a loop's own time, a factor.
    """
    ratios = [
        one.time.value / parts
        for identity, runs in loops.items()
        for one in runs
        if (one.arrangement, one.learner, one.policy) == ("serial", by, by)
        and (parts := _sum_of_parts(alone(identity), one))
    ]
    if not ratios:
        return None
    middle = stats.geometric_mean(ratios)
    return Beyond(middle, own * max(max(ratio / middle, middle / ratio) for ratio in ratios))


def _sum_of_parts(time: Times, loop: Whole) -> float | None:
    """Seconds of a serial loop's parts as timed alone; None where one was not."""
    acting = time(what_of("actor step", loop.policy, loop.environments), 1)
    ops = what_of("learner step", loop.learner), "storage gather", "numba draw", "numba update"
    parts = [time(op, loop.batch) for op in ops]
    if acting is None or not all(parts):
        return None
    return loop.interval / loop.environments * acting.value + sum(part.value for part in parts if part)
