"""How much of the step of a serial loop is the learner's, the policy's, the environment's and the replay's.

Letters: E environments an actor steps at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..solver.law import slowdowns, transfers
from ..solver.problem import TREE
from ..solver.solve import Candidate
from ..times.whole_runs import what_of
from .build import Built
from .options import implementation_of
from .processes import ExecutionMode


@dataclass(frozen=True)
class StepShare:
    """Seconds of a gradient step that go to ``what``, which is ``share`` of all of it."""

    what: str
    seconds: float
    share: float


def step_shares(built: Built, one: Candidate) -> tuple[StepShare, ...]:
    """The step of a serial loop, the shares of which add up to it; none where parts run at the same time.

    The tree and the storage are the replay's. "the rest" is what actors take beyond policy and environment (local
    storage, weights fetched), and what the whole loop took beyond its parts as each was timed alone, or less than they.
    """
    if one.mode.arrangement != "serial":
        return ()
    spent = [(what, taken) for what, taken in _spent(built, one) if taken]
    whole = sum(taken for _, taken in spent)
    return tuple(StepShare(what, taken, taken / whole) for what, taken in spent)


def beyond(built: Built, mode: ExecutionMode) -> float:
    """The slowdown, over its time alone, that each part of a serial loop is charged for; 1 where it is not known."""
    return built.ratios.get(mode, 1.0) if mode.arrangement == "serial" else 1.0


def _spent(built: Built, one: Candidate) -> Iterator[tuple[str, float]]:
    chosen, times = one.configuration, beyond(built, one.mode)
    slower = slowdowns(one.problem, chosen.where)
    charged = {option.part: option.seconds * slower[option.part] for option in chosen.options}
    part = {name: taken / times for name, taken in charged.items()}
    acting = dict(_acting(built, one, part["actors"]))
    yield "learner", part["learner"]
    yield from acting.items()
    yield "tree", sum(part[name] for name in TREE)
    yield "storage", part["storage"]
    yield "transfers", sum(hop.seconds(flow) for flow, hop in transfers(one.problem, chosen.where))
    yield "the rest", sum(charged.values()) - sum(part.values()) + part["actors"] - sum(acting.values())


def _acting(built: Built, one: Candidate, whole: float) -> Iterator[tuple[str, float]]:
    """Policy and environment, as far as both were timed alone; where they were not, "acting" as one."""
    parts = built.parts
    count, steps = parts.environments, parts.workload.learner.update_interval
    policy = what_of("inference act", implementation_of(built.details(one.configuration.actors)))
    timed = [
        parts.table and parts.table.time(what, size)
        for what, size in ((policy, count), (what_of("env step", environments=count), 1))
    ]
    if parts.stated("actors", parts.cpu) or not all(timed):
        yield "acting", whole
        return
    spent = [steps / count * each.value for each in timed if each]
    fits = min(1.0, whole / sum(spent))  # timed alone, both may take a little more than in an actor
    yield from zip(("policy", "environment"), (fits * each for each in spent), strict=True)
