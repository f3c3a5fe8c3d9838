"""Race callables: find the fastest on this machine, in as few seconds as it takes, with a stated error.

A **block** is a few calls of one candidate, timed together. A **round** is a block of each candidate that is left, in
shuffled order and with the same inputs. Only ratios within a round count: load from outside slows all of a round. After
n rounds in which a candidate took longer than the leader S times,

    e(S, n) = sum_{i <= S} C(n + 1, i) / ((n + 1) C(n, S))

is the evidence that it is slower: the mean of the likelihood ratios of every probability of "longer" from 1/2 to 1 to
that of 1/2. For candidates of equal speed it is a martingale, so that it ever reaches 1 / a with probability at most a,
however often one looks [Ville1939, Robbins1970]. A candidate leaves the race at a = error / (2 (candidates - 1)): then
two of equal speed are separated with at most the probability ``error``, and the fastest is lost with half of that.
"""

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Any

import numpy as np

TRIALS, LEAST_CALLS, LEAST_ROUNDS = 3, 2, 8  # calls before the first round, of a block, rounds before the first look
random = SystemRandom()  # decides the order, which neither seeds of callables fix nor ours disturb
HOPELESS = 4.0  # what is so many times slower than the fastest in the shortest of its trials runs no rounds
LOOK_EVERY = 1.05  # the rounds of a look by those of the look before: a look takes time, and costs no certainty

Call = Callable[..., Any]
Interval = tuple[float, float, float]


@dataclass(frozen=True)
class Candidate:
    """What may win. ``make`` makes the callable and fills it, before any time counts; it holds ``nbytes`` from then.

    ``end`` is called where it has left the race.
    """

    name: str
    make: Callable[[], Call]
    nbytes: float = 0.0
    end: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Standing:
    """(median, low, high) of the seconds of a call and of the ratio to the fastest; NaN and infinite without rounds."""

    name: str
    status: str  # "fastest" (take it), "equal" (as fast within the zone), "slower", "undecided" or "failed"
    seconds: Interval
    ratio: Interval
    reason: str = ""


@dataclass(frozen=True)
class Result:
    """``standings``, the fastest first; ``blocks``: seconds of a call, by candidate and round."""

    standings: tuple[Standing, ...]
    ending: str  # "decided", "out of time" or "interrupted"
    seconds: float
    blocks: Mapping[str, Mapping[int, float]] = field(repr=False)


def race(
    candidates: Mapping[str, Call] | Sequence[Candidate],
    inputs: Sequence[tuple[Any, ...]] = ((),),
    seconds: float = 5.0,
    zone: float = 0.01,
    error: float = 0.05,
    block_seconds: float = 0.5e-3,
    warm_seconds: float = 1e-3,
    touch: Call = lambda *arguments: None,
    cold_bytes: int = 0,
    memory_bytes: float = math.inf,
    progress: Callable[[float, int], None] = lambda spent, left: None,
) -> Result:
    """Race candidates until one is left, those that are left are equally fast, or ``seconds`` are over.

    candidates: callables by name, or ``Candidate``s; of equally fast ones the first is taken, so the cheapest to have
    comes first. inputs: the arguments of one call after the other. zone: the share by which one may be slower and still
    count as equally fast. error: see the module. block_seconds: of the fastest, timed after calls for ``warm_seconds``,
    which read anew what others threw out of the caches; with 0 each call is a block, and returns its seconds. touch:
    reads the arguments of a call, untimed, before it is timed; or the first of a round waits for what the others find
    in the caches. cold_bytes: memory that is written before each call, as a gradient step does; with 0 caches are hot.
    memory_bytes: what candidates may hold at once; others wait. progress: is told (seconds spent, candidates left) as
    they are filled and after each look. A candidate that raises an Exception has failed; Ctrl-C gives the answer so
    far. ValueError for bounds without sense, and where no candidate can run.

    >>> race({"sorted": lambda: sorted(range(999)), "sum": lambda: sum(range(9))}, seconds=1).standings[0].name
    'sum'
    """
    if isinstance(candidates, Mapping):
        candidates = [Candidate(name, lambda call=call: call) for name, call in candidates.items()]  # type: ignore[misc]
    names = [one.name for one in candidates]
    if len(names) < 2 or len(set(names)) < len(names) or not inputs:
        raise ValueError(f"a race needs inputs and at least 2 candidates of different names, not {names or 'none'}")
    if not 0 < seconds < math.inf:
        raise ValueError(f"the seconds of a race must be above 0 and finite, not {seconds:g}; 5 are usual")
    if not (0 <= zone < math.inf and 0 < error < 1 and cold_bytes >= 0 <= block_seconds < math.inf > warm_seconds >= 0):
        told = f"{zone}, {cold_bytes}, {block_seconds}, {warm_seconds} and {error}"
        raise ValueError(f"zone, cold_bytes, block_seconds and warm_seconds are from 0, error in (0, 1), not {told}")
    level = error / (2 * (len(names) - 1))
    settings = block_seconds, warm_seconds, touch, np.zeros(int(cold_bytes) // 8)
    ends = {one.name: one.end for one in candidates}
    run = _Race({name: {} for name in names}, ends, list(inputs), math.log1p(zone), level, *settings, progress)
    waiting, is_decided = list(candidates), True
    try:
        while waiting:
            one, free = waiting.pop(0), memory_bytes - sum(each.nbytes for each in candidates if each.name in run.live)
            if one.nbytes <= free:
                run.add(one)
            else:
                run.reasons[one.name] = f"needs {one.nbytes:.3g} bytes, and beside the best so far {free:.3g} are free"
            if not waiting or waiting[0].nbytes > free - one.nbytes:
                share = len(run.live) / (len(run.live) + len(waiting) or 1)
                is_decided &= run.decide(run.spent + share * (seconds - run.spent))
                if waiting and run.live:
                    run.keep(run.equals()[:1])
        ending = "decided" if is_decided else "out of time"
    except KeyboardInterrupt:
        if not run.rounds:
            raise
        ending = "interrupted"
    if not any(run.blocks[name] for name in run.live):
        raise ValueError("no candidate can run: " + "; ".join(f"{name}: {why}" for name, why in run.reasons.items()))
    every = [run.standing(name, equal) for equal in [run.equals()] for name in names]
    every.sort(key=lambda one: (one.status != "fastest", math.isnan(one.ratio[0]), one.ratio[0]))
    return Result(tuple(every), ending, run.spent, run.blocks)


@functools.cache
def fewest(n: int, level: float) -> int:
    """Return the least S with e(S, n) >= 1 / level, n + 1 where no S has that.

    >>> fewest(7, 0.025), fewest(8, 0.025), fewest(100, 0.025)
    (8, 8, 66)
    """
    half, odds = n // 2, math.ceil(1 / level)
    chosen, term = math.comb(n, half), math.comb(n + 1, half + 1)  # C(n, S), C(n + 1, S + 1): no floats
    below = (2 ** (n + 1) - term * (n % 2)) // 2  # sum of C(n + 1, i) up to S
    for longer in range(half, n + 1):
        if 2 * longer > n and below >= odds * (n + 1) * chosen:
            return longer
        below, chosen, term = below + term, chosen * (n - longer) // (longer + 1), term * (n - longer) // (longer + 2)
    return n + 1


def median_bounds(values: Sequence[float], level: float) -> Interval:
    """Return (median, low, high) of values: each bound is wrong at any look with at most the probability ``level``."""
    n, ordered, enough = len(values), sorted(values), fewest(len(values), level)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2 if n else math.nan
    return (median, -math.inf, math.inf) if enough > n else (median, ordered[n - enough], ordered[enough - 1])


@dataclass
class _Race:
    """``live``: the callables that are left, those preferred first; ``blocks`` of all: seconds of a call by round."""

    blocks: dict[str, dict[int, float]]
    ends: Mapping[str, Callable[[], object]]
    inputs: list[tuple[Any, ...]]
    zone: float
    level: float
    block_seconds: float
    warm_seconds: float
    touch: Call
    scratch: np.ndarray  # empty where caches are hot
    progress: Callable[[float, int], None]
    live: dict[str, Call] = field(default_factory=dict)
    trials: dict[str, float] = field(default_factory=dict)  # seconds of the shortest
    reasons: dict[str, str] = field(default_factory=dict)  # why one failed, or is hopeless
    slower: set[str] = field(default_factory=set)
    rounds, position, spent = 0, 0, 0.0

    def add(self, one: Candidate) -> None:
        """Make a candidate and try it."""
        try:
            self.live[one.name] = call = one.make()
            self.trials[one.name] = min(self.block(call, 1, 0) for _ in range(TRIALS if self.block_seconds else 2))
        except Exception as error:
            self.fail(one.name, error)
        self.progress(self.spent, len(self.live))

    def keep(self, names: Sequence[str]) -> None:
        """End all but these."""
        for name in [name for name in self.live if name not in names]:
            del self.live[name]
            self.ends[name]()

    def fail(self, name: str, error: Exception) -> None:
        """Note why a candidate has failed, and end it."""
        self.reasons[name] = f"{type(error).__name__}: {error}"
        self.live.pop(name, None)
        self.ends[name]()

    def block(self, call: Call, calls: int, warm: int) -> float:
        """Return the seconds of a call: the mean of so many with this round's inputs, after ``warm`` others."""
        if not self.block_seconds:
            return float(call(*self.inputs[self.position]))
        inputs, end, spent = self.inputs, self.position + calls, 0.0
        for each in inputs[end : end + warm]:
            call(*each)
        timed = inputs[self.position : end]
        for together in [[each] for each in timed] if self.scratch.size else [timed]:
            self.scratch += 1
            for each in together:
                self.touch(*each)
            begin = time.perf_counter()
            for each in together:
                call(*each)
            spent += time.perf_counter() - begin
        return spent / calls

    def decide(self, until: float) -> bool:
        """Run rounds until so many seconds are spent in all; return whether those that are left are equally fast."""
        least = min((self.trials[name] for name in self.live), default=0.0)
        for name in [name for name in self.live if self.trials[name] > HOPELESS * least]:
            self.reasons[name] = f"each of its first calls was {self.trials[name] / least:.0f} times slower"
            self.slower.add(name)
        self.keep([name for name in self.live if name not in self.slower])
        # As many calls of each: longer blocks find more in the caches.
        calls, warm = LEAST_CALLS, 0
        if least and not self.scratch.size:
            calls, warm = max(calls, int(self.block_seconds / least)), max(1, int(self.warm_seconds / least))
        self.inputs *= -(-(calls + warm) // len(self.inputs))
        begin, first, look = time.perf_counter() - self.spent, self.rounds, LEAST_ROUNDS
        while self.live and (self.spent < until or self.rounds == first):
            took = dict[str, float]()
            for name in random.sample(list(self.live), len(self.live)):
                try:
                    took[name] = self.block(self.live[name], calls, warm)
                except Exception as error:
                    self.fail(name, error)
            for name, seconds in took.items():  # of whole rounds alone
                self.blocks[name][self.rounds] = seconds
            self.rounds, self.position = self.rounds + 1, self.position + calls + warm
            self.position *= self.position + calls + warm <= len(self.inputs)
            self.spent = time.perf_counter() - begin
            if self.rounds - first >= look:
                look = int(max(look + 1, look * LOOK_EVERY))
                if self.is_decided():
                    return True
        return not self.live

    def ratio(self, name: str, other: str) -> Interval:
        """Return (median, low, high) of the log of a candidate's time to another's, over the rounds that both ran."""
        own, others = self.blocks[name], self.blocks[other]
        return median_bounds([math.log(own[at] / others[at]) for at in own if at in others], self.level)

    def leader(self) -> str:
        """Return the candidate of the least ranks within rounds, of those that all that are left ran."""
        ran = [name for name in self.live if self.blocks[name]]
        shared = set.intersection(*(set(self.blocks[name]) for name in ran))
        times = np.array([[self.blocks[name][at] for name in ran] for at in shared])
        return ran[int(times.argsort(axis=1).argsort(axis=1).sum(axis=0).argmin())]

    def is_decided(self) -> bool:
        """Let go what is slower than the leader; return whether all others are as fast within the zone."""
        leader = self.leader()
        self.progress(self.spent, len(self.live))
        ratios = [(name, *self.ratio(name, leader)) for name in self.live if name != leader]
        self.slower |= {name for name, _, low, high in ratios if low > 0 and high > self.zone}
        self.keep([name for name in self.live if name not in self.slower])
        return all(low > 0 or high <= self.zone for _, _, low, high in ratios)

    def equals(self) -> list[str]:
        """Return the leader and what is as fast, the one to take first."""
        leader = self.leader()
        kept = [name for name in self.blocks if name not in self.slower and name not in self.reasons]
        return [one for one in kept if one == leader or self.ratio(one, leader)[2] <= self.zone]

    def standing(self, name: str, equal: Sequence[str]) -> Standing:
        """Return how a candidate did beside those that are as fast as any."""
        blocks, (median, low, high) = list(self.blocks[name].values()), self.ratio(name, equal[0])
        status = "failed" if name in self.reasons else "undecided"
        if name in equal:
            status = "fastest" if name == equal[0] else "equal"
        elif name in self.slower or (status == "undecided" and (low > 0 or (blocks and math.isnan(median)))):
            status = "slower"  # NaN: what led its wave was slower
        ratio = (math.exp(median), math.exp(low), math.exp(high))
        return Standing(name, status, median_bounds(blocks, self.level), ratio, self.reasons.get(name, ""))
