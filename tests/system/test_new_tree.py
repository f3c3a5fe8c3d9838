"""One file dropped into a copy of the checkout adds a tree, a workload, a platform or another library, everywhere."""

import json
import shutil
import sys

import pytest

from dse.records import read_file
from tests.nursery import run_python
from tests.repositories import ROOT
from tests.unit.test_recommend import records, taking, write

TREE = '''
"""A made-up tree: NumPy's under another name, as if it were compiled and slow to fill."""

from .contract import level_bytes, level_sizes
from .numpy_tree import NumpyTree


class TwinTree(NumpyTree):
    """Holds every sum twice, or so it says."""

    compiled = True
    fill_seconds = 1e-6
    variants = ({"propagate": "delta"},)

    @classmethod
    def nbytes_of(cls, capacity, fanout, dtype, options):
        return level_bytes(level_sizes(capacity, fanout), fanout, dtype, copies=2)
'''
ARRAY = '''
"""A made-up tree that needs a library nobody has."""

import a_library_that_nobody_has

from .contract import SumTree


class ArrayTree(SumTree):
    """States no more than it must."""
'''
LIBRARY = '''
"""A made-up library with every role there is."""

import numpy as np

from . import base, ours


class Tree(base.Tree):
    package, rule = "made-up", "smallest i with p_0 + .. + p_i > mass"

    def _allocate(self):
        self._tree = np.zeros(self.slots)

    def sample(self, uniforms):
        indices = self.prefix_sum_index(uniforms * self.total())
        return indices, self._tree[indices]

    def prefix_sum_index(self, mass):
        return np.searchsorted(self._tree.cumsum(), mass, side="right")

    def total(self):
        return self._tree.cumsum()[-1]


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
TOLD = """
import json
from benchmarks.history import bench_trees
from benchmarks.presets import PRESETS
swept = {
    name: sorted({(case.contestant, repr(case.options)) for block in preset.blocks for case in block.cases()})
    for name, preset in PRESETS.items()
}
kinds = [bench_trees.Draw, bench_trees.Update, bench_trees.Step, bench_trees.Memory, bench_trees.Modeled]
try:
    bench_trees.Draw().setup("twin", 1_000_000, 256)
except NotImplementedError as reason:
    refused = str(reason)
print(json.dumps({"swept": swept, "asv": [kind.params[0] for kind in kinds], "refused": refused}))
"""
"""What the benchmarks of the copy say of themselves."""
SIZES = """
import json
import impls
from dse.times.cost_model import tree_bytes
print(json.dumps({
    "names": impls.names(),
    "why_not": {name: impls.why_not(name) for name in ("twin", "array")},
    "twin": tree_bytes("twin", 1000, 16, "float32", {}),
    "numpy": tree_bytes("numpy", 1000, 16, "float32", {}),
    "variants": {name: impls.traits(name).variants for name in ("twin", "array", "of another checkout")},
}))
"""
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
    ours = [one for one in found if (one.contestant, one.fanout) == ("numba", 16)]
    write(folder / "results", [*found, *(taking(one.seconds / 2, one, contestant="twin") for one in ours)])
    (folder / "results" / "here" / "platform.toml").write_text(PLATFORM)
    return folder


def run(project, *words):
    """What a Python of the copy prints."""
    return run_python(*words, folder=project, PYTHONPATH=str(project)).stdout


def ask(project, *words):
    return json.loads(run(project, "-m", "dse", "recommend", *words, "--json"))


def test_a_tree_is_named_sized_and_may_need_what_is_not_installed(project):
    told = json.loads(run(project, "-c", SIZES))
    assert {"array", "numpy", "twin"} <= set(told["names"])
    assert told["why_not"]["twin"] is None
    assert "needs the module 'a_library_that_nobody_has'" in told["why_not"]["array"]
    assert told["variants"] == {"twin": [{"propagate": "delta"}], "array": [], "of another checkout": []}
    assert told["twin"] > told["numpy"]


def test_a_tree_is_in_every_preset_and_on_asvs_grid(project):
    told = json.loads(run(project, "-c", TOLD))
    for preset, cells in told["swept"].items():
        assert ["twin", "{}"] in cells
        assert [options for name, options in cells if name == "array"] == ["{}"]
        assert (["twin", "{'propagate': 'delta'}"] in cells) == (preset not in ("smoke", "brief"))
    for contestants in told["asv"]:
        assert {"array", "numpy", "twin"} <= set(contestants)
    assert told["refused"] == "twin is too slow with more than 100,000 leaves"


def test_a_tree_is_swept_and_drawn(project, tmp_path):
    axes = "--capacities 50,60 --batches 4,8 --fanouts 16 --ops draw,update --budget 0.001 --no-floor".split()
    chosen = ["--preset", "smoke", "--contestants", "twin", "--results", str(tmp_path), "--json"]
    summary = json.loads(run(project, "-c", QUIET, "sweep", *axes, *chosen))
    found = [one for one in read_file(project / summary["file"]) if one.primitive == "sum_tree"]
    assert {(one.contestant, one.source) for one in found} == {("twin", "measured")}
    assert len(found) == summary["cells"] == 2 * 2 * 2
    assert '"twin"' in run(project, "-m", "benchmarks", "list", "--results", str(tmp_path), "--json")
    pytest.importorskip("pandas", reason="tables need pandas")
    drawn = json.loads(run(project, "-c", DRAWN))
    assert {"twin", "flat", "numba"} <= {*drawn}


@pytest.mark.parametrize(("capacity", "batch"), [(1_000_000, 512), (100_000, 64)])
def test_a_tree_that_is_fastest_is_recommended(project, capacity, batch):
    given = ask(project, "--capacity", str(capacity), "--batch", str(batch), "--machine", "here")
    assert given["choice"]["implementation"] == "twin"
    assert given["choice"]["source"] == ("measured" if capacity == 1_000_000 else "interpolated")


def tree_of(given):
    """the implementation that a mapping samples from."""
    (part,) = (row for row in given["rows"] if row.get("part") == "updating")
    return part["details"]["contestant"]


def test_a_tree_is_an_option_of_mappings_where_it_was_timed_and_by_its_traits_elsewhere(project):
    here = ["--platform", "results/here/platform.toml", "--workload", "cartpole_dqn"]
    here += ["--fix", "arrangement=serial"]  # processes share numba's tree alone
    assert tree_of(ask(project, *here)) == "twin"
    assert tree_of(ask(project, *here, "--fix", "contestant=numba")) == "numba"
    elsewhere = ["--platform", "u200", "--workload", "cartpole_dqn", "--fix", "updating=cpu"]
    assert tree_of(ask(project, *elsewhere, "--fix", "contestant=twin")) == "twin"


def test_a_workload_and_a_platform_are_files(project):
    assert "mine" in run(project, "-c", "import impls.training; print(*impls.training.names())").split()
    assert "board" in run(project, "-m", "dse", "platform", "list")
    given = ask(project, "--platform", "board", "--workload", "mine")
    assert (given["question"]["platform"], given["question"]["workload"]) == ("board", "mine")


@pytest.mark.parametrize("command", ["peers", "run loops", "run replay --buffers made_up", "run plugins"])
def test_a_library_is_one_file_whatever_it_is_timed_as(project, command):
    listed = json.loads(run(project, "-m", "benchmarks", *command.split(), "--dry-run", "--json"))
    assert "made_up" in {cell["contestant"] for cell in listed}


def test_a_librarys_tree_is_timed(project, tmp_path):
    tiny = "--contestants made_up --capacity 100 --batches 8 --capacities 64 --budget 0 --no-accuracy".split()
    run(project, "-c", QUIET, "peers", *tiny, "--python", sys.executable, "--results", str(tmp_path))
    (path,) = tmp_path.glob("*/peers.jsonl")
    found = read_file(path)
    timed = {record.contestant for record in found if record.samples_seconds}
    assert timed == {record.contestant for record in found} == {"made_up"}
