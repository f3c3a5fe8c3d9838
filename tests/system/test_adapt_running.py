"""The search on a running system: against every pair of made-up tables, its caps, its command and its records."""

import dataclasses
import json
import math
from contextlib import contextmanager

import pytest

from benchmarks.__main__ import main
from benchmarks.topics import adapt as command
from dse.__main__ import main as main_of_dse
from dse.records import read_file
from impls.training import TrainingError, identity, load
from impls.training.adapting import BATCH, GRID, MEMORY, PROCESSOR, SAMPLERS, adapt_running
from impls.training.parallel.changing import Rates
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


def run(most=CAPS, measure=rates, **options):
    looked = []

    def look(samplers, batch):
        looked.append((samplers, batch))
        return measure(samplers, batch)

    return adapt_running(look, SIZES, BATCHES, most, CORES, **options), looked


def test_both_peaks_are_found_by_few_looks_each_taken_once():
    answer, looked = run()
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

    answer, looked = run(measure=noisy, exhaustive=True)
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
def test_nothing_is_looked_at_that_the_latest_look_projects_over_a_cap(cap, most, samplers):
    answer, looked = run(CAPS | {cap: most}, exhaustive=True)
    assert max(samplers for samplers, _ in looked) == samplers == answer.pair[0]
    assert answer.searches.samplers.stopped_by == cap
    assert len(answer.grid) == samplers * len(BATCHES)


def test_a_look_that_used_more_than_projected_is_no_answer():
    def hungry(samplers, batch):
        return rates(samplers, batch, actor_bytes=2e8 if batch < 2**13 else 1e12)

    answer, _ = run(measure=hungry)
    assert answer.pair[1] < 2**13
    over = {(step.over, step.pair[1] >= 2**13) for step in answer.path}
    assert over == {("", False), (MEMORY, True)}


@pytest.fixture
def pretended(monkeypatch):
    """The command measures made-up rates."""

    @contextmanager
    def loop(workload, samplers, seconds):
        assert (workload.actors.count, samplers, seconds) == (20, 1, 0.5)
        yield rates

    monkeypatch.setattr(command, "measure_loop", loop)
    monkeypatch.setattr(command, "count_allowed", lambda: CORES)


ASK = ["run", "adapt", "--workload", "cartpole_dqn", "--seconds", "0.5", "--anyway"]
VALUES = ["--samplers", ",".join(map(str, SIZES)), "--batches", "16,32,64,128", "--memory-gb", "1000"]


@pytest.mark.parametrize("is_own", [False, True], ids=["shipped", "own"])
def test_the_command_keeps_a_record_of_each_look_as_it_comes(pretended, tmp_path, capsys, is_own):
    workload = str(write_workload(tmp_path)) if is_own else "cartpole_dqn"
    asked = [workload if word == "cartpole_dqn" else word for word in (*ASK, *VALUES)]
    grid = [] if is_own else ["--exhaustive"]
    assert main([*asked, *grid, "--results", str(tmp_path), "--json"]) == 0
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


def test_looks_are_kept_before_the_next_is_taken(pretended, tmp_path, monkeypatch):
    @contextmanager
    def loop(workload, samplers, seconds):
        def measure(samplers, batch):
            assert len([look for path in tmp_path.glob("*/*.jsonl") for look in read_file(path)]) == samplers - 1
            if samplers == 3:
                raise TrainingError("an actor has died")
            return rates(samplers, batch)

        yield measure

    monkeypatch.setattr(command, "measure_loop", loop)
    assert main([*ASK, "--samplers", "1,2,3", "--results", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ("--samplers 1,4097", "4,096 4097"),
        ("--samplers 1.5", "'1.5'"),
        ("--samplers 2,2", "2 twice"),
        ("--seconds 0", "--seconds"),
        ("--fix batch=8", "--fix"),
    ],
)
def test_a_search_that_cannot_be_is_refused(capsys, given, facts):
    try:
        code = main(["run", "adapt", "--workload", "cartpole_dqn", "--anyway", *given.split()])
    except SystemExit as error:
        code = error.code
    said = capsys.readouterr().err
    assert code == 2
    assert all(fact in said for fact in facts.split())


def test_the_old_spelling_names_the_new_command(capsys):
    assert main_of_dse(["adapt", "--platform", "this", "--workload", "a b", "--running", "--exhaustive", "--keep"]) == 2
    assert capsys.readouterr().err.endswith(": python -m benchmarks run adapt --workload 'a b' --exhaustive\n")
