"""Scaling factors of learners side by side, from terms that a machine's profile holds.

Letters: B batch, L learners, H gradient steps between averages of the weights.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dse.mapping.question import load_workload
from dse.records import Measurement, RecordError
from dse.times.batch_law import FlatThenLinear, flat_then_linear
from dse.times.profile import PerformanceTable, of_records
from dse.tuning.multi_learner import FactorPoint, Terms, factors

WORKLOADS = ("hopper_ddpg", "pong_dqn", "cartpole_dqn", "cartpole_ddpg")  # in this order, as far as they were profiled
MOST_WORKLOADS = 2
LEARNERS, HORIZONS = (1, 2, 4, 8), (5, 25)


@dataclass(frozen=True)
class Scaled:
    """Scaling factors over L and H at a workload's batch; ``measured``: (L, factor, low, high) of learners that ran."""

    name: str
    points: tuple[FactorPoint, ...]
    measured: tuple[tuple[int, float, float, float], ...]


def scaled(found: Sequence[Measurement], key: str) -> list[Scaled]:
    """Two batches of each of two workloads; RecordError where no profile has all terms."""
    made = []
    for name in WORKLOADS:
        table = of_records(found, key, load_workload(name))
        own = max((batch for _, batch in table.alone("parallel_learners step")), default=0)
        batches = {own, max((batch for _, batch in table.alone("learner step", 1)), default=0)}
        chosen = [(batch, terms(table, batch)) for batch in sorted(batches) if batch]
        made += [
            Scaled(f"{name}, B = {batch:,}", factors(one, LEARNERS, HORIZONS), tuple(_ran(table, one)))
            for batch, one in chosen
            if one
        ]
        if len({one.name.partition(",")[0] for one in made}) == MOST_WORKLOADS:
            break
    if not made:
        raise RecordError(
            f"machine {key} has no profile with gradient steps of two batches, transfers and averages of weights; this "
            "would measure them: python -m benchmarks profile --workload hopper_ddpg"
        )
    return made


def terms(table: PerformanceTable, batch: int) -> Terms | None:
    """Of a gradient step on one thread, from what was measured; None where a part was not.

    Passes and the update of weights were timed together, so the fixed part of the fit has both. Weights go there by
    publishing and fetching them in shared memory. Records are sent as fast as they are gathered.
    """
    steps = {size: rows[0].time.seconds for (_, size), rows in table.alone("learner step", 1).items()}
    means = {
        float(row.options["models"]): row.time.seconds
        for rows in table.alone("weights average").values()
        for row in rows
    }
    tree = [table.time(f"numba {op}", batch) for op in ("draw", "update")]
    sent = [table.time(f"weights {op}", 1, via="shared") for op in ("publish", "fetch")]
    gathers = [(size, rows[0].time) for (_, size), rows in table.alone("storage gather").items()]
    if len(steps) < 2 or len(means) < 2 or not gathers or None in (*tree, *sent):
        return None
    size, gather = gathers[0]
    return Terms(
        batch=batch,
        replay_seconds=sum(one.seconds for one in tree if one),
        passes=flat_then_linear(list(steps), list(steps.values())),
        update_seconds=0.0,
        records=FlatThenLinear(0.0, gather.seconds / size),
        weights_seconds=sum(one.seconds for one in sent if one),
        average=flat_then_linear(list(means), list(means.values())),
        shared_link=True,
    )


def _ran(table: PerformanceTable, one: Terms) -> Iterator[tuple[int, float, float, float]]:
    """Of data parallel learners as they were timed, each with the same replay beside."""
    alone, replay = table.time("learner step", one.batch), one.replay_seconds
    for (count, batch), rows in sorted(table.alone("parallel_learners step").items()):
        if alone and batch == one.batch and count > 1:
            time = rows[0].time
            yield (
                count,
                (alone.seconds + replay) / (time.seconds + replay) / count,
                (alone.low + replay) / (time.high + replay) / count,
                (alone.high + replay) / (time.low + replay) / count,
            )
