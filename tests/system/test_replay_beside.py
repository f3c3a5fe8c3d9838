"""States are saved and loaded beside callers that sample and insert, whatever these are doing."""

import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("numba")

from impls.replay import Layout, make, steps
from impls.replay.block import ACTOR, ARRIVED, GRANTED, MODE
from tests.parallel_runs import PATIENCE_SECONDS, until

LAYOUT = Layout((4,), "float64", choices=2)  # an observation lies in the first half of its row, the next in the second
CAPACITY, NUMBER = 32, 5
SETTINGS = {"alpha": 0.6, "epsilon": 1e-3, "fanout": 4, "strategy": "two_lock_checked"}
USUAL = SETTINGS | {"fanout": 16}  # of replays that are no trials, which other tests compile for as well


def records(value, count):
    seen = np.full((count, 4), float(value))
    return LAYOUT.allocate(count) | {"observation": seen, "next_observation": seen}


class Stopped:
    """A caller in a thread, with a map of its own of the block, that stops at a point of one call."""

    def __init__(self, replay, call, point):
        self.result, self.words = None, replay._memory.view(0, (GRANTED + 64,), np.int64)
        own = type(replay)(replay.settings, replay._memory)
        own._banks[0].view[ACTOR] = NUMBER
        self.words[MODE] = steps.SCRIPTED
        self._thread = threading.Thread(target=self._run, args=(own, call), daemon=True)
        self._thread.start()
        until(lambda: self.words[ARRIVED + NUMBER])
        while self.words[ARRIVED + NUMBER] != point:
            self.words[ARRIVED + NUMBER], self.words[GRANTED + NUMBER] = 0, 1
            until(lambda: self.words[ARRIVED + NUMBER])

    def _run(self, own, call):
        self.result = call(own)

    def go_on(self):
        """Let it end; returns what its call returned."""
        self.words[MODE] = steps.FREE
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        return self.result


def test_a_batch_is_of_one_state_though_the_words_come_again():
    with make(CAPACITY, LAYOUT, trial=True, **SETTINGS) as replay, make(CAPACITY, LAYOUT, **USUAL) as other:
        replay.insert(records(1, CAPACITY))
        other.insert(records(2, CAPACITY))
        words = replay._banks[0].words.copy()
        sampler = Stopped(replay, lambda own: own.sample(8, 0.4, np.random.default_rng(0)), steps.READ_SECOND)
        replay.load_state_dict(other.state_dict())
        assert (replay._banks[0].words == words).all()
        batch = sampler.go_on()
        for name in ("observation", "next_observation"):
            assert (batch.rows[name] == 2).all()


def in_thread(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("options", [{}, {"distinct": True}, {"uniforms": np.full(8, 0.5)}])
@pytest.mark.parametrize("strategy", ["two_lock_checked", "two_lock_lazy", "banked", "none"])
def test_a_sample_waits_while_every_slot_is_written(strategy, options):
    how = {"rng": np.random.default_rng(0)} | options
    with (
        ThreadPoolExecutor() as pool,
        make(CAPACITY, LAYOUT, trial=True, **SETTINGS | {"strategy": strategy}) as replay,
    ):
        usual = type(replay)(dataclasses.replace(replay.settings, trial=False), replay._memory)
        for fillers in (False, True):
            replay.insert(records(0, CAPACITY))
            new = {"records": records(2, CAPACITY), "drawable": np.full(CAPACITY, not fillers)}
            writer = Stopped(replay, lambda own, new=new: own.insert(**new), steps.SECOND_HALF)
            batch = pool.submit(lambda: usual.sample(8, 0.4, **how))
            with pytest.raises(TimeoutError):
                batch.result(0.1)
            writer.go_on()
            if fillers:
                with pytest.raises(RuntimeError, match=r"nothing to sample|0 can be sampled"):
                    batch.result(PATIENCE_SECONDS)
            else:
                rows = batch.result(PATIENCE_SECONDS).rows
                assert (rows["observation"] == rows["next_observation"]).all() and (rows["observation"] == 2).all()


def test_a_state_is_saved_however_many_write():
    with make(1 << 18, LAYOUT, trial=True, **SETTINGS) as replay:
        replay.insert(records(1, 4))
        writer = Stopped(replay, lambda own: own.insert(records(2, 3)), steps.SECOND_HALF)
        states, inserted, ending = [], [0], threading.Event()

        def write():
            while not ending.is_set():
                replay.insert(records(3, 1))
                inserted[0] += 1

        busy = [in_thread(write)]
        saver = in_thread(lambda: states.append(replay.state_dict()))
        before = -1
        while inserted[0] > before:
            before = inserted[0]
            time.sleep(0.2)
        assert before < 1 << 17, "inserts began until the ring was full"
        assert not states
        writer.go_on()
        saver.join(PATIENCE_SECONDS)
        (state,) = states
        assert state["drawable"].all()
        until(lambda: inserted[0] > before + 10)
        ending.set()
        busy[0].join(PATIENCE_SECONDS)
        assert (replay._banks[0].ranges()[:, 1] == 0).all()
        assert (replay.check(), replay.lost) == (0, 0)


@pytest.mark.parametrize("save", [True, False])
def test_states_beside_busy_writers_and_samplers(save):
    with make(64, LAYOUT, **USUAL) as replay:
        replay.insert(records(1, 64))
        state, ending, errors = replay.state_dict(), threading.Event(), []

        def use(call):
            try:
                while not ending.is_set():
                    call()
            except BaseException as error:  # the test looks at it
                errors.append(error)

        def look():
            rows = replay.sample(32, 0.4).rows
            assert (rows["observation"] == rows["next_observation"]).all()

        threads = [
            in_thread(lambda call=call: use(call)) for call in (*[lambda: replay.insert(records(2, 40))] * 3, look)
        ]
        began = time.monotonic()
        for _ in range(10):
            if save:
                assert replay.state_dict()["drawable"].all()
            else:
                replay.load_state_dict(state)
        assert time.monotonic() - began < PATIENCE_SECONDS
        ending.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert not errors and not any(thread.is_alive() for thread in threads)
        assert (replay.check(), replay.lost, len(replay)) == (0, 0, 64)
