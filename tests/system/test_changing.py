"""Actors and batch of a loop that trains are changed: its claims stay right, and its rates are measured."""

import dataclasses

import pytest

from impls.training import TrainingError
from impls.training.arrangement import Arrangement
from impls.training.parallel.board import Counter
from impls.training.parallel.changing import ChangingLoop
from tests.parallel_runs import advance, lives, small

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


def test_actors_end_and_begin_while_the_loop_trains(loop):
    first = loop.measure(0.05)
    assert (first.actors, first.batch, list(loop.pids)) == (2, 4, ["actor-0", "actor-1"])
    kept, ended = loop.pids["actor-0"], loop.pids["actor-1"]
    loop.set_actors(1)
    assert loop.pids == {"actor-0": kept}
    assert not lives(ended)
    assert claims(loop) == 0
    steps, updates = loop.step, loop.updates
    advance(loop, lambda: loop.step > steps + 50 and loop.updates > updates + 5)
    loop.set_actors(2)
    assert loop.pids["actor-0"] == kept
    assert loop.pids["actor-1"] != ended
    assert loop.measure(0.05).actors == 2  # once both have taken turns
    assert claims(loop) == 0
    assert loop.restarts == 0


def test_the_batch_changes_between_gradient_steps(loop, monkeypatch):
    loop.set_actors(1)
    sampled, step = set(), loop.learner.step
    monkeypatch.setattr(loop.learner, "step", lambda rows, weights: sampled.add(len(weights)) or step(rows, weights))
    for batch in (4, 16, 2):
        loop.set_batch(batch)
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
