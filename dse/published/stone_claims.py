"""Judge the claims of [StoneSachdev] about concurrent training in Python: one by records, the rest was not run.

Its four figures have no numbers in the text, its code is not to be had, and what it trains takes hours a seed.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

from .. import learning_runs
from ..records import Measurement
from .claims import Claim, not_run
from .noise import LEVEL, Noise, noise_of, own_sigma
from .quoted import NOTHING, Quoted

PAPER, ORDER = "[StoneSachdev]", 1
SHARED = "peer_shared"
MISSED = 0.8
"""Where power is stated: the time of two threads over that of one."""
SEVERAL = (
    "actor-learners, each with an environment and a replay of its own, and several seeds of LunarLander until solved"
)


def verdicts(records: Sequence[Measurement], quoted: Quoted = NOTHING) -> list[Claim]:
    """Judge that threads share one core, and list what was not run."""
    return [_threads_share_a_core(records), *_not_run(records, quoted)]


def _threads_share_a_core(records: Sequence[Measurement]) -> Claim:
    text = "Threads of one Python process take turns on a single core (IV-A)."
    timed = [record for record in records if record.median_seconds is not None]
    noise, pairs = noise_of(timed, "peer"), _pairs(timed)
    rule = (
        "refuted if samples from one shared tree are clearly faster by two threads than by one for some implementation "
        f"(one-sided tests, {LEVEL:.0%} for all together); confirmed if for none"
    )
    if not pairs or not noise.pairs:
        evidence = "no tree shared by threads was timed in a run with A/A twins; to measure it: make peers"
        return Claim(text, "not testable here", evidence, rule, "none: it takes a noise that was not measured")
    limit = noise.critical(len(pairs))
    faster = {
        name: one.seconds / two.seconds
        for name, (one, two) in pairs.items()
        if math.log(one.seconds / two.seconds) > limit * _sigma(one, two, noise)
    }
    said = ", ".join(f"{name} {gain:.2f}x" for name, gain in faster.items()) or "none"
    python = pairs.get("python")
    alone = f". Pure Python: {python[0].seconds / python[1].seconds:.2f}x" if python else ""
    power = _student_miss(noise, limit)
    return Claim(
        text,
        "refuted" if faster else "confirmed",
        f"clearly faster by two threads, {len(faster)} of {len(pairs)} implementations: {said}{alone}. Native code may "
        "release the interpreter's lock, code in Python cannot",
        rule,
        f"where no thread helps one is refuted in at most {LEVEL:.0%} of cases; one implementation that takes "
        f"{MISSED:g} of the time is missed in {power:.0%} ({noise})",
    )


def _student_miss(noise: Noise, limit: float) -> float:
    """Compute the chance that a gain is not seen, where timings are as noisy as the run's A/A twins."""
    distance = -math.log(MISSED) / noise.sigma if noise.sigma else math.inf
    return 0.5 * math.erfc((distance - limit) / math.sqrt(2))


def _sigma(one: Measurement, two: Measurement, noise: Noise) -> float:
    return math.hypot(noise.sigma, own_sigma(one), own_sigma(two))


def _pairs(timed: Sequence[Measurement]) -> dict[str, tuple[Measurement, Measurement]]:
    """Select the times of one and two threads, of one run, by implementation with default options."""
    times: dict[tuple[str, str, str], dict[int, Measurement]] = defaultdict(dict)
    for record in timed:
        if record.primitive == SHARED and not record.options:
            times[record.contestant, record.dtype, record.command][record.threads] = record
    several = [name for name, *_ in times]
    return {
        name if several.count(name) == 1 else f"{name} {dtype}": (both[1], both[2])
        for (name, dtype, _), both in sorted(times.items())
        if {1, 2} <= both.keys()
    }


def _not_run(records: Sequence[Measurement], quoted: Quoted) -> list[Claim]:
    """List what would take processes that each act and train."""
    best = quoted.table("stonesachdev.best")
    fewer, more = (f"{best[name]:g}" if name in best else "?" for name in ("fewer", "more"))
    beside = learning_runs.told(records)
    several = (
        "DQN and A3C train in fewer episodes with more processes (IV-F, Fig. 1).",
        "An episode takes longer with more processes (IV-F, Fig. 2).",
        f"Training takes the least time with {fewer} or {more} processes (IV-F, Fig. 3).",
        "Any number of processes trains faster than one (IV-F, Fig. 4).",
        "Updates without locks are faster than a parameter server or a global lock, if they are limited (IV-C).",
    )
    return [
        *(not_run(text, "no run has actor-learners", SEVERAL, beside) for text in several),
        not_run(
            "Operations on PyTorch's shared memory are slower than on private memory (IV-B).",
            "no operation on a tensor was timed before and after share_memory_()",
            "one such operation, in alternation",
        ),
        not_run(
            "Dyna-Q needs more than three processes (IV-F).",
            "no world model is trained here",
            f"a world model, and {SEVERAL}",
        ),
    ]
