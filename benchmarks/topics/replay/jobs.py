"""What actors and learners do on a buffer: iterations for a stretch of time, or until a quota is done.

An iteration is an actor's (an insertion, then its work), of an actor with a local cache, a learner's (a sample, the new
priorities, then its work), of a learner that retrieves priorities before and after its work, and then sets new ones, or
one of actor and learner after the other.
"""

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from impls.replay import LocalStorage

from ...clock import pin_to
from ...libraries import rows
from ...libraries.base import Buffer
from .buffers import kind_of
from .cells import RETRIEVE

MEMBERS = 16  # at most
STOP = MEMBERS  # the word of the counts that tells all to stop
ROTATING = 16  # inputs that take turns
POLL_SECONDS = 50e-6  # between two looks of a member that waits for others
LIMIT_SECONDS = 60.0  # after which a member that has not answered counts as hanging


class CrewError(Exception):
    """A member failed, died or hangs; the message says which and how."""


@dataclass(frozen=True)
class Quota:
    """As many insertions and as many gradient steps as ``total``, by all actors and by all learners together.

    Members 0 to ``actors`` - 1 are actors, the others learners. Learners start after ``starts`` insertions; an actor
    waits while more than ``starts`` insertions are ahead of the learners.
    """

    actors: int
    learners: int
    total: int
    starts: int


@dataclass(frozen=True)
class Job:
    """What a member does on a buffer, from ``begin`` on: until ``end`` (both by ``perf_counter``), or a quota.

    ``amount`` of work after each operation: seconds of sleeping, or rounds of arithmetic.
    """

    buffer: str
    role: str
    index: int
    rows: int
    batch: int
    cpus: tuple[int, ...]
    work: str = "none"
    amount: float = 0.0
    begin: float = 0.0
    end: float = math.inf
    quota: Quota | None = None


@dataclass(frozen=True)
class Outcome:
    """The iterations that a member did and when; ``error`` is what stopped it."""

    iterations: int
    began: float
    ended: float
    error: str | None = None
    superseded: int = 0  # samples whose priority others changed between both retrievals

    @property
    def seconds(self) -> float:
        """Seconds of an iteration."""
        return (self.ended - self.began) / self.iterations


def compute(rounds: int) -> None:
    """Do a given number of rounds of arithmetic, which touch no memory to speak of and hold no lock of Python's."""
    hashlib.pbkdf2_hmac("sha256", b"work", b"", rounds)


def rounds_of(seconds: float) -> int:
    """Return how many rounds of ``compute`` take so long, by the fastest of several tries; at least 1."""
    tried = 2_000
    least = math.inf
    for _ in range(10):
        begin = time.perf_counter()
        compute(tried)
        least = min(least, time.perf_counter() - begin)
    return max(1, round(tried * seconds / least))


class Member:
    """The buffers of a thread or process, and the jobs it has done before, ready to be done again."""

    def __init__(self, counts: Any) -> None:
        self.buffers: dict[str, Buffer] = {}
        self._counts = counts
        self._iterations: dict[tuple[Any, ...], Callable[[int], int | None]] = {}

    def attach(self, key: str, name: str, handle: Any, capacity: int, seed: int) -> None:
        """Attach to a buffer of another process."""
        kind: Any = kind_of(name)
        self.buffers[key] = kind.attached(handle, capacity, seed)

    def run(self, job: Job) -> Outcome:
        """Do a job; an exception stops the others too, and is the outcome's error."""
        pin_to(job.cpus)
        key = (job.buffer, job.role, job.rows, job.batch, job.work, job.amount)
        try:
            if key not in self._iterations:
                self._iterations[key] = _iteration(self.buffers[job.buffer], job)
            return (_by_quota if job.quota else _for_a_stretch)(job, self._iterations[key], self._counts)
        except Exception as error:  # whatever a buffer raises is the result of its cell
            self._counts[STOP] = 1
            now = time.perf_counter()
            return Outcome(0, now, now, f"{job.role} {job.index}: {type(error).__name__}: {error}")


def _iteration(buffer: Buffer, job: Job) -> Callable[[int], int | None]:
    """Return what one iteration of a job does, by its number; it returns how many of its samples were superseded."""
    rng = np.random.default_rng(job.index)
    works: dict[str, Callable[[], object]] = {
        "none": lambda: None,
        "computing": partial(compute, int(job.amount)),
        "sleeping": partial(time.sleep, job.amount),
    }
    work, batch = works[job.work], job.batch
    made = [rows.made(rng.integers(0, rows.MOST, job.rows)) for _ in range(ROTATING)]
    placed = [buffer.place(one) for one in made]
    storage = LocalStorage(rows.LAYOUT, job.rows)
    errors = [buffer.place_errors(rng.random(batch).astype(np.float32)) for _ in range(ROTATING)]

    def act(turn: int) -> None:
        buffer.insert(placed[turn % ROTATING])
        work()

    def learn(turn: int) -> None:
        buffer.update(buffer.sample(batch), errors[turn % ROTATING])
        work()

    def learn_by_priorities(turn: int) -> int:
        sampled = buffer.sample(batch)
        used = buffer.retrieve(sampled)  # [Zhang2021, Alg. 1], for the weights
        work()
        superseded = np.count_nonzero(buffer.retrieve(sampled) != used)
        buffer.update(sampled, errors[turn % ROTATING])
        return superseded

    def both(turn: int) -> None:
        act(turn)
        learn(turn)

    def flush(turn: int) -> None:
        for step in steps[turn % ROTATING]:
            storage.store(*step)  # as actors do
        buffer.insert(buffer.place(storage.take()[0]))

    names = ("observation", "action", "reward", "next_observation", "terminated")  # as a local cache takes them
    steps = [list(zip(*(one[name] for name in names), strict=True)) for one in made]
    roles = {"actor": act, "learner": learn, RETRIEVE: learn_by_priorities, "both": both, "cache": flush}
    return roles[job.role]


def _wait_until(moment: float) -> float:
    while (left := moment - time.perf_counter()) > 0:
        time.sleep(left)
    return time.perf_counter()


def _for_a_stretch(job: Job, iteration: Callable[[int], int | None], counts: Any) -> Outcome:
    began = now = _wait_until(job.begin)
    done = 0
    # Invariant: ``done`` iterations ended at ``now``.
    while not done or (now < job.end and not counts[STOP]):
        iteration(done)
        done += 1
        now = time.perf_counter()
    return Outcome(done, began, now)


def _by_quota(job: Job, iteration: Callable[[int], int | None], counts: Any) -> Outcome:
    quota = job.quota
    assert quota is not None
    actors, members = quota.actors, quota.actors + quota.learners
    is_actor, late = job.role == "actor", job.begin + LIMIT_SECONDS
    first, last = (0, actors) if is_actor else (actors, members)
    began = _wait_until(job.begin)
    done = superseded = 0
    # Invariant: counts[0 : members] are the iterations that each member has done; no word has two writers.
    while sum(counts[first:last]) < quota.total:
        inserted, learned = sum(counts[:actors]), sum(counts[actors:members])
        must_wait = inserted > learned + quota.starts if is_actor else inserted < min(quota.starts, quota.total)
        if counts[STOP] or time.perf_counter() > late:
            raise CrewError("stopped, for another failed" if counts[STOP] else f"not done after {LIMIT_SECONDS:g} s")
        if must_wait:
            time.sleep(POLL_SECONDS)
            continue
        superseded += iteration(done) or 0
        done += 1
        counts[job.index] = done
    return Outcome(done, began, time.perf_counter(), superseded=superseded)
