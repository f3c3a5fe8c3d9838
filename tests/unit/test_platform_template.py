"""Tests of ``python -m dse platform init`` and of ``show --toml``: files to begin with."""

import dataclasses
import re
import tomllib
from pathlib import Path

import pytest

from dse import platforms
from dse.__main__ import main
from dse.platforms.platform import Cache, Device, Link, Memory, Platform, Slice
from dse.platforms.quantities import split
from dse.platforms.reading import parse, path_of
from dse.platforms.schema import BLANK
from dse.platforms.template import template
from tests.unit.test_platforms import GOOD

VALUES = {"origin": '"assumed"', "note": '"a guess"', "name": '"part"', "model": '"m"', "title": '"t"', "shell": '"s"'}
"""What a user fills in besides numbers; ``hops`` and the like are small, resources of a slice are not."""
KEY = re.compile(rf'(?m)^(\w+) = "{re.escape(BLANK)}"')


def ask(capsys, *words):
    code = main(["platform", *map(str, words)])
    told = capsys.readouterr()
    return code, told.out, told.err


def filled(text):
    """Fill in every blank of what is not commented out."""
    numbers = {"lut": 300_000, "ff": 600_000, "bram36": 700, "uram": 300, "dsp": 2000, "clock_mhz": 200}
    values = VALUES | numbers | {"multiprocessors": 80, "machine_key": '"k"'}
    return KEY.sub(lambda key: f"{key[1]} = {values.get(key[1], 8)}", text)


def uncommented(text, marks=1):
    """Take so many marks away before each key and each header."""
    return re.sub(rf"(?m)^#{{1,{marks}}}(?=#*(\w+ = |\[))", "", text)


def test_what_is_left_to_fill_in_is_told_with_its_line_and_meaning(capsys, tmp_path):
    path = tmp_path / "lab.toml"
    code, told, _ = ask(capsys, "init", "--out", path)
    assert (code, "4 keys left to fill in" in told) == (0, True)
    text = path.read_text()
    assert text == template("lab")
    code, told, _ = ask(capsys, "check", path)
    blanks = [(text.count("\n", 0, key.start()) + 1, key[1]) for key in KEY.finditer(text)]
    assert (code, [key for _, key in blanks]) == (2, ["origin", "note", "cores", "size_gib"])
    for line, (at, key) in zip(told.splitlines(), blanks, strict=True):
        assert line.startswith(f"{path}:{at}: {key} is left to fill in: ")
    assert told.endswith("(in GiB)\n")
    assert main(["recommend", "--platform", str(path), "--workload", "cartpole_dqn"]) == 2
    assert capsys.readouterr().err.count("is left to fill in") == 4


def test_once_the_needed_keys_are_filled_in_a_question_is_answered(capsys, tmp_path):
    path = tmp_path / "lab.toml"
    path.write_text(filled(template("lab")))
    assert ask(capsys, "check", path)[:2] == (0, f"{path}: fine, 2 numbers of cpu\n")
    assert main(["recommend", "--platform", str(path), "--workload", "cartpole_dqn"]) == 0
    assert main(["cores", "--platform", str(path), "--workload", "cartpole_dqn"]) == 0


def test_blocks_of_a_gpu_and_an_fpga_count_once_their_marks_are_away(capsys, tmp_path):
    path = tmp_path / "lab.toml"
    processor, *blocks = re.split(r"(?=\n# An? [GF]P)", template("lab"))
    assert len(blocks) == 2
    path.write_text(filled(processor + "".join(map(uncommented, blocks))))
    code, told, _ = ask(capsys, "check", path)
    assert (code, told.split(", ")[-2:]) == (0, ["gpu", "fpga\n"]), told
    assert main(["recommend", "--platform", str(path), "--workload", "hopper_ddpg", "--json"]) == 0
    assert main(["platform", "estimate", str(path)]) == 0
    assert "cannot be modeled" not in capsys.readouterr().out


def test_every_key_is_in_the_template_and_right_where_it_stands():
    text = template("all")
    for of in (Platform, Device, Cache, Memory, Slice, Link):
        for field in dataclasses.fields(of):
            name, units = field.metadata.get("key", split(field.name)[0]), split(field.name)[1]
            written = [f"{name}{unit.ending} =" for unit in units] + [f"[device.{name}]]", f".{name}]", f"[[{name}]]"]
            assert any(each in text for each in written), (of, field.name)
    everything = uncommented(text, 3)
    assert all("left to fill in" in problem.sentence for problem in parse(everything, "all")[1])
    shell = filled(everything).replace("[device.slice.shell]\nlut = 300000", "[device.slice.shell]\nlut = 3")
    assert parse(shell, "all")[1] == []


def test_comments_say_the_unit_and_what_a_key_is_for():
    for line in template().splitlines():
        assert len(line) <= 120
        if KEY.search(line.lstrip("#")):
            assert re.search(r"  +# .{4,}", line), line
    assert re.search(r"cores = .*needed; .*\(edge 4, h200 16, u200 28\)", template())


@pytest.mark.parametrize("name", platforms.names())
def test_a_copy_has_the_same_numbers_under_its_own_name(capsys, tmp_path, name):
    path = tmp_path / "lab-2.toml"
    code, told, _ = ask(capsys, "init", "--like", name, "--out", path)
    assert (code, told.splitlines()[0]) == (0, f"written to {path}, nothing left to fill in")
    assert platforms.load(path) == dataclasses.replace(platforms.load(name), name="lab-2")
    assert path.read_text().count("#") > path_of(name).read_text().count("#")


def test_a_copy_of_a_probed_machine_does_not_pass_for_it(capsys, tmp_path):
    probed = tmp_path / "probed.toml"
    probed.write_text(GOOD.replace('name = "mine"', 'name = "mine"\nmachine_key = "0123456789"', 1))
    code, told, _ = ask(capsys, "init", "--like", probed)
    assert code == 0
    assert "machine_key" not in tomllib.loads(told)
    assert "# machine_key = " in told


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("init --out lab.toml", "is there already; name another file with --out"),
        ("init lab.toml", "is there already"),
        ("init --out no/lab.toml", "cannot be written"),
        ("init --like u20", "no platform 'u20'"),
        ("init --like bad.toml", "lacks [[device]]"),
        ("show u200 --toml --json", "exclude each other"),
        ("show none.toml --toml", "cannot be read"),
    ],
)
def test_nothing_is_written_over_and_mistakes_are_sentences(capsys, tmp_path, monkeypatch, words, reason):
    monkeypatch.chdir(tmp_path)
    Path("lab.toml").write_text("kept")
    Path("bad.toml").write_text('name = "bad"')
    code, told, complaint = ask(capsys, *words.split())
    assert (code, told, complaint.count("\n")) == (2, "", 1)
    assert reason in complaint
    assert Path("lab.toml").read_text() == "kept"


@pytest.mark.parametrize("name", platforms.names())
def test_show_prints_the_file_and_templates_need_no_checkout(capsys, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert ask(capsys, "show", name, "--toml") == (0, path_of(name).read_text(), "")
    assert ask(capsys, "init", "--like", name, "mine.toml")[0] == ask(capsys, "check", "mine.toml")[0] == 0
    assert 'name = "mine"' in Path("mine.toml").read_text()
