"""Predict the rate of the serial loop at a shape: what the solver answers, fixed to what a question's loop runs.

Everything serially on as many cores as the learner has threads, the numba tree with the workload's fanout on one
thread; learner and policy are of the implementations that the solver recommends.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from impls.training import Workload

from ..mapping.answer import MappingAnswer, build_answer
from ..mapping.build import build
from ..mapping.options import implementation_of
from ..platforms import Platform
from ..records import Measurement, RecordError, benchmark
from ..times import profile
from ..times.parts import Parts


def as_run(workload: Workload, threads: int = 1) -> dict[str, Any]:
    """Fix what the questions' run fixes: keys and values as ``dse.recommend_mapping`` takes them."""
    return {
        "arrangement": "serial",
        "learner_threads": threads,
        "contestant": "numba",
        "fanout": workload.replay.fanout,
        "threads": 1,
    }


def shaped(workload: Workload, batch: int, update_interval: int) -> Workload:
    """Change the workload to another batch and update interval."""
    learner = dataclasses.replace(workload.learner, batch=batch, update_interval=update_interval)
    return dataclasses.replace(workload, learner=learner)


def predicted(
    records: Sequence[Measurement], platform: Platform, workload: Workload, threads: int = 1
) -> MappingAnswer:
    """Predict from records of the platform, which is a machine's own; ``hz`` in [``low``, ``high``].

    RecordError where a part was never timed, for a model of it is not what questions are to judge.
    """
    table = profile.of_records(records, platform.machine_key or "", workload)
    if not table.rows:
        raise _missing(workload, "a profile", "profile")
    answer = build_answer(build(Parts(platform, workload, table, None, as_run(workload, threads))), "ratio")
    if not isinstance(answer, MappingAnswer):
        raise RecordError(f"{workload.name}: the serial loop does not fit platform {platform.name!r}")
    for part in answer.parts:
        if part.source == "modeled":
            raise _missing(workload, f"the part {part.part!r}", "profile")
    if not table.whole:
        raise _missing(workload, "a whole serial loop", "profile")
    return answer


def recommended(answer: MappingAnswer) -> dict[str, str]:
    """Name the implementations of ``learner`` and ``policy`` that an answer recommends."""
    by = {part.part: implementation_of(part.details) for part in answer.parts}
    return {"learner": by["learner"], "policy": by["actors"]}


def _missing(workload: Workload, what: str, command: str) -> RecordError:
    return RecordError(
        f"{workload.name}: no record tells {what}; measure it, then ask: "
        f"{benchmark(f'{command} --workload {workload.name}')}"
    )
