"""``python -m dse validate``: how far off answers about trees were; arguments in, text or JSON out."""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from impls.terminal import count, plural

from .. import machines
from ..recommend import QUESTIONS_FILE
from ..records import how_to_measure
from ..times.tree_times import Table
from ..validation.trees import WITHIN, Held, held, questions, unmeasured, write_answers
from .text import add_command

ABOUT = """How far off are answers about trees? Three commands tell:

  python -m dse validate --draw 40 --seed S     sample questions by a seed, and write their answers down
  python -m benchmarks answers FILE             measure the recommended configurations (minutes)
  python -m dse validate FILE                   compare

N is sampled from 1,000 to 50 million and B from 1 to 10,000, log-uniformly, with B = 1, 3 and 31 among them. A figure
that says how good the answers are comes from a seed that was not used before, and from code that was not changed
after it."""


def add_to(commands: Any) -> None:
    """Add ``validate`` to the commands of a parser."""
    summary = "how far off answers about trees were, when measured"
    parser = add_command(commands, "validate", summary, ABOUT, "validate --draw 40 --seed 7")
    add = parser.add_argument
    add("file", nargs="?", type=Path, help="of answers, as --draw wrote it")
    add("--draw", type=count, metavar="COUNT", help="sample so many questions and answer them")
    add("--seed", type=int, help="of the questions")
    add("--machine", metavar="KEY", help="whose records answer (default: this machine's, or the nearest)")
    add("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")
    add("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Sample questions, or compare; returns the exit code 0. RecordError or ValueError where that cannot be."""
    if options.draw is not None:
        return _draw(options)
    if options.file is None:
        raise ValueError("name a file of answers, or draw questions with --draw 40 --seed S")
    checked, missing = held(options.file), unmeasured(options.file)
    print(json.dumps(summary(checked) | {"not_measured": missing}) if options.json else _text(checked))
    if missing and not options.json:
        print(f"{plural(missing, 'answer')} of the file not measured, and in none of these counts")
    return 0


def _draw(options: argparse.Namespace) -> int:
    if options.seed is None or options.draw < 1:
        raise ValueError("--draw takes a number of questions from 1 up, and a --seed that was not used before")
    records, note = machines.read(options.results, options.machine, machines.SWEEP, skip=(QUESTIONS_FILE,))
    table = Table(records)
    path = options.results / table.machine_key / f"answers-{options.seed}.json"
    asked = questions(options.draw, options.seed, int(table.machine.get("cores", 1)))
    write_answers(table, asked, options.seed, path)
    if options.json:
        print(json.dumps({"file": str(path), "answers": options.draw, "machine_note": note}))
    else:
        print(*([note, ""] if note else []), f"{options.draw} answers: {path}", sep="\n")
        print(f"now {how_to_measure(f'answers {path}')}")
    return 0


def summary(checked: Sequence[Held]) -> dict[str, Any]:
    """Give plain values: each answer, and how many keep to the factors, inside and outside of what was measured."""
    sides = {}
    for inside, factor in WITHIN.items():
        here = [one for one in checked if one.inside == inside]
        sides["inside" if inside else "outside"] = {
            "answers": len(here),
            "factor": factor,
            "within": sum(one.factor <= factor for one in here),
            "worst_factor": max((one.factor for one in here), default=None),
            "covered_by_interval": sum(one.covered for one in here),
        }
    return {"answers": [_row(one) for one in checked], **sides}


def _row(one: Held) -> dict[str, Any]:
    plain = one.choice.to_dict()
    answered = {"configuration": plain["configuration"], "told_seconds": plain["seconds"]}
    ends = {name: plain[name] for name in ("low_seconds", "high_seconds")}
    more = {name: getattr(one, name) for name in ("inside", "measured_seconds", "factor", "covered")}
    return {"question": dataclasses.asdict(one.question), **answered, **ends, **more}


def _text(checked: Sequence[Held]) -> str:
    micro = 1e6
    lines = [f"{'N':>12} {'B':>7} {'R':>5}  {'answer us':>12} {'measured us':>12} {'factor':>7}  configuration"]
    for one in sorted(checked, key=lambda one: one.question.capacity):
        question = one.question
        lines.append(
            f"{question.capacity:12,} {question.batch:7,} {question.updates_per_sample:5g}  "
            f"{one.choice.seconds * micro:12,.2f} {one.measured_seconds * micro:12,.2f} {one.factor:7.2f}  "
            f"{one.choice.configuration}{'' if one.inside else ', outside of what was measured'}"
        )
    sides = summary(checked)
    for where in ("inside", "outside"):
        side = sides[where]
        if side["answers"]:
            lines.append(
                f"{where} of what was measured: {side['within']} of {side['answers']} answers within a factor of "
                f"{side['factor']}, the worst off by {side['worst_factor']:.2f}; {side['covered_by_interval']} "
                "measured within their 95 % interval"
            )
    return "\n".join(lines)
