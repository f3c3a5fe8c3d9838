"""What all commands that measure share: what they refuse at once, by facts and with nothing written, and counts."""

import itertools
import json
import os
import re
import shlex
import sys

import pytest

from benchmarks import __main__ as cli
from benchmarks import topics
from benchmarks.topics.learning import command as learning
from benchmarks.topics.profile import command as profile
from dse.__main__ import main as dse
from dse.platforms import checkout, fingerprint
from dse.platforms.checkout import read_load
from dse.records import LOAD, read_file, read_folder
from tests import cells
from tests.profiled import write_workload
from tests.system.test_advice import parsers

AXES = "--contestants numpy,cumsum --capacities 50 --batches 4 --budget 0.001 --no-floor"
REFUSED = {  # the words of a command, and the facts that its refusal names
    "sweep --fanouts 1": "K 2 1",
    "sweep --capacities 10,0": "N 1 0",
    "sweep --batches 0": "B 1 0",
    "sweep --threads -1": "threads 1 -1",
    "sweep --dtypes float16": "'float16' float32 float64",
    "sweep --preset quikc": "quikc",
    "sweep --capacities many": "many",
    "sweep --ops steal": "'steal' sample",
    "sweep --fanotus 3": "--fanotus",
    "sweep --budget nan": "--budget 0",
    "sweep --budget inf": "--budget 0",
    "sweep --seed -1": "seed 0 -1",
    "sweep --capacities 1,000,000": "1000000",
    "sweep --batches 32,1,024": "1024",
    "sweep --batches 64,64": "64 twice",
    "sweep --capacities 1e4,10000": "10000 twice",
    "sweep --contestants numpy,": "'numpy,' empty",
    "sweep --options layout": "KEY 'layout'",
    "sweep --options layout=plain,layout=prefix": "KEY",
    f"sweep {AXES} --options propagate=delta --options nosuch=1": "nosuch propagate numpy",
    f"sweep {AXES} --options propagate=delta --options padding=full,nosuch=1": "nosuch propagate numpy",
    f"sweep {AXES} --options propagate=delta --options fanout=4": "fanout propagate numpy",
    f"sweep {AXES} --results file": "written",
    "list --results nowhere": "records sweep",
    "forget": "forget",
    "peers --batches 0": "B 1 0",
    "peers --contestants NUMBA": "'NUMBA' 'numba'",
    "peers --python none": "none peers",
    "compare no-such-commit HEAD": "'no-such-commit'",
    "compare HEAD HEAD --threshold nan": "--threshold 0",
    "compare HEAD HEAD --detect -1": "--detect 0",
    "compare HEAD HEAD --fanouts 1": "K 2 1",
    "run replay --batch 0": "batch 1 0",
    "run arrangements --long --steps 0": "steps 1 0",
    "run loops --rounds 0": "rounds 1 0",
    "run loops --batches 0": "1 0",
    f"run loops --batches 8,50001 --python {sys.executable}": "--batches 50000 50001",
    "run plugins --python none": "none plugins",
    "profile": "--workload",
    "profile --workload cartpol_dqn": "cartpole_dqn",
    "profile --workload missing.toml": "missing.toml",
    "profile --workload nowhere/tiny.toml": "gymnasium 'Nowhere-v9'",
    "profile --workload cartpole_dqn --preset quikc": "quikc",
    "profile --workload cartpole_dqn --only 'env step' --arrangements": "--only",
    "profile --workload cartpole_dqn --hidden 8,0": "1",
    "profile --workload cartpole_dqn --hidden 99999": "65,536",
    "run share --workload hoper_ddpg": "hopper_ddpg",
    "run share --workload cartpole_dqn --contestants tianshou --python no": "peers",
    "run transports --queue-size 1,100001": "--queue-size 100000 100001",
    "run transports --batches 1,100001": "--batches 100000 100001",
    "run transports --cores 1,5000": f"--cores {checkout.CORES} 5000",
    "run transports --samplers 1,65": "--samplers 64 65",
    "run learning --depths -1": "D 0 -1",
    "run learning --seeds 10,011": "10011",
    "run learning --seeds 1,-1": "--seeds 0 -1",
    **{f"run learning --periods {given}": "--periods" for given in ("1x10", "2x0", "2", "x")},
    "run learning --only serial --most 2499": "--most 2500 cartpole_dqn 2499",
    "run learning --only serial --workload none": "'none'",
    "run learning --only apart --workload pendulum_memr": "memr apart",
    "run learning --only copies --processes 1025": "processes 1,024 1025",
    "run learning --only depths --depths 65537": "presampled 65,536 65537",
    "run learning --only libraries --workload pendulum_sac --python none": "none peers",
}


def refuse(capsys, words):
    """Run a command that must end with exit code 2; return what it says."""
    try:
        code = cli.main(shlex.split(words))
    except SystemExit as stop:  # argparse
        code = stop.code
    said = capsys.readouterr()
    assert (code, said.out, "Traceback" in said.err) == (2, "", False), (words, said)
    return said.err


def test_what_cannot_be_measured_is_refused_by_its_facts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(learning, "ask_once", lambda *_: pytest.fail("a run was begun"))
    monkeypatch.setattr(profile, "PACKAGES", ())
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").mkdir()
    write_workload(tmp_path / "nowhere", "Nowhere-v9")
    there = sorted(tmp_path.rglob("*"))
    for words, facts in REFUSED.items():
        said = refuse(capsys, words)
        assert all(fact in said for fact in facts.split()), (words, said)
        assert sorted(tmp_path.rglob("*")) == there, words


def test_a_missing_package_is_named_with_its_extra(monkeypatch, capsys):
    monkeypatch.setattr(profile, "PACKAGES", ("no_such_package",))
    assert "no_such_package; install the extra" in refuse(capsys, "profile --workload cartpole_dqn")


def test_a_list_of_any_command_refuses_what_is_unknown_and_empty(capsys):
    every = [(parser, action) for _, parser in parsers() for action in parser._actions]
    lists = [(parser, one.option_strings[0]) for parser, one in every if "list of" in getattr(one.type, "__name__", "")]
    assert {"--contestants", "--only", "--strategies", "--buffers", "--hosts", "--batches"} <= {one for _, one in lists}
    known = [one for one in lists if one[1] not in ("--workload", "--workloads", "--python")]  # which may be files
    for (parser, option), value in itertools.product(known, ("nonesuch", "")):
        with pytest.raises(SystemExit):
            parser.parse_args([option, value])
        assert re.search(f"argument {option}: .*{value!r}", capsys.readouterr().err), parser.prog


def test_an_earlier_spelling_says_what_it_is_now(capsys):
    for line in (line for line in json.loads(cells.FILE.read_text()) if line.startswith("run ")):
        words = shlex.split(line)[1:]
        assert cli.main(["peers", "--training", *words[1:]] if words[0] == "loops" else words) == 2
        assert f"python -m benchmarks run {shlex.join(words)}" in capsys.readouterr().err


# A topic is one file


MADE_UP = '''"""How long does a made-up call take, and a run of it?

Nothing else names this file.
"""

from benchmarks.arguments import add_list, at_least
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
        return _Clock()


class _Clock:
    calls_per_sample = 3

    def sample(self):
        return 1e-3


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
    code, listed, _ = run("run", "made_up", "--dry-run", "--sizes", "4")
    assert (code, len(listed)) == (0, 3)
    assert run("run", "made_up")[1]["found_done"] == 6
    assert read_file(first["file"]) == found
    code, more, _ = run("run", "made_up", "--sizes", "2,3")
    assert (code, more["found_done"], more["measured_by_status"]) == (1, 3, {"skipped": 1, "failed": 2})
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    assert "How long does a made-up call take, and a run of it?" in capsys.readouterr().out


# Load from other processes


SMOKE = ("sweep", "--preset", "smoke", "--contestants", "flat", "--capacities", "1000", "--batches", "32", "--no-floor")


@pytest.fixture
def loaded(monkeypatch):
    """Make the machine one of two cores with this average load and so many processes that run at each look."""

    def put(average, *running):
        looks = iter(running)
        monkeypatch.setattr(os, "cpu_count", lambda: 2)
        monkeypatch.setattr(os, "getloadavg", lambda: (average, 0.0, 0.0))
        monkeypatch.setattr(checkout, "_count_running", lambda: next(looks))
        monkeypatch.setattr(checkout, "read_load", read_load)  # which finds none in other tests
        read_load.cache_clear()

    yield put
    read_load.cache_clear()


LOADS = [  # the average load, how many processes run at each look, and what counts
    (0.4, (), 0.0),  # nobody asks what runs
    (2.0, (0,) * 11, 0.0),  # the command before has ended
    (40.0, (40,) * 11, 40.0),
    (3.0, (5,) * 6 + (0,) * 5, 3.0),
    (3.0, (5,) * 5 + (1,) * 6, 0.0),  # a process a core at most, for moments
]


def test_load_is_what_runs_for_a_minute_and_at_this_moment(loaded):
    for average, running, load in LOADS:
        loaded(average, *running)
        assert checkout.read_load() == load == checkout.read_load()


def test_a_process_of_ones_own_is_no_load_to_itself(monkeypatch, tmp_path):
    (tmp_path / "loadavg").write_text("9.00 8.00 7.00 5/300 1234\n")
    monkeypatch.setattr(checkout, "PROCESSES", tmp_path / "loadavg")
    monkeypatch.setattr(checkout, "EVERY_SECONDS", 0.0)
    assert checkout._count_running() == 4


def test_a_system_that_tells_no_moment_may_have_our_processes(loaded, monkeypatch, tmp_path):
    monkeypatch.setattr(checkout, "PROCESSES", tmp_path / "none")
    for average, load in ((2.5, 0.0), (6.0, 4.0)):
        loaded(average)
        assert checkout.read_load() == load
    monkeypatch.delattr(os, "getloadavg")
    read_load.cache_clear()
    assert read_load() == 0.0


def test_nothing_is_measured_under_load(loaded, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    loaded(40.0, *[40] * 11)
    for command in (SMOKE, ("profile", "--workload", "cartpole_dqn"), ("compare", "HEAD~1", "HEAD")):
        assert cli.main([*command]) == checkout.BUSY_EXIT_CODE == 75
        said = capsys.readouterr().err
        assert "40" in said and "2 cores" in said
    assert dse(["platform", "probe", "--out", "probed.toml"]) == checkout.BUSY_EXIT_CODE
    assert [*tmp_path.iterdir()] == []


def test_what_does_not_measure_is_done_under_load(loaded, tmp_path):
    loaded(40.0, *[40] * 11)
    file = tmp_path / "records.jsonl"
    file.write_text("")
    assert cli.main(["list", "--results", str(tmp_path)]) == 2  # no records there
    assert cli.main(["compare", str(file), str(file)]) != checkout.BUSY_EXIT_CODE
    with pytest.raises(SystemExit) as ended:
        cli.main(["profile", "--help"])
    assert ended.value.code == 0


def test_what_is_measured_anyway_is_marked_and_measured_again(loaded, tmp_path, capsys):
    command = [*SMOKE, "--results", str(tmp_path), "--anyway"]
    loaded(40.0, *[40] * 11)
    assert cli.main(command) == 0
    path = tmp_path / fingerprint()["key"] / "smoke-custom.jsonl"
    marked = read_file(path)
    assert {one.machine[LOAD] for one in marked} == {40.0}
    assert "40" in capsys.readouterr().err
    assert cli.main(command) == 0  # under load still, all is there
    assert read_file(path) == marked
    loaded(0.0)
    assert cli.main(command) == 0
    counting = [one for one in read_folder(tmp_path) if not one.primitive.endswith("_again")]
    assert counting
    assert not any(LOAD in one.machine for one in counting)
