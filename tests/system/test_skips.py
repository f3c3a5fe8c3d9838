"""A skip that is not on the short list fails the run, also where workers run it."""

import os
import subprocess
import sys

import pytest

from tests.committed import ROOT
from tests.run import PYTEST
from tests.skips import EXPECTED, REMEDY, is_expected

TESTS = """
import pytest

def test_passes(): pass

@pytest.mark.skip(reason="there is no CUDA device")
def test_of_a_device(): pass
"""
UNEXPECTED = """
import pytest
missing = pytest.importorskip("no_such_library")

def test_of_a_library(): pass
"""
CONFTEST = """
from tests.skips import StrictSkips

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(StrictSkips())
"""


def run(folder, *words):
    """Run pytest in a folder, with no plugin that is not named; returns its exit code and output."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    more = {"PYTHONPATH": str(ROOT), "COLUMNS": "200", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **more}, capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("workers", [[], ["-p", "xdist", "-n", "1"]], ids=["here", "workers"])
def test_an_unexpected_skip_fails_the_run_and_is_named(tmp_path, workers):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_expected.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    if not workers:
        code, shown = run(tmp_path)
        assert (code, "unexpected" in shown) == (0, False), shown
    (tmp_path / "test_other.py").write_text(UNEXPECTED)
    code, shown = run(tmp_path, *workers)
    assert code == 1, shown
    assert "test_other.py: could not import 'no_such_library'" in shown
    assert REMEDY in shown
    assert "test_of_a_device" not in shown


def test_what_is_expected_is_a_short_list():
    assert len(EXPECTED) <= 8
    for reason in ("Implementation 'cupy' needs the module 'cupy', which is not installed.", "this system has no fork"):
        assert is_expected(reason)
    for reason in ("could not import 'torch'", "learners need the extra `train`", "cuda-bindings is not installed", ""):
        assert not is_expected(reason)


def test_every_run_of_the_tests_is_strict():
    assert "--strict-skips" in PYTEST
    text = "".join((ROOT / name).read_text() for name in ("Makefile", ".ci/run"))
    commands = [line for line in text.splitlines() if "-m pytest" in line and "--benchmark-only" not in line]
    assert len(commands) >= 2
    assert all("--strict-skips" in line for line in commands)
