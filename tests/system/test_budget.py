"""Tests of what the budget counts, and of what it finds to be too much."""

import pytest

from tests import budget
from tests.budget import Counted

SOURCE = '''"""A module.

Two paragraphs.
"""

LIMIT = """four
lines
of
text"""


class Public:  # a comment beside code
    """A class."""

    size: int
    """An attribute."""

    # a comment alone
    def method(self): ...

    def _hidden(self): ...


def _helper():
    def inner(): ...
'''


def test_code_is_what_is_neither_blank_comment_nor_docstring():
    counted = budget.count("impls/new.py", SOURCE)
    assert (counted.code, counted.files, counted.names) == (10, 1, 2)
    assert (counted.docstrings, counted.lines) == (6, 25)


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("reports/layout/look.css", "a {\n\n}\n", 2),
        ("tests/mutants/trees.txt", "# faults\n\noff by one\n", 2),
        (".ci/run.sh", "set -e\n", 1),
        ("reports/gallery/index.html", "<p>\n", None),
        ("dse/platforms/u200.toml", "[cpu]\n", None),
    ],
)
def test_other_files_count_by_their_lines_and_data_does_not(name, text, code):
    counted = budget.count(name, text)
    assert (counted.code if counted else None) == code


def test_growth_is_found_by_folder_and_by_file():
    before = {"impls/a.py": "x = 1\n", "impls/sumtree/b.py": "y = 1\n"}
    after = {"impls/a.py": "x = 1\nz = 2\n", "impls/new/c.py": "w = 3\n"}
    assert budget.added(before, after) == [(1, "impls/new/c.py"), (1, "impls/a.py"), (-1, "impls/sumtree/b.py")]
    there = {"folders": {"impls": [2, 1, 0], "impls/new": [1, 1, 0]}, "all": {"options": 4}, "walks": {"a": [9, 2]}}
    may = {"folders": {"impls": [1, 1, 0]}, "all": {"options": 4}, "walks": {"a": [9, 1]}}
    over = budget.excesses(there, may)
    assert [one.split(",")[0] for one in over] == [
        "impls: 2 code lines", "impls/new: 1 code lines", "impls/new: 1 files", "a: 2",
    ]  # fmt: skip
    assert budget.excesses(there | {"walks": {}}, may | {"folders": there["folders"]}) == []


def test_lines_saved_by_density_or_by_docstrings_are_told():
    fine = {"dse": Counted(10, 1, 1, 5, 20, 100), "impls/x": Counted(10, 1, 1, 3, 20, 120)}
    guards = {"docstrings_percent": 12, "tokens_a_code_line": 12, "denser": {}}
    assert budget.breaches(fine, guards) == []
    dense = fine | {"impls/x": Counted(10, 1, 1, 2, 20, 121)}
    assert [one.split(":")[0] for one in budget.breaches(dense, guards)] == ["impls", "impls/x"]
    assert len(budget.breaches(dense, guards | {"denser": {"impls/x": 12.1}})) == 1


def test_a_fault_may_go_with_its_code_alone():
    fault = "off by one\n    impls/a.py: n + 1 -> n\n"
    before = {"tests/mutants/trees.txt": fault, "impls/a.py": "m = n + 1\n"}
    assert budget.lost_faults(before, before) == []
    assert budget.lost_faults(before, {"impls/moved/a.py": "m = n + 1\n"}) == ["off by one (tests/mutants/trees.txt)"]
    assert budget.lost_faults(before, {"impls/a.py": "m = n + 2\n"}) == []


def test_numbers_are_only_lowered():
    text = 'start = "abc" # a commit\n[folders]\n"impls" = [5, 2, 3]\n"dse" = [5, 2, 3]\n[all]\n"options" = 7\n'
    there = {"folders": {"impls": [4, 3, 3]}, "all": {"options": 9}}
    assert budget.lowered(text, there) == text.replace('"impls" = [5, 2, 3]', '"impls" = [4, 2, 3]')


def test_a_walk_is_the_same_each_time_and_has_functions_of_ours_alone():
    functions, modules = budget.entered("python -m dse platform list")
    assert 5 < modules <= functions < 200
    with pytest.raises(RuntimeError, match="exit code"):
        budget.entered("python -m dse.nothing")
