import argparse
import dataclasses
import json
import os
import shlex
import shutil
from pathlib import Path

import pytest

from dse.__main__ import _parser, main
from dse.answers.mapping_answer import changed_answer
from dse.mapping.question import answer_question, ask
from dse.mapping.what_if import with_changes
from dse.tuning.core_question import MOST_CORES
from impls.training import __main__ as training
from tests.committed import DATA, RESULTS, ROOT
from tests.matrix import matrix
from tests.nursery import run_python

HERE = str(RESULTS / "d7dae63b89" / "platform.toml")
ASK = ["recommend", "--platform", HERE, "--workload", "hopper_ddpg"]


def told(capsys, *arguments):
    return main(list(arguments)), *capsys.readouterr()


def parsers(parser):
    """Yield every parser, by its command line."""
    yield parser.prog, parser
    for action in parser._actions:
        for below in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
            yield from parsers(below)


PARSERS = dict(parsers(_parser()))
WRITES = ("python -m dse platform probe",)  # a file, so its example is only parsed


def answered(capsys, *arguments):
    """The exit code, the choice, the others and, by kind, the notes of an answer in JSON."""
    code, text, _ = told(capsys, *arguments, "--json")
    answer = json.loads(text)
    return code, answer["choice"], answer["others"], {note["kind"]: note for note in answer["notes"]}


def test_what_loses_is_explained(capsys):
    code, choice, (described,), notes = answered(capsys, "explain", *ASK[1:], "--config", "contestant=flat")
    assert (code, choice["loss"] > 0, choice["arrangement"], described["arrangement"]) == (0, True, "serial", "serial")
    assert notes["part_takes"]["part"] == "sampling"  # the learner's time is the same in both


@pytest.mark.parametrize(
    ("system", "change", "kind"),
    [
        (["--platform", "edge", "--workload", "pong_dqn"], "cpu.memory_gb=16", "fits_now"),
        (ASK[1:], "cpu.clock_ghz=30", "changes_nothing"),
        (["--platform", "u200", *ASK[3:]], "cpu.clock_ghz=2.21", "changes_no_rate"),
        (["--platform", "u200", *ASK[3:]], "fpga.clock_mhz=400", "changes_rate"),
    ],
)
def test_a_changed_machine_is_compared_with_the_one_there_is(system, change, kind):
    before, (key, value) = ask(*system[1::2]), change.split("=")
    after = dataclasses.replace(before, platform=with_changes(before.platform, {key: float(value)}))
    choice = changed_answer(answer_question(before), answer_question(after), [change]).choice
    pace = choice.more["pace"]
    assert (choice.says, pace is None, bool(pace and pace > 1.01)) == (kind, kind == "fits_now", kind == "changes_rate")


def test_nothing_fits_is_an_answer_of_its_own(capsys):
    asked = ["recommend", "--platform", "edge", "--workload", "pong_dqn"]
    code, _, _, notes = answered(capsys, *asked)
    lacks = notes["short_of_bytes"]
    assert (code, lacks["budget"], lacks["need"] > lacks["have"]) == (1, "cpu.memory", True)
    code, text, errors = told(capsys, *asked, "--emit", "toml")
    assert (code, text, "cpu.memory" in errors) == (1, "", True)
    for command, *more in (["explain", "--config", "learner=cpu"], ["what-if", "--set", "cpu.cores=9"]):
        code, choice, _, notes = answered(capsys, command, *asked[1:], *more)
        assert (code, choice, notes["short_of_bytes"]) == (1, None, lacks)


REFUSED = [
    ("", "ask with --platform and --workload"),
    ("--platform u20 --workload hopper_ddpg", "no platform 'u20'"),
    (f"--platform {HERE} --workload hoper_ddpg", "did you mean 'hopper_ddpg'?"),
    (f"--platform {HERE}", "--workload is missing"),
    ("--workload hopper_ddpg", "--platform is missing"),
    ("--capacity 10", "--batch is missing"),
    ("--capacity 9 --batch 8 --fix learner=gpu", "--fix is of a question about a mapping"),
    ("--platform u200 --capacity 10", "--batch is missing"),
    ("--platform u200 --batch 10", "--capacity is missing"),
    ("--platform u200", "a tree on a platform needs --capacity and --batch"),
    ("--platform u20 --capacity 10 --batch 2", "no platform 'u20'"),
    ("--platform u200 --capacity 10 --batch 2 --machine a", "--machine a goes with --platform"),
    ("--platform u200 --capacity 10 --batch 2 --fix batch=2", "--fix is of a question about a"),
    ("--platform u200 --capacity 10 --batch 2 --distribution foo", "distribution must be"),
]
REFUSED_OF_A_SYSTEM = [
    ("--fix leaner=gpu", "did you mean 'learner'?"),
    ("--fix learner=gpu", "learner: no device 'gpu'; there are cpu"),
    ("--fix learner_implementation=jax", "learner_implementation"),
    ("--fix batch=0", "at least 1, not '0'"),
    ("--fix batch=many", "'many' is not a whole number"),
    ("--fix batch=1.5", "is not a whole number"),
    ("--fix batch=1e999", "batch"),
    ("--fix batch", "write KEY=VALUE"),
    ("--fix batch=8 --fix batch=9", "batch is given twice"),
    ("--fix arrangement=seriel", "did you mean 'serial'?"),
    ("--fix contestant=tensorflow", "no tree 'tensorflow'"),
    ("--exclude gpu", "no device 'gpu' to exclude"),
    ("--exclude cpu", "cannot be excluded"),
    ("--free bach", "did you mean 'batch'?"),
    ("--objective per_wat", "did you mean 'per_watt'?"),
    ("--objective per_watt", "need watts above 0 of every device"),
    ("--epsilon 1.5", "from 0 up to 1, not 1.5"),
    ("--batch 100", "write --fix batch=100"),
    ("--capacity 100", "write --fix capacity=100"),
    ("--threads 2", "write --fix threads=2"),
    ("--machine d7dae63b89", "--machine d7dae63b89 goes with --platform this"),
    ("--dtype float64", "--dtype is of a question about a tree"),
    ("--free batch --fix batch=64", "batch is both fixed and free"),
    ("--free presampled --fix presampled=50", "presampled is both fixed and free"),
    ("--fix batch=99999999999", "at most 1,048,576, not 99999999999"),
    ("--fix presampled=100000000000", "at least 0 and at most 65,536"),
    ("--fix capacity=100", "capacity must be at least 1,025"),
    ("--fix actor_count=5000", "count must be at least 1 and at most 4,096"),
    ("--fix local_storage=2000000", "at least 1 and at most 1,048,576"),
]
MINE = "--machine d7dae63b89 --workload"
CURVES, LEARNERS = "--actors 1:900,2:1700 --learners 1:400,2:700", "--learners 1:400,2:700"
TIMES = "--sampling-us 1000 --training-us 2000 --updating-us 500"
REFUSED_BY = {
    "cores": [
        ("", "name a --workload, or give curves of your own"),
        ("--actors 1:900,2:1700", "curves of your own need --learners and --cores too"),
        (CURVES, "curves of your own need --cores too"),
        (f"{CURVES} --cores 4 --workload hopper_ddpg", "--workload has curves of its own"),
        (f"--actors 1:900 {LEARNERS} --cores 4", "--actors: one point says nothing of scaling"),
        (f"--actors 0:900 {LEARNERS} --cores 4", "a rate on 0 cores"),
        (f"--actors 1:nan {LEARNERS} --cores 2", "--actors 1:nan: a rate is from 1e-09 to 1e+15 steps/s"),
        (f"--actors 1:1e300,2:1e301 {LEARNERS} --cores 2", "--actors 1:1e+300: a rate is from"),
        (f"{MINE} hopper_ddpg --cores 0", "cores must be at least 1"),
        (f"{MINE} hopper_ddpg --cores 1e6", f"cores are at most {MOST_CORES}, not 1,000,000"),
        (f"{MINE} hopper_ddpg --reserved 2", "2 cores with 2 reserved leave none"),
        (f"{MINE} hopper_ddpg --update-interval 0", "update_interval must be above 0 and finite, not 0"),
        (f"{MINE} chess", "chess"),
        ("--platform u2000 --workload hopper_ddpg", "u2000"),
    ],
    "depth": [
        ("", "name a --workload, or give times of your own"),
        ("--sampling-us 1000", "times of your own need --training-us too"),
        ("--together", "times of your own need --sampling-us too"),
        (f"{TIMES} --sampling-us 0", "--sampling-us must be from 0.001 to 1e+12, not 0"),
        (f"{TIMES} --training-us nan", "--training-us must be from 0.001 to 1e+12, not nan"),
        (f"{TIMES} --transfer-us -1", "--transfer-us must be 0 or from 0.001 to 1e+12, not -1"),
        (f"{TIMES} --workload hopper_ddpg", "--workload goes with times of a workload"),
        (f"{TIMES} --spread 11", "the spread of times (cv) is 0 or from 1e-06 to 3, not 11"),
        (f"{TIMES} --spread nan", "the spread of times (cv) is 0 or from 1e-06 to 3, not nan"),
        (f"{TIMES} --spread 1e-200", "the spread of times (cv) is 0 or from 1e-06 to 3, not 1e-200"),
        (f"{TIMES} --together --transfer-us 5", "--together has nothing to transfer"),
        (f"{MINE} hopper_ddpg --fix speed=3", "no key 'speed' to fix"),
        (f"{MINE} hopper_ddpg --exclude gpu", "no device 'gpu' to exclude"),
        ("--workload chess", "chess"),
    ],
    f"adapt {' '.join(ASK[1:])}": [
        ("--cpu-percent 0", "a percentage above 0 and up to 100, not 0"),
        ("--cpu-percent 50", "even 1 is over the cap on processor"),
        ("--memory-gb -1", "must be above 0 GB, not -1"),
        ("--memory-gb 0.1", "even 1 is over the cap on memory"),
        ("--workload chess", "chess"),
    ],
    f"learners {' '.join(ASK[1:])}": [
        ("--most 0", "from 1 to 1024, not 0"),
        ("--longest-period 0", "from 1 to 100000 gradient steps, not 0"),
        ("--device gpu", "no device 'gpu' for learners; there are cpu"),
        ("--platform u2000", "u2000"),
    ],
    "fpga --batch 32 --capacity 1000 --network cartpole": [
        ("--network cartpol", "did you mean cartpole"),
        ("--network mlp:4", "has no layers"),
        ("--network pong", "does not fit: uram: have 640, need 1,900"),
        ("--batch 0", "batch must be at least 1, not 0"),
        ("--capacity 0", "capacity must be at least 1, not 0"),
        ("--capacity 99999999", "even the RMM that comes nearest"),
        ("--dsp-per-mac 0", "dsp-per-mac must be at least 1"),
        ("--clock-mhz nan", "clock_hz must be above 0 and at most 1e+12"),
        ("--leaf-bits 0", "leaf_bits must be at least 1"),
        ("--platform u200x", "did you mean 'u200'"),
        ("--platform h200", "platform 'h200' has no FPGA"),
        ("--platform edge", "a device of one slice has none to keep for the RMM"),
        ("--platform this --results nowhere", "this machine has not been probed"),
    ],
    "what-if --platform h200 --workload hopper_ddpg": [
        *(
            (f"--set {path}=much", "a number is wanted")
            for path in ("gpu.memry_gb", "gpx.memory_gb", "cpu.cores", "link.beta")
        ),
        ("--set gpu.memry_gb=1", "did you mean"),
        ("--set gpx.memory_gb=1", "gpx"),
        ("--set link.beta=1", "no device or link 'link'"),
        ("--set cpu.cores=0", "cpu.cores"),
        ("--set gpu=3", "write gpu.KEY=VALUE"),
        ("--set gpu.name=3", "name is a word"),
    ],
    "platform estimate h200": [
        ("--workload hoper_ddpg", "hoper_ddpg"),
        ("--times nowhere.csv", "nowhere.csv"),
    ],
    "validate": [("", "is gone, because a race on the machine that asks decides: python -m dse recommend --help")],
}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        *((f"recommend {words}", reason) for words, reason in REFUSED),
        *((f"{' '.join(ASK)} {words}", reason) for words, reason in REFUSED_OF_A_SYSTEM),
        *((f"{name} {words}", reason) for name, found in REFUSED_BY.items() for words, reason in found),
    ],
)
def test_a_bad_question_gets_one_sentence(capsys, words, reason):
    code, text, errors = told(capsys, *words.split())
    assert (code, text, errors.count("\n")) == (2, "", 1)
    assert errors.startswith("error: ")
    assert reason in errors


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


@pytest.mark.parametrize(
    "more", [["recommend"], ["explain", "--config", "learner=cpu"], ["what-if", "--set", "cpu.cores=4"]]
)
@pytest.mark.parametrize(
    ("stated", "says"), [({"shape": "[6]"}, "observations have the shape [4]"), ({"choices": 3}, "2 choices")]
)
def test_a_workload_that_does_not_fit_its_environment_is_refused_as_by_training(
    capsys, tmp_path, mine, more, stated, says
):
    pytest.importorskip("gymnasium")
    path = mine(**stated)
    code, out, errors = told(capsys, more[0], "--platform", "u200", "--workload", path, *more[1:])
    assert (code, out) == (2, "")
    assert says in errors
    assert training.main(["train", path, "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == errors


@pytest.mark.parametrize("environment", ["NobodyHas-v9", "no_such_module_here:Grid-v0"])
def test_a_workload_whose_environment_is_elsewhere_is_answered(capsys, mine, environment):
    assert told(capsys, "recommend", "--platform", "u200", "--workload", mine(environment, "[6]"))[0] == 0


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
    assert told(capsys, "recommend", "--platform", "u200", "--workload", mine())[2] == ""


def test_records_of_another_machine_are_not_taken_for_this_ones(capsys, tmp_path):
    """A platform file says which machine it was probed on; a folder with other records has no answer for it."""
    path = tmp_path / "mine.toml"
    path.write_text(Path(HERE).read_text().replace("d7dae63b89", "0123456789"))
    code, _, errors = told(capsys, "recommend", "--platform", str(path), "--workload", "hopper_ddpg")
    assert code == 2
    assert "no records of machine 0123456789, only of" in errors
    assert "take the line machine_key out of the platform file, then models answer" in errors
    assert errors.count("\n") == 1
    path.write_text("\n".join(line for line in path.read_text().splitlines() if not line.startswith("machine_key")))
    assert told(capsys, "recommend", "--platform", str(path), "--workload", "hopper_ddpg")[0] == 0


def test_what_is_not_named_stays_where_the_best_has_it(capsys):
    """Eight threads instead of one lose, and are no question about the GPU, which would tie."""
    asked = ["explain", "--platform", "h200", "--workload", "cartpole_dqn", "--config", "learner_threads=8"]
    code, choice, (described,), notes = answered(capsys, *asked)
    assert (code, described["where"]) == (0, choice["where"])
    takes = [notes["part_takes"][name] for name in ("part", "device", "choice")]
    assert (takes, "moves_too" in notes) == (["learner", "cpu", "8 threads of torch"], False)


@pytest.mark.parametrize("name", PARSERS)
def test_help_ends_with_an_example(name):
    words = PARSERS[name].format_help().splitlines()[-1].split()
    assert " ".join(words).startswith(name)
    assert _parser().parse_args(words[3:])


@pytest.mark.parametrize("name", matrix(sorted(PARSERS.keys() - WRITES), brief=lambda name: not name.endswith(" run")))
def test_the_example_of_help_is_answered(capsys, name, tmp_path, monkeypatch):
    if name.endswith(" run"):
        shutil.copytree(Path(HERE).parent, tmp_path / "results" / "d7dae63b89")
        monkeypatch.chdir(tmp_path)  # where it keeps its race
    code, text, errors = told(capsys, *shlex.split(PARSERS[name].format_help().splitlines()[-1])[3:])
    assert (code, bool(text), errors) == (0, True, "")


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


@pytest.mark.parametrize("name", ["Talkative-v0", "Lacking-v0"])
def test_what_an_environment_prints_is_not_in_the_json(tmp_path, mine, name):
    pytest.importorskip("gymnasium")
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    command = "-m", "dse", "recommend", "--platform", "u200", "--json", "--workload", mine(f"talkative:{name}")
    run = run_python(*command, folder=DATA, PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}")
    assert json.loads(run.stdout)["question"]["workload"] == "mine"
    assert [word in run.stderr for word in ("from Python", "at once", "kept by C")] == 3 * [name == "Talkative-v0"]
