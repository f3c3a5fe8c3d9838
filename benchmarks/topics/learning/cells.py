"""Which training runs are compared: arrangements, how learners combine, and batches sampled ahead, each by every seed.

Letters: D batches sampled ahead of the gradient step, L learners.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from impls import training
from impls.training import learners
from impls.training.arrangement import BANKED, COPIES, COPY_SYNCS, NODES, Arrangement
from impls.training.options import with_values
from impls.training.workload import Workload

from ...libraries.base import Loop, roles
from ..loops import with_sac

PRIMITIVE = "training run"
LEARNERS = 2  # of the runs in which several combine
OF_COPIES = ("processes", "every", "replay", "shards", "average")
DEPTHS = (10, 50, 200)  # those of [Zhang2023, Fig. 10] besides the least: 0 apart, 1 where a keeper samples ahead
KINDS = {
    "serial": Arrangement(name="serial"),
    "apart": Arrangement(name="apart"),
    "pipelined": Arrangement(name="pipelined"),
    "synchronous": Arrangement(name="apart", learners=LEARNERS, sync="synchronous"),
    "lock": Arrangement(name="apart", learners=LEARNERS, sync="lock"),
    "hogwild": Arrangement(name="apart", learners=LEARNERS, sync="hogwild"),
}
_NODES = Arrangement(name=NODES, actor_nodes=2)
OVER_NODES = {
    "nodes": _NODES,
    "nodes_local": dataclasses.replace(_NODES, learners=LEARNERS, sync="local"),
    "nodes_central": dataclasses.replace(_NODES, learners=LEARNERS),
}
"""Runs that need a Ray cluster."""
DEEPER, LOCAL, SCALING = "depths", "local", "scaling"
A3C, DYNA_Q, MEMR = ALGORITHMS = ("a3c", "dyna_q", "memr")
BATCHES, SAMPLERS, CARRIED = ABLATIONS = ("batches", "samplers", "transports")
LIBRARIES, TASK_OF_LIBRARIES = "libraries", "pendulum_sac"
NAMES = (*KINDS, *OVER_NODES, DEEPER, LOCAL, COPIES, *ALGORITHMS, *ABLATIONS, LIBRARIES, SCALING)
PROCESSES, EVERY, USUAL = (1, 2, 4), (1, 4, 16, 64), 16
"""Copies; gradient steps k between meetings, of two copies; and of other numbers."""
WORKERS, CAPS = (0, 1, 2), (1, 4)  # model workers, and simulated updates for each real one
ALPHAS, SEGMENTS = (0.0, 0.2, 1.0), 1  # of MEMR, besides its own
SIZES, COUNTS, WAYS = (64, 256, 1_000), (1, 2, 4), ("queue", "fill")
"""Records of TD3's batches [Zhang2022, Fig. 5.1]; actors, and ways of their records [Hou2023, Figs. 6a and 7]."""
PERIODS = ((2, 1), (2, 5), (2, 10), (2, 25), (4, 10))  # (L, H) of learners whose weights are averaged


WORDS = {"count": "actors"}  # of a key, where it says little alone
Changes = tuple[tuple[str, str, float], ...]  # values of the workload: table, key, value


@dataclass(frozen=True)
class Trained:
    """A training run of a workload by a seed, with the names of a record's fields.

    It ends after ``most`` environment steps, or once solved but not before ``least``. ``library``: whose loop it is,
    "" for ours.
    """

    task: str
    arrangement: Arrangement
    presampled: int
    seed: int
    least: int
    most: int
    test_episodes: int = 100
    changes: Changes = ()
    library: str = ""
    op: str = "gradient step"

    @property
    def contestant(self) -> str:
        """The name of its arrangement, or of another library, as records have it."""
        return self.library or self.arrangement.name

    @property
    def settings(self) -> Workload:
        """The workload as this run trains it. WorkloadError where there is no such workload."""
        return settings_of(self.task, self.presampled, self.most * (self.arrangement.name == COPIES), self.changes)

    @property
    def capacity(self) -> int:
        """Records of the replay."""
        return self.settings.replay.capacity

    @property
    def batch(self) -> int:
        """Records of a gradient step, of all learners together where they take it together."""
        return self.settings.learner.batch

    @property
    def fanout(self) -> int:
        """Children of a node of the sum tree."""
        return roles(Loop)[self.library].fanout if self.library else self.settings.replay.fanout

    @property
    def options(self) -> dict[str, Any]:
        """Further fields of the record."""
        task, arrangement = self.settings, self.arrangement
        chosen = self.library or learners.default(task)
        own = {"period": arrangement.period, "banks": arrangement.banks} if arrangement.sync == LOCAL else {}
        if arrangement.name == COPIES:
            own = {name: getattr(arrangement, name) for name in OF_COPIES}
        if arrangement.name == NODES:
            own |= {"actor_nodes": arrangement.actor_nodes, "batches_a_call": arrangement.batches_a_call}
        if task.algorithm == DYNA_Q:
            own |= {"model_workers": arrangement.model_workers, "cap": arrangement.cap}
        own |= {key: value for _, key, value in self.changes}
        own |= {"library": self.library} if self.library else {}
        return {
            "kind": self.kind, "workload": task.name, "identity": training.identity(task),
            "arrangement": arrangement.name, "actors": task.actors.count, "learners": arrangement.learners,
            "environments": task.actors.environments, "presampled": self.presampled,
            "update_interval": task.learner.update_interval, "batch": task.learner.batch, "learner": chosen,
            "policy": chosen, "strategy": arrangement.strategy, "sync": arrangement.sync,
            "transport": arrangement.transport, "weights": arrangement.weights, "ratio": arrangement.ratio,
            "seed": self.seed, "least_steps": self.least, "most_steps": self.most,
        } | own  # fmt: skip

    @property
    def kind(self) -> str:
        """Its arrangement, and how its learners combine or how many batches are sampled ahead."""
        name, ahead = self.arrangement.name, self.presampled
        name += f", M = {self.arrangement.actor_nodes}" * (name == NODES)
        if self.library:
            return self.library
        if self.changes:
            return ", ".join([name, *(f"{WORDS.get(key, key)} = {value:g}" for _, key, value in self.changes)])
        if self.arrangement.transport != "shared":
            return f"{name}, {self.arrangement.transport}"
        if self.settings.algorithm == DYNA_Q:
            return f"{name}, W = {self.arrangement.model_workers}, c = {self.arrangement.cap}"
        if name == COPIES:
            return f"{name}, P = {self.arrangement.processes}, {self.arrangement.sync}, k = {self.arrangement.every}"
        if self.arrangement.learners > 1:
            averaged = f", H = {self.arrangement.period}" if self.arrangement.sync == LOCAL else ""
            return f"{name}, {self.arrangement.learners} learners, {self.arrangement.sync}{averaged}"
        return f"{name}, D = {ahead}" if name == "pipelined" or ahead else name

    @property
    def request(self) -> dict[str, Any]:
        """What a worker is told of the run."""
        names = ("task", "presampled", "seed", "least", "most", "test_episodes", "changes", "library")
        return {name: getattr(self, name) for name in names} | {"arrangement": self.arrangement.to_dict()}

    @property
    def label(self) -> str:
        """What tells it from the others, for people."""
        return f"{self.task}: {self.kind}, seed {self.seed}"


@cache
def settings_of(task: str, presampled: int, most: int, changes: Changes = ()) -> Workload:
    """Load a workload, and have it sample a given number of batches ahead, for ``most`` steps if it has fewer."""
    workload = training.load(task)
    values = {(table, key): value for table, key, value in changes} | {("replay", "presampled"): presampled}
    return with_values(workload, {**values, ("", "steps"): max(workload.steps, most)})


def local(learners: int, period: int) -> Arrangement:
    """Learners that each have weights and a bank of their own."""
    return Arrangement(name="apart", learners=learners, sync=LOCAL, period=period, banks=learners, strategy=BANKED)


def copies(processes: int, everys: Sequence[int], syncs: Sequence[str]) -> Iterator[Arrangement]:
    """Yield copies by each sync and interval between meetings; one copy alone is the serial loop."""
    if processes == 1:
        yield Arrangement(name=COPIES)
        return
    for sync in syncs:
        for every in everys if processes == 2 else [USUAL]:
            yield Arrangement(name=COPIES, processes=processes, sync=sync, every=every)


def of_algorithm(name: str, counts: Sequence[int], syncs: Sequence[str]) -> Iterator[tuple[str, Arrangement, Changes]]:
    """Yield the runs of an algorithm or an ablation: workload, arrangement, and what is changed of the workload."""
    if name == A3C:
        for each in (one for count in counts for one in copies(count, [1], syncs)):
            yield "cartpole_a3c", dataclasses.replace(each, every=1), ()
    if name == DYNA_Q:
        for workers, cap in itertools.product(WORKERS, CAPS):
            if workers or cap == 1:
                of = {"model_workers": workers, "cap": cap, "replay": "shared" if workers else "local"}
                yield "cartpole_dyna_q", Arrangement(name=COPIES, **of), ()
    if name == MEMR:
        yield "pendulum_sac", KINDS["serial"], ()
        yield "pendulum_memr", KINDS["serial"], ()
        yield "pendulum_memr", KINDS["serial"], (("model", "segments", SEGMENTS),)
        for alpha in ALPHAS:
            yield "pendulum_memr", KINDS["serial"], (("replay", "alpha", alpha),)
    if name == BATCHES:
        yield from (("pendulum_td3", KINDS["serial"], (("learner", "batch", size),)) for size in SIZES)
    if name == SAMPLERS:
        yield from (("cartpole_dqn", KINDS["apart"], (("actors", "count", count),)) for count in COUNTS)
    if name == CARRIED:
        yield from (("cartpole_dqn", dataclasses.replace(KINDS["apart"], transport=way), ()) for way in WAYS)


def runs(
    task: str,
    names: Sequence[str],
    depths: Sequence[int],
    periods: Sequence[tuple[int, int]],
    seeds: Sequence[int],
    processes: Sequence[int] = PROCESSES,
    everys: Sequence[int] = EVERY,
    syncs: Sequence[str] = COPY_SYNCS,
    most: int = 0,
    **limits: int,
) -> Iterator[Trained]:
    """Yield the runs of the named kinds, seed by seed, so that those compared run near each other in time.

    ``periods``: (L, H) of the runs whose learners average their weights; ``most`` environment steps, 0 for as many as
    the workload has; the rest: of copies. Runs of an algorithm are of its own workload.
    """
    own = training.load(task).replay.presampled
    made = {name: [(arrangement, own)] for name, arrangement in {**KINDS, **OVER_NODES}.items()}
    made[DEEPER] = [(KINDS["pipelined"], depth) for depth in depths]
    made[COPIES] = [(each, own) for count in processes for each in copies(count, everys, syncs)]
    made[LOCAL] = [(local(*pair), own) for pair in periods]
    for seed in seeds:
        for name in names:
            for arrangement, ahead in made.get(name, ()):
                least = 1 if arrangement.name == "pipelined" else 0
                steps = most or training.load(task).steps
                yield Trained(task, arrangement, max(ahead, least), seed, most=steps, **limits)
            for other, arrangement, changes in of_algorithm(name, processes, syncs):
                steps = most or training.load(other).steps
                yield Trained(other, arrangement, 0, seed, most=steps, changes=changes, **limits)
            for library in with_sac() if name == LIBRARIES else ():
                task_of, steps = TASK_OF_LIBRARIES, most or training.load(TASK_OF_LIBRARIES).steps
                yield Trained(task_of, KINDS["serial"], 0, seed, most=steps, library=library, **limits)
