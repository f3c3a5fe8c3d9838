"""Gradient steps of a workload on each device, as the user states them, as recorded, or else by laws.

Letters: B batch, T threads.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from impls.terminal import plural
from impls.training.learners import PREFERRED, default
from impls.training.weights import networks, split_macs

from ..estimate import Estimate
from ..fpga import BOUNDED, placement, pool
from ..fpga.learner_search import Problem
from ..platforms import Device
from . import laws
from .lookup import Lookup
from .whole import REFERENCE, what_of

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


@dataclass(eq=False)
class LearnerTimes:
    """Gradient steps of what is asked about, each option with its evidence."""

    asked: Lookup
    _learners: dict[str, list[Learner]] = field(default_factory=dict, init=False)

    def list(self, device: Device) -> list[Learner]:
        """Every option for gradient steps on a device; none where nothing fits it."""
        if device.name not in self._learners:
            self._learners[device.name] = list(self._steps(device))
        return self._learners[device.name]

    def _steps(self, device: Device) -> Iterator[Learner]:
        if self.asked.stated("learner", device, 1):
            yield from self._own_learners(device)
        elif device.kind == "fpga":
            yield from self._fpga_learners(device)
        elif device.kind == "gpu":
            step, evidence_id = self._by_framework(device, self.asked.batch), self._trains(device)
            is_recorded = step.source != "modeled"
            yield Learner("framework", step if is_recorded else self.asked.modeled(step, evidence_id), 1, {}, {})
        else:
            yield from self._cpu_learners(device)
        if device.kind == "gpu" and len(self.asked.equal_devices[device.name]) > 1:
            yield from self._split(device)
        for count in range(2, len(self.asked.equal_devices[device.name]) + 1) if device.kind != "cpu" else ():
            yield from self._sharing(device, count)

    def _trains(self, device: Device) -> str:
        """The evidence id of gradient steps on a device."""
        return f"T_train({self.asked.evidence_name(device, 'learner')})"

    def _own_learners(self, device: Device) -> Iterator[Learner]:
        """Gradient steps as the user states them, on a processor by each number of threads."""
        evidence_id = self._trains(device)
        for threads in range(1, laws.cores_of(device) + 1) if device.kind == "cpu" else (1,):
            name = f"{plural(threads, 'thread')} of torch" if device.kind == "cpu" else "as stated"
            details = {"threads": threads} if device.kind == "cpu" else {}
            step = self.asked.time_stated(
                "learner", device, threads, f"{evidence_id}, {name}" if details else evidence_id
            )
            yield Learner(name, step or self._by_threads(device, threads), threads, {}, details)

    def _cpu_learners(self, device: Device) -> Iterator[Learner]:
        """Every number of threads of torch; other implementations as they were timed, the preferred one in any case."""
        table, cores = self.asked.table_of(device), laws.cores_of(device)
        timed = table.implementations("learner step") if table else ()
        for by in dict.fromkeys((REFERENCE, *timed, *[PREFERRED] * self.asked.suits_preferred)):
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
        if self.asked.table_of(device) is None:
            return None
        what, evidence_id = what_of("learner step", implementation), f"{self._trains(device)}, {name}"
        return self.asked.time_recorded(
            what, self.asked.batch, threads, evidence_id, lambda batch: self._law(device, implementation, batch).value
        )

    def _law(self, device: Device, implementation: str, batch: int, threads: int = 1) -> Estimate:
        """A gradient step of an implementation on a processor or a GPU by its law alone."""
        if implementation == REFERENCE:
            return laws.learner(self.asked.cpu, device, self.asked.workload, batch, threads)
        return laws.compiled(device, self.asked.workload, batch)

    def _by_pace(self, device: Device, law: Estimate, other: str) -> Estimate:
        """A law as many times slower as another implementation, where that was timed, took here than by its own law."""
        known = self._timed_step(device, other, 1, other) if device.kind == "cpu" else None
        if known is None:
            return law
        pace = known.value / self._law(device, other, self.asked.batch).value
        told = f"{law.rests_on.description}; times {pace:.2g}, as {other} took here: {known.rests_on.description}"
        return laws.law(law.value * pace, laws.together(law.factor, known.factor), told)

    @property
    def implementation(self) -> str:
        """The implementation of the processor's learner where a question is about one alone: that which is fixed.

        Else the one that would run; the reference where the user states the learner's times.
        """
        usual = default(self.asked.workload)
        usual = usual if usual in self.implementations else REFERENCE
        return str(self.asked.constraints.get("learner_implementation", usual))

    @property
    def implementations(self) -> tuple[str, ...]:
        """The implementations that the processor's learner may have, the reference first."""
        return tuple(
            dict.fromkeys(learner.details.get("implementation", REFERENCE) for learner in self.list(self.asked.cpu))
        )

    def _by_threads(self, device: Device, threads: int, by: str = REFERENCE) -> Estimate:
        """A gradient step that nobody timed: by a law alone, or from the most threads of torch that were timed."""
        evidence_id, law = self._trains(device), self._law(device, by, self.asked.batch, threads)
        if by != REFERENCE:
            return self.asked.modeled(self._by_pace(device, law, REFERENCE), f"{evidence_id}, {by}")
        known, before = self.asked.nearest_stated("learner", device, threads)
        if known is None and self.asked.table_of(device):
            before = max(self.asked.table.threads("learner step") if self.asked.table else (), default=0)
            known = self._timed_step(device, REFERENCE, before, evidence_id) if before else None
        if known is None or not before:
            return self.asked.modeled(self._by_pace(device, law, PREFERRED), evidence_id)
        base = laws.learner(self.asked.cpu, device, self.asked.workload, self.asked.batch, before)
        factor = laws.together(known.factor, laws.THREADS_FACTOR, law.factor / base.factor)
        description = (
            f"{threads} threads by {laws.SCALING}, from {before} as {known.source}: {known.rests_on.description}"
        )
        return self.asked.modeled(laws.law(known.value * law.value / base.value, factor, description), evidence_id)

    def _sharing(self, device: Device, count: int) -> Iterator[Learner]:
        """Gradient steps that n equal devices share, each B / n of the batch; none where no link joins them."""
        evidence_id, details = self._trains(device), {"devices": count}
        entries = self.asked.stated("learner", device, count)
        own = self.asked.own and self.asked.own.time(entries, f"{evidence_id}, {count} devices", self.asked.batch)
        if own:
            yield Learner(f"{count} devices, as stated", own, count, {}, details, count)
            return
        share = math.ceil(self.asked.batch / count)
        exchange = self.exchange_seconds(device, count)
        if math.isinf(exchange) or count > self.asked.batch:
            return
        step = self._by_one(device, evidence_id, share)
        if step is None:
            return
        factor = max(step.factor, laws.GPU_FACTOR)
        description = (
            f"{count} equal devices, each a batch of {share:,} ({step.rests_on.description}), and gradients "
            f"exchanged in {exchange * 1e6:.3g} us; {NOT_RUN}"
        )
        law = laws.law(step.value + exchange, factor, description, step.rests_on.assumed)
        yield Learner(f"{count} devices", self.asked.modeled(law, evidence_id), count, {}, details, count)

    def _by_one(self, device: Device, evidence_id: str, batch: int) -> Estimate | None:
        """A gradient step on a batch by one device, as stated or of a framework on a GPU."""
        if self.asked.stated("learner", device, 1):
            return (
                self.asked.time_stated("learner", device, 1, evidence_id, batch)
                or next(iter(self._own_learners(device))).step
            )
        return self._by_framework(device, batch) if device.kind == "gpu" else None

    def _by_framework(self, device: Device, batch: int) -> Estimate:
        """A gradient step of a framework on a GPU, as this machine's records have it, else by its model."""
        known = self.asked.table_of(device) and self.asked.time_recorded("cuda step", batch, 1, self._trains(device))
        return known or laws.learner(self.asked.cpu, device, self.asked.workload, batch)

    def _split(self, device: Device) -> Iterator[Learner]:
        """Gradient steps of which a device has the critics, another like it the policy [Hou2023, Fig. 3].

        Each takes the share of the step that it has of the multiply-adds, both at the same time. States are sent to the
        policy's device, actions of both states to the critics', and dQ/dActions back.
        """
        evidence_id, workload = self._trains(device), self.asked.workload
        alone = self._by_one(device, evidence_id, self.asked.batch)
        if alone is None or workload.has_choices or workload.network.kind == "convolution":
            return
        first, second = self.asked.equal_devices[device.name][:2]
        states = 2 * laws.FLOAT_BYTES * self.asked.batch * math.prod(workload.observation.stacked)
        actions = laws.FLOAT_BYTES * self.asked.batch * workload.action_size
        traffic = self.asked.transfer_seconds(first, second, states) + self.asked.transfer_seconds(
            first, second, actions
        )
        traffic += 2 * self.asked.transfer_seconds(second, first, actions)
        if math.isinf(traffic):
            return
        share = max(split_macs(workload)) / sum(split_macs(workload))
        description = (
            f"critics and policy on a device each, {share:.0%} of a step by multiply-adds "
            f"({alone.rests_on.description}), and states, actions and their gradients sent in {traffic * 1e6:.3g} us; "
            f"{NOT_RUN}"
        )
        factor = max(alone.factor, laws.GPU_FACTOR)
        law = laws.law(share * alone.value + traffic, factor, description, alone.rests_on.assumed)
        details = {"devices": 2, "split": True}
        yield Learner("2 devices, actor and critic", self.asked.modeled(law, evidence_id), 2, {}, details, 2)

    def exchange_seconds(self, device: Device, count: int) -> float:
        """Seconds in which n equal devices add up their gradients: around a ring of links, or through the host.

        2 (n - 1) pieces of 1 / n pass each link of the ring [Patarasuk2009]; through the host all go there and back.
        """
        nbytes = laws.FLOAT_BYTES * sum(size.parameters for size in networks(self.asked.workload).values())
        first, *others = self.asked.equal_devices[device.name][:count]
        pairs = list(zip((first, *others), (*others, first), strict=True))
        if all(self._are_joined(*pair) for pair in pairs):
            return 2 * (count - 1) * max(self.asked.transfer_seconds(*pair, nbytes / count) for pair in pairs)
        host = self.asked.cpu.name
        there = max(self.asked.transfer_seconds(name, host, nbytes) for name in (first, *others))
        return there + max(self.asked.transfer_seconds(host, name, nbytes) for name in (first, *others))

    def _are_joined(self, name: str, other: str) -> bool:
        """Whether a link leads from a device to another without a device between."""
        stated = self.asked.own and self.asked.own.hop(name, other, self.asked.batch_bytes, "")
        return bool(stated) or any({link.source, link.target} == {name, other} for link in self.asked.platform.links)

    def _fpga_learners(self, device: Device) -> Iterator[Learner]:
        slices, names = placement.slices_of(device), set[str]()
        posed = Problem(laws.step_of(self.asked.workload), self.asked.batch, pool(slices),
                        clock_hz=laws.clock_of(device), bytes_per_s=placement.bytes_per_s(device))  # fmt: skip
        try:
            designs = placement.learners(slices, posed, self.asked.rmms(device))
        except ValueError:
            return
        for placed in designs:
            design, step = placed.point.design, laws.fpga_learner(device, placed, self.asked.workload)
            name = f"DP={design.pipelines}, {sum(design.units)} MAC units"
            name += f", placement {len(names)}" if name in names else ""
            names.add(name)
            needs = {
                f"{device.name}.{part.name}.{kind}": amount
                for part, taken in zip(slices, placed.taken, strict=True)
                for kind, amount in zip(BOUNDED, taken, strict=True)
            }
            details = {"pipelines": design.pipelines, "units": list(design.units)}
            yield Learner(name, self.asked.modeled(step, self._trains(device), is_measurable=False), 1, needs, details)

    def learner_bytes(self, device: Device, depth: int) -> dict[str, float]:
        """What a learner takes of memory, by budget: D + 1 batches, and what a gradient step keeps there.

        A device without a memory of its own has them in the processor's.
        """
        home = device if device.memory else self.asked.cpu
        kept = laws.training_bytes(device, self.asked.workload, self.asked.batch)
        return {f"{home.name}.memory_bytes": (depth + 1) * self.asked.batch * self.asked.transition_bytes + kept}
