"""An arrangement: which processes train a workload, and by what they hand experience and weights over.

``serial`` is one process that does everything serially. In ``apart`` actors are processes of their own, and one process
samples, learns and updates priorities. In ``pipelined`` a further process keeps the replay, and samples batches ahead
while learners learn, or two do: one for the tree, one for the records. The process that was started is the first
learner; each further learner is one more process. In ``copies`` there are several serial loops, each with an
environment and a network, whose weights meet; Dyna-Q has one of them, and model workers. In ``nodes`` there are actors
and a part of the replay on each of several machines of a Ray cluster, and the process that was started learns.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from ..checks import near
from ..replay import strategies
from .errors import TrainingError
from .weights import spans
from .workload import Workload, text, whole


def _names(first: str, file: str) -> tuple[str, ...]:
    """The ``name`` of every class in a file of this package, ``first`` before the others.

    They are read from the text, because to import the file would load the packages that compile.
    """
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    found = set(re.findall(r'^    name = "(\w+)"$', text, re.MULTILINE))
    return (first, *sorted(found - {first}))


def named_classes(base: Any) -> dict[str, Any]:
    """The subclasses of a class that have a ``name`` of their own, by it."""
    found: dict[str, Any] = {}
    for kind in base.__subclasses__():
        found |= ({kind.name: kind} if "name" in vars(kind) else {}) | named_classes(kind)
    return found


COPIES, NODES = "copies", "nodes"
NAMES = ("serial", "apart", "pipelined", COPIES, NODES)
SYNCS = _names("synchronous", "parallel/syncs.py")
COPY_SYNCS = _names("lock", "copies/syncs.py")
SHARING = ("synchronous", "local")
"""Syncs whose learners share a gradient step: each has a part of its batch."""
TRANSPORTS = _names("shared", "parallel/transports.py")
SEVERAL = ("learners", "sync", "period", "banks")
"""Fields that say how many learners there are, and how they combine."""
WEIGHTS, SERVER = ("shared", "file", "torch"), "server"
BANKED = "banked"
UNUSABLE = {
    "rwlock": "is for threads of one process",
    BANKED: "has a bank for each of several learners, so it comes with --banks",
}
"""Strategies of the replay that processes cannot train by without more, and why."""
DYNA = "dyna_q"
WEIGHTS_EVERY = 10
"""Gradient steps after which a node gets new weights with the next call."""
_OMITTED = ("model_workers", "cap", "experience", "priorities", "actor_nodes", "batches_a_call", "units")
_FEW, _MANY = 1024, 1 << 30
_EXACT = ("exact", "printed")
_MEETINGS = f"meeting of learners: {', '.join(SYNCS)}, or of copies: {', '.join(COPY_SYNCS)} (default: the first)"
_EVERY = "gradient steps of a copy between meetings; with --sync server also the word episode"
_EXPERIENCE = f"records that {DYNA}'s model learns from: samples of the replay, or each once, from a queue"
_SWEEPING = f"priorities after simulated updates of {DYNA}: kept, or swept to what came before (prioritized sweeping)"
_UNITS = "processes that keep the replay ahead: one, or two, for the tree and for the records [Zhang2023, Fig. 7]"
REQUESTS, DATA_QUEUE = 1_024, 200
"""Batches that queues of units take: of requests, and before the learner [Zhang2023, section VII-A, Pong]."""
_DIGITS = 10  # from which on nothing has as many records


_IDLE_OF_PROGRAMS = {"sync", "strategy", "period", "weights_of_banks"}
_IDLE_IN = {COPIES: {"cap"}, "serial": {"transport", "weights", "ratio"}}
"""Fields that a program may set also where they change nothing, in any arrangement and in one of them."""


class Need(NamedTuple):
    """A need of settings, named in one text, that would change nothing without it; the reason says without what."""

    settings: str
    reason: str
    is_met: Callable[["Arrangement", Workload], bool]


_APART = "learners banks transport weights ratio period weights_of_banks"
_COPIES = "processes every replay shards average"
_DYNA = "cap experience priorities"
_MACHINE = "banks transport ratio weights_of_banks"
REPLAY = Need(
    "contestant fanout alpha presampled replay strategy mapping",
    "without a replay, which a3c does not have",
    lambda _, workload: workload.traits.has_replay,
)
NEEDS = (
    REPLAY,
    Need(
        f"model_workers {_DYNA}", f"for {{algorithm}}, but for {DYNA}", lambda _, workload: workload.algorithm == DYNA
    ),
    Need(f"{_COPIES} model_workers {_DYNA}", "without --arrangement copies", lambda made, _: made.name == COPIES),
    Need("sync strategy", "without --arrangement apart, pipelined or copies", lambda made, _: made.is_parallel),
    Need(_APART, "without --arrangement apart or pipelined", lambda made, _: made.is_parallel),
    Need(f"actors {_APART}", "without --arrangement apart or pipelined", lambda made, _: made.name != COPIES),
    Need(_MACHINE, "without --arrangement apart or pipelined", lambda made, _: made.name != NODES),
    Need(
        "weights",
        "with --arrangement nodes, but for server",
        lambda made, _: made.name != NODES or made.weights == SERVER,
    ),
    Need("cluster actor_nodes batches_a_call", "without --arrangement nodes", lambda made, _: made.name == NODES),
    Need("presampled", "with --arrangement nodes, whose calls draw batches ahead", lambda made, _: made.name != NODES),
    Need("units", "without --arrangement pipelined", lambda made, _: made.name == "pipelined"),
    Need("sync", "without --learners of at least 2", lambda made, _: made.learners > 1 or made.name == COPIES),
    Need("strategy", "without --replay shared", lambda made, _: made.name != COPIES or made.replay != "local"),
    Need("period", "without --sync local", lambda made, _: made.sync == "local"),
    Need("weights_of_banks", "without --banks of at least 2", lambda made, _: made.banks > 1),
    Need("shards average", "without --sync server", lambda made, _: made.sync == "server"),
    Need(_DYNA, "without --model-workers of at least 1", lambda made, _: made.model_workers > 0),
)
"""In the order in which they are looked at."""


def flag_of(setting: str) -> str:
    """The option of the command line that a setting is."""
    return f"--{setting.replace('_', '-')}"


def check_needs(given: Collection[str], made: "Arrangement", workload: Workload, of: Iterable[Need] = NEEDS) -> None:
    """TrainingError for the first ``given`` setting, by its name, that lacks a need."""
    for need in of:
        idle = next((name for name in need.settings.split() if name in given), None)
        if idle and not need.is_met(made, workload):
            reason = need.reason.format(algorithm=workload.algorithm)
            remedy = ", or choose that" if "--" in reason else ""
            raise TrainingError(f"{flag_of(idle)} changes nothing {reason}; leave it out{remedy}")


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """Processes and what goes between them; how many actors, environments and batches ahead the workload says.

    ``learners`` L, combined by ``sync``: "synchronous" averages gradients of B/L records each, "lock" and "hogwild"
    take steps on one vector of weights serially or at once, "local" has a vector for each, averaged every ``period``
    gradient steps. ``strategy`` is the shared replay's; with ``banks`` each learner samples from a bank of its own, by
    ``weights_of_banks`` as :class:`impls.replay.locking.banked_strategy.BankedReplay` has them. Actors hand records
    over by ``transport`` (a queue takes ``queue_size`` of them; that of "fill" is moved whole once it is full),
    learners their weights by ``weights``, nodes by calls or a "server". ``ratio`` "kept" holds environment steps
    and gradient steps together, "free" lets both run. ``threads`` are each learner's. ``cores`` are those to run on,
    all by default. ``units`` of the replay in pipelined: "one" process, or "two", one for the tree of priorities and
    one for the records, with queues between them.

    Of ``copies`` there are ``processes``, whose weights meet by a ``sync`` of theirs every ``every`` gradient steps (0:
    where an episode begins). ``replay`` is each copy's own ("local"), "shared", or "cached:n": shared, and each copy
    inserts n records at once. A server has ``shards``, each of which takes a step along the mean of ``average``
    gradients. Dyna-Q has one copy and ``model_workers``, whose weights meet as those of copies; of simulated updates
    there are at most ``cap`` for each real one. The model learns by ``experience`` from what the workers sample of the
    replay, or from a queue of ``queue_size`` records; "swept" ``priorities`` are those of prioritized sweeping.

    There are ``actor_nodes`` in ``nodes``, each with the workload's actors and an equal part of the replay; 0 are all
    of the cluster. Each call to them draws records for ``batches_a_call`` gradient steps.
    """

    name: str = text("processes that train", NAMES, "serial", option="NAME", named="arrangement")
    learners: int = whole("learners that share the gradient steps", 1, _FEW, 1, option="L")
    sync: str = text(_MEETINGS, default="", option="NAME")
    banks: int = whole("banks of the replay, one for each learner to sample from", 1, _FEW, 1, option="L")
    transport: str = text("transport of records from actors to the replay", TRANSPORTS, "shared", option="NAME")
    queue_size: int = whole("records that a queue takes", 1, _MANY, 2_000)
    weights: str = text("transport of weights from learners to actors", (*WEIGHTS, SERVER), "shared", option="NAME")
    ratio: str = text("ratio of environment steps to gradient steps", ("kept", "free"), "kept", option="NAME")
    period: int = whole("gradient steps between averages of --sync local", 1, _MANY, 10, option="H")
    cores: tuple[int, ...] = ()
    processes: int = whole("copies, each a serial loop of its own", 1, _FEW, 1, option="P")
    every: int = whole(_EVERY, 0, _MANY, 1, option="K", word="episode")
    replay: str = text("replay of copies: local, shared, or cached:n to insert n at once", (), "local", option="NAME")
    strategy: str = text("locking strategy of the shared replay", strategies(), "two_lock_checked", option="NAME")
    weights_of_banks: str = text("importance weights of records from a bank", _EXACT, "exact", option="NAME")
    shards: int = whole("processes of --sync server", 1, _FEW, 1, option="S")
    average: int = whole("gradients averaged for a step of a shard", 1, _MANY, 1, option="N")
    model_workers: int = whole(f"workers that learn from a model (default 1 with {DYNA})", 0, _FEW, 0, option="W")
    cap: int = whole(f"simulated updates for each real one of {DYNA}, at most", 1, _MANY, 1, option="C")
    experience: str = text(_EXPERIENCE, ("replay", "queue"), "replay", option="NAME")
    priorities: str = text(_SWEEPING, ("kept", "swept"), "kept", option="NAME")
    actor_nodes: int = whole("nodes that act, of --arrangement nodes; 0 are all", 0, 2_048, 0, option="M")
    batches_a_call: int = whole("batches that a call to nodes draws", 1, _FEW, 8, option="G")
    units: str = text(_UNITS, ("one", "two"), "one", option="N")
    threads: int = whole("threads of each learner; more than 1 may not repeat bit for bit", 1, _FEW, 1, option="N")

    def __post_init__(self) -> None:
        """Check every name and count. TrainingError names the value and what it may be."""
        syncs = COPY_SYNCS if self.name == COPIES else SYNCS
        if not self.sync:
            object.__setattr__(self, "sync", syncs[0])
        for field in fields(self):
            key, rules, value = field.name, field.metadata, getattr(self, field.name)
            if (allowed := syncs if key == "sync" else rules.get("choices")) and value not in allowed:
                what, hint = rules.get("named", key), near(str(value), allowed)
                raise TrainingError(f"{what} must be one of {', '.join(allowed)}, not {value!r}{hint}")
        for field in fields(self):
            key, rules, value = field.name, field.metadata, getattr(self, field.name)
            if "low" in rules:
                low = 1 if key == "every" and self.sync != "server" else rules["low"]
                if (key, value, low) == ("every", 0, 1):
                    raise TrainingError(
                        f"only copies of a server meet where an episode begins, not those of {self.sync}"
                    )
                if type(value) is not int or not low <= value <= rules["high"]:
                    raise TrainingError(f"{key} must be a whole number from {low} to {rules['high']:,}, not {value!r}")
        if self.replay not in ("local", "shared") and not self.cached:
            raise TrainingError(f"replay must be local, shared or cached:n, with n from 1 on, not {self.replay!r}")

    @property
    def is_parallel(self) -> bool:
        """Whether there is more than one process."""
        return self.name != "serial"

    @property
    def cached(self) -> int:
        """Records that a copy keeps before it inserts them into the replay that all share; 0 where it keeps none."""
        name, _, number = self.replay.partition(":")
        return int(number) if name == "cached" and number.isdecimal() and len(number) < _DIGITS else 0

    @property
    def members(self) -> int:
        """Processes whose weights meet: copies, then model workers."""
        return self.processes + self.model_workers

    def check(self, workload: Workload, given: Collection[str] | None = None) -> None:
        """TrainingError for what this workload cannot be trained by, or a setting that would change nothing.

        Looked at are the settings ``given``; by default each with another value than it usually has, but for those that
        a program may set in any case.
        """
        usual = Arrangement(name=self.name)
        harmless = _IDLE_OF_PROGRAMS | _IDLE_IN.get(self.name, set())
        names = [field.name for field in fields(self) if field.name not in harmless]
        changed = [name for name in names if getattr(self, name) != getattr(usual, name)]
        check_needs(changed if given is None else given, self, workload)
        if fault := next(self._faults(workload), None):
            raise TrainingError(fault)

    def _faults(self, workload: Workload) -> Iterator[str]:
        """Faults between values that may each be right."""
        name, learners, batch = workload.algorithm, self.learners, workload.learner.batch
        if workload.traits.trained_by == ("serial",) and self.is_parallel:
            yield f"{name} is trained by one process, not by {self.name}; choose --arrangement serial"
        if name == DYNA:
            yield from self._faults_of_dyna(workload)
        if not workload.traits.has_replay and self.name not in workload.traits.trained_by:
            yield f"{name} learns from steps of its own policy, {self.name} acts elsewhere; choose --arrangement copies"
        if self.name == COPIES:
            yield from self._faults_of_copies(workload)
        if self.weights == SERVER and self.name != NODES:
            yield f"a weight server is a process of a Ray cluster; choose --arrangement {NODES}, or other --weights"
        if self.is_parallel and self.banks == 1 and (why := UNUSABLE.get(self.strategy)):
            usable = ", ".join(name for name in strategies() if name not in UNUSABLE)
            yield f"the strategy {self.strategy} {why}; choose one of {usable}"
        if self.sync in SHARING and batch % learners:
            parts = f"a batch of {batch} cannot be cut into {learners} equal parts"
            whole = "local" if self.name == NODES else "hogwild"
            yield f"{parts}; choose a number of learners that divides it, or --sync {whole}"
        if self.name == NODES and learners > 1 and self.sync not in SHARING:
            yield f"learners on nodes share each step, which {self.sync} learners do not; choose --sync local"
        if self.sync == "local" and (self.name not in ("apart", NODES) or learners == 1):
            several = (
                f"local learners average their weights: at least 2 of them in apart, not {learners} in {self.name}"
            )
            yield f"{several}; choose --arrangement apart --learners 2, or another --sync"
        if self.banks > 1:
            yield from self._faults_of_banks(workload)
        yield from self._faults_of_units(workload)
        actors, steps, size = workload.actors, workload.steps, self.queue_size
        kept = actors.count * actors.environments * actors.local_storage
        if self.transport == "fill" and size + kept > steps:
            never = f"{steps:,} steps might never fill the queue: it takes {size:,} records and actors keep {kept:,}"
            yield f"{never}; choose --transport queue, or --steps {size + kept}"
        interval, starts = workload.learner.update_interval, workload.learner.learning_starts
        if self.sync == "local" and self.period > (most := steps // interval - (starts - 1) // interval):
            never = f"the period is {self.period:,}, a run of {steps:,} steps takes {most:,} gradient steps"
            yield f"weights would never be averaged: {never}; choose a smaller --period, or more --steps"

    def _faults_of_dyna(self, workload: Workload) -> Iterator[str]:
        if self.name != COPIES:
            yield f"{DYNA} has workers that learn from a model, {self.name} has none; choose --arrangement {COPIES}"
        if self.processes > 1:
            remedy = "leave out --processes, or give more --model-workers"
            yield f"one process of {DYNA} acts in the environment, not {self.processes}; {remedy}"
        if self.model_workers and self.replay == "local":
            yield "model workers learn from the records of another process; choose --replay shared"
        if self.model_workers and self.every == 0:
            yield "model workers have no episode at which to meet; choose --every of at least 1"
        at_once = workload.actors.environments * workload.actors.local_storage
        if self.experience == "queue" and (least := workload.model.batch + at_once - 1) > self.queue_size:
            full = f"a queue of {self.queue_size:,} records would stay full before the {least:,} that make a batch of"
            yield f"{full} the model by inserts of {at_once:,}; choose a smaller [model] batch or local_storage"
        if self.priorities == "swept" and workload.replay.alpha == 0:
            yield "priorities to the power of alpha = 0 are all equal; choose --alpha above 0, or --priorities kept"
        several = workload.actors.count * workload.actors.environments
        if self.priorities == "swept" and several > 1 and workload.actors.local_storage == 1:
            turns = f"records of {several} environments take turns, so that none follows the record before it"
            yield f"{turns}; give [actors] a larger local_storage, or --priorities kept"

    def _faults_of_copies(self, workload: Workload) -> Iterator[str]:
        copies, part, capacity = self.processes, workload.actors.local_storage, workload.replay.capacity
        own = -(-workload.learner.learning_starts // copies)
        weights = max(part.stop for part in spans(workload).values())
        if self.shards > weights:
            yield f"{self.shards:,} shards cannot share {weights:,} weights; choose fewer --shards"
        if self.replay == "local" and 0 < capacity < copies * part:
            least = f"a capacity of {capacity:,} is less than the {part} records that each of {copies} copies inserts"
            yield f"{least} at once; choose fewer --processes, or a larger capacity"
        if (kept := part + max(0, self.cached - 1)) > own:
            early = f"a copy learns after {own:,} steps of its own, when it may have kept all: up to {kept:,} records"
            yield f"{early}; choose a smaller cache or local_storage, or a larger learning_starts"
        most = (workload.steps // workload.learner.update_interval) // copies
        if self.members > 1 and self.every > most:
            never = f"every is {self.every:,}, a copy of {workload.steps:,} steps takes about {most:,} gradient steps"
            yield f"weights would never meet: {never}; choose a smaller --every, or more --steps"

    def _faults_of_units(self, workload: Workload) -> Iterator[str]:
        ahead, most = max(1, workload.replay.presampled), REQUESTS - 2 * self.learners
        if self.units == "two" and ahead > most:
            full = f"queues between two units take {REQUESTS:,} batches, and {ahead - most:,} more could be under way"
            yield f"{full}; choose --presampled of at most {most:,}, fewer --learners, or --units one"

    def _faults_of_banks(self, workload: Workload) -> Iterator[str]:
        capacity, part, banks = workload.replay.capacity, workload.actors.local_storage, self.banks
        if self.name != "apart" or banks != self.learners:
            each = f"banks are of learners that sample, one each, not {banks} of {self.learners} in {self.name}"
            yield f"{each}; choose --arrangement apart --learners L --banks L"
        if self.strategy != BANKED:
            yield f"the strategy {self.strategy} has one bank, not {banks}; choose {BANKED}"
        if capacity % banks or capacity // banks < part:
            equal = f"{banks} equal banks of at least {part} records, those that an actor inserts at once"
            yield f"a capacity of {capacity:,} cannot be cut into {equal}; choose another capacity or number of banks"
        if (starts := workload.learner.learning_starts) < part * banks:
            empty = f"learning begins after {starts:,} steps, when one of {banks} banks, of {part} records, is empty"
            yield f"{empty}; choose a learning_starts of at least {part * banks:,}"

    def rows(self, workload: Workload) -> int:
        """Records that each learner samples for a gradient step: B/L where learners share it, else B."""
        return workload.learner.batch // (self.learners if self.sync in SHARING else 1)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, from which ``of`` makes the same arrangement again; some only where unusual."""
        made = {field.name: getattr(self, field.name) for field in fields(self)} | {"cores": list(self.cores)}
        return {key: made[key] for key in made if key not in _OMITTED or made[key] != getattr(Arrangement, key)}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Arrangement":
        """The arrangement of plain values. TrainingError for a key that there is none of."""
        known = {field.name for field in fields(cls)}
        for key in values:
            if key not in known:
                raise TrainingError(f"an arrangement has no key {key!r}{near(key, known)}")
        plain: dict[str, Any] = dict(values)
        return cls(**plain | {"cores": tuple(plain.get("cores", ()))})
