"""Tests of how answers are put into words and printed: ``dse.answers.words`` and ``dse.answers.printer``."""

import functools
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from dse.__main__ import main
from dse.answer import Row, evidence_notes
from dse.answers import fpga, tune
from dse.answers.printer import UNSURE, rounded, say, write, write_cell, write_range
from dse.answers.words import SENTENCES
from dse.estimate import Assumption, Estimate, Evidence
from dse.tuning.core_split import Allocation

DEPTH = "depth --sampling-us 1000 --training-us 2000 --transfer-us 300"
MACHINE = "--platform results/d7dae63b89/platform.toml --workload cartpole_dqn"
ASKED = (
    "cores --actors 1:900,2:1700 --learners 1:400,2:700 --cores 56",
    "cores --platform u200 --workload pong_dqn --cores 64",
    DEPTH,
    "depth --platform edge --workload cartpole_ddpg --fix arrangement=pipelined --exclude fpga",
    f"adapt {MACHINE}",
    f"learners {MACHINE}",
    "learners --platform u200 --workload hopper_ddpg --most 4",
    "fpga --network hopper --batch 256",
    "fpga --network cartpole --batch 32 --capacity 1000",
)
KEYS = "question choice rows others decides notes paste"


@functools.cache
def ask(asked):
    """The answer to a question, before it is printed."""
    kept = []
    with pytest.MonkeyPatch.context() as patches:
        for module in (tune, fpga):
            patches.setattr(module, "show", lambda answer, options: kept.append(answer) or 0)
        assert main(shlex.split(asked)) == 0
    return kept[0]


@pytest.fixture(scope="module", params=ASKED)
def answer(request):
    return ask(request.param)


def flat(lines):
    return " ".join(" ".join(lines).split())


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
    lines, best = [*write(answer)], answer.choice.estimate
    assert len(lines) <= 8
    assert max(len(line) for line in lines if line.startswith(" ")) <= 120
    assert rounded(best.value, best.low, best.high) in flat(lines)
    first = [(note.kind, note.values) for note in answer.notes if note.level == "measure"]
    first = first[:1] if best.high > UNSURE * best.low else []
    assert flat(lines).startswith(flat([say(*(first or [(answer.choice.says, answer.choice.values)])[0])]))


def test_a_note_is_told_where_its_level_says(answer):
    brief, whole = (flat(write(answer, is_verbose)) for is_verbose in (False, True))
    for note in answer.notes:
        said = "warning: " * (note.level == "warning") + flat([say(note.kind, note.values)])
        assert said in whole
        assert (said in brief) == (note.level != "detail") or note.level in ("first", "measure")


def test_json_has_seven_keys_and_all_of_each_row(answer):
    assert [*json.loads(json.dumps(answer.to_dict()))] == KEYS.split()
    for row in (answer.choice, *answer.rows, *answer.others, *answer.decides):
        plain, number = row.to_dict(), row.estimate
        ends = (
            {
                "value": number.value,
                "low": number.low,
                "high": number.high,
                "unit": row.unit,
            }
            if number
            else {}
        )
        assert {**row.label, **row.more, **ends}.items() <= plain.items()
        assert plain.get("upper_bound", False) == row.is_bound


def test_a_number_has_a_range_unless_its_ends_look_equal():
    sure = Estimate(
        250.0,
        249.99,
        250.0,
        Evidence("made up", "modeled"),
    )
    row, wide = Row({}, sure, "steps/s"), Row({}, replace(sure, low=101.0, high=898.0), "steps/s")
    texts = [write_range(each.number) for each in (row, wide, replace(wide, is_bound=True))]
    assert ["100 to 900" in text for text in texts] == [False, True, True]
    assert " to " not in texts[0]
    assert [text.startswith("at most ") for text in texts] == [False, False, True]


def test_what_a_value_assumes_is_told_beside_what_it_rests_on():
    notes = evidence_notes(
        [
            Evidence(
                "law",
                "modeled",
                "a law",
                assumed=(Assumption("cpu", "clock_ghz", 3.0, "GHz"),),
            )
        ]
    )
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
