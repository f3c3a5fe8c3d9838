"""Environment steps of actors, as the user states them, as recorded, or else by laws.

Letters: u environment steps a gradient step, x processes, E environments an actor steps at once.
"""

import math

from impls.terminal import plural
from impls.training.learners import PREFERRED

from ..estimate import SUREST_FIRST, Estimate, Evidence, weakest
from . import analytic
from .between import over_count
from .lookup import SCALING, Lookup
from .whole_runs import REFERENCE, what_of


class ActorTimes:
    """Environment steps of what is asked about, by each implementation of the policy, each with its evidence."""

    def __init__(self, asked: Lookup) -> None:
        self.asked = asked

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
            evidence = Evidence(shared, "extrapolated", description, assumed=analytic.unstated(cpu, cpu))
            factor = alone.factor * analytic.ELSEWHERE_FACTOR
            here = self._each(Estimate.within(alone.value * analytic.pace(cpu), factor, evidence), 1)
            return asked.modeled(self._by_processes(here, 1, processes), shared, "extrapolated")
        if policy != REFERENCE:
            return self._by_policy(self.step(processes), policy, REFERENCE)
        law = self._each(analytic.actor(cpu, processes), 1)
        told = f"no profile of {asked.workload.name} tells: {law.rests_on.description}"
        return asked.modeled(law.resting_on(description=told), shared)

    def _by_policy(self, known: Estimate, policy: str, other: str) -> Estimate:
        """An actor's step by an implementation of the policy from that by another one, whose error it shares."""
        ratio = analytic.COMPILED_ACTING ** ((policy != REFERENCE) - (other != REFERENCE))
        told = f"{known.rests_on.description}; times {ratio:.2g}, as {policy} acts beside {other}"
        factor = analytic.together(known.factor, analytic.COMPILED_ACTING_FACTOR)
        law = analytic.law(known.value * ratio, factor, told, known.rests_on.assumed)
        return self.asked.modeled(law, known.rests_on.id)

    def fastest_step(self, processes: int) -> Estimate:
        """``step`` by the implementation of the policy that takes least."""
        return min((self.step(processes, policy) for policy in self._allowed), key=lambda step: step.value)

    @property
    def _allowed(self) -> list[str]:
        """The implementations of the policy that the constraints allow, all where they allow none."""
        return [one for one in self.policies if self.asked.allows("policy_implementation", one)] or list(self.policies)

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
        known, processes = self.asked.most_recorded(what_of("actor step", policy, near), 1) if near else (None, 0)
        return known and self._each(known, near), processes

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
            analytic.scaled(1.0, count, analytic.ACTOR_CONTENTION) for count in (before, processes)
        )
        if before == processes:
            return known
        factor = analytic.together(known.factor, analytic.PROCESSES_FACTOR, less_sure / sure)
        description = f"{plural(before, 'process')} on {known.rests_on.description}; {processes} by {SCALING}"
        return analytic.law(known.value * slow / fast, factor, description, known.rests_on.assumed)

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
        law, table = analytic.fetch(self.asked.weights_bytes).scaled(1 / 2), self.asked.table
        known = [(table.weights(op) if table else None) or law for op in ("publish", "fetch")]
        weaker = max(known, key=lambda one: SUREST_FIRST.index(one.source))
        both, often = known[0] + known[1], actors.sync_interval * actors.count * self.asked.environments
        return Estimate(both.value / often, both.low / often, both.high / often, weaker.rests_on)
