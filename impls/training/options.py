"""The command line of training: the options that it takes, and what they make of a workload.

With ``--mapping`` the answer that ``python -m dse recommend --json`` wrote gives options of the run that it recommends.
"""

import argparse
import dataclasses
import json
import math
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checks import near, short
from ..terminal import Parser, count
from .algorithm import ALGORITHMS, TIMED
from .arrangement import BANKED, COPIES, DYNA, REPLAY, Arrangement, check_needs, flag_of
from .errors import TrainingError
from .learners import SPLIT, unsuited
from .settings import LENGTH, OPTIONS, RUN, Setting, check_ranges, faults_of, list_fields, names
from .workload import Workload

COMMANDS = ("train", "list", "keys", "show", "init")
ANSWERED = (
    *("arrangement", "actors", "environments", "batch", "presampled", "fanout", "learners", "learner", "policy"),
    *("contestant", "threads", "device", "compile", "split"),
)
"""Options that the answer of ``--mapping`` decides."""
_ADAPTING: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("actors", "batch", "mapping"), (None,)),
    "arrangement": (None, "apart"),
    "learners": (None, 1),
    "transport": (None, "shared"),
    "contestant": ("numba",),
    "compile": (False,),
}
"""Options that ``--adapt`` decides, and the values that they may have next to it."""
_OF_FOLDER = ("out", "resume", "parent", "show")
_READERS = {"a whole number": count, "a number": float}
Values = dict[tuple[str, str], Any]
"""Values of a workload, by table and key; those of no table have "" as table."""


@dataclass(frozen=True)
class RunSetup:
    """The workload, the processes and the implementations of a run."""

    workload: Workload
    arrangement: Arrangement
    contestant: str
    learner: str | None
    policy: str | None
    device: str = "cpu"
    compiled: bool = False


def setup_of(workload: Workload, options: argparse.Namespace, values: Values | None = None) -> RunSetup:
    """Return the setup of a run by its options, of a workload with other ``values``.

    TrainingError for an option out of range, one that would change nothing, or options that do not go together.
    """
    if options.adapt:
        _check_adapting(workload, options)
        options = with_pair(options)
    learner = _learner(options)
    changed = with_options(workload, options, values)
    arrangement = _arrangement(changed, options)
    if learner == SPLIT and arrangement.name == COPIES:
        raise TrainingError(
            unsuited(SPLIT, changed)
            or "--split has the two networks of one learner in two processes, and each of copies is a learner in one; "
            "leave it out, or choose --arrangement serial"
        )
    by = options.contestant, learner, options.policy
    return RunSetup(changed, arrangement, *by, options.device, options.compile)


def _learner(options: argparse.Namespace) -> str | None:
    if named := next((name for name in ("learner", "policy") if getattr(options, name) == SPLIT), None):
        raise TrainingError(f"--{named} {SPLIT} is no implementation; leave it out, or give --split for torch's in two")
    if options.split and options.learner is not None:
        raise TrainingError(f"--split and --learner {options.learner} both choose the learner; leave one of them out")
    return SPLIT if options.split else options.learner


def _check_adapting(workload: Workload, options: argparse.Namespace) -> None:
    if not workload.traits.is_timed:
        raise TrainingError(
            f"--adapt changes actors apart from a learner and the batch of a replay, by which {workload.algorithm} is "
            f"not trained; leave it out, or train one of {', '.join(TIMED)}"
        )
    for name, allowed in _ADAPTING.items():
        if (value := getattr(options, name)) not in allowed:
            raise TrainingError(
                f"--{name}{'' if value is True else f' {value}'} does not go with --adapt, which searches actors and "
                "batch, apart from one learner, with the shared transport and the tree numba; leave one of the two out"
            )


def with_pair(options: argparse.Namespace, actors: int | None = None, batch: int | None = None) -> argparse.Namespace:
    """The options of a run that has these actors apart, and this batch, without a search."""
    pair = {"adapt": False, "arrangement": "apart", "actors": actors, "batch": batch}
    return argparse.Namespace(**vars(options) | pair)


def command_of(options: argparse.Namespace) -> str:
    """The command that begins a run by these options, in the folder that it has by default."""
    words = ["python", "-m", "impls.training", "train", options.workload]
    for name, value in list_given(options).items():
        if name not in _OF_FOLDER:
            words += [flag_of(name), *([] if value is True else [str(value)])]
    return shlex.join(words)


def list_given(options: argparse.Namespace) -> dict[str, Any]:
    """The options with another value than where they are not given."""
    values = {name: getattr(options, name) for name in OPTIONS}
    return {name: value for name, value in values.items() if value != OPTIONS[name].default}


def _every_of(text: str) -> int:
    """Gradient steps k of a text; 0 for the word episode."""
    if text != "episode" and count(text) == 0:
        raise argparse.ArgumentTypeError("must be at least 1, or the word episode, not 0")
    return 0 if text == "episode" else count(text)


def _arrangement(workload: Workload, options: argparse.Namespace) -> Arrangement:
    """The arrangement of options; banks bring their strategy, Dyna-Q brings copies, a model worker and the replay that
    it shares.
    """
    by_field = {field.name: getattr(options, field.metadata.get("named", field.name), None) for field in _FIELDS}
    given: dict[str, Any] = {name: value for name, value in by_field.items() if value is not None}
    is_dyna = workload.algorithm == DYNA
    given.setdefault("name", COPIES if is_dyna else "serial")
    if given.get("banks", 1) > 1:
        given.setdefault("strategy", BANKED)
    if is_dyna and given["name"] == COPIES and given.setdefault("model_workers", 1):
        given.setdefault("replay", "shared")
    made = Arrangement(**given)
    made.check(workload, list_given(options))
    return made


_FIELDS = dataclasses.fields(Arrangement)


def with_options(workload: Workload, options: argparse.Namespace, values: Values | None = None) -> Workload:
    """The workload with the options of the command line, and other ``values``.

    TrainingError if one is out of range, or is about a replay where there is none.
    """
    given = list_given(options)
    check_needs(given, Arrangement(), workload, [REPLAY])
    check_ranges(given)
    of_workload = {name: OPTIONS[name].path for name in given}
    values = (values or {}) | {path: given[name] for name, path in of_workload.items() if path}
    if ("learner", "batch") in values:
        values["learner", "learning_starts"] = start_of(workload, values)
    return with_values(workload, values)


def start_of(workload: Workload, values: Mapping[tuple[str, str], Any]) -> int:
    """The environment steps before the first gradient step: the workload's, or those that fill a batch and storages."""
    keys = [("learner", "batch"), *(("actors", key) for key in ("count", "environments", "local_storage"))]
    batch, *each = (values.get((table, key), getattr(getattr(workload, table), key)) for table, key in keys)
    return int(max(workload.learner.learning_starts, batch, math.prod(each)))


def with_values(workload: Workload, values: Values) -> Workload:
    """The workload with other values. TrainingError for one that cannot be trained."""
    for (table, key), value in values.items():
        part = {key: value} if not table else {table: dataclasses.replace(getattr(workload, table), **{key: value})}
        workload = dataclasses.replace(workload, **part)
    if faults := faults_of(workload):
        raise TrainingError(f"{workload.name}: {'; '.join(faults)}")
    starts, interval = workload.learner.learning_starts, workload.learner.update_interval
    if (first := -(-starts // interval) * interval) > workload.steps:
        raise TrainingError(
            f"the first gradient step is after {first:,} environment steps, the run ends after {workload.steps:,}; "
            "give more --steps, or the workload a smaller learning_starts"
        )
    return workload


def parser(about: str | None) -> argparse.ArgumentParser:
    """The parser of the command, with ``about`` as its description."""
    raw = argparse.RawDescriptionHelpFormatter
    made = Parser(prog="python -m impls.training", description=about, formatter_class=raw)
    commands = made.add_subparsers(dest="command", metavar="COMMAND")
    about = f"Train one of: {', '.join(names())}; or a workload file of yours."
    train = commands.add_parser("train", help="train a workload", description=about, allow_abbrev=False)
    train.usage = f"{train.prog} WORKLOAD [options]"
    train.add_argument("workload", help="name of a shipped workload, or a .toml file")
    train.add_argument("--algorithm", choices=ALGORITHMS, help=argparse.SUPPRESS)
    groups = {setting.group: train.add_argument_group(setting.group) for setting in OPTIONS.values()}
    for name, setting in OPTIONS.items():
        _add_option(groups[setting.group], name, setting)
    commands.add_parser("list", help="print the shipped workloads, with their records and networks")
    keys = commands.add_parser("keys", help="print every key of a workload file, with its range and default")
    show = commands.add_parser("show", help="print the file of a shipped workload")
    show.add_argument("name", help="name of the workload")
    init = commands.add_parser("init", help="write a workload file: the least that trains, every key explained")
    init.add_argument("name", nargs="?", help="name of the workload and its file; without a name it is printed")
    for command in (keys, init):
        command.add_argument("--algorithm", choices=ALGORITHMS, default="dqn", help="algorithm of the learner")
    return made


def _add_option(group: Any, name: str, setting: Setting) -> None:
    rules, usual = setting.rules, f" (default {setting.usual})" if setting.usual else ""
    if rules["shape"] == "true or false":
        group.add_argument(flag_of(name), action="store_true", help=rules["help"])
        return
    read = _every_of if "word" in rules else rules.get("read", _READERS.get(rules["shape"], str))
    if "option" not in rules:  # a name, which argparse checks
        group.add_argument(flag_of(name), choices=rules["choices"], default=setting.default, help=rules["help"] + usual)
        return
    among = f": {', '.join(rules['choices'])}" if rules.get("choices") else ""
    text = f"{rules['help']}{among}{usual}"
    group.add_argument(flag_of(name), type=read, default=setting.default, metavar=rules["option"], help=text)


KEY = "training_options"
"""The table of an answer that has the options of a run by name, and other values of its workload by table.key."""
WHY_NOT = "why_not_training"
"""The key of an answer that says why no run does what it recommends."""
STDIN = "-"


def set_up_answer(file: str, workload: Workload, options: argparse.Namespace) -> RunSetup:
    """Return the setup of a run by the answer in a file and the options that the answer does not decide.

    A file called - is the standard input. TrainingError names the file, and what is wrong with it.
    """
    called = "the answer from the standard input" if file == STDIN else file
    try:
        content = _content(file)
        if given := next((name for name in list_given(options) if name in ANSWERED), None):
            raise TrainingError(f"{flag_of(given)} is decided by the answer of --mapping; leave one of them out")
        decided, values = _read(content, workload)
        return setup_of(workload, argparse.Namespace(**vars(options) | decided | list_given(options)), values)
    except TrainingError as error:
        raise TrainingError(f"{called}: {error}") from None


def _content(file: str) -> Any:
    try:
        return json.loads(sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise TrainingError(f"cannot be read ({error.strerror}); give the file of an answer") from None
    except UnicodeDecodeError:
        raise TrainingError("is no text; it should be what dse recommend --json wrote") from None
    except (ValueError, RecursionError) as error:
        raise TrainingError(f"is no JSON ({error}); it should be what dse recommend --json wrote") from None


def _read(content: Any, workload: Workload) -> tuple[dict[str, Any], Values]:
    """The options that an answer about this workload decides, and other values of the workload."""
    question = content.get("question") if isinstance(content, dict) else None
    if not isinstance(question, dict) or "workload" not in question:
        raise TrainingError("is no answer of dse recommend --json about a workload: its question has no 'workload'")
    choice = content.get("choice")
    if not isinstance(choice, dict):
        raise TrainingError("says that nothing fits the machine, so there is nothing to run")
    if question["workload"] != workload.name:
        about = short(question["workload"])
        raise TrainingError(f"is about the workload {about}, not {workload.name!r}; ask about that, or name the other")
    if reason := choice.get(WHY_NOT):
        raise TrainingError(f"nothing here runs its mapping: {reason}; ask for another, with --fix or --exclude")
    settings, values = choice.get(KEY), Values()
    if not isinstance(settings, dict):
        raise TrainingError(
            f"has no table {KEY!r}, as answers of older versions; ask again: python -m dse recommend --json --workload "
            f"{workload.name} with the options of then"
        )
    known = [f"{table}.{field.name}" for table, fields in list_fields() if table for field in fields]
    for name, value in [*settings.items()]:
        table, _, key = name.rpartition(".")
        if name not in known and (name not in OPTIONS or name in RUN[LENGTH]):
            raise TrainingError(f"has an unknown setting {short(name)}{near(name, OPTIONS)}")
        is_text = not table and OPTIONS[name].rules["shape"] == "text"
        if type(value) is not (str if is_text else int):
            kind = "text" if is_text else "a whole number"
            raise TrainingError(f"has {short(value)} as {name}, which must be {kind}")
        if table:
            values[table, key] = settings.pop(name)
    return settings, values
