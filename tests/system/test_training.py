"""Runs: resuming bit for bit, also after a kill, what a run writes, and one sentence for whatever goes wrong."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from impls.training import TrainingError, load
from tests.committed import ROOT
from tests.nursery import UNCOVERED, run_python

torch = pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("gymnasium", reason="training needs the extra `train`")
from impls.training import checkpoint  # noqa: E402  # with torch
from impls.training.__main__ import main  # noqa: E402
from impls.training.algorithm import ALGORITHMS  # noqa: E402
from impls.training.clock import Stopwatch  # noqa: E402
from impls.training.folder import Log, check  # noqa: E402
from impls.training.interrupts import Interrupted, Interrupts, terminable  # noqa: E402
from impls.training.run import Plan, rates_of, start  # noqa: E402
from impls.training.workload import Evaluation  # noqa: E402
from tests.matrix import slow  # noqa: E402
from tests.parallel_runs import lives, until  # noqa: E402
from tests.system.test_actors import fake  # noqa: E402

torch.set_num_threads(1)

SMALL = """
name = "small"
environment = "{environment}"
algorithm = "{algorithm}"
steps = 900
[observation]
shape = [4]
[action]
choices = 2
[network]
hidden = [16]
[learner]
batch = 16
update_interval = 2
learning_starts = 100
tau = 0.01
[replay]
capacity = 500
presampled = {presampled}
initial_priority = "td_error"
[exploration]
steps = 500
[actors]
count = {actors}
local_storage = 3
sync_interval = {sync}
[evaluation]
interval = 150
episodes = 2
solved = 20.0
"""


SELDOM = Evaluation(interval=10**8, episodes=1, solved=20.0)


def small(folder, environment="CartPole-v1", algorithm="dqn", presampled=0, actors=1, sync=1):
    path = folder / "small.toml"
    path.write_text(
        SMALL.format(environment=environment, algorithm=algorithm, presampled=presampled, actors=actors, sync=sync)
    )
    return path


def run_to(workload, folder, until=None, resume=False, every=200, episodes=3, seed=3):
    plan = Plan(folder, every, episodes, live=False)
    with contextlib.closing(start(workload, plan, contestant="numpy", seed=seed, resume=resume)) as run:
        return run.run(until)


def curve(folder):
    """The lines of the curve without what depends on the clock, and all of the episodes'."""
    lines = [line.split(",")[:7] for line in (folder / "curve.csv").read_text().splitlines()]
    return lines, (folder / "episodes.csv").read_text()


@pytest.mark.parametrize(
    ("algorithm", "presampled", "actors", "sync"),
    [("dqn", 0, 1, 1), ("dqn", 3, 2, 4), ("sac", 0, 1, 1), ("td3", 0, 3, 2)],
)
def test_a_resumed_run_is_bit_for_bit_the_run_that_was_not_interrupted(tmp_path, algorithm, presampled, actors, sync):
    workload = load(small(tmp_path, algorithm=algorithm, presampled=presampled, actors=actors, sync=sync))
    workload = dataclasses.replace(workload, steps=600 if algorithm in ("sac", "td3") else 900)
    whole = run_to(workload, tmp_path / "whole")
    assert run_to(workload, tmp_path / "parts", until=290) is None
    assert run_to(workload, tmp_path / "parts", until=511, resume=True) is None
    parts = run_to(workload, tmp_path / "parts", resume=True)
    assert_ended_alike(tmp_path)
    unlike = {"seconds", "throughput", "settled", "utc"}
    assert {key: value for key, value in whole.items() if key not in unlike} == {
        key: value for key, value in parts.items() if key not in unlike
    }


def test_a_run_that_is_done_goes_on_to_more_steps_as_if_it_had_been_begun_with_them(tmp_path, capsys):
    workload = load(small(tmp_path))
    long, longer = (dataclasses.replace(workload, steps=steps) for steps in (650, 900))
    run_to(longer, tmp_path / "whole")
    assert run_to(long, tmp_path / "parts")["steps"] == 650
    with pytest.raises(TrainingError, match="more --steps than 650"):
        run_to(long, tmp_path / "parts", resume=True)
    assert run_to(longer, tmp_path / "parts", until=800, resume=True) is None
    said = capsys.readouterr().err
    assert ("the run continues to 900 steps" in said, "beta" in said) == (True, False)
    assert not (tmp_path / "parts" / "summary.json").exists()  # it is not done any more
    assert run_to(longer, tmp_path / "parts", resume=True)["steps"] == 900
    assert_ended_alike(tmp_path)


def test_a_model_that_is_no_use_is_warned_of_once(tmp_path, capsys):
    plan = Plan(tmp_path / "run", test_episodes=1, live=False)
    with contextlib.closing(start(dataclasses.replace(load(small(tmp_path)), steps=450), plan)) as run:
        run._loop.model = types.SimpleNamespace(complaint=lambda: "the model is of no use")
        run.run()
    assert capsys.readouterr().err.count("warning: the model is of no use") == 1


def test_beta_does_not_fall_back_where_a_run_goes_on_to_more_steps(tmp_path, capsys):
    workload = load(small(tmp_path))
    workload = dataclasses.replace(workload, steps=300, replay=dataclasses.replace(workload.replay, beta_end=1.0))
    for steps in (300, 400, 500):
        longer, plan = dataclasses.replace(workload, steps=steps), Plan(tmp_path / "run", test_episodes=1, live=False)
        with contextlib.closing(start(longer, plan, resume=steps > 300)) as run:
            assert run._loop.beta() == (1.0 if steps > 300 else 0.4)
            assert run.run()["steps"] == steps
    assert capsys.readouterr().err.count("beta and exploration keep the schedules") == 2


@pytest.mark.parametrize("environment", ["CartPole-v1", "tests.fake_environments:OpaqueCarts-v0"])
def test_a_run_of_several_environments_is_resumed_bit_for_bit(tmp_path, environment):
    workload = load(small(tmp_path, environment, actors=2, sync=4))
    workload = dataclasses.replace(workload, steps=450, actors=dataclasses.replace(workload.actors, environments=7))
    whole = run_to(workload, tmp_path / "whole")
    assert run_to(workload, tmp_path / "parts", until=290, every=100) is None
    run_to(workload, tmp_path / "parts", resume=True, every=100)
    assert_ended_alike(tmp_path)
    steps = [int(line[0]) for line in curve(tmp_path / "whole")[0][1:]]
    assert [step // 150 for step in steps] == [1, 2, 3]  # once each, in the turn that came to it
    assert all(step % 150 < 7 for step in steps)
    assert whole["updates"] == whole["steps"] // 2 - 99 // 2
    assert len(curve(tmp_path / "whole")[1].splitlines()) - 1 == whole["episodes"]


def assert_ended_alike(folder):
    """Two runs have the same curve and the same state: one that was whole, one in parts."""
    assert curve(folder / "whole") == curve(folder / "parts")
    assert_same(*(checkpoint.load(folder / name / "checkpoint.pt")["loop"] for name in ("whole", "parts")))


def assert_same(one, other, at="state"):
    assert type(one) is type(other), at
    if isinstance(one, dict):
        assert set(one) == set(other), at
        for key in one:
            assert_same(one[key], other[key], f"{at}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), at
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_same(left, right, f"{at}[{number}]")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), at
    else:
        np.testing.assert_array_equal(one, other, err_msg=at)


def test_a_killed_run_is_resumed_bit_for_bit(tmp_path):
    path, killed = small(tmp_path), tmp_path / "killed"
    given = ["train", str(path), "--contestant", "numpy", "--checkpoint-every", "100", "--test-episodes", "2", "--out"]
    command = [sys.executable, "-m", "impls.training", *given, str(killed)]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until((killed / "checkpoint.pt").exists)
    os.kill(child.pid, signal.SIGKILL)  # somewhere after a checkpoint, at no chosen moment
    child.wait()
    assert not (killed / "summary.json").exists()
    assert 0 < checkpoint.load(killed / "checkpoint.pt")["loop"]["step"] < 900
    assert main([*given, str(tmp_path / "whole")]) == 0
    assert main([*given, str(killed), "--resume"]) == 0
    assert curve(tmp_path / "whole") == curve(killed)
    assert (killed / "summary.json").exists()


def test_without_a_terminal_a_line_is_shown_now_and_then(tmp_path, capsys):
    """By a clock of the test's own, which moves by a second a look."""
    seconds = iter(range(10**6))
    workload = dataclasses.replace(fake(), steps=100)
    plan = Plan(tmp_path, 50, 0, clock=lambda: float(next(seconds)))
    with contextlib.closing(start(workload, plan, contestant="numpy")) as run:
        run.run()
    captured = capsys.readouterr()
    first, *lines = captured.err.splitlines()
    assert captured.out == ""
    assert first == f"collecting {workload.learner.learning_starts} steps before learning"
    assert len(lines) == 3
    assert re.match(r"30 of 100 steps \(30%\) after 30 s; [23] episodes, return 55, .*\d+ updates/s$", lines[0])


def test_a_time_box_is_of_the_first_step_on_whether_or_not_a_run_learns_by_then(tmp_path):
    workload = load(small(tmp_path))
    late = dataclasses.replace(workload.learner, learning_starts=10**9)
    for name, learner in (("learns", workload.learner), ("collects", late)):
        endless = dataclasses.replace(workload, learner=learner, steps=10**9, evaluation=SELDOM)
        plan = Plan(tmp_path / name, 10**9, 0, live=False, seconds=1)
        with contextlib.closing(start(endless, plan, contestant="numpy")) as run:
            summary = run.run()
        assert 1 <= summary["seconds"]
        assert (summary["updates"] > 0) == (name == "learns")
        assert summary["steps"] > 0


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_on_the_same_curve(tmp_path):
    path, killed = small(tmp_path), tmp_path / "killed"
    given = ["train", str(path), "--contestant", "numpy", "--checkpoint-every", "100", "--test-episodes", "2", "--out"]
    assert main([*given, str(tmp_path / "whole")]) == 0
    rng, resume, patience = np.random.default_rng(0), list[str](), 6.0
    while not (killed / "summary.json").exists():
        command = [sys.executable, "-m", "impls.training", *given, str(killed), *resume]
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            child.wait(timeout=float(rng.uniform(2.0, patience)))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        patience *= 1.1  # on a busy machine a start alone may take longer than that
        resume = ["--resume"] if (killed / "checkpoint.pt").exists() else []
    assert curve(tmp_path / "whole") == curve(killed)


def test_a_summary_says_what_came_of_a_run(tmp_path):
    summary = run_to(load(small(tmp_path)), tmp_path / "out")
    assert summary == json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["steps"], summary["updates"], summary["test_episodes"]) == (900, 401, 3)
    rates = summary["throughput"]
    assert rates["update_frame_hz"] == rates["update_hz"] * 16
    assert rates["gpu_percent"] is None
    points = [line.split(",") for line in (tmp_path / "out" / "curve.csv").read_text().splitlines()[1:]]
    assert [int(point[0]) for point in points] == [150, 300, 450, 600, 750, 900]
    assert summary["validation_best"] == max(float(point[3]) for point in points)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_init_writes_trains(tmp_path, monkeypatch, algorithm):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "mine", "--algorithm", algorithm]) == 0
    tree = [] if algorithm in ("a3c", "dyna_q") else ["--contestant", "numpy"]
    updates = 1020 // 128 if algorithm == "a3c" else 21
    assert main(["train", "mine.toml", "--steps", "1020", *tree, "--test-episodes", "0", "--out", "out"]) == 0
    summary = json.loads(Path("out/summary.json").read_text())
    assert (summary["workload"], summary["updates"]) == ("mine", updates)


def test_no_torch_is_needed_or_loaded_but_for_its_own_learner(tmp_path):
    short = ["train", "cartpole_dqn", "--steps", "1020", "--contestant", "numpy", "--out", str(tmp_path / "run")]
    short += ["--test-episodes", "1"]
    code = (
        "import sys; from impls.training.__main__ import main; "
        f"codes = [main({short}), main([*{short}, '--resume', '--steps', '1040'])]; "
        "print(codes, 'torch' in sys.modules); sys.modules['torch'] = None; "
        f"sys.exit(main(['train', 'cartpole_dqn', '--learner', 'torch', '--out', {str(tmp_path / 'other')!r}]))"
    )
    done = run_python("-c", code, exit_code=2)
    assert done.stdout.splitlines()[-1] == "[0, 0] False"
    assert done.stderr.splitlines()[-1].startswith("error: the learner torch needs the package torch, which is not")


def test_what_cannot_be_done_is_a_sentence_and_exit_2(tmp_path, capsys):
    path, out = small(tmp_path), str(tmp_path / "out")
    typo = tmp_path / "typo.toml"
    typo.write_text(path.read_text().replace("batch", "bacth").replace("tau", "tua"))
    common = ["train", "--contestant", "numpy", "--test-episodes", "2", "--out", out]
    for given, words in (
        ([str(typo)], "unknown key 'bacth'; did you mean 'batch'?"),
        ([str(tmp_path / "none.toml")], "cannot be read (No such file or directory)"),
        ([str(path), "--resume"], "holds no checkpoint; leave out --resume to begin, by which nothing is lost"),
        ([str(path), "--contestant", "nmpy"], "There is no implementation 'nmpy'"),
        ([str(path), "--seed", "9" * 23], "--seed must be at most 4,294,967,296, not 99999999999999999999999"),
        ([str(path), "--alpha", "nan"], "--alpha must be at least 0, not nan"),
        (
            [str(path), "--steps", "99"],
            "the first gradient step is after 100 environment steps, the run ends after 99;",
        ),
    ):
        assert main([*common, *given]) == 2
        assert words in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert main([*common, str(path), "--device", "cuda"]) == 2
        assert "there is no CUDA device here" in capsys.readouterr().err
    assert main([*common, str(path), "--steps", "300"]) == 0
    for more in ([], ["--steps", "400"], ["--resume"], ["--resume", "--steps", "200"]):
        assert main([*common, str(path), "--steps", "300", *more]) == 2
        said = "holds a run that is done, see its summary.json; continue with it by --resume and more --steps than 300"
        assert said in capsys.readouterr().err
    (tmp_path / "out" / "checkpoint.pt").rename(tmp_path / "kept.pt")
    assert main([*common, str(path), "--steps", "300"]) == 2
    assert "holds a run that is done, see its summary.json; name another" in capsys.readouterr().err
    (tmp_path / "kept.pt").rename(tmp_path / "out" / "checkpoint.pt")
    (tmp_path / "out" / "summary.json").unlink()  # as if it had been killed just before
    assert main([*common, str(path), "--steps", "300"]) == 2
    assert "holds a run; continue with it by --resume" in capsys.readouterr().err
    assert main([*common, str(path), "--steps", "300", "--resume"]) == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["throughput"] is None
    (tmp_path / "out" / "summary.json").unlink()
    assert main([*common, str(path), "--steps", "200", "--resume"]) == 2
    assert "has taken 300 steps already; give as many --steps" in capsys.readouterr().err
    assert main([*common, str(path), "--steps", "400", "--resume", "--seed", "1"]) == 2
    assert "is of another run, which differs in workload.steps, seed" in capsys.readouterr().err
    (tmp_path / "out" / "checkpoint.pt").write_bytes(b"PK\3\4 not a checkpoint")
    assert main([*common, str(path), "--steps", "300", "--resume"]) == 2
    assert "is no checkpoint, or was damaged" in capsys.readouterr().err


@pytest.mark.parametrize(("fault", "environments"), [("raises", 1), ("reset raises", 1), ("raises", 3)])
def test_a_run_whose_environment_fails_is_saved_and_goes_on_with_new_episodes(tmp_path, fault, environments):
    workload = dataclasses.replace(fake(actors={"environments": environments}), steps=500)
    run = start(workload, Plan(tmp_path, 10**6, 0, live=False), contestant="numpy")
    run.run(42)
    actor, loop = run._loop._actors[0], run._loop
    faulty = actor._environment if environments == 1 else actor._environments._each[-1].environment
    faulty._made.unwrapped._fault = fault
    with pytest.raises(TrainingError, match=r"raised .*; the run is saved as of step (\d+): continue with --resume$"):
        run.run()
    run.close()
    state = checkpoint.load(tmp_path / "checkpoint.pt")["loop"]
    assert (state["step"], state["updates"]) == (loop.step, loop.updates)
    assert loop.step >= 42
    again = start(workload, Plan(tmp_path, 10, 0, live=False), contestant="numpy", resume=True)
    assert len(again._loop.buffer) == len(loop.buffer) > 0
    again.run(60)
    again.close()
    assert run_to_fake(workload, tmp_path)["steps"] >= 500  # from a checkpoint of the actors that began anew


def test_what_has_diverged_is_not_saved(tmp_path):
    workload = dataclasses.replace(fake("Cut-v0"), steps=500)
    run = start(workload, Plan(tmp_path, 20, 0, live=False), contestant="numpy")
    run.run(40)
    before = checkpoint.load(tmp_path / "checkpoint.pt")["loop"]["step"]
    run._loop._actors[0]._environment._made.unwrapped._fault = "raises"
    run._loop.learner.weights = lambda: np.full(3, np.nan, np.float32)
    with pytest.raises(TrainingError, match=r"step raised RuntimeError: the motor is on fire badly$"):
        run.run()
    run.close()
    assert checkpoint.load(tmp_path / "checkpoint.pt")["loop"]["step"] == before


@pytest.mark.parametrize(("number", "where"), [(signal.SIGTERM, "training"), (signal.SIGINT, "an evaluation")])
def test_a_run_that_is_asked_to_end_is_saved_and_resumed_bit_for_bit(tmp_path, number, where):
    workload = dataclasses.replace(load(small(tmp_path)), steps=450)
    whole = run_to(workload, tmp_path / "whole")
    run = start(workload, Plan(tmp_path / "parts", 10**6, 3, live=False), contestant="numpy", seed=3)
    target, name = (run._loop, "advance") if where == "training" else (run._evaluated, "reset")
    plain, count = getattr(target, name), [0]

    def asked(*given):
        count[0] += 1
        if count[0] == (317 if where == "training" else 4):  # the second episode of the second evaluation
            os.kill(os.getpid(), number)
        return plain(*given)

    setattr(target, name, asked)
    saved = rf"the run is saved as of step {317 if where == 'training' else 300}: continue"
    with pytest.raises(Interrupted, match=rf"; \d+ gradient steps? at [\d,.]+/s so far; {saved}"):
        run.run()
    run.close()
    parts = run_to(workload, tmp_path / "parts", resume=True)
    assert curve(tmp_path / "whole") == curve(tmp_path / "parts")
    assert whole["test_mean"] == parts["test_mean"]


def test_a_second_ctrl_c_is_an_interrupt_and_a_second_sigterm_is_not():
    told = []
    with Interrupts(lambda: told.append(1)) as interrupts:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            pytest.fail("a second SIGTERM is an interrupt")
        with pytest.raises(Interrupted, match=r"^ended by SIGTERM$"):
            interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert told == [1]


def test_a_closed_terminal_ends_a_run_once_and_not_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            interrupts.check()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with pytest.raises(Interrupted, match=r"^ended by SIGHUP$") as raised, terminable():
            try:
                os.kill(os.getpid(), signal.SIGHUP)
            finally:
                os.kill(os.getpid(), signal.SIGHUP)
        assert raised.value.exit_code == 129
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_process_ends_with_the_one_that_started_it():
    begun = "import os, subprocess, sys, time; "
    child = begun + "from impls.training.interrupts import end_with; end_with(os.getppid()); print(os.getpid(), flush="
    child += "True); time.sleep(100)"
    parent = begun + f"subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        pid = int(process.stdout.readline())
        process.kill()
        assert process.stdout.read() == ""  # until the child has ended
    until(lambda: not lives(pid))  # a process closes its files before it has ended


def run_to_fake(workload, folder, until=None, resume=True):
    return run_to(workload, folder, until, resume, every=20, episodes=0, seed=0)


def test_a_folder_that_a_run_cannot_have_is_refused_before_anything_is_loaded(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "impls.training.run", None)  # which cannot be imported now
    (tmp_path / "file").write_text("")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "episodes.csv").write_text("step\n")
    for out, more, words in (
        ("file", [], "file: cannot be made or written (it is a file); name another with --out"),
        ("file/run", [], "cannot be made or written (Not a directory); name another with --out"),
        ("a" * 300, [], "cannot be made or written (File name too long); name another with --out"),
        ("begun", ["--resume"], "without --resume a run begins there and writes over its episodes.csv; move them away"),
    ):
        assert main(["train", str(small(tmp_path)), "--out", str(tmp_path / out), *more]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1
    before = sorted(tmp_path.rglob("*"))
    check(tmp_path / "new" / "run")
    check(tmp_path / "begun")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_is_one_runs_alone(tmp_path):
    pytest.importorskip("fcntl")
    workload = dataclasses.replace(fake(), steps=60)
    run = start(workload, Plan(tmp_path, 20, 0, live=False), contestant="numpy")
    with pytest.raises(TrainingError, match="is held by a run under way; wait, or name another with --out"):
        start(workload, Plan(tmp_path, 20, 0, live=False), contestant="numpy")
    run.run(40)
    with pytest.raises(TrainingError, match="is held by a run under way"):
        run_to_fake(workload, tmp_path)
    run.close()
    assert run_to_fake(workload, tmp_path)["steps"] == 60


def test_what_a_killed_save_left_behind_is_written_over(tmp_path):
    (tmp_path / ".checkpoint.pt.part").write_bytes(b"half of a checkpoint")
    checkpoint.save({"step": 1}, tmp_path / "checkpoint.pt")
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_file_shorter_than_its_checkpoint_says_is_not_filled_up(tmp_path):
    workload = dataclasses.replace(fake(), steps=60)
    run_to_fake(workload, tmp_path, 40, resume=False)
    log = tmp_path / "episodes.csv"
    log.write_bytes(log.read_bytes()[:15])
    with pytest.raises(TrainingError, match=r"holds 15 bytes, its checkpoint says at least \d+; put the file back"):
        run_to_fake(workload, tmp_path)
    assert len(log.read_bytes()) == 15


def test_a_run_goes_on_with_as_many_threads_and_is_warned_of_another_device(tmp_path, capsys):
    workload = dataclasses.replace(fake(), steps=60)
    run_to_fake(workload, tmp_path, 40, resume=False)
    torch.set_num_threads(2)
    try:
        with pytest.raises(TrainingError, match="is of a run on 1 threads, this one has 2; continue with --threads 1"):
            run_to_fake(workload, tmp_path)
    finally:
        torch.set_num_threads(1)
    state = checkpoint.load(tmp_path / "checkpoint.pt")
    checkpoint.save(state | {"setting": state["setting"] | {"device": "cuda"}}, tmp_path / "checkpoint.pt")
    assert run_to_fake(workload, tmp_path)["steps"] == 60
    assert capsys.readouterr().err == "warning: the run changes from device cuda to cpu; it may leave its curve\n"


def test_a_checkpoint_of_another_format_is_a_sentence(tmp_path, monkeypatch):
    with monkeypatch.context() as patches:
        patches.setattr(checkpoint, "FORMAT", 1)
        checkpoint.save({}, tmp_path / "checkpoint.pt")
    with pytest.raises(
        TrainingError, match=r"is a checkpoint of format 1, this program reads format \d; .*begin again"
    ):
        run_to_fake(fake(), tmp_path)


def test_a_checkpoint_that_memory_cannot_take_is_a_sentence(tmp_path, monkeypatch):
    def too_large(*_, **__):
        raise MemoryError

    workload = dataclasses.replace(fake(), steps=60)
    run = start(workload, Plan(tmp_path, 20, 0, live=False), contestant="numpy")
    run.run(40)
    kept = (tmp_path / "checkpoint.pt").read_bytes()
    monkeypatch.setattr(run._loop.buffer, "state_dict", too_large)
    with pytest.raises(TrainingError, match=r"cannot be written, as .* \[replay\] capacity than .* before is kept"):
        run.run()
    run.close()
    assert (tmp_path / "checkpoint.pt").read_bytes() == kept
    monkeypatch.setattr(np, "load", too_large)
    with pytest.raises(TrainingError, match="cannot be read, as it takes up to"):
        run_to_fake(workload, tmp_path)


def test_rates_are_those_of_training_alone(tmp_path, monkeypatch):
    clock, save = [0.0], checkpoint.save
    run = start(dataclasses.replace(fake(), steps=60), Plan(tmp_path, 20, 0, live=False), contestant="numpy")
    advance = run._loop.advance
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(checkpoint, "save", lambda *given: (save(*given), clock.append(clock.pop() + 1000)))
    monkeypatch.setattr(run._loop, "advance", lambda: (clock.append(clock.pop() + 1), advance())[1])
    rates = run.run()["throughput"]
    run.close()
    assert clock[0] >= 2060
    assert rates["sampling_hz"] == 1.0


def test_where_all_gradient_steps_were_taken_before_a_run_had_settled_there_is_no_rate_since():
    """As where another learner had taken them all before the parent looked."""
    loop = SimpleNamespace(step=900, updates=500, workload=fake())
    given = rates_of(loop, Stopwatch(time.process_time), (0, 0), (0.0, 900, 500))
    assert given["settled"] is None
    assert given["throughput"]["update_hz"] > 0
    assert rates_of(loop, Stopwatch(time.process_time), (0, 0), (0.0, 900, 499))["settled"]["updates"] == 1


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_interrupted_run_says_what_there_is_to_go_on_from(tmp_path, monkeypatch, capsys, is_kept):
    def interrupted(run):
        if is_kept:
            run.save()
        raise KeyboardInterrupt

    monkeypatch.setattr("impls.training.run.Run.run", interrupted)
    assert main(["train", str(small(tmp_path)), "--contestant", "numpy", "--out", str(tmp_path / "out")]) == 130
    told = "continue from the last checkpoint: --resume" if is_kept else "no checkpoint was due yet, begin again"
    assert capsys.readouterr().err == f"\ninterrupted; {told}\n"


def test_a_failure_of_torch_compile_is_a_sentence(tmp_path, monkeypatch, capsys):
    class InvalidCxxCompiler(RuntimeError):
        __module__ = "torch._inductor.exc"

    def fails(*_, **__):
        raise InvalidCxxCompiler("No working C++ compiler found\nand more")

    monkeypatch.setattr("impls.training.run.start", fails)
    given = ["train", str(small(tmp_path)), "--contestant", "numpy", "--compile", "--out", str(tmp_path / "out")]
    assert main(given) == 2
    told = "torch.compile failed (No working C++ compiler found); install a C++ compiler, or leave out --compile"
    assert capsys.readouterr().err == f"error: {told}\n"


@pytest.mark.parametrize(("limit", "file"), [(2_000, "checkpoint.pt|best.pt"), slow(-7, "episodes.csv")])
def test_a_run_whose_disk_is_full_is_resumed_bit_for_bit(tmp_path, limit, file):
    """After the first checkpoint files may grow to a limit, or to 7 bytes above the episodes'."""
    pytest.importorskip("resource")
    path, full = small(tmp_path), tmp_path / "full"
    given = ["train", str(path), "--contestant", "numpy", "--checkpoint-every", "100", "--test-episodes", "2", "--out"]
    code = f"""
import resource, sys
from pathlib import Path
from impls.training import checkpoint
from impls.training.__main__ import main
save = checkpoint.save
def saved(state, path):
    save(state, path)
    if path.name == "checkpoint.pt":
        limit = {limit} if {limit} > 0 else path.with_name("episodes.csv").stat().st_size - {limit}
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1))
checkpoint.save = saved
sys.exit(main({[*given, str(full)]!r}))
"""
    done = run_python("-c", code, exit_code=2, **UNCOVERED)
    told = done.stderr.splitlines()[-1]
    assert re.fullmatch(rf"error: \S*({file}): cannot be written \(.*\); what was saved before is kept", told)
    assert all(text.endswith("\n") for text in ((full / name).read_text() for name in ("curve.csv", "episodes.csv")))
    assert 0 < checkpoint.load(full / "checkpoint.pt")["loop"]["step"] < 900
    assert main([*given, str(tmp_path / "whole")]) == 0
    assert main([*given, str(full), "--resume"]) == 0
    assert curve(tmp_path / "whole") == curve(full)


def test_a_full_disk_at_a_checkpoint_keeps_the_last_one(tmp_path):
    pytest.importorskip("resource")
    path = tmp_path / "checkpoint.pt"
    checkpoint.save({"step": 1, "array": np.arange(3)}, path)
    limited = (
        "import resource, numpy as np; from pathlib import Path; from impls.training import checkpoint, TrainingError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, -1))\n"
        f"try: checkpoint.save({{'array': np.zeros(1_000_000)}}, Path({str(path)!r}))\n"
        "except TrainingError as error: print(error)\n"
    )
    done = run_python("-c", limited, **UNCOVERED)
    assert "cannot be written" in done.stdout
    assert "what was saved before is kept" in done.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint.pt"]
    np.testing.assert_array_equal(checkpoint.load(path)["array"], [0, 1, 2])


def test_a_full_disk_at_a_line_of_the_curve_is_a_sentence():
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with pytest.raises(TrainingError, match=r"/dev/full: cannot be written \(No space left on device\)"):
        Log(Path("/dev/full"), ("step",))


def test_nothing_in_a_checkpoint_is_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    path = tmp_path / "evil.pt"
    with path.open("wb") as file:
        np.savez(file, np.array([Evil()]))
    with pytest.raises(TrainingError, match="is no checkpoint, or was damaged"):
        checkpoint.load(path)
    assert not (tmp_path / "made").exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_cartpole_is_solved_by_the_shipped_workload(tmp_path, seed):
    with contextlib.closing(start(load("cartpole_dqn"), Plan(tmp_path, live=False), seed=seed)) as run:
        assert run.run()["test_mean"] >= 475


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["cartpole_ddpg", "hopper_ddpg", "hopper_td3", "hopper_sac", "lunarlander_dqn", "pong_dqn"]
)
def test_every_shipped_workload_starts(tmp_path, name):
    workload = load(name)
    short = dataclasses.replace(workload.learner, learning_starts=max(workload.learner.batch, 1024))
    smaller = dataclasses.replace(workload.replay, capacity=20_000)
    evaluation = dataclasses.replace(workload.evaluation, interval=1_200, episodes=1)
    changed = {"learner": short, "replay": smaller, "evaluation": evaluation, "steps": 1_200}
    plan = Plan(tmp_path, 10**6, 0, live=False)
    with contextlib.closing(start(dataclasses.replace(workload, **changed), plan)) as run:
        summary = run.run()
    assert summary["updates"] > 0
    assert np.isfinite(summary["validation_best"])
