"""The table of all settings of a run, and workload files: read strictly, and written to begin with.

A setting is a field of ``Workload``'s tables, of ``Arrangement``, or of ``RUN``, with its meaning, what it may be, its
default and what it needs. ``OPTIONS`` are those that are options of the command line. A workload file is TOML, and
everything that is wrong with it is reported at once.

    name = "mine"
    environment = "CartPole-v1"
    algorithm = "dqn"
    steps = 50_000
    [observation]
    shape = [4]
    [action]
    choices = 2
    [network]
    hidden = [64, 64]
    [learner]
    batch = 64
    ...

``python -m impls.training keys`` prints all keys. A key left out has its default.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..strict_toml import Faults, Field, Files, KeyPath, Reader, UnreadableError
from .algorithm import ALGORITHMS, TIMED
from .arrangement import Arrangement, flag_of
from .errors import TrainingError, WorkloadError
from .workload import MOST, Actors, Exploration, Model, Replay, Workload, flag, text, whole

KIND = "workload"
_LEAST_PARTED = 2  # units of input layers, one of the state and one of the action
_ALGORITHM = re.compile(r'(?m)^algorithm = "(\w+)"')
_MOST_CHANNELS = 16  # as many as frames can be stacked
_STORED_PER_FRAME = 8  # least records of an insert for each frame that it repeats
LENGTH = "length and folder of a run"
EPISODES_SHOWN, IMAGES_SHOWN = 100, 500  # of a run, of an episode, at most
_SUITED, _FOLDER = "dense if suited", "runs/WORKLOAD/TREE-seedN, or ARRANGEMENT-seedN"
RUN: dict[str, dict[str, Field]] = {
    "implementations": {
        "contestant": text("sum tree", default="numba", option="TREE"),
        "learner": text("learner: dense, where it is suited, or torch", (), None, option="NAME", otherwise=_SUITED),
        "policy": text("implementation by which actors act", (), None, option="NAME", otherwise=_SUITED),
        "split": flag("policy and critic of torch in a process each", False),
        "device": text("device of the learner", ("cpu", "cuda"), "cpu"),
        "compile": flag("networks passed through torch.compile, which needs a C++ compiler", False),
    },
    "processes": {"cluster": text("Ray cluster of nodes: auto, local or HOST:PORT", (), "auto", option="ADDRESS")},
    LENGTH: {
        "mapping": text("file that dse recommend --json wrote, or - for standard input", (), None, option="FILE"),
        "adapt": flag("search of actors and batch by measured rates while the run trains, apart", False),
        "seconds": whole("seconds from the first step to the end", 1, 1_000_000_000, None, option="S"),
        "seed": whole("seed, which decides all of a run on one thread", 0, 1 << 32, 0, option="N", read=int),
        "out": text("folder of the run", (), None, option="FOLDER", read=Path, otherwise=_FOLDER),
        "resume": flag("continuation from the last checkpoint; with more --steps also of a run that is done", False),
        "parent": text("for programs: process whose end saves and ends this run", (), None, option="PID", read=int),
        "checkpoint_every": whole("steps between checkpoints, taken at an episode's end", 1, MOST, 10_000, option="S"),
        "test_episodes": whole("episodes that test the best weights at the end", 0, 1_000_000, 100, option="E"),
        "json": flag("summary printed as JSON, as summary.json has it", False),
        "test_process": flag("evaluation in a process of its own, while training continues", False),
        "show": text(
            f"folder for images of up to {EPISODES_SHOWN} episodes, {IMAGES_SHOWN} of each, or window",
            (),
            None,
            option="DIR",
        ),
    },
}
"""Settings of a run that neither its workload nor its processes have, by the group of options that they are in."""


class Setting(NamedTuple):
    """A setting that is an option of the command line, in a ``group``, with the ``rules`` of its field.

    ``default`` is its value where it is not given, ``usual`` what then holds, ``path`` its (table, key) in a workload.
    """

    group: str
    rules: Mapping[str, Any]
    default: Any
    usual: Any
    path: tuple[str, str] | None = None


def list_fields() -> Iterator[tuple[str, tuple[Field, ...]]]:
    """The keys of a workload file: the name of each table, "" for the top one, with the fields of its keys."""
    fields = dataclasses.fields(Workload)
    yield "", tuple(field for field in fields if field.metadata)
    yield from ((field.name, dataclasses.fields(field.type)) for field in fields if not field.metadata)  # type: ignore[arg-type]


def _list_options() -> Iterator[tuple[str, Setting]]:
    top, *tables = list_fields()
    rows = [((table, field.name), field) for table, fields in (top, *reversed(tables)) for field in fields]
    for path, field in (*rows, *((None, field) for field in dataclasses.fields(Arrangement))):
        if "option" in field.metadata:
            group, usual = ("values of the workload", "the workload's") if path else ("processes", field.default)
            yield field.metadata.get("named", field.name), Setting(group, field.metadata, None, usual, path)
    for group, settings in RUN.items():
        for name, field in settings.items():
            yield name, Setting(group, field.metadata, field.default, field.metadata.get("otherwise", field.default))


OPTIONS = dict(_list_options())
"""All settings that are options of the command line, by name, with _ for -."""


def check_ranges(values: Mapping[str, Any]) -> None:
    """TrainingError for the value of an option, by its name, that is out of its range; None is in any."""
    for name, value in values.items():
        rules = OPTIONS[name].rules
        if value is None or "low" not in rules or "word" in rules:  # an arrangement checks the latter
            continue
        if not rules["low"] <= value <= rules["high"]:
            bound = f"at most {rules['high']:,}" if value > rules["high"] else f"at least {rules['low']:,}"
            raise TrainingError(f"{flag_of(name)} must be {bound}, not {value}")


def _build(data: Mapping[str, Any]) -> tuple[Workload | None, Faults]:
    """(workload, no faults), or (None, all faults). UnreadableError for no data."""
    if not data:
        raise UnreadableError("is empty: a workload has a name, an environment and an algorithm at least")
    reader = _Reader()
    workload: Workload | None = reader.table(Workload, data, ())
    faults = list(_between(workload)) if workload else reader.faults
    return None if faults else workload, faults


_FILES = Files(KIND, Path(__file__).parent / "workloads", _build, WorkloadError)
names, path_of, parse, text_of = _FILES.names, _FILES.path_of, _FILES.parse, _FILES.text_of


def load(name: str | Path) -> Workload:
    """The shipped workload of that name, or the one in a file. WorkloadError with everything that is wrong."""
    return _FILES.load(path_of(name))


def timed_names() -> tuple[str, ...]:
    """The shipped workloads that ``load_timed`` takes."""
    found = ((name, _ALGORITHM.search(path_of(name).read_text("utf-8"))) for name in names())
    return tuple(name for name, stated in found if stated and stated[1] in TIMED)


def load_timed(name: str | Path) -> Workload:
    """The same of an algorithm all of whose parts are timed, which profiles and the solver need. WorkloadError else."""
    if (workload := load(name)).algorithm not in TIMED:
        raise WorkloadError(
            f"{workload.name}: neither profiles nor the solver time {workload.algorithm}, of which gradient steps are "
            f"but a part; ask about a workload of {', '.join(TIMED)}, or train it: "
            f"python -m impls.training train {name}"
        )
    return workload


def faults_of(workload: Workload) -> list[str]:
    """All faults that reading such a workload from a file would report, for one that a program changed."""
    _, faults = _build(stated(workload))
    return [f"[{path[0]}] {sentence}" if len(path) > 1 else sentence for path, sentence in faults]


def stated(table: Any) -> dict[str, Any]:
    """The keys that a file would state; defaults are omitted, because some lie outside their key's range."""
    keys: dict[str, Any] = {}
    for field in dataclasses.fields(table):
        value = getattr(table, field.name)
        if dataclasses.is_dataclass(value):
            keys[field.name] = stated(value)
        elif value != field.default:
            keys[field.name] = list(value) if isinstance(value, tuple) else value
    return keys


def of_stated(keys: Any) -> Workload | None:
    """The workload of which ``stated`` gave these keys; None for anything else."""
    return _build(keys)[0] if keys and isinstance(keys, dict) else None


class _Reader(Reader):
    """Reads numbers and checks the ranges that the fields of ``Workload`` state."""

    def value(self, field: Field, value: Any, path: KeyPath) -> Any:
        rules = field.metadata
        match rules.get("shape"), value:
            case "true or false", bool():
                return value
            case "a number", int() | float() if not isinstance(value, bool):
                return float(max(rules["low"], min(self._in_range(rules, value, path), rules["high"])))
            case "a whole number", int() if not isinstance(value, bool):
                return self._in_range(rules, value, path)
            case "an array of whole numbers", list() if all(type(part) is int for part in value):
                if not 1 <= len(value) <= rules["most"]:
                    self.fault(path, f"{path[-1]} must have 1 to {rules['most']} numbers, not {len(value)}")
                return tuple(self._in_range(rules, part, path) for part in value)
        return super().value(field, value, path)

    def _in_range(self, rules: Mapping[str, Any], value: Any, path: KeyPath) -> Any:
        low, high, above = rules["low"], rules["high"], rules.get("above", False)
        if not low <= value <= high or (above and value == low):  # so said, NaN is refused too
            bounds = f"above {low:g}" if above else f"at least {low:,}"
            self.fault(path, f"{path[-1]} must be {bounds} and at most {high:,}, not {str(value)[:24]}")
        return value

    def expected(self, field: Field, path: KeyPath) -> str:
        return f"{'' if field.metadata else 'a table, '}{super().expected(field, path)}"

    def kind_of(self, value: object) -> str:
        if isinstance(value, list):
            return "an array of other things"
        return str(value) if isinstance(value, float) else super().kind_of(value)


def _between(workload: Workload) -> Iterator[tuple[KeyPath, str]]:
    """Faults between keys that may each be right."""
    action, learner, replay, name = workload.action, workload.learner, workload.replay, workload.algorithm
    if (action.choices > 0) == (action.size > 0):
        yield ("action",), "[action] has either choices or size"
    elif workload.has_choices and not action.choices:
        yield ("algorithm",), f"{name} needs an [action] with choices, this one has a size"
    if workload.network.kind == "convolution" and workload.traits.has_policy:
        yield ("network", "kind"), f"a convolution is for dqn, the algorithm is {name}"
    if workload.network.dueling and workload.traits.has_policy:
        yield ("network", "dueling"), f"dueling is for dqn, the algorithm is {name}"
    yield from _of_frames(workload)
    if workload.traits.has_model:
        yield from _of_models(workload)
    elif workload.model != Model():
        yield ("model",), f"{name} learns no model of the environment; leave [model] out"
    if learner.target_interval == 1 and learner.tau == 1:
        yield ("learner", "tau"), "there is no target network; give tau below 1 or target_interval above 1"
    environments = workload.actors.count * workload.actors.environments
    least = max(learner.batch, environments * workload.actors.local_storage)
    if learner.learning_starts < least:
        room = f"{least:,}, a batch and every environment's local storage once"
        yield ("learner", "learning_starts"), f"learning_starts must be at least {room}"
    least += workload.observation.frames * workload.actors.environments
    if not workload.traits.has_replay:
        yield from _of_rollouts(workload)
    elif not replay.capacity:
        yield ("replay",), "has no [replay] with a capacity, which every algorithm but a3c needs"
    elif replay.capacity < least:
        yield ("replay", "capacity"), f"capacity must be at least {least:,}, a batch and every local storage"
    if not workload.traits.has_policy and max(workload.exploration.start, workload.exploration.end) > 1:
        key = "start" if workload.exploration.start > 1 else "end"
        yield ("exploration", key), f"{key} must be at most 1 for dqn, of which it is a chance"


def _of_rollouts(workload: Workload) -> Iterator[tuple[KeyPath, str]]:
    """Faults of a3c, which learns once from each n steps, and then forgets them."""
    numbers = workload.learner.batch, workload.learner.update_interval, workload.learner.learning_starts
    if workload.replay != Replay():
        yield ("replay",), "a3c has no replay; leave [replay] out"
    if len({*numbers}) > 1:
        sentence = f"must all be n, not {numbers[0]}, {numbers[1]} and {numbers[2]}"
        sentence = f"a3c learns from each n steps once: batch, update_interval and learning_starts {sentence}"
        yield ("learner", "batch"), sentence
    if workload.actors != Actors():
        yield ("actors",), "a3c has one actor of one environment, which hands over each step; give it more copies"
    if workload.exploration != Exploration():
        yield ("exploration",), "a3c explores by its policy alone; leave [exploration] out"
    if workload.observation.frames > 1:
        yield ("observation", "frames"), "a3c takes no stacks of frames; leave frames out, or let the environment stack"


def _of_models(workload: Workload) -> Iterator[tuple[KeyPath, str]]:
    """Faults of what a model of the environment does not predict, and of those who learn from what it says alone."""
    seen, name, replay, model = workload.observation, workload.algorithm, workload.replay, workload.model
    if seen.dtype == "uint8" or seen.frames > 1 or workload.network.kind == "convolution":
        images = f"{name} predicts numbers, not images; give it dtype float32, frames 1 and an mlp, or train dqn"
        yield ("observation",), images
    for field in dataclasses.fields(Model):
        only, is_stated = field.metadata.get("only", (name,)), getattr(model, field.name) != field.default
        if is_stated and name not in only:
            sentence = f"{field.name} is of {' and '.join(only)}, and would change nothing of {name}; leave it out"
            yield ("model", field.name), sentence
            break
    if model.kind == "ensemble" and name == "dyna_q":
        yield ("model", "kind"), "dyna_q has workers that share an mlp, not an ensemble; leave kind out"
    if model.kind != "ensemble" and model.members != Model().members:
        yield ("model", "members"), f'members is of an ensemble, not of kind {model.kind}; give kind = "ensemble"'
    if model.kind == "parted" and (units := model.hidden[0]) < _LEAST_PARTED:
        sentence = f"parted needs {_LEAST_PARTED} units or more in the first layer, for state and action, not {units}"
        yield ("model", "hidden"), sentence
    if workload.clip_rewards:
        yield ("clip_rewards",), f"{name} predicts rewards, none of which is exactly 0; leave clip_rewards out"
    if name == "mbpo" and replay.alpha:
        yield ("replay", "alpha"), f"mbpo samples states uniformly: alpha must be 0, not {replay.alpha:g}"
    if workload.has_choices:
        return
    if workload.action.choices:
        sentence = f"{name} has actions of numbers, not of {workload.action.choices} choices; give [action] a size"
        yield ("action",), sentence
    if replay.presampled:
        sentence = f"{name} samples after each step: presampled must be 0, not {replay.presampled:,}; leave it out"
        yield ("replay", "presampled"), sentence
    if replay.initial_priority != "max":
        sentence = f"{name} has no priorities of TD errors: initial_priority {replay.initial_priority} is not max"
        yield ("replay", "initial_priority"), f"{sentence}; leave it out"


def _of_frames(workload: Workload) -> Iterator[tuple[KeyPath, str]]:
    """Faults between the shape of observations, the network and local storage."""
    seen, storage = workload.observation, workload.actors.local_storage
    if workload.network.kind == "convolution" and len(seen.stacked) != 3:
        yield ("network", "kind"), "a convolution takes observations of 3 dimensions, frames included"
    elif workload.network.kind == "convolution" and seen.stacked[0] > _MOST_CHANNELS:
        shapes = f"[H, W], or [C, H, W] with C at most {_MOST_CHANNELS}"
        yield ("observation", "shape"), f"a convolution takes frames {shapes}, not {seen.shape[0]}"
    least = _STORED_PER_FRAME * seen.frames
    if seen.frames > 1 and storage < least and workload.algorithm != "a3c":
        is_stated = storage > 1  # otherwise it is the frames that a file states
        path = ("actors", "local_storage") if is_stated else ("observation", "frames")
        yield path, f"local_storage must be at least {least} with {seen.frames} frames, which each insert repeats"


_HEAD = """
# A workload: an environment, and a network to train on it. To train it: python -m impls.training train {name}.toml
# Every key stands here with its meaning and its range; where only the least of a count stands, the most is
# {most:,}. A line #key is omitted and has the default that it shows; take its # away to state another value.
# Replace the environment by yours, such as mypackage:Grid-v0, with its spaces.
"""
_USUAL = {"network.hidden": [64, 64], "evaluation.interval": 2_500}
_CHOOSING = {"environment": "CartPole-v1", "observation.shape": [4], "action.choices": 2}
_CONTINUING = {"environment": "Pendulum-v1", "observation.shape": [3], "action.size": 1}
_COUNTS = ("steps", "learner.batch", "learner.update_interval", "learner.learning_starts")
_UNSTATED = {"note": "?", "choices": 2, "size": 1, "capacity": 50_000, "tau": 0.005}
"""What the template shows of keys that are not stated and whose defaults no file could state."""


def template(name: str = "mine", algorithm: str = "dqn") -> str:
    """Write a file that is valid and trains: the keys that every workload states, and all others commented out.

    Its network of two layers acts in an environment of gymnasium's own.
    """
    traits = ALGORITHMS[algorithm]
    stated = _USUAL | (_CHOOSING if traits.has_choices else _CONTINUING)
    if not traits.has_replay:
        stated |= dict(zip(_COUNTS, (300_000, 128, 128, 128), strict=True))
    else:
        stated |= dict(zip(_COUNTS, (50_000, 64, 1, 1_000), strict=True)) | {"replay.capacity": 50_000}
    stated |= {"name": name, "algorithm": algorithm} | ({"replay.alpha": 0.0} if algorithm == "mbpo" else {})
    lines = [_HEAD.strip().format(name=name, most=MOST)]
    for table, fields in list_fields():
        if table:
            lines += ["", f"# {getattr(Workload.__annotations__[table], '__doc__', '')}", f"[{table}]"]
        for field in fields:
            lines += _lines_of(field, stated.get(f"{table}.{field.name}".lstrip(".")))
    return "\n".join([*lines, ""])


def _lines_of(field: Field, stated: Any) -> Iterator[str]:
    """The lines of a key: its value, commented out where it is the default, its meaning, and what it may be."""
    rules, is_stated = field.metadata, stated is not None
    value = stated if is_stated else _UNSTATED.get(field.name, field.default)
    start = f"{'' if is_stated else '#'}{field.name} = {_in_toml(value)}"
    bounds = ", ".join(rules.get("choices", ()))
    if "low" in rules:
        low, high = (f"{end:,}" if isinstance(end, int) else f"{end:g}" for end in (rules["low"], rules["high"]))
        low = f"above {low}" if rules.get("above") else low
        bounds = f"at least {low}" if rules["high"] == MOST else f"{low} to {high}"
    bounds = "; ".join(part for part in (bounds, rules.get("otherwise")) if part)
    needed = "needed; " if field.default is dataclasses.MISSING else ""
    line, bounds = f"{start:<30}# {needed}{rules['help']}", f"({bounds})" if bounds else ""
    is_short = len(line) + len(bounds) < 120
    yield from [f"{line} {bounds}".rstrip()] if is_short else [line, f"{'':30}# {bounds}"]


def _in_toml(value: Any) -> str:
    return f"{value:_}" if type(value) is int else f"{value:g}" if type(value) is float else json.dumps(value)
