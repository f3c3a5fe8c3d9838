"""Profiling: which cells there are, what a run writes, how it goes on, and what it says when it cannot."""

import dataclasses
import importlib.util
import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import __main__ as cli
from benchmarks import clock
from benchmarks.clock import ALL_CPUS, StretchClock
from benchmarks.topics.profile import command, concurrent_parts, parts
from benchmarks.topics.profile.cells import PRESETS, groups, list_layer_cells
from dse import platforms
from dse.platforms import fingerprint
from dse.records import read_file
from impls.training import load
from impls.training.settings import of_stated
from impls.training.weights import list_value_layers
from tests.profiled import TINY, write_workload

NEEDED = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "gymnasium", "numba")),
    reason="profiling needs the extra train",
)


def file_of(results, name="profile-tiny-quick"):
    return results / fingerprint()["key"] / f"{name}.jsonl"


def profile(folder, *more):
    """The words of a command that profiles the tiny workload."""
    return ["profile", "--workload", str(write_workload(folder)), "--results", str(folder), *more]


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(command.PRESETS, "quick", TINY)
    monkeypatch.setattr(command, "probe_once", lambda results: None)  # half a minute


class Simulated:
    """A clock of seconds that only calls take."""

    def __init__(self, monkeypatch, seconds):
        self.now, self.calls, self._seconds = 0.0, 0, seconds
        monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def call(self, turn):
        self.calls += 1
        self.now += self._seconds


def test_tries_are_bounded_and_a_sample_is_of_whole_periods(monkeypatch):
    for seconds, calls in ((0.1, 2 + 5), (0.6, 2 + 4), (100.0, 2 + 2)):
        slow = Simulated(monkeypatch, seconds)
        assert StretchClock(slow.call, 0.035).call_seconds == pytest.approx(seconds)
        assert slow.calls == calls
    for seconds, calls in ((0.5, 3), (0.001, 36)):
        timed = StretchClock(Simulated(monkeypatch, seconds).call, 0.035, period=3)
        timed.sample()
        assert timed.calls_per_sample == calls


@NEEDED
def test_a_policy_acts_on_observations_in_turn_and_in_proportion():
    rng, seen = np.random.default_rng(0), []
    policy = SimpleNamespace(act=lambda given, explore, rng: seen.append(given) or np.zeros(len(given), np.int64))
    world = SimpleNamespace(workload=load("cartpole_dqn"), observations=rng.random, policy=lambda name: policy, rng=rng)
    for contestant in ("inference", "forward"):
        seen.clear()
        call = parts.make(world, {"contestant": contestant, "batch": 3})
        for turn in range(2 * parts.ROTATED):
            call(turn)
        assert len({id(each) for each in seen}) == len({each.tobytes() for each in seen}) == parts.ROTATED > 1
    world = parts.World(load("cartpole_dqn"), 0, 1 << 20)
    world.policy = lambda name: policy
    parts.make(world, {"contestant": "actor", "options": {"learner": "dense", "environments": 3}})(0)
    assert seen[-1].shape == (3, 4)
    delayed = load("hopper_td3")
    seldom = dataclasses.replace(delayed, learner=dataclasses.replace(delayed.learner, policy_delay=1000))
    assert [parts.period(workload, "learner") for workload in (delayed, seldom, load("hopper_ddpg"))] == [2, 1, 1]
    assert parts.period(delayed, "actor") == 1


@NEEDED
def test_every_cell_is_a_record_and_a_second_run_times_nothing(tmp_path, capsys, tiny):
    words = [*profile(tmp_path), "--json"]
    assert cli.main(words) == 0
    first = json.loads(capsys.readouterr().out)
    found = read_file(file_of(tmp_path))
    expected = list(filter(None, groups(load(tmp_path / "tiny.toml"), TINY, len(ALL_CPUS) or 1)))
    whole = [one for one in found if one.primitive == concurrent_parts.PRIMITIVE]  # a run of an actor apart
    assert [(one.contestant, one.op) for one in whole] == [("apart", "rate")] * (len(ALL_CPUS) > 1)
    found = [one for one in found if one not in whole]
    assert first["cells"] - len(whole) == sum(map(len, expected)) == sum(one.primitive == "training" for one in found)
    assert first["aa_pairs"] == len(expected)
    assert set(first["measured_by_status"]) <= {"ok", "unstable"}
    for one in found:
        assert (one.source, one.options["workload"]) == ("measured", "tiny")
        assert of_stated(one.machine["workload"]) == load(tmp_path / "tiny.toml")
        assert len(one.samples_seconds) >= 11 and one.calls_per_sample >= 1
        # Of two parts on cores of their own, the first by name has the first.
        is_second = one.options.get("cores") == "own" and one.contestant > one.options["beside"]
        assert one.facts["affinity"] == list(ALL_CPUS[1:2] if is_second else ALL_CPUS[: one.threads])
    assert {one.capacity for one in found if one.contestant == "numba"} == {500}
    assert cli.main([*words, "--dry-run"]) == 0
    assert f"{first['cells']} of them cached" in capsys.readouterr().err


class Process:
    """Answers as a process does whose calls take 0.1 s; ``asked`` are the requests to all."""

    def __init__(self, asked, number):
        self._asked, self._number = asked, number

    def send(self, what, **how):
        self._asked.append((self._number, what, how))

    def receive(self):
        call = {"number": 0, "seconds": 0.1, "period": 1, "calls": 1, "note": None}
        return {"samples": {"rate": [0.1] * 11}} if self._asked[-1][1] == "arrange" else call

    def ask(self, what, **how):
        self.send(what, **how)
        return self.receive()


@pytest.fixture
def asked(tiny, monkeypatch):
    """Profiles have processes that only answer; what they were asked."""
    asked = []
    monkeypatch.setattr(command, "opened", lambda stack, python, needs, number, **world: Process(asked, number))
    monkeypatch.setattr(command, "CORES", 2)
    monkeypatch.setattr(command, "ALL_CPUS", (0, 1))
    return asked


def test_both_parts_of_a_pair_are_read_in_the_same_stretches(tmp_path, asked):
    assert cli.main([*profile(tmp_path), "--only", "learner step,numba step"]) == 0
    pairs = [one for one in read_file(file_of(tmp_path)) if "cores" in one.options and one.primitive == "training"]
    assert [(one.contestant, len(one.samples_seconds)) for one in pairs if one.options["beside"] != "actor"] == [
        ("learner", 11),
        ("numba", 11),
    ]
    begins = Counter(how["begin"] for _, what, how in asked if what == "sample")
    # 11 stretches of learner and tree, and of either cell of the learner beside an actor, which is not asked for.
    assert list(begins.values()).count(2) == 11 * 3
    assert {how["stretch"] for _, what, how in asked if what == "sample" and begins[how["begin"]] == 2} == {0.2}


def test_what_takes_too_long_is_tried_again_and_the_rest_is_left(tmp_path, capsys, asked, monkeypatch):
    short = dataclasses.replace(TINY, longest_cell_seconds=1.0, most_seconds=0.0)
    monkeypatch.setitem(command.PRESETS, "quick", short)
    words = profile(tmp_path)
    assert cli.main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    first = groups(load(tmp_path / "tiny.toml"), short, 2)[0]
    assert told["measured_by_status"] == {"skipped": len(first)}
    assert told["left"] == told["cells"] - len(first)
    skipped = [one for one in read_file(file_of(tmp_path)) if one.primitive == "training"]
    assert {one.seconds_at_least for one in skipped} == {0.1}
    monkeypatch.setitem(command.PRESETS, "quick", dataclasses.replace(TINY, most_seconds=0.0))
    assert cli.main(words) == 0  # what was measured is kept, and counts
    assert f" of {told['cells']} cells measured" in capsys.readouterr().out.splitlines()[-1]
    again = [one for one in read_file(file_of(tmp_path)) if one.primitive == "training"][len(skipped) :]
    assert {one.median_seconds for one in again} == {0.1}
    assert {one.facts["profile"]["cells"] for one in again} == {told["cells"]}


@pytest.mark.slow
@NEEDED
def test_a_step_and_the_tree_in_it_are_timed_on_every_contestant(tmp_path, capsys):
    words = ["run", "share", "--workload", str(write_workload(tmp_path)), "--results", str(tmp_path), "--json"]
    words += ["--contestants", "numba,python", "--sample", "0.005", "--budget", "0"]
    assert cli.main(words) == 0
    told = json.loads(capsys.readouterr().out)
    found = {(one.contestant, one.op, one.primitive): one for one in read_file(file_of(tmp_path, "share-tiny"))}
    steps = {key: one for key, one in found.items() if key[2] == "serial_step"}
    assert len(steps) == 6
    assert told["aa_pairs"] == 2
    assert steps["loop", "step", "serial_step"].seconds > steps["actor", "step", "serial_step"].seconds
    for name in ("numba", "python"):
        learning, tree = (steps[name, op, "serial_step"] for op in ("learning", "tree"))
        assert all(a < b for a, b in zip(tree.samples_seconds, learning.samples_seconds, strict=True))
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out)["found_done"] == 2


def test_a_machine_that_nobody_described_is_probed_once(tmp_path, monkeypatch):
    found = [dataclasses.replace(platforms.load("edge"), machine_key=fingerprint()["key"])]
    monkeypatch.setattr("dse.platforms.probe.probe", lambda tell: found.pop())
    for _ in range(2):
        command.probe_once(tmp_path)
    assert platforms.load("this", tmp_path).machine_key == fingerprint()["key"]


@NEEDED
def test_a_profile_times_both_passes_of_each_layer():
    loaded = load("pong_dqn")
    world, network = parts.World(loaded, 0, 1 << 20), list_value_layers(loaded)
    for number, group in enumerate(list_layer_cells(loaded, PRESETS["brief"], 1), 1):
        forward, backward, update = (cell for cell in group if cell.options["device"] == "cpu")
        assert parts.make(world, vars(update) | {"batch": 3})(0) == (None, None)
        outputs = parts.make(world, vars(forward) | {"batch": 3})(0)[0]
        assert outputs.numel() == 3 * network[number - 1].shape[0] * network[number - 1].places
        gradients = parts.make(world, vars(backward) | {"batch": 3})(0)[0]
        shape = network[number - 1].shape
        assert [tuple(each.shape) for each in gradients[:2]] == [shape, shape[:1]]
        assert len(gradients) == (2 if number == 1 else 3)  # nothing needs gradients of observations
