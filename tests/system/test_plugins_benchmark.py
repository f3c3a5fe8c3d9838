"""The command plugins: hosts take turns with ours, trees are timed inside a step, what is not there is a record."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import impls
from benchmarks import __main__ as cli
from benchmarks import workers
from benchmarks.libraries.base import OURS, Host, hosts
from benchmarks.libraries.ours import PythonBuffer as OurBuffer
from benchmarks.topics.plugins import STEP, TREE, command, worker
from benchmarks.topics.plugins.worker import Inside
from benchmarks.workers import WorkerError
from dse.records import read_file

pytest.importorskip("numba")
THEIRS = "theirs"


class Counted:
    """A loop that counts its turns."""

    def __init__(self):
        self.steps = 0

    def turn(self):
        self.steps += 1


class Made(Host):
    """A host whose own replay and ours are both ours, and whose third kind cannot be made."""

    package, module = "numpy", "numpy"
    kinds = (THEIRS, OURS, "missing")
    limits = ("nothing is left out",)

    def buffer(self, kind, capacity, seed):
        if kind == "missing":
            raise ModuleNotFoundError("No module named 'nowhere'")
        return OurBuffer(capacity, seed)

    def loop(self, task, kind, seed):
        return Counted()

    def trees(self):
        return [(impls.traits("numba"), ("update", "sample", "get", "total"))]


@pytest.fixture
def made(monkeypatch):
    """The host `made` is the only one, and its worker is this process."""
    monkeypatch.setitem(hosts(), "made", Made())
    monkeypatch.setattr(command, "Bounded", Here)
    monkeypatch.setattr(workers, "Bounded", Here)
    Here.error = None


class Here:
    """Stands in for a worker's process."""

    error = None

    def __init__(self, python, module):
        assert module == "benchmarks.topics.plugins.worker"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def ask(self, what, **asked):
        if self.error and what == "measure":
            raise WorkerError(self.error)
        answer = getattr(worker._Session(), what)(**json.loads(json.dumps(asked)))
        return json.loads(json.dumps(answer))


def asked(tmp_path, *words):
    python = tmp_path / "python"
    python.touch()
    return cli.main(["run", "plugins", "--python", str(python), "--results", str(tmp_path), *words])


def run(tmp_path, *words):
    code = asked(tmp_path, "--smoke", "--hosts", "made", *words)
    (path,) = tmp_path.glob("*/plugins.jsonl")
    return code, read_file(path)


@pytest.mark.usefixtures("made")
def test_kinds_are_timed_with_their_trees_and_a_run_goes_on(tmp_path, capsys):
    code, found = run(tmp_path, "--tasks", "buffer")
    assert code == 0
    cells = {(one.options["kind"], one.op, one.primitive): one for one in found}
    assert len(cells) == len(found) == 7
    for kind in (THEIRS, OURS):
        step, tree = cells[kind, STEP, "plugin"], cells[kind, TREE, "plugin"]
        assert 0 < tree.seconds < step.seconds
        assert (step.capacity, step.batch, step.source, step.reason) == (2_000, 32, "measured", "nothing is left out")
        assert step.machine["packages"]["numpy"] == np.__version__
    assert cells[THEIRS, STEP, "plugin_again"].samples_seconds
    missing = cells["missing", STEP, "plugin"]
    assert (missing.status, missing.reason) == ("skipped", "No module named 'nowhere'")
    capsys.readouterr()
    _, again = run(tmp_path, "--tasks", "buffer", "--json")
    answer = json.loads(capsys.readouterr().out)
    assert (answer["cells"], answer["found_done"]) == (6, 4)
    assert len(again) == len(found) + 1  # what could not be made is asked for again, with a twin of the first
    rows = {row["kind"]: row for row in answer["rows"]}
    assert rows[OURS]["times"][1] <= rows[OURS]["times"][0] <= rows[OURS]["times"][2]
    assert rows[THEIRS]["times"] is None
    assert rows[THEIRS]["most"] == pytest.approx(1 / (1 - rows[THEIRS]["share"][0]))
    assert [one["kind"] for one in answer["absent"]] == ["missing"]


@pytest.mark.usefixtures("made")
def test_a_training_step_is_timed_after_it_has_begun_to_learn(monkeypatch):
    loop = Counted()
    monkeypatch.setattr(Made, "loop", lambda *_: loop)
    call = worker._training_step(hosts()["made"], "cartpole_dqn", OURS, 1, 1, 0, 30)
    assert loop.steps == 1_030
    call(0)
    assert loop.steps == 1_031


@pytest.mark.usefixtures("made")
def test_a_missing_host_and_a_process_that_dies_are_records(tmp_path, monkeypatch):
    monkeypatch.setattr(Made, "module", "no_such_module")
    code, found = run(tmp_path, "--tasks", "buffer")
    assert code == 2
    assert {(one.status, "make plugins installs it" in one.reason) for one in found} == {("skipped", True)}
    monkeypatch.setattr(Made, "module", "numpy")
    Here.error = "the process ended by SIGKILL"
    code, found = run(tmp_path, "--tasks", "buffer")
    assert code == 1
    assert {(one.status, one.reason) for one in found[-6:]} == {("failed", "the process ended by SIGKILL")}


@pytest.fixture
def clock(monkeypatch):
    """A clock that each look at it moves on by 1, and ``clock.wait`` by more."""
    now = [0.0]

    def look():
        now[0] += 1
        return now[0]

    monkeypatch.setattr(worker.time, "perf_counter", look)
    worker._cost.cache_clear()
    yield SimpleNamespace(wait=lambda seconds: now.append(now.pop() + seconds))
    worker._cost.cache_clear()


def test_time_inside_methods_counts_nested_calls_once(clock):
    class Parent:
        def inner(self):
            clock.wait(100)

    class Child(Parent):
        def outer(self):
            self.inner()
            clock.wait(10)

    before = Child.outer
    with Inside([(Child, ["outer", "inner"])]) as inside:
        Child().outer()
    assert inside.seconds == 110
    assert Child.outer is before
    assert "inner" not in vars(Child)
    Child().outer()
    assert inside.seconds == 110


def test_the_cost_of_counting_is_taken_off(clock):
    class Quick:
        def call(self):
            return None

    with Inside([(Quick, ["call"])]) as inside:
        for _ in range(200):
            Quick().call()
    assert inside._spent == 200
    assert inside.seconds == 0
    assert inside.overhead_seconds == pytest.approx(2 * 200, rel=0.01)  # two looks a call


class Trained(Here):
    """Stands in for a process that trains: ours is solved, uniform replay is not."""

    def ask(self, what, *, task, kind, seed, steps):
        assert (what, task, steps) == ("train", "cartpole_dqn", 500)
        mean = 480.0 if kind == OURS else 90.0
        return {"points": [[250, 2.0, mean - seed], [500, 3.5, mean]]}


def test_runs_that_learn_are_records_by_seed_and_when_solved(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(workers, "Bounded", lambda python, module: Trained(python, "benchmarks.topics.plugins.worker"))
    words = ["--learning", "--seeds", "0,9", "--steps", "500"]
    assert asked(tmp_path, *words, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    rows = {row["kind"]: row for row in answer["rows"]}
    assert (rows[OURS]["solved"], rows[OURS]["solved_steps"]) == (2, [250, 500])
    assert (rows["uniform"]["solved"], rows["uniform"]["solved_steps"]) == (0, [None, None])
    found = read_file(command.Path(answer["file"]))
    assert len({(one.options["seed"], one.options["kind"]) for one in found}) == 4
    assert found[0].samples_seconds == pytest.approx((2.0 / 250, 1.5 / 250))
    assert asked(tmp_path, *words, "--json") == 0
    assert json.loads(capsys.readouterr().out)["found_done"] == 4
