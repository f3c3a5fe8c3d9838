"""Search samplers and a batch on a system that trains ([Hou2023, 3.4]), by measured rates and under measured caps.

The system is behind a function, called with (samplers, batch): it changes both, waits until they work, and measures. As
published, samplers are searched for the most environment steps/s at the smallest batch, then the batch for the
most records trained on per second, while the ratio of both rates is free. What a look will use of the processor and of
memory is projected from the latest look: that of the learner, and as much again for each sampler. A look that used more
than a cap counts as a rate of 0, so that it is no answer.

Measuring all pairs in the same run shows what the search lost, and how far two looks at one pair differ.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .looks import Adapted, Cap, adapt

if TYPE_CHECKING:
    from .changing import Rates  # which loads what trains

SAMPLERS, BATCH, GRID = "samplers", "batch", "grid"
BATCHES = (32, 64, 128, 256, 512, 1024, 2048)
PROCESSOR, MEMORY = "processor", "memory"
WHOLE = 100.0  # percent
Pair = tuple[int, int]
WITHIN = 0.05  # of a rate, by which measuring it again may change it without another shape being seen


@dataclass(frozen=True)
class Step:
    """A look of the path: which search asked for it, at which pair, and the cap that it was over, if any."""

    search: str
    pair: Pair
    rates: "Rates"
    over: str = ""


@dataclass(frozen=True)
class Loss:
    """What a search lost in its own rate: its value, the best of all values measured, and the share lost."""

    found: int
    best: int
    share: float


@dataclass(frozen=True)
class Run:
    """The answer ``pair``, the ``path`` of looks to it, and the ``grid`` of all pairs, empty unless asked for."""

    samplers: tuple[int, ...]
    batches: tuple[int, ...]
    caps: Mapping[str, float]
    searches: Adapted
    path: tuple[Step, ...]
    grid: tuple[Step, ...]

    @property
    def pair(self) -> Pair:
        """Samplers and batch, as the searches found them."""
        return self.searches.samplers.best, self.searches.batch.best

    @property
    def looks(self) -> int:
        """Looks of the searches."""
        return len(self.path)

    @property
    def losses(self) -> dict[str, Loss]:
        """What each search lost against the pairs that it chose from, all measured; empty without a grid."""
        return losses_of(self.pair, self.batches[0], self.grid)

    @property
    def repeats(self) -> float | None:
        """The largest factor between two looks at one pair, by either rate; None without a grid."""
        grid = {step.pair: step.rates for step in self.grid}
        pairs = [(step.rates, grid[step.pair]) for step in self.path if step.pair in grid]
        return max((_apart(a, b) for a, b in pairs), default=None)


def losses_of(pair: Pair, least: int, grid: Sequence[Step]) -> dict[str, Loss]:
    """Return by search what it lost: samplers at the ``least`` batch, the batch at the pair's samplers."""
    samplers, batch = pair
    over = {step.pair for step in grid if step.over}
    rows = {
        SAMPLERS: (samplers, {one.pair[0]: one.rates.sampling_hz for one in grid if one.pair[1] == least}),
        BATCH: (batch, {one.pair[1]: one.rates.frames_hz for one in grid if one.pair[0] == samplers}),
    }
    made = {}
    for name, (value, rates) in rows.items():
        allowed = {
            at: hz for at, hz in rates.items() if ((at, least) if name == SAMPLERS else (samplers, at)) not in over
        }
        if allowed.get(value):
            best = min(allowed, key=lambda at, allowed=allowed: (-allowed[at], at))  # type: ignore[misc]
            made[name] = Loss(value, best, 1 - allowed[value] / allowed[best])
    return made


def _apart(a: "Rates", b: "Rates") -> float:
    rates = ((a.sampling_hz, b.sampling_hz), (a.frames_hz, b.frames_hz))
    return max((math.exp(abs(math.log(x / y))) for x, y in rates if x and y), default=1.0)


@dataclass
class _Looks:
    """The looks so far, and what they say that others would use."""

    measure: Callable[[int, int], "Rates"]
    most: Mapping[str, float]
    cores: int
    tell: Callable[[Step], None]
    path: list[Step] = field(default_factory=list)

    def at(self, search: str, pair: Pair) -> Step:
        """The look at a pair, taken once."""
        for step in self.path:
            if step.pair == pair:
                return step
        self.path.append(self.new(search, pair))
        return self.path[-1]

    def new(self, search: str, pair: Pair) -> Step:
        """Take a look at a pair, and tell of it."""
        rates = self.measure(*pair)
        used = {PROCESSOR: rates.cpu_percent, MEMORY: rates.memory_bytes}
        step = Step(search, pair, rates, next((name for name, most in self.most.items() if used[name] > most), ""))
        self.tell(step)
        return step

    def caps(self) -> list[Cap]:
        """The caps, with what the latest look projects."""

        def uses(name: str) -> Callable[[int, int], float]:
            return lambda samplers, batch: self._projected(name, samplers)

        return [Cap(name, most, uses(name)) for name, most in self.most.items()]

    def _projected(self, name: str, samplers: int) -> float:
        latest = self.path[-1].rates
        if name == PROCESSOR:
            return min(WHOLE, WHOLE * (latest.learner_cores + samplers * latest.actor_cores) / self.cores)
        return latest.learner_bytes + samplers * latest.actor_bytes


def adapt_running(
    measure: Callable[[int, int], "Rates"],
    samplers: Sequence[int],
    batches: Sequence[int],
    caps: Mapping[str, float],
    cores: int,
    *,
    exhaustive: bool = False,
    within: float = WITHIN,
    tell: Callable[[Step], None] = lambda step: None,
) -> Run:
    """Search samplers, then the batch, each by few looks; with ``exhaustive`` then measure every pair under the caps.

    ``caps``: the most of "processor" (percent of ``cores``) and of "memory" (bytes). ``tell`` is called with each look.
    TrainingError for values that do not rise, or a first pair that is over a cap.
    """
    looks = _Looks(measure, caps, cores, tell)
    looks.at(SAMPLERS, (samplers[0], batches[0]))

    def rate(search: str, of: Callable[["Rates"], float]) -> Callable[[int, int], float]:
        def hz(x: int, batch: int) -> float:
            step = looks.at(search, (x, batch))
            return 0.0 if step.over else of(step.rates)

        return hz

    searches = adapt(
        samplers,
        batches,
        rate(SAMPLERS, lambda rates: rates.sampling_hz),
        rate(BATCH, lambda rates: rates.frames_hz),
        looks.caps(),
        within,
    )
    grid = [looks.new(GRID, pair) for pair in _pairs(samplers, batches, looks.caps())] if exhaustive else []
    return Run(tuple(samplers), tuple(batches), dict(caps), searches, tuple(looks.path), tuple(grid))


def _pairs(samplers: Sequence[int], batches: Sequence[int], caps: Sequence[Cap]) -> Iterator[Pair]:
    """Yield the pairs under the caps, samplers in their order, so that each of them begins once."""
    for x in samplers:
        for batch in batches:
            if all(cap.uses(x, batch) <= cap.most for cap in caps):
                yield x, batch
