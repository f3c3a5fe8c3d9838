"""Facts of answers about trees of records and of models: what may be chosen, the line that makes it, and its file."""

import json
import tomllib

import pytest

import dse
import impls
from dse.__main__ import main
from dse.answers import emit
from dse.answers.ask import find_modeled_tree
from dse.answers.tree_answer import tree_answer
from dse.solver.law import GIVEN_UP
from dse.times import laws
from dse.times.trees import SHAPE_FACTOR
from tests.committed import RESULTS
from tests.matrix import slow
from tests.unit.test_answers import check_screens

MACHINES = ("d7dae63b89", "8fb834d50a")


def printed(capsys, *words):
    """Run a command, and return what it prints."""
    assert main([*words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "asked",
    [
        slow(("--machine", MACHINES[0], "--capacity", "1e6", "--batch", "256")),
        slow(("--machine", MACHINES[1], "--capacity", "1e6", "--batch", "1")),
        ("--machine", MACHINES[1], "--capacity", "5e5", "--batch", "64", "--dtype", "float64"),
        ("--platform", "u200", "--capacity", "1e5", "--batch", "64"),
    ],
)
def test_the_line_of_a_tree_makes_that_tree_and_its_file_says_the_same(capsys, asked):
    file, plain = (printed(capsys, "recommend", *asked, *more) for more in (("--emit", "toml"), ("--json",)))
    whole = json.loads(plain)
    shape, question, (make,) = whole["choice"], whole["question"], whole["paste"]
    if shape["threads"] <= 2:  # of the machine that tests
        tree = eval(make, {"impls": impls})
        assert tree.capacity == question["capacity"]
        assert tree.fanout == shape["fanout"]
        assert tree.threads == shape["threads"]
        assert str(tree.dtype) == question["dtype"]
    table = {name: shape[name] for name in ("implementation", "fanout", "threads", "options")}
    table |= {name: question[name] for name in ("capacity", "dtype")}
    assert tomllib.loads(file) == {"tree": table}


def test_options_are_in_the_line_and_none_that_is_the_default():
    assert emit.make_line("numba", 100, 16, 1, "float32", {}) == 'impls.make("numba", 100, fanout=16)'
    made = emit.make_line("numba", 100, 8, 2, "float64", {"propagate": "delta", "aligned": False})
    assert made.endswith('fanout=8, threads=2, dtype="float64", propagate="delta", aligned=False)')
    assert emit.make_line("flat", 10, 16, 1, "float32", {}) == 'impls.make("flat", 10)'
    assert eval(made, {"impls": impls}).fanout == 8


# Which tree


def test_a_senseless_batch_is_warned_of(capsys):
    for capacity, batch in ((1000, 2048), (10**7, 2 * 10**6)):
        words = f"recommend --machine {MACHINES[1]} --capacity {capacity} --batch {batch} --json"
        notes = json.loads(printed(capsys, *words.split()))["notes"]
        assert any(note["level"] == "warning" and note.get("batch") == batch for note in notes)
    assert find_modeled_tree("u200", 1000, 2048).notes[0].values["batch"] == 2048


def test_threads_bound_a_modeled_tree():
    assert find_modeled_tree("h200", 1_000_000, 65_536, threads=1).choice.configuration.threads == 1


@pytest.mark.parametrize(
    ("platform", "capacity", "batch"),
    [
        ("u200", 1_000, 1),
        ("h200", 1_000_000, 256),
        ("edge", 10_000_000, 65_536),
        *(slow(name, *shape) for name in ("u200", "edge") for shape in ((1_000_000, 256), (10_000, 4_096))),
    ],
)
def test_which_tree_on_a_machine_one_does_not_have(platform, capacity, batch):
    answer = find_modeled_tree(platform, capacity, batch)
    best, choice = answer.best, answer.choice
    assert choice.time.source == "modeled"
    assert choice.time.interval == "factor"
    assert best.seconds <= choice.seconds <= best.seconds / (1 - GIVEN_UP)
    assert (best.device, best.configuration) in {(one.device, one.configuration) for one in (choice, *answer.ties)}
    devices = {one.name: one for one in dse.platforms.load(platform).devices}
    device, shape = devices[choice.device], choice.configuration
    if device.kind == "cpu":
        assert shape.threads <= device.cores.value
        both = laws.tree(device, capacity, shape.fanout, batch, shape.threads)
        assert choice.seconds == pytest.approx(sum(law.value for law in both))
    for one in (choice, *answer.ties, *answer.elsewhere):
        assert (one.transfer_seconds > 0) == (devices[one.device].kind != "cpu")
        assert one.transfer_seconds < one.seconds
    for one in answer.ties:
        if one.device == choice.device and one.configuration.threads < shape.threads:
            assert one.seconds > best.seconds / (1 - GIVEN_UP)
    told = tree_answer(answer)
    check_screens(told)
    assert told.choice.more["device"] == choice.device
    assert told.choice.more["platform"] == platform
    assert "tree_is_modeled" in {note.kind for note in told.notes}


@pytest.mark.parametrize("key", MACHINES)
def test_the_ratio_of_two_of_a_devices_trees_is_as_sure_as_it_is_said_to_be(key):
    cpu = dse.platforms.load(RESULTS / key / "platform.toml").device("cpu")
    took = {}
    for record in dse.read_folder(RESULTS, key):
        shape = record.capacity, record.batch, record.fanout, record.threads
        plain = (record.primitive, record.contestant, record.source) == ("sum_tree", "numba", "measured")
        if plain and not record.options and record.dtype == "float32" and record.op in ("draw", "update"):
            if record.median_seconds and record.distribution == "uniform":
                took.setdefault(shape, {})[record.op] = record.median_seconds
    ratios = {
        shape: sum(both.values()) / sum(law.value for law in laws.tree(cpu, shape[0], shape[2], *shape[1::2]))
        for shape, both in took.items()
        if len(both) == 2
    }
    pairs = [
        max(ratios[one] / ratios[two], ratios[two] / ratios[one])
        for one in ratios
        for two in ratios
        if one < two and one[:2] == two[:2]
    ]
    assert len(pairs) > 100
    assert sum(off <= SHAPE_FACTOR for off in pairs) / len(pairs) >= 0.9
