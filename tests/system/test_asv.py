"""asv: its configuration and grid, and that across commits it tells a slower tree from the same one."""

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from asv.config import Config

import impls
from benchmarks.history import bench_trees
from benchmarks.history.bench_trees import CONTESTANTS, Draw, Fanout, Memory, Modeled, Step, Update
from tests.nursery import run_python
from tests.repositories import ROOT, Repository
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


# What asv reads: it checks neither the configuration's keys nor that the grid is all it finds.


def test_the_configuration_has_only_keys_that_asv_knows():
    found = json.loads((ROOT / "asv.conf.json").read_text())
    assert set(found) - {"version"} <= set(vars(Config()))
    assert found["version"] == Config.api_version
    assert set(found["matrix"]) <= {"req", "env", "env_nobuild"}
    assert f"asv_runner=={found['matrix']['req']['pip+asv_runner'][0]}" in (ROOT / "pyproject.toml").read_text()
    assert (ROOT / found["benchmark_dir"] / "bench_trees.py").is_file()


def test_asv_finds_the_grid_and_takes_nothing_else_for_a_benchmark(tmp_path):
    code = (
        f"import sys; sys.path.append({str(ROOT)!r}); from asv_runner import _aux, discovery; "
        f"root = {str(ROOT / 'benchmarks' / 'history')!r}; _aux.update_sys_path(root); "
        "print(*(found.name for found in discovery.disc_benchmarks(root)))"
    )
    done = run_python("-c", code, folder=tmp_path)
    assert sorted(done.stdout.split()) == sorted(f"bench_trees.{kind.__name__}.{method}" for kind, method in GRID)


@pytest.mark.parametrize("name", ["history/bench_trees", "history/__init__", "cases", "clock", "worker"])
def test_what_is_timed_beside_another_commits_package_asks_little_of_it(name):
    found = {one for one in imported(ROOT / "benchmarks" / f"{name}.py", True) if one.partition(".")[0] in OURS}
    modules = {one.rpartition(".")[0] for one in found if one.startswith("benchmarks")}
    assert modules <= ({"benchmarks.cases", "benchmarks.clock"} if name in ("clock", "worker") else set())
    others = {one for one in found if not one.startswith("benchmarks")}
    assert others <= {"impls", "impls.SumTree", "impls.sumtree.oracle.Oracle"}


def test_a_commit_from_before_trees_had_traits_is_timed(monkeypatch):
    monkeypatch.delattr(impls, "traits")
    for (kind, _), cell in GRID.items():
        kind().setup(*cell)


# The grid.


def test_the_axes_are_literals_and_the_checkouts_file_names():
    assert tuple(CONTESTANTS) == impls.names()
    for kind, method in GRID:
        assert len(kind.params) == len(kind.param_names)
        assert list(inspect.signature(getattr(kind, method)).parameters)[1:] == list(kind.param_names)
        assert all(type(value) in (str, int) for axis in kind.params for value in axis)


@pytest.mark.parametrize(("kind", "method"), TIMED)
def test_a_method_is_one_call_on_the_next_inputs(kind, method):
    cell = GRID[kind, method]
    one, again = kind(), kind()
    one.setup(*cell)
    called = []
    one.call = called.append
    for _ in range(2):
        getattr(one, method)(*cell)
    again.setup(*cell)
    assert called == [bench_trees.WARM_UP, bench_trees.WARM_UP + 1]
    assert next(again.turns) == bench_trees.WARM_UP + 2, "setup made the tree anew"
    getattr(again, method)(*cell)


def test_a_step_over_k_is_of_a_tree_of_that_k(monkeypatch):
    asked = []
    prepare = bench_trees.prepare
    monkeypatch.setattr(bench_trees, "prepare", lambda case: asked.append(case) or prepare(case))
    bench_trees._warm.cache_clear()
    for fanout in (4, 8):
        Fanout().setup("numpy", fanout, 300, 256)
    assert [case.fanout for case in asked] == [4, 8]
    assert len(Fanout.params[1]) > 1


def test_memory_is_the_trees_own_account():
    cell = GRID[Memory, "track_bytes"]
    memory = Memory()
    memory.setup(*cell)
    memory.peakmem_build(*cell)
    assert memory.track_bytes(*cell) == impls.make(*cell).nbytes
    assert Memory.unit == "bytes"


def test_what_is_measured_is_not_tracked_as_modeled():
    with pytest.raises(NotImplementedError, match="numpy is timed"):
        Modeled().setup("numpy", "draw", 300, 256)


def test_what_is_modeled_is_tracked_and_never_timed():
    cell = GRID[Modeled, "track_modeled_seconds"]
    tracked = Modeled()
    tracked.setup(*cell)
    assert tracked.track_modeled_seconds(*cell) == impls.make("fpga", 300).modeled_seconds("draw", 256)
    for kind, method in TIMED:
        with pytest.raises(NotImplementedError, match="fpga is modeled, not timed"):
            kind().setup("fpga", *GRID[kind, method][1:])


@pytest.mark.parametrize(
    ("contestant", "capacity", "reason"),
    [
        ("nobody", 300, "There is no implementation 'nobody'"),
        ("python", 1_000_000, "python is too slow with more than"),
    ],
)
def test_a_cell_that_cannot_be_had_is_skipped_with_the_reason(contestant, capacity, reason):
    with pytest.raises(NotImplementedError, match=reason):
        Draw().setup(contestant, capacity, 256)
    with pytest.raises(NotImplementedError, match=reason):
        Memory().setup(contestant, capacity)
    with pytest.raises(NotImplementedError, match=reason):
        Modeled().setup(contestant, "draw", capacity, 256)


def test_a_tree_that_refuses_the_case_is_skipped_and_a_wrong_answer_is_not(monkeypatch):
    def refuse(case):
        raise ValueError("not of that size")

    monkeypatch.setattr(bench_trees, "prepare", refuse)
    with pytest.raises(NotImplementedError, match="not of that size"):
        Update().setup("numpy", 301, 256)

    class Wrong(Exception):
        pass

    def wrong(case):
        raise Wrong("3 of 256")

    monkeypatch.setattr(bench_trees, "prepare", wrong)
    with pytest.raises(Wrong):
        Update().setup("numpy", 301, 256)


# Across commits, in a repository of its own: this checkout's files, the same code again, every sample taken twice.
# asv installs its environment, which takes the network or a cache of packages.

DRAWS = ["--bench", r"Draw\.time_draw\('numba'"]
QUICKLY = ["-a", "rounds=1", "-a", "repeat=(1,1,0.1)", "-a", "warmup_time=0"]
FACTOR = "1.5"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    made = Repository(tmp_path_factory.mktemp("asv") / "fanout")
    made.same, made.slow = made.same_code(), made.slow_sampling()
    assert asv(made.folder, "machine", "--yes").returncode == 0
    yield made
    shutil.rmtree(made.folder / ".asv", ignore_errors=True)  # pytest keeps the folders of three runs, and this is large


def asv(folder, *words):
    """asv, keeping what it knows of the machine beside the repository instead of in the user's home."""
    home = Path.home()
    caches = {"XDG_CACHE_HOME": str(home / ".cache"), "XDG_CONFIG_HOME": str(home / ".config")}
    done = subprocess.run(
        [sys.executable, "-m", "asv", *words],
        cwd=folder,
        env={**caches, **os.environ, "HOME": str(folder.parent)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
        check=False,
    )
    print(done.stdout)
    return done


def continuous(folder, base, branch):
    cpu = str(max(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else "0"
    careful = ["-a", "rounds=4", "--cpu-affinity", cpu, "--factor", FACTOR]
    return asv(folder, "continuous", *careful, *DRAWS, base, branch)


@pytest.mark.slow
def test_the_same_code_is_not_flagged(repository):
    done = continuous(repository.folder, repository.base, repository.same)
    assert done.returncode == 0
    assert "BENCHMARKS NOT SIGNIFICANTLY CHANGED" in done.stdout


@pytest.mark.slow
def test_draws_that_take_twice_as_long_are_flagged(repository):
    done = continuous(repository.folder, repository.base, repository.slow)
    assert done.returncode == 1
    assert "PERFORMANCE DECREASED" in done.stdout
    flagged = [line for line in done.stdout.splitlines() if line.startswith("| + ")]
    assert flagged
    assert all("bench_trees.Draw.time_draw('numba'" in line for line in flagged)
    compared = asv(repository.folder, "compare", "--factor", FACTOR, repository.base, repository.slow)
    assert "bench_trees.Draw.time_draw('numba'" in compared.stdout
    assert compared.returncode == 0, "the README says that compare exits 0 whatever it finds"


@pytest.mark.slow
def test_every_cell_runs_or_is_skipped_and_is_published(repository):
    assert asv(repository.folder, "run", *QUICKLY, "--bench", "bench_trees", "HEAD^!").returncode == 0
    assert asv(repository.folder, "publish").returncode == 0
    page = repository.folder / ".asv" / "html"
    assert (page / "index.html").is_file()
    for kind, method in GRID:
        assert list(page.rglob(f"bench_trees.{kind.__name__}.{method}.json")), method
