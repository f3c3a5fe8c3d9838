"""Commands and their answers about mappings: what can be run as they say, files, streams, and any question at all."""

import dataclasses
import itertools
import json
import operator
import os
import shlex
import tomllib
from pathlib import Path

import pytest

from dse import __main__ as cli
from dse import platforms
from dse.__main__ import main
from dse.answers import emit
from dse.answers.mapping_answer import mapping_answer
from dse.answers.printer import write
from dse.mapping.answer import MappingAnswer
from dse.mapping.processes import runs_of
from dse.mapping.question import answer_question, ask, find_mapping, tables
from dse.mapping.what_if import with_changes
from dse.platforms import PlatformError, probe
from dse.platforms import load as load_platform
from dse.platforms.files import to_toml
from dse.times.door import Times
from impls.cores import count_allowed
from impls.training import __main__ as training
from impls.training import load, timed_names
from impls.training.__main__ import _parser as training_parser
from tests import golden
from tests.committed import DATA, RESULTS, ROOT
from tests.matrix import matrix, slow
from tests.nursery import run_python
from tests.system.test_advice import check, check_all
from tests.system.test_laws import printed
from tests.system.test_probe import FOUND, SAMPLES
from tests.unit.test_answers import check_screens
from tests.unit.test_options import several

HERE = RESULTS / "d7dae63b89" / "platform.toml"
PLATFORMS = ("u200", "h200", "edge", *(str(RESULTS / key / "platform.toml") for key in ("d7dae63b89", "8fb834d50a")))
ASKED = "python -m dse recommend --platform this --workload grid"


# The whole answer


def test_drawing_ahead_helps_where_parts_overlap():
    """CartPole-DQN samples no batch ahead: on a GPU everything waits for everything, unless that is free."""
    wishes = {"learner": "gpu", "arrangement": "pipelined"}
    none = find_mapping("h200", "cartpole_dqn", "training", fix=wishes, epsilon=0.01)
    ahead = find_mapping("h200", "cartpole_dqn", "training", fix=wishes, free=["presampled"], epsilon=0.01)
    assert none.bottleneck.kind == "bound_by_batches"
    assert none.bottleneck.values["depth"] == 0
    assert ahead.value > none.value
    assert ahead.choice.more["depth"] > 0


# What does not fit, what loses, what if


def test_processes_that_share_cores_are_not_tried_unasked():
    machine, workload = load_platform(HERE), load("hopper_ddpg")  # two cores, and more actors than fit
    parts = Times(machine, workload, *tables(machine, workload, RESULTS), {})
    assert {run.actors for run in runs_of(parts, "apart")} == {1} and not list(runs_of(parts, "pipelined"))
    asked = dataclasses.replace(parts, constraints={"actors": 3})
    assert {run.actors for run in runs_of(asked, "apart")} == {3}


def test_a_changed_platform_reads_units_and_nothing_else_changes():
    before = load_platform("u200")
    after = with_changes(
        before, {"gpu.memory_gb": 24, "fpga.SLR0.lut": 100_000, "cpu-gpu.beta_gb_per_s": 50, "cpu.clock_ghz": 3}
    )
    assert after.device("gpu").memory.size_bytes.value == 24e9
    assert after.device("fpga").slices[0].lut.value == 100_000
    assert after.links[0].beta_bytes_per_s.value == 50e9
    assert after.device("cpu").clock_hz.value == 3e9
    assert after.links[1] == before.links[1]
    assert with_changes(before, {}) is before
    for path in ("gpu.memry_gb", "gpx.memory_gb", "gpu", "fpga.SLR9.lut", "cpu.cores_gb"):
        with pytest.raises(PlatformError):
            with_changes(before, {path: 1.0})


def test_cores_bring_their_share_of_what_is_stated_of_all():
    """S15: twice the cores at the same watts would make steps/J free."""
    u200 = load_platform("u200")
    before, twice = u200.device("cpu"), with_changes(u200, {"cpu.cores": 56}).device("cpu")
    for name in ("threads", "peak_fp32_ops_per_s", "power_watts"):
        assert getattr(twice, name).value == 2 * getattr(before, name).value
    assert twice.memory == before.memory
    both = with_changes(u200, {"cpu.peak_fp32_tops": 5, "cpu.cores": 56, "cpu.power_watts": 300}).device("cpu")
    assert (both.peak_fp32_ops_per_s.value, both.power_watts.value) == (5e12, 300)
    gpu = with_changes(u200, {"gpu.multiprocessors": 60}).device("gpu")
    assert gpu.peak_fp32_ops_per_s.value == pytest.approx(2 * 12.15e12)


@pytest.mark.parametrize(
    "platform, change",
    [
        ("u200", {"cpu.cores": 30}),
        slow("h200", {"gpu.memory_gb": 96}),
        slow("h200", {"cpu-gpu.beta_gb_per_s": 60, "gpu.peak_fp32_tops": 100}),
        slow("h200", {"gpu.launch_us": 1, "gpu.multiprocessors": 264}),
        slow("edge", {"cpu.cores": 8}),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_more_of_anything_never_hurts(platform, change):
    base = load_platform(platform)
    for wishes in ({}, {"learner": "cpu", "learner_threads": 1}):
        before, after = (find_mapping(one, "hopper_ddpg", fix=wishes) for one in (base, with_changes(base, change)))
        assert after.value >= before.value * 0.99, wishes


def test_parts_that_slow_each_other_are_shown_as_slow():
    """Seconds of the parts in one process add up to those of its engine, slowdown and all; a note names the factor."""
    torch = dict.fromkeys(("learner_implementation", "policy_implementation"), "torch")
    fix = {"arrangement": "apart", "learners": 1, **torch}
    question = ask(HERE, "cartpole_dqn", "training", fix=fix, results=RESULTS)
    (problem,) = question.built().problems.values()
    given = answer_question(question)
    loop = [part.estimate.value for part in given.parts if part.label["part"] != "actors"]
    assert {part.more["engine"] for part in given.parts if part.label["part"] != "actors"} == {"cpu.loop"}
    assert sum(loop) == pytest.approx(1 / given.value)
    factor = problem.slowdown["learner", "actors", "cpu"]
    assert factor > 2
    slowed = [note.values for note in given.notes if note.kind == "slowdown"]
    assert ("learner", "cpu", factor) in [(one["part"], one["device"], one["factor"]) for one in slowed]


# The line to paste, and the file


@pytest.mark.parametrize(
    ("platform", "workload"),
    matrix(PLATFORMS, timed_names(), brief=lambda *one: one[1] == "pong_dqn" or one == ("u200", "hopper_ddpg")),
)
def test_first_screen_is_short_and_its_line_works(platform, workload):
    found = find_mapping(platform, workload)
    check_all(mapping_answer(found))
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
        assert why.kind in kinds
        assert paste == f"{ASKED} --emit toml > mapping.toml"
    else:
        runs_exactly(paste, found)


def runs_exactly(paste, answer):
    given = training_parser().parse_args(shlex.split(paste)[3:])
    part = {one.label["part"]: one for one in answer.parts}
    tree, learner = part["sampling"].more["details"], part["learner"]
    assert given.workload == answer.question["workload"]
    assert (given.arrangement or "serial") == answer.arrangement
    if answer.arrangement != "serial":
        assert given.actors == part["actors"].more["details"]["processes"]
    assert given.presampled in (None, answer.choice.more["depth"])
    assert given.contestant == tree["contestant"]
    assert given.fanout == tree["fanout"]
    assert given.learner == learner.more["details"].get("implementation", "torch")
    assert given.policy == part["actors"].more["details"].get("implementation", "torch")
    if learner.label["device"] == part["actors"].label["device"]:
        assert given.device == "cpu"
        assert given.threads == learner.more["details"]["threads"]
    else:
        assert (given.device, given.threads) == ("cuda", None)


# The front of rate, watts and bytes

SHOWN = ("arrangement", "storage", "value", "low", "high", "source", "watts")


def answered(capsys, *words):
    """Return the answer of a command as data."""
    return json.loads(printed(capsys, *words, "--json"))


@pytest.mark.parametrize("platform", ["u200", "three GPUs", str(HERE)])
def test_no_row_of_a_front_beats_another(capsys, tmp_path, platform):
    is_known, asked = platform != str(HERE), ["recommend", "--workload", "hopper_ddpg", "--platform", platform]
    if platform == "three GPUs":
        asked[-1] = str(tmp_path / "platform.toml")
        asked[2] = "pong_dqn"  # which learns on GPUs
        Path(asked[-1]).write_text(to_toml(several("h200", "gpu", 3)))
    exact, plain = (answered(capsys, *asked, "--front", *more) for more in (("--epsilon", "0"), ()))
    rows, kinds = exact["rows"], {note["kind"] for note in plain["notes"]}
    trades = [(row["value"], -row["bytes"], -row["watts"] if is_known else 0.0) for row in rows]
    assert trades == sorted(trades, key=lambda trade: -trade[0])
    for trade, other in itertools.permutations(trades, 2):
        assert any(map(operator.gt, trade, other))
    assert ("front_has_no_watts" in kinds) == (not is_known)
    assert rows[0]["value"] == answered(capsys, *asked, "--epsilon", "0")["choice"]["value"]
    assert [row["is_answer"] for row in rows] == [True] + [False] * (len(rows) - 1)
    assert plain["choice"]["value"] == answered(capsys, *asked)["choice"]["value"]
    assert any(row["is_answer"] or row["beats_answer"] for row in plain["rows"])
    own, goals = plain["choice"], (("value", 1), ("bytes", -1), *[("watts", -1)] * is_known)
    for row in plain["rows"]:
        better = [sign * (row[key] - own[key]) for key, sign in goals]
        assert row["beats_answer"] == (min(better) >= 0 < max(better))
    assert ("answer_is_off_front" in kinds) == (not any(row["is_answer"] for row in plain["rows"]))
    table = printed(capsys, *asked, "--front")
    for row in rows:
        again = answered(capsys, *asked, *shlex.split(row["ask_by"]))
        assert [again["choice"][key] for key in SHOWN] == [row[key] for key in SHOWN]
        unused = {"gpu", "gpu1", "gpu2"} - {*again["choice"]["devices"]}
        is_on_gpu = platform == "three GPUs" and row["learner"].startswith("gpu")
        assert not is_on_gpu or all(f"--exclude {name}" in row["ask_by"] for name in unused)
        assert sum(sent["bytes"] for sent in again["rows"] if "sent" in sent) == pytest.approx(row["bytes"], rel=1e-12)
        assert row["ask_by"] in table


def test_a_front_refuses_what_makes_no_sense_with_it(capsys):
    for more in ("--objective per_watt", "--free batch", "--free environments", "--emit toml"):
        assert main(["recommend", "--platform", "u200", "--workload", "hopper_ddpg", "--front", *more.split()]) == 2
        assert more.split()[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    "system",
    [
        ("--platform", "u200", "--workload", "hopper_ddpg"),
        ("--platform", PLATFORMS[-1], "--workload", "hopper_ddpg"),
        ("--platform", "h200", "--workload", "pong_dqn", "--fix", "arrangement=serial"),
        slow(("--platform", "u200", "--workload", "hopper_ddpg", "--fix", "sampling=gpu", "--fix", "updating=cpu")),
    ],
)
def test_the_file_of_a_mapping_says_what_the_answer_says(capsys, system):
    file, whole = (printed(capsys, "recommend", *system, *more) for more in (("--emit", "toml"), ("--json",)))
    given = tomllib.loads(file)
    assert f"# made by: python -m dse recommend {shlex.join(system)}\n" in file
    whole = json.loads(whole)
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


ASK = ["recommend", "--platform", str(HERE), "--workload", "hopper_ddpg"]


def told(capsys, *arguments):
    """The exit code, what is printed, and what is on the error stream."""
    return main([*map(str, arguments)]), *capsys.readouterr()


@pytest.fixture
def mine(tmp_path):
    """A workload file of a user on an environment, with observations of a shape and so many choices."""

    def write(environment="CartPole-v1", shape="[4]", choices=2):
        text = (ROOT / "impls/training/workloads/cartpole_dqn.toml").read_text().replace('"cartpole_dqn"', '"mine"')
        text = text.replace("CartPole-v1", environment).replace("shape = [4]", f"shape = {shape}")
        path = tmp_path / "mine.toml"
        path.write_text(text.replace("choices = 2", f"choices = {choices}"))
        return str(path)

    return write


@pytest.mark.parametrize(("stated", "facts"), [({"shape": "[6]"}, "[4]"), ({"choices": 3}, "2 choices")], ids=str)
def test_a_misfit_of_an_environment_is_refused_as_by_training(capsys, tmp_path, mine, stated, facts):
    pytest.importorskip("gymnasium")
    path = mine(**stated)
    code, out, errors = told(capsys, "recommend", "--platform", "u200", "--workload", path)
    assert (code, out, facts in errors) == (2, "", True)
    assert training.main(["train", path, "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == errors


def test_a_workload_that_names_a_module_is_said_to_run_code(capsys, tmp_path, mine):
    pytest.importorskip("gymnasium")
    path = mine("tests.fake_environments:Fine-v0", "[2]")
    code, _, errors = told(capsys, "recommend", "--platform", "u200", "--workload", path)
    assert (code, errors.count("\n")) == (0, 1)
    assert "runs code" in errors
    assert "tests.fake_environments" in errors
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "checkpoint.pt").touch()
    assert training.main(["train", path, "--out", str(folder)]) == 2  # a folder of another run is refused
    assert errors in capsys.readouterr().err
    for elsewhere in ("NobodyHas-v9", "no_such_module_here:Grid-v0"):
        assert told(capsys, "recommend", "--platform", "u200", "--workload", mine(elsewhere, "[6]"))[0] == 0
    assert told(capsys, "recommend", "--platform", "u200", "--workload", mine())[2] == ""


def test_records_of_another_machine_are_not_taken_for_its_own(capsys, tmp_path):
    """A platform file says which machine it was probed on; a folder with other records has no answer for it."""
    path = tmp_path / "mine.toml"
    path.write_text(HERE.read_text().replace("d7dae63b89", "0123456789"))
    code, _, errors = told(capsys, "recommend", "--platform", str(path), "--workload", "hopper_ddpg")
    assert (code, "0123456789" in errors, "machine_key" in errors, errors.count("\n")) == (2, True, True, 1)
    check(errors)
    path.write_text("\n".join(line for line in path.read_text().splitlines() if not line.startswith("machine_key")))
    assert told(capsys, "recommend", "--platform", str(path), "--workload", "hopper_ddpg")[0] == 0


def test_an_answer_needs_no_heavy_library():
    heavy = "{'scipy', 'pandas', 'torch', 'numba', 'simpy', 'gymnasium', 'matplotlib'}"
    code = f"import sys; from dse.__main__ import main; main({ASK!r}); print(sorted({heavy} & set(sys.modules)))"
    assert run_python("-c", code, folder=DATA).stdout.splitlines()[-1] == "[]"


TALKATIVE = """
import ctypes, gymnasium, os
def make():
    print("from Python")
    os.write(1, b"at once")
    ctypes.CDLL(None).puts(b"kept by C")
    return gymnasium.make("CartPole-v1")
gymnasium.register("Talkative-v0", make)
"""


def test_what_an_environment_prints_is_not_in_the_json(tmp_path, mine):
    pytest.importorskip("gymnasium")
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    command = "-m", "dse", "recommend", "--platform", "u200", "--json", "--workload", mine("talkative:Talkative-v0")
    run = run_python(*command, folder=DATA, PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}")
    assert json.loads(run.stdout)["question"]["workload"] == "mine"
    assert all(word in run.stderr for word in ("from Python", "at once", "kept by C"))


# Platforms


def test_probe_writes_a_file_that_becomes_this(capsys, tmp_path, monkeypatch):
    made = probe.describe(platforms.fingerprint(), FOUND, count_allowed(), SAMPLES)
    monkeypatch.setattr(probe, "probe", lambda tell: made)
    code, text, _ = told(capsys, "platform", "probe", "--results", tmp_path)
    path = tmp_path / platforms.fingerprint()["key"] / "platform.toml"
    assert code == 0
    assert text.endswith(f"written to {path}\n")
    assert told(capsys, "platform", "check", path)[0] == 0
    assert platforms.load("this", tmp_path) == made
    assert "+-" in told(capsys, "platform", "show", "this", "--results", tmp_path)[1]
    assert "as probed" in told(capsys, "platform", "list", "--results", tmp_path)[1]
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(probe, "probe", lambda tell: pytest.fail("nothing is measured that cannot be kept"))
    for out in (tmp_path / "file" / "x.toml", tmp_path):
        code, _, complaint = told(capsys, "platform", "probe", "--out", out)
        assert code == 2
        assert "cannot be written" in complaint


WILD = golden.GRAMMAR | {
    "n": "0|1|7|4{d}|3{d}00|{d}e4|{d}e6|2.5e7|{d}e9|1e12|-{d}",
    "b": "{n}",
    "d": "0|1|2|5|8|9",
    "us": "1e-4|{d}{d}|{d}e4|{d}e9|1e13",
    "name": "edge|h200|u200|this|nothing",
    "where": "learner={device}|storage={device}|contestant=nimba|arrangement=pipelined|{n}",
    "by": "learner_threads={n}|fanout={n}|threads={n}|actors={n}",
    "shape": "batch={n}|update_interval={n}|capacity={n}|presampled={n}",
    "records": "--platform {name}|--machine d7dae63b89 --no-race|--machine 0123456789|--results nowhere --no-race",
    "part": "cores|memory_gb|x",
}
"""Numbers from nothing to far too many, and names that nothing has."""
KINDS = "{mapping}|{tree}|{side}|{lone}|{tree}|{mapping}|cores {system}|depth {system} --spread -{d}"


def draw(monkeypatch, seed, count):
    monkeypatch.setattr(golden, "SEED", seed)
    monkeypatch.setattr(golden, "GROUPS", ((count, KINDS, WILD),))
    return [question.split() for question in golden.draw_questions()]


@pytest.mark.parametrize("part", [0, slow(1), slow(2)])
def test_every_question_is_answered_or_refused(part, capsys, monkeypatch):
    monkeypatch.chdir(DATA)
    for words in draw(monkeypatch, part, 16):
        try:
            code = cli.main(words)
        except SystemExit as left:  # argparse's own refusals
            code = left.code
        shown = capsys.readouterr()
        assert code in (0, 1, 2), words
        assert bool(shown.out.strip()) == (code != 2), words
        if code == 2:
            assert shown.err.splitlines()[-1].partition("error: ")[2], words
            assert "Traceback" not in shown.err
