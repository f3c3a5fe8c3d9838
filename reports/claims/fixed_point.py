"""Compute what fixed-point leaves change: samples by the leaves of the FPGA's twin, against float64 probabilities.

The twin's descent is exact (its own tests), so a leaf's chance is its stored value over the sum of all. Samples are
multinomial by those chances, not by descents, and Pearson's chi-square asks whether they could come from the float64
ones. More leaves or more samples tell the two apart at more bits.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import impls

CAPACITY = 1 << 16
DRAWS = 1 << 22
LEVEL = 0.001
"""Significance: a p-value at most this fails."""
LEAST_EXPECTED = 5.0
"""Leaves that expect fewer samples are counted together."""
WIDTHS: tuple[int, ...] = (*range(6, 25), 28, 32, 36, 40)
URAM_BITS = 36
"""Width of a leaf, two of which fill a row of UltraRAM."""
SKEWS = {"uniform": 0.0, "rank^-0.2": 0.2, "rank^-0.6": 0.6, "rank^-1.0": 1.0}
"""Priorities: uniform on [0, 1), or the leaf of rank r holds r^-exponent, as proportional PER gives it with alpha."""

Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """A test of one width and skew.

    ``lost``: probability of the leaves stored as 0; ``zeros``: how many of them there are. ``needed``: samples at which
    the expected statistic reaches the critical value, so that about half of all tries see the difference; inf where
    nothing is rounded.
    """

    skew: str
    leaf_bits: int
    fraction_bits: int
    p_value: float
    zeros: int
    lost: float
    needed: float

    @property
    def passes(self) -> bool:
        """True where the samples look like those of float64."""
        return self.p_value > LEVEL


@functools.cache
def priorities(skew: str, capacity: int = CAPACITY) -> Reals:
    """Compute the leaves ``[N]`` of a skew, before they are stored."""
    exponent = SKEWS[skew]
    if not exponent:
        return np.random.default_rng(capacity).random(capacity)
    return np.arange(1.0, capacity + 1) ** -exponent


def stored(leaves: Reals, leaf_bits: int) -> tuple[Reals, int]:
    """Round leaves to ``leaf_bits``: (stored values ``[N]``, fraction_bits, the most that still hold the largest)."""
    most = (1 << leaf_bits) - 1
    largest = float(leaves.max())
    fraction_bits = math.floor(math.log2(most / largest)) + 1
    # Invariant: no larger number of fraction bits holds the largest leaf.
    while np.rint(math.ldexp(largest, fraction_bits)) > most:
        fraction_bits -= 1
    tree = impls.make("fpga", leaves.size, dtype="float64", leaf_bits=leaf_bits, fraction_bits=fraction_bits)
    rounded: Reals = tree.rounded(leaves)
    return rounded, fraction_bits


def lost(skew: str, leaf_bits: int, capacity: int) -> tuple[int, float]:
    """Return (leaves of positive priority stored as 0, their probability)."""
    leaves = priorities(skew, capacity)
    kept, _ = stored(leaves, leaf_bits)
    gone = (kept == 0) & (leaves > 0)
    return int(gone.sum()), float(leaves[gone].sum() / leaves.sum())


def fits() -> tuple[Fit, ...]:
    """Test every skew and width."""
    return tuple(fit_of(skew, bits) for skew in SKEWS for bits in WIDTHS)


@functools.cache
def fit_of(skew: str, leaf_bits: int) -> Fit:
    """Test one skew and width."""
    from scipy.stats import chi2  # noqa: PLC0415  # heavy

    leaves = priorities(skew)
    kept, fraction_bits = stored(leaves, leaf_bits)
    wanted, chances = leaves / leaves.sum(), kept / kept.sum()
    counts = np.random.default_rng(DRAWS).multinomial(DRAWS, chances).astype(np.float64)
    seen, expected = _pooled(counts, DRAWS * wanted), _pooled(DRAWS * wanted, DRAWS * wanted)
    statistic = float(((seen - expected) ** 2 / expected).sum())
    freedom = leaves.size - 1
    beyond = float(chi2.isf(LEVEL, freedom)) - freedom  # of what is expected where nothing differs
    distance = float(((chances - wanted)[wanted > 0] ** 2 / wanted[wanted > 0]).sum())
    gone = (kept == 0) & (leaves > 0)
    p_value, needed = float(chi2.sf(statistic, seen.size - 1)), beyond / distance if distance else math.inf
    return Fit(skew, leaf_bits, fraction_bits, p_value, int(gone.sum()), float(wanted[gone].sum()), needed)


def _pooled(values: Reals, expected: Reals) -> Reals:
    """Sum values by leaf, those of leaves that expect few samples as one."""
    few = expected < LEAST_EXPECTED
    return np.append(values[~few], values[few].sum()) if few.any() else values


def least_bits(skew: str) -> int:
    """Find the smallest width from which on every wider one passes too."""
    failing = [fit.leaf_bits for fit in fits() if fit.skew == skew and not fit.passes]
    return min(bits for bits in WIDTHS if bits > max(failing, default=0))
