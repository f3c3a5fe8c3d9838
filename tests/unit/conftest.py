"""What makes a test one of a unit: it starts no process and loads no torch, so that it takes milliseconds."""

import os
import subprocess
import sys

import pytest

from dse.platforms import fingerprint
from reports.claims import quoted
from tests.unit.judging import QUOTED


@pytest.fixture(scope="session", autouse=True)
def _known_machine():
    """Ask once what this machine is, which starts a process where there may be GPUs."""
    fingerprint()


@pytest.fixture(scope="session")
def found():
    """What the papers print."""
    return quoted.read(QUOTED)


@pytest.fixture(autouse=True)
def _in_this_process_alone(monkeypatch):
    """Refuse to start a process, and to load torch where nothing has loaded it before."""

    def refuse(*_, **__):
        pytest.fail("a test that starts a process belongs to tests/system")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    if hasattr(os, "fork"):
        monkeypatch.setattr(os, "fork", refuse)
    loaded = "torch" in sys.modules
    yield
    assert loaded or "torch" not in sys.modules, "a test that loads torch belongs to tests/system"
