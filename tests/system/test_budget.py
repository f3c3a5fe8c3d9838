"""Tests of what the budget counts, and of what it finds to be too much."""

import pytest

from tests import budget, plain
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
        ("reports/page.html.j2", "<p>\n", 1),
        ("tests/mutants/trees.txt", "# faults\n\noff by one\n", 2),
        ("tests/mutants/trees.md", "a fault\n", 1),
        ("dse/platforms/u200.toml", "[cpu]\n", 1),
        ("tests/hidden.json", "[" + 240 * "1" + "]", 3),
        ("tests/packed.json.gz", bytes(range(256)).decode(errors="surrogateescape"), 3),
    ],
)
def test_other_files_count_by_their_lines_or_bytes(name, text, code):
    assert budget.is_counted(name)
    assert budget.count(name, text).code == code


@pytest.mark.parametrize("name", ["reports/gallery/a.svg", "tests/budget.toml", "tests/data/a.json", "dse/README.md"])
def test_records_prose_and_the_budget_are_not_counted(name):
    assert not budget.is_counted(name)


def test_growth_is_found_by_folder_and_by_file():
    before = {"impls/a.py": "x = 1\n", "impls/sumtree/b.py": "y = 1\n"}
    after = {"impls/a.py": "x = 1\nz = 2\n", "impls/new/c.py": "w = 3\n"}
    said = budget.describe_growth("abc", before, after).splitlines()
    assert said[7:9] == ["    +1 impls/new/c.py", "    +1 impls/a.py"]
    there = {"folders": {"impls": [2, 1, 0], "impls/new": [1, 1, 0]}, "all": {"options": 4}, "walks": {"a": [9, 2]}}
    may = {"folders": {"impls": [1, 1, 0]}, "all": {"options": 4}, "walks": {"a": [9, 1]}}
    over = budget.excesses(there, may)
    assert [one.split(",")[0] for one in over] == [
        "impls: 2 code lines", "impls/new: 1 code lines", "impls/new: 1 files", "a: 2",
    ]  # fmt: skip
    assert budget.excesses(there | {"walks": {}}, may | {"folders": there["folders"]}) == []


def test_moved_lines_are_told_apart_from_written_ones():
    function = "def area(side):\n    return side * side\n"
    before = {"impls/a.py": function + "x = 1\n", "dse/b.py": "y = 1\n", "tests/c.toml": "z = 1\n"}
    after = {"impls/new/a.py": function, "dse/b.py": "y = 1\nw = 2\n", "tests/d.txt": "z = 1\n"}
    moves = budget.count_moves(budget.find_changes(before, after))
    assert (moves["impls"], moves["dse"], moves["tests"]) == ((0, 1, 2), (1, 0, 0), (0, 0, 1))
    assert moves["all"] == (1, 1, 3)
    assert "lacks commit abc" in budget.describe_growth("abc", {}, after)


UNREADABLE = """
def of_run(one):
    'By a law.'
for it, [each, x] in []: parser.add_argument(help='of the leaves')
"""


def test_a_new_unreadable_name_is_found_where_it_stands():
    before = {"impls/a.py": "class told:\n    size: int\n"}
    findings = plain.find_all({"impls/moved.py": before["impls/a.py"], "impls/b.py": UNREADABLE})
    assert plain.count(findings) == {"impls": [2, 3, 1, 1]}
    limits = {"impls": [1, 3, 1, 1]}
    new = plain.list_excess(findings, limits, plain.find_all(before))
    assert new == ["impls/b.py:2: name: of_run in def of_run(one):"]
    (fault,) = budget.excesses({"plain": plain.count(findings)}, {"plain": limits})
    assert fault == "impls: 2 findings of kind 'name', 1 above the budget of 1"


def test_lines_saved_by_density_or_by_docstrings_are_told():
    fine = {"dse": Counted(10, 1, 1, 5, 20, 100, 10), "impls/x": Counted(90, 1, 1, 3, 20, 120, 10)}
    guards = {"docstrings_percent": 12, "tokens_a_code_line": 12, "denser": {}}
    assert budget.breaches(fine, guards) == []
    dense = fine | {"impls/x": Counted(90, 1, 1, 2, 20, 121, 10)}
    assert [one.split(":")[0] for one in budget.breaches(dense, guards)] == ["impls", "impls/x"]
    assert len(budget.breaches(dense, guards | {"denser": {"impls/x": 12.1}})) == 1


def test_a_fault_may_go_with_its_code_alone():
    fault = "off by one\n    impls/a.py: n + 1 -> n\n"
    before = {"tests/mutants/trees.txt": fault, "impls/a.py": "m = n + 1\n"}
    assert budget.lost_faults(before, before) == []
    assert budget.lost_faults(before, {"impls/moved/a.py": "m = n + 1\n"}) == ["off by one (tests/mutants/trees.txt)"]
    assert budget.lost_faults(before, {"impls/a.py": "m = n + 2\n"}) == []


def test_numbers_are_only_lowered():
    text = (
        'start = "abc" # a commit\n[folders]\n"impls" = [5, 2, 3] # why\n"dse" = [5, 2, 3]\n'
        '[all]\n"options" = 7\n[plain]\n"impls" = [9, 9, 9, 9]\n'
    )
    there = {"folders": {"impls": [4, 3, 3]}, "all": {"options": 9}, "plain": {"impls": [9, 8, 9, 9]}}
    less = text.replace('"impls" = [5, 2, 3] # why', '"impls" = [4, 2, 3] # why')
    assert budget.lowered(text, there) == less.replace("[9, 9, 9, 9]", "[9, 8, 9, 9]")


def test_a_walk_is_the_same_each_time_and_has_functions_of_ours_alone():
    functions, modules = budget.entered("python -m dse platform list")
    assert 5 < modules <= functions < 200
    with pytest.raises(RuntimeError, match="exit code"):
        budget.entered("python -m dse.nothing")
