"""What a reader sees first: the choice in one sentence, a line to paste that works, and why in a few lines."""

import dataclasses
import json
import re
import shlex
import tomllib

import pytest

import dse
import impls
from dse.__main__ import main
from dse.answers import emit, mapping_words, tree_text
from dse.answers.mapping_text import LINES, text
from dse.answers.recommend import recommend_modeled
from dse.answers.text import several
from dse.estimate import Evidence
from dse.mapping.alternatives import Decides, Other
from dse.mapping.answer import MappingAnswer, Simulated, TransferAnswer
from dse.mapping.question import find_mapping
from dse.solver.law import GIVEN_UP
from dse.times import analytic
from dse.times.platform_trees import SHAPE_FACTOR
from impls.training import timed_names
from impls.training.__main__ import _parser as training_parser
from tests.committed import RESULTS
from tests.matrix import matrix, slow

MACHINES = ("d7dae63b89", "8fb834d50a")
PLATFORMS = ("u200", "h200", "edge", *(str(RESULTS / key / "platform.toml") for key in MACHINES))
NUMBER = r"(\d{1,3}(?:,\d{3})*(?:\.\d+)?)"
FIRST = re.compile(rf"Train (\w+) \(B = {NUMBER}\) on .* on the \w+.*: (?:at most )?(?=about )")


def said(capsys, *words):
    return main([str(word) for word in words]), *capsys.readouterr()


def digits(number):
    """Digits of a number that are told: those before the zeros at its end.

    >>> digits("110,000"), digits("0.48"), digits("7.0")
    (2, 2, 2)
    """
    plain = number.replace(",", "")
    return len(plain.replace(".", "").lstrip("0")) if "." in plain else len(plain.rstrip("0"))


# Mappings


@pytest.mark.parametrize(
    ("platform", "workload"),
    matrix(PLATFORMS, timed_names(), brief=lambda *one: one[1] == "pong_dqn" or one == ("u200", "hopper_ddpg")),
)
def test_headline_has_choice_and_rate_and_the_second_line_can_be_pasted(platform, workload):
    answer = find_mapping(platform, workload)
    if not isinstance(answer, MappingAnswer):
        assert (platform, workload) == ("edge", "pong_dqn")
        return
    first, paste, *rest = text(answer, asked=f"python -m dse recommend --platform {platform}").splitlines()
    match = FIRST.match(first)
    assert match, first
    assert match.groups()[:2] == (workload, f"{answer.batch:,}")
    rate, *ends = re.findall(NUMBER, first[match.end() :])
    assert float(rate.replace(",", "")) == pytest.approx(answer.value, rel=0.06)
    assert digits(rate) <= (2 if answer.high > 1.2 * answer.low else 3)
    assert ends
    assert all(digits(end) <= 2 for end in ends)
    assert ("at most about" in first) == answer.upper_bound
    said = mapping_words.shares, mapping_words.processes, mapping_words.implementations
    assert len(rest) <= LINES + 3 + sum(len([*lines(answer)]) for lines in said)
    assert all(len(line) <= 118 for line in rest)
    if why := emit.why_not_run(answer):
        assert why in paste
        assert paste.endswith(f"python -m dse recommend --platform {platform} --emit toml > mapping.toml")
    else:
        runs_exactly(paste, answer)


def runs_exactly(paste, answer):
    given = training_parser().parse_args(shlex.split(paste)[3:])
    part = {one.part: one for one in answer.parts}
    tree, learner = part["sampling"].details, part["learner"]
    assert given.workload == answer.workload
    assert (given.arrangement or "serial") == answer.arrangement
    if answer.arrangement != "serial":
        assert given.actors == part["actors"].details["processes"]
    assert given.presampled in (None, answer.depth)
    assert (given.contestant, given.fanout) == (tree["contestant"], tree["fanout"])
    assert given.learner == learner.details.get("implementation", "torch")
    assert given.policy == part["actors"].details.get("implementation", "torch")
    if learner.device == part["actors"].device:
        assert (given.device, given.threads) == ("cpu", learner.details["threads"])
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
        parts = (
            dataclasses.replace(one, details={**one.details, **change}) if one.part == name else one
            for one in serial.parts
        )
        assert emit.training_command(dataclasses.replace(serial, parts=tuple(parts))) is None, change
    fixed = find_mapping("h200", "cartpole_dqn", fix={"arrangement": "serial", "batch": 128})
    assert fixed.called == ""
    assert "a workload file with the values asked for" in text(fixed).splitlines()[1]


def other(told, cost=0.0):
    return Other(told, "serial", {}, 1.0, cost, 0.5, 2.0, "factor", False)


def test_the_why_has_simulation_ties_and_break_evens():
    answer = find_mapping("u200", "hopper_ddpg", fix={"arrangement": "pipelined"})
    decides = (
        Decides("f_a(cpu)", 2.41, 1.0, "actors on cpu (2 processes)", 0.2),
        Decides("T_train(gpu)", 0.471, 1.0, "learner on gpu (framework)", 0.1),
    )
    answer = dataclasses.replace(
        answer,
        decide=Evidence("T_train(fpga)", "modeled", "", "build it; and then more"),
        simulated=(Simulated(1912.0, 1900.0, 1920.0, 0.0), Simulated(1633.0, 1600.0, 1660.0, 1.0)),
        decides=decides,
        ties=(other("a", -0.12), other("b")),
        others_tied=7,
        transfers=(TransferAnswer("cpu>fpga", "new records", 12e-6, 800.0, False),),
    )
    assert "about 1,900 with steady times, 1,600 with" in text(dataclasses.replace(answer, ties=()))
    whole, verbose = text(answer), text(answer, verbose=True)
    assert "a (+12%); b; and 7 more" in whole
    sentences = [mapping_words.changing(one) for one in decides]
    assert [re.search(r"[\d.]+x", one)[0] for one in sentences] == ["2.4x", "0.47x"]
    assert sentences[0] in whole
    assert all(words in verbose for words in (*sentences, "new records: 12 us on cpu>fpga, 800 bytes"))
    near = Decides("T_train(gpu)", 0.932, 1.0, "learner on gpu (framework)", 0.1), Decides("f_a(cpu)", 0.5, 1.0)
    assert mapping_words.changing(near[0]).endswith("0.932x as long, as it may")
    reached = dataclasses.replace(answer, decides=near)
    assert mapping_words.limited(reached) == [near[0]]
    assert "actors on cpu take" not in text(reached)
    assert mapping_words.UNCHANGED in text(dataclasses.replace(answer, decides=()))


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
    whole = json.loads(said(capsys, "recommend", *system, "--json")[1])
    stated = [given[name] for name in ("platform", "mode", "depth", "batch", "workload")]
    assert stated == [*(whole[name] for name in ("platform", "arrangement", "depth", "batch")), system[3]]
    assert given["expected"]["low"] <= given["expected"]["value"] <= given["expected"]["high"]
    assert given["expected"]["value"] == pytest.approx(whole["value"], rel=0.006)
    for part in whole["parts"]:
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
    first, make, *_ = said(capsys, "recommend", *asked)[1].splitlines()
    whole = json.loads(said(capsys, "recommend", *asked, "--json")[1])
    shape, question = whole["tree"], whole["question"]
    assert make == whole["make"]
    if shape["threads"] <= 2:  # of the machine that tests
        tree = eval(make, {"impls": impls})
        assert (tree.capacity, tree.fanout, tree.threads) == (question["capacity"], shape["fanout"], shape["threads"])
        assert str(tree.dtype) == question["dtype"]
    file = said(capsys, "recommend", *asked, "--emit", "toml")[1]
    table = {name: shape[name] for name in ("implementation", "fanout", "threads", "options")}
    table |= {name: question[name] for name in ("capacity", "dtype")}
    assert tomllib.loads(file) == {"tree": table} == {"tree": whole["tree"]}
    chosen = whole["choice"]["configuration"]
    is_chosen = all(table[name] == chosen[name] for name in ("fanout", "threads"))
    is_default = (table["fanout"], table["threads"], table["options"]) == (16, 1, {})
    assert is_default or (first.startswith("Use ") and is_chosen and table["options"] == dict(chosen["options"]))


def test_options_are_in_the_line_and_none_that_is_the_default():
    assert emit.make_line("numba", 100, 16, 1, "float32", {}) == 'impls.make("numba", 100, fanout=16)'
    made = emit.make_line("numba", 100, 8, 2, "float64", {"propagate": "delta", "aligned": False})
    assert made.endswith('fanout=8, threads=2, dtype="float64", propagate="delta", aligned=False)')
    assert emit.make_line("flat", 10, 16, 1, "float32", {}) == 'impls.make("flat", 10)'
    assert eval(made, {"impls": impls}).fanout == 8


# Trees


def test_a_tree_answer_is_short_and_warns_of_a_batch_beyond_sense(capsys):
    asked = ("recommend", "--machine", MACHINES[1], "--capacity", "1e6", "--batch", "256")
    short, whole = (said(capsys, *asked, *more)[1].splitlines() for more in ((), ("--verbose",)))
    assert short[:2] == whole[:2]
    assert len(short) <= 8
    assert all(len(line) <= 118 for line in short)
    assert ["rests on" in "".join(lines) for lines in (short, whole)] == [False, True]
    notes = "warning: a batch of 2,048 samples", "warning: a batch of 2,000,000 is beyond"
    for (capacity, batch), note in zip(((1000, 2048), (10**7, 2 * 10**6)), notes, strict=True):
        assert note in said(capsys, *asked[:3], "--capacity", capacity, "--batch", batch)[1]
    assert "a batch of 2,048 samples" in recommend_modeled("u200", 1000, 2048).notes[0]


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
    answer = recommend_modeled(platform, capacity, batch)
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
    shown = " ".join(tree_text.text(answer).split())
    assert f" on the {choice.device} of {platform}: about " in shown
    assert "nothing was timed there" in shown


def test_threads_and_room_bound_a_modeled_tree():
    assert recommend_modeled("h200", 1_000_000, 65_536, threads=1).choice.configuration.threads == 1
    with pytest.raises(dse.platforms.PlatformError, match="no device has room for N = 100,000,000,000"):
        recommend_modeled("edge", 100_000_000_000, 256)
    for capacity, given, words in ((0, {}, "capacity must be at least 1"), (9, {"distribution": "x"}, "distribution")):
        with pytest.raises(ValueError, match=words):
            recommend_modeled("edge", capacity, 256, **given)


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


# Words


def test_a_list_has_as_many_as_a_line_has_room_for():
    words = [f"word {number}" for number in range(100)]
    line = several("  begins:", words, more=5)
    shown = line.count("word")
    assert len(line) <= 116
    assert line.endswith(f"; and {105 - shown} more")
    assert len(line) + len("; word 10") > 116 - len("; and 999 more")
    assert several("a:", ["b"]) == "a: b"
