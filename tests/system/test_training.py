"""Runs: what one writes and refuses, what ends it, its rates, its checkpoints; whole and in parts they are the same."""

import contextlib
import copy
import dataclasses
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from impls.training import TrainingError, load
from tests.learning import assert_goes_on, change
from tests.nursery import UNCOVERED, run_python

torch = pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("gymnasium", reason="training needs the extra `train`")
pytest.importorskip("numba")
from impls.training import checkpoint  # noqa: E402  # with torch
from impls.training.__main__ import main  # noqa: E402
from impls.training.arrangement import COPIES, Arrangement  # noqa: E402
from impls.training.clock import Stopwatch  # noqa: E402
from impls.training.copies.loop import CopiesLoop  # noqa: E402
from impls.training.folder import Log, check  # noqa: E402
from impls.training.interrupts import Interrupted, Interrupts, terminable  # noqa: E402
from impls.training.loop import SerialLoop  # noqa: E402
from impls.training.run import Plan, rates_of, start  # noqa: E402
from impls.training.workload import Evaluation, Model  # noqa: E402
from tests import curves  # noqa: E402
from tests.committed import ROOT  # noqa: E402
from tests.matrix import slow  # noqa: E402
from tests.parallel_runs import begin_run, read_rows, run_to, same_run, small, until  # noqa: E402
from tests.profiled import write_workload  # noqa: E402
from tests.system.test_actors import fake  # noqa: E402

torch.set_num_threads(1)

SHORT = change(fake(evaluation={"interval": 30}), steps=60)
LONG = change(fake(), steps=500)


def resume_short(folder):
    return run_to(SHORT, folder, episodes=0, seed=0, resume=True)


def run_with(workload, folder, **plan):
    plan = {"checkpoint_every": 10**9, "test_episodes": 0, "live": False} | plan
    with contextlib.closing(start(workload, Plan(folder, **plan), contestant="numpy")) as run:
        return run.run()


def spoil(run, fault, at=0):
    """Let an environment of a run fail from now on."""
    actor = run._loop._actors[0]
    environment = actor._environment if run._workload.actors.environments == 1 else actor._environments._each[at]
    getattr(environment, "environment", environment)._made.unwrapped._fault = fault


def test_an_unusable_model_and_a_lost_node_are_told_once(tmp_path, capsys):
    with contextlib.closing(begin_run(SHORT, tmp_path / "run")) as run:
        run._loop.model = types.SimpleNamespace(complaint=lambda: "the model is of no use")
        run._loop.take_events = lambda events=["a node is lost"]: [events.pop()] if events else []
        run.run()
    said = capsys.readouterr().err
    assert (said.count("the model is of no use"), said.count("note: a node is lost")) == (1, 1)


def test_without_a_terminal_a_line_is_shown_at_times(tmp_path, capsys):
    """A clock of the test moves by a second a look."""
    seconds = iter(range(10**6))
    run_with(change(SHORT, steps=100), tmp_path, live=True, clock=lambda: float(next(seconds)))
    captured = capsys.readouterr()
    first, *lines = captured.err.splitlines()
    assert captured.out == ""
    assert str(SHORT.learner.learning_starts) in first
    assert len(lines) == 3
    assert re.match(r"30 of 100 steps .* 30 s; [23] episodes, .* 55, .*\d+ updates/s$", lines[0])


@pytest.mark.parametrize("starts", [16, 10**9])
def test_a_time_box_begins_with_the_first_step(tmp_path, starts):
    endless = change(LONG, learning_starts=starts, steps=10**9, evaluation=Evaluation(interval=10**8, episodes=1))
    summary = run_with(endless, tmp_path, seconds=0.5)
    assert summary["seconds"] >= 0.5
    assert (summary["updates"] > 0) == (starts == 16)
    assert summary["steps"] > 0


def test_only_its_own_learner_needs_or_loads_torch(tmp_path):
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
    assert re.match("error: .* torch .* not installed", done.stderr.splitlines()[-1])


def test_what_cannot_be_trained_exits_with_2(tmp_path, capsys):
    path, out = "cartpole_dqn", tmp_path / "out"

    def train(*given):
        short = ["--contestant", "numpy", "--test-episodes", "2", "--steps", "1010", "--out", str(out)]
        return main(["train", *short, *map(str, given)])

    def assert_refused(facts, *given):
        assert train(*given) == 2
        said = capsys.readouterr().err
        assert [fact for fact in facts.split() if fact not in said] == []

    assert_refused("checkpoint --resume", path, "--resume")
    assert_refused("'nmpy'", path, "--contestant", "nmpy")
    if not torch.cuda.is_available():
        assert_refused("CUDA", path, "--device", "cuda")
    assert train(path) == 0
    for more in ([], ["--steps", 1020], ["--resume"], ["--resume", "--steps", 1005]):
        assert_refused("done summary.json --resume --steps", path, *more)
    (out / "checkpoint.pt").rename(tmp_path / "kept.pt")
    assert_refused("done summary.json --out", path)
    (tmp_path / "kept.pt").rename(out / "checkpoint.pt")
    (out / "summary.json").unlink()  # as if it had been killed just before
    assert_refused("--resume", path)
    assert train(path, "--resume") == 0
    assert json.loads((out / "summary.json").read_text())["throughput"] is None
    (out / "summary.json").unlink()
    assert_refused("1,010 --steps", path, "--steps", 1005, "--resume")
    assert_refused("workload.steps, seed", path, "--steps", 1020, "--resume", "--seed", 1)
    (out / "checkpoint.pt").write_bytes(b"PK\3\4 not a checkpoint")
    assert_refused("damaged", path, "--resume")


@pytest.mark.parametrize(("fault", "environments"), [("raises", 1), ("reset raises", 1), ("raises", 3)])
def test_a_run_whose_environment_fails_is_saved(tmp_path, fault, environments):
    """It goes on with new episodes."""
    workload = change(LONG, environments=environments, steps=200)
    run = begin_run(workload, tmp_path, 10**6)
    run.run(42)
    loop = run._loop
    spoil(run, fault, -1)
    with pytest.raises(TrainingError, match=r"raised .* step \d+: .*--resume$"):
        run.run()
    run.close()
    state = checkpoint.load(tmp_path / "checkpoint.pt")["loop"]
    assert (state["step"], state["updates"]) == (loop.step, loop.updates)
    assert loop.step >= 42
    again = begin_run(workload, tmp_path, 10, resume=True)
    assert len(again._loop.buffer) == len(loop.buffer) > 0
    again.run(60)
    again.close()
    # Now from a checkpoint of the actors that began anew.
    assert run_to(workload, tmp_path, episodes=0, seed=0, resume=True)["steps"] >= 200


def test_what_has_diverged_is_not_saved(tmp_path):
    run = begin_run(change(fake("Cut-v0"), steps=500), tmp_path)
    run.run(40)
    before = checkpoint.load(tmp_path / "checkpoint.pt")["loop"]["step"]
    spoil(run, "raises")
    run._loop.learner.weights = lambda: np.full(3, np.nan, np.float32)
    with pytest.raises(TrainingError, match=r"RuntimeError: the motor is on fire badly$"):
        run.run()
    run.close()
    assert checkpoint.load(tmp_path / "checkpoint.pt")["loop"]["step"] == before


# Signals


def test_a_second_ctrl_c_interrupts_a_second_sigterm_not():
    heard = []
    with Interrupts(lambda: heard.append(1)) as interrupts:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            pytest.fail("a second SIGTERM is an interrupt")
        with pytest.raises(Interrupted, match="SIGTERM"):
            interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert heard == [1]


def test_a_closed_terminal_ends_a_run_but_not_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            interrupts.check()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with pytest.raises(Interrupted, match="SIGHUP") as raised, terminable():
            try:
                os.kill(os.getpid(), signal.SIGHUP)
            finally:
                os.kill(os.getpid(), signal.SIGHUP)
        assert raised.value.exit_code == 129
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_interrupted_run_says_if_it_can_go_on(tmp_path, monkeypatch, capsys, is_kept):
    def interrupt(run, **_):
        if is_kept:
            run.save()
        raise KeyboardInterrupt

    monkeypatch.setattr("impls.training.run.Run.run", interrupt)
    assert main(["train", "cartpole_dqn", "--out", str(tmp_path / "out")]) == 130
    said = capsys.readouterr().err
    assert ("--resume" in said, "begin again" in said) == (is_kept, not is_kept)


def test_a_failure_of_torch_compile_is_a_sentence(tmp_path, monkeypatch, capsys):
    class InvalidCxxCompiler(RuntimeError):
        __module__ = "torch._inductor.exc"

    def fail(*_, **__):
        raise InvalidCxxCompiler("No working C++ compiler found\nand more")

    monkeypatch.setattr("impls.training.run.start", fail)
    assert main(["train", "cartpole_dqn", "--compile", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert re.match(r"error: .*No working C\+\+ compiler found.* --compile.*\n$", said)


# Folders


def test_an_unusable_folder_is_refused_before_imports(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "impls.training.run", None)  # which cannot be imported now
    (tmp_path / "file").write_text("")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "episodes.csv").write_text("step\n")
    unusable = {"file": "file --out", "file/run": "directory --out", "a" * 300: "long --out"}
    unusable["begun"] = "--resume episodes.csv"
    for out, facts in unusable.items():
        more = ["--resume"] if out == "begun" else []
        assert main(["train", "cartpole_dqn", "--out", str(tmp_path / out), *more]) == 2
        said = capsys.readouterr().err
        assert all(fact in said for fact in facts.split())
        assert said.count("\n") == 1
    before = sorted(tmp_path.rglob("*"))
    check(tmp_path / "new" / "run")
    check(tmp_path / "begun")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_is_one_runs_alone(tmp_path):
    pytest.importorskip("fcntl")
    run = begin_run(SHORT, tmp_path)
    with pytest.raises(TrainingError, match=r"under way.*--out"):
        begin_run(SHORT, tmp_path)
    run.run(40)
    with pytest.raises(TrainingError, match="under way"):
        resume_short(tmp_path)
    run.close()
    assert resume_short(tmp_path)["steps"] == 60


def test_a_file_shorter_than_its_checkpoint_is_kept(tmp_path):
    run_to(SHORT, tmp_path, 40, 20, 0, 0)
    log = tmp_path / "episodes.csv"
    log.write_bytes(log.read_bytes()[:15])
    with pytest.raises(TrainingError, match=r"episodes.csv: .* 15 bytes"):
        resume_short(tmp_path)
    assert len(log.read_bytes()) == 15


def test_a_full_disk_at_a_line_of_the_curve_is_a_sentence():
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with pytest.raises(TrainingError, match=r"/dev/full: .*No space left on device"):
        Log(Path("/dev/full"), ("step",))


# Rates


def test_rates_are_those_of_training_alone(tmp_path, monkeypatch):
    clock, save = [0.0], checkpoint.save
    run = begin_run(SHORT, tmp_path)
    advance = run._loop.advance
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(checkpoint, "save", lambda *given: (save(*given), clock.append(clock.pop() + 1000)))
    monkeypatch.setattr(run._loop, "advance", lambda: (clock.append(clock.pop() + 1), advance())[1])
    rates = run.run()["throughput"]
    run.close()
    assert clock[0] >= 2060
    assert rates["sampling_hz"] == 1.0


def test_a_run_without_a_step_since_it_settled_has_no_rate():
    """Another learner may have taken them all before the parent looks."""
    loop = types.SimpleNamespace(step=900, updates=500, workload=fake())
    given = rates_of(loop, Stopwatch(time.process_time), (0, 0), (0.0, 900, 500))
    assert given["settled"] is None
    assert given["throughput"]["update_hz"] > 0
    assert rates_of(loop, Stopwatch(time.process_time), (0, 0), (0.0, 900, 499))["settled"]["updates"] == 1


# Checkpoints


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder and state of a run that was saved after an evaluation."""
    folder = tmp_path_factory.mktemp("saved")
    with contextlib.closing(begin_run(SHORT, folder)) as run:
        run.run(40)
        run.save()
    return folder, checkpoint.load(folder / "checkpoint.pt")


def resume(folder, saved, state):
    """Resume the saved run in another folder, where its checkpoint has another state."""
    for name in ("curve.csv", "episodes.csv"):
        shutil.copy(saved[0] / name, folder)
    checkpoint.save(state, folder / "checkpoint.pt")
    begin_run(SHORT, folder, resume=True).close()


CHANGED = [
    (f"loop learner {vector} 1", np.inf, f"{vector} has not the form")
    for vector in ("weights", "targets", "mean", "square")
]
CHANGED += [("identity workload learner batch", None, r"learner\.batch"), ("identity workload model kind", None, "")]
CHANGED += [("identity workload evaluation interval", None, r"evaluation\.interval")]
"""A place in a checkpoint, what stands there instead (None: nothing), and what is said: keys with defaults may lack."""


def test_a_checkpoint_has_finite_numbers_and_needed_keys(tmp_path, saved):
    for place, value, said in CHANGED:
        at = tuple(1 if key == "1" else key for key in place.split())
        with pytest.raises(TrainingError, match=said) if said else contextlib.nullcontext():
            resume(tmp_path, saved, replace_part(saved[1], at, value))


def test_a_run_keeps_its_threads_and_may_change_device(tmp_path, saved, capsys):
    torch.set_num_threads(2)
    try:
        with pytest.raises(TrainingError, match=r"1 threads.* 2; .*--threads 1"):
            resume(tmp_path, saved, saved[1])
    finally:
        torch.set_num_threads(1)
    resume(tmp_path, saved, saved[1] | {"setting": saved[1]["setting"] | {"device": "cuda"}})
    assert re.match("warning: .*cuda to cpu", capsys.readouterr().err)


def test_a_checkpoint_beyond_memory_is_a_sentence(tmp_path, monkeypatch):
    def raise_error(*_, **__):
        raise MemoryError

    run = begin_run(SHORT, tmp_path)
    run.run(40)
    kept = (tmp_path / "checkpoint.pt").read_bytes()
    monkeypatch.setattr(run._loop.buffer, "state_dict", raise_error)
    with pytest.raises(TrainingError, match=r"checkpoint.pt: .* \[replay\] capacity"):
        run.run()
    run.close()
    assert (tmp_path / "checkpoint.pt").read_bytes() == kept
    monkeypatch.setattr(np, "load", raise_error)
    with pytest.raises(TrainingError, match=r"checkpoint.pt: cannot be read"):
        resume_short(tmp_path)


def test_other_files_are_neither_loaded_nor_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    np.savez(tmp_path / "0.npz", np.array([Evil()]))
    np.savez_compressed(tmp_path / "1.npz", np.frombuffer(b'{"format": 5, "state": 1}', np.uint8))
    with mock.patch.object(checkpoint, "FORMAT", 1):
        checkpoint.save({}, tmp_path / "2.npz")
    for number, said in enumerate(("damaged", "compressed", rf"format 1, .* {checkpoint.FORMAT};")):
        with pytest.raises(TrainingError, match=said):
            checkpoint.load(tmp_path / f"{number}.npz")
    assert not (tmp_path / "made").exists()


def test_no_array_loads_with_a_damaged_shape_or_type(tmp_path):
    path, state = tmp_path / "best.pt", {"x": np.arange(17_410, dtype=np.float32), "y": np.zeros((70, 90), bool)}
    checkpoint.save(state, path)
    whole = path.read_bytes()
    headers = [match.span() for match in re.finditer(rb"{'descr'.*?}", whole)]
    assert len(headers) == 3  # with the text
    for at in (at for header in headers for at in range(*header)):
        for letter in b"04<|bf ,":
            if whole[at] != letter:
                path.write_bytes(whole[:at] + bytes([letter]) + whole[at + 1 :])
                with pytest.raises(TrainingError, match="damaged"):
                    checkpoint.load(path)


def find_places(state, at=()):
    """The path to everything in a state, through dicts and short lists."""
    yield at
    if isinstance(state, dict) or (isinstance(state, list) and len(state) < 10):
        for key, part in state.items() if isinstance(state, dict) else enumerate(state):
            yield from find_places(part, (*at, key))


def replace_part(state, at, value):
    """The state with another value at a place; without one, the place is removed."""
    other = copy.deepcopy(state)
    part = other
    for key in at[:-1]:
        part = part[key]
    if value is None:
        del part[at[-1]]
    else:
        part[at[-1]] = value
    return other


OWN = {"setting", "seconds", "points", "recent", "losses", "rng", "score", "mean", "largest", "actions", "drawn"}
"""Keys under which another value, or one fewer, may be some run's: any priority is large enough, lists may be empty."""


@pytest.mark.parametrize("odd", [None, "text", float("nan"), [], 1 << 70, np.zeros(3)], ids=str)
def test_odd_contents_of_a_checkpoint_are_a_sentence(saved, tmp_path, odd):
    state, resumed = saved[1], []
    for at in [place for place in find_places(state) if place][:: 2 if odd is None else 5]:
        try:
            resume(tmp_path, saved, replace_part(state, at, odd))
        except TrainingError as error:
            assert "\n" not in str(error)
            continue
        resumed.append(at)
    lacks_default = [at for at in resumed if odd is None and at[0] == "identity"]  # as one of an older version may
    assert [at for at in resumed if not OWN & {*at} and at not in lacks_default] == []


def test_a_checkpoint_is_written_over_what_a_kill_left(tmp_path):
    (tmp_path / ".checkpoint.pt.part").write_bytes(b"half of a checkpoint")
    checkpoint.save({"step": 1}, tmp_path / "checkpoint.pt")
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint.pt"]
    with pytest.raises(TrainingError, match="cannot be written"):
        checkpoint.save({"step": 1}, tmp_path / "gone" / "checkpoint.pt")
    with pytest.raises(TrainingError, match="cannot be read"):
        checkpoint.load(tmp_path / "gone")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_cartpole_is_solved_by_the_shipped_workload(tmp_path, seed):
    with contextlib.closing(start(load("cartpole_dqn"), Plan(tmp_path, live=False), seed=seed)) as run:
        assert run.run()["test_mean"] >= 475


# The same run, bit for bit: whole or in parts, after whatever ended it


@pytest.fixture
def path(tmp_path):
    """The file of a workload of few steps."""
    return write_workload(tmp_path)


@pytest.fixture
def workload(path):
    settings = {"steps": 600, "learning_starts": 100, "batch": 16, "capacity": 300, "local_storage": 3, "hidden": (16,)}
    evaluation = Evaluation(interval=150, episodes=2, solved=20.0)
    return change(load(path), initial_priority="td_error", evaluation=evaluation, **settings)


@pytest.fixture
def folders(tmp_path):
    return tmp_path / "whole", tmp_path / "parts"


def command(path, out, *more):
    given = ["train", str(path), "--contestant", "numpy", "--checkpoint-every", "100", "--test-episodes", "2"]
    return [*given, "--steps", "600", "--out", str(out), *more]


VECTOR = {"environments": 7, "count": 2, "sync_interval": 4, "steps": 450}
PENDULUM = {"environment": "Pendulum-v1", "shape": (3,), "choices": 0, "size": 1, "steps": 450}
RESUMED = {
    "dqn": {},
    "two actors": {"presampled": 3, "count": 2, "sync_interval": 4},
    "sac": {"algorithm": "sac"},
    "td3": {"algorithm": "td3", "count": 3, "sync_interval": 2},
    "vector of environments": VECTOR,
    "separate environments": VECTOR | {"environment": "tests.fake_environments:OpaqueCarts-v0"},
    "mbpo": {"algorithm": "mbpo", "alpha": 0.0, "model": Model(kind="ensemble", horizon=2), **PENDULUM},
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_ends_as_a_whole_one(workload, folders, name):
    workload = change(workload, **RESUMED[name])
    whole = run_to(workload, folders[0])
    assert run_to(workload, folders[1], until=290) is None
    if workload.steps > 511:
        assert run_to(workload, folders[1], until=511, resume=True) is None
    run_to(workload, folders[1], resume=True)
    same_run(*folders)
    assert whole == json.loads((folders[0] / "summary.json").read_text())
    points = read_rows(folders[0])
    # Weights are evaluated once an interval, in the turn that comes to its end.
    assert [int(point["step"]) // 150 for point in points] == [*range(1, workload.steps // 150 + 1)]
    assert all(int(point["step"]) % 150 < workload.actors.environments for point in points)
    assert (whole["test_episodes"], whole["validation_best"]) == (3, max(float(row["mean_score"]) for row in points))
    assert whole["updates"] == whole["steps"] // 2 - 99 // 2
    assert len(read_rows(folders[0], "episodes.csv")) == whole["episodes"]
    rates = whole["throughput"]
    assert (rates["update_frame_hz"], rates["gpu_percent"]) == (rates["update_hz"] * 16, None)


def test_a_done_run_goes_on_to_more_steps(workload, folders, capsys):
    shorter = change(workload, steps=400)
    run_to(workload, folders[0])
    assert run_to(shorter, folders[1])["steps"] == 400
    with pytest.raises(TrainingError, match=r"--steps than 400"):
        run_to(shorter, folders[1], resume=True)
    assert run_to(workload, folders[1], until=500, resume=True) is None
    said = capsys.readouterr().err
    assert ("600" in said, "beta" in said) == (True, False)
    assert not (folders[1] / "summary.json").exists()  # it is not done any more
    assert run_to(workload, folders[1], resume=True)["steps"] == 600
    same_run(*folders)


def test_beta_does_not_fall_back_at_more_steps(workload, tmp_path, capsys):
    for steps in (150, 200, 250):
        longer = change(workload, steps=steps, beta_end=1.0)
        with contextlib.closing(begin_run(longer, tmp_path / "run", resume=steps > 150)) as run:
            assert run._loop.beta() == (1.0 if steps > 150 else 0.4)
            assert run.run()["steps"] == steps
    assert capsys.readouterr().err.count("beta") == 2


@pytest.mark.parametrize("kills", [1, slow(9)])
def test_a_killed_run_is_resumed(path, folders, kills):
    """The run is killed after its first checkpoint, at no chosen moment, or again and again, whatever it does."""
    whole, parts = folders
    more = []
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
    assert main(command(path, whole)) == 0
    assert is_done or main(command(path, parts, "--resume")) == 0
    same_run(whole, parts)


ASKED = {"training": (signal.SIGTERM, 317, 317), "an evaluation": (signal.SIGINT, 4, 300)}
"""The signal by which a run is asked to end; at which step, or episode of evaluations; the step that is saved."""


@pytest.mark.parametrize("where", ASKED)
def test_a_run_asked_to_end_is_saved_and_resumed(workload, folders, where):
    number, moment, step = ASKED[where]
    workload, count = change(workload, steps=450), itertools.count(1)
    run_to(workload, folders[0])
    with contextlib.closing(begin_run(workload, folders[1], 10**6, 3, seed=3)) as run:
        target, name = (run._loop, "advance") if where == "training" else (run._evaluated, "reset")
        plain = getattr(target, name)

        def ask(*given):
            if next(count) == moment:
                os.kill(os.getpid(), number)
            return plain(*given)

        setattr(target, name, ask)
        with pytest.raises(Interrupted, match=rf" at [\d,.]+/s .* step {step}: .*--resume"):
            run.run()
    run_to(workload, folders[1], resume=True)
    same_run(*folders)


def test_a_run_on_a_full_disk_is_resumed(path, folders):
    """After the first checkpoint files may grow to 2,000 bytes."""
    pytest.importorskip("resource")
    whole, parts = folders
    code = f"""
import resource, sys
from impls.training import checkpoint
from impls.training.__main__ import main
save = checkpoint.save
def saved(state, path):
    save(state, path)
    if path.name == "checkpoint.pt":
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, -1))
checkpoint.save = saved
sys.exit(main({command(path, parts)!r}))
"""
    said = run_python("-c", code, exit_code=2, **UNCOVERED).stderr.splitlines()[-1]
    assert re.match(r"error: \S*(checkpoint.pt|best.pt): ", said)
    assert all((parts / name).read_text().endswith("\n") for name in ("curve.csv", "episodes.csv"))
    assert not list(parts.glob(".*.part"))
    assert 0 < checkpoint.load(parts / "checkpoint.pt")["loop"]["step"] < 600
    assert main(command(path, whole)) == 0
    assert main(command(path, parts, "--resume")) == 0
    same_run(whole, parts)


# A learner and a loop


LOOPS = {"torch, dense": "numpy", "dense, torch": "numpy", "dense, dense": "numba"}
"""Implementations of a learner and of the policy by which actors act, and a tree."""


@pytest.mark.parametrize("algorithm", ["sac", "a3c"])
@pytest.mark.parametrize("pair", LOOPS)
def test_a_resumed_loop_goes_on_alike(algorithm, pair):
    workload = change(fake(replay={"initial_priority": "td_error"}), algorithm=algorithm)
    if algorithm == "a3c":
        workload = change(workload, batch=3, update_interval=3, learning_starts=3)
    made = dict(zip(("learner", "policy"), pair.split(", "), strict=True)) | {"contestant": LOOPS[pair], "seed": 1}
    first, second = (SerialLoop(workload, **made) for _ in range(2))
    for _ in range(40):
        first.advance()
    assert_goes_on(first, second, lambda loop: (loop.advance(), loop.losses), 30)


ON_POLICY = dict.fromkeys(("batch", "update_interval", "learning_starts"), 3) | {"capacity": 0}
AS_COPIES = {
    "dqn": {},
    "dqn, in turns": {"local_storage": 8, "presampled": 2, "environments": 2},
    "dyna_q": {"algorithm": "dyna_q"},  # without model workers
    "a3c": {"algorithm": "a3c"} | ON_POLICY,
}


@pytest.mark.parametrize("name", AS_COPIES)
def test_one_copy_is_the_serial_loop(name):
    copied = small(steps=400, **AS_COPIES[name])
    plain = dataclasses.replace(copied, algorithm="dqn") if copied.algorithm == "dyna_q" else copied
    serial, copies = SerialLoop(plain, seed=3), CopiesLoop(copied, Arrangement(name=COPIES), seed=3)
    with contextlib.closing(serial), contextlib.closing(copies):
        ended = 0
        for _ in range(200):
            episodes = serial.advance()
            assert copies.advance() == episodes
            assert (copies.step, copies.updates) == (serial.step, serial.updates)
            ended += len(episodes)
        assert min(serial.updates, ended) > 10
        assert_array_equal(copies.learner.parameters, serial.learner.parameters)
        assert_array_equal(copies.learner.vectors().square, serial.learner.vectors().square)


# What was kept (tests/curves.py)


def test_learners_begin_with_the_kept_weights():
    kept = json.loads(curves.FILE.read_text())
    assert len(kept["weights"]) == len(kept["curves"]) > 20
    assert not list(curves.list_changes(kept, curves.hash_all(["weights"])))


def test_the_same_seed_gives_the_kept_curve():
    kept, part = json.loads(curves.FILE.read_text()), ("pendulum_sac", "dense")
    is_comparable = kept["made with"] == curves.describe_machine()
    expected = kept["curves"][" ".join(part)] if is_comparable else curves.hash_curve(*part)
    assert curves.hash_curve(*part) == expected
