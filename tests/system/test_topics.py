"""The topics learning, loops, plugins and transports: what they ask for and time, and what becomes a record."""

import datetime
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("numba", reason="a parallel run is compiled by numba")
import impls
from benchmarks import __main__ as cli
from benchmarks import workers
from benchmarks.libraries import base
from benchmarks.libraries.base import OURS, Host, Loop, hosts, roles
from benchmarks.libraries.ours import PythonBuffer as OurBuffer
from benchmarks.topic import parser_for
from benchmarks.topics import learning, loops, transports
from benchmarks.topics.learning import SERIAL, Stepped, Trained
from benchmarks.topics.learning import command as learning_command
from benchmarks.topics.learning import worker as learning_worker
from benchmarks.topics.loops import command as loops_command
from benchmarks.topics.loops import worker as loops_worker
from benchmarks.topics.plugins import STEP, TREE
from benchmarks.topics.plugins import command as plugins_command
from benchmarks.topics.plugins import worker as plugins_worker
from benchmarks.topics.plugins.worker import Inside
from benchmarks.topics.transports import Cell, Counts, Ledger, Watched
from benchmarks.workers import ROOT, Bounded, WorkerError, environment, quietly
from dse.platforms import checkout
from dse.records import read_file
from impls.training import TrainingError, load
from impls.training.actor import Inserted
from impls.training.parallel.board import Board
from impls.training.parallel.transports import RecordTransport
from impls.training.weights import networks
from tests.oracles import naive_training
from tests.oracles.naive_training import Naive
from tests.profiled import write_workload


@pytest.fixture
def measure(tmp_path, capsys):
    """Runs a topic with its results in the test's folder; returns what it says and the records of its file."""

    def run(*words, code=0):
        capsys.readouterr()
        assert cli.main(["run", *words, "--results", str(tmp_path), "--json"]) == code
        said = json.loads(capsys.readouterr().out)
        return said, read_file(said["file"])

    return run


# Learning


def test_every_kind_runs_by_each_seed_as_its_workload_is_shipped():
    """The rest of its runs is kept: tests.cells."""
    options = parser_for(learning_command.Learning).parse_args(["--only", ",".join(learning.NAMES), "--most", "100"])
    cells, shipped = list(learning.list_runs(options)), load("cartpole_dqn")
    assert {cell.settings.evaluation.interval for cell in cells if cell.task == "pendulum_td3"} == {250}
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
    for cell in cells:
        assert cell.arrangement.ratio == ("free" if "free" in cell.kind else "kept")
        if cell.task == "cartpole_dqn" and ("learner", "batch") not in {change[:2] for change in cell.changes}:
            assert (cell.settings.learner, cell.settings.exploration) == (shipped.learner, shipped.exploration)
    assert set(learning_command.SEEDS).isdisjoint(shipped.seeds)


class Played(Naive):
    """A loop with a policy that pushes the cart to one side, whose weights are its gradient steps."""

    seconds, loaded = 0.0, None
    sac_limits = ("learns nothing", "at all")

    def act(self, observations):
        return np.zeros(len(observations), np.int64)

    def copy_policy(self):
        return self.updates

    def load_policy(self, weights):
        Played.loaded = weights


def test_a_run_goes_on_from_solved_to_its_least_steps(tmp_path, monkeypatch):
    monkeypatch.setitem(roles(Loop), "played", Played)
    path = write_workload(tmp_path)
    path.write_text(path.read_text().replace("interval = 50\n", "interval = 50\nsolved = 1.0\n"))
    answer = learning_worker.train(Trained(str(path), SERIAL, 0, (), "played", 3, 0, 100, 2))
    assert (answer["steps"], answer["gradient_steps"], answer["limits"]) == (50, 50, "learns nothing; at all")
    assert [point[:2] for point in answer["points"]] == [(50, 50)]
    assert (Played.loaded, answer["packages"]) == (50, {"numpy": np.__version__})
    assert 1 < answer["test_mean"] < 20
    path.write_text(path.read_text().replace("steps = 100", "steps = 400"))
    for least, last in ((10, 100), (220, 220)):
        answer = learning_worker.train(Trained(str(path), SERIAL, 0, (), "", 0, least, 1000, 1))
        assert (answer["steps"], answer["interval"]) == (last, 50)
        steps, updates, seconds, means = zip(*answer["points"], strict=True)
        assert steps[0] == 100 and updates[0] == 26 and seconds[0] > 0 < means[0]


def test_a_run_counts_rollouts_and_is_named_by_what_it_changes():
    changes = (("learner", "learning_starts", 130), ("evaluation", "interval", 20), ("evaluation", "episodes", 1))
    asked = Trained("pendulum_mbpo", SERIAL, 0, (*changes, ("model", "updates", 2), ("model", "kind", "mlp")), most=160)
    answer = learning_worker.train(asked)
    assert asked.kind.endswith("updates = 2, model = mlp")
    assert (asked.options["kind"], asked.options["model_kind"]) == (asked.kind, "mlp")
    assert len(answer["rollouts"]) == len(answer["points"]) == 2
    for made, (_, updates, *_) in zip(answer["rollouts"], answer["points"], strict=True):
        assert 64 <= made / (updates / 2) <= 128  # rollouts of at most 2 steps


def train(run):
    """Answer at once, as if it had trained; hogwild and lock fail."""
    if run["arrangement"]["sync"] in ("hogwild", "lock"):
        return {"failed": "the weights are no numbers"}
    slow = 2.0 if run["arrangement"]["name"] == "serial" else 1.0
    means = [100.0, 470.0, 480.0 if run["seed"] == 10 else 300.0]
    points = [(2500 * n, 2500 * n - 999, slow * n, mean) for n, mean in enumerate(means, 1)]
    more = {"packages": {"other": "1"}, "limits": "differs"} if run["library"] else {"rollouts": [10, 20, 30]}
    return {"points": points, "interval": 2500, "steps": 7500, "gradient_steps": 6501, "test_mean": 490.0} | more


def step(run):
    """Answer as if gradient steps took B microseconds by one learner, and less by two."""
    seconds = [one["batch"] * 1e-6 / (1 if one["learners"] == 1 else 1.5) for one in run]
    return {"answers": [{"samples": [each] * 6, "steps": 1, "average_seconds": 0.0} for each in seconds]}


@pytest.fixture
def asked(monkeypatch):
    """Let nothing be trained or timed; returns the interpreters and runs that learning asks for."""
    found = []

    def ask(python, module, limit, what, run):
        found.append((python, run))
        return {"train": train, "step": step}[what](run)

    monkeypatch.setattr(learning_command, "ask_once", ask)
    return found


def test_runs_are_kept_and_the_same_command_does_what_failed(asked, measure):
    usual = ("learning", "--seeds", "10,11", "--depths", "50")
    said, kept = measure(*usual, code=1)
    assert said["measured_by_status"] == {"ok": 12, "failed": 4}
    rows = {row["run"]: row for row in said["rows"]}
    assert rows["apart"]["solved"] == 1
    assert rows["apart"]["metrics"]["sample_efficiency"]["by_seed"] == {"10": 7500, "11": None}
    assert rows["apart, 2 learners, hogwild"]["failed"] == [10, 11]
    assert {one.primitive for one in kept} == {"training run"}
    assert len({one.cell for one in kept}) == 16
    one = next(one for one in kept if one.options["kind"] == "apart")
    assert one.samples_seconds == pytest.approx([1 / 2500] * 2)  # the first stretch holds steps without learning
    assert len(one.metrics["points"]) == 3
    asked.clear()
    assert measure(*usual, code=1)[1] == kept  # each failure once
    assert [run["arrangement"]["sync"] for _, run in asked].count("lock") == 2 == len(asked) / 2


def test_libraries_train_by_their_interpreter_with_what_differs(asked, monkeypatch, tmp_path, measure):
    monkeypatch.setattr(checkout, "_installed", str)
    theirs = tmp_path / "theirs"
    theirs.touch()
    usual = ("--only", "serial,libraries", "--seeds", "10", "--workload", "pendulum_sac", "--python", str(theirs))
    said, found = measure("learning", *usual)
    assert [bool(run["library"]) for _, run in asked] == [python == theirs for python, _ in asked]
    times = {row["run"]: row["metrics"]["time_to_solve"]["by_seed"] for row in said["rows"]}
    assert times == {name: {"10": 2.0} for name in ("serial", *loops.with_sac())}
    kept = {one.contestant: one for one in found}
    assert (kept["sb3"].reason, kept["sb3"].machine["packages"]) == ("differs", {"other": "1"})
    assert (kept["sb3"].options["library"], kept["serial"].reason) == ("sb3", None)


def test_gradient_steps_of_learners_alone_are_a_table_of_factors(asked, monkeypatch, measure):
    rows = measure("learning", "--only", "scaling")[0]["scaling"]
    cells = {(row["network"], row["batch"], row["period"]) for row in rows}
    assert len(cells) == len(rows) == 3 * 3 * 4 - 2  # the longest steps have the least and the longest period alone
    assert {round(row["factor"], 6) for row in rows} == {0.75}
    asked.clear()
    measure("learning", "--only", "scaling")
    assert not asked  # all are kept
    monkeypatch.setattr(learning_worker, "MOST_SECONDS", 0.0)
    for answer in learning_worker.stepped([Stepped("cartpole_dqn", (8, 8), 16, learners, 3) for learners in (1, 2)]):
        assert answer["steps"] % 3 == 0 and len(answer["samples"]) == 3
        assert all(0 < seconds < 1 for seconds in (*answer["samples"], answer["average_seconds"]))


def test_runs_by_several_processes_are_kept(tmp_path, measure):
    usual = ("--workload", str(write_workload(tmp_path)), "--only", "pipelined", "--seeds", "0", "--least", "100")
    said, (record,) = measure("learning", *usual, "--test-episodes", "1")
    (row,) = said["rows"]
    assert (row["run"], row["seeds"], row["failed"]) == ("pipelined, D = 1", [0], [])
    assert record.metrics["steps"] >= 100 and record.metrics["gradient_steps"] >= 25
    assert record.metrics["report"]["lag"] >= 0


# Loops

THEIRS = [name for name in loops.names() if not roles(Loop)[name].is_ours]


@pytest.fixture
def compare(monkeypatch, measure):
    """Measures loops of the tests, known here and in workers, of which "naive" is ours."""
    for name, kind in naive_training.KINDS.items():
        monkeypatch.setitem(roles(Loop), name, kind)
    monkeypatch.setattr(loops_command, "MODULE", naive_training.MODULE)
    monkeypatch.setattr(loops_command, "OURS", "naive")
    usual = ("loops", "--rounds", "3", "--block", "0.02", "--warmup", "4", "--python", sys.executable)
    return lambda contestants, *more, code=0: measure(*usual, "--contestants", contestants, *more, code=code)


def test_all_train_the_shipped_workload_with_steady_exploration():
    shipped, ours = load(loops.WORKLOAD), loops.workload()
    assert ours.exploration.start == ours.exploration.end == shipped.exploration.end
    assert (ours.network, ours.learner, ours.replay) == (shipped.network, shipped.learner, shipped.replay)
    pytest.importorskip("torch")
    loop = loops.make("fanout_torch")
    while loop.steps < ours.learner.learning_starts + 5:
        loop.turn()
    assert (loop.updates, loop.weights) == (6, networks(loop.workload)["action_values"].parameters)
    assert loop.remark == "learner torch, policy torch"
    loop.close()


def test_a_block_is_of_whole_turns_timed_by_environment_steps(monkeypatch):
    clock = SimpleNamespace(now=0.0, cpu=0.0)
    fake = SimpleNamespace(perf_counter=lambda: clock.now, process_time=lambda: clock.cpu)
    monkeypatch.setattr(loops_worker, "time", fake)
    monkeypatch.setattr(base, "time", fake)

    class Turned(Naive):
        def turn(self):
            self.steps += 4
            self.updates += 4
            clock.now += 4.0 if self.steps == 4 else 0.8
            clock.cpu += 0.4

    session = loops_worker._Session()
    session._trainer = Turned(loops.workload(), 4, 0)
    block = session.block(7.0)
    assert (block["steps"], block["updates"]) == (20, 20)
    assert [block[name] for name in ("clean", "median", "cpu")] == pytest.approx([0.2, 0.2, 0.1])


WRONG = {"eager": "failed 2.000 0.01", "small": "failed 17 17,410", "raising": "failed ArithmeticError diverged"}
WRONG |= {"dying": "failed 3", "absent": "skipped 'no_such_module' peers"}


def test_what_is_wrong_with_a_loop_is_told(compare):
    said, kept = compare(",".join(naive_training.KINDS), code=1)
    rows = {row["loop"]: row for row in said["rows"]}
    assert set(rows) == {"naive", "naive (4 environments)", "slow (uniform)"}
    for row in rows.values():
        median, low, high = row["steps_per_second"]["clean"]
        assert low <= median <= high
        assert row["gradient_steps_per_step"] == 1.0
        assert row["update_frame_hz"] == pytest.approx(loops.workload().learner.batch * row["sampling_hz"])
        assert 0 < row["cpu_percent"] <= 101
    assert rows["naive"]["note"] == "learns nothing"
    absent = {row["loop"].partition(" ")[0]: f"{row['status']}: {row['reason']}" for row in said["absent"]}
    assert absent.keys() == WRONG.keys()
    assert all(fact in absent[name] for name, facts in WRONG.items() for fact in facts.split())
    assert {(record.source, record.utc) for record in kept} == {("measured", kept[0].utc)}
    again = [record for record in kept if record.primitive == "loop_peer_again"]
    assert [(record.contestant, record.op) for record in again] == [("naive", op) for op in loops_command.OPS]
    timed = [record for record in kept if record.status in ("ok", "unstable")]
    assert {(len(record.samples_seconds), len(record.facts["affinity"])) for record in timed} == {(3, 1)}


def test_a_run_measures_all_anew_and_stands_alone(compare, monkeypatch):
    assert "slow" in str(compare("naive,slow")[0])
    later = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)).isoformat()
    monkeypatch.setattr(loops_command.platforms, "now", lambda: later)
    said, kept = compare("naive")
    assert "slow" not in str(said)
    moments = [record.utc for record in kept]
    ops = len(loops_command.OPS)
    assert [moments.count(moment) for moment in (moments[0], later)] == [4 * ops, 3 * ops]


def test_loops_of_a_batch_are_compared(compare):
    said, kept = compare("naive,slow", "--batches", "8,64")
    frames = {row["loop"]: row["update_frame_hz"] / row["update_hz"] for row in said["rows"]}
    for batch in (8, 64):
        (other,) = [name for name in said["times"][f"naive (B = {batch})"] if name.startswith("slow")]
        assert other == f"slow (uniform, B = {batch})"
        assert round(frames[f"naive (B = {batch})"]) == batch
    assert len({(record.batch, record.options["identity"]) for record in kept}) == 2


@pytest.fixture
def python():
    """The interpreter of the environment in which other libraries are installed."""
    made = ROOT / ".venv-peers/bin/python"
    if not made.exists():
        pytest.skip("make peers has not been run")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", THEIRS)
def test_a_librarys_loop_runs_where_it_is_installed(name, python):
    for count in roles(Loop)[name].environments:
        with Bounded(python, module=loops_command.MODULE) as process:
            starts = loops.workload().learner.learning_starts
            answer = process.ask("prepare", name=name, environments=count, seed=0, warm_up=starts + 10)
            assert "affinity" in answer, answer
            block = process.ask("block", seconds=0.2)
            assert block["updates"] == block["steps"] > 0, block
            process.ask("close")


@pytest.mark.slow
@pytest.mark.parametrize("name", loops.with_sac())
def test_a_librarys_sac_has_our_network_and_takes_our_steps(name, python):
    code = (
        "import numpy as np; from benchmarks.topics import loops; from impls import training; from sys import argv;"
        "task = training.load('pendulum_sac'); loop = loops.make(argv[1], task=task);\n"
        "while loop.steps < task.learner.learning_starts + 10: loop.turn()\n"
        "act = loop.act(np.eye(3, dtype=np.float32))\n"
        "print(loop.weights, loop.updates, act.shape, abs(act).max() < 1)\n"
        "loop.close()"
    )
    done = quietly([str(python), "-P", "-c", code, name], env=environment(python))
    weights, updates, *acted = done.stdout.splitlines()[-1].split(maxsplit=2)
    assert int(weights) == networks(load("pendulum_sac"))["policy"].parameters, done.stderr
    assert 10 <= int(updates) <= 11
    assert acted == ["(3, 1) True"]


# Plug-ins


class Counted:
    """A loop that counts its turns."""

    def __init__(self):
        self.steps = 0

    def turn(self):
        self.steps += 1


class Made(Host):
    """A host whose own replay and ours are both ours, and whose third kind cannot be made."""

    package, module = "numpy", "numpy"
    kinds = ("theirs", OURS, "missing")
    limits = ("nothing is left out",)
    looped = Counted()

    def buffer(self, kind, capacity, seed):
        if kind == "missing":
            raise ModuleNotFoundError("No module named 'nowhere'")
        return OurBuffer(capacity, seed)

    def loop(self, task, kind, seed):
        return self.looped

    def trees(self):
        return [(impls.traits("numba"), ("update", "sample", "get", "total"))]


class Here:
    """Stands in for a worker's process; asked to train, it solves the task by ours alone."""

    error = None

    def __init__(self, python, module):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def ask(self, what, **asked):
        if what == "train":
            mean = 480.0 if asked["kind"] == OURS else 90.0
            return {"points": [[250, 2.0, mean - asked["seed"]], [500, 3.5, mean]]}
        if self.error and what == "measure":
            raise WorkerError(self.error)
        answer = getattr(plugins_worker._Session(), what)(**json.loads(json.dumps(asked)))
        return json.loads(json.dumps(answer))


@pytest.fixture
def plugged(monkeypatch, tmp_path, measure):
    """Measures the host `made`, which is the only one, and whose worker is this process."""
    monkeypatch.setitem(hosts(), "made", Made())
    monkeypatch.setattr(plugins_command, "Bounded", Here)
    monkeypatch.setattr(workers, "Bounded", Here)
    (tmp_path / "python").touch()
    smoke = ("--smoke", "--hosts", "made", "--tasks", "buffer")
    return lambda *words, code=0: measure("plugins", "--python", str(tmp_path / "python"), *(words or smoke), code=code)


def test_kinds_are_timed_with_their_trees_and_a_run_goes_on(plugged):
    _, found = plugged()
    cells = {(one.options["kind"], one.op, one.primitive): one for one in found}
    assert len(cells) == len(found) == 7
    for kind in ("theirs", OURS):
        step, tree = cells[kind, STEP, "plugin"], cells[kind, TREE, "plugin"]
        assert 0 < tree.seconds < step.seconds
        assert (step.capacity, step.batch, step.source, step.reason) == (2_000, 32, "measured", "nothing is left out")
        assert step.machine["packages"]["numpy"] == np.__version__
    assert cells["theirs", STEP, "plugin_again"].samples_seconds
    missing = cells["missing", STEP, "plugin"]
    assert (missing.status, missing.reason) == ("skipped", "No module named 'nowhere'")
    answer, again = plugged()
    assert (answer["cells"], answer["found_done"]) == (6, 4)
    assert len(again) == len(found) + 1  # what could not be made is asked for again, with a twin of the first
    rows = {row["kind"]: row for row in answer["rows"]}
    assert rows[OURS]["times"][1] <= rows[OURS]["times"][0] <= rows[OURS]["times"][2]
    assert rows["theirs"]["times"] is None
    assert rows["theirs"]["most"] == pytest.approx(1 / (1 - rows["theirs"]["share"][0]))
    assert [one["kind"] for one in answer["absent"]] == ["missing"]


def test_a_missing_host_and_a_process_that_dies_are_records(plugged, monkeypatch):
    call = plugins_worker._training_step(Made(), "cartpole_dqn", OURS, 1, 1, 0, 30)
    assert Made.looped.steps == 1_030  # a step is timed once it has begun to learn
    call(0)
    assert Made.looped.steps == 1_031
    monkeypatch.setattr(Made, "module", "no_such_module")
    _, found = plugged(code=2)
    assert {(one.status, "make plugins installs it" in one.reason) for one in found} == {("skipped", True)}
    monkeypatch.setattr(Made, "module", "numpy")
    monkeypatch.setattr(Here, "error", "the process ended by SIGKILL")
    _, found = plugged(code=1)
    assert {(one.status, one.reason) for one in found[-6:]} == {("failed", "the process ended by SIGKILL")}


@pytest.fixture
def clock(monkeypatch):
    """A clock that each look at it moves on by 1, and ``clock.wait`` by more."""
    now = [0.0]

    def look():
        now[0] += 1
        return now[0]

    monkeypatch.setattr(plugins_worker.time, "perf_counter", look)
    plugins_worker._cost.cache_clear()
    yield SimpleNamespace(wait=lambda seconds: now.append(now.pop() + seconds))
    plugins_worker._cost.cache_clear()


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
    with Inside([(Counted, ["turn"])]) as inside:
        for _ in range(200):
            Counted().turn()
    assert (inside._spent, inside.seconds) == (200, 0)
    assert inside.overhead_seconds == pytest.approx(2 * 200, rel=0.01)  # two looks a call


def test_runs_that_learn_are_records_by_seed_and_when_solved(plugged):
    words = ("--learning", "--seeds", "0,9", "--steps", "500")
    answer, found = plugged(*words)
    rows = {row["kind"]: (row["solved"], row["solved_steps"]) for row in answer["rows"]}
    assert (rows[OURS], rows["uniform"]) == ((2, [250, 500]), (0, [None, None]))
    assert len({(one.options["seed"], one.options["kind"]) for one in found}) == 4
    assert found[0].samples_seconds == pytest.approx((2.0 / 250, 1.5 / 250))
    assert plugged(*words)[0]["found_done"] == 4


# Transports

COST = {"shared": 1.0, "pipe": 1.3}  # of a gradient step, in milliseconds at B = 128 and 64 rows
BLOCKS = 11


def of(name, rows=64, batch=1_024, **options):
    return Cell(name, "", {"workload": "hopper_td3", "rows": rows, **options}, batch, 2)


def faked(workload, cell, preset, make_loop=None):
    """Samples of a system whose times are known: a queue takes 1.6 of shared memory's."""
    name, rows, batch = cell.contestant, cell.options["rows"], cell.batch
    if name == "queue 5000" and batch == 1_024:
        raise TrainingError("actor 0 failed: <the motor is on fire>")
    cost = COST.get(name, 1.6) * batch / 128 * (2 if rows == 1 else 1)
    counts = [
        Counts(float(at), 1.5 * at, 5_000 * at, round(1_000 / cost) * at, 0.25 * (COST.get(name, 2.0) - 1) * at,
               0.002 * 100 * at, 100 * at, 4 * at)
        for at in range(BLOCKS + 1)
    ]  # fmt: skip
    return transports.columns(counts)


def test_a_system_has_the_transport_samplers_and_cores_asked_for(monkeypatch):
    for name, kind, size in (("shared", "shared", 2000), ("queue 500", "queue", 500), ("fill 5000", "fill", 5000)):
        workload, arrangement = transports.system_of(load("hopper_td3"), of(name, samplers=4, cores=1))
        arrangement.check(workload)
        assert (workload.actors.count, workload.actors.local_storage, workload.learner.batch) == (4, 64, 1_024)
        assert (arrangement.name, arrangement.learners, arrangement.ratio) == ("apart", 1, "free")
        assert (arrangement.transport, arrangement.queue_size, len(arrangement.cores)) == (kind, size, 1)
    monkeypatch.setattr(transports, "CORES", 2)
    axes = {"batches": [128, 8_192], "samplers": [1, 2], "queue_size": [500, 50_000], "cores": [1, 2]}
    for options in (group[0].options for group in transports.systems("w", 10, 16, axes)):
        is_marked = options.get("samplers", 1) + 1 > options.get("cores", 2)
        assert (transports.oversubscribed(options) is not None) == is_marked, options


def test_a_run_is_resumed_where_it_stopped_and_failures_are_told(measure, monkeypatch):
    columns = transports.columns([Counts(0, 0, 0, 0, 0, 0, 0), Counts(2, 3, 100, 10, 0.5, 6, 3, 4)])
    expected = {"environment step": 0.02, "gradient step": 0.2, "cycle": 2, "transfer": 0.05, "cpu": 1.5}
    assert {name: samples for name, (samples,) in columns.items()} == pytest.approx(expected | {"interval": 0.5})
    monkeypatch.setattr(transports, "measured", faked)
    words = ("transports", "--preset", "quick", "--only", "system")
    first, _ = measure(*words, code=1)
    assert (first["cells"], first["found_done"]) == (152, 0)  # of 26 systems 4 by shared memory
    assert first["measured_by_status"] == {"ok": 140, "failed": 12}
    again, kept = measure(*words, code=1)
    assert (again["found_done"], again["measured_by_status"], len(kept)) == (140, {"failed": 12}, 152)
    path = Path(first["file"])
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    killed, _ = measure(*words, code=1)  # as it wrote a system
    assert killed["measured_by_status"] == {"ok": 1, "failed": 12}
    row = next(one for one in first["table"] if (one["transport"], one["batch"], one["rows"]) == ("pipe", 128, 64))
    cores = kept[0].machine["cores"]
    expected = {"cpu_percent": 150 / cores, "sampling_hz": 5_000, "update_hz": 769, "update_frame_hz": 769 * 128}
    expected |= {"cycle_seconds": 0.25, "age_seconds": 0.002, "loss_percent": 7.5, "samplers": 1, "cores": cores}
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert {one["cycle_seconds"] for one in first["table"] if one["transport"] == "shared"} == {None}
    assert {record.primitive for record in kept} == {"training transport"}


class Delayed(RecordTransport):
    """Hands over one hand-over later."""

    def __init__(self):
        self.waiting = []

    def make_sender(self, replay, board, row, number):
        return self.waiting.append

    def receive(self, replay):
        late = self.waiting[:-1]
        del self.waiting[:-1]
        return sum(len(one.can_sample) for one in late)


def test_a_watched_transport_notes_the_age_of_the_newest_record():
    board, inner, ledger = Board(1, 1, 1), Delayed(), Ledger()
    receiver, sender = Watched(inner, ledger, False), Watched(inner, ledger.handle(), False)
    send = sender.make_sender(None, board, 0, 0)
    reader, times = Ledger.attach(ledger.handle()), []
    for count in (3, 1, 2):
        send(Inserted({}, None, np.ones(count, np.bool_)))
        times.append(reader.newest(None))
        receiver.receive(None)
    assert (receiver.received, receiver.transfers) == (4, 2)
    assert ledger.newest(4) == times[1] < ledger.newest(5 + 1) == times[2]
    assert receiver.looks == 2  # at the first nothing had been received
    assert min(receiver.age_ns, receiver.transfer_ns) > 0


def test_a_hand_over_is_timed_until_its_rows_are_in_the_replay(monkeypatch):
    monkeypatch.setattr(transports, "SAMPLE_SECONDS", 1e-9)
    for name in ("shared", "queue", "pipe"):
        with ExitStack() as stack:
            for clock in [transports.clock_of(Cell(name, op, batch=64), stack) for op in ("send", "hand over")]:
                assert clock.sample() > 0 and clock.calls_per_sample == 1


@pytest.mark.parametrize(("is_filled", "updates"), [(False, [1, 2, 3]), (True, [3, 6, 9])])
def test_a_block_ends_with_a_transfer_where_a_queue_is_filled(is_filled, updates):
    watched, loop = SimpleNamespace(transfers=0), SimpleNamespace(updates=0)

    def advance():
        loop.updates += 1
        watched.transfers += loop.updates % 3 == 0

    loop.advance = advance
    assert [transports._run(loop, watched, 0.0, is_filled) or loop.updates for _ in updates] == updates


def test_a_system_runs_in_blocks_of_whole_transfers():
    preset, before = transports.Preset(0.1, 0.1, 2, 0.1), os.sched_getaffinity(0)
    samples = transports.measured(load("cartpole_dqn"), of("fill 500", 1, 128, samplers=2), preset)
    assert {name: len(values) for name, values in samples.items()} == dict.fromkeys(transports.COLUMNS, 2)
    assert all(value > 0 for values in samples.values() for value in values)
    for interval, step in zip(samples["interval"], samples["environment step"], strict=True):
        # A cycle x the sampling rate is a queue filled, but for the gradient step that a block ends with.
        assert interval / step == pytest.approx(500, rel=0.3)
    assert os.sched_getaffinity(0) == before
