"""Execution modes of several processes that are programs here, each with the times of its parts run concurrently.

What one core does in a gradient step alone is scaled from the nearest run that was timed (``times/beside.py``), by the
times of its parts alone. Actors insert records themselves, so the replay's time counts none of it.

Letters: A actors, C cores, T threads, E environments an actor steps at once, B batch, u environment steps a gradient
step.
"""

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from impls.training import Workload
from impls.training.parallel.arrangement import Arrangement

from ..estimate import Estimate
from ..records import benchmark
from ..times.analytic import together
from ..times.beside import Timed, crowded, nearest
from ..times.parts import Parts
from ..times.trees import Tree, trees
from ..times.whole_runs import REFERENCE

TREE = "numba"  # what a replay that processes share keeps its priorities in
LEAST = 0.05  # of a process' time, that its gradient step itself takes at least


def is_here(parts: Parts) -> bool:
    """Whether the platform is a machine with records of its own, and processors alone: then answers are to run."""
    return parts.table is not None and all(device.kind == "cpu" for device in parts.platform.devices)


def strategy_of(arrangement: str) -> str:
    """The locking strategy of the replay that the processes of a mode share, unless another is asked for."""
    return Arrangement(name=arrangement).strategy


def can_run(tree: Tree, arrangement: str = "apart") -> bool:
    """Whether a run may have a tree: on one thread, with its default options; several processes share numba's alone."""
    is_able = arrangement == "serial" or tree.details.get("contestant") == TREE
    return is_able and tree.threads == 1 and not tree.details.get("options")


@dataclass(frozen=True)
class Run:
    """A number of actors, and the implementations of learner and policy; ``Place`` has it in its name."""

    arrangement: str
    actors: int
    learner: str
    policy: str

    @property
    def name(self) -> str:
        """The run as the name of an execution mode.

        >>> Run("apart", 2, "dense", "torch").name
        'apart, 2, dense, torch'
        """
        return f"{self.arrangement}, {self.actors}, {self.learner}, {self.policy}"

    @property
    def processes(self) -> int:
        """The number of processes: one learner, unless serial A actors, in ``pipelined`` the keeper of the replay."""
        return 1 if self.arrangement == "serial" else 1 + self.actors + (self.arrangement == "pipelined")

    def cores(self, cores: int) -> int:
        """Cores that a learner may take for threads of its own besides the other processes; 1 at least."""
        return max(1, cores - self.processes + 1)


def runs_of(parts: Parts, arrangement: str) -> Iterator[Run]:
    """What is tried of a mode, as far as the constraints allow, where runs of the workload were timed whole, or parts
    of that mode concurrently; nothing where they were not, or the user states times of the parts."""
    table, cores, serial = parts.table, parts.cores, arrangement == "serial"
    if table is None or not (serial or is_here(parts)) or parts.own:
        return
    timed = [one.actors for one in table.whole if one.arrangement == arrangement]
    timed += [one.actors for one in table.beside if one.arrangement == arrangement]
    if not (timed or table.whole):
        return
    fits = cores - 1 - (arrangement == "pipelined")
    counts = {1, fits, fits + 1, *(1 << power for power in range(max(0, fits).bit_length()) if 1 << power <= fits)}
    # What processes take that share cores, only runs tell that shared them.
    shares = any(crowded(arrangement, actors, cores) for actors in timed)
    most = parts.workload.actors.count if shares else min(fits, parts.workload.actors.count)
    fixed = int(parts.constraints.get("actors", 0))
    wanted = {fixed} if fixed and (shares or fixed <= fits) else {count for count in counts if count <= most}
    tried = [1] if serial else sorted(count for count in wanted if count >= 1)
    learners = dict.fromkeys((REFERENCE, *table.implementations("learner step")))
    pairs = [
        (learner, policy)
        for learner in learners
        for policy in parts.policies
        if parts.allows("learner_implementation", learner) and parts.allows("policy_implementation", policy)
    ]
    if not {"learner_implementation", "policy_implementation"} & parts.constraints.keys():
        whole = {(one.learner, one.policy) for one in table.whole}  # what was measured whole is not guessed as well
        pairs = [pair for pair in pairs if pair in whole] or pairs
    for actors in tried:
        yield from (Run(arrangement, actors, *pair) for pair in pairs)


@dataclass(frozen=True)
class Process:
    """A process of an arrangement: "learner", "actor" or "keeper", its number among its kind, and its cores."""

    kind: str
    number: int
    cores: tuple[int, ...]


def processes_of(parts: Parts, arrangement: str, actors: int) -> tuple[Process, ...]:
    """The processes of an arrangement with one learner, cores counted from 0, as a run shares them out."""
    from impls.training.parallel.crew import share_of_cores  # noqa: PLC0415  # numba

    kinds = [("learner", 0), *(("actor", number) for number in range(actors))]
    kinds += [("keeper", 0)] * (arrangement == "pipelined")
    cores = share_of_cores(len(kinds), tuple(range(parts.cores)))
    return tuple(Process(*kind, own) for kind, own in zip(kinds, cores, strict=True))


@dataclass
class Beside:
    """The times of the parts of a run, concurrently; ``parts``: those of each alone."""

    parts: Parts
    run: Run

    @functools.cached_property
    def own(self) -> Parts:
        """The parts at u = 1: what a replay takes where actors insert themselves."""
        return reshaped(self.parts, self.parts.workload, update_interval=1)

    @functools.cached_property
    def _nearest(self) -> tuple[Timed, float]:
        table, run = self.parts.table, self.run
        environments = self.parts.environments
        shape = run.arrangement, run.learner, run.policy, run.actors, environments, self.parts.cores
        known = nearest(table.beside, *shape) if table else None
        assert known  # of this mode some run was timed
        return known

    @property
    def is_crowded(self) -> bool:
        """Whether there are more processes than cores."""
        return crowded(self.run.arrangement, self.run.actors, self.parts.cores)

    @functools.cached_property
    def _base(self) -> Parts:
        """The parts of the run that was timed."""
        timed = self._nearest[0]
        own = self.own.workload
        return reshaped(self.own, own, timed.batch, 1, timed.environments, own.replay.fanout)

    @functools.cached_property
    def _replay_alone(self) -> float:
        return replay_seconds(self.own)

    @functools.cached_property
    def alone(self) -> tuple[float, float, float]:
        """Seconds of a gradient step that the learner, each actor and the replay manager take alone."""
        timed, run, parts = self._nearest[0], self.run, self.parts
        learner = timed.learner * _side(self.own, run, run.learner) / _side(self._base, run, timed.implementation)
        keeper = timed.keeper * self._replay_alone / replay_seconds(self._base)
        each = timed.turn / timed.environments
        each *= parts.actor_step(1, run.policy).value / self._base.actor_step(1, timed.policy).value
        if run.actors > 1 and timed.actors == 1:
            some = min(run.actors, parts.cores)
            each *= max(1.0, some * parts.actor_step(some, run.policy).value / parts.actor_step(1, run.policy).value)
        return learner, each * parts.workload.learner.update_interval / run.actors, keeper

    @functools.cached_property
    def _sides(self) -> tuple[float, float, float]:
        timed, crowd = self._nearest[0], self.run.actors if self.is_crowded else 0
        learner, actor, keeper = timed.sides(*self.alone, crowd)
        more = timed.hand_over(timed.actors if self.is_crowded else 0)
        return learner + more, actor + more, keeper

    ratio, counts_others = 1.0, True

    def acting(self, alone: Estimate, policy: str) -> Estimate:
        """Seconds of a gradient step that an actor takes."""
        return self._told(alone, self._sides[1])

    def step(self, alone: Estimate, learner: str) -> Estimate:
        """The learner's time of a gradient step by its time alone."""
        seconds = self._sides[0]
        if self.run.arrangement == "apart":
            seconds = max(LEAST * seconds, seconds - self._replay_alone)
        return self._told(alone, seconds * alone.value / one_thread(self.parts, learner).value)

    def stored(self, alone: Estimate) -> Estimate:
        """The time of moving records by its time alone."""
        return self.replay(alone)

    def replay(self, alone: Estimate) -> Estimate:
        """The time of a part of the replay by its time alone."""
        if self.run.arrangement == "apart":
            return alone
        return self._told(alone, alone.value * self._sides[2] / self._replay_alone)

    def _told(self, alone: Estimate, seconds: float) -> Estimate:
        timed, factor = self._nearest
        told = f"{alone.rests_on.told}; in {self.run.arrangement} concurrently with the others: {timed.told}"
        command = benchmark(f"profile --arrangements --workload {self.parts.workload_word}")
        evidence = dataclasses.replace(alone.rests_on, told=told, command=command)
        return Estimate.within(seconds, together(alone.factor, factor), evidence)


def reshaped(
    parts: Parts, workload: Workload, batch: int = 0, update_interval: int = 1, environments: int = 0, fanout: int = 0
) -> Parts:
    """The parts of a workload of another shape, of trees of that K alone; 0 leaves a number as it is."""
    learner: dict[str, Any] = {"update_interval": update_interval} | ({"batch": batch} if batch else {})
    actors = {"environments": environments} if environments else {}
    changed = dataclasses.replace(
        workload,
        learner=dataclasses.replace(workload.learner, **learner),
        actors=dataclasses.replace(workload.actors, **actors),
    )
    constraints = {**parts.constraints, "fanout": fanout} if fanout else parts.constraints
    return dataclasses.replace(parts, workload=changed, constraints=constraints)


def replay_times(parts: Parts) -> list[Estimate]:
    """The times of a batch that the fastest tree, and the records, take alone."""
    known = [(tree.draw, tree.update) for tree in trees(parts, parts.cpu) if can_run(tree)]
    tree = min(known, key=lambda pair: pair[0].value + pair[1].value, default=())
    return [*tree, parts.rows_moved(parts.cpu)]


def replay_seconds(parts: Parts) -> float:
    """Seconds of a batch that the fastest tree, and the records, take alone."""
    return sum(time.value for time in replay_times(parts))


def _side(parts: Parts, run: Run, implementation: str) -> float:
    """Seconds of a gradient step that a learner's process takes alone, by the times of its parts."""
    step = one_thread(parts, implementation)
    return step.value + (replay_seconds(parts) if run.arrangement == "apart" else 0.0)


def one_thread(parts: Parts, implementation: str) -> Estimate:
    """A gradient step by one thread of an implementation, alone."""
    for one in parts.learners(parts.cpu):
        by, threads = one.details.get("implementation", REFERENCE), one.details.get("threads")
        if (by, threads) == (implementation, 1):
            return one.step
    return next(iter(parts.learners(parts.cpu))).step
