"""Makes sure the packages under test are this checkout's, and that hypothesis repeats itself."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch's: on networks as small as the tests' more of them only wait

import pytest
from hypothesis import settings

import dse
import impls
from dse.platforms import checkout
from impls.cores import allowed_cpus
from impls.sumtree.cuda import device, emulation
from tests import branches, durations, fake_cupy
from tests.committed import DATA
from tests.plugin_hosts import SkippedDoctests
from tests.skips import StrictSkips

ROOT = Path(__file__).resolve().parent.parent

for package in (impls, dse):
    here = Path(package.__file__ or "").resolve()
    assert here.is_relative_to(ROOT), (
        f"{package.__name__} is {here}, not this checkout's: an unrelated package shadows it"
    )

collect_ignore = ["warm_replays.py"]  # importing it makes replays, for the server that imports it alone


settings.register_profile("fanout", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("fanout")


def pytest_collection_modifyitems(items):
    durations.sort_longest_first(items)


def pytest_collection_finish(session):
    os.chdir(DATA)  # where commands that are run with no ``--results`` find the tests' own


def pytest_addoption(parser):
    parser.addoption("--strict-skips", action="store_true", help="fail where a test is skipped that need not be")
    parser.addoption("--keep-durations", action="store_true", help="keep what each file of tests took")


def pytest_configure(config):
    for name in [name for name in os.environ if name.startswith("GIT_") and not name.startswith("GIT_CONFIG")]:
        del os.environ[name]  # a hook sets them, and tests make commits in repositories of their own
    config.pluginmanager.register(SkippedDoctests())
    if branches.is_by_test():
        config.pluginmanager.register(branches.Contexts())
    if hasattr(config, "workerinput"):  # whose reports come to the process that started it
        return
    if config.getoption("--strict-skips"):
        config.pluginmanager.register(StrictSkips())
    if config.getoption("--keep-durations"):
        config.pluginmanager.register(durations.Durations())


@pytest.fixture(autouse=True)
def _idle():
    """Let a test's own process find no load on the machine, whatever runs there."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(checkout, "read_load", lambda: 0.0)
        yield


@pytest.fixture(autouse=True)
def _free():
    """Leave the tests' own process on the processors that it had, wherever a test keeps it."""
    allowed = allowed_cpus()
    yield
    if allowed != allowed_cpus():
        os.sched_setaffinity(0, allowed)


@pytest.fixture(autouse=True)
def _still(request):
    """Let no test's own process time sentinels, which takes seconds, but those that are about them."""
    sentinels = sys.modules.get("benchmarks.sentinels")
    with pytest.MonkeyPatch.context() as patches:  # a test that asks for ``monkeypatch`` is one that patches
        if sentinels and request.module.__name__ != "tests.system.test_between_runs":
            patches.setattr(sentinels.Sentinels, "visit", lambda self, timed: ())
            patches.setattr(sentinels.Sentinels, "look", lambda self: None)
        yield


@pytest.fixture
def with_cupy(monkeypatch):
    """Puts a stand-in for CuPy in its place; called with the number of devices, or the error of counting them."""
    if reason := emulation.why_not():
        pytest.skip(reason)

    def put(devices=1):
        monkeypatch.setitem(sys.modules, "cupy", fake_cupy.module(devices))
        device.why_not.cache_clear()
        device.load_text.cache_clear()

    yield put
    monkeypatch.undo()
    device.why_not.cache_clear()
    device.load_text.cache_clear()
