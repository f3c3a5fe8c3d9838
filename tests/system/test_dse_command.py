"""The commands of ``python -m dse``: help, examples, files of platforms and workloads, and what goes to which stream.

Facts of answers and of refusals are kept: ``tests/golden.py``.
"""

import argparse
import dataclasses
import json
import os
import shlex
import shutil
from pathlib import Path

import pytest

from dse import platforms
from dse.__main__ import _parser, main
from dse.answers.mapping_answer import changed_answer
from dse.mapping.question import answer_question, ask
from dse.mapping.what_if import with_changes
from dse.platforms import probe
from impls.cores import count_allowed
from impls.training import __main__ as training
from tests.committed import DATA, RESULTS, ROOT
from tests.matrix import matrix
from tests.nursery import run_python
from tests.system.test_probe import FOUND, SAMPLES
from tests.unit.test_platforms import GOOD

HERE = str(RESULTS / "d7dae63b89" / "platform.toml")
ASK = ["recommend", "--platform", HERE, "--workload", "hopper_ddpg"]


def told(capsys, *arguments):
    """The exit code, what is printed, and what is on the error stream."""
    return main([*map(str, arguments)]), *capsys.readouterr()


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
    assert choice.says == kind
    assert (pace is None) == (kind == "fits_now")
    assert bool(pace and pace > 1.01) == (kind == "changes_rate")


def test_what_does_not_fit_has_no_file(capsys):
    code, text, errors = told(capsys, *"recommend --platform edge --workload pong_dqn --emit toml".split())
    assert (code, text, "cpu.memory" in errors) == (1, "", True)


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
    assert takes == ["learner", "cpu", "8 threads of torch"]
    assert "moves_too" not in notes


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


# Platforms


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.toml"
    path.write_text(GOOD)
    return path


def test_list_names_what_is_shipped_and_this_machine(capsys, tmp_path):
    code, text, _ = told(capsys, "platform", "list", "--results", tmp_path)
    assert code == 0
    assert {line.split()[0] for line in text.splitlines()[1:]} == {*platforms.names(), "this"}
    assert "not probed yet: python -m dse platform probe" in text


def test_a_workloads_learner_has_its_batch_and_all_its_networks(capsys):
    code, out, _ = told(capsys, "fpga", "--workload", "hopper_ddpg", "--json")
    answer = json.loads(out)
    assert (code, answer["question"]["batch"]) == (0, 256)
    assert {"target critic FW 1", "next policy FW 2", "action's critic BW 1"} < {*answer["choice"]["learner"]["units"]}
    assert "add --batch" in told(capsys, "fpga", "--network", "pong")[2]
    assert "a3c" in told(capsys, "fpga", "--workload", "cartpole_a3c")[2]


def test_show_has_value_unit_origin_and_note(capsys, good):
    code, text, _ = told(capsys, "platform", "show", good)
    rows = [line.split() for line in text.splitlines()]
    assert (code, max(map(len, text.splitlines())) <= 120) == (0, True)
    assert ["bandwidth", "51.2", "GB/s", "assumed", "two", "channels"] in rows


def test_check_exits_0_for_what_is_fine_and_2_with_every_fault(capsys, good):
    assert told(capsys, "platform", "check", good) == (0, f"{good}: fine, 15 numbers of cpu, card\n", "")
    good.write_text(GOOD.replace("cores = 8", "coers = 8").replace("size_kib = 32", "size_kib = -1"))
    code, text, _ = told(capsys, "platform", "check", good)
    assert code == 2
    assert text.splitlines() == [
        f"{good}:5: device 'cpu' lacks cores, which every cpu has",
        f"{good}:8: unknown key 'coers'; did you mean 'cores'?",
        f"{good}:11: size_kib must be above 0, not -1",
    ]
    code, text, _ = told(capsys, "platform", "check", good, "--json")
    assert code == 2
    assert [row["line"] for row in json.loads(text)] == [5, 8, 11]


def test_probe_writes_a_file_that_passes_check_and_becomes_this(capsys, tmp_path, monkeypatch):
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
