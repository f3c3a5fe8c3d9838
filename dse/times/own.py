"""Times of one's own: what a user measured, or read in a paper, of any part on any device. They are looked up first.

A time is that of a gradient step (``learner``: the step; ``sampling``, ``updating``: B priorities, insertions counted
in; ``storage``: B records gathered and the new ones written), for ``actors`` that from one environment step to the
next, of all processes together, fetching of weights counted in. A time without a batch is of the question's batch.

Letters: B batch. Times are seconds.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from impls.checks import near

from ..answer import Note
from ..estimate import Estimate, Evidence, weakest
from ..platforms import Platform
from ..solver.problem import TREE, Hop, Part
from .between import flat_then_linear, over_batch, over_count
from .own_file import Entry, read_entries

FACTORS = {"measured": 1.25, "quoted": 2.0, "modeled": 3.0}
"""Error bound of a time that states neither low and high nor factor, by its source.

Measured: by how much the machines on record change from one run to another (``drift.USUAL``: exp(hypot(0.16, 0.15)) is
1.25). Quoted and modeled: assumptions; a paper's device has another host and other software, and a model of a device
that nobody timed has the error bound of our own (``analytic.GPU_FACTOR``).
"""
COUNTED = {"actors": "processes", "learner": "threads", "sampling": "threads", "updating": "threads"}
"""By part, the key of which each value is an option of its own; 1 where it is not stated."""


@dataclass(frozen=True)
class Own:
    """The times of a file, of a question whose batch is ``batch``."""

    file: str
    entries: tuple[Entry, ...]
    batch: int = 1

    @classmethod
    def read(cls, path: str | Path) -> "Own":
        """The times of a TOML or CSV file. ``own_file.TimesError`` with everything that is wrong, by line."""
        return cls(str(path), read_entries(Path(path)))

    def at(self, batch: int) -> "Own":
        """The same for a question whose batch is B, which is that of times that state none."""
        return dataclasses.replace(self, batch=batch)

    def known(self, part: str, devices: Sequence[str]) -> tuple[Entry, ...]:
        """The times of a part alone on the first of the devices that has any."""
        for device in devices:
            if known := tuple(one for one in self.entries if (one.part, one.device, one.beside) == (part, device, "")):
                return known
        return ()

    def time(self, entries: Iterable[Entry], evidence_id: str, batch: int, count: int = 1) -> Estimate | None:
        """The time of a part at B with a given number of threads or processes, from its times alone.

        Interpolated between batches and between counts, carried on over batches with a wider factor; None beyond the
        counts that are stated, and without any time.
        """
        cells: dict[int, dict[int, list[Entry]]] = {}
        for one in entries:
            size = batch if one.part == "actors" else one.counts.get("batch", self.batch)
            cells.setdefault(counted(one), {}).setdefault(size, []).append(one)
        by_count = {
            known: self._over_batch(
                {size: self._estimate(ones[0], evidence_id) for size, ones in sizes.items()}, batch, evidence_id
            )
            for known, sizes in cells.items()
        }
        return over_count(by_count, count, evidence_id)

    def _over_batch(self, cells: Mapping[int, Estimate], batch: int, evidence_id: str) -> Estimate:
        """The time at B: from two batches and more by the laws of profiles, from one between flat and linear."""
        source = weakest(one.source for one in cells.values())
        if batch not in cells and len(cells) == 1:
            ((size, cell),) = cells.items()
            ratio = math.sqrt(batch / size)
            told = f"{cell.rests_on.description}, of B = {size:,}, carried on to B = {batch:,} between flat and linear"
            evidence = Evidence(evidence_id, weakest([source, "extrapolated"]), told)
            return Estimate.within(cell.value * ratio, cell.factor * max(ratio, 1 / ratio), evidence)
        known = over_batch(cells, batch, evidence_id)
        return known.resting_on(source=weakest([source, known.source]))

    def _estimate(self, one: Entry, evidence_id: str) -> Estimate:
        """A stated time with its ends, or the error bound that its source is taken to have."""
        told = f"{self.file}:{one.line}{f', {one.note}' if one.note else ''}"
        if not one.high and not one.factor:
            told += f"; no ends are stated, so an error bound of {FACTORS[one.source]:g}x is assumed, as {one.source}"
        evidence = Evidence(evidence_id, one.source, told)
        if one.high:
            return Estimate(one.seconds, one.low, one.high, evidence)
        return Estimate.within(one.seconds, one.factor or FACTORS[one.source], evidence)

    def hop(
        self, source: str, target: str, nbytes: float, engine: str, usual: tuple[float, ...] | None = None
    ) -> Hop | None:
        """The link between two devices as stated, for either direction where only one is; None where neither is.

        A time that states no bytes is of ``nbytes``, a batch of records. Times of two sizes make alpha and beta. A
        single one is split as the link that is there ``usual`` (alpha, seconds a byte), and is all alpha where none is.
        """
        for ends in ((source, target), (target, source)):
            known = [one for one in self.entries if (one.part, one.device, one.target) == ("link", *ends)]
            if known:
                alpha, each = self._alpha_beta(known, nbytes, usual)
                lines = ", ".join(f"{self.file}:{one.line}{f', {one.note}' if one.note else ''}" for one in known)
                back = "" if ends == (source, target) else f"; stated from {ends[0]} to {ends[1]}, taken both ways"
                weakest_source = weakest(one.source for one in known)
                link = f"{ends[0]} to {ends[1]}"
                return Hop(engine, alpha, each, Evidence(f"link {link}", weakest_source, f"{lines}{back}"), link)
        return None

    def _alpha_beta(
        self, known: Sequence[Entry], nbytes: float, usual: tuple[float, ...] | None
    ) -> tuple[float, float]:
        for one in known:
            if one.bytes_per_s:
                return one.seconds, 1 / one.bytes_per_s
        record = nbytes / self.batch
        points = {one.counts.get("bytes") or record * one.counts.get("batch", self.batch): one.seconds for one in known}
        if len(points) > 1:
            law = flat_then_linear(list(points), list(points.values()))
            return law.fixed_seconds, law.each_seconds
        ((size, seconds),) = points.items()
        if usual is None:
            return seconds, 0.0
        ratio = seconds / (usual[0] + size * usual[1])
        return usual[0] * ratio, usual[1] * ratio

    def slowdowns(self, alone: Callable[[Entry], Estimate | None]) -> dict[tuple[Part, Part, str], float]:
        """The slowdown of a part concurrent with another, by (part, other, device), from times ``beside``.

        ``alone`` gives the time of an entry's part with nothing else running.
        """
        known: dict[tuple[Part, Part, str], float] = {}
        for one in self.entries:
            if one.beside and (base := alone(one)):
                known.setdefault((one.part, one.beside, one.device), one.seconds / base.value)
        return known

    def unused(self, platform: Platform, excluded: Iterable[str] = ()) -> Iterator[Note]:
        """Yield a note on each time that no question about a platform uses, with the reason."""
        out = set(excluded)
        known = [device.name for device in platform.devices if device.name not in out]
        first = next((device.name for device in platform.devices if device.kind == "cpu"), "")
        away: dict[str, list[Entry]] = {}
        for one in self.entries:
            if missing := [name for name in (one.device, one.target) if name and name not in known]:
                away.setdefault(missing[0], []).append(one)
            elif why := self._useless(one, platform, first):
                kind, values = why
                yield Note(kind, {"place": f"{self.file}:{one.line}", "time": str(one), "part": one.part, **values})
        for name, entries in away.items():
            lines = ", ".join(dict.fromkeys(str(one.line) for one in entries))
            values = {"place": f"{self.file}:{lines}", "times": len(entries), "device": name, "platform": platform.name}
            kind = "time_of_excluded" if name in out else "time_of_no_device"
            yield Note(kind, {**values, "near": near(name, known)})

    def _useless(self, one: Entry, platform: Platform, first: str) -> tuple[str, dict[str, Any]] | None:
        """Return (the kind of the sentence, its values) of why a time of a device says nothing; None where it does."""
        if one.part == "link":
            return ("link_to_itself", {}) if one.device == one.target else None
        device, count = platform.device(one.device), counted(one)
        cores = int(device.cores.value) if device.cores else 1
        alike = equal_devices(platform, one.device)
        if one.part == "actors" and one.device != first:
            return "actors_elsewhere", {"device": first}
        if device.kind == "cpu" and count > cores:
            return "more_than_cores", {"device": one.device, "cores": cores}
        if device.kind != "cpu" and count > 1:
            return "threads_elsewhere", {"device": one.device, "kind_of_device": device.kind}
        if one.counts.get("devices", 1) > len(alike):
            return "too_few_devices", {"device": one.device, "devices": len(alike)}
        if one.beside == one.part:
            return "beside_itself", {}
        if one.beside and one.part in TREE and not self.known(one.part, alike):
            return "not_alone", {"device": one.device, "beside": one.beside}
        return None


def counted(one: Entry) -> int:
    """Threads or processes of a time; 1 where none are stated."""
    return one.counts.get(COUNTED.get(one.part, ""), 1)


def equal_devices(platform: Platform, name: str) -> tuple[str, ...]:
    """The names of a device and of those equal to it in all but the name: the device first, then as in the file."""
    device = platform.device(name)
    return (
        name,
        *(one.name for one in platform.devices if one != device and dataclasses.replace(one, name=name) == device),
    )
