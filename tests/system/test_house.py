"""The house's rules: who may import whom, what the wheel holds, and that it works from another folder."""

import ast
import sys
import zipfile
from functools import cache, partial
from pathlib import Path

import pytest

from tests import budget, plain
from tests.committed import ROOT
from tests.nursery import run_python

OURS = {"impls", "dse", "benchmarks", "reports", "tests"}

# Which of our packages (or modules of them) a folder may import.
ALLOWED = {
    "impls": {"impls"},
    "dse": {"dse", "impls"},
    "benchmarks": {
        *(
            "benchmarks",
            "impls",
            "dse.accuracy",
            "dse.drift",
            "dse.learning_runs",
            "dse.records",
            "dse.stats",
            "dse.platforms",
        ),
    },
    "reports": {
        *(
            "reports",
            "dse",
            "impls.checks",
            "impls.cores",
            "impls.exits",
            "impls.fpga",
            "impls.replay.registry",
            "impls.sumtree.registry",
            "impls.terminal",
        ),
        *("impls.training.adapting", "impls.training.arrangement", "impls.training.weights", "impls.files"),
        *("impls.training.Workload", "impls.training.WorkloadError", "impls.training.identity", "impls.training.load"),
    },
    "reports/claims": {"reports.claims", "dse", "impls"},  # what others printed, held against laws and records
}
# The rooms of dse, from the top floor down: a room imports none above it.
ROOMS = (
    *("__init__", "__main__", "answers", "tuning", "mapping"),
    "race_runs",
    "race_trees",
    *("tree", "times", "solver"),
    *("fpga", "machines", "platforms", "accuracy", "drift", "answer", "estimate", "learning_runs", "records", "stats"),
)
# What a module may import while it is itself imported; heavier libraries are imported where they are used.
LIGHT = set(sys.stdlib_module_names) | {"numpy"}
HEAVY_BY_NATURE = {  # files and folders whose whole purpose is one library, imported only where they are used
    "impls/sumtree/numba_tree.py": {"numba"},
    "impls/sumtree/direct_calls.py": {"numba", "llvmlite"},
    "impls/sumtree/numba_turns.py": {"numba"},
    "impls/sumtree/kernels/": {"numba", "llvmlite"},
    "impls/sumtree/lanes.py": {"numba", "llvmlite"},
    **{
        f"impls/replay/{name}": {"numba", "llvmlite"} for name in ("direct_calls.py", "sync.py", "steps.py", "locking/")
    },
    "impls/plugins/": {
        *("stable_baselines3", "sb3_contrib", "tianshou", "torchrl", "tensordict", "ray", "torch", "gymnasium")
    },
    "impls/training/learners/torch_learner/": {"torch"},
    "impls/training/split/learner.py": {"torch"},
    "impls/training/learners/dense_learner/": {"numba", "llvmlite"},
    "impls/training/parallel/counter.py": {"numba"},
}


parsed = cache(lambda path: ast.parse(path.read_text(), str(path)))


def modules(folder):
    return sorted(path for path in (ROOT / folder).rglob("*.py"))


def imported(path, top_level_only=False):
    """Absolute names of the modules, and of the names out of modules, that a file imports."""
    tree = parsed(path)
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("folder", ALLOWED)
def test_imports_follow_the_arrows(folder):
    others = [ROOT / other for other in ALLOWED if other.startswith(f"{folder}/")]
    for path in modules(folder):
        for name in [] if any(path.is_relative_to(other) for other in others) else imported(path):
            if name.partition(".")[0] in OURS:
                assert any(name == allowed or name.startswith(allowed + ".") for allowed in ALLOWED[folder]), (
                    path,
                    name,
                )


def test_a_room_of_dse_imports_only_rooms_beneath_it():
    there = {path.stem for path in (ROOT / "dse").iterdir() if path.name != "__pycache__"} - {"py", "README"}
    assert there == set(ROOMS)
    for path in modules("dse"):
        room = path.relative_to(ROOT / "dse").with_suffix("").parts[0]
        for name in imported(path):
            package, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if package == "dse" and other in ROOMS:
                assert ROOMS.index(room) <= ROOMS.index(other), (path, name)


def test_no_file_and_no_folder_stands_in_a_circle():
    files = {}
    for folder in ALLOWED:
        for path in modules(folder):
            parts = path.relative_to(ROOT).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    arrows = {
        name: {other for other in map(partial(_module, files), imported(path)) if other and other != name}
        for name, path in files.items()
    }
    assert sum(map(len, arrows.values())) > len(files)
    assert circle(arrows) == []
    for depth in (1, 2, 3):  # of folders, and of files beside them, in one folder
        beside = {}
        for name, others in arrows.items():
            for other in others:
                here, there = name.split(".")[:depth], other.split(".")[:depth]
                if len(here) == len(there) == depth and here[:-1] == there[:-1] and here != there:
                    beside.setdefault(".".join(here), set()).add(".".join(there))
        assert circle(beside) == []


def _module(files, name):
    """The file that an imported name is, or is out of."""
    return next((one for one in (name, name.rpartition(".")[0]) if one in files), None)


def circle(arrows):
    """Nodes that stand in a circle, or lead into one: what is left once those without arrows are taken off.

    >>> circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"e"}})
    ['a', 'b', 'c']
    """
    left = {node: set(others) for node, others in arrows.items()}
    while free := {other for others in left.values() for other in others if not left.get(other)} | {
        node for node, others in left.items() if not others
    }:
        left = {node: others - free for node, others in left.items() if node not in free}
    return sorted(left)


def test_heavy_libraries_wait_until_they_are_used():
    for path in modules("impls"):
        where = str(path.relative_to(ROOT))
        extra = set().union(*(allowed for start, allowed in HEAVY_BY_NATURE.items() if where.startswith(start)))
        for name in imported(path, top_level_only=True):
            top = name.partition(".")[0]
            assert top in LIGHT | extra | OURS, (path, name)


def test_importing_the_package_loads_nothing_heavy():
    heavy = "{'numba', 'torch', 'gymnasium', 'cupy', 'pandas', 'scipy', 'amaranth', 'ray'}"
    ours = "impls, impls.training, impls.replay, impls.cluster, dse, benchmarks"
    code = f"import sys, {ours}; print(sorted({heavy} & set(sys.modules)))"
    assert run_python("-c", code).stdout.strip() == "[]"


def test_every_module_says_what_it_is_for():
    for folder in ALLOWED:
        for path in modules(folder):
            assert ast.get_docstring(parsed(path)), path


def test_the_wheel_holds_the_two_packages_and_works_elsewhere(tmp_path):
    run_python("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        assert {top for top in tops if not top.endswith(".dist-info")} == {"impls", "dse"}
        assert {
            "impls/py.typed",
            "dse/__init__.pyi",
            "impls/plugins/hosts.py",
            "dse/platforms/u200.toml",
            "impls/training/workloads/pong_dqn.toml",
        } <= set(archive.namelist())
        archive.extractall(tmp_path / "site")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); import impls; print(impls.__file__); "
        "tree = impls.make('numpy', 10); tree.update([1], 2.0); print(tree.total())"
    )
    where, total = run_python("-c", code, folder=tmp_path).stdout.splitlines()
    assert Path(where).is_relative_to(tmp_path / "site")
    assert total == "2.0"


def test_nothing_is_above_the_budget():
    files, limits = budget.texts(), budget.read()
    counted = budget.count_all(files)
    faults = budget.excesses(budget.sizes(counted), limits) + budget.breaches(counted, limits["guards"])
    assert faults == [], "take as much away elsewhere, or raise the budget in this commit and say why"


def test_names_and_docstrings_stay_as_readable_as_they_are():
    limits, findings = budget.read(), plain.find_all(budget.texts())
    faults = budget.excesses({"plain": plain.count(findings)}, limits)
    assert faults == [], plain.list_excess(findings, limits["plain"], plain.find_all(budget.texts_at("HEAD")))


def test_a_fault_leaves_only_with_its_code():
    assert budget.lost_faults(budget.texts_at(budget.read()["start"]), budget.texts()) == []


def test_tests_read_no_records_of_the_checkouts_owner():
    """They read ``tests/data``, and the committed records as the last commit has them."""
    readers = {
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if 'ROOT / "results"' in path.read_text(encoding="utf-8") and path != Path(__file__)
    }
    assert readers == {
        "tests/committed.py",
        "tests/oldest.py",  # which runs commands in a copy
        "tests/oracles/rtl/fit.py",  # which fits what was synthesized
    }


def test_tests_have_what_is_quoted_and_synthesized_as_it_is():
    for pattern in ("quoted/*.toml", "quoted/claims/*", "fpga/*"):
        ours, theirs = (
            {path.name: path.read_bytes() for path in (root / "results").glob(pattern)}
            for root in (ROOT, ROOT / "tests/data")
        )
        assert ours == theirs
