"""Questions about serial loops: drawn by a seed, measured and resumed, and predicted from what was there before."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as cli
from benchmarks.profile import questions
from benchmarks.profile.cells import Cell, identity
from dse.records import Measurement, RecordError, read_file, read_folder
from dse.solver import prediction
from impls.training import load
from tests.profiled import write_workload
from tests.test_profile import NEEDED

BEFORE, ASKED, AFTER = ("2026-11-21T10:00:00+00:00", "2026-11-21T11:00:00+00:00", "2026-11-21T12:00:00+00:00")
ACTOR, INSERTION, COLD = 5e-5, 2e-5, 2e-4


def learner(batch):
    return 5e-4 + 2e-6 * batch


def tree(batch):
    return 1e-6 + 1e-8 * batch


def gather(batch):
    return 5e-8 * batch


def loop(batch, interval, size):
    """A loop that is exactly what the prediction takes it to be."""
    return COLD + interval * (ACTOR + INSERTION / size) + learner(batch) + 2 * tree(batch) + gather(batch)


def record(workload, primitive, contestant, op, seconds, batch=1, utc=BEFORE, **options):
    return Measurement(
        source="measured",
        status="ok",
        primitive=primitive,
        contestant=contestant,
        op=op,
        capacity=workload.replay.capacity,
        batch=batch,
        options=identity(workload) | options,
        median_seconds=seconds,
        low_seconds=0.99 * seconds,
        high_seconds=1.01 * seconds,
        samples_seconds=(seconds,) * 11,
        machine={"key": "made-up"},
        utc=utc,
        command="made up",
    )


def world(workload):
    """Records of the workload as it is."""
    own, size = workload.learner, workload.actors.local_storage
    found = [
        record(workload, "training", "actor", "step", ACTOR),
        record(workload, "training", "storage", "gather", gather(own.batch), own.batch),
        record(workload, "serial_step", "loop", "step", loop(own.batch, own.update_interval, size)),
        record(workload, "serial_step", "buffer", "insert", INSERTION, size),
    ]
    for batch in sorted({own.batch, *(2**power for power in range(3, 12))}):
        found.append(record(workload, "training", "learner", "step", learner(batch), batch))
        found += [record(workload, "training", "numba", op, tree(batch), batch) for op in ("draw", "update")]
    return found


def question(workload, batch, interval, seconds, **more):
    asked = dataclasses.replace(
        workload, learner=dataclasses.replace(workload.learner, batch=batch, update_interval=interval)
    )
    return record(asked, "loop_question", "loop", "step", seconds, batch, utc=more.get("utc", ASKED), seed=1)


@pytest.mark.parametrize("name", ["cartpole_dqn", "hopper_ddpg"])
def test_questions_are_the_seeds_alone_within_their_ranges_and_log_uniform(name):
    workload = load(name)
    drawn = questions.questions(workload, 400, seed=7)
    assert drawn == questions.questions(workload, 400, seed=7)
    assert drawn[:4] == questions.questions(workload, 3, seed=7)
    assert drawn != questions.questions(workload, 400, seed=8)
    assert drawn[0] == workload
    batches = np.array([one.learner.batch for one in drawn[1:]])
    intervals = np.array([one.learner.update_interval for one in drawn[1:]])
    assert (batches.min(), batches.max()) >= (32, 33)
    assert batches.max() <= 1024
    assert set(intervals) == set(range(1, 17))
    assert np.median(batches) == pytest.approx(np.sqrt(32 * 1024), rel=0.2)
    for one in drawn[1:]:
        learner = dataclasses.replace(one.learner, batch=0, update_interval=0)
        own = dataclasses.replace(workload.learner, batch=0, update_interval=0)
        assert dataclasses.replace(one, learner=learner) == dataclasses.replace(workload, learner=own)


def test_questions_of_two_workloads_are_others():
    shapes = [
        [(one.learner.batch, one.learner.update_interval) for one in questions.questions(load(name), 5)[1:]]
        for name in questions.WORKLOADS
    ]
    assert shapes[0] != shapes[1]


@NEEDED
def test_every_question_is_a_record_and_a_second_run_measures_nothing(tmp_path, capsys):
    where = str(write_workload(tmp_path))
    words = ["loop-questions", "--workloads", where, "--count", "2", "--sample", "0.002", "--budget", "0.02"]
    words += ["--results", str(tmp_path), "--json"]
    assert cli.main(words) == 0
    first = json.loads(capsys.readouterr().out)
    (path,) = tmp_path.glob("*/loop-questions.jsonl")
    found = read_file(path)
    kinds = [(one.primitive, one.contestant, one.op) for one in found]
    assert kinds[0] == ("serial_step", "buffer", "insert")
    assert kinds[1:] == 3 * [("loop_question", "loop", "step")] + [("loop_question_again", "loop", "step")]
    assert first["cells"] == 3
    assert first["aa_pairs"] == 1
    expected = questions.questions(load(tmp_path / "tiny.toml"), 2)
    shapes = [(one.learner.batch, one.learner.update_interval) for one in expected]
    assert [(one.batch, one.options["update_interval"]) for one in found[1:4]] == shapes
    assert all(len(one.samples_seconds) >= 11 and len(one.machine["affinity"]) <= 1 for one in found)
    assert cli.main(words) == 0
    second = json.loads(capsys.readouterr().out)
    assert (second["found_done"], second["measured_by_status"]) == (3, {})
    assert read_file(path) == found


def test_a_faulty_workload_is_one_sentence(tmp_path, capsys):
    assert cli.main(["loop-questions", "--workloads", "nothing_of_that_name", "--results", str(tmp_path)]) == 2
    assert "no workload 'nothing_of_that_name'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["cartpole_dqn", "hopper_ddpg"])
@pytest.mark.parametrize(("batch", "interval"), [(64, 1), (64, 7), (256, 1), (512, 16), (32, 3)])
def test_a_loop_that_is_the_sum_of_its_parts_is_predicted_where_parts_were_measured(name, batch, interval):
    workload = load(name)
    truth = loop(batch, interval, workload.actors.local_storage)
    (answered,) = prediction.answers([*world(workload), question(workload, batch, interval, truth)], workload)
    assert answered.predicted.seconds == pytest.approx(truth, rel=1e-9)
    assert answered.error == pytest.approx(0, abs=1e-9)
    assert answered.predicted.low < truth < answered.predicted.high
    assert answered.is_inside


def test_between_measured_batches_the_error_is_that_of_the_interpolation():
    workload = load("cartpole_dqn")
    truth = loop(355, 5, 1)
    (answered,) = prediction.answers([*world(workload), question(workload, 355, 5, truth)], workload)
    assert 0 < abs(answered.error) < 0.03
    assert answered.is_inside


def test_the_sign_of_an_error_and_the_median_without_the_control():
    workload = load("cartpole_dqn")
    asked = [(64, 1, 2.0), (64, 2, 1.25), (64, 3, 1.1), (64, 4, 0.8)]
    found = [question(workload, batch, u, factor * loop(batch, u, 1)) for batch, u, factor in asked]
    answered = prediction.answers([*world(workload), *found], workload)
    assert [one.is_control for one in answered] == [True, False, False, False]
    assert [one.error for one in answered] == pytest.approx([1.0, 0.25, 0.1, -0.2])
    assert prediction.median_error(answered) == pytest.approx(0.2)
    assert not answered[0].is_inside


def test_the_terms_add_up_and_a_wider_number_makes_a_wider_interval():
    workload = load("cartpole_dqn")
    found = world(workload)
    known = prediction.Loop.of(found, workload).predict(256, 4)
    assert sum(term.times * term.number.seconds for term in known.terms) == pytest.approx(known.seconds)
    wide = [
        dataclasses.replace(one, low_seconds=0.5 * one.seconds, high_seconds=2 * one.seconds)
        if (one.contestant, one.op) == ("actor", "step")
        else one
        for one in found
    ]
    wider = prediction.Loop.of(wide, workload).predict(256, 4)
    assert wider.seconds == known.seconds
    assert wider.high - wider.low > 1.5 * (known.high - known.low)


def test_only_records_from_before_the_questions_count():
    workload = load("cartpole_dqn")
    asked = question(workload, 128, 2, 1e-3)
    late = [dataclasses.replace(one, utc=AFTER) for one in world(workload)]
    with pytest.raises(RecordError, match="from before the questions; measure it, then them"):
        prediction.answers([*late, asked], workload)
    answered, faults = prediction.every_answer([*late, asked])
    assert answered == []
    assert faults[0].startswith("cartpole_dqn: no loop step")


@pytest.mark.parametrize("lost", ["loop", "buffer", "actor", "learner", "numba", "storage"])
def test_what_is_missing_is_named_with_the_command_that_measures_it(lost):
    workload = load("cartpole_dqn")
    kept = [one for one in world(workload) if one.contestant != lost]
    with pytest.raises(RecordError, match=f"no {lost} .*python -m benchmarks (share|profile|loop-questions)"):
        prediction.answers([*kept, question(workload, 128, 2, 1e-3)], workload)


def test_without_questions_nothing_is_predicted():
    workload = load("cartpole_dqn")
    assert prediction.answers(world(workload), workload) == []
    assert prediction.every_answer(world(workload)) == ([], [])


def test_the_questions_that_are_kept_here_can_all_be_answered():
    found = read_folder(Path(__file__).parents[1] / "results", "d7dae63b89")
    answered, faults = prediction.every_answer(found)
    assert faults == []
    assert sum(not one.is_control for one in answered) >= 6
    assert {one.workload for one in answered} == set(questions.WORKLOADS)
    assert all(not one.measured.dirty for one in answered)


def test_a_cell_tells_the_questions_shape():
    run = questions.Run(questions.Stamp(None, None, "", "x", {"gpus": []}), 0.1, 1.0, 5)
    asked = questions.questions(load("hopper_ddpg"), 1, 5)[1]
    cell = run.cell(asked)
    assert isinstance(cell, Cell)
    assert (cell.batch, cell.options["update_interval"], cell.options["seed"]) == (
        asked.learner.batch,
        asked.learner.update_interval,
        5,
    )
    insertion = run.cell(load("hopper_ddpg"), "buffer", "insert")
    assert (insertion.batch, insertion.capacity, insertion.fanout) == (64, 1_000_000, 2)
