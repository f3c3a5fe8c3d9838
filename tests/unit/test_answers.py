"""Tests of how answers of every command are put into words and printed, and of questions that strangers ask.

What is asserted of a screen is that it is short, begins with what counts, and has no numbers but those of the JSON.
"""

import contextlib
import functools
import io
import json
import math
import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest

import dse
from dse.__main__ import main
from dse.answer import Note, Row, evidence_notes
from dse.answers import ask as asking
from dse.answers import fpga, tune
from dse.answers.mapping_answer import mapping_answer
from dse.answers.printer import LINES, UNSURE, rounded, say, write, write_cell, write_range
from dse.answers.words import HEADS, SENTENCES
from dse.estimate import Assumption, Estimate, Evidence
from dse.mapping.question import find_mapping
from dse.times.stated import StatedTimes
from dse.tuning.cores import Allocation
from impls.terminal import COMMAND
from tests.solver_cases import learners

DEPTH = "depth --sampling-us 1000 --training-us 2000 --transfer-us 300"
MACHINE = "--platform results/d7dae63b89/platform.toml --workload cartpole_dqn"
SYSTEM = "--platform u200 --workload hopper_ddpg"
ASKED = (
    "cores --actors 1:900,2:1700 --learners 1:400,2:700 --cores 56",
    "cores --platform u200 --workload pong_dqn --cores 64",
    DEPTH,
    "depth --platform edge --workload cartpole_ddpg --fix arrangement=pipelined --exclude fpga",
    "depth --platform u200 --workload pong_dqn --fix arrangement=pipelined --fix learner=gpu --queues 10",
    f"adapt {MACHINE}",
    f"learners {MACHINE}",
    f"learners {SYSTEM} --most 4",
    "fpga --network hopper --batch 256",
    "fpga --network cartpole --batch 32 --capacity 1000",
    "recommend --capacity 2e5 --batch 128 --platform h200",
    "recommend --platform results/8fb834d50a/platform.toml --workload hopper_ddpg --fix arrangement=serial",
    f"recommend {SYSTEM}",
    f"explain {SYSTEM} --config learner=gpu",
    f"what-if {SYSTEM} --set fpga.clock_mhz=400",
)
KEYS = "question choice rows others decides notes paste"
NUMBER = re.compile(r"(?<![\w.,-])\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
SCALES = (1.0, 1e6, 1e9, 100.0, 1e-6, 1e-9)  # of units that a text has and the JSON has not
H200 = Path(dse.__file__).parent / "platforms" / "h200.toml"
PLATFORM = """
name = "rack"
origin = "datasheet"
note = "the makers' data sheets"
device = [
  { name = "cpu0", kind = "cpu", cores = 32, memory = { size_gib = 128, bandwidth_gb_per_s = 150 } },
  { name = "cpu1", kind = "cpu", cores = 16, memory = { size_gib = 64, bandwidth_gb_per_s = 80 } },
GPUS
FPGAS
]
link = [
LINKS
]
"""
GPU = """{{ name = "{}", kind = "gpu", multiprocessors = {}, clock_mhz = 1500, peak_fp32_tops = {}, launch_us = 5,
  memory = {{ size_gib = 24, bandwidth_gb_per_s = 600 }} }},"""
FPGA = """{{ name = "{}", kind = "fpga", clock_mhz = 200, memory = {{ size_gib = 32, bandwidth_gb_per_s = 77 }},
  slice = [{{ name = "SLR0", lut = 390_000, ff = 780_000, bram36 = 720, uram = 320, dsp = 2_280 }}] }},"""
LINK = """{{ from = "cpu0", to = "{}", hops = 1, alpha_us = 5, beta_gb_per_s = 12, back_alpha_us = 5,
  back_beta_gb_per_s = 12 }},"""
TYPED = {
    "actors": {"cpu0": 20},
    "sampling": {"cpu0": 80, "cpu1": 90, "gpu0": 30, "gpu1": 35, "fpga0": 2, "fpga1": 3},
    "updating": {"cpu0": 60, "cpu1": 70, "gpu0": 20, "gpu1": 25, "fpga0": 2, "fpga1": 3},
    "storage": {"cpu0": 50, "cpu1": 55, "gpu0": 20, "gpu1": 20, "fpga0": 10, "fpga1": 12},
    "learner": {"cpu0": 4000, "cpu1": 5000, "gpu0": 690, "gpu1": 950, "fpga0": 300, "fpga1": 380},
}
BATCH = {part: "" if part == "actors" else "256" for part in TYPED}
ROWS = [f"{part}, {at}, {BATCH[part]}, {us}, quoted, 1.1" for part, by in TYPED.items() for at, us in by.items()]
TIMES = "\n".join(["part, device, batch, us, source, factor", *ROWS])


@functools.cache
def ask(asked):
    """The answer to a question, before it is printed."""
    kept = []
    with pytest.MonkeyPatch.context() as patches:
        for module in (tune, fpga, asking):
            patches.setattr(module, "show", lambda answer, options: kept.append(answer) or 0)
        assert main(shlex.split(asked)) == 0
    return kept[0]


@pytest.fixture(scope="module", params=ASKED)
def answer(request):
    return ask(request.param)


def flat(lines):
    return " ".join(" ".join(lines).split())


def rows_of(answer):
    return [row for row in (answer.choice, *answer.rows, *answer.others, *answer.decides) if row]


def check_screens(answer):
    """AssertionError unless the first screen is short, and all numbers are with --verbose."""
    short, whole = list(write(answer)), "\n".join(write(answer, is_verbose=True))
    assert len(short) <= LINES or any(note.level == "warning" for note in answer.notes)
    assert all(len(line) <= 120 or COMMAND.search(line) for line in short if line.startswith(" "))
    for row in rows_of(answer):
        if row.estimate:
            scale = 1e6 if row.unit == "s" else 1.0
            ends = row.estimate.value, row.estimate.low, row.estimate.high
            assert all(rounded(scale * end, *ends[1:]) in whole for end in ends), row


def test_each_sentence_is_said_and_each_that_is_said_exists():
    paths = Path(tune.__file__).parents[1].rglob("*.py")
    source = "".join(path.read_text() for path in paths if path.stem != "words")
    made = {"short_of_bytes", "and_short_of_bytes"}  # of the amounts that are bytes
    sides = (*get_args(get_type_hints(Allocation)["bottleneck"]), "learner", "rmm")
    assert {*SENTENCES} - made <= {f"bound_by_{side.replace(' ', '_')}" for side in sides} | {
        *re.findall(r"""["'](\w+)["']""", source)
    }
    told = re.findall(r'(?:Note\(|says=)\s*"(\w+)"(?: if [^"]* else "(\w+)")?', source)
    assert {kind for pair in told for kind in pair if kind} <= {*SENTENCES}


def test_the_first_screen_is_short_and_begins_with_what_counts(answer):
    check_screens(answer)
    lines, best = [*write(answer)], answer.choice.estimate
    first = [(note.kind, note.values) for note in answer.notes if note.level == "measure"]
    first = first[:1] if best.high > UNSURE * best.low else []
    assert flat(lines).startswith(flat([say(*(first or [(answer.choice.says, answer.choice.values)])[0])]))


def leaves(found):
    """Yield every key and value of JSON."""
    if isinstance(found, dict):
        yield from found
        found = list(found.values())
    for one in found if isinstance(found, (list, tuple)) else ():
        yield from leaves(one)
    if not isinstance(found, (dict, list, tuple)):
        yield found


def find_unknown(answer, text):
    """The numbers of a text that round from none of the JSON, of which two digits at least are known."""
    found = [*leaves(answer.to_dict())]
    words = " ".join([*map(str, found), *SENTENCES.values(), *HEADS.values()])
    numbers = np.array([float(one) for one in found if isinstance(one, (int, float))])
    known = np.abs(np.outer(np.concatenate([numbers, numbers - 1]), SCALES))

    def is_known(shown):
        value, digits = float(shown.replace(",", "")), len(re.sub("[,.]", "", shown).strip("0"))
        step = 10.0 ** (math.floor(math.log10(value)) - max(digits, 2) + 1) if value else 0.1
        return np.any(np.abs(known - value) <= step * 0.500001)

    return [shown for shown in {*NUMBER.findall(text)} - {*NUMBER.findall(words)} if not is_known(shown)]


def test_each_number_of_the_text_is_one_of_the_json(answer):
    assert find_unknown(answer, "\n".join(write(answer, is_verbose=True))) == []
    assert find_unknown(answer, "about 123,456,000 steps/s") == ["123,456,000"]


def test_the_pace_of_an_alternative_is_that_of_the_two_numbers(answer):
    for row in answer.others:
        if row.estimate and "pace" in row.more:
            one, best = (each.estimate.value ** (-1 if row.unit == "s" else 1) for each in (row, answer.choice))
            assert row.more["pace"] == pytest.approx(one / best, rel=1e-6)


def test_commands_agree_about_a_mapping():
    best, explained = (
        ask(f"{words} {SYSTEM}{more}") for words, more in (("recommend", ""), ("explain", " --config learner=gpu"))
    )
    changed = ask(f"what-if {SYSTEM} --set fpga.clock_mhz=400")
    (before,) = (row for row in changed.others if "hz" in row.more)
    for choice in (explained.choice, before):
        assert choice.estimate == best.choice.estimate
        assert choice.more["bound"] == best.choice.more["bound"]
    times, again = (
        {
            row.label["part"]: row.estimate
            for row in one.rows
            if "part" in row.label and row.label.get("of", "best") == "best"
        }
        for one in (best, explained)
    )
    assert times == again
    assert changed.choice.more["pace"] == pytest.approx(changed.choice.estimate.value / before.estimate.value)
    assert changed.choice.more["before"] == before.estimate.value


def test_a_note_is_told_where_its_level_says(answer):
    brief, whole = (flat(write(answer, is_verbose)) for is_verbose in (False, True))
    for note in answer.notes:
        said = "warning: " * (note.level == "warning") + flat([say(note.kind, note.values)])
        assert said in whole
        assert (said in brief) == (note.level != "detail") or note.level in ("first", "measure")


def test_json_has_seven_keys_and_all_of_each_row(answer):
    assert [*json.loads(json.dumps(answer.to_dict()))] == KEYS.split()
    for row in rows_of(answer):
        plain, number = row.to_dict(), row.estimate
        ends = {name: getattr(number, name) for name in ("value", "low", "high")} if number else {}
        assert {**row.label, **row.more, **ends}.items() <= plain.items()
        assert plain.get("upper_bound", False) == row.is_bound


def test_a_number_has_a_range_unless_its_ends_look_equal():
    sure = Estimate(250.0, 249.99, 250.0, Evidence("made up", "modeled"))
    row, wide = Row({}, sure, "steps/s"), Row({}, replace(sure, low=101.0, high=898.0), "steps/s")
    texts = [write_range(each.number) for each in (row, wide, replace(wide, is_bound=True))]
    assert ["100 to 900" in text for text in texts] == [False, True, True]
    assert " to " not in texts[0]
    assert [text.startswith("at most ") for text in texts] == [False, False, True]


def test_what_a_value_assumes_is_told_beside_what_it_rests_on():
    assumed = (Assumption("cpu", "clock_ghz", 3.0, "GHz"),)
    notes = evidence_notes([Evidence("law", "modeled", "a law", assumed=assumed)])
    assert ["3 GHz for cpu.clock_ghz" in say(note.kind, note.values) for note in notes] == [False, True]


def test_tables_have_every_number():
    answer = ask(DEPTH)
    lines = [line.split() for line in write(answer, is_verbose=True)]
    for row in answer.rows:
        scale, number = 1e6 if row.unit == "s" else 1, row.estimate
        ends = [rounded(scale * end, number.low, number.high) for end in (number.value, number.low, number.high)]
        words = [ends[0]] if ends[1] == ends[2] else [ends[0], f"[{ends[1]},", f"{ends[2]}]"]
        words += " ".join(write_cell(*cell) for cell in (*row.label.items(), *row.more.items())).split()
        assert any({*words} <= {*line} for line in lines), words


def test_warnings_stay_where_notes_have_no_room():
    answer = ask(f"recommend {SYSTEM}")
    more = [Note("basis", {"what": "warning", "basis": number, "source": ""}, "warning") for number in range(9)]
    more += [Note("basis", {"what": "note", "basis": number, "source": ""}, "first") for number in range(9)]
    answer = replace(answer, notes=(*answer.notes, *more))
    short, whole = "\n".join(write(answer)), "\n".join(write(answer, is_verbose=True))
    assert all(f"warning: {number}" in short for number in range(9))
    assert "note: 8" not in short and "note: 8" in whole


# Strangers


@pytest.fixture
def four(tmp_path):
    """The file of a machine like h200 with four of its GPUs."""
    head, gpu, link = re.split(r"(?=\[\[device\]\]\nname = \"gpu\"|\[\[link\]\])", H200.read_text())
    names = [f"gpu{n}" for n in range(4)]
    devices = [gpu.replace('"gpu"', f'"{name}"', 1) for name in names]
    links = [link.replace('to = "gpu"', f'to = "{name}"') for name in names]
    path = tmp_path / "four.toml"
    path.write_text("\n".join([head.replace('"h200"', '"four"'), *devices, *links]))
    return str(path)


def test_learners_that_share_a_batch_are_on_all_their_devices(four, capsys):
    """The answer and the file name every GPU that trains, not the first alone."""
    question = ["recommend", "--platform", four, "--workload", "pong_dqn", "--fix", "batch=32768"]
    assert main([*question, "--emit", "toml"]) == 0
    learner = tomllib.loads(capsys.readouterr().out)["learner"]
    assert learner["device"] == learner["together"][0]
    assert len(learner["together"]) == learner["devices"] > 1
    assert main([*question, "--json"]) == 0
    where = json.loads(capsys.readouterr().out)["choice"]["where"]
    assert where[" and ".join(learner["together"])] == ["learner"]


def test_no_tree_of_equal_devices_is_listed_twice(four, capsys):
    assert main(["recommend", "--platform", four, "--capacity", "1e6", "--batch", "256", "--json"]) == 0
    others = json.loads(capsys.readouterr().out)["others"]
    trees = [(row["device"], row["implementation"], row["fanout"], row["threads"]) for row in others]
    assert len(trees) == len(set(trees)) > 4


def test_to_decide_is_said_where_there_is_something_to_decide():
    """Without a tie it is the rate that another measurement makes surer."""
    tied = find_mapping("u200", "pong_dqn")
    alone = replace(tied, made=replace(tied.made, ties=(), others_tied=0))
    for answer, how in ((tied, tied.decide), (alone, tied.measure_next)):
        (note,) = (note for note in mapping_answer(answer).notes if note.level == "measure")
        assert note.kind == "measure_there"
        assert note.values["evidence"] == how.id
        assert note.values["how"] == how.command


def test_modes_have_any_names():
    slow, fast = (learners(("1 thread", hz, 1.1, 1.0, "T")) for hz in (10.0, 100.0))
    answer = dse.solve({"my mode": slow, "my other mode": fast})
    assert answer.answer.mode == "my other mode"


@pytest.mark.parametrize("asked", ["x", None, {"": None}, {5: learners(("1 thread", 10.0, 1.1, 1.0, "T"))}])
def test_what_is_no_problem_is_said(asked):
    with pytest.raises(dse.ProblemError, match="not "):
        dse.solve(asked)
    with pytest.raises(dse.ProblemError, match="a mapping, not None"):
        dse.Problem({}, None)


def test_inches_need_no_quotes_around_them(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text('part,device,note,us\nlearner,cpu,a 5" drive,5\nlearner,gpu,"of ""X"", p. 3",6\n')
    assert [one.note for one in StatedTimes.read(path).entries] == ['a 5" drive', 'of "X", p. 3']


@pytest.fixture
def rack(tmp_path):
    """A folder with the file of a platform of six devices."""
    text = PLATFORM.replace("GPUS", GPU.format("gpu0", 80, 30) + GPU.format("gpu1", 40, 12))
    text = text.replace("FPGAS", FPGA.format("fpga0") + FPGA.format("fpga1"))
    links = "".join(map(LINK.format, ("cpu1", "gpu0", "gpu1", "fpga0", "fpga1")))
    (tmp_path / "rack.toml").write_text(re.sub(r",\n +(?!\{)", ", ", text.replace("LINKS", links)))
    return tmp_path


def test_times_out_of_a_paper_are_what_is_answered_explained_and_changed(rack):
    """The learner of 300 us is the fastest, and nothing else takes as long: about 3,333 gradient steps/s."""

    def answered(command, table=TIMES):
        (rack / "times.csv").write_text(table)
        files = f"--platform {rack}/rack.toml --times {rack}/times.csv --results {rack} --workload hopper_ddpg"
        with contextlib.redirect_stdout(io.StringIO()) as text:
            assert main([*command.split()[:1], *files.split(), *command.split()[1:], "--json"]) == 0
        found = json.loads(text.getvalue())
        return found, {row["part"]: row for row in found["rows"] if "part" in row}

    given, parts = answered("recommend")
    assert 3333 / 1.2 < given["choice"]["value"] < 3333 * 1.2
    assert given["choice"]["bottleneck"]["devices"] == ["fpga0"]
    assert bool(given["paste"])
    for name in ("sampling", "updating", "storage", "learner"):
        seconds = TYPED[name][parts[name]["device"]] * 1e-6
        assert parts[name]["value"] == pytest.approx(seconds)
        assert parts[name]["source"] == "quoted"
    assert parts["learner"]["device"] == "fpga0"
    assert [parts["learner"]["low"], parts["learner"]["high"]] == pytest.approx([300e-6 / 1.1, 330e-6])
    explained, _ = answered("explain --config learner=gpu0")
    (takes,) = (note for note in explained["notes"] if note["kind"] == "part_takes")
    assert explained["choice"]["loss"] > 0
    assert takes["part"] == "learner"
    assert takes["device"] == "gpu0"
    assert takes["time"]["value"] == pytest.approx(690e-6)
    changed, parts = answered("recommend", TIMES.replace("690", "100"))
    assert parts["learner"]["device"] == "gpu0"
    assert changed["choice"]["value"] > 2 * given["choice"]["value"]
