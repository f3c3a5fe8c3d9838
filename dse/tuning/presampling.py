"""How many batches to draw ahead: the bound in closed form, and what a simulation makes of it.

Two counts are easily confused. ``depth`` D, here and in ``Configuration``, is the number of batches drawn AHEAD of the
one that is trained on; ``under_way`` = D + 1 is the number of all that go round, which the formula counts:

    steps a second <= min(1 / max(T_L, T_s + T_u), under_way / (T_s + T_L + T_u + 2 T_x))

The first bound is reached with ceil((T_s + T_L + T_u + 2 T_x) / max(T_L, T_s + T_u)) under way, one less ahead. With
all three on one device there is one bound, 1 / (T_s + T_L + T_u).

The bound is exact for D = 0 and optimistic for a small D, even with exact times: sampling and updating of different
batches meet on their engine. Of 240 random loops with exact times, simulated here, it is up to 46 % too high at D = 1
(half of them: exact), 27 % at D = 2, 3 % at D = 5; random times cost more (of cv = 1, the example below wants 8 under
way for 97 %).

Letters: T_s sampling and gathering, T_L learner, T_u updating, T_x a transfer (there, and back); seconds of one batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..solver.simulation import Network, Simulated, Visit, simulate

_ROUNDING = 1e-9


def published_loop(
    sampling: float, learner: float, updating: float, transfer: float = 0.0, together: bool = False
) -> Network:
    """The loop of the formula: sampling and updating on one engine, the learner on another or, together, on the same.

    Ways there and back are engines of their own; a ``transfer`` of 0, and any between parts together, is left out.
    """
    there, back = ((Visit(way, transfer),) if transfer and not together else () for way in ("there", "back"))
    trains = Visit("replay" if together else "learner", learner)
    return Network((Visit("replay", sampling), *there, trains, *back, Visit("replay", updating)))


def bound_hz(network: Network, depth: int) -> float:
    """Steps a second at most: the busiest engine's, or those of D + 1 batches that never wait."""
    return min(1 / max(network.busy.values()), (depth + 1) / network.round_seconds)


def depth_enough(network: Network) -> int:
    """The smallest D at which the bound is that of the busiest engine.

    >>> depth_enough(published_loop(1, 2, 0.5, 0.3))  # 4.1 s a round, 2 s of them the learner's: 3 under way
    2
    """
    return max(0, math.ceil(network.round_seconds / max(network.busy.values()) - _ROUNDING) - 1)


@dataclass(frozen=True)
class DepthPoint:
    """At D batches drawn ahead: the bound, and the steps a second simulated with times of each cv, in order."""

    depth: int
    bound_hz: float
    simulated: tuple[Simulated, ...]


def depth_curve(
    network: Network, depths: Sequence[int], cvs: Sequence[float] = (0.0, 1.0), steps: int = 2000, seed: int = 0
) -> tuple[DepthPoint, ...]:
    """Bound and simulations at each depth."""
    return tuple(
        DepthPoint(depth, bound_hz(network, depth), tuple(simulate(network, depth, cv, steps, seed) for cv in cvs))
        for depth in depths
    )
