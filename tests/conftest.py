"""Makes sure the packages under test are this checkout's, and that hypothesis repeats itself."""

import functools
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch's: on networks as small as the tests' more of them only wait
os.environ.pop("GIT_DIR", None)  # a hook sets them, and tests make commits in repositories of their own
os.environ.pop("GIT_WORK_TREE", None)
os.environ.pop("GIT_INDEX_FILE", None)

import pytest
from hypothesis import settings

import dse
import dse.records
import impls
from dse.platforms import busy
from impls.cores import allowed_cpus
from impls.sumtree.cuda import device, emulation
from tests import durations, fake_cupy
from tests.committed import CHECKOUT
from tests.grids import without_grids
from tests.plugin_hosts import SkippedDoctests
from tests.skips import StrictSkips

ROOT = Path(__file__).resolve().parent.parent

for package in (impls, dse):
    here = Path(package.__file__ or "").resolve()
    assert here.is_relative_to(ROOT), (
        f"{package.__name__} is {here}, not this checkout's: an unrelated package shadows it"
    )

os.chdir(CHECKOUT)  # for commands that read results where they are, and processes that run them

collect_ignore = ["warm_replays.py"]  # importing it makes replays, for the server that imports it alone


def _once(read_folder):
    """Let each process read the records that the checkout ships once, for most questions begin with reading them."""
    kept = {}

    @functools.wraps(read_folder)
    def read(folder, *arguments, **options):
        folder = Path(folder)
        if not folder.resolve().is_relative_to(CHECKOUT / "results"):
            return read_folder(folder, *arguments, **options)
        files = tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*.jsonl")))
        key = files, arguments, tuple(options.items())
        if key not in kept:
            kept[key] = read_folder(folder, *arguments, **options)
        return list(kept[key])

    return read


dse.records.read_folder = _once(dse.records.read_folder)  # before any module has it by name

import dse.mapping.question  # noqa: E402


class _Asked:
    """Answers each question about the records that the checkout ships once a process, for many tests ask the same.

    Where a test may patch what makes an answer, every question is answered anew.
    """

    def __init__(self, answer):
        self._answer, self._kept, self.may_differ = answer, {}, True

    def __call__(self, question):
        results = Path(question.results).resolve()
        if self.may_differ or results != CHECKOUT / "results":
            return self._answer(question)
        key = repr(question), Path.cwd()  # every number of the platform, the workload and a user's own times
        if key not in self._kept:
            self._kept[key] = self._answer(question)
        return self._kept[key]


_asked = dse.mapping.question.answer_question = _Asked(dse.mapping.question.answer_question)

import dse.published.mappings as table  # noqa: E402  # which has what is above by name


def _kept(function, setting):
    """Let each process call a function once for the same arguments, which page after page and test after test ask."""
    kept = {}

    @functools.wraps(function)
    def answer(*arguments):
        key = repr((arguments, setting()))
        if key not in kept:
            kept[key] = function(*arguments)
        return kept[key]

    return answer


table._holds = _kept(table._holds, lambda: table.FACTORS)  # how far off the times of Table V may be


def _bundled(library):
    """Let each process make the charts' script once, not once a folder that a page is built in: that takes seconds."""
    look, kept = sys.modules["reports.look"], []

    @functools.wraps(library)
    def script(folder):
        path = folder / look.BUNDLE.format(look.version("vl-convert-python"))
        if path.is_file():
            return library(folder)
        if kept:
            path.write_text(kept[0], encoding="utf-8")
        else:
            kept.append(library(folder))
        return kept[0]

    return script


settings.register_profile("fanout", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("fanout")


def pytest_collection_modifyitems(items):
    durations.sort_longest_first(items, ROOT)


def pytest_collection_finish(session):
    if look := sys.modules.get("reports.look"):
        look._library = _bundled(look._library)


def pytest_addoption(parser):
    parser.addoption("--strict-skips", action="store_true", help="fail where a test is skipped that need not be")
    parser.addoption("--keep-durations", type=Path, metavar="FILE", help="add to a file what each file of tests took")


def pytest_configure(config):
    config.pluginmanager.register(SkippedDoctests())
    if hasattr(config, "workerinput"):  # whose reports come to the process that started it
        return
    if config.getoption("--strict-skips"):
        config.pluginmanager.register(StrictSkips())
    if path := config.getoption("--keep-durations"):
        config.pluginmanager.register(durations.Durations(path))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    _asked.may_differ = "monkeypatch" in getattr(item, "fixturenames", ())


@pytest.fixture(autouse=True)
def _idle(request):
    """Let a test's own process find no load on the machine, whatever runs there, but in the tests about that."""
    with pytest.MonkeyPatch.context() as patches:
        if request.module.__name__ != "tests.system.test_busy":
            patches.setattr(busy, "load", lambda: 0.0)
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
def without_laws(monkeypatch):
    """Leaves those figures out of reports that rest on laws, which are the same in all and most of the time."""
    pytest.importorskip("pandas", reason="reports need pandas")
    from reports.sections import fpga, mapping, published  # noqa: PLC0415

    for topic in (fpga, mapping, published):
        monkeypatch.setattr(topic, "CHARTS", ())
    without_grids(monkeypatch)


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
