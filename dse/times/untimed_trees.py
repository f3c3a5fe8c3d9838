"""What trees that nobody timed would take, by their own performance models; shown beside a choice, never chosen."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import impls
from impls.fpga.model import Link

from .. import platforms
from ..platforms import Platform
from .tree_times import Question
from .tree_variants import Configuration

REFERENCE = "u200"
"""The platform whose slices hardware must fit and whose link feeds it: that of [Zhang2023]."""
MOST_LEAVES = 1 << 26
MOST_ELEMENTS = 1 << 14
"""Leaves of the largest tree, and elements of the largest batch, that a model is asked about: no hardware of the
reference has queues for more."""


@dataclass(frozen=True)
class Modeled:
    """Seconds of a step by a performance model, for leaves of equal weight.

    ``transfer_seconds`` go to moving its data: uniforms there, indices back, indices and priorities there for each
    update. ``place``: the slice of the reference platform that the hardware fits. Nothing was measured, so nothing says
    how far off the seconds are: they have no interval, and are no ``Estimate``.
    """

    configuration: Configuration
    seconds: float
    transfer_seconds: float
    place: str


def fastest(configurations: Iterable[Configuration], question: Question) -> Modeled | None:
    """The fastest of the configurations that a model knows; None where it knows none."""
    steps = (_step(configuration, question) for configuration in configurations)
    return min((step for step in steps if step), key=lambda step: (step.seconds, step.configuration), default=None)


def host_link(platform: Platform) -> Link:
    """The link between a platform's processor and its FPGA, as a model takes it."""
    names = {device.kind: device.name for device in reversed(platform.devices)}
    there = partial(platform.transfer_seconds, names["cpu"], names["fpga"])
    return Link(there, partial(platform.transfer_seconds, names["fpga"], names["cpu"]))


def _step(configuration: Configuration, question: Question) -> Modeled | None:
    """A step by the implementation's own model, which takes the ``link`` to its host as an option.

    None for a question that it refuses, and for hardware that fits no slice of the reference platform.
    """
    if question.capacity > MOST_LEAVES or question.batch > MOST_ELEMENTS:
        return None
    reference = platforms.load(REFERENCE)
    try:
        shape = {"fanout": configuration.fanout, "dtype": question.dtype, "threads": configuration.threads}
        options: dict[str, Any] = {**shape, **dict(configuration.options), "link": host_link(reference)}
        tree = impls.make(configuration.contestant, question.capacity, **options)
    except ValueError:
        return None
    rate, batch = question.updates_per_sample, question.batch
    draw, update = tree.modeled_seconds("draw", batch), tree.modeled_seconds("update", batch)
    there, back, changes = (
        tree.modeled_seconds(op, size) or 0.0
        for op, size in (("upload", batch), ("download", batch), ("upload", 2 * batch))
    )
    place = _place(reference, tree.modeled_resources())
    if draw is None or update is None or place is None:
        return None
    return Modeled(configuration, draw + rate * update, there + back + rate * changes, place)


def _place(reference: Platform, needed: Mapping[str, float]) -> str | None:
    """The first slice of the reference platform with room for it; None where there is none."""
    for device in reference.devices:
        for part in device.slices:
            if all(need <= part.usable()[name] for name, need in needed.items()):
                return f"{part.name} of {reference.name}"
    return None
