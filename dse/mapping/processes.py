"""Execution modes of several processes that are programs here, each with the times of its parts run concurrently.

What one core does in a gradient step alone is scaled from the nearest run that was timed (``times/whole.py``), by
the times of its parts alone. Actors insert records themselves, so the replay's time counts none of it.

Letters: A actors, C cores, T threads, E environments an actor steps at once, B batch, u environment steps a gradient
step.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from impls.terminal import plural
from impls.training import TrainingError, Workload
from impls.training.arrangement import BANKED, SEVERAL, SYNCS, Arrangement

from ..answer import Row
from ..estimate import Estimate
from ..platforms import Device
from ..records import benchmark
from ..solver.problem import ProblemError
from ..times.door import Times
from ..times.laws import together
from ..times.trees import Tree, trees
from ..times.whole import REFERENCE, UNLIKE, TimedRun, Whole, crowded, nearest

TREE = "numba"  # what a replay that processes share keeps its priorities in
ONE = Arrangement()  # learner
ROOMY = 6  # cores from which on four learners are tried, not two alone
LEAST = 0.05  # of a process' time, that its gradient step itself takes at least


def is_here(parts: Times) -> bool:
    """Whether the platform is a machine with records of its own, and processors alone: then answers are to run."""
    return parts.table is not None and all(device.kind == "cpu" for device in parts.platform.devices)


def strategy_of(arrangement: str, banks: int = 1) -> str:
    """The locking strategy of the replay that the processes of a mode share, unless another is asked for."""
    return BANKED if banks > 1 else Arrangement(name=arrangement).strategy


def can_run(tree: Tree, arrangement: str = "apart") -> bool:
    """Whether a run may have a tree: on one thread, with its default options; several processes share numba's alone."""
    is_able = arrangement == "serial" or tree.details.get("contestant") == TREE
    return is_able and tree.threads == 1 and not tree.details.get("options")


@dataclass(frozen=True)
class ExecutionMode:
    """A set of processes to put parts in: how they are arranged, and how learners combine.

    Where parts were timed in a run, it is of so many ``actors`` (0 elsewhere, where any number is tried), with these
    implementations of ``learner`` and ``policy``.
    """

    arrangement: str
    actors: int = 0
    learner: str = ""
    policy: str = ""
    how: Arrangement = ONE

    @property
    def in_turns(self) -> bool:
        """Whether learning and replay take turns in one process."""
        return self.arrangement != "pipelined"

    @property
    def combined(self) -> str:
        """How its learners combine, in words."""
        how = self.how
        words = [plural(how.learners, "learner"), how.sync, *[f"H = {how.period}"] * (how.sync == "local")]
        return ", ".join([*words, *[plural(how.banks, "bank")] * (how.banks > 1)])

    @property
    def details(self) -> dict[str, Any]:
        """The same by those of ``SEVERAL`` that matter; nothing of one learner."""
        left_out = {"period": self.how.sync != "local", "banks": self.how.banks == 1}
        keys = [key for key in SEVERAL if not left_out.get(key)]
        return {key: getattr(self.how, key) for key in keys if self.how.learners > 1}

    @property
    def processes(self) -> int:
        """The number of processes: learners, unless serial A actors, in ``pipelined`` the keeper of the replay."""
        others = self.actors + (self.arrangement == "pipelined")
        return self.how.learners + (0 if self.arrangement == "serial" else others)

    def cores(self, cores: int) -> int:
        """Cores that a learner may take for threads of its own besides the other processes; 1 of several learners."""
        return max(1, cores - self.processes + 1) if self.how.learners == 1 else 1


def combinations(parts: Times) -> list[Arrangement]:
    """How learners may combine, as far as the constraints allow: one alone, or several apart.

    ProblemError where several are asked for that cannot run.
    """
    asked = {key: parts.constraints[key] for key in SEVERAL if key in parts.constraints}
    cores, own = parts.cores, asked.get("learners", 0)
    arrangement = parts.constraints.get("arrangement", "apart")
    if arrangement != "apart" and asked and own != 1:
        named = ", ".join(f"{key}={value}" for key, value in asked.items())
        raise ProblemError(f"{named}: several learners run apart, not {arrangement}; fix arrangement=apart")
    if own > max(1, cores):
        raise ProblemError(f"learners={own} are more than {plural(cores, 'core')}; fix {max(1, cores)} at most")
    found = [ONE] * (own == 1 or not asked)
    counts = [own] if own else [count for count in (2, 4) if count == 2 <= cores or cores >= ROOMY]
    syncs = [asked["sync"]] if "sync" in asked else ["local"] if "period" in asked else SYNCS
    strategy, fault = {"strategy": BANKED} if asked.get("banks", 1) > 1 else {}, ""
    for count, sync in itertools.product(counts if own != 1 else (), syncs):
        try:
            how = Arrangement(**{"name": "apart", **asked, **strategy, "learners": count, "sync": sync})
            how.check(parts.workload)
            found.append(how)
        except TrainingError as error:
            fault = str(error)
    if not found:
        raise ProblemError(fault or f"several learners need more than {plural(cores, 'core')}")
    return found


def runs_of(parts: Times, arrangement: str) -> Iterator[ExecutionMode]:
    """What is tried of a mode, as far as the constraints allow, where runs of the workload were timed whole, or parts
    of that mode concurrently; else just what is asked for and has more processes than cores. Nothing where the user
    states a time of a part on the processor."""
    table, cores, serial = parts.table, parts.cores, arrangement == "serial"
    if table is None or parts.has_stated_loop:
        return
    timed = [one.actors for one in table.whole if one.arrangement == arrangement]
    timed += [one.actors for one in table.concurrent if one.arrangement == arrangement]
    fits = cores - 1 - (arrangement == "pipelined")
    fixed = int(parts.constraints.get("actors", 0))
    is_asked = not serial and (fixed > fits or (fits < 1 and parts.constraints.get("arrangement") == arrangement))
    if not is_asked and not ((serial or is_here(parts)) and (timed or table.whole)):
        return
    counts = {1, fits, fits + 1, *(1 << power for power in range(max(0, fits).bit_length()) if 1 << power <= fits)}
    # What processes take that share cores is not guessed unasked: runs tell that shared them.
    shares = is_asked or any(crowded(arrangement, actors, cores) for actors in timed)
    most = parts.workload.actors.count if shares else min(fits, parts.workload.actors.count)
    wanted = {fixed} if fixed else {count for count in counts if count <= most}
    tried = [1] if serial else sorted(count for count in wanted if count >= 1)
    pairs = [
        (learner, policy)
        for learner in parts.learners.implementations
        for policy in parts.actors.policies
        if parts.allows("learner_implementation", learner) and parts.allows("policy_implementation", policy)
    ]
    if not {"learner_implementation", "policy_implementation"} & parts.constraints.keys():
        # Two implementations in one run are not guessed where runs were measured whole.
        whole = {(one.learner, one.policy) for one in table.whole} or pairs
        pairs = [pair for pair in pairs if pair in whole or pair[0] == pair[1]]
    for actors in tried:
        yield from (ExecutionMode(arrangement, actors, *pair) for pair in pairs)


def crowding(parts: Times, mode: ExecutionMode) -> float:
    """How many times as long a run takes whose processes share cores: the work of all over that of the longest side."""
    if not mode.actors or mode.processes <= parts.cores:
        return 1.0
    acting, learner = parts.actors.acting(mode.actors, policy=mode.policy).value, one_thread(parts, mode.learner).value
    replay = replay_seconds(reshaped(parts, parts.workload))
    sides = (acting, learner + replay) if mode.arrangement == "apart" else (acting, learner, replay)
    return max(1.0, (mode.actors * acting + learner + replay) / parts.cores / max(sides))


def processes_of(parts: Times, arrangement: str, actors: int, learners: int) -> Iterator[Row]:
    """Yield the processes of an arrangement, and their cores, counted from 0, as a run shares them out."""
    from impls.training.parallel.children import share_of_cores  # noqa: PLC0415  # numba

    kinds = ["learner"] * learners + ["actor"] * actors + ["keeper"] * (arrangement == "pipelined")
    for kind, own in zip(kinds, share_of_cores(len(kinds), tuple(range(parts.cores))), strict=True):
        yield Row({"process": kind, "cores": own})


class RunTimes(Protocol):
    """The times of the parts of a run, each by its time alone; times are seconds of a gradient step.

    ``own``: the parts alone. ``ratio``: how many times the sum of its
    parts the whole run takes. ``counts_others``: whether times count what runs concurrently on other cores.
    """

    @property
    def own(self) -> Times: ...

    @property
    def mode(self) -> ExecutionMode: ...

    @property
    def ratio(self) -> float: ...

    @property
    def counts_others(self) -> bool: ...

    def acting(self, alone: Estimate, policy: str) -> Estimate:
        """Seconds that actors take, which act by an implementation of the policy."""

    def step(self, alone: Estimate, learner: str) -> Estimate:
        """Seconds of a gradient step by an implementation of the learner."""

    def replay(self, alone: Estimate) -> Estimate:
        """Seconds of sampling, or of updating, by a tree."""

    def stored(self, alone: Estimate) -> Estimate:
        """Seconds of moving records."""


@dataclass
class ConcurrentRunTimes:
    """The times of the parts of a run, concurrently; ``parts``: those of each alone."""

    parts: Times
    mode: ExecutionMode

    @functools.cached_property
    def own(self) -> Times:
        """The parts at u = 1: what a replay takes where actors insert themselves."""
        return reshaped(self.parts, self.parts.workload, update_interval=1)

    @functools.cached_property
    def _nearest(self) -> tuple[TimedRun, float]:
        table, run = self.parts.table, self.mode
        environments = self.parts.environments
        shape = run.arrangement, run.learner, run.policy, run.actors, environments, self.parts.cores
        known = nearest(table.concurrent, *shape) if table else None
        assert known  # of this mode some run was timed
        return known

    @functools.cached_property
    def _base(self) -> Times:
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
        timed, run, parts = self._nearest[0], self.mode, self.parts
        alone, base = (
            _side(self.own, run.arrangement, run.learner),
            _side(self._base, run.arrangement, timed.implementation),
        )
        learner = timed.learner * alone / base
        keeper = timed.keeper * self._replay_alone / replay_seconds(self._base)
        each = timed.turn / timed.environments
        each *= parts.actors.step(1, run.policy).value / self._base.actors.step(1, timed.policy).value
        if run.actors > 1 and timed.actors == 1:
            some = min(run.actors, parts.cores)
            each *= max(1.0, some * parts.actors.step(some, run.policy).value / parts.actors.step(1, run.policy).value)
        return learner, each * parts.workload.learner.update_interval / run.actors, keeper

    @functools.cached_property
    def _sides(self) -> tuple[float, float, float]:
        timed, is_crowded = self._nearest[0], self.mode.processes > self.parts.cores
        learner, actor, keeper = timed.sides(*self.alone, self.mode.actors * is_crowded)
        more = timed.handoff_seconds(timed.actors * is_crowded)
        return learner + more, actor + more, keeper

    ratio, counts_others = 1.0, True

    def acting(self, alone: Estimate, policy: str) -> Estimate:
        """Seconds of a gradient step that an actor takes."""
        return self._told(alone, self._sides[1])

    def step(self, alone: Estimate, learner: str) -> Estimate:
        """The learner's time of a gradient step by its time alone."""
        seconds = self._sides[0]
        if self.mode.arrangement == "apart":
            seconds = max(LEAST * seconds, seconds - self._replay_alone)
        return self._told(alone, seconds * alone.value / one_thread(self.parts, learner).value)

    def replay(self, alone: Estimate) -> Estimate:
        """The time of a part of the replay, or of moving records, by its time alone."""
        if self.mode.arrangement == "apart":
            return alone
        return self._told(alone, alone.value * self._sides[2] / self._replay_alone)

    stored = replay

    def _told(self, alone: Estimate, seconds: float) -> Estimate:
        timed, factor = self._nearest
        told = f"{alone.rests_on.description}; in {self.mode.arrangement} concurrently with the others: {timed.told}"
        command = benchmark(f"profile --arrangements --workload {self.parts.workload_word}")
        evidence = dataclasses.replace(alone.rests_on, description=told, command=command, topic="arrangements")
        return Estimate.within(seconds, together(alone.factor, factor), evidence)


def reshaped(
    parts: Times, workload: Workload, batch: int = 0, update_interval: int = 1, environments: int = 0, fanout: int = 0
) -> Times:
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


def replay_times(parts: Times) -> list[Estimate]:
    """The times of a batch that the fastest tree, and the records, take alone."""
    known = [(tree.draw, tree.update) for tree in trees(parts, parts.cpu) if can_run(tree)]
    tree = min(known, key=lambda pair: pair[0].value + pair[1].value, default=())
    return [*tree, parts.rows_moved(parts.cpu)]


def replay_seconds(parts: Times) -> float:
    """Seconds of a batch that the fastest tree, and the records, take alone."""
    return sum(time.value for time in replay_times(parts))


def _side(parts: Times, arrangement: str, implementation: str) -> float:
    """Seconds of a gradient step that a learner's process takes alone, by the times of its parts."""
    step = one_thread(parts, implementation)
    return step.value + (replay_seconds(parts) if arrangement == "apart" else 0.0)


def one_thread(parts: Times, implementation: str, device: Device | None = None) -> Estimate:
    """A gradient step by an implementation on one device, alone, by one thread of a processor."""
    known = parts.learners.list(device or parts.cpu)
    for one in known:
        by, threads = one.details.get("implementation", REFERENCE), one.details.get("threads", 1)
        if (by, threads, one.devices) == (implementation, 1, 1):
            return one.step
    return known[0].step


@dataclass
class WholeRunTimes:
    """What the parts of a run take, by ``whole``, the nearest run of the workload that was timed whole."""

    parts: Times
    mode: ExecutionMode
    whole: Whole

    @functools.cached_property
    def own(self) -> Times:
        """The parts alone; where actors are apart they insert, so the replay counts none of it."""
        return self.parts if self.mode.arrangement == "serial" else reshaped(self.parts, self.parts.workload)

    @property
    def counts_others(self) -> bool:
        """Whether the times count what runs concurrently on other cores."""
        return self.whole.arrangement != "serial"

    @property
    def _timed(self) -> ExecutionMode:
        return ExecutionMode(self.whole.arrangement, self.whole.actors, self.whole.learner, self.whole.policy)

    @functools.cached_property
    def ratio(self) -> float:
        """How many times the sum of its parts the whole run took; more where processes share cores that it did not."""
        whole, workload, serial = self.whole, self.parts.workload, self.whole.arrangement == "serial"
        there = reshaped(self.parts, workload, whole.batch, whole.interval, whole.environments, workload.replay.fanout)
        acting = there.actors.acting(whole.actors, serial, whole.policy).value
        learner = one_thread(there, whole.learner).value
        replay = replay_seconds(there if serial else reshaped(there, there.workload))
        sides = {"serial": (acting + learner + replay,), "apart": (acting, learner + replay)}
        more = crowding(self.parts, self.mode) / crowding(there, self._timed)
        return more * whole.time.value / max(sides.get(whole.arrangement, (acting, learner, replay)))

    @functools.cached_property
    def _is_its_own(self) -> bool:
        """Whether the run in question is the one that was timed, at its batch and update interval."""
        learner = self.parts.workload.learner
        shape = learner.batch, learner.update_interval
        return not self._unlike and shape == (self.whole.batch, self.whole.interval)

    @functools.cached_property
    def _unlike(self) -> int:
        """In how many ways the run is another one than was timed."""
        cores, environments = self.parts.cores, (self.parts.environments, self.whole.environments)
        sides = (
            (one.arrangement, one.learner, one.policy, one.actors, one.processes > cores)
            for one in (self.mode, self._timed)
        )
        return sum(mine != theirs for mine, theirs in (*zip(*sides, strict=True), environments))

    def acting(self, alone: Estimate, policy: str = "") -> Estimate:
        """Seconds of a gradient step that actors take, or moving records, by the time alone."""
        return self._of_the_whole(alone, self._is_its_own)

    stored = acting

    def step(self, alone: Estimate, learner: str) -> Estimate:
        """The learner's time of a gradient step by its time alone."""
        is_timed = self._is_its_own and alone.value == one_thread(self.parts, learner).value
        return self._of_the_whole(alone, is_timed)

    def replay(self, alone: Estimate) -> Estimate:
        """The time of a part of a tree by its time alone: its error is the tree's own, for trees are compared.

        But of the tree that the whole run had, where only a law tells its part of the run.
        """
        if alone.interval == "factor" and self._is_its_own and alone.value in self._tree_times:
            return self._of_the_whole(alone, True)
        return alone.scaled(self.ratio)

    @functools.cached_property
    def _tree_times(self) -> list[float]:
        """Seconds of sampling and updating by the tree of runs that were timed whole, alone."""
        own = self.own.workload
        there = reshaped(self.own, own, 0, own.learner.update_interval, fanout=own.replay.fanout)
        return [time.value for time in replay_times(there)[:2]]

    def _of_the_whole(self, alone: Estimate, is_timed: bool) -> Estimate:
        """A part's time on the evidence of whole runs: one profile times all, so a slower machine slows all of them.

        An arrangement that was not timed whole rests on evidence of its own.
        """
        known, name = self.whole.time, self.parts.cpu.name
        factor = together(known.factor, *[UNLIKE] * self._unlike, *([] if is_timed else [alone.factor]))
        whole = known.rests_on.description
        told = f"{alone.rests_on.description}; a whole step took {self.ratio:.2f} times its parts: {whole}"
        source = known.source if is_timed else alone.source
        other = f", {self.mode.arrangement}" if self.mode.arrangement != self.whole.arrangement else ""
        share = (alone.source, alone.factor) if alone.interval == "factor" else None
        named: dict[str, Any] = {"id": f"loop({name}){other}", "source": source, "description": told, "alone": share}
        evidence = dataclasses.replace(alone.rests_on, **named)
        return Estimate.within(alone.value * self.ratio, factor, evidence)


OfOneLearner = ConcurrentRunTimes | WholeRunTimes
"""Times of a run of a single learner, by which several are predicted."""


@dataclass
class LoopOverhead:
    """What the parts of a loop take where none of the workload was timed whole: by loops of others, or as alone."""

    own: Times
    mode: ExecutionMode
    counts_others = False

    @functools.cached_property
    def ratio(self) -> float:
        """How many times as long all takes where processes share cores."""
        return crowding(self.own, self.mode)

    def replay(self, alone: Estimate) -> Estimate:
        """The time of a part of the replay: as it is alone."""
        return alone.scaled(self.ratio)

    stored = replay

    def acting(self, alone: Estimate, implementation: str) -> Estimate:
        """Seconds of a gradient step that actors take, or a learner, of an implementation, by the time alone."""
        table = self.own.table
        known = table and (table.beyond.get(implementation) or table.beyond.get(REFERENCE))
        if not known or self.own.has_stated_loop:
            return alone.scaled(self.ratio)
        more = f"times {known.ratio:.2f}, as loops of other workloads take beyond their parts"
        told = f"{alone.rests_on.description}; {more}"
        return Estimate.within(
            self.ratio * alone.value * known.ratio, together(alone.factor, known.factor), alone.rests_on
        ).resting_on(description=told)

    step = acting


def times_of_run(parts: Times, run: ExecutionMode) -> RunTimes:
    """What the parts of a run take in it: by runs of its arrangement with timed parts, by whole runs, or alone."""
    assert parts.table
    if any(one.arrangement == run.arrangement for one in parts.table.concurrent):
        return ConcurrentRunTimes(parts, run)
    if not parts.table.whole:
        return LoopOverhead(parts, run)
    shape = parts.workload.learner

    def unlike(one: Whole) -> tuple[float, ...]:
        sizes = (one.batch, shape.batch), (one.interval, shape.update_interval), (one.actors, run.actors)
        counts = (*sizes, (one.environments, parts.environments))
        is_serial = (one.arrangement == "serial") != (run.arrangement == "serial")  # processes hand over to each other
        other = one.arrangement != run.arrangement, is_serial, one.learner != run.learner, one.policy != run.policy
        return (*other, sum(abs(math.log(mine / theirs)) for mine, theirs in counts))

    return WholeRunTimes(parts, run, min(parts.table.whole, key=unlike))
