"""The one door to the times of a training system's parts: stated by the user, measured by records, else modeled.

``Times`` is what is asked about, with a small class for the times of each part; trees are listed by ``trees.trees``.

Letters: B batch, u environment steps a gradient step, x processes, E environments an actor steps at once.
"""

import functools
import math
from dataclasses import dataclass

from impls.terminal import plural
from impls.training.learners import PREFERRED

from ..estimate import SUREST_FIRST, Estimate, Evidence, weakest
from ..platforms import Device
from ..solver.problem import TREE, Part
from . import laws
from .curves import over_count
from .learners import LearnerTimes
from .lookup import Lookup
from .stated import Entry, counted
from .whole import REFERENCE, what_of


@dataclass(eq=False)
class ActorTimes:
    """Environment steps of what is asked about, by each implementation of the policy, each with its evidence."""

    asked: Lookup

    @property
    def policies(self) -> tuple[str, ...]:
        """The implementations of the policy that actors may act by: the reference, and all that was timed or suits."""
        if self.asked.stated("actors", self.asked.cpu):
            return (REFERENCE,)
        timed = self.asked.table.implementations("actor step") if self.asked.table else ()
        return tuple(dict.fromkeys((REFERENCE, *timed, *[PREFERRED] * self.asked.suits_preferred)))

    def step(self, processes: int, policy: str = REFERENCE) -> Estimate:
        """Seconds from one environment step to the next, of x processes together; of E at once, a turn's by E."""
        asked, cpu = self.asked, self.asked.cpu
        evidence_id = f"f_a({cpu.name}{f', {policy}' if policy != REFERENCE else ''})"
        own_id = f"{evidence_id} x={processes}"
        if known := asked.time_stated("actors", cpu, processes, own_id) or self._turn(processes, policy, own_id):
            return known
        for base, count in (asked.nearest_stated("actors", cpu, processes), self._nearest_turn(policy)):
            if base and count:
                return asked.modeled(self._by_processes(base, count, processes), evidence_id, "extrapolated")
        timed = (name for name in self.policies if name != policy and self._timed_environments(name))
        if other := next(timed, ""):
            return self._by_policy(self.step(processes, other), policy, other)
        shared, there = f"f_a({cpu.name})", asked.reference  # whose error all implementations have together
        alone = there.time(what_of("actor step", policy), 1, 1) if there else None
        if alone and there:
            description = f"machine {there.machine_key}, by clocks; its factor covers what three machines differ by"
            evidence = Evidence(shared, "extrapolated", description, assumed=laws.assumed_of(cpu, cpu))
            factor = alone.factor * laws.ELSEWHERE_FACTOR
            here = self._each(Estimate.within(alone.value * laws.pace(cpu), factor, evidence), 1)
            return asked.modeled(self._by_processes(here, 1, processes), shared, "extrapolated")
        if policy != REFERENCE:
            return self._by_policy(self.step(processes), policy, REFERENCE)
        law = self._each(laws.actor(cpu, processes), 1)
        told = f"no profile of {asked.workload.name} tells: {law.rests_on.description}"
        return asked.modeled(law.resting_on(description=told), shared)

    def _by_policy(self, known: Estimate, policy: str, other: str) -> Estimate:
        """An actor's step by an implementation of the policy from that by another one, whose error it shares."""
        ratio = laws.COMPILED_ACTING ** ((policy != REFERENCE) - (other != REFERENCE))
        told = f"{known.rests_on.description}; times {ratio:.2g}, as {policy} acts beside {other}"
        factor = laws.together(known.factor, laws.COMPILED_ACTING_FACTOR)
        law = laws.law(known.value * ratio, factor, told, known.rests_on.assumed)
        return self.asked.modeled(law, known.rests_on.id)

    def fastest_step(self, processes: int) -> Estimate:
        """``step`` by the implementation of the policy that takes least."""
        return min((self.step(processes, policy) for policy in self._allowed), key=lambda step: step.value)

    @property
    def _allowed(self) -> list[str]:
        """The implementations of the policy that the constraints allow, all where they allow none."""
        return [policy for policy in self.policies if self.asked.allows("policy_implementation", policy)] or list(
            self.policies
        )

    def _turn(self, processes: int, policy: str, evidence_id: str) -> Estimate | None:
        """Seconds of an environment step as recorded for x processes and E, or between what was recorded."""
        counts = self._timed_environments(policy)
        by_count = {
            count: known
            for count in ((self.asked.environments,) if self.asked.environments in counts else counts)
            if (known := self.asked.time_recorded(what_of("actor step", policy, count), 1, processes, evidence_id))
        }
        known = over_count(by_count, self.asked.environments, evidence_id)
        return known and known.scaled(1 / self.asked.environments)

    def _nearest_turn(self, policy: str) -> tuple[Estimate | None, int]:
        """(seconds of an environment step from the nearest E and most processes recorded, how many those are)."""
        counts = self._timed_environments(policy)
        near = min(counts, key=lambda count: abs(math.log(count / self.asked.environments)), default=0)
        table, what = self.asked.table, what_of("actor step", policy, near)
        most = max(table.threads(what), default=0) if table and near else 0
        known = table.time(what, 1, most) if table and most else None
        return known and self._each(known, near), most

    def _each(self, turn: Estimate, before: int) -> Estimate:
        """Seconds of an environment step from a turn of another E, between as long a turn and steps as long."""
        count = self.asked.environments
        if before == count:
            return turn.scaled(1 / before)
        ratio = math.sqrt(count / before)
        told = (
            f"{turn.rests_on.description}; {count} environments at once, taken between a turn as long as that of "
            f"{before} and steps as long"
        )
        each = Estimate.within(turn.value * ratio / count, turn.factor * max(ratio, 1 / ratio), turn.rests_on)
        return each.resting_on(description=told)

    def _timed_environments(self, policy: str) -> tuple[int, ...]:
        return self.asked.table.environments("actor step", policy) if self.asked.table else ()

    def _by_processes(self, known: Estimate, before: int, processes: int) -> Estimate:
        """The time with x processes from that with another number of them, by the law of scaling."""
        (slow, sure), (fast, less_sure) = (
            laws.speed_up(count, laws.AS_FITTED.actor_contention) for count in (before, processes)
        )
        if before == processes:
            return known
        factor = laws.together(known.factor, laws.PROCESSES_FACTOR, less_sure / sure)
        description = f"{plural(before, 'process')} on {known.rests_on.description}; {processes} by {laws.SCALING}"
        return laws.law(known.value * slow / fast, factor, description, known.rests_on.assumed)

    def acting(self, processes: int, shares_weights: bool = False, policy: str = REFERENCE) -> Estimate:
        """Seconds that each of x processes has for a gradient step: u environment steps, and weights fetched."""
        step = self.step(processes, policy)
        # What is stated counts the fetching of weights in.
        fetched = None if self.asked.stated("actors", self.asked.cpu) else self.fetches(shares_weights)
        if fetched:
            seconds, factor = fetched.value, max(fetched.factor, 2.0)
            source = weakest((step.source, fetched.source))
            if source != step.source:
                told = f"{step.rests_on.description}; fetching weights was not timed: {fetched.rests_on.description}"
                step = step.resting_on(source=source, description=told)
            step = step.plus(seconds, factor)
        return step.scaled(self.asked.workload.learner.update_interval)

    def fastest_acting(self, processes: int) -> Estimate:
        """``acting`` by the implementation of the policy that takes least."""
        return min((self.acting(processes, policy=policy) for policy in self._allowed), key=lambda time: time.value)

    def fetches(self, shares_weights: bool) -> Estimate | None:
        """Seconds of fetching weights, an environment step: each actor does it every sync_interval of its turns.

        As weak as the weaker of publishing and fetching. None where one process acts by the learner's own weights.
        """
        actors = self.asked.workload.actors
        if shares_weights and actors.sync_interval == 1:
            return None
        # Of what was not timed, publishing or fetching, half of what both take.
        law, table = laws.fetch(self.asked.weights_bytes).scaled(1 / 2), self.asked.table
        known = [(table.weights(op) if table else None) or law for op in ("publish", "fetch")]
        weaker = max(known, key=lambda estimate: SUREST_FIRST.index(estimate.source))
        both, often = known[0] + known[1], actors.sync_interval * actors.count * self.asked.environments
        return Estimate(both.value / often, both.low / often, both.high / often, weaker.rests_on)


class Times(Lookup):
    """Times of a workload's parts on a platform, each with its evidence; fields as in ``Lookup``.

    ``learners`` and ``actors``: the times of gradient steps and of environment steps.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.learners, self.actors = LearnerTimes(self), ActorTimes(self)

    def rows_moved(self, device: Device) -> Estimate:
        """Return seconds of a gradient step's storage: B records gathered, u written."""
        evidence_id = f"storage({self.evidence_name(device, 'storage')})"
        if known := self.time_stated("storage", device, 1, evidence_id):
            return known

        def seconds(nbytes: float, count: float) -> float:
            return laws.rows_moved(device, count, count * nbytes).value

        table = self.table_of(device)
        if device.kind == "cpu" and table:
            kinds = (("gather", self.batch, self.transition_bytes), ("write", self.inserted, self.written_bytes))
            gather, write = (
                table.time(f"storage {op}", size, shape=functools.partial(seconds, nbytes))
                for op, size, nbytes in kinds
            )
            if gather and write:
                both = gather.plus(write.value * self.inserts).resting_on(id=evidence_id)
                return self.measured(both, table, "storage gather")
        written = self.inserts * seconds(self.written_bytes, self.inserted)
        law = laws.rows_moved(device, self.batch, self.batch * self.transition_bytes, written)
        return self.modeled(law, evidence_id, is_measurable=device.kind != "fpga")

    def slowdowns(self) -> dict[tuple[Part, Part, str], float]:
        """Return the slowdown of a part concurrent with another, by (part, other, device): as stated, or recorded."""
        pairs: tuple[tuple[Part, Part, str, str], ...] = (
            ("actors", "learner", "actor step", "learner"),
            ("learner", "actors", "learner step", "actor"),
        )
        known = {
            (part, other, self.cpu.name): factor
            for part, other, what, beside in pairs
            if self.table and (factor := self.table.slowdown(what, beside)) is not None
        }
        return {**known, **(self.own.slowdowns(self._alone) if self.own else {})}

    @property
    def quoted_slowdowns(self) -> dict[tuple[Part, Part, str], float]:
        """Return the slowdown of a learner by a tree on its GPU, by (part, other, device), of each GPU.

        Half of ``laws.SHARED`` in logarithms is due to sampling, half to updating: copies of a tree do one of both.
        Where the user states a learner's time concurrently with one of them, that alone counts.
        """
        entries = self.own.entries if self.own else ()
        timed = {entry.device for entry in entries if entry.part == "learner" and entry.beside in TREE}
        gpus = [device.name for device in self.platform.devices if device.kind == "gpu" and device.name not in timed]
        return {("learner", part, gpu): math.sqrt(laws.SHARED) for gpu in gpus for part in TREE}

    def _alone(self, entry: Entry) -> Estimate | None:
        """Return the time of a part stated with another, when nothing else runs; None for a tree not stated alone."""
        device = next((device for device in self.platform.devices if device.name == entry.device), None)
        if device is None:
            return None
        count, batch = counted(entry), entry.counts.get("batch", self.own.batch if self.own else self.batch)
        if known := self.time_stated(entry.part, device, count, entry.part, batch):
            return known
        if entry.part == "actors":
            return self.actors.step(count)
        if entry.part == "storage":
            return self.rows_moved(device)
        if entry.part == "learner":
            steps = (each.step for each in self.learners.list(device) if each.details.get("threads", 1) == count)
            return next(steps, None)
        return None
