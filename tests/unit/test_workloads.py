"""Workload files: what is shipped says what was published, and every fault is a sentence with its line."""

import dataclasses
import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls import training
from impls.replay import Layout
from impls.training import WorkloadError, load
from impls.training.__main__ import main
from impls.training.algorithm import ALGORITHMS
from impls.training.settings import faults_of, list_fields, names, parse, path_of, template
from impls.training.weights import Size, convolutions, dense, networks, size_of
from impls.training.workload import MOST
from tests.learning import change

GOOD = path_of("cartpole_dqn").read_text()


def told(text):
    return [f"{problem.line}: {problem.sentence}" for problem in parse(text, "mine.toml")[1]]


def line(words):
    return next(number for number, text in enumerate(GOOD.splitlines(), 1) if text.startswith(words))


@pytest.mark.parametrize("name", training.names())
def test_each_shipped_workload_is_read_whole(name):
    workload = load(name)
    assert workload.name == name
    written = tomllib.loads(path_of(name).read_text())
    as_read = dataclasses.asdict(workload)
    for key, value in written.items():
        pairs = [(as_read[key][part], each) for part, each in value.items()] if isinstance(value, dict) else []
        for found, stated in pairs or [(as_read[key], value)]:
            assert found == (tuple(stated) if isinstance(stated, list) else stated)


def test_the_three_of_seed_3_are_as_it_prints_them():
    cartpole, hopper, pong = (load(name) for name in ("cartpole_ddpg", "hopper_ddpg", "pong_dqn"))
    assert (cartpole.observation.shape, cartpole.action_size, cartpole.network.hidden) == ((4,), 1, (8, 8))
    assert (hopper.observation.shape, hopper.action_size, hopper.network.hidden) == ((11,), 3, (256, 256))
    assert (pong.observation.shape, pong.action_size, pong.network.kind) == ((84, 84), 6, "convolution")
    for workload in (cartpole, hopper, pong):
        assert (workload.actors.count, workload.replay.fanout, workload.replay.presampled) == (16, 2, 50)


def test_what_seed_3_prints_as_macs():
    # Its two MLP critics take |S| + |A| + 1 inputs, and the "MACs" are their parameters.
    assert size_of(dense(4 + 1 + 1, 8, 8, 1)).parameters == 137
    assert size_of(dense(11 + 3 + 1, 256, 256, 1)).parameters == 70_145
    assert size_of(dense(4 + 1, 8, 8, 1)) == Size(112, 129)
    # 18.8M is the padded network: multiply-accumulates, with each output's bias counted as one more.
    assert convolutions(4, 84, 84)[1] == 9216
    macs = networks(load("pong_dqn"))["action_values"].macs
    assert macs == 18_713_600
    assert macs + 32 * 22 * 22 + (64 + 64) * 12 * 12 + 512 + 6 == pytest.approx(18.75e6, rel=1e-3)


def test_a_record_of_pong_is_one_frame():
    frames = Layout((84, 84), "uint8", frames=4, choices=6)
    assert frames.record_bytes * 1_000_000 < 7.1e9
    assert Layout((4, 84, 84), "uint8", choices=6).record_bytes * 1_000_000 > 56e9


@pytest.mark.parametrize(
    ("old", "new", "at", "words"),
    [
        ("batch = 64", "bach = 64", "batch", "unknown key 'bach'; did you mean 'batch'?"),
        ("batch = 64", "bach = 64", "[learner]", "[learner] lacks batch"),
        ("batch = 64", "batch = 6.5", "batch", "batch must be a whole number, not 6.5"),
        ("batch = 64", 'batch = "64"', "batch", "batch must be a whole number, not text"),
        ("batch = 64", "batch = true", "batch", "batch must be a whole number, not true or false"),
        ("batch = 64", "batch = 2000", "learning_starts", "learning_starts must be at least 2,000, a batch"),
        ('"dqn"', '"dqm"', "algorithm", "a3c, dyna_q, memr, mbpo, not 'dqm'; did you mean 'dqn'?"),
        ('name = "c', 'name = "my c', "name", "name must be of at most 64 letters"),
        ("seeds = [0, 1, 2, 3, 4]", "seeds = []", "seeds", "seeds must have 1 to 1000 numbers, not 0"),
        ("seeds = [0, 1, 2, 3, 4]", "seeds = [0.5]", "seeds", "seeds must be an array of whole numbers, not an arr"),
        ("beta_end = 1.0", "beta_end = nan", "beta_end", "beta_end must be at least 0 and at most 4, not nan"),
        ("beta_end = 1.0", "alpha = -1" + "0" * 400, "beta_end", "alpha must be at least 0 and at most 4"),
        ("beta_end = 1.0", "alpha = 1" + "0" * 400, "beta_end", "alpha must be at least 0 and at most 4"),
        ("choices = 2", "choices = 2\nsize = 1", "[action]", "[action] has either choices or size"),
        ("choices = 2", "size = 1", "algorithm", "dqn needs an [action] with choices, this one has a size"),
        ("[action]\nchoices = 2", "", "name", "this workload lacks [action]"),
        ("[replay]", "[replay]\npresampled = 2026-01-01", "[replay]", "presampled must be a whole number, not a date"),
        ("[observation]", "[[observation]]", "[observation]", "observation must be a table, [observation], not an arr"),
        ("[network]", '[network]\nkind = "convolution"', "[network]", "a convolution takes observations of 3 dimens"),
        ("tau = 0.01", "tau = 1", "tau = 0.01", "there is no target network; give tau below 1 or target_interval"),
        ("end = 0.04", "end = 1.5", "end = 0.04", "end must be at most 1 for dqn, of which it is a chance"),
        ("shape = [4]", "shape = [4]\nframes = 4", "shape", "local_storage must be at least 32 with 4 frames, which"),
        ("[replay]", "[actors]\nenvironments = 4096\n[replay]", "learning_starts", "at least 4,096, a batch and every"),
    ],
)  # fmt: skip
def test_each_fault_is_told_in_a_sentence_with_its_line(old, new, at, words):
    assert GOOD.count(old) == 1
    where = [sentence for sentence in told(GOOD.replace(old, new)) if words in sentence]
    assert len(where) == 1, told(GOOD.replace(old, new))
    assert int(where[0].partition(":")[0]) - line(at) in (0, 1)


@pytest.mark.parametrize(("shape", "is_taken"), [([96, 96, 3], False), ([17, 96, 96], False), ([3, 96, 96], True)])
def test_a_convolution_takes_channels_first(shape, is_taken):
    text = path_of("pong_dqn").read_text().replace("frames = 4\n", "").replace("[84, 84]", str(shape))
    found = [sentence.partition(": ")[2] for sentence in told(text)]
    words = f"a convolution takes frames [H, W], or [C, H, W] with C at most 16, not {shape[0]}"
    assert found == ([] if is_taken else [words])


def test_everything_that_is_wrong_is_told_at_once_in_order():
    text = GOOD.replace("batch = 64", "bach = 64").replace("hidden = [128, 128]", "hidden = [0]")
    found = parse(text.replace("steps", "stpes", 1), "mine.toml")[1]
    assert [problem.line for problem in found] == sorted(problem.line for problem in found)
    assert len(found) == 5  # two keys misspelt and therefore lacking, one out of range
    with pytest.raises(WorkloadError, match=r"no workload 'cartpole_dqm'; .*; did you mean 'cartpole_dqn'"):
        load("cartpole_dqm")


def test_a_file_of_the_folder_is_meant_by_its_name_without_toml(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkloadError, match=r"no workload 'mine'; .*; did you mean 'mine.toml'"):
        load("mine")


def test_what_is_no_workload_at_all_is_one_sentence(tmp_path):
    assert told("") == ["0: is empty: a workload has a name, an environment and an algorithm at least"]
    (tmp_path / "sub.toml").mkdir()
    assert told("name = ")[0].startswith("1: not TOML: ")
    for path in (tmp_path / "sub.toml", tmp_path / "none.toml"):
        with pytest.raises(WorkloadError, match=r"is a folder|cannot be read"):
            load(path)


@given(st.integers(0, len(GOOD)), st.integers(0, 12), st.text(max_size=8))
def test_no_text_is_a_traceback(at, cut, put):
    workload, found = parse(GOOD[:at] + put + GOOD[at + cut :], "mine.toml")
    assert (workload is None) == bool(found)


def test_the_defaults_of_a_workload_are_in_range():
    for field in (field for _, fields in list_fields() for field in fields):
        default, rules = field.default, field.metadata
        if default is not dataclasses.MISSING and "low" in rules and not rules.get("otherwise"):
            for value in default if isinstance(default, tuple) else (default,):
                assert rules["low"] <= value <= rules["high"], field.name


def needed():
    """The keys that ``keys`` marks as needed, and nothing else, as a workload for every algorithm."""
    values = {"name": '"mine"', "environment": '"CartPole-v1"', "shape": "[4]", "hidden": "[8]", "learning_starts": 64}
    values["capacity"] = 100
    for table, fields in list_fields():
        if table:
            yield f"[{table}]"
        for field in fields:
            if field.name in ("choices", "capacity") or (field.default is dataclasses.MISSING):
                yield f"{field.name} = {values.get(field.name, 32)}"


@pytest.mark.parametrize("algorithm", ["dqn", "ddpg", "td3", "sac"])
def test_a_workload_of_the_needed_keys_alone_is_taken(algorithm):
    text = "\n".join(needed()).replace("algorithm = 32", f'algorithm = "{algorithm}"')
    workload, faults = parse(text, "mine.toml")
    assert not faults
    assert (workload.learner.target_interval, workload.learner.tau) == (1, 0.005)
    copied, faults = parse(text.replace("[replay]", "target_interval = 50\n[replay]"), "mine.toml")
    assert not faults
    assert copied.learner.tau == 1
    assert faults_of(workload) == faults_of(copied) == []


def test_keys_prints_the_template_and_show_a_shipped_file(capsys, tmp_path):
    assert main(["keys"]) == 0
    assert capsys.readouterr().out == template()
    for name in names():
        assert main(["show", name]) == 0
        path = tmp_path / f"{name}.toml"
        path.write_text(capsys.readouterr().out)
        assert load(path) == load(name)
    assert main(["show", "none"]) == main(["show", str(tmp_path / "no.toml")]) == 2
    for words, said in ((["show"], "required: name"), (["train", "cartpole_dqn", "hopper_ddpg"], "hopper_ddpg")):
        with pytest.raises(SystemExit, match="2"):
            main(words)
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_init_prints_a_workload_of_the_needed_keys_with_all_others_explained(capsys, algorithm):
    assert main(["init", "--algorithm", algorithm]) == 0
    text = capsys.readouterr().out
    workload, faults = parse(text, "mine.toml")
    assert not faults
    assert workload.algorithm == algorithm
    every = re.sub(r"(?m)^#(?!size|choices|note|capacity)(?=\w+ = )", "", text)
    assert parse(every, "mine.toml") == (workload, [])  # what is commented out are the defaults
    stated = [line.split()[0] for line in text.splitlines() if " = " in line and not line.startswith("#")]
    least = [line.split()[0] for line in needed() if " = " in line]
    named = [key if workload.has_choices else key.replace("choices", "size") for key in least]
    shown = [key for key in named if algorithm != "a3c" or key != "capacity"]
    assert [key for key in stated if algorithm != "mbpo" or key != "alpha"] == shown  # alpha's default is not its 0
    assert all(len(line) <= 120 for line in text.splitlines())


def test_every_key_of_the_template_has_its_meaning_and_its_range():
    top, *parts = re.split(r"(?m)^\[(\w+)\]", re.sub(r"\n +# \(", " (", template()))
    tables = dict(zip(parts[::2], parts[1::2], strict=True))
    for table, field in ((table, field) for table, fields in list_fields() for field in fields):
        rules = field.metadata
        line = rf"(?m)^#?{field.name} = .*# (?:needed; )?{re.escape(rules['help'])}(?: \((.*)\))?$"
        first, *rest = (re.search(line, tables.get(table, top))[1] or "").split("; ")
        numbers = [float(one.replace(",", "")) for one in re.findall(r"(?<!\w)-?\d[\d,.]*(?:e\+\d+)?", first)]
        assert numbers == [rules[end] for end in ("low", "high") if rules.get(end, MOST) != MOST], field
        assert rules.get("above", False) == first.startswith("above "), field
        assert rules.get("otherwise", "") in ("", *rest), field
        assert "choices" not in rules or first == ", ".join(rules["choices"]), field


def test_init_writes_a_file_of_that_name_and_nothing_over_another(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "mine"]) == 0
    assert capsys.readouterr().out == "written to mine.toml; train it with: python -m impls.training train mine.toml\n"
    assert load("mine.toml").name == "mine"
    assert main(["init", "mine.toml"]) == 2
    assert "mine.toml: is there already" in capsys.readouterr().err
    for words in (["init", "no folder/x"], ["init", "my workload"], ["train", "cartpole_dqn", "--algorithm", "dqn"]):
        assert main(words) == 2
    errors = capsys.readouterr().err
    for words in ("cannot be written", "not 'my workload'", "--algorithm goes with init"):
        assert words in errors


@pytest.mark.parametrize("name", names())
def test_a_workload_that_a_program_changed_is_checked_as_a_file_is(name):
    workload = load(name)
    assert faults_of(workload) == []
    assert faults_of(change(workload, batch=0, gamma=2.0)) == [
        "[learner] batch must be at least 1 and at most 1,048,576, not 0",
        "[learner] gamma must be at least 0 and at most 1, not 2.0",
    ]
    (fault,) = faults_of(change(workload, capacity=2))
    has_none = workload.algorithm == "a3c"
    assert fault.startswith("a3c has no replay" if has_none else "[replay] capacity must be at least")
