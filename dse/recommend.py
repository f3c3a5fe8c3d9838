"""Which tree, which K, how many threads for this N and B: an answer from records, with what it rests on.

A training step is one draw of B leaves and R updates of B leaves. Every configuration measured gets a time for the
asked (N, B) from ``tables.py``, with its uncertainty; from these come ties, regret and the probability of being best.
"""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import machines, stats
from .modeled import Modeled, fastest
from .records import RecordError
from .tables import Estimate, Question, Table

QUESTIONS_FILE = "questions.jsonl"  # what answers are tested with: never what they rest on
CLOSE_ENOUGH = 0.02  # a tie within so much goes to fewer threads


@dataclass(frozen=True)
class Recommendation:
    """The answer. ``regret_95``: at 95 % confidence the choice costs at most this fraction more than the best one.

    ``modeled``: the fastest of what only a model knows. It is never the choice, for nobody has timed it here.
    ``machine_note``: the sentence that says so where ``machine`` is not the one asked about, but the nearest with
    records; else "". ``results``: the folder that was read, as it was given.
    """

    question: Question
    choice: Estimate
    ties: tuple[Estimate, ...]
    runner_up: Estimate | None
    regret_95: float
    probability_best: float
    noise_floor: float
    machine: str
    rests_on: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    modeled: Modeled | None = None
    machine_note: str = ""
    results: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def recommend(
    capacity: int,
    batch: int,
    updates_per_sample: float = 1.0,
    threads: int | None = None,
    dtype: str = "float32",
    distribution: str = "uniform",
    results: Path = Path("results"),
    machine: str | None = None,
) -> Recommendation:
    """The best configuration for N leaves and batches of B on a machine (default: this one, or the nearest swept one).

    ``threads`` bounds the threads (default: the machine's cores). RecordError if the results cannot answer; ValueError
    for a question outside any sense.
    """
    for what, value, least in (("capacity", capacity, 1), ("batch", batch, 1), ("threads", threads, 1)):
        if value is not None and value < least:
            raise ValueError(f"{what} must be at least {least}, not {value}")
    if not (updates_per_sample >= 0 and math.isfinite(updates_per_sample)):
        raise ValueError(f"updates per sample must be at least 0 and finite, not {updates_per_sample}")
    found, note = machines.read(results, machine, machines.SWEEP, skip=(QUESTIONS_FILE,))
    table = Table(found)
    most = threads or int(table.machine.get("cores", 1))
    given = answer(table, Question(capacity, batch, updates_per_sample, most, dtype, distribution))
    return replace(given, machine_note=note, results=str(results))


def answer(table: Table, question: Question) -> Recommendation:
    """The recommendation a table of records gives. RecordError if it holds no draws and updates of that dtype."""
    asked, notes = question, []
    if question.distribution not in table.distributions(question.dtype):
        question = Question(**{**asdict(question), "distribution": "uniform"})
        notes.append(f"nothing was measured at {asked.distribution!r}: answered for 'uniform'")
    candidates = [c for c in table.configurations(question) if c.threads <= question.threads]
    steps = (table.step(configuration, question) for configuration in candidates)
    estimates = [estimate for estimate in steps if estimate]
    if not estimates:
        raise RecordError(
            f"the records hold no draws and updates of {question.dtype} leaves; measure some: python -m benchmarks "
            f"sweep --preset quick --dtypes {question.dtype}"
        )
    # What was measured around the question decides; models answer only where nothing was.
    inside = [estimate for estimate in estimates if estimate.basis != "extrapolated"]
    estimates = inside or estimates
    logs, sigmas = [math.log(e.seconds) for e in estimates], [e.sigma for e in estimates]
    chosen = stats.choose(logs, sigmas)
    # A tie within 2 % goes to fewer threads: a core it leaves free is worth more than what nobody can measure.
    close = [i for i in (chosen.best, *chosen.ties) if logs[i] - logs[chosen.best] <= CLOSE_ENOUGH]
    best = min(close, key=lambda i: (estimates[i].configuration.threads, logs[i]))
    regret, probability = stats.risk(logs, sigmas, best)
    tied = sorted({chosen.best, *chosen.ties} - {best}, key=logs.__getitem__)
    choice = estimates[best]
    others = [i for i in np.argsort(logs).tolist() if i != best]
    if choice.basis == "extrapolated":
        notes.append("the question lies outside what was measured: the fitted cost model answers, with its error")
    if carried := table.transfers(choice.configuration, question.batch):
        notes.append(carried)
    notes += [f"{name} has no times here: {reason}" for name, reason in table.untimed.items()]
    return Recommendation(
        question=asked,
        choice=choice,
        ties=tuple(estimates[i] for i in tied),
        runner_up=estimates[others[0]] if others else None,
        regret_95=regret,
        probability_best=probability,
        noise_floor=table.noise_floor,
        machine=table.machine_key,
        rests_on=tuple(table.rests_on(choice.configuration, question)),
        notes=tuple(notes),
        modeled=fastest(table.modeled, asked),
    )
