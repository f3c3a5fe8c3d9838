"""The house's rules: who may import whom, what the wheel holds, and that it works from another folder."""

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = {"impls", "dse", "benchmarks", "reports", "tests"}

# Which of our packages (or modules of them) a folder may import.
ALLOWED = {
    "impls": {"impls"},
    "dse": {"dse", "impls"},
    "benchmarks": {"benchmarks", "impls", "dse.accuracy", "dse.records", "dse.stats", "dse.platforms"},
    "reports": {"reports", "dse"},
}
# What a module may import while it is itself imported; heavier libraries are imported where they are used.
LIGHT = {
    "impls": set(sys.stdlib_module_names) | {"numpy"},
    "benchmarks": set(sys.stdlib_module_names) | {"numpy"},
}
HEAVY_BY_NATURE = {  # files and folders whose whole purpose is one library, imported only where they are used
    "impls/sumtree/numba_tree.py": {"numba"},
    "impls/sumtree/numba_turns.py": {"numba"},
    "impls/sumtree/numba_kernels.py": {"numba"},
    "impls/sumtree/lanes.py": {"numba", "llvmlite"},
    "impls/fpga/rtl/": {"amaranth"},
    **{
        f"impls/training/{name}.py": {"torch"}
        for name in ("networks", "learner", "dqn", "ddpg", "td3", "sac", "parallel", "checkpoint")
    },
}


def modules(folder):
    return sorted(path for path in (ROOT / folder).rglob("*.py"))


def imported(path, top_level_only=False):
    """Absolute names of the modules, and of the names out of modules, that a file imports."""
    tree = ast.parse(path.read_text(), str(path))
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
    for path in modules(folder):
        for name in imported(path):
            if name.partition(".")[0] in OURS:
                assert any(name == allowed or name.startswith(allowed + ".") for allowed in ALLOWED[folder]), (
                    path,
                    name,
                )


@pytest.mark.parametrize("folder", LIGHT)
def test_heavy_libraries_wait_until_they_are_used(folder):
    for path in modules(folder):
        where = str(path.relative_to(ROOT))
        extra = set().union(*(allowed for start, allowed in HEAVY_BY_NATURE.items() if where.startswith(start)))
        for name in imported(path, top_level_only=True):
            top = name.partition(".")[0]
            assert top in LIGHT[folder] | extra | OURS, (path, name)


def test_importing_the_package_loads_nothing_heavy():
    heavy = "{'numba', 'torch', 'gymnasium', 'cupy', 'pandas', 'scipy', 'amaranth'}"
    code = f"import sys, impls, impls.training, impls.replay, dse; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_module_says_what_it_is_for():
    for folder in ALLOWED:
        for path in modules(folder):
            assert ast.get_docstring(ast.parse(path.read_text())), path


def test_the_wheel_holds_the_two_packages_and_works_elsewhere(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        assert {top for top in tops if not top.endswith(".dist-info")} == {"impls", "dse"}
        assert {"impls/py.typed", "dse/platforms/u200.toml", "impls/training/workloads/pong_dqn.toml"} <= set(
            archive.namelist()
        )
        archive.extractall(tmp_path / "site")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); import impls; print(impls.__file__); "
        "tree = impls.make('numpy', 10); tree.update([1], 2.0); print(tree.total())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    where, total = done.stdout.splitlines()
    assert Path(where).is_relative_to(tmp_path / "site")
    assert total == "2.0"
