"""Devices of one model: what the parts take on the first of them holds for the others, and rests on the same evidence.

So the uncertainty of a model moves all its devices at once. Those that nothing tells apart are a **class**: options are
listed of its first devices, and the search puts them on any.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..estimate import Estimate
from ..platforms import Device, Link
from ..solver.problem import moved
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

    @functools.cached_property
    def classes(self) -> list[list[Device]]:
        """Devices of a model that may be exchanged: no part is fixed to one of them, and all are linked alike."""
        fixed, alike = set(map(str, self.parts.constraints.values())), dict[Any, list[Device]]()
        for device in self.devices:
            own = device.name if device.name in fixed else ""
            alike.setdefault((self.first(device).name, own), []).append(device)
        return [
            each for found in alike.values() for each in ([found] if self._linked(found) else [[one] for one in found])
        ]

    def _linked(self, devices: Sequence[Device]) -> bool:
        """Whether transfers take as long whichever of these devices they are from or to."""
        if len(devices) == 1:
            return True
        names = [one.name for one in devices]
        pairs = [list(itertools.permutations(names, 2))]
        for other in (one.name for one in self.devices if one.name not in names):
            pairs += [[(one, other) for one in names], [(other, one) for one in names]]
        seconds = self.parts.transfer_seconds
        return all(len({seconds(*pair, size) for pair in each}) == 1 for each in pairs for size in TRANSFERS)

    def class_of(self, device: Device) -> list[Device]:
        """The devices that a device may be exchanged with, itself among them."""
        return next(each for each in self.classes if device in each)

    def sets(self, device: Device, count: int) -> Iterator[tuple[Device, ...]]:
        """Which devices of a model may be used together: of each class the first ones."""
        others = [[one for one in each if one is not device] for each in self.classes if each[0] in self.of(device)]
        for pick in itertools.combinations(itertools.chain(*others), count - 1):
            if all(
                one in pick for each in others for at, after in enumerate(each) if after in pick for one in each[:at]
            ):
                yield pick

    def learners(self, device: Device) -> list[Learner]:
        """Every option for gradient steps on a device, or on several of its model beginning with it."""
        return [replace(one, needs=self._needs(one.needs, device)) for one in self.parts.learners(self.first(device))]

    def trees(self, device: Device) -> list[Tree]:
        """Every sum tree on a device, fastest first."""
        known = self._trees(self.first(device))
        return [replace(tree, needs=self._needs(tree.needs, device)) for tree in known]

    def learner_bytes(self, device: Device, share: int) -> tuple[float, float]:
        """(what a gradient step on a given number of records keeps in memory, bytes of the records)."""
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
        return moved(needs, {self.first(device).name: device.name})

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
