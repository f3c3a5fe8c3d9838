"""The one door to the times of a training system's parts: stated by the user, measured by records, else modeled.

``Times`` is what is asked about, with a small class for the times of each part; trees are listed by ``trees.trees``.

Letters: B batch, u environment steps a gradient step.
"""

import functools
from dataclasses import dataclass

from ..estimate import Estimate
from ..platforms import Device
from ..solver.problem import Part
from . import analytic
from .actor_times import ActorTimes
from .learner_times import LearnerTimes
from .lookup import Lookup
from .own import counted
from .own_file import Entry


@dataclass
class Times(Lookup):
    """Times of a workload's parts on a platform, each with its evidence; fields as in ``Lookup``."""

    @functools.cached_property
    def learners(self) -> LearnerTimes:
        """The times of gradient steps."""
        return LearnerTimes(self)

    @functools.cached_property
    def actors(self) -> ActorTimes:
        """The times of environment steps."""
        return ActorTimes(self)

    def rows_moved(self, device: Device) -> Estimate:
        """Seconds of a gradient step: B records gathered, u written."""
        local = self.inserted
        evidence_id = f"storage({self.evidence_name(device, 'storage')})"
        if known := self.time_stated("storage", device, 1, evidence_id):
            return known
        table = self.table_of(device)
        if device.kind == "cpu" and table:
            kinds = (("gather", self.batch, self.transition_bytes), ("write", local, self.written_bytes))
            gather, write = (
                table.time(f"storage {op}", size, shape=functools.partial(_rows_seconds, device, nbytes))
                for op, size, nbytes in kinds
            )
            if gather and write:
                both = gather.plus(write.value * self.inserts).resting_on(id=evidence_id)
                return self.measured(both, table, "storage gather")
        written = self.inserts * _rows_seconds(device, self.written_bytes, local)
        law = analytic.rows_moved(device, self.batch, self.batch * self.transition_bytes, written)
        return self.modeled(law, evidence_id, is_measurable=device.kind != "fpga")

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
        if known := self.time_stated(one.part, device, count, one.part, batch):
            return known
        if one.part == "actors":
            return self.actors.step(count)
        if one.part == "storage":
            return self.rows_moved(device)
        if one.part == "learner":
            steps = (each.step for each in self.learners.list(device) if each.details.get("threads", 1) == count)
            return next(steps, None)
        return None


def _rows_seconds(device: Device, nbytes: float, count: int) -> float:
    return analytic.rows_moved(device, count, count * nbytes).value
