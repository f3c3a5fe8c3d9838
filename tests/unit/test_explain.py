"""Answers about mappings add up, engine by engine, and an explanation names the engine that makes the difference."""

import json

import pytest

from dse.answers.mapping_answer import mapping_answer
from dse.mapping.answer import MappingAnswer
from dse.mapping.explain import WATTS, Explanation
from dse.mapping.question import answer_question, ask, explain_choice
from dse.solver.law import LOOP_BOUND, outcome
from tests.matrix import slow

HERE = "results/d7dae63b89/platform.toml"
QUESTIONS = [("u200", "hopper_ddpg"), ("h200", "pong_dqn"), ("edge", "cartpole_dqn"), (HERE, "hopper_sac")]


@pytest.mark.parametrize("platform, workload", QUESTIONS)
def test_parts_and_transfers_of_an_engine_are_all_that_keeps_it_busy(platform, workload):
    """S10: nothing that is charged is hidden, and all of it is the busy time that the rate follows from."""
    given = answer_question(ask(platform, workload, fix={"arrangement": "apart"} if platform == "u200" else {}))
    where, busy = given.chosen.configuration.where, dict[str, float]()
    charged = [(row.label["by"], row.more["seconds"]) for row in given.transfers]
    for part in given.parts:
        charged += [(engine, part.more["charged_seconds"]) for _, engine in where[part.label["part"]]]
    for engine, seconds in charged:
        busy[engine] = busy.get(engine, 0.0) + seconds
    assert busy == pytest.approx(given.chosen.outcome.busy)
    loop = sum(part.more["charged_seconds"] for part in given.parts if part.label["part"] != "actors")
    loop += sum(one.more["seconds"] for one in given.transfers if one.more["waits"])
    assert 1 / given.hz == pytest.approx(max(*busy.values(), loop / (given.choice.more["depth"] + 1)))
    assert sum(one.more["bytes"] for one in given.transfers) == pytest.approx(given.chosen.outcome.bytes_moved)
    assert given.choice.more["devices"] == given.chosen.outcome.devices
    plain = json.loads(json.dumps(mapping_answer(given).to_dict()))
    simulated = [row for row in plain["rows"] if "rate_hz" in row]
    assert [row["simulated_with_deviation"] for row in simulated] == [0.0, 1.0]
    assert all(row["low_hz"] <= row["rate_hz"] <= row["high_hz"] for row in simulated)
    assert [row["bytes"] for row in plain["rows"] if "sent" in row] == [one.more["bytes"] for one in given.transfers]


def test_a_sent_batch_is_shown():
    given = answer_question(ask("h200", "pong_dqn", fix={"storage": "cpu", "learner": "gpu"}))
    (batch,) = (one for one in given.transfers if one.label["sent"] == "storage to learner")
    assert batch.more["waits"]
    assert batch.more["bytes"] > 1e6  # 1.1 MB, which no part's own time has in it


ASKED = [
    ("h200", "hopper_ddpg", "ratio", {"learner": "cpu"}),
    slow("h200", "hopper_ddpg", "training", {"storage": "cpu", "learner": "gpu"}),
    slow("u200", "hopper_ddpg", "training", {"sampling": "cpu"}),
    ("u200", "hopper_ddpg", "per_watt", {"learner": "gpu"}),
    slow("edge", "cartpole_dqn", "ratio", {"learner": "fpga"}),
    (HERE, "cartpole_dqn", "ratio", {"arrangement": "apart"}),
    slow(HERE, "hopper_sac", "training", {"fanout": 2}),
]


@pytest.mark.parametrize("platform, workload, objective, described", ASKED)
def test_a_cause_is_the_engine_that_bounds_the_asked_one(platform, workload, objective, described):
    """S5: engine by engine, of the best that is as described, which no epsilon has been spent on."""
    given = explain_choice(ask(platform, workload, objective), described)
    assert isinstance(given, Explanation)
    assert given.asked.question["epsilon"] == 0.0
    assert given.asked.made.best is None
    if given.loss <= given.best.question["epsilon"]:
        assert given.verdict.startswith("ties")
        assert given.cause == ""
        return
    again = outcome(given.asked.chosen.problem, given.asked.chosen.configuration)
    asked = {engine: pair[0] for engine, pair in given.engines.items() if pair[0]}
    if given.cause == WATTS:
        assert given.asked.watts > given.best.watts
        return
    assert (
        asked[given.cause]
        == max(asked.values())
        == pytest.approx(1 / (again.training_hz if objective == "training" else again.hz))
    )
    why = {note.kind: note.values for note in given.notes}
    (busy,) = (why[kind] for kind in ("steps_in_flight", "busy_longer", "busy_alone") if kind in why)
    assert (busy["engine"], busy["seconds"]) == (given.cause, asked[given.cause])
    if told := why.get("part_takes"):
        (part,) = (part for part in given.asked.parts if part.label["part"] == told["part"])
        assert (told["time"]["value"], told["device"], told["choice"]) == (
            part.number["value"],
            part.label["device"],
            part.more["implementation"],
        )
        assert (
            given.cause in {engine for _, engine in given.asked.chosen.configuration.where[told["part"]]}
            or given.cause == LOOP_BOUND
        )
    busy = {engine: pair[1] for engine, pair in given.engines.items()}
    assert busy[given.cause] < asked[given.cause]  # else the best would be no faster


def test_what_is_equal_on_both_sides_is_no_cause_and_no_excuse():
    """S5: however long the learner takes, it takes that long on both sides; what differs is the tree."""
    question = ask(HERE, "hopper_ddpg", fix={"arrangement": "serial", "learner_threads": 1})
    given = explain_choice(question, {"contestant": "numpy"})
    assert isinstance(given, Explanation)
    assert given.best.low <= given.asked.value <= given.best.high
    assert given.loss > given.best.question["epsilon"]
    assert given.chance < 0.01
    why = {note.kind: note.values for note in given.notes}
    assert "may_be_no_worse" not in why
    assert given.cause == "cpu.main"
    assert why["part_takes"]["part"] in ("updating", "sampling")


def test_an_answer_to_an_exact_question_has_no_doubt():
    exact = answer_question(ask("h200", "hopper_ddpg", epsilon=0.0))
    assert exact.made.best is None
    assert isinstance(exact, MappingAnswer)
    free = answer_question(ask("h200", "hopper_ddpg"))
    assert free.value <= exact.value
    assert free.made.best is None or free.made.best.value == pytest.approx(exact.value)
