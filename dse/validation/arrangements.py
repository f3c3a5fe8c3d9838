"""Questions about arrangements: at which rate does each candidate train a workload, and which one is recommended?

A candidate is what can run here: processes, actors, environments at once, batches sampled ahead, implementations. It is
predicted by the solver's answer fixed to it; of those with an answer the highest predicted rate is the recommendation.

Letters: B batch, u environment steps a gradient step, A actors, E environments of an actor, D batches sampled ahead.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from impls.training import Workload, WorkloadError, learners, load

from ..mapping.answer import MappingAnswer, build_answer, lacking
from ..mapping.build import build
from ..mapping.values import with_values
from ..platforms import Platform, PlatformError
from ..questions import Row, told
from ..records import Measurement, RecordError, how_to_measure
from ..solver.problem import ProblemError
from ..times import profile
from ..times.parts import Parts
from ..times.workloads import workloads

COUNT = 8
"""Questions of a file."""
WORKLOADS = ("cartpole_dqn", "hopper_ddpg", "hopper_sac", "hopper_td3", "cartpole_ddpg")
BATCHES, INTERVALS = (32, 512), (1, 8, 64)
ACTORS, ENVIRONMENTS = (1, 2), (1, 8)
DEPTHS: Mapping[str, tuple[int, ...]] = {"serial": (0,), "apart": (0, 1), "pipelined": (1, 4)}
"""D by arrangement: a serial loop gains nothing by sampling ahead, and a keeper of the replay always does so."""
OTHER = 0.2  # chance that a candidate learns, or acts, by another implementation than the default


@dataclass(frozen=True)
class Candidate:
    """A configuration that can run on the machine; ``learner``, ``policy``: names of implementations."""

    arrangement: str
    actors: int
    environments: int
    presampled: int
    learner: str
    policy: str

    def fix(self, batch: int, update_interval: int, fanout: int) -> dict[str, Any]:
        """Fix what runs, by keys of ``dse.recommend_mapping``; the tree is numba's, on one thread."""
        actors = {} if self.arrangement == "serial" else {"actors": self.actors}
        return {
            **actors,
            "arrangement": self.arrangement,
            "actor_count": self.actors,
            "environments": self.environments,
            "presampled": self.presampled,
            "learner_implementation": self.learner,
            "policy_implementation": self.policy,
            "batch": batch,
            "update_interval": update_interval,
            "learner_threads": 1,
            "contestant": "numba",
            "fanout": fanout,
            "threads": 1,
        }


@dataclass(frozen=True)
class ArrangementQuestion:
    """Which of the candidates trains a workload fastest at that batch and update interval, and how fast is each?"""

    workload: str
    batch: int
    update_interval: int
    candidates: tuple[Candidate, ...]


def questions(count: int, seed: int) -> list[ArrangementQuestion]:
    """Sample questions: workloads and update intervals in rotation, batches log-uniform, six candidates each."""
    rng, sampled = np.random.default_rng([seed, 2]), list[ArrangementQuestion]()
    for position in range(count):
        name = WORKLOADS[position % len(WORKLOADS)]
        interval = INTERVALS[position % len(INTERVALS)]
        batch = round(math.exp(rng.uniform(math.log(BATCHES[0]), math.log(BATCHES[1]))))
        sampled.append(ArrangementQuestion(name, batch, interval, tuple(_candidates(rng, load(name)))))
    return sampled


def _candidates(rng: np.random.Generator, workload: Workload) -> Iterator[Candidate]:
    """Sample D and implementations of six shapes: serial and apart with each E, and with more processes one each."""
    default = learners.default(workload)
    suited = [name for name in learners.names() if name != default and not learners.unsuited(name, workload)]
    few, most = ACTORS
    shapes = [(name, few, count) for name in ("serial", "apart") for count in ENVIRONMENTS]
    shapes.append(("apart", most, int(rng.choice(ENVIRONMENTS))))
    shapes.append(("pipelined", int(rng.choice(ACTORS)), int(rng.choice(ENVIRONMENTS))))
    for arrangement, actors, count in shapes:
        depth = int(rng.choice(DEPTHS[arrangement]))
        by = [str(rng.choice(suited)) if suited and rng.random() < OTHER else default for _ in ("learner", "acts")]
        yield Candidate(arrangement, actors, count, depth, *by)


class Predictor:
    """Answers questions from a machine's records and its platform."""

    def __init__(self, records: Sequence[Measurement], platform: Platform) -> None:
        self._records, self._platform = records, platform
        self._table = functools.cache(self._read)

    def _read(self, name: str) -> tuple[Workload, profile.PerformanceTable]:
        own = {one: known for (one, _), known in workloads(self._records).items() if known}
        workload = own.get(name) or load(name)
        return workload, profile.of_records(self._records, self._platform.machine_key or "", workload)

    def predicted(self, name: str, batch: int, update_interval: int, candidate: Candidate) -> MappingAnswer:
        """Predict a candidate's rate: ``hz`` in [``low``, ``high``] gradient steps/s.

        RecordError where it does not fit or nothing of the workload was timed; WorkloadError, PlatformError,
        ProblemError.
        """
        workload, table = self._table(name)
        if not table.rows:
            raise RecordError(f"{name}: no record tells a profile; {how_to_measure(f'profile --workload {name}')}")
        fix = candidate.fix(batch, update_interval, workload.replay.fanout)
        parts = Parts(self._platform, with_values(workload, fix), table, None, fix)
        answer = build_answer(build(parts), "ratio")
        if not isinstance(answer, MappingAnswer):
            raise RecordError(f"it does not fit platform {self._platform.name!r}: {'; '.join(lacking(answer))}")
        return answer

    def answer(self, question: ArrangementQuestion) -> list[Row]:
        """Answer with a row for each candidate: a rate and its interval, or the reason why there is none."""
        rows = [self._row(question, one) for one in question.candidates]
        known = [row for row in rows if "told" in row]
        if known:
            max(known, key=lambda row: row["told"])["is_recommended"] = True
        return rows

    def _row(self, question: ArrangementQuestion, candidate: Candidate) -> Row:
        shape = {"workload": question.workload, "batch": question.batch, "update_interval": question.update_interval}
        row = shape | dataclasses.asdict(candidate)
        try:
            return row | told(self.predicted(question.workload, question.batch, question.update_interval, candidate))
        except (RecordError, WorkloadError, PlatformError, ProblemError) as error:
            return row | {"reason": str(error)}
