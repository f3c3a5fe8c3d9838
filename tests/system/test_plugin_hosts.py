"""A host that is missing or of another version is told in one sentence; the trees that tests break are broken."""

import copy
import importlib.metadata
import importlib.util
import pickle
import re

import numpy as np
import pytest

import impls
from impls.plugins.hosts import require
from tests.contestants import DEFAULTS
from tests.nursery import run_python
from tests.plugin_hosts import FOLDER, PLUGINS, broken, plugin, program
from tests.skips import is_expected


@pytest.fixture
def installed(monkeypatch):
    """Called with a version: the host `some_host` is installed in it; with None, it does not tell its version."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name == "some_host" else None)

    def put(version):
        monkeypatch.setattr(
            importlib.metadata, "version", lambda package: str(version) if package == "some-host" else "0"
        )

    return put


@pytest.mark.parametrize("version", ["2.9", "2.9.0", "2.9.2", "2.10", "v2.9.1", "2.9.0+cpu", "2.99.1.dev3", "2.9rc1"])
def test_versions_within_the_bounds_are_taken(installed, version):
    installed(version)
    require("some_host", "2.9", "3")


@pytest.mark.parametrize("version", ["2.8.9", "2", "1.99", "3", "3.0", "3.0.0", "3.0rc1", "10.0"])
def test_versions_outside_the_bounds_are_refused_in_a_sentence_with_the_remedy(installed, version):
    installed(version)
    with pytest.raises(ImportError) as refused:
        require("some_host", "2.9", "3")
    assert type(refused.value) is ImportError
    assert f"installed {version}; install one by: pip install 'some-host>=2.9,<3'" in str(refused.value)


def test_a_missing_host_is_told_in_a_sentence_with_the_remedy(installed):
    with pytest.raises(ModuleNotFoundError) as refused:
        require("other_host", "1.2", "1.5", package="other[all]")
    assert refused.value.name == "other_host"
    assert "none is installed; install one by: pip install 'other[all]>=1.2,<1.5'" in str(refused.value)


def test_a_host_that_pip_did_not_install_states_its_own_version(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "stated_host.py").write_text("__version__ = '1.3'\n")
    (tmp_path / "silent_host.py").write_text("")
    require("stated_host", "1", "2")
    with pytest.raises(ImportError, match=r"not with the installed 1\.3"):
        require("stated_host", "2", "3")
    with pytest.raises(ImportError, match="does not tell its version; install one by"):
        require("silent_host", "1", "2")


def test_the_package_and_its_check_import_no_host():
    code = "import sys, impls.plugins.hosts; print(sorted({'torch', 'gymnasium', 'numba', 'ray'} & set(sys.modules)))"
    assert run_python("-c", code).stdout.strip() == "[]"


@pytest.mark.parametrize("absent", ["stable_baselines3", "torchrl.data", "impls.plugins.sb3", "numba"])
def test_a_plug_in_is_skipped_only_for_a_missing_host_and_that_reason_is_on_the_short_list(monkeypatch, absent):
    def missing(name):
        raise ModuleNotFoundError(f"no module named {name}", name=absent)

    monkeypatch.setattr(importlib, "import_module", missing)
    if absent in ("impls.plugins.sb3", "numba"):
        with pytest.raises(ModuleNotFoundError, match=r"no module named impls\.plugins\.sb3"):
            plugin("sb3")
        return
    with pytest.raises(pytest.skip.Exception) as skipped:
        plugin("sb3")
    assert is_expected(str(skipped.value))
    assert f"'sb3' needs {absent}: make plugins" in str(skipped.value)


@pytest.mark.parametrize("name, options", DEFAULTS)
def test_a_broken_tree_draws_the_leaf_to_the_right_and_is_else_like_the_right_one(name, options):
    uniforms, mass = (np.arange(8) + 0.5) / 8, np.array([0.0, 1.5, 6.9])
    right = impls.make(name, 7, fanout=4, **options)
    with broken():
        wrong = impls.make(name, 7, fanout=4, **options)
        again = [pickle.loads(pickle.dumps(wrong))]
    again.append(copy.deepcopy(wrong))
    for tree in (right, wrong, *again):
        tree.update(range(7), [1.0, 2.0, 0.0, 4.0, 1.0, 0.0, 3.0])
        assert tree.total() == 11.0
        assert isinstance(tree, type(right))
    draws = (
        lambda tree: tree.sample(uniforms)[0],
        lambda tree: tree.prefix_sum_index(mass),
        lambda tree: tree.sample_distinct(uniforms[:3])[0],
    )
    for tree in (wrong, *again):
        for draw in draws:
            assert list(impls.to_numpy(draw(tree))) == list((impls.to_numpy(draw(right)) + 1) % 7)
        indices, priorities = map(impls.to_numpy, tree.sample(uniforms))
        assert list(priorities) == list(impls.to_numpy(tree.get(indices)))
    assert type(impls.make(name, 7, **options)) is type(right)


def test_the_readme_shows_lines_of_an_example_for_every_plugin():
    (shown,) = re.findall(r"```python\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    left = {line.partition("  #")[0] for line in shown.splitlines() if line}
    for name in PLUGINS:
        code = program(name)
        compile(code, name, "exec")
        assert f"impls.plugins.{name}" in shown and left & set(code.splitlines()), name
        left -= set(code.splitlines())
    assert not left
