"""Which training runs are compared: arrangements, how learners combine, and batches sampled ahead, each by every seed.

Here are the runs, and the cells of gradient steps of several learners alone, with the names of their records' fields.
``worker`` is the process of a run, ``command`` asks it and says what the records say. Letters: D batches sampled ahead
of the gradient step, L learners, H gradient steps between averages.
"""

import dataclasses
import itertools
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dse.learning_runs import network_name
from impls import training
from impls.cores import allowed_cpus
from impls.terminal import plural
from impls.training import learners
from impls.training.arrangement import BANKED, COPIES, NODES, Arrangement
from impls.training.options import start_of, with_values
from impls.training.workload import Workload

from ...libraries.base import Loop, roles
from ..loops import with_sac

LEARNERS = 2  # of the runs and the gradient steps in which several combine
OF_COPIES = ("processes", "every", "replay", "shards", "average")
SERIAL, APART, PIPELINED = (Arrangement(name=name) for name in ("serial", "apart", "pipelined"))
KINDS = {"serial": SERIAL, "apart": APART, "pipelined": PIPELINED}
KINDS |= {sync: dataclasses.replace(APART, learners=LEARNERS, sync=sync) for sync in ("synchronous", "lock", "hogwild")}
LOCAL, DEEPER, LIBRARIES, SCALING = "local", "depths", "libraries", "scaling"
_NODES = Arrangement(name=NODES, actor_nodes=2)
OVER_NODES = {
    "nodes": _NODES,
    "nodes_local": dataclasses.replace(_NODES, learners=LEARNERS, sync=LOCAL),
    "nodes_central": dataclasses.replace(_NODES, learners=LEARNERS),
}
"""Runs that need a Ray cluster."""
OWN_WORKLOADS = ("a3c", "dyna_q", "dyna_q_printed", "memr", "rollouts", "batches", "samplers", "machines", "transports")
OWN_WORKLOADS += ("spreeze", LIBRARIES)
UNUSUAL = (*OVER_NODES, LOCAL, COPIES, *OWN_WORKLOADS, SCALING)
NAMES = (*KINDS, *OVER_NODES, DEEPER, LOCAL, COPIES, *OWN_WORKLOADS, SCALING)
USUAL = 16  # gradient steps k between meetings of copies that are not two
WORKERS = ((0, 1), (1, 1), (1, 4), (2, 1), (2, 4))
"""Model workers, and the most simulated updates for each real one."""
PRINTED = {"experience": "queue", "priorities": "swept"}
"""Of Dyna-Q's arrangement what is printed, and what is named as future work [StoneSachdev, IV-E and IV-F]."""
OF_WORKERS = ({"replay": "local"}, {"replay": "shared"})  # by whether there are any
ALPHAS, SEGMENTS = (0.0, 0.2, 1.0), (1, 156, 7_812)
"""Exponents of MEMR's priorities and segments of 128 records besides its own: a segment, and the 20,000 and 1,000,000
records of [Zhang2022, Fig. 3.6]."""
UPDATES = (1, 5, 10, 20)
"""Gradient steps G of an environment step [Zhang2022, Fig. 3.6]."""
SIZES, COUNTS, WAYS = (64, 256, 1_000), (1, 2, 4), ("queue", "fill")
"""Records of TD3's batches [Zhang2022, Fig. 5.1]; actors, and ways of their records [Hou2023, Figs. 6a and 7]."""
STEPS_COUNT = ("memr", "rollouts", "batches", "transports", DEEPER, LOCAL)
"""Runs by which claims count environment steps or gradient steps until solved, which take a fine grid."""
GRID = 250  # environment steps between their evaluations
PAIRS = ((1, 64), (2, 64), (2, 256))
"""Actors and batches on each number of cores, as on machines of several sizes [Hou2023, Fig. 8a]."""
SPREEZE, SPREEZE_LIMITS = (("actors", "count", 2), ("learner", "batch", 1_024)), {"most": 300_000, "interval": 5_000}
"""Samplers apart from a learner by large batches, neither of which waits [Hou2023, Table 1], and the most steps."""
WORDS = {"count": "actors", "kind": "model"}  # of a key, where it says little alone
FIELDS = {"kind": "model_kind"}  # of a key, where a record has another field of that name
Changes = tuple[tuple[str, str, Any], ...]  # values of the workload: table, key, value


@dataclass(frozen=True)
class Trained:
    """A training run of a workload by a seed, with the names of a record's fields.

    It ends after ``most`` environment steps, or once solved but not before ``least``. ``interval``: environment steps
    between evaluations, 0 for the workload's. ``library``: whose loop it is, "" for ours.
    """

    task: str
    arrangement: Arrangement
    presampled: int = 0
    changes: Changes = ()
    library: str = ""
    seed: int = 0
    least: int = 0
    most: int = 0
    test_episodes: int = 100
    interval: int = 0
    op: ClassVar[str] = "gradient step"

    @property
    def contestant(self) -> str:
        """The name of its arrangement, or of another library, as records have it."""
        return self.library or self.arrangement.name

    @cached_property
    def settings(self) -> Workload:
        """The workload as this run trains it; of copies, or with a free ratio, for ``most`` steps.

        WorkloadError where there is none.
        """
        workload = training.load(self.task)
        most = self.most * (self.arrangement.name == COPIES or self.arrangement.ratio == "free")
        values = {(table, key): value for table, key, value in self.changes}
        values |= {("replay", "presampled"): self.presampled, ("", "steps"): max(workload.steps, most)}
        values |= {("evaluation", "interval"): self.interval} if self.interval else {}
        values.setdefault(("learner", "learning_starts"), start_of(workload, values))
        return with_values(workload, values)

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
        names = ("period", "banks") if arrangement.sync == LOCAL else ()
        names = OF_COPIES if arrangement.name == COPIES else names
        names += ("actor_nodes", "batches_a_call") if arrangement.name == NODES else ()
        names += ("model_workers", "cap", *self._printed) if task.algorithm == "dyna_q" else ()
        own = {name: getattr(arrangement, name) for name in names}
        own |= {"cores": len(arrangement.cores)} if arrangement.cores else {}
        own |= {"interval": self.interval} if self.interval else {}
        own |= {FIELDS.get(key, key): value for _, key, value in self.changes}
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
        name, arrangement, ahead = self.arrangement.name, self.arrangement, self.presampled
        name += f", M = {arrangement.actor_nodes}" * (name == NODES)
        name += f", {plural(len(arrangement.cores), 'core')}" if arrangement.cores else ""
        name += ", free" * (arrangement.ratio == "free")
        if self.library:
            return self.library
        if self.settings.algorithm == "dyna_q":
            words = *(value for _, _, value in self.changes), *self._printed.values()
            return ", ".join([name, f"W = {arrangement.model_workers}", f"c = {arrangement.cap}", *words])
        if self.changes:
            values = {key: value if isinstance(value, str) else f"{value:g}" for _, key, value in self.changes}
            return ", ".join([name, *(f"{WORDS.get(key, key)} = {value}" for key, value in values.items())])
        if arrangement.transport != "shared":
            return f"{name}, {arrangement.transport}"
        if name == COPIES:
            return f"{name}, P = {arrangement.processes}, {arrangement.sync}, k = {arrangement.every or 'episode'}"
        if arrangement.learners > 1:
            averaged = f", H = {arrangement.period}" if arrangement.sync == LOCAL else ""
            return f"{name}, {arrangement.learners} learners, {arrangement.sync}{averaged}"
        return f"{name}, D = {ahead}" if name == "pipelined" or ahead else name

    @property
    def _printed(self) -> dict[str, str]:
        """Settings of ``PRINTED`` that its arrangement has."""
        return {key: value for key, value in PRINTED.items() if getattr(self.arrangement, key) == value}

    @property
    def label(self) -> str:
        """The run's name for people."""
        return f"{self.task}: {self.kind}, seed {self.seed}"


def average_locally(count: int, period: int) -> Arrangement:
    """Return learners that each have weights and a bank of their own, averaged every ``period`` steps."""
    return dataclasses.replace(APART, learners=count, sync=LOCAL, period=period, banks=count, strategy=BANKED)


def list_copies(asked: Namespace, everys: Sequence[int], usual: int = USUAL) -> Iterator[Arrangement]:
    """Yield copies by each sync and interval between meetings; one copy alone is the serial loop."""
    for count in asked.processes:
        for sync in asked.syncs if count > 1 else ():
            pulls = [0] if sync == "server" else []  # as an episode begins
            for every in [*everys, *pulls] if count == 2 else [usual]:
                yield Arrangement(name=COPIES, processes=count, sync=sync, every=every)
        if count == 1:
            yield Arrangement(name=COPIES)


def _list_updates(task: str) -> list[Trained]:
    """List runs of a workload as it is shipped, and by other numbers of gradient steps of an environment step."""
    own = training.load(task).model.updates
    return [Trained(task, SERIAL, 0, (("model", "updates", count),) * (count != own)) for count in UPDATES]


def list_machines() -> list[Trained]:
    """List runs on one core of this machine and on two, by several actors and batches."""
    parts = [dataclasses.replace(APART, cores=allowed_cpus()[:count]) for count in (1, 2)]
    pairs = [(("actors", "count", actors), ("learner", "batch", batch)) for actors, batch in PAIRS]
    return [Trained("cartpole_dqn", part, 0, pair) for part, pair in itertools.product(parts, pairs)]


def list_kinds(asked: Namespace) -> dict[str, list[Trained]]:
    """Return the runs of each name, by no seed yet: of the workload that is ``asked``, or of those of an algorithm."""
    task, own = asked.workload, training.load(asked.workload).replay.presampled
    dyna_q = [Arrangement(name=COPIES, model_workers=count, cap=cap, **OF_WORKERS[count > 0]) for count, cap in WORKERS]
    usual = Arrangement(name=COPIES, model_workers=1, cap=4, replay="shared")
    printed = [(usual, (("model", "kind", "parted"),))]
    printed += [(dataclasses.replace(usual, **{key: value}), ()) for key, value in PRINTED.items()]
    of_memr = [(), *((("model", "segments", count),) for count in SEGMENTS)]
    of_memr += [(("replay", "alpha", alpha),) for alpha in ALPHAS]
    kinds = {name: [Trained(task, arrangement, own)] for name, arrangement in {**KINDS, **OVER_NODES}.items()}
    return kinds | {
        "pipelined": [Trained(task, PIPELINED, max(own, 1))],
        DEEPER: [Trained(task, PIPELINED, depth) for depth in sorted({1, *asked.depths} - {0})],
        LOCAL: [Trained(task, APART, own), *(Trained(task, average_locally(*pair), own) for pair in asked.periods)],
        COPIES: [Trained(task, copies, own) for copies in list_copies(asked, asked.every)],
        "a3c": [Trained("cartpole_a3c", copies) for copies in list_copies(asked, [1], usual=1)],
        "dyna_q": [Trained("cartpole_dyna_q", copies) for copies in dyna_q],
        "dyna_q_printed": [Trained("cartpole_dyna_q", copies, 0, changes) for copies, changes in printed],
        "memr": [
            Trained("pendulum_sac", SERIAL),
            *(Trained("pendulum_memr", SERIAL, 0, changes) for changes in of_memr),
        ],
        "rollouts": [
            Trained("pendulum_sac", SERIAL),
            *_list_updates("pendulum_memr"),
            Trained("pendulum_memr", SERIAL, 0, (("model", "kind", "ensemble"),)),
            *_list_updates("pendulum_mbpo"),
        ],
        "batches": [Trained("pendulum_td3", SERIAL, 0, (("learner", "batch", size),)) for size in SIZES],
        "samplers": [
            *(Trained("cartpole_dqn", APART, 0, (("actors", "count", count),)) for count in COUNTS),
            *(Trained("cartpole_dqn", APART, 0, (("learner", "batch", size),)) for size in SIZES[1:]),
        ],
        "machines": list_machines(),
        "spreeze": [Trained("pendulum_sac", dataclasses.replace(APART, ratio="free"), 0, SPREEZE, **SPREEZE_LIMITS)],
        "transports": [Trained("cartpole_dqn", dataclasses.replace(APART, transport=way)) for way in ("shared", *WAYS)],
        LIBRARIES: [Trained("pendulum_sac", SERIAL, library=library) for library in with_sac()],
        SCALING: [],
    }


def list_runs(asked: Namespace) -> Iterator[Trained]:
    """Yield the runs of the named kinds, seed by seed, so that those compared run near each other in time.

    ``asked``: the options of the command; ``most`` environment steps, 0 for as many as the workload has.
    """
    kinds = list_kinds(asked)
    named = dict.fromkeys((GRID if name in STEPS_COUNT else 0, run) for name in asked.only for run in kinds[name])
    for seed, (interval, run) in itertools.product(asked.seeds, named):
        limits = {"least": asked.least, "most": asked.most or run.most or training.load(run.task).steps}
        limits |= {"interval": interval or run.interval}
        yield dataclasses.replace(run, seed=seed, test_episodes=asked.test_episodes, **limits)


NETWORKS = ((128, 128), (256, 256), (1024, 1024, 1024, 1024))
BATCHES = (64, 1_024, 8_192)
STEP_PERIODS = (1, 5, 10, 25)
LONG = 1e10  # weights times records of a step, from which on only the least and the longest period are timed
RECORDS = 20_000  # of the replay


@dataclass(frozen=True)
class Stepped:
    """Gradient steps by learners alone, with the names of a record's fields.

    The replay is filled beforehand and actors stand still, so that only learners compute. Cells of one learner are of
    whole batches, and of the part of a batch that each of L learners has, from which Eq. 5.5 of [Zhang2022] is made.
    """

    task: str
    hidden: tuple[int, ...]
    batch: int
    learners: int = 1
    period: int = 1
    op: ClassVar[str] = "gradient step"
    capacity: ClassVar[int] = RECORDS
    fanout: ClassVar[int] = 16

    @property
    def contestant(self) -> str:
        """The implementation of the learners."""
        return learners.default(self.settings)

    @property
    def arrangement(self) -> Arrangement:
        """Learners apart, each on a core and with a bank of its own; the actor, which stands still, is on the last."""
        cores = allowed_cpus()
        own = (*cores[-self.learners :], cores[-1]) if len(cores) >= self.learners else ()
        several = average_locally(self.learners, self.period) if self.learners > 1 else APART
        return dataclasses.replace(several, ratio="free", cores=own)

    @cached_property
    def settings(self) -> Workload:
        """The workload with this network and batch."""
        task, replace = training.load(self.task), dataclasses.replace
        learner = replace(task.learner, batch=self.batch, learning_starts=self.learners)  # fewer than a batch
        replay = replace(task.replay, capacity=self.capacity, fanout=self.fanout)
        return replace(task, network=replace(task.network, hidden=self.hidden), learner=learner, replay=replay)

    @property
    def options(self) -> dict[str, Any]:
        """Further fields of the record."""
        own = {"workload": self.task, "hidden": list(self.hidden), "learners": self.learners}
        return own | ({"sync": LOCAL, "period": self.period} if self.learners > 1 else {})

    @property
    def label(self) -> str:
        """The cell's name for people."""
        several = f", averaged every {self.period}" if self.learners > 1 else ""
        return f"{network_name(self.hidden)}, B = {self.batch:,}, L = {self.learners}{several}"


def list_steps(task: str) -> Iterator[list[Stepped]]:
    """Yield the cells of gradient steps of learners alone, those that are timed in alternation together."""
    for hidden, batch in itertools.product(NETWORKS, BATCHES):
        weights = sum(inputs * outputs for inputs, outputs in itertools.pairwise(hidden))
        periods = (STEP_PERIODS[0], STEP_PERIODS[-1]) if weights * batch > LONG else STEP_PERIODS
        several = (Stepped(task, hidden, batch, LEARNERS, period) for period in periods)
        yield [Stepped(task, hidden, batch), *several, Stepped(task, hidden, batch // LEARNERS)]
