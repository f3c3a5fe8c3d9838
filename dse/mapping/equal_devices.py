"""Devices of one model: what the parts take on the first of them holds for the others, and rests on the same evidence.

So a doubt about a model moves all its devices at once, and a search may exchange them.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..estimate import Estimate
from ..platforms import Device, Link
from ..times.analytic import budgets, training_bytes
from ..times.parts import Learner, Parts
from ..times.trees import Tree, trees

TRANSFERS = (0.0, 1e9)  # bytes; routes that take as long for both are equal


@dataclass(eq=False)
class EqualDevices:
    """The devices that may be used, their models, and what the parts take on each."""

    parts: Parts
    devices: Sequence[Device]

    @functools.cached_property
    def _trees(self) -> Callable[[Device], list[Tree]]:
        return functools.cache(functools.partial(trees, self.parts))

    @functools.cached_property
    def _learner_bytes(self) -> Callable[[Device, int], tuple[float, float]]:
        workload, record = self.parts.workload, self.parts.transition_bytes
        return functools.cache(lambda device, share: (training_bytes(device, workload, share), share * record))

    @functools.cached_property
    def _first(self) -> dict[str, Device]:
        """The first device of each one's model, by name."""
        firsts: dict[Any, Device] = {}
        return {device.name: firsts.setdefault(self._model(device), device) for device in self.devices}

    def first(self, device: Device) -> Device:
        """The first device of a device's model, which may be itself."""
        return self._first[device.name]

    def of(self, device: Device) -> list[Device]:
        """All devices of a device's model, in the platform's order."""
        return [other for other in self.devices if self.first(other) is self.first(device)]

    def learners(self, device: Device) -> list[Learner]:
        """Every option for gradient steps on a device, or on several of its model beginning with it."""
        return [replace(one, needs=self._needs(one.needs, device)) for one in self.parts.learners(self.first(device))]

    def trees(self, device: Device) -> list[Tree]:
        """Every sum tree on a device, fastest first."""
        known = self._trees(self.first(device))
        return [replace(tree, needs=self._needs(tree.needs, device)) for tree in known]

    def learner_bytes(self, device: Device, share: int) -> tuple[float, float]:
        """(what a gradient step on so many records keeps in memory, bytes of the records)."""
        return self._learner_bytes(self.first(device), share)

    def rows_moved(self, device: Device) -> Estimate:
        """Seconds of a gradient step that storage on a device takes."""
        return self.parts.rows_moved(self.first(device))

    @functools.cached_property
    def links(self) -> dict[str, str]:
        """By a link's name, that of the first one as it is, between devices of the same models."""
        firsts: dict[Link, str] = {}
        return {link.name: firsts.setdefault(self._ends(link), link.name) for link in self.parts.platform.links}

    def _ends(self, link: Link) -> Link:
        source, target = (self._first[end].name if end in self._first else end for end in (link.source, link.target))
        return replace(link, source=source, target=target)

    def _needs(self, needs: Mapping[str, float], device: Device) -> Mapping[str, float]:
        """Needs of the first device of a model as those of another."""
        first = self.first(device).name
        if first == device.name:
            return needs
        mine = f"{first}."
        return {
            f"{device.name}.{name.removeprefix(mine)}" if name.startswith(mine) else name: amount
            for name, amount in needs.items()
        }

    def _model(self, device: Device) -> Any:
        """What tells devices apart but their names: budgets, watts, routes to the processor, and times of parts."""
        cpu = self.parts.cpu.name
        pairs = ((cpu, device.name), (device.name, cpu)) if device.name != cpu else ()
        routes = tuple(self.parts.transfer_seconds(*pair, nbytes) for pair in pairs for nbytes in TRANSFERS)
        times = [(one.name, one.step) for one in self.parts.learners(device) if one.devices == 1]
        times += [(tree.name, time) for tree in self._trees(device) for time in (tree.draw, tree.update)]
        times += [("storage", self.parts.rows_moved(device))] if device.memory else []
        known = tuple((name, time.value, time.low, time.high, time.source) for name, time in times)
        has = tuple((name.removeprefix(device.name), amount) for name, amount in budgets(device))
        watts = device.power_watts.value if device.power_watts else None
        return device.kind, device.name == cpu, has, watts, routes, known
