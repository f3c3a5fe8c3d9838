"""How much faster gradient steps are by L learners than by one: networks, batches and periods, learners alone.

The replay is filled beforehand and actors stand still, so that only learners compute. Cells of one learner are of whole
batches, and of the part of a batch that each of L learners has, from which Eq. 5.5 of [Zhang2022] is made.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dse.learning_runs import network_name
from impls import training
from impls.cores import allowed_cpus
from impls.training import learners
from impls.training.arrangement import Arrangement
from impls.training.workload import Workload

from .cells import local

NETWORKS = ((128, 128), (256, 256), (1024, 1024, 1024, 1024))
BATCHES = (64, 1_024, 8_192)
PERIODS = (1, 5, 10, 25)
LEARNERS = 2
LONG = 1e10  # weights times records of a step, from which on only the least and the longest period are timed
RECORDS = 20_000  # of the replay


@dataclass(frozen=True)
class Stepped:
    """Gradient steps by learners alone, with the names of a record's fields."""

    task: str
    hidden: tuple[int, ...]
    batch: int
    learners: int
    period: int
    op: str = "gradient step"
    capacity: int = RECORDS
    fanout: int = 16

    @property
    def contestant(self) -> str:
        """The implementation of the learners."""
        return learners.default(self.settings)

    @property
    def arrangement(self) -> Arrangement:
        """Learners apart, each on a core and with a bank of its own; the actor, which stands still, is on the last."""
        cores = allowed_cpus()
        own = (*cores[-self.learners :], cores[-1]) if len(cores) >= self.learners else ()
        several = local(self.learners, self.period) if self.learners > 1 else Arrangement(name="apart")
        return dataclasses.replace(several, ratio="free", cores=own)

    @property
    def settings(self) -> Workload:
        """The workload with this network and batch."""
        task = training.load(self.task)
        network = dataclasses.replace(task.network, hidden=self.hidden)
        learner = dataclasses.replace(task.learner, batch=self.batch, learning_starts=self.learners)
        replay = dataclasses.replace(task.replay, capacity=self.capacity, fanout=self.fanout)
        return dataclasses.replace(task, network=network, learner=learner, replay=replay)

    @property
    def options(self) -> dict[str, Any]:
        """Further fields of the record."""
        own = {"workload": self.task, "hidden": list(self.hidden), "learners": self.learners}
        return own | ({"sync": "local", "period": self.period} if self.learners > 1 else {})

    @property
    def request(self) -> dict[str, Any]:
        """What a worker is told."""
        names = ("task", "hidden", "batch", "learners", "period")
        return {name: getattr(self, name) for name in names}

    @property
    def label(self) -> str:
        """What tells it from the others, for people."""
        several = f", averaged every {self.period}" if self.learners > 1 else ""
        return f"{network_name(self.hidden)}, B = {self.batch:,}, L = {self.learners}{several}"


def groups(task: str) -> Iterator[list[Stepped]]:
    """Yield the cells of the grid, those that are timed in alternation together."""
    for hidden in NETWORKS:
        for batch in BATCHES:
            one = Stepped(task, hidden, batch, 1, 1)
            weights = sum(inputs * outputs for inputs, outputs in pairwise(hidden))
            periods = (PERIODS[0], PERIODS[-1]) if weights * batch > LONG else PERIODS
            several = [dataclasses.replace(one, learners=LEARNERS, period=period) for period in periods]
            yield [one, *several, dataclasses.replace(one, batch=batch // LEARNERS)]
