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
from dse.cli import emit, mapping_words, tree_text
from dse.cli.mapping_text import LINES, text
from dse.cli.text import in_words, several
from dse.estimate import Evidence
from dse.mapping.alternatives import Other
from dse.mapping.answer import MappingAnswer, Simulated, TransferAnswer
from dse.mapping.question import recommend_mapping
from dse.recommend_modeled import recommend_modeled
from dse.solver.doubt import GIVEN_UP
from dse.solver.sensitivity import Robustness
from dse.times import analytic
from dse.times.platform_trees import SHAPE_FACTOR
from dse.times.tree_variants import Configuration
from impls.training import names
from impls.training.__main__ import _parser as training_parser
from impls.training.__main__ import main as train
from tests.committed import RESULTS

MACHINES = ("d7dae63b89", "8fb834d50a")
PLATFORMS = ("u200", "h200", "edge", *(str(RESULTS / key / "platform.toml") for key in MACHINES))
NUMBER = r"(\d{1,3}(?:,\d{3})*(?:\.\d+)?)"
CHOSEN = r"(?:, with \d+ threads? of torch|, learner \w+, policy \w+, \d+ threads?)?"
PLACES = rf"(in one process on the \w+{CHOSEN}(?:, .* on the \w+)?|with .* on the \w+.*)"
FIRST = re.compile(
    rf"Train (\w+) \(B = {NUMBER}\) on (\w+|machine \w+) {PLACES}: (?:at most )?about {NUMBER} gradient steps a "
    r"second, "
    rf"(?:95 % between {NUMBER} and {NUMBER}|(?:modeled|extrapolated|quoted), right within \d+(?:\.\d)?x)\."
)


def said(capsys, *words):
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def digits(number):
    """Digits of a number that are told: those before the zeros at its end.

    >>> digits("110,000"), digits("0.48"), digits("7.0")
    (2, 2, 2)
    """
    plain = number.replace(",", "")
    return len(plain.replace(".", "").lstrip("0")) if "." in plain else len(plain.rstrip("0"))


# Mappings


@pytest.mark.parametrize("workload", names())
@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_first_line_is_the_choice_in_one_sentence_and_the_second_can_be_pasted(platform, workload):
    answer = recommend_mapping(platform, workload)
    if not isinstance(answer, MappingAnswer):
        assert (platform, workload) == ("edge", "pong_dqn")
        return
    first, paste, *rest = text(answer, asked=f"python -m dse recommend --platform {platform}").splitlines()
    match = FIRST.fullmatch(first)
    assert match, first
    assert match[1] == workload
    assert match[2] == f"{answer.batch:,}"
    rate = float(match[5].replace(",", ""))
    assert rate == pytest.approx(answer.value, rel=0.06)
    assert digits(match[5]) <= (2 if answer.high > 1.2 * answer.low else 3)
    assert all(digits(end) <= 2 for end in match.groups()[5:] if end)
    assert ("at most about" in first) == answer.upper_bound
    why = rest[rest.index("") + 1 :]
    said = mapping_words.shares, mapping_words.processes, mapping_words.implementations
    more = sum(len([*lines(answer)]) for lines in said)
    assert len(why) <= LINES + more
    assert len(rest) <= LINES + more + 3  # with warnings
    assert all(len(line) <= 118 for line in rest)
    runs = paste.startswith("python -m impls.training ")
    assert runs == (emit.why_not_run(answer) == "")
    if runs:
        runs_exactly(paste, answer)
    else:
        assert paste.startswith(f"nothing here runs this mapping: {emit.why_not_run(answer)}; to keep it: ")
        assert paste.endswith(f"python -m dse recommend --platform {platform} --emit toml > mapping.toml")


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
        assert (given.device, given.threads) == ("cuda", 1)


def test_the_command_of_a_serial_answer_trains(tmp_path, capsys):
    answer = recommend_mapping(PLATFORMS[-1], "cartpole_dqn", fix={"arrangement": "serial", "learner_threads": 1})
    words = shlex.split(text(answer).splitlines()[1])[3:]
    assert train([*words, "--steps", "1500", "--test-episodes", "1", "--out", str(tmp_path / "run")]) == 0
    assert "gradient steps" in capsys.readouterr().out


def test_nothing_is_advised_that_would_run_something_else():
    serial = recommend_mapping("h200", "cartpole_dqn", fix={"arrangement": "serial"})
    assert emit.training_command(serial)
    for change in (
        {"tree": {"threads": 2}},
        {"tree": {"options": {"propagate": "delta"}}},
        {"learner": {"learners": 2}},
    ):
        parts = tuple(
            dataclasses.replace(part, details={**part.details, **change.get("tree", {})})
            if part.part == "sampling"
            else dataclasses.replace(part, details={**part.details, **change.get("learner", {})})
            if part.part == "learner"
            else part
            for part in serial.parts
        )
        assert emit.training_command(dataclasses.replace(serial, parts=parts)) is None, change
    fixed = recommend_mapping("h200", "cartpole_dqn", fix={"arrangement": "serial", "batch": 128})
    assert fixed.called == ""
    assert "a workload file with the values asked for" in text(fixed).splitlines()[1]


def test_a_learner_on_the_gpu_is_asked_for_by_its_device():
    answer = recommend_mapping("h200", "pong_dqn", fix={"arrangement": "serial", "learner": "gpu"})
    first, paste, *_ = text(answer).splitlines()
    assert "in one process on the cpu, the learner on the gpu: about" in first
    runs_exactly(paste, answer)
    assert "--device cuda" in paste


@pytest.mark.parametrize("objective, unit", [("per_watt", "joule"), ("training", "second, actors aside")])
def test_other_objectives_say_their_unit(objective, unit):
    first = text(recommend_mapping("u200", "hopper_ddpg", objective)).splitlines()[0]
    assert f" gradient steps a {unit} (" in first
    assert " a second with actors), " in first


def other(told, cost=0.0):
    return Other(told, "serial", {}, 1.0, cost, 0.5, 2.0, "factor", False)


def test_the_why_says_what_the_answer_knows():
    answer = recommend_mapping("u200", "hopper_ddpg", fix={"arrangement": "pipelined"})
    decide = Evidence("T_train(fpga)", "modeled", "", "build it; and then more")
    simulated = (Simulated(1912.0, 1900.0, 1920.0, 0.0), Simulated(1633.0, 1600.0, 1660.0, 1.0))
    survival = (
        Robustness("f_a(cpu)", None, 2.41, "actors on cpu (2 processes)", True, 1.0, decides_up=True),
        Robustness("T_train(gpu)", 0.471, 9.0, "learner on gpu (framework)", False, 1.0),
    )
    answer = dataclasses.replace(
        answer,
        decide=decide,
        simulated=simulated,
        survival=survival,
        ties=(other("a", -0.12), other("b")),
        others_tied=7,
    )
    simulation = "; simulated: about 1,900 with steady times, 1,600 with times that vary as their"
    assert f"  bound by learner on fpga{simulation}" in text(dataclasses.replace(answer, ties=())).splitlines()[7]
    lines = text(answer).splitlines()
    assert lines[7].startswith("  bound by learner on fpga; 3 of ")  # the simulation gives way to what ties
    assert "  cannot be told apart from: a (+12%); b; and 7 more; fewest devices and cores decide" in lines
    assert "  to decide, measure T_train(fpga): build it" in lines
    sentences = [mapping_words.changing(one) for one in survival]
    assert sentences == [
        "actors on cpu (2 processes) is better if actors on cpu take more than 2.4x as long (they may)",
        "learner on gpu (framework) is better if the learner on gpu takes less than 0.47x as long",
    ]
    assert f"  {sentences[0]}" in lines
    near = dataclasses.replace(survival[0], up=1.0004), dataclasses.replace(survival[1], down=0.932)
    assert mapping_words.changing(near[1]).endswith("takes less than 0.932x as long")
    reached = dataclasses.replace(answer, survival=near)
    assert mapping_words.limited(reached) == [near[1]]
    assert not any("actors on cpu take" in line for line in text(reached).splitlines())
    fixed = dataclasses.replace(answer, survival=())
    assert all(f"  {mapping_words.UNCHANGED}" in text(fixed, verbose).splitlines() for verbose in (False, True))
    verbose = text(answer, verbose=True).splitlines()
    assert {f"    {one}" for one in sentences} <= set(verbose)
    assert "    and 7 more, see --json" in verbose


def test_parts_show_what_they_take_and_verbose_what_is_sent():
    answer = recommend_mapping("u200", "hopper_ddpg", fix={"arrangement": "pipelined"})
    sent = (TransferAnswer("cpu>fpga", "new records", 12e-6, 800.0, False),)
    slower = dataclasses.replace(answer, transfers=sent)
    times = [line.split("~")[1] for line in text(answer).splitlines()[3:7]]
    assert [line.split()[0] for line in times] == ["240", "0.52", "1.7", "490"]
    assert "  new records: 12 us on cpu>fpga, 800 bytes, beside the loop" in text(slower, verbose=True).splitlines()


def test_no_digits_are_told_that_are_not_known():
    for verbose in (False, True):
        lines = text(recommend_mapping("h200", "cartpole_dqn"), verbose).splitlines()
        for value in re.findall(rf"~{NUMBER}|about {NUMBER} gradient", "\n".join(lines)):
            assert digits(max(value, key=len)) <= 2, value


def test_a_what_if_begins_with_what_the_change_does(capsys):
    ask = ("what-if", "--platform", "u200", "--workload", "hopper_ddpg", "--set")
    first = said(capsys, *ask, "cpu.cores=64")[1].splitlines()[0]
    assert first == (
        "With cpu.cores=64, hopper_ddpg on u200 still makes about 1,800 gradient steps a second: nothing in "
        "this answer rests on cpu.cores."
    )
    first = said(capsys, *ask, "fpga.clock_mhz=400")[1].splitlines()[0]
    assert re.fullmatch(
        rf"With .*, hopper_ddpg on u200 makes (at most )?about {NUMBER} gradient steps a second instead of (at most )?"
        rf"about 1,800 \(\+\d+%\)\.",
        first,
    )
    fits = said(capsys, "what-if", "--platform", "edge", "--workload", "pong_dqn", "--set", "cpu.memory_gb=16")[1]
    assert fits.startswith("With cpu.memory_gb=16, pong_dqn on edge fits, which it does not without: ")


# Files


@pytest.mark.parametrize(
    "system",
    [
        *(("--platform", name, "--workload", "hopper_ddpg") for name in (*PLATFORMS[:3], PLATFORMS[-1])),
        ("--platform", "h200", "--workload", "pong_dqn", "--fix", "arrangement=serial"),
        ("--platform", "u200", "--workload", "hopper_ddpg", "--fix", "sampling=gpu", "--fix", "updating=cpu"),
    ],
)
def test_a_mapping_is_emitted_as_files_that_read_back_the_same(capsys, system):
    files = {}
    for kind in emit.FORMATS:
        code, files[kind], errors = said(capsys, "recommend", *system, "--emit", kind)
        assert (code, errors) == (0, "")
    given = json.loads(files["json"])
    assert tomllib.loads(files["toml"]) == given
    space = {}
    exec(files["python"], space)  # what a reader would do with it
    assert space["mapping"] == given
    assert f"# made by: python -m dse recommend {shlex.join(system)}\n" in files["toml"]
    whole = json.loads(said(capsys, "recommend", *system, "--json")[1])
    assert (given["platform"], given["mode"]) == (whole["platform"], whole["arrangement"])
    assert (given["workload"], given["depth"], given["batch"]) == (
        "hopper_ddpg" if "hopper_ddpg" in system else "pong_dqn",
        whole["depth"],
        whole["batch"],
    )
    assert given["expected"]["low"] <= given["expected"]["value"] <= given["expected"]["high"]
    assert given["expected"]["value"] == pytest.approx(whole["value"], rel=0.006)
    for part in whole["parts"]:
        table = given[part["part"]]
        assert table["device"] == part["device"]
        details = {"implementation" if key == "contestant" else key: one for key, one in part["details"].items()}
        assert {key: table[key] for key in details} == details
    if "tree" in space:
        assert (space["tree"].capacity, space["tree"].fanout) == (given["capacity"], given["sampling"]["fanout"])
    on = {part["device"] for part in whole["parts"] if part["part"] in ("actors", "sampling", "updating")}
    assert ("tree" in space) == (len(on) == 1)


def test_what_does_not_fit_is_no_file(capsys):
    code, out, errors = said(capsys, "recommend", "--platform", "edge", "--workload", "pong_dqn", "--emit", "toml")
    assert (code, out) == (1, "")
    assert "pong_dqn does not fit edge" in errors


@pytest.mark.parametrize(
    "asked",
    [
        ("--machine", MACHINES[0], "--capacity", "1e6", "--batch", "256"),
        ("--machine", MACHINES[1], "--capacity", "1e6", "--batch", "1"),
        ("--machine", MACHINES[1], "--capacity", "5e5", "--batch", "64", "--dtype", "float64"),
        ("--platform", "u200", "--capacity", "1e5", "--batch", "64"),
    ],
)
def test_the_line_of_a_tree_makes_that_tree_and_so_do_its_files(capsys, asked):
    first, make, *_ = said(capsys, "recommend", *asked)[1].splitlines()
    whole = json.loads(said(capsys, "recommend", *asked, "--json")[1])
    shape, question = whole["tree"], whole["question"]
    assert re.fullmatch(
        rf"(Use|Statistically tied, take the default:) numba, K = {shape['fanout']}(, \w+ = \w+)*, "
        rf"{shape['threads']} threads?( on the cpu of u200)?: about {NUMBER} us a step "
        rf"\((95 % between {NUMBER} and {NUMBER}|modeled, right within [\d.]+x)\)(, {NUMBER} ns an element)?\.",
        first,
    )
    space = {"impls": impls}
    if shape["threads"] <= 2:  # of the machine that tests
        exec(f"tree = {make}", space)
        tree = space["tree"]
        assert (tree.capacity, tree.fanout, tree.threads) == (question["capacity"], shape["fanout"], shape["threads"])
        assert str(tree.dtype) == question["dtype"]
    assert make == whole["make"]
    files = {kind: said(capsys, "recommend", *asked, "--emit", kind)[1] for kind in emit.FORMATS}
    table = {
        "implementation": "numba",
        "capacity": question["capacity"],
        "fanout": shape["fanout"],
        "threads": shape["threads"],
        "dtype": question["dtype"],
        "options": shape["options"],
    }
    assert json.loads(files["json"]) == tomllib.loads(files["toml"]) == {"tree": table} == {"tree": whole["tree"]}
    chosen = whole["choice"]["configuration"]
    is_chosen = all(table[name] == chosen[name] for name in ("fanout", "threads"))
    is_default = (table["fanout"], table["threads"], table["options"]) == (16, 1, {})
    assert is_default or (first.startswith("Use ") and is_chosen and table["options"] == dict(chosen["options"]))
    assert files["python"].splitlines()[1:] == ["import impls", "", f"tree = {make}"]


def test_options_are_in_the_line_and_none_that_is_the_default():
    assert emit.make_line("numba", 100, 16, 1, "float32", {}) == 'impls.make("numba", 100, fanout=16)'
    made = emit.make_line("numba", 100, 8, 2, "float64", {"propagate": "delta", "aligned": False})
    assert made.endswith('fanout=8, threads=2, dtype="float64", propagate="delta", aligned=False)')
    assert emit.make_line("flat", 10, 16, 1, "float32", {}) == 'impls.make("flat", 10)'
    assert eval(made, {"impls": impls}).fanout == 8


# Trees


def test_a_tree_answer_is_short_unless_asked(capsys):
    asked = ("recommend", "--machine", MACHINES[1], "--capacity", "1e6", "--batch", "256")
    short, whole = (said(capsys, *asked, *more)[1].splitlines() for more in ((), ("--verbose",)))
    assert short[:2] == whole[:2]
    assert len(short) <= 8
    assert all(len(line) <= 118 for line in short)
    assert not any("rests on" in line for line in short)
    assert any("rests on" in line for line in whole)


def test_a_batch_beyond_sense_is_said(capsys):
    asked = ("recommend", "--machine", MACHINES[1])
    lines = said(capsys, *asked, "--capacity", "1000", "--batch", "2048")[1].splitlines()
    assert "warning: a batch of 2,048 samples most of the 1,000 leaves more than once" in lines
    lines = said(capsys, *asked, "--capacity", "1e7", "--batch", "2e6")[1].splitlines()
    assert "warning: a batch of 2,000,000 is beyond what any training takes: at most 1,048,576 in a workload" in lines
    assert "a batch of 2,048 samples" in recommend_modeled("u200", 1000, 2048).notes[0]


@pytest.mark.parametrize("platform", ["u200", "h200", "edge"])
@pytest.mark.parametrize("capacity, batch", [(1_000, 1), (1_000_000, 256), (10_000_000, 65_536)])
def test_which_tree_on_a_machine_one_does_not_have(platform, capacity, batch):
    answer = recommend_modeled(platform, capacity, batch)
    best, choice = answer.best, answer.choice
    assert choice.time.source == "modeled"
    assert choice.time.interval == "factor"
    assert best.seconds <= choice.seconds <= best.seconds / (1 - GIVEN_UP)
    every = {(one.device, one.configuration) for one in (choice, *answer.ties)}
    assert (best.device, best.configuration) in every
    device = dse_device(platform, choice.device)
    if device.kind == "cpu":
        assert choice.configuration.threads <= device.cores.value
        shape = choice.configuration
        laws = analytic.tree(device, capacity, shape.fanout, batch, shape.threads)
        assert choice.seconds == pytest.approx(sum(law.value for law in laws))
    for one in (choice, *answer.ties, *answer.elsewhere):
        assert (one.transfer_seconds > 0) == (dse_device(platform, one.device).kind != "cpu")
        assert one.transfer_seconds < one.seconds
    cheaper = [
        one
        for one in answer.ties
        if one.device == choice.device and one.configuration.threads < choice.configuration.threads
    ]
    assert all(one.seconds > best.seconds / (1 - GIVEN_UP) for one in cheaper)
    shown = tree_text.text(answer)
    assert f"modeled from the numbers of {platform}, nothing was timed there" in " ".join(shown.split())
    assert f" on the {choice.device} of {platform}: about " in shown.splitlines()[0]


def dse_device(platform, name):
    return dse.platforms.load(platform).device(name)


def test_threads_and_room_bound_a_modeled_tree():
    assert recommend_modeled("h200", 1_000_000, 65_536, threads=1).choice.configuration.threads == 1
    with pytest.raises(dse.platforms.PlatformError, match="no device has room for N = 100,000,000,000"):
        recommend_modeled("edge", 100_000_000_000, 256)
    with pytest.raises(ValueError, match="capacity must be at least 1"):
        recommend_modeled("edge", 0, 256)
    with pytest.raises(ValueError, match="distribution"):
        recommend_modeled("edge", 100, 256, distribution="sparse")


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


def test_this_machine_answers_about_a_tree_from_records(capsys):
    asked = ("--capacity", "1e6", "--batch", "256", "--machine", MACHINES[1])
    one, two = (said(capsys, "recommend", *more, *asked) for more in ((), ("--platform", "this")))
    assert one == two
    assert "measured on machine" in one[1]


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (("--platform", "u200", "--capacity", "10"), "--batch is missing"),
        (("--platform", "u200", "--batch", "10"), "--capacity is missing"),
        (("--platform", "u200"), "--workload is missing; a tree on a platform needs --capacity and --batch"),
        (("--platform", "u20", "--capacity", "10", "--batch", "2"), "no platform 'u20'"),
        (
            ("--platform", "u200", "--capacity", "10", "--batch", "2", "--machine", "a"),
            "--machine a goes with --platform",
        ),
        (
            ("--platform", "u200", "--capacity", "10", "--batch", "2", "--fix", "batch=2"),
            "--fix is of a question about a",
        ),
        (("--platform", "u200", "--capacity", "10", "--batch", "2", "--distribution", "foo"), "distribution must be"),
    ],
)
def test_a_mixed_question_gets_one_sentence(capsys, arguments, sentence):
    code, out, errors = said(capsys, "recommend", *arguments)
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert sentence in errors


# Words


def test_a_list_has_as_many_as_a_line_has_room_for():
    words = [f"word {number}" for number in range(100)]
    line = several("  begins:", words, more=5)
    shown = line.count("word")
    assert len(line) <= 116
    assert line.endswith(f"; and {105 - shown} more")
    assert len(line) + len("; word 10") > 116 - len("; and 999 more")
    assert several("a:", ["b"]) == "a: b"


def test_a_tree_in_words_has_threads_where_it_may_have_some():
    assert tree_text.named(Configuration("cupy", 16, 1)) == "cupy, K = 16"
    assert tree_text.named(Configuration("flat", 16, 1)) == "flat"
    assert tree_text.named(Configuration("numba", 8, 1)) == "numba, K = 8, 1 thread"
    assert in_words(100.0, 99.0, 101.0, "95 %", "measured") == "95 % between 99 and 101"
