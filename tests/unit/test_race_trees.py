"""Races of made-up trees, on a clock of the tests: what is raced, chosen, kept, told and refused."""

import dataclasses
import itertools
import json
import math
import os

import numpy as np
import pytest

import dse
import impls.race
from dse import __main__ as cli
from dse import platforms, race_trees
from dse.platforms.files import RESULTS
from dse.race_trees import find_tree
from dse.records import read_file
from dse.times.tree_times import Configuration
from impls import files
from reports import __main__ as reports
from tests.unit.test_race import Clock
from tests.unit.test_recommend import MACHINE, records, taking, write

DELTA = (("propagate", "delta"),)


@pytest.fixture
def clock(monkeypatch, tmp_path):
    """Trees take what ``clock.step`` says of their configuration, and are seen as they are made; the cache is empty."""
    monkeypatch.setenv("FANOUT_CACHE_DIR", str(tmp_path / "cache"))
    files.warn_once.cache_clear()
    clock = Clock()
    clock.made, clock.step = [], lambda chosen: 1e-3 * (1 + 0.1 * abs(math.log2(chosen.fanout / 16)))

    def stepper(tree):
        call = clock.call(clock.step(tree) * (3 if tree.contestant == "flat" else 1), 0.002)
        return lambda *steps: [call() for _ in steps]

    class Filled(Configuration):
        def load_state_dict(self, state):
            clock.made.append(self)

    def take(tree, steps, *_):
        clock.now += clock.step(tree) * len(steps)
        return clock.step(tree) * len(steps)

    monkeypatch.setattr(impls.race, "time", clock)
    monkeypatch.setattr(impls.race, "random", clock.random)
    sizes = {"POOL_BYTES": 1e5, "ELEMENTS": 1 << 10, "FANOUTS": (8, 16), "COLD_BYTES": 64}
    own = {"_stepper": stepper, "_take": take, "_make": lambda one, *_: Filled(*dataclasses.astuple(one))}
    for name, value in {**sizes, **own, "free_bytes": lambda: 1e9}.items():
        monkeypatch.setattr(race_trees, name, value)
    for name in ("perf_counter", "process_time"):
        monkeypatch.setattr(race_trees.time, name, clock.perf_counter)
    monkeypatch.setattr(race_trees.impls, "why_not", lambda name: None if name in ("numba", "flat") else "not here")
    monkeypatch.setattr(platforms, "commit", lambda *_, is_told: ("c0ffee", False))
    monkeypatch.setattr(platforms, "fingerprint", lambda: {**MACHINE, "python": "3", "packages": {"numba": "1"}})
    return clock


def ask(folder, **question):
    asked = {"capacity": 1_000, "batch": 8, "threads": 1, "results": folder, "race": True}
    return find_tree(**(asked | question))


def test_every_candidate_is_raced_and_the_fastest_chosen(tmp_path, clock):
    clock.step = lambda chosen: 1e-3 * (1.0 if chosen.fanout == 8 and chosen.options == () else 1.2)
    given = ask(tmp_path)
    assert given.choice.configuration == Configuration("numba", 8, 1)
    assert given.choice.time.low < 1e-3 < given.choice.time.high
    raced = {(one.contestant, one.fanout, one.options) for one in clock.made}
    ways = {(("layout", "plain"),), DELTA, (("layout", "plain"), *DELTA), ()}
    assert raced == {("flat", 16, ()), *(("numba", k, way) for k in (8, 16) for way in ways)}


@pytest.mark.parametrize("gain", [1.001, 1.3])
def test_what_drifts_is_told_where_faster_and_chosen_if_asked(tmp_path, clock, gain):
    def step(chosen):
        slower = 2.0 if chosen.fanout != 16 or "layout" in dict(chosen.options) else 1.0
        return 1e-3 * slower / (gain if DELTA[0] in chosen.options else 1.0)

    clock.step = step
    given = ask(tmp_path)
    assert given.choice.configuration == Configuration("numba", 16, 1)
    assert ("faster" in given.race) == (gain > 1.01)
    if "faster" in given.race:
        assert race_trees.configuration_of(given.race["faster"]) == Configuration("numba", 16, 1, DELTA)
        assert given.race["gain"][1] < gain < given.race["gain"][2]
    chosen = ask(tmp_path, allow_drift=True).choice.configuration
    assert chosen.options == (DELTA if gain > 1.01 else ())


def test_atomic_additions_are_raced_and_are_no_choice(tmp_path, clock):
    clock.step = lambda chosen: 1e-3 * (1 + (chosen.fanout != 16)) / (1 + (race_trees.ATOMIC in chosen.options))
    given = ask(tmp_path, batch=8_192, threads=2)
    assert {tree.threads for tree in clock.made if race_trees.ATOMIC in tree.options} == {2}
    assert given.choice.configuration.options == ()
    assert race_trees.ATOMIC in race_trees.configuration_of(given.race["faster"]).options


def test_a_race_has_the_asked_seconds_threads_and_caches(tmp_path, clock, monkeypatch):
    asked = []

    def race(candidates, inputs, seconds, *more, **terms):
        asked.append((seconds, candidates[0].nbytes, terms["cold_bytes"]))
        return impls.race.race(candidates, inputs, seconds, *more, **terms)

    monkeypatch.setattr(race_trees, "race", race)
    monkeypatch.setattr(race_trees, "count_allowed", lambda: 2)
    assert ask(tmp_path, threads=None, seconds=3.0).question.threads == 2
    assert sum(seconds for seconds, *_ in asked) == pytest.approx(3.0)
    asked.clear()
    assert [ask(tmp_path, cold=cold, allow_drift=True).race["limit"] for cold in (False, True)] == [5.0, 15.0]
    (_, one, none), (_, several, written) = asked
    assert (none, written, several) == (0, 64, 8 * one)


def test_a_kept_race_answers_until_question_or_code_changes(tmp_path, clock, monkeypatch):
    first = ask(tmp_path)
    path = tmp_path / "here" / race_trees.FILE
    (record,) = read_file(path)
    assert record.primitive == "race"
    assert len(record.metrics["race"]["rows"][0]["samples"]) > 8
    whole = path.read_bytes()
    path.write_bytes(b"\0\xff\n{}\n" + whole + whole[:99])  # damaged lines are passed over

    def is_raced(**question):
        clock.made.clear()
        ask(tmp_path, **question)
        return bool(clock.made)

    clock.made.clear()
    assert ask(tmp_path) == first
    assert not clock.made
    path.write_bytes(whole)
    assert all(is_raced(**other) for other in ({"batch": 9}, {"inserts": 1}, {"cold": True}, {"again": True}))
    monkeypatch.setattr("dse.race_trees.evidence_here", lambda clock: {"code": "other"})
    assert is_raced()
    assert not is_raced()
    there = {**MACHINE, "python": "3", "packages": {"numba": "2"}}
    monkeypatch.setattr(platforms, "fingerprint", lambda: there)
    assert is_raced()


def test_what_was_undecided_is_raced_again_with_more_time(tmp_path, clock):
    clock.step = lambda chosen: 1e-3
    given = ask(tmp_path, seconds=0.1)
    statuses = [row["status"] for row in given.race["rows"]]
    assert (given.race["ending"], len(given.ties)) == ("out of time", statuses.count("equal"))
    assert statuses[1] == "undecided"
    assert given.runner_up.configuration == race_trees.configuration_of(given.race["rows"][1])
    clock.made.clear()
    ask(tmp_path, seconds=0.1)
    assert not clock.made
    assert ask(tmp_path, seconds=60).race["ending"] == "decided"


def test_what_records_predict_to_be_far_slower_is_not_raced(tmp_path, clock):
    write(tmp_path, records(threads=(1,)))
    given = ask(tmp_path, capacity=1_000_000, batch=512)
    assert {one.contestant for one in clock.made} == {"numba"}  # a search of all leaves takes a thousand times as long
    assert given.race["excluded"] > 0
    assert given.race["prior"] == "here"


def test_what_several_threads_may_make_the_fastest_is_raced(tmp_path, clock):
    write(tmp_path, [taking(5 * one.seconds, one) if one.fanout == 8 else one for one in records(threads=(1,))])
    able, _ = race_trees._candidates(race_trees.Question(1_000_000, 8192, 1.0, 4), tmp_path, unchecked=False)
    assert {one.threads for one in able if (one.fanout, one.options) == (8, ())} == {4}


def test_an_interrupted_race_answers_and_is_not_kept(tmp_path, clock):
    def progress(spent, left):
        if spent > 0:
            raise KeyboardInterrupt

    assert ask(tmp_path, progress=progress).race["ending"] == "interrupted"
    assert not (tmp_path / "here" / race_trees.FILE).exists()


WRONG = (
    ({"seconds": 0.0}, "above 0"),
    ({"seconds": math.nan}, "above 0"),
    ({"updates_per_sample": 101}, "at most 100"),
    ({"inserts": 101}, "at most 100"),
    ({"distribution": "rank0.6"}, "uniform"),
)


def test_bad_questions_are_refused_and_nothing_is_written(tmp_path, clock, capsys):
    for wrong, bound in WRONG:
        with pytest.raises(ValueError, match=bound):
            ask(tmp_path, **wrong)
    assert list(tmp_path.iterdir()) == []
    for more in ("--cold --no-race", "--seconds 1 --machine here", "--inserts 1 --platform u200"):
        assert cli.main(["recommend", "--capacity", "1000", "--batch", "8", *more.split()]) == 2
        assert more.split()[0] in capsys.readouterr().err


def test_best_and_recommend_share_the_cached_races(tmp_path, clock, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "results", records(threads=(1,)))
    assert dataclasses.astuple(dse.best(1_000_000, 512, threads=1)) == ("numba", 16, 1, ())
    assert "flat" in {one.contestant for one in clock.made}  # which records would exclude
    clock.made.clear()
    assert cli.main(["recommend", "--capacity", "1000000", "--batch", "512", "--threads", "1", "--json"]) == 0
    dse.best(1_000_000, 512, threads=1)
    assert clock.made == [*(tmp_path / "results").rglob(race_trees.FILE)] == []
    (race,) = read_file(race_trees.file_of_races("here"))
    asked = reports._parser().parse_args(["--results", str(RESULTS), "--machine", "here"])
    assert race in reports._read(asked).records
    assert race.utc == json.loads(capsys.readouterr().out)["choice"]["race"]["utc"]


def damaged(path):
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(range(256)))


def no_cache(path):
    path.parents[2].write_text("a file where the folder should be")
    path.parents[3].joinpath(f"fanout-{os.getuid()}-races").touch()


@pytest.mark.parametrize("spoil", [damaged, no_cache])
def test_races_that_cannot_be_kept_cost_a_warning_alone(tmp_path, clock, monkeypatch, capsys, spoil):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spoil(tmp_path / "cache" / "races" / "here" / race_trees.FILE)
    assert dse.best(1_000, 8, threads=1).fanout == 16
    assert capsys.readouterr().err.startswith("warning: ")


def test_a_race_that_does_not_end_is_not_waited_for_forever(tmp_path, clock, monkeypatch, capsys):
    monkeypatch.setattr(race_trees, "PATIENCE_SECONDS", 0.1)
    with race_trees._turn(tmp_path, 0.0) as has_waited:
        assert not has_waited
        assert ask(tmp_path, seconds=0.1).choice
    assert "does not end" in capsys.readouterr().err


# What is timed


def test_a_call_has_the_asked_updates_and_inserts(monkeypatch):
    monkeypatch.setattr(race_trees, "ELEMENTS", 1 << 9)
    for rate, steps, updates in ((0.0, 1, 0), (1.0, 1, 1), (0.5, 2, 1), (2.25, 4, 9), (4.0, 1, 4)):
        inputs, of_a_call = race_trees._inputs(race_trees.Question(100, 8, rate, inserts=3))
        assert of_a_call == steps
        for call in (inputs[0], inputs[-1]):
            assert [uniforms.shape for uniforms, _ in call] == [(8,)] * steps
            sizes = [indices.size for _, written in call for indices, _ in written]
            assert (sizes.count(8), sizes.count(1)) == (updates, 3 * steps)
        every = np.concatenate([call[0][0] for call in inputs])
        assert len(np.unique(every)) == every.size
        slots = [indices[0] for call in inputs for _, written in call for indices, _ in written if indices.size == 1]
        assert slots[:5] == [0, 1, 2, 3, 4]


def test_a_step_samples_updates_and_inserts_on_the_tree(monkeypatch):
    monkeypatch.setattr(race_trees, "ELEMENTS", 1 << 9)
    tree = impls.make("numpy", 100)
    tree.update(np.arange(100), 1.0)
    inputs, _ = race_trees._inputs(race_trees.Question(100, 8, 1.0, inserts=1))
    waited = []
    tree.synchronize = lambda: waited.append(None)
    race_trees._stepper(tree)(*inputs[0])
    assert len(waited) == 1
    ((_, ((indices, priorities), (slot, _))),) = inputs[0]
    assert tree.get(indices[-1:])[0] == np.float32(priorities[-1]) or indices[-1] == slot[0]
    assert tree.get(slot)[0] == 1.0


def test_the_time_is_a_programs_and_the_ratios_are_the_races(tmp_path, clock, monkeypatch):
    def take(tree, steps, *_):
        clock.now += 1.5 * clock.step(tree) * len(steps)
        return 1.5 * clock.step(tree) * len(steps)

    monkeypatch.setattr(race_trees, "_take", take)
    given = ask(tmp_path)
    choice, second = given.choice, given.runner_up
    assert choice.seconds == pytest.approx(1.5e-3, rel=1e-3)
    assert choice.time.low < choice.seconds < choice.time.high
    rows = {race_trees.configuration_of(row): row for row in given.race["rows"]}
    assert second.seconds / choice.seconds == pytest.approx(rows[second.configuration]["ratio"][0])
    assert ask(tmp_path).choice == choice
    assert not given.notes


def test_parts_that_differ_widen_the_interval(tmp_path, clock, monkeypatch):
    calm = ask(tmp_path).choice
    parts = itertools.count()
    fill = race_trees._make

    def make(*given):
        tree, clock.slower = fill(*given), 1 + next(parts) % 2
        return tree

    def take(tree, steps, *_):
        seconds = clock.step(tree) * len(steps) * clock.slower
        clock.now += seconds
        return seconds

    monkeypatch.setattr(race_trees, "_make", make)
    monkeypatch.setattr(race_trees, "_take", take)
    monkeypatch.setattr(race_trees.time, "process_time", lambda: 0.6 * clock.now)
    given = ask(tmp_path, again=True)
    assert given.choice.time.high / given.choice.time.low > 1.9 > calm.time.high / calm.time.low
    (note,) = [note for note in given.notes if note.kind == "race_was_disturbed"]
    assert note.values["busy_share"] == pytest.approx(0.4, abs=0.005)


def test_the_interval_holds_for_rows_of_larger_arrays(tmp_path, clock, monkeypatch):
    def take(tree, steps, is_cold, is_row):
        seconds = (1.4 if is_row else 1.0) * clock.step(tree) * len(steps)
        clock.now += seconds
        return seconds

    monkeypatch.setattr(race_trees, "_take", take)
    choice = ask(tmp_path).choice
    assert choice.seconds == pytest.approx(1e-3, rel=1e-3)
    assert choice.time.low > 0.8e-3
    assert 1.4e-3 < choice.time.high < 1.5e-3


def test_a_program_has_arguments_of_its_own():
    steps = race_trees._program(race_trees.Question(100, 3, updates_per_sample=2.0, inserts=1))
    arrays = [array for uniforms, errors, _ in steps for array in (uniforms, *errors)]
    assert all(array.base is None for array in arrays)
    assert sum(array.nbytes + 112 for array in arrays) > race_trees.POOL_BYTES / 3
    tree = impls.make("numpy", 100)
    tree.update(np.arange(100), 0.0)
    tree.update([7], 1.0)
    (uniforms, errors, (slot,)) = steps[5]
    assert (uniforms.dtype, [each.dtype for each in errors], slot.tolist()) == (np.float64, [np.float32] * 2, [5])
    assert race_trees._take(tree, [(uniforms, errors, [slot])], False, False) > 0
    assert (tree.get(7), tree.get(5)) == (errors[-1][-1], 1.0)


def test_one_candidate_no_room_and_no_folder_are_refused(tmp_path, clock, capsys, monkeypatch):
    words = ["recommend", "--capacity", "1000", "--batch", "8", "--threads", "1", "--results"]
    locked = tmp_path / "file"
    locked.write_text("")
    assert cli.main([*words, str(locked)]) == 2
    monkeypatch.setattr(race_trees, "free_bytes", lambda: 3e4)  # a tree fits, and no room to fill it
    assert cli.main([*words, str(tmp_path / "none")]) == 2
    monkeypatch.setattr(race_trees, "free_bytes", lambda: 1e9)
    monkeypatch.setattr(race_trees.impls, "names", lambda: ("flat",))
    assert cli.main([*words, str(tmp_path / "none")]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert [error.startswith("error: ") for error in errors] == [True] * 3
    for error, part in zip(errors, (str(locked), "GB free", "at least 2 trees"), strict=True):
        assert part in error
    assert not any((tmp_path / "none").rglob("*.jsonl"))
