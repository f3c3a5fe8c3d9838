"""The gradient steps that a device could run: every number of threads, designs, and equal devices that share a batch.

Letters: B batch, T threads, n equal devices.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from impls.terminal import plural
from impls.training.learners import PREFERRED, unsuited
from impls.training.sizes import networks

from ..estimate import Estimate
from ..fpga import placement
from ..fpga.points import BOUNDED
from ..platforms import Device
from . import analytic
from .analytic import clock_of
from .hardware import FLOAT_BYTES
from .lookup import SCALING, Lookup
from .whole_runs import REFERENCE, what_of

NOT_RUN = "nothing here has run it"


@dataclass(frozen=True)
class Learner:
    """An option for gradient steps on a device: the time of one, and the host's cores and the budgets it takes.

    ``details``: its threads, learners or pipelines. ``devices``: how many equal ones share a batch, each B / n of it.
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
            step = analytic.learner(self.cpu, device, self.workload, self.batch)
            yield Learner("framework", self.modeled(step, self._trains(device)), 1, {}, {})
        else:
            yield from self._cpu_learners(device)
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
        """Every number of threads of torch; other implementations and parallel learners as far as they were timed."""
        number, table = self._trains(device), self.table_of(device)
        for threads in range(1, self.cores_of(device) + 1):
            name = f"{plural(threads, 'thread')} of torch"
            known = table and self._recorded("learner step", self.batch, threads, f"{number}, {name}")
            yield Learner(name, known or self._by_threads(device, threads), threads, {}, {"threads": threads})
        for implementation in table.implementations("learner step") if table else ():
            yield from self._compiled(device, implementation) if implementation != REFERENCE else ()
        if table and self.is_untimed:
            step = self.modeled(analytic.compiled(device, self.workload, self.batch), f"{number}, {PREFERRED}")
            yield Learner(f"{PREFERRED}, 1 thread", step, 1, {}, {"threads": 1, "implementation": PREFERRED})
        # Parallel learners are timed at one B; another B goes as a gradient step of one thread does.
        for count in table.threads("parallel_learners step") if table else ():
            name = f"{count} parallel learners"
            known = self._recorded("parallel_learners step", self.batch, count, f"{number}, {name}", self._one_thread)
            if known and 1 < count <= self.cores_of(device):
                yield Learner(name, known, count, {}, {"learners": count})

    def _compiled(self, device: Device, implementation: str) -> Iterator[Learner]:
        """Gradient steps of an implementation of which no law tells, by the numbers of threads that were timed."""
        what = what_of("learner step", implementation)
        for threads in self.table.threads(what) if self.table else ():
            name = f"{implementation}, {plural(threads, 'thread')}"
            known = self._recorded(what, self.batch, threads, f"{self._trains(device)}, {name}")
            if known and threads <= self.cores_of(device):
                yield Learner(name, known, threads, {}, {"threads": threads, "implementation": implementation})

    @property
    def is_untimed(self) -> bool:
        """Whether the preferred learner and policy suit a workload that was not profiled on a machine with records."""
        return bool(self.table and not self.table.rows and not unsuited(PREFERRED, self.workload))

    def _one_thread(self, batch: int) -> float:
        """A law in B, up to a factor: how the gradient step of one thread goes."""
        known = self.table.time("learner step", batch) if self.table else None
        return known.value if known else float(batch)

    def _by_threads(self, device: Device, threads: int) -> Estimate:
        """A gradient step by threads that nobody timed: by a law alone, or from the most threads that were timed."""
        number, table = self._trains(device), self.table_of(device)
        law = analytic.learner(self.cpu, device, self.workload, self.batch, threads)
        known, before = self._most_stated("learner", device, threads)
        if known is None and table:
            known, before = self._most_recorded("learner step", self.batch)
        if known is None or not before:
            return self.modeled(law, number)
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
        if any(one.counts.get("devices", 1) == 1 for one in self.stated("learner", device)):
            alone = next(iter(self._own_learners(device))).step
            step = self._stated("learner", device, 1, number, share) or alone
        elif device.kind == "gpu":
            step = analytic.learner(self.cpu, device, self.workload, share)
        else:
            return
        factor = max(step.factor, analytic.GPU_FACTOR)
        description = (
            f"{count} equal devices, each a batch of {share:,} ({step.rests_on.told}), and gradients exchanged in "
            f"{exchange * 1e6:.3g} us; {NOT_RUN}"
        )
        law = analytic.law(step.value + exchange, factor, description, step.rests_on.assumed)
        yield Learner(f"{count} devices", self.modeled(law, number), count, {}, details, count)

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
            yield Learner(name, self.modeled(step, self._trains(device)), 1, needs, details)

    def learner_bytes(self, device: Device, depth: int) -> dict[str, float]:
        """What a learner takes of memory, by budget: D + 1 batches, and what a gradient step keeps there.

        A device without a memory of its own has them in the processor's.
        """
        home = device if device.memory else self.cpu
        kept = analytic.training_bytes(device, self.workload, self.batch)
        return {f"{home.name}.memory_bytes": (depth + 1) * self.batch * self.transition_bytes + kept}
