"""Answers about trees: which tree, K and threads, from records, from a race here, or from a platform's models."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..answer import Answer, Note, Row, notes_of_records
from ..estimate import Estimate, Evidence
from ..race_trees import configuration_of
from ..times.cost_model import DEFAULT
from ..times.tree_times import Configuration, Question, TreeTime
from ..times.trees import ModeledChoice, PlatformTree
from ..tree import Recommendation
from .emit import Tables, make_line

KINDS = {"equal": "equal_tree", "undecided": "undecided_tree", "slower": "next_tree"}
"""The sentence that tells a tree of a race, by its status."""


def tree_answer(found: Recommendation | ModeledChoice) -> Answer:
    """Return which tree to make as an answer."""
    if isinstance(found, ModeledChoice):
        return _modeled_answer(found)
    return _raced_answer(found, found.race) if found.race else _recorded_answer(found)


def tree_to_take(found: Recommendation) -> TreeTime:
    """Return what to take: the default configuration where it is tied with the choice, else the choice.

    What a race chose is that already.
    """
    if found.race:
        return found.choice
    default = Configuration(found.choice.configuration.contestant, DEFAULT, 1)
    return next((tie for tie in found.ties if tie.configuration == default), found.choice)


def make_of(tree: Configuration, question: Question) -> str:
    """Return the call that makes a tree."""
    shape = tree.contestant, question.capacity, tree.fanout, tree.threads, question.dtype
    return make_line(*shape, dict(tree.options))


def tables_of(tree: Configuration, question: Question) -> Tables:
    """Return a tree as the table of a file."""
    shape = {"implementation": tree.contestant, "capacity": question.capacity, "fanout": tree.fanout}
    more = {"threads": tree.threads, "dtype": question.dtype, "options": dict(tree.options)}
    return {"tree": shape | more}


def tree_row(tree: Configuration, time: Estimate, question: Question, says: str = "", **more: Any) -> Row:
    """Return a tree as a row: its configuration, and the time of a step."""
    label, of_element = label_of(tree), {"each_seconds": time.value / question.batch}
    return Row(label, time, "s", {**of_element, **more, "tree": label}, says)


def label_of(tree: Configuration) -> dict[str, Any]:
    """Return what a tree is made with, by name."""
    shape = {"implementation": tree.contestant, "fanout": tree.fanout, "threads": tree.threads}
    return {**shape, "options": dict(tree.options)}


def _question(found: Recommendation | ModeledChoice, where: Mapping[str, Any]) -> dict[str, Any]:
    return asdict(found.question) | dict(where)


def _time_row(found: Recommendation, time: TreeTime, says: str) -> Row:
    more = {"pace": tree_to_take(found).seconds / time.seconds, "distance": time.distance, "own_sigma": time.own_sigma}
    return tree_row(time.configuration, time.time, found.question, says, **more)


def _recorded_answer(found: Recommendation) -> Answer:
    tree, question = tree_to_take(found), found.question
    is_default = bool(found.ties) and tree.configuration == Configuration(tree.configuration.contestant, DEFAULT, 1)
    others = [_time_row(found, tie, "tied_tree") for tie in (found.choice, *found.ties) if tie is not tree]
    if found.runner_up and tree is found.choice and found.runner_up not in found.ties:
        others.append(_time_row(found, found.runner_up, "next_tree"))
    drift = found.drift
    known = {"cells": len(found.rests_on), "noise_share": found.noise_floor, "machine": found.machine}
    known |= {"common_share": drift.common, "own_share": drift.own, "runs": drift.runs}
    notes = [Note("tree_steps", _question(found, {}), "first"), Note("race_to_decide", level="first")]
    notes += [*found.notes, Note("rests_on_cells", known)]
    label, more = ("op", "capacity", "batch"), ("median_seconds", "source", "commit", "utc", "status")
    rows = [
        Row({key: cell[key] for key in label}, more={key: cell.get(key) for key in more}) for cell in found.rests_on
    ]
    return Answer(
        _question(found, {"machine": found.machine, "results": found.results}),
        _time_row(found, tree, "default_tree" if is_default else "use_tree"),
        tuple(rows),
        tuple(others),
        notes=(*notes, *notes_of_records(found.machine_note, ())),
        paste=(make_of(tree.configuration, question),),
    )


def _raced_answer(found: Recommendation, race: Mapping[str, Any]) -> Answer:
    question, choice = found.question, found.choice
    rows = [row for row in race["rows"] if configuration_of(row) != choice.configuration]
    others = [_raced_row(found, row) for row in rows]
    others.sort(key=lambda row: [*KINDS.values()].index(row.says) if row.says in KINDS.values() else len(KINDS))
    terms = {
        "caches": "cold" if race["asked"]["cold"] else "warm",
        "zone_share": race["zone"],
        "seconds": race["seconds"],
    }
    terms |= {"raced": race["candidates"] - race["excluded"], "excluded": race["excluded"], "prior": race["prior"]}
    terms |= {"utc": race["utc"], "ending": race["ending"], "results": found.results}
    notes = [Note("tree_steps", _question(found, {}), "first"), Note("raced_here", terms, "first")]
    if any(row.says == "undecided_tree" for row in others):
        notes.append(Note("race_undecided", terms, "first"))
    if faster := race.get("faster"):
        gain = {"pace": race["gain"][0], "tree": label_of(configuration_of(faster))}
        notes.append(Note("faster_but_drifts", gain, "first"))
    notes.append(Note("race_is_kept" if found.results else "race_is_not_kept", terms))
    question_and_race = _question(found, {"machine": found.machine, "results": found.results, "race": race["asked"]})
    return Answer(
        question_and_race,
        tree_row(choice.configuration, choice.time, question, "use_tree", race=dict(race)),
        (),
        tuple(others),
        notes=(*notes, *found.notes),
        paste=(make_of(choice.configuration, question),),
    )


def _raced_row(found: Recommendation, row: Mapping[str, Any]) -> Row:
    """Return a tree of a race: its time is the winner's times the ratio of the two, whose bounds may be unknown."""
    tree, first = configuration_of(row), found.choice.seconds
    ratio, low, high = row["ratio"]
    middle = first * (ratio or row["seconds"][0] / first)
    ends = min(first * low, middle) if low else middle, max(first * high, middle) if high else middle
    more = {"pace": first / middle, "status": row["status"]}
    time = Estimate(middle, *ends, Evidence(f"race({tree})", "measured"))
    return tree_row(tree, time, found.question, KINDS.get(row["status"], ""), **more)


def _modeled_answer(found: ModeledChoice) -> Answer:
    question, choice = found.question, found.choice

    def row(tree: PlatformTree, says: str) -> Row:
        more = {"device": tree.device, "transfer_seconds": tree.transfer_seconds, "platform": found.platform}
        more["pace"] = choice.seconds / tree.seconds
        return tree_row(tree.configuration, tree.time, question, says, **more)

    others = [] if found.best is choice else [row(found.best, "fastest_modeled_tree")]
    others += [row(tree, "tied_tree") for tree in found.ties if tree is not found.best]
    others += [row(tree, "best_on_device") for tree in found.elsewhere if tree not in (found.best, *found.ties)]
    notes = [
        Note("tree_steps", _question(found, {}), "first"),
        Note("tree_is_modeled", {"platform": found.platform}, "first"),
    ]
    notes += [*found.notes, Note("modeled_by", {"told": choice.time.rests_on.description})]
    asked = _question(found, {"platform": found.platform})
    paste = (make_of(choice.configuration, question),)
    return Answer(asked, row(choice, "use_tree_on"), (), tuple(others), notes=tuple(notes), paste=paste)
