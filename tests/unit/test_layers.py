"""Layers of a value network, each on a device of its own [Zhang2022, 6.2.2]: the split, its time, and its answer."""

import itertools
import json

import numpy as np
import pytest

from benchmarks.topics.profile.cells import PRESETS, list_layer_cells
from dse.__main__ import main
from dse.estimate import Estimate, Evidence
from dse.mapping.question import answer_question, ask
from dse.times import layers
from dse.times.door import Times
from impls.training import load
from impls.training.weights import list_value_layers

PONG = load("pong_dqn")
DEVICES = ("cpu", "gpu", "fpga")


def lookup(workload=PONG):
    question = ask("u200", workload)
    return Times(question.platform, question.workload, None, None, {})


def send(asked, path):
    """Seconds that a path sends: activations of three forward passes, their gradients back, and errors to the first."""
    network, spent, float_bytes = list_value_layers(PONG), 0.0, 4
    for layer, source, target in zip(network, path, path[1:], strict=False):
        nbytes = float_bytes * asked.batch * layer.shape[0] * layer.places
        if source != target:
            spent += 3 * asked.transfer_seconds(source, target, nbytes) + asked.transfer_seconds(target, source, nbytes)
    return spent + (asked.transfer_seconds(path[-1], path[0], float_bytes * asked.batch) if path[-1] != path[0] else 0)


@pytest.mark.parametrize("seed", range(6))
def test_a_split_is_the_fastest_of_all_with_its_first_device_and_set(seed):
    asked, rng = lookup(), np.random.default_rng(seed)
    drawn = rng.exponential(1e-3, (len(DEVICES), 5)) * rng.uniform(1, 4, (len(DEVICES), 1))
    step = Estimate(1.0, 1.0, 1.0, Evidence("a stopwatch", "measured"))
    times = {
        name: layers.DeviceTimes(tuple(seconds), 1e-4 * rng.random(), step, "timed")
        for name, seconds in zip(DEVICES, drawn.tolist(), strict=True)
    }
    sets = [names for count in (2, 3) for names in itertools.combinations(DEVICES, count)]
    every = [split for names in sets for split in layers.list_splits(asked, {name: times[name] for name in names})]
    found = {(split.devices[0], frozenset(split.devices)): split for split in every}
    best = {}
    for path in itertools.product(DEVICES, repeat=5):
        seconds = sum(times[name].layers[layer] for layer, name in enumerate(path)) + send(asked, path)
        seconds += sum(times[name].rest for name in set(path))
        key = path[0], frozenset(path)
        best[key] = min(best.get(key, seconds), seconds)
    best = {key: seconds for key, seconds in best.items() if len(key[1]) > 1}
    assert found.keys() == best.keys()
    assert {key: split.seconds for key, split in found.items()} == pytest.approx(best)


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_layers_on_one_device_take_the_whole_step(name):
    asked = lookup()
    device = asked.platform.device(name)
    for learner in asked.learners.list(device)[:3]:
        times = layers.split_step(asked, device, learner, learner.step)
        assert sum(times.layers) + times.rest == pytest.approx(learner.step.value)
        assert len(times.layers) == len(list_layer_cells(PONG, PRESETS["quick"], 2)) == 5
        assert min(*times.layers, times.rest) > 0


def test_with_one_device_the_answer_is_that_of_whole_steps():
    asked = {"free": ["layers"], "exclude": ["gpu", "fpga"]}
    answers = [answer_question(ask("u200", "pong_dqn", **question)) for question in (asked, asked | {"free": []})]
    assert answers[0].value == answers[1].value
    assert answers[0].choice.label == answers[1].choice.label
    assert "layers_are_not_split" in {note.kind for note in answers[0].built.searched}


def test_an_answer_names_the_device_of_each_layer(capsys):
    words = ["what-if", "--platform", "u200", "--workload", "pong_dqn", "--free", "layers", "--json"]
    words += ["--objective", "training", "--fix", "arrangement=pipelined", "--epsilon", "0"]
    assert main([*words, "--set", "gpu.launch_us=30"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (note,) = [note for note in answer["notes"] if note["kind"].startswith("layers_are")]
    assert note["kind"] == "layers_are_split"
    assert len(note["layers"]) == 5
    assert note["split_seconds"] < note["whole_seconds"]


@pytest.mark.parametrize("workload", ["hopper_ddpg", "cartpole_a3c"])
def test_layers_of_a_policy_are_refused(workload, capsys):
    assert main(["recommend", "--platform", "u200", "--workload", workload, "--layers"]) == 2
    assert "dqn" in capsys.readouterr().err
    assert list_layer_cells(load(workload), PRESETS["quick"], 2) == []
