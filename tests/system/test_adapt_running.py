"""The search on a running system: against every pair of made-up tables, its caps, its command and its records."""

import json
import math

import pytest

from dse.__main__ import main
from dse.cli import tuning as command
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
    searches = [step.search for step in answer.path]
    assert searches == sorted(searches, key=(SAMPLERS, BATCH).index)
    assert {step.pair[1] for step in answer.path if step.search == SAMPLERS} == {16}
    assert {step.pair[0] for step in answer.path if step.search == BATCH} == {12}
    assert (answer.grid, answer.losses, answer.repeats) == ((), {}, None)


def test_every_pair_is_measured_anew_and_shows_the_loss():
    seen = {}

    def noisy(samplers, batch):
        """Twice the samplers' rate at 19, once the search has passed."""
        again = seen.setdefault((samplers, batch), 0)
        seen[samplers, batch] += 1
        factor = 2.0 if samplers == 19 and len(seen) > 20 else 1.0
        found = rates(samplers, batch)
        return Rates(**{**vars(found), "sampling_hz": factor * found.sampling_hz * (1.1 if again else 1.0)})

    answer, looked = run(measure=noisy, exhaustive=True)
    assert len(answer.grid) == len(SIZES) * len(BATCHES) == len(looked) - answer.looks
    assert {step.search for step in answer.grid} == {GRID}
    loss = answer.losses
    assert (loss[BATCH].found, loss[BATCH].best, loss[BATCH].share) == (2**14, 2**14, 0)
    assert (loss[SAMPLERS].found, loss[SAMPLERS].best) == (12, 19)
    at = {step.pair: step.rates.sampling_hz for step in answer.grid}
    assert loss[SAMPLERS].share == pytest.approx(1 - at[12, 16] / at[19, 16])
    assert loss[SAMPLERS].share > 0.1
    assert answer.repeats == pytest.approx(1.1)


def test_nothing_is_looked_at_that_the_latest_look_projects_over_a_cap():
    answer, looked = run({PROCESSOR: 25.0, MEMORY: 1e12})  # 8 cores of 32, one of them the learner's
    assert max(samplers for samplers, _ in looked) == 7 == answer.pair[0]
    assert answer.searches.samplers.stopped_by == PROCESSOR
    answer, looked = run({PROCESSOR: 100.0, MEMORY: 1.7e9}, exhaustive=True)
    assert max(samplers for samplers, _ in looked) == 3 == answer.pair[0]
    assert len(answer.grid) == 3 * len(BATCHES)
    with pytest.raises(TrainingError, match="even 1 is over the cap on memory"):
        run({PROCESSOR: 100.0, MEMORY: 1e9})


def test_a_look_that_used_more_than_projected_is_no_answer():
    def hungry(samplers, batch):
        return rates(samplers, batch, actor_bytes=2e8 if batch < 2**13 else 1e12)

    answer, _ = run(measure=hungry)
    assert answer.pair[1] < 2**13
    over = [step for step in answer.path if step.over]
    assert over
    assert {step.over for step in over} == {MEMORY}
    assert all(step.pair[1] >= 2**13 for step in over)


@pytest.fixture
def pretended(monkeypatch):
    """The command measures made-up rates."""
    from contextlib import contextmanager  # noqa: PLC0415

    @contextmanager
    def loop(workload, samplers, seconds):
        assert (workload.actors.count, samplers, seconds) == (20, 1, 0.5)
        yield rates

    monkeypatch.setattr(command, "_loop", loop)
    monkeypatch.setattr(command, "count_allowed", lambda: CORES)


ASK = ["adapt", "--platform", "this", "--workload", "cartpole_dqn", "--running", "--seconds", "0.5"]
VALUES = ["--samplers", ",".join(map(str, SIZES)), "--batches", "16,32,64,128", "--memory-gb", "1000"]


def test_the_command_keeps_a_record_of_each_look_as_it_comes(pretended, tmp_path, capsys):
    asked = [*ASK, *VALUES, "--exhaustive", "--keep", "--results", str(tmp_path), "--json"]
    assert main(asked) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["choice"] == [12, 128]
    (path,) = tmp_path.glob("*/adaptation.jsonl")
    kept = read_file(path)
    assert len(kept) == len(answer["path"]) + len(answer["grid"])
    assert [one.options["look"] for one in kept] == list(range(1, len(kept) + 1))
    assert [one.op for one in kept][: len(answer["path"])] == [step["search"] for step in answer["path"]]
    first = kept[0]
    assert (first.primitive, first.batch, first.options["actors"]) == ("training adaptation", 16, 1)
    assert first.median_seconds == pytest.approx(16 / rates(1, 16).frames_hz)
    assert first.machine["used_bytes"] == 1.2e9
    assert len({one.options["run"] for one in kept}) == 1
    assert len({one.cell for one in kept}) == len(kept)


def test_looks_of_a_workload_of_ones_own_are_kept_under_its_identity(pretended, tmp_path):
    path = write_workload(tmp_path)
    asked = [str(path) if word == "cartpole_dqn" else word for word in ASK]
    assert main([*asked, *VALUES, "--keep", "--results", str(tmp_path), "--json"]) == 0
    (kept,) = tmp_path.glob("*/adaptation.jsonl")
    assert {one.options["identity"] for one in read_file(kept)} == {identity(load(path))}


def test_the_command_says_the_answer_first_then_the_path(pretended, capsys):
    assert main([*ASK, *VALUES, "--exhaustive"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Take 12 samplers, B = 128: 4,415 environment steps and ")
    assert lines[4].startswith("  look      samplers  B")
    text = "\n".join(lines)
    assert "all 80 pairs measured, besides " in text
    assert "samplers: 12 found, 12 fastest of those measured; the search loses 0.0%" in text


def test_another_machine_cannot_be_adapted_by_running(capsys):
    assert main(["adapt", "--platform", "u200", "--workload", "cartpole_dqn", "--running"]) == 2
    assert capsys.readouterr().err == ("error: --running measures the machine that runs it: ask with --platform this\n")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("--running --samplers 1,4097", "count must be at least 1 and at most 4,096, not 4097"),
        ("--running --seconds 0", "--seconds must be above 0, not 0"),
        ("--running --fix batch=8", "--fix changes nothing with --running"),
        ("--samplers 3", "--samplers changes nothing without --running"),
    ],
)
def test_a_search_that_cannot_be_and_what_it_would_not_heed_are_told_before_a_loop_begins(capsys, given, words):
    assert main(["adapt", "--platform", "this", "--workload", "cartpole_dqn", *given.split()]) == 2
    assert words in capsys.readouterr().err


def test_numbers_of_a_search_are_read_as_counts_are(capsys):
    assert command._numbers("1k,2_000") == (1_000, 2_000)
    with pytest.raises(SystemExit):
        main(["adapt", "--platform", "this", "--workload", "cartpole_dqn", "--running", "--samplers", "1.5"])
    assert "'1.5' is not a whole number" in capsys.readouterr().err


def test_the_least_batch_that_is_tried_holds_the_workloads():
    assert load("cartpole_dqn").learner.batch in command.BATCHES
