"""Judge the claims of [Hou2023] about its framework by its own tables, and Pendulum's seconds by runs of our own.

Theirs took a GPU, six robots' environments and three other frameworks. What is printed can still be checked by the
rest of it.
"""

import dataclasses
import itertools
import statistics
from collections.abc import Mapping, Sequence

from dse import learning_runs
from dse.records import Record
from impls.training import load
from impls.training.weights import split_macs

from . import seeds
from .claims import EXACT, Claim, adds_up_if, consistent_if, not_run, within
from .quoted import Quoted

PAPER, ORDER = "[Hou2023]", 1
OURS = "spreeze"
GRID = ("training adaptation", "grid")  # the primitive and op of pairs measured besides a search
AVERAGE = "average"
LEARNS = "cartpole_dqn"
PENDULUM, LIBRARIES = "pendulum_sac", ("rllib", "sb3", "tianshou")
SPLIT = "hopper_sac"  # the workload whose actor and critic are parted
DIGIT = 0.05 + 1e-9
"""Half of the last digit of a number with one decimal."""
PERCENT = 0.5
"""Half of a percentage point."""
MAGNITUDE = 10**0.5
"""The least ratio that rounds to an order of magnitude."""
IDENTITY = 0.12
"""Relative error of a product of two printed numbers, one of which has a single digit."""


def verdicts(records: Sequence[Record], quoted: Quoted) -> list[Claim]:
    """Judge the tables of time, throughput and transfers, and list what was not run. RecordError if not quoted."""
    tables = [_average(quoted), _time_saved(quoted), _order_of_magnitude(quoted), _frames(quoted), _queue_cycle(quoted)]
    return [*tables, *_not_run(records, quoted), _solves_sooner(records, quoted)]


def _times(quoted: Quoted, framework: str) -> dict[str, float]:
    """Select the seconds of a framework in Table 1 by environment."""
    return {name: time for name, time in quoted.table(f"hou2023.table_1.{framework}").items() if name != AVERAGE}


def _average(quoted: Quoted) -> Claim:
    said, right = [], True
    for framework in (OURS, "rllib"):
        times, printed = _times(quoted, framework), quoted[f"hou2023.table_1.{framework}.{AVERAGE}"]
        mean = sum(times.values()) / len(times)
        right &= abs(mean - printed) <= DIGIT
        said.append(
            f"{framework}'s {len(times)} times have the mean {mean:,.1f}, printed {printed:,.1f}, which is their sum "
            f"over {sum(times.values()) / printed:.2f}"
        )
    return Claim(
        f"It solves a task in {quoted[f'hou2023.table_1.{OURS}.{AVERAGE}']:g} s on average, RLlib in "
        f"{quoted[f'hou2023.table_1.rllib.{AVERAGE}']:g} s (Table 1).",
        adds_up_if(right),
        f"arithmetic: {'; '.join(said)}",
        "adds up if both are the means of their columns as printed, refuted otherwise",
        EXACT,
    )


def _time_saved(quoted: Quoted) -> Claim:
    printed, ours = quoted["hou2023.time_save.percent"], _times(quoted, OURS)
    others = [_times(quoted, framework) for framework in ("rllib", "acme", "rlpyt")]
    best = {name: min(times[name] for times in others if name in times) for name in ours}
    saved = {name: 100 * (1 - time / best[name]) for name, time in ours.items()}
    count, total = int(quoted["hou2023.time_save.over.environments"]), sum(saved.values())
    means = [statistics.fmean(chosen) for chosen in itertools.combinations(saved.values(), count)]
    near = sum(abs(mean - printed) <= PERCENT for mean in means)
    in_all = 100 * (1 - sum(ours.values()) / sum(best.values()))
    said = ", ".join(f"{name} {percent:.1f}" for name, percent in saved.items())
    return Claim(
        f"Training time is reduced by {printed:g} % on average against the best of three frameworks (4.2.1, Table 1).",
        consistent_if(near > 0),
        f"arithmetic on its own Table 1, nothing was run: in percent, {said}. The table says {count} environments and "
        f"has {len(saved)}: means of {count} go from {min(means):.1f} to {max(means):.1f}, that of all is "
        f"{total / len(saved):.1f}. By total time it would be {in_all:.0f} %",
        f"consistent if {count} of Table 1's environments have a mean within {PERCENT:g} of the number, refuted if no "
        f"{count} have: which are meant is not printed, so they were chosen",
        f"of {len(means)} choices of {count} environments {near} passes; one of other numbers seldom would",
    )


def _rows(quoted: Quoted) -> dict[str, Mapping[str, float]]:
    """Select the rows of Table 2."""
    prefix = "hou2023.table_2."
    names = dict.fromkeys(name.removeprefix(prefix).split(".")[0] for name in quoted.numbers if name.startswith(prefix))
    return {name: quoted.table(prefix + name) for name in names}


def _order_of_magnitude(quoted: Quoted) -> Claim:
    rows = _rows(quoted)
    ratios = {}
    for column, what in (("sampled", "experience sampling"), ("frames", "network update frames")):
        ours, theirs = (
            max(row[column] for name, row in rows.items() if name.startswith(OURS) is own) for own in (True, False)
        )
        ratios[what] = ours / theirs
    return Claim(
        "Sampling and update rates are an order of magnitude higher than those of other frameworks (abstract, Table "
        "2).",
        adds_up_if(min(ratios.values()) >= MAGNITUDE),
        "arithmetic on its own Table 2, nothing was run: its best row over the best of others, "
        + ", ".join(f"{what} {ratio:.2f}x" for what, ratio in ratios.items()),
        f"adds up if both ratios are at least {MAGNITUDE:.2f}, which rounds to an order of magnitude, refuted "
        "otherwise",
        EXACT,
    )


def _frames(quoted: Quoted) -> Claim:
    off = {name: row["updates"] * row["batch"] / row["frames"] for name, row in _rows(quoted).items()}
    wrong = {name: ratio for name, ratio in off.items() if abs(ratio - 1) > IDENTITY}
    said = ", ".join(f"{name} {ratio:.3g}x" for name, ratio in wrong.items()) or "none"
    return Claim(
        "The network update frame rate is the update frequency times the batch (4.2.2, Table 2).",
        adds_up_if(not wrong),
        f"arithmetic on its own Table 2: {len(off) - len(wrong)} of {len(off)} rows agree; not so: "
        f"{said}{_swapped(quoted)}",
        f"adds up if the product is within {IDENTITY:.0%} of the rate in every row, refuted otherwise",
        within(IDENTITY),
    )


def _swapped(quoted: Quoted) -> str:
    """Say what ACME's rows are with their batches exchanged."""
    small, large = (quoted.table(f"hou2023.table_2.acme_{batch}") for batch in (256, 8192))
    ratios = [row["updates"] * other["batch"] / row["frames"] for row, other in ((small, large), (large, small))]
    return f". With the batches of ACME's two rows exchanged they are {ratios[0]:.2f}x and {ratios[1]:.2f}x"


def _queue_cycle(quoted: Quoted) -> Claim:
    hz = quoted["hou2023.queue.queue_hz"]
    rates = {int(size): 1 / cycle for size, cycle in quoted.table("hou2023.table_3.cycle_seconds").items()}
    near = [size for size, rate in rates.items() if abs(rate - hz) <= DIGIT * hz]
    said = ", ".join(f"{rate:.3f} Hz at {size:,}" for size, rate in rates.items())
    return Claim(
        f"A queue transfers experience at {hz:g} Hz (3.3.2).",
        consistent_if(bool(near)),
        f"arithmetic on its own Table 3: {said}; the size meant is not printed, and larger queues are slower",
        f"consistent if a size of Table 3 has that rate within {DIGIT:.0%}, refuted if none has: the size was chosen",
        f"of {len(rates)} sizes {len(near)} passes; a rate between theirs would not",
    )


def _queues_learn_worse(records: Sequence[Record]) -> Claim:
    found = learning_runs.metrics_of(learning_runs.latest(records))
    shared, *queues = (
        found.get((LEARNS, kind), {}).get("sample_efficiency", {}) for kind in ("apart", "apart, queue", "apart, fill")
    )
    ratios = {
        name: seeds.ratio_of(steps, shared)
        for name, steps in zip(("a queue to shared memory", "a queue that fills"), queues, strict=True)
    }
    text = "A queue of any size trains worse than shared memory (4.2.3, Fig. 6a)."
    return seeds.judge(text, "environment steps", ratios, f"until {LEARNS} is solved", 1, "apart,transports")


def _solves_sooner(records: Sequence[Record], quoted: Quoted) -> Claim:
    """Judge Table 1's Pendulum, to a mean return of -200 in both, by our loop and those of libraries."""
    found = learning_runs.metrics_of(learning_runs.latest(records))
    ours, *others = (found.get((PENDULUM, kind), {}).get("time_to_solve", {}) for kind in ("serial", *LIBRARIES))
    ratios = {f"{name} to ours": seeds.ratio_of(each, ours) for name, each in zip(LIBRARIES, others, strict=True)}
    times = [quoted[f"hou2023.table_1.{name}.Pendulum"] for name in (OURS, "rlpyt", "rllib")]
    text = "Pendulum takes {:g} s until solved, by other frameworks {:g} to {:g} s (Table 1).".format(*times)
    only = f"serial,libraries --workload {PENDULUM}"
    claim = seeds.judge(text, "seconds", ratios, f"until {PENDULUM} is solved", 1, only)
    alike = (
        "; SAC of one network and batch, a core each, where theirs had 12 and a GPU; of its frameworks RLlib is here"
    )
    return dataclasses.replace(claim, evidence=claim.evidence + alike) if any(ratios.values()) else claim


def _not_run(records: Sequence[Record], quoted: Quoted) -> list[Claim]:
    """List what would take their processes, environments or GPUs."""
    gpus = quoted["hou2023.two_gpus.lost_percent"]
    policy, critics = split_macs(load(SPLIT))
    share = critics / (policy + critics)
    pairs = sum((one.primitive, one.op) == GRID and one.median_seconds is not None for one in records)
    searched = (
        f"{pairs} pairs of samplers and batch were measured while CartPole trained, each once, so that a dip between "
        "them may be noise"
        if pairs
        else "on this machine the search was replayed on modeled rates alone, which are unimodal by construction"
    )
    return [
        _queues_learn_worse(records),
        not_run(
            "Samplers and batch may be searched apart, for the rate of either is unimodal (3.4.2).",
            searched,
            "rates of every pair measured twice in one run",
        ),
        not_run(
            f"With one GPU for actor and critic updates are about {gpus:g} % slower than with two (4.2.3, Fig. 6c).",
            f"no machine here has two GPUs; by multiply-adds critics have {share:.0%} of a step of {SPLIT}, so "
            f"that two devices save less than {1 - share:.0%} (computed)",
            f"two GPUs; without any: python -m impls.training train {SPLIT} --split",
        ),
        not_run(
            "The batch and samplers that it finds train best (4.2.3, Fig. 7), on a server and a laptop too (4.2.4, "
            "Fig. 8).",
            "training to a return takes hours a seed, and its environments are not among ours",
            "its environments and five seeds a setting",
        ),
    ]
