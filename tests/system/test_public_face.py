"""Tests of the names that `import dse` offers: they are there, documented, and work on the shipped records."""

import functools
import inspect
import math
import re

import numpy as np
import pytest

import dse
from dse import __doc__ as face
from tests.committed import DATA, RESULTS
from tests.nursery import run_python

MACHINE = "d7dae63b89"
KEPT = {
    *("recommend", "recommend_mapping", "explain_mapping", "Answer", "Row", "Note"),
    *("Record", "Run", "RecordError", "read_file", "read_folder", "CostModel", "fit", "cross_validate"),
    *("fanout_regrets", "Problem", "solve", "split_cores", "platform_split", "platform_depth"),
}


def test_each_name_is_there_documented_and_kept():
    assert KEPT <= set(dse.__all__)
    for name in dse.__all__:
        value = getattr(dse, name)
        assert value.__name__ == name and inspect.getdoc(value), name
        assert f"``{name}``" in face and name in dir(dse), name
    with pytest.raises(AttributeError, match="'sovle'"):
        dse.sovle  # noqa: B018


def test_importing_it_imports_nothing_of_it():
    code = "import sys, dse; print(*(name for name in sys.modules if name.startswith(('dse.', 'numpy'))));"
    done = run_python("-c", f"{code} dse.Problem; print(*sys.modules)", folder=DATA).stdout
    first, second = done.split("\n")[:2]
    assert first == "" and "dse.solver.problem" in second.split()


def test_whole_numbers_of_cores_may_be_floats_others_are_refused():
    rate = dse.Estimate(100.0, 100.0, 100.0, dse.Evidence("f", "measured"))
    curves = [dse.RateCurve(name, {1.0: rate, np.float64(2.0): rate, np.int64(3): rate}) for name in ("f_a", "f_l")]
    assert [type(cores) for cores in curves[0].rates] == [int] * 3
    assert dse.split_cores(*curves, 1, 8.0, 2.0) == dse.split_cores(*curves, 1, 8, 2)
    asked = ("u200", "hopper_ddpg")
    own = {"reserved": 1.0, "results": str(RESULTS)}
    assert dse.platform_split(*asked, 8.0, **own) == dse.platform_split(*asked, 8, reserved=1, results=RESULTS)
    for cores, reserved in ((2.5, 0), (8, 0.5), (math.nan, 0), (math.inf, 0), (8, math.nan), (0.0, 0), (8, -1.0)):
        bound = f"cores must be at least 1 and reserved at least 0, both whole, not {cores} and {reserved}"
        for ask in (functools.partial(dse.split_cores, *curves, 1), functools.partial(dse.platform_split, *asked)):
            with pytest.raises(dse.ProblemError, match=re.escape(bound)):
                ask(cores=cores, reserved=reserved)
    for cores in (1.5, math.nan, math.inf, 0.0):
        with pytest.raises(dse.ProblemError, match=f"a rate on {cores} cores; cores are whole and at least 1"):
            dse.RateCurve("f_a", {cores: rate})


def test_results_are_named_by_strings_and_no_cells_are_no_model(tmp_path):
    found = dse.read_folder(str(RESULTS), MACHINE)
    assert found == dse.read_folder(RESULTS, MACHINE)
    for folder in (str(tmp_path), tmp_path):
        with pytest.raises(dse.RecordError, match="no records here"):
            dse.read_folder(folder)
    with pytest.raises(dse.RecordError, match="draw of numba"):
        dse.family_and_points(found, "draw", dtype="float16")
    assert dse.family_and_points(found, "draw", layout="plain")[1]
