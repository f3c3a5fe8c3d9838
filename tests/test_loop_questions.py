"""Questions about serial loops: random by a seed, measured and resumed, and predicted from what was there before."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as cli
from benchmarks.profile import questions
from benchmarks.profile.cells import Cell, options_of
from dse import platforms, recommend_mapping
from dse.platforms.writing import to_toml
from dse.records import Measurement, RecordError, Writer, read_file, read_folder
from dse.times import profile
from dse.validation import loops
from impls.training import load
from reports.sections import validation
from tests.profiled import write_workload
from tests.test_profile import NEEDED

BEFORE, ASKED, AFTER = ("2026-11-21T10:00:00+00:00", "2026-11-21T11:00:00+00:00", "2026-11-21T12:00:00+00:00")
RESULTS, KEY = Path(__file__).parents[1] / "results", "d7dae63b89"
ACTOR, INSERTION, WRITE = 5e-5, 2e-5, 1e-6


def learner(batch):
    return 5e-4 + 2e-6 * batch


def tree(batch):
    return 1e-6 + 1e-8 * batch


def gather(batch):
    return 5e-8 * batch


def loop(batch, interval, size):
    """A loop that is the sum of its parts."""
    return interval * (ACTOR + INSERTION / size) + learner(batch) + 2 * tree(batch) + gather(batch)


def record(workload, primitive, contestant, op, seconds, batch=1, utc=BEFORE, **options):
    return Measurement(
        source="measured",
        status="ok",
        primitive=primitive,
        contestant=contestant,
        op=op,
        capacity=workload.replay.capacity,
        batch=batch,
        fanout=workload.replay.fanout,
        options=options_of(workload) | options,
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
        record(workload, "training", "storage", "write", WRITE, size),
        record(workload, "serial_step", "loop", "step", loop(own.batch, own.update_interval, size)),
        record(workload, "serial_step", "actor", "step", ACTOR),
        record(workload, "serial_step", "numba", "tree", 2 * tree(own.batch), own.batch),
        record(workload, "serial_step", "buffer", "insert", INSERTION, size),
    ]
    for batch in sorted({own.batch, size, *(2**power for power in range(3, 12))}):
        found.append(record(workload, "training", "learner", "step", learner(batch), batch))
        found += [record(workload, "training", "numba", op, tree(batch), batch) for op in ("draw", "update")]
    return found


def machine():
    """A platform that the made-up records are of."""
    return dataclasses.replace(platforms.load(RESULTS / KEY / "platform.toml"), machine_key="made-up")


def answers(found, workload):
    return loops.answers(found, machine(), workload)


def folder(results, found):
    """The made-up machine's results: its platform and its records."""
    with Writer(results / "made-up" / "all.jsonl") as writer:
        for one in found:
            writer.append(one)
    (results / "made-up" / "platform.toml").write_text(to_toml(machine()))
    return results


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
@pytest.mark.parametrize(("batch", "interval"), [(64, 1), (64, 7), (256, 1), (512, 16), (32, 3), (355, 5)])
def test_a_loop_that_is_the_sum_of_its_parts_is_predicted_as_their_sum(name, batch, interval):
    workload = load(name)
    truth = loop(batch, interval, workload.actors.local_storage)
    (answered,) = answers([*world(workload), question(workload, batch, interval, truth)], workload)
    assert abs(answered.error) < 0.05
    assert answered.is_inside
    assert answered.predicted.low < 1 / truth < answered.predicted.high


@pytest.mark.parametrize(("name", "batch", "interval"), [("cartpole_dqn", 385, 16), ("hopper_ddpg", 42, 9)])
def test_the_prediction_is_what_recommend_mapping_answers(tmp_path, name, batch, interval):
    workload = load(name)
    asked = question(workload, batch, interval, 1e-3)
    results = folder(tmp_path, [*world(workload), asked])
    (answered,) = answers([*world(workload), asked], workload)
    told = recommend_mapping(
        results / "made-up" / "platform.toml",
        name,
        fix={**loops.as_run(workload), "batch": batch, "update_interval": interval},
        results=results,
    )
    assert answered.predicted == dataclasses.replace(told, machine="", results="")  # where records lie is no matter
    assert answered.error == told.hz * 1e-3 - 1
    assert (told.arrangement, told.cores[0]) == ("serial", 1)
    assert told.parts[3].details == {"threads": 1}
    assert told.parts[4].details == {"contestant": "numba", "fanout": workload.replay.fanout, "threads": 1}


def test_errors_with_their_signs_beside_the_control_and_their_medians_without_it():
    workload = load("cartpole_dqn")
    shapes = [(64, 1), (64, 2), (64, 3), (64, 4)]
    first = answers([*world(workload), *(question(workload, *shape, 1.0) for shape in shapes)], workload)
    hz = [one.predicted.hz for one in first]
    slower = [2.0, 1.25, 1.1, 0.8]
    found = [question(workload, *shape, by / rate) for shape, by, rate in zip(shapes, slower, hz, strict=True)]
    answered = answers([*world(workload), *reversed(found)], workload)
    assert [one.is_control for one in answered] == [True, False, False, False]
    assert [one.error for one in answered] == pytest.approx([1.0, 0.25, 0.1, -0.2])
    assert [one.beside_control for one in answered] == pytest.approx([0.0, -0.375, -0.45, -0.6])
    assert loops.median_errors(answered) == pytest.approx((0.2, 0.45))
    assert not answered[0].is_inside
    alone = answers([*world(workload), *found[1:]], workload)
    assert [one.beside_control for one in alone] == [None, None, None]
    assert loops.median_errors(alone) == (pytest.approx(0.2), None)


def test_only_records_from_before_the_questions_count(tmp_path):
    workload = load("cartpole_dqn")
    asked = question(workload, 128, 2, 1e-3)
    late = [dataclasses.replace(one, utc=AFTER, median_seconds=1.0) for one in world(workload)]
    early = answers([*world(workload), asked], workload)
    assert answers([*world(workload), *late, asked], workload) == early
    with pytest.raises(RecordError, match="nothing from before the questions tells a profile; measure it, then them"):
        answers([*late, asked], workload)
    results = folder(tmp_path, [])
    answered, faults = loops.every_answer([*late, asked], results)
    assert answered == []
    assert len(faults) == 1
    assert faults[0].startswith("cartpole_dqn: nothing from before")


@pytest.mark.parametrize(
    ("primitive", "contestant", "told"),
    [
        ("training", "actor", "tells the part 'actors'; .* benchmarks profile"),
        ("training", "numba", "tells the part 'sampling'; .* benchmarks profile"),
        ("training", "storage", "tells the part 'storage'; .* benchmarks profile"),
        ("training", "learner", "tells the part 'learner'; .* benchmarks profile"),
        ("serial_step", "loop", "tells a whole serial loop; .* benchmarks share"),
        ("serial_step", "numba", "tells a whole serial loop; .* benchmarks share"),
    ],
)
def test_what_is_missing_is_named_with_the_command_that_measures_it(primitive, contestant, told):
    workload = load("cartpole_dqn")
    kept = [one for one in world(workload) if (one.primitive, one.contestant) != (primitive, contestant)]
    with pytest.raises(RecordError, match=told):
        answers([*kept, question(workload, 128, 2, 1e-3)], workload)


def test_without_questions_nothing_is_predicted(tmp_path):
    workload = load("cartpole_dqn")
    assert answers(world(workload), workload) == []
    assert loops.every_answer(world(workload), tmp_path) == ([], [])


def test_a_machine_that_was_not_probed_is_one_sentence(tmp_path):
    workload = load("cartpole_dqn")
    found = [*world(workload), question(workload, 128, 2, 1e-3)]
    answered, faults = loops.every_answer(found, tmp_path)
    assert answered == []
    assert len(faults) == 1
    assert faults[0].startswith("cartpole_dqn: machine made-up was not probed")
    assert "Left out: cartpole_dqn: machine made-up" in validation.loops(found, tmp_path)


def test_the_questions_that_are_kept_here_can_all_be_answered():
    found = read_folder(RESULTS, KEY, skip=profile.SKIPPED)
    answered, faults = loops.every_answer(found, RESULTS)
    assert faults == []
    assert sum(not one.is_control for one in answered) >= 6
    assert {one.predicted.workload for one in answered} == set(questions.WORKLOADS)
    assert all(not one.measured.dirty for one in answered)
    assert all(one.beside_control is not None for one in answered)


@pytest.mark.parametrize(("by", "met"), [(1.1, "was met"), (1.3, "was not met")])
def test_the_page_says_both_medians_and_whether_the_target_was_met(tmp_path, by, met):
    workload = load("cartpole_dqn")
    shapes = [(64, 1), (128, 2)]
    first = answers([*world(workload), *(question(workload, *shape, 1.0) for shape in shapes)], workload)
    found = [question(workload, *shape, by / one.predicted.hz) for shape, one in zip(shapes, first, strict=True)]
    page = validation.loops([*world(workload), *found], folder(tmp_path, []))
    assert f"The median error is {by - 1:.1%}, and 0.0% with the drift of the control taken out" in page
    assert f"{met}." in page
    assert f"the control took {by:.2f} times as long" in page


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
