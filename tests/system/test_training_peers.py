"""The topic loops: they take turns, what is wrong with one is a sentence, and one run is compared."""

import datetime
import json
import sys
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as cli
from benchmarks.libraries import base
from benchmarks.libraries.base import Loop, roles
from benchmarks.topics import loops
from benchmarks.topics.loops import command, worker
from benchmarks.workers import ROOT, Bounded, environment, quietly
from dse.records import read_file
from impls.training import load
from impls.training.weights import networks
from tests.oracles import naive_training
from tests.oracles.naive_training import Naive

THEIRS = [name for name in loops.names() if not roles(Loop)[name].is_ours]


COMMAND = ["run", "loops", "--rounds", "3", "--block", "0.02", "--warmup", "4", "--python", sys.executable]


@pytest.fixture
def measure(monkeypatch, tmp_path, capsys):
    """Measures loops of the tests, known here and in workers, of which "naive" is ours; returns what is printed."""
    for name, kind in naive_training.KINDS.items():
        monkeypatch.setitem(roles(Loop), name, kind)
    monkeypatch.setattr(command, "MODULE", naive_training.MODULE)
    monkeypatch.setattr(command, "OURS", "naive")

    def run(contestants, *more, code=0):
        assert cli.main([*COMMAND, "--results", str(tmp_path), "--contestants", contestants, *more]) == code
        return capsys.readouterr()

    return run


def test_all_train_the_shipped_workload_with_steady_exploration():
    shipped, ours = load(loops.WORKLOAD), loops.workload()
    assert ours.exploration.start == ours.exploration.end == shipped.exploration.end
    assert (ours.network, ours.learner, ours.replay) == (shipped.network, shipped.learner, shipped.replay)


def test_ours_has_the_network_and_takes_one_gradient_step_a_step():
    pytest.importorskip("torch")
    loop = loops.make("fanout_torch")
    learner = loop.workload.learner
    while loop.steps < learner.learning_starts + 5:
        loop.turn()
    assert loop.updates == 6
    assert loop.weights == networks(loop.workload)["action_values"].parameters
    assert loop.remark == "learner torch, policy torch"
    loop.close()


def test_a_block_is_of_whole_turns_timed_by_environment_steps(monkeypatch):
    clock = SimpleNamespace(now=0.0, cpu=0.0)
    fake = SimpleNamespace(perf_counter=lambda: clock.now, process_time=lambda: clock.cpu)
    monkeypatch.setattr(worker, "time", fake)
    monkeypatch.setattr(base, "time", fake)

    class Played(Naive):
        def turn(self):
            self.steps += 4
            self.updates += 4
            clock.now += 4.0 if self.steps == 4 else 0.8
            clock.cpu += 0.4

    session = worker._Session()
    session._trainer = Played(loops.workload(), 4, 0)
    block = session.block(7.0)
    assert (block["steps"], block["updates"]) == (20, 20)
    assert block["clean"] == pytest.approx(0.2)
    assert block["median"] == pytest.approx(0.2)
    assert block["cpu"] == pytest.approx(0.1)


WRONG = {"eager": "failed 2.000 0.01", "small": "failed 17 17,410", "raising": "failed ArithmeticError diverged"}
WRONG |= {"dying": "failed 3", "absent": "skipped 'no_such_module' peers"}


def test_what_is_wrong_with_a_loop_is_told(measure):
    out, err = measure(",".join(naive_training.KINDS), "--json", code=1)
    found = json.loads(out)
    rows = {row["loop"]: row for row in found["rows"]}
    assert set(rows) == {"naive", "naive (4 environments)", "slow (uniform)"}
    for row in rows.values():
        median, low, high = row["steps_per_second"]["clean"]
        assert low <= median <= high
        assert row["gradient_steps_per_step"] == 1.0
        assert row["update_frame_hz"] == pytest.approx(loops.workload().learner.batch * row["sampling_hz"])
        assert 0 < row["cpu_percent"] <= 101
    assert rows["naive"]["note"] == "learns nothing"
    absent = {row["loop"].partition(" ")[0]: f"{row['status']}: {row['reason']}" for row in found["absent"]}
    assert absent.keys() == WRONG.keys()
    assert all(fact in absent[name] for name, facts in WRONG.items() for fact in facts.split())
    assert "12 cells failed" in err
    kept = read_file(found["file"])
    assert {(record.source, record.utc) for record in kept} == {("measured", kept[0].utc)}
    again = [record for record in kept if record.primitive == "loop_peer_again"]
    assert [(record.contestant, record.op) for record in again] == [("naive", op) for op in command.OPS]
    timed = [record for record in kept if record.status in ("ok", "unstable")]
    assert {(len(record.samples_seconds), len(record.facts["affinity"])) for record in timed} == {(3, 1)}


def test_a_run_measures_all_anew_and_stands_alone(measure, tmp_path, monkeypatch):
    assert "slow" in measure("naive,slow").out
    later = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)).isoformat()
    monkeypatch.setattr(command.platforms, "now", lambda: later)
    assert "slow" not in measure("naive").out
    (path,) = tmp_path.glob("*/training-peers.jsonl")
    moments = [record.utc for record in read_file(path)]
    assert [moments.count(moment) for moment in (moments[0], later)] == [4 * len(command.OPS), 3 * len(command.OPS)]


def test_loops_of_a_batch_are_compared(measure):
    found = json.loads(measure("naive,slow", "--batches", "8,64", "--json").out)
    frames = {row["loop"]: row["update_frame_hz"] / row["update_hz"] for row in found["rows"]}
    for batch in (8, 64):
        (other,) = [name for name in found["times"][f"naive (B = {batch})"] if name.startswith("slow")]
        assert other == f"slow (uniform, B = {batch})"
        assert round(frames[f"naive (B = {batch})"]) == batch
    kept = read_file(found["file"])
    assert len({(record.batch, record.options["identity"]) for record in kept}) == 2


@pytest.fixture
def python():
    """The interpreter of the environment in which other libraries are installed."""
    made = ROOT / ".venv-peers/bin/python"
    if not made.exists():
        pytest.skip("make peers has not been run")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", THEIRS)
def test_a_librarys_loop_runs_where_it_is_installed(name, python):
    for count in roles(Loop)[name].environments:
        with Bounded(python, module=command.MODULE) as process:
            starts = loops.workload().learner.learning_starts
            answer = process.ask("prepare", name=name, environments=count, seed=0, warm_up=starts + 10)
            assert "affinity" in answer, answer
            block = process.ask("block", seconds=0.2)
            assert block["updates"] == block["steps"] > 0, block
            process.ask("close")


@pytest.mark.slow
@pytest.mark.parametrize("name", loops.with_sac())
def test_a_librarys_sac_has_our_network_and_takes_our_steps(name, python):
    code = (
        "import numpy as np; from benchmarks.topics import loops; from impls import training; from sys import argv;"
        "task = training.load('pendulum_sac'); loop = loops.make(argv[1], task=task);\n"
        "while loop.steps < task.learner.learning_starts + 10: loop.turn()\n"
        "act = loop.act(np.eye(3, dtype=np.float32))\n"
        "print(loop.weights, loop.updates, act.shape, abs(act).max() < 1)\n"
        "loop.close()"
    )
    done = quietly([str(python), "-P", "-c", code, name], env=environment(python))
    weights, updates, *acted = done.stdout.splitlines()[-1].split(maxsplit=2)
    assert int(weights) == networks(load("pendulum_sac"))["policy"].parameters, done.stderr
    assert 10 <= int(updates) <= 11
    assert acted == ["(3, 1) True"]
