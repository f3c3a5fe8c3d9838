"""The command replay: its checks find what is wrong with a buffer, crews keep to their quotas, nothing hangs, and a run
that was killed goes on."""

import dataclasses
import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import __main__ as cli
from benchmarks.libraries import rows
from benchmarks.libraries.base import Buffer, make, roles
from benchmarks.timing import interleave
from benchmarks.topic import parser_for
from benchmarks.topics.replay import cells, command, fault, jobs, worker
from benchmarks.topics.replay.cells import COMPILED, IN_PYTHON, REUSED, Cell
from benchmarks.topics.replay.jobs import Crew, CrewError, Job, Outcome, Processes, Quota, Threads
from benchmarks.topics.replay.worker import LEAD_SECONDS, Operation, SharedRun, share_quota
from benchmarks.workers import FailedError, Pool, WorkerClock
from dse.records import read_file
from tests.made import make_timed
from tests.oracles import naive_replay
from tests.oracles.naive_replay import Naive, Raising

pytest.importorskip("numba")
LEARN = Job("it", "learner", 0, 1, 4, ())


@pytest.fixture
def known(monkeypatch):
    """Makes the buffers of this file known by their names."""
    for kind in naive_replay.KINDS:
        monkeypatch.setitem(roles(Buffer), kind.name, kind)


@pytest.mark.usefixtures("known")
def test_the_check_finds_what_is_wrong_with_a_buffer():
    assert fault("naive") is None
    for name, fact in (("torn", "inserted"), ("uniform", "priority"), ("weightless", "weights")):
        assert fact in fault(name)
    whole = rows.made(np.array([5, rows.MOST - 1, 70_000]))
    assert rows.wrong(whole) == 0
    assert {name: array.dtype for name, array in whole.items()} == {
        name: dtype for name, (_, dtype) in rows.LAYOUT.fields.items()
    }
    whole["next_observation"][1, 10] += 1
    assert rows.wrong(whole) == 1


@pytest.mark.parametrize("name", [COMPILED, REUSED, IN_PYTHON])
def test_our_buffers_pass_the_check_and_are_timed(name):
    options = {} if name == IN_PYTHON else {"strategy": "two_lock_checked"}
    assert fault(name, **options) is None
    buffer = make(Buffer, name, 300, **options)
    buffer.fill()
    for op in ("insert", "sample", "update", "retrieve", "step", "rollouts"):
        assert 0 < Operation(buffer, op, 16, 0.0002).sample() < 1


def test_the_other_parts_of_an_environment_step_are_timed():
    pytest.importorskip("mujoco")
    for contestant, op in cells.STEP_PARTS:
        options = {"workload": cells.TRAINED, "learner": "dense"}
        cell = {"contestant": contestant, "op": op, "batch": 8, "options": options}
        assert 0 < worker.part_of_step(cell, 0, 0.0002).sample() < 1


def test_cut_operations_run_and_leave_the_replay_as_it_is():
    buffer = make(Buffer, COMPILED, 300, strategy="two_lock_checked")
    buffer.fill()
    for op, steps in cells.UNTIL.items():
        assert steps[-1] == "whole"
        for step in steps[:-1]:
            before = buffer.compiled.written
            assert Operation(worker.cut(buffer, op, step), op, 16, 0.0002).sample() > 0
            assert (buffer.compiled.written, buffer.compiled.check()) == (before, 0.0)
    assert worker.cut(buffer, "sample", "whole") is buffer


@pytest.mark.parametrize(("actors", "learners"), [(1, 1), (3, 2)])
def test_a_quota_is_kept_and_nobody_runs_too_far_ahead(actors, learners):
    buffer, ahead, before = Naive(64), [], []
    members = Threads({"it": buffer})
    sample, insert = buffer.sample, buffer.insert

    def sampled(batch):
        ahead.append(buffer.written)
        time.sleep(20 * jobs.POLL_SECONDS)  # so that actors come to the rule, too
        return sample(batch)

    def inserted(placed):
        if not ahead:
            time.sleep(20 * jobs.POLL_SECONDS)  # so that learners come to the rule before enough is there
        insert(placed)
        before.append(buffer.written - buffer.learned)

    buffer.sample, buffer.insert = sampled, inserted
    clock = SharedRun(members, share_quota(LEARN, Quota(actors, learners, 40, 10)))
    assert 0 < clock.sample() < 1
    assert 40 <= buffer.written < 40 + actors
    assert 40 <= buffer.learned < 40 + learners
    assert ahead[0] >= 10 and max(before) <= 10 + 1 + actors
    assert clock.beside is None


def test_superseded_samples_are_counted():
    """Of 8 iterations of B = 4, the other learner changes three of four priorities in the second."""
    buffer, told = Naive(64), iter([(1, 1, 1, 1)] * 2 + [(1, 1, 1, 1), (2, 0, 3, 1)] + [(5, 5, 5, 5)] * 12)
    buffer.retrieve = lambda sampled: np.array(next(told))
    job = dataclasses.replace(LEARN, role="retrieve")
    clock = SharedRun(Threads({"it": buffer}), share_quota(job, Quota(1, 1, 8, 2)))
    assert 0 < clock.sample() < 1
    assert (buffer.learned, clock.superseded) == (8, 3 / 32)


def test_what_a_member_raises_names_it_and_stops_the_others(monkeypatch):
    members = Threads({"it": Raising(64), "other": Naive(64)})
    pair = [Job("other", "actor", 0, 1, 4, ()), Job("it", "learner", 1, 1, 4, ())]
    begin = time.perf_counter()
    with pytest.raises(CrewError, match=r"^learner 1: RuntimeError: no$"):
        SharedRun(members, pair, 30.0).sample()
    with pytest.raises(CrewError, match=r"no$"):
        SharedRun(members, share_quota(LEARN, Quota(1, 1, 10, 2))).sample()
    assert time.perf_counter() - begin < 10
    monkeypatch.setattr(jobs, "LIMIT_SECONDS", 0.1)
    alone = [Job("other", "learner", 0, 1, 4, (), quota=Quota(0, 1, 10, 2))]  # nobody inserts
    with pytest.raises(CrewError, match="not done after"):
        SharedRun(members, alone).sample()


@pytest.fixture
def processes():
    buffer = make(Buffer, COMPILED, 256, strategy="two_lock_checked", shared=True)
    buffer.fill()
    members = Processes({"it": buffer})
    yield members
    members.close()
    assert not [child for child in multiprocessing.active_children() if child.is_alive()]


def test_of_processes_that_share_a_buffer_a_dead_one_is_replaced(processes):
    pair = [Job("it", role, index, 2, 8, ()) for index, role in enumerate(("actor", "learner"))]
    clock = SharedRun(processes, pair, 0.02)
    assert 0 < clock.sample() < 1
    buffer = processes._buffers["it"]
    assert buffer.compiled.written > 256
    assert rows.wrong(buffer.records(buffer.sample(64))) == 0
    os.kill(processes._processes[1][0].pid, signal.SIGKILL)
    with pytest.raises(CrewError, match=r"^process 1 ended with exit code -9$"):
        clock.sample()
    cached = [Job("it", "cache", 0, 3, 8, ()), pair[1]]
    assert 0 < SharedRun(processes, cached, 0.02).sample() < 1


def test_a_process_that_does_not_answer_in_time_is_replaced(monkeypatch):
    pool, start = Pool(command.ReplayBuffers.module, limit_seconds=60), ("a", Path(sys.executable), "versions")
    assert pool.open(*start, packages=["numpy"]) == pool.open(*start, packages=[]) == {"numpy": np.__version__}
    monkeypatch.setattr(pool._workers["a"], "limit_seconds", 0.01)
    cell = Cell("operations", IN_PYTHON, "insert", 1, 1_000_000)
    asked = {"cell": cell, "seed": 0, "sample_seconds": 0.001, "rows": 1}
    untimed = pool.prepare("a", **asked)
    assert untimed.status == "failed" and "0.01 s" in untimed.reason
    assert pool.open(*start, packages=[]) == {}
    pool.close()


def record(op, seconds, primitive="replay_operations", **fields):
    named = {"contestant": COMPILED, "capacity": 1_000, "batch": 256, "options": {"strategy": "two_lock_checked"}}
    return make_timed(seconds, primitive=primitive, op=op, **{**named, **fields})


def test_the_summary_says_how_many_times_as_fast():
    ops = (("insert", 1), ("sample", 256), ("update", 256), ("step", 256))
    found = [record(op, 2e-6, batch=batch) for op, batch in ops]
    found += [record(op, 12e-6, batch=batch, contestant="cpprb", options={}) for op, batch in ops]
    content = command.summarize(found, "two_lock_checked")["operations"]
    assert content["us"]["cpprb"]["sum"] == pytest.approx(36)
    assert content["times_best_peer"]["sum"] == pytest.approx(6)
    times, low, high = content["times_best_peer"]["step"]
    assert low < times < high and times == pytest.approx(6)
    assert command.lines({"operations": content})
    times = {"sharded": 5e-4, "torchrl_ray": 1e-2}
    found = [record("step", seconds, "replay_sharded", contestant=name) for name, seconds in times.items()]
    speedups = command.summarize(found, "two_lock_checked")["sharded"]["speedups"]
    assert speedups["torchrl_ray"][0] == pytest.approx(20)
    options = {"actors": 1, "learners": 1, "work_seconds": 0.0}
    found = [
        record("run", seconds, "replay_threads", threads=2, options={**options, "strategy": strategy})
        for strategy, seconds in (("two_lock_lazy", 2e-6), ("global", 6e-6), ("none", 1e-6))
    ]
    found.append(dataclasses.replace(found[0], op="retrieve", metrics={"superseded": 0.0123}))
    content = command.summarize(found, "two_lock_checked")["threads"]
    assert content["2, 0 us of work, priorities retrieved"]["two_lock_lazy"]["superseded"] == 0.0123
    assert content["2, 0 us of work"]["two_lock_lazy"]["times_global"][0] == pytest.approx(3)


COMMAND = ["run", "replay", "--python", "none", "--capacity", "600", "--sample", "0.0005", "--budget", "0", "--json"]


def test_pairs_and_flushes_are_records_and_are_not_timed_twice(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.topics.replay.cells.FLUSHES", (4,))
    monkeypatch.setattr("benchmarks.topics.replay.cells.WORKS", ("none", "computing"))
    words = [*COMMAND, "--only", "pairs,flush", "--buffers", "replay", "--strategies", "global,rwlock"]
    words += ["--batch", "16", "--results", str(tmp_path)]
    assert cli.main(words) == 0
    told = json.loads(capsys.readouterr().out)
    found = read_file(told["file"])
    assert {one.source for one in found} == {"measured"}
    assert all(len(one.samples_seconds) >= 11 for one in found if one.status != "skipped")
    skipped = [one for one in found if one.status == "skipped"]
    assert {one.options["strategy"] for one in skipped} == {"rwlock"}
    balance = {one.op: one for one in found if one.op.startswith("balance")}
    assert set(balance) == {"balance insert", "balance learn"}
    assert set(told["pairs"]) == {"none", "computing"}
    assert len(told["pairs"]["none"]["global"]["times_one"]) == 3
    learners = [one.options for one in found if (one.primitive, one.op) == ("replay_flush", "learn")]
    assert {(one["beside"], one["rows"]) for one in learners} == {(op, n) for op in ("insert", "cache") for n in (4,)}
    assert cli.main([*words, "--dry-run"]) == 0
    assert f"{told['cells'] - len(skipped)} of them cached" in capsys.readouterr().err


def test_a_cell_that_fails_is_a_record_and_the_others_go_on(monkeypatch):
    """A sample of one cell fails, by the death of a process; the other cell is timed all the same."""

    class Clock(WorkerClock):
        def sample(self):
            if self.worker.op == "two":
                raise FailedError(self, "process 1 ended with exit code -9")
            self.answers.append({"superseded": None})
            return 1.0

    options = parser_for(command.ReplayBuffers).parse_args(["--python", "none", "--budget", "3"])
    topic, dropped, budgets = command.ReplayBuffers(options, "pairs"), [], []
    topic._rows["cpprb_mp"] = 1
    topic.pool = SimpleNamespace(drop=dropped.append, forget=lambda: None)
    monkeypatch.setattr("benchmarks.topic.interleave", lambda *given: budgets.append(given[1]) or interleave(*given))
    prepared = {"calls": 1, "affinity": [0], "note": None}
    monkeypatch.setattr(topic, "clock", lambda cell, stack, is_twin=False: Clock(cell, prepared))
    group = [Cell("pairs", "cpprb_mp", op, 8, 100, {"work": "none"}, 2) for op in ("one", "two")]
    found = list(topic.measure(group))
    assert dropped == group[1:]
    assert budgets == [3 * 3.0, 2 * 3.0]  # seconds of each clock, the twin is one
    assert [(record.op, record.status, record.primitive) for record in found] == [
        ("two", "failed", "replay_pairs"),
        ("one", "ok", "replay_pairs"),
        ("one", "ok", "replay_pairs_again"),
    ]


class Played(Crew):
    """A crew whose members take as long as they are told."""

    def __init__(self, *outcomes):
        super().__init__()
        self.outcomes = outcomes

    def _run(self, jobs):
        return list(self.outcomes)


def test_of_a_pair_the_slower_side_counts_of_a_flush_the_first(monkeypatch):
    members = Played(Outcome(10, 1.0, 3.0), Outcome(4, 1.0, 3.0))
    pair, flush = (SharedRun(members, [LEARN] * 2, 2.0, is_slowest) for is_slowest in (True, False))
    assert (pair.sample(), pair.calls_per_sample) == (0.5, 4)
    assert (flush.sample(), flush.beside) == (0.2, 0.5)
    monkeypatch.setattr(worker, "time", SimpleNamespace(perf_counter=lambda: 1.0 - LEAD_SECONDS))
    members = Played(Outcome(20, 1.0, 3.0), Outcome(20, 1.5, 5.0))  # a run takes until its last member is done
    assert SharedRun(members, share_quota(LEARN, Quota(1, 1, 20, 2))).sample() == pytest.approx(4.0 / 20)
