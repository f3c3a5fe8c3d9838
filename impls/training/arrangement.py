"""An arrangement: which processes train a workload, and by what they hand experience and weights over.

``serial`` is one process that does everything serially. In ``apart`` actors are processes of their own, and one
process samples, learns and updates priorities. In ``pipelined`` a further process keeps the replay, and samples batches
ahead while learners learn. The process that was started is the first learner; each further learner is one more process.
In ``copies`` there are several serial loops, each with an environment and a network, whose weights meet; Dyna-Q has one
of them, and model workers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..checks import near
from ..replay import strategies
from .errors import TrainingError
from .weights import spans
from .workload import SERIAL, Workload


def _names(first: str, file: str) -> tuple[str, ...]:
    """The ``name`` of every class in a file of this package, ``first`` before the others.

    They are read from the text, because to import the file would load the packages that compile.
    """
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    found = set(re.findall(r'^    name = "(\w+)"$', text, re.MULTILINE))
    return (first, *sorted(found - {first}))


COPIES = "copies"
NAMES = ("serial", "apart", "pipelined", COPIES)
SYNCS = _names("synchronous", "parallel/syncs.py")
COPY_SYNCS = _names("lock", "copies/syncs.py")
SHARING = ("synchronous", "local")
"""Syncs whose learners share a gradient step: each has a part of its batch."""
TRANSPORTS = _names("shared", "parallel/transports.py")
SEVERAL = ("learners", "sync", "period", "banks")
"""Fields that say how many learners there are, and how they combine."""
WEIGHTS = ("shared", "file", "torch")
RATIOS = ("kept", "free")
BANKED = "banked"
UNUSABLE = {
    "rwlock": "is for threads of one process",
    BANKED: "has a bank for each of several learners, so it comes with --banks",
}
"""Strategies of the replay that processes cannot train by without more, and why."""
BANK_WEIGHTS = ("exact", "printed")
ONLY_COPIES = ("processes", "every", "replay", "shards", "average")
ONLY_DYNA = ("model_workers", "cap")
DYNA = "dyna_q"
NOT_COPIES = ("learners", "banks", "transport", "weights", "ratio")
_DIGITS = 10  # from which on nothing has as many records


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """Processes and what goes between them; how many actors, environments and batches ahead the workload says.

    ``learners`` L, combined by ``sync``: "synchronous" averages gradients of B/L records each, "lock" and "hogwild"
    take steps on one vector of weights serially or at once, "local" has a vector for each, averaged every ``period``
    gradient steps. ``strategy`` is the shared replay's; with ``banks`` each learner samples from a bank of its own, by
    ``weights_of_banks`` as :class:`impls.replay.locking.banked_strategy.BankedReplay` has them. Actors hand records
    over by ``transport`` (a queue takes ``queue_size`` of them; that of "fill" is moved whole once it is full),
    learners their weights by ``weights``. ``ratio`` "kept" holds environment steps and gradient steps together, "free"
    lets both run. ``threads`` are each learner's. ``cores`` are those to run on, all by default.

    Of ``copies`` there are ``processes``, whose weights meet by a ``sync`` of theirs every ``every`` gradient steps (0:
    where an episode begins). ``replay`` is each copy's own ("local"), "shared", or "cached:n": shared, and each copy
    inserts n records at once. A server has ``shards``, each of which takes a step along the mean of ``average``
    gradients. Dyna-Q has one copy and ``model_workers``, whose weights meet as those of copies; of simulated updates
    there are at most ``cap`` for each real one.
    """

    name: str = "serial"
    learners: int = 1
    threads: int = 1
    sync: str = ""
    period: int = 10
    banks: int = 1
    weights_of_banks: str = "exact"
    strategy: str = "two_lock_checked"
    transport: str = "shared"
    queue_size: int = 2_000
    weights: str = "shared"
    ratio: str = "kept"
    cores: tuple[int, ...] = ()
    processes: int = 1
    every: int = 1
    replay: str = "local"
    shards: int = 1
    average: int = 1
    model_workers: int = 0
    cap: int = 1

    def __post_init__(self) -> None:
        """Check every name and count. TrainingError names the value and what it may be."""
        syncs = COPY_SYNCS if self.name == COPIES else SYNCS
        if not self.sync:
            object.__setattr__(self, "sync", syncs[0])
        choices = {
            "name": NAMES,
            "sync": syncs,
            "transport": TRANSPORTS,
            "weights": WEIGHTS,
            "ratio": RATIOS,
            "strategy": strategies(),
            "weights_of_banks": BANK_WEIGHTS,
        }
        for key, allowed in choices.items():
            value = getattr(self, key)
            if value not in allowed:
                hint = near(str(value), allowed)
                what = "arrangement" if key == "name" else key
                raise TrainingError(f"{what} must be one of {', '.join(allowed)}, not {value!r}{hint}")
        few, many = (
            dict.fromkeys(("learners", "threads", "banks", "processes", "shards", "model_workers"), 1024),
            1 << 30,
        )
        for key, most in (few | dict.fromkeys(("queue_size", "period", "every", "average", "cap"), many)).items():
            value = getattr(self, key)
            least = 0 if key == "model_workers" or (key, self.sync) == ("every", "server") else 1
            if (key, value) == ("every", 0) and least:
                raise TrainingError(f"only copies of a server meet where an episode begins, not those of {self.sync}")
            if type(value) is not int or not least <= value <= most:
                raise TrainingError(f"{key} must be a whole number from {least} to {most:,}, not {value!r}")
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

    def check(self, workload: Workload) -> None:
        """TrainingError for what this workload cannot be trained by."""
        if workload.algorithm in SERIAL and self.is_parallel:
            raise TrainingError(
                f"{workload.algorithm} is trained by one process, not by {self.name}; choose --arrangement serial"
            )
        self._check_models(workload)
        if workload.algorithm == "a3c":
            self._check_rollouts()
        if self.name == COPIES:
            self._check_copies(workload)
        elif other := next(
            (key for key in (*ONLY_COPIES, *ONLY_DYNA) if getattr(self, key) != getattr(Arrangement, key)), None
        ):
            raise TrainingError(f"{other} is of copies, not of {self.name}; choose --arrangement copies")
        if self.name == "serial" and self.learners > 1:
            raise TrainingError("a serial loop has one learner; choose --arrangement apart or pipelined for more")
        if self.is_parallel and self.banks == 1 and (why := UNUSABLE.get(self.strategy)):
            usable = ", ".join(name for name in strategies() if name not in UNUSABLE)
            raise TrainingError(f"the strategy {self.strategy} {why}; choose one of {usable}")
        if self.sync in SHARING and workload.learner.batch % self.learners:
            raise TrainingError(
                f"a batch of {workload.learner.batch} cannot be cut into {self.learners} equal parts; choose a number "
                "of learners that divides it, or --sync hogwild"
            )
        if self.sync == "local" and (self.name != "apart" or self.learners == 1):
            raise TrainingError(
                f"local learners sample for themselves and average their weights: at least 2 of them in apart, not "
                f"{self.learners} in {self.name}; choose --arrangement apart --learners 2, or another --sync"
            )
        if self.banks > 1:
            self._check_banks(workload)
        actors = workload.actors
        kept = actors.count * actors.environments * actors.local_storage
        if self.transport == "fill" and self.queue_size + kept > workload.steps:
            raise TrainingError(
                f"the queue might never fill: it takes {self.queue_size:,} records and actors keep {kept:,}, a run "
                f"has {workload.steps:,} steps; choose --transport queue, or --steps {self.queue_size + kept}"
            )
        interval, starts = workload.learner.update_interval, workload.learner.learning_starts
        if self.sync == "local" and self.period > (most := workload.steps // interval - (starts - 1) // interval):
            raise TrainingError(
                f"weights would never be averaged: the period is {self.period:,}, a run of {workload.steps:,} steps "
                f"takes {most:,} gradient steps; choose a smaller --period, or more --steps"
            )

    def _check_rollouts(self) -> None:
        if self.name not in ("serial", COPIES):
            raise TrainingError(
                f"a3c learns from steps of its own policy, which {self.name} has in other processes; choose "
                "--arrangement copies, or leave it out"
            )
        if self.replay != "local":
            raise TrainingError(f"a3c has no replay that could be {self.replay}; leave out --replay")

    def _check_copies(self, workload: Workload) -> None:
        if other := next((key for key in NOT_COPIES if getattr(self, key) != getattr(Arrangement, key)), None):
            raise TrainingError(f"{other} is of learners apart from actors, not of copies; leave out --{other}")
        copies, part, capacity = self.processes, workload.actors.local_storage, workload.replay.capacity
        starts, weights = workload.learner.learning_starts, max(span.stop for span in spans(workload).values())
        if self.shards > weights:
            raise TrainingError(f"{self.shards:,} shards cannot share {weights:,} weights; choose fewer --shards")
        if self.sync != "server" and self.shards * self.average > 1:
            raise TrainingError(f"shards and averages are of a server, not of {self.sync}; choose --sync server")
        if self.replay == "local" and 0 < capacity < copies * part:
            raise TrainingError(
                f"a capacity of {capacity:,} leaves each of {copies} copies less than the {part} records that it "
                "inserts at once; choose fewer --processes, or a larger capacity"
            )
        if (kept := part + max(0, self.cached - 1)) > (own := -(-starts // copies)):
            raise TrainingError(
                f"a copy learns after {own:,} steps of its own, when it may have inserted nothing: it keeps up to "
                f"{kept:,} records; choose a smaller cache or local_storage, or a larger learning_starts"
            )
        most = (workload.steps // workload.learner.update_interval) // copies
        if self.members > 1 and self.every > most:
            raise TrainingError(
                f"weights would never meet: every is {self.every:,}, a copy of a run of {workload.steps:,} steps takes "
                f"about {most:,} gradient steps; choose a smaller --every, or more --steps"
            )

    def _check_models(self, workload: Workload) -> None:
        workers = self.model_workers
        if workload.algorithm != DYNA:
            if workers:
                raise TrainingError(
                    f"model workers are of {DYNA}, {workload.algorithm} has no {workers}; leave out --model-workers"
                )
            return
        if self.name != COPIES:
            raise TrainingError(
                f"{DYNA} has a process in the environment and workers that learn from a model, which {self.name} does "
                f"not start; choose --arrangement {COPIES}"
            )
        if self.processes > 1:
            raise TrainingError(
                f"one process of {DYNA} acts in the environment, not {self.processes}, and others learn from a model; "
                "leave out --processes, or give more --model-workers"
            )
        if workers and self.replay == "local":
            raise TrainingError("model workers learn from the records of another process; choose --replay shared")
        if workers and self.every == 0:
            raise TrainingError("model workers have no episode at which to meet; choose --every of at least 1")

    def _check_banks(self, workload: Workload) -> None:
        capacity, part = workload.replay.capacity, workload.actors.local_storage
        if self.name != "apart" or self.banks != self.learners:
            raise TrainingError(
                f"banks are of learners that sample for themselves, one each, not {self.banks} of {self.learners} in "
                f"{self.name}; choose --arrangement apart --learners L --banks L"
            )
        if self.strategy != BANKED:
            raise TrainingError(f"the strategy {self.strategy} has one bank, not {self.banks}; choose {BANKED}")
        if capacity % self.banks or capacity // self.banks < part:
            raise TrainingError(
                f"a capacity of {capacity:,} cannot be cut into {self.banks} equal banks of at least {part} records, "
                "those that an actor inserts at once; choose another capacity or number of banks"
            )
        if (starts := workload.learner.learning_starts) < part * self.banks:
            raise TrainingError(
                f"learning begins after {starts:,} steps, when a bank of {self.banks} is still empty: an actor inserts "
                f"{part} records at once; choose a learning_starts of at least {part * self.banks:,}"
            )

    def rows(self, workload: Workload) -> int:
        """Records that each learner samples for a gradient step: B/L where learners share it, else B."""
        return workload.learner.batch // (self.learners if self.sync in SHARING else 1)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, from which ``of`` makes the same arrangement again; Dyna-Q's where they differ."""
        made = {field.name: getattr(self, field.name) for field in fields(self)} | {"cores": list(self.cores)}
        return {key: one for key, one in made.items() if key not in ONLY_DYNA or one != getattr(Arrangement, key)}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Arrangement":
        """The arrangement of plain values. TrainingError for a key that there is none of."""
        known = {field.name for field in fields(cls)}
        for key in values:
            if key not in known:
                raise TrainingError(f"an arrangement has no key {key!r}{near(key, known)}")
        plain: dict[str, Any] = dict(values)
        return cls(**plain | {"cores": tuple(plain.get("cores", ()))})
