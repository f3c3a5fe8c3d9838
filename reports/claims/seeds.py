"""Judge claims by ratios of what two kinds of training runs need, seed by seed, with intervals over seeds."""

import math
from collections.abc import Mapping

from dse.learning_runs import Value
from dse.stats import interval_over_seeds

from .claims import Claim, Verdict, unmeasured

POWER = "a ratio whose interval has 1 inside is told as no difference: about 1 in 20 of those that are none is not"
Ratio = tuple[float, ...]  # median, and the ends of its interval; empty of fewer seeds than an interval takes


def ratio_of(own: Mapping[int, Value], its: Mapping[int, Value]) -> Ratio:
    """Compute the ratio of what runs need to what others need; what was not solved is infinite.

    A seed that neither solved has no ratio.
    """
    numbers = [{seed: math.inf if one.is_beyond else one.number for seed, one in each.items()} for each in (own, its)]
    ratios = [numbers[0][seed] / numbers[1][seed] for seed in numbers[0] if seed in numbers[1]]
    return interval_over_seeds([ratio for ratio in ratios if not math.isnan(ratio)])


def tell(ratios: Mapping[str, Ratio]) -> str:
    """Tell ratios, by what they are of, with their intervals."""
    return "; ".join("{}: {} [{}, {}]".format(name, *map(_times, ratio)) for name, ratio in ratios.items() if ratio)


def judge(text: str, name: str, ratios: Mapping[str, Ratio], of: str, sign: int, only: str) -> Claim:
    """Judge that every ratio is above 1 (``sign`` 1) or below (-1); ``only``: such runs for ``benchmarks learning``."""
    found = [ratio for ratio in ratios.values() if ratio]
    asked, contrary = ("above 1", "below 1")[::sign]
    rule = (
        f"confirmed if every interval of {name}, {of} by the same seed, lies {asked}; refuted if one lies "
        f"{contrary}; otherwise undecided"
    )
    if not found:
        return unmeasured(text, rule, "no 5 seeds of such runs are on record", f"run learning --only {only}", "records")
    above, below = [low > 1 for _, low, _ in found], [high < 1 for _, _, high in found]
    holds, fails = (above, below)[::sign]
    verdict: Verdict = "confirmed" if all(holds) else "refuted" if any(fails) else "not testable here"
    said = f"ratios with their 95 % intervals over seeds, {of}: {name}: {tell(ratios)}"
    return Claim(text, verdict, said, rule, POWER)


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if math.isfinite(ratio) else "never solved"
