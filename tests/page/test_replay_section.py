"""What the section on a shared replay computes, from made-up records."""

import pytest

pytest.importorskip("pandas", reason="reports need pandas")
pytest.importorskip("seaborn", reason="reports need seaborn")

from dse.records import NoRecordsError
from reports.sections import replay
from reports.tables import keep_latest_code, name_other
from tests.made import alter
from tests.sections import KEY, data_of, time_cell


def run(strategy, us, threads=2, work_seconds=0.0, op="run", primitive="replay_processes", **more):
    options = {"strategy": strategy, "work_seconds": work_seconds}
    return time_cell(primitive, "replay", op, us, batch=100, threads=threads, **options, **more)


def call(contestant, op, us, batch, **options):
    return time_cell("replay_operations", contestant, op, us, batch=batch, spread=0.1, **options)


def test_a_buffer_is_compared_by_the_sum_of_its_calls():
    ours = {"strategy": "two_lock_checked"}
    calls = [call("replay", "insert", 1, 1, **ours), call("replay", "insert", 100, 64, **ours)]
    calls += [call("replay", "sample", 6, 256, **ours), call("replay", "update", 3, 256, **ours)]
    calls += [
        call("cpprb", op, us, batch) for op, us, batch in (("insert", 5, 1), ("sample", 30, 256), ("update", 5, 256))
    ]
    table = replay.compare_buffers(data_of(*calls, call("torchrl", "insert", 9, 1))).set_index("strategy")
    assert table["slowdown"].dropna().to_dict() == pytest.approx({"two_lock_checked": 1.0, "cpprb": 4.0})
    low, high = table.loc["cpprb", ["slowdown_low", "slowdown_high"]]
    assert 3.5 < low < 4.0 < high < 4.5
    assert table.loc["torchrl", "us of insert(1)"] == pytest.approx(9.0)


def test_steps_of_a_call_add_up_to_it():
    times = {"call": 4.0, "tree": 10.0, "gather": 15.0, "whole": 16.0}
    cells = [time_cell("replay_parts", "replay", "sample", us, batch=256, strategy="global", until=until)
             for until, us in times.items()]  # fmt: skip
    table = replay.divide_calls(data_of(*cells))
    assert table["us"].to_list() == pytest.approx([4, 6, 5, 1])
    assert table["share (%)"].sum() == pytest.approx(100)


def test_only_times_of_the_latest_code_are_compared():
    rows = replay.select_processes(data_of(run("none", 20, code="a"), run("global", 10, code="bb")))
    assert rows["strategy"].to_list() == ["global"]
    far = alter(run("none", 5, code="a"), machine={"key": "elsewhere"})
    data = data_of(far, run("none", 20, code="a"), run("global", 10, code="bb"))
    kept = keep_latest_code(data.frame)
    assert set(kept["machine"]) == {KEY, "elsewhere"}  # each by its own latest code
    assert (len(kept), name_other(data, kept)) == (2, " on machine elsewhere")


def test_times_with_most_members_are_divided_by_those_of_one_global_lock():
    runs = [run("global", 12, 2), run("global", 30, 4), run("two_lock_checked", 10, 2), run("two_lock_checked", 15, 4)]
    superseded = run("global", 5, 4, op="retrieve", metrics={"superseded": 0.02})
    table = replay.compare_locks(data_of(*runs, superseded)).set_index("strategy")
    assert table["speedup"].to_dict() == pytest.approx({"global": 1.0, "two_lock_checked": 2.0})
    assert table.loc["global", "superseded priorities (%)"] == pytest.approx(2)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"global": 20, "two_lock_checked": 10, "banked": 30, "none": 5}, "two_lock_checked: a speedup of 2.00 ["),
        ({"global": 20, "two_lock_checked": 20.1}, "no correct strategy"),
    ],
)
def test_the_fastest_correct_lock_is_named_with_its_factor(times, said):
    found = replay.name_best_locks(data_of(*(run(name, us, 2, spread=0.05) for name, us in times.items()),
                                           *(run(name, us, 4) for name, us in times.items())))  # fmt: skip
    assert said in found
    assert "2 processes" in found  # which have a core each, of two


def test_without_records_nothing_is_said():
    assert replay.name_best_locks(data_of()) == ""
    with pytest.raises(NoRecordsError):
        replay.compare_pairs(data_of())
