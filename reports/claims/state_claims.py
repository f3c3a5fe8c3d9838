"""Judge Fig. 1 of [Zhang2021], hours of training over the size of a state, by the seconds of a training step."""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from dse.drift import drift
from dse.records import Record
from dse.times.cells import workloads
from impls.training import Workload

from .claims import UNTESTED, Claim, unmeasured
from .quoted import NOTHING, Quoted

PAPER, ORDER = "[Zhang2021]", 5


def verdicts(records: Sequence[Record], _: Quoted = NOTHING) -> list[Claim]:
    """Judge that training takes longer with a larger state, by every workload that was profiled."""
    text = "Training takes longer the larger the state is, here of a step (I, Fig. 1)."
    longer = "confirmed if it takes longer in every environment of a larger state, refuted if shorter in one"
    rule = f"{longer}, by more than a machine's times change from one run to another"
    profiled = [one for one in records if one.primitive == "training" and one.median_seconds]
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    for (name, identity), workload in workloads(profiled).items():
        own = [one for one in profiled if one.options.get("identity") == identity]
        if workload and (seconds := _step_seconds(workload, own)):
            steps[math.prod(workload.observation.stacked)][name] = seconds
    if len(steps) < 2:
        lacks = "no steps with states of two sizes are on record"
        return [unmeasured(text, rule, lacks, "profile --workload hopper_ddpg", "records")]
    sizes = sorted(steps)
    least = min(math.log(min(steps[large].values()) / max(steps[small].values())) for small, large in pairwise(sizes))
    apart = drift(records).half_width(0.0)
    verdict = "confirmed" if least > apart else "refuted" if least < -apart else UNTESTED
    told = {size: ", ".join(f"{name} {1e3 * each:.2f} ms" for name, each in steps[size].items()) for size in sizes}
    evidence = (
        "measured: an environment step with the gradient steps that go with it, one core, by numbers of a state: "
        f"{'; '.join(f'{size:,}: {told[size]}' for size in sizes)}; from a size to the next at least "
        f"{math.expm1(least):+.0%}. Networks and batches grow with the state, too, and how many steps it takes until "
        "they have learned is another matter"
    )
    power = f"runs of this machine are up to {math.expm1(apart):.0%} apart in 95 % of cases"
    return [Claim(text, verdict, evidence, rule, power)]


def _step_seconds(workload: Workload, own: Sequence[Record]) -> float | None:
    """Return the seconds of an environment step and its share of a gradient step, by torch; None if one is missing."""
    taken = {
        (one.contestant, one.op, one.batch): one.seconds
        for one in own
        if one.threads == 1 and one.options.get("learner", "torch") == "torch"
        if not {"beside", "environments"} & one.options.keys()
    }
    acting, learning = (taken.get(part) for part in (("actor", "step", 1), ("learner", "step", workload.learner.batch)))
    return acting + learning / workload.learner.update_interval if acting and learning else None
