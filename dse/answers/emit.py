"""Write an answer as something to paste: a line of Python, a command, or a file of TOML."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import impls
from impls.strict_toml import UnreadableError
from impls.training import Workload, WorkloadError, load
from impls.training.arrangement import SEVERAL
from impls.training.options import KEY, WHY_NOT

from ..answer import Note, Row
from ..mapping.answer import MappingAnswer
from ..mapping.options import implementation_of
from ..mapping.processes import strategy_of
from ..mapping.question import NUMBERS, MappingQuestion
from ..solver.problem import TREE
from .printer import say

FORMATS = ("toml",)
DIGITS = 3  # of a rate in a file
DTYPE = "float32"  # what a tree has unless it is told
DEVICE_TREE = "cupy"  # the tree that may lie on another device than the records, which a serial run keeps by the actors
SHARED_TREE = "numba"  # whose kernels the replay of several processes calls
_RENAMED = {"contestant": "implementation"}
Tables = dict[str, Any]
"""What a file says: values, and tables of values, by key."""


def make_line(
    implementation: str, capacity: int, fanout: int, threads: int, dtype: str, options: Mapping[str, Any]
) -> str:
    """Write the call that makes a tree, without what is the default anyway.

    >>> make_line("numba", 1_000_000, 16, 2, "float32", {"propagate": "delta"})
    'impls.make("numba", 1_000_000, fanout=16, threads=2, propagate="delta")'
    """
    words: dict[str, Any] = {"fanout": fanout} if impls.traits(implementation).uses_fanout else {}
    words |= {"threads": threads} if threads != 1 else {}
    words |= {"dtype": dtype} if dtype != DTYPE else {}
    named = [f"{key}={_python(value)}" for key, value in {**words, **options}.items()]
    return f"impls.make({', '.join([_python(implementation), f'{capacity:_}', *named])})"


def list_run_settings(question: MappingQuestion, answer: MappingAnswer) -> dict[str, Any]:
    """Return the settings of a run by KEY, which training reads by ``--mapping``, or why there are none by WHY_NOT."""
    values = {key: value for key, value in question.fix.items() if key in NUMBERS}
    if why := why_not_run(answer):
        return {"values": values, WHY_NOT: say(why.kind, why.values)}
    choice, shape = answer.choice.more, answer.question
    chosen = {"batch": shape["batch"], "presampled": choice["depth"], "environments": choice["environments"]}
    more = {"update_interval": shape["update_interval"], **values}
    more = {".".join(NUMBERS[key]): value for key, value in more.items() if key not in chosen}
    return {"values": values, KEY: {**run_settings(answer), **chosen, **more}}


def why_not_run(answer: MappingAnswer) -> Note | None:
    """Return why impls.training cannot run exactly this mapping; None where it can, with the answer's own workload."""
    device = {option.part: option.device for option in answer.chosen.configuration.options}
    tree, learner = answer.details("sampling"), answer.details("learner")
    home, learns_at = device["actors"], {"device": device["learner"]}
    at = device["sampling"] if tree.get("contestant") == DEVICE_TREE else home
    if away := [device[part] for part in TREE if device[part] != at]:
        return Note("run_has_tree_at", {"home": at, "device": away[0]})
    if device["storage"] != home:
        return Note("run_has_records_at", {"home": home, "device": device["storage"]})
    if not {"contestant", "fanout"} <= tree.keys():
        return Note("tree_is_not_stated")
    if tree.get("threads", 1) != 1 or tree.get("options"):
        return Note("run_has_plain_tree")
    if answer.arrangement != "serial" and tree["contestant"] != SHARED_TREE:
        return Note("run_shares_tree", {"shared": SHARED_TREE, "contestant": tree["contestant"]})
    if learner.get("devices", 1) != 1:
        return Note("run_has_one_device")
    if "layers" in learner:
        return Note("run_has_whole_learner")
    if "pipelines" in learner:
        return Note("run_has_no_fpga", learns_at)
    if device["learner"] != home and "learners" in learner:
        return Note("learners_share_weights_at", {"home": home, **learns_at})
    if "learners" in learner and answer.arrangement == "serial":
        return Note("one_process_one_learner")
    return None


def training_command(answer: MappingAnswer) -> str | None:
    """Write the command that runs a mapping; None where none does exactly that."""
    own = _loaded(answer.workload_argument) if answer.workload_argument else None
    if own is None or why_not_run(answer):
        return None
    settings, depth, environments = run_settings(answer), answer.choice.more["depth"], answer.built.parts.environments
    settings |= {"presampled": depth} if depth != own.replay.presampled else {}
    settings |= {"environments": environments} if environments != own.actors.environments else {}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    return f"python -m impls.training train {shlex.join([answer.workload_argument, *words])}"


def run_settings(answer: MappingAnswer) -> dict[str, Any]:
    """The options of training that a mapping decides, by name, but for numbers of its batches and environments."""
    device, choice = answer.choice.label, answer.choice.more
    tree, learner, actors = answer.details("sampling"), answer.details("learner"), answer.details("actors")
    by = {"learner": implementation_of(learner), "policy": implementation_of(actors)}
    if answer.arrangement == "serial":
        settings = {**by, "contestant": tree["contestant"]}
    else:
        settings = {"arrangement": answer.arrangement, "actors": actors.get("processes", 1), **by}
    settings["fanout"] = tree["fanout"]
    settings |= {"threads": learner["threads"]} if device["learner"] == device["actors"] else {"device": "cuda"}
    settings |= {key: learner[key] for key in SEVERAL if key in learner}
    usual = strategy_of(answer.arrangement, choice["banks"])
    return settings | ({"strategy": choice["strategy"]} if choice["strategy"] not in ("", usual) else {})


def piped_command(answer: MappingAnswer, asked: str) -> str | None:
    """Write the commands that ask again and run the answer, where its workload is changed; None where nothing does."""
    words = shlex.split(asked)
    if not asked or answer.workload_argument or why_not_run(answer) or "--workload" not in words:
        return None
    workload = shlex.quote(words[words.index("--workload") + 1])
    return f"{asked} --json | python -m impls.training train {workload} --mapping -"


def _loaded(workload: str) -> Workload | None:
    try:
        return load(workload)
    except (WorkloadError, UnreadableError):
        return None


def mapping_tables(answer: MappingAnswer, capacity: int) -> Tables:
    """Write a mapping as the tables of a file: what to run, the rate to expect, and a table for each part."""
    unit = "gradient steps/J" if answer.objective == "per_watt" else "gradient steps/s"
    rate = {name: float(f"{getattr(answer, name):.{DIGITS}g}") for name in ("value", "low", "high")}
    said = {name: answer.question[name] for name in ("platform", "workload", "objective")}
    said |= {"workload": answer.workload_argument} if answer.workload_argument else {}
    shape = {name: answer.question[name] for name in ("batch", "update_interval")} | {"capacity": capacity}
    shape |= {"environments": answer.built.parts.environments}
    expected = {"unit": unit, **rate, "ends": answer.interval, "upper_bound": answer.choice.is_bound}
    depth, where = answer.chosen.configuration.depth, answer.chosen.configuration.where
    parts = {row.label["part"]: _table(row, where[row.label["part"]]) for row in answer.parts}
    return {**said, "mode": answer.arrangement, "depth": depth, **shape, "expected": expected, **parts}


def _table(part: Row, where: Sequence[tuple[str, str]]) -> Tables:
    details = {_RENAMED.get(key, key): value for key, value in part.more["details"].items() if value is not None}
    together = {"together": [device for device, _ in where]} if len(where) > 1 else {}
    device, choice, source = part.label["device"], part.more["implementation"], part.number["source"]
    return {"device": device, **together, "choice": choice, **details, "source": source}


def to_toml(tables: Tables, command: str) -> str:
    """Write the tables as a file of TOML; ``command``: what was asked, for a comment."""
    return "\n".join([f"# made by: {command}", *_toml(tables)])


def _toml(tables: Tables) -> Iterator[str]:
    yield from (f"{key} = {_value(value)}" for key, value in tables.items() if not isinstance(value, dict))
    for key, table in tables.items():
        if isinstance(table, dict):
            yield from ("", f"[{key}]")
            yield from (f"{inner} = {_value(value)}" for inner, value in table.items())


def _value(value: Any) -> str:
    """Write a value as TOML has it, a table within its line. TypeError for what TOML has none of."""
    if isinstance(value, Mapping):
        inside = ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, (str, bool, int, float)):
        return json.dumps(value, ensure_ascii=False)
    raise TypeError(f"TOML has no value like {value!r}")


def _python(value: Any) -> str:
    """Write a value as Python has it, words in double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_python(key)}: {_python(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_python, value))}]"
    return repr(value)
