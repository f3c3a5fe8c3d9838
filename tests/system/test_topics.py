"""Topics: a file is all that one takes, the runner does the rest, and earlier spellings say what they are now."""

import json
import shlex
import sys

import pytest

from benchmarks import __main__ as cli
from benchmarks import topics
from dse.records import read_file
from tests import cells

MADE_UP = '''"""How long does a made-up call take, and a run of it?

Nothing else names this file.
"""

from benchmarks.arguments import add_list, at_least
from benchmarks.clock import CallClock
from benchmarks.topic import Topic
from benchmarks.topics.profile.cells import Cell
from benchmarks.workers import Untimed


class MadeUp(Topic):
    """Calls, and then runs."""

    @classmethod
    def add_options(cls, parser):
        add_list(parser, "sizes", at_least(1, "size"), default=(1, 2), help="sizes")

    def parts(self):
        return [_Calls(self.options), _Runs(self.options)]


class _Calls(Topic):
    primitive, has_sentinels = "made up", False

    def cells(self):
        return [[Cell("call", "add", batch=size) for size in self.options.sizes]]

    def clock(self, cell, stack):
        if cell.batch == 3:
            return Untimed("skipped", "a size of 3 has no time")
        return CallClock(lambda turn: sum(range(cell.batch)), 1e-4)


class _Runs(Topic):
    primitive, has_sentinels = "made up run", False

    def cells(self):
        return [[Cell("run", op, batch=size) for op in ("whole", "half")] for size in self.options.sizes]

    def run(self, cells):
        size = cells[0].batch
        samples = {"whole": [2.0 * size] * 3, "half": [1.0 * size] * 3}
        return Untimed("failed", "a run of 3 breaks") if size == 3 else samples
'''


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command; its exit code, what it prints as JSON, and standard error."""
    (tmp_path / "made_up.py").write_text(MADE_UP)
    monkeypatch.setattr(topics, "__path__", [*topics.__path__, str(tmp_path)])
    yield lambda *words: _run(capsys, words, tmp_path)
    sys.modules.pop("benchmarks.topics.made_up", None)


def _run(capsys, words, folder):
    code = cli.main([*words, "--json", "--anyway", "--results", str(folder / "results")])
    printed = capsys.readouterr()
    return code, json.loads(printed.out or "null"), printed.err


def test_a_topic_is_one_file(run, capsys):
    code, first, _ = run("run", "made_up")
    assert (code, first["cells"], first["measured_by_status"]["ok"]) == (0, 6, 6)
    assert first["aa_pairs"] == 1
    found = read_file(first["file"])
    assert {(one.primitive, one.op) for one in found} == {
        ("made up", "add"), ("made up_again", "add"), ("made up run", "whole"), ("made up run", "half"),
    }  # fmt: skip
    assert {one.batch: one.seconds for one in found if one.op == "whole"} == {1: 2.0, 2: 4.0}
    assert run("run", "made_up")[1]["found_done"] == 6
    code, more, _ = run("run", "made_up", "--sizes", "2,3")
    assert (code, more["found_done"], more["measured_by_status"]) == (1, 3, {"skipped": 1, "failed": 2})
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    assert "How long does a made-up call take, and a run of it?" in capsys.readouterr().out


def test_a_dry_run_of_a_topic_writes_nothing(run, tmp_path):
    code, cells, _ = run("run", "made_up", "--dry-run")
    assert (code, len(cells)) == (0, 6)
    assert not (tmp_path / "results").exists()


def test_an_earlier_spelling_says_what_it_is_now(capsys):
    for line in (line for line in json.loads(cells.FILE.read_text()) if line.startswith("run ")):
        words = shlex.split(line)[1:]
        assert cli.main(["peers", "--training", *words[1:]] if words[0] == "loops" else words) == 2
        assert f"python -m benchmarks run {shlex.join(words)}" in capsys.readouterr().err
