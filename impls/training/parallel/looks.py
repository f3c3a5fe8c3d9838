"""Find a number of samplers and a batch while training runs ([Hou2023, 3.4]) by few looks, none over a cap.

[Hou2023] searches both apart: samplers for the most environment steps/s, the batch for the most records trained
on per second, each rate taken to rise to one peak and fall after it. Then a Fibonacci search is enough [Kiefer1953]: of
two points inside, the peak cannot lie beyond the lower one. It looks at 6 points of up to 20, 7 of 33, 8 of 54, 9 of
88: from 18 points on at most a third of them.

The rates seen may show another shape: then all other points are looked at too, and the answer says so. A shape between
the points seen stays unseen: a higher peak next to the one that was climbed, or a level stretch below the top. Of 24
rates in random order, 12 % end so, at a peak that is not the highest. A level top is no other shape: its smallest value
is the answer.

Processor and memory use are known before a look, from the numbers alone; a point over a cap ends the line of those that
may be looked at.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import TrainingError


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
    pairs = [pair for pair in itertools.product(samplers, batches) if all(cap.uses(*pair) <= cap.most for cap in caps)]
    if not pairs:
        raise TrainingError(f"no pair is under the caps on {', '.join(cap.name for cap in caps)}")
    rates = {pair: hz(*pair) for pair in pairs}
    return min(pairs, key=lambda pair: (-rates[pair], pair))
