"""Compute values of claims on the entropy of model rollouts [Zhang2022, ch. 3], exactly, over random model datasets.

A dataset has C records: N of them in each of a few states, where actions are Gaussian with a diagonal covariance,
fitted by maximum likelihood. After a record is added, all is fitted anew. Letters: d numbers of an action.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .judge import Finding
from .quoted import Quoted

SEED, CASES, PAIRS = 20220802, 500, 64
STATES, FEWEST, MOST = 4, 2_000, 20_000  # records of a state
Reals = NDArray[np.float64]


def gain_entropy(counts: Reals, widths: Reals, states: NDArray[np.int64], far: Reals, is_counted: bool) -> Reals:
    """Compute C times the gain ``[n]`` of joint entropy by each of n pairs alone, without an approximation.

    ``counts [S]`` and ``widths [S, d]`` are the records and deviations of states; a pair has a state and an action
    ``far [n, d]`` deviations from the mean there. ``is_counted``: the pair counts in p(s); else p(s) stays as it was.
    """
    number, own = counts[states][:, None], np.eye(len(counts))[states]
    wider = np.log(number / (number + 1) * (1 + far**2 / (number + 1))).sum(1) / 2  # the fifth line of Eq. 3.2
    added = counts + is_counted * own
    before, after = (shares / shares.sum(-1, keepdims=True) for shares in (counts, added))
    of_state = np.log(widths).sum(1) + widths.shape[1] / 2 * np.log(2 * np.pi * np.e)
    first, second = ((shares * (of_state - np.log(shares))).sum(-1) for shares in (before, after))
    gains: Reals = counts.sum() * (second - first + (after * own).sum(1) * wider)
    return gains


def pick_pairs(_: Quoted, sizes: Sequence[int], is_counted: bool) -> Finding:
    """Compute in what share of cases the pair that Eq. 3.5 picks raises the joint entropy most, by d.

    Where an action has several numbers, the product of deviations stands for sigma, and sqrt(2 pi)^d for sqrt(2 pi).
    """
    parts, facts = dict[str, float](), dict[str, float | str]()
    for size in sizes:
        rng, found = np.random.default_rng([SEED, size]), list[tuple[bool, float]]()
        for _case in range(CASES):
            counts, widths = rng.integers(FEWEST, MOST, STATES).astype(float), rng.uniform(0.2, 2.0, (STATES, size))
            far, states = rng.normal(size=(PAIRS, size)), rng.integers(STATES, size=PAIRS)
            gains, printed = gain_entropy(counts, widths, states, far, is_counted), (far**2).sum(1) / 2
            best = printed.argmax()
            found.append((gains.argmax() == best, printed[best] - gains[best]))
        parts[f"d = {size}"] = float(np.mean([is_best for is_best, _ in found]))
        facts[f"C times what Eq. 3.4 gives too much, d = {size}"] = float(np.median([error for _, error in found]))
    return Finding.exact(parts, facts=facts)
