"""The command replay: its checks find what is wrong with a buffer, crews keep to their quotas, nothing hangs, and a run
that was killed goes on."""

import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
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
from benchmarks.topics.replay.cells import COMPILED, IN_PYTHON, OPERATIONS, PARTS, REUSED, Cell, Plan
from benchmarks.topics.replay.jobs import Crew, CrewError, Job, Outcome, Processes, Quota, Threads
from benchmarks.topics.replay.worker import (
    LEAD_SECONDS,
    Operation,
    SharedRun,
    part_of_step,
    share_quota,
)
from benchmarks.workers import FailedError, Pool, WorkerClock
from dse.records import read_file
from tests.committed import ROOT
from tests.made import make_record
from tests.oracles import naive_replay
from tests.oracles.naive_replay import Naive, Raising
from tests.parallel_runs import until

pytest.importorskip("numba")
STRATEGIES = ("two_lock_checked", "global", "none", "rwlock", "two_lock_lazy")
OTHERS = ("prioritized_buffer", "cpprb", "cpprb_mp", "sharded", "torchrl_ray")
LEARN = Job("it", "learner", 0, 1, 4, ())
PLAN = Plan(STRATEGIES, "two_lock_checked", OTHERS, 1_000, 64, 5_000, 1_000)


@pytest.fixture
def known(monkeypatch):
    """Makes the buffers of this file known by their names."""
    for kind in naive_replay.KINDS:
        monkeypatch.setitem(roles(Buffer), kind.name, kind)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("name", "said"),
    [("torn", "not as they were inserted"), ("uniform", "of a batch have the priority"), ("weightless", "weights")],
)
def test_the_check_finds_what_is_wrong_with_a_buffer(name, said):
    assert fault("naive") is None
    assert said in fault(name)


def test_records_tell_which_of_them_are_torn():
    whole = rows.made(np.array([5, rows.MOST - 1, 70_000]))
    assert rows.wrong(whole) == 0
    assert {name: array.dtype for name, array in whole.items()} == {
        name: dtype for name, (_, dtype) in rows.LAYOUT.fields.items()
    }
    whole["next_observation"][1, 10] += 1
    assert rows.wrong(whole) == 1


@pytest.mark.parametrize("name", [COMPILED, REUSED, IN_PYTHON])
def test_our_buffers_pass_the_check_and_their_operations_are_timed(name):
    options = {} if name == IN_PYTHON else {"strategy": "two_lock_checked"}
    assert fault(name, **options) is None
    buffer = make(Buffer, name, 300, **options)
    buffer.fill()
    for op in ("insert", "sample", "update", "retrieve", "step", "rollouts"):
        assert 0 < Operation(buffer, op, 16, 0.0002).sample() < 1


@pytest.mark.parametrize(("contestant", "op"), cells.STEP_PARTS)
def test_the_other_parts_of_an_environment_step_are_timed(contestant, op):
    pytest.importorskip("mujoco")
    cell = {"contestant": contestant, "op": op, "batch": 8, "options": {"workload": cells.TRAINED, "learner": "dense"}}
    assert 0 < part_of_step(cell, 0, 0.0002).sample() < 1


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


def test_cells_are_all_different_and_name_what_is_asked_for():
    """The rest of them is kept: tests.cells."""
    every = [cell for part in PARTS for group in PLAN.groups(part) for cell in group]
    assert len({json.dumps(vars(cell), default=dict) for cell in every}) == len(every)
    assert {(one.part, one.op) for one in every if one.contestant in OTHERS[3:]} == {("sharded", "step")}
    assert {one.contestant for one in every if one.op == "retrieve"} == {COMPILED, REUSED, IN_PYTHON}
    none = Plan((), "", ("prioritized_buffer",), 1_000, 64, 10, 2)
    assert [none.groups(part) for part in ("parts", "threads", "processes", "flush")] == [[], [], [], []]


def test_a_stretch_begins_when_told_and_ends_with_an_iteration(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    clock.sleep, clock.perf_counter = lambda seconds: vars(clock).update(now=clock.now + seconds), lambda: clock.now
    monkeypatch.setattr(jobs, "time", clock)
    job = Job("it", "actor", 0, 1, 1, (), begin=2.0, end=3.0)
    outcome = jobs._for_a_stretch(job, lambda turn: clock.sleep(0.3), [0] * 17)
    assert (outcome.iterations, outcome.began, outcome.seconds) == (4, 2.0, pytest.approx(0.3))
    assert jobs._for_a_stretch(job, lambda turn: clock.sleep(9), [0] * 17).iterations == 1


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


def test_samples_that_another_supersedes_before_their_update_are_counted():
    """Of 8 iterations of B = 4, the other learner changes three of four priorities in the second."""
    buffer, told = Naive(64), iter([(1, 1, 1, 1)] * 2 + [(1, 1, 1, 1), (2, 0, 3, 1)] + [(5, 5, 5, 5)] * 12)
    buffer.retrieve = lambda sampled: np.array(next(told))
    job = dataclasses.replace(LEARN, role="retrieve")
    clock = SharedRun(Threads({"it": buffer}), share_quota(job, Quota(1, 1, 8, 2)))
    assert 0 < clock.sample() < 1
    assert (buffer.learned, clock.superseded) == (8, 3 / 32)


def test_what_a_member_raises_names_it_and_stops_the_others():
    members = Threads({"it": Raising(64), "other": Naive(64)})
    pair = [Job("other", "actor", 0, 1, 4, ()), Job("it", "learner", 1, 1, 4, ())]
    begin = time.perf_counter()
    with pytest.raises(CrewError, match=r"^learner 1: RuntimeError: no$"):
        SharedRun(members, pair, 30.0).sample()
    with pytest.raises(CrewError, match=r"no$"):
        SharedRun(members, share_quota(LEARN, Quota(1, 1, 10, 2))).sample()
    assert time.perf_counter() - begin < 10


def test_members_that_wait_for_ever_are_given_up(monkeypatch):
    monkeypatch.setattr(jobs, "LIMIT_SECONDS", 0.1)
    members = Threads({"it": Naive(64)})
    alone = [Job("it", "learner", 0, 1, 4, (), quota=Quota(0, 1, 10, 2))]  # nobody inserts
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


def test_processes_share_a_buffer_and_one_that_dies_is_named_and_replaced(processes):
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


def test_a_process_that_does_not_answer_in_time_is_ended_and_replaced(monkeypatch):
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
    samples = tuple(seconds * (1 + 0.001 * at) for at in range(-5, 6))
    named = {"contestant": COMPILED, "capacity": 1_000, "batch": 256, "options": {"strategy": "two_lock_checked"}}
    how = {"source": "measured", "status": "ok", "samples_seconds": samples, "median_seconds": seconds}
    return make_record(primitive=primitive, op=op, **{**how, **named, **fields})


def test_the_summary_says_how_many_times_as_fast():
    ops = (("insert", 1), ("sample", 256), ("update", 256), ("step", 256))
    found = [record(op, 2e-6, batch=batch) for op, batch in ops]
    found += [record(op, 12e-6, batch=batch, contestant="cpprb", options={}) for op, batch in ops]
    content = command.summarize(found, "two_lock_checked")["operations"]
    assert content["us"]["cpprb"]["sum"] == pytest.approx(36)
    assert content["times_best_peer"]["sum"] == pytest.approx(6)
    times, low, high = content["times_best_peer"]["step"]
    assert times == pytest.approx(6)
    assert low < times < high
    assert "a speedup of 6.00 over cpprb" in "\n".join(command.lines({"operations": content}))
    found = [
        dataclasses.replace(found[3], primitive="replay_sharded", contestant=name, median_seconds=seconds)
        for name, seconds in (("sharded", 5e-4), ("torchrl_ray", 1e-2))
    ]
    content = command.summarize(found, "two_lock_checked")
    assert content["sharded"]["speedups"]["torchrl_ray"][0] == pytest.approx(20)
    assert any("a speedup of 20.00x" in line and "over torchrl_ray" in line for line in command.lines(content))


def test_the_summary_of_runs_holds_both_claims_against_their_intervals():
    options = {"actors": 1, "learners": 1, "work_seconds": 0.0}
    found = [
        record("run", seconds, "replay_threads", threads=2, options={**options, "strategy": strategy})
        for strategy, seconds in (("two_lock_lazy", 2e-6), ("global", 6e-6), ("none", 1e-6))
    ]
    found.append(dataclasses.replace(found[0], op="retrieve", metrics={"superseded": 0.0123}))
    content = command.summarize(found, "two_lock_checked")["threads"]
    assert content["2, 0 us of work, priorities retrieved"]["two_lock_lazy"]["superseded"] == 0.0123
    assert "1.23% of samples" in "\n".join(command.lines({"threads": content}))
    row = content["2, 0 us of work"]["two_lock_lazy"]
    assert row["times_global"][0] == pytest.approx(3)


COMMAND = ["run", "replay", "--python", "none", "--capacity", "600", "--sample", "0.0005", "--budget", "0", "--json"]


def test_pairs_and_flushes_of_a_strategy_are_records_and_nothing_is_measured_twice(tmp_path, monkeypatch, capsys):
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
    assert all("for threads of one process" in one.reason for one in skipped)
    balance = {one.op: one for one in found if one.op.startswith("balance")}
    assert set(balance) == {"balance insert", "balance learn"}
    (count,) = {
        one.reason.split(" rows")[0] for one in found if one.op in ("one", "two", "apart") and one not in skipped
    }
    assert int(count) == balance["balance insert"].batch >= 1
    assert set(told["pairs"]) == {"none", "computing"}
    assert len(told["pairs"]["none"]["global"]["times_one"]) == 3
    learners = [one.options for one in found if (one.primitive, one.op) == ("replay_flush", "learn")]
    assert {(one["beside"], one["rows"]) for one in learners} == {(op, n) for op in ("insert", "cache") for n in (4,)}
    assert cli.main(words) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["found_done"], again["measured_by_status"]) == (
        told["cells"] - len(skipped),
        {"skipped": len(skipped)},
    )
    assert len(read_file(told["file"])) == len(found)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_killed_run_goes_on_where_it_stopped(tmp_path):
    words = [sys.executable, "-m", naive_replay.MODULE, *COMMAND[2:], "--only", "operations", "--no-sentinels"]
    words += ["--buffers", "naive,torn", "--results", str(tmp_path)]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    until(lambda: any(path.stat().st_size for path in tmp_path.glob("*/replay.jsonl")) or process.poll() is not None)
    assert process.poll() is None
    process.kill()
    process.communicate()
    (path,) = tmp_path.glob("*/replay.jsonl")
    with warnings.catch_warnings(action="ignore"):  # its last line may be torn
        timed = sum(one.contestant == "naive" for one in read_file(path))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    told = json.loads(done.stdout)
    assert (done.returncode, told["cells"], told["found_done"]) == (1, 10, timed)
    assert "5 cells failed, such as torn insert, 2" in done.stderr
    found = read_file(path)
    assert {(one.contestant, one.status in ("ok", "unstable")) for one in found} == {("naive", True), ("torn", False)}
    assert {(one.op, one.batch) for one in found} == {(op, batch) for op, batch in OPERATIONS}
    cells = [one.cell for one in found]
    assert len(cells) == len(set(cells))


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


def test_a_pair_is_as_fast_as_its_slower_side_and_a_flush_as_its_first():
    members = Played(Outcome(10, 1.0, 3.0), Outcome(4, 1.0, 3.0))
    pair, flush = (SharedRun(members, [LEARN] * 2, 2.0, is_slowest) for is_slowest in (True, False))
    assert (pair.sample(), pair.calls_per_sample) == (0.5, 4)
    assert (flush.sample(), flush.beside) == (0.2, 0.5)


def test_a_flush_has_a_learner_beside_it_where_that_is_asked_for():
    session = worker._Session()
    vars(session).update(_shared=lambda *_: "it", _stretch=lambda roles, *_, **how: [role for role, _ in roles])
    flushes = ({"op": "cache", "batch": 4, "options": {"beside": beside}} for beside in ("nothing", "learner"))
    assert [session._flush(cell, 0, 0.1, 1) for cell in flushes] == [["cache"], ["cache", "learner"]]


def test_a_run_takes_until_its_last_member_is_done(monkeypatch):
    monkeypatch.setattr(
        "benchmarks.topics.replay.worker.time", SimpleNamespace(perf_counter=lambda: 1.0 - LEAD_SECONDS)
    )
    members = Played(Outcome(20, 1.0, 3.0), Outcome(20, 1.5, 5.0))
    shares = Quota(1, 1, 20, 2)
    assert SharedRun(members, share_quota(LEARN, shares)).sample() == pytest.approx(4.0 / 20)
