"""Questions about serial loops: predicted from what is there, measured and resumed, and compared."""

import dataclasses
import json

import pytest

from benchmarks import __main__ as cli
from benchmarks.profile import questions
from benchmarks.profile.cells import options_of
from dse import platforms, recommend_mapping
from dse.platforms.writing import to_toml
from dse.questions import Asked, numbered
from dse.records import Measurement, RecordError, Writer, read_file
from dse.validation import asking, figures, loops, predictor, runs
from impls.training import load
from reports.sections import validation
from tests.committed import RESULTS
from tests.profiled import write_workload
from tests.system.test_profile import NEEDED

BEFORE, COMMIT = "2026-11-21T10:00:00+00:00", "c0ffee00" * 5
KEY = "d7dae63b89"
ACTOR, WRITE = 5e-5, 1e-6


def learner(batch):
    return 5e-4 + 2e-6 * batch


def tree(batch):
    return 1e-6 + 1e-8 * batch


def gather(batch):
    return 5e-8 * batch


def loop(batch, interval, size):
    """A loop that is the sum of its parts."""
    inserted = (tree(size) + WRITE) / size
    return interval * (ACTOR + inserted) + learner(batch) + 2 * tree(batch) + gather(batch)


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
        *(record(workload, "training", "weights", op, 1e-9, via="shared") for op in ("publish", "fetch")),
        record(workload, "training", "loop", "step", loop(own.batch, own.update_interval, size), own.batch),
    ]
    for batch in sorted({own.batch, size, *(2**power for power in range(3, 12))}):
        found.append(record(workload, "training", "learner", "step", learner(batch), batch))
        found += [record(workload, "training", "numba", op, tree(batch), batch) for op in ("draw", "update")]
    return found


def machine():
    """A platform that the made-up records are of."""
    return dataclasses.replace(platforms.load(RESULTS / KEY / "platform.toml"), machine_key="made-up")


def predict(found, workload, batch, interval, threads=1):
    return loops.predicted(found, machine(), loops.shaped(workload, batch, interval), threads)


def folder(results, found):
    """The made-up machine's results: its platform and its records."""
    with Writer(results / "made-up" / "all.jsonl") as writer:
        for one in found:
            writer.append(one)
    (results / "made-up" / "platform.toml").write_text(to_toml(machine()))
    return results


def file_of(path, asked, key="made-up", found=None, **changes):
    """A file of these questions, answered from records of the made-up machine, else with made-up rates."""
    rate = {"told": 100.0, "low": 80.0, "high": 125.0, "basis": "measured"}
    rows = [
        asking.answer_loop(found, machine(), question) if found else dataclasses.asdict(question) | rate
        for question in asked
    ]
    head = {"commit": COMMIT, "number": 1, "seed": asking.seed_of(COMMIT), "seed_from": "commit", "utc": BEFORE}
    head |= {"machine": key, "predictors": {side: predictor.present(side) for side in ("trees", "loops")}}
    Asked(path, head | changes, numbered("loops", [[row] for row in rows])).create()
    return path


def asked_of(workload, shapes, threads=1):
    """Questions, the first of which is the control."""
    return [asking.LoopQuestion(workload, threads, *shape, at == 0) for at, shape in enumerate(shapes)]


def measured(path, seconds, utc=BEFORE):
    """Fill a table's loops: seconds of a gradient step, by question."""
    made = Asked.read(path)
    for row, time in zip(made.rows, seconds, strict=False):
        row.update({"measured": 1 / time, "status": "ok", "utc": utc, "commit": "abc"})
    made.save()


# Predicting


@pytest.mark.parametrize("name", ["cartpole_dqn", "hopper_ddpg"])
@pytest.mark.parametrize(("batch", "interval"), [(64, 1), (64, 7), (256, 1), (512, 16), (32, 3), (355, 5)])
def test_a_loop_that_is_the_sum_of_its_parts_is_predicted_as_their_sum(name, batch, interval):
    workload = load(name)
    truth = loop(batch, interval, workload.actors.local_storage)
    rate = predict(world(workload), workload, batch, interval)
    assert abs(rate.hz * truth - 1) < 0.05
    assert rate.low < 1 / truth < rate.high


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("name", "batch", "interval"), [("cartpole_dqn", 385, 16), ("hopper_ddpg", 42, 9)])
def test_the_prediction_is_what_recommend_mapping_answers(tmp_path, name, batch, interval, threads):
    workload = load(name)
    found = [*world(workload), *(dataclasses.replace(one, threads=2) for one in world(workload) if one.op == "step")]
    results = folder(tmp_path, found)
    rate = predict(found, workload, batch, interval, threads)
    told = recommend_mapping(
        results / "made-up" / "platform.toml",
        name,
        fix={**loops.as_run(workload, threads), "batch": batch, "update_interval": interval},
        results=results,
    )
    assert rate == dataclasses.replace(told, machine="", results="")  # where records lie is no matter
    assert (told.arrangement, told.cores[0]) == ("serial", threads)
    assert told.parts[3].details == {"threads": threads}
    assert told.parts[4].details == {"contestant": "numba", "fanout": workload.replay.fanout, "threads": 1}
    question = asking.LoopQuestion(name, threads, batch, interval)
    plain = asking.answer_loop(found, machine(), question)
    assert (plain["told"], plain["low"], plain["high"]) == (told.hz, told.low, told.high)
    assert plain["basis"] == "extrapolated"  # the gather was timed at the workload's own batch alone


@pytest.mark.parametrize(
    ("primitive", "contestant", "told"),
    [
        ("training", "actor", "tells the part 'actors'; .* benchmarks profile"),
        ("training", "numba", "tells the part 'sampling'; .* benchmarks profile"),
        ("training", "storage", "tells the part 'storage'; .* benchmarks profile"),
        ("training", "learner", "tells the part 'learner'; .* benchmarks profile"),
        ("training", "loop", "tells a whole serial loop; .* benchmarks profile"),
    ],
)
def test_what_is_missing_is_named_with_the_command_that_measures_it(primitive, contestant, told):
    workload = load("cartpole_dqn")
    kept = [one for one in world(workload) if (one.primitive, one.contestant) != (primitive, contestant)]
    with pytest.raises(RecordError, match=told):
        predict(kept, workload, 128, 2)
    answered = asking.answer_loop(kept, machine(), asking.LoopQuestion("cartpole_dqn", 1, 128, 2))
    assert "told" not in answered
    assert contestant in answered["reason"] or "tells" in answered["reason"]


def test_without_a_profile_or_a_platform_there_is_a_reason():
    question = asking.LoopQuestion("cartpole_dqn", 1, 128, 2)
    nothing = [one for one in world(load("cartpole_dqn")) if one.primitive != "training"]
    assert (
        "no record tells a profile; measure it, then ask" in asking.answer_loop(nothing, machine(), question)["reason"]
    )
    assert asking.answer_loop(nothing, None, question)["reason"] == asking.UNPROBED


# Comparing


def test_errors_and_coverage_are_those_computed_by_hand_and_controls_do_not_count(tmp_path):
    shapes = [(64, 1), (64, 2), (64, 3), (64, 4)]
    path = file_of(tmp_path / "made-up" / "questions-c0ffee00.json", asked_of("cartpole_dqn", shapes))
    measured(path, [0.02, 0.0125, 0.011, 0.005])  # steps a second: 50, 80, 90.9, 200, where 100 in [80, 125] was told
    checks = runs.read(path).loops
    assert [check.error for check in checks] == pytest.approx([1.0, 0.25, 0.1, -0.5])
    assert [check.is_inside for check in checks] == [False, True, True, False]
    found = figures.of_machine(tmp_path, "made-up").loops
    assert (found["questions"], found["controls"]) == (3, 1)
    assert (found["median_error"], found["worst_error"]) == (pytest.approx(0.25), pytest.approx(0.5))
    assert found["inside"] == (2, 3)
    assert found["drift"] == figures.UNKNOWN_DRIFT or "x the time" in found["drift"]
    text = validation.answers(tmp_path, "made-up")
    assert "off by 25.0 % in the median and 50.0 % at worst; 2 of 3 (67 %) measured rates" in text
    assert ">control</td>" in text


def test_threads_tell_two_questions_of_a_shape_apart(tmp_path):
    shapes = [(64, 1), (128, 2)]
    asked = [*asked_of("cartpole_dqn", shapes), *asked_of("cartpole_dqn", shapes, threads=2)]
    path = file_of(tmp_path / "questions-c0ffee00.json", asked)
    measured(path, [0.01, 0.02, 0.03, 0.04])
    rates = {(one.question.threads, one.question.batch): one.measured_hz for one in runs.read(path).loops}
    assert rates == pytest.approx({(1, 64): 100, (1, 128): 50, (2, 64): 100 / 3, (2, 128): 25})


def test_a_loop_that_has_no_time_waits(tmp_path):
    path = file_of(tmp_path / "questions-c0ffee00.json", asked_of("cartpole_dqn", [(64, 1), (128, 2), (32, 4)]))
    measured(path, [0.01, 0.01])
    assert runs.read(path).unmeasured("loops") == 1
    assert figures.headline([runs.read(path)], "made-up").loops["questions"] == 1


# Measuring


def tiny(tmp_path, threads=1):
    """A file of questions of this machine about the tiny workload."""
    where = str(write_workload(tmp_path))
    shapes, key = [(8, 2), (16, 1), (4, 3)], str(platforms.fingerprint()["key"])
    return file_of(tmp_path / key / "questions-c0ffee00.json", asked_of(where, shapes, threads), key)


def words(path, results):
    more = ["--sample", "0.002", "--budget", "0.02", "--results", str(results), "--json"]
    return ["loop-questions", *([str(path)] if path else []), *more]


@NEEDED
@pytest.mark.parametrize("threads", [1, 2])
def test_every_question_is_a_record_and_a_killed_run_goes_on(tmp_path, capsys, threads):
    import torch  # noqa: PLC0415  # heavy

    path, before = tiny(tmp_path, threads), torch.get_num_threads()
    assert cli.main(words(None, tmp_path)) == 0  # the newest file of this machine
    first = json.loads(capsys.readouterr().out)
    assert (first["cells"], first["aa_pairs"]) == (3, 1)
    assert read_file(path.with_suffix(".jsonl")) == []  # where sentinels would be
    found = Asked.read(path).rows
    assert all(row["measured"] > 0 and row["status"] in ("ok", "unstable") for row in found)
    assert torch.get_num_threads() == before

    made = Asked.read(path)
    for row in made.rows[1:]:
        del row["status"]  # killed before they were written
    made.save()
    assert cli.main(words(None, tmp_path)) == 0
    second = json.loads(capsys.readouterr().out)
    assert (second["cells"], second["found_done"], sum(second["measured_by_status"].values())) == (3, 1, 2)
    assert Asked.read(path).rows[0] == found[0]
    assert cli.main(words(path, tmp_path)) == 0
    third = json.loads(capsys.readouterr().out)
    assert (third["found_done"], third["measured_by_status"]) == (3, {})


@NEEDED
def test_a_loop_that_cannot_be_made_is_a_record_with_the_reason(tmp_path, capsys, monkeypatch):
    path = tiny(tmp_path)
    monkeypatch.setattr(questions, "STORAGE_BYTES", 1)
    assert cli.main(words(path, tmp_path)) == 2  # no time at all
    assert json.loads(capsys.readouterr().out)["measured_by_status"] == {"skipped": 3}
    assert all("the buffer takes" in row["failure"] for row in Asked.read(path).rows)
    assert cli.main(words(None, tmp_path)) == 2
    assert "write one with: python -m dse validate --ask" in capsys.readouterr().err


def test_a_faulty_workload_is_one_sentence(tmp_path, capsys):
    key = str(platforms.fingerprint()["key"])
    asked = [asking.LoopQuestion("nothing_of_that_name", 1, 8, 1)]
    path = file_of(tmp_path / key / "questions-c0ffee00.json", asked, key)
    assert cli.main(words(path, tmp_path)) == 2
    assert "no workload 'nothing_of_that_name'" in capsys.readouterr().err
