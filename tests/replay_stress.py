"""A stress of a shared replay: actors insert and learners sample and update, and every answer is checked.

Every 8 bytes of a record carry its own number, so that a torn one shows anywhere in it. A number is its actor's in the
upper bits and counts that actor's frames in the lower 40.
"""

import contextlib
import ctypes
import multiprocessing
import threading
import time
import zlib
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from impls.replay import Batch, Layout, Replay, attach, make
from impls.replay.block import ACTOR, COUNT, GRANTED, MODE, READY, TICKET, WRITTEN, Bank
from impls.replay.registry import strategy_class
from impls.replay.steps import RANDOM

PLAIN = Layout((12,), "int64", action_size=2)
STACKED = Layout((24,), "int64", frames=4, action_size=2)
STEPPED = ("global", "two_lock_checked")  # strategies whose points are those of trials.py
_COUNTER = 40  # bits of a number that count an actor's frames
_FILLER = 1 << 62  # in the action of a record that must never be sampled
_SLOTS_SEEN = 4096  # of a learner's table of what it saw of which ticket
_OLD = 16  # batches that a learner keeps to update late
PATIENCE_SECONDS = 60.0


class Fault(AssertionError):
    """Something that must not be; the first argument names the check that found it."""


def demand(check: str, good: Any, text: str = "") -> None:
    """Raise the named Fault unless all is good."""
    if not np.all(good):
        raise Fault(check, text)


@dataclass(frozen=True)
class Plan:
    """What a stress does; it ends after so many ``rows`` inserted, sampled and updated, or after so many seconds."""

    strategy: str
    capacity: int = 256
    layout: Layout = PLAIN
    kind: str = "threads"
    callers: int = 3
    rows: float = 1e6
    seconds: float = PATIENCE_SECONDS
    batch: int = 64
    most: int = 16  # records of one insert
    banks: int = 1
    fanout: int = 4
    trial: bool = False  # whether kernels sleep at random points
    look_seconds: float = 0.05  # between looks at the whole replay
    actor: int = 0  # number of the first actor: those that take the place of dead ones have numbers of their own

    @property
    def usual(self) -> "Plan":
        """The plan with two banks of its capacity where the strategy has banks."""
        return replace(self, banks=2, capacity=2 * self.capacity) if strategy_class(self.strategy).banked else self


@dataclass
class Report:
    """What callers did: rows of each operation, by actor the number it inserted last, the first fault."""

    inserted: int = 0
    sampled: int = 0
    updated: int = 0
    last: dict[int, int] = field(default_factory=dict)
    fault: Fault | None = None

    @property
    def rows(self) -> int:
        """All rows touched."""
        return self.inserted + self.sampled + self.updated

    def add(self, other: "Report") -> None:
        """Take in what another caller did."""
        self.inserted += other.inserted
        self.sampled += other.sampled
        self.updated += other.updated
        self.last |= other.last
        self.fault = self.fault or other.fault


# Records that carry their own number


def packed(row: np.dtype, numbers: np.ndarray) -> np.ndarray:
    """Rows ``[n]`` whose every word is their number."""
    rows = np.empty(len(numbers), row)
    rows.view(np.int64).reshape(len(numbers), -1)[:] = numbers[:, None]
    return rows


def words_of(bank: Bank) -> np.ndarray:
    """The words ``[slots, ...]`` of a bank's rows, those between fields included."""
    return bank.parts[1].reshape(bank.shape.slots, -1).view(np.int64)


def numbers_of(words: np.ndarray) -> np.ndarray:
    """Numbers ``[n]`` of rows, every word of which must be that number."""
    demand("torn", words == words[:, :1], f"a stored row mixes {np.unique(words[(words != words[:, :1]).any(1)])[:4]}")
    return words[:, 0]


def numbers_in(batch: Batch, layout: Layout) -> np.ndarray:
    """Numbers ``[B]`` of sampled records, every byte of which must be theirs."""
    rows = batch.rows
    numbers = rows["action"].view(np.int64)[:, 0]
    demand("filler", numbers < _FILLER, "a filler was sampled")
    if layout.frames > 1:
        ages = np.arange(1 - layout.frames, 1)
        stacks = {"observation": numbers[:, None] + ages, "next_observation": numbers[:, None] + ages + 1}
        for name, frames in stacks.items():
            good = rows[name] == frames[:, :, None]
            demand("torn", good, f"{name} of record {numbers[~good.all((1, 2))][:1]}: {rows[name][~good][:4]}")
    else:
        for name in ("observation", "next_observation"):
            good = rows[name] == numbers[:, None]
            demand("torn", good, f"{name} of record {numbers[~good.all(1)][:1]} has {rows[name][~good][:4]}")
    low = (numbers & 0xFFFFFFFF).astype(np.uint32)
    demand("torn", rows["reward"].view(np.uint32) == low, "the reward is another record's")
    return numbers


class Seen:
    """Which number was seen with which ticket, as far as a small table remembers."""

    def __init__(self) -> None:
        self._tables = [np.full((2, _SLOTS_SEEN), -1, np.int64) for _ in range(2)]

    def check(self, tickets: np.ndarray, numbers: np.ndarray) -> None:
        """A ticket must always come with the same number, and a number with the same ticket."""
        for (keys, values), key, value in zip(self._tables, (tickets, numbers), (numbers, tickets), strict=True):
            slots = (key ^ (key >> 33)) % _SLOTS_SEEN
            known = keys[slots] == key
            demand("another", values[slots[known]] == value[known], "a ticket's record changed")
            keys[slots], values[slots] = key, value


# Callers


def insert(replay: Replay, plan: Plan, actor: int, counter: int, rng: np.random.Generator) -> tuple[int, int]:
    """Insert some records whose frames are numbered from ``counter`` on; (how many rows, the next counter)."""
    fillers = plan.layout.fillers
    count = int(rng.integers(1, plan.most + 1))
    numbers = (actor << _COUNTER) + counter + np.arange(count + fillers)
    rows = packed(replay.row, numbers)
    drawable = None
    if fillers:
        drawable = np.zeros(len(rows), np.bool_)
        drawable[fillers - 1 : fillers - 1 + count] = True
        rows["action"].view(np.int64)[~drawable] |= _FILLER
    errors = rng.exponential(size=count) if rng.random() < 0.5 else None
    replay.insert(rows, errors, drawable)
    return len(rows), counter + len(rows) + fillers  # a gap, so that no stack goes on from one insert to the next


def act(replay: Replay, plan: Plan, actor: int, going: Any) -> Report:
    """Insert until it is over."""
    actor += plan.actor
    rng, report, counter = np.random.default_rng([7, actor]), Report(), 1
    while going(report.rows):
        count, counter = insert(replay, plan, actor, counter, rng)
        report.inserted += count
        report.last[actor] = counter - plan.layout.fillers - 1
    return report


def overwritten(replay: Replay, sequence: np.ndarray) -> np.ndarray:
    """Which records have been overwritten for sure; with L banks, record t of bank j is number t L + j."""
    written = np.array([bank.word(WRITTEN)[0] for bank in replay._banks])
    return sequence // len(written) < written[sequence % len(written)] - replay.capacity // len(written)


def learn(replay: Replay, plan: Plan, learner: int, going: Any) -> Report:
    """Sample and update, also late, until it is over."""
    rng, report, seen = np.random.default_rng([8, learner]), Report(), Seen()
    old: deque[np.ndarray] = deque(maxlen=_OLD)
    out = replay.outputs(plan.batch)
    while going(report.rows):
        try:
            batch = replay.sample(plan.batch, 0.4, rng, out=out if rng.random() < 0.5 else None)
        except RuntimeError:  # nothing yet, or every record is being overwritten
            continue
        numbers = numbers_in(batch, plan.layout)
        seen.check(batch.sequence, numbers)
        demand("weights", (batch.weights > 0) & (batch.weights <= 1), f"weights {batch.weights}")
        old.append(batch.sequence.copy())
        tickets = old[rng.integers(len(old))] if rng.random() < 0.3 else old[-1]
        gone = overwritten(replay, tickets)
        if rng.random() < 0.3:
            demand("late", replay.retrieve_priorities(tickets)[gone] == 0, "an overwritten record has a priority")
        there = replay.update_priorities(tickets, rng.exponential(size=plan.batch))
        demand("late", ~there[gone], "an overwritten record took an update")
        report.sampled += plan.batch
        report.updated += int(there.sum())
    return report


def call(replay: Replay, plan: Plan, number: int, words: Any) -> Report:
    """One caller; every third learns. Word 0 ends all of them, and word 1 + number counts this one's rows."""
    end = time.monotonic() + plan.seconds

    def going(rows: int) -> bool:
        words[1 + number] = rows
        # The mutexes are not fair: who is in luck goes on until every caller has done its part.
        is_done = sum(words[1:]) >= plan.rows and min(words[1:]) >= plan.rows / 10 / plan.callers
        return not words[0] and not is_done and time.monotonic() < end

    try:
        return (learn if number % 3 == 1 else act)(replay, plan, number, going)
    except Fault as fault:
        words[0] = 1
        return Report(fault=fault)


def sleep_at_points(replay: Replay, plan: Plan, seed: int) -> None:
    """Let this process's kernels sleep for random times at random points."""
    assert replay._memory is not None
    header = replay._memory.view(0, (GRANTED + 64,), np.int64)
    header[GRANTED + seed] = zlib.crc32(bytes([seed]))
    for bank in replay._banks:
        bank.view[ACTOR] = seed
    header[MODE] = RANDOM


def _child(handle: Any, plan: Plan, number: int, words: Any, pipe: Any) -> None:
    with attach(handle) as replay:
        if plan.trial:
            sleep_at_points(replay, plan, number)
        pipe.send("ready")
        pipe.recv()
        pipe.send(call(replay, plan, number, words))


class Threads:
    """Callers on threads of this process, which share one replay object."""

    def __init__(self, replay: Replay, plan: Plan) -> None:
        self.words = (ctypes.c_int64 * (1 + plan.callers))()
        self.reports: list[Report | BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(replay, plan, number), daemon=True)
            for number in range(plan.callers)
        ]

    def _run(self, *arguments: Any) -> None:
        try:
            self.reports.append(call(*arguments, self.words))
        except BaseException as error:  # raised again by who collects the reports
            self.words[0] = 1
            self.reports.append(error)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def alive(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def collect(self) -> list[Report | BaseException]:
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            demand("stuck", not thread.is_alive(), "a caller does not end")
        return self.reports


class Processes:
    """Callers in processes of their own, each attached by the handle."""

    def __init__(self, replay: Replay, plan: Plan) -> None:
        self.words, self._replaced = server().RawArray(ctypes.c_int64, 1 + plan.callers), 0
        self.callers = [self._begin(replay, plan, number) for number in range(plan.callers)]

    def _begin(self, replay: Replay, plan: Plan, number: int) -> tuple[Any, Any]:
        """Start a process, which goes on once it is told."""
        mine, theirs = server().Pipe()
        process = server().Process(target=_child, args=(replay.handle(), plan, number, self.words, theirs), daemon=True)
        process.start()
        theirs.close()
        demand("stuck", mine.poll(PATIENCE_SECONDS), "a child does not start")
        mine.recv()
        return process, mine

    def replace(self, replay: Replay, plan: Plan, number: int) -> None:
        """Start a caller in the place of one that has ended."""
        self.words[1 + number], self._replaced = 0, self._replaced + 1
        self.callers[number] = self._begin(replay, replace(plan, actor=plan.callers * self._replaced), number)
        self.callers[number][1].send("go")

    def start(self) -> None:
        for _, pipe in self.callers:
            pipe.send("go")

    def alive(self) -> bool:
        return any(process.is_alive() and not pipe.poll() for process, pipe in self.callers)

    def collect(self) -> list[Report | BaseException]:
        reports: list[Report | BaseException] = []
        for process, pipe in self.callers:
            demand("stuck", pipe.poll(PATIENCE_SECONDS), "a caller does not end")
            reports.append(pipe.recv())
            process.join(PATIENCE_SECONDS)
        return reports

    def kill(self) -> None:
        """End whatever still runs."""
        for process, _ in self.callers:
            process.kill()
            process.join(PATIENCE_SECONDS)


def server() -> Any:
    """The context in which children start: forked from a server that has imported everything and has one thread."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.warm_replays"])
    return context


# The whole replay


def inspect(replay: Replay, plan: Plan) -> None:
    """Look at every bank under its lock: words, leaves, sums, counters and rows must agree, whatever is under way."""
    largest = np.zeros(1)
    for bank in replay._banks:
        with replay._alone(bank):
            words, leaves, rows = bank.words.copy(), bank.leaves, words_of(bank).copy()
            written, count = int(bank.word(WRITTEN)[0]), int(bank.word(COUNT)[0])
            replay._audit(bank.address, False, largest)
        ready = words & 3 == READY
        demand("sums", largest[0] == 0, f"a sum is wrong by {largest[0]}")
        demand("leaves", ready == (leaves > 0), "a priority is above 0 and its record not ready, or the other way")
        demand("count", count == ready.sum(), f"{count} records are counted, {ready.sum()} are ready")
        tickets = words // TICKET - 1
        slots = np.arange(len(words))
        used = words != 0
        demand("tickets", tickets[used] % len(words) == slots[used], "a slot has a ticket of another")
        # A reserved slot's word is still the old one for a moment, but not while somebody else has the lock.
        demand("tickets", tickets[used] // len(words) == (written - 1 - slots[used]) // len(words), "a word is too old")
        numbers = numbers_of(rows[ready]) if plan.layout.frames == 1 else np.empty(0)
        demand("twice", len(np.unique(numbers)) == len(numbers), "a record is there twice")


def inspect_at_rest(replay: Replay, plan: Plan, report: Report) -> None:
    """Every row that was inserted has had a slot, the latest are there, and nothing is under way."""
    inspect(replay, plan)
    demand("lost", replay.written == report.inserted, f"{report.inserted} inserted, {replay.written} written")
    demand("lost", replay.recover() == 0, f"{replay.lost} records are lost")
    demand("sums", replay.check() == 0)
    live = 0
    for bank in replay._banks:
        demand("ranges", bank.ranges()[:, 1] == 0, "a range is still being written")
        states = bank.words[bank.words != 0] & 3
        demand("words", states != 1, "a record is still being written")
        live += int((states == READY).sum())
    demand("count", len(replay) == live, f"{len(replay)} records, {live} ready")
    _inspect_numbers(replay, plan, report)


def _inspect_numbers(replay: Replay, plan: Plan, report: Report) -> None:
    """Of each actor the latest record is there, and their numbers follow their tickets."""
    if plan.banks > 1:
        return
    (bank,) = replay._banks
    order = np.argsort(bank.words, kind="stable")[-min(replay.written, plan.capacity) :]
    numbers = words_of(bank)[order, 0]  # a filler's own, too
    for actor, last in report.last.items():
        theirs = numbers[numbers >> _COUNTER == actor]
        demand("order", np.diff(theirs) > 0, f"actor {actor}'s records are not in order")
        if len(theirs):
            demand("lost", theirs[-1] == (actor << _COUNTER) + last, f"actor {actor}'s last record is not there")


def run(plan: Plan) -> Report:
    """Stress a fresh replay; raises the Fault that is found, or returns what was done."""
    settings = {"shared": plan.kind == "processes", "trial": plan.trial, "banks": plan.banks, "fanout": plan.fanout}
    with make(plan.capacity, plan.layout, alpha=0.6, epsilon=1e-3, strategy=plan.strategy, **settings) as replay:
        callers = (Processes if plan.kind == "processes" else Threads)(replay, plan)
        if plan.trial:
            sleep_at_points(replay, plan, 0)
        return _drive(replay, plan, callers)


def _drive(replay: Replay, plan: Plan, callers: Any) -> Report:
    report = Report()
    with contextlib.ExitStack() as stack:
        if isinstance(callers, Processes):
            stack.callback(callers.kill)
        try:
            callers.start()
            while callers.alive():
                time.sleep(plan.look_seconds)
                inspect(replay, plan)
        finally:
            ended = callers.words[0]
            callers.words[0] = 1
            outcomes = callers.collect()
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            report.add(outcome)
        if report.fault:
            raise report.fault
        demand("stuck", not ended)
        inspect_at_rest(replay, plan, report)
    return report
