"""The command transports: what it asks for, what a watched transport notes, resumed runs, and the page's table."""

import json
import os
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("numba", reason="a parallel run is compiled by numba")
from benchmarks import __main__ as cli
from benchmarks.topics import transports as command
from benchmarks.topics.transports import Ledger, Watched
from dse.records import read_file
from impls.training import TrainingError, load
from impls.training.actor import Inserted
from impls.training.parallel.board import Board
from impls.training.parallel.transports import RecordTransport

COST = {"shared": 1.0, "pipe": 1.3}  # of a gradient step, in milliseconds at B = 128 and 64 rows
BLOCKS = 11


def of(name, rows=64, batch=1_024, **options):
    return command.Cell(name, "", {"workload": "hopper_td3", "rows": rows, **options}, batch, 2)


def faked(workload, cell, preset, make_loop=None):
    """Samples of a system whose times are known: a queue takes 1.6 of shared memory's."""
    name, rows, batch = cell.contestant, cell.options["rows"], cell.batch
    if name == "queue 5000" and batch == 1_024:
        raise TrainingError("actor 0 failed: <the motor is on fire>")
    cost = COST.get(name, 1.6) * batch / 128 * (2 if rows == 1 else 1)
    counts = [
        command.Counts(float(at), 1.5 * at, 5_000 * at, round(1_000 / cost) * at, 0.25 * (COST.get(name, 2.0) - 1) * at,
                       0.002 * 100 * at, 100 * at, 4 * at)
        for at in range(BLOCKS + 1)
    ]  # fmt: skip
    return command.columns(counts)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "measured", faked)

    def main(*words):
        asked = ["--preset", "quick", "--only", "system", "--json", "--results", str(tmp_path)]
        code = cli.main(["run", "transports", *asked, *words])
        return code, json.loads(capsys.readouterr().out)

    return main


def test_a_system_has_the_transport_samplers_and_cores_asked_for():
    for name, kind, size in (("shared", "shared", 2000), ("queue 500", "queue", 500), ("fill 5000", "fill", 5000)):
        workload, arrangement = command.system_of(load("hopper_td3"), of(name, samplers=4, cores=1))
        arrangement.check(workload)
        assert (workload.actors.count, workload.actors.local_storage, workload.learner.batch) == (4, 64, 1_024)
        assert (arrangement.name, arrangement.learners, arrangement.ratio) == ("apart", 1, "free")
        assert (arrangement.transport, arrangement.queue_size, len(arrangement.cores)) == (kind, size, 1)


def test_systems_of_more_processes_than_cores_are_marked(monkeypatch):
    monkeypatch.setattr(command, "CORES", 2)
    axes = {"batches": [128, 8_192], "samplers": [1, 2], "queue_size": [500, 50_000], "cores": [1, 2]}
    firsts = [group[0] for group in command.systems("w", 10, 16, axes)]
    usual = [one for one in firsts if one.options.keys() == {"workload", "rows"}]
    assert len(usual) == 20  # one sampler on all cores, as it was recorded before there were axes
    assert {one.options["rows"] for one in firsts if one.contestant == "fill 50000"} == {1}
    for options in (one.options for one in firsts):
        is_marked = options.get("samplers", 1) + 1 > options.get("cores", 2)
        assert (command.oversubscribed(options) is not None) == is_marked, options


def test_columns_are_differences_between_looks():
    columns = command.columns([command.Counts(0, 0, 0, 0, 0, 0, 0), command.Counts(2, 3, 100, 10, 0.5, 6, 3, 4)])
    expected = {"environment step": 0.02, "gradient step": 0.2, "cycle": 2, "transfer": 0.05, "cpu": 1.5}
    expected |= {"interval": 0.5}
    assert {name: samples for name, (samples,) in columns.items()} == pytest.approx(expected)


def test_a_run_is_resumed_where_it_stopped_and_failures_are_told(run):
    code, first = run()
    assert (code, first["cells"], first["found_done"]) == (1, 152, 0)  # of 26 systems 4 by shared memory
    assert first["measured_by_status"] == {"ok": 140, "failed": 12}
    code, again = run()
    assert (code, again["found_done"], again["measured_by_status"]) == (1, 140, {"failed": 12})
    assert len(read_file(first["file"])) == 152
    path = Path(first["file"])
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert run()[1]["measured_by_status"] == {"ok": 1, "failed": 12}  # a run that was killed as it wrote a system
    row = next(one for one in first["table"] if (one["transport"], one["batch"], one["rows"]) == ("pipe", 128, 64))
    cores = read_file(first["file"])[0].machine["cores"]
    expected = {"cpu_percent": 150 / cores, "sampling_hz": 5_000, "update_hz": 769, "update_frame_hz": 769 * 128}
    expected |= {"cycle_seconds": 0.25, "age_seconds": 0.002, "loss_percent": 7.5, "samplers": 1, "cores": cores}
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert {one["cycle_seconds"] for one in first["table"] if one["transport"] == "shared"} == {None}
    assert {record.primitive for record in read_file(first["file"])} == {"training transport"}


class Delayed(RecordTransport):
    """Hands over one hand-over later."""

    def __init__(self):
        self.waiting = []

    def make_sender(self, replay, board, row, number):
        return self.waiting.append

    def receive(self, replay):
        late = self.waiting[:-1]
        del self.waiting[:-1]
        return sum(len(one.can_sample) for one in late)


def test_a_watched_transport_notes_the_age_of_the_newest_record():
    board, inner, ledger = Board(1, 1, 1), Delayed(), Ledger()
    receiver, sender = Watched(inner, ledger, False), Watched(inner, ledger.handle(), False)
    send = sender.make_sender(None, board, 0, 0)
    reader, times = Ledger.attach(ledger.handle()), []
    for count in (3, 1, 2):
        send(Inserted({}, None, np.ones(count, np.bool_)))
        times.append(reader.newest(None))
        receiver.receive(None)
    assert (receiver.received, receiver.transfers) == (4, 2)
    assert ledger.newest(4) == times[1] < ledger.newest(5 + 1) == times[2]
    assert receiver.looks == 2  # at the first nothing had been received
    assert receiver.age_ns > 0
    assert receiver.transfer_ns > 0


@pytest.mark.parametrize("name", ["shared", "queue", "pipe"])
def test_a_hand_over_is_timed_until_its_rows_are_in_the_replay(name, monkeypatch):
    monkeypatch.setattr(command, "SAMPLE_SECONDS", 1e-9)
    with ExitStack() as stack:
        clocks = [command.clock_of(command.Cell(name, op, batch=64), stack) for op in ("send", "hand over")]
        assert all(clock.sample() > 0 for clock in clocks)
        assert [clock.calls_per_sample for clock in clocks] == [1, 1]


@pytest.mark.parametrize(("is_filled", "updates"), [(False, [1, 2, 3]), (True, [3, 6, 9])])
def test_a_block_ends_with_a_transfer_where_a_queue_is_filled(is_filled, updates):
    watched, loop = SimpleNamespace(transfers=0), SimpleNamespace(updates=0)

    def advance():
        loop.updates += 1
        watched.transfers += loop.updates % 3 == 0

    loop.advance = advance
    assert [command._run(loop, watched, 0.0, is_filled) or loop.updates for _ in updates] == updates


def test_a_system_runs_in_blocks_of_whole_transfers():
    preset, before = command.Preset(0.1, 0.1, 2, 0.1), os.sched_getaffinity(0)
    samples = command.measured(load("cartpole_dqn"), of("fill 500", 1, 128, samplers=2), preset)
    assert {name: len(values) for name, values in samples.items()} == dict.fromkeys(command.COLUMNS, 2)
    assert all(value > 0 for values in samples.values() for value in values)
    for interval, step in zip(samples["interval"], samples["environment step"], strict=True):
        # A cycle x the sampling rate is a queue filled, but for the gradient step that a block ends with.
        assert interval / step == pytest.approx(500, rel=0.3)
    assert os.sched_getaffinity(0) == before
