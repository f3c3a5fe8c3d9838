"""The search for actors and a batch: on made-up tables, as a benchmark, and in a run that adapts itself."""

import contextlib
import dataclasses
import json
import math
import shlex
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs the extra `train`")
pytest.importorskip("gymnasium", reason="training needs the extra `train`")
from benchmarks.__main__ import main as benchmark
from benchmarks.topics import adapt as command
from dse.__main__ import main as main_of_dse
from dse.records import read_file
from impls.training import TrainingError, adaptation, identity, load
from impls.training.__main__ import _parser, _summary_text, main
from impls.training.adapting import BATCH, GRID, MEMORY, PROCESSOR, SAMPLERS, adapt_running
from impls.training.arrangement import Arrangement
from impls.training.options import setup_of
from impls.training.parallel.board import Row
from impls.training.parallel.changing import Rates
from impls.training.run import Plan, start
from tests.parallel_runs import read_rows, small
from tests.profiled import write_workload

SIZES, BATCHES, CORES = tuple(range(1, 21)), tuple(2**k for k in range(4, 22)), 32
CAPS = {PROCESSOR: 100.0, MEMORY: 1e12}


def rates(samplers, batch, **changes):
    """Rates with one peak each: samplers at 12, the batch at 2 ** 14."""
    sampling = 1000 * samplers * math.exp(-samplers / 12)
    frames = 1e6 * math.exp(-abs(math.log2(batch) - 14) / 10) / (1 + 0.01 * samplers)
    used = {"actor_cores": 1.0, "learner_cores": 1.0, "actor_bytes": 2e8, "learner_bytes": 1e9} | changes
    cores = used["learner_cores"] + samplers * used["actor_cores"]
    seconds = (batch / frames,) * 3
    return Rates(samplers, batch, sampling, frames / batch, frames, 100 * cores / CORES, seconds=seconds, **used)


def search(most=CAPS, measure=rates, **options):
    looked = []

    def look(samplers, batch):
        looked.append((samplers, batch))
        return measure(samplers, batch)

    return adapt_running(look, SIZES, BATCHES, most, CORES, **options), looked


def test_both_peaks_are_found_by_few_looks_each_taken_once():
    answer, looked = search()
    assert answer.pair == (12, 2**14)
    assert [step.pair for step in answer.path] == looked
    assert len(looked) == len(set(looked)) == answer.looks <= 14
    assert looked[0] == (1, 16)
    first = [step.pair[1] for step in answer.path if step.search == SAMPLERS]
    second = [step.pair[0] for step in answer.path[len(first) :] if step.search == BATCH]
    assert (set(first), set(second)) == ({16}, {12})
    assert len(first) + len(second) == answer.looks
    assert (answer.grid, answer.losses, answer.repeats) == ((), {}, None)


def test_every_pair_is_measured_anew_and_shows_the_loss():
    seen = set()

    def noisy(samplers, batch):
        """A tenth more at a second look, and twice the samplers' rate at 19, once the search has passed."""
        factor = 1.1 if (samplers, batch) in seen else 1.0
        seen.add((samplers, batch))
        found = rates(samplers, batch)
        factor *= 2.0 if samplers == 19 and len(seen) > 20 else 1.0
        return dataclasses.replace(found, sampling_hz=factor * found.sampling_hz)

    answer, looked = search(measure=noisy, exhaustive=True)
    assert len(answer.grid) == len(SIZES) * len(BATCHES) == len(looked) - answer.looks
    assert {step.search for step in answer.grid} == {GRID}
    loss = answer.losses
    assert (loss[BATCH].found, loss[BATCH].best, loss[BATCH].share) == (2**14, 2**14, 0)
    at = {step.pair: step.rates.sampling_hz for step in answer.grid}
    share = pytest.approx(1 - at[12, 16] / at[19, 16])
    assert (loss[SAMPLERS].found, loss[SAMPLERS].best, loss[SAMPLERS].share) == (12, 19, share)
    assert loss[SAMPLERS].share > 0.1
    assert answer.repeats == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("cap", "most", "samplers"),
    [(PROCESSOR, 25.0, 7), (MEMORY, 1.7e9, 3)],  # 8 cores of 32 are 25%; one is the learner's
    ids=["8 cores", "memory"],
)
def test_no_look_is_taken_that_is_projected_over_a_cap(cap, most, samplers):
    answer, looked = search(CAPS | {cap: most}, exhaustive=True)
    assert max(samplers for samplers, _ in looked) == samplers == answer.pair[0]
    assert answer.searches.samplers.stopped_by == cap
    assert len(answer.grid) == samplers * len(BATCHES)


def test_a_look_that_used_more_than_projected_is_no_answer():
    def hungry(samplers, batch):
        return rates(samplers, batch, actor_bytes=2e8 if batch < 2**13 else 1e12)

    answer, _ = search(measure=hungry)
    assert answer.pair[1] < 2**13
    over = {(step.over, step.pair[1] >= 2**13) for step in answer.path}
    assert over == {("", False), (MEMORY, True)}


@pytest.fixture
def pretended(monkeypatch):
    """The command measures made-up rates."""

    @contextlib.contextmanager
    def loop(workload, samplers, seconds):
        assert (workload.actors.count, samplers, seconds) == (20, 1, 0.5)
        yield rates

    monkeypatch.setattr(command, "measure_loop", loop)
    monkeypatch.setattr(command, "count_allowed", lambda: CORES)


ASK = ["run", "adapt", "--workload", "cartpole_dqn", "--seconds", "0.5", "--anyway"]
VALUES = ["--samplers", ",".join(map(str, SIZES)), "--batches", "16,32,64,128", "--memory-gb", "1000"]


@pytest.mark.parametrize("is_own", [False, True], ids=["shipped", "own"])
def test_the_benchmark_keeps_a_record_of_each_look(pretended, tmp_path, capsys, is_own):
    workload = str(write_workload(tmp_path)) if is_own else "cartpole_dqn"
    asked = [workload if word == "cartpole_dqn" else word for word in (*ASK, *VALUES)]
    grid = [] if is_own else ["--exhaustive"]
    assert benchmark([*asked, *grid, "--results", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["choice"] == [12, 128]
    assert answer["measured_by_status"] == {"ok": 1}  # the first look, by which the search is found
    (path,) = tmp_path.glob("*/adaptation.jsonl")
    kept = read_file(path)
    assert len(kept) == len(answer["path"]) + len(answer["grid"]) == len({look.cell for look in kept})
    assert [look.options["look"] for look in kept] == list(range(1, len(kept) + 1))
    assert [look.op for look in kept][: len(answer["path"])] == [step["search"] for step in answer["path"]]
    assert len({look.options["run"] for look in kept}) == 1
    assert {look.options["identity"] for look in kept} == {identity(load(workload))}
    first = kept[0]
    assert (first.primitive, first.batch, first.options["actors"]) == ("training adaptation", 16, 1)
    assert first.median_seconds == pytest.approx(16 / rates(1, 16).frames_hz)
    assert first.metrics["used_bytes"] == 1.2e9


REFUSED = {"--samplers 1,4097": "4,096 4097", "--samplers 1.5": "'1.5'", "--samplers 2,2": "2 twice"}
REFUSED |= {"--seconds 0": "--seconds", "--fix batch=8": "--fix"}


def test_a_search_that_cannot_be_is_refused(capsys):
    for given, facts in REFUSED.items():
        try:
            code = benchmark(["run", "adapt", "--workload", "cartpole_dqn", "--anyway", *given.split()])
        except SystemExit as error:
            code = error.code
        said = capsys.readouterr().err
        assert code == 2
        assert all(fact in said for fact in facts.split()), said
    asked = ["adapt", "--platform", "this", "--workload", "a b", "--running", "--exhaustive", "--keep"]
    assert main_of_dse(asked) == 2  # an old spelling
    assert capsys.readouterr().err.endswith(": python -m benchmarks run adapt --workload 'a b' --exhaustive\n")


# Runs that adapt themselves


def rates_of_three(actors, batch):
    """Most environment steps by 3 actors, most records by a batch of 256."""
    frames = 1e5 - 1e4 * abs(math.log2(batch) - 8)
    return Rates(actors, batch, 1e3 - abs(actors - 3), frames / batch, frames, 50, 1, 1, 1e6, 1e6, (1.0,))


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    monkeypatch.setattr(adaptation, "count_allowed", lambda: 2)


class Pretended:
    """A loop that measures made-up rates, and notes at which pairs."""

    def __init__(self, workload):
        self.workload, self.looks = workload, []

    def set_actors(self, actors):
        self.actors = actors

    def set_batch(self, batch):
        self.batch = batch

    def measure(self, *_, are_actors_free):
        self.looks.append((self.actors, self.batch, are_actors_free))
        return rates_of_three(self.actors, self.batch)


def prepared(folder, *given, workload=None):
    folder.mkdir(exist_ok=True)
    options = _parser().parse_args(["train", "cartpole_dqn", "--adapt", *given])
    return adaptation.adapted(setup_of(workload or load("cartpole_dqn"), options), options, folder)


def adapted(folder, *given):
    workload, search = prepared(folder, *given)
    loop = Pretended(workload)
    return loop, search(loop, lambda: None)


def test_a_run_goes_on_by_the_pair_found(tmp_path, capsys):
    loop, found = adapted(tmp_path / "a b", "--seed", "3", "--steps", "9000", "--test-process", "--show", "there")
    assert (loop.actors, loop.batch) == (found["actors"], found["batch"]) == (3, 256)
    workload = loop.workload
    assert (workload.actors.count, workload.learner.batch, workload.steps) == (4, 32, 9000)
    looks = [(look["actors"], look["batch"], look["batch"] == 32) for look in found["looks"]]
    assert looks == loop.looks
    *lines, last = capsys.readouterr().err.splitlines()
    assert sum("tried" in line for line in lines) == len(looks)
    assert "kept 3 actors, B = 256" in last
    pasted = _parser().parse_args(shlex.split(found["command"])[3:])
    assert (pasted.adapt, pasted.out, pasted.seed, pasted.test_process, pasted.show) == (False, None, 3, True, None)
    asked = setup_of(load("cartpole_dqn"), pasted).workload
    assert (asked.actors.count, asked.learner.batch) == (3, 256)


def test_a_resumed_run_keeps_its_pair_or_its_search(tmp_path):
    first, found = adapted(tmp_path, "--steps", "9000")
    path = tmp_path / "adaptation.csv"
    lines = path.read_text().splitlines(keepends=True)
    for there in range(1, len(lines) + 1):
        path.write_text("".join(lines[:there]))
        loop, again = adapted(tmp_path, "--steps", "20000", "--resume")
        assert loop.looks == first.looks[there - 1 :]
        assert (loop.actors, loop.batch, again["looks"]) == (3, 256, found["looks"])
        assert path.read_text() == "".join(lines)
    for text in ("".join(lines)[:-9], "".join(lines).replace("actors", "other")):
        path.write_text(text)
        with pytest.raises(TrainingError, match=r"adaptation.csv: .* --actors and --batch"):
            adapted(tmp_path, "--resume")


def test_no_batch_is_tried_that_cannot_train(tmp_path):
    assert max(batch for _, batch, _ in adapted(tmp_path, "--steps", "1200")[0].looks) <= 1024
    with pytest.raises(TrainingError, match=r"--steps"):
        adapted(tmp_path, "--steps", "500")


def test_a_batch_by_hand_is_learned_from_once_it_can_be_filled():
    options = _parser().parse_args(["train", "cartpole_dqn", "--batch", "2048"])
    learner = setup_of(load("cartpole_dqn"), options).workload.learner
    assert (learner.batch, learner.learning_starts) == (2048, 2048)


DECIDED = ("--arrangement pipelined", "--actors 2", "--batch 8", "--mapping -", "--learners 2", "--transport pipe")
DECIDED += ("--contestant numpy", "--compile")


CANNOT = {f"cartpole_dqn --adapt {option}": f"{option} --adapt" for option in DECIDED}
CANNOT |= {f"{name} --adapt": load(name).algorithm for name in ("cartpole_a3c", "cartpole_dyna_q", "pendulum_memr")}
CANNOT |= {"cartpole_dqn --adapt --split": "--split ddpg, td3, sac"}
CANNOT |= {"cartpole_dqn --adapt --policy none": "'none' dense, torch"}
CANNOT |= {"cartpole_dqn --arrangement apart --policy=": "'' dense, torch"}


def test_what_cannot_adapt_writes_nothing(tmp_path, capsys):
    for given, facts in CANNOT.items():
        assert main(["train", *given.split(), "--out", str(tmp_path / "run")]) == 2, given
        said = capsys.readouterr().err
        assert [fact for fact in facts.split() if fact not in said] == [], given
        assert said.count("\n") == 1
        assert not list(tmp_path.iterdir())


def test_no_step_of_a_search_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(adaptation, "LOOK_SECONDS", 0.2)
    length, steps = 10, 8_000  # of the environment's episodes, and of a run that any machine has time to search in
    workload, search = prepared(tmp_path, "--steps", f"{steps}", workload=small(steps=steps))
    plan = Plan(tmp_path / "run", 10**6, 0, live=False, adaptation=search, test_process=True)
    plan.folder.mkdir()
    run = start(workload, plan, arrangement=Arrangement(name="apart"))
    with contextlib.closing(run):
        summary, loop = run.run(), run._loop
        taken = [int(loop.board.rows[row, Row.TURNS]) for row in loop._every]
        assert sum(taken) == loop.buffer.written == loop.step == summary["steps"] == steps
        assert loop.updates >= loop._pace.updates_at(steps)
    lengths = [int(row["length"]) for row in read_rows(plan.folder, "episodes.csv")]
    assert lengths == [length] * sum(turns // length for turns in taken)
    found = summary["adaptation"]
    assert (found["actors"], found["batch"]) == (loop.actors, loop.workload.learner.batch)
    assert (summary["arrangement"]["ratio"], summary["updates"]) == ("kept", loop.updates)
    assert found["command"] in _summary_text(summary)


def test_a_run_that_ends_in_its_search_resumes_by_adapt_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder, given = Path("runs/tiny/adapt-seed0"), ["train", str(write_workload(tmp_path)), "--test-episodes", "0"]
    assert main([*given, "--adapt", "--steps", "60"]) == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["steps"], "adaptation" in summary) == (60, False)
    assert "--steps" in capsys.readouterr().err
    for out in ([], ["--out", str(folder)]):
        assert main([*given, "--steps", "90", "--batch", "8", "--resume", *out]) == 2
        assert "--adapt" in capsys.readouterr().err
