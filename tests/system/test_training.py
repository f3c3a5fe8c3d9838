"""Runs: resuming bit for bit, also after a kill, what a run writes, and one sentence for whatever goes wrong."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest

from impls.training import TrainingError, load
from tests.committed import ROOT
from tests.learning import change
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
from impls.training.workload import Evaluation, Model  # noqa: E402
from tests.matrix import slow  # noqa: E402
from tests.parallel_runs import lives, until  # noqa: E402
from tests.system.test_actors import fake  # noqa: E402

torch.set_num_threads(1)

SMALL = """
name = "small"
environment = "CartPole-v1"
algorithm = "dqn"
steps = 900
observation.shape = [4]
action.choices = 2
network.hidden = [16]
learner.batch = 16
learner.update_interval = 2
learner.learning_starts = 100
learner.tau = 0.01
replay.capacity = 500
replay.initial_priority = "td_error"
exploration.steps = 500
actors.local_storage = 3
evaluation.interval = 150
evaluation.episodes = 2
evaluation.solved = 20.0
"""
SHORT = change(fake(), steps=60)
LONG = change(fake(), steps=500)


@pytest.fixture
def path(tmp_path):
    """The file of a workload of few steps."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def workload(path):
    return load(path)


def begin(workload, folder, every=20, episodes=0, **options):
    plan = Plan(folder, every, episodes, live=False)
    return start(workload, plan, contestant="numpy", **options)


def run_to(workload, folder, until=None, every=100, episodes=3, seed=3, **options):
    with contextlib.closing(begin(workload, folder, every, episodes, seed=seed, **options)) as run:
        return run.run(until)


def resume_short(folder):
    return run_to(SHORT, folder, episodes=0, seed=0, resume=True)


def command(path, out, *more):
    given = ["train", str(path), "--contestant", "numpy", "--checkpoint-every", "100", "--test-episodes", "2"]
    return [*given, "--out", str(out), *more]


def assert_alike(folder):
    """Two runs, one that was whole and one in parts, have the same curve, episodes, summary and state."""
    told = []
    for part in (folder / "whole", folder / "parts"):
        lines = [line.split(",")[:7] for line in (part / "curve.csv").read_text().splitlines()]  # what no clock decides
        summary = json.loads((part / "summary.json").read_text())
        for key in ("seconds", "throughput", "settled", "utc", "command", "versions"):
            del summary[key]
        state = checkpoint.load(part / "checkpoint.pt")["loop"]
        told.append((lines, (part / "episodes.csv").read_text(), summary, state))
    np.testing.assert_equal(*told)


VECTOR = {"environments": 7, "count": 2, "sync_interval": 4, "steps": 450}
PENDULUM = {"environment": "Pendulum-v1", "shape": (3,), "choices": 0, "size": 1, "steps": 450}
RESUMED = {
    "dqn": {},
    "two actors": {"presampled": 3, "count": 2, "sync_interval": 4},
    "sac": {"algorithm": "sac", "steps": 600},
    "td3": {"algorithm": "td3", "steps": 600, "count": 3, "sync_interval": 2},
    "vector of environments": VECTOR,
    "separate environments": VECTOR | {"environment": "tests.fake_environments:OpaqueCarts-v0"},
    "memr": {"algorithm": "memr", **PENDULUM},
    "mbpo": {"algorithm": "mbpo", "alpha": 0.0, "model": Model(kind="ensemble", horizon=2), **PENDULUM},
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_ends_as_a_whole_one(workload, tmp_path, name):
    workload = change(workload, **RESUMED[name])
    whole = run_to(workload, tmp_path / "whole")
    assert run_to(workload, tmp_path / "parts", until=290) is None
    if workload.steps > 511:
        assert run_to(workload, tmp_path / "parts", until=511, resume=True) is None
    run_to(workload, tmp_path / "parts", resume=True)
    assert_alike(tmp_path)
    assert whole == json.loads((tmp_path / "whole" / "summary.json").read_text())
    points = [line.split(",") for line in (tmp_path / "whole" / "curve.csv").read_text().splitlines()[1:]]
    steps = [int(point[0]) for point in points]
    # Weights are evaluated once an interval, in the turn that comes to its end.
    assert [step // 150 for step in steps] == [*range(1, workload.steps // 150 + 1)]
    assert all(step % 150 < workload.actors.environments for step in steps)
    assert (whole["test_episodes"], whole["validation_best"]) == (3, max(float(point[3]) for point in points))
    assert whole["updates"] == whole["steps"] // 2 - 99 // 2
    assert len((tmp_path / "whole" / "episodes.csv").read_text().splitlines()) - 1 == whole["episodes"]
    rates = whole["throughput"]
    assert (rates["update_frame_hz"], rates["gpu_percent"]) == (rates["update_hz"] * 16, None)


def test_a_run_that_is_done_goes_on_to_more_steps(workload, tmp_path, capsys):
    shorter = change(workload, steps=650)
    run_to(workload, tmp_path / "whole")
    assert run_to(shorter, tmp_path / "parts")["steps"] == 650
    with pytest.raises(TrainingError, match="more --steps than 650"):
        run_to(shorter, tmp_path / "parts", resume=True)
    assert run_to(workload, tmp_path / "parts", until=800, resume=True) is None
    said = capsys.readouterr().err
    assert ("the run continues to 900 steps" in said, "beta" in said) == (True, False)
    assert not (tmp_path / "parts" / "summary.json").exists()  # it is not done any more
    assert run_to(workload, tmp_path / "parts", resume=True)["steps"] == 900
    assert_alike(tmp_path)


def test_beta_does_not_fall_back_at_more_steps(workload, tmp_path, capsys):
    for steps in (300, 400, 500):
        longer = change(workload, steps=steps, beta_end=1.0)
        with contextlib.closing(begin(longer, tmp_path / "run", resume=steps > 300)) as run:
            assert run._loop.beta() == (1.0 if steps > 300 else 0.4)
            assert run.run()["steps"] == steps
    assert capsys.readouterr().err.count("beta and exploration keep the schedules") == 2


@pytest.mark.parametrize("kills", [1, slow(9)])
def test_a_killed_run_is_resumed_bit_for_bit(path, tmp_path, kills):
    """The run is killed after its first checkpoint, at no chosen moment, or again and again, whatever it does."""
    parts, more = tmp_path / "parts", []
    for patience in np.random.default_rng(0).uniform(0, range(kills)):
        words = [sys.executable, "-m", "impls.training", *command(path, parts, *more)]
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            until((parts / "checkpoint.pt").exists)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(patience)
            child.kill()
        more = ["--resume"]
        if is_done := (parts / "summary.json").exists():
            assert kills > 1
            break
    assert main(command(path, tmp_path / "whole")) == 0
    assert is_done or main(command(path, parts, "--resume")) == 0
    assert_alike(tmp_path)


def test_a_model_that_is_no_use_is_warned_of_once(workload, tmp_path, capsys):
    with contextlib.closing(begin(change(workload, steps=450), tmp_path / "run")) as run:
        run._loop.model = types.SimpleNamespace(complaint=lambda: "the model is of no use")
        run.run()
    assert capsys.readouterr().err.count("warning: the model is of no use") == 1


def test_without_a_terminal_a_line_is_shown_now_and_then(tmp_path, capsys):
    """By a clock of the test's own, which moves by a second a look."""
    seconds = iter(range(10**6))
    plan = Plan(tmp_path, 50, 0, clock=lambda: float(next(seconds)))
    with contextlib.closing(start(change(SHORT, steps=100), plan, contestant="numpy")) as run:
        run.run()
    captured = capsys.readouterr()
    first, *lines = captured.err.splitlines()
    assert captured.out == ""
    assert first == f"collecting {SHORT.learner.learning_starts} steps before learning"
    assert len(lines) == 3
    assert re.match(r"30 of 100 steps \(30%\) after 30 s; [23] episodes, return 55, .*\d+ updates/s$", lines[0])


@pytest.mark.parametrize("starts", [100, 10**9])
def test_a_time_box_begins_with_the_first_step(workload, tmp_path, starts):
    seldom = Evaluation(interval=10**8, episodes=1)
    endless = change(workload, learning_starts=starts, steps=10**9, evaluation=seldom)
    plan = Plan(tmp_path, 10**9, 0, live=False, seconds=1)
    with contextlib.closing(start(endless, plan, contestant="numpy")) as run:
        summary = run.run()
    assert summary["seconds"] >= 1
    assert (summary["updates"] > 0) == (starts == 100)
    assert summary["steps"] > 0


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


def test_what_cannot_be_done_is_a_sentence_and_exit_2(path, tmp_path, capsys):
    typo, out = tmp_path / "typo.toml", tmp_path / "out"
    typo.write_text(SMALL.replace("batch", "bacth").replace("tau", "tua"))

    def train(*given):
        short = ["--contestant", "numpy", "--test-episodes", "2", "--steps", "300", "--out", str(out)]
        return main(["train", *short, *map(str, given)])

    def assert_refused(words, *given):
        assert train(*given) == 2
        assert words in capsys.readouterr().err

    assert_refused("unknown key 'bacth'; did you mean 'batch'?", typo)
    assert_refused("none.toml: cannot be read (No such file or directory)", tmp_path / "none.toml")
    assert_refused("holds no checkpoint; leave out --resume", path, "--resume")
    assert_refused("'nmpy'", path, "--contestant", "nmpy")
    if not torch.cuda.is_available():
        assert_refused("there is no CUDA device here", path, "--device", "cuda")
    assert train(path) == 0
    for more in ([], ["--steps", 400], ["--resume"], ["--resume", "--steps", 200]):
        assert_refused("a run that is done, see its summary.json; continue with it by --resume and more", path, *more)
    (out / "checkpoint.pt").rename(tmp_path / "kept.pt")
    assert_refused("holds a run that is done, see its summary.json; name another", path)
    (tmp_path / "kept.pt").rename(out / "checkpoint.pt")
    (out / "summary.json").unlink()  # as if it had been killed just before
    assert_refused("holds a run; continue with it by --resume", path)
    assert train(path, "--resume") == 0
    assert json.loads((out / "summary.json").read_text())["throughput"] is None
    (out / "summary.json").unlink()
    assert_refused("has taken 300 steps already; give as many --steps", path, "--steps", 200, "--resume")
    assert_refused("differs in workload.steps, seed", path, "--steps", 400, "--resume", "--seed", 1)
    (out / "checkpoint.pt").write_bytes(b"PK\3\4 not a checkpoint")
    assert_refused("is no checkpoint, or was damaged", path, "--resume")


@pytest.mark.parametrize(("fault", "environments"), [("raises", 1), ("reset raises", 1), ("raises", 3)])
def test_a_run_whose_environment_fails_is_saved_and_goes_on_with_new_episodes(tmp_path, fault, environments):
    workload = change(LONG, environments=environments)
    run = begin(workload, tmp_path, 10**6)
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
    again = begin(workload, tmp_path, 10, resume=True)
    assert len(again._loop.buffer) == len(loop.buffer) > 0
    again.run(60)
    again.close()
    # Now from a checkpoint of the actors that began anew.
    assert run_to(workload, tmp_path, episodes=0, seed=0, resume=True)["steps"] >= 500


def test_what_has_diverged_is_not_saved(tmp_path):
    run = begin(change(fake("Cut-v0"), steps=500), tmp_path)
    run.run(40)
    before = checkpoint.load(tmp_path / "checkpoint.pt")["loop"]["step"]
    run._loop._actors[0]._environment._made.unwrapped._fault = "raises"
    run._loop.learner.weights = lambda: np.full(3, np.nan, np.float32)
    with pytest.raises(TrainingError, match=r"step raised RuntimeError: the motor is on fire badly$"):
        run.run()
    run.close()
    assert checkpoint.load(tmp_path / "checkpoint.pt")["loop"]["step"] == before


@pytest.mark.parametrize(("number", "where"), [(signal.SIGTERM, "training"), (signal.SIGINT, "an evaluation")])
def test_a_run_that_is_asked_to_end_is_saved_and_resumed_bit_for_bit(workload, tmp_path, number, where):
    workload = change(workload, steps=450)
    run_to(workload, tmp_path / "whole")
    run = begin(workload, tmp_path / "parts", 10**6, 3, seed=3)
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
    run_to(workload, tmp_path / "parts", resume=True)
    assert_alike(tmp_path)


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


def test_a_folder_that_a_run_cannot_have_is_refused_before_anything_is_loaded(path, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "impls.training.run", None)  # which cannot be imported now
    (tmp_path / "file").write_text("")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "episodes.csv").write_text("step\n")
    for out, more, words in (
        ("file", [], "it is a file); name another with --out"),
        ("file/run", [], "Not a directory); name another with --out"),
        ("a" * 300, [], "File name too long); name another with --out"),
        ("begun", ["--resume"], "without --resume a run begins there and writes over its episodes.csv; move them away"),
    ):
        assert main(["train", str(path), "--out", str(tmp_path / out), *more]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1
    before = sorted(tmp_path.rglob("*"))
    check(tmp_path / "new" / "run")
    check(tmp_path / "begun")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_is_one_runs_alone(tmp_path):
    pytest.importorskip("fcntl")
    run = begin(SHORT, tmp_path)
    with pytest.raises(TrainingError, match="is held by a run under way; wait, or name another with --out"):
        begin(SHORT, tmp_path)
    run.run(40)
    with pytest.raises(TrainingError, match="is held by a run under way"):
        resume_short(tmp_path)
    run.close()
    assert resume_short(tmp_path)["steps"] == 60


def test_what_a_killed_save_left_behind_is_written_over(tmp_path):
    (tmp_path / ".checkpoint.pt.part").write_bytes(b"half of a checkpoint")
    checkpoint.save({"step": 1}, tmp_path / "checkpoint.pt")
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_file_shorter_than_its_checkpoint_says_is_not_filled_up(tmp_path):
    run_to(SHORT, tmp_path, 40, 20, 0, 0)
    log = tmp_path / "episodes.csv"
    log.write_bytes(log.read_bytes()[:15])
    with pytest.raises(TrainingError, match=r"holds 15 bytes, its checkpoint says at least \d+; put the file back"):
        resume_short(tmp_path)
    assert len(log.read_bytes()) == 15


def test_a_run_goes_on_with_as_many_threads_and_is_warned_of_another_device(tmp_path, capsys):
    run_to(SHORT, tmp_path, 40, 20, 0, 0)
    torch.set_num_threads(2)
    try:
        with pytest.raises(TrainingError, match="is of a run on 1 threads, this one has 2; continue with --threads 1"):
            resume_short(tmp_path)
    finally:
        torch.set_num_threads(1)
    state = checkpoint.load(tmp_path / "checkpoint.pt")
    checkpoint.save(state | {"setting": state["setting"] | {"device": "cuda"}}, tmp_path / "checkpoint.pt")
    assert resume_short(tmp_path)["steps"] == 60
    assert "warning: the run changes from device cuda to cpu" in capsys.readouterr().err


def test_a_checkpoint_of_another_format_is_a_sentence(tmp_path, monkeypatch):
    with monkeypatch.context() as patches:
        patches.setattr(checkpoint, "FORMAT", 1)
        checkpoint.save({}, tmp_path / "checkpoint.pt")
    with pytest.raises(
        TrainingError, match=r"is a checkpoint of format 1, this program reads format \d; .*begin again"
    ):
        resume_short(tmp_path)


def test_a_checkpoint_that_memory_cannot_take_is_a_sentence(tmp_path, monkeypatch):
    def too_large(*_, **__):
        raise MemoryError

    run = begin(SHORT, tmp_path)
    run.run(40)
    kept = (tmp_path / "checkpoint.pt").read_bytes()
    monkeypatch.setattr(run._loop.buffer, "state_dict", too_large)
    with pytest.raises(TrainingError, match=r"cannot be written, as .* \[replay\] capacity than .* before is kept"):
        run.run()
    run.close()
    assert (tmp_path / "checkpoint.pt").read_bytes() == kept
    monkeypatch.setattr(np, "load", too_large)
    with pytest.raises(TrainingError, match="cannot be read, as it takes up to"):
        resume_short(tmp_path)


def test_rates_are_those_of_training_alone(tmp_path, monkeypatch):
    clock, save = [0.0], checkpoint.save
    run = begin(SHORT, tmp_path)
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
    loop = types.SimpleNamespace(step=900, updates=500, workload=fake())
    given = rates_of(loop, Stopwatch(time.process_time), (0, 0), (0.0, 900, 500))
    assert given["settled"] is None
    assert given["throughput"]["update_hz"] > 0
    assert rates_of(loop, Stopwatch(time.process_time), (0, 0), (0.0, 900, 499))["settled"]["updates"] == 1


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_interrupted_run_says_what_there_is_to_go_on_from(path, tmp_path, monkeypatch, capsys, is_kept):
    def interrupted(run, **_):
        if is_kept:
            run.save()
        raise KeyboardInterrupt

    monkeypatch.setattr("impls.training.run.Run.run", interrupted)
    assert main(command(path, tmp_path / "out")) == 130
    said = capsys.readouterr().err
    assert ("--resume" in said, "begin again" in said) == (is_kept, not is_kept)


def test_a_failure_of_torch_compile_is_a_sentence(path, tmp_path, monkeypatch, capsys):
    class InvalidCxxCompiler(RuntimeError):
        __module__ = "torch._inductor.exc"

    def fails(*_, **__):
        raise InvalidCxxCompiler("No working C++ compiler found\nand more")

    monkeypatch.setattr("impls.training.run.start", fails)
    assert main(command(path, tmp_path / "out", "--compile")) == 2
    said = capsys.readouterr().err
    assert "(No working C++ compiler found); install a C++ compiler, or leave out --compile" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(("limit", "file"), [(2_000, "checkpoint.pt|best.pt"), slow(-7, "episodes.csv")])
def test_a_run_whose_disk_is_full_is_resumed_bit_for_bit(path, tmp_path, limit, file):
    """After the first checkpoint files may grow to a limit, or to 7 bytes above the episodes'."""
    pytest.importorskip("resource")
    parts = tmp_path / "parts"
    code = f"""
import resource, sys
from impls.training import checkpoint
from impls.training.__main__ import main
save = checkpoint.save
def saved(state, path):
    save(state, path)
    if path.name == "checkpoint.pt":
        limit = {limit} if {limit} > 0 else path.with_name("episodes.csv").stat().st_size - {limit}
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1))
checkpoint.save = saved
sys.exit(main({command(path, parts)!r}))
"""
    done = run_python("-c", code, exit_code=2, **UNCOVERED)
    told = done.stderr.splitlines()[-1]
    assert re.fullmatch(rf"error: \S*({file}): cannot be written \(.*\); what was saved before is kept", told)
    assert all(text.endswith("\n") for text in ((parts / name).read_text() for name in ("curve.csv", "episodes.csv")))
    assert not list(parts.glob(".*.part"))
    assert 0 < checkpoint.load(parts / "checkpoint.pt")["loop"]["step"] < 900
    assert main(command(path, tmp_path / "whole")) == 0
    assert main(command(path, parts, "--resume")) == 0
    assert_alike(tmp_path)


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
    seldom = Evaluation(interval=1_200, episodes=1)
    starts = max(workload.learner.batch, 1024)
    workload = change(workload, learning_starts=starts, capacity=20_000, evaluation=seldom, steps=1_200)
    with contextlib.closing(start(workload, Plan(tmp_path, 10**6, 0, live=False))) as run:
        summary = run.run()
    assert summary["updates"] > 0
    assert np.isfinite(summary["validation_best"])
