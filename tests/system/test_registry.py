"""The registry is the folder: adding an implementation touches one file."""

import os
import shutil
import subprocess
import sys

import pytest

import impls
from impls.checks import closest, near
from tests.committed import ROOT

TWIN = '''"""The NumPy tree under another name."""

from .numpy_tree import NumpyTree


class TwinTree(NumpyTree):
    """An implementation that the test adds."""
'''


def test_names_and_reasons():
    assert {"python", "numpy", "numba", "flat", "cumsum"} <= set(impls.names())
    assert list(impls.names()) == sorted(impls.names())
    assert impls.why_not("numpy") is None
    for name in ("nope", "numbaa", "../numpy"):
        assert impls.why_not(name).endswith(("?", "."))
    assert "Did you mean 'numba'?" in impls.why_not("numbaa")
    with pytest.raises(RuntimeError, match="There is no implementation 'nope'"):
        impls.make("nope", 10)


def test_make_passes_options_and_suggests_the_right_one():
    assert impls.make("numba", 1_000_000).capacity == 1_000_000
    with pytest.raises(ValueError, match=r"no option 'propogate'.*Did you mean 'propagate'\?"):
        impls.make("numpy", 10, propogate="delta")
    with pytest.raises(ValueError, match=r"one of 'recompute', 'delta', not 'detla'; did you mean 'delta'\?"):
        impls.make("numpy", 10, propagate="detla")
    with pytest.raises(ValueError, match=r"it has fanout, dtype, threads, validate, minimum\.$"):
        impls.make("flat", 10, layout="prefix")
    with pytest.raises(ValueError, match=r"it has fanout, .*threads, .*minimum, propagate, .*fanout=\.$"):
        impls.make("numba", 10, K=4)


MISSPELLED = {
    "memroy_gb": "memory_gb",
    "dqm": "dqn",
    "floot32": "float32",
    "recomend": "recommend",
    "u200x": "u200",
    **dict.fromkeys(("h100", "tpu", "float16", "u250", "layout", "cpu"), ""),
}


@pytest.mark.parametrize("word", MISSPELLED)
def test_only_what_may_be_a_misspelling_has_a_suggestion(word):
    known = ["h200", "u200", "gpu", "float32", "float64", "memory_gb", "dqn", "recommend", "fanout", "fpga"]
    assert closest(word, known) == [right for right in [MISSPELLED[word]] if right]
    assert near(word, known) == (f"; did you mean {MISSPELLED[word]!r}?" if MISSPELLED[word] else "")


@pytest.fixture
def copy(tmp_path):
    """A copy of the package and its tests, and a way to run Python in it."""
    for folder in ("impls", "dse", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    def run(*arguments):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return tmp_path / "impls" / "sumtree", run


def test_a_file_dropped_in_is_an_implementation(copy):
    folder, run = copy
    (folder / "twin_tree.py").write_text(TWIN)
    shown = run("-c", "import impls; print(impls.names()); print(impls.make('twin', 100, fanout=4, padding='full'))")
    assert "'twin'" in shown.stdout, shown.stderr
    assert "TwinTree(capacity=100, fanout=4" in shown.stdout, shown.stderr
    tests = run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/system/test_contract.py", "-k", "twin and duplicate"
    )
    assert tests.returncode == 0, tests.stdout[-3000:]
    assert " passed" in tests.stdout


def test_only_a_missing_library_becomes_a_reason(copy):
    folder, run = copy
    (folder / "far_tree.py").write_text("import library_that_is_nowhere\n")
    (folder / "bad_tree.py").write_text("from .contract import name_that_is_nowhere\n")
    (folder / "lost_tree.py").write_text("from . import module_that_is_nowhere\n")
    (folder / "none_tree.py").write_text("from .numpy_tree import NumpyTree\n")
    shown = run("-c", "import impls; print(impls.why_not('far'))")
    assert "'library_that_is_nowhere'" in shown.stdout
    assert shown.stdout.endswith("pip install library_that_is_nowhere\n")
    made = run("-c", "import impls; impls.make('far', 10)")
    assert "needs the module 'library_that_is_nowhere'" in made.stderr.splitlines()[-1]
    for name, words in (("bad", "name_that_is_nowhere"), ("lost", "module_that_is_nowhere"), ("none", "exactly one")):
        raised = run("-c", f"import impls; impls.why_not({name!r})")
        assert raised.returncode != 0
        assert words in raised.stderr.splitlines()[-1]
