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
from dse.estimate import SUREST_FIRST
from dse.platforms import PlatformError, Quantity, leaves, load
from dse.platforms.files import parse, path_of, template, to_toml
from dse.platforms.quantities import ORIGINS, SOURCE_OF, UNITS, from_si, readable, to_si
from dse.platforms.schema import BLANK

SHIPPED = platforms.names()
GOOD = """\
name = "mine"
origin = "datasheet"
note = "the maker's data sheet"

[[device]]
name = "cpu"
kind = "cpu"
cores = 8
[[device.cache]]
name = "L1"
size_kib = 32
[device.memory]
size_gib = 32
bandwidth_gb_per_s = { value = 51.2, origin = "assumed", note = "two channels" }

[[device]]
name = "card"
kind = "fpga"
clock_mhz = 200
[[device.slice]]
name = "SLR0"
lut = 1000
ff = 2000
bram36 = 10
uram = 0
dsp = 20

[[link]]
from = "cpu"
to = "card"
hops = 1
alpha_us = 10
beta_gb_per_s = 8
back_alpha_us = 0
back_beta_gb_per_s = 4
"""
SECOND_DEVICE = 16  # the line of its [[device]] in GOOD


def ask(capsys, *words):
    return main(["platform", *map(str, words)]), *capsys.readouterr()


def line(words):
    """Find the number of the line of GOOD that begins with some words."""
    return next(number for number, text in enumerate(GOOD.splitlines(), 1) if text.startswith(words))


def told(text):
    """List the problems of a text, each as LINE: SENTENCE."""
    return [f"{problem.line}: {problem.sentence}" for problem in parse(text, "mine.toml")[1]]


FAULTS = (
    ("cores = 8", "coers = 8", "cores", "unknown key 'coers'; did you mean 'cores'?"),
    ("bandwidth_gb_per_s = { value = 51.2", "bandwidth_gb_per_s = { value = -1", "bandwidth", "must be above 0"),
    ("back_beta_gb_per_s = 4", "back_beta_gb_per_s = -4", "back_beta", "must be above 0, not -4"),
    ("alpha_us = 10", "alpha_us = -1", "alpha", "alpha_us must be at least 0, not -1"),
    ("size_gib", "size_tib", "size_gib", "unknown key 'size_tib'; there is size (_bytes, _kib, _mib, _gib"),
    ("cores = 8", "cores = 8\nmemory_tb = 1", "[[device.cache", "key 'memory_tb'; there is [device.memory]"),
    ('name = "card"', 'name = "cpu"', 'name = "card"', "a second device 'cpu'; give each a name of its own"),
    ('to = "card"', 'to = "crad"', "to", "'crad', which is no device; there are 'cpu', 'card'; did you mean"),
    ("cores = 8", 'cores = "8"', "cores", "cores must be a number, not text"),
    ("cores = 8", "cores = 0", "cores", "cores must be above 0, not 0"),
    ("cores = 8", "cores = nan", "cores", "cores must be finite and at most 1e+30"),
    ("cores = 8", "cores = 0x" + "f" * 400, "cores", "cores must be finite and at most 1e+30"),
    ("alpha_us = 10", "alpha_us = { value = 1, orgin = '' }", "alpha", "'orgin' of alpha_us; did you mean 'origin"),
    ("alpha_us = 10", "alpha_us = { origin = 'paper', note = 'n' }", "alpha", "alpha_us lacks its value"),
    ('"assumed", note', '"asumed", note', "bandwidth", "not 'asumed'; did you mean 'assumed'?"),
    (', note = "two channels"', "", "bandwidth", "states an origin without a note"),
    ("size_gib = 32", "size_gib = 32\nsize_mib = 1", "bandwidth", "size is given twice, in two units"),
    ('kind = "fpga"', 'kind = "gpu"', "[[device]]", "slice is for kind fpga, this device is of kind gpu"),
    ('name = "card"', 'name = "my card"', 'name = "card"', "must be of letters, digits, _ and -, not 'my card'"),
    ('"two channels"', '"\\u001b[31m"', "bandwidth", "note must be printable text"),
    ("ff = 2000", "ff = 2000\nshell = {lut = 1001, ff = 0, bram36 = 0, uram = 0, dsp = 0}", "bram36", "1 lut more"),
    ("size_gib = 32", "size_kib = 32", "size_gib", "size_kib must be at least 1 MiB, not 32 KiB; state it in"),
    ("back_alpha_us = 0\n", "", "[[link]]", "this link lacks back_alpha (_seconds, _ms, _us, _ns)"),
)


def test_each_fault_is_told_in_a_sentence_with_its_line():
    for old, new, at, words in FAULTS:
        assert GOOD.count(old) == 1, old
        found = told(GOOD.replace(old, new))
        where = [sentence for sentence in found if words in sentence]
        assert len(where) == 1, (words, found)
        expected = line(at) if at != "[[device]]" else SECOND_DEVICE
        assert where[0].startswith(f"{expected}: "), (where, expected)


def test_what_a_platform_lacks_is_told():
    slices, links = GOOD.index("[[device.slice]]"), GOOD.index("[[link]]")
    for text, fact in ((GOOD[:slices] + GOOD[links:], "[[device.slice]]"), (GOOD[:links], "[[link]]")):
        (fault,) = told(text)
        assert fault.startswith(f"{SECOND_DEVICE}: ") and fact in fault


NO_PLATFORM = (
    (b"", "[[device]]"),
    (b'name = "mine"\n', "[[device]]"),
    (b"name = \n", ":1: not TOML"),
    (b'name = "x"\nname = "y"\n', ":2: not TOML"),
    (b"a" * (10 << 20), "10,485,760 bytes, a platform file at most 1,048,576"),
    (b'name = "mi\0ne"\n', ":1: "),
    (b'name = "m"\ntitle = "\xff"\n', ":2: byte 20"),
    (b"x = " + b"[" * 100_000, "nested"),
    (b"x = " + b"{a=" * 100_000, "nested"),
    (b"x = " + b"9" * 5000, "number"),
    (b".".join([b"a"] * 100_000) + b" = 1", "16 parts"),
)


def test_what_is_no_platform_at_all_is_one_sentence(tmp_path):
    files = [(tmp_path / f"{number}.toml", words) for number, (_, words) in enumerate(NO_PLATFORM)]
    for (path, _), (content, _) in zip(files, NO_PLATFORM, strict=True):
        path.write_bytes(content)
    others = ((tmp_path, "folder"), (tmp_path / "none.toml", "No such file"), ("ege", "did you mean 'edge'?"))
    strange = (("x" * 5000, "'xxx"), ("x\0y", "'x"), ("x\0y.toml", "cannot be read"))
    for name, words in (*files, *others, *strange):
        began = time.process_time()
        with pytest.raises(PlatformError) as refusal:
            load(name)
        assert time.process_time() - began < 5
        assert words in str(refusal.value)
        assert "\n" not in str(refusal.value)


DAMAGES = [*"-1 1e400 nan [[]] {value=1} 1979-05-27 '' ''' [ ] { } = , \\ \0".split(), '"', "9" * 400]


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


@settings(max_examples=200)
@given(st.sampled_from(SHIPPED), st.randoms(use_true_random=False), st.integers(1, 8))
def test_damaged_files_are_told_what_is_wrong_with_them(name, rng: random.Random, changes):
    text = path_of(name).read_text()
    for _ in range(changes):
        place, piece = rng.randrange(len(text)), rng.choice([*DAMAGES, text[rng.randrange(len(text)) :][:30]])
        text = text[:place] + piece + text[place + rng.randrange(30) :]
    survives(text)


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


def test_what_is_left_to_fill_in_is_told_with_its_line(capsys, tmp_path):
    path = tmp_path / "lab.toml"
    assert ask(capsys, "init", "--out", path)[0] == 0
    text = path.read_text()
    assert text == template("lab")
    code, told, _ = ask(capsys, "check", path)
    blanks = [(text.count("\n", 0, key.start()) + 1, key[1]) for key in KEY.finditer(text)]
    assert (code, [key for _, key in blanks]) == (2, ["origin", "note", "cores", "size_gib"])
    for line, (at, key) in zip(told.splitlines(), blanks, strict=True):
        assert line.startswith(f"{path}:{at}: {key} ")
    assert main(["recommend", "--platform", str(path), "--workload", "cartpole_dqn"]) == 2


def test_once_the_needed_keys_are_filled_in_it_is_answered(capsys, tmp_path):
    path = tmp_path / "lab.toml"
    path.write_text(filled(template("lab")))
    assert ask(capsys, "check", path)[:2] == (0, f"{path}: fine, 2 numbers of cpu\n")
    assert main(["recommend", "--platform", str(path), "--workload", "cartpole_dqn"]) == 0
    processor, *blocks, _ = re.split(r"(?=\n# (?:An? [GF]P|The nodes))", template("lab"))
    assert len(blocks) == 2
    path.write_text(filled(processor + "".join(map(uncommented, blocks))))
    code, told, _ = ask(capsys, "check", path)
    assert (code, told.split(", ")[-2:]) == (0, ["gpu", "fpga\n"]), told
    assert main(["platform", "estimate", str(path)]) == 0
    assert "cannot be modeled" not in capsys.readouterr().out
    everything = uncommented(template("all"), 3)
    assert all("left to fill in" in problem.sentence for problem in parse(everything, "all")[1])
    assert parse(filled(everything), "all")[1] == []


def test_a_copy_has_the_same_numbers_under_its_own_name(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where there is no checkout
    path = tmp_path / "lab-2.toml"
    for name in SHIPPED:
        path.unlink(missing_ok=True)
        assert ask(capsys, "init", "--like", name, "--out", path)[0] == ask(capsys, "check", path)[0] == 0
        assert platforms.load(path) == dataclasses.replace(platforms.load(name), name="lab-2")
        assert path.read_text().count("#") > path_of(name).read_text().count("#")
        assert ask(capsys, "show", name, "--toml") == (0, path_of(name).read_text(), "")


def test_a_copy_of_a_probed_machine_does_not_pass_for_it(capsys, tmp_path):
    probed = tmp_path / "probed.toml"
    probed.write_text(GOOD.replace('name = "mine"', 'name = "mine"\nmachine_key = "0123456789"', 1))
    code, told, _ = ask(capsys, "init", "--like", probed)
    assert code == 0
    assert "machine_key" not in tomllib.loads(told)
    assert "# machine_key = " in told


MISTAKES = {
    "init --out lab.toml": "--out",
    "init --out no/lab.toml": "cannot be written",
    "init --like u20": "'u20'",
    "init --like bad.toml": "[[device]]",
    "show u200 --toml --json": "--json",
    "show none.toml --toml": "cannot be read",
}


def test_nothing_is_written_over_and_mistakes_are_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("lab.toml").write_text("kept")
    Path("bad.toml").write_text('name = "bad"')
    for words, fact in MISTAKES.items():
        code, told, complaint = ask(capsys, *words.split())
        assert (code, told, complaint.count("\n"), fact in complaint) == (2, "", 1, True), words
    assert Path("lab.toml").read_text() == "kept"


def test_each_number_of_what_ships_says_where_it_comes_from():
    assert {"u200", "h200", "edge"} <= set(SHIPPED)
    for name in SHIPPED:
        platform = load(name)
        assert parse(path_of(name).read_text(), name)[1] == []
        assert parse(to_toml(platform), "again") == (platform, [])
        numbers = [leaf.value for leaf in leaves(platform) if isinstance(leaf.value, Quantity)]
        assert (platform.name, len(numbers) >= 25) == (name, True)
        assert all(number.origin in ORIGINS and number.note for number in numbers)
    assert set(SOURCE_OF) == set(ORIGINS)
    assert set(SOURCE_OF.values()) <= set(SUREST_FIRST)


def test_units_are_converted_at_the_door():
    platform, found = parse(GOOD, "mine.toml")
    assert not found
    cpu, card = platform.devices
    assert cpu.memory.size_bytes == Quantity(value=32 * 2**30, origin="datasheet", note="the maker's data sheet")
    assert cpu.memory.bandwidth_bytes_per_s == Quantity(value=51.2e9, origin="assumed", note="two channels")
    values = cpu.caches[0].size_bytes.value, card.clock_hz.value, platform.links[0].alpha_seconds.value
    assert values == (32 * 1024, 200e6, 10e-6)


@given(st.sampled_from([(kind, unit) for kind, units in UNITS.items() for unit in units]), st.floats(1e-12, 1e12))
def test_a_number_survives_its_unit(pair, value):
    kind, unit = pair
    si = to_si(value, unit)
    assert from_si(si, unit) == pytest.approx(value, rel=1e-15)
    digits, shown = readable("x" + kind, si)
    assert to_si(float(digits), shown) == pytest.approx(si, rel=1e-5)


def test_transfers_take_alpha_and_beta_of_every_hop():
    platform, _ = parse(GOOD, "mine.toml")
    assert platform.transfer_seconds("cpu", "card", 8e9) == pytest.approx(1 + 10e-6)
    assert platform.transfer_seconds("card", "cpu", 8e9) == 2.0
    assert platform.transfer_seconds("cpu", "cpu", 8e9) == 0.0
    twice, _ = parse(GOOD.replace("hops = 1", "hops = 2"), "mine.toml")
    assert twice.transfer_seconds("card", "cpu", 8e9) == 4.0
    u200 = load("u200")
    through_the_host = u200.transfer_seconds("gpu", "cpu", 1e6) + u200.transfer_seconds("cpu", "fpga", 1e6)
    assert u200.transfer_seconds("gpu", "fpga", 1e6) == through_the_host


def test_this_machine_is_read_from_its_probe(tmp_path):
    with pytest.raises(PlatformError, match=r"has not been probed.*python -m dse platform probe"):
        load("this", tmp_path)
    key = platforms.fingerprint()["key"]
    path = tmp_path / key / "platform.toml"
    path.parent.mkdir()
    path.write_text(GOOD.replace('name = "mine"', f'name = "mine"\nmachine_key = "{key}"', 1))
    assert load("this", tmp_path).machine_key == key
    path.write_text(GOOD.replace('name = "mine"', 'name = "mine"\nmachine_key = "other"', 1))
    with pytest.raises(PlatformError, match=f"was probed on machine other, this one is {key}"):
        load("this", tmp_path)
