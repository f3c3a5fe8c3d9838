import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dse.__main__ import main
from impls.training import __main__ as training
from tests.committed import RESULTS

HERE = str(RESULTS / "d7dae63b89" / "platform.toml")
ASK = ["recommend", "--platform", HERE, "--workload", "hopper_ddpg"]


def told(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_an_answer_in_words(capsys):
    code, text, errors = told(capsys, *ASK, "--verbose")
    assert (code, errors) == (0, "")
    for words in (
        "Train hopper_ddpg (B = 256) on machine d7dae63b89 in one process on the cpu, with 1 thread of torch: about ",
        "python -m impls.training hopper_ddpg --learner torch --policy torch --contestant numba --fanout ",
        "serial: one process does everything in turns",
        "learner   cpu  1 thread of torch",
        "gradient steps a second, 95 % between ",  # two threads were not timed: one call took too long
        "bound by cpu.main, which does actors, sampling, storage, learner, updating in turns",
        "if every part had its fastest option to itself",
        " is better if the tree on cpu (",
        "rests on:",
    ):
        assert words in text, words
    assert all(len(line) <= 120 for line in text.splitlines()[1:])


def test_an_answer_in_json(capsys):
    code, text, _ = told(capsys, *ASK, "--json", "--fix", "arrangement=serial", "--objective", "training")
    given = json.loads(text)
    assert code == 0
    assert given["objective"] == "training"
    assert given["low"] <= given["value"] <= given["high"]
    assert {part["part"] for part in given["parts"]} == {"actors", "sampling", "storage", "learner", "updating"}
    assert {one["source"] for one in given["sources"]} <= {"measured", "extrapolated", "modeled", "quoted"}


def test_a_question_about_a_tree_is_still_answered(capsys):
    machine = ("--machine", "d7dae63b89")
    code, text, _ = told(capsys, "recommend", "--capacity", "1000000", "--batch", "256", "--threads", "2", *machine)
    assert code == 0
    assert re.match(r"(Use|Statistically tied, take the default:) numba, K = ", text)


def test_what_loses_is_explained(capsys):
    code, text, _ = told(capsys, "explain", *ASK[1:], "--config", "contestant=flat")
    assert code == 0
    assert "contestant=flat loses" in text
    assert "; its sampling takes " in text.replace("\n  ", " ")  # the learner's time is the same in both
    head, mode = (line.split() for line in text.splitlines() if line.lstrip().startswith(("asked", "execution mode")))
    assert head == ["asked", "best"]
    assert mode[2:] == ["serial", "serial"]  # processes share the tree numba alone


def test_a_changed_machine_stands_beside_the_one_there_is(capsys):
    code, text, _ = told(capsys, "what-if", "--platform", "edge", "--workload", "pong_dqn", "--set", "cpu.memory_gb=16")
    assert code == 0
    assert "before" in text
    assert "does not fit" in text
    assert "cpu.memory: have 4.295 GB, need 7.2" in text
    code, text, _ = told(capsys, "what-if", *ASK[1:], "--set", "cpu.memory_gb=64", "--json")
    both = json.loads(text)
    assert both["before"]["value"] == both["after"]["value"]


def test_a_change_that_nothing_rests_on_is_told_so(capsys):
    _, text, _ = told(capsys, "what-if", *ASK[1:], "--set", "cpu.clock_ghz=30")
    assert "nothing in this answer rests on cpu.clock_ghz: measured records decide" in text.splitlines()[0]
    assert "no faster" not in text
    _, text, _ = told(capsys, "what-if", "--platform", "u200", *ASK[3:], "--set", "cpu.clock_ghz=2.21")
    assert "no faster: a difference within 1% counts as a tie" in text.splitlines()[0]


def test_nothing_fits_is_an_answer_of_its_own(capsys):
    code, text, _ = told(capsys, *ASK, "--fix", "arrangement=pipelined")
    assert code == 1
    assert "cpu.cores: have 2, need 3" in text
    code, text, _ = told(capsys, *ASK, "--fix", "arrangement=pipelined", "--json")
    assert code == 1
    assert json.loads(text)["repairs"] == [{"cpu.cores": [2.0, 3.0]}]


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["--platform", "u20", "--workload", "hopper_ddpg"], "no platform 'u20'"),
        (["--platform", HERE, "--workload", "hoper_ddpg"], "did you mean 'hopper_ddpg'?"),
        (["--platform", HERE], "--workload is missing"),
        (["--workload", "hopper_ddpg"], "--platform is missing"),
        ([], "ask with --platform and --workload"),
        (["--capacity", "10"], "a tree needs --capacity and --batch, --batch is missing"),
        ([*ASK[1:], "--fix", "leaner=gpu"], "no key 'leaner' to fix"),
        ([*ASK[1:], "--fix", "leaner=gpu"], "did you mean 'learner'?"),
        ([*ASK[1:], "--fix", "learner=gpu"], "learner: no device 'gpu'; there are cpu"),
        ([*ASK[1:], "--fix", "batch=0"], "batch must be a whole number of at least 1, not '0'"),
        ([*ASK[1:], "--fix", "batch=many"], "batch: 'many' is not a whole number; write it like 1000000"),
        ([*ASK[1:], "--fix", "batch"], "write KEY=VALUE"),
        ([*ASK[1:], "--fix", "batch=8", "--fix", "batch=9"], "batch is given twice"),
        ([*ASK[1:], "--fix", "arrangement=seriel"], "did you mean 'serial'?"),
        ([*ASK[1:], "--fix", "contestant=tensorflow"], "no tree 'tensorflow'"),
        ([*ASK[1:], "--exclude", "gpu"], "no device 'gpu' to exclude"),
        ([*ASK[1:], "--exclude", "cpu"], "cannot be excluded"),
        ([*ASK[1:], "--free", "bach"], "did you mean 'batch'?"),
        ([*ASK[1:], "--objective", "per_wat"], "did you mean 'per_watt'?"),
        ([*ASK[1:], "--objective", "per_watt"], "need watts above 0 of every device"),
        ([*ASK[1:], "--epsilon", "1.5"], "from 0 up to 1, not 1.5"),
        ([*ASK[1:], "--batch", "100"], "--batch is of a question about a tree; write --fix batch=100"),
        ([*ASK[1:], "--capacity", "100"], "write --fix capacity=100"),
        ([*ASK[1:], "--threads", "2"], "write --fix threads=2"),
        ([*ASK[1:], "--machine", "d7dae63b89"], "--machine d7dae63b89 goes with --platform this"),
        ([*ASK[1:], "--dtype", "float64"], "--dtype is of a question about a tree"),
        (["--capacity", "9", "--batch", "8", "--fix", "learner=gpu"], "--fix is of a question about a mapping"),
        ([*ASK[1:], "--free", "batch", "--fix", "batch=64"], "batch is both fixed and free"),
        ([*ASK[1:], "--free", "presampled", "--fix", "presampled=50"], "presampled is both fixed and free"),
        ([*ASK[1:], "--fix", "batch=99999999999"], "batch must be at least 1 and at most 1,048,576, not 99999999999"),
        ([*ASK[1:], "--fix", "presampled=100000000000"], "presampled must be at least 0 and at most 65,536"),
        (
            [*ASK[1:], "--fix", "capacity=100"],
            "[replay] capacity must be at least 1,025, a batch and every local storage",
        ),
        ([*ASK[1:], "--fix", "actor_count=5000"], "[actors] count must be at least 1 and at most 4,096"),
        ([*ASK[1:], "--fix", "local_storage=2000000"], "local_storage must be at least 1 and at most 1,048,576"),
    ],
)
def test_a_bad_question_gets_one_sentence(capsys, arguments, sentence):
    code, text, errors = told(capsys, "recommend", *arguments)
    assert (code, text) == (2, "")
    assert sentence in errors
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1


CPU = (
    '[[device]]\nname = "cpu"\nkind = "cpu"\norigin = "assumed"\nnote = "n"\ncores = 4\n[device.memory]\nsize_gib = 8\n'
)
GPU = '[[device]]\nname = "gpu"\nkind = "gpu"\norigin = "assumed"\nnote = "n"\n[device.memory]\nsize_gib = 8\n'


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("", "is empty"),
        ('name = "x"\n', "device"),
        ('name = "x"\n' + GPU, "has no processor"),
        ('name = "x"\n' + CPU + GPU, "no chain of links joins 'gpu' to 'cpu'"),
        ('name = "x"\n' + CPU.replace("cores = 4", "cores = 0"), "cores must be above 0"),
        ('name = "x"\n' + CPU + '[[link]]\nfrom = "cpu"\nto = "cpu"\n', "a link from 'cpu' to itself"),
    ],
)
def test_a_bad_platform_gets_a_sentence(capsys, tmp_path, text, sentence):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    code, out, errors = told(capsys, "recommend", "--platform", str(path), "--workload", "hopper_ddpg")
    assert (code, out) == (2, "")
    assert sentence in errors


def test_a_workload_without_a_batch_gets_a_sentence(capsys, tmp_path):
    source = Path("impls/training/workloads/hopper_ddpg.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(source.replace("batch = 256\n", ""))
    code, _, errors = told(capsys, "recommend", "--platform", HERE, "--workload", str(path))
    assert code == 2
    assert "batch" in errors


@pytest.fixture
def mine(tmp_path):
    """A workload file of a user on an environment, with observations of a shape and so many choices."""

    def write(environment="CartPole-v1", shape="[4]", choices=2):
        text = Path("impls/training/workloads/cartpole_dqn.toml").read_text().replace('"cartpole_dqn"', '"mine"')
        for key, value, given in (
            ("environment", f'"{environment}"', '"CartPole-v1"'),
            ("shape", shape, "[4]"),
            ("choices", choices, 2),
        ):
            assert f"{key} = {given}" in text
            text = text.replace(f"{key} = {given}", f"{key} = {value}")
        path = tmp_path / "mine.toml"
        path.write_text(text)
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
    assert training.main([path, "--out", str(tmp_path / "run")]) == 2
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
    assert training.main([path, "--out", str(folder)]) == 2  # a folder of another run is refused
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


@pytest.mark.parametrize("command", ["recommend", "explain", "what-if", "adapt", "learners"])
def test_help_says_what_a_machine_is(capsys, command):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "--machine KEY key of another machine with records; `python -m benchmarks list` shows them" in text


@pytest.mark.parametrize("path", ["gpu.memry_gb", "gpx.memory_gb", "cpu.cores", "link.beta"])
def test_a_bad_change_gets_a_sentence(capsys, path):
    ask = ["what-if", "--platform", "h200", "--workload", "hopper_ddpg"]
    code, _, errors = told(capsys, *ask, "--set", f"{path}={'0' if path == 'cpu.cores' else '1'}")
    assert code == 2
    assert errors.startswith("error: ")
    code, _, errors = told(capsys, *ask, "--set", f"{path}=much")
    assert code == 2
    assert "a number is wanted" in errors


@pytest.mark.parametrize(
    "change, sentence",
    [("gpu=3", "gpu alone names no number; write gpu.KEY=VALUE"), ("gpu.name=3", "gpu.name: name is a word")],
)
def test_a_change_of_no_number_says_so(capsys, change, sentence):
    code, _, errors = told(capsys, "what-if", "--platform", "h200", "--workload", "hopper_ddpg", "--set", change)
    assert code == 2
    assert sentence in errors
    assert "did you mean" not in errors


def test_threads_are_of_the_processor_and_the_answer_says_so(capsys):
    ask = ["recommend", "--platform", "u200", "--workload", "hopper_ddpg", "--fix", "learner_threads=1"]
    code, text, _ = told(capsys, *ask)
    assert code == 0
    assert re.search(r"^  learner +fpga  ", text, re.MULTILINE)
    assert "learner_threads=1 is of the processor's options, and learner is on fpga" in " ".join(text.split())


def test_what_is_not_named_stays_where_the_best_has_it(capsys):
    """Eight threads instead of one lose, and are no question about the GPU, which would tie."""
    ask = ["explain", "--platform", "h200", "--workload", "cartpole_dqn"]
    code, said, _ = told(capsys, *ask, "--config", "learner_threads=8", "--json")
    given = json.loads(said)
    assert code == 0
    where = [[(part["part"], part["device"]) for part in given[which]["parts"]] for which in ("asked", "best")]
    assert where[0] == where[1]
    assert "cpu (8 threads of torch)" in given["sentence"]
    assert not any("moves" in note for note in given["notes"])


def test_what_has_to_move_is_told(capsys):
    """A tree on the GPU leaves the learner where it is; a learner on the GPU may take along whatever makes it best."""
    ask = ["explain", "--platform", "h200", "--workload", "cartpole_dqn", "--config"]
    _, said, _ = told(capsys, *ask, "contestant=cupy")
    assert "note: this moves sampling from cpu to gpu, updating from cpu to gpu as well" in said
    ask[4] = "hopper_sac"
    _, said, _ = told(capsys, *ask, "learner=gpu")
    assert "note: this moves storage from gpu to cpu as well" in said
    _, said, _ = told(capsys, "explain", "--platform", "u200", *ASK[3:], "--config", "learner_threads=1")
    assert "note: learner_threads=1 is of the processor's options, and learner is on fpga" in said


@pytest.mark.parametrize("platform", [HERE, "u200", "h200"])
@pytest.mark.parametrize("fix", [[], ["--fix", "arrangement=serial"], ["--fix", "arrangement=apart"]])
def test_json_has_the_tree_under_sampling_and_under_updating(capsys, platform, fix):
    code, said, _ = told(capsys, "recommend", "--platform", platform, *ASK[3:], *fix, "--json")
    assert code == 0
    parts = {part["part"]: part["details"] for part in json.loads(said)["parts"]}
    assert parts["sampling"]["fanout"] >= 2
    assert parts["sampling"] == parts["updating"]


def test_a_whole_number_may_have_an_exponent(capsys):
    code, text, _ = told(capsys, *ASK, "--fix", "batch=1e3", "--objective", "fewest_devices", "--verbose")
    assert code == 0
    assert "B = 1,000" in text.splitlines()[0]
    assert "for gradient steps a second as for ratio" in text
    assert told(capsys, *ASK, "--fix", "batch=1.5")[0] == told(capsys, *ASK, "--fix", "batch=1e999")[0] == 2


@pytest.mark.parametrize("command", ["recommend", "explain", "what-if"])
def test_help_teaches(capsys, command):
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    for words in (
        "serial",
        "pipelined",
        "--free presampled",
        "fewest_devices",
        "u200",
        "hopper_ddpg",
        "update_interval",
    ):
        assert words in text


def test_an_answer_needs_no_heavy_library():
    heavy = "{'scipy', 'pandas', 'torch', 'numba', 'simpy', 'gymnasium', 'matplotlib'}"
    ask = f"main({ASK!r})"
    code = f"import sys; from dse.__main__ import main; {ask}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
