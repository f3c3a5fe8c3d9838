"""Answers about mappings: what to run where, why another mapping loses, and what a changed machine changes."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from ..answer import Answer, Note, Row, evidence_notes, notes_of_records
from ..estimate import Estimate, Evidence, weakest
from ..mapping.alternatives import Decides, Other
from ..mapping.answer import MappingAnswer, PartAnswer, Rate, Shortage, TransferAnswer
from ..mapping.doubt import source_of
from ..mapping.explain import Explanation
from ..mapping.question import MappingQuestion
from ..platforms.fingerprint import where
from ..platforms.reading import HERE
from ..records import Source, benchmark
from .emit import piped_command, to_run, training_command, why_not_run

UNPROFILED = {"no_profile", "no_records", "profile_differs"}
"""Kinds of notes where the workload's own profile does not answer."""
STEPS_HZ = "gradient steps/s"
UNITS = {
    "ratio": STEPS_HZ, "fewest_devices": STEPS_HZ, "training": "gradient steps/s without actors",
    "per_watt": "gradient steps/J",
}  # fmt: skip
QUESTION = ("platform", "workload", "batch", "update_interval", "objective", "epsilon", "machine", "results")
CHOSEN = ("arrangement", "depth", "environments", "learners", "sync", "period", "banks", "strategy", "devices", "watts")
RATES = ("hz", "actor_hz", "learner_hz", "bound", "distance", "configurations", "runs_here")


def mapping_answer(found: MappingAnswer | Shortage, asked: str = "") -> Answer:
    """Return what to run where as an answer; ``asked``: the command that asks so, to paste where nothing else runs."""
    if isinstance(found, Shortage):
        return _shortage_answer(found)
    others = [_other_row(found, tie, "tied") for tie in found.ties]
    if found.elsewhere and found.elsewhere not in found.ties:
        others.append(_other_row(found, found.elsewhere, "next_best"))
    others += _rates(found)
    decides = [_decides_row(end) for end in found.decides]
    decides.sort(key=lambda row: not row.says)
    notes = [Note(found.bottleneck.kind, found.bottleneck.values, "first")]
    if why := why_not_run(found):
        notes.append(Note(why.kind, why.values, "first"))
    if not any(row.says for row in decides):
        notes.append(Note("nothing_decides", level="first"))
    notes += _measure(found)
    if found.others_tied:
        notes.append(Note("more_are_tied", {"more": found.others_tied}))
    notes += [*found.notes, *found.searched, *notes_of_records(found.machine_note, found.profile_notes)]
    question = {name: getattr(found, name) for name in QUESTION}
    rows, notes = tuple(_rows(found)), [*notes, *evidence_notes(found.sources)]
    paste = tuple(_paste(found, asked))
    return Answer(question, choice_row(found), rows, tuple(others), tuple(decides), tuple(notes), paste)


def input_of_run(question: MappingQuestion, found: MappingAnswer) -> dict[str, Any]:
    """Return the part of an answer that impls.training reads by ``--mapping``, as plain values."""
    choice = {**choice_row(found).to_dict(), **to_run(question, found)}
    return {"question": {"workload": found.workload}, "choice": choice}


def choice_row(found: MappingAnswer, says: str = "train", **more: Any) -> Row:
    """Return a mapping as a row: its arrangement, the devices of its parts, and its rate."""
    used, there = found.cores
    label = {"arrangement": found.arrangement, **{part.part: part.device for part in found.parts}}
    values = {name: getattr(found, name) for name in (*CHOSEN, *RATES)}
    values |= {"cores": used, "cores_there": there, "where": group_by_device(found), "workload": found.workload}
    values |= {"batch": found.batch, "platform": _platform(found), "bottleneck": found.bottleneck.to_dict()}
    sources = [part.source for part in found.parts] + ([source_of(found.chosen)] if found.chosen else [])
    number = _estimate(found, weakest(sources))
    return Row(label, number, UNITS[found.objective], {**values, **more}, says, found.upper_bound)


def _platform(found: MappingAnswer) -> str:
    is_here = found.machine and found.platform in (HERE, found.machine)
    return f"machine {found.machine}" if is_here else found.platform


def _estimate(known: MappingAnswer | Other | Rate, source: Source) -> Estimate:
    return Estimate(known.value, known.low, known.high, Evidence("rate", source))


def group_by_device(found: MappingAnswer) -> dict[str, list[str]]:
    """Return what each device does, the learner's first; sampling and updating are the tree where both are together.

    ``learners`` and actor processes are counted.
    """
    part = {part.part: part for part in found.parts}
    names = {"learner": "learner" if found.learners == 1 else f"{found.learners} learners"}
    is_one = part["sampling"].device == part["updating"].device
    names |= {"sampling": "tree"} if is_one else {"sampling": "sampling", "updating": "updating"}
    processes = part["actors"].details.get("processes", 1)
    names |= {"storage": "records", "actors": "actor" if processes == 1 else f"{processes} actors"}
    devices_there: dict[str, list[str]] = {}
    for name, what in names.items():
        devices = [part[name].device, *(device for device, _ in part[name].also)]
        devices_there.setdefault(" and ".join(dict.fromkeys(devices)), []).append(what)
    return devices_there


def _rows(found: MappingAnswer) -> Iterator[Row]:
    yield from (_part_row(part) for part in found.parts)
    yield from map(_transfer_row, found.transfers)
    for spent in found.shares:
        yield Row({"of_a_step": spent.what}, more={"seconds": spent.seconds, "share": spent.share})
    for process in found.processes:
        yield Row({"process": process.kind, "cores": process.cores})
    for (name, device), count in found.tried.items():
        yield Row({"tried_for": name, "on": device}, more={"options": count})
    for simulated in found.simulated:
        rate = {"rate_hz": simulated.hz, "low_hz": simulated.low, "high_hz": simulated.high}
        yield Row({"simulated_with_deviation": simulated.cv}, more=rate)


def _transfer_row(sent: TransferAnswer, **label: str) -> Row:
    more = {"seconds": sent.seconds, "bytes": sent.nbytes, "waits": sent.waits}
    return Row({**label, "sent": f"{sent.source} to {sent.target}", "by": sent.engine}, more=more)


def _part_row(part: PartAnswer, **label: str) -> Row:
    more: dict[str, Any] = {"implementation": part.choice, "details": dict(part.details), "engine": part.engine}
    more |= {"charged_seconds": part.charged, "also": [f"{device} {engine}" for device, engine in part.also]}
    number = Estimate(part.seconds, part.low, part.high, Evidence(part.number, part.source))
    return Row({**label, "part": part.part, "device": part.device}, number, "s", more)


def _other_row(found: MappingAnswer, other: Other, says: str) -> Row:
    label: dict[str, Any] = {"differs": dict(other.differs), "arrangement": other.arrangement}
    more = {"pace": 1 - other.cost, "chance": other.chance, "devices": other.devices, "cores": other.cores}
    more |= {"mapping": dict(other.mapping), "is_tied": says == "tied"}
    unit = UNITS[found.objective]
    return Row(label, _estimate(other, other.source), unit, more, says, other.upper_bound)


def _rates(found: MappingAnswer) -> Iterator[Row]:
    """Yield what each other implementation, number of learners and number of environments would give."""
    unit = UNITS[found.objective]
    for rate in found.by_implementation:
        yield Row(
            {"implementation": rate.implementation}, _estimate(rate, rate.source), unit, is_bound=rate.upper_bound
        )
    for rate in found.by_learners:
        label = {"learners": rate.learners, "sync": rate.sync}
        yield Row(label, _estimate(rate, rate.source), unit, is_bound=rate.upper_bound)
    for rate in found.by_environments:
        yield Row({"environments": rate.environments}, _estimate(rate, rate.source), unit, is_bound=rate.upper_bound)


def _decides_row(end: Decides) -> Row:
    says = ("decides_if_longer" if end.factor > 1 else "decides_if_shorter") if end.differs else ""
    on = end.device if end.parts else end.number.removeprefix("link ")
    label = {"time_of": _timed_part(end), "on": on, "factor": end.factor}
    more = {
        "times": max(end.factor, 1 / end.factor),
        "value": end.value,
        "differs": dict(end.differs),
        "gain": end.gain,
    }
    return Row(label, more={**more, "evidence": end.number}, says=says)


def _timed_part(end: Decides) -> str:
    """Return the part of which a number is the time."""
    parts = ("tree",) if set(end.parts) == {"sampling", "updating"} else end.parts
    return parts[0] if len(parts) == 1 else "whole loop" if parts else "link"


def _measure(found: MappingAnswer) -> Iterator[Note]:
    """Yield which time to measure, and how; or what to run, where all is measured and something ties."""
    is_tied = bool(found.ties or found.others_tied)
    decide = found.decide if is_tied else None
    evidence = decide or found.measure_next
    if evidence is None:
        return
    rows = (_decides_row(end).values for end in found.decides if end.number == evidence.number)
    of = next((f"{row['time_of']} on {row['on']}" for row in rows), evidence.number)
    values = {"evidence": evidence.number, "of": [f"the {of}"], "how": evidence.command}
    if found.machine_note:
        yield Note("measure_here", values, "measure")
        return
    kinds = {note.kind for note in found.notes}
    if not evidence.command or "no_records" in kinds:
        yield Note("measure_there" if evidence.command else "state_time", values, "measure")
        return
    is_profiled = not found.profile_notes and not kinds & UNPROFILED
    is_timed = evidence.source != "modeled" or not evidence.command.startswith(benchmark("profile --arrangements"))
    tied = [tie.arrangement for tie in found.ties if tie.arrangement != found.arrangement]
    commands = (benchmark("profile"), *[benchmark("sweep")] * (evidence.source == "measured"))
    if not (is_profiled and is_timed and evidence.command.startswith(commands)):
        yield Note("measure_to_decide" if decide else "measure_to_be_sure", values, "measure")
    elif decide and tied and found.called and not where(found.machine):
        words = shlex.join([found.called, "--fix", f"arrangement={tied[0]}", "--seconds", "60"])
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
            values = {"budget": budget.removesuffix("_bytes"), "have": have, "need": need, "repair": number}
            kind = "and_short_of" if place else "short_of"
            notes.append(Note(f"{kind}_bytes" if budget.endswith("_bytes") else kind, values, "first"))
    notes += [Note("no_link", {"source": source, "target": target}, "first") for source, target in found.no_links]
    notes += notes_of_records(found.machine_note, found.profile_notes)
    return Answer(question | {"machine": found.machine}, None, notes=tuple(notes))


def explained_answer(found: Explanation | Shortage) -> Answer:
    """Return why the described mapping loses or ties as an answer: the choice is the best, the other is described."""
    if isinstance(found, Shortage):
        return _shortage_answer(found)
    asked, best = found.asked, found.best
    more = {"described": dict(found.described), "loss": found.loss, "gain": -found.loss, "chance": found.chance}
    more |= {"cause": found.cause, "engines": dict(found.engines), "epsilon": best.epsilon}
    rows = [_part_row(part, of=of) for of, answer in (("described", asked), ("best", best)) for part in answer.parts]
    for of, answer in (("described", asked), ("best", best)):
        rows += [_transfer_row(sent, of=of) for sent in answer.transfers]
        rows += [
            Row({"step_of": of, "what": spent.what}, more={"seconds": spent.seconds, "share": spent.share})
            for spent in answer.shares
        ]
    choice, described = choice_row(best, found.verdict, **more), choice_row(asked, "")
    said = Note("as_described", {"where": group_by_device(asked), "rate": described.number}, "first")
    notes = (said, *found.notes, *notes_of_records(best.machine_note, best.profile_notes))
    notes += tuple(evidence_notes(dict.fromkeys((*best.sources, *asked.sources))))
    question = {name: getattr(best, name) for name in QUESTION} | {"described": dict(found.described)}
    return Answer(question, choice, tuple(rows), (described,), notes=notes)


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
    compared = [(answer.parts, answer.depth, answer.value, answer.low, answer.high) for answer in (before, after)]
    if compared[0] == compared[1]:
        return "changes_nothing"
    return "changes_rate" if abs(after.value / before.value - 1) > after.epsilon else "changes_no_rate"
