"""The command learning: which runs there are, what a run's record says, and that the same command goes on."""

import json

import numpy as np
import pytest

from benchmarks import __main__ as cli
from benchmarks.libraries.base import Loop, roles
from benchmarks.topic import parser_for
from benchmarks.topics.learning import NAMES, SERIAL, Stepped, Trained, command, list_runs, worker
from benchmarks.topics.loops import with_sac
from dse.platforms import checkout
from dse.records import read_file
from impls.training import load
from tests.oracles.naive_training import Naive
from tests.profiled import write_workload


def test_every_kind_runs_by_each_seed_as_its_workload_is_shipped():
    """The rest of its runs is kept: tests.cells."""
    options = parser_for(command.Learning).parse_args(["--only", ",".join(NAMES), "--most", "100"])
    cells, shipped = list(list_runs(options)), load("cartpole_dqn")
    assert {cell.settings.evaluation.interval for cell in cells if cell.task == "pendulum_td3"} == {250}
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
    assert len({(cell.label, cell.interval) for cell in cells}) == len(cells)
    for cell in cells:
        assert cell.arrangement.ratio == ("free" if "free" in cell.kind else "kept")
        assert cell.options.get("cores") in (None, len(cell.arrangement.cores))
        if cell.task == "cartpole_dqn" and ("learner", "batch") not in {change[:2] for change in cell.changes}:
            assert (cell.settings.learner, cell.settings.exploration) == (shipped.learner, shipped.exploration)
    assert set(command.SEEDS).isdisjoint(shipped.seeds)


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


def test_a_run_of_another_library_is_evaluated_and_ends_as_ours(tmp_path, monkeypatch):
    monkeypatch.setitem(roles(Loop), "played", Played)
    path = write_workload(tmp_path)
    path.write_text(path.read_text().replace("interval = 50\n", "interval = 50\nsolved = 1.0\n"))
    answer = worker.train(Trained(str(path), SERIAL, 0, (), "played", 3, 0, 100, 2))
    assert (answer["steps"], answer["gradient_steps"], answer["limits"]) == (50, 50, "learns nothing; at all")
    assert [point[:2] for point in answer["points"]] == [(50, 50)]
    assert (Played.loaded, answer["packages"]) == (50, {"numpy": np.__version__})
    assert 1 < answer["test_mean"] < 20


def test_a_run_goes_on_from_solved_to_its_least_steps(tmp_path):
    path = write_workload(tmp_path)
    text = path.read_text().replace("steps = 100", "steps = 400")
    path.write_text(text.replace("interval = 50\n", "interval = 50\nsolved = 1.0\n"))
    for least, last in ((10, 100), (220, 220)):
        answer = worker.train(Trained(str(path), SERIAL, 0, (), "", 0, least, 1000, 1))
        assert (answer["steps"], answer["interval"]) == (last, 50)
        steps, updates, seconds, means = zip(*answer["points"], strict=True)
        assert steps[0] == 100 and updates[0] == 26 and seconds[0] > 0 < means[0]


def test_a_run_counts_rollouts_and_is_named_by_what_it_changes():
    changes = (("learner", "learning_starts", 130), ("evaluation", "interval", 20), ("evaluation", "episodes", 1))
    asked = Trained("pendulum_mbpo", SERIAL, 0, (*changes, ("model", "updates", 2), ("model", "kind", "mlp")), most=160)
    answer = worker.train(asked)
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
def asked(monkeypatch, tmp_path):
    """Let nothing be trained or timed; returns the interpreters and runs that the command asks for."""
    found = []

    def ask(python, module, limit, what, run):
        assert module == "benchmarks.topics.learning.worker"
        found.append((python, run))
        return {"train": train, "step": step}[what](run)

    monkeypatch.setattr(command, "ask_once", ask)
    return found


def words(tmp_path, *more):
    return ["run", "learning", "--results", str(tmp_path), *more]


def test_runs_are_kept_and_the_same_command_does_what_failed(asked, tmp_path, capsys):
    usual = words(tmp_path, "--seeds", "10,11", "--depths", "50")
    assert cli.main([*usual, "--json"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: 4 cells failed, such as apart gradient step, ")
    said = json.loads(captured.out)
    assert said["measured_by_status"] == {"ok": 12, "failed": 4}
    rows = {row["run"]: row for row in said["rows"]}
    assert rows["apart"]["solved"] == 1
    assert rows["apart"]["metrics"]["sample_efficiency"]["by_seed"] == {"10": 7500, "11": None}
    assert rows["apart, 2 learners, hogwild"]["failed"] == [10, 11]
    (path,) = tmp_path.glob("*/learning.jsonl")
    kept = read_file(path)
    assert {one.primitive for one in kept} == {"training run"}
    assert len({one.cell for one in kept}) == 16
    one = next(one for one in kept if one.options["kind"] == "apart")
    assert one.samples_seconds == pytest.approx([1 / 2500] * 2)  # the first stretch holds steps without learning
    assert len(one.metrics["points"]) == 3
    asked.clear()
    assert cli.main(usual) == 1
    assert [run["arrangement"]["sync"] for _, run in asked].count("lock") == 2 == len(asked) / 2
    assert read_file(path) == kept  # each failure once
    assert "hogwild" in capsys.readouterr().out  # whose numbers are of none


def test_libraries_train_by_their_interpreter_with_what_differs(asked, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(checkout, "_installed", str)
    theirs, usual = tmp_path / "theirs", words(tmp_path, "--only", "serial,libraries", "--seeds", "10", "--json")
    usual += ["--workload", "pendulum_sac", "--python", str(theirs)]
    theirs.touch()
    for _ in range(2):
        assert cli.main(usual) == 0
        assert [bool(run["library"]) for _, run in asked] == [python == theirs for python, _ in asked]
        assert len(asked) == 1 + len(with_sac())
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {row["run"] for row in said["rows"]} == {"serial", *with_sac()}
    assert [row["metrics"]["time_to_solve"]["by_seed"] for row in said["rows"]] == [{"10": 2.0}] * (1 + len(with_sac()))
    kept = {one.contestant: one for one in read_file(next(tmp_path.glob("*/learning.jsonl")))}
    assert (kept["sb3"].reason, kept["sb3"].machine["packages"]) == ("differs", {"other": "1"})
    assert (kept["sb3"].options["library"], kept["serial"].reason) == ("sb3", None)


def test_gradient_steps_of_learners_alone_are_a_table_of_factors(asked, tmp_path, capsys):
    usual = words(tmp_path, "--only", "scaling")
    assert cli.main([*usual, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["scaling"]
    cells = {(row["network"], row["batch"], row["period"]) for row in rows}
    assert len(cells) == len(rows) == 3 * 3 * 4 - 2  # the longest steps have the least and the longest period alone
    assert {(name, batch) for name, batch, period in cells if period == 5} == {
        (row["network"], row["batch"]) for row in rows if (row["network"], row["batch"]) != ("4 x 1,024", 8_192)
    }
    assert {round(row["factor"], 6) for row in rows} == {0.75}
    asked.clear()
    assert cli.main(usual) == 0
    assert not asked  # all are kept
    assert "0.75 [0.75, 0.75]" in capsys.readouterr().out


def test_learners_alone_take_steps_from_banks_of_their_own(monkeypatch):
    monkeypatch.setattr(worker, "MOST_SECONDS", 0.0)
    for answer in worker.stepped([Stepped("cartpole_dqn", (8, 8), 16, learners, 3) for learners in (1, 2)]):
        assert answer["steps"] % 3 == 0 and len(answer["samples"]) == 3
        assert all(0 < seconds < 1 for seconds in (*answer["samples"], answer["average_seconds"]))


def test_runs_by_one_and_by_several_processes_are_kept(tmp_path, capsys):
    task = write_workload(tmp_path)
    usual = words(tmp_path, "--workload", str(task), "--only", "pipelined", "--seeds", "0", "--least", "100")
    assert cli.main([*usual, "--test-episodes", "1", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    (row,) = said["rows"]
    assert (row["run"], row["seeds"], row["failed"]) == ("pipelined, D = 1", [0], [])
    (path,) = tmp_path.glob("*/learning.jsonl")
    (record,) = read_file(path)
    assert record.metrics["steps"] >= 100
    assert record.metrics["gradient_steps"] >= 25
    assert record.metrics["report"]["lag"] >= 0
