"""The importance weights of a batch from several replays, compiled."""

import math
from typing import Any

from ..replay.sampling import power_of_ratio
from ..sumtree.compiling import kept_njit


@kept_njit(nogil=True)
def weigh(ratios: Any, priorities: Any, beta: float, weights: Any) -> None:
    """Write ``weights [B]``, in proportion to ratio * priority^-beta, divided by their largest.

    ``ratios [B]`` are P(i) / Q(i): the probability of a record in one tree over all, by that with which it was drawn.
    """
    best, most = 0, -math.inf
    for j in range(ratios.size):
        # Invariant: of the records before j, ``best`` has the largest weight, whose logarithm is ``most``. Where ratios
        # are equal, priorities decide, as in one tree, with no rounding of a logarithm between.
        size = math.log(ratios[j]) - beta * math.log(priorities[j])
        is_larger = priorities[j] < priorities[best] if ratios[j] == ratios[best] else size > most
        if j == 0 or is_larger:
            best, most = j, size
    for j in range(ratios.size):
        if ratios[j] == ratios[best]:
            weights[j] = power_of_ratio(priorities[best] / priorities[j], beta)
        else:
            weights[j] = math.exp(math.log(ratios[j]) - beta * math.log(priorities[j]) - most)
