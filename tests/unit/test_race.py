"""Races are run on a clock of the tests, which calls move on by what they are said to take."""

import itertools
import math
import random
import weakref

import pytest

from impls import race as module
from impls.race import Candidate, fewest, race


class Clock:
    """A clock that calls move on; from outside, everything may take ``load(now)`` times as long."""

    def __init__(self, load=lambda now: 1.0):
        self.now, self.load, self.random = 0.0, load, random.Random(1)

    def perf_counter(self):
        return self.now

    def call(self, seconds, noise=0.02):
        def run(*_):
            self.now += seconds * math.exp(self.random.gauss(0, noise)) * self.load(self.now)

        return run


@pytest.fixture
def clock(monkeypatch):
    """A clock that races read."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "random", random.Random(2))
    return clock


def _interrupted_after(most, clock):
    """A call whose number ``most`` ends with Ctrl-C."""
    numbers, fast = itertools.count(1), clock.call(1e-3)

    def run():
        fast()
        if next(numbers) == most:
            raise KeyboardInterrupt

    return run


def statuses(result):
    return {one.name: one.status for one in result.standings}


@pytest.mark.parametrize("level", [0.025, 0.001])
def test_equal_ones_cross_with_the_stated_probability(level):
    """The probability of every number of longer rounds, of those that have not crossed in any round before."""
    alive, crossed = {0: 1.0}, 0.0
    for n in range(1, 250):
        after = dict.fromkeys(range(n + 1), 0.0)
        for longer, probability in alive.items():
            after[longer] += probability / 2
            after[longer + 1] += probability / 2
        crossed += sum(probability for longer, probability in after.items() if longer >= fewest(n, level))
        alive = {longer: probability for longer, probability in after.items() if longer < fewest(n, level)}
    assert level / 4 < crossed <= level
    assert 1050 < fewest(2000, 0.025) < 1150


def test_of_equally_fast_ones_the_first_is_taken(clock):
    result = race({"cheap": clock.call(1.001e-3), "dear": clock.call(1e-3), "slow": clock.call(1.2e-3)}, seconds=60)
    assert result.ending == "decided"
    assert statuses(result) == {"cheap": "fastest", "dear": "equal", "slow": "slower"}
    assert [one.name for one in result.standings] == ["cheap", "dear", "slow"]
    slow = result.standings[-1]
    assert slow.ratio[1] < 1.2 / 1.001 < slow.ratio[2]
    assert slow.seconds[1] < 1.2e-3 < slow.seconds[2]


def test_what_raises_has_failed_and_the_others_race_on(clock):
    works, calls = clock.call(1e-3), itertools.count()

    def breaks_later():
        works()
        if next(calls) > 8:
            raise MemoryError("no more")

    def cannot_be_made():
        raise OSError("no device")

    made = [Candidate("works", lambda: works), Candidate("late", lambda: breaks_later)]
    result = race([*made, Candidate("never", cannot_be_made)])
    assert statuses(result) == {"works": "fastest", "late": "failed", "never": "failed"}
    reasons = {one.name: one.reason for one in result.standings}
    assert "no more" in reasons["late"] and "no device" in reasons["never"]
    with pytest.raises(ValueError, match="no device"):
        race([Candidate("never", cannot_be_made), Candidate("nor", cannot_be_made)])


def test_waves_keep_to_the_memory_and_find_the_fastest(clock):
    for best in range(6):
        held, counts = set(), []

        def candidate(name, best=best, held=held, counts=counts):
            def make():
                call = clock.call(1e-3 * (1 if name == best else 1.1 + name / 20))
                held.add(name)
                weakref.finalize(call, held.discard, name)
                counts.append(len(held))
                return call

            return Candidate(str(name), make, 10)

        result = race([candidate(name) for name in range(6)], seconds=30, memory_bytes=30)
        assert (result.standings[0].name, max(counts)) == (str(best), 3)


def test_an_interrupt_gives_the_answer_so_far(clock):
    with pytest.raises(KeyboardInterrupt):
        race({"slow": clock.call(2e-3), "fast": _interrupted_after(2, clock)})

    def interrupted():
        raise KeyboardInterrupt

    calls = {"slow": clock.call(2e-3), "fast": clock.call(1e-3)}
    result = waves({name: lambda call=call: call for name, call in calls.items()} | {"next": interrupted})
    assert result.ending == "interrupted"
    assert statuses(result) == {"fast": "fastest", "slow": "slower", "next": "undecided"}


def test_inputs_are_the_same_within_a_round_alone(clock):
    took = clock.call(1e-3)
    seen = {"one": [], "other": []}

    def call(name):
        def run(given):
            seen[name].append(given)
            took()

        return run

    race({name: call(name) for name in seen}, [(number,) for number in range(100)], seconds=0.05)
    assert seen["one"] == seen["other"]
    rounds = seen["one"][module.TRIALS :]
    assert len(set(rounds[:20])) == 20


WRONG = {
    "seconds": (0, math.nan, math.inf),
    "zone": (-0.1, math.nan),
    "error": (0, 1),
    "cold_bytes": (-1,),
    "block_seconds": (-1, math.nan),
    "warm_seconds": (-1,),
    "inputs": ((),),
    "candidates": ({}, {"only": list}, [Candidate("same", list), Candidate("same", list)]),
}


def test_bounds_that_make_no_sense_are_refused():
    for name, value in ((name, value) for name, values in WRONG.items() for value in values):
        with pytest.raises(ValueError, match=r"race|zone"):
            race(**{"candidates": {"sum": lambda: sum(range(9)), "list": list}, name: value})


def test_memory_is_written_before_each_call_untimed(clock, monkeypatch):
    written, calls = [], []

    class Scratch:
        size = 1

        def __iadd__(self, more):
            written.append(len(calls))
            clock.now += 1e-2
            return self

    def call():
        calls.append(None)
        clock.now += 1e-5

    monkeypatch.setattr(module.np, "zeros", lambda count: Scratch())
    result = race({"one": call, "other": call}, seconds=1, cold_bytes=1 << 20)
    assert written == [*range(len(calls))]
    assert result.standings[0].seconds == pytest.approx((1e-5,) * 3)
    assert result.seconds < 1.1


def test_arguments_are_read_before_a_call_is_timed(clock):
    """Who comes first in a round waits for arguments that nobody has read."""
    read = set()

    def touch(given):
        read.add(given)
        clock.now += 1e-2

    def call(seconds):
        def run(given):
            clock.now += seconds if given in read else 1.0

        return run

    calls = {"fast": call(1e-4), "slow": call(2e-4)}
    for cold_bytes in (0, 64):
        read.clear()
        inputs = [(number,) for number in range(10_000)]
        result = race(calls, inputs, seconds=30, cold_bytes=cold_bytes, touch=touch)
        assert [one.seconds[0] for one in result.standings] == pytest.approx([1e-4, 2e-4])


def test_without_block_seconds_a_call_tells_its_seconds(clock):
    ended, calls = [], {"fast": 0, "slow": 0, "broken": 0}

    def candidate(name, seconds):
        def call(turn):
            calls[name] += 1
            assert turn == 0.3
            if name == "broken" and calls[name] > 3:
                raise OSError("gone")
            clock.now += turn
            return seconds

        return Candidate(name, lambda: call, end=lambda: ended.append(name))

    raced = [candidate("fast", 1e-3), candidate("broken", 1e-3), candidate("slow", 2e-3)]
    result = race(raced, [(0.3,)], block_seconds=0, seconds=60)
    assert statuses(result) == {"fast": "fastest", "slow": "slower", "broken": "failed"}
    assert result.standings[0].seconds[0] == 1e-3
    assert (ended, calls["slow"]) == (["broken", "slow"], 2 + len(result.blocks["slow"]))


def test_a_block_is_timed_with_its_own_caches(clock):
    ran = []

    def call(name):
        clock.now += 1e-4 if ran[-1:] == [name] else 1e-2
        ran.append(name)

    result = race({name: (lambda name=name: call(name)) for name in ("one", "other")}, seconds=0.5)
    assert result.standings[0].seconds == pytest.approx((1e-4,) * 3)


def test_the_zone_the_hopeless_and_what_no_memory_holds(clock):
    """Surely slower yet within the zone is as fast; the hopeless run no round; what does not fit has failed."""
    result = race({"one": clock.call(1e-3, 1e-3), "other": clock.call(1.01e-3, 1e-3)}, zone=0.02)
    assert (result.ending, statuses(result)) == ("decided", {"one": "fastest", "other": "equal"})
    assert result.standings[1].ratio[1] > 1.0
    result = race({"fast": clock.call(1e-4), "hopeless": clock.call(5e-4)})
    hopeless = result.standings[-1]
    assert (hopeless.name, hopeless.status, bool(hopeless.reason)) == ("hopeless", "slower", True)
    assert result.blocks["hopeless"] == {}
    result = race([Candidate("small", lambda: clock.call(1e-3), 5), Candidate("large", list, 99)], memory_bytes=50)
    assert statuses(result) == {"small": "fastest", "large": "failed"}
    assert "99" in result.standings[-1].reason


def test_of_what_varies_nothing_is_told_before_many_rounds(clock):
    took = {"steady": itertools.repeat(1.0), "varies": itertools.cycle((1.1, 1.0, 0.9))}

    def call(name):
        clock.now += 1.0
        return next(took[name])

    result = race({name: (lambda name=name: call(name)) for name in took}, block_seconds=0, seconds=60)
    assert (result.ending, sorted(statuses(result).values())) == ("out of time", ["fastest", "undecided"])


def waves(calls, **more):
    """A race of which two are held at once."""
    return race([Candidate(name, make, 10) for name, make in calls.items()], memory_bytes=20, **more)


def test_who_joins_later_is_compared_within_common_rounds(clock):
    def loaded():
        clock.load = lambda now: 3.0
        return clock.call(0.8e-3)

    result = waves({"slow": lambda: clock.call(1.2e-3), "first": lambda: clock.call(1e-3), "late": loaded})
    assert statuses(result) == {"late": "fastest", "first": "slower", "slow": "slower"}
    assert {one.name: one.ratio[0] for one in result.standings}["first"] == pytest.approx(1.25, rel=0.05)


def test_waves_share_the_seconds_and_each_runs_a_round(clock):
    calls = {str(name): lambda: clock.call(1e-3, 0.3) for name in range(3)}
    rounds = [len(blocks) for blocks in waves(calls, seconds=1, zone=0).blocks.values()]
    assert min(rounds) > 10
    calls = {name: lambda: clock.call(9.0) for name in calls}
    assert all(waves(calls, seconds=1).blocks.values())


def test_each_block_has_all_its_calls_whatever_the_inputs(clock):
    result = race({name: clock.call(1e-3, 0.0) for name in ("one", "other")}, [(n,) for n in range(7)], seconds=0.3)
    assert [*result.blocks["one"].values()] == pytest.approx([1e-3] * len(result.blocks["one"]))


@pytest.mark.parametrize(("others", "rounds"), [(1, 8), (20, 13)])
def test_the_more_candidates_the_more_rounds_before_one_leaves(clock, others, rounds):
    """The least n with e(n, n) >= 2 * others / error, if it takes longer in all of them."""
    calls = {"fast": clock.call(1e-3, 0.0)} | {str(one): clock.call(1.1e-3, 0.0) for one in range(others)}
    assert {len(blocks) for blocks in race(calls).blocks.values()} == {rounds}


def test_a_round_that_is_interrupted_does_not_count(clock):
    calls = {"one": _interrupted_after(50, clock)} | {str(n): clock.call(1e-3) for n in range(10)}
    result = race(calls, zone=0)
    assert result.ending == "interrupted"
    assert len({len(blocks) for blocks in result.blocks.values()}) == 1


# The error that a race states


def test_twins_are_rarely_separated(clock):
    apart = 0
    for _ in range(400):
        result = race({"one": clock.call(1e-3), "twin": clock.call(1e-3)}, seconds=0.5, zone=0, error=0.05)
        apart += "slower" in statuses(result).values()
    assert apart <= 28


def test_the_fastest_is_lost_in_few_races_of_many_under_load(clock):
    clock.load = lambda now: 1.0 + 9.0 * (now % 0.07 > 0.035)
    lost = 0
    for _ in range(60):
        times = {str(one): 1e-3 * (1 + 0.03 * one) for one in range(6)}
        result = race({name: clock.call(seconds) for name, seconds in times.items()}, seconds=9)
        lost += statuses(result)["0"] == "slower"
        assert result.ending == "decided"
    assert lost <= 3
