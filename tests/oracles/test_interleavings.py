"""The interleaving model: strategies that are right, Algorithm 3 as printed, and injected faults that are found."""

from itertools import product

import pytest

from tests.oracles import atomic_steps as do
from tests.oracles.atomic_steps import POINTS, Step
from tests.oracles.faulty_programs import ALGORITHM_3, FAULTS
from tests.oracles.interleavings import Case, explore, follow, main, written
from tests.oracles.replay_programs import CASES, CHECKED, RIGHT, STRATEGIES, case, joined, moved
from tests.oracles.small_block import DEADLOCK, DRIFT, FELL, INCOMPLETE, LATE, STRANGE, TORN, block

EVERY = [(name, title) for name, strategy in STRATEGIES.items() for title in strategy.cases()]


def test_every_interleaving_is_visited():
    steps = tuple(Step("nothing", ()) for _ in range(4))
    found = explore(Case(tuple(block(2, 3)), (joined(steps), joined(steps[:2]), joined(steps[:3]))))
    assert found.states == 5 * 3 * 4
    assert not found.wrong


def test_a_schedule_is_a_shortest_one():
    entry = ALGORITHM_3["no lock, two updates"]
    ((violation, schedule),) = explore(entry.case).wrong.items()
    names = [[step.name for step in program] for program in entry.case.programs]
    for length in range(len(schedule)):
        for order in product((0, 1), repeat=length):
            turns = [iter(program) for program in names]
            moves = tuple((number, next(turns[number], "")) for number in order)
            if all(name for _, name in moves):
                assert all(violation not in seen for seen in follow(entry.case, moves))


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


def test_everything_is_printed(capsys):
    main()
    printed = capsys.readouterr().out
    for title in (*STRATEGIES, *CASES, *ALGORITHM_3, *FAULTS):
        assert title in printed
    assert "  insert and sample (insert 1, sample 0) " in printed
    assert "A: update, second lock, leaves | B: descend" in printed
