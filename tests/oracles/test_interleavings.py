"""The interleaving model: right strategies, Algorithm 3 as printed, injected faults, and schedules on real kernels."""

import numpy as np
import pytest

from impls.replay import Batch, steps, sync
from tests.matrix import slow
from tests.oracles import atomic_steps as do
from tests.oracles.atomic_steps import POINTS, Step
from tests.oracles.faulty_programs import ALGORITHM_3, FAULTS
from tests.oracles.interleavings import Case, explore, follow, wander, written
from tests.oracles.replay_programs import CASES, CHECKED, RIGHT, STRATEGIES, case, joined, moved
from tests.oracles.schedules import play, playable
from tests.oracles.small_block import DEADLOCK, DRIFT, FELL, INCOMPLETE, LATE, STRANGE, TORN, block

needs_futex = pytest.mark.skipif(bool(sync.unavailable()), reason=sync.unavailable() or "there is a futex")

HOLES = ("as printed, insert beside sample that reads", "as printed, insert, late update, a reader that rechecks")
PLAYED_FAULTS = (
    *("leaf not zeroed", "reader without a recheck", "words not made odd", "late update not refused"),
    *("search without the lock", "update without the lock", "commit without the lock"),
    *("inserts a lap apart at once", "sums left out"),
)
KERNEL = "two_lock_checked"
SEEN = {FELL, TORN, INCOMPLETE, DRIFT}  # what `play` can see
EVERY = [(name, title) for name, strategy in STRATEGIES.items() for title in strategy.cases()]


def test_every_interleaving_is_visited():
    steps = tuple(Step("nothing", ()) for _ in range(4))
    found = explore(Case(tuple(block(2, 3)), (joined(steps), joined(steps[:2]), joined(steps[:3]))))
    assert found.states == 5 * 3 * 4
    assert not found.wrong


@pytest.mark.parametrize(("name", "title"), [(name, title) for name, title in EVERY if name in RIGHT])
def test_a_right_strategy_has_no_bad_interleaving(name, title):
    found = explore(case(STRATEGIES[name], title))
    assert found.wrong == {}
    assert found.states > 20


@pytest.mark.parametrize("title", [title for name, title in EVERY if name == "none"])
def test_no_lock_is_wrong_in_every_case(title):
    assert explore(case(STRATEGIES["none"], title)).wrong


@pytest.mark.parametrize("title", [title for name, title in EVERY if name == "two_lock_lazy"])
def test_two_locks_as_printed_protect_the_tree_and_not_the_rows(title):
    wrong = explore(case(STRATEGIES["two_lock_lazy"], title)).wrong
    assert ({TORN, STRANGE} & wrong.keys() != set()) == ("insert" in title)
    assert FELL not in wrong
    assert DRIFT not in wrong
    assert DEADLOCK not in wrong


@pytest.mark.parametrize("title", ALGORITHM_3)
def test_the_table_of_algorithm_3(title):
    entry = ALGORITHM_3[title]
    assert set(explore(entry.case).wrong) == entry.wrong


def test_the_two_holes_of_algorithm_3():
    reader = explore(ALGORITHM_3["as printed, insert beside sample that reads"].case).wrong[TORN]
    assert written(reader) == (
        "B: search, descend, searched"
        " | A: reserve, odd, second lock, zero, second unlock, sums, write sums, reserved, first half"
        " | B: read first half, read second half, accept"
    )
    late = explore(ALGORITHM_3["as printed, insert beside late update"].case).wrong
    assert written(late[INCOMPLETE]) == (
        "A: reserve, odd, second lock, zero, second unlock, sums, write sums, reserved, first half"
        " | B: update, second lock, leaves, second unlock, sums, write sums, updated"
    )
    assert written(late[LATE]) == (
        "A: reserve, odd, second lock, zero, second unlock, sums, write sums, reserved | B: update, second lock, leaves"
    )


def test_a_global_lock_acquired_late_harms_only_a_third_party():
    """[Zhang2021, IV-D] says that two updates are then inconsistent; they are so only while they run."""
    assert not explore(ALGORITHM_3["global lock acquired late, two updates"].case).wrong
    third = explore(ALGORITHM_3["global lock acquired late, two updates beside sample"].case).wrong
    assert {name: written(schedule) for name, schedule in third.items()} == {
        FELL: "A: second lock, leaves | C: search, descend"
    }


@pytest.mark.parametrize("title", FAULTS)
def test_an_injected_fault_is_found(title):
    fault = FAULTS[title]
    faulty = case(fault.strategy, fault.case)
    found = explore(faulty)
    assert fault.wrong in found.wrong
    for violation, schedule in found.wrong.items():
        *before, last = follow(faulty, schedule)
        assert violation in last
        assert all(violation not in seen for seen in before)


def test_an_order_that_does_not_matter_is_not_accused():
    zero_first = CHECKED._replace(insert=moved(CHECKED.insert, do.zero, "odd"))
    for title in zero_first.cases():
        assert not explore(case(zero_first, title)).wrong


def test_every_point_is_a_step_of_some_strategy():
    programs = [program for name, title in EVERY for program in case(STRATEGIES[name], title).programs]
    assert {step.name for program in programs for step in program} >= set(POINTS)
    assert list(POINTS.values()) == list(range(1, 27))


def test_points_have_the_kernels_numbers():
    numbers = {name: getattr(steps, name.upper().replace(" ", "_"), None) for name in POINTS}
    numbers |= {"read first half": steps.READ_FIRST, "read second half": steps.READ_SECOND}
    numbers |= {"leaves": steps.SET_LEAVES, "sums": steps.SUM_UP}
    numbers |= {"second lock": steps.LEAF_LOCK, "second unlock": steps.LEAF_UNLOCK}
    assert numbers == POINTS


@needs_futex
@pytest.mark.parametrize("hole", HOLES)
def test_a_hole_of_algorithm_3_tears_a_record(hole):
    entry = ALGORITHM_3[hole]
    schedule = explore(entry.case).wrong[TORN]
    played = play("two_lock_lazy", entry.case, schedule)
    assert TORN in played.wrong
    assert {name for _, name in played.skipped} <= {"recheck"}


@needs_futex
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


@needs_futex
@pytest.mark.parametrize("title", PLAYED_FAULTS)
def test_a_schedule_harms_only_with_its_fault(title):
    """Each fault, put into the kernels, is a mutant of this test: see ``tests/mutants/shared_replay.txt``."""
    faulty = case(FAULTS[title].strategy, FAULTS[title].case)
    wrong = explore(faulty).wrong
    visible = [violation for violation, schedule in wrong.items() if violation in SEEN and playable(schedule)]
    assert visible
    for violation in visible:
        assert not play(KERNEL, faulty, wrong[violation], patience=0.05).wrong


@needs_futex
@pytest.mark.parametrize(
    ("strategy", "walks"), [("global", 2), slow("rwlock", 5), ("two_lock_lazy", 2), ("two_lock_checked", 5)]
)
def test_kernels_take_the_steps_of_the_model(strategy, walks):
    rng = np.random.default_rng(7)
    for title in CASES:
        if "stack" in title or "dies" in title:
            continue
        scene = case(STRATEGIES[strategy], title)
        for _ in range(walks):
            schedule, read = wander(scene, rng)
            played = play(strategy, scene, schedule)
            errors = {number: result for number, result in enumerate(played.results) if isinstance(result, Exception)}
            assert all("there is nothing to sample" in str(error) for error in errors.values())
            assert {number for number, _ in played.skipped} <= errors.keys(), (title, written(schedule))
            if strategy in RIGHT:
                assert not played.wrong
                for number, leaf in read.items():
                    assert played.results[number] == pytest.approx((0.0, 1.0, None, 2.001)[leaf])  # of 2 updates' |2.0|
