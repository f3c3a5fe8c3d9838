"""The command learning: which runs there are, what a run's record says, and that the same command goes on."""

import json
import re

import numpy as np
import pytest

from benchmarks import __main__ as cli
from benchmarks import workers
from benchmarks.libraries.base import Loop, roles
from benchmarks.topic import parser_for
from benchmarks.topics.learning import NAMES, SERIAL, WORKERS, Stepped, Trained, command, list_runs, worker
from benchmarks.workers import WorkerError
from dse.platforms import evidence
from dse.records import read_file
from impls.training import load
from tests.oracles.naive_training import Naive
from tests.profiled import write_workload


def listed(words):
    return list(list_runs(parser_for(command.Learning, "run learning").parse_args(words.split())))


def test_every_kind_runs_by_every_seed_as_the_workload_is_shipped():
    cells = listed(f"--only {','.join(NAMES)} --most 100")
    assert len(cells) == len(set(cells)) == (14 + 3 + 16 + 7 + 5 + 6 + 8 + 3) * 5
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
    first = {cell.kind: cell for cell in cells if cell.seed == 10 and cell.task == "cartpole_dqn"}
    assert list(first) == [
        *("serial", "apart", "pipelined, D = 1"),
        *(f"apart, 2 learners, {sync}" for sync in ("synchronous", "lock", "hogwild")),
        *("nodes, M = 2", "nodes, M = 2, 2 learners, local, H = 10", "nodes, M = 2, 2 learners, synchronous"),
        *(f"pipelined, D = {depth}" for depth in (10, 50, 200)),
        *(f"apart, {count} learners, local, H = {period}" for count, period in command.PERIODS),
        "copies, P = 1, lock, k = 1",
        *(f"copies, P = 2, {sync}, k = {every}" for sync in ("lock", "hogwild", "server") for every in (1, 4, 16, 64)),
        *(f"copies, P = 4, {sync}, k = 16" for sync in ("lock", "hogwild", "server")),
        *(f"apart, actors = {count}" for count in (1, 2, 4)),
        *("apart, queue", "apart, fill"),
    ]
    carried = [first[kind].arrangement.transport for kind in ("apart, actors = 4", "apart, queue", "apart, fill")]
    assert carried == ["shared", "queue", "fill"]
    of_pendulum = {cell.kind: cell.batch for cell in cells if cell.task == "pendulum_td3"}
    assert of_pendulum == {f"serial, batch = {size}": size for size in (64, 256, 1000)}
    shipped = load("cartpole_dqn")
    for kind, cell in first.items():
        assert cell.options["kind"] == kind
        assert cell.settings.learner == shipped.learner
        assert cell.settings.exploration == shipped.exploration
        assert cell.arrangement.ratio == "kept"
    assert set(command.SEEDS).isdisjoint(shipped.seeds)


def test_runs_of_an_algorithm_are_of_its_own_workload_and_steps():
    cells = listed("--only a3c,dyna_q,memr --seeds 3 --processes 1,2 --every 4 --syncs lock,hogwild")
    named = [(cell.task.removeprefix("cartpole_"), cell.kind, cell.most) for cell in cells]
    shapes = ("P = 1, lock", "P = 2, lock", "P = 2, hogwild")
    kinds = ("", ", segments = 1", ", alpha = 0", ", alpha = 0.2", ", alpha = 1")
    assert named == [
        *(("a3c", f"copies, {shape}, k = 1", 300_000) for shape in shapes),
        *(("dyna_q", f"copies, W = {workers}, c = {cap}", 50_000) for workers, cap in WORKERS),
        ("pendulum_sac", "serial", 10_000),
        *(("pendulum_memr", f"serial{kind}", 10_000) for kind in kinds),
    ]


class Played(Naive):
    """A loop with a policy that pushes the cart to one side, whose weights are its gradient steps."""

    seconds, loaded = 0.0, None
    sac_limits = ("learns nothing", "at all")
    policy = property(lambda self: self)

    def act(self, observations):
        return np.zeros(len(observations), np.int64)

    def state_dict(self):
        return {"updates": self.updates}

    def load_state_dict(self, state):
        Played.loaded = state["updates"]


def test_a_run_of_another_library_is_evaluated_and_ends_as_ours(tmp_path, monkeypatch):
    monkeypatch.setitem(roles(Loop), "played", Played)
    path = write_workload(tmp_path)
    path.write_text(path.read_text().replace("interval = 50\n", "interval = 50\nsolved = 1.0\n"))
    answer = worker.train(Trained(str(path), SERIAL, 0, (), "played", 3, 0, 100, 2))
    assert (answer["steps"], answer["gradient_steps"], answer["limits"]) == (50, 50, "learns nothing; at all")
    assert [point[:2] for point in answer["points"]] == [(50, 50)]
    assert (Played.loaded, answer["packages"]) == (50, {"numpy": np.__version__})
    assert 1 < answer["test_mean"] < 20


@pytest.mark.slow
def test_a_run_has_a_point_an_evaluation_and_ends_when_it_may(tmp_path):
    answer = worker.train(Trained(str(write_workload(tmp_path)), SERIAL, 2, (), "", 3, 60, 1000, 2))
    steps, updates, seconds, means = zip(*answer["points"], strict=True)
    assert steps == (100,)  # the first gradient step is at 50, when an evaluation is due, and its clock begins then
    assert updates == (26,)
    assert (answer["steps"], answer["gradient_steps"], answer["interval"]) == (100, 26, 50)
    assert seconds[0] > 0
    assert answer["start_seconds"] > 0
    assert means[0] > 0 < answer["test_mean"]


def test_a_run_goes_on_from_solved_to_its_least_steps(tmp_path):
    path = write_workload(tmp_path)
    text = path.read_text().replace("steps = 100", "steps = 400")
    path.write_text(text.replace("interval = 50\n", "interval = 50\nsolved = 1.0\n"))
    for least, last in ((10, 100), (220, 220)):
        answer = worker.train(Trained(str(path), SERIAL, 0, (), "", 0, least, 1000, 1))
        assert answer["steps"] == last


class Pretended:
    """A worker that answers at once, as if it had trained; hogwild fails, and lock dies."""

    asked: list

    def __init__(self, python, module):
        assert module == "benchmarks.topics.learning.worker"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def ask(self, what, run):
        assert what == "train"
        Pretended.asked.append(run)
        if run["arrangement"]["sync"] == "hogwild":
            return {"failed": "the weights are no numbers"}
        if run["arrangement"]["sync"] == "lock":
            raise WorkerError("the process ended by SIGKILL")
        slow = 2.0 if run["arrangement"]["name"] == "serial" else 1.0
        means = [100.0, 470.0, 480.0 if run["seed"] == 10 else 300.0]
        points = [(2500 * n, 2500 * n - 999, slow * n, mean) for n, mean in enumerate(means, 1)]
        return {"points": points, "interval": 2500, "steps": 7500, "gradient_steps": 6501, "test_mean": 490.0}


@pytest.fixture
def pretended(monkeypatch, tmp_path):
    """Run the command with a worker that only pretends; returns the exit code and what it printed."""
    monkeypatch.setattr(workers, "Bounded", Pretended)
    Pretended.asked = []
    return ["run", "learning", "--seeds", "10,11", "--depths", "50", "--results", str(tmp_path), "--json"]


def test_all_runs_are_kept_and_the_same_command_does_only_what_failed(pretended, tmp_path, capsys):
    assert cli.main(pretended) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: 4 cells failed, such as apart gradient step, ")
    said = json.loads(captured.out)
    assert said["measured_by_status"] == {"ok": 10, "failed": 4}
    rows = {row["run"]: row for row in said["rows"]}
    assert rows["apart"]["solved"] == 1
    metrics = {name: metric["by_seed"] for name, metric in rows["apart"]["metrics"].items()}
    assert metrics["policy_quality"] == {"10": 490.0, "11": 490.0}
    assert metrics["sample_efficiency"] == {"10": 7500, "11": None}
    assert metrics["learning_efficiency"] == {"10": 6501, "11": None}
    assert metrics["speedup_over_serial"] == {"10": 2.0, "11": 2.0}
    assert metrics["computation_efficiency"]["10"] == pytest.approx(2500)
    (factor,) = {*rows["apart, 2 learners, synchronous"]["metrics"]["scaling_factor"]["by_seed"].values()}
    assert factor == 0.5
    assert rows["apart, 2 learners, hogwild"]["failed"] == [10, 11]
    (path,) = tmp_path.glob("*/learning.jsonl")
    kept = read_file(path)
    assert {one.primitive for one in kept} == {"training run"}
    assert len({one.cell for one in kept}) == 14
    one = next(one for one in kept if one.options["kind"] == "apart")
    assert one.samples_seconds == pytest.approx([1 / 2500] * 2)  # the first stretch holds steps without learning
    assert len(one.machine["points"]) == 3
    Pretended.asked.clear()
    assert cli.main(pretended) == 1
    assert {run["arrangement"]["sync"] for run in Pretended.asked} == {"lock", "hogwild"}
    assert len(Pretended.asked) == 4
    assert read_file(path) == kept  # each failure once
    capsys.readouterr()
    assert cli.main(pretended[:-1]) == 1
    shown = capsys.readouterr().out
    assert "hogwild: without a time by seed 10, 11" in shown  # whose numbers are of none
    assert re.search(r"apart +1 of 2 +490; 490 +7,500; > 7,500 +6,501; > 6,501 +2,500; 2,500 +2.00; 2.00", shown)


class Libraries(Pretended):
    """A worker of the interpreter that has the libraries."""

    def __init__(self, python, module):
        self.python = python

    def ask(self, what, run):
        assert bool(run["library"]) == (self.python.name == "theirs")
        more = {"packages": {"other": "1"}, "limits": "differs"} if run["library"] else {}
        return super().ask(what, run) | more


def test_libraries_train_by_their_interpreter_and_are_kept_with_what_differs(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(workers, "Bounded", Libraries)
    monkeypatch.setattr(evidence, "_installed", str)
    Pretended.asked = []
    asked = ["run", "learning", "--workload", "pendulum_sac", "--only", "serial,libraries", "--seeds", "10"]
    asked += ["--results", str(tmp_path), "--json", "--python", str(tmp_path / "theirs")]
    assert cli.main(asked) == 2
    assert "make peers" in capsys.readouterr().err
    (tmp_path / "theirs").touch()
    for known in (4, 4):
        assert cli.main(asked) == 0
        assert len(Pretended.asked) == known
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {row["run"] for row in said["rows"]} == {"serial", "rllib", "sb3", "tianshou"}
    assert [row["metrics"]["time_to_solve"]["by_seed"] for row in said["rows"]] == [{"10": 2.0}] * 4
    kept = {one.contestant: one for one in read_file(next(tmp_path.glob("*/learning.jsonl")))}
    assert (kept["sb3"].reason, kept["sb3"].machine["packages"]) == ("differs", {"other": "1"})
    assert (kept["sb3"].options["library"], kept["serial"].reason) == ("sb3", None)


class Stepping(Pretended):
    """A worker whose gradient steps take B microseconds by one learner, and less by two."""

    def ask(self, what, run):
        assert what == "step"
        Pretended.asked += run
        seconds = [one["batch"] * 1e-6 / (1 if one["learners"] == 1 else 1.5) for one in run]
        return {"answers": [{"samples": [each] * 6, "steps": 1, "average_seconds": 0.0} for each in seconds]}


def test_gradient_steps_of_learners_alone_are_a_table_of_factors(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(workers, "Bounded", Stepping)
    Pretended.asked = []
    asked = ["run", "learning", "--only", "scaling", "--results", str(tmp_path)]
    assert cli.main([*asked, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["scaling"]
    cells = {(row["network"], row["batch"], row["period"]) for row in rows}
    assert len(cells) == len(rows) == 3 * 3 * 4 - 2  # the longest steps have the least and the longest period alone
    assert {(name, batch) for name, batch, period in cells if period == 5} == {
        (row["network"], row["batch"]) for row in rows if (row["network"], row["batch"]) != ("4 x 1,024", 8_192)
    }
    assert {round(row["factor"], 6) for row in rows} == {0.75}
    count = len(Pretended.asked)
    assert cli.main(asked) == 0
    assert len(Pretended.asked) == count  # all are kept
    assert "0.75 [0.75, 0.75]" in capsys.readouterr().out


@pytest.mark.slow
def test_learners_alone_take_steps_from_banks_of_their_own(monkeypatch):
    monkeypatch.setattr(worker, "MOST_SECONDS", 0.0)
    for answer in worker.stepped([Stepped("cartpole_dqn", (8, 8), 16, learners, 3) for learners in (1, 2)]):
        assert answer["steps"] % 3 == 0
        assert len(answer["samples"]) == 3
        assert all(0 < seconds < 1 for seconds in answer["samples"])
        assert answer["average_seconds"] > 0


@pytest.mark.parametrize("words", ["1x10", "2x0", "2", "x", "axb"])
def test_learners_and_their_period_are_two_numbers_and_seeds_not_negative(words, capsys):
    for option, given in (("--periods", words), ("--seeds", "1,-1")):
        with pytest.raises(SystemExit):
            cli.main(["run", "learning", "--only", "local", option, given])
        assert option in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("--only serial --most 2499", "--most must be at least 2500, where cartpole_dqn is first evaluated, not 2499"),
        ("--only serial --workload none", "no workload 'none'"),
        ("--only apart --workload pendulum_memr", "memr is trained by one process, not by apart"),
        ("--only copies --processes 1025", "processes must be a whole number from 1 to 1,024, not 1025"),
        ("--only depths --depths 65537", "presampled must be at least 0 and at most 65,536, not 65537"),
    ],
)
def test_runs_that_cannot_be_are_refused_before_any_is_a_record(pretended, tmp_path, capsys, given, words):
    assert cli.main([*pretended, *given.split()]) == 2
    assert words in capsys.readouterr().err
    assert not Pretended.asked
    assert not list(tmp_path.iterdir())


def test_runs_by_one_and_by_several_processes_are_kept(tmp_path, capsys):
    task = write_workload(tmp_path)
    asked = ["run", "learning", "--workload", str(task), "--only", "pipelined", "--seeds", "0", "--least", "100"]
    assert cli.main([*asked, "--test-episodes", "1", "--results", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    (row,) = said["rows"]
    assert (row["run"], row["seeds"], row["failed"]) == ("pipelined, D = 1", [0], [])
    (path,) = tmp_path.glob("*/learning.jsonl")
    (record,) = read_file(path)
    assert record.machine["steps"] >= 100
    assert record.machine["gradient_steps"] >= 25
    assert record.machine["report"]["lag"] >= 0
