"""What each part of a training system takes on each device: stated by the user, measured by records, else modeled.

Letters: B batch, N capacity, K fanout, u environment steps a gradient step, x cores or processes, T threads.
"""

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from impls.levels import level_sizes
from impls.terminal import plural
from impls.training.learners import PREFERRED, default, unsuited
from impls.training.weights import layout_of, networks, split_macs

from ..estimate import SUREST_FIRST, Estimate, Evidence, weakest
from ..fpga import placement
from ..fpga.points import BOUNDED
from ..platforms import Device
from ..solver.problem import Part
from . import analytic
from .analytic import clock_of
from .between import over_count
from .hardware import FLOAT_BYTES
from .lookup import SCALING, Lookup
from .own import counted
from .own_file import Entry
from .whole_runs import REFERENCE, what_of

NOT_RUN = "nothing here has run it"


@dataclass(frozen=True)
class Learner:
    """An option for gradient steps on a device: the time of one, and the host's cores and the budgets it takes.

    ``details``: its threads or pipelines. ``devices``: how many equal ones share a batch, each B / n of it.
    """

    name: str
    step: Estimate
    cores: int
    needs: Mapping[str, float]
    details: Mapping[str, Any]
    devices: int = 1


@dataclass
class LearnerSteps(Lookup):
    """Gradient steps of a workload on the devices of a platform, each with its evidence."""

    _learners: dict[str, list[Learner]] = field(default_factory=dict, init=False)

    def learners(self, device: Device) -> list[Learner]:
        """Every option for gradient steps on a device; none where nothing fits it."""
        if device.name not in self._learners:
            self._learners[device.name] = list(self._steps(device))
        return self._learners[device.name]

    def _steps(self, device: Device) -> Iterator[Learner]:
        own = self.stated("learner", device)
        if any(one.counts.get("devices", 1) == 1 for one in own):
            yield from self._own_learners(device)
        elif device.kind == "fpga":
            yield from self._fpga_learners(device)
        elif device.kind == "gpu":
            step, number = self._by_framework(device, self.batch), self._trains(device)
            is_recorded = step.source != "modeled"
            yield Learner("framework", step if is_recorded else self.modeled(step, number), 1, {}, {})
        else:
            yield from self._cpu_learners(device)
        if device.kind == "gpu" and len(self.alike(device)) > 1:
            yield from self._split(device)
        for count in range(2, len(self.alike(device)) + 1) if device.kind != "cpu" else ():
            yield from self._sharing(device, count)

    def _trains(self, device: Device) -> str:
        """The evidence id of gradient steps on a device."""
        return f"T_train({self.evidence_name(device, 'learner')})"

    def _own_learners(self, device: Device) -> Iterator[Learner]:
        """Gradient steps as the user states them, on a processor by each number of threads."""
        number = self._trains(device)
        for threads in range(1, self.cores_of(device) + 1) if device.kind == "cpu" else (1,):
            name = f"{plural(threads, 'thread')} of torch" if device.kind == "cpu" else "as stated"
            details = {"threads": threads} if device.kind == "cpu" else {}
            step = self._stated("learner", device, threads, f"{number}, {name}" if details else number)
            yield Learner(name, step or self._by_threads(device, threads), threads, {}, details)

    def _cpu_learners(self, device: Device) -> Iterator[Learner]:
        """Every number of threads of torch; other implementations as they were timed, the preferred one in any case."""
        table, cores = self.table_of(device), self.cores_of(device)
        timed = table.implementations("learner step") if table else ()
        for by in dict.fromkeys((REFERENCE, *timed, *[PREFERRED] * self.suits_preferred)):
            counts = table.threads(what_of("learner step", by)) if table else []
            own = [count for count in counts if count <= cores] or [1]
            for threads in range(1, cores + 1) if by == REFERENCE else own:
                count = plural(threads, "thread")
                name = f"{count} of torch" if by == REFERENCE else f"{by}, {count}"
                details = {"threads": threads} | ({} if by == REFERENCE else {"implementation": by})
                step = self._timed_step(device, by, threads, name) or self._by_threads(device, threads, by)
                yield Learner(name, step, threads, {}, details)

    def _timed_step(self, device: Device, implementation: str, threads: int, name: str) -> Estimate | None:
        """A gradient step as this machine's records have it; timed at one B alone, a law carries it to others."""
        if self.table_of(device) is None:
            return None
        what, number = what_of("learner step", implementation), f"{self._trains(device)}, {name}"
        return self._recorded(
            what, self.batch, threads, number, lambda batch: self._law(device, implementation, batch).value
        )

    def _law(self, device: Device, implementation: str, batch: int, threads: int = 1) -> Estimate:
        """A gradient step of an implementation on a processor or a GPU by its law alone."""
        if implementation == REFERENCE:
            return analytic.learner(self.cpu, device, self.workload, batch, threads)
        return analytic.compiled(device, self.workload, batch)

    def _by_pace(self, device: Device, law: Estimate, other: str) -> Estimate:
        """A law as many times slower as another implementation, where that was timed, took here than by its own law."""
        known = self._timed_step(device, other, 1, other) if device.kind == "cpu" else None
        if known is None:
            return law
        pace = known.value / self._law(device, other, self.batch).value
        told = f"{law.rests_on.told}; times {pace:.2g}, as {other} took here: {known.rests_on.told}"
        return analytic.law(law.value * pace, analytic.together(law.factor, known.factor), told)

    @property
    def implementation(self) -> str:
        """The implementation of the processor's learner where a question is about one alone: that which is fixed.

        Else the one that would run; the reference where the user states the learner's times.
        """
        usual = default(self.workload)
        usual = usual if usual in self.implementations else REFERENCE
        return str(self.constraints.get("learner_implementation", usual))

    @property
    def implementations(self) -> tuple[str, ...]:
        """The implementations that the processor's learner may have, the reference first."""
        return tuple(dict.fromkeys(one.details.get("implementation", REFERENCE) for one in self.learners(self.cpu)))

    @property
    def suits_preferred(self) -> bool:
        """Whether the preferred learner and policy can run the workload."""
        return not unsuited(PREFERRED, self.workload)

    def _by_threads(self, device: Device, threads: int, by: str = REFERENCE) -> Estimate:
        """A gradient step that nobody timed: by a law alone, or from the most threads of torch that were timed."""
        number, law = self._trains(device), self._law(device, by, self.batch, threads)
        if by != REFERENCE:
            return self.modeled(self._by_pace(device, law, REFERENCE), f"{number}, {by}")
        known, before = self._most_stated("learner", device, threads)
        if known is None and self.table_of(device):
            before = max(self.table.threads("learner step") if self.table else (), default=0)
            known = self._timed_step(device, REFERENCE, before, number) if before else None
        if known is None or not before:
            return self.modeled(self._by_pace(device, law, PREFERRED), number)
        base = analytic.learner(self.cpu, device, self.workload, self.batch, before)
        factor = analytic.together(known.factor, analytic.THREADS_FACTOR, law.factor / base.factor)
        description = f"{threads} threads by {SCALING}, from {before} as {known.source}: {known.rests_on.told}"
        return self.modeled(analytic.law(known.value * law.value / base.value, factor, description), number)

    def _sharing(self, device: Device, count: int) -> Iterator[Learner]:
        """Gradient steps that n equal devices share, each B / n of the batch; none where no link joins them."""
        number, details = self._trains(device), {"devices": count}
        entries = [one for one in self.stated("learner", device) if one.counts.get("devices", 1) == count]
        own = self.own and self.own.time(entries, f"{number}, {count} devices", self.batch)
        if own:
            yield Learner(f"{count} devices, as stated", own, count, {}, details, count)
            return
        share = math.ceil(self.batch / count)
        exchange = self._exchange_seconds(device, count)
        if math.isinf(exchange) or count > self.batch:
            return
        step = self._by_one(device, number, share)
        if step is None:
            return
        factor = max(step.factor, analytic.GPU_FACTOR)
        description = (
            f"{count} equal devices, each a batch of {share:,} ({step.rests_on.told}), and gradients exchanged in "
            f"{exchange * 1e6:.3g} us; {NOT_RUN}"
        )
        law = analytic.law(step.value + exchange, factor, description, step.rests_on.assumed)
        yield Learner(f"{count} devices", self.modeled(law, number), count, {}, details, count)

    def _by_one(self, device: Device, number: str, batch: int) -> Estimate | None:
        """A gradient step on a batch by one device, as stated or of a framework on a GPU."""
        if any(one.counts.get("devices", 1) == 1 for one in self.stated("learner", device)):
            return self._stated("learner", device, 1, number, batch) or next(iter(self._own_learners(device))).step
        return self._by_framework(device, batch) if device.kind == "gpu" else None

    def _by_framework(self, device: Device, batch: int) -> Estimate:
        """A gradient step of a framework on a GPU, as this machine's records have it, else by its model."""
        known = self.table_of(device) and self._recorded("cuda step", batch, 1, self._trains(device))
        return known or analytic.learner(self.cpu, device, self.workload, batch)

    def _split(self, device: Device) -> Iterator[Learner]:
        """Gradient steps of which a device has the critics, another like it the policy [Hou2023, Fig. 3].

        Each takes the share of the step that it has of the multiply-adds, both at the same time. States are sent to the
        policy's device, actions of both states to the critics', and dQ/dActions back.
        """
        number, workload = self._trains(device), self.workload
        alone = self._by_one(device, number, self.batch)
        if alone is None or workload.has_choices or workload.network.kind == "convolution":
            return
        first, second = self.alike(device)[:2]
        states = 2 * FLOAT_BYTES * self.batch * math.prod(workload.observation.stacked)
        actions = FLOAT_BYTES * self.batch * workload.action_size
        traffic = self.transfer_seconds(first, second, states) + self.transfer_seconds(first, second, actions)
        traffic += 2 * self.transfer_seconds(second, first, actions)
        if math.isinf(traffic):
            return
        share = max(split_macs(workload)) / sum(split_macs(workload))
        description = (
            f"critics and policy on a device each, {share:.0%} of a step by multiply-adds ({alone.rests_on.told}), and "
            f"states, actions and their gradients sent in {traffic * 1e6:.3g} us; {NOT_RUN}"
        )
        factor = max(alone.factor, analytic.GPU_FACTOR)
        law = analytic.law(share * alone.value + traffic, factor, description, alone.rests_on.assumed)
        details = {"devices": 2, "split": True}
        yield Learner("2 devices, actor and critic", self.modeled(law, number), 2, {}, details, 2)

    def _exchange_seconds(self, device: Device, count: int) -> float:
        """Seconds in which n equal devices add up their gradients: around a ring of links, or through the host.

        2 (n - 1) pieces of 1 / n pass each link of the ring [Patarasuk2009]; through the host all go there and back.
        """
        nbytes = FLOAT_BYTES * sum(size.parameters for size in networks(self.workload).values())
        first, *others = self.alike(device)[:count]
        pairs = list(zip((first, *others), (*others, first), strict=True))
        if all(self._are_joined(*pair) for pair in pairs):
            return 2 * (count - 1) * max(self.transfer_seconds(*pair, nbytes / count) for pair in pairs)
        host = self.cpu.name
        there = max(self.transfer_seconds(name, host, nbytes) for name in (first, *others))
        return there + max(self.transfer_seconds(host, name, nbytes) for name in (first, *others))

    def _are_joined(self, one: str, other: str) -> bool:
        """Whether a link leads from a device to another without a device between."""
        stated = self.own and self.own.hop(one, other, self.batch_bytes, "")
        return bool(stated) or any({link.source, link.target} == {one, other} for link in self.platform.links)

    def rmms(self, device: Device) -> tuple[placement.Rmm, ...]:
        """Sum trees that a slice of an FPGA could hold, of the K that the constraints allow."""
        replay, fanout = self.workload.replay, self.constraints.get("fanout")
        return placement.rmms(placement.slices_of(device), replay.capacity, self.batch, clock_of(device), fanout)

    def _fpga_learners(self, device: Device) -> Iterator[Learner]:
        slices, names = placement.slices_of(device), set[str]()
        network, factor = analytic.network_of(self.workload)
        try:
            designs = placement.learners(slices, network, self.batch, clock_of(device), self.rmms(device))
        except ValueError:
            return
        for placed in designs:
            design, step = placed.point.design, analytic.fpga_learner(device, placed, factor, self.workload)
            name = f"DP={design.pipelines}, {sum(design.units)} MAC units"
            name += f", placement {len(names)}" if name in names else ""
            names.add(name)
            needs = {
                f"{device.name}.{part.name}.{kind}": amount
                for part, taken in zip(slices, placed.taken, strict=True)
                for kind, amount in zip(BOUNDED, taken, strict=True)
            }
            details = {"pipelines": design.pipelines, "units": list(design.units)}
            yield Learner(name, self.modeled(step, self._trains(device), is_measurable=False), 1, needs, details)

    def learner_bytes(self, device: Device, depth: int) -> dict[str, float]:
        """What a learner takes of memory, by budget: D + 1 batches, and what a gradient step keeps there.

        A device without a memory of its own has them in the processor's.
        """
        home = device if device.memory else self.cpu
        kept = analytic.training_bytes(device, self.workload, self.batch)
        return {f"{home.name}.memory_bytes": (depth + 1) * self.batch * self.transition_bytes + kept}


__all__ = ("Learner", "Parts")


@dataclass
class Parts(LearnerSteps):
    """Times of a workload's parts on a platform, each with its evidence; fields as in ``Lookup``."""

    # Actors

    @property
    def policies(self) -> tuple[str, ...]:
        """The implementations of the policy that actors may act by: the reference, and all that was timed or suits."""
        if self.stated("actors", self.cpu):
            return (REFERENCE,)
        timed = self.table.implementations("actor step") if self.table else ()
        return tuple(dict.fromkeys((REFERENCE, *timed, *[PREFERRED] * self.suits_preferred)))

    def actor_step(self, processes: int, policy: str = REFERENCE) -> Estimate:
        """Seconds from one environment step to the next, of x processes together; of E at once, a turn's by E."""
        evidence_id = f"f_a({self.cpu.name}{f', {policy}' if policy != REFERENCE else ''})"
        number = f"{evidence_id} x={processes}"
        if known := self._stated("actors", self.cpu, processes, number) or self._turn(processes, policy, number):
            return known
        for base, count in (self._most_stated("actors", self.cpu, processes), self._nearest_turn(policy)):
            if base and count:
                return self.modeled(self._by_processes(base, count, processes), evidence_id, "extrapolated")
        timed = (name for name in self.policies if name != policy and self._timed_environments(name))
        if other := next(timed, ""):
            return self._by_policy(self.actor_step(processes, other), policy, other)
        shared = f"f_a({self.cpu.name})"  # another machine, or a law, is wrong for all implementations together
        alone = self.reference.time(what_of("actor step", policy), 1, 1) if self.reference else None
        if alone and self.reference:
            slower, needed = analytic.pace(self.cpu), analytic.unstated(self.cpu, self.cpu)
            description = (
                f"machine {self.reference.machine_key}, by clocks; its factor covers what three machines differ by"
            )
            there = Evidence(shared, "extrapolated", description, assumed=needed)
            here = Estimate.within(alone.value * slower, alone.factor * analytic.ELSEWHERE_FACTOR, there)
            here = self._each(here, 1)
            return self.modeled(self._by_processes(here, 1, processes), shared, "extrapolated")
        if policy != REFERENCE:
            return self._by_policy(self.actor_step(processes), policy, REFERENCE)
        law = self._each(analytic.actor(self.cpu, processes), 1)
        told = f"no profile of {self.workload.name} tells: {law.rests_on.told}"
        return self.modeled(law.resting_on(told=told), shared)

    def _by_policy(self, known: Estimate, policy: str, other: str) -> Estimate:
        """An actor's step by an implementation of the policy from that by another one, whose error it shares."""
        ratio = analytic.COMPILED_ACTING ** ((policy != REFERENCE) - (other != REFERENCE))
        told = f"{known.rests_on.told}; times {ratio:.2g}, as {policy} acts beside {other}"
        factor = analytic.together(known.factor, analytic.COMPILED_ACTING_FACTOR)
        law = analytic.law(known.value * ratio, factor, told, known.rests_on.assumed)
        return self.modeled(law, known.rests_on.number)

    def fastest_actor_step(self, processes: int) -> Estimate:
        """``actor_step`` by the implementation of the policy that takes least."""
        return min((self.actor_step(processes, policy) for policy in self._allowed), key=lambda step: step.value)

    @property
    def _allowed(self) -> list[str]:
        """The implementations of the policy that the constraints allow, all where they allow none."""
        return [one for one in self.policies if self.allows("policy_implementation", one)] or list(self.policies)

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
        return min((self.acting(processes, policy=policy) for policy in self._allowed), key=lambda time: time.value)

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
        return self.modeled(law, evidence_id, is_measurable=device.kind != "fpga")

    @property
    def storage_bytes(self) -> float:
        """Bytes of N records."""
        return float(self.workload.replay.capacity * layout_of(self.workload).record_bytes)

    @property
    def height(self) -> int:
        """Levels above the leaves, for the workload's own K."""
        return len(level_sizes(self.workload.replay.capacity, self.workload.replay.fanout)) - 1

    # Concurrently

    def slowdowns(self) -> dict[tuple[Part, Part, str], float]:
        """The slowdown of a part concurrent with another, by (part, other, device): as stated, or recorded."""
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
        """The time of a part stated with another, when nothing else runs; None for a tree not stated alone."""
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
