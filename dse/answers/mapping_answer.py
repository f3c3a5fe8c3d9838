"""Answers about mappings: what to run where, why another mapping loses, and what a changed machine changes."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..answer import Answer, Note, Row, evidence_notes, notes_of_records
from ..estimate import SUREST_FIRST
from ..mapping.answer import MappingAnswer, Shortage, split_unit
from ..mapping.nodes import OverNodes
from ..mapping.question import WHERE, MappingQuestion
from ..mapping.why_not import Explanation
from ..platforms.fingerprint import where
from ..records import benchmark
from ..solver.problem import TREE
from .emit import list_run_settings, piped_command, training_command, why_not_run

UNPROFILED = {"no_profile", "no_records", "profile_differs"}
"""Kinds of notes where the workload's own profile does not answer."""
TIMED_BY = {"profile": SUREST_FIRST, "arrangements": SUREST_FIRST[:-1], "sweep": ("measured",)}
"""Sources of a time that the command of a topic makes no surer, once it has run."""


def mapping_answer(found: MappingAnswer | Shortage, asked: str = "") -> Answer:
    """Return what to run where as an answer; ``asked``: the command that asks so, to paste where nothing else runs."""
    if isinstance(found, Shortage):
        return _shortage_answer(found)
    decides = sorted(found.decides, key=lambda row: not row.says)
    notes = [*found.describe_layers(), replace(found.bottleneck, level="first")]
    notes += [replace(why, level="warning")] if (why := why_not_run(found)) else []
    notes += [] if any(row.says for row in decides) else [Note("nothing_decides", level="first")]
    notes += _measure(found)
    notes += [Note("more_are_tied", {"more": found.made.others_tied})] if found.made.others_tied else []
    notes += [*found.notes, *found.built.searched, *_notes_of_records(found), *evidence_notes(found.sources)]
    tables = found.rows, found.others, tuple(decides)
    return Answer(found.question, found.choice, *tables, tuple(notes), tuple(_paste(found, asked)))


def front_answer(found: MappingAnswer | Shortage) -> Answer:
    """Return the best trades of rate, watts and bytes over links as rows of an answer, the fastest first."""
    if isinstance(found, Shortage):
        return _shortage_answer(found)
    front, unknown = found.front
    rows = [_front_row(answer, found, not unknown) for answer in front]
    of_watts = Note("front_has_no_watts", {"devices": unknown}) if unknown else Note("watts_are_limits")
    is_off = not any(row.more["is_answer"] for row in rows)
    first = [of_watts, *[Note("answer_is_off_front", {"rate": found.choice.number})] * is_off, Note("ask_for_row")]
    notes = [*(replace(note, level="first") for note in first), *found.asked_notes, *_notes_of_records(found)]
    notes += [note for note in found.notes if note.kind in UNPROFILED]
    notes += evidence_notes(dict.fromkeys(source for answer in front for source in answer.sources))
    choice = choice_row(found, "front_of_rate" if unknown else "front", bytes=found.chosen.outcome.bytes_moved)
    return Answer(found.question, choice, tuple(rows), notes=tuple(notes))


def _front_row(found: MappingAnswer, answer: MappingAnswer, has_watts: bool) -> Row:
    """Return the row of a mapping of the front, compared with the answer."""
    choice, parts = found.choice, found.built.parts
    trade, own = found.chosen.trade(has_watts), answer.chosen.trade(has_watts)
    fix = {key: choice.label[key] for key in ("arrangement", *WHERE) if key not in parts.constraints}
    if "layers" in answer.details("learner"):
        del fix["learner"]  # which would be a learner of one device
    kind = parts.platform.device(choice.label["learner"]).kind
    alike = [device.name for device in parts.platform.devices if device.kind == kind != "cpu"]
    words = [f"--fix {key}={value}" for key, value in fix.items()]
    # A learner on several devices is told from one on fewer by those that it may not use.
    words += [f"--exclude {name}" for name in alike if name not in choice.more["devices"]]
    label = {
        "arrangement": choice.label["arrangement"],
        "learner": " and ".join(device for device, _ in found.chosen.configuration.learner.where),
        "tree": " and ".join(dict.fromkeys(choice.label[part] for part in TREE)),
        "storage": choice.label["storage"],
    }
    more = {
        "upper_bound": choice.is_bound,
        "watts": choice.more["watts"],
        "bytes": found.chosen.outcome.bytes_moved,
        "is_answer": trade == own,
        "beats_answer": trade != own and all(here >= there for here, there in zip(trade, own, strict=True)),
        "fix": fix,
        "ask_by": " ".join([*words, "--epsilon 0"]),
    }
    return replace(choice, label=label, more=more, says="")


def _notes_of_records(found: MappingAnswer | Shortage) -> tuple[Note, ...]:
    return notes_of_records(found.machine_note, found.profile_notes)


def input_of_run(question: MappingQuestion, found: MappingAnswer) -> dict[str, Any]:
    """Return the part of an answer that impls.training reads by ``--mapping``, as plain values."""
    choice = {**found.choice.to_dict(), **list_run_settings(question, found)}
    return {"question": {"workload": found.workload}, "choice": choice}


def choice_row(found: MappingAnswer | OverNodes, says: str | None = None, **more: Any) -> Row:
    """Return a choice as a row that says more, or something else."""
    return replace(found.choice, says=found.choice.says if says is None else says, more={**found.choice.more, **more})


def _measure(found: MappingAnswer) -> Iterator[Note]:
    """Yield which time to measure, and how; or what to run, where all is measured and something ties."""
    decide = found.decide if found.made.ties or found.made.others_tied else None
    evidence = decide or found.measure_next
    if evidence is None:
        return
    values = (row.values for row in found.decides if row.more["evidence"] == evidence.id)
    of = next((f"{row['time_of']} on {row['on']}" for row in values), evidence.id)
    named = {"evidence": evidence.id, "of": [f"the {of}"], "how": evidence.command}
    kinds = {note.kind for note in found.notes}
    if found.machine_note:
        command = benchmark(f"profile --workload {found.built.parts.workload_word}")
        yield Note("measure_here", {**named, "how": command}, "measure")
        return
    if not evidence.command or "no_records" in kinds:
        yield Note("measure_there" if evidence.command else "state_time", named, "measure")
        return
    is_profiled = not found.profile_notes and not kinds & UNPROFILED
    is_timed = evidence.source in TIMED_BY.get(evidence.topic, ())
    tied = [
        arrangement
        for row in found.others
        if row.says == "tied" and (arrangement := row.label["arrangement"]) != found.arrangement
    ]
    if not (is_profiled and is_timed):
        yield Note("measure_to_decide" if decide else "measure_to_be_sure", named, "measure")
    elif decide and tied and found.workload_argument and not where(found.machine):
        words = shlex.join([found.workload_argument, "--fix", f"arrangement={tied[0]}", "--seconds", "60"])
        yield Note("run_what_ties", {"how": f"python -m dse run {words}"}, "measure")


def _paste(found: MappingAnswer, asked: str) -> Iterator[str]:
    """Yield the command that runs the mapping, else the one that keeps it."""
    if command := training_command(found) or piped_command(found, asked):
        yield command
    elif asked:
        yield f"{asked} --emit toml > mapping.toml"


def _shortage_answer(found: Shortage) -> Answer:
    """Return what there is too little of: each note names what would be enough by itself."""
    question = {"platform": found.platform, "workload": found.workload, "results": found.results}
    notes = [Note("does_not_fit", question, "first")]
    notes += [Note("repairs", level="first")] if len(found.repairs) + len(found.no_links) > 1 else []
    for number, repair in enumerate(found.repairs, 1):
        for place, (budget, (have, need)) in enumerate(repair.items()):
            name, is_bytes = split_unit(budget)
            kind = "and_short_of" if place else "short_of"
            values = {"budget": name, "have": have, "need": need, "repair": number}
            notes.append(Note(f"{kind}_bytes" if is_bytes else kind, values, "first"))
    notes += [Note("no_link", {"source": source, "target": target}, "first") for source, target in found.no_links]
    notes += _notes_of_records(found)
    return Answer(question | {"machine": found.machine}, None, notes=tuple(notes))


def explained_answer(found: Explanation | Shortage) -> Answer:
    """Return why the described mapping loses or ties as an answer: the choice is the best, the other is described."""
    if isinstance(found, Shortage):
        return _shortage_answer(found)
    sides = {"described": found.asked, "best": found.best}
    rows = [_label(row, of=of) for of, answer in sides.items() for row in answer.parts]
    for of, answer in sides.items():
        rows += [_label(row, of=of) for row in answer.transfers]
        rows += [Row({"step_of": of, "what": row.label["of_a_step"]}, more=row.more) for row in answer.shares]
    more = {"described": dict(found.described), "loss": found.loss, "gain": -found.loss, "chance": found.chance}
    more |= {"cause": found.cause, "engines": dict(found.engines), "epsilon": found.best.question["epsilon"]}
    choice, described = choice_row(found.best, found.verdict, **more), choice_row(found.asked, "")
    described_as = {"where": described.more["where"], "rate": described.number}
    sources = evidence_notes(dict.fromkeys((*found.best.sources, *found.asked.sources)))
    notes = Note("as_described", described_as, "first"), *found.notes, *_notes_of_records(found.best), *sources
    question = found.best.question | {"described": dict(found.described)}
    return Answer(question, choice, tuple(rows), (described,), notes=notes)


def _label(row: Row, **label: str) -> Row:
    return replace(row, label={**label, **row.label})


def changed_answer(before: MappingAnswer | Shortage, after: MappingAnswer | Shortage, changes: Sequence[str]) -> Answer:
    """Return what a changed machine changes as an answer: the choice after it, and as another the choice before it."""
    answer = mapping_answer(after)
    question = {**answer.question, "changes": list(changes)}
    if isinstance(after, Shortage):
        return Answer(question, None, notes=answer.notes)
    others = [] if isinstance(before, Shortage) else [choice_row(before, "")]
    base = None if isinstance(before, Shortage) else before.value
    more = {"changes": list(changes), "before": base, "pace": after.value / base if base else None}
    choice = choice_row(after, _verdict(before, after), **more)
    notes = [note for note in answer.notes if note.level != "measure"]
    if choice.says == "changes_nothing" and any(source.source == "measured" for source in after.sources):
        notes.append(Note("records_decide", level="first"))
    return Answer(question, choice, answer.rows, (*others, *answer.others), answer.decides, tuple(notes))


def _verdict(before: MappingAnswer | Shortage, after: MappingAnswer) -> str:
    if isinstance(before, Shortage):
        return "fits_now"
    rates = [(found.value, found.low, found.high, found.choice.more["depth"]) for found in (before, after)]
    parts = [[row.to_dict() for row in found.parts] for found in (before, after)]
    if rates[0] == rates[1] and parts[0] == parts[1]:
        return "changes_nothing"
    is_equal = abs(after.value / before.value - 1) <= after.made.found.epsilon
    return "changes_no_rate" if is_equal else "changes_rate"
