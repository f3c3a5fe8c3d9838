"""What a reader sees first: a few lines with the choice, what to paste, and what is unsure; all numbers on demand."""

import dataclasses
import itertools
import json
import shlex
import tomllib

import pytest

import dse
import impls
from dse.__main__ import main
from dse.answer import Note
from dse.answers import emit
from dse.answers.ask import find_modeled_tree
from dse.answers.mapping_answer import mapping_answer
from dse.answers.printer import LINES, UNSURE, rounded, write
from dse.answers.tree_answer import tree_answer
from dse.mapping.answer import MappingAnswer
from dse.mapping.question import find_mapping
from dse.solver.law import GIVEN_UP
from dse.times import analytic
from dse.times.platform_trees import SHAPE_FACTOR
from impls.terminal import COMMAND
from impls.training import timed_names
from impls.training.__main__ import _parser as training_parser
from tests.committed import RESULTS
from tests.matrix import matrix, slow
from tests.solver_cases import replace_details

MACHINES = ("d7dae63b89", "8fb834d50a")
PLATFORMS = ("u200", "h200", "edge", *(str(RESULTS / key / "platform.toml") for key in MACHINES))
ASKED = "python -m dse recommend --platform this --workload grid"


def said(capsys, *words):
    return main([str(word) for word in words]), *capsys.readouterr()


def read(capsys, *words):
    return json.loads(said(capsys, *words, "--json")[1])


def check_screens(answer):
    """AssertionError unless the first screen is short, and all numbers are with --verbose."""
    short, whole = list(write(answer)), "\n".join(write(answer, is_verbose=True))
    is_warned = [note for note in answer.notes if note.level == "warning"]
    assert len(short) <= LINES or is_warned
    assert all(len(line) <= 118 or COMMAND.search(line) for line in short if line.startswith(" "))
    for row in (answer.choice, *answer.rows, *answer.others, *answer.decides):
        if row and row.estimate:
            scale = 1e6 if row.unit == "s" else 1.0
            ends = row.estimate.value, row.estimate.low, row.estimate.high
            assert all(rounded(scale * end, *ends[1:]) in whole for end in ends), row


# Mappings


@pytest.mark.parametrize(
    ("platform", "workload"),
    matrix(PLATFORMS, timed_names(), brief=lambda *one: one[1] == "pong_dqn" or one == ("u200", "hopper_ddpg")),
)
def test_first_screen_is_short_and_its_line_works(platform, workload):
    found = find_mapping(platform, workload)
    answer = mapping_answer(found, ASKED)
    check_screens(answer)
    kinds = [note.kind for note in answer.notes]
    if not isinstance(found, MappingAnswer):
        assert (platform, workload, answer.choice, kinds[0]) == ("edge", "pong_dqn", None, "does_not_fit")
        return
    (paste,), rate = answer.paste, answer.choice.estimate
    assert (rate.value, rate.low, rate.high) == (found.value, found.low, found.high)
    assert answer.choice.is_bound == found.choice.is_bound
    assert f"  {paste}" in list(write(answer))
    if why := emit.why_not_run(found):
        assert (why.kind in kinds, paste) == (True, f"{ASKED} --emit toml > mapping.toml")
    else:
        runs_exactly(paste, found)


def runs_exactly(paste, answer):
    given = training_parser().parse_args(shlex.split(paste)[3:])
    part = {one.label["part"]: one for one in answer.parts}
    tree, learner = part["sampling"].more["details"], part["learner"]
    assert given.workload == answer.workload
    assert (given.arrangement or "serial") == answer.arrangement
    if answer.arrangement != "serial":
        assert given.actors == part["actors"].details["processes"]
    assert given.presampled in (None, answer.choice.more["depth"])
    assert (given.contestant, given.fanout) == (tree["contestant"], tree["fanout"])
    assert given.learner == learner.more["details"].get("implementation", "torch")
    assert given.policy == part["actors"].more["details"].get("implementation", "torch")
    if learner.label["device"] == part["actors"].label["device"]:
        assert (given.device, given.threads) == ("cpu", learner.more["details"]["threads"])
    else:
        assert (given.device, given.threads) == ("cuda", None)


def test_nothing_is_advised_that_would_run_something_else():
    serial = find_mapping("h200", "cartpole_dqn", fix={"arrangement": "serial"})
    assert emit.training_command(serial)
    for name, change in (
        ("sampling", {"threads": 2}),
        ("sampling", {"options": {"propagate": "delta"}}),
        ("learner", {"learners": 2}),
    ):
        assert emit.training_command(replace_details(serial, name, change)) is None, change
    fixed = find_mapping("h200", "cartpole_dqn", fix={"arrangement": "serial", "batch": 128})
    assert fixed.called == ""
    assert mapping_answer(fixed, ASKED).paste == (f"{ASKED} --json | python -m impls.training train grid --mapping -",)


def test_what_to_measure_comes_first_where_a_rate_is_unsure():
    found = find_mapping("u200", "pong_dqn")
    for off in (0.9, 1.1):
        answer = mapping_answer(found)
        ends = dataclasses.replace(answer.choice.estimate, low=found.value, high=off * UNSURE * found.value)
        unsure = dataclasses.replace(answer, choice=dataclasses.replace(answer.choice, estimate=ends))
        begins = "".join(itertools.islice(write(unsure), 2))
        assert (found.decide.command in begins) == (off > 1)


def test_warnings_stay_where_notes_have_no_room():
    answer = mapping_answer(find_mapping("u200", "hopper_ddpg"))
    more = [Note("said", {"text": f"warning {number}"}, "warning") for number in range(9)]
    more += [Note("said", {"text": f"note {number}"}, "first") for number in range(9)]
    answer = dataclasses.replace(answer, notes=(*answer.notes, *more))
    short, whole = "\n".join(write(answer)), "\n".join(write(answer, is_verbose=True))
    assert all(f"warning {number}" in short for number in range(9))
    assert "note 8" not in short and "note 8" in whole


# Files


@pytest.mark.parametrize(
    "system",
    [
        ("--platform", "u200", "--workload", "hopper_ddpg"),
        ("--platform", PLATFORMS[-1], "--workload", "hopper_ddpg"),
        ("--platform", "h200", "--workload", "pong_dqn", "--fix", "arrangement=serial"),
        slow(("--platform", "u200", "--workload", "hopper_ddpg", "--fix", "sampling=gpu", "--fix", "updating=cpu")),
    ],
)
def test_a_mapping_is_emitted_as_a_file_that_says_what_the_answer_says(capsys, system):
    file = said(capsys, "recommend", *system, "--emit", "toml")[1]
    given = tomllib.loads(file)
    assert f"# made by: python -m dse recommend {shlex.join(system)}\n" in file
    whole = read(capsys, "recommend", *system)
    choice = {**whole["choice"], "platform": whole["question"]["platform"]}
    stated = [given[name] for name in ("platform", "mode", "depth", "batch", "workload")]
    assert stated == [*(choice[name] for name in ("platform", "arrangement", "depth", "batch")), system[3]]
    assert given["expected"]["low"] <= given["expected"]["value"] <= given["expected"]["high"]
    assert given["expected"]["value"] == pytest.approx(choice["value"], rel=0.006)
    parts = [row for row in whole["rows"] if "part" in row]
    assert len(parts) == 5
    for part in parts:
        details = {"implementation" if key == "contestant" else key: one for key, one in part["details"].items()}
        assert given[part["part"]].items() >= (details | {"device": part["device"]}).items()


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
    whole = read(capsys, "recommend", *asked)
    shape, question, (make,) = whole["choice"], whole["question"], whole["paste"]
    if shape["threads"] <= 2:  # of the machine that tests
        tree = eval(make, {"impls": impls})
        assert (tree.capacity, tree.fanout, tree.threads) == (question["capacity"], shape["fanout"], shape["threads"])
        assert str(tree.dtype) == question["dtype"]
    file = said(capsys, "recommend", *asked, "--emit", "toml")[1]
    table = {name: shape[name] for name in ("implementation", "fanout", "threads", "options")}
    table |= {name: question[name] for name in ("capacity", "dtype")}
    assert tomllib.loads(file) == {"tree": table}


def test_options_are_in_the_line_and_none_that_is_the_default():
    assert emit.make_line("numba", 100, 16, 1, "float32", {}) == 'impls.make("numba", 100, fanout=16)'
    made = emit.make_line("numba", 100, 8, 2, "float64", {"propagate": "delta", "aligned": False})
    assert made.endswith('fanout=8, threads=2, dtype="float64", propagate="delta", aligned=False)')
    assert emit.make_line("flat", 10, 16, 1, "float32", {}) == 'impls.make("flat", 10)'
    assert eval(made, {"impls": impls}).fanout == 8


# Trees


def test_a_tree_answer_is_short_and_warns_of_a_senseless_batch(capsys):
    asked = ("recommend", "--machine", MACHINES[1], "--capacity")
    assert len(said(capsys, *asked, "1e6", "--batch", "256")[1].splitlines()) <= LINES
    for capacity, batch in ((1000, 2048), (10**7, 2 * 10**6)):
        notes = read(capsys, *asked, capacity, "--batch", batch)["notes"]
        assert any(note["level"] == "warning" and f"{batch:,}" in note["text"] for note in notes)
    assert "2,048" in find_modeled_tree("u200", 1000, 2048).notes[0]


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
    assert (choice.time.source, choice.time.interval) == ("modeled", "factor")
    assert best.seconds <= choice.seconds <= best.seconds / (1 - GIVEN_UP)
    assert (best.device, best.configuration) in {(one.device, one.configuration) for one in (choice, *answer.ties)}
    devices = {one.name: one for one in dse.platforms.load(platform).devices}
    device, shape = devices[choice.device], choice.configuration
    if device.kind == "cpu":
        assert shape.threads <= device.cores.value
        laws = analytic.tree(device, capacity, shape.fanout, batch, shape.threads)
        assert choice.seconds == pytest.approx(sum(law.value for law in laws))
    for one in (choice, *answer.ties, *answer.elsewhere):
        assert (one.transfer_seconds > 0) == (devices[one.device].kind != "cpu")
        assert one.transfer_seconds < one.seconds
    for one in answer.ties:
        if one.device == choice.device and one.configuration.threads < shape.threads:
            assert one.seconds > best.seconds / (1 - GIVEN_UP)
    told = tree_answer(answer)
    check_screens(told)
    assert (told.choice.more["device"], told.choice.more["platform"]) == (choice.device, platform)
    assert "tree_is_modeled" in {note.kind for note in told.notes}


def test_threads_and_room_bound_a_modeled_tree():
    assert find_modeled_tree("h200", 1_000_000, 65_536, threads=1).choice.configuration.threads == 1
    with pytest.raises(dse.platforms.PlatformError, match="no device has room for N = 100,000,000,000"):
        find_modeled_tree("edge", 100_000_000_000, 256)
    for capacity, given, words in ((0, {}, "capacity must be at least 1"), (9, {"distribution": "x"}, "distribution")):
        with pytest.raises(ValueError, match=words):
            find_modeled_tree("edge", capacity, 256, **given)


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
        shape: sum(both.values()) / sum(law.value for law in analytic.tree(cpu, shape[0], shape[2], *shape[1::2]))
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
