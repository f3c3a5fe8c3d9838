"""Search samplers and a batch on a system that trains ([Hou2023, 3.4]), by measured rates and under measured caps.

[Hou2023] searches both apart: samplers for the most environment steps/s at the smallest batch, then the batch for the
most records trained on per second, while the ratio of both rates is free; each rate is taken to rise to one peak and
fall after it. Then a Fibonacci search is enough [Kiefer1953]: of two points inside, the peak cannot lie beyond the
lower one. It looks at 6 points of up to 20, 7 of 33, 8 of 54, 9 of 88: from 18 points on at most a third of them.

The rates seen may show another shape: then all other points are looked at too, and the answer says so. A shape between
the points seen stays unseen: a higher peak next to the one that was climbed, or a level stretch below the top. Of 24
rates in random order, 12 % end so, at a peak that is not the highest. A level top is no other shape: its smallest value
is the answer.

A point that would use more than a cap of the processor or of memory ends the line of points that may be looked at. What
a look will use is projected from the latest look: that of the learner, and as much again for each sampler. A look that
used more than a cap counts as a rate of 0, so that it is no answer. Measuring all pairs in the same run shows what the
search lost, and how far two looks at one pair differ.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from .errors import TrainingError

if TYPE_CHECKING:
    from .parallel.changing import Rates  # which loads what trains

SAMPLERS, BATCH, GRID = "samplers", "batch", "grid"
BATCHES = (32, 64, 128, 256, 512, 1024, 2048)
PROCESSOR, MEMORY = "processor", "memory"
WHOLE = 100.0  # percent
Pair = tuple[int, int]
WITHIN = 0.05  # of a rate, by which measuring it again may change it without another shape being seen


@dataclass(frozen=True)
class Cap:
    """A limit, at most so much of something. ``uses``: by (samplers, batch), never less for more of either."""

    name: str
    most: float
    uses: Callable[[int, int], float]


@dataclass(frozen=True)
class Search:
    """The ``best`` of the ``allowed`` values, with its rate ``hz``; of equal ones the smallest.

    ``seen``: rates by value, in the order of looks. ``stopped_by``: the cap that cut larger values off.
    ``not_unimodal``: a sentence about what was seen, where all values were looked at because of it; empty where the
    rates seen have one peak.
    """

    best: int
    hz: float
    seen: dict[int, float]
    allowed: tuple[int, ...]
    stopped_by: str
    not_unimodal: str


def search(
    values: Sequence[int],
    rate: Callable[[int], float],
    caps: Sequence[tuple[str, Callable[[int], bool]]] = (),
    within: float = 0.0,
) -> Search:
    """Search the value with the highest rate; each is looked at once at most.

    ``caps``: (name, whether a value is over it). ``within``: the part of a rate that measuring it again may change;
    smaller steps against the shape do not count. TrainingError for values that do not rise, a first value
    over a cap, or a rate that is no number from 0 on.
    """
    if not values or any(b <= a for a, b in itertools.pairwise(values)):
        raise TrainingError(f"values to try must rise, not {list(values)}")
    allowed, stopped_by = _under(values, caps)
    seen: dict[int, float] = {}

    def look(at: int) -> float:
        if at >= len(allowed):
            return -math.inf  # beyond the end rates only fall
        value = allowed[at]
        if value not in seen:
            seen[value] = rate(value)
            if not 0 <= seen[value] < math.inf:
                raise TrainingError(f"the rate of {value} must be finite and from 0 on, not {seen[value]}")
        return seen[value]

    _climb(look, len(allowed))
    odd = _odd(sorted(seen.items()), within)
    if odd:
        for at in range(len(allowed)):
            look(at)
    best = min(seen, key=lambda value: (-seen[value], value))
    return Search(best, seen[best], seen, allowed, stopped_by, odd)


def _under(values: Sequence[int], caps: Sequence[tuple[str, Callable[[int], bool]]]) -> tuple[tuple[int, ...], str]:
    """Return the values before the first over a cap, and the cap's name."""
    for count, value in enumerate(values):
        for name, over in caps:
            if over(value):
                if count == 0:
                    raise TrainingError(f"even {value} is over the cap on {name}; raise it or try smaller values")
                return tuple(values[:count]), name
    return tuple(values), ""


def _climb(look: Callable[[int], float], count: int) -> None:
    """Look until the peak and its neighbors are seen; a tie can only be the top, so its left end is sought."""
    small, large = 1, 2  # two Fibonacci numbers; with the larger one between them, the ends are outside
    while large < count + 1:
        small, large = large, small + large
    left = -1
    # Invariant: the peak lies inside of left and left + large, which are both seen or outside.
    while large > 2:
        small, large = large - small, small
        if look(left + small) < look(left + large):
            left += small
    look(left + 1)


def _odd(seen: Sequence[tuple[int, float]], within: float) -> str:
    """Say what of rates by rising value is not one peak: strictly up, level at the top only, strictly down."""
    top = max(rate for _, rate in seen)
    peak = [position for position, (_, rate) in enumerate(seen) if rate == top]
    for position, ((a, before), (b, after)) in enumerate(itertools.pairwise(seen)):
        if before == after and (before == top or within):
            continue
        up = position < peak[0]
        if before == after or (before > after * (1 + within) if up else after > before * (1 + within)):
            wanted, highest = "rise" if up else "fall", seen[peak[0]][0]
            return f"from {a} to {b} the rate does not {wanted} ({before:g}, {after:g}), the highest is at {highest}"
    return ""


@dataclass(frozen=True)
class Adapted:
    """The searches of samplers and of the batch."""

    samplers: Search
    batch: Search


def adapt(
    samplers: Sequence[int],
    batches: Sequence[int],
    sampling_hz: Callable[[int, int], float],
    frames_hz: Callable[[int, int], float],
    caps: Sequence[Cap] = (),
    within: float = 0.0,
) -> Adapted:
    """Search samplers and batch, each by its own rate, as published: samplers at the smallest batch, then the batch.

    ``sampling_hz``, ``frames_hz``: environment steps, and records trained on, per second, by (samplers, batch). Neither
    search knows what its answer costs the other one's rate: ``joint`` does. ``within`` is as of ``search``.
    """
    least = batches[0]
    first = search(
        samplers, lambda count: sampling_hz(count, least), _bound(caps, lambda count: (count, least)), within
    )
    chosen = first.best
    second = search(
        batches, lambda batch: frames_hz(chosen, batch), _bound(caps, lambda batch: (chosen, batch)), within
    )
    return Adapted(first, second)


def _bound(caps: Sequence[Cap], pair: Callable[[int], tuple[int, int]]) -> list[tuple[str, Callable[[int], bool]]]:
    """Restrict the caps to one of samplers and batch, while the other one stays."""

    def over(cap: Cap) -> Callable[[int], bool]:
        return lambda value: not cap.uses(*pair(value)) <= cap.most

    return [(cap.name, over(cap)) for cap in caps]


def joint(
    samplers: Sequence[int], batches: Sequence[int], hz: Callable[[int, int], float], caps: Sequence[Cap] = ()
) -> tuple[int, int]:
    """Find the (samplers, batch) with the highest rate of all pairs under the caps; ties to fewer, then smaller.

    TrainingError where no pair is under the caps.
    """
    pairs = _pairs(samplers, batches, caps)
    if not pairs:
        raise TrainingError(f"no pair is under the caps on {', '.join(cap.name for cap in caps)}")
    rates = {pair: hz(*pair) for pair in pairs}
    return min(pairs, key=lambda pair: (-rates[pair], pair))


@dataclass(frozen=True)
class Step:
    """A look of the path: which search asked for it, at which pair, and the cap that it was over, if any."""

    search: str
    pair: Pair
    rates: "Rates"
    over: str = ""


@dataclass(frozen=True)
class Loss:
    """The loss of a search in its own rate: its value, the best of all values measured, and the share lost."""

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
        """The loss of each search against the pairs that it chose from, all measured; empty without a grid."""
        return losses_of(self.pair, self.batches[0], self.grid)

    @property
    def repeats(self) -> float | None:
        """The largest factor between two looks at one pair, by either rate; None without a grid."""
        grid = {step.pair: step.rates for step in self.grid}
        pairs = [(step.rates, grid[step.pair]) for step in self.path if step.pair in grid]
        return max((_ratio_between(a, b) for a, b in pairs), default=None)


def losses_of(pair: Pair, least: int, grid: Sequence[Step]) -> dict[str, Loss]:
    """Return by search what it lost: samplers at the ``least`` batch, the batch at the pair's samplers."""
    samplers, batch = pair
    over = {step.pair for step in grid if step.over}
    allowed = [step for step in grid if step.pair not in over]
    rows = {
        SAMPLERS: (samplers, {step.pair[0]: step.rates.sampling_hz for step in allowed if step.pair[1] == least}),
        BATCH: (batch, {step.pair[1]: step.rates.frames_hz for step in allowed if step.pair[0] == samplers}),
    }
    made = {}
    for name, (value, rates) in rows.items():
        if rates.get(value):
            best = min(rates, key=lambda at, rates=rates: (-rates[at], at))  # type: ignore[misc]
            made[name] = Loss(value, best, 1 - rates[value] / rates[best])
    return made


def _ratio_between(a: "Rates", b: "Rates") -> float:
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
        return [Cap(name, most, partial(self._projected, name)) for name, most in self.most.items()]

    def _projected(self, name: str, samplers: int, batch: int) -> float:
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

    sampling, frames = rate(SAMPLERS, lambda rates: rates.sampling_hz), rate(BATCH, lambda rates: rates.frames_hz)
    searches = adapt(samplers, batches, sampling, frames, looks.caps(), within)
    grid = [looks.new(GRID, pair) for pair in _pairs(samplers, batches, looks.caps())] if exhaustive else []
    return Run(tuple(samplers), tuple(batches), dict(caps), searches, tuple(looks.path), tuple(grid))


def _pairs(samplers: Sequence[int], batches: Sequence[int], caps: Sequence[Cap]) -> list[Pair]:
    """List the pairs under the caps, samplers in their order, so that each of them begins once."""
    return [pair for pair in itertools.product(samplers, batches) if all(cap.uses(*pair) <= cap.most for cap in caps)]
