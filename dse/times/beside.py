"""Training by several processes, from runs whose parts were timed concurrently: how long a gradient step takes.

While an actor works, the learner takes c_l times as long, and an actor c_a times beside the learner. Let a learner work
for l seconds of a gradient step, and each actor for a. Where the learner is the slower side, all the work of an actor
lies beside its own, c_a a seconds in which it gets 1 / c_l of its work done; so a step takes

    l + a c_a (1 - 1 / c_l)    and where actors are the slower side    a + l c_l (1 - 1 / c_a).

More processes than cores share what work the cores did, in seconds of a process alone, when all were busy. To the
longest of these comes the hand-over: what a step of a run with a kept ratio took beyond it.

Letters: A actors, E environments an actor steps at once, B batch, u environment steps a gradient step.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..records import Measurement

PRIMITIVE = "training arrangement"
DEVIATION = 1.15  # of a step, as a factor, in a run like one that was timed: an assumption until questions tell
UNLIKE = 1.25  # and once more for each of A, E, the learner and the policy that was not timed so: an assumption
MOST_SLOWER = 2.0  # the slowdown of two that share all there is to share
_SHAPE = ("arrangement", "learner", "policy", "actors", "environments", "batch")
_NEEDED = ("rate", "learner alone", "actor alone", "actor period")


@dataclass(frozen=True)
class Timed:
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
    def slower(self) -> tuple[float, float]:
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
        c_l, c_a = self.slower
        if not crowd:
            return learner + turns * c_a * (1 - 1 / c_l), turns + learner * c_l * (1 - 1 / c_a), keeper
        work = (learner + keeper + crowd * turns) / self.cores
        longer = max(1.0, work / max(learner, turns, keeper))
        return learner * longer, turns * longer, keeper * longer

    def hand_over(self, crowd: int) -> float:
        """Seconds that a gradient step with a kept ratio took beyond its longest side; 0 where it took less."""
        turns = self.turn * self.interval / (self.actors * self.environments)
        return max(0.0, self.kept - max(self.sides(self.learner, turns, self.keeper, crowd)))


def timed(records: Iterable[Measurement], profiled: str) -> tuple[Timed, ...]:
    """The runs of a workload, by its identity, whose parts were timed; the latest record of a part counts."""
    cells: dict[tuple[Any, ...], dict[tuple[str, str], Measurement]] = {}
    for one in records:
        if one.primitive == PRIMITIVE and one.median_seconds and one.options.get("identity") == profiled:
            if one.options.get("learners", 1) == 1:
                shape = tuple(one.options.get(key) for key in _SHAPE)
                known = cells.setdefault(shape, {})
                key = (str(one.options.get("ratio")), one.op)
                if key not in known or known[key].utc <= one.utc:
                    known[key] = one
    return tuple(_timed(cells))


def _timed(cells: Mapping[tuple[Any, ...], Mapping[tuple[str, str], Measurement]]) -> Iterator[Timed]:
    for shape, known in cells.items():
        if not all(("free", op) in known for op in _NEEDED):
            continue
        rate, learner, turn, period = (known["free", op] for op in _NEEDED)
        kept, keepers = known.get(("kept", "rate")), [one for (_, op), one in known.items() if op == "keeper step"]
        arrangement, implementation, policy, actors, environments, batch = shape
        yield Timed(
            arrangement=arrangement,
            implementation=implementation,
            policy=policy,
            actors=actors,
            environments=environments,
            batch=batch,
            learner=learner.seconds,
            turn=turn.seconds,
            beside=(rate.seconds, period.seconds),
            keeper=min((one.seconds for one in keepers), default=0.0),
            kept=kept.seconds if kept else 0.0,
            interval=int(kept.options["update_interval"]) if kept else 1,
            told=f"{rate.command}, at {(rate.commit or 'no commit')[:8]}, {rate.utc}",
        )


def nearest(
    runs: Sequence[Timed], arrangement: str, learner: str, policy: str, actors: int, environments: int, cores: int
) -> tuple[Timed, float] | None:
    """(the run that is most like another one, the error bound of a prediction from it); None without any.

    A run with enough cores stands for no run without, as long as one of the other kind was timed.
    """
    own = [one for one in runs if one.arrangement == arrangement]
    if not own:
        return None
    wanted = crowded(arrangement, actors, cores)

    def unlike(one: Timed) -> tuple[bool, int, float, float]:
        by = (one.implementation != learner) * 2 + (one.policy != policy)
        at_once = abs(math.log(one.environments / environments))
        return (crowded(arrangement, one.actors, cores) != wanted), by, at_once, abs(math.log(one.actors / actors))

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
