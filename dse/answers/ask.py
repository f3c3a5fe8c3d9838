"""``python -m dse recommend``, ``explain`` and ``what-if``; from Python the same questions, each with an ``Answer``."""

import argparse
import contextlib
import dataclasses
import shlex
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from impls.checks import one_of
from impls.terminal import Progress, count
from impls.training import Workload

from .. import platforms, race_trees
from ..answer import Answer, Note
from ..mapping.answer import MappingAnswer
from ..mapping.question import FIX, Asked, MappingQuestion, answer_question, check_front, explain_choice
from ..mapping.question import ask as ask_mapping
from ..mapping.what_if import with_changes
from ..platforms import Platform
from ..platforms.files import HERE, RESULTS
from ..solver.law import Objective
from ..solver.problem import ProblemError
from ..times.tree_times import Question
from ..times.trees import ModeledChoice, choose
from ..tree import Recommendation, check, unusual
from .deciding import OBJECTIVE, KeptRace, raced_rows
from .emit import FORMATS, list_run_settings, mapping_tables, to_toml
from .mapping_answer import changed_answer, explained_answer, front_answer
from .nodes_answer import answer_with_nodes
from .options import ABOUT, add_command, add_question, pairs, question_of, words_of
from .printer import show, show_start
from .tree_answer import tables_of, tree_answer, tree_to_take

RECOMMEND = f"""Which mapping of a workload is the best on a platform; or which tree for N leaves and batches of B?

{ABOUT}
Without a workload, --capacity and --batch ask which implementation of a tree, which K and how many threads:
a step samples B leaves once, updates B leaves R times and sets single leaves I times. On this machine the candidates
race for a few seconds, the first time after a minute or more of compiling; what its records, or the nearest machine's,
predict to be much slower is omitted. The time in the answer is that of half a second of the winner's steps, with
arguments that no cache holds; its range holds from run to run. The user's cache, or --results FOLDER, keeps a race,
which answers the same question until the code, a version or the machine changes. --no-race and --machine answer from
the records in results/, and --platform from models of that machine's numbers, which need not be there."""
ASKED = {
    "capacity": None, "batch": None, "updates_per_sample": 1.0, "threads": None, "dtype": "float32",
    "distribution": "uniform", "unchecked": False, "inserts": 0,
}  # fmt: skip
RACE = {"seconds": None, "cold": False, "again": False, "allow_drift": False}
TREE = {**ASKED, **RACE, "no_race": False}
MAPPING: dict[str, Any] = {
    "objective": "ratio", "fix": [], "exclude": [], "free": [], "times": None, "epsilon": None, "front": False,
}  # fmt: skip
"""Defaults of the options that only one of the two questions of ``recommend`` has."""


def recommend(capacity: int, batch: int, updates_per_sample: float = 1.0, **asked: Any) -> Answer:
    """Return which tree to make for N leaves and batches of B on a machine; ``race=True`` decides on this one.

    Keywords and errors as for ``dse.race_trees.find_tree``.
    """
    return tree_answer(race_trees.find_tree(capacity, batch, updates_per_sample, **asked))


def recommend_mapping(
    platform: str | Path | Platform,
    workload: str | Path | Workload,
    objective: Objective = "ratio",
    **asked: Unpack[Asked],
) -> Answer:
    """Return what to run where; without a ``choice`` nothing fits, and notes say what there is too little of.

    Keywords as in ``MappingQuestion``; ``times`` may be a file. ``machine``: the key of the machine whose platform file
    and records "this" stands for (default: this machine, or the nearest that has both). PlatformError, WorkloadError,
    RecordError or ProblemError (a ValueError) with one sentence where there is no answer.
    """
    question = ask_mapping(platform, workload, objective, **asked)
    return answer_with_nodes(question, answer_question(question.drop_nodes()))[0]


def list_front(
    platform: str | Path | Platform,
    workload: str | Path | Workload,
    objective: Objective = "ratio",
    **asked: Unpack[Asked],
) -> Answer:
    """Return the mappings with the best trades of rate, watts and bytes over links as ``rows``, the fastest first.

    No other mapping is as good as a row in all three, and better in one. Errors as for ``recommend_mapping``, and
    ProblemError for the objective "per_watt", or a batch or environments that are free.
    """
    return _answer_front(ask_mapping(platform, workload, objective, **asked))


def explain_mapping(
    platform: str | Path | Platform,
    workload: str | Path | Workload,
    described: Mapping[str, Any],
    objective: Objective = "ratio",
    **asked: Unpack[Asked],
) -> Answer:
    """Return why a configuration loses, that it ties, or what it lacks; ``described``: its keys of ``--fix``.

    Errors as for ``recommend_mapping``, and ProblemError for a key that changes the question or is fixed too.
    """
    return explained_answer(explain_choice(ask_mapping(platform, workload, objective, **asked), described))


def add_to(commands: Any) -> None:
    """Add ``recommend``, ``explain`` and ``what-if`` to the commands of a parser."""
    summary = "which mapping for a platform and a workload, or which tree for N and B"
    ask = add_command(commands, "recommend", summary, RECOMMEND, "recommend --platform u200 --workload hopper_ddpg")
    add_question(ask, needs_platform=False)
    add = ask.add_argument
    add("--emit", choices=FORMATS, metavar="FORMAT", help=f"print the choice alone as a file: {', '.join(FORMATS)}")
    front = "all mappings that no other beats in rate, watts and bytes over links, each with the words to ask for it"
    add("--front", action="store_true", help=front)
    add("--layers", action="append_const", dest="free", const="layers", help="the same as --free layers")
    add("--capacity", type=count, metavar="N", help="leaves of a tree")
    add("--batch", type=count, metavar="B", help="elements of a call of a tree")
    add("--updates-per-sample", type=float, default=1.0, metavar="R", help="default: %(default)s")
    add("--threads", type=count, metavar="T", help="threads at most (default: the machine's cores, if allowed)")
    add("--dtype", default=TREE["dtype"], help="type of the leaves (default: %(default)s)")
    add("--distribution", default=TREE["distribution"], help="distribution of the priorities (default: %(default)s)")
    add("--unchecked", action="store_true", help="admit trees that do not check their input (validate=False)")
    add("--inserts", type=count, default=0, metavar="I", help="updates of one leaf per sample (default: %(default)s)")
    cold = "race with cold caches: a gradient step's memory is written before each step"
    add("--cold", action="store_true", help=cold)
    add("--seconds", type=float, metavar="S", help="seconds of racing at most (default: 5, with --cold 15)")
    add("--again", action="store_true", help="race anew, though a race is kept that answers")
    add("--allow-drift", action="store_true", help="admit propagate=delta or atomic, whose sums drift, as the choice")
    add("--no-race", action="store_true", help="answer from records alone")
    system = "--platform u200 --workload hopper_ddpg"
    summary, about = "why another mapping loses, ties or does not fit", "Why does another mapping lose, tie or not fit?"
    parser = add_command(commands, "explain", summary, f"{about}\n\n{ABOUT}", f"explain {system} --config learner=gpu")
    add_question(parser)
    parser.add_argument("--config", required=True, metavar="KEY=VALUE,...", help="keys of --fix, such as learner=gpu")
    summary, about = "the answer, and that of a changed machine", "What would a changed machine change in the answer?"
    example = f"what-if {system} --set cpu-fpga.beta_gb_per_s=1"
    parser = add_command(commands, "what-if", summary, f"{about}\n\n{ABOUT}", example)
    add_question(parser)
    keys = "as in platform files: gpu.memory_gb=24, cpu.cores=8, cpu-gpu.beta_gb_per_s=50; may be repeated"
    change: dict[str, Any] = {"dest": "changes", "action": "append", "required": True, "metavar": "DEVICE.KEY=VALUE"}
    parser.add_argument("--set", **change, help=keys)


def run(options: argparse.Namespace) -> int:
    """Answer; returns the exit code: 0 answered, 1 nothing fits. Raises as the questions, and where two mix."""
    return {"recommend": _recommend, "explain": _explain, "what-if": _what_if}[options.command](options)


def _recommend(options: argparse.Namespace) -> int:
    about_tree = options.capacity is not None or options.batch is not None
    if options.workload and options.platform:
        _check(options, TREE, "a question about a tree")
        return _recommend_mapping(options)
    if options.workload:
        raise ValueError("a mapping needs --platform and --workload, --platform is missing")
    if options.platform and not about_tree:
        raise ValueError(
            "a mapping needs --platform and --workload, --workload is missing; a tree on a platform needs --capacity "
            "and --batch"
        )
    if options.capacity is None or options.batch is None:
        missing = "--batch" if options.batch is None else "--capacity"
        raise ValueError(
            f"a tree needs --capacity and --batch, {missing} is missing; or ask with --platform and --workload"
        )
    _check(options, MAPPING, "a question about a mapping, with --platform and --workload")
    return _recommend_tree(options)


def _recommend_tree(options: argparse.Namespace) -> int:
    asked = {name: getattr(options, name) for name in ASKED}
    choice: Recommendation | ModeledChoice
    is_race = not (options.no_race or options.machine) and options.platform in (None, HERE)
    if not is_race:
        _check(options, RACE, "a race, which is on this machine, without --no-race")
    if is_race:
        raced = {name: getattr(options, name) for name in RACE}
        with Progress(None, "stage") as shown:
            words = "{1} candidates, raced for {0:.1f} s".format
            progress = lambda *far: shown.update(1, partial(words, *far))  # noqa: E731
            given = None if options.results is RESULTS else options.results  # RESULTS: where none was given
            choice = race_trees.find_tree(**asked, **raced, results=given, race=True, progress=progress)
    elif options.platform in (None, HERE):
        choice = race_trees.find_tree(**asked, results=options.results, machine=options.machine)
    elif options.machine:
        raise ValueError(f"--machine {options.machine} goes with --platform {HERE}, not with {options.platform}")
    elif asked.pop("unchecked"):
        raise ValueError(f"--unchecked is of measured trees: leave out --platform {options.platform}")
    elif asked.pop("inserts"):
        raise ValueError(f"--inserts is of measured trees: leave out --platform {options.platform}")
    else:
        choice = find_modeled_tree(options.platform, **asked)
    if options.emit:
        tree = tree_to_take(choice) if isinstance(choice, Recommendation) else choice.choice
        print(to_toml(tables_of(tree.configuration, choice.question), words_of(options)))
        return 0
    return show(tree_answer(choice), options)


def find_modeled_tree(
    platform: str | Path | Platform,
    capacity: int,
    batch: int,
    updates_per_sample: float = 1.0,
    threads: int | None = None,
    dtype: str = "float32",
    distribution: str = "uniform",
) -> ModeledChoice:
    """Find the tree to choose on a platform that need not be there, by models of its numbers alone.

    ``threads`` bounds the threads (default: the cores of its first processor). PlatformError where there is no such
    platform, or no tree fits it; ValueError for a question out of bounds, or priorities that no model knows.
    """
    machine = platform if isinstance(platform, Platform) else platforms.load(platform)
    processor = next((device for device in machine.devices if device.kind == "cpu"), None)
    if processor is None:
        raise platforms.PlatformError(f"platform {machine.name!r} has no processor to hand batches over; add a cpu")
    cores = int(processor.cores.value) if processor.cores else 1
    question = Question(capacity, batch, updates_per_sample, cores if threads is None else threads, dtype, distribution)
    check(question)
    one_of("distribution", distribution, ("uniform",))
    answered = choose(machine, question)
    allowed = {"threads": threads, "platform": machine.name, "cores": cores}
    more = [Note("more_threads_than_cores", allowed)] * (question.threads > cores)
    return dataclasses.replace(answered, notes=(*unusual(question), *more, *answered.notes))


def _check(options: argparse.Namespace, defaults: Mapping[str, Any], question: str) -> None:
    """Raise ValueError where an option of the other question is given; nothing is passed over in silence."""
    for name, default in defaults.items():
        value = getattr(options, name)
        if value != default:
            hint = f"; write --fix {name}={value}" if name in FIX else ""
            raise ValueError(f"--{name.replace('_', '-')} is of {question}{hint}")


def _answer_front(question: MappingQuestion) -> Answer:
    check_front(question)
    return front_answer(answer_question(question))


def _show_front(options: argparse.Namespace) -> int:
    if options.emit:
        raise ValueError(f"--emit {options.emit} writes one choice, and --front lists several; leave one of them out")
    answer = _answer_front(question_of(options))
    if options.json or options.verbose or not answer.choice:
        return show(answer, options)
    show_start(answer, as_json=False)
    return 0


def _recommend_mapping(options: argparse.Namespace) -> int:
    if options.front:
        return _show_front(options)
    question, race = question_of(options), None
    of_nodes = question  # a kept race fixes the arrangement of one machine
    is_here = options.platform == HERE and options.objective == OBJECTIVE
    if is_here and not options.machine:
        race = KeptRace.of_question(question).race()
    if race:
        with contextlib.suppress(ProblemError):  # no record predicts what has won
            raced = dataclasses.replace(question, fix={**question.fix, **race["rows"][0]["fix"]})
            question = raced if isinstance(answer_question(raced), MappingAnswer) else question
    found, asked = answer_question(question.drop_nodes()), words_of(options)
    answer, plans = answer_with_nodes(of_nodes, found, asked)
    is_over_nodes = plans is not None and plans.is_taken
    if options.emit and is_over_nodes:
        raise ValueError(
            f"--emit {options.emit} writes a mapping of one machine, and this answer trains over nodes: paste its line "
            "without --emit, or fix the arrangement, such as --fix arrangement=apart"
        )
    if options.emit and isinstance(found, MappingAnswer):
        print(to_toml(mapping_tables(found, question.workload.replay.capacity), asked))
        return 0
    if isinstance(found, MappingAnswer) and answer.choice and not is_over_nodes:
        more = {**answer.choice.more, **list_run_settings(question, found)}
        decide = shlex.join(["python", "-m", "dse", "run", options.workload])
        notes = [Note("predicted_alone", {"how": decide}, "measure")] if is_here and not race else []
        notes += [Note("raced_runs", {"seconds": race["seconds"], "ending": race["ending"]}, "first")] if race else []
        rows, choice = (*raced_rows(race), *answer.rows), dataclasses.replace(answer.choice, more=more)
        answer = dataclasses.replace(answer, choice=choice, rows=rows, notes=(*answer.notes, *notes))
    if not options.emit:
        return show(answer, options)
    with contextlib.redirect_stdout(sys.stderr):  # a file holds no shortage
        return show(answer, options)


def _explain(options: argparse.Namespace) -> int:
    described = pairs(options.config.split(","), "--config")
    return show(explained_answer(explain_choice(question_of(options), described)), options)


def _what_if(options: argparse.Namespace) -> int:
    before = question_of(options)
    changes = {}
    for key, value in pairs(options.changes, "--set").items():
        try:
            changes[key] = float(value.replace("_", ""))
        except ValueError:
            raise ValueError(f"--set {key}={value}: a number is wanted, in the unit that the key ends in") from None
    after = dataclasses.replace(before, platform=with_changes(before.platform, changes))
    return show(changed_answer(answer_question(before), answer_question(after), options.changes), options)
