"""What a platform's devices would take, from its numbers alone: rows of a table, each with its scope in its name.

"Bare hardware": arithmetic and memory, no framework and no Python. "As `recommend` models it": ``Parts`` without
records, so both commands rest on the same numbers where nothing is measured.

Letters: N leaves, K fanout, B batch. Times are seconds of one call.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from impls.checks import integer_at_least
from impls.fpga.network import parse
from impls.training import Workload
from impls.training.weights import layout_of

from ..fpga import placement
from ..platforms import Device, Platform, PlatformError
from ..platforms.platform import RESOURCES
from . import analytic, hardware
from .hardware import Known, Work, place, rate, stated
from .parts import Parts

MOST = 1 << 48  # of anything that is asked
MODELED = "gradient step, as `recommend` models it"
GATHERED = "gather a batch of records"


@dataclass(frozen=True)
class Asked:
    """N leaves of fanout K, batches of B records, and what trains on them: a workload, or else a network alone.

    ``reads``: records that are read for one of a batch. ValueError for numbers outside any sense.
    """

    capacity: int = 1_000_000
    fanout: int = 16
    batch: int = 256
    record_bytes: int = 100
    network: str = "hopper"
    workload: Workload | None = None
    reads: int = 1

    def __post_init__(self) -> None:
        for name, least in (("capacity", 1), ("fanout", 2), ("batch", 1), ("record_bytes", 1)):
            if integer_at_least(name, getattr(self, name), least) > MOST:
                raise ValueError(f"{name} must be at most {MOST}, not {getattr(self, name)}")

    @classmethod
    def of(cls, workload: Workload) -> Self:
        """The numbers of a workload."""
        replay, network = workload.replay, analytic.network_of(workload)[0].name
        sizes = replay.capacity, replay.fanout, workload.learner.batch, layout_of(workload).record_bytes
        return cls(*sizes, network, workload, analytic.records_read(workload))

    @property
    def batch_bytes(self) -> float:
        """What a learner reads for a batch."""
        return float(self.batch * self.reads * self.record_bytes)

    @property
    def step(self) -> str:
        """What a gradient step on bare hardware is called."""
        return f"gradient step{'' if self.workload else ' of the network alone'}, bare hardware"

    @property
    def work(self) -> Work:
        """What a gradient step does: that of the whole algorithm, or of the network alone."""
        return analytic.work_of(self.workload) if self.workload else hardware.work_alone(parse(self.network))


@dataclass(frozen=True)
class Row:
    """One estimate: ``value`` in ``unit`` ("s", "J") and what it rests on, or None where ``note`` says why.

    ``factor``: its assumed error bound; None of bare hardware, of which nothing tells.
    """

    device: str
    what: str
    value: float | None
    unit: str = "s"
    origins: tuple[str, ...] = ()
    note: str = ""
    factor: float | None = None


def rows(platform: Platform, asked: Asked) -> list[Row]:
    """Estimates for every device and link. ValueError for a network or workload outside any sense."""
    every = list[Row]()
    for device in platform.devices:
        every += _told(device, asked.step, _OF_KIND[device.kind](device, asked))
        if asked.workload:
            every += _told(device, MODELED, _modeled(platform, device, asked, asked.workload))
        every += _told(device, GATHERED, _storage(device, asked))
    return every + list(_moves(platform, asked))


def _told(device: Device, what: str, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows up to the first for which the platform file lacks a number, which is told."""
    try:
        yield from rows
    except PlatformError as lack:
        yield Row(device.name, what, None, note=str(lack))


def _row(device: Device, what: str, known: Known, unit: str = "s") -> Row:
    return Row(device.name, what, known.value, unit, tuple(sorted(known.origins)))


def _cpu(device: Device, asked: Asked) -> Iterator[Row]:
    tree, work = (device, asked.capacity, asked.fanout), asked.work
    moved = {"copy a batch": (2 * asked.batch_bytes, "copy"), "apply a gradient": (work.nbytes, "triad")}
    yield _row(device, "sample one leaf", hardware.descent(*tree, batch=False))
    for all_cores, who in ((False, "one core"), (True, "all cores")):
        yield _row(device, f"sample a batch, {who}", asked.batch * hardware.descent(*tree, all_cores=all_cores))
        for what, (nbytes, kernel) in moved.items():
            memory, _ = place(device, nbytes, all_cores)
            yield _row(device, f"{what}, {who}", nbytes / rate(device, memory, kernel, all_cores))
    yield from _step(device, asked, hardware.bare_step(device, work, asked.batch))


def _gpu(device: Device, asked: Asked) -> Iterator[Row]:
    sampled = hardware.gpu_descent(device, asked.capacity, asked.fanout, asked.batch)
    yield _row(device, "sample a batch", sampled)
    yield from _step(device, asked, hardware.bare_step(device, asked.work, asked.batch))


def _fpga(device: Device, asked: Asked) -> Iterator[Row]:
    """The fastest sum tree and the fastest learner, each with the device to itself."""
    clock, slices = hardware.clock(device), placement.slices_of(device)
    parts = [part for slr in device.slices for part in (slr, slr.shell) if part]
    sizes = frozenset(getattr(part, name).origin for part in parts for name in RESOURCES)
    network, factor = analytic.network_of(asked.workload) if asked.workload else (parse(asked.network), 1.0)
    replay = Known(0.0)
    if trees := placement.rmms(slices, asked.capacity, asked.batch, clock.value, None):
        replay = Known(0.0, sizes) + trees[0].point.cycles / clock
        yield _row(device, "sample a batch and update it", replay)
    else:
        yield Row(device.name, "sample a batch and update it", None, note="no tree fits a slice")
    try:
        designs = placement.learners(slices, network, asked.batch, clock.value, ())
    except ValueError as error:
        yield Row(device.name, asked.step, None, note=str(error))
        return
    for design in designs[:1]:
        step = Known(0.0, sizes) + analytic.fpga_step(device, design, factor)
        yield from _step(device, asked, step, hardware.longer(step, replay))


def _step(device: Device, asked: Asked, step: Known, busy: Known | None = None) -> Iterator[Row]:
    """A gradient step, and its energy: the device is ``busy`` for as long as the step, or longer."""
    yield _row(device, asked.step, step)
    if device.power_watts:
        yield _row(device, f"energy of a {asked.step}", stated(device.power_watts) * (busy or step), "J")


_OF_KIND = {"cpu": _cpu, "gpu": _gpu, "fpga": _fpga}


def _modeled(platform: Platform, device: Device, asked: Asked, workload: Workload) -> Iterator[Row]:
    """The fastest of the options that ``recommend`` has where nothing was measured, with its evidence."""
    learner, replay = replace(workload.learner, batch=asked.batch), replace(workload.replay, capacity=asked.capacity)
    if all(other.kind != "cpu" for other in platform.devices):
        yield Row(device.name, MODELED, None, note="no processor, which environments step on")
        return
    parts = Parts(platform, replace(workload, learner=learner, replay=replay), None, None, {})
    options = [option for option in parts.learners(device) if option.devices == 1]
    if not options:
        yield Row(device.name, MODELED, None, note="nothing fits")
        return
    fastest = min(options, key=lambda option: option.step.value)
    evidence = f"{fastest.name}: {fastest.step.rests_on.told}; error bound: a factor of {fastest.step.factor:.3g}"
    yield Row(device.name, MODELED, fastest.step.value, note=evidence, factor=fastest.step.factor)


# Storage and links


def _storage(device: Device, asked: Asked) -> Iterator[Row]:
    """Whether N records fit the device's memory; if so, the seconds to gather a batch out of it."""
    if device.memory is None:
        return
    need, have = asked.capacity * asked.record_bytes, device.memory.size_bytes.value
    if need > have:
        note = f"{need / 1e9:,.3g} GB of records do not fit {have / 1e9:,.3g} GB"
        yield Row(device.name, GATHERED, None, note=note)
        return
    known = asked.batch_bytes / rate(device, device.memory, "copy", True)
    fits = Known(0.0, frozenset([device.memory.size_bytes.origin]))
    yield _row(device, GATHERED, fits + known)


def _moves(platform: Platform, asked: Asked) -> Iterator[Row]:
    """A batch of records from each device to each other, by the fastest chain of links."""
    for source, target in itertools.permutations(platform.devices, 2):
        seconds, links = platform.way(source.name, target.name, asked.batch_bytes)
        origins = {origin for link in links for origin in link.origins}
        yield Row(source.name, f"send a batch to {target.name}", seconds, "s", tuple(sorted(origins)))
