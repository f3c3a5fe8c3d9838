"""Small benchmarks: asv's configuration and grid, and single calls."""

import inspect
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from asv.config import Config

import impls
from benchmarks.cases import Case, WrongAnswerError, prepare
from benchmarks.history import bench_trees
from benchmarks.history.bench_trees import CONTESTANTS, Draw, Fanout, Memory, Modeled, Step, Update
from tests.committed import ROOT
from tests.nursery import run_python
from tests.repositories import copy_checkout
from tests.system.test_house import OURS, imported

GRID = {
    (Draw, "time_draw"): ("numpy", 300, 256),
    (Update, "time_update"): ("numpy", 300, 256),
    (Step, "time_step"): ("numpy", 300, 256),
    (Fanout, "time_step"): ("numpy", 4, 300, 256),
    (Memory, "peakmem_build"): ("numpy", 300),
    (Memory, "track_bytes"): ("numpy", 300),
    (Modeled, "track_modeled_seconds"): ("fpga", "draw", 300, 256),
}
TIMED = [(kind, method) for kind, method in GRID if method.startswith("time_")]


def test_the_configuration_and_the_grid_are_what_asv_reads(tmp_path):
    found = json.loads((ROOT / "asv.conf.json").read_text())
    assert set(found) - {"version"} <= set(vars(Config()))
    assert found["version"] == Config.api_version
    assert set(found["matrix"]) <= {"req", "env", "env_nobuild"}
    assert f"asv_runner=={found['matrix']['req']['pip+asv_runner'][0]}" in (ROOT / "pyproject.toml").read_text()
    code = (
        f"import sys; sys.path.append({str(ROOT)!r}); from asv_runner import _aux, discovery; "
        f"root = {str(ROOT / found['benchmark_dir'])!r}; _aux.update_sys_path(root); "
        "print(*(found.name for found in discovery.disc_benchmarks(root)))"
    )
    done = run_python("-c", code, folder=tmp_path)
    assert sorted(done.stdout.split()) == sorted(f"bench_trees.{kind.__name__}.{method}" for kind, method in GRID)
    assert tuple(CONTESTANTS) == impls.names()
    for kind, method in GRID:
        assert list(inspect.signature(getattr(kind, method)).parameters)[1:] == list(kind.param_names)
        assert [{type(value) for value in axis} <= {str, int} for axis in kind.params] == [True] * len(kind.param_names)


def test_what_another_commit_runs_asks_little_of_its_package():
    for name in ("history/bench_trees", "history/__init__", "cases", "clock", "worker"):
        found = {one for one in imported(ROOT / "benchmarks" / f"{name}.py", True) if one.partition(".")[0] in OURS}
        modules = {one.rpartition(".")[0] for one in found if one.startswith("benchmarks")}
        assert modules <= ({"benchmarks.cases", "benchmarks.clock"} if name in ("clock", "worker") else set())
        others = {one for one in found if not one.startswith("benchmarks")}
        assert others <= {"impls", "impls.SumTree", "impls.sumtree.oracle.Oracle"}


def test_a_method_is_one_call_on_the_next_inputs():
    for kind, method in TIMED:
        cell, first, again, called = GRID[kind, method], kind(), kind(), []
        first.setup(*cell)
        first.call = called.append
        for _ in range(2):
            getattr(first, method)(*cell)
        again.setup(*cell)
        assert called == [bench_trees.WARM_UP, bench_trees.WARM_UP + 1], kind
        assert next(again.turns) == bench_trees.WARM_UP + 2, "setup made the tree anew"
        getattr(again, method)(*cell)


def test_a_step_over_k_is_of_a_tree_of_that_k(monkeypatch):
    monkeypatch.delattr(impls, "traits")  # as in commits from before trees had traits
    for (kind, _), cell in GRID.items():
        kind().setup(*cell)
    asked, prepare = [], bench_trees.prepare
    monkeypatch.setattr(bench_trees, "prepare", lambda case: asked.append(case) or prepare(case))
    bench_trees._warm.cache_clear()
    for fanout in (4, 8):
        Fanout().setup("numpy", fanout, 300, 256)
    assert [case.fanout for case in asked] == [4, 8]


def test_memory_and_modeled_seconds_are_the_trees_own():
    cell, modeled = GRID[Memory, "track_bytes"], GRID[Modeled, "track_modeled_seconds"]
    memory, tracked = Memory(), Modeled()
    memory.setup(*cell)
    memory.peakmem_build(*cell)
    assert (memory.track_bytes(*cell), Memory.unit) == (impls.make(*cell).nbytes, "bytes")
    tracked.setup(*modeled)
    assert tracked.track_modeled_seconds(*modeled) == impls.make("fpga", 300).modeled_seconds("draw", 256)


NOBODYS = [("nobody", 300), ("python", 1_000_000)]
SKIPPED = [
    (Modeled, ("numpy", "draw", 300, 256), "numpy is timed"),
    *((kind, ("fpga", *GRID[kind, method][1:]), "fpga is modeled") for kind, method in TIMED),
    *((Draw, (*cell, 256), cell[0]) for cell in NOBODYS),
    *((Memory, cell, cell[0]) for cell in NOBODYS),
    *((Modeled, (name, "draw", size, 256), name) for name, size in NOBODYS),
]


def test_a_cell_that_cannot_be_had_is_skipped_no_wrong_answer(monkeypatch):
    for kind, cell, reason in SKIPPED:
        with pytest.raises(NotImplementedError, match=reason):
            kind().setup(*cell)

    def fail(case):
        raise errors.pop()

    errors = [WrongAnswerError("3 of 256"), ValueError("not of that size")]
    monkeypatch.setattr(bench_trees, "prepare", fail)
    with pytest.raises(NotImplementedError, match="not of that size"):
        Update().setup("numpy", 301, 256)
    with pytest.raises(WrongAnswerError):
        Update().setup("numpy", 301, 256)


# In a repository of its own. asv installs its environment, which takes the network or a cache of packages.


@pytest.mark.slow
def test_asv_runs_and_publishes_every_cell(tmp_path):
    folder = tmp_path / "fanout"
    copy_checkout(folder)
    quickly = ["-a", "rounds=1", "-a", "repeat=(1,1,0.1)", "-a", "warmup_time=0", "--bench", "bench_trees"]
    for words in (["machine", "--yes"], ["run", *quickly, "HEAD^!"], ["publish"]):
        assert run_asv(folder, *words).returncode == 0, words
    page = folder / ".asv" / "html"
    assert (page / "index.html").is_file()
    for kind, method in GRID:
        assert list(page.rglob(f"bench_trees.{kind.__name__}.{method}.json")), method
    shutil.rmtree(folder / ".asv", ignore_errors=True)  # pytest keeps the folders of three runs, and this is large


def run_asv(folder, *words):
    """asv, keeping what it knows of the machine beside the repository instead of in the user's home."""
    home, how = Path.home(), {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    caches = {"XDG_CACHE_HOME": str(home / ".cache"), "XDG_CONFIG_HOME": str(home / ".config")}
    environment = {**caches, **os.environ, "HOME": str(folder.parent)}
    command = [sys.executable, "-m", "asv", *words]
    done = subprocess.run(command, cwd=folder, env=environment, text=True, timeout=1200, check=False, **how)
    print(done.stdout)
    return done


# One call each in an ordinary run, timed by ``make bench``.

CELLS = [("numba", 1), ("numba", 256), ("numpy", 256)]
ROUND_SECONDS = 1e-3  # a single call of B = 1 is too short for the clock


@pytest.mark.benchmark(min_time=ROUND_SECONDS)
@pytest.mark.parametrize(("contestant", "batch"), CELLS)
@pytest.mark.parametrize("op", ["draw", "update"])
def test_call(benchmark, op, contestant, batch):
    call, turns = prepare(Case(contestant, op, 100_000, batch)).call, itertools.count(1)
    benchmark.group = op
    benchmark(lambda: call(next(turns)))
