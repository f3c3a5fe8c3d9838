"""Workload files and settings: what is shipped was published, each fault is a sentence, each setting has its bounds."""

import dataclasses
import functools
import math
import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.replay import Layout
from impls.training import TrainingError, WorkloadError, load
from impls.training.__main__ import main
from impls.training.algorithm import ALGORITHMS
from impls.training.arrangement import COPIES, Arrangement, flag_of
from impls.training.options import parser, setup_of
from impls.training.settings import OPTIONS, check_ranges, faults_of, list_fields, names, parse, path_of, template
from impls.training.weights import Size, convolutions, dense, networks, size_of
from impls.training.workload import MOST
from tests.learning import change, refused

GOOD = path_of("cartpole_dqn").read_text()


def told(text):
    return [f"{problem.line}: {problem.sentence}" for problem in parse(text, "mine.toml")[1]]


def line(words):
    return next(number for number, text in enumerate(GOOD.splitlines(), 1) if text.startswith(words))


def test_each_shipped_workload_is_read_whole():
    for name in names():
        workload = load(name)
        assert workload.name == name
        written, as_read = tomllib.loads(path_of(name).read_text()), dataclasses.asdict(workload)
        for key, value in written.items():
            pairs = [(as_read[key][part], each) for part, each in value.items()] if isinstance(value, dict) else []
            for found, stated in pairs or [(as_read[key], value)]:
                assert found == (tuple(stated) if isinstance(stated, list) else stated), (name, key)


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
    assert Layout((84, 84), "uint8", frames=4, choices=6).record_bytes * 1_000_000 < 7.1e9
    assert Layout((4, 84, 84), "uint8", choices=6).record_bytes * 1_000_000 > 56e9


FAULTS = [
    ("batch = 64", "bach = 64", "batch", "'bach' 'batch'"),
    ("batch = 64", "bach = 64", "[learner]", "[learner] lacks batch"),
    ("batch = 64", "batch = 6.5", "batch", "batch whole number 6.5"),
    ("batch = 64", 'batch = "64"', "batch", "batch whole number text"),
    ("batch = 64", "batch = true", "batch", "batch whole number true or false"),
    ("batch = 64", "batch = 2000", "learning_starts", "learning_starts 2,000"),
    ('"dqn"', '"dqm"', "algorithm", "a3c, dyna_q, memr, mbpo, 'dqm' 'dqn'"),
    ('name = "c', 'name = "my c', "name", "name 64 letters"),
    ("seeds = [0, 1, 2, 3, 4]", "seeds = []", "seeds", "seeds 1 1000 0"),
    ("seeds = [0, 1, 2, 3, 4]", "seeds = [0.5]", "seeds", "seeds array whole numbers"),
    ("beta_end = 1.0", "beta_end = nan", "beta_end", "beta_end 0 4, nan"),
    ("beta_end = 1.0", "alpha = -1" + "0" * 400, "beta_end", "alpha 0 4"),
    ("beta_end = 1.0", "alpha = 1" + "0" * 400, "beta_end", "alpha 0 4"),
    ("choices = 2", "choices = 2\nsize = 1", "[action]", "[action] choices size"),
    ("choices = 2", "size = 1", "algorithm", "dqn [action] choices size"),
    ("[action]\nchoices = 2", "", "name", "lacks [action]"),
    ("[replay]", "[replay]\npresampled = 2026-01-01", "[replay]", "presampled whole number date"),
    ("[observation]", "[[observation]]", "[observation]", "observation table, [observation]"),
    ("[network]", '[network]\nkind = "convolution"', "[network]", "convolution 3"),
    ("tau = 0.01", "tau = 1", "tau = 0.01", "target tau target_interval"),
    ("end = 0.04", "end = 1.5", "end = 0.04", "end 1 dqn"),
    ("shape = [4]", "shape = [4]\nframes = 4", "shape", "local_storage 32 4 frames"),
    ("[replay]", "[actors]\nenvironments = 4096\n[replay]", "learning_starts", "4,096"),
]
"""What a good file has, what stands there instead, at which line the fault is, and its facts."""


def test_each_fault_is_a_sentence_with_its_line():
    for old, new, at, facts in FAULTS:
        assert GOOD.count(old) == 1
        found = told(GOOD.replace(old, new))
        where = [sentence for sentence in found if all(fact in sentence for fact in facts.split())]
        assert len(where) == 1, (new, found)
        assert int(where[0].partition(":")[0]) - line(at) in (0, 1), new


def test_a_convolution_takes_channels_first():
    pong = path_of("pong_dqn").read_text().replace("frames = 4\n", "")
    for shape, is_taken in (([96, 96, 3], False), ([17, 96, 96], False), ([3, 96, 96], True)):
        found = told(pong.replace("[84, 84]", str(shape)))
        assert [sentence.endswith(f"16, not {shape[0]}") for sentence in found] == ([] if is_taken else [True])


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


def test_a_workload_of_the_needed_keys_alone_is_taken():
    for algorithm in ("dqn", "ddpg", "td3", "sac"):
        text = "\n".join(needed()).replace("algorithm = 32", f'algorithm = "{algorithm}"')
        workload, faults = parse(text, "mine.toml")
        copied, more = parse(text.replace("[replay]", "target_interval = 50\n[replay]"), "mine.toml")
        assert faults == more == faults_of(workload) == faults_of(copied) == []
        assert (workload.learner.target_interval, workload.learner.tau, copied.learner.tau) == (1, 0.005, 1)


def test_keys_prints_the_template_and_show_a_shipped_file(capsys, tmp_path):
    assert main(["keys"]) == 0
    assert capsys.readouterr().out == template()
    for name in names():
        assert main(["show", name]) == 0
        path = tmp_path / f"{name}.toml"
        path.write_text(capsys.readouterr().out)
        assert load(path) == load(name)
    assert main(["show", "none"]) == main(["show", str(tmp_path / "no.toml")]) == 2


def test_init_prints_the_needed_keys_and_comments_all_others(capsys):
    for algorithm in ALGORITHMS:
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


def test_init_writes_a_file_and_nothing_over_another(capsys, tmp_path, monkeypatch):
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


def test_a_workload_that_a_program_changed_is_checked():
    for name in names():
        workload = load(name)
        assert faults_of(workload) == []
        batch, gamma = faults_of(change(workload, batch=0, gamma=2.0))
        assert re.match(r"\[learner\] batch .* 1 .* 1,048,576, not 0$", batch)
        assert re.match(r"\[learner\] gamma .* 0 .* 1, not 2.0$", gamma)
        (fault,) = faults_of(change(workload, capacity=2))
        assert fault.startswith("a3c has no replay" if workload.algorithm == "a3c" else "[replay] capacity")


# Settings


FIELDS = {field.name: field for field in dataclasses.fields(Arrangement) if field.metadata}
SERVER = {"name": COPIES, "sync": "server"}  # whose copies may meet where an episode begins
NAMED = {field.metadata.get("named", name): field for name, field in FIELDS.items()}


def set_up(*words):
    return setup_of(load(words[0]), parser(None).parse_args(["train", *words]))


def list_range_faults(table, field, value):
    """The faults of range that a workload has with another value of a key."""
    workload = load("cartpole_dqn")
    part = {field.name: (value,) if field.metadata["shape"].startswith("an array") else value}
    part = {table: dataclasses.replace(getattr(workload, table), **part)} if table else part
    found = faults_of(dataclasses.replace(workload, **part))
    return [fault for fault in found if f"{field.name} must be a" in fault and "and at most" in fault]


def list_bounds():
    """The name of each setting, its rules, the value that stands for none, and what lists the faults of a value."""
    for name, setting in OPTIONS.items():
        if "word" not in setting.rules:  # an arrangement checks these
            yield (
                flag_of(name),
                setting.rules,
                None,
                lambda value, name=name: list_refusals(check_ranges, {name: value}),
            )
    for name, field in FIELDS.items():
        yield name, field.metadata, None, lambda value, name=name: list_refusals(Arrangement, **{**SERVER, name: value})
    for table, fields in list_fields():
        for field in fields:
            yield field.name, field.metadata, field.default, functools.partial(list_range_faults, table, field)


def list_refusals(make, *given, **options):
    try:
        make(*given, **options)
    except TrainingError as error:
        return [str(error)]
    return []


def test_a_setting_takes_its_bounds_and_nothing_beyond():
    for name, rules, default, list_faults in list_bounds():
        if "low" not in rules:
            continue
        low, high, above = rules["low"], rules["high"], rules.get("above")
        for value in (math.nextafter(low, math.inf) if above else low, high):
            assert not list_faults(value), name
        for value, bound in ((low if above else low - 1, low), (high + 1, high)):
            if value != default:
                (fault,) = list_faults(value)
                facts = (name, f"{bound:,}".removesuffix(".0"), str(value)[:24])
                assert [fact for fact in facts if fact not in fault] == []
    assert all(list_refusals(Arrangement, period=value) for value in (1.5, True))


def test_a_misspelt_name_is_refused_with_those_there_are():
    for name in [name for name, field in NAMED.items() if field.metadata.get("choices")] + ["sync"]:
        known = NAMED[name].metadata["choices"] or ("synchronous", "lock", "hogwild", "local")
        misspelt, given = f"{known[-1]}x", [] if name == "arrangement" else ["--arrangement", "apart"]
        with refused(" ".join((name, *known, f"'{misspelt}'", f"'{known[-1]}'"))):
            set_up("cartpole_dqn", *given, flag_of(name), misspelt)


def test_words_of_no_command_are_refused_with_what_was_meant(capsys):
    for words, meant in ((["cartpole_dqn", "--alpha", "0"], "train cartpole_dqn --alpha 0"), (["lsit"], "'list'")):
        assert main(words) == 2
        assert meant in capsys.readouterr().err
    for words, meant in ((["train", "cartpole_dqn", "--actros=3"], "'--actors'"), (["show"], "name")):
        with pytest.raises(SystemExit, match="2"):
            main(words)
        assert meant in capsys.readouterr().err
    assert main([]) == 0
    assert "train cartpole_dqn" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--help"])
    said = capsys.readouterr().out
    assert [name for name in OPTIONS if flag_of(name) not in said] == []
