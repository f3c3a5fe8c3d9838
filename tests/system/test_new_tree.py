"""One file dropped into a copy of the checkout adds a tree, a workload, a platform or another library, everywhere."""

import json
import shutil

import pytest

import impls
from dse.records import read_file
from impls.checks import closest, near
from tests.nursery import run_python
from tests.repositories import ROOT
from tests.unit.test_recommend import records, taking, write

TREE = '''
"""A made-up tree: NumPy's under another name, as if it were compiled."""

from .numpy_tree import NumpyTree


class TwinTree(NumpyTree):
    compiled = True
    variants = ({"propagate": "delta"},)
'''
ARRAY = """
import a_library_that_nobody_has

from .contract import SumTree


class ArrayTree(SumTree):
    pass
"""
LIBRARY = '''
"""A made-up library with every role there is."""

from . import base, ours


class Tree(base.Tree):
    package, rule = "made-up", "smallest i with p_0 + .. + p_i > mass"


class Buffer(ours.PythonBuffer):
    package = "made-up"


class Loop(ours.Loop):
    package, is_ours = "made-up", False


class Host(base.Host):
    package, module = "made-up", "numpy"
    buffers, kinds, loops = Buffer, ("theirs", "ours"), (Loop, Loop)

    def trees(self):
        return ()
'''
PLATFORM = """
name = "here"
machine_key = "here"
[[device]]
name = "cpu"
kind = "cpu"
origin = "assumed"
note = "made up"
cores = 4
clock_mhz = 2000
[device.memory]
size_gib = 16
bandwidth_gb_per_s = 20
"""
"""The machine of the records of ``tests.unit.test_recommend``."""
FACTS = """
import json
import impls, impls.training
from benchmarks.history import bench_trees
from benchmarks.presets import PRESETS
print(json.dumps({
    "names": impls.names(),
    "why_not": {name: impls.why_not(name) for name in ("twin", "array")},
    "variants": {name: impls.traits(name).variants for name in ("twin", "array", "of another checkout")},
    "swept": {
        name: sorted({(case.contestant, repr(case.options)) for block in preset.blocks for case in block.cases()})
        for name, preset in PRESETS.items()
    },
    "asv": [getattr(bench_trees, kind).params[0] for kind in ("Draw", "Update", "Step", "Memory", "Modeled")],
    "workloads": list(impls.training.names()),
}))
"""
"""What the copy says of its trees, presets, benchmarks and workloads."""
DRAWN = """
import json
from pathlib import Path
from reports.frame import Data
from reports.page import list_figures
rows = Data.read(Path("results"), "here").select(list_figures()["capacity"])
print(json.dumps(sorted(set(rows["contestant"]))))
"""
"""The trees of a figure of the copy."""
QUIET = """
import sys
from benchmarks import __main__ as cli, topic
from dse.platforms import checkout
cli.Sentinels = topic.Sentinels = checkout.read_load = lambda: None
sys.exit(cli.main(sys.argv[1:]))
"""
"""The benchmarks of the copy, whatever load there is, without sentinels, whose kernels the copy would compile first."""
ASKED = """
import contextlib, importlib, io, json, sys
for program, *words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert importlib.import_module(program + ".__main__").main([*words, "--json"]) == 0, words
    print(json.dumps(json.loads(printed.getvalue())))
"""
"""Several commands of the copy in one process, an answer a line."""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the checkout with a file more of each kind, and a machine's records in which the twin is best."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("impls", "dse", "benchmarks", "reports"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "impls" / "sumtree" / "twin_tree.py").write_text(TREE)
    (folder / "impls" / "sumtree" / "array_tree.py").write_text(ARRAY)
    (folder / "benchmarks" / "libraries" / "made_up.py").write_text(LIBRARY)
    for kind, name, twin in (("impls/training/workloads", "cartpole_dqn", "mine"), ("dse/platforms", "edge", "board")):
        text = (folder / kind / f"{name}.toml").read_text()
        (folder / kind / f"{twin}.toml").write_text(text.replace(f'name = "{name}"', f'name = "{twin}"', 1))
    found = list(records(threads=(1,)))
    ours = [record for record in found if (record.contestant, record.fanout) == ("numba", 16)]
    twins = [taking(record.seconds / 2, record, contestant="twin") for record in ours]
    write(folder / "results", [*found, *twins])
    (folder / "results" / "here" / "platform.toml").write_text(PLATFORM)
    return folder


def run(project, *words):
    """What a Python of the copy prints."""
    return run_python(*words, folder=project, PYTHONPATH=str(project)).stdout


def ask(project, *commands):
    """The answers to commands of the copy."""
    return [json.loads(line) for line in run(project, "-c", ASKED, json.dumps(commands)).splitlines()]


def test_a_tree_is_named_sized_and_in_every_preset(project):
    facts = json.loads(run(project, "-c", FACTS))
    assert {"array", "numpy", "twin"} <= set(facts["names"])
    assert facts["why_not"]["twin"] is None
    assert "needs the module 'a_library_that_nobody_has'" in facts["why_not"]["array"]
    assert facts["variants"] == {"twin": [{"propagate": "delta"}], "array": [], "of another checkout": []}
    for preset, cells in facts["swept"].items():
        assert ["twin", "{}"] in cells
        assert [options for name, options in cells if name == "array"] == ["{}"]
        assert (["twin", "{'propagate': 'delta'}"] in cells) == (preset not in ("smoke", "brief"))
    assert all({"array", "numpy", "twin"} <= set(contestants) for contestants in facts["asv"])
    assert "mine" in facts["workloads"]


def test_a_tree_is_swept_and_drawn(project, tmp_path):
    axes = "--capacities 50,60 --batches 4,8 --fanouts 16 --ops draw,update --budget 0.001 --no-floor".split()
    chosen = ["--preset", "smoke", "--contestants", "twin", "--results", str(tmp_path), "--json"]
    summary = json.loads(run(project, "-c", QUIET, "sweep", *axes, *chosen))
    found = [record for record in read_file(project / summary["file"]) if record.primitive == "sum_tree"]
    assert {(record.contestant, record.source) for record in found} == {("twin", "measured")}
    assert len(found) == summary["cells"] == 2 * 2 * 2
    pytest.importorskip("pandas", reason="tables need pandas")
    assert {"twin", "flat", "numba"} <= {*json.loads(run(project, "-c", DRAWN))}


def test_a_tree_is_recommended_and_an_option_of_mappings(project):
    recommend = ["dse", "recommend"]
    sizes = [["--capacity", str(capacity), "--batch", batch] for capacity, batch in ((10**6, "512"), (10**5, "64"))]
    here = ["--platform", "results/here/platform.toml", "--workload", "cartpole_dqn"]
    here += ["--fix", "arrangement=serial"]  # processes share numba's tree alone
    elsewhere = ["--platform", "u200", "--workload", "cartpole_dqn", "--fix", "updating=cpu"]
    commands = [[*recommend, *size, "--machine", "here"] for size in sizes]
    commands += [[*recommend, *here], [*recommend, *here, "--fix", "contestant=numba"]]
    commands += [[*recommend, *elsewhere, "--fix", "contestant=twin"]]
    commands += [[*recommend, "--platform", "board", "--workload", "mine"]]
    large, small, *mapped, mine = ask(project, *commands)
    assert [answer["choice"]["implementation"] for answer in (large, small)] == ["twin", "twin"]
    assert [answer["choice"]["source"] for answer in (large, small)] == ["measured", "interpolated"]
    parts = [next(row for row in answer["rows"] if row.get("part") == "updating") for answer in mapped]
    assert [part["details"]["contestant"] for part in parts] == ["twin", "numba", "twin"]
    assert (mine["question"]["platform"], mine["question"]["workload"]) == ("board", "mine")


def test_a_library_is_one_file_whatever_it_is_timed_as(project):
    commands = ["peers", "run loops", "run replay --buffers made_up", "run plugins"]
    for cells in ask(project, *(["benchmarks", *command.split(), "--dry-run"] for command in commands)):
        assert "made_up" in {cell["contestant"] for cell in cells}


# The registry

BAD_FILES = {
    "far": "import library_that_is_nowhere",
    "bad": "from .contract import name_that_is_nowhere",
    "lost": "from . import module_that_is_nowhere",
    "none": "from .numpy_tree import NumpyTree",
}
REASONS = f"""
import json, impls
def reason(name):
    try:
        return ["reason", impls.why_not(name)]
    except Exception as error:
        return ["raised", str(error)]
print(json.dumps({{name: reason(name) for name in {list(BAD_FILES)}}}))
"""


def test_only_a_missing_library_becomes_a_reason(tmp_path):
    shutil.copytree(ROOT / "impls", tmp_path / "impls", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in BAD_FILES.items():
        (tmp_path / "impls" / "sumtree" / f"{name}_tree.py").write_text(text + "\n")
    outcomes = json.loads(run(tmp_path, "-c", REASONS))
    assert {name for name, (kind, _) in outcomes.items() if kind == "reason"} == {"far"}
    words = "library_that_is_nowhere", "name_that_is_nowhere", "module_that_is_nowhere", "exactly one"
    for (name, (_, text)), word in zip(outcomes.items(), words, strict=True):
        assert word in text, name


def test_names_and_options_are_suggested():
    assert {"python", "numpy", "numba", "flat", "cumsum"} <= set(impls.names())
    assert list(impls.names()) == sorted(impls.names())
    assert "'numba'" in impls.why_not("numbaa") and impls.why_not("../numpy")
    with pytest.raises(RuntimeError, match="'nope'"):
        impls.make("nope", 10)
    for name, options, words in (
        ("numpy", {"propogate": "delta"}, "'propogate'.*'propagate'"),
        ("numpy", {"propagate": "detla"}, "'recompute', 'delta', not 'detla'.*'delta'"),
        ("flat", {"layout": "prefix"}, "fanout, dtype, threads, validate, minimum"),
        ("numba", {"K": 4}, "fanout, .*threads, .*minimum, propagate, .*fanout="),
    ):
        with pytest.raises(ValueError, match=words):
            impls.make(name, 10, **options)


def test_only_what_may_be_a_misspelling_has_a_suggestion():
    known = ["h200", "u200", "gpu", "float32", "float64", "memory_gb", "dqn", "recommend", "fanout", "fpga"]
    right = {"memroy_gb": "memory_gb", "dqm": "dqn", "floot32": "float32", "recomend": "recommend", "u200x": "u200"}
    for word in (*right, "h100", "tpu", "float16", "u250", "layout", "cpu"):
        assert closest(word, known) == [right[each] for each in [word] if each in right], word
        assert near(word, known) == (f"; did you mean {right[word]!r}?" if word in right else "")
