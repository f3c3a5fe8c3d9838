"""`python -m benchmarks run gpu`, on the stand-in for a device: what it writes, how it goes on, and what it refuses."""

import dataclasses
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import __main__ as cli
from benchmarks import cases
from benchmarks.cases import Case, prepare
from benchmarks.clock import LEAST_SAMPLE_SECONDS
from benchmarks.libraries.base import tree_names
from benchmarks.topics import gpu
from dse.platforms import fingerprint
from dse.records import read_file
from impls.sumtree.cuda import program
from tests import fake_cupy

SMALL = {"capacities": (300,), "batches": (8, 40), "fanouts": (4,)}


@pytest.fixture
def small(monkeypatch, with_cupy):
    """A device that is not there, and grids of a few cells."""
    with_cupy()
    for name in ("CHECKS", "TREES", "RIVALS", "TRANSFERS"):
        block = getattr(gpu, name)[0]
        monkeypatch.setattr(gpu, name, (dataclasses.replace(block, **SMALL, options=block.options[:3]),))
    monkeypatch.setattr(cases, "MOST_BATCHES", 64)
    for clock in (gpu.EventClock, gpu.GraphClock):
        shorter = tuple(5e-4 if default == LEAST_SAMPLE_SECONDS else default for default in clock.__init__.__defaults__)
        monkeypatch.setattr(clock.__init__, "__defaults__", shorter)


def run(results, *more):
    return cli.main(["run", "gpu", "--results", str(results), "--budget", "0.001", *more])


def recorded(results):
    return read_file(results / fingerprint()["key"] / "gpu.jsonl")


def test_without_a_device_it_stops_with_one_sentence(with_cupy, tmp_path, capsys):
    with_cupy("cudaErrorNoDevice: no CUDA-capable device is detected")
    assert run(tmp_path) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("error: Implementation 'cupy' needs a CUDA device")
    assert not list(tmp_path.iterdir())


def test_every_stage_is_measured_once_and_missing_libraries_skip(small, tmp_path, capsys, monkeypatch):
    assert run(tmp_path, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["check"]["checked"] == 3 * 2 * 3  # ops, batches, variants
    assert told["check"]["wrong"] == []
    kept = json.loads((tmp_path / fingerprint()["key"] / "gpu-check.json").read_text())
    assert kept["wrong"] == []
    found = recorded(tmp_path)
    assert {one.primitive for one in found} == {"sum_tree", "sum_tree_again", "gpu", "gpu_again"}
    timed = [one for one in found if one.median_seconds is not None]
    assert {one.facts["device"] for one in timed} == {"cuda:0"}
    assert {one.op for one in timed} == {"draw", "update", "sample", "upload", "download"}
    skipped = {one.contestant: one.reason for one in found if one.status == "skipped"}
    assert set(skipped) == set(tree_names("cuda")) == {"torch_cumsum", "torchrl_cuda"}
    assert all(reason.startswith(name) for name, reason in skipped.items())
    assert not set(tree_names("cuda")) & set(tree_names())
    with monkeypatch.context() as patches:
        patches.setattr(gpu, "prepare", lambda *case: pytest.fail("checked again"))
        assert run(tmp_path, "--stage", "check") == 0
    capsys.readouterr()
    assert run(tmp_path, "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert set(again["measured_by_status"]) == {"skipped"}
    assert again["found_done"] == len([one for one in timed if not one.primitive.endswith("again")])
    assert recorded(tmp_path) == found


def test_out_of_time_it_keeps_what_it_has_and_goes_on(small, tmp_path, capsys):
    assert run(tmp_path, "--stage", "transfers", "--minutes", "0") == 0
    assert "1 of 4 cells measured" in capsys.readouterr().out
    assert [one.primitive for one in recorded(tmp_path)] == ["sum_tree", "sum_tree_again"]
    assert run(tmp_path, "--stage", "transfers", "--json") == 0
    assert json.loads(capsys.readouterr().out)["found_done"] == 1
    assert len({one.cell for one in recorded(tmp_path)}) == 4 + 4


def test_a_wrong_tree_is_not_timed(small, tmp_path, capsys, monkeypatch):
    text = program.kernel_text()
    assert "call.found[i] = leaf;" in text
    monkeypatch.setattr(program, "kernel_text", lambda: text.replace("call.found[i] = leaf;", "call.found[i] = 0;"))
    with pytest.raises(SystemExit, match="1"):
        run(tmp_path)
    assert "of 18 cases are wrong, the first:" in capsys.readouterr().err
    assert not (tmp_path / fingerprint()["key"] / "gpu.jsonl").exists()


def test_a_device_that_has_died_leaves_no_records(small, tmp_path, capsys, monkeypatch):
    def dead(*anything):
        raise fake_cupy.CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

    monkeypatch.setattr(sys.modules["cupy"].cuda.driver, "launchKernel", dead)
    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "deviceSynchronize", dead)
    for stage in ("check", "trees", "rivals"):
        assert run(tmp_path, "--stage", stage) == 2
        assert "the device no longer answers (cudaErrorIllegalAddress" in capsys.readouterr().err
    files = list(tmp_path.rglob("*.json*"))
    assert all(file.read_text() == "" for file in files)


def test_events_enclose_every_call_of_a_sample_inputs_rotate(with_cupy, monkeypatch):
    with_cupy()
    now, turns = [0.0], []
    monkeypatch.setattr(fake_cupy, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def call(turn):
        turns.append(turn)
        now[0] += 0.001

    clock = gpu.EventClock(call, 0.005)
    assert clock.calls_per_sample == 8
    first = clock._turn
    turns.clear()
    assert [clock.sample() for _ in range(3)] == pytest.approx([0.001] * 3)
    assert turns == list(range(first, first + 24))


def test_a_graph_replays_what_was_captured(with_cupy):
    with_cupy()
    prepared = prepare(Case("cupy", "update", 300, 8, options={"validate": False}))
    turns = []
    clock = gpu.GraphClock(lambda turn: (turns.append(turn), prepared.call(turn)), 64, least_sample_seconds=1e-4)
    before = len(turns)
    assert before == 2 * 64  # once to make room, once captured
    prepared.tree.update(np.arange(300), 0.0)
    assert clock.sample() > 0
    assert len(turns) == before
    assert prepared.tree.total() > 0  # the replay wrote what the captured calls would have
    assert prepared.tree.check() == 0.0


def test_a_tree_is_given_tensors_where_they_are_asked_for(with_cupy):
    torch = pytest.importorskip("torch")
    tree = gpu.make("cupy", 300, emulate=True, **gpu.TENSORS)
    tree.update(np.arange(300), 1.0)
    indices, _ = tree.sample(tree.place(np.array([0.5])))
    assert isinstance(indices, torch.Tensor) and indices.tolist() == [150]
    assert tree.capacity == 300
    with_cupy()
    with pytest.raises(RuntimeError, match="a torch that sees the CUDA device"):
        gpu.make("cupy", 300, **gpu.TENSORS)
