"""Tests of what is said of a run of tests that took longer than the one that was kept."""

import pytest

from tests import durations, run

BEFORE = {f"tests/{number}.py": 10.0 for number in range(9)}
NUMBERS = {
    "others_share": 0.05,
    "machine": "a processor, 2 cores",
    "tests": 9,
    "wall_seconds": 600,
    "cpu_seconds": 1000,
}
RUN = {**NUMBERS, "kernels_compiled": 0, "seconds": BEFORE}
KEPT = {"daily": NUMBERS, "seconds": {name: [10.0, None] for name in BEFORE}}


@pytest.mark.parametrize("machine", [0.5, 1, 3])  # a fast one, the same and a busy one
@pytest.mark.parametrize(
    ("name", "seconds", "named"),
    [("tests/4.py", 14, False), ("tests/4.py", 16, True), ("tests/short.py", 0.9, False), ("tests/short.py", 8, True)],
)
def test_a_file_is_judged_beside_the_others(machine, name, seconds, named):
    now = dict.fromkeys(BEFORE, 10 * machine) | {name: seconds * machine}
    before = BEFORE | {"tests/short.py": 0.1, "tests/unknown.py": None}
    lines = durations.find_slower_files(before, now)
    assert [line.split(":")[0] for line in lines] == [name] * named


def test_files_that_differ_anyway_are_not_named():
    now = {name: 10 + 5.0 * number for number, name in enumerate(BEFORE)}
    assert durations.find_slower_files(BEFORE, now) == []


@pytest.mark.parametrize(
    ("change", "grown", "remarks"),
    [
        ({"cpu_seconds": 1090}, [], []),
        ({"cpu_seconds": 1110}, ["all"], []),
        ({"cpu_seconds": 1110, "machine": "another"}, [], ["no"]),
        ({"cpu_seconds": 1110, "others_share": 0.2}, [], ["other"]),
        ({"cpu_seconds": 1110, "kernels_compiled": 7}, [], ["7"]),
    ],
)
def test_all_files_are_judged_by_cpu_seconds_of_the_same_idle_machine(change, grown, remarks):
    found = durations.compare(KEPT, "daily", RUN | change)
    assert [[line.split()[0] for line in lines] for lines in found] == [grown, remarks]


def test_a_kept_run_changes_its_own_column(tmp_path):
    path = tmp_path / "durations.json"
    kept = {"daily": NUMBERS, "seconds": {"old.py": [9.0, None], "gone.py": [None, 8.0]}}
    durations.add_run(kept, "all", NUMBERS | {"seconds": {"old.py": 5.0, "new.py": 30.0}})
    durations.write(kept, path)
    assert durations.read(path) == {
        "daily": NUMBERS,
        "all": NUMBERS,
        "seconds": {"new.py": [None, 30.0], "old.py": [9.0, 5.0]},
    }
    assert '"old.py": [9.0, 5.0]\n' in path.read_text()


def test_growth_is_red_on_a_terminal_alone(monkeypatch, capsys):
    monkeypatch.setenv("NO_COLOR", "")
    run.show_growth(["slower"], ["because"])
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    run.show_growth(["slower"], [])
    monkeypatch.setenv("NO_COLOR", "1")
    run.show_growth(["slower"], [])
    assert capsys.readouterr().out == "!! slower\nbecause\n\033[31mslower\033[0m\n!! slower\n"
