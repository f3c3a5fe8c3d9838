"""Race callables: find the fastest on this machine, in as few seconds as it takes, with a stated error.

A **block** is a few calls of one candidate, timed together. A **round** is a block of each candidate that is left, in
shuffled order and with the same inputs. Only ratios within a round count: load from outside slows all of a round.

After n rounds in which a candidate took longer than the leader S times,

    e(S, n) = sum_{i <= S} C(n + 1, i) / ((n + 1) C(n, S))

is the evidence that it is slower: the mean of the likelihood ratios of every probability of "longer" from 1/2 to 1 to
that of 1/2. For candidates of equal speed it is a martingale, so that it ever reaches 1 / a with probability at most a,
however often one looks [Ville1939, Robbins1970]. A candidate leaves the race at a = error / (2 (candidates - 1)): then
two of equal speed are separated with at most the probability ``error``, and the fastest is lost with half of that.
"""

import functools
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

BLOCK_SECONDS = 2e-3
LEAST_CALLS = 2  # of a block
TRIALS = 3  # calls of each candidate before its first round, which also warm it up
LEAST_ROUNDS = 8
HOPELESS = 20.0  # what took so many times as long as the fastest in the shortest of its trials runs no rounds
LOOK_EVERY = 1.05  # the rounds of a look by those of the look before: a look takes time, and costs no certainty

Call = Callable[..., Any]
Inputs = Sequence[tuple[Any, ...]]
Interval = tuple[float, float, float]
Status = Literal["fastest", "equal", "slower", "undecided", "failed"]
Ending = Literal["decided", "out of time", "interrupted"]


@dataclass(frozen=True)
class Candidate:
    """What may win. ``make`` makes the callable and fills it, before any time counts; it holds ``nbytes`` from then."""

    name: str
    make: Callable[[], Call]
    nbytes: float = 0.0


@dataclass(frozen=True)
class Standing:
    """How a candidate did. ``status``: "fastest": take it; "equal": as fast as that, within the indifference zone.

    ``seconds``: (median, low, high) of a call, by the rounds it ran. ``ratio``: (median, low, high) of its time to that
    of the fastest, over rounds that both ran; its bounds hold with the race's error. NaN where there are no such
    rounds, for which ``reason`` has words.
    """

    name: str
    status: Status
    seconds: Interval
    ratio: Interval
    rounds: int
    reason: str = ""


@dataclass(frozen=True)
class Result:
    """What a race showed: ``standings``, the fastest first. ``blocks``: seconds of a call, by candidate and round."""

    standings: tuple[Standing, ...]
    ending: Ending
    rounds: int
    seconds: float
    blocks: Mapping[str, Mapping[int, float]] = field(repr=False)

    @property
    def fastest(self) -> Standing:
        """The candidate to take."""
        return self.standings[0]


def race(
    candidates: Mapping[str, Call] | Sequence[Candidate],
    inputs: Inputs = ((),),
    seconds: float = 5.0,
    zone: float = 0.01,
    error: float = 0.05,
    cold_bytes: int = 0,
    memory_bytes: float = math.inf,
    progress: Callable[[float, int], None] = lambda spent, left: None,
) -> Result:
    """Race candidates until one is left, those that are left are equally fast, or ``seconds`` are over.

    candidates: callables by name, or ``Candidate``s. Of equally fast ones the first is taken, so the cheapest to have
    comes first. inputs: the arguments of one call after the other. zone: the share by which one may be slower and still
    count as equally fast. error: see the module. cold_bytes: memory that is written between two calls, as a gradient
    step does; with 0 caches stay hot. memory_bytes: what candidates may hold at once; the others wait until those are
    decided. progress: is told (seconds spent, candidates left) after each look.

    A candidate that raises an Exception has failed. Ctrl-C gives the answer so far, once there is one. ValueError for
    bounds that make no sense, and where no candidate can run.

    >>> race({"sorted": lambda: sorted(range(999)), "sum": lambda: sum(range(9))}, seconds=1).fastest.name
    'sum'
    """
    if isinstance(candidates, Mapping):
        candidates = [Candidate(name, functools.partial(_itself, call)) for name, call in candidates.items()]
    names = [one.name for one in candidates]
    if not names or len(set(names)) < len(names) or not inputs:
        raise ValueError(f"a race needs inputs, and candidates of different names, not {names}")
    if not (0 < seconds < math.inf and 0 <= zone < math.inf and 0 < error < 1 and 0 <= cold_bytes):
        bounds = "seconds above 0, zone from 0, error between 0 and 1 and cold_bytes from 0"
        raise ValueError(f"a race takes {bounds}, not {seconds}, {zone}, {error} and {cold_bytes}")
    run = _Race(candidates, inputs, math.log1p(zone), error / (2 * max(len(names) - 1, 1)), cold_bytes)
    waiting = list(candidates)
    while waiting and run.ending != "interrupted":
        one = waiting.pop(0)
        if run.held + one.nbytes > memory_bytes:
            run.reasons[one.name] = f"needs {one.nbytes:.3g} bytes beside what leads, of {memory_bytes:.3g}"
            continue
        run.add(one)
        if waiting and run.held + waiting[0].nbytes <= memory_bytes:
            continue
        left = len(run.live)
        run.decide(run.spent + (seconds - run.spent) * left / (left + len(waiting) or 1), progress)
        if waiting:  # they need the memory of all but the leader
            run.live = {name: call for name, call in run.live.items() if name == run.leader()}
    if not run.live:
        raise ValueError("no candidate can run: " + "; ".join(f"{name}: {why}" for name, why in run.reasons.items()))
    return Result(tuple(run.standings()), run.ending, run.rounds, run.spent, run.blocks)


def _itself(call: Call) -> Call:
    return call


@functools.cache
def fewest(n: int, level: float) -> int:
    """Return the least S with e(S, n) >= 1 / level, n + 1 where no S has that.

    >>> fewest(7, 0.025), fewest(8, 0.025), fewest(100, 0.025)
    (8, 8, 68)
    """
    below, chosen = 0, 1  # the sum of C(n + 1, i) up to S, and C(n, S)
    term = 1
    for longer in range(n + 1):
        below += term
        if 2 * longer > n and below * level >= (n + 1) * chosen:
            return longer
        term = term * (n + 1 - longer) // (longer + 1)
        chosen = chosen * (n - longer) // (longer + 1)
    return n + 1


def median_bounds(values: Sequence[float], level: float) -> Interval:
    """Return (median, low, high) of values: each bound is wrong at any look with at most the probability ``level``."""
    n, enough = len(values), fewest(len(values), level)
    if enough > n:
        return (statistics.median(values) if n else math.nan), -math.inf, math.inf
    ordered = sorted(values)
    return statistics.median(ordered), ordered[n - enough], ordered[enough - 1]


class _Race:
    """``live``: the callables that are left, those preferred first; ``blocks`` of all: seconds of a call by round."""

    def __init__(
        self, candidates: Sequence[Candidate], inputs: Inputs, zone: float, level: float, cold_bytes: float
    ) -> None:
        self.nbytes = {one.name: one.nbytes for one in candidates}
        self.inputs, self.zone, self.level = list(inputs), zone, level
        self.scratch = np.zeros(int(cold_bytes) // 8) if cold_bytes else None
        self.live: dict[str, Call] = {}
        self.trials: dict[str, float] = {}  # seconds of the shortest
        self.calls: dict[str, int] = {}  # of a block
        self.blocks: dict[str, dict[int, float]] = {one.name: {} for one in candidates}
        self.reasons: dict[str, str] = {}  # why one failed, or is hopeless
        self.slower = set[str]()
        self.ending: Ending = "decided"
        self.rounds, self.position, self.spent = 0, 0, 0.0

    @property
    def held(self) -> float:
        """Bytes of the candidates that are left."""
        return sum(self.nbytes[name] for name in self.live)

    def add(self, one: Candidate) -> None:
        """Make a candidate and try it."""
        try:
            call = one.make()
            self.trials[one.name] = min(self.block(call, 1) for _ in range(TRIALS))
        except Exception as error:
            self.reasons[one.name] = f"{type(error).__name__}: {error}"
        else:
            self.live[one.name] = call

    def block(self, call: Call, calls: int) -> float:
        """Return the seconds of a call: the mean of some, with the inputs that are next in this round."""
        inputs = self.inputs[self.position : self.position + calls]
        if self.scratch is None:
            begin = time.perf_counter()
            for each in inputs:
                call(*each)
            return (time.perf_counter() - begin) / len(inputs)
        spent = 0.0
        for each in inputs:
            self.scratch += 1
            begin = time.perf_counter()
            call(*each)
            spent += time.perf_counter() - begin
        return spent / len(inputs)

    def decide(self, until: float, progress: Callable[[float, int], None]) -> None:
        """Run rounds until those that are left are equally fast, or so many seconds are spent in all."""
        least = min((self.trials[name] for name in self.live), default=0.0)
        for name in [name for name in self.live if self.trials[name] > HOPELESS * least]:
            self.reasons[name] = (
                f"took at least {self.trials[name] / least:.0f} times as long in each of {TRIALS} calls"
            )
            self.slower.add(name)
            del self.live[name]
        self.calls = {name: max(LEAST_CALLS, int(BLOCK_SECONDS / self.trials[name])) for name in self.live}
        self.inputs *= -(-max(self.calls.values(), default=1) // len(self.inputs))
        begin, first, look, self.ending = time.perf_counter() - self.spent, self.rounds, LEAST_ROUNDS, "out of time"
        try:
            while self.live and (self.spent < until or self.rounds == first):
                self.run_round()
                self.spent = time.perf_counter() - begin
                if self.rounds - first >= look:
                    look = int(max(look + 1, look * LOOK_EVERY))
                    progress(self.spent, len(self.live))
                    if self.is_decided():
                        self.ending = "decided"
                        break
        except KeyboardInterrupt:
            if not self.rounds:
                raise
            self.ending = "interrupted"

    def run_round(self) -> None:
        """Time a block of each candidate. One that raises an Exception leaves."""
        took = dict[str, float]()
        for name in random.sample(list(self.live), len(self.live)):
            try:
                took[name] = self.block(self.live[name], self.calls[name])
            except Exception as error:
                self.reasons[name] = f"{type(error).__name__}: {error}"
                del self.live[name]
        for name, seconds in took.items():  # of whole rounds alone
            self.blocks[name][self.rounds] = seconds
        self.rounds += 1
        most = max(self.calls.values())
        self.position = self.position + most if self.position + 2 * most <= len(self.inputs) else 0

    def leader(self) -> str:
        """Return the candidate with the least median, over the rounds that all that are left ran."""
        shared = set.intersection(*(set(self.blocks[name]) for name in self.live))
        return min(self.live, key=lambda name: statistics.median(self.blocks[name][at] for at in shared))

    def ratio(self, name: str, other: str) -> Interval:
        """Return (median, low, high) of the log of a candidate's time to another's."""
        own, others = self.blocks[name], self.blocks[other]
        return median_bounds([math.log(own[at] / others[at]) for at in own if at in others], self.level)

    def is_decided(self) -> bool:
        """Let go what is slower than the leader; return whether all others are as fast within the zone."""
        leader, is_equal = self.leader(), True
        for name in [name for name in self.live if name != leader]:
            _, low, high = self.ratio(name, leader)
            if low > 0 and high > self.zone:
                self.slower.add(name)
                del self.live[name]
            is_equal = is_equal and (low > 0 or high <= self.zone)
        return is_equal

    def standings(self) -> list[Standing]:
        """Return how each did, beside the first of those that are as fast as the leader."""
        leader = self.leader()
        equal = [one for one in self.blocks if one not in self.slower and self.ratio(one, leader)[2] <= self.zone]
        equal = equal or [leader]
        every = [self.standing(name, equal) for name in self.blocks]
        return sorted(every, key=lambda one: (one.status != "fastest", not one.rounds, one.ratio[0]))

    def standing(self, name: str, equal: Sequence[str]) -> Standing:
        """Return how a candidate did."""
        blocks, (median, low, high) = list(self.blocks[name].values()), self.ratio(name, equal[0])
        status: Status = "failed" if name in self.reasons else "undecided"
        if name in self.slower or low > 0:
            status = "slower"
        elif name in equal:
            status = "fastest" if name == equal[0] else "equal"
        ratio = math.exp(median), math.exp(low), math.exp(high)
        return Standing(name, status, median_bounds(blocks, self.level), ratio, len(blocks), self.reasons.get(name, ""))
