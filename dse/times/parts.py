"""What each part of a training system takes on each device: stated by the user, measured by records, else modeled.

Letters: B batch, N capacity, K fanout, u environment steps a gradient step, x cores or processes, T threads.
"""

import functools
import math
from dataclasses import dataclass

from impls.levels import level_sizes
from impls.terminal import plural
from impls.training.learners import PREFERRED
from impls.training.sizes import layout_of

from ..estimate import SUREST_FIRST, Estimate, Evidence, weakest
from ..platforms import Device
from ..solver.problem import Part
from . import analytic
from .between import over_count
from .learner_steps import Learner, LearnerSteps
from .lookup import SCALING
from .own import counted
from .own_file import Entry
from .whole_runs import REFERENCE, what_of

__all__ = ("Learner", "Parts")


@dataclass
class Parts(LearnerSteps):
    """Times of a workload's parts on a platform, each with its evidence; fields as in ``Lookup``."""

    # Actors

    @property
    def policies(self) -> tuple[str, ...]:
        """The implementations of the policy that actors may act by: the reference, and what was timed here."""
        is_recorded = self.table and not self.stated("actors", self.cpu)
        timed = self.table.implementations("actor step") if self.table and is_recorded else ()
        return tuple(dict.fromkeys((REFERENCE, *timed, *[PREFERRED] * bool(is_recorded and self.is_untimed))))

    def actor_step(self, processes: int, policy: str = REFERENCE) -> Estimate:
        """Seconds from one environment step to the next, of x processes together; of E at once, a turn's by E."""
        evidence_id = f"f_a({self.cpu.name}{f', {policy}' if policy != REFERENCE else ''})"
        number = f"{evidence_id} x={processes}"
        if known := self._stated("actors", self.cpu, processes, number) or self._turn(processes, policy, number):
            return known
        for base, count in (self._most_stated("actors", self.cpu, processes), self._nearest_turn(policy)):
            if base and count:
                return self.modeled(self._by_processes(base, count, processes), evidence_id, "extrapolated")
        alone = self.reference.time("actor step", 1, 1) if self.reference else None
        if alone and self.reference:
            slower, needed = analytic.pace(self.cpu), analytic.unstated(self.cpu, self.cpu)
            description = (
                f"machine {self.reference.machine_key}, by clocks; its factor covers what three machines differ by"
            )
            there = Evidence(evidence_id, "extrapolated", description, assumed=needed)
            here = Estimate.within(alone.value * slower, alone.factor * analytic.ELSEWHERE_FACTOR, there)
            here = self._each(here, 1)
            return self.modeled(self._by_processes(here, 1, processes), evidence_id, "extrapolated")
        law = self._each(analytic.actor(self.cpu, processes), 1)
        law = law if policy == REFERENCE else law.scaled(analytic.COMPILED_ACTING)
        told = f"no profile of {self.workload.name} tells: {law.rests_on.told}"
        return self.modeled(law.resting_on(told=told), evidence_id)

    def fastest_actor_step(self, processes: int) -> Estimate:
        """``actor_step`` by the implementation of the policy that takes least."""
        return min((self.actor_step(processes, policy) for policy in self.policies), key=lambda step: step.value)

    def _turn(self, processes: int, policy: str, number: str) -> Estimate | None:
        """Seconds of an environment step as recorded for x processes and E, or between what was recorded."""
        counts = self._timed_environments(policy)
        by_count = {
            count: known
            for count in ((self.environments,) if self.environments in counts else counts)
            if (known := self._recorded(what_of("actor step", policy, count), 1, processes, number))
        }
        known = over_count(by_count, self.environments, number)
        return known and known.scaled(1 / self.environments)

    def _nearest_turn(self, policy: str) -> tuple[Estimate | None, int]:
        """(seconds of an environment step from the nearest E and most processes recorded, how many those are)."""
        counts = self._timed_environments(policy)
        near = min(counts, key=lambda count: abs(math.log(count / self.environments)), default=0)
        known, processes = self._most_recorded(what_of("actor step", policy, near), 1) if near else (None, 0)
        return known and self._each(known, near), processes

    def _each(self, turn: Estimate, before: int) -> Estimate:
        """Seconds of an environment step from a turn of another E, between as long a turn and steps as long."""
        if before == self.environments:
            return turn.scaled(1 / before)
        ratio = math.sqrt(self.environments / before)
        told = (
            f"{turn.rests_on.told}; {self.environments} environments at once, taken between a turn as long as that of "
            f"{before} and steps as long"
        )
        each = Estimate.within(
            turn.value * ratio / self.environments, turn.factor * max(ratio, 1 / ratio), turn.rests_on
        )
        return each.resting_on(told=told)

    def _timed_environments(self, policy: str) -> tuple[int, ...]:
        return self.table.environments("actor step", policy) if self.table else ()

    def _by_processes(self, known: Estimate, before: int, processes: int) -> Estimate:
        """The time with x processes from that with another number of them, by the law of scaling."""
        (slow, sure), (fast, less_sure) = (
            analytic.scaled(1.0, count, analytic.ACTOR_CONTENTION) for count in (before, processes)
        )
        if before == processes:
            return known
        factor = analytic.together(known.factor, analytic.PROCESSES_FACTOR, less_sure / sure)
        description = f"{plural(before, 'process')} on {known.rests_on.told}; {processes} by {SCALING}"
        return analytic.law(known.value * slow / fast, factor, description, known.rests_on.assumed)

    def acting(self, processes: int, shares_weights: bool = False, policy: str = REFERENCE) -> Estimate:
        """Seconds that each of x processes has for a gradient step: u environment steps, and weights fetched."""
        step = self.actor_step(processes, policy)
        fetched = None if self.stated("actors", self.cpu) else self.fetches(shares_weights)  # counted in what is stated
        if fetched:
            seconds, factor = fetched.value, max(fetched.factor, 2.0)
            source = weakest((step.source, fetched.source))
            if source != step.source:
                told = f"{step.rests_on.told}; fetching weights was not timed: {fetched.rests_on.told}"
                step = step.resting_on(source=source, told=told)
            step = step.plus(seconds, factor)
        return step.scaled(self.workload.learner.update_interval)

    def fastest_acting(self, processes: int) -> Estimate:
        """``acting`` by the implementation of the policy that takes least."""
        return min((self.acting(processes, policy=policy) for policy in self.policies), key=lambda time: time.value)

    def fetches(self, shares_weights: bool) -> Estimate | None:
        """Seconds of fetching weights, an environment step: each actor does it every sync_interval of its turns.

        As weak as the weaker of publishing and fetching. None where one process acts by the learner's own weights.
        """
        actors = self.workload.actors
        if shares_weights and actors.sync_interval == 1:
            return None
        law = analytic.fetch(self.weights_bytes).scaled(1 / 2)  # half of what both take, for one that was not timed
        known = [(self.table.weights(op) if self.table else None) or law for op in ("publish", "fetch")]
        weaker = max(known, key=lambda one: SUREST_FIRST.index(one.source))
        both, often = known[0] + known[1], actors.sync_interval * actors.count * self.environments
        return Estimate(both.value / often, both.low / often, both.high / often, weaker.rests_on)

    # Storage

    def rows_moved(self, device: Device) -> Estimate:
        """Seconds of a gradient step: B records gathered, u written."""
        local = self.inserted
        evidence_id = f"storage({self.evidence_name(device, 'storage')})"
        if known := self._stated("storage", device, 1, evidence_id):
            return known
        table = self.table_of(device)
        if device.kind == "cpu" and table:
            kinds = (("gather", self.batch, self.transition_bytes), ("write", local, self.written_bytes))
            gather, write = (
                table.time(f"storage {op}", size, shape=functools.partial(_rows_seconds, device, nbytes))
                for op, size, nbytes in kinds
            )
            if gather and write:
                both = gather.plus(write.value * self.inserts).resting_on(number=evidence_id)
                return self.measured(both, table, "storage gather")
        written = self.inserts * _rows_seconds(device, self.written_bytes, local)
        law = analytic.rows_moved(device, self.batch, self.batch * self.transition_bytes, written)
        return self.modeled(law, evidence_id)

    @property
    def storage_bytes(self) -> float:
        """Bytes of N records."""
        return float(self.workload.replay.capacity * layout_of(self.workload).record_bytes)

    @property
    def height(self) -> int:
        """Levels above the leaves, for the workload's own K."""
        return len(level_sizes(self.workload.replay.capacity, self.workload.replay.fanout)) - 1

    # Beside each other

    def slowdowns(self) -> dict[tuple[Part, Part, str], float]:
        """How many times as long a part takes beside another, by (part, other, device): as stated, or recorded."""
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

    def _alone(self, one: Entry) -> Estimate | None:
        """The time of a part stated beside another, with nothing beside it; None for a tree not stated alone."""
        devices = [device for device in self.platform.devices if device.name == one.device]
        if not devices:
            return None
        device, count = devices[0], counted(one)
        batch = one.counts.get("batch", self.own.batch if self.own else self.batch)
        if known := self._stated(one.part, device, count, one.part, batch):
            return known
        if one.part == "actors":
            return self.actor_step(count)
        if one.part == "storage":
            return self.rows_moved(device)
        if one.part == "learner":
            steps = (each.step for each in self.learners(device) if each.details.get("threads", 1) == count)
            return next(steps, None)
        return None


def _rows_seconds(device: Device, nbytes: float, count: int) -> float:
    return analytic.rows_moved(device, count, count * nbytes).value
