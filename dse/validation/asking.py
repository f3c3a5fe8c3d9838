"""Sample questions by the hash of a commit, answer them from the records there are, and write the answers down.

The seed is nobody's choice, the answers are there before anything is measured, and a file is never written twice: so
nothing can be tuned to the questions. Records are no part of the hashed commit, which is the last to change anything
else. A seed of one's own is for practice; its file says so and never counts.

Letters: N capacity, B batch, R updates per sample, u environment steps a gradient step.
"""

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from impls.training import Workload, WorkloadError, load

from .. import platforms
from ..platforms import Platform, PlatformError
from ..platforms.reading import FILE
from ..questions import Asked, Row, numbered, told
from ..records import Measurement, RecordError
from ..solver.problem import ProblemError
from ..times.tree_times import Question, Table
from ..times.whole_runs import REFERENCE
from ..tree import answer, ranked
from .loops import predicted, recommended, shaped
from .predictor import ROOT, Side, present

ASK = "python -m dse validate --ask"
UNPROBED = "the machine was not probed; on it: python -m dse platform probe"
TREE_COUNT, LOOP_COUNT = 60, 12
RANGES = {"grid": ((1e4, 1e6), (32, 16_384)), "wide": ((1e3, 5e7), (1, 1e4))}
"""The ends of N and of B of each kind of question about trees, log-uniform between them."""
SMALL_BATCHES = (1, 3, 31)  # of the first wide questions
RATES = (0.25, 0.5, 1.0, 2.0, 4.0)
RIVAL = 1.6  # times the predicted time of the choice
WORKLOADS, TORCH_THREADS = ("cartpole_dqn", "cartpole_ddpg", "hopper_ddpg"), (1, 2)
LOOP_BATCHES, UPDATE_INTERVALS = (32, 1_024), (1, 16)


@dataclass(frozen=True)
class LoopQuestion:
    """Which rate has the serial loop of a workload at that batch and update interval, by a given number of threads?

    ``learner``, ``policy``: the implementations that the answer recommends, which is what runs.
    A control is the workload as it is: it shows how the machine was meanwhile, and does not count.
    """

    workload: str
    threads: int
    batch: int
    update_interval: int
    is_control: bool = False
    learner: str = REFERENCE
    policy: str = REFERENCE


@dataclass(frozen=True)
class Seed:
    """The seed of a file's questions: of a commit and the file's ``number`` there, or chosen ``by_hand``."""

    commit: str
    number: int = 1
    by_hand: int | None = None

    @property
    def value(self) -> int:
        """The number that questions are sampled by."""
        return seed_of(self.commit, self.number) if self.by_hand is None else self.by_hand

    @property
    def stem(self) -> str:
        """What names the file of this seed."""
        more = f"-{self.number}" if self.number > 1 else ""
        return f"{self.commit[:8]}{more}" + ("" if self.by_hand is None else f"-seed{self.by_hand}")


def seed_of(commit: str, number: int = 1) -> int:
    """Derive the seed of the ``number``-th file of a commit."""
    return int.from_bytes(hashlib.sha256(f"{commit} {number}".encode()).digest()[:4])


def frozen_commit(folder: Path = ROOT) -> str:
    """Return the last commit that changed code. RecordError outside of a checkout, and where code is not committed."""
    try:
        commit = platforms.code_commit(folder)
    except platforms.GitError as error:
        raise RecordError(
            f"questions take their seed from a commit, and git finds no checkout of Fanout to tell it: {error}"
        ) from None
    if platforms.commit(folder)[1]:
        raise RecordError(
            "questions take their seed from a commit, and files here differ from it: commit them first, or practice "
            f"with a seed of your own: {ASK} --seed 1"
        )
    return commit


def first_free(folder: Path, seed: Seed, name: str = "questions") -> tuple[Seed, Path]:
    """Number a seed so that no file of the folder has it; (seed, path). ``name``: how the file's begins."""
    while (path := folder / f"{name}-{seed.stem}.json").exists():
        seed = dataclasses.replace(seed, number=seed.number + 1)
    return seed, path


def tree_questions(count: int, seed: int, cores: int) -> list[tuple[str, Question]]:
    """Sample (kind, question): half of them, rounded up, on the grid, the others wide; threads from 1 to ``cores``."""
    rng, sampled = np.random.default_rng([seed, 0]), []
    for position in range(count):
        wide = position - (count + 1) // 2
        kind = "wide" if wide >= 0 else "grid"
        capacity, batch = (_log_uniform(rng, *ends) for ends in RANGES[kind])
        rate, threads = float(rng.choice(RATES)), int(rng.integers(1, cores + 1))
        if 0 <= wide < len(SMALL_BATCHES):
            batch = SMALL_BATCHES[wide]
        sampled.append((kind, Question(capacity, batch, rate, threads)))
    return sampled


def loop_questions(count: int, seed: int) -> list[LoopQuestion]:
    """Sample questions, workloads and threads in rotation, each after its control."""
    rng, sampled = np.random.default_rng([seed, 1]), list[LoopQuestion]()
    for position in range(count):
        turn, which = divmod(position, len(WORKLOADS))
        name, threads = WORKLOADS[which], TORCH_THREADS[turn % len(TORCH_THREADS)]
        if turn < len(TORCH_THREADS):
            learner = load(name).learner
            sampled.append(LoopQuestion(name, threads, learner.batch, learner.update_interval, is_control=True))
        batch, interval = (_log_uniform(rng, *ends) for ends in (LOOP_BATCHES, UPDATE_INTERVALS))
        sampled.append(LoopQuestion(name, threads, batch, interval))
    return sampled


def answer_tree(table: Table, kind: str, question: Question) -> list[Row]:
    """Answer a question with a row for each candidate, or with one that has the reason why there is no answer.

    Left out are those that are predicted to be slower by over ``RIVAL`` than the choice and that do not tie with
    it: to measure them takes most of the time, and tells least.
    """
    shape = dataclasses.asdict(question)
    asked = {"kind": kind, "cores": shape.pop("threads")} | shape
    try:
        answered, candidates = answer(table, question), ranked(table, question)
    except RecordError as error:
        return [asked | {"reason": str(error)}]
    most = RIVAL * candidates[0].seconds
    ties = [tie.configuration for tie in answered.ties]
    rivals = [time for time in candidates if time.seconds <= most or time.configuration in ties]
    return [
        asked
        | dataclasses.asdict(time.configuration)
        | {"options": dict(time.configuration.options), "basis": time.basis}
        | {"told": time.seconds, "low": time.low_seconds, "high": time.high_seconds}
        | ({"is_tie": True} if time.configuration in ties else {})
        for time in rivals
    ]


def answer_loop(records: Sequence[Measurement], platform: Platform | None, question: LoopQuestion) -> Row:
    """Answer a question with a rate and its interval, or with the reason why there is none."""
    asked = dataclasses.asdict(question)
    if platform is None:
        return asked | {"reason": UNPROBED}
    try:
        workload: Workload = shaped(load(question.workload), question.batch, question.update_interval)
        rate = predicted(records, platform, workload, question.threads)
        asked |= recommended(rate)
    except (RecordError, WorkloadError, PlatformError, ProblemError) as error:
        return asked | {"reason": str(error)}
    return asked | told(rate)


def head(records: Sequence[Measurement], seed: Seed, sides: Iterable[Side]) -> dict[str, Any]:
    """Return the head of a file that is answered now, from one machine's evidence."""
    return {
        "commit": seed.commit,
        "number": seed.number,
        "seed": seed.value,
        "seed_from": "commit" if seed.by_hand is None else "hand",
        "utc": platforms.now(),
        "command": platforms.command_line(),
        "machine": records[0].machine_key,
        "records_commits": sorted({one.commit for one in records if one.commit}),
        "predictors": {side: present(side) for side in sides},
    }


def ask(records: Sequence[Measurement], path: Path, seed: Seed, counts: tuple[int, int]) -> Asked:
    """Answer so many questions about trees and about loops from one machine's evidence, for a file in its folder."""
    table = Table(records, results=path.parent.parent)
    file = path.with_name(FILE)
    platform = platforms.load(file) if file.is_file() else None
    cores = int(table.machine.get("cores", 1))
    trees = [answer_tree(table, *one) for one in tree_questions(counts[0], seed.value, cores)]
    loops = [[answer_loop(records, platform, one)] for one in loop_questions(counts[1], seed.value)]
    rows = numbered("trees", trees) + numbered("loops", loops)
    return Asked(path, head(records, seed, ("trees", "loops")), rows)


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> int:
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))
