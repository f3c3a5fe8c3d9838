"""Actors and batch of a loop that trains are changed: its claims stay right, and its rates are measured."""

import contextlib
import dataclasses

import pytest

from impls.training import TrainingError
from impls.training.arrangement import Arrangement
from impls.training.parallel.board import Counter, Row
from impls.training.parallel.changing import ChangingLoop
from tests.parallel_runs import advance, check_counts, lives, small

FREE = Arrangement(name="apart", ratio="free")


@pytest.fixture
def loop():
    made = ChangingLoop(small(steps=1 << 40, count=3), FREE, 2)
    yield made
    left = list(made.pids.values())
    made.close()
    assert not [pid for pid in left if lives(pid)]


def claims(loop):
    """Steps that were claimed and not taken, while all rest."""
    with loop.paused():
        return loop.board.value(Counter.CLAIMED_STEPS) - loop.board.value(Counter.STEPS)


def turns(loop):
    """Turns of each actor so far, while all rest."""
    with loop.paused():
        return [int(loop.board.rows[row, Row.TURNS]) for row in loop._every]


def test_actors_rest_and_continue_while_the_loop_trains(loop):
    first = loop.measure(0.05)
    assert (first.actors, first.batch, list(loop.pids)) == (2, 4, ["actor-0", "actor-1"])
    pids = loop.pids
    loop.set_actors(1)
    loop.measure(0.05)
    before, steps, updates = turns(loop), loop.step, loop.updates
    advance(loop, lambda: loop.step > steps + 50 and loop.updates > updates + 5)
    after = turns(loop)
    assert after[0] > before[0]
    assert after[1:] == before[1:]
    loop.set_actors(3)
    assert loop.measure(0.05).actors == 3  # once all have taken turns
    assert pids.items() < loop.pids.items()
    assert claims(loop) == 0
    assert loop.restarts == 0
    with loop.paused():
        assert sum(turns(loop)) == check_counts(loop)["step"]


def test_a_kept_ratio_is_free_in_a_look_alone_and_caught_up_with():
    with contextlib.closing(ChangingLoop(small(steps=1 << 40, count=2), Arrangement(name="apart"), 2)) as loop:
        slack, lead = loop._pace.slack, []
        loop.turn = lambda: (loop.advance(), lead.append((loop.is_measured, loop._pace.lead(loop.step, loop.updates))))
        loop.set_batch(2048)  # so that actors are faster
        loop.measure(10.0, steps=600)
        assert max(ahead for is_measured, ahead in lead if is_measured) > 10 * slack
        advance(loop, lambda: loop._pace.lead(loop.step, loop.updates) <= slack)
        lead.clear()
        loop.measure(0.1, are_actors_free=False)
        assert max(ahead for _, ahead in lead) <= slack
        check_counts(loop)


def test_the_batch_changes_between_gradient_steps(loop, monkeypatch):
    loop.set_actors(1)
    sampled, step = set(), loop.learner.step
    monkeypatch.setattr(loop.learner, "step", lambda rows, weights: sampled.add(len(weights)) or step(rows, weights))
    loop.measure(0.02)
    for batch in (4, 16, 2):
        losses = loop._learning.losses
        loop.set_batch(batch)
        assert losses == loop._learning.losses != {}
        sampled.clear()
        rates = loop.measure(0.02)
        assert sampled == {rates.batch} == {loop.workload.learner.batch} == {batch}
        assert rates.frames_hz == pytest.approx(rates.update_hz * batch)


def test_rates_are_of_the_seconds_measured(loop):
    rates = loop.measure(0.2)
    assert rates.sampling_hz > 0 < rates.update_hz
    assert len(rates.seconds) == 3
    assert min(rates.seconds) > 0
    assert 0 <= rates.cpu_percent <= 100
    assert rates.memory_bytes == rates.learner_bytes + 2 * rates.actor_bytes > 10e6


@pytest.mark.parametrize(("name", "value", "facts"), [("actors", 0, "1"), ("actors", 4, "3"), ("batch", 0, "1")])
def test_what_cannot_be_changed_is_refused_with_a_sentence(loop, name, value, facts):
    with pytest.raises(ValueError, match=rf"{name}.* {facts}"):
        getattr(loop, f"set_{name}")(value)
    assert (loop.actors, loop.workload.learner.batch) == (2, 4)


@pytest.mark.parametrize("other", [{"name": "pipelined"}, {"learners": 2}])
def test_actors_of_other_arrangements_cannot_change(other):
    with pytest.raises(TrainingError, match="apart"):
        ChangingLoop(small(), dataclasses.replace(FREE, **other))
