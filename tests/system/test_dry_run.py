"""--dry-run lists the cells that a command would measure, under the keys that their records have, and does no more."""

import json
import subprocess
import sys

import pytest

from benchmarks.__main__ import main
from dse.records import CELL, SENTINEL, read_file
from tests import cells
from tests.budget import ROOT, commands

MEASURING = {
    name.removeprefix("benchmarks "): options
    for name, options in commands().items()
    if name.startswith("benchmarks ") and name.split()[1:] not in (["list"], ["import"], ["run"])
}
NEEDED = {
    "compare": "BASE NEW",
    "profile": "--workload cartpole_dqn",
    "run share": "--workload cartpole_dqn",
    "run adapt": "--workload cartpole_dqn",
}
SMALL = (
    "sweep --preset smoke --contestants numpy --capacities 64,100 --batches 4 --fanouts 4,8 --budget 0.01 --no-floor",
    "run replay --only operations --buffers prioritized_buffer --capacity 500 --sample 0.001 --budget 0 --no-sentinels",
)


def test_each_measuring_command_has_the_flag_and_kept_cells():
    assert {name for name, options in MEASURING.items() if "--dry-run" not in options} == set()
    kept = json.loads(cells.FILE.read_text())
    assert all(any(line.startswith(name) for line in kept) for name in MEASURING)


@pytest.mark.parametrize("line", [*MEASURING, "run plugins --learning", "profile --arrangements"])
def test_cells_are_listed_once_and_nothing_is_done(line, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.workers.Worker.__init__", lambda *_, **__: pytest.fail("a process was started"))
    monkeypatch.chdir(tmp_path)  # where no other library's environment is
    words = [*line.split(), *NEEDED.get(line.removesuffix(" --arrangements"), "").split(), "--dry-run"]
    assert main(words) == 0
    printed, said = capsys.readouterr()
    assert len(lines := printed.splitlines()) == len(set(printed.splitlines())) > 1
    assert said.startswith(f"{len(lines):,} cells, 0 of them cached")
    assert main([*words, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(lines)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", SMALL)
def test_records_have_the_keys_that_were_listed(line, tmp_path, capsys):
    words = [*line.split(), "--results", str(tmp_path), "--json"]
    assert main([*words, "--dry-run"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert main(words) == 0
    (path,) = tmp_path.glob("*/*.jsonl")
    made = {record.cell for record in read_file(path) if not record.primitive.endswith(("_again", SENTINEL))}
    assert made == {json.dumps([cell[name] for name in CELL], sort_keys=True) for cell in listed}
    capsys.readouterr()
    assert main([*words, "--dry-run"]) == 0
    assert f"{len(made)} of them cached" in capsys.readouterr().err


def test_the_cells_are_those_that_were_kept():
    done = subprocess.run([sys.executable, "-m", "tests.cells"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("changed", ["aa", "aba", "baa", "aaaa"])
def test_a_change_of_any_cell_is_listed(changed):
    before, after = ({"sweep": cells.sum_up([{"op": name} for name in names])} for names in ("aaa", changed))
    assert "python -m benchmarks sweep --dry-run" in "".join(cells.list_changes(before, after))
    assert not list(cells.list_changes(before, before))
