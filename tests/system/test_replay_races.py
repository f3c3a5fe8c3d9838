"""Every strategy under stress: what a valid one answers is right."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
from scipy.stats import chisquare

from impls.replay import make, strategies
from impls.replay.registry import strategy_class
from tests.matrix import matrix, slow
from tests.replay_stress import PLAIN, STACKED, Fault, Plan, packed, run

VALID = [name for name in strategies() if strategy_class(name).valid]
INVALID = [name for name in strategies() if not strategy_class(name).valid]
CASES = [(name, "threads") for name in VALID]
CASES += [(name, "processes") for name in VALID if strategy_class(name).processes and name != "global"]
LARGE = {"capacity": 1 << 14, "batch": 256, "most": 64, "fanout": 16}
TINY = {"capacity": 16, "callers": 5, "batch": 16, "most": 6, "trial": True, "rows": 1e12, "look_seconds": 0.01}


@pytest.mark.parametrize("rows", [4e5, slow(2e7)])
@pytest.mark.parametrize(("strategy", "kind"), CASES)
def test_hundreds_of_thousands_of_rows_show_no_fault(strategy, kind, rows):
    report = run(Plan(strategy, kind=kind, rows=rows, seconds=1800.0, **LARGE).usual)
    assert report.rows >= rows
    assert min(report.inserted, report.sampled, report.updated) > 1000


@pytest.mark.parametrize("strategy", VALID)
def test_stacks_of_frames_are_whole(strategy):
    assert run(Plan(strategy, layout=STACKED, rows=2e5, **LARGE).usual).sampled > 1000


@pytest.mark.parametrize("strategy", matrix(VALID, brief=lambda name: name not in ("rwlock", "global")))
@pytest.mark.parametrize("layout", [PLAIN, STACKED], ids=["plain", "stacked"])
def test_a_tiny_replay_that_sleeps_at_its_points_shows_no_fault(strategy, layout):
    report = run(Plan(strategy, layout=layout, seconds=0.7, **TINY).usual)
    assert min(report.inserted, report.sampled, report.updated) > 0


@pytest.mark.parametrize("strategy", INVALID)
def test_an_invalid_strategy_is_wrong_at_most(strategy):
    try:  # a process that crashed would send no report, which is no Fault
        report = run(Plan(strategy, kind="processes", rows=3e5, **LARGE))
    except Fault as fault:
        assert fault.args[0] != "stuck"
    else:
        assert report.rows >= 3e5


@pytest.mark.parametrize("strategy", VALID)
def test_samples_beside_updates_follow_the_priorities(strategy):
    capacity, batch, batches = 64, 128, 400
    errors = np.random.default_rng(3).exponential(size=capacity) + 0.1
    counts = np.zeros((2, capacity), np.int64)
    over = threading.Event()
    with make(capacity, PLAIN, alpha=1.0, epsilon=1e-3, strategy=strategy) as replay:
        replay.insert(packed(replay.row, np.arange(capacity)), errors)

        def update(seed):
            rng = np.random.default_rng(seed)
            while not over.is_set():
                tickets = rng.integers(capacity, size=batch)
                replay.update_priorities(tickets, errors[tickets])

        def sample(seed):
            rng = np.random.default_rng(seed)
            for _ in range(batches):
                tickets = replay.sample(batch, 0.4, uniforms=rng.random(batch)).sequence
                np.add.at(counts[seed], tickets, 1)

        with ThreadPoolExecutor(3) as pool:
            pool.submit(update, 9)
            wait([pool.submit(sample, seed) for seed in range(2)], 60)
            over.set()
        assert replay.check() == 0
    assert counts.sum() == 2 * batch * batches
    expected = (errors + 1e-3) / (errors + 1e-3).sum() * counts.sum()
    assert chisquare(counts.sum(0), expected).pvalue > 1e-4
