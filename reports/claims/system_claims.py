"""Judge claims of [Zhang2023] about whole systems: threads, batches sampled ahead, RLlib's loop, units, the mapping."""

from collections.abc import Iterator, Sequence

import numpy as np

from dse import learning_runs
from dse.records import Record

from . import mapping_loss, seeds
from .claims import UNTESTED, Claim, Verdict, unmeasured
from .quoted import NOTHING, Quoted

PAPER, ORDER = "[Zhang2023]", 3
TASKS = ("cartpole_dqn", "cartpole_ddpg")  # the second is that of [Zhang2023]
TORCH = "fanout_torch"
LARGE = 16_384  # B from which threads share a batch
SCALES, ALIKE = 1.25, 0.1  # the least speedup by two threads; a change that counts as none
OPTIMUM, MOST = 0.05, 0.95  # how near to the best mapping, and on how many tables
LIKELY = "each ratio has the noise of its run, which is far below the bounds"


def verdicts(records: Sequence[Record], _: Quoted = NOTHING) -> list[Claim]:
    """Judge them by the newest records of each, and by random tables of times."""
    return [*_threads(records), *_sampled_ahead(records), _another_loop(records), _units(records), _near_the_best()]


def _untested(text: str, rule: str, topic: str) -> Claim:
    return unmeasured(text, rule, "no such records are on this machine", topic, "records")


def _threads(records: Sequence[Record]) -> Iterator[Claim]:
    """Judge that sampling scales with threads, and updates do not: numba's tree, two threads to one, at a large B."""
    times = {
        (one.op, one.capacity, one.batch, one.fanout, one.threads): one.seconds
        for one in records
        if (one.primitive, one.contestant, one.status) == ("sum_tree", "numba", "ok")
        and one.dtype == "float32" and not one.options and one.batch >= LARGE
    }  # fmt: skip
    for op, text, bound in (
        ("draw", "Sampling scales with the threads of a CPU (VII-C, Fig. 12).", f"are above {SCALES}"),
        ("update", "Updates do not scale with threads of a CPU (VII-C, Fig. 12).", f"are within {ALIKE} of 1"),
    ):
        ratios = {
            key[1:3]: times[(*key[:4], 1)] / times[key]
            for key in times
            if key[0] == op and key[4] == 2 and (*key[:4], 1) in times
        }
        rule = f"confirmed if all ratios of one thread's time to that of two, B of at least {LARGE:,}, {bound}"
        if not ratios:
            yield _untested(text, rule, "sweep --preset quick")
            continue
        holds = [ratio > SCALES if op == "draw" else abs(ratio - 1) < ALIKE for ratio in ratios.values()]
        said = ", ".join(f"{ratio:.2f}x at N = {n:,}, B = {b:,}" for (n, b), ratio in sorted(ratios.items()))
        own = "; but ours has one thread update, whatever it is given" if op == "update" else "; there are two cores"
        agrees: Verdict = UNTESTED if op == "update" else "confirmed"
        yield Claim(
            text, agrees if all(holds) else "refuted", f"measured: {said}{own}", f"{rule}; refuted otherwise", LIKELY
        )


def _sampled_ahead(records: Sequence[Record]) -> Iterator[Claim]:
    """Judge what D = 50 and D = 200 cost, by environment steps until CartPole is solved, compared with D = 1."""
    found = learning_runs.metrics_of(learning_runs.latest(records))
    steps = {kind: metrics["sample_efficiency"] for kind, metrics in found.items()}
    few, many = (
        {
            f"{task}, D = {depth} to D = 1": seeds.ratio_of(
                *(steps.get((task, f"pipelined, D = {each}"), {}) for each in (depth, 1))
            )
            for task in TASKS
        }
        for depth in (50, 200)
    )
    what, of = "environment steps", "until CartPole is solved"
    yield seeds.judge("D = 200 hurts learning (VII-B, Fig. 10).", what, many, of, 1, "depths")
    claim, text = seeds.judge("", what, few, of, 1, "depths"), "D = 50 hardly changes learning (VII-B, Fig. 10)."
    opposite: dict[Verdict, Verdict] = {"confirmed": "refuted", "refuted": "confirmed"}
    rule = "refuted if every interval of a ratio lies above 1, confirmed if one lies below; otherwise none is told"
    yield Claim(text, opposite.get(claim.verdict, UNTESTED), claim.evidence, rule, claim.power)


def _another_loop(records: Sequence[Record]) -> Claim:
    """Judge the throughput compared with RLlib's own loop."""
    text = "Training is 1.06 to 1,005 times faster than RLlib's (Fig. 14)."
    rule = "confirmed if the ratio lies within at every batch B"
    loops = {
        (one.batch, one.contestant): one.seconds
        for one in records
        if one.primitive == "loop_peer" and one.op == "clean" and one.median_seconds is not None
        if one.options["environments"] == 1
    }
    ratios = {
        batch: (loops[batch, "rllib"] / loops[batch, TORCH], loops[batch, "rllib"] / loops[batch, "fanout"])
        for batch, name in sorted(loops)
        if name == "rllib" and (batch, TORCH) in loops and (batch, "fanout") in loops
    }
    if not ratios:
        return _untested(text, rule, "run loops --batches 32,128,512")
    by_batch = "; ".join(f"B = {batch:,}: {torch:.1f}x, {dense:.0f}x" for batch, (torch, dense) in ratios.items())
    said = f"measured: CartPole, one core each, by torch as theirs and by our compiled learner: {by_batch}"
    holds = all(1.06 <= torch <= 1005 for torch, _ in ratios.values())
    said += "; theirs had a GPU and an FPGA"
    return Claim(text, "confirmed" if holds else "refuted", said, f"{rule}; refuted otherwise", LIKELY)


def _units(records: Sequence[Record]) -> Claim:
    """Judge whether one keeper of tree and records holds a run up, for which they would be two units."""
    text = "The replay is two units, priorities and data storage, each with queues (Fig. 7, Table II)."
    rule = "confirmed if the one keeper of both is a run's busiest process in any run; refuted otherwise"
    reports = [one.metrics["report"]["waited"] for one in records if one.options.get("arrangement") == "pipelined"
               and one.primitive == "training arrangement" and "report" in one.metrics]  # fmt: skip
    waits = [(each.pop("keeper-0"), min(each.values())) for each in map(dict, reports)]
    if not waits:
        return _untested(text, rule, "run arrangements")
    holds = any(keeper <= others for keeper, others in waits)
    said = (
        f"measured: of {len(waits)} pipelined runs a process that keeps both waits {min(waits)[0]:.0%} of the time or "
        f"more; it is the one that waits least in {sum(keeper <= others for keeper, others in waits)} of them"
    )
    return Claim(text, "confirmed" if holds else "refuted", said, rule, "waiting is counted, not sampled")


def _near_the_best() -> Claim:
    """Judge the mapping's distance from the best by random tables of times, for its own are not printed."""
    tables = mapping_loss.ratios(*mapping_loss.random_tables())
    near = {name: float(np.mean(ratio <= 1 + OPTIMUM)) for name, ratio in tables.items()}
    said = ", ".join(f"{name} {share:.1%}" for name, share in near.items())
    return Claim(
        f"The mapping found is within {OPTIMUM:.0%} of the optimum (VII-D, Fig. 13).",
        "adds up" if min(near.values()) >= MOST else UNTESTED,
        f"computed: so near, of {mapping_loss.TABLES:,} random tables of times, by reading of its Algorithm 3: {said}; "
        "the times behind Fig. 13 are not printed",
        f"adds up if every reading is so near on {MOST:.0%} of the tables; otherwise undecided, for a mapping of three "
        "benchmarks may be",
        "the share of random tables is known within a tenth of a percent",
    )
