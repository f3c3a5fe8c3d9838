"""A mapping problem as plain values: what each part of a training system could run on, and what that would take.

A training system has five **parts**. Actors step environments and insert records; for each gradient step a batch of B
is drawn (sampling), its records are gathered (storage), the learner trains on it, and its new priorities are written
(updating). A **configuration** chooses one option for each part, and how many batches are under way at once.

Letters: B batch, E bytes of a record, u environment steps a gradient step, N capacity, D batches drawn ahead.
Times are seconds, and speak of one gradient step; so do bytes of traffic.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..estimate import Estimate, Evidence

Part = Literal["actors", "sampling", "storage", "learner", "updating"]
PARTS: tuple[Part, ...] = ("actors", "sampling", "storage", "learner", "updating")
LOOP: tuple[Part, ...] = ("sampling", "storage", "learner", "updating")
"""What a batch passes through, in order; then it may be drawn anew."""


class ProblemError(ValueError):
    """A problem or a question is outside any sense; the message names the value and the remedy."""


@dataclass(frozen=True)
class Option:
    """A way to run a part: on a device, in so much time, by taking so much of the budgets.

    ``engine`` is what is busy meanwhile: parts on the same engine take turns, others run at the same time. All of a GPU
    is one engine; threads pinned to cores of their own, or a slice of an FPGA, are one each.
    ``needs``: amount by name of the budget, such as ``{"cpu.cores": 2, "gpu.memory_bytes": 4e9}``.
    """

    part: Part
    name: str
    device: str
    engine: str
    time: Estimate
    needs: Mapping[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Of one gradient step."""
        return self.time.value


@dataclass(frozen=True)
class Flow:
    """Bytes a gradient step sends from a part to another; nothing where both are on one device.

    ``waits``: a batch cannot go on before they have arrived. Others only keep links busy. ``times``: how many transfers
    they are, below 1 where those of several gradient steps go together.
    """

    source: Part
    target: Part
    nbytes: float
    waits: bool
    times: float = 1.0


@dataclass(frozen=True)
class Hop:
    """One link of a way between devices, in one direction: n bytes keep ``engine`` busy for alpha + n / beta.

    Alpha is paid for each of a flow's ``times``.
    """

    engine: str
    alpha_seconds: float
    seconds_per_byte: float
    rests_on: Evidence


@dataclass(frozen=True)
class Problem:
    """All there is to choose from. ``ways``: the links between two devices, by (from, to).

    ``depths``: allowed D. ``slowdown``: factor on the time of a part (first) while another one (second) runs on an
    engine of its own on the same device (third); 1 where nothing is stated. ``watts`` by device, where known.
    ``hosts``: devices that are in use in any case.
    """

    options: Mapping[Part, tuple[Option, ...]]
    budgets: Mapping[str, float]
    flows: tuple[Flow, ...] = ()
    ways: Mapping[tuple[str, str], tuple[Hop, ...]] = field(default_factory=dict)
    depths: tuple[int, ...] = (0,)
    slowdown: Mapping[tuple[Part, Part, str], float] = field(default_factory=dict)
    watts: Mapping[str, float] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for part in PARTS:
            if not self.options.get(part):
                raise ProblemError(f"nothing can run the part {part!r}: give it an option on some device")
        if not self.depths or min(self.depths) < 0:
            raise ProblemError(f"depths must be one or more numbers from 0 on, not {self.depths}")
        for (part, other, device), factor in self.slowdown.items():
            if not 0 < factor < math.inf:
                raise ProblemError(f"{part} beside {other} on {device} cannot take {factor} times as long")
        for option in (option for options in self.options.values() for option in options):
            for budget, amount in option.needs.items():
                if budget not in self.budgets:
                    raise ProblemError(f"{option.part} {option.name!r} needs {budget}, of which no budget is stated")
                if not 0 <= amount < math.inf:
                    raise ProblemError(f"{option.part} {option.name!r} needs {amount} of {budget}")


@dataclass(frozen=True)
class Configuration:
    """One option for each part, and D batches drawn ahead (so D + 1 are under way)."""

    actors: Option
    sampling: Option
    storage: Option
    learner: Option
    updating: Option
    depth: int = 0

    @property
    def options(self) -> tuple[Option, ...]:
        """In the order of ``PARTS``."""
        return (self.actors, self.sampling, self.storage, self.learner, self.updating)

    def having(self, option: Option) -> "Configuration":
        """The same with this option for its part."""
        changed: dict[str, Any] = {option.part: option}
        return replace(self, **changed)

    def of(self, part: Part) -> Option:
        """The option of a part."""
        option: Option = getattr(self, part)
        return option
