"""The section on mappings: answers as tables, the fastest rate by device, and factors of several learners."""

import dataclasses
import itertools
import types

import pandas as pd
import pytest

from dse.answer import Answer, Row
from dse.estimate import Estimate, Evidence
from dse.records import RecordError
from dse.solver.law import EPSILONS
from dse.solver.solve import Infeasible, solve
from impls.training import load
from reports.claims import quoted
from reports.frame import Data
from reports.sections import mapping
from tests.committed import RESULTS

EVIDENCE = Evidence("made up", "modeled")


def answer_for(platform, workload, results, machine=None):
    """Answer a question about any platform but this machine, which was not probed."""
    if platform == "this":
        raise RecordError("not probed")
    rate = Estimate(100.0, 50.0, 200.0, EVIDENCE)
    rows = (Row({"part": "learner", "device": "gpu"}, Estimate(2e-3, 1e-3, 4e-3, EVIDENCE), "s"),)
    choice = Row({"arrangement": "apart", "learner": "gpu"}, rate, "gradient steps/s", says="mapping_choice")
    return Answer({}, choice, rows)


def test_answers_are_tables_in_microseconds(tmp_path):
    data = Data(tmp_path, "made-up", [])
    parts = mapping.tabulate(data, answer_for, "part device")
    assert parts[["platform", "part", "about", "low", "high", "unit"]].values.tolist() == [
        ["u200", "learner", pytest.approx(2000), pytest.approx(1000), pytest.approx(4000), "us"]
    ]
    choices = mapping.tabulate(data, answer_for, "arrangement learner")
    assert choices[["learner", "about", "unit", "source"]].values.tolist() == [
        ["gpu", 100, "gradient steps/s", "modeled"]
    ]


def test_choices_name_the_command_of_each_platform(tmp_path, monkeypatch):
    monkeypatch.setattr(mapping.dse, "recommend_mapping", answer_for, raising=False)
    choices = mapping.list_choices(Data(tmp_path, "made-up", [])).set_index("platform")["u200"]
    assert choices["command"] == "python -m dse recommend --platform u200 --workload hopper_ddpg"
    assert choices["gradient steps/s"] == 100


def test_fastest_rates_are_by_the_learners_device(tmp_path, monkeypatch):
    paces = pd.DataFrame(
        [("w", 32, "G-C", 5.0, 9.0, "F-F"), ("w", 32, "G-F", 7.0, 9.0, "F-F"), ("w", 32, "F-F", 6.0, 9.0, "F-F"),
         ("w", 32, "F-C", 6.5, 9.0, "F-F"), ("w", 32, "C-C", None, 9.0, "F-F")],
        columns=["workload", "batch", "pair", "hz", "limit_hz", "published"],
    )  # fmt: skip
    monkeypatch.setattr(mapping, "_list_paces", lambda results: paces)
    rows = mapping.list_fastest(Data(tmp_path, "made-up", []))
    assert dict(zip(rows["learner"], rows["hz"], strict=True)) == {
        "learner on GPU": 7, "learner on FPGA": 6.5, "published mapping": 6,
    }  # fmt: skip


def test_a_pair_is_rated_with_its_best_storage(monkeypatch):
    problem = types.SimpleNamespace(
        options={"learner": [types.SimpleNamespace(seconds=seconds) for seconds in (0.1, 0.5)]}
    )
    rates = {("G", "C", "C", storage): hz for storage, hz in zip("CGF", (3.0, 5.0, 4.0), strict=True)}
    monkeypatch.setattr(mapping, "list_printed", lambda quotes: {("pong_dqn", 64): {"G-C-G": 1.0, "C-C-C": 2.0}})
    monkeypatch.setattr(mapping, "pose_problem", lambda *asked: problem)
    monkeypatch.setattr(mapping, "rate_mappings", lambda problem: rates)
    rows = mapping._list_paces.__wrapped__(RESULTS).set_index("pair")
    assert rows["hz"].dropna().to_dict() == {"G-C": 5.0}
    assert rows.loc["G-C", ["published", "limit_hz", "storage by Alg. 3"]].to_list() == ["G-C-G", 10.0, "G"]


def test_scaling_is_left_out_of_a_machine_without_a_platform_file(tmp_path):
    assert mapping.list_scaling(Data(tmp_path, "made-up", [])).empty


def test_measured_factors_stand_beside_exact_and_printed_factors(monkeypatch):
    points = [types.SimpleNamespace(learners=2, horizon=horizon, exact=exact, printed=exact / 2)
              for horizon, exact in ((None, 0.9), (5, 0.7))]  # fmt: skip
    monkeypatch.setattr(mapping, "factors", lambda *asked: points)
    monkeypatch.setattr(mapping, "single_seconds", lambda terms: 0.6)
    ran = {(2, None): [0.2, 0.3, 0.6], (2, 5): [1.0]}
    *modeled, measured = mapping._list_factors(types.SimpleNamespace(terms=None, ran=ran))
    assert {row["line"]: row["factor"] for row in modeled} == {
        "gathered gradients": 0.9, "gathered gradients, as printed": 0.45,
        "averages every 5 steps": 0.7, "averages every 5 steps, as printed": 0.35,
    }  # fmt: skip
    ends = [measured[name] for name in ("factor_low", "factor", "factor_high")]
    assert ends == pytest.approx([0.5, 1.0, 1.5])  # 0.6 s / 2 learners, over each of the times


PUBLISHED = {
    "cartpole_ddpg": {32: "F-F-F", 256: "F-F-F", 2048: "F-F-F", 16384: "F-F-F"},
    "hopper_ddpg": {32: "F-F-F", 256: "G-C-G", 2048: "G-C-G", 16384: "G-F-G"},
    "pong_dqn": {32: "G-C-G", 64: "G-C-G", 256: "G-C-C"},
}
"""The fastest mappings that [Zhang2023, Table V] prints."""


@pytest.fixture(scope="module")
def printed():
    return quoted.read(RESULTS / "quoted")


def test_the_eleven_published_mappings_are_quoted_once_each(printed):
    found = {name: {} for name in PUBLISHED}
    for (name, batch), mappings in mapping.list_printed(printed).items():
        (found[name][batch],) = (letters for letters, behind in mappings.items() if behind == 1)
        assert all(behind >= 1 for behind in mappings.values())
    assert found == PUBLISHED


def test_learners_are_pinned_where_a_rate_is_printed(printed):
    assert mapping.pin_learners(printed, "hopper_ddpg", 32) == {}
    assert {*mapping.pin_learners(printed, "cartpole_ddpg", 32)} == {"fpga"}
    rate = printed["seed3_learner.table_vii.pong.watts"] * printed["seed3_learner.table_vii.pong.gps_per_watt"]
    pinned = mapping.pin_learners(printed, "pong_dqn", int(printed["seed3_learner.table_vii.pong.batch"]))
    assert pinned["gpu"] == pytest.approx(1 / rate)


def test_a_mapping_is_as_fast_as_the_solver_finds_where_each_part_is_kept_there(printed):
    """The solver may give up a share of the rate for fewer devices."""
    problem = mapping.pose_problem(printed, RESULTS, "pong_dqn", 64)
    rates = mapping.rate_mappings(problem)
    for learner, tree, storage in itertools.product("CGF", repeat=3):
        where = {"learner": mapping.DEVICES[learner], "storage": mapping.DEVICES[storage]}
        options = {part: tuple(option for option in options if option.device == where.get(part, option.device))
                   for part, options in problem.options.items()}  # fmt: skip
        pairs = tuple(pair for pair in problem.trees if {one.device for one in pair} == {mapping.DEVICES[tree]})
        hz = rates.get((learner, tree, tree, storage), 0.0)
        if not (options["learner"] and options["storage"] and pairs):
            assert not hz
            continue
        best = solve(dataclasses.replace(problem, options=options, trees=pairs), "training")
        found = 0.0 if isinstance(best, Infeasible) else best.value
        assert (1 - EPSILONS["training"]) * hz <= found <= hz * (1 + 1e-9)


def test_storage_stands_beside_the_part_that_leaves_the_least_to_move():
    workload = load("pong_dqn")
    assert mapping.place_storage("G", "C", workload) == "G"  # a batch of records outweighs the rest
    alone = dataclasses.replace(workload, learner=dataclasses.replace(workload.learner, batch=1))
    many = dataclasses.replace(alone, actors=dataclasses.replace(alone.actors, count=1_000))
    assert mapping.place_storage("G", "F", many) == "C"
