"""Tests of the names that `import dse` offers: they are there, documented, and work on the shipped records."""

import functools
import inspect
import itertools
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dse
from dse import __doc__ as face
from tests.committed import CHECKOUT, RESULTS

MACHINE = "d7dae63b89"
KEPT = {
    *("recommend", "Recommendation", "recommend_mapping", "explain_mapping", "MappingAnswer", "Shortage"),
    *("Measurement", "RecordError", "read_file", "read_folder", "CostModel", "fit", "cross_validate"),
    *("fanout_regrets", "Problem", "solve", "split_cores", "platform_split", "platform_depth"),
}


def run(code):
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("name", dse.__all__)
def test_each_name_is_there_and_is_documented(name):
    value = getattr(dse, name)
    assert value.__name__ == name
    assert inspect.getdoc(value)
    assert f"``{name}``" in face
    assert name in dir(dse)


def test_what_is_promised_is_kept_and_nothing_else_is_there():
    assert KEPT <= set(dse.__all__)
    with pytest.raises(AttributeError, match="module 'dse' has no attribute 'sovle'"):
        dse.sovle  # noqa: B018
    with pytest.raises(ImportError, match="sovle"):
        exec("from dse import sovle")


def test_importing_it_imports_nothing_of_it():
    assert run("import sys, dse; print(*(name for name in sys.modules if name.startswith(('dse.', 'numpy'))))") == []
    assert "dse.solver.problem" in run("import sys, dse; dse.Problem; print(*sys.modules)")


def test_a_tree_is_recommended():
    given = dse.recommend(1_000_000, 256, machine=MACHINE)
    assert isinstance(given, dse.Recommendation)
    with pytest.raises(dse.RecordError):
        dse.recommend(1_000_000, 256, machine="nobody")


def test_a_mapping_is_recommended_and_explained():
    given = dse.recommend_mapping("u200", "hopper_ddpg")
    assert isinstance(given, dse.MappingAnswer)
    assert isinstance(dse.explain_mapping("u200", "hopper_ddpg", {"learner": "gpu"}), dse.Explanation)
    assert isinstance(dse.recommend_mapping("edge", "pong_dqn", fix={"capacity": 10**8}), dse.Shortage)


def test_cores_and_depths_are_told():
    f_a, f_l = (
        dse.RateCurve.of(name, {x: hz * x for x in range(1, 4)}, "measured")
        for name, hz in (("f_a", 100.0), ("f_l", 300.0))
    )
    given = dse.split_cores(f_a, f_l, 1, 4)
    assert (given.choice.actors, given.choice.learners) == (3, 1)
    assert isinstance(dse.platform_split("this", "hopper_ddpg", machine=MACHINE), dse.CoreSplit)
    assert dse.platform_depth("u200", "hopper_ddpg", 0.0).depth == 1


def test_whole_numbers_of_cores_may_be_floats_and_others_are_refused():
    rate = dse.Estimate(100.0, 100.0, 100.0, dse.Evidence("f", "measured"))
    curves = [dse.RateCurve(name, {1.0: rate, np.float64(2.0): rate, np.int64(3): rate}) for name in ("f_a", "f_l")]
    assert [type(cores) for cores in curves[0].rates] == [int] * 3
    assert dse.split_cores(*curves, 1, 8.0, 2.0) == dse.split_cores(*curves, 1, 8, 2)
    asked = ("u200", "hopper_ddpg")
    assert dse.platform_split(*asked, 8.0, reserved=1.0) == dse.platform_split(*asked, 8, reserved=1)
    for cores, reserved in ((2.5, 0), (8, 0.5), (math.nan, 0), (math.inf, 0), (8, math.nan), (0.0, 0), (8, -1.0)):
        bound = f"cores must be at least 1 and reserved at least 0, both whole, not {cores} and {reserved}"
        for ask in (functools.partial(dse.split_cores, *curves, 1), functools.partial(dse.platform_split, *asked)):
            with pytest.raises(dse.ProblemError, match=re.escape(bound)):
                ask(cores=cores, reserved=reserved)
    for cores in (1.5, math.nan, math.inf, 0.0):
        with pytest.raises(dse.ProblemError, match=f"a rate on {cores} cores; cores are whole and at least 1"):
            dse.RateCurve("f_a", {cores: rate})


def test_results_may_be_named_by_a_string(tmp_path):
    asked, folder = ("u200", "hopper_ddpg"), str(RESULTS)
    mapping = dse.recommend_mapping(*asked, results=folder)
    assert mapping == dse.recommend_mapping(*asked, results=Path(folder))
    assert dse.explain_mapping(*asked, {"learner": "gpu"}, results=folder).best == mapping
    assert dse.platform_split(*asked, results=folder) == dse.platform_split(*asked, results=Path(folder))
    assert dse.platform_depth(*asked, 0.0, results=folder) == dse.platform_depth(*asked, 0.0, results=Path(folder))
    tree = dse.recommend(1_000_000, 256, results=folder, machine=MACHINE)
    assert tree == dse.recommend(1_000_000, 256, results=Path(folder), machine=MACHINE)
    assert dse.read_folder(folder, MACHINE) == dse.read_folder(Path(folder), MACHINE)
    with pytest.raises(dse.RecordError, match="no records here"):
        dse.read_folder(str(tmp_path))
    with pytest.raises(dse.RecordError, match="cannot be read"):
        dse.read_file(str(tmp_path / "none.jsonl"))


def test_a_cost_model_is_fitted_checked_and_held_against_measured_fanouts():
    found = dse.read_folder(RESULTS, MACHINE)
    assert all(isinstance(one, dse.Measurement) for one in found)
    draws, updates = (dse.family_and_points(found, op) for op in ("draw", "update"))
    family, points = draws
    model = dse.fit(family, points)
    assert isinstance(model, dse.CostModel)
    off = [model.predict(one.capacity, one.fanout, one.batch) / one.seconds for one in points]
    assert 0.8 < statistics.median(off) < 1.25
    held_out = dse.cross_validate(family, points)
    assert {one.point for one in held_out} == set(points)
    assert statistics.median(one.error for one in held_out) < 0.25
    regrets = dse.fanout_regrets(draws, updates)
    assert regrets
    assert all(one.predicted_regret >= 0 for one in regrets)
    assert np.median([one.predicted_regret for one in regrets]) < 0.25


def test_cells_that_are_not_there_are_no_model():
    found = dse.read_folder(RESULTS, MACHINE)
    with pytest.raises(dse.RecordError, match="no timed draw of numba as asked; measure with"):
        dse.family_and_points(found, "draw", dtype="float16")
    _, plain = dse.family_and_points(found, "draw", layout="plain")
    assert plain


def test_a_problem_is_built_and_solved():
    def option(part, device, seconds, cores=1.0):
        time = dse.Estimate(seconds, 0.9 * seconds, 1.1 * seconds, dse.Evidence(f"{part} on {device}", "modeled"))
        return dse.Option(part, device, device, f"{device}.{part}", time, {"cores": cores})

    parts = ("actors", "sampling", "storage", "learner", "updating")
    options = {part: (option(part, "cpu", 1e-3),) for part in parts}
    options["learner"] = (option("learner", "cpu", 4e-3), option("learner", "gpu", 2e-3))
    ways = {
        pair: (dse.Hop("bus", 1e-5, 1e-9, dse.Evidence("bus", "modeled")),)
        for pair in itertools.permutations(("cpu", "gpu"))
    }
    flows = (dse.Flow("storage", "learner", 1e5, True), dse.Flow("learner", "updating", 1e3, True))
    problem = dse.Problem(options, {"cores": 5.0}, flows, ways, depths=(0, 4))
    found = dse.solve(problem, "ratio")
    assert isinstance(found, dse.Solution)
    assert found.choice.learner.device == "gpu"
    assert found.outcome.hz == pytest.approx(500.0)
    tight = dse.solve(dse.Problem(options, {"cores": 4.0}, flows, ways, depths=(0, 4)), "ratio")
    assert isinstance(tight, dse.Infeasible)
    with pytest.raises(dse.ProblemError, match="nothing can run the part 'learner'"):
        dse.Problem({**options, "learner": ()}, {"cores": 5.0})
