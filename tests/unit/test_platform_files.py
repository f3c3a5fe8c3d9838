"""Platform files: each fault a sentence with its line, files to begin with."""

import dataclasses
import random
import re
import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse import platforms
from dse.__main__ import main
from dse.platforms import PlatformError, load
from dse.platforms.files import parse, path_of, template, to_toml
from dse.platforms.platform import (
    KINDS,
    Cache,
    Device,
    DeviceKind,
    Link,
    Memory,
    Network,
    Node,
    Platform,
    Slice,
    keys_of,
    leaves,
)
from dse.platforms.quantities import Quantity, readable
from dse.platforms.schema import BLANK
from tests.unit.test_platforms import GOOD

SHIPPED = platforms.names()
SECOND_DEVICE = 16  # the line of its [[device]] in GOOD


def ask(capsys, *words):
    return main(["platform", *map(str, words)]), *capsys.readouterr()


def line(words):
    """Find the number of the line of GOOD that begins with some words."""
    return next(number for number, text in enumerate(GOOD.splitlines(), 1) if text.startswith(words))


def told(text):
    """List the problems of a text, each as LINE: SENTENCE."""
    return [f"{problem.line}: {problem.sentence}" for problem in parse(text, "mine.toml")[1]]


@pytest.mark.parametrize(
    ("old", "new", "at", "words"),
    [
        ("cores = 8", "coers = 8", "cores", "unknown key 'coers'; did you mean 'cores'?"),
        ("bandwidth_gb_per_s = { value = 51.2", "bandwidth_gb_per_s = { value = -1", "bandwidth", "must be above 0"),
        ("back_beta_gb_per_s = 4", "back_beta_gb_per_s = -4", "back_beta", "must be above 0, not -4"),
        ("alpha_us = 10", "alpha_us = -1", "alpha", "alpha_us must be at least 0, not -1"),
        ("size_gib", "size_tib", "size_gib", "unknown key 'size_tib'; there is size (_bytes, _kib, _mib, _gib"),
        ("\nbeta_gb_per_s", "\nbeta_gbps", "beta", "unknown key 'beta_gbps'; there is beta (_bytes_per_s, "),
        ("clock_mhz = 200", "clock = 200", "clock", "unknown key 'clock'; there is clock (_hz, _mhz, _ghz)"),
        ("cores = 8", "cores_ghz = 8", "cores", "unknown key 'cores_ghz'; there is cores"),
        ("cores = 8", "cores = 8\nmemory_tb = 1", "[[device.cache", "key 'memory_tb'; there is [device.memory]"),
        ('name = "card"', 'name = "cpu"', 'name = "card"', "a second device 'cpu'; give each a name of its own"),
        ('to = "card"', 'to = "crad"', "to", "'crad', which is no device; there are 'cpu', 'card'; did you mean"),
        ('to = "card"', 'to = "cpu"', "to", "a link from 'cpu' to itself"),
        ('to = "card"', "to = 3", "to", "to must be text in quotes, not a number"),
        ("cores = 8", 'cores = "8"', "cores", "cores must be a number, not text"),
        ("cores = 8", "cores = true", "cores", "cores must be a number, not true or false"),
        ("cores = 8", "cores = 1979-05-27", "cores", "cores must be a number, not a date or time"),
        ("cores = 8", "cores = [8]", "cores", "cores must be a number, not an array"),
        ("cores = 8", "cores = 2.5", "cores", "cores must be a count, a whole number, not 2.5"),
        ("cores = 8", "cores = 0", "cores", "cores must be above 0, not 0"),
        ("cores = 8", "cores = nan", "cores", "cores must be finite and at most 1e+30"),
        ("alpha_us = 10", "alpha_us = inf", "alpha", "alpha_us must be finite"),
        ("alpha_us = 10", "alpha_us = 1e-320", "alpha", "alpha_us must be at least 0"),
        ("beta_gb_per_s = 8", "beta_gb_per_s = 1e31", "beta", "must be finite and at most 1e+30"),
        ("cores = 8", "cores = 0x" + "f" * 400, "cores", "cores must be finite and at most 1e+30"),
        ("alpha_us = 10", "alpha_us = { value = 1, orgin = '' }", "alpha", "'orgin' of alpha_us; did you mean 'origin"),
        ("alpha_us = 10", "alpha_us = { origin = 'paper', note = 'n' }", "alpha", "alpha_us lacks its value"),
        ("alpha_us = 10", "alpha_us = { value = 1, spread = -1 }", "alpha", "spread of alpha_us must be at least 0"),
        ('"assumed", note', '"asumed", note', "bandwidth", "not 'asumed'; did you mean 'assumed'?"),
        (', note = "two channels"', "", "bandwidth", "states an origin without a note"),
        ("size_gib = 32", "size_gib = 32\nsize_mib = 1", "bandwidth", "size is given twice, in two units"),
        ("[device.memory]", "[[device.memory]]", "[device.memory]", "memory must be [device.memory], not an array"),
        ("[[device.cache]]", "[device.cache]", "[[device.cache]]", "cache must be [[device.cache]], not a table"),
        ('kind = "fpga"', 'kind = "fgpa"', 'kind = "fpga"', "one of cpu, gpu, fpga, not 'fgpa'; did you mean 'fpga'?"),
        ('kind = "fpga"', 'kind = "gpu"', "[[device]]", "slice is for kind fpga, this device is of kind gpu"),
        ('name = "card"', 'name = "my card"', 'name = "card"', "must be of letters, digits, _ and -, not 'my card'"),
        ('"two channels"', '"\\u001b[31m"', "bandwidth", "note must be printable text"),
        ("ff = 2000", "ff = 2000\nshell = {lut = 1001, ff = 0, bram36 = 0, uram = 0, dsp = 0}", "bram36", "1 lut more"),
        ("dsp = 20\n", "", "[[device.slice]]", "slice 'SLR0' lacks dsp"),
        ("size_gib = 32", "size_kib = 32", "size_gib", "size_kib must be at least 1 MiB, not 32 KiB; state it in"),
        ("size_kib = 32", "size_mib = 2048", "size_kib", "size_mib must be below 1 GiB, not 2048 MiB; state it in"),
        ("alpha_us = 10", "alpha_us = 1e6", "alpha", "alpha_us must be below 1 s, not 1e+06 us; state it in"),
        ("back_alpha_us = 0\n", "", "[[link]]", "this link lacks back_alpha (_seconds, _ms, _us, _ns)"),
    ],
)  # fmt: skip
def test_each_fault_is_told_in_a_sentence_with_its_line(old, new, at, words):
    assert GOOD.count(old) == 1
    found = told(GOOD.replace(old, new))
    where = [sentence for sentence in found if words in sentence]
    assert len(where) == 1, found
    expected = line(at) if at != "[[device]]" else SECOND_DEVICE
    assert where[0].startswith(f"{expected}: "), (where, expected)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (
            GOOD[: GOOD.index("[[device.slice]]")] + GOOD[GOOD.index("[[link]]") :],
            [f"{SECOND_DEVICE}: device 'card' lacks [[device.slice]], which every fpga has"],
        ),
        (
            GOOD[: GOOD.index("[[link]]")],
            [f"{SECOND_DEVICE}: no chain of links joins 'card' to 'cpu'; add a [[link]]"],
        ),
    ],
)
def test_what_a_platform_lacks_is_told(text, faults):
    assert told(text) == faults


def test_a_kind_of_device_is_one_line_of_a_table(monkeypatch):
    text = GOOD.replace('kind = "fpga"', 'kind = "npu"')
    assert told(text)[-1].endswith("kind must be one of cpu, gpu, fpga, not 'npu'")
    monkeypatch.setitem(KINDS, "npu", DeviceKind(needed=("clock_hz", "memory"), own=("slices",)))
    assert told(text) == [f"{SECOND_DEVICE}: device 'card' lacks [device.memory], which every npu has"]


def test_a_number_without_an_origin_is_refused():
    found = told(GOOD.replace('origin = "datasheet"\n', "").replace('note = "the maker\'s data sheet"\n', ""))
    assert "6: cores has no origin; state it next to the value, or once in its table" in found
    assert len(found) == 14


def test_everything_that_is_wrong_is_told_at_once_in_order():
    text = (
        GOOD.replace("cores = 8", "coers = 8").replace("size_kib = 32", "size_kib = -1").replace('"card"\nh', '"x"\nh')
    )
    found = parse(text, "mine.toml")[1]
    assert [problem.line for problem in found] == sorted(problem.line for problem in found)
    assert len(found) == 4
    assert str(found[-1]).startswith(f"mine.toml:{line('to')}: a link to 'x'")


def test_lines_are_found_behind_strings_that_look_like_tables():
    note = 'note = """\n[[device]]\ncores = 1\n"""'
    text = GOOD.replace('note = "the maker\'s data sheet"', note).replace("cores = 8", "coers = 8")
    assert told(text)[-1].startswith(f"{line('cores') + 3}: unknown key 'coers'")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty: a platform has a name and at least one [[device]]"),
        (b"# nothing\n", "is empty"),
        (b'name = "mine"\n', "mine' lacks [[device]]"),
        (b"name = \n", ":1: not TOML: invalid value"),
        (b'name = "x"\nname = "y"\n', ":2: not TOML: cannot overwrite a value"),
        (b"a" * (10 << 20), "has 10,485,760 bytes, a platform file at most 1,048,576"),
        (b'name = "mi\0ne"\n', ":1: holds a NUL byte"),
        (b'name = "m"\ntitle = "\xff"\n', ":2: byte 20 is not UTF-8"),
        (b"x = " + b"[" * 100_000, "nested too deeply"),
        (b"x = " + b"{a=" * 100_000, "nested too deeply"),
        (b"x = " + b"9" * 5000, "holds a number that cannot be read"),
        (b"." .join([b"a"] * 100_000) + b" = 1", "a key of more than 16 parts"),
    ],
)  # fmt: skip
def test_what_is_no_platform_at_all_is_one_sentence(tmp_path, content, words):
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    began = time.process_time()
    with pytest.raises(PlatformError) as refusal:
        load(path)
    assert time.process_time() - began < 5
    assert words in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_files_that_cannot_be_read_and_names_that_nothing_has(tmp_path):
    for name, words in (
        (tmp_path, "is a folder; name a file"),
        (tmp_path / "none.toml", "cannot be read (No such file or directory)"),
        ("ege", f"there are {', '.join(SHIPPED)}, this, or name a .toml file; did you mean 'edge'?"),
        ("x" * 5000, "no platform 'xxx"),
        ("x\0y", "no platform 'x"),
        ("x\0y.toml", "cannot be read (no file has such a name)"),
    ):
        with pytest.raises(PlatformError) as refusal:
            load(name)
        assert words in str(refusal.value)


def survives(text):
    """A text is a platform or has problems, each a sentence with a line of the text."""
    platform, found = parse(text, "x.toml")
    assert (platform is None) == bool(found)
    lines = text.count("\n") + 1
    for problem in found:
        assert 0 <= problem.line <= lines
        assert problem.sentence
        assert len(str(problem)) < 1000
    if platform:
        assert parse(to_toml(platform), "again")[0] is not None


@given(st.text())
def test_any_text_is_told_what_is_wrong_with_it(text):
    survives(text)


@given(st.binary())
def test_any_file_is_told_what_is_wrong_with_it(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "x.toml"
    path.write_bytes(content)
    with pytest.raises(PlatformError):
        load(path)


DAMAGES = ["-1", "0", "1e400", "nan", "true", '""', '"x"', "[]", "[[]]", "{}", "{ value = 1 }", "1979-05-27", "9" * 400]
DAMAGES.append(chr(39) * 3)


@settings(max_examples=600)
@given(st.sampled_from(SHIPPED), st.randoms(use_true_random=False), st.integers(1, 8))
def test_damaged_files_are_told_what_is_wrong_with_them(name, rng: random.Random, changes):
    lines = path_of(name).read_text().splitlines()
    for _ in range(changes):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                del lines[at]
            case 1:
                lines.insert(other, lines[at])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at] = lines[at].partition("=")[0] + "=" + lines[other].partition("=")[2]
            case 4:
                lines[at] = f"{lines[at].partition('=')[0]}= {rng.choice(DAMAGES)}"
            case 5:
                place = rng.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:place] + rng.choice("\"'[]{}=.,\\\0x9-") + lines[at][place + rng.randrange(2) :]
    survives("\n".join(lines))


@pytest.mark.parametrize("name", platforms.names())
def test_what_ships_is_right(capsys, name):
    code, told, _ = ask(capsys, "check", path_of(name))
    assert (code, told.count("\n")) == (0, 1)
    assert ask(capsys, "check", path_of(name), "--json") == (0, "[]\n", "")


# Files to begin with: ``init`` and ``show --toml``

VALUES = {"origin": '"assumed"', "note": '"a guess"', "name": '"part"', "model": '"m"', "title": '"t"', "shell": '"s"'}
"""What a user fills in besides numbers; ``hops`` and the like are small, resources of a slice are not."""
KEY = re.compile(rf'(?m)^(\w+) = "{re.escape(BLANK)}"')


def filled(text):
    """Fill in every blank of what is not commented out."""
    numbers = {"lut": 300_000, "ff": 600_000, "bram36": 700, "uram": 300, "dsp": 2000, "clock_mhz": 200}
    values = VALUES | numbers | {"multiprocessors": 80, "machine_key": '"k"', "platform": '"u200"'}
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
    processor, *blocks, _ = re.split(r"(?=\n# (?:An? [GF]P|The nodes))", template("lab"))
    assert len(blocks) == 2
    path.write_text(filled(processor + "".join(map(uncommented, blocks))))
    code, told, _ = ask(capsys, "check", path)
    assert (code, told.split(", ")[-2:]) == (0, ["gpu", "fpga\n"]), told
    assert main(["recommend", "--platform", str(path), "--workload", "hopper_ddpg", "--json"]) == 0
    assert main(["platform", "estimate", str(path)]) == 0
    assert "cannot be modeled" not in capsys.readouterr().out


def test_every_key_of_the_template_is_right_where_it_stands():
    everything = uncommented(template("all"), 3)
    assert all("left to fill in" in problem.sentence for problem in parse(everything, "all")[1])
    assert parse(filled(everything), "all")[1] == []


def test_the_template_explains_every_key_by_what_ships():
    parts = {"device": Device, "cache": Cache, "memory": Memory, "slice": Slice, "link": Link}
    parts |= {"node": Node, "network": Network}
    left = {key.name for of in (Platform, *parts.values()) for key in keys_of(of).values() if "meaning" in key.metadata}
    known = set()
    for name, leaf in ((shipped, leaf) for shipped in SHIPPED for leaf in leaves(load(shipped))):
        if isinstance(leaf.value, Quantity):
            digits, unit = readable(leaf.field, leaf.value.value)
            known.add((leaf.field, f"{name} {digits} {unit.sign}".strip()))
    of = Platform
    for line in template().splitlines():
        assert len(line) <= 120
        if header := re.match(r"#*\[+(?:\w+\.)*(\w+)\]", line):
            of = parts[header[1]]
        key = re.match(r'#*(\w+) = ".*" +# (?:needed; )?(.*?)(?: \(((?:edge|h200|u200) .*)\))?$', line)
        if key and key[1] not in ("origin", "note"):
            field = keys_of(of)[key[1]]
            left.discard(field.name)
            assert field.metadata["meaning"] == key[2]
            assert not key[3] or {(field.name, example) for example in key[3].split(", ")} <= known
    assert not left
    assert set(re.findall('kind = "(.*)" ', template())) == set(KINDS)


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
