"""Shortest bad schedules of the model, on the real kernels: where they tear a record, and where they do no harm."""

import numpy as np
import pytest

pytest.importorskip("numba")

from impls.replay import Batch, steps

from .faulty_programs import ALGORITHM_3, FAULTS
from .interleavings import explore
from .replay_programs import case
from .schedules import play
from .small_block import DRIFT, FELL, INCOMPLETE, TORN

HOLES = ("as printed, insert beside sample that reads", "as printed, insert, late update, a reader that rechecks")
KERNEL_FAULTS = {
    "leaf not zeroed": steps.NO_ZERO,
    "reader without a recheck": steps.NO_RECHECK,
    "words not made odd": steps.STAYS_EVEN,
    "late update not refused": steps.NO_WORD_CHECK,
    "search without the lock": steps.NO_LOCK_IN_SEARCH,
    "update without the lock": steps.NO_LOCK_IN_UPDATE,
    "commit without the lock": steps.NO_LOCK_IN_COMMIT,
    "inserts a lap apart at once": steps.NO_OVERLAP_CHECK,
    "sums left out": steps.NO_SUMS,
}
SEEN = {FELL, TORN, INCOMPLETE, DRIFT}  # what `play` can see


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
    played = play("two_lock_checked", entry.case, schedule)
    assert not played.wrong
    batches = [result for result in played.results if isinstance(result, Batch)]
    assert all((batch.rows["observation"] == batch.rows["observation"][0, 0]).all() for batch in batches)
    assert len(batches) == 1
    late = [result for result in played.results if isinstance(result, np.ndarray)]
    assert all(not present.any() for present in late)


@pytest.mark.parametrize("title", KERNEL_FAULTS)
def test_the_models_schedule_shows_the_kernels_fault(title):
    faulty = case(FAULTS[title].strategy, FAULTS[title].case)
    shown = set()
    for violation, schedule in explore(faulty).wrong.items():
        if violation in SEEN:
            shown |= play("two_lock_checked", faulty, schedule, fault=KERNEL_FAULTS[title]).wrong & {violation}
            assert not play("two_lock_checked", faulty, schedule).wrong
    assert shown
