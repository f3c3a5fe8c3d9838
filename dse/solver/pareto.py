"""What nothing else beats: options of a part, and configurations by throughput, watts and devices."""

from collections.abc import Iterable, Sequence

import numpy as np

from .objectives import option_key
from .problem import Option, Problem


def undominated(problem: Problem, options: Iterable[Option]) -> tuple[Option, ...]:
    """Of options of one part on one device and engine, those that no answer can do without, by ``option_key``.

    One is dropped where another comes before it in ``option_key`` (so it takes no more seconds) and needs no more of
    anything; ``objectives`` proves that no answer changes. Of equal ones the first stays.
    """
    ordered = sorted(options, key=lambda option: option_key(problem, option))
    needs = np.array([option_key(problem, option)[1] for option in ordered]).reshape(len(ordered), len(problem.budgets))
    left = np.arange(len(ordered))
    kept = []
    while left.size:  # left[0] is beaten by nothing before it
        first, *_ = left
        kept.append(ordered[first])
        rest = left[1:]
        left = rest[(needs[rest] < needs[first]).any(axis=1)]
    return tuple(kept)


def front_of(points: Sequence[tuple[float, ...]]) -> list[int]:
    """Positions of the points (larger is better in every component) that no other point beats; the first of equals.

    >>> front_of([(3.0, -2.0), (2.0, -2.0), (1.0, -1.0), (3.0, -2.0)])
    [0, 2]
    """

    def beaten(here: int) -> bool:
        return any(
            all(a >= b for a, b in zip(points[there], points[here], strict=True))
            and (points[there] != points[here] or there < here)
            for there in range(len(points))
        )

    return [position for position in range(len(points)) if not beaten(position)]
