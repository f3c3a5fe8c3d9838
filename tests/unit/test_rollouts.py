"""Model rollouts in the command replay: what a step asks of both buffers, its cells, and its share of a whole step."""

import sys

import numpy as np
import pytest

from benchmarks.libraries import rows
from benchmarks.topics.replay import command, worker
from benchmarks.topics.replay.cells import COMPILED, IN_PYTHON, STEP_PARTS, TRAINED, Plan
from impls.replay import SegmentedReplay
from impls.training import load
from impls.training.weights import layout_of
from tests.made import make_record
from tests.oracles.naive_replay import Naive

PLAN = Plan(("global",), "global", (IN_PYTHON, "cpprb"), 1_000, 64, 10, 2)


def test_a_step_stores_a_segment_with_its_samples_weights_before_the_priorities_change(monkeypatch):
    done, buffer = [], Naive(64)
    buffer.fill()
    sample, update, insert = buffer.sample, buffer.update, SegmentedReplay.insert

    def stored(model, records, weights):
        done.append(("segment", len(records["reward"]), model.segments, model.room, records["reward"], weights))
        insert(model, records, weights)

    monkeypatch.setattr(SegmentedReplay, "insert", stored)
    monkeypatch.setattr(worker, "MODEL_RECORDS", 40)
    one = [rows.made(np.array([turn])) for turn in range(worker.ROTATING)]
    call = worker.rollouts(buffer, 16, one, [np.linspace(0, 1, 16)] * worker.ROTATING)
    assert [entry[:4] for entry in done] == [("segment", 16, 2, 16)] * 2  # all segments are full before the clock
    done.clear()
    monkeypatch.setattr(buffer, "sample", lambda batch: done.append(("sample", batch, buffer.written)) or sample(batch))
    monkeypatch.setattr(buffer, "update", lambda *given: done.append(("update",)) or update(*given))
    monkeypatch.setattr(buffer, "weights", lambda sampled: np.arange(1.0, 17.0))
    for turn in range(2):
        call(turn)
    assert [entry[0] for entry in done] == ["sample", "segment", "update"] * 2
    assert [entry[1:] for entry in done[::3]] == [(16, 65), (16, 66)]
    assert (done[1][-1] == np.arange(1.0, 17.0)).all()
    assert np.concatenate([rewards for *_, rewards, _ in done[1::3]]).tolist() == list(range(32))


def test_the_rest_of_a_step_is_timed_with_the_same_records_in_one_process():
    rest = [cell for group in PLAN.groups("memr") for cell in group if "workload" in cell.options]
    assert {cell.member for cell in rest} == {(TRAINED, "")}
    assert layout_of(load(TRAINED)).fields == rows.LAYOUT.fields


def record(contestant, op, us, batch=64, **options):
    named = {
        "contestant": contestant,
        "capacity": 1_000,
        "batch": batch,
        "options": options,
        "median_seconds": us / 1e6,
    }
    return make_record(
        primitive="replay_memr", op=op, source="measured", status="ok", samples_seconds=(us / 1e6,) * 3, **named
    )


def test_the_share_is_of_all_parts_and_of_no_step_that_lacks_one():
    rest = {"workload": TRAINED, "rollouts": 64}
    found = [record(COMPILED, "rollouts", 25, strategy="global"), record("cpprb", "rollouts", 100)]
    found += [record(*part, us, **rest) for part, us in zip(STEP_PARTS, (15, 30, 30), strict=True)]
    found += [
        record(COMPILED, "rollouts", 50, 256, strategy="global"),
        record("env", "step", 15, **rest | {"rollouts": 256}),
    ]
    content = command.summarize(found, "global")["memr"]
    assert content["percent"]["global"] == pytest.approx({"64": 25.0})
    assert content["percent"]["cpprb"] == pytest.approx({"64": 400 / 7})
    assert content["us"]["global"] == pytest.approx({"64": 25.0, "256": 50.0})
    text = "\n".join(command.lines({"memr": content}))
    assert "57.1" in text
    assert content["source"] in text


def test_a_step_whose_environment_is_not_here_is_skipped(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.setattr(worker, "pin_to", lambda *_: [0])
    cell = {"part": "memr", "contestant": "env", "op": "step", "batch": 1, "options": {"workload": TRAINED}}
    assert "gymnasium" in worker._Session().prepare(cell, seed=0, sample_seconds=0.001, rows=1)["skipped"]
