"""Shortest bad schedules of the model, on the real kernels: where they tear a record, and where they do no harm."""

import numpy as np
import pytest

pytest.importorskip("numba")

from impls.replay import Batch, steps, sync
from tests.matrix import slow
from tests.oracles.atomic_steps import POINTS
from tests.oracles.faulty_programs import ALGORITHM_3, FAULTS
from tests.oracles.interleavings import explore, wander, written
from tests.oracles.replay_programs import CASES, RIGHT, STRATEGIES, case
from tests.oracles.schedules import play, playable
from tests.oracles.small_block import DRIFT, FELL, INCOMPLETE, TORN

if why := sync.unavailable():
    pytest.skip(why, allow_module_level=True)

HOLES = ("as printed, insert beside sample that reads", "as printed, insert, late update, a reader that rechecks")
PLAYED_FAULTS = (
    *("leaf not zeroed", "reader without a recheck", "words not made odd", "late update not refused"),
    *("search without the lock", "update without the lock", "commit without the lock"),
    *("inserts a lap apart at once", "sums left out"),
)
KERNEL = "two_lock_checked"
WALKS = 5
SEEN = {FELL, TORN, INCOMPLETE, DRIFT}  # what `play` can see


def test_points_have_the_kernels_numbers():
    numbers = {name: getattr(steps, name.upper().replace(" ", "_"), None) for name in POINTS}
    numbers |= {"read first half": steps.READ_FIRST, "read second half": steps.READ_SECOND}
    numbers |= {"leaves": steps.SET_LEAVES, "sums": steps.SUM_UP}
    numbers |= {"second lock": steps.LEAF_LOCK, "second unlock": steps.LEAF_UNLOCK}
    assert numbers == POINTS


@pytest.mark.parametrize("hole", HOLES)
def test_a_hole_of_algorithm_3_tears_a_record(hole):
    entry = ALGORITHM_3[hole]
    schedule = explore(entry.case).wrong[TORN]
    played = play("two_lock_lazy", entry.case, schedule)
    assert TORN in played.wrong
    assert {name for _, name in played.skipped} <= {"recheck"}


@pytest.mark.parametrize("hole", HOLES)
def test_words_close_that_hole(hole):
    entry = ALGORITHM_3[hole]
    schedule = explore(entry.case).wrong[TORN]
    played = play(KERNEL, entry.case, schedule)
    assert not played.wrong
    batches = [result for result in played.results if isinstance(result, Batch)]
    assert all((batch.rows["observation"] == batch.rows["observation"][0, 0]).all() for batch in batches)
    assert len(batches) == 1
    late = [result for result in played.results if isinstance(result, np.ndarray)]
    assert all(not present.any() for present in late)


@pytest.mark.parametrize("title", PLAYED_FAULTS)
def test_a_schedule_that_a_fault_fails_on_does_no_harm_without_it(title):
    """Each fault, put into the kernels, is a mutant of this test: see ``tests/mutants/shared_replay.txt``."""
    faulty = case(FAULTS[title].strategy, FAULTS[title].case)
    wrong = explore(faulty).wrong
    visible = [violation for violation, schedule in wrong.items() if violation in SEEN and playable(schedule)]
    assert visible
    for violation in visible:
        assert not play(KERNEL, faulty, wrong[violation], patience=0.05).wrong


@pytest.mark.parametrize("strategy", ["global", slow("rwlock"), "two_lock_lazy", "two_lock_checked"])
def test_kernels_take_the_steps_of_the_model(strategy):
    rng = np.random.default_rng(7)
    for title in CASES:
        if "stack" in title or "dies" in title:
            continue
        scene = case(STRATEGIES[strategy], title)
        for _ in range(WALKS):
            schedule, read = wander(scene, rng)
            played = play(strategy, scene, schedule)
            errors = {number: result for number, result in enumerate(played.results) if isinstance(result, Exception)}
            assert all("there is nothing to sample" in str(error) for error in errors.values())
            assert {number for number, _ in played.skipped} <= errors.keys(), (title, written(schedule))
            if strategy in RIGHT:
                assert not played.wrong
                for number, leaf in read.items():
                    assert played.results[number] == pytest.approx((0.0, 1.0, None, 2.001)[leaf])  # of 2 updates' |2.0|
